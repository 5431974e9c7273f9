"""Compaction of a compressed log: many small frames become few, the record lines stay as they are.

A commit is one frame, and a frame of one event compresses badly. Merged frames hold about 320 KiB
of lines each, copied byte for byte and in their order: no hash, no number and no link changes.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

from perdure.backends.directory.framing import (
    CHUNK,
    FRAME_HEAD_BYTES,
    TRAILER_BYTES,
    Trailer,
    Window,
    compress,
    decompress,
    frame_length,
    length_before,
    lost_trailer,
    parse_trailer,
    plain_size,
)
from perdure.durable.appending import ReadFile
from perdure.model.record import BadRecordError, Position, Record, decode_line

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["MERGED_PLAIN", "CannotCompact", "compacted", "worth_compacting"]

MERGED_PLAIN = 320 * 1024
"""How much one frame of a log that is written anew holds."""

_LARGE_PLAIN = 128 * 1024
"""Frames of this size stay. Two smaller neighbours fit into one frame, so none are left behind."""

_WORTH_BYTES = 1024 * 1024
_REACH_MIN = 4 * 1024

_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 16,
    zstd.CompressionParameter.checksum_flag: 1,
    # A third of a small record is hex digits of hashes, in which short repetitions occur by chance.
    # Weighed against the cost of spelling them out, and none shorter than six, a log of one-event
    # commits takes a fifth less than at the default level; it costs about 15 us a record, once.
    zstd.CompressionParameter.strategy: zstd.Strategy.btopt,
    zstd.CompressionParameter.min_match: 6,
    zstd.CompressionParameter.search_log: 5,
    zstd.CompressionParameter.target_length: 64,
    zstd.CompressionParameter.hash_log: 18,
    zstd.CompressionParameter.chain_log: 18,
    zstd.CompressionParameter.window_log: 18,
}


class CannotCompact(Exception):
    """The log holds something else than its records; it stays as it is, nothing being destroyed.

    Internal: the caller keeps the old log, and says so where it was asked to compact.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- whether it is worth while --------------------------------------------------------------------


