"""Answers about one session, as the store has them: header, end, problems, who writes."""

from typing import Any

import msgspec

from perdure.backends.base import Stored, Tail
from perdure.durable.locks import Holder
from perdure.errors import FormatUnsupported, ServerFaulty
from perdure.http.client.asking import Asking
from perdure.http.wire.session import SessionShape
from perdure.http.wire.shapes import ProblemShape
from perdure.model import values
from perdure.model.header import (
    FORMAT,
    BadHeaderError,
    Header,
    decode_header,
    encode_header,
)
from perdure.model.record import Position
from perdure.recovery.walk import Problem

__all__ = ["DAMAGED", "header_of", "holder_of", "position_of", "problem_of", "stored_of", "tail_of"]

DAMAGED = "damaged"
_UNSUPPORTED = "unsupported"


def header_of(asking: Asking, session: str, told: dict[str, Any]) -> Header:
    """The header of a session, of which an answer tells; its digest proves that it is this one.

    What an answer cannot say exactly (lone surrogates) is read from the stored line.

    Raises:
        ServerFaulty: it is none.
        As `Asking.ask`.

    """
    config = told.get("config")
    try:
        plain = msgspec.convert({**told, "config": None}, Header)
        header = msgspec.structs.replace(plain, config=config)
        return decode_header(encode_header(header), session)
    except (BadHeaderError, msgspec.ValidationError, UnicodeEncodeError, ValueError):
        pass
    line = b""
    with asking.open("raw_lines", session) as stream:
        for lines in stream.lines():
            line = lines[0]
            break
    try:
        return decode_header(line, session)
    except BadHeaderError as error:
        raise ServerFaulty(asking.url, f"the header of {session!r}: {error}") from None


def stored_of(asking: Asking, session: str, shape: SessionShape) -> Stored:
    """What an answer says of the header of a session; the id in it need not be exact.

    Raises:
        As `header_of`.

    """
    if shape.header is not None:
        return Stored(header_of(asking, session, shape.header), None, 0)
    if shape.status == _UNSUPPORTED:
        what = f"session {values.shown(session)}"
        refusal = FormatUnsupported(what, found="another", supported=FORMAT)
        return Stored(None, Problem(_UNSUPPORTED, None, 0, 0, refusal.message), 0, refusal)
    problems = [problem_of(each) for each in shape.problems]
    none = Problem("header", None, 0, 0, "it has no header that can be read")
    return Stored(None, problems[0] if problems else none, 0)


def problem_of(shape: ProblemShape) -> Problem:
    """A place that does not hold together."""
    return Problem(shape.kind, shape.record, shape.start, shape.end, shape.reason)


def position_of(shape: SessionShape) -> Position | None:
    """Where the log ends."""
    place = shape.position
    return None if place is None else Position(place.seq, place.hash)


def tail_of(shape: SessionShape) -> Tail:
    """What is known of the end of the log."""
    # Of a damaged one the position is where what is intact ends, which nobody acknowledged.
    place = None if shape.status == DAMAGED else position_of(shape)
    return Tail(place, shape.status in ("complete", "running"), 0 if place is None else place.seq)


def holder_of(shape: SessionShape) -> Holder | None:
    """Who writes it."""
    told = shape.holder
    return None if told is None else Holder(told.pid, told.host, told.since)
