"""Vectors in a file: private, set aside when damaged, shared by many, whole after every kill."""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from perdure.databases.derived import connections, files
from perdure.embedding.sqlite import NAME, SqliteVectors, schema
from perdure.embedding.sqlite import vectors as module
from perdure.embedding.sqlite.schema import VectorTables
from perdure.embedding.vectors import Vectors
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    PerdureError,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.runtime import Runtime
from perdure.testing.vectors.place import (
    A,
    B,
    around,
    asked,
    begun,
    clustered,
    everything,
    put,
)
from perdure.testing.vectors.sharing import together
from perdure.testing.vfs import SHORT, standing_between
from tests.support import scaled

WAL = f"{NAME}-wal"
ASIDE = f"{NAME}.damaged-"
MANY = list(range(100, 100 + module.EXACT_MAX + 1))
"""More digests than are compared in full."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of the vectors."""
    folder = tmp_path / "root"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def kept(root: Path) -> SqliteVectors:
    """Vectors, closed, of three passages of a complete model."""
    vectors = SqliteVectors(str(root))
    begun(vectors)
    put(vectors, A, [1, 2, 3], around(0, 10, 20))
    vectors.put_reading(A, "", "s", 5)
    assert vectors.complete(A)
    vectors.close()
    return vectors


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def set_aside(root: Path) -> list[str]:
    """Names of what was put out of the way, without what belongs to it."""
    names = sorted(path.name for path in root.iterdir())
    return [name for name in names if name.startswith(ASIDE) and not name.endswith(("l", "m"))]


def answers(vectors: Vectors) -> list[Any]:
    """What vectors say to a question of each kind."""
    query = around(0)[0]
    return [
        vectors.models(),
        vectors.missing(A, [1, 2, 3, 4]),
        everything(vectors),
        *(vectors.nearest(A, query, digests, 10) for digests in (None, [1, 2, 3], [*MANY, 2])),
        vectors.versions(A, "").get("s"),
        len(vectors.versions(A, "")),
    ]


NOTHING = answers(SqliteVectors(None))


def put_anew(vectors: Vectors) -> int:
    """Begin the model, if it is not, and put a passage, as whoever embeds does."""
    begun(vectors)
    return put(vectors, A, [7], around(5))


def put_in_the_end(vectors: Vectors) -> None:
    """Put a passage as above, again if what is there is begun anew because of it."""
    for _ in range(3):
        with suppress(InvalidValue):
            put_anew(vectors)
            return
    pytest.fail("nothing is taken any more")


def changes(vectors: Vectors) -> list[Callable[[], object]]:
    """A call of each kind that changes something."""
    return [
        lambda: begun(vectors, B),
        lambda: put(vectors, A, [7], around(5)),
        lambda: vectors.remove(A, [1]),
        lambda: vectors.put_reading(A, "", "t", 1),
        lambda: vectors.keep_readings("", []),
    ]


def change(root: Path, statement: str | tuple[str, list[Any]]) -> None:
    """Do something to the file that perdure would not do."""
    query, bound = (statement, []) if isinstance(statement, str) else statement
    connection = apsw.Connection(str(root / NAME))
    connection.execute(query, bound)
    connection.close()


# --- the file -------------------------------------------------------------------------------------


def test_readers_create_nothing(root: Path) -> None:
    """Where there is no file every answer is as from an empty one, and none is made."""
    for vectors in (SqliteVectors(str(root)), SqliteVectors(str(root), read_only=True)):
        assert answers(vectors) == NOTHING
        assert vectors.size() == 0
    vectors = SqliteVectors(str(root))
    vectors.remove(A, [1])
    vectors.keep_readings("", [])
    assert contents(root) == {}


def test_readers_need_no_folder(tmp_path: Path) -> None:
    """Before there is a folder nothing is known, and nothing can be put."""
    vectors = SqliteVectors(str(tmp_path / "none"))
    assert answers(vectors) == NOTHING
    with pytest.raises(StorageUnavailable):
        begun(vectors)
    assert list(tmp_path.iterdir()) == []


