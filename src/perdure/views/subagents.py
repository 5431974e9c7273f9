"""View "subagents": other agents at work for this session, in sessions of their own."""

from typing import Any, NamedTuple

import msgspec

from perdure.model.event import Event
from perdure.model.vocabulary import Error, SubagentEnd, SubagentStart, fitting
from perdure.views.endings import Endings
from perdure.views.view import History, Rows, View

__all__ = ["Subagent", "Subagents", "subagents"]


class Subagent(NamedTuple):
    """A sub-agent that is at work, or one of the last that ended.

    Attributes:
        id: its id, unique in the session.
        status: None while it is at work, then completed, failed or cancelled.
        session: id of the session in which it works, or None.
        name: its name, or None.
        task: what it was asked.
        agent: the agent that asked.
        turn: the turn in which it was begun, or None.
        seq: number of the event that began it.
        ended: number of the event that ended it, or None.
        result: what came of it.
        error: why it failed, or None.

    """

    id: str
    status: str | None
    session: str | None
    name: str | None
    task: Any
    agent: str | None
    turn: str | None
    seq: int
    ended: int | None
    result: Any
    error: Error | None


class Subagents(View):
    """An entry per sub-agent at work, and the last 100 that ended."""

    name = "subagents"
    version = 1
    types = frozenset({"subagent/start", "subagent/end"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Begin or end one."""
        found = fitting(event)
        entries = Endings(rows)
        if isinstance(found, SubagentStart):
            facts = {"session": found.session, "name": found.name, "task": found.task}
            entries.begin(event, found.id, facts)
        elif isinstance(found, SubagentEnd):
            facts = {
                "status": found.status,
                "result": found.result,
                "error": msgspec.to_builtins(found.error),
            }
            gone = entries.end(event, found.id, facts)
            if gone is not None:
                entries.forget_old(gone)


def subagents(rows: Rows) -> list[Subagent]:
    """The sub-agents in the order in which they began."""
    out = []
    for row in Endings(rows).all():
        error = row.get("error")
        out.append(
            Subagent(
                id=row["id"],
                status=row.get("status"),
                session=row.get("session"),
                name=row.get("name"),
                task=row.get("task"),
                agent=row["agent"],
                turn=row["turn"],
                seq=row["seq"],
                ended=row.get("ended"),
                result=row.get("result"),
                error=None if error is None else Error(**error),
            )
        )
    return out
