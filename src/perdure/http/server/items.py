"""Events as a page shows them: who says what, as text. Pure: nothing is read, nothing is markup.

All text that comes from a session is made safe here, once, and cut to what a page has room for.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from perdure.model import values
from perdure.model import vocabulary as said
from perdure.model.event import Event
from perdure.model.showing import safe, safe_lines
from perdure.model.vocabulary import fitting

__all__ = ["PIECES_MAX", "PIECE_CHARS", "WHOLE_CHARS", "Item", "Piece", "Telling"]

PIECE_CHARS = 20_000
"""So much of a text is shown in a page of many events."""

WHOLE_CHARS = 1_000_000
"""So much of it where an event is asked for alone."""

PIECES_MAX = 100
"""So many pieces of an event are shown; a message may have a million blocks."""

_EVENT_PIECES = 5
"""All pieces of an event have room for so many whole ones."""

_OPEN_CHARS = 1_500
_OPEN_LINES = 25
"""A longer result is folded."""

_LINE_CHARS = 80
_NAME_CHARS = 200
_HEADINGS_MAX = 10_000
"""So many calls are known by their names, on one page."""


class Piece(NamedTuple):
    """A text of an item.

    Attributes:
        kind: "text", "thinking", "call", "result", "error" or "data": how it looks.
        label: what it is, above it or in place of it while it is folded; "" for plain text.
        text: with lines, safe.
        size: how much there is of it, in words, where it is folded or cut; else "".
        folded: whether it is shown only when somebody opens it.
        cut: whether there is more of it.

    """

    kind: str
    label: str
    text: str
    size: str = ""
    folded: bool = False
    cut: bool = False


class Item(NamedTuple):
    """What a page shows of an event.

    Attributes:
        seq: number of the event.
        kind: "user", "assistant", "tool", "error", "mark", "note" or "other": how it looks.
        heading: what happened, on one line, safe.
        time: Unix milliseconds.
        agent: whose it is, safe, or None.
        pieces: its texts.
        session: id of another session that it is about, or None.
        dropped: how many further pieces there was no room for.

    """

    seq: int
    kind: str
    heading: str
    time: int
    agent: str | None
    pieces: tuple[Piece, ...] = ()
    session: str | None = None
    dropped: int = 0

    @property
    def chars(self) -> int:
        """How much text it is."""
        return len(self.heading) + sum(len(piece.text) + len(piece.label) for piece in self.pieces)

    @property
    def cut(self) -> bool:
        """Whether there is more than it shows."""
        return bool(self.dropped) or any(piece.cut for piece in self.pieces)


class _Room:
    """The pieces of one item, as far as there is room for them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most * _EVENT_PIECES
        self.pieces: list[Piece] = []
        self.dropped = 0

    def add(
        self, kind: str, text: str, label: str = "", *, fold: bool = False, long: bool = True
    ) -> None:
        """Take a text; `fold` it, or only if it is `long`."""
        if len(self.pieces) >= PIECES_MAX or self._left <= 0:
            self.dropped += 1
            return
        most = min(self._most, self._left)
        # Cut before it is made safe, which reads every character, and after, which adds some.
        shown = safe_lines(text[: most + 1])
        is_cut = len(shown) > most
        shown = shown[:most].rstrip("\n")
        self._left -= len(shown)
        is_long = long and (len(shown) > _OPEN_CHARS or shown.count("\n") >= _OPEN_LINES)
        folded = fold or is_long
        size = _size(text) if folded or is_cut else ""
        self.pieces.append(Piece(kind, label, shown, size, folded, is_cut))


def _size(text: str) -> str:
    lines = text.count("\n") + 1
    told = f"{len(text):,} characters" if len(text) != 1 else "1 character"
    return told if lines == 1 else f"{lines:,} lines, {told}"


def _name(text: object) -> str:
    """A name from data, short and safe."""
    told = safe(text if isinstance(text, str) else values.shown(text))
    return told if len(told) <= _NAME_CHARS else f"{told[: _NAME_CHARS - 1]}…"


def _json(value: Any) -> str:
    """A value as people read JSON, on one line if it is short; a lone string as its text."""
    if isinstance(value, str):
        return value
    laid_out = json.dumps(value, ensure_ascii=False, indent=2)
    if len(laid_out) > 2 * _LINE_CHARS:
        return laid_out
    line = json.dumps(value, ensure_ascii=False)
    return line if len(line) <= _LINE_CHARS else laid_out


