"""The connections to a server: a pool, and what is tried again when one of them breaks."""

import atexit
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import Diagnostic
from psycopg_pool import ConnectionPool, PoolTimeout

from perdure.databases import forks
from perdure.databases.forks import undivided
from perdure.databases.postgres import meaning, migrations
from perdure.databases.postgres.address import Address
from perdure.databases.postgres.meaning import NotMade, Unsure
from perdure.databases.postgres.work import Work
from perdure.durable import crash
from perdure.errors import PerdureError, StorageUnavailable
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Attempts", "Server"]

# What goes wrong is raised where it matters; without this, Python would print it as well.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

T = TypeVar("T")


class Connection(psycopg.Connection[Any]):
    """A connection that is closed without a word when nobody has it any more.

    Who drops a store, a writer or a reader without closing it is not told off: what they held is
    given back. In a forked child libpq is not called for what is the parent's.
    """

    def __del__(self, *_: Any) -> None:
        """The library closes what is collected; it would warn here."""


_STEP_SECONDS = 0.05
_STEP_SECONDS_MAX = 1.0
_IDLE_SECONDS = 60.0


class Attempts:
    """How often something is tried again: until a budget of seconds is used up, with jitter."""

    def __init__(self, runtime: Runtime, seconds: float) -> None:
        """Begin to count."""
        self._runtime = runtime
        self._until = runtime.monotonic() + seconds
        self._step = _STEP_SECONDS

    def pause(self) -> bool:
        """Wait a moment, longer each time; False if the time is up."""
        if self._runtime.monotonic() >= self._until:
            return False
        # Between half of the step and all of it: many writers of a server that comes back do not
        # all come at once.
        jitter = int(self._runtime.token(2), 16) / 0xFFFF
        self._runtime.sleep(self._step * (0.5 + jitter / 2))
        self._step = min(self._step * 2, _STEP_SECONDS_MAX)
        return True


