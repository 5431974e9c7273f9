"""The four kinds of evidence, and how each stands in a row.

Texts that a caller chose stand as bytes: SQLite text cannot hold a lone surrogate, and an id may.
Hashes stand as the 32 bytes that they are.
"""

import re
from typing import NamedTuple

from perdure.errors import InvalidValue
from perdure.evidence.rows import Cell, Row, Table
from perdure.model import limits
from perdure.model.record import Position

__all__ = [
    "ACCEPTANCE",
    "DAMAGE",
    "DELETION",
    "POSITION",
    "TABLES",
    "About",
    "Acceptance",
    "Damage",
    "Deleted",
    "Seen",
    "acceptance_number",
    "acceptance_of",
    "acceptance_row",
    "damage_of",
    "damage_row",
    "deleted_of",
    "deleted_row",
    "known_of",
    "known_row",
    "seq_of",
    "text_cell",
]

_HEX64 = re.compile("[0-9a-f]{64}")
_SEQ_MAX = 2**53
_WHOLE_LOG = -1
"""Stands for "no record" in a key, where SQLite allows no NULL."""

POSITION = Table(
    "position",
    (
        "namespace BLOB",
        "session BLOB",
        "digest BLOB",
        "seq INTEGER NOT NULL",
        "hash BLOB NOT NULL",
        "seen_at INTEGER NOT NULL",
    ),
    key=3,
)
DELETION = Table(
    "deletion",
    ("namespace BLOB", "session BLOB", "digest BLOB", "deleted_at INTEGER NOT NULL"),
    key=2,
)
DAMAGE = Table(
    "damage",
    (
        "namespace BLOB",
        "session BLOB",
        "kind BLOB",
        "record INTEGER",
        "reason BLOB NOT NULL",
        "reported_at INTEGER NOT NULL",
    ),
    key=4,
)
ACCEPTANCE = Table(
    "acceptance",
    (
        "namespace BLOB",
        "session BLOB",
        "number INTEGER",
        "digest BLOB NOT NULL",
        "seq INTEGER NOT NULL",
        "hash BLOB NOT NULL",
        "known_seq INTEGER",
        "known_hash BLOB",
        "accepted_at INTEGER NOT NULL",
    ),
    key=3,
)
TABLES = (POSITION, DELETION, DAMAGE, ACCEPTANCE)


class Seen(NamedTuple):
    """Where a log stood when it was last seen.

    Attributes:
        session: id of the session.
        digest: digest of its header, 64 hex digits; tells sessions of one id apart.
        position: its last acknowledged position.
        seen_at: Unix milliseconds at which it was first noted to stand there.

    """

    session: str
    digest: str
    position: Position
    seen_at: int


class Deleted(NamedTuple):
    """A tombstone: the session was deleted by somebody and did not vanish.

    Attributes:
        session: id of the session.
        digest: digest of its header, 64 hex digits, or None if that could not be read.
        deleted_at: Unix milliseconds.

    """

    session: str
    digest: str | None
    deleted_at: int


class Damage(NamedTuple):
    """What is wrong with a log.

    Attributes:
        session: id of the session.
        kind: kind of the problem, one word.
        record: number of the record where the verified prefix ends, or None.
        reason: for people.
        reported_at: Unix milliseconds of the first report.

    """

    session: str
    kind: str
    record: int | None
    reason: str
    reported_at: int


class Acceptance(NamedTuple):
    """Somebody declared what is there to be the truth, whatever was known before.

    Attributes:
        session: id of the session.
        digest: digest of the accepted log's header, 64 hex digits.
        position: where the accepted log stands.
        known: the position that was known before, or None.
        accepted_at: Unix milliseconds.

    """

    session: str
    digest: str
    position: Position
    known: Position | None
    accepted_at: int


class About(NamedTuple):
    """All that is known of one id, but for what was accepted.

    Attributes:
        seen: the last position of each log that had it.
        deleted: its tombstone, or None.
        damage: its damage reports.
        settled_at: Unix milliseconds of the last acceptance, or of its being forgotten; what was
            seen until then is not noted any more. None if there was none.
        unreadable: why all this comes from nothing although there is a file, or None.

    """

    seen: tuple[Seen, ...] = ()
    deleted: Deleted | None = None
    damage: tuple[Damage, ...] = ()
    settled_at: int | None = None
    unreadable: str | None = None


# --- cells --------------------------------------------------------------------------------------


