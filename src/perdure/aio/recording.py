"""The recorder for tasks: what is said is queued at the call, and durable when it was awaited."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from perdure.aio.effects import AsyncGates
from perdure.aio.outcomes import Awaiting, Call, Outcome, Ready, Refused, Started, end_context
from perdure.aio.steps import AsyncTurn, Noted, Said, Ways
from perdure.aio.threads import Lane, Pool
from perdure.errors import InvalidValue, PerdureError
from perdure.model import values
from perdure.model.event import Event, draft
from perdure.model.record import Position
from perdure.store.book import Book, check_start
from perdure.store.effects import (
    EFFECT_NOT_STARTED,
    INTENT,
    OUTCOME,
    Attempt,
    check_action,
    check_key,
    completed,
    failed,
    happened,
    key_of,
    known_value,
    latest,
    settlement,
)
from perdure.store.members import Content, Failure, data_of, failure_of
from perdure.store.recording import RUNS, Desk
from perdure.store.refusing import refuse_import
from perdure.store.session import Session
from perdure.store.statements import Statements

__all__ = ["AsyncRecording"]

T = TypeVar("T")

_MUST = {"request/header": "step.request", "tool/call": "step.call"}
"""What has to be durable before something else happens, and what it is said by."""


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

    @abstractmethod
    def _append_behind(
        self, check: Callable[[], object], kind: str, data: Any, *, agent: str | None, turn: str
    ) -> Awaiting[Event]: ...

    @abstractmethod
    def _note_failure(self, outcome: Outcome[Any]) -> None: ...

    @abstractmethod
    def _take_untold(
        self, turn: str | None = None, *, everything: bool = False
    ) -> BaseException | None: ...

    @property
    def _desk(self) -> Desk:
        return self._session._desk  # noqa: SLF001 - a session for tasks and its session

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

        As `Session.turn`. Without `async with`, `await turn.end()` ends it. Turns `parent` and
        `replaces` are looked up behind what is queued, and waited for where the turn is entered.

        Raises:
            As `Session.turn`, where the turn is entered; without that, by the end of the turn at
            the latest.

        """
        book = Book(self.id, self._runtime.token() if id is None else id, agent)
        flushing = partial(self._flushing, book.turn)
        ways = Ways(self._write_in_turn, self._hold_all, flushing, self._others.run, self._remember)
        members = {"parent": parent, "replaces": replaces, "how": how}
        started: Said
        try:
            refuse_import(self._session.header)
            check_start(book, members)
        except InvalidValue as error:
            started = self._refused(error, book.turn)
            book.refused, book.ended = error, True
            ways = ways.closed(error)
        else:
            started = self._begin_turn(book, members)
        return AsyncTurn(book, ways, started)

    def _begin_turn(self, book: Book, members: dict[str, Any]) -> Said:
        """Queue what says that a turn begins; the first of a new session also says whose run."""
        others = [(name, members[name]) for name in ("parent", "replaces")]
        if all(other is None for _, other in others):
            if self._session.new and self._desk.begins() and self.record_run().failed:
                self._desk.begins(again=True)
            return self._say("turn/start", members, agent=book.agent, turn=book.turn, durable=False)
        session = self._session

        def check() -> None:
            try:
                for name, other in others:
                    if other is not None:
                        session._check_turn(name, other, book.agent)  # noqa: SLF001
                session._say_run()  # noqa: SLF001
            except Exception as error:
                book.refused, book.ended = error, True
                raise

        data = data_of("turn/start", members)
        return self._append_behind(check, "turn/start", data, agent=book.agent, turn=book.turn)

    def rewind(
        self, to: str | None, *, agent: str | None = None, reason: str | None = None
    ) -> Said:
        """Have the agent stand behind the turn `to` again, as `Session.rewind`."""
        return self._in_order(self._session.rewind, to=to, agent=agent, reason=reason)

    def compact_context(
        self,
        summary: Content,
        *,
        first_kept: int | None = None,
        before: int | None = None,
        after: int | None = None,
        reason: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Said:
        """From here on `summary` stands for what was said, as `Session.compact_context`."""
        return self._in_order(
            self._session.compact_context,
            summary=summary,
            first_kept=first_kept,
            before=before,
            after=after,
            reason=reason,
            agent=agent,
            turn=turn,
        )

    def end_job(
        self,
        id: str,
        status: str = "completed",
        *,
        result: Any = None,
        error: Failure | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Said:
        """The job is over, as `Session.end_job`."""
        how = {"status": status, "result": result, "error": error}
        return self._in_order(self._session.end_job, id=id, **how, agent=agent, turn=turn)

    def _in_order(self, call: Callable[..., Event], **options: Any) -> Said:
        """Have a thread make a call of the session behind what is queued, with copies of values."""
        turn = options.get("turn")
        try:
            options = {
                name: failure_of(each) if name == "error" else values.snapshot(each, name)
                for name, each in options.items()
            }
        except InvalidValue as error:
            return self._refused(error, turn)

        def make() -> Event:
            try:
                return call(**options)
            except Exception:
                self._note_failure(made.outcome)
                raise

        made: Call[Event] = Call(make, untold=self._remember)
        made.outcome.turn = turn
        self._lane.put(made, self._work)
        return Started(made, self._others.run)

    def _refused(self, error: Exception, turn: str | None) -> Said:
        """A call that did nothing: whoever awaits it is told, at the latest at the turn's end."""
        refused: Refused[Event] = Refused(error, self._remember, turn)
        self._note_failure(refused.outcome)
        return refused

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
            return self._refused(error, turn)
        put = self.append if durable else self.buffer
        said = put(kind, data, agent=agent, turn=turn)
        if kind in RUNS and not said.failed:
            self._desk.begins()
        return said

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
            data = data_of(kind, data) if members else data
            with book.lock:
                book.check(step)
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
                if said.failed:
                    return said
                # At the call, as whoever waits for it may be cancelled; a failure takes it back.
                take_back = book.note(kind, data)
        except InvalidValue as error:
            return self._refused(error, book.turn)
        if isinstance(said, Ready):
            return said
        must = _MUST.get(kind) if durable and members else None
        return Noted(said, take_back, must)

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

    def _flushing(self, turn: str | None = None, *, everything: bool = False) -> Call[None]:
        """Have all that is queued made durable, also if nobody waits; tell what was not told.

        That is what was thrown away, and what was made in `turn`, or `everything`.
        """
        told: list[BaseException] = []

        def flush() -> None:
            self._session.flush()
            untold = self._take_untold(turn, everything=everything)
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
        check_action(action, awaits=True)
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
