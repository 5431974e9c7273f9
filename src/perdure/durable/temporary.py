"""A private folder for a while, for stores that nobody needs afterwards."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from perdure.durable.files import translated

__all__ = ["temporary_folder"]


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
