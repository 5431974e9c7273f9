"""The connections to the file of a store, and their transactions.

A process that writes keeps a few connections open and reads through them as well. One that only
reads opens the file for each question and changes no byte of it: where nobody writes (there is no
WAL), as a file that does not change, which is checked afterwards; else like any other reader, but
without the checkpoint that the last one to close would make.
"""

import os
import urllib.parse
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

import apsw

from perdure.backends.sqlite import schema
from perdure.backends.sqlite.file import FLAGS, WAIT_MS
from perdure.backends.sqlite.writing import TRIES, Change, Writer, Writers
from perdure.databases.forks import Closing, undivided
from perdure.databases.meaning import Moved, Unread, replaced
from perdure.databases.network import refuse_network
from perdure.databases.opening import (
    DatabaseFile,
    configure,
    leash_of,
    read_through,
    resolved,
    sync_through,
)
from perdure.errors import PerdureError, StorageUnavailable
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Medium", "Reading"]

T = TypeVar("T")

_TICK_MS = 20
"""Two changes of a file within a tick of the kernel's clock (at most 10 ms) show the same time. A
writer that closed just now is waited for so long; nobody else is waited for."""


class Reading(NamedTuple):
    """A connection to read with, and what tells whether the file stood still meanwhile.

    Attributes:
        connection: the connection; its transaction is the reader's to begin.
        stillness: for a file that nobody wrote to when it was opened, its state; else None.
        writer: the connection is one that may write, and goes back to the others.

    """

    connection: apsw.Connection
    stillness: tuple[int, ...] | None = None
    writer: Writer | None = None


