"""`evidence.sqlite`: opened for one operation, checked before, closed after.

Between operations nothing is open, so there is nothing to lose in a fork and nothing to close.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import apsw

from perdure.databases.forks import undivided
from perdure.databases.meaning import NONSENSE, Moved, Nonsense, Unread, busy, meaning, replaced
from perdure.databases.opening import (
    SIBLINGS,
    DatabaseFile,
    check_private,
    configure,
    marks,
    read_through,
    resolved,
)
from perdure.durable import crash
from perdure.durable.files import Folder, translated
from perdure.durable.locks import exclusive
from perdure.errors import (
    FormatUnsupported,
    PerdureError,
    SessionBusy,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.evidence.rows import MemoryRows, Rows
from perdure.evidence.sql import StoredRows, check, create
from perdure.runtime import Runtime

__all__ = ["APPLICATION_ID", "FORMAT", "NAME", "Database"]

NAME = "evidence.sqlite"
APPLICATION_ID = int.from_bytes(b"pdEv", "big")
"""In the header of the file; tells our files from those of other programs."""

FORMAT = 1
"""The file's `user_version`. SQLite calls a file 0 that nobody gave a version."""

_PAGE_BYTES = 1024
_WRITER_WAIT_MS = 5000
_READER_WAIT_MS = 100
_TRIES = 4
_NEW = f".{NAME}.new"
_ASIDE = f"{NAME}.damaged-"

T = TypeVar("T")


def _foreign(path: str, application: int, version: int) -> PerdureError:
    if application == APPLICATION_ID:
        return FormatUnsupported(path, found=version, supported=FORMAT)
    return UnsafeFile(
        path,
        f"is a database of another program (application id {application})",
        hint="move it away, and perdure begins a new one",
    )


