"""Rows in an SQLite file: the statements, and a checksum in every row.

SQLite keeps no checksum of its pages. A bit that flips in a stored hash would accuse a sound log,
so each row carries the CRC-32 of its table and cells, and one that does not match is corruption.
"""

import zlib
from collections.abc import Iterable
from functools import cache

import apsw
import msgspec

from perdure.evidence.facts import TABLES
from perdure.evidence.rows import Cell, Row, Table

__all__ = ["StoredRows", "check", "create"]

_encode = msgspec.msgpack.Encoder().encode


def create(connection: apsw.Connection, application_id: int, version: int) -> None:
    """Make the tables of an empty file, within the transaction that is open."""
    for table in TABLES:
        connection.execute(_create_table(table))
    connection.pragma("application_id", application_id)
    connection.pragma("user_version", version)


def check(connection: apsw.Connection) -> None:
    """Make sure that the tables are the ones that `create` makes.

    Raises:
        apsw.CorruptError: they are not.

    """
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")}
    for table in TABLES:
        if _create_table(table) not in found:
            raise apsw.CorruptError(f"the table {table.name} is not there, or is another one")


@cache
def _create_table(table: Table) -> str:
    columns = ", ".join((*table.columns, "crc INTEGER NOT NULL"))
    key = ", ".join(_names(table)[: table.key])
    return f"CREATE TABLE {table.name} ({columns}, PRIMARY KEY ({key})) STRICT, WITHOUT ROWID"


def _names(table: Table) -> list[str]:
    return [column.partition(" ")[0] for column in table.columns]


# The statements are made of the names in facts.py alone; values are bound.


@cache
def _where(table: Table, parts: int) -> str:
    conditions = (f"{name} = ?" for name in _names(table)[:parts])
    return f"FROM {table.name} WHERE {' AND '.join(conditions) or '1'}"


@cache
def _select(table: Table, parts: int) -> str:
    columns = ", ".join((*_names(table), "crc"))
    order = ", ".join(_names(table)[: table.key])
    return f"SELECT {columns} {_where(table, parts)} ORDER BY {order}"


@cache
def _insert(table: Table) -> str:
    columns = ", ".join((*_names(table), "crc"))
    places = ", ".join("?" * (len(table.columns) + 1))
    return f"INSERT OR REPLACE INTO {table.name} ({columns}) VALUES ({places})"  # noqa: S608


def _checksum(table: Table, row: Row) -> int:
    return zlib.crc32(_encode((table.name, row)))


class StoredRows:
    """The rows of a connection whose transaction is open."""

    def __init__(self, connection: apsw.Connection) -> None:
        """Work on `connection`."""
        self._connection = connection

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """The rows whose key begins so, in the order of their keys."""
        rows: list[Row] = []
        for stored in self._connection.execute(_select(table, len(beginning)), beginning):
            row: Row = stored[:-1]
            if _checksum(table, row) != stored[-1]:
                raise apsw.CorruptError(f"a row of {table.name} does not match its checksum")
            rows.append(row)
        return rows

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows; one with the same key gives way."""
        sealed = [(*row, _checksum(table, row)) for row in rows]
        self._connection.executemany(_insert(table), sealed)

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Remove the rows whose key begins so."""
        self._connection.execute(f"DELETE {_where(table, len(beginning))}", beginning)
