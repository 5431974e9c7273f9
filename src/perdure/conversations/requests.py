"""What requests ask for: checked, in one form, and with a digest that tells two of them apart."""

import hashlib
from typing import Any

from perdure.errors import InvalidValue, RequestConflict
from perdure.model import values
from perdure.model.event import Event, draft
from perdure.model.limits import ID_CHARS_MAX
from perdure.store.members import Content, blocks_of

__all__ = [
    "MESSAGE_BYTES_MAX",
    "PROFILE_BYTES_MAX",
    "WHEN_BUSY",
    "body_of",
    "check_content",
    "check_name",
    "check_profile",
    "check_same",
    "check_when_busy",
    "content_in",
    "digest_of",
]

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""One message as JSON: it has to fit into an event of the main log."""

PROFILE_BYTES_MAX = 256 * 1024
"""A profile as JSON: it stands in the log, whole, with each change."""

WHEN_BUSY = ("follow-up", "steer", "refuse")

_SAID_BY_MODELS = frozenset({"tool-call", "thinking"})


def check_name(path: str, name: object) -> str:
    """Demand what can name a principal or a request: any text of 1 to 1,024 characters.

    Raises:
        InvalidValue: it cannot.

    """
    # A subclass of str would not come back as what it was.
    if type(name) is not str or not 1 <= len(name) <= ID_CHARS_MAX:
        reason = f"{values.shown(name)} is not a string of 1 to {ID_CHARS_MAX} characters"
        raise InvalidValue(path, reason)
    values.check_text(path, name)
    return name


def check_when_busy(when_busy: object) -> str:
    """Demand one of `WHEN_BUSY`.

    Raises:
        InvalidValue: it is none.

    """
    if type(when_busy) is not str or when_busy not in WHEN_BUSY:
        hint = f"one of {', '.join(WHEN_BUSY)}"
        raise InvalidValue("when_busy", f"{values.shown(when_busy)} is none", hint=hint)
    return when_busy


def check_content(content: Content, *, by_user: bool) -> list[dict[str, Any]]:
    """A message as blocks, copied.

    What a turn could not tell the agent later is refused now: nobody could do anything about it
    then.

    Raises:
        InvalidValue: it is no content, a user says what only models say, or it is too large.

    """
    blocks: list[dict[str, Any]] = values.snapshot(blocks_of(content), "content")
    if not any(_says_something(block) for block in blocks):
        raise InvalidValue("content", "says nothing", hint="a text, or blocks as in docs/events.md")
    for index, block in enumerate(blocks):
        if block["type"] == "text" and type(block.get("text")) is not str:
            reason = f"{values.shown(block.get('text'))} is no text"
            raise InvalidValue(f"content[{index}].text", reason)
        if by_user and block["type"] in _SAID_BY_MODELS:
            reason = f"{block['type']!r} is said by models alone"
            raise InvalidValue(f"content[{index}].type", reason)
    told = draft("user/message", {"content": blocks}, time=0)
    _check_size("content", len(told.raw), MESSAGE_BYTES_MAX)
    return blocks


def _says_something(block: dict[str, Any]) -> bool:
    """Whether a block is more than an empty text."""
    return block["type"] != "text" or block.get("text") != ""


def check_profile(profile: object) -> dict[str, Any]:
    """A profile, copied; None is an empty one.

    Raises:
        InvalidValue: it is no JSON object, or too large.

    """
    if profile is None:
        return {}
    if type(profile) is not dict:
        reason = f"{values.shown(profile)} is no JSON object"
        raise InvalidValue("profile", reason, hint='as in {"model": "m-1"}')
    copied: dict[str, Any] = values.snapshot(profile, "profile")
    # Two levels around it in the log.
    draft("profile/updated", {"values": copied}, time=0)
    _check_size("profile", len(values.encode(copied, "profile")), PROFILE_BYTES_MAX)
    return copied


def _check_size(path: str, size: int, most: int) -> None:
    if size > most:
        reason = f"{size} bytes of JSON, at most {most} are taken"
        raise InvalidValue(path, reason, hint="keep what is large elsewhere, and refer to it")


def digest_of(asked: Any) -> str:
    """The SHA-256 of what was asked for: equal exactly when that is the same JSON value."""
    return hashlib.sha256(values.canonical(asked)).hexdigest()


def check_same(event: Event, request: str, digest: str) -> None:
    """Demand that the request that an event came of asked for the same.

    Raises:
        RequestConflict: it asked for something else.

    """
    if not isinstance(event.data, dict) or event.data.get("hash") != digest:
        raise RequestConflict(request)


def body_of(request: str, blocks: list[dict[str, Any]]) -> bytes:
    """What is kept of a message beside the log.

    The request is in it, so that two messages that say the same expire each by its own age.
    """
    return values.encode({"request": request, "content": blocks}, "content")


def content_in(body: bytes) -> list[dict[str, Any]] | None:
    """The blocks in a body; None if it is none."""
    try:
        found = values.decode(body)
    except ValueError:
        return None
    content = found.get("content") if isinstance(found, dict) else None
    blocks = isinstance(content, list) and all(isinstance(each, dict) for each in content)
    return content if blocks else None
