"""A session of a listing as it stands in a row, whatever the database.

What a column is compared by is made where the rows are: see `rows` of each catalog.
"""

import math
from typing import Any

import msgspec

from perdure.catalog.analysis import analyse
from perdure.catalog.contract import Listed
from perdure.catalog.units import BARRIER
from perdure.databases.cells import BIGGEST, Unsound, cell, clamped, pack, unpack

__all__ = ["COLD", "HOT", "SORT_COLUMNS", "held", "kept", "listed_of", "sort_key", "words_of"]

_TITLE_CHARS_MAX = 256
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
        return b"\2" if value is None else b"\1" + cell(value.casefold()[:_TITLE_CHARS_MAX])
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


def held(listed: Listed) -> bytes:
    """The whole session as bytes."""
    told = {name: getattr(listed, name) for name in _DEFAULTS}
    return pack({name: value for name, value in told.items() if value != _DEFAULTS[name]})


def listed_of(packed: object) -> Listed:
    """What `held` was given.

    Raises:
        perdure.databases.cells.Unsound: it was given nothing that would stand so.

    """
    try:
        return msgspec.convert(unpack(packed), Listed)
    except msgspec.ValidationError as error:
        raise Unsound(f"a cell holds no session: {error}") from error


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
