"""What an owner of the tables does: rights for other roles, tenants, partitions, sizes."""

from collections.abc import Callable
from typing import NamedTuple

from perdure.databases.postgres import migrations, parts
from perdure.databases.postgres.meaning import NotMade
from perdure.databases.postgres.parts import Maintained
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.tables import TENANTED
from perdure.databases.postgres.vector_tables import VECTOR_TABLES
from perdure.databases.postgres.work import Work, expanded
from perdure.errors import InvalidValue, StorageUnavailable, UnsafeFile

__all__ = [
    "Maintained",
    "Status",
    "TableSize",
    "Tenant",
    "blind",
    "grant",
    "has_tables",
    "maintain",
    "migrate",
    "set_tenant",
    "status",
    "tenants",
    "unset_tenant",
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
        StorageUnavailable: some of them are missing.

    """
    found: list[int] = []
    with server.telling(), server.direct() as work:
        migrations.refuse_a_part(work, server.address)
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
        migrations.refuse_a_part(work, server.address)
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
        StorageUnavailable: somebody uses a table for long that has no policy yet; retryable.

    """

    def give(work: Work) -> None:
        _known(work, role)
        schema = server.address.schema
        work.define("GRANT USAGE ON SCHEMA {schema} TO {role}", schema=schema, role=role)
        work.define(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
            schema=schema,
            role=role,
        )
        # Numbers are given by the tables, and nobody takes or names one: that of a session says in
        # which partition its records stand.
        work.define(
            "REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM {role}", schema=schema, role=role
        )
        others = [str(name) for (name,) in work.rows(_OTHER_COLUMNS, f'"{schema}".sessions')]
        work.define("REVOKE INSERT ON @sessions FROM {role}", role=role)
        work.define("GRANT INSERT ({others}) ON @sessions TO {role}", others=others, role=role)
        # What it is, and who may see what, is the owner's to say.
        work.define(
            "REVOKE INSERT, UPDATE, DELETE ON @migrations, @store, @tenants FROM {role}", role=role
        )
        if work.row("SELECT 1 FROM @tenants WHERE role = %s AND namespace <> ''", role):
            _keep_out(work, server, role)
        # At the end: what it locks keeps others waiting.
        if work.row(_RESTRICTED, f'"{schema}".records') == (True,):
            _restrict(work, server)

    _change(server, give)


_OTHER_COLUMNS = (
    "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attnum > 0"
    " AND NOT attisdropped AND attidentity = '' ORDER BY attnum"
)
"""Those of a table to which it gives no number by itself."""


def _known(work: Work, role: str) -> None:
    if work.row("SELECT 1 FROM pg_roles WHERE rolname = %s", role) is None:
        hint = "make it first: CREATE ROLE … LOGIN"
        raise InvalidValue("role", f"there is no role {role!r:.80} in this server", hint=hint)


# --- tenants ------------------------------------------------------------------------------------

_TENANT_IS = "SELECT namespace FROM @tenants WHERE role = session_user"

# Named last, `pg_temp` is searched last: a table there that is called like one of the system's
# would be asked by the owner's functions otherwise.
_TENANT = f"""CREATE OR REPLACE FUNCTION @tenant() RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS $${_TENANT_IS}$$"""

_TENANT_THERE = (
    "SELECT 1 FROM pg_proc WHERE oid = to_regprocedure(%s) AND prosrc = %s AND prosecdef"
    " AND provolatile = 's' AND proconfig = '{\"search_path=pg_catalog, pg_temp\"}'"
)

_SEES = (
    "(SELECT @tenant()) = '' OR {namespace} = (SELECT @tenant())"
    " OR starts_with({namespace}, (SELECT @tenant()) || '/')"
)
"""The sub-selects are evaluated once a statement. Who is no tenant has NULL, and sees nothing."""

_SEES_ALL = "(SELECT @tenant()) = ''"

_RESTRICTED = "SELECT relrowsecurity FROM pg_class WHERE oid = to_regclass(%s)"


def set_tenant(server: Server, role: str, namespace: str) -> str | None:
    """Let a role see a namespace with all below it, and nothing else, whatever it asks for.

    Each role has one; returned is the one that it had before, or None.

    Row-level security is switched on for all tables; roles that are no tenants see nothing then,
    but for the owner of the tables and those with BYPASSRLS. Search by meaning is for those who see
    all namespaces, since vectors are shared by all who wrote the same text. `namespace` is one
    text, its parts quoted and joined by `/` as in `perdure.model.identity.namespace_key`; "" is
    all of them.

    To switch it on, nobody else may use the tables for a moment: others wait for that for a quarter
    of a second at most. Where it is on, a further tenant keeps nobody waiting.

    Raises:
        InvalidValue: there is no such role, or the namespace has more than 400 characters.
        UnsafeFile: this one owns the tables or may pass by the policies in another way, and the
            namespace is not all of them; or the caller may not do that.
        StorageUnavailable: somebody used a table for longer than five seconds, as a backup does,
            and nothing was changed; retryable.

    """
    if len(namespace) > _TENANT_CHARS_MAX:
        reason = f"has {len(namespace)} characters in keys, {_TENANT_CHARS_MAX} at most can be seen"
        raise InvalidValue("namespace", reason, hint="let the role see one further up")

    before: list[str | None] = []

    def restrict(work: Work) -> None:
        _known(work, role)
        found = work.row("SELECT namespace FROM @tenants WHERE role = %s FOR UPDATE", role)
        before.append(None if found is None else str(found[0]))
        if namespace:
            _refuse_who_passes_by(work, server, role)
            _keep_out(work, server, role)
        work.run(
            "INSERT INTO @tenants VALUES (%s, %s)"
            " ON CONFLICT (role) DO UPDATE SET namespace = excluded.namespace",
            role,
            namespace,
        )
        # At the end: what it locks keeps others waiting.
        _restrict(work, server)

    _change(server, restrict)
    return before[-1]


def blind(server: Server) -> list[str]:
    """Roles that log in, may use the tables and see nothing in them, being no tenants.

    Raises:
        NotMade: nothing was ever stored.

    """
    table = f'"{server.address.schema}".records'
    query = (
        "SELECT r.rolname FROM pg_class c, aclexplode(c.relacl) a, pg_roles r"
        " WHERE c.oid = to_regclass(%s) AND c.relrowsecurity AND a.privilege_type = 'SELECT'"
        " AND r.oid = a.grantee AND r.oid <> c.relowner AND NOT r.rolsuper AND NOT r.rolbypassrls"
        " AND r.rolcanlogin AND r.rolname NOT IN (SELECT role FROM @tenants) ORDER BY 1"
    )
    return server.read(lambda work: [str(name) for (name,) in work.rows(query, table)])


def unset_tenant(server: Server, role: str) -> bool:
    """Let a role see nothing any more, where there are tenants; False if it was none.

    The role need not be there any more.

    Raises:
        UnsafeFile: the caller does not own the tables.

    """
    removed: list[int] = []

    def remove(work: Work) -> None:
        removed.append(work.run("DELETE FROM @tenants WHERE role = %s", role))

    _change(server, remove)
    return bool(removed[-1])


class Tenant(NamedTuple):
    """A role, and what it sees.

    Attributes:
        role: its name.
        namespace: the namespace as one text, as in `set_tenant`; "" is all of them.

    """

    role: str
    namespace: str


def tenants(server: Server) -> list[Tenant]:
    """The roles that see rows where row-level security is on, by their names.

    Raises:
        NotMade: nothing was ever stored.

    """
    query = "SELECT role, namespace FROM @tenants ORDER BY role"
    return server.read(lambda work: [Tenant(*row) for row in work.rows(query)])


_PASSES_BY = """SELECT r.rolname, CASE
        WHEN r.oid IN (SELECT relowner FROM pg_class WHERE relnamespace = s.oid
            UNION SELECT proowner FROM pg_proc WHERE pronamespace = s.oid)
            THEN 'owns the tables, and no policy holds for an owner'
        WHEN r.oid = s.nspowner THEN 'owns the schema, and may replace what is in it'
        WHEN r.rolsuper THEN 'is a superuser, for whom no policy holds'
        WHEN r.rolbypassrls THEN 'has BYPASSRLS, and no policy holds for it'
        WHEN r.rolreplication THEN 'has REPLICATION, and receives all that is written'
        WHEN r.rolcreaterole AND current_setting('server_version_num')::integer < 160000
            THEN 'has CREATEROLE, and may become a member of the owner'
        WHEN r.rolname IN ('pg_execute_server_program', 'pg_read_server_files',
            'pg_write_server_files') THEN 'comes to the files of the server'
        END AS reason
    FROM pg_roles r, pg_namespace s
    WHERE s.nspname = %s AND pg_has_role(%s::name, r.oid, 'MEMBER')"""


def _refuse_who_passes_by(work: Work, server: Server, role: str) -> None:
    """Refuse a role that sees more than policies show, or becomes one that does.

    Raises:
        UnsafeFile: it does.

    """
    found = work.row(
        f"SELECT rolname, reason FROM ({_PASSES_BY}) r WHERE reason IS NOT NULL"
        " ORDER BY rolname <> %s, rolname",
        server.address.schema,
        role,
        role,
    )
    if found is None:
        return
    other, reason = found
    who = f"{role!r}" if other == role else f"{role!r} is a member of {other!r}, which"
    hint = "let tenants be other roles, and members of no such one; see docs/postgresql.md"
    raise UnsafeFile(server.place, f"{who} {reason}", hint=hint)


def _restrict(work: Work, server: Server) -> None:
    """Switch row-level security on where it is not, with the policies as they are to be.

    Whoever asks a partition by itself is not held by the policy of the whole: without one of its
    own it shows nothing to anybody but the owner, by whatever role or group one came to a right on
    it. What has no namespace is for those who see all of them.
    """
    schema = server.address.schema
    if not work.row(_TENANT_THERE, f'"{schema}".tenant()', expanded(_TENANT_IS, schema)):
        work.run(_TENANT)
    wanted = {table: _SEES.replace("{namespace}", _column(table)) for table in TENANTED}
    wanted |= dict.fromkeys(_SHARED, _SEES_ALL)
    there = _policies(work, schema, set(wanted.values()))
    wrong = {table: sees for table, sees in wanted.items() if there.get(table) != sees}
    open_ = parts.names(work, schema, closed=False)
    if not wrong and not open_:
        return
    parts.lock(work, [*wrong, *open_])
    for table, sees in wrong.items():
        work.run(f"ALTER TABLE @{table} ENABLE ROW LEVEL SECURITY")
        work.run(f"DROP POLICY IF EXISTS tenant ON @{table}")
        work.run(f"CREATE POLICY tenant ON @{table} USING ({sees}) WITH CHECK ({sees})")
    # Asked again: until the whole was locked, another one could be made.
    for part in parts.names(work, schema, closed=False):
        work.define("ALTER TABLE @{part} ENABLE ROW LEVEL SECURITY", part=part)


def _column(table: str) -> str:
    return "in_namespace" if table.startswith("evidence_") else "namespace"


def _policies(work: Work, schema: str, known: set[str]) -> dict[str, str]:
    """Tables with row-level security, and which of the known policies holds for each.

    How the server tells a policy depends on its version. So it is asked how it tells those that are
    known, of a table that nobody else ever sees.
    """
    sample = "policy_sample"
    work.run("SAVEPOINT sample")
    work.run(f'CREATE TABLE @{sample} (namespace text COLLATE "C", in_namespace text COLLATE "C")')
    names = {f"known_{number}": sees for number, sees in enumerate(sorted(known))}
    for name, sees in names.items():
        work.run(f"CREATE POLICY {name} ON @{sample} USING ({sees}) WITH CHECK ({sees})")
    told = {}
    for name, *policy in work.rows(f"{_POLICIES} AND tablename = %s", schema, sample):
        told[tuple(policy[1:])] = names[name]
    work.run("ROLLBACK TO SAVEPOINT sample")
    work.run("RELEASE SAVEPOINT sample")
    return {
        table: told[tuple(policy)]
        for name, table, *policy in work.rows(f"{_POLICIES} AND c.relrowsecurity", schema)
        if name == "tenant" and tuple(policy) in told
    }


_POLICIES = (
    "SELECT policyname, tablename, permissive, roles::text, cmd, qual, with_check"
    " FROM pg_policies JOIN pg_namespace n ON n.nspname = schemaname"
    " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = tablename WHERE schemaname = %s"
)


def _keep_out(work: Work, server: Server, role: str) -> None:
    """Take from a tenant the rights on what shows it nothing, so that it is told so."""
    for table in (*parts.names(work, server.address.schema), *VECTOR_TABLES, "vector_era"):
        work.define("REVOKE ALL ON @{table} FROM {role}", table=table, role=role)


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
    """Change rights, as the owner of the tables.

    Raises:
        StorageUnavailable: somebody has a table locked for long; retryable.

    """

    def owned(work: Work) -> None:
        _own(work, server)
        do(work)

    try:
        parts.step(server, owned)
    except StorageUnavailable as error:
        if not parts.locked_by_others(error):
            raise
        told = StorageUnavailable(
            server.place,
            "somebody uses the tables for long, as a backup does; nothing was changed",
            hint="call it again when that has ended; pg_stat_activity shows what is open",
        )
        told.retryable = True
        raise told from error


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
