"""What a store remembers beside its logs: lost, replaced and vanished logs are noticed by it."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    UnsafeFile,
)
from perdure.evidence import database
from perdure.runtime import Runtime
from perdure.store import Session, Store
from perdure.store.flusher import DELAY_SECONDS
from perdure.store.witness import EVIDENCE_DELAY_SECONDS
from perdure.testing.peers import Peer

NAME = "evidence.sqlite"
FULL, OLD = 6, 3


@pytest.fixture(params=["zst", "raw"])
def encoding(request: pytest.FixtureRequest) -> str:
    """Each encoding in turn."""
    name: str = request.param
    return name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(root: Path, encoding: str) -> Callable[[], Store]:
    """Opens the store, as another process would."""
    return lambda: perdure.open(root, encoding=encoding)


def place_of(root: Path, id: str = "s") -> Path:
    return root / "sessions" / id


def log_of(root: Path, id: str = "s") -> Path:
    return next(place_of(root, id).glob("log.jsonl*"))


def extend(opened: Callable[[], Store], count: int, id: str = "s") -> None:
    """Append events one by one, and let the store be closed in order."""
    with opened() as store:
        try:
            session = store.writer(id)
        except SessionNotFound:
            session = store.create(id)
        for _ in range(count):
            session.append("x", session.position.seq + 1)


def copied(source: Path, target: Path) -> Path:
    """A copy as `cp -a` makes it, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


@pytest.fixture
def rolled_back(root: Path, tmp_path: Path, opened: Callable[[], Store]) -> Path:
    """A session whose folder is an older copy of itself: three events, where six were stored."""
    extend(opened, OLD)
    copied(place_of(root), tmp_path / "old")
    extend(opened, FULL - OLD)
    copied(tmp_path / "old", place_of(root))
    return root


def numbers(store: Store, id: str = "s") -> list[object]:
    return [event.data for event in store.read_from(id)]


def read_until_damage(store: Store, id: str = "s") -> tuple[list[object], SessionDamaged]:
    """What can be read, and what is said behind it."""
    seen: list[object] = []
    with pytest.raises(SessionDamaged) as damaged:
        seen.extend(event.data for event in store.read_from(id))
    return seen, damaged.value


def assert_missing(store: Store, first: int = OLD, last: int = FULL - 1) -> None:
    """Every door says which events are missing, and gives those that are there."""
    found = store.inspect("s")
    assert found.status == "damaged"
    assert found.damaged
    assert [(p.kind, p.record) for p in found.problems] == [("missing-tail", first)]
    assert str(last) in found.problems[0].reason
    assert [event.data for event in found.events] == [*range(first)]
    report = store.verify("s")
    assert (report.status, report.sound, report.events) == ("damaged", False, first)
    assert [(p.kind, p.record) for p in report.problems] == [("missing-tail", first)]
    for call in (store.writer, store.load, store.prepare, store.compact, store.expire):
        with pytest.raises(SessionDamaged) as refused:
            call("s")
        assert (refused.value.kind, refused.value.record) == ("missing-tail", first)
    seen, damaged = read_until_damage(store)
    assert (seen, damaged.kind, damaged.record) == ([*range(first)], "missing-tail", first)


# --- an older copy -------------------------------------------------------------------------------


def test_an_older_copy_is_noticed(rolled_back: Path, opened: Callable[[], Store]) -> None:
    """An older copy of a session over a newer one: each door says what is missing, each time."""
    for _ in range(2):
        with opened() as store:
            assert_missing(store)
        for derived in ("index.sqlite", "index.sqlite-wal", "index.sqlite-shm", "vectors.sqlite"):
            (rolled_back / derived).unlink(missing_ok=True)
        shutil.rmtree(rolled_back / "writing", ignore_errors=True)
    with opened() as store:
        assert [each.kind for each in store.reports()] == ["missing-tail"]
        assert [entry.id for entry in store.list()] == ["s"]


def test_an_older_copy_is_noticed_by_a_store_that_is_open(
    root: Path, tmp_path: Path, opened: Callable[[], Store]
) -> None:
    """A store that stored the newer events itself notices that they are gone."""
    extend(opened, OLD)
    copied(place_of(root), tmp_path / "old")
    with opened() as store:
        with store.writer("s") as session:
            for number in range(OLD, FULL):
                session.append("x", number)
        assert numbers(store) == [*range(FULL)]
        store._witness.push()
        copied(tmp_path / "old", place_of(root))
        assert_missing(store)


