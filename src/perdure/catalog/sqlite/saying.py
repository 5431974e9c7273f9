"""Passages by what they say, as digests, and what the passages of a scope say."""

from collections.abc import Collection
from typing import Any, NamedTuple

import apsw

from perdure.catalog.contract import SAYING_MAX, Candidate, Filters, Scope
from perdure.catalog.sqlite.filters import namespace_of
from perdure.catalog.sqlite.searching import COLUMNS, KINDS, NAMED, candidate_of, sessions_of
from perdure.databases.cells import BIGGEST, ask, cells, clamped, numbers, sql

__all__ = ["digests", "saying", "unsaid"]


class _Conditions(NamedTuple):
    """A scope in SQL.

    Attributes:
        where: a condition on `passages AS p`, but for the sessions.
        among: the condition for the sessions, with an AND before it; "" for all that there are.
        named: whether that names the sessions that it lets through.
        bound: what the parameters stand for.

    """

    where: str
    among: str
    named: bool
    bound: dict[str, Any]


def digests(db: apsw.Connection, namespace: str, scope: Scope) -> list[int]:
    """See `Catalog.digests`."""
    within = _conditions(db, namespace, scope)
    if within is None:
        return []
    source, among = "FROM passages AS p", within.among
    if within.named:
        source = "FROM json_each(:sessions) AS j CROSS JOIN passages AS p ON p.session = j.value"
        among = ""
    query = sql("SELECT DISTINCT p.digest", source, "WHERE", within.where, among)
    return [digest for (digest,) in ask(db, query, within.bound, [int])]


def saying(
    db: apsw.Connection, namespace: str, scope: Scope, digests: Collection[int]
) -> list[Candidate]:
    """See `Catalog.saying`."""
    within = _conditions(db, namespace, scope)
    if within is None:
        return []
    newest = sql(
        "SELECT p.id FROM passages AS p INDEXED BY by_digest WHERE p.digest = j.value AND",
        within.where,
        within.among,
        "ORDER BY p.id DESC LIMIT :most",
    )
    query = sql(
        "SELECT",
        COLUMNS,
        "FROM json_each(:digests) AS j CROSS JOIN passages AS p ON p.id IN (",
        newest,
        ")",
        NAMED,
    )
    wanted = numbers(dict.fromkeys(digests))
    rows = ask(db, query, {**within.bound, "digests": wanted, "most": SAYING_MAX}, KINDS)
    found = [candidate_of(row, 0.0) for row in rows]
    return sorted(found, key=lambda each: (each.session, each.seq, each.digest))


def unsaid(db: apsw.Connection, digests: Collection[int]) -> list[int]:
    """See `Catalog.unsaid`."""
    query = (
        "SELECT j.value FROM json_each(?) AS j"
        " WHERE NOT EXISTS (SELECT 1 FROM passages AS p WHERE p.digest = j.value)"
    )
    return [digest for (digest,) in ask(db, query, (numbers(digests),), [int])]


def _conditions(db: apsw.Connection, namespace: str, scope: Scope) -> _Conditions | None:
    """The scope; None if nothing is in it."""
    number = namespace_of(db, namespace)
    if number is None:
        return None
    parts: list[str] = ["1"]
    bound: dict[str, Any] = {}
    among, named = "", False
    filters = scope.sessions._replace(since=None, until=None)
    others = "SELECT EXISTS (SELECT 1 FROM namespaces WHERE number <> ? AND passages > 0)"
    ((shared,),) = ask(db, others, (number,))
    if filters._replace(without=()) != Filters() or shared:
        found = sessions_of(db, number, filters)
        if not found:
            return None
        among, named = "AND p.session IN (SELECT value FROM json_each(:sessions))", True
        bound["sessions"] = numbers(found)
    elif filters.without:
        found = sessions_of(db, number, Filters(ids=filters.without))
        among = "AND p.session NOT IN (SELECT value FROM json_each(:sessions))"
        bound["sessions"] = numbers(found)
    names = "(SELECT n.number FROM names AS n WHERE n.name IN"
    if scope.kinds is not None:
        parts.append(sql("p.kind IN", names, "(SELECT unhex(value) FROM json_each(:kinds)))"))
        bound["kinds"] = cells(scope.kinds)
    if scope.agents is not None:
        these = sql("p.agent IN", names, "(SELECT unhex(value) FROM json_each(:agents)))")
        parts.append(sql("(", these, "OR p.agent IS NULL)") if None in scope.agents else these)
        bound["agents"] = cells(each for each in scope.agents if each is not None)
    if scope.since is not None:
        if scope.since > BIGGEST:
            return None
        parts.append("p.time >= :since")
        bound["since"] = clamped(scope.since)
    # Before a time that no column holds is everything.
    if scope.until is not None and scope.until <= BIGGEST:
        parts.append("p.time < :until")
        bound["until"] = clamped(scope.until)
    return _Conditions(" AND ".join(parts), among, named, bound)
