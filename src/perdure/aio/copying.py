"""Copying to another store, for tasks: each call is the store's own, made in a worker thread."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.store import Copied, Store
from perdure.store.moving import Outcome

__all__ = ["StoreCopying"]

P = ParamSpec("P")
T = TypeVar("T")


class StoreCopying(ABC):
    """What a store does to bring its sessions to another one."""

    _store: Store

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    async def _take(
        self,
        id: str,
        wait: float,
        attempt: Callable[[], T],
        undo: Callable[[T], object] | None = None,
    ) -> T: ...

    async def copy(self, id: str, other: "StoreCopying", *, wait: float = 0.0) -> Copied:
        """Copy a session to another asynchronous store, as `Store.copy`.

        Waiting for a writer there occupies no thread. A copy that is cancelled goes on in its
        thread, to its end.

        Raises:
            As `Store.copy`.

        """
        there = _blocking(other)
        return await other._take(id, wait, partial(self._store.copy, id, there))  # noqa: SLF001

    async def copy_all(
        self, other: "StoreCopying", *, progress: Callable[[Outcome], object] | None = None
    ) -> list[Outcome]:
        """Copy all sessions to another asynchronous store, as `Store.copy_all`.

        `progress` is called in a worker thread.

        Raises:
            As `Store.copy_all`.

        """
        there = _blocking(other)
        return await self._in_thread(self._store.copy_all, there, progress=progress)


def _blocking(other: Any) -> Store:
    if not isinstance(other, StoreCopying):
        reason = f"{values.shown(other)} is no store for tasks"
        raise InvalidValue("other", reason, hint="perdure.aio.open(…) gives one")
    return other._store  # noqa: SLF001 - one store knows another