def test_files_are_private_whatever_the_umask(root: Path) -> None:
    """The file and what SQLite keeps beside it are for their owner alone."""
    before = os.umask(0)
    try:
        vectors = SqliteVectors(str(root))
        put_anew(vectors)
        assert {path.name for path in root.iterdir()} == {NAME, WAL, f"{NAME}-shm"}
        for path in root.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        vectors.close()
    finally:
        os.umask(before)
    assert set(contents(root)) == {NAME}


@pytest.mark.usefixtures("kept")
def test_the_file_says_what_it_is(root: Path) -> None:
    """The header names the application and the version, and the journal is a WAL."""
    connection = apsw.Connection(str(root / NAME))
    assert connection.pragma("application_id") == VectorTables.application_id
    assert connection.pragma("user_version") == VectorTables.version
    assert connection.pragma("journal_mode") == "wal"
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def test_a_folder_that_is_moved_keeps_its_vectors(kept: SqliteVectors, root: Path) -> None:
    """Vectors answer the same wherever their folder lies."""
    expected = answers(kept)
    kept.close()
    root.rename(root.with_name("elsewhere"))
    assert answers(SqliteVectors(str(root.with_name("elsewhere")))) == expected != NOTHING


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
        ((f"PRAGMA user_version = {VectorTables.version}",), UnsafeFile),
        (
            (
                f"PRAGMA application_id = {VectorTables.application_id}",
                f"PRAGMA user_version = {VectorTables.version + 1}",
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
        vectors = SqliteVectors(str(root), read_only=read_only)
        with pytest.raises(error) as refused:
            vectors.models()
        assert refused.value.hint
        with pytest.raises(error):
            asked(vectors, 0)
    for call in changes(SqliteVectors(str(root))):
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
def test_unsafe_files_are_not_opened(kept: SqliteVectors, root: Path, how: str) -> None:
    """A file that others may change, or that leads elsewhere, is neither read nor written."""
    spoil(root, how)
    before = sorted(path.name for path in root.iterdir())
    with pytest.raises(UnsafeFile):
        kept.models()
    for call in changes(kept):
        with pytest.raises(UnsafeFile):
            call()
    assert sorted(path.name for path in root.iterdir()) == before


@pytest.mark.usefixtures("kept")
def test_files_of_other_users_are_not_opened(root: Path) -> None:
    """Vectors that belong to somebody else are refused."""

    class Stranger(Runtime):
        def uid(self) -> int:
            return super().uid() + 1

    with pytest.raises(UnsafeFile, match="belongs to"):
        SqliteVectors(str(root), runtime=Stranger()).models()


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"xy", b"no database at all " * 50, b"SQLite format 3\0", b"\0" * 8192]
)
def test_a_damaged_file_is_set_aside(root: Path, data: bytes) -> None:
    """Readers answer as from an empty one; a writer keeps the bytes aside and begins anew."""
    (root / NAME).write_bytes(data)
    (root / NAME).chmod(0o600)
    vectors = SqliteVectors(str(root))
    assert answers(vectors) == NOTHING
    assert contents(root) == {NAME: data}
    assert put_anew(vectors) == 1
    assert asked(vectors, 0) == [(7, 0)]
    (aside,) = set_aside(root)
    assert (root / aside).read_bytes() == data


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE readings",
        "DROP INDEX by_text",
        "DELETE FROM facts",
        "INSERT INTO facts SELECT * FROM facts",
        "ALTER TABLE models ADD COLUMN more ANY",
    ],
)
def test_other_tables_are_damage(kept: SqliteVectors, root: Path, statement: str) -> None:
    """A file with our id and other tables is none of ours, and makes way for one."""
    change(root, statement)
    assert answers(kept) == NOTHING
    assert put_anew(kept) == 1
    assert asked(kept, 0) == [(7, 0)]
    assert len(set_aside(root)) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE vectors SET half = x'003c' WHERE id = 2",
        "UPDATE vectors SET half = x'' WHERE id = 2",
        "UPDATE vectors SET half = zeroblob(6) WHERE id = 2",
        "UPDATE vectors SET half = zeroblob(5) WHERE id = 2",
    ],
)
def test_vectors_of_another_length_are_damage(
    kept: SqliteVectors, root: Path, statement: str
) -> None:
    """A vector that is too short or too long answers nothing, and the file makes way."""
    change(root, statement)
    query = around(0)[0]
    assert kept.nearest(A, query, [1, 2, 3], 10) == []
    assert kept.nearest(A, query, None, 10) == []
    assert put_anew(kept) == 1
    assert asked(kept, 0) == asked(kept, 0, [1, 2, 3, 7]) == [(7, 0)]
    assert len(set_aside(root)) == 1


