"""What is computed with vectors: whatever an embedder gives is made sound, or is refused."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.embedding.arithmetic import (
    Sketches,
    best,
    checked,
    halves,
    joined,
    scores,
    sketches,
)
from perdure.errors import EmbedderFaulty

HALF = 2.0**-11
"""So far a number of 16 bits is from what it stands for, as a share of it."""

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.integers(1, 9).flatmap(
    lambda width: st.lists(
        st.lists(NUMBERS, min_size=width, max_size=width), min_size=1, max_size=5
    )
)


class Wilful:
    """Something that is no array, and says so in its own way."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._error


# --- what an embedder gave ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "found",
    [
        [[1.0, 2.0]],
        [[1.0, 2.0, 3.0]],
        [[1.0, 2.0], [3.0]],
        [[1.0, 2.0], 3.0],
        [[[1.0, 2.0], [3.0, 4.0]]],
        [1.0, 2.0],
        [],
        [[], []],
        1.0,
        None,
        "ab",
        {"a": 1},
        object(),
        [[1.0, 2.0], [3.0, None]],
        [[1.0, 2.0], [3.0, "4"]],
        [["1", "2"], ["3", "4"]],
        [[b"1", b"2"], [b"3", b"4"]],
        [[1.0, 2.0], [3.0, 4j]],
        [[1.0, 2.0], [3.0, 10**400]],
        [[1.0, 2.0], [3.0, math.nan]],
        [[1.0, 2.0], [math.inf, 4.0]],
        [[1.0, 2.0], [-math.inf, 4.0]],
        [[True, False], [False, True]],
        np.array([["1", "2"], ["3", "4"]]),
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=object),
        np.array([[1.0, 2.0], [3.0, 4.0]], dtype=complex),
        np.array([["2020", "2021"], ["2022", "2023"]], dtype="datetime64[Y]"),
        np.full((2, 2), np.longdouble(10) ** 400),
        (each for each in ([1.0, 2.0], [3.0, 4.0])),
        Wilful(RuntimeError("no")),
        Wilful(AttributeError("no")),
    ],
    ids=lambda found: f"{found!r:.40}",
)
def test_what_are_no_vectors_is_refused(found: object) -> None:
    """Anything but so many rows of so many finite numbers is an error of the tree."""
    with pytest.raises(EmbedderFaulty) as refused:
        checked(found, 2, 2, "some:embedder")
    assert refused.value.embedder == "some:embedder"
    assert refused.value.hint
    assert not refused.value.retryable


@pytest.mark.parametrize(
    "found",
    [
        [[3.0, 4.0], [0.0, -2.0]],
        [(3, 4), (0, -2)],
        [np.array([3.0, 4.0]), [0, -2]],
        np.array([[3, 4], [0, -2]], dtype=np.int8),
        np.array([[3, 4], [0, -2]], dtype=np.float16),
        np.array([[3, 4], [0, -2]], dtype=np.longdouble),
        np.array([[3, 0], [4, -2]], dtype=">f8").T,
        np.array([[3, 4], [0, -2]], dtype=np.float32).copy(order="F"),
    ],
    ids=lambda found: f"{found!r:.50}",
)
def test_rows_of_any_kind_are_taken(found: object) -> None:
    """Numbers of any width, in lists or arrays, become rows of length 1 in 32 bits."""
    rows = checked(found, 2, 2, "some")
    assert rows.dtype == np.float32
    assert np.allclose(rows, [[0.6, 0.8], [0.0, -1.0]])


@given(ROWS)
def test_rows_have_length_one_or_zero(found: list[list[float]]) -> None:
    """Huge and tiny numbers keep their direction, and only what is 0 stays 0."""
    rows = checked(found, len(found), len(found[0]), "some")
    assert np.isfinite(rows).all()
    for row, given_row in zip(rows.astype(np.float64), found, strict=True):
        biggest = max(abs(number) for number in given_row)
        length = math.sqrt(float(row @ row))
        if biggest == 0:
            assert length == 0
        else:
            assert abs(length - 1) < 1e-6
            scaled = [number / biggest for number in given_row]
            wanted = math.hypot(*scaled)
            assert np.allclose(row, [each / wanted for each in scaled], atol=1e-6)


def test_the_extremes_of_floats_have_a_direction() -> None:
    """Numbers whose squares no float can hold are as good as any."""
    rows = checked([[1.7e308, 1.7e308], [5e-324, -5e-324], [1e-200, 0]], 3, 2, "some")
    assert np.allclose(rows, [[0.7071, 0.7071], [0.7071, -0.7071], [1.0, 0.0]], atol=1e-4)


def test_what_was_given_is_not_changed() -> None:
    """An embedder may give what it keeps."""
    found = np.array([[3.0, 4.0]])
    checked(found, 1, 2, "some")
    assert found.tolist() == [[3.0, 4.0]]


def test_no_vectors_are_none() -> None:
    """Where none were due, none are an answer."""
    assert checked(np.zeros((0, 3)), 0, 3, "some").shape == (0, 3)
    assert joined([checked([[1, 0]], 1, 2, "some"), checked([[0, 1]], 1, 2, "some")]).shape == (
        2,
        2,
    )


# --- halves and scores ----------------------------------------------------------------------------


