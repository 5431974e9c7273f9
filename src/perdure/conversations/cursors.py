"""Cursors: a place in the messages of one conversation, as text that can stand in a URL."""

import base64
import binascii
import hashlib
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values

__all__ = ["CURSOR_CHARS_MAX", "cursor_of", "place_of", "wrong_cursor"]

CURSOR_CHARS_MAX = 1024
_VERSION = 1
_DIGEST_CHARS = 32


def cursor_of(conversation: str, after: int) -> str:
    """The place behind the event `after` of the control log; -1 is before the first one."""
    told = values.encode({"v": _VERSION, "of": _name_of(conversation), "after": after})
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def _name_of(conversation: str) -> str:
    """A digest, so that any id makes a short cursor, and none is read out of one."""
    raw = conversation.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:_DIGEST_CHARS]


def place_of(conversation: str, cursor: object) -> int:
    """The event behind which a cursor stands.

    Raises:
        InvalidValue: `cursor` is none, or one of another conversation.

    """
    if type(cursor) is not str or len(cursor) > CURSOR_CHARS_MAX:
        raise wrong_cursor("is no cursor")
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found: Any = values.decode(raw)
        after = found["after"]
    except (ValueError, TypeError, KeyError, binascii.Error):
        raise wrong_cursor("is no cursor") from None
    if type(after) is not int or after < -1:
        raise wrong_cursor("is no cursor")
    if cursor_of(conversation, after) != cursor:
        # One text for one place: what decodes to it in another form is none of ours.
        raise wrong_cursor("is no cursor of this conversation")
    return after


def wrong_cursor(reason: str) -> InvalidValue:
    """What to raise about a cursor."""
    hint = "pass the `cursor` of a page of this conversation, or None to begin"
    return InvalidValue("cursor", reason, hint=hint)
