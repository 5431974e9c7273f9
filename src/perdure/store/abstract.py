"""What a listing says of a session besides its header: what it is called, when it was at work."""

from collections.abc import Iterator
from typing import NamedTuple

from perdure.lenses.lines import SourceLines
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.store.state import State
from perdure.store.store import Store
from perdure.views.listing import PREVIEW_CHARS, ListingView, listing
from perdure.views.view import Rows

__all__ = ["Abstract", "abstract_of"]


class Abstract(NamedTuple):
    """A session in two facts.

    Attributes:
        title: the title that it was given last; else the beginning of what somebody asked first,
            on one line; None if nobody did. At most 200 characters.
        named: whether the title was given.
        active_at: time of its last event, of an import of its last line, Unix milliseconds;
            without any, when it was created. None without a header.

    """

    title: str | None
    named: bool
    active_at: int | None


def abstract_of(store: Store, id: str) -> Abstract:
    """What to list a session by. Reads its log, and changes nothing.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged, FormatUnsupported, StorageUnavailable: the log cannot be read.

    """
    found = store.inspect(id)
    fold = found.fold(closed=False)
    given = State(fold).title
    named = given is not None and bool(given.strip())
    title = given if named else _first_prompt(fold.history())
    active_at = None if found.header is None else found.header.created_at
    last = _last_time(store, id, fold.position.seq, lines=_lines_of(found.header))
    active_at = active_at if last is None else last
    return Abstract(None if title is None else _line(title), named, active_at)


def _lines_of(header: Header | None) -> SourceLines | None:
    """What tells the lines of an import; None: it is none."""
    if header is None or header.source is None or not header.is_import:
        return None
    return SourceLines.of(header)


def _last_time(store: Store, id: str, seq: int, *, lines: SourceLines | None) -> int | None:
    """Time of the last event, or of the last one that is a line; what is behind it is of us."""
    many = 1
    while seq >= 0:
        start = max(seq + 1 - many, 0)
        events = store.read_from(id, start)
        times = [event.time for event in events if lines is None or lines.place(event) is not None]
        if times or not start:
            return times[-1] if times else None
        many *= 16
    return None


def _first_prompt(events: Iterator[Event]) -> str | None:
    """What a person typed first."""
    view, rows = ListingView(), Rows()
    for event in events:
        if event.type == "user/message":
            view.apply(rows, event, lambda: iter(()))
            if (found := listing(rows).preview) is not None:
                return found
    return None


def _line(text: str) -> str:
    """On one line, and not longer than a line may be."""
    words = " ".join(text[: PREVIEW_CHARS * 8].split())
    return words if len(words) <= PREVIEW_CHARS else f"{words[: PREVIEW_CHARS - 1]}…"
