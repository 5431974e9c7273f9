"""`perdure log`: the events of a session, or the stored lines themselves."""

import itertools
import json
from typing import Any

import click

from perdure.backends import Backend, open_backend
from perdure.backends.base import Stored
from perdure.cli import output
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.errors import SessionDamaged
from perdure.model.event import Event
from perdure.model.header import encode_header
from perdure.model.record import BadRecordError, decode_line
from perdure.recovery.walk import Piece

__all__ = ["command"]

_DATA_CHARS = 160


@click.command("log")
@click.argument("session", metavar="ID")
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
    they hold together, and counts records; with --from the header is left out. Exit code 3 if the
    log is damaged, after what can be read.
    """
    if raw:
        return _print_stored(str(ctx.obj), session, start, limit)
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


def _print_stored(location: str, session: str, start: int, limit: int | None) -> int:
    """Print stored lines without judging them; a place that holds none is told beside them."""
    backend = open_backend(location)
    stored = backend.stored(session)
    flaws = 0 if start else _print_header(backend, session, stored)
    printed = 0
    for piece in backend.scan(session, stored.begin):
        if piece.flaw is not None:
            flaws += _told(piece)
        for line in piece.lines:
            if printed == limit:
                return Exit.DAMAGE if flaws else Exit.OK
            if _last_seq(line, start) >= start:
                output.record_line(line)
                printed += 1
    if flaws:
        raise SessionDamaged(session, f"{flaws} places hold no lines", kind="frame")
    return Exit.OK


def _print_header(backend: Backend, session: str, stored: Stored) -> int:
    """Print whatever stands in place of the header; returns the number of flaws."""
    if stored.begin:
        piece = next(iter(backend.scan(session, 0)))
        if piece.flaw is not None:
            return _told(piece)
        output.record_line(piece.lines[0])
    elif stored.header is not None:
        # This medium keeps the header apart from the records.
        output.record_line(encode_header(stored.header))
    return 0


def _told(piece: Piece) -> int:
    output.warning(f"bytes {piece.start} to {piece.end}: {piece.flaw}")
    return 1


def _last_seq(line: bytes, unknown: int) -> int:
    """The last event of a record; a line that is none counts as `unknown`."""
    try:
        return decode_line(line).last
    except BadRecordError:
        return unknown
