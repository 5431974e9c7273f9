"""`SqliteVectors`: the contract of `perdure.embedding.vectors`, each call one transaction."""

import threading
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import apsw

from perdure.databases.cells import BIGGEST, ask, cell, cells, numbers, sql, text
from perdure.databases.derived import FilePlace, MemoryPlace, Place
from perdure.embedding.sqlite.schema import VectorTables
from perdure.embedding.vectors import Made, Model, Near, Vectors
from perdure.errors import InvalidValue
from perdure.runtime import SYSTEM, Runtime

__all__ = ["EXACT_MAX", "RESCORED", "SqliteVectors"]

EXACT_MAX = 2_000
"""So many vectors are compared in full; of more, those whose sketches are nearest."""

RESCORED, _RESCORED_SHARE = 1_000, 50
"""So many of the nearest sketches are compared in full, or one in so many, if that is more."""

_PAGE = 10_000
_FEW = (
    "SELECT 1 FROM json_each(:digests) AS j CROSS JOIN sketches AS s"
    " ON s.model = :model AND s.digest = j.value LIMIT :most"
)
_ALL_OF = (
    "SELECT s.digest, s.part, v.half FROM json_each(:digests) AS j"
    " CROSS JOIN sketches AS s ON s.model = :model AND s.digest = j.value"
    " CROSS JOIN vectors AS v ON v.id = s.id"
)
_THESE = (
    "SELECT s.digest, s.part, v.half FROM json_each(?) AS j"
    " CROSS JOIN sketches AS s ON s.id = j.value CROSS JOIN vectors AS v ON v.id = s.id"
)
_VECTOR = (int, int, bytes)
_HALF_BYTES = 2


class _Known(NamedTuple):
    """The sketches of a model as they were read last.

    Attributes:
        model: its number.
        origin: what tells one file from another, and whether anything was removed since.
        sketches: `perdure.embedding.arithmetic.Sketches`.

    """

    model: int
    origin: tuple[int, int]
    sketches: Any


