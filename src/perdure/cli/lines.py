"""Events as lines for people."""

from typing import Any

from perdure.cli import output
from perdure.model.event import Event

__all__ = ["event_line"]

_DATA_CHARS = 160


def event_line(event: Event) -> str:
    """One event on one line: number, time, type, names, and the beginning of its data."""
    names = [f"{label}={value}" for label, value in _names(event) if value is not None]
    data = "" if event.data is None else _compact(event.data)
    parts = [f"{event.seq:>6}", output.when(event.time), event.type, *names, data]
    return "  ".join(parts).rstrip()


def _names(event: Event) -> list[tuple[str, str | None]]:
    return [("agent", event.agent), ("turn", event.turn), ("key", event.key)]


def _compact(data: Any) -> str:
    if isinstance(data, str):
        return output.cut(data.rstrip("\n"), _DATA_CHARS)
    return output.cut(output.compact(data), _DATA_CHARS)
