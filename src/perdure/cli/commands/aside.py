"""`perdure aside`: what a writer cut off or a repair replaced, listed or given out."""

from pathlib import Path

import click

from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.destination import Counted, output_options, put_out, write_new
from perdure.cli.options import json_option, opened
from perdure.store import Store

__all__ = ["command"]


@click.command("aside")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.argument("place", metavar="[PLACE]", required=False, shell_complete=completing.places)
@output_options("bytes")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str,
    place: str | None,
    target: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """List what is kept beside the log of a session, or print it.

    That is what a writer cut off behind a crash, and the logs and content that a repair replaced.
    With a place the bytes go to the output, exactly as they were found. A terminal gets text with
    escapes, and binary data only with --force. With --output they go to a new file with mode 0600.

    JSON: {session, asides: [{place, reason, size, set_at}]}; with --output {session, place, size,
    output}; the bytes themselves are not put into JSON. Exit code 2 if nothing is kept as PLACE.
    """
    store = opened(ctx)
    session = meant(store, session)
    if place is None:
        if target is not None or force:
            raise click.UsageError("--output and --force go with a place", ctx=ctx)
        _list(store, session, as_json=as_json)
    elif target is not None:
        counted = Counted(store.open_aside(session, place))
        write_new(target, counted)
        if as_json:
            name = str(Path(target).absolute())
            output.document(
                {"session": session, "place": place, "size": counted.size, "output": name}
            )
    else:
        put_out(f"what is kept as {place}", lambda: store.open_aside(session, place), force=force)


def _list(store: Store, session: str, *, as_json: bool) -> None:
    kept = store.asides(session)
    if as_json:
        output.document({"session": session, "asides": [aside._asdict() for aside in kept]})
    elif not kept:
        output.line(f"nothing is kept beside {session}")
    else:
        rows = [
            [aside.place, str(aside.size), output.timestamp(aside.set_at), aside.reason]
            for aside in kept
        ]
        output.table([["PLACE", "BYTES", "SET ASIDE (UTC)", "REASON"], *rows], right=(1,))
