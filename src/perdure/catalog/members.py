"""Members of projections: what a listing is filtered by, as digests and as values."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["MANY_MEMBERS", "at_pointer", "member_digest", "members", "same"]

_MEMBERS_MAX = 1024
_DEPTH_MAX = 32
_INDEX = re.compile("0|[1-9][0-9]{0,9}")
MANY_MEMBERS = 0
"""In place of a digest: the projection has more members than are indexed."""


def members(namespace: int, projection: Any) -> set[int]:
    """Digests of the members of a projection that can be filtered by."""
    found: set[int] = set()
    for number, (pointer, value) in enumerate(_scalars("", projection, 0)):
        if number == _MEMBERS_MAX or pointer is None:
            found.add(MANY_MEMBERS)
            break
        found.add(member_digest(namespace, pointer, value))
    return found


def member_digest(namespace: int, pointer: str, value: Any) -> int:
    """Digest of one member; equal values have the same, and no boolean has that of a number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        # Of an integer with thousands of digits Python refuses to make a text.
        value = ["number", f"{value:x}"]
    told = json.dumps([namespace, pointer, value]).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big", signed=True)


def _scalars(pointer: str, value: Any, depth: int) -> Iterator[tuple[str | None, Any]]:
    if isinstance(value, dict):
        inner = ((str(name), each) for name, each in value.items())
    elif isinstance(value, list | tuple):
        inner = ((str(index), each) for index, each in enumerate(value))
    else:
        if value is None or isinstance(value, str | bool | int | float):
            yield pointer, value
        return
    if depth == _DEPTH_MAX:
        yield None, None
        return
    for name, each in inner:
        escaped = name.replace("~", "~0").replace("/", "~1")
        yield from _scalars(f"{pointer}/{escaped}", each, depth + 1)


def at_pointer(projection: Any, pointer: str) -> tuple[Any, ...]:
    """The value that a JSON pointer (RFC 6901) leads to, alone; nothing if it leads nowhere."""
    if pointer and not pointer.startswith("/"):
        return ()
    value = projection
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list | tuple) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return ()
    return (value,)


def same(one: Any, other: Any) -> bool:
    """Whether two scalars are equal as JSON: no boolean is a number."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
