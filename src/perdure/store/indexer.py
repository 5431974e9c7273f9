"""Keeping a catalog honest, in three ways of which each is enough by itself.

Push: the background thread reads on what this process wrote, soon, and is never waited for. Pull:
the revisions of all logs are compared, and what changed is read. Start-up: what the marks of dead
writers name is read before the first answer, and everything if there was no catalog yet.
"""

import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NamedTuple

from perdure.backends.base import Backend
from perdure.catalog.contract import Catalog
from perdure.errors import PerdureError, StorageFull, StorageUnavailable, UnsafeFile
from perdure.model.record import Record
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher
from perdure.store.indexing import Indexing
from perdure.store.marks import Marks
from perdure.store.queue import Keys

__all__ = ["PUSH_EVENTS", "PUSH_SECONDS", "Indexer", "Refreshed"]

PUSH_EVENTS = 20
PUSH_SECONDS = 5.0
"""After so many events, or so long, the catalog follows a session that is being written."""

_DRAIN_SECONDS = 2.0
_COMPLETE, _ARRANGEMENT = "complete", "arrangement"


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


class _Followed:
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
    """Follows the sessions of one namespace."""

    def __init__(
        self,
        backend: Backend,
        indexing: Indexing,
        marks: Marks,
        flusher: Flusher,
        runtime: Runtime,
        *,
        spare: Callable[[], Catalog],
    ) -> None:
        """Nothing is read; `spare` makes a catalog in memory."""
        self._spare = spare
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
        self._waiting: dict[str, _Followed] = {}
        self._started = 0
        self._last = Refreshed(0, 0, 0, ())
        self._looked = False
        # Whether nothing was there to be indexed when somebody looked last.
        self._hollow = False
        self._until: float | None = None
        # What is kept in memory is made when somebody asks first, and followed from then on.
        self._asked = self._backend.beside is not None

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
        with self._mutex:
            followed = self._waiting.get(session)
            first = followed is None
            if followed is None:
                followed = self._waiting[session] = _Followed()
            before = followed.events
            followed.events += records[-1].last - records[0].first + 1 if records else 0
            soon = soon or before < PUSH_EVENTS <= followed.events
        if soon or first:
            self._flusher.schedule(self._push_due, 0.0 if soon else PUSH_SECONDS)

    def left(self, session: str, mark: str | None) -> None:
        """The writer is gone."""
        if not self._asked:
            self._marks.clear(mark)
            return
        with self._mutex:
            followed = self._waiting.setdefault(session, _Followed())
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
            with self._pushing:
                self._push_one(session, breathe)

    def _push_one(self, session: str, breathe: Callable[[], None]) -> None:
        with self._mutex:
            followed = self._waiting.pop(session, None)
        if followed is None:
            return
        try:
            self._indexing.index(session, breathe=breathe)
        except PerdureError:
            # The marks stay: whoever comes next reads it, and the next event tries again.
            return
        for mark in followed.marks:
            self._marks.clear(mark)

    def drain(self) -> None:
        """Read on what is new before the process ends, as far as that takes no time worth naming.

        What is left has its mark.
        """
        self._until = self._runtime.monotonic() + _DRAIN_SECONDS
        with suppress(_StoppedError):
            self._push(self._hurry)

    def keys(self, session: str) -> Keys | None:
        """Which event has which key, without reading the log; None: nobody knows."""
        try:
            return self._indexing.keys(session) if self._asked else None
        except PerdureError:
            return None

    # --- pull and start-up -----------------------------------------------------------------------

    def ready(self, progress: Callable[[int, int], None] | None = None) -> None:
        """See that the catalog answers for all that is stored, as far as that is known cheaply.

        `progress` is called with the number of sessions that were read, and how many are to be.

        Where the catalog cannot be changed, as in a store that is only read, one in memory takes
        its place, and everything is read for it.

        Raises:
            PerdureError: neither can be read or changed.

        """
        self._asked = True
        try:
            self._ready(progress)
        except (StorageUnavailable, StorageFull, UnsafeFile):
            if self.catalog.place is None:
                raise
            with self._single:
                self._indexing.catalog = self._spare()
            self._ready(progress)

    def _ready(self, progress: Callable[[int, int], None] | None) -> None:
        self._push(lambda: None)
        with self._pushing, self._single:
            complete = self.catalog.note(self.namespace, _COMPLETE) is not None
            if not (complete and self._read_what_is_marked()):
                self.refresh(progress=progress)
            elif not self._is_arranged():
                self._rearrange(progress or (lambda _done, _all: None))

    @property
    def whole(self) -> bool:
        """Whether the catalog is still the one that was made ready: it may have gone since.

        One that turns out to be damaged while it answers says that it is empty.
        """
        return self._hollow or self.catalog.note(self.namespace, _COMPLETE) is not None

    def _is_arranged(self) -> bool:
        """Whether no session came or went but through this store, as far as the medium tells."""
        arrangement = self._backend.arrangement()
        known = self.catalog.note(self.namespace, _ARRANGEMENT)
        return arrangement is not None and arrangement == known

    def _rearrange(self, progress: Callable[[int, int], None]) -> None:
        """Read the sessions that came, and forget those that went; the others are not looked at."""
        arrangement = self._backend.arrangement()
        there = set(self._backend.ids())
        known = {entry.session for entry in self.catalog.entries(self.namespace)}
        changed = sorted(there ^ known)
        for number, session in enumerate(changed):
            progress(number, len(changed))
            self._indexing.index(session)
        progress(len(changed), len(changed))
        if there or known:
            self.catalog.put_note(self.namespace, _ARRANGEMENT, arrangement or "")

    def _read_what_is_marked(self) -> bool:
        """Read what dead writers left, once in a process; False: one did not say which."""
        looked, self._looked = self._looked, True
        for mark in () if looked else list(self._marks.all()):
            if mark.session is None:
                return False
            if not self._held(mark.session):
                self._indexing.index(mark.session)
                self._marks.clear(mark.name)
        return True

    def _held(self, session: str | None) -> bool:
        try:
            return session is not None and self._backend.holder(session) is not None
        except PerdureError:
            return False

    def read(self, sessions: Sequence[str]) -> None:
        """Read some sessions on, whatever is known of them.

        Raises:
            PerdureError: the catalog cannot be read or changed.

        """
        for session in sessions:
            self._indexing.index(session)

    def refresh(
        self, *, anew: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Refreshed:
        """Compare the revisions of all logs with what the catalog knows, and read what changed.

        `anew` reads everything. Who asks while this is under way waits for the next one.

        Raises:
            PerdureError: the catalog cannot be read or changed.

        """
        self._asked = True
        asked = self._started
        with self._single:
            if self._started > asked and not anew:
                # One that began since has seen all that was there when this was asked.
                return self._last
            self._started += 1
            self._last = self._refresh(anew, progress or (lambda _done, _all: None))
            return self._last

    def _refresh(self, anew: bool, progress: Callable[[int, int], None]) -> Refreshed:
        if anew:
            # Bits may have changed in it that nothing shows.
            self.catalog.clear()
        # Before anything is looked at: what comes meanwhile has another one.
        arrangement = self._backend.arrangement()
        there = dict(self._backend.revisions())
        due, gone = self._due(there, anew=anew)
        for number, session in enumerate(due):
            progress(number, len(due))
            self._indexing.index(session, anew=anew)
        progress(len(due), len(due))
        self._hollow = not (there or due)
        if self._hollow:
            # Nothing was ever stored, perhaps: to look must not make anything.
            return Refreshed(0, 0, 0, ())
        self.catalog.put_note(self.namespace, _COMPLETE, "yes")
        self.catalog.put_note(self.namespace, _ARRANGEMENT, arrangement or "")
        for mark in list(self._marks.all()):
            if not self._held(mark.session):
                self._marks.clear(mark.name)
        return Refreshed(len(there), len(due) - gone, gone, self._wrong_with(due))

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
                or entry.revision != there[entry.session]
                or not self._indexing.holds(entry.rules)
                or (entry.status == "running") != self._held_if(entry.status, entry.session)
            ):
                due[entry.session] = None
        due |= dict.fromkeys(session for session in there if session not in known)
        return due, gone

    def _held_if(self, status: str, session: str) -> bool:
        """Whether a session that was being written still is; of others nobody asks."""
        return status == "running" and self._held(session)
