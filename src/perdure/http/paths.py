"""Ids as segments of a URL's path: any id has one, and none of them leads anywhere else.

A browser resolves `..` and `%2e%2e`, servers in between decode `%2F`, and what is no Unicode has
no form in a URL at all (WHATWG URL, section 4.4). So an id of small and capital letters, digits,
`-`, `_` and inner dots stands as it is; any other is written as `=` and its UTF-8 form in base64
with the alphabet for URLs (RFC 4648, section 5).
"""

import base64
import binascii
import re

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.header import check_id

__all__ = ["id_of", "segment_of"]

_PLAIN = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9_.-]*[A-Za-z0-9_-])?", re.ASCII)


def segment_of(id: str) -> str:
    """The segment that stands for an id.

    Raises:
        InvalidValue: it is no id: a string of 1 to 1,024 characters.

    """
    check_id(id)
    if _PLAIN.fullmatch(id):
        return id
    raw = id.encode("utf-8", "surrogatepass")
    return "=" + base64.urlsafe_b64encode(raw).decode().rstrip("=")


def id_of(segment: str) -> str:
    """The id for which a segment stands; percent signs in it are resolved already.

    Raises:
        InvalidValue: it stands for none.

    """
    id = segment
    if segment.startswith("="):
        try:
            told = segment[1:] + "=" * (-(len(segment) - 1) % 4)
            raw = base64.b64decode(told, b"-_", validate=True)
            id = raw.decode("utf-8", "surrogatepass")
        except (binascii.Error, ValueError):
            reason = f"{values.shown(segment)} is no id in base64"
            raise InvalidValue("id", reason, hint="`=` and the id's UTF-8 in base64url") from None
    check_id(id)
    return id
