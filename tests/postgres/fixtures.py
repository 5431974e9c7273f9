"""The server that all tests of a process share, and a place in it for each test."""

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    # Imported when they are needed: most runs of a few tests need no driver.
    from tests.postgres.server import Server

__all__ = [
    "LOCK_SECONDS",
    "fresh_schema",
    "postgres",
    "schemas",
    "schemas_of",
    "shared",
    "url_in",
]

LOCK_SECONDS = 5.0
"""How long the end of a test waits for transactions in its schemas."""


_shared: list["Server"] = []
_URL = "PERDURE_TEST_POSTGRES"


def shared() -> "Server":
    """Return the server that runs for all tests of this process; started when it is asked for."""
    if not _shared:
        from tests.postgres.server import Server

        _shared.append(Server().__enter__())
        # For the processes that a test starts.
        os.environ[_URL] = _shared[0].url()
    return _shared[0]


def url_in(folder: Path) -> str:
    """Return the URL of a store that belongs to a folder of a test, the same each time."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:24]
    return f"{os.environ.get(_URL) or shared().url()}&schema=in_{name}"


@pytest.fixture(scope="session")
def postgres() -> Iterator["Server"]:
    """Return a server that runs; it is made for the first test that asks for it."""
    yield shared()
    del os.environ[_URL]
    _shared.pop().close()


@pytest.fixture
def fresh_schema(postgres: "Server") -> Iterator[Callable[[], str]]:
    """Return what makes names of schemas; they are dropped after the test."""
    with schemas(postgres) as fresh:
        yield fresh


@contextmanager
def schemas(server: "Server") -> Iterator[Callable[[], str]]:
    """Give names of schemas that do not exist; drop at the end those that do by then."""
    names: list[str] = []

    def fresh() -> str:
        names.append(f"test_{secrets.token_hex(8)}")
        return names[-1]

    yield fresh
    if names:
        _drop(server, names)


def _drop(server: "Server", names: list[str]) -> None:
    import psycopg

    # Whoever still holds a lock in one of them has left a transaction open.
    options = f"-c lock_timeout={int(LOCK_SECONDS * 1000)} -c client_min_messages=warning"
    with server.connect(options=options) as connection:
        try:
            connection.execute(f"DROP SCHEMA IF EXISTS {', '.join(names)} CASCADE".encode())
        except psycopg.errors.LockNotAvailable:
            open_ones = connection.execute(
                "SELECT pid, state, query FROM pg_stat_activity "
                "WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
            ).fetchall()
            raise AssertionError(f"transactions were left open: {open_ones}") from None


_emptied: dict[int, list[str]] = {}
"""Schemas whose tables are there and empty, by the port of their server."""

_EMPTY = """DO $$ DECLARE name text; BEGIN
    FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
        WHERE schemaname = '{schema}' AND tablename NOT IN ('migrations', 'store')
    LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
END $$"""


@contextmanager
def schemas_of(server: "Server", within: Path) -> Iterator[Callable[[Path], str]]:
    """Give each folder of a test a schema of its own, and its URL; empty them at the end.

    To make all tables of a store takes as long as many a test; to empty them does not.
    """
    free = _emptied.setdefault(server.port, [])
    known: dict[Path, str] = {}

    def url_of(folder: Path) -> str:
        assert folder == within or within in folder.parents
        if folder not in known:
            known[folder] = free.pop() if free else f"place_{secrets.token_hex(8)}"
        return server.url(schema=known[folder])

    yield url_of
    if known:
        options = f"-c lock_timeout={int(LOCK_SECONDS * 1000)}"
        with server.connect(options=options) as connection:
            for schema in known.values():
                connection.execute(_EMPTY.format(schema=schema).encode())
                free.append(schema)
