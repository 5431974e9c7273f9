"""What a reader sees of a session, without writing a byte and without waiting for anybody."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from perdure.backends.base import Backend, Stored, Tail
from perdure.durable.locks import Holder
from perdure.errors import PerdureError
from perdure.evidence import About
from perdure.model.event import Draft, Event
from perdure.model.header import VOCABULARY, Header, encode_header
from perdure.model.record import BadRecordError, Position, decode_line
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Problem, Walk
from perdure.store.content import content_of
from perdure.store.folding import Folds, Loaded
from perdure.store.imported import Understanding
from perdure.store.refusing import damage
from perdure.store.survey import Facts, Survey
from perdure.store.viewing import Viewing
from perdure.store.witness import Witness, known_of
from perdure.views.fold import Fold

__all__ = ["Inspection", "damage", "nobody", "raw_lines"]


class Inspection(Viewing):
    """A session as found. Cheap to make; what reads the log says so.

    Attributes:
        id: the id that was asked for.
        header: the header, or None if it is damaged or of an unsupported format.
        holder: who was writing when the inspection was made, or None.

    """

    def __init__(
        self,
        backend: Backend,
        session: str,
        survey: Survey,
        witness: Witness,
        folds: Folds,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Look at header, lock and tail. Made by `Store.inspect`; for `progress` see `Survey`."""
        self._backend = backend
        self._survey = survey
        self._witness = witness
        self._folds = folds
        self._progress = progress
        self._stored: Stored = backend.stored(session)
        self.id = session
        self.header: Header | None = self._stored.header
        self.holder: Holder | None = backend.holder(session)
        self._whole: Facts | None = None
        self._closers: list[Event] | None = None
        # What the log was folded to, and the revision it had; nobody folds on in it.
        self._loaded: tuple[str, Loaded] | None = None

    def __repr__(self) -> str:
        """Which session; its state is not looked up for this."""
        return f"<Inspection of {self.id!r}>"

    @cached_property
    def _about(self) -> About:
        """What evidence remembers; asked once, since it only ever follows the log."""
        return self._witness.about(self.id)

    @property
    def unreadable(self) -> str | None:
        """Why evidence could not be asked, so that missing records may go unnoticed, or None."""
        return self._about.unreadable

    def _known(self, header: Header) -> Known:
        return known_of(header, self._backend.tail(self.id), self._about.seen)

    def _walk(self, header: Header) -> Walk:
        """A new pass; the tail is read first, so that the log is never behind it."""
        known = self._known(header)
        begin = self._stored.begin
        return Walk(header, self._backend.scan(self.id, begin), known=known, begin=begin)

    @property
    def events(self) -> Iterator[Event]:
        """The verified events, then the closers of an interrupted turn; read as it is iterated.

        It ends where the verified prefix ends: `problems` says whether that is the end of the log.
        """
        if self.header is None:
            return
        walk, work = self._walk(self.header), OpenWork()
        for record in walk.records():
            work.record(record)
            yield from record.events()
        if walk.verdict is not Verdict.DAMAGED:
            yield from self._close(walk.position.seq, work.closers())

    def _close(self, last: int, closers: Sequence[Draft]) -> list[Event]:
        """Closers as events behind the log; none while somebody writes."""
        closing = (
            self.header is not None
            and self.header.vocabulary == VOCABULARY
            and self.holder is None
            # A writer that came meanwhile may be at work in the turn that looks abandoned.
            and self._backend.holder(self.id) is None
        )
        return [one.at(seq) for seq, one in enumerate(closers if closing else (), last + 1)]

    def _read_whole(self) -> Facts | None:
        """What one pass over everything found, remembered."""
        if self._whole is None and self.header is not None:
            known = self._known(self.header)
            begin, progress = self._stored.begin, self._progress
            self._whole = self._survey.read(self.id, self.header, begin, known, progress)
            self._closers = self._close(self._whole.ending.position.seq, self._whole.closers)
        return self._whole

    @property
    def closers(self) -> list[Event]:
        """The events that would close what a dead writer left open. Reads everything."""
        self._read_whole()
        return self._closers or []

    @property
    def position(self) -> Position | None:
        """Where the log ends; None without a header. Reads everything only after a crash.

        While somebody writes, it is the last position that was acknowledged: a commit may be under
        way behind it.
        """
        if self.header is None:
            return None
        tail = self._backend.tail(self.id)
        if self._is_known(self.header, tail) and (tail.settled or self.holder is not None):
            return tail.acknowledged
        return self.verified

    def _is_known(self, header: Header, tail: Tail) -> bool:
        """Whether what was acknowledged last is the last that anybody remembers."""
        known = known_of(header, tail, self._about.seen)
        known_too = known.acknowledged == tail.acknowledged and known.instead is None
        return tail.acknowledged is not None and known_too

    def _settled(self, header: Header) -> bool:
        """Whether the log is as the last acknowledgement left it, as far as anybody remembers."""
        tail = self._backend.tail(self.id)
        return tail.settled and self._is_known(header, tail)

    @property
    def verified(self) -> Position | None:
        """Where the verified prefix ends; None without a header. Reads everything."""
        facts = self._read_whole()
        return facts.ending.position if facts is not None else None

    @property
    def status(self) -> str:
        """A fact of the tail, read without the log where the tail file allows it.

        running (somebody writes), complete, torn, unterminated or ahead (a writer died in a
        commit), damaged, unsupported. Whether a turn is open is told by `closers`, damage before
        the tail by `problems`.
        """
        if self._stored.unsupported is not None:
            return Verdict.UNSUPPORTED.value
        if self.header is None:
            return Verdict.DAMAGED.value
        if self.holder is not None:
            return "running"
        if self._whole is None and self._settled(self.header):
            return Verdict.COMPLETE.value
        facts = self._read_whole()
        return facts.ending.verdict.value if facts is not None else Verdict.DAMAGED.value

    @property
    def problems(self) -> list[Problem]:
        """Everything that does not hold together, first things first. Reads everything.

        A tail that is torn is not a problem while somebody writes: it is the commit under way.
        """
        if self._stored.problem is not None:
            return [self._stored.problem]
        facts = self._read_whole()
        if facts is None:
            return []
        first = [facts.ending.problem] if facts.ending.problem is not None else []
        if self.holder is not None and facts.ending.verdict is Verdict.TORN:
            first = []
        return [*first, *facts.further]

    @property
    def damaged(self) -> bool:
        """Whether appends are refused. Reads everything."""
        facts = self._read_whole()
        return facts is None or facts.damaged

    @property
    def expired(self) -> frozenset[str]:
        """Digests of content that the log says has expired. Reads everything."""
        facts = self._read_whole()
        return facts.expired if facts is not None else frozenset()

    @property
    def later_count(self) -> int:
        """How many intact events stand behind the damage. Reads everything."""
        facts = self._read_whole()
        return facts.later if facts is not None else 0

    def fold(self, *, closed: bool = True) -> Fold:
        """The rows of all views at the end of the log; `closed` adds what closes abandoned work.

        Reads the checkpoint and what came after it, and all of the log where there is none; nothing
        of it again while the log stays as it is. It is the caller's own.

        Raises:
            SessionDamaged: what was read does not hold together.
            FormatUnsupported: another version wrote it.

        """
        kept = self._load()
        # Threads may ask at once: what is kept is looked at alone.
        found = kept._replace(fold=kept.fold.copy())
        last = found.fold.position.seq
        return found.close(self._close(last, found.work.closers()) if closed else [])

    def _load(self) -> Loaded:
        try:
            revision = self._backend.lasting_revision(self.id)
        except PerdureError:
            # Whoever reads the log says it best.
            revision = None
        known = self._loaded
        if known is not None and known[0] == revision:
            return known[1]
        # Asked for before: what comes meanwhile has another revision.
        loaded = self._folds.load(self.id)
        self._loaded = None if revision is None else (revision, loaded)
        return loaded

    def _events_between(self, first: int, last: int) -> Iterator[Event]:
        return self._load().history.between(first, last)

    @property
    def understanding(self) -> Understanding | None:
        """What a lens makes of an import, or of what a fork of one begins with; else None.

        Reads everything.

        Raises:
            As `fold`.

        """
        return self._load().understanding or self._folds.understanding(self.id)

    def _content_of(self, digest: str) -> bytes:
        return b"".join(content_of(self._backend, self.id, digest))

    def later(self) -> Iterator[Event]:
        """Intact events behind the first problem, UNVERIFIED: nothing links them to the prefix."""
        if self.header is None:
            pieces = self._backend.scan(self.id, self._stored.begin)
            walk = Walk(nobody(), pieces, known=Known(None), begin=self._stored.begin)
        else:
            walk = self._walk(self.header)
            for _ in walk.records():
                pass
            if walk.verdict is not Verdict.DAMAGED:
                return
        for record in walk.later():
            yield from record.events()


def raw_lines(backend: Backend, session: str, seq: int) -> Iterator[bytes | Problem]:
    """What `Store.raw` gives."""
    stored = backend.stored(session)
    return _raw_lines(backend, session, seq, stored)


def _raw_lines(
    backend: Backend, session: str, seq: int, stored: Stored
) -> Iterator[bytes | Problem]:
    if not stored.begin and stored.header is not None and not seq:
        # This medium keeps the header apart from the records.
        yield encode_header(stored.header)
    for piece in backend.scan(session, 0 if not seq else stored.begin):
        if piece.flaw is not None:
            yield Problem("frame", None, piece.start, piece.end, piece.flaw)
        for line in piece.lines:
            if not seq or _reaches(line, seq):
                yield line


def _reaches(line: bytes, seq: int) -> bool:
    """Whether a record holds `seq` or a later event; what is no record is not left out."""
    try:
        return decode_line(line).last >= seq
    except BadRecordError:
        return True


def nobody() -> Header:
    """Stands in for a header that cannot be read: no record links to it."""
    return Header(format=0, id="?", created_at=0)
