"""Batches for a session whose writer nobody keeps: their numbers must continue its log."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Event
from perdure.store.drafts import check_iterable
from perdure.store.session import Session

__all__ = ["append_to", "batch_of", "meant_of"]


def batch_of(events: Iterable[Event | Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Events and mappings as mappings.

    Raises:
        InvalidValue: it is no iterable of such.

    """
    check_iterable("events", events)
    return [event.as_dict() if isinstance(event, Event) else event for event in events]


def meant_of(live: Iterable[Session]) -> Session:
    """Of the writers begun under one id, the one that is stored, else the last."""
    return max(live, key=lambda each: (each.position.seq, each.born))


def append_to(session: Session, batch: Sequence[Mapping[str, Any]]) -> list[Event]:
    """Append events whose numbers, where they carry any, must continue the log.

    Raises:
        InvalidValue: they do not; nothing was written.
        As `Session.append_many`.

    """
    at = None
    bare: list[dict[str, Any]] = []
    for offset, event in enumerate(batch):
        if not isinstance(event, Mapping):
            raise InvalidValue(f"events[{offset}]", f"{values.shown(event)} is not a mapping")
        seq = event.get("seq")
        if "seq" in event:
            at = seq - offset if seq.__class__ is int and at is None else at
            if seq.__class__ is not int or at is None or seq != at + offset:
                raise InvalidValue(
                    f"events[{offset}].seq",
                    f"{values.shown(seq)} does not continue the events before it",
                    hint="leave seq out, or number without gaps",
                )
        bare.append({name: value for name, value in event.items() if name != "seq"})
    if at is not None:
        # What is buffered has its numbers already.
        session.flush()
    return session.append_many(bare, at=at)
