"""Passages that match: the best of the newest, or all of them in order.

The newest are looked for window by window, each eight times as wide as the one before: a word that
is common fills the answer from the first, and the lists of a rare one are short. In one statement,
so of one state; PostgreSQL begins a window when those before did not give enough.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.catalog.bm25 import weight_of
from perdure.catalog.contract import Candidate, Candidates, Scope
from perdure.catalog.postgres.filters import chosen
from perdure.catalog.postgres.lexemes import (
    Mode,
    all_of,
    any_of,
    lexeme,
    of_phrase,
    read_again,
    read_for,
    wanted,
)
from perdure.catalog.postgres.ranking import RANKED_MAX, score
from perdure.catalog.postgres.scopes import Scoped, scoped, session_lexemes
from perdure.catalog.postgres.statements import Statement, ask, sql
from perdure.catalog.query import Phrase, Query
from perdure.databases.cells import clamped, text
from perdure.databases.postgres.catalog_tables import MARK, PASSAGE_LEXEMES, SAMPLES, WINDOWS
from perdure.databases.postgres.keys import key
from perdure.databases.postgres.work import Work

__all__ = ["candidate_of", "candidates", "in_order"]

_FEW = 100_000
"""Of sessions that have no more passages together, all are looked at in one window."""

_FIRST, _COUNTED_ALL = 6_000, 30_000
"""So many of the newest tell how common hits are, where there are more than this."""

_TELLING, _ENOUGH = 8, 1.3
"""Fewer hits tell nothing; a window is so much wider than it seems to have to be."""

_LEXEMES_MAX = 8
"""A window has no more parts than this, and one."""

_SAMPLE_MAX = 8_192
"""So many passages of a sample tell how common a phrase is, unless it is rare."""

_COUNTED_MIN = 16
"""So many hits in a sample tell it well enough."""

_COLUMNS = "p.id, p.session, p.seq, p.kind, p.agent, p.time, p.digest, p.call"
_RANKED_CHARS, _RANKED_TOKENS = 16_384, 1_000
"""So much of the tokens of a passage that has more of them is ranked by."""

_LONG = f"CASE WHEN length > {_RANKED_TOKENS} THEN left({{0}}, {_RANKED_CHARS}) ELSE {{0}} END"
_READ = (
    "(SELECT id, session, seq, kind, agent, time, digest, call, length,"  # noqa: S608
    f" {_LONG.format('words')} AS words, {_LONG.format('parts')} AS parts FROM hits OFFSET 0)"
)


def candidates(
    work: Work,
    namespace: str,
    scope: Scope,
    query: Query,
    *,
    mode: Mode,
    newest: int,
    most: int,
) -> Candidates:
    """See `Catalog.candidates`."""
    nothing = Candidates([], capped=False)
    if query.empty or newest <= 0 or most <= 0:
        return nothing
    within = scoped(work, namespace, scope)
    known = None if within is None else _known_of(work, within.namespace)
    if within is None or known is None:
        return nothing
    phrases = query.phrases(mode)[:RANKED_MAX]
    weights = _weights(work, within.namespace, known, query, phrases, mode=mode)
    limit = clamped(newest + 1)
    hits = _Hits(within, wanted(query, mode), read_again(query, mode), known.restricted)
    windows = _windows(work, hits, known.last, limit)
    found = sql(
        "WITH hits AS MATERIALIZED (",
        _newest(hits, windows, f"{_COLUMNS}, p.length, p.words, p.parts"),
        Statement("LIMIT %s::bigint", (limit,)),
        "), counted AS (SELECT count(*) AS number, min(id) AS oldest FROM hits),",
        "best AS (SELECT h.*,",
        score(phrases, weights),
        "AS score FROM",
        _READ,
        "AS h, counted AS c",
        Statement(
            "WHERE c.number <= %s::bigint OR h.id > c.oldest ORDER BY score DESC, h.id DESC"
            " LIMIT %s::bigint)",
            (clamped(newest), clamped(most)),
        ),
        "SELECT s.id, b.seq, b.kind, b.agent, b.time, b.digest, b.call, b.score, c.number",
        "FROM best AS b CROSS JOIN counted AS c JOIN @catalog_sessions AS s",
        Statement("ON s.session = b.session WHERE s.namespace = %s", (within.namespace,)),
        "ORDER BY b.score DESC, b.id DESC",
    )
    rows = ask(work, found)
    capped = bool(rows) and rows[0][-1] > newest
    return Candidates([candidate_of(row[:7], row[7]) for row in rows], capped)


def candidate_of(row: tuple[Any, ...], relevance: float) -> Candidate:
    """The passage of a row: id of its session, seq, kind, agent, time, digest, call."""
    session, seq, kind, agent, time, digest, call = row
    told = None if agent is None else text(agent)
    return Candidate(text(session), seq, text(kind), told, time, digest, call, relevance)


class _Known(NamedTuple):
    """What is known of a namespace.

    Attributes:
        passages: how many it has.
        last: the number of the last one that it was given.
        restricted: policies say which rows this role sees.

    """

    passages: int
    last: int
    restricted: bool


def _known_of(work: Work, namespace: str) -> _Known | None:
    """What is known of a namespace; None: nothing was ever said in it."""
    found = work.row(
        "SELECT passages, newest, row_security_active('@catalog_passages')"
        " FROM @catalog_namespaces WHERE namespace = %s",
        namespace,
    )
    return None if found is None else _Known(*found)


def _matching(namespace: str, match: str, *, restricted: bool) -> Statement:
    """What comes behind FROM for the passages `p` that a `tsquery` finds in a namespace."""
    if restricted:
        text = "@catalog_found_passages(%s, %s::tsquery) AS p WHERE true"
        return Statement(text, (namespace, match))
    return Statement(f"@catalog_passages AS p WHERE {PASSAGE_LEXEMES} @@ %s::tsquery", (match,))


class _Hits(NamedTuple):
    """What is looked for.

    Attributes:
        within: the scope.
        match: the `tsquery` for what may match.
        again: the condition on rows, that it does.
        restricted: as in `_Known`.

    """

    within: Scoped
    match: str
    again: Statement
    restricted: bool

    def rows(self, columns: str, window: "_Window") -> Statement:
        """Hits in a window, in no order."""
        older = Statement("")
        if window.before is not None:
            older = Statement("AND p.id < %s::bigint", (window.before,))
        match = self.within.match(self.match, window.lexemes)
        return sql(
            f"SELECT {columns} FROM",
            _matching(self.within.namespace, match, restricted=self.restricted),
            "AND",
            self.within.where,
            older,
            "AND",
            self.again,
        )


class _Window(NamedTuple):
    """Numbers of passages.

    Attributes:
        lexemes: the `tsquery` for those of the namespace; None: all of them.
        start: the first one.
        before: all are smaller than this one; None: to the last.

    """

    lexemes: str | None
    start: int
    before: int | None


def _newest(hits: _Hits, windows: Sequence[_Window], columns: str) -> Statement:
    """All that match, the newest first, as long as somebody reads on."""
    parts: list[str | Statement] = []
    for window in windows:
        start = "UNION ALL (" if parts else "("
        parts += [start, hits.rows(columns, window), "ORDER BY p.id DESC)"]
    return sql(*parts)


def _windows(work: Work, hits: _Hits, last: int, limit: int) -> list[_Window]:
    """The newest passages, probably as many as have so many hits, and all before them.

    How many that are is told by the very newest. It decides how long an answer takes, and not what
    is in it.
    """
    few = hits.within.few
    everything = _Window(None, 0, None)
    if last < _COUNTED_ALL or (few is not None and few <= _FEW):
        return [everything]
    first = _window(hits.within.namespace, last, _FIRST)
    counted = sql(
        "SELECT count(*) FROM (",
        hits.rows("1", first),
        Statement("LIMIT %s::bigint) AS h", (limit,)),
    )
    ((found,),) = ask(work, counted)
    if found < limit:
        wanted_ids = _ENOUGH * limit / found * (last - first.start) if found >= _TELLING else last
        if wanted_ids > last / 2:
            return [everything]
        first = _window(hits.within.namespace, last, int(wanted_ids))
    return [first, everything._replace(before=first.start)]


def _window(namespace: str, last: int, ids: int) -> _Window:
    """The passages of a namespace among the last so many numbers, and some more."""
    bits = next((each for each in WINDOWS if ids >> each <= _LEXEMES_MAX), WINDOWS[-1])
    # What others were given since stands behind the last one, and is no hit.
    numbers = range(max(0, last - ids) >> bits, (last >> bits) + 1)
    return _Window(
        any_of(lexeme(f"{MARK}b{bits}:{number}:{namespace}") for number in numbers),
        numbers[0] << bits,
        None,
    )


# --- how much a phrase tells ----------------------------------------------------------------------


def _weights(
    work: Work,
    namespace: str,
    known: _Known,
    query: Query,
    phrases: Sequence[Phrase],
    *,
    mode: Mode,
) -> list[float]:
    """By phrase how rare it is; one term alone needs nothing to be weighed against.

    A common one is counted in a sample of the passages, which is the same whatever others have.
    """
    if len(query.terms) == 1 and mode == "all":
        return [1.0] * len(phrases)
    # A beginning tells as much as the word itself.
    plain = [*dict.fromkeys(phrase.tokens for phrase in phrases)]
    found: dict[tuple[str, ...], int] = {}
    for level in _levels(known.passages):
        left = [tokens for tokens in plain if tokens not in found]
        if not left:
            break
        counted = [_counted(namespace, Phrase(tokens), level, known) for tokens in left]
        ((*counts,),) = ask(work, "SELECT", *_commas(counted))
        for tokens, count in zip(left, counts, strict=True):
            if count >= _COUNTED_MIN or not level:
                found[tokens] = count << 3 * level
    return [weight_of(phrase, float(found[phrase.tokens]), known.passages) for phrase in phrases]


def _levels(total: int) -> list[int]:
    """The samples to be looked at, one after the other; 0 has all passages."""
    level = 0
    while level < SAMPLES and total >> 3 * level > _SAMPLE_MAX:
        level += 1
    return [*range(level, 0, -2), 0]


def _commas(parts: Sequence[Statement]) -> list[Statement | str]:
    return [each for part in parts for each in (",", part)][1:]


def _counted(namespace: str, phrase: Phrase, level: int, known: _Known) -> Statement:
    """How many passages of a namespace, or of a sample of it, have a phrase."""
    whose = lexeme(f"{MARK}m{level}:{namespace}" if level else f"{MARK}n{namespace}")
    match = all_of([of_phrase(phrase), whose])
    return sql(
        "(SELECT count(*) FROM",
        _matching(namespace, match, restricted=known.restricted),
        "AND",
        read_for(phrase),
        ")",
    )


# --- in order -------------------------------------------------------------------------------------

_SORTED_MAX = 5_000
"""So many hits are sorted; of more, those of a few sessions are at a time."""

_BATCHES = (16, 64)


def in_order(
    work: Work,
    namespace: str,
    scope: Scope,
    query: Query,
    *,
    mode: Mode,
    after: tuple[str, int, int] | None,
    limit: int,
) -> Candidates:
    """See `Catalog.in_order`."""
    nothing = Candidates([], capped=False)
    if query.empty or limit <= 0:
        return nothing
    within = scoped(work, namespace, scope)
    known = None if within is None else _known_of(work, within.namespace)
    if within is None or known is None:
        return nothing
    hits = _Hits(within, wanted(query, mode), read_again(query, mode), known.restricted)
    many = sql(
        "SELECT count(*) FROM (",
        _newest(hits, _windows(work, hits, known.last, _SORTED_MAX), "p.id"),
        f"LIMIT {_SORTED_MAX + 1}) AS hits",
    )
    ordered = _Ordered(work, hits, after=after, limit=limit)
    ((count,),) = ask(work, many)
    if count <= _SORTED_MAX:
        return Candidates(ordered.rows(None), capped=False)
    rows: list[Candidate] = []
    left = ordered.sessions(namespace, scope)
    for size in itertools.chain(_BATCHES, itertools.repeat(_BATCHES[-1])):
        if len(rows) >= limit or not left:
            break
        rows += ordered.rows(left[:size])
        left = left[size:]
    return Candidates(rows[:limit], capped=False)


class _Ordered:
    """The hits of a scope, sorted."""

    def __init__(
        self, work: Work, hits: _Hits, *, after: tuple[str, int, int] | None, limit: int
    ) -> None:
        self._work = work
        self._hits = hits
        self._limit = Statement("LIMIT %s::bigint", (clamped(limit),))
        self._behind = Statement("")
        self._first = b""
        if after is not None:
            self._first = key(after[0])
            self._behind = Statement(
                "WHERE (s.key, h.seq, h.digest) > (%s, %s::bigint, %s::bigint)",
                (self._first, clamped(after[1]), clamped(after[2])),
            )

    def sessions(self, namespace: str, scope: Scope) -> list[int]:
        """The numbers of the sessions of the scope, from the first that is asked for, by id."""
        filters = scope.sessions._replace(since=None, until=None)
        which = chosen(self._work, namespace, filters)
        found = ask(
            self._work,
            "SELECT s.session FROM @catalog_sessions AS s WHERE",
            Statement("s.namespace = %s AND s.key >= %s AND", (which.namespace, self._first)),
            which.where,
            "ORDER BY s.key",
        )
        return [session for (session,) in found]

    def rows(self, sessions: list[int] | None) -> list[Candidate]:
        """The first hits, of these sessions if any are named."""
        named = session_lexemes(sessions) if sessions else None
        hits = self._hits.rows(_COLUMNS, _Window(named, 0, None))
        rows = ask(
            self._work,
            "WITH hits AS MATERIALIZED (",
            hits,
            ") SELECT s.id, h.seq, h.kind, h.agent, h.time, h.digest, h.call",
            "FROM hits AS h JOIN @catalog_sessions AS s",
            Statement(
                "ON s.namespace = %s AND s.session = h.session", (self._hits.within.namespace,)
            ),
            self._behind,
            "ORDER BY s.key, h.seq, h.digest, h.kind",
            self._limit,
        )
        return [candidate_of(row, 0.0) for row in rows]
