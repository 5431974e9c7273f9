"""What changes a session. What can be sent again is answered then as it was the first time."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.errors import SessionExists, SessionNotFound
from perdure.http.server.calls import Call
from perdure.http.server.handlers.reading import facts_of
from perdure.http.server.writers import Appended, Place, keyed
from perdure.http.wire import events as wire
from perdure.http.wire import session as wire_session
from perdure.model.header import Parent, new_header
from perdure.store import Session
from perdure.store.members import data_of

__all__ = [
    "append_events",
    "create_session",
    "delete_session",
    "fork_session",
    "put_content",
    "release_writer",
    "restore_session",
    "set_title",
    "take_writer",
]

_HEADER = ("cwd", "origin", "depth", "preset", "config", "vocabulary", "created_at")
"""What a header has of what was sent."""


def append_events(call: Call) -> dict[str, Any]:
    """See `Session.append_many`."""
    body: wire.AppendRequest = call.body
    done = call.writers.append(
        call.place, _events(body.events), at=body.at, request=body.request, writer=body.writer
    )
    return _written(call.session, done)


def create_session(call: Call) -> dict[str, Any]:
    """See `Store.create`; the first events are stored with it, or there is no session."""
    body: wire.CreateRequest = call.body
    id = body.id or (call.writers.new_id() if body.request is None else _id_of(body.request))
    place = Place(call.store, call.namespace, id)
    members = {name: getattr(body, name) for name in _HEADER}
    parent = None if body.parent is None else Parent(body.parent.session, body.parent.seq)
    events = _events(body.events)
    if body.request is not None:
        events = keyed(events, body.request)

    def make() -> Session:
        return call.store.create(place.id, parent=parent, **members)

    try:
        done = call.writers.create(place, make, events, body.lease)
    except SessionExists:
        found = None
        if body.request is None and body.created_at is None:
            # Nothing tells that it is the same who asks.
            raise
        # This very request, sent again, perhaps: then header and events are the same.
        with suppress(SessionNotFound):
            found = call.store.inspect(place.id).header
        if found is None:
            raise
        created = found.created_at if body.created_at is None else body.created_at
        wanted = new_header(place.id, parent=parent, **members | {"created_at": created})
        again = call.writers.found_again(place, wanted, events)
        if again is None:
            raise
        done = again
    writer = call.writers.take(place, lease=body.lease).writer if body.writer else None
    return _written(place.id, done, writer)


def _id_of(request: str) -> str:
    """The id of a session that is asked for without one: always the same."""
    return "r-" + hashlib.sha256(request.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _events(events: Sequence[wire.NewEvent]) -> list[dict[str, Any]]:
    """Events as a session takes them; without a time they get one when they are accepted."""
    told = [msgspec.structs.asdict(event) for event in events]
    return [{k: v for k, v in one.items() if k != "time" or v is not None} for one in told]


def _written(session: str, done: Appended, writer: str | None = None) -> dict[str, Any]:
    seqs = [event.seq for event in done.events]
    return {
        "session": session,
        "first": min(seqs),
        "last": max(seqs),
        "seqs": seqs,
        "position": done.position._asdict(),
        "writer": writer,
    }


def take_writer(call: Call) -> dict[str, Any]:
    """Take or keep the right to write."""
    body: wire.WriterRequest = call.body
    lease = call.writers.take(call.place, writer=body.writer, wait=body.wait, lease=body.lease)
    return {
        "session": call.session,
        "writer": lease.writer,
        "seconds": lease.seconds,
        "position": lease.position._asdict(),
        "header": lease.header.as_dict(),
    }


def release_writer(call: Call) -> None:
    """Give the right to write back."""
    query: wire_session.ReleaseQuery = call.query
    call.writers.release(call.place, query.writer, force=query.force)


def set_title(call: Call) -> dict[str, Any]:
    """See `Session.set_title`."""
    body: wire_session.TitleRequest = call.body
    kind = "session/titled"
    event = {"type": kind, "data": data_of(kind, {"title": body.title})}
    done = call.writers.append(call.place, [event], request=body.request, writer=body.writer)
    return _written(call.session, done)


def put_content(call: Call) -> dict[str, Any]:
    """See `Session.put_blob`; it is stored as it arrives."""
    query: wire_session.WriterQuery = call.query
    return {"digest": call.writers.put_content(call.place, query.writer, call.parts())}


def fork_session(call: Call) -> dict[str, Any]:
    """See `Store.fork`."""
    body: wire_session.ForkRequest = call.body
    with call.store.fork(
        call.session, body.at, new_id=body.id, turn=body.turn, agent=body.agent
    ) as child:
        id = child.id
    return facts_of(call, call.store.inspect(id))


def delete_session(call: Call) -> dict[str, Any]:
    """See `Store.delete`."""
    query: wire_session.DeleteQuery = call.query
    going = [call.session]
    if query.subagents:
        going += call.store.descendants(call.session)
    for id in going:
        # A writer that is only kept open for the next request stands in nobody's way.
        call.writers.let_go(call.place._replace(id=id))
    found = call.store.delete(call.session, subagents=query.subagents)
    return {"session": found.id, "deleted_at": found.deleted_at}


def restore_session(call: Call) -> dict[str, Any]:
    """See `Store.restore`."""
    call.store.restore(call.session)
    return facts_of(call, call.store.inspect(call.session))
