"""What several commands share: the store they open, their options, and asking before removing."""

import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import click

import perdure
from perdure.cli import output
from perdure.errors import NotOffered, PerdureError
from perdure.store import Store

__all__ = [
    "Place",
    "age",
    "confirmed",
    "json_option",
    "near",
    "opened",
    "opened_at",
    "shown_location",
    "yes_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


class Place(NamedTuple):
    """Where the sessions are that a command is about."""

    location: str
    parts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As a message names it."""
        named = shown_location(self.location)
        if not self.parts:
            return named
        return f"namespace {' / '.join(self.parts)} of {named}"


def near(location: str, what: str) -> str:
    """The location, of a store that is opened here and is not behind a URL.

    Raises:
        NotOffered: it is behind one, and `what` has to be done where the store is.

    """
    if location.lower().startswith(("http://", "https://")):
        raise NotOffered(what)
    return location


def shown_location(location: str) -> str:
    """A location for messages, without what is nobody's to read."""
    if location.startswith(("http://", "https://")):
        # What a link to a server brings with it.
        return location.partition("?")[0]
    if location.startswith(("postgresql:", "postgres:")):
        scheme, mark, rest = location.partition("://")
        user, at, place = rest.partition("@")
        if at and "/" not in user:
            # As libpq takes them apart: a password may hold a question mark.
            location = f"{scheme}{mark}{user.partition(':')[0]}{at}{place}"
        return re.sub("([?&])(password|sslpassword)=[^&]*", r"\1\2=…", location)
    return location


def age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Callback of options like `--older-than 30d`: the time span in seconds."""
    if value is None:
        return None
    found = re.fullmatch(r"([0-9]{1,12})([dhms])", value, re.ASCII)
    if found is None:
        message = f"{value!r} is no age; write 30d, 12h, 45m or 90s"
        raise click.BadParameter(message, ctx=ctx, param=param)
    return float(int(found[1]) * _SECONDS[found[2]])


def json_option(command: _Command) -> _Command:
    """Add `--json` to a command, as the argument `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return option(command)


def yes_option(command: _Command) -> _Command:
    """Add `--yes` to a command that asks."""
    return click.option("--yes", is_flag=True, help="Do it without asking.")(command)


def confirmed(ctx: click.Context, question: str, *, yes: bool) -> None:
    """Go on only if somebody says so: with `--yes`, or on the terminal.

    Raises:
        UsageError: nobody can be asked.
        PerdureError: the answer is no.

    """
    if yes:
        return
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nobody can be asked here; --yes does it without asking", ctx=ctx)
    sys.stdout.flush()
    if not click.confirm(output.safe(question), err=True):
        raise PerdureError("nothing was done")


def opened(
    ctx: click.Context,
    *,
    index: bool = True,
    embedder: str | None = None,
    here: str | None = None,
) -> Store:
    """The store of `--store` and `--namespace`, closed when the command ends.

    Opening creates nothing. Without an `index` what is written is indexed by who asks next. What is
    done `here` alone is refused for a store behind a URL.
    """
    place: Place = ctx.find_root().obj
    if here is not None:
        near(place.location, here)
    return opened_at(ctx, place.location, index=index, embedder=embedder)


def opened_at(
    ctx: click.Context, location: str, *, index: bool = True, embedder: str | None = None
) -> Store:
    """The store at another place, and in it the namespace of `--namespace`; closed likewise."""
    place: Place = ctx.find_root().obj
    return ctx.with_resource(perdure.open(location, index=index, embedder=embedder)).namespace(
        *place.parts
    )
