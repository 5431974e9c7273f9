"""What comes of a call that a worker thread makes, and how tasks wait for it."""

import threading
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from perdure.aio.loops import Signal, checkpoint, signal
from perdure.store.closing import close_behind

__all__ = [
    "Awaiting",
    "Call",
    "Later",
    "Outcome",
    "Ready",
    "Refused",
    "Runner",
    "Started",
    "end_context",
    "made_in_thread",
    "without_frames",
]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Runner = Callable[[Callable[[], object]], None]
"""Has a thread make a call, some time."""


class Outcome(Generic[T]):
    """A value or an error, decided once by a thread, waited for by tasks of any event loop.

    Attributes:
        done: it is decided.
        error: the error, or None.
        abandoned: whoever waited was cancelled before it was decided.
        told: somebody waited for it, or was told of the error.
        turn: the turn in which the call was made, or None.

    """

    def __init__(self, turn: str | None = None) -> None:
        """Undecided."""
        self.told = False
        self.turn = turn
        self._mutex = threading.Lock()
        self._signals: list[Signal] = []
        self._values: list[T] = []
        self.done = False
        self.error: BaseException | None = None
        self.abandoned = False

    def succeed(self, value: T) -> bool:
        """Decide; False if nobody waits any more."""
        return self._decide([value], None)

    def fail(self, error: BaseException) -> bool:
        """Decide; False if nobody waits any more."""
        return self._decide([], error)

    def _decide(self, values: list[T], error: BaseException | None) -> bool:
        with self._mutex:
            self._values, self.error = values, error
            self.done = True
            signals, self._signals = self._signals, []
            wanted = not self.abandoned
        for each in signals:
            each.set()
        return wanted

    def abandon(self) -> bool:
        """Stop waiting; False if it is decided already."""
        with self._mutex:
            self.abandoned = self.abandoned or not self.done
            return not self.done

    def result(self) -> T:
        """The value of a decided outcome; raises its error."""
        if self.error is not None:
            raise self.error
        return self._values[0]

    async def wait(self) -> None:
        """Return when it is decided."""
        if not self.done:
            await self._signal().wait()

    async def wait_out(self) -> BaseException | None:
        """As `wait`, but see `Signal.wait_out` for what happens to cancellations."""
        return None if self.done else await self._signal().wait_out()

    def _signal(self) -> Signal:
        made = signal()
        with self._mutex:
            if not self.done:
                self._signals.append(made)
                return made
        made.set()
        return made


class Call(Generic[T]):
    """One blocking call, to be made by a thread, and the task that waits for it.

    If the task is cancelled first, a call that nobody else needs is not begun any more; one that is
    under way goes on, and `undo` (in a worker thread) gets the value that nobody takes.
    """

    def __init__(
        self,
        call: Callable[[], T],
        *,
        undo: Callable[[T], object] | None = None,
        untold: Callable[[BaseException], object] | None = None,
    ) -> None:
        """With `untold` it is made in any case, and `untold` gets the error that nobody takes."""
        self._call = call
        self._undo = undo
        self._untold = untold
        self.outcome: Outcome[T] = Outcome()

    def __call__(self) -> None:
        """Make the call. Runs in a worker thread."""
        if self.outcome.abandoned and self._untold is None:
            return
        try:
            value = self._call()
        except BaseException as error:  # noqa: BLE001 - it is handed on to whoever waits
            if not self.outcome.fail(error) and self._untold is not None:
                self._untold(error)
        else:
            if not self.outcome.succeed(value) and self._undo is not None:
                self._undo(value)

    async def wait(self, run: Runner) -> T:
        """What comes of it. `run` lets a thread undo what came too late."""
        self.outcome.told = True
        try:
            await self.outcome.wait()
        except GeneratorExit:
            self.outcome.told = False
            self.forget()
            raise
        except BaseException:
            if not self.outcome.abandon():
                self._too_late(run)
            raise
        return self.outcome.result()

    def forget(self) -> None:
        """Nobody waits or will wait. Nothing is locked by this, the collector may call it."""
        # In this order: the thread that decides looks the other way round.
        self.outcome.abandoned = True
        if self.outcome.error is not None and self._untold is not None and not self.outcome.told:
            self.outcome.told = True
            self._untold(self.outcome.error)

    def _too_late(self, run: Runner) -> None:
        error, undo = self.outcome.error, self._undo
        if error is not None and self._untold is not None:
            self._untold(error)
        elif error is None and undo is not None:
            run(partial(undo, self.outcome.result()))


