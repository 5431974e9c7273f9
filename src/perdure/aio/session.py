"""The writer of one session, for tasks: what blocks is done by threads, in the order of the calls.

Events are encoded and queued at the call. A lane holds what waits for a commit; one worker thread
at a time takes all that is there and commits it together, so that a session never occupies more
than one, however many tasks append to it.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, Self, TypedDict, TypeVar

from perdure.aio.artifacts import SessionSaving
from perdure.aio.keeping import SessionKeeping
from perdure.aio.outcomes import (
    Awaiting,
    Call,
    Later,
    Outcome,
    Ready,
    end_context,
    made_in_thread,
)
from perdure.aio.recording import AsyncRecording
from perdure.aio.subagents import SessionDelegating
from perdure.aio.threads import Lane, Pool, ProcessBound
from perdure.aio.viewing import AsyncViewing
from perdure.errors import SessionClosed
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store.drafts import drafts_of
from perdure.store.queue import Accepted
from perdure.store.resumed import Resumed
from perdure.store.session import Session
from perdure.store.viewing import Viewing

__all__ = ["AsyncSession", "end_context"]

P = ParamSpec("P")
T = TypeVar("T")


class _Options(TypedDict):
    agent: str | None
    turn: str | None
    key: str | None
    ignorable: bool


class AsyncSession(
    SessionKeeping, AsyncRecording, AsyncViewing, SessionSaving, SessionDelegating, ProcessBound
):
    """The exclusive writer of one session: `perdure.Session`, with `await` before what blocks.

    May be used from any task, thread and event loop. An asynchronous context manager that closes
    itself, also when it is left by an exception or a cancellation.

    Errors are raised where the result is awaited, never by the call. What failed and was awaited by
    nobody (any more) is raised by the next append, flush or close that is.
    """

    def __init__(
        self,
        session: Session,
        *,
        commits: Pool,
        others: Pool,
        runtime: Runtime,
        released: Callable[[str], None],
    ) -> None:
        """Made by `AsyncStore.create` and `AsyncStore.writer`; `released` is told when it ends."""
        self._session = session
        self._others = others
        self._runtime = runtime
        self._released = released
        self._lane: Lane[_Group | Call[None]] = Lane(commits)
        self._closing = False
        self._given_back = False
        self._untold: BaseException | None = None
        super().__init__()

    def _begin(self) -> None:
        # Reentrant: a signal handler that appends is told by the session that it is busy.
        self._order = threading.RLock()
        self._behind = 0

    def __repr__(self) -> str:
        """Which session, how far, and whether it can still be written."""
        state = "closed" if self.closed else "open"
        return f"<AsyncSession {self.id!r} at {self.position.seq}, {state}>"

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Make a blocking call that needs no place in the order of the events."""
        return await made_in_thread(self._others.run, partial(call, *args, **options))

    # --- what it is ------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.header.id

    @property
    def header(self) -> Header:
        """What was fixed when the session was created."""
        return self._session.header

    @property
    def position(self) -> Position:
        """The last durable position; (-1, genesis) before the first append."""
        return self._session.position

    @property
    def closed(self) -> bool:
        """Whether this object can no longer write."""
        return self._closing or self._session.closed

    @property
    def resumed(self) -> Resumed | None:
        """What `AsyncStore.resume` found and made; None for a writer opened otherwise."""
        return self._session.resumed

    def _ask_views(self, question: Callable[[Viewing], T]) -> Awaiting[T]:
        return Later(partial(self._in_thread, question, self._session))

    def _seen(self) -> tuple[Viewing, Pool]:
        return self._session, self._others

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
    ) -> Awaiting[Event]:
        """Append one event: queued when this returns, durable when the result was awaited.

        The order of the calls is the order in the log, and what the caller does to `data` after the
        call changes nothing. If awaiting raises an error, the event is not in the log and not in
        the queue, as for `Session.append`. If it is cancelled, the event is kept: it is committed
        all the same, or else a later append, flush or close raises why not.

        Raises:
            As `Session.append`, when awaited. A failure that was there before the cancellation
            is raised instead of it.

        """
        now = self._runtime.now_ms() if time is None else time
        options = _Options(agent=agent, turn=turn, key=key, ignorable=ignorable)

        def make() -> list[Draft]:
            return [draft(type, data, time=now, **options)]

        return _One(self._leave, self._remember, self._start(make))

    def append_many(
        self, events: Iterable[Mapping[str, Any]], *, at: int | None = None
    ) -> Awaiting[list[Event]]:
        """Append several events in one commit; as `append` and `Session.append_many`.

        Raises:
            As `Session.append_many`, when awaited.

        """
        now = self._runtime.now_ms()
        return _Several(
            self._leave, self._remember, self._start(lambda: drafts_of(events, now), at)
        )

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
    ) -> Awaiting[Event]:
        """Accept one event at the call; a commit is attempted within 200 ms.

        It is durable after the next `append` or `flush` that was awaited. Awaiting takes no time,
        but for two cases, in which the event is committed as by `append`: above 8 MiB of buffered
        data (await it, then memory is bounded), and where stored events have to be read for a key.

        Raises:
            As `Session.buffer`, when awaited; the event was not accepted then.

        """
        now = self._runtime.now_ms() if time is None else time
        options = _Options(agent=agent, turn=turn, key=key, ignorable=ignorable)
        group = _Group()
        try:
            self._check()
            made = draft(type, data, time=now, **options)
            full = self._session.full or self._behind > 0
            if not full and not self._session.needs_reading([made]):
                return Ready(self._session.buffer(type, data, time=now, **options))
            group.drafts = [made]
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            group.outcome.fail(error)
        else:
            self._put(group)
        return _One(self._leave, self._remember, group)

    # --- ending ----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until everything accepted so far is durable.

        Raises:
            As `Session.flush`.

        """
        self._check()
        call = Call(self._session.flush, untold=self._remember_end)
        self._lane.put(call, self._work)
        await call.wait(self._others.run)

    async def close(self) -> None:
        """Store what is buffered and give the session back; harmless when repeated.

        It is done when this ends, whatever cancels the caller meanwhile.

        Raises:
            As `Session.close`.

        """
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        """The session itself."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        closing = self._start_closing()
        held_back = await closing.wait_out()
        end_context(error, held_back, closing, f"while closing session {self.id!r}")

    def _start_closing(self) -> Outcome[None]:
        """Refuse further events and close behind those that are queued; what comes of it."""
        self._closing = True
        call = Call(self._close)
        self._lane.put(call, self._work)
        return call.outcome

    # --- queueing --------------------------------------------------------------------------------

    def _check(self) -> None:
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold
        if self._closing:
            raise SessionClosed(self.id, "this writer was closed")

    def _start(self, make: Callable[[], list[Draft]], at: int | None = None) -> "_Group":
        group = _Group(at)
        try:
            self._check()
            group.drafts = make()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            group.outcome.fail(error)
        else:
            self._put(group)
        return group

    def _put(self, group: "_Group") -> None:
        """Queue the events, here if that needs no disk, and have them committed."""
        with self._order:
            if self._behind or self._session.needs_reading(group.drafts):
                # Whatever comes after it goes the same way, or the order would be another one.
                self._behind += 1
            elif not self._admit(group):
                return
        self._lane.put(group, self._work)

    def _admit(self, group: "_Group") -> bool:
        try:
            self._session.admit(group.drafts, group.own, at=group.at, keep=group.outcome.abandoned)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._fail(group, error)
            return False
        group.admitted = True
        return True

    def _fail(self, group: "_Group", error: BaseException) -> None:
        if not group.outcome.fail(error) and group.lost:
            self._remember(error)

    def _remember(self, error: BaseException) -> None:
        """Keep what went wrong for the next call, as nobody waits for it."""
        self._untold = self._untold or error

    def _remember_end(self, error: BaseException) -> None:
        # What is still held fails again by itself; a dead writer would fall silent.
        if self._session.closed:
            self._remember(error)

    def _leave(self, group: "_Group") -> bool:
        """Nobody waits for these events any more; False if they had failed before.

        They are kept as if they had been buffered.
        """
        kept = self._session.keep(group.own)
        return group.outcome.abandon() or kept

    # --- in worker threads -----------------------------------------------------------------------

    def _work(self, jobs: "Sequence[_Group | Call[None]]") -> None:
        """Do what is queued: events that stand together in one commit where that is possible."""
        groups: list[_Group] = []
        for job in jobs:
            if isinstance(job, _Group):
                if job.admitted or self._admit_behind(job):
                    groups.append(job)
            else:
                self._settle(groups)
                groups = []
                job()
        self._settle(groups)
        if self._session.closed:
            # Also where it did not close but die.
            self._given_back = True
            self._released(self.id)

    def _admit_behind(self, group: "_Group") -> bool:
        admitted = self._admit(group)
        with self._order:
            self._behind -= 1
        return admitted

    def _settle(self, groups: "Sequence[_Group]") -> None:
        if not groups:
            return
        for group in groups:
            if group.outcome.abandoned:
                self._session.keep(group.own)
        failures: Sequence[BaseException | None]
        try:
            failures = self._session.settle([group.own for group in groups])
        except BaseException as error:  # noqa: BLE001 - nobody may be left waiting
            failures = [error] * len(groups)
        decided = list(zip(groups, failures, strict=True))
        # What nobody waits for first: whoever is woken and calls again finds what it has to tell.
        for group, failure in sorted(decided, key=lambda each: not each[0].outcome.abandoned):
            if failure is None:
                group.outcome.succeed(None)
            else:
                self._fail(group, failure)

    def _close(self) -> None:
        self._session.close()
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold


