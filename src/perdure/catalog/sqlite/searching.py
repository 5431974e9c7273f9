"""Passages that match: the best of the newest, or all of them in order.

Whose a passage is stands in the index as tokens beside its words, so that a query reads only where
both are. Where a condition has no tokens, or too many of them, rows of `passages` are asked.
"""

import heapq
import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import apsw

from perdure.catalog.bm25 import weight_of
from perdure.catalog.contract import Candidate, Candidates, Filters, Scope
from perdure.catalog.query import Phrase, Query
from perdure.catalog.sqlite.filters import KNOWN, chosen, few, namespace_of
from perdure.catalog.sqlite.ranking import (
    RANK,
    STRETCH_BITS,
    agent_token,
    kind_token,
    namespace_token,
    session_token,
    stretch_token,
)
from perdure.databases.cells import BIGGEST, ask, cell, cells, clamped, numbers, sql, text

__all__ = [
    "COLUMNS",
    "KINDS",
    "NAMED",
    "PHRASES_MAX",
    "candidate_of",
    "candidates",
    "in_order",
    "sessions_of",
]

Mode = Literal["all", "any"]

_SESSIONS_FEW, _SESSIONS_MAX = 64, 600
"""So many sessions are named by their tokens, whatever is looked for; so many, if it is common.

Reading the lists of 200 tokens side by side takes 4 ms for a rare word and 9 ms for a common one.
Asking a row of `passages` for each hit takes a microsecond, and a rare word has few.
"""

_HITS_FEW = 10
"""A word that has fewer hits for each session is rare in this sense."""

_STRETCHES_MAX = 60
_COUNTED_MAX, _COUNTED_MIN, _COUNTED_ALL = 4_000, 200, 40_000
"""So many of the newest hits of a phrase tell how common it is; of many phrases, fewer of each."""

PHRASES_MAX = 900
"""So many phrases of a query are ranked by: each is a parameter."""


class _Scoped(NamedTuple):
    """A scope in FTS5 and in SQL.

    Attributes:
        all_of: of the tokens in each of these, a passage has one.
        none_of: a passage has none of these.
        where: a condition on `passages AS p` besides; "" where tokens say everything.
        bound: what its parameters stand for.

    """

    all_of: list[list[str]]
    none_of: list[str]
    where: str
    bound: dict[str, Any]

    def match(self, query: str) -> str:
        """The expression for passages that match a query within the scope."""
        parts = [f"({query})", *(_any(tokens) for tokens in self.all_of)]
        whole = " AND ".join(parts)
        return f"({whole}) NOT {_any(self.none_of)}" if self.none_of else whole


def _any(tokens: Sequence[str]) -> str:
    quoted = [f'"{token}"' for token in tokens]
    return f"({' OR '.join(quoted)})"


def candidates(
    db: apsw.Connection,
    namespace: str,
    scope: Scope,
    query: Query,
    *,
    mode: Mode,
    newest: int,
    most: int,
) -> Candidates:
    """See `Catalog.candidates`."""
    number = namespace_of(db, namespace)
    if number is None or query.empty or newest <= 0 or most <= 0:
        return Candidates([], capped=False)
    match = query.match(mode)
    scoped = _scoped(db, number, scope, match)
    if scoped is None:
        return Candidates([], capped=False)
    weights = _weights(db, number, query, mode)
    places = ", ".join(f":w{index}" for index in range(len(weights)))
    join = _JOIN if scoped.where else ""
    bound = {f"w{index}": weight for index, weight in enumerate(weights)} | scoped.bound
    bound |= {"match": scoped.match(match), "limit": clamped(newest + 1)}
    asked = sql(
        f"SELECT texts.rowid, {RANK}(texts, {places})",
        "FROM texts",
        join,
        "WHERE texts MATCH :match",
        scoped.where,
        "ORDER BY texts.rowid DESC LIMIT :limit",
    )
    hits: list[tuple[Any, ...]] = ask(db, asked, bound)
    capped = len(hits) > newest
    best = heapq.nsmallest(most, hits[:newest], key=lambda hit: (-hit[1], -hit[0]))
    rows = _rows(db, [id for id, _ in best])
    found = [candidate_of(rows[id], score) for id, score in best]
    return Candidates(found, capped)


