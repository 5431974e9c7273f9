"""What the records of several formats have in common: ids, times, texts, arguments, outputs."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.vocabulary.payloads import Block

__all__ = [
    "COUNT_MAX",
    "arguments_of",
    "count",
    "ident",
    "json_text",
    "made_at",
    "moment",
    "sound",
    "text",
    "text_block",
]

COUNT_MAX = 2**53
"""The largest count that the vocabulary has."""

_ID_CHARS_MAX = 256
_TEXT_CHARS_MAX = 4096
_MOMENT_CHARS_MAX = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def ident(value: object) -> str | None:
    """An id as text; numbers are ids too. None: it is none, or of no sane length."""
    if type(value) is int and value.bit_length() <= 64:
        return str(value)
    return value if isinstance(value, str) and 0 < len(value) <= _ID_CHARS_MAX else None


def count(value: object) -> int | None:
    """An integer from 0 to 2^53, or None; True is none."""
    return value if type(value) is int and 0 <= value <= COUNT_MAX else None


def text(value: object) -> str | None:
    """A text of a sane length (up to 4096 characters) that is not empty, or None."""
    return value if isinstance(value, str) and 0 < len(value) <= _TEXT_CHARS_MAX else None


def moment(value: object) -> int | None:
    """Unix milliseconds of a time in ISO 8601, or None; one without an offset is in UTC."""
    if not isinstance(value, str) or len(value) > _MOMENT_CHARS_MAX:
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    aware = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (aware - _EPOCH) // _MILLISECOND


def made_at(id: str) -> int | None:
    """When a UUID of version 7 was made, in Unix milliseconds; None: it is no such id."""
    try:
        found = UUID(id)
    except ValueError:
        return None
    return found.int >> 80 if found.version == 7 else None


def sound(value: object) -> bool:
    """Whether an event can hold it: numbers, texts and depth within what the log keeps."""
    try:
        values.encode(values.snapshot(value))
    except InvalidValue:
        return False
    return True


def text_block(text: str) -> Block:
    """A block of text."""
    return {"type": "text", "text": text}


def json_text(value: object) -> str:
    """A value as JSON, where a text has to stand for it."""
    return values.encode(value).decode() if sound(value) else "[output that cannot be shown]"


def arguments_of(value: object) -> dict[str, Any]:
    """The arguments of a call as an object: JSON text of one is read, other text is its `input`."""
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        try:
            read = values.decode(value.encode("utf-8", "surrogatepass"))
        except ValueError:
            read = None
        # A text that is no object is all that the model made before it was cut off.
        return read if isinstance(read, dict) and sound(read) else {"input": value}
    if not sound(value):
        return {"input": "[arguments that cannot be shown]"}
    return value if isinstance(value, dict) else {"input": value}
