"""Evidence: what was known survives kills, forks, other writers, damage and foreign files."""

import errno
import itertools
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.databases import opening
from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    PerdureError,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.evidence import Acceptance, Damage, Deleted, Evidence, Seen, database
from perdure.evidence.database import APPLICATION_ID, FORMAT, Database
from perdure.evidence.rows import MemoryRows, Rows, Table
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.testing.crash import crash_points
from tests.support import scaled

NAME = "evidence.sqlite"
JOURNAL = f"{NAME}-journal"
DIGEST, OTHER = "ab" * 32, "cd" * 32
SQLITE_HEADER_TEXT = b"SQLite format 3\0"


def at(seq: int, link: str = "12" * 32) -> Position:
    return Position(seq, link)


def known(session: str = "s", seq: int = 0, digest: str = DIGEST, seen_at: int = 1000) -> Seen:
    return Seen(session, digest, at(seq), seen_at)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root folder of a store."""
    folder = tmp_path / "root"
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def kept(root: Path) -> Evidence:
    """Evidence in a file that knows one session."""
    evidence = Evidence(str(root))
    evidence.note([("", known("first", 7))])
    return evidence


@pytest.fixture(params=["file", "memory"])
def evidence(request: pytest.FixtureRequest, root: Path) -> Evidence:
    """Evidence of either form, empty."""
    return Evidence(str(root) if request.param == "file" else None)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


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
from perdure.errors import *
from perdure.evidence import *
from perdure.model.record import Position

def known(session, seq):
    return Seen(session, "ab" * 32, Position(seq, "12" * 32), 1000)

root = sys.argv[1]
evidence = Evidence(root)
"""


# --- what is kept -------------------------------------------------------------------------------


def test_nothing_is_known_at_first(evidence: Evidence, root: Path) -> None:
    """Readers of a store without evidence know nothing and create nothing."""
    assert evidence.known("", "s") == []
    assert evidence.everything_known("") == []
    assert evidence.deleted("", "s") is None
    assert evidence.all_deleted("") == []
    assert evidence.reports("") == []
    assert evidence.acceptances("", "s") == []
    assert evidence.unreadable is None
    assert list(evidence.set_aside) == []
    assert contents(root) == {}