_JOIN = "CROSS JOIN passages AS p ON p.id = texts.rowid"
COLUMNS = "s.id, p.seq, k.name, a.name, p.time, p.digest, p.call"
_MAYBE = (int, type(None))
KINDS = (bytes, int, bytes, (bytes, type(None)), int, int, _MAYBE)
NAMED = (
    "CROSS JOIN sessions AS s ON s.number = p.session"
    " CROSS JOIN names AS k ON k.number = p.kind LEFT JOIN names AS a ON a.number = p.agent"
)


def _rows(db: apsw.Connection, ids: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    source = "FROM json_each(:ids) AS j CROSS JOIN passages AS p ON p.id = j.value"
    query = sql("SELECT p.id,", COLUMNS, source, NAMED)
    rows = ask(db, query, {"ids": numbers(ids)}, (int, *KINDS))
    if len(rows) < len(ids):
        raise apsw.CorruptError("a passage that is found is not there")
    return {row[0]: row[1:] for row in rows}


def candidate_of(row: tuple[Any, ...], relevance: float) -> Candidate:
    """The passage of a row of `COLUMNS`, which are of the types `KINDS`."""
    session, seq, kind, agent, time, digest, call = row
    told = None if agent is None else text(agent)
    return Candidate(text(session), seq, text(kind), told, time, digest, call, relevance)


# --- how much a phrase tells ----------------------------------------------------------------------

_COUNTED = """
    SELECT count(*), min(rowid) FROM (
        SELECT rowid FROM texts WHERE texts MATCH :match ORDER BY rowid DESC LIMIT :most
    )
"""


def _weights(db: apsw.Connection, namespace: int, query: Query, mode: Mode) -> list[float]:
    """By phrase how rare it is; one term alone needs nothing to be weighed against."""
    phrases = query.phrases(mode)[:PHRASES_MAX]
    if len(query.terms) == 1 and mode == "all":
        return [1.0] * len(phrases)
    told = "SELECT passages, given FROM namespaces WHERE number = ?"
    ((total, last),) = ask(db, told, (namespace,), (int, int))
    within = "".join([f' AND "{token}"' for (token,) in _within(db, namespace)])
    most = max(_COUNTED_MIN, min(_COUNTED_MAX, _COUNTED_ALL // len(phrases)))
    found: dict[tuple[str, ...], float] = {}
    for tokens in dict.fromkeys(phrase.tokens for phrase in phrases):
        # A beginning tells as much as the word itself: to count it, FTS5 would read all of it.
        match = Phrase(tokens).expression() + within
        ((count, first),) = ask(db, _COUNTED, {"match": match, "most": most})
        found[tokens] = float(count)
        if count == most:
            # As common before as among the newest, of those of this namespace.
            found[tokens] *= max(1.0, last / max(1, last - _nth(db, first) + 1))
    return [weight_of(phrase, found[phrase.tokens], total) for phrase in phrases]


def _nth(db: apsw.Connection, id: int) -> int:
    """How many passages were given to the namespace of one until it came, with it."""
    for (nth,) in ask(db, "SELECT nth FROM passages WHERE id = ?", (id,), [int]):
        return int(nth)
    raise apsw.CorruptError("a passage that is found is not there")


def _within(db: apsw.Connection, namespace: int) -> list[list[str]]:
    """The token of a namespace, as one of which a passage has one, unless it is the only one."""
    query = "SELECT EXISTS (SELECT 1 FROM namespaces WHERE number <> ? AND passages > 0)"
    ((others,),) = ask(db, query, (namespace,))
    return [[namespace_token(namespace)]] if others else []


# --- the scope ------------------------------------------------------------------------------------


def _scoped(db: apsw.Connection, namespace: int, scope: Scope, match: str) -> _Scoped | None:
    """The scope in tokens and conditions, for this query; None if nothing is in it."""
    scoped = _add_sessions(db, namespace, scope.sessions, match)
    for add in (_add_kinds, _add_agents, _add_times):
        if scoped is not None:
            scoped = add(db, scope, scoped)
    return scoped


def _numbered(db: apsw.Connection, names: Any) -> list[int]:
    query = "SELECT number FROM names WHERE name IN (SELECT unhex(value) FROM json_each(?))"
    return [number for (number,) in ask(db, query, (cells(names),), [int])]


def _add_kinds(db: apsw.Connection, scope: Scope, scoped: _Scoped) -> _Scoped | None:
    if scope.kinds is None:
        return scoped
    found = _numbered(db, scope.kinds)
    scoped.all_of.append([kind_token(kind) for kind in found])
    return scoped if found else None


def _add_agents(db: apsw.Connection, scope: Scope, scoped: _Scoped) -> _Scoped | None:
    if scope.agents is None:
        return scoped
    found: list[int | None] = [*_numbered(db, {each for each in scope.agents if each is not None})]
    if None in scope.agents:
        found.append(None)
    scoped.all_of.append([agent_token(agent) for agent in found])
    return scoped if found else None


def _add_times(db: apsw.Connection, scope: Scope, scoped: _Scoped) -> _Scoped | None:
    if scope.since is None and scope.until is None:
        return scoped
    since = None if scope.since is None else clamped(scope.since)
    # Before a time that no column holds is everything.
    until = None if scope.until is None or scope.until > BIGGEST else clamped(scope.until)
    if scope.since is not None and scope.since > BIGGEST:
        return None
    bound = {"since": since, "until": until, "bits": STRETCH_BITS, "most": _STRETCHES_MAX + 1}
    query = (
        "SELECT number FROM stretches WHERE (:since IS NULL OR number >= :since >> :bits)"
        " AND (:until IS NULL OR number <= :until >> :bits) LIMIT :most"
    )
    found = [number for (number,) in ask(db, query, bound, [int])]
    if not found:
        return None
    if len(found) <= _STRETCHES_MAX:
        scoped.all_of.append([stretch_token(number) for number in found])
    where = scoped.where
    if since is not None:
        where += " AND p.time >= :since"
        scoped.bound["since"] = since
    if until is not None:
        where += " AND p.time < :until"
        scoped.bound["until"] = until
    return scoped._replace(where=where)


def _add_sessions(
    db: apsw.Connection, namespace: int, filters: Filters, match: str
) -> _Scoped | None:
    filters = filters._replace(since=None, until=None)
    all_but = filters._replace(without=()) == Filters()
    if all_but and not filters.without:
        return _Scoped(_within(db, namespace), [], "", {})
    if all_but:
        query = (
            "SELECT number FROM sessions WHERE namespace = ?"
            " AND id IN (SELECT unhex(value) FROM json_each(?))"
        )
        bound = (namespace, cells(filters.without))
        found = [number for (number,) in ask(db, query, bound, [int])]
    else:
        found = sessions_of(db, namespace, filters)
        if not found:
            return None
    if _by_tokens(db, len(found), match):
        tokens = [session_token(number) for number in found]
        return (
            _Scoped(_within(db, namespace), tokens, "", {})
            if all_but
            else _Scoped([tokens], [], "", {})
        )
    where = sql("AND p.session", "NOT IN" if all_but else "IN", _NUMBERED)
    return _Scoped(_within(db, namespace), [], where, {"numbers": numbers(found)})


_NUMBERED = "(SELECT value FROM json_each(:numbers))"


def _by_tokens(db: apsw.Connection, sessions: int, match: str) -> bool:
    """Whether to name so many sessions by their tokens when this is looked for."""
    if not _SESSIONS_FEW < sessions <= _SESSIONS_MAX:
        return sessions <= _SESSIONS_FEW
    most = _HITS_FEW * sessions
    # Without beginnings first: to count those, FTS5 reads all of them.
    for each in dict.fromkeys((match.replace('"*', '"'), match)):
        ((count, _),) = ask(db, _COUNTED, {"match": each, "most": most})
        if count == most:
            return True
    return False


def sessions_of(db: apsw.Connection, namespace: int, filters: Filters) -> list[int]:
    """The numbers of the sessions that the filters let through."""
    which = chosen(namespace, filters)
    known = few(db, which)
    source, bound = "s.namespace = :namespace", which.bound
    if known is not None:
        source, bound = KNOWN, {**bound, "known": numbers(known)}
    query = sql("SELECT s.number FROM sessions AS s WHERE", source, "AND", which.where)
    return [number for (number,) in ask(db, query, bound, [int])]


# --- in order -------------------------------------------------------------------------------------

_SORTED_MAX = 5_000
"""So many hits are sorted; of more, those of a few sessions are at a time."""

_BATCHES = (16, 64, 250)


def in_order(
    db: apsw.Connection,
    namespace: str,
    scope: Scope,
    query: Query,
    *,
    mode: Mode,
    after: tuple[str, int, int] | None,
    limit: int,
) -> Candidates:
    """See `Catalog.in_order`."""
    number = namespace_of(db, namespace)
    if number is None or query.empty or limit <= 0:
        return Candidates([], capped=False)
    match = query.match(mode)
    scoped = _scoped(db, number, scope, match)
    if scoped is None:
        return Candidates([], capped=False)
    ordered = _Ordered(db, scoped, match, after, limit)
    if ordered.few():
        rows = ordered.rows(())
    else:
        rows = []
        left = ordered.sessions(number, scope.sessions._replace(since=None, until=None))
        for size in itertools.chain(_BATCHES, itertools.repeat(_BATCHES[-1])):
            if len(rows) >= limit or not left:
                break
            rows += ordered.rows(left[:size])
            left = left[size:]
    return Candidates([candidate_of(row, 0.0) for row in rows[:limit]], capped=False)


class _Ordered:
    """The hits of a scope, sorted."""

    def __init__(
        self,
        db: apsw.Connection,
        scoped: _Scoped,
        match: str,
        after: tuple[str, int, int] | None,
        limit: int,
    ) -> None:
        self._db = db
        self._scoped = scoped
        self._match = match
        self._bound = {**scoped.bound, "limit": clamped(limit)}
        self._behind = ""
        self._first = b""
        if after is not None:
            self._behind = "AND (s.id, p.seq, p.digest) > (:session, :seq, :digest)"
            self._first = cell(after[0])
            seq, digest = clamped(after[1]), clamped(after[2])
            self._bound |= {"session": self._first, "seq": seq, "digest": digest}

    def few(self) -> bool:
        """Whether all of them can be sorted."""
        bound = {"match": self._scoped.match(self._match), "most": _SORTED_MAX + 1}
        ((count, _),) = ask(self._db, _COUNTED, bound)
        return bool(count <= _SORTED_MAX)

    def sessions(self, namespace: int, filters: Filters) -> list[int]:
        """The numbers of the sessions of the scope, from the first that is asked for, by id."""
        which = chosen(namespace, filters)
        query = sql(
            "SELECT s.number FROM sessions AS s INDEXED BY by_id",
            "WHERE s.namespace = :namespace AND s.id >= :first AND",
            which.where,
            "ORDER BY s.id",
        )
        found = ask(self._db, query, {**which.bound, "first": self._first}, [int])
        return [number for (number,) in found]

    def rows(self, sessions: Sequence[int]) -> list[tuple[Any, ...]]:
        """The first hits, of these sessions if any are named."""
        scoped = self._scoped
        if sessions:
            tokens = [session_token(number) for number in sessions]
            scoped = scoped._replace(all_of=[*scoped.all_of, tokens])
        query = sql(
            "SELECT",
            COLUMNS,
            "FROM texts",
            _JOIN,
            NAMED,
            "WHERE texts MATCH :match",
            scoped.where,
            self._behind,
            "ORDER BY s.id, p.seq, p.digest, k.name LIMIT :limit",
        )
        bound = {**self._bound, "match": scoped.match(self._match)}
        return ask(self._db, query, bound, KINDS)
