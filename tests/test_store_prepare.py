"""Prepared sessions: an exclusive reservation, and a log that is not read twice."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Store
from perdure.backends.directory import backend as directory
from perdure.backends.memory import MemoryBackend
from perdure.errors import SessionBusy, SessionDamaged, SessionNotFound
from perdure.evidence import Seen
from perdure.model.event import Event
from perdure.model.record import Position
from perdure.recovery.walk import Piece
from perdure.store import survey


class Counting(MemoryBackend):
    """A medium that counts how often a log is read."""

    scans = 0

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        self.scans += 1
        return super().scan(session, begin, seq=seq)


def written(store: Store, id: str = "s", *keys: str) -> None:
    with store.create(id) as session:
        session.append("turn/start", {}, turn="t")
        for key in keys:
            session.append("x", key, key=key)


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture
def store(backend: Counting) -> Iterator[Store]:
    with Store(backend) as opened:
        yield opened


def test_a_reservation_is_exclusive(store: Store) -> None:
    """While a session is prepared nobody else gets its writer; the reservation can be used."""
    written(store)
    with store.prepare("s") as prepared:
        with pytest.raises(SessionBusy):
            store.writer("s")
        with pytest.raises(SessionBusy):
            store.prepare("s")
        assert prepared.header.id == "s"
        before, session = prepared.position, prepared.session()
    assert session.append("x").seq == before.seq + 1
    assert prepared.position == session.position
    session.close()


def test_an_unused_reservation_is_given_back(store: Store) -> None:
    """Leaving the context without taking the writer frees the session, closers committed."""
    written(store)
    with store.prepare("s") as prepared:
        assert prepared.position.seq == 1
    with store.writer("s") as session:
        assert session.position.seq == 1
    assert [event.type for event in store.read_from("s")] == ["turn/start", "turn/end"]


def test_preparing_nothing_reserves_nothing(store: Store) -> None:
    """A session that is not there cannot be prepared, and its id stays free."""
    with pytest.raises(SessionNotFound):
        store.prepare("s")
    written(store)


def test_what_was_inspected_is_not_read_again(store: Store, backend: Counting) -> None:
    """Inspecting a session and then resuming it reads its log once."""
    written(store, "s", "k")
    backend.scans = 0
    found = store.inspect("s")
    assert found.problems == []
    assert len(found.closers) == 1
    assert backend.scans == 1
    with store.prepare("s") as prepared, prepared.session() as session:
        assert session.append("x", "k", key="k").seq == 1
        assert backend.scans == 2  # the repeated event itself
        assert session.append("x", "new").seq == 3


def test_a_changed_log_is_read_again(store: Store, backend: Counting) -> None:
    """What somebody else wrote meanwhile is seen, keys and all."""
    written(store)
    assert store.inspect("s").problems == []
    with Store(backend) as other, other.writer("s") as session:
        session.append("x", "theirs", key="k")
    with store.writer("s") as session:
        assert session.append("x", "theirs", key="k").seq == 2
        assert session.append("x", "mine").seq == 3


def test_a_repeated_reading_reads(store: Store, backend: Counting) -> None:
    """Asking for problems reads the log each time: what is remembered is no proof of today."""
    written(store)
    for _ in range(3):
        backend.scans = 0
        assert store.inspect("s").problems == []
        assert store.verify("s").sound
        assert backend.scans == 2


def test_the_facts_longest_unused_are_forgotten(store: Store, backend: Counting) -> None:
    """A bounded number of sessions is remembered."""
    names = [f"s{number}" for number in range(survey.FACTS_MAX + 1)]
    for name in names:
        written(store, name)
        assert store.inspect(name).problems == []
    backend.scans = 0
    store.writer(names[-1]).close()
    assert backend.scans == 0
    store.writer(names[0]).close()
    assert backend.scans == 1


def test_many_keys_are_not_remembered(
    store: Store, backend: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with more keys than the bound is read again rather than kept in memory."""
    monkeypatch.setattr(survey, "KEYS_MAX", 2)
    written(store, "s", "a", "b", "c")
    assert store.inspect("s").problems == []
    backend.scans = 0
    store.writer("s").close()
    assert backend.scans == 1