def text_cell(text: str) -> bytes:
    """A text as bytes, lone surrogates included; different texts stay different."""
    return text.encode("utf-8", "surrogatepass")


def _text(cell: Cell) -> str:
    return _bytes(cell).decode("utf-8", "surrogatepass")


def _hash_cell(path: str, text: str) -> bytes:
    if not _HEX64.fullmatch(text):
        raise InvalidValue(path, "is not 64 lower-case hex digits")
    return bytes.fromhex(text)


def _number_cell(path: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidValue(path, f"{value} is not between {least} and {most}")
    return value


def _time_cell(path: str, value: int) -> int:
    return _number_cell(path, value, -limits.TIME_MS_MAX, limits.TIME_MS_MAX)


def _position_cells(path: str, position: Position) -> tuple[int, bytes]:
    # An empty log stands at -1.
    seq = _number_cell(f"{path}.seq", position.seq, -1, _SEQ_MAX)
    return seq, _hash_cell(f"{path}.hash", position.hash)


# Rows are given back as they were written (a checksum says so): the checks narrow types only.


def _bytes(cell: Cell) -> bytes:
    return cell if isinstance(cell, bytes) else b""


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0


# --- rows ---------------------------------------------------------------------------------------


def known_row(namespace: str, known: Seen) -> Row:
    """The row of a known position.

    Raises:
        InvalidValue: a hash that is none, or a number out of range.

    """
    return (
        text_cell(namespace),
        text_cell(known.session),
        _hash_cell("digest", known.digest),
        *_position_cells("position", known.position),
        _time_cell("seen_at", known.seen_at),
    )


def known_of(row: Row) -> Seen:
    """What `known_row` made a row of."""
    _namespace, session, digest, seq, link, seen_at = row
    position = Position(_number(seq), _bytes(link).hex())
    return Seen(_text(session), _bytes(digest).hex(), position, _number(seen_at))


def seq_of(row: Row) -> int:
    """The sequence number in the row of a known position."""
    return _number(row[3])


def deleted_row(namespace: str, deleted: Deleted) -> Row:
    """The row of a tombstone.

    Raises:
        InvalidValue: a hash that is none, or a number out of range.

    """
    return (
        text_cell(namespace),
        text_cell(deleted.session),
        None if deleted.digest is None else _hash_cell("digest", deleted.digest),
        _time_cell("deleted_at", deleted.deleted_at),
    )


def deleted_of(row: Row) -> Deleted:
    """What `deleted_row` made a row of."""
    _namespace, session, digest, deleted_at = row
    found = None if digest is None else _bytes(digest).hex()
    return Deleted(_text(session), found, _number(deleted_at))


def damage_row(namespace: str, damage: Damage) -> Row:
    """The row of a damage report.

    Raises:
        InvalidValue: a number out of range.

    """
    record = damage.record
    return (
        text_cell(namespace),
        text_cell(damage.session),
        text_cell(damage.kind),
        _WHOLE_LOG if record is None else _number_cell("record", record, 0, _SEQ_MAX),
        text_cell(damage.reason),
        _time_cell("reported_at", damage.reported_at),
    )


def damage_of(row: Row) -> Damage:
    """What `damage_row` made a row of."""
    _namespace, session, kind, record, reason, reported_at = row
    place = None if record == _WHOLE_LOG else _number(record)
    return Damage(_text(session), _text(kind), place, _text(reason), _number(reported_at))


def acceptance_row(namespace: str, number: int, acceptance: Acceptance) -> Row:
    """The row of the acceptance that is the `number`-th of its session, from 0.

    Raises:
        InvalidValue: a hash that is none, or a number out of range.

    """
    known = acceptance.known
    return (
        text_cell(namespace),
        text_cell(acceptance.session),
        number,
        _hash_cell("digest", acceptance.digest),
        *_position_cells("position", acceptance.position),
        *((None, None) if known is None else _position_cells("known", known)),
        _time_cell("accepted_at", acceptance.accepted_at),
    )


def acceptance_of(row: Row) -> Acceptance:
    """What `acceptance_row` made a row of."""
    _namespace, session, _place, digest, seq, link, known_seq, known_link, accepted_at = row
    position = Position(_number(seq), _bytes(link).hex())
    known = None if known_seq is None else Position(_number(known_seq), _bytes(known_link).hex())
    return Acceptance(_text(session), _bytes(digest).hex(), position, known, _number(accepted_at))


def acceptance_number(row: Row) -> int:
    """The how-manieth acceptance of its session a row is, from 0."""
    return _number(row[2])
