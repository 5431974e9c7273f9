"""Events as they are sent and appended."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from perdure.http.wire.shapes import Answer, Body, Id, Key, PositionShape, Request, Seq, Text, Time
from perdure.model import limits, values
from perdure.model.event import TYPE_PATTERN, Event

__all__ = [
    "EVENTS_MAX",
    "EVENTS_PER_REQUEST_MAX",
    "AppendRequest",
    "CreateRequest",
    "EventShape",
    "NewEvent",
    "ParentShape",
    "WriterRequest",
    "WriterShape",
    "Written",
    "event_shape",
    "exact_event",
]

EVENTS_MAX = 1_000
"""Events of one page."""

EVENTS_PER_REQUEST_MAX = 10_000
"""Events of one append."""


class EventShape(Answer, omit_defaults=True):
    """One event, as `perdure log --json` prints it; what it does not have is left out."""

    seq: int
    type: str
    time: int
    data: Any
    agent: str | None = None
    turn: str | None = None
    key: str | None = None
    ignorable: bool = False


def exact_event(event: Event) -> bytes:
    r"""The JSON of an event with its data byte for byte; lone surrogates stand as `\ud800`."""
    parts = [b'{"seq":%d,"type":%b,"time":%d' % (event.seq, _quoted(event.type), event.time)]
    for name in ("agent", "turn", "key"):
        value = getattr(event, name)
        if value is not None:
            parts.append(b',"%b":%b' % (name.encode(), _quoted(value)))
    if event.ignorable:
        parts.append(b',"ignorable":true')
    parts.append(b',"data":%b}' % event.raw)
    return b"".join(parts)


def event_shape(event: Event, *, exact: bool = False) -> bytes:
    """The JSON of an event; lone surrogates become U+FFFD unless it is to be `exact`."""
    if exact or (rb"\u" not in event.raw and _plain(event)):
        return exact_event(event)
    return values.encode(_shown(event.as_dict()))


def _quoted(text: str) -> bytes:
    return values.encode(text)


def _plain(event: Event) -> bool:
    return all(each is None or each.isascii() for each in (event.agent, event.turn, event.key))


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return values.text(value)
    if isinstance(value, dict):
        return {values.text(name): _shown(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    return value


class NewEvent(Body):
    """An event to be appended."""

    type: Annotated[str, Meta(pattern=TYPE_PATTERN.replace(r"\Z", "$"))]
    data: Any = None
    agent: Annotated[str, Meta(min_length=1, max_length=limits.AGENT_CHARS_MAX)] | None = None
    turn: Annotated[str, Meta(min_length=1, max_length=limits.TURN_CHARS_MAX)] | None = None
    key: Key | None = None
    time: Time | None = None
    ignorable: bool = False


_NewEvents = Annotated[list[NewEvent], Meta(min_length=1, max_length=EVENTS_PER_REQUEST_MAX)]


class AppendRequest(Body):
    """Events to be appended in one commit.

    Attributes:
        events: in their order.
        at: the number that the first one has to get. Sent again, what is there already is answered
            as it was the first time.
        request: an id of yours for this request, which becomes the key of the first event, so that
            the request, sent again, changes nothing.
        writer: the right to write that `writer` gave, or null.

    """

    events: _NewEvents
    at: Seq | None = None
    request: Request | None = None
    writer: Text | None = None


class CreateRequest(Body):
    """A new session with its first events; see `Store.create`.

    Sent again with the same `id`, `created_at` and `request` it changes nothing; with the same
    `lease` it gives the same right to write.
    """

    events: _NewEvents
    id: Id | None = None
    created_at: Annotated[int, Meta(ge=0, le=limits.TIME_MS_MAX)] | None = None
    cwd: Text | None = None
    parent: "ParentShape | None" = None
    origin: Literal["subagent"] | None = None
    depth: Annotated[int, Meta(ge=0, le=1_000)] = 0
    preset: Annotated[str, Meta(max_length=1_024)] | None = None
    config: Any = None
    vocabulary: Annotated[str, Meta(max_length=128)] | None = "perdure/1"
    request: Request | None = None
    writer: bool = False
    lease: Request | None = None


class ParentShape(Body):
    """The session that one was spawned from, and the event there."""

    session: Id
    seq: Annotated[int, Meta(ge=-1, le=2**53 - 1)]


class Written(Answer):
    """What was appended.

    Attributes:
        session: its id.
        first: number of the first of the events.
        last: number of the last one.
        seqs: numbers of all; events whose key was known have those they had.
        position: where the log stands.
        writer: the right to write, where one was asked for.

    """

    session: str
    first: int
    last: int
    seqs: list[int]
    position: PositionShape
    writer: str | None = None


class WriterRequest(Body):
    """Asks for the right to write a session, or to keep it (`writer`).

    Attributes:
        writer: the right that is to be kept, or null.
        wait: so many seconds it is waited for.
        lease: an id of yours for the right that is asked for: asked for again with the same id,
            because the answer was lost, it is given again.

    """

    writer: Text | None = None
    wait: Annotated[float, Meta(ge=0, le=20)] = 0.0
    lease: Request | None = None


class WriterShape(Answer):
    """The right to write a session.

    Attributes:
        session: its id.
        writer: what every append has to carry.
        seconds: so long it holds after the last request that carried it.
        position: where the log stands.
        header: the session's header.

    """

    session: str
    writer: str
    seconds: float
    position: PositionShape
    header: dict[str, Any]
