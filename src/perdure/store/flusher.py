"""The background thread that starts due commits of buffered events, and keeps evidence current.

It is started by the first thing that is due, serves all sessions of a store, and ends when nothing
is due for a while. A session stays alive while it is due: what was accepted is committed even if
everybody else has dropped it.
"""

import threading
import weakref
from collections.abc import Callable

from perdure.runtime import Runtime

__all__ = ["DELAY_SECONDS", "Flusher", "weakly"]

DELAY_SECONDS = 0.2
"""A buffered event is committed at the latest this long after the first of its batch."""

_IDLE_SECONDS = 5.0


class Flusher:
    """Calls what was scheduled, once, when it is due."""

    def __init__(self, runtime: Runtime) -> None:
        """Start no thread yet."""
        self._runtime = runtime
        self._reset()

    def _reset(self) -> None:
        self._pid = self._runtime.pid()
        # Entered by itself: a condition is entered in Python code, in which an interrupt can leave
        # it locked for ever.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._due: dict[Callable[[], None], float] = {}
        self._thread: threading.Thread | None = None
        self._stopped = False

    def schedule(self, flush: Callable[[], None], delay: float = DELAY_SECONDS) -> bool:
        """Call `flush` in `delay` seconds, or earlier if it is due already.

        False if nobody is there to do it.
        """
        if self._pid != self._runtime.pid():
            # A forked child has neither the thread nor a usable lock.
            self._reset()
        with self._lock:
            if self._stopped:
                return False
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="perdure-flusher", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
            deadline = self._runtime.monotonic() + delay
            self._due[flush] = min(deadline, self._due.get(flush, deadline))
            self._wake.notify()
        return True

    def _run(self) -> None:
        while (flush := self._next_due()) is not None:
            try:
                flush()
            except BaseException:  # noqa: BLE001, S112 - the thread serves the other sessions too
                # A view of a user's may even ask the interpreter to exit: not from here.
                continue
            finally:
                del flush

    def _next_due(self) -> Callable[[], None] | None:
        """Wait for the next flush that is due; None ends the thread."""
        with self._lock:
            while not self._stopped:
                if not self._due:
                    if not self._wake.wait(_IDLE_SECONDS) and not self._due:
                        break
                    continue
                flush, deadline = min(self._due.items(), key=lambda item: item[1])
                left = deadline - self._runtime.monotonic()
                if left > 0:
                    self._wake.wait(left)
                    continue
                del self._due[flush]
                return flush
            self._thread = None
            return None

    def stop(self, wait: float | None = None) -> None:
        """End the thread after the flush that it may be in; so many seconds are waited for that."""
        if self._pid != self._runtime.pid():
            return
        with self._lock:
            self._stopped = True
            thread = self._thread
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(wait)


def weakly(method: Callable[[], None]) -> Callable[[], None]:
    """What calls a method as long as its object is there, and does not keep it there."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call