def test_without_a_file_one_call_tells(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no file, a reader opens nothing at all."""
    monkeypatch.delattr(Folder, "open")
    assert Evidence(str(root)).known("", "s") == []


def test_readers_need_no_root(tmp_path: Path) -> None:
    """Before the store was created there is nothing known, and nothing to remove."""
    evidence = Evidence(str(tmp_path / "none"))
    assert evidence.everything_known("") == []
    assert list(evidence.set_aside) == []
    evidence.forget("", "s")
    with pytest.raises(StorageUnavailable):
        evidence.note([("", known())])
    assert list(tmp_path.iterdir()) == []


def test_removing_what_is_not_there_creates_nothing(evidence: Evidence, root: Path) -> None:
    """Only a fact makes the file; removing or noting nothing does not."""
    evidence.note([])
    evidence.unbury("", "s")
    evidence.clear_report("", "s")
    evidence.forget("", "s")
    assert contents(root) == {}


@pytest.mark.parametrize("text", ["", "a", "\ud800", "\ud800\udc00", "\U00010000", "Ä\0\n/…", "é"])
def test_what_goes_in_comes_out(evidence: Evidence, text: str) -> None:
    """Ids, namespaces and reasons are any text, and the largest numbers are exact."""
    position = Seen(text, DIGEST, Position(2**53, OTHER), -(2**53) + 1)
    evidence.note([(text, position)])
    evidence.bury(text, Deleted(text, None, 2**53 - 1))
    evidence.report(text, Damage(text, text, None, text, 0))
    accepted = Acceptance(text, OTHER, Position(-1, DIGEST), None, 3)
    assert evidence.known(text, text) == evidence.everything_known(text) == [position]
    assert evidence.deleted(text, text) == Deleted(text, None, 2**53 - 1)
    assert evidence.all_deleted(text) == [Deleted(text, None, 2**53 - 1)]
    assert evidence.reports(text) == [Damage(text, text, None, text, 0)]
    evidence.accept(text, accepted)
    assert evidence.acceptances(text, text) == [accepted]


def test_texts_that_look_alike_are_different(evidence: Evidence) -> None:
    """Two ids or namespaces never share a row."""
    texts = ["", "s", "S", "s\0", "\ud800\udc00", "\U00010000", "é", "e\u0301"]
    pairs = list(itertools.product(texts, texts))
    evidence.note([(one, known(two, number)) for number, (one, two) in enumerate(pairs)])
    for number, (one, two) in enumerate(pairs):
        assert evidence.known(one, two) == [known(two, number)]
    assert [each.session for each in evidence.everything_known("s")] == sorted(texts)


def test_namespaces_see_their_own(evidence: Evidence) -> None:
    """What one namespace knows, removes and forgets is nothing to another."""
    for namespace in ("", "a"):
        evidence.note([(namespace, known())])
        evidence.bury(namespace, Deleted("s", DIGEST, 1))
        evidence.report(namespace, Damage("s", "record", 1, "broken", 1))
    evidence.forget("a", "s")
    assert not evidence.everything_known("a")
    assert not evidence.all_deleted("a")
    assert not evidence.reports("a")
    assert evidence.everything_known("") == [known()]
    assert evidence.all_deleted("") == [Deleted("s", DIGEST, 1)]
    assert evidence.reports("") == [Damage("s", "record", 1, "broken", 1)]


def test_a_position_never_moves_back(evidence: Evidence) -> None:
    """Noting an older position of the same log, or another one of the same event, does nothing."""
    evidence.note([("", known(seq=5, seen_at=1))])
    evidence.note([("", known(seq=4, seen_at=2))])
    evidence.note([("", Seen("s", DIGEST, at(5, OTHER), 3))])
    evidence.note([("", known(seq=5, seen_at=4))])
    assert evidence.known("", "s") == [known(seq=5, seen_at=1)]
    evidence.note([("", known(seq=6, seen_at=0))])
    assert evidence.known("", "s") == [known(seq=6, seen_at=0)]


def test_one_call_may_name_a_log_twice(evidence: Evidence) -> None:
    """Within one call the furthest position counts, in whatever order."""
    evidence.note(iter([("", known(seq=2)), ("", known(seq=9)), ("", known(seq=3))]))
    assert evidence.known("", "s") == [known(seq=9)]


def test_logs_of_one_id_are_told_apart(evidence: Evidence) -> None:
    """A session that took the id of another has a position of its own, by its header."""
    evidence.note([("", known(seq=9)), ("", known(seq=1, digest=OTHER))])
    assert evidence.known("", "s") == [known(seq=9), known(seq=1, digest=OTHER)]


def test_many_sessions_are_noted_at_once(evidence: Evidence) -> None:
    """A thousand sessions fit into one call."""
    entries = [("", known(f"s{number:04}", number)) for number in range(1000)]
    evidence.note(entries)
    assert evidence.everything_known("") == [each for _namespace, each in entries]


def test_replacing_moves_back(evidence: Evidence) -> None:
    """What replaces is the only position known of the id afterwards."""
    evidence.note([("", known(seq=9)), ("", known(seq=3, digest=OTHER)), ("", known("t"))])
    evidence.replace("", known(seq=2))
    assert evidence.known("", "s") == [known(seq=2)]
    assert evidence.known("", "t") == [known("t")]


def test_tombstones_are_set_and_removed(evidence: Evidence) -> None:
    """The last tombstone of an id counts, until it is removed; the position stays known."""
    evidence.note([("", known())])
    evidence.bury("", Deleted("s", None, 1))
    evidence.bury("", Deleted("s", DIGEST, 2))
    assert evidence.all_deleted("") == [Deleted("s", DIGEST, 2)]
    assert evidence.known("", "s") == [known()]
    evidence.unbury("", "s")
    assert evidence.deleted("", "s") is None


def test_the_first_report_stands(evidence: Evidence) -> None:
    """Reports of one kind at one record are one, with the time at which it was first noticed."""
    first, elsewhere = Damage("s", "record", 4, "bad", 1), Damage("s", "record", 9, "bad", 2)
    whole, neighbour = Damage("s", "header", None, "gone", 3), Damage("t", "record", 0, "bad", 4)
    for each in (first, elsewhere, whole, neighbour, first._replace(reason="worse", reported_at=9)):
        evidence.report("", each)
    assert evidence.reports("") == [whole, first, elsewhere, neighbour]
    assert evidence.reports("", "t") == [neighbour]
    evidence.clear_report("", "s")
    assert evidence.reports("") == [neighbour]


def test_accepting_is_one_step(evidence: Evidence) -> None:
    """An accepted log is the only one known, its reports are cleared, and the decision is kept."""
    evidence.note([("", known(seq=9)), ("", known(seq=3, digest=OTHER))])
    evidence.report("", Damage("s", "tail", 9, "missing", 1))
    first = Acceptance("s", OTHER, at(2), at(9), 50)
    second = Acceptance("s", DIGEST, at(1), None, 50)
    evidence.accept("", first)
    assert evidence.known("", "s") == [Seen("s", OTHER, at(2), 50)]
    assert evidence.reports("") == []
    evidence.accept("", second)
    assert evidence.acceptances("", "s") == [first, second]


def test_forgetting_all_leaves_nothing(evidence: Evidence) -> None:
    """Where the store is gone nothing counts any more: no namespace, no decision, no tombstone."""
    for space in ("", "a/b"):
        evidence.accept(space, Acceptance("s", DIGEST, at(2), at(9), 50))
        evidence.bury(space, Deleted("s", DIGEST, 2))
        evidence.report(space, Damage("s", "record", 4, "bad", 1))
        evidence.note([(space, known("t"))])
    evidence.forget_all()
    for space in ("", "a/b"):
        assert evidence.everything_known(space) == []
        assert evidence.all_deleted(space) == []
        assert evidence.reports(space) == []
        assert evidence.acceptances(space, "s") == []
    # Forgetting left no mark that keeps what is seen now from being noted.
    evidence.note([("", known("t"))])
    assert evidence.everything_known("") == [known("t")]


def test_forgetting_keeps_decisions(evidence: Evidence) -> None:
    """A forgotten id is unknown, not deleted and not damaged; what people decided stays."""
    accepted = Acceptance("s", DIGEST, at(2), at(9), 50)
    evidence.accept("", accepted)
    evidence.bury("", Deleted("s", DIGEST, 2))
    evidence.report("", Damage("s", "record", 4, "bad", 1))
    evidence.note([("", known("t"))])
    evidence.forget("", "s")
    assert evidence.everything_known("") == [known("t")]
    assert evidence.deleted("", "s") is None
    assert evidence.reports("") == []
    assert evidence.acceptances("", "s") == [accepted]


@pytest.mark.parametrize(
    "call",
    [
        lambda evidence: evidence.note([("", known()), ("", known(digest="AB" * 32))]),
        lambda evidence: evidence.note([("", known()), ("", known(seq=2**53 + 1))]),
        lambda evidence: evidence.note([("", known()), ("", known(seq=-2))]),
        lambda evidence: evidence.note([("", known()), ("", known(seen_at=2**53))]),
        lambda evidence: evidence.replace("", Seen("s", DIGEST, Position(0, "12"), 0)),
        lambda evidence: evidence.bury("", Deleted("s", f"{DIGEST}\n", 0)),
        lambda evidence: evidence.report("", Damage("s", "record", -1, "bad", 0)),
        lambda evidence: evidence.accept("", Acceptance("s", DIGEST, at(0), at(0, ""), 0)),
    ],
)
def test_what_is_no_fact_is_refused(
    evidence: Evidence, root: Path, call: Callable[[Evidence], None]
) -> None:
    """A hash or a number that is none is refused by name, and nothing of the call is kept."""
    with pytest.raises(InvalidValue):
        call(evidence)
    assert evidence.everything_known("") == []
    assert contents(root) == {}


def test_threads_share_one_object(evidence: Evidence) -> None:
    """Threads may call the same object at once, and nothing is lost."""

    def work(name: str) -> None:
        for seq in range(20):
            evidence.note([("", known(name, seq))])
            evidence.known("", name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert evidence.everything_known("") == [known(name, 19) for name in "abcd"]


# --- both forms are one -------------------------------------------------------------------------

_texts = st.sampled_from(["", "a", "b", "\ud800"])
_hashes = st.sampled_from([DIGEST, OTHER])
_positions = st.builds(Position, st.integers(-1, 4), _hashes)
_times = st.integers(0, 3)
_knowns = st.builds(Seen, _texts, _hashes, _positions, _times)
_records = st.none() | st.integers(0, 2)
_calls = st.one_of(
    st.tuples(st.just("note"), st.lists(st.tuples(_texts, _knowns), max_size=4)),
    st.tuples(st.just("replace"), _texts, _knowns),
    st.tuples(st.just("bury"), _texts, st.builds(Deleted, _texts, st.none() | _hashes, _times)),
    st.tuples(
        st.just("report"), _texts, st.builds(Damage, _texts, _texts, _records, _texts, _times)
    ),
    st.tuples(
        st.just("accept"),
        _texts,
        st.builds(Acceptance, _texts, _hashes, _positions, st.none() | _positions, _times),
    ),
    st.tuples(st.sampled_from(["unbury", "clear_report", "forget"]), _texts, _texts),
)


def everything(evidence: Evidence) -> list[Any]:
    """All answers that evidence gives."""
    answers: list[Any] = []
    for one in ("", "a", "b", "\ud800"):
        answers += [
            evidence.everything_known(one),
            evidence.all_deleted(one),
            evidence.reports(one),
        ]
        for two in ("", "a", "b", "\ud800"):
            answers += [evidence.known(one, two), evidence.deleted(one, two)]
            answers += [evidence.acceptances(one, two), evidence.reports(one, two)]
    return answers


@pytest.mark.proof
@settings(max_examples=scaled(300))
@given(calls=st.lists(_calls, max_size=12))
def test_the_file_behaves_as_memory_does(calls: list[tuple[Any, ...]]) -> None:
    """Whatever is called, a file gives the answers that memory gives."""
    memory = Evidence(None)
    with tempfile.TemporaryDirectory() as folder:
        for name, *arguments in calls:
            getattr(memory, name)(*arguments)
            getattr(Evidence(folder), name)(*arguments)
        assert everything(Evidence(folder)) == everything(memory)


_TABLE = Table("t", ("a BLOB", "b INTEGER", "c BLOB"), key=2)


@given(
    steps=st.lists(
        st.tuples(st.booleans(), st.sampled_from([b"", b"a", b"ab", b"b"]), st.integers(-1, 2))
    )
)
def test_rows_in_memory_are_sorted(steps: list[tuple[bool, bytes, int]]) -> None:
    """Rows in memory are found by any beginning of their key, in the order of their keys."""
    rows, model = MemoryRows(), dict[tuple[bytes, int], bytes]()
    for number, (adding, one, two) in enumerate(steps):
        if adding:
            rows.put(_TABLE, [(one, two, b"%d" % number)])
            model[one, two] = b"%d" % number
        else:
            rows.drop(_TABLE, one)
            model = {key: value for key, value in model.items() if key[0] != one}
    expected = [(*key, value) for key, value in sorted(model.items())]
    assert rows.scan(_TABLE) == expected
    assert rows.scan(_TABLE, b"a") == [row for row in expected if row[0] == b"a"]
    assert rows.scan(_TABLE, b"a", 0) == [row for row in expected if row[:2] == (b"a", 0)]


# --- the file -----------------------------------------------------------------------------------


def test_files_are_private_whatever_the_umask(root: Path) -> None:
    """The file and its journal are open to nobody else, even if the user's habits say so."""
    before = os.umask(0)
    try:
        Evidence(str(root)).note([("", known())])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in root.iterdir()}
    assert modes == {NAME: 0o600, JOURNAL: 0o600}


