"""A log read again from its first event by whoever needs what is past, as it is or translated."""

import itertools
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from backports import zstd

from perdure.model.event import Event
from perdure.model.header import Header
from perdure.store.imported import Content, lens_version, starts_in, translated
from perdure.store.reading import Pages

__all__ = ["History", "history_of"]

_BLOCK_BYTES = 1024 * 1024
_KEPT_BYTES = 64 * 1024 * 1024
"""So much of what a lens said is kept, compressed: views may ask for each branch, people for each
page."""

_LEVEL = 1

_seq = attrgetter("seq")


class History:
    """Reads the events of a log before one of them, and those that would come behind it.

    Attributes:
        behind: events that would come behind the log.

    """

    def __init__(self, pages: Pages, session: str) -> None:
        """Nothing is read."""
        self._pages = pages
        self._session = session
        self.behind: list[Event] = []

    def __call__(self, seq: int) -> Iterator[Event]:
        """The events before the one of this number, from event 0 on."""
        last = -1
        for event in self._pages.read(self._session, 0, None):
            if event.seq >= seq:
                return
            yield event
            last = event.seq
        # Somebody may have stored them meanwhile.
        yield from (event for event in self.behind if last < event.seq < seq)

    def between(self, first: int, last: int) -> Iterator[Event]:
        """The events of these numbers and of those between them, in their order."""
        events = self._pages.read(self._session, first, None)
        return itertools.takewhile(lambda event: event.seq <= last, events)


class _Block(NamedTuple):
    """Some of what a lens said, one after the other: the numbers within it, and compressed text."""

    first: int
    last: int
    text: bytes


class _Told:
    """What a lens said of a log, kept in its order as far as there is room.

    Attributes:
        last: the last event of the log that it knows of; -1 without any.
        whole: whether everything is kept.

    """

    def __init__(self) -> None:
        self.last = -1
        self.whole = True
        self._blocks: list[_Block] = []
        self._open: list[Event] = []
        self._open_bytes = self._bytes = 0

    def noting(self, events: Iterator[Event]) -> Iterator[Event]:
        """The events of the log as they are read, how far they reach being noted."""
        for event in events:
            yield event
            self.last = event.seq

    def add(self, event: Event) -> None:
        if not self.whole:
            return
        self._open.append(event)
        self._open_bytes += len(event.raw)
        if self._open_bytes >= _BLOCK_BYTES:
            self.end()

    def end(self) -> None:
        """Nothing more of this block will come."""
        if not self._open:
            return
        text = zstd.compress(_encode([_row(event) for event in self._open]), _LEVEL)
        numbers = [event.seq for event in self._open]
        self._blocks.append(_Block(min(numbers), max(numbers), text))
        self._bytes += len(text)
        self._open, self._open_bytes = [], 0
        if self._bytes > _KEPT_BYTES:
            self.whole, self._blocks = False, []

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Those of these numbers and between them, in the order in which they were said."""
        for block in self._blocks:
            if block.first <= last and first <= block.last:
                rows = _decode(zstd.decompress(block.text))
                yield from (Event(*row) for row in rows if first <= row[0] <= last)


_Row = tuple[int, str, int, str | None, str | None, str | None, bool, bytes]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Row]).decode


def _row(event: Event) -> Any:
    named = (event.agent, event.turn, event.key, event.ignorable)
    return (event.seq, event.type, event.time, *named, bytes(event.raw))


class _Translated(History):
    """What a lens says of a log. What it says of a record may come with a later one."""

    def __init__(
        self, pages: Pages, header: Header, content: Content, starts: Mapping[int, int] | None
    ) -> None:
        super().__init__(pages, header.id)
        self._header = header
        self._content = content
        self._starts = starts
        self._told: _Told | None = None

    def __call__(self, seq: int) -> Iterator[Event]:
        last = -1
        for event in self._all(0, seq - 1):
            yield event
            last = max(last, event.seq)
        yield from (event for event in self.behind if last < event.seq < seq)

    def between(self, first: int, last: int) -> Iterator[Event]:
        return iter(sorted(self._all(first, last), key=_seq))

    def _all(self, first: int, last: int) -> Iterator[Event]:
        told = self._told
        if told is not None and told.whole and last <= told.last:
            yield from told.events(first, last)
            return
        if self._starts is None:
            self._starts = starts_in(self._header, self._pages.read(self._session, 0, None))
        # Once it was too much, it will be again; and the log may have grown.
        if told is None or told.whole:
            told = _Told()
        events = told.noting(self._pages.read(self._session, 0, None))
        for event in translated(self._header, events, self._content, self._starts):
            told.add(event)
            if first <= event.seq <= last:
                yield event
        told.end()
        self._told = told


def history_of(
    pages: Pages, header: Header, content: Content, starts: Mapping[int, int] | None = None
) -> History:
    """The history of a log; `starts` as for `Translation`, None: it has to be found out."""
    if lens_version(header):
        return _Translated(pages, header, content, starts)
    return History(pages, header.id)
