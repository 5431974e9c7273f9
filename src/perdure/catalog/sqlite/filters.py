"""Which sessions: filters as conditions in SQL, answered from whichever index has few of them."""

from typing import Any, NamedTuple

import apsw

from perdure.catalog.contract import Filters
from perdure.catalog.members import MANY_MEMBERS, at_pointer, member_digest, same
from perdure.databases.cells import ask, cell, cells, clamped, numbers, pack, sql, unpack

__all__ = ["KNOWN", "Chosen", "chosen", "few", "namespace_of", "register"]

KNOWN = "s.number IN (SELECT value FROM json_each(:known)) AND +s.namespace = :namespace"
"""The condition for sessions whose numbers are known. The plus: no index of the namespace helps."""

_FEW = 300
"""So many sessions are sorted rather than looked for in the order of the listing."""

_TOP = """NOT (
    s.relation = CAST('subagent' AS BLOB) AND (
        EXISTS (
            SELECT 1 FROM sessions AS p
            WHERE p.namespace = s.namespace AND p.id = s.parent AND p.number <> s.number
        )
        OR EXISTS (
            SELECT 1 FROM sessions AS p
            WHERE p.namespace = s.namespace AND p.source_format = s.source_format
            AND p.source_id = s.source_parent AND p.source_id IS NOT NULL
            AND p.number <> s.number
        )
    )
)"""


class Chosen(NamedTuple):
    """Filters as a condition on rows of `sessions AS s`.

    Attributes:
        where: the condition, without the namespace.
        bound: what its parameters stand for, and `:namespace`.
        probes: statements that give the numbers of all sessions that one part of it allows.

    """

    where: str
    bound: dict[str, Any]
    probes: tuple[str, ...]


def namespace_of(db: apsw.Connection, namespace: str) -> int | None:
    """The number of a namespace, or None if nothing was ever stored in it."""
    query = "SELECT number FROM namespaces WHERE name = ?"
    found = ask(db, query, (cell(namespace),), [int])
    return found[0][0] if found else None


def chosen(namespace: int, filters: Filters, *, times: bool = True) -> Chosen:
    """Filters in SQL; without `times`, all but `since` and `until`."""
    made = _Conditions(namespace)
    made.among("id", filters.ids, "by_id")
    if filters.without:
        made.bound["without"] = cells(filters.without)
        made.parts.append("s.id NOT IN (SELECT unhex(value) FROM json_each(:without))")
    made.agents(filters.agents)
    made.below(filters.cwd)
    made.among("parent", filters.parents, "by_parent")
    made.among("preset", filters.presets, "by_preset")
    made.among("program", filters.programs, "by_program")
    made.among("status", filters.statuses, "by_status")
    made.among("relation", filters.relations, "by_relation")
    made.flag("troubled", filters.problem, "by_trouble")
    made.flag("archived", filters.archived, "by_archived")
    if times:
        made.times(filters.since, filters.until)
    made.projection(filters.projection)
    if filters.top:
        made.parts.append(_TOP)
    return Chosen(" AND ".join(made.parts) or "1", made.bound, tuple(made.probes))


def few(db: apsw.Connection, which: Chosen, most: int = _FEW) -> list[int] | None:
    """The numbers of all sessions that some part of the condition allows; None if they are many."""
    for probe in which.probes:
        found = ask(db, sql(probe, "LIMIT :few"), {**which.bound, "few": most + 1}, [int])
        if len(found) <= most:
            return [number for (number,) in found]
    return None


