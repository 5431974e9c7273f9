"""The listener of an agent's output, for tasks; see `perdure.store.output`."""

from collections.abc import Callable
from typing import Any

from perdure.aio.outcomes import Awaiting, Ready, Refused
from perdure.aio.session import AsyncSession
from perdure.store.output import OutputListening

__all__ = ["AsyncOutputRecorder"]


class _Heard(Awaiting[None]):
    """What was heard, on its way into the log."""

    def __init__(
        self, said: Awaiting[Any], failed: Callable[[Exception], object], *, raises: bool
    ) -> None:
        self._said = said
        self._failed = failed
        self._raises = raises

    async def _wait(self) -> None:
        try:
            await self._said
        except Exception as error:
            self._failed(error)
            if self._raises:
                raise


class AsyncOutputRecorder(OutputListening[Awaiting[None]]):
    """A listener of an agent's output for tasks: `perdure.OutputRecorder`.

    What is heard is queued at the call. Await `on_request` and `on_tool_call`, or model and tools
    are called unrecorded; the rest may be left alone.
    """

    def __init__(
        self, session: AsyncSession, *, agent: str | None = None, strict: bool = True
    ) -> None:
        """Record the turns of `agent`; None: of the agent without a name.

        With `strict`, awaiting `on_request` and `on_tool_call` raises what keeps them from being
        recorded, and what could not be recorded before; nothing else ever raises. Without it
        nothing does, and `failures` alone tells.
        """
        super().__init__(session, agent=agent, strict=strict)

    def _do(self, action: Callable[[], Any], *, checkpoint: bool = False) -> Awaiting[None]:
        raises = checkpoint and self._strict
        with self._lock:
            untold = self._take_untold() if raises else None
            if untold is not None:
                return Refused(untold, self._remember)
            try:
                said = action()
            except Exception as error:  # noqa: BLE001 - raised where it is awaited, or kept
                self._failed(error, told=raises)
                return Refused(error, self._remember) if raises else Ready(None)
        if not isinstance(said, Awaiting):
            return Ready(None)

        def failed(error: Exception) -> None:
            self._failed(error, told=raises)

        return _Heard(said, failed, raises=raises)
