"""`perdure import`: sessions of other agents, and bundles, into the store."""

from pathlib import Path

import click

from perdure.cli import output
from perdure.cli.copies import BUNDLE, Told, bundle_at, copy_each
from perdure.cli.exits import Exit, exit_code, worst
from perdure.cli.imported import source_lines, total_lines
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError
from perdure.importers.formats import format_names
from perdure.store import Store

__all__ = ["command"]


@click.command("import")
@click.argument("format_name", type=click.Choice(sorted([*format_names(), BUNDLE])))
@click.argument(
    "paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(readable=False)
)
@json_option
@click.pass_context
def command(ctx: click.Context, format_name: str, paths: tuple[str, ...], as_json: bool) -> int:
    """Import sessions of other agents, or bundles of `perdure export`.

    Every line of the files, or of all session files in a folder, is kept as it is. Importing again
    adds only what is new; sources are never changed. `perdure sync` finds the files of all agents
    by itself; here the format is said, so that a file is taken for one of it though nothing in it
    shows it.

    JSON: {format, states: {state: number}, found, new, unchanged, large, problem_count, sources:
    [{path, format, session, state, found, new, unchanged, large, problems: [{path, line, offset,
    reason}], problem_count, skipped, error: {code, message, hint}, reason}]}, as `perdure sync`.
    Exit code 1 if a file could not be imported, or if no line of it was sound.

    A bundle's sessions are copied as by `perdure copy`, and so are JSON and exit codes: {format,
    sources: [{path, sessions, not_tried}]}. The file may be anybody's: it is only read, and what it
    says of other sessions is not believed. Sessions in namespaces of it come into the same ones.
    """
    if format_name == BUNDLE:
        return _import_bundles(ctx, paths, as_json=as_json)
    from perdure.importers import import_sessions

    report = import_sessions(opened(ctx, index=False), format_name, paths)
    if as_json:
        output.document(report.as_dict())
    else:
        for source in report.sources:
            for line in source_lines(source):
                output.line(line)
        for line in total_lines(report):
            output.line(line)
    return Exit.FAILED if report.failed or report.doubtful else Exit.OK


def _import_bundles(ctx: click.Context, paths: tuple[str, ...], *, as_json: bool) -> int:
    store = opened(ctx)
    codes, sources = [Exit.OK], []
    for path in paths:
        told = Told(as_json=as_json)
        try:
            if not Path(path).is_file():
                raise PerdureError(f"{path} is no file", hint="name what `perdure export` wrote")
            with Store(bundle_at(path, untrusted=True)) as bundle:
                _import_bundle(bundle, store, told)
                if not (told.count or as_json):
                    output.line(f"no sessions in {path}")
        except PerdureError as error:
            codes.append(exit_code(error))
            output.failure(error, codes[-1], as_json=as_json)
        codes.append(told.end())
        source = {"path": str(Path(path).absolute()), "sessions": told.rows}
        sources.append(source | {"not_tried": told.not_tried})
    if as_json:
        output.document({"format": BUNDLE, "sources": sources})
    return worst(codes)


def _import_bundle(bundle: Store, store: Store, told: Told) -> None:
    """All its sessions, those of its namespaces too; nothing of what it remembers."""
    # Somebody else's file may nest them as deep as it likes.
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        here = bundle.namespace(*parts)
        sessions = [entry.id for entry in here.list()]
        copy_each(here, store.namespace(*parts), sessions, told, parts)
        waiting += [(*parts, part) for part in reversed(here.namespaces())]
