"""What another store remembers is taken over, but for what is known better here."""

from pathlib import Path

import pytest

from perdure.errors import InvalidValue
from perdure.evidence import Acceptance, Deleted, Evidence, Seen
from perdure.model.record import Position

A, B = "a" * 64, "b" * 64


@pytest.fixture(params=["memory", "file"])
def evidence(request: pytest.FixtureRequest, tmp_path: Path) -> Evidence:
    return Evidence(None if request.param == "memory" else str(tmp_path))


def seen(seq: int, at: int, digest: str = A, session: str = "s") -> Seen:
    return Seen(session, digest, Position(seq, B), at)


def accepted(seq: int, at: int) -> Acceptance:
    return Acceptance("s", A, Position(seq, B), None, at)


def test_all_of_it_arrives_in_one_step(evidence: Evidence) -> None:
    """Positions, tombstones and acceptances are there afterwards, and again changes nothing."""
    for _ in range(2):
        evidence.carry(
            "ns",
            seen=[seen(5, 100), seen(7, 120, B)],
            deleted=[Deleted("gone", None, 50)],
            acceptances=[accepted(3, 90), accepted(4, 99)],
        )
        assert evidence.everything_known("ns") == [seen(5, 100), seen(7, 120, B)]
        assert evidence.all_deleted("ns") == [Deleted("gone", None, 50)]
        assert evidence.acceptances("ns", "s") == [accepted(3, 90), accepted(4, 99)]
        assert evidence.about("ns", "s").settled_at == 99
        assert evidence.everything_known("") == []


def test_a_position_that_was_accepted_elsewhere_arrives(evidence: Evidence) -> None:
    """A position with the very acceptance that made it is taken over together with it."""
    evidence.carry("ns", seen=[seen(5, 100)], acceptances=[accepted(5, 100)])
    assert evidence.known("ns", "s") == [seen(5, 100)]


def test_a_position_never_moves_back(evidence: Evidence) -> None:
    """What is known to be further stays, and what was settled here later stays settled."""
    evidence.note([("ns", seen(9, 10))])
    evidence.carry("ns", seen=[seen(5, 100)])
    assert evidence.known("ns", "s") == [seen(9, 10)]
    evidence.accept("ns", accepted(2, 200))
    evidence.carry("ns", seen=[seen(50, 199)])
    assert evidence.known("ns", "s") == [seen(2, 200)]


def test_the_last_deletion_counts(evidence: Evidence) -> None:
    """A tombstone gives way to a later one only."""
    evidence.bury("ns", Deleted("s", A, 100))
    evidence.carry("ns", deleted=[Deleted("s", B, 99)])
    assert evidence.deleted("ns", "s") == Deleted("s", A, 100)
    evidence.carry("ns", deleted=[Deleted("s", B, 101)])
    assert evidence.deleted("ns", "s") == Deleted("s", B, 101)


def test_what_was_forgotten_here_stays_forgotten(evidence: Evidence) -> None:
    """A tombstone from before somebody forgot the id here is not brought back."""
    evidence.bury("ns", Deleted("s", A, 100))
    evidence.forget("ns", "s")
    evidence.carry("ns", deleted=[Deleted("s", A, 100)], seen=[seen(5, 100)])
    assert evidence.about("ns", "s")[:3] == ((), None, ())


def test_acceptances_stand_in_the_order_of_their_times(evidence: Evidence) -> None:
    """One that comes late takes its place before those that were made later."""
    evidence.accept("ns", accepted(4, 100))
    evidence.carry("ns", acceptances=[accepted(1, 50), accepted(4, 100)])
    assert evidence.acceptances("ns", "s") == [accepted(1, 50), accepted(4, 100)]
    assert evidence.about("ns", "s").settled_at == 100
    assert evidence.known("ns", "s") == [seen(4, 100)]
    evidence.accept("ns", accepted(6, 200))
    assert [one.accepted_at for one in evidence.acceptances("ns", "s")] == [50, 100, 200]


def test_one_that_is_none_keeps_the_rest_out(evidence: Evidence) -> None:
    """If one of them cannot be kept, none is."""
    with pytest.raises(InvalidValue):
        evidence.carry("ns", seen=[seen(5, 100)], deleted=[Deleted("s", "no digest", 1)])
    with pytest.raises(InvalidValue):
        evidence.carry("ns", seen=[seen(5, 100)], acceptances=[accepted(-2, 1)])
    assert evidence.everything_known("ns") == []


def test_nothing_makes_no_file(tmp_path: Path) -> None:
    """Where nothing is to be taken over, no file appears."""
    Evidence(str(tmp_path)).carry("ns")
    assert [*tmp_path.iterdir()] == []
