"""Rows of sessions and records as the contract wants to see them."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from perdure.backends.base import Aside, Stored, Trashed
from perdure.backends.postgres.cells import COLUMNS, Row, row_of, text
from perdure.databases.postgres import Server, Work
from perdure.databases.postgres.keys import key
from perdure.errors import FormatUnsupported, SessionNotFound, StorageUnavailable
from perdure.model.header import BadHeaderError, decode_header
from perdure.model.record import BadRecordError, Position, decode_line
from perdure.recovery.walk import Piece, Problem

__all__ = [
    "Found",
    "disagreements",
    "discarded",
    "end_of",
    "find",
    "kept",
    "page",
    "pieces",
    "stored_of",
    "trashed",
]

_FOUND = (
    "SELECT s.session, s.name, s.id, s.header, s.plan, s.deleted_at, t.tail_seq, t.tail_hash,"
    " t.size, t.revision, t.cuts, t.owner, t.since, s.namespace, (SELECT id FROM @store LIMIT 1)"
    " FROM @sessions s JOIN @tails t ON t.namespace = s.namespace AND t.session = s.session"
)
_PAGE_ROWS = 500
_PAGE_BYTES = 1024 * 1024
_FIRST_ROWS = 50
"""Who wants the end of a log, or some events of it, is not made to wait for a whole page."""


class Found(NamedTuple):
    """A session and where its log stands.

    Attributes:
        number: its number.
        name: its id, as it stands in keys, which order listings.
        told_id: its id.
        header: the header line.
        plan: the plan of a repair, or None.
        deleted_at: Unix ms, of one in the trash; else None.
        seq: the last acknowledged event.
        hash: hash of the record that holds it.
        size: bytes of its record lines.
        revision: counts the changes of the log.
        cuts: how often records were taken out of it.
        owner: the writer that has it, or None.
        since: Unix ms at which that one took it, or None.
        namespace: the namespace that it is in.
        store: random id of the store.

    """

    number: int
    name: bytes
    told_id: bytes
    header: bytes
    plan: bytes | None
    deleted_at: int | None
    seq: int
    hash: str
    size: int
    revision: int
    cuts: int
    owner: int | None
    since: int | None
    namespace: str
    store: str

    @property
    def mine(self) -> tuple[str, int]:
        """The beginning of each of its keys."""
        return self.namespace, self.number

    @property
    def id(self) -> str:
        """Its id."""
        return text(self.told_id)

    @property
    def tail(self) -> Position:
        """The last acknowledged position."""
        return Position(self.seq, self.hash)

    @property
    def told(self) -> str:
        """Its revision."""
        # The hash tells apart what grew from two copies of one database.
        return f"postgresql:{self.store}:{self.number}:{self.revision}:{self.hash[:16]}"


def find(work: Work, namespace: str, session: str) -> Found | int | None:
    """A stored session; when it was deleted (Unix ms) if it is in the trash; else None."""
    name = (namespace, key(session))
    row = work.row(f"{_FOUND} WHERE s.namespace = %s AND s.name = %s AND s.state = 'stored'", *name)
    if row is not None:
        return Found(*row)
    found = work.row(
        "SELECT max(deleted_at) FROM @sessions"
        " WHERE namespace = %s AND state = 'deleted' AND name = %s",
        *name,
    )
    return None if found is None or found[0] is None else int(found[0])


def page(namespace: str, behind: bytes, work: Work) -> list[Found]:
    """The next stored sessions, in the order of their ids."""
    rows = work.rows(
        f"{_FOUND} WHERE s.namespace = %s AND s.state = 'stored' AND s.name > %s"
        " ORDER BY s.name LIMIT %s",
        namespace,
        behind,
        _PAGE_ROWS,
    )
    return [Found(*row) for row in rows]


def discarded(work: Work, namespace: str) -> list[Found]:
    """What is in the trash, by id, the oldest deletion of each first."""
    rows = work.rows(
        f"{_FOUND} WHERE s.namespace = %s AND s.state = 'deleted'"
        " ORDER BY s.name, s.deleted_at, s.session",
        namespace,
    )
    return [Found(*row) for row in rows]


def trashed(found: Found, deleted_at: int) -> Trashed:
    """What is in the trash, as the contract shows it."""
    header = stored_of(found, found.id).header
    digest = header.digest if header is not None else None
    return Trashed(str(found.number), found.id, digest, deleted_at)


def stored_of(found: Found, session: str) -> Stored:
    """What stands in place of the header."""
    try:
        header = decode_header(bytes(found.header), f"session {session!r}")
    except BadHeaderError as error:
        return Stored(None, Problem("header", None, 0, 0, str(error)), 0)
    except FormatUnsupported as error:
        return Stored(None, Problem("unsupported", None, 0, 0, str(error)), 0, error)
    if header.id != session:
        reason = f"the header names session {header.id!r}"
        return Stored(None, Problem("header", None, 0, 0, reason), 0, other=header)
    return Stored(header, None, 0)


def end_of(work: Work, mine: tuple[str, int]) -> tuple[Position, int, tuple[int, int]] | None:
    """Where a log stands, its size, and the last event that has a row with the bytes to its end.

    One statement: it tells of one state. The last is (-1, 0) where there is none.
    """
    found = work.row(
        "SELECT t.tail_seq, t.tail_hash, t.size, r.seq + r.count - 1, r.start + length(r.line)"
        " FROM @tails t LEFT JOIN LATERAL (SELECT seq, count, start, line FROM @records"
        " WHERE namespace = t.namespace AND session = t.session ORDER BY seq DESC LIMIT 1) r"
        " ON true WHERE t.namespace = %s AND t.session = %s",
        *mine,
    )
    if found is None:
        return None
    seq, hash_, size, last, end = found
    return Position(seq, hash_), size, (-1, 0) if last is None else (last, end)


# --- a log --------------------------------------------------------------------------------------

_FROM = "FROM @records WHERE namespace = %s AND session = %s"


def _bounded(columns: str, which: str) -> str:
    """The first records behind a number, so many at most, and no more than a MiB before the last.

    The limit is inside: what is counted ends no scan of the index on `seq`, which would run on to
    the end of the log where the bytes end a page. So some rows are found that are thrown away.
    Their lines are not read: what is outlying has its length beside it, and is fetched when a row
    is sent. What the columns beside a line say decides nothing here: they may lie.
    """
    before = "sum(octet_length(line)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING)"
    return (
        f"SELECT {columns} FROM (SELECT *, {before} - octet_length(line) AS before FROM ("
        f"SELECT {COLUMNS} {_FROM} AND seq > %s{which} ORDER BY seq LIMIT %s) i) r"
        f" WHERE before < {_PAGE_BYTES} ORDER BY seq"
    )


_ROWS = _bounded("seq, start, line", " AND seq <= %s")
_ALL = _bounded(COLUMNS, "")
_CUTS = "SELECT cuts FROM @tails WHERE namespace = %s AND session = %s"


def pieces(server: Server, session: str, found: Found, begin: int, seq: int) -> Iterator[Piece]:
    """The records of a log from `begin` on, or from the one that holds event `seq`.

    No transaction is kept open for it. Records are added behind the end that is read here, and what
    is stored is never changed; that some were taken out meanwhile is noticed and told.
    """
    mine = found.mine
    behind, last = server.read(lambda work: _bounds(work, mine, begin, seq))
    limit = _FIRST_ROWS
    while behind < last:
        rows, cuts = server.read(partial(_page, mine, (behind, last, limit)))
        if cuts is None:
            # Removed for good while it was read.
            raise SessionNotFound(session)
        if cuts[0] != found.cuts or not rows:
            told = StorageUnavailable(server.place, f"session {session!r} was cut meanwhile")
            told.retryable = True
            raise told
        for number, start, line in rows:
            yield Piece(start, start + len(line), (line,))
            behind = number
        limit = _PAGE_ROWS * 4


def _page(
    mine: tuple[str, int], wanted: tuple[int, int, int], work: Work
) -> tuple[list[Row], Row | None]:
    behind, last, limit = wanted
    rows = work.rows(_ROWS, *mine, behind, last, limit)
    return rows, work.row(_CUTS, *mine)


def _bounds(work: Work, mine: tuple[str, int], begin: int, seq: int) -> tuple[int, int]:
    """The number before the first record to read, and that of the last one there is."""
    found = work.row(f"SELECT max(seq) {_FROM}", *mine)
    last = found[0] if found is not None else None
    if last is None:
        return 0, 0
    if seq:
        place = work.row(f"SELECT max(seq) {_FROM} AND seq <= %s", *mine, min(seq, last))
    elif begin:
        place = work.row(f"SELECT min(seq) {_FROM} AND start >= %s", *mine, begin)
        if place is None or place[0] is None:
            return last, last
    else:
        return -1, last
    return (place[0] if place is not None and place[0] is not None else last) - 1, last


def disagreements(server: Server, mine: tuple[str, int]) -> Iterator[Problem]:
    """Columns that do not say what the bytes beside them say."""
    start, behind = 0, -1
    while True:
        rows = server.read(partial(_whole, (*mine, behind, _PAGE_ROWS)))
        if not rows:
            return
        for row in rows:
            end = start + len(row[-1])
            try:
                if row_of(*mine, decode_line(row[-1]), start) != row:
                    reason = "its columns do not say what the record says"
                    yield Problem("column", row[2], start, end, reason)
            except BadRecordError:
                # A line that is damaged says nothing of its columns, and is told elsewhere.
                pass
            start, behind = end, row[2]


def _whole(wanted: tuple[object, ...], work: Work) -> list[Row]:
    return work.rows(_ALL, *wanted)


def kept(work: Work, mine: tuple[str, int]) -> list[Aside]:
    """What was set aside of a session, the oldest first."""
    query = (
        "SELECT place, reason, size, set_at FROM @asides WHERE namespace = %s AND session = %s"
        " ORDER BY set_at, place"
    )
    return [Aside(*row) for row in work.rows(query, *mine)]
