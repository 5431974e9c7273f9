"""The writer under stress: shared commits, failures half-way, background commits, endings."""

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends.base import Hold
from perdure.backends.memory import MemoryBackend
from perdure.errors import (
    KeyConflict,
    PerdureError,
    SessionClosed,
    StaleWriter,
    StorageFull,
    StorageUnavailable,
)
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.store import Session, Store
from perdure.store.session import BUFFER_BYTES_MAX
from perdure.testing.contract import Clockwork

PATIENCE = 60.0


def nothing() -> None:
    """What happens around a commit unless a test says otherwise."""


class Gated(MemoryBackend):
    """Sessions in memory, with something of the test's before and after each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = nothing
        self.after: Callable[[], None] = nothing
        self.sizes: list[int] = []

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        self.before()
        hold = super().publish(header, records, staged)
        self.after()
        return hold

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        self.before()
        super().commit(hold, expected, records)
        self.sizes.append(sum(record.last - record.first + 1 for record in records))
        self.after()


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def store(backend: Gated) -> Store:
    """A store over them, with the real clock."""
    return Store(backend)


@pytest.fixture
def session(store: Store) -> Session:
    """A session with one event."""
    made = store.create("s")
    made.append("x", "first")
    return made


def data_of(store: Store) -> list[Any]:
    return [event.data for event in store.read_from("s")]


class Gate:
    """Lets a commit wait in the middle until the test opens it."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()


class Once:
    """Fails the first `times` commits."""

    def __init__(self, error: PerdureError, times: int = 1) -> None:
        self.error, self.left = error, times
        self.failed = threading.Event()

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            self.failed.set()
            raise self.error


def full() -> StorageFull:
    return StorageFull("medium", "No space left")


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


# --- sharing ------------------------------------------------------------------------------------


