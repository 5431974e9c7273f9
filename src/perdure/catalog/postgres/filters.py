"""Which sessions: filters as conditions in SQL, answered from whichever index has few of them."""

import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from perdure.catalog.contract import Filters
from perdure.catalog.members import MANY_MEMBERS, at_pointer, member_digest, same
from perdure.catalog.postgres.rows import NAME_BYTES_MAX
from perdure.catalog.postgres.statements import Statement, ask, sql
from perdure.catalog.rows import listed_of
from perdure.databases.cells import BIGGEST, cell, clamped
from perdure.databases.postgres.keys import keys, within
from perdure.databases.postgres.work import Work

__all__ = ["CWD_BYTES", "Chosen", "chosen", "few", "source_of"]

CWD_BYTES = 512
"""Folders are looked for by so many of their first bytes, and then compared."""

_FEW = 300
"""So many sessions are sorted rather than looked for in the order of the listing."""

_FROM = "SELECT s.session FROM @catalog_sessions AS s WHERE s.namespace = %s AND"

_TOP = f"""NOT (
    s.relation = '\\x{b"subagent".hex()}'::bytea AND (
        EXISTS (
            SELECT 1 FROM @catalog_sessions AS p
            WHERE p.namespace = s.namespace AND p.key = s.parent AND p.session <> s.session
        )
        OR EXISTS (
            SELECT 1 FROM @catalog_sessions AS p
            WHERE p.namespace = s.namespace AND p.source_format = s.source_format
            AND p.source_id = s.source_parent AND p.source_id IS NOT NULL
            AND p.session <> s.session
        )
    )
)"""  # noqa: S608 - ours


class Chosen(NamedTuple):
    """Filters as a condition on rows of `@catalog_sessions AS s`.

    Attributes:
        namespace: as it stands in keys.
        where: the condition, without the namespace.
        probes: statements that give all sessions that one part of it allows.

    """

    namespace: str
    where: Statement
    probes: tuple[Statement, ...]


def chosen(work: Work, namespace: str, filters: Filters, *, times: bool = True) -> Chosen:
    """Filters in SQL; without `times`, all but `since` and `until`."""
    made = _Conditions(within(namespace))
    made.among("key", filters.ids)
    if filters.without:
        made.parts.append(Statement("s.key <> ALL(%s::bytea[])", (keys(filters.without),)))
    made.agents(filters.agents)
    made.below(filters.cwd)
    # The id of a session, so as long as those.
    made.among("parent", filters.parents)
    made.among("preset", filters.presets, NAME_BYTES_MAX)
    made.among("program", filters.programs, NAME_BYTES_MAX)
    made.among("status", filters.statuses, NAME_BYTES_MAX)
    made.among("relation", filters.relations, NAME_BYTES_MAX)
    made.flag("troubled", filters.problem)
    made.flag("archived", filters.archived)
    if times:
        made.times(filters.since, filters.until)
    for pointer, value in filters.projection:
        made.member(work, pointer, value)
    if filters.top:
        made.parts.append(Statement(_TOP))
    return Chosen(made.namespace, _all(made.parts), tuple(made.probes))


def _all(parts: Sequence[Statement]) -> Statement:
    if not parts:
        return Statement("true")
    text = " AND ".join([part.text for part in parts])
    return Statement(text, tuple(value for part in parts for value in part.values))


def few(work: Work, which: Chosen, most: int = _FEW) -> list[int] | None:
    """The numbers of all sessions that some part of the condition allows; None if they are many."""
    for probe in which.probes:
        found = ask(work, probe, f"LIMIT {most + 1}")
        if len(found) <= most:
            return [session for (session,) in found]
    return None


def source_of(which: Chosen, known: list[int] | None) -> Statement:
    """What comes behind FROM for all sessions of the condition; `known` are those of `few`."""
    start = Statement("@catalog_sessions AS s WHERE s.namespace = %s AND", (which.namespace,))
    if known is None:
        return sql(start, which.where)
    return sql(start, Statement("s.session = ANY(%s::bigint[]) AND", (known,)), which.where)


