"""`perdure rm`: sessions to the trash, each by its exact id."""

from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.chosen import in_full, stored
from perdure.cli.exits import Exit, exit_code
from perdure.cli.options import json_option, opened
from perdure.errors import InvalidValue, PerdureError, SessionNotFound
from perdure.store import Store

__all__ = ["command"]


@click.command("rm")
@click.argument(
    "sessions", metavar="ID...", nargs=-1, required=True, shell_complete=completing.sessions
)
@click.option("--subagents", is_flag=True, help="The sessions of their sub-agents, too.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, sessions: tuple[str, ...], subagents: bool, as_json: bool
) -> int:
    """Move sessions to the trash.

    Only exact ids: a pattern or the beginning of an id is not found. If one of them is not found,
    nothing is deleted. Damaged sessions can be deleted; one that is being written is left alone.
    `perdure restore ID` brings a session back, `perdure trash --empty` removes it for good.

    With --subagents the sessions of sub-agents go along, and theirs, but for those that a fork
    still refers to; they are named. Each is restored by its own id.

    JSON: {"deleted": [{id, deleted_at, digest, subagents?: [id], kept?: [id]}]}. Exit code 4 if one
    is being written; the others are deleted all the same.
    """
    store = opened(ctx)
    unknown = _unknown(store, sessions)
    for error in unknown:
        output.failure(error, exit_code(error), as_json=as_json)
    if unknown:
        if as_json:
            output.document({"deleted": []})
        return Exit.NOT_FOUND

    def delete(session: str) -> dict[str, Any]:
        below = store.descendants(session) if subagents else []
        kept = _kept(store, session, below) if subagents else []
        gone = store.delete(session, subagents=subagents)
        if not as_json:
            for each in (*below, session):
                output.line(f"deleted {each}")
            for each in kept:
                output.line(f"kept {each}, with its sub-agents: a fork begins with its start")
        facts = {"id": gone.id, "deleted_at": gone.deleted_at, "digest": gone.digest}
        return {**facts, "subagents": below, "kept": kept} if subagents else facts

    deleted, code = each(sessions, delete, as_json=as_json, known=lambda: stored(store))
    if as_json:
        output.document({"deleted": deleted})
    elif deleted:
        output.line("`perdure restore ID` brings back what is in the trash")
    return code


def _kept(store: Store, session: str, going: list[str]) -> list[str]:
    """The sub-agents of those that go which stay themselves."""
    gone = [session, *going]
    relatives = [child for elder in gone for child in store.children(elder)]
    found = (child.session for child in relatives if child.kind == "subagent")
    return [id for id in dict.fromkeys(found) if id not in gone]


def _unknown(store: Store, sessions: tuple[str, ...]) -> list[SessionNotFound]:
    """An error for each id that names no session."""
    unknown = []
    for session in dict.fromkeys(sessions):
        try:
            with in_full(session, lambda: stored(store)):
                store.inspect(session)
        except SessionNotFound as error:
            if error.deleted_at is None and set("*?[") & set(session):
                error.hint = "an id is given in full; patterns are not looked up"
            unknown.append(error)
        except InvalidValue:
            raise
        except PerdureError:
            # What cannot be read is there all the same.
            continue
    return unknown
