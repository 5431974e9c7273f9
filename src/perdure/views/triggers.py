"""View "triggers": what waits to go off."""

from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import TriggerFired, TriggerSet, fitting
from perdure.views.view import History, Rows, View

__all__ = ["Trigger", "Triggers", "triggers"]


class Trigger(NamedTuple):
    """A trigger that waits.

    Attributes:
        id: its id, unique in the session.
        kind: what makes it again: a name that the program knows.
        state: what it is made of: what was set, or what it said when it went off.
        agent: the agent that set it.
        seq: number of the event that set it.
        fired: how often it went off since.
        last_fired: when it went off last, in Unix milliseconds, or None.

    """

    id: str
    kind: str
    state: Any
    agent: str | None
    seq: int
    fired: int
    last_fired: int | None


class Triggers(View):
    """One row per trigger that waits."""

    name = "triggers"
    version = 1
    types = frozenset({"trigger/set", "trigger/cleared", "trigger/fired"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Set, clear, or note that it went off; one that is not set cannot go off."""
        found = fitting(event)
        if found is None:
            return
        if isinstance(found, TriggerSet):
            new = Trigger(found.id, found.kind, found.state, event.agent, event.seq, 0, None)
            rows.put(found.id, new._asdict())
        elif not isinstance(found, TriggerFired):
            rows.remove(found.id)
        elif found.id in rows:
            row = {**rows[found.id], "last_fired": event.time}
            row["fired"] += 1
            if "state" in event.data:
                row["state"] = found.state
            rows.put(found.id, row)


def triggers(rows: Rows) -> list[Trigger]:
    """The triggers that wait, in the order in which they were set."""
    found = [Trigger(**values.snapshot(row)) for row in rows.all.values()]
    return sorted(found, key=lambda trigger: trigger.seq)
