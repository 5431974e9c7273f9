"""The writer of one session, for tasks: what blocks is done by threads, in the order of the calls.

Events are encoded and queued at the call. A lane holds what waits for a commit; one worker thread
at a time takes all that is there and commits it together, so that a session never occupies more
than one, however many tasks append to it.
"""

import copy
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, Self, TypedDict, TypeVar

from perdure.aio.appending import Group, One, Several
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
    without_frames,
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
        self._lane: Lane[Group | Call[None]] = Lane(commits)
        self._closing = False
        self._given_back = False
        self._untold: BaseException | None = None
        self._failed: list[Outcome[Any]] = []
        self._never: dict[tuple[str | None, str | None], Exception] = {}
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
        return Later(partial(self._ask_behind, question))

    async def _ask_behind(self, question: Callable[[Viewing], T]) -> T:
        """Ask when all that was queued before is in the log."""
        call = Call(self._session.flush)
        self._lane.put(call, self._work)
        await call.wait(self._others.run)
        return await self._in_thread(question, self._session)

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

        return One(self._leave, self._remember, self._start(make, turn=turn))

    def _append_behind(
        self, check: Callable[[], object], kind: str, data: Any, *, agent: str | None, turn: str
    ) -> Awaiting[Event]:
        """Begin a turn as `append`, unless `check` raises, called behind all that is queued.

        Then what was queued for the turn meanwhile is refused as well.
        """
        now = self._runtime.now_ms()

        def begin() -> None:
            try:
                check()
            except Exception as error:
                self._never[agent, turn] = error
                raise

        def make() -> list[Draft]:
            return [draft(kind, data, time=now, agent=agent, turn=turn)]

        return One(self._leave, self._remember, self._start(make, turn=turn, check=begin))

    def append_many(
        self, events: Iterable[Mapping[str, Any]], *, at: int | None = None
    ) -> Awaiting[list[Event]]:
        """Append several events in one commit; as `append` and `Session.append_many`.

        Raises:
            As `Session.append_many`, when awaited.

        """
        now = self._runtime.now_ms()
        return Several(self._leave, self._remember, self._start(lambda: drafts_of(events, now), at))

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
        group = Group(turn=turn)
        try:
            self._check()
            made = draft(type, data, time=now, **options)
            full = self._session.full or self._behind > 0
            if not full and not self._session.needs_reading([made]):
                return Ready(self._session.buffer(type, data, time=now, **options))
            group.drafts = [made]
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._refuse_group(group, error)
        else:
            self._put(group)
        return One(self._leave, self._remember, group)

    # --- ending ----------------------------------------------------------------------------------

    async def find(self, type: str, key: str) -> Event | None:  # noqa: A002
        """The event that has this (type, key), as `Session.find`."""
        return await self._in_thread(self._session.find, type, key)

    async def flush(self) -> None:
        """Wait until everything accepted so far is durable.

        Raises:
            As `Session.flush`.

        """
        self._check()
        await self._flushing(everything=True).wait(self._others.run)

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

    def _start(
        self,
        make: Callable[[], list[Draft]],
        at: int | None = None,
        *,
        turn: str | None = None,
        check: Callable[[], object] | None = None,
    ) -> Group:
        group = Group(at, turn=turn, check=check)
        try:
            self._check()
            group.drafts = make()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._refuse_group(group, error)
        else:
            self._put(group)
        return group

    def _put(self, group: Group) -> None:
        """Queue the events, here if that needs no disk, and have them committed."""
        with self._order:
            behind = self._behind or group.check is not None
            if behind or self._session.needs_reading(group.drafts):
                # Whatever comes after it goes the same way, or the order would be another one.
                self._behind += 1
            elif not self._admit(group):
                return
        self._lane.put(group, self._work)

    def _admit(self, group: Group) -> bool:
        try:
            if group.check is not None:
                group.check()
            for each in group.drafts if self._never else ():
                if (never := self._never.get((each.agent, each.turn))) is not None:
                    raise copy.copy(never)
            self._session.admit(group.drafts, group.own, at=group.at, keep=group.outcome.abandoned)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            self._fail(group, error)
            return False
        group.admitted = True
        return True

    def _refuse_group(self, group: Group, error: Exception) -> None:
        group.outcome.fail(without_frames(error))
        self._note_failure(group.outcome)

    def _fail(self, group: Group, error: BaseException) -> None:
        if group.outcome.fail(error):
            self._note_failure(group.outcome)
        elif group.lost:
            self._remember(error)

    def _remember(self, error: BaseException) -> None:
        """Keep what went wrong for the next call, as nobody waits for it."""
        self._untold = self._untold or error

    def _note_failure(self, outcome: Outcome[Any]) -> None:
        """Keep what somebody may still await, for the end of its turn, a flush or the close."""
        with self._order:
            self._failed = [each for each in self._failed if not each.told]
            self._failed.append(outcome)

    def _take_untold(
        self, turn: str | None = None, *, everything: bool = False
    ) -> BaseException | None:
        """What went wrong first of what nobody was told: thrown away, or made in `turn`."""
        untold, self._untold = self._untold, None
        with self._order:
            due = [
                each
                for each in self._failed
                if everything or (turn is not None and each.turn == turn)
            ]
            self._failed = [each for each in self._failed if each not in due]
        for each in due:
            if not each.told:
                each.told = True
                untold = untold or each.error
        return untold

    def _remember_end(self, error: BaseException) -> None:
        # What is still held fails again by itself; a dead writer would fall silent.
        if self._session.closed:
            self._remember(error)

    def _leave(self, group: Group) -> bool:
        """Nobody waits for these events any more; False if they had failed before.

        They are kept as if they had been buffered.
        """
        kept = self._session.keep(group.own)
        return group.outcome.abandon() or kept

    # --- in worker threads -----------------------------------------------------------------------

    def _work(self, jobs: Sequence[Group | Call[None]]) -> None:
        """Do what is queued: events that stand together in one commit where that is possible."""
        groups: list[Group] = []
        for job in jobs:
            if isinstance(job, Group):
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

    def _admit_behind(self, group: Group) -> bool:
        admitted = self._admit(group)
        with self._order:
            self._behind -= 1
            if not self._behind:
                self._never.clear()
        return admitted

    def _settle(self, groups: Sequence[Group]) -> None:
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
        untold = self._take_untold(everything=True)
        if untold is not None:
            raise untold
