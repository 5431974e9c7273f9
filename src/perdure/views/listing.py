"""View "listing": what a list of sessions says of one, besides its title and what it cost."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import (
    JobEnd,
    SubagentEnd,
    ToolResult,
    TurnEnd,
    UserMessage,
    fitting,
)
from perdure.views.view import History, Rows, View

__all__ = ["AGENTS_MAX", "PREVIEW_CHARS", "ListingFacts", "ListingView", "listing"]

PREVIEW_CHARS = 200
"""What is kept of what somebody asked first."""

AGENTS_MAX = 100
"""So many agents are named; more are counted as one that has no name here."""

_READ_CHARS = 8 * PREVIEW_CHARS


class ListingFacts(NamedTuple):
    """What was counted.

    Attributes:
        preview: the beginning of what somebody asked first, on one line; None if nobody did.
        agents: those that took part, by name, in the order of their first events.
        turns: how many turns were begun.
        messages: how many messages people and agents wrote.
        calls: how many tools were called.
        failures: how many tools, turns, jobs and sub-agents said that they failed.
        ended: how the turn ended that ended last (its reason); None: one began since, or none was.

    """

    preview: str | None
    agents: tuple[str, ...]
    turns: int
    messages: int
    calls: int
    failures: int
    ended: str | None


class ListingView(View):
    """A row per count, and a row each for preview, agents, and the end of the last turn."""

    name = "listing"
    version = 1
    types = frozenset(
        {
            "assistant/message",
            "job/end",
            "subagent/end",
            "tool/call",
            "tool/result",
            "turn/end",
            "turn/start",
            "user/message",
        }
    )

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Count it, and note who it is of."""
        self._take_part(rows, event.agent)
        match event.type:
            case "turn/start":
                _count(rows, "turns")
                rows.remove("ended")
            case "tool/call":
                _count(rows, "calls")
            case "assistant/message":
                _count(rows, "messages")
            case "user/message":
                _count(rows, "messages")
                self._preview(rows, event)
            case _:
                self._ended(rows, event)

    @staticmethod
    def _take_part(rows: Rows, agent: str | None) -> None:
        known: list[str] = rows.get("agents", [])
        if agent is not None and agent not in known and len(known) < AGENTS_MAX:
            rows.put("agents", [*known, agent])

    @staticmethod
    def _preview(rows: Rows, event: Event) -> None:
        """What an agent said in a person's name has a source, and is no preview."""
        if "preview" in rows:
            return
        said = fitting(event)
        if isinstance(said, UserMessage) and said.source is None:
            text = _line(" ".join(_texts(said.content)).lstrip())
            if text:
                rows.put("preview", text)

    @staticmethod
    def _ended(rows: Rows, event: Event) -> None:
        said = fitting(event)
        if isinstance(said, JobEnd | SubagentEnd | ToolResult | TurnEnd) and said.error is not None:
            _count(rows, "failures")
        if isinstance(said, TurnEnd):
            rows.put("ended", said.reason)


def listing(rows: Rows) -> ListingFacts:
    """What was counted so far."""
    agents: list[str] = rows.get("agents", [])
    return ListingFacts(
        preview=rows.get("preview"),
        agents=tuple(agents),
        turns=rows.get("turns", 0),
        messages=rows.get("messages", 0),
        calls=rows.get("calls", 0),
        failures=rows.get("failures", 0),
        ended=rows.get("ended"),
    )


def _count(rows: Rows, name: str) -> None:
    rows.put(name, rows.get(name, 0) + 1)


def _texts(content: list[dict[str, Any]]) -> Iterator[str]:
    for block in content:
        text = block.get("text") if block.get("type") == "text" else None
        if isinstance(text, str):
            yield text


def _line(text: str) -> str:
    """On one line, cut at a character; lone halves of characters are shown as what they are not."""
    words = values.text(" ".join(text[:_READ_CHARS].split()))
    whole = len(words) <= PREVIEW_CHARS and len(text) <= _READ_CHARS
    return words if whole else f"{words[: PREVIEW_CHARS - 1]}…"
