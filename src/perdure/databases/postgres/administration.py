"""What an owner of the tables does: rights for other roles, tenants, partitions, sizes."""

from collections.abc import Callable
from typing import NamedTuple

from perdure.databases.postgres import migrations, parts
from perdure.databases.postgres.meaning import NotMade, Unsure
from perdure.databases.postgres.parts import Maintained
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.tables import TENANTED
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

_SHARED = ("vector_era", *(table for table in VECTOR_TABLES if table not in TENANTED))
"""Tables whose rows belong to no namespace, and tell something of all of them."""

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
        # Numbers are given by the tables, and nobody takes or names one: that of a session says in
        # which partition its records stand.
        work.run(f'REVOKE ALL ON ALL SEQUENCES IN SCHEMA "{schema}" FROM {quoted}')
        others = work.row(_OTHER_COLUMNS, f'"{schema}".sessions')
        work.run(f"REVOKE INSERT ON @sessions FROM {quoted}")
        work.run(f"GRANT INSERT ({others[0] if others else ''}) ON @sessions TO {quoted}")
        # What it is, and who may see what, is the owner's to say.
        work.run(f"REVOKE INSERT, UPDATE, DELETE ON @migrations, @store, @tenants FROM {quoted}")
        _close_parts(work, server)
        if work.row("SELECT 1 FROM @tenants WHERE role = %s AND namespace <> ''", role):
            _keep_out(work, server, quoted)

    _change(server, give)


_OTHER_COLUMNS = (
    "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute"
    " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped AND attidentity = ''"
)
"""Those of a table to which it gives no number by itself."""


def _role(work: Work, role: str) -> str:
    found = work.row("SELECT quote_ident(rolname) FROM pg_roles WHERE rolname = %s", role)
    if found is None:
        hint = "make it first: CREATE ROLE … LOGIN"
        raise InvalidValue("role", f"there is no role {role!r:.80} in this server", hint=hint)
    return str(found[0])


# --- tenants ------------------------------------------------------------------------------------

# Named last, `pg_temp` is searched last: a table there that is called like one of the system's
# would be asked by the owner's functions otherwise.
_TENANT = """CREATE OR REPLACE FUNCTION @tenant() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $$ SELECT namespace FROM @tenants WHERE role = session_user $$"""

_SEES = (
    "(SELECT @tenant()) = '' OR {namespace} = (SELECT @tenant())"
    " OR starts_with({namespace}, (SELECT @tenant()) || '/')"
)
"""The sub-selects are evaluated once a statement. Who is no tenant has NULL, and sees nothing."""

_SEES_ALL = "(SELECT @tenant()) = ''"


def set_tenant(server: Server, role: str, namespace: str) -> None:
    """Let a role see a namespace with all below it, and nothing else, whatever it asks for.

    Row-level security is switched on for all tables; roles that are no tenants see nothing then,
    but for the owner of the tables and those with BYPASSRLS. Search by meaning is for those who see
    all namespaces, since vectors are shared by all who wrote the same text. `namespace` is one
    text, its parts quoted and joined by `/` as in `perdure.model.identity.namespace_key`; "" is
    all of them.

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
            "SELECT pg_has_role(%s, tableowner, 'MEMBER') FROM pg_tables"
            " WHERE schemaname = %s AND tablename = 'sessions'",
            role,
            server.address.schema,
        )
        if owner is not None and owner[0]:
            reason = f"{role!r} owns the tables, and no policy holds for an owner"
            raise UnsafeFile(server.place, reason, hint="let tenants be other roles; see the guide")
        work.run(_TENANT)
        for table in TENANTED:
            column = "in_namespace" if table.startswith("evidence_") else "namespace"
            _let_see(work, table, _SEES.replace("{namespace}", column))
        work.run(
            "INSERT INTO @tenants VALUES (%s, %s)"
            " ON CONFLICT (role) DO UPDATE SET namespace = excluded.namespace",
            role,
            namespace,
        )
        _close_parts(work, server)
        if namespace:
            _keep_out(work, server, quoted)

    _change(server, restrict)


def _let_see(work: Work, table: str, sees: str) -> None:
    """Let a table show the rows of which that is true, and take no others."""
    work.run(f"ALTER TABLE @{table} ENABLE ROW LEVEL SECURITY")
    work.run(f"DROP POLICY IF EXISTS tenant ON @{table}")
    work.run(f"CREATE POLICY tenant ON @{table} USING ({sees}) WITH CHECK ({sees})")


def _close_parts(work: Work, server: Server) -> None:
    """Where there are tenants, close what the policies of tables with a namespace do not cover.

    Whoever asks a partition by itself is not held by the policy of the whole: without one of its
    own it shows nothing to anybody but the owner, by whatever role or group one came to a right on
    it. What has no namespace is for those who see all of them.
    """
    schema = server.address.schema
    restricted = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%s)"
    if work.row(restricted, f'"{schema}".records') != (True,):
        return
    for part in parts.names(work, schema, closed=False):
        work.run(f"ALTER TABLE @{part} ENABLE ROW LEVEL SECURITY")
    for table in _SHARED:
        if work.row(restricted, f'"{schema}".{table}') != (True,):
            _let_see(work, table, _SEES_ALL)


def _keep_out(work: Work, server: Server, role: str) -> None:
    """Take from a tenant the rights on what shows it nothing, so that it is told so."""
    for table in (*parts.names(work, server.address.schema), *VECTOR_TABLES, "vector_era"):
        work.run(f"REVOKE ALL ON @{table} FROM {role}")


# --- partitions ---------------------------------------------------------------------------------


def maintain(server: Server) -> Maintained:
    """Make the next partitions of the records, and empty those whose sessions are all gone.

    Records stand in partitions of `PARTITION_SESSIONS` sessions, in the order of their creation.
    Rows that were deleted leave room that later rows take; a partition that nobody needs any more
    gives all of it back at once. Call it now and then, such as once a day: it is in several steps,
    each of which keeps others waiting for a tenth of a second at most.

    Raises:
        NotMade: nothing was ever stored.
        UnsafeFile: this role does not own the tables.
        StorageUnavailable: somebody keeps a partition locked for longer than five seconds; what
            could be done without it is done.

    """
    server.read(lambda work: _own(work, server))
    return parts.maintain(server)


def _change(server: Server, do: Callable[[Work], None]) -> None:
    """Change rights, as the owner of the tables."""

    def owned(work: Work) -> None:
        _own(work, server)
        do(work)

    try:
        server.change(owned, repeatable=True)
    except Unsure as error:
        raise server.unsure(error) from error


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
