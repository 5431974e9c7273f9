"""What is remembered about all sessions, in tables beside them."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from perdure.backends.postgres.cells import text
from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.databases.postgres.keys import key, within
from perdure.evidence.rows import Cell, Row, Rows, Table

__all__ = ["ServerRows"]

T = TypeVar("T")


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
        try:
            # A change says what is to be, whatever there was: made twice it is the same.
            self._server.change(lambda work: change(_Rows(work)), repeatable=True)
        except NotMade:
            return
        except Unsure as error:
            raise self._server.unsure(error) from error

    def set_aside(self) -> Sequence[str]:
        """No file is damaged where there is none."""
        return []
