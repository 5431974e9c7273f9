"""`SqliteCatalog`: the contract of a catalog, each call one transaction."""

from collections.abc import Collection, Iterator
from typing import Any, Literal

import apsw

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
from perdure.catalog.query import Query
from perdure.catalog.sqlite import listing, putting, saying, searching
from perdure.catalog.sqlite.filters import namespace_of
from perdure.catalog.sqlite.schema import IndexTables
from perdure.databases.cells import ask, cell, text
from perdure.databases.derived import FilePlace, MemoryPlace, Place
from perdure.model.record import Position
from perdure.runtime import SYSTEM, Runtime

__all__ = ["SqliteCatalog"]


class SqliteCatalog(Catalog):
    """A catalog in the file `index.sqlite` of a folder, or in memory. See DESIGN.md.

    One that is only read answers as an empty one where there is nothing it can read without
    creating a file. Every change raises StorageUnavailable then.
    """

    def __init__(
        self, folder: str | None, *, runtime: Runtime = SYSTEM, read_only: bool = False
    ) -> None:
        """Name the folder, or None for one in memory; nothing is opened or created."""
        tables = IndexTables()
        self._place: Place = (
            MemoryPlace(tables, runtime)
            if folder is None
            else FilePlace(folder, tables, runtime, read_only=read_only)
        )

    @property
    def place(self) -> str | None:
        """See `Catalog.place`."""
        return self._place.path

    # --- reading on -------------------------------------------------------------------------------

    def standing(self, namespace: str, session: str) -> Standing | None:
        """See `Catalog.standing`."""
        return self._place.read(lambda db: _standing(db, namespace, session))

    def entries(self, namespace: str) -> Iterator[Entry]:
        """See `Catalog.entries`."""
        return iter(self._place.read(lambda db: _entries(db, namespace)))

    def versions(self, namespace: str) -> dict[str, int]:
        """See `Catalog.versions`."""
        return self._place.read(lambda db: _versions(db, namespace))

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        """See `Catalog.put`."""
        return self._place.write(lambda db: putting.put(db, namespace, change, expected))

    def remove(self, namespace: str, session: str, expected: int | None = None) -> bool:
        """See `Catalog.remove`."""

        def change(db: apsw.Connection) -> bool:
            return putting.remove(db, namespace, session, expected)

        return bool(self._place.write(change, make=False))

    def keys(self, namespace: str, session: str) -> KeyedEvents | None:
        """See `Catalog.keys`."""
        return self._place.read(lambda db: _keys(db, namespace, session))

    def note(self, namespace: str, name: str) -> str | None:
        """See `Catalog.note`."""
        return self._place.read(lambda db: _note(db, namespace, name))

    def put_note(self, namespace: str, name: str, text: str) -> None:
        """See `Catalog.put_note`."""
        self._place.write(lambda db: putting.put_note(db, namespace, name, text))

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
        return self._place.read(
            lambda db: listing.listed(
                db, namespace, filters, sort=sort, limit=limit, offset=offset, after=after
            )
        )

    def matching(
        self,
        namespace: str,
        filters: Filters,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        limit: int = 20,
        offset: int = 0,
    ) -> list[Listed]:
        """See `Catalog.matching`."""
        return self._place.read(
            lambda db: listing.matching(
                db, namespace, filters, query, mode=mode, limit=limit, offset=offset
            )
        )

    def children(self, namespace: str, parents: Collection[str]) -> list[Listed]:
        """See `Catalog.children`."""
        return self._place.read(lambda db: listing.children(db, namespace, parents))

    def sums(self, namespace: str, filters: Filters) -> Sums:
        """See `Catalog.sums`."""
        size = self._place.size()
        return self._place.read(lambda db: listing.sums(db, namespace, filters, size))

    def covered(self, namespace: str) -> Covered:
        """See `Catalog.covered`."""
        return self._place.read(lambda db: listing.covered(db, namespace))

    # --- searching --------------------------------------------------------------------------------

    def candidates(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        newest: int = 2_000,
        most: int = 200,
    ) -> Candidates:
        """See `Catalog.candidates`."""
        return self._place.read(
            lambda db: searching.candidates(
                db, namespace, scope, query, mode=mode, newest=newest, most=most
            )
        )

    def in_order(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        after: tuple[str, int, int] | None = None,
        limit: int = 20,
    ) -> Candidates:
        """See `Catalog.in_order`."""
        return self._place.read(
            lambda db: searching.in_order(
                db, namespace, scope, query, mode=mode, after=after, limit=limit
            )
        )

    def digests(self, namespace: str, scope: Scope) -> Collection[int]:
        """See `Catalog.digests`."""
        return self._place.read(lambda db: saying.digests(db, namespace, scope))

    def saying(self, namespace: str, scope: Scope, digests: Collection[int]) -> list[Candidate]:
        """See `Catalog.saying`."""
        return self._place.read(lambda db: saying.saying(db, namespace, scope, digests))

    def unsaid(self, digests: Collection[int]) -> list[int]:
        """See `Catalog.unsaid`."""
        return self._place.read(lambda db: saying.unsaid(db, digests))

    # --- the medium -------------------------------------------------------------------------------

    def clear(self) -> None:
        """See `Catalog.clear`."""
        self._place.begin_anew()

    def close(self) -> None:
        """See `Catalog.close`."""
        self._place.close()


