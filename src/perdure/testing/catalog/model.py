"""A catalog in plain dictionaries: slow, and plain enough to be read as the definition."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Literal

from perdure.catalog.analysis import analyse
from perdure.catalog.contract import (
    Candidate,
    Change,
    Entry,
    Filters,
    KeyedEvents,
    Listed,
    Passage,
    Scope,
    Standing,
)
from perdure.catalog.query import Phrase, Query

__all__ = ["Known", "Model"]

Mode = Literal["all", "any"]
Named = tuple[int, str, int]
"""What names a passage: seq, kind and digest."""


class Known:
    """What is known of one session."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.version = -1
        self.change: Change
        self.passages: dict[Named, tuple[Passage, int]] = {}
        self.keys: dict[tuple[str, str], int] = {}

    @property
    def listed(self) -> Listed:
        """The session as it is listed."""
        return self.change.listed

    def put(self, change: Change, version: int, moment: int) -> None:
        """Take a change over; `moment` rises with each."""
        self.change, self.version = change, version
        start, end = change.start, math.inf if change.end is None else change.end
        new: dict[Named, Passage] = {}
        for each in change.passages:
            new.setdefault((each.seq, each.kind, each.digest), each)
        for name in list(self.passages):
            if start <= name[0] < end and name not in new:
                del self.passages[name]
        for name, each in new.items():
            self.passages.setdefault(name, (each, moment))
        if not start:
            self.keys.clear()
        self.keys.update({(kind, key): seq for kind, key, seq in change.keys})


