"""The raw encoding: `log.jsonl`, plain lines.

Header line, then record lines, each ended by a newline. Appending writes lines; a sequence number
is found by halving the file, since the numbers grow with the offset.
"""

import re
from collections.abc import Iterator, Sequence

from perdure.durable.appending import ReadFile
from perdure.model.limits import RECORD_BYTES_MAX
from perdure.model.record import Record
from perdure.recovery.walk import Piece

__all__ = ["RawLayout"]

_CHUNK = 256 * 1024
_PROBE = 4 * 1024
_NEAR = 64 * 1024
"""Closer than this, reading on is cheaper than halving."""

_NEXT = re.compile(rb'\n\{"seq":(\d{1,19}),')


class RawLayout:
    """How a log is laid out in `log.jsonl`."""

    name = "raw"
    file_name = "log.jsonl"
    compactable = False

    @staticmethod
    def header(line: bytes) -> bytes:
        """Bytes of the header on disk."""
        return line

    @staticmethod
    def commit(records: Sequence[Record]) -> bytes:
        """Bytes of one commit on disk."""
        return b"".join([record.line for record in records])

    @staticmethod
    def read_header(file: ReadFile) -> tuple[bytes, int]:
        """The header line (whatever stands in its place) and where the records begin."""
        size = _PROBE
        while True:
            start = file.read(0, size)
            end = start.find(b"\n") + 1
            if end:
                return start[:end], end
            if len(start) < size or size > RECORD_BYTES_MAX:
                return start, len(start)
            size *= 8

    @staticmethod
    def pieces(file: ReadFile, begin: int) -> Iterator[Piece]:
        """Whole lines in chunks; the last piece may hold a line without its newline."""
        start, rest = begin, b""
        while chunk := file.read(start + len(rest), _CHUNK):
            cut = chunk.rfind(b"\n") + 1
            if not cut:
                rest += chunk
                if len(rest) > RECORD_BYTES_MAX:
                    end = _next_newline(file, start + len(rest))
                    yield Piece(start, end, (), flaw="no newline for longer than any record")
                    start, rest = end, b""
                continue
            whole = rest + chunk[:cut]
            rest = chunk[cut:]
            yield Piece(start, start + len(whole), [b"%s\n" % x for x in whole[:-1].split(b"\n")])
            start += len(whole)
        if rest:
            yield Piece(start, start + len(rest), (rest,))

    @staticmethod
    def seek(file: ReadFile, begin: int, seq: int) -> int:
        """Start of a line that holds `seq` or an earlier number; `begin` if in doubt."""
        low, high = begin, file.size()
        while high - low > _NEAR:
            middle = (low + high) // 2
            found = _line_after(file, middle, high)
            if found is None:
                high = middle
                continue
            start, first = found
            if first <= seq:
                low = start
            else:
                high = middle
        return low

    @staticmethod
    def finish(file: ReadFile, start: int, end: int) -> bytes:
        """What the last verified piece (from `start` to `end`) lacks to be whole."""
        return b"" if start >= end or file.read(end - 1, 1) == b"\n" else b"\n"

    @staticmethod
    def worth_compacting(file: ReadFile, end: int) -> bool:  # noqa: ARG004 - as in frames
        """Never: plain lines have nothing to be merged."""
        return False

    @staticmethod
    def compacted(file: ReadFile, end: int) -> Iterator[bytes]:
        """The log up to byte `end` as it is."""
        return file.chunks(0, end)


def _next_newline(file: ReadFile, start: int) -> int:
    while chunk := file.read(start, _CHUNK):
        found = chunk.find(b"\n") + 1
        if found:
            return start + found
        start += len(chunk)
    return start


def _line_after(file: ReadFile, offset: int, end: int) -> tuple[int, int] | None:
    """Start and sequence number of the first record line that begins behind `offset`."""
    while offset < end:
        chunk = file.read(offset, _NEAR)
        found = _NEXT.search(chunk)
        if found:
            start = offset + found.start() + 1
            return (start, int(found[1])) if start < end else None
        if len(chunk) < _NEAR:
            break
        # What begins in the last bytes of one chunk is found whole in the next.
        offset += len(chunk) - 32
    return None
