"""PostgreSQL: who is let in under which name, who is a tenant, and what that costs all others."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import psycopg
import pytest
from psycopg import sql

import perdure
from perdure.databases.postgres import Server, Work, administration, parse_address, parts
from perdure.databases.postgres.tables import TENANTED
from perdure.errors import StorageUnavailable, UnsafeFile
from perdure.runtime import SYSTEM
from tests.postgres.server import Server as Node

PATIENCE = 30.0
ODD = ("sa{}@project.iam", 'odd{} "name" of @tails, %s {{role}} {{}}', "Upper{} -- ; '")


@pytest.fixture
def schema(fresh_schema: Callable[[], str]) -> str:
    """A place in the server."""
    return fresh_schema()


@pytest.fixture
def url(postgres: Node, schema: str) -> str:
    """Its URL, of the owner."""
    return postgres.url(schema=schema)


@pytest.fixture
def server(url: str) -> Iterator[Server]:
    """The tables of that place, made; nobody waits there for long."""
    with closing(Server(parse_address(f"{url}&timeout=2"), SYSTEM)) as made:
        made.make()
        yield made


@pytest.fixture
def role(postgres: Node) -> Iterator[Callable[..., str]]:
    """Makes roles that may log in, called as a pattern says, with more attributes."""
    made: list[str] = []

    def make(pattern: str = "role_{}", more: str = "") -> str:
        made.append(pattern.format(SYSTEM.token(4)))
        said(postgres, f"CREATE ROLE {{name}} LOGIN {more}", name=made[-1])
        return made[-1]

    yield make
    for name in made:
        said(postgres, "DROP OWNED BY {name} CASCADE", name=name)
        said(postgres, "DROP ROLE {name}", name=name)


def said(postgres: Node, statement: str, **names: str) -> None:
    """Execute a statement as the owner, with names in it."""
    with postgres.connect() as connection:
        quoted = {name: sql.Identifier(given) for name, given in names.items()}
        connection.execute(sql.SQL(statement).format(**quoted))


def tenants(server: Server) -> dict[str, str]:
    return dict(server.read(lambda work: work.rows("SELECT role, namespace FROM @tenants")))


def restricted(server: Server) -> set[str]:
    """Return the tables on which row-level security is on."""
    query = (
        "SELECT relname FROM pg_class WHERE relrowsecurity AND relnamespace = to_regnamespace(%s)"
    )
    found = server.read(lambda work: work.rows(query, server.address.schema))
    return {name for (name,) in found}


def policies(server: Server) -> dict[str, tuple[str, str]]:
    query = "SELECT tablename, qual, with_check FROM pg_policies WHERE schemaname = %s"
    found = server.read(lambda work: work.rows(query, server.address.schema))
    return {table: (qual, check) for table, qual, check in found}


@contextmanager
def reading(postgres: Node, schema: str, table: str) -> Iterator[None]:
    """Let a transaction be open that has read a table, as that of a backup is."""
    with postgres.connect(autocommit=False) as connection:
        query = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, table))
        connection.execute(query)
        yield
        connection.rollback()


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ODD)
def test_a_role_may_be_called_anything(
    schema: str, server: Server, postgres: Node, role: Callable[..., str], pattern: str
) -> None:
    """Whatever characters the name of a role has, it is granted rights and made a tenant."""
    name = role(pattern)
    administration.grant(server, name)
    with perdure.open(postgres.url(schema=schema, user=name)) as store:
        store.namespace("team").create("x").append("a", 1)
    administration.set_tenant(server, name, "team")
    administration.grant(server, name)
    assert tenants(server) == {name: "team"}
    with perdure.open(postgres.url(schema=schema, user=name)) as store:
        assert [entry.id for entry in store.namespace("team").list()] == ["x"]
        with pytest.raises(UnsafeFile):
            store.create("x").append("a", 1)


def test_a_partition_may_be_called_anything(
    schema: str, server: Server, postgres: Node, role: Callable[..., str]
) -> None:
    """A partition that somebody made by hand is closed like the others, whatever it is called."""
    odd = 'records "of" @p {x} %s'
    said(
        postgres,
        "CREATE TABLE {schema}.{odd} PARTITION OF {schema}.records"
        " FOR VALUES FROM (900000000) TO (900000001)",
        schema=schema,
        odd=odd,
    )
    name = role()
    administration.grant(server, name)
    administration.set_tenant(server, name, "team")
    assert {odd, "records_1", "records_rest"} < restricted(server)
    assert administration.maintain(server).made == ("records_2", "records_3")
    assert {"records_2", "records_3"} < restricted(server)


# --- a further tenant ---------------------------------------------------------------------------


def test_a_further_tenant_keeps_nobody_waiting(
    url: str, schema: str, server: Server, postgres: Node, role: Callable[..., str]
) -> None:
    """Where tenancy is on, a tenant is added while somebody reads all tables for long."""
    first, second = role(), role()
    for name in (first, second):
        administration.grant(server, name)
    administration.set_tenant(server, first, "one")
    before = policies(server)
    asked: list[str] = []
    execute = psycopg.Cursor.execute

    def spying(cursor: object, query: object, *rest: object, **more: object) -> object:
        asked.append(query.as_string() if isinstance(query, sql.Composable) else str(query))
        return execute(cursor, query, *rest, **more)  # type: ignore[call-overload]

    with perdure.open(url) as store, reading(postgres, schema, "sessions"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(psycopg.Cursor, "execute", spying)
            administration.set_tenant(server, second, "two")
            administration.set_tenant(server, second, "three")
            administration.grant(server, second)
        store.create("x").append("a", 1)
    assert tenants(server) == {first: "one", second: "three"}
    assert policies(server) == before
    assert asked
    # Neither is a lock asked for that somebody else might have, on any table.
    assert [text for text in asked if text.startswith(("ALTER TABLE", "LOCK", "DROP"))] == []
    left = [text for text in asked if text.startswith("CREATE") and "policy_sample" not in text]
    assert left == []


def test_who_cannot_switch_tenancy_on_is_told_so(
    schema: str,
    server: Server,
    postgres: Node,
    role: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While somebody reads for long, all others commit as ever, and nothing is changed by halves.

    The owner is told in bounded time what to do, and does it.
    """
    monkeypatch.setattr(parts, "_LOCK_SECONDS", 1)
    name = role()
    caught: list[BaseException] = []

    def switch() -> None:
        try:
            administration.set_tenant(server, name, "team")
        except StorageUnavailable as error:
            caught.append(error)

    with (
        perdure.open(postgres.url(schema=schema), index=False) as store,
        store.create("x") as session,
    ):
        session.append("a", 0)
        with reading(postgres, schema, "aside_parts"):
            thread = threading.Thread(target=switch)
            thread.start()
            longest, until = 0.0, time.monotonic() + 20
            while thread.is_alive() and time.monotonic() < until:
                began = time.monotonic()
                session.append("a", 1)
                longest = max(longest, time.monotonic() - began)
            assert not thread.is_alive()
            assert longest < 1.0
            (error,) = caught
            assert isinstance(error, StorageUnavailable)
            assert error.retryable
            assert "pg_stat_activity" in error.hint
            assert restricted(server) == set()
            assert tenants(server) == {}
        administration.set_tenant(server, name, "team")
        session.append("a", 2)
    assert {*TENANTED} < restricted(server)
    assert tenants(server) == {name: "team"}


