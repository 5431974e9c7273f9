"""By what a record shows which agent wrote it.

Agents write records that look alike, so all signs stand here, and are asked for in one order: a
record bears the sign of one agent at most, and no two formats recognise the same head. Agents that
cannot be imported have theirs too, so that nobody takes their records for those of another.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from perdure.lenses.pieces import ident

__all__ = ["CLAUDE_CODE", "CODEX", "DEEPSEEK_HARNESS", "sure_writer_of", "writer_of"]

CLAUDE_CODE = "claude-code"
CODEX = "codex"
DEEPSEEK_HARNESS = "deepseek-harness"

Record = dict[str, Any]

_ENVELOPES = frozenset(
    {
        "compacted",
        "event_msg",
        "inter_agent_communication_metadata",
        "response_item",
        "session_meta",
        "turn_context",
        "world_state",
    }
)
"""Types of Codex's records that hold a payload."""

_ITEMS = frozenset(
    {
        "custom_tool_call",
        "custom_tool_call_output",
        "function_call",
        "function_call_output",
        "function_result",
        "local_shell_call",
        "tool_call",
        "tool_result",
        "web_search_call",
    }
)
"""Types of calls and results that Codex once wrote without an envelope."""

_TIES = ("call_id", "name", "function", "action")
"""What such an item says besides."""

_ROLES = ("user", "assistant", "developer", "system", "tool")
_BLOCKS = ("input_text", "output_text", "input_image")

_MESSAGES = ("user", "assistant")

_CHAINED = frozenset(
    {"assistant", "attachment", "progress", "system", "tool_result", "tool_use", "user"}
)
"""Types of Claude Code's records that have a place in its tree."""

_HOUSEKEEPING = {
    "agent-name": "agentName",
    "ai-title": "aiTitle",
    "bridge-session": "bridgeSessionId",
    "custom-title": "customTitle",
    "file-history-snapshot": "snapshot",
    "frame-link": "frameUrl",
    "last-prompt": "lastPrompt",
    "permission-mode": "permissionMode",
    "pr-link": "prUrl",
    "queue-operation": "operation",
    "relocated": "relocatedCwd",
    "summary": "leafUuid",
    "worktree-state": "worktreeSession",
}
"""Types of its other records, and the member by which each is known."""


def writer_of(head: Sequence[Record]) -> str | None:
    """The name of the format in which the first records of a source are written.

    None: of no format that can be imported. The first sure sign decides. Without one, what the
    first record is likely to be does: chance likeness further down says nothing.
    """
    sign = _sure_sign(head)
    if sign is not None:
        return sign.writer
    return next((writer for writer, bears in _LIKELY if head and bears(head[0])), None)


def sure_writer_of(head: Sequence[Record]) -> str | None:
    """As `writer_of`, where a sure sign says so."""
    sign = _sure_sign(head)
    return None if sign is None else sign.writer


class _Sign(NamedTuple):
    """By what records are known, and of which format they are; None: of none here."""

    writer: str | None
    borne_by: Callable[[Record], bool]


def _sure_sign(head: Sequence[Record]) -> _Sign | None:
    """The first one that a record bears."""
    return next((sign for record in head for sign in _SURE if sign.borne_by(record)), None)


# --- sure signs ---------------------------------------------------------------------------------


def _deepseek_harness(record: Record) -> bool:
    """The header, whose time is a number by the name of `createdAt`."""
    return record.get("type") == "session" and "createdAt" in record


def _others(record: Record) -> bool:
    """Records of pi, Gemini, and Qwen Code, which are near to those above and below."""
    message = record.get("message")
    return (
        (record.get("type") == "session" and "timestamp" in record)
        or any(name in record for name in ("projectHash", "$set", "$rewindTo", "systemPayload"))
        or (isinstance(message, dict) and "parts" in message and "content" not in message)
    )


def _codex(record: Record) -> bool:
    """An envelope; without a type the first line of old, a prompt, a title, a whole session."""
    kind = record.get("type")
    if kind is not None:
        known = isinstance(kind, str) and kind in _ENVELOPES
        return known and isinstance(record.get("payload"), dict)
    id, session = record.get("id"), record.get("session")
    if ident(id) is not None and _text(record, "timestamp"):
        return "instructions" in record or isinstance(record.get("git"), dict)
    if ident(id) is not None and _text(record, "updated_at"):
        return _text(record, "thread_name")
    if ident(record.get("session_id")) is not None and _number(record, "ts"):
        return _text(record, "text")
    items = isinstance(record.get("items"), list)
    return items and isinstance(session, dict) and ident(session.get("id")) is not None


def _claude_code(record: Record) -> bool:
    """A record of its tree or about one, known by its ids; or a prompt of its history."""
    kind = record.get("type")
    if not isinstance(kind, str):
        prompt = kind is None and _text(record, "display") and "project" in record
        return prompt and _number(record, "timestamp")
    if kind in _CHAINED:
        return "parentUuid" in record or any(
            ident(record.get(name)) is not None for name in ("uuid", "sessionId")
        )
    return kind in _HOUSEKEEPING and _HOUSEKEEPING[kind] in record


# --- what is likely -----------------------------------------------------------------------------


def _likely_claude_code(record: Record) -> bool:
    """A message by itself, or a record of a type that is not known, of a session."""
    kind, message = record.get("type"), record.get("message")
    if not isinstance(kind, str):
        return False
    if kind in _MESSAGES:
        return isinstance(message, dict) and "content" in message
    return ident(record.get("sessionId")) is not None or "parentUuid" in record


def _likely_codex(record: Record) -> bool:
    """An item of the time before envelopes, or a message as its first versions wrote it."""
    kind = record.get("type")
    if kind is None and record.get("record_type") == "state":
        return True
    if isinstance(kind, str) and kind in _ITEMS:
        return any(name in record for name in _TIES)
    if kind not in (None, "message") or record.get("role") not in _ROLES:
        return False
    content = record.get("content")
    if isinstance(content, list):
        return any(isinstance(each, dict) and each.get("type") in _BLOCKS for each in content)
    said = _text(record, "content") or _text(record, "message")
    dated = _text(record, "timestamp") and _text(record, "model")
    return said and (dated or _text(record, "created_at"))


_SURE = (
    _Sign(DEEPSEEK_HARNESS, _deepseek_harness),
    _Sign(None, _others),
    _Sign(CODEX, _codex),
    _Sign(CLAUDE_CODE, _claude_code),
)
_LIKELY = ((CLAUDE_CODE, _likely_claude_code), (CODEX, _likely_codex))


def _text(record: Record, name: str) -> bool:
    return isinstance(record.get(name), str)


def _number(record: Record, name: str) -> bool:
    return type(record.get(name)) in (int, float)
