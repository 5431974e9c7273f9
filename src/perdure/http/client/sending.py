"""What is sent to be stored: records, as the events that the server makes the same records of."""

from collections.abc import Sequence
from typing import Any

from perdure.http.wire.events import EVENTS_PER_REQUEST_MAX
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header, encode_header
from perdure.model.record import Record

__all__ = ["batches_of", "creation", "request"]

_BYTES = 4 * 1024 * 1024
"""So much data goes into one request, or one record."""

_OF_A_HEADER = ("id", "created_at", "cwd", "parent", "origin", "depth", "preset", "config")


def batches_of(records: Sequence[Record]) -> list[list[Record]]:
    """The records of one commit in as many requests as they need.

    A request ends where a record does, so that the same records come of it.
    """
    batches: list[list[Record]] = [[]]
    many = size = 0
    for record in records:
        new = record.last - record.first + 1
        data = sum(len(event.raw) for event in record.events())
        if batches[-1] and (many + new > EVENTS_PER_REQUEST_MAX or size + data > _BYTES):
            batches.append([])
            many = size = 0
        batches[-1].append(record)
        many, size = many + new, size + data
    return batches


def request(records: Sequence[Record], writer: str) -> bytes:
    """The JSON of an `AppendRequest`."""
    rest = values.encode({"at": records[0].first, "writer": writer})
    return b'{"events":[%b],%b' % (_events(records), rest[1:])


def creation(header: Header, records: Sequence[Record], lease: str) -> bytes:
    """The JSON of a `CreateRequest`, with the right to write it, whose id is `lease`."""
    # Of the line: the values of the header are its holder's, who may have changed them.
    stored = values.decode(encode_header(header))
    told: dict[str, Any] = {name: stored[name] for name in _OF_A_HEADER if name in stored}
    told["vocabulary"] = header.vocabulary
    rest = values.encode({**told, "writer": True, "lease": lease})
    return b'{"events":[%b],%b' % (_events(records), rest[1:])


def _events(records: Sequence[Record]) -> bytes:
    return b",".join(_event(event) for record in records for event in record.events())


def _event(event: Event) -> bytes:
    """The JSON of a `NewEvent`, its data byte for byte."""
    told: dict[str, Any] = {"type": event.type, "time": event.time}
    for name in ("agent", "turn", "key"):
        value = getattr(event, name)
        if value is not None:
            told[name] = value
    if event.ignorable:
        told["ignorable"] = True
    return b'%b,"data":%b}' % (values.encode(told)[:-1], event.raw)
