"""`perdure fork`: a new session that begins with what another one holds."""

import re
from pathlib import Path

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError

__all__ = ["command"]


@click.command("fork")
@session_or_last
@click.option(
    "--at",
    type=click.IntRange(min=-1),
    metavar="SEQ",
    help="The last event to take over; -1: none of them.",
)
@click.option("--turn", metavar="TURN", help="Take over what came up to the end of this turn.")
@click.option("--agent", metavar="NAME", help="Whose turn; needed where several agents spoke.")
@click.option("--id", "new", metavar="ID", help="Id of the new session; made up if left out.")
@click.option("--cwd", type=click.Path(), metavar="DIR", help="Where the new session works.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str | None,
    last: bool,
    at: int | None,
    turn: str | None,
    agent: str | None,
    new: str | None,
    cwd: str | None,
    as_json: bool,
) -> None:
    """Make a new session that begins with the events of another one, which is only read.

    It takes over what lies before a point outside any open turn: by default the latest such point.
    Content is copied, so that the new session is whole when the other one is deleted.

    JSON: {session, parent: {session, seq}, events}. Exit code 2 if a turn is open at that point.
    """
    store = opened(ctx)
    place = ... if cwd is None else str(Path(cwd).absolute())
    id = chosen(ctx, store, session, last=last)
    try:
        child = store.fork(id, at, turn=turn, agent=agent, new_id=new, cwd=place)
    except PerdureError as error:
        # The places that it names are options here.
        error.hint = re.sub(r"\b(at|turn)=", r"--\1 ", error.hint)
        raise
    with child:
        parent = child.header.parent
        if parent is None:
            raise click.ClickException("the fork has no parent")
        if as_json:
            facts = {"session": parent.session, "seq": parent.seq}
            output.document({"session": child.id, "parent": facts, "events": child.header.seed})
        else:
            taken = output.counted(child.header.seed, "event")
            output.line(f"{child.id}  {taken} of {parent.session}")
