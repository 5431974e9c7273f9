"""System calls on descriptors: with their crash points, complete, and their errors translated."""

import errno
import os

from perdure.durable import crash
from perdure.errors import PerdureError, StorageFull, StorageUnavailable, UnsafeFile

__all__ = ["copy_at", "read_at", "status_of", "sync_file", "translated", "write_at"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def translated(error: OSError, path: str) -> PerdureError:
    """The error of the tree that says what a system error means for the store."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StorageFull(path, reason)
    if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
        return UnsafeFile(
            path,
            "a link or another kind of file stands in the way",
            hint="name the place that a link leads to, and an SQLite file as sqlite:PATH",
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return StorageUnavailable(
            path, reason, hint="close sessions or raise the limit of open files"
        )
    return StorageUnavailable(path, reason)


def sync_file(descriptor: int, *, data_only: bool) -> None:
    """Fdatasync or fsync; told to the observer only after it succeeded."""
    crash.point("sync.before")
    if crash.syncs_disabled():
        return
    if data_only:
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)
    if crash.observed():
        crash.observe("sync", inode=os.fstat(descriptor).st_ino)
    crash.point("sync.after")


def status_of(descriptor: int, path: str) -> os.stat_result:
    """Status of an open file; `path` names it in errors.

    Raises:
        StorageUnavailable: as the system says.

    """
    try:
        return os.fstat(descriptor)
    except OSError as error:
        raise translated(error, path) from error


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """At most `size` bytes from `offset`; fewer only at the end of the file.

    Raises:
        OSError: as the system says.

    """
    data = os.pread(descriptor, size, offset)
    while data and len(data) < size:
        more = os.pread(descriptor, size - len(data), offset + len(data))
        if not more:
            break
        data += more
    return data


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`.

    Raises:
        OSError: as the system says; part of the data may have been written.

    """
    _write(descriptor, data, offset)


def copy_at(source: int, descriptor: int, size: int) -> None:
    """Write the first `size` bytes of another file, which the system may let share their room.

    Raises:
        OSError: as the system says, also that it cannot; part of them may have been written.

    """
    _write(descriptor, range(size), 0, source)


def _write(descriptor: int, data: bytes | range, offset: int, source: int = -1) -> None:
    """Write bytes, or those that stand at the places of a range in the file `source`."""
    crash.point("write.before")
    end = len(crash.half("write.half", range(len(data))))
    view = data[:end] if isinstance(data, range) else memoryview(data)[:end]
    written = 0
    while written < len(view):
        if isinstance(view, range):
            left = len(view) - written
            count = os.copy_file_range(source, descriptor, left, written, offset + written)
        else:
            count = os.pwrite(descriptor, view[written:], offset + written)
        if not count:
            raise OSError(errno.EIO, "nothing more is written")
        written += count
    if crash.observed():
        told = read_at(source, len(view), 0) if isinstance(view, range) else bytes(view)
        crash.observe("write", inode=os.fstat(descriptor).st_ino, offset=offset, data=told)
    crash.point("write.half" if len(view) < len(data) else "write.after")
