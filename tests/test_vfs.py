"""What stands below SQLite changes nothing, tells everything, and fails as the system would."""

import ctypes
import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.durable import crash
from perdure.testing.disk import FILE_POLICIES, Disk, Policy
from perdure.testing.vfs import NAME, SHORT, SQLITE_CALLS, Shim, standing_between

MODES = ("delete", "truncate", "persist", "wal")

Told = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def told() -> Told:
    """Every operation that was told since."""
    found: Told = []

    def observer(kind: str, **facts: Any) -> None:
        found.append((kind, facts))

    crash.arm(observer=observer)
    return found


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    crash.arm()


def connect(place: Path, mode: str) -> apsw.Connection:
    connection = apsw.Connection(str(place))
    connection.pragma("page_size", 1024)
    assert connection.pragma("journal_mode", mode) == mode
    # Where the journal is removed, that is made durable by nothing less.
    connection.pragma("synchronous", "extra")
    return connection


def work(connection: apsw.Connection, rng: random.Random, steps: int) -> None:
    """Tables that grow, shrink and are rolled back; the journal is emptied now and then."""
    connection.execute("CREATE TABLE IF NOT EXISTS t (k INTEGER PRIMARY KEY, v BLOB)")
    for number in range(steps):
        chance = rng.random()
        if chance < 0.1:
            connection.execute("DELETE FROM t")
            connection.execute("VACUUM")
        elif chance < 0.2:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        else:
            connection.execute("BEGIN IMMEDIATE")
            rows = [(rng.randrange(40), rng.randbytes(rng.randrange(4000))) for _ in range(3)]
            connection.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", rows)
            connection.execute("ROLLBACK" if number % 5 == 4 else "COMMIT")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith("-shm")
    }


def disk_of(folder: Path, told: Told) -> Disk:
    disk = Disk(folder.stat().st_ino)
    for kind, facts in told:
        disk.take(kind, facts)
    return disk


# --- handing on ---------------------------------------------------------------------------------


def test_the_former_default_comes_back() -> None:
    """The layer is the default within its context, and is gone after it."""
    before = apsw.vfs_names()
    with standing_between():
        assert apsw.vfs_names() == [NAME, *before]
        with standing_between("below nobody", default=False):
            assert apsw.vfs_names()[0] == NAME
    assert apsw.vfs_names() == before
    with pytest.raises(RuntimeError), standing_between():
        raise RuntimeError
    assert apsw.vfs_names() == before


@pytest.mark.parametrize("mode", MODES)
def test_nothing_changes_by_it(tmp_path: Path, mode: str, rng: random.Random) -> None:
    """The files are the same, byte for byte, as without the layer."""
    seed, places = rng.random(), [tmp_path / name for name in ("with", "without")]
    for place in places:
        place.mkdir()
    with standing_between():
        connection = connect(places[0] / "t.db", mode)
        work(connection, random.Random(seed), 30)
        connection.close()
    connection = connect(places[1] / "t.db", mode)
    work(connection, random.Random(seed), 30)
    connection.close()
    found = [contents(place) for place in places]
    if mode == "persist":
        # The journal that stays holds a random number.
        found = [{"t.db": each["t.db"]} for each in found]
    assert found[0] == found[1]


