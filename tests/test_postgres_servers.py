"""The PostgreSQL servers of the tests: they start, die, come back, and leave nothing behind."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.postgres import server as module
from tests.postgres import watcher
from tests.postgres.cluster import Cluster, _receives_nothing
from tests.postgres.fixtures import schemas
from tests.postgres.server import SECONDS, Server, account, until
from tests.support import scaled

ROOT = Path(__file__).resolve().parent.parent

CHILD = """
import sys, threading
from tests.postgres.server import Server
server = Server()
if sys.argv[1] == "stopped":
    server.create()
else:
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
print(server.folder, server.pid, flush=True)
sys.stdin.readline()
"""


def family(server: Server) -> list[psutil.Process]:
    """Return all processes of a server."""
    top = psutil.Process(server.pid)
    return [top, *top.children(recursive=True)]


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """Return a server that tests may kill."""
    with Server() as server:
        yield server
        assert server.running


# --- one server ---------------------------------------------------------------------------------


def test_a_server_is_of_version_18(postgres: Server) -> None:
    """The server is the one of the wheel, whatever else is installed."""
    assert postgres.ask("SHOW server_version_num").startswith("18")
    assert postgres.ask("SHOW max_connections") == "500"


def test_a_server_does_not_belong_to_root(postgres: Server) -> None:
    """Processes of a server are ours, and where we are root those of an account that may little."""
    owner = account()
    expected = os.geteuid() if owner is None else owner.pw_uid
    assert expected != 0
    assert {process.uids().effective for process in family(postgres)} == {expected}
    assert os.stat(postgres.data).st_uid == expected


def test_a_server_believes_no_stranger(postgres: Server) -> None:
    """Over loopback a password is asked for; the socket lies where only its owner comes."""
    assert stat.S_IMODE(os.stat(postgres.sockets).st_mode) == 0o700
    with closing(psycopg.connect(postgres.tcp_url())) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    wrong = postgres.tcp_url().replace(postgres.password, "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_urls_name_the_schema(postgres: Server) -> None:
    """The schema is a parameter of the URL, which libpq does not know; without it libpq does."""
    assert postgres.url(schema="a b").endswith("&schema=a+b")
    assert postgres.tcp_url(schema="x").endswith("?schema=x")
    with pytest.raises(psycopg.ProgrammingError, match="schema"):
        psycopg.connect(postgres.url(schema="x"))
    with closing(psycopg.connect(postgres.url())) as connection:
        assert connection.info.host == str(postgres.sockets)


def test_a_killed_server_keeps_what_was_committed(own: Server) -> None:
    """After a kill and a start what was committed is there, and nothing else."""
    own.ask("CREATE TABLE kept (x int)")
    own.ask("INSERT INTO kept VALUES (1)")
    with closing(psycopg.connect(own.url())) as open_one:
        open_one.execute("INSERT INTO kept VALUES (2)")
        members, port = family(own), own.port
        assert len(members) > 5
        own.kill()
        assert not any(process.is_running() for process in members)
        with pytest.raises(psycopg.OperationalError):
            open_one.execute("SELECT 1")
    own.start()
    assert own.port == port
    assert own.ask("SELECT array_agg(x) FROM kept") == [1]


def test_a_server_restarts(own: Server) -> None:
    """A server that is stopped in order comes back at the same URLs."""
    urls = own.url(), own.tcp_url()
    own.restart()
    assert (own.url(), own.tcp_url()) == urls
    assert own.ask("SELECT 1") == 1


def test_a_server_can_be_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are those that were asked for, and a port that is taken is no obstacle."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], module._free_port()])
        monkeypatch.setattr(module, "_free_port", lambda: next(ports))
        with Server(fsync=True, settings={"work_mem": "7MB"}) as server:
            assert server.port != taken.getsockname()[1]
            names = ("fsync", "full_page_writes", "work_mem")
            assert [server.ask(f"SHOW {name}") for name in names] == ["on", "on", "7MB"]
        assert not server.folder.exists()


def test_programs_run_where_the_wheel_cannot_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the account of the servers may not come to the wheel, a copy of it is used."""
    monkeypatch.setattr(module, "_may_be_entered", lambda path: module._WHEEL not in str(path))
    with closing(Server()) as server:
        assert server._programs.is_relative_to(server.folder)
        for name in ("postgres", "initdb", "pg_basebackup", "pg_rewind"):
            server.program(name, "--version")
        assert server.log.read_text().count("(PostgreSQL) 18") == 4


