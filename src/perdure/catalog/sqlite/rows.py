"""A session of a listing as a row, and back."""

import hashlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import apsw
import msgspec

from perdure.catalog.analysis import analyse
from perdure.catalog.contract import Listed
from perdure.catalog.units import BARRIER
from perdure.databases.cells import (
    BIGGEST,
    cell,
    clamped,
    optional,
    pack,
    unpack,
)

__all__ = [
    "COLD",
    "HOT",
    "MANY_MEMBERS",
    "SORT_COLUMNS",
    "at_pointer",
    "cold_cells",
    "held",
    "hot_cells",
    "kept",
    "listed_of",
    "member_digest",
    "members",
    "same",
    "sort_key",
    "words_of",
]

TITLE_CHARS_MAX = 256
"""Titles that begin alike for so long are equal to a listing that is sorted by title."""

SORT_COLUMNS = {
    "last_active": "by_active",
    "created": "by_created",
    "title": "by_title",
    "size": "by_size",
}

HOT = ("partial", "skipped", "events", "tokens", "by_active", "by_size", "status")
"""What changes whenever a session goes on."""

COLD = (
    "by_created",
    "by_title",
    "program",
    "relation",
    "archived",
    "troubled",
    "cwd",
    "preset",
    "parent",
    "source_format",
    "source_id",
    "source_parent",
    "cost",
)
"""What does not: most indexes are over these, and need not be touched then."""

_MEMBERS_MAX = 1024
_DEPTH_MAX = 32
_INDEX = re.compile("0|[1-9][0-9]{0,9}")
MANY_MEMBERS = 0
"""In place of a digest: the projection has more members than are indexed."""

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Listed)}
_INTEGERS = (
    "created",
    "last_active",
    "events",
    "turns",
    "messages",
    "calls",
    "failures",
    "tokens",
    "size",
)


def sort_key(sort: str, value: Any) -> int | bytes:
    """What a value is sorted by: ascending, what has none last."""
    if sort == "title":
        return b"\2" if value is None else b"\1" + cell(value.casefold()[:TITLE_CHARS_MAX])
    return BIGGEST if value is None else -max(1 - BIGGEST, min(BIGGEST, value))


def kept(listed: Listed) -> Listed:
    """The same with numbers that fit."""
    changes: dict[str, Any] = {}
    for name in _INTEGERS:
        number = getattr(listed, name)
        if number is not None and clamped(number) != number:
            changes[name] = clamped(number)
    if listed.cost:
        costs = {currency: _fitting(cost) for currency, cost in listed.cost.items()}
        changes["cost"] = costs
    return msgspec.structs.replace(listed, **changes) if changes else listed


def _fitting(cost: float) -> float:
    """As a number that has a fraction: an integer may be too large for one."""
    try:
        return float(cost)
    except OverflowError:
        return math.inf if cost > 0 else -math.inf


def hot_cells(listed: Listed, *, partial: bool, skipped: int) -> tuple[Any, ...]:
    """The cells of `HOT`."""
    return (
        int(partial),
        clamped(skipped),
        listed.events,
        listed.tokens,
        sort_key("last_active", listed.last_active),
        sort_key("size", listed.size),
        cell(listed.status),
    )


def cold_cells(listed: Listed, *, skipped: int) -> tuple[Any, ...]:
    """The cells of `COLD`."""
    return (
        sort_key("created", listed.created),
        sort_key("title", listed.title),
        cell(listed.program),
        cell(listed.relation or ""),
        int(listed.archived),
        int(listed.problem is not None or skipped > 0),
        optional(listed.cwd),
        optional(listed.preset),
        optional(listed.parent),
        optional(listed.source_format),
        optional(listed.source_id),
        optional(listed.source_parent),
        pack(listed.cost) if listed.cost else None,
    )


def held(listed: Listed) -> bytes:
    """The whole session as bytes."""
    told = {name: getattr(listed, name) for name in _DEFAULTS}
    return pack({name: value for name, value in told.items() if value != _DEFAULTS[name]})


def listed_of(packed: object) -> Listed:
    """What `held` was given.

    Raises:
        apsw.CorruptError: it was given nothing that would stand so.

    """
    try:
        return msgspec.convert(unpack(packed), Listed)
    except msgspec.ValidationError as error:
        raise apsw.CorruptError(f"a cell holds no session: {error}") from error


def words_of(listed: Listed) -> tuple[str, str]:
    """Words and parts of what a listing is searched by; no phrase reaches from one into another."""
    texts = (
        listed.title,
        listed.preview,
        listed.composition,
        listed.preset,
        listed.config_path,
        listed.cwd,
        *listed.agents,
    )
    found = [analyse(text) for text in dict.fromkeys(texts) if text]
    between = f" {BARRIER} "
    return (
        between.join([each.words for each in found if each.words]),
        between.join([each.parts for each in found if each.parts]),
    )


# --- projections ----------------------------------------------------------------------------------


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
