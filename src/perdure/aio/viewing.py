"""What a log means, asked by tasks: `perdure.store.viewing`, folded in worker threads."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from types import EllipsisType
from typing import Any, TypeVar

from perdure.aio.outcomes import Awaiting
from perdure.aio.pages import Pages
from perdure.aio.threads import Pool
from perdure.model.event import Event
from perdure.store.state import State
from perdure.store.viewing import PAGE_EVENTS, Viewing
from perdure.views.conversation import Branch
from perdure.views.fold import Fold

__all__ = ["AsyncViewing"]

T = TypeVar("T")

Message = dict[str, Any]


class AsyncViewing(ABC):
    """The views of one log, up to where it stands now."""

    @abstractmethod
    def _ask_views(self, question: Callable[[Viewing], T]) -> Awaiting[T]:
        """Put a question in a worker thread."""

    @abstractmethod
    def _seen(self) -> tuple[Viewing, Pool]:
        """What is asked, and where."""

    def fold(self) -> Awaiting[Fold]:
        """The rows of all views, as `Session.fold`."""
        return self._ask_views(lambda seen: seen.fold())

    @property
    def state(self) -> Awaiting[State]:
        """What views keep, as `Session.state`."""
        return self._ask_views(lambda seen: seen.state)

    def messages(
        self,
        agent: str | None = None,
        *,
        at: str | None = None,
        format: str = "neutral",  # noqa: A002
    ) -> Awaiting[list[Message]]:
        """What the agent's model has been told and has said, as `Session.messages`."""
        return self._ask_views(lambda seen: seen.messages(agent, at=at, format=format))

    def branches(self, agent: str | EllipsisType | None = ...) -> Awaiting[list[Branch]]:
        """All turns as a tree, as `Session.branches`."""
        return self._ask_views(lambda seen: seen.branches(agent))

    def scrollback(
        self, *, size: int = PAGE_EVENTS, types: Collection[str] | None = None
    ) -> Pages[list[Event]]:
        """The events up to now in pages, the newest first, as `Session.scrollback`: `async for`."""
        seen, pool = self._seen()
        return Pages(pool, lambda: seen.scrollback(size=size, types=types))
