"""The sign of life of a process that writes, and its voice.

Who writes a session stands in the session's row: the number of a *writer*, which is a process that
opened the store. A writer lives as long as the connection does that holds its advisory lock. Where
that tells nothing (another server has taken over, or a pooler stands in between) it lives until it
has not renewed its row for the seconds of the lease. Nothing depends on this being exact: whoever
was taken over finds another epoch at its next commit.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import errors

from perdure.databases.forks import undivided
from perdure.databases.postgres import NotMade, Server, Work
from perdure.databases.postgres.work import expanded
from perdure.durable.locks import Holder
from perdure.errors import PerdureError

__all__ = ["CHANNEL", "Presence", "gone", "wait_for"]

CHANNEL = "perdure"
"""The channel on which changed sessions are told of, with the schema as its suffix."""

_IDLE_SECONDS = 5.0
_PROBE = "30ms"
_NOTIFY_SECONDS = 0.01
_TOLD_MAX = 200
"""So many sessions stand in one notification at most, which may have 8,000 bytes."""

_INCARNATION = "extract(epoch FROM pg_postmaster_start_time())::text"
_LOCK = "hashtext('perdure ' || %s), %s"
"""Advisory locks have two numbers: one for the schema, one for the writer."""

_ENTER = (
    "INSERT INTO @writers (pid, host, since, beat_at, incarnation, held)"
    f" VALUES (%s, %s, %s, clock_timestamp(), {_INCARNATION}, %s) RETURNING id"
)
_BEAT = (
    f"UPDATE @writers SET beat_at = clock_timestamp(), incarnation = {_INCARNATION} WHERE id = %s"
)
_STATE = (
    f"SELECT w.held AND w.incarnation = {_INCARNATION}, EXISTS ("
    " SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.classid = hashtext('perdure ' || %s)::oid AND l.objid = w.id::oid AND l.objsubid = 2),"
    " w.beat_at < clock_timestamp() - make_interval(secs => %s), w.pid, w.host"
    " FROM @writers w WHERE w.id = %s"
)


class Presence:
    """This process as a writer of one store: one for all that one backend holds."""

    def __init__(self, server: Server) -> None:
        """Nothing is connected before something is held."""
        self._server = server
        self._runtime = server.runtime
        server.closers.append(self.close)
        self.reset()

    def reset(self) -> None:
        """Forget what belongs to another process."""
        self._mutex = threading.RLock()
        self._wake = threading.Condition(self._mutex)
        self._id = 0
        self._holds = 0
        self._pid = self._runtime.pid()
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._changed: dict[str, None] = {}
        self._dropped: list[Callable[[], None]] = []

    @property
    def id(self) -> int:
        """The number of this writer; 0 while it holds nothing."""
        return self._id

    # --- what is held ----------------------------------------------------------------------------

    def enter(self) -> int:
        """Count a hold; the number of this writer.

        Raises:
            PerdureError: the server cannot be reached.

        """
        self.tidy()
        with self._mutex:
            if not self._id:
                self._begin()
            self._holds += 1
            return self._id

    def leave(self) -> None:
        """A hold has ended; the last one lets the thread go, a while later."""
        with self._mutex:
            self._holds -= 1
            self._wake.notify_all()

    def drop(self, release: Callable[[], None]) -> None:
        """Let somebody release a hold soon: its owner lost it without closing it."""
        self._dropped.append(release)

    def tidy(self) -> None:
        """Release what was dropped."""
        while self._dropped:
            with suppress(PerdureError, IndexError):
                self._dropped.pop()()

    def _begin(self) -> None:
        runtime, held = self._runtime, not self._server.address.pooled
        told = (runtime.pid(), runtime.host().replace("\0", "?"), runtime.now_ms(), held)

        def enter(work: Work) -> int:
            # What was left by those who died long ago.
            work.run("DELETE FROM @writers WHERE beat_at < clock_timestamp() - interval '7 days'")
            found = work.row(_ENTER, *told)
            return int(found[0]) if found else 0

        self._id = self._server.change(enter)
        self._pid = runtime.pid()
        if held:
            try:
                self._connect()
            except psycopg.Error as error:
                self._id = 0
                raise self._server.told(error) from error
        self._thread = threading.Thread(target=self._live, name="perdure-lease", daemon=True)
        self._thread.start()

    def _connect(self) -> None:
        connection = self._server.connect()
        # A sign of life that is lost with the power is of somebody who is gone with it.
        connection.execute("SET synchronous_commit = off")
        connection.execute(
            f"SELECT pg_advisory_lock({_LOCK})", (self._server.address.schema, self._id)
        )
        connection.execute(expanded(_BEAT, self._server.address.schema), (self._id,))
        self._connection = connection

    # --- the thread ------------------------------------------------------------------------------

    def _live(self) -> None:
        mine = threading.current_thread()
        beat = self._server.address.lease / 4
        idle = 0.0
        while True:
            with self._mutex:
                if self._thread is not mine:
                    return
                if not self._changed and not self._dropped:
                    self._wake.wait(min(beat, _IDLE_SECONDS))
                if self._thread is not mine:
                    return
                idle = 0.0 if self._holds else idle + 1
                if idle > 1:
                    self._end()
                    return
                waits = bool(self._changed)
            if waits:
                # What is written meanwhile goes with it.
                threading.Event().wait(_NOTIFY_SECONDS)
            self.tidy()
            with suppress(psycopg.Error, PerdureError, NotMade):
                self._beat()

    def _beat(self) -> None:
        with self._mutex:
            changed, self._changed = [*self._changed], {}
            id_ = self._id
        if self._connection is None and not self._server.address.pooled:
            self._connect()
        try:
            if self._connection is None:
                with self._server.direct() as work:
                    self._say(work, id_, changed)
                return
            with undivided():
                work = Work(self._connection, self._server.address.schema)
                self._say(work, id_, changed)
        except psycopg.Error:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            raise

    def _say(self, work: Work, id_: int, changed: list[str]) -> None:
        work.run(_BEAT, id_)
        channel = f"{CHANNEL}_{self._server.address.schema}"
        for first in range(0, len(changed), _TOLD_MAX):
            told = " ".join(changed[first : first + _TOLD_MAX])
            work.rows("SELECT pg_notify(%s, %s)", channel, told)

    def _end(self) -> None:
        """Leave nothing behind; called with the mutex held."""
        id_, self._id = self._id, 0
        connection, self._connection = self._connection, None
        self._thread = None
        forget = expanded("DELETE FROM @writers WHERE id = %s", self._server.address.schema)
        with suppress(PerdureError, psycopg.Error):
            if connection is not None:
                connection.execute(forget, (id_,))
                connection.close()
            elif id_:
                # Its row runs out by itself as well.
                with self._server.direct() as work:
                    work.connection.execute(forget, (id_,))

    # --- what is told ----------------------------------------------------------------------------

    def changed(self, number: int) -> None:
        """Tell whoever listens that a session was changed, a moment later; never waited for."""
        self._changed[str(number)] = None
        if self._mutex.acquire(blocking=False):
            try:
                self._wake.notify_all()
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
            self._wake.notify_all()

    def detach(self) -> None:
        """Let go of a connection that another process goes on using: not a byte is sent on it."""
        connection, self._connection = self._connection, None
        self._id, self._thread = 0, None
        if connection is not None and not connection.closed:
            with suppress(OSError, psycopg.Error):
                nothing = os.open(os.devnull, os.O_RDWR)
                try:
                    os.dup2(nothing, connection.fileno())
                finally:
                    os.close(nothing)


# --- others -------------------------------------------------------------------------------------


def gone(work: Work, schema: str, lease: float, writer: int) -> Holder | None:
    """None if a writer is gone or has not given a sign of life for too long; else who it is."""
    found = work.row(_STATE, schema, lease, writer)
    if found is None:
        return None
    exact, there, silent, pid, host = found
    if silent or (exact and not there):
        return None
    return Holder(pid, host, None)


def wait_for(server: Server, writer: int) -> None:
    """Give a connection that was broken off the moment that the server takes to notice it."""
    if server.address.pooled:
        return

    def probe(work: Work) -> None:
        work.run(f"SET LOCAL lock_timeout = '{_PROBE}'")
        work.rows(f"SELECT pg_advisory_xact_lock_shared({_LOCK})", server.address.schema, writer)

    with suppress(PerdureError, errors.LockNotAvailable):
        server.change(probe, synced=False, repeatable=True)
