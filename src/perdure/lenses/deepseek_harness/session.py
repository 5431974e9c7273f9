"""The lens: reads the lines of one session in their order."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from perdure.lenses.deepseek_harness.answers import PACKED, Answer, length, usage_in
from perdure.lenses.deepseek_harness.content import (
    blocks_of,
    error_of,
    member,
    name_of,
    results_of,
    source_of,
    usage_of,
)
from perdure.lenses.deepseek_harness.surface import Surface
from perdure.lenses.deepseek_harness.telling import Line, Telling
from perdure.lenses.lens import Lens, record_of
from perdure.lenses.pieces import arguments_of, count, ident, sound
from perdure.model.event import Event

__all__ = ["DeepseekHarness"]

_SPOKEN = frozenset(
    {
        "user/message",
        "steering/message",
        "context/message",
        "assistant/message",
        "tool/call",
        "tool/result",
    }
)
"""Messages, calls and results."""

_OF_ANSWERS = frozenset({"assistant/message", "tool/call", "tool/result"})
"""Of these it depends on what they name whether they end an answer that was streamed before."""

_ENDS_ANSWER = frozenset(
    {"turn/start", "turn/end", "step/start", "step/end", "session/end-seed", "assistant/attempt"}
)
"""No message comes any more for what was streamed before."""

_STATES = {
    "agent-preset/selected": ("agent-preset", "settings", None),
    "approval/policy": ("approval-policy", "settings", "policy"),
    "goal/change": ("goal", "scratchpad", "goal"),
    "permission/preset": ("permission-preset", "settings", "preset"),
    "plan/mode": ("plan-mode", "settings", "active"),
    "sandbox/mode": ("sandbox-mode", "settings", "mode"),
    "todo/write": ("todos", "scratchpad", "todos"),
}
"""Events with the whole of a state: its key, its scope, and the member that holds it, or all."""

_TEXT_CHARS_MAX = 4096


class DeepseekHarness(Lens):
    """Reads deepseek-harness, in the shapes of all versions of the harness that are known.

    Turns are those of the harness, by their numbers. What was streamed is said again only where no
    message tells what it came to; where calls of it were begun, or the log ends in it, as a message
    of what there is. A compaction stands for the oldest messages; where messages in
    the middle were replaced, what replaces them comes last and they stay. A result that was
    shortened later stays as it was. Usage in the events that a fork begins with is its parent's,
    and is not told again. Whole states (goal, plan mode, permissions, todos) are `state/set`.
    """

    name: ClassVar[str] = "deepseek-harness"
    version: ClassVar[int] = 2

    def __init__(self) -> None:
        """Begin before the first record."""
        super().__init__()
        self._telling = Telling(self.said)
        self._surface = Surface()
        self._headed = False
        self._next = 0
        # The other types mean nothing for a conversation, or are not known.
        self._readers: dict[str, Callable[[Line], bool]] = {
            "assistant/attempt": self._attempt,
            "assistant/chunk": self._chunk,
            "assistant/message": self._assistant,
            "compact/summary": self._summary,
            "compaction/summary": self._summary,
            "context/message": self._user,
            "request/header": self._request,
            "session/end-seed": self._end_seed,
            "session/title": self._title,
            "steering/message": self._user,
            "step/end": self._step,
            "step/start": self._step,
            "subagent/descriptor": self._descriptor,
            "tool/call": self._call,
            "tool/result": self._result,
            "turn/end": self._turn_end,
            "turn/start": self._turn_start,
            "user/message": self._user,
            **dict.fromkeys(PACKED, self._row),
            **dict.fromkeys(_STATES, self._state),
        }

    def read(self, event: Event) -> Iterator[Event]:
        """What the next stored event says, perhaps nothing, perhaps what earlier ones led to."""
        record = record_of(event) or {}
        kind = record.get("type")
        if not isinstance(kind, str):
            kind = "record"
        if kind == "session" and not self._headed:
            understood = self._header(record)
        else:
            understood = self._event(event, kind, record)
        (self.understood if understood else self.raw)[kind] += 1
        if kind in _SPOKEN:
            self.told += understood
            self.missed += not understood
        out, self._telling.out = self._telling.out, []
        return iter(out)

    def end(self) -> Iterator[Event]:
        """What is still to be said when no further record comes: the open answer, as a message."""
        self._telling.abandon(last=True)
        out, self._telling.out = self._telling.out, []
        return iter(out)

    def _event(self, event: Event, kind: str, record: dict[str, Any]) -> bool:
        data = record.get("data")
        told = count(record.get("seq0" if kind in PACKED else "seq"))
        seq = self._next if told is None else told
        self._next = seq + length(kind, data)
        reader = self._readers.get(kind)
        if reader is None or not isinstance(data, dict):
            return False
        if kind in _ENDS_ANSWER:
            self._telling.new_step(again=kind == "assistant/attempt")
        elif kind in _SPOKEN and kind not in _OF_ANSWERS:
            self._telling.abandon()
        return reader(Line(event, kind, seq, data, record))

    # --- the session as a whole -----------------------------------------------------------------

    def _header(self, record: dict[str, Any]) -> bool:
        if "createdAt" not in record and "id" not in record:
            return False
        self._headed = True
        facts = self.facts
        facts.id = ident(record.get("id"))
        facts.cwd = _text(record.get("cwd"))
        facts.parent = ident(record.get("parentSession"))
        if facts.parent is not None:
            facts.kind = "subagent" if record.get("origin") == "subagent" else "fork"
            self._telling.seed = count(record.get("seedLength")) or 0
        if facts.kind == "subagent":
            facts.agent = _text(record.get("agentPreset"))
        return True

    def _title(self, line: Line) -> bool:
        title = _text(line.data.get("title"))
        if title is None:
            return False
        self.facts.title = title
        self._telling.say(line, "session/titled", {"title": title})
        return True

    def _descriptor(self, line: Line) -> bool:
        label = _text(line.data.get("label"))
        if label is not None and self._telling.own(line):
            self.facts.agent = label
        return label is not None

    def _end_seed(self, line: Line) -> bool:  # noqa: ARG002
        """A process went on, or a fork begins: what was streamed until then is over."""
        return True

    def _state(self, line: Line) -> bool:
        key, scope, holder = _STATES[line.kind]
        if holder is not None and holder not in line.data:
            return False
        value = line.data if holder is None else line.data[holder]
        if not sound(value):
            return False
        self._telling.say(line, "state/set", {"key": key, "value": value, "scope": scope})
        return True

    # --- turns and steps ------------------------------------------------------------------------

    def _turn_start(self, line: Line) -> bool:
        return self._telling.start_turn(line)

    def _turn_end(self, line: Line) -> bool:
        told = line.data.get("reason")
        reason = told if isinstance(told, dict) else {"kind": told}
        kind = _text(reason.get("kind")) or "unknown"
        data: dict[str, Any] = {"reason": kind}
        if kind == "error":
            failure = reason["error"] if isinstance(reason.get("error"), dict) else reason
            data["error"] = error_of(failure, [], failed=True)
        return self._telling.end_turn(line, data)

    def _step(self, line: Line) -> bool:
        step = count(line.data.get("step"))
        if step is None:
            return False
        self._telling.say(line, line.kind, {"step": step}, self._telling.turn_of(line))
        return True

    def _request(self, line: Line) -> bool:
        header = line.data.get("header")
        if not isinstance(header, dict) or not sound(header):
            return False
        self._telling.model = _text(member(header, "config").get("model")) or self._telling.model
        reason = _text(line.data.get("reason"))
        data = {"header": header} | ({} if reason is None else {"reason": reason})
        self._telling.say(line, "request/header", data, self._telling.turn_of(line))
        return True

    # --- what is said ---------------------------------------------------------------------------

    def _user(self, line: Line) -> bool:
        """A prompt, what a person said while a turn ran, or what plugins say in their name."""
        held = line.data.get("message")
        message = held if isinstance(held, dict) else line.data
        blocks = blocks_of(message.get("content"))
        if blocks is None:
            return False
        source = source_of(message)
        if source is None and line.kind == "context/message":
            source = "context"
        if self._replaces(line, blocks, source):
            return True
        if source is None:
            self._telling.prompted(line)
        data = {"content": blocks} | ({} if source is None else {"source": source})
        self._telling.say(line, "user/message", data, self._telling.turn_of(line))
        return True

    def _replaces(self, line: Line, summary: list[Any], source: str | None) -> bool:
        """Note a message of the model's context; True: it was told as a compaction."""
        ends = _range_of(line.record)
        if ends is None:
            self._surface.append(line.seq, line.event.seq)
            return False
        oldest, kept = self._surface.replace(*ends, line.seq, line.event.seq)
        if source is None or not oldest:
            return False
        data: dict[str, Any] = {"summary": summary}
        if kept is not None:
            data["first_kept"] = kept
        self._telling.say(line, "context/compacted", data, self._telling.turn_of(line))
        return True

    def _summary(self, line: Line) -> bool:
        """What a compaction cost; its message tells the summary."""
        usage = usage_of(line.data.get("usage"))
        if not isinstance(line.data.get("summary"), list):
            return False
        if usage is not None and self._telling.own(line):
            data: dict[str, Any] = {**usage}
            named = {"model": line.data.get("model"), "response": line.data.get("compactionId")}
            data |= {name: value for name, told in named.items() if (value := ident(told))}
            self._telling.say(line, "usage", data, self._telling.turn_of(line))
        return True

    def _assistant(self, line: Line) -> bool:
        held = line.data.get("message")
        message = held if isinstance(held, dict) else line.data
        blocks = blocks_of(message.get("content"), answer=True)
        if blocks is None:
            return False
        streamed = self._telling.whole(line)
        usage = usage_of(line.data.get("usage")) or usage_in(line.event, line.data.get("stream"))
        turn, usage = self._telling.turn_of(line), usage or streamed
        # Before messages had ids, the model stood beside them.
        source = member(message, "source") or member(message, "provenance")
        model, response = _text(source.get("model")), ident(message.get("id"))
        if model is not None:
            self.facts.model = model
        own = usage is not None and self._telling.own(line)
        data: dict[str, Any] = {"content": blocks}
        data |= {} if model is None else {"model": model}
        data |= {} if response is None else {"response": response}
        data |= {"usage": usage} if own else {}
        data |= {"interrupted": True} if line.data.get("interrupted") is True else {}
        self._note(line)
        self._telling.say(line, "assistant/message", data, turn)
        return True

    def _note(self, line: Line) -> None:
        ends = _range_of(line.record)
        if ends is None:
            self._surface.append(line.seq, line.event.seq)
        else:
            self._surface.replace(*ends, line.seq, line.event.seq)

    def _call(self, line: Line) -> bool:
        id = ident(line.data.get("callId"))
        if id is None:
            self._telling.abandon()
            return False
        data: dict[str, Any] = {"id": id, "name": name_of(line.data.get("name"))}
        data["arguments"] = arguments_of(line.data.get("arguments"))
        self._telling.ran(line, data)
        self._telling.say(line, "tool/call", data, self._telling.turn_of(line))
        return True

    def _result(self, line: Line) -> bool:
        results = results_of(line.data)
        self._telling.returned([each["id"] for each in results])
        ends = _range_of(line.record)
        if not results:
            return False
        if ends is not None and self._surface.holds(ends[0]):
            self._surface.rewrite(ends[0], line.seq)
            return True
        self._surface.append(line.seq, line.event.seq)
        turn = self._telling.turn_of(line)
        for data in results:
            self._telling.say(line, "tool/result", data, turn)
        return True

    # --- what was streamed ----------------------------------------------------------------------

    def _chunk(self, line: Line) -> bool:
        chunk = line.data.get("chunk")
        if not isinstance(chunk, dict):
            return False
        answer = self._telling.streamed(line)
        read = answer.chunk(line.event, chunk)
        self._close(line, answer)
        return read

    def _row(self, line: Line) -> bool:
        return self._telling.streamed(line).row(line.event, line.kind, line.data)

    def _attempt(self, line: Line) -> bool:
        """A request that came to no message, as later versions keep it."""
        stream = line.data.get("stream")
        if not isinstance(stream, list):
            return False
        answer = self._telling.streamed(line)
        read = answer.stream(line.event, stream)
        answer.failed = True
        self._close(line, answer)
        return read

    def _close(self, line: Line, answer: Answer) -> None:
        if not self._telling.own(line):
            answer.usage = None
        if answer.failed:
            self._telling.abandon()


def _range_of(record: dict[str, Any]) -> tuple[int, int] | None:
    """First and last message of the source that a message takes the place of, or None."""
    told = member(record, "surfaceOp")
    start, end = count(told.get("start")), count(told.get("end"))
    if told.get("op") != "replace" or start is None or end is None:
        return None
    return start, end


def _text(value: object) -> str | None:
    """A string of a sane length that is not empty, or None."""
    return value if isinstance(value, str) and 1 <= len(value) <= _TEXT_CHARS_MAX else None
