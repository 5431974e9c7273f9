"""A catalog in one SQLite file, or in memory."""

from perdure.catalog.sqlite.catalog import SqliteCatalog
from perdure.catalog.sqlite.files import NAME

__all__ = ["NAME", "SqliteCatalog"]
