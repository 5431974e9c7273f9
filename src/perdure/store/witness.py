"""What is remembered about logs beside the logs: the positions that were acknowledged.

The tail slots of a session are exact after a kill and may be old after a loss of power; evidence is
a few seconds old and durable. A log that lacks what either of them remembers has lost something.
Evidence follows in the background and is never waited for.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from perdure.backends.base import Backend, Tail
from perdure.errors import PerdureError, SessionExists, SessionNotFound
from perdure.evidence import About, Damage, Seen
from perdure.model.header import Header
from perdure.model.identity import namespace_key
from perdure.model.record import Position, Record
from perdure.recovery.walk import Known, Problem
from perdure.runtime import Runtime
from perdure.store.flusher import DELAY_SECONDS, Flusher

__all__ = ["EVIDENCE_DELAY_SECONDS", "EvidenceState", "Follower", "Witness", "known_of", "last_of"]

EVIDENCE_DELAY_SECONDS = 5.0
"""Evidence is at most this old, and no older than the end of the last turn."""

_NOTED_MAX = 256

_Name = tuple[str, str]
"""A session's id and the digest of its header."""


class EvidenceState(NamedTuple):
    """Whether what is remembered beside the logs can be read.

    Attributes:
        unreadable: why it cannot, so that lost records may go unnoticed for now; None if it can.
        set_aside: paths of damaged evidence that writers have put out of the way.

    """

    unreadable: str | None
    set_aside: tuple[str, ...]


def last_of(seen: Sequence[Seen]) -> Seen:
    """What was seen last of several logs that had one id."""
    return max(seen, key=lambda one: one.seen_at)


def known_of(header: Header, tail: Tail, seen: Sequence[Seen]) -> Known:
    """What the log of `header` must hold, by its tail slots and by evidence."""
    slot = tail.acknowledged
    mine = next((one.position for one in seen if one.digest == header.digest), None)
    if mine is None:
        instead = None
        if seen:
            last = last_of(seen).position.seq
            instead = f"another log of this id was acknowledged, up to event {last}"
        return Known(slot, None, instead)
    if slot is None or mine.seq > slot.seq:
        return Known(mine, slot)
    return Known(slot, mine if mine != slot else None)


class Follower(Protocol):
    """Whoever is told what becomes of sessions."""

    def moved(self, session: str, records: Sequence[Record]) -> None:
        """Records were committed; none: something else changed."""


