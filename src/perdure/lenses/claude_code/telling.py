"""Makes events of what the records say: answers whole, and everything in its order.

Claude Code writes an answer piece by piece, and lets the results of its first calls come between.
What comes while an answer is open waits behind it, so that each answer is told once and whole.
Memory goes with what waits, with the calls that have no result, and with what `turns` remembers.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from perdure.lenses.claude_code.turns import Agent, Answer, Place, Story, Told, Turn
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Telling"]

_WAITING_MAX = 64
"""More than that does not wait: the oldest open answer is told as it is."""

_CALLS_MAX = 1024

_REMEMBERED = frozenset({"user/message", "tool/call", "tool/result", "context/compacted"})
"""What is told again, beside answers, in another version of its turn."""


class _Call:
    """A call without a result.

    Attributes:
        block: what the model asked for.
        answer: the answer that asks for it.
        told: it was told of as begun.

    """

    __slots__ = ("answer", "block", "told")

    def __init__(self, block: Block, answer: Answer) -> None:
        self.block = block
        self.answer = answer
        self.told = False


class Telling:
    """What is said, and what of it waits.

    Attributes:
        at: where the record stands that is read now; None: it has no place.

    """

    def __init__(self, said: Callable[..., Event]) -> None:
        """Begin with nothing; `said` makes an event."""
        self.at: Place | None = None
        self._said = said
        self._waiting: deque[Event | Answer] = deque()
        self._open: dict[Agent, Answer] = {}
        self._calls: dict[str, _Call] = {}
        self._story = Story()

    def say(
        self,
        record: Event,
        kind: str,
        data: Any,
        agent: Agent,
        turn: Turn | None,
        *,
        cause: Answer | None = None,
    ) -> None:
        """Tell something behind all that waits; it stands and falls with `cause`, or the record."""
        id = None if turn is None else turn.id
        event = self._said(record, kind, data, agent=agent.name, turn=id)
        self._waiting.append(event)
        whole = cause or self.at
        if turn is not None and whole is not None and kind in _REMEMBERED:
            self._story.add(turn, event, whole)

    def flush(self) -> list[Event]:
        """What waits for nothing any more."""
        out: list[Event] = []
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Event):
                out.append(first)
            elif first.open and len(self._waiting) <= _WAITING_MAX:
                break
            else:
                self._close(first)
                out += self._told(first)
            self._waiting.popleft()
        return out

    # --- turns ----------------------------------------------------------------------------------

    def leave(self, record: Event, agent: Agent) -> None:
        """Another turn begins: the open answer is over, and so is the waiting for results.

        Nothing is written where a call begins: of one without a result nobody can say that it never
        ran.
        """
        self.close(agent)
        for id, call in self._calls.items():
            if call.answer.agent is agent:
                self.started(record, id)

    def begin(self, turn: Turn) -> None:
        """Remember what will be told in a turn."""
        self._story.begin(turn)

    def version(self, up: Place) -> list[Told] | None:
        """What was told in the turn of a record up to it; None: that is not remembered."""
        return self._story.version(up)

    def again(self, record: Event, agent: Agent, told: list[Told]) -> None:
        """Tell in the turn that begins with this record what it shares with another version."""
        turn = agent.turn
        for said, cause in told:
            self._story.add(turn, said, cause)
            if isinstance(said, Answer):
                turn.answers.append(said)
                self._waiting += self._made(said, record, turn, again=True)
                continue
            if said.type == "context/compacted":
                turn.base = len(turn.answers)
            where = (record.time, agent.name, turn.id, None, False)
            self._waiting.append(Event(record.seq, said.type, *where, said.raw))

    # --- answers --------------------------------------------------------------------------------

    def answer(self, answer: Answer) -> None:
        """An answer begins, in the turn that its agent is in; the one before is over."""
        agent = answer.agent
        self.close(agent)
        answer.turn = agent.turn
        answer.turn.answers.append(answer)
        self._open[agent] = answer
        self._waiting.append(answer)
        self._story.add(answer.turn, answer, answer)

    def open(self, agent: Agent, response: str | None) -> Answer | None:
        """The open answer of an agent, if it is this response."""
        answer = self._open.get(agent)
        same = answer is not None and response is not None and answer.response == response
        return answer if same else None

    def current(self, agent: Agent) -> Answer | None:
        """The open answer of an agent."""
        return self._open.get(agent)

    def close(self, agent: Agent) -> None:
        """Nothing more comes of the open answer of an agent."""
        answer = self._open.get(agent)
        if answer is not None:
            self._close(answer)

    def close_all(self, record: Event) -> None:
        """Nothing more comes at all behind this record."""
        for answer in tuple(self._open.values()):
            self._close(answer)
        for id in self._calls:
            self.started(record, id)

    def _close(self, answer: Answer) -> None:
        answer.open = False
        if self._open.get(answer.agent) is answer:
            del self._open[answer.agent]

    def _told(self, answer: Answer) -> list[Event]:
        made = self._made(answer, answer.record, answer.turn)
        self._story.told(answer, sum(len(event.raw) for event in made))
        return made

    def _made(
        self, answer: Answer, record: Event, turn: Turn, *, again: bool = False
    ) -> list[Event]:
        """The event of an answer, if it says anything; `again`: what it cost was told before."""
        members = {"model": answer.model, "response": answer.response}
        data: dict[str, Any] = {name: value for name, value in members.items() if value is not None}
        kind, usage = "assistant/message", None if again else answer.usage
        if answer.blocks:
            data = {"content": answer.blocks, **data}
            data |= {} if usage is None else {"usage": usage}
            data |= {"interrupted": True} if answer.interrupted else {}
        elif usage is not None:
            kind, data = "usage", data | usage
        else:
            return []
        return [self._said(record, kind, data, agent=answer.agent.name, turn=turn.id)]

    # --- calls ----------------------------------------------------------------------------------

    def asked(self, record: Event, blocks: list[Block], answer: Answer) -> None:
        """An answer asks for these calls."""
        for block in blocks:
            if block["type"] == "tool-call":
                self._calls[block["id"]] = _Call(block, answer)
        while len(self._calls) > _CALLS_MAX:
            oldest = next(iter(self._calls))
            self.started(record, oldest)
            del self._calls[oldest]

    def started(self, record: Event, id: str | None) -> bool:
        """A call was run, or may have been; False: that was told, or there is no such call."""
        call = None if id is None else self._calls.get(id)
        if call is None or call.told:
            return False
        call.told = True
        data = {name: call.block[name] for name in ("id", "name", "arguments")}
        self.say(record, "tool/call", data, call.answer.agent, call.answer.turn, cause=call.answer)
        return True

    def answered(self, id: str) -> tuple[Block, Answer] | None:
        """A call has its result: what was asked for, and the answer that asked, if it waited."""
        call = self._calls.pop(id, None)
        return None if call is None else (call.block, call.answer)
