"""The verdict over the end of a log, for every combination of facts."""

import itertools

import pytest

from perdure.recovery.tail import TABLE, Row, TailFacts, Verdict, decide

EVERY = [TailFacts(*facts) for facts in itertools.product((False, True), repeat=7)]


def first_row(facts: TailFacts) -> Row:
    return next(row for row in TABLE if row.fits(facts))


@pytest.mark.parametrize("facts", EVERY, ids=lambda f: "".join("01"[fact] for fact in f))
def test_every_combination_is_decided_by_its_first_row(facts: TailFacts) -> None:
    """Each combination of facts fits at least one row, and the first of them decides."""
    fitting = [row for row in TABLE if row.fits(facts)]

    assert fitting != []
    assert decide(facts) is fitting[0].verdict


def test_every_row_is_reached() -> None:
    """No row of the table is hidden by the rows above it."""
    assert {id(first_row(facts)) for facts in EVERY} == set(map(id, TABLE))


def test_every_row_has_a_story() -> None:
    """Each row says in a sentence what led to it."""
    for row in TABLE:
        assert row.story[0].isupper()
        assert row.story.endswith(".")
        assert len(row.story.split()) > 5
    assert len({row.story for row in TABLE}) == len(TABLE)


def test_every_verdict_has_a_row() -> None:
    """Each verdict can be reached."""
    assert {row.verdict for row in TABLE} == set(Verdict)


def by_hand(f: TailFacts) -> Verdict:
    """The table again, in the words of the design."""
    if not f.format_known:
        return Verdict.UNSUPPORTED
    if not f.header_intact or not f.acknowledged_kept:
        return Verdict.DAMAGED
    if not f.all_intact:
        return Verdict.DAMAGED if f.later_acknowledged else Verdict.TORN
    if f.unterminated:
        return Verdict.UNTERMINATED
    return Verdict.AHEAD if f.beyond else Verdict.COMPLETE


def test_the_table_is_the_one_of_the_design() -> None:
    """The verdicts are those of the design's table of states, for all 128 combinations."""
    assert [decide(facts) for facts in EVERY] == [by_hand(facts) for facts in EVERY]


def test_nothing_acknowledged_is_ever_called_torn() -> None:
    """Whatever else is seen, a missing acknowledged position is damage, or another format."""
    verdicts = {decide(facts) for facts in EVERY if not facts.acknowledged_kept}

    assert verdicts == {Verdict.DAMAGED, Verdict.UNSUPPORTED}
