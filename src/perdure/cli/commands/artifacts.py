"""`perdure artifacts`: files that a run made, listed or written out."""

from typing import Any

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("artifacts")
@session_or_last
@click.option(
    "--extract", "folder", type=click.Path(), metavar="DIR", help="Write them into this folder."
)
@click.option("--name", "names", multiple=True, metavar="NAME", help="Only this one; repeatable.")
@click.option("--force", is_flag=True, help="Write over files that are there.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str | None,
    last: bool,
    folder: str | None,
    names: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> int:
    """List the files that a run saved, or write them into a folder.

    Nothing is written outside that folder, whatever the names say, and no link is followed.

    JSON: {session, artifacts: [{name, blob, size, media_type, seq}]}; with --extract {session,
    folder, written: [name], skipped: [{name, reason}]}. Exit code 1 if something was skipped.
    """
    store = opened(ctx)
    id = chosen(ctx, store, session, last=last)
    if folder is None:
        _list(id, [each._asdict() for each in store.artifacts(id)], as_json=as_json)
        return Exit.OK
    done = store.extract(id, folder, names or None, overwrite=force)
    skipped = [{"name": name, "reason": reason} for name, reason in done.skipped]
    if as_json:
        facts = {"session": id, "folder": folder, "written": [*done.written], "skipped": skipped}
        output.document(facts)
    else:
        for name in done.written:
            output.line(name)
        for each in skipped:
            output.warning(f"{each['name']}: {each['reason']}")
    return Exit.FAILED if skipped else Exit.OK


def _list(session: str, rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        output.document({"session": session, "artifacts": rows})
    elif not rows:
        output.line(f"no artifacts in {session}")
    else:
        cells = [[row["name"], str(row["size"]), row["media_type"] or ""] for row in rows]
        output.table([["NAME", "BYTES", "TYPE"], *cells], right=(1,))
