"""Two that are at the same session in PostgreSQL: whoever was judged wrongly harms nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

import perdure
from perdure.backends import open_backend
from perdure.backends.base import Trashed
from perdure.backends.postgres import PostgresBackend
from perdure.databases.postgres import Server, Work, administration, parse_address
from perdure.databases.postgres.work import expanded
from perdure.errors import InvalidValue, SessionBusy, StaleWriter
from perdure.model.event import draft
from perdure.model.header import new_header
from perdure.model.record import Position, Record, seal
from perdure.runtime import SYSTEM
from tests.postgres.server import Server as Node


@pytest.fixture
def url(postgres: Node, fresh_schema: Callable[[], str]) -> str:
    return postgres.url(schema=fresh_schema())


@pytest.fixture
def backend(url: str) -> Iterator[PostgresBackend]:
    with closing(open_backend(url)) as opened:
        assert isinstance(opened, PostgresBackend)
        yield opened


def silence(backend: PostgresBackend) -> None:
    """Make all writers look as if they had given no sign of life for long."""
    backend.database.change(
        lambda work: work.run("UPDATE @writers SET beat_at = clock_timestamp() - interval '1 day'")
    )


def records(genesis: str) -> list[Record]:
    return seal(Position(-1, genesis), [draft("x", {"n": 1}, time=1)])


def test_a_purge_that_took_too_long_removes_nothing(url: str, backend: PostgresBackend) -> None:
    """What was restored and written while somebody was about to remove it stays."""
    with perdure.open(url) as store:
        store.create("s").append("x", 1)
        store.delete("s")
        (trashed,) = backend.trash()

        def first(_: Trashed) -> None:
            silence(backend)
            store.restore("s")
            with store.writer("s") as session:
                session.append("x", 2)

        with pytest.raises(SessionBusy):
            backend.purge(trashed, first)
        assert [event.data for event in store.read_from("s")] == [1, 2]
        assert store.verify("s").sound
        store.delete("s")
        (trashed,) = backend.trash()
        assert backend.purge(trashed, lambda _: None)
        assert not backend.purge(trashed, lambda _: None)


def test_nobody_takes_a_session_whose_log_is_being_replaced(
    url: str, backend: PostgresBackend
) -> None:
    """Whoever believes the one who replaces a log to be gone waits for it, and loses nothing."""
    with perdure.open(url) as store:
        store.create("s").append("x", 1)
        hold = backend.lock("s")
        header = store.inspect("s").header
        assert header is not None
        refused: list[BaseException] = []

        def take() -> None:
            with perdure.open(url) as other, pytest.raises(SessionBusy) as caught:
                other.writer("s").append("x", "lost?")
            refused.append(caught.value)

        def parts() -> Iterator[Record]:
            yield from records(header.genesis)
            silence(backend)
            taking = threading.Thread(target=take)
            taking.start()
            taking.join(60)

        backend.replace(hold, header, parts(), place="before", reason="a test")
        hold.release()
        assert len(refused) == 1
        with store.writer("s") as session:
            session.append("x", 3)
        assert [event.data for event in store.read_from("s")][1:] == [3]
        assert store.verify("s").sound


def test_a_deleted_session_is_taken_by_nobody(url: str, backend: PostgresBackend) -> None:
    """A writer that is taken over is refused everything, content included."""
    with perdure.open(url) as store, store.create("s") as session:
        session.append("x", 1)
        silence(backend)
        taken = backend.lock("s")
        with pytest.raises(StaleWriter):
            session.put_blob(b"content")
        with pytest.raises(StaleWriter):
            session.append("x", 2)
        assert [*backend.blobs("s")] == []
        taken.release()


def test_what_was_staged_in_a_room_that_is_gone_is_refused(backend: PostgresBackend) -> None:
    """Content of a session that is being built is refused once its room was removed."""
    backend.make()
    room = backend.stage(new_header("s", created_at=1))
    backend.put_blob(room, [b"one"])
    backend.database.change(lambda work: work.run("DELETE FROM @sessions"))
    with pytest.raises(StaleWriter):
        backend.put_blob(room, [b"two"])
    room.release()
    left = backend.database.read(lambda work: work.rows("SELECT digest FROM @blobs"))
    assert left == []


def test_more_forks_than_connections_come_to_their_end(url: str) -> None:
    """Who reads a session in the middle of writing another one waits for no connection."""
    with perdure.open(f"{url}&connections=2") as store:
        with store.create("s") as session:
            session.append_many([{"type": "x", "data": "y" * 1000} for _ in range(3000)])
        failed: list[BaseException] = []

        def fork(number: int) -> None:
            try:
                store.fork("s", new_id=f"f{number}").close()
            except BaseException as error:
                failed.append(error)
                raise

        threads = [threading.Thread(target=fork, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failed == []
        assert len(store.list()) == 9


def test_a_reader_keeps_pages_of_big_records_small(url: str, tmp_path: Path) -> None:
    """However big records are, a page of a log holds few of them."""
    del tmp_path
    with perdure.open(url) as store:
        with store.create("s") as session:
            for number in range(12):
                session.append("x", [number, SYSTEM.token(500_000)])
        backend = store._backend
        assert isinstance(backend, PostgresBackend)
        pages: list[int] = []
        read = backend.database.read

        def spying(question: Callable[..., object]) -> object:
            found = read(question)
            if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], list):
                pages.append(len(found[0]))
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend.database, "read", spying)
            assert [event.data[0] for event in store.read_from("s")] == [*range(12)]
        assert max(pages) <= 3
        assert sum(pages) >= 12


def test_the_end_of_a_log_that_grows_is_told_of_one_moment(
    url: str, backend: PostgresBackend
) -> None:
    """A reader beside a writer never finds rows that the tail does not tell of."""
    with perdure.open(url) as store, store.create("s") as session:
        session.append("x", 0)
        ended = threading.Event()

        def write() -> None:
            for number in range(300):
                session.append("x", number)
            ended.set()

        writing = threading.Thread(target=write)
        writing.start()
        looks = 0
        while not ended.is_set():
            assert backend.tail("s").settled
            looks += 1
        writing.join(60)
        assert looks > 10


def test_too_few_connections_are_refused() -> None:
    """Without a connection nothing can be asked."""
    with pytest.raises(InvalidValue, match="connections"):
        open_backend("postgresql://host/base?connections=0")


def test_the_owners_functions_ask_no_table_of_a_tenant(url: str, postgres: Node) -> None:
    """A tenant's own tables and views, called like those of the system, are asked by nobody."""
    role = f"races_{SYSTEM.token(6)}"
    postgres.ask(f"CREATE ROLE {role} LOGIN")
    schema = parse_address(url).schema
    try:
        with closing(Server(parse_address(url), SYSTEM)) as server:
            server.make()
            administration.grant(server, role)
            administration.set_tenant(server, role, "acme")
        with perdure.open(url) as store:
            for name in ("acme", "globex"):
                with store.namespace(name).create("s") as session:
                    session.append("user/message", {"content": f"the secret of {name}"})
            store.refresh()
        theirs = url.replace("postgres@", f"{role}@").partition("&schema")[0]
        with psycopg.connect(theirs, autocommit=True) as connection:
            connection.execute(
                "CREATE TEMP TABLE pg_class AS SELECT oid, relname, relnamespace,"
                " false AS relrowsecurity FROM pg_catalog.pg_class"
            )
            connection.execute(
                f"CREATE TEMP TABLE tenants AS SELECT '{role}'::name AS role, '' AS namespace"
            )
            for name in ("acme", "globex"):
                query = f"SELECT {schema}.catalog_sees('{name}')"
                (found,) = connection.execute(query.encode()).fetchone() or (None,)
                assert bool(found) == (name == "acme")
    finally:
        postgres.ask(f"DROP OWNED BY {role}")
        postgres.ask(f"DROP ROLE {role}")