def test_the_file_says_what_it_is(kept: Evidence, root: Path) -> None:
    """Application id, version and strict tables with the namespace first can be read by hand."""
    assert kept.unreadable is None
    connection = apsw.Connection(str(root / NAME), flags=apsw.SQLITE_OPEN_READONLY)
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == FORMAT
    found = connection.execute("SELECT name, sql FROM sqlite_schema")
    tables = {str(name): str(sql) for name, sql in found}
    assert set(tables) == {"position", "deletion", "damage", "acceptance"}
    for name, sql in tables.items():
        assert sql.startswith(f"CREATE TABLE {name} (namespace BLOB, session BLOB, ")
        assert sql.endswith("STRICT, WITHOUT ROWID")
        assert "PRIMARY KEY (namespace, session" in sql
    connection.close()


def test_readers_leave_everything_as_it_is(kept: Evidence, root: Path) -> None:
    """Reading changes no byte, creates no file and needs no journal."""
    (root / JOURNAL).unlink()
    before = contents(root)
    assert kept.known("", "first") == [known("first", 7)]
    everything(kept)
    assert contents(root) == before


def test_noting_the_same_again_writes_nothing(kept: Evidence, root: Path) -> None:
    """What is known already costs no write and no sync."""
    before = (root / NAME).stat().st_mtime_ns, contents(root)
    kept.note([("", known("first", 7)), ("", known("first", 6))])
    assert ((root / NAME).stat().st_mtime_ns, contents(root)) == before


