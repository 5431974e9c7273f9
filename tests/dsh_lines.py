"""Lines of deepseek-harness for the tests of its lens, and what the lens says of them in short."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perdure.lenses.deepseek_harness import DeepseekHarness
from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import fitting
from perdure.testing.providers import VALIDATORS
from perdure.views.providers import FORMATS
from perdure.views.usage import Totals, usage
from tests import lens_lines
from tests.lens_lines import Record, Row, cut, transcript, view

DATA = Path(__file__).parent / "data"
SAMPLES = sorted([*DATA.glob("dsh/*.jsonl"), *DATA.glob("deepseek-harness/**/*.jsonl")])
FLASH = "deepseek-v4-flash"


def stored(lines: Iterable[str]) -> list[Event]:
    """The events that an import makes of lines."""
    events = []
    for seq, line in enumerate(lines):
        raw = values.encode(line)
        events.append(
            Event(seq, "deepseek-harness/record", 1000 + seq, None, None, None, False, raw)
        )
    return events


def fed(events: list[Event]) -> tuple[list[Event], DeepseekHarness]:
    return lens_lines.fed(DeepseekHarness, events)


def sample(path: str) -> tuple[list[Event], DeepseekHarness]:
    return fed(stored((DATA / path).read_bytes().decode().split("\n")[:-1]))


def said_of(*records: Record) -> list[Event]:
    return fed(stored(json.dumps(record) for record in records))[0]


def told(*records: Record) -> list[Row]:
    """What records say, in short."""
    return rows(said_of(*records))


def block(said: Record) -> Any:
    if said["type"] == "tool-call":
        return (said["id"], said["name"], said["arguments"])
    return cut(said["text"]) if said["type"] == "text" else ("thinking", cut(said["text"]))


def rows(said: Iterable[Event]) -> list[Row]:
    """Each event in short: number, what it is, turn, and all that it says but ids of answers."""
    return [(event.seq, *row(event)) for event in said]


def row(event: Event) -> Row:
    data, turn = event.data, event.turn
    content = [block(each) for each in data.get("content", data.get("summary", ()))]
    match event.type:
        case "turn/start" | "step/start" | "step/end" | "request/header":
            return (event.type, turn, *(data[m] for m in ("step", "reason") if m in data))
        case "turn/end":
            return ("turn/end", turn, data["reason"], *map(cut, data.get("error", {}).values()))
        case "user/message":
            return ("user", turn, content, *([data["source"]] if "source" in data else []))
        case "assistant/message":
            more = [data[m] for m in ("model", "usage", "interrupted") if m in data]
            return ("model", turn, content, *more)
        case "tool/call":
            return ("call", turn, data["id"], data["name"], data["arguments"])
        case "tool/result":
            return ("result", turn, data["id"], content, *map(cut, data.get("error", {}).values()))
        case "context/compacted":
            return ("compacted", turn, content, data.get("first_kept"))
    return (event.type, turn, data)


def spent(said: list[Event]) -> Totals:
    return usage(view(said).rows["usage"]).own


def tokens(sent: int, back: int, cached: int = -1, thought: int = -1) -> dict[str, int]:
    counts = {"input": sent, "output": back, "cached": cached, "reasoning": thought}
    return {name: number for name, number in counts.items() if number >= 0}


def line(kind: str, /, *, at: dict[str, Any] | None = None, **data: Any) -> Record:
    """An event of the source; `at` are members beside its data."""
    return {"type": kind, "data": data, **(at or {})}


def header(**members: Any) -> Record:
    return {"type": "session", "version": 0, "id": "s", "createdAt": 1, **members}


def text(said: str) -> list[Record]:
    return [{"type": "text", "text": said}]


def user(said: str, kind: str = "user", *, at: dict[str, Any] | None = None, **more: Any) -> Record:
    source = {"kind": kind, **more}
    return line("user/message", at=at, content=text(said), source=source, role="user", id="u")


def answer(*content: Record, turn: int = 1, step: int = 1, **more: Any) -> Record:
    source = {"kind": "model", "provider": "p", "model": "m"}
    message = {"role": "assistant", "content": list(content), "source": source}
    return line("assistant/message", turn=turn, step=step, message=message, **more)


def asks(id: Any, name: Any = "sh", arguments: Any = "{}") -> Record:
    return {"type": "tool-call", "id": id, "name": name, "arguments": arguments}


def result(id: Any, said: str, *, at: dict[str, Any] | None = None, **more: Any) -> Record:
    failed = more.pop("failed", False)
    part = {"type": "tool-result", "toolCallId": id, "content": text(said), "isError": failed}
    message = {"source": {"kind": "tool", "callId": id}, "content": [part], "role": "user"}
    return line("tool/result", at=at, turn=1, step=1, message=message, **more)


def chunk(kind: str, turn: int = 1, step: int = 1, **members: Any) -> Record:
    return line("assistant/chunk", turn=turn, step=step, chunk={"type": kind, **members})


def replacing(start: int, end: int) -> dict[str, Any]:
    return {"surfaceOp": {"op": "replace", "start": start, "end": end}}


def accepted(said: list[Event], *, strict: bool = True) -> None:
    """Events fit the vocabulary, in order, and their transcript every provider."""
    assert [each.seq for each in said] == sorted(each.seq for each in said)
    assert [each.type for each in said if fitting(each) is None] == []
    spoken = transcript(said)
    for name in FORMATS if strict and spoken else ("neutral",):
        assert VALIDATORS[name](FORMATS[name](spoken)) == [], name
