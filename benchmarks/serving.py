"""A service under load: readers beside a writer that streams, as one process serves them all.

`python -m benchmarks.serving` runs it for a minute. A thousand sessions are stored; eight clients
list, search, read and follow while one posts a thousand events a second into one session. Each
request is timed; so are the same requests with nobody writing, in turns, to tell what the writer
costs them. The memory of the server is looked at all along.
"""

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx

import perdure
from benchmarks.table import Row, section
from tests.serving import Process, process

__all__ = ["MEMORY_MIB", "SLOPE_MIB", "Load", "grown", "loaded", "serving", "slope", "stored"]

SESSIONS = 1_000
CLIENTS = 8
EVENTS_PER_SECOND = 1_000
BATCH = 50
"""Events of one post, twenty a second: what agents stream comes in small commits."""

DELAY_MS = 250.0
SECONDS = float(os.environ.get("PERDURE_SERVING_SECONDS", "60"))
MEMORY_MIB = 16.0
"""Growth within seconds that is still flat: what an allocator keeps varies by about that."""

SLOPE_MIB = 4.0
"""Growth a minute, over the last two thirds of a long run, that is still flat."""

RATE = 0.95
"""Of what the writer is to store, so much has to be stored."""

LOOK_SECONDS = 0.1
"""So often the memory is looked at."""

BUSY = "busy"


class Load(NamedTuple):
    """What was seen.

    Attributes:
        latencies: milliseconds of each request of the clients.
        posts: milliseconds of each post of the writer.
        events: how many events were stored.
        followed: how many of them came to who followed the session.
        memory: bytes of the server's process, looked at ten times a second.
        failures: what went wrong, with the request.

    """

    latencies: list[float]
    posts: list[float]
    events: int
    followed: int
    memory: list[int]
    failures: list[str]


def stored(place: Path, sessions: int = SESSIONS) -> None:
    """Make a store of so many sessions with something to find in each."""
    with perdure.open(place) as store:
        for number in range(sessions):
            session = store.create(f"s{number:05}", cwd=f"/srv/p{number % 20}")
            with session, session.turn() as turn:
                turn.user(f"look at part {number} of the harbour")
        with store.create(BUSY) as session:
            session.append("note", 0)
        store.sessions(1)


