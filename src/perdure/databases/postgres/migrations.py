"""The versions of the tables, and how one becomes the next."""

import itertools
import re
from typing import Any

import psycopg
from psycopg import errors

from perdure.databases.postgres import meaning, tables
from perdure.databases.postgres.address import Address
from perdure.databases.postgres.meaning import NotMade
from perdure.databases.postgres.work import Work
from perdure.errors import FormatUnsupported, StorageUnavailable, UnsafeFile
from perdure.runtime import Runtime

__all__ = ["MIGRATIONS", "VERSION", "bring", "check", "refuse_a_part", "version_of"]

MIGRATIONS: tuple[tuple[str, ...], ...] = (tables.STORE,)
"""What is done to come from each version to the next; the first makes a store from nothing.

What was released is never changed: a new version is a new entry at the end.
"""

VERSION = len(MIGRATIONS)
"""The version that this perdure reads and writes."""

_TABLES = (
    "migrations",
    *(
        found[1]
        for statement in itertools.chain(*MIGRATIONS)
        if (found := re.match(r"CREATE TABLE @(\w+)", statement))
        and "PARTITION OF" not in statement
    ),
)
"""All but partitions, which come and go."""

_DERIVED = ("catalog_", "vector")

_LEAST = 150000
"""`server_version_num` of PostgreSQL 15, the oldest that is tried."""


def version_of(work: Work) -> int:
    """The version of the tables.

    Raises:
        NotMade: there are none.

    """
    try:
        found = work.row("SELECT max(version) FROM @migrations")
    except psycopg.Error as error:
        if meaning.unmade(error):
            raise NotMade from error
        raise
    return int(found[0]) if found and found[0] is not None else 0


def refuse_a_part(work: Work, address: Address, *, derived: bool = True) -> None:
    """Make sure that all tables are there, or none: nothing was ever stored only if none is.

    Without `derived`, those may be missing from which logs are found and not read.

    Raises:
        StorageUnavailable: some are there, and what is missing would be taken for empty.

    """
    # One snapshot: somebody may be making them.
    query = "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    there = {name for (name,) in work.rows(f"{query} WHERE n.nspname = %s", address.schema)}
    names = [each for each in _TABLES if derived or not each.startswith(_DERIVED)]
    missing = [name for name in names if name not in there]
    if missing and len(missing) < len(names):
        raise StorageUnavailable(
            address.shown,
            f"tables are missing: {', '.join(missing)}",
            hint="somebody removed them, or a backup was restored in part: restore all of it",
        )


def check(work: Work, address: Address) -> None:
    """Make sure that the tables are of this version.

    Raises:
        NotMade: there are none.
        FormatUnsupported: they are of another one.
        StorageUnavailable: so are they, or some of them are missing.

    """
    found = version_of(work)
    if found > VERSION:
        raise FormatUnsupported(f"{address.shown}: its tables", found=found, supported=VERSION)
    if found < VERSION:
        raise StorageUnavailable(
            address.shown,
            f"its tables have version {found}, this perdure reads {VERSION}",
            hint="their owner brings them up to date: `perdure --store URL postgres migrate`",
        )
    refuse_a_part(work, address, derived=False)


def bring(
    connection: psycopg.Connection[Any],
    address: Address,
    runtime: Runtime,
    migrations: tuple[tuple[str, ...], ...] = MIGRATIONS,
) -> int:
    """Create the tables or bring them to the newest version; the version they had.

    All of it happens in one transaction, under a lock that lets one process do it at a time.

    Raises:
        FormatUnsupported: they are of a newer version.
        UnsafeFile: this role may not make tables.

    """
    work = Work(connection, address.schema)
    newest = len(migrations)
    try:
        if (found := version_of(work)) == newest:
            return found
    except NotMade:
        pass
    if connection.info.server_version < _LEAST:
        reason = f"is PostgreSQL {connection.info.server_version // 10000}; 15 is the oldest"
        raise StorageUnavailable(address.shown, reason, hint="upgrade the server")
    encoding = work.row("SELECT getdatabaseencoding()")
    if encoding != ("UTF8",):
        reason = f"its encoding is {encoding[0] if encoding else '?'}, not UTF8"
        hint = "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        raise StorageUnavailable(address.shown, reason, hint=hint)
    with connection.transaction():
        work.rows(
            "SELECT pg_advisory_xact_lock(hashtextextended('perdure ' || %s, 0))", address.schema
        )
        try:
            found = _made(work, address)
            if found > newest:
                raise FormatUnsupported(
                    f"{address.shown}: its tables", found=found, supported=newest
                )
            for number in range(found, newest):
                for statement in migrations[number]:
                    work.run(statement)
                work.run(
                    "INSERT INTO @migrations (version, made_at) VALUES (%s, %s)",
                    number + 1,
                    runtime.now_ms(),
                )
            if not found:
                work.run(
                    "INSERT INTO @store (id, created_at) VALUES (%s, %s)",
                    runtime.token(16),
                    runtime.now_ms(),
                )
        except errors.InsufficientPrivilege as error:
            raise UnsafeFile(
                address.shown,
                f"this role may not make the tables: {' '.join(str(error).split())}",
                hint="an owner makes them once: `perdure --store URL postgres migrate`",
            ) from error
    return found


def _made(work: Work, address: Address) -> int:
    """The version that is there, after making room for the first one."""
    there = work.row("SELECT to_regclass(%s) IS NOT NULL", f'"{address.schema}".migrations')
    if there is not None and there[0]:
        return version_of(work)
    # Asked first: to make one needs a right on the database, even where it is there.
    room = work.row("SELECT to_regnamespace(%s) IS NOT NULL", f'"{address.schema}"')
    if room is None or not room[0]:
        work.run(f'CREATE SCHEMA IF NOT EXISTS "{address.schema}"')
    work.run("CREATE TABLE @migrations (version integer PRIMARY KEY, made_at bigint NOT NULL)")
    return 0
