"""`perdure compact`: the same records in less room."""

from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.batch import chosen, each
from perdure.cli.chosen import stored
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("compact")
@click.argument("sessions", metavar="[ID]...", nargs=-1, shell_complete=completing.sessions)
@click.option("--all", "every", is_flag=True, help="All sessions of the namespace.")
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], every: bool, as_json: bool) -> int:
    """Store sessions in less room.

    Records and hashes stay as they are. Like every writer this first closes what a crash left open.
    A session that is being written is named and left out.

    JSON: {"sessions": [{id, before, after}]}, in bytes. Exit code 4 if one is being written, 3 if
    one is damaged.
    """
    store = opened(ctx)

    def compact(session: str) -> dict[str, Any]:
        result = store.compact(session)
        if not as_json:
            output.line(f"{session}: {result.before} -> {result.after} bytes")
        return {"id": session, **result._asdict()}

    ids = chosen(ctx, store, sessions, every=every)
    compacted, code = each(ids, compact, as_json=as_json, known=lambda: stored(store))
    if as_json:
        output.document({"sessions": compacted})
    return code
