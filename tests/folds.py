"""What the tests of folds share: a view of their own, a life of a session, rows to compare."""

import random
from collections.abc import Iterator
from typing import Any

import perdure
from perdure.model.event import Event
from perdure.model.vocabulary import PAYLOADS
from perdure.testing.agents import Conversation
from perdure.views.fold import Fold
from perdure.views.view import History, Rows, View

__all__ = ["Jumble", "from_the_start", "life", "rows_of", "turn"]


class Jumble(View):
    """Rows that come, go, change their places and depend on what was long ago."""

    name = "jumble"
    version = 1
    types = frozenset({"assistant/delta", "user/message", "note/aside", "turn/end", "tool/call"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:
        """Turn the rows about."""
        rows.put("count", rows.get("count", 0) + 1)
        if event.type == "assistant/delta":
            rows.put(f"d{event.seq % 7}", event.data)
        elif event.type == "tool/call":
            # A row that is made anew stands behind the others.
            rows.remove(f"d{event.seq % 5}")
            rows.put(f"d{event.seq % 5}", [event.seq, event.time])
        elif event.type == "note/aside" and event.seq % 11 == 0:
            kept = rows.get("count")
            rows.clear()
            rows.put("count", kept)
        elif event.type == "turn/end" and event.seq % 3 == 0:
            rows.put("past", sum(1 for _ in history()))
        else:
            rows.put(str(event.seq), {"text": event.turn, "big": 2**70, "half": "\ud800"})


def life(rng: random.Random, name: str) -> Iterator[list[dict[str, Any]]]:
    """Commits of a session without end: turns, compactions, ways back, state, what nobody knows."""
    talk = Conversation(rng, name)
    turns: list[str | None] = []
    seq = 0
    while True:
        batch = talk.deltas() if rng.random() < 0.2 else [talk.next()]
        last = batch[-1]
        if last["type"] == "turn/start":
            turns.append(last["turn"])
        if rng.random() < 0.05:
            summary = [{"type": "text", "text": "so far"}]
            data = {"summary": summary, "first_kept": max(0, seq - rng.randrange(40))}
            batch.append({"type": "context/compacted", "data": data, "agent": "main"})
        if rng.random() < 0.03 and turns:
            to = rng.choice([*turns, None])
            batch.append({"type": "context/rewound", "data": {"to": to}, "agent": "main"})
        if rng.random() < 0.1:
            value = {"key": f"k{rng.randrange(4)}", "value": seq, "scope": "session"}
            batch.append({"type": "state/set", "data": value})
        if rng.random() < 0.1:
            batch.append({"type": f"odd/{rng.randrange(3)}", "data": None})
        seq += len(batch)
        yield batch


def turn(number: int) -> list[dict[str, Any]]:
    """A short turn."""
    name = f"t{number}"
    said = [{"type": "text", "text": f"turn {number}"}]
    return [
        {"type": "turn/start", "data": {}, "turn": name},
        {"type": "user/message", "data": {"content": said}, "turn": name},
        {"type": "step/start", "data": {"step": 1}, "turn": name},
        {"type": "assistant/message", "data": {"content": said}, "turn": name},
        {"type": "step/end", "data": {"step": 1}, "turn": name},
        {"type": "turn/end", "data": {"reason": "completed"}, "turn": name},
    ]


def rows_of(fold: Fold) -> dict[str, Any]:
    """Everything that a fold says, rows in their order."""
    rows = {name: [*each.all.items()] for name, each in fold.rows.items()}
    return {**rows, "position": fold.position, "skipped": fold.skipped}


def from_the_start(store: perdure.Store, id: str) -> dict[str, Any]:
    """What a fold of the events, one by one, says: no checkpoint and no record is looked at."""
    events = [*store.read_from(id)]
    header, position = store.inspect(id).header, store.inspect(id).position
    assert header is not None
    assert position is not None
    views = store._folds.views
    fold = Fold(views, header, lambda seq: iter(events[:seq]))
    looked_at = {*PAYLOADS}.union(*(view.types for view in views))
    for event in events:
        fold.event(event)
        if event.type not in looked_at:
            fold.skipped[event.type] += 1
    fold.position = position
    return rows_of(fold)
