"""Lines of Codex for the tests of its lens, and what the lens says of them in short."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perdure.lenses.codex import Codex
from perdure.model.event import Event
from perdure.views.usage import Totals, usage
from tests import lens_lines
from tests.lens_lines import Record, cut, view

FOLDER = Path(__file__).parent / "data/codex"


def stored(lines: Iterable[str]) -> list[Event]:
    return lens_lines.stored("codex", lines)


def fed(events: list[Event]) -> tuple[list[Event], Codex]:
    return lens_lines.fed(Codex, events)


def sample(name: str) -> tuple[list[Event], Codex]:
    text = (FOLDER / f"{name}.jsonl").read_bytes().decode()
    return fed(stored(text.split("\n")[:-1]))


def read(*records: Record) -> tuple[list[tuple[Any, ...]], Codex]:
    """What records say, in short, and the lens that read them."""
    said, lens = fed(stored(json.dumps(record) for record in records))
    return rows(said), lens


def told(*records: Record) -> list[tuple[Any, ...]]:
    return read(*records)[0]


def block(said: Record) -> Any:
    """A block in short; of long arguments the text."""
    if said["type"] == "tool-call":
        arguments = said["arguments"]
        whole = json.dumps(arguments, ensure_ascii=False)
        return (said["id"], said["name"], arguments if len(whole) <= 120 else cut(whole))
    return cut(said["text"]) if said["type"] == "text" else ("thinking", cut(said["text"]))


def rows(said: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Each event in short: number, what it is, turn, and all that it says."""
    return [(event.seq, *row(event)) for event in said]


def row(event: Event) -> tuple[Any, ...]:
    data, turn = event.data, event.turn
    content = [block(each) for each in data.get("content", data.get("summary", ()))]
    match event.type:
        case "turn/start":
            return ("turn", turn)
        case "turn/end":
            return ("end", turn, data["reason"], *data.get("error", {}).values())
        case "user/message":
            return ("user", turn, content, *([data["source"]] if "source" in data else []))
        case "assistant/message":
            return ("model", turn, content, *(data[m] for m in ("model", "usage") if m in data))
        case "tool/call":
            return ("call", turn, data["id"])
        case "tool/result":
            return ("result", turn, data["id"], content, *data.get("error", {}).values())
        case "context/compacted":
            return ("compacted", content, *([data["before"]] if "before" in data else []))
    return (event.type, data)


def line(kind: str, payload: Any, at: str = "2026-08-03T10:00:00Z") -> Record:
    return {"timestamp": at, "type": kind, "payload": payload}


def item(kind: str = "message", /, **members: Any) -> Record:
    return line("response_item", {"type": kind, **members})


def event(kind: str, /, **members: Any) -> Record:
    return line("event_msg", {"type": kind, **members})


def user(*texts: str) -> Record:
    return item(role="user", content=[{"type": "input_text", "text": text} for text in texts])


def model(*texts: str) -> Record:
    content = [{"type": "output_text", "text": text} for text in texts]
    return item(role="assistant", content=content)


def typed(text: str, **members: Any) -> Record:
    return event("user_message", message=text, **members)


def tokens(total: int, last: int | None = None, **more: int) -> Record:
    info: Record = {"total_token_usage": {"input_tokens": total, "output_tokens": 1}}
    if last is not None:
        info["last_token_usage"] = {"input_tokens": last, "output_tokens": 1, **more}
    return event("token_count", info=info)


def call(id: str, name: str = "sh", **members: Any) -> Record:
    return item("function_call", call_id=id, name=name, **members)


def output(id: str, said: Any) -> Record:
    return item("function_call_output", call_id=id, output=said)


def said_of(*records: Record) -> list[Event]:
    """The events that records say."""
    return fed(stored(json.dumps(record) for record in records))[0]


def spent(said: list[Event]) -> Totals:
    """What the view of usage counts."""
    return usage(view(said).rows["usage"]).own
