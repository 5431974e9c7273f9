"""`perdure import`: sessions of other agents into the store."""

from typing import Any

import click

from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.importers.formats import FORMATS

__all__ = ["command"]


@click.command("import")
@click.argument("format_name", type=click.Choice(sorted(FORMATS)))
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path())
@json_option
@click.pass_context
def command(ctx: click.Context, format_name: str, paths: tuple[str, ...], as_json: bool) -> int:
    """Import sessions of other agents.

    Every line of the files, or of all session files in a folder, is kept as it is. Importing again
    adds only what is new; sources are never changed.

    JSON: {format, found, new, unchanged, left_out, problem_count, sources: [{path, session, found,
    new, unchanged, left_out, problems: [{path, line, offset, reason}], problem_count, skipped,
    error: {code, message, hint}}]}. Exit code 1 if a file could not be imported, or if no line of
    it was sound.
    """
    from perdure.importers import import_sessions

    report = import_sessions(opened(ctx), format_name, paths)
    body = report.as_dict()
    if as_json:
        output.document(body)
    else:
        for source in body["sources"]:
            _print(source)
        output.line(
            "{found} lines found, {new} new, {unchanged} unchanged, {left_out} left out, "
            "{problem_count} problems".format_map(body)
        )
    return Exit.FAILED if report.failed or report.doubtful else Exit.OK


def _print(source: dict[str, Any]) -> None:
    output.line(source["path"])
    if source["error"] is not None:
        output.line(f"  error: {source['error']['message']}")
        output.line(f"  hint: {source['error']['hint']}")
    elif source["skipped"] is not None:
        output.line(f"  skipped: {source['skipped']}")
    else:
        counts = "{found} lines, {new} new, {unchanged} unchanged".format_map(source)
        output.line(f"  {counts} -> {source['session']}")
    for problem in source["problems"]:
        output.line("  line {line}, byte {offset}: {reason}".format_map(problem))
    if source["problem_count"] > len(source["problems"]):
        output.line(f"  {source['problem_count'] - len(source['problems'])} more problems")
