"""What is remembered about all sessions, in tables beside them.

What is to be remembered goes by what is known: a change asks before it writes. So nobody else
changes what is known of a session until the end of a transaction that asked for it. What it asks
for need not have a row yet, so locks stand for it, not rows.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from perdure.backends.postgres.cells import text
from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.databases.postgres.keys import key, within
from perdure.evidence.rows import Cell, Row, Rows, Table

__all__ = ["ServerRows"]

T = TypeVar("T")


_Session = tuple[Cell, ...]
"""Namespace and session, as they stand in rows."""

_SESSIONS_LOCKED = 50
"""Who changes more of them locks all there are: the server has room for some locks only."""

_TEXTS = frozenset({"namespace", "session", "kind", "reason"})


class _Nothing:
    """What there is before anything was stored."""

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """Nothing."""
        del table, beginning
        return []

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Never called: a question changes nothing."""
        raise NotImplementedError

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Nothing is there to be removed."""


class _Rows:
    """The rows within one transaction."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """The rows whose key begins so, in the order of their keys."""
        names = _names(table)
        order = ", ".join(("in_namespace", "of_session", *names[2 : table.key]))
        query = f"SELECT {', '.join(names)} FROM @{_table(table)}{_where(table, beginning)}"
        rows = self._work.rows(f"{query} ORDER BY {order}", *_shortened(beginning))
        # Whoever may write to the table may put there what stands for nothing: it says nothing.
        return [row for row in rows if _sound(table, row)]

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Add rows; one with the same key gives way."""
        names = _names(table)
        keyed = ["in_namespace", "of_session", *names[2 : table.key]]
        rest = names[table.key :]
        change = ", ".join(f"{name} = excluded.{name}" for name in rest)
        statement = (
            f"INSERT INTO @{_table(table)} (in_namespace, of_session, {', '.join(names)})"
            f" VALUES ({', '.join(['%s'] * (len(names) + 2))}) ON CONFLICT ({', '.join(keyed)})"
            f" DO {f'UPDATE SET {change}' if change else 'NOTHING'}"
        )
        for row in rows:
            self._work.run(statement, *_shortened(row[:2]), *row)

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Remove the rows whose key begins so."""
        self._work.run(
            f"DELETE FROM @{_table(table)}{_where(table, beginning)}", *_shortened(beginning)
        )


class _Touched:
    """Rows of which there are none: it notes of which sessions a change asks."""

    def __init__(self) -> None:
        self.sessions: set[_Session] = set()
        self.all = False

    def scan(self, table: Table, *beginning: Cell) -> list[Row]:
        """Nothing."""
        del table
        self._note(beginning)
        return []

    def put(self, table: Table, rows: Iterable[Row]) -> None:
        """Nothing is added."""
        del table
        for row in rows:
            self._note(row)

    def drop(self, table: Table, *beginning: Cell) -> None:
        """Nothing is removed."""
        del table
        self._note(beginning)

    def _note(self, key: Sequence[Cell]) -> None:
        if len(key) < _SESSION_CELLS:
            self.all = True
        else:
            self.sessions.add(tuple(key[:_SESSION_CELLS]))


_SESSION_CELLS = 2


def _lock(work: Work, schema: str, touched: _Touched) -> None:
    """Let nobody else change what is known of some sessions until the transaction ends.

    In one order everywhere, and before anything is asked: nobody waits for each other, and what is
    asked then is what those left who came before.
    """
    everything = _number(schema)
    if touched.all or len(touched.sessions) > _SESSIONS_LOCKED:
        work.rows("SELECT pg_advisory_xact_lock(%s::bigint)", everything)
        return
    numbers = sorted(_number(schema, *each) for each in touched.sessions)
    work.rows(
        "SELECT CASE WHEN shared THEN pg_advisory_xact_lock_shared(number)"
        " ELSE pg_advisory_xact_lock(number) END"
        " FROM unnest(%s::bigint[], %s::boolean[]) AS wanted (number, shared)",
        [everything, *numbers],
        [True, *[False] * len(numbers)],
    )


def _number(schema: str, *session: Cell) -> int:
    """What stands for a session among the locks of a database; for all of them without one."""
    digest = hashlib.sha256(b"perdure evidence")
    for part in (schema.encode(), *map(_bytes, session)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return int.from_bytes(digest.digest()[:8], "big", signed=True)


def _table(table: Table) -> str:
    return f"evidence_{table.name}"


def _names(table: Table) -> list[str]:
    return [column.partition(" ")[0] for column in table.columns]


def _shortened(beginning: Sequence[Cell]) -> list[object]:
    """Cells as they stand in keys, which begin with the namespace and the session."""
    found: list[object] = [*beginning]
    for place, make in enumerate((within, key)[: len(found)]):
        found[place] = make(text(_bytes(found[place])))
    return found


def _sound(table: Table, row: Row) -> bool:
    """Whether its texts are texts."""
    for name, value in zip(_names(table), row, strict=True):
        if name in _TEXTS and isinstance(value, bytes):
            try:
                value.decode("utf-8", "surrogatepass")
            except UnicodeDecodeError:
                return False
    return True


def _bytes(cell: object) -> bytes:
    return cell if isinstance(cell, bytes) else b""


def _where(table: Table, beginning: Sequence[Cell]) -> str:
    names = ["in_namespace", "of_session", *_names(table)[2:]]
    conditions = [f"{name} = %s" for name in names[: len(beginning)]]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


class ServerRows:
    """The form of the evidence where a server keeps it; see `Evidence`."""

    unreadable: str | None = None

    def __init__(self, server: Server) -> None:
        """Nothing is connected yet."""
        self._server = server

    def read(self, question: Callable[[Rows], T]) -> T:
        """The answer to a question."""
        try:
            return self._server.read(lambda work: question(_Rows(work)))
        except NotMade:
            return question(_Nothing())

    def ask(self, question: Callable[[Rows], T]) -> tuple[str | None, T]:
        """The answer to a question, which never comes from nothing where there is something."""
        return None, self.read(question)

    def read_to_write(self, question: Callable[[Rows], T]) -> T:
        """The answer to a question."""
        return self.read(question)

    def write(self, change: Callable[[Rows], None], *, make: bool = True) -> None:
        """Make a change, whole or not at all."""
        if make:
            self._server.make()
        # Of which sessions a change asks does not depend on what it finds.
        touched = _Touched()
        change(touched)

        def changed(work: Work) -> None:
            _lock(work, self._server.address.schema, touched)
            change(_Rows(work))

        try:
            # A change says what is to be, whatever there was: made twice it is the same.
            self._server.change(changed, repeatable=True)
        except NotMade:
            return
        except Unsure as error:
            raise self._server.unsure(error) from error

    def set_aside(self) -> Sequence[str]:
        """No file is damaged where there is none."""
        return []
