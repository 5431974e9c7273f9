"""The writers that a server keeps open, and who may use them.

A request that appends finds the writer that the last one left open, or opens it; it is closed when
nobody used it for a while. Whoever took the right to write (a lease) is alone with the session:
others are told that it is busy, until the lease is given back or ends.
"""

import hmac
import itertools
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from perdure.errors import (
    InvalidValue,
    PerdureError,
    RequestConflict,
    ServerUnavailable,
    SessionBusy,
    SessionExists,
    StaleWriter,
    StoreClosed,
)
from perdure.model.event import Event, draft
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store import Session, Store

__all__ = ["IDLE_SECONDS", "LEASE_SECONDS", "Appended", "Lease", "Place", "Writers", "keyed"]

IDLE_SECONDS = 10.0
"""So long a writer stays open that nobody uses and nobody has a lease of."""

LEASE_SECONDS = 20.0
"""So long a lease holds after the last request that carried it."""

_OPEN_MAX = 512
_FILES_EACH = 4
"""Descriptors that an open writer takes: folder, lock, log and tail."""


class Place(NamedTuple):
    """A session: the store that has it, its namespace from the root, its id."""

    store: Store
    namespace: tuple[str, ...]
    id: str


class Appended(NamedTuple):
    """Events as they are stored, and where the log stands."""

    events: list[Event]
    position: Position


class Lease(NamedTuple):
    """The right to write."""

    writer: str
    seconds: float
    position: Position
    header: Header


