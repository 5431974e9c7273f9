"""The ledger of effects: what must not happen twice is written down before and after it happens.

An `effect/intent` is durable before the action runs, an `effect/outcome` follows it. The first
attempt has the caller's key, a further one the key with its number behind it, so the log tells
every attempt. An intent without an outcome means that nobody knows whether it happened.
"""

import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from perdure.errors import EffectFailed, EffectUnknown, InvalidValue
from perdure.model import values
from perdure.model.event import Event, draft
from perdure.model.limits import KEY_CHARS_MAX
from perdure.model.vocabulary import EffectOutcome, fitting
from perdure.store.members import Failure, data_of, failure_of

__all__ = [
    "EFFECT_NOT_STARTED",
    "INTENT",
    "OUTCOME",
    "Attempt",
    "Find",
    "Gates",
    "check_action",
    "check_key",
    "completed",
    "failed",
    "happened",
    "key_of",
    "known_value",
    "latest",
    "not_awaited",
    "settlement",
]

INTENT = "effect/intent"
OUTCOME = "effect/outcome"

EFFECT_NOT_STARTED = "EFFECT_NOT_STARTED"
"""Code of an outcome that says that the action never ran: asked again, it runs."""

_FURTHER = re.compile(r" \(attempt \d+\)\Z")
_ROOM = 32
"""Characters that the number of an attempt may need behind a key."""

Find = Callable[[str, str], Event | None]
"""The event of a (type, key), stored or about to be; None if there is none."""


class Attempt(NamedTuple):
    """The last attempt at an effect.

    Attributes:
        number: which one, from 1; 0 if there was none.
        intent: what says that it began, or None.
        outcome: what says how it ended, or None.

    """

    number: int
    intent: Event | None
    outcome: Event | None


def check_key(key: object) -> str:
    """Demand a key that leaves room for the number of an attempt.

    Raises:
        InvalidValue: it does not, or it looks like one with a number.

    """
    most = KEY_CHARS_MAX - _ROOM
    if not isinstance(key, str) or not 1 <= len(key) <= most:
        raise InvalidValue("key", f"{values.shown(key)} is not a string of 1 to {most} characters")
    if _FURTHER.search(key):
        raise InvalidValue(
            "key",
            f"{values.shown(key)} is what a further attempt at another effect is called",
            hint="end it in another way",
        )
    return key


def check_action(action: object, *, awaits: bool) -> None:
    """Demand what can be called for its value; `awaits` says whether coroutines are awaited.

    Raises:
        InvalidValue: it cannot, or a call of it would do nothing yet.

    """
    if not callable(action):
        hint = "a function without parameters, as in lambda: send(mail)"
        raise InvalidValue("action", f"{values.shown(action)} cannot be called", hint=hint)
    asked: Any = action
    while isinstance(asked, functools.partial):
        asked = asked.func
    for each in (asked, getattr(asked, "__call__", None)):  # noqa: B004 - what it is, not whether
        if inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each):
            reason = f"{values.shown(action)} makes a generator: a call of it does nothing yet"
            raise InvalidValue("action", reason, hint="a function that does it and returns")
        if not awaits and inspect.iscoroutinefunction(each):
            reason = f"{values.shown(action)} is a coroutine function, which nobody awaits here"
            raise InvalidValue("action", reason, hint=_AWAITED)


_AWAITED = "await it with the session of perdure.aio, or give a function that does it"


def not_awaited(value: Any) -> tuple[InvalidValue, dict[str, Any] | None]:
    """What is wrong with an action that returned an awaitable, and the outcome that is known.

    A coroutine was not begun, and is not any more. Of what else can be awaited nobody knows.
    """
    reason = f"{values.shown(value)} has to be awaited, which nobody does here"
    wrong = InvalidValue("action", reason, hint=_AWAITED)
    if not inspect.iscoroutine(value) or inspect.getcoroutinestate(value) != "CORO_CREATED":
        return wrong, None
    value.close()
    return wrong, failed({"code": EFFECT_NOT_STARTED, "message": "It was never awaited."})


