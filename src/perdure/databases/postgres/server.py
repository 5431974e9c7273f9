"""The connections to a server: a pool, and what is tried again when one of them breaks."""

import atexit
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import Diagnostic

from perdure.databases.forks import Closing, undivided
from perdure.databases.postgres import meaning, migrations
from perdure.databases.postgres.address import Address
from perdure.databases.postgres.meaning import NotMade, Unsure
from perdure.databases.postgres.pool import AllInUse, Connection, Pool
from perdure.databases.postgres.work import Work
from perdure.durable import crash
from perdure.errors import PerdureError, StorageUnavailable
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Attempts", "Server"]

T = TypeVar("T")


_STEP_SECONDS = 0.05
_STEP_SECONDS_MAX = 0.5
_IDLE_SECONDS_MIN = 60.0
_POOL_SECONDS_MIN = 1.0
"""So long a connection that others use is waited for at least, whatever the time-out is."""


class Attempts:
    """How often something is tried again: until a budget of seconds is used up, with jitter."""

    def __init__(self, runtime: Runtime, seconds: float) -> None:
        """Begin to count."""
        self._runtime = runtime
        self._until = runtime.monotonic() + seconds
        self._step = _STEP_SECONDS

    @property
    def left(self) -> float:
        """Seconds that are left of the budget; 0 if none are."""
        return max(0.0, self._until - self._runtime.monotonic())

    def pause(self) -> bool:
        """Wait a moment, longer each time; False if the time is up."""
        left = self.left
        if not left:
            return False
        # Between half of the step and all of it: many writers of a server that comes back do not
        # all come at once.
        jitter = int(self._runtime.token(2), 16) / 0xFFFF
        self._runtime.sleep(min(left, self._step * (0.5 + jitter / 2)))
        self._step = min(self._step * 2, _STEP_SECONDS_MAX)
        return True


class _Inside(threading.local):
    """How deep a thread is within statements, and the connections it has but for the first."""

    def __init__(self) -> None:
        self.depth = 0
        self.others: list[Connection] = []