def test_accepting_makes_an_older_copy_the_truth(
    rolled_back: Path, opened: Callable[[], Store]
) -> None:
    """Once accepted, the older log is sound, is written on, and needs no evidence for that."""
    with opened() as store:
        with pytest.raises(SessionDamaged):
            store.writer("s")
        position = store.accept("s")
        assert position.seq == OLD - 1
        assert store.inspect("s").position == position
        assert (store.verify("s").status, store.reports()) == ("ok", [])
    with opened() as store:
        assert numbers(store) == [*range(OLD)]
    (rolled_back / NAME).unlink()
    with opened() as store:
        assert (store.inspect("s").position, store.verify("s").status) == (position, "ok")
        with store.writer("s") as session:
            assert session.append("x", "on").seq == OLD
    with opened() as store:
        assert numbers(store) == [*range(OLD), "on"]
        assert store.verify("s").status == "ok"


def test_accepting_what_is_whole_changes_nothing(opened: Callable[[], Store]) -> None:
    """A sound session can be accepted, and stands where it stood."""
    extend(opened, FULL)
    with opened() as store:
        assert store.accept("s").seq == FULL - 1
        assert numbers(store) == [*range(FULL)]
        with store.create("busy") as session:
            session.append("x")
            with pytest.raises(PerdureError):
                store.accept("busy")
        with pytest.raises(SessionNotFound):
            store.accept("nobody")


def test_acceptance_is_where_evidence_goes_on(
    rolled_back: Path, tmp_path: Path, opened: Callable[[], Store]
) -> None:
    """What was appended after an acceptance is missed like anything else."""
    root = rolled_back
    with opened() as store:
        store.accept("s")
    copied(place_of(root), tmp_path / "accepted")
    extend(opened, 1)
    copied(tmp_path / "accepted", place_of(root))
    with opened() as store:
        assert_missing(store, last=OLD)


# --- the end cut off -----------------------------------------------------------------------------


def cut_last(root: Path, opened: Callable[[], Store]) -> None:
    """Take the last commit off the log."""
    backend = opened()._backend
    begin = backend.stored("s").begin
    log = log_of(root)
    if log.name.endswith(".zst"):
        end = [*backend.scan("s", begin)][-1].start
    else:
        end = log.read_bytes()[:-1].rindex(b"\n") + 1
    os.truncate(log, end)


@pytest.mark.parametrize("tail", ["kept", "lost"])
def test_a_lost_last_record_is_noticed(root: Path, opened: Callable[[], Store], tail: str) -> None:
    """The last record cut off is noticed by the tail file, and without that by the evidence."""
    extend(opened, FULL)
    cut_last(root, opened)
    if tail == "lost":
        (place_of(root) / "tail").unlink()
    with opened() as store:
        assert_missing(store, first=FULL - 1)


def test_a_lost_last_record_without_evidence_is_noticed(
    root: Path, opened: Callable[[], Store]
) -> None:
    """The last record cut off is noticed by the tail file where the evidence is lost."""
    extend(opened, FULL)
    cut_last(root, opened)
    (root / NAME).unlink()
    with opened() as store:
        assert_missing(store, first=FULL - 1)


def test_all_that_knew_of_a_record_lost_with_it(root: Path, opened: Callable[[], Store]) -> None:
    """The limit: the last record lost with tail file and evidence goes unnoticed."""
    extend(opened, FULL)
    cut_last(root, opened)
    (root / NAME).unlink()
    (place_of(root) / "tail").unlink()
    with opened() as store:
        assert store.verify("s").status == "ok"
        assert numbers(store) == [*range(FULL - 1)]
        with store.writer("s") as session:
            assert session.append("x").seq == FULL - 1


def test_evidence_counts_where_the_tail_file_is_old(
    root: Path, tmp_path: Path, opened: Callable[[], Store]
) -> None:
    """A tail file that is older than the evidence, as after a loss of power, does not count."""
    extend(opened, OLD)
    copied(place_of(root), tmp_path / "old")
    extend(opened, FULL - OLD)
    shutil.copyfile(tmp_path / "old/tail", place_of(root) / "tail")
    with opened() as store:
        assert (store.inspect("s").position or (0,))[0] == FULL - 1
        assert store.verify("s").status == "ok"
        assert numbers(store) == [*range(FULL)]
    cut_last(root, opened)
    with opened() as store:
        assert_missing(store, first=FULL - 1)


