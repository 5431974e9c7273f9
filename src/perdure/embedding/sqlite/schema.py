"""The tables of `vectors.sqlite`."""

from perdure.databases.derived import Tables
from perdure.embedding.blocks import VERSION as BLOCKS

__all__ = ["VectorTables"]

_RULES = f"blocks {BLOCKS}"
"""What was embedded depends on this; what was made by other rules is made anew."""

_TABLES = (
    # Versions rise with every change, from that of birth on, which is random; removals with each
    # change that takes vectors away; `last` is the last number that a vector was given.
    """CREATE TABLE facts (
        rules TEXT NOT NULL,
        birth INTEGER NOT NULL,
        version INTEGER NOT NULL,
        removals INTEGER NOT NULL,
        last INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE models (
        number INTEGER PRIMARY KEY,
        name BLOB NOT NULL UNIQUE,
        spec BLOB NOT NULL,
        dimension INTEGER NOT NULL,
        complete INTEGER NOT NULL,
        vectors INTEGER NOT NULL
    ) STRICT""",
    # Apart from the vectors: all of them are read to find the few that are compared in full.
    """CREATE TABLE sketches (
        id INTEGER PRIMARY KEY,
        model INTEGER NOT NULL,
        digest INTEGER NOT NULL,
        part INTEGER NOT NULL,
        sketch BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX by_text ON sketches (model, digest, part)",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, half BLOB NOT NULL) STRICT",
    """CREATE TABLE readings (
        model INTEGER NOT NULL,
        namespace BLOB NOT NULL,
        session BLOB NOT NULL,
        version INTEGER NOT NULL,
        PRIMARY KEY (model, namespace, session)
    ) STRICT, WITHOUT ROWID""",
)


class VectorTables(Tables):
    """See `_TABLES`."""

    name = "vectors.sqlite"
    application_id = int.from_bytes(b"pdVe", "big")
    version = 1
    statements = _TABLES

    @property
    def rules(self) -> str:
        """See `Tables.rules`."""
        return _RULES

    def facts(self, version: int) -> tuple[str | int, ...]:
        """See `Tables.facts`."""
        return _RULES, version, version, 0, 0
