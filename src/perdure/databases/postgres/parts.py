"""The partitions of the records: made ahead, and emptied when their sessions are gone.

Whoever waits for the lock of a table keeps all others waiting that come after. So each step is a
transaction of its own, which waits for a tenth of a second for what others need, and is tried again
a moment later.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from psycopg import errors

from perdure.databases.postgres.meaning import Unsure
from perdure.databases.postgres.server import Attempts, Server
from perdure.databases.postgres.tables import PARTITION_SESSIONS
from perdure.databases.postgres.work import Work
from perdure.errors import StorageUnavailable

__all__ = ["Maintained", "lock", "locked_by_others", "maintain", "names", "step"]

T = TypeVar("T")

_AHEAD = 2
"""So many partitions stand ready for sessions that are not there yet."""

_FAR_SESSIONS = PARTITION_SESSIONS // 10
"""Sessions of a number that is so far away are not there before a partition was made for them."""

_LOCK_SECONDS = 5
_LOCK_MS = 100
_ALL_LOCKS_MS = 250
"""So long at most whoever comes waits until all of some tables are locked."""

_LOOK_SECONDS = 1
"""So long is looked whether a partition is empty while it is locked."""


_NUMBERED = re.compile("records_([0-9]+)")


class Maintained(NamedTuple):
    """What `maintain` did.

    Attributes:
        made: names of partitions that were made ahead.
        emptied: names of partitions whose sessions are all gone, and which now take no room.
        freed: bytes that those had.

    """

    made: tuple[str, ...]
    emptied: tuple[str, ...]
    freed: int


def maintain(server: Server) -> Maintained:
    """Make the next partitions, and empty those whose sessions are all gone.

    Raises:
        StorageUnavailable: somebody keeps a partition locked; what could be done is done.

    """
    last = server.read(lambda work: _last(work, server.address.schema))
    current = last // PARTITION_SESSIONS + 1
    made: list[str] = []
    emptied: list[str] = []
    freed = 0
    locked: StorageUnavailable | None = None
    try:
        _forget_exclusions(server)
        for number in range(current, current + 1 + _AHEAD):
            made += [f"records_{number}"] if _make(server, number, last) else []
    except StorageUnavailable as error:
        locked = _of_lock(error)
    for name in server.read(lambda work: _unused(work, server.address.schema, current)):
        try:
            size = _empty(server, name)
        except StorageUnavailable as error:
            locked = _of_lock(error)
            continue
        if size:
            emptied.append(name)
            freed += size
    if locked is not None:
        raise locked
    return Maintained(tuple(made), tuple(emptied), freed)


def names(work: Work, schema: str, *, closed: bool = True) -> list[str]:
    """The partitions that there are; without `closed`, those on which no policies are enforced."""
    found = work.rows(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(%s) AND (%s OR NOT c.relrowsecurity) ORDER BY c.oid",
        f'"{schema}".records',
        closed,
    )
    return [str(name) for (name,) in found]


def locked_by_others(error: StorageUnavailable) -> bool:
    """Whether an error only says that somebody had a lock for longer than others may wait."""
    return isinstance(error.__cause__, errors.LockNotAvailable | errors.QueryCanceled)


def _of_lock(error: StorageUnavailable) -> StorageUnavailable:
    """The error, if it only says that somebody had a lock.

    Raises:
        StorageUnavailable: it is of another kind.

    """
    if not locked_by_others(error):
        raise error
    return error


def _last(work: Work, schema: str) -> int:
    """The number that was given last. Not the highest one there: a row may say anything."""
    query = "SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence(%s, 'session')), 0)"
    found = work.row(query, f'"{schema}".sessions')
    return int(found[0]) if found else 0


def step(server: Server, do: Callable[[Work], T], *tables: str) -> T:
    """Do something with some tables in a transaction that is short of patience, again and again.

    Raises:
        StorageUnavailable: somebody kept what it needs locked, for five seconds.
        PerdureError: as `Server.change`.

    """

    def soon(work: Work) -> T:
        # This lock keeps nobody waiting who reads or writes, and vacuuming gives way to it.
        work.run(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
        for table in tables:
            work.run(f"LOCK TABLE ONLY @{table} IN SHARE UPDATE EXCLUSIVE MODE")
        work.run(f"SET LOCAL lock_timeout = '{_LOCK_MS}ms'")
        return do(work)

    attempts = Attempts(server.runtime, _LOCK_SECONDS)
    while True:
        try:
            return server.change(soon, repeatable=True)
        except Unsure as error:
            raise server.unsure(error) from error
        except StorageUnavailable as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable) or not attempts.pause():
                raise


def lock(work: Work, tables: Sequence[str]) -> None:
    """Let nobody else use some tables until the end of the transaction; partitions of one may.

    Raises:
        psycopg.errors.LockNotAvailable: that would keep others waiting for too long.

    """
    places = {f"table_{number}": name for number, name in enumerate(tables)}
    listed = ", ".join(f"ONLY @{{{place}}}" for place in places)
    # What is locked already while the next one is waited for keeps others waiting as well.
    work.run(f"SET LOCAL statement_timeout = '{_ALL_LOCKS_MS}ms'")
    try:
        work.define(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE", **places)
    except errors.QueryCanceled as error:
        raise errors.LockNotAvailable(str(error)) from error
    work.run("SET LOCAL statement_timeout TO DEFAULT")


# --- making ---------------------------------------------------------------------------------------


def _make(server: Server, number: int, last: int) -> bool:
    """Make a partition; False if it is there, or can no longer be made."""
    name = f"records_{number}"
    low, high = (number - 1) * PARTITION_SESSIONS, number * PARTITION_SESSIONS
    inside = f"session >= {low} AND session < {high}"

    def look(work: Work) -> tuple[bool, bool, bool]:
        there = name in names(work, server.address.schema)
        query = "SELECT pg_relation_size(to_regclass(%s)) = 0"
        empty = work.row(query, f'"{server.address.schema}".records_rest')
        # Its sessions stand in the rest already, and stay there.
        late = work.row(f"SELECT 1 FROM @records_rest WHERE {inside} LIMIT 1")
        return there, empty == (True,), late is not None

    def attach(work: Work) -> bool:
        if name in names(work, server.address.schema):
            # The answer to the first try was lost.
            return True
        work.run(f"CREATE TABLE @{name} (LIKE @records INCLUDING ALL)")
        closed = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%s)"
        if work.row(closed, f'"{server.address.schema}".records') == (True,):
            # Whoever asks it by itself is not held by the policy of the whole.
            work.run(f"ALTER TABLE @{name} ENABLE ROW LEVEL SECURITY")
        bounds = f"FOR VALUES FROM ({low}) TO ({high})"
        work.run(f"ALTER TABLE @records ATTACH PARTITION @{name} {bounds}")
        return True

    there, empty, late = server.read(look)
    if there or late:
        return False
    if empty:
        try:
            return step(server, attach, "records", "records_rest")
        except StorageUnavailable as error:
            if isinstance(error.__cause__, errors.CheckViolation):
                # Somebody was faster.
                return False
            raise
    if low - last < _FAR_SESSIONS:
        return False
    return _make_beside(server, number, attach)


def _make_beside(server: Server, number: int, attach: Callable[[Work], bool]) -> bool:
    """Make a partition though the rest has rows, which would be read while it is locked.

    Not if it is known of them that they are of other sessions. Nobody can write one of these
    meanwhile, so they have to be far away.
    """
    low, high = (number - 1) * PARTITION_SESSIONS, number * PARTITION_SESSIONS
    alter, constraint = "ALTER TABLE @records_rest", f"not_{number}"

    def exclude(work: Work) -> None:
        work.run(f"{alter} DROP CONSTRAINT IF EXISTS {constraint}")
        check = f"CHECK (session < {low} OR session >= {high}) NOT VALID"
        work.run(f"{alter} ADD CONSTRAINT {constraint} {check}")

    def validate(work: Work) -> None:
        work.run(f"{alter} VALIDATE CONSTRAINT {constraint}")

    try:
        step(server, exclude, "records_rest")
        step(server, validate, "records_rest")
        return step(server, attach, "records", "records_rest")
    except StorageUnavailable as error:
        if isinstance(error.__cause__, errors.CheckViolation):
            return False
        raise
    finally:
        _forget_exclusions(server)


def _forget_exclusions(server: Server) -> None:
    """Let the rest take everything again, also after somebody who died in between."""

    def find(work: Work) -> list[str]:
        query = (
            "SELECT conname FROM pg_constraint WHERE conrelid = to_regclass(%s)"
            " AND contype = 'c' AND conname ~ '^not_[0-9]+$'"
        )
        rows = work.rows(query, f'"{server.address.schema}".records_rest')
        return [str(name) for (name,) in rows]

    def drop(work: Work) -> None:
        for name in find(work):
            work.run(f"ALTER TABLE @records_rest DROP CONSTRAINT {name}")

    if server.read(find):
        step(server, drop, "records_rest")


# --- emptying -------------------------------------------------------------------------------------


def _unused(work: Work, schema: str, current: int) -> list[str]:
    """Partitions to which no new session comes, with room and, as it seems, no rows."""
    found: list[str] = []
    for name in names(work, schema):
        number = _NUMBERED.fullmatch(name)
        if number is not None and int(number[1]) < current:
            query = (
                "SELECT pg_relation_size(oid) > 0 OR pg_relation_size(reltoastrelid) > 0"
                " FROM pg_class WHERE oid = to_regclass(%s)"
            )
            if work.row(query, f'"{schema}".{name}') == (True,) and not _has_rows(work, name):
                found.append(name)
    return found


def _has_rows(work: Work, name: str) -> bool:
    return work.row(f"SELECT 1 FROM @{name} LIMIT 1") is not None


def _empty(server: Server, name: str) -> int:
    """The bytes that a partition gave back; 0 if there is something in it."""
    table = f'"{server.address.schema}".{name}'

    def size(work: Work) -> int:
        found = work.row("SELECT pg_total_relation_size(to_regclass(%s))", table)
        return int(found[0]) if found else 0

    def empty(work: Work) -> int:
        # First, so that whoever is in the middle of storing something there has done so.
        work.run(f"LOCK TABLE ONLY @{name} IN ACCESS EXCLUSIVE MODE")
        work.run(f"SET LOCAL statement_timeout = '{_LOOK_SECONDS}s'")
        if _has_rows(work, name):
            return 0
        before = size(work)
        work.run(f"TRUNCATE ONLY @{name}")
        return max(0, before - size(work))

    return step(server, empty, name)
