"""The runner: feeds the events of one log to several views, each event to those that look at it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.model.vocabulary import PAYLOADS
from perdure.views.view import Rows, View

__all__ = ["Fold", "Reader"]

Reader = Callable[[int], Iterator[Event]]
"""The events of the log before the event of this number, from event 0 on."""


_OWN = __name__.rpartition(".")[0] + "."
"""Where this package's views are."""


class Fold:
    """The rows of several views of one log, up to a position.

    Attributes:
        position: the last event that was taken into account, and the hash of its record;
            (-1, genesis) before the first.
        skipped: how many events of each type outside the vocabulary no view looked at.

    """

    def __init__(
        self,
        views: Sequence[View],
        header: Header,
        read: Reader,
        *,
        rows: Mapping[str, dict[str, Any] | Rows] | None = None,
        position: Position | None = None,
    ) -> None:
        """Begin before event 0, or at `position` with the `rows` that every view had there.

        `read` gives the history to views that ask for it.
        """
        self.header = header
        self.position = position or Position(-1, header.genesis)
        self.skipped: Counter[str] = Counter()
        self._read = read
        # The last event that was taken without its record: it would come behind the log.
        self._beyond = -1
        self.views = {view.name: view for view in views}
        self.rows = {view.name: _own((rows or {}).get(view.name), view) for view in views}
        self._by_type: dict[str, list[tuple[View, Rows]]] = {}
        for view in views:
            for kind in view.types:
                self._by_type.setdefault(kind, []).append((view, self.rows[view.name]))
            if position is None:
                try:
                    view.begin(self.rows[view.name], header)
                except Exception as error:
                    error.add_note(f"view {view.name!r} at the beginning")
                    raise

    def records(self, records: Iterable[Record]) -> None:
        """Take records into account that follow the position."""
        for record in records:
            self.record(record)

    def record(self, record: Record) -> None:
        """Take the next record into account; one that no view looks at is not expanded."""
        if record.type in self._by_type:
            self.events(record.events(self.position.seq + 1))
        elif record.type not in PAYLOADS:
            self.skipped[record.type] += record.last - max(record.first, self.position.seq + 1) + 1
        self.position = record.position

    def events(self, events: Iterable[Event]) -> None:
        """Take events into account; the position stays until a record was taken."""
        seq = self._beyond
        for event in events:
            self.event(event)
            seq = event.seq
        self._beyond = seq

    def event(self, event: Event) -> None:
        """Take one event into account; the position stays until a record was taken."""
        for view, rows in self._by_type.get(event.type, ()):
            try:
                view.apply(rows, event, lambda: self._read(event.seq))
            except Exception as error:
                error.add_note(f"view {view.name!r} at event {event.seq}, {event.type}")
                raise

    def history(self) -> Iterator[Event]:
        """The events that were taken into account, from event 0 on, read anew."""
        last = max(self.position.seq, self._beyond)
        # Before its first event a log need not be anywhere.
        return self._read(last + 1) if last >= 0 else iter(())

    def copy(self) -> "Fold":
        """Another fold that stands here; what one takes into account from now on is its own."""
        rows = {name: each.copy() for name, each in self.rows.items()}
        views = tuple(self.views.values())
        twin = Fold(views, self.header, self._read, rows=rows, position=self.position)
        twin.skipped.update(self.skipped)
        twin._beyond = self._beyond
        return twin

    @property
    def changed(self) -> bool:
        """Whether a row changed since the rows were stored."""
        return any(rows.changed for rows in self.rows.values())


def _own(rows: dict[str, Any] | Rows | None, view: View) -> Rows:
    # Views of this package are known to put JSON, and what they put is large.
    own = not view.__class__.__module__.startswith(_OWN)
    return rows if isinstance(rows, Rows) else Rows(rows, checked=own)
