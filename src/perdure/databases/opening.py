"""Opening an SQLite file: checked before anything is opened, and again when it is.

Checks go by `lstat` alone and by SQLite itself: closing a descriptor of an SQLite file that is open
in this process would drop SQLite's locks (https://www.sqlite.org/howtocorrupt.html, section 2.2).
"""

import os
import stat
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from perdure.durable.files import Folder, translated
from perdure.errors import StorageUnavailable, UnsafeFile
from perdure.runtime import SYSTEM

__all__ = [
    "PATH_BYTES_MAX",
    "SIBLINGS",
    "DatabaseFile",
    "Leash",
    "Marks",
    "check_private",
    "configure",
    "leash_of",
    "marks",
    "read_through",
    "renew",
    "resolved",
    "sync_through",
]

SIBLINGS = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a file, by what it appends to the name."""

PATH_BYTES_MAX = 503
"""512 less what SQLite appends for the journal (`MAX_PATHNAME` in its file layer)."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_CHUNK_BYTES = 65_536
_RETRY_SECONDS = 0.0003
_PACE_STEPS = 100_000
_STEPS_MIN = 20_000_000
_STEPS_PER_BYTE = 100
"""A row of 20 bytes costs some hundred steps of SQLite's machine where it is sorted, at most."""
_KINDS = {
    "": apsw.SQLITE_OPEN_MAIN_DB,
    "-journal": apsw.SQLITE_OPEN_MAIN_JOURNAL,
    "-wal": apsw.SQLITE_OPEN_WAL,
}
_WRITE_VERSION_AT = 18
_USER_VERSION_AT = 60
_APPLICATION_ID_AT = 68
_WAL_VERSION = 2

_SETTINGS = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
)