def test_a_sketch_without_a_vector_is_damage(kept: SqliteVectors, root: Path) -> None:
    """Where the vector of a sketch is gone, what is left answers nothing, and makes way."""
    change(root, "DELETE FROM vectors WHERE id = 2")
    assert asked(kept, 0) == []
    put_in_the_end(kept)
    assert asked(kept, 0) == [(7, 0)]
    assert len(set_aside(root)) == 1


@pytest.mark.parametrize("length", [0, 1, 7, 9, 16])
def test_sketches_of_another_length_are_damage(
    kept: SqliteVectors, root: Path, length: int
) -> None:
    """A sketch that is too short or too long answers nothing, and the file makes way."""
    change(root, ("UPDATE sketches SET sketch = zeroblob(?) WHERE id = 2", [length]))
    assert kept.nearest(A, around(0)[0], [*MANY, 1], 10) == []
    assert put_anew(kept) == 1
    assert asked(kept, 0) == [(7, 0)]
    assert len(set_aside(root)) == 1


@pytest.mark.parametrize(
    "half",
    [
        np.array([np.nan, 1]),
        np.array([np.nan, np.nan]),
        np.array([np.inf, 0]),
        np.array([-np.inf, np.inf]),
        np.array([60_000, 0]),
        np.array([2, 0]),
        np.array([0.5, 0.25]),
    ],
    ids=str,
)
def test_what_is_no_vector_is_near_to_nothing(
    kept: SqliteVectors, root: Path, half: "np.ndarray[Any, Any]"
) -> None:
    """Damaged numbers come last, as what is farthest away, and all else is found as before."""
    change(root, ("UPDATE vectors SET half = ? WHERE id = 1", [half.astype("<f2").tobytes()]))
    for digests in (None, [1, 2, 3], [*MANY, 1, 2, 3]):
        found = kept.nearest(A, around(0)[0], digests, 10)
        assert [each.digest for each in found] == [2, 3, 1]
        assert found[-1].score == -1


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE facts SET last = 9223372036854775807",
        "UPDATE facts SET last = -9223372036854775808",
        "UPDATE facts SET last = 0",
        "UPDATE facts SET last = 1",
        "UPDATE facts SET version = 9223372036854775807",
        "UPDATE sketches SET id = id + 100",
        "DELETE FROM sketches",
        "UPDATE models SET vectors = 9223372036854775807",
        "UPDATE models SET name = x'ff'",
    ],
)
def test_numbers_that_cannot_be_are_damage(kept: SqliteVectors, root: Path, statement: str) -> None:
    """What is put is there afterwards whatever the file says of itself, and nothing is doubled."""
    change(root, statement)
    for _ in range(2):
        put_in_the_end(kept)
        # Some of it is seen by those alone who look for what is near.
        if (7, 0) not in asked(kept, 0):
            put_in_the_end(kept)
        assert kept.missing(A, [7]) == set()
        assert (7, 0) in asked(kept, 0)
        put(kept, A, [8, 9], around(6, 7))
        assert {(8, 0), (9, 0)} <= set(asked(kept, 0))
    connection = apsw.Connection(str(root / NAME))
    query = "SELECT count(*), count(DISTINCT v.id) FROM sketches AS s JOIN vectors AS v USING (id)"
    ((pairs, apart),) = connection.execute(query).fetchall()
    assert isinstance(pairs, int)
    assert pairs == apart
    assert pairs >= 3
    connection.close()


def test_a_piece_with_a_number_that_cannot_be_does_no_harm(kept: SqliteVectors, root: Path) -> None:
    """Whatever a damaged row says of its piece, only errors of the tree escape."""
    change(root, "UPDATE sketches SET part = 1 << 40 WHERE id = 2")
    for digests in (None, [1, 2, 3], [*MANY, 2]):
        assert {digest for digest, _ in asked(kept, 0, digests)} in ({1, 2, 3}, {2})


