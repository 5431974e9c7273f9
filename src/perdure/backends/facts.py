"""What backends tell: the end of a log, its header, entries of listings, content, what is aside."""

from typing import NamedTuple

from perdure.errors import FormatUnsupported
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.recovery.walk import Problem

__all__ = ["Aside", "Blob", "Entry", "Stored", "Tail", "Trashed"]


class Tail(NamedTuple):
    """What a backend knows of a log's end without reading the log.

    Attributes:
        acknowledged: the last acknowledged position, or None if no evidence is left.
        settled: the medium is exactly as the last acknowledgement left it.
        size: length of the stored log, in the backend's unit.

    """

    acknowledged: Position | None
    settled: bool
    size: int


class Stored(NamedTuple):
    """The first line of a session as found.

    Attributes:
        header: the header, or None if it is damaged or unsupported.
        problem: why there is no header.
        begin: where the records begin, in the backend's unit.
        unsupported: the refusal, if the header is intact but of another format.
        other: the header, if it is intact but of a session with another id.

    """

    header: Header | None
    problem: Problem | None
    begin: int
    unsupported: FormatUnsupported | None = None
    other: Header | None = None


class Entry(NamedTuple):
    """One session in a listing.

    Attributes:
        name: its name on the medium.
        id: its id; where no header tells it, what the name on the medium says.
        header: its header, or None.
        problem: why there is no header, or None.
        revision: opaque text that changes with every append and every repair, and is never equal
            across two stores.

    """

    name: str
    id: str
    header: Header | None
    problem: Problem | None
    revision: str


class Blob(NamedTuple):
    """Content that is stored beside a log.

    Attributes:
        digest: SHA-256 of its bytes, 64 hex digits, which is its name.
        size: number of bytes.
        stored_at: Unix milliseconds at which it was put last.

    """

    digest: str
    size: int
    stored_at: int


class Trashed(NamedTuple):
    """A deleted session that can still be restored.

    Attributes:
        place: its name in the trash, for `purge`; means nothing elsewhere.
        id: its id; where no header tells it, what the name on the medium says.
        digest: digest of its header, or None if that cannot be read.
        deleted_at: Unix milliseconds.

    """

    place: str
    id: str
    digest: str | None
    deleted_at: int


class Aside(NamedTuple):
    """Bytes that are kept beside a log: what was cut off it, or what stood in its place.

    Attributes:
        place: their name there, for `aside`; unique in the session.
        reason: why they are there, for people.
        size: number of bytes.
        set_at: Unix milliseconds.

    """

    place: str
    reason: str
    size: int
    set_at: int