class _Open:
    """A writer that is open, or is about to be."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.session: Session | None = None
        self.lease: str | None = None
        # How who took the lease called it.
        self.named: str | None = None
        self.until = 0.0
        # Set once it is out of the table: who got hold of it before looks again.
        self.gone = False


class Writers:
    """The open writers of a server. Methods may be called from any thread, and may block."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        idle: float = IDLE_SECONDS,
        lease: float = LEASE_SECONDS,
        moved: Callable[[Place], None] = lambda _place: None,
        most: int | None = None,
    ) -> None:
        """`moved` is called when something was committed to a session. Nothing is opened.

        At most `most` writers are open at once: by default as many as leave half of the files that
        the process may open for other things.
        """
        self._runtime = runtime
        self._idle = idle
        self._lease = lease
        self._moved = moved
        self._most = most or _affordable()
        self._mutex = threading.Lock()
        self._open: dict[tuple[tuple[str, ...], str], _Open] = {}
        self._closed = False

    def new_id(self) -> str:
        """An id for a new session."""
        return self._runtime.session_id()

    # --- appending --------------------------------------------------------------------------------

    def append(
        self,
        place: Place,
        events: Sequence[dict[str, Any]],
        *,
        at: int | None = None,
        request: str | None = None,
        writer: str | None = None,
    ) -> Appended:
        """Append events in one commit, or find that an earlier request did.

        The first event of a `request` gets its id as its key, unless it has one: by that it is
        known again. One key for all: a key is remembered as long as the session, and keeps an event
        from being packed.

        Raises:
            SessionBusy: somebody else has a lease, or writes it in another process.
            StaleWriter: the lease ended, or other events stand at `at`.
            RequestConflict: the request was made before, with other events.
            As `Store.writer` and `Session.append_many`.

        """
        with self._entered(place, writer) as entry:
            session = self._opened(place, entry, writer)
            before: list[Event] = []
            if request is not None:
                events = keyed(events, request)
                before = _answered(place, session, events, request)
            if not before and at is not None:
                before = _stored(place, session.position.seq, events, at)
            if len(before) < len(events):
                at = at if not before else None
                before += session.append_many(events[len(before) :], at=at)
                self._moved(place)
            return Appended(before, session.position)

    def create(
        self,
        place: Place,
        make: Callable[[], Session],
        events: Sequence[dict[str, Any]],
        lease: str | None = None,
    ) -> Appended:
        """Create a session with its first events, or find that this very request did before.

        `make` begins the session that is wanted. Whoever has the `lease` of that id is told the
        same, and not that it is busy.

        Raises:
            SessionExists: there is one of that id with another header or other events.
            As `Store.create` and `Session.append_many`.

        """
        with self._entered(place, None, lease) as entry:
            if entry.session is not None and not entry.session.closed:
                raise SessionExists(place.id)
            session = make()
            try:
                found = session.append_many(events, at=0)
            except BaseException:
                session.close()
                raise
            entry.session = session
            self._moved(place)
            return Appended(found, session.position)

    def found_again(
        self, place: Place, header: Header, events: Sequence[dict[str, Any]]
    ) -> Appended | None:
        """What an earlier request stored that asked for the same session; None: it is another."""
        found = place.store.inspect(place.id)
        if found.header is None or found.header.digest != header.digest:
            return None
        stored = list(itertools.islice(place.store.read_from(place.id), len(events)))
        if len(stored) < len(events) or not _same(stored, events):
            return None
        return Appended(stored, found.position or Position(-1, header.genesis))

    # --- leases -----------------------------------------------------------------------------------

    def take(
        self,
        place: Place,
        *,
        writer: str | None = None,
        wait: float = 0.0,
        lease: str | None = None,
    ) -> Lease:
        """Take the right to write, or keep the one that `writer` is.

        `lease` is an id for it: asked for again with the same one, the same right is given.

        Raises:
            SessionBusy: somebody has it, after `wait` seconds.
            StaleWriter: `writer` has ended.
            As `Store.writer`.

        """
        with self._entered(place, writer, lease) as entry:
            session = self._opened(place, entry, entry.lease, wait)
            if entry.lease is None:
                entry.lease, entry.named = self._runtime.token(16), lease
            return Lease(entry.lease, self._lease, session.position, session.header)

    def release(self, place: Place, writer: str | None, *, force: bool = False) -> None:
        """Give a right to write back, and close the writer; one that ended is gone already.

        With `force` it is taken from whoever has it.
        """
        if force:
            entry_now = self._open.get((place.namespace, place.id))
            writer = None if entry_now is None else entry_now.lease
        with suppress(StaleWriter), self._entered(place, writer) as entry:
            if entry.lease is not None:
                self._drop(place, entry)

    def put_content(self, place: Place, writer: str | None, parts: Iterator[bytes]) -> str:
        """Store content beside a session's log.

        Raises:
            As `append` and `Session.put_blob`.

        """
        with self._entered(place, writer) as entry:
            # What is put was received before: nobody is waited for but the disk.
            return self._opened(place, entry, writer).put_blob(parts)

    # --- opening and closing ----------------------------------------------------------------------

    @contextmanager
    def _entered(
        self, place: Place, writer: str | None, lease: str | None = None
    ) -> Iterator[_Open]:
        """The entry of a session, locked; only for who may write it.

        Raises:
            SessionBusy, StaleWriter: they may not.

        """
        key = (place.namespace, place.id)
        while True:
            with self._mutex:
                if self._closed:
                    raise StoreClosed
                entry = self._open.setdefault(key, _Open())
            with entry.lock:
                if entry.gone:
                    continue
                try:
                    self._check_lease(place, entry, writer, lease)
                    try:
                        yield entry
                    finally:
                        # Who was refused keeps no lease of others alive.
                        entry.until = self._runtime.monotonic() + self._kept(entry)
                finally:
                    if entry.session is None or entry.session.closed:
                        self._forget(key, entry)
                return

    def _kept(self, entry: _Open) -> float:
        return self._idle if entry.lease is None else self._lease

    def _check_lease(
        self, place: Place, entry: _Open, writer: str | None, lease: str | None
    ) -> None:
        if entry.lease is not None and self._runtime.monotonic() > entry.until:
            self._drop(place, entry)
        if writer is None:
            again = lease is not None and entry.named == lease
            if entry.lease is not None and not again:
                raise _leased(place, entry.until - self._runtime.monotonic())
        elif entry.lease is None or not _equal(entry.lease, writer):
            raise StaleWriter(place.id, "the right to write it has ended")

    def _opened(self, place: Place, entry: _Open, writer: str | None, wait: float = 0.0) -> Session:
        if entry.session is not None and entry.session.closed and writer is not None:
            # It died with its last commit. A new one would go on behind what was lost.
            raise StaleWriter(place.id, "its writer stopped")
        if entry.session is None or entry.session.closed:
            self._make_room(place)
            entry.session = place.store.writer(place.id, wait=wait)
        return entry.session

    def _make_room(self, place: Place) -> None:
        """Close writers that nobody used for long, where there are too many for one more.

        A principal has half of the room at most, so that all others have the rest.

        Raises:
            ServerUnavailable: all of them are leased.

        """
        own = place.namespace[:2]
        with self._mutex:
            opened = {key: each for key, each in self._open.items() if each.session is not None}
            theirs = {key: each for key, each in opened.items() if key[0][:2] == own}
        for some, most in ((theirs, self._most // 2), (opened, self._most)):
            if len(some) < most:
                continue
            idle = sorted((each.until, key) for key, each in some.items() if each.lease is None)
            if not idle:
                raise ServerUnavailable("the server", f"{len(some)} sessions are being written")
            for _, key in idle[: len(idle) // 4 + 1]:
                self._close_one(key, due=False)

    def _forget(self, key: tuple[tuple[str, ...], str], entry: _Open) -> None:
        with self._mutex:
            entry.gone = True
            if self._open.get(key) is entry:
                del self._open[key]

    def _drop(self, place: Place, entry: _Open) -> None:
        """Close a writer and end its lease."""
        session, entry.session, entry.lease = entry.session, None, None
        if session is not None:
            session.close()
            self._moved(place)

    def let_go(self, place: Place) -> None:
        """Close the writer of a session that nobody has a lease of: something else has to be done.

        Raises:
            SessionBusy: somebody has one.

        """
        with self._entered(place, None) as entry:
            self._drop(place, entry)

    def sweep(self) -> None:
        """Close the writers whose time is over; one that cannot be closed well is closed."""
        with self._mutex:
            keys = list(self._open)
        for key in keys:
            self._close_one(key, due=True)

    def _close_one(self, key: tuple[tuple[str, ...], str], *, due: bool) -> None:
        entry = self._open.get(key)
        # Who is at work just now is not waited for.
        if entry is None or not entry.lock.acquire(blocking=False):
            return
        try:
            if due and self._runtime.monotonic() <= entry.until:
                return
            self._forget(key, entry)
            session, entry.session, entry.lease = entry.session, None, None
            if session is not None:
                with suppress(PerdureError):
                    session.close()
        finally:
            entry.lock.release()

    def close(self) -> None:
        """Close all writers, each when who uses it is done; nobody gets one from now on."""
        with self._mutex:
            self._closed = True
            entries = list(self._open.items())
        for key, entry in entries:
            with entry.lock:
                self._forget(key, entry)
                if entry.session is not None:
                    with suppress(PerdureError):
                        entry.session.close()


def _leased(place: Place, seconds: float) -> SessionBusy:
    """What to tell who may not write because somebody else has a lease."""
    error = SessionBusy(place.id)
    error.hint = (
        f"the right to write it ends {max(1, round(seconds))} s after its last use; wait=… waits "
        "for that"
    )
    return error


def _affordable() -> int:
    """How many writers may be open, by what the system lets the process open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(8, min(_OPEN_MAX, files // _FILES_EACH // 2))


def _equal(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell."""
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )


def keyed(events: Sequence[dict[str, Any]], request: str) -> list[dict[str, Any]]:
    """The events of a request, the first of which has its id as its key.

    Raises:
        InvalidValue: it has a key of its own, by which it is known again without one.

    """
    first, *others = events
    if first.get("key") not in (None, request):
        reason = "is a key of its own, which does what a request id does"
        raise InvalidValue("events[0].key", reason, hint="leave `request` out, or the key")
    return [{**first, "key": request}, *others]


def _answered(
    place: Place, session: Session, events: Sequence[dict[str, Any]], request: str
) -> list[Event]:
    """What an earlier request stored of these events; a crash may have left their beginning alone.

    Raises:
        RequestConflict: it was made before, and stored others.

    """
    first = session.find(events[0]["type"], request)
    if first is None:
        return []
    # What is only accepted by now is stored first, so that all of it can be read.
    session.flush()
    stored = _beginning(place, session.position.seq, events, first.seq)
    if stored is None:
        raise RequestConflict(request)
    return stored


def _stored(place: Place, end: int, events: Sequence[dict[str, Any]], at: int) -> list[Event]:
    """What stands at a number already, if it is these events; nothing: they would come next.

    Raises:
        StaleWriter: other events stand there.

    """
    if at > end:
        return []
    stored = _beginning(place, end, events, at)
    if stored is None:
        raise StaleWriter(place.id, f"event {at} is another one")
    return stored


def _beginning(
    place: Place, end: int, events: Sequence[dict[str, Any]], at: int
) -> list[Event] | None:
    """What is stored of events that begin at a number: all, or what a crash left; or None.

    Of a commit that was never acknowledged any beginning may be there. Where something came behind
    it, closers of the turn say, nobody can tell that from another request.
    """
    stored = list(itertools.islice(place.store.read_from(place.id, at), len(events)))
    whole = len(stored) == len(events)
    if not _same(stored, events[: len(stored)]) or not (whole or stored[-1].seq == end):
        return None
    return stored


def _same(stored: Sequence[Event], events: Sequence[dict[str, Any]]) -> bool:
    """Whether events say the same; a time that was not said may be any."""
    for there, asked in zip(stored, events, strict=True):
        try:
            made = draft(**{"time": there.time, "data": None, **asked})
        except InvalidValue:
            return False
        if made.at(there.seq) != there:
            return False
    return True
