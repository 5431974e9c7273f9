"""The sign of life of a process that writes, and its voice.

Who writes a session stands in the session's row: the number of a *writer*, which is a process that
opened the store. A writer lives as long as the connection does that holds its advisory lock. Where
that tells nothing (another server has taken over, or a pooler stands in between) it lives until it
has not renewed its row for the seconds of the lease. Nothing depends on this being exact: whoever
was taken over finds another epoch at its next commit.
"""

import hashlib
import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import errors

from perdure.backends.postgres.moves import Moves
from perdure.backends.postgres.signs import INCARNATION, LOCKED
from perdure.backends.postgres.waiting import LOCK
from perdure.databases.forks import undivided
from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.databases.postgres.work import expanded
from perdure.errors import PerdureError, StorageUnavailable
from perdure.runtime import SYSTEM

__all__ = ["Presence", "channel_of", "told_as"]

_log = logging.getLogger("perdure.postgres")

_IDLE_SECONDS = 5.0
_AGAIN_SECONDS = 0.25
"""After a connection that was not to be had."""

_NUMBERS_MAX = 4
"""So many numbers are tried, where somebody has taken the locks of writers to come."""

_LOCK_TIMEOUT = "2s"
_NOTIFY_SECONDS = 0.05
"""The first change is told of at once; those that follow it closely are told of together."""

_TOLD_MAX = 200
"""So many sessions stand in one notification at most, which may have 8,000 bytes."""

_FORGET = "DELETE FROM @writers WHERE id = %s"
_ENTER = (
    "INSERT INTO @writers (pid, host, since, beat_at, incarnation, held)"
    f" VALUES (%s, %s, %s, clock_timestamp(), {INCARNATION}, %s) RETURNING id"
)
_BEAT = (
    f"UPDATE @writers SET beat_at = clock_timestamp(), incarnation = {INCARNATION} WHERE id = %s"
)
# The row of a process that was asleep for days, or that was not on the standby that took over.
_BACK = (
    "INSERT INTO @writers (id, pid, host, since, beat_at, incarnation, held)"
    f" OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, clock_timestamp(), {INCARNATION}, %s)"
    " ON CONFLICT (id) DO NOTHING"
)
# Those of this role: who else took a lock of that number is not an earlier connection of ours.
_END_OTHERS = (
    f"SELECT count(pg_terminate_backend(l.pid)) {LOCKED} AND l.pid <> pg_backend_pid()"
    " AND l.pid IN (SELECT a.pid FROM pg_stat_activity a JOIN pg_stat_activity b"
    " ON b.usesysid = a.usesysid WHERE b.pid = pg_backend_pid())"
)


