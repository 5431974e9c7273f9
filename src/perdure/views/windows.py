"""Keys of rows, and the last so many of something in rows of their own."""

from typing import Any

from perdure.model import values
from perdure.views.view import Rows

__all__ = ["Window", "key_of", "parts_of"]


def key_of(*parts: str | None) -> str:
    """A key that tells apart whatever the parts are, None from a string too."""
    return values.encode(list(parts)).decode()


def parts_of(key: str) -> list[str | None]:
    """The parts of such a key."""
    parts: list[str | None] = values.decode(key.encode())
    return parts


class Window:
    """Numbers what is put into it, from 0 on, and keeps the last `size`, each in its own row.

    The rows are `["slot", *name, number % size]` and, with how many there were, `["count", *name]`.
    """

    __slots__ = ("_count", "_name", "_rows", "_size")

    def __init__(self, rows: Rows, size: int, *name: str | None) -> None:
        """Look at the window `name` in `rows`; one that was never written to is empty."""
        self._rows = rows
        self._size = size
        self._name = name
        self._count = key_of("count", *name)

    @property
    def count(self) -> int:
        """How many there were ever."""
        count: int = self._rows.get(self._count, 0)
        return count

    @property
    def first(self) -> int:
        """The number of the oldest that is kept."""
        return max(0, self.count - self._size)

    def put(self, value: Any) -> Any:
        """Keep one more; what has no place any more is returned, or None."""
        number = self.count
        slot = self._slot(number)
        gone = self._rows.get(slot)
        self._rows.put(slot, value)
        self._rows.put(self._count, number + 1)
        return gone

    def values(self) -> list[Any]:
        """What is kept, the oldest first."""
        return [self._rows[self._slot(number)] for number in range(self.first, self.count)]

    def _slot(self, number: int) -> str:
        return key_of("slot", *self._name, str(number % self._size))
