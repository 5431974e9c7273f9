"""Where a derived database is, and one that is in memory."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import apsw

from perdure.databases.derived.files import VERSION_BYTES, WAIT_MS
from perdure.databases.derived.tables import Tables
from perdure.databases.forks import undivided
from perdure.databases.opening import configure, renew
from perdure.errors import StorageUnavailable
from perdure.runtime import Runtime

__all__ = ["MemoryPlace", "Place", "Question", "begin_anew", "prepare", "roll_back"]

T = TypeVar("T")
Question = Callable[[apsw.Connection], T]


class Place(ABC):
    """Where it is. Methods may be called from any thread."""

    path: str | None = None

    @abstractmethod
    def read(self, question: Question[T]) -> T:
        """The answer from one state of it; from an empty one if there is none."""

    @abstractmethod
    def write(self, change: Question[T], *, make: bool = True) -> T | None:
        """What a change gives that is made in one transaction.

        Without `make` it is None, and nothing is changed, where there is none yet. `change` may
        be called more than once, each time on what is stored then.
        """

    @abstractmethod
    def begin_anew(self) -> None:
        """Forget everything that is stored."""

    @abstractmethod
    def size(self) -> int:
        """Bytes that it takes."""

    @abstractmethod
    def close(self) -> None:
        """Release what is open; what comes later opens it again."""


def prepare(connection: apsw.Connection, tables: Tables, wait_ms: int = WAIT_MS) -> None:
    """What every connection needs."""
    configure(connection, wait_ms)
    tables.prepare(connection)


def roll_back(connection: apsw.Connection) -> None:
    """Take back what a transaction did, if it was begun and has not ended."""
    with suppress(apsw.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def begin_anew(connection: apsw.Connection, tables: Tables, version: int | None) -> None:
    """Begin anew within the file, and go on counting versions if there is no new beginning."""
    if version is None:
        version = tables.counted(connection)
    tables.drop(connection)
    tables.create(connection, version)


@contextmanager
def _in_memory() -> Iterator[None]:
    """Let errors of SQLite become errors of the tree."""
    try:
        yield
    except apsw.Error as error:
        raise StorageUnavailable("a database in memory", str(error)) from error


class MemoryPlace(Place):
    """One in memory. It is gone when it is closed."""

    def __init__(self, tables: Tables, runtime: Runtime) -> None:
        """Nothing is made yet."""
        self._tables = tables
        self._runtime = runtime
        self._lock = threading.RLock()
        self._connection: apsw.Connection | None = None

    def _opened(self) -> apsw.Connection:
        if self._connection is None:
            made = apsw.Connection(":memory:")
            prepare(made, self._tables)
            made.execute("BEGIN")
            self._tables.create(made, int(self._runtime.token(VERSION_BYTES), 16))
            made.execute("COMMIT")
            self._connection = made
        renew(self._connection)
        return self._connection

    def read(self, question: Question[T]) -> T:
        """See `Place.read`."""
        with undivided(), self._lock, _in_memory():
            return question(self._opened())

    def write(self, change: Question[T], *, make: bool = True) -> T | None:  # noqa: ARG002
        """See `Place.write`."""
        with undivided(), self._lock, _in_memory():
            connection = self._opened()
            try:
                connection.execute("BEGIN")
                answer = change(connection)
                connection.execute("COMMIT")
            finally:
                roll_back(connection)
            return answer

    def begin_anew(self) -> None:
        """See `Place.begin_anew`."""
        self.write(lambda connection: begin_anew(connection, self._tables, None))

    def size(self) -> int:
        """See `Place.size`."""
        with undivided(), self._lock:
            connection = self._opened()
            return int(connection.pragma("page_count")) * int(connection.pragma("page_size"))

    def close(self) -> None:
        """See `Place.close`."""
        with undivided(), self._lock:
            if self._connection is not None:
                self._connection.close(True)
                self._connection = None
