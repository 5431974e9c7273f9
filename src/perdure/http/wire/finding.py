"""Listing and search."""

from typing import Annotated, Literal

from msgspec import Meta

from perdure.catalog.contract import Listed
from perdure.http.wire.shapes import Answer, Cursor, Id, Kind, Mode, Query, Sort, Status, Text

__all__ = [
    "CoverageShape",
    "HitShape",
    "ListQuery",
    "ListingShape",
    "RefreshShape",
    "SearchQuery",
    "SearchShape",
    "StatsShape",
]


class ListQuery(Query):
    """Which sessions to list; see `Store.sessions`.

    Attributes:
        limit: how many at most.
        after: the `cursor` of the page before.
        offset: so many are passed over; a cursor costs less.
        sort: the newest, the largest, or by title; with `query`, what fits best comes first.
        query: words of titles, first prompts, presets, folders and agents.
        agent: only where one of these took part.
        program: only of these: `perdure`, or the format of an import.
        cwd: only those at work in this folder, or below it.
        status: only in one of these.
        relation: only `subagent`, `fork`, `continuation` or `child` of another session.
        preset: only of these.
        parent: only those that come from these sessions.
        since: last active then or later: Unix milliseconds, ISO 8601, or so long ago (`3d`).
        until: last active before that.
        problem: only those with which something is wrong, or only the others.
        archived: only those that were put away, or only the others.
        nested: without sub-agents whose session is listed.
        refresh: compare all logs with the index first.
        full_rescan: read all logs anew first.

    """

    limit: Annotated[int, Meta(ge=1, le=1_000)] = 20
    after: Cursor | None = None
    offset: Annotated[int, Meta(ge=0, le=100_000)] = 0
    sort: Sort = "last_active"
    query: Text | None = None
    agent: tuple[Text, ...] = ()
    program: tuple[Text, ...] = ()
    cwd: Text | None = None
    status: tuple[Status, ...] = ()
    relation: tuple[Text, ...] = ()
    preset: tuple[Text, ...] = ()
    parent: tuple[Text, ...] = ()
    since: Text | None = None
    until: Text | None = None
    problem: bool | None = None
    archived: bool | None = None
    nested: bool = False
    refresh: bool = False
    full_rescan: bool = False


class CoverageShape(Answer):
    """What an answer was looked for in; see `perdure.Coverage`."""

    sessions: int
    indexed: int
    skipped: int
    reasons: list[tuple[str, str]]


class RefreshShape(Answer):
    """What a look at all sessions came to; see `perdure.Refreshed`."""

    sessions: int
    read: int
    gone: int
    failed: list[tuple[str, str]]


class ListingShape(Answer):
    """A page of a listing; `refreshed` where it was asked to look at all sessions first."""

    sessions: list[Listed]
    cursor: str | None
    fallback: bool
    coverage: CoverageShape
    namespaces: list[str]
    refreshed: RefreshShape | None = None


class SearchQuery(Query):
    """What to look for; see `Store.search`.

    Attributes:
        query: words, all of which are looked for, and phrases within quotes.
        session: only in these.
        without: not in these.
        agent: only of these.
        kind: only what is of one of these kinds.
        mode: by the words, by the meaning, or by both; auto is both where there are vectors.
        k: how many at most.
        sort: the best first, or in the order of the events.
        after: the `cursor` of the page before.
        since: said then or later: Unix milliseconds, ISO 8601, or so long ago (`3d`).
        until: said before that.
        cwd: only in sessions of this folder, or below it.
        program: only in sessions of these programs.
        snippet_chars: length of the pieces of text that are shown.

    """

    query: Annotated[str, Meta(min_length=1, max_length=4_096)]
    session: tuple[Id, ...] = ()
    without: tuple[Id, ...] = ()
    agent: tuple[Text, ...] = ()
    kind: tuple[Kind, ...] = ()
    mode: Mode = "auto"
    k: Annotated[int, Meta(ge=1, le=100)] = 10
    sort: Literal["relevance", "seq"] = "relevance"
    after: Cursor | None = None
    since: Text | None = None
    until: Text | None = None
    cwd: Text | None = None
    program: tuple[Text, ...] = ()
    snippet_chars: Annotated[int, Meta(ge=1, le=2_000)] = 200


class HitShape(Answer):
    """A passage that was found; see `perdure.Hit`."""

    session: str
    seq: int
    kind: str
    agent: str | None
    time: int
    score: float
    snippet: str
    spans: list[tuple[int, int]]
    cut: tuple[bool, bool]
    title: str | None
    cwd: str | None


class SearchShape(Answer):
    """What was found; see `perdure.Found`."""

    hits: list[HitShape]
    cursor: str | None
    mode: str
    fallback: bool
    capped: bool
    ignored: list[str]
    coverage: CoverageShape
    model: str | None
    warnings: list[str]


class StatsShape(Answer):
    """Counts, sizes and usage of all sessions; see `perdure.Stats`."""

    sessions: int
    events: int
    size: int
    tokens: int
    cost: dict[str, float]
    by_status: dict[str, int]
    by_program: dict[str, int]
    by_agent: dict[str, int]
    passages: int
    skipped: int
    partial: int
    coverage: CoverageShape
