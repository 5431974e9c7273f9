"""`PostgresVectors`: the contract of `perdure.embedding.vectors`, each call one transaction."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from psycopg.errors import InsufficientPrivilege

from perdure.databases.cells import BIGGEST, Unsound, cell, text
from perdure.databases.postgres import derived
from perdure.databases.postgres.keys import key, keys, within
from perdure.databases.postgres.meaning import NotMade
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.databases.postgres.work import Work
from perdure.embedding.blocks import VERSION as BLOCKS
from perdure.embedding.vectors import Made, Model, Near, Vectors
from perdure.errors import InvalidValue, UnsafeFile
from perdure.runtime import SYSTEM, Runtime

__all__ = ["EXACT_MAX", "RESCORED", "PostgresVectors"]

T = TypeVar("T")

EXACT_MAX = 2_000
"""So many vectors are compared in full; of more, those whose sketches are nearest."""

RESCORED, _RESCORED_SHARE = 1_000, 50
"""So many of the nearest sketches are compared in full, or one in so many, if that is more."""

_PAGE = 10_000
_RULES = f"blocks {BLOCKS}"
_HALF_BYTES = 2

_MODEL = "SELECT number, dimension FROM @vector_models WHERE key = %s AND rules = %s"
_FEW = (
    "SELECT count(*) FROM (SELECT 1 FROM unnest(%s::bigint[]) AS d (digest)"  # noqa: S608 - ours
    " JOIN @vector_sketches AS s ON s.model = %s AND s.digest = d.digest"
    f" LIMIT {EXACT_MAX + 1}) AS found"
)
_ALL_OF = (
    "SELECT s.digest, s.part, v.half FROM @vector_sketches AS s JOIN @vectors AS v ON v.id = s.id"
    " WHERE s.model = %s AND s.digest = ANY(%s::bigint[])"
)
_THESE = (
    "SELECT s.digest, s.part, v.half FROM @vector_sketches AS s JOIN @vectors AS v ON v.id = s.id"
    " WHERE s.model = %s AND s.id = ANY(%s::bigint[])"
)


class _Known(NamedTuple):
    """The sketches of a model as they were read last.

    Attributes:
        model: its number.
        era: another one since something was removed.
        sketches: `perdure.embedding.arithmetic.Sketches`.

    """

    model: int
    era: str
    sketches: Any


class PostgresVectors(Vectors):
    """Vectors in the tables of a server.

    As in SQLite, the sketches of the model that was asked last stay in memory: 16 bytes and a bit
    for each number of a vector. What is compared in full is read.

    Vectors belong to texts, whoever wrote them. A role that does not see all namespaces has no
    rights on them: there are none for it to read, and it cannot make any.
    """

    def __init__(self, server: Server, *, runtime: Runtime = SYSTEM) -> None:  # noqa: ARG002
        """Name the server; nothing is connected."""
        self._server = server
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def _read(self, question: Callable[[Work], T], nothing: T) -> T:
        try:
            return derived.ask(self._server, question, nothing)
        except UnsafeFile as error:
            if isinstance(error.__cause__, InsufficientPrivilege):
                return nothing
            raise

    def _change(self, do: Callable[[Work], T]) -> T:
        try:
            return derived.change(self._server, do)
        except UnsafeFile as error:
            if not isinstance(error.__cause__, InsufficientPrivilege):
                raise
            reason = "this role may not make vectors, which are shared by all namespaces"
            hint = "embed as a role that sees the whole store, such as the owner of the tables"
            raise UnsafeFile(self._server.place, reason, hint=hint) from error

    # --- models -----------------------------------------------------------------------------------

    def models(self) -> list[Model]:
        """See `Vectors.models`."""
        query = (
            "SELECT name, spec, dimension, complete, vectors FROM @vector_models WHERE rules = %s"
            " ORDER BY complete DESC, number DESC"
        )

        def found(work: Work) -> list[Model]:
            return [
                Model(text(name), text(spec), dimension, complete, vectors)
                for name, spec, dimension, complete, vectors in work.rows(query, _RULES)
            ]

        return self._read(found, [])

    def begin(self, name: str, spec: str, dimension: int) -> None:
        """See `Vectors.begin`."""
        known = f"{_MODEL} AND spec = %s AND dimension = %s"
        if self._read(lambda work: work.row(known, key(name), _RULES, cell(spec), dimension), None):
            return
        query = (
            "INSERT INTO @vector_models"
            " (key, rules, name, spec, dimension, complete, vectors)"
            " VALUES (%s, %s, %s, %s, %s, false, 0)"
            " ON CONFLICT (key, rules) DO UPDATE SET spec = excluded.spec RETURNING number,"
            " dimension"
        )

        def change(work: Work) -> None:
            row = (key(name), _RULES, cell(name), cell(spec), dimension)
            ((number, before),) = work.rows(query, *row)
            if before != dimension:
                # Nothing can be compared with those any more.
                _forget(work, "= %s", number)
                again = "UPDATE @vector_models SET dimension = %s, vectors = 0 WHERE number = %s"
                work.run(again, dimension, number)
                _new_era(work)

        self._server.make()
        self._change(change)

    def complete(self, name: str) -> bool:
        """See `Vectors.complete`."""
        answers = f"{_MODEL} AND complete"
        left = (
            "SELECT EXISTS (SELECT 1 FROM @vector_readings AS o WHERE o.model < %s AND NOT EXISTS ("
            "SELECT 1 FROM @vector_readings AS n WHERE n.namespace = o.namespace AND n.model = %s"
            " AND n.session = o.session))"
        )

        def change(work: Work) -> bool:
            number, _ = _known(work, name)
            if work.row(f"{answers}", key(name), _RULES):
                return True
            if work.row(left, number, number) != (False,):
                return False
            work.run("UPDATE @vector_models SET complete = true WHERE number = %s", number)
            # One that was begun later is on its way to take over itself.
            _forget(work, "< %s", number)
            work.run("DELETE FROM @vector_models WHERE number < %s", number)
            _new_era(work)
            return True

        if self._read(lambda work: work.row(answers, key(name), _RULES), None):
            return True
        return bool(self._begun(change))

    def _begun(self, do: Callable[[Work], T]) -> T:
        """A change of a model that was begun, so that there are tables."""
        try:
            return self._change(do)
        except NotMade:
            raise _unknown() from None

    # --- vectors ----------------------------------------------------------------------------------

    def missing(self, name: str, digests: Collection[int]) -> set[int]:
        """See `Vectors.missing`."""
        query = (
            "SELECT DISTINCT s.digest FROM @vector_sketches AS s"
            " WHERE s.model = %s AND s.digest = ANY(%s::bigint[])"
        )

        def found(work: Work) -> set[int]:
            model = _model(work, name)
            left = set(digests)
            if model is None:
                return left
            for page in _pages(list(left)):
                left -= {digest for (digest,) in work.rows(query, model[0], list(page))}
            return left

        return self._read(found, set(digests))

    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        """See `Vectors.put`."""
        from perdure.embedding.arithmetic import halves, sketches  # noqa: PLC0415 - brings numpy

        # What is kept already stays: somebody else may have been faster.
        query = (
            "WITH given AS (SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[],"
            " %s::bytea[]) WITH ORDINALITY AS g (digest, part, sketch, half, place)),"
            " added AS (INSERT INTO @vector_sketches (model, digest, part, sketch)"
            " SELECT %s, digest, part, sketch FROM given ORDER BY place"
            " ON CONFLICT (model, digest, part) DO NOTHING RETURNING id, digest, part),"
            " kept AS (INSERT INTO @vectors SELECT a.id, g.half FROM added AS a JOIN ("
            "SELECT DISTINCT ON (digest, part) digest, part, half FROM given"
            " ORDER BY digest, part, place) AS g USING (digest, part) RETURNING id)"
            " SELECT count(*) FROM kept"
        )
        rows = [
            (*each, sketch, half)
            for each, sketch, half in zip(made, sketches(vectors), halves(vectors), strict=True)
        ]
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 4

        def change(work: Work) -> int:
            # One writer of a model at a time, so that numbers become visible in their order: who
            # reads on from a number would miss a smaller one that comes later.
            number, dimension = _known(work, name)
            if vectors.shape[1] != dimension:
                reason = f"are of {vectors.shape[1]} numbers, and those of the model of {dimension}"
                raise InvalidValue("vectors", reason)
            ((count,),) = work.rows(query, *columns, number)
            if count:
                more = "UPDATE @vector_models SET vectors = vectors + %s WHERE number = %s"
                work.run(more, count, number)
            return int(count)

        return self._begun(change)

    def kept(self, name: str) -> Iterator[list[int]]:
        """See `Vectors.kept`."""
        query = (
            "SELECT DISTINCT digest FROM @vector_sketches"  # noqa: S608 - ours
            " WHERE model = %s AND digest >= %s::bigint"
            f" ORDER BY digest LIMIT {_PAGE}"
        )
        first = -(2**63)
        while first <= BIGGEST:

            def page(work: Work, *, first: int = first) -> list[int]:
                model = _model(work, name)
                rows = [] if model is None else work.rows(query, model[0], first)
                return [digest for (digest,) in rows]

            digests: list[int] = self._read(page, [])
            if not digests:
                return
            first = digests[-1] + 1
            yield digests

    def remove(self, name: str, digests: Collection[int]) -> None:
        """See `Vectors.remove`."""
        gone = (
            "WITH gone AS (DELETE FROM @vector_sketches WHERE model = %s"
            " AND digest = ANY(%s::bigint[]) RETURNING id),"
            " halves AS (DELETE FROM @vectors WHERE id IN (SELECT id FROM gone))"
            " SELECT count(*) FROM gone"
        )

        def change(work: Work) -> None:
            model = _model(work, name, lock=True)
            if model is None:
                return
            number, _ = model
            ((removed,),) = work.rows(gone, number, list(digests))
            if not removed:
                return
            less = "UPDATE @vector_models SET vectors = vectors - %s WHERE number = %s"
            work.run(less, removed, number)
            # What is not there any more may be said again.
            work.run("UPDATE @vector_readings SET version = -1 WHERE model = %s", number)
            _new_era(work)

        if digests:
            try:
                self._change(change)
            except NotMade:
                return

    def unsound(self, name: str) -> list[int]:
        """See `Vectors.unsound`."""
        query = (
            "SELECT DISTINCT s.digest FROM @vector_sketches AS s LEFT JOIN @vectors AS v"
            " ON v.id = s.id WHERE s.model = %s AND (v.id IS NULL"
            " OR octet_length(v.half) <> %s OR octet_length(s.sketch) <> %s)"
        )

        def found(work: Work) -> list[int]:
            model = _model(work, name)
            if model is None:
                return []
            number, dimension = model
            sizes = (_HALF_BYTES * dimension, 8 * -(-dimension // 64))
            return [digest for (digest,) in work.rows(query, number, *sizes)]

        return self._read(found, [])

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
        query = (
            "INSERT INTO @vector_readings (namespace, model, session, id, within, version)"
            " VALUES (%s, %s, %s, %s, %s, %s)"
            " ON CONFLICT (namespace, model, session) DO UPDATE SET version = excluded.version"
        )

        def change(work: Work) -> None:
            # Who removes vectors waits for this, or this waits for them: the era holds until then.
            number, _ = _known(work, name)
            if era is None or _era(work) == era:
                row = (key(session), cell(session), cell(namespace), version)
                work.run(query, within(namespace), number, *row)

        self._begun(change)

    def era(self) -> str:
        """See `Vectors.era`."""
        return self._read(_era, "")

    def versions(self, name: str, namespace: str) -> dict[str, int]:
        """See `Vectors.versions`."""
        query = "SELECT id, version FROM @vector_readings WHERE namespace = %s AND model = %s"

        def found(work: Work) -> dict[str, int]:
            model = _model(work, name)
            rows = [] if model is None else work.rows(query, within(namespace), model[0])
            return {text(session): version for session, version in rows}

        return self._read(found, {})

    def namespaces(self, name: str) -> list[str]:
        """See `Vectors.namespaces`."""
        query = "SELECT DISTINCT within FROM @vector_readings WHERE model = %s"

        def found(work: Work) -> list[str]:
            model = _model(work, name)
            rows = [] if model is None else work.rows(query, model[0])
            return sorted(text(namespace) for (namespace,) in rows)

        return self._read(found, [])

    def keep_readings(self, namespace: str, sessions: Collection[str]) -> None:
        """See `Vectors.keep_readings`."""
        which = "FROM @vector_readings WHERE namespace = %s AND session <> ALL(%s::bytea[])"
        bound = (within(namespace), keys(sessions))
        if self._read(lambda work: work.row(f"SELECT 1 {which} LIMIT 1", *bound), None):
            self._change(lambda work: work.run(f"DELETE {which}", *bound))

    # --- search -----------------------------------------------------------------------------------

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        """See `Vectors.nearest`."""
        if most <= 0:
            return []
        return self._read(lambda work: self._nearest(work, name, query, digests, most), [])

    def _nearest(
        self, work: Work, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        model = _model(work, name)
        if model is None:
            return []
        number, dimension = model
        if len(query) != dimension:
            reason = f"has {len(query)} numbers, and the vectors of the model have {dimension}"
            raise InvalidValue("query", reason)
        if digests is not None and len(digests) <= EXACT_MAX:
            some = list({*digests})
            if work.rows(_FEW, some, number)[0][0] <= EXACT_MAX:
                return _compared(work.rows(_ALL_OF, number, some), query, most)
        sketches = self._sketches(work, name, number, dimension)
        places = None if digests is None else sketches.among(list(digests))
        count = len(sketches.ids) if places is None else len(places)
        rescored = max(RESCORED, 4 * most, count // _RESCORED_SHARE)
        while True:
            closest = sketches.closest(query, places, rescored)
            rows = work.rows(_THESE, number, sketches.ids[closest].tolist())
            near = _compared(rows, query, most)
            # Pieces of a few long passages may be nearer than all others.
            if len(near) >= most or rescored >= count:
                return near
            rescored *= 4

    def _sketches(self, work: Work, name: str, number: int, dimension: int) -> Any:
        """All sketches of a model; only those that are new are read."""
        from perdure.embedding.arithmetic import Sketches  # noqa: PLC0415 - brings numpy

        era = _era(work)
        with self._lock:
            known = self._known.get(name)
        if known is None or (known.model, known.era) != (number, era):
            known = _Known(number, era, Sketches.none(dimension))
        sketches = known.sketches
        # Another thread may have read a newer state than this transaction sees: what is found by
        # those is not there, so it is left out, and a sketch is never taken back in an era.
        query = (
            "SELECT id, digest, sketch FROM @vector_sketches WHERE model = %s AND id > %s::bigint"
            " ORDER BY id"
        )
        last = int(sketches.ids[-1]) if len(sketches.ids) else 0
        rows = work.rows(query, number, last)
        size = 8 * sketches.bits.shape[1]
        if any(len(sketch) != size for _, _, sketch in rows):
            raise Unsound("a sketch is of another length than those of its model")
        if rows:
            sketches = sketches.and_these(rows)
        with self._lock:
            # One model answers at a time.
            self._known = {name: _Known(number, era, sketches)}
        return sketches

    # --- the medium -------------------------------------------------------------------------------

    def size(self) -> int:
        """See `Vectors.size`."""
        tables = " + ".join(f"pg_total_relation_size('@{each}')" for each in VECTOR_TABLES)
        found = self._read(lambda work: work.row(f"SELECT {tables}"), None)
        return 0 if found is None else int(found[0])

    def close(self) -> None:
        """See `Vectors.close`; the server is closed by whoever opened it."""
        with self._lock:
            self._known = {}


def _model(work: Work, name: str, *, lock: bool = False) -> tuple[int, int] | None:
    """Number and dimension of a model; with `lock` nobody else changes it until the end."""
    row = work.row(f"{_MODEL} FOR UPDATE" if lock else _MODEL, key(name), _RULES)
    return None if row is None else (row[0], row[1])


def _known(work: Work, name: str) -> tuple[int, int]:
    """Number and dimension of a model that was begun; nobody else changes it until the end."""
    found = _model(work, name, lock=True)
    if found is None:
        raise _unknown()
    return found


def _unknown() -> InvalidValue:
    return InvalidValue("model", "was never begun, or was removed meanwhile")


def _forget(work: Work, which: str, number: int) -> None:
    """Forget the vectors and readings of some models."""
    ids = f"SELECT id FROM @vector_sketches WHERE model {which}"  # noqa: S608 - ours
    work.run(f"DELETE FROM @vectors WHERE id IN ({ids})", number)  # noqa: S608 - ours
    for table in ("vector_sketches", "vector_readings"):
        work.run(f"DELETE FROM @{table} WHERE model {which}", number)  # noqa: S608 - ours


def _era(work: Work) -> str:
    row = work.row("SELECT era FROM @vector_era")
    return "" if row is None else str(row[0])


def _new_era(work: Work) -> None:
    # A random text: a counter might come to the same number again on a server that took over.
    work.run("UPDATE @vector_era SET era = gen_random_uuid()::text")


def _pages(digests: Sequence[int]) -> Iterator[Sequence[int]]:
    for at in range(0, len(digests), _PAGE):
        yield digests[at : at + _PAGE]


def _compared(rows: Sequence[tuple[int, int, bytes]], query: Any, most: int) -> list[Near]:
    """The nearest passages of some vectors (digest, part, half), compared in full."""
    from perdure.embedding.arithmetic import best, scores  # noqa: PLC0415 - brings numpy

    if any(len(half) != _HALF_BYTES * len(query) for _, _, half in rows):
        raise Unsound("a vector is of another length than those of its model")
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
