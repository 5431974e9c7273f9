"""Changed bytes are noticed, contained, and never given out as verified."""

import random
from pathlib import Path

import pytest

from perdure.testing.corruption import corrupt
from perdure.testing.crash import ENCODINGS
from perdure.testing.mutations import MUTATIONS
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof


def test_corruption_is_contained(tmp_path: Path, seed: int) -> None:
    """However a log is changed, readers give the intact prefix and writers are refused."""
    trials = scaled(10_000)
    counts = corrupt(str(tmp_path), seed, trials, per_store=100)
    summarise("corruption", seed, counts)
    assert counts["damaged"] + counts["harmless"] == trials
    assert {f"{name} {e}" for name in MUTATIONS for e in ENCODINGS} <= counts.keys()
    assert counts["harmless"] > 0


def test_corruption_repeats(tmp_path: Path, rng: random.Random) -> None:
    """The same seed tries the same things."""
    seed = rng.getrandbits(32)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir(mode=0o700)
    first, second = (corrupt(str(folder), seed, 40) for folder in folders)
    assert first == second