# --- questions ------------------------------------------------------------------------------------

_MAYBE = (bytes, type(None))


def _standing(db: apsw.Connection, namespace: str, session: str) -> Standing | None:
    rows = ask(
        db,
        "SELECT s.version, r.revision, r.seq, r.hash, r.floor, t.state, r.rules, s.partial,"
        " r.problem FROM sessions AS s LEFT JOIN readings AS r ON r.session = s.number"
        " LEFT JOIN states AS t ON t.session = s.number"
        " WHERE s.namespace = (SELECT number FROM namespaces WHERE name = ?) AND s.id = ?",
        (cell(namespace), cell(session)),
        (int, bytes, int, bytes, int, bytes, bytes, int, _MAYBE),
    )
    for version, revision, seq, link, floor, state, rules, partial, problem in rows:
        return Standing(
            version,
            text(revision),
            Position(seq, text(link)),
            floor,
            state,
            text(rules),
            bool(partial),
            None if problem is None else text(problem),
        )
    return None


def _entries(db: apsw.Connection, namespace: str) -> list[Entry]:
    rows = ask(
        db,
        "SELECT s.id, r.revision, r.rules, s.partial, r.problem, s.status"
        " FROM sessions AS s INDEXED BY by_id LEFT JOIN readings AS r ON r.session = s.number"
        " WHERE s.namespace = (SELECT number FROM namespaces WHERE name = ?) ORDER BY s.id",
        (cell(namespace),),
        (bytes, bytes, bytes, int, _MAYBE, bytes),
    )
    return [
        Entry(
            text(id),
            text(revision),
            text(rules),
            bool(partial),
            None if problem is None else text(problem),
            text(status),
        )
        for id, revision, rules, partial, problem, status in rows
    ]


def _versions(db: apsw.Connection, namespace: str) -> dict[str, int]:
    query = (
        "SELECT id, version FROM sessions"
        " WHERE namespace = (SELECT number FROM namespaces WHERE name = ?)"
    )
    return {text(id): version for id, version in ask(db, query, (cell(namespace),), (bytes, int))}


def _keys(db: apsw.Connection, namespace: str, session: str) -> KeyedEvents | None:
    within = namespace_of(db, namespace)
    rows = ask(
        db,
        "SELECT s.number, r.seq, r.hash FROM sessions AS s"
        " LEFT JOIN readings AS r ON r.session = s.number"
        " WHERE s.namespace = ? AND s.id = ? AND NOT s.partial",
        (within, cell(session)),
        (int, int, bytes),
    )
    for number, seq, link in rows:
        query = "SELECT type, key, seq FROM keys WHERE session = ?"
        found = ask(db, query, (number,), (bytes, bytes, int))
        seqs = {(text(kind), text(key)): at for kind, key, at in found}
        return KeyedEvents(Position(seq, text(link)), seqs)
    return None


def _note(db: apsw.Connection, namespace: str, name: str) -> str | None:
    query = (
        "SELECT text FROM notes"
        " WHERE namespace = (SELECT number FROM namespaces WHERE name = ?) AND name = ?"
    )
    for (told,) in ask(db, query, (cell(namespace), cell(name))):
        return text(told)
    return None
