"""deepseek-harness: `session.jsonl` or `session.jsonl.zstd`, a header line, then one event a line.

A row of packed chunks (`text-chunks` and its kin) is one line and stays one event; its time is that
of its first chunk, `time0`.
"""

from typing import Any

from perdure.importers.formats import LineFormat, Opening
from perdure.model.limits import TIME_MS_MAX

__all__ = ["DeepseekHarness"]

_SUFFIXES = (".jsonl", ".jsonl.zst", ".jsonl.zstd")
_ID_CHARS_MAX = 512
_PATH_CHARS_MAX = 4096


class DeepseekHarness(LineFormat):
    """The format as its own harness writes it, version 0 of the header."""

    name = "deepseek-harness"

    def matches(self, name: str) -> bool:
        """Session files by their usual name, and whatever else holds lines of JSON."""
        return name.endswith(_SUFFIXES)

    def owns(self, name: str) -> bool:
        """The name that the harness gives its session files."""
        return name.startswith("session.jsonl")

    def opening(self, value: dict[str, Any]) -> Opening | None:
        """The header: type `session`, told from that of other formats by `createdAt`."""
        if value.get("type") != "session" or "createdAt" not in value:
            return None
        created_at = _time(value["createdAt"])
        return Opening(
            id=_text(value.get("id"), _ID_CHARS_MAX),
            cwd=_text(value.get("cwd"), _PATH_CHARS_MAX),
            created_at=None if created_at is not None and created_at < 0 else created_at,
        )

    def record(self, value: dict[str, Any]) -> tuple[str | None, int | None]:
        """Type, and the time of the event, of the first packed chunk, or of the creation."""
        kind = value.get("type")
        names = ("time", "time0", "createdAt") if kind == "session" else ("time", "time0")
        times = (_time(value.get(name)) for name in names)
        time = next((time for time in times if time is not None), None)
        return kind if isinstance(kind, str) else None, time


def _time(value: object) -> int | None:
    """An integer in the range of times; True is no integer here."""
    inside = type(value) is int and -TIME_MS_MAX <= value <= TIME_MS_MAX
    return value if inside and isinstance(value, int) else None


def _text(value: object, chars_max: int) -> str | None:
    """A string of a sane length; ids may also be numbers."""
    if type(value) is int:
        value = str(value)
    return value if isinstance(value, str) and 1 <= len(value) <= chars_max else None
