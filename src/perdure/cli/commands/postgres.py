"""`perdure postgres`: what an owner of the tables of a PostgreSQL store does with them."""

import shlex
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import click

from perdure.backends import open_backend
from perdure.cli import output
from perdure.cli.options import Place, json_option
from perdure.errors import StorageUnavailable
from perdure.model.identity import namespace_key

if TYPE_CHECKING:
    from perdure.databases.postgres import Server

__all__ = ["command"]

_SCHEMES = ("postgresql", "postgres")


@click.group("postgres", no_args_is_help=False)
def command() -> None:
    """Make and look after the tables of a PostgreSQL store.

    The store is that of --store, such as postgresql://owner@host/database. Each of them takes
    --json. JSON: see their help.
    """


def _server(ctx: click.Context, *, whole: bool = True, made: bool = True) -> "Server":
    """The server of the store, closed when the command ends.

    Raises:
        UsageError: the store is none of PostgreSQL, or a namespace of it was named.
        InvalidValue: the extra is not installed.
        StorageUnavailable: it has no tables, though they should be `made`.

    """
    place: Place = ctx.find_root().obj
    if place.location.partition(":")[0] not in _SCHEMES:
        message = "name a store in PostgreSQL: perdure --store postgresql://owner@host/db postgres"
        raise click.UsageError(message, ctx=ctx)
    if whole and place.parts:
        message = "this is about the whole store; leave --namespace out"
        raise click.UsageError(message, ctx=ctx)
    stack = ctx.with_resource(ExitStack())
    backend = stack.enter_context(closing(open_backend(place.location)))
    # Not before: without the extra it says what to install.
    from perdure.databases.postgres import Server
    from perdure.databases.postgres.administration import has_tables

    found = backend.database
    if not isinstance(found, Server):
        raise click.UsageError(f"{place} is no store in PostgreSQL", ctx=ctx)
    if made and not has_tables(found):
        named = shlex.quote(str(place))
        hint = f"`perdure --store {named} postgres migrate` makes them, and so does a first session"
        raise StorageUnavailable(found.place, "has no tables of perdure yet", hint=hint)
    return found


@command.command("migrate")
@json_option
@click.pass_context
def _migrate(ctx: click.Context, *, as_json: bool) -> None:
    """Make the tables, or bring them to the version of this perdure.

    Harmless when repeated. A role that may make tables has them made with its first session; for
    others their owner calls this, and `perdure postgres grant`.

    JSON: {from, to}, versions; from is 0 where there were no tables.
    """
    server = _server(ctx, made=False)
    from perdure.databases.postgres.administration import migrate

    before, now = migrate(server)
    if as_json:
        output.document({"from": before, "to": now})
    elif before == now:
        output.line(f"the tables have version {now} already")
    else:
        output.line(f"the tables have version {now} now; they had {before or 'not been there'}")


@command.command("status")
@json_option
@click.pass_context
def _status(ctx: click.Context, *, as_json: bool) -> None:
    """Print what there is: versions, sessions, and what each table takes.

    JSON: {version, server, sessions, trash, writers, size, tables: [{name, rows, dead, size}]}.
    Sizes are bytes; rows and dead (rows not cleaned up yet) are estimates of the server.
    """
    server = _server(ctx)
    from perdure.databases.postgres.administration import status

    found = status(server)
    if as_json:
        tables = [each._asdict() for each in found.tables]
        output.document({**found._asdict(), "tables": tables})
        return
    output.line(f"tables of version {found.version} in PostgreSQL {found.server}")
    each = f", {found.size // found.sessions:,} bytes each" if found.sessions else ""
    sessions = output.counted(found.sessions, "session")
    output.line(f"{sessions}, {found.trash:,} in the trash; {found.size:,} bytes{each}")
    output.line(f"{output.counted(found.writers, 'writer')} alive")
    rows = [[each.name, *(f"{n:,}" for n in each[1:])] for each in found.tables]
    output.table([["TABLE", "ROWS (ABOUT)", "DEAD (ABOUT)", "BYTES"], *rows], right=(1, 2, 3))