def test_rows_that_a_tenant_forged_break_no_listing(url: str) -> None:
    """Names and evidence that perdure did not write are as if they were not there."""
    with perdure.open(url) as store:
        store.namespace("acme").create("s").append("x", 1)
        forged = (
            "INSERT INTO @spaces VALUES ('acme/\\x', '')",
            (
                "INSERT INTO @sessions (namespace, name, id, state, created_at, header)"
                " SELECT n, 'a', 'a', 'stored', 1, 'x' FROM unnest(ARRAY['acme/%ff', 'acme/\\x']) n"
            ),
            (
                "INSERT INTO @evidence_damage"
                " VALUES ('acme', 's', 'acme', 's', '\\xff', 1, '\\xff', 1)"
            ),
            "INSERT INTO @evidence_deletion VALUES ('acme', 't', '\\xff', '\\xff', '\\xff', 1)",
        )
        with psycopg.connect(url.partition("&schema")[0], autocommit=True) as connection:
            for statement in forged:
                connection.execute(expanded(statement, parse_address(url).schema).encode())
        assert store.namespaces() == ["acme"]
        assert store.namespace("acme").namespaces() == []
        with perdure.open("memory:") as copy:
            assert len(store.copy_all(copy)) == 1
        assert store.namespace("acme").verify("s").sound
        store.namespace("acme").writer("s").append("x", 2)


