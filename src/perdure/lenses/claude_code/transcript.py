"""The lens: what each record of a transcript is, and what it says."""

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar

from perdure.lenses.claude_code.attachments import text_of
from perdure.lenses.claude_code.chain import Behind, Chain, own_id
from perdure.lenses.claude_code.content import Part, blocks_of, call_of, parts_of, usage_of
from perdure.lenses.claude_code.injected import (
    CAVEAT,
    COMMAND,
    INTERRUPTION,
    QUEUED,
    begins_turn,
    origin_of,
    source_of,
    told_apart,
)
from perdure.lenses.claude_code.results import Results
from perdure.lenses.claude_code.telling import Telling
from perdure.lenses.claude_code.titles import Titles
from perdure.lenses.claude_code.turns import Agent, Answer, Place, Turn
from perdure.lenses.lens import KIND_CHARS_MAX, Lens, record_of
from perdure.lenses.pieces import count, ident, text_block
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["ClaudeCode"]

Record = dict[str, Any]

_CODE_CHARS_MAX = 128

_SYNTHETIC = "<synthetic>"
"""Claude Code says this itself, in the place of a model."""

_REASONS = {
    "end_turn": "completed",
    "max_tokens": "max-tokens",
    "refusal": "blocked",
    "stop_sequence": "completed",
}
"""Why an answer is the last of its turn, as the provider says it and as perdure does."""

_RUNNING = ("agent_progress", "bash_progress", "mcp_progress")


class _Outcome(Enum):
    """What became of a record: a message, call or result told or missed; another read or not."""

    TOLD = "told"
    MISSED = "missed"
    READ = "read"
    RAW = "raw"