def test_processes_share_a_log_through_it(tmp_path: Path) -> None:
    """What two processes share beside a write-ahead log is shared through the layer as well."""
    place = tmp_path / "t.db"
    script = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1])\n"
        "print(c.execute('SELECT sum(k) FROM t').get, flush=True)\n"
        "c.execute('INSERT INTO t VALUES (4)')\n"
        "print('put', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with standing_between():
        connection = connect(place, "wal")
        connection.execute("CREATE TABLE t (k); INSERT INTO t VALUES (3)")
        with subprocess.Popen(
            [sys.executable, "-c", script, str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "3\n"
            assert child.stdout.readline() == "put\n"
            assert connection.execute("SELECT sum(k) FROM t").get == 7
            connection.execute("INSERT INTO t VALUES (5)")
            child.communicate("\n")
        assert connection.execute("SELECT sum(k) FROM t").get == 12
        connection.close()


# --- telling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_what_is_told_is_what_happens(
    tmp_path: Path, mode: str, rng: random.Random, told: Told
) -> None:
    """Whoever follows what is told has the same files at every moment."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with standing_between():
        connection = connect(folder / "t.db", mode)
        for _ in range(8):
            work(connection, rng, 5)
            kept = disk_of(folder, told).image(Policy("kept", "kept"), rng)
            assert kept == contents(folder)
        connection.close()
    assert disk_of(folder, told).image(Policy("kept", "kept"), rng) == contents(folder)


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_stays_when_the_power_goes(
    tmp_path: Path, mode: str, rng: random.Random, told: Told
) -> None:
    """Each commit that SQLite acknowledged is there whatever the disk does with the rest."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with standing_between(to_disk=False):
        connection = connect(folder / "t.db", mode)
        connection.execute("CREATE TABLE t (k)")
        for number in range(15):
            connection.execute("INSERT INTO t VALUES (?)", (number,))
            for policy in FILE_POLICIES:
                image = disk_of(folder, told).image(Policy(policy, "dropped"), rng)
                assert rows_of(tmp_path / f"{number} {policy}", image) == [*range(number + 1)]
        connection.close()


def rows_of(place: Path, image: dict[str, bytes | None]) -> list[object]:
    place.mkdir()
    for name, content in image.items():
        (place / name).write_bytes(content or b"")
    connection = apsw.Connection(str(place / "t.db"), vfs="unix")
    rows = connection.execute("SELECT k FROM t").fetchall()
    connection.close()
    return [k for (k,) in rows]


def test_without_syncs_none_is_told(tmp_path: Path, told: Told) -> None:
    """Where syncs are switched off, SQLite makes none and none is told."""
    tell = crash._observer
    crash.arm(observer=tell, without_sync=True)
    with standing_between():
        connection = connect(tmp_path / "t.db", "delete")
        connection.execute("CREATE TABLE t (k)")
        connection.close()
    kinds = {kind for kind, _ in told}
    assert kinds == {"create", "write", "remove"}


def test_files_without_a_name_are_not_told(tmp_path: Path, told: Told) -> None:
    """What SQLite keeps in temporary files is nobody's concern."""
    with standing_between():
        connection = connect(tmp_path / "t.db", "delete")
        connection.execute("PRAGMA temp_store = file; PRAGMA cache_size = 2")
        connection.execute("CREATE TEMP TABLE t (v)")
        rows = [(bytes(5000),) for _ in range(100)]
        connection.executemany("INSERT INTO t VALUES (?)", rows)
        connection.close()
    assert [kind for kind, _ in told] == ["create"]


def test_every_change_has_a_crash_point(tmp_path: Path, rng: random.Random) -> None:
    """A hook hears of each change before it is made and after it."""
    names: list[str] = []
    crash.arm(hook=names.append)
    with standing_between():
        for mode in MODES:
            connection = connect(tmp_path / f"{mode}.db", mode)
            work(connection, rng, 20)
            connection.close()
    before = [name for name in names if name in {"vfs.write", "vfs.sync", "vfs.delete"}]
    after = [name for name in names if name in {"vfs.written", "vfs.synced"}]
    assert len(before) == len(after) + names.count("vfs.deleted")
    assert {*names} == {
        *(f"vfs.{verb}" for verb in ("create", "write", "sync", "truncate", "delete")),
        *(f"vfs.{verb}" for verb in ("created", "written", "synced", "truncated", "deleted")),
    }


def test_half_a_page_is_written(tmp_path: Path) -> None:
    """Whoever dies in the middle of a page leaves half of it."""
    reached: list[str] = []
    with standing_between():
        connection = connect(tmp_path / "t.db", "wal")
        connection.execute("CREATE TABLE t (k)")
        before = (tmp_path / "t.db-wal").stat().st_size

        def hook(name: str) -> None:
            reached.append(name)
            if name == "vfs.write" and reached.count(name) == 2:
                crash.arm(hook=hook, halves=frozenset({"vfs.half"}))
            if name == "vfs.half":
                crash.arm()
                raise KeyboardInterrupt

        crash.arm(hook=hook)
        with pytest.raises(KeyboardInterrupt):
            connection.execute("INSERT INTO t VALUES (1)")
        assert (tmp_path / "t.db-wal").stat().st_size == before + 24 + 512
        connection.close()


# --- failing ------------------------------------------------------------------------------------


def failing(*answers: str | None, at: str) -> Callable[[str], str | None]:
    """A judge that answers calls of one kind in this order, then lets all pass."""
    left = [*answers]
    return lambda kind: left.pop(0) if kind == at and left else None


Case = tuple[str, str, type[apsw.Error], int, int | None]
"""What fails and how; the error, its extended code, and the errno that SQLite tells, if it does."""

CASES: list[Case] = [
    ("sqlite write", "ENOSPC", apsw.FullError, apsw.SQLITE_FULL, 0),
    ("sqlite write", "EDQUOT", apsw.IOError, apsw.SQLITE_IOERR_WRITE, errno.EDQUOT),
    ("sqlite write", "EIO", apsw.IOError, apsw.SQLITE_IOERR_WRITE, errno.EIO),
    ("sqlite write", SHORT, apsw.FullError, apsw.SQLITE_FULL, 0),
    ("sqlite sync", "EIO", apsw.IOError, apsw.SQLITE_IOERR_FSYNC, errno.EIO),
    ("sqlite truncate", "EIO", apsw.IOError, apsw.SQLITE_IOERR_TRUNCATE, errno.EIO),
    ("sqlite read", "EIO", apsw.CorruptError, apsw.SQLITE_CORRUPT, 0),
    ("sqlite read", "EACCES", apsw.IOError, apsw.SQLITE_IOERR_READ, errno.EACCES),
    ("sqlite size", "EIO", apsw.IOError, apsw.SQLITE_IOERR_FSTAT, errno.EIO),
    ("sqlite lock", "EIO", apsw.IOError, apsw.SQLITE_IOERR_LOCK, errno.EIO),
    ("sqlite lock", "EACCES", apsw.BusyError, apsw.SQLITE_BUSY, None),
    ("sqlite delete", "EIO", apsw.IOError, apsw.SQLITE_IOERR_DELETE, errno.EIO),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_a_call_fails_as_in_the_system(tmp_path: Path, case: Case) -> None:
    """SQLite hears what it hears from its own layer, errno included, and goes on afterwards."""
    kind, code, error, extended, number = case
    mode = "delete" if kind == "sqlite delete" else "truncate"
    connect(tmp_path / "t.db", mode).execute("CREATE TABLE t (k)")
    answers: list[str | None] = []
    with standing_between(judge=lambda k: answers.pop(0) if k == kind and answers else None):
        connection = connect(tmp_path / "t.db", mode)
        connection.execute("SELECT * FROM t").fetchall()
        with apsw.Connection(str(tmp_path / "t.db")) as other:
            # So that the pages are read anew.
            other.execute("INSERT INTO t VALUES (0)")
        answers.append(code)
        with pytest.raises(error) as raised:
            connection.execute("INSERT INTO t VALUES (1)")
        assert getattr(raised.value, "extendedresult", extended) == extended
        assert number in (connection.system_errno, None)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        assert not answers
        connection.execute("INSERT INTO t VALUES (2)")
        assert connection.execute("SELECT max(k) FROM t").get == 2
        connection.close()
    assert {kind for kind, *_ in CASES} | {"sqlite open"} == {*SQLITE_CALLS}


def failing_reads(failing: list[bool]) -> Any:
    """A stand-in for the call by which SQLite's own layer reads."""
    kind = ctypes.CFUNCTYPE(
        ctypes.c_ssize_t,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int64,
        use_errno=True,
    )
    real = kind(("pread64", ctypes.CDLL(None, use_errno=True)))

    def called(*given: int) -> int:
        if failing:
            ctypes.set_errno(errno.EIO)
            return -1
        read: int = real(*given)
        return read

    return kind(called)


def test_a_failed_read_is_called_damage_by_sqlite(tmp_path: Path) -> None:
    """SQLite's own layer and this one make the same of a page that cannot be read."""
    place = str(tmp_path / "t.db")
    apsw.Connection(place).execute("CREATE TABLE t (k); INSERT INTO t VALUES (1)")
    failing: list[bool] = []
    call = failing_reads(failing)
    system = apsw.VFS("the system", "unix")
    if system.xGetSystemCall("pread64") is None:
        system.unregister()
        pytest.skip("SQLite reads by another call here")
    said = []
    with standing_between(judge=lambda k: "EIO" if failing and k == "sqlite read" else None):
        for vfs in ("unix", NAME):
            address = ctypes.cast(call, ctypes.c_void_p).value if vfs == "unix" else 0
            system.xSetSystemCall("pread64", address or 0)
            connection = apsw.Connection(place, vfs=vfs)
            connection.execute("SELECT name FROM sqlite_schema").fetchall()
            failing.append(True)
            with pytest.raises(apsw.Error) as raised:
                connection.execute("SELECT k FROM t").fetchall()
            failing.clear()
            said.append((raised.type, connection.system_errno))
            assert connection.execute("SELECT k FROM t").get == 1
            connection.close()
    system.xSetSystemCall("pread64", 0)
    system.unregister()
    assert said == [(apsw.CorruptError, 0)] * 2


def test_opening_fails_as_in_the_system(tmp_path: Path) -> None:
    """What cannot be opened to be written is opened to be read, as SQLite's own layer does."""
    place = tmp_path / "t.db"
    connect(place, "delete").execute("CREATE TABLE t (k)")
    with standing_between(judge=failing("EROFS", at="sqlite open")):
        connection = apsw.Connection(str(place))
        assert connection.readonly("main")
        connection.close()
    with standing_between(judge=failing("EIO", "EIO", at="sqlite open")):
        with pytest.raises(apsw.CantOpenError):
            apsw.Connection(str(place))
        apsw.Connection(str(place)).close()


def test_half_of_a_read_is_the_end_of_the_file(tmp_path: Path) -> None:
    """Where half of a page is there, SQLite takes the rest for zeros."""
    place = tmp_path / "t.db"
    connection = connect(place, "delete")
    connection.execute("CREATE TABLE t (k)")
    connection.close()
    answers: list[str] = []
    with standing_between(judge=lambda _: answers.pop(0) if answers else None):
        file = apsw.VFSFile(NAME, str(place), [apsw.SQLITE_OPEN_READONLY, 0])
        answers.append(SHORT)
        assert file.xRead(100, 0) == place.read_bytes()[:50].rstrip(b"\0")
        assert file.xRead(100, 0) == place.read_bytes()[:100]
        file.xClose()


def test_a_shim_may_be_named(tmp_path: Path) -> None:
    """A connection that names a layer which is no default goes through it."""
    asked: list[str] = []

    def judge(kind: str) -> None:
        asked.append(kind)

    shim = Shim("by name", default=False, judge=judge)
    apsw.Connection(str(tmp_path / "t.db")).close()
    assert asked == []
    connection = apsw.Connection(str(tmp_path / "t.db"), vfs="by name")
    connection.execute("CREATE TABLE t (k)")
    connection.close()
    assert {"sqlite open", "sqlite write", "sqlite sync"} <= {*asked}
    shim.unregister()


def test_locks_stay_when_names_are_looked_up(tmp_path: Path) -> None:
    """Following a file drops none of the locks that SQLite has on it."""
    place = tmp_path / "t.db"
    script = (
        "import apsw, sys; c = apsw.Connection(sys.argv[1])\n"
        "try: c.execute('BEGIN IMMEDIATE')\n"
        "except apsw.BusyError: print('busy')\n"
    )
    with standing_between():
        connection = connect(place, "delete")
        connection.execute("CREATE TABLE t (k); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
        apsw.Connection(str(place)).close()
        with suppress(FileNotFoundError):
            os.lstat(place)
        said = subprocess.run(
            [sys.executable, "-c", script, str(place)], capture_output=True, text=True, check=True
        )
        connection.execute("COMMIT")
        connection.close()
    assert said.stdout == "busy\n"
