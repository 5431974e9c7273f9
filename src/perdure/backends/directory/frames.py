"""The compressed encoding: `log.jsonl.zst`, one checksummed Zstandard frame for each commit.

Frame 0 holds the header line alone. Each frame is followed by a trailer, a skippable frame (RFC
8878, section 3.1.2) that says which events stand before it and how long their frame is: the end of
a log is found from the end of the file, a sequence number by halving, and reading finds its place
again behind damage. `zstdcat` steps over trailers and prints plain lines. Compaction makes one
frame of many commits.
"""

import sys
from collections.abc import Iterator, Sequence

from perdure.backends.directory import merging
from perdure.backends.directory.framing import (
    FRAME_MAGIC,
    PLAIN_MAX,
    TRAILER_BYTES,
    Trailer,
    Window,
    compress,
    decompress,
    find_trailer,
    frame_length,
    lost_trailer,
    parse_trailer,
)
from perdure.durable.appending import ReadFile
from perdure.model.record import Position, Record
from perdure.recovery.walk import Piece

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["TRAILER_BYTES", "ZstdLayout"]

_NEAR = 16 * 1024
_SEARCHED = 1024 * 1024
_CANDIDATES_MAX = 16
"""How far, and at how many places, a frame without a trailer is looked for behind damage."""

_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    # Off by default; without it most flipped bits pass unseen.
    zstd.CompressionParameter.checksum_flag: 1,
}


class ZstdLayout:
    """How a log is laid out in `log.jsonl.zst`."""

    name = "zst"
    file_name = "log.jsonl.zst"
    compactable = True

    @staticmethod
    def header(line: bytes) -> bytes:
        """Bytes of the header on disk."""
        # A header is no event: its trailer counts from 0 to -1.
        return compress(line, 0, Position(-1, "0" * 64), _OPTIONS)

    @staticmethod
    def commit(records: Sequence[Record]) -> bytes:
        """Bytes of one commit on disk: one frame, or several of about 1 MiB."""
        parts: list[bytes] = []
        start, size = 0, 0
        for index, record in enumerate(records):
            if size and size + len(record.line) > PLAIN_MAX:
                parts.append(_frame_of(records[start:index]))
                start, size = index, 0
            size += len(record.line)
        parts.append(_frame_of(records[start:]))
        return b"".join(parts)

    @staticmethod
    def read_header(file: ReadFile) -> tuple[bytes, int]:
        """The header line (whatever stands in its place) and where the records begin."""
        piece = next(ZstdLayout.pieces(file, 0), None)
        if piece is None:
            return b"", 0
        if piece.flaw is not None or len(piece.lines) != 1:
            return b"", piece.end if piece.flaw is not None else piece.start
        return piece.lines[0], piece.end

    @staticmethod
    def pieces(file: ReadFile, begin: int) -> Iterator[Piece]:
        """Frame by frame; what is no frame becomes a flaw up to the next place that is sure."""
        window, at = Window(file, begin), begin
        sure = _SurePlaces(window)
        while head := window.peek(at, TRAILER_BYTES):
            if parse_trailer(head, at) is not None:
                at += TRAILER_BYTES
                continue
            length = frame_length(window, at)
            lines = decompress(window.peek(at, length)) if length else None
            if lines is None:
                end = sure.behind(at)
                if end <= at:
                    # Nothing is there any more: a writer has cut the file off meanwhile.
                    return
                yield Piece(at, end, (), flaw="incomplete or damaged frame")
                at = end
                continue
            end = at + length
            # A damaged one is noise: its length is in doubt, and with it where the next begins.
            if parse_trailer(window.peek(end, TRAILER_BYTES), end) is not None:
                end += TRAILER_BYTES
            yield Piece(at, end, lines, framed=True)
            at = end

    @staticmethod
    def seek(file: ReadFile, begin: int, seq: int) -> int:
        """Start of a frame that holds `seq` or an earlier number; `begin` if in doubt."""
        low, size = begin, file.size()
        high = size
        while high - low > _NEAR:
            middle = (low + high) // 2
            found = find_trailer(file, middle, high)
            if found is not None and found.last < seq and found.end < high:
                behind = find_trailer(file, found.end, size)
                if behind is None or behind.first > seq:
                    # Between the two, in what has lost its trailer, or nowhere.
                    low = max(low, found.start)
                    break
                low = behind.start
            elif found is None or found.start <= low:
                # No frame begins in this half that would bring us nearer.
                high = middle
            elif found.first <= seq:
                low = found.start
            else:
                high = min(middle, found.start)
        return _stepped(file, low, size, seq)

    @staticmethod
    def finish(file: ReadFile, start: int, end: int) -> bytes:
        """What the last verified piece (from `start` to `end`) lacks to be whole."""
        behind = file.read(end - TRAILER_BYTES, TRAILER_BYTES)
        if start >= end or parse_trailer(behind, end - TRAILER_BYTES) is not None:
            return b""
        return lost_trailer(file.read(start, end - start))

    @staticmethod
    def worth_compacting(file: ReadFile, end: int) -> bool:
        """Whether small frames together exceed 1 MiB and half of the log, which ends at `end`."""
        return merging.worth_compacting(file, end)

    @staticmethod
    def compacted(file: ReadFile, end: int) -> Iterator[bytes]:
        """The log up to byte `end`, which was verified, small frames made into larger ones.

        Raises:
            CannotCompact: while it is iterated, if the log holds anything but sound frames.

        """
        return merging.compacted(file, end)


def _stepped(file: ReadFile, place: int, size: int, seq: int) -> int:
    """From the start of a frame to that of the one with `seq`; none of them is read."""
    here = find_trailer(file, place, size)
    if here is None or (here.start != place and here.first > seq):
        return place
    while here.last < seq:
        behind = find_trailer(file, here.end, size)
        if behind is None or behind.first > seq:
            break
        here = behind
    return here.start


def _frame_of(records: Sequence[Record]) -> bytes:
    plain = b"".join([record.line for record in records])
    return compress(plain, records[0].first, records[-1].position, _OPTIONS)


class _SurePlaces:
    """Where reading can go on behind damage. What was found once is not searched for again."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._file = window.file
        self._searched = -1
        self._found: Trailer | None = None

    def behind(self, start: int) -> int:
        """The nearest sure place behind damage that begins at `start`."""
        # A writer may have cut the file off meanwhile.
        end = max(self._by_trailer(start), start)
        # A frame before that place may have lost its trailer; the search for it is bounded.
        for size in (_NEAR, _SEARCHED):
            left = _CANDIDATES_MAX
            region = self._file.read(start + 1, max(0, min(end - start - 1, size)))
            at = region.find(FRAME_MAGIC)
            while at >= 0 and left:
                left -= 1
                place = start + 1 + at
                length = frame_length(self._window, place)
                if length and at + length <= len(region) and decompress(region[at : at + length]):
                    return place
                at = region.find(FRAME_MAGIC, at + 1)
        return end

    def _by_trailer(self, start: int) -> int:
        """Where a trailer says that a frame begins or ends."""
        found = self._trailer(start)
        while found is not None:
            if found.start > start:
                return found.start
            if found.start == start:
                return found.end
            # The trailer of a frame that began before the damage: the next one knows better.
            found = self._trailer(found.end)
        return self._file.size()

    def _trailer(self, start: int) -> Trailer | None:
        known = self._found
        if not 0 <= self._searched <= start or (known is not None and known.at < start):
            self._searched = start
            self._found = find_trailer(self._file, start, self._file.size())
        return self._found