class _Conditions:
    """Parts of a condition, all of which must hold."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.parts: list[Statement] = []
        self.probes: list[Statement] = []

    def _add(self, condition: Statement) -> None:
        self.parts.append(condition)
        self.probes.append(sql(Statement(_FROM, (self.namespace,)), condition))

    def among(self, column: str, texts: Collection[str] | None, most: int = 0) -> None:
        if texts is not None:
            found = keys(texts, most) if most else keys(texts)
            self._add(Statement(f"s.{column} = ANY(%s::bytea[])", (found,)))

    def agents(self, agents: Collection[str] | None) -> None:
        if agents is None:
            return
        found = keys(agents, NAME_BYTES_MAX)
        self.parts.append(
            Statement(
                "EXISTS (SELECT 1 FROM @catalog_agents AS a WHERE a.namespace = s.namespace"
                " AND a.session = s.session AND a.agent = ANY(%s::bytea[]))",
                (found,),
            )
        )
        self.probes.append(
            Statement(
                "SELECT DISTINCT a.session FROM @catalog_agents AS a"
                " WHERE a.namespace = %s AND a.agent = ANY(%s::bytea[])",
                (self.namespace, found),
            )
        )

    def below(self, folder: str | None) -> None:
        """At work in a folder or below it; no sign in its name means anything."""
        if folder is None:
            return
        whole = folder.rstrip("/")
        own = cell(whole or folder)
        start = "substring(s.cwd FROM 1 FOR 512)"
        if not folder:
            self._add(Statement(f"{start} = %s AND s.cwd IS NOT NULL", (own,)))
            return
        first, last = cell(f"{whole}/"), cell(f"{whole}0")
        # One range of the index that holds both.
        self._add(
            Statement(
                f"s.cwd IS NOT NULL AND {start} >= %s AND {start} <= %s"
                " AND (s.cwd = %s OR (s.cwd >= %s AND s.cwd < %s))",
                (own[:CWD_BYTES], last[:CWD_BYTES], own, first, last),
            )
        )

    def flag(self, column: str, wanted: bool | None) -> None:
        if wanted:
            self._add(Statement(f"s.{column}"))
        elif wanted is not None:
            self.parts.append(Statement(f"NOT s.{column}"))

    def times(self, since: int | None, until: int | None) -> None:
        """By the column that falls where times rise; those without a time have the biggest."""
        if since is None and until is None:
            return
        first = BIGGEST - 1 if since is None else min(clamped(-since), BIGGEST - 1)
        last = -BIGGEST - 1 if until is None else clamped(-until)
        self._add(
            Statement("s.by_active <= %s::bigint AND s.by_active > %s::bigint", (first, last))
        )

    def member(self, work: Work, pointer: str, value: Any) -> None:
        """A member of the projection, by its digest; of those with too many, each is looked at."""
        if isinstance(value, float) and math.isnan(value):
            self._add(Statement("false"))
            return
        digest = member_digest(0, pointer, value)
        rows = ask(
            work,
            "SELECT m.session, r.listed FROM @catalog_members AS m JOIN @catalog_readings AS r"
            " ON r.namespace = m.namespace AND r.session = m.session",
            Statement("WHERE m.namespace = %s AND m.digest = %s", (self.namespace, MANY_MEMBERS)),
        )
        many = []
        for session, packed in rows:
            found = at_pointer(listed_of(packed).projection, pointer)
            if found and same(found[0], value):
                many.append(session)
        self.parts.append(
            Statement(
                "(EXISTS (SELECT 1 FROM @catalog_members AS m WHERE m.namespace = s.namespace"
                " AND m.digest = %s::bigint AND m.session = s.session)"
                " OR s.session = ANY(%s::bigint[]))",
                (digest, many),
            )
        )
        self.probes.append(
            Statement(
                "SELECT m.session FROM @catalog_members AS m"
                " WHERE m.namespace = %s AND m.digest = %s::bigint"
                " UNION SELECT unnest(%s::bigint[])",
                (self.namespace, digest, many),
            )
        )
