"""View "effects": what was begun and must not happen twice, while nothing says how it ended."""

import re
from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import EffectIntent, EffectOutcome, fitting
from perdure.views.view import History, Rows, View

__all__ = ["Effect", "Effects", "effects"]

_FURTHER = re.compile(r"(.*) \(attempt ([1-9]\d{0,17})\)", re.DOTALL)


class Effect(NamedTuple):
    """An effect that was begun, and of which no outcome is known.

    Attributes:
        key: the key that it is asked for with.
        attempt: which attempt it is, from 1.
        about: what was said of it when it began, or None.
        agent: the agent that began it, or None.
        turn: the turn in which it was begun, or None.
        seq: number of the event that says that it begins.
        time: when it began, in Unix milliseconds.

    """

    key: str
    attempt: int
    about: Any
    agent: str | None
    turn: str | None
    seq: int
    time: int


class Effects(View):
    """One row per key whose last attempt has no outcome; a further one stands for those before."""

    name = "effects"
    version = 1
    types = frozenset({"effect/intent", "effect/outcome"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Begin an attempt, or end it."""
        found = fitting(event)
        if event.key is None or found is None:
            return
        key, attempt = _parts(event.key)
        last = rows.get(key, {"attempt": 0})["attempt"]
        if isinstance(found, EffectIntent) and attempt > last:
            rows.remove(key)
            facts = {"about": found.about, "agent": event.agent, "turn": event.turn}
            rows.put(key, {"attempt": attempt, **facts, "seq": event.seq, "time": event.time})
        elif isinstance(found, EffectOutcome) and attempt == last:
            rows.remove(key)


def effects(rows: Rows) -> list[Effect]:
    """The effects whose outcome nobody knows, in the order in which they were begun."""
    return [
        Effect(key, **{**row, "about": values.snapshot(row["about"])})
        for key, row in rows.all.items()
    ]


def _parts(key: str) -> tuple[str, int]:
    """The key that an effect is asked for with, and the number of the attempt."""
    found = _FURTHER.fullmatch(key)
    return (found[1], int(found[2])) if found is not None else (key, 1)
