"""Forks: a session that begins with the events of another one, byte for byte, and goes its own way.

The parent is only read, without its lock, whether it is being written or not. The child is built
where nobody looks and appears in one step with all that it inherits and its first own event, so a
crash leaves the whole child or none.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Any

from perdure.backends.base import Backend, Hold
from perdure.errors import (
    ContentDamaged,
    ContentExpired,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.lenses.lines import SourceLines
from perdure.model.event import Draft, draft
from perdure.model.header import VOCABULARY, Header, Parent, Source, check_cwd, check_id, new_header
from perdure.model.record import Position, Record, seal
from perdure.recovery.closers import OpenWork
from perdure.recovery.walk import Known, Walk
from perdure.runtime import Runtime
from perdure.store.content import DIGESTS_MAX, content_of
from perdure.store.copying import Side
from perdure.store.families import Relative, children_of, descendants_of, lineage_of
from perdure.store.folding import Folds
from perdure.store.forkpoint import NEVER, Place, Prefix, end_of_turn, prefix_of, shortened
from perdure.store.imported import lens_version
from perdure.store.opening import refuse_taken
from perdure.store.queue import Keys
from perdure.store.reading import Pages
from perdure.store.retention import Retention
from perdure.store.session import Session
from perdure.store.witness import Witness

__all__ = ["Forking"]


class Forking(ABC):
    """What a store does for sessions that come from other ones."""

    _backend: Backend
    _folds: Folds
    _pages: Pages
    _retention: Retention
    _runtime: Runtime
    _witness: Witness

    @abstractmethod
    def _check_open(self) -> None: ...

    @abstractmethod
    def _side(self) -> Side: ...

    @abstractmethod
    def _session(
        self,
        header: Header,
        hold: Hold | None,
        keys: Keys,
        proven: frozenset[Position] = frozenset(),
    ) -> Session: ...

    def fork(
        self,
        id: str,
        at: int | None = None,
        *,
        new_id: str | None = None,
        turn: str | None = None,
        agent: str | None = None,
        cwd: str | EllipsisType | None = ...,
        preset: str | EllipsisType | None = ...,
        config: Any = ...,
    ) -> Session:
        """A new session that begins with the events of another one up to `at`; its writer.

        `at` is the number of the last event to take over, -1 for none; `turn` stands for the end of
        that turn, of the `agent` where several have one of that name. Without either, it is the
        last event behind which no turn is open. The other session may be open, here or elsewhere:
        only what is durable counts, and nothing in it changes.

        The records are the same bytes with the same hashes, and keys count as used. Content that
        the events refer to is copied; what is not there any more, or damaged, is written down as
        expired. `cwd`, `preset` and `config` are those of the other session if left out, `cwd` as a
        resume said it last up to there; with None the child has none. The fork of an import speaks
        the vocabulary, so that its own turns are closed after a crash; it can begin behind any
        line, also within a turn. The child is durable when
        this returns, and owes its parent nothing from then on.

        Of a damaged session, an `at` or `turn` before the damage can be forked.

        Raises:
            InvalidValue: a turn is open there, or there is no such event or turn; the hint says
                where it can be forked.
            SessionNotFound: there is no such session.
            SessionExists: `new_id` is taken.
            SessionDamaged: the log does not hold together up to there.
            FormatUnsupported: another version wrote it.
            StorageFull, StorageUnavailable: there is no child, unless it is `uncertain`.

        """
        check_id(id)
        self._check_open()
        child = self._runtime.session_id() if new_id is None else new_id
        check_id(child)
        if cwd is not ... and cwd is not None:
            check_cwd(cwd)
        refuse_taken(self._backend, child)
        with self._retention.telling(id):
            place = Place(at, turn, agent)
            parent, prefix = prefix_of(self._side(), id, self._in_our_words(id, place))
        header = new_header(
            child,
            created_at=self._runtime.now_ms(),
            cwd=_cwd_of(parent, prefix) if cwd is ... else cwd,
            parent=Parent(id, prefix.seq),
            seed=prefix.seq + 1,
            preset=parent.preset if preset is ... else preset,
            config=parent.config if config is ... else config,
            source=_source_of(parent),
            vocabulary=_vocabulary_of(parent),
            genesis=parent.genesis,
        )
        fork = _Fork(self._backend, parent, prefix, header, self._runtime)
        fork.starts = self._starts(parent, prefix.seq)
        return self._publish(fork)

    def _starts(self, parent: Header, seq: int) -> list[tuple[int, int]]:
        """Generations of a source that hold now, with lines among what a fork inherits.

        Where the event stands behind that which says that they do: a fork of what is read at a
        place has to read the same.
        """
        if parent.source is None or seq < 0:
            return []
        lines = SourceLines.of(parent)
        begun = lines.begun(self._pages.read(parent.id, 0, None), seq)
        holding = self._folds.starts(parent) if begun else {}
        return [(each, holding[each]) for each in sorted(begun or ()) if each in holding]

    def _in_our_words(self, id: str, place: Place) -> Place:
        """The place at the end of a turn that only a lens knows of, by the number of its event.

        Raises:
            InvalidValue: there is no such turn.

        """
        header = None if place.turn is None else self._backend.stored(id).header
        if header is None or place.at is not None or not lens_version(header):
            return place
        ends: dict[str | None, int] = {}
        for event in self._folds.history(header)(NEVER):
            if event.turn == place.turn:
                ends[event.agent] = max(event.seq, ends.get(event.agent, -1))
        return Place(end_of_turn(ends, place), None, None)

    def _publish(self, fork: "_Fork") -> Session:
        header, backend = fork.header, self._backend
        self._witness.announce(header)
        hold = staged = backend.stage(header)
        try:
            records = fork.records(fork.content(staged))
            hold = backend.publish(header, records, staged)
            self._witness.moved(header, hold.position)
            session = self._session(header, hold, fork.prefix.keys, frozenset({hold.position}))
            session._work = fork.work  # noqa: SLF001 - what a writer knows of what it wrote
            return session
        except BaseException:
            hold.release()
            staged.release()
            raise

    def children(self, id: str) -> list[Relative]:
        """The sessions that were forked from this one or work for it; only headers are read.

        Those of a session that was deleted are told as well.

        Raises:
            SessionNotFound: there is no such session, nor one that names it.

        """
        check_id(id)
        self._check_open()
        with self._retention.telling(id):
            return children_of(self._backend, id)

    def lineage(self, id: str) -> list[Relative]:
        """Where a session comes from: its parent, the parent's parent, and so on.

        It ends with the first that comes from nowhere, or is not there any more.

        Raises:
            SessionNotFound: there is no such session.
            SessionDamaged, FormatUnsupported: its header cannot be read.

        """
        check_id(id)
        self._check_open()
        with self._retention.telling(id):
            return lineage_of(self._backend, self._retention, id)

    def descendants(self, id: str) -> list[str]:
        """The sessions of its sub-agents, theirs too, as far as no other session needs them.

        That is what `delete(id, subagents=True)` takes along, in the order in which it does.

        Raises:
            SessionNotFound: there is no such session.

        """
        check_id(id)
        self._check_open()
        with self._retention.telling(id):
            return descendants_of(self._backend, self._pages, id)


def _cwd_of(parent: Header, prefix: Prefix) -> str | None:
    """The parent's there; that of an import is as found, and may be none of this system."""
    told = (prefix.cwd, parent.cwd)
    return next((cwd for cwd in told if cwd is not None and cwd.startswith("/")), None)


