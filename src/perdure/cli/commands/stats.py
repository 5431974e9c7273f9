"""`perdure stats`: how much there is, of whom, and how much of it can be found."""

from collections.abc import Mapping

import click

from perdure.cli import output
from perdure.cli.finding import indexed, program_name
from perdure.cli.options import json_option, opened
from perdure.store.found import Stats

__all__ = ["command"]


@click.command("stats")
@json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Show counts, sizes and usage of the sessions, and what the index covers.

    JSON: {sessions, events, size, tokens, cost: {currency: sum}, by_status: {status: number},
    by_program, by_agent, passages, skipped, skipped_in: [[id, reason]], partial, bytes, place,
    coverage: {sessions, indexed, skipped, reasons}, models: [{name, spec, dimension, complete,
    vectors}]}. Sizes are in bytes; `bytes` is that of the index, whose file is `place`, null in
    memory. Of the models, the first one answers when `search` goes by meaning.
    """
    found = opened(ctx).stats(progress=indexed(as_json=as_json))
    if as_json:
        sums = found.sums._asdict() | {"skipped_in": [list(each) for each in found.sums.skipped_in]}
        models = [model._asdict() for model in found.models]
        more = {"place": found.place, "coverage": found.coverage.as_dict(), "models": models}
        output.document({**sums, **more})
    else:
        _print(found)


def _print(found: Stats) -> None:
    sums = found.sums
    output.line(f"sessions  {sums.sessions}{_counts(sums.by_status)}")
    named = {program_name(program): number for program, number in sums.by_program.items()}
    output.line(f"programs  {len(named)}{_counts(named)}")
    output.line(f"agents    {len(sums.by_agent)}{_counts(sums.by_agent)}")
    output.line(f"events    {sums.events} in {sums.size} bytes")
    cost = ", ".join(f"{amount:g} {name}".strip() for name, amount in sorted(sums.cost.items()))
    output.line(
        f"usage     {output.counted(sums.tokens, 'token')}{f', cost {cost}' if cost else ''}"
    )
    output.line(f"index     {output.counted(sums.passages, 'passage')} in {sums.bytes} bytes")
    output.line(f"          {found.place or 'in memory'}")
    for model in found.models:
        unfinished = "" if model.complete else ", not complete"
        made = output.counted(model.vectors, "vector")
        output.line(f"meaning   {made} of {model.name}{unfinished}")
    output.line(f"coverage  {found.coverage}")
    for id, reason in sums.skipped_in:
        output.line(f"    {id}: {reason}")


def _counts(numbers: Mapping[str, int]) -> str:
    most = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))[:10]
    said = ", ".join(f"{number} {name}" for name, number in most)
    return f": {said}" if said else ""
