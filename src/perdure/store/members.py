"""From what a caller says to the data of an event of the vocabulary: checked, without defaults."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from perdure.errors import InvalidValue, PerdureError
from perdure.model import values
from perdure.model.vocabulary import PAYLOADS, Error

__all__ = ["ENDINGS", "Content", "Failure", "blocks_of", "data_of", "failure_of"]

Content = str | Sequence[Mapping[str, Any]]
"""A text, or content blocks as in `[{"type": "text", "text": "…"}]`."""

Failure = BaseException | Error | Mapping[str, Any]
"""Why something failed: an exception, or `{"code": "…", "message": "…"}`."""

ENDINGS = ("completed", "failed", "cancelled")
"""How a job or a sub-agent may end; `interrupted` is for those that nobody ended."""

_CHOICES = {"job/end": ("status", ENDINGS)}
"""Members that have to be one of a few words, which only recovery adds to."""

_MESSAGE_CHARS_MAX = 8192
"""Of the message of an exception so much is kept; it may hold anything, of any size."""

_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`\Z")


@cache
def _defaults(kind: str) -> dict[str, Any]:
    fields = msgspec.structs.fields(PAYLOADS[kind])
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def data_of(kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an event of type `kind`; members that say no more than the default are left out.

    Raises:
        InvalidValue: a member is of the wrong kind, with the path to it; or there is no such type.

    """
    if kind not in PAYLOADS:
        raise InvalidValue("type", f"{values.shown(kind)} is outside the vocabulary")
    defaults = _defaults(kind)
    data = {
        name: value
        for name, value in members.items()
        if name not in defaults or not _same(value, defaults[name])
    }
    try:
        msgspec.convert(data, PAYLOADS[kind])
    except msgspec.ValidationError as error:
        said = str(error)
        place = _PLACE.search(said)
        path = f"data{place['path']}" if place else "data"
        raise InvalidValue(path, said[: place.start()] if place else said) from None
    except UnicodeEncodeError:
        # Names of further members with lone surrogates: the log keeps them, no reader asks.
        pass
    name, choices = _CHOICES.get(kind, ("", ()))
    if choices and data[name] not in choices:
        reason = f"{values.shown(data[name])} is none of them"
        raise InvalidValue(f"data.{name}", reason, hint=f"one of {', '.join(choices)}")
    return data


def _same(value: Any, default: Any) -> bool:
    # Not == alone: False is 0, and values of strangers compare as they please.
    return value is default or (type(value) is type(default) and bool(value == default))


def blocks_of(content: Any) -> Any:
    """A text as content blocks; anything else as it is, to be checked with its event."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def failure_of(error: Failure | None) -> Any:
    """What went wrong as `{"code": …, "message": …}`; None stays None.

    The code of an exception is its class, or the `code` that an error of perdure has. Whatever the
    exception does when it is asked for its message, this does not fail.
    """
    if isinstance(error, Error):
        return {"code": error.code, "message": error.message}
    if not isinstance(error, BaseException):
        return error
    code = error.code if isinstance(error, PerdureError) else type(error).__name__
    try:
        message = values.text(str(error))
    except Exception:  # noqa: BLE001 - a foreign __str__ must not hide what it tells of
        message = f"a {code} that cannot say more"
    if len(message) > _MESSAGE_CHARS_MAX:
        message = message[:_MESSAGE_CHARS_MAX] + "…"
    return {"code": code, "message": message}
