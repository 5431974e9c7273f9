"""Listings: pages in an order, sessions by their words, children, sums."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from perdure.catalog.bm25 import weight_of
from perdure.catalog.contract import SORTS, Covered, Filters, Listed, Sums
from perdure.catalog.postgres.filters import Chosen, chosen, few, source_of
from perdure.catalog.postgres.lexemes import (
    Mode,
    all_of,
    lexeme,
    of_phrase,
    read_again,
    read_for,
    wanted,
)
from perdure.catalog.postgres.ranking import RANKED_MAX, score
from perdure.catalog.postgres.rows import shown
from perdure.catalog.postgres.statements import Statement, ask, sql
from perdure.catalog.query import Phrase, Query
from perdure.catalog.rows import SORT_COLUMNS, listed_of, sort_key
from perdure.databases.cells import BIGGEST, clamped, text, unpack
from perdure.databases.postgres.catalog_tables import MARK, TITLE_LEXEMES
from perdure.databases.postgres.keys import key, keys, within
from perdure.databases.postgres.work import Work
from perdure.errors import InvalidValue

__all__ = ["children", "covered", "listed", "matching", "sums"]

_SKIPPED_MAX = 20
_READ = "JOIN @catalog_readings AS r ON r.namespace = f.namespace AND r.session = f.session"


def listed(
    work: Work,
    namespace: str,
    filters: Filters,
    *,
    sort: str,
    limit: int,
    offset: int,
    after: tuple[Any, str] | None,
) -> list[Listed]:
    """See `Catalog.listed`."""
    if limit <= 0:
        return []
    if sort not in SORT_COLUMNS:
        raise InvalidValue("sort", f"{sort!r} is no order", hint=f"one of {', '.join(SORTS)}")
    which = chosen(work, namespace, filters)
    column = SORT_COLUMNS[sort]
    behind = Statement("")
    if after is not None:
        kind = "bytea" if sort == "title" else "bigint"
        behind = Statement(
            f"AND (s.{column}, s.key) > (%s::{kind}, %s)", (sort_key(sort, after[0]), key(after[1]))
        )
    order = Statement(
        f"ORDER BY s.{column}, s.key LIMIT %s::bigint OFFSET %s::bigint",
        (clamped(limit), clamped(max(0, offset))),
    )
    page = sql(
        f"SELECT s.namespace, s.session, s.{column} AS value, s.key FROM",
        source_of(which, few(work, which)),
        behind,
        order,
    )
    rows = ask(work, "SELECT r.listed FROM (", page, ") AS f", _READ, "ORDER BY f.value, f.key")
    return [listed_of(packed) for (packed,) in rows]


def matching(
    work: Work,
    namespace: str,
    filters: Filters,
    query: Query,
    *,
    mode: Mode,
    limit: int,
    offset: int,
) -> list[Listed]:
    """See `Catalog.matching`."""
    if query.empty or limit <= 0:
        return []
    which = chosen(work, namespace, filters)
    ((restricted,),) = ask(work, "SELECT row_security_active('@catalog_titles')")
    hits = sql(
        "SELECT p.session, p.length, p.words, p.parts FROM",
        _found(which.namespace, wanted(query, mode), restricted=restricted),
        read_again(query, mode),
    )
    phrases = query.phrases(mode)[:RANKED_MAX]
    found = sql(
        "WITH hits AS MATERIALIZED (",
        hits,
        "), f AS (SELECT s.namespace, s.session, s.by_active, s.key,",
        score(
            phrases,
            _weights(work, which.namespace, query, phrases, mode=mode, restricted=restricted),
        ),
        "AS score FROM hits AS h JOIN @catalog_sessions AS s ON s.session = h.session",
        Statement("WHERE s.namespace = %s AND", (which.namespace,)),
        which.where,
        Statement(
            "ORDER BY score DESC, s.by_active, s.key LIMIT %s::bigint OFFSET %s::bigint)",
            (clamped(limit), clamped(max(0, offset))),
        ),
        "SELECT r.listed FROM f",
        _READ,
        "ORDER BY f.score DESC, f.by_active, f.key",
    )
    return [listed_of(packed) for (packed,) in ask(work, found)]


def _found(namespace: str, words: str, *, restricted: bool) -> Statement:
    """What comes behind FROM for the titles `p` that a `tsquery` finds in a namespace."""
    match = all_of([words, lexeme(f"{MARK}n{namespace}")])
    if restricted:
        text = "@catalog_found_titles(%s, %s::tsquery) AS p WHERE"
        return Statement(text, (namespace, match))
    return Statement(f"@catalog_titles AS p WHERE {TITLE_LEXEMES} @@ %s::tsquery AND", (match,))


def _weights(
    work: Work,
    namespace: str,
    query: Query,
    phrases: Sequence[Phrase],
    *,
    mode: Mode,
    restricted: bool,
) -> list[float]:
    """By phrase how rare it is among the sessions of a namespace, as for passages."""
    if len(query.terms) == 1 and mode == "all":
        return [1.0] * len(phrases)
    plain = {phrase.tokens: Phrase(phrase.tokens) for phrase in phrases}
    counted = [
        sql(
            "(SELECT count(*) FROM",
            _found(namespace, of_phrase(each), restricted=restricted),
            read_for(each),
            ")",
        )
        for each in plain.values()
    ]
    total = Statement(
        "SELECT (SELECT count(*) FROM @catalog_sessions WHERE namespace = %s)", (namespace,)
    )
    ((sessions, *counts),) = ask(work, total, *(part for each in counted for part in (",", each)))
    found = dict(zip(plain, counts, strict=True))
    return [weight_of(phrase, found[phrase.tokens], sessions) for phrase in phrases]


_CHILDREN = """
    SELECT r.listed FROM (
        SELECT s.namespace, s.session, s.by_created, s.key FROM @catalog_sessions AS s
        WHERE s.namespace = %s AND s.parent = ANY(%s::bytea[]) AND s.parent <> s.key
        UNION
        SELECT s.namespace, s.session, s.by_created, s.key
        FROM @catalog_sessions AS p JOIN @catalog_sessions AS s
        ON s.namespace = p.namespace AND s.source_format = p.source_format
        AND s.source_parent = p.source_id AND s.session <> p.session
        WHERE p.namespace = %s AND p.key = ANY(%s::bytea[])
    ) AS f JOIN @catalog_readings AS r ON r.namespace = f.namespace AND r.session = f.session
    ORDER BY f.by_created = %s, -f.by_created, f.key
