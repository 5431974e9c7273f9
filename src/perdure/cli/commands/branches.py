"""`perdure branches`: the turns of a session as a tree."""

import click
from msgspec.structs import asdict

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.options import json_option, opened
from perdure.views.conversation import Branch

__all__ = ["command"]

_PREVIEW_CHARS = 60


@click.command("branches")
@session_or_last
@click.option("--agent", metavar="NAME", help="Only the turns of this agent.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, session: str | None, last: bool, agent: str | None, as_json: bool
) -> None:
    """List the turns: what follows what, and where each agent stands.

    A turn that was edited, answered again or rewound stays in the log, off the line that is live.

    JSON: {session, turns: [{agent, turn, seq, end, parent, behind, replaces, how, live, head,
    preview}]}.
    """
    store = opened(ctx)
    found = store.inspect(chosen(ctx, store, session, last=last))
    turns = found.branches(... if agent is None else agent)
    if as_json:
        output.document({"session": found.id, "turns": [asdict(turn) for turn in turns]})
    elif not turns:
        output.line(f"no turns in {found.id}")
    else:
        output.table([["", "AGENT", "TURN", "EVENTS", "FOLLOWS", "SAID"], *map(_cells, turns)])


def _cells(turn: Branch) -> list[str]:
    mark = "*" if turn.head else "|" if turn.live else " "
    follows = turn.parent or ""
    if turn.replaces is not None:
        follows = f"{follows} ({turn.how or 'instead of'} {turn.replaces})".strip()
    preview = output.cut(turn.preview or "", _PREVIEW_CHARS)
    return [mark, turn.agent or "", turn.turn or "", f"{turn.seq}-{turn.end}", follows, preview]
