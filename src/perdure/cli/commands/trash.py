"""`perdure trash`: what was deleted, and its removal for good."""

from collections.abc import Sequence
from typing import Any

import click

from perdure.backends.base import Trashed
from perdure.cli import completing, output
from perdure.cli.batch import each
from perdure.cli.exits import Exit
from perdure.cli.options import age, confirmed, json_option, opened, yes_option
from perdure.errors import SessionNotFound
from perdure.runtime import SYSTEM
from perdure.store import Store

__all__ = ["command"]


@click.command("trash")
@click.argument("sessions", metavar="[ID]...", nargs=-1, shell_complete=completing.deleted_sessions)
@click.option("--empty", is_flag=True, help="Remove what is listed for good.")
@click.option(
    "--older-than", callback=age, metavar="AGE", help="Only what was deleted before: 30d."
)
@yes_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    sessions: tuple[str, ...],
    empty: bool,
    older_than: float | None,
    yes: bool,
    as_json: bool,
) -> int:
    """List deleted sessions, or remove them for good.

    Of all in the trash, or of the ids named, those that were deleted before. With --empty they are
    removed after a question; where nobody can be asked, --yes is needed. Their ids stay taken until
    `perdure forget`.

    JSON: {"trash": [{id, deleted_at, digest}]}; with --empty {"removed": [the same]}. Times are
    Unix milliseconds; the digest is that of the header, or null.
    """
    store = opened(ctx)
    found = _found(store, sessions, older_than)
    if not empty:
        if as_json:
            output.document({"trash": [_row(trashed) for trashed in found]})
        else:
            _print(found, f"nothing to show in the trash of {ctx.find_root().obj}")
        return Exit.OK
    if not as_json:
        _print(found, f"nothing to remove from the trash of {ctx.find_root().obj}")
    if found:
        confirmed(ctx, f"Remove {output.counted(len(found), 'session')} for good?", yes=yes)
    # Only what was shown: more may have been deleted while somebody thought about it.
    removed, code = each(
        [trashed.id for trashed in found],
        lambda session: store.empty_trash(session, older_than=older_than),
        as_json=as_json,
        known=lambda: (one.id for one in found),
    )
    rows = [_row(trashed) for several in removed for trashed in several]
    if as_json:
        output.document({"removed": rows})
    elif found:
        output.line(f"removed {output.counted(len(rows), 'session')}")
    return code


def _found(store: Store, sessions: Sequence[str], older_than: float | None) -> list[Trashed]:
    found = store.trash()
    for session in sessions:
        if session not in {trashed.id for trashed in found}:
            error = SessionNotFound(session)
            error.message, error.hint = (
                f"no session {session!r} in the trash",
                "see `perdure trash`",
            )
            raise error
    if older_than is not None:
        before = SYSTEM.now_ms() - int(older_than * 1000)
        found = [trashed for trashed in found if trashed.deleted_at < before]
    return [trashed for trashed in found if not sessions or trashed.id in sessions]


def _row(trashed: Trashed) -> dict[str, Any]:
    return {"id": trashed.id, "deleted_at": trashed.deleted_at, "digest": trashed.digest}


def _print(found: Sequence[Trashed], nothing: str) -> None:
    if not found:
        output.line(nothing)
        return
    rows = [["DELETED (UTC)", "DIGEST", "ID"]]
    rows += [[output.timestamp(one.deleted_at), (one.digest or "-")[:12], one.id] for one in found]
    output.table(rows)
