"""Statements within one transaction, or one by one."""

import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors, sql

from perdure.databases.postgres.meaning import CopyRefused

__all__ = ["Work", "expanded"]

_TABLE = re.compile(r"@(?=[a-z{])")

Row = tuple[Any, ...]


@lru_cache(maxsize=2048)
def expanded(statement: str, schema: str) -> str:
    """A statement with the schema before each name that is written with an `@`.

    Not by `search_path`: a pooler gives each transaction another connection, and a role may have
    set its own.
    """
    return _TABLE.sub(f'"{schema}".', statement)


class Work:
    """A connection that is lent for some statements.

    Texts of callers may hold what no PostgreSQL text can (NUL, half a character): they are given
    and returned as `bytes`, see `cell`.
    """

    __slots__ = ("_copy", "_schema", "connection", "cursor")

    def __init__(self, connection: psycopg.Connection[Any], schema: str) -> None:
        """Use a connection."""
        self.connection = connection
        self.cursor = connection.cursor(binary=True)
        self._schema = schema
        self._copy: Callable[..., Any] = self.cursor.copy

    def rows(self, statement: str, *values: object) -> list[Row]:
        """All rows of an answer."""
        return self.cursor.execute(expanded(statement, self._schema), values or None).fetchall()

    def row(self, statement: str, *values: object) -> Row | None:
        """The first row of an answer; None if there is none."""
        return self.cursor.execute(expanded(statement, self._schema), values or None).fetchone()

    def run(self, statement: str, *values: object, prepare: bool | None = None) -> int:
        """How many rows a statement changed."""
        text = expanded(statement, self._schema)
        return self.cursor.execute(text, values or None, prepare=prepare).rowcount

    def run_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """A statement for each of some rows, in few round trips."""
        self.cursor.executemany(expanded(statement, self._schema), rows)

    def define(self, statement: str, **names: str | Sequence[str]) -> None:
        """Run a statement in which `{name}` stands for a name, or for several with commas between.

        They are quoted and put in after all else: what a role or a table of others is called may
        look like anything.
        """
        quoted = {name: _quoted(given) for name, given in names.items()}
        self.cursor.execute(sql.SQL(expanded(statement, self._schema)).format(**quoted))

    def insert(
        self, table: str, columns: str, types: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        """Add many rows by COPY, or where policies forbid that, by statements for many at once.

        `types` are those of the columns; rows are taken one by one.

        Raises:
            CopyRefused: policies hold since it was asked whether they do; not the next time.

        """
        if self._restricted(table):
            self._insert(table, columns, types, rows)
            return
        statement = f"COPY @{table} ({columns}) FROM STDIN (FORMAT BINARY)"
        try:
            with self._copy(expanded(statement, self._schema)) as copying:
                copying.set_types(types)
                for row in rows:
                    copying.write_row(row)
        except errors.FeatureNotSupported as error:
            # What is known of the other connections is as old.
            _restricted.clear()
            raise CopyRefused(str(error)) from error

    def _restricted(self, table: str) -> bool:
        """Whether policies on rows hold for this role: there is no COPY into such a table."""
        known = _restricted.get(self.connection)
        if known is None:
            found = self.row("SELECT row_security_active(%s)", f'"{self._schema}".{table}')
            known = _restricted[self.connection] = bool(found and found[0])
        return known

    def _insert(
        self, table: str, columns: str, types: Sequence[str], rows: Iterable[Sequence[object]]
    ) -> None:
        lists = ", ".join(f"%s::{type_}[]" for type_ in types)
        statement = f"INSERT INTO @{table} ({columns}) SELECT * FROM unnest({lists})"
        taken = iter(rows)
        while batch := list(itertools.islice(taken, _AT_ONCE)):
            self.run(statement, *(list(column) for column in zip(*batch, strict=True)))


def _quoted(given: str | Sequence[str]) -> sql.Composable:
    if isinstance(given, str):
        return sql.Identifier(given)
    return sql.SQL(", ").join(map(sql.Identifier, given))


_AT_ONCE = 500

_restricted: "weakref.WeakKeyDictionary[psycopg.Connection[Any], bool]"
_restricted = weakref.WeakKeyDictionary()
"""What is known of the connections that are open, until COPY is refused on one of them.

The role of one does not change; whether there are policies does, once.
"""
