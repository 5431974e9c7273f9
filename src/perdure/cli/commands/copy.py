"""`perdure copy`: sessions from one store to another."""

import click

from perdure.cli import output
from perdure.cli.chosen import meant
from perdure.cli.copies import Told, copy_each, source_at
from perdure.cli.options import json_option, near, opened_at, shown_location
from perdure.errors import SessionNotFound
from perdure.store import Store

__all__ = ["command"]


@click.command("copy")
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("target", metavar="DST", type=click.Path())
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@json_option
@click.pass_context
def command(
    ctx: click.Context, source: str, target: str, sessions: tuple[str, ...], as_json: bool
) -> int:
    """Copy sessions from one store to another.

    SRC and DST are stores, as --store takes them, but none behind a URL of HTTP; with --namespace,
    that namespace of both. All sessions are copied, those of namespaces below too, or the ones that
    are named. Each keeps its id, header, records and hashes, and its content comes along. What is
    already there is not copied again; a copy that broke off is continued. Nothing in SRC is
    changed, and it may be in use meanwhile. Deleted sessions stay in its trash.

    JSON: {source, destination, sessions: [{session, namespace, status, position: {seq, hash},
    events, blobs, problems: [{code, message}]}], not_tried}, where status is copied, continued,
    unchanged or ahead (DST has more), and not_tried counts sessions that were left when DST was
    full or gone. Exit code 3 if one is damaged, 1 if one went on differently in DST or DST takes no
    more, 4 if somebody writes it there, 5 if it is not there; all others are copied.
    """
    here = source_at(ctx, near(source, "copy"))
    there = opened_at(ctx, near(target, "copy"))
    source, target = shown_location(source), shown_location(target)
    told = Told(as_json=as_json)
    if sessions:
        copy_each(here, there, [_meant(here, session) for session in sessions], told)
    else:
        here.copy_all(there, progress=told)
    code = told.end()
    if as_json:
        body = {"source": source, "destination": target, "sessions": told.rows}
        output.document(body | {"not_tried": told.not_tried})
    elif not told.count and not told.failed:
        output.line(f"no sessions in {source}")
    return code


def _meant(store: Store, session: str) -> str:
    """The id; of one that is not there, itself: the others are copied all the same."""
    try:
        return meant(store, session)
    except SessionNotFound:
        return session
