"""What is open in a turn, from what was said in it, and the events that close it."""

import copy
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import draft
from perdure.recovery.closers import unanswered
from perdure.store.members import data_of, failure_of

__all__ = ["REASONS", "Book", "Hold", "Said", "check_reason", "check_start", "ending"]

REASONS = ("completed", "aborted", "blocked", "error", "max-tokens")
"""How a turn may end; `interrupted` is for those that nobody ended."""

Said = tuple[str, dict[str, Any]]
"""The type and the data of an event."""

Hold = Callable[[Sequence[Said], str | None, str], object]
"""Accepts events of an agent and a turn, to be stored whatever happens now."""


class Book:
    """What is open in one turn: a step, calls without a result, the turn itself."""

    def __init__(self, session: str, turn: str, agent: str | None) -> None:
        """A turn that begins."""
        self._session = session
        self.turn = turn
        self.agent = agent
        self.steps = 0
        self.step: int | None = None
        self.ended = False
        # Why it never began.
        self.refused: Exception | None = None
        self.calls: dict[str, bool] = {}
        # Reentrant: a signal handler may end the turn that it interrupts.
        self.lock = threading.RLock()

    def check(self, step: int | None = None) -> None:
        """Demand that the turn, and the step if one is named, has not ended.

        Raises:
            InvalidValue: it has.

        """
        if self.refused is not None:
            raise copy.copy(self.refused)
        if self.ended:
            whose = f"of session {values.shown(self._session)}"
            raise InvalidValue(
                "turn",
                f"turn {values.shown(self.turn)} {whose} has ended",
                hint="begin another one: session.turn()",
            )
        if step is not None and step != self.step:
            raise InvalidValue(
                "step",
                f"step {step} of turn {values.shown(self.turn)} has ended",
                hint="begin another one: turn.step()",
            )

    def begin_step(self) -> int:
        """The number of a step that may begin; call `begun` when it has.

        Raises:
            InvalidValue: the turn has ended, or a step is open.

        """
        self.check()
        if self.step is not None:
            raise InvalidValue(
                "step",
                f"step {self.step} of turn {values.shown(self.turn)} is open",
                hint="end it first: step.end(), or leave its context",
            )
        return self.steps + 1

    def note(self, kind: str, data: Any) -> Callable[[], object]:
        """Take note of what was said in this turn; the function that is returned takes it back."""
        if not isinstance(data, dict):
            return _nothing
        if kind == "assistant/message":
            new = [call for call in _asked(data.get("content")) if call not in self.calls]
            self.calls.update(dict.fromkeys(new, False))
            return partial(self._unask, new)
        call = data.get("id")
        if not isinstance(call, str):
            return _nothing
        before = self.calls.get(call)
        if kind == "tool/call":
            self.calls[call] = True
        elif kind == "tool/result":
            self.calls.pop(call, None)
        else:
            return _nothing
        return partial(self._restore, call, before)

    def _unask(self, calls: Sequence[str]) -> None:
        for call in calls:
            if self.calls.get(call) is False:
                del self.calls[call]

    def _restore(self, call: str, before: bool | None) -> None:
        if before is None:
            self.calls.pop(call, None)
        else:
            self.calls[call] = before

    def end_step(self, hold: Hold, step: int, *, answer: bool) -> None:
        """Have `hold` accept the end of the step; with `answer`, results of open calls before it.

        Raises:
            InvalidValue: it has ended.
            As `hold`; nothing has changed then.

        """
        with self.lock:
            self.check(step)
            said = [*(self._answers() if answer else ()), ("step/end", {"step": step})]
            hold(said, self.agent, self.turn)
            self.step = None
            if answer:
                self.calls.clear()

    def end(self, hold: Hold, reason: str, error: Any) -> None:
        """Have `hold` accept what closes all that is open, the turn last.

        Raises:
            InvalidValue: it has ended.
            As `hold`; nothing has changed then.

        """
        with self.lock:
            self.check()
            said = self._answers()
            if self.step is not None:
                said.append(("step/end", {"step": self.step}))
            said.append(("turn/end", data_of("turn/end", {"reason": reason, "error": error})))
            hold(said, self.agent, self.turn)
            self.ended, self.step = True, None
            self.calls.clear()

    def _answers(self) -> list[Said]:
        """A result for each call that has none, in the order in which they were asked for."""
        answers: list[Said] = []
        for call, started in self.calls.items():
            why = unanswered(started=started, given_up=True)
            error = {"code": why.code, "message": why.message}
            members = {"id": call, "content": why.message, "error": error}
            answers.append(("tool/result", data_of("tool/result", members)))
        return answers


def _nothing() -> None:
    pass


def _asked(content: Any) -> list[str]:
    """The ids of the calls that an answer asks for."""
    blocks = content if isinstance(content, list | tuple) else ()
    return [
        block["id"]
        for block in blocks
        if isinstance(block, dict)
        and block.get("type") == "tool-call"
        and isinstance(block.get("id"), str)
    ]


def ending(error: BaseException | None) -> tuple[str, Any]:
    """How a turn ends that `error` leaves: the reason, and what went wrong.

    What is no `Exception` was meant to stop it: interrupts, cancellations, the end of a generator.
    """
    if error is None:
        return "completed", None
    return ("error", failure_of(error)) if isinstance(error, Exception) else ("aborted", None)


def check_start(book: Book, members: dict[str, Any]) -> None:
    """Demand what a turn can begin with, before anything is said for it.

    Raises:
        InvalidValue: an id or a member cannot be kept, or two say different things.

    """
    if members["parent"] is not None and members["replaces"] is not None:
        reason = "another version of a turn follows what that one follows"
        raise InvalidValue("parent", reason, hint="leave out parent, or replaces")
    data = data_of("turn/start", members)
    draft("turn/start", data, time=0, agent=book.agent, turn=book.turn)


def check_reason(reason: object) -> None:
    """Demand a reason for which a turn may end.

    Raises:
        InvalidValue: it is none.

    """
    if reason not in REASONS:
        raise InvalidValue(
            "reason", f"{values.shown(reason)} ends no turn", hint=f"one of {', '.join(REASONS)}"
        )