async def made_in_thread(
    run: Runner,
    call: Callable[[], T],
    undo: Callable[[T], object] | None = None,
) -> T:
    """Let a thread call, and return what it returned; a task that is cancelled begins nothing."""
    await checkpoint()
    made = Call(call, undo=undo)
    run(made)
    return await made.wait(run)


class Awaiting(Coroutine[Any, Any, T_co]):
    """What can be awaited, and handed to whatever wants a coroutine (`create_task`, `start_soon`).

    Unlike a coroutine it may be awaited again, and nobody complains if it never is.
    """

    _running: Coroutine[Any, Any, T_co] | None = None

    @property
    def failed(self) -> bool:
        """Whether it is known already that awaiting it raises an error."""
        return False

    @abstractmethod
    def _wait(self) -> Coroutine[Any, Any, T_co]:
        """A new coroutine that waits for the result."""

    def _never_begun(self) -> None:
        """It is cancelled before anybody waited."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise TypeError("this is not the answer yet: await it")

    __hash__ = Coroutine.__hash__

    def __repr__(self) -> str:
        """That it is not the answer."""
        return "<not the answer yet: await it>"

    def __await__(self) -> Generator[Any, Any, T_co]:
        return (yield from self._wait().__await__())

    def send(self, value: Any, /) -> Any:
        """As of a coroutine."""
        if self._running is None:
            self._running = self._wait()
        return self._running.send(value)

    def throw(self, kind: Any, value: Any = None, trace: Any = None, /) -> Any:
        """As of a coroutine."""
        error = kind if value is None else value
        error = error() if isinstance(error, type) else error
        if trace is not None:
            error = error.with_traceback(trace)
        if self._running is None:
            self._never_begun()
            raise error
        return self._running.throw(error)

    def close(self) -> None:
        """As of a coroutine."""
        if self._running is not None:
            self._running.close()


class Ready(Awaiting[T]):
    """A result that is there already."""

    def __init__(self, value: T) -> None:
        """Give `value` to whoever awaits."""
        self._value = value

    async def _wait(self) -> T:
        return self._value


class Later(Awaiting[T]):
    """An asynchronous call that begins when it is awaited."""

    def __init__(self, start: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Call `start` then."""
        self._start = start

    def _wait(self) -> Coroutine[Any, Any, T]:
        return self._start()


class Started(Awaiting[T]):
    """A call that is under way already. What fails and is never awaited goes to its `untold`."""

    def __init__(self, call: Call[T], run: Runner) -> None:
        """Wait for `call`; `run` as for `Call.wait`."""
        self._call = call
        self._run = run
        self._begun = False

    async def _wait(self) -> T:
        self._begun = True
        return await self._call.wait(self._run)

    def _never_begun(self) -> None:
        self._begun = True
        self._call.forget()

    def __del__(self) -> None:
        """Nobody will wait."""
        if not self._begun:
            self._call.forget()


class Refused(Awaiting[T]):
    """A call that was refused: raises where it is awaited; if it never is, `remember` is told.

    Attributes:
        outcome: the error, and whether somebody was told of it.

    """

    def __init__(
        self,
        error: Exception,
        remember: Callable[[BaseException], object],
        turn: str | None = None,
    ) -> None:
        """Raise `error`; the call was made in `turn`."""
        self.outcome: Outcome[T] = Outcome(turn)
        self.outcome.fail(without_frames(error))
        self._remember = remember

    @property
    def failed(self) -> bool:
        """It is known."""
        return True

    @property
    def error(self) -> BaseException | None:
        """What awaiting it raises."""
        return self.outcome.error

    async def _wait(self) -> T:
        self.outcome.told = True
        return self.outcome.result()

    def __del__(self) -> None:
        """Nobody was told."""
        error = self.outcome.error
        if error is not None and not self.outcome.told:
            self.outcome.told = True
            self._remember(error)


def without_frames(error: Exception) -> Exception:
    """`error` without the calls that it came through.

    What is kept in a result must not keep that result itself, as the frame of a call does that has
    it in a variable: it would go unnoticed that it was thrown away.
    """
    seen: list[BaseException] = []
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and each not in seen:
            seen.append(each)
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)
    return error


def end_context(
    error: BaseException | None, held_back: BaseException | None, closing: Outcome[None], when: str
) -> None:
    """Tell what came of `closing`, behind the `error` that ends the context or a cancellation."""
    close_behind(error if error is not None else held_back, closing.result, when)
    if held_back is not None and not isinstance(error, type(held_back)):
        raise held_back
