"""Writers that are killed while they keep a checkpoint leave one that folds like the log."""

import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.testing.agents import ScriptedRuntime
from perdure.testing.crash import ANY, HALF, Death, Executioner, forked, in_own_process
from perdure.testing.ledger import Note
from perdure.testing.survival import check_fold
from tests.folds import Jumble, from_the_start, rows_of, turn
from tests.media import open_medium
from tests.proof.summary import summarise
from tests.support import SOAK

pytestmark = pytest.mark.proof

TURNS = 6


def opened(kind: str, folder: Path, seed: str) -> perdure.Store:
    """A store that keeps checkpoints at once, and so at the same places each time."""
    runtime = ScriptedRuntime(seed)
    store = open_medium(kind, folder, views=[Jumble()], runtime=runtime, index=False)
    store._flusher.stop()
    return store


def work(kind: str, folder: Path, seed: str, first: int) -> None:
    """Turns by one writer, with a compaction that makes a new base worth while, and by the next."""
    with opened(kind, folder, seed) as store:
        with store.writer("s") if first else store.create("s") as session:
            session.fold()
            for number in range(first, first + TURNS):
                batch = turn(number)
                if number % TURNS == 3:
                    batch[3]["data"] = {"content": [{"type": "text", "text": "much " * 40_000}]}
                if number % TURNS == 4:
                    summary = [{"type": "text", "text": "so far"}]
                    batch.insert(-1, {"type": "context/compacted", "data": {"summary": summary}})
                session.append_many(batch[:4])
                session.append_many(batch[4:])
        with store.writer("s") as session:
            session.append_many(turn(first + TURNS))


def child(kind: str, folder: Path, seed: str, first: int, death: Death) -> Sequence[Note]:
    """What a child that dies as ordered says."""

    def body(note: Callable[[Note], None]) -> None:
        executioner = Executioner(death, note)
        executioner.arm()
        work(kind, folder, seed, first)
        note(Note("visits", facts=executioner.told))
        note(Note("names", facts={"all": executioner.names}))

    return [*forked(body, seed)]


def check(kind: str, folder: Path, seed: str, *, stored: bool) -> bool:
    """Demand that readers and writers come to the rows of the log; whether a checkpoint helped."""
    with opened(kind, folder, f"{seed}:check") as store:
        if not [entry for entry in store.list() if entry.id == "s"]:
            assert not stored
            return False
        loaded = store._folds.load("s")
        assert rows_of(store.inspect("s").fold(closed=False)) == from_the_start(store, "s")
        check_fold(store.inspect("s").fold(), [*store.inspect("s").events])
        with store.writer("s") as session:
            assert rows_of(session.fold()) == from_the_start(store, "s")
            session.append_many(turn(99))
        assert store._folds.load("s").checkpoint is not None
        assert rows_of(store._folds.load("s").fold) == from_the_start(store, "s")
        assert store.verify("s").sound
        return loaded.checkpoint is not None


def chosen(deaths: Sequence[Death], names: Sequence[str], rng: random.Random) -> list[Death]:
    """One at each point, then those beside derived data, and then whichever come."""
    drawn = rng.sample(deaths, len(deaths))
    near = {
        death
        for visit, name in enumerate(names)
        if name.startswith("derived.")
        for death in deaths[visit : min(visit + 4, len(names))]
    }
    one = set({death.point: death for death in drawn}.values())
    beside = {death for death in drawn if death.point == HALF or death in near}
    return sorted(drawn, key=lambda death: (death not in one, death not in beside))


def kill_each(folder: str, kind: str, seed: str, most: int) -> dict[str, int]:
    """Kill a writer at visit after visit of crash points; at each of them, if `most` allows."""
    counts: Counter[str] = Counter()
    root = Path(folder)
    base = root / "base"
    base.mkdir(0o700)
    work(kind, base, f"{seed}:base", 0)
    rehearsal = root / "rehearsal"
    shutil.copytree(base, rehearsal)
    notes = child(kind, rehearsal, seed, 50, Death())
    names = next(note.facts["all"] for note in notes if note.kind == "names")
    visits = next(note.facts for note in notes if note.kind == "visits")
    shutil.rmtree(rehearsal)
    # By name: how often a child comes to others before may differ from one to the next.
    deaths = [Death(name, names[:visit].count(name)) for visit, name in enumerate(names, 1)]
    deaths += [Death(HALF, visit) for visit in range(1, visits.get(HALF, 0) + 1)]
    if len(deaths) > most:
        deaths = chosen(deaths, names, random.Random(seed))[:most]
    for death in deaths:
        place = root / "trial"
        shutil.copytree(base, place)
        try:
            last = child(kind, place, seed, 50, death)[-1]
            counts[last.facts.get("point") or last.kind] += 1
            helped = check(kind, place, seed, stored=True)
            counts["with a checkpoint" if helped else "without"] += 1
        except BaseException as error:
            error.add_note(f"{kind}, {death}")
            raise
        shutil.rmtree(place)
    return dict(counts)


@pytest.mark.parametrize("kind", ["zst", "raw", "sqlite"])
def test_kills_leave_checkpoints_that_fold_like_the_log(
    kind: str, tmp_path: Path, seed: int
) -> None:
    """Killed at any step of keeping a checkpoint: reopened, the fold is that of event 0."""
    counts: dict[str, Any] = in_own_process(
        "tests.proof.test_checkpoints:kill_each",
        folder=str(tmp_path),
        kind=kind,
        seed=str(seed),
        # Of some 260 places in a folder, and 90 in a file.
        most=10_000 if SOAK else 40,
    )
    summarise(f"kills of checkpoints, {kind}", seed, counts)
    if kind == "sqlite":
        assert {"sqlite.begun", "sqlite.changed", "sqlite.committed"} <= counts.keys()
    else:
        wanted = {"derived.append", "derived.put", "write.before", "write.half", "move.before"}
        assert wanted <= counts.keys()
    assert counts["with a checkpoint"] > sum(counts.values()) // 4


def test_a_first_writer_is_killed(tmp_path: Path, seed: int) -> None:
    """A session that was killed before its first turn ended folds as well, with no checkpoint."""
    found = in_own_process(
        "tests.proof.test_checkpoints:kill_first", folder=str(tmp_path), seed=str(seed)
    )
    assert found["died"] > 0
    assert found["helped"] < found["died"]


def kill_first(folder: str, seed: str) -> dict[str, int]:
    """Kill the writer that creates a session, at steps of its life that lie apart."""
    counts = Counter({"died": 0, "helped": 0})
    for number, visit in enumerate(itertools.count(1, 7)):
        place = Path(folder) / str(number)
        place.mkdir(0o700)
        last = child("zst", place, seed, 0, Death(ANY, visit))[-1]
        counts["helped"] += check("zst", place, seed, stored=False)
        if last.kind == "finished":
            return dict(counts)
        counts["died"] += 1
    raise AssertionError
