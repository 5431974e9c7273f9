"""The recorder for tasks: what is said is queued at the call, and durable when it was awaited."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from perdure.aio.effects import AsyncGates
from perdure.aio.outcomes import Awaiting, Call, Ready, Refused, Started, end_context
from perdure.aio.steps import AsyncTurn, Noted, Said, Ways
from perdure.aio.threads import Lane, Pool
from perdure.errors import InvalidValue, PerdureError
from perdure.model.event import Event, draft
from perdure.model.record import Position
from perdure.store.book import Book, check_start
from perdure.store.effects import (
    EFFECT_NOT_STARTED,
    INTENT,
    OUTCOME,
    Attempt,
    check_key,
    completed,
    failed,
    happened,
    key_of,
    known_value,
    latest,
    settlement,
)
from perdure.store.members import Failure, data_of
from perdure.store.recording import Desk
from perdure.store.session import Session
from perdure.store.statements import Statements

__all__ = ["AsyncRecording"]

T = TypeVar("T")


class AsyncRecording(Statements[Said]):
    """The recording half of a session for tasks."""

    _session: Session
    _others: Pool
    _lane: Lane[Any]
    _untold: BaseException | None

    # What the other half does.

    @property
    @abstractmethod
    def id(self) -> str:
        """The session's id."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """The last durable position."""

    @abstractmethod
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
        """Append one event."""

    @abstractmethod
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
        """Accept one event."""

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _work(self, jobs: Sequence[Any]) -> None: ...

    @abstractmethod
    def _remember(self, error: BaseException) -> None: ...

    @abstractmethod
    def _remember_end(self, error: BaseException) -> None: ...

    @property
    def _desk(self) -> Desk:
        # See `Recording`: one step of the interpreter.
        desk: Desk = self.__dict__.setdefault("_recorder_desk", Desk())
        return desk

    @property
    def _gates(self) -> AsyncGates:
        gates: AsyncGates = self.__dict__.setdefault("_recorder_gates", AsyncGates())
        return gates

    # --- turns -----------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """Id of this run: what a process does with the session from opening to closing it."""
        return self._session.run

    def turn(
        self,
        id: str | None = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
        replaces: str | None = None,
        how: str | None = None,
    ) -> AsyncTurn:
        """Begin a turn of an agent at the call: `async with session.turn() as turn`.

        As `Session.turn`. Without `async with`, `await turn.end()` ends it. Whether there are turns
        `parent` and `replaces` is not looked up, for nobody waits for the log here: behind one that
        was never there it goes on where the agent stands.

        Raises:
            InvalidValue: an id cannot be kept; raised where the turn is entered, without that by
                what is next awaited of it.
            As `buffer`, there too.

        """
        book = Book(self.id, self._runtime.token() if id is None else id, agent)
        ways = Ways(
            self._write_in_turn, self._hold_all, self._flushing, self._others.run, self._remember
        )
        members = {"parent": parent, "replaces": replaces, "how": how}
        with suppress(InvalidValue):
            # What is refused below has no run recorded for it.
            check_start(book, members)
            if self._desk.begins(self.position):
                self.record_run()
        started = self._say("turn/start", members, agent=agent, turn=book.turn, durable=False)
        if isinstance(started, Refused):
            book.ended = True
            ways = ways.closed(started.error)
        return AsyncTurn(book, ways, started)

    def rewind(
        self, to: str | None, *, agent: str | None = None, reason: str | None = None
    ) -> Said:
        """Have the agent stand behind the turn `to` again, as `Session.rewind`."""
        rewind = partial(self._session.rewind, to, agent=agent, reason=reason)
        call: Call[Event] = Call(rewind, untold=self._remember)
        self._lane.put(call, self._work)
        return Started(call, self._others.run)

    def _say(
        self,
        kind: str,
        members: dict[str, Any],
        *,
        agent: str | None = None,
        turn: str | None = None,
        durable: bool = True,
    ) -> Said:
        try:
            data = data_of(kind, members)
        except InvalidValue as error:
            return Refused(error, self._remember)
        put = self.append if durable else self.buffer
        return put(kind, data, agent=agent, turn=turn)

    def _write_in_turn(
        self,
        kind: str,
        data: Any,
        *,
        book: Book,
        step: int | None = None,
        durable: bool = False,
        members: bool = True,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Said:
        try:
            book.check(step)
            data = data_of(kind, data) if members else data
        except InvalidValue as error:
            return Refused(error, self._remember)
        put = self.append if durable else self.buffer
        said = put(
            kind,
            data,
            agent=book.agent,
            turn=book.turn,
            key=key,
            time=time,
            ignorable=ignorable,
        )
        # At the call, as whoever waits for it may be cancelled; a failure takes it back.
        take_back = book.note(kind, data)
        return said if isinstance(said, Ready) else Noted(said, take_back)

    def _hold_all(
        self,
        said: Sequence[tuple[str, dict[str, Any]]],
        agent: str | None,
        turn: str | None,
        key: str | None = None,
    ) -> None:
        """Queue events that stay queued whatever becomes of the next commit.

        Raises:
            InvalidValue: one cannot be kept; none was queued.

        """
        for kind, data in said:
            draft(kind, data, time=0, agent=agent, turn=turn, key=key)
        # What another call has to tell would have the first of these refused in its place.
        untold, self._untold = self._untold, None
        for kind, data in said:
            self.buffer(kind, data, agent=agent, turn=turn, key=key)
        if untold is not None:
            self._remember(untold)

    def _flushing(self) -> Call[None]:
        """Have all that is queued made durable, also if nobody waits; tell what was not told."""
        told: list[BaseException] = []

        def flush() -> None:
            self._session.flush()
            untold, self._untold = self._untold, None
            if untold is not None:
                told.append(untold)
                raise untold

        def nobody_waits(error: BaseException) -> None:
            (self._remember if error in told else self._remember_end)(error)

        call = Call(flush, untold=nobody_waits)
        self._lane.put(call, self._work)
        return call

    # --- effects ---------------------------------------------------------------------------------

    async def once(
        self,
        key: str,
        action: Callable[[], Any],
        *,
        about: Any = None,
        agent: str | None = None,
        turn: str | None = None,
        retry: bool = False,
    ) -> Any:
        """Call `action` unless the effect `key` has happened, as `Session.once`.

        `action` is a function or a coroutine function; a function is called by this task and must
        not block. Another task with the same key waits for the first. A cancellation of `action`
        leaves the effect unknown.

        Raises:
            As `Session.once`.

        """
        check_key(key)
        async with self._gates.only(key) as alone:
            last = await self._latest(key)
            known = known_value(self.id, key, last, retry=retry and alone)
            if known is not None:
                if last.outcome is not None and last.outcome.seq > self.position.seq:
                    await self._flushing().wait(self._others.run)
                return known.value
            own = key_of(key, last.number + 1)
            await self._intend(own, about, agent, turn)
            try:
                value = action()
                if inspect.isawaitable(value):
                    value = await value
            except Exception as error:
                await self._conclude(own, agent, turn, failed(error), behind=error)
                raise
            try:
                data = completed(value)
            except InvalidValue as wrong:
                await self._conclude(own, agent, turn, completed(None))
                raise happened(wrong) from None
            await self._conclude(own, agent, turn, data)
            return data.get("value")

    async def settle_effect(
        self, key: str, value: Any = None, *, failed: Failure | None = None
    ) -> None:
        """Say how an effect ended of which nobody knew, as `Session.settle_effect`."""
        check_key(key)
        async with self._gates.only(key):
            last = await self._latest(key)
            await self.append(OUTCOME, **settlement(self.id, key, last, value, failed))

    async def _latest(self, key: str) -> Attempt:
        """The last attempt, looked up behind all that is queued."""
        self._check()
        find = self._session._queue.find  # noqa: SLF001 - a session for tasks and its session
        call = Call(lambda: latest(find, key))
        self._lane.put(call, self._work)
        return await call.wait(self._others.run)

    async def _intend(self, key: str, about: Any, agent: str | None, turn: str | None) -> None:
        try:
            await self.append(
                INTENT, data_of(INTENT, {"about": about}), agent=agent, turn=turn, key=key
            )
        except Exception:
            raise
        except BaseException:
            # It is in the log all the same, or will be; and so is that nothing was done.
            error = {"code": EFFECT_NOT_STARTED, "message": "It was cancelled before it began."}
            with suppress(PerdureError):
                self._hold_all([(OUTCOME, failed(error))], agent, turn, key)
            raise

    async def _conclude(
        self,
        key: str,
        agent: str | None,
        turn: str | None,
        outcome: dict[str, Any],
        *,
        behind: BaseException | None = None,
    ) -> None:
        """Record how it ended; a cancellation waits until that is done."""
        self._hold_all([(OUTCOME, outcome)], agent, turn, key)
        call = self._flushing()
        held_back = await call.outcome.wait_out()
        end_context(behind, held_back, call.outcome, f"while recording {key!r}")
