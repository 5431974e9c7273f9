"""A primary of PostgreSQL that is killed under writers, who go on with the standby after it."""

import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

import pytest

from perdure.errors import StorageUnavailable
from perdure.store import Store
from perdure.store.store import open_store
from tests.postgres.cluster import Cluster
from tests.postgres.proxy import Proxy
from tests.postgres.server import SECONDS, until
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

PROCESSES = 4
WRITERS = 2
"""Threads of each process, with sessions of their own."""

ROUNDS = scaled(10)
BETWEEN = scaled(100)
"""So many commits of every writer are acknowledged before the next kill."""

TIMEOUT = 60.0
"""That of the URL: a failover of this test takes a few seconds, if the machine does little else."""

WRITE = """
import json, os, random, sys, threading, time, traceback
from perdure.store.store import open_store

url, name, seed, writers, fresh = sys.argv[1:]
ended = threading.Event()
failed = []

def tell(**facts):
    # One write, short enough for a pipe to keep it whole.
    os.write(1, (json.dumps(facts) + "\\n").encode())

def write(store, name, draw):
    session, made, number = None, 0, 0
    while not ended.is_set():
        if session is None or draw.random() < float(fresh):
            if session is not None:
                session.close()
            session = store.create(f"{name}-{made}")
            made += 1
        size = draw.choice((1, 1, 1, draw.randint(2, 9), draw.randint(12, 30)))
        drafts = []
        for each in range(number, number + size):
            draft = {"type": f"x{each % 2}", "data": [name, each]}
            if draw.random() < 0.3:
                draft["key"] = f"k{each}"
            drafts.append(draft)
        events = session.append_many(drafts)
        number += size
        tell(session=session.id, seq=events[0].seq, data=[e.data[1] for e in events],
             writer=name, at=time.monotonic())
        if "key" in drafts[0]:
            again = session.append(drafts[0]["type"], drafts[0]["data"], key=drafts[0]["key"])
            assert again.seq == events[0].seq
    if session is not None:
        session.close()

def run(store, name, draw):
    try:
        write(store, name, draw)
    except BaseException as error:
        tell(failed="".join(traceback.format_exception(error))[-3000:])
        failed.append(error)

with open_store(url, index=False, pack=False) as store:
    threads = [
        threading.Thread(target=run, args=(store, f"{name}{n}", random.Random(f"{seed}:{name}{n}")))
        for n in range(int(writers))
    ]
    for thread in threads:
        thread.start()
    sys.stdin.readline()
    ended.set()
    for thread in threads:
        thread.join()
sys.exit(bool(failed))
"""

READ = """
import json, os, random, sys, threading, traceback
from perdure.store.store import open_store

url, name, seed = sys.argv[1:]
draw = random.Random(f"{seed}:{name}")
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), ended.set()), daemon=True).start()
known = {}
reads = 0
try:
    with open_store(url, index=False) as store:
        while not ended.is_set():
            found = [each.id for each in store.list()]
            assert known.keys() <= set(found), known.keys() - set(found)
            for session in draw.sample(found, min(3, len(found))):
                numbers = [event.data[1] for event in store.read_from(session)]
                assert numbers == [*range(numbers[0], numbers[0] + len(numbers))], numbers
                # What somebody has read stays, whichever server answers.
                assert len(numbers) >= known.get(session, 1), session
                known[session] = len(numbers)
                report = store.verify(session)
                assert not report.problems, report
                reads += 1
except BaseException as error:
    told = {"failed": "".join(traceback.format_exception(error))[-3000:]}
    os.write(1, (json.dumps(told) + "\\n").encode())
    sys.exit(1)
os.write(1, (json.dumps({"reads": reads}) + "\\n").encode())
"""


class Child:
    """A process that writes or reads until it is told to end, and says what it has done.

    Attributes:
        told: what it said, one object for each commit that was acknowledged.
        commits: how many those are, by the writer.

    """

    def __init__(self, script: str, *arguments: object) -> None:
        self.told: list[dict[str, Any]] = []
        self.commits: Counter[str] = Counter()
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._hear)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._thread.join()
        self.process.communicate()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if "writer" in told:
                self.commits[told["writer"]] += 1
            self.told.append(told)

    def failures(self) -> list[str]:
        return [each["failed"] for each in [*self.told] if "failed" in each]

    def end(self) -> None:
        """Let it end what it is at."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.wait(SECONDS * 2) == 0, self.failures()
        self._thread.join()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return a cluster whose three nodes run; tests leave it so."""
    with Cluster() as made:
        yield made


def url_of(cluster: Cluster, schema: str, timeout: float = TIMEOUT) -> str:
    return cluster.url(schema=schema, timeout=f"{timeout:g}")


