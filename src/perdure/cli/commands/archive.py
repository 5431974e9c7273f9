"""`perdure archive`: a session is done with."""

from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.chosen import stored
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("archive")
@click.argument(
    "sessions", metavar="ID...", nargs=-1, required=True, shell_complete=completing.sessions
)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Say that sessions are done with.

    An event says so, and `perdure unarchive` takes it back. Nothing else changes. Like every
    writer this first closes what a crash left open.

    JSON: {"archived": [{id, seq}]}, seq being the number of the event. Exit code 4 if a session is
    being written.
    """
    store = opened(ctx)

    def archive(session: str) -> dict[str, Any]:
        event = store.archive(session)
        if not as_json:
            output.line(f"archived {session}")
        return {"id": session, "seq": event.seq}

    done, code = each(sessions, archive, as_json=as_json, known=lambda: stored(store))
    if as_json:
        output.document({"archived": done})
    return code
