"""`perdure demo`: a session is kept, broken off in the middle, and continued."""

import click

from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.options import json_option

__all__ = ["command"]


@click.command("demo")
@click.option("--keep", is_flag=True, help="Keep the store of the demo and say where it is.")
@json_option
def command(keep: bool, as_json: bool) -> int:
    """Keep, break off and resume a session.

    Real logs come in, and a real process dies. Everything happens in a temporary store; --store is
    not touched. Each claim is checked while you watch, and the exit code is 1 if one does not hold.

    JSON: {"passed": bool, "store": path or null, "claims": [{claim, holds}]}.
    """
    from perdure.cli.demonstration import run

    story = run(keep=keep, tell=(lambda _text: None) if as_json else output.line)
    if as_json:
        output.document(story.as_dict())
    return Exit.OK if story.passed else Exit.FAILED