def test_policies_that_are_not_as_they_should_be_are_replaced(
    server: Server, role: Callable[..., str]
) -> None:
    """What an older version or somebody by hand left of tenancy is mended with the next tenant."""
    name = role()
    administration.set_tenant(server, name, "team")
    sound, closed = policies(server), restricted(server)
    query = "SELECT pg_get_functiondef(to_regprocedure(%s))"
    tenant = f'"{server.address.schema}".tenant()'
    function = server.read(lambda work: work.row(query, tenant))
    for statement in (
        "ALTER POLICY tenant ON @tails USING (true)",
        "ALTER POLICY tenant ON @spaces WITH CHECK (true)",
        "ALTER POLICY tenant ON @marks TO pg_monitor",
        "DROP POLICY tenant ON @records",
        "CREATE POLICY tenant ON @records AS RESTRICTIVE USING (true) WITH CHECK (true)",
        "DROP POLICY tenant ON @vectors",
        "ALTER TABLE @derived DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE @records_1 DISABLE ROW LEVEL SECURITY",
        "CREATE OR REPLACE FUNCTION @tenant() RETURNS text LANGUAGE sql STABLE AS $$SELECT ''$$",
    ):
        server.change(partial(Work.run, statement=statement))
    administration.set_tenant(server, name, "team/a")
    assert policies(server) == sound
    assert restricted(server) == closed
    assert server.read(lambda work: work.row(query, tenant)) == function
    kinds = "SELECT DISTINCT permissive, roles::text, cmd FROM pg_policies WHERE schemaname = %s"
    found = server.read(lambda work: work.rows(kinds, server.address.schema))
    assert found == [("PERMISSIVE", "{public}", "ALL")]
    assert tenants(server) == {name: "team/a"}


