"""The last page of a long session, read by a process that has read nothing before."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import fill, location, opened
from benchmarks.table import Row, at_most

SHORT, LONG = 10_000, 200_000
ROUNDS = 9

_COLD = """
import sys, time
started = time.perf_counter_ns()
import perdure
imported = time.perf_counter_ns()
with perdure.open(sys.argv[1]) as store:
    last = store.inspect("s").position.seq
    events = list(store.read_from("s", last - 49))
assert len(events) == 50 and events[-1].seq == last
done = time.perf_counter_ns()
print(done - imported, done - started)
"""


def cold(folder: Path, medium: str) -> Iterator[Row]:
    """The last 50 events; derived files do not exist yet, so none have to be deleted."""
    yield _cold(folder, medium, packed=True)
    if medium != "raw":
        yield _cold(folder, medium, packed=False)


def _cold(folder: Path, medium: str, *, packed: bool) -> Row:
    roots = {size: folder / f"cold-{medium}-{size}-{packed}" for size in (SHORT, LONG)}
    for size, root in roots.items():
        with opened(root, medium, pack=packed) as store:
            with store.create("s") as session:
                fill(session, size)
            if not packed:
                store.compact("s")
    samples: dict[int, list[tuple[int, int]]] = {size: [] for size in roots}
    for _ in range(ROUNDS):
        for size, root in roots.items():
            out = subprocess.run(
                [sys.executable, "-c", _COLD, location(root, medium)],
                check=True,
                capture_output=True,
            ).stdout.split()
            samples[size].append((int(out[0]), int(out[1])))
    (short, _), (long, with_import) = (
        [statistics.median(pair[index] for pair in samples[size]) / 1000 for index in (0, 1)]
        for size in roots
    )
    what = f"last 50 of {LONG:,} against {SHORT:,}, {'packed' if packed else 'single'}"
    return at_most(what, long, short, "us", 2, with_import_us=with_import)
