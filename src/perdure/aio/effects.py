"""Effects that happen once, for tasks: see `perdure.store.effects`."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar

from perdure.aio.loops import Signal, signal

__all__ = ["AsyncGates"]


class _Work:
    """Somebody works at a key; `over` when that has ended."""

    __slots__ = ("over", "waiting")

    def __init__(self) -> None:
        self.over = False
        self.waiting: list[Signal] = []


_inside: ContextVar[tuple[_Work, ...]] = ContextVar("perdure_effects_inside", default=())
"""What this task, or one of those that started it, works at."""


class AsyncGates:
    """Lets one task at a time work at a key, whatever event loop it runs in."""

    def __init__(self) -> None:
        """Nobody works."""
        self._mutex = threading.RLock()
        self._works: dict[str, _Work] = {}

    @asynccontextmanager
    async def only(self, key: str) -> AsyncIterator[bool]:
        """Wait for the others, then be the only one.

        False: whoever works at it waits for this very task, so waiting would never end.
        """
        mine = _Work()
        while (other := self._begin(key, mine)) is not None:
            work, woken = other
            if any(each is work for each in _inside.get()):
                yield False
                return
            await woken.wait()
        before = _inside.set((*(each for each in _inside.get() if not each.over), mine))
        try:
            yield True
        finally:
            self._end(key, mine)
            # A task that was thrown away ends where the collector happens to run.
            with suppress(ValueError):
                _inside.reset(before)

    def _begin(self, key: str, mine: _Work) -> tuple[_Work, Signal] | None:
        """Begin, or who is at work, and what is set when that has ended."""
        with self._mutex:
            work = self._works.setdefault(key, mine)
            if work is mine:
                return None
            woken = signal()
            work.waiting.append(woken)
            return work, woken

    def _end(self, key: str, mine: _Work) -> None:
        with self._mutex:
            mine.over = True
            del self._works[key]
        for woken in mine.waiting:
            woken.set()