def test_a_few_big_events_are_sent_as_bytes(url: str) -> None:
    """A commit of some large records does not take seconds for each megabyte."""
    with perdure.open(url) as store, store.create("s") as session:
        session.append("x", 0)
        asked: list[str] = []
        insert = Work.insert

        def spying(work: Work, table: str, *rest: Any) -> None:
            asked.append(table)
            insert(work, table, *rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Work, "insert", spying)
            session.append_many([{"type": f"y{n}", "data": SYSTEM.token(60_000)} for n in range(4)])
            assert asked == ["records"]
            session.append_many([{"type": f"x{n}", "data": 1} for n in range(4)])
            assert asked == ["records"]


@pytest.mark.parametrize("url", ["postgresql+psycopg://a:s3cret@h/d", "postgres-x://a:s3cret@h/d"])
def test_another_kind_of_url_is_no_folder(url: str) -> None:
    """What looks like a URL and is none of ours is refused, and nothing is told of it."""
    with pytest.raises(InvalidValue) as caught:
        open_backend(url)
    assert "s3cret" not in str(caught.value)


def test_a_commit_that_waited_for_no_standby_is_seen_by_any_role(url: str) -> None:
    """Whatever messages a role asks for, the warning of a wait that was cut short comes through."""
    with closing(
        Server(parse_address(f"{url}&options=-c%20client_min_messages%3Derror"), SYSTEM)
    ) as server:
        server.make()
        told = server.read(lambda work: work.row("SHOW client_min_messages"))
        assert told == ("warning",)


def test_somebody_elses_lock_stops_no_writer(url: str, postgres: Node) -> None:
    """Where another role has taken the lock of the next writer, the one after it is taken."""
    role = f"locks_{SYSTEM.token(6)}"
    postgres.ask(f"CREATE ROLE {role} LOGIN")
    schema = parse_address(url).schema
    try:
        with perdure.open(url) as store:
            store.create("s").append("x", 1)
        bare = url.replace("postgres@", f"{role}@").partition("&schema")[0]
        with psycopg.connect(bare, autocommit=True) as connection:
            for number in range(1, 4):
                connection.execute(
                    "SELECT pg_advisory_lock(hashtext('perdure ' || %s), %s)", (schema, number)
                )
            with closing(Server(parse_address(url), SYSTEM)) as server:
                administration.grant(server, role)
            with perdure.open(url) as store, store.writer("s") as session:
                session.append("x", 2)
                assert store.inspect("s").holder is not None
            assert connection.execute("SELECT 1").fetchone() == (1,)
    finally:
        postgres.ask(f"DROP OWNED BY {role}")
        postgres.ask(f"DROP ROLE {role}")


def test_a_sign_of_life_from_a_time_to_come_is_none(url: str, backend: PostgresBackend) -> None:
    """After the clock of a server was set back, a dead writer does not live until then."""
    with perdure.open(url) as store, store.create("s") as session:
        session.append("x", 1)
        backend.database.change(
            lambda work: work.run(
                "UPDATE @writers SET beat_at = clock_timestamp() + interval '1 day',"
                " incarnation = 'another'"
            )
        )
        backend.lock("s").release()