# --- whom policies hold for ---------------------------------------------------------------------


def test_a_live_store_goes_on_when_tenancy_is_switched_on(
    schema: str, server: Server, postgres: Node, role: Callable[..., str]
) -> None:
    """Commits of many events that went by COPY go by statements from then on, without an error."""
    name = role()
    administration.grant(server, name)
    many = [{"type": "x", "data": n} for n in range(50)]
    with perdure.open(postgres.url(schema=schema, user=name), index=False) as store:
        team = store.namespace("team")
        with team.create("before") as session:
            session.append_many(many)
            administration.set_tenant(server, name, "team")
            session.append_many(many)
            session.append_many(many)
        with team.create("after") as session:
            session.append_many(many)
        assert len([*team.read_from("before")]) == 150
        assert team.verify("before").sound
        assert team.verify("after").sound


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("SUPERUSER", "is a superuser"),
        ("BYPASSRLS", "has BYPASSRLS"),
        ("REPLICATION", "has REPLICATION"),
        ("IN ROLE pg_read_server_files", "'pg_read_server_files', which comes to the files"),
        ("IN ROLE pg_execute_server_program", "comes to the files"),
    ],
)
def test_who_passes_by_the_policies_is_no_tenant(
    server: Server, postgres: Node, role: Callable[..., str], more: str, reason: str
) -> None:
    """A role that would see more than its namespace, or become one that does, is refused as tenant.

    As one that may see everything it is told nothing untrue.
    """
    strong, member, further = role(more=more), role(), role()
    postgres.ask(f"GRANT {strong} TO {member}")
    postgres.ask(f"GRANT {member} TO {further}")
    for name in (strong, member, further):
        with pytest.raises(UnsafeFile, match=reason) as caught:
            administration.set_tenant(server, name, "team")
        assert name in str(caught.value)
        administration.set_tenant(server, name, "")
    # The second role may be had by SET ROLE alone, and that is enough.
    postgres.ask(f"GRANT {strong} TO {member} WITH INHERIT FALSE")
    with pytest.raises(UnsafeFile, match=reason):
        administration.set_tenant(server, member, "team")
    postgres.ask(f"REVOKE {strong} FROM {member}")
    administration.set_tenant(server, further, "team")
    assert tenants(server)[further] == "team"


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {schema}.tenants OWNER TO {name}",
        "ALTER FUNCTION {schema}.catalog_sees(text) OWNER TO {name}",
        "ALTER SCHEMA {schema} OWNER TO {name}",
    ],
)
def test_who_owns_a_part_of_it_is_no_tenant(
    schema: str, server: Server, postgres: Node, role: Callable[..., str], statement: str
) -> None:
    """Whoever owns the schema, or a table or function in it, may change what it says: refused."""
    name, member = role(), role()
    said(postgres, statement, schema=schema, name=name)
    said(postgres, "GRANT {name} TO {member}", name=name, member=member)
    for each in (name, member):
        with pytest.raises(UnsafeFile, match="owns the"):
            administration.set_tenant(server, each, "team")
    said(postgres, statement, schema=schema, name="postgres")
    administration.set_tenant(server, name, "team")
