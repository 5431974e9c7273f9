"""Who may write a session in PostgreSQL: processes that stop, die, fork, or only seem gone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import psutil
import pytest

from perdure.backends.postgres.waiting import wait_for
from perdure.errors import KeyConflict, SessionBusy, SessionClosed, StaleWriter
from perdure.store import Store
from perdure.store.store import open_store
from perdure.testing.peers import Peer
from tests.postgres.server import SECONDS, Server, until
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

LONG = "lease=600"
"""Nobody waits for the end of such a lease."""

FOLLOWED_SECONDS = 10.0
"""A writer that is gone is followed within this, whatever the lease is."""


class Place(NamedTuple):
    """A schema of a server."""

    server: Server
    schema: str

    def url(self, options: str = LONG) -> str:
        return f"{self.server.url(schema=self.schema)}&{options}"

    def open(self, options: str = LONG) -> Store:
        return open_store(self.url(options), index=False)

    def ask(self, statement: str) -> Any:
        """Execute a statement, in which an `@` stands before each table of the schema."""
        return self.server.ask(statement.replace("@", f"{self.schema}."))

    def leases(self) -> dict[int, int]:
        """Return the processes of the server that hold the locks of writers, by whose they are."""
        query = (
            "SELECT w.pid, l.pid FROM pg_locks l JOIN @writers w ON w.id::oid = l.objid"
            " WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock'"
            " AND l.classid = hashtext('perdure ' || %s)::oid"
        ).replace("@", f"{self.schema}.")
        with self.server.connect() as connection:
            rows = connection.execute(query.encode(), (self.schema,)).fetchall()
        return dict(rows)


@pytest.fixture
def place(postgres: Server, fresh_schema: Callable[[], str]) -> Place:
    """Return a place that is not made yet."""
    return Place(postgres, fresh_schema())


@contextmanager
def writing(place: Place, options: str = LONG) -> Iterator[Peer]:
    """Give a process that writes session `s`, of which it stored two events."""
    with Peer(place.url(options), "zst") as peer:
        assert peer.ask("create", session="s").keys() == {"acknowledged"}
        assert len(peer.ask("append", count=1)["acknowledged"]) == 1
        yield peer


def data_of(store: Store) -> list[Any]:
    return [event.data for event in store.read_from("s")]


# --- gone, or not ---------------------------------------------------------------------------------


def test_a_stopped_writer_is_taken_over(place: Place, seed: int) -> None:
    """Who gives no sign of life for the lease is followed; back again it stores nothing."""
    with writing(place, "lease=1") as peer, place.open("lease=1") as store:
        os.kill(peer.pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            session = store.writer("s", wait=SECONDS)
            took = time.monotonic() - began
            session.append("y", "taken over")
        finally:
            os.kill(peer.pid, signal.SIGCONT)
        answer = peer.ask("append", count=1)
        assert (answer["error"], answer["acknowledged"]) == ("stale-writer", [])
        assert [data for _, data in answer["lost"]] == [[peer.pid, 0]]
        session.append("y", "goes on")
        assert data_of(store) == [[peer.pid, 0], [peer.pid, 0], "taken over", "goes on"]
        session.close()
        assert store.verify("s").sound
    summarise("a stopped writer", seed, {"ms until it is followed": round(took * 1000)})


IN_THE_MIDDLE = """
import os, signal, sys
import psycopg
from perdure.durable import crash
from perdure.errors import StaleWriter
from perdure.store.store import open_store

def stop(*_):
    psycopg.Copy.write_row = write
    crash.arm()
    os.kill(os.getpid(), signal.SIGSTOP)

write = psycopg.Copy.write_row
with open_store(sys.argv[1], index=False) as store:
    session = store.create("s")
    session.append("x", 0)
    if sys.argv[2] == "idle":
        crash.arm(hook=lambda point: point == "postgres.appending" and stop())
    else:
        psycopg.Copy.write_row = stop
    try:
        session.append_many([{"type": "x", "data": number} for number in range(1, 30)])
    except StaleWriter as error:
        print(len(error.lost))