def test_callers_that_arrive_meanwhile_share_the_next_commit(
    backend: Gated, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one commit is under way, all that is accepted goes into the next one."""
    gate = Gate()
    backend.before = gate
    accepted = threading.Semaphore(0)
    accept = session._queue.accept

    def counted(*given: Any, **named: Any) -> None:
        accept(*given, **named)
        accepted.release()

    monkeypatch.setattr(session._queue, "accept", counted)
    threads = [in_thread(lambda: session.append("x", "leader"))]
    assert gate.reached.wait(PATIENCE)
    threads += [in_thread(partial(session.append, "x", n)) for n in range(10)]
    for _ in range(11):
        assert accepted.acquire(timeout=PATIENCE)
    gate.open()
    for thread in threads:
        thread.join()

    assert backend.sizes == [1, 10]
    assert sorted(map(str, data_of(store)[2:])) == sorted(map(str, range(10)))
    session.close()


def test_a_refused_batch_disturbs_no_commit_under_way(
    backend: Gated, store: Store, session: Session
) -> None:
    """A batch refused while another thread's commit has just become durable renumbers nothing."""
    gate = Gate()
    backend.after = gate
    thread = in_thread(lambda: session.append_many([{"type": "x", "data": n} for n in range(3)]))
    assert gate.reached.wait(PATIENCE)
    fact = {"type": "pay", "key": "k", "data": 1}
    with pytest.raises(KeyConflict):
        session.append_many([{"type": "x"}, fact, {**fact, "data": 2}])
    assert thread.is_alive()
    backend.after = nothing
    gate.open()
    thread.join()

    assert session.append("x", "last").seq == 4
    assert data_of(store) == ["first", 0, 1, 2, "last"]
    session.close()


def test_a_repeated_key_is_stored_when_it_returns(
    backend: Gated, store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the first user of a key fails while another waits for it, the other's is stored."""
    gate, failure = Gate(), Once(full())

    def fail_at_the_gate() -> None:
        gate()
        failure()

    backend.before = fail_at_the_gate
    failed: list[PerdureError] = []

    def first() -> None:
        try:
            session.append("pay", 1, key="k")
        except StorageFull as error:
            failed.append(error)

    thread = in_thread(first)
    assert gate.reached.wait(PATIENCE)
    accept, accepted = session._queue.accept, threading.Event()

    def told(*given: Any, **named: Any) -> None:
        accept(*given, **named)
        accepted.set()

    monkeypatch.setattr(session._queue, "accept", told)
    events = []
    other = in_thread(lambda: events.append(session.append("pay", 1, key="k")))
    assert accepted.wait(PATIENCE)
    gate.open()
    thread.join()
    other.join()

    assert len(failed) == 1
    assert [event.seq for event in events] == [1]
    assert data_of(store) == ["first", 1]
    assert session.append("pay", 1, key="k").seq == 1
    session.close()


def test_a_failed_commit_is_only_its_callers_failure(
    backend: Gated, store: Store, session: Session
) -> None:
    """A caller whose events shared a failed commit tries again; its numbers close the gap."""
    backend.before = Once(full())
    held = session.buffer("x", "held")
    with pytest.raises(StorageFull):
        session.append("x", "taken back", key="k")
    assert session.append("x", "other data", key="k").seq == 2

    assert held.seq == 1
    assert data_of(store) == ["first", "held", "other data"]
    session.close()


def test_a_failed_first_commit_leaves_the_id_free(backend: Gated, store: Store) -> None:
    """A session whose first commit failed is not there; the same writer may try again."""
    session = store.create("s")
    backend.before = Once(full())
    with pytest.raises(StorageFull):
        session.append("x", 0)
    assert store.list() == []

    assert session.append("x", 1).seq == 0
    assert data_of(store) == [1]
    session.close()


@pytest.mark.parametrize("pack", [True, False])
@pytest.mark.parametrize("kept", range(5))
def test_any_prefix_of_a_commit_may_survive(backend: Gated, kept: int, *, pack: bool) -> None:
    """After a crash in a commit, readers and the next writer see some prefix of its events."""
    store = Store(backend, pack=pack)
    session = store.create("s")
    session.append("x", "first")
    backend.crash_keeping(kept)
    with pytest.raises(StorageUnavailable):
        session.append_many([{"type": "x", "data": n} for n in range(4)])

    survived = data_of(store)
    assert survived == ["first", *range(4)][: 1 + kept]
    with Store(backend).writer("s") as following:
        assert following.append("x", "next").seq == len(survived)
    assert data_of(store) == [*survived, "next"]


def test_a_stale_writer_names_what_it_lost(backend: Gated, store: Store, session: Session) -> None:
    """When somebody else wrote, all that was pending is named, and the writer is over."""
    backend.before = Once(StaleWriter("s", "somebody else wrote"))
    session.buffer("x", "buffered")
    with pytest.raises(StaleWriter) as stale:
        session.append("x", "appended")

    assert [event.data for event in stale.value.lost] == ["buffered", "appended"]
    with pytest.raises(SessionClosed) as closed:
        session.append("x")
    assert "somebody else wrote" in closed.value.reason
    with store.writer("s") as following:
        assert following.append("x").seq == 1


# --- in the background --------------------------------------------------------------------------


def test_a_buffered_event_is_stored_in_the_background(
    backend: Gated, store: Store, session: Session
) -> None:
    """What is buffered is committed without a further call."""
    done = threading.Event()
    backend.after = done.set
    session.buffer("x", "buffered")

    assert done.wait(PATIENCE)
    session.flush()
    assert data_of(store) == ["first", "buffered"]
    session.close()


def test_a_failure_in_the_background_surfaces_at_the_next_call(
    backend: Gated, store: Store, session: Session
) -> None:
    """A commit that fails in the background loses nothing; the next call tells, or stores all."""
    failure = Once(full(), times=1_000_000)
    backend.before = failure
    session.buffer("x", 1)
    assert failure.failed.wait(PATIENCE)
    session.buffer("x", 2)
    with pytest.raises(StorageFull):
        session.flush()
    failure.left = 0
    session.flush()

    assert data_of(store) == ["first", 1, 2]
    session.close()


def test_a_full_buffer_commits_in_the_calling_thread(store: Store, session: Session) -> None:
    """Buffering more than the bound waits for a commit instead of growing without end."""
    piece = "x" * (BUFFER_BYTES_MAX // 8)
    for _ in range(9):
        session.buffer("x", piece)

    assert session.position.seq >= 8
    session.close()
    assert len(data_of(store)) == 10


def test_closing_a_store_closes_what_is_open_in_it(backend: Gated) -> None:
    """Every open session is closed, those behind a failing one too; the first failure is told."""
    store = Store(backend)
    sessions = [store.create(id) for id in ("a", "b", "c")]
    for session in sessions:
        session.append("x")
        session.buffer("x", "buffered")
    backend.before = Once(full(), times=1)
    with pytest.raises(StorageUnavailable) as failed:
        store.close()
    assert [event.data for event in failed.value.lost] == ["buffered"]

    counts = [len(list(Store(backend).read_from(id))) for id in ("a", "b", "c")]
    assert sorted(counts) == [1, 2, 2]
    for session in sessions:
        with pytest.raises(SessionClosed):
            session.append("x")


# --- leaving a context --------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [True, False])
def test_the_callers_exception_comes_first(backend: Gated, store: Store, *, inner: bool) -> None:
    """If body and close fail, the body's exception leaves, the other chained to it."""

    def body() -> None:
        with store.create("s") as session:
            session.append("x")
            session.buffer("x", "lost")
            backend.before = Once(full(), times=9)
            if not inner:
                raise ValueError("the body")
            try:
                raise KeyError("inner")
            except KeyError as cause:
                raise ValueError("the body") from cause

    with pytest.raises(ValueError, match="the body") as raised:
        body()

    assert "while closing session 's'" in "".join(raised.value.__notes__)
    chain, error = [], raised.value.__context__
    while error is not None:
        chain.append(type(error))
        error = error.__context__
    assert chain == [*([KeyError] if inner else []), StorageUnavailable, StorageFull]


def test_a_failing_close_is_an_error_of_its_own(backend: Gated, store: Store) -> None:
    """If only the close fails, its error leaves the context and names what is lost."""

    def body() -> None:
        with store.create("s") as session:
            session.append("x")
            session.buffer("x", "lost")
            backend.before = Once(full(), times=9)

    with pytest.raises(StorageUnavailable) as failed:
        body()
    assert [event.data for event in failed.value.lost] == ["lost"]
    backend.before = nothing
    with store.writer("s") as session:
        assert session.append("x").seq == 1


# --- what the clock says ------------------------------------------------------------------------


def test_times_and_ids_come_from_the_runtime() -> None:
    """Two runs with the same clock and randomness make the same bytes."""
    runs = []
    for _ in range(2):
        with perdure.open("memory:", runtime=Clockwork()) as store:
            with store.create(cwd="/w") as session:
                session.append("x")
                session.append_many([{"type": "y"}, {"type": "z", "time": 5}])
            found = store.inspect(session.id)
            assert found.header is not None
            runs.append((found.header.digest, found.position))

    assert runs[0] == runs[1]


def test_new_ids_sort_by_their_time() -> None:
    """Ids made later sort behind those made earlier."""
    runtime = Clockwork()
    ids = [runtime.session_id() for _ in range(20)]

    assert ids == sorted(ids)
    assert len(set(ids)) == 20


def test_a_writer_that_died_in_the_background_says_so_once(
    backend: Gated, session: Session
) -> None:
    """Whoever calls next learns what was lost while nobody was calling, be it by `close`."""
    backend.before = Once(StaleWriter("s", "somebody else wrote"))
    session.buffer("x", "lost")
    while not session.closed:
        pass
    with pytest.raises(StaleWriter) as told:
        session.close()
    assert [event.data for event in told.value.lost] == ["lost"]
    session.close()
    with pytest.raises(SessionClosed):
        session.append("x")


def test_appending_by_id_means_the_stored_session(tmp_path: Path) -> None:
    """Beside writers that were begun and never stored, the one that holds the session is taken."""
    with perdure.open(tmp_path / "store") as store:
        begun = [store.create("s") for _ in range(20)]
        with perdure.open(tmp_path / "store") as other, other.create("s") as session:
            session.append("x", 0)
        with store.writer("s"):
            assert [event.seq for event in store.append("s", [{"type": "x"}])] == [1]
        assert len(begun) == 20


def test_appending_by_id_takes_the_writer_begun_last(tmp_path: Path) -> None:
    """Of several writers that were begun under one id, the last one is stored, each time."""
    with perdure.open(tmp_path / "store") as store:
        begun = [store.create("s", cwd=f"/{number}") for number in range(20)]
        store.append("s", [{"type": "x"}])
        assert store.inspect("s").header == begun[-1].header


def test_closing_takes_the_writers_in_their_order(tmp_path: Path) -> None:
    """A store that closes stores what is buffered in the order in which its writers were begun."""
    store = perdure.open(tmp_path / "store")
    begun = [store.create("s") for _ in range(20)]
    for number, session in enumerate(begun):
        session.buffer("x", number)
    with pytest.raises(StorageUnavailable) as refused:
        store.close()
    assert [event.data for event in refused.value.lost] == [1]
    with perdure.open(tmp_path / "store") as again:
        assert [event.data for event in again.read_from("s")] == [0]
