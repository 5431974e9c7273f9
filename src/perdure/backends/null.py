"""Persistence switched off: everything is accepted and dropped, and nothing can be resumed."""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from perdure.backends.base import Backend, Entry, Hold, Stored, Tail
from perdure.durable.locks import Holder
from perdure.errors import PersistenceDisabled, SessionClosed, SessionNotFound
from perdure.model.header import Header, check_id
from perdure.model.record import Position, Record
from perdure.recovery.walk import Piece, Walk

__all__ = ["NullBackend"]


class _NullHold(Hold):
    def __init__(self, session: str, position: Position) -> None:
        self._session = session
        self._live = True
        self.moved = position

    def check(self) -> None:
        if not self._live:
            raise SessionClosed(self._session, "this writer was closed")

    @property
    def position(self) -> Position:
        return self.moved

    def release(self) -> None:
        self._live = False


class NullBackend(Backend):
    """The same code runs, nothing is kept."""

    scheme = "none"
    persistent = False

    def __init__(self, rest: str = "", **_: Any) -> None:
        """Take whatever options the other backends take."""

    def lock(self, session: str, *, wait: float = 0.0) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("continuing a session")

    def holder(self, session: str) -> Holder | None:
        check_id(session)
        return None

    def publish(self, header: Header, records: Sequence[Record]) -> Hold:
        end = records[-1].position if records else Position(-1, header.genesis)
        return _NullHold(header.id, end)

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        del expected  # there is no log that could have moved
        hold.check()
        if records and isinstance(hold, _NullHold):
            hold.moved = records[-1].position

    def settle(self, hold: Hold, walk: Walk) -> NoReturn:  # noqa: ARG002
        raise PersistenceDisabled("recovery")

    def stored(self, session: str) -> Stored:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def scan(self, session: str, begin: int) -> Iterator[Piece]:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def seek(self, session: str, seq: int) -> int:  # noqa: ARG002
        raise SessionNotFound(session)

    def tail(self, session: str) -> Tail:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def entries(self) -> Iterator[Entry]:
        return iter(())

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    def close(self) -> None:
        """Nothing is open."""