def key_of(key: str, number: int) -> str:
    """The key of the events of an attempt."""
    return key if number == 1 else f"{key} (attempt {number})"


_GAP_MAX = 4
"""So many attempts may be missing in a row."""


def latest(find: Find, key: str) -> Attempt:
    """The last attempt at an effect.

    An outcome stands for its intent: of a log that was damaged one may be left and not the other,
    and what has happened must not happen again.
    """
    last = Attempt(0, None, None)
    number, missed = 0, 0
    while missed < _GAP_MAX:
        number += 1
        name = key_of(key, number)
        outcome = find(OUTCOME, name)
        intent = find(INTENT, name) or outcome
        if intent is None:
            missed += 1
        else:
            last, missed = Attempt(number, intent, outcome), 0
    return last


class Known(NamedTuple):
    """The value that a completed effect had."""

    value: Any


def known_value(session: str, key: str, last: Attempt, *, retry: bool) -> Known | None:
    """What is known of an effect; None: it may be run.

    Raises:
        EffectUnknown: it was begun and nothing says how it ended.
        EffectFailed: it failed.

    """
    if last.intent is None:
        return None
    outcome = fitting(last.outcome) if last.outcome is not None else None
    if isinstance(outcome, EffectOutcome):
        if outcome.status == "completed":
            # Whoever gets it may change it.
            return Known(values.snapshot(outcome.value))
        error = outcome.error
        if retry or (error is not None and error.code == EFFECT_NOT_STARTED):
            return None
        code, message = (error.code, error.message) if error else (outcome.status, "")
        raise EffectFailed(session, key, failure=code, reason=message)
    if retry:
        return None
    raise EffectUnknown(session, key, attempt=last.number, begun_at=last.intent.time)


def completed(value: Any) -> dict[str, Any]:
    """The data of the outcome of an action that returned `value`.

    Raises:
        InvalidValue: it cannot be kept as JSON, with the path to the offender.

    """
    data = {"status": "completed", "value": value}
    if value is None:
        del data["value"]
    try:
        made: dict[str, Any] = draft(OUTCOME, data, time=0).value
    except InvalidValue as error:
        raise InvalidValue(
            error.path.removeprefix("data."), error.reason, hint=error.hint
        ) from None
    return made


def happened(wrong: InvalidValue) -> InvalidValue:
    """What is wrong with the value of an effect that has happened."""
    reason = f"{wrong.reason}; the effect has happened, and null is kept for its value"
    return InvalidValue(wrong.path, reason, hint=wrong.hint)


def failed(error: Failure) -> dict[str, Any]:
    """The data of the outcome of an action that raised."""
    return data_of(OUTCOME, {"status": "failed", "error": failure_of(error)})


def settlement(
    session: str, key: str, last: Attempt, value: Any, error: Failure | None
) -> dict[str, Any]:
    """The event that says how the last attempt ended: its data and envelope.

    Raises:
        InvalidValue: nothing was begun, or the value cannot be kept as JSON.

    """
    if last.intent is None:
        raise InvalidValue(
            "key", f"no effect {values.shown(key)} was begun in session {values.shown(session)}"
        )
    data = completed(value) if error is None else failed(error)
    envelope = {"agent": last.intent.agent, "turn": last.intent.turn}
    return {"data": data, **envelope, "key": key_of(key, last.number)}


class Gates:
    """Lets one thread at a time work at a key; the same thread may come again."""

    def __init__(self) -> None:
        """Nobody works."""
        self._mutex = threading.RLock()
        self._gates: dict[str, tuple[threading.RLock, int]] = {}

    @contextmanager
    def only(self, key: str) -> Iterator[bool]:
        """Wait for the others, then be the only one; False: this thread works at it already."""
        with self._mutex:
            gate, users = self._gates.get(key, (threading.RLock(), 0))
            self._gates[key] = (gate, users + 1)
        try:
            # Before it is taken: whether this thread has it cannot change meanwhile.
            alone = not gate._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
            with gate:
                yield alone
        finally:
            with self._mutex:
                gate, users = self._gates.pop(key)
                if users > 1:
                    self._gates[key] = (gate, users - 1)
