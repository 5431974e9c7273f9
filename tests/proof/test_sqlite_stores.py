"""Stores in one SQLite file lose nothing that was acknowledged, however their writers end."""

import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.sqlite import SqliteBackend, medium
from perdure.durable import crash
from perdure.errors import SessionNotFound, StorageFull, StorageUnavailable
from perdure.runtime import SYSTEM
from perdure.testing.crash import ENCODINGS, crash_points, forked, in_own_process
from perdure.testing.databases import open_database
from perdure.testing.disk import FILE_POLICIES, Disk, Policy
from perdure.testing.faults import CODES, Fault, fail_calls
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import lay_out
from perdure.testing.scripts import OUTSIDE
from perdure.testing.sqlite_faults import SQLITE_KINDS, FaultyFiles
from perdure.testing.vfs import SQLITE_CALLS, standing_between
from tests.proof.summary import summarise, tabulate
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

OPENER = "perdure.testing.databases:open_database"
SOURCES = ("perdure.backends.sqlite", "perdure.testing.vfs")
SCENES = ("beginning", "content", "compaction", "trash", "namespace")
"""Those that do nothing by hand to the files of a folder."""


# --- deaths --------------------------------------------------------------------------------------


def test_writers_that_die_within_a_commit(tmp_path: Path, seed: int) -> None:
    """Killed at every point of a commit, half pages included, a writer leaves all it was told."""
    kills = scaled(300)
    counts = in_own_process(
        "perdure.testing.crash:kill_writers",
        folder=str(tmp_path),
        seed=seed,
        kills=kills,
        opener=OPENER,
        sources=SOURCES if SOAK else SOURCES[:1],
    )
    summarise("deaths of writers in databases", seed, counts)
    points = [point for source in SOURCES[: 1 + SOAK] for point in crash_points(source)]
    reached = {f"{point} {encoding}" for point in points for encoding in ENCODINGS}
    assert reached <= counts.keys()
    assert sum(counts.values()) - counts["finished"] >= kills


def test_keepers_that_die_in_databases(tmp_path: Path, seed: int) -> None:
    """Whoever dies while content is put or sessions are deleted: all is whole, none is lost."""
    counts = in_own_process(
        "perdure.testing.keeping:kill_keepers",
        folder=str(tmp_path),
        seed=seed,
        share=0.2 if SOAK else 0.005,
        names=SCENES,
        opener=OPENER,
    )
    summarise("deaths of keepers of databases", seed, counts)
    assert {f"scene {name}" for name in SCENES} <= counts.keys()
    assert counts["observations"] > 0


# --- loss of power -------------------------------------------------------------------------------


def test_power_loss_takes_nothing_from_databases(tmp_path: Path, seed: int) -> None:
    """Whatever of the unsynced is lost, torn or reordered, no acknowledged event is lost."""
    histories = scaled(150)
    counts = in_own_process(
        "perdure.testing.powerloss:replay_histories",
        folder=str(tmp_path),
        seed=seed,
        histories=histories,
        opener=OPENER,
    )
    summarise("power loss in databases", seed, counts)
    assert counts["histories"] >= histories
    assert {f"{policy} files" for policy in FILE_POLICIES} <= counts.keys()


def find_after_a_death(folder: str, *, careless: bool = False) -> tuple[int, int]:
    """A writer dies before the sync of its commit, another one opens, and the power goes.

    How many events the second one was told of, and how many are left.
    """
    if careless:
        setattr(medium, "sync_through", lambda *_: None)  # noqa: B010
    disk, path = Disk(os.stat(folder).st_ino), os.path.join(folder, "store")

    def die(name: str) -> None:
        if name == "vfs.sync":
            os.kill(os.getpid(), signal.SIGKILL)

    def write(note: Callable[[Note], None]) -> None:
        def observer(kind: str, **facts: Any) -> None:
            note(Note("operation", kind, facts=facts))

        with standing_between(to_disk=False):
            crash.arm(observer=observer)
            session = open_database(path, "zst", SYSTEM).create("s")
            session.append("x", 1)
            crash.arm(observer=observer, hook=die)
            session.append("x", 2)

    for note in forked(write, "a writer"):
        if note.kind == "operation":
            disk.take(note.session, note.facts)
    with standing_between(to_disk=False):
        crash.arm(observer=lambda kind, **facts: disk.take(kind, facts))
        store = open_database(path, "zst", SYSTEM)
        told = store.writer("s").position.seq + 1
        crash.arm()
        image = disk.image(Policy("dropped", "dropped"), random.Random(0))
        store.close()
    lay_out(image, os.path.join(folder, "image"))
    with open_database(os.path.join(folder, "image", "store"), "zst", SYSTEM) as store:
        return told, len([*store.read_from("s")])


