"""What a dead writer left open, and the events that close it.

A crashed turn is closed, never cut: what was recorded stays, each unanswered tool call gets an
error result that says whether its body can have run, then the step and the turn end. The result
depends on the recorded events alone, so every reader of the same log sees the same closers.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from perdure.model.event import Draft, Event, draft
from perdure.model.record import Record
from perdure.model.vocabulary import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Error,
    JobEnd,
    StepEnd,
    ToolResult,
    TurnEnd,
)

__all__ = ["OpenWork", "unanswered"]

_MEANINGFUL = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "assistant/message",
        "tool/call",
        "tool/result",
        "job/start",
        "job/end",
    }
)

_NOT_STARTED = (
    "The process ended before this call was started. Nothing of it ran: ask for it again if it is "
    "still wanted."
)
_UNKNOWN = (
    "The process ended while this call was running, so its outcome is unknown. Repeat it only if "
    "it is read-only or idempotent; otherwise find out first what it did."
)
# The same where the process lives on, and ended the turn itself.
_NOT_STARTED_GIVEN_UP = (
    "This call was given up before it was started. Nothing of it ran: ask for it again if it is "
    "still wanted."
)
_UNKNOWN_GIVEN_UP = (
    "This call was given up while it was running, so its outcome is unknown. Repeat it only if it "
    "is read-only or idempotent; otherwise find out first what it did."
)
_JOB = "The process that ran this job ended before the job did."


class _Turn:
    """An open turn: its step and the calls that wait for a result, in the order asked."""

    __slots__ = ("agent", "calls", "step", "turn")

    def __init__(self, agent: str | None, turn: str | None) -> None:
        self.agent = agent
        self.turn = turn
        self.step: Any = None
        self.calls: dict[str, bool] = {}


class _Dumped(msgspec.Struct):
    """What `OpenWork.dump` gives."""

    time: int
    turns: list[tuple[str | None, str | None, Any, list[tuple[str, bool]]]]
    jobs: list[tuple[str, str | None, str | None]]


class OpenWork:
    """A fold over a log that knows at each moment what is open.

    Feed it the records or events in order; it looks only at the few types that open or close
    something and is tolerant of payloads that do not fit the vocabulary.
    """

    def __init__(self) -> None:
        """Nothing is open at the start of a log."""
        self._turns: dict[tuple[str | None, str | None], _Turn] = {}
        self._by_agent: dict[str | None, dict[str | None, _Turn]] = {}
        self._jobs: dict[str, tuple[str | None, str | None]] = {}
        self._time = 0

    def dump(self) -> dict[str, Any]:
        """What is open, as a JSON value for `restored`."""
        return {
            "time": self._time,
            "turns": [
                [turn.agent, turn.turn, turn.step, [*turn.calls.items()]]
                for turn in self._turns.values()
            ],
            "jobs": [[job, *where] for job, where in self._jobs.items()],
        }

    @classmethod
    def restored(cls, dumped: Any) -> "OpenWork":
        """What was open when `dump` was called.

        Raises:
            ValueError: no `dump` gave this.

        """
        try:
            known = msgspec.convert(dumped, _Dumped)
        except msgspec.ValidationError as error:
            raise ValueError(f"not what is open: {error}") from error
        work = cls()
        work._time = known.time
        for agent, name, step, calls in known.turns:
            turn = _Turn(agent, name)
            turn.step = step
            turn.calls = dict(calls)
            work._start(turn)
        work._jobs = {job: (agent, turn) for job, agent, turn in known.jobs}
        return work

    def __bool__(self) -> bool:
        """True while a turn or a job is open."""
        return bool(self._turns or self._jobs)

    @property
    def in_turn(self) -> bool:
        """True while a turn is open, whatever jobs are."""
        return bool(self._turns)

    def record(self, record: Record) -> None:
        """Take the next record into account; runs that open nothing are not expanded."""
        if record.type in _MEANINGFUL:
            for event in record.events():
                self.event(event)
        else:
            fields = record.fields
            self._time = fields.time + sum(fields.dt or ())

    def events(self, events: Iterable[Event]) -> None:
        """Take further events into account."""
        for event in events:
            self.event(event)

    def event(self, event: Event) -> None:
        """Take the next event into account."""
        self._time = event.time
        if event.type not in _MEANINGFUL:
            return
        data = event.data if isinstance(event.data, dict) else {}
        if event.type == "turn/start":
            self._start(_Turn(event.agent, event.turn))
        elif event.type == "job/start":
            if isinstance(data.get("id"), str):
                self._jobs[data["id"]] = (event.agent, event.turn)
        elif event.type == "job/end":
            if isinstance(data.get("id"), str):
                self._jobs.pop(data["id"], None)
        elif event.type == "turn/end":
            self._turns.pop((event.agent, event.turn), None)
            self._by_agent.get(event.agent, {}).pop(event.turn, None)
        else:
            self._within_turn(event, data)

    def _start(self, turn: _Turn) -> None:
        """Open a turn; one that starts again is the newest of its agent."""
        mine = self._by_agent.setdefault(turn.agent, {})
        mine.pop(turn.turn, None)
        mine[turn.turn] = turn
        self._turns.pop((turn.agent, turn.turn), None)
        self._turns[turn.agent, turn.turn] = turn

    def _within_turn(self, event: Event, data: dict[str, Any]) -> None:
        turn = self._turns.get((event.agent, event.turn))
        if turn is None and event.turn is None:
            # An event that names no turn belongs to the one its agent started last.
            turn = next(reversed(self._by_agent.get(event.agent, {}).values()), None)
        if turn is None:
            return
        call = data.get("id")
        if event.type == "step/start":
            turn.step = data.get("step")
        elif event.type == "step/end":
            turn.step = None
        elif event.type == "assistant/message":
            for asked in _calls(data.get("content")):
                turn.calls.setdefault(asked, False)
        elif event.type == "tool/call" and isinstance(call, str):
            turn.calls[call] = True
        elif event.type == "tool/result" and isinstance(call, str):
            turn.calls.pop(call, None)

    def closers(self) -> list[Draft]:
        """The events that close what is open, with the time of the last event.

        Turns come in the order of their start, calls in the order in which they were asked, jobs
        after the turns in the order of their start.
        """
        return [
            draft(
                kind,
                msgspec.to_builtins(payload),
                time=self._time,
                agent=agent,
                turn=turn,
            )
            for kind, payload, agent, turn in self._closers()
        ]

    def _closers(self) -> Iterator[tuple[str, Any, str | None, str | None]]:
        for turn in self._turns.values():
            where = (turn.agent, turn.turn)
            for call, started in turn.calls.items():
                error = unanswered(started=started)
                text = {"type": "text", "text": error.message}
                result = ToolResult(id=call, content=[text], error=error)
                yield "tool/result", result, *where
            if isinstance(turn.step, int):
                yield "step/end", StepEnd(step=turn.step, interrupted=True), *where
            yield "turn/end", TurnEnd(reason="interrupted"), *where
        for job, where in self._jobs.items():
            error = Error(code="JOB_INTERRUPTED", message=_JOB)
            yield "job/end", JobEnd(id=job, status="interrupted", error=error), *where


def unanswered(*, started: bool, given_up: bool = False) -> Error:
    """Why a call has no result; `started` says whether its `tool/call` was recorded.

    `given_up`: its turn was ended by the process that began it, not by the death of that.
    """
    if started:
        text = _UNKNOWN_GIVEN_UP if given_up else _UNKNOWN
        return Error(code=TOOL_OUTCOME_UNKNOWN, message=text)
    text = _NOT_STARTED_GIVEN_UP if given_up else _NOT_STARTED
    return Error(code=TOOL_NOT_STARTED, message=text)


def _calls(content: Any) -> Iterator[str]:
    if isinstance(content, list):
        for block in content:
            if (
                isinstance(block, dict)
                and block.get("type") == "tool-call"
                and isinstance(block.get("id"), str)
            ):
                yield block["id"]