"""


@pytest.mark.parametrize("where", ["idle", "copying"])
def test_a_writer_stopped_in_a_transaction_is_taken_over(place: Place, where: str) -> None:
    """Who was stopped with rows locked, sending or not, is followed soon after the lease."""
    with subprocess.Popen(
        [sys.executable, "-c", IN_THE_MIDDLE, place.url("lease=1&timeout=60"), where],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            until(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "it runs")
            began = time.monotonic()
            with place.open("lease=1") as store:
                session = store.writer("s", wait=SECONDS)
                assert time.monotonic() - began < FOLLOWED_SECONDS
                session.append("y", "taken over")
                os.kill(child.pid, signal.SIGCONT)
                assert child.stdout is not None
                assert child.stdout.read() == "29\n"
                assert child.wait(SECONDS) == 0
                session.append("y", "goes on")
                session.close()
                assert data_of(store) == [0, "taken over", "goes on"]
                assert store.verify("s").sound
        finally:
            child.kill()


def test_a_killed_writer_is_followed_at_once(place: Place, seed: int) -> None:
    """A process that was killed keeps nobody waiting until its lease ends."""
    took: list[float] = []
    for number in range(scaled(20)):
        with place.open() as store, Peer(place.url(), "zst") as peer:
            if number:
                assert "seq" in peer.ask("open", session="s", wait=5)
            else:
                peer.ask("create", session="s")
            assert len(peer.ask("append", count=2)["acknowledged"]) == 2
            peer.kill()
            began = time.monotonic()
            with store.writer("s") as session:
                took.append(time.monotonic() - began)
                session.append("y", number)
            assert store.verify("s").sound
    assert max(took) < FOLLOWED_SECONDS
    summarise("killed writers", seed, {"killed": len(took), "ms at most": round(max(took) * 1000)})


def test_a_living_writer_is_not_taken_over(place: Place) -> None:
    """A second writer hears who has the session, and so does whoever only looks."""
    with writing(place, "lease=1") as peer, place.open("lease=1") as store:
        for wait in (0.0, 2.5):
            with pytest.raises(SessionBusy) as raised:
                store.writer("s", wait=wait)
            busy = raised.value
            assert (busy.pid, busy.host) == (peer.pid, os.uname().nodename)
            assert busy.since is not None
            assert abs(busy.since - time.time() * 1000) < SECONDS * 1000
            holder = store.inspect("s").holder
            assert holder is not None
            assert (holder.pid, holder.host, holder.since) == (busy.pid, busy.host, busy.since)
        assert len(peer.ask("append", count=1)["acknowledged"]) == 1
        peer.ask("close")
        assert store.inspect("s").holder is None


def test_a_lease_whose_connection_breaks(place: Place, seed: int) -> None:
    """A living writer whose connection is ended by the server makes another, and keeps its session.

    Others who ask in between, over and over, do not get it.
    """
    rounds = scaled(50)
    with writing(place) as peer, place.open() as store:
        for _ in range(rounds):
            lease = place.leases()[peer.pid]
            assert place.server.ask("SELECT pg_terminate_backend(%s)", lease)
            with pytest.raises(SessionBusy) as raised:
                store.writer("s")
            assert raised.value.pid == peer.pid
            until(partial(holds_another, place, peer.pid, lease), "no connection is made")
            assert len(peer.ask("append", count=1)["acknowledged"]) == 1
        assert store.verify("s").sound
    summarise("leases that broke", seed, {"broken": rounds})


def holds_another(place: Place, writer: int, lease: int) -> bool:
    return place.leases().get(writer, lease) != lease


def test_a_server_that_restarts_under_a_writer() -> None:
    """A restarted or killed server gives the session back to nobody else; its writer goes on."""
    with Server() as server:
        place = Place(server, "s")
        with writing(place, "lease=20") as peer, place.open("lease=20") as store:
            for number in range(scaled(10) * 2):
                if number % 2:
                    server.restart()
                else:
                    server.kill()
                    server.start()
                with pytest.raises(SessionBusy) as raised:
                    store.writer("s")
                assert raised.value.pid == peer.pid
                assert len(peer.ask("append", count=2)["acknowledged"]) == 2
                until(lambda: peer.pid in place.leases(), "the lease has no connection")
            assert store.verify("s").sound
            assert len(data_of(store)) == 2 + 2 * 2 * scaled(10)


def test_a_waiting_writer_gets_it_soon(
    place: Place, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for a session has it soon after it was given back."""
    took: list[float] = []
    asked = threading.Event()

    def waiting(server: Any, writer: int) -> None:
        asked.set()
        wait_for(server, writer)

    monkeypatch.setattr("perdure.backends.postgres.leases.wait_for", waiting)
    with place.open() as store:
        store.create("s").append("x", 0)
        for number in range(scaled(30)):
            with Peer(place.url(), "zst") as peer:
                assert "seq" in peer.ask("open", session="s", wait=5)
                found: list[Any] = []
                thread = threading.Thread(target=lambda f=found: f.append(given(store)))
                asked.clear()
                thread.start()
                assert asked.wait(SECONDS), "nobody asks for it"
                assert not found
                peer.ask("close")
                closed = time.monotonic()
                thread.join(SECONDS)
                session, when = found[0]
                took.append(when - closed)
                session.append("y", number)
                session.close()
    assert max(took) < FOLLOWED_SECONDS
    summarise("waiting writers", seed, {"waits": len(took), "ms at most": round(max(took) * 1000)})


