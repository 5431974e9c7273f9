"""What it costs to import sessions of other agents, and to look again where nothing is new.

An import is held against what it cannot do without: reading the files and decoding their lines, and
writing as many bytes in as many commits. Each row says how much of the time went into commits, and
how much of that into waiting for the disk, as far as Python asks it to: SQLite syncs by itself.
"""

import json
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import perdure
from benchmarks.measure import SQLITE, Floor, opened, timed
from benchmarks.table import Row
from perdure.importers import sync

SESSIONS, LINES = 1_000, 40
FILE_BYTES = 50_000_000
ROUNDS = 3
MB = 1_000_000

_HEX = "0123456789abcdef"


class Spent(NamedTuple):
    """Nanoseconds of one import, of its commits and syncs among them, and how many commits."""

    whole: int
    commits: int
    syncs: int
    many: int


def imports(folder: Path, medium: str) -> Iterator[Row]:
    """1,000 small sessions, one file of 50 MB, and the same files again."""
    small, large = folder / "sources-small", folder / "sources-large"
    if not small.exists():
        _write_sessions(small)
        _write_session(large, 0, FILE_BYTES)
    yield from _rows(folder, medium, small, f"{SESSIONS:,} sessions", rounds=1)
    yield from _rows(folder, medium, large, "one session", rounds=ROUNDS)


def _rows(folder: Path, medium: str, sources: Path, what: str, *, rounds: int) -> Iterator[Row]:
    paths = sorted(sources.rglob("*.jsonl"))
    size = sum(path.stat().st_size for path in paths)
    ours, read, written, again, looks = [], [], [], [], []
    for number in range(rounds):
        root = folder / f"imports-{medium}-{sources.name}-{number}"
        root.mkdir(0o700)
        read.append(timed(lambda: _decode(paths)))
        with opened(root, medium) as store:
            ours.append(_spent(store, sources))
        written.append(_written(root / "floor", size, ours[-1].many))
        looks.append(timed(lambda: [path.stat() for path in paths]))
        with opened(root, medium) as store:
            again.append(timed(lambda: _check(sync(store, [sources]), 0)))
    mine = statistics.median(spent.whole for spent in ours)
    spent = min(ours, key=lambda each: abs(each.whole - mine))
    what = f"{what}, {size / MB:.0f} MB"
    rates = {"MB_s": size / MB / mine * 1e9, "sessions_s": len(paths) / mine * 1e9}
    yield _row(f"{what}, beside reading and decoding", mine, read, rates)
    shares = {"commits": spent.many, "in_commits": f"{spent.commits / spent.whole:.0%}"}
    if medium != SQLITE:
        shares["in_syncs"] = f"{spent.syncs / spent.whole:.0%}"
    yield _row(f"{what}, beside a sync for each commit", mine, written, shares)
    once = statistics.median(again)
    files = {"files_s": len(paths) / once * 1e9}
    yield _row(f"{what}, unchanged, beside a stat of each file", once, looks, files)


def _row(what: str, ours: float, floor: list[int], more: dict[str, Any]) -> Row:
    return Row(what, ours / 1e6, statistics.median(floor) / 1e6, "ms", more=more)


# --- ours -----------------------------------------------------------------------------------------


def _spent(store: perdure.Store, sources: Path) -> Spent:
    """Import with a clock around each commit and each sync."""
    backend = store._backend  # noqa: SLF001 - nobody else needs to know
    commits, syncs = Clock(), Clock()
    for name in ("commit", "publish"):
        setattr(backend, name, commits.around(getattr(backend, name)))
    with _replaced(os, {name: syncs.around(getattr(os, name)) for name in ("fsync", "fdatasync")}):
        whole = timed(lambda: _check(sync(store, [sources])))
    return Spent(whole, commits.spent, syncs.spent, commits.count)


def _check(report: Any, new: int | None = None) -> None:
    lines = report.found if new is None else new
    if report.failed or report.skipped or not report.sources or report.new != lines:
        raise RuntimeError(f"{report.states}, {report.new} lines are new")


class Clock:
    """Adds up how long calls take, but for those of other threads."""

    def __init__(self) -> None:
        self.spent = self.count = 0
        self._thread = threading.get_ident()

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def clocked(*given: Any, **named: Any) -> Any:
            start = time.perf_counter_ns()
            try:
                return call(*given, **named)
            finally:
                if threading.get_ident() == self._thread:
                    self.spent += time.perf_counter_ns() - start
                    self.count += 1

        return clocked


@contextmanager
def _replaced(where: Any, names: dict[str, Any]) -> Iterator[None]:
    kept = {name: getattr(where, name) for name in names}
    for name, value in names.items():
        setattr(where, name, value)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(where, name, value)


# --- the floors -----------------------------------------------------------------------------------


def _decode(paths: list[Path]) -> None:
    """Read every line as a JSON value."""
    decode = msgspec.json.Decoder().decode
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                decode(line)


def _written(path: Path, size: int, commits: int) -> int:
    """How long as many bytes take in one file, in as many commits, each a write and a sync."""
    floor = Floor(path)
    part = os.urandom(size // commits)
    spent = sum(timed(lambda: floor.append(part)) for _ in range(commits))
    floor.close()
    path.unlink()
    return spent


# --- the sources ----------------------------------------------------------------------------------


def _write_sessions(root: Path) -> None:
    for number in range(SESSIONS):
        _write_session(root, number)


def _write_session(root: Path, number: int, size: int | None = None) -> None:
    """A session as Claude Code writes it: of 40 lines, or of `size` bytes and the last line."""
    rng = random.Random(number)
    words = ["".join(rng.choices(_HEX, k=rng.randrange(2, 10))) for _ in range(400)]
    id = f"{number:08x}-0000-4000-8000-000000000000"
    path = root / "projects" / f"-srv-app-{number % 20}" / f"{id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("wb") as file:
        while count < LINES if size is None else file.tell() < size:
            text = " ".join(rng.choices(words, k=rng.randrange(5, 240)))
            file.write(json.dumps(_record(id, count, text)).encode() + b"\n")
            count += 1


def _record(session: str, number: int, text: str) -> dict[str, Any]:
    role = ("user", "assistant")[number % 2]
    return {
        "parentUuid": f"{number - 1:08x}-0000-4000-8000-000000000000" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/app",
        "sessionId": session,
        "version": "2.1.39",
        "gitBranch": "main",
        "type": role,
        "message": {"role": role, "content": [{"type": "text", "text": text}]},
        "uuid": f"{number:08x}-0000-4000-8000-000000000000",
        "timestamp": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
    }
