"""A copy is killed at every place, and the next one ends as if nobody had died."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perdure.evidence import Seen
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store import Copied, Store
from perdure.store.copying import _Copy
from perdure.store.witness import Witness
from perdure.testing.copying import KINDS, SCENES, open_any
from perdure.testing.crash import in_own_process
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise
from tests.support import SOAK, scaled, soaked

pytestmark = pytest.mark.proof

KILL = "perdure.testing.copying:kill_copiers"
CUT = "perdure.testing.copy_blackouts:black_out_copies"
POINTS = ("write.after", "write.half", "sync.before", "move.before", "move.after", "folder.sync")


def test_deaths_leave_a_beginning_that_is_gone_on_with(tmp_path: Path, seed: int) -> None:
    """Whoever dies while a store is copied: the source is untouched, the next copy finishes it."""
    share = scaled(20) / 100
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, share=share, every_point=SOAK)
    summarise("deaths of copiers", seed, counts)
    assert {f"scene {scene} {kind}" for scene in SCENES for kind in KINDS} <= counts.keys()
    assert counts["beginnings"] > 0
    if SOAK:
        reached = {f"{point} {kind}" for point in POINTS for kind in ("zst", "raw")}
        reached |= {f"vfs.half {kind}" for kind in ("sqlite", "bundle")}
        reached |= {f"{point} {kind}" for point in ("vfs.write", "vfs.sync") for kind in KINDS}
        assert reached - counts.keys() == set()


def test_what_a_copy_says_outlasts_the_power(tmp_path: Path, seed: int) -> None:
    """What a copy finds that a dead one left is there for good when it says so."""
    share = 0.15 if SOAK else 0.02
    counts = in_own_process(CUT, folder=str(tmp_path), seed=seed, share=share)
    summarise("loss of power behind copies", seed, counts)
    assert {f"scene {scene} {kind}" for scene in SCENES for kind in KINDS} <= counts.keys()
    assert {"copied", "continued", "unchanged"} <= counts.keys()


# --- the harness finds copies that keep less ------------------------------------------------------


@cache
def content_comes_last() -> None:
    """Events are published before the content that they name."""
    put, arrived = _Copy._put, _Copy._arrived
    waiting: list[tuple[Any, ...]] = []

    def wait(*arguments: Any) -> None:
        waiting.append(arguments)

    def put_at_last(*arguments: Any) -> Copied:
        while waiting:
            put(*waiting.pop())
        return arrived(*arguments)

    _Copy._put = wait  # type: ignore[assignment, method-assign]
    _Copy._arrived = put_at_last  # type: ignore[assignment, method-assign]


@cache
def a_writer_goes_first() -> None:
    """What is open in the destination is closed before it is gone on with."""
    go_on = _Copy._go_on

    def close(copy: Any, at: Position, wait: float) -> Copied:
        Store(copy._target.backend).writer(copy._id).close()
        return go_on(copy, at, wait)

    _Copy._go_on = close  # type: ignore[assignment, method-assign]


@cache
def evidence_comes_first() -> None:
    """A session is remembered before it is stored."""
    create = _Copy._create

    def boast(copy: Any) -> Copied:
        witness = copy._target.witness
        copy._target.backend.stage(copy._header).release()
        seen = Seen(copy._id, copy._header.digest, copy._until, 5)
        witness.evidence.note([(witness.namespace, seen)])
        return create(copy)

    _Copy._create = boast  # type: ignore[assignment, method-assign]
    Witness.announce = lambda *_: None  # type: ignore[method-assign]


@cache
def what_is_found_counts() -> None:
    """Records that nobody noted are taken for durable."""

    def noted(copy: Any) -> Seen:
        return Seen(copy._id, copy._header.digest, Position(1 << 40, "0" * 64), 1 << 50)

    _Copy._noted = noted  # type: ignore[assignment, method-assign]


def open_trusting(path: str, kind: str, runtime: Runtime) -> Store:
    what_is_found_counts()
    return open_any(path, kind, runtime)


def open_late(path: str, kind: str, runtime: Runtime) -> Store:
    content_comes_last()
    return open_any(path, kind, runtime)


def open_closing(path: str, kind: str, runtime: Runtime) -> Store:
    a_writer_goes_first()
    return open_any(path, kind, runtime)


def open_boasting(path: str, kind: str, runtime: Runtime) -> Store:
    evidence_comes_first()
    return open_any(path, kind, runtime)


@pytest.mark.parametrize(
    ("opener", "found"),
    [
        (open_late, "names content before it is there"),
        (open_closing, "is not equal"),
        (open_boasting, "is called missing|were acknowledged and are missing"),
    ],
)
def test_a_copy_that_keeps_less_is_found(
    tmp_path: Path, seed: int, opener: Callable[..., Store], found: str
) -> None:
    """A copy whose steps come in another order, or that writes on its own, fails the proof."""
    name = f"tests.proof.test_copying:{opener.__name__}"
    with pytest.raises(Finding, match=found):
        in_own_process(KILL, folder=str(tmp_path), seed=seed, share=0.3, kinds=["raw"], opener=name)


@pytest.mark.parametrize("kind", ["raw", *soaked("sqlite")])
def test_a_copy_that_trusts_what_it_finds_is_found(tmp_path: Path, kind: str) -> None:
    """A copy that calls unchanged what nobody synced fails the proof."""
    opener = "tests.proof.test_copying:open_trusting"
    options = {"seed": 5, "share": 0.1, "kinds": [kind], "opener": opener}
    with pytest.raises(Finding, match="after the loss of power"):
        in_own_process(CUT, folder=str(tmp_path), **options)
