"""Reading much, piece by piece, from one state of the file.

A snapshot keeps one connection with one read transaction, so that what is deleted meanwhile is read
to its end. No connection outlives a fork, and a file that nobody wrote to may get a writer: the
snapshot goes on with a new connection then. What it reads is never changed once it is stored, only
removed, and that is told.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw

from perdure.backends.sqlite import schema
from perdure.backends.sqlite.medium import Medium, Reading
from perdure.databases.forks import Closing, undivided
from perdure.databases.meaning import NONSENSE, Moved
from perdure.databases.opening import renew
from perdure.errors import StorageUnavailable

__all__ = ["Snapshot"]

_BYTES = 1024 * 1024
_ROWS = 1000
_TRIES = 4


class Snapshot:
    """One state of a file, to be asked several times; close it."""

    def __init__(self, medium: Medium) -> None:
        """Open nothing yet."""
        self._medium = medium
        self._reading: Reading | None = None
        self._sure = False
        _open_snapshots.add(self)

    def rows(self, sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The first rows of an answer: at least one if there is any, and about a MiB at most.

        Raises:
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be read.

        """
        with self._medium.translating():
            return self.raw(sql, bindings)

    def pages(
        self, sql: str, bindings: tuple[Any, ...], kinds: Sequence[type], last: int | str
    ) -> Iterator[list[tuple[Any, ...]]]:
        """All rows of an answer by and by, in order of their first cell, from behind `last` on.

        The last binding is the cell to go on behind.

        Raises:
            As `rows`.

        """
        try:
            while rows := self.rows(sql, (*bindings, last)):
                with self._medium.translating():
                    for row in rows:
                        schema.expect(row, kinds)
                    schema.expect_behind(last, (row[0] for row in rows))
                yield rows
                last = rows[-1][0]
        finally:
            self.close()

    def parts(self, sql: str, bindings: tuple[Any, ...]) -> Iterator[bytes]:
        """Bytes that stand in rows of one cell, in order; the last binding counts them from 0.

        Raises:
            As `rows`.

        """
        try:
            part = 0
            while rows := self.rows(sql, (*bindings, part)):
                with self._medium.translating():
                    schema.expect(rows[0], (bytes,))
                yield rows[0][0]
                part += 1
        finally:
            self.close()

    def raw(self, sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """As `rows`, for callers who make something of what SQLite calls damage.

        Raises:
            apsw.Error: one of `NONSENSE`.
            As `rows`.

        """
        try:
            return self._answer(sql, bindings)
        except NONSENSE:
            if self._sure:
                raise
            # SQLite says so as well of a page that cannot be read just now.
            self._medium.read_through()
            self._sure = True
            return self._answer(sql, bindings)

    def _answer(self, sql: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        for _ in range(_TRIES):
            with (
                suppress(Moved, FileNotFoundError),
                undivided(),
                self._medium.translating(NONSENSE),
            ):
                reading = self._open()
                renew(reading.connection)
                found = _some(reading.connection.execute(sql, bindings))
                if self._medium.still(reading):
                    return found
                self.close()
        raise self.changed()

    def _open(self) -> Reading:
        if self._reading is None:
            reading = self._medium.open_to_read()
            self._reading = reading
            reading.connection.execute("BEGIN")
        return self._reading

    def changed(self) -> StorageUnavailable:
        """What was to be read has been removed; the same call may succeed, or tell more, later."""
        error = StorageUnavailable(
            self._medium.path, "was changed while it was read", hint="read it again"
        )
        error.retryable = True
        return error

    def close(self) -> None:
        """End the transaction and give the connection back."""
        # Within it from the start: between two owners no fork would find it.
        with undivided():
            reading, self._reading = self._reading, None
            if reading is not None:
                with suppress(apsw.Error):
                    reading.connection.execute("ROLLBACK")
                self._medium.close_reading(reading)

    def __del__(self) -> None:
        """A reader that was dropped in the middle keeps nothing open."""
        with suppress(apsw.Error):
            self.close()


def _some(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found, size = [], 0
    try:
        for row in rows:
            found.append(row)
            size += sum(len(cell) for cell in row if isinstance(cell, bytes))
            if size >= _BYTES or len(found) >= _ROWS:
                break
    except UnicodeDecodeError as error:
        # A damaged page may turn bytes into text.
        raise apsw.CorruptError(str(error)) from error
    return found


_open_snapshots: Closing[Snapshot] = Closing()
