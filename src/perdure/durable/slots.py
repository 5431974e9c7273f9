"""The tail file: the last acknowledged position, in two slots that are written in turn.

A slot is written after each acknowledged commit and never synced: it is exact after a kill, since
the page cache survives the process, and at worst old after a loss of power. Each slot has its own
checksum, so one that was torn is ignored and the other holds.
"""

import contextlib
import os
import struct
import zlib
from typing import NamedTuple

from perdure.durable.files import Folder, Opened, sync_file, translated, write_at
from perdure.model.record import Position

__all__ = ["Slot", "TailSlots"]

_NAME = "tail"
_MAGIC = b"PTL0"
_LAYOUT = struct.Struct("<4sQq32sQQQ")
_SLOT_BYTES = 512
"""One sector each: a torn write cannot reach the other slot."""


class Slot(NamedTuple):
    """One acknowledgement: which, what, and the file it was made in.

    Attributes:
        generation: counts acknowledgements; the higher of two valid slots holds.
        position: the acknowledged position.
        inode: inode number of the log file.
        length: its length in bytes after the commit.
        ctime_ns: its status-change time after the commit, in nanoseconds.

    """

    generation: int
    position: Position
    inode: int
    length: int
    ctime_ns: int

    def names(self, status: os.stat_result) -> bool:
        """Whether a file with this status is the one, as the acknowledgement left it."""
        known = (self.inode, self.length, self.ctime_ns)
        return known == (status.st_ino, status.st_size, status.st_ctime_ns)


def _pack(slot: Slot) -> bytes:
    body = _LAYOUT.pack(
        _MAGIC,
        slot.generation,
        slot.position.seq,
        bytes.fromhex(slot.position.hash),
        slot.inode,
        slot.length,
        slot.ctime_ns,
    )
    return body + struct.pack("<I", zlib.crc32(body))


def _unpack(raw: bytes) -> Slot | None:
    body, checksum = raw[: _LAYOUT.size], raw[_LAYOUT.size : _LAYOUT.size + 4]
    if len(checksum) < 4 or checksum != struct.pack("<I", zlib.crc32(body)):
        return None
    magic, generation, seq, tail_hash, inode, length, ctime_ns = _LAYOUT.unpack(body)
    if magic != _MAGIC:
        return None
    return Slot(generation, Position(seq, tail_hash.hex()), inode, length, ctime_ns)


class TailSlots(Opened):
    """The tail file of one session folder."""

    def __init__(self, folder: Folder) -> None:
        """Open it for writing, creating it where missing."""
        self._folder = folder
        self._generation = 0
        known = self.read(folder)
        if known is not None:
            self._generation = known.generation
        self.fd = folder.open_or_create(_NAME)

    @staticmethod
    def read(folder: Folder) -> Slot | None:
        """The newer valid slot, or None if there is none."""
        try:
            raw = folder.read(_NAME, 2 * _SLOT_BYTES)
        except FileNotFoundError:
            return None
        slots = (_unpack(raw[:_SLOT_BYTES]), _unpack(raw[_SLOT_BYTES:]))
        return max((s for s in slots if s is not None), default=None, key=lambda s: s.generation)

    def write(self, position: Position, status: os.stat_result) -> None:
        """Note `position` as acknowledged in the log whose status is given.

        A slot is evidence, not the truth: a failure to write it does not fail the commit.
        """
        self._generation += 1
        slot = Slot(self._generation, position, status.st_ino, status.st_size, status.st_ctime_ns)
        with contextlib.suppress(OSError):
            write_at(self.fd, _pack(slot), _SLOT_BYTES * (self._generation % 2))

    def sync(self) -> None:
        """Make the slots durable, where a new session or a recovery begins."""
        try:
            sync_file(self.fd, data_only=True)
        except OSError as error:
            raise translated(error, os.path.join(self._folder.path, _NAME)) from error
