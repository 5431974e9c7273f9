"""Between SQLite and the system: what it does to its files is seen, refused, or cut off.

SQLite does its own writing, past `perdure.durable`. `standing_between` registers a file layer that
hands everything on to the system's own, and meanwhile

- tells `crash.observe` of every change, in the words of the durable layer, so that a loss of power
  can be replayed for SQLite's files together with all others;
- names crash points (`vfs.write` and so on), so that a process can be killed within a commit;
- asks a judge about each call, who may let it fail as the system would.

As the default layer it needs no hook in the code under test. What is shared between processes
(`-shm`) goes past it: that file is gone after a loss of power anyway. So do files without a name.
"""
# ruff: noqa: N802 - the names are those of SQLite's calls

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from perdure.durable import crash

__all__ = ["NAME", "SHORT", "SQLITE_CALLS", "Judge", "Shim", "standing_between"]

NAME = "perdure-between"
"""Under which the layer is registered."""

SHORT = "short"
"""Not an errno: half of a write fits on the disk, half of what is to be read is there."""

Judge = Callable[[str], str | None]
"""Told the kind of each call; the name of the errno with which it fails, `SHORT`, or None."""

_FAILURES: dict[str, tuple[type[apsw.Error], int]] = {
    "sqlite open": (apsw.CantOpenError, apsw.SQLITE_CANTOPEN),
    "sqlite read": (apsw.IOError, apsw.SQLITE_IOERR_READ),
    "sqlite write": (apsw.IOError, apsw.SQLITE_IOERR_WRITE),
    "sqlite sync": (apsw.IOError, apsw.SQLITE_IOERR_FSYNC),
    "sqlite truncate": (apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE),
    "sqlite delete": (apsw.IOError, apsw.SQLITE_IOERR_DELETE),
    "sqlite size": (apsw.IOError, apsw.SQLITE_IOERR_FSTAT),
    "sqlite lock": (apsw.IOError, apsw.SQLITE_IOERR_LOCK),
}
"""What SQLite says when a call fails for a reason of the system's."""

SQLITE_CALLS = tuple(_FAILURES)
"""What SQLite asks of its file layer, as far as it can be refused."""

_NAMES_OF_JOURNALS = (
    apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
)
_TO_WRITE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def _failure(kind: str, code: str) -> tuple[apsw.Error, int]:
    """What SQLite's own layer makes of an errno, and the errno that it tells afterwards."""
    number = getattr(errno, code, errno.ENOSPC)
    made, extended = _FAILURES[kind]
    if kind == "sqlite write" and number == errno.ENOSPC:
        made, extended, number = apsw.FullError, apsw.SQLITE_FULL, 0
    elif kind == "sqlite read" and number == errno.EIO:
        # In the middle of a statement SQLite calls that damage.
        made, extended = apsw.CorruptError, apsw.SQLITE_CORRUPT
    elif kind == "sqlite lock" and number == errno.EACCES:
        made, extended = apsw.BusyError, apsw.SQLITE_BUSY
    error = made(f"{kind}: {os.strerror(number) if number else 'disk full'}")
    # By this attribute the layer hears of more than the class.
    setattr(error, "extendedresult", extended)  # noqa: B010 - unknown to the type of all errors
    return error, number


