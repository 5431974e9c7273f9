"""`perdure embed`: make the vectors that search by meaning compares."""

import click

from perdure.cli import output
from perdure.cli.chosen import meant
from perdure.cli.exits import Exit
from perdure.cli.finding import embedder_option, indexed
from perdure.cli.options import json_option, opened

__all__ = ["command"]


@click.command("embed")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@embedder_option
@click.option(
    "--per-minute",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="At most so many calls of the embedder a minute.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    ids: tuple[str, ...],
    embedder: str | None,
    per_minute: float | None,
    as_json: bool,
) -> int:
    """Embed what was said, in all sessions or in these: `perdure search` then finds by meaning.

    Only what has no vectors is embedded; interrupted, it goes on where it stopped. Without
    --embedder it is the one of the vectors that are there, or else the model that
    the extra `semantic` brings, which asks no other machine. Another embedder takes
    over when it has all sessions that the old one had; until then the old vectors answer,
    and then they are gone.

    JSON: {model, sessions, read, passages, vectors, complete: bool, failed: [[id, reason]]}. Exit
    code 1 if a session could not be read.
    """
    store = opened(ctx, embedder=embedder)
    store.refresh(progress=indexed(as_json=as_json))
    before = {model.name for model in store.stats().models}
    found = store.embed(
        [meant(store, id) for id in ids] or None,
        per_minute=per_minute,
        progress=indexed(as_json=as_json, what="sessions embedded"),
    )
    if as_json:
        output.document(found.as_dict())
    else:
        sessions = output.counted(found.sessions, "session")
        made = output.counted(found.vectors, "vector")
        output.line(f"{sessions}: {found.read} had something new, {made} made by {found.model}")
        gone = before - {model.name for model in store.stats().models}
        if gone:
            output.line(f"it answers now; the vectors of {', '.join(sorted(gone))} are gone")
        if not found.complete and found.sessions:
            output.warning("another model answers until this one has all of its sessions")
        for id, reason in found.failed:
            output.line(f"failed {id}: {reason}")
    return Exit.FAILED if found.failed else Exit.OK
