"""A schema of a server for each folder of a test: what was made is emptied, and used again."""

from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

from perdure.databases.postgres import Server, parse_address
from perdure.databases.postgres.catalog_tables import CATALOG_TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.runtime import Runtime

if TYPE_CHECKING:
    from tests.postgres.server import Server as TestServer

__all__ = ["Places"]


class Places:
    """The schemas of one test server.

    To make all tables of a store takes as long as many a test; to empty them does not.
    """

    def __init__(self, postgres: "TestServer") -> None:
        self.postgres = postgres
        self._made = 0
        self._free: list[str] = []
        self._used: dict[Path, str] = {}
        self._servers: list[Server] = []

    def server(self, folder: Path, runtime: Runtime) -> Server:
        """Connect to the schema of a folder, which is empty at first."""
        if folder not in self._used:
            if not self._free:
                self._made += 1
                self._free.append(f"place_{self._made}")
            self._used[folder] = self._free.pop()
        server = Server(parse_address(self.postgres.url(schema=self._used[folder])), runtime)
        self._servers.append(server)
        return server

    def end(self) -> None:
        """Empty what a test used, and close its connections."""
        for server in self._servers:
            server.close()
        self._servers = []
        if not self._used:
            return
        with self.postgres.connect() as connection:
            for schema in self._used.values():
                for table in (*CATALOG_TENANTED, *VECTOR_TABLES):
                    try:
                        connection.execute(f"DELETE FROM {schema}.{table}".encode())  # noqa: S608
                    except psycopg.errors.UndefinedTable:
                        break
                self._free.append(schema)
        self._used = {}
