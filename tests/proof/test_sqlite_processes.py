"""Databases and real processes: full disks, what may only be read, others who hold the file."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

import perdure
from perdure.backends.sqlite import SqliteBackend, file, medium
from perdure.errors import (
    SessionBusy,
    SessionDamaged,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
)
from perdure.store import Store
from perdure.testing.crash import in_own_process
from perdure.testing.peers import Peer
from perdure.testing.vfs import standing_between
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

PROCESSES = 8


class Place(NamedTuple):
    """Where a store is."""

    url: str
    path: Path

    def open(self) -> Store:
        return perdure.open(self.url)

    @property
    def wal(self) -> Path:
        return Path(f"{self.path}-wal")


@pytest.fixture(params=["sqlite", "bundle"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A file that is not there yet, in a folder of its own."""
    return place_in(tmp_path / "folder", request.param)


def place_in(folder: Path, scheme: str) -> Place:
    folder.mkdir(0o700, exist_ok=True)
    path = folder / {"sqlite": "s.db", "bundle": "s.perdure"}[scheme]
    return Place(f"{scheme}:{path}", path)


def child(script: str, *arguments: object) -> str:
    """Run a script in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


PRELUDE = """
import os, signal, subprocess, sys
import apsw
import perdure
import perdure.backends.sqlite
from perdure.errors import *

def put(session, first, count):
    for number in range(first, first + count):
        session.append("x", number)

def numbers(store):
    return [event.data for event in store.read_from("s") if event.type == "x"]
"""


def numbers(store: Store) -> list[Any]:
    return [event.data for event in store.read_from("s") if event.type == "x"]


@contextmanager
def beside(script: str, *arguments: object) -> Iterator[Callable[[str], str]]:
    """A process that answers lines with lines."""
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        into, out = process.stdin, process.stdout
        assert into is not None
        assert out is not None

        def ask(order: str) -> str:
            into.write(f"{order}\n")
            return out.readline().strip()

        yield ask
        into.close()


# --- full ----------------------------------------------------------------------------------------

FULL = """
url, folder = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "none", folder], check=True)
ballast = os.path.join(folder, "ballast")
with open(ballast, "wb") as file:
    file.write(bytes(200_000))
store = perdure.open(url)
session = store.create("s")
count = 0
try:
    while True:
        session.append("x", "y" * 3000)
        count += 1
except StorageFull as error:
    assert error.retryable and "free some space" in error.hint, error
seq = session.position.seq
assert (seq, count > 20) == (count - 1, True), (seq, count)
assert len([*store.read_from("s")]) == count
os.unlink(ballast)
session.append("x", "again")
session.close()
store.close()
with perdure.open(url) as store:
    report = store.verify("s")
    assert report.sound and report.events == count + 1, report
print("full")
"""


def test_a_full_disk(place: Place) -> None:
    """Where nothing fits any more a writer is told so, and goes on when there is room again."""
    unshare = ["unshare", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    done = subprocess.run(
        [*unshare, sys.executable, "-c", PRELUDE + FULL, place.url, str(place.path.parent)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("full\n", "")


def test_limits_of_the_process(tmp_path: Path, seed: int) -> None:
    """Without descriptors, or with files that may not grow, the kernel's refusals are told."""
    runs = scaled(200)
    counts = in_own_process(
        "perdure.testing.quotas:meet_limits",
        folder=str(tmp_path),
        seed=seed,
        runs=runs,
        opener="perdure.testing.databases:open_database",
    )
    summarise("limits of the process, with databases", seed, counts)
    assert counts["open files"] + counts["size of files"] == runs
    assert counts["storage-full"] > 0


