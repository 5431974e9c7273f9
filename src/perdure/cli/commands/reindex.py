"""`perdure reindex`: bring the index of listing and search up to date, or make it anew."""

import click

from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.finding import indexed
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("reindex")
@click.option("--all", "anew", is_flag=True, help="Read every session anew, changed or not.")
@json_option
@click.pass_context
def command(ctx: click.Context, *, anew: bool, as_json: bool) -> int:
    """Compare all sessions with the index, and read what changed.

    Other commands do this by themselves where they see a need; after files were changed by hand, or
    brought in from elsewhere, it makes sure. The index can be deleted at any time: it is made anew.

    JSON: {sessions, read, gone, failed: [[id, reason]]}. Exit code 1 if something failed.
    """
    store, progress = opened(ctx), indexed(as_json=as_json)
    found = store.full_rescan(progress=progress) if anew else store.refresh(progress=progress)
    if as_json:
        output.document({**found._asdict(), "failed": [list(each) for each in found.failed]})
    else:
        sessions = output.counted(found.sessions, "session")
        output.line(f"{sessions}: {found.read} read, {found.gone} gone")
        for id, reason in found.failed:
            output.line(f"failed {id}: {reason}")
    return Exit.FAILED if found.failed else Exit.OK
