"""Listings: pages in an order, sessions by their words, children, sums."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Literal

import apsw

from perdure.catalog.bm25 import weight_of
from perdure.catalog.contract import SORTS, Covered, Filters, Listed, Sums
from perdure.catalog.query import Phrase, Query
from perdure.catalog.rows import SORT_COLUMNS, listed_of, sort_key
from perdure.catalog.sqlite.filters import KNOWN, Chosen, chosen, few, namespace_of
from perdure.catalog.sqlite.ranking import RANK, namespace_token
from perdure.catalog.sqlite.searching import PHRASES_MAX
from perdure.databases.cells import (
    Kinds,
    ask,
    cell,
    cells,
    clamped,
    numbers,
    sql,
    text,
    unpack,
)
from perdure.errors import InvalidValue

__all__ = ["children", "covered", "listed", "matching", "sums"]

_SKIPPED_MAX = 20


def listed(
    db: apsw.Connection,
    namespace: str,
    filters: Filters,
    *,
    sort: str,
    limit: int,
    offset: int,
    after: tuple[Any, str] | None,
) -> list[Listed]:
    """See `Catalog.listed`."""
    number = namespace_of(db, namespace)
    if number is None or limit <= 0:
        return []
    if sort not in SORT_COLUMNS:
        raise InvalidValue("sort", f"{sort!r} is no order", hint=f"one of {', '.join(SORTS)}")
    which = chosen(number, filters)
    column = SORT_COLUMNS[sort]
    bound = {**which.bound, "limit": clamped(limit), "offset": clamped(max(0, offset))}
    behind = ""
    if after is not None:
        bound |= {"after": sort_key(sort, after[0]), "after_id": cell(after[1])}
        behind = f"AND (s.{column}, s.id) > (:after, :after_id)"
    known = few(db, which)
    if known is None:
        source = f"sessions AS s INDEXED BY {column} WHERE s.namespace = :namespace"
    else:
        bound["known"] = numbers(known)
        source = sql("sessions AS s WHERE", KNOWN)
    order = f"ORDER BY s.{column}, s.id LIMIT :limit OFFSET :offset"
    query = sql("SELECT s.number FROM", source, behind, "AND", which.where, order)
    return _told(db, [number for (number,) in ask(db, query, bound, [int])])


def _told(db: apsw.Connection, order: list[int]) -> list[Listed]:
    """Sessions by their numbers, in this order."""
    query = (
        "SELECT l.listed FROM json_each(?) AS j LEFT JOIN listings AS l ON l.session = j.value"
        " ORDER BY j.key"
    )
    return [listed_of(packed) for (packed,) in ask(db, query, (numbers(order),))]


def matching(
    db: apsw.Connection,
    namespace: str,
    filters: Filters,
    query: Query,
    *,
    mode: Literal["all", "any"],
    limit: int,
    offset: int,
) -> list[Listed]:
    """See `Catalog.matching`."""
    number = namespace_of(db, namespace)
    if number is None or query.empty or limit <= 0:
        return []
    which = chosen(number, filters)
    bound = {**which.bound, "limit": clamped(limit), "offset": clamped(max(0, offset))}
    within = _within(db, number)
    bound["match"] = f"({query.match(mode)}){within}"
    weights = _weights(db, number, within, query, mode)
    places = ", ".join(f":w{index}" for index in range(len(weights)))
    bound |= {f"w{index}": weight for index, weight in enumerate(weights)}
    asked = sql(
        "SELECT s.number FROM titles CROSS JOIN sessions AS s ON s.number = titles.rowid",
        "WHERE titles MATCH :match AND s.namespace = :namespace AND",
        which.where,
        f"ORDER BY {RANK}(titles, {places}) DESC, s.by_active, s.id LIMIT :limit OFFSET :offset",
    )
    return _told(db, [number for (number,) in ask(db, asked, bound, [int])])


def _within(db: apsw.Connection, namespace: int) -> str:
    """What to add to an expression, so that it finds a namespace; "" if there is no other one."""
    # Each by itself is a look at one end of the index.
    ends = "SELECT (SELECT min(namespace) FROM sessions), (SELECT max(namespace) FROM sessions)"
    ((first, last),) = ask(db, ends)
    return "" if first == last == namespace else f' AND "{namespace_token(namespace)}"'


def _weights(
    db: apsw.Connection, namespace: int, within: str, query: Query, mode: Literal["all", "any"]
) -> list[float]:
    """By phrase how rare it is among the sessions of a namespace, as for passages."""
    phrases = query.phrases(mode)[:PHRASES_MAX]
    if len(query.terms) == 1 and mode == "all":
        return [1.0] * len(phrases)
    counted = "SELECT count(*) FROM sessions INDEXED BY by_id WHERE namespace = ?"
    ((total,),) = ask(db, counted, (namespace,), [int])
    found: dict[tuple[str, ...], int] = {}
    for tokens in dict.fromkeys(phrase.tokens for phrase in phrases):
        match = Phrase(tokens).expression() + within
        counted = "SELECT count(*) FROM titles WHERE titles MATCH ?"
        ((found[tokens],),) = ask(db, counted, (match,), [int])
    return [weight_of(phrase, found[phrase.tokens], total) for phrase in phrases]


_CHILDREN = """
    SELECT l.listed FROM (
        SELECT s.number, s.by_created, s.id FROM sessions AS s INDEXED BY by_parent
        WHERE s.namespace = :namespace
        AND s.parent IN (SELECT unhex(value) FROM json_each(:parents)) AND s.parent <> s.id
        UNION
        SELECT s.number, s.by_created, s.id
        FROM sessions AS p INDEXED BY by_id CROSS JOIN sessions AS s INDEXED BY by_source_parent
        WHERE p.namespace = :namespace
        AND p.id IN (SELECT unhex(value) FROM json_each(:parents))
        AND s.namespace = :namespace AND s.source_format = p.source_format
        AND s.source_parent = p.source_id AND s.number <> p.number
    ) AS f CROSS JOIN listings AS l ON l.session = f.number
    ORDER BY f.by_created = 0x7fffffffffffffff, -f.by_created, f.id