def test_a_copied_root_knows_the_same(kept: Evidence, root: Path, tmp_path: Path) -> None:
    """A copy of the root, and the root under another name, have the same evidence."""
    kept.note([("a", known())])
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    root.rename(tmp_path / "moved")
    for place in (copy, tmp_path / "moved"):
        evidence = Evidence(str(place))
        assert evidence.known("", "first") == [known("first", 7)]
        evidence.note([("a", known(seq=1))])
        assert evidence.known("a", "s") == [known(seq=1)]


def test_links_above_the_root_are_followed(kept: Evidence, root: Path, tmp_path: Path) -> None:
    """A root below a link is opened: only the root itself and what it holds may be none."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    evidence = Evidence(str(link / root.name))
    evidence.note([("", known("first", 8))])
    assert kept.known("", "first") == [known("first", 8)]
    (tmp_path / "other").symlink_to(root)
    with pytest.raises(UnsafeFile):
        Evidence(str(tmp_path / "other")).known("", "first")


@pytest.mark.parametrize(("name", "reason"), [("\udcff", "UTF-8"), ("x" * 250, "bytes")])
def test_a_path_that_sqlite_cannot_take_is_told(tmp_path: Path, name: str, reason: str) -> None:
    """Where SQLite cannot follow nothing is known, nothing is made, and a writer hears why."""
    root = os.path.join(tmp_path, name, name)
    os.makedirs(root, 0o700)
    evidence = Evidence(root)
    with pytest.raises(StorageUnavailable, match=reason):
        evidence.note([("", known())])
    assert evidence.known("", "s") == []
    assert os.listdir(root) == []


def test_the_longest_path_is_used(tmp_path: Path) -> None:
    """A path of the greatest length that is promised holds evidence."""
    left = opening.PATH_BYTES_MAX - len(os.fsencode(f"{tmp_path}/{NAME}"))
    one, two = left // 2, left - left // 2
    root = os.path.join(tmp_path, "x" * (one - 1), "x" * (two - 1))
    os.makedirs(root, 0o700)
    os.chmod(root, 0o700)
    evidence = Evidence(root)
    evidence.note([("", known())])
    assert evidence.known("", "s") == [known()]


# --- unsafe and foreign files -------------------------------------------------------------------


def _symlink(path: Path, target: Path) -> None:
    path.symlink_to(target)


def _hard_link(path: Path, target: Path) -> None:
    path.hardlink_to(target)


def _open_to_others(path: Path, target: Path) -> None:
    shutil.copy(target, path)
    path.chmod(0o640)


def _fifo(path: Path, target: Path) -> None:
    del target
    os.mkfifo(path, 0o600)


def _folder(path: Path, target: Path) -> None:
    del target
    path.mkdir(0o700)


@pytest.mark.parametrize("name", [NAME, JOURNAL, f"{NAME}-wal", f"{NAME}-shm"])
@pytest.mark.parametrize("plant", [_symlink, _hard_link, _open_to_others, _fifo, _folder])
def test_unsafe_files_are_not_opened(
    kept: Evidence, root: Path, tmp_path: Path, name: str, plant: Callable[[Path, Path], None]
) -> None:
    """A link, another kind of file or one that others may read is refused, and left alone."""
    target = tmp_path / "target"
    shutil.copy(root / NAME, target)
    (root / name).unlink(missing_ok=True)
    plant(root / name, target)
    before = contents(root), target.read_bytes()
    for call in (
        lambda: kept.known("", "first"),
        lambda: kept.note([("", known("first", 8))]),
        lambda: kept.forget("", "first"),
    ):
        with pytest.raises(UnsafeFile) as refused:
            call()
        assert refused.value.path == str(root / name)
    assert (contents(root), target.read_bytes()) == before


def test_files_of_other_users_are_not_opened(kept: Evidence, root: Path) -> None:
    """A file of another owner is refused."""
    del kept

    class Stranger(Runtime):
        def uid(self) -> int:
            return os.geteuid() + 1

    with pytest.raises(UnsafeFile, match="belongs to"):
        Evidence(str(root), runtime=Stranger()).known("", "first")


def test_a_file_that_is_exchanged_is_not_used(
    kept: Evidence, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at a file and its opening it may be exchanged, which is noticed."""
    connect = apsw.Connection

    def exchange(*arguments: Any, **options: Any) -> apsw.Connection:
        shutil.copy(root / NAME, root / "copy")
        (root / "copy").replace(root / NAME)
        return connect(*arguments, **options)

    monkeypatch.setattr(apsw, "Connection", exchange)
    assert kept.known("", "first") == []
    assert kept.unreadable is not None
    with pytest.raises(StorageUnavailable) as told:
        kept.note([("", known("first", 8))])
    assert told.value.retryable
    monkeypatch.undo()
    assert kept.known("", "first") == [known("first", 7)]


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
        ((f"PRAGMA user_version = {FORMAT}",), UnsafeFile),
        (("PRAGMA application_id = 7", "PRAGMA journal_mode = WAL"), UnsafeFile),
        (
            (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {FORMAT + 1}"),
            FormatUnsupported,
        ),
        (
            (
                f"PRAGMA application_id = {APPLICATION_ID}",
                "PRAGMA user_version = -1",
                "PRAGMA journal_mode = WAL",
            ),
            FormatUnsupported,
        ),
    ],
)
def test_files_that_are_not_ours_stay_as_they_are(
    root: Path, statements: tuple[str, ...], error: type[PerdureError]
) -> None:
    """The database of another program or version is refused with a hint, and no byte changes."""
    make_database(root / NAME, *statements)
    before = contents(root)
    evidence = Evidence(str(root))
    for call in (lambda: evidence.known("", "s"), lambda: evidence.note([("", known())])):
        with pytest.raises(error) as refused:
            call()
        assert refused.value.hint
    assert contents(root) == before


