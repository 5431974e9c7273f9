"""A loss of power takes nothing that was acknowledged."""

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import Death, Executioner, forked, in_own_process
from perdure.testing.disk import FILE_POLICIES, Disk, Policy
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import lay_out
from perdure.testing.vfs import standing_between
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

REPLAY = "perdure.testing.powerloss:replay_histories"
SCENES = "perdure.testing.blackouts:replay_scenes"


def test_power_loss_loses_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever of the unsynced is lost, torn or reordered, no acknowledged event is lost."""
    histories = scaled(2000)
    counts = in_own_process(REPLAY, folder=str(tmp_path), seed=seed, histories=histories)
    summarise("power loss", seed, counts)
    assert counts["histories"] >= histories
    assert {f"{policy} files" for policy in FILE_POLICIES} <= counts.keys()


def test_power_loss_after_an_unfinished_beginning(tmp_path: Path, seed: int) -> None:
    """Whoever goes on after a death among the first steps makes up for the syncs it left out."""
    points = ["folder.make", "folder.sync", "sync.before", "move.before", "move.after"]
    deaths = [(point, visit) for point in points for visit in range(1, 9)]
    policies = [("dropped", "dropped"), ("dropped", "random"), ("kept", "random")]
    counts = in_own_process(
        REPLAY,
        folder=str(tmp_path),
        seed=seed,
        histories=scaled(2000),
        places=scaled(50),
        deaths=deaths,
        policies=policies,
    )
    summarise("power loss after an unfinished beginning", seed, counts)
    assert counts["recordings"] >= len(deaths)


def begin_namespaces(folder: str) -> list[int]:
    """Writers die at each sync of a namespace's beginning, another one goes on, the power goes.

    How often; and at which of them what the second one was acknowledged is lost.
    """
    lost = []
    for visit in itertools.count(1):
        place = os.path.join(folder, str(visit))
        os.mkdir(place, 0o700)
        disk, path, last = Disk(os.stat(place).st_ino), os.path.join(place, "store"), ""

        def write(note: Callable[[Note], None], visit: int = visit, path: str = path) -> None:
            def observer(kind: str, **facts: Any) -> None:
                note(Note("operation", kind, facts=facts))

            Executioner(Death("sync.before", visit), note, observer=observer).arm()
            store = open_folder(path, "zst", SYSTEM)
            store.namespace("a", "b").create("s").append("x", 1)

        with standing_between(to_disk=False):
            for note in forked(write, "a writer"):
                last = note.kind
                if last == "operation":
                    disk.take(note.session, note.facts)
            crash.arm(observer=lambda kind, disk=disk, **facts: disk.take(kind, facts))
            with open_folder(path, "zst", SYSTEM) as store:
                store.namespace("a", "b").create("t").append("x", 2)
                crash.arm()
                image = disk.image(Policy("dropped", "dropped"), random.Random(0))
        lay_out(image, os.path.join(place, "image"))
        with open_folder(os.path.join(place, "image", "store"), "zst", SYSTEM) as store:
            if "t" not in [entry.id for entry in store.namespace("a", "b").list()]:
                lost.append(visit)
        if last == "finished":
            return [visit, *lost]
    raise AssertionError


def test_power_loss_after_an_unfinished_namespace(tmp_path: Path) -> None:
    """Whoever goes on in a namespace makes its folders durable, whoever made them."""
    tried, *lost = in_own_process(
        "tests.proof.test_powerloss:begin_namespaces", folder=str(tmp_path)
    )
    assert tried > 10
    assert lost == []


def test_power_loss_without_syncs_is_noticed(tmp_path: Path, seed: int) -> None:
    """With fsync switched off the replay finds that acknowledged events are lost."""
    with pytest.raises(Finding, match=r"is lost with \d+ acknowledged events"):
        in_own_process(
            REPLAY,
            folder=str(tmp_path),
            seed=seed,
            histories=50,
            policies=[("dropped", "dropped")],
            sync=False,
        )


@pytest.mark.parametrize("forgotten", ["file", "folder"])
def test_power_loss_notices_each_kind_of_sync(tmp_path: Path, seed: int, forgotten: str) -> None:
    """The replay finds losses if the syncs of files, or those of folders, are left out."""
    with pytest.raises(Finding):
        in_own_process(REPLAY, folder=str(tmp_path), seed=seed, histories=200, forget=forgotten)


def test_power_loss_keeps_content_and_the_trash(tmp_path: Path, seed: int) -> None:
    """Content, expiry, compaction, deletion and restoring, once acknowledged, have happened."""
    histories = scaled(1000)
    counts = in_own_process(SCENES, folder=str(tmp_path), seed=seed, histories=histories)
    summarise("power loss in scenes", seed, counts)
    assert counts["histories"] >= histories
    assert {f"{policy} files" for policy in FILE_POLICIES} <= counts.keys()


def test_power_loss_in_scenes_without_syncs_is_noticed(tmp_path: Path, seed: int) -> None:
    """With fsync switched off the replay finds that what was acknowledged is not there."""
    with pytest.raises(Finding):
        in_own_process(SCENES, folder=str(tmp_path), seed=seed, histories=100, sync=False)


def _open_forgetful(path: str, encoding: str, runtime: Runtime, where: str) -> Store:
    """A store that forgets to sync some of its folders."""
    if Folder.sync.__name__ == "sync":
        sync = Folder.sync

        def forgetful(folder: Folder) -> None:
            if where not in f"{folder.path}/":
                sync(folder)

        setattr(Folder, "sync", forgetful)  # noqa: B010
    return open_folder(path, encoding, runtime)


def open_forgetting_content(path: str, encoding: str, runtime: Runtime) -> Store:
    return _open_forgetful(path, encoding, runtime, "/blobs/")


def open_forgetting_trash(path: str, encoding: str, runtime: Runtime) -> Store:
    return _open_forgetful(path, encoding, runtime, "/trash/")


def open_forgetting_sessions(path: str, encoding: str, runtime: Runtime) -> Store:
    return _open_forgetful(path, encoding, runtime, "/sessions/")


@pytest.mark.parametrize("what", ["content", "trash", "sessions"])
def test_power_loss_in_scenes_notices_each_folder(tmp_path: Path, seed: int, what: str) -> None:
    """The replay finds losses if the syncs of some folders alone are left out."""
    with pytest.raises(Finding):
        in_own_process(
            SCENES,
            folder=str(tmp_path),
            seed=seed,
            histories=1000,
            opener=f"tests.proof.test_powerloss:open_forgetting_{what}",
        )
