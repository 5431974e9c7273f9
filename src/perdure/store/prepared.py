"""A session that is reserved for its next writer."""

from typing import Self

from perdure.model.record import Position
from perdure.store.session import Session

__all__ = ["Prepared"]


class Prepared:
    """A session reserved for its next writer: locked, verified, its open turn closed.

    Take the writer with `session()`; leaving the context without it gives the reservation back.
    """

    def __init__(self, session: Session) -> None:
        """Made by `Store.prepare`."""
        self._session = session
        self._taken = False
        self.header = session.header

    @property
    def position(self) -> Position:
        """Where the log stands."""
        return self._session.position

    def session(self) -> Session:
        """The reserved writer; from now on the caller closes it."""
        self._taken = True
        return self._session

    def close(self) -> None:
        """Give an unused reservation back."""
        if not self._taken:
            self._session.close()

    def __enter__(self) -> Self:
        """The reservation itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Give it back if it was not used."""
        self.close()
