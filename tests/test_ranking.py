"""The order of hits: how well they fit, what is newer, and one of two that say the same."""

import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.catalog.contract import Candidate
from perdure.catalog.passages import KINDS
from perdure.catalog.ranking import Ranked, ranked
from perdure.model.limits import TIME_MS_MAX
from tests.support import scaled

DAY_MS = 86_400_000
NOW = 1_900_000_000_000


def candidate(seq: int = 0, kind: str = "user", relevance: float = 1.0, **more: Any) -> Candidate:
    usual: dict[str, Any] = {"session": "s", "agent": None, "time": NOW, "digest": 0, "call": None}
    return Candidate(seq=seq, kind=kind, relevance=relevance, **usual | more)


def order(*candidates: Candidate) -> list[int]:
    return [each.candidate.seq for each in ranked(candidates, NOW)]


def test_nothing_is_ranked_as_nothing() -> None:
    """Without candidates there is no hit."""
    assert ranked([], NOW) == []


def test_what_fits_better_comes_first() -> None:
    """Of what is equally old and of one kind, the more relevant comes first, with its score."""
    given = [candidate(1, relevance=1.0), candidate(2, relevance=3.0), candidate(3, relevance=2.0)]
    found = ranked(iter(given), NOW)
    assert [each.candidate for each in found] == [given[1], given[2], given[0]]
    scores = [each.score for each in found]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) > 0


def test_what_is_newer_comes_first() -> None:
    """Of what fits as well, the newer comes first, however little newer it is."""
    ages = (400 * DAY_MS, 0, 30 * DAY_MS, 1)
    given = [candidate(seq, time=NOW - age) for seq, age in enumerate(ages)]
    assert order(*given) == [1, 3, 2, 0]


def test_age_never_outweighs_what_fits_much_better() -> None:
    """What is said just now counts a quarter more than what was said long ago, and no more."""
    now, never = candidate(1), candidate(2, time=-TIME_MS_MAX)
    (new,), (old,) = ranked([now], NOW), ranked([never], NOW)
    assert new.score == pytest.approx(1.25 * old.score)
    (month,) = ranked([candidate(time=NOW - 30 * DAY_MS)], NOW)
    assert month.score == pytest.approx(1.125 * old.score)
    assert order(now, candidate(2, relevance=1.3, time=-TIME_MS_MAX)) == [2, 1]


def test_what_comes_from_a_clock_that_is_ahead_is_new() -> None:
    """A time in the future counts as now."""
    (now,), (ahead,) = ranked([candidate()], NOW), ranked([candidate(time=TIME_MS_MAX)], NOW)
    assert ahead.score == now.score


def test_what_people_look_for_comes_before_outputs() -> None:
    """Of what fits as well, what was said comes before calls, and these before their results."""
    given = [
        candidate(1, "tool-result"),
        candidate(2, "tool-call"),
        candidate(3, "assistant"),
        candidate(4, "title"),
    ]
    assert order(*given) == [4, 3, 2, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_ranked(kind: str) -> None:
    """Each kind has a weight, near that of the others."""
    (found,) = ranked([candidate(kind=kind)], NOW)
    assert 0.5 < found.score < 2


# --- the same call --------------------------------------------------------------------------------


def test_of_one_call_the_better_is_left() -> None:
    """The block that asks for a call and the event that begins it are one hit, the better one."""
    block = candidate(1, "tool-call", 1.0, call=5)
    begun = candidate(2, "tool-call", 2.0, call=5)
    other = candidate(3, "tool-call", 0.5, call=6)
    assert order(block, begun, other) == order(other, begun, block) == [2, 3]


def test_only_calls_of_one_session_are_the_same() -> None:
    """Ids of calls may come again in another session; results and errors say something else."""
    given = [
        candidate(1, "tool-call", 5.0, call=0),
        candidate(2, "tool-call", 4.0, call=0, session="r"),
        candidate(3, "tool-result", 3.0, call=0),
        candidate(4, "error", 2.0, call=0),
        candidate(5, "tool-call", 1.0, call=None),
        candidate(6, "tool-call", 0.5, call=None),
        candidate(7, "tool-call", 0.1, call=0),
    ]
    assert order(*given) == [1, 2, 3, 4, 5, 6]


# --- ties -----------------------------------------------------------------------------------------


def test_what_cannot_be_told_apart_goes_by_session_and_number() -> None:
    """Of two with one score and one time, the smaller session id, then number, comes first."""
    given = [
        candidate(2, session="b"),
        candidate(1, session="b"),
        candidate(9, session="a"),
    ]
    assert order(*given) == order(*reversed(given)) == [9, 1, 2]


CANDIDATES = st.builds(
    Candidate,
    session=st.sampled_from(("a", "b")),
    seq=st.integers(0, 2),
    kind=st.sampled_from(("user", "assistant", "tool-call", "tool-result", "error")),
    agent=st.none(),
    time=st.sampled_from((NOW, NOW - 30 * DAY_MS, NOW + 1, -TIME_MS_MAX)),
    digest=st.integers(0, 3),
    call=st.sampled_from((None, 0, 1)),
    relevance=st.sampled_from((0.0, 1.0, 1.0, 2.5, 1e300)) | st.floats(0, 1e3),
)


@settings(max_examples=scaled(5000))
@given(st.lists(CANDIDATES, max_size=8, unique_by=lambda each: each[:3] + each[5:6]), st.integers())
@example([candidate(digest=1), candidate(digest=2)], 0)
@example([candidate(kind="job", digest=1), candidate(kind="state", digest=1)], 0)
@example([candidate(kind="tool-call", digest=each, call=1) for each in (1, 2)], 0)
def test_the_order_is_of_the_candidates_alone(given: list[Candidate], seed: int) -> None:
    """In whatever order candidates come, the same ones are left, in the same order."""
    found = ranked(given, NOW)
    shuffled = random.Random(seed).sample(given, len(given))
    assert ranked(shuffled, NOW) == found == ranked(reversed(given), NOW)
    _is_sound(given, found)


def _is_sound(given: list[Candidate], found: list[Ranked]) -> None:
    """Demand an order by score, and that only pairs of one call are left out."""
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    kept = [each.candidate for each in found]
    assert len({*kept}) == len(kept)
    calls = [(each.session, each.call) for each in kept if _is_call(each)]
    assert len({*calls}) == len(calls)
    best = {
        (each.candidate.session, each.candidate.call): each.score
        for each in found
        if _is_call(each.candidate)
    }
    for left in {*given} - {*kept}:
        assert _is_call(left)
        (alone,) = ranked([left], NOW)
        assert best[left.session, left.call] >= alone.score


def _is_call(each: Candidate) -> bool:
    return each.kind == "tool-call" and each.call is not None
