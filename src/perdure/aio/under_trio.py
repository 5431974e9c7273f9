"""What `loops` needs of trio. Imported by it alone, and only where trio is running."""

import anyio
import anyio.lowlevel
import trio

from perdure.aio.loops import Signal

__all__ = ["TrioSignal", "checkpoint"]


class TrioSignal(Signal):
    """A signal for a task of trio."""

    def __init__(self) -> None:
        """Belongs to the run that is under way."""
        self._token = trio.lowlevel.current_trio_token()
        self._event = anyio.Event()

    def set(self) -> None:
        """Wake the task; without effect when the run has ended."""
        try:
            self._token.run_sync_soon(self._event.set)
        except trio.RunFinishedError:
            return

    async def wait(self, seconds: float | None = None) -> None:
        """Return when it is set, or `seconds` later."""
        with anyio.move_on_after(seconds):
            await self._event.wait()

    async def wait_out(self) -> BaseException | None:
        """Return when it is set; trio itself remembers a cancellation for afterwards."""
        with anyio.CancelScope(shield=True):
            await self._event.wait()
        return None


async def checkpoint() -> None:
    """Raise a cancellation that is pending."""
    await anyio.lowlevel.checkpoint()
