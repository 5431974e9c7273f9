"""Sub-agents: agents that work for another one, each in a session of its own.

The parent's log says that it begins, durably, before the child's session can exist, and how it
ended. The child's header names the parent and that event.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, Self

import msgspec

from perdure.backends.base import Backend
from perdure.errors import InvalidValue, PerdureError
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header, Parent, check_id, new_header
from perdure.model.vocabulary import Error
from perdure.runtime import Runtime
from perdure.store.members import ENDINGS, Failure, failure_of
from perdure.store.opening import refuse_taken
from perdure.store.witness import Witness

__all__ = ["Delegating", "Task", "ended", "unborn"]


class Task(NamedTuple):
    """A sub-agent that is about to begin.

    Attributes:
        start: data of the event in the parent's log.
        child: what the child's session is created with, but for its parent.

    """

    start: dict[str, Any]
    child: dict[str, Any]


class Delegating(ABC):
    """What a session's writer does for sub-agents.

    Attributes:
        header: the session's header.
        spawn: creates a session in the same store.

    """

    header: Header
    spawn: Callable[..., Self]
    _backend: Backend
    _runtime: Runtime
    _witness: Witness

    @abstractmethod
    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """Append one event."""

    @abstractmethod
    def _check_known(self, view: str, id: str) -> None:
        """Refuse an id that no event began."""

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
    ) -> Self:
        """A session for an agent that works for this one; its writer.

        `subagent/start` is durable in this session when this returns. The new session's header
        names this one and that event, has the origin "subagent" and is one deeper; as any new
        session it is stored with its first event. `id` is what the two events in this session call
        the sub-agent, by default the id of its session; `cwd` is by default this session's. `agent`
        and `turn` are who started it here, and within what.

        Raises:
            InvalidValue: a field is out of range; nothing was written.
            SessionExists: `session_id` is taken.
            As `append`.

        """
        planned = self._plan_subagent(
            name, task=task, id=id, session_id=session_id, preset=preset, config=config, cwd=cwd
        )
        started = self.append("subagent/start", planned.start, agent=agent, turn=turn)
        try:
            return self._spawn(planned, started)
        except PerdureError as error:
            with suppress(PerdureError):
                self.append(*unborn(planned, error), agent=agent, turn=turn)
            raise

    def _plan_subagent(
        self,
        name: str,
        *,
        task: Any,
        id: str | None,
        session_id: str | None,
        preset: str | None,
        config: Any,
        cwd: str | None,
    ) -> Task:
        """Check everything before anything is written."""
        if not isinstance(name, str) or not name:
            raise InvalidValue("name", f"{values.shown(name)} is no name", hint='as in "reviewer"')
        child = self._runtime.session_id() if session_id is None else session_id
        for each in (child, id):
            if each is not None:
                check_id(each)
        mine = self.header
        place = mine.cwd if cwd is None and (mine.cwd or "").startswith("/") else cwd
        header = new_header(
            child,
            created_at=0,
            cwd=place,
            parent=Parent(mine.id, 0),
            origin="subagent",
            depth=mine.depth + 1,
            preset=preset,
            config=config,
        )
        if child == mine.id:
            raise InvalidValue("session_id", "is this very session", hint="leave it out")
        if self._backend.persistent:
            refuse_taken(self._backend, child)
            if session_id is not None:
                self._witness.announce(header)
        start = {"id": child if id is None else id, "session": child, "name": name}
        if task is not None:
            start["task"] = task
        fields = ("id", "cwd", "origin", "depth", "preset", "config")
        return Task(start, {field: getattr(header, field) for field in fields})

    def _spawn(self, planned: Task, started: Event) -> Self:
        return self.spawn(**planned.child, parent=Parent(self.header.id, started.seq))

    def end_subagent(
        self,
        id: str,
        status: str = "completed",
        *,
        result: Any = None,
        error: Failure | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """Say how a sub-agent ended: "completed", "failed" or "cancelled".

        `id` is what its start was given, or the id of its session. `error` is an exception, or
        `{"code": …, "message": …}`. The child's session is not touched.

        Raises:
            InvalidValue: another status, or there is no such sub-agent.
            As `append`.

        """
        data = ended(id, status, result, error)
        self._check_known("subagents", id)
        return self.append("subagent/end", data, agent=agent, turn=turn)


def ended(id: str, status: str, result: Any, error: Failure | None) -> dict[str, Any]:
    """Data of the event that ends a sub-agent.

    Raises:
        InvalidValue: a field is out of range.

    """
    check_id(id)
    if status not in ENDINGS:
        reason = f"{values.shown(status)} is no end of a sub-agent"
        raise InvalidValue("status", reason, hint=f"one of {', '.join(ENDINGS)}")
    data: dict[str, Any] = {"id": id, "status": status}
    if result is not None:
        data["result"] = result
    if error is not None:
        try:
            data["error"] = msgspec.to_builtins(msgspec.convert(failure_of(error), Error))
        except msgspec.ValidationError as fault:
            raise InvalidValue("error", str(fault), hint="{code, message}") from fault
    return data


def unborn(planned: Task, error: PerdureError) -> tuple[str, dict[str, Any]]:
    """The end of a sub-agent that has no session."""
    return "subagent/end", ended(planned.start["id"], "failed", None, error)
