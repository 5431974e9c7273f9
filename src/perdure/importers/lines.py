"""Lines of a source: split on newlines alone, numbered, with their place, in bounded memory.

Other characters that some tools take for line ends (U+2028, U+0085, form feed, a bare carriage
return) occur inside JSON strings, so they end nothing here.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.model.limits import RECORD_BYTES_MAX

__all__ = ["LINE_BYTES_MAX", "Gap", "Line", "split"]

LINE_BYTES_MAX = RECORD_BYTES_MAX
"""Longer lines fit in no record; their text is not even held in memory."""


class Gap(NamedTuple):
    """A place where text is missing, and why."""

    reason: str


class Line(NamedTuple):
    """One line of a source.

    Attributes:
        number: from 1.
        offset: byte of the text at which it begins.
        size: its length in bytes, newline included.
        raw: its bytes, newline included where there is one; None if it is too long.
        gap: why text is missing in place of a line, or None. Then `raw` is None and `size` is the
            length of a fragment in front of the gap, which belongs to no line that is known.
        whole: whether it ends with a newline.

    """

    number: int
    offset: int
    size: int
    raw: bytes | None
    gap: str | None = None
    whole: bool = True


class _Collector:
    """The line that is not ended yet; beyond the limit it only counts."""

    def __init__(self, limit: int, number: int, offset: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self.number, self.offset, self.size = number, offset, 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        if self.size <= self._limit:
            self._parts.append(part)
        else:
            self._parts.clear()

    def end(self, *, whole: bool = True) -> Line:
        raw = b"".join(self._parts) if self.size <= self._limit else None
        line = Line(self.number, self.offset, self.size, raw, whole=whole)
        self._parts.clear()
        self.number, self.offset, self.size = self.number + 1, self.offset + self.size, 0
        return line

    def gap(self, reason: str) -> Line:
        line = Line(self.number, self.offset, self.size, None, reason)
        self._parts.clear()
        # The fragment is no line, but the text has it.
        self.offset, self.size = self.offset + self.size, 0
        return line


def split(
    pieces: Iterable[bytes | Gap],
    limit: int = LINE_BYTES_MAX,
    *,
    number: int = 1,
    offset: int = 0,
) -> Iterator[Line]:
    """Lines and gaps, in order; the last line of a text may lack its newline.

    The first one has this number, and begins at this byte of the text.
    A fragment in front of a gap is not given out as a line: what would have followed is unknown.
    """
    line = _Collector(limit, number, offset)
    for piece in pieces:
        if isinstance(piece, Gap):
            yield line.gap(piece.reason)
            continue
        start = 0
        while (end := piece.find(b"\n", start) + 1) > 0:
            line.add(piece[start:end])
            yield line.end()
            start = end
        if start < len(piece):
            line.add(piece[start:])
    if line.size:
        yield line.end(whole=False)
