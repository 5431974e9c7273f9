"""Connections that one caller after the other uses.

Whoever asks for one connects by itself where none is idle, and is told at once if that fails: how
long to try again is the caller's affair. What the other side closed while it was idle is seen
before anything is sent on it, so a server that went away costs no commit its answer.
"""

import logging
import queue
import select
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from perdure.runtime import SYSTEM, Runtime

__all__ = ["AllInUse", "Connection", "Pool"]

# What goes wrong is raised where it matters; without this, Python would print it as well.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_IDLE_SECONDS = 60.0
_LOOK_SECONDS = 0.1
"""So soon somebody who waits looks again whether a slot was lost."""

_USED_SECONDS = 3600.0
"""Older ones are replaced: a name may stand for another host by now, and servers keep caches."""


class AllInUse(psycopg.OperationalError):
    """No connection was given back in time."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed without a word when nobody has it any more.

    Who drops a store, a writer or a reader without closing it is not told off: what they held is
    given back. In a forked child libpq is not called for what is the parent's.

    Attributes:
        made_at: when it was made, by the clock of the pool.
        idle_since: when it was given back last.
        slot: while somebody uses it, which of the slots of the pool.

    """

    made_at = 0.0
    idle_since = 0.0
    slot: "_Slot | None" = None

    def __del__(self, *_: Any) -> None:
        """The library closes what is collected; it would warn here."""


class _Slot:
    """The right to use a connection; whoever drops it has given it back."""

    __slots__ = ("__weakref__",)


class Pool:
    """At most so many connections of one process. Methods may be called by any thread.

    An interrupt, such as that of a signal, may come between any two steps of its methods and of
    those who call them. So nothing is counted: what is in use is what somebody has, and a slot that
    was dropped on the way is made anew when it is missed.
    """

    def __init__(self, make: Callable[[], Connection], most: int, runtime: Runtime) -> None:
        """Nothing is connected before somebody asks."""
        self._make = make
        self._runtime = runtime
        # A semaphore is entered in Python code, in which an interrupt can leave it locked.
        self._free: queue.SimpleQueue[_Slot] = queue.SimpleQueue()
        self._slots: list[weakref.ref[_Slot] | None] = [None] * most
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        # The one that was used last is used next, so that those that are too many stay idle.
        self._idle: list[Connection] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def take(self, seconds: float) -> Connection:
        """A connection that answers, as far as can be seen; for others when it is given or dropped.

        Raises:
            AllInUse: others have all of them, for so many seconds.
            psycopg.Error: there is none to be had.

        """
        slot = self._slot(seconds)
        try:
            connection = self._sound() or self._new()
        except BaseException:
            # Whoever keeps the error keeps what is known here.
            self._free.put(slot)
            raise
        connection.slot = slot
        return connection

    def _slot(self, seconds: float) -> _Slot:
        until = SYSTEM.monotonic() + seconds
        while True:
            try:
                return self._free.get_nowait()
            except queue.Empty:
                self._mend()
            left = until - SYSTEM.monotonic()
            with suppress(queue.Empty):
                return self._free.get(timeout=max(0.0, min(left, _LOOK_SECONDS)))
            if left <= 0:
                raise AllInUse("all connections are in use")

    def _mend(self) -> None:
        """Make those slots that nobody has and that are not free either."""
        with self._mutex:
            for place, known in enumerate(self._slots):
                if known is None or known() is None:
                    slot = _Slot()
                    self._slots[place] = weakref.ref(slot)
                    self._free.put(slot)

    def _new(self) -> Connection:
        made = self._make()
        made.made_at = self._runtime.monotonic()
        return made

    def _sound(self) -> Connection | None:
        """The idle connection that was used last and is not broken."""
        while True:
            with self._mutex:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _spoken(connection):
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        """Let others use it, unless it is broken or in the middle of something."""
        slot, connection.slot = connection.slot, None
        try:
            status = connection.pgconn.transaction_status
            if status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                with suppress(psycopg.Error):
                    connection.rollback()
            now = self._runtime.monotonic()
            connection.idle_since = now
            sound = connection.pgconn.transaction_status == TransactionStatus.IDLE
            if not sound or now - connection.made_at > _USED_SECONDS or not self._keep(connection):
                connection.close()
        finally:
            if slot is not None:
                self._free.put(slot)

    def _keep(self, connection: Connection) -> bool:
        with self._mutex:
            if self._closed:
                return False
            self._idle.append(connection)
            if self._thread is None:
                # Weakly: who drops a store without closing it waits for nobody.
                self._thread = threading.Thread(
                    target=_shrink,
                    args=(weakref.ref(self), self._changed),
                    name="perdure-idle",
                    daemon=True,
                )
                self._thread.start()
            return True

    def shrink(self) -> bool:
        """Close what was idle for long; whether there is anything else."""
        with self._mutex:
            now = self._runtime.monotonic()
            old = [each for each in self._idle if now - each.idle_since >= _IDLE_SECONDS]
            self._idle = [each for each in self._idle if each not in old]
            goes_on = bool(self._idle) and not self._closed
            if not goes_on:
                self._thread = None
        for each in old:
            each.close()
        return goes_on

    def close(self) -> None:
        """Close the idle connections; what is used meanwhile is closed when it is given back."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for each in idle:
            each.close()


def _shrink(pool: "weakref.ref[Pool]", changed: threading.Condition) -> None:
    while True:
        with changed:
            changed.wait(_IDLE_SECONDS / 4)
        found = pool()
        if found is None or not found.shrink():
            return
        del found


def _spoken(connection: Connection) -> bool:
    """Whether the other side said something unasked, which is mostly that it has gone."""
    if connection.closed:
        return True
    asked = select.poll()
    asked.register(connection.fileno(), select.POLLIN)
    return bool(asked.poll(0))
