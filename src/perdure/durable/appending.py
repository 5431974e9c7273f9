"""One open file: read at any place, or grown by appends with a known-good length to return to."""

import os
from collections.abc import Iterator
from contextlib import suppress

from perdure.durable import crash
from perdure.durable.files import (
    Folder,
    Opened,
    read_at,
    status_of,
    sync_file,
    translated,
    write_at,
)
from perdure.errors import PerdureError, StorageUnavailable

__all__ = ["AppendFile", "ReadFile"]


class ReadFile(Opened):
    """An open private file, read at any place without moving a cursor."""

    def __init__(self, folder: Folder, name: str, flags: int = os.O_RDONLY) -> None:
        """Open it.

        Raises:
            FileNotFoundError: it does not exist.
            UnsafeFile: a link, another kind of file, not ours, or open to others.

        """
        self.fd = -1
        self.name = name
        self._folder = folder
        self.fd = folder.open_file(name, flags)

    @property
    def path(self) -> str:
        """Where it is, for people."""
        return os.path.join(self._folder.path, self.name)

    def status(self) -> os.stat_result:
        """Status of the open file."""
        return status_of(self.fd, self.path)

    def size(self) -> int:
        """Its length in bytes, now."""
        return self.status().st_size

    def read(self, start: int, size: int) -> bytes:
        """At most `size` bytes from `start`; fewer only at the end of the file."""
        try:
            return read_at(self.fd, size, start)
        except OSError as error:
            raise translated(error, self.path) from error

    def chunks(self, start: int, end: int, chunk: int = 1 << 20) -> Iterator[bytes]:
        """The bytes from `start` to `end`, a MiB at a time."""
        for offset in range(start, end, chunk):
            yield self.read(offset, min(chunk, end - offset))

    def parts(self) -> Iterator[bytes]:
        """All its bytes, a MiB at a time; it is closed at the end, or when nobody goes on."""
        try:
            yield from self.chunks(0, self.size())
        finally:
            self.close()


class AppendFile(ReadFile):
    """A file that only grows, with a known-good length to return to.

    Attributes:
        length: bytes that are durable and acknowledged; what stands behind them is not ours.
        poisoned: a sync failed, so nobody knows what the disk holds; only reopening helps.

    """

    def __init__(self, folder: Folder, name: str, *, create: bool = False) -> None:
        """Open for reading and writing; create it exclusively if asked."""
        super().__init__(folder, name, os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0))
        status = self.status()
        self.inode = status.st_ino
        self.length = status.st_size
        self.poisoned = False

    def replaced(self) -> bool:
        """Whether another file has taken this one's name."""
        there = self._folder.stat(self.name)
        return there is None or there.st_ino != self.inode

    def follow(self, successor: "AppendFile") -> None:
        """Go on in the file that has taken this one's name and holds the same records."""
        self.fd, successor.fd = successor.fd, self.fd
        self.inode, self.length = successor.inode, successor.length
        successor.close()

    def append(self, data: bytes) -> None:
        """Write `data` behind the known length and sync it.

        Whatever interrupts it, a signal included, the file is back at its known length or has the
        data durably: `length` tells which.

        Raises:
            StorageFull: rolled back to the known length; may be tried again.
            StorageUnavailable: likewise, or `poisoned` after a failed sync.

        """
        self._refuse_if_poisoned()
        grown = self.length + len(data)
        try:
            write_at(self.fd, data, self.length)
            self.sync()
            self.length = grown
        except BaseException as error:
            if self.length != grown and not self.poisoned:
                self._roll_back()
            if isinstance(error, OSError):
                raise translated(error, self.path) from error
            raise

    def sync(self) -> None:
        """Make what was written durable; a failure poisons the file."""
        try:
            sync_file(self.fd, data_only=True)
        except OSError as error:
            # The kernel may have dropped the pages that it could not write; a second sync that
            # succeeds would prove nothing.
            self.poisoned = True
            raise translated(error, self.path) from error

    def rewrite(self, start: int, end: int, chunk: int = 1 << 20) -> None:
        """Write the bytes from `start` to `end` again, as they are, so that a sync covers them."""
        try:
            for offset in range(start, end, chunk):
                write_at(self.fd, read_at(self.fd, min(chunk, end - offset), offset), offset)
        except OSError as error:
            raise translated(error, self.path) from error

    def cut(self, length: int) -> None:
        """Drop what stands behind `length`; the caller has kept it aside."""
        self._truncate(length)
        self.sync()
        self.length = length

    def _roll_back(self) -> None:
        # Until the remains are gone this writer does not know where the file ends. They are no harm
        # to readers, who take them for a torn tail.
        self.poisoned = True
        with suppress(PerdureError):
            self._truncate(self.length)
            self.poisoned = False

    def _truncate(self, length: int) -> None:
        try:
            crash.point("cut.before")
            os.ftruncate(self.fd, length)
            crash.observe("truncate", inode=self.inode, length=length)
            crash.point("cut.after")
        except OSError as error:
            raise translated(error, self.path) from error

    def _refuse_if_poisoned(self) -> None:
        if self.poisoned:
            raise StorageUnavailable(
                self.path,
                "an earlier sync failed, so what the disk holds is unknown",
                hint="open the session again; it is read and verified anew",
            )
