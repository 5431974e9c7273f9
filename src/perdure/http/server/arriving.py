"""What arrives with a request: received by the event loop, so that no thread waits for a sender."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import anyio
from starlette.types import Receive

from perdure.durable.calls import translated
from perdure.durable.temporary import PART_BYTES, Gathered, gathered, temporary_folder
from perdure.errors import PerdureError, RequestTimedOut, RequestTooLarge, ServerUnavailable
from perdure.http.server.bounds import Budget
from perdure.http.server.guard import BODY_BYTES_MAX

__all__ = ["ARRIVAL_SECONDS", "BODY_SECONDS", "Memory", "Spool", "parts_of"]

ARRIVAL_SECONDS = 30.0
"""So long nothing may come of a request that is being sent."""

BODY_SECONDS = 300.0
_VALUE_BYTES = 32
"""What each value in a body takes besides its text, at least."""
"""So long JSON may take to come whole."""


async def parts_of(receive: Receive, seconds: float | None = None) -> AsyncIterator[bytes]:
    """What is sent, part by part, for no longer than `seconds` from one part to the next.

    Raises:
        RequestTimedOut: nothing more comes.
        ServerUnavailable: whoever sends it is gone.

    """
    limit = ARRIVAL_SECONDS if seconds is None else seconds
    while True:
        try:
            with anyio.fail_after(limit):
                message = await receive()
        except TimeoutError:
            raise RequestTimedOut(limit) from None
        if message["type"] == "http.disconnect":
            raise ServerUnavailable("the request", "whoever sent it is gone")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return


class Memory:
    """What is held of a body in memory, counted among all."""

    def __init__(self, budget: Budget, whose: str | None) -> None:
        """Nothing yet of what `budget` has."""
        self._budget = budget
        self._whose = whose
        self._size = 0

    async def all_of(self, arriving: AsyncIterator[bytes]) -> bytes:
        """A body, whole.

        Raises:
            ServerUnavailable: others hold too much at the same time.
            RequestTimedOut: it takes too long.
            RequestTooLarge: it has more values than anybody may send at once.

        """
        found = []
        try:
            with anyio.fail_after(BODY_SECONDS):
                async for part in arriving:
                    self._budget.take(self._whose, len(part))
                    self._size += len(part)
                    found.append(part)
        except TimeoutError:
            raise RequestTimedOut(BODY_SECONDS) from None
        whole = b"".join(found)
        # What it becomes takes more room than it does: each value is an object of its own.
        self._take(_VALUE_BYTES * sum(whole.count(each) for each in (b",", b"{", b"[")))
        return whole

    def _take(self, size: int) -> None:
        if size > self._budget.each:
            raise RequestTooLarge(BODY_BYTES_MAX)
        self._budget.take(self._whose, size)
        self._size += size

    def close(self) -> None:
        """It is held no more."""
        self._budget.give_back(self._whose, self._size)
        self._size = 0


class Spool:
    """Content on its way: up to a MiB stays in memory, more goes to a file without a name.

    Attributes:
        handed: whether the thread of a handler has it, which closes it then.

    """

    def __init__(self, budget: Budget, whose: str | None) -> None:
        """Nothing has come yet; `budget` is the room for such files."""
        self.handed = False
        self._budget = budget
        self._whose = whose
        self._size = 0
        self._held: list[bytes] = []
        self._kept = ExitStack()
        self._file: Gathered | None = None
        self._loop = asyncio.get_running_loop()

    async def fill(
        self, arriving: AsyncIterator[bytes], run: Callable[..., Awaitable[Any]]
    ) -> None:
        """Receive all of it; `run` calls what blocks in a thread.

        Raises:
            ServerUnavailable: others have too much on its way.
            StorageFull, StorageUnavailable: there is no room for it.

        """
        size = 0
        async for part in arriving:
            self._budget.take(self._whose, len(part))
            self._size += len(part)
            self._held.append(part)
            size += len(part)
            if size >= PART_BYTES:
                held, self._held, size = self._held, [], 0
                await run(self._write, held)
        if self._file is not None and self._held:
            held, self._held = self._held, []
            await run(self._write, held)

    def _write(self, parts: list[bytes]) -> None:
        if self._file is None:
            folder = self._kept.enter_context(temporary_folder("perdure-content-"))
            self._file = self._kept.enter_context(gathered((), folder))
        try:
            # To ask for its number puts it on the disk.
            self._file.file.fileno()
            for part in parts:
                self._file.file.write(part)
        except OSError as error:
            raise translated(error, "temporary files") from error

    def parts(self) -> Iterator[bytes]:
        """All of it, for the thread of a handler."""
        return iter(self._held) if self._file is None else self._file.parts()

    def close(self) -> None:
        """Forget it; from any thread."""
        with suppress(PerdureError):
            self._kept.close()
        size, self._size = self._size, 0
        with suppress(RuntimeError):
            # Of a loop that has ended nobody asks any more.
            self._loop.call_soon_threadsafe(self._budget.give_back, self._whose, size)