def test_files_in_wal_mode_are_left_to_writers(kept: Evidence, root: Path) -> None:
    """A reader creates no WAL files for one who switched the mode; the next writer ends it."""
    connection = apsw.Connection(str(root / NAME))
    assert connection.pragma("journal_mode", "wal") == "wal"
    connection.close()
    before = contents(root)
    assert kept.known("", "first") == []
    assert "WAL" in str(kept.unreadable)
    assert contents(root) == before
    kept.note([("", known())])
    assert kept.known("", "first") == [known("first", 7)]
    assert kept.unreadable is None
    assert set(contents(root)) == {NAME, JOURNAL}


def test_hooks_of_the_application_do_no_harm(
    kept: Evidence, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application may prepare every connection of the process in its own way."""

    def prepare(connection: apsw.Connection) -> None:
        if not connection.readonly("main"):
            connection.pragma("journal_mode", "wal")
            connection.pragma("synchronous", "off")

    monkeypatch.setattr(apsw, "connection_hooks", [prepare])
    kept.note([("", known())])
    assert kept.known("", "s") == [known()]
    assert set(contents(root)) == {NAME, JOURNAL}


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"xy", b"no database at all " * 50, SQLITE_HEADER_TEXT, b"\0" * 8192]
)
def test_a_damaged_file_is_set_aside(root: Path, data: bytes) -> None:
    """Readers say that it is damaged; a writer keeps its bytes aside and begins a new one."""
    (root / NAME).write_bytes(data)
    (root / NAME).chmod(0o600)
    evidence = Evidence(str(root))
    assert evidence.known("", "s") == []
    assert "damaged" in str(evidence.unreadable)
    assert contents(root) == {NAME: data}
    evidence.note([("", known())])
    assert evidence.known("", "s") == [known()]
    assert evidence.unreadable is None
    (aside,) = evidence.set_aside
    assert Path(aside).read_bytes() == data
    assert Path(aside).name.startswith(f"{NAME}.damaged-")


def test_damaged_files_do_not_displace_each_other(root: Path) -> None:
    """Two files that are set aside within one millisecond are both kept, journals included."""

    class Stopped(Runtime):
        def now_ms(self) -> int:
            return 5000

    evidence = Evidence(str(root), runtime=Stopped())
    for data in (b"one", b"two"):
        (root / NAME).write_bytes(data)
        (root / NAME).chmod(0o600)
        (root / JOURNAL).write_bytes(b"\0" + data)
        (root / JOURNAL).chmod(0o600)
        evidence.note([("", known())])
    assert [Path(path).read_bytes() for path in evidence.set_aside] == [b"one", b"two"]
    assert (root / f"{NAME}.damaged-5000-journal").read_bytes() == b"\0one"
    assert (root / f"{NAME}.damaged-5001-journal").read_bytes() == b"\0two"


def test_a_flipped_bit_accuses_nobody(kept: Evidence, root: Path) -> None:
    """SQLite does not notice a changed hash; the checksum of the row does."""
    data = (root / NAME).read_bytes()
    assert data.count(bytes.fromhex(at(7).hash)) == 1
    (root / NAME).write_bytes(data.replace(b"\x12" * 32, b"\x12" * 31 + b"\x13"))
    assert kept.known("", "first") == []
    assert "checksum" in str(kept.unreadable)
    kept.note([("", known("first", 3))])
    assert kept.known("", "first") == [known("first", 3)]
    assert len(kept.set_aside) == 1


def test_damage_that_only_readers_meet_is_set_aside(kept: Evidence, root: Path) -> None:
    """When a reader met damage, the next writer acts on it even if it touches another table."""
    data = (root / NAME).read_bytes()
    (root / NAME).write_bytes(data.replace(b"\x12" * 32, b"\x12" * 31 + b"\x13"))
    kept.bury("", Deleted("s", None, 1))
    assert list(kept.set_aside) == []
    assert kept.known("", "first") == []
    kept.bury("", Deleted("t", None, 1))
    assert len(kept.set_aside) == 1
    assert kept.all_deleted("") == [Deleted("t", None, 1)]


def test_another_table_is_damage(kept: Evidence, root: Path) -> None:
    """A file with our id and other tables is no evidence."""
    connection = apsw.Connection(str(root / NAME))
    connection.execute("DROP TABLE damage; CREATE TABLE damage (a)")
    connection.close()
    assert kept.reports("") == []
    assert "damage" in str(kept.unreadable)
    kept.report("", Damage("s", "record", 4, "bad", 1))
    assert kept.reports("") == [Damage("s", "record", 4, "bad", 1)]


@pytest.mark.proof
def test_damaged_bytes_never_lie(root: Path, rng: random.Random) -> None:
    """Whatever becomes of the bytes, no untrue answer is given and no foreign error escapes."""
    evidence = Evidence(str(root))
    truth = [known(f"s{number:03}" * 9, number) for number in range(60)]
    evidence.note([("", each) for each in truth])
    tombstones = [Deleted(f"s{number:03}" * 9, OTHER, number) for number in range(60)]
    for each in tombstones:
        evidence.bury("", each)
    sound = (root / NAME).read_bytes()
    for _ in range(scaled(3000)):
        shutil.rmtree(root)
        root.mkdir(0o700)
        (root / NAME).touch(0o600)
        (root / NAME).write_bytes(broken(sound, rng))
        try:
            assert set(evidence.everything_known("")) <= set(truth)
            assert set(evidence.all_deleted("")) <= set(tombstones)
            assert set(evidence.known("", truth[7].session)) <= {truth[7]}
            evidence.note([("", known("new", 1)), ("", truth[7])])
            if not evidence.known("", "new"):
                assert evidence.unreadable  # a reader met what the writer did not
                evidence.note([("", known("new", 1)), ("", truth[7])])
            assert evidence.known("", "new") == [known("new", 1)]
        except (UnsafeFile, FormatUnsupported):
            continue  # the bytes that say whose file it is


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


# --- kills --------------------------------------------------------------------------------------

WRITING_ON = """
for seq in range(int(sys.argv[2]), 10**9):
    evidence.note([("", known(f"s{number}", seq)) for number in range(40)])
    print(seq, flush=True)
"""


def test_killed_writers_leave_whole_transactions(root: Path, rng: random.Random) -> None:
    """After a SIGKILL at any moment, each transaction is there whole or not at all."""
    evidence, seq = Evidence(str(root)), 0
    for _ in range(scaled(60)):
        with subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITING_ON, str(root), str(seq)],
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            for _line in range(rng.randrange(1, 40)):
                seq = int(writer.stdout.readline())
            writer.kill()
            seq = max([seq, *map(int, writer.stdout.read().split())])
        evidence.everything_known("")
        evidence.note([("", known("other", seq))])
        stand = {each.position.seq for each in evidence.everything_known("")[1:]}
        assert len(stand) == 1
        assert min(stand) >= seq
        seq = min(stand) + 1
        assert list(evidence.set_aside) == []


DYING_IN_A_COMMIT = """
connection = apsw.Connection(root + "/evidence.sqlite")
connection.pragma("journal_mode", "truncate")
connection.pragma("cache_size", 1)
connection.execute("BEGIN IMMEDIATE; DELETE FROM position")
for number in range(2000):
    row = (b"%d" % number, bytes(100))
    connection.execute("INSERT INTO position VALUES (x'', ?, ?, 1, x'', 1, 1)", row)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_dead_writer_left_is_rolled_back_by_a_writer(kept: Evidence, root: Path) -> None:
    """A reader cannot undo half a commit, touches nothing and says so; the next writer does it."""
    assert child(DYING_IN_A_COMMIT, root).returncode == -9
    before = contents(root)
    assert before[JOURNAL]
    assert kept.known("", "first") == []
    assert "rolls back" in str(kept.unreadable)
    assert contents(root) == before
    kept.note([("", known("second"))])
    assert kept.everything_known("") == [known("first", 7), known("second")]
    assert kept.unreadable is None
    assert list(kept.set_aside) == []


DYING_AT_A_POINT = """
from perdure.durable import crash

def hook(name, left=[int(sys.argv[3])]):
    if name == sys.argv[2]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

crash.arm(hook=hook)
evidence.note([("", known("first", 8))])
print("acknowledged", flush=True)
"""


def _points(root: Path) -> list[tuple[str, int]]:
    """The crash points on the way of a first write, and the how-manieth visit of each."""
    visits: list[str] = []
    crash.arm(hook=visits.append)
    try:
        Evidence(str(root)).note([("", known())])
    finally:
        crash.arm()
    return [(name, visits[: place + 1].count(name)) for place, name in enumerate(visits)]


@pytest.mark.parametrize("damaged", [False, True], ids=["new", "damaged"])
def test_every_crash_point_leaves_a_usable_file(tmp_path: Path, *, damaged: bool) -> None:
    """Killed anywhere while a file is made or set aside, nothing is lost and all goes on."""
    sound = tmp_path / "sound"

    def fresh(root: Path) -> Path:
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(0o700)
        if damaged:
            (root / NAME).write_bytes(b"damaged")
            (root / NAME).chmod(0o600)
        return root

    points = _points(fresh(sound))
    assert {"evidence.begun", "evidence.changed", "evidence.committed"} <= {p for p, _ in points}
    assert {name for name, _ in points} <= {
        *crash_points(),
        *crash_points("perdure.evidence"),
    }
    for name, visit in points:
        root = fresh(tmp_path / "root")
        assert child(DYING_AT_A_POINT, root, name, visit).returncode == -9
        evidence = Evidence(str(root))
        stored = evidence.known("", "first")
        assert stored == ([known("first", 8)] if name == "evidence.committed" else [])
        evidence.note([("", known("second"))])
        assert evidence.known("", "second") == [known("second")]
        assert [Path(path).read_bytes() for path in evidence.set_aside] == [b"damaged"] * damaged
        assert set(contents(root)) - {Path(path).name for path in evidence.set_aside} == {
            NAME,
            JOURNAL,
        }


# --- several at once ----------------------------------------------------------------------------

WRITING_OWN = """
for seq in range(60):
    evidence.note([("", known(sys.argv[2], seq)), ("", known("shared", seq))])
    if not evidence.known("", sys.argv[2]):
        sys.exit(str(evidence.unreadable))
"""


def test_processes_write_at_once(root: Path) -> None:
    """Processes that write to one file lose nothing and never see it locked or damaged."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", PRELUDE + WRITING_OWN, str(root), name],
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    assert [(writer.communicate()[1], writer.returncode) for writer in writers] == [("", 0)] * 3
    evidence = Evidence(str(root))
    assert evidence.everything_known("") == [known(name, 59) for name in ("a", "b", "c", "shared")]
    assert list(evidence.set_aside) == []


def test_waiting_for_others_ends(
    kept: Evidence, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When others hold the file too long, a writer may try again and a reader says so."""
    monkeypatch.setattr(database, "_WRITER_WAIT_MS", 20)
    monkeypatch.setattr(database, "_READER_WAIT_MS", 20)
    connection = apsw.Connection(str(root / NAME))
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageUnavailable) as told:
        kept.note([("", known())])
    assert told.value.retryable
    assert kept.known("", "first") == []
    assert "used by others" in str(kept.unreadable)
    connection.execute("ROLLBACK")
    connection.close()
    kept.note([("", known())])
    assert kept.known("", "first") == [known("first", 7)]


