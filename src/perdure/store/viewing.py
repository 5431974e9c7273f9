"""What a log means, asked of its writer or of a reader: state, messages, branches, scrollback."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from types import EllipsisType
from typing import Any

from perdure.errors import ContentDamaged, ContentExpired, InvalidValue
from perdure.model import values
from perdure.model.event import Event
from perdure.store.state import State
from perdure.views import conversation
from perdure.views.conversation import Branch
from perdure.views.fold import Fold
from perdure.views.providers import FORMATS
from perdure.views.providers.neutral import to_neutral

__all__ = ["PAGE_EVENTS", "Viewing", "chosen_agent"]

PAGE_EVENTS = 200
"""Events that a page of scrollback spans."""

Message = dict[str, Any]
Page = list[Event]


class Viewing(ABC):
    """The views of one log, up to where it stands now."""

    @abstractmethod
    def fold(self) -> Fold:
        """The rows of all views."""

    @abstractmethod
    def _events_between(self, first: int, last: int) -> Iterator[Event]:
        """Stored events of these numbers and of those between them."""

    @abstractmethod
    def _content_of(self, digest: str) -> bytes:
        """The bytes of content beside the log."""

    @property
    def state(self) -> State:
        """Scratchpad, triggers, channels, jobs, sub-agents, usage, and what else views keep.

        It says what is durable now and does not follow what is appended later. A writer makes
        durable first what is buffered.

        Raises:
            As `flush`, for a writer.
            SessionDamaged, FormatUnsupported, StorageUnavailable: the log cannot be read.
            PersistenceDisabled: a reader asks a store that keeps nothing.

        """
        return State(self.fold())

    def messages(
        self,
        agent: str | None = None,
        *,
        at: str | None = None,
        format: str = "neutral",  # noqa: A002
    ) -> list[Message]:
        """What the agent's model has been told and has said, ready for the next request.

        Compactions, rewinds and branches are applied, every call is answered right behind it, and
        no answer is without its call. With `at` it is as it was at the end of that turn, of any
        branch; that reads the log. `agent` may be left out where only one has said anything.

        `format` is "neutral" (as `docs/views.md` says), "anthropic", "openai-chat" or
        "openai-responses": what those providers accept. Images are loaded from beside the log; what
        has expired is named in words.

        A writer makes durable first what is buffered, so it counts as well; what a reader sees is
        what is durable. Messages share values with the session: do not change them.

        Raises:
            InvalidValue: no such format or turn, or several agents to choose from.
            PersistenceDisabled: `at`, of a store that keeps nothing: there is no log to read.
            As `state`.

        """
        write = FORMATS.get(format)
        if write is None:
            known = ", ".join(map(repr, FORMATS))
            raise InvalidValue("format", f"{values.shown(format)} is none of {known}")
        fold = self.fold()
        agent = chosen_agent(fold, agent)
        if at is None:
            found = conversation.messages(fold.rows["conversation"], agent)
        else:
            try:
                found = conversation.messages_at(fold.history, fold.header, agent, at)
            except KeyError:
                raise InvalidValue(
                    "at",
                    f"{values.shown(at)} is no turn of agent {values.shown(agent)}",
                    hint="branches() or `perdure branches` lists them",
                ) from None
        # Neutral ones are the caller's already, and may be many.
        return found if write is to_neutral else write(found, self._content_or_none)

    def _content_or_none(self, digest: str) -> bytes | None:
        try:
            return self._content_of(digest)
        except (ContentExpired, ContentDamaged, InvalidValue):
            # What names no content, too: the log may say anything.
            return None

    def branches(self, agent: str | EllipsisType | None = ...) -> list[Branch]:
        """All turns as a tree, in their order in the log. Reads the log.

        They are those of one agent (None: the one without a name), or of all if it is left out.

        Raises:
            PersistenceDisabled: the store keeps nothing, and there are turns.
            As `state`.

        """
        return conversation.branches(self.fold().history(), agent)

    def scrollback(
        self, *, size: int = PAGE_EVENTS, types: Collection[str] | None = None
    ) -> Iterator[Page]:
        """The events up to now in pages, the newest page first, each read when it is asked for.

        A page spans `size` events of the log, in their order; `types` are those to keep, by default
        all but `assistant/delta`, which the message behind it repeats. Pages without any are left
        out.

        Raises:
            InvalidValue: `size` is not a positive count.
            PersistenceDisabled: when it is iterated, if the store keeps nothing and something was
                said.
            As `state`.

        """
        if size.__class__ is not int or size < 1:
            raise InvalidValue("size", f"{values.shown(size)} is not a count", hint="1, 2, 3, …")
        return self._scrollback(self.fold().position.seq, size, types)

    def _scrollback(self, last: int, size: int, types: Collection[str] | None) -> Iterator[Page]:
        while last >= 0:
            first = max(0, last - size + 1)
            page: Page = []
            for event in self._events_between(first, last):
                if event.type != "assistant/delta" if types is None else event.type in types:
                    page.append(event)
            if page:
                yield page
            last = first - 1


def chosen_agent(fold: Fold, agent: str | None) -> str | None:
    """The agent that was named, or the only one there is.

    Raises:
        InvalidValue: it has to be named.

    """
    there = conversation.agents(fold.rows["conversation"])
    if agent is not None or None in there or not there:
        return agent
    if len(there) == 1:
        return there[0]
    names = ", ".join(values.shown(name) for name in there)
    raise InvalidValue("agent", "has to be named, there are several", hint=f"one of {names}")
