"""The compressed encoding: `log.jsonl.zst`, one checksummed Zstandard frame for each commit.

Frame 0 holds the header line alone. Each frame is followed by a trailer, a skippable frame (RFC
8878, section 3.1.2) that says which events stand before it and how long their frame is: the end of
a log is found from the end of the file, a sequence number by halving, and reading finds its place
again behind damage. `zstdcat` steps over trailers and prints plain lines.
"""

import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.durable.appending import ReadFile
from perdure.model.limits import RECORD_BYTES_MAX
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.recovery.walk import Piece

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["ZstdLayout"]

_FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_TAG = b"PRDT"
_BODY = struct.Struct("<4sqqQ8s")
_TRAILER_HEAD = struct.pack("<II", 0x184D2A5D, _BODY.size + 4) + _TAG
TRAILER_BYTES = 8 + _BODY.size + 4

_PLAIN_MAX = 1024 * 1024
"""A commit is split into frames of about this size, so that reading one is bounded."""

_FRAME_PLAIN_LIMIT = RECORD_BYTES_MAX + _PLAIN_MAX
_FRAME_BYTES_LIMIT = _FRAME_PLAIN_LIMIT + _FRAME_PLAIN_LIMIT // 128 + 1024
_CHUNK = 256 * 1024
_BLOCK_MAX = 128 * 1024
_NEAR = 16 * 1024
_SEARCHED = 1024 * 1024
_CANDIDATES_MAX = 16
"""How far, and at how many places, a frame without a trailer is looked for behind damage."""

_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    # Off by default; without it most flipped bits pass unseen.
    zstd.CompressionParameter.checksum_flag: 1,
}


class _Trailer(NamedTuple):
    """What a trailer says of the frame before it, and where it was found."""

    at: int
    first: int
    last: int
    length: int
    tail: bytes

    @property
    def start(self) -> int:
        return self.at - self.length

    @property
    def end(self) -> int:
        return self.at + TRAILER_BYTES


