"""`perdure rewind`: an agent stands behind an earlier turn again."""

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.options import json_option, opened
from perdure.errors import InvalidValue
from perdure.store import Inspection
from perdure.store.viewing import chosen_agent

__all__ = ["command"]

_LISTED = "`perdure branches` lists them"


@click.command("rewind")
@session_or_last
@click.option("--to", metavar="TURN", help="Stand behind this turn, of any branch.")
@click.option("--to-start", is_flag=True, help="Stand before the first turn.")
@click.option("--agent", metavar="NAME", help="Which agent; needed where several spoke.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str | None,
    last: bool,
    to: str | None,
    to_start: bool,
    agent: str | None,
    as_json: bool,
) -> None:
    """Let an agent go on behind an earlier turn; what came since stays in the log, as a branch.

    It is an event, which a further rewind takes back.

    JSON: {session, agent, to, seq}. Exit code 2 if there is no such turn, 4 if somebody writes the
    session.
    """
    if (to is None) != to_start:
        raise click.UsageError("name a turn with --to, or use --to-start", ctx=ctx)
    store = opened(ctx)
    found = store.inspect(chosen(ctx, store, session, last=last, exact=True))
    # Opening the writer would close what a dead one left open: not for a turn that is not there.
    agent = chosen_agent(found.fold(), agent)
    _check(found, to, agent)
    with store.writer(found.id) as writer:
        event = writer.rewind(to, agent=agent)
        if as_json:
            facts = {"session": writer.id, "agent": event.agent, "to": to, "seq": event.seq}
            output.document(facts)
        else:
            where = "before the first turn" if to is None else f"behind turn {to}"
            output.line(f"{writer.id} stands {where}")


def _check(found: Inspection, to: str | None, agent: str | None) -> None:
    """Refuse an agent or a turn that is not there."""
    branches = found.branches()
    name = "the agent without a name" if agent is None else f"agent {agent!r}"
    if agent is not None and all(turn.agent != agent for turn in branches):
        raise InvalidValue("--agent", f"{name} has no turns", hint=_LISTED)
    turns = [turn for turn in branches if turn.turn == to]
    if to is not None and all(turn.agent != agent for turn in turns):
        whose = sorted({turn.agent or "the agent without a name" for turn in turns})
        hint = f"it is a turn of {', '.join(whose)}" if whose else _LISTED
        raise InvalidValue("--to", f"{to!r} is no turn of {name}", hint=hint)
