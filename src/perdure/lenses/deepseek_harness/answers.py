"""What was streamed of an answer; it counts only where the whole answer was never written."""

from typing import Any, NamedTuple

from perdure.lenses.deepseek_harness.content import member, usage_of
from perdure.lenses.pieces import count, ident
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["PACKED", "Answer", "Key", "length", "usage_in"]

Key = tuple[int | None, int | None]
"""Turn and step."""

PACKED = {
    "text-chunks": ("text", "texts"),
    "reasoning-chunks": ("thinking", "texts"),
    "tool-call-chunks": ("arguments", "args"),
}
"""Rows that stand for several chunks: what they are pieces of, and the member with the pieces."""

_DELTAS = {
    "text-delta": ("text", "text"),
    "reasoning-delta": ("thinking", "text"),
    "tool-call-delta": ("arguments", "argumentsDelta"),
}
_SILENT = frozenset({"block-start", "block-end"})


class _Piece(NamedTuple):
    record: Event
    data: dict[str, Any]


class Answer:
    """One request to the model, while nobody wrote what it came to.

    Attributes:
        key: turn and step of it.
        turn: the turn it belongs to.
        pieces: data of `assistant/delta`, each with the stored event that told of it.
        usage: what it cost, and the stored event that told of it.
        calls: data of `tool/call` of those of its calls that were begun, by their ids.
        finished: the model's provider said that this is all of it.
        failed: the model's provider said that nothing will come of it.

    """

    def __init__(self, key: Key, turn: str | None) -> None:
        """Begin it without a piece."""
        self.key = key
        self.turn = turn
        self.pieces: list[_Piece] = []
        self.usage: tuple[Event, dict[str, int]] | None = None
        self.calls: dict[str, dict[str, Any]] = {}
        self.finished = False
        self.failed = False

    def row(self, record: Event, kind: str, row: dict[str, Any]) -> bool:
        """Take a row of chunks; False: it cannot be read."""
        named, holder = PACKED[kind]
        texts = row.get(holder)
        if not isinstance(texts, list) or not texts:
            return False
        if not all(isinstance(text, str) for text in texts):
            return False
        for text in texts:
            self._add(record, named, text, row)
        return True

    def chunk(self, record: Event, chunk: dict[str, Any]) -> bool:
        """Take a chunk; False: it cannot be read."""
        kind = chunk.get("type")
        if not isinstance(kind, str):
            return False
        if kind in _DELTAS:
            named, holder = _DELTAS[kind]
            text = chunk.get(holder)
            if not isinstance(text, str):
                return False
            self._add(record, named, text, chunk)
        elif kind == "usage":
            counts = usage_of(chunk.get("usage"))
            if counts is None:
                return False
            self.usage = (_light(record), counts)
        elif kind == "finish":
            self.failed = member(chunk, "reason").get("kind") == "error"
            self.finished = not self.failed
        return kind in _DELTAS or kind in _SILENT or kind in ("usage", "finish")

    def stream(self, record: Event, stream: list[Any]) -> bool:
        """Take what later versions keep beside a message: rows and chunks; False: not all of it."""
        read = True
        for each in stream:
            kind = each.get("type") if isinstance(each, dict) else None
            if kind == "chunk":
                read &= self.chunk(record, member(each, "chunk"))
            elif isinstance(kind, str) and kind in PACKED:
                read &= self.row(record, kind, each)
            else:
                read = False
        return read

    def asked(self, key: Key, id: str) -> bool:
        """Whether a call that was begun in this turn and step is one of the answer's."""
        streamed = any(data.get("call") == id for _, data in self.pieces)
        return streamed or (key == self.key and None not in key)

    def whole(self) -> tuple[list[Block], bool]:
        """The blocks of all that was streamed, and whether that is all that there was.

        A call is one of them if it was begun; of another nobody can tell what was asked for.
        """
        texts: dict[tuple[str, int], list[str]] = {}
        ids: dict[tuple[str, int], str] = {}
        for _, data in self.pieces:
            block = (data.get("kind", "text"), data.get("index", 0))
            texts.setdefault(block, []).append(data["text"])
            ids.setdefault(block, data.get("call", ""))
        left, blocks, lost = dict(self.calls), list[Block](), False
        for (kind, index), parts in texts.items():
            call = left.pop(ids[kind, index], None) if kind == "arguments" else None
            if call is not None:
                blocks.append({"type": "tool-call", **call})
            elif kind == "arguments":
                lost = True
            else:
                blocks.append({"type": kind, "text": joined(parts)})
        blocks += [{"type": "tool-call", **call} for call in left.values()]
        return blocks, self.finished and not lost

    def _add(self, record: Event, kind: str, text: str, told: dict[str, Any]) -> None:
        if not text:
            return
        data: dict[str, Any] = {"text": text}
        if kind != "text":
            data["kind"] = kind
        if index := count(told.get("index")):
            data["index"] = index
        if kind == "arguments" and (call := ident(told.get("id"))) is not None:
            data["call"] = call
        self.pieces.append(_Piece(_light(record), data))


def joined(parts: list[str]) -> str:
    """The whole text; a character of which two parts hold one half each is one."""
    text = "".join(parts)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def length(kind: str, data: object) -> int:
    """How many events of the source a line stands for."""
    if kind not in PACKED or not isinstance(data, dict):
        return 1
    texts = data.get(PACKED[kind][1])
    return len(texts) if isinstance(texts, list) and texts else 1


def usage_in(record: Event, stream: object) -> dict[str, int] | None:
    """What a response cost, told by the chunks that are kept beside its message."""
    if not isinstance(stream, list):
        return None
    answer = Answer((None, None), None)
    answer.stream(record, [each for each in stream if isinstance(each, dict) and "chunk" in each])
    return None if answer.usage is None else answer.usage[1]


def _light(record: Event) -> Event:
    """The number and the time of a stored event, without its line."""
    return Event(record.seq, record.type, record.time, None, None, None, False, b"null")
