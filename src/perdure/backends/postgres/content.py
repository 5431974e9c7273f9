"""Content in rows: one that names it, and its bytes in parts of a MiB."""

from collections.abc import Iterable, Iterator

from perdure.backends.base import Blob
from perdure.databases.postgres import Server, Work

__all__ = ["aside_parts", "log_parts", "opened", "remove", "store", "stored"]

_PART_BYTES = 1024 * 1024
_AT_ONCE = 8
"""Content of so many parts is read in one statement; what is larger, from a snapshot."""

_PARTS = (
    "SELECT part, bytes FROM @blob_parts WHERE namespace = %s AND session = %s AND digest = %s"
    " AND part > %s ORDER BY part LIMIT %s"
)
_ASIDE = (
    "SELECT part, bytes FROM @aside_parts WHERE namespace = %s AND session = %s AND place = %s"
    " AND part > %s ORDER BY part LIMIT %s"
)
_LOG = (
    "SELECT seq, line FROM @records WHERE namespace = %s AND session = %s AND seq > %s"
    " ORDER BY seq LIMIT 20"
)


def store(work: Work, mine: tuple[str, int], blob: Blob, parts: Iterable[bytes]) -> None:
    """Put content in; bytes of that name that are there already give way."""
    remove(work, mine, blob.digest)
    part = 0
    for data in parts:
        for first in range(0, len(data), _PART_BYTES):
            piece = data[first : first + _PART_BYTES]
            row = (*mine, blob.digest, part, piece)
            work.run("INSERT INTO @blob_parts VALUES (%s, %s, %s, %s, %s)", *row)
            part += 1
    work.run("INSERT INTO @blobs VALUES (%s, %s, %s, %s, %s)", *mine, *blob)


def remove(work: Work, mine: tuple[str, int], digest: str) -> None:
    """Remove content of a session; it may not be there."""
    for table in ("blobs", "blob_parts"):
        work.run(
            f"DELETE FROM @{table} WHERE namespace = %s AND session = %s AND digest = %s",
            *mine,
            digest,
        )


def stored(work: Work, mine: tuple[str, int]) -> list[Blob]:
    """What content a session has, in order of the digests."""
    query = (
        "SELECT digest, size, stored_at FROM @blobs WHERE namespace = %s AND session = %s"
        " ORDER BY digest"
    )
    return [Blob(*row) for row in work.rows(query, *mine)]


def opened(server: Server, mine: tuple[str, int], digest: str) -> Iterator[bytes] | None:
    """The bytes of content, or None. What is removed from now on is read to its end."""
    there = "SELECT 1 FROM @blobs WHERE namespace = %s AND session = %s AND digest = %s"

    def first(work: Work) -> list[tuple[int, bytes]] | None:
        if work.row(there, *mine, digest) is None:
            return None
        return [(row[0], bytes(row[1])) for row in work.rows(_PARTS, *mine, digest, -1, _AT_ONCE)]

    found = server.read(first)
    if found is None:
        return None
    if len(found) < _AT_ONCE:
        return iter([data for _, data in found])
    # Begun at once: what is removed after this call is still read.
    parts = _parts(server, _PARTS, (*mine, digest))
    next(parts)
    return parts


def aside_parts(server: Server, mine: tuple[str, int], place: str) -> Iterator[bytes]:
    """Bytes that were set aside, which nobody changes or removes while the session is there."""
    parts = _parts(server, _ASIDE, (*mine, place))
    next(parts)
    return parts


def _parts(server: Server, query: str, which: tuple[object, ...]) -> Iterator[bytes]:
    """All parts, from one state of the tables; the first one is empty."""
    with server.snapshot() as work:
        last = -1
        work.rows("SELECT 1")
        yield b""
        while rows := work.rows(query, *which, last, _AT_ONCE):
            for last, data in rows:  # noqa: B007 - the last one of them is where it goes on
                yield bytes(data)


def log_parts(server: Server, namespace: str, number: int) -> Iterator[bytes]:
    """A log that was replaced: its header line and its record lines."""
    header = "SELECT header FROM @sessions WHERE namespace = %s AND session = %s"
    with server.snapshot() as work:
        for (line,) in work.rows(header, namespace, number):
            yield bytes(line)
        last = -1
        while rows := work.rows(_LOG, namespace, number, last):
            yield b"".join(row[1] for row in rows)
            last = rows[-1][0]
