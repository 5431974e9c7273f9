"""Sessions in PostgreSQL: many hosts, one writer of each session at a time."""

from perdure.backends.postgres.backend import PostgresBackend

__all__ = ["PostgresBackend"]
