"""What commands that list and search have in common: options, coverage, how sessions are shown."""

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from perdure.catalog.contract import Listed
from perdure.cli import output
from perdure.cli.progress import Progress
from perdure.store import Store
from perdure.store.found import Coverage

__all__ = [
    "embedder_option",
    "indexed",
    "listed_json",
    "local_time",
    "program_name",
    "programs_meant",
    "say_coverage",
    "time_options",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_OWN = "perdure"
"""Whose sessions are no imports."""


def time_options(what: str) -> Callable[[_Command], _Command]:
    """Add `--since` and `--until` to a command; `what` happened then."""

    def add(command: _Command) -> _Command:
        forms = "2026-11-30, 2026-11-30T14:05, today, 90m, 12h, 3d"
        until = click.option("--until", metavar="WHEN", help=f"{what} before this.")
        since = click.option(
            "--since",
            metavar="WHEN",
            help=f"{what} at or after this local time: {forms}.",
        )
        return since(until(command))

    return add


def embedder_option(command: _Command) -> _Command:
    """Add `--embedder` to a command."""
    return click.option(
        "--embedder",
        metavar="NAME",
        envvar="PERDURE_EMBEDDER",
        help="offline, hashing, model2vec:FOLDER, sentence-transformers:FOLDER, or"
        " https://HOST/v1#MODEL (its key in PERDURE_EMBEDDING_KEY).",
    )(command)


def indexed(*, as_json: bool, what: str = "sessions indexed") -> Callable[[int, int], None]:
    """Shows how many sessions were read, while an index is brought up to date."""
    progress = Progress(as_json=as_json, few=True)

    def show(done: int, total: int) -> None:
        if done < total:
            progress.bar(done, total, what)
        else:
            progress.clear()

    return show


def say_coverage(coverage: Coverage) -> None:
    """Warn where an answer does not cover everything."""
    if not coverage.complete:
        output.warning(f"{coverage}; `perdure stats` names more")


def program_name(program: str) -> str:
    """The program whose sessions these are, as people call it."""
    if program == _OWN:
        return _OWN
    from perdure.errors import PerdureError
    from perdure.importers.formats import format_of

    try:
        return format_of(program).agent
    except PerdureError:
        return program


def programs_meant(ctx: click.Context, store: Store, names: Sequence[str]) -> list[str]:
    """The programs that people mean by these names: those of programs, or of their formats.

    Raises:
        BadParameter: there is none of that name, nor a session of one.

    """
    if not names:
        return []
    from perdure.importers.formats import format_names

    known = {_OWN: _OWN}
    for format in format_names():  # noqa: A001
        known[format.casefold()] = known[program_name(format).casefold()] = format
    for name in names:
        if name.casefold() not in known and name not in store.stats().sums.by_program:
            labels = sorted({program_name(each) for each in known.values()})
            message = f"{name!r} is none; known are {', '.join(labels)}"
            raise click.BadParameter(message, ctx=ctx, param_hint="--program")
    return [known.get(name.casefold(), name) for name in names]


def listed_json(session: Listed) -> dict[str, Any]:
    """A session of a listing as plain values for JSON."""
    known = {name: getattr(session, name) for name in session.__struct_fields__}
    return known | {"agents": list(session.agents)}


def local_time(milliseconds: int | None) -> str:
    """A time for people, in their own zone; - where it is not known."""
    if not milliseconds:
        return "-"
    try:
        moment = dt.datetime.fromtimestamp(milliseconds / 1000).astimezone()
    except (ValueError, OverflowError, OSError):
        return output.timestamp(milliseconds)
    return moment.strftime("%Y-%m-%d %H:%M")
