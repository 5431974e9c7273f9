"""Reading one line as a JSON object, and saying precisely what is wrong if it is none.

Values of JSON can take fifty times the room of their text. So of a long line only the shallow form
is made: its small members, which is where formats say of what type and time a record is.
"""

import codecs
import json
import re
from typing import Any, NamedTuple

import msgspec

from perdure.model import values

__all__ = ["MEMBERS", "WHOLE_BYTES", "Parsed", "glance", "parse"]

WHOLE_BYTES = 256 * 1024
"""Longer lines are not read whole."""

MEMBERS = (
    *("type", "timestamp", "time", "time0", "createdAt", "ts", "created_at", "updated_at"),
    *("id", "uuid", "parentUuid", "sessionId", "session_id", "agentId", "cwd", "forkedFrom"),
    *("isSidechain", "parentSession", "origin", "delegationDepth", "role", "record_type"),
    *("display", "project", "thread_name", "projectHash", "systemPayload"),
)
"""The members that are always looked for: all that the formats here are known by."""

_SMALL_BYTES = 1024
_NAME_CHARS_MAX = 256
_ALL_SMALL_BYTES = 64 * 1024
_COLONS_MAX = 50_000
"""An object has no more members than colons; with so many all of them can be listed."""

_STEP_BYTES = 64 * 1024

_any = msgspec.json.Decoder(msgspec.Raw)
_listed = msgspec.json.Decoder(dict[str, msgspec.Raw])
_named = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Named", [(name, msgspec.Raw, msgspec.field(default=msgspec.Raw())) for name in MEMBERS]
    )
)
_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_MARGIN = re.compile(rb"[\0 \t\r\n]*")
_PLACE = re.compile(r"(?:JSON is malformed: )?(.*) \(byte (\d+)\)")
_SURROGATES = [b"\\u%c%c" % (first, second) for first in b"dD" for second in b"89abcdefABCDEF"]
"""How the escapes of surrogates begin."""

_INSTEAD = b"\\u33"
_REPLACED = re.compile("[\u3300-\u33ff]")
"""How the escapes begin that are put in their place, and the characters that those stand for."""


class Parsed(NamedTuple):
    """What a line says.

    Attributes:
        value: the object, or None if the line is no single intact object. Of a long line it is the
            shallow form (see `glance`).
        reason: what is wrong with the line, or None. An object may come with one, as where bytes
            had to be replaced to read it.

    """

    value: dict[str, Any] | None
    reason: str | None


def parse(raw: bytes, *, first: bool = False, whole: int = WHOLE_BYTES) -> Parsed:
    """Read a line of a source; `first` lets a byte order mark stand in front.

    A blank line is no object and nothing is wrong with it. Zero bytes around an object, which a
    file system leaves behind after a crash, are reported and read past. Of more than `whole` bytes
    only the shallow form is made, in a few times the room of the line.
    """
    body = raw.removeprefix(_BOM) if first else raw
    reason = None if raw.endswith(b"\n") else "the last line has no newline"
    inner = body.strip(b"\0" + _SPACE)
    zeros = body.count(0) - inner.count(0)
    if zeros:
        reason = f"a run of {zeros} zero bytes"
    if not inner:
        return Parsed(None, reason)
    if len(inner) > whole:
        return _parse_long(inner, _shift(raw, body), reason, torn=not raw.endswith(b"\n"))
    try:
        value = values.decode(inner)
    except UnicodeDecodeError as error:
        at = _shift(raw, body) + error.start
        return _parse_replaced(inner, _not_utf8(at, raw[at]))
    except ValueError as error:
        wrong = _diagnose(inner.decode("utf-8"), _shift(raw, body), str(error))
        return Parsed(None, _torn(wrong) if not raw.endswith(b"\n") else wrong)
    if not isinstance(value, dict):
        return Parsed(None, "not a JSON object")
    return Parsed(value, reason)


def glance(raw: bytes) -> dict[str, Any] | None:
    """The shallow form of an object too large to be read whole; None if it is none.

    That is its members of at most 1 KiB, up to 64 KiB of them; of an object with more than tens of
    thousands only those named in `MEMBERS`. What cannot be read of them is left out. Takes hardly
    more room than `raw`.
    """
    try:
        return _small(raw, doubtful=False)
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        return _small(_without_surrogates(raw), doubtful=True)
    except (msgspec.MsgspecError, RecursionError):
        return None


