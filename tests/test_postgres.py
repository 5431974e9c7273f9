"""PostgreSQL: addresses, versions, rights, tenants, partitions, following, what plans are made."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib import import_module
from typing import Any

import psycopg
import pytest
from psycopg import errors

import perdure
from perdure.backends import open_backend
from perdure.backends.postgres import PostgresBackend
from perdure.databases.postgres import NotMade, Server, administration, migrations, parse_address
from perdure.databases.postgres.tables import PARTITION_SESSIONS, TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.databases.postgres.work import Work
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    KeyConflict,
    SessionNotFound,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.runtime import SYSTEM
from perdure.testing.contract import Clockwork
from tests.postgres.server import Server as Node

PATIENCE = 30.0


@pytest.fixture
def url(postgres: Node, fresh_schema: Callable[[], str]) -> str:
    """A place in the server in which nothing is stored."""
    return postgres.url(schema=fresh_schema())


@pytest.fixture
def server(url: str) -> Iterator[Server]:
    """The tables of that place, made."""
    with closing(Server(parse_address(url), SYSTEM)) as made:
        made.make()
        yield made


@pytest.fixture
def role(postgres: Node) -> Iterator[Callable[[], str]]:
    """Makes roles that may log in and own nothing."""
    made: list[str] = []

    def make() -> str:
        made.append(f"role_{SYSTEM.token(6)}")
        postgres.ask(f"CREATE ROLE {made[-1]} LOGIN")
        return made[-1]

    yield make
    for name in made:
        postgres.ask(f"DROP OWNED BY {name}")
        postgres.ask(f"DROP ROLE {name}")


def as_role(url: str, role: str) -> str:
    return url.replace("postgres@", f"{role}@")


# --- addresses ----------------------------------------------------------------------------------


def test_a_password_is_never_shown() -> None:
    """No text that perdure makes of an address holds the password."""
    url = "postgresql://me:s3cret@a:1,b:2/base?target_session_attrs=read-write&schema=mine"
    address = parse_address(url)
    assert address.shown == "postgresql://me@a:1,b:2/base?schema=mine"
    assert "s3cret" in address.conninfo
    with closing(open_backend(url)) as backend:
        assert "s3cret" not in f"{backend!r} {backend.place}"
        with pytest.raises(StorageUnavailable) as caught, perdure.open(url) as store:
            store.create("x").append("a", 1)
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"
    assert caught.value.retryable


@pytest.mark.parametrize(
    "query",
    [
        "schema=Public",
        "schema=pg_catalog",
        "schema=a%22b",
        "lease=0",
        "lease=x",
        "timeout=-1",
        "pooled=maybe",
        "connections=0",
        "no_such_parameter=1",
        "user=a%00b",
    ],
)
def test_a_parameter_that_is_none_is_refused(query: str) -> None:
    """What libpq or perdure cannot read is refused before anything is connected."""
    with pytest.raises(InvalidValue):
        open_backend(f"postgresql://me:s3cret@host/base?{query}")


def test_both_schemes_mean_the_same() -> None:
    """`postgres://` is `postgresql://`."""
    with closing(open_backend("postgres://host/base")) as backend:
        assert isinstance(backend, PostgresBackend)
        assert backend.place == "postgresql://host/base"


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, opening says which one."""

    def missing(name: str) -> Any:
        if name == "perdure.backends.postgres":
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        return import_module(name)

    monkeypatch.setattr("perdure.backends.registry.import_module", missing)
    with pytest.raises(InvalidValue, match=r"pip install 'perdure\[postgres\]'"):
        open_backend("postgresql://host/base")


# --- versions -----------------------------------------------------------------------------------


def test_nothing_is_made_before_something_is_stored(url: str, postgres: Node) -> None:
    """Whoever only reads makes no table, and finds nothing."""
    with perdure.open(url) as store:
        assert store.list() == []
        assert store.search("anything").hits == []
        with pytest.raises(SessionNotFound):
            store.inspect("x")
    schema = parse_address(url).schema
    assert not postgres.ask("SELECT count(*) FROM pg_namespace WHERE nspname = %s", schema)


