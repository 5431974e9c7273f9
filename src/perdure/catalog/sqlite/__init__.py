"""A catalog in one SQLite file, or in memory."""

from perdure.catalog.sqlite.catalog import SqliteCatalog
from perdure.catalog.sqlite.schema import IndexTables

__all__ = ["NAME", "SqliteCatalog"]

NAME = IndexTables.name
