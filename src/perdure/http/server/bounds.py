"""How much is at work at once: threads, and what else there is an end of, shared out fairly.

Nobody gets more than half of anything while it lasts: whoever asks for too much waits for
themselves, and not the others.
"""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from perdure.errors import RequestTimedOut, ServerUnavailable

__all__ = ["WAIT_SECONDS", "Budget", "Pool"]

WAIT_SECONDS = 30.0
"""So long a thread is waited for, where the work itself may not take less."""

_SERVER = "the server"
_BUSY = "it has too much to do"


class Budget:
    """Something that there is so much of. Used by the event loop alone.

    Attributes:
        each: how much anybody may have of it.

    """

    def __init__(self, whole: int, each: int) -> None:
        """`whole` for all together, `each` for any one of them."""
        self._whole = whole
        self.each = each
        self._taken = 0
        self._by: Counter[Hashable] = Counter()

    def take(self, whose: Hashable, amount: int = 1) -> None:
        """Take some of it.

        Raises:
            ServerUnavailable: there is not that much left, or not for them.

        """
        if self._taken + amount > self._whole or self._by[whose] + amount > self.each:
            raise ServerUnavailable(_SERVER, _BUSY)
        self._taken += amount
        self._by[whose] += amount

    def give_back(self, whose: Hashable, amount: int = 1) -> None:
        """Give back what was taken."""
        self._taken -= amount
        self._by[whose] -= amount
        if not self._by[whose]:
            del self._by[whose]

    @property
    def taken(self) -> int:
        """How much is taken by all."""
        return self._taken


class Pool:
    """Threads for one kind of work. Used by the event loop alone.

    A thread that takes too long cannot be ended, and keeps its place until it ends by itself: there
    are never more threads than places.
    """

    def __init__(self, size: int, each: int | None = None) -> None:
        """`size` threads, of which anybody may hold `each`, by default half."""
        self._size = size
        self._each = max(1, size // 2) if each is None else each
        self._busy = 0
        self._by: Counter[Hashable] = Counter()
        self._waiting: deque[tuple[Hashable, asyncio.Future[None]]] = deque()
        self._tasks: set[asyncio.Task[Any]] = set()
        # The places are counted here.
        self._limiter = anyio.CapacityLimiter(math.inf)

    async def run(
        self,
        whose: Hashable,
        work: Callable[..., Any],
        *given: Any,
        seconds: float,
        wait: float = WAIT_SECONDS,
    ) -> Any:
        """Call what blocks in a thread.

        A thread is waited for as long as the work may take, and no longer than `wait`.

        Raises:
            ServerUnavailable: no thread got free in time.
            RequestTimedOut: it took longer than `seconds`; it goes on, and nobody hears of it.
            What `work` raises.

        """
        await self._enter(whose, min(seconds, wait))
        # A task of its own, for whoever asks may leave while the thread goes on.
        task = asyncio.create_task(self._work(whose, partial(work, *given)))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:
            raise RequestTimedOut(seconds)
        return task.result()

    async def _work(self, whose: Hashable, work: Callable[[], Any]) -> Any:
        try:
            return await anyio.to_thread.run_sync(
                work, abandon_on_cancel=True, limiter=self._limiter
            )
        finally:
            # Only the end of the loop cancels this.
            self._leave(whose)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Where nobody waits any more, what it raises is nobody's.
            task.exception()

    async def _enter(self, whose: Hashable, seconds: float) -> None:
        if self._may(whose):
            self._take(whose)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((whose, turn))
        try:
            async with asyncio.timeout(seconds):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave(whose)
            else:
                with suppress(ValueError):
                    self._waiting.remove((whose, turn))
            if isinstance(error, TimeoutError):
                raise ServerUnavailable(_SERVER, _BUSY) from None
            raise

    def _may(self, whose: Hashable) -> bool:
        return self._busy < self._size and self._by.get(whose, 0) < self._each

    def _take(self, whose: Hashable) -> None:
        self._busy += 1
        self._by[whose] += 1

    def _leave(self, whose: Hashable) -> None:
        self._busy -= 1
        self._by[whose] -= 1
        if not self._by[whose]:
            del self._by[whose]
        for waiting in list(self._waiting):
            other, turn = waiting
            if self._may(other):
                self._waiting.remove(waiting)
                if not turn.done():
                    self._take(other)
                    turn.set_result(None)
                    return