def worth_compacting(file: ReadFile, end: int) -> bool:
    """Whether small frames exceed 1 MiB and half of the log, which ends at byte `end`.

    A small frame between large ones does not count: it has no neighbour to be merged with. Read
    backwards, no further than the answer needs, so that a log with few small frames costs little.
    """
    needed = max(_WORTH_BYTES, end // 2)
    at, small, single, in_run = end, 0, 0, False
    base, held, reach = end, b"", _REACH_MIN
    while small <= needed < small + single + at:
        offset = at - TRAILER_BYTES - base
        if offset < 0:
            base = max(0, at - reach)
            held = file.read(base, at - base)
            offset = at - TRAILER_BYTES - base
            if offset < 0 or len(held) < at - base:
                return False
            reach = min(2 * reach, CHUNK)
        length = length_before(held, offset)
        start = at - TRAILER_BYTES - length
        if not length or start <= 0:
            # The header's frame, or a place that compaction would refuse.
            break
        if start < base:
            # One read for the head of this frame and the trailer before it.
            reach = _REACH_MIN if length > reach else min(2 * reach, CHUNK)
            base = max(0, start - reach)
            held = file.read(base, start + FRAME_HEAD_BYTES - base)
            if len(held) < start + FRAME_HEAD_BYTES - base:
                return False
        size = at - start
        if not _is_small(held, start - base):
            single, in_run = 0, False
        elif not in_run:
            single, in_run = size, True
        else:
            small += single + size
            single = 0
        at = start
    return small > needed


def _is_small(raw: bytes, offset: int) -> bool:
    """Whether the frame that begins at `offset` holds little; it is copied if it does not say."""
    # Most frames give their size in one or two bytes (RFC 8878, section 3.1.1.1.1): it is little.
    if raw[offset + 4] >> 5 in {0b001, 0b010, 0b011}:
        return True
    plain = plain_size(raw, offset)
    return plain is not None and plain < _LARGE_PLAIN


# --- the log anew ---------------------------------------------------------------------------------


def compacted(file: ReadFile, end: int) -> Iterator[bytes]:
    """The bytes of the compacted log, for a log that was verified up to byte `end`.

    What is merged is verified again on the way. Large frames are copied as they are.

    Raises:
        CannotCompact: while it is iterated; what came before is to be thrown away.

    """
    window, chain, group = Window(file, 0), _Chain(), _Group(file)
    for frame in _frames(window, end):
        raw = window.peek(frame.start, FRAME_HEAD_BYTES)
        if frame.start == 0 or not _is_small(raw, 0):
            yield from group.flush()
            yield from _copied(file, frame)
            chain.step_over(frame)
            continue
        records = chain.follow(frame, decompress(window.peek(frame.start, frame.length)))
        if not group.has_room(records):
            yield from group.flush()
        group.add(frame, records)
    yield from group.flush()


class _Frame(NamedTuple):
    """A frame and the trailer behind it, which only the last of a log may lack."""

    start: int
    length: int
    trailer: Trailer | None

    @property
    def end(self) -> int:
        return self.start + self.length if self.trailer is None else self.trailer.end


def _frames(window: Window, end: int) -> Iterator[_Frame]:
    """Every frame up to `end`; their trailers count on without a gap."""
    at = following = 0
    while at < end:
        length = frame_length(window, at)
        behind = at + length
        if not length or behind > end:
            raise CannotCompact(f"no whole frame stands at byte {at}")
        trailer = None
        if behind < end:
            room = end - behind >= TRAILER_BYTES
            trailer = parse_trailer(window.peek(behind, TRAILER_BYTES), behind) if room else None
            if trailer is None:
                raise CannotCompact(f"no trailer stands at byte {behind}")
            if trailer.length != length or trailer.first != following:
                raise CannotCompact(f"the trailer at byte {behind} belongs to another frame")
            following = trailer.last + 1
        frame = _Frame(at, length, trailer)
        yield frame
        at = frame.end


def _copied(file: ReadFile, frame: _Frame) -> Iterator[bytes]:
    yield from file.chunks(frame.start, frame.end, CHUNK)
    if frame.trailer is None:
        yield lost_trailer(file.read(frame.start, frame.length))


class _Chain:
    """Where the records stand. Behind a frame that was not decoded its trailer tells."""

    def __init__(self) -> None:
        self._seq = -1
        # The genesis is not known here: the first record is taken as it comes.
        self._hash = ""

    def step_over(self, frame: _Frame) -> None:
        if frame.trailer is not None and frame.start:
            self._seq, self._hash = frame.trailer.last, frame.trailer.tail.hex()

    def follow(self, frame: _Frame, lines: list[bytes] | None) -> list[Record]:
        """The records of a frame, if they continue the chain and its trailer names the last."""
        if lines is None:
            raise CannotCompact(f"the frame at byte {frame.start} cannot be decoded")
        records = []
        for line in lines:
            try:
                record = decode_line(line)
            except BadRecordError as error:
                where = f"the frame at byte {frame.start} holds a line that is no record"
                raise CannotCompact(f"{where}: {error}") from error
            if record.first != self._seq + 1 or not record.prev.startswith(self._hash):
                reason = f"event {record.first} does not follow event {self._seq}"
                raise CannotCompact(f"{reason}, in the frame at byte {frame.start}")
            self._seq, self._hash = record.position
            records.append(record)
        named = frame.trailer
        if named is not None and (named.last, named.tail.hex()) != (self._seq, self._hash[:16]):
            raise CannotCompact(f"the trailer at byte {named.at} names another record")
        return records


class _Group:
    """Small frames that will be one."""

    def __init__(self, file: ReadFile) -> None:
        self._file = file
        self._clear()

    def _clear(self) -> None:
        self._frames: list[_Frame] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._first = 0
        self._tail = Position(-1, "")

    def has_room(self, records: list[Record]) -> bool:
        return self._size + _size(records) <= MERGED_PLAIN

    def add(self, frame: _Frame, records: list[Record]) -> None:
        if not self._frames:
            self._first = records[0].first
        self._frames.append(frame)
        self._lines += [record.line for record in records]
        self._size += _size(records)
        self._tail = records[-1].position

    def flush(self) -> Iterator[bytes]:
        """One frame and its trailer; a frame that stayed alone is copied as it is."""
        if len(self._frames) == 1:
            yield from _copied(self._file, self._frames[0])
        elif self._frames:
            yield compress(b"".join(self._lines), self._first, self._tail, _OPTIONS)
        self._clear()


def _size(records: list[Record]) -> int:
    return sum(len(record.line) for record in records)
