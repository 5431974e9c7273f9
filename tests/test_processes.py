"""Other processes, threads, signals and the end of the interpreter: what is guaranteed of each."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.durable import crash
from perdure.errors import SessionBusy, SessionClosed

CHILD = """
import sys, perdure
store = perdure.open(sys.argv[1])
session = store.create("child")
session.append("x", "acknowledged")
session.buffer("x", "buffered")
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "store") as opened:
        yield opened


def data_of(store: perdure.Store, id: str) -> list[object]:
    return [event.data for event in store.read_from(id)]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# --- the end of a process -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "end",
    [
        "",
        "sys.exit(3)",
        "raise SystemExit('told')",
        "raise LookupError('unhandled')",
        "import threading; threading.Thread(target=lambda: 1 / 1).start()",
        "del store, session",
        "import gc; del session; gc.collect()",
    ],
)
def test_what_is_buffered_at_exit_is_stored(tmp_path: Path, end: str) -> None:
    """However an interpreter comes to its end by itself, buffered events are stored."""
    root = tmp_path / "store"
    run(CHILD + end, str(root))
    with perdure.open(root) as store:
        assert data_of(store, "child") == ["acknowledged", "buffered"]
        assert store.verify("child").status == "ok"


def test_what_is_evident_at_exit_is_noted(tmp_path: Path) -> None:
    """A process that ends without closing its store leaves evidence of where its logs stood."""
    root = tmp_path / "store"
    run(CHILD, str(root))
    with perdure.open(root) as store:
        seen = store._witness.evidence.known("", "child")
    assert [one.position.seq for one in seen] == [1]


def test_an_abrupt_end_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    """os._exit runs no exit code: what was acknowledged is there, what was buffered may be."""
    root = tmp_path / "store"
    run(CHILD + "import os; os._exit(0)", str(root))
    with perdure.open(root) as store:
        assert data_of(store, "child")[:1] == ["acknowledged"]


def test_a_failure_at_exit_is_told(tmp_path: Path) -> None:
    """What cannot be stored at the end of the interpreter is not dropped without a word."""
    root = tmp_path / "store"
    done = run(
        CHILD + "import os, resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "size = os.stat(store.locate('child')).st_size\n"
        "session.buffer('x', os.urandom(9000).hex())\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n",
        str(root),
    )
    assert "StorageUnavailable" in done.stderr
    assert "could not be stored" in done.stderr


# --- forks and other processes ------------------------------------------------------------------


def _append(root: str, id: str, count: int) -> None:
    with perdure.open(root) as store, store.create(id) as session:
        for number in range(count):
            session.append("x", number)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_write_side_by_side(store: perdure.Store, tmp_path: Path, method: str) -> None:
    """Processes of the multiprocessing module, forked or spawned, write sessions of one store."""
    context: Any = multiprocessing.get_context(method)
    with store.create("parent") as session:
        session.append("x", 0)
        arguments = [(str(tmp_path / "store"), f"child-{n}", 5) for n in range(3)]
        children = [context.Process(target=_append, args=each) for each in arguments]
        for child in children:
            child.start()
        session.append("x", 1)
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0, 0]
        session.append("x", 2)
    assert data_of(store, "parent") == [0, 1, 2]
    for number in range(3):
        assert data_of(store, f"child-{number}") == [0, 1, 2, 3, 4]


def _use_inherited(store: perdure.Store, session: perdure.Session) -> None:
    with pytest.raises(SessionClosed):
        session.append("x", "the child's")
    with pytest.raises(SessionClosed):
        session.put_blob(b"the child's")
    with pytest.raises(SessionBusy) as busy:
        store.writer("s")
    assert busy.value.pid == os.getppid()
    with store.create("child") as own:
        own.buffer("x", "own")
    assert data_of(store, "s") == ["before"]
    session.close()
    store.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_reads_and_writes_its_own(store: perdure.Store) -> None:
    """A child may use the store that it inherited, but not the writers; the parent goes on."""
    session = store.create("s")
    session.append("x", "before")
    session.buffer("x", "buffered in the parent")
    store.inspect("s")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_use_inherited, args=(store, session))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    session.append("x", "after")
    session.close()
    assert data_of(store, "s") == ["before", "buffered in the parent", "after"]
    assert data_of(store, "child") == ["own"]


def test_writers_are_not_sent_to_other_processes(store: perdure.Store) -> None:
    """Handing a store or a writer to a spawned process is refused with what to do instead."""
    context = multiprocessing.get_context("spawn")
    session = store.create("s")
    session.append("x")
    for thing in (store, session):
        with pytest.raises(TypeError, match="to another process"):
            context.Process(target=print, args=(thing,)).start()
    assert session.append("x").seq == 1


# --- threads and signals ------------------------------------------------------------------------


def test_threads_share_a_writer(store: perdure.Store) -> None:
    """Events of many threads are all stored, those of each thread in its order."""
    session = store.create("s")
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            barrier.wait()
            for number in range(50):
                (session.append if number % 5 else session.buffer)("x", [name, number])
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()
    found = data_of(store, "s")
    assert failures == []
    assert len(found) == 400
    for name in range(8):
        of_name = [event for event in found if isinstance(event, list) and event[0] == name]
        assert of_name == [[name, number] for number in range(50)]


@pytest.mark.parametrize("call", ["append", "buffer", "flush", "close", "put_blob"])
def test_a_signal_handler_in_the_middle_is_told(store: perdure.Store, call: str) -> None:
    """A handler that comes back to the session amid a commit is refused, and never hangs."""
    session = store.create("s")
    session.append("x", "first")
    told: list[SessionBusy] = []

    def handler(*_: object) -> None:
        arguments = {"append": ("x",), "buffer": ("x",), "put_blob": (b"x",)}.get(call, ())
        with pytest.raises(SessionBusy) as busy:
            getattr(session, call)(*arguments)
        told.append(busy.value)

    def interrupt(name: str) -> None:
        if name == "sync.before" and not told:
            signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handler)
    crash.arm(hook=interrupt)
    try:
        assert session.append("x", "second").seq == 1
    finally:
        crash.arm()
        signal.signal(signal.SIGUSR1, before)
    assert [error.reentered for error in told] == [True]
    assert "flag" in told[0].hint
    session.append("x", "third")
    session.close()
    assert data_of(store, "s") == ["first", "second", "third"]


def test_a_handler_between_commits_appends(store: perdure.Store) -> None:
    """A handler that runs while no commit is under way appends like anybody else."""
    session = store.create("s")
    session.append("x", "first")

    def handler(*_: object) -> None:
        session.append("x", "from the handler")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    session.close()
    assert data_of(store, "s") == ["first", "from the handler"]
