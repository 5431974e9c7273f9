"""How a source stands in a session: one event for each line, and which of them hold.

The type of such an event begins with the name of the format, its key is `<generation>:<offset of
the line in the text>`. Where an import finds that the source no longer is what was stored, it
stores the lines again from the first place that differs on, as the next generation, and closes it
with an event `source/rewritten`. From that event on the generation counts: a line holds unless a
later generation begins at or before its place. What an import left of a generation means nothing
until it is closed, by the next import if that one died; what stood there before stays in the log. A
fork that inherits lines of a generation without the event that closes it says so itself.

A line too long for a record stands in its event as `{"blob": digest, "bytes": size}`.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.vocabulary import SessionForked, fitting

__all__ = [
    "FORKED",
    "REWRITTEN",
    "Place",
    "SourceLines",
    "Standing",
    "StoredLine",
    "blob_of",
    "inherited_starts",
    "key_of",
    "with_text",
]

REWRITTEN = "source/rewritten"
"""Has a generation count: key as that of a line, data {"generation", "offset"}."""

FORKED = "session/forked"
"""Behind it nothing of a source comes: a fork speaks for itself."""

_KEY = re.compile(r"([0-9]{1,15}):([0-9]{1,20})\Z")
_DIGEST = re.compile("[0-9a-f]{64}")


class Place(NamedTuple):
    """Where a line stands in its source, and in which state of the source."""

    generation: int
    offset: int


class StoredLine(NamedTuple):
    """A line of a source as it is stored.

    Attributes:
        event: its event.
        place: generation, and byte of the text at which it begins.
        raw: its bytes as found, newline included where there was one; None: they are content.
        blob: digest of the content that holds them, or None.

    """

    event: Event
    place: Place
    raw: bytes | None
    blob: str | None

    @property
    def torn(self) -> bool:
        """Whether the source ended inside this line."""
        return self.raw is not None and not self.raw.endswith(b"\n")


def key_of(generation: int, offset: int) -> str:
    """Key of the event that keeps the line at `offset`."""
    return f"{generation}:{offset}"


def blob_of(data: object) -> str | None:
    """The digest of the content that holds a long line, or None if the data is not of one."""
    if not isinstance(data, dict) or data.keys() != {"blob", "bytes"}:
        return None
    digest, size = data["blob"], data["bytes"]
    sound = isinstance(digest, str) and _DIGEST.fullmatch(digest) and type(size) is int
    return digest if sound else None


def inherited_starts(event: Event) -> dict[int, int]:
    """Where generations begin that hold in what a fork inherits, as its first own event says."""
    said = fitting(event)
    return dict(said.starts) if isinstance(said, SessionForked) else {}


def with_text(event: Event, text: bytes) -> Event:
    """The event of a long line with the line itself as its data."""
    raw = values.encode(text.decode("utf-8", "surrogateescape"))
    return Event(
        event.seq, event.type, event.time, event.agent, event.turn, event.key, event.ignorable, raw
    )


class Standing:
    """Which lines stand in a source, given where the generations that count begin."""

    def __init__(self, starts: Mapping[int, int]) -> None:
        """`starts` has the offset at which each generation but the first begins."""
        # For each generation the lowest place at which a later one begins.
        self._ends: dict[int, float] = {}
        end = float("inf")
        for generation in sorted(starts, reverse=True):
            self._ends[generation] = end
            end = min(end, starts[generation])
        self._ends[0] = end

    def holds(self, place: Place) -> bool:
        """Whether the line at this place does; one of a generation that does not count never."""
        return place.offset < self._ends.get(place.generation, -1)


class SourceLines:
    """Reads the events of sessions that keep sources of one format."""

    def __init__(self, format: str, *, fork: bool = False) -> None:  # noqa: A002
        """Name the format; a `fork` of an import begins with lines, and ends them itself."""
        self._prefix = f"{format}/"
        self._fork = fork

    @classmethod
    def of(cls, header: Header) -> "SourceLines":
        """Of a session; one that keeps no source has no lines."""
        source = header.source
        forked = header.inherited_genesis is not None
        return cls("" if source is None else source.format, fork=forked)

    def place(self, event: Event) -> Place | None:
        """Where the line of an event stands, or a generation begins; None if it is no such event.

        Others may have appended events of their own, with keys that look alike.
        """
        if event.type != REWRITTEN and not event.type.startswith(self._prefix):
            return None
        found = _KEY.match(event.key or "")
        return None if found is None else Place(int(found[1]), int(found[2]))

    def line(self, event: Event) -> StoredLine | None:
        """The line that an event keeps; None if it keeps none."""
        place = None if event.type == REWRITTEN else self.place(event)
        if place is None:
            return None
        data = event.data
        if isinstance(data, str):
            return StoredLine(event, place, data.encode("utf-8", "surrogateescape"), None)
        blob = blob_of(data)
        return None if blob is None else StoredLine(event, place, None, blob)

    def starts(self, events: Iterable[Event], upto: int | None = None) -> dict[int, int]:
        """Where each generation that counts begins, but the first; given all events of a log.

        `upto` leaves out the generations behind that one, for the state that the source had then.
        """
        starts: dict[int, int] = {}
        for event in events:
            if self.ends(event):
                starts |= inherited_starts(event)
                break
            place = self.place(event) if event.type == REWRITTEN else None
            if place is not None and (upto is None or place.generation <= upto):
                starts[place.generation] = place.offset
        return starts

    def begun(self, events: Iterable[Event], seq: int) -> set[int] | None:
        """The generations of the lines up to event `seq` that nothing up to there has count.

        None: a fork's own events begin before, which say it themselves.
        """
        begun: set[int] = set()
        ended: set[int] = set()
        for event in events:
            if event.seq > seq:
                break
            if self.ends(event):
                return None
            place = self.place(event)
            if place is not None:
                (ended if event.type == REWRITTEN else begun).add(place.generation)
        return begun - ended

    def lines(self, events: Iterable[Event], starts: Mapping[int, int]) -> Iterator[StoredLine]:
        """The stored lines that hold, in the order of the log, which is that of the source."""
        standing = Standing(starts)
        for event in self._inherited(events):
            line = self.line(event)
            if line is not None and standing.holds(line.place):
                yield line

    def ends(self, event: Event) -> bool:
        """Whether the lines end here: a fork speaks for itself from its first own event on.

        In an import that is said by nobody who knows.
        """
        return self._fork and event.type == FORKED

    def _inherited(self, events: Iterable[Event]) -> Iterator[Event]:
        return itertools.takewhile(lambda event: not self.ends(event), events)
