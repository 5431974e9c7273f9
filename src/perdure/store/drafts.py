"""From what a caller hands in to drafts: checked, encoded, and his no longer."""

from collections.abc import Iterable, Mapping
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Draft, draft

__all__ = ["check_iterable", "drafts_of"]

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
    drafts: list[Draft] = []
    for event in events:
        try:
            drafts.append(_draft_of(event, now))
        except InvalidValue as error:
            place = f"events[{len(drafts)}]{error.path}"
            raise InvalidValue(place, error.reason, hint=error.hint) from None
    return drafts


def _draft_of(event: Mapping[str, Any], now: int) -> Draft:
    """A draft of one mapping.

    Raises:
        InvalidValue: with the path from the mapping on, as in `.data.score`.

    """
    if type(event) is not dict and not isinstance(event, Mapping):
        raise InvalidValue("", f"{values.shown(event)} is not a mapping", hint='{"type": …, …}')
    if not event.keys() <= _MEMBERS:
        foreign = [name for name in event if name not in _MEMBERS]
        if foreign:
            raise InvalidValue(f"[{values.shown(foreign[0])}]", "an event has no such member")
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
        raise InvalidValue(f".{error.path}", error.reason, hint=error.hint) from None
