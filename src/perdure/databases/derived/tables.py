"""What is in a derived database: the rest of this package knows only that there is something."""

from abc import ABC, abstractmethod
from typing import ClassVar

import apsw

__all__ = ["Tables"]


class Tables(ABC):
    """The tables of one kind of file.

    Attributes:
        name: of the file in its folder.
        application_id: in the header of the file; tells our files from those of other programs.
        version: the file's `user_version`, above 0: of the tables.

    """

    name: ClassVar[str]
    application_id: ClassVar[int]
    version: ClassVar[int]

    def prepare(self, connection: apsw.Connection) -> None:
        """Give a connection what statements on these tables need."""
        connection.execute("SELECT 1 FROM sqlite_schema").fetchall()

    @abstractmethod
    def create(self, connection: apsw.Connection, version: int) -> None:
        """Make all of them in an empty file, within the transaction that is open.

        The first change gets a version behind `version`. Also sets `application_id` and
        `user_version`.
        """

    @abstractmethod
    def check(self, connection: apsw.Connection) -> bool:
        """Whether what they hold was made by the rules of today.

        Raises:
            apsw.CorruptError: they are not the ones that `create` makes.

        """

    @abstractmethod
    def counted(self, connection: apsw.Connection) -> int:
        """The version that the last change got.

        Raises:
            apsw.Error: it cannot be read.

        """

    def drop(self, connection: apsw.Connection) -> None:
        """Remove every table, within the transaction that is open, whatever they are."""
        query = (
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%'"
            " ESCAPE '\\' ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'"
        )
        for (name,) in connection.execute(query).fetchall():
            # What belongs to a virtual table goes with it.
            connection.execute('DROP TABLE IF EXISTS "{}"'.format(str(name).replace('"', '""')))
