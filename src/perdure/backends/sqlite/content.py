"""Content in rows: one that names it, and its bytes in parts of a MiB."""

from collections.abc import Iterable, Iterator

import apsw

from perdure.backends.base import Blob
from perdure.backends.sqlite.medium import Medium
from perdure.backends.sqlite.snapshots import Snapshot

__all__ = ["IS_DIGEST", "hand_over", "name", "opened", "remove", "store", "stored"]


IS_DIGEST = "length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'"
"""Holds for rows that name content; others come from damage, or from somebody's hand."""


def name(db: apsw.Connection, number: int, blob: Blob, *, beside: bool = False) -> None:
    """Say that a session has this content, in the file or beside it."""
    place = "beside" if beside else "here"
    row = (number, blob.digest, blob.size, blob.stored_at, place)
    db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?, ?, ?)", row)


def store(db: apsw.Connection, number: int, blob: Blob, parts: Iterable[bytes]) -> None:
    """Put content into the file; bytes of that name that are there already give way."""
    remove(db, number, blob.digest)
    rows = ((number, blob.digest, part, data) for part, data in enumerate(parts))
    db.executemany("INSERT INTO blob_parts VALUES (?, ?, ?, ?)", rows)
    name(db, number, blob)


def remove(db: apsw.Connection, number: int, digest: str) -> None:
    """Remove content of a session from the file; it may not be there."""
    for table in ("blobs", "blob_parts"):
        db.execute(f"DELETE FROM {table} WHERE session = ? AND digest = ?", (number, digest))


def opened(medium: Medium, number: int, digest: str) -> tuple[str, Iterator[bytes]] | None:
    """Whether content is "here" in the file or "beside" it, and the bytes that are here; or None.

    What is removed from now on is read to its end.
    """
    snapshot = Snapshot(medium)
    query = "SELECT place FROM blobs WHERE session = ? AND digest = ?"
    for (place,) in snapshot.rows(query, (number, digest)):
        parts = "SELECT bytes FROM blob_parts WHERE session = ? AND digest = ? AND part = ?"
        return place, snapshot.parts(parts, (number, digest))
    snapshot.close()
    return None


def stored(medium: Medium, number: int) -> Iterator[Blob]:
    """What content a session has, in order of the digests."""
    query = (
        "SELECT digest, size, stored_at FROM blobs WHERE session = ? AND digest > ?"
        f" AND {IS_DIGEST} ORDER BY digest"
    )
    for rows in Snapshot(medium).pages(query, (number,), (str, int, int), ""):
        yield from (Blob(*row) for row in rows)


def hand_over(db: apsw.Connection, room: int, number: int) -> None:
    """Give a session the content of the room in which it was built."""
    for table in ("blobs", "blob_parts"):
        db.execute(f"UPDATE {table} SET session = ? WHERE session = ?", (number, room))
    db.execute("DELETE FROM sessions WHERE number = ?", (room,))
