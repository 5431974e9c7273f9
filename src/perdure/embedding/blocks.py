"""What of a text is embedded: pieces of bounded length that overlap.

A vector says what a text is about, and of a long one it says little of anything. So a passage that
keyword search knows as one is embedded in pieces; found by any of them, it is the passage that is
shown, at that piece.
"""

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["BLOCKS_MAX", "BLOCK_CHARS", "OVERLAP_CHARS", "VERSION", "Block", "blocks_of"]

VERSION = 1
"""Counts up whenever the same text would be cut otherwise."""

BLOCK_CHARS = 400
OVERLAP_CHARS = 80
"""What stands at the edge of a piece stands within the next one."""

BLOCKS_MAX = 128
"""Of one passage. What follows, some 40,000 characters on, is found by its words alone."""

_EDGE_CHARS = 60
"""So far back a place between two words is looked for."""


class Block(NamedTuple):
    """A piece of a text: its number, its first character, and the one after its last."""

    part: int
    start: int
    end: int


def blocks_of(text: str) -> Iterator[Block]:
    """The pieces of a text that say something; of a blank text there is none."""
    start = part = 0
    while part < BLOCKS_MAX and start < len(text):
        end = _end(text, start)
        if text[start:end].strip():
            yield Block(part, start, end)
            part += 1
        if end >= len(text):
            return
        start = max(start + 1, _between(text, end - OVERLAP_CHARS, end))


def _end(text: str, start: int) -> int:
    end = start + BLOCK_CHARS
    if end >= len(text):
        return len(text)
    for at in range(end, end - _EDGE_CHARS, -1):
        if text[at].isspace():
            return at
    return end


def _between(text: str, start: int, end: int) -> int:
    """The first beginning of a word from `start` on; `start` itself, if none is near."""
    for at in range(start, min(start + _EDGE_CHARS, end)):
        if text[at - 1].isspace():
            return at
    return start
