"""Which session is meant: an id, the beginning of one that fits no other, or the last one."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.cli import completing
from perdure.errors import InvalidValue, SessionNotFound
from perdure.store import Store

__all__ = ["chosen", "session_or_last"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHOWN_MAX = 10


def session_or_last(command: _Command) -> _Command:
    """Add an id (or the beginning of one) and `--last`, as `session` and `last`."""
    argument = click.argument(
        "session", metavar="[ID]", required=False, shell_complete=completing.sessions
    )
    option = click.option("--last", is_flag=True, help="The session in which something came last.")
    return argument(option(command))


def chosen(ctx: click.Context, store: Store, session: str | None, *, last: bool = False) -> str:
    """The id of the one session that is meant; nothing is changed to find it.

    Raises:
        UsageError: neither a session nor `--last` was given, or both.
        SessionNotFound: none is meant.
        InvalidValue: the beginning of several ids; all of them are named.

    """
    if (session is None) != last:
        raise click.UsageError("name a session, or use --last", ctx=ctx)
    if session is None:
        return store.last()
    try:
        store.inspect(session)
    except SessionNotFound as error:
        candidates = sorted(each.id for each in store.list() if each.id.startswith(session))
        if not candidates:
            raise
        if len(candidates) > 1:
            shown = ", ".join(candidates[:_SHOWN_MAX])
            more = f" and {len(candidates) - _SHOWN_MAX} more" if candidates[_SHOWN_MAX:] else ""
            raise InvalidValue(
                "ID", f"{session!r} is the beginning of several ids", hint=f"{shown}{more}"
            ) from error
        return candidates[0]
    return session
