"""A stretch of a session as a page shows it: read where it stands, and no more than has room.

Whatever the session: a page reads about `READ_MAX` events, of large ones fewer, and shows at most
`SHOWN_MAX` of them and about `TEXT_CHARS` characters. Only where it meets damage it costs more: the
log is then read from its start, up to the damage, to be sure of what holds.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.errors import InvalidValue, PerdureError, SessionDamaged
from perdure.http.server.items import PIECE_CHARS, WHOLE_CHARS, Item, Telling
from perdure.lenses.lines import SourceLines
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.store import Store
from perdure.store.imported import Translation, lens_version, starts_in

__all__ = [
    "READ_BYTES",
    "READ_MAX",
    "SHOWN_MAX",
    "TEXT_CHARS",
    "WHOLE_MAX",
    "Stretch",
    "Window",
    "stretch",
]

SHOWN_MAX = 200
"""So many items stand on a page."""

READ_MAX = 1_000
"""So many events are read for them: pieces of streamed text show nothing by themselves."""

READ_BYTES = 4 * 1024 * 1024
"""A page ends behind the event with which its events have so many bytes."""

TEXT_CHARS = 1_000_000
"""A page ends behind the item with which it has so many characters."""

WHOLE_MAX = READ_MAX
"""An import of so many lines is read whole, so that its lens knows what stands before a page."""

_BEFORE = 50
"""Of a larger import a lens is given so many lines before a page, for what goes on in it."""

_LAST = 16
"""So many are read first of a page that ends somewhere: they may be large."""

_AROUND = 3
"""So many events are shown before one that a link leads to."""


class Window(NamedTuple):
    """Which events a page is about; by default the last ones.

    Attributes:
        start: the first one, or None.
        before: the first one behind the page, or None.
        at: one that is to be on it, or None.
        alone: one that is shown alone, with all of its text, or None.

    """

    start: int | None = None
    before: int | None = None
    at: int | None = None
    alone: int | None = None


class Stretch(NamedTuple):
    """What a page shows of a session.

    Attributes:
        items: in the order of the events.
        first: number of the first event that was looked at, 0 if there is none.
        next: number of the first event behind the page; None: the log ended here when it was read.
        problem: why the log could not be read on, or None.

    """

    items: list[Item]
    first: int
    next: int | None
    problem: PerdureError | None


class _Read(NamedTuple):
    """Events of a log, read in one go: where they end, and why nothing follows where it should."""

    events: list[Event]
    next: int | None
    problem: PerdureError | None = None


def stretch(store: Store, header: Header, window: Window, count: int) -> Stretch:
    """What a page shows; `count` is how many events the session has, as far as anybody knows.

    Raises:
        InvalidValue: one event is asked for, and is not there.
        FormatUnsupported, StorageUnavailable, PersistenceDisabled: nothing can be read.

    """
    log = _Log(store, header, count)
    if window.alone is not None:
        return log.alone(window.alone)
    if window.at is not None:
        return log.onward(max(0, window.at - _AROUND), window.at)
    if window.start is not None:
        return log.onward(window.start)
    return log.backward(window.before)


class _Log:
    """One log, as a page reads it."""

    def __init__(self, store: Store, header: Header, count: int) -> None:
        self._store = store
        self._header = header
        self._count = count
        self._foreign = bool(lens_version(header))

    def _reader(self, seq: int) -> Iterator[Event]:
        return self._store.read_from(self._header.id, seq)

    # --- pages -----------------------------------------------------------------------------------

    def onward(self, start: int, least: int = 0) -> Stretch:
        """What there is room for from an event on; `least`: an event that has to be on the page."""
        read = self._read(start, least)
        items, cut = _first_that_fit(_told(self._said(read.events)), least)
        if cut is not None:
            return Stretch(items, start, cut, None)
        return Stretch(items, start, read.next, read.problem)

    def backward(self, before: int | None) -> Stretch:
        """What there is room for up to an event, or up to the end."""
        read = self._read_back(before)
        problem = read.problem
        if isinstance(problem, SessionDamaged) and not read.events and problem.record:
            # The page lies behind the damage: what holds ends there.
            read = self._read_back(problem.record)._replace(next=None, problem=problem)
        items, is_cut = _last_that_fit(_told(self._said(read.events)))
        first = read.events[0].seq if read.events else 0
        return Stretch(items, items[0].seq if is_cut else first, read.next, read.problem)

    def alone(self, seq: int) -> Stretch:
        """One event with all of its text."""
        problem: PerdureError | None = None
        events: list[Event] = []
        try:
            events = [*itertools.islice(self._reader(seq), 1)]
            if not events:
                reason = f"there is no event {seq}"
                raise InvalidValue("event", reason, hint=f"0 to {max(0, self._count - 1)}")
        except SessionDamaged as error:
            problem = error
        items, _ = _first_that_fit(_told(self._said(events), WHOLE_CHARS), seq)
        return Stretch(items, seq, seq + 1, problem)

    # --- which events ----------------------------------------------------------------------------

    def _read(self, start: int, least: int = 0) -> _Read:
        """Events from one on, as many as a page reads; `least`: one that has to be among them."""
        events: list[Event] = []
        size = 0
        try:
            for event in self._reader(start):
                if (len(events) >= READ_MAX or size >= READ_BYTES) and event.seq > least:
                    return _Read(events, event.seq)
                events.append(event)
                size += len(event.raw)
        except SessionDamaged as error:
            return _Read(events, None, error)
        return _Read(events, None)

    def _read_back(self, before: int | None) -> _Read:
        """The last events before one, or of all, as many as a page reads; the last ones first."""
        end = self._count if before is None else min(before, self._count)
        start = max(0, end - _LAST)
        # A log that grew since it was counted is read on, but not for ever.
        newest = self._chunk(start, before, 2 * READ_MAX)
        events, problem = newest.events, newest.problem
        while start and events and len(events) < READ_MAX and _size(events) < READ_BYTES:
            stop, start = start, max(0, start - 4 * len(events), end - READ_MAX)
            if start == stop:
                break
            older = self._chunk(start, stop, READ_MAX)
            if older.problem is not None:
                # What is on this page holds; the page before says what does not.
                break
            events = older.events + events
        return _Read(events, newest.next, problem)

    def _chunk(self, start: int, before: int | None, most: int) -> _Read:
        """Events from one to another, of which the last ones are kept if they are too many."""
        events: deque[Event] = deque()
        size = 0
        try:
            for number, event in enumerate(self._reader(start)):
                if number >= most or (before is not None and event.seq >= before):
                    return _Read([*events], event.seq)
                events.append(event)
                size += len(event.raw)
                while len(events) > READ_MAX or (
                    len(events) > 1 and size - len(events[0].raw) >= READ_BYTES
                ):
                    size -= len(events.popleft().raw)
        except SessionDamaged as error:
            return _Read([*events], None, error)
        return _Read([*events], None)

    # --- what they say ---------------------------------------------------------------------------

    def _said(self, events: list[Event]) -> Iterator[Event]:
        """What these events say in our vocabulary; in a log of ours, that is the events."""
        if not events or not self._foreign:
            return iter(events)
        first, last = events[0].seq, events[-1].seq
        around: list[Event] = []
        if self._count <= WHOLE_MAX:
            around = self._read(0).events
        if len(around) <= last:
            around = self._read(max(0, first - _BEFORE)).events
            around = [event for event in around if event.seq < first] + events
        said = sorted(self._through_lens(around), key=lambda event: event.seq)
        return (event for event in said if first <= event.seq <= last)

    def _through_lens(self, events: list[Event]) -> Iterator[Event]:
        """What the lens of an import says of some of its lines."""
        starts = starts_in(self._header, events)
        lines = SourceLines.of(self._header)
        for event in events:
            place = lines.place(event)
            if place is not None and place.generation:
                # What says that it counts may stand behind the page.
                starts.setdefault(place.generation, place.offset)
        lens = Translation(
            self._header, lambda digest: self._store.blob(self._header.id, digest), starts
        )
        for event in events:
            yield from lens.read(event)
        yield from lens.end()


def _size(events: list[Event]) -> int:
    return sum(len(event.raw) for event in events)


def _told(events: Iterable[Event], most: int = PIECE_CHARS) -> Iterator[Item]:
    telling = Telling(most)
    for event in events:
        yield from telling.read(event)
    yield from telling.end()


def _first_that_fit(items: Iterator[Item], least: int) -> tuple[list[Item], int | None]:
    """The first items, and the event with which the next page begins; None: these are all."""
    found: list[Item] = []
    chars = 0
    for item in items:
        # A page begins with a whole event, or the next one would be this one.
        is_next = bool(found) and item.seq > max(least, found[-1].seq)
        if is_next and (len(found) >= SHOWN_MAX or chars >= TEXT_CHARS):
            return found, item.seq
        if len(found) < 2 * SHOWN_MAX and chars < 2 * TEXT_CHARS:
            found.append(item)
            chars += item.chars
        else:
            found[-1] = found[-1]._replace(dropped=found[-1].dropped + 1)
    return found, None


def _last_that_fit(items: Iterator[Item]) -> tuple[list[Item], bool]:
    """The last items, and whether there are earlier ones."""
    found: deque[Item] = deque()
    chars = 0
    gone: Item | None = None
    for item in items:
        found.append(item)
        chars += item.chars
        while len(found) > 1 and (
            len(found) > SHOWN_MAX
            or chars - found[0].chars >= TEXT_CHARS
            # The page before ends with a whole event.
            or (gone is not None and gone.seq == found[0].seq)
        ):
            gone = found.popleft()
            chars -= gone.chars
    return list(found), gone is not None
