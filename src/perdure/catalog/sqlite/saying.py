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
        sessions: the numbers of the sessions as JSON; None: all that there are.
        where: a condition on `passages AS p`.
        bound: what its parameters stand for.

    """

    sessions: str | None
    where: str
    bound: dict[str, Any]


def digests(db: apsw.Connection, namespace: str, scope: Scope) -> list[int]:
    """See `Catalog.digests`."""
    within = _conditions(db, namespace, scope)
    if within is None:
        return []
    source = "FROM passages AS p"
    if within.sessions is not None:
        source = "FROM json_each(:sessions) AS j CROSS JOIN passages AS p ON p.session = j.value"
    query = sql("SELECT DISTINCT p.digest", source, "WHERE", within.where)
    return [digest for (digest,) in ask(db, query, within.bound, [int])]


def saying(
    db: apsw.Connection, namespace: str, scope: Scope, digests: Collection[int]
) -> list[Candidate]:
    """See `Catalog.saying`."""
    within = _conditions(db, namespace, scope)
    if within is None:
        return []
    where = within.where
    if within.sessions is not None:
        where = sql(where, "AND p.session IN (SELECT value FROM json_each(:sessions))")
    query = sql(
        "SELECT",
        COLUMNS,
        "FROM passages AS p INDEXED BY by_digest",
        NAMED,
        "WHERE p.digest = :digest AND",
        where,
        "ORDER BY p.id DESC LIMIT :most",
    )
    found = []
    for digest in dict.fromkeys(digests):
        bound = {**within.bound, "digest": digest, "most": SAYING_MAX}
        found += [candidate_of(row, 0.0) for row in ask(db, query, bound, KINDS)]
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
    sessions = None
    filters = scope.sessions._replace(since=None, until=None)
    others = "SELECT EXISTS (SELECT 1 FROM namespaces WHERE number <> ? AND passages > 0)"
    ((shared,),) = ask(db, others, (number,))
    if filters != Filters() or shared:
        found = sessions_of(db, number, filters)
        if not found:
            return None
        sessions = numbers(found)
        bound["sessions"] = sessions
    named = "(SELECT n.number FROM names AS n WHERE n.name IN"
    if scope.kinds is not None:
        parts.append(sql("p.kind IN", named, "(SELECT unhex(value) FROM json_each(:kinds)))"))
        bound["kinds"] = cells(scope.kinds)
    if scope.agents is not None:
        these = sql("p.agent IN", named, "(SELECT unhex(value) FROM json_each(:agents)))")
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
    return _Conditions(sessions, " AND ".join(parts), bound)
