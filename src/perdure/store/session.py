"""The writer of one session: accepts events, numbers them, and commits them in order.

A durable append commits in the calling thread. Callers that arrive while a commit is under way
share the next one: whoever gets the commit lock takes all that is pending, the others find their
events stored when they get it. Nothing here is shared between sessions.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import msgspec

from perdure.backends.base import Backend, Hold
from perdure.errors import (
    InvalidValue,
    KeyConflict,
    PerdureError,
    SessionClosed,
    SessionExists,
    StaleWriter,
    StorageUnavailable,
)
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header
from perdure.model.record import Position, seal
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher

__all__ = ["BUFFER_BYTES_MAX", "Session"]

BUFFER_BYTES_MAX = 8 * 1024 * 1024
"""Buffered bytes at which `buffer` commits in the calling thread: back-pressure, not a limit."""

_MEMBERS = frozenset({"type", "data", "agent", "turn", "key", "time", "ignorable"})

Keys = dict[tuple[str, str], int]
"""Sequence number of the event that holds a (type, key)."""


class _Pending(msgspec.Struct, eq=False):
    """An accepted event that is not durable yet."""

    draft: Draft
    event: Event
    shared: bool = False
    """Another caller repeated its key and waits for it as well."""


class Session:
    """The exclusive writer of one session; a context manager that closes itself.

    Methods may be called from any thread. After a fork the child's copy refuses to write.
    """

    def __init__(
        self,
        backend: Backend,
        header: Header,
        *,
        hold: Hold | None,
        keys: Keys,
        read_event: Callable[[str, int], Event],
        flusher: Flusher,
        runtime: Runtime,
        pack: bool = True,
        on_close: Callable[["Session"], None] = lambda _: None,
    ) -> None:
        """Made by `Store.create` and `Store.writer`; without a hold, the first commit publishes."""
        self.header = header
        self._backend = backend
        self._hold = hold
        self._keys = keys
        self._read_event = read_event
        self._flusher = flusher
        self._runtime = runtime
        self._pack = pack
        self._on_close = on_close
        self._pid = runtime.pid()
        self._mutex = threading.Lock()
        self._committing = threading.Lock()
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._due = False
        self._next = (hold.position.seq if hold is not None else -1) + 1
        self._closed: str | None = None

    # --- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def position(self) -> Position:
        """The last durable position; (-1, genesis) before the first append."""
        hold = self._hold
        return hold.position if hold is not None else Position(-1, self.header.genesis)

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Append one event; it is durable when this returns.

        The same (type, key) with an equal JSON value and turn returns the event stored before.

        Raises:
            InvalidValue: a field or the data cannot be kept; nothing was accepted.
            KeyConflict: the key belongs to another fact; nothing was written.
            StorageFull, StorageUnavailable: not stored; what was buffered before is still held.
            StaleWriter: somebody else wrote; `lost` names what was not stored.
            SessionClosed: closed, or used in a forked child.

        """
        made = draft(
            type,
            data,
            time=self._runtime.now_ms() if time is None else time,
            agent=agent,
            turn=turn,
            key=key,
            ignorable=ignorable,
        )
        return self._append_durably([made])[0]

    def append_many(self, events: Iterable[Mapping[str, Any]]) -> list[Event]:
        """Append several events in one commit; all are durable when this returns.

        Each is a mapping with `type` and optionally `data`, `agent`, `turn`, `key`, `time` and
        `ignorable`. After a crash any prefix may be there: what must stand together is one event.

        Raises:
            As `append`; after InvalidValue or KeyConflict none of them was accepted.

        """
        now = self._runtime.now_ms()
        return self._append_durably([_draft(event, now) for event in events])

    def buffer(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Accept one event without waiting: a commit is attempted within 200 ms.

        It is durable after the next `append` or `flush` that returns. A commit that fails in the
        background keeps its events in order and surfaces at the next append, flush or close.

        Raises:
            As `append`.

        """
        made = draft(
            type,
            data,
            time=self._runtime.now_ms() if time is None else time,
            agent=agent,
            turn=turn,
            key=key,
            ignorable=ignorable,
        )
        with self._mutex:
            self._check()
            event = self._accept(made)
            full = self._pending_bytes > BUFFER_BYTES_MAX
            due, self._due = self._due, True
        if full:
            self.flush()
        elif not due:
            self._flusher.schedule(self)
        return event

    def flush(self) -> None:
        """Wait until everything accepted so far is durable.

        Raises:
            StorageFull, StorageUnavailable: not yet; the events are still held, in order.
            StaleWriter: never; `lost` names what was not stored.

        """
        with self._mutex:
            self._check()
            self._due = False
            last = self._next - 1
        self._commit_through(last)

    def _append_durably(self, drafts: Sequence[Draft]) -> list[Event]:
        with self._mutex:
            self._check()
            first = len(self._pending)
            try:
                events = [self._accept(one) for one in drafts]
            except BaseException:
                self._drop(self._pending[first:])
                raise
            own = self._pending[first:]
            if any(one.key is not None for one in drafts):
                awaited = set(map(id, events))
                for one in self._pending[:first]:
                    one.shared = one.shared or id(one.event) in awaited
        if not events:
            return events
        try:
            self._commit_through(max(event.seq for event in events))
        except BaseException:
            self._withdraw(own)
            raise
        return events

    def _accept(self, made: Draft) -> Event:
        """Number a draft, or find the event that its key already names. Called with the mutex."""
        if made.key is not None:
            name = (made.type, made.key)
            if name in self._keys:
                return self._repeated(made, self._keys[name])
        event = made.at(self._next)
        self._next += 1
        self._pending.append(_Pending(made, event))
        self._pending_bytes += len(made.raw)
        if made.key is not None:
            self._keys[made.type, made.key] = event.seq
        return event

    def _repeated(self, made: Draft, seq: int) -> Event:
        waiting = [one.event for one in self._pending if one.event.seq == seq]
        event = waiting[0] if waiting else self._read_event(self.id, seq)
        if not made.same_fact(event):
            raise KeyConflict(self.id, type=made.type, key=str(made.key), seq=seq)
        return event

    # --- committing ------------------------------------------------------------------------------

    def _commit_through(self, seq: int) -> None:
        with self._committing:
            with self._mutex:
                self._settle_pending()
                if not self._pending or self._pending[0].event.seq > seq:
                    return
                self._check()
                batch = list(self._pending)
            try:
                self._commit(batch)
            except StaleWriter as error:
                raise self._die(StaleWriter(self.id, error.reason, lost=self._lost())) from error
            except PerdureError as error:
                hold = self._hold
                if hold is None or not hold.dead:
                    raise
                failure = StorageUnavailable(
                    getattr(error, "path", self.id),
                    getattr(error, "reason", str(error)),
                    hint="open the session again; whether .lost was stored shows then",
                    lost=self._lost(),
                )
                raise self._die(failure) from error
            finally:
                with self._mutex:
                    self._settle_pending()

    def _commit(self, batch: Sequence[_Pending]) -> None:
        drafts = [one.draft for one in batch]
        records = seal(self.position, drafts, pack=self._pack)
        if self._hold is None:
            self._hold = self._backend.publish(self.header, records)
        else:
            self._backend.commit(self._hold, self._hold.position, records)

    def _settle_pending(self) -> int:
        """Drop from the queue what is durable by now, and say how far that is. With the mutex."""
        durable = self.position.seq
        if self._pending and self._pending[0].event.seq <= durable:
            self._pending = [one for one in self._pending if one.event.seq > durable]
            self._pending_bytes = sum(len(one.draft.raw) for one in self._pending)
        return durable

    def _withdraw(self, own: Sequence[_Pending]) -> None:
        """Take back events whose durable append failed: the caller was told that they are not there."""
        with self._committing, self._mutex:
            self._settle_pending()
            self._drop([one for one in own if one in self._pending and not one.shared])

    def _drop(self, dropped: Sequence[_Pending]) -> None:
        """Remove events from the queue and close the gap in the numbers. Called with the mutex."""
        if not dropped:
            return
        # Read once: a commit under way in another thread may become durable at any moment.
        durable = self._settle_pending()
        gone = set(map(id, dropped))
        for one in dropped:
            if one.draft.key is not None:
                self._keys.pop((one.draft.type, one.draft.key), None)
        self._pending = [one for one in self._pending if id(one) not in gone]
        self._pending_bytes = sum(len(one.draft.raw) for one in self._pending)
        self._next = durable + 1
        for one in self._pending:
            msgspec.structs.force_setattr(one.event, "seq", self._next)
            if one.draft.key is not None:
                self._keys[one.draft.type, one.draft.key] = self._next
            self._next += 1

    def _lost(self) -> list[Event]:
        with self._mutex:
            return [one.event for one in self._pending]

    def _die(self, error: PerdureError) -> PerdureError:
        """No further write can succeed: forget the queue and say so from now on."""
        with self._mutex:
            self._closed = f"it stopped after: {error.message}"
            self._pending.clear()
        self._release()
        return error

    # --- ending ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._pid != self._runtime.pid():
            raise SessionClosed(self.id, "this writer belongs to the parent process")
        if self._closed is not None:
            raise SessionClosed(self.id, self._closed)

    def _release(self) -> None:
        hold = self._hold
        if hold is not None:
            hold.release()
        self._on_close(self)

    def close(self) -> None:
        """Store what is buffered and give the session back; harmless when repeated.

        Raises:
            StorageFull, StorageUnavailable, StaleWriter: something buffered could not be stored;
                the session is closed all the same and `lost` (or the queue until then) is gone.

        """
        if self._pid != self._runtime.pid():
            # The parent's buffer and lock are not ours; only the copied descriptors are closed.
            if self._closed is None and self._hold is not None:
                self._hold.release()
            self._closed = "this writer belongs to the parent process"
            return
        if self._closed is not None:
            return
        try:
            self.flush()
        except PerdureError as error:
            lost = self._lost()
            if lost and not isinstance(error, StaleWriter | SessionExists):
                raise StorageUnavailable(
                    getattr(error, "path", self.id),
                    f"closed with {len(lost)} buffered events that could not be stored: {error}",
                    hint="the events stand in .lost",
                    lost=lost,
                ) from error
            raise
        finally:
            with self._mutex:
                live = self._closed is None
                self._closed = self._closed or "this writer was closed"
                self._pending.clear()
            if live:
                self._release()

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        if error is None:
            self.close()
            return
        try:
            self.close()
        except PerdureError as failure:
            error.add_note(f"and while closing session {self.id!r}: {failure}")
            tail = error
            while tail.__context__ is not None and tail.__context__ is not failure:
                tail = tail.__context__
            if tail is not failure and tail is not error.__context__:
                tail.__context__ = failure


def _draft(event: Mapping[str, Any], now: int) -> Draft:
    for name in event:
        if name not in _MEMBERS:
            raise InvalidValue(f"event.{name}", "an event has no such member")
    return draft(**{"type": None, "data": None, "time": now, **event})
