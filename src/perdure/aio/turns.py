"""Who of this process is next to write a session: waiting tasks stand in line.

Only the first of a line asks for the lock; the others cost nothing but their place. The first is
woken when a session of this process is closed, and looks again from time to time because others
may hold the lock.
"""

import copy
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.aio.loops import Signal, signal
from perdure.aio.threads import ProcessBound
from perdure.errors import SessionBusy
from perdure.runtime import Runtime

__all__ = ["Turn", "Turns"]

T = TypeVar("T")

_POLL_SECONDS = 0.02
"""How often the first of a line asks for a lock that others hold."""

_WATCH_SECONDS = 1.0
"""The same, while a session of this store is open: it says when it closes, unless it is dropped."""


class Turn:
    """The place of one task in the line for a session."""

    def __init__(self) -> None:
        """At the end."""
        self._woken = False
        self._signal: Signal | None = None

    def wake(self) -> None:
        """Let it look again, now or when it waits next. Called from any thread."""
        self._woken = True
        waiting = self._signal
        if waiting is not None:
            waiting.set()

    async def wait(self, seconds: float) -> None:
        """Return when woken, or `seconds` later."""
        self._signal = waiting = signal()
        try:
            # Looked at behind the assignment, so that no wake-up falls between the two.
            if not self._woken:
                await waiting.wait(seconds)
        finally:
            self._signal = None
            self._woken = False


class _Line:
    def __init__(self) -> None:
        self.turns: deque[Turn] = deque()
        self.busy: SessionBusy | None = None


class Turns(ProcessBound):
    """The lines of all sessions of a store."""

    def __init__(self, runtime: Runtime) -> None:
        """Measure waiting with the clock of `runtime`."""
        self._runtime = runtime
        super().__init__()

    def _begin(self) -> None:
        # Reentrant: a task may be thrown away by the collector while this thread is in here.
        self._mutex = threading.RLock()
        self._lines: dict[str, _Line] = {}

    async def take(
        self,
        session: str,
        wait: float,
        ask: Callable[[bool], Awaitable[T]],
        held_here: Callable[[], bool],
    ) -> T:
        """Stand in line and ask for the session when it is this one's turn, for `wait` seconds.

        `ask` is told whether it was called before, and raises SessionBusy if the session is not
        free. `held_here` tells whether a call of `wake` can be expected.

        Raises:
            SessionBusy: it was not free, or others came first, for all that time.

        """
        deadline = self._runtime.monotonic() + wait
        turn, asked = self.join(session), False
        try:
            while True:
                known, left = self.known(session), deadline - self._runtime.monotonic()
                first = self.first(session, turn)
                if (known is None and left <= 0) or (first and (known is None or not held_here())):
                    try:
                        taken = await ask(asked)
                    except SessionBusy as busy:
                        self.note(session, busy)
                        known, asked = busy, True
                        left = deadline - self._runtime.monotonic()
                    else:
                        self.note(session, self._ourselves(session))
                        return taken
                if left <= 0 and known is not None:
                    raise known
                pause = _WATCH_SECONDS if held_here() else _POLL_SECONDS
                await turn.wait(min(pause, left) if first else left)
        finally:
            self.leave(session, turn)

    def _ourselves(self, session: str) -> SessionBusy:
        runtime = self._runtime
        return SessionBusy(
            session, pid=runtime.pid(), host=runtime.host(), since=runtime.now_ms(), here=True
        )

    def join(self, session: str) -> Turn:
        """Stand at the end of the line."""
        turn = Turn()
        with self._mutex:
            self._lines.setdefault(session, _Line()).turns.append(turn)
        return turn

    def leave(self, session: str, turn: Turn) -> None:
        """Step out of the line; whoever is first then is woken."""
        with self._mutex:
            line = self._lines.get(session)
            if line is None or turn not in line.turns:
                return
            line.turns.remove(turn)
            if not line.turns:
                del self._lines[session]
            else:
                line.turns[0].wake()

    def first(self, session: str, turn: Turn) -> bool:
        """Whether it is this one's turn to ask."""
        with self._mutex:
            line = self._lines.get(session)
            return line is not None and bool(line.turns) and line.turns[0] is turn

    def wake(self, session: str) -> None:
        """The session may be free: the first of the line looks again."""
        with self._mutex:
            line = self._lines.get(session)
            if line is not None and line.turns:
                line.turns[0].wake()

    def wake_all(self) -> None:
        """As `wake`, for every session."""
        with self._mutex:
            for session in list(self._lines):
                self.wake(session)

    def note(self, session: str, busy: SessionBusy) -> None:
        """Keep what is known of who writes, for those who are not first."""
        with self._mutex:
            line = self._lines.get(session)
            if line is not None:
                line.busy = copy.copy(busy)

    def known(self, session: str) -> SessionBusy | None:
        """What was noted last, as an error of the caller's own."""
        with self._mutex:
            line = self._lines.get(session)
            return copy.copy(line.busy) if line is not None and line.busy is not None else None
