"""The file: created whole, opened checked, its connections, its transactions.

A process that writes keeps a few connections open and reads through them as well. One that only
reads opens the file for each question and changes no byte of it: where nobody writes (there is no
WAL), as a file that does not change, which is checked afterwards; else like any other reader, but
without the checkpoint that the last one to close would make.
"""

import os
import stat
import urllib.parse
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from perdure.backends.sqlite import schema
from perdure.databases import forks
from perdure.databases.forks import undivided
from perdure.databases.meaning import Moved, Nonsense, Unread, meaning, replaced
from perdure.databases.opening import (
    SIBLINGS,
    DatabaseFile,
    check_private,
    configure,
    marks,
    read_through,
    resolved,
    sync_through,
)
from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.durable.locks import exclusive
from perdure.errors import PerdureError, StorageUnavailable, UnsafeFile
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Medium", "Reading"]

T = TypeVar("T")

_WAIT_MS = 10_000
"""Every writer of the file waits for every other one's commit, which takes a millisecond."""

_IDLE_MAX = 4
_TRIES = 4
_FLAGS = apsw.SQLITE_OPEN_NOFOLLOW
_TICK_MS = 50
"""Two changes of a file within a tick of the kernel's clock (at most 10 ms) show the same time."""

_Identity = tuple[int, int]


class Reading(NamedTuple):
    """A connection to read with, and what tells whether the file stood still meanwhile.

    Attributes:
        connection: the connection; its transaction is the reader's to begin.
        stillness: for a file that nobody wrote to when it was opened, its state; else None.
        writer: the connection is one that may write, and goes back to the others.

    """

    connection: apsw.Connection
    stillness: tuple[int, ...] | None = None
    writer: "_Writer | None" = None


class _Writer(NamedTuple):
    """A connection that may write, and the file that it is open on."""

    connection: apsw.Connection
    identity: _Identity


