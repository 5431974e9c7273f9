"""Drawn histories: whatever is put, vectors answer as the model does."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.embedding.vectors import Made, Vectors
from perdure.errors import PerdureError
from perdure.testing.contract import Clockwork
from perdure.testing.vectors.model import PlainVectors
from perdure.testing.vectors.place import VectorsCase, rows

__all__ = ["Agreeing"]

DIGESTS = st.sampled_from((-(2**63), -7, 0, 1, 2, 3, 2**63 - 1))
PARTS = st.integers(0, 2)
MODELS = st.sampled_from(("a", "a", "b", "\ud800"))
DIMENSIONS = st.sampled_from((2, 3))
NAMES = st.sampled_from(("", "\ud800"))
NUMBERS = st.integers(-2, 2).map(float)
AXES = st.tuples(st.integers(0, 1), st.sampled_from((1.0, -1.0)))
"""What is asked for: along one axis a score is a number of the vector, whoever adds them up."""

Call = Callable[[Vectors], Any]

BEGINNING: list[tuple[int, Call]] = [
    (0, lambda vectors: vectors.begin("a", "spec", 2)),
    (1, lambda vectors: vectors.begin("b", "spec", 3)),
]
"""Most of what is drawn is about these; the third model has to be begun before it takes part."""


class Agreeing(VectorsCase):
    """The vectors against the model."""

    def test_vectors_agree_with_the_model(self, tmp_path: Path) -> None:
        """After each change of a drawn history every answer is as the model gives it."""
        places = itertools.count()

        @settings(max_examples=self.examples)
        @given(st.lists(st.tuples(st.integers(0, 1), calls()), max_size=14), questions())
        def check(history: list[tuple[int, Call]], asked: list[Call]) -> None:
            folder = tmp_path / f"drawn-{next(places)}"
            folder.mkdir(0o700)
            clock, model = Clockwork(), PlainVectors()
            real = [self.make_vectors(folder, clock) for _ in range(2)]
            if not self.survives_close:
                real = [real[0], real[0]]
            for which, call in [*BEGINNING, *history]:
                assert told(call, real[which]) == told(call, model)
                for each in real:
                    answers = [told(question, each) for question in asked]
                    assert answers == [told(question, model) for question in asked]
            for each in real:
                each.close()

        check()


def told(call: Call, vectors: Vectors) -> Any:
    """What a call gives; an error by its class."""
    try:
        found = call(vectors)
    except PerdureError as error:
        return type(error)
    return found


def calls() -> SearchStrategy[Call]:
    """One change."""
    return st.one_of(
        st.builds(lambda m, d: lambda v: v.begin(m, f"spec of {m}", d), MODELS, DIMENSIONS),
        *[DIMENSIONS.flatmap(putting) for _ in range(3)],
        st.builds(lambda m, d: lambda v: v.remove(m, d), MODELS, st.lists(DIGESTS, max_size=3)),
        st.builds(
            lambda m, n, s, e: lambda v: v.put_reading(m, n, s, e),
            MODELS,
            NAMES,
            NAMES,
            st.integers(0, 9),
        ),
        st.builds(lambda n, s: lambda v: v.keep_readings(n, s), NAMES, st.lists(NAMES, max_size=2)),
        st.builds(lambda m: lambda v: v.complete(m), MODELS),
    )


def putting(dimension: int) -> SearchStrategy[Call]:
    """A call that puts a few vectors of one dimension."""
    row = st.lists(NUMBERS, min_size=dimension, max_size=dimension)
    some = st.lists(st.tuples(st.builds(Made, DIGESTS, PARTS), row), min_size=1, max_size=5)
    return st.builds(
        lambda m, pairs: (
            lambda v: v.put(m, [made for made, _ in pairs], rows(*(row for _, row in pairs)))
        ),
        MODELS,
        some,
    )


def questions() -> SearchStrategy[list[Call]]:
    """A question of each kind, about each model."""
    return st.builds(
        lambda digests, axis: [
            lambda v: v.models(),
            *(question for name in ("a", "b", "\ud800") for question in of(name, digests, axis)),
        ],
        st.lists(DIGESTS, max_size=5),
        AXES,
    )


def of(name: str, digests: list[int], axis: tuple[int, float]) -> list[Call]:
    """What is asked about one model."""
    place, sign = axis
    flat, deep = (
        rows([sign * (at == place) for at in range(dimension)])[0] for dimension in (2, 3)
    )
    return [
        lambda v: sorted(digest for page in v.kept(name) for digest in page),
        lambda v: v.missing(name, digests),
        *(
            lambda v, query=query, inside=inside, most=most: v.nearest(name, query, inside, most)
            for query in (flat, deep)
            for inside in (None, digests)
            for most in (2, 20)
        ),
        lambda v: [
            v.versions(name, each).get(other) for each in ("", "\ud800") for other in ("", "\ud800")
        ],
        lambda v: [len(v.versions(name, each)) for each in ("", "\ud800")],
    ]
