"""A whole session as one JSON object over many lines, as the first versions of Codex wrote it.

    {
      "session": {"id": …, "timestamp": …},      (over several lines)
      "items": [
        {"type": "message", …},                  (each over several lines)
      ]
    }

It is read as it comes, item by item, so that each has the number of its first line, and no more
than one is held. It is told from a log by its first line, which is a brace alone.
"""

import re
from enum import Enum
from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Event

__all__ = ["Document", "Part", "Piece"]

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MEMBER = re.compile(r'"([^"\\]*)"\s*:\s*')
_BOM = "\ufeff"
_PIECE_CHARS_MAX = 64 * 1024 * 1024
"""A longer item is not read: a session is never a reason to run out of memory."""


class Part(Enum):
    """What lines of the document are: what only holds the rest, and what nobody knows, included."""

    FRAME = "frame"
    SESSION = "session"
    ITEM = "item"
    OTHER = "other"


class Piece(NamedTuple):
    """Lines of the document that belong together.

    Attributes:
        first: the first of them.
        lines: how many there are.
        part: what they are.
        value: the object that they are; empty if they are none, or one that cannot be read.

    """

    first: Event
    lines: int
    part: Part
    value: dict[str, Any]


class Document:
    """Follows the lines of a file, as long as they can be of such a document."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._reads: bool | None = None
        self._depth = 0
        self._items = False
        self._part = Part.OTHER
        self._first: Event | None = None
        self._lines = 0
        self._texts: list[str] = []
        self._chars = 0

    def take(self, event: Event) -> list[Piece] | None:
        """What is whole with the next line; None: that line is not of such a document."""
        text = event.data
        text = text.removeprefix(_BOM).strip("\0 \t\r\n") if isinstance(text, str) else ""
        if self._reads is None and text:
            self._reads = text == "{"
        if not self._reads:
            return None
        if self._depth and text.startswith('{"') and _object(text) is not None:
            # Here each member would stand in a line of its own: it is a log with a damaged line.
            self._reads = False
            return None
        return self._taken(event, text)

    def rest(self) -> list[Piece]:
        """Lines that were taken, and of which nothing came."""
        first, lines = self._first, self._lines
        self._first, self._texts, self._lines, self._chars = None, [], 0, 0
        return [] if first is None else [Piece(first, lines, Part.OTHER, {})]

    def _taken(self, event: Event, text: str) -> list[Piece]:
        base = 2 if self._items else 1
        before, self._depth = self._depth, self._depth + _nesting(text)
        if self._first is None:
            if before < base or self._depth < base:
                # It opens or closes the document, or its items.
                self._items = self._items and self._depth >= base
                self._reads = self._depth > 0
                return [Piece(event, 1, Part.FRAME, {})]
            name, text = ("", text) if self._items else _member(text)
            if name == "items" and text == "[":
                self._items = True
                return [Piece(event, 1, Part.FRAME, {})]
            self._part = Part.SESSION if name == "session" else Part.OTHER
            self._part = Part.ITEM if self._items else self._part
            self._first = event
        self._lines += 1
        self._chars += len(text)
        if self._chars <= _PIECE_CHARS_MAX:
            self._texts.append(text)
        if self._depth > base:
            return []
        if self._depth < base:
            self._reads = False
            return self.rest()
        # What was cut for its length is no JSON.
        value = _object("\n".join(self._texts).removesuffix(","))
        if value is None:
            return self.rest()
        return [each._replace(part=self._part, value=value) for each in self.rest()]


def _nesting(text: str) -> int:
    """How much deeper the next line stands."""
    bare = _STRING.sub("", text)
    return sum(map(bare.count, "{[")) - sum(map(bare.count, "}]"))


def _member(text: str) -> tuple[str, str]:
    """Name and value of a member, as far as they stand in this line."""
    found = _MEMBER.match(text)
    return ("", text) if found is None else (found[1], text[found.end() :])


def _object(text: str) -> dict[str, Any] | None:
    try:
        plain = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        value = values.decode(plain.encode())
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
