"""State: what the views of a session say, with names and types."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from perdure.model.record import Position
from perdure.views import (
    agents,
    artifacts,
    channels,
    conversation,
    effects,
    facts,
    jobs,
    scratch,
    subagents,
    triggers,
)
from perdure.views import usage as spent
from perdure.views.agents import Agent
from perdure.views.artifacts import Artifact
from perdure.views.channels import Channel, ChannelPost
from perdure.views.effects import Effect
from perdure.views.facts import Run
from perdure.views.fold import Fold
from perdure.views.jobs import Job
from perdure.views.subagents import Subagent
from perdure.views.triggers import Trigger
from perdure.views.usage import Totals, UsageTotals
from perdure.views.view import Rows

__all__ = [
    "Agent",
    "Artifact",
    "Channel",
    "ChannelPost",
    "Effect",
    "Job",
    "Run",
    "State",
    "Subagent",
    "Totals",
    "Trigger",
    "UsageTotals",
]


class State(Mapping[str, Mapping[str, Any]]):
    """What a session's views say of it, as it stood when this was asked for.

    The attributes below answer with values of their own, which may be changed freely. As a mapping
    it has the rows of each view by the view's name, your own views among them: `state["acme"]`;
    what stands in these rows is the session's, to look at only.

    Attributes:
        position: the last event that counts here, and the hash of its record.

    """

    __slots__ = ("_header", "_skipped", "_views", "position")

    def __init__(self, fold: Fold) -> None:
        """Take note of what a fold has come to: what is folded later is not seen here."""
        self.position: Position = fold.position
        self._header = fold.header
        self._skipped = dict(fold.skipped)
        # Rows are exchanged, never changed, so a copy of the table is a copy of it all.
        self._views = {name: rows.copy() for name, rows in fold.rows.items()}

    def __repr__(self) -> str:
        """Which session, and how far."""
        return f"<State of {self._header.id!r} at {self.position.seq}>"

    def check(self) -> None:
        """Have every typed answer made once, so that rows of another shape show at once.

        Raises:
            Exception: whatever comes of rows that no view of this version made.

        """
        for view in ("triggers", "channels", "jobs", "effects", "subagents", "usage", "agents"):
            getattr(self, view)
        for fact in ("artifacts", "title", "archived", "ended", "cwd", "run"):
            getattr(self, fact)
        for agent in conversation.agents(self._rows("conversation")):
            self.head(agent)
        scratch.scopes(self._rows("state"))

    # --- rows ------------------------------------------------------------------------------------

    def __getitem__(self, view: str) -> Mapping[str, Any]:
        """The rows of a view, to look at.

        Raises:
            KeyError: the store was not opened with such a view.

        """
        return MappingProxyType(self._views[view].all)

    def __iter__(self) -> Iterator[str]:
        """The names of the views."""
        return iter(self._views)

    def __len__(self) -> int:
        """How many views there are."""
        return len(self._views)

    def _rows(self, view: str) -> Rows:
        return self._views[view]

    @property
    def skipped(self) -> dict[str, int]:
        """Events that no view looked at and that are not perdure's, by type: how many.

        They are kept in the log like any other.
        """
        return {kind: self._skipped[kind] for kind in sorted(self._skipped)}

    # --- what agents keep ------------------------------------------------------------------------

    def scratchpad(self, agent: str | None = None) -> dict[str, Any]:
        """What an agent keeps for itself (`state/set` in the scope "scratchpad"), by key."""
        return self.scope("scratchpad", agent)

    def settings(self, agent: str | None = None) -> dict[str, Any]:
        """What was set for an agent (`state/set` in the scope "settings"), by key."""
        return self.scope("settings", agent)

    def counters(self, agent: str | None = None) -> dict[str, Any]:
        """What an agent counts (`state/set` in the scope "counters"), by key."""
        return self.scope("counters", agent)

    def scope(self, name: str, agent: str | None = None) -> dict[str, Any]:
        """What an agent keeps in a scope of any name, by key; sorted."""
        return scratch.kept(self._rows("state"), name, agent)

    # --- what is at work -------------------------------------------------------------------------

    @property
    def triggers(self) -> dict[str, Trigger]:
        """The triggers that wait, by id, in the order in which they were set."""
        return {each.id: each for each in triggers.triggers(self._rows("triggers"))}

    @property
    def channels(self) -> dict[str, Channel]:
        """The channels by name, each with its count and its last 100 messages."""
        return {each.name: each for each in channels.channels(self._rows("channels"))}

    @property
    def jobs(self) -> dict[str, Job]:
        """Jobs by id, in the order in which they began: all that are open, 100 that ended."""
        return {each.id: each for each in jobs.jobs(self._rows("jobs"))}

    @property
    def untold_jobs(self) -> list[Job]:
        """Jobs that died with their process, and of which no `session/resumed` tells yet."""
        return [each for each in jobs.jobs(self._rows("jobs")) if each.untold]

    @property
    def effects(self) -> dict[str, Effect]:
        """Effects by key that were begun and of which no outcome is known, the oldest first.

        In a session that is being written they may be under way. What a dead process left may have
        happened or not: `once` refuses it, `settle_effect` says how it ended.
        """
        return {each.key: each for each in effects.effects(self._rows("effects"))}

    @property
    def subagents(self) -> dict[str, Subagent]:
        """Sub-agents by id, in the order of their starts: all at work, 100 that ended."""
        return {each.id: each for each in subagents.subagents(self._rows("subagents"))}

    @property
    def agents(self) -> dict[str | None, Agent]:
        """The agents by name, in the order of their first events; None: the one without a name."""
        return {each.name: each for each in agents.agents(self._rows("agents"))}

    @property
    def artifacts(self) -> dict[str, Artifact]:
        """The files that the run made, by name, each as it was saved last."""
        return {each.name: each for each in artifacts.artifacts(self._rows("artifacts"))}

    @property
    def usage(self) -> UsageTotals:
        """What the models cost: this session's own, and apart from it what a fork inherited."""
        return spent.usage(self._rows("usage"))

    def head(self, agent: str | None = None) -> str | None:
        """The turn behind which an agent stands; None: before its first."""
        return conversation.head(self._rows("conversation"), agent)

    # --- the session -----------------------------------------------------------------------------

    @property
    def title(self) -> str | None:
        """The title that it was given last, or None."""
        return facts.title(self._rows("session"))

    @property
    def archived(self) -> bool:
        """Whether it is archived."""
        return facts.archived(self._rows("session"))

    @property
    def ended(self) -> bool:
        """Whether its last run said that nothing more will come of it."""
        return facts.ended(self._rows("session"))

    @property
    def run(self) -> Run | None:
        """The process that writes it or wrote it last; None if none said so."""
        return facts.run(self._rows("session"))

    @property
    def cwd(self) -> str | None:
        """Where the last run works: what a resume said, or else the header."""
        return facts.cwd(self._rows("session")) or self._header.cwd

    # --- all of it -------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain JSON, views of your own under "views".

        Objects by agent have the key "" for the agent without a name.
        """
        totals = self.usage
        kept = scratch.scopes(self._rows("state"))
        named = {
            scope: {agent or "": found for agent, found in by_agent.items()}
            for scope, by_agent in kept.items()
        }
        return {
            "session": self._header.id,
            "position": self.position._asdict(),
            "title": self.title,
            "archived": self.archived,
            "ended": self.ended,
            "cwd": self.cwd,
            "run": _plain(self.run),
            "agents": {
                name or "": _plain(each) | {"head": self.head(name)}
                for name, each in self.agents.items()
            },
            "scratchpad": named.pop("scratchpad", {}),
            "settings": named.pop("settings", {}),
            "counters": named.pop("counters", {}),
            "scopes": named,
            "triggers": _plain_values(self.triggers),
            "channels": _plain_values(self.channels),
            "jobs": _plain_values(self.jobs),
            "untold_jobs": [job.id for job in self.untold_jobs],
            "effects": _plain_values(self.effects),
            "subagents": _plain_values(self.subagents),
            "artifacts": _plain_values(self.artifacts),
            "usage": _plain(totals),
            "skipped": self.skipped,
            "views": {name: dict(self[name]) for name in self if name not in _TOLD},
        }


_TOLD = frozenset(
    (
        "agents",
        "artifacts",
        "channels",
        "conversation",
        "effects",
        "jobs",
        "session",
        "state",
        "subagents",
        "triggers",
        "usage",
    )
)
"""Views of which everything is said by name."""


def _plain_values(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _plain(each) for name, each in found.items()}


def _plain(value: Any) -> Any:
    """A value of the views as JSON; what is JSON already stays as it is."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name or "": _plain(each) for name, each in value.items()}
    return value
