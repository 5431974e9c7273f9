"""Keeping a catalog honest, in three ways of which each is enough by itself.

Push: the background thread reads on what this process wrote, soon, and is never waited for. Pull:
the revisions of all logs are compared, and what changed is read. Start-up: what the marks of dead
writers name is read before the first answer, and everything if there was no catalog yet.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from perdure.backends.base import Backend
from perdure.catalog.contract import Catalog, Filters
from perdure.errors import (
    FormatUnsupported,
    PerdureError,
    StorageFull,
    StorageUnavailable,
    StoreClosed,
    UnsafeFile,
)
from perdure.model.record import Record
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher
from perdure.store.indexing import Indexing
from perdure.store.marks import Marking
from perdure.store.queue import Keys

__all__ = [
    "COMPLETE",
    "PUSH_EVENTS",
    "PUSH_SECONDS",
    "Followed",
    "Indexer",
    "Refreshed",
    "Unfollowed",
]

PUSH_EVENTS = 20
PUSH_SECONDS = 5.0
"""After so many events, or so long, the catalog follows a session that is being written."""

_DRAIN_SECONDS = 2.0
COMPLETE = "complete"
"""The note of a catalog that knows all sessions of a namespace."""

_ARRANGEMENT, _PROJECTED = "arrangement", "projected"
_PIECE = "assistant/delta"
_RUNNING_MAX = 10_000
_BESIDE = "somebody else went on reading it"

Progress = Callable[[int, int], None]


class Refreshed(NamedTuple):
    """What a look at all sessions came to.

    Attributes:
        sessions: how many there are.
        read: how many were read, because something was new.
        gone: how many were forgotten.
        failed: those of the sessions read that are not whole or cannot be read, with the reason.

    """

    sessions: int
    read: int
    gone: int
    failed: tuple[tuple[str, str], ...]


class _StoppedError(Exception):
    """There is no time left. Internal."""


class Followed(Protocol):
    """Whoever is told that a session is being written, and that it is no more."""

    def begun(self, session: str) -> str | None:
        """Somebody is about to write a session; the name of its mark, for `left`."""

    def left(self, session: str, mark: str | None) -> None:
        """The writer is gone."""


class Unfollowed:
    """Stands for an indexer where this process keeps no index, and others may.

    What it writes is marked, and stays so until somebody reads it into theirs.
    """

    def __init__(self, marks: Marking, *, wanted: Callable[[], bool]) -> None:
        """`wanted` says whether there is an index that would miss it."""
        self._marks = marks
        self._wanted = wanted

    def begun(self, session: str) -> str | None:
        """Somebody is about to write a session."""
        return self._marks.set(session) if self._wanted() else None

    def left(self, session: str, mark: str | None) -> None:
        """The writer is gone; its mark stays."""


class _New:
    """A session with something new.

    Attributes:
        events: how many events are new.
        marks: those that are taken away once the catalog is up to date.

    """

    __slots__ = ("events", "marks")

    def __init__(self) -> None:
        self.events = 0
        self.marks: list[str] = []


class Indexer:
    """Follows the sessions of one namespace.

    Attributes:
        follower: is told of each session that was written here, once the catalog is up to date.

    """

    def __init__(
        self,
        backend: Backend,
        indexing: Indexing,
        marks: Marking,
        flusher: Flusher,
        runtime: Runtime,
        *,
        spare: Callable[[], Catalog],
    ) -> None:
        """Nothing is read; `spare` makes a catalog in memory."""
        self.follower: Callable[[str], None] = lambda _session: None
        self._make_spare = spare
        self._main = indexing.catalog
        self._backend = backend
        self._indexing = indexing
        self._marks = marks
        self._flusher = flusher
        self._runtime = runtime
        self.reset()

    def reset(self) -> None:
        """Forget what this process was to do: it is another one's."""
        self._mutex = threading.RLock()
        self._single = threading.RLock()
        self._pushing = threading.RLock()
        self._waiting: dict[str, _New] = {}
        self._begun, self._done = 0, 0
        self._last = Refreshed(0, 0, 0, ())
        # Whether nothing was there to be indexed when somebody looked last.
        self._hollow = False
        self._until: float | None = None
        self._spare: Catalog | None = None
        self._indexing.catalog = self._main
        # What is kept in memory is made when somebody asks first, and followed from then on.
        kept = self._backend.beside is not None or self._backend.database is not None
        self._asked = kept

    @property
    def catalog(self) -> Catalog:
        """What is kept up to date."""
        return self._indexing.catalog

    @property
    def namespace(self) -> str:
        """Whose sessions these are."""
        return self._indexing.namespace

    # --- push ------------------------------------------------------------------------------------

    def begun(self, session: str) -> str | None:
        """Somebody is about to write a session; the name of its mark, for `left`."""
        return self._marks.set(session)

    def moved(self, session: str, records: Sequence[Record]) -> None:
        """Records were committed; none: something else changed."""
        if not self._asked:
            return
        soon = not records or any(record.type == "turn/end" for record in records)
        # Pieces of an answer are read again with each that follows: they wait for its end.
        new = sum(each.last - each.first + 1 for each in records if each.type != _PIECE)
        with self._mutex:
            followed = self._waiting.get(session)
            first = followed is None
            if followed is None:
                followed = self._waiting[session] = _New()
            before = followed.events
            followed.events += new
            soon = soon or before < PUSH_EVENTS <= followed.events
        if soon or first:
            self._flusher.schedule(self._push_due, 0.0 if soon else PUSH_SECONDS)

    def left(self, session: str, mark: str | None) -> None:
        """The writer is gone."""
        if not self._asked:
            self._marks.clear(mark)
            return
        with self._mutex:
            followed = self._waiting.setdefault(session, _New())
            if mark is not None:
                followed.marks.append(mark)
        self._flusher.schedule(self._push_due, 0.0)

    def _push_due(self) -> None:
        with suppress(_StoppedError):
            self._push(self._give_way)

    def _give_way(self) -> None:
        """Let a thread go first that has something to commit."""
        if self._until is not None:
            self._hurry()
        self._runtime.sleep(0)

    def _hurry(self) -> None:
        if self._until is not None and self._runtime.monotonic() > self._until:
            raise _StoppedError

    def _push(self, breathe: Callable[[], None]) -> None:
        """Read on whatever is new."""
        with self._mutex:
            waiting = list(self._waiting)
        for session in waiting:
            breathe()
            # Whoever asks for all that was written waits for what is being read just now.
            if not self._pushing.acquire(timeout=self._left()):
                raise _StoppedError
            try:
                self._push_one(session, breathe)
            finally:
                self._pushing.release()

    def _left(self) -> float:
        """Seconds until there is no time left; -1: there is no end to it."""
        return -1 if self._until is None else max(self._until - self._runtime.monotonic(), 0)

    def _push_one(self, session: str, breathe: Callable[[], None]) -> None:
        with self._mutex:
            followed = self._waiting.pop(session, None)
        if followed is None:
            return
        try:
            read = self._read(session, breathe=breathe)
        except PerdureError:
            read = False
        if read:
            for mark in followed.marks:
                self._clear(mark)
            self.follower(session)
            return
        with self._mutex:
            again = self._waiting.setdefault(session, _New())
            again.marks += followed.marks
        self._flusher.schedule(self._push_due, PUSH_SECONDS)

    def _read(self, session: str, *, breathe: Callable[[], None] | None = None) -> bool:
        """Bring the catalog up to date with a session; whether it is."""
        read = self._indexing.index(session, breathe=breathe or self._hurry)
        if not self._indexing.projected and self.catalog.note(self.namespace, _PROJECTED):
            # Whoever has a projection has to fill in what it says of this one.
            self.catalog.put_note(self.namespace, _PROJECTED, "")
        return read

    def _clear(self, mark: str) -> None:
        """Take a mark away; what is read into a catalog in memory is still to be read by others."""
        if self.catalog is self._main:
            self._marks.clear(mark)

    def drain(self) -> None:
        """Read on what is new before the process ends, as far as that takes no time worth naming.

        What is left has its mark.
        """
        self.hurry()
        with suppress(_StoppedError):
            self._push(self._hurry)

    def hurry(self) -> None:
        """Have whatever is being read end soon: the store is being closed."""
        self._until = self._until or self._runtime.monotonic() + _DRAIN_SECONDS

    def keys(self, session: str) -> Keys | None:
        """Which event has which key, without reading the log; None: nobody knows."""
        try:
            return self._indexing.keys(session) if self._asked else None
        except PerdureError:
            return None

    # --- pull and start-up -----------------------------------------------------------------------

    def ready(self, progress: Progress | None = None) -> None:
        """See that the catalog answers for all that is stored, as far as that is known cheaply.

        `progress` is called with the number of sessions that were read, and how many are to be.

        Where the catalog cannot be changed, as in a store that is only read, one in memory takes
        its place for this time, and everything is read for it.

        Raises:
            PerdureError: neither can be read or changed.

        """
        self._asked = True
        with self._pushing, self._single:
            self._indexing.catalog = self._main
            try:
                self._ready(progress)
            except _StoppedError:
                raise StoreClosed from None
            except (FormatUnsupported, StorageUnavailable, StorageFull, UnsafeFile):
                if self._main.place is None:
                    raise
                self._spare = self._spare or self._make_spare()
                self._indexing.catalog = self._spare
                self._ready(progress)

    def _ready(self, progress: Progress | None) -> None:
        self._push(lambda: None)
        if not (self.whole and self._is_arranged() and self._read_what_is_marked()):
            self.refresh(progress=progress)
        self._look_at_running()

    @property
    def whole(self) -> bool:
        """Whether the catalog is the one that was made ready: it may have gone since.

        One that turns out to be damaged while it answers says that it is empty.
        """
        if self._hollow:
            return True
        made = self.catalog.note(self.namespace, COMPLETE) == self._indexing.signature
        projected = self._indexing.projected
        return made and projected in ("", self.catalog.note(self.namespace, _PROJECTED))

    def _is_arranged(self) -> bool:
        """Whether no session came or went but through this store, as far as the medium tells."""
        arrangement = self._backend.arrangement()
        known = self.catalog.note(self.namespace, _ARRANGEMENT)
        return arrangement is not None and arrangement == known

    def _read_what_is_marked(self) -> bool:
        """Read what dead writers left; False: one did not say which."""
        for mark in list(self._marks.all()):
            if mark.session is None:
                return False
            if not self._held(mark.session) and self._read(mark.session):
                self._clear(mark.name)
        return True

    def _look_at_running(self) -> None:
        """Read the sessions of which the writers died that are listed as being written."""
        running = Filters(statuses=["running"])
        for row in self.catalog.listed(self.namespace, running, limit=_RUNNING_MAX):
            if not self._held(row.id):
                self._read(row.id)

    def _held(self, session: str | None) -> bool:
        try:
            return session is not None and self._backend.holder(session) is not None
        except PerdureError:
            return False

    def refresh(self, *, anew: bool = False, progress: Progress | None = None) -> Refreshed:
        """Compare the revisions of all logs with what the catalog knows, and read what changed.

        `anew` makes the whole index anew; other namespaces are read when they are asked next. Who
        asks while this is under way waits for the next one.

        Raises:
            PerdureError: the catalog cannot be read or changed.

        """
        self._asked = True
        asked = self._begun
        with self._single:
            if self._done > asked and not anew:
                # One that began since, and came to its end, has seen all that was there.
                return self._last
            self._begun += 1
            number = self._begun
            self._last = self._refresh(progress or (lambda _done, _all: None), anew=anew)
            self._done = number
            return self._last

    def _refresh(self, progress: Progress, *, anew: bool) -> Refreshed:
        if anew:
            # Bits may have changed in it that nothing shows.
            self.catalog.clear()
        # Before anything is looked at: what comes meanwhile has another one, and marks of its own.
        arrangement, marks = self._backend.arrangement(), list(self._marks.all())
        there = dict(self._backend.revisions())
        due, gone = self._due(there, anew=anew)
        left = []
        for number, session in enumerate(due):
            progress(number, len(due))
            if not self._read(session):
                left.append(session)
        progress(len(due), len(due))
        self._hollow = not (there or due)
        if self._hollow:
            # Nothing was ever stored, perhaps: to look must not make anything.
            return Refreshed(0, 0, 0, ())
        if not left:
            self.catalog.put_note(self.namespace, COMPLETE, self._indexing.signature)
            self.catalog.put_note(self.namespace, _ARRANGEMENT, arrangement or "")
            if self._indexing.projected:
                self.catalog.put_note(self.namespace, _PROJECTED, self._indexing.projected)
            for mark in marks:
                if not self._held(mark.session):
                    self._clear(mark.name)
        wrong = (*self._wrong_with(due), *((session, _BESIDE) for session in left))
        return Refreshed(len(there), len(due) - gone, gone, wrong)

    def _wrong_with(self, sessions: Collection[str]) -> tuple[tuple[str, str], ...]:
        """What is wrong with those of some sessions that could not be read whole."""
        if not sessions:
            return ()
        entries = self.catalog.entries(self.namespace)
        wrong = ((entry.session, entry.problem) for entry in entries if entry.session in sessions)
        return tuple((session, reason) for session, reason in wrong if reason is not None)

    def _due(self, there: dict[str, str], *, anew: bool) -> tuple[dict[str, None], int]:
        """The sessions to be read, and how many of them are to be forgotten."""
        due: dict[str, None] = {}
        gone = 0
        known = set()
        for entry in self.catalog.entries(self.namespace):
            known.add(entry.session)
            if entry.session not in there:
                gone += 1
                due[entry.session] = None
            elif (
                anew
                or entry.partial
                # What is wrong may be no more, though the log is as it was: it was accepted, say.
                or entry.problem is not None
                or entry.revision != there[entry.session]
                or not self._indexing.holds(entry.rules)
                or (entry.status == "running" and not self._held(entry.session))
            ):
                due[entry.session] = None
        due |= dict.fromkeys(session for session in there if session not in known)
        return due, gone
