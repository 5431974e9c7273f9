"""The tables of the catalog and what is indexed in them, as statements.

A column that is only compared holds a key: the text itself, or of a long one its beginning and a
digest, so that no row of an index is too big. Columns `by_...` rise where a listing goes down.
"""

__all__ = [
    "CATALOG",
    "CATALOG_TENANTED",
    "LARGE",
    "MARK",
    "PASSAGE_LEXEMES",
    "SAMPLES",
    "STRETCHES",
    "TITLE_LEXEMES",
    "WINDOWS",
]

MARK = "!"
"""At the beginning of each lexeme that says whose a passage is; it begins no token of a text."""

LARGE = f"{MARK}l"
"""The lexeme of a passage whose own ones are too many for the index; it is read instead."""

SAMPLES = 5
"""In the first sample is one passage of eight, in each other one of eight of those before."""

WINDOWS = (12, 15, 18, 21, 24)
"""Passages are found by the number they were given, in stretches of so many bits of it."""

STRETCHES = (30, 33, 36, 39)
"""Passages are found by time in stretches of so many bits of milliseconds: 12 days, and more."""

PASSAGE_LEXEMES = (
    "@catalog_lexemes(p.namespace, p.session, p.id, p.kind, p.agent, p.time, p.sample, p.large,"
    " p.words, p.parts)"
)
TITLE_LEXEMES = "@catalog_title_lexemes(p.namespace, p.large, p.words, p.parts)"
"""What rows `p` are found by, as in the indexes of words."""

_WINDOW_LEXEMES = " || ".join(
    f"'  {MARK}b{bits}:' || (id >> {bits}) || ':' || namespace" for bits in WINDOWS
)
_STRETCH_LEXEMES = " || ".join(f"'  {MARK}t{bits}:' || (moment >> {bits})" for bits in STRETCHES)
_SAMPLE_LEXEMES = " || ".join(
    f"'  {MARK}m{level}:' || namespace" for level in range(1, SAMPLES + 1)
)

_FUNCTIONS = (
    # What a passage is found by. Its cost keeps the planner from reading a table row by row, and no
    # plan that asks it runs in parallel: the newest windows are looked at first.
    f"""CREATE FUNCTION @catalog_lexemes(
        namespace text, session bigint, id bigint, kind bytea, agent bytea, moment bigint,
        sample smallint, large boolean, words text, parts text
    ) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE COST 200 AS $$
    BEGIN
        RETURN array_to_tsvector(string_to_array(
            CASE WHEN large THEN '{LARGE}' WHEN words || parts = '' THEN '{MARK}'
                ELSE btrim(words || parts) END
            || '  {MARK}n' || namespace || '  {MARK}s' || session
            || '  {MARK}k' || left(md5(kind), 8)
            || '  {MARK}a' || coalesce(left(md5(agent), 8), '')
            || {_WINDOW_LEXEMES}
            || CASE WHEN moment >= 0 AND moment < {1 << 43} THEN {_STRETCH_LEXEMES}
                ELSE '  {MARK}t' END
            || left({_SAMPLE_LEXEMES}, (6 + length(namespace)) * sample), '  '));
    END $$""",
    f"""CREATE FUNCTION @catalog_title_lexemes(
        namespace text, large boolean, words text, parts text
    ) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE COST 200 AS $$
    BEGIN
        RETURN array_to_tsvector(string_to_array(
            CASE WHEN large THEN '{LARGE}' ELSE btrim(words || parts) END
            || '  {MARK}n' || namespace, '  '));
    END $$""",
)

