"""`perdure log`: the events of a session, or the stored lines themselves."""

import itertools
import json
from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.errors import SessionDamaged
from perdure.model.event import Event
from perdure.store import Store

__all__ = ["command"]

_DATA_CHARS = 160


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
    if raw:
        return _print_stored(opened(ctx), session, start, limit)
    events = opened(ctx).read_from(session, start)
    for event in itertools.islice(events, limit):
        if as_json:
            output.json_line(event.as_dict())
        else:
            output.line(_text(event))
    return Exit.OK


def _text(event: Event) -> str:
    names = [f"{label}={value}" for label, value in _names(event) if value is not None]
    data = "" if event.data is None else _compact(event.data)
    parts = [f"{event.seq:>6}", output.timestamp(event.time), event.type, *names, data]
    return "  ".join(parts).rstrip()


def _names(event: Event) -> list[tuple[str, str | None]]:
    return [("agent", event.agent), ("turn", event.turn), ("key", event.key)]


def _compact(data: Any) -> str:
    if isinstance(data, str):
        return output.cut(data.rstrip("\n"), _DATA_CHARS)
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return output.cut(text, _DATA_CHARS)


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
