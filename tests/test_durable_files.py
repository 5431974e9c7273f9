"""Private files: their modes, what is refused in their place, appends that fail half-way."""

import errno
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.durable import crash
from perdure.durable.appending import AppendFile, ReadFile
from perdure.durable.files import Folder
from perdure.errors import PerdureError, StorageFull, StorageUnavailable, UnsafeFile
from perdure.runtime import SYSTEM
from perdure.store import Session, Store
from tests.support import scaled

FILES = ("store.json", "sessions/s/log.jsonl", "sessions/s/tail", "sessions/s/lock")
FOLDERS = (".", "sessions", "sessions/s")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of one session, at rest."""
    folder = tmp_path / "store"
    with perdure.open(folder, encoding="raw") as store, store.create("s") as session:
        session.append("x", "kept")
    return folder


def use(root: Path) -> None:
    """Touch every file of the store."""
    with perdure.open(root) as store:
        store.inspect("s").problems  # noqa: B018
        store.writer("s").close()


# --- modes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("umask", [0, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_everything_is_private_whatever_the_umask(
    tmp_path: Path, umask: int, encoding: str
) -> None:
    """Files get mode 0600 and folders 0700, those set aside included."""
    # case 40
    before = os.umask(umask)
    try:
        root = tmp_path / "store"
        with perdure.open(root, encoding=encoding) as store, store.create("s") as session:
            session.append("x")
        log = next(root.glob("sessions/s/log*"))
        log.write_bytes(log.read_bytes() + b"torn")
        use(root)
    finally:
        os.umask(before)

    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (root, *root.rglob("*"))}
    assert any("aside" in path.parts for path in modes)
    wrong = {
        path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)
    }
    assert wrong == {}


# --- what is refused ----------------------------------------------------------------------------

Spoiler = Callable[[Path], object]


def linked(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def dangling(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("nowhere")


def hard_linked(path: Path) -> None:
    os.link(path, path.with_name("second"))


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def made_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(0o700)


def made_socket(path: Path) -> None:
    path.unlink()
    there = os.getcwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(there)


def mode(bits: int) -> Spoiler:
    def change(path: Path) -> None:
        path.chmod(bits)

    change.__name__ = f"mode_{bits:o}"
    return change


FILE_SPOILERS = (
    linked,
    dangling,
    hard_linked,
    piped,
    made_folder,
    made_socket,
    *tuple(map(mode, (420, 432, 390, 416))),
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("spoil", FILE_SPOILERS, ids=lambda spoil: spoil.__name__)
def test_a_file_that_is_not_ours_is_refused(root: Path, name: str, spoil: Spoiler) -> None:
    """A link, another kind or a foreign mode is refused; nothing is followed or waited for."""
    # heinzel 13
    spoil(root / name)

    with pytest.raises(UnsafeFile) as refused:
        use(root)

    assert refused.value.path == str(root / name)
    for moved in root.rglob("elsewhere"):
        assert moved.read_bytes() != b""


def moved_folder(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


def file_in_place(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(b"")


def pipe_in_place(path: Path) -> None:
    path.rename(path.with_name("moved"))
    os.mkfifo(path, 0o600)


FOLDER_SPOILERS = (
    moved_folder,
    file_in_place,
    pipe_in_place,
    mode(0o755),
    mode(0o770),
    mode(0o701),
)


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("spoil", FOLDER_SPOILERS, ids=lambda spoil: spoil.__name__)
def test_a_folder_that_is_not_ours_is_refused(root: Path, name: str, spoil: Spoiler) -> None:
    """A root, a folder of sessions or a session's folder that is none of ours is refused."""
    # heinzel 13
    place = root / name if name != "." else root
    spoil(place)

    with pytest.raises(UnsafeFile) as refused:
        use(root)

    assert refused.value.path == str(place)


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_another_owner_is_refused(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What belongs to another user is refused."""
    # heinzel 13
    inode = (root / name).stat().st_ino
    true_status = os.fstat

    def foreign(descriptor: int) -> os.stat_result:
        status = true_status(descriptor)
        if status.st_ino != inode:
            return status
        return os.stat_result((*status[:4], SYSTEM.uid() + 1, *status[5:]))

    monkeypatch.setattr(os, "fstat", foreign)
    with pytest.raises(UnsafeFile) as refused:
        use(root)
    assert "belongs to user" in refused.value.reason


def test_one_unsafe_session_hides_no_other(root: Path) -> None:
    """A listing shows what is wrong with one session beside the others."""
    # case 5; design rule 5
    with perdure.open(root) as store, store.create("t") as session:
        session.append("x")
    linked(root / "sessions/s/log.jsonl")

    listed = {entry.name: entry for entry in perdure.open(root).list()}

    assert listed["t"].problem is None
    assert listed["s"].header is None
    assert listed["s"].problem is not None
    assert "link" in listed["s"].problem.reason


def test_a_folder_with_something_else_in_it_is_no_place_for_a_store(tmp_path: Path) -> None:
    """A store is not made in a folder that holds other things, and their files stay as they are."""
    tmp_path.chmod(0o700)
    (tmp_path / "letter.txt").write_text("dear ann")

    with pytest.raises(UnsafeFile):
        perdure.open(tmp_path).create("s").append("x")

    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


# --- appends that fail --------------------------------------------------------------------------


@pytest.fixture
def session(root: Path) -> Iterator[Session]:
    """A writer of the session at rest, released at the end whatever became of it."""
    opened = perdure.open(root).writer("s")
    yield opened
    with suppress(PerdureError):
        opened.close()


def stored(root: Path) -> list[Any]:
    return [event.data for event in perdure.open(root).read_from("s")]


class Failing:
    """A system call that fails some of the times it is called, on one file."""

    def __init__(self, call: str, code: int, *, times: int, inode: int, written: int = 0) -> None:
        self.call, self.code, self.times, self.inode = call, code, times, inode
        self.written = written
        self.true = getattr(os, call)

    def __call__(self, descriptor: int, *rest: Any) -> Any:
        if os.fstat(descriptor).st_ino != self.inode or not self.times:
            return self.true(descriptor, *rest)
        self.times -= 1
        if self.written:
            data, offset = rest
            self.true(descriptor, data[: self.written], offset)
        raise OSError(self.code, os.strerror(self.code))


def fail(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    call: str,
    code: int,
    *,
    times: int = 1,
    written: int = 0,
) -> None:
    inode = path.stat().st_ino
    monkeypatch.setattr(os, call, Failing(call, code, times=times, inode=inode, written=written))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("written", [0, 1, 50])
@pytest.mark.parametrize("times", [1, 3])
def test_a_full_disk_keeps_nothing_of_the_commit(
    root: Path,
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    *,
    code: int,
    written: int,
    times: int,
) -> None:
    """When the disk is full the commit is undone, and the next append works."""
    # case 7
    log = root / "sessions/s/log.jsonl"
    before = log.read_bytes()
    fail(monkeypatch, log, "pwrite", code, times=times, written=written)

    for _ in range(times):
        with pytest.raises(StorageFull) as full:
            session.append("x", "lost")
        assert full.value.retryable
        assert full.value.path == str(log)
        assert log.read_bytes() == before

    assert session.append("x", "stored").seq == 1
    assert stored(root) == ["kept", "stored"]


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EACCES])
def test_a_failed_write_is_undone(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Another failure of a write is told as such; nothing of the commit is kept."""
    log = root / "sessions/s/log.jsonl"
    before = log.read_bytes()
    fail(monkeypatch, log, "pwrite", code, written=20)

    with pytest.raises(StorageUnavailable) as failed:
        session.append("x", "lost")
    assert not failed.value.retryable
    assert failed.value.lost == ()
    assert log.read_bytes() == before
    assert session.append("x", "stored").seq == 1
    assert stored(root) == ["kept", "stored"]


def test_what_was_buffered_before_a_failed_append_is_still_held(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A durable append that fails is taken back; buffered events wait, in order, for the next."""
    fail(monkeypatch, root / "sessions/s/log.jsonl", "pwrite", errno.ENOSPC)
    buffered = [session.buffer("x", "first"), session.buffer("x", "second")]
    with pytest.raises(StorageFull):
        session.append("x", "lost", key="k")
    assert [event.seq for event in buffered] == [1, 2]

    third = session.append("x", "third", key="k")

    assert third.seq == 3
    assert stored(root) == ["kept", "first", "second", "third"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_sync_ends_the_writer(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A failed sync leaves the disk unknown: the writer ends and names what is lost."""
    fail(monkeypatch, root / "sessions/s/log.jsonl", "fdatasync", code)
    session.buffer("x", "buffered")
    with pytest.raises(StorageUnavailable) as failed:
        session.append("x", "appended")

    assert [event.data for event in failed.value.lost] == ["buffered", "appended"]
    assert not failed.value.retryable
    for again in (lambda: session.append("x"), lambda: session.buffer("x"), session.flush):
        with pytest.raises(perdure.errors.SessionClosed):
            again()
    session.close()
    with perdure.open(root).writer("s") as reopened:
        after = [event.data for event in perdure.open(root).read_from("s")]
        assert after in (["kept"], ["kept", "buffered", "appended"])
        assert reopened.append("x", "next").seq == len(after)
    assert perdure.open(root).verify("s").status == "ok"


def test_a_failed_rollback_ends_the_writer(
    root: Path, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a failed write cannot be undone, only reopening helps; the remains are set aside."""
    log = root / "sessions/s/log.jsonl"
    fail(monkeypatch, log, "pwrite", errno.ENOSPC, written=20)
    fail(monkeypatch, log, "ftruncate", errno.EIO)
    with pytest.raises(StorageUnavailable) as failed:
        session.append("x", "lost")
    assert [event.data for event in failed.value.lost] == ["lost"]
    assert stored(root) == ["kept"]

    with perdure.open(root).writer("s") as reopened:
        assert reopened.append("x", "next").seq == 1
    assert stored(root) == ["kept", "next"]
    assert len(list((root / "sessions/s/aside").glob("*.bytes"))) == 1


def test_buffered_events_that_cannot_be_stored_are_named_at_the_end(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a writer that cannot store its buffer names what is lost and frees the session."""
    session = perdure.open(root).writer("s")
    fail(monkeypatch, root / "sessions/s/log.jsonl", "pwrite", errno.ENOSPC, times=-1)
    session.buffer("x", "lost")
    with pytest.raises(StorageUnavailable) as failed:
        session.close()
    assert [event.data for event in failed.value.lost] == ["lost"]
    monkeypatch.undo()

    with perdure.open(root).writer("s") as following:
        assert following.append("x", "next").seq == 1


@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "rename", "mkdir"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_session_that_cannot_be_published_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """If the first commit fails the caller is told, and a later one may create the session."""
    root = tmp_path / "store"
    with perdure.open(root) as store, store.create("other") as other:
        other.append("x")
    store = perdure.open(root)
    session = store.create("s")

    def failing(*given: Any, **named: Any) -> Any:  # noqa: ARG001
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, failing)
    with pytest.raises((StorageFull, StorageUnavailable)):
        session.append("x", 1)
    monkeypatch.undo()
    session.close()
    listed = [entry.id for entry in perdure.open(root).list()]
    assert listed in (["other"], ["other", "s"])

    if listed == ["other"]:
        with store.create("s") as again:
            assert again.append("x", 2).seq == 0
    else:
        with store.writer("s") as again:
            assert again.append("x", 2).seq == 1
    assert perdure.open(root).verify("s").status == "ok"


def test_files_that_run_out_are_told_from_files_that_break(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many open files is an error of the store with a hint, and nothing foreign escapes."""
    true_open = os.open

    def exhausted(path: Any, *rest: Any, **named: Any) -> int:
        if "log" in str(path):
            raise OSError(errno.EMFILE, "too many open files")
        return true_open(path, *rest, **named)

    monkeypatch.setattr(os, "open", exhausted)
    with pytest.raises(StorageUnavailable) as refused:
        perdure.open(root).inspect("s")
    assert "limit of open files" in refused.value.hint


# --- interrupted at every point -----------------------------------------------------------------


class Interrupting:
    """Raises at the n-th crash point that is reached, once."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.names: list[str] = []

    def __call__(self, name: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # signals are raised in the main thread alone
        self.names.append(name)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt(name)


def interrupted(at: int, action: Callable[[], object]) -> Interrupting | None:
    """Run `action`, interrupted at crash point `at`; None if it has fewer."""
    hook = Interrupting(at)
    crash.arm(hook=hook)
    try:
        action()
    except KeyboardInterrupt:
        return hook
    finally:
        crash.arm()
    return None


def reopen(store: Store) -> None:
    store.writer("s").close()


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_an_append_can_be_interrupted_anywhere(tmp_path: Path, encoding: str) -> None:
    """Interrupted at any point, an append was made or was not, and the same writer goes on."""
    names = set()
    for at in range(1, 1000):
        root = tmp_path / f"{at}"
        store = perdure.open(root, encoding=encoding)
        session = store.create("s")
        session.append("x", 0)
        hook = interrupted(at, partial(session.append, "x", "new", key="k"))
        if hook is None:
            session.close()
            break
        names.update(hook.names)
        before = [event.data for event in perdure.open(root).read_from("s")]
        assert before in ([0], [0, "new"])
        try:
            assert session.append("x", "new", key="k").seq == 1
            assert session.append("x", "next").seq == 2
            session.close()
        except PerdureError:
            session.close()
            with perdure.open(root).writer("s") as reopened:
                assert reopened.append("x", "new", key="k").seq == 1
                assert reopened.append("x", "next").seq == 2
        assert [e.data for e in perdure.open(root).read_from("s")] == [0, "new", "next"]
        assert perdure.open(root).verify("s").status == "ok"
    assert names >= {"write.before", "write.after", "sync.before", "sync.after"}


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_the_first_append_can_be_interrupted_anywhere(tmp_path: Path, encoding: str) -> None:
    """Interrupted at any point, a first append has created the session whole, or not at all."""
    names = set()
    for at in range(1, 1000):
        root = tmp_path / f"{at}"
        store = perdure.open(root, encoding=encoding)
        session = store.create("s")
        hook = interrupted(at, partial(session.append, "x", 0))
        session.close()
        if hook is None:
            break
        names.update(hook.names)
        again = perdure.open(root, encoding=encoding)
        listed = again.list()
        assert [entry.problem for entry in listed] == [None] * len(listed)
        if listed:
            assert [event.data for event in again.read_from("s")] == [0]
            with again.writer("s") as following:
                following.append("x", 1)
        else:
            with again.create("s") as following:
                following.append_many([{"type": "x", "data": 0}, {"type": "x", "data": 1}])
        assert [event.data for event in again.read_from("s")] == [0, 1]
        assert again.verify("s").status == "ok"
    assert names >= {"folder.make", "move.before", "move.after", "folder.sync"}


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_a_recovery_can_be_interrupted_anywhere(tmp_path: Path, encoding: str) -> None:
    """Interrupted at any point, setting a torn tail aside and closing a turn can be done again."""
    for at in range(1, 1000):
        root = tmp_path / f"{at}"
        with perdure.open(root, encoding=encoding) as store, store.create("s") as session:
            session.append("turn/start", {}, turn="t")
        log = next(root.glob("sessions/s/log*"))
        log.write_bytes(log.read_bytes() + b"torn bytes")
        store = perdure.open(root)
        if interrupted(at, partial(reopen, store)) is None:
            break

        with perdure.open(root).writer("s") as following:
            following.append("x", 1)
        assert [event.type for event in store.read_from("s")] == ["turn/start", "turn/end", "x"]
        assert store.verify("s").status == "ok"
        kept = [path.read_bytes() for path in root.rglob("aside/*.bytes")]
        assert b"torn bytes" in kept


def test_interrupted_file_operations_are_told_by_their_length(tmp_path: Path) -> None:
    """An interrupted append of the file layer is back at its length or has all the data."""
    tmp_path.chmod(0o700)
    for at in range(1, 100):
        with Folder.open(str(tmp_path)) as folder:
            file = AppendFile(folder, f"f{at}", create=True)
            file.append(b"first")
            hook = interrupted(at, partial(file.append, b"second"))
            expected = {5: b"first", 11: b"firstsecond"}[file.length]
            assert file.read(0, 100) == expected
            if not file.poisoned:
                file.append(b"!")
                assert file.read(0, 100) == expected + b"!"
            file.close()
            if hook is None:
                break


def test_reading_beyond_the_end_is_short(tmp_path: Path) -> None:
    """A read gives what is there, and nothing behind the end."""
    tmp_path.chmod(0o700)
    with Folder.open(str(tmp_path)) as folder:
        folder.create("f", b"abc")
        file = ReadFile(folder, "f")
        assert [file.read(0, 2), file.read(2, 9), file.read(9, 9)] == [b"ab", b"c", b""]
        file.close()
        file.close()


def test_many_interruptions_leave_a_store_usable(tmp_path: Path, rng: Any) -> None:
    """However often a writer is interrupted, nothing acknowledged is lost, nothing doubled."""
    root = tmp_path / "store"
    acknowledged = []
    with perdure.open(root) as store, store.create("s") as session:
        session.append("x", -1)
    for number in range(scaled(500)):
        try:
            with perdure.open(root).writer("s") as session:
                crash.arm(hook=Interrupting(rng.randrange(1, 30)))
                session.append("x", number)
                acknowledged.append(number)
        except KeyboardInterrupt:
            pass
        finally:
            crash.arm()
    stored_numbers = [event.data for event in perdure.open(root).read_from("s")]

    assert stored_numbers == sorted(set(stored_numbers))
    assert set(acknowledged) <= set(stored_numbers)
    assert perdure.open(root).verify("s").status == "ok"
