"""A loss of power takes nothing that was acknowledged."""

from pathlib import Path

import pytest

from perdure.testing.crash import in_own_process
from perdure.testing.ledger import Finding
from perdure.testing.powerloss import FILE_POLICIES
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

REPLAY = "perdure.testing.powerloss:replay_histories"


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
