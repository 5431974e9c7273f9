"""Where a worker thread meets a task: signals that belong to the event loop of whoever waits.

The loop is looked up at each call, never kept: one store serves several loops in several threads,
and a loop that comes after another was closed. Under asyncio the standard library is enough; trio
is served through anyio, which is imported when trio first runs one of these calls.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from contextlib import suppress
from types import ModuleType
from typing import Any

from perdure.errors import InvalidValue

__all__ = ["Signal", "checkpoint", "signal"]


class Signal(ABC):
    """Wakes one task, once. `set` may be called from any thread, and repeatedly."""

    @abstractmethod
    def set(self) -> None:
        """Wake the task; without effect when its loop has ended."""

    @abstractmethod
    async def wait(self, seconds: float | None = None) -> None:
        """Return when it is set, or `seconds` later."""

    @abstractmethod
    async def wait_out(self) -> BaseException | None:
        """Return when it is set, whoever cancels the task meanwhile.

        Returns a cancellation that the caller has to raise again, if one was held back.
        """


class _AsyncioSignal(Signal):
    def __init__(self) -> None:
        self._loop = _asyncio_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        # A loop that was closed has nobody left to wake.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        timer = None if seconds is None else self._loop.call_later(seconds, self._resolve)
        try:
            await self._future
        finally:
            if timer is not None:
                timer.cancel()

    async def wait_out(self) -> BaseException | None:
        held_back: BaseException | None = None
        while not self._future.done():
            try:
                # Unlike an await of the future itself, this leaves it alone when it is cancelled.
                await asyncio.wait((self._future,))
            except asyncio.CancelledError as error:
                held_back = held_back or error
        return held_back


def signal() -> Signal:
    """A signal for the task that asks.

    Raises:
        InvalidValue: neither asyncio nor trio runs here, or anyio is missing under trio.

    """
    if _in_trio():
        made: Signal = _under_trio().TrioSignal()
        return made
    return _AsyncioSignal()


async def checkpoint() -> None:
    """Let a cancellation that is already pending come before anything is begun.

    Raises:
        InvalidValue: as `signal`.

    """
    if _in_trio():
        await _under_trio().checkpoint()
    else:
        _asyncio_loop()
        await asyncio.sleep(0)


def _asyncio_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise InvalidValue(
            "event loop", str(error), hint="await it in a task of asyncio or trio"
        ) from None


def _in_trio() -> bool:
    """Whether a trio task runs this, be it inside an asyncio loop (guest mode)."""
    trio: Any = sys.modules.get("trio")
    lowlevel = getattr(trio, "lowlevel", None)
    return lowlevel is not None and bool(lowlevel.in_trio_task())


def _under_trio() -> ModuleType:
    try:
        from perdure.aio import under_trio  # noqa: PLC0415 - never needed under asyncio
    except ImportError as error:
        raise InvalidValue(
            "event loop",
            f"it is trio's, and {error.name} is not installed",
            hint="install perdure again with [trio] behind its name or folder",
        ) from error
    return under_trio
