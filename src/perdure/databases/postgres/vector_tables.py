"""The tables of the vectors, as statements.

What says the same is embedded once, whoever said it: only what was read of which session belongs to
a namespace.
"""

__all__ = ["VECTORS", "VECTOR_TABLES", "VECTOR_TENANTED"]

VECTORS = (
    # Another text whenever vectors were taken away.
    "CREATE TABLE @vector_era (era text NOT NULL)",
    "INSERT INTO @vector_era SELECT gen_random_uuid()::text",
    # `rules` are those by which texts were cut; a model under other rules is another one.
    """CREATE TABLE @vector_models (
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        key bytea NOT NULL,
        rules text NOT NULL,
        name bytea NOT NULL,
        spec bytea NOT NULL,
        dimension integer NOT NULL,
        complete boolean NOT NULL,
        vectors bigint NOT NULL,
        UNIQUE (key, rules)
    )""",
    # Apart from the vectors: all of them are read to find the few that are compared in full.
    """CREATE TABLE @vector_sketches (
        model bigint NOT NULL,
        digest bigint NOT NULL,
        part bigint NOT NULL,
        id bigint GENERATED ALWAYS AS IDENTITY,
        sketch bytea NOT NULL,
        PRIMARY KEY (model, digest, part)
    )""",
    "CREATE UNIQUE INDEX vector_order ON @vector_sketches (model, id)",
    "CREATE TABLE @vectors (id bigint PRIMARY KEY, half bytea NOT NULL)",
    # They are as good as random: to compress them would only cost time.
    "ALTER TABLE @vectors ALTER COLUMN half SET STORAGE EXTERNAL",
    """CREATE TABLE @vector_readings (
        namespace text COLLATE "C" NOT NULL,
        model bigint NOT NULL,
        session bytea NOT NULL,
        id bytea NOT NULL,
        within bytea NOT NULL,
        version bigint NOT NULL,
        PRIMARY KEY (namespace, model, session)
    )""",
    "CREATE INDEX vector_readings_of ON @vector_readings (model, namespace, within)",
)
"""Statements of version 1."""

VECTOR_TABLES = ("vector_models", "vector_sketches", "vectors", "vector_readings")
"""Tables that have rows once something was embedded."""

VECTOR_TENANTED = ("vector_readings",)
"""Tables whose rows belong to a namespace."""
