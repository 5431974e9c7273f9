"""`make bench`: what the log costs, as ratios against the physical floor in the same run.

Each time stands beside a bare loop of system calls that writes the same bytes, measured in turns
with it, so that a busy disk slows both. Times are medians. A bound is what the design asks for.
`make bench PARTS="folders postgres"` measures some parts alone.
"""

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import (
    appends,
    imports,
    memory,
    postgres,
    reads,
    resume,
    searching,
    serving,
    sizes,
    sqlite,
    vectors,
)
from benchmarks.measure import ENCODINGS, ROUNDS, SQLITE
from benchmarks.table import Row, section


def main(arguments: list[str]) -> int:
    """Measure the parts that are named, or all of them; with --json also as JSON."""
    wanted = [each for each in arguments if not each.startswith("--")] or [*PARTS]
    unknown = {*wanted} - PARTS.keys()
    if unknown:
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
        return 2
    started = time.perf_counter()
    print(f"perdure bench: Python {platform.python_version()}, {os.cpu_count()} cores")
    print(f"{ROUNDS} commits a figure; floor = one write + fdatasync of the same number of bytes")
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as name:
        rows = [row for part in wanted for row in PARTS[part](Path(name))]
    print(f"\n{time.perf_counter() - started:.0f} s")
    if "--json" in arguments:
        print(json.dumps([row.as_dict() for row in rows]))
    missed = [row.what for row in rows if row.met is False]
    print("all bounds kept" if not missed else f"MISS: {'; '.join(missed)}")
    return 0


def _measured_folders(folder: Path) -> Iterator[Row]:
    for encoding in ENCODINGS:
        yield from _measured(folder, encoding)


def _measured(folder: Path, encoding: str) -> Iterator[Row]:
    def table(title: str, ours: str, floor: str, rows: Iterator[Row]) -> Iterator[Row]:
        for row in section(f"{title}, {encoding}", ours, floor, rows):
            row.what = f"{row.what}, {encoding}"
            yield row

    yield from table("durable appends", "perdure", "floor", appends.commits(folder, encoding))
    yield from table("length of the session", "perdure", "floor", appends.lengths(folder, encoding))
    yield from table(
        "number of sessions", "perdure", "floor", appends.many_sessions(folder, encoding)
    )
    yield from table("cold reads", "long", "short", reads.cold(folder, encoding))
    yield from table("resume", "perdure", "floor", resume.resumes(folder, encoding))
    yield from table("bytes on disk", "stored", "plain JSON", sizes.sizes(folder, encoding))
    yield from table("peak memory", "above idle", "log", memory.peaks(folder, encoding))
    yield from table("imports", "perdure", "floor", imports.imports(folder, encoding))


def _measured_sqlite(folder: Path) -> Iterator[Row]:
    yield from section("durable appends, sqlite", "perdure", "bare apsw", sqlite.commits(folder))
    yield from section("the same, later", "perdure", "bare apsw", sqlite.recycled(folder))
    yield from section("cold reads, sqlite", "long", "short", reads.cold(folder, SQLITE))
    yield from section("resume, sqlite", "perdure", "floor", resume.resumes(folder, SQLITE))
    yield from section("bytes on disk, sqlite", "stored", "plain JSON", sizes.sizes(folder, SQLITE))
    yield from section("imports, sqlite", "perdure", "floor", imports.imports(folder, SQLITE))


def _measured_finding(folder: Path) -> Iterator[Row]:
    many, few = f"{searching.LARGE:,}", f"{searching.SMALL:,}"
    yield from section("listing", many, few, searching.listings(folder))
    yield from section("listing, sqlite", few, "100", searching.listings_of_file(folder))
    title = f"search among {searching.PASSAGES:,} passages"
    yield from section(title, "p50", "bound", searching.searches(folder))
    yield from section("commits and the index", "index", "none", searching.appends(folder))
    title = f"search among {vectors.COUNT:,} vectors of {vectors.DIMENSION} numbers"
    yield from section(title, "perdure", "beside", vectors.vectors(folder / "vectors"))


def _measured_serving(_: Path) -> Iterator[Row]:
    yield from section("a service under load", "loaded", "quiet", serving.serving())


def _measured_postgres(_: Path) -> Iterator[Row]:
    yield from postgres.sections()


PARTS: dict[str, Callable[[Path], Iterator[Row]]] = {
    "folders": _measured_folders,
    "sqlite": _measured_sqlite,
    "finding": _measured_finding,
    "serving": _measured_serving,
    "postgres": _measured_postgres,
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
