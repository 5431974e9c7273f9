"""A session as server-sent events: what there is, then each event as it becomes durable.

The id of each is its number, so that a browser, and any client of the protocol, goes on behind the
last one it got (WHATWG HTML, section 9.2.5). A comment now and then shows that somebody is there.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple

import anyio
import msgspec
from starlette.responses import Response, StreamingResponse

from perdure.conversations import Conversation
from perdure.errors import InvalidValue, PerdureError
from perdure.http.operations import LIVE
from perdure.http.problems import shape_of
from perdure.http.server.answers import Threads, encoded
from perdure.http.server.calls import Call
from perdure.http.server.following import Following
from perdure.http.server.handlers.conversing import control_place, conversation_of
from perdure.http.server.writers import Place
from perdure.http.wire import conversing as wire_conversing
from perdure.http.wire import session as wire
from perdure.http.wire.events import event_shape
from perdure.model import values
from perdure.model.limits import TIME_MS_MAX

__all__ = ["SOURCES", "Live", "Read", "Source"]

_EVENTS = 500
_MESSAGES = 50
_BYTES = 256 * 1024
_RETRY_MS = 1_000
"""What clients are told to wait before they come again."""


class Live(NamedTuple):
    """What a stream has besides what it tells.

    Attributes:
        following: wakes whoever follows a session.
        threads: those that read.
        stopping: whether the server is ending.
        alive: seconds after which a stream without news says that it is alive.
        asked: raises `NotAuthenticated` once whoever reads may not any more.

    """

    following: Following
    threads: Threads
    stopping: Callable[[], bool]
    alive: float
    asked: Callable[[], object]

    async def follow(self, call: Call, source: "Source") -> Response:
        """The answer, which goes on until the session is gone, the reader, or the server."""
        headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
        return StreamingResponse(self._parts(call, source), headers=headers, media_type=LIVE)

    async def _parts(self, call: Call, source: "Source") -> AsyncIterator[bytes]:
        yield b"retry: %d\n\n" % _RETRY_MS
        start = source.start
        async with self.following.follow(source.place) as followed:
            while not self.stopping():
                moved = followed.moved()
                try:
                    found = await self.threads.run(self._read, source, start)
                except PerdureError as error:
                    shape = msgspec.json.encode(shape_of(error, owner=call.who.owner))
                    yield b"event: problem\ndata: %b\n\n" % shape
                    return
                start = found.start
                if found.told:
                    yield found.told
                if not found.more and not await _woken(moved, self.alive):
                    yield b": \n\n"

    def _read(self, source: "Source", start: Any) -> "Read":
        # At each turn: a token may have been revoked meanwhile, or have expired.
        self.asked()
        return source.read(start)


class Read(NamedTuple):
    """What was read of a source.

    Attributes:
        told: the parts of the stream.
        start: where to go on.
        more: whether there is more already.

    """

    told: bytes
    start: Any
    more: bool


class Source(NamedTuple):
    """What can be followed.

    Attributes:
        place: the session that grows.
        start: where to begin.
        read: reads from a place on; called in threads.

    """

    place: Place
    start: Any
    read: Callable[[Any], Read]


async def _woken(moved: asyncio.Event, alive: float) -> bool:
    """Wait until the session changed; False: nothing happened for that many seconds."""
    try:
        with anyio.fail_after(alive):
            await moved.wait()
    except TimeoutError:
        return False
    return True


def _events(call: Call) -> Source:
    """The events of a session.

    Raises:
        PerdureError: there is no such session, or no such place in it.

    """
    query: wire.LiveQuery = call.query
    start, named = query.start or 0, "start"
    if call.last_event is not None:
        start, named = _behind(call.last_event), "Last-Event-ID"
    # What it raises says what is wrong, before anything is sent.
    call.store.revision(call.session)
    if start and next(iter(call.store.read_from(call.session, start - 1)), None) is None:
        # Of a log that was there before, perhaps: whoever has it misses what the new one has.
        raise InvalidValue(named, "is ahead of the log", hint="read it from its beginning")
    return Source(call.place, start, partial(_read, call))


def _behind(told: str) -> int:
    """The number of the event that follows the last one that was received.

    Raises:
        InvalidValue: it is no number of an event.

    """
    if not told.isascii() or not told.isdigit() or int(told[:20]) > TIME_MS_MAX:
        raise InvalidValue("Last-Event-ID", f"{values.shown(told)} is no number of an event")
    return int(told) + 1


def _read(call: Call, start: int) -> Read:
    """Events from a number on."""
    query: wire.LiveQuery = call.query
    told: list[bytes] = []
    size = 0
    for looked, event in enumerate(call.store.read_from(call.session, start), 1):
        start = event.seq + 1
        if not query.type or event.type in query.type:
            shape = event_shape(event, exact=query.exact)
            told.append(b"id: %d\ndata: %b\n\n" % (event.seq, shape))
            size += len(shape)
        if size >= _BYTES or looked >= _EVENTS:
            return Read(b"".join(told), start, more=True)
    return Read(b"".join(told), start, more=False)


def _messages(call: Call) -> Source:
    """The messages of a conversation, a page at a time; the id of each is its cursor.

    Raises:
        PerdureError: there is no such conversation, or no such place in it.

    """
    query: wire_conversing.ConversationLiveQuery = call.query
    chat = conversation_of(call)
    start = query.cursor if call.last_event is None else call.last_event
    chat.messages(start, limit=1)
    return Source(control_place(call, chat.id), start, partial(_read_messages, chat))


def _read_messages(chat: Conversation, cursor: str | None) -> Read:
    page = chat.messages(cursor, limit=_MESSAGES)
    if not page.messages:
        return Read(b"", page.cursor, page.more)
    shape = encoded(page.as_dict())
    told = b"id: %b\ndata: %b\n\n" % (page.cursor.encode("ascii"), shape)
    return Read(told, page.cursor, page.more)


SOURCES: dict[str, Callable[[Call], Source]] = {
    "follow_events": _events,
    "follow_messages": _messages,
}
"""What follows what, by the names of operations."""
