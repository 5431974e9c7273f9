"""Two writers of one session never interleave, and nobody is refused for nothing."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.errors import SessionBusy, StaleWriter
from perdure.model.event import draft
from perdure.model.record import seal
from perdure.recovery import Known, Walk
from perdure.testing.peers import Peer
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = [pytest.mark.proof, pytest.mark.parametrize("encoding", ["raw", "zst"])]

NAME = "shared"


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def store(place: str, encoding: str) -> Iterator[perdure.Store]:
    with perdure.open(place, encoding=encoding) as opened:
        yield opened


def stored(store: perdure.Store) -> list[list[object]]:
    """Return number and data of every event, after making sure that nothing is wrong with them."""
    report = store.verify(NAME)
    assert report.sound
    assert report.problems == []
    events = [*store.read_from(NAME)]
    assert [event.seq for event in events] == [*range(len(events))]
    return [[event.seq, event.data] for event in events]


def break_lock(store: perdure.Store) -> None:
    """Let another writer in as a lock would that does not hold."""
    located = store.locate(NAME)
    assert located is not None
    (Path(located).parent / "lock").unlink()


def test_second_writer_is_told_who_writes(place: str, store: perdure.Store, encoding: str) -> None:
    """A second process gets SessionBusy with pid, host and time, and readers are never refused."""
    with Peer(place, encoding) as first, Peer(place, encoding) as second:
        said = first.ask("create", session=NAME)["acknowledged"]
        for _ in range(20):
            told = second.ask("open", session=NAME)
            assert told["error"] == "session-busy"
            assert told["pid"] == first.pid
            assert told["host"] == os.uname().nodename
            assert isinstance(told["since"], int)
            said += first.ask("append", count=5)["acknowledged"]
            assert stored(store) == said
            holder = store.inspect(NAME).holder
            assert holder is not None
            assert holder.pid == first.pid
        first.ask("close")
        assert second.ask("open", session=NAME) == {"seq": len(said) - 1}
        said += second.ask("append", count=5)["acknowledged"]
    assert stored(store) == said


def test_writers_that_wait_take_turns(place: str, store: perdure.Store, encoding: str) -> None:
    """Processes that wait for the writer lose nothing and double nothing."""
    count = scaled(500)
    with Peer(place, encoding) as first, Peer(place, encoding) as second:
        said = first.ask("create", session=NAME)["acknowledged"]
        first.ask("close")
        for peer in (first, second):
            peer.tell("share", session=NAME, count=count, wait=60.0)
        for peer in (first, second):
            answer = peer.hear()
            assert "error" not in answer
            assert len(answer["acknowledged"]) == count
            said += answer["acknowledged"]
    assert stored(store) == sorted(said)


def test_stale_writer_is_refused(place: str, store: perdure.Store, encoding: str) -> None:
    """A writer behind whose back another one wrote gets StaleWriter with what it lost."""
    rounds = scaled(100)
    with Peer(place, encoding) as first, Peer(place, encoding) as second:
        said = first.ask("create", session=NAME)["acknowledged"]
        for number in range(rounds):
            break_lock(store)
            assert second.ask("open", session=NAME) == {"seq": len(said) - 1}
            said += second.ask("append", count=number % 3 + 1)["acknowledged"]
            refused = first.ask("append", count=1)
            assert refused["error"] == "stale-writer"
            assert refused["acknowledged"] == []
            assert [data for _, data in refused["lost"]] == [[first.pid, 0]]
            assert first.ask("append", count=1)["error"] == "session-closed"
            assert stored(store) == said
            second.ask("close")
            first.ask("open", session=NAME)
    summarise(f"stale writers, {encoding}", 0, {"refused": rounds})


def test_racing_stale_writers_never_interleave(
    place: str, store: perdure.Store, encoding: str
) -> None:
    """Of two writers at once, with no lock between them, the later to commit is refused."""
    refused = 0
    with Peer(place, encoding) as first, Peer(place, encoding) as second:
        said = first.ask("create", session=NAME)["acknowledged"]
        for _ in range(scaled(100)):
            break_lock(store)
            second.ask("open", session=NAME)
            for peer in (first, second):
                peer.tell("append", count=10)
            answers = [first.hear(), second.hear()]
            for answer in answers:
                said += answer["acknowledged"]
                refused += answer.get("error") == "stale-writer"
            assert stored(store) == sorted(said)
            second.ask("close")
            first.ask("close")
            first.ask("open", session=NAME)
    summarise(f"racing writers, {encoding}", 0, {"refused": refused, "events": len(said)})
    assert refused >= scaled(100)


def test_opening_never_cuts_off_another_writer(place: str, store: perdure.Store) -> None:
    """What another writer commits while this one verifies is not set aside as a torn tail."""
    with store.create(NAME) as session:
        session.append("proof/said", "before")
        backend = DirectoryBackend(place)
        break_lock(store)
        hold = backend.lock(NAME)
        found, tail = backend.stored(NAME), backend.tail(NAME)
        assert found.header is not None
        pieces = backend.scan(NAME, found.begin)
        walk = Walk(found.header, pieces, known=Known(tail.acknowledged), begin=found.begin)
        assert len([*walk.records()]) == 1
        session.append("proof/said", "meanwhile")
        with pytest.raises(StaleWriter):
            backend.settle(hold, walk.ending, tail.acknowledged)
        hold.release()
        session.append("proof/said", "after")
    assert [data for _, data in stored(store)] == ["before", "meanwhile", "after"]


def test_probes_never_refuse_a_writer(place: str, store: perdure.Store, encoding: str) -> None:
    """Asking who writes takes nothing: a writer that opens again and again is never refused."""
    probes = scaled(5000)
    with store.create(NAME) as session:
        session.append("proof/said", "something")
    seen = {"held": 0, "free": 0}
    with Peer(place, encoding) as writer:
        writer.ask("open", session=NAME)
        writer.ask("close")
        writer.tell("churn", session=NAME)
        for _ in range(probes):
            holder = store.inspect(NAME).holder
            assert holder is None or holder.pid in (writer.pid, None)
            seen["free" if holder is None else "held"] += 1
        writer.tell("close")
        told = writer.hear()
    summarise(f"probes, {encoding}", 0, {**seen, **told})
    assert told["busy"] == 0
    assert told["opened"] > 0
    assert seen["held"] > 0


def test_dead_writer_locks_nobody_out(place: str, store: perdure.Store, encoding: str) -> None:
    """The lock of a killed process is free at once."""
    for number in range(scaled(50)):
        with Peer(place, encoding) as peer:
            if number:
                peer.ask("open", session=NAME)
            else:
                peer.ask("create", session=NAME)
            with pytest.raises(SessionBusy):
                store.writer(NAME)
            peer.kill()
        with store.writer(NAME) as session:
            session.append("proof/said", number)
    assert [data for _, data in stored(store)][1:] == [*range(scaled(50))]


def test_fork_leaves_the_writer_to_the_parent(
    place: str, store: perdure.Store, encoding: str
) -> None:
    """A forked child can neither write nor give the lock back, not even by ending."""
    with Peer(place, encoding) as peer:
        said = peer.ask("create", session=NAME)["acknowledged"]
        for _ in range(scaled(30)):
            told = peer.ask("fork")
            assert told == {"refused": ["append", "buffer", "flush"], "status": 0}
            with pytest.raises(SessionBusy) as busy:
                store.writer(NAME)
            assert busy.value.pid == peer.pid
            said += peer.ask("append", count=1)["acknowledged"]
            assert stored(store) == said


def test_commit_compares_before_it_writes(place: str, store: perdure.Store) -> None:
    """A commit that expects another position than the log has is refused and writes nothing."""
    with store.create(NAME) as session:
        session.append("proof/said", "first")
        old = session.position
        session.append("proof/said", "second")
    backend = DirectoryBackend(place)
    hold = backend.lock(NAME)
    found, tail = backend.stored(NAME), backend.tail(NAME)
    assert found.header is not None
    pieces = backend.scan(NAME, found.begin)
    walk = Walk(found.header, pieces, known=Known(tail.acknowledged), begin=found.begin)
    assert len([*walk.records()]) == 2
    backend.settle(hold, walk.ending, tail.acknowledged)
    before = Path(str(store.locate(NAME))).read_bytes()
    with pytest.raises(StaleWriter):
        backend.commit(hold, old, seal(old, [draft("proof/said", "other", time=0)]))
    hold.release()
    assert Path(str(store.locate(NAME))).read_bytes() == before
