"""What a session says."""

from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.errors import PerdureError, SessionDamaged
from perdure.http.problems import Discretion, shape_of
from perdure.http.server.calls import Call, Encoded, Stream
from perdure.http.wire import session as wire
from perdure.http.wire.events import event_shape
from perdure.model import values
from perdure.model.event import Event
from perdure.recovery.walk import Problem
from perdure.store import Inspection

__all__ = [
    "branches",
    "facts_of",
    "get_session",
    "messages",
    "raw_lines",
    "read_events",
    "stream_events",
    "verify_session",
]

_PAGE_BYTES = 4 * 1024 * 1024
"""A page ends behind the event with which it gets larger than this."""

_LOOKED_AT_MAX = 20_000
"""So many events are read for one page at most, however few of them are wanted."""


def get_session(call: Call) -> dict[str, Any]:
    """See `Store.inspect`."""
    query: wire.SessionQuery = call.query
    found = call.store.inspect(call.session)
    return facts_of(call, found, full=query.full)


def facts_of(call: Call, found: Inspection, *, full: bool = False) -> dict[str, Any]:
    """A session as it is answered."""
    may = Discretion(call.who.owner)
    header, holder = found.header, may.holder(found.holder)
    # Without `full` nothing is read for it but a tail that a crash left.
    position = found.position
    problems: list[Problem] = found.problems if full or header is None else []
    state = None
    if full and header is not None and not found.damaged:
        state = found.state.as_dict()
    return {
        "session": found.id,
        "status": found.status,
        "header": None if header is None else header.as_dict(),
        "position": None if position is None else position._asdict(),
        "holder": None if holder is None else holder._asdict(),
        "problems": [may.problem(each)._asdict() for each in problems],
        "closers": [event.as_dict() for event in found.closers] if full else [],
        "state": state,
    }


def read_events(call: Call) -> Encoded:
    """A page of events: as many as were asked for, or as are not too much at once."""
    query: wire.EventsQuery = call.query
    start = query.start
    if query.last:
        position = call.store.inspect(call.session).position
        start = max(0, (-1 if position is None else position.seq) + 1 - query.limit)
    told: list[bytes] = []
    size, looked, following, problem = 0, 0, None, None
    try:
        for event in call.store.read_from(call.session, start):
            if len(told) == query.limit or size > _PAGE_BYTES or looked >= _LOOKED_AT_MAX:
                following = event.seq
                break
            looked += 1
            if _wanted(event, query):
                told.append(event_shape(event, exact=query.exact))
                size += len(told[-1])
    except SessionDamaged as error:
        problem = Discretion(call.who.owner).reason(error.kind, error.reason)
    rest = values.encode({"next": following, "problem": problem})
    return Encoded(b'{"events":[' + b",".join(told) + b"]," + rest[1:])


def _wanted(event: Event, query: wire.EventsQuery) -> bool:
    if query.type and event.type not in query.type:
        return False
    return query.agent in (None, event.agent) and query.turn in (None, event.turn)


def stream_events(call: Call) -> Stream:
    """All events from one on; an error that comes later is the last line."""
    query: wire.LiveQuery = call.query
    found = call.store.read_from(call.session, query.start or 0, query.type or None)
    return Stream(_lines(call, found, exact=query.exact))


def _lines(call: Call, events: Iterator[Event], *, exact: bool) -> Iterator[bytes]:
    try:
        for event in events:
            yield event_shape(event, exact=exact) + b"\n"
    except PerdureError as error:
        shape = shape_of(error, owner=call.who.owner)
        yield msgspec.json.encode(shape) + b"\n"


def raw_lines(call: Call) -> Stream:
    """The stored lines; a place that holds none is a line with the key `problem`."""
    query: wire.RawQuery = call.query
    found = call.store.raw(call.session, query.start)
    return Stream(_raw(found, Discretion(call.who.owner)))


def _raw(lines: Iterator[bytes | Problem], may: Discretion) -> Iterator[bytes]:
    for line in lines:
        if isinstance(line, bytes):
            yield line if line.endswith(b"\n") else line + b"\n"
        else:
            yield values.encode({"problem": may.problem(line)._asdict()}) + b"\n"


def messages(call: Call) -> dict[str, Any]:
    """See `Session.messages`."""
    query: wire.MessagesQuery = call.query
    found = call.store.inspect(call.session)
    told = found.messages(query.agent, at=query.at, format=query.format)
    body = {"session": found.id, "agent": query.agent, "format": query.format}
    return {**body, "messages": told}


def branches(call: Call) -> dict[str, Any]:
    """See `Session.branches`."""
    query: wire.BranchesQuery = call.query
    found = call.store.inspect(call.session)
    told = found.branches() if query.agent is None else found.branches(query.agent)
    return {"branches": told}


def verify_session(call: Call) -> dict[str, Any]:
    """See `Store.verify`."""
    return Discretion(call.who.owner).report(call.store.verify(call.session)).as_dict()