class Medium:
    """One file; shared by all namespaces. Methods may be called from any thread."""

    def __init__(
        self, path: str, kind: schema.Kind, runtime: Runtime, *, untrusted: bool = False
    ) -> None:
        """Name the file; nothing is opened or created.

        With `untrusted` it is only read, and may belong to anybody and be open to all.
        """
        self.path = path
        self.kind = kind
        self.untrusted = untrusted
        self.beside = f"{path}.d"
        self.runtime = runtime
        self._above, self._name = os.path.split(path)
        self._place = Path(path)
        self._idle: list[_Writer] = []
        _open_media.add(self)

    # --- the file --------------------------------------------------------------------------------

    def _present(self, stack: ExitStack) -> DatabaseFile:
        """The file, checked as far as that goes without opening it.

        Raises:
            FileNotFoundError: there is none.

        """
        self._place.lstat()
        folder = stack.enter_context(Folder.open_shared(self._above, any_owner=self.untrusted))
        return self._file(folder)

    def _file(self, folder: Folder) -> DatabaseFile:
        status = folder.stat(self._name)
        if status is None:
            raise FileNotFoundError(self.path)
        file = DatabaseFile(folder, self._name, resolved(self._above, self._name), status)
        if stat.S_ISREG(status.st_mode):
            # Before its mode: whoever named the wrong file shall not be told to change that.
            self._refuse_foreign(file)
        if not self.untrusted or not stat.S_ISREG(status.st_mode):
            fix = ""
            if self.kind is schema.BUNDLE:
                fix = f"`perdure import bundle {self.path}` copies what is in it; or chmod 600"
            check_private(folder, self._name, self.runtime.uid(), fix=fix)
            for suffix in SIBLINGS:
                check_private(folder, self._name + suffix, self.runtime.uid())
        return file

    def _refuse_foreign(self, file: DatabaseFile) -> None:
        """Look at the header before SQLite gets to change anything.

        Raises:
            UnsafeFile: it is no file of ours.
            FormatUnsupported: of another version.

        """
        if not file.status.st_size:
            hint = "it may have been cut off: put a backup in its place, or move it away"
            raise UnsafeFile(self.path, "is empty, which no store is", hint=hint)
        found = marks(file.path, file.status.st_size)
        if found is None:
            # Perhaps it could not be read just now.
            read_through(file.path, self.path)
            found = marks(file.path, file.status.st_size)
        if found is None:
            # In the middle of a rollback it may look so: the journal tells.
            journal = file.folder.stat(f"{self._name}-journal")
            if journal is not None and journal.st_size:
                return
            raise UnsafeFile(self.path, "is no SQLite file", hint="name another file")
        if (found.application, found.version) != (self.kind.application, schema.VERSION):
            raise schema.foreign(self.path, self.kind, found.application, found.version)
        if not found.known:
            raise Nonsense("its header names a journal mode that does not exist")

    def make(self) -> None:
        """Create the file where there is none: whole, or after a crash not at all."""
        try:
            self._place.lstat()
            return
        except FileNotFoundError:
            self._refuse_if_untrusted()
        except OSError as error:
            raise StorageUnavailable(self.path, error.strerror or str(error)) from error
        resolved(self._above, self._name)
        with (
            undivided(),
            Folder.make_shared(self._above) as above,
            above.child(os.path.basename(self.beside), make=True) as beside,
        ):
            # Whoever made it may have died before it was durable.
            above.sync()
            with exclusive(beside.fd, self.path):
                if above.stat(self._name) is None:
                    self._build(above, beside)

    def _build(self, above: Folder, beside: Folder) -> None:
        building = f".new-{self.runtime.token()}"
        for left in beside.names():
            if left.startswith(".new-"):
                beside.remove(left)
        beside.create(building, b"")
        with self.translating():
            made = apsw.Connection(
                f"{resolved(self.beside, building)}", flags=_FLAGS | apsw.SQLITE_OPEN_READWRITE
            )
            try:
                configure(made, _WAIT_MS)
                # Room that a purged session leaves can be given back.
                made.pragma("auto_vacuum", "incremental")
                made.pragma("journal_mode", "wal")
                made.pragma("synchronous", "full")
                made.execute("BEGIN IMMEDIATE")
                schema.create(made, self.kind, self.runtime.token(16), self.runtime.now_ms())
                crash.point("sqlite.create")
                made.execute("COMMIT")
            finally:
                made.close(True)
        beside.move(building, above, self._name)
        above.sync()
        beside.sync()

    def _refuse_if_untrusted(self) -> None:
        if self.untrusted:
            raise StorageUnavailable(self.path, "was opened for reading only")

    # --- connections -----------------------------------------------------------------------------

    def _connect(self, file: DatabaseFile, flags: int, query: str = "") -> apsw.Connection:
        name = file.path
        if query:
            name, flags = f"file:{urllib.parse.quote(name)}?{query}", flags | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags | _FLAGS)
        try:
            if not file.still_there():
                raise Moved
            configure(connection, _WAIT_MS)
            schema.check(connection, self.path)
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _there(self) -> _Identity:
        status = self._place.lstat()
        return status.st_dev, status.st_ino

    def _writer(self) -> _Writer:
        """A connection that may write to the file that is there now."""
        for _ in range(_TRIES):
            with suppress(Moved):
                return self._idle_writer(self._there()) or self._new_writer()
        raise replaced(self.path)

    def _idle_writer(self, there: _Identity) -> _Writer | None:
        with suppress(IndexError):
            while True:
                writer = self._idle.pop()
                if writer.identity == there:
                    return writer
                writer.connection.close(True)
        return None

    def _new_writer(self) -> _Writer:
        with ExitStack() as stack:
            file = self._present(stack)
            connection = self._connect(file, apsw.SQLITE_OPEN_READWRITE)
            try:
                mode = connection.pragma("journal_mode", "wal")
                if mode != "wal":
                    raise StorageUnavailable(self.path, f"stays in journal mode {mode}")
                connection.pragma("synchronous", "full")
            except BaseException:
                connection.close(True)
                raise
            return _Writer(connection, file.identity)

    def _give_back(self, writer: _Writer) -> None:
        """Keep a connection that may write for the next one who needs it."""
        if len(self._idle) < _IDLE_MAX:
            self._idle.append(writer)
        else:
            writer.connection.close(True)

    def close(self) -> None:
        """Close what is idle; the last to close writes the WAL back into the file."""
        with suppress(IndexError):
            while True:
                writer = self._idle.pop()
                with suppress(apsw.Error):
                    writer.connection.close(True)

    # --- reading ---------------------------------------------------------------------------------

    def open_to_read(self) -> Reading:
        """A connection to read with; `close_reading` takes it back.

        Called within `undivided`.

        Raises:
            FileNotFoundError: there is no file.
            Unread: it cannot be read without writing.

        """
        if self._idle:
            writer = self._writer()
            return Reading(writer.connection, writer=writer)
        with ExitStack() as stack:
            file = self._present(stack)
            journal = file.folder.stat(f"{self._name}-journal")
            if journal is not None and journal.st_size:
                raise Unread("a writer died in a commit, which the next writer rolls back")
            stillness = self._stillness()
            if stillness is not None:
                opened = self._connect(file, apsw.SQLITE_OPEN_READONLY, "immutable=1")
                if self._stillness() == stillness:
                    return Reading(opened, stillness)
                opened.close(True)
            return Reading(self._open_beside_writers(file))

    def _open_beside_writers(self, file: DatabaseFile) -> apsw.Connection:
        if not self._has_wal():
            # Nobody seems to write, and somebody just did: what SQLite makes beside the file to see
            # them goes again when this is closed, which only one that may write can do.
            return self._connect(file, apsw.SQLITE_OPEN_READWRITE)
        try:
            live = self._connect(file, apsw.SQLITE_OPEN_READONLY)
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            raise StorageUnavailable(
                self.path,
                "its newest events are in the WAL beside it, which cannot be read where nothing "
                "may be written",
                hint=f"copy it together with {self._name}-wal into a folder of yours, mode 700",
            ) from error
        # The last one to close would write the WAL back, and remove it.
        live.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        return live

    def _has_wal(self) -> bool:
        with suppress(OSError):
            return bool(Path(f"{self.path}-wal").lstat().st_size)
        return False

    def _stillness(self) -> tuple[int, ...] | None:
        """The state of a file that nobody writes to; None if somebody may."""
        if self._has_wal():
            return None
        try:
            status = self._place.lstat()
        except OSError:
            return None
        # The file system's clock is the machine's, whatever clock was injected.
        if SYSTEM.now_ms() - status.st_ctime_ns // 1_000_000 <= _TICK_MS:
            return None
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return (status.st_dev, status.st_ino, status.st_size, *times)

    def still(self, reading: Reading) -> bool:
        """Whether what was read is of one state."""
        return reading.stillness is None or self._stillness() == reading.stillness

    def close_reading(self, reading: Reading) -> None:
        """Take back what `open_to_read` gave."""
        if reading.writer is not None:
            self._give_back(reading.writer)
        else:
            reading.connection.close(True)

    def read(self, question: Callable[[apsw.Connection], T]) -> T:
        """The answer to a question, from one state of the file.

        Raises:
            FileNotFoundError: there is no file.
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be read.

        """
        for _ in range(_TRIES):
            with suppress(Moved), undivided(), self.translating():
                reading = self.open_to_read()
                try:
                    reading.connection.execute("BEGIN")
                    with _rolling_back(reading.connection):
                        answer = question(reading.connection)
                    if self.still(reading):
                        return answer
                finally:
                    self.close_reading(reading)
        raise replaced(self.path)

    # --- writing ---------------------------------------------------------------------------------

    @contextmanager
    def transaction(self, unknown: Callable[[], None] = lambda: None) -> Iterator[apsw.Connection]:
        """A connection within a transaction that is durable when the context is left.

        `unknown` is called if the commit itself fails: whether it happened cannot be told then.

        Raises:
            FileNotFoundError: there is no file.
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be written.
            StorageFull: nothing was changed.

        """
        self._refuse_if_untrusted()
        with undivided(), self.translating():
            writer = self._writer()
            try:
                with self._within(writer, unknown) as connection:
                    yield connection
            except (apsw.BusyError, PerdureError):
                self._give_back(writer)
                raise
            except BaseException:
                # Whatever it believes of the file: the next one looks for itself.
                with suppress(apsw.Error):
                    writer.connection.close(True)
                raise
            self._give_back(writer)

    @contextmanager
    def _within(self, writer: _Writer, unknown: Callable[[], None]) -> Iterator[apsw.Connection]:
        connection = writer.connection
        connection.execute("BEGIN IMMEDIATE")
        with _rolling_back(connection):
            if self._there() != writer.identity:
                # Nobody would find what is stored in the file that was there before.
                raise replaced(self.path)
            crash.point("sqlite.begun")
            before = connection.total_changes()
            try:
                yield connection
                crash.point("sqlite.changed")
                self._commit(connection, unknown)
            except apsw.Error as error:
                told = meaning(error, connection.system_errno, self.path, _WAIT_MS)
                raise self._told(told) from error
            if connection.total_changes() == before:
                self.settle()
            crash.point("sqlite.committed")

    def settle(self) -> None:
        """Make durable what is found in the file: who committed it may have died before the sync.

        Raises:
            StorageUnavailable: the medium refuses.

        """
        sync_through(resolved(self._above, self._name), self.path)

    def shrink(self) -> None:
        """Give room back that nothing uses any more; it may as well fail."""
        with suppress(PerdureError), undivided(), self.translating():
            writer = self._writer()
            try:
                writer.connection.execute("PRAGMA incremental_vacuum").fetchall()
            finally:
                self._give_back(writer)

    def _commit(self, connection: apsw.Connection, unknown: Callable[[], None]) -> None:
        try:
            connection.execute("COMMIT")
        except apsw.FullError:
            raise
        except apsw.Error:
            unknown()
            raise

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Let errors of SQLite become errors of the tree, and `Moved`."""
        try:
            yield
        except apsw.Error as error:
            raise self._told(meaning(error, 0, self.path, _WAIT_MS)) from error
        except (Nonsense, Unread) as error:
            raise self._told(error) from error
        except UnicodeDecodeError as error:
            # A damaged page may turn bytes into text.
            raise self._told(Nonsense(str(error))) from error

    def _told(self, error: Exception) -> Exception:
        if isinstance(error, Nonsense):
            return StorageUnavailable(
                self.path,
                f"is damaged: {error}",
                hint="put a backup in its place; `sqlite3 FILE .recover` saves what can be read",
            )
        if isinstance(error, Unread):
            hint = "open one of its sessions for writing, which rolls it back"
            return StorageUnavailable(self.path, str(error), hint=hint)
        return error


@contextmanager
def _rolling_back(connection: apsw.Connection) -> Iterator[None]:
    try:
        yield
    finally:
        if connection.in_transaction:
            with suppress(apsw.Error):
                connection.execute("ROLLBACK")


_open_media: "weakref.WeakSet[Medium]" = weakref.WeakSet()


def _close_all() -> None:
    for medium in list(_open_media):
        medium.close()


forks.before_fork(_close_all)
