"""Forks and who comes from whom, for tasks: each call is the store's own, made in a thread."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from types import EllipsisType
from typing import Any, ParamSpec, TypeVar

from perdure.aio.opening import Opening
from perdure.aio.outcomes import made_in_thread
from perdure.aio.session import AsyncSession
from perdure.aio.threads import Pool
from perdure.model import values
from perdure.store import Relative, Session, Store

__all__ = ["StoreForking"]

P = ParamSpec("P")
T = TypeVar("T")


class StoreForking(ABC):
    """What a store does for sessions that come from other ones."""

    _store: Store
    _others: Pool

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    def _wrap(self, session: Session) -> AsyncSession: ...

    @abstractmethod
    def _give_back(self, session: Session) -> None: ...

    def fork(
        self,
        id: str,
        at: int | None = None,
        *,
        new_id: str | None = None,
        turn: str | None = None,
        agent: str | None = None,
        cwd: str | EllipsisType | None = ...,
        preset: str | EllipsisType | None = ...,
        config: Any = ...,
    ) -> Opening:
        """A new session that begins with the events of another one; await it or enter it.

        One that is cancelled when its thread has begun is stored all the same, and closed.

        Raises:
            As `Store.fork`, when awaited or entered.

        """
        fork = partial(
            self._store.fork,
            id,
            at,
            new_id=new_id,
            turn=turn,
            agent=agent,
            cwd=cwd,
            preset=preset,
        )
        return Opening(partial(self._fork, fork, config))

    async def _fork(self, fork: Callable[..., Session], config: Any) -> AsyncSession:
        # Copied here: no thread reads what other tasks may change.
        own = config if config is ... else values.snapshot(config, "config")
        call = partial(fork, config=own)
        return self._wrap(await made_in_thread(self._others.run, call, self._give_back))

    async def children(self, id: str) -> list[Relative]:
        """The sessions that were forked from this one or work for it, as `Store.children`."""
        return await self._in_thread(self._store.children, id)

    async def lineage(self, id: str) -> list[Relative]:
        """Where a session comes from, as `Store.lineage`."""
        return await self._in_thread(self._store.lineage, id)

    async def descendants(self, id: str) -> list[str]:
        """The sessions of its sub-agents that no other needs, as `Store.descendants`."""
        return await self._in_thread(self._store.descendants, id)
