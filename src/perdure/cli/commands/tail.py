"""`perdure tail`: the end of a session, and what is added to it by whoever writes it."""

from collections.abc import Iterator

import click

from perdure.cli import output
from perdure.cli.chosen import chosen, session_or_last
from perdure.cli.exits import Exit
from perdure.cli.lines import event_line
from perdure.cli.options import json_option, opened
from perdure.model.event import Event
from perdure.store import Store

__all__ = ["command"]

_LOOK_SECONDS = 0.5
"""So soon it is noticed that whoever wrote has let go."""


@click.command("tail")
@session_or_last
@click.option(
    "-n", "--events", "many", type=click.IntRange(min=0), default=10, show_default=True,
    help="Begin with so many of the last events.",
)  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Go on also while nobody writes.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, session: str | None, last: bool, many: int, follow: bool, as_json: bool
) -> int:
    """Print the last events of a session, then each new one as it becomes durable.

    Ends when the process that writes it lets go, at once if there is none; with --follow, when it
    is interrupted. It takes no lock, and the writer does not notice.

    JSON: one event a line, as `perdure log`. Exit code 3 if the log is damaged.
    """
    store = opened(ctx)
    id = chosen(ctx, store, session, last=last)
    for event in _events(store, id, many, follow=follow):
        if as_json:
            output.json_line(event.as_dict())
        else:
            output.line(event_line(event))
        output.flush()
    return Exit.OK


def _events(store: Store, id: str, many: int, *, follow: bool) -> Iterator[Event]:
    position = store.inspect(id).position
    end = -1 if position is None else position.seq
    at = max(0, end + 1 - many)
    while True:
        # Asked before reading: what is written until the writer lets go is read in the last round.
        seen = store.revision(id)
        written = store.inspect(id).holder is not None
        for event in store.read_from(id, at):
            at = event.seq + 1
            yield event
        if not written and not follow:
            return
        store.watch(id, seen, _LOOK_SECONDS)