"""


def children(db: apsw.Connection, namespace: str, parents: Collection[str]) -> list[Listed]:
    """See `Catalog.children`."""
    number = namespace_of(db, namespace)
    if number is None:
        return []
    rows = ask(db, _CHILDREN, {"namespace": number, "parents": cells(parents)})
    return [listed_of(packed) for (packed,) in rows]


# --- sums -----------------------------------------------------------------------------------------

# In two halves, neither of which can overflow; SQLite refuses a sum that does.
_TOTAL = "sum(s.{0} >> 32), sum(s.{0} & 0xffffffff)"


def sums(db: apsw.Connection, namespace: str, filters: Filters, size: int) -> Sums:
    """See `Catalog.sums`; `size` is what the index takes."""
    number = namespace_of(db, namespace)
    if number is None:
        return Sums(0, 0, 0, 0, {}, {}, {}, {}, 0, 0, [], 0, size)
    which = chosen(number, filters)
    known = few(db, which)
    ask_of = _asker(db, which, known)
    by_status: dict[str, int] = {}
    by_program: dict[str, int] = {}
    totals = [0] * 7
    columns = ("events", "by_size", "tokens", "passages", "skipped", "partial")
    rows = ask_of(
        f"s.status, s.program, count(*), {', '.join(map(_TOTAL.format, columns))}",
        "GROUP BY s.status, s.program",
        (bytes, bytes, int, *[int] * (2 * len(columns))),
    )
    for status, program, count, *halves in rows:
        _add(by_status, text(status), count)
        _add(by_program, text(program), count)
        totals[0] += count
        for index in range(len(columns)):
            high, low = halves[2 * index : 2 * index + 2]
            totals[index + 1] += (high << 32) + low
    sessions, events, negative_size, tokens, passages, skipped, partial = totals
    return Sums(
        sessions,
        events,
        -negative_size,
        tokens,
        _costs(ask_of("s.cost", "AND s.cost IS NOT NULL", [bytes])),
        by_status,
        by_program,
        _agents(db, which, known),
        passages,
        skipped,
        _skipped_in(db, which, known),
        partial,
        size,
    )


_UNREAD = """
    SELECT count(*) FROM (
        SELECT number FROM sessions INDEXED BY by_partial WHERE namespace = :namespace AND partial
        UNION
        SELECT s.number FROM sessions AS s INDEXED BY by_trouble
        CROSS JOIN readings AS r ON r.session = s.number
        WHERE s.namespace = :namespace AND s.troubled AND r.problem IS NOT NULL
    )
