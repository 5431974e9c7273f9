"""Repairs whose process is killed are finished by the next, and lose no byte of what was there."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from perdure.backends.base import Hold
from perdure.backends.directory import asides
from perdure.backends.directory.repairing import RepairingBackend
from perdure.backends.sqlite.holding import SqliteHold
from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.runtime import Runtime
from perdure.store import Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import ENCODINGS, in_own_process
from perdure.testing.databases import open_database
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

FOLDERS = "perdure.testing.agents:open_folder"
FILES = "perdure.testing.databases:open_database"
KILL = "perdure.testing.repairing:kill_repairs"
POWER = "perdure.testing.repairing:cut_power"
POINTS = ("write.half", "write.before", "sync.before", "move.before", "move.after", "folder.sync")
SQLITE_POINTS = (
    *("sqlite.begun", "sqlite.changed", "sqlite.committed"),
    *("vfs.write", "vfs.half", "vfs.written", "vfs.sync"),
)


def test_killed_repairs_are_finished(tmp_path: Path, seed: int) -> None:
    """Whatever a repair is killed at, running it again finishes it, once, with all bytes kept."""
    kills = scaled(200)
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, kills=kills)
    summarise("deaths of repairs", seed, counts)
    assert counts["kills"] >= kills
    assert counts["resumed"] > 0
    if SOAK:
        reached = {f"{point} {encoding}" for point in POINTS for encoding in ENCODINGS}
        assert reached - counts.keys() == set()
        assert min(counts[what] for what in ("salvaged", "header lost", "content")) > 0


def test_killed_repairs_in_files_are_finished(tmp_path: Path, seed: int) -> None:
    """In a SQLite file, too, a killed repair is finished by the next, in any of its commits."""
    kills = scaled(200)
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, kills=kills, opener=FILES)
    summarise("deaths of repairs in files", seed, counts)
    assert counts["kills"] >= kills
    if SOAK:
        reached = {f"{point} {kind}" for point in SQLITE_POINTS for kind in ("sqlite", "bundle")}
        assert reached - counts.keys() == set()
        assert min(counts[what] for what in ("resumed", "salvaged", "content")) > 0


def test_repairs_in_files_outlast_a_loss_of_power(tmp_path: Path, seed: int) -> None:
    """What SQLite had not synced of a repair is lost, and no byte that was there before it."""
    histories = scaled(100)
    counts = in_own_process(
        POWER, folder=str(tmp_path), seed=seed, histories=histories, opener=FILES
    )
    summarise("power loss in repairs in files", seed, counts)
    assert counts["histories"] >= histories


def test_repairs_outlast_a_loss_of_power(tmp_path: Path, seed: int) -> None:
    """Whatever of a repair was not synced is lost, no byte is lost that was there before it."""
    histories = scaled(400)
    counts = in_own_process(POWER, folder=str(tmp_path), seed=seed, histories=histories)
    summarise("power loss in repairs", seed, counts)
    assert counts["histories"] >= histories


# That of files takes seconds.
@pytest.mark.parametrize("opener", [FOLDERS, FILES] if SOAK else [FOLDERS])
def test_repairs_without_syncs_are_noticed(tmp_path: Path, seed: int, opener: str) -> None:
    """With fsync switched off the replay finds that bytes are lost."""
    asked = {"folder": str(tmp_path), "seed": seed, "histories": 200, "opener": opener}
    with pytest.raises(Finding, match=r"nowhere|not any more|not aside|tell of|malformed"):
        in_own_process(POWER, sync=False, **asked)


# --- the harness finds repairs that keep less -----------------------------------------------------


def open_destroying(path: str, encoding: str, runtime: Runtime) -> Store:
    """Puts nothing aside."""

    def put(session: Folder, place: str, parts: Callable[[], Iterable[bytes]], note: Any) -> None:
        del session, place, parts, note

    setattr(asides, "put", put)  # noqa: B010
    return open_folder(path, encoding, runtime)


def open_forgetful(path: str, encoding: str, runtime: Runtime) -> Store:
    """Writes no plan down."""

    def set_plan(backend: RepairingBackend, hold: Hold, plan: bytes | None) -> None:
        del backend, hold, plan

    setattr(RepairingBackend, "set_plan", set_plan)  # noqa: B010
    return open_folder(path, encoding, runtime)


def open_replacing(path: str, encoding: str, runtime: Runtime) -> Store:
    """Removes the old log before the new one has its name."""
    move = Folder.move

    def moved(folder: Folder, name: str, target: Folder, new_name: str) -> None:
        if name.startswith(".log"):
            os.unlink(new_name, dir_fd=target.fd)
            crash.observe("remove", parent=target.inode, name=new_name)
        move(folder, name, target, new_name)

    if move.__name__ == "move":
        setattr(Folder, "move", moved)  # noqa: B010
    return open_folder(path, encoding, runtime)


def open_overwriting(path: str, encoding: str, runtime: Runtime) -> Store:
    """Removes the rows of the log that it replaces."""
    replace = SqliteHold.replace

    def replaced(hold: SqliteHold, *given: Any) -> None:
        old = hold.number
        replace(hold, *given)
        with hold.transaction() as db:
            db.execute("DELETE FROM records WHERE session = ?", (old,))

    if replace.__name__ == "replace":
        setattr(SqliteHold, "replace", replaced)  # noqa: B010
    return open_database(path, encoding, runtime)


@pytest.mark.parametrize(
    ("opener", "complaint"),
    [
        ("open_destroying", "nowhere|not aside"),
        ("open_forgetful", "tell of the|told of twice|not aside"),
        ("open_replacing", "holds no log"),
        ("open_overwriting", "nowhere|not aside"),
    ],
    ids=["destroying", "forgetful", "replacing", "overwriting"],
)
def test_the_harness_finds_a_careless_repair(
    tmp_path: Path, seed: int, opener: str, complaint: str
) -> None:
    """Keeping nothing aside, planning nothing, and replacing in two steps are found out."""
    with pytest.raises(Finding, match=complaint):
        in_own_process(
            KILL,
            folder=str(tmp_path),
            seed=seed,
            kills=400,
            opener=f"tests.proof.test_repair:{opener}",
        )
