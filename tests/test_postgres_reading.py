"""PostgreSQL: what a page of a log costs, evidence of several processes, a single connection."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import perdure
from perdure.backends import open_backend
from perdure.backends.postgres import PostgresBackend, evidence, reading
from perdure.cli.main import cli
from perdure.databases.postgres import Attempts, Server, Work, meaning, parse_address
from perdure.errors import SessionDamaged, StorageUnavailable
from perdure.evidence.facts import Acceptance, Damage, Seen
from perdure.evidence.rows import Row, Table
from perdure.model.record import Position
from perdure.runtime import SYSTEM
from tests.postgres.server import Server as Node
from tests.postgres.server import until

PATIENCE = 30.0
ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture
def url(postgres: Node, fresh_schema: Callable[[], str]) -> str:
    """A place in the server in which nothing is stored."""
    return postgres.url(schema=fresh_schema())


# --- pages of a log -----------------------------------------------------------------------------


def stored(url: str, count: int, size: int) -> perdure.Store:
    """Return a store with a session of so many records that take so many bytes and more."""
    store = perdure.open(url, index=False)
    with store.create("s") as session:
        for first in range(0, count, 500):
            numbers = range(first, min(count, first + 500))
            drafts = [{"type": f"x{n % 2}", "data": SYSTEM.token(size // 2)} for n in numbers]
            session.append_many(drafts)
    return store


def pages(read: Callable[[], object]) -> list[dict[str, Any]]:
    """Return the plan of each page of a log that is asked for, with what it came to."""
    plans: list[dict[str, Any]] = []
    execute = psycopg.Cursor.execute

    def spying(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
        if f"before < {reading._PAGE_BYTES}" in str(query):
            with psycopg.ClientCursor(cursor.connection) as other:
                execute(other, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}", params)
                ((found,),) = other.fetchall()
                plans.append(found[0]["Plan"])
        return execute(cursor, query, params, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.Cursor, "execute", spying)
        read()
    return plans


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def looked_at(plan: dict[str, Any]) -> int:
    """Return how many rows of tables a plan came by."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan)
        if "Relation Name" in node
    )


@pytest.mark.parametrize("generic", [False, True])
def test_a_page_of_a_log_leaves_the_rest_of_it_alone(url: str, *, generic: bool) -> None:
    """However long a log is, what is looked at for a page of it is no more than a page can hold."""
    count = 5000
    with stored(url, count, 2600):
        pass
    more = "&options=-c%20plan_cache_mode%3Dforce_generic_plan" if generic else ""
    with perdure.open(url + more, index=False) as store:
        seen: list[int] = []
        plans = pages(lambda: seen.extend(event.seq for event in store.read_from("s")))
        assert seen == [*range(count)]
        assert len(plans) > 5
        # One more is the first of the page, whose place is asked for.
        assert max(map(looked_at, plans)) <= reading._PAGE_ROWS * 4 + 1
        plans = pages(lambda: store.verify("s"))
        whole = [plan for plan in plans if looked_at(plan) <= reading._PAGE_ROWS + 1]
        assert len(whole) > 5
        assert max(map(looked_at, plans)) <= reading._PAGE_ROWS * 4 + 1
        assert not [node for plan in plans for node in nodes(plan) if node["Node Type"] == "Sort"]


@pytest.mark.parametrize("start", [2**63 - 1, 10**9, 0, -5])
@pytest.mark.parametrize("place", [0, 2])
def test_a_column_that_lies_costs_no_record(
    url: str, postgres: Node, start: int, place: int
) -> None:
    """Whatever stands beside a line, all lines are read, and a repair keeps them."""
    with stored(url, 6, 20) as store:
        before = [event.data for event in store.read_from("s")]
    with postgres.connect() as connection:
        schema = parse_address(url).schema
        connection.execute(f"SET search_path = {schema}".encode())
        query = "UPDATE records SET start = %s WHERE seq = (SELECT seq FROM records ORDER BY seq"
        connection.execute(f"{query} OFFSET %s LIMIT 1)".encode(), (start, place))
    with perdure.open(url, index=False) as store:
        assert [event.data for event in store.read_from("s")] == before
        found = {problem.kind for problem in store.verify("s").problems}
        assert found <= {"column"}
        store.repair("s")
        # And an event that tells of the repair, where one was needed.
        assert [event.data for event in store.read_from("s")][:6] == before
        assert store.verify("s").sound


