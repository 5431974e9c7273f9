"""Entry point: options of every command, lazy loading, and how each ending looks from outside."""

import sys
from collections.abc import Sequence
from importlib import import_module
from io import StringIO, TextIOWrapper
from typing import Any, NoReturn

import click

from perdure.cli import completing, output
from perdure.cli.exits import Exit, exit_code
from perdure.cli.options import Place
from perdure.errors import PerdureError

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS = {
    "accept": "accept",
    "archive": "archive",
    "artifacts": "artifacts",
    "aside": "aside",
    "blob": "blob",
    "branches": "branches",
    "compact": "compact",
    "completion": "completion",
    "copy": "copy",
    "demo": "demo",
    "embed": "embed",
    "expire": "expire",
    "export": "export",
    "forget": "forget",
    "fork": "fork",
    "import": "import_sessions",
    "log": "log",
    "ls": "ls",
    "reindex": "reindex",
    "postgres": "postgres",
    "repair": "repair",
    "restore": "restore",
    "resume": "resume",
    "rewind": "rewind",
    "rm": "rm",
    "search": "search",
    "serve": "serve",
    "show": "show",
    "stats": "stats",
    "sync": "sync",
    "tail": "tail",
    "token": "token",
    "trash": "trash",
    "unarchive": "unarchive",
    "upgrade": "upgrade",
    "verify": "verify",
}
"""Name of a command to its module in `perdure.cli.commands`."""


class _CommandLine(click.Group):
    """A group that imports a command when it is called, and ends every command in one way."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"perdure.cli.commands.{COMMANDS[cmd_name]}")
        found: click.Command = module.command
        return found

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            return Exit.PIPE_CLOSED

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: ARG002
        **extra: Any,
    ) -> NoReturn:
        arguments = [*(sys.argv[1:] if args is None else args)]
        # A stream that was closed before the start is None.
        sys.stdout, sys.stderr = sys.stdout or StringIO(), sys.stderr or StringIO()
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                # A terminal of another encoding shows escapes in place of what it lacks.
                stream.reconfigure(errors="backslashreplace")
        as_json = "--json" in arguments
        try:
            try:
                code = super().main(
                    arguments, prog_name, complete_var, standalone_mode=False, **extra
                )
            except PerdureError as error:
                code = exit_code(error)
                output.failure(error, code, as_json=as_json)
            except click.ClickException as error:
                code = _refuse(error, as_json=as_json)
            except click.Abort:
                code = Exit.INTERRUPTED
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes its streams once more when it ends, and would complain then.
            sys.stdout, sys.stderr = StringIO(), StringIO()
            code = Exit.PIPE_CLOSED
        except OSError as error:
            # The store translates its errors, so this one comes from the output.
            sys.stdout, code = StringIO(), Exit.FAILED
            refusal = PerdureError(f"the output cannot be written: {error.strerror or error}")
            output.failure(refusal, code, as_json=as_json)
        sys.exit(int(code or Exit.OK))


def _refuse(error: click.ClickException, *, as_json: bool) -> int:
    """Print what is wrong with the arguments."""
    message, hint = error.format_message(), ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"see `{error.ctx.command_path} --help`"
    if isinstance(error, click.NoSuchOption) and error.option_name in ("--store", "--namespace"):
        # What looks like it among the options of the command is no help.
        message = f"{error.option_name} stands before the command"
        hint = f"perdure {error.option_name} … {error.ctx.info_name if error.ctx else 'COMMAND'} …"
    refusal = PerdureError(message, hint=hint)
    output.failure(refusal, error.exit_code, as_json=as_json, code="usage")
    return error.exit_code


@click.group(
    cls=_CommandLine,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--store",
    "location",
    metavar="PATH",
    envvar="PERDURE_STORE",
    default="~/.perdure",
    show_default=True,
    show_envvar=True,
    help="The store: a folder or a URL.",
)
@click.option(
    "--namespace",
    "parts",
    metavar="NAME",
    multiple=True,
    shell_complete=completing.namespaces,
    help="A namespace of the store; repeat it for one inside another, outermost first.",
)
@click.version_option(package_name="perdure", message="%(version)s")
@click.pass_context
def cli(ctx: click.Context, location: str, parts: tuple[str, ...]) -> None:
    """Keep, list, read and check sessions of agents.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 damage found, 4 somebody else writes the
    session, 5 not found.
    """
    ctx.obj = Place(location, parts)
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), err=True)
        ctx.exit(Exit.USAGE)


def main() -> NoReturn:
    """Run the command line of this process and end it with an exit code of `perdure.cli.exits`."""
    cli.main()
    sys.exit(Exit.FAILED)
