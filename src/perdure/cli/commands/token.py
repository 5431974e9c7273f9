"""`perdure token`: who may ask the service, and as whom."""

import click

from perdure.cli import output
from perdure.cli.options import Place, age, json_option, opened
from perdure.http.tokens import Token, Tokens
from perdure.runtime import SYSTEM

__all__ = ["command"]


@click.group("token", no_args_is_help=False)
def command() -> None:
    """Make, list and revoke tokens for `perdure serve`.

    A token acts as a principal, who sees a namespace of its own, or as the owner, who sees the
    whole store. Its text is shown once, when it is made; kept is a digest. Making and revoking are
    events of the session `tokens` in the namespace `perdure.access`.

    Each of them takes --json. JSON: see their help.
    """


def _tokens(ctx: click.Context) -> Tokens:
    """The tokens of the store.

    Raises:
        UsageError: a namespace of it was named.

    """
    place: Place = ctx.find_root().obj
    if place.parts:
        message = "tokens are those of the whole store; leave --namespace out"
        raise click.UsageError(message, ctx=ctx)
    return Tokens(opened(ctx, index=False, here="token"))


@command.command("create")
@click.argument("name")
@click.option("--principal", metavar="NAME", help="As whom its bearer acts.")
@click.option("--owner", is_flag=True, help="Its bearer sees the whole store.")
@click.option(
    "--expires", callback=age, metavar="AGE", help="How long it counts: 30d. Without: for ever."
)
@json_option
@click.pass_context
def _create(
    ctx: click.Context,
    *,
    name: str,
    principal: str | None,
    owner: bool,
    expires: float | None,
    as_json: bool,
) -> None:
    """Make a token, and print its text, which nothing shows again.

    NAME is what you call it. Exactly one of --principal and --owner is needed.

    JSON: {token: {id, name, principal, created, expires, revoked}, text}. Times are Unix
    milliseconds; principal is null for the owner, expires and revoked are null for never.
    """
    if (principal is None) != owner:
        message = "say as whom its bearer acts: --principal NAME, or --owner for everything"
        raise click.UsageError(message, ctx=ctx)
    token, text = _tokens(ctx).create(name, principal=principal, expires_in=expires)
    if as_json:
        output.document({"token": token.as_dict(), "text": text})
        return
    output.line(text)
    output.warning(f"it is shown this once; `perdure token revoke {token.id}` ends it")


@command.command("ls")
@json_option
@click.pass_context
def _ls(ctx: click.Context, *, as_json: bool) -> None:
    """List all tokens that were ever made, without their secrets.

    JSON: {tokens: [{id, name, principal, created, expires, revoked}]}, as for `token create`.
    """
    found = _tokens(ctx).all()
    if as_json:
        output.document({"tokens": [token.as_dict() for token in found]})
        return
    if not found:
        output.line(f"no tokens in {ctx.find_root().obj}")
        return
    now = SYSTEM.now_ms()
    rows = [["ID", "STANDING", "CREATED (UTC)", "EXPIRES (UTC)", "AS", "NAME"]]
    output.table([*rows, *(_row(token, now) for token in found)])


def _row(token: Token, now: int) -> list[str]:
    standing = "counts" if token.counts(now) else "expired"
    return [
        token.id,
        standing if token.revoked is None else "revoked",
        output.when(token.created),
        "-" if token.expires is None else output.timestamp(token.expires),
        "(owner)" if token.principal is None else token.principal,
        token.name,
    ]


@command.command("revoke")
@click.argument("token", metavar="ID")
@json_option
@click.pass_context
def _revoke(ctx: click.Context, *, token: str, as_json: bool) -> None:
    """Let a token count no more, from the next request on.

    ID is whole, as `perdure token ls` shows it. Whoever revokes it again changes nothing.

    JSON: {token: {id, name, principal, created, expires, revoked}}. Exit code 2 if there is none.
    """
    found = _tokens(ctx).revoke(token)
    if as_json:
        output.document({"token": found.as_dict()})
    else:
        output.line(f"revoked {found.id} ({found.name})")
