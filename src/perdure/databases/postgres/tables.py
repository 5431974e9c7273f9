"""The tables of a store, as statements.

The bytes in `records.line` are the truth, exactly as they are hashed; the columns beside them say
what they say and are there for finding. Texts that a caller chose stand as `bytea`, in UTF-8:
PostgreSQL's own texts hold neither NUL nor half a character. Each key begins with the namespace, so
that a policy on rows, or one day a distribution over servers, can go by it. What is long stands
shortened in keys (`keys.py`), since a row of an index has 2,700 bytes at most.
"""

from perdure.databases.postgres.catalog_tables import CATALOG, CATALOG_TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TENANTED, VECTORS

__all__ = ["PARTITION_SESSIONS", "STORE", "TENANTED"]

PARTITION_SESSIONS = 100_000
"""The records of so many sessions, by the order of their creation, stand in one partition."""

_SESSIONS = (
    "CREATE TABLE @store (id text NOT NULL, created_at bigint NOT NULL)",
    # Of a process that writes, or may: who it is, and when it gave its last sign of life.
    """CREATE TABLE @writers (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        pid bigint,
        host text,
        since bigint NOT NULL,
        beat_at timestamptz NOT NULL,
        incarnation text NOT NULL,
        held boolean NOT NULL
    )""",
    # A session is new (being built, nobody sees it), stored, deleted (in the trash), or aside (a
    # log that was replaced by a repair).
    """CREATE TABLE @sessions (
        namespace text COLLATE "C" NOT NULL,
        session bigint GENERATED ALWAYS AS IDENTITY,
        name bytea NOT NULL,
        id bytea NOT NULL,
        state text NOT NULL CHECK (state IN ('new', 'stored', 'deleted', 'aside')),
        created_at bigint NOT NULL,
        deleted_at bigint,
        builder bigint,
        header bytea NOT NULL,
        plan bytea,
        PRIMARY KEY (namespace, session)
    )""",
    "CREATE UNIQUE INDEX session_names ON @sessions (namespace, name) WHERE state = 'stored'",
    "CREATE INDEX session_states ON @sessions (namespace, state, name, deleted_at)",
    # How often sessions of a namespace came or went: the sum of its rows. They are several, so that
    # those who create sessions at once need not wait for each other's commits.
    """CREATE TABLE @arrivals (
        namespace text COLLATE "C" NOT NULL,
        shard integer NOT NULL,
        changes bigint NOT NULL,
        PRIMARY KEY (namespace, shard)
    ) WITH (fillfactor = 40)""",
    # Namespaces that stand shortened in the keys of the other tables.
    """CREATE TABLE @spaces (
        namespace text COLLATE "C" PRIMARY KEY,
        full_name text COLLATE "C" NOT NULL
    )""",
    # Changed by every commit, so it is narrow, no column of it but the key is in an index, and
    # there is room in each page: the new version of a row stands beside the old one.
    """CREATE TABLE @tails (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        tail_seq bigint NOT NULL,
        tail_hash text COLLATE "C" NOT NULL,
        size bigint NOT NULL,
        revision bigint NOT NULL,
        cuts bigint NOT NULL DEFAULT 0,
        epoch bigint NOT NULL DEFAULT 0,
        owner bigint,
        hold text,
        since bigint,
        PRIMARY KEY (namespace, session)
    ) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000)""",
)

_RECORDS = (
    # By the number of the session, which rises with its creation: what is deleted for good was
    # mostly created long ago, and a part whose sessions are all gone is emptied as a whole.
    """CREATE TABLE @records (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        seq bigint NOT NULL,
        count bigint NOT NULL,
        start bigint NOT NULL,
        type text COLLATE "C" NOT NULL,
        time bigint NOT NULL,
        agent bytea,
        turn bytea,
        key bytea,
        line bytea NOT NULL,
        PRIMARY KEY (namespace, session, seq)
    ) PARTITION BY RANGE (session)""",
    """CREATE UNIQUE INDEX record_keys ON @records (namespace, session, type, key)
        WHERE key IS NOT NULL""",
    f"CREATE TABLE @records_1 PARTITION OF @records FOR VALUES FROM (0) TO ({PARTITION_SESSIONS})",
    "CREATE TABLE @records_rest PARTITION OF @records DEFAULT",
)

