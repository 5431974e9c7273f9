"""`PostgresCatalog`: the contract of a catalog, each call one transaction."""

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from perdure.catalog.contract import (
    Candidate,
    Candidates,
    Catalog,
    Change,
    Covered,
    Entry,
    Filters,
    KeyedEvents,
    Listed,
    Scope,
    Standing,
    Sums,
)
from perdure.catalog.postgres import listing, putting, saying, searching
from perdure.catalog.postgres.lexemes import Mode
from perdure.catalog.postgres.rows import shown
from perdure.catalog.query import Query
from perdure.databases.cells import text
from perdure.databases.postgres import derived
from perdure.databases.postgres.catalog_tables import CATALOG_TENANTED
from perdure.databases.postgres.keys import key, within
from perdure.databases.postgres.meaning import NotMade
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.work import Work
from perdure.model.record import Position
from perdure.runtime import SYSTEM, Runtime

__all__ = ["PostgresCatalog"]

T = TypeVar("T")


class PostgresCatalog(Catalog):
    """A catalog in the tables of a server. See DESIGN.md.

    Where there are no tables it answers as an empty one; the first change makes them.
    """

    def __init__(self, server: Server, *, runtime: Runtime = SYSTEM) -> None:
        """Name the server; nothing is connected."""
        self._server = server
        self._runtime = runtime

    @property
    def place(self) -> str | None:
        """See `Catalog.place`: here it is the URL of the server, without a password."""
        return self._server.place

    def _read(self, question: Callable[[Work], T], nothing: T, *, one: bool = False) -> T:
        return derived.ask(self._server, question, nothing, one=one)

    # --- reading on -------------------------------------------------------------------------------

    def standing(self, namespace: str, session: str) -> Standing | None:
        """See `Catalog.standing`."""
        return self._read(lambda work: _standing(work, namespace, session), None, one=True)

    def entries(self, namespace: str) -> Iterator[Entry]:
        """See `Catalog.entries`."""
        found: list[Entry] = self._read(lambda work: _entries(work, namespace), [], one=True)
        return iter(found)

    def versions(self, namespace: str) -> dict[str, int]:
        """See `Catalog.versions`."""
        query = "SELECT id, version FROM @catalog_sessions WHERE namespace = %s"

        def found(work: Work) -> dict[str, int]:
            rows = work.rows(query, within(namespace))
            return {text(id): version for id, version in rows}

        return self._read(found, {}, one=True)

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        """See `Catalog.put`."""
        return derived.change_or_make(
            self._server, lambda work: putting.put(work, namespace, change, expected)
        )

    def remove(self, namespace: str, session: str, expected: int | None = None) -> bool:
        """See `Catalog.remove`."""

        def change(work: Work) -> bool:
            return putting.remove(work, namespace, session, expected)

        try:
            return derived.change(self._server, change)
        except NotMade:
            return False

    def keys(self, namespace: str, session: str) -> KeyedEvents | None:
        """See `Catalog.keys`."""
        return self._read(lambda work: _keys(work, namespace, session), None)

    def note(self, namespace: str, name: str) -> str | None:
        """See `Catalog.note`."""
        query = "SELECT text FROM @catalog_notes WHERE namespace = %s AND name = %s"

        def found(work: Work) -> str | None:
            row = work.row(query, within(namespace), key(name))
            return None if row is None else text(row[0])

        return self._read(found, None, one=True)

    def put_note(self, namespace: str, name: str, text: str) -> None:
        """See `Catalog.put_note`."""
        derived.change_or_make(
            self._server, lambda work: putting.put_note(work, namespace, name, text)
        )

    # --- listing ----------------------------------------------------------------------------------

    def listed(
        self,
        namespace: str,
        filters: Filters,
        *,
        sort: str = "last_active",
        limit: int = 20,
        offset: int = 0,
        after: tuple[Any, str] | None = None,
    ) -> list[Listed]:
        """See `Catalog.listed`."""
        return self._read(
            lambda work: listing.listed(
                work, namespace, filters, sort=sort, limit=limit, offset=offset, after=after
            ),
            [],
            one=filters == Filters(),
        )

    def matching(
        self,
        namespace: str,
        filters: Filters,
        query: Query,
        *,
        mode: Mode = "all",
        limit: int = 20,
        offset: int = 0,
    ) -> list[Listed]:
        """See `Catalog.matching`."""
        return self._read(
            lambda work: listing.matching(
                work, namespace, filters, query, mode=mode, limit=limit, offset=offset
            ),
            [],
        )

    def children(self, namespace: str, parents: Collection[str]) -> list[Listed]:
        """See `Catalog.children`."""
        return self._read(lambda work: listing.children(work, namespace, parents), [], one=True)

    def sums(self, namespace: str, filters: Filters) -> Sums:
        """See `Catalog.sums`."""
        nothing = Sums(0, 0, 0, 0, {}, {}, {}, {}, 0, 0, [], 0, 0)
        return self._read(lambda work: listing.sums(work, namespace, filters, _size(work)), nothing)

    def covered(self, namespace: str) -> Covered:
        """See `Catalog.covered`."""
        return self._read(lambda work: listing.covered(work, namespace), Covered(0, 0, 0, []))

    # --- searching --------------------------------------------------------------------------------

    def candidates(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Mode = "all",
        newest: int = 2_000,
        most: int = 200,
    ) -> Candidates:
        """See `Catalog.candidates`."""
        return self._read(
            lambda work: searching.candidates(
                work, namespace, scope, query, mode=mode, newest=newest, most=most
            ),
            Candidates([], capped=False),
        )

    def in_order(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Mode = "all",
        after: tuple[str, int, int] | None = None,
        limit: int = 20,
    ) -> Candidates:
        """See `Catalog.in_order`."""
        return self._read(
            lambda work: searching.in_order(
                work, namespace, scope, query, mode=mode, after=after, limit=limit
            ),
            Candidates([], capped=False),
        )

    def digests(self, namespace: str, scope: Scope) -> Collection[int]:
        """See `Catalog.digests`."""
        return self._read(lambda work: saying.digests(work, namespace, scope), [])

    def saying(self, namespace: str, scope: Scope, digests: Collection[int]) -> list[Candidate]:
        """See `Catalog.saying`."""
        return self._read(lambda work: saying.saying(work, namespace, scope, digests), [])

    def unsaid(self, digests: Collection[int]) -> list[int]:
        """See `Catalog.unsaid`."""
        return self._read(lambda work: saying.unsaid(work, digests), list(digests), one=True)

    # --- the medium -------------------------------------------------------------------------------

    def clear(self) -> None:
        """See `Catalog.clear`."""
        try:
            derived.change(self._server, _clear)
        except NotMade:
            return

    def close(self) -> None:
        """See `Catalog.close`; the server is closed by whoever opened it."""