def given(store: Store) -> tuple[Any, float]:
    session = store.writer("s", wait=SECONDS)
    return session, time.monotonic()


def test_waiting_costs_little(seed: int) -> None:
    """Who waits for a session asks now and then, and leaves no error in the log of the server."""
    with Server() as server:
        place = Place(server, "s")
        with writing(place) as peer, place.open() as store:
            before, said = transactions(place), server.log.read_text(errors="replace")
            with pytest.raises(SessionBusy):
                store.writer("s", wait=5.0)
            count = transactions(place) - before
            peer.ask("close")
        text = server.log.read_text(errors="replace")
        assert "ERROR" not in text.removeprefix(said)
        assert count < 80
    summarise("waiting for five seconds", seed, {"transactions": count})


def transactions(place: Place) -> int:
    """Return how many transactions have ended, as far as that was told of."""
    query = (
        "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()"
    )
    return int(place.server.ask(query))


# --- behind a pooler ------------------------------------------------------------------------------


def test_a_pooled_writer(place: Place, seed: int) -> None:
    """Where no connection is a writer's own, signs of life keep its session, and nothing else."""
    options = "lease=1&pooled=true"
    with writing(place, options) as peer, place.open(options) as store:
        assert place.leases() == {}
        with pytest.raises(SessionBusy) as raised:
            store.writer("s", wait=2.5)
        assert raised.value.pid == peer.pid
        assert len(peer.ask("append", count=3)["acknowledged"]) == 3
        peer.kill()
        began = time.monotonic()
        with store.writer("s", wait=SECONDS) as session:
            took = time.monotonic() - began
            session.append_many([{"type": f"y{number}", "data": number} for number in range(15)])
            session.put_blob(b"content")
        assert data_of(store)[-15:] == [*range(15)]
        assert len(data_of(store)) == 5 + 15
        assert store.verify("s").sound
    summarise("a pooled writer that was killed", seed, {"ms until followed": round(took * 1000)})


# --- forks ----------------------------------------------------------------------------------------

CHILDREN = """
import os, sys
from perdure.errors import SessionBusy
from perdure.store.store import open_store

store = open_store(sys.argv[1], index=False)
session = store.create("s")
session.append("x", "parent")
for number in range(int(sys.argv[2])):
    pid = os.fork()
    if not pid:
        try:
            with store.create(f"child{number}") as own:
                own.append("x", number)
            left = store.create(f"left{number}")
            left.append("x", number)
            try:
                store.writer("s")
            except SessionBusy:
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    session.append("x", number)
    # What the child left open is not its parent's, who lives.
    with store.writer(f"left{number}", wait=5) as left:
        left.append("x", "parent")
session.close()
store.close()
"""


def test_children_of_a_writer(place: Place) -> None:
    """A forked child writes nothing for its parent, whose lease and connection stay as they are."""
    with writing(place) as peer, place.open() as store:
        lease = place.leases()[peer.pid]
        for _ in range(scaled(20)):
            told = peer.ask("fork")
            assert told == {"refused": ["append", "buffer", "flush"], "status": 0}
            assert place.leases()[peer.pid] == lease
            assert len(peer.ask("append", count=2)["acknowledged"]) == 2
            with pytest.raises(SessionBusy):
                store.writer("s")
        assert len(data_of(store)) == 2 + 2 * scaled(20)
        assert store.verify("s").sound


