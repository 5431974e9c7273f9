"""What callers may rely on while others commit, fail, close, fork or interrupt."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import perdure
from perdure.durable import crash
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionBusy,
    SessionClosed,
    SessionDamaged,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)

PATIENCE = 60.0
_WATCHED = ("perdure/store/", "perdure/backends/", "perdure/durable/")


@pytest.fixture
def store(tmp_path: Path) -> perdure.Store:
    """A store of plain lines."""
    return perdure.open(tmp_path / "store", encoding="raw")


@pytest.fixture
def session(store: perdure.Store) -> perdure.Session:
    """A session with one event."""
    made = store.create("s")
    made.append("x", "first")
    return made


def data_of(store: perdure.Store, id: str = "s") -> list[Any]:
    return [event.data for event in store.read_from(id)]


class FailingCall:
    """Lets one call of an `os` function wait for the test, then fail."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, number: int) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        real: Callable[..., Any] = getattr(os, name)
        armed = [True]

        def call(*given: Any) -> Any:
            if armed:
                armed.clear()
                self.reached.set()
                if not self.go.wait(PATIENCE):
                    raise TimeoutError(name)
                raise OSError(number, os.strerror(number))
            return real(*given)

        patch.setattr(os, name, call)


class Caller:
    """One thread that calls once and keeps what came of it."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call()
        except PerdureError as error:
            self.error = error

    def join(self) -> "Caller":
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self


def when_waiting(session: perdure.Session, count: int) -> None:
    """Return as soon as `count` events wait for a commit."""
    for _ in range(10_000_000):
        with session._mutex:
            if len(session._queue.waiting()) >= count:
                return
    raise TimeoutError


def test_whoever_shares_a_failed_sync_is_told(
    store: perdure.Store, session: perdure.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that waits while a sync fails gets the failure, never a success."""
    call = FailingCall(monkeypatch, "fdatasync", errno.EIO)
    first = Caller(lambda: session.append("x", "A"))
    assert call.reached.wait(PATIENCE)
    second = Caller(lambda: session.append("x", "B"))
    when_waiting(session, 2)
    call.go.set()

    for caller in (first.join(), second.join()):
        assert isinstance(caller.error, StorageUnavailable)
        assert [event.data for event in caller.error.lost] == ["A", "B"]
    assert "B" not in data_of(store)
    with pytest.raises(SessionClosed):
        session.flush()


