"""Rows of a table, found by the beginning of their key: three operations that any form offers."""

import bisect
from collections.abc import Iterable
from typing import NamedTuple, Protocol

__all__ = ["Cell", "MemoryRows", "Row", "Rows", "Table"]

Cell = bytes | int | None
Row = tuple[Cell, ...]


class Table(NamedTuple):
    """A table.

    Attributes:
        name: its name.
        columns: name and SQL type of each column.
        key: how many of the columns, from the first, are the key.

    """

    name: str
    columns: tuple[str, ...]
    key: int


class Rows(Protocol):
    """The rows of all tables within one transaction. Keys are compared byte by byte."""

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """The rows whose key begins so, in the order of their keys."""

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows; one with the same key gives way."""

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Remove the rows whose key begins so."""


class MemoryRows:
    """Rows in this process."""

    def __init__(self) -> None:
        """Start empty."""
        self._keys: dict[str, list[tuple[Cell, ...]]] = {}
        self._rows: dict[tuple[str, tuple[Cell, ...]], Row] = {}

    def _found(self, table: Table, beginning: tuple[Cell, ...]) -> tuple[int, int]:
        """Where the keys stand that begin so."""
        keys = self._keys.get(table.name, [])
        # No part of a key is NULL, and parts at one place are of one type: they can be compared.
        start = bisect.bisect_left(keys, beginning)
        end = start
        while end < len(keys) and keys[end][: len(beginning)] == beginning:
            end += 1
        return start, end

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """The rows whose key begins so, in the order of their keys."""
        start, end = self._found(table, beginning)
        return [self._rows[table.name, key] for key in self._keys.get(table.name, [])[start:end]]

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows; one with the same key gives way."""
        for row in rows:
            key = row[: table.key]
            if (table.name, key) not in self._rows:
                start, _end = self._found(table, key)
                self._keys.setdefault(table.name, []).insert(start, key)
            self._rows[table.name, key] = row

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Remove the rows whose key begins so."""
        start, end = self._found(table, beginning)
        keys = self._keys.get(table.name, [])
        for key in keys[start:end]:
            del self._rows[table.name, key]
        del keys[start:end]
