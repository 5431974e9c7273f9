"""Listing and search: what there is, and where something was said."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

from perdure.backends.base import Backend
from perdure.catalog import Query, parse, snippet
from perdure.catalog.contract import SORTS, Candidate, Filters, Listed, Scope, Sums
from perdure.catalog.passages import KINDS
from perdure.catalog.ranking import Ranked, literals, ranked
from perdure.errors import InvalidValue, PerdureError
from perdure.model import values
from perdure.model.header import check_id
from perdure.runtime import Runtime
from perdure.store.found import Coverage, Found, Hit, Listing, Stats, cursor_of, read_cursor
from perdure.store.indexer import Indexer, Refreshed
from perdure.store.moments import moment_of
from perdure.store.passage_texts import PassageTexts

__all__ = ["K_MAX", "LIMIT_MAX", "SNIPPET_CHARS_MAX", "Finding"]

LIMIT_MAX = 1_000
K_MAX = 100
SNIPPET_CHARS_MAX = 2_000

_RANKED = 200
"""So many candidates are ranked for a page; each page looks at as many more."""

_TRIES = 2
"""So often an index that goes while it is asked is made and asked again."""

T = TypeVar("T")

Moment = int | str | dt.datetime | dt.date
Names = str | Collection[str]
Progress = Callable[[int, int], None]
Scalar = str | int | float | bool | None


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
        if sort not in SORTS:
            raise InvalidValue("sort", f"{values.shown(sort)} is none", hint=", ".join(SORTS))
        filters = Filters(
            agents=_names("agent", agent),
            programs=_names("program", program),
            cwd=cwd,
            statuses=_names("status", status),
            relations=_names("relation", relation),
            presets=_names("preset", preset),
            parents=_names("parent", parent),
            since=moment_of("since", since, now),
            until=moment_of("until", until, now),
            problem=problem,
            archived=archived,
            projection=_pointers(projection),
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
        place = None if after is None else read_cursor(after, (str, str, Any, str))
        if place is not None and place[:2] != ("sessions", sort):
            raise InvalidValue("after", "is a cursor of another question", hint="begin anew")
        found = index.catalog.listed(
            index.namespace,
            filters,
            sort=sort,
            limit=limit + 1,
            after=None if place is None else place[2:],
        )
        page = found[:limit]
        cursor = None
        if len(found) > limit:
            cursor = cursor_of("sessions", sort, getattr(page[-1], sort), page[-1].id)
        return Listing(self._truly(index, page), cursor, fallback=False, coverage=_coverage(index))

    def _matching(
        self, index: Indexer, filters: Filters, text: str, limit: int, after: str | None
    ) -> Listing:
        query = parse(text)
        mode: Literal["all", "any"] = "all"
        offset = 0
        if after is not None:
            _, fallback, offset = read_cursor(after, (Literal["matching"], bool, int))
            mode = "any" if fallback else "all"
        namespace, catalog = index.namespace, index.catalog
        many = limit + 1
        found = catalog.matching(namespace, filters, query, mode=mode, limit=many, offset=offset)
        if not found and after is None:
            mode = "any"
            found = catalog.matching(namespace, filters, query, mode=mode, limit=many)
        more = len(found) > limit
        cursor = cursor_of("matching", mode == "any", offset + limit) if more else None
        page = self._truly(index, found[:limit])
        return Listing(page, cursor, fallback=mode == "any", coverage=_coverage(index))

    def _truly(self, index: Indexer, page: list[Listed]) -> list[Listed]:
        """The page, those that claim to be running looked at: their writers may be dead."""
        stale = [each.id for each in page if each.status == "running" and not self._runs(each.id)]
        if not stale:
            return page
        index.read(stale)
        now = index.catalog.listed(index.namespace, Filters(ids=stale), limit=len(stale))
        known = {each.id: each for each in now}
        return [known.get(each.id, each) for each in page]

    def _runs(self, id: str) -> bool:
        try:
            return self._backend.holder(id) is not None
        except PerdureError:
            return False

    def children_of(self, ids: Iterable[str]) -> list[Listed]:
        """The listed sessions that come from these, by creation.

        Raises:
            As `sessions`.

        """
        if not self._backend.persistent:
            return []
        parents = list(ids)

        def ask(index: Indexer) -> list[Listed]:
            return self._truly(index, index.catalog.children(index.namespace, parents))

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
        _check_count("k", k, K_MAX)
        _check_count("snippet_chars", snippet_chars, SNIPPET_CHARS_MAX)
        if not isinstance(query, str):
            raise InvalidValue("query", f"{values.shown(query)} is no text")
        if mode not in ("auto", "keyword"):
            raise InvalidValue("mode", f"{values.shown(mode)} is none", hint="auto, keyword")
        if sort not in ("relevance", "seq"):
            raise InvalidValue("sort", f"{values.shown(sort)} is none", hint="relevance, seq")
        scope = Scope(
            sessions=Filters(
                ids=_ids("session", session),
                without=_ids("without", without) or (),
                cwd=cwd,
                programs=_names("program", program),
            ),
            kinds=_kinds(kind),
            agents=[agent] if isinstance(agent, str) else agent,
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
        if asked.after is not None:
            _, fallback, offset = read_cursor(asked.after, (Literal["hits"], bool, int))
            asked = asked._replace(mode="any" if fallback else "all")
        catalog, what = index.catalog, (index.namespace, asked.scope, asked.query)
        most = offset + _RANKED
        found = catalog.candidates(*what, mode=asked.mode, most=most)
        if not found.found and asked.after is None:
            asked = asked._replace(mode="any")
            found = catalog.candidates(*what, mode="any", most=most)
        best, end = self._literally(ranked(found.found, asked.now), asked), offset + asked.k
        fallback = asked.mode == "any" and bool(best)
        cursor = cursor_of("hits", fallback, end) if best[end:] else None
        hits = self._hits(best[offset:end], asked)
        return _found(hits, cursor, asked, index, capped=found.capped, fallback=fallback)

    def _literally(self, best: list[Ranked], asked: _Asked) -> list[Ranked]:
        """Those that hold what was typed sign by sign go first among the best.

        Words know no signs: `foo(` finds all that says foo, and what says `foo(` is meant.
        """
        typed = literals(asked.query)
        if not typed:
            return best
        first = best[:_RANKED]
        texts = [(self._texts.text(each.candidate) or "").casefold() for each in first]
        held = [all(word in text for word in typed) for text in texts]
        exact = [each for each, holds in zip(first, held, strict=True) if holds]
        others = [each for each, holds in zip(first, held, strict=True) if not holds]
        return [*exact, *others, *best[_RANKED:]]

    def _in_order(self, index: Indexer, asked: _Asked) -> Found:
        behind = None
        if asked.after is not None:
            kinds = (Literal["order"], bool, str, int, int)
            _, fallback, session, seq, digest = read_cursor(asked.after, kinds)
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
            cursor = cursor_of("order", fallback, last.session, last.seq, last.digest)
        hits = self._hits([Ranked(each, 0.0) for each in page], asked)
        return _found(hits, cursor, asked, index, capped=False, fallback=fallback)

    def _hits(self, page: Iterable[Ranked], asked: _Asked) -> list[Hit]:
        """The hits of a page; what does not stand in its log any more is left out."""
        hits = []
        for candidate, score in page:
            text = self._texts.text(candidate)
            if text is not None:
                hits.append(_hit(candidate, score, text, asked))
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


def _hit(candidate: Candidate, score: float, text: str, asked: _Asked) -> Hit:
    piece = snippet(text, asked.query, chars=asked.chars)
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
    )


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


# --- arguments ------------------------------------------------------------------------------------


def _check_count(name: str, given: object, most: int) -> None:
    if type(given) is not int or not 1 <= given <= most:
        raise InvalidValue(name, f"{values.shown(given)} is not 1 to {most}")


def _names(name: str, given: Names | None) -> Collection[str] | None:
    if given is None or isinstance(given, str):
        return None if given is None else [given]
    names = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, str) for each in names):
        raise InvalidValue(name, f"{values.shown(given)} is no text, and no list of texts")
    return [each for each in names if each is not None]


def _ids(name: str, given: Names | None) -> Collection[str] | None:
    ids = _names(name, given)
    for each in ids or ():
        check_id(each)
    return ids


def _kinds(given: Names | None) -> Collection[str] | None:
    kinds = _names("kind", given)
    for each in kinds or ():
        if each not in KINDS:
            raise InvalidValue("kind", f"{values.shown(each)} is none", hint=", ".join(KINDS))
    return kinds


def _pointers(given: Mapping[str, Scalar] | None) -> list[tuple[str, Scalar]]:
    found = list((given or {}).items())
    for pointer, value in found:
        if not isinstance(pointer, str) or (pointer and not pointer.startswith("/")):
            hint = "a JSON pointer begins with /, as in /goal/done"
            raise InvalidValue("projection", f"{values.shown(pointer)} is none", hint=hint)
        if not isinstance(value, str | int | float | bool | None):
            raise InvalidValue("projection", f"{values.shown(value)} is no text, number or truth")
    return found
