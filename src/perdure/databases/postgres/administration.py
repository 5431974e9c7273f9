"""What an owner of the tables does: rights for other roles, tenants, partitions, sizes."""

from typing import NamedTuple

from perdure.databases.postgres import migrations
from perdure.databases.postgres.meaning import NotMade
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.tables import PARTITION_SESSIONS, TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.databases.postgres.work import Work
from perdure.errors import InvalidValue, UnsafeFile

__all__ = [
    "Maintained",
    "Status",
    "TableSize",
    "grant",
    "has_tables",
    "maintain",
    "migrate",
    "set_tenant",
    "status",
]

_AHEAD = 2
"""So many partitions stand ready for sessions that are not there yet."""

_LOCK_SECONDS = 5
_TENANT_CHARS_MAX = 400
"""So much of each namespace stands in keys as it is, however long it is."""


class TableSize(NamedTuple):
    """What a table takes on the disk.

    Attributes:
        name: of the table; one of several parts stands for itself.
        rows: estimated number of rows.
        dead: estimated number of rows that were removed or replaced and not yet cleaned up.
        size: bytes of the table, what it has outlying, and its indexes.

    """

    name: str
    rows: int
    dead: int
    size: int


class Status(NamedTuple):
    """What there is.

    Attributes:
        version: of the tables.
        server: version of PostgreSQL.
        sessions: how many are stored, in all namespaces this role sees.
        trash: how many are in the trash.
        writers: how many processes are there to write.
        size: bytes of all tables with their indexes.
        tables: each of them, the largest first.

    """

    version: int
    server: str
    sessions: int
    trash: int
    writers: int
    size: int
    tables: tuple[TableSize, ...]


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


def migrate(server: Server) -> tuple[int, int]:
    """Make the tables or bring them to this version; the version they had, 0 for none, and have.

    Raises:
        FormatUnsupported: they are of a newer version.
        UnsafeFile: the role may not.

    """
    found: list[int] = []
    with server.telling(), server.direct() as work:
        found.append(migrations.bring(work.connection, server.address, server.runtime))
    return found[0], migrations.VERSION


def has_tables(server: Server) -> bool:
    """Whether anything was ever stored, or made to be."""
    try:
        return bool(server.read(migrations.version_of))
    except NotMade:
        return False


def status(server: Server) -> Status:
    """What there is, as the statistics of the server estimate it.

    Raises:
        NotMade: nothing was ever stored.

    """

    def ask(work: Work) -> Status:
        counts: dict[str, int] = dict(
            work.rows("SELECT state, count(*) FROM @sessions GROUP BY state")
        )
        writers = work.row(
            "SELECT count(*) FROM @writers WHERE beat_at > clock_timestamp()"
            " - make_interval(secs => %s)",
            server.address.lease,
        )
        version = work.row("SELECT current_setting('server_version')")
        tables = work.rows(
            "SELECT c.relname, greatest(c.reltuples, 0)::bigint, coalesce(s.n_dead_tup, 0)::bigint,"
            " pg_total_relation_size(c.oid) FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid"
            " WHERE n.nspname = %s AND c.relkind = 'r' ORDER BY 4 DESC, 1",
            server.address.schema,
        )
        sizes = tuple(TableSize(*row) for row in tables)
        return Status(
            migrations.version_of(work),
            str(version[0]) if version else "",
            counts.get("stored", 0),
            counts.get("deleted", 0),
            writers[0] if writers else 0,
            sum(each.size for each in sizes),
            sizes,
        )

    return server.read(ask)


def grant(server: Server, role: str) -> None:
    """Let a role read and write sessions, and change no table.

    Raises:
        InvalidValue: there is no such role.
        UnsafeFile: this one may not grant that.

    """

    def give(work: Work) -> None:
        quoted = _role(work, role)
        schema = server.address.schema
        work.run(f'GRANT USAGE ON SCHEMA "{schema}" TO {quoted}')
        work.run(
            f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO {quoted}'
        )
        work.run(f'GRANT USAGE ON ALL SEQUENCES IN SCHEMA "{schema}" TO {quoted}')
        # What it is, and who may see what, is the owner's to say.
        work.run(f"REVOKE INSERT, UPDATE, DELETE ON @migrations, @store, @tenants FROM {quoted}")
        if work.row("SELECT 1 FROM @tenants WHERE role = %s", role):
            _keep_out(work, server, quoted)

    server.change(give, repeatable=True)


def _role(work: Work, role: str) -> str:
    found = work.row("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = %s", role)
    if found is None:
        hint = "make it first: CREATE ROLE … LOGIN"
        raise InvalidValue("role", f"there is no role {role!r:.80} in this server", hint=hint)
    return str(found[0])


# --- tenants ------------------------------------------------------------------------------------

_TENANT = """CREATE OR REPLACE FUNCTION @tenant() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = ''
    AS $$ SELECT namespace FROM @tenants WHERE role = session_user $$"""

_SEES = (
    "(SELECT @tenant()) = '' OR {namespace} = (SELECT @tenant())"
    " OR starts_with({namespace}, (SELECT @tenant()) || '/')"
)
"""The sub-selects are evaluated once a statement. Who is no tenant has NULL, and sees nothing."""


