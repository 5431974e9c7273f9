"""PostgreSQL: addresses, versions, rights, tenants, partitions, following, what plans are made."""

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import psycopg
import pytest
from psycopg import errors

import perdure
from perdure.backends import open_backend
from perdure.backends.postgres import PostgresBackend
from perdure.databases.postgres import (
    NotMade,
    Server,
    administration,
    migrations,
    parse_address,
    parts,
)
from perdure.databases.postgres.pool import AllInUse
from perdure.databases.postgres.tables import PARTITION_SESSIONS, TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.databases.postgres.work import Work
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    KeyConflict,
    SessionBusy,
    SessionNotFound,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.runtime import SYSTEM
from perdure.testing.contract import Clockwork
from tests.postgres.server import Server as Node
from tests.postgres.server import until

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
        postgres.ask(f"DROP OWNED BY {name} CASCADE")
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
    "place",
    ["s3/cret@host:5/base", "s3@cret@host/base", "s3cret%@host/base", "s3?a=/cret@host"],
)
def test_a_sign_that_is_not_encoded_shows_no_part_of_a_password(place: str) -> None:
    """Where a URL could be taken apart in two ways it is refused, without any part of it."""
    with pytest.raises(InvalidValue) as raised:
        open_backend(f"postgresql://me:{place}")
    assert not any(part in str(raised.value.reason) for part in ("s3", "cret", "host"))
    assert "%40" in raised.value.hint


@pytest.mark.parametrize(("query", "said"), [("leese=3", "'leese'"), ("lease=3&lease=4", "lease")])
def test_a_mistyped_parameter_is_named(query: str, said: str) -> None:
    """Who mistypes a parameter, or gives one twice, is told which."""
    with pytest.raises(InvalidValue, match=said):
        open_backend(f"postgresql://me@host/base?{query}")


@pytest.mark.parametrize("wrong", ["sslmode=bogus", "target_session_attrs=bogus", "port=abc"])
def test_a_value_that_libpq_refuses_is_not_tried_again(wrong: str) -> None:
    """What libpq cannot read is no matter of waiting, and the hint is about the URL."""
    url = f"postgresql://127.0.0.1/base?{wrong}"
    with perdure.open(url) as store, pytest.raises(StorageUnavailable) as raised:
        store.list()
    assert not raised.value.retryable
    assert "URL" in raised.value.hint


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
        "client_encoding=SQL_ASCII",
    ],
)
def test_a_parameter_that_is_none_is_refused(query: str) -> None:
    """What libpq or perdure cannot read is refused before anything is connected."""
    with pytest.raises(InvalidValue):
        open_backend(f"postgresql://me:s3cret@host/base?{query}")


@pytest.mark.parametrize(
    ("query", "attributes"),
    [
        ("host=a", None),
        ("host=a,b", "read-write"),
        ("hostaddr=127.0.0.1,127.0.0.2", "read-write"),
        ("host=a,b&target_session_attrs=any", "any"),
    ],
)
def test_of_several_hosts_the_one_that_takes_writes_is_meant(
    query: str, attributes: str | None
) -> None:
    """Where several hosts are named and nothing else is said, a standby is not taken for one."""
    address = parse_address(f"postgresql:///base?{query}")
    given = psycopg.conninfo.conninfo_to_dict(address.conninfo)
    assert given.get("target_session_attrs") == attributes


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
    with pytest.raises(InvalidValue, match=r"install perdure again with \[postgres\]"):
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


def test_a_schema_of_ones_own_is_enough(url: str, role: Callable[[], str], postgres: Node) -> None:
    """Who owns a schema makes the tables in it, without a right on the database."""
    name, schema = role(), parse_address(url).schema
    postgres.ask(f"CREATE SCHEMA {schema} AUTHORIZATION {name}")
    with perdure.open(as_role(url, name)) as store:
        store.create("x").append("a", 1)
        assert [event.type for event in store.read_from("x")] == ["a"]