class _Conditions:
    """Parts of a condition, all of which must hold."""

    def __init__(self, namespace: int) -> None:
        self.parts: list[str] = []
        self.bound: dict[str, Any] = {"namespace": namespace}
        self.probes: list[str] = []

    def _add(self, condition: str, index: str) -> None:
        self.parts.append(condition)
        source = sql("SELECT s.number FROM sessions AS s INDEXED BY", index)
        self.probes.append(sql(source, "WHERE s.namespace = :namespace AND", condition))

    def among(self, column: str, texts: Any, index: str) -> None:
        if texts is not None:
            self.bound[column] = cells(texts)
            these = "IN (SELECT unhex(value) FROM json_each("
            condition = sql(f"s.{column}", these, f":{column}", "))")
            self._add(condition, index)

    def agents(self, agents: Any) -> None:
        if agents is None:
            return
        self.bound["agents"] = cells(agents)
        which = (
            "a.agent IN (SELECT n.number FROM names AS n"
            " WHERE n.name IN (SELECT unhex(value) FROM json_each(:agents)))"
        )
        self.parts.append(
            sql("EXISTS (SELECT 1 FROM agents AS a WHERE a.session = s.number AND", which, ")")
        )
        self.probes.append(
            sql(
                "SELECT DISTINCT a.session FROM agents AS a INDEXED BY by_agent",
                "WHERE a.namespace = :namespace AND",
                which,
            )
        )

    def below(self, folder: str | None) -> None:
        """At work in a folder or below it; no sign in its name means anything."""
        if folder is None:
            return
        whole = folder.rstrip("/")
        self.bound["cwd"] = cell(whole or folder)
        self.bound["cwd_from"], self.bound["cwd_to"] = cell(f"{whole}/"), cell(f"{whole}0")
        condition = "(s.cwd = :cwd OR (s.cwd >= :cwd_from AND s.cwd < :cwd_to))"
        if not folder:
            condition = "s.cwd = :cwd"
            del self.bound["cwd_from"], self.bound["cwd_to"]
        self.parts.append(condition)
        # One range that holds both: an OR would not go by the index.
        self.probes.append(
            sql(
                "SELECT s.number FROM sessions AS s INDEXED BY by_cwd",
                "WHERE s.namespace = :namespace AND s.cwd >= :cwd",
                "AND s.cwd < :cwd_to AND" if folder else "AND",
                condition,
            )
        )

    def flag(self, column: str, wanted: bool | None, index: str) -> None:
        if wanted:
            self._add(f"s.{column}", index)
        elif wanted is not None:
            self.parts.append(f"NOT s.{column}")

    def times(self, since: int | None, until: int | None) -> None:
        """By the column that falls where times rise; those without a time have the biggest."""
        if since is None and until is None:
            return
        condition = "s.by_active <= :since AND s.by_active > :until"
        self.bound["since"] = clamped(-since) if since is not None else 2**63 - 2
        self.bound["until"] = clamped(-until) if until is not None else -(2**63)
        self.bound["since"] = min(self.bound["since"], 2**63 - 2)
        self._add(condition, "by_active")

    def projection(self, members: Any) -> None:
        for number, (pointer, value) in enumerate(members):
            name = f"member_{number}"
            namespace = self.bound["namespace"]
            self.bound[name] = numbers({MANY_MEMBERS, member_digest(namespace, pointer, value)})
            self.bound[f"{name}_is"] = pack([pointer, value])
            digests = sql("m.digest IN (SELECT value FROM json_each(", f":{name}", "))")
            holds = sql(
                "perdure_holds((SELECT l.listed FROM listings AS l WHERE l.session = s.number),",
                f":{name}_is",
                ")",
            )
            self.parts.append(
                sql(
                    "EXISTS (SELECT 1 FROM members AS m WHERE m.session = s.number AND",
                    digests,
                    ") AND",
                    holds,
                )
            )
            self.probes.append(
                sql(
                    "SELECT DISTINCT s.number FROM members AS m CROSS JOIN sessions AS s",
                    "ON s.number = m.session AND s.namespace = :namespace WHERE",
                    digests,
                )
            )


def register(connection: apsw.Connection) -> None:
    """Let statements ask what a projection holds."""
    connection.create_scalar_function("perdure_holds", _holds, 2, deterministic=True)


def _holds(*given: Any) -> bool:
    """Whether what is listed of a session holds a member."""
    listed, member = map(unpack, given)
    pointer, value = member
    found = at_pointer(listed.get("projection") if isinstance(listed, dict) else None, pointer)
    return bool(found) and same(found[0], value)
