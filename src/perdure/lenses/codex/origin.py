"""Whose session a file is, and which of its lines are copies of its parent's."""

from typing import Any

from perdure.lenses.lens import SourceFacts
from perdure.lenses.pieces import ident, made_at, moment, text

__all__ = ["Origin"]

_GAP_MS = 1000
"""Copies are written in one go: a longer pause ends them, where turns do not tell when they were
made."""


class Origin:
    """Learns a session's facts from its first lines, and where its own history begins.

    A fork and most sub-agents begin with copies of the parent's lines, with the times of the
    copying but the old ids of turns. These ids tell when they were made (they are UUIDs of version
    7), so the first one younger than the session is its own.

    Attributes:
        copying: the line is a copy of the parent's.

    """

    __slots__ = ("_begun", "_born", "_dated", "_facts", "_last", "_opened", "copying")

    def __init__(self, facts: SourceFacts) -> None:
        """Write what is learned to `facts`."""
        self._facts = facts
        self._opened = False
        self._begun = False
        self._born: int | None = None
        self._dated = False
        self._last: int | None = None
        self.copying = False

    def line(self, time: int) -> None:
        """Take the time of the next line into account, in Unix milliseconds."""
        pause = self._last is not None and time - self._last > _GAP_MS
        if self.copying and pause and not self._dated:
            self.copying = False
        self._last = time

    def said(self) -> None:
        """Note that there was a message: a parent's first line would have come before."""
        self._begun = True

    def turn(self, id: str | None) -> None:
        """Take the id of a turn into account that begins, or goes on."""
        made = None if id is None else made_at(id)
        if self.copying and made is not None and self._born is not None:
            self._dated = True
            self.copying = made < self._born

    def meta(self, said: dict[str, Any]) -> None:
        """Read a first line, or the parent's, which stands behind it."""
        id = ident(said.get("id")) or ident(said.get("session_id"))
        facts = self._facts
        if self._opened and id != facts.id:
            if not self._begun:
                self.copying = True
                if facts.parent is None and id is not None:
                    facts.parent, facts.kind = id, facts.kind or "fork"
            return
        self.place(said)
        git = said.get("git")
        if isinstance(git, dict):
            facts.branch = text(git.get("branch")) or facts.branch
        if self._opened:
            return
        self._opened = True
        facts.id = id
        self._born = (None if id is None else made_at(id)) or moment(said.get("timestamp"))
        self._family(said)

    def place(self, said: dict[str, Any]) -> None:
        """Take a working directory into account, unless it is the parent's."""
        if not self.copying:
            self._facts.cwd = text(said.get("cwd")) or self._facts.cwd

    def _family(self, said: dict[str, Any]) -> None:
        facts, source = self._facts, said.get("source")
        agent = source.get("subagent") if isinstance(source, dict) else None
        spawn = agent.get("thread_spawn") if isinstance(agent, dict) else None
        spawn = spawn if isinstance(spawn, dict) else {}
        forked = ident(said.get("forked_from_id"))
        spawned = ident(said.get("parent_thread_id")) or ident(spawn.get("parent_thread_id"))
        facts.parent = spawned or forked
        if spawned is not None or agent is not None:
            # It is one also where nothing tells whose, as for a review.
            facts.kind = "subagent"
        elif forked is not None:
            facts.kind = "fork"
        other = agent.get("other") if isinstance(agent, dict) else agent
        names = (
            *(spawn.get(name) for name in ("agent_nickname", "agent_role")),
            *(said.get(name) for name in ("agent_nickname", "agent_role")),
            other,
        )
        facts.agent = next((name for name in map(text, names) if name is not None), None)
        self.copying = forked is not None
