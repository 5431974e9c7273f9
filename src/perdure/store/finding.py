"""Listing and search: what there is, and where something was said."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec

from perdure.backends.base import Backend
from perdure.catalog import Query, parse, snippet
from perdure.catalog.contract import SORTS, Candidate, Filters, Listed, Scope, Sums
from perdure.catalog.ranking import Ranked, literals, place_of_literal, ranked
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
    Coverage,
    Found,
    Hit,
    Listing,
    Stats,
    cursor_of,
    question_of,
    read_cursor,
)
from perdure.store.indexer import Indexer, Refreshed
from perdure.store.moments import moment_of
from perdure.store.passage_texts import PassageTexts

__all__ = ["K_MAX", "LIMIT_MAX", "SNIPPET_CHARS_MAX", "Finding"]

LIMIT_MAX = 1_000
K_MAX = 100
SNIPPET_CHARS_MAX = 2_000

_RANKED = 1_000
"""So many candidates are ranked, the same for each page."""

_LITERAL = 200
"""So many of the best are read to see whether they hold what was typed sign by sign."""

_COUNT = Annotated[int, msgspec.Meta(ge=0)]
_SORTED: dict[str, Any] = {"title": str | None}
"""What a sort goes by, where that is no number."""

_TRIES = 2
"""So often an index that goes while it is asked is made and asked again."""

T = TypeVar("T")

Moment = int | str | dt.datetime | dt.date
Progress = Callable[[int, int], None]


class _Asked(NamedTuple):
    """What a search is about, and how much of it is to be answered."""

    scope: Scope
    query: Query
    mode: Literal["all", "any"]
    k: int
    after: str | None
    chars: int
    now: int


class _Page(NamedTuple):
    """What a page of a listing is about."""

    filters: Filters
    sort: str
    query: str | None
    limit: int
    after: str | None


class Finding(ABC):
    """The finding half of a store; `Store` is what callers see of it."""

    _backend: Backend
    _runtime: Runtime
    _indexer: Indexer | None
    _texts: PassageTexts

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
        with numbers of sessions, done and in all, if some have to be read first.

        Raises:
            InvalidValue: an argument cannot be.
                StorageFull, StorageUnavailable: the index cannot be brought up to date.

        """
        now = self._runtime.now_ms()
        if limit.__class__ is not int or not 1 <= limit <= LIMIT_MAX:
            raise InvalidValue("limit", f"{values.shown(limit)} is not 1 to {LIMIT_MAX}")
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
            return Listing([], None, fallback=False, coverage=_NOTHING)
        page = _Page(filters, sort, query, limit, after)
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
        filters, sort, query, limit, after = asked
        if query is not None and query.strip():
            return self._matching(index, filters, query, limit, after)
        question = question_of(filters._replace(since=None, until=None), sort)
        kinds = (_SORTED.get(sort, int | None), str)
        place = None if after is None else read_cursor(after, question, kinds)
        found = index.catalog.listed(
            index.namespace,
            filters,
            sort=sort,
            limit=limit + 1,
            after=place,
        )
        page = found[:limit]
        cursor = None
        if len(found) > limit:
            cursor = cursor_of(question, getattr(page[-1], sort), page[-1].id)
        return Listing(page, cursor, fallback=False, coverage=_coverage(index))

    def _matching(
        self, index: Indexer, filters: Filters, text: str, limit: int, after: str | None
    ) -> Listing:
        query = parse(text)
        mode: Literal["all", "any"] = "all"
        offset = 0
        question = question_of(filters._replace(since=None, until=None), text)
        if after is not None:
            fallback, offset = read_cursor(after, question, (bool, _COUNT))
            mode = "any" if fallback else "all"
        namespace, catalog = index.namespace, index.catalog
        many = limit + 1
        found = catalog.matching(namespace, filters, query, mode=mode, limit=many, offset=offset)
        if not found and after is None:
            mode = "any"
            found = catalog.matching(namespace, filters, query, mode=mode, limit=many)
        more = len(found) > limit
        cursor = cursor_of(question, mode == "any", offset + limit) if more else None
        page = found[:limit]
        return Listing(page, cursor, fallback=mode == "any", coverage=_coverage(index))

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

        Raises:
            As `sessions`.

        """
        now = self._runtime.now_ms()
        check_count("k", k, K_MAX)
        check_count("snippet_chars", snippet_chars, SNIPPET_CHARS_MAX)
        if not isinstance(query, str):
            raise InvalidValue("query", f"{values.shown(query)} is no text")
        if mode not in ("auto", "keyword"):
            raise InvalidValue("mode", f"{values.shown(mode)} is none", hint="auto, keyword")
        if sort not in ("relevance", "seq"):
            raise InvalidValue("sort", f"{values.shown(sort)} is none", hint="relevance, seq")
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
        asked = _Asked(scope, parse(query), "all", k, after, snippet_chars, now)
        if not self._backend.persistent:
            return _found([], None, asked, None, capped=False, fallback=False)
        find = self._in_order if sort == "seq" else self._ranked
        return self._answer(lambda index: find(index, asked), progress)

    def _ranked(self, index: Indexer, asked: _Asked) -> Found:
        offset = 0
        question = _question(asked, "relevance")
        if asked.after is not None:
            fallback, offset, now = read_cursor(asked.after, question, (bool, _COUNT, int))
            asked = asked._replace(mode="any" if fallback else "all", now=now)
        catalog, what = index.catalog, (index.namespace, asked.scope, asked.query)
        found = catalog.candidates(*what, mode=asked.mode, most=_RANKED)
        if not found.found and asked.after is None:
            asked = asked._replace(mode="any")
            found = catalog.candidates(*what, mode="any", most=_RANKED)
        best, cut = self._literally(ranked(found.found, asked.now), asked)
        end = offset + asked.k
        fallback = asked.mode == "any" and bool(best)
        cursor = cursor_of(question, fallback, end, asked.now) if best[end:] else None
        hits = self._hits(index, best[offset:end], asked)
        capped = found.capped or cut or len(found.found) >= _RANKED
        return _found(hits, cursor, asked, index, capped=capped, fallback=fallback)

    def _literally(self, best: list[Ranked], asked: _Asked) -> tuple[list[Ranked], bool]:
        """Those of the best that hold what was typed sign by sign; all, if none does.

        Words know no signs: `foo(` finds all that says foo, and what says `foo(` is meant. Also
        returns whether some were not looked at.
        """
        typed = literals(asked.query)
        if not typed:
            return best, False
        first = best[:_LITERAL]
        texts = [(self._texts.text(each.candidate) or "").casefold() for each in first]
        held = [all(word in text for word in typed) for text in texts]
        exact = [each for each, holds in zip(first, held, strict=True) if holds]
        return (exact, len(best) > len(first)) if exact else (best, False)

    def _in_order(self, index: Indexer, asked: _Asked) -> Found:
        behind = None
        question = _question(asked, "seq")
        if asked.after is not None:
            kinds = (bool, str, int, int)
            fallback, session, seq, digest = read_cursor(asked.after, question, kinds)
            behind = (session, seq, digest)
            asked = asked._replace(mode="any" if fallback else "all")
        catalog, what = index.catalog, (index.namespace, asked.scope, asked.query)
        many = asked.k + 1
        found = catalog.in_order(*what, mode=asked.mode, after=behind, limit=many).found
        if not found and asked.after is None:
            asked = asked._replace(mode="any")
            found = catalog.in_order(*what, mode="any", limit=many).found
        page = found[: asked.k]
        fallback, cursor = asked.mode == "any" and bool(page), None
        if len(found) > len(page):
            last = page[-1]
            cursor = cursor_of(question, fallback, last.session, last.seq, last.digest)
        hits = self._hits(index, [Ranked(each, 0.0) for each in page], asked)
        return _found(hits, cursor, asked, index, capped=False, fallback=fallback)

    def _hits(self, index: Indexer, page: Iterable[Ranked], asked: _Asked) -> list[Hit]:
        """The hits of a page; what does not stand in its log any more is left out."""
        found = list(page)
        ids = {each.candidate.session for each in found}
        catalog, namespace = index.catalog, index.namespace
        rows = catalog.listed(namespace, Filters(ids=ids), limit=len(ids)) if ids else []
        known = {row.id: row for row in rows}
        hits = []
        for candidate, score in found:
            text = self._texts.text(candidate)
            if text is not None:
                row = known.get(candidate.session)
                hits.append(_hit(candidate, score, text, asked, row))
        return hits

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
            return Stats(Sums(0, 0, 0, 0, {}, {}, {}, {}, 0, 0, [], 0, 0), _NOTHING, None)

        def ask(index: Indexer) -> Stats:
            sums = index.catalog.sums(index.namespace, Filters())
            return Stats(sums, _coverage(index), index.catalog.place)

        return self._answer(ask, progress)


def _hit(candidate: Candidate, score: float, text: str, asked: _Asked, row: Listed | None) -> Hit:
    near = place_of_literal(text, asked.query)
    piece = snippet(text, asked.query, chars=asked.chars, near=near)
    return Hit(
        session=candidate.session,
        seq=candidate.seq,
        kind=candidate.kind,
        agent=candidate.agent,
        time=candidate.time,
        score=score,
        snippet=piece.text,
        spans=piece.spans,
        cut=(piece.cut_before, piece.cut_after),
        title=None if row is None else row.title,
        cwd=None if row is None else row.cwd,
    )


def _question(asked: _Asked, sort: str) -> int:
    # So long ago is another moment for each page.
    scope = asked.scope._replace(since=None, until=None)
    return question_of(scope, asked.query.text, sort)


def _found(
    hits: list[Hit],
    cursor: str | None,
    asked: _Asked,
    index: Indexer | None,
    *,
    capped: bool,
    fallback: bool,
) -> Found:
    return Found(
        hits,
        cursor,
        "keyword",
        fallback=fallback,
        capped=capped,
        ignored=asked.query.ignored,
        coverage=_NOTHING if index is None else _coverage(index),
    )


_NOTHING = Coverage(0, 0, 0, ())


def _coverage(index: Indexer) -> Coverage:
    found = index.catalog.covered(index.namespace)
    return Coverage(
        sessions=found.sessions,
        indexed=found.sessions - found.unread,
        skipped=found.skipped,
        reasons=tuple(found.skipped_in),
    )
