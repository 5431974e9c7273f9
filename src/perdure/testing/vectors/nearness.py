"""Nearest: what is near to a query, once each, the nearest first."""

from typing import Any

import numpy as np

from perdure.embedding.vectors import Made, Vectors
from perdure.testing.vectors.place import (
    A,
    B,
    VectorsCase,
    around,
    asked,
    begun,
    clustered,
    put,
    rows,
    scored,
)

__all__ = ["Nearness"]

DIMENSION = 64
TOLERANCE = 1e-5
"""Sums of 32 bits come out otherwise by so much where numbers are added in another order."""


def apart(some: Any, count: int) -> tuple[Any, Any]:
    """The first so many vectors, and the others: what is looked for is of the same kind."""
    return some[:count], some[count:]


class Nearness(VectorsCase):
    """Which passages are near."""

    def test_the_nearest_come_first(self, vectors: Vectors) -> None:
        """Passages come by the cosine of their angle, which is the score."""
        begun(vectors)
        put(vectors, A, [1, 2, 3, 4], around(180, 60, 90, 0))
        for digests in (None, [1, 2, 3, 4]):
            found = vectors.nearest(A, around(0)[0], digests, 10)
            assert [each.digest for each in found] == [4, 2, 3, 1]
            scores = np.array([each.score for each in found])
            assert np.allclose(scores, [1, 0.5, 0, -1], atol=1e-3)

    def test_only_what_was_asked_for_comes(self, vectors: Vectors) -> None:
        """With digests these alone are compared, however often they are named."""
        begun(vectors)
        put(vectors, A, [1, 2, 3], around(0, 10, 20))
        assert asked(vectors, 0, [3, 2, 3, 7]) == [(2, 0), (3, 0)]
        assert asked(vectors, 0, {3}) == [(3, 0)]
        assert asked(vectors, 0, dict.fromkeys([3, 1])) == [(1, 0), (3, 0)]
        assert asked(vectors, 0, [7]) == asked(vectors, 0, []) == asked(vectors, 0, set()) == []

    def test_among_many_digests_only_they_are_compared(self, vectors: Vectors) -> None:
        """With more digests than are compared in full no other passage comes either."""
        begun(vectors)
        put(vectors, A, [1, 2, 3], around(0, 10, 20))
        others = range(10, self.exact_max + 20)
        assert asked(vectors, 0, [*others, 3, 2]) == [(2, 0), (3, 0)]
        assert asked(vectors, 0, set(others)) == []
        put(vectors, A, others[::2], around(*(30 + each / 100 for each in others[::2])))
        assert asked(vectors, 0, [*others, 3], most=3) == [(3, 0), (10, 0), (12, 0)]
        assert asked(vectors, 0, others[1::2]) == []

    def test_as_many_as_asked_for_come(self, vectors: Vectors) -> None:
        """Never more than so many come, and none where none is wanted."""
        begun(vectors)
        put(vectors, A, range(20), around(*range(20)))
        for digests in (None, list(range(20))):
            for most in (1, 2, 19, 20, 21, 10**6):
                expected = [(number, 0) for number in range(min(most, 20))]
                assert asked(vectors, 0, digests, most) == expected
            for most in (0, -1):
                assert vectors.nearest(A, around(0)[0], digests, most) == []

    def test_a_passage_comes_once_by_its_nearest_piece(self, vectors: Vectors) -> None:
        """Of the pieces of a passage the nearest one stands for it, with its score."""
        begun(vectors)
        pieces = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (3, 0)]
        put(vectors, A, pieces, around(170, 10, 30, 20, 0, 5))
        for digests in (None, [1, 2, 3]):
            assert asked(vectors, 0, digests) == [(2, 1), (3, 0), (1, 1)]
            assert asked(vectors, 0, digests, most=2) == [(2, 1), (3, 0)]
            assert asked(vectors, 180, digests) == [(1, 0), (2, 0), (3, 0)]

    def test_pieces_take_no_place_of_other_passages(self, vectors: Vectors) -> None:
        """However many pieces of one passage are nearest, the next passages come, too."""
        begun(vectors)
        put(vectors, A, [(1, part) for part in range(60)], around(*[1.0] * 60))
        put(vectors, A, [2, 3], around(50, 70))
        for digests in (None, [1, 2, 3]):
            assert asked(vectors, 0, digests, most=3) == [(1, 0), (2, 0), (3, 0)]

    def test_equal_scores_come_in_the_order_of_digests(self, vectors: Vectors) -> None:
        """Which of equally near passages comes first is no matter of chance, or of who asks."""
        begun(vectors)
        digests = [number * 37 % 101 - 50 for number in range(101)]
        put(vectors, A, digests, around(*[20.0] * 101))
        expected = [(digest, 0) for digest in sorted(digests)]
        assert asked(vectors, 0, most=200) == expected
        for order in (digests, digests[::-1], set(digests)):
            assert asked(vectors, 0, order, most=200) == expected
            assert asked(vectors, 0, order, most=7) == expected[:7]
        assert asked(vectors, 0, most=7) == expected[:7]

    def test_what_says_nothing_is_near_to_nothing(self, vectors: Vectors) -> None:
        """A vector of zeros has the score 0 with each query, and a query of zeros with all."""
        begun(vectors)
        put(vectors, A, [1, 2, 3], rows([0, 0], [0, 1], [0, -1]))
        for digests in (None, [1, 2, 3]):
            assert asked(vectors, 90, digests) == [(2, 0), (1, 0), (3, 0)]
            scores = [each.score for each in scored(vectors, rows([0, 0])[0], digests, 9, A)]
            assert scores == [0, 0, 0]

    def test_models_never_mix(self, vectors: Vectors) -> None:
        """What two models made of the same passages is compared within each alone."""
        begun(vectors, A, 2)
        begun(vectors, B, 3)
        put(vectors, A, [1, 2], around(0, 10))
        put(vectors, B, [2, 3], rows([0, 0, 1], [0, 1, 0]))
        for _ in range(2):
            assert asked(vectors, 0) == asked(vectors, 0, [1, 2, 3]) == [(1, 0), (2, 0)]
            for digests in (None, [1, 2, 3]):
                found = scored(vectors, rows([0, 1, 0.5])[0], digests, 9, B)
                assert [each.digest for each in found] == [3, 2]
        assert vectors.missing(A, [1, 2, 3]) == {3}
        assert vectors.missing(B, [1, 2, 3]) == {1}
        vectors.remove(A, [2])
        assert vectors.missing(B, [2]) == set()
        assert [(model.name, model.vectors) for model in vectors.models()] == [(B, 2), (A, 1)]

    def test_of_few_the_answer_is_exact(self, vectors: Vectors) -> None:
        """Of up to `exact_max` passages come those whose vectors, at 16 bits, are nearest."""
        count = self.exact_max + 500
        kept, queries = apart(clustered(count + 20, DIMENSION, seed=3), count)
        begun(vectors, dimension=DIMENSION)
        put(vectors, A, range(count), kept)
        halves = kept.astype(np.float16).astype(np.float32)
        rng = np.random.default_rng(4)
        for query in queries:
            for size in (1, 50, self.exact_max):
                some = rng.choice(count, size=size, replace=False)
                exact = np.clip(halves[some] @ query, -1, 1)
                found = scored(vectors, query, some.tolist(), 20, A)
                scores = np.array([each.score for each in found])
                assert np.allclose(scores, np.sort(exact)[::-1][:20], atol=TOLERANCE)
                own = np.clip(halves[[each.digest for each in found]] @ query, -1, 1)
                assert np.allclose(scores, own, atol=TOLERANCE)

    def test_of_many_nearly_all_that_are_nearest_come(self, vectors: Vectors) -> None:
        """Of more passages, 99 of 100 of the ten nearest come, with their right scores."""
        kept, queries = apart(clustered(self.many + 50, DIMENSION, seed=6), self.many)
        begun(vectors, dimension=DIMENSION)
        vectors.put(A, [Made(number, 0) for number in range(self.many)], kept)
        halves = kept.astype(np.float16).astype(np.float32)
        half = list(range(0, self.many, 2))
        assert len(half) > self.exact_max
        hits = {"all": 0, "half": 0}
        for query in queries:
            exact = halves @ query
            for which, digests in (("all", None), ("half", half)):
                found = scored(vectors, query, digests, 10, A)
                places = np.argsort(-exact)
                wanted = [each for each in places.tolist() if which == "all" or each % 2 == 0][:10]
                hits[which] += len(set(wanted) & {each.digest for each in found})
                own = exact[[each.digest for each in found]]
                assert np.allclose([each.score for each in found], own, atol=TOLERANCE)
        assert min(hits.values()) >= 0.99 * 10 * len(queries)
