"""One connection pool and one set of tables for all that perdure keeps in PostgreSQL.

The backend, the evidence, the catalog and the vectors each bring statements; this package brings
the address, the connections, the tables with their versions, and what the server's errors mean.
"""

from perdure.databases.postgres.address import Address, parse_address
from perdure.databases.postgres.meaning import NotMade, Unsure
from perdure.databases.postgres.server import Attempts, Server
from perdure.databases.postgres.work import Work

__all__ = ["Address", "Attempts", "NotMade", "Server", "Unsure", "Work", "parse_address"]
