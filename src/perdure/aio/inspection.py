"""What a reader sees of a session, asynchronously."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from perdure.aio.loops import checkpoint
from perdure.aio.outcomes import Awaiting, Call, Later
from perdure.aio.pages import Pages
from perdure.aio.threads import Lane, Pool, make_all
from perdure.aio.viewing import AsyncViewing
from perdure.durable.locks import Holder
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.recovery.walk import Problem
from perdure.store import Inspection
from perdure.store.imported import Understanding
from perdure.store.viewing import Viewing
from perdure.views.fold import Fold

__all__ = ["AsyncInspection"]

T = TypeVar("T")


class AsyncInspection(AsyncViewing):
    """A session as found: `perdure.Inspection`, with `await` before what reads the disk.

    Attributes:
        id: the id that was asked for.
        header: the header, or None if it is damaged or of an unsupported format.
        holder: who was writing when the inspection was made, or None.

    """

    def __init__(self, found: Inspection, pool: Pool) -> None:
        """Made by `AsyncStore.inspect` and `AsyncStore.load`."""
        self.id: str = found.id
        self.header: Header | None = found.header
        self.holder: Holder | None = found.holder
        self._found = found
        self._pool = pool
        # One thread at a time: what one question has read answers the next.
        self._lane: Lane[Call[Any]] = Lane(pool)

    def __repr__(self) -> str:
        """Which session; its state is not looked up for this."""
        return f"<AsyncInspection of {self.id!r}>"

    @property
    def events(self) -> Pages[Event]:
        """The verified events, then the closers of an interrupted turn: `async for`."""
        return Pages(self._pool, lambda: self._found.events)

    def later(self) -> Pages[Event]:
        """Intact events behind the first problem, UNVERIFIED: `async for`."""
        return Pages(self._pool, self._found.later)

    @property
    def closers(self) -> Awaiting[list[Event]]:
        """The events that would close what a dead writer left open. Reads everything."""
        return self._ask(lambda found: found.closers)

    @property
    def position(self) -> Awaiting[Position | None]:
        """Where the log ends; None without a header. Reads everything only after a crash."""
        return self._ask(lambda found: found.position)

    @property
    def verified(self) -> Awaiting[Position | None]:
        """Where the verified prefix ends; None without a header. Reads everything."""
        return self._ask(lambda found: found.verified)

    @property
    def status(self) -> Awaiting[str]:
        """A fact of the tail, as `Inspection.status`."""
        return self._ask(lambda found: found.status)

    @property
    def problems(self) -> Awaiting[list[Problem]]:
        """Everything that does not hold together, first things first. Reads everything."""
        return self._ask(lambda found: found.problems)

    @property
    def damaged(self) -> Awaiting[bool]:
        """Whether appends are refused. Reads everything."""
        return self._ask(lambda found: found.damaged)

    @property
    def understanding(self) -> Awaiting[Understanding | None]:
        """What a lens made of an imported session, as `Inspection.understanding`."""
        return self._ask(lambda found: found.understanding)

    @property
    def later_count(self) -> Awaiting[int]:
        """How many intact events stand behind the damage. Reads everything."""
        return self._ask(lambda found: found.later_count)

    def fold(self, *, closed: bool = True) -> Awaiting[Fold]:
        """The rows of all views at the end of the log, as `Inspection.fold`."""
        return self._ask(lambda found: found.fold(closed=closed))

    def _ask_views(self, question: Callable[[Viewing], T]) -> Awaiting[T]:
        return self._ask(question)

    def _seen(self) -> tuple[Viewing, Pool]:
        return self._found, self._pool

    def _ask(self, question: Callable[[Inspection], T]) -> Awaiting[T]:
        return Later(partial(self._answer, question))

    async def _answer(self, question: Callable[[Inspection], T]) -> T:
        await checkpoint()
        call = Call(partial(question, self._found))
        self._lane.put(call, make_all)
        return await call.wait(self._pool.run)
