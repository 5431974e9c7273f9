"""What of a session can be searched: the texts of its events, each with what it is.

An event is a passage for each text that somebody may look for. An answer that was streamed and
never came is one as well: its pieces are gathered, and are a passage of their own if the log ends
before the answer. So what a log holds does not depend on how often it was read on the way.
"""

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from perdure.model.event import Event

__all__ = ["KINDS", "VERSION", "Passage", "Passages", "digest_of"]

VERSION = 1
"""Of what is a passage: what another version read has to be read anew."""

KINDS = (
    "user",
    "assistant",
    "thinking",
    "tool-call",
    "tool-result",
    "error",
    "unfinished",
    "job",
    "channel",
    "trigger",
    "subagent",
    "state",
    "artifact",
    "summary",
    "title",
)
"""What a passage is."""

_DEPTH_MAX = 64
"""Values nested deeper than this say nothing that people look for."""

_BITS_MAX = 1024


class Passage(NamedTuple):
    """A text of a session that can be found.

    Attributes:
        seq: number of its event.
        kind: one of `KINDS`.
        text: what is searched.
        agent: whose event it is, or None.
        time: of the event, Unix milliseconds.
        turn: of the event, or None.
        call: id of the tool call that it is of, or None; two passages of the kind "tool-call" with
            the same one say the same.

    """

    seq: int
    kind: str
    text: str
    agent: str | None
    time: int
    turn: str | None
    call: str | None = None

    @property
    def digest(self) -> int:
        """What it is and what it says, in a signed integer of 64 bits."""
        return digest_of(f"{self.kind}\0{self.text}")


def digest_of(text: str) -> int:
    """A text in a signed integer of 64 bits, which another one has by chance alone."""
    found = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(found, "big", signed=True)


_Stream = tuple[str | None, str | None, str]


class Passages:
    """Reads the events of one session, in their order.

    Attributes:
        floor: number of the first event that has to be read again with what follows: a piece of an
            answer that has not come yet; None if there is none.

    """

    def __init__(self) -> None:
        """Begin at the first event, or behind one where nothing was streamed."""
        # By whose they are, the turn, and which block of which answer or call.
        self._open: dict[_Stream, list[Event]] = {}
        # First and last event of streams that ended while others were open.
        self._ended: list[tuple[int, int]] = []

    @property
    def floor(self) -> int | None:
        """See the class.

        What ended and reaches past it has to be read again from its own beginning.
        """
        if not self._open:
            return None
        floor = min(pieces[0].seq for pieces in self._open.values())
        for first, last in sorted(self._ended, reverse=True):
            if first < floor <= last:
                floor = first
        return floor

    def read(self, event: Event) -> Iterator[Passage]:
        """The passages of the next event."""
        kind = event.type
        if kind == "assistant/delta":
            if isinstance(event.data, dict):
                self._open.setdefault(_stream(event, event.data), []).append(event)
            return
        if kind == "assistant/message":
            # It repeats what was streamed of it.
            for stream in self._streams(event):
                del self._open[stream]
        elif kind in ("turn/end", "step/end"):
            for stream in self._streams(event):
                pieces = self._open.pop(stream)
                self._ended.append((pieces[0].seq, pieces[-1].seq))
                yield from self._passage(pieces)
            if not self._open:
                self._ended.clear()
        tell = _TELLING.get(kind)
        if tell is not None and isinstance(event.data, dict):
            for passage_kind, text, call in tell(event.data):
                if text.strip():
                    yield Passage(
                        event.seq, passage_kind, text, event.agent, event.time, event.turn, call
                    )

    def end(self) -> Iterator[Passage]:
        """The answers that have not come by the end of the log."""
        for pieces in self._open.values():
            yield from self._passage(pieces)

    def _streams(self, event: Event) -> list[_Stream]:
        """What was streamed by the agent of an event in its turn, and is open."""
        return [stream for stream in self._open if stream[:2] == (event.agent, event.turn)]

    @staticmethod
    def _passage(pieces: list[Event]) -> Iterator[Passage]:
        texts = [data["text"] for data in (each.data for each in pieces) if _says(data)]
        # A character may be cut between two pieces.
        text = "".join(texts).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if text.strip():
            first = pieces[0]
            yield Passage(first.seq, "unfinished", text, first.agent, first.time, first.turn)


def _stream(event: Event, data: dict[str, Any]) -> _Stream:
    """Which answer or call a piece is of; what it leaves out is as usual."""
    usual = (("kind", "text"), ("index", 0), ("call", None))
    said = [data[name] if data.get(name) is not None else other for name, other in usual]
    return event.agent, event.turn, repr(said)