def test_what_does_not_fit_costs_no_writer(place: Place) -> None:
    """A writer whose commit did not fit, wherever it was broken off, goes on with the next one."""
    answers: list[str] = []
    left = [0]

    def judge(kind: str) -> str | None:
        if kind != "sqlite write" or not answers:
            return None
        left[0] -= 1
        return answers.pop() if left[0] < 0 else None

    with standing_between(judge=judge, to_disk=False), place.open() as store:
        session = store.create("s")
        session.append("x", 0)
        stored = [0]
        for write in range(4):
            for code in ("ENOSPC", "short"):
                answers.append(code)
                left[0] = write
                with pytest.raises(StorageFull):
                    session.append("x", "y" * 9000)
                session.append("x", write)
                stored.append(write)
                assert numbers(store) == stored
        session.close()
        assert store.verify("s").sound


@pytest.mark.parametrize("first", [False, True])
def test_a_failed_sync_ends_the_writer(place: Place, *, first: bool) -> None:
    """After a sync that failed nobody is told that it was stored; opening again tells."""
    failing: list[str] = []
    with standing_between(
        judge=lambda kind: "EIO" if kind == "sqlite sync" and failing else None, to_disk=False
    ):
        store = place.open()
        session = store.create("s")
        if not first:
            session.append("x", 0)
        else:
            store.create("another").append("x", 0)
        failing.append("now")
        with pytest.raises(StorageUnavailable) as raised:
            session.append("x", 1)
        assert [event.data for event in raised.value.lost] == [1]
        assert session.closed
        failing.clear()
        before = [] if first else [0]
        try:
            with store.writer("s") as again:
                assert numbers(store) in (before, [*before, 1])
                again.append("x", 2)
        except SessionNotFound:
            assert first
        store.close()
    with place.open() as store:
        assert store.verify("another" if first else "s").sound


# --- to be read only -----------------------------------------------------------------------------

READ_ONLY = """
url, folder, name, what = sys.argv[1:]
mode = 0o500 if "folder" in what else 0o700
for path, folders, files in os.walk(folder):
    for each in files:
        os.chmod(os.path.join(path, each), 0o400)
    for each in folders:
        os.chmod(os.path.join(path, each), mode)
os.chmod(folder, mode)
if os.geteuid() == 0:  # for whom permissions are none
    for path, folders, files in os.walk(folder):
        for each in (path, *(os.path.join(path, one) for one in files)):
            os.chown(each, 65534, 65534)
    os.seteuid(65534)
before = sorted(os.listdir(folder))
with perdure.open(url) as store:
    try:
        read = numbers(store)
    except StorageUnavailable as error:
        assert "WAL" in error.reason and not error.retryable, error
        read = "refused"
    try:
        store.append("s", [{"type": "x", "data": "never"}])
    except (StorageUnavailable, UnsafeFile) as error:
        assert not error.retryable and "database" not in error.message, error
    else:
        raise AssertionError("written")
    if read != "refused":
        assert numbers(store) == read
        assert store.verify("s").sound
if "folder" in what:
    assert sorted(os.listdir(folder)) == before
print(read)
"""


@pytest.mark.parametrize("what", ["file", "folder", "folder, wal", "folder, wal alone"])
@pytest.mark.parametrize("scheme", ["sqlite", "bundle"])
def test_what_may_only_be_read(scheme: str, what: str) -> None:
    """It is read whole or refused; what stands in the WAL is never passed over in silence."""
    with tempfile.TemporaryDirectory() as above:
        os.chmod(above, 0o755)  # noqa: S103 - whoever reads below is another user
        place = place_in(Path(above) / "folder", scheme)
        leave_wal(place) if "wal" in what else leave_whole(place)
        if what == "folder, wal alone":
            Path(f"{place.path}-shm").unlink()
        said = child(READ_ONLY, place.url, place.path.parent, place.path.name, what)
    whole = f"{[*range(10)]}\n"
    assert said in ((whole, "refused\n") if "wal" in what else (whole,))
    if what == "folder, wal alone":
        assert said == "refused\n"


def leave_whole(place: Place) -> None:
    with place.open() as store, store.create("s") as session:
        for number in range(10):
            session.append("x", number)


