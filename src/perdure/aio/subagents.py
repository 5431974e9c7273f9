"""Sub-agents, for tasks: the parent's event takes its place in the order of the calls."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, Protocol, Self, TypeVar

from perdure.errors import PerdureError
from perdure.model import values
from perdure.model.event import Event
from perdure.store.members import Failure
from perdure.store.session import Session
from perdure.store.subagents import Task, unborn

__all__ = ["SessionDelegating"]

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Beginning(Protocol[T_co]):
    """A session that is awaited, or entered with `async with`."""

    def __await__(self) -> Generator[Any, Any, T_co]:
        """The session."""

    async def __aenter__(self) -> T_co:
        """The session."""

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it."""


class SessionDelegating(ABC):
    """What a session's writer does for sub-agents.

    Attributes:
        spawned: what the store returns to whoever begins a session; it calls for it when awaited.

    """

    spawned: Callable[[Callable[[], Coroutine[Any, Any, Session]]], Beginning[Any]]
    _session: Session

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Awaitable[Event]:
        """Append one event."""

    @abstractmethod
    def _check(self) -> None: ...

    @abstractmethod
    def _in_order(self, call: Callable[..., Event], **options: Any) -> Awaitable[Event]: ...

    def subagent(
        self,
        name: str,
        *,
        task: Any = None,
        id: str | None = None,
        session_id: str | None = None,
        preset: str | None = None,
        config: Any = None,
        cwd: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Beginning[Self]:
        """A session for an agent that works for this one, as `Session.subagent`.

        Await it, or enter it with `async with`: it begins then. If it is cancelled, the start may
        be written and no session be there.

        Raises:
            As `Session.subagent`, when awaited or entered.

        """
        plan = partial(
            self._session._plan_subagent,  # noqa: SLF001 - one part of the same call
            name,
            id=id,
            session_id=session_id,
            preset=preset,
            cwd=cwd,
        )
        return self.spawned(partial(self._delegate, plan, task, config, agent=agent, turn=turn))

    async def _delegate(
        self,
        plan: Callable[..., Task],
        task: Any,
        config: Any,
        *,
        agent: str | None,
        turn: str | None,
    ) -> Session:
        self._check()
        # Copied here: no thread reads what other tasks may change.
        task, config = values.snapshot(task, "task"), values.snapshot(config, "config")
        planned = await self._in_thread(partial(plan, task=task, config=config))
        started = await self.append("subagent/start", planned.start, agent=agent, turn=turn)
        spawn = self._session._spawn  # noqa: SLF001 - another part of the same call
        try:
            return await self._in_thread(spawn, planned, started)
        except PerdureError as error:
            with suppress(PerdureError):
                await self.append(*unborn(planned, error), agent=agent, turn=turn)
            raise

    def end_subagent(
        self,
        id: str,
        status: str = "completed",
        *,
        result: Any = None,
        error: Failure | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Awaitable[Event]:
        """Say how a sub-agent ended, as `Session.end_subagent`."""
        how = {"status": status, "result": result, "error": error}
        return self._in_order(self._session.end_subagent, id=id, **how, agent=agent, turn=turn)
