"""What was told in each turn, for a version of it that goes on from its middle.

Claude Code takes answers back within a turn: it goes on behind an earlier record, and what was said
behind that one is not part of the conversation any more. Perdure's turns follow each other whole,
so such a version is a turn of its own, in which what it shares with the other is told again.
Memory goes with what was told, up to a bound; what is not remembered is not told again.
"""

from collections import deque
from typing import NamedTuple

from msgspec.structs import replace

from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = [
    "KEPT_BYTES_MAX",
    "Agent",
    "Answer",
    "Place",
    "Story",
    "Told",
    "Turn",
    "taken_back",
]

KEPT_BYTES_MAX = 8 * 1024 * 1024
"""So much of what was told is remembered, of the latest turns; twice that is told again at most.
No model of Claude Code reads half as much text at once."""

_UNNAMED_MAX = 256
_COMPACTION = "context/compacted"


class Turn:
    """A turn of an agent, or what stands before its first.

    Attributes:
        id: its id; None: it is what stands before the first.
        family: what it shares with the turns that it is a version of, whose records lead to its.
        told: what was told in it, in order; None: that is not remembered.
        answers: the answers in it, in order.
        base: how many of these a summary stands for.
        size: bytes of what is remembered.

    """

    __slots__ = ("_groups", "answers", "base", "family", "id", "size", "told")

    def __init__(self, id: str | None, of: "Turn | None" = None) -> None:
        """Begin it; `of`: the turn that it is a version of, from somewhere in that one on."""
        self.id = id
        self.family: object = self if of is None else of.family
        self.told: list[Told] | None = None
        self.answers: list[Answer] = []
        self._groups: tuple[int, dict[object, int]] | None = None
        self.base = 0
        self.size = 0

    @property
    def groups(self) -> dict[object, int]:
        """Of each response with an answer in it, the place of its first one among these."""
        # Few turns are asked, and a file may have very many.
        known, groups = self._groups or (0, {})
        for at in range(known, len(self.answers)):
            groups.setdefault(self.answers[at].group, at)
        self._groups = len(self.answers), groups
        return groups


class Agent:
    """An agent of the file, as far as it was read.

    Attributes:
        name: its id; None: the agent whose file this is.
        turn: the turn that it is in.
        first: its first turn.
        head: the record that was read last of that turn.
        ended: that turn was ended, and nothing was answered since.
        caveat: the last thing in the user's name said that local commands follow.
        linked: some record of it names another as its parent.
        unnamed: calls without an id that wait for their results, oldest first.

    """

    __slots__ = ("caveat", "ended", "first", "head", "linked", "name", "turn", "unnamed")

    def __init__(self, name: str | None) -> None:
        """Begin before its first record."""
        self.name = name
        self.turn = Turn(None)
        self.first: str | None = None
        self.head: Place | None = None
        self.ended = False
        self.caveat = False
        self.linked = False
        self.unnamed: deque[str] = deque(maxlen=_UNNAMED_MAX)

    @property
    def running(self) -> bool:
        """Whether it is in a turn that was not ended."""
        return self.turn.id is not None and not self.ended


class Place:
    """Where a record stands.

    Attributes:
        agent: whose it is.
        seq: number of the event that tells what it says.
        turn: the turn that it belongs to.
        up: where what it follows stands; None: it is the first.
        known: the record itself says what it follows, and that was read.
        count: how many answers of its turn it follows, or is a piece of: the first ones.
        answer: the answer that it is a piece of, if it is of one.

    """

    __slots__ = ("agent", "answer", "count", "known", "seq", "turn", "up")

    def __init__(self, agent: Agent, seq: int, up: "Place | None") -> None:
        """It stands behind `up`; without that, behind all that was read of the agent's turn."""
        self.agent = agent
        self.seq = seq
        self.known = up is not None
        self.up = agent.head if up is None else up
        self.turn: Turn = agent.turn if up is None else up.turn
        self.count: int = len(agent.turn.answers) if up is None else up.count
        self.answer: Answer | None = None

    def ends(self, turn: Turn) -> None:
        """It stands behind all that was told in this turn so far."""
        self.turn, self.count = turn, len(turn.answers)

    def path(self) -> "set[Place | Answer]":
        """It and the records before it in its turn, with the answers that these are pieces of."""
        found: set[Place | Answer] = set()
        place: Place | None = self
        family = self.turn.family
        while place is not None and place.turn.family is family and place not in found:
            found.add(place)
            if place.answer is not None:
                found.add(place.answer)
            place = place.up
        return found