def test_what_a_dead_writer_left_unsynced(tmp_path: Path) -> None:
    """A commit that is found counts only once it is durable, whoever made it."""
    found = in_own_process(
        "tests.proof.test_sqlite_stores:find_after_a_death", folder=str(tmp_path)
    )
    assert found == [2, 2]


def test_a_loss_of_what_was_found_is_noticed(tmp_path: Path) -> None:
    """Without that care, an event that the second writer was told of is gone."""
    found = in_own_process(
        "tests.proof.test_sqlite_stores:find_after_a_death", folder=str(tmp_path), careless=True
    )
    assert found == [2, 1]


def test_power_loss_keeps_content_in_databases(tmp_path: Path, seed: int) -> None:
    """Content, expiry, deletion and restoring, once acknowledged, have happened."""
    histories = scaled(150)
    counts = in_own_process(
        "perdure.testing.blackouts:replay_scenes",
        folder=str(tmp_path),
        seed=seed,
        histories=histories,
        opener=OPENER,
    )
    summarise("power loss in scenes of databases", seed, counts)
    assert counts["histories"] >= histories


# --- a failing disk ------------------------------------------------------------------------------


@pytest.mark.reads_for_itself(reason="a fresh store judged each one before it was removed")
def test_databases_on_a_failing_disk(tmp_path: Path, seed: int) -> None:
    """Whichever call of SQLite's fails, however and how long, the store keeps what it said."""
    runs = scaled(1200)
    counts = fail_calls(
        str(tmp_path), seed, runs, stand=FaultyFiles, opener=open_database, without=OUTSIDE
    )
    table: dict[str, dict[str, Any]] = {
        kind: {
            **{
                code: f"{counts.get(f'{kind}/{code}/once', 0)}"
                f"+{counts.get(f'{kind}/{code}/lasting', 0)}"
                for code in (*CODES, "short")
            },
            "sites": f"{counts[f'{kind}/tried']} of {counts[f'{kind}/sites']}",
        }
        for kind in SQLITE_KINDS
    }
    tabulate(f"{runs} failing calls in databases (seed {seed}), once+lasting", table)
    assert all(f"{kind}/{code}/lasting" in counts for kind in SQLITE_KINDS for code in CODES)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_file_is_made_whole_or_not_at_all(tmp_path: Path, encoding: str) -> None:
    """Wherever the disk fails while a file is made, what is there afterwards can be used."""
    for kind in SQLITE_CALLS:
        for visit in itertools.count(1, 1 if SOAK else 3):
            system = FaultyFiles(Fault(kind, visit, "EACCES", lasting=visit % 2 == 0))
            path = str(tmp_path / f"{kind} {visit}")
            with system:
                store = open_database(path, encoding, SYSTEM)
                with suppress(StorageFull, StorageUnavailable):
                    store.create("s").append("x", 1)
                system.lift()
                # By the same store: nothing that failed is kept to fail again.
                store.create("t").append("x", 2)
                store.close()
            with open_database(path, encoding, SYSTEM) as store:
                assert {entry.id for entry in store.list()} in ({"t"}, {"s", "t"})
                assert store.verify("t").sound
            shutil.rmtree(path)
            if not system.fired:
                break


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_session_that_is_purged_while_it_is_found(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose session goes between two of its questions finds none, not a damaged one."""
    find, left, met = SqliteBackend._find, [0], 0
    store = open_database(str(tmp_path), encoding, SYSTEM)

    def found(backend: SqliteBackend, session: str) -> Any:
        row = find(backend, session)
        left[0] -= 1
        if left[0] == 0:
            store.delete(session)
            store.empty_trash()
        return row

    monkeypatch.setattr(SqliteBackend, "_find", found)
    for moment in range(1, 12):
        id = f"s{moment}"
        left[0] = 0
        with store.create(id) as session:
            session.append("x", moment)
        left[0] = moment
        try:
            assert [event.data for event in store.read_from(id)] == [moment]
        except SessionNotFound:
            met += 1
    assert met > 1
    store.close()


# --- the harnesses find stores that keep less ----------------------------------------------------


@pytest.mark.parametrize("forgotten", ["file", "folder"])
def test_each_kind_of_sync_is_missed(tmp_path: Path, seed: int, forgotten: str) -> None:
    """The replay finds losses if the syncs of files, or those of folders, are left out."""
    with pytest.raises(Finding):
        in_own_process(
            "perdure.testing.powerloss:replay_histories",
            folder=str(tmp_path),
            seed=seed,
            histories=200,
            forget=forgotten,
            opener=OPENER,
        )