def test_a_program_that_fails_is_told(postgres: Server) -> None:
    """What a program of PostgreSQL says when it fails is in the failure of the test."""
    with pytest.raises(AssertionError, match="no-such-option"):
        postgres.program("initdb", "--no-such-option")


# --- what is left -------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["killed", "ended", "stopped"])
def test_nothing_outlives_the_process_of_tests(end: str) -> None:
    """However the process of tests ends, its servers and their folders are gone."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, end],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        folder, _, pid = child.stdout.readline().strip().rpartition(" ")
        # The thread that started it has ended, which is not the end of the process.
        assert psutil.pid_exists(int(pid)) is (end != "stopped")
        assert Path(folder, "data").is_dir()
        if end == "killed":
            child.kill()
        else:
            child.communicate("\n")
    until(lambda: not psutil.pid_exists(int(pid)), "the server goes on")
    until(lambda: not Path(folder).exists(), "its folder is there")


def test_a_server_ends_with_its_watcher(own: Server) -> None:
    """Without the process that watches it a server ends by itself."""
    members = family(own)
    assert own._watcher is not None
    own._watcher.kill()
    until(lambda: all(map(watcher._is_gone, members)), "the server goes on")
    own.start()


def test_a_server_of_which_one_process_dies_comes_back(own: Server) -> None:
    """The death of one process of a server breaks its connections, and no more."""
    with own.connect() as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    until(lambda: own._answers_or_ended(own.port), "no answer")
    assert own.running


def test_schemas_are_fresh_and_dropped(postgres: Server) -> None:
    """Each name of a schema is new, and what was made under it is gone in the end."""
    with schemas(postgres) as fresh:
        used, unused = fresh(), fresh()
        assert used != unused
        with postgres.connect() as connection:
            connection.execute(f"CREATE SCHEMA {used} CREATE TABLE t (x int)".encode())
    there = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
    assert postgres.ask(there, used) == 0


def test_a_transaction_left_open_is_told(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that leaves a transaction open in its schema fails, and the statement is named."""
    monkeypatch.setattr("tests.postgres.fixtures.LOCK_SECONDS", 0.1)
    given = schemas(postgres)
    name = given.__enter__()()
    postgres.ask(f"CREATE SCHEMA {name} CREATE TABLE t (x int)")
    with closing(psycopg.connect(postgres.url())) as open_one:
        open_one.execute(f"LOCK TABLE {name}.t IN ACCESS SHARE MODE".encode())
        with pytest.raises(AssertionError, match="LOCK TABLE"):
            given.__exit__(None, None, None)
    postgres.ask(f"DROP SCHEMA {name} CASCADE")


# --- a primary and its standbys -----------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Return a cluster whose three nodes run; tests leave it so."""
    began = time.monotonic()
    with Cluster() as made:
        report("start of a cluster", began)
        made.primary.ask("CREATE TABLE acknowledged (x int PRIMARY KEY)")
        yield made


def report(what: str, began: float) -> None:
    sys.stdout.write(f"{what}: {time.monotonic() - began:.2f} s\n")


class Writer:
    """Inserts one number after the other through the URL of a cluster, until it cannot.

    Attributes:
        done: the numbers whose insertion was acknowledged.

    """

    def __init__(self, cluster: Cluster, first: int) -> None:
        self.done: list[int] = []
        self._next = first
        self._connection = psycopg.connect(cluster.url(), autocommit=True)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with closing(self._connection) as connection:
            try:
                while True:
                    connection.execute("INSERT INTO acknowledged VALUES (%s)", (self._next,))
                    self.done.append(self._next)
                    self._next += 1
            except psycopg.OperationalError:
                return

    def has(self, count: int) -> bool:
        return len(self.done) >= count

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def test_a_commit_waits_for_a_standby(cluster: Cluster) -> None:
    """Without any standby nothing is acknowledged; one that comes back is enough."""
    stopped = list(cluster.standbys)
    for node in stopped:
        node.stop()
    with psycopg.connect(cluster.url(), autocommit=True) as connection:
        pid = connection.info.backend_pid
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
        with ThreadPoolExecutor(1) as pool:
            insert = pool.submit(connection.execute, "INSERT INTO acknowledged VALUES (-1)")
            try:
                until(lambda: cluster.primary.ask(waiting, pid), "the commit does not wait")
                assert not insert.done()
            finally:
                cluster.rejoin(stopped[0])
            insert.result(SECONDS)
    cluster.rejoin(stopped[1])
    confirming = cluster._confirming("0/0")
    assert confirming == {node.name for node in stopped}