class Answer:
    """An answer of the model, of one record or several.

    Attributes:
        seq: number of the event of its first record.
        time: when that was written, in Unix milliseconds.
        agent: whose model gives it.
        turn: the turn that it belongs to.
        response: the provider's id of it.
        group: what it has in common with other pieces of one response.
        blocks: what was said so far.
        model: the model that gave it.
        usage: what it cost, as it was told last.
        interrupted: it was broken off.
        open: more of it may come.
        asks_only: all of it are calls.
        told: its event was made.
        gone: it was told, and what it said is not remembered.

    """

    __slots__ = (
        "agent",
        "asks_only",
        "blocks",
        "gone",
        "group",
        "interrupted",
        "model",
        "open",
        "response",
        "seq",
        "time",
        "told",
        "turn",
        "usage",
    )

    def __init__(self, record: Event, agent: Agent, response: str | None) -> None:
        """Begin with a record."""
        self.seq, self.time = record.seq, record.time
        self.agent = agent
        self.turn = agent.turn
        self.response = response
        self.group: object = self if response is None else response
        self.blocks: list[Block] = []
        self.model: str | None = None
        self.usage: dict[str, int] | None = None
        self.interrupted = False
        self.open = True
        self.asks_only = self.told = self.gone = False

    @property
    def record(self) -> Event:
        """Its first record, without what that says."""
        return Event(self.seq, "", self.time, None, None, None, False, b"")

    def add(self, blocks: list[Block]) -> list[Block]:
        """Add what a further record says; returned is what of it is new.

        A record that repeats all that was said so far, perhaps with more, adds only that.
        """
        known = len(self.blocks)
        if blocks[:known] == self.blocks:
            blocks = blocks[known:]
        calls = {block["id"] for block in self.blocks if block["type"] == "tool-call"}
        new = [block for block in blocks if block.get("id") not in calls]
        self.blocks += new
        self.asks_only = all(block["type"] == "tool-call" for block in self.blocks)
        return new

    def forget(self) -> None:
        """Remember no more what it said, if that was told."""
        if self.told:
            self.blocks, self.gone = [], True


def taken_back(up: Place, answer: Answer | None) -> bool:
    """Whether answers in the turn of `up` are no part of what is said behind it.

    `answer` is what is said there, None if it is no answer. Pieces of its response, and of those
    that it follows, ran side by side with it and stay. Where answers name no response, those that
    are calls alone are taken for such pieces.
    """
    turn = up.turn
    followed = max(up.count, turn.base)
    left = turn.answers[followed:]
    if turn.id is None or not left:
        return False
    if answer is not None:
        if answer.group in turn.groups:
            return False
        if answer.response is None and answer.asks_only:
            beside = [each for each in left if each.response is None and each.asks_only]
            answer.group = beside[-1].group if beside else answer.group
    own = None if answer is None else answer.group
    return any(turn.groups[each.group] >= followed and each.group is not own for each in left)


class Told(NamedTuple):
    """Something that was told, an event or an answer, and what it stands and falls with."""

    said: Event | Answer
    cause: Place | Answer

    @property
    def seq(self) -> int:
        """Number of the event that tells it."""
        return self.said.seq

    @property
    def compacts(self) -> bool:
        """Whether it is a compaction."""
        return isinstance(self.said, Event) and self.said.type == _COMPACTION


class Story:
    """Remembers what was told in the latest turns."""

    def __init__(self, limit: int = KEPT_BYTES_MAX) -> None:
        """Remember nothing yet, and no more than `limit` bytes at any time."""
        self._limit = limit
        self._turns: deque[Turn] = deque()
        self._size = 0
        self._again = 0

    def begin(self, turn: Turn) -> None:
        """Remember what will be told in a turn."""
        turn.told = []
        self._turns.append(turn)

    def add(self, turn: Turn, said: Event | Answer, cause: Place | Answer) -> None:
        """Remember what is told in a turn; an answer is weighed when it is over."""
        if turn.told is None:
            return
        size = 0
        if isinstance(said, Event):
            # Who reads the event itself makes values of its text, which take several times the
            # room: those are not remembered.
            said, size = replace(said), len(said.raw)
        turn.told.append(Told(said, cause))
        self._weigh(turn, size)

    def told(self, answer: Answer, size: int) -> None:
        """An answer is over, and its event of so many bytes was made."""
        answer.told = True
        if answer.turn.told is None:
            answer.forget()
        else:
            self._weigh(answer.turn, size)

    def _weigh(self, turn: Turn, size: int) -> None:
        """Note how much more of a turn is remembered; the oldest turns are forgotten for it."""
        turn.size += size
        self._size += size
        while self._size > self._limit and self._turns:
            oldest = self._turns.popleft()
            self._size -= oldest.size
            for each in oldest.told or ():
                if isinstance(each.said, Answer):
                    each.said.forget()
            oldest.told, oldest.size = None, 0

    def version(self, up: Place) -> list[Told] | None:
        """What was told in the turn of a record up to it; None: that is not remembered.

        What a compaction there took away is left out.
        """
        turn = up.turn
        if turn.told is None or self._again + turn.size > 2 * self._limit:
            return None
        self._again += turn.size
        path = up.path()
        told = [each for each in turn.told if each.cause in path]
        if any(isinstance(each.said, Answer) and each.said.gone for each in told):
            return None
        last = max((at for at, each in enumerate(told) if each.compacts), default=None)
        if last is None:
            return told
        event = told[last].said
        kept = event.data.get("first_kept") if isinstance(event, Event) else None
        before = [each for each in told[:last] if not each.compacts]
        return [*(each for each in before if kept is not None and each.seq >= kept), *told[last:]]
