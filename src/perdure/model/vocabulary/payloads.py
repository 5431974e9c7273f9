"""The payloads of the vocabulary "perdure/1": the members of `data`, type by type.

A payload may carry further members; readers ignore what they do not know.
"""

from typing import Annotated, Any

import msgspec

__all__ = [
    "PAYLOADS",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "Amount",
    "ArtifactSaved",
    "AssistantDelta",
    "AssistantMessage",
    "Block",
    "ChannelMessage",
    "ContentPinned",
    "ContentRemoved",
    "ContextCompacted",
    "ContextRewound",
    "Count",
    "EffectIntent",
    "EffectOutcome",
    "Error",
    "JobEnd",
    "JobStart",
    "JobUpdate",
    "RequestHeader",
    "SessionArchived",
    "SessionEnded",
    "SessionForked",
    "SessionRepaired",
    "SessionRun",
    "SessionSalvaged",
    "SessionTitled",
    "StateDeleted",
    "StateSet",
    "StepEnd",
    "StepStart",
    "SubagentEnd",
    "SubagentStart",
    "ToolCall",
    "ToolResult",
    "TriggerCleared",
    "TriggerFired",
    "TriggerSet",
    "TurnEnd",
    "TurnStart",
    "Usage",
    "UserMessage",
]

TOOL_NOT_STARTED = "TOOL_NOT_STARTED"
"""The model asked for the call; no `tool/call` was recorded, so its body never ran."""

TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
"""The `tool/call` was recorded and no result: the body may have run, in part or in full."""

Block = dict[str, Any]
"""A content block: `{"type": "text" | "thinking" | "image" | "tool-call" | "tool-result" | "file",
…}`. A tool-call block has `id`, `name` and `arguments`."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""How many of something; more of it is no count but an accident."""

Amount = Annotated[float, msgspec.Meta(ge=0)]
"""How much money."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all payloads share."""


class Error(_Payload, frozen=True):
    """Why something failed: a stable code for programs, a message for people and models."""

    code: str
    message: str


class TurnStart(_Payload, frozen=True):
    """`turn/start`: the envelope's `turn` begins, behind the turn `parent` of its agent.

    Without `parent` it follows where the agent stands. With `replaces` it is another version of
    that turn (an edit, or an answer given again) and follows what that one follows; `how` says
    which: "edit" or "regenerate". So turns make a tree, and nothing is taken away.
    """

    parent: str | None = None
    replaces: str | None = None
    how: str | None = None


class TurnEnd(_Payload, frozen=True):
    """`turn/end`: completed, aborted, blocked, error, max-tokens; interrupted by recovery only."""

    reason: str
    error: Error | None = None


class StepStart(_Payload, frozen=True):
    """`step/start`: one request to the model and what follows from it. `step` counts from 1."""

    step: int


class StepEnd(_Payload, frozen=True):
    """`step/end`: the step is over; `interrupted` only ever comes from recovery."""

    step: int
    interrupted: bool = False


class UserMessage(_Payload, frozen=True):
    """`user/message`: what the user, or somebody for the user, said."""

    content: list[Block]
    source: str | None = None


class AssistantDelta(_Payload, frozen=True):
    """`assistant/delta`: a piece of a streamed answer; the message behind it repeats it whole."""

    text: str
    kind: str = "text"
    index: int = 0
    call: str | None = None


class AssistantMessage(_Payload, frozen=True):
    """`assistant/message`: a complete answer. Each tool-call block opens an obligation.

    `response` is the provider's id of the answer: whatever repeats it is counted once. `usage` has
    the members of the event `usage`, or is what Anthropic's or OpenAI's API said.
    """

    content: list[Block]
    model: str | None = None
    response: str | None = None
    usage: dict[str, Any] | None = None
    interrupted: bool = False


class ToolCall(_Payload, frozen=True):
    """`tool/call`: durable before the body runs. `id` is the id of the tool-call block."""

    id: str
    name: str
    arguments: Any = None


class ToolResult(_Payload, frozen=True):
    """`tool/result`: answers the call `id`."""

    id: str
    content: list[Block]
    error: Error | None = None


