"""Derived data of a session: rows that a loss of power may take back."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import apsw

from perdure.backends.base import DERIVED_BYTES_MAX, Backend, Hold, check_derived_name
from perdure.backends.sqlite import schema
from perdure.backends.sqlite.holding import own
from perdure.backends.sqlite.reading import Found
from perdure.errors import InvalidValue

__all__ = ["DerivingBackend"]

T = TypeVar("T")

_PART_BYTES = 1024 * 1024
_ALL = "SELECT bytes FROM derived WHERE session = ? AND name = ? ORDER BY start"
_SIZE = "SELECT total(length(bytes)) FROM derived WHERE session = ? AND name = ?"
_PUT = "INSERT OR REPLACE INTO derived VALUES (?, ?, ?, ?)"
"""Whatever is there without a byte gives way to what is appended."""

_END = (
    "SELECT start + length(bytes) FROM derived WHERE session = ? AND name = ?"
    " ORDER BY start DESC LIMIT 1"
)


class DerivingBackend(Backend):
    """The half of the SQLite backend that keeps what can be made again."""

    @abstractmethod
    def _find(self, session: str) -> Found: ...

    @abstractmethod
    def _ask(self, question: Callable[[apsw.Connection], T], nothing: T) -> T: ...

    def derived(self, session: str, name: str) -> bytes | None:
        check_derived_name(name)
        bound = (self._find(session).number, name)

        def question(db: apsw.Connection) -> bytes | None:
            ((size,),) = schema.ask(db, _SIZE, bound)
            if not isinstance(size, int | float) or size > DERIVED_BYTES_MAX:
                return None
            rows = schema.ask(db, _ALL, bound, [bytes])
            return b"".join(part for (part,) in rows) if rows else None

        return self._ask(question, None)

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        mine = own(hold)
        mine.check()
        check_derived_name(name)
        with mine.passing() as db:
            if at is None:
                _drop(db, mine.number, name)
            else:
                rows = schema.ask(db, _END, (mine.number, name), [int])
                size = rows[0][0] if rows else 0
                if size != at:
                    raise InvalidValue("at", f"{size} bytes are kept, not {at}")
            start = at or 0
            for offset in range(0, len(data) or 1, _PART_BYTES):
                part = data[offset : offset + _PART_BYTES]
                row = (mine.number, name, start + offset, part)
                db.execute(_PUT, row)

    def drop_derived(self, hold: Hold, name: str) -> None:
        mine = own(hold)
        mine.check()
        check_derived_name(name)
        with mine.passing() as db:
            _drop(db, mine.number, name)


def _drop(db: apsw.Connection, number: int, name: str) -> None:
    db.execute("DELETE FROM derived WHERE session = ? AND name = ?", (number, name))
