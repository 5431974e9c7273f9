"""From a session id to a name on disk: injective, safe everywhere, distinct when case is ignored.

Small letters, digits, `-`, `_` and inner dots stand for themselves; every other character becomes
`%` and two small hex digits for each byte of its UTF-8 form, as in URLs (RFC 3986, section 2.1).
Capital letters are escaped too, so two ids never meet on a disk that ignores case, and nothing is
left that Unicode normalisation could change.
"""

import hashlib
import urllib.parse
from collections.abc import Sequence

from perdure.errors import InvalidValue
from perdure.model.header import check_id

__all__ = [
    "DEVICES",
    "NAME_BYTES_MAX",
    "escape_id",
    "namespace_key",
    "namespace_parts",
    "unescape_name",
]

NAME_BYTES_MAX = 200
"""Most file systems take 255 bytes a name; the rest is left for what stands around it."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
DEVICES = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(10)}
)
"""Names that Windows keeps for devices, with or without an extension, whatever their case."""


def escape_id(id: str) -> str:
    """The folder name of a session id.

    Raises:
        InvalidValue: not a string of 1 to 1,024 characters.

    """
    check_id(id)
    raw = id.encode("utf-8", "surrogatepass")
    last = len(raw) - 1
    name = "".join(
        chr(byte) if byte in _PLAIN or (byte == ord(".") and 0 < index < last) else f"%{byte:02x}"
        for index, byte in enumerate(raw)
    )
    if name.split(".", 1)[0] in DEVICES:
        name = f"%{ord(name[0]):02x}{name[1:]}"
    if len(name) > NAME_BYTES_MAX:
        # "%%" cannot come from an escape, so a shortened name never meets a whole one.
        name = f"{name[:100]}%%{hashlib.sha256(raw).hexdigest()}"
    return name


def unescape_name(name: str) -> str | None:
    """The id whose folder has that name, or None: shortened names and foreign ones tell no id."""
    try:
        id = urllib.parse.unquote_to_bytes(name).decode("utf-8", "surrogatepass")
        return id if escape_id(id) == name else None
    except (InvalidValue, UnicodeDecodeError, UnicodeEncodeError):
        return None


def namespace_key(parts: Sequence[str]) -> str:
    """One text for a namespace, as in a URL path; distinct parts give distinct texts."""
    quoted = (urllib.parse.quote(part.encode("utf-8", "surrogatepass"), safe="") for part in parts)
    return "/".join(quoted)


def namespace_parts(key: str) -> tuple[str, ...]:
    """The parts of a namespace from its text."""
    quoted = key.split("/") if key else []
    raw = (urllib.parse.unquote_to_bytes(part) for part in quoted)
    return tuple(part.decode("utf-8", "surrogatepass") for part in raw)