@given(ROWS)
def test_halves_stand_for_their_rows(found: list[list[float]]) -> None:
    """The score of a row with itself, at 16 bits a number, is 1, or 0 for one of zeros."""
    rows = checked(found, len(found), len(found[0]), "some")
    kept = halves(rows)
    assert {len(half) for half in kept} == {2 * rows.shape[1]}
    back = np.frombuffer(b"".join(kept), "<f2").reshape(rows.shape)
    assert np.abs(back - rows).max() <= HALF
    for row in rows:
        found_scores = scores(row, kept)
        assert np.allclose(found_scores, rows @ row, atol=2 * HALF)
        assert found_scores.min() >= -1
        assert found_scores.max() <= 1


def test_bytes_do_not_depend_on_the_machine() -> None:
    """Halves are IEEE 754 with the little end first, and sketches have the first bit highest."""
    rows = checked([[1.0, -1.0, 0.0]], 1, 3, "some")
    assert halves(rows) == [bytes.fromhex("a839a8b90000")]
    assert sketches(rows) == [bytes.fromhex("8000000000000000")]
    many = checked([[1.0] * 9 + [-1.0] * 60], 1, 69, "some")
    assert sketches(many) == [bytes.fromhex("ff80000000000000" + "00" * 8)]


def test_there_may_be_nothing_to_compare() -> None:
    """Of no halves there are no scores."""
    assert scores(np.ones(2, np.float32), []).shape == (0,)


@pytest.mark.parametrize("half", ["007e", "00fe", "007c", "00fc", "ff7b", "fffb", "0040", "0000"])
def test_damaged_halves_are_near_to_nothing(half: str) -> None:
    """What is no number, or not of length 1, has the score of what is farthest away."""
    damaged = bytes.fromhex(half) + bytes.fromhex("0038")
    sound = halves(checked([[1, 1]], 1, 2, "some"))
    for query in ([1, 0], [0, 1], [-1, 0], [0, 0]):
        row = checked([query], 1, 2, "some")[0]
        found = scores(row, [*sound, damaged, *sound])
        assert found[1] == -1
        assert found[0] == found[2] == scores(row, sound)[0]


# --- sketches -------------------------------------------------------------------------------------


@given(ROWS)
def test_sketches_say_where_a_row_is_above_zero(found: list[list[float]]) -> None:
    """A sketch has a bit for each number, and whole words of 64 bits."""
    rows = checked(found, len(found), len(found[0]), "some")
    kept = sketches(rows)
    assert {len(sketch) for sketch in kept} == {8 * math.ceil(rows.shape[1] / 64)}
    bits = np.unpackbits(np.frombuffer(b"".join(kept), np.uint8).reshape(len(kept), -1), axis=1)
    assert (bits[:, : rows.shape[1]] == (rows > 0)).all()
    assert not bits[:, rows.shape[1] :].any()


@pytest.mark.parametrize("dimension", [1, 63, 64, 65, 512])
def test_the_closest_sketches_differ_least(dimension: int) -> None:
    """Of all, or of some, those come first whose signs differ least from those of the query."""
    rng = np.random.default_rng(dimension)
    rows = checked(rng.standard_normal((300, dimension)), 300, dimension, "some")
    known = Sketches.none(dimension).and_these([])
    for at in range(0, 300, 100):
        some = sketches(rows[at : at + 100])
        known = known.and_these([(at + n + 1, 7 * (at + n), each) for n, each in enumerate(some)])
    assert known.ids.tolist() == list(range(1, 301))
    query = checked(rng.standard_normal((1, dimension)), 1, dimension, "some")[0]
    differing = ((rows > 0) != (query > 0)).sum(axis=1)
    order = np.argsort(differing, kind="stable")
    assert known.closest(query, None, 20).tolist() == order[:20].tolist()
    assert known.closest(query, None, 1_000).tolist() == order.tolist()
    places = known.among([7 * each for each in range(0, 300, 3)] + [1, -7])
    assert places.tolist() == list(range(0, 300, 3))
    wanted = [each for each in order.tolist() if each % 3 == 0]
    assert known.closest(query, places, 5).tolist() == wanted[:5]
    assert known.closest(query, known.among([]), 5).tolist() == []
    assert Sketches.none(dimension).closest(query, None, 5).tolist() == []


# --- the best -------------------------------------------------------------------------------------


def some_values() -> SearchStrategy[list[float]]:
    """Values of which many are equal."""
    return st.lists(st.integers(-3, 3).map(float), max_size=40)


@given(some_values(), st.integers(1, 45))
def test_the_best_come_first_and_equal_ones_in_their_order(values: list[float], most: int) -> None:
    """As many as asked for, the biggest first, and of equal ones those that stood first."""
    found = best(np.array(values, np.float32), most)
    expected = sorted(range(len(values)), key=lambda place: (-values[place], place))
    assert found == expected[:most]
    assert all(type(place) is int for place in found)


@given(some_values(), st.integers(1, 45))
def test_the_best_of_whole_numbers(values: list[float], most: int) -> None:
    """Counts are ranked as scores are."""
    counts = np.array(values, np.int32)
    assert best(counts, most) == best(counts.astype(np.float32), most)
