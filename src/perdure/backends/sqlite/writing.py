"""Connections that may write, kept for the next who needs one, and the transactions on them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import apsw

from perdure.backends.sqlite.file import WAIT_MS, StoreFile
from perdure.databases.forks import undivided
from perdure.databases.meaning import Moved, meaning, replaced
from perdure.databases.opening import Leash
from perdure.durable import crash
from perdure.errors import PerdureError, StorageFull

__all__ = ["TRIES", "Change", "Writer", "Writers"]

TRIES = 4
"""So often an operation begins anew that finds another file at the name."""

_IDLE_MAX = 4


class Writer(NamedTuple):
    """A connection that may write.

    Attributes:
        connection: the connection.
        identity: device and inode of the file that it is open on.
        cursor: for the statements of a commit: the connection would make one for each.
        leash: to be renewed for each operation.

    """

    connection: apsw.Connection
    identity: tuple[int, int]
    cursor: apsw.Cursor
    leash: Leash


class Writers(StoreFile, ABC):
    """A file and the idle connections to it. Methods may be called from any thread."""

    _idle: list[Writer]

    def idle_writer(self) -> Writer | None:
        """One that is kept, on whatever file was at the name when it was opened."""
        try:
            writer = self._idle.pop()
        except IndexError:
            return None
        writer.leash.steps = 0
        return writer

    @abstractmethod
    def new_writer(self) -> Writer:
        """One on the file that is at the name.

        Raises:
            FileNotFoundError: there is none.
            Moved: it is another one by now.

        """

    def there(self) -> tuple[int, int]:
        """Device and inode of the file that is at the name now.

        Raises:
            FileNotFoundError: there is none.

        """
        status = self.look()
        return status.st_dev, status.st_ino

    def give_back(self, writer: Writer) -> None:
        """Keep a connection that may write for the next one who needs it."""
        # A signal may have come between the beginning of a transaction and what ends it.
        if len(self._idle) < _IDLE_MAX and not writer.connection.in_transaction:
            self._idle.append(writer)
        else:
            writer.connection.close(True)

    def commit(self, writer: Writer, unknown: Callable[[], None]) -> None:
        """Commit; `unknown` is called if it fails and nobody can tell whether it happened.

        Raises:
            apsw.Error: it failed.

        """
        try:
            writer.cursor.execute("COMMIT")
        except apsw.FullError:
            raise
        except apsw.Error as error:
            if not isinstance(self.meaning(error, writer), StorageFull) or _synced(error):
                unknown()
            raise

    def meaning(self, error: apsw.Error, writer: Writer) -> Exception:
        """What an error within a transaction means."""
        return meaning(error, writer.connection.system_errno, self.path, WAIT_MS)

    @abstractmethod
    def settle(self) -> None:
        """Make durable what is found in the file: who committed it may have died before the sync.

        Raises:
            StorageUnavailable: the medium refuses.

        """


class Change:
    """A transaction that is durable when its context is left; see `Medium.transaction`.

    As a class, with its parts in one place: it is entered for every commit, and what a generator
    and contexts within each other cost is a good part of what a commit costs beside its sync.

    Attributes:
        cursor: runs statements at less cost than the connection.

    """

    __slots__ = ("_before", "_file", "_passing", "_synced", "_unknown", "_writer", "cursor")

    cursor: apsw.Cursor

    def __init__(self, file: Writers, unknown: Callable[[], None], *, synced: bool) -> None:
        """Begin nothing yet."""
        self._file = file
        self._unknown = unknown
        self._synced = synced
        self._passing = undivided()
        self._writer: Writer | None = None
        self._before = 0

    def __enter__(self) -> apsw.Connection:
        """The connection, within the transaction."""
        self._passing.__enter__()
        try:
            writer = self._begin()
            self._before = writer.connection.total_changes()
            self.cursor = writer.cursor
        except BaseException as error:
            self._undo(error, self._file.meant_by)
            raise
        return writer.connection

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Commit; after an error roll back, and say what it means."""
        if error is not None:
            self._undo(error, self._meant_by)
            return
        try:
            self._end()
        except BaseException as failure:
            self._undo(failure, self._meant_by)
            raise
        self._passing.__exit__(None, None, None)

    def _begin(self) -> Writer:
        """Begin on the file that is at the name: nobody would find what another one stores."""
        file = self._file
        file.refuse_if_untrusted()
        for _ in range(_IDLE_MAX + TRIES):
            with suppress(Moved):
                # Looked at once it is begun, and not before as well: nothing is done by then.
                writer = self._writer = file.idle_writer() or file.new_writer()
                if not self._synced:
                    # Of the WAL only: what is in it is synced before it comes into the file.
                    writer.connection.pragma("synchronous", "normal")
                try:
                    writer.cursor.execute("BEGIN IMMEDIATE")
                except apsw.Error:
                    if file.there() == writer.identity:
                        raise
                else:
                    if file.there() == writer.identity:
                        crash.point("sqlite.begun")
                        return writer
                self._drop(writer)
        raise replaced(file.path)

    def _end(self) -> None:
        writer = self._writer
        if writer is None:
            return
        crash.point("sqlite.changed")
        self._file.commit(writer, self._unknown)
        if writer.connection.total_changes() == self._before:
            self._file.settle()
        crash.point("sqlite.committed")
        if not self._synced:
            writer.connection.pragma("synchronous", "full")
        self._writer = None
        self._file.give_back(writer)

    def _undo(
        self, error: BaseException, meant_by: Callable[[BaseException], Exception | None]
    ) -> None:
        """Take back what was done, and raise what the error means if it is none of ours."""
        try:
            told = meant_by(error)
        finally:
            try:
                self._give_up(error)
            finally:
                self._passing.__exit__(None, None, None)
        if told is not None:
            raise told from error

    def _meant_by(self, error: BaseException) -> Exception | None:
        """What an error within the transaction means."""
        if self._writer is not None and isinstance(error, apsw.Error):
            return self._file.told(self._file.meaning(error, self._writer))
        return self._file.meant_by(error)

    def _give_up(self, error: BaseException) -> None:
        """Who was only made to wait, or refused, may use the connection again."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        with suppress(apsw.Error):
            if writer.connection.in_transaction:
                writer.connection.execute("ROLLBACK")
        sqlite = error if isinstance(error, apsw.Error) else error.__cause__
        sound = self._synced and isinstance(error, apsw.BusyError | PerdureError)
        if sound and (sqlite is None or isinstance(sqlite, apsw.BusyError)):
            self._file.give_back(writer)
            return
        # Whatever it believes of the file: the next one looks for itself.
        self._drop(writer)

    def _drop(self, writer: Writer) -> None:
        with suppress(apsw.Error):
            writer.connection.close(True)
        self._writer = None


def _synced(error: apsw.Error) -> bool:
    """Whether a commit came as far as its sync: it may be found then by whoever looks."""
    return getattr(error, "extendedresult", 0) != apsw.SQLITE_IOERR_WRITE
