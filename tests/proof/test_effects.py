"""Effects do not happen twice and turns are not unrecorded, at whatever moment a process dies."""

from functools import partial
from pathlib import Path

import pytest

from perdure.store import Session
from perdure.testing import recorders
from perdure.testing.crash import in_own_process
from perdure.testing.ledger import Finding, Note
from perdure.testing.recorders import KINDS, Told
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof


def test_no_effect_happens_twice(tmp_path: Path, seed: int) -> None:
    """Killed at each moment, an effect happened once, or not, and an unknown one says so."""
    share = scaled(10) / 10
    counts = in_own_process(
        "perdure.testing.recorders:kill_effects", folder=str(tmp_path), seed=seed, share=share
    )
    summarise("killed effects", seed, counts)
    assert all(counts[f"moments {kind}"] > 20 * share for kind in KINDS)
    known = {name for name in counts if name.endswith("times")}
    assert known <= {"done, 1 times", "refused, 1 times", "unknown, 0 times", "unknown, 1 times"}
    if share == 1:
        assert len(known) == 4
        assert {"died at world.before", "died at world.after"} <= counts.keys()


def test_nothing_is_done_unrecorded(tmp_path: Path, seed: int) -> None:
    """Killed at each moment of a turn, what was reached is stored, and recovery closes the rest."""
    share = scaled(10) / 10
    counts = in_own_process(
        "perdure.testing.recorders:kill_turns", folder=str(tmp_path), seed=seed, share=share
    )
    summarise("killed turns", seed, counts)
    died = sum(count for name, count in counts.items() if name.startswith("died"))
    assert died > 100 * share
    assert counts["turns closed by recovery"] > 20 * share


def careless(session: Session, folder: str, note: Told) -> None:
    """Writes down what has happened, and nothing before it."""
    world = recorders._World(folder)
    for key in recorders.KEYS:
        if session._queue.find("effect/outcome", key) is None:
            value = partial(world.mark, key)()
            session.append("effect/outcome", {"status": "completed", "value": value}, key=key)
        note(Note("done", key, facts={"value": 1}))


def hasty(session: Session, folder: str, note: Told) -> None:
    """Writes down what has happened before it has."""
    world = recorders._World(folder)
    for key in recorders.KEYS:
        if session._queue.find("effect/outcome", key) is None:
            session.append("effect/outcome", {"status": "completed", "value": 1}, key=key)
            world.mark(key)
        note(Note("done", key, facts={"value": 1}))


@pytest.mark.parametrize(
    ("work", "finding"), [("careless", "happened 2 times"), ("hasty", "and did not happen")]
)
def test_kills_find_a_careless_ledger(tmp_path: Path, seed: int, work: str, finding: str) -> None:
    """The harness finds a ledger that lacks its intent, and one that claims too early."""
    with pytest.raises(Finding, match=finding):
        in_own_process(
            "perdure.testing.recorders:kill_effects",
            folder=str(tmp_path),
            seed=seed,
            work=f"tests.proof.test_effects:{work}",
        )


def test_kills_find_a_recorder_that_does_not_wait(tmp_path: Path, seed: int) -> None:
    """The harness finds a recorder whose checkpoints are only buffered."""
    with pytest.raises(Finding, match=r"reached|was done"):
        in_own_process("tests.proof.test_effects:kill_hasty_turns", folder=str(tmp_path), seed=seed)


def kill_hasty_turns(folder: str, seed: int) -> dict[str, int]:
    """Kill recorders that buffer everything."""
    Session.append = Session.buffer  # type: ignore[method-assign]
    return recorders.kill_turns(folder, seed)