class SqliteVectors(Vectors):
    """Vectors in the file `vectors.sqlite` of a folder, or in memory.

    Of the model that was asked last the sketches stay in memory: 16 bytes and a bit for each number
    of a vector, so 5 MB for 100,000 vectors of 256 numbers. What is compared in full is read.
    """

    def __init__(
        self, folder: str | None, *, runtime: Runtime = SYSTEM, read_only: bool = False
    ) -> None:
        """Name the folder, or None for one in memory; nothing is opened or created."""
        tables = VectorTables()
        self._place: Place = (
            MemoryPlace(tables, runtime)
            if folder is None
            else FilePlace(folder, tables, runtime, read_only=read_only)
        )
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    # --- models -----------------------------------------------------------------------------------

    def models(self) -> list[Model]:
        """See `Vectors.models`."""
        query = (
            "SELECT name, spec, dimension, complete, vectors FROM models"
            " ORDER BY complete DESC, number DESC"
        )
        kinds = (bytes, bytes, int, int, int)

        def found(db: apsw.Connection) -> list[Model]:
            return [
                Model(text(name), text(spec), dimension, bool(complete), vectors)
                for name, spec, dimension, complete, vectors in ask(db, query, (), kinds)
            ]

        return self._place.read(found)

    def begin(self, name: str, spec: str, dimension: int) -> None:
        """See `Vectors.begin`."""
        known = "SELECT 1 FROM models WHERE name = ? AND spec = ? AND dimension = ?"
        if self._place.read(lambda db: ask(db, known, (cell(name), cell(spec), dimension))):
            return
        other = "SELECT number FROM models WHERE name = ? AND dimension <> ?"

        def change(db: apsw.Connection) -> None:
            for (number,) in ask(db, other, (cell(name), dimension), [int]):
                # Nothing can be compared with those any more.
                ids = "SELECT id FROM sketches WHERE model = ?"
                db.execute(sql("DELETE FROM vectors WHERE id IN (", ids, ")"), (number,))
                for table in ("sketches", "readings"):
                    db.execute(sql("DELETE FROM", table, "WHERE model = ?"), (number,))
                again = "UPDATE models SET dimension = ?, vectors = 0 WHERE number = ?"
                db.execute(again, (dimension, number))
                _count(db, removed=True)
            _count(db)
            query = (
                "INSERT INTO models (name, spec, dimension, complete, vectors)"
                " VALUES (?, ?, ?, 0, 0) ON CONFLICT (name) DO UPDATE SET spec = excluded.spec"
            )
            db.execute(query, (cell(name), cell(spec), dimension))

        self._place.write(change)

    def complete(self, name: str) -> bool:
        """See `Vectors.complete`."""
        left = (
            "SELECT count(*) FROM readings AS o WHERE o.model < ? AND NOT EXISTS ("
            "SELECT 1 FROM readings AS n WHERE n.model = ? AND n.namespace = o.namespace"
            " AND n.session = o.session)"
        )

        def change(db: apsw.Connection) -> bool:
            number = _known_number(db, name)
            if ask(db, answers, (cell(name),)):
                return True
            if ask(db, left, (number, number)) != [(0,)]:
                return False
            _count(db, removed=True)
            db.execute("UPDATE models SET complete = 1 WHERE number = ?", (number,))
            # One that was begun later is on its way to take over itself.
            ids = "SELECT id FROM sketches WHERE model < ?"
            db.execute(sql("DELETE FROM vectors WHERE id IN (", ids, ")"), (number,))
            for table, column in (
                ("sketches", "model"),
                ("readings", "model"),
                ("models", "number"),
            ):
                db.execute(sql("DELETE FROM", table, "WHERE", column, "< ?"), (number,))
            return True

        answers = "SELECT 1 FROM models WHERE name = ? AND complete"
        if self._place.read(lambda db: ask(db, answers, (cell(name),))):
            return True
        return bool(self._place.write(change))

    # --- vectors ----------------------------------------------------------------------------------

    def missing(self, name: str, digests: Collection[int]) -> set[int]:
        """See `Vectors.missing`."""
        query = (
            "SELECT j.value FROM json_each(?) AS j CROSS JOIN sketches AS s"
            " ON s.model = ? AND s.digest = j.value"
        )

        def found(db: apsw.Connection) -> set[int]:
            number = _number(db, name)
            left = set(digests)
            for page in _pages(list(left)) if number is not None else ():
                left -= {digest for (digest,) in ask(db, query, (numbers(page), number), [int])}
            return left

        return self._place.read(found)

    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        """See `Vectors.put`."""
        from perdure.embedding.arithmetic import halves, sketches  # noqa: PLC0415 - brings numpy

        rows = [*zip(made, sketches(vectors), halves(vectors), strict=True)]

        def change(db: apsw.Connection) -> int:
            number = _known_number(db, name)
            ((dimension,),) = ask(
                db, "SELECT dimension FROM models WHERE number = ?", (number,), [int]
            )
            if vectors.shape[1] != dimension:
                reason = f"are of {vectors.shape[1]} numbers, and those of the model of {dimension}"
                raise InvalidValue("vectors", reason)
            ((first,),) = ask(db, "SELECT last FROM facts", (), [int])
            if not 0 <= first <= BIGGEST - len(rows):
                raise apsw.CorruptError("the last number of a vector is none that was given")
            last = int(first)
            for (digest, part), sketch, half in rows:
                # What is kept already stays: somebody else may have been faster.
                query = (
                    "INSERT INTO sketches VALUES (?, ?, ?, ?, ?)"
                    " ON CONFLICT (model, digest, part) DO NOTHING"
                )
                db.execute(query, (last + 1, number, digest, part, sketch))
                if db.changes():
                    last += 1
                    db.execute("INSERT INTO vectors VALUES (?, ?)", (last, half))
            _count(db)
            db.execute("UPDATE facts SET last = ?", (last,))
            query = "UPDATE models SET vectors = vectors + ? WHERE number = ?"
            db.execute(query, (last - first, number))
            return last - int(first)

        return self._place.write(change) or 0

    def kept(self, name: str) -> Iterator[list[int]]:
        """See `Vectors.kept`."""
        query = (
            "SELECT DISTINCT digest FROM sketches WHERE model = ? AND digest >= ?"
            " ORDER BY digest LIMIT ?"
        )
        first = -(2**63)
        while first <= BIGGEST:

            def page(db: apsw.Connection, first: int = first) -> list[int]:
                found = ask(db, query, (_number(db, name), first, _PAGE), [int])
                digests = [digest for (digest,) in found]
                # In any other order the next page could be this one again.
                if any(one >= other for one, other in pairwise([first - 1, *digests])):
                    raise apsw.CorruptError("digests do not come in their order")
                return digests

            digests = self._place.read(page)
            if not digests:
                return
            first = digests[-1] + 1
            yield digests

    def remove(self, name: str, digests: Collection[int]) -> None:
        """See `Vectors.remove`."""

        def change(db: apsw.Connection) -> None:
            number = _number(db, name)
            which = (
                "SELECT id FROM sketches WHERE model = ?"
                " AND digest IN (SELECT value FROM json_each(?))"
            )
            bound = (number, numbers(digests))
            for table in ("vectors", "sketches"):
                db.execute(sql("DELETE FROM", table, "WHERE id IN (", which, ")"), bound)
            removed = db.changes()
            if not removed:
                return
            query = "UPDATE models SET vectors = vectors - ? WHERE number = ?"
            db.execute(query, (removed, number))
            # What is not there any more may be said again.
            db.execute("UPDATE readings SET version = -1 WHERE model = ?", (number,))
            _count(db, removed=True)

        if digests:
            self._place.write(change, make=False)

    def unsound(self, name: str) -> list[int]:
        """See `Vectors.unsound`."""
        query = (
            "SELECT DISTINCT s.digest FROM sketches AS s LEFT JOIN vectors AS v ON v.id = s.id"
            " WHERE s.model = ? AND (v.id IS NULL OR typeof(v.half) <> 'blob'"
            " OR length(v.half) <> ? OR length(s.sketch) <> ?)"
        )

        def found(db: apsw.Connection) -> list[int]:
            models = "SELECT number, dimension FROM models WHERE name = ?"
            digests = []
            for number, dimension in ask(db, models, (cell(name),), [int, int]):
                sizes = (_HALF_BYTES * dimension, 8 * -(-dimension // 64))
                digests += ask(db, query, (number, *sizes), [int])
            return [digest for (digest,) in digests]

        return self._place.read(found)

    # --- readings ---------------------------------------------------------------------------------

    def put_reading(
        self,
        name: str,
        namespace: str,
        session: str,
        version: int,
        *,
        era: str | None = None,
    ) -> None:
        """See `Vectors.put_reading`."""

        def change(db: apsw.Connection) -> None:
            number = _known_number(db, name)
            if era is None or _era(db) == era:
                bound = (number, cell(namespace), cell(session), version)
                db.execute("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?)", bound)

        self._place.write(change)

    def era(self) -> str:
        """See `Vectors.era`."""
        return self._place.read(_era)

    def versions(self, name: str, namespace: str) -> dict[str, int]:
        """See `Vectors.versions`."""
        query = (
            "SELECT session, version FROM readings"
            " WHERE model = (SELECT number FROM models WHERE name = ?) AND namespace = ?"
        )
        bound = (cell(name), cell(namespace))

        def found(db: apsw.Connection) -> dict[str, int]:
            rows = ask(db, query, bound, (bytes, int))
            return {text(session): version for session, version in rows}

        return self._place.read(found)

    def namespaces(self, name: str) -> list[str]:
        """See `Vectors.namespaces`."""
        query = (
            "SELECT DISTINCT namespace FROM readings"
            " WHERE model = (SELECT number FROM models WHERE name = ?) ORDER BY namespace"
        )

        def found(db: apsw.Connection) -> list[str]:
            rows = ask(db, query, (cell(name),), [bytes])
            return [text(namespace) for (namespace,) in rows]

        return self._place.read(found)

    def keep_readings(self, namespace: str, sessions: Collection[str]) -> None:
        """See `Vectors.keep_readings`."""
        which = (
            "FROM readings WHERE namespace = ?"
            " AND session NOT IN (SELECT unhex(value) FROM json_each(?))"
        )
        bound = (cell(namespace), cells(sessions))
        count = sql("SELECT count(*)", which)
        if self._place.read(lambda db: ask(db, count, bound)) != [(0,)]:
            self._place.write(lambda db: db.execute(sql("DELETE", which), bound), make=False)

    # --- search -----------------------------------------------------------------------------------

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        """See `Vectors.nearest`."""
        if most <= 0:
            return []
        return self._place.read(lambda db: self._nearest(db, name, query, digests, most))

    def _nearest(
        self, db: apsw.Connection, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        which = "SELECT number, dimension FROM models WHERE name = ?"
        found = ask(db, which, (cell(name),), [int, int])
        if not found:
            return []
        ((number, dimension),) = found
        if len(query) != dimension:
            reason = f"has {len(query)} numbers, and the vectors of the model have {dimension}"
            raise InvalidValue("query", reason)
        if digests is not None and len(digests) <= EXACT_MAX:
            bound = {"digests": numbers(digests), "model": number, "most": EXACT_MAX + 1}
            if len(ask(db, _FEW, bound)) <= EXACT_MAX:
                return _compared(ask(db, _ALL_OF, bound, _VECTOR), query, most)
        sketches = self._sketches(db, name, number, dimension)
        places = None if digests is None else sketches.among(list(digests))
        count = len(sketches.ids) if places is None else len(places)
        rescored = max(RESCORED, 4 * most, count // _RESCORED_SHARE)
        while True:
            # In the order of their numbers, in which they lie in the file.
            closest = sorted(sketches.closest(query, places, rescored).tolist())
            rows = ask(db, _THESE, (numbers(sketches.ids[closest].tolist()),), _VECTOR)
            if len(rows) != len(closest):
                raise apsw.CorruptError("a sketch has no vector")
            near = _compared(rows, query, most)
            # Pieces of a few long passages may be nearer than all others.
            if len(near) >= most or rescored >= count:
                return near
            rescored *= 4

    def _sketches(self, db: apsw.Connection, name: str, number: int, dimension: int) -> Any:
        """All sketches of a model; only those that are new are read."""
        from perdure.embedding.arithmetic import Sketches  # noqa: PLC0415 - brings numpy

        query = "SELECT birth, removals, last FROM facts"
        ((birth, removals, newest),) = ask(db, query, (), [int, int, int])
        origin = (birth, removals)
        with self._lock:
            known = self._known.get(name)
            if known is None or (known.model, known.origin) != (number, origin):
                known = _Known(number, origin, Sketches.none(dimension))
            sketches = known.sketches
            older = bool(len(sketches.ids)) and sketches.ids[-1] > newest
            if older:
                # Somebody else read a newer state than this transaction sees.
                sketches = Sketches.none(dimension)
            query = "SELECT id, digest, sketch FROM sketches WHERE model = ? AND id > ?"
            last = int(sketches.ids[-1]) if len(sketches.ids) else 0
            rows = ask(db, query, (number, last), (int, int, bytes))
            size = 8 * sketches.bits.shape[1]
            if any(len(sketch) != size for _, _, sketch in rows):
                raise apsw.CorruptError("a sketch is of another length than those of its model")
            sketches = sketches.and_these(rows)
            # One model answers at a time.
            if not older:
                self._known = {name: _Known(number, origin, sketches)}
            return sketches

    # --- the medium -------------------------------------------------------------------------------

    def size(self) -> int:
        """See `Vectors.size`."""
        return self._place.size()

    def close(self) -> None:
        """See `Vectors.close`."""
        self._known = {}
        self._place.close()


def _number(db: apsw.Connection, name: str) -> int | None:
    rows = ask(db, "SELECT number FROM models WHERE name = ?", (cell(name),), [int])
    return int(rows[0][0]) if rows else None


def _known_number(db: apsw.Connection, name: str) -> int:
    number = _number(db, name)
    if number is None:
        raise InvalidValue("model", "was never begun, or was removed meanwhile")
    return number


def _era(db: apsw.Connection) -> str:
    ((birth, removals),) = ask(db, "SELECT birth, removals FROM facts", (), [int, int])
    return f"{birth} {removals}"


def _count(db: apsw.Connection, *, removed: bool = False) -> None:
    query = "UPDATE facts SET version = version + 1, removals = removals + ?"
    db.execute(query, (int(removed),))


def _pages(digests: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(digests), _PAGE):
        yield digests[at : at + _PAGE]


def _compared(rows: Sequence[tuple[int, int, bytes]], query: Any, most: int) -> list[Near]:
    """The nearest passages of some vectors (digest, part, half), compared in full."""
    from perdure.embedding.arithmetic import best, scores  # noqa: PLC0415 - brings numpy

    if any(len(half) != _HALF_BYTES * len(query) for _, _, half in rows):
        raise apsw.CorruptError("a vector is of another length than those of its model")
    # By digest and part: of equal ones the same come first, whatever they were found by.
    rows = sorted(rows)
    found = scores(query, [half for _, _, half in rows])
    near: dict[int, Near] = {}
    for place in best(found, len(rows)):
        digest, part, _ = rows[place]
        if digest not in near:
            near[digest] = Near(digest, part, float(found[place]))
            if len(near) == most:
                break
    return list(near.values())
