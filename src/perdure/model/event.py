"""The event: what a caller appends and every reader gets back."""

import re
from functools import cached_property
from typing import Any

import msgspec

from perdure.errors import InvalidValue
from perdure.model import limits, values

__all__ = ["TYPE_PATTERN", "Draft", "Event", "draft"]

TYPE_PATTERN = r"^[a-z][a-z0-9._/-]{0,127}\Z"
_TYPE = re.compile(TYPE_PATTERN)
_class_of = type
"""What something is, whatever it says itself; parameters here are called `type`."""

_seen: set[str] = set()
_SEEN_MAX = 1024
"""Types found valid: a program uses few, and asks about them for every event."""

_known: set[str] = set()
_KNOWN_MAX = 1024
_KNOWN_CHARS_MAX = min(limits.AGENT_CHARS_MAX, limits.TURN_CHARS_MAX, limits.KEY_CHARS_MAX)
"""Names of agents and turns found valid: the same ones come with event after event."""


class Event(msgspec.Struct, frozen=True, dict=True, eq=False):
    """One event of a session.

    Attributes:
        seq: position in the session, 0, 1, 2, … without gaps.
        type: what it is, as in `tool/call`; the log gives no meaning to it.
        time: Unix milliseconds as the caller or its clock said; order is `seq`, never this.
        agent: which agent of the session, or None.
        turn: id of the turn it belongs to, or None.
        key: idempotency key, unique together with `type`, or None.
        ignorable: True if a reader that does not know `type` may skip it.

    """

    seq: int
    type: str
    time: int
    agent: str | None
    turn: str | None
    key: str | None
    ignorable: bool
    raw: bytes
    """JSON text of the data, as stored."""

    @cached_property
    def data(self) -> Any:
        """The data as Python values (dict, list, str, int, float, bool, None).

        Raises:
            InvalidValue: the stored text is not JSON, which perdure itself never writes.

        """
        try:
            return values.decode(self.raw)
        except ValueError as error:
            raise InvalidValue(f"event {self.seq}.data", str(error)) from error

    def as_dict(self) -> dict[str, Any]:
        """A plain dict in the order of the record line; absent fields are left out."""
        out: dict[str, Any] = {"seq": self.seq, "type": self.type, "time": self.time}
        for name in ("agent", "turn", "key"):
            value = getattr(self, name)
            if value is not None:
                out[name] = value
        if self.ignorable:
            out["ignorable"] = True
        out["data"] = self.data
        return out

    def __repr__(self) -> str:
        """The fields that are set, as they were appended."""
        facts = ", ".join(f"{name}={value!r}" for name, value in self.as_dict().items())
        return f"Event({facts})"

    def __eq__(self, other: object) -> bool:
        """Equal when every field and the JSON value of the data are equal."""
        if not isinstance(other, Event):
            return NotImplemented
        return self._identity() == other._identity() and (
            self.raw == other.raw or values.canonical(self.data) == values.canonical(other.data)
        )

    def __ne__(self, other: object) -> bool:
        """The opposite of ==; a Struct brings its own, which compares identity."""
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        """Hash over the envelope; the data is compared on a collision."""
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return (
            self.seq,
            self.type,
            self.time,
            self.agent,
            self.turn,
            self.key,
            self.ignorable,
        )


class Draft(msgspec.Struct, frozen=True, eq=False, gc=False):
    """An accepted event that has no place in the log yet: checked, copied and encoded."""

    type: str
    time: int
    agent: str | None
    turn: str | None
    key: str | None
    ignorable: bool
    value: Any
    raw: bytes

    def at(self, seq: int) -> Event:
        """The event this becomes at `seq`."""
        return Event(
            seq, self.type, self.time, self.agent, self.turn, self.key, self.ignorable, self.raw
        )

    def same_fact(self, event: Event) -> bool:
        """Whether `event` has the same turn and the same JSON value: a repeat, not a conflict."""
        return self.turn == event.turn and (
            self.raw == event.raw or values.canonical(self.value) == values.canonical(event.data)
        )


def draft(
    type: str,  # noqa: A002
    data: Any,
    *,
    time: int,
    agent: str | None = None,
    turn: str | None = None,
    key: str | None = None,
    ignorable: bool = False,
) -> Draft:
    """Check, copy and encode one event at the call.

    Raises:
        InvalidValue: a field or part of the data cannot be kept without loss, or is too large.

    """
    if _class_of(type) is not str or not (type in _seen or _is_type(type)):
        raise InvalidValue(
            "type",
            f"{values.shown(type)} is not an event type",
            hint="lower-case letters, digits and . _ / - after a letter, at most 128 characters",
        )
    if _class_of(time) is not int or not -limits.TIME_MS_MAX <= time <= limits.TIME_MS_MAX:
        raise InvalidValue(
            "time", f"{values.shown(time)} is not a time", hint="integer Unix milliseconds"
        )
    if agent is not None and (_class_of(agent) is not str or agent not in _known):
        _check_name("agent", agent, limits.AGENT_CHARS_MAX)
    if turn is not None and (_class_of(turn) is not str or turn not in _known):
        _check_name("turn", turn, limits.TURN_CHARS_MAX)
    if key is not None:
        _check_text("key", key, limits.KEY_CHARS_MAX)
    if ignorable is not True and ignorable is not False:
        raise InvalidValue("ignorable", f"{values.shown(ignorable)} is not a bool")
    value = values.snapshot(data)
    raw = values.encode(value)
    if len(raw) > limits.DATA_BYTES_MAX:
        raise InvalidValue(
            "data",
            f"{len(raw)} bytes of JSON, at most {limits.DATA_BYTES_MAX} are kept",
            hint="keep large content beside the log (put_blob) and refer to it by its digest",
        )
    return Draft(type, time, agent, turn, key, ignorable, value, raw)


def _is_type(type: str) -> bool:  # noqa: A002
    if _TYPE.match(type) is None:
        return False
    if len(_seen) < _SEEN_MAX:
        _seen.add(type)
    return True


def _check_name(field: str, name: object, chars_max: int) -> None:
    _check_text(field, name, chars_max)
    if isinstance(name, str) and len(name) <= _KNOWN_CHARS_MAX:
        if len(_known) >= _KNOWN_MAX:
            # Turns come and go.
            _known.clear()
        _known.add(name)


def _check_text(field: str, value: object, chars_max: int) -> None:
    # A subclass of str would not come back as what it was.
    if type(value) is not str or not 1 <= len(value) <= chars_max:
        raise InvalidValue(
            field, f"{values.shown(value)} is not a string of 1 to {chars_max} characters"
        )
    if not value.isascii():
        values.check_text(field, value)
