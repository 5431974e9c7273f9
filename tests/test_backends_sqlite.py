"""SQLite files and bundles: what is refused, what people see in them, forks, damage, leftovers."""

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.backends import open_backend
from perdure.backends.sqlite import BundleBackend, SqliteBackend, schema
from perdure.backends.sqlite.bundle import ARTIFACT_BYTES
from perdure.databases import forks, network
from perdure.databases.meaning import Nonsense, meaning
from perdure.databases.opening import configure, renew, resolved
from perdure.durable import crash
from perdure.errors import (
    ContentExpired,
    FormatUnsupported,
    InvalidValue,
    KeyConflict,
    PerdureError,
    SessionBusy,
    StaleWriter,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.model.event import draft
from perdure.model.header import new_header
from perdure.model.record import Position, seal
from perdure.testing.contract import Clockwork

DELTAS: list[dict[str, Any]] = [
    {"type": "assistant/delta", "turn": "t", "data": {"block": [0, {"text": f"word {n} "}]}}
    for n in range(50)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two sessions, one with packed runs, at rest."""
    place = tmp_path / "store.db"
    with perdure.open(f"sqlite:{place}", runtime=Clockwork()) as store:
        with store.create("a") as session:
            session.append("user/message", {"content": "hello"}, agent="main", turn="t", key="k")
            session.append_many(DELTAS)
            session.append("odd", {"big": 2**70, "half": "\ud800", "none": None})
        with store.namespace("team", "x/y").create("b") as session:
            session.append("x", "plain")
    return place


def sql(path: Path, statement: str, *bindings: Any) -> list[tuple[Any, ...]]:
    """What another program would see or do, with its own connection."""
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement, bindings).fetchall()
    finally:
        connection.close()


def everything(path: Path) -> dict[str, bytes]:
    """The bytes of the file and of all beside it but shared memory and what the index needs."""
    files = [each for each in path.parent.rglob("*") if each.is_file()]
    return {
        str(each.relative_to(path.parent)): each.read_bytes()
        for each in files
        if not each.name.endswith("-shm")
        and not each.name.startswith("index.sqlite")
        and each.parent.name != "writing"
        and not (each.name.endswith("-wal") and not each.stat().st_size)
    }


# --- what is refused ----------------------------------------------------------------------------


def foreign(path: Path) -> None:
    sql(path, "CREATE TABLE notes (text)")


def other_program(path: Path) -> None:
    sql(path, "CREATE TABLE notes (text)")
    sql(path, "PRAGMA application_id = 42")


def sound(path: Path) -> None:
    with perdure.open(f"sqlite:{path}") as store, store.create("s") as session:
        session.append("x")


def newer(path: Path) -> None:
    sound(path)
    sql(path, f"PRAGMA user_version = {schema.VERSION + 1}")


def unversioned(path: Path) -> None:
    sound(path)
    sql(path, "PRAGMA user_version = 0")


def bundle(path: Path) -> None:
    made = path.with_suffix(".perdure")
    with perdure.open(made) as store, store.create("s") as session:
        session.append("x")
    made.replace(path)


def linked(path: Path) -> None:
    sound(path.with_name("elsewhere.db"))
    path.symlink_to(path.with_name("elsewhere.db"))


def hard_linked(path: Path) -> None:
    sound(path.with_name("elsewhere.db"))
    os.link(path.with_name("elsewhere.db"), path)


def readable(path: Path) -> None:
    sound(path)
    path.chmod(0o644)


def with_trigger(path: Path) -> None:
    sound(path)
    sql(path, "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM sessions; END")


def private(path: Path, data: bytes) -> None:
    path.touch(0o600)
    path.write_bytes(data)


def schema_written(path: Path, statement: str, named: str, **columns: str) -> None:
    """Something added to the schema, its columns there rewritten afterwards."""
    sound(path)
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.pragma("writable_schema", 1)
    for column, value in columns.items():
        change = f"UPDATE sqlite_schema SET {column} = ? WHERE name = ?"  # noqa: S608
        connection.execute(change, (value, named))
    connection.close()


def with_internal_trigger(path: Path) -> None:
    does = "AFTER INSERT ON records BEGIN DELETE FROM sessions; END"
    trigger, renamed = (f"CREATE TRIGGER {name} {does}" for name in ("t", "sqlite_t"))
    schema_written(path, trigger, "t", sql=renamed, name="sqlite_t")


def with_odd_view(path: Path) -> None:
    odd = "create/**/view/**/v/**/as/**/select/**/1"
    schema_written(path, "CREATE VIEW v AS SELECT 1", "v", sql=odd)


REFUSED: dict[str, tuple[Callable[[Path], None], type[PerdureError], str, str]] = {
    "empty": (lambda p: private(p, b""), UnsafeFile, "is empty", "backup"),
    "text": (lambda p: private(p, b"hello\n" * 99), UnsafeFile, "is no SQLite file", "another"),
    "short": (lambda p: private(p, b"SQLite format 3\0"), UnsafeFile, "is no SQLite file", "name"),
    "foreign": (foreign, UnsafeFile, "perdure did not make", "another file"),
    "other program": (other_program, UnsafeFile, "application id 42", "another file"),
    "newer": (newer, FormatUnsupported, "2", "newer"),
    "unversioned": (unversioned, FormatUnsupported, "0", ""),
    "bundle": (bundle, UnsafeFile, "is a bundle, not a store", "open bundle:"),
    "link": (linked, UnsafeFile, "symbolic link", "leads to"),
    "hard link": (hard_linked, UnsafeFile, "2 hard links", "copy it"),
    "world-readable": (readable, UnsafeFile, "mode 644", "chmod 600"),
    "folder": (lambda p: p.mkdir(0o700), UnsafeFile, "not a regular file", ""),
    "fifo": (lambda p: os.mkfifo(p, 0o600), UnsafeFile, "not a regular file", ""),
    "trigger": (with_trigger, UnsafeFile, "added 't'", "DROP TRIGGER t"),
    "internal trigger": (with_internal_trigger, UnsafeFile, "sqlite_t", "DROP TRIGGER sqlite_t"),
    "odd view": (with_odd_view, UnsafeFile, "added 'v'", "DROP VIEW v"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_store_of_ours_is_refused(tmp_path: Path, what: str) -> None:
    """Each kind of wrong file has its own clear error, for readers and writers; no byte changes."""
    place = tmp_path / "place"
    place.mkdir(0o700)
    path = place / "store.db"
    make, error, said, hint = REFUSED[what]
    make(path)
    before, mode = everything(path), path.lstat().st_mode
    store = perdure.open(f"sqlite:{path}")

    for call in (
        store.list,
        lambda: store.inspect("s"),
        lambda: store.writer("s"),
        lambda: store.create("t").append("x"),
        lambda: store.append("s", [{"type": "x"}]),
    ):
        with pytest.raises(error) as refused:
            call()
        assert said in refused.value.message
        assert hint in refused.value.hint
        assert str(path) in refused.value.message
    store.close()
    assert (everything(path), path.lstat().st_mode) == (before, mode)


def test_a_world_readable_bundle_is_told_what_to_do(tmp_path: Path) -> None:
    """Opening it in place is refused, and the hint names the command that takes it in."""
    path = tmp_path / "s.perdure"
    bundle(path)
    path.chmod(0o644)

    with pytest.raises(UnsafeFile) as refused:
        perdure.open(path).list()
    assert f"perdure import bundle {path}" in refused.value.hint
    read = open_backend(f"bundle:{path}", untrusted=True)
    assert [entry.id for entry in read.entries()] == ["s"]
    with pytest.raises(StorageUnavailable):
        read.publish(new_header("t", created_at=0), [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_folder_where_others_may_rename_is_refused(tmp_path: Path) -> None:
    """A file is not safe in a folder that others can write into, unless it is sticky."""
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(UnsafeFile) as refused:
        perdure.open(f"sqlite:{place}/store.db").create("s").append("x")
    assert "chmod go-w" in refused.value.hint
    place.chmod(0o1777)
    perdure.open(f"sqlite:{place}/store.db").create("s").append("x")


@pytest.mark.parametrize(
    ("kind", "refused"), [("nfs4", True), ("fuse.sshfs", True), ("ext4", False)]
)
def test_a_network_file_system_is_refused_to_writers(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, refused: bool
) -> None:
    """Where two machines may share a file, nothing is created or written; reading goes on."""
    mounts = path.with_name("mounts")
    device = path.parent.stat().st_dev
    place = f"{os.major(device)}:{os.minor(device)}"
    mounts.write_text(
        f"21 1 0:5 / /proc rw - proc proc rw\n22 1 {place} / / rw shared:1 - {kind} x rw\n"
    )
    monkeypatch.setattr(network, "_MOUNTS", mounts)
    with perdure.open(f"sqlite:{path}") as store:
        assert [entry.id for entry in store.list()] == ["a"]
        for write in (
            lambda: store.append("a", [{"type": "x"}]),
            lambda: perdure.open(f"sqlite:{path}.new").create("s").append("x"),
        ):
            if not refused:
                write()
                continue
            with pytest.raises(StorageUnavailable) as told:
                write()
            assert kind in told.value.message
            assert "local disk" in told.value.hint
    assert Path(f"{path}.new").exists() is not refused


@pytest.mark.parametrize("rest", ["", "//", "///", "//host/x.db", "x/", "///tmp/"])
def test_what_names_no_file_is_refused(rest: str) -> None:
    """A location without a file, or on another machine, is told so."""
    with pytest.raises(InvalidValue) as refused:
        open_backend(f"sqlite:{rest}")
    assert "sqlite:" in refused.value.hint


def test_locations_name_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute, relative, in the home folder: one file; .perdure is a bundle."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names = [f"sqlite:{tmp_path}/x.db", f"sqlite://{tmp_path}/x.db", "sqlite:x.db", "sqlite:~/x.db"]
    assert {repr(open_backend(name)) for name in names} == {f"sqlite:{tmp_path}/x.db"}
    assert repr(open_backend("x.perdure")) == f"bundle:{tmp_path}/x.perdure"
    (tmp_path / "y.perdure").mkdir()
    assert repr(open_backend("y.perdure")) == f"dir:{tmp_path}/y.perdure"
    assert repr(open_backend("~/.perdure")) == f"dir:{tmp_path}/.perdure"


# --- what people see ----------------------------------------------------------------------------


def test_the_view_shows_events(path: Path) -> None:
    """`select * from events` shows every event, packed runs expanded, in any SQLite shell."""
    store = perdure.open(f"sqlite:{path}")
    expected = [
        (e.seq, e.type, e.time, e.agent, e.turn, e.key, e.data) for e in store.read_from("a")
    ]
    query = (
        "SELECT seq, type, time, agent, turn, key, data FROM events"
        " WHERE session = 'a' ORDER BY seq"
    )
    shown = sql(path, query)

    assert [(*row[:-1], json.loads(row[-1])) for row in shown] == expected
    assert len(shown) == 52
    assert sql(path, "SELECT count(*) FROM records WHERE session = 1") == [(3,)]
    assert sql(path, "SELECT namespace, session, data FROM events WHERE session = 'b'") == [
        ("team/x%2Fy", "b", '"plain"')
    ]


def test_the_view_takes_any_name_and_text(tmp_path: Path) -> None:
    """Quotes and backslashes in names, and half characters in text, are shown as they are."""
    path = tmp_path / "x.db"
    nested = [{'a"b': [{"c\\d.e": f"{n} \ud800"}]} for n in range(5)]
    roots = [f"root {n}" for n in range(5)]
    with perdure.open(f"sqlite:{path}") as store, store.create("s") as session:
        session.append_many({"type": "d", "data": each} for each in nested)
        session.append_many({"type": "r", "data": each} for each in roots)
    assert sql(path, "SELECT count(*) FROM records") == [(2,)]
    shown = sql(path, "SELECT data FROM events ORDER BY seq")
    assert [json.loads(cell) for (cell,) in shown] == [*nested, *roots]


def test_opening_a_writer_seeks_its_end(path: Path) -> None:
    """Whether rows stand behind the end is asked of the last row, not of all of them."""
    query = "SELECT start FROM records WHERE session = 1 ORDER BY seq DESC LIMIT 1"
    ((_, _, _, plan),) = sql(path, f"EXPLAIN QUERY PLAN {query}")
    assert plan.startswith("SEARCH")
    assert "sqlite_autoindex_records_1" in plan


def test_tables_are_strict_and_marked(path: Path) -> None:
    """Tables are STRICT, and application id and version say whose file it is."""
    assert sql(path, "PRAGMA application_id") == [(int.from_bytes(b"pdSt", "big"),)]
    assert sql(path, "PRAGMA user_version") == [(schema.VERSION,)]
    strict = sql(path, "SELECT name, strict FROM pragma_table_list WHERE type = 'table'")
    assert {name for name, is_strict in strict if not is_strict} <= {
        "sqlite_schema",
        "sqlite_temp_schema",
        "sqlite_sequence",
    }
    assert sql(path, "SELECT typeof(created_at) FROM sessions") == [("integer",)] * 2


def test_finding_is_an_index_seek(path: Path) -> None:
    """The tail and a page are found by the key, in packed runs as well; nothing is scanned."""
    statements: list[str] = []
    backend = SqliteBackend(str(path))
    seek = [piece.lines[0] for piece in backend.scan("a", 0, seq=30)]
    assert len(seek) == 2
    with perdure.open(f"sqlite:{path}") as store:
        assert [event.seq for event in store.read_from("a", 30)] == list(range(30, 52))
    page = "SELECT seq, start, line FROM records WHERE session = 1 AND seq >= 1 AND seq <= 9"
    for statement in (
        "SELECT max(seq) FROM records WHERE session = 1 AND seq <= 30",
        f"{page} ORDER BY seq LIMIT -1",
        "SELECT tail_seq FROM sessions WHERE state = 'stored' AND namespace = '' AND id = 'a'",
        "SELECT seq FROM records WHERE session = 1 AND type = 'x' AND key = 'k'",
    ):
        statements += [row[3] for row in sql(path, f"EXPLAIN QUERY PLAN {statement}")]
    assert len(statements) == 4
    assert [text for text in statements if not text.startswith("SEARCH")] == []


def test_everything_is_private(path: Path) -> None:
    """Files are 0600 and folders 0700, whatever the umask."""
    modes = {
        stat.S_IMODE(each.stat().st_mode): each.is_dir() for each in path.parent.glob("store.db*")
    }
    assert modes == {0o600: False, 0o700: True}
    inside = list(Path(f"{path}.d").rglob("*"))
    assert {(each.is_dir(), stat.S_IMODE(each.stat().st_mode)) for each in inside} == {
        (True, 0o700),
        (False, 0o600),
    }


def test_reading_changes_no_byte(path: Path) -> None:
    """Whatever is read, listed or verified, file, WAL and all beside them stay as they are."""
    before = everything(path)
    names = sorted(each.name for each in path.parent.iterdir())
    with perdure.open(f"sqlite:{path}") as store:
        store.list()
        store.inspect("a").problems  # noqa: B018 - asking reads
        list(store.read_from("a", 10))
        assert store.verify("a").sound
        store.missing()
    assert everything(path) == before
    assert [name for name in names if not (path.parent / name).exists()] == []


# --- one truth ----------------------------------------------------------------------------------


def test_keys_are_unique_in_the_file(tmp_path: Path) -> None:
    """A commit that repeats a (type, key) is refused as a conflict, and nothing of it is stored."""
    backend = SqliteBackend(str(tmp_path / "x.db"))
    header = new_header("s", created_at=0)
    first = seal(Position(-1, header.genesis), [draft("x", 0, time=1, key="k")])
    hold = backend.publish(header, first)
    again = seal(hold.position, [draft("y", 0, time=1), draft("x", 1, time=1, key="k")])

    with pytest.raises(KeyConflict) as conflict:
        backend.commit(hold, hold.position, again)

    assert (conflict.value.type, conflict.value.key, conflict.value.seq) == ("x", "k", 0)
    assert backend.tail("s").acknowledged == first[-1].position == hold.position
    backend.commit(hold, hold.position, seal(hold.position, [draft("y", 0, time=1)]))
    hold.release()


def test_columns_that_lie_are_told(path: Path) -> None:
    """Verifying holds the columns against the bytes; the bytes count, and reading goes on."""
    sql(path, "UPDATE records SET type = 'edited', time = 5 WHERE session = 1 AND seq = 0")
    backend = SqliteBackend(str(path))

    (problem,) = backend.disagreements("a")

    assert (problem.kind, problem.record) == ("column", 0)
    assert next(perdure.open(f"sqlite:{path}").read_from("a")).type == "user/message"
    with perdure.open(f"sqlite:{path}") as store:
        report = store.verify("a")
        assert [each.kind for each in report.problems] == ["column"]
        assert not report.sound
        store.repair("a")
        assert store.verify("a").sound


def test_an_index_of_keys_that_lies_is_told(path: Path) -> None:
    """Verifying looks each key up: an index that misses one would let it be stored twice."""
    connection = apsw.Connection(str(path))
    connection.pragma("writable_schema", 1)
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, 'IS NOT NULL', 'IS NULL')"
        " WHERE name = 'record_keys'"
    )
    connection.close()
    sql(path, "REINDEX record_keys")
    connection = apsw.Connection(str(path))
    connection.pragma("writable_schema", 1)
    connection.execute(
        "UPDATE sqlite_schema SET sql = replace(sql, 'IS NULL', 'IS NOT NULL')"
        " WHERE name = 'record_keys'"
    )
    connection.close()
    with perdure.open(f"sqlite:{path}") as store:
        (problem,) = store.verify("a").problems
        assert (problem.kind, problem.record) == ("column", 0)
        assert "index of the keys" in problem.reason
        assert len(list(store.read_from("a"))) == 52


@pytest.mark.parametrize("column", ["type", "agent", "turn", "key"])
def test_text_that_is_none_is_damage(path: Path, column: str) -> None:
    """Bytes of a text column that are no text are told by verify, and ended by a repair."""
    data = path.read_bytes()
    ((line,),) = sql(path, "SELECT line FROM records WHERE session = 1 AND seq = 0")
    at = data.index(line)
    start = data.rindex(b"user/message", 0, at)
    cell = {"type": start, "agent": at - 6, "turn": at - 2, "key": at - 1}[column]
    path.write_bytes(data[:cell] + b"\xff" + data[cell + 1 :])
    with perdure.open(f"sqlite:{path}") as store:
        report = store.verify("a")
        assert {each.kind for each in report.problems} == {"column"}
        assert len(list(store.read_from("a"))) == 52
        store.repair("a")
        assert store.verify("a").sound


def test_rows_that_name_no_content_keep_nobody(path: Path) -> None:
    """A row with a digest that is none is told by verify; reading, repair and the rest go on."""
    with perdure.open(f"sqlite:{path}") as store, store.writer("a") as session:
        digest = session.put_blob(b"content")
        session.append("x", digest)
    sql(path, "INSERT INTO blobs VALUES (1, '../victim', 1, 0, 'here')")
    with perdure.open(f"sqlite:{path}") as store:
        assert [blob.digest for blob in store.blobs("a")] == [digest]
        assert not store.verify("a").sound
        store.repair("a")
        assert store.verify("a").sound
        assert store.blob("a", digest) == b"content"


def test_a_row_that_was_removed_is_damage(path: Path) -> None:
    """A record that somebody deleted is missed, and the session is refused to writers."""
    sql(path, "DELETE FROM records WHERE session = 1 AND seq = 1")
    with perdure.open(f"sqlite:{path}") as store:
        assert store.verify("a").status == "damaged"
        assert [event.seq for event in store.inspect("a").events] == [0]
        assert store.namespace("team", "x/y").verify("b").sound


def test_a_replaced_file_takes_no_commit(path: Path, tmp_path: Path) -> None:
    """A writer whose file was exchanged is refused instead of writing where nobody looks."""
    with perdure.open(f"sqlite:{path}") as store:
        session = store.writer("a")
        session.append("x", 1)
        copy = tmp_path / "copy.db"
        copy.touch(0o600)
        source = apsw.Connection(str(path))
        target = apsw.Connection(str(copy))
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.close()
        source.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        os.replace(copy, path)
        sql(path, "UPDATE sessions SET tail_hash = 'other' WHERE number = 1")
        with pytest.raises(StaleWriter):
            session.append("x", 2)


def test_connections_to_a_file_that_was_exchanged_are_let_go(path: Path, tmp_path: Path) -> None:
    """However many connections are idle, a commit goes into the file that is at the name."""
    with perdure.open(f"sqlite:{path}", index=False) as store:
        session = store.writer("a")
        session.append("x", 1)
        medium = store._backend._medium  # type: ignore[attr-defined]
        old = [medium.new_writer() for _ in range(3)]
        for writer in old:
            medium.give_back(writer)
        old = [*medium._idle]
        assert len(old) == 4
        copy = tmp_path / "copy.db"
        copy.touch(0o600)
        source, target = apsw.Connection(str(path)), apsw.Connection(str(copy))
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.close()
        source.close()
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        os.replace(copy, path)
        session.append("x", 2)
        (writer,) = medium._idle
        assert writer not in old
        assert [event.data for event in store.read_from("a")][-2:] == [1, 2]
        session.close()


class Interrupt(BaseException):
    """Comes at any place."""


@pytest.mark.parametrize(
    ("place", "stored"), [("begun", False), ("changed", False), ("committed", True)]
)
def test_an_interrupt_leaves_no_transaction(path: Path, place: str, stored: bool) -> None:
    """Wherever a commit is interrupted, the file is free at once, and a fork waits for nobody."""

    def interrupt(name: str) -> None:
        if name == f"sqlite.{place}":
            raise Interrupt

    with perdure.open(f"sqlite:{path}", index=False) as store:
        session = store.writer("a")
        before = session.position.seq
        crash.arm(hook=interrupt)
        try:
            # What was raised is kept, and with it all that its traceback refers to.
            with pytest.raises(Interrupt) as raised:
                session.append("x", 1)
        finally:
            crash.arm()
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
        assert not forks._gate._inside
        assert session.position.seq == before + stored
        assert raised.type is Interrupt
        session.append("x", 2)
        assert [event.data for event in store.read_from("a", before + 1)] == [1, 2][1 - stored :]
        session.close()


def test_two_writers_of_one_session(path: Path) -> None:
    """Within one process and of one file, the second writer is told who has it."""
    with perdure.open(f"sqlite:{path}") as store, perdure.open(f"sqlite:{path}") as other:
        with store.writer("a"), pytest.raises(SessionBusy) as busy:
            other.writer("a")
        assert busy.value.pid == os.getpid()
        other.writer("a").close()


def test_threads_share_a_store(path: Path) -> None:
    """Sixteen threads with a session each append and read at once; nothing is lost."""
    with perdure.open(f"sqlite:{path}") as store:
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                with store.create(f"t{number}") as session:
                    for index in range(25):
                        session.append("x", index)
                        list(store.read_from(f"t{number}", index))
            except BaseException as error:  # noqa: BLE001 - shown below
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for number in range(16):
            assert [event.data for event in store.read_from(f"t{number}")] == list(range(25))


@pytest.mark.parametrize("name", ["file/below/x.db", "n" * 300 + ".db"])
def test_a_place_that_cannot_be_is_told(tmp_path: Path, name: str) -> None:
    """Below a file, or with too long a name, nothing is stored, and the error is one of ours."""
    (tmp_path / "file").touch(0o600)
    with perdure.open(f"sqlite:{tmp_path / name}") as store:
        for call in (store.list, lambda: store.inspect("s"), lambda: store.create("s").append("x")):
            with pytest.raises((StorageUnavailable, UnsafeFile)):
                call()


def test_an_id_that_is_no_text_is_listed_as_damage(path: Path) -> None:
    """Bytes in place of an id hide no other session, and are no foreign error."""
    with perdure.open(f"sqlite:{path}") as store, store.create("other") as session:
        session.append("x")
    sql(path, "UPDATE sessions SET id = X'ff' WHERE number = 1")
    with perdure.open(f"sqlite:{path}") as store:
        listed = {entry.id: entry.header is not None for entry in store.list()}
        assert listed == {"other": True, "\\xff": False}
        assert store.verify("other").sound


def test_numbers_beyond_all_are_past_the_end(path: Path) -> None:
    """Reading from a number that no log reaches gives nothing."""
    with perdure.open(f"sqlite:{path}") as store:
        for seq in (52, 10**6, 2**63 - 1, 2**63, 2**80):
            assert list(store.read_from("a", seq)) == []


def test_an_interrupted_transaction_is_not_kept(path: Path) -> None:
    """A connection that a signal left within a transaction is closed, and the store goes on."""
    with perdure.open(f"sqlite:{path}") as store:
        store.writer("a").close()
        medium = store._backend._medium  # type: ignore[attr-defined]
        writer = medium._writer()
        writer.connection.execute("BEGIN")
        medium.give_back(writer)
        assert store.verify("a").sound
        with store.writer("a") as session:
            session.append("x")


# --- forks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_child", ["reads", "writes"])
def test_a_forked_child_has_connections_of_its_own(path: Path, in_child: str) -> None:
    """A child reads and writes, its parent goes on, and the locks of SQLite hold between them."""
    with perdure.open(f"sqlite:{path}") as store:
        session = store.writer("a")
        session.append("x", "before")
        reader = store.read_from("a")
        next(reader)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if in_child == "writes":
                    with store.create("of the child") as own:
                        for number in range(20):
                            own.append("x", number)
                status = 0 if store.verify("a").sound else 2
            finally:
                os._exit(status)
        for number in range(20):
            session.append("x", number)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list(reader)) == 52
        session.close()
        assert store.verify("a").sound
        assert {entry.id for entry in store.list()} <= {"a", "of the child"}
        if in_child == "writes":
            assert [event.data for event in store.read_from("of the child")] == list(range(20))


def test_no_fork_hands_a_connection_on(path: Path) -> None:
    """However reading threads and forks fall together, a child has nothing of the parent's file."""
    with perdure.open(f"sqlite:{path}") as store, store.writer("a") as session:
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set():
                list(store.read_from("a"))
                next(store.read_from("a", 3))

        threads = [threading.Thread(target=read) for _ in range(3)]
        for thread in threads:
            thread.start()
        statuses = []
        for number in range(40):
            session.append("x", number)
            child = os.fork()
            if child == 0:
                held = {
                    os.readlink(f"/proc/self/fd/{fd}")
                    for fd in os.listdir("/proc/self/fd")
                    if os.path.exists(f"/proc/self/fd/{fd}")
                }
                # The folder beside it is nobody's lock.
                there = {name for name in held if name.startswith(str(path))}
                os._exit(any(not name.startswith(f"{path}.d") for name in there))
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        ended.set()
        for thread in threads:
            thread.join()
        assert statuses == [0] * 40
    assert perdure.open(f"sqlite:{path}").verify("a").sound


# --- leftovers ----------------------------------------------------------------------------------


def test_creation_is_whole_or_not_at_all(tmp_path: Path) -> None:
    """A file that could not be finished leaves nothing at the name, and the next try is a store."""
    path = tmp_path / "store.db"

    def fail(point: str) -> None:
        if point == "sqlite.create":
            raise OSError(5, "Input/output error")

    crash.arm(hook=fail)
    with pytest.raises(OSError, match="Input/output"):
        perdure.open(f"sqlite:{path}").create("s").append("x")
    crash.arm()
    assert not path.exists()
    with perdure.open(f"sqlite:{path}") as store, store.create("s") as session:
        session.append("x")
    assert [each.name for each in Path(f"{path}.d").glob(".new-*")] == []


def test_what_was_staged_and_left_goes(tmp_path: Path) -> None:
    """Content of a session that was never published is removed by a later one."""
    runtime = Clockwork()
    backend = SqliteBackend(str(tmp_path / "x.db"), runtime=runtime)
    hold = backend.stage(new_header("s", created_at=0))
    backend.put_blob(hold, [b"x" * 100])
    hold.abandon = None  # type: ignore[attr-defined]
    hold.release()
    assert sql(tmp_path / "x.db", "SELECT state FROM sessions") == [("new",)]
    later = Clockwork(start=runtime.now_ms() + 120_000)
    again = SqliteBackend(str(tmp_path / "x.db"), runtime=later)
    for _ in range(3):
        # Of a writer that died before it had anything to keep.
        left = again.stage(new_header("u", created_at=0))
        left.abandon = None  # type: ignore[attr-defined]
        left.release()
    for each in Path(f"{tmp_path}/x.db.d/locks/++new").iterdir():
        os.utime(each, (0, 0))
    again.stage(new_header("t", created_at=0)).release()
    assert list(Path(f"{tmp_path}/x.db.d/locks/++new").iterdir()) == []
    assert sql(tmp_path / "x.db", "SELECT count(*) FROM sessions") == [(0,)]
    assert sql(tmp_path / "x.db", "SELECT count(*) FROM blob_parts") == [(0,)]


def test_a_purged_session_gives_its_room_back(path: Path) -> None:
    """When the trash is emptied, no row of it is left, and the file is smaller."""
    with perdure.open(f"sqlite:{path}") as store:
        with store.create("big") as session:
            session.append("x", "y" * 5_000_000)
            session.put_blob(b"z" * 3_000_000)
        store.delete("big")
    large = path.stat().st_size
    with perdure.open(f"sqlite:{path}") as store:
        store.empty_trash()
    assert path.stat().st_size < large - 7_000_000
    for table in ("records", "blobs", "blob_parts", "asides", "aside_parts"):
        assert sql(path, f"SELECT count(*) FROM {table} WHERE session > 2") == [(0,)]  # noqa: S608
    assert sorted(each.name for each in Path(f"{path}.d/locks").iterdir()) == ["+team", "a"]


# --- bundles ------------------------------------------------------------------------------------


def test_large_content_of_a_bundle_stands_beside_it(tmp_path: Path) -> None:
    """Small content is in the file, large content in a folder, under its hash, once for all."""
    path = tmp_path / "work.perdure"
    large, small = b"L" * (ARTIFACT_BYTES + 1), b"S" * ARTIFACT_BYTES
    digests: list[str] = []
    with perdure.open(path) as store:
        for id in ("one", "two"):
            with store.create(id) as session:
                digests = [session.put_blob(value) for value in (large, small)]
                session.append("x", digests)
        folder = tmp_path / "work.artifacts"
        assert [each.name for each in folder.iterdir()] == [digests[0]]
        assert (folder / digests[0]).read_bytes() == large
        assert store.blob("one", digests[1]) == small
        store.delete("one")
        store.empty_trash()
        assert store.blob("two", digests[0]) == large
        store.delete("two")
        store.empty_trash()
        assert list(folder.iterdir()) == []


def test_a_bundle_without_its_artifacts_says_so(tmp_path: Path) -> None:
    """Events of a bundle that was sent without its folder are all there; its content is missed."""
    path = tmp_path / "work.perdure"
    with perdure.open(path) as store, store.create("s") as session:
        digest = session.put_blob(b"L" * (ARTIFACT_BYTES + 1))
        session.append("x", digest)
    shutil.rmtree(tmp_path / "work.artifacts")
    with perdure.open(path) as store:
        report = store.verify("s")
        assert (report.status, report.events, report.sound) == ("ok", 1, False)
        assert report.content is not None
        assert report.content.damaged == (digest,)
        with pytest.raises(ContentExpired):
            store.blob("s", digest)
        store.repair("s")
        assert store.verify("s").sound
        assert isinstance(store._backend, BundleBackend)


def test_bundles_do_not_share_artifacts(tmp_path: Path) -> None:
    """Each bundle has a folder of its own, and takes nothing out of it but its own content."""
    content = b"L" * (ARTIFACT_BYTES + 1)
    for name in ("work", "work.db", ".perdure", "work.perdure/"):
        with pytest.raises(InvalidValue):
            open_backend(f"bundle:{tmp_path / name}{'/' if name.endswith('/') else ''}")
    stores = [perdure.open(f"bundle:{tmp_path}/{name}") for name in ("a.perdure", "b.perdure")]
    for store in stores:
        with store.create("s") as session:
            session.append("x", session.put_blob(content))
    (tmp_path / "a.artifacts" / "README").write_text("of the user")
    stores[0].delete("s")
    stores[0].empty_trash()
    assert [each.name for each in (tmp_path / "a.artifacts").iterdir()] == ["README"]
    assert stores[1].verify("s").sound
    for store in stores:
        store.close()


def test_content_beside_a_bundle_is_checked(tmp_path: Path) -> None:
    """Content that was edited in its folder is damage, and a link there is not followed."""
    path = tmp_path / "work.perdure"
    with perdure.open(path) as store, store.create("s") as session:
        digest = session.put_blob(b"L" * (ARTIFACT_BYTES + 1))
        session.append("x", digest)
    beside = tmp_path / "work.artifacts" / digest
    beside.write_bytes(b"edited")
    with perdure.open(path) as store:
        report = store.verify("s")
        assert report.content is not None
        assert list(report.content.damaged) == [digest]
        beside.unlink()
        beside.symlink_to("/etc/hostname")
        with pytest.raises(UnsafeFile):
            store.blob("s", digest)


# --- what a damaged file says of itself -----------------------------------------------------------


def test_an_index_that_is_out_of_order_is_told(tmp_path: Path) -> None:
    """A listing ends, and says what is wrong, where an index leads back to where it came from."""
    place = tmp_path / "store.db"
    with perdure.open(f"sqlite:{place}") as store, store.create("s") as session:
        digests = sorted(session.put_blob(b"content %d" % number) for number in range(3))
        session.append("x", digests)
    sound = place.read_bytes()
    said = []
    for digest in digests:
        at = sound.find(digest.encode())
        while at >= 0:
            for first in (b"0", b"f"):
                place.write_bytes(sound[:at] + first * 4 + sound[at + 4 :])
                with perdure.open(f"sqlite:{place}") as store:
                    report = store.verify("s")
                assert report.content is not None
                said.append(report.content.unreadable or "")
            at = sound.find(digest.encode(), at + 1)
    assert any("not in the order of their index" in each for each in said)


def test_an_operation_without_end_is_ended(tmp_path: Path) -> None:
    """A statement that goes on for ever is damage of the file; the next one may take its time."""
    connection = apsw.Connection(str(tmp_path / "file"))
    configure(connection, 0)
    count = (
        "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT ?)"
        " SELECT count(*) FROM c"
    )
    for _ in range(2):
        with pytest.raises(apsw.InterruptError) as ended:
            connection.execute(count, (-1,)).fetchall()
        told = meaning(ended.value, 0, "file", 0)
        assert isinstance(told, Nonsense)
        assert "circles" in str(told)
        renew(connection)
        assert connection.execute(count, (100_000,)).fetchall() == [(100_000,)]
        renew(connection)
    connection.close()


def test_a_file_in_the_root_has_one_slash() -> None:
    """A file directly below the root of the file system is named as everybody names it."""
    assert resolved("/", "store.db") == "/store.db"
    assert repr(open_backend("sqlite:///store.db")) == repr(open_backend("sqlite:////store.db"))
    assert "//store.db" not in repr(open_backend("sqlite:////store.db"))