def test_a_tail_file_that_is_newer_counts(root: Path, opened: Callable[[], Store]) -> None:
    """Evidence that is older than the tail file is no reproach, and catches up."""
    extend(opened, OLD)
    kept = (root / NAME).read_bytes()
    extend(opened, FULL - OLD)
    (root / NAME).write_bytes(kept)
    with opened() as store:
        assert store.verify("s").status == "ok"
        store.load("s")
    (place_of(root) / "tail").unlink()
    cut_last(root, opened)
    with opened() as store:
        assert_missing(store, first=FULL - 1)


# --- damage reports ------------------------------------------------------------------------------


def flip(log: Path, at: int) -> None:
    raw = bytearray(log.read_bytes())
    raw[at] ^= 1
    log.write_bytes(raw)


def test_a_damage_report_stays_until_the_bytes_return(
    root: Path, opened: Callable[[], Store]
) -> None:
    """What refused a writer is remembered until the log is what it was; reading takes nothing."""
    # heinzel 10
    extend(opened, FULL)
    log = log_of(root)
    middle = log.stat().st_size // 2
    flip(log, middle)
    with opened() as store:
        assert store.reports() == []
        with pytest.raises(SessionDamaged) as refused:
            store.writer("s")
        (report,) = store.reports()
        assert (report.session, report.kind) == ("s", refused.value.kind)
        assert report.record == refused.value.record
    for _ in range(2):
        (root / "index.sqlite").unlink(missing_ok=True)
        with opened() as store:
            assert store.reports() == [report]
            assert not store.verify("s").sound
            with pytest.raises(SessionDamaged):
                store.accept("s")
            with pytest.raises(SessionDamaged):
                store.writer("s")
            assert [each.reported_at for each in store.reports()] == [report.reported_at]
    flip(log, middle)
    with opened() as store:
        assert store.verify("s").status == "ok"
        assert store.reports() == [report]
        store.load("s")
        assert store.reports() == []


@pytest.mark.usefixtures("rolled_back")
def test_accepting_ends_a_damage_report(opened: Callable[[], Store]) -> None:
    """What was reported of a log that was accepted is over, and stays over."""
    with opened() as store:
        with pytest.raises(SessionDamaged):
            store.writer("s")
        assert [each.session for each in store.reports()] == ["s"]
        store.accept("s")
        assert store.reports() == []
    with opened() as store:
        store.load("s")
        assert store.reports() == []


def test_a_log_of_another_life_is_noticed(
    root: Path, tmp_path: Path, opened: Callable[[], Store], encoding: str
) -> None:
    """Another store's session of the same id in the place of ours is reported, until accepted."""
    extend(opened, FULL)
    extend(lambda: perdure.open(tmp_path / "other", encoding=encoding), OLD)
    copied(place_of(tmp_path / "other"), place_of(root))
    with opened() as store:
        report = store.verify("s")
        assert (report.status, report.problems[0].kind) == ("damaged", "evidence")
        assert "another log" in report.problems[0].reason
        assert str(FULL - 1) in report.problems[0].reason
        with pytest.raises(SessionDamaged):
            store.writer("s")
        assert [each.session for each in store.reports()] == ["s"]
        assert store.accept("s").seq == OLD - 1
        assert (store.verify("s").status, store.reports()) == ("ok", [])
    extend(opened, 1)
    with opened() as store:
        assert numbers(store) == [*range(OLD + 1)]


# --- a folder that is gone -----------------------------------------------------------------------


