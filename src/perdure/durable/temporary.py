"""What nobody needs afterwards: a private folder for a while, and bytes gathered from a source."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from perdure.durable.calls import translated

__all__ = ["PART_BYTES", "Gathered", "gathered", "temporary_folder"]

PART_BYTES = 1024 * 1024

_IN_MEMORY_BYTES = 8 * PART_BYTES


@contextmanager
def temporary_folder(prefix: str, *, keep: bool = False) -> Iterator[str]:
    """A new folder (mode 0700), removed with all it holds at the end unless `keep`.

    Raises:
        StorageFull, StorageUnavailable: it cannot be made or removed.

    """
    try:
        path = tempfile.mkdtemp(prefix=prefix)
    except OSError as error:
        raise translated(error, tempfile.gettempdir()) from error
    try:
        yield path
    finally:
        if not keep:
            try:
                shutil.rmtree(path)
            except OSError as error:
                raise translated(error, path) from error


class Gathered(NamedTuple):
    """Bytes that were read to their end.

    Attributes:
        file: holds them, from its start.
        digest: SHA-256 of them, 64 hex digits.
        size: their number.

    """

    file: IO[bytes]
    digest: str
    size: int

    def parts(self) -> Iterator[bytes]:
        """The bytes, a MiB at a time."""
        self.file.seek(0)
        while part := self.file.read(PART_BYTES):
            yield part


@contextmanager
def gathered(parts: Iterable[bytes], folder: str | None) -> Iterator[Gathered]:
    """All bytes of a source: a few MiB in memory, more in a file in `folder` that has no name.

    Without a folder it is that of the system for temporary files.

    Raises:
        StorageFull, StorageUnavailable: there is no room for them.

    """
    digest, size = hashlib.sha256(), 0
    with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, dir=folder) as file:
        # What the source of the parts raises is not the file system's.
        for part in parts:
            try:
                file.write(part)
            except OSError as error:
                raise translated(error, folder or tempfile.gettempdir()) from error
            digest.update(part)
            size += len(part)
        yield Gathered(file, digest.hexdigest(), size)
