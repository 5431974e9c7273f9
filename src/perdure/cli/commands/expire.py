"""`perdure expire`: content that nobody needs any more."""

from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.batch import chosen, each
from perdure.cli.chosen import stored
from perdure.cli.options import age, json_option, opened
from perdure.store import Expiry

__all__ = ["command"]


@click.command("expire")
@click.argument("sessions", metavar="[ID]...", nargs=-1, shell_complete=completing.sessions)
@click.option("--all", "every", is_flag=True, help="All sessions of the namespace.")
@click.option(
    "--older-than",
    callback=age,
    metavar="AGE",
    help="Referred to last before: 30d, 12h, 45m, 90s.",
)
@click.option(
    "--kind", "kinds", multiple=True, metavar="TYPE", help="Referred to by events of this type."
)
@click.option(
    "--keep-last", type=click.IntRange(min=0), metavar="N", help="Spare what was referred to last."
)
@click.option("--dry-run", is_flag=True, help="Only say what would expire.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    sessions: tuple[str, ...],
    every: bool,
    older_than: float | None,
    kinds: tuple[str, ...],
    keep_last: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove content that satisfies every condition given.

    Events stay, and one more says what expired. Pinned content never expires. What no event refers
    to is removed as well; without a condition, only that. Like every writer this first closes what
    a crash left open, also with --dry-run. A session that is being written is named and left out.

    JSON: {"dry_run": bool, "sessions": [{id, expired: [{digest, size, stored_at}], unreferenced:
    [the same], kept}]}. Exit code 4 if a session is being written, 3 if one is damaged.
    """
    store = opened(ctx)

    def expire(session: str) -> dict[str, Any]:
        result = store.expire(
            session,
            older_than=older_than,
            kinds=kinds or None,
            keep_last=keep_last,
            dry_run=dry_run,
        )
        if not as_json:
            _print(result, dry_run=dry_run)
        return {
            "id": session,
            "expired": [blob._asdict() for blob in result.expired],
            "unreferenced": [blob._asdict() for blob in result.unreferenced],
            "kept": result.kept,
        }

    ids = chosen(ctx, store, sessions, every=every)
    expired, code = each(ids, expire, as_json=as_json, known=lambda: stored(store))
    if as_json:
        output.document({"dry_run": dry_run, "sessions": expired})
    return code


def _print(result: Expiry, *, dry_run: bool) -> None:
    gone = (*result.expired, *result.unreferenced)
    text = f"{result.session}: {'would remove' if dry_run else 'removed'} {len(gone)} of "
    text += f"{output.counted(len(gone) + result.kept, 'blob')}"
    if gone:
        text += f", {sum(blob.size for blob in gone)} bytes"
    if result.unreferenced:
        text += f"; no event refers to {len(result.unreferenced)} of them"
    output.line(text)
    if dry_run:
        for blob in gone:
            output.line(f"    {blob.digest}  {blob.size} bytes")
