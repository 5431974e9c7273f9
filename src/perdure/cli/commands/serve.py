"""`perdure serve`: the sessions of the store over HTTP, and a page to read them."""

import sys

import click

from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.errors import InvalidValue, PerdureError
from perdure.runtime import SYSTEM
from perdure.store import Store

__all__ = ["command"]

PORT = 8766
_SWITCH_SECONDS = 0.001


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="0 takes a free one.",
)
@click.option(
    "--allow-host",
    "names",
    metavar="NAME",
    multiple=True,
    help="A further name by which it is reached, as a browser sends it; repeatable.",
)
@click.option(
    "--no-token",
    "everybody",
    is_flag=True,
    help="On this machine: whoever reaches the port is the owner, whatever user they are.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    host: str,
    port: int,
    names: tuple[str, ...],
    everybody: bool,
    as_json: bool,
) -> int:
    """Serve the sessions of the store over HTTP, until interrupted.

    Prints one line with the address. Without tokens of `perdure token`, a token for this run is
    part of it: open the link, or give it to perdure.open(url). With tokens, those are needed, and
    only they allow to listen on other addresses than those of this machine. docs/http.md has the
    API; /api/openapi.json describes it for programs.

    What is under way is finished when the process is asked to end.

    JSON: one line when it listens, {url, token: text or null}.
    """
    try:
        from perdure.http.server.running import Address, bind, is_loopback, server_of
    except ImportError as error:
        reason = f"`perdure serve` needs the extra `server`: {error.name} is not installed"
        hint = "install perdure again with [server] behind its name or folder"
        raise PerdureError(reason, hint=hint) from error
    from perdure.http.tokens import Tokens

    if ctx.find_root().obj.parts:
        raise click.UsageError("--namespace does not go with serve: tokens say who sees what")
    store = opened(ctx, here="serve")
    known = Tokens(store).any()
    if not is_loopback(host) and (everybody or not known):
        raise InvalidValue(
            "--host",
            f"{host} can be reached by other machines, and there is no token",
            hint="`perdure token create NAME --principal NAME` makes one",
        )
    once = None if known or everybody else SYSTEM.token(32)
    with bind(host, port) as listening:
        address = Address(host, listening.getsockname()[1], names)
        if as_json:
            output.json_line({"url": address.url, "token": once})
        else:
            output.line(address.url + ("" if once is None else f"/?token={once}"))
        output.flush()
        if sys.stderr.isatty():
            _tell(str(ctx.find_root().obj), store, known=known)
        server = server_of(store, address, once=once, everybody=everybody)
        # A thread that computes lets others go on sooner: requests are short, and many at once.
        sys.setswitchinterval(_SWITCH_SECONDS)
        server.run(sockets=[listening])
    return Exit.OK


def _tell(place: str, store: Store, *, known: bool) -> None:
    """Tell who started it what it serves."""
    output.warning(f"{output.counted(len(store.list()), 'session')} in {place}; Ctrl-C ends it")
    if known:
        output.warning("log in with the text of a token: `perdure token ls` lists them")
