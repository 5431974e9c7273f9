"""What opening a session returns to tasks: a writer to await or to enter, or a reservation."""

from typing import Self

from perdure.aio.outcomes import Later
from perdure.aio.session import AsyncSession
from perdure.model.record import Position

__all__ = ["AsyncPrepared", "Opening"]


class Opening(Later[AsyncSession]):
    """What `create` and `writer` return: await it, or enter it with `async with`."""

    _opened: AsyncSession | None = None

    async def __aenter__(self) -> AsyncSession:
        """The session."""
        self._opened = await self
        return self._opened

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; see `AsyncSession`."""
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


class AsyncPrepared:
    """A session reserved for its next writer: locked, verified, its open turn closed.

    Take the writer with `session()`; leaving the context without it gives the reservation back.
    """

    def __init__(self, session: AsyncSession) -> None:
        """Made by `AsyncStore.prepare`."""
        self._session = session
        self._taken = False
        self.header = session.header

    @property
    def position(self) -> Position:
        """Where the log stands."""
        return self._session.position

    def session(self) -> AsyncSession:
        """The reserved writer; from now on the caller closes it."""
        self._taken = True
        return self._session

    async def close(self) -> None:
        """Give an unused reservation back."""
        if not self._taken:
            await self._session.close()

    async def __aenter__(self) -> Self:
        """The reservation itself."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Give it back if it was not used."""
        await self.close()
