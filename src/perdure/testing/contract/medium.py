"""What a backend promises to the layers above: lines in order, one writer, nothing hidden."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from perdure.backends.base import Backend, Hold
from perdure.errors import (
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StaleWriter,
)
from perdure.model.event import draft
from perdure.model.header import Header, new_header
from perdure.model.record import Position, Record, seal
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Walk
from perdure.testing.contract.place import ContractCase, Place

__all__ = ["Medium"]

HEADER = new_header("s", created_at=5, cwd="/w")


def records_after(position: Position, *data: Any) -> list[Record]:
    """One record for each value."""
    return seal(position, [draft("x", value, time=1) for value in data], pack=False)


def published(backend: Backend, header: Header = HEADER, *data: Any) -> tuple[Hold, list[Record]]:
    """A new session with its first commit."""
    records = records_after(Position(-1, header.genesis), *(data or (0, 1, 2)))
    return backend.publish(header, records), records


def lines(backend: Backend, session: str = "s") -> list[bytes]:
    """The record lines that are stored."""
    pieces = list(backend.scan(session, backend.stored(session).begin))
    assert [piece.flaw for piece in pieces] == [None] * len(pieces)
    return [line for piece in pieces for line in piece.lines]


def walked(backend: Backend, session: str = "s") -> Walk:
    """A finished pass over a stored session."""
    stored = backend.stored(session)
    assert stored.header is not None
    walk = Walk(
        stored.header,
        backend.scan(session, stored.begin),
        known=Known(backend.tail(session).acknowledged),
        begin=stored.begin,
    )
    for _ in walk.records():
        pass
    return walk


def settled(backend: Backend, session: str = "s") -> Hold:
    """The right to write a stored session, its position taken."""
    hold = backend.lock(session)
    seen = backend.tail(session).acknowledged
    backend.settle(hold, walked(backend, session).ending, seen)
    return hold


class Medium(ContractCase):
    """The backend itself, without a store above it."""

    def test_lines_are_stored_as_they_are(self, place: Place) -> None:
        """Record lines come back byte for byte, commit after commit; the header beside them."""
        backend = place.backend()
        hold, first = published(backend)
        more = records_after(hold.position, "a" * 5000, "\ud800", list(range(500)))
        backend.commit(hold, hold.position, more)
        assert hold.position == more[-1].position
        hold.release()

        again = place.backend()
        stored = again.stored("s")
        assert (stored.header, stored.problem, stored.unsupported) == (HEADER, None, None)
        assert lines(again) == [record.line for record in (*first, *more)]

    def test_a_large_commit_is_stored_whole(self, place: Place) -> None:
        """A commit of several MiB and one record of many MiB are stored like any other."""
        backend = place.backend()
        hold, first = published(backend, HEADER, *(f"{n} " * 40_000 for n in range(12)))
        large = records_after(hold.position, "x" * 15_000_000, 1)
        backend.commit(hold, hold.position, large)
        hold.release()

        assert lines(place.backend()) == [record.line for record in (*first, *large)]
        assert walked(place.backend()).verdict is Verdict.COMPLETE

    def test_the_end_is_known_without_reading(self, place: Place) -> None:
        """`tail` tells the acknowledged position and the size after every commit."""
        backend = place.backend()
        hold, _ = published(backend)
        for number in range(5):
            backend.commit(hold, hold.position, records_after(hold.position, number))
            tail = place.backend().tail("s")
            pieces = list(backend.scan("s", backend.stored("s").begin))
            assert tail.acknowledged == hold.position
            assert tail.size == pieces[-1].end
            assert [p.start for p in pieces[1:]] == [p.end for p in pieces[:-1]]
        hold.release()

    def test_a_wrong_position_is_refused(self, place: Place) -> None:
        """A commit that expects another position is refused, and nothing is written."""
        backend = place.backend()
        hold, _ = published(backend)
        start, before = Position(-1, HEADER.genesis), lines(backend)
        tail = backend.tail("s")

        for wrong in (start, Position(1, "0" * 64), Position(2, "0" * 64), Position(3, "0" * 64)):
            with pytest.raises(StaleWriter) as stale:
                backend.commit(hold, wrong, records_after(wrong, "x"))
            assert stale.value.session == "s"

        assert (lines(backend), backend.tail("s")) == (before, tail)
        backend.commit(hold, hold.position, records_after(hold.position, "y"))
        hold.release()

    def test_the_first_publisher_wins(self, place: Place) -> None:
        """Publishing a taken id is refused and leaves the session as it is."""
        backend = place.backend()
        hold, first = published(backend)
        other = new_header("s", created_at=6)

        for again in (backend, place.backend()):
            with pytest.raises(SessionExists) as taken:
                published(again, other, "other")
            assert taken.value.session == "s"

        backend.commit(hold, hold.position, records_after(hold.position, "mine"))
        hold.release()
        assert backend.stored("s").header == HEADER
        assert lines(backend)[:3] == [record.line for record in first]
        assert len(lines(backend)) == 4

    def test_publishing_takes_the_lock(self, place: Place) -> None:
        """Who publishes holds the session; the others learn who it is and since when."""
        backend = place.backend()
        before = place.runtime.now_ms()
        hold, _ = published(backend)

        for other in (backend, place.backend()):
            holder = other.holder("s")
            assert holder is not None
            assert (holder.pid, holder.host) == (place.runtime.pid(), place.runtime.host())
            assert holder.since is not None
            assert holder.since > before
            with pytest.raises(SessionBusy) as busy:
                other.lock("s")
            assert (busy.value.pid, busy.value.since) == (holder.pid, holder.since)
        hold.release()

        assert backend.holder("s") is None
        backend.lock("s").release()

    def test_a_released_hold_writes_nothing(self, place: Place) -> None:
        """After its release a hold is refused, and releasing again does no harm to the next."""
        backend = place.backend()
        hold, first = published(backend)
        position = hold.position
        hold.check()
        hold.release()
        following = settled(backend)
        hold.release()

        with pytest.raises(SessionClosed):
            hold.check()
        with pytest.raises(SessionClosed):
            backend.commit(hold, position, records_after(position, "late"))
        following.check()
        assert lines(backend) == [record.line for record in first]
        assert not hold.dead
        with pytest.raises(SessionBusy):
            backend.lock("s")
        following.release()

    def test_settling_takes_the_position(self, place: Place) -> None:
        """After `settle` a hold stands where the walk ended; an intact log is not changed by it."""
        backend = place.backend()
        published(backend)[0].release()
        before = [*backend.entries()], lines(backend)

        hold = settled(place.backend())

        assert hold.position == walked(backend).position == backend.tail("s").acknowledged
        assert ([*backend.entries()], lines(backend)) == before
        place.backend().tail("s")
        hold.release()

    def test_a_number_is_found_without_reading(self, place: Place) -> None:
        """A scan from a number starts with a piece at or before the record that holds it."""
        backend = place.backend()
        hold, records = published(backend)
        for number in range(120):
            more = records_after(hold.position, f"{number} " * 500, number)
            backend.commit(hold, hold.position, more)
            records += more
        hold.release()
        begin = backend.stored("s").begin
        far = []
        for seq in (0, 1, 2, 3, 50, 51, 120, 239, 240, 241, 242, 243, 10_000):
            pieces = list(backend.scan("s", begin, seq=seq))
            far.append(pieces[0].start)
            walk = Walk(HEADER, iter(pieces), known=Known(None), begin=far[-1], local=True)
            first, *rest = walk.records()
            assert first.first <= seq
            assert [r.hash for r in (first, *rest)] == [r.hash for r in records[first.first :]]
        assert far == sorted(far)
        assert far[0] == begin

    def test_a_missing_session_is_told(self, place: Place) -> None:
        """Every method that names a session says when it is not there."""
        backend = place.backend()
        calls: Sequence[Callable[[str], object]] = (
            backend.lock,
            backend.holder,
            backend.stored,
            lambda id: list(backend.scan(id, 0)),
            lambda id: list(backend.scan(id, 0, seq=1)),
            backend.tail,
            backend.revision,
            backend.lasting_revision,
            lambda id: backend.blob(id, "0" * 64),
            lambda id: list(backend.blobs(id)),
            lambda id: backend.discard(id, lambda _: None),
            lambda id: backend.restore(id, lambda: None),
        )
        for other_sessions in (0, 1):
            for call in calls:
                with pytest.raises(SessionNotFound) as missing:
                    call("nobody")
                assert missing.value.session == "nobody"
            if not other_sessions:
                published(backend)[0].release()

    def test_entries_show_what_is_stored(self, place: Place) -> None:
        """A listing has each session's header; its revision follows the commits."""
        backend = place.backend()
        assert list(backend.entries()) == []
        headers = [new_header(id, created_at=n) for n, id in enumerate(("b", "A", "a", "\u00e9"))]
        for header in headers:
            published(backend, header)[0].release()

        before = list(backend.entries())
        assert sorted(e.header.created_at for e in before if e.header) == [0, 1, 2, 3]
        assert before == list(place.backend().entries())
        assert len({entry.revision for entry in before}) == 4
        hold = settled(backend, "a")
        backend.commit(hold, hold.position, records_after(hold.position, 1))
        hold.release()

        changed = [x.id for x, y in zip(before, backend.entries(), strict=True) if x != y]
        assert changed == ["a"]

    def test_inherited_facts_of_a_header_are_stored(self, place: Place) -> None:
        """Seed and genesis of a header come back as they were."""
        # deepseek-harness 17
        backend = place.backend()
        header = new_header("s", created_at=0, seed=2)
        published(backend, header)[0].release()

        stored = place.backend().stored("s").header
        assert stored == header
        assert stored is not None
        assert stored.seed == 2

    def test_closing_is_harmless(self, place: Place) -> None:
        """A backend may be closed more than once."""
        backend = place.backend()
        assert backend.persistent
        backend.close()
        backend.close()
