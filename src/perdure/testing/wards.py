"""Where a harmed session lies: in a folder or in a SQLite file, and how it is looked at and harmed.

Nothing here goes through the product: files are read as files, and rows with a connection of our
own, which leaves the WAL as it is found.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import apsw

from perdure.backends.sqlite import schema
from perdure.model.record import BadRecordError, decode_line
from perdure.store.store import Store
from perdure.testing.ledger import Finding

__all__ = ["FileWard", "FolderWard", "Ward", "ward_of"]


class Ward(Protocol):
    """A store of one kind. `path` is the folder that holds all of it, `name` a session's id."""

    @property
    def cut_as(self) -> str:
        """The encoding as which `log` can be cut into units."""

    def log(self, path: str, name: str) -> bytes:
        """The bytes of a log, header and all."""

    def harm(self, path: str, name: str, data: bytes) -> None:
        """Put other bytes in the place of a log."""

    def harm_content(self, path: str, name: str, digest: str, data: bytes) -> None:
        """Put other bytes in the place of content."""

    def left(self, path: str, name: str) -> Iterator[bytes]:
        """All that is there of a session: logs, content, what is aside."""

    def odd(self, path: str, name: str) -> set[str]:
        """What should not be there when nothing is under way."""


def ward_of(store: Store, encoding: str, name: str) -> Ward:
    """Where a session of a store lies."""
    if store.locate(name) is not None:
        return FolderWard(encoding)
    return FileWard()


# --- a folder -------------------------------------------------------------------------------------


class FolderWard:
    """A session is a folder."""

    def __init__(self, encoding: str) -> None:
        """`encoding` is that of its log."""
        self.cut_as = encoding

    def _log(self, path: str, name: str) -> str:
        return os.path.join(_of(path, name), "log.jsonl" + (".zst" if self.cut_as == "zst" else ""))

    def log(self, path: str, name: str) -> bytes:
        """See `Ward`."""
        return _content(self._log(path, name))

    def harm(self, path: str, name: str, data: bytes) -> None:
        """See `Ward`; it stays the same file."""
        with open(self._log(path, name), "r+b") as file:
            file.truncate(0)
            file.write(data)

    def harm_content(self, path: str, name: str, digest: str, data: bytes) -> None:
        """See `Ward`."""
        with open(os.path.join(_of(path, name), "blobs", digest[:2], digest), "wb") as file:
            file.write(data)

    def left(self, path: str, name: str) -> Iterator[bytes]:
        """See `Ward`."""
        return map(_content, _files(_of(path, name)))

    def odd(self, path: str, name: str) -> set[str]:
        """See `Ward`."""
        names = {os.path.basename(each) for each in _files(_of(path, name))}
        return {each for each in names if each.startswith((".", "repair.json"))}


def _of(path: str, name: str) -> str:
    return os.path.join(path, "sessions", name)


def _files(folder: str) -> Iterator[str]:
    for place, _, names in os.walk(folder):
        yield from (os.path.join(place, name) for name in names)


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


# --- a file ---------------------------------------------------------------------------------------


class FileWard:
    """A session is rows of a SQLite file; large content of a bundle stands beside it."""

    cut_as = "raw"

    def log(self, path: str, name: str) -> bytes:
        """See `Ward`."""
        with _connected(path) as db:
            return _log_of(db, _number(db, name))

    def harm(self, path: str, name: str, data: bytes) -> None:
        """See `Ward`: each line is a row, whose columns say what they can.

        Where a record comes twice, the second one has no key: no two rows of a log may have it.
        """
        header, end, rest = data.partition(b"\n")
        *lines, last = rest.split(b"\n")
        with _connected(path) as db, db:
            number = _number(db, name)
            db.execute("UPDATE sessions SET header = ? WHERE number = ?", (header + end, number))
            db.execute("DELETE FROM records WHERE session = ?", (number,))
            seq, start = -1, 0
            for line in (*(line + b"\n" for line in lines), *([last] if last else [])):
                seq = _insert(db, number, line, seq, start)
                start += len(line)

    def harm_content(self, path: str, name: str, digest: str, data: bytes) -> None:
        """See `Ward`."""
        beside = [each for each in _files(path) if os.path.basename(each) == digest]
        for each in beside:
            with open(each, "wb") as file:
                file.write(data)
        with _connected(path) as db:
            which = (_number(db, name), digest)
            db.execute("UPDATE blob_parts SET bytes = ? WHERE session = ? AND digest = ?",
                       (data, *which))  # fmt: skip
            if not beside and db.changes() != 1:
                raise Finding(f"{name} has no content {digest}")

    def left(self, path: str, name: str) -> Iterator[bytes]:
        """See `Ward`; what was replaced is found as well, whoever it belongs to."""
        with _connected(path) as db:
            _number(db, name)
            for (number,) in db.execute("SELECT number FROM sessions").fetchall():
                yield _log_of(db, int(str(number)))
            for query in (
                "SELECT session, digest, bytes FROM blob_parts ORDER BY 1, 2, part",
                "SELECT session, place, bytes FROM aside_parts ORDER BY 1, 2, part",
            ):
                parts: dict[tuple[int, str], bytes] = {}
                for session, at, data in db.execute(query):
                    parts[session, at] = parts.get((session, at), b"") + data
                yield from parts.values()
        for each in _files(path):
            if ".artifacts" in each:
                yield _content(each)

    def odd(self, path: str, name: str) -> set[str]:
        """See `Ward`."""
        with _connected(path) as db:
            query = "SELECT plan IS NULL, state FROM sessions WHERE id = ? AND state <> 'aside'"
            states = db.execute(query, (name,)).fetchall()
        names = {os.path.basename(each) for each in _files(path)}
        return {
            *(f"a session that is {state}" for state in states if state != (1, "stored")),
            *(each for each in names if each.startswith(".")),
        }


@contextmanager
def _connected(path: str) -> Iterator[apsw.Connection]:
    """The database in a folder, by a connection that writes no WAL back when it is closed."""
    files = [each for each in os.listdir(path) if each.endswith((".db", ".perdure"))]
    if len(files) != 1:
        raise Finding(f"{files} are the stores in {path}")
    db = apsw.Connection(os.path.join(path, files[0]), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield db
    except apsw.Error as error:
        raise Finding(f"{files[0]} cannot be read: {error}") from error
    finally:
        db.close(True)


def _number(db: apsw.Connection, name: str) -> int:
    query = "SELECT number FROM sessions WHERE id = ? AND state = 'stored'"
    rows = db.execute(query, (name,)).fetchall()
    if len(rows) != 1:
        raise Finding(f"{name} is there {len(rows)} times")
    return int(str(rows[0][0]))


def _log_of(db: apsw.Connection, number: int) -> bytes:
    header = db.execute("SELECT header FROM sessions WHERE number = ?", (number,)).fetchall()
    lines = db.execute("SELECT line FROM records WHERE session = ? ORDER BY seq", (number,))
    return b"".join(cell for (cell,) in (*header, *lines))


def _insert(db: apsw.Connection, number: int, line: bytes, seq: int, start: int) -> int:
    """Add a row behind the one of `seq`, and say under which number."""
    row: list[object] = [number, seq + 1, 1, start, "?", 0, None, None, None, line]
    with suppress(BadRecordError):
        row = [*schema.row_of(number, decode_line(line), start)]
        row[1] = max(decode_line(line).first, seq + 1)
    statement = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    try:
        db.execute(statement, row)
    except apsw.ConstraintError:
        row[8] = None
        db.execute(statement, row)
    return int(str(row[1]))