def test_a_granted_role_gives_no_numbers(url: str, server: Server, role: Callable[[], str]) -> None:
    """The number of a session is that of the table: nobody takes one, or says which it is."""
    name = role()
    # As an older perdure left it.
    schema = server.address.schema
    for what in (f"ALL SEQUENCES IN SCHEMA {schema}", f"{schema}.vector_era"):
        right = "USAGE" if "SEQUENCES" in what else "UPDATE"
        statement = f"GRANT {right} ON {what} TO {name}"
        server.change(partial(Work.run, statement=statement))
    administration.grant(server, name)
    with closing(psycopg.connect(as_role(url, name).partition("&schema")[0])) as connection:
        for statement in (
            f"SELECT nextval('{schema}.sessions_session_seq')",
            (
                f"INSERT INTO {schema}.sessions"  # noqa: S608
                " (namespace, session, name, id, state, created_at, header) OVERRIDING SYSTEM VALUE"
                " VALUES ('', 500000000000, 'x', 'x', 'new', 1, 'x')"
            ),
        ):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)
            connection.rollback()
    with perdure.open(as_role(url, name)) as store:
        with store.create("x") as session:
            session.append("a", 1)
        store.fork("x", new_id="y").close()
        store.delete("x")
        assert [entry.id for entry in store.list()] == ["y"]


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
            query = f"SELECT * FROM {server.address.schema}.{table}"  # noqa: S608
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(query.encode())
            connection.rollback()
        for table in {*TENANTED} - {*VECTOR_TABLES}:
            column = "in_namespace" if table.startswith("evidence_") else "namespace"
            query = f"SELECT DISTINCT {column} FROM {server.address.schema}.{table}"  # noqa: S608
            found = {name for (name,) in connection.execute(query.encode()).fetchall()}
            assert found <= {"team/a", "team/a/deep"}, table


def test_an_owner_is_no_tenant(server: Server, role: Callable[[], str], postgres: Node) -> None:
    """A role for which no policy would hold is refused as a tenant."""
    with pytest.raises(UnsafeFile, match="owns the tables"):
        administration.set_tenant(server, "postgres", "team")
    owner, member = role(), role()
    postgres.ask(f"GRANT {owner} TO {member}")
    server.change(lambda work: work.run(f"ALTER TABLE @sessions OWNER TO {owner}"))
    with pytest.raises(UnsafeFile, match="owns the tables"):
        administration.set_tenant(server, member, "team")
    server.change(lambda work: work.run("ALTER TABLE @sessions OWNER TO postgres"))


