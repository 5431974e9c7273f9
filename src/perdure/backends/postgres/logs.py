"""A whole log: made, verified and made whole, put in the place of another one."""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from perdure.backends.postgres.cells import COLUMNS, TYPES, batches, rows_of, shown
from perdure.backends.postgres.holding import PostgresHold
from perdure.databases.cells import cell
from perdure.databases.postgres import Work
from perdure.databases.postgres.keys import key
from perdure.errors import SessionDamaged, StaleWriter
from perdure.model.header import Header, encode_header
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.recovery.walk import Ending

__all__ = ["count_arrival", "fill", "insert_session", "keep_aside", "replace", "settle"]

_ASIDE_BYTES = 1024 * 1024
_SHARDS = 32
"""So many rows count what comes and goes in a namespace."""


def insert_session(
    work: Work, namespace: str, header: Header, state: str, builder: int | None = None
) -> int:
    """A session without a tail; its number."""
    found = work.row(
        "INSERT INTO @sessions (namespace, name, id, state, created_at, builder, header)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING session",
        namespace,
        key(header.id),
        cell(header.id),
        state,
        header.created_at,
        builder,
        encode_header(header),
    )
    return int(found[0]) if found else 0


def count_arrival(work: Work, namespace: str, token: str) -> None:
    """Note that a session came or went; `token` is random hex."""
    work.run(
        "INSERT INTO @arrivals AS a VALUES (%s, %s, 1)"
        " ON CONFLICT (namespace, shard) DO UPDATE SET changes = a.changes + 1",
        namespace,
        int(token[:4], 16) % _SHARDS,
    )


def fill(
    work: Work, namespace: str, number: int, header: Header, records: Iterable[Record]
) -> tuple[Position, int]:
    """Write the records of a log that has none; where it stands then, and its size."""
    position, size = Position(-1, header.genesis), 0
    for batch in batches(records):
        rows, size = rows_of(namespace, number, batch, size)
        work.insert("records", COLUMNS, TYPES, rows)
        position = batch[-1].position
    return position, size


def keep_aside(
    work: Work, mine: tuple[str, int], parts: Iterable[bytes], *, place: str, reason: str, now: int
) -> None:
    """Bytes beside a log; what is at the place already stays."""
    there = "SELECT 1 FROM @asides WHERE namespace = %s AND session = %s AND place = %s"
    if work.row(there, *mine, place):
        return
    size = part = 0
    for data in parts:
        for first in range(0, len(data), _ASIDE_BYTES):
            piece = data[first : first + _ASIDE_BYTES]
            work.run(
                "INSERT INTO @aside_parts VALUES (%s, %s, %s, %s, %s)", *mine, place, part, piece
            )
            size, part = size + len(piece), part + 1
    work.run(
        "INSERT INTO @asides VALUES (%s, %s, %s, %s, %s, %s, NULL)",
        *mine,
        place,
        shown(reason),
        size,
        now,
    )


# --- recovery --------------------------------------------------------------------------------


def settle(hold: PostgresHold, ending: Ending, seen: Position | None) -> None:
    """See `Backend.settle`."""
    hold.check()
    position = ending.position
    tried: list[bool] = []

    def change(work: Work) -> None:
        found = hold.tail_of(work)
        if tried and found is not None and found[:2] == (position, ending.end):
            # The answer to the first try was lost.
            return
        tried.append(True)
        if found is None or found[0] != seen:
            raise StaleWriter(hold.session, "another writer wrote while it was verified")
        last = work.row(
            "SELECT seq FROM @records WHERE namespace = %s AND session = %s"
            " ORDER BY seq DESC LIMIT 1",
            *hold.mine,
        )
        behind = last is not None and last[0] > position.seq
        if not behind and found[:2] == (position, ending.end):
            return
        if behind:
            _set_aside(hold, work, ending)
        work.run(
            "UPDATE @tails SET tail_seq = %s, tail_hash = %s, size = %s,"
            " revision = revision + 1, cuts = cuts + %s"
            " WHERE namespace = %s AND session = %s",
            *position,
            ending.end,
            int(behind),
            *hold.mine,
        )

    hold.change(change, alone=True)
    hold.begin(hold.number, position, ending.end)


