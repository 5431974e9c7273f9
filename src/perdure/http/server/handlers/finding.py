"""Listing, search and counts."""

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from perdure.errors import InvalidValue
from perdure.http.problems import Discretion
from perdure.http.server.access import ACCESS, PRINCIPALS
from perdure.http.server.calls import Call
from perdure.http.wire import finding as wire
from perdure.http.wire.shapes import HealthShape
from perdure.store import Refreshed

__all__ = ["health", "list_sessions", "search", "stats"]

_HIDDEN = frozenset({ACCESS, PRINCIPALS})


def health(_call: Call | None) -> HealthShape:
    """Answer."""
    return HealthShape(status="ok", version=importlib.metadata.version("perdure"))


def list_sessions(call: Call) -> dict[str, Any]:
    """See `Store.sessions`; the index is brought up to date first where that is asked."""
    query: wire.ListQuery = call.query
    store = call.store
    refreshed: Refreshed | None = None
    if query.full_rescan:
        if not call.who.owner:
            reason = "makes the index of all anew, which only the owner may"
            raise InvalidValue("full_rescan", reason, hint="refresh=true reads what changed")
        refreshed = store.full_rescan()
    elif query.refresh:
        refreshed = store.refresh()
    may = Discretion(call.who.owner)
    found = store.sessions(
        query.limit,
        query.after,
        query.sort,
        query.query,
        offset=query.offset,
        agent=_some(query.agent),
        program=_some(query.program),
        cwd=query.cwd,
        status=_some(query.status),
        relation=_some(query.relation),
        preset=_some(query.preset),
        parent=_some(query.parent),
        since=query.since,
        until=query.until,
        problem=query.problem,
        archived=query.archived,
        nested=query.nested,
    )
    below = [name for name in store.namespaces() if call.namespace or name not in _HIDDEN]
    return {
        "sessions": [may.row(each) for each in found.sessions],
        "cursor": found.cursor,
        "fallback": found.fallback,
        "coverage": may.coverage(found.coverage).as_dict(),
        "namespaces": below,
        "refreshed": None if refreshed is None else _refreshed(refreshed, may),
    }


def _refreshed(refreshed: Refreshed, may: Discretion) -> dict[str, Any]:
    return refreshed._replace(failed=may.reasons(refreshed.failed))._asdict()


def search(call: Call) -> dict[str, Any]:
    """See `Store.search`."""
    query: wire.SearchQuery = call.query
    found = call.store.search(
        query.query,
        session=_some(query.session),
        without=query.without,
        agent=_some(query.agent),
        kind=_some(query.kind),
        mode=query.mode,
        k=query.k,
        sort=query.sort,
        after=query.after,
        since=query.since,
        until=query.until,
        cwd=query.cwd,
        program=_some(query.program),
        snippet_chars=query.snippet_chars,
    )
    return Discretion(call.who.owner).found(found).as_dict()


def stats(call: Call) -> dict[str, Any]:
    """See `Store.stats`; what the index takes on its medium is everybody's, and not told."""
    found = call.store.stats()
    sums = found.sums._asdict()
    told = {name: sums[name] for name in wire.StatsShape.__struct_fields__ if name in sums}
    coverage = Discretion(call.who.owner).coverage(found.coverage)
    return {**told, "coverage": coverage.as_dict()}


def _some(names: Sequence[str]) -> Sequence[str] | None:
    return names or None
