"""Listing and search of a store behind a URL: its server has the index."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from perdure.catalog.contract import Filters, Listed, Sums
from perdure.errors import InvalidValue, NotOffered, SessionNotFound
from perdure.http.client.asking import Asking
from perdure.http.wire.finding import (
    CoverageShape,
    HitShape,
    ListingShape,
    SearchShape,
    StatsShape,
)
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store import Coverage, Found, Hit, Listing, Refreshed, Stats
from perdure.store.asking import Names, agents_of, folder_of, ids_of, kinds_of, names_of
from perdure.store.moments import moment_of

__all__ = ["Finder"]

Moment = Any
Pairs = list[tuple[str, str]]

NOTHING = Coverage(0, 0, 0, ())
"""What a listing of a namespace knows that is not there."""

_PARENTS_MAX = 50
"""So many parameters go into one URL."""


class Finder:
    """Asks a server's index."""

    def __init__(self, asking: Asking, runtime: Runtime) -> None:
        """Nothing is asked."""
        self._asking = asking
        self._runtime = runtime

    def listing(self, filters: Filters, page: Pairs) -> Listing:
        """A page of the listing; `page` has what is not among the filters.

        Raises:
            As `Store.sessions`.

        """
        if filters.projection:
            raise NotOffered("sessions(projection=…)")
        query = [
            *page,
            *_many("agent", filters.agents),
            *_many("program", filters.programs),
            *_many("status", filters.statuses),
            *_many("relation", filters.relations),
            *_many("preset", filters.presets),
            *_many("parent", filters.parents),
            *_one("cwd", filters.cwd),
            *_one("since", _moment(filters.since)),
            *_one("until", _moment(filters.until)),
            *_one("problem", _truth(filters.problem)),
            *_one("archived", _truth(filters.archived)),
            *_one("nested", _truth(filters.top or None)),
        ]
        nothing = _none_of(filters)
        found = self._listed([("limit", "1")] if nothing else query)
        if nothing and found is not None:
            found = msgspec.structs.replace(found, sessions=[], cursor=None)
        if found is None:
            return Listing([], None, fallback=False, coverage=NOTHING)
        return Listing(
            found.sessions,
            found.cursor,
            fallback=found.fallback,
            coverage=_coverage(found.coverage),
        )

    def _listed(self, query: Pairs) -> ListingShape | None:
        """A page; None where there is no such namespace."""
        try:
            found: ListingShape = self._asking.ask("list_sessions", ListingShape, query=query)
        except SessionNotFound:
            return None
        return found

    def refresh(self, *, anew: bool) -> Refreshed:
        """Have the index compared with all logs, or made anew.

        Raises:
            As `Store.refresh`.

        """
        name = "full_rescan" if anew else "refresh"
        found = self._listed([("limit", "1"), (name, "true")])
        told = None if found is None else found.refreshed
        if told is None:
            return Refreshed(0, 0, 0, ())
        return Refreshed(told.sessions, told.read, told.gone, tuple(told.failed))

    def children(self, ids: Names) -> list[Listed]:
        """The listed sessions that come from these, by creation.

        Raises:
            As `Store.children_of`.

        """
        parents = list(ids_of("ids", ids) or ())
        found: list[Listed] = []
        for start in range(0, len(parents), _PARENTS_MAX):
            some = _many("parent", parents[start : start + _PARENTS_MAX])
            query = [*some, ("sort", "created"), ("limit", "1000")]
            page = self._listed(query)
            while page is not None:
                found += page.sessions
                after = page.cursor
                page = None if after is None else self._listed([*query, ("after", after)])
        return sorted(found, key=lambda each: (each.created or 0, each.id))

    def search(self, query: str, asked: Mapping[str, Any]) -> Found:
        """See `Store.search`, whose arguments are `asked`.

        Raises:
            As `Store.search`.

        """
        if not isinstance(query, str):
            raise InvalidValue("query", f"{values.shown(query)} is no text")
        agents = agents_of(asked["agent"])
        if agents is not None and None in agents:
            raise NotOffered("search(agent=[None])")
        now = self._runtime.now_ms()
        told = [
            ("query", query),
            *_many("session", ids_of("session", asked["session"])),
            *_many("without", ids_of("without", asked["without"])),
            *_many("agent", [each for each in agents or () if each is not None]),
            *_many("kind", kinds_of(asked["kind"])),
            *_many("program", names_of("program", asked["program"])),
            *_one("cwd", folder_of(asked["cwd"])),
            *_one("since", _moment(moment_of("since", asked["since"], now))),
            *_one("until", _moment(moment_of("until", asked["until"], now))),
            *_one("after", asked["after"]),
            *((name, str(asked[name])) for name in ("mode", "k", "sort", "snippet_chars")),
        ]
        if not query:
            # The index finds nothing for it, and a server does not take it.
            told[0] = ("query", " ")
        names = [asked[name] for name in ("session", "agent", "kind", "program")]
        try:
            found: SearchShape = self._asking.ask("search", SearchShape, query=told)
            if any(
                each is not None and not isinstance(each, str) and not [*each] for each in names
            ):
                # One of none: a URL has no form for that.
                found = msgspec.structs.replace(found, hits=[], cursor=None)
        except SessionNotFound:
            # There is no such namespace.
            mode = "keyword" if asked["mode"] == "auto" else str(asked["mode"])
            return Found([], None, mode, False, False, (), NOTHING)
        return Found(
            [_hit(each) for each in found.hits],
            found.cursor,
            found.mode,
            found.fallback,
            found.capped,
            tuple(found.ignored),
            _coverage(found.coverage),
            found.model,
            tuple(found.warnings),
        )

    def stats(self) -> Stats:
        """See `Store.stats`; where the index lies, and what it takes, is the server's affair.

        Raises:
            As `Store.stats`.

        """
        try:
            found: StatsShape = self._asking.ask("stats", StatsShape)
        except SessionNotFound:
            return Stats(Sums(0, 0, 0, 0, {}, {}, {}, {}, 0, 0, [], 0, 0), NOTHING, None)
        coverage = _coverage(found.coverage)
        told = {name: getattr(found, name) for name in Sums._fields if hasattr(found, name)}
        return Stats(Sums(**told, skipped_in=[*coverage.reasons], bytes=0), coverage, None)


def _none_of(filters: Filters) -> bool:
    """Whether something has to be one of none: a URL has no form for that."""
    some = (filters.agents, filters.programs, filters.statuses, filters.relations)
    return any(each is not None and not each for each in (*some, filters.presets, filters.parents))


def _many(name: str, given: Collection[str] | None) -> Pairs:
    return [(name, each) for each in given or ()]


def _one(name: str, given: str | None) -> Pairs:
    return [] if given is None else [(name, str(given))]


def _truth(given: bool | None) -> str | None:
    return None if given is None else str(given).lower()


def _moment(given: int | None) -> str | None:
    """Unix milliseconds with so many digits that no year is read in them."""
    return None if given is None else f"{given:+014d}".lstrip("+")


def _coverage(shape: CoverageShape) -> Coverage:
    return Coverage(shape.sessions, shape.indexed, shape.skipped, _pairs(shape.reasons))


def _pairs(given: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((one, other) for one, other in given)


def _hit(shape: HitShape) -> Hit:
    return Hit(**{**msgspec.structs.asdict(shape), "spans": tuple(shape.spans)})
