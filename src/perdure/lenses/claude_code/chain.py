"""Whose a record is, and what it follows: the tree that `parentUuid` makes.

Of each record that has an id its place is remembered, whatever it is, for a prompt or an answer may
go on behind any of them. A parent that was not read stands where it was first named: others may go
on behind it as well.
"""

from typing import Any, NamedTuple

from perdure.lenses.claude_code.turns import Agent, Answer, Place, Turn, taken_back
from perdure.lenses.lens import SourceFacts
from perdure.lenses.pieces import ident
from perdure.model.event import Event

__all__ = ["Behind", "Chain", "own_id"]

_COMPACTION = "acompact"
"""Ids of side agents that write the summary of a compaction begin so."""


def own_id(event: Event, record: dict[str, Any]) -> str:
    """The id of a record; one that has none is known by its line."""
    return ident(record.get("uuid")) or f"line-{event.seq}"


class Behind(NamedTuple):
    """What a turn follows that a record begins.

    Attributes:
        members: those of its `turn/start`; empty: it follows where its agent stands.
        version: instead, members where it is a version of the turn of `up`, that far the same.
        up: where the record stands that it follows, if `version` is not None.

    """

    members: dict[str, str]
    version: dict[str, str] | None = None
    up: Place | None = None

    @property
    def moves(self) -> bool:
        """Whether it follows anything else than where its agent stands."""
        return bool(self.members) or self.version is not None


class Chain:
    """The agents of a file, and the places of its records."""

    def __init__(self, facts: SourceFacts) -> None:
        """Begin before the first record; `facts` is told whose file it is, and what is missing."""
        self.main = Agent(None)
        self._facts = facts
        self._agents: dict[str, Agent] = {}
        self._last: Agent | None = None
        self._places: dict[str, Place] = {}
        self._missing: set[str] = set()
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

    def agent(self, event: Event, record: dict[str, Any], *, chained: bool = True) -> Agent:
        """Whose a record is; one of a sub-agent that was not heard of begins with it.

        `chained`: it is of a kind that always tells whether it is of a sub-agent.
        """
        aside, name = record.get("isSidechain") is True, ident(record.get("agentId"))
        if not self._decided and (chained or isinstance(record.get("isSidechain"), bool)):
            self._decide(name if aside else None)
        if not aside or (self._own is not None and name in (None, self._own)):
            return self.main
        if name is None:
            up = self._up(record)
            if up is not None and up.agent is not self.main:
                return up.agent
            # Before sub-agents had ids, each began with a record without a parent.
            if record.get("parentUuid") is not None and self._last is not None:
                return self._last
            name = own_id(event, record)
        self._last = self._agents.setdefault(name, Agent(name))
        return self._last

    def _up(self, record: dict[str, Any]) -> Place | None:
        """Where the parent of a record stands; None: it has none, or none that was named before."""
        up = ident(record.get("parentUuid"))
        return None if up is None else self._places.get(up)

    # --- where it stands ------------------------------------------------------------------------

    def place(self, event: Event, record: dict[str, Any], agent: Agent) -> Place:
        """Where a record stands: behind its parent, if that is of the same agent.

        Without one it stands behind what was read last.
        """
        id, up = ident(record.get("parentUuid")), self._up(record)
        if up is not None and up.agent is agent:
            agent.linked = True
            return Place(agent, event.seq, up)
        place = Place(agent, event.seq, None)
        if id is not None and up is None:
            self._places[id] = Place(agent, event.seq, None)
            self._missing.add(id)
            self._facts.gaps = len(self._missing)
            place.up = self._places[id]
        return place

    def put(self, record: dict[str, Any], place: Place) -> None:
        """Remember where a record stands."""
        id = ident(record.get("uuid"))
        if id is not None:
            self._places[id] = place
            if id in self._missing:
                self._missing.discard(id)
                self._facts.gaps = len(self._missing)
        if place.turn is place.agent.turn:
            place.agent.head = place

    def placed(self, id: object) -> Place | None:
        """Where the record of an id stands that was read, or was named by others; None: nowhere."""
        known = ident(id)
        return None if known is None else self._places.get(known)

    def knows(self, id: object) -> bool:
        """Whether a record of this id was read."""
        return self.placed(id) is not None and ident(id) not in self._missing

    # --- turns ----------------------------------------------------------------------------------

    def behind(self, at: Place, record: dict[str, Any], answer: Answer | None = None) -> Behind:
        """What a turn follows that begins with the record at `at`; `answer` is what it says.

        Without a parent that is known it follows what was read last. What has none at all, though
        records of this agent do, begins the conversation again.
        """
        agent, turn = at.agent, at.turn
        again = agent.linked and "parentUuid" in record and record["parentUuid"] is None
        if not at.known and again:
            turn = Turn(None)
        if turn.id == agent.turn.id:
            members = {}
        elif turn.id is not None:
            members = {"parent": turn.id}
        else:
            members = {} if agent.first is None else {"replaces": agent.first, "how": "edit"}
        if at.known and at.up is not None and turn.id is not None and taken_back(at.up, answer):
            how = "edit" if answer is None else "regenerate"
            return Behind(members, {"replaces": turn.id, "how": how}, at.up)
        return Behind(members)
