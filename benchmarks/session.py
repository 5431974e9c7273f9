"""The bench session: turns of 89 events, the same for the same turn number on every machine."""

import random
from typing import Any

EVENTS_PER_TURN = 89

_WORDS = [
    "the",
    "test",
    "fails",
    "because",
    "fixture",
    "returns",
    "None",
    "when",
    "session",
    "store",
    "path",
    "missing",
    "so",
    "we",
    "read",
    "file",
    "then",
    "check",
    "error",
    "table",
    "retry",
    "append",
    "commit",
    "fsync",
    "record",
    "hash",
    "chain",
    "import",
    "module",
    "class",
    "def",
    "value",
    "key",
    "index",
    "search",
    "result",
    "tool",
    "output",
    "line",
    "number",
    "value_error",
    "run",
    "pytest",
    "quiet",
]


def _words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(count))


def turn_events(number: int) -> list[dict[str, Any]]:
    """One turn: a question, two steps of streamed text with a tool call, and the answer."""
    rng = random.Random(number)
    turn, at = f"t{number}", 1_750_000_000_000 + number * 60_000
    events: list[dict[str, Any]] = []

    def add(kind: str, data: Any) -> None:
        nonlocal at
        at += rng.randrange(5, 40)
        events.append({"type": kind, "data": data, "turn": turn, "agent": "main", "time": at})

    def text(value: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": value}]

    add("turn/start", {"parent": f"t{number - 1}" if number else None})
    add("user/message", {"content": text(_words(rng, 25))})
    for step in (1, 2):
        add("step/start", {"step": step})
        add("request/header", {"header": {"model": "m-1", "temperature": 0.2, "tools": ["bash"]}})
        pieces = [f"{rng.choice(_WORDS)} " for _ in range(36)]
        for piece in pieces:
            add("assistant/delta", {"text": piece, "index": 0})
        call = {"id": f"c{number}.{step}", "name": "bash", "arguments": {"cmd": _words(rng, 6)}}
        content = [*text("".join(pieces)), {"type": "tool-call", **call}]
        add("assistant/message", {"content": content, "usage": {"input": 900, "output": 60}})
        add("tool/call", call)
        add("tool/result", {"id": call["id"], "content": text(_words(rng, 120))})
        add("step/end", {"step": step})
    add("usage", {"input": 1800, "output": 120})
    add("session/titled", {"title": _words(rng, 4)})
    add("turn/end", {"reason": "completed"})
    if len(events) != EVENTS_PER_TURN:
        raise RuntimeError(f"a turn of {len(events)} events")
    return events
