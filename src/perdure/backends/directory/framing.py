"""One frame of a compressed log and the trailer behind it: how they are made, told and found."""

import struct
import sys
import zlib
from collections.abc import Mapping
from typing import NamedTuple

from perdure.durable.appending import ReadFile
from perdure.model.limits import RECORD_BYTES_MAX
from perdure.model.record import BadRecordError, Position, decode_line

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "CHUNK",
    "FRAME_HEAD_BYTES",
    "FRAME_MAGIC",
    "PLAIN_MAX",
    "TRAILER_BYTES",
    "Trailer",
    "Window",
    "compress",
    "decompress",
    "find_trailer",
    "frame_length",
    "length_before",
    "lost_trailer",
    "parse_trailer",
    "plain_size",
]

FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
_TAG = b"PRDT"
_BODY = struct.Struct("<4sqqQ8s")
_TRAILER_HEAD = struct.pack("<II", 0x184D2A5D, _BODY.size + 4) + _TAG
TRAILER_BYTES = 8 + _BODY.size + 4
_ENDING = struct.Struct("<12s16xQ8xI")
"""A trailer as far as it is needed to step over the frame before it."""

PLAIN_MAX = 1024 * 1024
"""A commit is split into frames of about this size, so that reading one is bounded."""

FRAME_HEAD_BYTES = 18
"""The longest that the header of a frame can be."""

_FRAME_PLAIN_LIMIT = RECORD_BYTES_MAX + PLAIN_MAX
_FRAME_BYTES_LIMIT = _FRAME_PLAIN_LIMIT + _FRAME_PLAIN_LIMIT // 128 + 1024
CHUNK = 256 * 1024
_BLOCK_MAX = 128 * 1024


class Trailer(NamedTuple):
    """What a trailer says of the frame before it, and where it was found."""

    at: int
    first: int
    last: int
    length: int
    tail: bytes

    @property
    def start(self) -> int:
        """Where its frame begins."""
        return self.at - self.length

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.at + TRAILER_BYTES


# --- making ---------------------------------------------------------------------------------------


def compress(plain: bytes, first: int, tail: Position, options: Mapping[int, int]) -> bytes:
    """A frame and its trailer; `options` are those of the compressor."""
    compressor = zstd.ZstdCompressor(options=options)
    frame = compressor.compress(plain, mode=zstd.ZstdCompressor.FLUSH_FRAME)
    return frame + _trailer(first, tail, len(frame))


def _trailer(first: int, tail: Position, length: int) -> bytes:
    body = _BODY.pack(_TAG, first, tail.seq, length, bytes.fromhex(tail.hash[:16]))
    return _TRAILER_HEAD[:8] + body + struct.pack("<I", zlib.crc32(body))


def lost_trailer(frame: bytes) -> bytes:
    """The trailer that `frame` should have behind it; nothing if it holds no records."""
    lines = decompress(frame)
    if lines is None:
        return b""
    try:
        first, last = decode_line(lines[0]), decode_line(lines[-1])
    except BadRecordError:
        return b""
    return _trailer(first.first, last.position, len(frame))


# --- reading --------------------------------------------------------------------------------------


class Window:
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
            self._held = self.file.read(start, max(size, CHUNK))
        return self._held[offset : offset + size]


def parse_trailer(raw: bytes, at: int) -> Trailer | None:
    """The trailer that stands at the start of `raw`, which was read at `at`; None if none does."""
    body, checksum = raw[8 : 8 + _BODY.size], raw[8 + _BODY.size : TRAILER_BYTES]
    if raw[:12] != _TRAILER_HEAD or checksum != struct.pack("<I", zlib.crc32(body)):
        return None
    _, first, last, length, tail = _BODY.unpack(body)
    return Trailer(at, first, last, length, tail) if 0 < length <= at else None


def length_before(raw: bytes, offset: int) -> int:
    """Length of the frame whose trailer stands at `offset` in `raw`; 0 if none stands there."""
    head, length, checksum = _ENDING.unpack_from(raw, offset)
    if head != _TRAILER_HEAD or checksum != zlib.crc32(raw[offset + 8 : offset + 44]):
        return 0
    return int(length)


def frame_length(window: Window, at: int) -> int:
    """Length of the frame at `at`, from the headers of its blocks; 0 if there is no whole frame.

    RFC 8878, sections 3.1.1.1 and 3.1.1.2. The library's own function does not tell a frame that is
    damaged from one of which more must be read.
    """
    head = window.peek(at, 5)
    if head[:4] != FRAME_MAGIC or len(head) < 5 or head[4] & 0x08:
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


def plain_size(raw: bytes, offset: int = 0) -> int | None:
    """Plain bytes that the frame at `offset` says it holds; None if it does not say."""
    try:
        head = raw[offset : offset + FRAME_HEAD_BYTES]
        return zstd.get_frame_info(head).decompressed_size
    except zstd.ZstdError:
        return None


def decompress(frame: bytes) -> list[bytes] | None:
    """The lines of a frame, or None if it does not decode to whole lines."""
    decompressor = zstd.ZstdDecompressor()
    try:
        plain = decompressor.decompress(frame, max_length=_FRAME_PLAIN_LIMIT)
    except zstd.ZstdError:
        return None
    if not decompressor.eof or not plain.endswith(b"\n"):
        return None
    return [b"%s\n" % line for line in plain[:-1].split(b"\n")]


def find_trailer(file: ReadFile, start: int, end: int) -> Trailer | None:
    """The first valid trailer that begins at or behind `start` and before `end`."""
    while start < end:
        chunk = file.read(start, min(CHUNK, end - start) + TRAILER_BYTES)
        at = chunk.find(_TRAILER_HEAD)
        while at >= 0:
            raw = chunk[at : at + TRAILER_BYTES]
            found = parse_trailer(raw, start + at) if len(raw) == TRAILER_BYTES else None
            if found is not None and found.at < end:
                return found
            at = chunk.find(_TRAILER_HEAD, at + 1)
        if len(chunk) <= TRAILER_BYTES:
            return None
        start += len(chunk) - TRAILER_BYTES
    return None
