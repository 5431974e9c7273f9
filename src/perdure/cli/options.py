"""What several commands share: the store they open and the `--json` option."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from perdure.store import Store, open_store

__all__ = ["json_option", "opened"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_option(command: _Command) -> _Command:
    """Add `--json` to a command, as the argument `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    return option(command)


def opened(ctx: click.Context) -> Store:
    """The store that `--store` names, closed when the command ends. Opening creates nothing."""
    return ctx.with_resource(open_store(str(ctx.obj)))
