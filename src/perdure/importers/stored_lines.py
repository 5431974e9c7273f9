"""How a source stands in a session: one event for each line, found again by its key.

The key of an event is `<generation>:<offset of its line in the text>`. The generation rises when
the source's last line had no newline at the time of an import and reads differently now: the line
is stored again, whole, and of the events with the same offset the last one holds.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from perdure.model.event import Event
from perdure.store import Store

__all__ = ["StoredLine", "key_of", "session_id", "source_text", "stored_lines"]

_KEY = re.compile(r"(\d{1,9}):(\d{1,20})\Z")


class StoredLine(NamedTuple):
    """A line of a source as it is stored.

    Attributes:
        event: its event.
        generation: how often a line without its newline had to be stored again up to here.
        offset: byte of the text at which it begins.
        raw: its bytes as found, newline included where there was one.

    """

    event: Event
    generation: int
    offset: int
    raw: bytes

    @property
    def torn(self) -> bool:
        """Whether the source ended inside this line."""
        return not self.raw.endswith(b"\n")


def key_of(generation: int, offset: int) -> str:
    """Key of the event that keeps the line at `offset`."""
    return f"{generation}:{offset}"


def session_id(format: str, path: str, source_id: str | None = None) -> str:  # noqa: A002
    """Id of the session that keeps the file at the absolute `path`.

    The path is part of it, since the files of a fork or a copy carry the same id.
    """
    stem = os.path.basename(path).partition(".")[0]  # noqa: PTH119
    place = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    return f"{format}:{source_id or stem or 'file'}:{place}"


def stored_lines(events: Iterable[Event]) -> Iterator[StoredLine]:
    """The lines that hold, without earlier forms of them and without events of other origin."""
    held: StoredLine | None = None
    for event in events:
        place = _KEY.match(event.key or "")
        if place is None or not isinstance(event.data, str):
            continue
        raw = event.data.encode("utf-8", "surrogateescape")
        stored = StoredLine(event, int(place[1]), int(place[2]), raw)
        if held is not None and held.offset != stored.offset:
            yield held
        held = stored
    if held is not None:
        yield held


def source_text(store: Store, id: str) -> Iterator[bytes]:
    """The imported text of a source, line by line, byte for byte as it was found.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged: raised by the iteration, after the last line that holds.

    """
    return (line.raw for line in stored_lines(store.read_from(id)))
