"""`perdure forget`: what is remembered of sessions that are not stored any more."""

import click

from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.options import json_option, opened
from perdure.store import Store

__all__ = ["command"]


def _gone(store: Store) -> list[str]:
    """What can be forgotten and is known by name."""
    return [each.id for each in store.missing()]


@click.command("forget")
@click.argument(
    "sessions",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=completing.missing_sessions,
)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Forget sessions that are gone for good.

    Afterwards `perdure verify` does not miss them any more, and their ids can be used again.
    Sessions that are stored or in the trash are refused.

    JSON: {"forgotten": [id]}.
    """
    store = opened(ctx)

    def forget(session: str) -> str:
        store.forget(session)
        if not as_json:
            output.line(f"forgotten {session}")
        return session

    forgotten, code = each(sessions, forget, as_json=as_json, known=lambda: _gone(store))
    if as_json:
        output.document({"forgotten": forgotten})
    return code
