"""One writer: between threads, between processes, by either kind of lock."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import perdure
from perdure.durable import locks
from perdure.durable.files import Folder
from perdure.durable.locks import Holder, Lock, holder
from perdure.errors import SessionBusy, SessionClosed
from perdure.runtime import SYSTEM, Runtime
from perdure.testing.contract import Clockwork

CHILD = """
import sys
import perdure
from perdure.durable import locks

if sys.argv[3] == "flock":
    locks._SET = locks._GET = None
with perdure.open(sys.argv[1]) as store:
    session = store.writer(sys.argv[2])
    session.append("x", "from the child")
    print("ready", flush=True)
    sys.stdin.readline()
    session.buffer("x", "at the end")
"""


@pytest.fixture(params=["ofd", "flock"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which lock the system offers: open file descriptions', or flock alone."""
    name: str = request.param
    if name == "flock":
        monkeypatch.setattr(locks, "_SET", None)
        monkeypatch.setattr(locks, "_GET", None)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    """An empty private folder."""
    tmp_path.chmod(0o700)
    with Folder.open(str(tmp_path)) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of one session, at rest."""
    with perdure.open(tmp_path / "store") as store, store.create("s") as session:
        session.append("x")
    return tmp_path / "store"


@contextmanager
def writing_child(root: Path, kind: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes session "s" until a line comes in, or it is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), "s", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child
        child.kill()


def test_a_lock_is_exclusive_within_a_process(folder: Folder, kind: str) -> None:
    """A second lock on the same folder is refused, also in the process that has the first."""
    assert kind in {"ofd", "flock"}
    runtime = Clockwork()
    first = Lock(folder, "s", runtime=runtime)

    with pytest.raises(SessionBusy) as busy:
        Lock(folder, "s", runtime=runtime)

    who = holder(folder)
    assert who == Holder(os.getpid(), SYSTEM.host(), busy.value.since)
    assert (busy.value.pid, busy.value.host) == (os.getpid(), SYSTEM.host())
    first.release()
    assert holder(folder) is None
    Lock(folder, "s", runtime=runtime).release()


@pytest.mark.usefixtures("kind")
def test_threads_exclude_each_other(folder: Folder) -> None:
    """Of many threads that try at once, one at a time has the lock, and each gets it in the end."""
    inside, most, turns = 0, 0, []
    barrier = threading.Barrier(6)

    def take(number: int) -> None:
        nonlocal inside, most
        barrier.wait()
        lock = Lock(folder, "s", wait=60)
        inside += 1
        most = max(most, inside)
        turns.append(number)
        inside -= 1
        lock.release()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (most, sorted(turns)) == (1, list(range(6)))


def test_processes_exclude_each_other(root: Path, kind: str) -> None:
    """While another process writes, a writer is refused with its facts, and readers go on."""
    # heinzel 3; case 10
    with writing_child(root, kind) as child, perdure.open(root) as store:
        with pytest.raises(SessionBusy) as busy:
            store.writer("s")
        assert (busy.value.pid, busy.value.host) == (child.pid, SYSTEM.host())
        assert busy.value.since is not None
        assert store.inspect("s").status == "running"
        assert [event.data for event in store.read_from("s")] == [None, "from the child"]
        with store.create("other") as session:
            session.append("x")

        child.communicate("\n")

        with store.writer("s") as session:
            assert session.append("x").seq == 3
        assert child.returncode == 0


def test_waiting_ends_when_the_other_process_does(root: Path, kind: str) -> None:
    """A writer that waits gets the session once the other process has closed it."""
    # heinzel 3
    with writing_child(root, kind) as child, perdure.open(root) as store:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        with store.writer("s", wait=60) as session:
            assert session.position.seq == 2


def test_a_killed_writer_leaves_no_lock(root: Path, kind: str) -> None:
    """A process that was killed holds nothing, though its name still stands in the lock file."""
    # heinzel 4; case 12
    with writing_child(root, kind) as child, perdure.open(root) as store:
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert str(child.pid) in (root / "sessions/s/lock").read_text()

        assert store.inspect("s").holder is None
        with store.writer("s") as session:
            assert session.position.seq == 1


@pytest.mark.usefixtures("kind")
def test_the_lock_file_is_never_removed(root: Path) -> None:
    """Closing, reopening and recovering leave one and the same lock file."""
    lock = root / "sessions/s/lock"
    inode = lock.stat().st_ino
    for _ in range(3):
        with perdure.open(root) as store, store.writer("s") as session:
            session.append("turn/start", {}, turn="t")

    assert lock.stat().st_ino == inode


@pytest.mark.usefixtures("kind")
def test_a_lock_on_a_file_that_was_replaced_is_none(folder: Folder) -> None:
    """A lock file that is exchanged meanwhile does not let two in by the same door."""
    path = Path(folder.path) / "lock"
    first = Lock(folder, "s", runtime=Clockwork())
    path.rename(path.with_name("old"))

    second = Lock(folder, "s", runtime=Clockwork())

    assert holder(folder) is not None
    first.release()
    assert holder(folder) is not None
    second.release()


@pytest.mark.parametrize("text", [b"", b"nobody", b"[1]\n", b'{"pid":"x"}\n', b"\xff", b"\n\n"])
def test_an_unreadable_name_is_no_name(folder: Folder, text: bytes) -> None:
    """The text of a lock file proves nothing; a holder without a name is still a holder."""
    lock = Lock(folder, "s", runtime=Clockwork())
    (Path(folder.path) / "lock").write_bytes(text)

    assert holder(folder) == Holder()
    with pytest.raises(SessionBusy) as busy:
        Lock(folder, "s", runtime=Clockwork())
    assert busy.value.pid is None
    assert "another writer" in busy.value.message
    lock.release()


def test_asking_takes_nothing(folder: Folder, kind: str) -> None:
    """Who asks for the holder of a free session leaves it free and makes no lock file."""
    assert holder(folder) is None
    assert folder.names() == []
    Lock(folder, "s").release()
    assert holder(folder) is None
    assert kind in {"ofd", "flock"}
    with ExitStack() as stack:
        lock = Lock(folder, "s")
        stack.callback(lock.release)
        lock.check()


def test_a_released_lock_says_so(folder: Folder) -> None:
    """After its release a lock is refused, and releasing it again is harmless."""
    lock = Lock(folder, "s")
    lock.release()
    lock.release()
    with pytest.raises(SessionClosed):
        lock.check()


def test_a_dropped_lock_is_released(folder: Folder) -> None:
    """A lock whose owner is gone does not block the next."""
    lock = Lock(folder, "s")
    del lock

    Lock(folder, "s", runtime=Clockwork()).release()


class _Elsewhere(Runtime):
    """A process id that can be changed, as a fork does."""

    def __init__(self) -> None:
        self.number = 1

    def pid(self) -> int:
        return self.number


def test_a_lock_belongs_to_its_process(folder: Folder) -> None:
    """In a forked child the lock is refused, and what the child does leaves it with the parent."""
    runtime = _Elsewhere()
    lock = Lock(folder, "s", runtime=runtime)
    runtime.number = 2
    with pytest.raises(SessionClosed) as refused:
        lock.check()
    assert "parent process" in refused.value.reason
    lock.release()


FORKING = """
import os, sys
import perdure

store = perdure.open(sys.argv[1])
session = store.writer("s")
session.append("x", "parent")
session.buffer("x", "buffered by the parent")
pid = os.fork()
if pid == 0:
    try:
        session.append("x", "child")
    except perdure.errors.SessionClosed as error:
        assert "parent process" in str(error)
    else:
        os._exit(3)
    session.close()
    store.close()
    with perdure.open(sys.argv[1]) as own:
        try:
            own.writer("s")
        except perdure.errors.SessionBusy as error:
            assert error.pid == os.getppid()
            os._exit(0)
    os._exit(4)
assert os.waitpid(pid, 0)[1] == 0
session.append("x", "parent again")
store.close()
"""


def test_a_forked_child_leaves_the_writer_to_its_parent(root: Path) -> None:
    """After a fork the child cannot write, and takes nothing from its parent."""
    # From Python 3.12 on a fork beside threads warns; that it goes well is what is shown here.
    quiet = ("-W", "ignore::DeprecationWarning")
    done = subprocess.run(
        [sys.executable, *quiet, "-c", FORKING, str(root)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert [event.data for event in perdure.open(root).read_from("s")] == [
        None,
        "parent",
        "buffered by the parent",
        "parent again",
    ]