class Database:
    """The file in a store's root folder. Between calls nothing is open."""

    def __init__(self, folder_path: str, runtime: Runtime) -> None:
        """Name the folder; nothing is touched yet."""
        self._folder_path = folder_path
        self._path = f"{folder_path}/{NAME}"
        self._place = Path(self._path)
        self._runtime = runtime
        self._damaged: tuple[int, int] | None = None
        self.unreadable: str | None = None

    # --- read -----------------------------------------------------------------------------------

    def read(self, question: Callable[[Rows], T]) -> T:
        """The answer from what is stored; from nothing if there is no file, or it is unreadable.

        Raises:
            UnsafeFile: not a private file of ours, or another program's.
            FormatUnsupported: written by another version.
            StorageUnavailable: the medium refuses.

        """
        return self.ask(question)[1]

    def ask(self, question: Callable[[Rows], T]) -> tuple[str | None, T]:
        """As `read`, with why the answer comes from nothing although there is a file, or None.

        Raises:
            As `read`.

        """
        why, answer = self._read(question)
        self.unreadable = why
        return why, question(MemoryRows()) if answer is None else answer[0]

    def read_to_write(self, question: Callable[[Rows], T]) -> T:
        """As `read`, for somebody who will act on the answer: it is made readable first.

        A commit that a dead writer left is rolled back, a damaged file is set aside.

        Raises:
            As `read`; StorageUnavailable also if the file stays busy, which is retryable.
            StorageFull: it cannot be made readable.

        """
        # Not by the attribute: another thread's answer may stand there by now.
        why, answer = self.ask(question)
        if why is None:
            return answer
        found: list[T] = []

        def ask(stored: Rows) -> None:
            found[:] = [question(stored)]

        self.write(ask, make=False)
        self.unreadable = None
        return found[0] if found else question(MemoryRows())

    def _read(self, question: Callable[[Rows], T]) -> tuple[str | None, tuple[T] | None]:
        """Why nothing can be read, or the answer; neither if there is nothing."""
        with undivided():
            for _ in range(_TRIES):
                try:
                    with ExitStack() as stack:
                        file = self._present(stack)
                        if file is None or not file.status.st_size:
                            return None, None
                        try:
                            return None, (self._sure(file, lambda it: self._ask(it, question)),)
                        except Nonsense as error:
                            self._damaged = file.identity
                            return f"it is damaged: {error}", None
                except Moved:
                    continue
                except Unread as error:
                    return str(error), None
                except StorageUnavailable as error:
                    if not error.retryable:
                        raise
                    return error.reason, None
        return replaced(self._path).reason, None

    def _present(self, stack: ExitStack) -> DatabaseFile | None:
        """The file, its folder open until the stack unwinds; None if there is none."""
        try:
            # Most stores that are only read have none; that costs one call.
            self._place.lstat()
            folder = stack.enter_context(Folder.open(self._folder_path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, self._path) from error
        return self._file(folder)

    def _file(self, folder: Folder) -> DatabaseFile | None:
        """The file in an open folder, checked as far as that goes without opening it."""
        status = check_private(folder, NAME, self._runtime.uid())
        if status is None:
            return None
        for suffix in SIBLINGS:
            check_private(folder, NAME + suffix, self._runtime.uid())
        return DatabaseFile(folder, NAME, resolved(folder.path, NAME), status)

    def _ask(self, file: DatabaseFile, question: Callable[[Rows], T]) -> T:
        if self._look_inside(file):
            # To read it, files would have to be created.
            raise Unread("it is in WAL mode, which the next writer ends")
        flags = apsw.SQLITE_OPEN_READONLY
        with self._connection(file, flags, _READER_WAIT_MS) as connection:
            connection.execute("BEGIN")
            if self._is_pristine(connection):
                return question(MemoryRows())
            return question(StoredRows(connection))

    # --- write ----------------------------------------------------------------------------------

    def write(self, change: Callable[[Rows], None], *, make: bool = True) -> None:
        """Make a change in one transaction; without `make`, not if there is no file yet.

        `change` may be called more than once, each time on what is stored then.

        Raises:
            UnsafeFile: not a private file of ours, or another program's.
            FormatUnsupported: written by another version.
            StorageFull, StorageUnavailable: the medium refuses; nothing was changed, or, after a
                failed sync, all of it may have been.

        """
        with undivided():
            for _ in range(_TRIES):
                with suppress(Moved), ExitStack() as stack:
                    file = self._opened(stack, make=make)
                    if file is None:
                        return
                    try:
                        self._sure(file, lambda it: self._change(it, change))
                        if file.still_there():
                            return
                    except Nonsense:
                        self._set_aside(file)
        raise replaced(self._path)

    def _opened(self, stack: ExitStack, *, make: bool) -> DatabaseFile | None:
        """The file, its folder open until the stack unwinds; None if there shall be none."""
        try:
            folder = stack.enter_context(Folder.open(self._folder_path))
        except FileNotFoundError as error:
            if not make:
                return None
            raise StorageUnavailable(self._folder_path, "there is no such folder") from error
        file = self._file(folder)
        if file is None and make:
            resolved(folder.path, NAME)
            self._create(folder)
            file = self._file(folder)
            if file is None:
                raise Moved
        return file

    def _create(self, folder: Folder) -> None:
        """Put an empty file at the name, which SQLite adopts.

        It gets its name after it was closed: from then on others may have it open.
        """
        with self._alone(folder):
            if folder.stat(NAME) is not None:
                return
            folder.remove(_NEW)
            folder.create(_NEW, b"")
            folder.move(_NEW, folder, NAME)
            folder.sync()

    def _change(self, file: DatabaseFile, change: Callable[[Rows], None]) -> None:
        if file.identity == self._damaged:
            # What a reader met may lie where this change never comes.
            raise Nonsense
        self._look_inside(file)
        with self._connection(file, apsw.SQLITE_OPEN_READWRITE, _WRITER_WAIT_MS) as connection:
            if connection.readonly("main"):
                # SQLite opens so what it cannot open to write to.
                raise StorageUnavailable(self._path, "cannot be opened to be written")
            # Only a file that holds nothing yet takes it: five tables fit in a few KiB then.
            connection.pragma("page_size", _PAGE_BYTES)
            # Emptied, not removed: no name has to become durable, and a reader creates nothing.
            mode = connection.pragma("journal_mode", "truncate")
            if mode != "truncate":
                raise StorageUnavailable(self._path, f"stays in journal mode {mode}")
            connection.pragma("synchronous", "full")
            connection.execute("BEGIN IMMEDIATE")
            try:
                crash.point("evidence.begun")
                if self._is_pristine(connection):
                    create(connection, APPLICATION_ID, FORMAT)
                change(StoredRows(connection))
                crash.point("evidence.changed")
                connection.execute("COMMIT")
                crash.point("evidence.committed")
            except BaseException:
                with suppress(apsw.Error):
                    connection.execute("ROLLBACK")
                raise

    def _sure(self, file: DatabaseFile, use: Callable[[DatabaseFile], T]) -> T:
        """What somebody makes of the file; it makes no sense only if it does not twice.

        Raises:
            StorageUnavailable: it cannot be read, which SQLite calls damage at first.
            As `use`.

        """
        try:
            return use(file)
        except Nonsense:
            read_through(file.path, self._path)
            return use(file)

    # --- one connection -------------------------------------------------------------------------

    @contextmanager
    def _connection(
        self, file: DatabaseFile, flags: int, wait_ms: int
    ) -> Iterator[apsw.Connection]:
        """A connection to exactly this file; errors of SQLite are translated."""
        connection: apsw.Connection | None = None
        try:
            connection = apsw.Connection(file.path, flags=flags | apsw.SQLITE_OPEN_NOFOLLOW)
            if not file.still_there():
                raise Moved
            configure(connection, wait_ms)
            yield connection
        except apsw.Error as error:
            errno = 0 if connection is None else connection.system_errno
            raise meaning(error, errno, self._path, wait_ms) from error
        except UnicodeDecodeError as error:
            # A damaged page may turn bytes into text.
            raise Nonsense(str(error)) from error
        finally:
            if connection is not None:
                connection.close(True)

    def _is_pristine(self, connection: apsw.Connection) -> bool:
        """Whether nothing was ever stored in the file.

        Raises:
            UnsafeFile: another program's.
            FormatUnsupported: another version's.

        """
        application = int(connection.pragma("application_id"))
        version = int(connection.pragma("user_version"))
        if (application, version) == (APPLICATION_ID, FORMAT):
            check(connection)
            return False
        if (application, version) == (0, 0):
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            if tables == [(0,)]:
                return True
        raise _foreign(self._path, application, version)

    def _look_inside(self, file: DatabaseFile) -> bool:
        """Whether the file is in WAL mode, by a look that changes nothing, as SQLite's own might.

        Raises:
            UnsafeFile: another program's.
            FormatUnsupported: another version's.
            Nonsense: the header is damaged.

        """
        found = marks(file.path, file.status.st_size)
        if found is None:
            return False
        if (found.application, found.version) != (APPLICATION_ID, FORMAT):
            raise _foreign(self._path, found.application, found.version)
        if not found.known:
            raise Nonsense("its header names a journal mode that does not exist")
        return found.wal

    # --- set aside ------------------------------------------------------------------------------

    def set_aside(self) -> Sequence[str]:
        """Paths of the damaged files that writers have put out of the way, oldest first."""
        try:
            with Folder.open(self._folder_path) as folder:
                names = folder.names()
        except FileNotFoundError:
            return []
        found = (name for name in names if name.startswith(_ASIDE))
        return [f"{self._folder_path}/{name}" for name in found if not name.endswith(SIBLINGS)]

    def _set_aside(self, damaged: DatabaseFile) -> None:
        """Rename a damaged file with its journal, unless somebody else did."""
        folder = damaged.folder
        with self._alone(folder):
            file = self._file(folder)
            if file is None or file.identity != damaged.identity:
                return
            with ExitStack() as stack:
                self._stop_writers(stack, file)
                moment = self._runtime.now_ms()
                while folder.stat(f"{_ASIDE}{moment}") is not None:
                    moment += 1
                # The journal first: beside a new file, SQLite would remove it.
                for suffix in (*SIBLINGS, ""):
                    status = folder.stat(NAME + suffix)
                    if status is not None and (status.st_size or not suffix):
                        folder.move(NAME + suffix, folder, f"{_ASIDE}{moment}{suffix}")
                folder.sync()

    def _stop_writers(self, stack: ExitStack, file: DatabaseFile) -> None:
        """Keep others from writing to the file while it is renamed."""
        flags = apsw.SQLITE_OPEN_READWRITE
        # Where SQLite cannot even begin, nobody else can.
        with suppress(Nonsense):
            connection = stack.enter_context(self._connection(file, flags, _WRITER_WAIT_MS))
            with suppress(*NONSENSE, apsw.ReadOnlyError):
                connection.execute("BEGIN EXCLUSIVE")

    @contextmanager
    def _alone(self, folder: Folder) -> Iterator[None]:
        """Only one at a time gives the name to another file."""
        with ExitStack() as stack:
            try:
                stack.enter_context(exclusive(folder.fd, folder.path))
            except SessionBusy as error:
                raise busy(self._path, _WRITER_WAIT_MS / 1000) from error
            yield
