"""Turns and steps for tasks: what is said goes into the log at the call, awaiting it waits."""

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from perdure.aio.outcomes import Awaiting, Call, Outcome, Refused, Runner, Started, end_context
from perdure.errors import PerdureError
from perdure.model.event import Event
from perdure.store.book import Book, Hold, check_reason, ending
from perdure.store.members import Failure, failure_of
from perdure.store.turns import StepWriting, TurnWriting, Write

__all__ = ["AsyncStep", "AsyncTurn", "Flush", "Noted", "Said", "Ways"]

T = TypeVar("T")

Flush = Callable[[], Call[None]]
"""Has everything that was accepted made durable, whoever waits for it."""

Said = Awaiting[Event]
"""What saying something returns."""


class Noted(Awaiting[T]):
    """What is `awaited`, of which something was noted that a failure takes back."""

    def __init__(
        self, awaited: Awaiting[T], take_back: Callable[[], object], must: str | None = None
    ) -> None:
        """Call `take_back` when it fails; `must` names it if it has to be awaited."""
        self._awaited = awaited
        self._take_back = take_back
        self._must = must

    @property
    def failed(self) -> bool:
        """As what is awaited."""
        return self._awaited.failed

    async def _wait(self) -> T:
        self._must = None
        try:
            return await self._awaited
        except Exception:
            self._take_back()
            raise

    def _never_begun(self) -> None:
        self._must = None
        self._awaited._never_begun()  # noqa: SLF001 - it stands for it

    def __del__(self) -> None:
        """Warn, as of a coroutine that was never awaited."""
        if self._must is not None:
            warnings.warn(f"{self._must} was never awaited", RuntimeWarning, stacklevel=2)


async def _leave(
    error: BaseException | None, end: Callable[[], None], flush: Flush, when: str
) -> None:
    """End what a context is left by: the events are queued at once, then they are waited for.

    Whoever cancels the task meanwhile: it is done when this returns. A task that is thrown away
    (GeneratorExit) may not wait; closing the session does.
    """
    try:
        end()
    except PerdureError as failure:
        failed: Outcome[None] = Outcome()
        failed.fail(failure)
        end_context(error, None, failed, when)
        return
    call = flush()
    if isinstance(error, GeneratorExit):
        call.forget()
        return
    held_back = await call.outcome.wait_out()
    end_context(error, held_back, call.outcome, when)


def _ended(
    end: Callable[[], None], flush: Flush, run: Runner, remember: Callable[[BaseException], object]
) -> Awaiting[None]:
    try:
        end()
    except Exception as error:  # noqa: BLE001 - raised where it is awaited
        return Refused(error, remember)
    return Started(flush(), run)


class Ways:
    """How the turns of a session get their events into the log."""

    def __init__(
        self,
        write: Write[Said],
        hold: Hold,
        flush: Flush,
        run: Runner,
        remember: Callable[[BaseException], object],
    ) -> None:
        """See `Write`, `Hold`, `Flush`; `run` and `remember` as for `Started` and `Refused`."""
        self.write = write
        self.hold = hold
        self.flush = flush
        self.run = run
        self.remember = remember

    def closed(self, error: Exception) -> "Ways":
        """Of what could not begin: everything is refused for the same reason."""

        def write(kind: str, data: Any, **_: Any) -> Said:
            del kind, data
            return Refused(copy.copy(error), self.remember)

        return Ways(write, self.hold, self.flush, self.run, self.remember)


class AsyncStep(StepWriting[Said]):
    """One request to the model and what follows from it: `async with turn.step() as step`."""

    def __init__(self, book: Book, number: int, ways: Ways, started: Said | None) -> None:
        """Made by `AsyncTurn.step`."""
        super().__init__(book, number, ways.write, ways.hold)
        self._ways = ways
        self._started = started

    def end(self) -> Awaiting[None]:
        """End the step at the call: durable when this was awaited; as `Step.end`."""
        end = partial(self._book.end_step, self._hold, self.number, answer=False)
        return _ended(end, self._ways.flush, self._ways.run, self._ways.remember)

    async def __aenter__(self) -> Self:
        """The step itself."""
        started, self._started = self._started, None
        try:
            if started is not None:
                await started
        except BaseException as error:
            if not isinstance(error, Exception):
                # Cancelled while it waited for room: it has begun all the same.
                await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it, as `Step`; a cancellation waits until that is done."""
        if self.open:
            answer = error is not None
            end = partial(self._book.end_step, self._hold, self.number, answer=answer)
            await _leave(error, end, self._ways.flush, f"while ending step {self.number}")


class AsyncTurn(TurnWriting[Said]):
    """One turn of an agent: `async with session.turn() as turn`; it ends itself.

    What is said goes into the log in the order of the calls. Await what has to be durable: the
    request before the model is asked, the call before the tool runs. The rest may be left alone; if
    it fails, the next call of the session that is awaited says so.
    """

    def __init__(self, book: Book, ways: Ways, started: Said | None) -> None:
        """Made by `AsyncSession.turn`."""
        super().__init__(book, ways.write, ways.hold)
        self._ways = ways
        self._started = started

    def step(self) -> AsyncStep:
        """Begin the next step: `async with turn.step() as step`, or `step.end()`; as `Turn.step`.

        Raises:
            As `Turn.step`, where the step is entered; without that, by the next awaited call.

        """
        try:
            number, started = self._begin_step()
        except PerdureError as error:
            refused: Said = Refused(error, self._ways.remember)
            return AsyncStep(self._book, 0, self._ways.closed(error), refused)
        return AsyncStep(self._book, number, self._ways, started)

    def next_step(self) -> AsyncStep:
        """As `step`, after ending the one that is open; as `Turn.next_step`."""
        self._end_open_step()
        return self.step()

    def end(self, reason: str = "completed", error: Failure | None = None) -> Awaiting[None]:
        """End the turn at the call: durable when this was awaited; as `Turn.end`."""

        def end() -> None:
            check_reason(reason)
            self._book.end(self._hold, reason, failure)

        failure = failure_of(error)
        return _ended(end, self._ways.flush, self._ways.run, self._ways.remember)

    async def __aenter__(self) -> Self:
        """The turn itself."""
        started, self._started = self._started, None
        try:
            if started is not None:
                await started
        except BaseException as error:
            if not isinstance(error, Exception):
                # Cancelled while it waited for room: it has begun all the same.
                await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it, as `Turn`; a cancellation waits until that is done."""
        if self.open:
            reason, failure = ending(error)
            end = partial(self._book.end, self._hold, reason, failure)
            await _leave(error, end, self._ways.flush, f"while ending turn {self.id!r}")