def test_lines_that_do_not_come_into_a_page_are_not_fetched(url: str) -> None:
    """A row that is found and thrown away costs a row of an index, not the bytes of its line."""
    count = 300
    with stored(url, count, 40_000) as store:
        plans = pages(lambda: [*store.read_from("s")])
    assert len(plans) > 5
    for plan in plans:
        # To fetch a line takes twenty pages of the table beside.
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < count
        assert plan["Actual Rows"] < 60


# --- evidence -----------------------------------------------------------------------------------


def seen(seq: int, digest: str = ONE, session: str = "s", at: int = 1000) -> tuple[str, Seen]:
    return "", Seen(session, digest, Position(seq, ONE), at)


def accepted(seq: int, at: int) -> Acceptance:
    return Acceptance("s", ONE, Position(seq, ONE), None, at)


@pytest.fixture
def two(url: str) -> Iterator[tuple[PostgresBackend, PostgresBackend]]:
    """Two processes of a store, as far as its server can tell."""
    with closing(open_backend(url)) as one, closing(open_backend(url)) as other:
        assert isinstance(one, PostgresBackend)
        assert isinstance(other, PostgresBackend)
        one.make()
        yield one, other


def overlapping(
    postgres: Node, first: Callable[[], None], second: Callable[[], None], least: int = 0
) -> None:
    """Let one come between what another one asks and what that one writes, if it can."""
    asked, go, done = (threading.Event() for _ in range(3))
    put = evidence._Rows.put

    def putting(rows: evidence._Rows, table: Table, new: Any) -> None:
        if threading.current_thread() is threads[0] and not asked.is_set():
            asked.set()
            assert go.wait(PATIENCE)
        put(rows, table, new)

    def after() -> None:
        second()
        done.set()

    threads = [threading.Thread(target=first), threading.Thread(target=after)]
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evidence._Rows, "put", putting)
        threads[0].start()
        assert asked.wait(PATIENCE)
        threads[1].start()
        until(lambda: done.is_set() or postgres.ask(waiting) > least, "the second one hangs")
        go.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert done.is_set()


@pytest.mark.parametrize("known", [False, True])
def test_evidence_never_steps_back(
    postgres: Node, two: tuple[PostgresBackend, PostgresBackend], *, known: bool
) -> None:
    """Of two positions that are noted at once the further one stays, whoever comes last."""
    one, other = two
    if known:
        one.evidence.note([seen(5)])
    overlapping(
        postgres, lambda: one.evidence.note([seen(8)]), lambda: other.evidence.note([seen(10)])
    )
    assert [each.position.seq for each in one.evidence.known("", "s")] == [10]


def test_no_acceptance_is_lost(
    postgres: Node, two: tuple[PostgresBackend, PostgresBackend]
) -> None:
    """Of two acceptances that are made at once both are kept, one after the other."""
    one, other = two
    overlapping(
        postgres,
        lambda: one.evidence.accept("", accepted(3, 2000)),
        lambda: other.evidence.accept("", accepted(4, 3000)),
    )
    assert [each.position.seq for each in one.evidence.acceptances("", "s")] == [3, 4]
    assert [each.position.seq for each in one.evidence.known("", "s")] == [4]


def test_what_was_seen_before_a_decision_is_not_noted_beside_it(
    postgres: Node, two: tuple[PostgresBackend, PostgresBackend]
) -> None:
    """Who notes another log of a session while one is accepted leaves that as the only one."""
    one, other = two
    overlapping(
        postgres,
        lambda: one.evidence.note([seen(9, OTHER)]),
        lambda: other.evidence.accept("", accepted(4, 3000)),
    )
    assert [each.digest for each in one.evidence.known("", "s")] == [ONE]
    overlapping(
        postgres,
        lambda: one.evidence.note([seen(9, OTHER, at=4000)]),
        other.evidence.forget_all,
    )
    assert one.evidence.known("", "s") == []
    damage = Damage("s", "record", 1, "a reason", 5000)
    overlapping(
        postgres,
        lambda: one.evidence.report("", damage),
        lambda: other.evidence.accept("", accepted(5, 6000)),
    )
    assert one.evidence.reports("") == []