def test_digests_out_of_their_order_are_damage(root: Path) -> None:
    """An index that a damaged page leads in circles has an end, and gives nothing twice."""
    vectors = SqliteVectors(str(root))
    begun(vectors)
    low, middle, high = (number << 56 | 0x123456 for number in (17, 34, 51))
    put(vectors, A, [low, middle, high], around(0, 10, 20))
    vectors.close()
    data = bytearray((root / NAME).read_bytes())
    leaf_of_an_index = 10
    pages = [at for at in range(0, len(data), 4096) if data[at] == leaf_of_an_index]
    (page,) = (at for at in pages if high.to_bytes(8, "big") in data[at : at + 4096])
    places = [data.index(each.to_bytes(8, "big"), page) for each in (middle, high)]
    for place, digest in zip(places, (high, middle), strict=True):
        data[place : place + 8] = digest.to_bytes(8, "big")
    (root / NAME).write_bytes(data)
    assert everything(vectors) == []
    put_in_the_end(vectors)
    assert everything(vectors) == [7]
    assert len(set_aside(root)) == 1


def test_an_older_version_is_begun_anew(
    kept: SqliteVectors, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of an older version are as none to readers, and to a writer nothing."""
    old = answers(kept)
    kept.close()
    before = contents(root)
    monkeypatch.setattr(VectorTables, "version", VectorTables.version + 1)
    assert answers(SqliteVectors(str(root), read_only=True)) == NOTHING != old
    assert contents(root) == before
    vectors = SqliteVectors(str(root))
    assert put_anew(vectors) == 1
    assert asked(vectors, 0) == [(7, 0)]
    assert set_aside(root) == []
    vectors.close()
    monkeypatch.undo()
    with pytest.raises(FormatUnsupported):
        kept.models()


def test_what_was_cut_by_other_rules_is_begun_anew(
    kept: SqliteVectors, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces that were cut by other rules are not mixed with those of today, nor cached."""
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
    monkeypatch.setattr(schema, "_RULES", "other rules")
    vectors = SqliteVectors(str(root))
    assert answers(vectors) == NOTHING
    assert put_anew(vectors) == 1
    for each in (vectors, kept):
        assert asked(each, 0) == asked(each, 0, [1, 7]) == [(7, 0)]
    assert set_aside(root) == []


@pytest.mark.proof
def test_damaged_bytes_never_crash(root: Path, rng: random.Random) -> None:
    """Whatever becomes of the bytes, only errors of the tree escape, and all goes on."""
    vectors = SqliteVectors(str(root))
    begun(vectors, dimension=64)
    put(vectors, A, range(300), clustered(300, 64, seed=1))
    for number in range(50):
        vectors.put_reading(A, "", f"s{number}", number)
    vectors.close()
    sound = (root / NAME).read_bytes()
    new, query = clustered(2, 64, seed=2), clustered(1, 64, seed=3)[0]

    def use() -> None:
        for digests in (None, [1, 2, 3], MANY):
            found = vectors.nearest(A, query, digests, 1_000)
            assert all(-1 <= each.score <= 1 for each in found)
        vectors.models()
        vectors.missing(A, [1, 2])
        everything(vectors)
        len(vectors.versions(A, ""))

    set_asides = 0
    for _ in range(scaled(600)):
        vectors.close()
        shutil.rmtree(root)
        root.mkdir(0o700)
        (root / NAME).touch(0o600)
        (root / NAME).write_bytes(broken(sound, rng))
        try:
            for _again in range(3):
                use()
                begun(vectors, dimension=64)
                with suppress(InvalidValue):  # it was begun anew between two calls
                    put(vectors, A, [1000, 1001], new)
                vectors.put_reading(A, "", "s3", 9)
                vectors.remove(A, [4])
                vectors.keep_readings("", ["s3"])
                vectors.complete(A)
            assert vectors.missing(A, [1000, 1001]) == set()
            set_asides += bool(set_aside(root))
        except (UnsafeFile, FormatUnsupported, InvalidValue):
            continue  # the bytes that say whose file it is, or which model
    assert set_asides


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


# --- removed and replaced -------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(NAME, WAL, f"{NAME}-shm"), (NAME,)], ids=["all", "file"])
def test_a_file_that_is_removed_is_noticed(
    kept: SqliteVectors, root: Path, names: tuple[str, ...]
) -> None:
    """Removed under a running process, vectors are none to readers, and a writer begins anew."""
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
    put_anew(kept)
    for name in names:
        (root / name).unlink()
    assert answers(kept) == NOTHING
    with pytest.raises(InvalidValue):
        put(kept, A, [8], around(0))
    assert put_anew(kept) == 1
    other = SqliteVectors(str(root))
    for each in (kept, other):
        assert asked(each, 0) == asked(each, 0, [1, 7]) == [(7, 0)]
    other.close()
    kept.close()
    assert set(contents(root)) == {NAME}


def test_a_file_that_is_replaced_is_noticed(
    kept: SqliteVectors, root: Path, tmp_path: Path
) -> None:
    """Other vectors at the name answer from then on, and no sketch of the old ones does."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    other = SqliteVectors(str(elsewhere))
    begun(other)
    put(other, A, [5, 6], around(0, 30))
    other.close()
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
    shutil.copy(elsewhere / NAME, root / "copy")
    (root / "copy").chmod(0o600)
    (root / "copy").replace(root / NAME)
    assert asked(kept, 0) == asked(kept, 0, [*MANY, 5, 6, 1]) == [(5, 0), (6, 0)]
    put(kept, A, [4], around(20))
    assert asked(SqliteVectors(str(root)), 0) == asked(kept, 0) == [(5, 0), (4, 0), (6, 0)]


def test_a_folder_that_is_removed_is_noticed(kept: SqliteVectors, root: Path) -> None:
    """Where the whole folder is gone, nothing is known, and nothing can be put."""
    put_anew(kept)
    shutil.rmtree(root)
    assert answers(kept) == NOTHING
    with pytest.raises(StorageUnavailable):
        put_anew(kept)
    root.mkdir(0o700)
    assert put_anew(kept) == 1


# --- read only ------------------------------------------------------------------------------------


def test_a_reader_changes_nothing(kept: SqliteVectors, root: Path) -> None:
    """One that is only read answers from what is there, creates no file and changes no byte."""
    expected = answers(kept)
    kept.close()
    before = contents(root)
    times = os.stat(root).st_mtime_ns, os.stat(root / NAME).st_mtime_ns
    reader = SqliteVectors(str(root), read_only=True)
    for _ in range(2):
        assert answers(reader) == expected
        for call in changes(reader):
            with pytest.raises(StorageUnavailable):
                call()
        # What changes nothing is no change.
        begun(reader)
        assert reader.complete(A)
        reader.remove(A, [])
        reader.close()
    assert contents(root) == before
    assert (os.stat(root).st_mtime_ns, os.stat(root / NAME).st_mtime_ns) == times


def test_a_reader_sees_what_writers_do(kept: SqliteVectors, root: Path) -> None:
    """One that is only read sees each change, while there is a writer and after it has closed."""
    reader = SqliteVectors(str(root), read_only=True)
    assert asked(reader, 0) == [(1, 0), (2, 0), (3, 0)]
    put(kept, A, [4], around(15))
    assert asked(reader, 0) == [(1, 0), (2, 0), (4, 0), (3, 0)]
    kept.remove(A, [1])
    kept.close()
    assert asked(reader, 0) == [(2, 0), (4, 0), (3, 0)]
    reader.close()


# --- several at once, and kills -------------------------------------------------------------------


def child(script: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run a script in a process of its own."""
    # From Python 3.12 on a fork beside threads warns, and numpy has some.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PRELUDE + script]
    return subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=250
    )


