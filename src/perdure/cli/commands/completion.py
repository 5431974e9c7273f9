"""`perdure completion`: the script that lets a shell complete commands, ids and namespaces."""

import click
from click.shell_completion import get_completion_class

from perdure.cli import output
from perdure.cli.options import json_option

__all__ = ["command"]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@json_option
@click.pass_context
def command(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print a completion script for a shell.

    For bash: perdure completion bash > ~/.local/share/bash-completion/completions/perdure. For fish
    the same into ~/.config/fish/completions/perdure.fish, for zsh as _perdure into a folder of
    fpath. Ids with characters that a shell obeys are not completed.

    JSON: {shell, script}.
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"this click knows no completion for {shell}", ctx=ctx)
    script = kind(ctx.find_root().command, {}, "perdure", "_PERDURE_COMPLETE").source()
    if as_json:
        output.document({"shell": shell, "script": script})
    else:
        click.echo(script)