def went_on(writers: list[tuple[Child, str]], before: dict[str, int], count: int) -> bool:
    """Tell whether every writer has made so many commits more."""
    for child, name in writers:
        assert not child.failures(), child.failures()
        if child.commits[name] < before[name] + count:
            return False
    return True


def test_writers_outlive_the_primary(cluster: Cluster, seed: int, rng: random.Random) -> None:
    """What was acknowledged is there once, in order, after each failover; nobody had to open again.

    The primary is killed in the middle of everything, a standby is promoted, and the dead one comes
    back as a standby, while writers append and create sessions, and readers read.
    """
    url = url_of(cluster, "writers")
    with open_store(url, index=False) as store:
        store.create("made").append("x0", ["made", 0])
    gaps: list[float] = []
    with ExitStack() as stack:
        start = stack.enter_context
        children = [
            start(Child(WRITE, url, "abcd"[number], seed, WRITERS, 0.1))
            for number in range(PROCESSES)
        ]
        reader = start(Child(READ, url, "reader", seed))
        writers = [
            (child, f"{'abcd'[number]}{thread}")
            for number, child in enumerate(children)
            for thread in range(WRITERS)
        ]
        for _ in range(ROUNDS):
            until(partial(went_on, writers, commits(writers), BETWEEN), "no commits", SECONDS * 2)
            # Anywhere within what they are doing, the very first question of the reader included.
            threading.Event().wait(rng.random() * 0.05)
            killed = time.monotonic()
            dead = cluster.kill_primary()
            cluster.promote()
            before = commits(writers)
            until(partial(went_on, writers, before, 1), "somebody does not go on", SECONDS * 2)
            gaps.append(longest(children, killed))
            cluster.rejoin(dead)
            assert dead in cluster.standbys
            assert dead.ask("SELECT pg_is_in_recovery()")
            assert not reader.failures(), reader.failures()
        until(partial(went_on, writers, commits(writers), 1), "no commits", SECONDS * 2)
        for child in (*children, reader):
            child.end()
        assert not [child.failures() for child in (*children, reader) if child.failures()]
        told = [each for child in children for each in child.told]
        reads = reader.told[-1]["reads"]
    with open_store(url, index=False) as store:
        events = compare(store, told)
    gaps.sort()
    counts = {
        "failovers": len(gaps),
        "commits": len(told),
        "events": events,
        "sessions": len({each["session"] for each in told}),
        "logs read meanwhile": reads,
        "ms without a commit, median": round(gaps[len(gaps) // 2] * 1000),
        "ms without a commit, most": round(gaps[-1] * 1000),
    }
    summarise("failovers under writers", seed, counts)
    assert reads


def commits(writers: list[tuple[Child, str]]) -> dict[str, int]:
    return {name: child.commits[name] for child, name in writers}


def longest(children: list[Child], since: float) -> float:
    """Return the longest time without any acknowledged commit from a moment on, in seconds."""
    times: list[float] = sorted(
        each["at"] for child in children for each in [*child.told] if "at" in each
    )
    times = [since, *(at for at in times if at > since)]
    return max(after - before for before, after in pairwise(times))


def compare(store: Store, told: list[dict[str, Any]]) -> int:
    """Hold what is stored against what was acknowledged; how many events that is."""
    acknowledged: dict[str, dict[int, list[Any]]] = {}
    for each in told:
        events = acknowledged.setdefault(each["session"], {})
        for number, data in enumerate(each["data"]):
            assert each["seq"] + number not in events
            events[each["seq"] + number] = [each["writer"], data]
    assert {each.id for each in store.list()} == {"made", *acknowledged}
    for session, expected in acknowledged.items():
        stored = {event.seq: event.data for event in store.read_from(session)}
        # No event was under way at the end, so nothing else may be there either.
        assert stored == expected, session
        numbers = [data for _, (_, data) in sorted(stored.items())]
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        assert store.verify(session).sound
    return sum(map(len, acknowledged.values()))


def test_who_comes_during_a_failover_waits_for_its_end(cluster: Cluster) -> None:
    """A store that asks for the first time between two primaries is answered by the next one."""
    url = url_of(cluster, "late")
    with open_store(url, index=False) as store:
        store.create("s").append("x", 0)
    dead = cluster.kill_primary()
    try:
        with open_store(url, index=False) as store:
            asking = Doing(lambda: [event.data for event in store.read_from("s")])
            writing = Doing(lambda: store.create("t").append("x", 1))
            # Long enough to be refused by all three.
            assert not asking.ended(0.5)
            assert not writing.ended(0.5)
            cluster.promote()
            asking.join()
            writing.join()
            assert [event.data for event in store.read_from("t")] == [1]
    finally:
        cluster.rejoin(dead)


# --- without standbys -----------------------------------------------------------------------------


@contextmanager
def alone(cluster: Cluster) -> Iterator[None]:
    """Stop the standbys; those that do not follow again do so at the end, whatever happened.

    Within the stores of a test: a commit that waits for a standby ends when there is one.
    """
    for node in cluster.standbys:
        node.stop()
    try:
        yield
    finally:
        for node in cluster.standbys:
            if not node.running:
                cluster.rejoin(node)


WAITING = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query NOT LIKE '%%pg_stat%%'"


def waiting(cluster: Cluster) -> int:
    return int(cluster.primary.ask(f"SELECT count(*) {WAITING}"))


class Doing:
    """Something that is done in another thread, and may have to wait."""

    def __init__(self, do: Any) -> None:
        self.failure: BaseException | None = None
        self._do = do
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self.failure = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return self.done

    def join(self) -> None:
        assert self.ended(SECONDS)
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("what", ["single", "batch", "create", "content"])
def test_a_wait_for_the_standbys_that_is_cut_short(
    cluster: Cluster, what: str, rng: random.Random
) -> None:
    """A commit that somebody keeps from waiting is not acknowledged before a standby has it."""
    schema = f"cut_short_{what}"
    with open_store(url_of(cluster, schema), index=False, pack=False) as store:
        session = store.create("s")
        session.append("x", -1)
        todo = {
            "single": lambda: session.append("x", 0),
            "batch": lambda: session.append_many({"type": "x", "data": n} for n in range(15)),
            "create": lambda: store.create("t").append("x", 0),
            "content": lambda: session.put_blob(b"content"),
        }
        with alone(cluster):
            doing = Doing(todo[what])
            for _ in range(3):
                until(lambda: waiting(cluster) or doing.done, "no commit waits")
                assert not doing.done
                how = rng.choice(("pg_cancel_backend", "pg_terminate_backend"))
                cluster.primary.ask(f"SELECT count({how}(pid)) {WAITING}")
            until(lambda: waiting(cluster) or doing.done, "no commit waits")
            assert not doing.done
            standby = cluster.standbys[0]
            cluster.rejoin(standby)
            doing.join()
            table = "blobs" if what == "content" else "records"
            has = "SELECT count(*) FROM @".replace("@", f"{schema}.{table}")
            expected = {"single": 2, "batch": 16, "create": 2, "content": 1}[what]
            until(lambda: standby.ask(has) == expected, "the standby lacks it")
        session.append("x", "goes on")
        assert store.verify("s").sound


@pytest.mark.parametrize("size", [1, 15])
def test_a_commit_that_waits_while_its_connection_breaks(cluster: Cluster, size: int) -> None:
    """What a server stores after its client has gone, and has come again, is stored once."""
    schema = f"cut_{size}"
    primary = cluster.primary
    with Proxy(primary.port) as proxy:
        url = primary.tcp_url(schema=schema).replace(f":{primary.port}/", f":{proxy.port}/")
        with open_store(url, index=False, pack=False) as store, store.create("s") as session:
            session.append("x", -1)
            with alone(cluster):
                batch = [{"type": "x", "data": number} for number in range(size)]
                doing = Doing(lambda: session.append_many(batch))
                until(lambda: waiting(cluster), "no commit waits")
                proxy.cut()
                # The second try waits for the first one, which is not over.
                until(lambda: blocked(cluster) or doing.done, "nobody comes again")
                assert not doing.done
                cluster.rejoin(cluster.standbys[0])
                doing.join()
            session.append("x", "goes on")
            stored = [event.data for event in store.read_from("s")]
            assert stored == [-1, *range(size), "goes on"]
            assert store.verify("s").sound


def blocked(cluster: Cluster) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    return bool(cluster.primary.ask(query))


def test_a_time_without_a_standby_that_is_too_long(cluster: Cluster) -> None:
    """Where nobody lets a commit wait, the writer is told after the time-out that it is unsure."""
    with open_store(url_of(cluster, "unsure", timeout=1), index=False) as store:
        session = store.create("s")
        session.append("x", 0)
        with alone(cluster):
            doing = Doing(lambda: session.append("x", 1))
            until(lambda: let_none_wait(cluster) or doing.done, "it goes on waiting")
            with pytest.raises(StorageUnavailable, match="standby") as raised:
                doing.join()
            assert [event.data for event in raised.value.lost] == [1]
            assert session.closed
        with store.writer("s", wait=SECONDS) as again:
            again.append("x", 2)
        assert [event.data for event in store.read_from("s")] == [0, 1, 2]
        assert store.verify("s").sound


def let_none_wait(cluster: Cluster) -> bool:
    cluster.primary.ask(f"SELECT count(pg_cancel_backend(pid)) {WAITING}")
    return False
