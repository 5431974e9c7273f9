"""Files that can be made again: written without a sync, so that a crash may leave them old or torn.

What reads them has to check them. Nothing that is kept for its own sake is written like this.
"""

import os

from perdure.durable import crash
from perdure.durable.appending import ReadFile
from perdure.durable.files import Folder, status_of, translated, write_at
from perdure.runtime import SYSTEM

__all__ = ["append", "create", "put", "read"]

_BUILDING = "."
"""What begins so was being built by a writer that died."""


def read(folder: Folder, name: str, most: int) -> bytes | None:
    """All bytes of a file; None if there is none, or it has more than `most`."""
    try:
        file = ReadFile(folder, name)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        return file.read(0, size) if size <= most else None
    finally:
        file.close()


def create(folder: Folder, name: str, data: bytes) -> None:
    """Create a file with `data`; who dies in the middle leaves it empty or torn.

    Raises:
        FileExistsError: the name is taken.

    """
    descriptor = folder.open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        _write(folder, name, descriptor, data, 0)
    finally:
        os.close(descriptor)


def put(folder: Folder, name: str, data: bytes) -> None:
    """Put `data` at `name` in one step: a reader sees the old file or the new one, whole."""
    for left in folder.names():
        if left.startswith(_BUILDING):
            folder.remove(left)
    building = f"{_BUILDING}{name}.{SYSTEM.token()}"
    descriptor = folder.open_file(building, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        crash.point("derived.put")
        _write(folder, building, descriptor, data, 0)
        folder.move(building, folder, name)
    except BaseException:
        folder.remove(building)
        raise
    finally:
        os.close(descriptor)


def append(folder: Folder, name: str, data: bytes, at: int) -> int:
    """Write `data` behind the first `at` bytes if they are all there is; how many there were."""
    try:
        descriptor = folder.open_file(name, os.O_RDWR) if at else folder.open_or_create(name)
    except FileNotFoundError:
        return 0
    try:
        crash.point("derived.append")
        size = status_of(descriptor, os.path.join(folder.path, name)).st_size
        if size == at:
            _write(folder, name, descriptor, data, at)
        return size
    finally:
        os.close(descriptor)


def _write(folder: Folder, name: str, descriptor: int, data: bytes, at: int) -> None:
    try:
        write_at(descriptor, data, at)
    except OSError as error:
        raise translated(error, os.path.join(folder.path, name)) from error