def test_rights_of_a_group_show_a_tenant_no_more(
    url: str, server: Server, role: Callable[[], str], postgres: Node
) -> None:
    """Whatever a tenant may by a group or as anybody, it sees and changes its own rows alone."""
    mine, group, all_of_it = role(), role(), role()
    postgres.ask(f"GRANT {group} TO {mine}")
    schema = server.address.schema
    administration.grant(server, group)
    administration.grant(server, all_of_it)
    administration.set_tenant(server, mine, "team/a")
    administration.set_tenant(server, all_of_it, "")
    made = administration.maintain(server).made
    assert made == ("records_2", "records_3")
    server.change(
        lambda work: work.run(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {group}, PUBLIC")
    )
    with perdure.open(url, embedder="hashing") as store:
        for parts_of in (("team", "a"), ("team", "b")):
            with store.namespace(*parts_of).create("s") as session:
                session.append("user/message", {"content": f"a secret of {parts_of}"})
            store.namespace(*parts_of).embed()
    server.change(
        lambda work: work.run(
            "INSERT INTO @records SELECT namespace, %s, seq, count, start, type, time, agent, turn,"
            " key, line FROM @records",
            PARTITION_SESSIONS + 5,
        )
    )
    with closing(psycopg.connect(as_role(url, mine).partition("&schema")[0])) as connection:
        for table in ("records_1", "records_2", "vector_models", "vector_sketches", "vectors"):
            there = f"SELECT 1 FROM @{table} LIMIT 1"  # noqa: S608
            assert server.read(partial(Work.row, statement=there)) == (1,)
            for verb in ("SELECT *", "DELETE"):
                statement = f"{verb} FROM {schema}.{table}"
                assert connection.execute(statement.encode()).rowcount == 0, table
        era = f"UPDATE {schema}.vector_era SET era = 'mine'"  # noqa: S608
        assert connection.execute(era.encode()).rowcount == 0
        added = f"INSERT INTO {schema}.vectors VALUES (99, 'x')"  # noqa: S608
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute(added.encode())
        connection.rollback()
        seen = f"SELECT DISTINCT namespace FROM {schema}.records"  # noqa: S608
        assert connection.execute(seen.encode()).fetchall() == [("team/a",)]
    # Who sees everything searches by meaning, and makes vectors.
    with perdure.open(as_role(url, all_of_it), embedder="hashing") as store:
        inner = store.namespace("team", "b")
        assert len(inner.search("secret", mode="semantic").hits) == 1
        inner.create("more").append("user/message", {"content": "another one"})
        inner.refresh()
        assert inner.embed().vectors == 1


def test_a_tenant_has_no_vectors(url: str, server: Server, role: Callable[[], str]) -> None:
    """For a tenant there are no vectors; who would make some is told who may."""
    mine = role()
    administration.grant(server, mine)
    administration.set_tenant(server, mine, "team")
    with perdure.open(url, embedder="hashing") as store:
        store.namespace("team").create("s").append("user/message", {"content": "a word"})
        assert store.namespace("team").embed().vectors == 1
    with perdure.open(as_role(url, mine), embedder="hashing") as store:
        team = store.namespace("team")
        found = team.stats()
        assert (found.sums.sessions, found.models) == (1, ())
        assert len(team.search("word").hits) == 1
        with pytest.raises(UnsafeFile, match="shared by all namespaces") as caught:
            team.embed()
        assert "whole store" in caught.value.hint
        assert team.stats().models == ()


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


def test_numbers_that_somebody_made_up_keep_no_partition_from_being_made(
    url: str, server: Server
) -> None:
    """How many partitions are made goes by the numbers that were given, whatever rows say."""
    far = 500_000_000_000
    server.change(
        lambda work: work.run(
            "INSERT INTO @sessions (namespace, session, name, id, state, created_at, header)"
            " OVERRIDING SYSTEM VALUE VALUES ('', %s, 'x', 'x', 'new', 1, 'x')",
            far,
        )
    )
    server.change(
        lambda work: work.run(
            "INSERT INTO @records (namespace, session, seq, count, start, type, time, line)"
            " VALUES ('', %s, 0, 1, 0, 'x', 1, 'x'), ('', %s, 0, 1, 0, 'x', 1, 'x')",
            far,
            PARTITION_SESSIONS + 7,
        )
    )
    # The second one is too late, since a row of it stands in the rest.
    assert administration.maintain(server).made == ("records_3",)
    assert administration.maintain(server) == ((), (), 0)
    with perdure.open(url) as store:
        store.create("x").append("a", 1)
    assert _checks_of_the_rest(server) == []


def _checks_of_the_rest(server: Server) -> list[Any]:
    query = "SELECT conname FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'"
    rest = f'"{server.address.schema}".records_rest'
    return server.read(lambda work: work.rows(query, rest))


def _indexes(work: Work, *, table: str) -> list[str]:
    query = (
        "SELECT pg_get_indexdef(i.oid) FROM pg_index x JOIN pg_class i"
        " ON i.oid = x.indexrelid WHERE x.indrelid = %s::regclass AND i.relispartition"
    )
    return [text for (text,) in work.rows(query, table)]


def test_a_partition_is_like_the_others(server: Server) -> None:
    """A partition that was made beside a full rest has the keys and indexes of all, and no check.

    What somebody left who died while it was made is taken away.
    """
    server.change(
        lambda work: work.run(
            "INSERT INTO @records (namespace, session, seq, count, start, type, time, line)"
            " VALUES ('', %s, 0, 1, 0, 'x', 1, 'x')",
            10**12,
        )
    )
    server.change(
        lambda work: work.run(
            "ALTER TABLE @records_rest ADD CONSTRAINT not_7 CHECK (session < 600000)  NOT VALID"
        )
    )
    assert administration.maintain(server).made == ("records_2", "records_3")
    assert _checks_of_the_rest(server) == []
    shapes = []
    for name in ("records_1", "records_2", "records_3"):
        table = f'"{server.address.schema}".{name}'
        found = server.read(partial(_indexes, table=table))
        shapes.append(sorted(text.partition(" USING ")[2] for text in found))
    assert len(shapes[0]) == 2
    assert shapes[1:] == shapes[:1] * 2


@contextmanager
def _rows_of_a_transaction(server: Server, session: int) -> Iterator[Any]:
    """Give a connection that has stored a record of a session and not yet committed that."""
    with server.snapshot() as work:
        work.connection.rollback()
        work.connection.read_only = False
        work.run(
            "INSERT INTO @records (namespace, session, seq, count, start, type, time, line)"
            " VALUES ('', %s, 0, 1, 0, 'x', 1, 'x')",
            session,
        )
        yield work.connection


def test_nobody_waits_for_who_maintains(
    url: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one long transaction keeps partitions from being made, all others commit as ever."""
    monkeypatch.setattr(parts, "_LOCK_SECONDS", 2)
    with perdure.open(url, index=False) as store, store.create("x") as session:
        session.append("a", 0)
        with _rows_of_a_transaction(server, 10**12):
            caught: list[BaseException] = []

            def maintain() -> None:
                try:
                    administration.maintain(server)
                except StorageUnavailable as error:
                    caught.append(error)

            thread = threading.Thread(target=maintain)
            thread.start()
            longest = 0.0
            while thread.is_alive():
                began = time.monotonic()
                session.append("a", 1)
                longest = max(longest, time.monotonic() - began)
            assert longest < 1.0
            assert len(caught) == 1
            assert caught[0].retryable  # type: ignore[attr-defined]
        assert administration.maintain(server).made == ("records_2", "records_3")


def test_a_partition_in_use_is_not_emptied(server: Server) -> None:
    """What somebody stores in a partition while it is looked at is not emptied with it."""
    fill = (
        "INSERT INTO @records (namespace, session, seq, count, start, type, time, line)"
        " SELECT '', 1, n, 1, n, 'x', n, 'x' FROM generate_series(1, 2000) n"
    )
    server.change(lambda work: work.run(fill))
    server.change(lambda work: work.run("DELETE FROM @records"))
    restart = f"ALTER TABLE @sessions ALTER COLUMN session RESTART WITH {PARTITION_SESSIONS + 5}"
    server.change(lambda work: work.run(restart))
    ask = "SELECT nextval(pg_get_serial_sequence(%s, 'session'))"
    server.change(lambda work: work.row(ask, f'"{server.address.schema}".sessions'))
    with _rows_of_a_transaction(server, 2) as connection:
        done: list[Any] = []
        thread = threading.Thread(target=lambda: done.append(administration.maintain(server)))
        thread.start()
        query = "SELECT 1 FROM pg_locks WHERE relation = %s::regclass AND NOT granted"
        rest = f'"{server.address.schema}".records_1'
        until(lambda: server.read(lambda work: work.row(query, rest)), "it asks for no lock")
        connection.commit()
        thread.join(PATIENCE)
    assert [each.emptied for each in done] == [()]
    assert server.read(lambda work: work.rows("SELECT session FROM @records")) == [(2,)]


# --- connections --------------------------------------------------------------------------------


def test_a_connection_that_was_dropped_is_given_back(url: str, server: Server) -> None:
    """Who is interrupted before a connection could be noted has taken none from others."""
    pool = server._connections()
    most = server.address.connections
    for _ in range(3 * most):
        pool.take(1.0)
    taken = [pool.take(1.0) for _ in range(most)]
    with pytest.raises(AllInUse):
        pool.take(0.05)
    pool.give(taken.pop())
    taken.append(pool.take(1.0))
    for each in taken:
        pool.give(each)
    with perdure.open(url) as store:
        store.create("x").append("a", 1)


class _Interrupted(BaseException):
    """As a signal handler raises it."""


def test_interrupts_lose_no_connection(url: str) -> None:
    """However often calls are interrupted by signals, none is lost and none waits for ever."""

    def interrupt(*_: object) -> None:
        raise _Interrupted

    def tell(unraisable: "sys.UnraisableHookArgs") -> None:
        # One that comes within a finalizer is nobody's to catch.
        if not isinstance(unraisable.exc_value, _Interrupted):
            told(unraisable)

    seen = 0
    told, sys.unraisablehook = sys.unraisablehook, tell
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with perdure.open(f"{url}&timeout=2&connections=3", index=False) as store:
            store.create("x").append("a", 1)
            until_ = time.monotonic() + 3.0
            number = 0
            while time.monotonic() < until_:
                number += 1
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 + (number % 199) * 1e-5)
                    for _ in range(30):
                        store.revision("x")
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except _Interrupted:
                    seen += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert seen > 50
            assert store.revision("x") == store.revision("x")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = told


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


def test_a_follower_that_raises_keeps_nobody_from_being_told(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What one follower raises is logged, and all are told, of this change and of later ones."""
    heard = threading.Event()

    def told() -> None:
        raise ZeroDivisionError

    with perdure.open(url) as writing, perdure.open(url) as reading:
        session = writing.create("x")
        session.append("a", 0)
        ends = [reading.subscribe("x", told), reading.subscribe("x", heard.set)]
        for number in range(3):
            assert heard.wait(PATIENCE)
            heard.clear()
            session.append("a", number)
        assert heard.wait(PATIENCE)
        for end in ends:
            assert end is not None
            end()
    assert "ZeroDivisionError" in caplog.text


def test_following_begins_again_after_an_end(url: str) -> None:
    """Who follows after all was closed is told as before."""
    with perdure.open(url) as writing, closing(open_backend(url)) as backend:
        session = writing.create("x")
        session.append("a", 0)
        for number in range(2):
            heard = threading.Event()
            end = backend.subscribe("x", heard.set)
            assert end is not None
            assert heard.wait(PATIENCE)
            heard.clear()
            session.append("a", number)
            assert heard.wait(PATIENCE)
            backend.close()


def test_a_fake_clock_ends_waiting(url: str) -> None:
    """Waiting for a change comes to its end by the seconds it was given."""
    with perdure.open(url, runtime=Clockwork()) as store:
        store.create("x").append("a", 0)
        seen = store.revision("x")
        assert store.watch("x", seen, 0.02) == seen


# --- signs of life ------------------------------------------------------------------------------


def _beats(postgres: Node, url: str) -> Any:
    schema = parse_address(url).schema
    return postgres.ask(f"SELECT max(beat_at)::text FROM {schema}.writers")  # noqa: S608


def _beats_again(postgres: Node, url: str, seen: Any) -> bool:
    return bool(_beats(postgres, url) != seen)


def test_a_full_pool_delays_no_sign_of_life(url: str, postgres: Node) -> None:
    """A writer whose connections are all in use gives its signs of life, and releases sessions."""
    with perdure.open(f"{url}&lease=1&connections=2", index=False) as store:
        store.create("mine").append("a", 0)
        backend = store._backend
        assert isinstance(backend, PostgresBackend)
        pool = backend._server._connections()
        released = threading.Event()

        def release() -> None:
            backend._server.change(lambda work: work.row("SELECT 1"), repeatable=True)
            released.set()

        taken = [pool.take(1.0), pool.take(1.0)]
        backend._presence.drop(release)
        for _ in range(4):
            seen = _beats(postgres, url)
            until(partial(_beats_again, postgres, url, seen), "no sign of life", 1.0)
        assert not released.is_set()
        for each in taken:
            pool.give(each)
        assert released.wait(PATIENCE)


def test_nothing_ends_the_signs_of_life(
    url: str, postgres: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong in the thread of a writer is logged, and the thread goes on."""
    with perdure.open(f"{url}&lease=1", index=False) as store:
        store.create("mine").append("a", 0)
        backend = store._backend
        assert isinstance(backend, PostgresBackend)

        def drop() -> None:
            raise ZeroDivisionError

        backend._presence.drop(drop)
        until(lambda: "ZeroDivisionError" in caplog.text, "nothing is said")

        def broken(*_: object, **__: object) -> None:
            raise FloatingPointError

        with monkeypatch.context() as patch:
            patch.setattr(backend._presence, "_say", broken)
            until(lambda: "FloatingPointError" in caplog.text, "nothing is said")
        seen = _beats(postgres, url)
        until(lambda: _beats(postgres, url) != seen, "no sign of life")
    assert {record.name for record in caplog.records if record.levelno >= logging.ERROR} == {
        "perdure.postgres"
    }


@pytest.mark.parametrize("pooled", ["true", "false"])
def test_a_writer_that_was_forgotten_says_who_it_is(url: str, server: Server, pooled: str) -> None:
    """A living writer whose row was removed puts it back, and is found to have its sessions."""
    with perdure.open(f"{url}&lease=1&pooled={pooled}", index=False) as store:
        session = store.create("x")
        session.append("a", 0)
        query = "SELECT id, pid, host, since, held FROM @writers"
        before = server.read(lambda work: work.rows(query))
        assert len(before) == 1
        server.change(lambda work: work.run("DELETE FROM @writers"))
        until(lambda: server.read(lambda work: work.rows(query)) == before, "nobody is there")
        with perdure.open(f"{url}&lease=1", index=False) as other:
            with pytest.raises(SessionBusy):
                other.writer("x")
            with store.create("y") as second:
                second.append("a", 0)
                with pytest.raises(SessionBusy):
                    other.writer("y")
        session.append("a", 1)


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
