"""What is in a derived database: the rest of this package knows only that there is something."""

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar

import apsw

from perdure.databases.cells import ask, sql

__all__ = ["Tables"]


class Tables(ABC):
    """The tables of one kind of file.

    Attributes:
        name: of the file in its folder.
        application_id: in the header of the file; tells our files from those of other programs.
        version: the file's `user_version`, above 0: of the tables.
        statements: make the tables and their indexes. One table is `facts`, of one row, with
            columns `rules` and `version`.

    """

    name: ClassVar[str]
    application_id: ClassVar[int]
    version: ClassVar[int]
    statements: ClassVar[tuple[str, ...]]

    def prepare(self, connection: apsw.Connection) -> None:
        """Give a connection what statements on these tables need."""
        connection.execute("SELECT 1 FROM sqlite_schema").fetchall()

    @property
    @abstractmethod
    def rules(self) -> str:
        """What depends on these, in what the tables hold, is made anew when they change."""

    @abstractmethod
    def facts(self, version: int) -> tuple[str | int, ...]:
        """The row of `facts` in an empty file whose first change gets a version behind this."""

    def create(self, connection: apsw.Connection, version: int) -> None:
        """Make all of them in an empty file, within the transaction that is open.

        The first change gets a version behind `version`.
        """
        for statement in _plain(self.statements):
            connection.execute(statement)
        row = self.facts(version)
        connection.execute(sql("INSERT INTO facts VALUES (", ", ".join("?" * len(row)), ")"), row)
        connection.pragma("application_id", self.application_id)
        connection.pragma("user_version", self.version)

    def check(self, connection: apsw.Connection) -> bool:
        """Whether what they hold was made by the rules of today.

        Raises:
            apsw.CorruptError: they are not the ones that `create` makes.

        """
        found = {made for (made,) in connection.execute("SELECT sql FROM sqlite_schema")}
        for statement in _plain(self.statements):
            if statement not in found:
                raise apsw.CorruptError(f"{statement[:40]!r} is not there, or is another one")
        rules = ask(connection, "SELECT rules FROM facts")
        if len(rules) != 1:
            raise apsw.CorruptError("its rules are not there")
        return bool(rules[0][0] == self.rules)

    def counted(self, connection: apsw.Connection) -> int:
        """The version that the last change got.

        Raises:
            apsw.Error: it cannot be read.

        """
        ((version,),) = ask(connection, "SELECT version FROM facts", (), [int])
        return int(version)

    def drop(self, connection: apsw.Connection) -> None:
        """Remove every table, within the transaction that is open, whatever they are."""
        query = (
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%'"
            " ESCAPE '\\' ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (name,) in connection.execute(query).fetchall():
            # What belongs to a virtual table goes with it.
            connection.execute('DROP TABLE IF EXISTS "{}"'.format(str(name).replace('"', '""')))


@cache
def _plain(statements: tuple[str, ...]) -> tuple[str, ...]:
    """Statements as SQLite keeps them, which is as they were given: without line breaks."""
    return tuple(" ".join(statement.split()) for statement in statements)