class _Group:
    """The events of one call, on their way to the log."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.drafts: Sequence[Draft] = ()
        self.own: list[Accepted] = []
        self.admitted = False
        self.outcome: Outcome[None] = Outcome()

    @property
    def lost(self) -> bool:
        """Whether no later commit will store what is not stored."""
        return not self.own or any(
            not one.durable and (one.withdrawn or one.failure is not None) for one in self.own
        )


class _Appending(Awaiting[T]):
    """What `append` returns: waits for the commit."""

    def __init__(
        self,
        leave: Callable[[_Group], bool],
        remember: Callable[[BaseException], None],
        group: _Group,
    ) -> None:
        self._leave = leave
        self._remember = remember
        self._group = group
        self._waiters = 0
        self._begun = False

    def _events(self) -> list[Event]:
        return [one.event for one in self._group.own]

    async def _until_durable(self) -> None:
        outcome = self._group.outcome
        self._begun = True
        self._waiters += 1
        try:
            await outcome.wait()
        except GeneratorExit:
            self._forget()
            raise
        except BaseException:
            if self._waiters == 1 and not self._leave(self._group):
                outcome.result()
            raise
        finally:
            self._waiters -= 1
        outcome.result()

    def _never_begun(self) -> None:
        self._begun = True
        if not self._leave(self._group):
            self._group.outcome.result()

    def _forget(self) -> None:
        """Nobody will wait: a failure is kept for the next call.

        The collector may call this at any place, so nothing may be locked here.
        """
        # In this order: the thread that decides looks the other way round.
        self._group.outcome.abandoned = True
        if self._group.outcome.error is not None:
            self._remember(self._group.outcome.error)

    def __del__(self) -> None:
        """Its result is thrown away."""
        if not self._begun:
            self._forget()


class _One(_Appending[Event]):
    async def _wait(self) -> Event:
        await self._until_durable()
        return self._events()[0]


class _Several(_Appending[list[Event]]):
    async def _wait(self) -> list[Event]:
        await self._until_durable()
        return self._events()