@pytest.mark.proof
def test_what_was_acknowledged_outlives_the_primary(cluster: Cluster) -> None:
    """After the primary is killed under a writer, the promoted standby has all acknowledged."""
    acknowledged = set(numbers(cluster.primary))
    for round_ in range(scaled(10)):
        dead, writer = cluster.primary, Writer(cluster, 1_000_000 * (round_ + 1))
        until(partial(writer.has, 50), "nothing is acknowledged")
        cluster.kill_primary()
        writer.join()
        acknowledged |= set(writer.done)
        began = time.monotonic()
        cluster.promote()
        report("promotion", began)
        assert cluster.primary is not dead
        # What was under way may be there as well.
        assert acknowledged <= set(numbers(cluster.primary)) <= {*acknowledged, writer._next}
        began = time.monotonic()
        cluster.rejoin(dead)
        report("return of the dead primary", began)
        acknowledged = set(numbers(cluster.primary))
        with psycopg.connect(cluster.url()) as connection:
            connection.execute("INSERT INTO acknowledged VALUES (%s)", (-2 - round_,))
        acknowledged.add(-2 - round_)
        for node in cluster.standbys:
            until(partial(holds, node, acknowledged), f"{node.name} has something else")


def holds(node: Server, expected: set[int]) -> bool:
    return set(numbers(node)) == expected


def numbers(node: Server) -> list[int]:
    with node.connect() as connection:
        return [x for (x,) in connection.execute("SELECT x FROM acknowledged")]


@pytest.mark.parametrize("late", [0, 1])
def test_the_standby_with_the_most_is_promoted(cluster: Cluster, late: int) -> None:
    """A standby that lacks what was acknowledged is not promoted, and gets it from the other."""
    behind, ahead = cluster.standbys[late], cluster.standbys[1 - late]
    behind.follow(None)
    until(partial(_receives_nothing, behind), "it goes on receiving")
    new = -(10_000 + late)
    with psycopg.connect(cluster.url()) as connection:
        connection.execute("INSERT INTO acknowledged VALUES (%s)", (new,))
    assert new not in numbers(behind)
    dead = cluster.kill_primary()
    assert cluster.promote() is ahead
    assert new in numbers(ahead)
    until(lambda: new in numbers(behind), "it does not catch up")
    cluster.rejoin(dead)


def test_a_cluster_is_down_to_one(cluster: Cluster) -> None:
    """Two primaries may die one after the other: each promotion finds what was acknowledged."""
    before = set(numbers(cluster.primary))
    dead = [cluster.kill_primary()]
    cluster.promote()
    with psycopg.connect(cluster.url()) as connection:
        connection.execute("INSERT INTO acknowledged VALUES (-1000)")
    dead.append(cluster.kill_primary())
    last = cluster.promote()
    assert set(numbers(last)) == {*before, -1000}
    for node in dead:
        cluster.rejoin(node)
    assert {node.name for node in cluster.standbys} == {node.name for node in dead}


def test_a_promotion_asks_for_every_standby(cluster: Cluster) -> None:
    """Nothing is promoted while a standby is away that may be the only one with a commit."""
    away = cluster.standbys[0]
    away.stop()
    with pytest.raises(AssertionError, match="a standby is missing"):
        cluster.promote()
    cluster.rejoin(away)


def test_a_cluster_restarts(cluster: Cluster) -> None:
    """A cluster that was stopped comes back with the roles that its nodes had."""
    primary, before = cluster.primary, set(numbers(cluster.primary))
    cluster.stop()
    assert not any(node.running for node in cluster.nodes)
    cluster.restart()
    assert cluster.primary is primary
    assert set(numbers(primary)) == before
