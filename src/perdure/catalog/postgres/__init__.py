"""A catalog in a PostgreSQL server."""

from perdure.catalog.postgres.catalog import PostgresCatalog

__all__ = ["PostgresCatalog"]