class RequestHeader(_Payload, frozen=True):
    """`request/header`: what the model was asked with (model, system, tools, settings)."""

    header: Any
    reason: str | None = None


class ContextCompacted(_Payload, frozen=True):
    """`context/compacted`: from here on `summary` stands for what was said before `first_kept`.

    `first_kept` is the number of the first event whose message is kept as it is; None: none is.
    `before` and `after` are sizes of the context in tokens, as the agent counts them.
    """

    summary: list[Block]
    first_kept: int | None = None
    before: int | None = None
    after: int | None = None
    reason: str | None = None


class ContextRewound(_Payload, frozen=True):
    """`context/rewound`: the agent stands behind the turn `to` again; None: before its first.

    What was said since stays in the log, as a branch. `to` may be a turn of any branch.
    """

    to: str | None = None
    reason: str | None = None


class StateSet(_Payload, frozen=True):
    """`state/set`: the agent keeps `value` under `key`. `scope`: scratchpad, settings, counters."""

    key: str
    value: Any
    scope: str = "scratchpad"


class StateDeleted(_Payload, frozen=True):
    """`state/deleted`: nothing is kept under `key` any more; without `key`, nothing in `scope`."""

    key: str | None = None
    scope: str = "scratchpad"


class TriggerSet(_Payload, frozen=True):
    """`trigger/set`: the trigger `id` of this `kind` waits; `state` is what makes it again."""

    id: str
    kind: str
    state: Any = None


class TriggerCleared(_Payload, frozen=True):
    """`trigger/cleared`: the trigger waits no more."""

    id: str
    reason: str | None = None


class TriggerFired(_Payload, frozen=True):
    """`trigger/fired`: it went off. `state`, where given, takes the place of what was set."""

    id: str
    content: Any = None
    state: Any = None


class ChannelMessage(_Payload, frozen=True):
    """`channel/message`: `sender` said `content` in `channel`."""

    channel: str
    sender: str
    content: Any
    id: str | None = None


class JobStart(_Payload, frozen=True):
    """`job/start`: work that may outlive its turn."""

    id: str
    kind: str | None = None
    name: str | None = None
    arguments: Any = None


class JobUpdate(_Payload, frozen=True):
    """`job/update`: progress or output of a job."""

    id: str
    output: Any = None


class JobEnd(_Payload, frozen=True):
    """`job/end`: completed, failed, cancelled, or interrupted (recovery only)."""

    id: str
    status: str
    result: Any = None
    error: Error | None = None


class SubagentStart(_Payload, frozen=True):
    """`subagent/start`: another agent works on `task`, in the session `session`."""

    id: str
    session: str | None = None
    name: str | None = None
    task: Any = None


class SubagentEnd(_Payload, frozen=True):
    """`subagent/end`: completed, failed or cancelled."""

    id: str
    status: str
    result: Any = None
    error: Error | None = None


class EffectIntent(_Payload, frozen=True):
    """`effect/intent`: the effect of this event's key is about to happen; it must happen once."""

    about: Any = None


class EffectOutcome(_Payload, frozen=True):
    """`effect/outcome`: how the effect of this event's key ended: completed or failed."""

    status: str
    value: Any = None
    error: Error | None = None


class Usage(_Payload, frozen=True):
    """`usage`: what a response of a model cost. `response` is the provider's id of it.

    Counts are tokens. `input` is all that was sent, `cached` what of it was read from a cache;
    `output` is all that came back, `reasoning` what of it was thought. `cost` is in `currency`.
    An event about a `response` that was told of before, here or in its message, is not another
    response: the members that it gives take the place of what was told.
    """

    response: str | None = None
    model: str | None = None
    input: Count = 0
    output: Count = 0
    cached: Count = 0
    reasoning: Count = 0
    cost: Amount | None = None
    currency: str | None = None


class ArtifactSaved(_Payload, frozen=True):
    """`artifact/saved`: the file `name` is the content `blob`, of `size` bytes."""

    name: str
    blob: str
    size: int
    media_type: str | None = None


