"""The store: every door to sessions goes through here."""

import atexit
import os
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from perdure.backends import open_backend
from perdure.backends.base import Backend, Entry, Hold, Tail
from perdure.errors import (
    InvalidValue,
    PerdureError,
    PersistenceDisabled,
    SessionClosed,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header, Parent, Source, check_id, new_header
from perdure.model.record import seal
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Problem, Walk
from perdure.runtime import SYSTEM, Runtime
from perdure.store.closing import close_behind
from perdure.store.flusher import Flusher
from perdure.store.inspection import Inspection, damage, raw_lines
from perdure.store.queue import Keys
from perdure.store.session import Session
from perdure.store.verification import Report, unreadable, verify_session

__all__ = ["Prepared", "Store", "open_store"]


# Named here because `Store.list` hides the builtin inside the class.
Entries = list[Entry]
Events = list[Event]
Batch = Sequence[Mapping[str, Any]]


class Prepared:
    """A session reserved for its next writer: locked, verified, its open turn closed.

    Take the writer with `session()`; leaving the context without it gives the reservation back.
    """

    def __init__(self, session: Session) -> None:
        """Made by `Store.prepare`."""
        self._session = session
        self._taken = False
        self.header = session.header
        self.position = session.position

    def session(self) -> Session:
        """The reserved writer; from now on the caller closes it."""
        self._taken = True
        return self._session

    def close(self) -> None:
        """Give an unused reservation back."""
        if not self._taken:
            self._session.close()

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Give it back if it was not used."""
        self.close()


class Store:
    """Sessions in one place. A context manager; `perdure.open` makes one."""

    def __init__(self, backend: Backend, *, runtime: Runtime = SYSTEM, pack: bool = True) -> None:
        """Serve the sessions of `backend`; `pack=False` stores every event as its own record."""
        self._backend = backend
        self._runtime = runtime
        self._pack = pack
        self._flusher = Flusher(runtime)
        self._mutex = threading.Lock()
        # Weakly: a writer that everybody dropped gives its session back. One that still has
        # buffered events is kept by the flusher until they are stored.
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._closed = False
        _open_stores.add(self)

    def __repr__(self) -> str:
        """The medium, and whether the store is open."""
        return f"<Store {self._backend!r}, {'closed' if self._closed else 'open'}>"

    # --- writing ---------------------------------------------------------------------------------

    def create(
        self,
        id: str | None = None,
        *,
        cwd: str | None = None,
        parent: Parent | None = None,
        origin: str | None = None,
        depth: int = 0,
        preset: str | None = None,
        config: Any = None,
        source: Source | None = None,
        vocabulary: str | None = VOCABULARY,
        created_at: int | None = None,
    ) -> Session:
        """A writer for a new session. Nothing is stored before its first commit.

        Raises:
            InvalidValue: a field is out of range; the id stays free.
            SessionExists: the id is stored already. The first commit of the session raises it too
                if another writer's came first.

        """
        header = new_header(
            self._runtime.session_id() if id is None else id,
            created_at=self._runtime.now_ms() if created_at is None else created_at,
            cwd=cwd,
            parent=parent,
            origin=origin,
            depth=depth,
            preset=preset,
            config=config,
            source=source,
            vocabulary=vocabulary,
        )
        self._check_open(header.id)
        if self._backend.persistent:
            with suppress(SessionNotFound):
                self._backend.stored(header.id)
                raise SessionExists(header.id)
        return self._session(header, None, {})

    def writer(self, id: str, *, wait: float = 0.0) -> Session:
        """The exclusive writer of an existing session, everything verified, closers committed.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: somebody else writes it, after `wait` seconds.
            SessionDamaged: it does not hold together; it can still be read.
            FormatUnsupported: another version wrote it.

        """
        check_wait(wait)
        self._check_open(id)
        hold = self._backend.lock(id, wait=wait)
        try:
            header, keys, work = self._recover(id, hold)
            drafts = work.closers() if header.vocabulary == VOCABULARY else []
            if drafts:
                self._backend.commit(hold, hold.position, seal(hold.position, drafts))
            return self._session(header, hold, keys)
        except BaseException:
            hold.release()
            raise

    def _recover(self, id: str, hold: Hold) -> tuple[Header, Keys, OpenWork]:
        """Verify the whole log, set a torn tail aside, and take the position."""
        stored = self._backend.stored(id)
        if stored.header is None:
            raise damage(id, stored)
        keys: Keys = {}
        work = OpenWork()
        with self._walk(id, stored.header, self._backend.tail(id), stored.begin) as walk:
            for record in walk.records():
                work.record(record)
                if record.fields.key is not None:
                    keys[record.type, record.fields.key] = record.first
            damaged = walk.verdict is Verdict.DAMAGED
        if damaged:
            raise damage(id, stored, walk)
        self._backend.settle(hold, walk)
        return stored.header, keys, work

    def _session(self, header: Header, hold: Hold | None, keys: Keys) -> Session:
        session = Session(
            self._backend,
            header,
            hold=hold,
            keys=keys,
            read_event=self._read_event,
            flusher=self._flusher,
            runtime=self._runtime,
            pack=self._pack,
        )
        with self._mutex:
            self._sessions.add(session)
        return session

    def _check_open(self, id: str) -> None:
        if self._closed:
            raise SessionClosed(id, "its store was closed")

    def _read_event(self, id: str, seq: int) -> Event:
        for event in self.read_from(id, seq):
            return event
        raise SessionDamaged(id, f"event {seq} is not there any more", record=seq)

    def append(self, id: str, events: Iterable[Event | Mapping[str, Any]]) -> Events:
        """Append to a session without keeping its writer; all is durable when this returns.

        Each event is an `Event` or a mapping as for `Session.append_many`; a `seq` that it carries
        must be the one it gets. A session created here and not yet stored is stored by this.

        Raises:
            InvalidValue: a sequence number does not continue the log; nothing was written.
            As `writer` and `Session.append_many`.

        """
        batch = [event.as_dict() if isinstance(event, Event) else event for event in events]
        check_id(id)
        with self._mutex:
            live = [each for each in self._sessions if each.id == id and not each.closed]
        if live:
            return _append_to(live[0], batch)
        if not batch:
            self._backend.stored(id)
            return []
        with self.writer(id) as session:
            return _append_to(session, batch)

    def prepare(self, id: str, *, wait: float = 0.0) -> Prepared:
        """Reserve a session for its next writer; closers are committed.

        Raises:
            As `writer`.

        """
        return Prepared(self.writer(id, wait=wait))

    # --- reading ---------------------------------------------------------------------------------

    def inspect(self, id: str) -> Inspection:
        """A session as found; nothing is written and nobody is waited for.

        Raises:
            SessionNotFound: there is none.

        """
        return Inspection(self._backend, id)

    def load(self, id: str, *, wait: float = 0.0) -> Inspection:
        """As `inspect`, after closers were committed.

        Raises:
            As `writer`; SessionBusy also while this process itself writes the session.

        """
        self.writer(id, wait=wait).close()
        return Inspection(self._backend, id)

    def read_from(
        self, id: str, seq: int = 0, types: Collection[str] | None = None
    ) -> Iterator[Event]:
        """Stored events from `seq` on: no closers, no repair; empty at or past the end.

        What is read is verified: checksums, links, and the acknowledged end. `types` filters after
        that.

        Raises:
            InvalidValue: `seq` is not a count.
            SessionNotFound: there is none.
            SessionDamaged: raised by the iteration, after the last event that holds.
            FormatUnsupported: another version wrote it.

        """
        if seq.__class__ is not int or seq < 0:
            raise InvalidValue(
                "seq", f"{values.shown(seq)} is not a sequence number", hint="0, 1, 2, …"
            )
        if isinstance(types, str):
            raise InvalidValue("types", "is one string", hint="a list or a set of event types")
        stored = self._backend.stored(id)
        if stored.header is None:
            raise damage(id, stored)
        return self._read(id, stored.header, stored.begin, seq, types)

    def _read(
        self, id: str, header: Header, begin: int, seq: int, types: Collection[str] | None
    ) -> Iterator[Event]:
        tail = self._backend.tail(id)
        place = self._backend.seek(id, seq) if seq else begin
        if place > begin:
            # Damage can lead the search astray; then the page is read from the start.
            with self._walk(id, header, tail, place, local=True) as walk:
                first = next(walk.records(), None)
            if first is None or first.first > seq:
                place = begin
        with self._walk(id, header, tail, place, local=place > begin) as walk:
            for record in walk.records():
                if record.last >= seq:
                    if types is None or record.type in types:
                        yield from record.events(seq)
                    seq = record.last + 1
            if walk.verdict is not Verdict.DAMAGED:
                return
        if place > begin:
            # A doubled or misplaced part is not where the page ends if the start leads past it.
            with self._walk(id, header, tail, begin) as walk:
                for record in walk.records():
                    if record.last >= seq and (types is None or record.type in types):
                        yield from record.events(seq)
        raise damage(id, self._backend.stored(id), walk)

    def _walk(
        self, id: str, header: Header, tail: Tail, place: int, *, local: bool = False
    ) -> Walk:
        pieces = self._backend.scan(id, place)
        return Walk(header, pieces, acknowledged=tail.acknowledged, begin=place, local=local)

    def raw(self, id: str, seq: int = 0) -> Iterator[bytes | Problem]:
        """The stored lines as they are, unjudged: what stands in place of the header, then records.

        With `seq` the header and the records before that event are left out. A place that holds no
        lines comes as a `Problem`.

        Raises:
            SessionNotFound: there is none.

        """
        return raw_lines(self._backend, id, seq)

    def verify(self, id: str) -> Report:
        """Read everything of one session and report.

        Raises:
            SessionNotFound: there is none.

        """
        try:
            return verify_session(self._backend, id)
        except (SessionNotFound, InvalidValue, PersistenceDisabled):
            raise
        except PerdureError as error:
            return unreadable(id, error)

    def list(self) -> Entries:
        """Every stored session: header, or the problem that hides it; no log is read."""
        return [*self._backend.entries()]

    def list_snapshots(self) -> Entries:
        """As `list`; `revision` tells whether a session changed since it was seen last."""
        return self.list()

    def locate(self, session: Header | str) -> str | None:
        """Absolute path of a session's log, existing or not; None where there are no files."""
        return self._backend.locate(session.id if isinstance(session, Header) else session)

    # --- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every session that is still open, then the backend; nothing can be written after.

        Raises:
            PerdureError: the first of the sessions that could not store what was buffered.

        """
        self._closed = True
        _open_stores.discard(self)
        self._flusher.stop()
        with self._mutex:
            sessions = [*self._sessions]
        failures = []
        for session in sessions:
            try:
                session.close()
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                failures.append(error)
        self._backend.close()
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        close_behind(error, self.close, "while closing the store")


def check_wait(wait: float) -> None:
    """Refuse what is no time to wait."""
    if not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise InvalidValue(
            "wait", f"{values.shown(wait)} is not a time to wait", hint="seconds, 0 or more"
        )


def _append_to(session: Session, batch: Batch) -> Events:
    """Append events whose numbers, where they carry any, must continue the log."""
    at = None
    bare: list[dict[str, Any]] = []
    for offset, event in enumerate(batch):
        if not isinstance(event, Mapping):
            raise InvalidValue(f"events[{offset}]", f"{values.shown(event)} is not a mapping")
        seq = event.get("seq")
        if "seq" in event:
            at = seq - offset if seq.__class__ is int and at is None else at
            if seq.__class__ is not int or at is None or seq != at + offset:
                raise InvalidValue(
                    f"events[{offset}].seq",
                    f"{values.shown(seq)} does not continue the events before it",
                    hint="leave seq out, or number without gaps",
                )
        bare.append({name: value for name, value in event.items() if name != "seq"})
    if at is not None:
        # What is buffered has its numbers already.
        session.flush()
    return session.append_many(bare, at=at)


_open_stores: "weakref.WeakSet[Store]" = weakref.WeakSet()


def _forget_in_child() -> None:
    """A forked child neither waits for a lock of its parent's threads, nor closes for it."""
    for store in list(_open_stores):
        store._mutex = threading.Lock()  # noqa: SLF001
        store._sessions = weakref.WeakSet()  # noqa: SLF001


SYSTEM.at_fork(_forget_in_child)


def _close_at_exit() -> None:
    """What is still buffered when the interpreter ends is stored."""
    failures = []
    for store in list(_open_stores):
        try:
            store.close()
        except Exception as error:  # noqa: BLE001 - the others are closed all the same
            failures.append(error)
    if failures:
        raise failures[0]


atexit.register(_close_at_exit)


def open_store(
    location: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    pack: bool = True,
    runtime: Runtime = SYSTEM,
) -> Store:
    """Open the store at `location`: a path, `dir:PATH`, `memory:` or `none:`.

    Nothing is created before the first commit. `encoding` of new sessions in a folder is "zst"
    (compressed, the default) or "raw" (plain lines); reading never depends on it.

    Raises:
        InvalidValue: the location or an option is not known.

    """
    if encoding is not None and (type(encoding) is not str or encoding not in ("zst", "raw")):
        raise InvalidValue("encoding", f"{values.shown(encoding)} is not 'zst' or 'raw'")
    return Store(
        open_backend(location, runtime=runtime, encoding=encoding), runtime=runtime, pack=pack
    )
