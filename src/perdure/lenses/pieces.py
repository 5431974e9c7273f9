"""What the records of several formats have in common: ids, counts, texts, arguments, outputs."""

from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.vocabulary.payloads import Block

__all__ = ["COUNT_MAX", "arguments_of", "count", "ident", "json_text", "sound", "text_block"]

COUNT_MAX = 2**53
"""The largest count that the vocabulary has."""

_ID_CHARS_MAX = 256


def ident(value: object) -> str | None:
    """An id as text; numbers are ids too. None: it is none, or of no sane length."""
    if type(value) is int and value.bit_length() <= 64:
        return str(value)
    return value if isinstance(value, str) and 0 < len(value) <= _ID_CHARS_MAX else None


def count(value: object) -> int | None:
    """An integer from 0 to 2^53, or None; True is none."""
    return value if type(value) is int and 0 <= value <= COUNT_MAX else None


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
