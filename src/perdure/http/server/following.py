"""Whoever follows a session is woken when it grows: at once by appends of this server, else soon.

One task looks at each session that is followed, however many follow it: a stat, ten times a second,
or when the medium says that there is something to be seen.
Nothing is queued for anybody: who is slow reads on from where they are.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import anyio.to_thread

from perdure.errors import PerdureError
from perdure.http.server.writers import Place

__all__ = ["POLL_SECONDS", "Followed", "Following"]

POLL_SECONDS = 0.1
HINTED_SECONDS = 1.0
"""Where the medium tells of changes, looking is for those that went untold."""

_AGAIN_SECONDS = 5.0
"""After a look that failed in a way it should not."""

_log = logging.getLogger("perdure.http")


class Followed:
    """A session that somebody follows."""

    def __init__(self, place: Place) -> None:
        """Nobody is told of anything yet."""
        self.place = place
        self.followers = 0
        self._moved = asyncio.Event()

    def wake(self) -> None:
        """Tell all who wait now."""
        self._moved.set()
        self._moved = asyncio.Event()

    def moved(self) -> asyncio.Event:
        """Set when the session changes next: taken before reading, waited for after it."""
        return self._moved


class Following:
    """The sessions that are followed. Used by the event loop alone, but for `moved`."""

    def __init__(self, limiter: anyio.CapacityLimiter) -> None:
        """Made in a running loop; `limiter` is that of the threads that look."""
        self._loop = asyncio.get_running_loop()
        self._limiter = limiter
        self._followed: dict[tuple[tuple[str, ...], str], Followed] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def moved(self, place: Place) -> None:
        """A session was changed by this server; called from any thread."""
        with suppress(RuntimeError):
            # Of a loop that has ended nobody waits any more.
            self._loop.call_soon_threadsafe(self._wake, (place.namespace, place.id))

    def _wake(self, key: tuple[tuple[str, ...], str]) -> None:
        if key in self._followed:
            self._followed[key].wake()

    def wake_all(self) -> None:
        """Wake everybody: the server is ending."""
        for each in self._followed.values():
            each.wake()

    @asynccontextmanager
    async def follow(self, place: Place) -> AsyncIterator[Followed]:
        """Have a session looked at while this lasts."""
        key = (place.namespace, place.id)
        followed = self._followed.get(key)
        if followed is None:
            followed = self._followed[key] = Followed(place)
            task = self._loop.create_task(self._look(key, followed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        followed.followers += 1
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers and self._followed.get(key) is followed:
                del self._followed[key]

    async def _look(self, key: tuple[tuple[str, ...], str], followed: Followed) -> None:
        # Nothing is like what was never looked at: what changed before the first look is told.
        seen = None
        hint = asyncio.Event()
        end = self._subscribe(followed.place, hint)
        try:
            while self._followed.get(key) is followed:
                hint.clear()
                found = await self._revision(followed.place)
                if found is None or seen != found:
                    followed.wake()
                seen = found
                pause = POLL_SECONDS if end is None else HINTED_SECONDS
                with suppress(TimeoutError):
                    await asyncio.wait_for(
                        hint.wait(), pause if found is not None else _AGAIN_SECONDS
                    )
        finally:
            if end is not None:
                end()

    def _subscribe(self, place: Place, hint: asyncio.Event) -> Callable[[], None] | None:
        """Have the medium say when to look, if it can."""

        def told() -> None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(hint.set)

        with suppress(PerdureError):
            return place.store.subscribe(place.id, told)
        return None

    async def _revision(self, place: Place) -> str | None:
        try:
            return await anyio.to_thread.run_sync(
                _revision, place, abandon_on_cancel=True, limiter=self._limiter
            )
        except Exception:  # noqa: BLE001 - whatever it is, others follow on
            # The next look may do better; those who follow find out by reading.
            _log.exception("a session could not be looked at")
            return None


def _revision(place: Place) -> str:
    try:
        return place.store.revision(place.id)
    except PerdureError as error:
        # It may come back; who follows it finds out by reading.
        return error.code
