"""`perdure resume`: what a run would go on with, without going on."""

from typing import Any

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.options import json_option, opened
from perdure.cli.summary import in_words, state_lines
from perdure.store import Inspection
from perdure.store.state import State
from perdure.views import conversation
from perdure.views.providers import FORMATS

__all__ = ["command"]


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

    JSON: {session, state: {…}}; with --format {session, agent, format, messages: […]}, and only
    with --json all in ASCII. Exit code 5 if there is no such session, 2 if several are meant.
    """
    store = opened(ctx)
    found = store.inspect(chosen(ctx, store, session, last=last))
    if form is None and agent is None and at is None:
        _show_state(found, as_json=as_json)
        return
    messages = found.messages(agent, at=at, format=form or "neutral")
    if as_json or form is not None:
        body = {"session": found.id, "agent": agent, "format": form or "neutral"}
        output.document({**body, "messages": messages}, readable=not as_json)
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
    rows = fold.rows["conversation"]
    live = {agent: len(conversation.messages(rows, agent)) for agent in state.agents}
    for line in state_lines(state, live):
        output.line(line)


def _show_message(message: dict[str, Any]) -> None:
    output.line(f"{message['role']}:")
    for block in message["content"]:
        for part in _shown(block).splitlines() or [""]:
            output.line(f"    {part}")


def _shown(block: dict[str, Any]) -> str:
    kind, text = block.get("type"), block.get("text")
    if isinstance(text, str):
        return f"({kind}) {text}" if kind == "thinking" else text
    if kind == "tool-call":
        return f"calls {block.get('name')} ({in_words(block.get('arguments'))})"
    if kind == "tool-result":
        error = block.get("error")
        failed = f" {error['code']}" if error else ""
        said = "\n".join(_shown(part) for part in block.get("content") or [] if part)
        return f"result of {block.get('name') or block.get('id')}:{failed} {said}".rstrip()
    return f"[{kind}] {in_words({name: block[name] for name in block if name != 'type'})}"