class Server:
    """One schema of one server; shared by all namespaces. Methods may be called by any thread."""

    def __init__(self, address: Address, runtime: Runtime) -> None:
        """Name it; nothing is connected before it is needed."""
        self.address = address
        self.runtime = runtime
        self.place = address.shown
        self._mutex = threading.RLock()
        self._pool: ConnectionPool[Connection] | None = None
        self._made = False
        self.closers: list[Callable[[], None]] = []
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
            connection.execute(_SYNCED)

    def warned(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether the server warned on this connection since it was asked last.

        A commit that does not wait for its standbys any more, because somebody cancelled that, is
        reported as one that went well, with a warning.
        """
        there = connection in self._warned
        if there:
            self._warned.discard(connection)
        return there

    def _connections(self) -> "ConnectionPool[Connection]":
        pool = self._pool
        if pool is not None:
            return pool
        with self._mutex:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.address.conninfo,
                    connection_class=Connection,
                    kwargs={
                        "autocommit": True,
                        "prepare_threshold": None if self.address.pooled else 3,
                    },
                    min_size=0,
                    max_size=self.address.connections,
                    max_idle=_IDLE_SECONDS,
                    timeout=max(self.address.timeout, 1.0),
                    # Whoever waits for one waits on; the pool itself tries for this long at a time.
                    reconnect_timeout=2.0,
                    configure=self._configure,
                    open=True,
                    name="perdure",
                )
            return self._pool

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        with self._connections().connection() as connection:
            yield connection

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
    ) -> T:
        """Do something in one transaction, durable when this returns unless `synced` is false.

        It is tried again for as long as it certainly did not happen; with `repeatable`, also if
        that is not known; with `once`, `do` is called once at most.

        Raises:
            Unsure: the answer to the commit was lost, or it may not have reached a standby.
            NotMade, FormatUnsupported, StorageFull, StorageUnavailable: nothing was done.

        """
        begun = False

        def changed(connection: Connection) -> T:
            nonlocal begun
            work = Work(connection, self.address.schema)
            self._checked(work)
            self.warned(connection)
            work.cursor.execute("BEGIN")
            begun = once
            try:
                if not synced:
                    work.cursor.execute(_UNSYNCED)
                elif self.address.pooled:
                    work.cursor.execute(_SYNCED_HERE)
                result = do(work)
                crash.point("postgres.changed")
            except BaseException:
                with suppress(psycopg.Error):
                    work.cursor.execute("ROLLBACK")
                raise
            self.commit(work, synced=synced)
            return result

        return self._try(changed, unsure=repeatable, ended=lambda: begun)

    def commit(self, work: Work, *, synced: bool = True) -> None:
        """End a transaction.

        Raises:
            Unsure: the answer was lost, or it may not have reached a standby.

        """
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
        *,
        unsure: bool = False,
        ended: Callable[[], bool] = lambda: False,
    ) -> T:
        attempts: Attempts | None = None
        while True:
            try:
                with undivided(), self._lent() as connection:
                    return use(connection)
            except Unsure:
                attempts = attempts or self.attempts()
                if not unsure or not attempts.pause():
                    raise
            except psycopg.Error as error:
                if meaning.unmade(error):
                    self._made = False
                    raise NotMade from error
                if ended() or not self.again(error):
                    raise self.told(error) from error
                attempts = attempts or self.attempts()
                if not attempts.pause():
                    raise self.told(error) from error

    def again(self, error: psycopg.Error) -> bool:
        """Whether what failed so may go well with another connection, or a moment later."""
        # The pool has waited for its own time-out already.
        if isinstance(error, PoolTimeout):
            return False
        return meaning.lost(error) or meaning.again(error)

    def attempts(self) -> Attempts:
        """As often as the time-out of the address lets."""
        return Attempts(self.runtime, self.address.timeout)

    def told(self, error: psycopg.Error) -> PerdureError:
        """What callers of perdure are told for an error of the driver."""
        if isinstance(error, PoolTimeout):
            try:
                self.connect().close()
            except psycopg.Error as why:
                return meaning.meaning(why, self.place)
            hint = "raise `connections` in the URL, or close what reads for long"
            told = StorageUnavailable(self.place, "all connections are in use", hint=hint)
            told.retryable = True
            return told
        return meaning.meaning(error, self.place)

    @contextmanager
    def direct(self) -> Iterator[Work]:
        """A pooled connection for a caller who looks after errors and transactions.

        Raises:
            psycopg.Error: of the connection, or of what is done with it.

        """
        with undivided(), self._lent() as connection:
            yield Work(connection, self.address.schema)

    @contextmanager
    def snapshot(self) -> Iterator[Work]:
        """One state of everything, on a connection outside the pool, for as long as this lasts."""
        try:
            connection = self.connect()
        except psycopg.Error as error:
            raise self.told(error) from error
        try:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            connection.autocommit = False
            yield Work(connection, self.address.schema)
        except psycopg.Error as error:
            if meaning.unmade(error):
                raise NotMade from error
            raise self.told(error) from error
        finally:
            connection.close()


_SYNCED = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
)
_SYNCED_HERE = (
    "SELECT set_config('synchronous_commit', 'on', true)"
    " WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply')"
)
_UNSYNCED = "SET LOCAL synchronous_commit = off"

_servers: "weakref.WeakSet[Server]" = weakref.WeakSet()


def _close_all() -> None:
    """What a child inherits would be ended for its parent by whichever of them ends first."""
    for server in list(_servers):
        with suppress(Exception):
            server.close()


def _at_exit() -> None:
    for server in list(_servers):
        with suppress(Exception):
            server.at_exit()


def _begin_in_child() -> None:
    for server in list(_servers):
        server.begin_in_child()


forks.before_fork(_close_all)
SYSTEM.at_fork(_begin_in_child)
atexit.register(_at_exit)