class SessionRun(_Payload, frozen=True):
    """`session/started` and `session/resumed`: a process begins to write.

    `told` names the jobs of which the agent was told at this resume that they were interrupted.
    `cwd` is where it works from now on, if that is not where it did.
    """

    run: str
    host: str | None = None
    pid: int | None = None
    told: list[str] = []
    cwd: str | None = None


class SessionTitled(_Payload, frozen=True):
    """`session/titled`: the session has a name. The last one holds."""

    title: str


class SessionForked(_Payload, frozen=True):
    """`session/forked`: first own event of a fork; `header` is the digest of the child's header.

    Of a fork of an import, `starts` has the generations of the source that hold in what it
    inherits though the event that says so stands further on: number, and where each begins.
    """

    header: str
    session: str
    seq: int
    starts: list[tuple[int, int]] = []


class SessionRepaired(_Payload, frozen=True):
    """`session/repaired`: the log was damaged; what stands before this event is what was kept.

    `problems` says what was wrong, `kept` how many events hold together, `aside` where the log as
    it was is kept beside this one. `acknowledged` is the last event that was acknowledged, `lost`
    the first and the last acknowledged event that is not kept; `later` counts intact events behind
    the damage, `salvaged` those of them that follow. `header_lost`: nothing of the header is left
    but the id, and what stands in the new one was told by the events.
    """

    problems: list[dict[str, Any]]
    kept: int
    aside: str
    acknowledged: int | None = None
    lost: list[int] | None = None
    later: int = 0
    salvaged: int = 0
    header_lost: bool = False


class SessionSalvaged(_Payload, frozen=True):
    """`session/salvaged`: the next `events` events stood behind damage and got new numbers.

    They were events `first` to `last` of the log that is kept at `aside`, linked to each other and
    to nothing before them; `hash` is that of their last record. Events named in `without_key` (by
    their old numbers) had a key that an earlier event has.
    """

    first: int
    last: int
    hash: str
    events: int
    aside: str
    without_key: list[int] = []


class SessionEnded(_Payload, frozen=True):
    """`session/ended`: the writer says that nothing more will come of this run."""

    reason: str | None = None


class SessionArchived(_Payload, frozen=True):
    """`session/archived` and `session/unarchived`: done with, or not; the last one holds."""


class ContentPinned(_Payload, frozen=True):
    """`content/pinned` and `content/unpinned`: `blobs` (digests) never expire, or may again."""

    blobs: list[str]


class ContentRemoved(_Payload, frozen=True):
    """`content/expired`: `blobs` (digests) were removed by `rule`; what refers to them stays."""

    blobs: list[str]
    rule: dict[str, Any] = {}


PAYLOADS: dict[str, type[_Payload]] = {
    "turn/start": TurnStart,
    "turn/end": TurnEnd,
    "step/start": StepStart,
    "step/end": StepEnd,
    "user/message": UserMessage,
    "assistant/delta": AssistantDelta,
    "assistant/message": AssistantMessage,
    "tool/call": ToolCall,
    "tool/result": ToolResult,
    "request/header": RequestHeader,
    "context/compacted": ContextCompacted,
    "context/rewound": ContextRewound,
    "state/set": StateSet,
    "state/deleted": StateDeleted,
    "trigger/set": TriggerSet,
    "trigger/cleared": TriggerCleared,
    "trigger/fired": TriggerFired,
    "channel/message": ChannelMessage,
    "job/start": JobStart,
    "job/update": JobUpdate,
    "job/end": JobEnd,
    "subagent/start": SubagentStart,
    "subagent/end": SubagentEnd,
    "effect/intent": EffectIntent,
    "effect/outcome": EffectOutcome,
    "usage": Usage,
    "artifact/saved": ArtifactSaved,
    "session/started": SessionRun,
    "session/resumed": SessionRun,
    "session/titled": SessionTitled,
    "session/forked": SessionForked,
    "session/repaired": SessionRepaired,
    "session/salvaged": SessionSalvaged,
    "session/ended": SessionEnded,
    "session/archived": SessionArchived,
    "session/unarchived": SessionArchived,
    "content/pinned": ContentPinned,
    "content/unpinned": ContentPinned,
    "content/expired": ContentRemoved,
}
"""Payload of each type that this version fixes."""
