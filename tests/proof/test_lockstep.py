"""All media do the same, step by step, whatever happens to the processes that use them."""

import pytest

from perdure.testing.lockstep import run_lockstep
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

DEATHS = ("compact", "copy", "delete", "empty trash", "put blob", "restore")
STEPS = (
    *("accept", "append", "append at", "append many", "archive", "blob", "buffer", "close"),
    *("close writer", "commit stale", "compact", "copy", "copy across", "create", "delete"),
    *("die committing", "empty trash", "expire", "first append many", "flush", "forget"),
    *("inspect", "later", "load", "look", "prepare", "put aside", "put blob", "raw"),
    *("read from", "repair", "replace", "restore", "rival", "tear", "verify", "writer"),
    *(f"die in {death}" for death in DEATHS),
)


def test_all_media_do_the_same(seed: int) -> None:
    """Files, databases and memory return, refuse, list and store the same, byte for byte."""
    steps = scaled(20_000)
    counts = run_lockstep(steps=steps, seed=seed)
    summarise("lockstep", seed, counts)
    assert counts["steps"] >= steps
    assert counts["refused"] < counts["steps"] / 2
    if SOAK:
        assert {step: counts[step] for step in STEPS if counts[step] < steps / 2000} == {}