def leave_wal(place: Place) -> None:
    """Ten events, the last five of them in the WAL that a killed writer left."""
    with place.open() as store, store.create("s") as session:
        for number in range(5):
            session.append("x", number)
    process = subprocess.run(
        [sys.executable, "-c", PRELUDE + LEAVE, place.url], check=False, capture_output=True
    )
    assert process.returncode == -signal.SIGKILL
    assert place.wal.stat().st_size


LEAVE = """
store = perdure.open(sys.argv[1])
put(store.writer("s"), 5, 5)
os.kill(os.getpid(), signal.SIGKILL)
"""


# --- what a killed writer left -------------------------------------------------------------------


def test_a_wal_that_was_left_is_read_and_written_on(place: Place) -> None:
    """What stands in a WAL is there for every reader, and for the writer who goes on."""
    leave_wal(place)
    before = {path: path.read_bytes() for path in (place.path, place.wal)}
    with place.open() as store:
        assert numbers(store) == [*range(10)]
        assert store.verify("s").sound
    assert {path: path.read_bytes() for path in (place.path, place.wal)} == before
    with place.open() as store, store.writer("s") as session:
        session.append("x", 10)
        assert numbers(store) == [*range(11)]
    assert not place.wal.exists()


@pytest.mark.parametrize("evidence", [False, True])
def test_a_copy_without_its_wal(place: Place, tmp_path: Path, *, evidence: bool) -> None:
    """It is an older state, or one that evidence knows to be too old; never a damaged one."""
    leave_wal(place)
    with place.open() as store, store.writer("s") as session:
        session.append("turn/end", {})
        store._witness.push()
        copy = place_in(tmp_path / "copy", place.url.partition(":")[0])
        shutil.copy(place.path, copy.path)
        if evidence:
            shutil.copytree(f"{place.path}.d", f"{copy.path}.d")
    with copy.open() as store:
        read = readable(store)
        assert read == [*range(len(read))]
        refusal = None
        try:
            with store.writer("s") as session:
                session.append("x", "on")
        except SessionDamaged as error:
            refusal = error.kind
        if evidence:
            assert refusal in ("missing-tail", "evidence")
        else:
            assert refusal is None
            assert numbers(store) == [*read, "on"]
            assert store.verify("s").sound


def readable(store: Store) -> list[Any]:
    """What can be read of a session whose end may be missing."""
    events = store.read_from("s")
    found: list[Any] = []
    kind = "missing-tail"
    try:
        while (event := next(events, None)) is not None:
            found.append(event.data)
    except SessionDamaged as error:
        kind = error.kind
    assert kind in ("missing-tail", "evidence")
    return found


# --- others who have it --------------------------------------------------------------------------

HOLD = """
held = apsw.Connection(sys.argv[1])
held.set_busy_timeout(20_000)
held.execute("BEGIN EXCLUSIVE")
for line in sys.stdin:
    held.execute("ROLLBACK")
    print("given back", flush=True)
"""


