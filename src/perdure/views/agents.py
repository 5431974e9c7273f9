"""View "agents": who takes part, how far each is, and what its model was asked with last."""

from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import (
    PAYLOADS,
    RequestHeader,
    StepStart,
    TurnEnd,
    TurnStart,
    fitting,
)
from perdure.views.view import History, Rows, View
from perdure.views.windows import key_of, parts_of

__all__ = ["Agent", "Agents", "agents"]

_PIECES = frozenset({"assistant/delta", "job/update"})
"""Many and small, and something follows that counts: they are not looked at."""

_COUNTED = frozenset({"turn/start", "turn/end", "step/start", "request/header"})


class Agent(NamedTuple):
    """An agent of a session.

    Attributes:
        name: its name; None is the agent of events that name none.
        first: number of its first event.
        last: number of its last event, pieces of streams and types of others aside.
        turns: how many turns it began, those on other branches too.
        steps: how many requests to its model it began.
        turn: id of the turn that it began last, or None.
        ended: how that turn ended (its reason), None: it did not.
        header: what its model was asked with last, or None.

    """

    name: str | None
    first: int
    last: int
    turns: int
    steps: int
    turn: str | None
    ended: str | None
    header: Any


class Agents(View):
    """Per agent a small row `["agent", name]`, and a row `["header", name]` of its last request.

    Events about the session as a whole (`session/…`, `content/…`) are nobody's.
    """

    name = "agents"
    version = 1
    types = frozenset(
        kind
        for kind in PAYLOADS
        if kind not in _PIECES and kind.partition("/")[0] not in ("session", "content")
    )

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Move the agent's end, and count what begins."""
        key = key_of("agent", event.agent)
        first, last, turns, steps, turn, ended = rows.get(key) or _NEW
        last = event.seq
        found = fitting(event) if event.type in _COUNTED else None
        if isinstance(found, TurnStart):
            turns, turn, ended = turns + 1, event.turn, None
        elif isinstance(found, TurnEnd) and turns and event.turn == turn:
            ended = found.reason
        elif isinstance(found, StepStart):
            steps += 1
        elif isinstance(found, RequestHeader):
            rows.put(key_of("header", event.agent), found.header)
        first = event.seq if first is None else first
        rows.put(key, [first, last, turns, steps, turn, ended])


_NEW = (None, None, 0, 0, None, None)


def agents(rows: Rows) -> list[Agent]:
    """The agents in the order of their first events."""
    out = []
    for key, row in rows.all.items():
        what, name = parts_of(key)
        if what == "agent":
            header = values.snapshot(rows.get(key_of("header", name)))
            out.append(Agent._make([name, *row, header]))
    return sorted(out, key=lambda agent: agent.first)
