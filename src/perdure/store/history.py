"""A log read again from its first event by whoever needs what is past, as it is or translated."""

import itertools
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import attrgetter

from perdure.model.event import Event
from perdure.model.header import Header
from perdure.store.imported import Content, lens_version, starts_in, translated
from perdure.store.reading import Pages

__all__ = ["History", "history_of"]

_KEPT_BYTES = 32 * 1024 * 1024
"""So much of what a lens said is kept for the next question: views may ask for each branch."""


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

    def since(self, seq: int) -> Iterator[Event]:
        """The events from this number on, in their order."""
        return self._pages.read(self._session, seq, None)


class _Translated(History):
    """What a lens says of a log. What it says of a record may come with a later one."""

    def __init__(
        self, pages: Pages, header: Header, content: Content, starts: Mapping[int, int] | None
    ) -> None:
        super().__init__(pages, header.id)
        self._header = header
        self._content = content
        self._starts = starts
        self._kept: list[Event] | None = None
        self._sorted: list[Event] | None = None

    def __call__(self, seq: int) -> Iterator[Event]:
        last = -1
        for event in self._all():
            if event.seq < seq:
                yield event
                last = max(last, event.seq)
        yield from (event for event in self.behind if last < event.seq < seq)

    def since(self, seq: int) -> Iterator[Event]:
        if self._sorted is None:
            found = sorted(self._all(), key=_seq)
            self._sorted = found if self._kept is not None else None
        else:
            found = self._sorted
        return itertools.islice(found, bisect_left(found, seq, key=_seq), None)

    def _all(self) -> Iterator[Event]:
        if self._kept is not None:
            yield from self._kept
            return
        if self._starts is None:
            self._starts = starts_in(self._header, self._pages.read(self._session, 0, None))
        said: list[Event] = []
        size = 0
        events = self._pages.read(self._session, 0, None)
        for event in translated(self._header, events, self._content, self._starts):
            yield event
            size += len(event.raw)
            if size <= _KEPT_BYTES:
                said.append(event)
        if size <= _KEPT_BYTES:
            self._kept = said


def history_of(
    pages: Pages, header: Header, content: Content, starts: Mapping[int, int] | None = None
) -> History:
    """The history of a log; `starts` as for `Translation`, None: it has to be found out."""
    if lens_version(header):
        return _Translated(pages, header, content, starts)
    return History(pages, header.id)
