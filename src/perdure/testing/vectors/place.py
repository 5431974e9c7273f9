"""Where a contract test keeps its vectors, and what it puts there."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from perdure.embedding.arithmetic import checked
from perdure.embedding.vectors import Made, Near, Vectors
from perdure.runtime import Runtime
from perdure.testing.contract import Clockwork

__all__ = [
    "SPECS",
    "A",
    "B",
    "VectorsCase",
    "around",
    "asked",
    "begun",
    "clustered",
    "everything",
    "put",
    "rows",
    "scored",
]

A, B = "model/a", "model/b"
SPECS = {A: "spec:a", B: "spec:b"}


class VectorsCase:
    """What every part of the suite needs: the vectors under test and what they declare."""

    survives_close: ClassVar[bool] = True
    """What is kept outlives `close`, and a second instance at the same place sees it."""

    exact_max: ClassVar[int] = 2_000
    """Of so many digests the answer is exact, but for numbers of 16 bits; of more, most of it."""

    many: ClassVar[int] = 6_000
    """So many vectors are put where there are to be many."""

    examples: ClassVar[int] = 20
    """How many histories are drawn to be held against the model."""

    def make_vectors(self, folder: Path, runtime: Runtime) -> Vectors:
        """Open the vectors under test in `folder`, which exists and is empty at first."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """The folder of this test."""
        folder = tmp_path / "place"
        folder.mkdir(0o700)
        return folder

    @pytest.fixture
    def vectors(self, place: Path) -> Iterator[Vectors]:
        """A store of vectors in which there are none."""
        made = self.make_vectors(place, Clockwork())
        yield made
        made.close()


def rows(*some: Sequence[float]) -> Any:
    """These, as an embedder's are handed on: of length 1, or 0."""
    return checked(some, len(some), len(some[0]), "some")


def around(*degrees: float) -> Any:
    """Vectors of two numbers, each at its angle; angles between them can be told at sight."""
    turned = np.deg2rad(np.array(degrees))
    return rows(*np.stack((np.cos(turned), np.sin(turned)), axis=1).tolist())


def clustered(count: int, dimension: int, seed: int, clusters: int = 60) -> Any:
    """Vectors as texts have them: some near to each other, most far apart."""
    rng = np.random.default_rng(seed)
    middles = rng.standard_normal((clusters, dimension))
    found = middles[rng.integers(clusters, size=count)]
    found = found + 0.6 * rng.standard_normal((count, dimension))
    return checked(found, count, dimension, "clustered")


def begun(vectors: Vectors, name: str = A, dimension: int = 2) -> None:
    """Begin a model."""
    vectors.begin(name, SPECS.get(name, "spec"), dimension)


def put(vectors: Vectors, name: str, made: Iterable[int | tuple[int, int]], found: Any) -> int:
    """Put vectors of pieces, or of passages that are one piece each; how many were new."""
    pieces = [Made(each, 0) if isinstance(each, int) else Made(*each) for each in made]
    return vectors.put(name, pieces, found)


def asked(
    vectors: Vectors,
    degrees: float,
    digests: Collection[int] | None = None,
    most: int = 10,
    name: str = A,
) -> list[tuple[int, int]]:
    """Digests and parts of what is near to an angle, the nearest first."""
    return [
        (each.digest, each.part)
        for each in scored(vectors, around(degrees)[0], digests, most, name)
    ]


def scored(
    vectors: Vectors, query: Any, digests: Collection[int] | None, most: int, name: str
) -> list[Near]:
    """What is near to a query; every answer keeps these rules."""
    found = vectors.nearest(name, query, digests, most)
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert all(-1 <= score <= 1 for score in scores)
    assert all(type(each.digest) is int and type(each.part) is int for each in found)
    assert all(type(score) is float for score in scores)
    assert len({each.digest for each in found}) == len(found) <= most
    assert digests is None or {each.digest for each in found} <= set(digests)
    return found


def everything(vectors: Vectors, name: str = A) -> list[int]:
    """The digests of all pages, which hold each once."""
    pages = list(vectors.kept(name))
    assert all(pages)
    found = [digest for page in pages for digest in page]
    assert len(found) == len(set(found))
    return sorted(found)