class Presence:
    """This process as a writer of one store: one for all that one backend holds.

    Attributes:
        tokens: of all that is held, or on its way to be; none of it is another process's to take.
        moves: what is moved into the trash or out of it.

    """

    def __init__(self, server: Server) -> None:
        """Nothing is connected before something is held."""
        self._server = server
        self._runtime = server.runtime
        server.closers.append(self.close)
        server.forgetters.append(self._begin_in_child)
        self.reset()

    def reset(self) -> None:
        """Forget what belongs to another process."""
        self._mutex = threading.RLock()
        self._id = 0
        self._told: tuple[int, str, int, bool] = (0, "", 0, False)
        self.tokens: dict[str, None] = {}
        self.moves = Moves()
        self._pid = self._runtime.pid()
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._changed: dict[str, None] = {}
        self._dropped: list[Callable[[], None]] = []
        self._later: list[Callable[[], None]] = []
        self._releasing: threading.Thread | None = None
        # The thread waits for the other end of this, and for its connection to break.
        self._waking: socket.socket | None = None
        self._woken: socket.socket | None = None
        self._roused = False

    @property
    def id(self) -> int:
        """The number of this writer; 0 while it holds nothing."""
        return self._id

    # --- what is held ----------------------------------------------------------------------------

    def enter(self, token: str) -> int:
        """Note a hold, which `token` names; the number of this writer.

        Raises:
            PerdureError: the server cannot be reached.

        """
        self.tidy()
        with self._mutex:
            if not self._id:
                self._begin()
            self.tokens[token] = None
            return self._id

    def leave(self, token: str) -> None:
        """A hold has ended; the last one lets the thread go, a while later."""
        with self._mutex:
            self.tokens.pop(token, None)
            self._rouse()

    def drop(self, release: Callable[[], None]) -> None:
        """Let somebody release a hold soon: its owner lost it without closing it."""
        self._dropped.append(release)

    def soon(
        self, statement: str, *values: object, again: Callable[[], None] | None = None
    ) -> None:
        """Give something back now, or as soon as the server answers; nobody waits for that.

        It is asked for anew then, or `again` is called; the end of this process does it as well.
        Unsynced: who loses power with it is gone, and is seen to be.
        """
        again = again or partial(self.soon, statement, *values)
        try:
            self._server.change(
                lambda work: work.run(statement, *values),
                synced=False,
                repeatable=True,
                patient=False,
            )
        except NotMade:
            return
        except (PerdureError, Unsure):
            self._later.append(again)
        except BaseException:
            self._later.append(again)
            raise

    def tidy(self) -> None:
        """Release what was dropped, and give back what could not be given back."""
        dropped, self._dropped = self._dropped, []
        dropped += self._later
        self._later = []
        try:
            while dropped:
                with suppress(PerdureError, NotMade, Unsure):
                    dropped.pop()()
        finally:
            # An interrupt came.
            self._later += dropped

    def _tidy_beside(self) -> None:
        """Let another thread release what was dropped.

        A release may wait for a connection for longer than the lease: signs of life do not.
        """
        if not self._releases and (self._dropped or self._later):
            thread = threading.Thread(target=self._release, name="perdure-release", daemon=True)
            # None is to be had where the program ends.
            with suppress(RuntimeError):
                thread.start()
                self._releasing = thread

    @property
    def _releases(self) -> bool:
        return self._releasing is not None and self._releasing.is_alive()

    def _release(self) -> None:
        try:
            self.tidy()
        except Exception:  # noqa: BLE001 - it is said, and goes on
            _log.exception("a session that was dropped could not be released")

    def _begin(self) -> None:
        try:
            self._come_alive()
        except BaseException:
            # Half of it is nothing: others would believe that this process has ended.
            connection, self._connection = self._connection, None
            self._id, self._thread = 0, None
            for each in (connection, self._waking, self._woken):
                if each is not None:
                    each.close()
            self._waking = self._woken = None
            raise

    def _come_alive(self) -> None:
        runtime, held = self._runtime, not self._server.address.pooled
        host = runtime.host().replace("\0", "?")
        self._told = (runtime.pid(), host, runtime.now_ms(), held)

        def enter(work: Work) -> int:
            # What was left by those who died long ago.
            work.run("DELETE FROM @writers WHERE beat_at < clock_timestamp() - interval '7 days'")
            found = work.row(_ENTER, *self._told)
            return int(found[0]) if found else 0

        for left in reversed(range(_NUMBERS_MAX)):
            try:
                self._id = self._server.change(enter, repeatable=True)
            except (NotMade, Unsure) as error:
                told_so = StorageUnavailable(self._server.place, "no standby has confirmed it")
                told_so.retryable = True
                raise told_so from error
            self._pid = runtime.pid()
            if not held or self._connected(last=not left):
                break
        self._waking, self._woken = socket.socketpair()
        self._roused = False
        for each in (self._waking, self._woken):
            each.setblocking(False)
        self._thread = threading.Thread(
            target=self._live, args=(self._woken,), name="perdure-lease", daemon=True
        )
        self._thread.start()

    def _connected(self, *, last: bool) -> bool:
        """Connect for the sign of life; False if somebody else has the lock of this number."""
        attempts = self._server.attempts()
        while True:
            try:
                # A child that had the connection as well would keep it open.
                with undivided():
                    self._connection = self._connect(self._id)
            except psycopg.Error as error:
                if isinstance(error, errors.LockNotAvailable) and not last:
                    return False
                if not self._server.again(error) or not attempts.pause():
                    self._id = 0
                    raise self._server.told(error) from error
            else:
                return True

    def _connect(self, id_: int) -> psycopg.Connection[Any]:
        """A connection that holds the lock of a writer, whose row has another sign of life."""
        connection = self._server.connect()
        mine = (self._server.address.schema, id_)
        try:
            # Behind a pooler nothing that is set or locked is this connection's: it is there so
            # that a sign of life waits for nobody in this process.
            if not self._server.address.pooled:
                # A sign of life that is lost with the power is of somebody who is gone with it.
                connection.execute("SET synchronous_commit = off")
                # The connection before this one broke, and the server may not have noticed.
                connection.execute(_END_OTHERS, mine)
                connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
                connection.execute(f"SELECT pg_advisory_lock({LOCK})", mine)
            # Only now: who finds this life of the server in the row looks for the lock.
            self._beat(Work(connection, self._server.address.schema), id_)
        except BaseException:
            connection.close()
            raise
        return connection

    def _connect_again(self) -> bool:
        """Connect in the thread of this writer; False if it has ended meanwhile."""
        with self._mutex:
            id_ = self._id
            if self._thread is not threading.current_thread():
                return False
        with undivided():
            connection = self._connect(id_)
        with self._mutex:
            if self._thread is threading.current_thread():
                self._connection = connection
                return True
        # The sign of life has brought back the row of a writer that ended meanwhile.
        with suppress(psycopg.Error), undivided():
            connection.execute(expanded(_FORGET, self._server.address.schema), (id_,))
        connection.close()
        return False

    # --- the thread ------------------------------------------------------------------------------

    def _live(self, woken: socket.socket) -> None:
        with woken:
            while True:
                try:
                    self._lives(woken)
                except Exception:  # noqa: BLE001 - it is said, and goes on
                    # Without it all that is held could be taken, and nobody would see why.
                    _log.exception("the sign of life of a writer was broken off, and goes on")
                    threading.Event().wait(_AGAIN_SECONDS)
                else:
                    return

    def _lives(self, woken: socket.socket) -> None:
        every = self._server.address.lease / 4
        beat, told, held = 0.0, 0.0, SYSTEM.monotonic()
        while self._awaited(woken, beat):
            now = SYSTEM.monotonic()
            held = now if self.tokens else held
            if now - held > _IDLE_SECONDS and self._ended():
                return
            if self._changed and now - told < _NOTIFY_SECONDS:
                # What is written meanwhile goes with it.
                threading.Event().wait(_NOTIFY_SECONDS - (now - told))
            due = now >= beat or self._broken
            try:
                self._speak(beats=due)
            except (psycopg.Error, PerdureError, NotMade):
                due, every_now = True, min(every, _AGAIN_SECONDS)
            else:
                every_now = every
            told = SYSTEM.monotonic()
            beat = told + every_now if due else beat
            self._tidy_beside()

    @property
    def _broken(self) -> bool:
        return self._connection is None

    def _awaited(self, woken: socket.socket, beat: float) -> bool:
        """Wait until there is something to do; False if another thread, or none, is to do it."""
        left = max(0.0, min(beat - SYSTEM.monotonic(), _IDLE_SECONDS))
        if self._changed or (self._dropped and not self._releases):
            left = 0.0
        connection = self._connection
        asked = select.poll()
        asked.register(woken, select.POLLIN)
        if connection is not None:
            with suppress(psycopg.Error):
                asked.register(connection.fileno(), select.POLLIN)
        found = {fd for fd, _ in asked.poll(left * 1000)}
        if woken.fileno() in found:
            # In this order: who rouses between them has said before what there is to do.
            self._roused = False
            with suppress(BlockingIOError):
                woken.recv(4096)
        with self._mutex:
            if self._thread is not threading.current_thread():
                return False
            if connection is not None and found - {woken.fileno()}:
                self._look(connection)
            return True

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        """See whether a connection on which something came unasked is broken."""
        try:
            with undivided():
                connection.pgconn.consume_input()
        except psycopg.Error:
            # Replaced at once: others believe that this process has ended.
            self._connection = None
            connection.close()

    def _rouse(self) -> None:
        """Let the thread look; called with the mutex held."""
        if self._waking is not None and not self._roused:
            self._roused = True
            with suppress(BlockingIOError):
                self._waking.send(b".")

    def _ended(self) -> bool:
        """End it, if nobody has come meanwhile."""
        with self._mutex:
            if self.tokens or self._thread is not threading.current_thread():
                return False
            self._end()
            return True

    def _speak(self, *, beats: bool) -> None:
        """Give a sign of life, and tell what was changed."""
        if self._connection is None and not self._connect_again():
            return
        found, self._changed = self._changed, {}
        changed = [*found]
        if not beats and not changed:
            return
        try:
            with undivided():
                self._say(changed, beats=beats)
        except psycopg.Error:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            for each in changed:
                self._changed[each] = None
            raise

    def _say(self, changed: list[str], *, beats: bool) -> None:
        connection = self._connection
        if connection is None:
            # The holds are given up, or this is a child.
            return
        work = Work(connection, self._server.address.schema)
        if beats:
            self._beat(work, self._id)
        channel = channel_of(self._server.address.schema)
        for first in range(0, len(changed), _TOLD_MAX):
            told = " ".join(changed[first : first + _TOLD_MAX])
            work.rows("SELECT pg_notify(%s, %s)", channel, told)

    def _beat(self, work: Work, id_: int) -> None:
        if id_ and not work.run(_BEAT, id_):
            work.run(_BACK, id_, *self._told)

    def _end(self) -> None:
        """Leave nothing behind, and nothing untold; called with the mutex held."""
        changed, self._changed = [*self._changed], {}
        with suppress(psycopg.Error), undivided():
            self._say(changed, beats=False)
        id_, self._id = self._id, 0
        connection, self._connection = self._connection, None
        self._thread = None
        waking, self._waking = self._waking, None
        if waking is not None:
            # The thread sees the end of it, and closes the other one.
            waking.close()
        forget = expanded(_FORGET, self._server.address.schema)
        with suppress(PerdureError, psycopg.Error):
            if connection is not None:
                connection.execute(forget, (id_,))
                connection.close()
            elif id_:
                # Its row runs out by itself as well.
                with self._server.direct() as work:
                    work.connection.execute(forget, (id_,))

    # --- what is told ----------------------------------------------------------------------------

    def changed(self, namespace: str, session: str) -> None:
        """Tell whoever listens that a session was changed, a moment later; never waited for.

        Not within the commit: all that notify wait for each other at its end.
        """
        self._changed[told_as(namespace, session)] = None
        if self._mutex.acquire(blocking=False):
            try:
                self._rouse()
            finally:
                self._mutex.release()

    def close(self) -> None:
        """End the thread and give up the place; holds that are left are no one's."""
        if self._pid != self._runtime.pid():
            self.detach()
            return
        self.tidy()
        with self._mutex:
            if self._id:
                self._end()

    def _begin_in_child(self) -> None:
        """What a parent holds is not its child's, who begins as one that holds nothing."""
        self.detach()
        for each in (self._waking, self._woken):
            if each is not None:
                each.close()
        self.reset()

    def detach(self) -> None:
        """Let go of a connection that another process goes on using: not a byte is sent on it."""
        connection, self._connection = self._connection, None
        self._id, self._thread = 0, None
        if connection is not None and not connection.closed:
            with suppress(OSError, psycopg.Error):
                # In the place of the socket comes one whose other end is closed.
                nothing, end = socket.socketpair()
                with nothing, end:
                    os.dup2(nothing.fileno(), connection.fileno())


def told_as(namespace: str, session: str) -> str:
    """What stands for a session in a notification, which everybody in the database may read."""
    name = f"{namespace} {session}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=12).hexdigest()


def channel_of(schema: str) -> str:
    """The channel on which changed sessions of a schema are told of."""
    return f"perdure_{schema}"
