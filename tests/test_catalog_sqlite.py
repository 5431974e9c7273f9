"""The index in a file: private, made whole, begun anew when it makes no sense, shared by many."""

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.catalog.analysis import analyse
from perdure.catalog.contract import SORTS, Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.catalog.sqlite import NAME, SqliteCatalog, ranking, schema
from perdure.catalog.sqlite.schema import IndexTables
from perdure.databases import cells
from perdure.databases.derived import connections, files
from perdure.durable import crash
from perdure.errors import (
    FormatUnsupported,
    PerdureError,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.runtime import Runtime
from perdure.testing.catalog.place import (
    change,
    everything,
    found,
    ids,
    put,
    said,
    session,
)
from perdure.testing.strategies import json_values, texts
from perdure.testing.vfs import SHORT, standing_between
from tests.support import scaled

WAL = f"{NAME}-wal"
ASIDE = f"{NAME}.damaged-"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an index."""
    folder = tmp_path / "root"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def kept(root: Path) -> SqliteCatalog:
    """A catalog, closed, that knows one session."""
    catalog = SqliteCatalog(str(root))
    put(catalog, session("first", title="apple"), [said(0, "apple")])
    catalog.close()
    return catalog


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def answers(catalog: Catalog) -> list[Any]:
    """What a catalog says to a question of each kind."""
    query = parse("apple pie")
    some = Filters(agents=["main"], projection=[("/a", 1)])
    return [
        catalog.standing("", "first"),
        list(catalog.entries("")),
        catalog.keys("", "first"),
        catalog.note("", "n"),
        *(catalog.listed("", Filters(), sort=sort) for sort in SORTS),
        catalog.listed("", some),
        catalog.matching("", Filters(), query, mode="any"),
        catalog.children("", ["first", "s1"]),
        catalog.sums("", Filters())._replace(bytes=0),
        catalog.candidates("", Scope(), query, mode="any"),
        catalog.candidates("", Scope(some, kinds=["user"], since=0), query, mode="any"),
        catalog.in_order("", Scope(), query, mode="any"),
    ]


NOTHING = answers(SqliteCatalog(None))


def child(script: str, *arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a script in a process of its own."""
    # From Python 3.12 on a fork beside threads warns; that it goes well is what is shown here.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + script]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


PRELUDE = """
import os, signal, sys
import apsw
from perdure.catalog.contract import *
from perdure.catalog.query import parse
from perdure.catalog.sqlite import SqliteCatalog
from perdure.errors import *
from perdure.testing.catalog.place import *

root = sys.argv[1]
catalog = SqliteCatalog(root)
"""


# --- the file -----------------------------------------------------------------------------------


def test_readers_create_nothing(root: Path) -> None:
    """Where there is no index every answer is as from an empty one, and none is made."""
    for catalog in (SqliteCatalog(str(root)), SqliteCatalog(str(root), read_only=True)):
        assert answers(catalog) == NOTHING
        assert catalog.place == str(root / NAME)
    assert not SqliteCatalog(str(root)).remove("", "s")
    SqliteCatalog(str(root)).clear()
    assert contents(root) == {}
    assert SqliteCatalog(None).place is None


def test_readers_need_no_folder(tmp_path: Path) -> None:
    """Before there is a folder nothing is known, and nothing can be put."""
    catalog = SqliteCatalog(str(tmp_path / "none"))
    assert answers(catalog) == NOTHING
    assert not catalog.remove("", "s")
    catalog.clear()
    with pytest.raises(StorageUnavailable):
        put(catalog)
    with pytest.raises(StorageUnavailable):
        catalog.put_note("", "n", "told")
    assert list(tmp_path.iterdir()) == []


def test_files_are_private_whatever_the_umask(root: Path) -> None:
    """The index and what SQLite keeps beside it are for their owner alone."""
    before = os.umask(0)
    try:
        catalog = SqliteCatalog(str(root))
        put(catalog)
        assert {path.name for path in root.iterdir()} == {NAME, WAL, f"{NAME}-shm"}
        for path in root.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        catalog.close()
    finally:
        os.umask(before)
    assert set(contents(root)) == {NAME}


def test_the_file_says_what_it_is(kept: SqliteCatalog, root: Path) -> None:
    """The header names the application and the version, and the journal is a WAL."""
    connection = apsw.Connection(str(root / NAME))
    assert connection.pragma("application_id") == IndexTables.application_id
    assert connection.pragma("user_version") == IndexTables.version
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("integrity_check") == "ok"
    connection.close()
    del kept


def test_an_index_that_is_moved_stays_valid(kept: SqliteCatalog, root: Path) -> None:
    """A copy of the folder, or the folder in another place, is the same index."""
    expected = answers(kept)
    kept.close()
    root.rename(root.with_name("elsewhere"))
    assert answers(SqliteCatalog(str(root.with_name("elsewhere")))) == expected


def make_database(path: Path, *statements: str) -> None:
    connection = apsw.Connection(str(path))
    for statement in ("CREATE TABLE mine (a)", *statements):
        connection.execute(statement)
    connection.close()
    path.chmod(0o600)


@pytest.mark.parametrize(
    ("statements", "error"),
    [
        ((), UnsafeFile),
        (("PRAGMA application_id = 7",), UnsafeFile),
        ((f"PRAGMA user_version = {IndexTables.version}",), UnsafeFile),
        (("PRAGMA application_id = 7", "PRAGMA journal_mode = WAL"), UnsafeFile),
        (
            (
                f"PRAGMA application_id = {IndexTables.application_id}",
                f"PRAGMA user_version = {IndexTables.version + 1}",
                "PRAGMA journal_mode = WAL",
            ),
            FormatUnsupported,
        ),
    ],
)
def test_files_that_are_not_ours_stay_as_they_are(
    root: Path, statements: tuple[str, ...], error: type[PerdureError]
) -> None:
    """The database of another program or a newer version is refused, and no byte changes."""
    make_database(root / NAME, *statements)
    before = contents(root)
    for read_only in (False, True):
        reader = SqliteCatalog(str(root), read_only=read_only)
        with pytest.raises(error) as refused:
            reader.listed("", Filters())
        assert refused.value.hint
    catalog = SqliteCatalog(str(root))
    calls: list[Callable[[], object]] = [
        lambda: put_unseen(catalog),
        lambda: catalog.remove("", "s"),
        catalog.clear,
    ]
    for call in calls:
        with pytest.raises(error):
            call()
    assert contents(root) == before


def spoil(root: Path, how: str) -> None:
    """Make the file one that nobody should open."""
    path = root / NAME
    if how == "link":
        path.rename(root / "real")
        path.symlink_to(root / "real")
    elif how == "hard link":
        os.link(path, root / "second")
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "pipe":
        path.unlink()
        os.mkfifo(path, 0o600)
    elif how == "wal":
        (root / WAL).write_bytes(b"\0")
        (root / WAL).chmod(0o644)
    else:
        path.chmod(int(how, 8))


@pytest.mark.parametrize("how", ["link", "hard link", "folder", "pipe", "644", "606", "wal"])
def test_unsafe_files_are_not_opened(kept: SqliteCatalog, root: Path, how: str) -> None:
    """A file that others may change, or that leads elsewhere, is neither read nor written."""
    spoil(root, how)
    before = sorted(path.name for path in root.iterdir())
    with pytest.raises(UnsafeFile):
        kept.listed("", Filters())
    with pytest.raises(UnsafeFile):
        kept.put("", change("s"), None)
    assert sorted(path.name for path in root.iterdir()) == before


def test_files_of_other_users_are_not_opened(kept: SqliteCatalog, root: Path) -> None:
    """An index that belongs to somebody else is refused."""

    class Stranger(Runtime):
        def uid(self) -> int:
            return super().uid() + 1

    with pytest.raises(UnsafeFile, match="belongs to"):
        SqliteCatalog(str(root), runtime=Stranger()).listed("", Filters())
    del kept


def test_a_path_that_sqlite_cannot_take_is_told(tmp_path: Path) -> None:
    """Under a path that is too long, or is no UTF-8, writers say so and readers know nothing."""
    for name in ("x" * 200 + "/" + "y" * 200 + "/" + "z" * 200, "\udcff"):
        folder = tmp_path / name
        folder.mkdir(0o700, parents=True)
        catalog = SqliteCatalog(str(folder))
        with pytest.raises(StorageUnavailable):
            put_unseen(catalog)


def put_unseen(catalog: Catalog) -> int | None:
    """Put a session without a look at what is there."""
    return catalog.put("", change("unseen", [said(0, "apple")]), None)


# --- begun anew -----------------------------------------------------------------------------------


def set_aside(root: Path) -> list[str]:
    """Names of what was put out of the way, without what belongs to it."""
    names = sorted(path.name for path in root.iterdir())
    return [name for name in names if name.startswith(ASIDE) and not name.endswith(("l", "m"))]


@pytest.mark.parametrize(
    "data", [b"xy", b"no database at all " * 50, b"SQLite format 3\0", b"\0" * 8192]
)
def test_a_damaged_file_is_set_aside(root: Path, data: bytes) -> None:
    """Readers answer as from an empty index; a writer keeps the bytes aside and begins anew."""
    (root / NAME).write_bytes(data)
    (root / NAME).chmod(0o600)
    catalog = SqliteCatalog(str(root))
    assert answers(catalog) == NOTHING
    assert contents(root) == {NAME: data}

    assert put_unseen(catalog) is not None
    assert found(catalog, "apple") == [("unseen", 0)]
    (aside,) = set_aside(root)
    assert (root / aside).read_bytes() == data


def test_an_empty_file_becomes_an_index(root: Path) -> None:
    """A file that somebody cut off to nothing holds nothing to be kept."""
    (root / NAME).touch(0o600)
    catalog = SqliteCatalog(str(root))
    assert answers(catalog) == NOTHING
    assert put_unseen(catalog) is not None
    assert set_aside(root) == []
    assert found(SqliteCatalog(str(root)), "apple") == [("unseen", 0)]


def test_the_last_damaged_file_is_kept(root: Path) -> None:
    """What is derived can be made again: of damaged files the last one is kept, and no more."""

    class Stopped(Runtime):
        def now_ms(self) -> int:
            return 5000

    catalog = SqliteCatalog(str(root), runtime=Stopped())
    for data in (b"one", b"two", b"three"):
        catalog.close()
        (root / NAME).write_bytes(data)
        (root / NAME).chmod(0o600)
        put_unseen(catalog)
        (aside,) = set_aside(root)
        assert (root / aside).read_bytes() == data


def test_damage_that_only_readers_meet_is_set_aside(kept: SqliteCatalog, root: Path) -> None:
    """When a reader met damage, the next writer begins anew even if it meets none."""
    connection = apsw.Connection(str(root / NAME))
    connection.execute("UPDATE listings SET listed = x'c1'")
    connection.close()
    kept.put_note("", "n", "told")
    assert kept.note("", "n") == "told"
    assert kept.listed("", Filters()) == []
    assert kept.note("", "n") is None
    kept.put_note("", "m", "told")
    assert len(set_aside(root)) == 1
    assert (kept.note("", "n"), kept.note("", "m")) == (None, "told")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE keys",
        "DROP TABLE texts",
        "DROP INDEX by_active",
        "DELETE FROM facts",
        "DELETE FROM texts_data",
        "ALTER TABLE keys ADD COLUMN more ANY",
    ],
)
def test_other_tables_are_damage(kept: SqliteCatalog, root: Path, statement: str) -> None:
    """A file with our id and other tables is no index, and makes way for one."""
    connection = apsw.Connection(str(root / NAME))
    connection.execute(statement)
    connection.close()
    kept.candidates("", Scope(), parse("apple"))
    kept.put("", change("s", [said(0, "apple")]), None)
    kept.put("", change("t", [said(0, "apple")]), None)
    assert len(set_aside(root)) == 1
    assert ("t", 0) in found(kept, "apple")