def set_tenant(server: Server, role: str, namespace: str) -> None:
    """Let a role see a namespace with all below it, and nothing else, whatever it asks for.

    Row-level security is switched on for all tables; roles that are no tenants see nothing then,
    but for the owner of the tables and those with BYPASSRLS. Search by meaning is not for tenants,
    since vectors are shared by all who wrote the same text. `namespace` is one text, its parts
    quoted and joined by `/` as in `perdure.model.identity.namespace_key`; "" is all of them.

    Raises:
        InvalidValue: there is no such role, or the namespace has more than 400 characters.
        UnsafeFile: this one owns the tables, or may not do that.

    """
    if len(namespace) > _TENANT_CHARS_MAX:
        reason = f"has {len(namespace)} characters in keys, {_TENANT_CHARS_MAX} at most can be seen"
        raise InvalidValue("namespace", reason, hint="let the role see one further up")

    def restrict(work: Work) -> None:
        quoted = _role(work, role)
        owner = work.row(
            "SELECT tableowner = %s FROM pg_tables WHERE schemaname = %s"
            " AND tablename = 'sessions'",
            role,
            server.address.schema,
        )
        if owner is not None and owner[0]:
            reason = f"{role!r} owns the tables, and no policy holds for an owner"
            raise UnsafeFile(server.place, reason, hint="let tenants be other roles; see the guide")
        work.run(_TENANT)
        for table in TENANTED:
            column = "in_namespace" if table.startswith("evidence_") else "namespace"
            sees = _SEES.replace("{namespace}", column)
            work.run(f"ALTER TABLE @{table} ENABLE ROW LEVEL SECURITY")
            work.run(f"DROP POLICY IF EXISTS tenant ON @{table}")
            work.run(f"CREATE POLICY tenant ON @{table} USING ({sees}) WITH CHECK ({sees})")
        work.run(
            "INSERT INTO @tenants VALUES (%s, %s)"
            " ON CONFLICT (role) DO UPDATE SET namespace = excluded.namespace",
            role,
            namespace,
        )
        _keep_out(work, server, quoted)

    server.change(restrict, repeatable=True)


def _keep_out(work: Work, server: Server, role: str) -> None:
    """Take from a tenant what no policy holds for: parts that are asked by themselves, and vectors.

    Vectors belong to texts, whoever wrote them, and tell something of those.
    """
    parts = work.rows(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = to_regclass(%s)",
        f'"{server.address.schema}".records',
    )
    for table in (*(part for (part,) in parts), *VECTOR_TABLES):
        work.run(f"REVOKE ALL ON @{table} FROM {role}")


# --- partitions ---------------------------------------------------------------------------------


def maintain(server: Server) -> Maintained:
    """Make the next partitions of the records, and empty those whose sessions are all gone.

    Records stand in partitions of `PARTITION_SESSIONS` sessions, in the order of their creation.
    Rows that were deleted leave room that later rows take; a partition that nobody needs any more
    gives all of it back at once. Call it now and then, such as once a day.

    Raises:
        NotMade: nothing was ever stored.
        UnsafeFile: this role does not own the tables.
        StorageUnavailable: somebody reads or writes a partition for longer than five seconds.

    """

    def work_on(work: Work) -> Maintained:
        _own(work, server)
        work.run(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
        found = work.row("SELECT coalesce(max(session), 0) FROM @sessions")
        highest = int(found[0]) if found else 0
        current = highest // PARTITION_SESSIONS + 1
        made = [_made(work, server, number) for number in range(1, current + 1 + _AHEAD)]
        emptied: list[str] = []
        freed = 0
        for number in range(1, current):
            size = _emptied(work, server, number)
            if size is not None:
                emptied.append(f"records_{number}")
                freed += size
        return Maintained(tuple(filter(None, made)), tuple(emptied), freed)

    return server.change(work_on, repeatable=True)


def _own(work: Work, server: Server) -> None:
    """Refuse a role that does not own the tables: a tenant sees no more than its own sessions."""
    found = work.row(
        "SELECT pg_has_role(tableowner, 'USAGE') FROM pg_tables"
        " WHERE schemaname = %s AND tablename = 'records_1'",
        server.address.schema,
    )
    if found is not None and not found[0]:
        raise UnsafeFile(
            server.place,
            "this role does not own the tables",
            hint="name the owner in the URL: postgresql://owner@host/database",
        )


def _made(work: Work, server: Server, number: int) -> str | None:
    """The name of a partition that was made now; None: it is there, or can no longer be made."""
    name = f"records_{number}"
    if _there(work, server, name):
        return None
    low, high = (number - 1) * PARTITION_SESSIONS, number * PARTITION_SESSIONS
    if work.row("SELECT 1 FROM @records_rest WHERE session >= %s LIMIT 1", low):
        # Its sessions stand in the rest already, and stay there.
        return None
    work.run(f"CREATE TABLE @{name} PARTITION OF @records FOR VALUES FROM ({low}) TO ({high})")
    return name


def _there(work: Work, server: Server, name: str) -> bool:
    found = work.row("SELECT to_regclass(%s) IS NOT NULL", f'"{server.address.schema}".{name}')
    return bool(found and found[0])


def _emptied(work: Work, server: Server, number: int) -> int | None:
    """The bytes that an old partition had; None if there is something in it, or nothing to gain."""
    name = f"records_{number}"
    low, high = (number - 1) * PARTITION_SESSIONS, number * PARTITION_SESSIONS
    if not _there(work, server, name):
        return None
    if work.row("SELECT 1 FROM @sessions WHERE session >= %s AND session < %s LIMIT 1", low, high):
        return None
    size = work.row(
        "SELECT pg_total_relation_size(to_regclass(%s))", f'"{server.address.schema}".{name}'
    )
    if work.row(f"SELECT 1 FROM @{name} LIMIT 1"):
        # Rows of no session: of somebody's hand.
        return None
    before = int(size[0]) if size else 0
    work.run(f"TRUNCATE @{name}")
    after = work.row(
        "SELECT pg_total_relation_size(to_regclass(%s))", f'"{server.address.schema}".{name}'
    )
    freed = before - (int(after[0]) if after else 0)
    return freed if freed > 0 else None
