"""How a source stands in a session: one event for each line, and which of them hold.

The key of such an event is `<generation>:<offset of its line in the text>`. The generation rises
when an import finds that the source no longer is what was stored: from the first place that
differs the lines are stored again. So a line holds unless a later generation begins at or before
its place; what stood there earlier stays in the log. Where a source lost its end and got nothing
in its place, an event `source/rewritten` begins the generation.

A line too long for a record stands in its event as `{"blob": digest, "bytes": size}`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from perdure.model import values
from perdure.model.event import Event

__all__ = [
    "REWRITTEN",
    "Place",
    "StoredLine",
    "blob_of",
    "held",
    "key_of",
    "lines_of",
    "place_of",
    "starts_of",
    "stored_line",
    "with_text",
]

REWRITTEN = "source/rewritten"
"""Begins a generation: data {"generation", "offset"}."""

_KEY = re.compile(r"(\d{1,9}):(\d{1,20})\Z")
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


def place_of(event: Event) -> Place | None:
    """Where the line of an event stands, or a generation begins; None if it is no such event."""
    found = _KEY.match(event.key or "")
    if found is None or (event.type.startswith("source/") and event.type != REWRITTEN):
        return None
    return Place(int(found[1]), int(found[2]))


def blob_of(data: object) -> str | None:
    """The digest of the content that holds a long line, or None if the data is not of one."""
    if not isinstance(data, dict) or data.keys() != {"blob", "bytes"}:
        return None
    digest = data["blob"]
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None


def stored_line(event: Event) -> StoredLine | None:
    """The line that an event keeps; None if it keeps none."""
    place = place_of(event)
    if place is None or event.type == REWRITTEN:
        return None
    data = event.data
    if isinstance(data, str):
        return StoredLine(event, place, data.encode("utf-8", "surrogateescape"), None)
    blob = blob_of(data)
    return None if blob is None else StoredLine(event, place, None, blob)


def starts_of(events: Iterable[Event], upto: int | None = None) -> dict[int, int]:
    """Where each generation but the first begins: its lowest offset.

    `upto` leaves out the generations behind that one, for the state that the source had then.
    """
    starts: dict[int, int] = {}
    for event in events:
        place = place_of(event)
        if place is not None and place.generation and (upto is None or place.generation <= upto):
            first = starts.get(place.generation, place.offset)
            starts[place.generation] = min(first, place.offset)
    return starts


def held(place: Place, starts: Mapping[int, int]) -> bool:
    """Whether a line still stood in the source when the last of these generations began."""
    generation, offset = place
    return all(offset < start for later, start in starts.items() if later > generation)


def with_text(event: Event, text: bytes) -> Event:
    """The event of a long line with the line itself as its data."""
    raw = values.encode(text.decode("utf-8", "surrogateescape"))
    return Event(
        event.seq, event.type, event.time, event.agent, event.turn, event.key, event.ignorable, raw
    )


def lines_of(events: Iterable[Event], starts: Mapping[int, int]) -> Iterator[StoredLine]:
    """The stored lines that hold, in the order of the log, which is that of the source."""
    for event in events:
        line = stored_line(event)
        if line is not None and held(line.place, starts):
            yield line
