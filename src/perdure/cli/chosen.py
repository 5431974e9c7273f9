"""Which session is meant: an id, the beginning of one that fits no other, or the last one."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from perdure.cli import completing, output
from perdure.errors import InvalidValue, PerdureError, SessionNotFound
from perdure.store import Store

__all__ = ["chosen", "in_full", "meant", "session_or_last", "stored"]

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHOWN_MAX = 10


def session_or_last(command: _Command) -> _Command:
    """Add an id (or the beginning of one) and `--last`, as `session` and `last`."""
    argument = click.argument(
        "session", metavar="[ID]", required=False, shell_complete=completing.sessions
    )
    option = click.option("--last", is_flag=True, help="The session in which something came last.")
    return argument(option(command))


def chosen(
    ctx: click.Context,
    store: Store,
    session: str | None,
    *,
    last: bool = False,
    exact: bool = False,
) -> str:
    """The id of the one session that is meant; nothing is changed to find it.

    `exact` is for commands that change it: the beginning of an id will not do.

    Raises:
        UsageError: neither a session nor `--last` was given, or both.
        SessionNotFound: none is meant.
        InvalidValue: the beginning of several ids; the first ten are named.

    """
    if (session is None) != last:
        raise click.UsageError("name a session, or use --last", ctx=ctx)
    if session is None:
        return store.last()
    if not exact:
        return meant(store, session)
    with in_full(session, lambda: stored(store)):
        _look(store, session)
    return session


def meant(store: Store, session: str) -> str:
    """The id that is `session`, or the only one that begins so, for commands that read.

    If none does, the only import of which the id that its own agent gave it begins so.

    The id of a session that was deleted or vanished means that session, and no longer one.

    Raises:
        SessionNotFound: none is meant.
        InvalidValue: the beginning of several ids; the first ten are named.

    """
    try:
        _look(store, session)
    except SessionNotFound as error:
        if error.deleted_at is not None or error.missing is not None:
            raise
        known = list(stored(store))
        candidates = sorted(id for id in known if id.startswith(session))
        # The id that another agent knows its session by stands behind the name of the format.
        candidates = candidates or sorted(id for id in known if f":{session}" in id)
        if not candidates:
            raise
        if len(candidates) > 1:
            reason = f"{session!r} is the beginning of {len(candidates)} ids"
            raise InvalidValue("ID", reason, hint=_listed(candidates)) from error
        return candidates[0]
    return session


def stored(store: Store) -> Iterator[str]:
    """The ids of the sessions that are stored."""
    return (entry.id for entry in store.list())


@contextmanager
def in_full(session: str, known: Callable[[], Iterable[str]]) -> Iterator[None]:
    """Within, an id has to be exact: who gave the beginning of one of `known` is told of it."""
    try:
        yield
    except SessionNotFound as error:
        if error.session == session and error.deleted_at is None and error.missing is None:
            error.hint = _longer(session, known()) or error.hint
        raise


def _look(store: Store, session: str) -> None:
    """See whether it is there; what is wrong with it is for the command to find.

    Raises:
        SessionNotFound: it is not.
        InvalidValue: no session can have this id.

    """
    try:
        store.inspect(session)
    except (SessionNotFound, InvalidValue):
        raise
    except PerdureError:
        return


def _longer(session: str, known: Iterable[str]) -> str | None:
    """Which id was meant perhaps, in words; None if none begins so."""
    found = sorted({id for id in known if id.startswith(session)}) if session else []
    if not found:
        return None
    verb = "does" if len(found) == 2 else "do"
    more = f", and so {verb} {len(found) - 1} more" if found[1:] else ""
    return f"an id is given in full here; {found[0]} begins so{more}"


def _listed(ids: list[str]) -> output.Lines:
    """Ids for people, one on a line."""
    shown = [output.safe(id) for id in ids[:_SHOWN_MAX]]
    more = [f"and {len(ids) - _SHOWN_MAX} more"] if ids[_SHOWN_MAX:] else []
    return output.Lines("\n".join(["one of these is meant:", *shown, *more]))
