"""Peak memory of a process that reads a long session, beyond one that has only imported."""

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import perdure
from benchmarks.measure import fill, log_path
from benchmarks.table import Row

SHORT, LONG = 10_000, 200_000
ROUNDS = 3
GROWTH_MAX = 4.0
"""MiB that twenty times as many events may add; the design asks that none depend on the log."""

ACTIONS = {
    "idle": "pass",
    "read_from": "for event in store.read_from('s'): pass",
    "verify": "assert store.verify('s').sound",
    "opening a writer": "store.writer('s').close()",
}

# ru_maxrss would count the process that started this one: exec keeps it. VmHWM begins anew.
_CHILD = """
import re, resource, sys
import perdure
with perdure.open(sys.argv[1]) as store:
    %s
try:
    status = open("/proc/self/status").read()
    print(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1])
except OSError:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(most // 1024 if sys.platform == "darwin" else most)
"""


def peaks(folder: Path, encoding: str) -> Iterator[Row]:
    """Each way of going through 200,000 events, next to the size of the log."""
    roots, logs = {}, {}
    for size in (SHORT, LONG):
        roots[size] = folder / f"memory-{encoding}-{size}"
        with perdure.open(roots[size], encoding=encoding, pack=False) as store:
            with store.create("s") as session:
                fill(session, size)
            logs[size] = log_path(store, "s").stat().st_size / 2**20
    idle = _peak(roots[SHORT], "idle")
    for action in list(ACTIONS)[1:]:
        short, long = (_peak(roots[size], action) - idle for size in (SHORT, LONG))
        growth = f"+{GROWTH_MAX:g} MiB from {SHORT:,} events"
        yield Row(
            f"{action}, {LONG:,} events",
            long,
            logs[LONG],
            "MiB",
            growth,
            long - short <= GROWTH_MAX,
            {f"at_{SHORT}": short, "idle": idle},
        )


def _peak(root: Path, action: str) -> float:
    """MiB."""
    command = [sys.executable, "-c", _CHILD % ACTIONS[action], str(root)]
    samples = [
        int(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(ROUNDS)
    ]
    return statistics.median(samples) / 1024
