"""The tables of an index, and how values stand in their cells.

Texts stand as bytes, lone surrogates included, so that two ids never share a row. Every number has
64 bits; what has more stands as the nearest that has not.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from perdure.catalog.analysis import TOKENIZER
from perdure.catalog.analysis import VERSION as ANALYSIS

__all__ = [
    "APPLICATION_ID",
    "BIGGEST",
    "RULES",
    "VERSION",
    "Kinds",
    "ask",
    "cell",
    "cells",
    "check",
    "clamped",
    "create",
    "drop",
    "numbers",
    "optional",
    "pack",
    "sql",
    "text",
    "unpack",
]

APPLICATION_ID = int.from_bytes(b"pdIx", "big")
"""In the header of the file; tells our files from those of other programs."""

VERSION = 1
"""The file's `user_version`: of the tables below. SQLite calls a file 0 that has none."""

RULES = f"{ANALYSIS} {TOKENIZER}"
"""What the tokens in an index depend on; one that was made by others is made anew."""

BIGGEST = 2**63 - 1
_SMALLEST = -(2**63)

_TABLES = (
    # Counters: the last version, passage and session that were given a number.
    """CREATE TABLE facts (
        rules TEXT NOT NULL,
        version INTEGER NOT NULL,
        passage INTEGER NOT NULL,
        session INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE namespaces (
        number INTEGER PRIMARY KEY,
        name BLOB NOT NULL UNIQUE,
        passages INTEGER NOT NULL
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
    """CREATE TABLE passages (
        id INTEGER PRIMARY KEY,
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        kind INTEGER NOT NULL,
        digest INTEGER NOT NULL,
        agent INTEGER,
        time INTEGER NOT NULL,
        call INTEGER
    ) STRICT""",
    "CREATE INDEX by_event ON passages (session, seq)",
    # The stretches of time in which something was said; `searching.STRETCH_BITS` is their length.
    "CREATE TABLE stretches (number INTEGER PRIMARY KEY) STRICT",
    # Row by row the tokens of `passages`; in `scope` those that say whose passage it is.
    f"""CREATE VIRTUAL TABLE texts USING fts5 (
        words, parts, scope, content='', contentless_delete=1, tokenize='{TOKENIZER}'
    )""",
    # Row by row the tokens of `listings`.
    f"""CREATE VIRTUAL TABLE titles USING fts5 (
        words, parts, content='', contentless_delete=1, tokenize='{TOKENIZER}'
    )""",
)
_EXPECTED = frozenset(" ".join(sql.split()) for sql in _TABLES)


def create(connection: apsw.Connection, version: int) -> None:
    """Make all of it in an empty file, within the transaction that is open.

    The first change gets a version behind `version`.
    """
    for sql in _TABLES:
        connection.execute(" ".join(sql.split()))
    connection.execute("INSERT INTO facts VALUES (?, ?, 0, 0)", (RULES, version))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", VERSION)


def drop(connection: apsw.Connection) -> None:
    """Remove every table, within the transaction that is open, whatever they are."""
    query = (
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%'"
        " ESCAPE '\\' ORDER BY sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    for (name,) in connection.execute(query).fetchall():
        # What belongs to a virtual table goes with it.
        connection.execute('DROP TABLE IF EXISTS "{}"'.format(str(name).replace('"', '""')))


def check(connection: apsw.Connection) -> bool:
    """Whether what the index holds was made by the rules of today.

    Raises:
        apsw.CorruptError: its tables are not the ones that `create` makes.

    """
    found = {sql for (sql,) in connection.execute("SELECT sql FROM sqlite_schema")}
    for sql in _EXPECTED - found:
        raise apsw.CorruptError(f"{sql[:40]!r} is not there, or is another one")
    rules = ask(connection, "SELECT rules FROM facts")
    if len(rules) != 1:
        raise apsw.CorruptError("its rules are not there")
    return bool(rules[0][0] == RULES)


# --- cells ----------------------------------------------------------------------------------------


Kinds = type | tuple[type, ...]
"""What a cell may be."""


def ask(
    db: apsw.Connection,
    query: str,
    bindings: dict[str, Any] | Sequence[Any] = (),
    kinds: Sequence[Kinds] = (),
) -> list[tuple[Any, ...]]:
    """All rows of an answer.

    Raises:
        apsw.CorruptError: a cell is of none of the types that `kinds` names for its column; a
            damaged page may say so.

    """
    rows = db.execute(query, bindings).fetchall()
    for row in rows if kinds else ():
        for value, kind in zip(row, kinds, strict=True):
            if not isinstance(value, kind):
                raise apsw.CorruptError("a row has cells of another type than its columns")
    return rows


def sql(*parts: str) -> str:
    """A statement made of parts that stand in this package alone; values are bound."""
    return " ".join(parts)


def clamped(number: int) -> int:
    """The nearest number that SQLite can hold."""
    return max(_SMALLEST, min(BIGGEST, number))


def cell(text: str) -> bytes:
    """A text as it stands in a column."""
    return text.encode("utf-8", "surrogatepass")


def optional(text: str | None) -> bytes | None:
    """As `cell`; None stands as it is."""
    return None if text is None else text.encode("utf-8", "surrogatepass")


def text(cell: object) -> str:
    """The text of a cell.

    Raises:
        apsw.CorruptError: no text of ours stands so.

    """
    if not isinstance(cell, bytes):
        raise apsw.CorruptError("a cell that holds a text holds something else")
    try:
        return cell.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise apsw.CorruptError(f"a cell holds no text: {error}") from error


def cells(texts: Iterable[str]) -> str:
    """Texts to be compared with cells: `IN (SELECT unhex(value) FROM json_each(:name))`.

    So a statement is the same whatever the number of texts, and has to be prepared once.
    """
    return json.dumps([cell(text).hex() for text in texts])


def numbers(found: Iterable[int]) -> str:
    """Numbers to be compared with cells: `IN (SELECT value FROM json_each(:name))`."""
    return f"[{','.join(map(str, found))}]"


# --- values ---------------------------------------------------------------------------------------

_TEXT, _NUMBER, _PAIRS = 1, 2, 3
_DEPTH_MAX = 200
_encoder = msgspec.msgpack.Encoder()


def _from_extension(code: int, data: memoryview) -> Any:
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    if code == _NUMBER:
        return int(bytes(data), 16)
    return dict(_decoder.decode(data))


_decoder = msgspec.msgpack.Decoder(ext_hook=_from_extension)


def pack(value: Any) -> bytes:
    """Any JSON value as bytes; what is none is kept as well as it can be."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encoder.encode(_packable(value, 0))


def unpack(packed: object) -> Any:
    """What `pack` was given.

    Raises:
        apsw.CorruptError: it was given nothing that would stand so.

    """
    if not isinstance(packed, bytes):
        raise apsw.CorruptError("a cell that holds a value holds something else")
    try:
        return _decoder.decode(packed)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise apsw.CorruptError(f"a cell holds no value: {error}") from error


def _packable(value: Any, depth: int) -> Any:
    """The same with what MessagePack has no form for in a form of ours."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
        )
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        if _SMALLEST <= value <= BIGGEST:
            return value
        return msgspec.msgpack.Ext(_NUMBER, f"{value:x}".encode())
    if depth < _DEPTH_MAX:
        if isinstance(value, dict):
            pairs = [
                (_packable(str(name), depth), _packable(each, depth + 1))
                for name, each in value.items()
            ]
            return msgspec.msgpack.Ext(_PAIRS, _encoder.encode(pairs))
        if isinstance(value, list | tuple):
            return [_packable(each, depth + 1) for each in value]
    return None