# --- questions ------------------------------------------------------------------------------------


def _standing(work: Work, namespace: str, session: str) -> Standing | None:
    row = work.row(
        "SELECT s.version, r.revision, r.seq, r.hash, r.floor, r.state, r.rules, s.partial,"
        " r.problem FROM @catalog_sessions AS s JOIN @catalog_readings AS r"
        " ON r.namespace = s.namespace AND r.session = s.session"
        " WHERE s.namespace = %s AND s.key = %s",
        *(within(namespace), key(session)),
    )
    if row is None:
        return None
    version, revision, seq, link, floor, state, rules, partial, problem = row
    return Standing(
        version,
        text(revision),
        Position(seq, text(link)),
        floor,
        state,
        text(rules),
        partial,
        None if problem is None else text(problem),
    )


def _entries(work: Work, namespace: str) -> list[Entry]:
    rows = work.rows(
        "SELECT s.id, r.revision, r.rules, s.partial, r.problem, s.status"
        " FROM @catalog_sessions AS s JOIN @catalog_readings AS r"
        " ON r.namespace = s.namespace AND r.session = s.session"
        " WHERE s.namespace = %s ORDER BY s.key, s.id",
        within(namespace),
    )
    return [
        Entry(
            text(id),
            text(revision),
            text(rules),
            partial,
            None if problem is None else text(problem),
            shown(status),
        )
        for id, revision, rules, partial, problem, status in rows
    ]


def _keys(work: Work, namespace: str, session: str) -> KeyedEvents | None:
    own = within(namespace)
    row = work.row(
        "SELECT s.session, r.seq, r.hash FROM @catalog_sessions AS s JOIN @catalog_readings AS r"
        " ON r.namespace = s.namespace AND r.session = s.session"
        " WHERE s.namespace = %s AND s.key = %s AND NOT s.partial",
        *(own, key(session)),
    )
    if row is None:
        return None
    number, seq, link = row
    query = "SELECT type, key, seq FROM @catalog_keys WHERE namespace = %s AND session = %s"
    seqs = {(text(kind), text(name)): at for kind, name, at in work.rows(query, own, number)}
    return KeyedEvents(Position(seq, text(link)), seqs)


_SIZE = "SELECT " + " + ".join(f"pg_total_relation_size('@{table}')" for table in CATALOG_TENANTED)


def _size(work: Work) -> int:
    """Bytes of all tables and their indexes."""
    ((size,),) = work.rows(_SIZE)
    return int(size)


def _clear(work: Work) -> None:
    """Forget all rows that this role may."""
    for table in CATALOG_TENANTED:
        work.run(f"DELETE FROM @{table}")  # noqa: S608 - tables of ours
