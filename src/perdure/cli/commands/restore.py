"""`perdure restore`: sessions back from the trash."""

import shlex

import click

from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.options import json_option, opened
from perdure.errors import SessionNotFound

__all__ = ["command"]


@click.command("restore")
@click.argument(
    "sessions",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=completing.deleted_sessions,
)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Bring deleted sessions back.

    A session comes back whole: events, content, and all that was acknowledged of it.

    JSON: {"restored": [id]}. Exit code 5 if one is not in the trash; the others come back all the
    same.
    """
    store = opened(ctx)

    def restore(session: str) -> str:
        try:
            store.restore(session)
        except SessionNotFound as error:
            if error.deleted_at is not None:
                error.message += ", and is not in the trash any more"
                error.hint = f"`perdure forget {shlex.quote(session)}` makes its id free again"
            raise
        if not as_json:
            output.line(f"restored {session}")
        return session

    restored, code = each(
        sessions, restore, as_json=as_json, known=lambda: (one.id for one in store.trash())
    )
    if as_json:
        output.document({"restored": restored})
    return code
