"""Putting, missing, kept, removing: what there are vectors of."""

import numpy as np
import pytest

from perdure.embedding.vectors import Made, Vectors
from perdure.errors import InvalidValue
from perdure.testing.vectors.place import (
    A,
    B,
    VectorsCase,
    around,
    asked,
    begun,
    clustered,
    everything,
    put,
    rows,
)

__all__ = ["Putting"]

EDGES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1]


class Putting(VectorsCase):
    """What is put is there, once, until it is removed."""

    def test_there_is_nothing_at_first(self, vectors: Vectors) -> None:
        """Before anything is begun every answer is empty, and nothing is made by asking."""
        assert vectors.models() == []
        assert vectors.missing(A, [1, 2]) == {1, 2}
        assert asked(vectors, 0) == asked(vectors, 0, [1]) == []
        assert everything(vectors) == []
        assert vectors.versions(A, "").get("s") is None
        assert len(vectors.versions(A, "")) == 0
        vectors.remove(A, [1])
        vectors.remove(A, [])
        vectors.keep_readings("", [])
        assert vectors.models() == []

    def test_what_is_put_is_not_missing(self, vectors: Vectors) -> None:
        """Digests that have a vector are not missing, all others are, each once."""
        begun(vectors)
        assert vectors.missing(A, [3, 1, 2, 1]) == {1, 2, 3}
        assert put(vectors, A, [1, 2], around(0, 90)) == 2
        assert vectors.missing(A, [3, 1, 2, 3]) == {3}
        assert vectors.missing(A, []) == set()
        assert vectors.missing(A, {1, 2}) == set()
        assert everything(vectors) == [1, 2]
        assert [model.vectors for model in vectors.models()] == [2]

    def test_digests_are_whole_numbers_of_64_bits(self, vectors: Vectors) -> None:
        """The smallest and the biggest digest are kept and found as all others are."""
        begun(vectors)
        assert put(vectors, A, EDGES, around(0, 10, 20, 30, 40, 50)) == 6
        assert vectors.missing(A, [*EDGES, 7]) == {7}
        assert everything(vectors) == EDGES
        expected = [(digest, 0) for digest in EDGES]
        assert asked(vectors, 0) == asked(vectors, 0, EDGES) == expected
        vectors.remove(A, EDGES[:1] + EDGES[-1:])
        assert everything(vectors) == EDGES[1:-1]

    def test_the_first_to_put_wins(self, vectors: Vectors) -> None:
        """A vector that is there stays as it is, and is not counted again."""
        begun(vectors)
        assert put(vectors, A, [1, 2], around(0, 90)) == 2
        assert put(vectors, A, [1, 2], around(180, 270)) == 0
        assert put(vectors, A, [2, 3], around(180, 45)) == 1
        assert asked(vectors, 0) == asked(vectors, 0, [1, 2, 3]) == [(1, 0), (3, 0), (2, 0)]
        assert [model.vectors for model in vectors.models()] == [3]

    def test_a_piece_that_comes_twice_in_one_put_is_kept_once(self, vectors: Vectors) -> None:
        """Of two vectors of one piece the first is kept, also within one call."""
        begun(vectors)
        assert put(vectors, A, [1, 2, 1], around(0, 10, 180)) == 2
        assert asked(vectors, 0) == [(1, 0), (2, 0)]
        assert vectors.models()[0].vectors == 2

    def test_nothing_may_be_put(self, vectors: Vectors) -> None:
        """A call without vectors is one, and changes nothing."""
        begun(vectors)
        assert put(vectors, A, [], np.zeros((0, 2), np.float32)) == 0
        assert vectors.models()[0].vectors == 0

    def test_pieces_are_kept_apart(self, vectors: Vectors) -> None:
        """A passage of several pieces has a vector for each, and is one passage."""
        begun(vectors)
        pieces = [(1, 0), (1, 1), (1, 2), (2, 0)]
        assert put(vectors, A, pieces, around(0, 90, 180, 45)) == 4
        assert everything(vectors) == [1, 2]
        assert vectors.missing(A, [1, 2]) == set()
        assert vectors.models()[0].vectors == 4
        vectors.remove(A, [1])
        assert everything(vectors) == [2]
        assert vectors.models()[0].vectors == 1

    def test_models_that_were_never_begun_take_nothing(self, vectors: Vectors) -> None:
        """What is given to a model that was not begun, or that is gone, is refused."""
        begun(vectors)
        for call in (
            lambda: put(vectors, B, [1], around(0)),
            lambda: vectors.put_reading(B, "", "s", 1),
            lambda: vectors.complete(B),
        ):
            with pytest.raises(InvalidValue):
                call()
        vectors.remove(B, [1])
        assert [model.name for model in vectors.models()] == [A]
        assert vectors.complete(A)
        with pytest.raises(InvalidValue):
            vectors.complete(B)
        begun(vectors, B)
        assert vectors.complete(B)
        with pytest.raises(InvalidValue):
            put(vectors, A, [1], around(0))

    def test_vectors_of_another_dimension_are_refused(self, vectors: Vectors) -> None:
        """A model has vectors of one dimension; others are refused, and all stays as it was."""
        begun(vectors, dimension=2)
        put(vectors, A, [1], around(0))
        for many in (1, 3, 64, 65):
            with pytest.raises(InvalidValue):
                put(vectors, A, [2], rows([1.0] * many))
            for digests in (None, [1], list(range(self.exact_max + 1))):
                with pytest.raises(InvalidValue):
                    vectors.nearest(A, rows([1.0] * many)[0], digests, 1)
        assert put(vectors, A, [3], around(90)) == 1
        assert asked(vectors, 0) == [(1, 0), (3, 0)]
        era = vectors.era()
        begun(vectors, dimension=3)
        # Nothing can be compared with the vectors of before.
        assert (vectors.models()[0].dimension, vectors.models()[0].vectors) == (3, 0)
        assert everything(vectors) == []
        assert vectors.era() != era

    def test_thousands_are_kept(self, vectors: Vectors) -> None:
        """Any number of vectors is put, told of page by page, and removed."""
        begun(vectors, dimension=16)
        digests = [number * 7919 - 2**40 for number in range(self.many)]
        found = clustered(self.many, 16, seed=1)
        for at in range(0, self.many, 2_500):
            some = [Made(digest, 0) for digest in digests[at : at + 2_500]]
            assert vectors.put(A, some, found[at : at + 2_500]) == len(some)
        assert everything(vectors) == digests
        assert vectors.missing(A, [*digests, 5]) == {5}
        vectors.remove(A, digests[: self.many // 2])
        assert everything(vectors) == digests[self.many // 2 :]
        assert vectors.missing(A, digests) == set(digests[: self.many // 2])
        assert vectors.models()[0].vectors == self.many - self.many // 2

    def test_pages_may_be_removed_as_they_come(self, vectors: Vectors) -> None:
        """Whoever removes a page that he was told of is told of all others."""
        begun(vectors)
        put(vectors, A, range(100), around(*range(100)))
        seen: list[int] = []
        for page in vectors.kept(A):
            seen += page
            vectors.remove(A, [digest for digest in page if digest % 2])
        assert sorted(seen) == list(range(100))
        assert everything(vectors) == list(range(0, 100, 2))

    def test_what_is_removed_is_gone(self, vectors: Vectors) -> None:
        """Vectors that were removed answer no more, are missing, and can be put anew."""
        begun(vectors)
        put(vectors, A, [1, 2, 3], around(0, 10, 20))
        vectors.remove(A, [1, 9, 1])
        assert vectors.missing(A, [1, 2, 3]) == {1}
        for digests in (None, [1, 2, 3]):
            assert asked(vectors, 0, digests) == [(2, 0), (3, 0)]
        assert vectors.models()[0].vectors == 2
        assert put(vectors, A, [1], around(15)) == 1
        for digests in (None, [1, 2, 3]):
            assert asked(vectors, 0, digests) == [(2, 0), (1, 0), (3, 0)]
        vectors.remove(A, {1, 2, 3})
        assert asked(vectors, 0) == []
        assert everything(vectors) == []
        assert vectors.models()[0].vectors == 0

    def test_what_is_kept_takes_room(self, vectors: Vectors) -> None:
        """The size is bytes, and grows with what is put."""
        begun(vectors, dimension=64)
        before = vectors.size()
        put(vectors, A, range(1_000), clustered(1_000, 64, seed=2))
        assert vectors.size() >= before + 1_000 * 64 * 2
