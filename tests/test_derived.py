"""Derived data on each medium: private, unsynced, removed with what it was derived from."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.backends.base import Backend, Hold
from perdure.backends.directory import DirectoryBackend
from perdure.backends.null import NullBackend
from perdure.backends.sqlite import SqliteBackend
from perdure.backends.sqlite.writing import Writer
from perdure.durable import crash
from perdure.errors import PersistenceDisabled, StorageFull, StorageUnavailable, UnsafeFile
from perdure.testing.contract.medium import HEADER, lines, published, records_after
from tests import media


def folder_of(root: Path) -> Path:
    return root / "store" / "sessions" / "s"


def in_folder(root: Path) -> tuple[DirectoryBackend, Hold]:
    backend = DirectoryBackend(str(root / "store"))
    return backend, published(backend)[0]


def in_file(root: Path) -> tuple[SqliteBackend, Hold]:
    backend = SqliteBackend(str(root / "store.db"))
    return backend, published(backend)[0]


@contextmanager
def operations() -> Iterator[list[str]]:
    """What is done to the disk meanwhile."""
    seen: list[str] = []
    crash.arm(observer=lambda kind, **_: seen.append(kind))
    try:
        yield seen
    finally:
        crash.arm()


# --- folders --------------------------------------------------------------------------------------


def test_files_of_views_are_private(tmp_path: Path) -> None:
    """A file for each name, mode 0600, in the folder `views`, mode 0700, and nothing else."""
    backend, hold = in_folder(tmp_path)
    backend.put_derived(hold, "one", b"1")
    backend.put_derived(hold, "two-2", b"2", at=0)
    views = folder_of(tmp_path) / "views"

    assert stat.S_IMODE(views.stat().st_mode) == 0o700
    assert {p.name: (stat.S_IMODE(p.stat().st_mode), p.read_bytes()) for p in views.iterdir()} == {
        "one": (0o600, b"1"),
        "two-2": (0o600, b"2"),
    }
    hold.release()


def test_nothing_derived_is_synced(tmp_path: Path) -> None:
    """Putting, appending and dropping sync no file and no folder: only commits are waited for."""
    backend, hold = in_folder(tmp_path)
    with operations() as seen:
        backend.put_derived(hold, "one", b"1" * 5000)
        backend.put_derived(hold, "one", b"2" * 5000, at=5000)
        backend.drop_derived(hold, "one")
    assert "sync" not in seen
    assert {*seen} == {"mkdir", "create", "write", "rename", "remove"}
    hold.release()


def test_what_was_being_built_is_removed(tmp_path: Path) -> None:
    """The half of a file that a dead writer left goes when the next is put."""
    backend, hold = in_folder(tmp_path)
    backend.put_derived(hold, "one", b"1")
    views = folder_of(tmp_path) / "views"
    for name in (".one.abcd", ".two.ef"):
        (views / name).write_bytes(b"half")
        (views / name).chmod(0o600)
    assert backend.derived("s", "one") == b"1"

    backend.put_derived(hold, "two", b"2")

    assert sorted(path.name for path in views.iterdir()) == ["one", "two"]
    hold.release()


@pytest.mark.parametrize("what", ["link", "open", "hard link", "folder", "views are a link"])
def test_what_is_unsafe_is_not_followed(tmp_path: Path, what: str) -> None:
    """Links, files that others may write and other kinds are refused, and nothing is changed."""
    backend, hold = in_folder(tmp_path)
    backend.put_derived(hold, "one", b"1")
    views = folder_of(tmp_path) / "views"
    victim, file = tmp_path / "victim", views / "one"
    victim.write_bytes(b"precious")
    victim.chmod(0o600)
    file.unlink()
    if what == "link":
        file.symlink_to(victim)
    elif what == "hard link":
        os.link(victim, file)
    elif what == "folder":
        file.mkdir(0o700)
    elif what == "open":
        file.write_bytes(b"1")
        file.chmod(0o666)
    else:
        views.rmdir()
        views.symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UnsafeFile):
        backend.derived("s", "one")
    with pytest.raises(UnsafeFile):
        backend.put_derived(hold, "one", b"2", at=1)

    assert victim.read_bytes() == b"precious"
    backend.commit(hold, hold.position, records_after(hold.position, "more"))
    hold.release()
    assert len(lines(backend)) == 4


def test_a_replaced_log_leaves_no_views(tmp_path: Path) -> None:
    """All that was derived goes before another log takes the place, whatever it is called."""
    backend, hold = in_folder(tmp_path)
    for name in ("one", "two"):
        backend.put_derived(hold, name, b"1")
    hold.release()
    hold = backend.lock("s")
    backend.replace(hold, HEADER, [], place="repair-1", reason="a test")
    hold.release()
    assert not (folder_of(tmp_path) / "views").exists()


def test_a_log_is_replaced_whatever_views_are(tmp_path: Path) -> None:
    """Views that cannot be removed do not keep a repair from its work."""
    backend, hold = in_folder(tmp_path)
    hold.release()
    views = folder_of(tmp_path) / "views"
    views.mkdir(0o700)
    (views / "deep").mkdir(0o700)
    (views / "deep" / "file").write_bytes(b"somebody's")
    hold = backend.lock("s")
    backend.replace(hold, HEADER, [], place="repair-1", reason="a test")
    hold.release()
    assert lines(backend) == []
    assert not views.exists()


@pytest.mark.parametrize("at", [None, 3])
def test_a_full_disk_leaves_the_log_alone(
    tmp_path: Path, at: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where derived bytes cannot be written, that is said, and the next commit goes on."""
    backend, hold = in_folder(tmp_path)
    backend.put_derived(hold, "one", b"old")

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageFull):
            backend.put_derived(hold, "one", b"new", at=at)
    assert backend.derived("s", "one") == b"old"
    assert not hold.dead
    backend.commit(hold, hold.position, records_after(hold.position, "more"))
    hold.release()
    names = sorted(path.name for path in (folder_of(tmp_path) / "views").iterdir())
    assert names == ["one"]


