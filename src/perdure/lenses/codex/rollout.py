"""The lens: what each record of a rollout is, and who reads it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from perdure.lenses.codex.calls import CALLS, ITEM_CALLS, Reader, typed_command
from perdure.lenses.codex.content import blocks_of, image
from perdure.lenses.codex.document import Document, Part, Piece
from perdure.lenses.codex.items import ENCRYPTED, HISTORY, Items, Outcome, thoughts
from perdure.lenses.codex.meter import Meter
from perdure.lenses.codex.origin import Origin
from perdure.lenses.codex.telling import Telling
from perdure.lenses.lens import Lens, record_of
from perdure.lenses.pieces import ident, text_block
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["Codex"]

Record = dict[str, Any]

_CODE_CHARS_MAX = 128

_ENVELOPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted")
_ECHOES = ("environment_context", "user_instructions")
"""What early versions called a `user_message` event that nobody typed."""


class Codex(Lens):
    """Reads a rollout of any generation, or the history of prompts.

    Besides what is open it remembers the ids of the turns, for a rollback names only their number.
    What an event says was typed begins a turn; of an item alone its text decides, see `injected`.
    """

    name = "codex"
    version = 2

    def __init__(self) -> None:
        """Begin before the first record."""
        super().__init__()
        self._telling = Telling(self.said, self.facts)
        self._items = Items(self._telling)
        self._origin = Origin(self.facts)
        self._meter = Meter()
        self._metered = False
        self._document = Document()
        self._last: Event | None = None

    def read(self, event: Event) -> Iterator[Event]:
        """What the next record says."""
        self._last = event
        pieces = self._document.take(event)
        if pieces is not None:
            self._pieces(pieces)
            return self._emptied()
        record = record_of(event)
        kind, outcome = "record", Outcome.RAW
        if record is not None:
            self._origin.line(event.time)
            kind, outcome = self._record(event, record)
        self._count_records(kind, outcome)
        return self._emptied()

    def end(self) -> Iterator[Event]:
        """The last answer, if it was still open, and results that no item told."""
        self._pieces(self._document.rest())
        self._telling.finish(self._last)
        return self._emptied()

    def _count_records(self, kind: str, outcome: Outcome, lines: int = 1) -> None:
        counted = self.understood if outcome in (Outcome.TOLD, Outcome.READ) else self.raw
        counted[kind] += lines
        self.told += outcome is Outcome.TOLD
        self.missed += outcome is Outcome.MISSED
        if outcome is Outcome.TOLD:
            self._origin.said()

    def _pieces(self, pieces: list[Piece]) -> None:
        """Parts of a whole session that stands over many lines; an item is one record."""
        for first, lines, part, value in pieces:
            kind, outcome = "session", Outcome.READ
            if part is Part.ITEM:
                kind, outcome = value.get("type", "message"), self._items.read(first, value)
            elif part is Part.SESSION:
                self._origin.meta(value)
            elif part is Part.OTHER:
                kind, outcome = "record", Outcome.RAW
            self._count_records(kind if isinstance(kind, str) else "record", outcome, lines)

    def _emptied(self) -> Iterator[Event]:
        out, self._telling.out = self._telling.out, []
        return iter(out)

    # --- kinds of records -----------------------------------------------------------------------

    def _record(self, event: Event, record: Record) -> tuple[str, Outcome]:
        """Kind of a record, and what became of it."""
        kind, said = record.get("type"), record.get("payload")
        if not isinstance(kind, str):
            return self._untyped(event, record)
        if kind not in _ENVELOPES:
            return kind, self._items.read(event, record)
        if not isinstance(said, dict):
            return kind, Outcome.MISSED if kind == "response_item" else Outcome.RAW
        if kind == "response_item":
            return _joined(kind, said.get("type", "message")), self._items.read(event, said)
        if kind == "event_msg":
            inner = said.get("type")
            outcome = self._event(event, said, inner) if isinstance(inner, str) else Outcome.RAW
            item = said.get("item") if inner == "item_completed" else None
            named = item.get("type") if isinstance(item, dict) else None
            return _joined(_joined(kind, inner), named), outcome
        if kind == "compacted":
            return kind, self._compacted(event, said)
        if kind == "session_meta":
            self._origin.meta(said)
        else:
            self._begins(said)
            self._set(said)
        return kind, Outcome.READ

    def _untyped(self, event: Event, record: Record) -> tuple[str, Outcome]:
        """Old lines: the first, items, states, a whole session; and prompts of the history."""
        if "record_type" in record:
            return "state", Outcome.RAW
        if "role" in record:
            return "message", self._items.read(event, {**record, "type": "message"})
        text, items, session = (record.get(name) for name in ("text", "items", "session"))
        if "session_id" in record and isinstance(text, str):
            if text:
                self._telling.prompt(event, [text_block(text)], HISTORY)
            return "history", Outcome.TOLD
        if isinstance(items, list) and isinstance(session, dict):
            self._origin.meta(session)
            for item in items:
                if isinstance(item, dict):
                    self._items.read(event, item)
            return "session", Outcome.TOLD
        if "id" in record and "timestamp" in record:
            self._origin.meta(record)
            return "session", Outcome.READ
        return "record", Outcome.RAW

    def _begins(self, said: Record) -> None:
        """A turn of Codex's begins or goes on."""
        task = ident(said.get("turn_id"))
        self._origin.turn(task)
        self._telling.task = task or self._telling.task

    def _set(self, said: Record) -> None:
        """What holds from here on."""
        self._origin.place(said)
        if isinstance(said.get("model"), str):
            self._telling.model = said["model"]

    # --- compaction -----------------------------------------------------------------------------

    def _compacted(self, event: Event, said: Record) -> Outcome:
        """The model's new history: one summary for what it is told, up to what it said itself.

        Nearly always all of it is told to the model: the prompts that are kept, and a summary.
        """
        history, message = said.get("replacement_history"), said.get("message")
        summary = blocks_of(message) or []
        own: list[Record] = []
        if isinstance(history, list) and history:
            known = [item for item in history if isinstance(item, dict)]
            first = next((at for at, item in enumerate(known) if _by_model(item)), len(known))
            summary = [block for item in known[:first] for block in _told_to_model(item)]
            own = known[first:]
        elif not isinstance(history, list):
            if not isinstance(message, str):
                return Outcome.RAW
            summary = self._telling.kept() + summary
        self._telling.compact(event, summary, self._meter.context)
        # Which model said it is not kept.
        model, self._telling.model = self._telling.model, None
        for item in own:
            self._items.read(event, item, again=True)
        self._telling.flush()
        self._telling.model = model
        return Outcome.READ

    # --- events for the screen ------------------------------------------------------------------

    def _event(self, event: Event, said: Record, kind: str) -> Outcome:
        reader = self._EVENTS.get(kind)
        if reader is not None:
            return reader(self, event, said)
        return self._shown(event, said, CALLS.get(kind))

    def _shown(self, event: Event, said: Record, reader: Reader | None) -> Outcome:
        """A call as the screen showed it."""
        if reader is None or typed_command(said):
            return Outcome.RAW
        shown = reader(said)
        if shown is None:
            return Outcome.MISSED
        self._telling.shown(event, shown)
        return Outcome.TOLD

    def _user_message(self, event: Event, said: Record) -> Outcome:
        text = said.get("message")
        pictures = [
            image(url)
            for name in ("images", "local_images")
            for url in (said[name] if isinstance(said.get(name), list) else ())
        ]
        if not isinstance(text, str) and not pictures:
            return Outcome.MISSED
        blocks = [*(blocks_of(text) or []), *pictures]
        # What it tells of was typed, whatever it looks like. Of the rest there is an item.
        if blocks and said.get("kind") not in _ECHOES:
            self._telling.prompt(event, blocks, "user_message")
        return Outcome.TOLD

    def _agent_message(self, event: Event, said: Record) -> Outcome:
        text = said.get("message")
        if not isinstance(text, str):
            return Outcome.MISSED
        self._telling.echo(event, text_block(text))
        return Outcome.TOLD

    def _agent_reasoning(self, event: Event, said: Record) -> Outcome:
        text = said.get("text")
        if not isinstance(text, str):
            return Outcome.RAW
        self._telling.echo(event, {"type": "thinking", "text": text})
        return Outcome.READ

    def _item_completed(self, event: Event, said: Record) -> Outcome:
        """What later versions write in the place of the events above."""
        item = said.get("item")
        kind = item.get("type") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(kind, str):
            return Outcome.RAW
        if kind == "Reasoning":
            for block in thoughts(item.get("summary_text")) or []:
                self._telling.echo(event, block)
            return Outcome.READ
        if kind not in ("UserMessage", "AgentMessage"):
            return self._shown(event, item, ITEM_CALLS.get(kind))
        blocks = blocks_of(item.get("content"))
        if blocks is None:
            return Outcome.MISSED
        if kind == "AgentMessage":
            for block in blocks:
                self._telling.echo(event, block)
        elif blocks:
            self._telling.prompt(event, blocks, "item_completed")
        return Outcome.TOLD

    def _token_count(self, event: Event, said: Record) -> Outcome:
        info = said.get("info", said)
        if info is not None and not isinstance(info, dict):
            return Outcome.RAW
        # Without info it tells of the limits of the account alone.
        self._metered = (info is not None and self._count(event, info)) or self._metered
        return Outcome.READ

    def _count(self, event: Event, info: Record) -> bool:
        counts = self._meter.read(info)
        if counts is not None:
            self._telling.usage(event, counts, counted=not self._origin.copying)
        return counts is not None

    # --- events of turns and of the session -----------------------------------------------------

    def _started(self, event: Event, said: Record) -> Outcome:  # noqa: ARG002
        self._telling.flush()
        self._begins(said)
        return Outcome.READ

    def _completed(self, event: Event, said: Record) -> Outcome:
        """The end of a turn; at 0.5x it told what the turn cost where no report of tokens did."""
        usage, error = said.get("usage"), said.get("error")
        if isinstance(usage, dict) and not self._metered:
            self._count(event, usage)
        if isinstance(error, dict):
            self._telling.error = _error(error)
        reason = "completed" if self._telling.error is None else "error"
        return self._ended(event, said, reason)

    def _aborted(self, event: Event, said: Record) -> Outcome:
        return self._ended(event, said, "aborted")

    def _ended(self, event: Event, said: Record, reason: str) -> Outcome:
        self._metered = False
        self._telling.end_turn(event, reason, ident(said.get("turn_id")))
        return Outcome.READ

    def _failed(self, event: Event, said: Record) -> Outcome:  # noqa: ARG002
        """What went wrong is told at the end of the turn, which such an error brings about."""
        self._telling.flush()
        self._telling.error = _error(said)
        return Outcome.READ

    def _rolled_back(self, event: Event, said: Record) -> Outcome:
        count = said.get("num_turns")
        if type(count) is not int:
            return Outcome.RAW
        self._telling.rewind(event, count)
        return Outcome.READ

    def _renamed(self, event: Event, said: Record) -> Outcome:
        title = said.get("thread_name")
        # What the parent is called is not what its fork is.
        if isinstance(title, str) and title.strip() and not self._origin.copying:
            self._telling.titled(event, title)
        return Outcome.READ

    def _settings(self, event: Event, said: Record) -> Outcome:  # noqa: ARG002
        settings = said.get("thread_settings")
        if not isinstance(settings, dict):
            return Outcome.RAW
        self._set(settings)
        return Outcome.READ

    # Further ones are `CALLS`. The rest means nothing for the conversation.
    _EVENTS: ClassVar[Mapping[str, Callable[["Codex", Event, Record], Outcome]]] = {
        "agent_message": _agent_message,
        "agent_reasoning": _agent_reasoning,
        "agent_reasoning_raw_content": _agent_reasoning,
        "error": _failed,
        "item_completed": _item_completed,
        "task_complete": _completed,
        "task_started": _started,
        "thread_name_updated": _renamed,
        "thread_rolled_back": _rolled_back,
        "thread_settings_applied": _settings,
        "token_count": _token_count,
        "turn.completed": _completed,
        "turn_aborted": _aborted,
        "turn_complete": _completed,
        "turn_started": _started,
        "user_message": _user_message,
    }


def _joined(kind: str, inner: object) -> str:
    return f"{kind}/{inner}" if isinstance(inner, str) else kind


def _by_model(item: Record) -> bool:
    """Whether an item is the model's own, or answers what it asked for."""
    kind = item.get("type", "message")
    if kind == "message":
        return item.get("role") in ("assistant", "tool")
    return isinstance(kind, str) and kind.endswith(("_call", "_output", "_result", "reasoning"))


def _told_to_model(item: Record) -> list[Block]:
    """What an item tells the model: nothing, if it is there for Codex alone."""
    kind = item.get("type", "message")
    if kind in ("message", "agent_message"):
        return blocks_of(item.get("content")) or []
    if isinstance(kind, str) and kind.startswith("compaction"):
        return [text_block(ENCRYPTED)]
    return []


def _error(said: Record) -> dict[str, str]:
    """An error as Codex tells of it, for the end of a turn."""
    info, message = said.get("codex_error_info"), said.get("message")
    if isinstance(info, dict):
        info = next(iter(info), None)
    code = info[:_CODE_CHARS_MAX] if isinstance(info, str) and info else "error"
    return {"code": code, "message": message if isinstance(message, str) else ""}