def test_a_folder_removed_by_hand_is_missing(root: Path, opened: Callable[[], Store]) -> None:
    """It leaves the listing, is named as missing with what was there, and forgotten on request."""
    extend(opened, FULL)
    extend(opened, OLD, "other")
    shutil.rmtree(place_of(root))
    for _ in range(2):
        with opened() as store:
            assert [entry.id for entry in store.list()] == ["other"]
            assert [(m.id, m.position.seq) for m in store.missing()] == [("s", FULL - 1)]
            report = store.verify("s")
            assert (report.status, report.sound) == ("missing", False)
            assert str(FULL - 1) in report.problems[0].reason
            for call in (store.inspect, store.writer, store.delete, store.restore):
                with pytest.raises(SessionNotFound):
                    call("s")
    with opened() as store:
        store.forget("s")
        assert store.missing() == []
        with pytest.raises(SessionNotFound):
            store.verify("s")
    extend(opened, 1)
    with opened() as store:
        assert (store.verify("s").status, store.missing()) == ("ok", [])


def test_a_missing_id_is_kept_until_it_is_forgotten(
    root: Path, opened: Callable[[], Store]
) -> None:
    """A new session in the place of one that vanished would hide the loss, so there is none."""
    extend(opened, FULL)
    shutil.rmtree(place_of(root))
    with opened() as store:
        begun = store.create()
        for created_at in (None, 1):
            with pytest.raises(SessionExists) as exists:
                store.create("s", created_at=created_at)
            assert (exists.value.missing, exists.value.deleted_at) == (FULL - 1, None)
        with pytest.raises(SessionNotFound) as gone:
            store.writer("s")
        assert gone.value.missing == FULL - 1
        begun.append("x")
        assert [each.id for each in store.missing()] == ["s"]
        store.forget("s")
    extend(opened, OLD)
    with opened() as store:
        assert (store.verify("s").status, store.missing(), store.reports()) == ("ok", [], [])
        assert numbers(store) == [*range(OLD)]


# --- evidence that is damaged, foreign or locked -------------------------------------------------


def _noise(file: Path) -> None:
    file.write_bytes(b"no database at all" * 300)


