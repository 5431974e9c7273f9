"""The tables of an index."""

import apsw

from perdure.catalog.analysis import TOKENIZER
from perdure.catalog.analysis import VERSION as ANALYSIS
from perdure.catalog.sqlite import filters, ranking
from perdure.databases.derived import Tables

__all__ = ["RULES", "IndexTables"]

RULES = f"{ANALYSIS} {TOKENIZER}"
"""What the tokens in an index depend on; one that was made by others is made anew."""

_TABLES = (
    # Counters: the last version, passage and session that were given a number.
    """CREATE TABLE facts (
        rules TEXT NOT NULL,
        version INTEGER NOT NULL,
        passage INTEGER NOT NULL,
        session INTEGER NOT NULL
    ) STRICT""",
    # How many passages each has, and how many it was ever given.
    """CREATE TABLE namespaces (
        number INTEGER PRIMARY KEY,
        name BLOB NOT NULL UNIQUE,
        passages INTEGER NOT NULL,
        given INTEGER NOT NULL
    ) STRICT""",
    # Of agents, and kinds of passages.
    "CREATE TABLE names (number INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE) STRICT",
    # What sessions are found and sorted by. The columns by_… rise where the listing goes down.
    """CREATE TABLE sessions (
        number INTEGER PRIMARY KEY,
        namespace INTEGER NOT NULL,
        id BLOB NOT NULL,
        version INTEGER NOT NULL,
        partial INTEGER NOT NULL,
        skipped INTEGER NOT NULL,
        passages INTEGER NOT NULL,
        events INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        by_active INTEGER NOT NULL,
        by_size INTEGER NOT NULL,
        status BLOB NOT NULL,
        by_created INTEGER NOT NULL,
        by_title BLOB NOT NULL,
        program BLOB NOT NULL,
        relation BLOB NOT NULL,
        archived INTEGER NOT NULL,
        troubled INTEGER NOT NULL,
        cwd BLOB,
        preset BLOB,
        parent BLOB,
        source_format BLOB,
        source_id BLOB,
        source_parent BLOB,
        cost BLOB
    ) STRICT""",
    "CREATE UNIQUE INDEX by_id ON sessions (namespace, id)",
    "CREATE INDEX by_active ON sessions (namespace, by_active, id)",
    "CREATE INDEX by_created ON sessions (namespace, by_created, id)",
    "CREATE INDEX by_size ON sessions (namespace, by_size, id)",
    "CREATE INDEX by_title ON sessions (namespace, by_title, id)",
    "CREATE INDEX by_status ON sessions (namespace, status)",
    "CREATE INDEX by_program ON sessions (namespace, program)",
    "CREATE INDEX by_relation ON sessions (namespace, relation)",
    "CREATE INDEX by_archived ON sessions (namespace) WHERE archived",
    "CREATE INDEX by_trouble ON sessions (namespace) WHERE troubled",
    "CREATE INDEX by_partial ON sessions (namespace) WHERE partial",
    "CREATE INDEX by_cwd ON sessions (namespace, cwd) WHERE cwd IS NOT NULL",
    "CREATE INDEX by_preset ON sessions (namespace, preset) WHERE preset IS NOT NULL",
    "CREATE INDEX by_parent ON sessions (namespace, parent) WHERE parent IS NOT NULL",
    """CREATE INDEX by_source ON sessions (namespace, source_format, source_id)
        WHERE source_id IS NOT NULL""",
    """CREATE INDEX by_source_parent ON sessions (namespace, source_format, source_parent)
        WHERE source_parent IS NOT NULL""",
    """CREATE TABLE listings (
        session INTEGER PRIMARY KEY,
        listed BLOB NOT NULL,
        words INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE readings (
        session INTEGER PRIMARY KEY,
        revision BLOB NOT NULL,
        seq INTEGER NOT NULL,
        hash BLOB NOT NULL,
        floor INTEGER NOT NULL,
        rules BLOB NOT NULL,
        problem BLOB,
        skipped_why BLOB
    ) STRICT""",
    "CREATE TABLE states (session INTEGER PRIMARY KEY, state BLOB NOT NULL) STRICT",
    """CREATE TABLE agents (
        session INTEGER NOT NULL,
        agent INTEGER NOT NULL,
        namespace INTEGER NOT NULL,
        PRIMARY KEY (session, agent)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX by_agent ON agents (namespace, agent, session)",
    # The members of the projections, by a digest of namespace, pointer and value.
    """CREATE TABLE members (
        digest INTEGER NOT NULL,
        session INTEGER NOT NULL,
        PRIMARY KEY (digest, session)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE keys (
        session INTEGER NOT NULL,
        type BLOB NOT NULL,
        key BLOB NOT NULL,
        seq INTEGER NOT NULL,
        PRIMARY KEY (session, type, key)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE notes (
        namespace INTEGER NOT NULL,
        name BLOB NOT NULL,
        text BLOB NOT NULL,
        PRIMARY KEY (namespace, name)
    ) STRICT, WITHOUT ROWID""",
    # `nth`: so many were given to its namespace until then, with it.
    """CREATE TABLE passages (
        id INTEGER PRIMARY KEY,
        nth INTEGER NOT NULL,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        digest INTEGER NOT NULL,
        agent INTEGER,
        time INTEGER NOT NULL,
        call INTEGER
    ) STRICT""",
    "CREATE INDEX by_event ON passages (session, seq)",
    "CREATE INDEX by_digest ON passages (digest)",
    # The stretches of time in which something was said; `searching.STRETCH_BITS` is their length.
    "CREATE TABLE stretches (number INTEGER PRIMARY KEY) STRICT",
    # Row by row the tokens of `passages`; in `scope` those that say whose passage it is.
    f"""CREATE VIRTUAL TABLE texts USING fts5 (
        words, parts, scope, content='', contentless_delete=1, tokenize='{TOKENIZER}'
    )""",
    # Row by row the tokens of `listings`; in `scope` the one that says whose it is.
    f"""CREATE VIRTUAL TABLE titles USING fts5 (
        words, parts, scope, content='', contentless_delete=1, tokenize='{TOKENIZER}'
    )""",
)


class IndexTables(Tables):
    """See `_TABLES`."""

    name = "index.sqlite"
    application_id = int.from_bytes(b"pdIx", "big")
    version = 3
    statements = _TABLES

    def prepare(self, connection: apsw.Connection) -> None:
        """See `Tables.prepare`."""
        # First: of damaged tables, who asks for FTS5 is only told that there is none.
        super().prepare(connection)
        filters.register(connection)
        ranking.register(connection)

    @property
    def rules(self) -> str:
        """See `Tables.rules`."""
        return RULES

    def facts(self, version: int) -> tuple[str | int, ...]:
        """See `Tables.facts`."""
        return RULES, version, 0, 0
