"""Resume for tasks: `perdure.store.resuming` and `perdure.store.agents`, with `await`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

from perdure.aio.opening import Opening
from perdure.aio.session import AsyncSession
from perdure.store import Session, Store
from perdure.store.resuming import Last, Output, TriggerMaker

__all__ = ["StoreResuming"]

P = ParamSpec("P")
T = TypeVar("T")


class StoreResuming(ABC):
    """The part of a store that brings runs back."""

    _store: Store

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    async def _opened(self, id: str, wait: float, attempt: Callable[[], Session]) -> AsyncSession:
        """A session that is opened by an attempt in a worker thread, in turn."""

    async def last(self) -> str:
        """The id of the session in which something happened last, as `Store.last`."""
        return await self._in_thread(self._store.last)

    def resume(
        self,
        id: str | Last,
        *,
        wait: float = 0.0,
        cwd: str | None = None,
        presets: Collection[str] | None = None,
        triggers: Mapping[str, TriggerMaker] | None = None,
        output: Output | None = None,
    ) -> Opening:
        """Bring a run back, as `Store.resume`; may be entered at once.

        Triggers are made, and the output is shown the scrollback, in a worker thread.

        Raises:
            As `Store.resume`, when awaited or entered.

        """
        options = {"cwd": cwd, "presets": presets, "triggers": triggers, "output": output}
        return Opening(partial(self._resume, id, wait, options))

    async def _resume(self, id: str | Last, wait: float, options: dict[str, Any]) -> AsyncSession:
        if isinstance(id, Last):
            id = await self.last()
        return await self._opened(id, wait, partial(self._store.resume, id, **options))