class ClaudeCode(Lens):
    """Reads a transcript, the file of a sub-agent, or the history of prompts.

    Where answers were taken back within a turn, what is said instead begins another version of that
    turn, in which what both share is told again. A call without a result is one that may have run.
    What a fork's parent had cost is not told again.
    """

    name = "claude-code"
    version = 2

    def __init__(self) -> None:
        """Begin before the first record."""
        super().__init__()
        self._telling = Telling(self.said)
        self._chain = Chain(self.facts)
        self._results = Results(self._telling)
        self._titles = Titles()
        self._boundary: Record = {}
        self._last: Event | None = None

    def read(self, event: Event) -> Iterator[Event]:
        """What the next record says."""
        record = record_of(event)
        kind, outcome = "record", _Outcome.RAW
        self._last = event
        self._telling.at = None
        if record is not None:
            kind, outcome = self._record(event, record)
        if outcome in (_Outcome.TOLD, _Outcome.READ):
            self.understood[kind] += 1
        else:
            self.raw[kind] += 1
        self.told += outcome is _Outcome.TOLD
        self.missed += outcome is _Outcome.MISSED
        return iter(self._telling.flush())

    def end(self) -> Iterator[Event]:
        """What was still open: answers, and calls without a result."""
        self._telling.at = None
        if self._last is not None:
            self._telling.close_all(self._last)
        return iter(self._telling.flush())

    # --- kinds of records -----------------------------------------------------------------------

    def _record(self, event: Event, record: Record) -> tuple[str, _Outcome]:
        """Kind of a record, and what became of it."""
        kind = record.get("type")
        if not isinstance(kind, str):
            return self._untyped(event, record)
        self._facts(record)
        if kind in self._CHAINED:
            where = _LINKS.get(kind)
            inner = record.get(where[0]) if where is not None else None
            for name in where[1:] if where is not None else ():
                inner = inner.get(name) if isinstance(inner, dict) else None
            outcome = self._chained(event, record, kind, inner)
            return _joined(kind, inner), outcome
        reader = self._HOUSEKEEPING.get(kind)
        outcome = _Outcome.RAW if reader is None else reader(self, event, record)
        self._passed(event, record)
        return _joined(kind), outcome

    def _untyped(self, event: Event, record: Record) -> tuple[str, _Outcome]:
        """Prompts of the history, and what stands beside the file of a sub-agent."""
        text, agent = record.get("display"), _text(record, "agentType")
        if isinstance(text, str):
            self.facts.cwd = _text(record, "project") or self.facts.cwd
            if text.strip():
                main = self._chain.main
                self._begin(event, main, own_id(event, record), Behind({}))
                source = {"source": COMMAND} if text.startswith("/") else {}
                self._say(event, main, "user/message", {"content": [text_block(text)], **source})
            return "history", _Outcome.TOLD
        if agent is not None:
            self.facts.agent = agent
            return "meta", _Outcome.READ
        self._passed(event, record)
        return "record", _Outcome.RAW

    def _facts(self, record: Record) -> None:
        """What any record may say of the session."""
        session = ident(record.get("sessionId"))
        if session is not None:
            self._chain.session(session)
        self.facts.cwd = _text(record, "cwd") or self.facts.cwd
        self.facts.branch = _text(record, "gitBranch") or self.facts.branch
        name = _text(record, "attributionAgent")
        if name is not None:
            self._chain.called(name)
        origin = record.get("forkedFrom")
        source = ident(origin.get("sessionId")) if isinstance(origin, dict) else None
        if source is not None and self.facts.kind is None:
            self.facts.parent, self.facts.kind = source, "fork"

    def _chained(self, event: Event, record: Record, kind: str, inner: Any) -> _Outcome:
        """A record that has a place in the tree."""
        agent = self._chain.agent(event, record)
        at = self._telling.at = self._chain.place(event, record, agent)
        outcome = self._CHAINED[kind](self, event, record, at, inner)
        self._put(event, record, at)
        return outcome

    def _passed(self, event: Event, record: Record) -> None:
        """A record of another kind has a place as well, if it has an id: others may follow it."""
        id = record.get("uuid")
        if ident(id) is not None and not self._chain.knows(id):
            agent = self._chain.agent(event, record, chained=False)
            self._put(event, record, self._chain.place(event, record, agent))

    def _put(self, event: Event, record: Record, at: Place) -> None:
        self._chain.put(record, at)
        text = self._titles.found(ident(record.get("uuid")))
        if text is not None:
            self._titled(event, "summary", text)

    # --- turns ----------------------------------------------------------------------------------

    def _begin(self, event: Event, agent: Agent, id: str, behind: Behind) -> None:
        """A turn begins; of a version of another one, what both share is told again."""
        telling = self._telling
        telling.leave(event, agent)
        told = None if behind.up is None else telling.version(behind.up)
        shared = behind.up is not None and told is not None
        agent.turn = Turn(id, behind.up.turn if behind.up is not None and shared else None)
        agent.first, agent.ended = agent.first or id, False
        self._say(event, agent, "turn/start", behind.version if shared else behind.members)
        telling.begin(agent.turn)
        telling.again(event, agent, told or [])

    def _end_turn(
        self, event: Event, agent: Agent, reason: str, error: dict[str, str] | None = None
    ) -> bool:
        """End the turn that the agent is in; False: it is in none, or that is ended."""
        if not agent.running:
            return False
        agent.ended = True
        data = {"reason": reason} | ({} if error is None else {"error": error})
        self._say(event, agent, "turn/end", data)
        return True

    def _say(self, event: Event, agent: Agent, kind: str, data: Any) -> None:
        self._telling.say(event, kind, data, agent, agent.turn)

    def _note(self, event: Event, agent: Agent, blocks: list[Block], source: str) -> None:
        """Something that the model was told and nobody typed as a prompt."""
        if blocks:
            self._say(event, agent, "user/message", {"content": blocks, "source": source})

    # --- the user -------------------------------------------------------------------------------

    def _user(self, event: Event, record: Record, at: Place, _inner: Any) -> _Outcome:
        agent, parts = at.agent, parts_of(_content(record))
        if parts is None:
            return _Outcome.MISSED
        results = [part for part in parts if part.get("type") == "tool_result"]
        others = [part for part in parts if part.get("type") != "tool_result"]
        if results:
            return self._answered(event, record, at, results, others)
        blocks = blocks_of(others)
        if blocks is None:
            return _Outcome.MISSED
        if record.get("isCompactSummary") is True:
            self._compacted(event, at, blocks)
            return _Outcome.TOLD
        source = source_of(blocks)
        if record.get("isMeta") is True:
            agent.caveat = source == CAVEAT
            self._note(event, agent, blocks, source or "meta")
            return _Outcome.TOLD
        source = source or origin_of(record.get("origin"))
        local = source == COMMAND and agent.caveat
        agent.caveat = source == CAVEAT
        if source is not None and (local or not begins_turn(source)):
            self._note(event, agent, blocks, source)
            if source == INTERRUPTION:
                self._end_turn(event, agent, "aborted")
        else:
            self._prompt(event, record, at, blocks, source)
        return _Outcome.TOLD

    def _prompt(
        self, event: Event, record: Record, at: Place, blocks: list[Block], source: str | None
    ) -> None:
        """What the model answers in a turn of its own."""
        if not blocks:
            return
        agent, behind = at.agent, self._chain.behind(at, record)
        self._begin(event, agent, own_id(event, record), behind)
        at.ends(agent.turn)
        for kind, said in [(source, blocks)] if source is not None else told_apart(blocks):
            named = {} if kind is None else {"source": kind}
            self._say(event, agent, "user/message", {"content": said, **named})

    def _answered(
        self, event: Event, record: Record, at: Place, results: list[Part], others: list[Part]
    ) -> _Outcome:
        """Results of calls, and what else stands in their message."""
        agent = at.agent
        read = [self._results.read(event, record, at, part) for part in results]
        blocks = blocks_of(others) or []
        source = source_of(blocks)
        self._note(event, agent, blocks, source or "meta")
        if source == INTERRUPTION:
            self._end_turn(event, agent, "aborted")
        return _Outcome.TOLD if any(read) else _Outcome.MISSED

    def _compacted(self, event: Event, at: Place, blocks: list[Block]) -> None:
        """A summary stands for what was said before, or before what the boundary says is kept."""
        agent = at.agent
        self._telling.close(agent)
        said, self._boundary = self._boundary, {}
        kept, trigger = said.get("preservedSegment"), ident(said.get("trigger"))
        first = self._chain.placed(kept.get("headUuid")) if isinstance(kept, dict) else None
        if first is not None and first.agent is agent:
            # What is kept follows the summary from now on.
            first.up = at
        at.ends(agent.turn)
        agent.turn.base = at.count
        members = {
            "first_kept": None if first is None else first.seq,
            "before": count(said.get("preTokens")),
            "after": count(said.get("postTokens")),
            "reason": trigger,
        }
        known = {name: value for name, value in members.items() if value is not None}
        self._say(event, agent, "context/compacted", {"summary": blocks, **known})

    def _tool_result(self, event: Event, record: Record, at: Place, _inner: Any) -> _Outcome:
        """A result as early versions wrote it, as a record of its own."""
        part = {**record, "content": record.get("content", record.get("output"))}
        read = self._results.read(event, record, at, part)
        return _Outcome.TOLD if read else _Outcome.MISSED

    # --- the model ------------------------------------------------------------------------------

    def _assistant(self, event: Event, record: Record, at: Place, _inner: Any) -> _Outcome:
        said = record.get("message")
        message: Record = said if isinstance(said, dict) else {}
        agent, parts = at.agent, parts_of(_content(record))
        if parts is None:
            return _Outcome.MISSED
        blocks: list[Block] = []
        for number, part in enumerate(parts):
            if part.get("type") == "tool_use":
                blocks.append(self._call(event, record, agent, part, number))
            else:
                blocks += blocks_of([part], model=True) or []
        if parts and not blocks and blocks_of(parts, model=True) is None:
            return _Outcome.MISSED
        if record.get("isApiErrorMessage") is True and self._failed(event, record, agent, blocks):
            return _Outcome.TOLD
        answer = self._add(event, record, at, ident(message.get("id")), blocks)
        model = message.get("model")
        if model != _SYNTHETIC:
            if isinstance(model, str) and model:
                answer.model = model
                if agent is self._chain.main:
                    self.facts.model = model
            if not isinstance(record.get("forkedFrom"), dict):
                # What was copied from another session was paid for there.
                answer.usage = usage_of(message.get("usage")) or answer.usage
        if record.get("isAbortedMidStream") is True:
            answer.interrupted = True
        reason = message.get("stop_reason")
        if isinstance(reason, str) and reason in _REASONS:
            self._end_turn(event, agent, _REASONS[reason])
        return _Outcome.TOLD

    def _add(
        self,
        event: Event,
        record: Record,
        at: Place,
        response: str | None,
        blocks: list[Block],
    ) -> Answer:
        """Add a piece to the open answer, or begin another one."""
        agent = at.agent
        answer = self._telling.open(agent, response)
        new = blocks if answer is None else answer.add(blocks)
        if answer is None:
            answer = Answer(event, agent, response)
            answer.add(blocks)
            behind = self._chain.behind(at, record, answer)
            if behind.moves and record.get("parentUuid") is not None:
                # Somebody else goes on where the conversation stood before, or the model answers
                # once more.
                self._begin(event, agent, own_id(event, record), behind)
            agent.ended = agent.caveat = False
            self._telling.answer(answer)
        self._telling.asked(event, new, answer)
        at.answer = answer
        at.ends(agent.turn)
        # All pieces of an answer are told as its first one.
        at.seq = answer.seq
        return answer

    def _call(self, event: Event, record: Record, agent: Agent, part: Part, at: int) -> Block:
        id = ident(part.get("id"))
        if id is None:
            id = f"{own_id(event, record)}-{at}"
            agent.unnamed.append(id)
        return call_of(part, id)

    def _failed(self, event: Event, record: Record, agent: Agent, blocks: list[Block]) -> bool:
        """No answer came: Claude Code says in its place what the API, or the network, said."""
        code = _text(record, "error") or "API_ERROR"
        text = "\n".join(block["text"] for block in blocks if block["type"] == "text")
        error = {"code": code[:_CODE_CHARS_MAX], "message": text}
        self._telling.close(agent)
        return self._end_turn(event, agent, "error", error)

    def _tool_use(self, event: Event, record: Record, at: Place, _inner: Any) -> _Outcome:
        """A call as early versions wrote it, as a record of its own."""
        if not isinstance(record.get("name"), str):
            return _Outcome.MISSED
        self._add(event, record, at, None, [self._call(event, record, at.agent, record, 0)])
        return _Outcome.TOLD

    # --- beside the messages --------------------------------------------------------------------

    def _system(self, event: Event, record: Record, at: Place, inner: Any) -> _Outcome:
        agent = at.agent
        if inner == "compact_boundary":
            said = record.get("compactMetadata")
            self._boundary = said if isinstance(said, dict) else {}
            return _Outcome.READ
        if inner == "turn_duration":
            self._end_turn(event, agent, "completed")
            return _Outcome.READ
        text = record.get("content")
        if inner == "local_command" and isinstance(text, str):
            blocks = [text_block(text)] if text else []
            self._note(event, agent, blocks, source_of(blocks) or COMMAND)
            return _Outcome.TOLD
        return _Outcome.RAW

    def _attachment(self, event: Event, record: Record, at: Place, inner: Any) -> _Outcome:
        said = record.get("attachment")
        if not isinstance(said, dict) or not isinstance(inner, str):
            return _Outcome.RAW
        if inner == "queued_command":
            return self._queued(event, record, at, said)
        text = text_of(said)
        self._note(event, at.agent, [text_block(text)] if text else [], inner[:KIND_CHARS_MAX])
        return _Outcome.READ if text else _Outcome.RAW

    def _queued(self, event: Event, record: Record, at: Place, said: Record) -> _Outcome:
        """What was typed while the agent was busy; it is told in between, if it still is."""
        parts = parts_of(said.get("prompt"))
        blocks = None if parts is None else blocks_of(parts)
        if blocks is None:
            return _Outcome.MISSED
        source = source_of(blocks) or origin_of(said.get("origin"))
        if said.get("commandMode") == "task-notification":
            source = "task-notification"
        if not at.agent.running:
            self._prompt(event, record, at, blocks, source)
        else:
            self._note(event, at.agent, blocks, source or QUEUED)
        return _Outcome.TOLD

    def _progress(self, event: Event, record: Record, _at: Place, inner: Any) -> _Outcome:
        """Nothing is said, but some of it shows that a call was run."""
        said = record.get("data")
        hook = said.get("hookEvent") if isinstance(said, dict) else None
        after = isinstance(hook, str) and hook.startswith("PostToolUse")
        shows = inner in _RUNNING or (inner == "hook_progress" and after)
        call = ident(record.get("parentToolUseID"))
        read = shows and self._telling.started(event, call)
        return _Outcome.READ if read else _Outcome.RAW

    # --- housekeeping ---------------------------------------------------------------------------

    def _title(self, event: Event, record: Record) -> _Outcome:
        kind = record["type"]
        name = {"custom-title": "customTitle", "ai-title": "aiTitle"}.get(kind, "summary")
        text = record.get(name)
        if not isinstance(text, str) or not text.strip():
            return _Outcome.RAW
        leaf = record.get("leafUuid")
        if kind == "summary" and not self._chain.knows(leaf):
            # It may be of another session, or of what is still to be read.
            self._titles.wait(ident(leaf), text)
            return _Outcome.RAW
        self._titled(event, kind, text)
        return _Outcome.READ

    def _titled(self, event: Event, kind: str, text: str) -> None:
        if self._titles.holds(kind):
            self.facts.title = text
            data = {"title": text}
            self._telling.say(event, "session/titled", data, self._chain.main, None)

    def _relocated(self, _event: Event, record: Record) -> _Outcome:
        folder = _text(record, "relocatedCwd")
        self.facts.cwd = folder or self.facts.cwd
        return _Outcome.RAW if folder is None else _Outcome.READ

    _CHAINED: ClassVar[
        Mapping[str, Callable[["ClaudeCode", Event, Record, Place, Any], _Outcome]]
    ] = {
        "assistant": _assistant,
        "attachment": _attachment,
        "progress": _progress,
        "system": _system,
        "tool_result": _tool_result,
        "tool_use": _tool_use,
        "user": _user,
    }
    _HOUSEKEEPING: ClassVar[Mapping[str, Callable[["ClaudeCode", Event, Record], _Outcome]]] = {
        "ai-title": _title,
        "custom-title": _title,
        "relocated": _relocated,
        "summary": _title,
    }


_LINKS = {
    "attachment": ("attachment", "type"),
    "progress": ("data", "type"),
    "system": ("subtype",),
}
"""Where records say which of several kinds they are."""


def _joined(kind: str, inner: object = None) -> str:
    """Name of a kind of records."""
    return f"{kind}/{inner}" if isinstance(inner, str) and inner else kind


def _text(record: Record, name: str) -> str | None:
    """A member that is text, if there is any."""
    text = record.get(name)
    return text if isinstance(text, str) and text else None


def _content(record: Record) -> Any:
    """Content of the message of a record, wherever its version puts it."""
    message = record.get("message", record)
    return message.get("content") if isinstance(message, dict) else message