def _torn(file: Path) -> None:
    raw = file.read_bytes()
    file.write_bytes(raw[: len(raw) // 2])


def _flipped(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    for at in range(len(raw) // 2, len(raw)):
        raw[at] ^= 0xFF
    file.write_bytes(raw)


@pytest.mark.parametrize("ruin", [_noise, _torn, _flipped])
def test_damaged_evidence_hides_nothing(
    root: Path, opened: Callable[[], Store], ruin: Callable[[Path], None]
) -> None:
    """Readers read, writers go on, and the damaged file is set aside and kept."""
    extend(opened, FULL)
    ruin(root / NAME)
    ruined = (root / NAME).read_bytes()
    with opened() as store:
        assert numbers(store) == [*range(FULL)]
        assert store.verify("s").status == "ok"
        assert [entry.id for entry in store.list()] == ["s"]
        assert (store.missing(), store.reports(), store.trash()) == ([], [], [])
        assert (root / NAME).read_bytes() == ruined
    extend(opened, 1)
    extend(opened, 1, "new")
    aside = [path for path in root.glob(f"{NAME}.damaged-*") if path.read_bytes() == ruined]
    assert len(aside) == 1
    (place_of(root) / "tail").unlink()
    cut_last(root, opened)
    with opened() as store:
        assert_missing(store, first=FULL, last=FULL)


def _linked(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def _hard_linked(file: Path) -> None:
    os.link(file, file.with_suffix(".twin"))


def _opened_up(file: Path) -> None:
    file.chmod(0o644)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir(0o700)


def _foreign(file: Path) -> None:
    file.unlink()
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE bookmarks (url); PRAGMA application_id = 7")
    connection.close()
    file.chmod(0o600)


@pytest.mark.parametrize("change", [_linked, _hard_linked, _opened_up, _folder, _foreign])
def test_unsafe_evidence_is_refused_by_name(
    root: Path, opened: Callable[[], Store], change: Callable[[Path], None]
) -> None:
    """A link, an open mode or a foreign file is refused by name, and nothing is half done."""
    extend(opened, FULL)
    change(root / NAME)
    with opened() as store:
        assert numbers(store) == [*range(FULL)]
        assert store.verify("s").status == "ok"
        calls: list[Callable[[], object]] = [
            lambda: store.writer("s"),
            lambda: store.create("new").append("x"),
            lambda: store.create().append("x"),
            lambda: store.accept("s"),
            lambda: store.forget("nobody"),
            store.missing,
            store.reports,
        ]
        for call in calls:
            with pytest.raises(UnsafeFile) as refused:
                call()
            assert NAME in refused.value.path
        for operation in (store.delete, store.restore):
            before = [entry.id for entry in store.list()]
            try:
                operation("s")
            except UnsafeFile as error:
                assert NAME in error.path  # noqa: PT017
                assert [entry.id for entry in store.list()] == before
            except SessionExists:
                assert before == ["s"]
            else:
                assert [entry.id for entry in store.list()] != before
    assert (root / NAME).is_symlink() == (change is _linked)


READ_ONLY = """
import os, sys, perdure
from perdure.errors import PerdureError
root = sys.argv[1]
for folder, _, files in os.walk(root, topdown=False):
    for path in (*(os.path.join(folder, name) for name in files), folder):
        os.chmod(path, 0o500 if os.path.isdir(path) else 0o400)
        if os.geteuid() == 0:  # for whom permissions are none
            os.chown(path, 65534, 65534)
if os.geteuid() == 0:
    os.seteuid(65534)
with perdure.open(root) as store:
    assert [event.data for event in store.read_from("s")] == [0, 1, 2]
    assert store.verify("s").status == "ok"
    assert (store.missing(), store.reports(), len(store.list())) == ([], [], 1)
    for call in (store.writer, store.delete, lambda id: store.create("t").append("x")):
        try:
            call("s")
        except PerdureError as error:
            assert root in str(error), error
        else:
            raise AssertionError(call)
    assert [event.data for event in store.read_from("s")] == [0, 1, 2]
"""


def test_a_store_that_cannot_be_written_is_read() -> None:
    """In folders that are for reading only, readers read and writers are refused by name."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "store"
        extend(lambda: perdure.open(root), 3)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(root)],
            check=False,
            capture_output=True,
            text=True,
        )
        for below, _, _ in os.walk(folder):
            Path(below).chmod(0o700)
    assert (done.returncode, done.stderr) == (0, "")


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Somebody else holds the evidence for himself, and nobody is patient."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_READER_WAIT_MS", "_WRITER_WAIT_MS"):
            patch.setattr(database, name, 100)
        with _held(root):
            yield


@contextmanager
def _held(root: Path) -> Iterator[None]:
    connection = apsw.Connection(str(root / NAME))
    # A thread of the store may be in the middle of one of its own.
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


DYING_IN_A_COMMIT = """
import os, signal, sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.pragma("journal_mode", "truncate")
connection.pragma("cache_size", 1)
connection.execute("BEGIN IMMEDIATE; DELETE FROM position; DELETE FROM deletion")
for number in range(2000):
    row = (b"%d" % number, bytes(100))
    connection.execute("INSERT INTO position VALUES (x'', ?, ?, 1, x'', 1, 1)", row)
os.kill(os.getpid(), signal.SIGKILL)
"""


def die_in_a_commit(root: Path) -> None:
    """A process that was killed while it wrote evidence: its half is still to be rolled back."""
    done = subprocess.run([sys.executable, "-c", DYING_IN_A_COMMIT, str(root / NAME)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (root / f"{NAME}-journal").stat().st_size


@pytest.mark.parametrize("how", ["half a commit", "busy"])
def test_a_tombstone_holds_while_evidence_cannot_be_read(
    root: Path, opened: Callable[[], Store], how: str
) -> None:
    """A deleted id is not given away because evidence cannot be read just then."""
    extend(opened, FULL)
    with opened() as store:
        store.delete("s")
        store.empty_trash()
    if how == "half a commit":
        die_in_a_commit(root)
        with opened() as store, pytest.raises(PerdureError):
            store.create("s").append("x")
    else:
        with locked(root), opened() as store, pytest.raises(PerdureError):
            store.create("s").append("x")
    with opened() as store:
        assert store.list() == []
        with pytest.raises(SessionExists):
            store.create("s").append("x")


def test_half_a_commit_of_evidence_hides_nothing_for_long(
    root: Path, tmp_path: Path, opened: Callable[[], Store]
) -> None:
    """A writer rolls back what a dead one left, so that a loss is noticed before it is built on."""
    extend(opened, OLD)
    copied(place_of(root), tmp_path / "old")
    extend(opened, FULL - OLD)
    copied(tmp_path / "old", place_of(root))
    die_in_a_commit(root)
    with opened() as store:
        with pytest.raises(SessionDamaged):
            store.writer("s")
        assert_missing(store)


# --- namespaces ----------------------------------------------------------------------------------


def test_evidence_is_kept_by_namespace(root: Path, opened: Callable[[], Store]) -> None:
    """What is known of a session in one namespace says nothing about its namesake in another."""
    spaces: list[tuple[str, ...]] = [(), ("a",), ("a", "b"), ("a/b",)]
    with opened() as store:
        for length, parts in enumerate(spaces, 1):
            with store.namespace(*parts).create("s") as session:
                for number in range(length):
                    session.append("x", number)
    (folder,) = (root / "ns/a/sessions").iterdir()
    shutil.rmtree(folder)
    with opened() as store:
        lost = [[m.position.seq for m in store.namespace(*parts).missing()] for parts in spaces]
        assert lost == [[], [1], [], []]
        store.namespace("a").forget("s")
        store.namespace("a", "b").delete("s")
        store.namespace("a", "b").empty_trash()
        with store.namespace("a").create("s") as session:
            session.append("x", "anew")
        for parts in spaces:
            space = store.namespace(*parts)
            if parts == ("a", "b"):
                with pytest.raises(SessionExists):
                    space.create("s").append("x")
            else:
                assert space.verify("s").status == "ok"
            assert space.missing() == []


# --- when it is written --------------------------------------------------------------------------


class Clock(Runtime):
    """Time goes on when it is told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def monotonic(self) -> float:
        return self.at


class Watch:
    """Sees what is noted in the evidence of a store."""

    def __init__(self, store: Store, clock: Clock, patch: pytest.MonkeyPatch) -> None:
        self._flusher = store._flusher
        self._clock = clock
        self.seqs: list[int] = []
        evidence = store._backend.evidence
        note = evidence.note

        def noted(entries: Any) -> None:
            entries = [*entries]
            note(entries)
            self.seqs.extend(known.position.seq for _, known in entries)

        patch.setattr(evidence, "note", noted)

    def after(self, seconds: float) -> list[int]:
        """What is noted when so much time has gone by and everything due was done."""
        self._clock.at += seconds
        for _ in range(2):
            # What is due is done in order of its time, so what is due now comes after all that was.
            done = threading.Event()
            assert self._flusher.schedule(done.set, 0)
            assert done.wait(30)
        noted, self.seqs = self.seqs, []
        return noted


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def session(root: Path, clock: Clock) -> Iterator[Session]:
    with perdure.open(root, runtime=clock) as store, store.create("s") as session:
        session.append("x")
        store._witness.push()
        session.store = store  # type: ignore[attr-defined]
        yield session


def test_evidence_follows_within_its_delay(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions are noted five seconds after the first append, with all that came meanwhile."""
    watch = Watch(session.store, clock, monkeypatch)  # type: ignore[attr-defined]
    session.append("x")
    assert watch.after(EVIDENCE_DELAY_SECONDS - 1) == []
    session.append("x")
    assert watch.after(0.9) == []
    assert watch.after(0.2) == [2]
    assert watch.after(100) == []


def test_evidence_follows_a_turn_soon(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a turn is noted at once, or as good as that, whatever was due later."""
    watch = Watch(session.store, clock, monkeypatch)  # type: ignore[attr-defined]
    session.append("turn/start", {}, turn="t")
    assert watch.after(DELAY_SECONDS) == []
    session.append("turn/end", {"reason": "completed"}, turn="t")
    assert watch.after(DELAY_SECONDS / 2) == []
    assert watch.after(DELAY_SECONDS) == [2]


def test_evidence_follows_a_close(
    session: Session, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was closed is noted soon; a store that is closed notes all it has."""
    store: Store = session.store  # type: ignore[attr-defined]
    watch = Watch(store, clock, monkeypatch)
    session.append("x")
    session.close()
    assert watch.after(DELAY_SECONDS + 0.1) == [1]
    with store.create("t") as other:
        other.append_many([{"type": "x"}] * 5)
    assert watch.seqs == []
    store.close()
    assert watch.seqs == [4]


EXITING = """
import sys, perdure
store = perdure.open(sys.argv[1])
session = store.create("s")
session.append("x")
session.append("x")
session.buffer("x")
"""


def test_evidence_follows_an_exit(root: Path) -> None:
    """A program that ends without closing anything leaves its last position as evidence."""
    subprocess.run([sys.executable, "-c", EXITING, str(root)], check=True)
    with perdure.open(root) as store:
        (known,) = store._backend.evidence.known("", "s")
    assert known.position.seq == 2


def test_appends_go_on_while_evidence_is_busy(root: Path) -> None:
    """While somebody holds the evidence for himself, appends go on; it catches up afterwards."""
    with perdure.open(root) as store, store.create("s") as session:
        session.append("x", 0)
        store._witness.push()
        with locked(root):
            turns = [{"type": "turn/start", "turn": "t"}, {"type": "turn/end", "turn": "t"}]
            for number in range(1, FULL):
                session.append("x", number)
                session.append_many(turns)
    with perdure.open(root) as store:
        (known,) = store._backend.evidence.known("", "s")
        assert known.position == store.inspect("s").position


def test_appends_never_wait_for_a_note_that_hangs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that takes for ever holds up no append, of this session or another."""
    with perdure.open(root) as store, store.create("s") as session, store.create("t") as other:
        session.append("x")
        other.append("x")
        store._witness.push()
        begun, go_on = threading.Event(), threading.Event()
        note = store._backend.evidence.note

        def hangs(entries: Any) -> None:
            begun.set()
            assert go_on.wait(60)
            note(entries)

        monkeypatch.setattr(store._backend.evidence, "note", hangs)
        session.append("turn/end", turn="t")
        assert begun.wait(30)
        for number in range(20):
            session.append("turn/end", number, turn="t")
            other.append("x", number)
        assert (session.position.seq, other.position.seq) == (21, 20)
        go_on.set()


def test_appends_go_on_without_evidence(root: Path) -> None:
    """Evidence that cannot be written fails no append, and no close."""
    with perdure.open(root) as store, store.create("s") as session:
        session.append("x", 0)
        store._witness.push()
        (root / NAME).chmod(0o644)
        session.append("turn/end", turn="t")
        with pytest.raises(UnsafeFile):
            store._witness.push()
        session.append("x", 1)
    (root / NAME).chmod(0o600)
    with perdure.open(root) as store:
        assert store.verify("s").events == 3


# --- two processes -------------------------------------------------------------------------------


def test_two_processes_remember_together(
    root: Path, tmp_path: Path, opened: Callable[[], Store], encoding: str
) -> None:
    """What another process was acknowledged is missed in a copy that this one finds older."""
    extend(opened, OLD)
    copied(place_of(root), tmp_path / "old")
    with Peer(str(root), encoding) as peer, opened() as store:
        peer.ask("open", session="s")
        peer.ask("append", count=FULL - OLD)
        with store.create("mine") as session:
            session.append("x")
        store._witness.push()
        peer.ask("close")
        peer.close()
        assert store.verify("s").events == FULL
        copied(tmp_path / "old", place_of(root))
        assert_missing(store)
        assert [known.session for known in store._backend.evidence.everything_known("")] == [
            "mine",
            "s",
        ]


def test_many_processes_note_at_once(
    root: Path, opened: Callable[[], Store], encoding: str
) -> None:
    """Processes that close at the same time all leave their positions."""
    with opened() as store:
        peers = [Peer(str(root), encoding) for _ in range(4)]
        for number, peer in enumerate(peers):
            peer.ask("create", session=f"s{number}")
            peer.ask("append", count=number)
        for peer in peers:
            peer.tell("close")
        for peer in peers:
            peer.hear()
            peer.close()
        known = store._backend.evidence.everything_known("")
        assert [(one.session, one.position.seq) for one in known] == [
            (f"s{number}", number) for number in range(4)
        ]


def test_a_killed_process_leaves_what_its_tail_file_says(
    root: Path, opened: Callable[[], Store], encoding: str
) -> None:
    """What was never noted because its process was killed is known by the tail file."""
    with Peer(str(root), encoding) as peer:
        peer.ask("create", session="s")
        peer.ask("append", count=FULL - 1)
        peer.kill()
    cut_last(root, opened)
    with opened() as store:
        report = store.verify("s")
        assert (report.status, report.events) == ("damaged", FULL - 1)
        assert report.problems[0].kind == "missing-tail"
        with pytest.raises(InvalidValue):
            store.forget("s")
