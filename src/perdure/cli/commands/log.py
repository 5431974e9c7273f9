"""`perdure log`: the events of a session, or the stored lines themselves."""

import itertools

import click

from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.exits import Exit
from perdure.cli.lines import event_line
from perdure.cli.options import json_option, opened
from perdure.errors import SessionDamaged
from perdure.store import Store

__all__ = ["command"]


@click.command("log")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.option("--from", "start", type=click.IntRange(min=0), default=0, help="First event.")
@click.option("--limit", type=click.IntRange(min=0), help="At most so many.")
@click.option("--raw", is_flag=True, help="Print the stored lines, byte for byte.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, session: str, start: int, limit: int | None, raw: bool, as_json: bool
) -> int:
    """Print the events of a session, one a line.

    JSON: one event a line, {seq, type, time, agent, turn, key, ignorable, data}; what an event
    does not have is left out. --raw prints header and records as they are stored, whether or not
    they hold together, and counts lines; with --from the header is left out. Exit code 3 if the
    log is damaged, after what can be read.
    """
    store = opened(ctx)
    session = meant(store, session)
    if raw:
        return _print_stored(store, session, start, limit)
    events = store.read_from(session, start)
    for event in itertools.islice(events, limit):
        if as_json:
            output.json_line(event.as_dict())
        else:
            output.line(event_line(event))
    return Exit.OK


def _print_stored(store: Store, session: str, start: int, limit: int | None) -> int:
    """Print stored lines without judging them; a place that holds none is told beside them."""
    flaws = 0
    for line in itertools.islice(store.raw(session, start), limit):
        if isinstance(line, bytes):
            output.record_line(line)
        else:
            flaws += 1
            output.warning(f"bytes {line.start} to {line.end}: {line.reason}")
    if flaws:
        raise SessionDamaged(
            session, f"{flaws} place{'s' if flaws > 1 else ''} without lines", kind="frame"
        )
    return Exit.OK