_SESSIONS = (
    # What sessions are found and sorted by.
    """CREATE TABLE @catalog_sessions (
        namespace text COLLATE "C" NOT NULL,
        session bigint GENERATED ALWAYS AS IDENTITY,
        key bytea NOT NULL,
        id bytea NOT NULL,
        version bigint NOT NULL,
        passages bigint NOT NULL,
        partial boolean NOT NULL,
        skipped bigint NOT NULL,
        events bigint NOT NULL,
        tokens bigint NOT NULL,
        by_active bigint NOT NULL,
        by_size bigint NOT NULL,
        status bytea NOT NULL,
        by_created bigint NOT NULL,
        by_title bytea NOT NULL,
        program bytea NOT NULL,
        relation bytea NOT NULL,
        archived boolean NOT NULL,
        troubled boolean NOT NULL,
        cwd bytea,
        preset bytea,
        parent bytea,
        source_format bytea,
        source_id bytea,
        source_parent bytea,
        cost bytea,
        PRIMARY KEY (namespace, session)
    )""",
    "CREATE UNIQUE INDEX catalog_by_key ON @catalog_sessions (namespace, key)",
    "CREATE INDEX catalog_by_active ON @catalog_sessions (namespace, by_active, key)",
    "CREATE INDEX catalog_by_created ON @catalog_sessions (namespace, by_created, key)",
    "CREATE INDEX catalog_by_size ON @catalog_sessions (namespace, by_size, key)",
    "CREATE INDEX catalog_by_title ON @catalog_sessions (namespace, by_title, key)",
    "CREATE INDEX catalog_by_status ON @catalog_sessions (namespace, status)",
    "CREATE INDEX catalog_by_program ON @catalog_sessions (namespace, program)",
    "CREATE INDEX catalog_by_relation ON @catalog_sessions (namespace, relation)",
    "CREATE INDEX catalog_by_archived ON @catalog_sessions (namespace, session) WHERE archived",
    "CREATE INDEX catalog_by_trouble ON @catalog_sessions (namespace, key) WHERE troubled",
    "CREATE INDEX catalog_by_partial ON @catalog_sessions (namespace, session) WHERE partial",
    """CREATE INDEX catalog_by_cwd ON @catalog_sessions (namespace, substring(cwd FROM 1 FOR 512))
        WHERE cwd IS NOT NULL""",
    """CREATE INDEX catalog_by_preset ON @catalog_sessions (namespace, preset)
        WHERE preset IS NOT NULL""",
    """CREATE INDEX catalog_by_parent ON @catalog_sessions (namespace, parent)
        WHERE parent IS NOT NULL""",
    """CREATE INDEX catalog_by_source ON @catalog_sessions (namespace, source_format, source_id)
        WHERE source_id IS NOT NULL""",
    """CREATE INDEX catalog_by_source_parent
        ON @catalog_sessions (namespace, source_format, source_parent)
        WHERE source_parent IS NOT NULL""",
    # What is read of a session, and how far it was read; `analysis` made its tokens.
    """CREATE TABLE @catalog_readings (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        analysis integer NOT NULL,
        listed bytea NOT NULL,
        revision bytea NOT NULL,
        seq bigint NOT NULL,
        hash bytea NOT NULL,
        floor bigint NOT NULL,
        rules bytea NOT NULL,
        problem bytea,
        skipped_why bytea,
        state bytea NOT NULL,
        PRIMARY KEY (namespace, session)
    ) WITH (fillfactor = 70)""",
    # By what of its listing a session is found; only if there is a word.
    """CREATE TABLE @catalog_titles (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        length integer NOT NULL,
        large boolean NOT NULL,
        words text COLLATE "C" NOT NULL,
        parts text COLLATE "C" NOT NULL,
        PRIMARY KEY (namespace, session)
    )""",
    """CREATE INDEX catalog_title_words ON @catalog_titles USING gin (
        @catalog_title_lexemes(namespace, large, words, parts)
    ) WITH (gin_pending_list_limit = 1024)""",
    """CREATE TABLE @catalog_agents (
        namespace text COLLATE "C" NOT NULL,
        agent bytea NOT NULL,
        session bigint NOT NULL,
        name bytea NOT NULL,
        PRIMARY KEY (namespace, agent, session)
    )""",
    "CREATE INDEX catalog_agents_of ON @catalog_agents (namespace, session)",
    # The members of the projections, by a digest of pointer and value.
    """CREATE TABLE @catalog_members (
        namespace text COLLATE "C" NOT NULL,
        digest bigint NOT NULL,
        session bigint NOT NULL,
        PRIMARY KEY (namespace, digest, session)
    )""",
    "CREATE INDEX catalog_members_of ON @catalog_members (namespace, session)",
    # `name` is the digest of type and key.
    """CREATE TABLE @catalog_keys (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        name bytea NOT NULL,
        type bytea NOT NULL,
        key bytea NOT NULL,
        seq bigint NOT NULL,
        PRIMARY KEY (namespace, session, name)
    )""",
    """CREATE TABLE @catalog_notes (
        namespace text COLLATE "C" NOT NULL,
        name bytea NOT NULL,
        text bytea NOT NULL,
        PRIMARY KEY (namespace, name)
    )""",
)

