"""`perdure unarchive`: a session is not done with after all."""

from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.chosen import stored
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("unarchive")
@click.argument(
    "sessions", metavar="ID...", nargs=-1, required=True, shell_complete=completing.sessions
)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Take `perdure archive` back.

    An event says so; nothing else changes. Like every writer this first closes what a crash left
    open.

    JSON: {"unarchived": [{id, seq}]}, seq being the number of the event. Exit code 4 if a session
    is being written.
    """
    store = opened(ctx)

    def unarchive(session: str) -> dict[str, Any]:
        event = store.unarchive(session)
        if not as_json:
            output.line(f"unarchived {session}")
        return {"id": session, "seq": event.seq}

    done, code = each(sessions, unarchive, as_json=as_json, known=lambda: stored(store))
    if as_json:
        output.document({"unarchived": done})
    return code
