"""The one way to the terminal: whatever comes from data is shown, never obeyed.

Ids, types, folders and texts come from files that anybody may have written. Characters that a
terminal acts on, that turn the direction of text or that break a line are shown as escapes.
"""

import codecs
import errno
import json
import os
import re
import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from perdure.errors import PerdureError
from perdure.model import values
from perdure.model.showing import is_hostile, safe

__all__ = [
    "Lines",
    "compact",
    "content",
    "counted",
    "cut",
    "document",
    "failure",
    "flush",
    "json_line",
    "line",
    "place",
    "record_line",
    "safe",
    "span",
    "table",
    "timestamp",
    "warning",
    "when",
]


class Lines(str):
    """A hint of several lines, in which all that comes from data was made `safe` already."""

    __slots__ = ()


_SUSPECT = re.compile(r"[^\x20-\x7e]")
_OUTSIDE_ASCII = re.compile(r"[^\x00-\x7e]")


def _json_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _json(value: Any, *, indent: int | None = None) -> str:
    """JSON in ASCII; lone surrogates become U+FFFD, since most readers refuse them."""
    text = values.text(json.dumps(value, ensure_ascii=False, indent=indent))
    # Outside strings JSON is ASCII, so every other character may be written as an escape.
    return _OUTSIDE_ASCII.sub(_json_escape, text)


def line(text: str = "") -> None:
    """Print one line of text for people."""
    sys.stdout.write(safe(text) + "\n")


def table(rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> None:
    """Print rows of text in columns, those of `right` aligned there; the last one is not padded."""
    shown = [[safe(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    for cells in shown:
        padded = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        line("  ".join([*padded[:-1], cells[-1]]).rstrip())


def compact(value: Any) -> str:
    """A value as JSON on one line, for people."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def flush() -> None:
    """Show at once what was printed."""
    sys.stdout.flush()


def json_line(value: Any) -> None:
    """Print one value as a line of JSON."""
    sys.stdout.write(_json(value) + "\n")


def document(value: Any, *, readable: bool = False) -> None:
    """Print the JSON document of a command.

    In ASCII, which every program reads; `readable`: for people, with the characters that the output
    can carry, but for those that a terminal would obey. It is the same JSON either way.
    """
    if readable and _is_unicode(sys.stdout.encoding):
        text = values.text(json.dumps(value, ensure_ascii=False, indent=2))
        sys.stdout.write(_OUTSIDE_ASCII.sub(_json_escape_hostile, text) + "\n")
    else:
        sys.stdout.write(_json(value, indent=2) + "\n")


def _is_unicode(encoding: str | None) -> bool:
    try:
        return codecs.lookup(encoding or "ascii").name.startswith("utf")
    except LookupError:
        return False


def record_line(raw: bytes) -> None:
    """Print a stored line: its exact bytes, except where a terminal would obey them."""
    if sys.stdout.isatty():
        text = raw.removesuffix(b"\n").decode("utf-8", "replace")
        sys.stdout.write(_SUSPECT.sub(_json_escape_hostile, text) + "\n")
    else:
        content(raw)


def content(data: bytes) -> None:
    """Print bytes as they are; all of them, also where Python does not buffer its output."""
    rest = memoryview(data)
    while rest:
        written = sys.stdout.buffer.write(rest)
        if written is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        rest = rest[written:]


def _json_escape_hostile(found: re.Match[str]) -> str:
    return _json_escape(found) if is_hostile(found[0]) else found[0]


def warning(text: str) -> None:
    """Tell people on the error stream what a command had to leave out."""
    sys.stdout.flush()
    sys.stderr.write(safe(text) + "\n")


def failure(error: PerdureError, exit_code: int, *, as_json: bool, code: str | None = None) -> None:
    """Print an error: for people its message and hint, for programs one object with its facts.

    The object is {"error": {code, message, hint, retryable, exit, facts}}; `code` replaces the
    error's own.
    """
    sys.stdout.flush()
    if as_json:
        known = ("message", "hint", "args")
        facts = {name: _fact(fact) for name, fact in vars(error).items() if name not in known}
        body = {
            "code": code or error.code,
            "message": error.message,
            "hint": error.hint,
            "retryable": error.retryable,
            "exit": int(exit_code),
            "facts": facts,
        }
        sys.stderr.write(_json({"error": body}) + "\n")
        return
    sys.stderr.write(f"error: {safe(error.message)}\n")
    if error.hint:
        parts = error.hint.split("\n") if isinstance(error.hint, Lines) else [error.hint]
        sys.stderr.write("hint: " + "\n      ".join(map(safe, parts)) + "\n")


def _fact(value: Any) -> Any:
    plain = value is None or isinstance(value, str | int | float)
    return value if plain else repr(value)


def timestamp(milliseconds: int) -> str:
    """A time for people, in UTC; the number itself where no calendar has it."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def when(milliseconds: int | None) -> str:
    """A time for people, in UTC; - where it is not known, which some formats write as 0."""
    return timestamp(milliseconds) if milliseconds else "-"


def counted(number: int, thing: str) -> str:
    """A number of things: 1 blob, 2 blobs."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def span(milliseconds: int) -> str:
    """A length of time for people, in the largest unit of which it has two: 30d, 47h, 90s."""
    seconds = max(milliseconds, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def cut(text: str, characters: int) -> str:
    """`text`, or its beginning with an ellipsis if it is longer."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def place(problem: dict[str, Any]) -> str:
    """Where a problem is: its kind, the first event it touches, and its bytes."""
    event = "" if problem["record"] is None else f" at event {problem['record']}"
    return f"{problem['kind']}{event}, bytes {problem['start']} to {problem['end']}"