def _set_aside(hold: PostgresHold, work: Work, ending: Ending) -> None:
    """Keep the rows behind the verified end, before they are taken out of the log."""
    seq = ending.position.seq
    now, token = hold.server.runtime.now_ms(), hold.server.runtime.token(4)
    reason = ending.problem.reason if ending.problem else "not part of any record"
    place = f"{now:015d}-{token}"
    lines = _behind(hold, work, ending.position)
    keep_aside(work, hold.mine, lines, place=place, reason=reason, now=now)
    which = "FROM @records WHERE namespace = %s AND session = %s AND seq > %s"
    work.run(f"DELETE {which}", *hold.mine, seq)


def _behind(hold: PostgresHold, work: Work, position: Position) -> Iterator[bytes]:
    """The lines of the rows behind a verified end.

    Raises:
        SessionDamaged: one is a record of what was verified, and its column lies; nothing that was
            acknowledged goes aside.

    """
    for line in _lines_behind(work, hold.mine, position.seq):
        with suppress(BadRecordError):
            seq = decode_line(line).fields.seq
            if seq <= position.seq:
                reason = f"the row of event {seq} stands elsewhere"
                raise SessionDamaged(hold.session, reason, kind="column", record=seq)
        yield line


def _lines_behind(work: Work, mine: tuple[str, int], seq: int) -> Iterator[bytes]:
    while rows := work.rows(
        "SELECT seq, line FROM @records WHERE namespace = %s AND session = %s AND seq > %s"
        " ORDER BY seq LIMIT 10",
        *mine,
        seq,
    ):
        seq = rows[-1][0]
        yield from (bytes(line) for _, line in rows)


def replace(
    hold: PostgresHold, header: Header, records: Iterable[Record], place: str, reason: str
) -> None:
    """See `Backend.replace`.

    The rows of the old log are not touched: they keep their number, which nobody looks for any
    more, and the new log gets one of its own. So does what was derived from it.
    """
    hold.check()
    old = hold.number
    stood: list[tuple[int, Position, int]] = []

    def change(work: Work) -> None:
        number = _take_place(hold, work, header)
        hold.touched.append(number)
        position, size = fill(work, hold.namespace, number, header, records)
        # The lease goes on with it.
        work.run(
            "INSERT INTO @tails (namespace, session, tail_seq, tail_hash, size, revision, epoch,"
            " owner, hold, since) SELECT namespace, %s, %s, %s, %s, revision + 1, epoch, owner,"
            " hold, since FROM @tails WHERE namespace = %s AND session = %s",
            number,
            *position,
            size,
            hold.namespace,
            old,
        )
        _remember(hold, work, number, (place, reason))
        stood.append((number, position, size))

    try:
        hold.change(change, alone=True, repeatable=False, once=True)
    except BaseException as error:
        # Perhaps the log that it stands in is set aside already.
        if not isinstance(error, Exception) or getattr(error, "uncertain", False):
            hold.doom()
        raise
    hold.begin(*stood[0])
    hold.presence.changed(hold.namespace, hold.session)


def _take_place(hold: PostgresHold, work: Work, header: Header) -> int:
    """The number of a session that has all that the old one has, but for its log."""
    found = work.row(
        "UPDATE @sessions SET state = 'aside' WHERE namespace = %s AND session = %s"
        " AND state = 'stored' RETURNING plan",
        *hold.mine,
    )
    if found is None:
        raise StaleWriter(hold.session, "another log has taken its place")
    number = insert_session(work, hold.namespace, header, "stored")
    which = "WHERE namespace = %s AND session = %s"
    work.run(f"UPDATE @sessions SET plan = %s {which}", found[0], hold.namespace, number)
    for table in ("blobs", "blob_parts", "asides", "aside_parts"):
        work.run(f"UPDATE @{table} SET session = %s {which}", number, *hold.mine)
    return number


def _remember(hold: PostgresHold, work: Work, number: int, why: tuple[str, str]) -> None:
    """Say where the log that was replaced is; bytes that are at its place already are it."""
    place, reason = why
    work.run(
        "INSERT INTO @asides SELECT %s, %s, %s, %s, length(s.header) + coalesce((SELECT"
        " sum(length(r.line)) FROM @records r WHERE r.namespace = s.namespace"
        " AND r.session = s.session), 0), %s, s.session FROM @sessions s"
        " WHERE s.namespace = %s AND s.session = %s ON CONFLICT DO NOTHING",
        hold.namespace,
        number,
        place,
        shown(reason),
        hold.server.runtime.now_ms(),
        *hold.mine,
    )
