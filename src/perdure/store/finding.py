"""Listing and search: what there is, and where something was said."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from perdure.backends.base import Backend
from perdure.catalog import parse
from perdure.catalog.contract import SORTS, Filters, Listed, Scope, Sums
from perdure.catalog.query import Query
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store.asking import (
    Names,
    Scalar,
    agents_of,
    check_count,
    folder_of,
    ids_of,
    kinds_of,
    names_of,
    pointers_of,
    statuses_of,
    truth_of,
)
from perdure.store.found import (
    Found,
    Listing,
    Stats,
    cursor_of,
    question_of,
    read_cursor,
)
from perdure.store.indexer import Indexer, Refreshed
from perdure.store.keywords import NOTHING, Asked, Keywords, coverage_of
from perdure.store.moments import moment_of
from perdure.store.nearness import MODES, Nearness

__all__ = ["K_MAX", "LIMIT_MAX", "OFFSET_MAX", "SNIPPET_CHARS_MAX", "Finding"]

LIMIT_MAX = 1_000
OFFSET_MAX = 1_000_000
K_MAX = 100
SNIPPET_CHARS_MAX = 2_000

_COUNT = Annotated[int, msgspec.Meta(ge=0)]
_SORTED: dict[str, Any] = {"title": str | None}
"""What a sort goes by, where that is no number."""

_TRIES = 2
"""So often an index that goes while it is asked is made and asked again."""

T = TypeVar("T")

Moment = int | str | dt.datetime | dt.date
Progress = Callable[[int, int], None]


class _Page(NamedTuple):
    """What a page of a listing is about."""

    filters: Filters
    sort: str
    query: str | None
    limit: int
    after: str | None
    offset: int


class Finding(ABC):
    """The finding half of a store; `Store` is what callers see of it."""

    _backend: Backend
    _runtime: Runtime
    _indexer: Indexer | None
    _keywords: Keywords
    _nearness: Nearness | None

    @abstractmethod
    def _check_open(self) -> None: ...

    def _index(self) -> Indexer:
        self._check_open()
        if self._indexer is None:
            hint = "open the store without index=False"
            raise InvalidValue("index", "is False, so nothing is indexed", hint=hint)
        return self._indexer

    # --- listing ---------------------------------------------------------------------------------

    def sessions(
        self,
        limit: int = 20,
        after: str | None = None,
        sort: str = "last_active",
        query: str | None = None,
        *,
        offset: int = 0,
        agent: Names | None = None,
        program: Names | None = None,
        cwd: str | None = None,
        status: Names | None = None,
        relation: Names | None = None,
        preset: Names | None = None,
        parent: Names | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        problem: bool | None = None,
        archived: bool | None = None,
        projection: Mapping[str, Scalar] | None = None,
        nested: bool = False,
        progress: Progress | None = None,
    ) -> Listing:
        """A page of the sessions that satisfy everything that is given.

        `sort` is "last_active", "created", "size" (the largest first) or "title"; with a `query`
        they are ranked by how well title, preview, composition, preset, config path, agents and cwd
        match. `cwd` is a folder, with all below it. `since` and `until` are about the last
        activity: Unix milliseconds, a datetime, a date, ISO 8601, or so long ago ("3d"); what has
        no zone is local time. `projection` has JSON pointers into the projection. With `nested`
        sub-agents are left out whose session is listed; `children` has them. `progress` is called
        with numbers of sessions, done and in all, if some have to be read first. Of what would
        come, `offset` sessions are passed over, and counted one by one: to go on, give `after`.

        Raises:
            InvalidValue: an argument cannot be.
                StorageFull, StorageUnavailable: the index cannot be brought up to date.

        """
        now = self._runtime.now_ms()
        if limit.__class__ is not int or not 1 <= limit <= LIMIT_MAX:
            raise InvalidValue("limit", f"{values.shown(limit)} is not 1 to {LIMIT_MAX}")
        if offset.__class__ is not int or not 0 <= offset <= OFFSET_MAX:
            raise InvalidValue("offset", f"{values.shown(offset)} is not 0 to {OFFSET_MAX}")
        if query is not None and not isinstance(query, str):
            raise InvalidValue("query", f"{values.shown(query)} is no text")
        if sort not in SORTS:
            raise InvalidValue("sort", f"{values.shown(sort)} is none", hint=", ".join(SORTS))
        filters = Filters(
            agents=names_of("agent", agent),
            programs=names_of("program", program),
            cwd=folder_of(cwd),
            statuses=statuses_of(status),
            relations=names_of("relation", relation),
            presets=names_of("preset", preset),
            parents=names_of("parent", parent),
            since=moment_of("since", since, now),
            until=moment_of("until", until, now),
            problem=truth_of("problem", problem),
            archived=truth_of("archived", archived),
            projection=pointers_of(projection),
            top=nested,
        )
        if not self._backend.persistent:
            return Listing([], None, fallback=False, coverage=NOTHING)
        page = _Page(filters, sort, query, limit, after, offset)
        return self._answer(lambda index: self._listing(index, page), progress)

    def _answer(self, ask: Callable[[Indexer], T], progress: Progress | None = None) -> T:
        """What an index answers that is up to date, and that did not go meanwhile."""
        index = self._index()
        index.ready(progress)
        found = ask(index)
        for _ in range(_TRIES):
            if index.whole:
                break
            index.ready(progress)
            found = ask(index)
        return found

    def _listing(self, index: Indexer, asked: "_Page") -> Listing:
        filters, sort, query, limit, after, passed = asked
        if query is not None and query.strip():
            return self._matching(index, asked)
        question = question_of(filters._replace(since=None, until=None), sort)
        kinds = (_SORTED.get(sort, int | None), str)
        place = None if after is None else read_cursor(after, question, kinds)
        found = index.catalog.listed(
            index.namespace,
            filters,
            sort=sort,
            limit=limit + 1,
            offset=passed,
            after=place,
        )
        page = found[:limit]
        cursor = None
        if len(found) > limit:
            cursor = cursor_of(question, getattr(page[-1], sort), page[-1].id)
        return Listing(page, cursor, fallback=False, coverage=coverage_of(index))

    def _matching(self, index: Indexer, asked: "_Page") -> Listing:
        filters, _, text, limit, after, passed = asked
        query = parse(text or "")
        mode: Literal["all", "any"] = "all"
        offset = 0
        question = question_of(filters._replace(since=None, until=None), text)
        if after is not None:
            fallback, offset = read_cursor(after, question, (bool, _COUNT))
            mode = "any" if fallback else "all"
        offset += passed
        namespace, catalog = index.namespace, index.catalog
        many = limit + 1
        found = catalog.matching(namespace, filters, query, mode=mode, limit=many, offset=offset)
        if not found and after is None and not self._any_matches(index, filters, query, passed):
            mode = "any"
            found = catalog.matching(
                namespace, filters, query, mode=mode, limit=many, offset=offset
            )
        more = len(found) > limit
        cursor = cursor_of(question, mode == "any", offset + limit) if more else None
        page = found[:limit]
        return Listing(page, cursor, fallback=mode == "any", coverage=coverage_of(index))

    def _any_matches(self, index: Indexer, filters: Filters, query: Query, passed: int) -> bool:
        """Whether what was passed over has all words, so that the page is only past the end."""
        found = passed and index.catalog.matching(index.namespace, filters, query, limit=1)
        return bool(found)

    def children_of(self, ids: Names) -> list[Listed]:
        """The listed sessions that come from these, by creation.

        Raises:
            As `sessions`.

        """
        if not self._backend.persistent:
            return []
        parents = list(ids_of("ids", ids) or ())

        def ask(index: Indexer) -> list[Listed]:
            return index.catalog.children(index.namespace, parents)

        return self._answer(ask)

    def sessions_by_id(self, ids: Names) -> list[Listed]:
        """What the listing says of these sessions, those at work last first; no log is read.

        Of those that it does not know nothing is said.

        Raises:
            As `sessions`.

        """
        wanted = list(ids_of("ids", ids) or ())
        if not self._backend.persistent:
            return []

        def ask(index: Indexer) -> list[Listed]:
            return index.catalog.listed(index.namespace, Filters(ids=wanted), limit=len(wanted))

        return self._answer(ask)

    # --- search ----------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        *,
        session: Names | None = None,
        without: Names = (),
        agent: str | Collection[str | None] | None = None,
        kind: Names | None = None,
        mode: str = "auto",
        k: int = 10,
        sort: str = "relevance",
        after: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cwd: str | None = None,
        program: Names | None = None,
        snippet_chars: int = 200,
        progress: Progress | None = None,
    ) -> Found:
        """Where something was said, in one session, in some, or in all.

        What is typed is taken literally: words, of which all are looked for, and phrases within
        quotes. The last word may be the beginning of one. Where no passage has them all, those are
        found that have some, and `fallback` says so. `sort` is "relevance", or "seq" for the order
        of the events. `kind` is among `perdure.catalog.passages.KINDS`. `since` and `until` are
        about when it was said, as for `sessions`. `without` leaves sessions out: the one that asks,
        say. `k` is at most 100, `snippet_chars` at most 2,000.

        `mode` "keyword" goes by the words, "semantic" by the meaning of the query as a whole, with
        the vectors that `embed` made, and "hybrid" by both. "auto" is "hybrid" where the sessions
        asked have vectors, else "keyword"; where an embedder is missing it is "keyword", too, with
        a warning. The answer says which it is, and of which model.

        Raises:
            EmbedderUnavailable, EmbedderFaulty: there is no vector of the query ("semantic" and
                "hybrid" alone).
            As `sessions`.

        """
        now = self._runtime.now_ms()
        check_count("k", k, K_MAX)
        check_count("snippet_chars", snippet_chars, SNIPPET_CHARS_MAX)
        if not isinstance(query, str):
            raise InvalidValue("query", f"{values.shown(query)} is no text")
        _check_way(mode, sort)
        scope = Scope(
            sessions=Filters(
                ids=ids_of("session", session),
                without=ids_of("without", without) or (),
                cwd=folder_of(cwd),
                programs=names_of("program", program),
            ),
            kinds=kinds_of(kind),
            agents=agents_of(agent),
            since=moment_of("since", since, now),
            until=moment_of("until", until, now),
        )
        asked = Asked(scope, parse(query), "all", k, after, snippet_chars, now)
        if not self._backend.persistent:
            return self._keywords.nothing(asked)
        if sort == "seq":
            return self._answer(lambda index: self._keywords.in_order(index, asked), progress)
        near = self._nearness
        if mode == "keyword" or near is None:
            return self._answer(lambda index: self._keywords.best(index, asked), progress)
        return self._answer(lambda index: near.search(index, asked, mode), progress)

    # --- the index -------------------------------------------------------------------------------

    def refresh(self, *, progress: Progress | None = None) -> Refreshed:
        """Compare all logs with what the index knows of them, and read what changed.

        Raises:
            As `sessions`.

        """
        return self._refreshed(anew=False, progress=progress)

    def full_rescan(self, *, progress: Progress | None = None) -> Refreshed:
        """Read all logs anew, whatever the index knows of them.

        Raises:
            As `sessions`.

        """
        return self._refreshed(anew=True, progress=progress)

    def _refreshed(self, *, anew: bool, progress: Progress | None) -> Refreshed:
        if not self._backend.persistent:
            return Refreshed(0, 0, 0, ())
        return self._index().refresh(anew=anew, progress=progress)

    def stats(self, *, progress: Progress | None = None) -> Stats:
        """Counts, sizes and usage of all sessions, and how much of them the index covers.

        Raises:
            As `sessions`.

        """
        if not self._backend.persistent:
            return Stats(Sums(0, 0, 0, 0, {}, {}, {}, {}, 0, 0, [], 0, 0), NOTHING, None)

        def ask(index: Indexer) -> Stats:
            sums = index.catalog.sums(index.namespace, Filters())
            models = () if self._nearness is None else self._nearness.models()
            return Stats(sums, coverage_of(index), index.catalog.place, models)

        return self._answer(ask, progress)


def _check_way(mode: object, sort: object) -> None:
    """Refuse a mode or a sort that is none, and both together where they contradict each other.

    Raises:
        InvalidValue: one of them.

    """
    if mode not in MODES:
        raise InvalidValue("mode", f"{values.shown(mode)} is none", hint=", ".join(MODES))
    if sort not in ("relevance", "seq"):
        raise InvalidValue("sort", f"{values.shown(sort)} is none", hint="relevance, seq")
    if sort == "seq" and mode in ("semantic", "hybrid"):
        hint = "give mode='keyword'"
        raise InvalidValue("sort", "has no meaning where all passages are near", hint=hint)
