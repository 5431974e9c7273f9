"""Evidence says what was told, or less for a while: whoever dies, whatever the disk does."""

import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import StorageUnavailable
from perdure.evidence import Acceptance, Deleted, Evidence, Seen
from perdure.evidence.database import Database
from perdure.model.record import Position
from perdure.testing import testimony
from perdure.testing.crash import crash_points, in_own_process
from perdure.testing.faults import CODES, Fault, fail_calls
from perdure.testing.ledger import Finding
from perdure.testing.sqlite_faults import SQLITE_KINDS, FaultyFiles
from perdure.testing.vfs import SQLITE_CALLS, standing_between
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

DIGEST = "ab" * 32


def test_dead_keepers_of_evidence(tmp_path: Path, seed: int) -> None:
    """Whoever dies in a commit of evidence, half a page included, leaves it before or after."""
    counts = in_own_process(
        "perdure.testing.testimony:kill_keepers_of_evidence",
        folder=str(tmp_path),
        seed=seed,
        share=scaled(100) / 200,
    )
    summarise("deaths of keepers of evidence", seed, counts)
    reached = {"vfs.half", "vfs.written"}
    if SOAK:
        reached = {*crash_points("perdure.evidence"), *crash_points("perdure.testing.vfs")}
    assert reached <= counts.keys()


def test_evidence_survives_a_loss_of_power(tmp_path: Path, seed: int) -> None:
    """Whatever the disk does with what was not synced, evidence keeps what it acknowledged."""
    counts = in_own_process(
        "perdure.testing.testimony:replay_evidence",
        folder=str(tmp_path),
        seed=seed,
        histories=scaled(800),
    )
    summarise("evidence without power", seed, counts)
    assert counts["histories"] >= scaled(800)


@pytest.mark.reads_for_itself(reason="there are no logs")
def test_evidence_on_a_failing_disk(tmp_path: Path, seed: int) -> None:
    """Whichever call of SQLite's fails, evidence loses nothing and is not taken for damaged."""
    counts = testimony.fail_evidence(str(tmp_path), seed, scaled(1000))
    summarise("evidence on a failing disk", seed, counts)
    assert {f"{kind}/{code}" for kind in SQLITE_CALLS for code in CODES} <= counts.keys()
    assert counts["storage-full"] > 0
    assert counts["storage-unavailable"] > 0


@pytest.mark.reads_for_itself(reason="a fresh store judged each one before it was removed")
def test_a_store_on_a_disk_that_fails_sqlite(tmp_path: Path, seed: int) -> None:
    """Evidence that cannot be read or written keeps no log from that, and accuses none."""
    runs = scaled(1000)
    counts = fail_calls(str(tmp_path), seed, runs, stand=FaultyFiles)
    summarise("stores whose evidence fails", seed, counts)
    kinds = [kind for kind in SQLITE_KINDS if counts[f"{kind}/sites"]]
    assert {"sqlite open", "sqlite read", "sqlite write", "sqlite sync"} <= {*kinds}
    assert all(f"{kind}/{code}/lasting" in counts for kind in kinds for code in CODES)


# --- the harnesses find evidence that keeps less -------------------------------------------------


def lose_journals(folder: str, seed: int, share: float) -> Any:
    """Kill keepers, and lose their journals."""
    perform = testimony._perform

    def performed(case: Any, place: str, *more: Any) -> Any:
        told = perform(case, place, *more)
        journal = os.path.join(place, "evidence.sqlite-journal")
        if os.path.exists(journal):
            os.unlink(journal)
        return told

    setattr(testimony, "_perform", performed)  # noqa: B010
    return testimony.kill_keepers_of_evidence(folder, seed, share)


def test_lost_journals_are_noticed(tmp_path: Path, seed: int) -> None:
    """Without the journal of a commit that was broken off, the harness finds damage."""
    with pytest.raises(Finding, match=r"taken for damaged|it says|readers hear"):
        in_own_process(
            "tests.proof.test_sqlite_evidence:lose_journals",
            folder=str(tmp_path),
            seed=seed,
            share=1.0,
        )


