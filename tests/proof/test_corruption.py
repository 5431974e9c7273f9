"""Changed bytes are noticed, contained, and never given out as verified."""

import random
import threading
from pathlib import Path

import pytest

from perdure.model.record import Position
from perdure.testing.corruption import VICTIM, _Patient, corrupt
from perdure.testing.crash import ENCODINGS
from perdure.testing.mutations import MUTATIONS
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

PATIENCE = 60.0
"""Seconds until a thread that never comes fails a test."""


def test_corruption_is_contained(tmp_path: Path, seed: int) -> None:
    """However a log is changed, readers give the intact prefix and writers are refused."""
    trials = scaled(10_000)
    counts = corrupt(str(tmp_path), seed, trials, per_store=100)
    summarise("corruption", seed, counts)
    assert counts["damaged"] + counts["harmless"] == trials
    assert {f"{name} {e}" for name in MUTATIONS for e in ENCODINGS} <= counts.keys()
    assert counts["harmless"] > 0


class _Door:
    """A mutex that tells when the thread that made it comes for it."""

    def __init__(self, mutex: threading.RLock, wanted: threading.Event) -> None:
        self._mutex, self._wanted = mutex, wanted
        self._maker = threading.get_ident()

    def __enter__(self) -> None:
        if threading.get_ident() == self._maker:
            self._wanted.set()
        self._mutex.acquire()

    def __exit__(self, *exc: object) -> None:
        self._mutex.release()


def test_a_late_push_is_of_no_later_trial(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is being noted when a trial ends is not remembered in the next one."""
    patient = _Patient(str(tmp_path), ENCODINGS[0], f"{rng.getrandbits(32)}")
    witness, header = patient.store._witness, patient.store.inspect(VICTIM).header
    assert header is not None
    under_way, go_on = threading.Event(), threading.Event()

    def slow(_: object) -> bool:
        under_way.set()
        return go_on.wait(PATIENCE)

    monkeypatch.setattr(witness, "_stored", slow)
    monkeypatch.setattr(witness, "_pushing", _Door(witness._pushing, go_on))
    witness.moved(header, Position(10**6, "ab" * 32))
    # The store's own thread may be first: one of the two has it under way.
    pushing = threading.Thread(target=witness.push)
    pushing.start()
    assert under_way.wait(PATIENCE)
    patient.forget()
    go_on.set()
    pushing.join(PATIENCE)
    # Its own thread ends as well.
    patient.store._flusher.stop()
    assert witness.about(VICTIM).seen == ()
    assert patient.store.inspect(VICTIM).status == "complete"
    patient.store.close()


def test_corruption_repeats(tmp_path: Path, rng: random.Random) -> None:
    """The same seed tries the same things."""
    seed = rng.getrandbits(32)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir(mode=0o700)
    first, second = (corrupt(str(folder), seed, 40) for folder in folders)
    assert first == second