class Telling:
    """Makes items of events, given in their order; `end` has what is still to be said."""

    def __init__(self, most: int = PIECE_CHARS) -> None:
        """`most`: how many characters of a text are shown."""
        self._most = most
        self._calls: dict[str, str] = {}
        self._asked: set[str] = set()
        # Streamed text by agent and turn, with the event that began it.
        self._streams: dict[tuple[str | None, str | None], tuple[Event, list[str]]] = {}
        self._writers: dict[type, Callable[[Event, Any], Item | None]] = {
            said.UserMessage: self._user,
            said.AssistantMessage: self._assistant,
            said.ToolCall: self._tool_call,
            said.ToolResult: self._tool_result,
            said.ContextCompacted: self._compacted,
            said.ContextRewound: self._rewound,
            said.TurnStart: self._turn_start,
            said.TurnEnd: self._turn_end,
            said.StepStart: self._silent,
            said.StepEnd: self._silent,
            said.Usage: self._silent,
            said.SessionTitled: self._titled,
            said.ArtifactSaved: self._saved,
            said.JobStart: self._job_start,
            said.JobUpdate: self._job_update,
            said.JobEnd: self._ended,
            said.SubagentStart: self._subagent,
            said.SubagentEnd: self._ended,
            said.ChannelMessage: self._channel,
        }

    def read(self, event: Event) -> Iterator[Item]:
        """What the next event shows; nothing for some."""
        payload = fitting(event)
        if payload is None:
            yield self._unknown(event)
        elif isinstance(payload, said.AssistantDelta):
            self._stream(event, payload)
        else:
            if isinstance(payload, said.AssistantMessage):
                self._streams.pop((event.agent, event.turn), None)
            elif isinstance(payload, said.StepEnd | said.TurnEnd):
                yield from self._broken(event.agent, event.turn)
            found = self._writers.get(payload.__class__, self._note)(event, payload)
            if found is not None:
                yield found

    def end(self) -> Iterator[Item]:
        """Answers of which only a beginning was said."""
        for agent, turn in list(self._streams):
            yield from self._broken(agent, turn)

    # --- what is said ----------------------------------------------------------------------------

    def _item(
        self,
        event: Event,
        kind: str,
        heading: str,
        room: _Room | None = None,
        *,
        session: str | None = None,
    ) -> Item:
        agent = None if event.agent is None else _name(event.agent)
        pieces = () if room is None else tuple(room.pieces)
        dropped = 0 if room is None else room.dropped
        return Item(event.seq, kind, heading, event.time, agent, pieces, session, dropped)

    def _unknown(self, event: Event) -> Item:
        room = _Room(self._most)
        # As it stands: what is large would grow by being laid out, and it may be no JSON at all.
        text = event.raw[: self._most * 4 + 4].decode("utf-8", "replace")
        if len(event.raw) <= self._most:
            try:
                text = _json(event.data)
            except Exception:  # noqa: BLE001 - it is shown as it stands
                text = event.raw.decode("utf-8", "replace")
        room.add("data", text, "data", fold=True)
        return self._item(event, "other", event.type, room)

    def _user(self, event: Event, payload: said.UserMessage) -> Item:
        room = _Room(self._most)
        self._blocks(room, payload.content)
        heading = "User" if payload.source is None else f"User, by {_name(payload.source)}"
        return self._item(event, "user", heading, room)

    def _assistant(self, event: Event, payload: said.AssistantMessage) -> Item:
        room = _Room(self._most)
        self._blocks(room, payload.content)
        heading = "Assistant"
        if payload.model is not None:
            heading += f", {_name(payload.model)}"
        if payload.interrupted:
            heading += ", interrupted"
        return self._item(event, "assistant", heading, room)

    def _blocks(self, room: _Room, blocks: Sequence[said.Block], kind: str = "text") -> None:
        for block in blocks:
            if len(room.pieces) >= PIECES_MAX:
                room.dropped += 1
            else:
                self._block(room, block, kind)

    def _block(self, room: _Room, block: said.Block, kind: str) -> None:
        what, text = block.get("type"), block.get("text")
        if what == "text" and isinstance(text, str):
            # What somebody said is there to be read; what a tool said may be folded.
            room.add(kind, text, long=kind != "text")
        elif what == "thinking" and isinstance(text, str):
            room.add("thinking", text, "Thinking", fold=True)
        elif what == "tool-call" and isinstance(block.get("id"), str):
            self._asked.add(block["id"])
            self._call(room, block["id"], block.get("name"), block.get("arguments"))
        elif what in ("image", "file"):
            named = [block.get(each) for each in ("name", "media_type", "blob")]
            told = ", ".join(_name(each) for each in named if each is not None)
            room.add("note", f"[{what} {told}]")
        else:
            room.add("data", _json(block), _name(what), fold=True)

    def _call(self, room: _Room, id: str, name: object, arguments: Any) -> None:
        told = _name(name)
        if len(self._calls) < _HEADINGS_MAX:
            self._calls[id] = told
        room.add("call", "" if arguments is None else _json(arguments), f"Calls {told}")

    def _tool_call(self, event: Event, payload: said.ToolCall) -> Item | None:
        if payload.id in self._asked:
            # The answer of the model, just above, has it.
            return None
        room = _Room(self._most)
        self._call(room, payload.id, payload.name, payload.arguments)
        return self._item(event, "tool", "Tool call", room)

    def _tool_result(self, event: Event, payload: said.ToolResult) -> Item:
        room = _Room(self._most)
        if payload.error is not None:
            self._error(room, payload.error)
        self._blocks(room, payload.content, "result")
        name = self._calls.get(payload.id)
        heading = "Result" if name is None else f"Result of {name}"
        return self._item(event, "tool" if payload.error is None else "error", heading, room)

    def _error(self, room: _Room, error: said.Error) -> None:
        room.add("error", f"{error.code}: {error.message}")

    def _compacted(self, event: Event, payload: said.ContextCompacted) -> Item:
        room = _Room(self._most)
        for block in payload.summary:
            text = block.get("text")
            told = text if isinstance(text, str) else _json(block)
            room.add("data", told, "Summary", fold=True)
        heading = "Context compacted"
        if payload.before is not None and payload.after is not None:
            heading += f", {payload.before:,} to {payload.after:,} tokens"
        return self._item(event, "mark", heading, room)

    def _stream(self, event: Event, payload: said.AssistantDelta) -> None:
        _, texts = self._streams.setdefault((event.agent, event.turn), (event, []))
        if payload.kind == "text":
            texts.append(payload.text)

    def _broken(self, agent: str | None, turn: str | None) -> Iterator[Item]:
        """The beginning of an answer whose end did not come."""
        event, texts = self._streams.pop((agent, turn), (None, []))
        if event is not None and texts:
            room = _Room(self._most)
            room.add("text", "".join(texts), long=False)
            yield self._item(event, "assistant", "Assistant, only a beginning", room)

    # --- what happens ----------------------------------------------------------------------------

    def _turn_start(self, event: Event, payload: said.TurnStart) -> Item:
        heading = "Turn" if event.turn is None else f"Turn {_name(event.turn)}"
        if payload.replaces is not None:
            heading += f", in place of {_name(payload.replaces)}"
        elif payload.parent is not None:
            heading += f", behind {_name(payload.parent)}"
        return self._item(event, "mark", heading)

    def _turn_end(self, event: Event, payload: said.TurnEnd) -> Item | None:
        if payload.reason == "completed" and payload.error is None:
            return None
        room = _Room(self._most)
        if payload.error is not None:
            self._error(room, payload.error)
        kind = "mark" if payload.error is None else "error"
        return self._item(event, kind, f"Turn ended: {_name(payload.reason)}", room)

    def _rewound(self, event: Event, payload: said.ContextRewound) -> Item:
        where = "the start" if payload.to is None else f"turn {_name(payload.to)}"
        return self._item(event, "mark", f"Rewound to {where}")

    def _titled(self, event: Event, payload: said.SessionTitled) -> Item:
        return self._item(event, "note", f"Titled “{_name(payload.title)}”")

    def _saved(self, event: Event, payload: said.ArtifactSaved) -> Item:
        return self._item(event, "note", f"Saved {_name(payload.name)}, {payload.size:,} bytes")

    def _job_start(self, event: Event, payload: said.JobStart) -> Item:
        room = _Room(self._most)
        if payload.arguments is not None:
            room.add("data", _json(payload.arguments), "Arguments")
        named = payload.name if payload.name is not None else payload.id
        return self._item(event, "tool", f"Job {_name(named)} began", room)

    def _job_update(self, event: Event, payload: said.JobUpdate) -> Item:
        room = _Room(self._most)
        if payload.output is not None:
            room.add("result", _json(payload.output))
        return self._item(event, "tool", f"Job {_name(payload.id)}", room)

    def _ended(self, event: Event, payload: said.JobEnd | said.SubagentEnd) -> Item:
        room = _Room(self._most)
        if payload.error is not None:
            self._error(room, payload.error)
        if payload.result is not None:
            room.add("result", _json(payload.result))
        what = "Job" if isinstance(payload, said.JobEnd) else "Sub-agent"
        heading = f"{what} {_name(payload.id)}: {_name(payload.status)}"
        return self._item(event, "tool" if payload.error is None else "error", heading, room)

    def _subagent(self, event: Event, payload: said.SubagentStart) -> Item:
        room = _Room(self._most)
        if payload.task is not None:
            room.add("data", _json(payload.task), "Task")
        named = payload.name if payload.name is not None else payload.id
        heading = f"Sub-agent {_name(named)} began"
        session = payload.session or None
        return self._item(event, "tool", heading, room, session=session)

    def _channel(self, event: Event, payload: said.ChannelMessage) -> Item:
        room = _Room(self._most)
        room.add("text", _json(payload.content), long=False)
        heading = f"{_name(payload.sender)} in {_name(payload.channel)}"
        return self._item(event, "user", heading, room)

    def _silent(self, event: Event, payload: Any) -> None:
        """Nothing that anybody reads: the steps within a turn, and what responses cost."""

    def _note(self, event: Event, _payload: Any) -> Item:
        """What is no conversation: its type, and its data for who opens it."""
        return self._unknown(event)._replace(kind="note")
