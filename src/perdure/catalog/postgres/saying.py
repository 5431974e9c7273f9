"""Passages by what they say, as digests, and what the passages of a scope say."""

from collections.abc import Collection

from perdure.catalog.contract import SAYING_MAX, Candidate, Scope
from perdure.catalog.postgres.scopes import scoped
from perdure.catalog.postgres.searching import candidate_of
from perdure.catalog.postgres.statements import Statement, ask
from perdure.databases.postgres.work import Work

__all__ = ["digests", "saying", "unsaid"]


def digests(work: Work, namespace: str, scope: Scope) -> list[int]:
    """See `Catalog.digests`."""
    within = scoped(work, namespace, scope)
    if within is None:
        return []
    rows = ask(work, "SELECT DISTINCT p.digest FROM @catalog_passages AS p WHERE", within.whole)
    return [digest for (digest,) in rows]


def saying(work: Work, namespace: str, scope: Scope, digests: Collection[int]) -> list[Candidate]:
    """See `Catalog.saying`."""
    within = scoped(work, namespace, scope)
    if within is None:
        return []
    rows = ask(
        work,
        "SELECT s.id, f.seq, f.kind, f.agent, f.time, f.digest, f.call FROM",
        Statement("unnest(%s::bigint[]) AS d (digest) CROSS JOIN LATERAL (", (list({*digests}),)),
        "SELECT p.* FROM @catalog_passages AS p WHERE p.digest = d.digest AND",
        within.whole,
        f"ORDER BY p.id DESC LIMIT {SAYING_MAX}) AS f",
        "JOIN @catalog_sessions AS s ON s.namespace = f.namespace AND s.session = f.session",
    )
    found = [candidate_of(row, 0.0) for row in rows]
    return sorted(found, key=lambda each: (each.session, each.seq, each.digest))


def unsaid(work: Work, digests: Collection[int]) -> list[int]:
    """See `Catalog.unsaid`."""
    rows = ask(
        work,
        Statement("SELECT d.digest FROM unnest(%s::bigint[]) AS d (digest)", (list({*digests}),)),
        "WHERE NOT EXISTS (SELECT 1 FROM @catalog_passages AS p WHERE p.digest = d.digest)",
    )
    return [digest for (digest,) in rows]