def test_somebody_who_holds_the_file(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer waits so long and no longer, says that it may be tried again, and readers go on."""
    for module in (file, medium):
        monkeypatch.setattr(module, "WAIT_MS", 200)
    leave_whole(place)
    with place.open() as store, store.writer("s") as session:
        session.append("x", 10)
        with beside(HOLD, place.path) as ask:
            wait_until_held(place.path)
            for write in (
                lambda: session.append("x", 11),
                lambda: store.create("t").append("x", 0),
                lambda: session.put_blob(b"content"),
            ):
                with pytest.raises(StorageUnavailable, match="used by others") as raised:
                    write()
                assert raised.value.retryable
                assert "locked" not in str(raised.value)
            assert numbers(store) == [*range(11)]
            with place.open() as other:
                assert numbers(other) == [*range(11)]
                assert other.verify("s").sound
            assert ask("give it back") == "given back"
            session.append("x", 11)
        assert numbers(store) == [*range(12)]


def wait_until_held(path: Path) -> None:
    connection = apsw.Connection(str(path))
    for _ in range(1_000_000):
        try:
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            connection.close()
            return
    pytest.fail("nobody holds it")


def test_many_processes_write_one_file(place: Place) -> None:
    """Processes that write sessions of their own at once lose nothing and are never refused."""
    each = scaled(500)
    with place.open() as store:
        store.create("first").append("x", 0)
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(place.url, "zst")) for _ in range(PROCESSES)]
        for number, peer in enumerate(peers):
            assert peer.ask("create", session=f"s{number}").keys() == {"acknowledged"}
        for peer in peers:
            peer.tell("append", count=each)
        answers = [peer.hear() for peer in peers]
    assert [[*answer] for answer in answers] == [["acknowledged"]] * PROCESSES
    with place.open() as store:
        for number, answer in enumerate(answers):
            events = [*store.read_from(f"s{number}")]
            told = dict(answer["acknowledged"])
            assert len(told) == each
            assert {seq: events[seq].data for seq in told} == told
            assert len(events) == each + 1
            assert store.verify(f"s{number}").sound


def test_two_processes_want_one_session(place: Place) -> None:
    """The second one hears who has it, and gets it when the first one is killed."""
    leave_whole(place)
    with Peer(place.url, "zst") as first, place.open() as store:
        assert first.ask("open", session="s") == {"seq": 9}
        with pytest.raises(SessionBusy) as raised:
            store.writer("s")
        assert raised.value.pid == first.pid
        first.kill()
        with store.writer("s", wait=10) as session:
            session.append("x", 10)
        assert numbers(store) == [*range(11)]


# --- our own locks -------------------------------------------------------------------------------

TRY = """
for line in sys.stdin:
    other = apsw.Connection(sys.argv[1])
    try:
        other.execute("BEGIN IMMEDIATE")
    except apsw.BusyError:
        print("held", flush=True)
    else:
        print("free", flush=True)
    other.close()
"""


def test_nothing_that_is_asked_drops_a_lock(place: Place) -> None:
    """While this process writes, whatever else it asks of the file leaves SQLite's locks alone."""
    leave_whole(place)
    with place.open() as store, store.writer("s") as session:
        digest = session.put_blob(b"content" * 1000)
        session.append("x", {"blob": digest})
        store.create("gone").append("x", 0)
        store.delete("gone")
        asked: dict[str, Callable[[Store], object]] = {
            "open": lambda _: place.open().close(),
            "list": lambda other: other.list(),
            "read": lambda other: [*other.read_from("s")],
            "page": lambda other: [*other.read_from("s", 5)],
            "raw": lambda other: [*other.raw("s")],
            "inspect": lambda other: other.inspect("s").problems,
            "holder": lambda other: other.inspect("s").holder,
            "verify": lambda other: other.verify("s"),
            "blob": lambda other: other.blob("s", digest),
            "blobs": lambda other: other.blobs("s"),
            "trash": lambda other: other.trash(),
            "missing": lambda other: other.missing(),
            "reports": lambda other: other.reports(),
            "evidence": lambda other: other.evidence(),
            "snapshots": lambda other: [*other.list_snapshots()],
            "refused": refused,
            "made": lambda other: medium_of(other).make(),
            "settled": lambda other: medium_of(other).settle(),
            "read through": lambda other: medium_of(other).read_through(),
        }
        with beside(TRY, place.path) as ask, medium_of(store).transaction() as db:
            db.execute("UPDATE sessions SET revision = revision + 1")
            assert ask("begin") == "held"
            for name, call in asked.items():
                with place.open() as other:
                    call(other)
                    assert (name, ask(name)) == (name, "held")
                assert (name, ask("closed")) == (name, "held")
        assert store.verify("s").sound


def medium_of(store: Store) -> medium.Medium:
    backend = store._backend
    assert isinstance(backend, SqliteBackend)
    return backend._medium


def refused(store: Store) -> None:
    with pytest.raises(SessionBusy):
        store.writer("s")
