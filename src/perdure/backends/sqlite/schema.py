"""The tables, and what tells a file of ours from all others.

The bytes in `records.line` are the truth, exactly as they are hashed. The columns beside them are
there for people who query with SQL, and for finding; `disagreements` holds them against the bytes.
Texts that a caller chose stand as text, or as bytes where SQLite text cannot hold them (a lone
surrogate): the type of such a column is ANY, and the two never compare equal.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw

from perdure.errors import FormatUnsupported, PerdureError, UnsafeFile
from perdure.model.record import Record

__all__ = [
    "BUNDLE",
    "NAME",
    "STORE",
    "VERSION",
    "Kind",
    "Row",
    "ask",
    "cell",
    "check",
    "create",
    "expect",
    "expect_behind",
    "foreign",
    "row_of",
    "rows_of",
    "shown",
    "text",
]

VERSION = 1
"""The file's `user_version`. SQLite calls a file 0 that nobody gave a version."""


Kinds = type | tuple[type, ...]
"""What a cell may be."""

Row = tuple[object, ...]
"""The cells of a row of `records`, in the order of its columns."""

NAME = (str, bytes)
"""A text of a caller's; see `cell`."""


class Kind(NamedTuple):
    """What a file is.

    Attributes:
        application: its application id.
        noun: what it is called in messages.

    """

    application: int
    noun: str


STORE = Kind(int.from_bytes(b"pdSt", "big"), "a store")
BUNDLE = Kind(int.from_bytes(b"pdBu", "big"), "a bundle")
_OURS = {kind.application: kind for kind in (STORE, BUNDLE)}

_TABLES = (
    """CREATE TABLE store (
        id TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT""",
    # A session is new (being built, nobody sees it), stored, deleted (in the trash), or aside (a
    # log that was replaced by a repair).
    """CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        id ANY NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('new', 'stored', 'deleted', 'aside')),
        created_at INTEGER NOT NULL,
        deleted_at INTEGER,
        header BLOB NOT NULL,
        tail_seq INTEGER NOT NULL,
        tail_hash TEXT NOT NULL,
        size INTEGER NOT NULL,
        revision INTEGER NOT NULL,
        plan BLOB
    ) STRICT""",
    """CREATE TABLE records (
        session INTEGER NOT NULL REFERENCES sessions,
        seq INTEGER NOT NULL,
        count INTEGER NOT NULL,
        start INTEGER NOT NULL,
        type TEXT NOT NULL,
        time INTEGER NOT NULL,
        agent ANY,
        turn ANY,
        key ANY,
        line BLOB NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT""",
    """CREATE TABLE blobs (
        session INTEGER NOT NULL REFERENCES sessions,
        digest TEXT NOT NULL,
        size INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        place TEXT NOT NULL CHECK (place IN ('here', 'beside')),
        PRIMARY KEY (session, digest)
    ) STRICT""",
    """CREATE TABLE blob_parts (
        session INTEGER NOT NULL,
        digest TEXT NOT NULL,
        part INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, digest, part),
        FOREIGN KEY (session, digest) REFERENCES blobs
    ) STRICT""",
    """CREATE TABLE asides (
        session INTEGER NOT NULL REFERENCES sessions,
        place TEXT NOT NULL,
        reason TEXT NOT NULL,
        size INTEGER NOT NULL,
        set_at INTEGER NOT NULL,
        log INTEGER REFERENCES sessions,
        PRIMARY KEY (session, place)
    ) STRICT""",
    """CREATE TABLE aside_parts (
        session INTEGER NOT NULL,
        place TEXT NOT NULL,
        part INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, place, part),
        FOREIGN KEY (session, place) REFERENCES asides
    ) STRICT""",
    """CREATE TABLE derived (
        session INTEGER NOT NULL REFERENCES sessions,
        name TEXT NOT NULL,
        start INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        PRIMARY KEY (session, name, start)
    ) STRICT""",
    "CREATE UNIQUE INDEX session_names ON sessions (namespace, id) WHERE state = 'stored'",
    "CREATE INDEX session_states ON sessions (state, namespace, id, deleted_at)",
    "CREATE UNIQUE INDEX record_keys ON records (session, type, key) WHERE key IS NOT NULL",
    # A packed run holds the data of its first event, the path to the one string that differs, the
    # other strings, and the differences of the times: shown here as the events that it stands for.
    """CREATE VIEW events AS
        WITH packed AS (
            SELECT r.*, CAST(r.line AS TEXT) AS json, (
                SELECT '$' || group_concat(
                    CASE type WHEN 'integer' THEN '[' || value || ']'
                    ELSE '.' || json_quote(value) END, '')
                FROM json_each(CAST(r.line AS TEXT), '$.path')) AS path
            FROM records r WHERE r.count > 1
        )
        SELECT s.namespace, s.id AS session, r.seq, r.type, r.time, r.agent, r.turn, r.key,
            CAST(r.line AS TEXT) -> '$.data' AS data
        FROM records r JOIN sessions s ON s.number = r.session
        WHERE s.state = 'stored' AND r.count = 1
        UNION ALL
        SELECT s.namespace, s.id, r.seq, r.type, r.time, r.agent, r.turn, r.key,
            r.json -> '$.data'
        FROM packed r JOIN sessions s ON s.number = r.session
        WHERE s.state = 'stored'
        UNION ALL
        SELECT s.namespace, s.id, r.seq + 1 + m.key, r.type,
            r.time + (SELECT sum(d.value) FROM json_each(r.json, '$.dt') d WHERE d.key <= m.key),
            r.agent, r.turn, r.key,
            json_replace(r.json -> '$.data', ifnull(r.path, '$'),
                json(r.json -> ('$.more[' || m.key || ']')))
        FROM packed r JOIN sessions s ON s.number = r.session, json_each(r.json, '$.more') m
        WHERE s.state = 'stored'""",
)
_SPACE = re.compile(r"\s+")


