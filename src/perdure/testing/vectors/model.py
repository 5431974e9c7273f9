"""Vectors in plain dictionaries: what every other store of them is held against."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from perdure.embedding.vectors import Made, Model, Near, Vectors
from perdure.errors import InvalidValue

__all__ = ["PlainVectors"]


class _Kept:
    """What is kept of one model."""

    def __init__(self, spec: str, dimension: int) -> None:
        self.spec = spec
        self.dimension = dimension
        self.complete = False
        self.rows: dict[Made, Any] = {}
        self.read: dict[tuple[str, str], int] = {}


class PlainVectors(Vectors):
    """The contract, word for word; each query is compared with all vectors."""

    def __init__(self) -> None:
        """There are none."""
        self._kept: dict[str, _Kept] = {}
        self._removals = 0

    def models(self) -> list[Model]:
        """See `Vectors.models`."""
        found = [
            Model(name, kept.spec, kept.dimension, kept.complete, len(kept.rows))
            for name, kept in reversed(self._kept.items())
        ]
        return sorted(found, key=lambda model: not model.complete)

    def begin(self, name: str, spec: str, dimension: int) -> None:
        """See `Vectors.begin`."""
        kept = self._kept.setdefault(name, _Kept(spec, dimension))
        kept.spec = spec
        if kept.dimension != dimension:
            kept.dimension, kept.rows, kept.read = dimension, {}, {}
            self._removals += 1

    def _begun(self, name: str) -> _Kept:
        if name not in self._kept:
            raise InvalidValue("model", "was never begun")
        return self._kept[name]

    def complete(self, name: str) -> bool:
        """See `Vectors.complete`."""
        own, names = self._begun(name), list(self._kept)
        if own.complete:
            return True
        older = names[: names.index(name)]
        if any(self._kept[each].read.keys() - own.read.keys() for each in older):
            return False
        own.complete = True
        self._kept = {each: kept for each, kept in self._kept.items() if each not in older}
        self._removals += 1
        return True

    def missing(self, name: str, digests: Collection[int]) -> set[int]:
        """See `Vectors.missing`."""
        return set(digests) - self._digests(name)

    def _digests(self, name: str) -> set[int]:
        return {made.digest for made in self._kept[name].rows} if name in self._kept else set()

    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        """See `Vectors.put`."""
        kept = self._begun(name)
        if vectors.shape[1] != kept.dimension:
            raise InvalidValue("vectors", "are of another dimension")
        before = len(kept.rows)
        for each, row in zip(made, vectors, strict=True):
            kept.rows.setdefault(each, row.astype(np.float16).astype(np.float32))
        return len(kept.rows) - before

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        """See `Vectors.nearest`."""
        if name not in self._kept:
            return []
        if len(query) != self._kept[name].dimension:
            raise InvalidValue("query", "is of another dimension")
        best: dict[int, Near] = {}
        for (digest, part), row in sorted(self._kept[name].rows.items()):
            score = min(1.0, max(-1.0, float(row @ query)))
            inside = digests is None or digest in digests
            if inside and (digest not in best or score > best[digest].score):
                best[digest] = Near(digest, part, score)
        found = sorted(best.values(), key=lambda each: (-each.score, each.digest))
        return found[: max(0, most)]

    def kept(self, name: str) -> Iterator[list[int]]:
        """See `Vectors.kept`."""
        for digest in sorted(self._digests(name)):
            yield [digest]

    def unsound(self, name: str) -> list[int]:  # noqa: ARG002 - nothing here is ever damaged
        """See `Vectors.unsound`."""
        return []

    def remove(self, name: str, digests: Collection[int]) -> None:
        """See `Vectors.remove`."""
        gone = set(digests) & self._digests(name)
        if gone:
            kept = self._kept[name]
            kept.rows = {made: row for made, row in kept.rows.items() if made.digest not in gone}
            kept.read = dict.fromkeys(kept.read, -1)
            self._removals += 1

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
        kept = self._begun(name)
        if era in (None, self.era()):
            kept.read[namespace, session] = version

    def era(self) -> str:
        """See `Vectors.era`."""
        return str(self._removals)

    def versions(self, name: str, namespace: str) -> dict[str, int]:
        """See `Vectors.versions`."""
        read = self._kept[name].read if name in self._kept else {}
        return {
            session: version for (within, session), version in read.items() if within == namespace
        }

    def namespaces(self, name: str) -> list[str]:
        """See `Vectors.namespaces`."""
        return sorted({within for within, _ in self._kept[name].read}) if name in self._kept else []

    def keep_readings(self, namespace: str, sessions: Collection[str]) -> None:
        """See `Vectors.keep_readings`."""
        for kept in self._kept.values():
            for place in list(kept.read):
                if place[0] == namespace and place[1] not in sessions:
                    del kept.read[place]

    def size(self) -> int:
        """See `Vectors.size`."""
        return sum(row.nbytes for kept in self._kept.values() for row in kept.rows.values())

    def close(self) -> None:
        """See `Vectors.close`."""
        self._kept.clear()