"""


def covered(db: apsw.Connection, namespace: str) -> Covered:
    """See `Catalog.covered`."""
    number = namespace_of(db, namespace)
    if number is None:
        return Covered(0, 0, 0, [])
    bound = {"namespace": number}
    query = "SELECT count(*) FROM sessions INDEXED BY by_id WHERE namespace = :namespace"
    ((sessions,),) = ask(db, query, bound, (int,))
    ((unread,),) = ask(db, _UNREAD, bound, (int,))
    query = (
        "SELECT ifnull(sum(skipped), 0) FROM sessions INDEXED BY by_trouble"
        " WHERE namespace = :namespace AND troubled"
    )
    ((skipped,),) = ask(db, query, bound, (int,))
    which = chosen(number, Filters(problem=True))
    skipped_in = _skipped_in(db, which, few(db, which)) if skipped or unread else []
    return Covered(sessions, unread, skipped, skipped_in)


def _source(which: Chosen, known: list[int] | None) -> tuple[str, dict[str, Any]]:
    """What comes behind FROM for all sessions of the condition."""
    if known is None:
        return sql("sessions AS s WHERE s.namespace = :namespace AND", which.where), which.bound
    bound = {**which.bound, "known": numbers(known)}
    return sql("sessions AS s WHERE", KNOWN, "AND", which.where), bound


def _asker(
    db: apsw.Connection, which: Chosen, known: list[int] | None
) -> Callable[[str, str, Sequence[Kinds]], list[tuple[Any, ...]]]:
    source, bound = _source(which, known)

    def ask_of(columns: str, rest: str, kinds: Sequence[Kinds]) -> list[tuple[Any, ...]]:
        return ask(db, sql("SELECT", columns, "FROM", source, rest), bound, kinds)

    return ask_of


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


def _agents(db: apsw.Connection, which: Chosen, known: list[int] | None) -> dict[str, int]:
    source, bound = _source(which, known)
    query = sql(
        "SELECT n.name, f.count FROM (",
        "SELECT a.agent AS agent, count(*) AS count FROM ( SELECT s.number FROM",
        source,
        ") AS s CROSS JOIN agents AS a ON a.session = s.number GROUP BY a.agent",
        ") AS f CROSS JOIN names AS n ON n.number = f.agent",
    )
    return {text(name): count for name, count in ask(db, query, bound, (bytes, int))}


def _skipped_in(
    db: apsw.Connection, which: Chosen, known: list[int] | None
) -> list[tuple[str, str]]:
    source, bound = _source(which, known)
    query = sql(
        "SELECT f.id, ifnull(ifnull(r.skipped_why, r.problem), x'') FROM ( SELECT s.number, s.id",
        "FROM",
        source,
        f"AND s.troubled ORDER BY s.id LIMIT {_SKIPPED_MAX}",
        ") AS f CROSS JOIN readings AS r ON r.session = f.number ORDER BY f.id",
    )
    return [(text(id), text(why)) for id, why in ask(db, query, bound)]