PRELUDE = """
import json, os, shutil, signal, sys
from perdure.durable import crash
from perdure.embedding.sqlite import NAME, SqliteVectors
from perdure.testing.contract import Clockwork
from perdure.testing.vectors.place import *
from perdure.testing.vfs import standing_between

root = sys.argv[1]
"""

DYING = """
kind = sys.argv[2]

def fresh(number):
    folder = os.path.join(root, str(number))
    os.mkdir(folder, 0o700)
    if kind == "there":
        vectors = SqliteVectors(folder, runtime=Clockwork())
        begun(vectors)
        put(vectors, A, [1, 2, 3], around(0, 10, 20))
        vectors.close()
    if kind == "damaged":
        for name in (NAME, NAME + "-wal"):
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.write(b"damaged")
            os.chmod(path, 0o600)
    return folder

def work(folder):
    with standing_between(to_disk=False, waits=False):
        vectors = SqliteVectors(folder, runtime=Clockwork())
        begun(vectors)
        put(vectors, A, range(10, 60), around(*range(50)))
        vectors.put_reading(A, "", "s", 1)
        vectors.complete(A)
        vectors.remove(A, [10])
        vectors.close()

def dying(folder, visit):
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = [visit]
    def hook(name):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    try:
        crash.arm(hook=hook)
        work(folder)
    finally:
        os._exit(1)

visits = []
whole = fresh("whole")
crash.arm(hook=visits.append)
work(whole)
crash.arm()
told = []
for number in range(len(visits)):
    folder = fresh(number)
    code = dying(folder, number + 1)
    reader = SqliteVectors(folder, read_only=True)
    seen = [digest for digest, _ in asked(reader, 0, most=100)]
    vectors = SqliteVectors(folder)
    there = everything(vectors)
    found = [digest for digest, _ in asked(vectors, 0, most=100)]
    counted = [model.vectors for model in vectors.models()]
    read = vectors.versions(A, "").get("s")
    begun(vectors)
    put(vectors, A, range(10, 60), around(*range(50)))
    last = sorted(digest for digest, _ in asked(vectors, 0, most=100))
    reader.close()
    vectors.close()
    left = sorted(os.listdir(folder))
    told.append([visits[number], code, seen, there, found, counted, read, last, left])
    shutil.rmtree(folder)
json.dump(told, sys.stdout)
"""


