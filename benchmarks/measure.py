"""What is measured against what: a clock, the floor, and sessions of a given length."""

import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import perdure
from benchmarks.session import turn_events

ROUNDS = int(os.environ.get("PERDURE_BENCH_ROUNDS", "300"))
ENCODINGS = ("raw", "zst")
SQLITE = "sqlite"


def median_us(samples: Sequence[int]) -> float:
    return statistics.median(samples) / 1000


def timed(call: Callable[[], object]) -> int:
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


class Floor:
    """A bare append of given bytes: one write, one fdatasync."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)

    def append(self, data: bytes) -> None:
        os.write(self.fd, data)
        os.fdatasync(self.fd)

    def close(self) -> None:
        os.close(self.fd)


def opened(root: Path, medium: str, **options: Any) -> perdure.Store:
    """A store in a folder: its own kind with an encoding, or one SQLite file in it."""
    if medium in ENCODINGS:
        return perdure.open(root, encoding=medium, **options)
    return perdure.open(location(root, medium), **options)


def location(root: Path, medium: str) -> str:
    """What a process that does not know the medium opens."""
    return str(root) if medium in ENCODINGS else f"{medium}:{root}/store.db"


def fill(session: perdure.Session, events: int) -> None:
    """Bring a session to `events` events, in commits of one turn."""
    turn = 0
    while (missing := events - session.position.seq - 1) > 0:
        session.append_many(turn_events(turn)[:missing])
        turn += 1


def log_path(store: perdure.Store, id: str) -> Path:
    path = store.locate(id)
    assert path is not None
    return Path(path)


class Growth:
    """How many bytes a log grew by since it was asked the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = os.stat(path).st_size

    def __call__(self) -> int:
        before, self._size = self._size, os.stat(self._path).st_size
        return self._size - before
