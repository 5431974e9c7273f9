"""The cells of a session of a listing."""

from typing import Any

from perdure.catalog.contract import Listed
from perdure.catalog.rows import sort_key
from perdure.databases.cells import cell, clamped, optional, pack

__all__ = ["cold_cells", "hot_cells"]


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
