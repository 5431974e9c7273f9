"""Reading one line as a JSON object, and saying precisely what is wrong if it is none."""

import json
from typing import Any, NamedTuple

import msgspec

from perdure.model import values

__all__ = ["Parsed", "glance", "parse"]

_SMALL_BYTES = 1024
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


class Parsed(NamedTuple):
    """What a line says.

    Attributes:
        value: the object, or None if the line is no single intact object.
        reason: what is wrong with the line, or None. An object may come with one, as where bytes
            had to be replaced to read it.

    """

    value: dict[str, Any] | None
    reason: str | None


def parse(raw: bytes, *, first: bool = False) -> Parsed:
    """Read a line of a source; `first` lets a byte order mark stand in front.

    A blank line is no object and nothing is wrong with it. Zero bytes around an object, which a
    file system leaves behind after a crash, are reported and read past.
    """
    body = raw.removeprefix(_BOM) if first else raw
    reason = None if raw.endswith(b"\n") else "the last line has no newline"
    inner = body.strip(b"\0" + _SPACE)
    zeros = body.count(0) - inner.count(0)
    if zeros:
        reason = f"a run of {zeros} zero bytes"
    if not inner:
        return Parsed(None, reason)
    try:
        value = values.decode(inner)
    except UnicodeDecodeError as error:
        at = raw.find(inner) + error.start
        return _parse_replaced(inner, f"byte {at} of the line, 0x{raw[at]:02x}, is not UTF-8")
    except ValueError as error:
        text = inner.decode("utf-8")
        reason = _diagnose(text, raw.find(inner), str(error))
        if not raw.endswith(b"\n"):
            reason = f"torn: the line ends without a newline; {reason}"
        return Parsed(None, reason)
    if not isinstance(value, dict):
        return Parsed(None, "not a JSON object")
    return Parsed(value, reason)


def glance(raw: bytes) -> dict[str, Any] | None:
    """The small members of an object too large to be read whole; None if it is none.

    What is nested deeper is left out with what is long, so this takes hardly more room than `raw`.
    """
    try:
        members = _members.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    small = {}
    for name, value in members.items():
        text = bytes(value) if memoryview(value).nbytes <= _SMALL_BYTES else b""
        if text and text[:1] not in b"{[":
            small[name] = values.decode(text)
    return small


def _parse_replaced(inner: bytes, reason: str) -> Parsed:
    """The object as far as it can be read: its type and time are seldom what is broken."""
    try:
        value = values.decode(inner.decode("utf-8", "replace").encode("utf-8"))
    except ValueError:
        value = None
    return Parsed(value if isinstance(value, dict) else None, reason)


def _diagnose(text: str, shift: int, fallback: str) -> str:
    """Where in the line (`shift` bytes in front of `text`) its JSON breaks off."""
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError as error:
        return f"not JSON at byte {shift + _bytes(text, error.pos)} of the line: {error.msg}"
    except (ValueError, RecursionError):
        return f"not JSON: {fallback}"
    rest = text[end:].lstrip()
    if not rest:
        return f"not JSON: {fallback}"
    at = shift + _bytes(text, len(text) - len(rest))
    if rest.startswith("{"):
        return f"several records in one line, the second at byte {at} of it"
    return f"not JSON: something follows the record at byte {at} of the line"


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode("utf-8"))
