"""All that a search may find, read from a store the slow way: every event of every session.

This is what the questions are checked against. It knows of no index, and decides nothing about
ranking: a passage is what one event says in one way.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

import perdure
from perdure.store import Store

__all__ = ["KINDS", "Passage", "everything_said", "passages_of", "said_in"]

KINDS = (
    "user",
    "assistant",
    "thinking",
    "tool-call",
    "tool-result",
    "error",
    "delta",
    "job",
    "channel",
    "trigger",
    "subagent",
    "state",
    "artifact",
    "summary",
    "title",
)

Data = dict[str, Any]


class Passage(msgspec.Struct, frozen=True):
    """Something that was said.

    Attributes:
        session: id of the session.
        seqs: numbers of the events that say it: one; of a call also its block in the message
            before; of an answer that was broken off all of its pieces.
        kinds: of `KINDS`; what a failed tool said is both a result and an error.
        texts: each text in it, whole.

    """

    session: str
    seqs: frozenset[int]
    kinds: frozenset[str]
    texts: tuple[str, ...]

    def holds(self, text: str) -> bool:
        """Whether it stands in one of the texts, letter by letter."""
        return any(text in each for each in self.texts)


class _EveryType(Collection[str]):
    """The types of events that `scrollback` is to keep: all there are."""

    def __contains__(self, _type: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def everything_said(store: Store, session: str) -> list[perdure.Event]:
    """All events, of an import as its lens tells them, in their order."""
    pages = store.inspect(session).scrollback(size=10**9, types=_EveryType())
    return [event for page in pages for event in page]


def said_in(value: Any) -> Iterator[str]:
    """The texts, numbers and truths in a JSON value, without the names of members."""
    if isinstance(value, dict):
        for each in value.values():
            yield from said_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from said_in(each)
    elif value is not None:
        yield value if isinstance(value, str) else str(value)


def _member(data: Data, *names: str) -> list[str]:
    return [text for name in names for text in said_in(data.get(name))]


def _blocks(data: Data, member: str, type: str | None = None) -> list[str]:  # noqa: A002
    """The texts of blocks of one type; without a type, of all that are for people to read."""
    blocks = data.get(member)
    return [
        text
        for block in (blocks if isinstance(blocks, list) else [])
        if (block.get("type") == type if type else block.get("type") != "tool-call")
        for text in _member(block, "text", "name")
    ]


def _told(event: perdure.Event) -> Iterator[tuple[str, list[str]]]:
    """The kinds of passages in one event; calls, results and deltas stand in `passages_of`."""
    data = event.data
    match event.type:
        case "user/message":
            yield "user", _blocks(data, "content")
        case "assistant/message":
            yield "assistant", _blocks(data, "content", "text")
            yield "thinking", _blocks(data, "content", "thinking")
        case "turn/end" | "effect/outcome":
            yield "error", _member(data, "error")
        case "job/start":
            yield "job", _member(data, "id", "kind", "name", "arguments")
        case "job/update" | "job/end":
            yield "job", _member(data, "id", "output", "result")
            yield "error", _member(data, "error")
        case "channel/message":
            yield "channel", _member(data, "channel", "sender", "content")
        case "trigger/set" | "trigger/fired":
            yield "trigger", _member(data, "id", "kind", "state", "content")
        case "subagent/start" | "subagent/end":
            yield "subagent", _member(data, "name", "task", "result")
            yield "error", _member(data, "error")
        case "state/set":
            yield "state", _member(data, "key", "value")
        case "artifact/saved":
            yield "artifact", _member(data, "name")
        case "context/compacted":
            yield "summary", _blocks(data, "summary")
        case "session/titled":
            yield "title", _member(data, "title")


class _Reading:
    """Reads one session. Blocks that call a tool wait for the call that begins it."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._asked: dict[tuple[str, str], int] = {}
        self._blocks: dict[tuple[str, str], list[str]] = {}
        self._pieces: dict[Any, list[perdure.Event]] = {}

    def _passage(self, texts: Iterable[str], *kinds: str, seqs: Iterable[int]) -> Passage:
        return Passage(self._session, frozenset(seqs), frozenset(kinds), tuple(texts))

    def read(self, event: perdure.Event) -> Iterator[Passage]:
        data = event.data
        if event.type == "assistant/delta":
            place = (event.agent, event.turn, data.get("kind"), data.get("index"), data.get("call"))
            self._pieces.setdefault(place, []).append(event)
        elif event.type == "assistant/message":
            self._drop_pieces(event)
            for block in data["content"]:
                if block.get("type") == "tool-call":
                    name = block["id"], block["name"]
                    self._asked[name] = event.seq
                    self._blocks[name] = _member(block, "name", "arguments")
        elif event.type in ("step/end", "turn/end"):
            yield from self._broken_off(event)
        elif event.type == "tool/call":
            name = data["id"], data["name"]
            asked = self._asked.pop(name, event.seq)
            texts = _member(data, "name", "arguments")
            yield self._passage(texts, "tool-call", seqs=(asked, event.seq))
        elif event.type == "tool/result":
            error = _member(data, "error")
            texts = [*_blocks(data, "content"), *error]
            kinds = ("tool-result", "error") if error else ("tool-result",)
            yield self._passage(texts, *kinds, seqs=(event.seq,))
        for kind, texts in _told(event):
            if any(texts):
                yield self._passage(texts, kind, seqs=(event.seq,))

    def _drop_pieces(self, message: perdure.Event) -> None:
        """A message repeats all that was streamed for it."""
        for place in [each for each in self._pieces if each[:2] == (message.agent, message.turn)]:
            del self._pieces[place]

    def _broken_off(self, end: perdure.Event | None) -> Iterator[Passage]:
        """What was streamed and never came to a message, in the turn that ends or anywhere."""
        for place, pieces in list(self._pieces.items()):
            if end is None or place[:2] == (end.agent, end.turn):
                text = "".join(piece.data["text"] for piece in pieces)
                del self._pieces[place]
                yield self._passage([text], "delta", seqs=(piece.seq for piece in pieces))

    def end(self) -> Iterator[Passage]:
        """What is still open: answers broken off, calls that never began."""
        yield from self._broken_off(None)
        for name, seq in self._asked.items():
            yield self._passage(self._blocks[name], "tool-call", seqs=(seq,))


def passages_of(store: Store, session: str) -> list[Passage]:
    """All passages of a session, in the order in which they were complete."""
    reading = _Reading(session)
    found = [each for event in everything_said(store, session) for each in reading.read(event)]
    return [*found, *reading.end()]
