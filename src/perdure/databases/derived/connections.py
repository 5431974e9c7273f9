"""A derived database in a file: the connections to it, and the transactions on them.

A few idle connections are kept. Each is used only while the file that it is open on is the one at
the name, and none lives through a fork.
"""

import urllib.parse
from contextlib import ExitStack, suppress
from typing import NamedTuple, TypeVar

import apsw

from perdure.databases.derived.files import FLAGS, WAIT_MS, DerivedFile, Stillness, meant_by
from perdure.databases.derived.places import (
    MemoryPlace,
    Place,
    Question,
    begin_anew,
    prepare,
    roll_back,
)
from perdure.databases.derived.tables import Tables
from perdure.databases.forks import Closing, undivided
from perdure.databases.meaning import Moved, Nonsense, Unread, replaced
from perdure.databases.network import refuse_network
from perdure.databases.opening import DatabaseFile, renew
from perdure.errors import StorageFull, StorageUnavailable
from perdure.runtime import SYSTEM, Runtime

__all__ = ["FilePlace"]

T = TypeVar("T")

_TRIES = 4
_IDLE_MAX = 4
_TICK_MS = 20
"""Two changes of a file within a tick of the kernel's clock (at most 10 ms) show the same time."""

_CACHE_KIB = 8_192
_CHECKPOINT_PAGES = 2_000
_WAL_BYTES_MAX = 32 * 1024 * 1024


class _Held(NamedTuple):
    """A connection, and the file that it is open on.

    Attributes:
        connection: the connection.
        identity: device and inode of the file.
        stillness: its state, if it was opened as one that does not change; else None.
        writes: whether it may write.
        shape: SQLite's count of changes of the tables, when they were checked.

    """

    connection: apsw.Connection
    identity: tuple[int, int]
    stillness: Stillness | None
    writes: bool
    shape: int


