"""Vectors in a PostgreSQL server."""

from perdure.embedding.postgres.vectors import PostgresVectors

__all__ = ["PostgresVectors"]
