"""A loss of power takes nothing that was acknowledged."""

from pathlib import Path

import pytest

from perdure.durable.files import Folder
from perdure.runtime import Runtime
from perdure.store import Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import in_own_process
from perdure.testing.disk import FILE_POLICIES
from perdure.testing.ledger import Finding
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
