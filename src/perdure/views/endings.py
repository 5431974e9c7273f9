"""What begins and ends: all that is open, and of what has ended the last so many."""

from typing import Any

from perdure.model import values
from perdure.model.event import Event
from perdure.views.view import Rows
from perdure.views.windows import Window, key_of, parts_of

__all__ = ["ENDED_MAX", "Endings"]

ENDED_MAX = 100
"""How much of what has ended is kept at hand; the log has it all."""


class Endings:
    """Entries in rows `["entry", id]`, and a window of the ids that have ended."""

    __slots__ = ("_ended", "_rows")

    def __init__(self, rows: Rows) -> None:
        """Look at the entries in `rows`."""
        self._rows = rows
        self._ended = Window(rows, ENDED_MAX)

    def begin(self, event: Event, id: str, facts: dict[str, Any]) -> None:
        """Note that something begins; an id that begins again is something new."""
        self._rows.put(_key(id), _opened(event, id) | facts)

    def end(self, event: Event, id: str, facts: dict[str, Any]) -> str | None:
        """Note how it ended; the id that has to leave the window for it is returned.

        What never began is noted as well: its beginning may stand in a part that was lost.
        """
        row = self._rows.get(_key(id)) or _opened(event, id)
        row = row | facts | {"ended": event.seq, "number": self._ended.count}
        self._rows.put(_key(id), row)
        gone: str | None = self._ended.put(id)
        return gone

    def get(self, id: str) -> dict[str, Any] | None:
        """The entry of an id, to look at, or None."""
        row: dict[str, Any] | None = self._rows.get(_key(id))
        return row

    def change(self, id: str, facts: dict[str, Any]) -> None:
        """Add facts to an entry that there is."""
        self._rows.put(_key(id), self._rows[_key(id)] | facts)

    def forget_old(self, id: str) -> bool:
        """Remove the entry of what ended too long ago; False: it is open, new or not there."""
        row = self.get(id)
        if row is None or row.get("number", self._ended.first) >= self._ended.first:
            return False
        self._rows.remove(_key(id))
        return True

    def all(self) -> list[dict[str, Any]]:
        """Copies of the entries in the order in which things began."""
        found = [row for key, row in self._rows.all.items() if parts_of(key)[0] == "entry"]
        return [values.snapshot(row) for row in sorted(found, key=lambda row: int(row["seq"]))]


def _key(id: str) -> str:
    return key_of("entry", id)


def _opened(event: Event, id: str) -> dict[str, Any]:
    return {"id": id, "agent": event.agent, "turn": event.turn, "seq": event.seq}
