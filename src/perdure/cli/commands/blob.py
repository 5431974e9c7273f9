"""`perdure blob`: content of a session, listed or given out."""

from pathlib import Path

import click

from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.destination import output_options, put_out, write_new
from perdure.cli.options import json_option, opened
from perdure.runtime import SYSTEM
from perdure.store import Store

__all__ = ["command"]


@click.command("blob")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.argument("digest", metavar="[DIGEST]", required=False, shell_complete=completing.digests)
@output_options("content")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str,
    digest: str | None,
    target: str | None,
    force: bool,
    as_json: bool,
) -> None:
    """List the content of a session, or print it.

    With a digest the bytes go to the output, exactly as they were put. All of them are checked
    before the first is printed. A terminal gets text with escapes, and binary data only with
    --force. With --output they go to a new file with mode 0600.

    JSON: {session, blobs: [{digest, size, stored_at}]}; with --output {session, digest, size,
    output}; the bytes themselves are not put into JSON. Exit code 5 if the content expired, 3 if it
    is damaged.
    """
    store = opened(ctx)
    session = meant(store, session)
    if digest is None:
        if target is not None or force:
            raise click.UsageError("--output and --force go with a digest", ctx=ctx)
        _list(store, session, as_json=as_json)
    elif target is not None:
        size = _check(store, session, digest)
        write_new(target, store.open_blob(session, digest))
        if as_json:
            name = str(Path(target).absolute())
            output.document({"session": session, "digest": digest, "size": size, "output": name})
    else:
        _check(store, session, digest)
        put_out(f"content {digest}", lambda: store.open_blob(session, digest), force=force)


def _list(store: Store, session: str, *, as_json: bool) -> None:
    blobs = store.blobs(session)
    if as_json:
        rows = [blob._asdict() for blob in blobs]
        output.document({"session": session, "blobs": rows})
    elif not blobs:
        output.line(f"no content in {session}")
    else:
        now = SYSTEM.now_ms()
        cells = [[one.digest, str(one.size), output.span(now - one.stored_at)] for one in blobs]
        output.table([["DIGEST", "BYTES", "PUT"], *cells], right=(1,))


def _check(store: Store, session: str, digest: str) -> int:
    """Read all of it; the number of bytes."""
    return sum(len(part) for part in store.open_blob(session, digest))