def test_an_older_version_is_begun_anew(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index of an older version is as an empty one to readers, and to a writer nothing."""
    old = answers(kept)
    kept.close()
    before = contents(root)
    monkeypatch.setattr(IndexTables, "version", IndexTables.version + 1)
    reader = SqliteCatalog(str(root), read_only=True)
    assert answers(reader) == NOTHING != old
    assert contents(root) == before
    assert answers(SqliteCatalog(str(root))) == NOTHING

    catalog = SqliteCatalog(str(root))
    assert put_unseen(catalog) is not None
    assert found(catalog, "apple") == [("unseen", 0)]
    assert set_aside(root) == []
    catalog.close()
    monkeypatch.undo()
    with pytest.raises(FormatUnsupported):
        kept.standing("", "first")


def test_an_index_by_other_rules_is_begun_anew(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that were made by other rules are not mixed with those of today."""
    monkeypatch.setattr(schema, "RULES", "other rules")
    catalog = SqliteCatalog(str(root))
    assert answers(catalog) == NOTHING
    assert put_unseen(catalog) is not None
    assert found(catalog, "apple") == [("unseen", 0)]
    assert set_aside(root) == []
    assert ids(SqliteCatalog(str(root)).listed("", Filters())) == ["unseen"]
    del kept


def test_an_index_that_another_version_began_anew_is_noticed(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that is open while a newer version takes the file over uses it no more."""
    assert kept.standing("", "first") is not None
    with monkeypatch.context() as newer:
        newer.setattr(IndexTables, "version", IndexTables.version + 1)
        other = SqliteCatalog(str(root))
        put_unseen(other)
        other.close()
    for call in (lambda: kept.listed("", Filters()), lambda: put_unseen(kept)):
        with pytest.raises(FormatUnsupported):
            call()
    assert set_aside(root) == []


@pytest.mark.proof
def test_damaged_bytes_never_crash(root: Path, rng: random.Random) -> None:
    """Whatever becomes of the bytes, only errors of the tree escape, and all goes on."""
    catalog = SqliteCatalog(str(root))
    for number in range(30):
        listed = session(
            f"s{number}",
            title=f"apple {number}",
            agents=("main", f"a{number}"),
            projection={"a": number % 3, "list": ["x"]},
            cost={"USD": 0.5},
            parent="s1",
            cwd=f"/w/{number}",
            last_active=number,
        )
        passages = [said(seq, f"apple pie {seq} {number}") for seq in range(12)]
        put(catalog, listed, passages, keys=[("t", f"k{number}", 0)])
        catalog.put_note("", f"n{number}", "told")
    catalog.close()
    sound = (root / NAME).read_bytes()
    set_asides = 0
    for _ in range(scaled(1000)):
        catalog.close()
        shutil.rmtree(root)
        root.mkdir(0o700)
        (root / NAME).touch(0o600)
        (root / NAME).write_bytes(broken(sound, rng))
        try:
            answers(catalog)
            put_unseen(catalog)
            answers(catalog)
            put_in_the_end(catalog, "s3", [said(3, "apple pie"), said(99, "apple")], start=3)
            catalog.remove("", "s4")
            answers(catalog)
            put_in_the_end(catalog, "s5", [said(1, "pear")])
            if found(catalog, "pear") != [("s5", 1)]:
                put_in_the_end(catalog, "s5", [said(1, "pear")])
            assert found(catalog, "pear") == [("s5", 1)]
            set_asides += bool(set_aside(root))
        except (UnsafeFile, FormatUnsupported):
            continue  # the bytes that say whose file it is
    assert set_asides


def put_in_the_end(catalog: Catalog, *given: Any, **told: Any) -> None:
    """Change a session, again if what was known of it was damaged."""
    made = change(*given, **told)
    for _ in range(3):
        before = catalog.standing("", made.listed.id)
        if catalog.put("", made, None if before is None else before.version) is not None:
            return
    pytest.fail("no change is taken any more")


def broken(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one injury."""
    place = rng.randrange(len(data))
    if rng.random() < 0.2:  # the bytes that matter most
        place = rng.randrange(200) + 4096 * rng.randrange(len(data) // 4096)
    kind = rng.randrange(4)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
    length = rng.choice([1, 2, 4, 16, 512, 4096])
    filling = rng.randbytes(length) if kind == 2 else bytes(length)
    return (data[:place] + filling + data[place + length :])[: len(data)]


def test_a_medium_that_cannot_be_read_is_no_damage(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What SQLite calls damage while the medium fails is told as that, and nothing is set aside."""

    def failing(self: files.DerivedFile) -> None:
        raise StorageUnavailable(self.path, "the medium fails")

    connection = apsw.Connection(str(root / NAME))
    connection.execute("UPDATE listings SET listed = x'c1'")
    connection.close()
    monkeypatch.setattr(files.DerivedFile, "read_through", failing)
    with pytest.raises(StorageUnavailable, match="medium"):
        kept.listed("", Filters())
    monkeypatch.undo()
    assert set_aside(root) == []


# --- removed and replaced ---------------------------------------------------------------------


@pytest.mark.parametrize("names", [(NAME, WAL, f"{NAME}-shm"), (NAME,)], ids=["all", "file"])
def test_an_index_that_is_removed_is_begun_anew(
    kept: SqliteCatalog, root: Path, names: tuple[str, ...]
) -> None:
    """Removed under a running process, an index is empty to readers, and a writer makes one."""
    assert kept.standing("", "first") is not None
    put(kept, "second", [said(0, "apple")])
    for name in names:
        (root / name).unlink()

    assert answers(kept) == NOTHING
    assert put_unseen(kept) is not None
    other = SqliteCatalog(str(root))
    assert found(other, "apple") == found(kept, "apple") == [("unseen", 0)]
    other.close()
    kept.close()
    assert set(contents(root)) == {NAME}
    assert found(kept, "apple") == [("unseen", 0)]


def test_an_index_that_is_replaced_is_noticed(
    kept: SqliteCatalog, root: Path, tmp_path: Path
) -> None:
    """Another index at the name is read and written from then on, and the old one is let go."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    other = SqliteCatalog(str(elsewhere))
    put(other, "other", [said(0, "apple")])
    other.close()
    assert kept.standing("", "first") is not None
    shutil.copy(elsewhere / NAME, root / "copy")
    (root / "copy").chmod(0o600)
    (root / "copy").replace(root / NAME)

    assert found(kept, "apple") == [("other", 0)]
    put(kept, "more", [said(0, "apple")])
    assert found(SqliteCatalog(str(root)), "apple") == [("more", 0), ("other", 0)]


def test_whoever_lets_an_old_index_go_leaves_the_new_one_alone(
    kept: SqliteCatalog, root: Path
) -> None:
    """Closing a file that lost its name takes nothing from the one that has it now."""
    put(kept, "second", [said(0, "apple")])
    assert (root / WAL).stat().st_size
    for path in root.iterdir():
        path.unlink()
    other = SqliteCatalog(str(root))
    put(other, "other", [said(0, "apple")])
    wal = (root / WAL).stat()
    kept.close()

    assert (root / WAL).stat().st_ino == wal.st_ino
    put(other, "more", [said(0, "apple")])
    third = SqliteCatalog(str(root))
    assert found(third, "apple") == found(other, "apple") == [("more", 0), ("other", 0)]


def test_damage_that_is_seen_once_is_none(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What makes no sense once, and then does, is not set aside."""
    left = [1]
    check = IndexTables.check

    def confused(self: IndexTables, connection: apsw.Connection) -> bool:
        if left[0]:
            left[0] -= 1
            raise apsw.CorruptError("for once")
        return check(self, connection)

    monkeypatch.setattr(IndexTables, "check", confused)
    assert put_unseen(kept) is not None
    kept.close()
    left[0] = 1
    assert ids(kept.listed("", Filters(), sort="title")) == ["first", "unseen"]
    assert left == [0]
    assert set_aside(root) == []


def test_a_folder_that_is_removed_is_noticed(kept: SqliteCatalog, root: Path) -> None:
    """Where the whole folder is gone, nothing is known, and nothing can be put."""
    put(kept, "second")
    shutil.rmtree(root)
    assert answers(kept) == NOTHING
    with pytest.raises(StorageUnavailable):
        put_unseen(kept)
    root.mkdir(0o700)
    assert put_unseen(kept) is not None


def test_a_change_that_went_to_a_lost_file_is_made_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit to a file that is not at its name any more is made again where one looks."""
    catalog = SqliteCatalog(str(root))
    put(catalog, "first")
    identity = files.DerivedFile.identity
    left = [3]

    def moving(self: files.DerivedFile) -> tuple[int, int] | None:
        left[0] -= 1
        if left[0] == 0:
            (root / NAME).rename(root / "elsewhere")
        return identity(self)

    monkeypatch.setattr(files.DerivedFile, "identity", moving)
    assert put_unseen(catalog) is not None
    assert left[0] < 0
    monkeypatch.undo()
    assert ids(SqliteCatalog(str(root)).listed("", Filters())) == ["unseen"]


def test_a_file_that_is_exchanged_again_and_again_is_told(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds another file each time gives up, and may try again."""
    connect = apsw.Connection

    def exchange(*arguments: Any, **options: Any) -> apsw.Connection:
        shutil.copy(root / NAME, root / "copy")
        (root / "copy").replace(root / NAME)
        return connect(*arguments, **options)

    monkeypatch.setattr(apsw, "Connection", exchange)
    for call in (lambda: kept.listed("", Filters()), lambda: put_unseen(kept)):
        with pytest.raises(StorageUnavailable) as told:
            call()
        assert told.value.retryable
    monkeypatch.undo()
    assert ids(kept.listed("", Filters())) == ["first"]


# --- read only ----------------------------------------------------------------------------------


def test_a_reader_changes_nothing(kept: SqliteCatalog, root: Path) -> None:
    """One that is only read answers from what is there, creates no file and changes no byte."""
    expected = answers(kept)
    kept.close()
    before = contents(root)
    times = os.stat(root).st_mtime_ns, os.stat(root / NAME).st_mtime_ns
    reader = SqliteCatalog(str(root), read_only=True)
    for _ in range(2):
        assert answers(reader) == expected
        reader.close()
    assert contents(root) == before
    assert (os.stat(root).st_mtime_ns, os.stat(root / NAME).st_mtime_ns) == times


def test_a_reader_cannot_write(kept: SqliteCatalog, root: Path) -> None:
    """Every change of one that is only read is refused, and nothing is changed."""
    before = contents(root)
    reader = SqliteCatalog(str(root), read_only=True)
    calls: list[Callable[[], object]] = [
        lambda: put_unseen(reader),
        lambda: reader.remove("", "first"),
        lambda: reader.put_note("", "n", "told"),
        reader.clear,
    ]
    for call in calls:
        with pytest.raises(StorageUnavailable):
            call()
    assert contents(root) == before
    del kept


def test_a_reader_sees_what_writers_do(kept: SqliteCatalog, root: Path) -> None:
    """One that is only read sees each change, while there is a writer and after it has closed."""
    reader = SqliteCatalog(str(root), read_only=True)
    assert found(reader, "apple") == [("first", 0)]
    for number in range(3):
        put(kept, f"s{number}", [said(0, "pear")])
        assert len(found(reader, "pear")) == number + 1
        if number == 1:
            kept.close()
        assert len(found(reader, "pear")) == number + 1
    kept.close()
    reader.close()
    assert len(found(SqliteCatalog(str(root), read_only=True), "pear")) == 3


DYING = """
put(catalog, "second", [said(0, "apple")])
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_reader_leaves_what_a_dead_writer_left(kept: SqliteCatalog, root: Path) -> None:
    """Where reading a WAL would create a file, the answer is as from an empty index."""
    assert child(DYING, root).returncode == -9
    (root / f"{NAME}-shm").unlink()
    before = contents(root)
    assert before[WAL]
    reader = SqliteCatalog(str(root), read_only=True)
    assert answers(reader) == NOTHING
    assert contents(root) == before
    # Whoever may write brings it in.
    assert found(kept, "apple") == [("first", 0), ("second", 0)]
    assert len(found(reader, "apple")) == 2


READ_ONLY = """
catalog.close()
before = sorted(os.listdir(root))
os.chmod(root, 0o500)
if os.geteuid() == 0:  # for whom permissions are none
    os.chown(root, 65534, 65534)
    for name in os.listdir(root):
        os.chown(os.path.join(root, name), 65534, 65534)
    os.seteuid(65534)
for mode in (0o600, 0o400):
    for name in before:
        os.chmod(os.path.join(root, name), mode)
    assert found(catalog, "apple") == [("first", 0)]
    assert [each.title for each in catalog.listed("", Filters())] == ["apple"]
    try:
        catalog.put("", change("s"), None)
    except StorageUnavailable as error:
        assert not error.retryable, error
    else:
        sys.exit(6)
    assert found(catalog, "apple") == [("first", 0)]
    assert sorted(os.listdir(root)) == before
sys.exit(5)
"""


def test_a_folder_that_cannot_be_written_is_read() -> None:
    """In a folder that is for reading only, readers read, writers are refused, nothing is made."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = SqliteCatalog(folder)
        put(catalog, session("first", title="apple"), [said(0, "apple")])
        catalog.close()
        done = child(READ_ONLY, folder)
        Path(folder).chmod(0o700)
    assert (done.returncode, done.stderr) == (5, "")


# --- several at once ----------------------------------------------------------------------------

WRITING = """
name, turns = sys.argv[2], int(sys.argv[3])
won = 0
for turn in range(turns):
    put(catalog, f"{name}{turn}", [said(seq, f"apple {name}") for seq in range(5)])
    before = catalog.standing("", "shared")
    version = None if before is None else before.version
    here = turn * 100 + ord(name)
    made = change("shared", [said(here, "pear")], start=here, end=here + 1)
    won += catalog.put("", made, version) is not None
    answer = catalog.candidates("", Scope(), parse("pear"))
    catalog.listed("", Filters())
print(won)
"""


def test_processes_write_at_once(root: Path) -> None:
    """Processes that write to one index lose nothing, and never see it locked or damaged."""
    turns = 12
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITING, str(root), name, str(turns)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    told = [writer.communicate() for writer in writers]
    assert [
        (error, writer.returncode) for (_, error), writer in zip(told, writers, strict=True)
    ] == [("", 0)] * 2
    catalog = SqliteCatalog(str(root))
    names = sorted([f"{name}{turn}" for name in "ab" for turn in range(turns)] + ["shared"])
    assert [each.session for each in catalog.entries("")] == names
    assert len(found(catalog, "apple")) == 2 * turns * 5
    assert len(found(catalog, "pear")) == sum(int(out) for out, _ in told) >= turns
    assert set_aside(root) == []


WRITING_ON = """
number = int(sys.argv[2])
while True:
    number += 1
    listed = session(f"s{number % 7}", title=f"number{number}", size=number)
    put(catalog, listed, [said(seq, f"apple number{number} {seq}") for seq in range(30)])
    print(number, flush=True)
"""


def test_killed_writers_leave_whole_changes(root: Path, rng: random.Random) -> None:
    """After a SIGKILL at any moment each change is there whole or not at all."""
    number = 0
    for _ in range(scaled(30)):
        with subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITING_ON, str(root), str(number)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            for _line in range(rng.randrange(1, 30)):
                number = int(writer.stdout.readline())
            writer.kill()
            number = max([number, *map(int, writer.stdout.read().split())])
        catalog = SqliteCatalog(str(root))
        listed = catalog.listed("", Filters(), sort="size", limit=100)
        assert listed[0].size >= number
        for one in listed:
            inside = Scope(Filters(ids=[one.id]))
            assert len(found(catalog, f"{one.title} ", inside)) == 30
        assert catalog.sums("", Filters()).passages == 30 * len(listed)
        assert set_aside(root) == []
        catalog.close()
        number = listed[0].size


def dying_at(point: str, visit: int, root: Path) -> int:
    """Put a session in a child that is killed at a crash point; how it ended."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = [visit]

    def hook(name: str) -> None:
        left[0] -= name == point
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        crash.arm(hook=hook)
        put_unseen(SqliteCatalog(str(root)))
    finally:
        os._exit(1)


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "damaged"])
def test_every_crash_point_leaves_a_usable_index(tmp_path: Path, *, damaged: bool) -> None:
    """Killed anywhere while a file is made or set aside, whoever comes next goes on."""

    def fresh(name: str) -> Path:
        root = tmp_path / name
        root.mkdir(0o700)
        if damaged:
            for each in (NAME, WAL):
                (root / each).write_bytes(b"damaged")
                (root / each).chmod(0o600)
        return root

    visits: list[str] = []
    crash.arm(hook=visits.append)
    try:
        put_unseen(SqliteCatalog(str(fresh("sound"))))
    finally:
        crash.arm()
    assert {"file.open", "move.before", "move.after", "folder.sync"} <= set(visits)
    for place, point in enumerate(visits):
        root = fresh(f"{place}")
        assert dying_at(point, visits[: place + 1].count(point), root) == -signal.SIGKILL
        reader = SqliteCatalog(str(root), read_only=True)
        assert answers(reader) == NOTHING
        catalog = SqliteCatalog(str(root))
        put(catalog, "second", [said(0, "apple")])
        assert found(catalog, "apple") == found(reader, "apple") == [("second", 0)]
        reader.close()
        catalog.close()
        left = contents(root).keys() - {NAME}
        assert [name for name in left if not name.startswith(ASIDE)] == [], point
        assert set_aside(root) == [name for name in left if not name.endswith("-wal")]


@pytest.mark.proof
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "EACCES", SHORT])
def test_any_call_of_sqlite_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, code: str
) -> None:
    """Whichever call the system refuses, only errors of the tree come of it, and all goes on."""
    for module in (files, connections):
        monkeypatch.setattr(module, "WAIT_MS", 1)
    state = {"calls": 0, "fails": -1}

    def judge(kind: str) -> str | None:
        state["calls"] += 1
        if code == SHORT and kind not in ("sqlite read", "sqlite write"):
            return None
        return code if state["calls"] == state["fails"] else None

    def use(root: Path) -> None:
        catalog = SqliteCatalog(str(root))
        steps: list[Callable[[], object]] = [
            lambda: put_unseen(catalog),
            lambda: answers(catalog),
            lambda: catalog.remove("", "unseen"),
            catalog.clear,
            catalog.close,
            lambda: answers(SqliteCatalog(str(root), read_only=True)),
        ]
        for step in steps:
            with suppress(StorageUnavailable, StorageFull):
                step()

    def play(root: Path, fails: int) -> None:
        root.mkdir(0o700)
        state.update(calls=0, fails=fails)
        with standing_between(judge=judge, to_disk=False, waits=False):
            use(root)

    play(tmp_path / "whole", -1)
    for fails in sorted(rng.sample(range(1, state["calls"] + 1), scaled(250))):
        root = tmp_path / f"{fails}"
        play(root, fails)
        catalog = SqliteCatalog(str(root))
        put_in_the_end(catalog, "last", [said(0, "pear")])
        assert found(catalog, "pear") == [("last", 0)], fails
        assert set_aside(root) == [], fails
        catalog.close()
        shutil.rmtree(root)


def test_waiting_for_others_ends(
    kept: SqliteCatalog, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers wait for no writer; a writer that waits too long may try again."""
    monkeypatch.setattr(connections, "WAIT_MS", 20)
    other = apsw.Connection(str(root / NAME))
    other.execute("BEGIN IMMEDIATE")
    assert ids(kept.listed("", Filters())) == ["first"]
    with pytest.raises(StorageUnavailable) as told:
        put_unseen(kept)
    assert told.value.retryable
    other.execute("ROLLBACK")
    other.close()
    assert put_unseen(kept) is not None


FORKING = """
import threading

stop = threading.Event()

def work(name):
    turn = 0
    while not stop.is_set():
        turn += 1
        put(catalog, name, [said(turn, "apple")], start=turn)
        catalog.candidates("", Scope(), parse("apple"))

threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
for thread in threads:
    thread.start()
for number in range(6):
    pid = os.fork()
    if pid == 0:
        try:
            put(catalog, f"child{number}", [said(0, "pear")])
            inside = Scope(Filters(ids=[f"child{number}"]))
            os._exit(0 if found(catalog, "pear", inside) else 4)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(3)
    assert os.waitpid(pid, 0)[1] == 0, number
stop.set()
for thread in threads:
    thread.join()
"""


def test_a_fork_divides_no_operation(root: Path) -> None:
    """A child that is forked while threads write uses the index as any other process does."""
    done = child(FORKING, root, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    catalog = SqliteCatalog(str(root))
    there = {each.session for each in catalog.entries("")}
    assert there == {"a", "b", *(f"child{number}" for number in range(6))}
    assert set_aside(root) == []


def test_nothing_stays_open_across_a_fork(kept: SqliteCatalog) -> None:
    """Idle connections are closed before a fork, in the parent as in the child."""
    kept.standing("", "first")
    place = kept._place
    assert isinstance(place, connections.FilePlace)
    assert place._idle
    pid = os.fork()
    if pid == 0:
        os._exit(len(place._idle))
    assert os.waitpid(pid, 0)[1] == 0
    assert place._idle == []
    assert kept.standing("", "first") is not None


def test_an_index_in_memory_is_inherited() -> None:
    """A forked child has its own copy of what is kept in memory."""
    catalog = SqliteCatalog(None)
    put(catalog, "s", [said(0, "apple")])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            put(catalog, "t", [said(0, "apple")])
            code = 0 if found(catalog, "apple") == [("s", 0), ("t", 0)] else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert found(catalog, "apple") == [("s", 0)]


# --- media that refuse --------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["file.open", "move.before", "folder.sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_errors_of_the_system_are_translated(root: Path, point: str, code: int) -> None:
    """If the file cannot be made the error is one of the tree, and later it is made."""

    def hook(name: str) -> None:
        if name == point:
            raise OSError(code, os.strerror(code))

    catalog = SqliteCatalog(str(root))
    crash.arm(hook=hook)
    try:
        with pytest.raises((StorageUnavailable, StorageFull)):
            put_unseen(catalog)
    finally:
        crash.arm()
    assert put_unseen(catalog) is not None
    assert found(catalog, "apple") == [("unseen", 0)]


def test_a_full_disk_is_told(kept: SqliteCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is refused as a whole, what was known stays, and later it fits."""
    connect = apsw.Connection

    def limited(*arguments: Any, **options: Any) -> apsw.Connection:
        connection = connect(*arguments, **options)
        connection.pragma("max_page_count", 70)
        return connection

    many = [said(seq, f"apple {seq} {'x' * seq}") for seq in range(2000)]
    with monkeypatch.context() as patch:
        patch.setattr(apsw, "Connection", limited)
        with pytest.raises(StorageFull):
            kept.put("", change("s", many), None)
        assert ids(kept.listed("", Filters())) == ["first"]
        kept.close()
    assert kept.put("", change("s", many), None) is not None
    assert kept.sums("", Filters()).passages == 2001


# --- cost ---------------------------------------------------------------------------------------


def steps_of(catalog: SqliteCatalog, call: Callable[[], object]) -> int:
    """How many steps of SQLite's machine a question takes."""
    call()
    place = catalog._place
    assert isinstance(place, connections.FilePlace)
    (held,) = place._idle
    steps = [0]

    def count() -> bool:
        steps[0] += 1
        return False

    held.connection.set_progress_handler(count, 1, id="count")
    call()
    held.connection.set_progress_handler(None, 1, id="count")
    return steps[0]


def test_a_page_costs_what_is_on_it(root: Path) -> None:
    """The work for a page of a listing does not grow with the sessions, or with its place."""
    catalog = SqliteCatalog(str(root))

    def add(numbers: range) -> None:
        for number in numbers:
            listed = session(
                f"{number * 7919 % 10_000:04}",
                last_active=number * 31 % 1000,
                title=f"{number * 17 % 1000}",
                cwd=f"/w/{number % 3}",
                agents=("main",),
            )
            put(catalog, listed)

    def asked(sort: str, filters: Filters, middle: str) -> int:
        after = (middle, "") if sort == "title" else (500, "")
        first = steps_of(catalog, lambda: catalog.listed("", filters, sort=sort))
        return first + steps_of(
            catalog, lambda: catalog.listed("", filters, sort=sort, after=after)
        )

    kinds = [(sort, Filters()) for sort in ("last_active", "title")]
    kinds.append(("last_active", Filters(cwd="/w", agents=["main"])))
    add(range(320))
    few = [asked(sort, filters, "500") for sort, filters in kinds]
    add(range(320, 1280))
    many = [asked(sort, filters, "500") for sort, filters in kinds]
    assert all(more <= 1.2 * less for less, more in zip(few, many, strict=True)), (few, many)


def test_reading_again_writes_nothing_but_the_session(root: Path) -> None:
    """Passages that are there already are neither written nor given new numbers."""
    catalog = SqliteCatalog(str(root))
    passages = [said(seq, f"apple {seq}") for seq in range(300)]
    put(catalog, "s", passages)
    connection = apsw.Connection(str(root / NAME))
    query = "SELECT id, seq FROM passages ORDER BY id"
    before = connection.execute(query).fetchall()
    blocks = connection.execute("SELECT id, block FROM texts_data ORDER BY id").fetchall()
    put(catalog, "s", [*passages, said(300, "apple late")])

    after = connection.execute(query).fetchall()
    assert after[:-1] == before
    assert after[-1][1] == 300
    changed = connection.execute("SELECT id, block FROM texts_data ORDER BY id").fetchall()
    # One small segment more, and what names the segments.
    assert len(set(changed) - set(blocks)) <= 3
    connection.close()


# --- what stands in it --------------------------------------------------------------------------


@given(st.text(max_size=60) | texts())
def test_no_word_looks_like_a_token_of_a_scope(text: str) -> None:
    """Tokens of scopes begin with a sign that begins no token of any text."""
    tokens = analyse(text)
    mark = ranking.session_token(1)[0]
    assert not [each for each in (*tokens.words.split(), *tokens.parts.split()) if mark in each]


@given(json_values())
def test_values_come_back(value: Any) -> None:
    """Any JSON value stands in a cell and comes back the same, surrogates and big numbers too."""
    assert cells.unpack(cells.pack(value)) == value
    assert repr(cells.unpack(cells.pack([value]))) == repr([value])


def test_values_that_are_no_json_are_kept_as_well_as_they_can_be() -> None:
    """What has no form of its own does no harm: it stands as nothing."""
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    for value in (object(), {1: object()}, cyclic, {"x": {2, 3}}, b"bytes", (1, 2)):
        cells.unpack(cells.pack(value))


def test_all_pages_of_a_large_listing_are_found(root: Path) -> None:
    """Thousands of sessions come page by page, each once."""
    catalog = SqliteCatalog(str(root))
    for number in range(scaled(3000)):
        put(catalog, session(f"{number:05}", last_active=number % 50))
    pages = everything(catalog, limit=17)
    assert len(pages) == len(set(pages)) == scaled(3000)
