"""What a writer holds of a session: its lock beside the file, its number in it, its position.

Everything that changes a log goes through here: appending, making a verified log whole, putting
another in its place, and setting bytes aside.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import apsw

from perdure.backends.base import Hold
from perdure.backends.sqlite import content, schema
from perdure.backends.sqlite.medium import Medium
from perdure.backends.sqlite.snapshots import Snapshot
from perdure.databases.forks import undivided
from perdure.databases.meaning import NONSENSE
from perdure.durable.files import Folder
from perdure.durable.locks import Lock
from perdure.errors import KeyConflict, StaleWriter, StorageUnavailable
from perdure.model.header import Header, encode_header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending

__all__ = ["SqliteHold", "insert_session", "keep_aside", "own"]

_INSERT_RECORD = "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MOVE = (
    "UPDATE sessions SET tail_seq = ?, tail_hash = ?, size = ?, revision = revision + 1"
    " WHERE number = ? AND tail_seq = ? AND tail_hash = ? AND size = ?"
    " AND state IN ('new', 'stored')"
)
"""The compare-and-set of a commit."""

_BATCH = 500
_BATCH_BYTES = 1024 * 1024

NEVER = Position(-2, "")
"""Where a hold stands that was not settled: no log stands there."""


def insert_session(
    db: apsw.Connection, namespace: str, header: Header, state: str, revision: int = 0
) -> int:
    """A session without records; its number."""
    row = (
        namespace,
        schema.cell(header.id),
        state,
        header.created_at,
        encode_header(header),
        -1,
        header.genesis,
        0,
        revision,
    )
    db.execute(
        "INSERT INTO sessions (namespace, id, state, created_at, header, tail_seq, tail_hash,"
        " size, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        row,
    )
    return db.last_insert_rowid()


def keep_aside(
    db: apsw.Connection, number: int, parts: Iterable[bytes], *, place: str, reason: str, now: int
) -> None:
    """Bytes beside a log; what is at the place already stays."""
    if schema.ask(db, "SELECT 1 FROM asides WHERE session = ? AND place = ?", (number, place)):
        return
    size = 0
    for part, data in enumerate(parts):
        db.execute("INSERT INTO aside_parts VALUES (?, ?, ?, ?)", (number, place, part, data))
        size += len(data)
    db.execute(
        "INSERT INTO asides VALUES (?, ?, ?, ?, ?, NULL)",
        (number, place, schema.shown(reason), size, now),
    )


class SqliteHold(Hold):
    """The right to write one session.

    Attributes:
        number: the number of its log in the file; 0 if it is not there yet.
        name: the name of its lock.
        header: of a session that is being built; else None.

    """

    def __init__(self, session: str, medium: Medium, name: str, lock: Lock, folder: Folder) -> None:
        """Take over a lock and the folder that it is in."""
        self.session = session
        self.name = name
        self.medium = medium
        self.lock = lock
        self.folder = folder
        lock.companions.append(folder)
        self.number = 0
        self.header: Header | None = None
        self.abandon: Callable[[], None] | None = None
        self._size = 0
        self._position = NEVER
        self._pending: Position | None = None
        self._dead = False

    @property
    def position(self) -> Position:
        """Where the log stands by the last commit.

        A signal may come between a commit and the note of it; the file tells then.
        """
        pending, found = self._pending, None
        if pending is not None:
            with suppress(FileNotFoundError):
                found = self.medium.read(self._tail)
            if found is not None and found[0] == pending:
                self._position, self._size = found
            self._pending = None
        return self._position

    @property
    def dead(self) -> bool:
        """A commit failed in a way that leaves open whether it happened."""
        return self._dead

    def died(self) -> None:
        """Nobody knows what the file holds."""
        self._dead = True

    def _tail(self, db: apsw.Connection) -> tuple[Position, int] | None:
        query = "SELECT tail_seq, tail_hash, size FROM sessions WHERE number = ?"
        for seq, hash_, size in schema.ask(db, query, (self.number,)):
            return Position(seq, hash_), size
        return None

    def check(self) -> None:
        """See `Hold.check`."""
        self.lock.check()

    def release(self) -> None:
        """See `Hold.release`."""
        # Whatever goes wrong with one, the lock is given back.
        try:
            abandon, self.abandon = self.abandon, None
            if abandon is not None and self.lock.owned:
                abandon()
        finally:
            self.lock.release()
            self.folder.close()

    def begin(self, number: int, position: Position, size: int = 0) -> None:
        """Stand at a place in a log."""
        self.number, self._position, self._size = number, position, size

    # --- appending -------------------------------------------------------------------------------

    def commit(self, expected: Position, records: Sequence[Record]) -> None:
        """See `Backend.commit`."""
        self.check()
        before = self.position
        if expected != before:
            raise StaleWriter(self.session, f"this writer stands at {before.seq}")
        if self._dead:
            raise StorageUnavailable(self.medium.path, "an earlier commit failed half-way")
        # Before it begins: other writers of the file wait from there on.
        rows, size = schema.rows_of(self.number, records, self._size)
        after = records[-1].position
        try:
            # Not by `transaction`: here each microsecond is paid for every commit.
            change = self.medium.transaction(self.died)
            with change as db:
                self._pending = after
                bound = (*after, size, self.number, *before, self._size)
                change.cursor.execute(_MOVE, bound)
                if db.changes() != 1:
                    reason = f"it does not stand at {before.seq} any more"
                    raise StaleWriter(self.session, reason)
                self._insert(db, change.cursor, rows)
        except FileNotFoundError as error:
            self._pending = None
            raise self._gone() from error
        except Exception:
            self._pending = None
            raise
        self._position, self._size = after, size
        self._pending = None

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """A transaction of this writer; if its commit fails, the writer is dead."""
        with self._present(), self.medium.transaction(self.died) as db:
            yield db

    @contextmanager
    def passing(self) -> Iterator[apsw.Connection]:
        """A transaction that a loss of power may take back; nothing is lost if its commit fails."""
        with self._present(), self.medium.transaction(synced=False) as db:
            yield db

    @contextmanager
    def _present(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise self._gone() from error

    def _gone(self) -> StaleWriter:
        return StaleWriter(self.session, "its file is not there any more")

    def _insert(self, db: apsw.Connection, cursor: apsw.Cursor, rows: Sequence[schema.Row]) -> None:
        try:
            cursor.executemany(_INSERT_RECORD, rows)
        except apsw.ConstraintError as error:
            raise self._conflict(db, rows, error) from error

    def _conflict(
        self, db: apsw.Connection, rows: Sequence[schema.Row], error: apsw.Error
    ) -> Exception:
        """Why rows cannot be added: the log goes on behind its tail, or a key is there twice."""
        seen: dict[tuple[object, object], int] = {}
        query = "SELECT seq FROM records WHERE session = ? AND type = ? AND key = ?"
        for number, seq, _, _, kind, _, _, _, key, _ in rows:
            if key is not None:
                stored = [at for (at,) in schema.ask(db, query, (number, kind, key)) if at != seq]
                at = stored[0] if stored else seen.setdefault((kind, key), int(str(seq)))
                if at != seq:
                    name = schema.text(key)
                    return KeyConflict(self.session, type=str(kind), key=name, seq=at)
        return StaleWriter(self.session, f"rows stand behind its tail: {error}")

    # --- recovery --------------------------------------------------------------------------------

    def settle(self, ending: Ending, seen: Position | None) -> None:
        """See `Backend.settle`."""
        self.check()
        position = ending.position
        found, behind = self._state(ending.end)
        if found is None or found[0] != seen:
            raise StaleWriter(self.session, "another writer wrote while it was verified")
        if not behind and found == (position, ending.end):
            with undivided():
                self.medium.settle()
            self.begin(self.number, position, ending.end)
            return
        with self.transaction() as db:
            if self._tail(db) != found:
                raise StaleWriter(self.session, "another writer wrote while it was verified")
            if behind:
                self._set_aside(db, ending)
            db.execute(
                "UPDATE sessions SET tail_seq = ?, tail_hash = ?, size = ?, revision = revision + 1"
                " WHERE number = ?",
                (*position, ending.end, self.number),
            )
        self.begin(self.number, position, ending.end)

    def _state(self, end: int) -> tuple[tuple[Position, int] | None, bool]:
        """What the file says of the tail, and whether rows stand behind `end`."""
        query = "SELECT start FROM records WHERE session = ? ORDER BY seq DESC LIMIT 1"

        def question(db: apsw.Connection) -> tuple[tuple[Position, int] | None, bool]:
            last = schema.ask(db, query, (self.number,), [int])
            return self._tail(db), bool(last) and last[0][0] >= end

        try:
            return self.medium.read(question)
        except FileNotFoundError as error:
            raise StaleWriter(self.session, "its file is not there any more") from error

    def _set_aside(self, db: apsw.Connection, ending: Ending) -> None:
        """Keep the rows behind the verified end, before they are taken out of the log."""
        which = "FROM records WHERE session = ? AND start >= ?"
        bound = (self.number, ending.end)
        lines = (row[0] for row in db.execute(f"SELECT line {which} ORDER BY seq", bound))
        now, token = self.medium.runtime.now_ms(), self.medium.runtime.token(4)
        reason = ending.problem.reason if ending.problem else "not part of any record"
        place = f"{now:015d}-{token}"
        keep_aside(db, self.number, map(_bytes_of, lines), place=place, reason=reason, now=now)
        db.execute(f"DELETE {which}", bound)

    # --- repair ----------------------------------------------------------------------------------

    def replace(self, header: Header, records: Iterable[Record], place: str, reason: str) -> None:
        """See `Backend.replace`.

        The rows of the old log are not touched: they keep their number, which nobody looks for any
        more, and the new log gets one of its own. So does what was derived from it.
        """
        self.check()
        old = self.number
        lines = self._bytes_of_lines(old)
        with self.transaction() as db:
            row = "SELECT namespace, revision, size, plan FROM sessions WHERE number = ?"
            kinds = (str, int, int, (bytes, type(None)))
            found = schema.ask(db, f"{row} AND state = 'stored'", (old,), kinds)
            if not found:
                raise StaleWriter(self.session, "another log has taken its place")
            ((namespace, revision, size, plan),) = found
            db.execute("UPDATE sessions SET state = 'aside' WHERE number = ?", (old,))
            number = insert_session(db, namespace, header, "stored", revision + 1)
            position, end = self.fill(db, number, header, records)
            db.execute("UPDATE sessions SET plan = ? WHERE number = ?", (plan, number))
            for table in ("blobs", "blob_parts"):
                # What is no digest names no content: it stays with the log that it was with.
                which = f"session = ? AND {content.IS_DIGEST}"
                db.execute(f"UPDATE {table} SET session = ? WHERE {which}", (number, old))
            for table in ("asides", "aside_parts"):
                db.execute(f"UPDATE {table} SET session = ? WHERE session = ?", (number, old))
            log = (old, size if lines is None else lines, place, reason)
            self._remember(db, number, log)
        self.begin(number, position, end)

    def _bytes_of_lines(self, number: int) -> int | None:
        """How many bytes the lines of a log have, whatever its tail says; None if unreadable.

        Not asked within a transaction that writes: SQLite fails it once it has met damage.
        """
        snapshot = Snapshot(self.medium)
        query = "SELECT ifnull(sum(length(line)), 0) FROM records WHERE session = ?"
        try:
            with suppress(*NONSENSE):
                return int(snapshot.raw(query, (number,))[0][0])
            return None
        finally:
            snapshot.close()

    def fill(
        self, db: apsw.Connection, number: int, header: Header, records: Iterable[Record]
    ) -> tuple[Position, int]:
        """Write the records of a log that has none; where it stands then, and its size."""
        position, size, cursor = Position(-1, header.genesis), 0, db.cursor()
        for batch in _batches(records):
            rows, size = schema.rows_of(number, batch, size)
            self._insert(db, cursor, rows)
            position = batch[-1].position
        db.execute(
            "UPDATE sessions SET tail_seq = ?, tail_hash = ?, size = ? WHERE number = ?",
            (*position, size, number),
        )
        return position, size

    def _remember(self, db: apsw.Connection, number: int, log: tuple[int, int, str, str]) -> None:
        """Say where the log that was replaced is; bytes that are at its place already are it."""
        old, size, place, reason = log
        header = "SELECT length(header) FROM sessions WHERE number = ?"
        ((length,),) = schema.ask(db, header, (old,), [int])
        now = self.medium.runtime.now_ms()
        row = (number, place, schema.shown(reason), length + size, now, old)
        db.execute("INSERT OR IGNORE INTO asides VALUES (?, ?, ?, ?, ?, ?)", row)


def _bytes_of(cell: object) -> bytes:
    schema.expect((cell,), (bytes,))
    return bytes(cell)  # type: ignore[call-overload,no-any-return]


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record.line)
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def own(hold: Hold) -> SqliteHold:
    """The hold, if it was given by a backend of this kind."""
    if not isinstance(hold, SqliteHold):
        raise TypeError("this hold was given by another backend")
    return hold