def test_children_that_write_for_themselves(place: Place) -> None:
    """What a child takes with the store of its parent is its own, and free when it has ended."""
    count = scaled(20)
    done = subprocess.run(
        [sys.executable, "-c", CHILDREN, place.url(), str(count)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS * 2,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    with place.open() as store:
        assert data_of(store) == ["parent", *range(count)]
        for number in range(count):
            assert [event.data for event in store.read_from(f"left{number}")] == [number, "parent"]


ORPHAN = """
import os, sys
from perdure.store.store import open_store

store = open_store(sys.argv[1], index=False)
session = store.create("s")
session.append("x", 0)
if os.fork():
    session.append("x", 1)
    print(os.getpid(), flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_a_child_that_outlives_a_writer(place: Place) -> None:
    """A killed writer is followed at once, though a child lives that it forked meanwhile."""
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN, place.url()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        process.kill()
        began = time.monotonic()
        with place.open() as store, store.writer("s", wait=SECONDS) as session:
            assert time.monotonic() - began < FOLLOWED_SECONDS
            session.append("x", 2)
            assert data_of(store) == [0, 1, 2]


# --- by force -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5, 15])
def test_two_writers_by_force(place: Place, size: int) -> None:
    """Whose session was given away by hand stores nothing more, and names what is lost."""
    with place.open() as store, place.open() as other:
        session = store.create("s")
        session.append("x", 0)
        place.ask("UPDATE @tails SET owner = NULL, hold = NULL")
        with other.writer("s") as second:
            second.append("x", 1)
            batch = [{"type": f"x{number}", "data": -number} for number in range(1, size + 1)]
            session.buffer("y", "buffered")
            with pytest.raises(StaleWriter) as raised:
                session.append_many(batch)
            lost = ["buffered", *(each["data"] for each in batch)]
            assert [event.data for event in raised.value.lost] == lost
            assert session.closed
            second.append("x", 2)
        assert data_of(store) == [0, 1, 2]
        assert store.verify("s").sound


def test_an_epoch_that_was_raised(place: Place) -> None:
    """No change of a writer whose epoch has passed is stored, be it an event or content."""
    with place.open() as store:
        session = store.create("s")
        session.append("x", 0)
        place.ask("UPDATE @tails SET epoch = epoch + 1")
        with pytest.raises(StaleWriter):
            session.put_blob(b"content")
        with pytest.raises(StaleWriter):
            session.append("x", 1)
        with pytest.raises(SessionClosed):
            session.append("x", 2)
        assert data_of(store) == [0]
        assert [*store.blobs("s")] == []


def test_keys_of_other_processes(place: Place) -> None:
    """A key that another process used keeps its event; the same again is no second one."""
    script = (
        "import sys; from perdure.store.store import open_store\n"
        "with open_store(sys.argv[1], index=False) as store, store.create('s') as session:\n"
        "    session.append('x', 'first', key='k')\n"
        "    session.append('z', 'other', key='k')\n"
    )
    subprocess.run([sys.executable, "-c", script, place.url()], check=True, timeout=SECONDS)
    with place.open() as store, store.writer("s", wait=5) as session:
        assert session.append("x", "first", key="k").seq == 0
        with pytest.raises(KeyConflict) as raised:
            session.append("x", "second", key="k")
        assert (raised.value.type, raised.value.key, raised.value.seq) == ("x", "k", 0)
        session.append("x", "second", key="k2")
        assert data_of(store) == ["first", "other", "second"]


def test_a_key_that_came_behind_a_writers_back(place: Place) -> None:
    """A key that only the server knows is refused by it, and the conflict names the event."""
    with place.open() as store, store.create("s") as session:
        session.append("x", 0, key="mine")
        place.ask("UPDATE @records SET key = 'theirs' WHERE key = 'mine'::bytea")
        for size in (1, 3, 15):
            with pytest.raises(KeyConflict) as raised:
                session.append_many(
                    {"type": "x", "data": number, "key": "theirs" if number == 1 else f"{number}"}
                    for number in range(1, 1 + size)
                )
            assert (raised.value.key, raised.value.seq) == ("theirs", 0)
        session.append("x", 1)
        assert [event.seq for event in store.read_from("s")] == [0, 1]
