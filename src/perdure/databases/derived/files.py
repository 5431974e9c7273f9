"""The file on its medium: looked at before it is opened, made whole, set aside when damaged.

A file gets its name when it is complete, so that at the name stands a whole one, or what is none of
ours, or nothing. What is only out of date is begun anew within itself: SQLite keeps beside a file
what belongs to it, by name, so that a file should lose its name only where it is of no use any
more.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import apsw

from perdure.databases.derived.tables import Tables
from perdure.databases.meaning import Nonsense, busy, meaning
from perdure.databases.network import refuse_network
from perdure.databases.opening import (
    SIBLINGS,
    DatabaseFile,
    check_private,
    configure,
    marks,
    read_through,
    resolved,
)
from perdure.durable.files import Folder, translated
from perdure.durable.locks import exclusive
from perdure.errors import (
    FormatUnsupported,
    PerdureError,
    SessionBusy,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.runtime import Runtime

__all__ = ["FLAGS", "VERSION_BYTES", "WAIT_MS", "DerivedFile", "Stillness", "meant_by"]

WAIT_MS = 10_000
"""Every writer waits for every other one's change."""

FLAGS = apsw.SQLITE_OPEN_NOFOLLOW
"""Of every connection."""

VERSION_BYTES = 6

Stillness = tuple[int, ...]


def meant_by(error: BaseException, errno: int, path: str) -> Exception | None:
    """What an error of SQLite means: what cannot be of a sound file is damage, too.

    None if it is none of SQLite's.
    """
    # A damaged page may turn bytes into text.
    if isinstance(error, UnicodeDecodeError):
        return Nonsense(str(error))
    if not isinstance(error, apsw.Error):
        return None
    if isinstance(error, apsw.ConstraintError | apsw.MismatchError | apsw.RangeError):
        return Nonsense(str(error))
    return meaning(error, errno, path, WAIT_MS)


