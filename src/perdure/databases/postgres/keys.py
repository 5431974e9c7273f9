"""How texts that callers chose stand in the keys of tables."""

import hashlib
import urllib.parse
from collections.abc import Iterable

from perdure.databases.cells import cell

__all__ = ["NAMESPACE_BYTES_MAX", "is_shortened", "key", "keys", "within"]

NAMESPACE_BYTES_MAX = 500
"""A longer namespace stands as its beginning and a digest: a row of an index has 2,700 bytes."""

_KEY_BYTES_MAX = 1_000
_DIGESTED = b"\xff"
"""Before the digest of the rest of a key; no text has this byte in UTF-8."""


def within(namespace: str) -> str:
    """A namespace as it stands in the first column of each key; no two stand alike.

    Those of a store stand as they are: they are ASCII, without a blank or a backslash.
    """
    plain = namespace.isascii() and namespace.isprintable() and not {*namespace} & {*"\\ "}
    if plain and len(namespace) <= NAMESPACE_BYTES_MAX:
        return namespace
    quoted = urllib.parse.quote(cell(namespace), safe="/%")[: NAMESPACE_BYTES_MAX - 100]
    return f"{quoted}\\{hashlib.sha256(cell(namespace)).hexdigest()}"


def is_shortened(namespace: str) -> bool:
    """Whether what stands in a key does not tell the whole namespace."""
    return "\\" in namespace


def key(text: str, most: int = _KEY_BYTES_MAX) -> bytes:
    """A text as it stands in a column that is only compared, in at most so many bytes.

    Keys have the order of their texts, but for long ones that begin alike.
    """
    raw = cell(text)
    if len(raw) <= most:
        return raw
    return raw[: most - 33] + _DIGESTED + hashlib.sha256(raw).digest()


def keys(texts: Iterable[str], most: int = _KEY_BYTES_MAX) -> list[bytes]:
    """The keys of some texts."""
    return [key(text, most) for text in texts]
