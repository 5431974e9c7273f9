"""Lines of Claude Code for the tests of its lens, and what the lens says of them in short."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perdure.lenses.claude_code import ClaudeCode
from perdure.model.event import Event
from perdure.views.usage import UsageTotals, usage
from tests import lens_lines
from tests.lens_lines import Record, Row, cut, view

FOLDER = Path(__file__).parent / "data/claude-code"


def stored(lines: Iterable[str]) -> list[Event]:
    return lens_lines.stored("claude-code", lines)


def fed(events: Iterable[Event]) -> tuple[list[Event], ClaudeCode]:
    return lens_lines.fed(ClaudeCode, events)


def sample(path: Path) -> tuple[list[Event], ClaudeCode]:
    return fed(stored(path.read_bytes().decode().removesuffix("\n").split("\n")))


def read(*records: Record) -> tuple[list[Row], ClaudeCode]:
    """What records say, in short, and the lens that read them."""
    said, lens = fed(stored(json.dumps(record) for record in records))
    return rows(said), lens


def told(*records: Record) -> list[Row]:
    return read(*records)[0]


def said_of(*records: Record) -> list[Event]:
    """The events that records say."""
    return fed(stored(json.dumps(record) for record in records))[0]


# --- in short -----------------------------------------------------------------------------------


def block(said: Record) -> Any:
    """A block in short: a text as it is, else a tuple."""
    if said["type"] == "tool-call":
        whole = json.dumps(said["arguments"], ensure_ascii=False)
        return (said["id"], said["name"], cut(whole))
    return cut(said["text"]) if said["type"] == "text" else ("thinking", cut(said["text"]))


def rows(said: Iterable[Event]) -> list[Row]:
    """Each event in short: number, agent if it has one, what it is, turn, all that it says."""
    return [(event.seq, *((event.agent,) if event.agent else ()), *row(event)) for event in said]


def row(event: Event) -> Row:
    data, turn = event.data, event.turn
    content = [block(each) for each in data.get("content", data.get("summary", ()))]
    match event.type:
        case "turn/start":
            return ("turn", turn, *([data] if data else []))
        case "turn/end":
            return ("end", turn, data["reason"], *data.get("error", {}).values())
        case "user/message":
            return ("user", turn, content, *([data["source"]] if "source" in data else []))
        case "assistant/message":
            members = ("model", "response", "usage", "interrupted")
            return ("model", turn, content, {m: data[m] for m in members if m in data})
        case "tool/call":
            return ("call", turn, data["id"])
        case "tool/result":
            return ("result", turn, data["id"], content, *data.get("error", {}).values())
        case "context/compacted":
            return ("compacted", turn, content, {m: data[m] for m in data if m != "summary"})
        case "session/titled":
            return ("titled", data["title"])
    return (event.type, turn, data)


def spent(said: list[Event]) -> UsageTotals:
    """What the view of usage counts."""
    return usage(view(said).rows["usage"])


# --- records ------------------------------------------------------------------------------------


def record(kind: str, id: str, up: str | None, /, **members: Any) -> Record:
    base = {"type": kind, "uuid": id, "parentUuid": up, "isSidechain": False, "sessionId": "S"}
    return base | {"timestamp": "2026-02-12T20:00:00.000Z"} | members


def user(id: str, up: str | None, content: Any, /, **members: Any) -> Record:
    return record("user", id, up, message={"role": "user", "content": content}, **members)


def model(
    id: str,
    up: str | None,
    response: str | None,
    *content: Any,
    tokens: int | None = None,
    stop: str | None = None,
    **members: Any,
) -> Record:
    """One record of an answer; `content` are texts or blocks."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    said: Record = {"role": "assistant", "model": "claude-x", "content": blocks}
    if response is not None:
        said["id"] = response
    if tokens is not None:
        said["usage"] = {"input_tokens": 1, "output_tokens": tokens}
    if stop is not None:
        said["stop_reason"] = stop
    return record("assistant", id, up, message=said, **members)


def call(id: str | None, name: str = "Bash", **arguments: Any) -> Record:
    named = {} if id is None else {"id": id}
    return {"type": "tool_use", **named, "name": name, "input": arguments}


def output(id: str | None, content: Any, **members: Any) -> Record:
    named = {} if id is None else {"tool_use_id": id}
    return {"type": "tool_result", **named, "content": content, **members}
