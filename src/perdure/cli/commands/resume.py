"""`perdure resume`: what a run would go on with, without going on."""

from typing import Any

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.options import json_option, opened
from perdure.store import Inspection
from perdure.store.state import State
from perdure.views import conversation
from perdure.views.providers import FORMATS

__all__ = ["command"]

_TEXT_CHARS = 200


@click.command("resume")
@session_or_last
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS]),
    help="Print the messages for the model, in this form.",
)
@click.option("--agent", metavar="NAME", help="Whose messages; needed where several agents spoke.")
@click.option("--at", metavar="TURN", help="As it was at the end of this turn.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str | None,
    last: bool,
    form: str | None,
    agent: str | None,
    at: str | None,
    as_json: bool,
) -> None:
    """Show what a run would go on with: its state, or with --format its messages.

    Changes nothing: what a dead writer left open is shown as the next writer will close it. The
    beginning of an id will do if it is the only one.

    JSON: {session, state: {…}}; with --format {session, agent, format, messages:
    […]}. Exit code 5 if there is no such session, 2 if several are meant.
    """
    store = opened(ctx)
    found = store.inspect(chosen(ctx, store, session, last=last))
    if form is None and agent is None and at is None:
        _show_state(found, as_json=as_json)
        return
    messages = found.messages(agent, at=at, format=form or "neutral")
    if as_json or form is not None:
        body = {"session": found.id, "agent": agent, "format": form or "neutral"}
        output.document({**body, "messages": messages})
    else:
        for message in messages:
            _show_message(message)


def _show_state(found: Inspection, *, as_json: bool) -> None:
    fold = found.fold()
    state = State(fold)
    if as_json:
        output.document({"session": found.id, "state": state.as_dict()})
        return
    output.line(f"session    {found.id}")
    if state.title is not None:
        output.line(f"title      {state.title}")
    if state.cwd is not None:
        output.line(f"cwd        {state.cwd}")
    for name, agent in state.agents.items():
        messages = conversation.messages(fold.rows["conversation"], name)
        label = "agent" if name is None else f"agent {name}"
        turns = output.counted(agent.turns, "turn")
        output.line(
            f"{label:<10} {turns}, {output.counted(len(messages), 'message')} to go on with"
        )
    _show_rest(state.as_dict())


def _show_rest(facts: dict[str, Any]) -> None:
    """Every other part of the state that says anything."""
    for name in (
        "scratchpad",
        "settings",
        "triggers",
        "jobs",
        "subagents",
        "channels",
        "artifacts",
    ):
        part = facts.get(name)
        if part:
            output.line(f"{name:<10} {output.cut(output.compact(part), _TEXT_CHARS)}")


def _show_message(message: dict[str, Any]) -> None:
    output.line(f"{message['role']}:")
    for block in message["content"]:
        text = block.get("text")
        shown = text if isinstance(text, str) else output.compact(block)
        for part in shown.splitlines() or [""]:
            output.line(f"    {part}")