def test_missing_syncs_are_noticed(tmp_path: Path, seed: int) -> None:
    """With syncs switched off the replay finds that acknowledged evidence is lost."""
    with pytest.raises(Finding):
        in_own_process(
            "perdure.testing.testimony:replay_evidence",
            folder=str(tmp_path),
            seed=seed,
            histories=500,
            sync=False,
        )


@pytest.mark.reads_for_itself(reason="there are no logs")
def test_a_file_that_a_refused_act_made_is_there(tmp_path: Path) -> None:
    """What is forgotten where only an empty file was made leaves a mark, and that is in order."""
    begin = tmp_path / "begin"
    begin.mkdir(mode=0o700)
    seen = [("", Seen(session, DIGEST, Position(3, DIGEST), 5)) for session in ("s", "t")]
    case = testimony._Case("an empty file", 0)
    case.acts = [testimony.Act("note", (seen,)), testimony.Act("forget", ("", "s"))]
    system = FaultyFiles(Fault("sqlite write", 1, "EACCES", lasting=False))
    counts: Counter[str] = Counter()
    began = testimony._Begin(str(begin), 0, Counter())
    testimony._fail(case, began, str(tmp_path / "run"), system, counts)
    assert counts == {"storage-unavailable": 1}


@pytest.mark.reads_for_itself(reason="there are no logs")
def test_what_zeros_hid_may_stand_and_nothing_else(tmp_path: Path) -> None:
    """Where SQLite was shown zeros, a row may outlast its removal, and none comes from nowhere."""
    tmp_path.chmod(0o700)
    case = testimony._Case("hidden rows", 0)
    position, decision = Position(3, DIGEST), Position(1, DIGEST)
    accepted = Acceptance("s", DIGEST, decision, None, 6)
    case.acts = [
        testimony.Act("note", ([("", Seen("s", DIGEST, position, 5))],)),
        testimony.Act("accept", ("", accepted)),
        testimony.Act("accept", ("", accepted)),
    ]
    evidence = Evidence(str(tmp_path))
    # The position was not found when it was to go, nor the first acceptance when there were two.
    evidence.accept("", accepted)
    evidence.replace("", Seen("s", DIGEST, position, 5))
    case.check_truth(str(tmp_path), [(0, 1, 2)])
    evidence.replace("", Seen("s", DIGEST, Position(4, DIGEST), 5))
    with pytest.raises(Finding, match="nobody told"):
        case.check_truth(str(tmp_path), [(0, 1, 2)])


@pytest.mark.reads_for_itself(reason="there are no logs")
def test_hasty_judgement_is_noticed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Evidence that takes a page which cannot be read for damage is found out."""
    monkeypatch.setattr(Database, "_sure", lambda _, file, use: use(file))
    with pytest.raises(Finding, match=r"taken for damaged|foreign exception"):
        testimony.fail_evidence(str(tmp_path), seed, 400)


# --- what a page that cannot be read means -------------------------------------------------------


@pytest.mark.parametrize("lasting", [False, True])
def test_a_page_that_cannot_be_read_is_no_damage(tmp_path: Path, *, lasting: bool) -> None:
    """A read that fails in the middle of a statement costs no tombstone."""
    tmp_path.chmod(0o700)
    Evidence(str(tmp_path)).bury("", Deleted("s", DIGEST, 5))
    failed: list[str] = []

    def judge(kind: str) -> str | None:
        if kind != "sqlite read" or (failed and not lasting):
            return None
        failed.append(kind)
        return "EIO"

    with standing_between(judge=judge):
        evidence = Evidence(str(tmp_path))
        with pytest.raises(StorageUnavailable) if lasting else nullcontext():
            evidence.bury("", Deleted("t", DIGEST, 6))
    assert failed
    evidence = Evidence(str(tmp_path))
    assert [*evidence.set_aside] == []
    assert evidence.deleted("", "s") == Deleted("s", DIGEST, 5)
    assert (evidence.deleted("", "t") is None) == lasting
