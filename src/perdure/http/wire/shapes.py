"""What all of the wire has in common: kinds of shapes, bounded values, and the form of errors."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from perdure.model import limits

__all__ = [
    "Answer",
    "Body",
    "Count",
    "Cursor",
    "Digest",
    "ErrorBody",
    "ErrorShape",
    "Format",
    "HealthShape",
    "Id",
    "Key",
    "Kind",
    "Mode",
    "NoQuery",
    "PositionShape",
    "ProblemShape",
    "Query",
    "Request",
    "Seq",
    "Sort",
    "Status",
    "Text",
    "Time",
]

Seq = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Time = Annotated[int, Meta(ge=-limits.TIME_MS_MAX, le=limits.TIME_MS_MAX)]
Id = Annotated[str, Meta(min_length=1, max_length=limits.ID_CHARS_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=limits.KEY_CHARS_MAX)]
Request = Annotated[str, Meta(min_length=1, max_length=200)]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Text = Annotated[str, Meta(max_length=4_096)]
Cursor = Annotated[str, Meta(min_length=1, max_length=8_192)]

# tests/test_http_wire.py compares these with what the store takes.
Sort = Literal["last_active", "created", "title", "size"]
Status = Literal["running", "paused", "completed", "crashed", "interrupted", "damaged"]
Kind = Literal[
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
]
Mode = Literal["auto", "keyword", "semantic", "hybrid"]
Format = Literal["neutral", "anthropic", "openai-chat", "openai-responses"]


class Query(Struct, forbid_unknown_fields=True, kw_only=True):
    """Parameters behind the `?` of a URL. Lists are given by repeating the name."""


class Body(Struct, forbid_unknown_fields=True, kw_only=True):
    """JSON that is sent."""


class Answer(Struct, kw_only=True):
    """JSON that comes back. A later version may add members."""


class NoQuery(Query):
    """No parameters."""


class ErrorBody(Answer):
    """What went wrong.

    Attributes:
        code: stable, for programs; docs/reference.md lists them.
        message: for people.
        hint: what to do, or "".
        retryable: whether the same may succeed later without anybody changing anything.
        facts: what the error knows besides, by name.

    """

    code: str
    message: str
    hint: str
    retryable: bool
    facts: dict[str, Any]


class ErrorShape(Answer):
    """The one form of every answer that is no success."""

    error: ErrorBody


class PositionShape(Answer):
    """A place in a log: the number of its last event, -1 for none, and the hash of the record."""

    seq: int
    hash: str


class ProblemShape(Answer):
    """A place where a log does not hold together; `start` and `end` count bytes."""

    kind: str
    record: int | None
    start: int
    end: int
    reason: str


class HealthShape(Answer):
    """Whether the server answers, and which version it is."""

    status: str
    version: str