class Medium(Writers):
    """One file; shared by all namespaces. Methods may be called from any thread."""

    def __init__(
        self, path: str, kind: schema.Kind, runtime: Runtime, *, untrusted: bool = False
    ) -> None:
        """Name the file; nothing is opened or created. For the rest see `StoreFile`."""
        super().__init__(path, kind, runtime, untrusted=untrusted)
        self._idle: list[Writer] = []
        _open_media.add(self)

    # --- connections -----------------------------------------------------------------------------

    def _connect(self, file: DatabaseFile, flags: int, query: str = "") -> apsw.Connection:
        name = file.path
        if query:
            name, flags = f"file:{urllib.parse.quote(name)}?{query}", flags | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(name, flags=flags | FLAGS)
        try:
            if not file.still_there():
                raise Moved
            configure(connection, WAIT_MS)
            schema.check(connection, self.path)
        except BaseException:
            connection.close(True)
            raise
        return connection

    def _writer(self) -> Writer:
        """A connection that may write to the file that is there now."""
        for _ in range(TRIES):
            with suppress(Moved):
                there = self.there()
                while (writer := self.idle_writer()) is not None:
                    if writer.identity == there:
                        return writer
                    writer.connection.close(True)
                return self.new_writer()
        raise replaced(self.path)

    def new_writer(self) -> Writer:
        """See `Writers.new_writer`."""
        with ExitStack() as stack:
            file = self.present(stack)
            refuse_network(self._above, self.path)
            connection = self._connect(file, apsw.SQLITE_OPEN_READWRITE)
            try:
                if connection.readonly("main"):
                    # SQLite opens so what it cannot open to write to.
                    raise StorageUnavailable(self.path, "cannot be opened to be written")
                mode = connection.pragma("journal_mode", "wal")
                if mode != "wal":
                    raise StorageUnavailable(self.path, f"stays in journal mode {mode}")
                connection.pragma("synchronous", "full")
            except BaseException:
                connection.close(True)
                raise
            leash = leash_of(connection)
            return Writer(connection, file.identity, connection.cursor(), leash)

    def close(self) -> None:
        """Close what is idle; the last to close writes the WAL back into the file."""
        with undivided(), suppress(IndexError):
            while True:
                writer = self._idle.pop()
                with suppress(apsw.Error):
                    writer.connection.close(True)

    def complete(self) -> None:
        """Bring into the file what a writer that died left in the WAL.

        While somebody else has it open the WAL stays.

        Raises:
            UnsafeFile, FormatUnsupported, StorageFull, StorageUnavailable: it cannot be written.

        """
        self.refuse_if_untrusted()
        self.close()
        with suppress(FileNotFoundError), undivided(), self.translating():
            connection = self._writer().connection
            try:
                # Closing would do it as well, and would not say what kept it from it.
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            finally:
                connection.close(True)

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
            file = self.present(stack)
            journal = file.folder.stat(f"{self._name}-journal")
            if journal is not None and journal.st_size:
                raise Unread("a writer died in a commit, which the next writer rolls back")
            stillness = self._at_rest()
            if stillness is None:
                return Reading(self._open_beside_writers(file))
            opened = self._connect(file, apsw.SQLITE_OPEN_READONLY, "immutable=1")
            if self._stillness() == stillness:
                return Reading(opened, stillness)
            opened.close(True)
            raise Moved

    def _open_beside_writers(self, file: DatabaseFile) -> apsw.Connection:
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
            status = os.lstat(self.path)
        except OSError:
            return None
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return (status.st_dev, status.st_ino, status.st_size, *times)

    def _at_rest(self) -> tuple[int, ...] | None:
        """As `_stillness`, when a further change would show."""
        state = self._stillness()
        # The file system's clock is the machine's, whatever clock was injected.
        if state is not None and SYSTEM.now_ms() - state[-1] // 1_000_000 <= _TICK_MS:
            SYSTEM.sleep(_TICK_MS / 1000)
            # Who changes it all the time is somebody to read beside.
            return state if self._stillness() == state else None
        return state

    def still(self, reading: Reading) -> bool:
        """Whether what was read is of one state."""
        return reading.stillness is None or self._stillness() == reading.stillness

    def close_reading(self, reading: Reading) -> None:
        """Take back what `open_to_read` gave."""
        if reading.writer is not None:
            self.give_back(reading.writer)
        else:
            reading.connection.close(True)

    def read(self, question: Callable[[apsw.Connection], T]) -> T:
        """The answer to a question, from one state of the file.

        Raises:
            FileNotFoundError: there is no file.
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be read.

        """
        for _ in range(TRIES):
            with suppress(Moved), undivided(), self.translating():
                reading = self.open_to_read()
                try:
                    try:
                        reading.connection.execute("BEGIN")
                        answer = question(reading.connection)
                    finally:
                        _roll_back(reading.connection)
                    if self.still(reading):
                        return answer
                finally:
                    self.close_reading(reading)
        raise replaced(self.path)

    # --- writing ---------------------------------------------------------------------------------

    def transaction(
        self, unknown: Callable[[], None] = lambda: None, *, synced: bool = True
    ) -> Change:
        """A connection within a transaction that is durable when the context is left.

        `unknown` is called if the commit itself fails: whether it happened cannot be told then.
        One that is not `synced` becomes durable with the next that is; a loss of power before that
        takes it back, whole.

        Raises:
            FileNotFoundError: there is no file.
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be written.
            StorageFull: nothing was changed.

        """
        return Change(self, unknown, synced=synced)

    def settle(self) -> None:
        """See `Writers.settle`."""
        sync_through(resolved(self._above, self._name), self.path)

    def read_through(self) -> None:
        """Read all of the file, to know whether it is the medium that fails.

        Raises:
            StorageUnavailable: it does.

        """
        read_through(resolved(self._above, self._name), self.path)

    def shrink(self) -> None:
        """Give room back that nothing uses any more; it may as well fail."""
        with suppress(PerdureError), undivided(), self.translating():
            writer = self._writer()
            try:
                writer.connection.execute("PRAGMA incremental_vacuum").fetchall()
            finally:
                self.give_back(writer)


def _roll_back(connection: apsw.Connection) -> None:
    """Take back what a transaction did, if it was begun and has not ended."""
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


_open_media: Closing[Medium] = Closing()