@command.command("grant")
@click.argument("role")
@json_option
@click.pass_context
def _grant(ctx: click.Context, *, role: str, as_json: bool) -> None:
    """Let ROLE read and write sessions, and change no table.

    JSON: {role, blind: [role]}: roles that may, and see nothing, since there are tenants and they
    are none.
    """
    server = _server(ctx)
    from perdure.databases.postgres.administration import blind, grant

    grant(server, role)
    others = blind(server)
    if as_json:
        output.document({"role": role, "blind": others})
    else:
        output.line(f"{role} may read and write sessions")
        _say_blind(others)


def _say_blind(roles: list[str]) -> None:
    """Where there are tenants, all other roles see nothing, and nothing else would tell them."""
    if roles:
        named = ", ".join(roles)
        hint = "`perdure postgres tenant ROLE` lets one see everything, or --namespace alone"
        output.warning(f"no tenant, and so sees nothing: {named}; {hint}")


@command.command("tenant")
@click.argument("role")
@click.option("--remove", is_flag=True, help="Let ROLE see nothing any more.")
@json_option
@click.pass_context
def _tenant(ctx: click.Context, *, role: str, remove: bool, as_json: bool) -> None:
    """Let ROLE see the namespace of --namespace and all below it, and nothing else.

    Switches row-level security on: from then on roles that are no tenants see nothing, but for the
    owner of the tables. A role sees one namespace; without --namespace it sees everything.

    JSON: {role, namespace, before, blind: [role]}: what it saw before as a tenant, or null, and
    which roles may use the tables and see nothing. With --remove {role, removed}, which is false if
    it was no tenant.
    """
    server = _server(ctx, whole=remove)
    from perdure.databases.postgres.administration import blind, set_tenant, unset_tenant

    if remove:
        was = unset_tenant(server, role)
        if as_json:
            output.document({"role": role, "removed": was})
        else:
            output.line(f"{role} sees nothing any more" if was else f"{role} was no tenant")
        return
    place: Place = ctx.find_root().obj
    namespace = namespace_key(place.parts)
    before, others = set_tenant(server, role, namespace), blind(server)
    if as_json:
        output.document({"role": role, "namespace": namespace, "before": before, "blind": others})
        return
    seen = f"{role} sees {namespace or 'everything'}"
    if before not in (None, namespace):
        seen += f", and no longer {before or 'everything'}"
    output.line(seen)
    _say_blind(others)


@command.command("tenants")
@json_option
@click.pass_context
def _tenants(ctx: click.Context, *, as_json: bool) -> None:
    """Print which roles see which namespace.

    JSON: {tenants: [{role, namespace}]}; a namespace is one text, its parts joined by /, and ""
    for who sees everything.
    """
    server = _server(ctx)
    from perdure.databases.postgres.administration import tenants

    found = tenants(server)
    if as_json:
        output.document({"tenants": [each._asdict() for each in found]})
    elif found:
        rows = [[each.role, each.namespace or "(everything)"] for each in found]
        output.table([["ROLE", "SEES"], *rows])
    else:
        output.line("no tenants: who may use the tables sees everything")


@command.command("maintain")
@json_option
@click.pass_context
def _maintain(ctx: click.Context, *, as_json: bool) -> None:
    """Make partitions for sessions to come, and empty those whose sessions are all gone.

    For the owner of the tables, once a day or so.

    JSON: {made, emptied, freed}: names of partitions, and bytes.
    """
    server = _server(ctx)
    from perdure.databases.postgres.administration import maintain

    done = maintain(server)
    if as_json:
        output.document(done._asdict())
        return
    output.line(f"{len(done.made)} partitions made, {len(done.emptied)} emptied")
    if done.freed:
        output.line(f"{done.freed:,} bytes freed")
