"""From what a caller hands in to drafts: checked, encoded, and his no longer."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Draft, draft

__all__ = ["check_iterable", "draft_of", "drafts_of"]

_MEMBERS = frozenset({"type", "data", "agent", "turn", "key", "time", "ignorable"})


def check_iterable(name: str, value: object) -> None:
    """Refuse what cannot be iterated.

    Raises:
        InvalidValue: it cannot.

    """
    if not isinstance(value, Iterable):
        raise InvalidValue(name, f"{values.shown(value)} is no list of events", hint="[{…}, …]")


def drafts_of(events: Iterable[Mapping[str, Any]], now: int) -> list[Draft]:
    """A draft of each mapping; `now` (Unix milliseconds) where it has no time.

    Raises:
        InvalidValue: with the path to the offender, as in `events[3].data.score`.

    """
    check_iterable("events", events)
    return [draft_of(event, now, number) for number, event in enumerate(events)]


def draft_of(event: Mapping[str, Any], now: int, number: int) -> Draft:
    """A draft of one mapping, which is number `number` of its batch."""
    if type(event) is not dict and not isinstance(event, Mapping):
        raise InvalidValue(
            f"events[{number}]", f"{values.shown(event)} is not a mapping", hint='{"type": …, …}'
        )
    foreign = event.keys() - _MEMBERS
    if foreign:
        name = values.shown(foreign.pop())
        raise InvalidValue(f"events[{number}][{name}]", "an event has no such member")
    take = event.get
    try:
        return draft(
            take("type"),  # type: ignore[arg-type]
            take("data"),
            time=take("time", now),
            agent=take("agent"),
            turn=take("turn"),
            key=take("key"),
            ignorable=take("ignorable", False),
        )
    except InvalidValue as error:
        place = f"events[{number}].{error.path}"
        raise InvalidValue(place, error.reason, hint=error.hint) from None
