"""Vectors of what is being written: made by a thread of its own, which nobody waits for.

It hears of a session when the index has read on in it. What it does not come to, because the
process ends or the embedder fails, has no vectors until somebody calls `embed`.
"""

import threading
from collections.abc import Callable

from perdure.errors import PerdureError
from perdure.runtime import Runtime
from perdure.store.embedding import Embedded
from perdure.store.flusher import Flusher, weakly

__all__ = ["SECONDS", "Background"]

SECONDS = 2.0
"""So long what is new waits for more: a call of an embedder takes many texts as soon as one."""

_AGAIN_SECONDS = 60.0
_STOP_SECONDS = 0.2

Embed = Callable[[list[str], Callable[[], bool]], Embedded]


class Background:
    """Embeds the sessions that it hears of."""

    def __init__(self, embed: Embed, runtime: Runtime) -> None:
        """`embed` embeds sessions, and asks the function that it is given whether to go on."""
        self._embed = embed
        self._runtime = runtime
        self.reset()

    def reset(self) -> None:
        """Forget what this process was to do: it is another one's."""
        self._flusher = Flusher(self._runtime)
        self._mutex = threading.RLock()
        self._due: dict[str, None] = {}
        self._stopped = False
        self._call = weakly(self._embed_due)

    def heard(self, session: str) -> None:
        """The index has read something new in a session."""
        with self._mutex:
            self._due[session] = None
        self._flusher.schedule(self._call, SECONDS)

    def _going_on(self) -> bool:
        # Threads that commit go first.
        self._runtime.sleep(0)
        return not self._stopped

    def _embed_due(self) -> None:
        with self._mutex:
            due, self._due = self._due, {}
        try:
            self._embed(list(due), self._going_on)
        except PerdureError as error:
            if not error.retryable:
                # What is wrong stays so; whoever searches is told.
                return
            with self._mutex:
                self._due = due | self._due
            self._flusher.schedule(self._call, _AGAIN_SECONDS)

    def stop(self) -> None:
        """End soon; what is not embedded is left to `embed`.

        A call of an embedder that is under way is not waited for: what it gives is kept nowhere.
        """
        self._stopped = True
        self._flusher.stop(wait=_STOP_SECONDS)