class Server:
    """One schema of one server; shared by all namespaces. Methods may be called by any thread."""

    def __init__(self, address: Address, runtime: Runtime) -> None:
        """Name it; nothing is connected before it is needed."""
        self.address = address
        self.runtime = runtime
        self.place = address.shown
        self._mutex = threading.RLock()
        self._pool: Pool | None = None
        self._made = False
        self._reached = False
        # Whether a server that takes changes is to be had; who asked for one waits for it.
        self._writable = address.seeks_primary
        self._inside = _Inside()
        self.closers: list[Callable[[], None]] = []
        self.forgetters: list[Callable[[], None]] = []
        self._warned: weakref.WeakSet[psycopg.Connection[Any]] = weakref.WeakSet()
        _servers.add(self)

    # --- connections -----------------------------------------------------------------------------

    def connect(self) -> Connection:
        """A connection of the caller's own, who closes it.

        Raises:
            psycopg.Error: there is none to be had.

        """
        connection = Connection.connect(
            self.address.conninfo,
            autocommit=True,
            prepare_threshold=None if self.address.pooled else 3,
        )
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: Connection) -> None:
        # By name: the set of those that were warned must not keep it open.
        known = weakref.ref(connection)

        def told(notice: Diagnostic) -> None:
            found = known()
            if found is not None and (notice.severity_nonlocalized or "WARNING") == "WARNING":
                self._warned.add(found)

        connection.add_notice_handler(told)
        if not self.address.pooled:
            connection.execute(self._settings(here=False))
            # No statement here is worth a compiler, and estimates of large tables would call it.
            connection.execute("SET jit = off")

    def _settings(self, *, here: bool, synced: bool = True) -> str:
        """What holds on a connection, or with `here` in this transaction."""
        known = {
            "client_min_messages": "'warning'",
            # A process that was stopped in the middle of a transaction keeps no rows locked.
            "idle_in_transaction_session_timeout": (
                f"'{max(self.address.lease, _IDLE_SECONDS_MIN):.0f}s'"
            ),
            # Nor does anybody wait for rows or tables that others keep locked.
            "lock_timeout": f"'{max(self.address.timeout, _POOL_SECONDS_MIN):.0f}s'",
            # Said whatever it is: what comes from the configuration changes with it.
            "synchronous_commit": _SYNCED if synced else "'off'",
        }
        parts = [f"set_config('{name}', {value}, {here})" for name, value in known.items()]
        return f"SELECT {', '.join(parts)}"

    def begin(self, work: Work, *, synced: bool = True) -> None:
        """Begin a transaction that is durable when it has ended, unless `synced` is false."""
        # Named: a role or a database may have another one, under which who waited for a lock does
        # not see what it waited for.
        work.cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        if self.address.pooled:
            # No setting outlives a transaction there.
            work.cursor.execute(self._settings(here=True, synced=synced))
        elif not synced:
            work.cursor.execute(_UNSYNCED)

    def warned(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the server warned on this connection since it was asked last.

        A commit that does not wait for its standbys any more, because somebody cancelled that, is
        reported as one that went well, with a warning.
        """
        there = connection in self._warned
        if there:
            self._warned.discard(connection)
        return there

    def _connections(self) -> Pool:
        pool = self._pool
        if pool is not None:
            return pool
        with self._mutex:
            if self._pool is None:
                self._pool = Pool(self.connect, self.address.connections, self.runtime)
            return self._pool

    @contextmanager
    def _lent(self, seconds: float) -> Iterator[Connection]:
        if self._inside.depth:
            with self._another() as connection:
                yield connection
            return
        pool = self._connections()
        connection = pool.take(max(seconds, _POOL_SECONDS_MIN))
        try:
            self._inside.depth = 1
            yield connection
        finally:
            self._inside.depth = 0
            others, self._inside.others = self._inside.others, []
            for other in others:
                other.close()
            pool.give(connection)

    @contextmanager
    def _another(self) -> Iterator[Connection]:
        """One for whoever asks in the middle of a transaction of the same thread, as a fork does.

        Not from the pool: those who all have one would wait for each other.
        """
        inside = self._inside
        place, inside.depth = inside.depth - 1, inside.depth + 1
        try:
            if place < len(inside.others) and inside.others[place].closed:
                inside.others[place] = self.connect()
            elif place >= len(inside.others):
                inside.others.append(self.connect())
            yield inside.others[place]
        finally:
            inside.depth -= 1

    def close(self) -> None:
        """Close the idle connections; what is used meanwhile is closed by whoever uses it."""
        with self._mutex:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def at_exit(self) -> None:
        """End in order what nobody closed."""
        while self.closers:
            with suppress(Exception):
                self.closers.pop()()
        self.close()

    def __del__(self) -> None:
        """A store that was dropped without being closed leaves no connection behind."""
        if getattr(self, "_pool", None) is not None:
            self.close()

    def begin_in_child(self) -> None:
        """A thread of the parent may have held the mutex when it forked."""
        self._mutex = threading.RLock()
        self._pool = None
        for forget in self.forgetters:
            forget()

    # --- the tables ------------------------------------------------------------------------------

    def make(self) -> None:
        """Create the tables, or bring them to this version; harmless when repeated.

        Raises:
            FormatUnsupported: a newer perdure made them.
            UnsafeFile: the role may not.

        """
        if not self._made:
            self._try(lambda connection: migrations.bring(connection, self.address, self.runtime))
            self._made = True

    def _checked(self, work: Work) -> None:
        if not self._made:
            migrations.check(work, self.address)
            self._made = True

    # --- statements ------------------------------------------------------------------------------

    def read(self, question: Callable[[Work], T]) -> T:
        """The answer to a question, asked again if the connection breaks.

        Raises:
            NotMade: nothing was ever stored.
            FormatUnsupported: another version's tables.
            StorageUnavailable: the server is not to be reached within the time-out.

        """

        def asked(connection: Connection) -> T:
            work = Work(connection, self.address.schema)
            self._checked(work)
            return question(work)

        return self._try(asked)

    def change(
        self,
        do: Callable[[Work], T],
        *,
        synced: bool = True,
        repeatable: bool = False,
        once: bool = False,
        patient: bool = True,
    ) -> T:
        """Do something in one transaction, durable when this returns unless `synced` is false.

        It is tried again for as long as it certainly did not happen; with `repeatable`, also if
        that is not known; with `once`, `do` is called once at most; without `patient`, never.

        Raises:
            Unsure: the answer to the commit was lost, or it may not have reached a standby.
            NotMade, FormatUnsupported, StorageFull, StorageUnavailable: nothing was done.

        """
        begun = doubtful = False

        def changed(connection: Connection) -> T:
            nonlocal begun, doubtful
            work = Work(connection, self.address.schema)
            self._checked(work)
            self.warned(connection)
            self.begin(work, synced=synced)
            begun = once
            try:
                result = do(work)
                if doubtful and synced:
                    self.mark(work)
                crash.point("postgres.changed")
            except BaseException:
                with suppress(psycopg.Error):
                    work.cursor.execute("ROLLBACK")
                raise
            try:
                self.commit(work, synced=synced)
            except Unsure:
                doubtful = True
                raise
            self._writable = True
            return result

        attempts = self.attempts() if patient else Attempts(self.runtime, 0.0)
        return self._try(changed, attempts, unsure=repeatable, ended=lambda: begun)

    def confirm(self, work: Work) -> None:
        """Return when all that this connection sees is durable, on the standbys as well.

        Raises:
            Unsure: that is not known.

        """
        self.warned(work.connection)
        self.begin(work)
        self.mark(work)
        self.commit(work)

    def mark(self, work: Work) -> None:
        """Let the end of a transaction wait for the standbys, whatever else it changed.

        Where it comes after something that another one committed, they have that as well then.
        """
        work.cursor.execute(_MARKED)

    def commit(self, work: Work, *, synced: bool = True) -> None:
        """End a transaction.

        Raises:
            Unsure: the answer was lost, or it may not have reached a standby.

        """
        # What the statements before it warned of is nobody's commit.
        self.warned(work.connection)
        try:
            work.cursor.execute("COMMIT")
        except psycopg.Error as error:
            if meaning.lost(error):
                raise Unsure from error
            raise
        crash.point("postgres.committed")
        if synced and self.warned(work.connection):
            raise Unsure

    def _try(
        self,
        use: Callable[[Connection], T],
        attempts: Attempts | None = None,
        *,
        unsure: bool = False,
        ended: Callable[[], bool] = lambda: False,
    ) -> T:
        attempts = attempts or self.attempts()
        doubtful = False
        while True:
            try:
                with undivided(), self._lent(attempts.left) as connection:
                    self._reached = True
                    return use(connection)
            except Unsure:
                doubtful = True
                if not unsure or not attempts.pause():
                    raise
            except (NotMade, psycopg.Error) as error:
                if isinstance(error, NotMade) or meaning.unmade(error):
                    self._refuse_a_part()
                    raise NotMade from error
                # Who never came through has most likely named the wrong place, and who reads from
                # a standby is not to wait until it is none.
                known = self._reached or meaning.changing(error)
                known = known and (self._writable or not meaning.unwritable(error))
                if ended() or not known or not self.again(error) or not attempts.pause():
                    told = self.told(error)
                    if doubtful and isinstance(told, StorageUnavailable):
                        # What was sent before may be stored, and nobody can be asked.
                        told.uncertain = True
                    raise told from error

    def _refuse_a_part(self) -> None:
        self._made = False
        with self.telling(), self.direct() as work:
            migrations.refuse_a_part(work, self.address)

    def again(self, error: psycopg.Error) -> bool:
        """Whether what failed so may go well with another connection, or a moment later."""
        # It was waited for already.
        if isinstance(error, AllInUse):
            return False
        return meaning.lost(error) or meaning.again(error)

    def unsure(self, error: Unsure) -> StorageUnavailable:
        """What callers are told of a commit of which nobody knows what came."""
        cause = error.__cause__
        if isinstance(cause, psycopg.Error):
            told = StorageUnavailable(
                self.place,
                f"the answer to a commit was lost: {' '.join(str(cause).split())}",
                hint="see what is there, and try again",
            )
        else:
            hint = "see the standbys: without one that answers no commit is durable"
            told = StorageUnavailable(self.place, "no standby has confirmed it", hint=hint)
        told.retryable = told.uncertain = True
        return told

    def attempts(self) -> Attempts:
        """As often as the time-out of the address lets."""
        return Attempts(self.runtime, self.address.timeout)

    def told(self, error: psycopg.Error) -> PerdureError:
        """What callers of perdure are told for an error of the driver."""
        if isinstance(error, AllInUse):
            hint = "raise `connections` in the URL, or close what reads for long"
            told = StorageUnavailable(self.place, "all connections are in use", hint=hint)
            told.retryable = True
            return told
        return meaning.meaning(error, self.place)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Let errors of the driver be told as those of the tree.

        Raises:
            NotMade: nothing was ever stored.
            PerdureError: what the error stands for.

        """
        try:
            yield
        except psycopg.Error as error:
            if meaning.unmade(error):
                raise NotMade from error
            raise self.told(error) from error

    @contextmanager
    def direct(self, attempts: Attempts | None = None) -> Iterator[Work]:
        """A pooled connection for a caller who looks after errors and transactions.

        Raises:
            psycopg.Error: of the connection, or of what is done with it.

        """
        seconds = self.address.timeout if attempts is None else attempts.left
        with undivided(), self._lent(seconds) as connection:
            yield Work(connection, self.address.schema)

    @contextmanager
    def snapshot(self) -> Iterator[Work]:
        """One state of everything, on a connection outside the pool, for as long as this lasts."""
        with self.telling():
            connection = self.connect()
            try:
                connection.autocommit = False
                connection.read_only = True
                connection.isolation_level = IsolationLevel.REPEATABLE_READ
                yield Work(connection, self.address.schema)
            finally:
                connection.close()


_SYNCED = (
    "CASE WHEN current_setting('synchronous_commit') IN ('on', 'remote_apply')"
    " THEN current_setting('synchronous_commit') ELSE 'on' END"
)
_UNSYNCED = "SET LOCAL synchronous_commit = off"
_MARKED = "SELECT pg_logical_emit_message(true, 'perdure', ''::text)"
"""Writes something, whatever else is written: what wrote nothing waits for no standby."""

# What a child inherits would be ended for its parent by whichever of them ends first.
_servers: Closing["Server"] = Closing()


def _at_exit() -> None:
    for server in _servers:
        with suppress(Exception):
            server.at_exit()


def _begin_in_child() -> None:
    for server in _servers:
        server.begin_in_child()


SYSTEM.at_fork(_begin_in_child)
atexit.register(_at_exit)