# --- SQLite ---------------------------------------------------------------------------------------


def test_rows_of_views_go_with_their_session(tmp_path: Path) -> None:
    """Nothing derived is left of a session that was removed for good, and of its older logs."""
    backend, hold = in_file(tmp_path)
    backend.put_derived(hold, "one", b"1" * 3_000_000)
    backend.put_derived(hold, "two", b"2")
    hold.release()
    hold = backend.lock("s")
    backend.replace(hold, HEADER, [], place="repair-1", reason="a test")
    assert backend.derived("s", "one") is None
    backend.put_derived(hold, "one", b"1")
    hold.release()
    assert count_rows(backend) == 5

    backend.purge(backend.discard("s", lambda _: None), lambda _: None)

    assert count_rows(backend) == 0


def count_rows(backend: SqliteBackend) -> int:
    def question(db: apsw.Connection) -> int:
        return len(db.execute("SELECT 1 FROM derived").fetchall())

    return backend._medium.read(question)


def test_only_commits_of_records_are_synced(tmp_path: Path) -> None:
    """Derived rows are committed without a sync, and the commit after them is synced as ever."""
    backend, hold = in_file(tmp_path)
    levels: list[tuple[str, int]] = []
    within = backend._medium.commit

    def observed(writer: Writer, unknown: Any) -> None:
        levels.append(("commit", int(writer.connection.pragma("synchronous"))))
        within(writer, unknown)

    backend._medium.commit = observed  # type: ignore[method-assign]
    backend.put_derived(hold, "one", b"1")
    backend.put_derived(hold, "one", b"2", at=1)
    backend.drop_derived(hold, "one")
    backend.commit(hold, hold.position, records_after(hold.position, "more"))
    hold.release()

    assert [level for _, level in levels] == [1, 1, 1, 2]
    idle = [writer.connection.pragma("synchronous") for writer in backend._medium._idle]
    assert {*idle} == {2}
    backend.close()


def test_a_busy_file_leaves_no_unsynced_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A put that is refused half-way gives back no connection that would not sync."""
    backend, hold = in_file(tmp_path)

    def fails(*_: Any) -> None:
        raise apsw.BusyError("somebody else writes")

    with monkeypatch.context() as patch:
        patch.setattr(backend._medium, "commit", fails)
        with pytest.raises(StorageUnavailable):
            backend.put_derived(hold, "one", b"1")
    assert not hold.dead
    assert backend.derived("s", "one") is None
    assert {writer.connection.pragma("synchronous") for writer in backend._medium._idle} <= {2}
    backend.commit(hold, hold.position, records_after(hold.position, "more"))
    hold.release()
    backend.close()


# --- nothing kept ---------------------------------------------------------------------------------


def test_without_persistence_nothing_is_derived() -> None:
    """What keeps nothing takes derived data and has none."""
    backend: Backend = NullBackend()
    hold = backend.stage(HEADER)
    backend.put_derived(hold, "one", b"1")
    backend.put_derived(hold, "one", b"1", at=77)
    backend.drop_derived(hold, "one")
    with pytest.raises(PersistenceDisabled):
        backend.derived("s", "one")
    hold.release()


@pytest.mark.parametrize("kind", ["zst", "sqlite"])
def test_what_somebody_blew_up_is_not_read(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derived data above its limit counts as none, and nobody takes it into memory."""
    for module in ("directory", "sqlite"):
        monkeypatch.setattr(f"perdure.backends.{module}.deriving.DERIVED_BYTES_MAX", 100)
    with media.open_medium(kind, tmp_path) as store:
        with store.create("s") as session, session.turn() as turn:
            turn.user("hello")
        expected = store.inspect("s").messages()
        backend = store._backend
        hold = backend.lock("s")
        backend.put_derived(hold, "checkpoint", b"x" * 101)
        hold.release()
        assert backend.derived("s", "checkpoint") is None
        assert store.inspect("s").messages() == expected
        store.resume("s").close()


def test_a_checkpoint_of_any_length_is_no_obstacle(tmp_path: Path) -> None:
    """A file of ten gigabytes in place of a checkpoint neither stops anybody nor fills memory."""
    with perdure.open(tmp_path / "store") as store:
        with store.create("s") as session, session.turn() as turn:
            turn.user("hello")
        path = Path(str(store.locate("s"))).parent / "views" / "checkpoint"
        os.truncate(path, 10 * 2**30)
        assert len(store.inspect("s").messages()) == 1
        with store.resume("s") as session, session.turn() as turn:
            turn.user("again")
        assert path.stat().st_size < 2**20