def _compress(plain: bytes, first: int, tail: Position) -> bytes:
    compressor = zstd.ZstdCompressor(options=_OPTIONS)
    frame = compressor.compress(plain, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    return frame + _trailer(first, tail, len(frame))


def _trailer(first: int, tail: Position, length: int) -> bytes:
    body = _BODY.pack(_TAG, first, tail.seq, length, bytes.fromhex(tail.hash[:16]))
    return _TRAILER_HEAD[:8] + body + struct.pack("<I", zlib.crc32(body))


def _parse_trailer(raw: bytes, at: int) -> _Trailer | None:
    body, checksum = raw[8 : 8 + _BODY.size], raw[8 + _BODY.size : TRAILER_BYTES]
    if raw[:12] != _TRAILER_HEAD or checksum != struct.pack("<I", zlib.crc32(body)):
        return None
    _, first, last, length, tail = _BODY.unpack(body)
    return _Trailer(at, first, last, length, tail) if 0 < length <= at else None


class ZstdLayout:
    """How a log is laid out in `log.jsonl.zst`."""

    name = "zst"
    file_name = "log.jsonl.zst"

    @staticmethod
    def header(line: bytes) -> bytes:
        """Bytes of the header on disk."""
        # A header is no event: its trailer counts from 0 to -1.
        return _compress(line, 0, Position(-1, "0" * 64))

    @staticmethod
    def commit(records: Sequence[Record]) -> bytes:
        """Bytes of one commit on disk: one frame, or several of about 1 MiB."""
        parts: list[bytes] = []
        start, size = 0, 0
        for index, record in enumerate(records):
            if size and size + len(record.line) > _PLAIN_MAX:
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
        window, at = _Window(file, begin), begin
        sure = _SurePlaces(window)
        while head := window.peek(at, TRAILER_BYTES):
            if _parse_trailer(head, at) is not None:
                at += TRAILER_BYTES
                continue
            length = _frame_length(window, at)
            lines = _decompress(window.peek(at, length)) if length else None
            if lines is None:
                end = sure.behind(at)
                yield Piece(at, end, (), flaw="incomplete or damaged frame")
                at = end
                continue
            end = at + length
            # A damaged one is noise: its length is in doubt, and with it where the next begins.
            if _parse_trailer(window.peek(end, TRAILER_BYTES), end) is not None:
                end += TRAILER_BYTES
            yield Piece(at, end, lines, framed=True)
            at = end

    @staticmethod
    def seek(file: ReadFile, begin: int, seq: int) -> int:
        """Start of a frame that holds `seq` or an earlier number; `begin` if in doubt."""
        low, high = begin, file.size()
        while high - low > _NEAR:
            middle = (low + high) // 2
            found = _find_trailer(file, middle, high)
            if found is None or found.start <= low:
                # No frame begins in this half that would bring us nearer.
                high = middle
            elif found.first <= seq:
                low = found.start
            else:
                high = min(middle, found.start)
        return low

    @staticmethod
    def finish(file: ReadFile, start: int, end: int) -> bytes:
        """What the last verified piece (from `start` to `end`) lacks to be whole."""
        behind = file.read(end - TRAILER_BYTES, TRAILER_BYTES)
        if start >= end or _parse_trailer(behind, end - TRAILER_BYTES) is not None:
            return b""
        length = end - start
        lines = _decompress(file.read(start, length))
        if lines is None:
            return b""
        try:
            first, last = decode_line(lines[0]), decode_line(lines[-1])
        except BadRecordError:
            return b""
        return _trailer(first.first, last.position, length)


def _frame_of(records: Sequence[Record]) -> bytes:
    plain = b"".join([record.line for record in records])
    return _compress(plain, records[0].first, records[-1].position)


class _Window:
    """A file seen through one buffer: most frames are small, and reading is not done for each."""

    def __init__(self, file: ReadFile, start: int) -> None:
        self.file = file
        self._base = start
        self._held = b""

    def peek(self, start: int, size: int) -> bytes:
        """`size` bytes from `start`, fewer at the end of the file."""
        offset = start - self._base
        if not 0 <= offset <= len(self._held) - size:
            self._base, offset = start, 0
            self._held = self.file.read(start, max(size, _CHUNK))
        return self._held[offset : offset + size]


def _frame_length(window: _Window, at: int) -> int:
    """Length of the frame at `at`, from the headers of its blocks; 0 if there is no whole frame.

    RFC 8878, sections 3.1.1.1 and 3.1.1.2. The library's own function does not tell a frame that is
    damaged from one of which more must be read.
    """
    head = window.peek(at, 5)
    if head[:4] != _FRAME_MAGIC or len(head) < 5 or head[4] & 0x08:
        return 0
    single = head[4] >> 5 & 1
    size_bytes = (single, 2, 4, 8)[head[4] >> 6]
    end = at + 5 + (1 - single) + (0, 1, 2, 4)[head[4] & 3] + size_bytes
    last = False
    while not last:
        block = window.peek(end, 3)
        header = int.from_bytes(block, "little")
        last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if len(block) < 3 or kind == 3 or size > _BLOCK_MAX:
            return 0
        end += 3 + (1 if kind == 1 else size)
        if end - at > _FRAME_BYTES_LIMIT:
            return 0
    end += 4 * (head[4] >> 2 & 1)
    return end - at if window.peek(end - 1, 1) else 0


def _decompress(frame: bytes) -> list[bytes] | None:
    """The lines of a frame, or None if it does not decode to whole lines."""
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = decompressor.decompress(frame, max_length=_FRAME_PLAIN_LIMIT)
    except zstd.ZstdError:
        return None
    if not decompressor.eof or not plain.endswith(b"\n"):
        return None
    return [b"%s\n" % line for line in plain[:-1].split(b"\n")]


class _SurePlaces:
    """Where reading can go on behind damage. What was found once is not searched for again."""

    def __init__(self, window: _Window) -> None:
        self._window = window
        self._file = window.file
        self._searched = -1
        self._found: _Trailer | None = None

    def behind(self, start: int) -> int:
        """The nearest sure place behind damage that begins at `start`."""
        end = self._by_trailer(start)
        # A frame before that place may have lost its trailer; the search for it is bounded.
        for size in (_NEAR, _SEARCHED):
            left = _CANDIDATES_MAX
            region = self._file.read(start + 1, min(end - start - 1, size))
            at = region.find(_FRAME_MAGIC)
            while at >= 0 and left:
                left -= 1
                place = start + 1 + at
                length = _frame_length(self._window, place)
                if length and at + length <= len(region) and _decompress(region[at : at + length]):
                    return place
                at = region.find(_FRAME_MAGIC, at + 1)
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

    def _trailer(self, start: int) -> _Trailer | None:
        known = self._found
        if not 0 <= self._searched <= start or (known is not None and known.at < start):
            self._searched = start
            self._found = _find_trailer(self._file, start, self._file.size())
        return self._found


def _find_trailer(file: ReadFile, start: int, end: int) -> _Trailer | None:
    """The first valid trailer that begins at or behind `start` and before `end`."""
    while start < end:
        chunk = file.read(start, min(_CHUNK, end - start) + TRAILER_BYTES)
        at = chunk.find(_TRAILER_HEAD)
        while at >= 0:
            raw = chunk[at : at + TRAILER_BYTES]
            found = _parse_trailer(raw, start + at) if len(raw) == TRAILER_BYTES else None
            if found is not None and found.at < end:
                return found
            at = chunk.find(_TRAILER_HEAD, at + 1)
        if len(chunk) <= TRAILER_BYTES:
            return None
        start += len(chunk) - TRAILER_BYTES
    return None