TRYING_THE_LOCK = """
connection = apsw.Connection(root + "/evidence.sqlite")
try:
    connection.execute("BEGIN IMMEDIATE")
except apsw.BusyError:
    sys.exit(7)
"""


def test_nothing_drops_the_locks_of_a_writer(kept: Evidence, root: Path) -> None:
    """While a thread writes, whatever else the process asks leaves its locks in place."""
    answers: list[int] = []

    def change(_rows: Rows) -> None:
        other = Evidence(str(root))
        assert other.known("", "first") == [known("first", 7)]
        assert list(other.set_aside) == []
        answers.append(child(TRYING_THE_LOCK, root).returncode)

    Database(str(root), Runtime()).write(change)
    assert answers == [7]
    assert child(TRYING_THE_LOCK, root).returncode == 0
    del kept


def test_a_file_that_moves_under_a_writer_is_written_anew(kept: Evidence, root: Path) -> None:
    """A change that went to a file that is not there any more is made again where one looks."""
    visits: list[str] = []

    def hook(name: str) -> None:
        if name == "evidence.committed":
            visits.append(name)
            if len(visits) == 1:
                (root / NAME).rename(root / "elsewhere")

    crash.arm(hook=hook)
    try:
        kept.note([("", known())])
    finally:
        crash.arm()
    assert kept.everything_known("") == [known()]
    assert len(visits) == 2