def _says(data: object) -> bool:
    return isinstance(data, dict) and isinstance(data.get("text"), str)


# --- the texts of each type -----------------------------------------------------------------------

_Told = Iterator[tuple[str, str, str | None]]


def _user(data: dict[str, Any]) -> _Told:
    yield "user", _blocks(data.get("content")), None


def _answer(data: dict[str, Any]) -> _Told:
    content = data.get("content")
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool-call":
            yield "tool-call", _joined(block.get("name"), block.get("arguments")), _id(block)
        elif block.get("type") == "thinking":
            yield "thinking", _joined(block.get("text")), None
        else:
            yield "assistant", _joined(block.get("text"), block.get("name")), None


def _call(data: dict[str, Any]) -> _Told:
    yield "tool-call", _joined(data.get("name"), data.get("arguments")), _id(data)


def _result(data: dict[str, Any]) -> _Told:
    yield "tool-result", _blocks(data.get("content")), _id(data)
    yield from _error(data, _id(data))


def _error(data: dict[str, Any], call: str | None = None) -> _Told:
    error = data.get("error")
    if isinstance(error, dict):
        yield "error", _joined(error.get("code"), error.get("message")), call


def _summary(data: dict[str, Any]) -> _Told:
    yield "summary", _blocks(data.get("summary")), None


def _state(data: dict[str, Any]) -> _Told:
    yield "state", _joined(data.get("key"), data.get("value")), None


def _trigger(data: dict[str, Any]) -> _Told:
    yield "trigger", _joined(*(data.get(name) for name in ("id", "kind", "content", "state"))), None


def _channel(data: dict[str, Any]) -> _Told:
    yield "channel", _joined(*(data.get(name) for name in ("channel", "sender", "content"))), None


def _job(data: dict[str, Any]) -> _Told:
    names = ("id", "kind", "name", "arguments", "output", "status", "result")
    yield "job", _joined(*(data.get(name) for name in names)), None
    yield from _error(data)


def _subagent(data: dict[str, Any]) -> _Told:
    names = ("id", "session", "name", "task", "status", "result")
    yield "subagent", _joined(*(data.get(name) for name in names)), None
    yield from _error(data)


def _effect(data: dict[str, Any]) -> _Told:
    yield "state", _joined(data.get("about"), data.get("value")), None
    yield from _error(data)


def _artifact(data: dict[str, Any]) -> _Told:
    yield "artifact", _joined(data.get("name"), data.get("media_type")), None


def _title(data: dict[str, Any]) -> _Told:
    yield "title", _joined(data.get("title")), None


def _turn_end(data: dict[str, Any]) -> _Told:
    yield from _error(data)


_TELLING = {
    "artifact/saved": _artifact,
    "assistant/message": _answer,
    "channel/message": _channel,
    "context/compacted": _summary,
    "effect/intent": _effect,
    "effect/outcome": _effect,
    "job/end": _job,
    "job/start": _job,
    "job/update": _job,
    "session/titled": _title,
    "state/set": _state,
    "subagent/end": _subagent,
    "subagent/start": _subagent,
    "tool/call": _call,
    "tool/result": _result,
    "trigger/fired": _trigger,
    "trigger/set": _trigger,
    "turn/end": _turn_end,
    "user/message": _user,
}


def _id(data: dict[str, Any]) -> str | None:
    id = data.get("id")
    return id if isinstance(id, str) else None


def _blocks(content: object) -> str:
    """The texts of content blocks, one below the other, and what else they are called."""
    if not isinstance(content, list):
        return _joined(content)
    return "\n".join(filter(None, (_block(each) for each in content)))


def _block(block: object) -> str:
    if not isinstance(block, dict):
        return _joined(block)
    # Images and files have a name at most; what they hold is no text.
    named = (block.get(name) for name in ("text", "name", "arguments"))
    inner = block.get("content")
    return "\n".join(filter(None, (_joined(*named), _blocks(inner) if inner is not None else "")))


def _joined(*values: object) -> str:
    return "\n".join(text for value in values for text in _texts(value, 0) if text)


def _texts(value: object, depth: int) -> Iterable[str]:
    """Every text and number within a JSON value, keys too: they are what a tool was told."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | float):
        # Of an integer with thousands of digits Python refuses to make a text.
        yield str(value) if isinstance(value, float) or value.bit_length() < _BITS_MAX else ""
    elif depth < _DEPTH_MAX:
        if isinstance(value, dict):
            for key, each in value.items():
                yield str(key)
                yield from _texts(each, depth + 1)
        elif isinstance(value, list):
            for each in value:
                yield from _texts(each, depth + 1)
