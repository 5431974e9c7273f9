"""A catalog in one SQLite file, or in memory."""

from perdure.catalog.sqlite.catalog import SqliteCatalog

__all__ = ["SqliteCatalog"]