class DatabaseFile(NamedTuple):
    """A file that an operation is about.

    Attributes:
        folder: the folder that it is in, open.
        name: its name there.
        path: its path without any link in it.
        status: its status when it was looked at.

    """

    folder: Folder
    name: str
    path: str
    status: os.stat_result

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode."""
        return self.status.st_dev, self.status.st_ino

    def still_there(self) -> bool:
        """Whether it is the file at the name."""
        now = self.folder.stat(self.name)
        return now is not None and (now.st_dev, now.st_ino) == self.identity


class Marks(NamedTuple):
    """What the header of an SQLite file says (https://www.sqlite.org/fileformat2.html, 1.3).

    Attributes:
        application: the application id.
        version: the user version.
        wal: whether it is in WAL mode.
        known: whether its journal modes are ones that exist; SQLite takes a file for read-only or
            for unreadable that claims to be newer than that.

    """

    application: int
    version: int
    wal: bool
    known: bool


def check_private(folder: Folder, name: str, uid: int, *, fix: str = "") -> os.stat_result | None:
    """The status of a private regular file, or None if there is none.

    Raises:
        UnsafeFile: a link, another kind of file, not ours, or open to others; `fix` is the hint for
            the last of these, else it names chmod.

    """
    status = folder.stat(name)
    if status is None:
        return None
    path = f"{folder.path}/{name}"
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        raise UnsafeFile(path, "is a symbolic link", hint="name the file that it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise UnsafeFile(path, "not a regular file")
    if status.st_uid != uid:
        raise UnsafeFile(path, f"belongs to user {status.st_uid}", hint=fix)
    if mode & 0o077:
        reason = f"mode {mode:o} lets others in, expected 600"
        raise UnsafeFile(path, reason, hint=fix or f"chmod 600 {path}")
    # None at all while somebody removes it, as SQLite does with what is beside a file.
    if status.st_nlink > 1:
        raise UnsafeFile(path, f"has {status.st_nlink} hard links", hint="copy it to a new file")
    return status


def resolved(folder_path: str, name: str) -> str:
    """The path without any link: SQLite opens by path, and is told to accept none in it.

    Raises:
        StorageUnavailable: SQLite cannot open such a path, or the system refuses.

    """
    shown = f"{folder_path}/{name}"
    try:
        # Joined, as two slashes at the beginning would be another place to SQLite.
        path = os.path.join(Path(folder_path).resolve(), name)  # noqa: PTH118 - it stays a text
        size = len(path.encode())
    except OSError as error:
        raise translated(error, shown) from error
    except ValueError as error:
        raise StorageUnavailable(
            shown, "SQLite needs a path in UTF-8", hint="rename the folder"
        ) from error
    if size > PATH_BYTES_MAX:
        reason = f"SQLite takes a path of at most {PATH_BYTES_MAX} bytes, not {size}"
        raise StorageUnavailable(shown, reason, hint="move the store to a shorter path")
    return path


def marks(path: str, size: int) -> Marks | None:
    """What the header says, read through SQLite, which knows what this process has locked.

    None if it has no such header: the file is empty, damaged, about to be rolled back, or no
    database at all.
    """
    if size < _HEADER_BYTES:
        return None
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_NOFOLLOW
    try:
        opened = apsw.VFSFile("", path, [flags, 0])
        try:
            header = opened.xRead(_HEADER_BYTES, 0)
        finally:
            opened.xClose()
    except apsw.Error:
        return None  # what is wrong is found again, and told, by what follows
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        return None
    application = int.from_bytes(header[_APPLICATION_ID_AT:][:4], "big", signed=True)
    version = int.from_bytes(header[_USER_VERSION_AT:][:4], "big", signed=True)
    modes = header[_WRITE_VERSION_AT : _WRITE_VERSION_AT + 2]
    known = all(1 <= mode <= _WAL_VERSION for mode in modes)
    return Marks(application, version, modes[0] == _WAL_VERSION, known)


def read_through(path: str, shown: str, *, header: bool = False) -> None:
    """Read a file and what is beside it to the end, through SQLite, and make nothing of it.

    With `header` nothing but its first bytes.

    SQLite calls it damage when a page cannot be read in the middle of a statement. Who is about to
    take a file for damaged has to know whether it was only the medium that failed.

    Raises:
        StorageUnavailable: the medium refuses.

    """
    for suffix, kind in _KINDS.items():
        if Path(path + suffix).exists():
            with _medium_file(path + suffix, apsw.SQLITE_OPEN_READONLY | kind, shown) as file:
                # Of an empty file, too, something is read.
                size = _HEADER_BYTES if header else file.xFileSize() or 1
                for start in range(0, size, _CHUNK_BYTES):
                    file.xRead(min(_CHUNK_BYTES, size - start), start)


def sync_through(path: str, shown: str) -> None:
    """Make durable what stands in the WAL of a file, and the WAL's name: there may be none.

    Whoever finds a commit in it does not know whether the writer lived to sync it.

    Raises:
        StorageUnavailable: the medium refuses.

    """
    wal = f"{path}-wal"
    if Path(wal).exists():
        # With this flag a file counts as new, and the first sync is one of its name as well.
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_WAL
        with _medium_file(wal, flags, shown) as file:
            file.xSync(apsw.SQLITE_SYNC_NORMAL)


@contextmanager
def _medium_file(path: str, flags: int, shown: str) -> Iterator[apsw.VFSFile]:
    try:
        opened = apsw.VFSFile("", path, [flags | apsw.SQLITE_OPEN_NOFOLLOW, 0])
        try:
            yield opened
        finally:
            opened.xClose()
    except apsw.Error as error:
        raise StorageUnavailable(shown, f"the medium fails: {error}") from error


def configure(connection: apsw.Connection, wait_ms: int) -> None:
    """Settings of every connection: what a file says of itself is not trusted."""
    connection.set_busy_handler(_patience(wait_ms))
    for setting, value in _SETTINGS:
        connection.config(setting, value)
    connection.pragma("cell_size_check", True)
    leash = _leashes[connection] = Leash(connection.filename)
    connection.set_progress_handler(leash, _PACE_STEPS)


def renew(connection: apsw.Connection) -> None:
    """Begin another operation on a connection that stays open: it may take as long as the first."""
    leash_of(connection).steps = 0


def leash_of(connection: apsw.Connection) -> "Leash":
    """What ends an operation on a connection that was configured here."""
    return _leashes[connection]


class Leash:
    """Ends an operation that takes more steps than a sound file of its size can ask for.

    Pages of a damaged file may lead in circles, which SQLite does not notice: a statement goes on
    for ever, and what it sorts fills the memory.
    """

    def __init__(self, path: str) -> None:
        self.steps = 0
        self._path = path

    def __call__(self) -> bool:
        """Whether to end it."""
        self.steps += _PACE_STEPS
        if self.steps < _STEPS_MIN:
            return False
        size = 0
        for suffix in ("", "-wal"):
            try:
                size += Path(self._path + suffix).lstat().st_size
            except OSError:
                # Its size is not known: it may be large.
                size += 0 if suffix else self.steps
        return self.steps > _STEPS_MIN + _STEPS_PER_BYTE * size


_leashes: "weakref.WeakKeyDictionary[apsw.Connection, Leash]" = weakref.WeakKeyDictionary()


def _patience(wait_ms: int) -> Callable[[int], bool]:
    """Ask again every third of a millisecond for so long.

    SQLite's own handler waits longer each time, up to 100 ms: whoever came first waits longest, and
    among eight writers some starve for seconds.
    """
    end = 0.0

    def again(tries: int) -> bool:
        nonlocal end
        # Other processes do not live by an injected clock.
        now = SYSTEM.monotonic()
        if not tries:
            end = now + wait_ms / 1000
        if now >= end:
            return False
        SYSTEM.sleep(_RETRY_SECONDS)
        return True

    return again
