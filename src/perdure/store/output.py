"""A listener of an agent's output that records the session: the agent's loop stays as it is.

Loops tell outputs what happens, to show it: a turn begins, text streams in, a tool runs. The
recorder is one more output. It makes turns and steps of what it hears, in whatever order that
comes, and keeps the promise that matters: no model is asked and no tool runs unrecorded.
"""

import inspect
import re
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import TYPE_PATTERN
from perdure.store.members import Content, Failure, data_of, failure_of
from perdure.store.session import Session
from perdure.store.turns import StepWriting, TurnWriting

__all__ = ["KINDS", "OutputListening", "OutputRecorder"]

R = TypeVar("R")

FAILURES_KEPT = 100
"""Of so many failures, the last ones, `failures` tells."""

_CALLS_KEPT = 1000
"""So many calls are remembered with the turn that they were made in, for results that come late."""

_TYPE = re.compile(TYPE_PATTERN)

KINDS: Mapping[str, str] = {
    "turn-start": "on_turn_start",
    "turn-started": "on_turn_start",
    "user": "on_user",
    "user-message": "on_user",
    "request": "on_request",
    "request-header": "on_request",
    "delta": "on_delta",
    "assistant-delta": "on_delta",
    "text": "on_text",
    "text-delta": "on_text",
    "thinking": "on_thinking",
    "thinking-delta": "on_thinking",
    "message": "on_message",
    "assistant-message": "on_message",
    "tool-call": "on_tool_call",
    "tool-result": "on_tool_result",
    "usage": "on_usage",
    "error": "on_error",
    "turn-end": "on_turn_end",
    "turn-ended": "on_turn_end",
}
"""Which method hears of what, when the recorder is called with a kind; `_` and `/` are as `-`."""

_CHECKPOINTS = frozenset({"on_request", "on_tool_call"})


