"""Many sessions in one SQLite file, and bundles: one session and its sub-agents to hand on."""

from perdure.backends.sqlite.backend import SqliteBackend
from perdure.backends.sqlite.bundle import BundleBackend

__all__ = ["BundleBackend", "SqliteBackend"]
