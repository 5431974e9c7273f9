"""What stands beside a source and belongs to its session: kept as content, whole.

An agent may move large outputs out of its log into files of their own; without them the session is
not what it was. An event `source/file` names the file, relative to the folder of the source, and
its content. Of a compressed source the file itself is kept as well, part by part as it grows:
`source/bytes` says where a part begins, and one at 0 begins anew. `source/plain` says that the file
is not compressed any more, so that its text is all of it again.
"""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from perdure.importers.appender import Appender
from perdure.importers.files import (
    Fingerprint,
    NoSourceError,
    SourceFile,
    UnreadableSourceError,
    fingerprint_of,
)
from perdure.importers.formats import LineFormat
from perdure.importers.stored_lines import BYTES, FILE, PLAIN

__all__ = [
    "Beside",
    "KeptFile",
    "Part",
    "found_beside",
    "keep_bytes",
    "keep_file",
    "note_plain",
    "same_bytes",
]

_STEP_BYTES = 1024 * 1024


class Beside(NamedTuple):
    """A file beside a source, as it is stored.

    Attributes:
        digest: SHA-256 of its bytes, 64 hex digits.
        fingerprint: of the file when that was found, or None if it is not known any more.

    """

    digest: str
    fingerprint: Fingerprint | None = None


class Part(msgspec.Struct, frozen=True):
    """A part of a compressed source, as it is stored."""

    offset: int
    blob: str
    bytes: int


class KeptFile(msgspec.Struct, frozen=True):
    """A file beside a source, as it is stored."""

    name: str
    blob: str


def found_beside(kind: LineFormat, path: str, known: Mapping[str, Beside]) -> dict[str, Beside]:
    """The files beside a source by their names, those that are known and untouched not read."""
    folder = os.path.dirname(path)  # noqa: PTH120
    found = {}
    for beside in kind.companions(path):
        name = os.path.relpath(beside, folder)
        before, now = known.get(name), fingerprint_of(beside)
        if before is not None and now is not None and before.fingerprint == now:
            found[name] = before
            continue
        # It is nobody's session: what is wrong with it stops no import.
        with suppress(NoSourceError, UnreadableSourceError), SourceFile(beside) as file:
            digest = file.digest(file.fingerprint.size)
            if digest is not None:
                found[name] = Beside(digest, file.fingerprint)
    return found


def keep_file(to: Appender, path: str, name: str) -> None:
    """Store a file beside the source at `path`."""
    with SourceFile(os.path.join(os.path.dirname(path), name)) as file:  # noqa: PTH118, PTH120
        size = file.fingerprint.size
        digest = to.content(_parts(file, 0, size))
    to.event(FILE, {"name": name, "blob": digest, "bytes": size}, to.time)


def keep_bytes(to: Appender, file: SourceFile, start: int) -> None:
    """Store the bytes of a compressed source from `start` on."""
    size = file.fingerprint.size - start
    if size > 0:
        digest = to.content(_parts(file, start, size))
        to.event(BYTES, {"offset": start, "blob": digest, "bytes": size}, to.time)


def note_plain(to: Appender) -> None:
    """Store that the bytes kept before are not those of the file any more: it is its text."""
    to.event(PLAIN, {}, to.time)


def same_bytes(file: SourceFile, parts: Sequence[Part]) -> int:
    """How many bytes the parts are, if the file begins with them all; else 0: begin anew."""
    end = 0
    for part in parts:
        if part.offset != end or file.digest(part.bytes, end) != part.blob:
            return 0
        end += part.bytes
    return end


def _parts(file: SourceFile, start: int, size: int) -> Iterator[bytes]:
    for at in itertools.count(start, _STEP_BYTES):
        part = file.read(at, min(_STEP_BYTES, start + size - at))
        if not part:
            return
        yield part
