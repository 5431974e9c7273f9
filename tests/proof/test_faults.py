"""A system that fails makes nobody lose what was acknowledged, and nothing foreign comes out."""

import ast
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from perdure import durable
from perdure.durable import files
from perdure.durable.files import Folder
from perdure.errors import PerdureError
from perdure.model.event import Event
from perdure.store import Session
from perdure.testing.crash import ENCODINGS, in_own_process
from perdure.testing.faults import CALLS, CHAPTERS, CODES, KINDS, FaultySystem, fail_calls, play
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise, tabulate
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

HARMLESS = {"close", "fspath", "fsencode", "strerror"}
"""Calls that cannot fail, or whose failure has no consequence."""


@pytest.mark.reads_for_itself(reason="a fresh store judged each one before it was removed")
def test_failing_calls_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Whichever system call fails, however and how long, the store keeps what it said."""
    runs = scaled(3000)
    counts = fail_calls(str(tmp_path), seed, runs)

    cells = Counter({tuple(name.split("/")): count for name, count in counts.items()})
    table = {
        kind: {
            **{
                code: f"{cells[kind, code, 'once']}+{cells[kind, code, 'lasting']}"
                for code in (*CODES, "short")
            },
            "sites": f"{cells[kind, 'tried']} of {cells[kind, 'sites']}",
        }
        for kind in KINDS
    }
    title = f"{runs} failing calls (seed {seed}), once+lasting: 0 lost, 0 foreign"
    tabulate(title, table)
    assert all(cells[kind, code, "lasting"] for kind in KINDS for code in CODES)
    assert all(cells[kind, code, "once"] for kind in CALLS for code in CODES)
    if SOAK:
        assert [kind for kind in CALLS if cells[kind, "tried"] < cells[kind, "sites"]] == []


def test_no_call_of_the_durable_layer_escapes() -> None:
    """Everything that the durable layer asks of the system can be made to fail."""
    asked = set()
    for folder in durable.__path__:
        for path in Path(folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    if isinstance(owner, ast.Name) and owner.id in ("os", "fcntl"):
                        asked.add(node.func.attr)

    assert asked - HARMLESS == CALLS


@pytest.mark.reads_for_itself(reason="a fresh store judged each one before it was removed")
def test_a_clock_that_jumps_back_changes_no_order(tmp_path: Path, seed: int) -> None:
    """Events stand in the order of their acceptance, whatever the clock says meanwhile."""
    runs = scaled(200)
    rng = random.Random(seed)
    for number in range(runs):
        script = f"{seed}:{number}:{rng.choice([*CHAPTERS])}"
        errors = play(str(tmp_path), ENCODINGS[number % 2], script, FaultySystem(), jumps=True)
        assert errors.keys() <= {"session-exists", "session-not-found", "content-expired"}
    summarise("clocks that jump back", seed, {"runs": runs})


def test_real_limits_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Without descriptors, or with files that may not grow, the kernel's refusals are told."""
    runs = scaled(200)
    limits = in_own_process(
        "perdure.testing.quotas:meet_limits", folder=str(tmp_path), seed=seed, runs=runs
    )
    summarise("limits of the process", seed, limits)
    assert limits["open files"] + limits["size of files"] == runs
    assert limits["storage-full"] > 0
    assert limits["storage-unavailable"] > 0


# --- the harness itself -------------------------------------------------------------------------


def hasty(session: Session, events: Iterable[Mapping[str, Any]], **_: Any) -> list[Event]:
    """Acknowledges what is only buffered."""
    return [session.buffer(**event) for event in events]


def careless(folder: Folder) -> list[str]:
    """Lets errors of the system out as they are."""
    return sorted(vars(files)["os"].listdir(folder.fd))


def silent(session: Session) -> None:
    """Says nothing of what could not be stored."""
    with suppress(PerdureError):
        _close(session)


_close = Session.close


@pytest.mark.reads_for_itself(reason="these stores are spoilt on purpose")
@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ((Session, "append_many", hasty), "is not at|is lost with|not listed"),
        ((Folder, "names", careless), "a foreign exception: .*Error"),
        ((Session, "close", silent), "is not at|is lost with|lost in silence"),
    ],
)
def test_the_harness_finds_what_it_looks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: tuple[type, str, Any], said: str
) -> None:
    """A writer that is hasty, careless or silent about failures is found out."""
    monkeypatch.setattr(*spoilt)

    with pytest.raises(Finding, match=said):
        fail_calls(str(tmp_path), 1, 300, findings=1)


@pytest.mark.reads_for_itself(reason="a fresh store judged each one before it was removed")
def test_a_script_makes_the_same_calls_each_time(tmp_path: Path, seed: int) -> None:
    """Two runs of one script ask the system for the same, so that a visit names one call."""
    for chapter in CHAPTERS:
        seen = []
        for number in range(2):
            folder = tmp_path / f"{chapter}{number}"
            os.mkdir(folder, 0o700)
            system = FaultySystem()
            play(str(folder), ENCODINGS[0], f"{seed}:{chapter}", system)
            seen.append(system.seen)
        assert seen[0] == seen[1]