def _vocabulary_of(parent: Header) -> str | None:
    """The parent's; what was imported is continued in ours, for types of its own hold it all."""
    return VOCABULARY if parent.vocabulary is None and parent.source else parent.vocabulary


def _source_of(parent: Header) -> Source | None:
    """Of what format the lines are that it begins with; no file is kept in it any more."""
    found = parent.source
    return None if found is None else Source(found.format, found.id, found.host)


class _Fork:
    """One child in the making.

    Attributes:
        header: the child's.
        prefix: what it inherits.
        work: what is open in it, once its records were taken.
        starts: as in `SessionForked`.

    """

    def __init__(
        self, backend: Backend, parent: Header, prefix: Prefix, header: Header, runtime: Runtime
    ) -> None:
        self.header = header
        self.prefix = prefix
        self.work: OpenWork = prefix.work
        self.starts: list[tuple[int, int]] = []
        self._backend = backend
        self._parent = parent
        self._now = runtime.now_ms()

    def content(self, staged: Hold) -> list[Draft]:
        """Copy what inherited events refer to; the events that say what could not come along."""
        expired, damaged = [*self.prefix.expired], []
        for digest in self.prefix.content:
            try:
                self._bring(staged, digest)
            except ContentExpired:
                expired.append(digest)
            except (ContentDamaged, UnsafeFile):
                damaged.append(digest)
        reasons = ((expired, "it was not there any more"), (damaged, "its bytes are damaged"))
        return [
            draft(
                "content/expired",
                {"blobs": digests[start : start + DIGESTS_MAX], "rule": {"reason": reason}},
                time=self._now,
            )
            for digests, reason in reasons
            for start in range(0, len(digests), DIGESTS_MAX)
        ]

    def _bring(self, staged: Hold, digest: str) -> None:
        backend, parent = self._backend, self._parent.id
        if backend.clone_blob(staged, parent, digest) is None:
            # Also where its bytes are wrong, which is told from here.
            backend.put_blob(staged, content_of(backend, parent, digest))

    def records(self, notes: Sequence[Draft]) -> Iterator[Record]:
        """All of the child, one by one; the inherited ones are read from the parent again."""
        position = Position(-1, self.header.genesis)
        for record in self._inherited():
            yield record
            position = record.position
        data: dict[str, Any] = {
            "header": self.header.digest,
            "session": self._parent.id,
            "seq": self.prefix.seq,
        }
        if self.starts:
            data["starts"] = [list(each) for each in self.starts]
        for drafts in ([draft("session/forked", data, time=self._now), *notes], None):
            own = self._closers() if drafts is None else drafts
            for record in seal(position, own) if own else ():
                yield record
                self.work.record(record)
                position = record.position

    def _closers(self) -> list[Draft]:
        """What ends the jobs that were running: nobody works on them for the child."""
        return self.work.closers() if self.header.vocabulary == VOCABULARY else []

    def _inherited(self) -> Iterator[Record]:
        last, cover = self.prefix.seq, self.prefix.cover
        found: Position | None = None
        begin = self._backend.stored(self._parent.id).begin
        pieces = self._backend.scan(self._parent.id, begin)
        with Walk(self._parent, pieces, known=Known(None), begin=begin) as walk:
            for record in walk.records() if last >= 0 else ():
                yield from shortened(record, last)
                if record.last >= last:
                    found = record.position
                    break
        if last >= 0 and found != cover:
            error = StorageUnavailable(
                f"session {self._parent.id!r}", "changed while it was forked", hint="fork it again"
            )
            error.retryable = True
            raise error