def test_tables_of_a_newer_version_are_refused(url: str, server: Server) -> None:
    """Neither reader nor writer touches the tables of a perdure to come."""
    with perdure.open(url) as store:
        store.create("x").append("a", 1)
    server.change(lambda work: work.run("INSERT INTO @migrations VALUES (%s, 0)", 99))
    with perdure.open(url) as store:
        with pytest.raises(FormatUnsupported, match="newer"):
            store.inspect("x")
        with pytest.raises(FormatUnsupported, match="newer"):
            store.create("y").append("a", 1)


def test_a_new_version_is_made_of_the_old_one(server: Server) -> None:
    """Each migration is done once, in order, and older tables tell what to do."""
    steps = (
        *migrations.MIGRATIONS,
        ("CREATE TABLE @later (n bigint)",),
        ("INSERT INTO @later VALUES (1)", "INSERT INTO @later VALUES (2)"),
    )
    found = 0
    for _ in range(2):
        with server.direct() as work:
            found = migrations.bring(work.connection, server.address, SYSTEM, steps)
        version = server.read(migrations.version_of)
        assert version == len(steps)
    assert found == len(steps)
    assert server.read(lambda work: work.rows("SELECT n FROM @later ORDER BY n")) == [(1,), (2,)]
    server.change(lambda work: work.run("DELETE FROM @migrations"))
    server.change(lambda work: work.run("INSERT INTO @migrations VALUES (0, 0)"))
    with server.direct() as work, pytest.raises(StorageUnavailable, match="postgres migrate"):
        migrations.check(work, server.address)


def test_a_migration_that_fails_changes_nothing(server: Server) -> None:
    """A migration happens whole or not at all."""
    steps = (*migrations.MIGRATIONS, ("CREATE TABLE @half (n bigint)", "SELECT 1 / 0"))
    with server.direct() as work, pytest.raises(errors.DivisionByZero):
        migrations.bring(work.connection, server.address, SYSTEM, steps)
    assert server.read(migrations.version_of) == migrations.VERSION
    with pytest.raises(NotMade):
        server.read(lambda work: work.rows("SELECT * FROM @half"))


def test_many_may_make_the_tables_at_once(url: str) -> None:
    """Of those who make the tables at the same time one does, and all go on."""
    failed: list[BaseException] = []
    start = threading.Barrier(6)

    def make() -> None:
        try:
            with closing(Server(parse_address(url), SYSTEM)) as server:
                start.wait(PATIENCE)
                server.make()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failed == []
    with closing(Server(parse_address(url), SYSTEM)) as server:
        assert server.read(lambda work: work.rows("SELECT count(*) FROM @store")) == [(1,)]


LONG = "\N{GRINNING FACE}" * 1023


def test_the_longest_names_are_told_apart(url: str) -> None:
    """Ids, keys and namespaces of the greatest length are stored, found, listed and kept apart."""
    spaces = [(f"{LONG}{n}", f"{LONG}x", f"{LONG}y") for n in range(2)]
    with perdure.open(url) as store:
        for parts in ((), *spaces):
            for id in (f"{LONG}a", f"{LONG}b"):
                with store.namespace(*parts).create(id) as session:
                    for key in (f"{LONG}1", f"{LONG}2"):
                        session.append("x", [id[-1], key[-1]], key=key)
                    with pytest.raises(KeyConflict) as caught:
                        session.append("x", "other", key=f"{LONG}1")
                    assert caught.value.key == f"{LONG}1"
        store.namespace(*spaces[0]).delete(f"{LONG}a")
    with perdure.open(url) as store:
        assert store.namespaces() == sorted(parts[0] for parts in spaces)
        assert store.namespace(spaces[0][0]).namespaces() == [f"{LONG}x"]
        assert store.namespace(*spaces[1][:2]).namespaces() == [f"{LONG}y"]
        assert sorted(entry.id for entry in store.list()) == [f"{LONG}a", f"{LONG}b"]
        for parts in spaces:
            inner = store.namespace(*parts)
            assert [event.data for event in inner.read_from(f"{LONG}b")] == [["b", "1"], ["b", "2"]]
        gone, there = (store.namespace(*parts) for parts in spaces)
        with pytest.raises(SessionNotFound) as missing:
            gone.inspect(f"{LONG}a")
        assert missing.value.deleted_at is not None
        assert [event.data[0] for event in there.read_from(f"{LONG}a")] == ["a", "a"]
        gone.restore(f"{LONG}a")
        assert gone.verify(f"{LONG}a").sound


