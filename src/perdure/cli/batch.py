"""Commands that do the same to several sessions: one that fails keeps no other from its turn."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import click

from perdure.cli import output
from perdure.cli.chosen import in_full
from perdure.cli.exits import Exit, exit_code, worst
from perdure.errors import PerdureError
from perdure.store import Store

__all__ = ["chosen", "each"]

_Done = TypeVar("_Done")


def chosen(ctx: click.Context, store: Store, sessions: Sequence[str], *, every: bool) -> list[str]:
    """The sessions that were named, or all of the store.

    Raises:
        UsageError: neither or both were asked for.

    """
    if bool(sessions) == every:
        raise click.UsageError("name sessions, or all of them with --all", ctx=ctx)
    return [entry.id for entry in store.list()] if every else [*sessions]


def each(
    sessions: Iterable[str],
    act: Callable[[str], _Done],
    *,
    as_json: bool,
    known: Callable[[], Iterable[str]],
) -> tuple[list[_Done], Exit]:
    """Do it to each of them once; who fails is told at once, and decides how the command ends.

    `known` gives the ids that there are, for whoever gave the beginning of one.
    """
    done: list[_Done] = []
    codes = [Exit.OK]
    for session in dict.fromkeys(sessions):
        try:
            with in_full(session, known):
                done.append(act(session))
        except PerdureError as error:
            codes.append(exit_code(error))
            output.failure(error, codes[-1], as_json=as_json)
    return done, worst(codes)