class _File(apsw.VFSFile):
    """One file that SQLite has open."""

    def __init__(
        self, shim: "Shim", base: str, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        self._shim = shim
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        known = path is None or os.path.lexists(path)
        # The first sync of a new journal makes its name durable, too.
        self._unnamed = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & _NAMES_OF_JOURNALS)
        self._inode = self._folder = 0
        if not known and flags[0] & apsw.SQLITE_OPEN_CREATE:
            crash.point("vfs.create")
        shim.through(super().__init__, base, name, flags)
        if path is None or flags[0] & apsw.SQLITE_OPEN_DELETEONCLOSE:
            return
        folder, own = os.path.split(path)
        # By the name alone: closing a descriptor of the file would drop SQLite's locks.
        with suppress(FileNotFoundError):
            self._inode, self._folder = os.lstat(path).st_ino, os.stat(folder).st_ino
        if not known and self._inode:
            crash.observe("create", parent=self._folder, name=own, inode=self._inode)
            crash.point("vfs.created")

    def xRead(self, amount: int, offset: int) -> bytes:
        short = self._shim.refuse("sqlite read")
        data: bytes = self._shim.through(super().xRead, amount, offset)
        return data[: len(data) // 2] if short else data

    def xWrite(self, data: Any, offset: int) -> None:
        short = self._shim.refuse("sqlite write")
        if not self._inode:
            self._shim.through(super().xWrite, data, offset)
            return
        whole = bytes(data)
        crash.point("vfs.write")
        fits = crash.half("vfs.half", whole[: len(whole) // 2] if short else whole)
        if fits:
            self._shim.through(super().xWrite, fits, offset)
        crash.observe("write", inode=self._inode, offset=offset, data=fits)
        crash.point("vfs.written" if short or len(fits) == len(whole) else "vfs.half")
        if short:
            raise self._shim.failure("sqlite write", "ENOSPC")

    def xTruncate(self, newsize: int) -> None:
        self._shim.refuse("sqlite truncate")
        if not self._inode:
            self._shim.through(super().xTruncate, newsize)
            return
        crash.point("vfs.truncate")
        self._shim.through(super().xTruncate, newsize)
        crash.observe("truncate", inode=self._inode, length=newsize)
        crash.point("vfs.truncated")

    def xSync(self, flags: int) -> None:
        self._shim.refuse("sqlite sync")
        crash.point("vfs.sync")
        if crash.syncs_disabled() or not self._inode:
            return
        if self._shim.to_disk:
            self._shim.through(super().xSync, flags)
        crash.observe("sync", inode=self._inode)
        if self._unnamed:
            self._unnamed = False
            crash.observe("sync", inode=self._folder)
        crash.point("vfs.synced")

    def xFileSize(self) -> int:
        self._shim.refuse("sqlite size")
        size: int = self._shim.through(super().xFileSize)
        return size

    def xLock(self, level: int) -> None:
        self._shim.refuse("sqlite lock")
        self._shim.through(super().xLock, level)


class Shim(apsw.VFS):
    """A file layer above the one that is the default when it is made.

    Attributes:
        to_disk: whether a sync reaches the disk. Whoever is killed leaves the page cache whole, and
            a loss of power is replayed from what was told: then it would cost time only.
        waits: whether SQLite may sleep while it waits for others.

    """

    def __init__(
        self,
        name: str = NAME,
        *,
        default: bool = True,
        judge: Judge = lambda _: None,
        to_disk: bool = True,
        waits: bool = True,
    ) -> None:
        """Register it; see `standing_between`."""
        self.to_disk = to_disk
        self.waits = waits
        self._base = apsw.vfs_names()[0]
        self._judge = judge
        self._told = threading.local()
        # A zero stands for the longest path that the layer below takes.
        super().__init__(name, self._base, default, 0)

    def failure(self, kind: str, code: str) -> apsw.Error:
        """What is raised when a call fails with the errno of this name, told from now on."""
        error, self._told.errno = _failure(kind, code)
        return error

    def refuse(self, kind: str) -> bool:
        """Let the judge decide about a call; True if it is to be cut short.

        Raises:
            apsw.Error: it fails.

        """
        code = self._judge(kind)
        if code is None or code == SHORT:
            return code is not None
        raise self.failure(kind, code)

    def through(self, call: Callable[..., Any], *given: Any) -> Any:
        """Let the layer below do it; when that fails, its errno is the last one."""
        try:
            return call(*given)
        except apsw.Error:
            self._told.errno = None
            raise

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file; one that cannot be opened to be written may still be read, as in SQLite."""
        try:
            self.refuse("sqlite open")
        except apsw.Error:
            if not flags[0] & _TO_WRITE:
                raise
            flags[0] = flags[0] & ~_TO_WRITE | apsw.SQLITE_OPEN_READONLY
            self.refuse("sqlite open")
        return _File(self, self._base, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Remove a file, and make that durable if asked to."""
        self.refuse("sqlite delete")
        crash.point("vfs.delete")
        syncs = syncdir and not crash.syncs_disabled()
        self.through(super().xDelete, filename, syncs and self.to_disk)
        folder, name = os.path.split(filename)
        inode = os.stat(folder).st_ino
        crash.observe("remove", parent=inode, name=name)
        if syncs:
            crash.observe("sync", inode=inode)
        crash.point("vfs.deleted")

    def xSleep(self, microseconds: int) -> int:
        """Wait, or say that it was done."""
        return super().xSleep(microseconds) if self.waits else microseconds

    def xGetLastError(self) -> tuple[int, str]:
        """The errno of the last call that failed."""
        told = getattr(self._told, "errno", None)
        return (super().xGetLastError()[0] if told is None else told), ""


@contextmanager
def standing_between(
    name: str = NAME,
    *,
    default: bool = True,
    judge: Judge = lambda _: None,
    to_disk: bool = True,
    waits: bool = True,
) -> Iterator[Shim]:
    """A layer between SQLite and the system, for connections that are opened within the context.

    With `default` they need not name it. Connections that are still open afterwards keep it.
    """
    shim = Shim(name, default=default, judge=judge, to_disk=to_disk, waits=waits)
    try:
        yield shim
    finally:
        shim.unregister()
