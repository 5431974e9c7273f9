"""Imports whose process is killed are finished by the next, as if nobody had died."""

import hashlib
import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from perdure.importers.appender import Appender
from perdure.importers.files import SourceFile
from perdure.importers.source import Stored
from perdure.model.event import Event
from perdure.runtime import Runtime
from perdure.store import Session, Store
from perdure.testing.crash import in_own_process
from perdure.testing.importing import KINDS, SCENES, open_any
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

DATA = Path(__file__).parent.parent / "data"
SAMPLES = [str(DATA / name) for name in ("claude-code", "codex", "deepseek-harness", "dsh")]
KILL = "perdure.testing.importing:kill_importers"


def test_killed_imports_end_as_if_nobody_had_died(tmp_path: Path, seed: int) -> None:
    """Whoever dies while he imports loses nothing that was acknowledged, and touches no source.

    The next import stores the rest, and no line twice.
    """
    kills = scaled(50)
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, kills=kills, samples=SAMPLES)
    summarise("deaths of importers", seed, counts)
    assert counts["kills"] >= kills
    assert counts["new new"] > 60
    states = ("new", "grown", "rewritten", "unchanged", "gone", "skipped")
    assert min(counts[f"{state} changed"] for state in states) > 0
    if SOAK:
        assert {f"scene {scene} {kind}" for scene in SCENES for kind in KINDS} <= counts.keys()
        points = {name.partition(" ")[0] for name in counts if name.endswith(KINDS)}
        assert len(points - {"scene", "moment"}) > 15
        assert min(counts["beginnings"], counts["died more than once"]) > 0


# --- the harness finds imports that keep less -----------------------------------------------------


@cache
def nothing_is_waited_for() -> None:
    """Lines count as stored as soon as they are accepted."""

    def append_many(session: Session, events: Iterable[Any], *, at: int | None = None) -> Any:
        del at
        return [session.buffer(**event) for event in events]

    setattr(Session, "append_many", append_many)  # noqa: B010


@cache
def content_comes_last() -> None:
    """Content is stored when everything else of its source is."""
    put, leave = Appender.content, Appender.__exit__
    waiting: list[bytes] = []

    def wait(to: Appender, parts: Iterable[bytes]) -> str:
        del to
        waiting.append(b"".join(parts))
        return hashlib.sha256(waiting[-1]).hexdigest()

    def put_at_last(to: Appender, *error: Any) -> None:
        while waiting and not to.dry:
            put(to, [waiting.pop()])
        leave(to, *error)

    setattr(Appender, "content", wait)  # noqa: B010
    setattr(Appender, "__exit__", put_at_last)  # noqa: B010


@cache
def sources_are_marked() -> None:
    """A source that was read gets the time at which it was."""
    close = SourceFile.close

    def mark(file: SourceFile) -> None:
        os.utime(file.path)
        close(file)

    setattr(SourceFile, "close", mark)  # noqa: B010


@cache
def what_is_there_is_past() -> None:
    """An import that goes on begins a generation of its own."""
    read = Stored.of

    def begun(format: str, events: Iterable[Event]) -> Stored:  # noqa: A002
        found = [*events]
        stored = read(format, found)
        past = {stored.generation + 1: 1 << 60} if found else {}
        return stored._replace(starts={**stored.starts, **past})

    setattr(Stored, "of", begun)  # noqa: B010


def open_hasty(path: str, kind: str, runtime: Runtime) -> Store:
    nothing_is_waited_for()
    return open_any(path, kind, runtime)


def open_late(path: str, kind: str, runtime: Runtime) -> Store:
    content_comes_last()
    return open_any(path, kind, runtime)


def open_marking(path: str, kind: str, runtime: Runtime) -> Store:
    sources_are_marked()
    return open_any(path, kind, runtime)


def open_restarting(path: str, kind: str, runtime: Runtime) -> Store:
    what_is_there_is_past()
    return open_any(path, kind, runtime)


@pytest.mark.parametrize(
    ("opener", "found"),
    [
        (open_hasty, "acknowledged"),
        # That takes some deaths.
        pytest.param(open_late, "names content before|damaged=\\('", marks=pytest.mark.soak),
        (open_marking, "a source was touched"),
        (open_restarting, "does not come out as it went in"),
    ],
)
def test_an_import_that_keeps_less_is_found(
    tmp_path: Path, seed: int, opener: Callable[..., Store], found: str
) -> None:
    """An import that is hasty, whose steps are in another order, or that writes fails the proof."""
    name = f"tests.proof.test_sync:{opener.__name__}"
    asked = {"folder": str(tmp_path), "seed": seed, "kills": 200, "opener": name}
    with pytest.raises(Finding, match=found):
        in_own_process(KILL, kinds=["raw"], **asked)
