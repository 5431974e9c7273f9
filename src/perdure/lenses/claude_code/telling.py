"""Makes events of what the records say: answers whole, and everything in its order.

Claude Code writes an answer piece by piece, and lets the results of its first calls come between.
What comes while an answer is open waits behind it, so that each answer is told once and whole.
Memory goes with what waits, and with the calls that have no result.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from perdure.lenses.claude_code.chain import Agent
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Answer", "Telling"]

_WAITING_MAX = 64
"""More than that does not wait: the oldest open answer is told as it is."""

_CALLS_MAX = 1024


class Answer:
    """An answer of the model, of one record or several.

    Attributes:
        record: its first record.
        agent: whose model gives it.
        turn: the turn that it belongs to.
        response: the provider's id of it.
        blocks: what was said so far.
        model: the model that gave it.
        usage: what it cost, as it was told last.
        interrupted: it was broken off.
        open: more of it may come.

    """

    __slots__ = (
        "agent",
        "blocks",
        "interrupted",
        "model",
        "open",
        "record",
        "response",
        "turn",
        "usage",
    )

    def __init__(self, record: Event, agent: Agent, response: str | None) -> None:
        """Begin with a record."""
        self.record = record
        self.agent = agent
        self.turn = agent.turn
        self.response = response
        self.blocks: list[Block] = []
        self.model: str | None = None
        self.usage: dict[str, int] | None = None
        self.interrupted = False
        self.open = True

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
        return new


class _Call:
    """A call without a result, and not known to have been run."""

    __slots__ = ("agent", "block", "turn")

    def __init__(self, block: Block, agent: Agent, turn: str | None) -> None:
        self.block = block
        self.agent = agent
        self.turn = turn


class Telling:
    """What is said, and what of it waits."""

    def __init__(self, said: Callable[..., Event]) -> None:
        """Begin with nothing; `said` makes an event."""
        self._said = said
        self._waiting: deque[Event | Answer] = deque()
        self._open: dict[Agent, Answer] = {}
        self._calls: dict[str, _Call] = {}

    def say(self, record: Event, kind: str, data: Any, agent: Agent, turn: str | None) -> None:
        """Tell something behind all that waits."""
        self._waiting.append(self._said(record, kind, data, agent=agent.name, turn=turn))

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

    # --- answers --------------------------------------------------------------------------------

    def answer(self, record: Event, agent: Agent, response: str | None) -> Answer:
        """Begin an answer; the one before is over."""
        self.close(agent)
        answer = self._open[agent] = Answer(record, agent, response)
        self._waiting.append(answer)
        return answer

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

    def close_all(self) -> None:
        """Nothing more comes at all."""
        for answer in tuple(self._open.values()):
            self._close(answer)

    def _close(self, answer: Answer) -> None:
        answer.open = False
        if self._open.get(answer.agent) is answer:
            del self._open[answer.agent]

    def _told(self, answer: Answer) -> list[Event]:
        members = {"model": answer.model, "response": answer.response}
        data: dict[str, Any] = {name: value for name, value in members.items() if value is not None}
        kind, usage = "assistant/message", answer.usage
        if answer.blocks:
            data = {"content": answer.blocks, **data}
            data |= {} if usage is None else {"usage": usage}
            data |= {"interrupted": True} if answer.interrupted else {}
        elif usage is not None:
            kind, data = "usage", data | usage
        else:
            return []
        name, turn = answer.agent.name, answer.turn
        return [self._said(answer.record, kind, data, agent=name, turn=turn)]

    # --- calls ----------------------------------------------------------------------------------

    def asked(self, blocks: list[Block], agent: Agent, turn: str | None) -> None:
        """An answer asks for these calls."""
        for block in blocks:
            if block["type"] == "tool-call":
                self._calls[block["id"]] = _Call(block, agent, turn)
        while len(self._calls) > _CALLS_MAX:
            del self._calls[next(iter(self._calls))]

    def started(self, record: Event, id: str | None) -> bool:
        """A record shows that a call was run; False: that is known, or there is no such call."""
        call = None if id is None else self._calls.pop(id, None)
        if call is None:
            return False
        data = {name: call.block[name] for name in ("id", "name", "arguments")}
        self.say(record, "tool/call", data, call.agent, call.turn)
        return True

    def asking(self, id: str) -> Block | None:
        """The block of a call that is not known to have been run."""
        call = self._calls.get(id)
        return None if call is None else call.block

    def answered(self, id: str) -> None:
        """A call has its result, and was not run."""
        self._calls.pop(id, None)
