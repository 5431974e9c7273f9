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


def test_power_loss_without_syncs_is_noticed(tmp_path: Path, seed: int) -> None:
    """With fsync switched off the replay finds that acknowledged events are lost."""
    with pytest.raises(Finding, match="acknowledged"):
        in_own_process(
            REPLAY, folder=str(tmp_path), seed=seed, histories=50, policies=["dropped"], sync=False
        )


@pytest.mark.parametrize("forgotten", ["file", "folder"])
def test_power_loss_notices_each_kind_of_sync(tmp_path: Path, seed: int, forgotten: str) -> None:
    """The replay finds losses if the syncs of files, or those of folders, are left out."""
    with pytest.raises(Finding):
        in_own_process(REPLAY, folder=str(tmp_path), seed=seed, histories=200, forget=forgotten)
