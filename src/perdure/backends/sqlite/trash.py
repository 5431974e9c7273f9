"""The trash, listings and what is kept aside: statements on whole sessions."""

from collections.abc import Iterator

import apsw

from perdure.backends.base import Aside, Trashed
from perdure.backends.sqlite import schema
from perdure.backends.sqlite.reading import COLUMNS, Found, found_of, stored_of
from perdure.backends.sqlite.snapshots import Snapshot
from perdure.errors import SessionExists, SessionNotFound

__all__ = [
    "discard",
    "discarded",
    "kept",
    "kept_log",
    "kept_parts",
    "last",
    "page",
    "remove",
    "restore",
    "trashed",
]

_PAGE_ROWS = 500


def page(db: apsw.Connection, namespace: str, behind: str | bytes) -> list[Found]:
    """The next stored sessions, in the order of their ids."""
    query = (
        f"SELECT {COLUMNS} FROM sessions WHERE state = 'stored' AND namespace = ? AND id > ?"
        " ORDER BY id LIMIT ?"
    )
    rows = schema.ask(db, query, (namespace, behind, _PAGE_ROWS))
    found = [found_of(row) for row in rows]
    schema.expect_behind(behind, (each.name for each in found))
    return found


# --- the trash ----------------------------------------------------------------------------------


def trashed(found: Found, deleted_at: int) -> Trashed:
    """A row that is in the trash, as the contract shows it."""
    header = stored_of(found, found.id).header
    digest = header.digest if header is not None else None
    return Trashed(str(found.number), found.id, digest, deleted_at)


def discarded(db: apsw.Connection, namespace: str) -> list[Trashed]:
    """What is in the trash, by id, the oldest deletion of each first."""
    query = (
        f"SELECT deleted_at, {COLUMNS} FROM sessions WHERE state = 'deleted' AND namespace = ?"
        " ORDER BY id, deleted_at, number"
    )
    rows = schema.ask(db, query, (namespace,))
    return [trashed(found_of(row), at if isinstance(at, int) else 0) for at, *row in rows]


def last(db: apsw.Connection, namespace: str, session: str) -> int | None:
    """The number of what was deleted last under an id."""
    query = (
        "SELECT number FROM sessions WHERE state = 'deleted' AND namespace = ? AND id = ?"
        " ORDER BY deleted_at DESC, number DESC LIMIT 1"
    )
    found = schema.ask(db, query, (namespace, schema.cell(session)), [int])
    return found[0][0] if found else None


def discard(db: apsw.Connection, number: int, session: str, now: int) -> None:
    """Move a stored session to the trash."""
    db.execute(
        "UPDATE sessions SET state = 'deleted', deleted_at = ?"
        " WHERE number = ? AND state = 'stored'",
        (now, number),
    )
    if db.changes() != 1:
        raise SessionNotFound(session)


def restore(db: apsw.Connection, number: int, session: str) -> None:
    """Move a deleted session back."""
    try:
        db.execute(
            "UPDATE sessions SET state = 'stored', deleted_at = NULL, revision = revision + 1"
            " WHERE number = ? AND state = 'deleted'",
            (number,),
        )
    except apsw.ConstraintError:
        raise SessionExists(session) from None
    if db.changes() != 1:
        raise SessionNotFound(session)


def remove(db: apsw.Connection, number: int) -> None:
    """Remove all rows of a session, and of the logs that were replaced in it."""
    kept = "SELECT log FROM asides WHERE session = ? AND log IS NOT NULL"
    for each in (*(log for (log,) in schema.ask(db, kept, (number,))), number):
        for table in ("records", "blob_parts", "blobs", "aside_parts", "asides", "derived"):
            db.execute(f"DELETE FROM {table} WHERE session = ?", (each,))
        db.execute("DELETE FROM sessions WHERE number = ?", (each,))


# --- what is kept aside -------------------------------------------------------------------------


def kept(db: apsw.Connection, number: int) -> list[Aside]:
    """What was set aside of a session, the oldest first."""
    query = (
        "SELECT place, reason, size, set_at FROM asides WHERE session = ? ORDER BY set_at, place"
    )
    return [Aside(*row) for row in schema.ask(db, query, (number,), (str, str, int, int))]


def kept_parts(snapshot: Snapshot, number: int, place: str) -> Iterator[bytes]:
    """Bytes that were set aside."""
    query = "SELECT bytes FROM aside_parts WHERE session = ? AND place = ? AND part = ?"
    return snapshot.parts(query, (number, place))


def kept_log(snapshot: Snapshot, number: int) -> Iterator[bytes]:
    """A log that was replaced: its header line and its record lines."""
    query = "SELECT seq, line FROM records WHERE session = ? AND seq > ? ORDER BY seq"
    try:
        for (header,) in snapshot.rows("SELECT header FROM sessions WHERE number = ?", (number,)):
            yield header
        for rows in snapshot.pages(query, (number,), (int, bytes), -1):
            yield b"".join(line for _, line in rows)
    finally:
        snapshot.close()
