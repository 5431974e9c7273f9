"""The writer of one session: accepts events, numbers them, and commits them in order.

A durable append commits in the calling thread. Callers that arrive while a commit is under way
share the next one: whoever gets the commit lock takes all that is pending, the others find their
events stored when they get it. Nothing here is shared between sessions.

Two locks, always taken in this order: `_committing` for a whole commit, `_mutex` for the queue.
"""

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self

from perdure.backends.base import Backend, Hold
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionClosed,
    SessionExists,
    StaleWriter,
    StorageUnavailable,
)
from perdure.model import values
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header
from perdure.model.record import Position, seal
from perdure.runtime import Runtime
from perdure.store.closing import close_behind
from perdure.store.drafts import drafts_of
from perdure.store.flusher import Flusher
from perdure.store.queue import Accepted, Keys, Queue

__all__ = ["BUFFER_BYTES_MAX", "Session"]

BUFFER_BYTES_MAX = 8 * 1024 * 1024
"""Buffered bytes at which `buffer` first commits in the calling thread: back-pressure."""


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
    ) -> None:
        """Made by `Store.create` and `Store.writer`; without a hold, the first commit publishes."""
        self.header = header
        self._backend = backend
        self._hold = hold
        self._flusher = flusher
        self._runtime = runtime
        self._pack = pack
        self._pid = runtime.pid()
        self._committing = threading.Lock()
        self._mutex = threading.Lock()
        self._queue = Queue(header.id, self.position.seq, keys, read_event, backend.persistent)
        self._due = False
        self._closed: str | None = None
        self._untold: PerdureError | None = None
        self._released = False

    def __repr__(self) -> str:
        """Which session, how far, and whether it can still be written."""
        state = "closed" if self.closed else "open"
        return f"<Session {self.id!r} at {self.position.seq}, {state}>"

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

    @property
    def closed(self) -> bool:
        """Whether this object can no longer write."""
        return self._closed is not None

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

        If this raises it is not in the log, but for a failed sync: then the writer is dead, the
        error has `lost`, and reopening shows whether it was stored.

        The same (type, key) with an equal JSON value and turn returns the event stored before.

        Raises:
            InvalidValue: a field or the data cannot be kept; nothing was accepted.
            KeyConflict: the key belongs to another fact; nothing was written.
            StorageFull, StorageUnavailable: not stored; what was buffered before is still held.
            StaleWriter: somebody else wrote; `lost` names what was not stored.
            SessionExists: the first commit of a new session came too late.
            SessionBusy: another program locks the log itself; may be tried again.
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

    def append_many(
        self, events: Iterable[Mapping[str, Any]], *, at: int | None = None
    ) -> list[Event]:
        """Append several events in one commit; all are durable when this returns.

        Each is a mapping with `type` and optionally `data`, `agent`, `turn`, `key`, `time` and
        `ignorable`. With `at`, they are refused unless the first gets that sequence number. After a
        crash any prefix may be there: what must stand together is one event.

        Raises:
            As `append`; after InvalidValue or KeyConflict none of them was accepted.

        """
        return self._append_durably(drafts_of(events, self._runtime.now_ms()), at)

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
        background keeps its events in order and surfaces at the next append, flush or close. Above
        8 MiB of buffered data this first commits in the calling thread.

        Raises:
            As `append`; the event was not accepted then.

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
        self._check()
        if self._queue.bytes > BUFFER_BYTES_MAX:
            self.flush()
        with self._mutex:
            self._check()
            accepted: list[Accepted] = []
            self._queue.accept([made], accepted, keep=True)
            due, self._due = self._due, True
        if not due and not self._flusher.schedule(self._flush_due):
            # No thread can be started: what it would do in 200 ms is tried at once.
            with suppress(PerdureError):
                self.flush()
        return accepted[0].event

    def flush(self) -> None:
        """Wait until everything accepted so far is durable.

        Raises:
            StorageFull, StorageUnavailable: not yet stored; the events are still held, in order.
            StaleWriter, StorageUnavailable with `lost`: the writer is dead, `lost` names them.
            SessionClosed: closed, or used in a forked child.

        """
        waiting = self._due_now()
        with self._committing:
            self._commit_for(waiting)

    def _flush_due(self) -> None:
        """Commit what the background thread finds due; a failure is kept for the next caller."""
        waiting = self._due_now()
        with self._committing:
            try:
                self._commit_for(waiting)
            except PerdureError as error:
                # What is still held fails again by itself; a dead writer would fall silent.
                if self._closed is not None:
                    self._untold = error

    def _due_now(self) -> list[Accepted]:
        self._check()
        with self._mutex:
            self._check()
            self._due = False
            return self._queue.waiting()

    def _tell(self) -> None:
        """Raise what ended this writer while nobody was calling, once."""
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def _append_durably(self, drafts: Sequence[Draft], at: int | None = None) -> list[Event]:
        own: list[Accepted] = []
        settled = False
        try:
            self.admit(drafts, own, at=at)
            with self._committing:
                try:
                    self._commit_for(own)
                except BaseException as error:
                    # Before anybody else can commit them: the caller is told they are not there.
                    settled = True
                    if self._give_up(own) or not isinstance(error, Exception):
                        raise
        except BaseException:
            # A batch that was refused has nothing to give up, and waits for no commit.
            if own and not settled:
                with self._committing:
                    self._give_up(own)
            raise
        return [one.event for one in own]

    # The two halves of an append, for callers who must not block between them (`perdure.aio`).

    def admit(
        self,
        drafts: Sequence[Draft],
        own: list[Accepted],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> None:
        """Number the drafts and queue them, into the empty `own`; nothing is durable yet.

        With `keep` they are never taken back, as after `buffer`. Reads the log only where
        `needs_reading` says so.

        Raises:
            InvalidValue, KeyConflict, SessionClosed: none of them was accepted.

        """
        self._check()
        self._queue.look_up(drafts)
        with self._mutex:
            self._check()
            self._check_next(at)
            self._queue.accept(drafts, own, keep=keep)

    def needs_reading(self, drafts: Sequence[Draft]) -> bool:
        """Whether `admit` has to read stored events that share a key with these."""
        return any(one.key is not None and self._queue.stores_key(one) for one in drafts)

    def settle(self, groups: Sequence[Sequence[Accepted]]) -> list[Exception | None]:
        """Make durable what several callers admitted, in one commit where that is possible.

        Returns for each group None, or why it is not stored; such a group was taken back unless it
        was admitted to be kept.
        """
        outcomes: list[Exception | None] = []
        with self._committing:
            for own in groups:
                failure: Exception | None = None
                try:
                    self._commit_for(own)
                except Exception as error:  # noqa: BLE001 - each group is told its own
                    failure = error if self._give_up(own) else None
                outcomes.append(failure)
        return outcomes

    def _check_next(self, at: int | None) -> None:
        if at is not None and at != self._queue.next_seq:
            raise InvalidValue(
                "seq",
                f"{values.shown(at)} does not continue the log, {self._queue.next_seq} would",
                hint="leave the number out, or read the log again",
            )

    def _give_up(self, own: Sequence[Accepted]) -> bool:
        """Withdraw what is not durable; False if all of it turned out to be."""
        with self._mutex:
            self._queue.settle(self.position.seq)
            self._queue.withdraw(own)
            return not all(one.durable for one in own)

    # --- committing ------------------------------------------------------------------------------

    def _commit_for(self, own: Sequence[Accepted]) -> None:
        """Commit all that is pending, unless others have stored `own` meanwhile.

        Called with `_committing`.
        """
        with self._mutex:
            self._queue.settle(self.position.seq)
            for one in own:
                if one.failure is not None:
                    # Each caller gets its own object: tracebacks are added to what is raised.
                    raise copy.copy(one.failure)
            if all(one.settled for one in own):
                return
            batch = self._queue.waiting()
        self._commit(batch)

    def _commit(self, batch: Sequence[Accepted]) -> None:
        try:
            records = seal(self.position, [one.draft for one in batch], pack=self._pack)
            if self._hold is None:
                self._hold = self._backend.publish(self.header, records)
            else:
                self._backend.commit(self._hold, self._hold.position, records)
        except SessionExists:
            raise
        except StaleWriter as error:
            raise self._die(StaleWriter(self.id, error.reason)) from error
        except BaseException as error:
            if not self._outcome_unknown():
                raise
            failure = self._die(
                StorageUnavailable(
                    getattr(error, "path", self.id),
                    getattr(error, "reason", str(error)) or type(error).__name__,
                    hint="open the session again; whether .lost was stored shows then",
                )
            )
            if isinstance(error, Exception):
                raise failure from error
            raise
        finally:
            with self._mutex:
                self._queue.settle(self.position.seq)

    def _outcome_unknown(self) -> bool:
        """Whether a commit that raised may be on the medium all the same."""
        if self._hold is not None:
            return self._hold.dead
        # A first commit: the session may have appeared before something went wrong.
        with suppress(PerdureError):
            found = self._backend.stored(self.id).header
            return found is not None and found.digest == self.header.digest
        return False

    def _die(self, error: StaleWriter | StorageUnavailable) -> PerdureError:
        """No further write can succeed: whoever waits is told, and so is everybody from now on."""
        with self._mutex:
            self._closed = f"it stopped after: {error.message}"
            # Here and not before: what another thread buffered meanwhile is lost as well.
            error.lost = tuple(self._queue.events())
            self._queue.fail(error)
        self._release()
        return error

    # --- ending ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._pid != self._runtime.pid():
            raise SessionClosed(self.id, "this writer belongs to the parent process")
        self._tell()
        if self._closed is not None:
            raise SessionClosed(self.id, self._closed)

    def _release(self) -> None:
        hold = self._hold
        if hold is not None:
            hold.release()
        self._released = True

    def close(self) -> None:
        """Store what is buffered and give the session back; harmless when repeated.

        Raises:
            StorageFull, StorageUnavailable, StaleWriter, SessionExists: something buffered could
                not be stored and stands in `lost`; the session is closed all the same.

        """
        if self._pid != self._runtime.pid():
            # The parent's buffer and lock are not ours; only the copied descriptors are closed.
            self._closed = "this writer belongs to the parent process"
            if not self._released:
                self._release()
            return
        if self._released:
            with self._committing:
                self._tell()
            return
        with self._mutex:
            # Nobody is let in from here on; who is in already is waited for below.
            self._closed = self._closed or "this writer was closed"
        with self._committing:
            try:
                with self._mutex:
                    waiting = self._queue.waiting()
                self._commit_for(waiting)
            except PerdureError as error:
                raise self._unsaved(error) from error
            finally:
                self._release()

    def _unsaved(self, error: PerdureError) -> PerdureError:
        """What to raise when closing could not store everything; `lost` names what."""
        with self._mutex:
            lost = self._queue.events()
        if not lost:
            return copy.copy(error)
        failure = StorageUnavailable(
            getattr(error, "path", self.id),
            f"closed with {len(lost)} events that could not be stored: {error.message}",
            hint="they stand in .lost",
            lost=lost,
        )
        with self._mutex:
            self._queue.fail(failure)
        return failure

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        close_behind(error, self.close, f"while closing session {self.id!r}")