_PASSAGES = (
    # How many passages each has, and the last number that one of them was given. Changed by every
    # writer: narrow, and with room for the new version of the row.
    """CREATE TABLE @catalog_namespaces (
        namespace text COLLATE "C" PRIMARY KEY,
        passages bigint NOT NULL,
        newest bigint NOT NULL
    ) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_threshold = 1000)""",
    # Each token between two blanks of its own, and all of them within the text of a passage.
    """CREATE TABLE @catalog_passages (
        namespace text COLLATE "C" NOT NULL,
        session bigint NOT NULL,
        id bigint GENERATED ALWAYS AS IDENTITY,
        seq bigint NOT NULL,
        digest bigint NOT NULL,
        time bigint NOT NULL,
        call bigint,
        length integer NOT NULL,
        sample smallint NOT NULL,
        large boolean NOT NULL,
        kind bytea NOT NULL,
        agent bytea,
        words text COLLATE "C" NOT NULL,
        parts text COLLATE "C" NOT NULL
    ) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)""",
    "CREATE INDEX catalog_by_event ON @catalog_passages (namespace, session, seq, digest)",
    "CREATE INDEX catalog_by_digest ON @catalog_passages (digest, namespace, id)",
    # A short list of what is not yet sorted in: every question reads it.
    """CREATE INDEX catalog_words ON @catalog_passages USING gin (
        @catalog_lexemes(
            namespace, session, id, kind, agent, time, sample, large, words, parts
        )
    ) WITH (gin_pending_list_limit = 1024)""",
)

_COMPRESSION = tuple(
    f"""DO $$ BEGIN
        ALTER TABLE @{table} ALTER COLUMN {column} SET COMPRESSION lz4;
    EXCEPTION WHEN feature_not_supported OR invalid_parameter_value THEN NULL; END $$"""
    for table, column in (
        ("catalog_passages", "words"),
        ("catalog_passages", "parts"),
        ("catalog_readings", "listed"),
        ("catalog_readings", "state"),
    )
)

# Where policies say which rows a role sees, no index of words is used for it: PostgreSQL would ask
# it about rows of others, and knows too little of its operator to trust it with those. These ask as
# the owner of the tables, for one namespace that the role sees, and give nothing else.
_FOUND = (
    """CREATE FUNCTION @catalog_sees(wanted text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
        SELECT has_table_privilege(session_user, '@catalog_passages'::regclass, 'SELECT') AND (
            NOT (SELECT relrowsecurity FROM pg_class WHERE oid = '@catalog_passages'::regclass)
            OR EXISTS (
                SELECT 1 FROM @tenants WHERE role = session_user AND (
                    namespace = '' OR namespace = wanted OR starts_with(wanted, namespace || '/')
                )
            )
        )
    $$""",
    *(
        f"""CREATE FUNCTION @catalog_found_{table}(wanted text, words tsquery)
        RETURNS SETOF @catalog_{table} LANGUAGE plpgsql STABLE SECURITY DEFINER
        SET search_path = pg_catalog, pg_temp AS $$
        BEGIN
            IF @catalog_sees(wanted) THEN
                RETURN QUERY SELECT p.* FROM @catalog_{table} AS p
                WHERE {lexemes} @@ $2 AND p.namespace || '' = $1;
            END IF;
        END $$"""
        for table, lexemes in (("passages", PASSAGE_LEXEMES), ("titles", TITLE_LEXEMES))
    ),
)

CATALOG = (*_FUNCTIONS, *_SESSIONS, *_PASSAGES, *_COMPRESSION, *_FOUND)
"""Statements of version 1."""

CATALOG_TENANTED = (
    "catalog_sessions",
    "catalog_readings",
    "catalog_titles",
    "catalog_agents",
    "catalog_members",
    "catalog_keys",
    "catalog_notes",
    "catalog_namespaces",
    "catalog_passages",
)
"""Tables whose rows belong to a namespace."""