def test_those_who_note_at_once_wait_for_each_other_and_try_nothing_again(
    url: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many processes note the same sessions in any order: no deadlock, no conflict, the furthest.

    Evidence of different sessions is noted side by side.
    """
    failed: list[BaseException] = []
    again = meaning.again

    def counting(error: BaseException) -> bool:
        failed.append(error)
        return again(error)

    monkeypatch.setattr(meaning, "again", counting)
    names = [f"s{number}" for number in range(10)]
    start = threading.Barrier(8)
    orders = [[rng.sample(names, 8) for _ in range(10)] for _ in range(8)]

    def note(place: int) -> None:
        try:
            with closing(open_backend(url)) as backend:
                start.wait(PATIENCE)
                for number, order in enumerate(orders[place]):
                    backend.evidence.note(
                        [seen(number * 8 + place, session=name) for name in order]
                    )
        except BaseException as error:
            failed.append(error)
            raise

    with closing(open_backend(url)) as backend:
        backend.make()
        threads = [threading.Thread(target=note, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert failed == []
        furthest = dict.fromkeys(names, -1)
        for place, rounds in enumerate(orders):
            for number, order in enumerate(rounds):
                for name in order:
                    furthest[name] = max(furthest[name], number * 8 + place)
        found = backend.evidence.everything_known("")
        assert {each.session: each.position.seq for each in found} == furthest


def test_evidence_of_other_sessions_waits_for_nobody(
    postgres: Node, two: tuple[PostgresBackend, PostgresBackend]
) -> None:
    """While what is known of some sessions is being changed, that of others is changed as ever."""
    one, other = two

    def second() -> None:
        other.evidence.note([seen(1, session="t")])
        assert [each.position.seq for each in other.evidence.known("", "t")] == [1]

    # Nobody waits, so only its end lets the first one go on.
    overlapping(postgres, lambda: one.evidence.note([seen(1)]), second, least=1000)


def test_many_sessions_take_few_locks(
    postgres: Node, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who notes thousands of sessions at once uses up none of the room that a server has."""
    locks: list[int] = []
    put = evidence._Rows.put

    def putting(rows: evidence._Rows, table: Table, new: list[Row]) -> None:
        locks.append(postgres.ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))
        put(rows, table, new)

    monkeypatch.setattr(evidence._Rows, "put", putting)
    with closing(open_backend(url)) as backend:
        backend.make()
        backend.evidence.note([seen(1, session=f"s{number}") for number in range(500)])
        assert len(backend.evidence.everything_known("")) == 500
        backend.evidence.note([seen(2, session=f"s{number}") for number in range(5)])
    assert len(locks) == 2
    assert 1 <= locks[0] < locks[1] <= 10


# --- connections --------------------------------------------------------------------------------


def test_one_connection_is_enough(url: str) -> None:
    """A process with a single connection creates, forks, searches, copies, deletes and repairs."""
    few = f"{url}&connections=1&timeout=5"
    assert parse_address(few).connections == 1
    with perdure.open(few) as store:
        with store.create("s") as session:
            session.append("user/message", {"content": "the quick brown fox"})
            session.append_many([{"type": f"x{n % 3}", "data": "y" * 3000} for n in range(800)])
            digest = session.put_blob(b"z" * 10_000_000)
            with store.fork("s", new_id="f") as fork:
                fork.append("user/message", {"content": "another fox"})
            session.append("x", 1)
        store.refresh()
        assert sorted(hit.session for hit in store.search("fox").hits) == ["f", "f", "s"]
        assert store.blob("s", digest) == b"z" * 10_000_000
        assert len([*zip(store.read_from("s"), store.read_from("f"), strict=False)]) == 802
        failed: list[BaseException] = []

        def work(number: int) -> None:
            try:
                store.fork("s", new_id=f"f{number}").close()
                with store.writer(f"f{number}") as session:
                    session.append("x", number)
                store.delete(f"f{number}")
                store.restore(f"f{number}")
                assert store.verify(f"f{number}").sound
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == []
        with perdure.open("memory:") as copy:
            assert len(store.copy_all(copy)) == 6


# --- where nothing can be written ----------------------------------------------------------------