@pytest.mark.parametrize("kind", ["new", "damaged", "there"])
def test_a_kill_at_any_point_leaves_a_usable_file(root: Path, kind: str) -> None:
    """Killed anywhere within its changes, a writer leaves each of them whole or not at all."""
    done = child(DYING, root, kind)
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    before = [1, 2, 3] if kind == "there" else []
    new = list(range(10, 60))
    states = set()
    assert {"vfs.write", "vfs.written"} <= {each[0] for each in told}
    for point, code, seen, there, found, counted, read, last, left in told:
        assert code == -9, point
        state = [each for each in there if each not in before]
        assert state in ([], new, new[1:]), point
        assert sorted(found) == there, point
        # Who may create nothing cannot always read a WAL, and then knows nothing.
        assert sorted(seen) in ([], there), point
        assert sum(counted) == len(there), point
        assert read is None or state, point
        assert (read == -1) == (state == new[1:]), point
        assert last == sorted(before + new), point
        strays = [name for name in left if name != NAME and not name.startswith(ASIDE)]
        assert strays == [], point
        assert kind == "damaged" or left == [NAME], point
        states.add(len(state))
    assert states == {0, 50, 49}


def test_a_search_that_began_before_a_put_is_no_damage(
    kept: SqliteVectors, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads an older state, while others cached a newer one, finds what is in his own."""
    sketches = SqliteVectors._sketches
    place = kept._place
    left = list(range(4, 12))

    def overtaken(vectors: SqliteVectors, *given: Any) -> Any:
        if left and threading.current_thread() is threading.main_thread():
            digest = left.pop(0)

            def overtake() -> None:
                put(vectors, A, [digest], around(digest))
                seen.append(asked(vectors, 0))

            together([overtake])
        return sketches(vectors, *given)

    seen: list[list[tuple[int, int]]] = []
    monkeypatch.setattr(SqliteVectors, "_sketches", overtaken)
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
    assert len(left) == 7
    assert sorted(seen[0]) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    left.clear()
    assert sorted(asked(kept, 0)) == [(1, 0), (2, 0), (3, 0), (4, 0)]
    put(kept, A, [50], around(50))
    assert set_aside(root) == []
    assert isinstance(place, connections.FilePlace)
    assert place._damaged is None


WRITING = """
name, turns = int(sys.argv[2]), int(sys.argv[3])
vectors = SqliteVectors(root)
begun(vectors)
new = 0
for turn in range(turns):
    own = range(name * 1000 + turn * 10, name * 1000 + turn * 10 + 10)
    new += put(vectors, A, [*own, -1 - turn], around(*range(11)))
    found = {digest for digest, _ in asked(vectors, 0, most=100_000)}
    assert {*own, -1 - turn} <= found
    vectors.put_reading(A, "", f"{name} {turn}", turn)
print(new)
"""


def test_processes_put_at_once(root: Path) -> None:
    """Processes that put into one file lose nothing, and see each other's vectors."""
    turns = 15
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITING, str(root), str(name), str(turns)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in (1, 2)
    ]
    told = [writer.communicate() for writer in writers]
    assert [
        (error, writer.returncode) for (_, error), writer in zip(told, writers, strict=True)
    ] == [("", 0)] * 2
    vectors = SqliteVectors(str(root))
    expected = [*range(-turns, 0), *range(1000, 1000 + 10 * turns), *range(2000, 2000 + 10 * turns)]
    assert everything(vectors) == expected
    assert sorted(digest for digest, _ in asked(vectors, 0, most=10_000)) == expected
    assert sum(int(out) for out, _ in told) == len(expected) == vectors.models()[0].vectors
    assert len(vectors.versions(A, "")) == 2 * turns
    assert set_aside(root) == []