class Model:
    """All sessions by namespace and id, and notes by namespace and name."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.sessions: dict[tuple[str, str], Known] = {}
        self.notes: dict[tuple[str, str], str] = {}
        self._moment = 0

    def version(self, namespace: str, session: str) -> int | None:
        """The version of a session, or None."""
        known = self.sessions.get((namespace, session))
        return None if known is None else known.version

    def put(self, namespace: str, change: Change, version: int) -> None:
        """Take over a change that was made, with the version that it gave."""
        self._moment += 1
        known = self.sessions.setdefault((namespace, change.listed.id), Known())
        known.put(change, version, self._moment)

    def within(self, namespace: str) -> list[Known]:
        """The sessions of a namespace, by id."""
        return [known for (name, _), known in sorted(self.sessions.items()) if name == namespace]

    # --- answers ----------------------------------------------------------------------------------

    def standing(self, namespace: str, session: str) -> Standing | None:
        """See `Catalog.standing`."""
        known = self.sessions.get((namespace, session))
        if known is None:
            return None
        told = known.change
        return Standing(
            known.version,
            told.revision,
            told.position,
            told.floor,
            told.state,
            told.rules,
            told.partial,
            told.listed.problem,
        )

    def entries(self, namespace: str) -> list[Entry]:
        """See `Catalog.entries`."""
        return [
            Entry(
                known.listed.id,
                known.change.revision,
                known.change.rules,
                known.change.partial,
                known.listed.problem,
                known.listed.status,
            )
            for known in self.within(namespace)
        ]

    def keys(self, namespace: str, session: str) -> KeyedEvents | None:
        """See `Catalog.keys`."""
        known = self.sessions.get((namespace, session))
        if known is None or known.change.partial:
            return None
        return KeyedEvents(known.change.position, known.keys)

    def listed(self, namespace: str, filters: Filters, sort: str) -> list[Listed]:
        """The whole of a listing."""
        found = [known.listed for known in self.chosen(namespace, filters)]

        def order(listed: Listed) -> tuple[bool, Any, str]:
            value = getattr(listed, sort)
            if value is None:
                return True, 0, listed.id
            return False, value.casefold() if sort == "title" else -value, listed.id

        return sorted(found, key=order)

    def matching(self, namespace: str, filters: Filters, query: Query, mode: Mode) -> set[str]:
        """The ids of the sessions that match."""
        found = set()
        for known in self.chosen(namespace, filters):
            one = known.listed
            texts = (one.title, one.preview, one.composition, one.preset, one.config_path, one.cwd)
            tokens = [analyse(text) for text in (*texts, *one.agents) if text]
            columns = [column.split() for each in tokens for column in (each.words, each.parts)]
            if _matches(columns, query, mode):
                found.add(one.id)
        return found

    def children(self, namespace: str, parents: Collection[str]) -> list[Listed]:
        """See `Catalog.children`."""
        above = [known.listed for known in self.within(namespace) if known.listed.id in parents]
        found = [
            known.listed
            for known in self.within(namespace)
            if (known.listed.parent in parents and known.listed.parent != known.listed.id)
            or any(_comes_from(known.listed, parent) for parent in above)
        ]
        return sorted(found, key=lambda one: (one.created is None, one.created or 0, one.id))

    def sums(self, namespace: str, filters: Filters) -> dict[str, Any]:
        """The sums that are numbers, but for `bytes`."""
        chosen = self.chosen(namespace, filters)
        cost: Counter[str] = Counter()
        for known in chosen:
            cost.update(known.listed.cost)
        return {
            "sessions": len(chosen),
            "events": sum(known.listed.events for known in chosen),
            "size": sum(known.listed.size for known in chosen),
            "tokens": sum(known.listed.tokens for known in chosen),
            "cost": dict(cost),
            "by_status": Counter(known.listed.status for known in chosen),
            "by_program": Counter(known.listed.program for known in chosen),
            "by_agent": Counter(agent for known in chosen for agent in set(known.listed.agents)),
            "passages": sum(len(known.passages) for known in chosen),
            "skipped": sum(known.change.skipped for known in chosen),
            "partial": sum(known.change.partial for known in chosen),
        }

    def hits(
        self, namespace: str, scope: Scope, query: Query, mode: Mode
    ) -> list[tuple[Candidate, int]]:
        """All passages that match, in order, each with the moment at which it was put."""
        found = []
        filters = scope.sessions._replace(since=None, until=None)
        for known in self.chosen(namespace, filters):
            for each, moment in known.passages.values():
                columns = [each.words.split(), each.parts.split()]
                if _in_scope(each, scope) and _matches(columns, query, mode):
                    session = known.listed.id
                    seq, kind, digest, agent = each.seq, each.kind, each.digest, each.agent
                    told = Candidate(session, seq, kind, agent, each.time, digest, each.call, 0.0)
                    found.append((told, moment))
        return sorted(found, key=lambda hit: (hit[0].session, hit[0].seq, hit[0].digest))

    # --- filters ----------------------------------------------------------------------------------

    def chosen(self, namespace: str, filters: Filters) -> list[Known]:
        """The sessions that filters let through, by id."""
        every = self.within(namespace)
        listed = [known.listed for known in every]
        return [
            known
            for known in every
            if all(_satisfied(known, filters))
            and not (filters.top and _is_below(known.listed, listed))
        ]


def _satisfied(known: Known, filters: Filters) -> Iterator[bool]:
    one = known.listed
    yield filters.ids is None or one.id in filters.ids
    yield one.id not in filters.without
    yield filters.agents is None or bool(set(one.agents) & set(filters.agents))
    yield filters.programs is None or one.program in filters.programs
    yield filters.statuses is None or one.status in filters.statuses
    yield filters.relations is None or (one.relation or "") in filters.relations
    yield filters.presets is None or one.preset in filters.presets
    yield filters.parents is None or one.parent in filters.parents
    if filters.cwd is not None:
        below = filters.cwd.rstrip("/") + "/"
        yield one.cwd is not None and (
            one.cwd == (filters.cwd.rstrip("/") or filters.cwd)
            or (bool(filters.cwd) and one.cwd.startswith(below))
        )
    active = one.last_active
    yield filters.since is None or (active is not None and active >= filters.since)
    yield filters.until is None or (active is not None and active < filters.until)
    troubled = one.problem is not None or known.change.skipped > 0
    yield filters.problem is None or troubled == filters.problem
    yield filters.archived is None or one.archived == filters.archived
    for pointer, value in filters.projection:
        member = one.projection
        # Pointers into members of members are what the filters' own tests are about.
        there = isinstance(member, dict) and pointer[1:] in member
        yield there and _equal(member[pointer[1:]], value)


def _equal(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _comes_from(one: Listed, parent: Listed) -> bool:
    return (
        one.id != parent.id
        and one.source_format is not None
        and one.source_parent is not None
        and (one.source_format, one.source_parent) == (parent.source_format, parent.source_id)
    )


def _is_below(one: Listed, listed: Iterable[Listed]) -> bool:
    """Whether it is a sub-agent of a session that is listed."""
    return one.relation == "subagent" and any(
        (one.parent == other.id != one.id) or _comes_from(one, other) for other in listed
    )


def _in_scope(passage: Passage, scope: Scope) -> bool:
    return (
        (scope.kinds is None or passage.kind in scope.kinds)
        and (scope.agents is None or passage.agent in scope.agents)
        and (scope.since is None or passage.time >= scope.since)
        and (scope.until is None or passage.time < scope.until)
    )


# --- queries --------------------------------------------------------------------------------------


def _matches(columns: Sequence[Sequence[str]], query: Query, mode: Mode) -> bool:
    if mode == "all":
        wanted = [term.phrases for term in query.terms]
        return bool(wanted) and all(_any_in(columns, phrases) for phrases in wanted)
    return any(_any_in(columns, (*term.phrases, *term.loose)) for term in query.terms)


def _any_in(columns: Sequence[Sequence[str]], phrases: Iterable[Phrase]) -> bool:
    return any(_stands_in(column, phrase) for phrase in phrases for column in columns)


def _stands_in(column: Sequence[str], phrase: Phrase) -> bool:
    size = len(phrase.tokens)
    *before, last = phrase.tokens
    for start in range(len(column) - size + 1):
        *neighbours, end = column[start : start + size]
        if neighbours == before and (end.startswith(last) if phrase.prefix else end == last):
            return True
    return False
