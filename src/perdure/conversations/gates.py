"""Short writers of one process, one behind the other: they queue here, and share what is open.

Locks of sessions are asked for again and again by whoever waits for them. Threads of one process do
not have to: they wait for each other here first, and whoever finds others waiting leaves the writer
open for the next one. After so many have used it, it is given back, and for a moment nobody here
takes it: other processes have to get their turn.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perdure.errors import SessionBusy
from perdure.runtime import Runtime
from perdure.store import Session

__all__ = ["WAIT_SECONDS", "Gates"]

WAIT_SECONDS = 10.0
"""So long a short writer waits for others."""

_SHARED_MAX = 64
_BREATH_SECONDS = 0.03
"""Whoever waits for the lock of a session looks at it every 20 ms."""

Key = tuple[str, ...]


class _Gate:
    """One queue.

    Attributes:
        users: how many wait for it or have it.
        session: the writer that was left open for the next one, or None.
        shared: how many used it.

    """

    __slots__ = ("lock", "session", "shared", "users")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.session: Session | None = None
        self.shared = 0

    def take(self, opened: Callable[[], Session]) -> Session:
        session = self.session
        if session is None or session.closed:
            self.session = session = opened()
            self.shared = 0
        self.shared += 1
        return session

    def close(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            session.close()


class Gates:
    """The queues of one process."""

    def __init__(self, runtime: Runtime) -> None:
        """Nobody waits."""
        self._runtime = runtime
        self._begin()

    def _begin(self) -> None:
        self._pid = self._runtime.pid()
        self._mutex = threading.Lock()
        self._gates: dict[Key, _Gate] = {}

    @contextmanager
    def writing(self, key: Key, opened: Callable[[], Session]) -> Iterator[Session]:
        """The writer that `opened` opens, or that the one before left open; alone with it.

        Raises:
            SessionBusy: others have been at it for `WAIT_SECONDS`.
            As `opened`, and as `Session.close`.

        """
        with self._alone(key) as gate:
            try:
                yield gate.take(opened)
            except BaseException:
                # Whatever became of it, the next one begins anew.
                gate.close()
                raise
            if gate.shared >= _SHARED_MAX:
                gate.close()
                if gate.users > 1:
                    self._runtime.sleep(_BREATH_SECONDS)
            elif gate.users == 1:
                gate.close()

    @contextmanager
    def alone(self, key: Key) -> Iterator[None]:
        """Nobody of this process writes meanwhile.

        Raises:
            SessionBusy: others have been at it for `WAIT_SECONDS`.

        """
        with self._alone(key) as gate:
            gate.close()
            yield

    @contextmanager
    def _alone(self, key: Key) -> Iterator[_Gate]:
        if self._pid != self._runtime.pid():
            # A forked child: who waited in the parent does not wait here.
            self._begin()
        with self._mutex:
            gate = self._gates.setdefault(key, _Gate())
            gate.users += 1
        try:
            if not gate.lock.acquire(timeout=WAIT_SECONDS):
                raise SessionBusy(key[-1], pid=self._pid, here=True)
            try:
                yield gate
            finally:
                gate.lock.release()
        finally:
            with self._mutex:
                gate.users -= 1
                last = not gate.users
                if last:
                    self._gates.pop(key, None)
            if last:
                # Left open for somebody who gave up waiting. Not under the lock of all: it syncs.
                gate.close()
