"""What a writer holds of a session: its epoch, its number, its position; and how it appends.

Every change names the epoch at which the session was taken. Whoever takes it next raises the epoch,
so that a writer that was stopped, cut off or declared dead changes no row any more.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from perdure.backends.base import Hold
from perdure.backends.postgres.cells import (
    COLUMNS,
    TYPES,
    Row,
    rows_of,
)
from perdure.backends.postgres.presence import Presence
from perdure.databases.postgres import Attempts, NotMade, Server, Unsure, Work, meaning
from perdure.durable import crash
from perdure.errors import (
    KeyConflict,
    PerdureError,
    SessionClosed,
    StaleWriter,
    StorageUnavailable,
)
from perdure.model.header import Header
from perdure.model.record import Position, Record, decode_line

__all__ = ["GIVE_BACK", "PostgresHold", "own"]

_MOVE = (
    "UPDATE @tails SET tail_seq = %s, tail_hash = %s, size = %s, revision = revision + 1"
    " WHERE namespace = %s AND session = %s AND tail_seq = %s AND tail_hash = %s AND epoch = %s"
)
"""The compare-and-set of a commit, and its fence."""

_ONE = (
    f"WITH moved AS ({_MOVE} RETURNING 1) INSERT INTO @records ({COLUMNS})"
    " SELECT %s, %s, %s, %s, %s, %s, %s, %s::bytea, %s::bytea, %s::bytea, %s::bytea FROM moved"
)
_SOME = (
    f"WITH moved AS ({_MOVE} RETURNING 1) INSERT INTO @records ({COLUMNS})"
    " SELECT %s, %s, r.* FROM moved, unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[],"
    " %s::bigint[], %s::bytea[], %s::bytea[], %s::bytea[], %s::bytea[]) r"
)
_COPIED_FROM = 10
"""From so many records on, COPY takes less time than one statement that holds them all."""

_COPIED_BYTES = 256 * 1024
"""Or so many bytes: lists of bytes are sent as text."""

_TAIL = "SELECT tail_seq, tail_hash, size, epoch FROM @tails WHERE namespace = %s AND session = %s"

# By the token: another one may have come to the same epoch meanwhile.
GIVE_BACK = (
    "UPDATE @tails SET owner = NULL, hold = NULL, since = NULL"
    " WHERE namespace = %s AND session = ANY(%s) AND hold = %s"
)
"""What a hold had is nobody's any more: namespace, numbers, token."""

_LOOK_SECONDS = 2.0
"""So long the server may take to say what became of a commit that was interrupted."""

_STATE = "SELECT state FROM @sessions WHERE namespace = %s AND session = %s FOR UPDATE"

NEVER = Position(-2, "")
"""Where a hold stands that was not settled: no log stands there."""