def test_a_failed_append_is_not_stored_by_the_next(
    store: perdure.Store, session: perdure.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reported as not stored is not committed together with the next caller's event."""
    call = FailingCall(monkeypatch, "pwrite", errno.ENOSPC)
    first = Caller(lambda: session.append("x", "A"))
    assert call.reached.wait(PATIENCE)
    second = Caller(lambda: session.append("x", "B"))
    when_waiting(session, 2)
    call.go.set()

    assert isinstance(first.join().error, StorageFull)
    assert second.join().value.seq == 1
    assert data_of(store) == ["first", "B"]
    session.close()


def test_a_buffered_event_outlives_the_append_that_shares_its_key(
    store: perdure.Store, session: perdure.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`buffer` of a fact that a failing append waits for keeps it."""
    call = FailingCall(monkeypatch, "pwrite", errno.ENOSPC)
    first = Caller(lambda: session.append("x", "K", key="k"))
    assert call.reached.wait(PATIENCE)
    assert session.buffer("x", "K", key="k").seq == 1
    call.go.set()

    assert isinstance(first.join().error, StorageFull)
    session.flush()
    assert data_of(store) == ["first", "K"]
    session.close()


def test_closing_waits_for_the_commit_under_way(
    store: perdure.Store, session: perdure.Session
) -> None:
    """A commit in another thread is finished before its file is closed."""
    reached, go = threading.Event(), threading.Event()

    def hook(name: str) -> None:
        if name == "write.before" and not reached.is_set():
            reached.set()
            assert go.wait(PATIENCE)

    crash.arm(hook=hook)
    appending = Caller(lambda: session.append("x", "A"))
    assert reached.wait(PATIENCE)
    closing = Caller(session.close)
    while not session.closed:
        pass
    with pytest.raises(SessionClosed):
        session.buffer("x", "late")
    go.set()

    assert appending.join().value.seq == 1
    assert closing.join().error is None
    assert data_of(store) == ["first", "A"]
    with store.writer("s") as again:
        assert again.position.seq == 1


def _interrupt_at(call: int) -> Callable[[FrameType, str, Any], Any]:
    """A trace function that raises at the `call`th beginning or end of a function of the store.

    These are the places where the interpreter looks for signals; between lines it does not.
    """
    left = [call]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code, outer = frame.f_code, frame.f_back
        if code.co_name.startswith(("<", "__del__")) or (
            outer is not None and outer.f_code.co_name == "__del__"
        ):
            # What is raised there is lost, in a test as in life.
            return None
        if not any(part in code.co_filename for part in _WATCHED):
            return None
        if event in ("call", "return"):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.parametrize("action", ["append", "append_many", "buffer"])
def test_an_interrupt_doubles_and_misnumbers_nothing(tmp_path: Path, action: str) -> None:
    """Whatever line a signal hits, the session goes on and holds each event at most once."""
    interrupted, place = True, 0
    while interrupted:
        place += 1
        store = perdure.open(tmp_path / f"{action}{place}", encoding="raw")
        session = store.create("s")
        session.append("x", "first")
        interrupted = False
        sys.settrace(_interrupt_at(place))
        try:
            if action == "append_many":
                session.append_many([{"type": "x", "data": n} for n in ("a", "b")])
            else:
                getattr(session, action)("x", "a")
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(None)
        numbers = [session.append("x", text).seq for text in ("c", "d")]
        store.close()
        events = list(store.read_from("s"))
        texts = [event.data for event in events]
        assert [event.seq for event in events] == list(range(len(events)))
        assert len(set(texts)) == len(texts), (place, texts)
        assert texts[-2:] == ["c", "d"]
        assert numbers == [len(events) - 2, len(events) - 1]
        assert store.verify("s").sound
    assert place > 10


def test_what_is_given_out_is_not_what_is_stored(store: perdure.Store, tmp_path: Path) -> None:
    """A caller that changes the header's configuration harms nothing."""
    for opened in (store, perdure.open("memory:")):
        session = opened.create("c", config={"a": [1]})
        session.header.config["a"].append(2)
        session.append("x")
        session.close()
        seen = opened.inspect("c").header
        assert seen is not None
        assert seen.config == {"a": [1]}
        seen.config["a"].clear()
        assert opened.verify("c").sound
    assert (tmp_path / "store").exists()


def test_every_open_session_is_stored_when_the_store_closes(store: perdure.Store) -> None:
    """Two new sessions of one id are two objects: the first to commit wins, the other is told."""
    first, second = store.create("x"), store.create("x")
    first.buffer("a", 1)
    store.close()
    assert data_of(store, "x") == [1]
    for call in (lambda: store.create("y"), lambda: store.writer("x"), lambda: second.append("a")):
        with pytest.raises(SessionClosed):
            call()


def test_a_child_stores_what_it_buffers(store: perdure.Store, session: perdure.Session) -> None:
    """A forked child may use the inherited store for sessions of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            with store:
                store.create("child").buffer("x", "from the child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert data_of(store, "child") == ["from the child"]
    assert session.append("x", "parent goes on").seq == 1
    session.close()


def test_a_first_commit_of_unknown_outcome_is_told_as_such(store: perdure.Store) -> None:
    """If a session appeared and its folder could not be synced, the writer is dead."""
    store.create("other").append("x")
    session = store.create("s")

    def hook(name: str) -> None:
        if name == "move.after":
            raise OSError(errno.EIO, "Input/output error")

    crash.arm(hook=hook)
    with pytest.raises(PerdureError) as told:
        session.append("x", 1)
    crash.arm()
    assert not told.value.retryable
    assert [event.data for event in getattr(told.value, "lost", ())] == [1]
    with store.writer("s") as again:
        assert again.position.seq == 0


def test_a_root_that_lost_its_description_takes_nothing(
    store: perdure.Store, session: perdure.Session, tmp_path: Path
) -> None:
    """Without store.json nothing is acknowledged, listed as empty or called sound."""
    session.close()
    description = tmp_path / "store" / "store.json"
    kept = description.read_bytes()
    description.unlink()
    fresh = perdure.open(tmp_path / "store")
    for call in (fresh.list, lambda: fresh.inspect("s"), lambda: store.create("t").append("x")):
        with pytest.raises(UnsafeFile) as refused:
            call()
        assert "store.json" in str(refused.value)
    description.write_bytes(kept)
    description.chmod(0o600)
    assert data_of(store) == ["first"]


def test_a_session_without_its_log_is_damaged_everywhere(
    store: perdure.Store, session: perdure.Session, tmp_path: Path
) -> None:
    """A folder whose log is gone is one damaged session for every call."""
    session.close()
    (tmp_path / "store" / "sessions" / "s" / "log.jsonl").unlink()
    assert [entry.problem is not None for entry in store.list()] == [True]
    assert store.inspect("s").status == store.verify("s").status == "damaged"
    assert list(store.inspect("s").events) == list(store.inspect("s").later()) == []
    for call in (store.writer, store.load, lambda id: list(store.read_from(id))):
        with pytest.raises(SessionDamaged):
            call("s")


def test_intact_records_are_found_with_and_without_evidence(tmp_path: Path) -> None:
    """What stands behind damage is shown whole, whether or not the tail file is there."""
    for encoding in ("raw", "zst"):
        store = perdure.open(tmp_path / encoding, encoding=encoding)
        with store.create("s") as session:
            for number in range(6):
                session.append("x", number)
        log = Path(str(store.locate("s")))
        whole = log.read_bytes()
        starts = [0]
        while (at := whole.find(b"\n" if encoding == "raw" else b"PRDT", starts[-1] + 1)) > 0:
            starts.append(at)
        harmed = bytearray(whole)
        harmed[starts[3] - 30] ^= 0x55
        log.write_bytes(harmed)
        with_evidence = [event.seq for event in store.inspect("s").later()]
        (log.parent / "tail").unlink()
        assert [event.seq for event in store.inspect("s").later()] == with_evidence != []


def test_no_closers_are_shown_for_a_turn_at_work(store: perdure.Store) -> None:
    """A writer that comes after the inspection was made is seen before closers are given out."""
    with store.create("s") as session:
        session.append("note")
    found = store.inspect("s")
    with store.writer("s") as session:
        session.append("turn/start", {}, turn="t")
        assert [event.type for event in found.events] == ["note", "turn/start"]
    assert [event.type for event in store.inspect("s").events][-1] == "turn/end"


def test_a_held_log_is_told_and_not_waited_for_for_ever(
    store: perdure.Store, session: perdure.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign lock on the log itself ends in SessionBusy, and the append can be tried again."""
    import fcntl

    monkeypatch.setattr("perdure.durable.locks._EXCLUSIVE_SECONDS", 0.05)
    with open(str(store.locate("s")), "rb") as log:
        fcntl.flock(log, fcntl.LOCK_SH)
        with pytest.raises(SessionBusy):
            session.append("x", "held up")
    assert session.append("x", "goes on").seq == 1
    session.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store that reads nothing by itself, so that it opens no files meanwhile."""
    with perdure.open(tmp_path / "alone", index=False, encoding="raw") as made:
        yield made


def _opened_in(folder: str) -> int:
    """How many descriptors of this process lead into a folder; others may come and go."""
    places = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            places.append(os.readlink(f"/proc/self/fd/{name}"))
    return sum(folder in f"{place}/" for place in places)


def test_a_dropped_writer_gives_its_session_back(alone: perdure.Store) -> None:
    """A writer that nobody can reach any more blocks nobody, and leaves no descriptor open."""
    store = alone
    store.create("s").append("x")
    store._flusher.stop()  # what it opens and closes meanwhile is not counted
    store.writer("s")  # nor is what stays open for the store, opened here at the latest
    before = _opened_in("/alone/")
    for _ in range(5):
        store.writer("s")
    assert _opened_in("/alone/") <= before
    with store.writer("s") as session:
        assert session.position.seq == 0


PAIR = "\ud83d\ude00"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.create(PAIR),
        lambda store: store.create("s", cwd=f"/{PAIR}"),
        lambda store: store.create("s", preset=PAIR),
        lambda store: store.create("s", config={PAIR: 1}),
        lambda store: store.create("s").append("x", PAIR),
        lambda store: store.create("s").append("x", {"a": [{PAIR: 1, "\U0001f600": 2}]}),
        lambda store: store.create("s").append("x", turn=PAIR),
        lambda store: store.create("s").append("x", agent=PAIR),
        lambda store: store.create("s").buffer("x", key=PAIR),
        lambda store: store.inspect(PAIR),
    ],
)
def test_a_split_surrogate_pair_is_refused(
    store: perdure.Store, call: Callable[[perdure.Store], object]
) -> None:
    """Two code points that JSON can only carry as one would come back as another string."""
    with pytest.raises(InvalidValue) as refused:
        call(store)
    assert "surrogate pair" in refused.value.reason
    with store.create("lone") as session:
        session.append("x", ["\ud83d", "\ude00\ud83d", "\U0001f600"], key="\ud83d")
    assert data_of(store, "lone") == [["\ud83d", "\ude00\ud83d", "\U0001f600"]]


def test_an_error_that_is_kept_keeps_no_file_open(alone: perdure.Store) -> None:
    """Collecting the errors of damaged sessions costs no descriptors."""
    store = alone
    with store.create("s") as session:
        session.append("x", "first")
        session.append("x", "second")
    log = Path(str(store.locate("s")))
    log.write_bytes(log.read_bytes().replace(b"first", b"worst"))
    store._flusher.stop()  # what it opens and closes meanwhile is not counted
    kept = []
    for _ in range(10):
        for call in (lambda: list(store.read_from("s")), lambda: store.writer("s")):
            with pytest.raises(SessionDamaged) as told:
                call()
            kept.append(told.value)
    assert [path for path in open_files() if path.startswith(str(log.parent))] == []


def open_files() -> Iterator[str]:
    """What the descriptors of this process stand for."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{name}")


def test_without_a_thread_a_buffered_event_is_stored_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started the caller's own does its work."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    store = perdure.open(tmp_path / "threadless")
    session = store.create("s")
    session.append("x", "first")
    assert session.buffer("x", "second").seq == 1
    assert data_of(store) == ["first", "second"]
    store.close()


class Rude:
    """A value whose own description fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.create(Rude()),
        lambda store: store.create("s", cwd=Rude()),
        lambda store: store.create("s", origin=Rude()),
        lambda store: store.create("s", parent=Rude()),
        lambda store: store.create("s", created_at=Rude()),
        lambda store: store.create("s").append(Rude()),
        lambda store: store.create("s").append("x", {Rude(): 1}),
        lambda store: store.create("s").append("x", time=Rude()),
        lambda store: store.create("s").append_many([Rude()]),
        lambda store: store.create("s").append_many([{"type": "x", Rude(): 1}]),
        lambda store: store.append("s", [Rude()]),
        lambda store: store.read_from("s", Rude()),
        lambda store: store.writer("s", wait=Rude()),
    ],
)
def test_what_cannot_even_be_shown_is_refused_by_name(
    store: perdure.Store, call: Callable[[perdure.Store], object]
) -> None:
    """A bad value is refused with an error of the tree, whatever its repr does."""
    store.create("s0").append("x")
    with pytest.raises((InvalidValue, perdure.errors.SessionNotFound)):
        call(store)


@pytest.mark.parametrize("place", ["\ud800", "a\0b", ""])
def test_a_location_that_names_no_folder_is_refused(place: str) -> None:
    """What cannot be a path is told when the store is opened."""
    with pytest.raises(InvalidValue):
        perdure.open(place)


def test_a_relative_store_needs_a_working_directory(tmp_path: Path) -> None:
    """In a folder that is gone, a relative path is refused with an error of the tree."""
    code = (
        "import os, sys, perdure\n"
        "os.chdir(sys.argv[1]); os.rmdir(sys.argv[1])\n"
        "try: perdure.open('rel')\n"
        "except perdure.errors.InvalidValue: print('refused')\n"
    )
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code, str(gone)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"


def test_closing_interrupted_anywhere_gives_the_session_back(tmp_path: Path) -> None:
    """After a signal during `close`, closing again frees the session and harms no other file."""
    interrupted, place = True, 0
    while interrupted:
        place += 1
        store = perdure.open(tmp_path / str(place), encoding="raw")
        session = store.create("s")
        session.append("x", 1)
        session.buffer("x", 2)
        interrupted = False
        sys.settrace(_interrupt_at(place))
        try:
            session.close()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(None)
        with open(__file__, "rb") as mine:
            session.close()
            store.close()
            assert mine.read(3) == b'"""'
        with perdure.open(tmp_path / str(place)) as again, again.writer("s") as writer:
            assert writer.append("x", "free again").seq in (1, 2)
    assert place > 10


def test_what_is_buffered_while_a_writer_dies_is_named(
    store: perdure.Store, session: perdure.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event accepted between the failure and the end of the writer stands in `lost` too."""
    call = FailingCall(monkeypatch, "fdatasync", errno.EIO)
    call.go.set()
    unknown = session._outcome_unknown

    def buffer_meanwhile(error: BaseException) -> bool:
        Caller(lambda: session.buffer("x", "meanwhile")).join()
        return unknown(error)

    monkeypatch.setattr(session, "_outcome_unknown", buffer_meanwhile)
    die = session._die

    def buffer_at_the_last_moment(error: Any) -> Any:
        Caller(lambda: session.buffer("x", "last moment")).join()
        return die(error)

    monkeypatch.setattr(session, "_die", buffer_at_the_last_moment)
    with pytest.raises(StorageUnavailable) as told:
        session.append("x", "A")
    assert [event.data for event in told.value.lost] == ["A", "meanwhile", "last moment"]
    store.close()
