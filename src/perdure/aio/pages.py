"""Iteration over what is read from the disk, a page at a time."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from typing import Self, TypeVar

from perdure.aio.loops import checkpoint
from perdure.aio.outcomes import Call
from perdure.aio.threads import Pool
from perdure.model.event import Event

__all__ = ["PAGE_BYTES", "PAGE_ITEMS", "Pages"]

T = TypeVar("T")

PAGE_ITEMS = 256
PAGE_BYTES = 1024 * 1024
"""A page ends at this many items or bytes, whichever comes first."""


class Pages(AsyncIterator[T]):
    """An asynchronous iterator over a blocking one; worker threads read, page by page.

    Cancelling whoever waits for a page loses nothing: iterating on continues with the next item.
    What is not read to its end should be closed (`contextlib.aclosing`), or else the file stays
    open until the iterator is collected.
    """

    def __init__(self, pool: Pool, start: Callable[[], Iterator[T]]) -> None:
        """`start` is called in a thread before the first item is read."""
        self._pool = pool
        self._start: Callable[[], Iterator[T]] | None = start
        self._source: Iterator[T] | None = None
        self._ready: deque[T] = deque()
        self._reading: Call[tuple[list[T], BaseException | None]] | None = None
        self._end: BaseException | None = None

    def __aiter__(self) -> Self:
        """The iterator itself."""
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._end is not None:
                end, self._end = self._end, StopAsyncIteration()
                raise end
            await self._read()
        return self._ready.popleft()

    async def _read(self) -> None:
        await checkpoint()
        reading = self._reading
        if reading is None:
            reading = self._reading = Call(self._page)
            self._pool.run(reading)
        # Not the call's own `wait`: a page goes on being read for whoever asks next.
        await reading.outcome.wait()
        self._take(reading)

    def _take(self, reading: Call[tuple[list[T], BaseException | None]]) -> None:
        if self._reading is reading:
            self._reading = None
            items, self._end = reading.outcome.result()
            self._ready.extend(items)

    def _page(self) -> tuple[list[T], BaseException | None]:
        """Read until the page is full. Runs in a worker thread."""
        items: list[T] = []
        size = 0
        try:
            if self._source is None:
                if self._start is None:
                    return items, StopAsyncIteration()
                start, self._start = self._start, None
                self._source = start()
            for item in self._source:
                items.append(item)
                size += _size(item)
                if len(items) >= PAGE_ITEMS or size >= PAGE_BYTES:
                    return items, None
        except Exception as error:  # noqa: BLE001 - raised behind the last item that could be read
            return items, error
        return items, StopAsyncIteration()

    async def aclose(self) -> None:
        """Close what is read from; nothing more comes."""
        held_back: BaseException | None = None
        if self._reading is not None:
            held_back = await self._reading.outcome.wait_out()
        self._ready.clear()
        self._reading, self._end = None, StopAsyncIteration()
        self._start, source, self._source = None, self._source, None
        if isinstance(source, Generator):
            closing = Call(source.close)
            self._pool.run(closing)
            held_back = await closing.outcome.wait_out() or held_back
        if held_back is not None:
            raise held_back


def _size(item: object) -> int:
    if isinstance(item, Event):
        return len(item.raw)
    return len(item) if isinstance(item, bytes) else 0