class PostgresHold(Hold):
    """The right to write one session.

    Attributes:
        number: of its log in the tables; 0 if it is not there yet.
        epoch: at which the session was taken.
        token: what tells this hold from all others.
        touched: numbers of the logs that may be this hold's by now.
        header: of a session that is being built; else None.

    """

    def __init__(self, session: str, namespace: str, server: Server, presence: Presence) -> None:
        """Nothing is held yet."""
        self.session = session
        self.namespace = namespace
        self.server = server
        self.presence = presence
        self.number = 0
        self.epoch = 0
        self.token = server.runtime.token(8)
        self.touched: list[int] = []
        self.header: Header | None = None
        self.abandon: Callable[[PostgresHold], None] | None = None
        self.entered = 0
        self._pid = server.runtime.pid()
        self._live = True
        self._size = 0
        self._position = NEVER
        self._pending: Position | None = None
        self._resolving = threading.RLock()
        self._sent = False
        self._dead = False

    @property
    def mine(self) -> tuple[str, int]:
        """The beginning of each of its keys."""
        return self.namespace, self.number

    @property
    def position(self) -> Position:
        """Where the log stands by the last commit.

        A signal may come between a commit and the note of it; the server tells then. If it does
        not, this hold writes no more.
        """
        self._resolve(self._pending)
        return self._position

    @property
    def dead(self) -> bool:
        """A commit failed in a way that leaves open whether it happened."""
        self._resolve(self._pending)
        return self._dead

    def _resolve(self, pending: Position | None) -> None:
        if pending is None:
            return
        with self._resolving:
            if self._pending is not pending:
                # Another thread has.
                return
            known = False
            try:
                self._look(pending)
                known = True
            except (PerdureError, NotMade, Unsure, psycopg.Error):
                pass
            finally:
                self._dead = self._dead or not known
                self._pending = None

    def _look(self, pending: Position) -> None:
        """See what became of a commit, once: whoever interrupted it does not want to wait.

        Raises:
            Unsure, PerdureError, psycopg.Error: nobody knows, or no standby may have it, or another
                one has taken the session over.

        """
        with self.server.direct(Attempts(self.server.runtime, 0.0)) as work:
            # Neither for a commit that is still under way, nor for a standby.
            with ending(work.connection, _LOOK_SECONDS):
                self.server.begin(work)
                found = work.row(f"{_TAIL} FOR UPDATE", *self.mine)
                if found is not None and Position(found[0], found[1]) == pending:
                    self.server.mark(work)
                self.server.commit(work)
            stands = NEVER if found is None else Position(found[0], found[1])
            if found is not None and stands == pending:
                self._position, self._size = pending, found[2]
            elif stands != self._position:
                # What others wrote at the same place is not what was sent.
                raise self._stale(None if found is None else (stands, found[2], found[3]))

    def doom(self) -> None:
        """Write no more: whether something happened is not known."""
        self._dead = True

    def tail_of(self, work: Work) -> tuple[Position, int, int] | None:
        """Where the log stands, its size, and the epoch of whoever holds it."""
        found = work.row(_TAIL, *self.mine)
        return None if found is None else (Position(found[0], found[1]), found[2], found[3])

    def check(self) -> None:
        """See `Hold.check`."""
        if not self._live:
            raise SessionClosed(self.session, "this writer was closed")
        if self._pid != self.server.runtime.pid():
            raise SessionClosed(self.session, "this writer belongs to the parent process")

    # --- the end of it ---------------------------------------------------------------------------

    def release(self) -> None:
        """See `Hold.release`."""
        if not self._live:
            return
        self._live = False
        if self._pid != self.server.runtime.pid():
            return
        try:
            abandon, self.abandon = self.abandon, None
            if abandon is not None:
                abandon(self)
            if self.touched:
                # Until then this process, which lives, would keep it.
                self.presence.soon(GIVE_BACK, self.namespace, self.touched, self.token)
                self.presence.changed(self.namespace, self.session)
        finally:
            if self.entered:
                self.presence.leave(self.token)

    def __del__(self) -> None:
        """A writer that was dropped without being closed must not block the next one."""
        if getattr(self, "_live", False) and self.entered:
            # Not here: a collection may come while the connections are being used.
            other = object.__new__(PostgresHold)
            other.__dict__.update(self.__dict__)
            self._live = False
            self.presence.drop(other.release)

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
            raise StorageUnavailable(self.server.place, "an earlier commit failed half-way")
        rows, size = rows_of(self.namespace, self.number, records, self._size)
        after = records[-1].position
        try:
            self._commit(rows, (*after, size, *self.mine, *before, self.epoch))
            self._position, self._size, self._dead = after, size, False
        except Exception:
            raise
        except BaseException:
            # Not before: others who ask where the log stands are not made to wait for a commit.
            if self._sent and not self._dead:
                self._pending = after
            raise
        self.presence.changed(self.namespace, self.session)

    def _commit(self, rows: Sequence[Row], move: tuple[object, ...]) -> None:
        """Send it until it is known what came of it, or the time-out has passed."""
        attempts = self.server.attempts()
        # Whether what was sent may be stored, or may be yet.
        doubtful = self._sent = False
        while True:
            try:
                with self.server.direct(attempts) as work:
                    if doubtful and self._happened(work, rows):
                        return
                    self._sent = True
                    if self._stored(work, rows, move):
                        return
                    # It may have been on its way until now.
                    if doubtful and self._happened(work, rows):
                        return
                    raise self._stale(self.tail_of(work))
            except (Unsure, psycopg.Error) as error:
                refused = isinstance(error, psycopg.Error) and meaning.refused(error)
                doubtful = self._sent = doubtful or (self._sent and not refused)
                self._dead = doubtful
                if isinstance(error, psycopg.Error) and not self.server.again(error):
                    if doubtful:
                        raise self._unknown(error, uncertain=True) from error
                    raise self._meaning(error, rows) from error
                if not attempts.pause():
                    raise self._unknown(error, uncertain=doubtful) from error

    def _stored(self, work: Work, rows: Sequence[Row], move: tuple[object, ...]) -> bool:
        try:
            return self._send(work, rows, move)
        except Exception:
            raise
        except BaseException:
            # The driver cancels what is interrupted. Then the server does not wait for a standby
            # any more, and says so; nobody else does.
            self._dead = self._dead or self.server.warned(work.connection)
            raise

    def _happened(self, work: Work, rows: Sequence[Row]) -> bool:
        """Whether what was sent is stored; if it is, it is durable when this returns.

        It is looked for itself: others may have taken the session over and written behind it.

        Raises:
            Unsure: it is stored, and whether a standby has it is not known.

        """
        query = "SELECT 1 FROM @records WHERE namespace = %s AND session = %s AND seq = %s"
        last = rows[-1]
        if work.row(f"{query} AND line = %s", *self.mine, last[2], last[-1]) is None:
            return False
        # Found here it may still be missing on the standbys, if the wait for them was cut short.
        # What is committed after it is acknowledged only when they have both.
        self.server.confirm(work)
        return True

    def _send(self, work: Work, rows: Sequence[Row], move: tuple[object, ...]) -> bool:
        """Store it; False if the log does not stand where it should, or is held by another one."""
        server = self.server
        crash.point("postgres.begun")
        server.warned(work.connection)
        small = len(rows) == 1 or sum(len(row[-1]) for row in rows) < _COPIED_BYTES
        if len(rows) < _COPIED_FROM and small and not server.address.pooled:
            if len(rows) == 1:
                changed = work.run(_ONE, *move, *rows[0], prepare=True)
            else:
                columns = [list(column) for column in zip(*rows, strict=True)][2:]
                changed = work.run(_SOME, *move, *rows[0][:2], *columns, prepare=True)
            crash.point("postgres.appended")
            if changed != len(rows):
                return False
            if server.warned(work.connection):
                raise Unsure
            return True
        server.begin(work)
        if work.run(_MOVE, *move) != 1:
            work.cursor.execute("ROLLBACK")
            return False
        work.insert("records", COLUMNS, TYPES, rows)
        crash.point("postgres.appending")
        server.commit(work)
        return True

    def _stale(self, found: tuple[Position, int, int] | None) -> StaleWriter:
        if found is None:
            return StaleWriter(self.session, "it is not there any more")
        if found[2] != self.epoch:
            return StaleWriter(self.session, "another writer has taken it over")
        return StaleWriter(self.session, f"it stands at {found[0].seq}, not where this writer does")

    def _unknown(self, error: psycopg.Error | Unsure, *, uncertain: bool) -> PerdureError:
        told: PerdureError
        if isinstance(error, psycopg.Error):
            told = self.server.told(error)
        else:
            told = self.server.unsure(error)
        if isinstance(told, StorageUnavailable):
            told.retryable = True
            told.uncertain = uncertain
        return told

    def _meaning(self, error: psycopg.Error, rows: Sequence[Row]) -> Exception:
        """What an error of a commit means: a key is there twice, rows stand behind the tail."""
        if isinstance(error, errors.UniqueViolation):
            return self.server.read(lambda work: self._conflict(work, rows, error))
        if isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName):
            return StaleWriter(self.session, "its tables are not there any more")
        return self.server.told(error)

    def _conflict(self, work: Work, rows: Sequence[Row], error: psycopg.Error) -> Exception:
        seen: dict[tuple[object, object], int] = {}
        query = (
            "SELECT seq FROM @records WHERE namespace = %s AND session = %s AND type = %s"
            " AND key = %s"
        )
        for row in rows:
            seq, kind, key = row[2], row[5], row[9]
            if key is not None:
                stored = [at for (at,) in work.rows(query, *self.mine, kind, key) if at != seq]
                at = stored[0] if stored else seen.setdefault((kind, key), seq)
                if at != seq:
                    name = decode_line(row[-1]).fields.key or ""
                    return KeyConflict(self.session, type=kind, key=name, seq=at)
        reason = f"rows stand behind its tail: {' '.join(str(error).split())}"
        return StaleWriter(self.session, reason)

    # --- other changes ---------------------------------------------------------------------------

    def change(
        self,
        do: Callable[[Work], object],
        *,
        alone: bool = False,
        repeatable: bool = True,
        once: bool = False,
    ) -> None:
        """Change what belongs to the session in one transaction, if it is still held.

        With `alone` this hold commits nothing beside it, in any thread.

        Raises:
            StaleWriter: it was taken over.
            StorageUnavailable: with `uncertain`, whether it happened is not known.

        """

        def fenced(work: Work) -> None:
            self.fence(work, alone=alone)
            do(work)

        self._sure(lambda: self.server.change(fenced, repeatable=repeatable, once=once))

    def pass_by(self, do: Callable[[Work], object]) -> None:
        """As `change`, but a loss of power may take it back."""

        def fenced(work: Work) -> None:
            self.fence(work)
            do(work)

        self._sure(lambda: self.server.change(fenced, synced=False))

    def _sure(self, change: Callable[[], None]) -> None:
        try:
            change()
        except NotMade as error:
            raise StaleWriter(self.session, "its tables are not there any more") from error
        except Unsure as error:
            raise self._unknown(error, uncertain=True) from error

    def fence(self, work: Work, *, alone: bool = False) -> None:
        """Make sure within a transaction that nobody takes the session over before its end.

        Its own commits go on meanwhile, unless it is to be `alone`: content may be large.

        Rows are locked in one order everywhere: what the session is, then where it stands. Whoever
        takes it waits for the first of them, and sees what became of it.

        Raises:
            StaleWriter: somebody has, or what was staged was removed.

        """
        if not self.number:
            return
        there = work.row(_STATE, *self.mine)
        if there is None or (not self.epoch and there[0] != "new"):
            raise self._stale(None)
        if not self.epoch:
            return
        found = work.row(f"{_TAIL} FOR UPDATE" if alone else _TAIL, *self.mine)
        if found is None or found[3] != self.epoch:
            raise self._stale(None if found is None else (NEVER, 0, found[3]))


@contextmanager
def ending(connection: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """Cancel what lasts longer; a wait for standbys ends with a warning then."""
    late = threading.Event()

    def cancel() -> None:
        late.set()
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=seconds)

    timer = threading.Timer(seconds, cancel)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if late.is_set():
            # What was cancelled may be whatever is asked next.
            connection.close()


def own(hold: Hold) -> PostgresHold:
    """The hold, if it was given by a backend of this kind."""
    if not isinstance(hold, PostgresHold):
        raise TypeError("this hold was given by another backend")
    return hold
