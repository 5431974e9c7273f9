"""The writers that a server keeps open: who may use them, and when they end."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.errors import ServerUnavailable, SessionBusy, StaleWriter, StoreClosed
from perdure.http.server.writers import Place, Writers
from perdure.runtime import Runtime

NOTE: dict[str, Any] = {"type": "note", "data": 1}
IDLE, LEASE = 10.0, 60.0


class Clock(Runtime):
    """A clock that a test moves."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path, index=False) as opened:
        for name in ("a", "b", "c", "d"):
            with opened.create(name) as session:
                session.append("note")
        yield opened


@pytest.fixture
def writers(clock: Clock) -> Iterator[Writers]:
    made = Writers(clock, idle=IDLE, lease=LEASE, most=4)
    yield made
    made.close()


def place(store: Store, id: str, *namespace: str) -> Place:
    return Place(store, namespace, id)


def held(store: Store, id: str) -> bool:
    return store.inspect(id).holder is not None


def test_a_writer_ends_when_nobody_used_it(writers: Writers, store: Store, clock: Clock) -> None:
    """A writer stays open for a while after its last use, and is closed then."""
    writers.append(place(store, "a"), [NOTE])
    clock.now = IDLE
    writers.sweep()
    assert held(store, "a")
    writers.append(place(store, "a"), [NOTE])
    clock.now = 2 * IDLE
    writers.sweep()
    assert held(store, "a")
    clock.now = 2 * IDLE + 0.1
    writers.sweep()
    assert not held(store, "a")
    assert store.verify("a").events == 3


def test_a_lease_ends_by_itself(writers: Writers, store: Store, clock: Clock) -> None:
    """A lease holds after its last use for its time, whoever was refused meanwhile."""
    lease = writers.take(place(store, "a"))
    clock.now = LEASE
    writers.append(place(store, "a"), [NOTE], writer=lease.writer)
    clock.now = 2 * LEASE - 1
    with pytest.raises(SessionBusy):
        writers.append(place(store, "a"), [NOTE])
    clock.now = 2 * LEASE + 0.1
    writers.append(place(store, "a"), [NOTE])
    with pytest.raises(StaleWriter):
        writers.append(place(store, "a"), [NOTE], writer=lease.writer)
    for wrong in ("", "x", "\u00e9", "\ud800", lease.writer + "0"):
        with pytest.raises(StaleWriter):
            writers.append(place(store, "a"), [NOTE], writer=wrong)


def test_room_is_made_for_one_more(writers: Writers, store: Store, clock: Clock) -> None:
    """Where too many are open, those go that nobody used longest, and the new one stays."""
    for number, name in enumerate("abcd"):
        clock.now = float(number)
        # Each is a principal of its own.
        lease = writers.take(place(store, name, "p", name))
        writers.release(place(store, name, "p", name), lease.writer)
        writers.append(place(store, name, "p", name), [NOTE])
    with store.create("e") as session:
        session.append("note")
    clock.now = 5.0
    lease = writers.take(place(store, "e", "p", "e"))
    assert not held(store, "a")
    assert held(store, "e")
    writers.append(place(store, "e", "p", "e"), [NOTE], writer=lease.writer)


def test_nobody_takes_all_the_room(writers: Writers, store: Store) -> None:
    """A principal who leased half of the room gets no more, and others do."""
    mine = [writers.take(place(store, name, "p", "alice")) for name in "ab"]
    with pytest.raises(ServerUnavailable):
        writers.take(place(store, "c", "p", "alice"))
    assert not held(store, "c")
    writers.take(place(store, "d", "p", "bob"))
    writers.release(place(store, "a", "p", "alice"), mine[0].writer)
    writers.take(place(store, "c", "p", "alice"))


def test_closing_waits_for_who_is_at_work(store: Store, clock: Clock) -> None:
    """What is being stored is stored before its writer is closed; then nobody gets one."""
    writers = Writers(clock)
    begun, release = threading.Event(), threading.Event()

    def parts() -> Iterator[bytes]:
        yield b"a"
        begun.set()
        assert release.wait(30)
        yield b"b"

    found: list[str] = []
    upload = threading.Thread(
        target=lambda: found.append(writers.put_content(place(store, "a"), None, parts()))
    )
    upload.start()
    assert begun.wait(30)
    closing = threading.Thread(target=writers.close)
    closing.start()
    release.set()
    for thread in (upload, closing):
        thread.join(30)
        assert not thread.is_alive()
    assert store.blob("a", found[0]) == b"ab"
    assert not held(store, "a")
    with pytest.raises(StoreClosed):
        writers.append(place(store, "a"), [NOTE])


def test_a_writer_that_died_is_opened_again(writers: Writers, store: Store) -> None:
    """Where a writer stopped, who had the lease is told, and others go on with a new one."""
    lease = writers.take(place(store, "a"))
    (session,) = [each for each in store._sessions.values() if each.id == "a" and not each.closed]
    session.close()
    with pytest.raises(StaleWriter):
        writers.append(place(store, "a"), [NOTE], writer=lease.writer)
    assert writers.append(place(store, "a"), [NOTE]).position.seq == 1
