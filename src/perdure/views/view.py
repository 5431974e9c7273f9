"""What a view is: a name, a version, and a pure fold of events into rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header

__all__ = ["History", "Rows", "View"]

History = Callable[[], Iterator[Event]]
"""The events of the log before the one that is being folded, from event 0 on, read anew."""


class Rows:
    """The rows of a view: JSON values by key, and which of them changed since they were stored.

    A value belongs to the rows once it was put: to change one, put another in its place. Values
    that were read from a checkpoint stay JSON text until somebody looks at them.
    """

    __slots__ = ("_asked", "_changed", "_checked", "_rows", "_text")

    def __init__(self, rows: dict[str, Any] | None = None, *, checked: bool = False) -> None:
        """Begin with rows that are stored already; the dict becomes this object's own.

        A `msgspec.Raw` among them is JSON text, to be decoded when it is asked for. `checked`: what
        is put is copied, and what is no JSON is refused.
        """
        self._checked = checked
        self._rows: dict[str, Any] = {} if rows is None else rows
        # Whether some may still be text.
        self._text = bool(rows)
        self._asked = False
        # What changed since they were stored, new rows in their order; True for one that was there
        # then and has been removed since, even if it came back.
        self._changed: dict[str, bool] = {}

    def __getitem__(self, key: str) -> Any:
        """The value of a row.

        Raises:
            KeyError: there is none.

        """
        value = self._rows[key]
        if value.__class__ is msgspec.Raw:
            value = self._rows[key] = values.decode(value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a row, or `default`."""
        return self[key] if key in self._rows else default

    def own(self, keys: Iterable[str]) -> list[dict[str, Any]]:
        """The values of rows that are objects, each a dict of the caller's own.

        What stands in them may be the rows', to look at.

        Raises:
            KeyError: there is no such row.

        """
        if self._asked:
            # Who asks again goes on asking: from now on they are kept.
            return [dict(self[key]) for key in keys]
        self._asked = True
        raw, decode = msgspec.Raw, values.decode
        found = [*map(self._rows.__getitem__, keys)]
        return [decode(each) if each.__class__ is raw else dict(each) for each in found]

    def __contains__(self, key: object) -> bool:
        """Whether there is such a row."""
        return key in self._rows

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rows)

    def put(self, key: str, value: Any) -> None:
        """Set a row; a new one stands behind the others, a known one keeps its place.

        Raises:
            InvalidValue: the key is no string, or, in a view of a user's, the value no JSON.

        """
        if key.__class__ is not str:
            raise InvalidValue("key", f"{values.shown(key)} is no string", hint="convert it first")
        if self._checked:
            value = values.snapshot(value, f"rows[{values.shown(key)}]")
        if key in self._rows:
            self._changed.setdefault(key, False)
        else:
            self._changed[key] = self._changed.pop(key, None) is not None
        self._rows[key] = value

    def remove(self, key: str) -> None:
        """Remove a row; none of that key is no error."""
        if self._rows.pop(key, self) is not self:
            self._changed[key] = True

    def clear(self) -> None:
        """Remove every row."""
        self._changed.update(dict.fromkeys(self._rows, True))
        self._rows.clear()

    @property
    def all(self) -> Mapping[str, Any]:
        """The rows themselves, to look at."""
        if self._text:
            for key in self._rows:
                self[key]
            self._text = False
        return self._rows

    @property
    def held(self) -> Mapping[str, Any]:
        """The rows as they are, for who stores them: values, or JSON text."""
        return self._rows

    @property
    def changed(self) -> bool:
        """Whether something changed since the rows were stored."""
        return bool(self._changed)

    def changes(self) -> tuple[dict[str, Any], list[str]]:
        """What changed since the rows were stored: rows that were set, keys that were removed.

        Who removes those keys and then sets those rows, one by one, has the rows in their order.
        """
        rows = self._rows
        put = {key: rows[key] for key in self._changed if key in rows}
        return put, [key for key, gone in self._changed.items() if gone or key not in rows]

    def copy(self) -> "Rows":
        """The same rows, and the same of them changed, in an object of their own."""
        # Before the rows: another thread may have decoded the last of them meanwhile.
        text = self._text
        twin = Rows(self._rows.copy(), checked=self._checked)
        twin._text = text
        twin._asked = self._asked
        twin._changed = self._changed.copy()
        return twin

    def stored(self) -> None:
        """Take note that the rows are stored as they are."""
        self._changed.clear()


class View(ABC):
    """A pure fold. What `apply` does depends on the rows, the event and the history alone.

    Attributes:
        name: its name, unique among the views of a store: lower-case letters, digits and hyphens.
        version: raised whenever the fold changes; rows of another version are thrown away.
        types: the event types that it looks at.

    """

    name: str
    version: int
    types: frozenset[str]

    def begin(self, rows: Rows, header: Header) -> None:  # noqa: B027 - most need nothing of it
        """Set the rows of a log without events."""

    @abstractmethod
    def apply(self, rows: Rows, event: Event, history: History) -> None:
        """Take the next event into account.

        A payload that does not fit its type must not raise: the event is skipped. What it does
        raise ends whatever asked for the views, with a note that names the view and the event.
        `history` reads
        the log again and costs as much: it is for the rare event that refers to what rows do not
        hold any more.
        """
