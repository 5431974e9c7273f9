"""The cells of a session of a listing."""

from typing import Any

from perdure.catalog.contract import Listed
from perdure.catalog.rows import sort_key
from perdure.databases.cells import clamped, optional, pack, text
from perdure.databases.postgres.keys import key

__all__ = ["NAME_BYTES_MAX", "cold_cells", "hot_cells", "shown"]

NAME_BYTES_MAX = 200
"""Names and ids that are only compared stand in so many bytes, see `key`."""


def hot_cells(listed: Listed, *, partial: bool, skipped: int) -> tuple[Any, ...]:
    """The cells of `HOT`."""
    return (
        partial,
        clamped(skipped),
        listed.events,
        listed.tokens,
        sort_key("last_active", listed.last_active),
        sort_key("size", listed.size),
        _name(listed.status),
    )


def cold_cells(listed: Listed, *, skipped: int) -> tuple[Any, ...]:
    """The cells of `COLD`."""
    return (
        sort_key("created", listed.created),
        sort_key("title", listed.title),
        _name(listed.program),
        _name(listed.relation or ""),
        listed.archived,
        listed.problem is not None or skipped > 0,
        optional(listed.cwd),
        _maybe(listed.preset),
        # The id of a session.
        None if listed.parent is None else key(listed.parent),
        _maybe(listed.source_format),
        _maybe(listed.source_id),
        _maybe(listed.source_parent),
        pack(listed.cost) if listed.cost else None,
    )


def _name(text: str) -> bytes:
    return key(text, NAME_BYTES_MAX)


def _maybe(text: str | None) -> bytes | None:
    return None if text is None else key(text, NAME_BYTES_MAX)


def shown(short: bytes) -> str:
    """A text by its key; of a long one the beginning."""
    raw, _, digest = short.partition(b"\xff")
    if digest:
        # It may have been cut within a character.
        return raw.decode("utf-8", "ignore")
    return text(raw)
