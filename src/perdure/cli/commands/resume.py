"""`perdure resume`: what a run would go on with, without going on."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.exits import Exit, exit_code, worst
from perdure.cli.options import json_option, opened
from perdure.cli.summary import in_words, state_lines
from perdure.errors import PerdureError
from perdure.store import Inspection, Store
from perdure.store.state import State
from perdure.views import conversation
from perdure.views.providers import FORMATS

if TYPE_CHECKING:
    from perdure.importers.taking_up import TakingUp

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
@click.option(
    "--cwd",
    type=click.Path(),
    metavar="PATH",
    help="Of an import: where its folder is now.",
)
@click.option("--state", "as_state", is_flag=True, help="Of an import: its state all the same.")
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
    cwd: str | None,
    as_state: bool,
    as_json: bool,
) -> int:
    """Show what a run would go on with: its state, or with --format its messages.

    Changes nothing: what a dead writer left open is shown as the next writer will close it. The
    beginning of an id will do if it is the only one.

    Of an import it prints the command with which the agent that wrote it takes it up, to be run in
    a shell; of a sub-agent that of its parent. First it looks whether folder, file and program are
    there: what is missing is named, with what to do instead. In a script,
    `cmd=$(perdure resume ID) && eval "$cmd"` runs it, and nothing where something is missing. With
    --format it prints the messages here too, for any other agent; `perdure fork` goes on with it in
    perdure.

    JSON: {session, state: {…}}; with --format {session, agent, format, messages: […]}, and only
    with --json all in ASCII; of an import {session, agent, command: [argument] or null, cwd, of,
    otherwise, note, checks: [{what, about, holds, error: {code, message, hint}}]}, where `of` is
    the session that the command is about. Exit code 1 if something is missing, 5 if there is no
    such session, 2 if several are meant.
    """
    store = opened(ctx)
    found = store.inspect(chosen(ctx, store, session, last=last))
    if form is None and agent is None and at is None:
        if _is_import(found) and not as_state:
            return _show_command(store, found.id, cwd, as_json=as_json)
        if cwd is not None:
            raise click.UsageError("--cwd is for imports, without --state", ctx=ctx)
        if as_state:
            _require_lens(found)
        _show_state(found, as_json=as_json)
        return Exit.OK
    _require_lens(found)
    messages = found.messages(agent, at=at, format=form or "neutral")
    if as_json or form is not None:
        body = {"session": found.id, "agent": agent, "format": form or "neutral"}
        output.document({**body, "messages": messages}, readable=not as_json)
    else:
        for message in messages:
            _show_message(message)
    return Exit.OK


def _is_import(found: Inspection) -> bool:
    """Whether it goes on in its own agent."""
    return found.header is not None and found.header.is_import


def _require_lens(found: Inspection) -> None:
    """See that somebody reads the lines of an import: else there are no messages in it.

    A fork has its own events all the same: of one, it is only said.

    Raises:
        PerdureError: it is an import, and nobody does.

    """
    header = found.header
    if header is None or header.source is None:
        return
    understanding = found.understanding
    if understanding is None or understanding.version is not None:
        return
    reason = f"no lens for the format {understanding.format} is installed"
    if header.is_import:
        hint = "install the package that brought it; `perdure log` shows the lines"
        raise PerdureError(f"{reason}, so nobody can tell its messages", hint=hint)
    output.warning(f"{reason}: what came from the import is left out")


def _show_command(store: Store, id: str, cwd: str | None, *, as_json: bool) -> Exit:
    """What its own agent takes it up with; nothing of it for a shell if something is missing."""
    from perdure.importers.taking_up import taking_up

    place = None if cwd is None else str(Path(cwd).absolute())
    found = taking_up(store, id, cwd=place)
    code = worst(exit_code(error) for error in found.missing)
    if as_json:
        output.document(found.as_dict())
    for error in found.missing:
        output.failure(error, code, as_json=as_json)
    if as_json:
        return code
    shown = _shell_line(found)
    if found.missing:
        failing = [check.what for check in found.checks if check.error is not None]
        if failing == ["program"] and shown is not None:
            output.warning(f"the command would be: {shown}")
        output.warning(found.otherwise)
        return code
    if shown is None:
        raise PerdureError(
            f"the folder {found.cwd!r} has characters that no line of a shell can carry safely",
            hint="--json gives program, arguments and folder apart",
        )
    if found.of != id:
        output.warning(f"a sub-agent: this takes up the session that it belongs to, {found.of}")
    if found.note is not None:
        output.warning(found.note)
    output.line(shown)
    return code


def _shell_line(found: "TakingUp") -> str | None:
    """The command as it can be printed; None where that would be another one."""
    line = found.line
    return line if line is not None and output.safe(line) == line else None


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