class Witness:
    """Remembers the sessions of one namespace.

    Attributes:
        follower: is told of every change, or None.

    """

    def __init__(self, backend: Backend, flusher: Flusher, runtime: Runtime) -> None:
        """Open nothing yet."""
        self.evidence = backend.evidence
        self.namespace = namespace_key(backend.parts)
        self._backend = backend
        self._flusher = flusher
        self._runtime = runtime
        self.follower: Follower | None = None
        self.reset()

    def reset(self) -> None:
        """Forget what was not noted yet: it is another process's to note."""
        self._mutex = threading.RLock()
        self._pushing = threading.RLock()
        self._moved: dict[_Name, tuple[Position, int]] = {}
        self._noted: OrderedDict[_Name, set[Position]] = OrderedDict()
        self._settled: dict[str, int] = {}
        self._soon: bool | None = None

    # --- looking ---------------------------------------------------------------------------------

    def about(self, session: str) -> About:
        """What is remembered of an id, for readers: evidence keeps nobody from reading the logs."""
        try:
            return self.evidence.about(self.namespace, session)
        except PerdureError as error:
            return About(unreadable=error.message)

    def about_to_write(self, session: str) -> About:
        """What is remembered of an id, for whoever acts on it.

        Raises:
            UnsafeFile, FormatUnsupported, StorageFull, StorageUnavailable: nobody can tell now.

        """
        if not self._backend.persistent:
            return About()
        return self.evidence.about(self.namespace, session, to_write=True)

    def knows(self, header: Header, seen: Sequence[Seen]) -> bool:
        """Whether the log with this header was acknowledged here, as far as `seen` or this tells.

        One that was brought here by hand, with all that lies beside it, was not.
        """
        name = (header.id, header.digest)
        with self._mutex:
            here = name in self._moved or name in self._noted
        return here or any(one.digest == header.digest for one in seen)

    def state(self) -> EvidenceState:
        """Whether evidence can be read."""
        unreadable = self.about("?").unreadable
        with suppress(PerdureError):
            return EvidenceState(unreadable, tuple(self.evidence.set_aside))
        return EvidenceState(unreadable, ())

    # --- noting ----------------------------------------------------------------------------------

    def announce(self, header: Header) -> None:
        """A session is about to be stored for the first time.

        Raises:
            SessionExists: its id belongs to one that was deleted, or that vanished.
            As `about_to_write`.

        """
        about = self.about_to_write(header.id)
        if about.deleted is not None:
            raise SessionExists(header.id, deleted_at=about.deleted.deleted_at)
        if about.seen:
            # The last log of this id vanished: a new one in its place would hide that.
            raise SessionExists(header.id, missing=last_of(about.seen).position.seq)
        self.begin(header.id, about)

    def begin(self, session: str, about: About) -> None:
        """What is written from now on is newer than what was settled, by whatever clock."""
        if about.settled_at is not None:
            with self._mutex:
                self._settled[session] = about.settled_at

    def moved(self, header: Header, position: Position, records: Sequence[Record] = ()) -> None:
        """The log is durable up to `position`; noted within seconds, and soon after a turn."""
        if not self._backend.persistent:
            return
        self.changed(header.id, records)
        soon = not records or any(record.type == "turn/end" for record in records)
        with self._mutex:
            seen_at = max(self._runtime.now_ms(), self._settled.get(header.id, -1) + 1)
            self._moved[header.id, header.digest] = (position, seen_at)
            due = self._soon is None or (soon and not self._soon)
            if due:
                self._soon = soon
        delay = DELAY_SECONDS if soon else EVIDENCE_DELAY_SECONDS
        if due and not self._flusher.schedule(self._push, delay):
            # Nobody does it now; the next commit asks again.
            self._soon = None

    def changed(self, session: str, records: Sequence[Record] = ()) -> None:
        """Something became of a session that whoever follows it should look at."""
        if self.follower is not None:
            self.follower.moved(session, records)

    def _push(self) -> None:
        # What could not be noted is not lost: the logs and their tail slots are there.
        with suppress(PerdureError):
            self.push()

    def push(self) -> None:
        """Note every position that moved; when it returns, no earlier call is under way.

        Raises:
            StorageFull, StorageUnavailable, UnsafeFile: it stays to be noted.

        """
        with self._pushing:
            with self._mutex:
                moved, self._moved, self._soon = self._moved, {}, None
                for name, (position, _) in moved.items():
                    self._remember(name, position)
            try:
                # What was deleted or forgotten meanwhile is not brought up again.
                there = {name: each for name, each in moved.items() if self._stored(name)}
                self.evidence.note(
                    [(self.namespace, Seen(*name, *each)) for name, each in there.items()]
                )
            except BaseException:
                with self._mutex:
                    self._moved = {**moved, **self._moved}
                raise

    def _stored(self, name: _Name) -> bool:
        session, digest = name
        try:
            header = self._backend.stored(session).header
        except SessionNotFound:
            return False
        # A header that cannot be read any more says nothing against what was acknowledged.
        return header is None or header.digest == digest

    def _remember(self, name: _Name, position: Position) -> None:
        with self._mutex:
            # The one before may still be what stands there.
            before = max(self._noted.pop(name, ()), default=position)
            self._noted[name] = {before, position}
            while len(self._noted) > _NOTED_MAX:
                self._noted.popitem(last=False)

    def noted(self, header: Header) -> set[Position]:
        """What this store may have noted last of a log since it was asked before."""
        with self._mutex:
            return self._noted.pop((header.id, header.digest), set())

    def drop(self, session: str) -> None:
        """Bring up nothing more of what is to be noted of an id; nothing is under way then."""
        with self._pushing, self._mutex:
            for names in (self._moved, self._noted):
                for name in [name for name in names if name[0] == session]:
                    del names[name]

    def report(self, session: str, problem: Problem | None) -> None:
        """Remember that a writer was refused."""
        kind, record, reason = "record", None, "it does not hold together"
        if problem is not None:
            kind, record, reason = problem.kind, problem.record, problem.reason
        with suppress(PerdureError):
            damage = Damage(session, kind, record, reason, self._runtime.now_ms())
            self.evidence.report(self.namespace, damage)

    def sound(self, session: str, about: About) -> None:
        """The log holds together and is stored: what was reported of it is over."""
        with suppress(PerdureError):
            if about.damage:
                self.evidence.clear_report(self.namespace, session)
            if about.deleted is not None:
                # A crash came between a restoration and the end of its tombstone.
                self.evidence.unbury(self.namespace, session)
