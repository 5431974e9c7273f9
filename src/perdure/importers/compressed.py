"""The text of a file of concatenated Zstandard frames, of any length, in bounded memory.

Each frame is decoded twice: once to see whether it is whole and its checksum holds, once to give
its text out. So nothing of a damaged frame is taken for text, and no frame has to fit in memory.
"""

import enum
import itertools
import struct
import sys
from collections.abc import Generator, Iterator

from perdure.importers.files import SourceFile, UnreadableSourceError
from perdure.importers.lines import Gap

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["frames", "looks_compressed"]

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = 0x184D2A50
_HEAD = struct.Struct("<II")
_STEP_BYTES = 16 * 1024
_TEXT_BYTES = 256 * 1024
_CANDIDATES_MAX = 1000
"""Bounds the search behind damage in a file that was made to look full of frames."""


class _State(enum.Enum):
    WHOLE = enum.auto()
    TORN = enum.auto()
    DAMAGED = enum.auto()


class _TornError(Exception):
    """The file ends before the frame does."""


def looks_compressed(head: bytes) -> bool:
    """Whether a file that begins with `head` (8 bytes) consists of frames."""
    return head[:4] == _MAGIC or _skippable(head) is not None


def frames(file: SourceFile) -> Iterator[bytes | Gap]:
    """Pieces of the text of all frames, in order; a gap where text is missing.

    The text of a frame that the file's end cuts off is given out as far as it goes, then a gap. A
    damaged frame is a gap alone, and what follows it is found again.
    """
    at = 0
    while head := file.read(at, _HEAD.size):
        skippable = _skippable(head)
        if skippable is not None:
            at += skippable
            continue
        state, end = _probe(file, at)
        if state is not _State.WHOLE:
            following = _next_frame(file, at, torn=state is _State.TORN)
            if following is None and state is _State.TORN:
                yield from _text_of_torn(file, at)
                yield Gap(f"the compressed frame at byte {at} of the file is cut off")
                return
            end = _end(file, at) if following is None else following
            yield Gap(f"no intact compressed frame in bytes {at} to {end} of the file")
        else:
            yield from _text(file, at)
        at = end


def _skippable(head: bytes) -> int | None:
    """Length of the skippable frame (RFC 8878, section 3.1.2) that begins so, or None."""
    if len(head) < _HEAD.size:
        return None
    magic, size = _HEAD.unpack(head)
    return _HEAD.size + size if magic & ~0xF == _SKIPPABLE else None


def _decode(file: SourceFile, start: int) -> Generator[bytes, None, int]:
    """The text of the frame at `start`, piece by piece; returns where the frame ends.

    Raises:
        _TornError: the file ends before.
        zstd.ZstdError: not a frame, or damaged.

    """
    decompressor = zstd.ZstdDecompressor()
    at = start
    while not decompressor.eof:
        step = file.read(at, _STEP_BYTES) if decompressor.needs_input else b""
        if decompressor.needs_input and not step:
            raise _TornError
        at += len(step)
        text = decompressor.decompress(step, max_length=_TEXT_BYTES)
        if text:
            yield text
    return at - len(decompressor.unused_data)


def _probe(file: SourceFile, start: int) -> tuple[_State, int]:
    """State of what begins at `start`, and where it ends if it is a whole frame."""
    magic = file.read(start, len(_MAGIC))
    if not magic or not _MAGIC.startswith(magic):
        return _State.DAMAGED, start
    pieces = _decode(file, start)
    try:
        while True:
            next(pieces)
    except StopIteration as stop:
        return _State.WHOLE, stop.value
    except _TornError:
        return _State.TORN, start
    except zstd.ZstdError:
        return _State.DAMAGED, start


def _text(file: SourceFile, start: int) -> Iterator[bytes]:
    """The text of a frame that was found whole.

    Raises:
        UnreadableSourceError: it no longer is.

    """
    try:
        yield from _decode(file, start)
    except (_TornError, zstd.ZstdError) as error:
        raise UnreadableSourceError("it changed while it was read") from error


def _text_of_torn(file: SourceFile, start: int) -> Iterator[bytes]:
    try:
        yield from _decode(file, start)
    except (_TornError, zstd.ZstdError):
        return


def _next_frame(file: SourceFile, start: int, *, torn: bool) -> int | None:
    """Where the next whole frame behind `start` begins.

    Without one, behind a frame that is damaged rather than torn, where a torn one begins.
    """
    cut_off: int | None = None
    for at in itertools.islice(_magics(file, start + 1), _CANDIDATES_MAX):
        state, _ = _probe(file, at)
        if state is _State.WHOLE:
            return at
        if state is _State.TORN and cut_off is None:
            cut_off = at
    return None if torn else cut_off


def _magics(file: SourceFile, start: int) -> Iterator[int]:
    """Every place from `start` on where a frame may begin."""
    at = start
    while len(chunk := file.read(at, _STEP_BYTES)) >= len(_MAGIC):
        place = chunk.find(_MAGIC)
        while place >= 0:
            yield at + place
            place = chunk.find(_MAGIC, place + 1)
        at += len(chunk) - len(_MAGIC) + 1


def _end(file: SourceFile, start: int) -> int:
    """Where the file ends."""
    at = start
    while step := file.read(at, _TEXT_BYTES):
        at += len(step)
    return at