# --- forks --------------------------------------------------------------------------------------

FORKING = """
import threading

stop = threading.Event()

def work(name):
    seq = 0
    while not stop.is_set():
        seq += 1
        evidence.note([("", known(name, seq))])
        evidence.everything_known("")

threads = [threading.Thread(target=work, args=(name,)) for name in ("a", "b")]
for thread in threads:
    thread.start()
for number in range(12):
    pid = os.fork()
    if pid == 0:
        try:
            evidence.note([("", known(f"child{number}", 1))])
            os._exit(0 if evidence.known("", f"child{number}") else 4)
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(3)
    assert os.waitpid(pid, 0)[1] == 0, number
stop.set()
for thread in threads:
    thread.join()
"""


def test_a_fork_divides_no_operation(root: Path) -> None:
    """A child that is forked while threads write uses the evidence as any other process does."""
    done = child(FORKING, root, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")
    evidence = Evidence(str(root))
    there = {each.session for each in evidence.everything_known("")}
    assert there == {"a", "b", *(f"child{number}" for number in range(12))}
    assert list(evidence.set_aside) == []


def test_evidence_in_memory_is_inherited() -> None:
    """A forked child has its own copy of what is kept in memory."""
    evidence = Evidence(None)
    evidence.note([("", known())])
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            evidence.note([("", known(seq=5))])
            code = 0 if evidence.known("", "s") == [known(seq=5)] else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert evidence.known("", "s") == [known()]


# --- media that refuse --------------------------------------------------------------------------

FULL = """
import resource
size = os.stat(root + "/evidence.sqlite").st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    evidence.note([("", known(f"s{number}", 1)) for number in range(2000)])
except StorageFull as error:
    assert error.retryable
    assert evidence.everything_known("") == [known("first", 7)], evidence.everything_known("")
    sys.exit(5)
"""


def test_a_full_disk_is_told(kept: Evidence, root: Path) -> None:
    """What does not fit is refused as a whole, what was known stays, and later it fits."""
    done = child(FULL, root)
    assert (done.returncode, done.stderr) == (5, "")
    kept.note([("", known("second"))])
    assert kept.everything_known("") == [known("first", 7), known("second")]


def test_a_limit_of_the_database_is_told(kept: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that may not grow is full as well."""
    connect = apsw.Connection

    def limited(*arguments: Any, **options: Any) -> apsw.Connection:
        connection = connect(*arguments, **options)
        connection.pragma("max_page_count", 1)
        return connection

    monkeypatch.setattr(apsw, "Connection", limited)
    with pytest.raises(StorageFull):
        kept.note([("", known(f"s{number}", 1)) for number in range(2000)])
    monkeypatch.undo()
    assert kept.everything_known("") == [known("first", 7)]


READ_ONLY = """
os.chmod(root, 0o500)
if os.geteuid() == 0:  # for whom permissions are none
    os.chown(root, 65534, 65534)
    for name in os.listdir(root):
        os.chown(os.path.join(root, name), 65534, 65534)
    os.seteuid(65534)
before = os.listdir(root)
assert evidence.known("", "first") == [known("first", 7)], evidence.unreadable
for name in before:
    os.chmod(os.path.join(root, name), 0o400)
try:
    evidence.note([("", known("first", 8))])
except StorageUnavailable as error:
    assert not error.retryable
    assert evidence.known("", "first") == [known("first", 7)]
    assert os.listdir(root) == before
    sys.exit(5)
"""


@pytest.mark.parametrize("journal", [True, False])
def test_a_folder_that_cannot_be_written_is_read(*, journal: bool) -> None:
    """In a folder that is for reading only, readers read and writers are refused."""
    with tempfile.TemporaryDirectory() as folder:
        Evidence(folder).note([("", known("first", 7))])
        if not journal:
            (Path(folder) / JOURNAL).unlink()
        done = child(READ_ONLY, folder)
        Path(folder).chmod(0o700)
    assert (done.returncode, done.stderr) == (5, "")


@pytest.mark.parametrize("point", ["write.before", "move.before", "folder.sync"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_errors_of_the_system_are_translated(root: Path, point: str, code: int) -> None:
    """If the file cannot be made, the error is one of the tree, and later it is made."""

    def hook(name: str) -> None:
        if name == point:
            raise OSError(code, os.strerror(code))

    crash.arm(hook=hook)
    try:
        with pytest.raises((StorageUnavailable, StorageFull)):
            Evidence(str(root)).note([("", known())])
    finally:
        crash.arm()
    evidence = Evidence(str(root))
    assert evidence.known("", "s") == []
    evidence.note([("", known())])
    assert evidence.known("", "s") == [known()]
