"""Events as the server streams them: exact, in bounded memory, and no break taken for the end."""

from collections.abc import Collection, Iterator

import msgspec

from perdure.errors import InvalidValue, PerdureError, ServerFaulty, ServerUnavailable
from perdure.http.client.answers import error_in
from perdure.http.client.asking import Asking
from perdure.http.client.links import Stream
from perdure.model import values
from perdure.model.event import Event
from perdure.store.queue import Keys
from perdure.store.reading import Pages

__all__ = ["EventPages", "event_of", "keys_in"]

_DATA = b',"data":'
"""No string of JSON has this: its quotes would be escaped. So the first one begins the data."""

_BEGINS = b'{"seq":'
_TYPES_MAX = 50
"""More types than that are sorted out here."""


class _Line(msgspec.Struct):
    """An event; its data is the last member."""

    seq: int
    type: str
    time: int
    agent: str | None = None
    turn: str | None = None
    key: str | None = None
    ignorable: bool = False
    data: msgspec.Raw = msgspec.Raw(b"null")


_lines = msgspec.json.Decoder(_Line)


class EventPages(Pages):
    """Reads events of the sessions of one namespace from any number on."""

    def __init__(self, asking: Asking) -> None:
        """Nothing is asked."""
        self._asking = asking

    def read(self, id: str, seq: int, types: Collection[str] | None) -> Iterator[Event]:
        """See `Store.read_from`; the server verifies what it sends.

        Where the connection breaks it goes on behind the last event.
        """
        if seq.__class__ is not int or seq < 0:
            raise InvalidValue(
                "seq", f"{values.shown(seq)} is not a sequence number", hint="0, 1, 2, …"
            )
        if isinstance(types, str):
            raise InvalidValue("types", "is one string", hint="a list or a set of event types")
        # Begun now: whoever asks for a session that is not there is told at once.
        return self._streamed(id, seq, types, self._begin(id, seq, types))

    def _begin(self, id: str, seq: int, types: Collection[str] | None) -> Stream:
        query = [("start", str(seq)), ("exact", "true")]
        if types is not None and len(types) <= _TYPES_MAX:
            query += [("type", each) for each in types if isinstance(each, str)]
        return self._asking.open("stream_events", id, query)

    def _streamed(
        self, id: str, seq: int, types: Collection[str] | None, stream: Stream
    ) -> Iterator[Event]:
        while True:
            begun = seq
            with stream:
                try:
                    for lines in stream.lines():
                        for line in lines:
                            event = event_of(self._asking.url, line)
                            if event.seq < seq or (types is None and event.seq != seq):
                                raise _strange(self._asking.url, line)
                            if types is None or event.type in types:
                                yield event
                            seq = event.seq + 1
                    return
                except ServerUnavailable as error:
                    # Without any progress it would go on like that.
                    if seq == begun or not error.retryable:
                        raise
            stream = self._begin(id, seq, types)


def event_of(url: str, line: bytes) -> Event:
    """The event that a line of a stream is.

    Raises:
        ServerFaulty: it is none.
        PerdureError: the server says in it why no more come.

    """
    at = line.find(_DATA)
    if not line.startswith(_BEGINS) or at < 0 or not line.endswith(b"}\n"):
        raise _told(url, line)
    head = _read(line)
    if head is None:
        raise _told(url, line)
    return Event(
        head.seq,
        head.type,
        head.time,
        head.agent,
        head.turn,
        head.key,
        head.ignorable,
        line[at + len(_DATA) : -2],
    )


def _read(line: bytes) -> _Line | None:
    try:
        return _lines.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    try:
        # Lone surrogates. The data is taken from the line: only whether it is JSON counts here.
        told = values.decode(line)
        return msgspec.convert({**told, "data": msgspec.Raw(b"null")}, _Line)
    except (ValueError, TypeError, UnicodeEncodeError):
        return None


def _told(url: str, line: bytes) -> PerdureError:
    """What a line says that is no event."""
    try:
        error = error_in(values.decode(line))
    except ValueError:
        error = None
    return _strange(url, line) if error is None else error


def _strange(url: str, line: bytes) -> ServerFaulty:
    return ServerFaulty(url, f"a line of its answer is not the next event: {line[:80]!r}")


def keys_in(events: Iterator[Event]) -> Keys:
    """Which events hold which keys."""
    keys: Keys = {}
    for event in events:
        if event.key is not None:
            keys.setdefault((event.type, event.key), event.seq)
    return keys
