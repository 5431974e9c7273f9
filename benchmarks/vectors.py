"""What it costs to keep vectors, and to find the nearest among 100,000 of them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, at_most
from perdure.embedding.arithmetic import checked
from perdure.embedding.sqlite import NAME, SqliteVectors
from perdure.embedding.vectors import Made

__all__ = ["COUNT", "DIMENSION", "vectors"]

COUNT, DIMENSION = 100_000, 256
_CLUSTERS = 500
_SPREAD = 1.0
"""How far a vector lies from the middle of its cluster: about as far as the middles from zero."""

_BATCH = 64
_QUERIES = 60
_SESSION = 110
_MOST = 10
_RECALL_MIN = 0.99
_PEAK_MIB = 48

_COLD = """
import json, re, sys, time
import numpy as np
from perdure.embedding.sqlite import SqliteVectors

def peak():
    found = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
    return int(found[1]) * 1024

query = np.load(sys.argv[2])
idle = peak()
begun = time.perf_counter()
SqliteVectors(sys.argv[1], read_only=True).nearest("m", query, None, 10)
print(json.dumps([time.perf_counter() - begun, peak() - idle]))
"""


def vectors(folder: Path) -> Iterator[Row]:
    """Build rate, bytes, the nearest of all, of one session, and by how much that is exact."""
    folder.mkdir(0o700)
    rng = np.random.default_rng(7)
    middles = rng.standard_normal((_CLUSTERS, DIMENSION))

    def drawn(count: int) -> Any:
        near = middles[rng.integers(0, _CLUSTERS, count)]
        return near + _SPREAD * rng.standard_normal((count, DIMENSION))

    rows = checked(drawn(COUNT), COUNT, DIMENSION, "bench")
    queries = checked(drawn(_QUERIES), _QUERIES, DIMENSION, "bench")
    store = SqliteVectors(str(folder))
    store.begin("m", "bench", DIMENSION)
    begun = time.perf_counter()
    for at in range(0, COUNT, _BATCH):
        some = rows[at : at + _BATCH]
        store.put("m", [Made(at + number, 0) for number in range(len(some))], some)
    seconds = time.perf_counter() - begun
    store.complete("m")
    yield Row("vectors kept a second, in batches", COUNT / seconds, 1, "/s")
    store.close()
    size = (folder / NAME).stat().st_size
    yield Row("bytes, beside the numbers in 16 bits", size, COUNT * DIMENSION * 2, "bytes")
    yield from _searched(SqliteVectors(str(folder), read_only=True), rows, queries)
    np.save(folder / "query.npy", queries[0])
    command = [sys.executable, "-c", _COLD, str(folder), str(folder / "query.npy")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cold, peak = json.loads(done.stdout)
    yield Row("the first search of a process", cold * 1e6, 1e6, "us")
    yield at_most("peak memory of a search, MiB", peak / 2**20, _PEAK_MIB, "MiB", 1.0)


def _searched(store: SqliteVectors, rows: Any, queries: Any) -> Iterator[Row]:
    store.nearest("m", queries[0], None, _MOST)
    ours, floor, one, met = [], [], [], 0
    for number, query in enumerate(queries):
        begun = time.perf_counter()
        found = store.nearest("m", query, None, _MOST)
        ours.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        scores = rows @ query
        exact = np.argpartition(-scores, _MOST)[:_MOST]
        floor.append(time.perf_counter() - begun)
        met += len({each.digest for each in found} & {int(place) for place in exact})
        session = range(number * _SESSION, (number + 1) * _SESSION)
        begun = time.perf_counter()
        store.nearest("m", query, session, _MOST)
        one.append(time.perf_counter() - begun)
    beside = _middle(floor)
    p95 = f"{sorted(ours)[int(len(ours) * 0.95)] * 1e6:,.0f}"
    all_of_them = f"nearest {_MOST} of {COUNT:,}, beside numpy over all in memory, p50"
    yield Row(all_of_them, _middle(ours), beside, "us", more={"p95": p95})
    yield Row(f"the same within a session of {_SESSION}, p50", _middle(one), beside, "us")
    recall = met / (_MOST * len(queries))
    told = f"at least {_RECALL_MIN}"
    yield Row("of these are the exact ones", recall, 1.0, "", told, recall >= _RECALL_MIN)


def _middle(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) // 2] * 1e6