"""


def children(work: Work, namespace: str, parents: Collection[str]) -> list[Listed]:
    """See `Catalog.children`."""
    own, found = within(namespace), keys(parents)
    rows = work.rows(_CHILDREN, own, found, own, found, BIGGEST)
    return [listed_of(packed) for (packed,) in rows]


# --- sums -----------------------------------------------------------------------------------------

_SUMMED = ("events", "by_size", "tokens", "passages", "skipped", "partial::int")


def sums(work: Work, namespace: str, filters: Filters, size: int) -> Sums:
    """See `Catalog.sums`; `size` is what the index takes."""
    which = chosen(work, namespace, filters)
    source = source_of(which, few(work, which))
    by_status: dict[str, int] = {}
    by_program: dict[str, int] = {}
    totals = [0] * (1 + len(_SUMMED))
    rows = ask(
        work,
        "SELECT s.status, s.program, count(*),",
        ", ".join(f"sum(s.{column})" for column in _SUMMED),
        "FROM",
        source,
        "GROUP BY s.status, s.program",
    )
    for status, program, *numbers in rows:
        _add(by_status, shown(status), numbers[0])
        _add(by_program, shown(program), numbers[0])
        totals = [total + int(number) for total, number in zip(totals, numbers, strict=True)]
    sessions, events, negative_size, tokens, passages, skipped, partial = totals
    return Sums(
        sessions,
        events,
        -negative_size,
        tokens,
        _costs(ask(work, "SELECT s.cost FROM", source, "AND s.cost IS NOT NULL")),
        by_status,
        by_program,
        _agents(work, source),
        passages,
        skipped,
        _skipped_in(work, source),
        partial,
        size,
    )


_COVERED = """
    SELECT
        (SELECT count(*) FROM @catalog_sessions WHERE namespace = %s),
        (SELECT count(*) FROM (
            SELECT session FROM @catalog_sessions WHERE namespace = %s AND partial
            UNION
            SELECT s.session FROM @catalog_sessions AS s JOIN @catalog_readings AS r
            ON r.namespace = s.namespace AND r.session = s.session
            WHERE s.namespace = %s AND s.troubled AND r.problem IS NOT NULL
        ) AS unread),
        (SELECT coalesce(sum(skipped), 0) FROM @catalog_sessions
            WHERE namespace = %s AND troubled)
"""


def covered(work: Work, namespace: str) -> Covered:
    """See `Catalog.covered`."""
    own = within(namespace)
    ((sessions, unread, skipped),) = work.rows(_COVERED, own, own, own, own)
    skipped_in = []
    if skipped or unread:
        which = Chosen(own, Statement("s.troubled"), ())
        skipped_in = _skipped_in(work, source_of(which, None))
    return Covered(sessions, unread, int(skipped), skipped_in)


def _add(counts: dict[str, int], name: str, count: int) -> None:
    counts[name] = counts.get(name, 0) + count


def _costs(rows: list[tuple[Any, ...]]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for (packed,) in rows:
        found = unpack(packed)
        for currency, cost in found.items() if isinstance(found, dict) else ():
            if isinstance(cost, float) and math.isfinite(cost):
                costs[currency] = costs.get(currency, 0.0) + cost
    return costs


def _agents(work: Work, source: Statement) -> dict[str, int]:
    rows = ask(
        work,
        "SELECT (array_agg(a.name))[1], count(*) FROM (SELECT s.namespace, s.session FROM",
        source,
        ") AS f JOIN @catalog_agents AS a ON a.namespace = f.namespace AND a.session = f.session",
        "GROUP BY a.agent",
    )
    return {text(name): count for name, count in rows}


def _skipped_in(work: Work, source: Statement) -> list[tuple[str, str]]:
    rows = ask(
        work,
        "SELECT f.id, coalesce(r.skipped_why, r.problem, ''::bytea) FROM (",
        "SELECT s.namespace, s.session, s.key, s.id FROM",
        source,
        f"AND s.troubled ORDER BY s.key LIMIT {_SKIPPED_MAX}",
        ") AS f",
        _READ,
        "ORDER BY f.key",
    )
    return [(text(id), text(why)) for id, why in rows]
