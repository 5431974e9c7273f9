"""The vocabulary "perdure/1": what the event types of a native session mean.

The log stores any type. This module fixes the payloads (the `data`) of the types that recovery must
understand to close an interrupted turn. Which agent and which turn an event belongs to stands in
its envelope (`agent`, `turn`), not in the payload. A payload may carry further members; readers of
this vocabulary ignore what they do not know.
"""

from typing import Any

import msgspec

from perdure.model.event import Event

__all__ = [
    "PAYLOADS",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "AssistantDelta",
    "AssistantMessage",
    "ContentPinned",
    "ContentRemoved",
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
    "StepEnd",
    "StepStart",
    "ToolCall",
    "ToolResult",
    "TurnEnd",
    "TurnStart",
    "UserMessage",
    "payload",
]

TOOL_NOT_STARTED = "TOOL_NOT_STARTED"
"""The model asked for the call; no `tool/call` was recorded, so its body never ran."""

TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
"""The `tool/call` was recorded and no result: the body may have run, in part or in full."""

Block = dict[str, Any]
"""A content block: `{"type": "text" | "thinking" | "image" | "tool-call" | "tool-result" | "file",
…}`. A tool-call block has `id`, `name` and `arguments`."""


class _Payload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What all payloads share."""


class Error(_Payload, frozen=True):
    """Why something failed: a stable code for programs, a message for people and models."""

    code: str
    message: str


class TurnStart(_Payload, frozen=True):
    """`turn/start`: the envelope's `turn` begins. `parent`: the turn it follows, for branches."""

    parent: str | None = None


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
    """`assistant/message`: a complete answer. Each tool-call block opens an obligation."""

    content: list[Block]
    model: str | None = None
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


class SessionRun(_Payload, frozen=True):
    """`session/started` and `session/resumed`: a process begins to write."""

    run: str
    host: str | None = None
    pid: int | None = None


class SessionTitled(_Payload, frozen=True):
    """`session/titled`: the session has a name. The last one holds."""

    title: str


class SessionForked(_Payload, frozen=True):
    """`session/forked`: first own event of a fork; `header` is the digest of the child's header."""

    header: str
    session: str
    seq: int


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
    "job/start": JobStart,
    "job/update": JobUpdate,
    "job/end": JobEnd,
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


def payload(event: Event) -> _Payload | None:
    """The typed payload of an event, or None for types outside the vocabulary.

    Raises:
        msgspec.ValidationError: the data does not have the members of its type.

    """
    shape = PAYLOADS.get(event.type)
    return None if shape is None else msgspec.convert(event.data, shape)