def _plain(sql: str) -> str:
    return _SPACE.sub(" ", sql).strip()


_INTERNAL = frozenset({("table", f"sqlite_{name}") for name in ("sequence", "stat1", "stat4")})
"""Tables of SQLite's own: what AUTOINCREMENT and ANALYZE make."""

_EXPECTED = frozenset(_plain(sql) for sql in _TABLES)


def create(connection: apsw.Connection, kind: Kind, store_id: str, now: int) -> None:
    """Make all of it in an empty file, within the transaction that is open."""
    for sql in _TABLES:
        connection.execute(_plain(sql))
    connection.execute("INSERT INTO store VALUES (?, ?)", (store_id, now))
    connection.pragma("application_id", kind.application)
    connection.pragma("user_version", VERSION)


def check(connection: apsw.Connection, path: str) -> None:
    """Make sure that everything is there as `create` makes it, and nothing else that could act.

    Raises:
        apsw.CorruptError: something is missing.
        UnsafeFile: something was added.

    """
    query = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
    found = {sql: (type_, name) for type_, name, sql in ask(connection, query, (), (str,) * 3)}
    for sql in _EXPECTED - found.keys():
        raise apsw.CorruptError(f"its schema was changed: {sql[:40]!r} is not there")
    for sql, (type_, name) in found.items():
        if sql not in _EXPECTED and (type_, name) not in _INTERNAL:
            raise UnsafeFile(
                path,
                f"somebody added {name!r} to its schema",
                hint=f"see what it does, and remove it: DROP {type_.upper()} {name}",
            )


def foreign(path: str, kind: Kind, application: int, version: int) -> PerdureError:
    """Why a database with these marks is not opened as a file of `kind`."""
    if application == kind.application:
        return FormatUnsupported(path, found=version, supported=VERSION)
    if application in _OURS:
        other = _OURS[application]
        scheme = "bundle" if other is BUNDLE else "sqlite"
        return UnsafeFile(path, f"is {other.noun}, not {kind.noun}", hint=f"open {scheme}:{path}")
    if (application, version) == (0, 0):
        reason = "is a database that perdure did not make"
    else:
        reason = f"is a database of another program (application id {application})"
    return UnsafeFile(path, reason, hint="name another file, which perdure creates")


def ask(
    db: apsw.Connection, sql: str, bindings: Sequence[Any] = (), kinds: Sequence[Kinds] = ()
) -> list[tuple[Any, ...]]:
    """All rows of an answer.

    Raises:
        apsw.CorruptError: a cell is of none of the types that `kinds` names for its column.

    """
    rows = db.execute(sql, bindings).fetchall()
    for row in rows if kinds else ():
        expect(row, kinds)
    return rows


def expect(row: Sequence[Any], kinds: Sequence[Kinds]) -> None:
    """Make sure that cells are what their columns hold: a damaged page may say otherwise.

    Raises:
        apsw.CorruptError: one is not.

    """
    for value, kind in zip(row, kinds, strict=True):
        if not isinstance(value, kind):
            raise apsw.CorruptError("a row has cells of another type than its columns")


def expect_behind(last: int | str | bytes, keys: Iterable[int | str | bytes]) -> None:
    """Make sure that keys rise from `last` on, as they were asked for.

    In a damaged file an index may say otherwise than the rows that it leads to, and whoever goes on
    behind the last of them would go round in a circle.

    Raises:
        apsw.CorruptError: one does not.

    """
    before = _order(last)
    for key in keys:
        if _order(key) <= before:
            raise apsw.CorruptError("rows are not in the order of their index")
        before = _order(key)


def _order(key: int | str | bytes) -> tuple[int, int, bytes]:
    """As SQLite orders values: numbers, then text, then bytes."""
    if isinstance(key, int):
        return 0, key, b""
    return (1, 0, key.encode()) if isinstance(key, str) else (2, 0, key)


def cell(text: str) -> str | bytes:
    """A text as it stands in a column of any type; different texts stay different."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def text(cell: object) -> str:
    """The text that stands as `cell`."""
    if not isinstance(cell, bytes):
        return str(cell)
    try:
        return cell.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # From damage, or from somebody's hand: no text of ours stands so.
        return cell.decode("utf-8", "backslashreplace")


def shown(text: str) -> str:
    """A text for people, where half a character need not come back as it was."""
    return text.encode("utf-8", "replace").decode()


def rows_of(number: int, records: Iterable[Record], start: int) -> tuple[list[Row], int]:
    """Records that follow each other as rows, and where the last of them ends."""
    rows = []
    for record in records:
        rows.append(row_of(number, record, start))
        start += len(record.line)
    return rows, start


def row_of(number: int, record: Record, start: int) -> Row:
    """A record as a row of `records`."""
    fields = record.fields
    agent, turn, key = fields.agent, fields.turn, fields.key
    return (
        number,
        record.first,
        record.last - record.first + 1,
        start,
        fields.type,
        fields.time,
        None if agent is None else cell(agent),
        None if turn is None else cell(turn),
        None if key is None else cell(key),
        record.line,
    )
