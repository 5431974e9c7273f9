"""Rows of sessions and records as the contract wants to see them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import apsw

from perdure.backends.base import Stored
from perdure.backends.sqlite import schema
from perdure.backends.sqlite.content import IS_DIGEST
from perdure.backends.sqlite.snapshots import Snapshot
from perdure.databases.meaning import NONSENSE
from perdure.errors import FormatUnsupported
from perdure.model.header import BadHeaderError, decode_header
from perdure.model.record import BadRecordError, Position, decode_line
from perdure.recovery.walk import Piece, Problem

__all__ = ["COLUMNS", "Found", "disagreements", "end_of", "find", "found_of", "pieces", "stored_of"]

COLUMNS = (
    "number, id, header, tail_seq, tail_hash, size, revision, plan, (SELECT id FROM store LIMIT 1)"
)

_Row = tuple[int, int, bytes]


class Found(NamedTuple):
    """The row of a session.

    Attributes:
        number: its number in the file.
        name: its id, as it stands in the column.
        header: the header line.
        seq: the last acknowledged event.
        hash: hash of the record that holds it.
        size: bytes of its record lines.
        revision: counts the changes of the log.
        plan: the plan of a repair, or None.
        store: random id of the file.

    """

    number: int
    name: str | bytes
    header: bytes
    seq: int
    hash: str
    size: int
    revision: int
    plan: bytes | None
    store: str

    @property
    def id(self) -> str:
        """Its id."""
        return schema.text(self.name)

    @property
    def tail(self) -> Position:
        """The last acknowledged position."""
        return Position(self.seq, self.hash)


_KINDS: tuple[schema.Kinds, ...] = (int, schema.NAME, bytes, int, str, int, int, bytes, str)
_INSTEAD = (0, "?", b"", -1, "", 0, 0, None, "")


def found_of(row: Sequence[object]) -> Found:
    """A row with the cells of `COLUMNS`.

    What a damaged page turned into something else is nothing instead: such a session has no header,
    or a tail that no log has, and is told to be damaged like any other.
    """
    cells: list[Any] = [
        cell if isinstance(cell, kind) else instead
        for cell, kind, instead in zip(row, _KINDS, _INSTEAD, strict=True)
    ]
    return Found(*cells)


def find(db: apsw.Connection, namespace: str, session: str) -> Found | int | None:
    """A stored session; when it was deleted (Unix ms) if it is in the trash; else None."""
    name = (namespace, schema.cell(session))
    query = f"SELECT {COLUMNS} FROM sessions WHERE state = 'stored' AND namespace = ? AND id = ?"
    for row in schema.ask(db, query, name):
        return found_of(row)
    query = (
        "SELECT max(deleted_at) FROM sessions WHERE state = 'deleted' AND namespace = ? AND id = ?"
    )
    ((deleted_at,),) = schema.ask(db, query, name, [(int, type(None))])
    return None if deleted_at is None else int(deleted_at)


def end_of(db: apsw.Connection, number: int) -> tuple[int, int]:
    """The last event that has a row, and the bytes up to its end; (-1, 0) where there is none."""
    query = (
        "SELECT seq + count - 1, start + length(line) FROM records WHERE session = ?"
        " ORDER BY seq DESC LIMIT 1"
    )
    for last, end in schema.ask(db, query, (number,), (int, int)):
        return last, end
    return -1, 0


def stored_of(found: Found, session: str) -> Stored:
    """What stands in place of the header."""
    try:
        header = decode_header(found.header, f"session {session!r}")
    except BadHeaderError as error:
        return Stored(None, Problem("header", None, 0, 0, str(error)), 0)
    except FormatUnsupported as error:
        return Stored(None, Problem("unsupported", None, 0, 0, str(error)), 0, error)
    if header.id != session:
        reason = f"the header names session {header.id!r}"
        return Stored(None, Problem("header", None, 0, 0, reason), 0, other=header)
    return Stored(header, None, 0)


def pieces(snapshot: Snapshot, number: int, begin: int, seq: int) -> Iterator[Piece]:
    """The records of a log from `begin` on, or from the one that holds event `seq`.

    What SQLite cannot read is a piece with a flaw; what can be read behind it follows.
    """
    try:
        end = begin
        try:
            place, last = _bounds(snapshot, number, begin, seq)
        except NONSENSE as error:
            yield Piece(begin, begin, (), f"SQLite: {error}")
            return
        while place <= last:
            rows, reason = _page(snapshot, number, place, last)
            if reason is not None:
                behind = rows[0][1] if rows else end
                yield Piece(end, max(end, behind), (), f"SQLite: {reason}")
            if not rows:
                if reason is None:
                    raise snapshot.changed()
                return
            for number_, start, line in rows:
                end = start + len(line)
                place = number_ + 1
                yield Piece(start, end, (line,))
    finally:
        snapshot.close()


def _bounds(snapshot: Snapshot, number: int, begin: int, seq: int) -> tuple[int, int]:
    """The first record to read and the last one there is, by the number of its first event."""
    where = "FROM records WHERE session = ?"
    ((last,),) = snapshot.raw(f"SELECT max(seq) {where}", (number,))
    schema.expect((last,), [(int, type(None))])
    if last is None:
        return 0, -1
    seq = min(seq, last)
    if seq:
        ((place,),) = snapshot.raw(f"SELECT max(seq) {where} AND seq <= ?", (number, seq))
    else:
        ((place,),) = snapshot.raw(f"SELECT min(seq) {where} AND start >= ?", (number, begin))
    schema.expect((place,), [(int, type(None))])
    return (place if place is not None else last + 1 if not seq else last), last


def _page(snapshot: Snapshot, number: int, place: int, last: int) -> tuple[list[_Row], str | None]:
    """The next rows, and why some before them cannot be read."""
    try:
        return _rows(snapshot, number, place, last), None
    except NONSENSE as error:
        reason = str(error)
    before = _before(snapshot, number, place, last)
    if before:
        return before, None
    # By leaps, and then the first one that can be read behind the last one that cannot.
    low, step, found = place, 1, None
    while low < last and found is None:
        high = min(low + step, last)
        found = _readable(snapshot, number, high, last)
        low, step = (low, step) if found is not None else (high, step * 2)
    if found is None:
        return [], reason
    high = found
    while low + 1 < high:
        middle = (low + high) // 2
        nearer = _readable(snapshot, number, middle, last)
        low, high = (middle, high) if nearer is None else (low, min(nearer, high - 1))
        found = nearer if nearer is not None else found
    return _rows(snapshot, number, found, last, limit=1), reason


def _before(snapshot: Snapshot, number: int, place: int, last: int) -> list[_Row]:
    """Some of the rows that stand before the first one that cannot be read; none if it is next."""
    rows: list[_Row] = []
    with suppress(*NONSENSE):
        more = _rows(snapshot, number, place, last, limit=1)
        while len(more) > len(rows):
            rows = more
            more = _rows(snapshot, number, place, last, limit=2 * len(rows))
    return rows


_PAGE = (
    "SELECT seq, start, line FROM records WHERE session = ? AND seq >= ? AND seq <= ?"
    " ORDER BY seq LIMIT ?"
)


def _rows(snapshot: Snapshot, number: int, place: int, last: int, limit: int = -1) -> list[_Row]:
    rows = [_checked(row) for row in snapshot.raw(_PAGE, (number, place, last, limit))]
    schema.expect_behind(place - 1, (row[0] for row in rows))
    return rows


def _checked(row: tuple[object, ...]) -> _Row:
    schema.expect(row, (int, int, bytes))
    return row  # type: ignore[return-value]


def _readable(snapshot: Snapshot, number: int, place: int, last: int) -> int | None:
    """The first record from `place` on, if it can be read."""
    try:
        rows = _rows(snapshot, number, place, last, limit=1)
    except NONSENSE:
        return None
    return rows[0][0] if rows else None


def disagreements(snapshot: Snapshot, found: Found) -> Iterator[Problem]:
    """Columns and indexes that do not say what the bytes beside them say."""
    start, seq = 0, -1
    try:
        for (digest,) in snapshot.raw(_NO_CONTENT, (found.number,)):
            reason = f"a row of blobs has {digest!r:.80}, which is no digest"
            yield Problem("column", None, 0, 0, reason)
        while rows := snapshot.raw(_ALL, (found.number, seq)):
            for row in rows:
                schema.expect((row[1], row[-1]), (int, bytes))
                end = start + len(row[-1])
                lie = _disagreement(snapshot, row, start)
                if lie is not None:
                    yield Problem("column", row[1], start, end, lie)
                schema.expect_behind(seq, (row[1],))
                start, seq = end, row[1]
    except NONSENSE as error:
        yield Problem("column", None, start, start, f"SQLite: {error}")
    finally:
        snapshot.close()


_ALL = "SELECT * FROM records WHERE session = ? AND seq > ? ORDER BY seq"
_NO_CONTENT = f"SELECT digest FROM blobs WHERE session = ? AND NOT ({IS_DIGEST})"
_BY_KEY = (
    "SELECT seq FROM records INDEXED BY record_keys WHERE session = ? AND type = ? AND key = ?"
)


def _disagreement(snapshot: Snapshot, row: tuple[Any, ...], start: int) -> str | None:
    number, seq, _, _, kind, _, _, _, key, line = row
    try:
        if schema.row_of(number, decode_line(line), start) != row:
            return "its columns do not say what the record says"
    except BadRecordError:
        # A line that is damaged says nothing of its columns, and is told elsewhere.
        return None
    if key is not None and snapshot.raw(_BY_KEY, (number, kind, key)) != [(seq,)]:
        return "the index of the keys does not lead to it"
    return None