def test_facts_hold_no_events(store: Store) -> None:
    """What is remembered grows with the keys and the open work, not with the log."""
    written(store, "s", "k")
    with store.writer("s") as session:
        session.append_many([{"type": "note", "data": "x" * 1000}] * 500)
    assert store.inspect("s").problems == []
    kept = store._survey._facts["s"][2]
    assert not any(isinstance(part, Event) for part in (*kept, *kept.closers))
    size = len(msgspec.json.encode([kept.ending, kept.further, [*map(list, kept.keys or ())]]))
    assert size < 1000


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_a_log_that_just_changed_is_not_trusted(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a tick of the clock a file can change and look the same: it is read again then."""
    with perdure.open(tmp_path / "store", encoding=encoding) as store:
        written(store)
    with perdure.open(tmp_path / "store") as store:
        monkeypatch.setattr(directory, "_TICK_MS", 10**12)
        assert store.inspect("s").problems == []
        assert store._survey._facts == {}
        monkeypatch.setattr(directory, "_TICK_MS", -1)
        assert store.inspect("s").problems == []
        assert [*store._survey._facts] == ["s"]


def test_a_closed_writer_is_followed_without_reading(store: Store, backend: Counting) -> None:
    """Appending again and again to a session that nobody else writes reads its log once."""
    with store.create("s") as session:
        session.append("turn/start", {}, turn="t")
        session.append("x", "k", key="k")
    backend.scans = 0
    for number in range(5):
        store.append("s", [{"type": "x", "data": number}])
    assert backend.scans == 0
    assert [event.type for event in store.read_from("s", 2)] == ["turn/end"] + ["x"] * 5
    with store.writer("s") as session:
        assert session.append("x", "k", key="k").seq == 1
        assert session.append("x", "new", key="new").seq == 8
        session.append("turn/start", {}, turn="u")
    assert [event.type for event in store.inspect("s").closers] == ["turn/end"]
    backend.scans = 0
    store.writer("s").close()
    assert backend.scans == 0
    assert [event.type for event in store.read_from("s", 9)] == ["turn/start", "turn/end"]


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_what_a_writer_left_is_trusted_only_as_it_was_left(tmp_path: Path, encoding: str) -> None:
    """A log that changed behind a closed writer is read and judged like any other."""
    with perdure.open(tmp_path / "store", encoding=encoding) as store:
        for number in range(4):
            with store.create(f"s{number}") as session:
                session.append_many([{"type": "x", "data": n} for n in range(3)])
        logs = [Path(str(store.locate(f"s{n}"))) for n in range(4)]
        logs[0].write_bytes(logs[0].read_bytes() + b"torn")
        logs[1].write_bytes(logs[1].read_bytes()[:-80])
        copy = logs[2].read_bytes()
        logs[2].unlink()
        logs[2].write_bytes(copy)
        logs[2].chmod(0o600)

        with store.writer("s0") as session:
            assert session.append("x").seq == 3
        assert len(list(logs[0].parent.rglob("aside/*.bytes"))) == 1
        with pytest.raises(SessionDamaged):
            store.writer("s1")
        for name in ("s2", "s3"):
            with store.writer(name) as session:
                assert session.append("x").seq == 3
            assert store.verify(name).status == "ok"


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_evidence_in_the_background_costs_no_reading(
    store: Store, backend: Counting, every: int
) -> None:
    """Successive calls of append read the log at most once, whenever evidence is noted."""
    written(store)
    store._witness.push()
    backend.scans = 0
    for number in range(10):
        store.append("s", [{"type": "x", "data": number}])
        if number % every == 0:
            store._witness.push()
    assert backend.scans <= 1
    assert [event.data for event in store.read_from("s", 2)] == [*range(10)]


def test_evidence_that_stays_behind_costs_no_reading(store: Store, backend: Counting) -> None:
    """What evidence knew when a writer came is proven for the next one, however old it is."""
    written(store)
    store._witness.push()
    backend.scans = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._witness, "push", lambda: None)
        for number in range(survey._PROVEN_MAX + 8):
            store.append("s", [{"type": "x", "data": number}])
    assert backend.scans <= 1
    proven = store._survey._facts["s"][2].proven
    assert len(proven) <= survey._PROVEN_MAX + 5


def test_what_others_noted_is_looked_for_in_the_log(store: Store, backend: Counting) -> None:
    """A remembered position that this store neither noted nor read is never taken as proven."""
    written(store)
    for number in range(5):
        store.append("s", [{"type": "x", "data": number}])
        store._witness.push()
    header = store.inspect("s").header
    assert header is not None
    lost = Position(3, "0" * 64)
    stranger = Seen("s", header.digest, lost, 2**50)
    backend.evidence.replace(store._witness.namespace, stranger)
    with pytest.raises(SessionDamaged):
        store.append("s", [{"type": "x"}])
