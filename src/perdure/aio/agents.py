"""Factories of agents for tasks: `perdure.store.agents`, with builders that are awaited."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from perdure.aio.session import AsyncSession
from perdure.aio.store import AsyncStore, open_store
from perdure.store.agents import Presets
from perdure.store.resuming import Last, Output, TriggerMaker

__all__ = ["AsyncAgents", "Build"]

A = TypeVar("A")

Build = Callable[[AsyncSession, Any], Awaitable[A]]
"""Makes an agent for a session from the configuration that the session's header keeps.

`session.resumed` is None for a new one. What it raises closes the session.
"""


class AsyncAgents(Generic[A]):
    """Makes agents of several presets, with persistence or without: `perdure.Agents` for tasks."""

    def __init__(
        self,
        presets: Mapping[str, Build[A]],
        store: AsyncStore | None = None,
        *,
        triggers: Mapping[str, TriggerMaker] | None = None,
    ) -> None:
        """Keep sessions in `store`; None: nothing is kept, and nothing can be resumed."""
        self._presets = Presets(presets, kept=store is not None)
        self._store = open_store("none:") if store is None else store
        self._triggers = triggers

    async def create(
        self,
        preset: str,
        *,
        config: Any = None,
        id: str | None = None,
        cwd: str | None = None,
    ) -> A:
        """A new agent with a session of its own, as `Agents.create`."""
        build = self._presets.named(preset, None)
        session = await self._store.create(id, cwd=cwd, preset=preset, config=config)
        return await _built(build, session)

    async def resume(
        self,
        id: str | Last,
        *,
        wait: float = 0.0,
        cwd: str | None = None,
        output: Output | None = None,
    ) -> A:
        """The agent of a session, built again, as `Agents.resume`."""
        session = await self._store.resume(
            id,
            wait=wait,
            cwd=cwd,
            presets=self._presets.to_resume(),
            triggers=self._triggers,
            output=output,
        )
        return await _built(self._presets.named(session.header.preset, session.id), session)


async def _built(build: Build[A], session: AsyncSession) -> A:
    try:
        return await build(session, session.header.config)
    except BaseException as error:
        # By the context's own end: it closes also in a task that is being cancelled.
        await session.__aexit__(type(error), error, error.__traceback__)
        raise
