"""Vectors in one SQLite file, or in memory."""

from perdure.embedding.sqlite.schema import VectorTables
from perdure.embedding.sqlite.vectors import SqliteVectors

__all__ = ["NAME", "SqliteVectors"]

NAME = VectorTables.name