_BESIDE = (
    """CREATE TABLE @blobs (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        digest text COLLATE "C" NOT NULL,
        size bigint NOT NULL,
        stored_at bigint NOT NULL,
        PRIMARY KEY (namespace, session, digest)
    )""",
    """CREATE TABLE @blob_parts (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        digest text COLLATE "C" NOT NULL,
        part integer NOT NULL,
        bytes bytea NOT NULL,
        PRIMARY KEY (namespace, session, digest, part)
    )""",
    """CREATE TABLE @asides (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        place text COLLATE "C" NOT NULL,
        reason text NOT NULL,
        size bigint NOT NULL,
        set_at bigint NOT NULL,
        log bigint,
        PRIMARY KEY (namespace, session, place)
    )""",
    """CREATE TABLE @aside_parts (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        place text COLLATE "C" NOT NULL,
        part integer NOT NULL,
        bytes bytea NOT NULL,
        PRIMARY KEY (namespace, session, place, part)
    )""",
    """CREATE TABLE @derived (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        name text COLLATE "C" NOT NULL,
        start bigint NOT NULL,
        bytes bytea NOT NULL,
        PRIMARY KEY (namespace, session, name, start)
    )""",
    # A session that is being written: after a crash the catalog looks there first.
    """CREATE TABLE @marks (
        namespace text COLLATE "C" NOT NULL,
        name text COLLATE "C" NOT NULL,
        session bytea NOT NULL,
        PRIMARY KEY (namespace, name)
    )""",
    # Which role sees which namespace, and what is below it; see `perdure postgres tenancy`.
    """CREATE TABLE @tenants (
        role name PRIMARY KEY,
        namespace text COLLATE "C" NOT NULL
    )""",
)

_EVIDENCE = (
    """CREATE TABLE @evidence_position (
        in_namespace text COLLATE "C", of_session bytea,
        namespace bytea, session bytea, digest bytea,
        seq bigint NOT NULL, hash bytea NOT NULL, seen_at bigint NOT NULL,
        PRIMARY KEY (in_namespace, of_session, digest)
    )""",
    """CREATE TABLE @evidence_deletion (
        in_namespace text COLLATE "C", of_session bytea,
        namespace bytea, session bytea, digest bytea, deleted_at bigint NOT NULL,
        PRIMARY KEY (in_namespace, of_session)
    )""",
    """CREATE TABLE @evidence_damage (
        in_namespace text COLLATE "C", of_session bytea,
        namespace bytea, session bytea, kind bytea, record bigint,
        reason bytea NOT NULL, reported_at bigint NOT NULL,
        PRIMARY KEY (in_namespace, of_session, kind, record)
    )""",
    """CREATE TABLE @evidence_acceptance (
        in_namespace text COLLATE "C", of_session bytea,
        namespace bytea, session bytea, number bigint,
        digest bytea NOT NULL, seq bigint NOT NULL, hash bytea NOT NULL,
        known_seq bigint, known_hash bytea, accepted_at bigint NOT NULL,
        PRIMARY KEY (in_namespace, of_session, number)
    )""",
)

# A build may lack the quicker compression; the other one does as well.
_COMPRESSION = tuple(
    f"""DO $$ BEGIN
        ALTER TABLE @{table} ALTER COLUMN {column} SET COMPRESSION lz4;
    EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$"""
    for table, column in (("records", "line"), ("blob_parts", "bytes"), ("aside_parts", "bytes"))
)

STORE = (*_SESSIONS, *_RECORDS, *_BESIDE, *_EVIDENCE, *_COMPRESSION, *CATALOG, *VECTORS)
"""Version 1."""

TENANTED = (
    "sessions",
    "spaces",
    "arrivals",
    "tails",
    "records",
    "blobs",
    "blob_parts",
    "asides",
    "aside_parts",
    "derived",
    "marks",
    "evidence_position",
    "evidence_deletion",
    "evidence_damage",
    "evidence_acceptance",
    *CATALOG_TENANTED,
    *VECTOR_TENANTED,
)
"""Tables whose rows belong to a namespace."""
