"""Results of calls, as blocks of messages or as records of their own."""

from typing import Any

from perdure.lenses.claude_code.content import Part, result_of, was_run
from perdure.lenses.claude_code.telling import Telling
from perdure.lenses.claude_code.turns import Answer, Place, Turn
from perdure.lenses.pieces import ident
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Results"]

_ENDED = {"completed": "completed", "failed": "failed", "killed": "cancelled"}
"""How Claude Code says that a sub-agent ended, and how perdure does."""


class Results:
    """Reads results, and what they tell of sub-agents."""

    def __init__(self, telling: Telling) -> None:
        """Tell of them to `telling`."""
        self._telling = telling

    def read(self, event: Event, record: dict[str, Any], at: Place, part: Part) -> bool:
        """Tell of a result that stands in a record; False: nothing says of which call it is."""
        agent = at.agent
        id = ident(part.get("tool_use_id"))
        if id is None and agent.unnamed:
            id = agent.unnamed.popleft()
        id = id or ident(record.get("sourceToolUseID"))
        if id is None:
            return False
        outcome = record.get("toolUseResult")
        if was_run(part, outcome):
            self._telling.started(event, id)
        call, answer = self._telling.answered(id) or (None, None)
        turn = at.turn if answer is None else _turn_of(at, answer)
        blocks, error = result_of(part, outcome)
        data: dict[str, Any] = {"id": id, "content": blocks}
        data |= {} if error is None else {"error": error}
        self._telling.say(event, "tool/result", data, agent, turn, cause=answer)
        if isinstance(outcome, dict):
            self._subagent(event, at, turn, outcome, call)
        return True

    def _subagent(
        self,
        event: Event,
        at: Place,
        turn: Turn,
        outcome: dict[str, Any],
        call: Block | None,
    ) -> None:
        """The result of a call that another agent worked on names it."""
        agent = at.agent
        id, status = ident(outcome.get("agentId")), outcome.get("status")
        if id is None or not isinstance(status, str):
            return
        arguments = {} if call is None else call["arguments"]
        told = {"name": arguments.get("subagent_type"), "task": outcome.get("prompt")}
        known = {name: text for name, text in told.items() if isinstance(text, str) and text}
        self._telling.say(event, "subagent/start", {"id": id, **known}, agent, turn)
        if status in _ENDED:
            data = {"id": id, "status": _ENDED[status]}
            self._telling.say(event, "subagent/end", data, agent, turn)


def _turn_of(at: Place, answer: Answer) -> Turn:
    """The turn of a result: that of the record, or another version of it that has the call too."""
    now = at.agent.turn
    other = answer.turn is not now and answer.turn.family is now.family
    return now if other and answer in now.answers else at.turn
