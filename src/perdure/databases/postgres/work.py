"""Statements within one transaction, or one by one."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import psycopg

__all__ = ["Work", "expanded"]

_TABLE = re.compile(r"@(?=[a-z])")

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

    def copy(self, statement: str, types: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Add rows by `COPY … FROM STDIN (FORMAT BINARY)`; `types` are those of the columns."""
        with self._copy(expanded(statement, self._schema)) as copying:
            copying.set_types(types)
            for row in rows:
                copying.write_row(row)
