"""Whose a record is, and behind which turn it stands: the tree that `parentUuid` makes.

Of each record that can be a parent its id, number and turn are remembered, for a prompt may go on
behind any of them.
"""

from collections import deque
from typing import Any, NamedTuple

from perdure.lenses.lens import SourceFacts
from perdure.lenses.pieces import ident
from perdure.model.event import Event

__all__ = ["Agent", "Chain", "Place", "own_id"]

_UNNAMED_MAX = 256

_COMPACTION = "acompact"
"""Ids of side agents that write the summary of a compaction begin so."""


class Agent:
    """An agent of the file, as far as it was read.

    Attributes:
        name: its id; None: the agent whose file this is.
        turn: the turn that it is in, if it began one.
        first: its first turn.
        ended: that turn was ended, and nothing was answered since.
        caveat: the last thing in the user's name said that local commands follow.
        linked: some record of it names another as its parent.
        unnamed: calls without an id that wait for their results, oldest first.

    """

    __slots__ = ("caveat", "ended", "first", "linked", "name", "turn", "unnamed")

    def __init__(self, name: str | None) -> None:
        """Begin before its first record."""
        self.name = name
        self.turn: str | None = None
        self.first: str | None = None
        self.ended = False
        self.caveat = False
        self.linked = False
        self.unnamed: deque[str] = deque(maxlen=_UNNAMED_MAX)


class Place(NamedTuple):
    """Where a record stands.

    Attributes:
        agent: whose it is.
        seq: number of the event that tells what it says.
        turn: the turn that it belongs to, if it belongs to one.

    """

    agent: Agent
    seq: int
    turn: str | None


def own_id(event: Event, record: dict[str, Any]) -> str:
    """The id of a record; one that has none is known by its line."""
    return ident(record.get("uuid")) or f"line-{event.seq}"


class Chain:
    """The agents of a file, and the places of its records."""

    def __init__(self, facts: SourceFacts) -> None:
        """Begin before the first record; `facts` is told whose file it is."""
        self.main = Agent(None)
        self._facts = facts
        self._agents: dict[str, Agent] = {}
        self._last: Agent | None = None
        self._places: dict[str, Place] = {}
        self._own: str | None = None
        self._decided = False
        self._sessions: dict[str, int] = {}
        self._session: str | None = None

    # --- whose file it is -----------------------------------------------------------------------

    def session(self, id: str) -> None:
        """A record is of this session: the file's own is that of most of its records."""
        self._sessions[id] = self._sessions.get(id, 0) + 1
        if self._session is None or self._sessions[id] > self._sessions[self._session]:
            self._session = id
        self._identify()

    def called(self, name: str) -> None:
        """The agent has a name, or is of a type; what the agent of a session is called is none."""
        if self._own is not None:
            self._facts.agent = name

    def _identify(self) -> None:
        """A file of a sub-agent names the session of its parent."""
        if self._own is None:
            self._facts.id = self._session
        else:
            self._facts.id, self._facts.kind = self._own, "subagent"
            # Some name themselves after their file.
            itself = self._session in (self._own, f"agent-{self._own}")
            self._facts.parent = None if itself else self._session

    def _decide(self, agent: str | None) -> None:
        """The first record of the chain tells whether it is the file of a sub-agent."""
        self._decided = True
        if agent is not None:
            self._own = agent
            if agent.startswith(_COMPACTION):
                self._facts.agent = "compaction"
            self._identify()

    # --- whose a record is ----------------------------------------------------------------------

    def agent(self, event: Event, record: dict[str, Any]) -> Agent:
        """Whose a record is; one of a sub-agent that was not heard of begins with it."""
        aside, name = record.get("isSidechain") is True, ident(record.get("agentId"))
        if not self._decided:
            self._decide(name if aside else None)
        if not aside or (self._own is not None and name in (None, self._own)):
            return self.main
        if name is None:
            up = self.up(record)
            if up is not None and up.agent is not self.main:
                return up.agent
            # Before sub-agents had ids, each began with a record without a parent.
            if record.get("parentUuid") is not None and self._last is not None:
                return self._last
            name = own_id(event, record)
        self._last = self._agents.setdefault(name, Agent(name))
        return self._last

    def up(self, record: dict[str, Any]) -> Place | None:
        """Where the parent of a record stands; None: it has none, or none that was read."""
        up = ident(record.get("parentUuid"))
        return None if up is None else self._places.get(up)

    def above(self, agent: Agent, record: dict[str, Any]) -> Place | None:
        """Where the parent stands, if it is of the same agent."""
        up = self.up(record)
        if up is None or up.agent is not agent:
            return None
        agent.linked = True
        return up

    def put(self, record: dict[str, Any], place: Place) -> None:
        """Remember where a record stands."""
        id = ident(record.get("uuid"))
        if id is not None:
            self._places[id] = place

    def seq_of(self, id: object) -> int | None:
        """Number of the event that tells what a record says."""
        known = ident(id)
        place = None if known is None else self._places.get(known)
        return None if place is None else place.seq

    def knows(self, id: object) -> bool:
        """Whether there is such a record up to here."""
        return self.seq_of(id) is not None

    # --- turns ----------------------------------------------------------------------------------

    def behind(self, agent: Agent, record: dict[str, Any]) -> dict[str, str]:
        """Members of the `turn/start` of a turn that a record begins: what it follows.

        Without a parent that is known it follows what was read last. What has none at all, though
        records of this agent do, begins the conversation again.
        """
        up = self.above(agent, record)
        if up is not None:
            turn = up.turn
        elif agent.linked and "parentUuid" in record and record["parentUuid"] is None:
            turn = None
        else:
            turn = agent.turn
        if turn == agent.turn:
            return {}
        if turn is not None:
            return {"parent": turn}
        return {} if agent.first is None else {"replaces": agent.first, "how": "edit"}