class DerivedFile:
    """The file in a folder; nothing is opened here but to be made or set aside."""

    def __init__(self, folder: str, tables: Tables, runtime: Runtime) -> None:
        """Name the folder; nothing is touched yet."""
        self.folder_path = folder
        self.tables = tables
        self.name = tables.name
        self.path = f"{folder}/{self.name}"
        self._new = f".{self.name}.new"
        self._aside = f"{self.name}.damaged-"
        self.runtime = runtime
        self._place = Path(self.path)
        self._wal = Path(f"{self.path}-wal")

    # --- looking ----------------------------------------------------------------------------------

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of what is at the name; None if nothing is."""
        try:
            status = self._place.lstat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, self.path) from error
        return status.st_dev, status.st_ino

    def stillness(self) -> Stillness | None:
        """The state of a file that nobody writes to; None if somebody may."""
        try:
            if self.wal_size():
                return None
            status = self._place.lstat()
        except OSError:
            return None
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return (status.st_dev, status.st_ino, status.st_size, *times)

    def wal_size(self) -> int:
        """Bytes of the WAL; 0 if there is none."""
        with suppress(OSError):
            return self._wal.lstat().st_size
        return 0

    def has_shared_memory(self) -> bool:
        """Whether whoever wrote the WAL left, or keeps, what readers of it need."""
        return Path(f"{self.path}-shm").exists()

    def size(self) -> int:
        """Bytes of the file and of the WAL."""
        with suppress(OSError):
            return self._place.lstat().st_size + self.wal_size()
        return 0

    def present(self, stack: ExitStack) -> DatabaseFile | None:
        """The file, its folder open until the stack unwinds; None if there is none.

        Raises:
            Nonsense: it is no database.
            UnsafeFile: not a private file of ours, or another program's.
            FormatUnsupported: written by a newer version.

        """
        try:
            folder = stack.enter_context(Folder.open(self.folder_path))
        except FileNotFoundError:
            return None
        return self._file(folder)

    def _file(self, folder: Folder) -> DatabaseFile | None:
        status = check_private(folder, self.name, self.runtime.uid())
        if status is None or not status.st_size:
            return None
        for suffix in SIBLINGS:
            check_private(folder, self.name + suffix, self.runtime.uid())
        file = DatabaseFile(folder, self.name, resolved(folder.path, self.name), status)
        found = marks(file.path, status.st_size)
        if found is None:
            # Perhaps it could not be read just now.
            read_through(file.path, self.path, header=True)
            raise Nonsense("it is no database")
        self.refuse(found.application, found.version)
        if not found.known:
            raise Nonsense("its header names a journal mode that does not exist")
        return file

    def refuse(self, application: int, version: int) -> None:
        """Refuse what is not ours to change.

        Raises:
            UnsafeFile: another program's.
            FormatUnsupported: written by a newer version.

        """
        if application != self.tables.application_id:
            raise UnsafeFile(
                self.path,
                f"is a database of another program (application id {application})",
                hint="move it away, and perdure begins a new one",
            )
        if version > self.tables.version:
            raise FormatUnsupported(self.path, found=version, supported=self.tables.version)

    # --- making -----------------------------------------------------------------------------------

    def make(self) -> None:
        """Put an empty one at the name, if nothing is there.

        Raises:
            StorageUnavailable: there is no folder, or it is on a network file system.

        """
        try:
            folder = Folder.open(self.folder_path)
        except FileNotFoundError as error:
            raise StorageUnavailable(self.folder_path, "there is no such folder") from error
        with folder:
            refuse_network(self.folder_path, self.path)
            resolved(folder.path, self.name)
            with self._alone(folder):
                status = folder.stat(self.name)
                if status is None or not status.st_size:
                    self._build(folder)

    def first_version(self) -> int:
        """A number behind which versions are counted: no two files shall count alike."""
        return int(self.runtime.token(VERSION_BYTES), 16)

    def _build(self, folder: Folder) -> None:
        # What is left of a file that is gone, SQLite would take for what belongs to the new one.
        for name in (
            *(self.name + each for each in SIBLINGS),
            self._new,
            *(self._new + each for each in SIBLINGS),
        ):
            folder.remove(name)
        folder.create(self._new, b"")
        path = resolved(folder.path, self._new)
        connection: apsw.Connection | None = None
        try:
            connection = apsw.Connection(path, flags=FLAGS | apsw.SQLITE_OPEN_READWRITE)
            configure(connection, WAIT_MS)
            # It has another name: what a crash leaves of it is removed by the next one.
            connection.pragma("journal_mode", "memory")
            # So that room which was taken and cleared can be given back.
            connection.pragma("auto_vacuum", "incremental")
            connection.execute("BEGIN IMMEDIATE")
            self.tables.create(connection, self.first_version())
            connection.execute("COMMIT")
            # Last: a WAL would keep the old name.
            mode = connection.pragma("journal_mode", "wal")
        except apsw.Error as error:
            errno = 0 if connection is None else connection.system_errno
            raise meaning(error, errno, self.path, WAIT_MS) from error
        finally:
            if connection is not None:
                connection.close(True)
        left = (folder.stat(self._new + each) for each in SIBLINGS)
        if mode != "wal" or any(each is not None and each.st_size for each in left):
            raise StorageUnavailable(self.path, "could not be made whole", hint="try again")
        folder.move(self._new, folder, self.name)
        folder.sync()

    # --- setting aside ----------------------------------------------------------------------------

    def read_through(self) -> None:
        """Read all of it, to know whether it is the medium that fails.

        Raises:
            StorageUnavailable: it does.

        """
        try:
            read_through(resolved(self.folder_path, self.name), self.path)
        except StorageUnavailable:
            # What is gone meanwhile is no failing medium.
            if self.identity() is not None:
                raise

    def set_aside(self, damaged: tuple[int, int]) -> None:
        """Rename a damaged file with its WAL, unless somebody else did; of those, the last is kept.

        The file first: whoever looks then finds nothing, and whoever makes another one waits for
        the lock, and removes what the old one may have left.
        """
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(Folder.open(self.folder_path))
            except FileNotFoundError:
                return
            stack.enter_context(self._alone(folder))
            status = folder.stat(self.name)
            if status is None or (status.st_dev, status.st_ino) != damaged:
                return
            before = [name for name in folder.names() if name.startswith(self._aside)]
            moment = self.runtime.now_ms()
            while f"{self._aside}{moment}" in before:
                moment += 1
            for suffix in ("", *SIBLINGS):
                if folder.stat(self.name + suffix) is not None:
                    folder.move(self.name + suffix, folder, f"{self._aside}{moment}{suffix}")
            folder.sync()
            with suppress(PerdureError):
                for name in before:
                    folder.remove(name)

    @contextmanager
    def _alone(self, folder: Folder) -> Iterator[None]:
        """Only one at a time gives the name to another file."""
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive(folder.fd, folder.path))
            except SessionBusy as error:
                raise busy(self.path, WAIT_MS / 1000) from error
            yield