# --- media that refuse ----------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.parametrize("code", ["EIO", "ENOSPC", "EACCES", SHORT])
def test_any_call_of_sqlite_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rng: random.Random, code: str
) -> None:
    """Whichever call the system refuses, only errors of the tree come of it, and all goes on."""
    for each in (files, connections):
        monkeypatch.setattr(each, "WAIT_MS", 1)
    state = {"calls": 0, "fails": -1}

    def judge(kind: str) -> str | None:
        state["calls"] += 1
        if code == SHORT and kind not in ("sqlite read", "sqlite write"):
            return None
        return code if state["calls"] == state["fails"] else None

    def use(root: Path) -> None:
        vectors = SqliteVectors(str(root))
        steps: list[Callable[[], object]] = [
            lambda: put_anew(vectors),
            lambda: answers(vectors),
            *changes(vectors),
            lambda: vectors.complete(A),
            vectors.close,
            lambda: answers(SqliteVectors(str(root), read_only=True)),
        ]
        for step in steps:
            with suppress(StorageUnavailable, StorageFull, InvalidValue):
                step()

    def play(root: Path, fails: int) -> None:
        root.mkdir(0o700)
        state.update(calls=0, fails=fails)
        with standing_between(judge=judge, to_disk=False, waits=False):
            use(root)

    play(tmp_path / "whole", -1)
    for fails in sorted(rng.sample(range(1, state["calls"] + 1), scaled(200))):
        root = tmp_path / f"{fails}"
        play(root, fails)
        vectors = SqliteVectors(str(root))
        begun(vectors)
        put(vectors, A, [50], around(0))
        assert (50, 0) in asked(vectors, 0), fails
        assert set_aside(root) == [], fails
        vectors.close()
        shutil.rmtree(root)


def test_a_full_disk_is_told(
    kept: SqliteVectors, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What does not fit is refused as a whole, what was known stays, and later it fits."""
    connect = apsw.Connection

    def limited(*arguments: Any, **options: Any) -> apsw.Connection:
        connection = connect(*arguments, **options)
        connection.pragma("max_page_count", 20)
        return connection

    many = range(1_000, 6_000)
    degrees = [each / 100 for each in many]
    with monkeypatch.context() as patch:
        patch.setattr(apsw, "Connection", limited)
        with pytest.raises(StorageFull):
            put(kept, A, many, around(*degrees))
        assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
        kept.close()
    assert put(kept, A, many, around(*degrees)) == 5_000
    assert set_aside(root) == []


def test_what_a_fork_closes_opens_again(kept: SqliteVectors) -> None:
    """What is done before a fork leaves no connection open, and what was cached answers on."""
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
    place = kept._place
    assert isinstance(place, connections.FilePlace)
    assert place._idle
    connections._open_places._close()
    assert place._idle == []
    assert asked(kept, 0) == [(1, 0), (2, 0), (3, 0)]