def resident(pid: int) -> int:
    """Bytes of a process that are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Clients:
    """Threads that ask, each on a line of its own, until they are told to stop."""

    def __init__(self, served: Process) -> None:
        self._served = served
        self._ended = threading.Event()
        self._mutex = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.latencies: list[float] = []
        self.posts: list[float] = []
        self.failures: list[str] = []
        self.events = 0
        self.followed = 0

    def start(self, work: Callable[[httpx.Client], None]) -> None:
        def run() -> None:
            with self._served.client() as api:
                try:
                    work(api)
                except (httpx.HTTPError, AssertionError, KeyError) as error:
                    if not self._ended.is_set():
                        self.failures.append(f"{type(error).__name__}: {error}")

        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(10)

    def _timed(self, api: httpx.Client, path: str) -> None:
        begun = time.perf_counter()
        answer = api.get(path)
        took = (time.perf_counter() - begun) * 1e3
        with self._mutex:
            self.latencies.append(took)
            if answer.status_code != 200:
                self.failures.append(f"{path}: {answer.status_code} {answer.text[:200]}")

    def ask(self, number: int) -> Callable[[httpx.Client], None]:
        """What one client does, over and over; it pauses between, as people do."""
        paths = (
            "/api/sessions?limit=20",
            f"/api/sessions?query=part+{number}&limit=20",
            f"/api/search?query=part+{number}",
            f"/api/sessions/s{number:05}/events",
            f"/api/sessions/{BUSY}/events?last=true&limit=20",
            "/api/sessions?sort=title&limit=20&offset=100",
        )

        def work(api: httpx.Client) -> None:
            while not self._ended.is_set():
                for path in paths:
                    self._timed(api, path)
                self._ended.wait(0.05)

        return work

    def write(self, api: httpx.Client) -> None:
        """Post so many events a second into one session."""
        due = time.perf_counter()
        number = 0
        while not self._ended.is_set():
            events = [
                {"type": "note", "data": {"text": f"streamed {number + n}"}} for n in range(BATCH)
            ]
            body = {"events": events, "request": f"post-{number}"}
            begun = time.perf_counter()
            answer = api.post(f"/api/sessions/{BUSY}/events", json=body)
            self.posts.append((time.perf_counter() - begun) * 1e3)
            if answer.status_code != 200:
                self.failures.append(f"post: {answer.status_code} {answer.text[:200]}")
                return
            number += BATCH
            self.events = number
            due += BATCH / EVENTS_PER_SECOND
            self._ended.wait(max(0.0, due - time.perf_counter()))

    def follow(self, api: httpx.Client) -> None:
        """Follow the session that is written."""
        with api.stream("GET", f"/api/sessions/{BUSY}/live?start=1") as answer:
            for line in answer.iter_lines():
                if line.startswith("id:"):
                    self.followed += 1
                if self._ended.is_set():
                    return


def loaded(served: Process, seconds: float, *, writer: bool = True) -> Load:
    """Put load on a server for so long."""
    clients = _Clients(served)
    if writer:
        clients.start(clients.write)
        clients.start(clients.follow)
    for number in range(CLIENTS):
        clients.start(clients.ask(number * 7))
    memory = []
    end = time.perf_counter() + seconds
    waiting = threading.Event()
    while time.perf_counter() < end and not clients.failures:
        memory.append(resident(served.child.pid))
        waiting.wait(LOOK_SECONDS)
    clients.stop()
    return Load(
        clients.latencies,
        clients.posts,
        clients.events,
        clients.followed,
        memory,
        clients.failures,
    )


def grown(memory: list[int]) -> float:
    """MiB by which the most in the last third is above the most in the second one."""
    third = len(memory) // 3
    return (max(memory[2 * third :]) - max(memory[third : 2 * third])) / 2**20


@contextmanager
def _served() -> Iterator[Process]:
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        place = Path(folder) / "store"
        stored(place)
        with process(place) as served:
            yield served


def serving() -> Iterator[Row]:
    """The rows of the section."""
    with _served() as served:
        loaded(served, 2, writer=False)
        quiet = loaded(served, SECONDS / 4, writer=False)
        busy = loaded(served, SECONDS)
    for load in (quiet, busy):
        if load.failures:
            raise SystemExit("; ".join(load.failures[:3]))
    for share, name in ((0.5, "p50"), (0.95, "p95"), (1.0, "slowest")):
        ours, floor = quantile(busy.latencies, share), quantile(quiet.latencies, share)
        row = Row(f"a request beside the writer, {name}", ours, floor, "ms")
        if share == 1.0:
            usual = quantile(quiet.latencies, 0.5)
            row.bound = f"at most {DELAY_MS:g} ms over the usual"
            row.met = ours - usual <= DELAY_MS
            row.more = {"requests": len(busy.latencies)}
        yield row
    yield Row("a post of 50 events, p95", quantile(busy.posts, 0.95), 0.0, "ms")
    rate = busy.events / SECONDS
    target, least = float(EVENTS_PER_SECOND), f"at least {RATE:g}x"
    yield Row("events stored a second", rate, target, "1/s", least, rate >= RATE * target)
    followed, events = float(busy.followed), float(busy.events)
    met = followed >= RATE * events
    yield Row("of them followed", followed, events, "events", least, met)
    growth, peak = slope(busy.memory), max(busy.memory) / 2**20
    flat = f"at most {SLOPE_MIB:g} MiB"
    yield Row("memory, growth a minute", growth, peak, "MiB", flat, growth <= SLOPE_MIB)


def slope(memory: list[int]) -> float:
    """MiB a minute by which the last two thirds grow: the line that fits them best."""
    rest = memory[len(memory) // 3 :]
    fitted = statistics.linear_regression([n * LOOK_SECONDS / 60 for n in range(len(rest))], rest)
    return fitted.slope / 2**20


def quantile(samples: list[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[int(share * (len(ordered) - 1))]


def main() -> int:
    print(f"{SESSIONS} sessions, {CLIENTS} clients, {SECONDS:g} s; floor = with nobody writing")
    rows = list(section("a service under load", "loaded", "quiet", serving()))
    if "--json" in sys.argv:
        print(json.dumps([row.as_dict() for row in rows]))
    missed = [row.what for row in rows if row.met is False]
    print("all bounds kept" if not missed else f"MISS: {'; '.join(missed)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