@pytest.fixture
def unwaiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody try a second time."""

    def waits(attempts: Attempts) -> bool:
        raise AssertionError(f"waits: {attempts}")

    monkeypatch.setattr(Attempts, "pause", waits)


@pytest.mark.usefixtures("unwaiting")
def test_who_reads_where_nothing_can_be_written_waits_for_nothing(url: str) -> None:
    """At a standby, lists and search answer at once, whether or not the index has all."""
    with perdure.open(url, index=False) as store:
        for name in ("a", "b"):
            with store.create(name) as session:
                session.append("user/message", {"content": [{"type": "text", "text": "a pear"}]})
    standby = f"{url}&options=-c%20default_transaction_read_only%3Don"
    with perdure.open(standby) as store:
        assert {each.id for each in store.sessions().sessions} == {"a", "b"}
        assert {hit.session for hit in store.search("pear").hits} == {"a", "b"}
        assert store.verify("a").sound
        with pytest.raises(StorageUnavailable, match="read-only") as raised:
            store.create("c").append("x", 1)
        assert "primary" in raised.value.hint
        with pytest.raises(StorageUnavailable, match="read-only"):
            store.delete("a")


def test_who_seeks_the_primary_waits_for_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a server was demoted under who asks for the primary, it is waited for."""
    paused: list[Attempts] = []

    def pause(attempts: Attempts) -> bool:
        paused.append(attempts)
        return False

    monkeypatch.setattr(Attempts, "pause", pause)
    perdure.open(url, index=False).create("a").append("x", 1)

    def change(work: Work) -> None:
        work.run("SET LOCAL transaction_read_only = on")
        work.run("DELETE FROM @sessions")

    for more, waits in (("", 0), ("&target_session_attrs=read-write", 1)):
        with closing(Server(parse_address(url + more), SYSTEM)) as server:
            with pytest.raises(StorageUnavailable, match="read-only"):
                server.change(change)
            assert len(paused) == waits


# --- what somebody removed or moved --------------------------------------------------------------


def refused(outcomes: list[Any]) -> list[Any]:
    """Return what became of a copy; raise if something could not be copied."""
    for each in outcomes:
        if isinstance(each, perdure.NotCopied):
            raise each.error
    return outcomes


LOST = ["tails", "sessions", "records", "store", "migrations", "catalog_passages", "blobs"]


@pytest.mark.parametrize("table", LOST)
def test_a_table_that_is_missing_is_not_an_empty_one(
    postgres: Node, url: str, table: str, tmp_path: Path
) -> None:
    """Where a part of the tables is gone nobody is told that nothing was stored."""
    schema = parse_address(url).schema
    with perdure.open(url) as store:
        with store.create("a") as session:
            session.append("user/message", {"content": [{"type": "text", "text": "a pear"}]})
        assert store.search("pear").hits
    postgres.ask(f"DROP TABLE {schema}.{table} CASCADE")
    with perdure.open(url) as store, perdure.open(tmp_path / "copy") as copy:
        found: dict[str, Callable[[], Any]] = {
            "list": store.list,
            "sessions": lambda: store.sessions().sessions,
            "search": lambda: store.search("pear").hits,
            "inspect": lambda: store.inspect("a"),
            "read": lambda: list(store.read_from("a", 0)),
            "copy": lambda: refused(store.copy_all(copy)),
            "create": lambda: store.create("b").append("x", 1),
        }
        for name, asked in found.items():
            if table != "catalog_passages":
                with pytest.raises(StorageUnavailable, match=f"missing: .*{table}"):
                    assert asked() is None, name
            elif name != "search":
                assert asked(), name
            else:
                with pytest.raises(StorageUnavailable, match=f"missing: .*{table}"):
                    asked()
    for name in ("migrate", "status"):
        done = CliRunner().invoke(cli, ["--store", url, "postgres", name])
        assert (done.exit_code, "missing" in done.stderr) == (1, True)


@pytest.mark.parametrize("change", [b"seq = 7 WHERE seq = 6", b"seq = seq + 100"])
def test_a_row_that_stands_elsewhere_is_not_taken_out(
    postgres: Node, url: str, change: bytes
) -> None:
    """A record of which the number beside it lies is repaired, and no writer puts it aside."""
    schema = parse_address(url).schema
    with perdure.open(url, index=False) as store:
        with store.create("a") as session:
            for number in range(7):
                session.append("x", number)
        with postgres.connect() as connection:
            connection.execute(f"SET search_path = {schema}".encode())
            connection.execute(b"UPDATE records SET " + change)
        with perdure.open(url, index=False) as other:
            with pytest.raises(SessionDamaged, match="stands elsewhere"):
                other.writer("a")
            assert list(other.asides("a")) == []
            assert other.repair("a").kept == 7
            with other.writer("a") as session:
                session.append("x", 7)
            found = [event.data for event in other.read_from("a", 0) if event.type == "x"]
            assert found == [*range(8)]
            assert other.verify("a").sound