class FilePlace(Place):
    """One in a file."""

    def __init__(self, folder: str, tables: Tables, runtime: Runtime, *, read_only: bool) -> None:
        """Name the folder; nothing is opened."""
        self._tables = tables
        self._file = DerivedFile(folder, tables, runtime)
        self.path = self._file.path
        self._read_only = read_only
        self._idle: list[_Held] = []
        self._damaged: tuple[int, int] | None = None
        self._nothing = MemoryPlace(tables, runtime)
        _open_places.add(self)

    def size(self) -> int:
        """See `Place.size`."""
        return self._file.size()

    # --- connections ------------------------------------------------------------------------------

    def _held(self, *, writes: bool) -> _Held | None:
        """A connection to the file that is there now; None if there is none, or it is damaged.

        Raises:
            Moved: the file is another one by now.
            Nonsense, Unread: it cannot be read.

        """
        there = self._file.identity()
        if there != self._damaged:
            # Another file may get its number one day.
            self._damaged = None
        if there is None:
            return None
        if there == self._damaged:
            if writes:
                # What a reader met may lie where this change never comes.
                raise Nonsense("a reader found it damaged")
            return None
        with suppress(IndexError):
            while True:
                held = self._idle.pop()
                usable = held.identity == there and (held.writes or not writes)
                still = held.stillness is None or held.stillness == self._file.stillness()
                if usable and still:
                    renew(held.connection)
                    return held
                _close(held)
        with ExitStack() as stack:
            file = self._file.present(stack)
            if file is None:
                return None
            opened = None if self._read_only else self._open_to_write(file, must=writes)
            return opened or self._open_to_read(file)

    def _open_to_write(self, file: DatabaseFile, *, must: bool) -> _Held | None:
        """One that may write; without `must`, None where nothing can be written."""
        try:
            refuse_network(self._file.folder_path, self._file.path)
            return self._connect(file, apsw.SQLITE_OPEN_READWRITE, stillness=None)
        except (StorageFull, StorageUnavailable):
            if must:
                raise
            return None

    def _open_to_read(self, file: DatabaseFile) -> _Held:
        """One that creates nothing and changes nothing."""
        stillness = self._at_rest()
        if stillness is not None:
            held = self._connect(
                file, apsw.SQLITE_OPEN_READONLY, "immutable=1", stillness=stillness
            )
            if self._file.stillness() == stillness:
                return held
            _close(held)
            raise Moved
        if not self._file.has_shared_memory():
            raise Unread("to read what is in its WAL, files would have to be created")
        return self._connect(file, apsw.SQLITE_OPEN_READONLY, stillness=None)

    def _at_rest(self) -> Stillness | None:
        """The state of a file that nobody writes to, when a further change would show."""
        state = self._file.stillness()
        # The file system's clock is the machine's, whatever clock was injected.
        if state is not None and SYSTEM.now_ms() - state[-1] // 1_000_000 <= _TICK_MS:
            SYSTEM.sleep(_TICK_MS / 1000)
            return state if self._file.stillness() == state else None
        return state

    def _connect(
        self, file: DatabaseFile, flags: int, query: str = "", *, stillness: Stillness | None
    ) -> _Held:
        """A connection to exactly this file, its tables checked."""
        name = file.path
        if query:
            name, flags = f"file:{urllib.parse.quote(name)}?{query}", flags | apsw.SQLITE_OPEN_URI
        writes = bool(flags & apsw.SQLITE_OPEN_READWRITE)
        connection: apsw.Connection | None = None
        try:
            connection = apsw.Connection(name, flags=flags | FLAGS)
            prepare(connection, self._tables, WAIT_MS)
            # Until it is known that the WAL which it opens is that of its file.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.pragma("cache_size", -_CACHE_KIB)
            if writes:
                if connection.readonly("main"):
                    # SQLite opens so what it cannot open to write to.
                    raise StorageUnavailable(self._file.path, "cannot be opened to be written")
                mode = connection.pragma("journal_mode", "wal")
                if mode != "wal":
                    raise StorageUnavailable(self._file.path, f"stays in journal mode {mode}")
                connection.pragma("synchronous", "normal")
                connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
                connection.pragma("journal_size_limit", _WAL_BYTES_MAX)
            held = _Held(connection, file.identity, stillness, writes, -1)
            held = self._checked(held)
            if not file.still_there():
                raise Moved
            if writes:
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
            return held
        except BaseException as error:
            errno = 0 if connection is None else connection.system_errno
            if connection is not None:
                connection.close(True)
            told = meant_by(error, errno, self._file.path)
            if told is not None:
                raise (told if file.still_there() else Moved()) from error
            raise

    def _checked(self, held: _Held) -> _Held:
        """Look at the tables, unless they are those that were looked at before.

        Raises:
            Unread: they are those of an older version, or were filled by other rules.
            As `DerivedFile.refuse`.

        """
        connection = held.connection
        shape = int(connection.pragma("schema_version"))
        if shape == held.shape:
            return held
        version = int(connection.pragma("user_version"))
        self._file.refuse(int(connection.pragma("application_id")), version)
        if version < self._tables.version or not self._tables.check(connection):
            raise _Outdated
        return held._replace(shape=shape)

    def _give_back(self, held: _Held) -> None:
        # A signal may have come between the beginning of a transaction and what ends it.
        if len(self._idle) < _IDLE_MAX and not held.connection.in_transaction:
            self._idle.append(held)
        else:
            _close(held)

    def close(self) -> None:
        """See `Place.close`; the last to close writes the WAL back into the file."""
        with undivided(), suppress(IndexError):
            while True:
                _close(self._idle.pop())

    # --- reading ----------------------------------------------------------------------------------

    def read(self, question: Question[T]) -> T:
        """See `Place.read`."""
        with undivided():
            for _ in range(_TRIES):
                with suppress(Moved):
                    answer = self._read(question)
                    return self._nothing.read(question) if answer is None else answer[0]
        raise replaced(self._file.path)

    def _read(self, question: Question[T]) -> tuple[T] | None:
        """The answer; None if there is nothing that could give one.

        Raises:
            Moved: the file was exchanged meanwhile.

        """
        there = self._file.identity()
        try:
            try:
                return self._ask(question)
            except Nonsense:
                # SQLite calls it damage, too, when a page cannot be read.
                self._file.read_through()
                return self._ask(question)
        except (Unread, _Outdated):
            return None
        except Nonsense:
            if self._file.identity() != there:
                raise Moved from None
            self._damaged = there
            return None

    def _ask(self, question: Question[T]) -> tuple[T] | None:
        held = self._held(writes=False)
        if held is None:
            return None
        try:
            held.connection.execute("BEGIN")
            held = self._checked(held)
            answer = question(held.connection)
        except BaseException as error:
            self._give_up(held, error)
            raise
        roll_back(held.connection)
        if held.stillness is not None and self._file.stillness() != held.stillness:
            _close(held)
            raise Moved
        self._give_back(held)
        return (answer,)

    def _give_up(self, held: _Held, error: BaseException) -> None:
        """Take back what was begun, close the connection, and raise what the error means."""
        errno = held.connection.system_errno
        roll_back(held.connection)
        _close(held)
        told = meant_by(error, errno, self._file.path)
        if told is not None:
            raise (told if self._file.identity() == held.identity else Moved()) from error

    # --- writing ----------------------------------------------------------------------------------

    def write(self, change: Question[T], *, make: bool = True) -> T | None:
        """See `Place.write`."""
        if self._read_only:
            raise StorageUnavailable(self._file.path, "was opened for reading only")
        doubted: tuple[int, int] | None = None
        with undivided():
            for _ in range(2 * _TRIES + _IDLE_MAX):
                there = self._file.identity()
                try:
                    with suppress(Moved):
                        answer = self._write(change, make=make)
                        return None if answer is None else answer[0]
                except _Outdated:
                    self._renew()
                except Nonsense:
                    # SQLite calls it damage, too, when a page cannot be read.
                    self._file.read_through()
                    if there is not None and there in (doubted, self._damaged):
                        self._file.set_aside(there)
                    doubted = there
        raise replaced(self._file.path)

    def _write(self, change: Question[T], *, make: bool) -> tuple[T] | None:
        held = self._held(writes=True)
        if held is None:
            if not make and self._file.identity() is None:
                return None
            self._file.make()
            raise Moved
        connection = held.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            # Looked at once it is begun, and not before: nobody would find what another one stores.
            if self._file.identity() != held.identity:
                raise Moved
            held = self._checked(held)
            answer = change(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            self._give_up(held, error)
            raise
        if self._file.identity() != held.identity:
            _close(held)
            raise Moved
        self._give_back(held)
        return (answer,)

    def _renew(self) -> None:
        """Begin anew within a file of an older version, or that was filled by other rules."""
        with suppress(Moved, _Outdated, Nonsense), ExitStack() as stack:
            file = self._file.present(stack)
            if file is None:
                return
            connection: apsw.Connection | None = None
            try:
                connection = apsw.Connection(file.path, flags=FLAGS | apsw.SQLITE_OPEN_READWRITE)
                prepare(connection, self._tables, WAIT_MS)
                connection.execute("BEGIN IMMEDIATE")
                if self._file.identity() == file.identity:
                    self._renew_within(connection)
                connection.execute("COMMIT")
            except (apsw.Error, UnicodeDecodeError) as error:
                errno = 0 if connection is None else connection.system_errno
                told = meant_by(error, errno, self._file.path)
                if told is None or isinstance(told, Nonsense):
                    self._file.read_through()
                    self._file.set_aside(file.identity)
                    return
                raise told from error
            finally:
                if connection is not None:
                    roll_back(connection)
                    connection.close(True)

    def _renew_within(self, connection: apsw.Connection) -> None:
        version = int(connection.pragma("user_version"))
        self._file.refuse(int(connection.pragma("application_id")), version)
        # Otherwise somebody else was faster.
        if version < self._tables.version or not self._tables.check(connection):
            begin_anew(connection, self._tables, self._file.first_version())

    def begin_anew(self) -> None:
        """See `Place.begin_anew`."""
        self.write(lambda connection: begin_anew(connection, self._tables, None), make=False)
        with suppress(StorageUnavailable):
            self._give_room_back()

    def _give_room_back(self) -> None:
        with undivided(), suppress(Moved, Nonsense, Unread, _Outdated, apsw.Error):
            held = self._held(writes=True)
            if held is not None:
                try:
                    held.connection.execute("PRAGMA incremental_vacuum").fetchall()
                    held.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    self._give_back(held)


class _Outdated(Exception):
    """It is of an older version, or was filled by other rules."""


def _close(held: _Held) -> None:
    with suppress(apsw.Error):
        held.connection.close(True)


_open_places: Closing[FilePlace] = Closing()