# --- long lines ---------------------------------------------------------------------------------


def _parse_long(inner: bytes, shift: int, reason: str | None, *, torn: bool) -> Parsed:
    """As `parse`, but of the object the shallow form."""
    bad = _first_not_utf8(inner)
    if bad is not None:
        return Parsed(glance(inner), _not_utf8(shift + bad, inner[bad]))
    wrong = _malformed(inner, shift)
    if wrong is not None:
        # Neither surrogates by themselves, which are JSON, nor what follows them is read.
        wrong = _malformed(_without_surrogates(inner), shift)
    if wrong is not None:
        return Parsed(None, _torn(wrong) if torn else wrong)
    value = glance(inner)
    return Parsed(value, "not a JSON object" if value is None else reason)


def _malformed(inner: bytes, shift: int) -> str | None:
    """Where the JSON breaks off, `shift` bytes further on in its line; None: it does not."""
    try:
        _any.decode(inner)
    except RecursionError:
        return "not JSON: nested too deeply"
    except msgspec.MsgspecError as error:
        found = _PLACE.fullmatch(str(error))
        if found is None:
            return f"not JSON at byte {shift + len(inner)} of the line: it ends too early"
        what, at = found[1], int(found[2])
        if what != "trailing characters":
            return f"not JSON at byte {shift + at} of the line: {what}"
        # It names the byte behind the first of them.
        return _followed(inner[at - 1 : at], shift + at - 1)
    return None


def _small(raw: bytes, *, doubtful: bool) -> dict[str, Any] | None:
    """The small members; `doubtful`: leave out where an escape may have been replaced.

    Raises:
        RecursionError, msgspec.MsgspecError: as the decoder does.

    """
    if raw.lstrip(_SPACE)[:1] != b"{":
        _any.decode(raw)
        return None
    small: dict[str, Any] = {}
    room = _ALL_SMALL_BYTES
    for name, value in _members(raw):
        size = memoryview(value).nbytes
        if len(name) > _NAME_CHARS_MAX or not 0 < size <= min(_SMALL_BYTES, room):
            continue
        room -= size
        text = bytes(value)
        if doubtful and (_INSTEAD in text or _REPLACED.search(name)):
            continue
        try:
            small[name] = values.decode(text.decode("utf-8", "replace").encode())
        except ValueError:
            continue
    return small


def _members(raw: bytes) -> list[tuple[str, msgspec.Raw]]:
    if raw.count(b":") <= _COLONS_MAX:
        try:
            return [*_listed.decode(raw).items()]
        except UnicodeDecodeError:
            # So says the name of a member that is no UTF-8, and is none of those that are known.
            pass
        except msgspec.DecodeError as error:
            if "UTF-8" not in str(error):
                raise
    found = _named.decode(raw)
    return [(name, getattr(found, name)) for name in MEMBERS]


def _without_surrogates(raw: bytes) -> bytes:
    """JSON of the same length with other characters in their place."""
    for each in _SURROGATES:
        raw = raw.replace(each, _INSTEAD)
    return raw


def _first_not_utf8(raw: bytes) -> int | None:
    """The first byte that is no UTF-8; None: all are."""
    at, view = 0, memoryview(raw)
    while at < len(raw):
        try:
            end = at + _STEP_BYTES
            at += codecs.utf_8_decode(view[at:end], "strict", end >= len(raw))[1]
        except UnicodeDecodeError as error:
            return at + error.start
    return None


# --- what is wrong ------------------------------------------------------------------------------


def _shift(raw: bytes, body: bytes) -> int:
    """How many bytes of the line stand in front of what it says."""
    margin = _MARGIN.match(body)
    return len(raw) - len(body) + (0 if margin is None else margin.end())


def _torn(reason: str) -> str:
    return f"torn: the line ends without a newline; {reason}"


def _not_utf8(at: int, byte: int) -> str:
    return f"byte {at} of the line, 0x{byte:02x}, is not UTF-8"


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
    return _followed(rest[:1].encode("utf-8"), shift + _bytes(text, len(text) - len(rest)))


def _followed(rest: bytes, at: int) -> str:
    if rest == b"{":
        return f"several records in one line, the second at byte {at} of it"
    return f"not JSON: something follows the record at byte {at} of the line"


def _bytes(text: str, characters: int) -> int:
    return len(text[:characters].encode("utf-8"))