class OutputListening(ABC, Generic[R]):
    """What is heard, and what it becomes; blocking and awaited recorders differ in `_do`."""

    def __init__(self, session: Any, *, agent: str | None = None, strict: bool = True) -> None:
        """Record the turns of `agent`; None: of the agent without a name.

        With `strict`, `on_request` and `on_tool_call` raise what keeps them from being recorded,
        and what could not be recorded before; nothing else ever raises. Without it nothing does,
        and `failures` alone tells.
        """
        self._session = session
        self._agent = agent
        self._strict = strict
        self._lock = threading.RLock()
        self._turn: TurnWriting[Any] | None = None
        self._step: StepWriting[Any] | None = None
        self._used = False
        self._answered = False
        self._error: Failure | None = None
        self._calls: dict[str, str] = {}
        self._failures: deque[Exception] = deque(maxlen=FAILURES_KEPT)
        self._untold: Exception | None = None

    @property
    def turn(self) -> TurnWriting[Any] | None:
        """The turn that is open, or None."""
        turn = self._turn
        return turn if turn is not None and turn.open else None

    @property
    def failures(self) -> tuple[Exception, ...]:
        """What could not be recorded, the last hundred."""
        return tuple(self._failures)

    @abstractmethod
    def _do(self, action: Callable[[], Any], *, checkpoint: bool = False) -> R:
        """Do what was heard; at a checkpoint, raise what went wrong there and before."""

    def _failed(self, error: Exception, *, told: bool = False) -> None:
        self._failures.append(error)
        if not told:
            self._remember(error)

    def _remember(self, error: BaseException) -> None:
        """Keep what went wrong for the next checkpoint."""
        if isinstance(error, Exception):
            self._untold = self._untold or error

    def _take_untold(self) -> Exception | None:
        untold, self._untold = self._untold, None
        return untold

    # --- what is heard ---------------------------------------------------------------------------

    def on_turn_start(
        self,
        id: str | None = None,
        *,
        parent: str | None = None,
        replaces: str | None = None,
        how: str | None = None,
    ) -> R:
        """A turn begins, as `Session.turn`; one that is open still was aborted."""

        def act() -> Any:
            ended = self._end_turn("aborted", None)
            self._begin_turn(id, parent=parent, replaces=replaces, how=how)
            return ended

        return self._do(act)

    def on_user(self, content: Content, *, source: str | None = None) -> R:
        """The user said something; it begins a turn if none is open."""
        return self._do(lambda: self._turn_now().user(content, source=source))

    def on_request(self, header: Any, *, reason: str | None = None) -> R:
        """The model is about to be asked, which begins a step: durable, or it raises."""

        def act() -> Any:
            step = self._step_now(new=self._used)
            return step.request(header, reason=reason)

        return self._do(act, checkpoint=True)

    def on_delta(
        self, text: str, *, kind: str = "text", index: int = 0, call: str | None = None
    ) -> R:
        """A piece of the answer; without a step, or behind its message, it begins one."""

        def act() -> Any:
            return self._step_now(new=self._answered).delta(text, kind=kind, index=index, call=call)

        return self._do(act)

    def on_text(self, text: str) -> R:
        """A piece of the text of the answer."""
        return self.on_delta(text)

    def on_thinking(self, text: str) -> R:
        """A piece of what the model thought."""
        return self.on_delta(text, kind="thinking")

    def on_message(
        self,
        content: Content,
        *,
        model: str | None = None,
        response: str | None = None,
        usage: dict[str, Any] | None = None,
        interrupted: bool = False,
    ) -> R:
        """The complete answer of a step, as `Step.message`; a second one begins another step."""

        def act() -> Any:
            step = self._step_now(new=self._answered)
            said = step.message(
                content, model=model, response=response, usage=usage, interrupted=interrupted
            )
            self._answered = True
            return said

        return self._do(act)

    def on_tool_call(
        self,
        id: str,
        name: str,
        arguments: Any = None,
        *,
        nested: bool = False,
    ) -> R:
        """A tool is about to run: durable, or it raises; nested ones as `Step.call`."""

        def act() -> Any:
            said = self._step_now().call(id, name, arguments, nested=nested)
            if self._turn is not None:
                self._calls[id] = self._turn.id
            if len(self._calls) > _CALLS_KEPT:
                del self._calls[next(iter(self._calls))]
            return said

        return self._do(act, checkpoint=True)

    def on_tool_result(
        self,
        id: str,
        content: Any,
        *,
        error: Failure | None = None,
    ) -> R:
        """What a tool answered, as `Step.result`; one that comes behind its turn is kept in it."""

        def act() -> Any:
            members = {"id": id, "content": content, "error": failure_of(error)}
            data = data_of("tool/result", members)
            made_in, turn = self._calls.pop(id, None), self.turn
            if turn is not None and made_in in (None, turn.id):
                return turn.buffer("tool/result", data)
            return self._session.buffer("tool/result", data, agent=self._agent, turn=made_in)

        return self._do(act)

    def on_usage(
        self,
        *,
        response: str | None = None,
        model: str | None = None,
        input: int | None = None,  # noqa: A002
        output: int | None = None,
        cached: int | None = None,
        reasoning: int | None = None,
        cost: float | None = None,
        currency: str | None = None,
    ) -> R:
        """What a response cost, as `Session.report_usage`."""

        def act() -> Any:
            return self._session.report_usage(
                response=response,
                model=model,
                input=input,
                output=output,
                cached=cached,
                reasoning=reasoning,
                cost=cost,
                currency=currency,
                agent=self._agent,
                turn=None if self._turn is None else self._turn.id,
            )

        return self._do(act)

    def on_error(self, error: Failure) -> R:
        """Something went wrong; the turn ends with it, unless its end names another."""

        def act() -> None:
            self._error = error

        return self._do(act)

    def on_turn_end(self, reason: str | None = None, *, error: Failure | None = None) -> R:
        """The turn is over: "completed", or "error" after one, unless `reason` says otherwise.

        Without an open turn there is nothing to end.
        """
        return self._do(lambda: self._end_turn(reason, error))

    def on_activity(self, kind: str, facts: Mapping[str, Any]) -> R:
        """Anything else: an event `output/KIND` that readers may skip."""
        name = f"output/{_plain(kind)}"
        known = _TYPE.match(name) is not None
        data = dict(facts) if known else {"kind": values.text(str(kind)), **facts}

        def act() -> Any:
            turn = None if self.turn is None else self.turn.id
            name_or_activity = name if known else "output/activity"
            return self._session.buffer(
                name_or_activity, data, agent=self._agent, turn=turn, ignorable=True
            )

        return self._do(act)

    def __call__(self, kind: str, /, **facts: Any) -> R:
        """Hear of something by its kind: `recorder("tool-call", id="c1", name="bash")`.

        See `KINDS`; a kind that is not there is an activity.
        """
        method = KINDS.get(_plain(kind))
        if method is None:
            return self.on_activity(kind, facts)
        hear: Callable[..., R] = getattr(self, method)
        try:
            inspect.signature(hear).bind(**facts)
        except TypeError as error:
            wrong = InvalidValue(kind, str(error), hint=f"as {method}{inspect.signature(hear)}")
            return self._do(_raising(wrong), checkpoint=method in _CHECKPOINTS)
        return hear(**facts)

    # --- what it becomes -------------------------------------------------------------------------

    def _begin_turn(self, id: str | None = None, **where: str | None) -> TurnWriting[Any]:
        turn: TurnWriting[Any] = self._session.turn(id, agent=self._agent, **where)
        self._turn, self._step, self._error = turn, None, None
        self._used = self._answered = False
        return turn

    def _turn_now(self) -> TurnWriting[Any]:
        return self.turn or self._begin_turn()

    def _step_now(self, *, new: bool = False) -> StepWriting[Any]:
        """The open step, or the next one; what it is asked for is about to be said in it."""
        turn = self._turn_now()
        if self._step is None or not self._step.open or new:
            self._step = turn.next_step()
            self._answered = False
        self._used = True
        return self._step

    def _end_turn(self, reason: str | None, error: Failure | None) -> Any:
        turn, error = self.turn, self._error if error is None else error
        self._error = None
        if turn is None:
            return None
        if reason is None or (reason == "aborted" and error is not None):
            reason = "completed" if error is None else "error"
        return turn.end(reason, error)


def _plain(kind: str) -> str:
    return re.sub(r"[\s_/-]+", "-", str(kind).strip().lower())


def _raising(error: Exception) -> Callable[[], Any]:
    def act() -> None:
        raise error

    return act


class OutputRecorder(OutputListening[None]):
    """A listener of an agent's output that records what it hears in a session.

    Call its methods where a loop tells what happens, or the recorder itself with a kind. Methods
    may be called from any thread.
    """

    def __init__(self, session: Session, *, agent: str | None = None, strict: bool = True) -> None:
        """Record the turns of `agent`; None: of the agent without a name.

        With `strict`, `on_request` and `on_tool_call` raise what keeps them from being recorded,
        and what could not be recorded before; nothing else ever raises. Without it nothing does,
        and `failures` alone tells.
        """
        super().__init__(session, agent=agent, strict=strict)

    def _do(self, action: Callable[[], Any], *, checkpoint: bool = False) -> None:
        raises = checkpoint and self._strict
        with self._lock:
            untold = self._take_untold() if raises else None
            if untold is not None:
                raise untold
            try:
                action()
            except Exception as error:
                self._failed(error, told=raises)
                if raises:
                    raise