# --- rights -------------------------------------------------------------------------------------


def test_a_role_without_rights_is_told_who_grants_them(
    url: str, server: Server, role: Callable[[], str]
) -> None:
    """Where the tables are not ours to read, the error says how that is mended."""
    name = role()
    with perdure.open(as_role(url, name)) as store, pytest.raises(UnsafeFile, match="grant"):
        store.inspect("x")
    administration.grant(server, name)
    with perdure.open(as_role(url, name)) as store:
        store.create("x").append("a", 1)
        assert [event.type for event in store.read_from("x")] == ["a"]
        assert [hit.session for hit in store.search("nothing").hits] == []
    with pytest.raises(InvalidValue, match="no role"):
        administration.grant(server, "nobody's")


def test_a_role_that_may_make_no_tables_says_so(url: str, role: Callable[[], str]) -> None:
    """Whoever may not make the tables is told what an owner has to call."""
    with perdure.open(as_role(url, role())) as store, pytest.raises(UnsafeFile, match="migrate"):
        store.create("x").append("a", 1)


def test_a_granted_role_changes_no_table(url: str, server: Server, role: Callable[[], str]) -> None:
    """After the migration the role that writes needs no right to define anything, and has none."""
    name = role()
    administration.grant(server, name)
    with closing(psycopg.connect(as_role(url, name).partition("&schema")[0])) as connection:
        for statement in (
            f"CREATE TABLE {server.address.schema}.mine (n bigint)",
            f"ALTER TABLE {server.address.schema}.records ADD COLUMN mine bigint",
            f"DROP TABLE {server.address.schema}.records",
            f"TRUNCATE {server.address.schema}.records",
            f"DELETE FROM {server.address.schema}.migrations",  # noqa: S608
            f"INSERT INTO {server.address.schema}.tenants VALUES ('{name}', '')",  # noqa: S608
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
            connection.rollback()


# --- tenants ------------------------------------------------------------------------------------


def test_a_tenant_sees_its_namespace_alone(
    url: str, server: Server, role: Callable[[], str]
) -> None:
    """With row-level security a role reads, counts, finds and writes in its namespace alone."""
    mine, other = role(), role()
    for name, namespace in ((mine, "team/a"), (other, "team/ab")):
        administration.grant(server, name)
        administration.set_tenant(server, name, namespace)
    with perdure.open(url) as store:
        for parts in (("team", "a"), ("team", "a", "deep"), ("team", "ab"), ("team",), ()):
            with store.namespace(*parts).create("s") as session:
                session.append("user/message", {"content": f"secret of {'/'.join(parts)}"})
        store.refresh()
    with perdure.open(as_role(url, mine)) as store:
        assert [entry.id for entry in store.namespace("team", "a").list()] == ["s"]
        assert len(store.namespace("team", "a", "deep").search("secret").hits) == 1
        for parts in (("team", "ab"), ("team",), ()):
            assert store.namespace(*parts).list() == []
            assert store.namespace(*parts).search("secret").hits == []
            with pytest.raises(SessionNotFound):
                store.namespace(*parts).inspect("s")
            with pytest.raises(UnsafeFile, match="row-level security"):
                store.namespace(*parts).create("mine").append("a", 1)
        own = store.namespace("team", "a")
        own.writer("s").append("a", 1)
        with own.create("new") as session:
            session.append_many([{"type": "x", "data": n, "key": f"k{n}"} for n in range(1200)])
            session.append("user/message", {"content": "another secret"})
            session.put_blob(b"content")
        own.refresh()
        assert len(own.search("another").hits) == 1
        own.delete("new")
        own.restore("new")
        assert own.verify("new").sound
    # Rights that are given again are not more than they were.
    administration.grant(server, mine)
    with closing(psycopg.connect(as_role(url, mine).partition("&schema")[0])) as connection:
        for table in ("records_1", "records_rest", *VECTOR_TABLES):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {server.address.schema}.{table}".encode())  # noqa: S608
            connection.rollback()
        for table in {*TENANTED} - {*VECTOR_TABLES}:
            column = "in_namespace" if table.startswith("evidence_") else "namespace"
            query = f"SELECT DISTINCT {column} FROM {server.address.schema}.{table}"  # noqa: S608
            found = {name for (name,) in connection.execute(query.encode()).fetchall()}
            assert found <= {"team/a", "team/a/deep"}, table


def test_an_owner_is_no_tenant(server: Server) -> None:
    """A role for which no policy would hold is refused as a tenant."""
    with pytest.raises(UnsafeFile, match="owns the tables"):
        administration.set_tenant(server, "postgres", "team")


# --- partitions ---------------------------------------------------------------------------------


def test_partitions_are_made_ahead_and_emptied(url: str, server: Server) -> None:
    """What is deleted for good gives its room back, whole partitions at a time."""
    made = administration.maintain(server).made
    assert made == ("records_2", "records_3")
    assert administration.maintain(server) == ((), (), 0)
    with perdure.open(url) as store:
        for number in range(3):
            with store.create(f"old-{number}") as session:
                session.append_many([{"type": "x", "data": SYSTEM.token(2000)} for _ in range(50)])
        server.change(
            lambda work: work.run(
                f"ALTER TABLE @sessions ALTER COLUMN session RESTART WITH {PARTITION_SESSIONS + 5}"
            )
        )
        store.create("new").append("x", 1)
        assert administration.maintain(server)[:2] == (("records_4",), ())
        for number in range(3):
            store.delete(f"old-{number}")
        assert administration.maintain(server).emptied == ()
        store.empty_trash(older_than=0.0)
        done = administration.maintain(server)
        assert done.emptied == ("records_1",)
        assert done.freed > 100_000
        assert [event.data for event in store.read_from("new")] == [1]
        assert store.verify("new").sound
    found = administration.status(server)
    assert (found.sessions, found.trash, found.version) == (1, 0, migrations.VERSION)
    assert "records_1" in {table.name for table in found.tables}


# --- following ----------------------------------------------------------------------------------


def test_a_follower_is_told_of_each_change(url: str) -> None:
    """Whoever waits for a change of a session is woken by it, and by nothing else."""
    with perdure.open(url) as writing, perdure.open(url) as reading:
        session = writing.create("x")
        session.append("a", 0)
        other = writing.namespace("elsewhere").create("x")
        other.append("a", 0)
        for number in range(5):
            seen = reading.revision("x")
            heard = threading.Event()
            end = reading.subscribe("x", heard.set)
            assert end is not None
            found: list[str] = []
            waiting = threading.Thread(
                target=lambda seen=seen, found=found: found.append(reading.watch("x", seen, 20.0))
            )
            waiting.start()
            session.append("a", number)
            waiting.join(PATIENCE)
            assert found == [reading.revision("x")]
            assert found != [seen]
            assert heard.wait(PATIENCE)
            end()
        assert reading.watch("x", reading.revision("x"), 0.0) == reading.revision("x")


def test_a_follower_outlives_its_connection(url: str, postgres: Node) -> None:
    """After the connection that listens was broken, changes are told of again."""
    with perdure.open(url) as writing, perdure.open(url) as reading:
        session = writing.create("x")
        session.append("a", 0)
        heard = threading.Event()
        end = reading.subscribe("x", heard.set)
        assert end is not None
        assert heard.wait(PATIENCE)
        heard.clear()
        postgres.ask(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE query LIKE 'LISTEN%%' AND pid <> pg_backend_pid()".replace("%%", "%")
        )
        # When it listens again it says so: something may have happened meanwhile.
        assert heard.wait(PATIENCE)
        heard.clear()
        session.append("a", 1)
        assert heard.wait(PATIENCE)
        end()


def test_a_fake_clock_ends_waiting(url: str) -> None:
    """Waiting for a change comes to its end by the seconds it was given."""
    with perdure.open(url, runtime=Clockwork()) as store:
        store.create("x").append("a", 0)
        seen = store.revision("x")
        assert store.watch("x", seen, 0.02) == seen


# --- plans --------------------------------------------------------------------------------------


def test_no_hot_query_scans_a_table(url: str, server: Server) -> None:
    """What is asked for every commit, reading or listing is found by an index."""
    seen: dict[str, str] = {}
    execute = psycopg.Cursor.execute

    with perdure.open(url, index=False) as store:
        for number in range(40):
            with store.create(f"s{number:04}") as session:
                session.append_many([{"type": "x", "data": n, "key": f"k{n}"} for n in range(30)])
        # As many as a planner needs to see before it minds.
        server.change(_many)
        server.change(lambda work: work.rows("SELECT 1"))
        with server.direct() as work:
            for table in ("sessions", "tails", "records", "blobs", "asides", "derived"):
                work.run(f"ANALYZE @{table}")

        def spying(cursor: Any, query: Any, params: Any = None, **more: Any) -> Any:
            text = str(query)
            if text.lstrip().startswith(("SELECT", "WITH", "UPDATE", "DELETE")):
                seen.setdefault(text, "") or seen.update({text: repr(params)})
                with psycopg.ClientCursor(cursor.connection) as other:
                    try:
                        execute(other, f"EXPLAIN {text}", params)
                        seen[text] = "\n".join(row[0] for row in other.fetchall())
                    except errors.Error as error:
                        seen[text] = f"not explained: {error}"
            return execute(cursor, query, params, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", spying)
            with store.writer("s0007") as session:
                session.append("x", 1)
                session.append_many([{"type": "x", "data": n} for n in range(5)])
                session.append_many([{"type": "x", "data": n} for n in range(20)])
                digest = session.put_blob(b"content")
                assert store.blob("s0007", digest) == b"content"
            assert len([*store.read_from("s0007", 50)]) > 0
            assert store.inspect("s0007").holder is None
            store.revision("s0007")
            assert len([*store.list()][:3]) == 3
            store.delete("s0008")
            store.restore("s0008")
    scans = {
        text: plan
        for text, plan in seen.items()
        if "Seq Scan on" in plan
        and any(
            f"Seq Scan on {table}" in plan for table in ("sessions", "tails", "records", "blob")
        )
    }
    assert scans == {}
    assert len([plan for plan in seen.values() if "Index" in plan]) > 10, seen


def _many(work: Work) -> None:
    work.run(
        "INSERT INTO @sessions (namespace, name, id, state, created_at, header)"
        " SELECT CASE n % 3 WHEN 0 THEN '' ELSE 'other' END, decode(md5(n::text), 'hex'),"
        " decode(md5(n::text), 'hex'), 'stored', n, 'x' FROM generate_series(1, 20000) n"
    )
    work.run(
        "INSERT INTO @tails (namespace, session, tail_seq, tail_hash, size, revision)"
        " SELECT namespace, session, 3, 'x', 3, 1 FROM @sessions s WHERE NOT EXISTS"
        " (SELECT 1 FROM @tails t WHERE t.namespace = s.namespace AND t.session = s.session)"
    )
    work.run(
        "INSERT INTO @records (namespace, session, seq, count, start, type, time, line)"
        " SELECT namespace, session, n, 1, n, 'x', n, 'x'"
        " FROM @sessions, generate_series(0, 2) n WHERE session > 40"
    )
    work.run(
        "INSERT INTO @blobs SELECT namespace, session, lpad(session::text, 64, 'a'), 1, 1"
        " FROM @sessions"
    )
    work.run("INSERT INTO @blob_parts SELECT namespace, session, digest, 0, 'x' FROM @blobs")
