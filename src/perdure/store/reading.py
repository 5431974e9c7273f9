"""Pages of a log: verified as they are read, and read without what stands before them."""

import itertools
import re
from collections.abc import Collection, Iterator

from perdure.backends.base import Backend, Stored
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Piece, Problem, Walk
from perdure.store.refusing import damage
from perdure.store.witness import Witness, known_of

__all__ = ["Pages", "behind", "page_from"]

_BEGINS = re.compile(rb'\{"seq":([0-9]{1,19}),')


class Pages:
    """Reads events of the sessions of one namespace from any number on."""

    def __init__(self, backend: Backend, witness: Witness) -> None:
        """Nothing is opened."""
        self._backend = backend
        self._witness = witness

    def read(self, id: str, seq: int, types: Collection[str] | None) -> Iterator[Event]:
        """See `Store.read_from`."""
        if seq.__class__ is not int or seq < 0:
            raise InvalidValue(
                "seq", f"{values.shown(seq)} is not a sequence number", hint="0, 1, 2, …"
            )
        if isinstance(types, str):
            raise InvalidValue("types", "is one string", hint="a list or a set of event types")
        stored = self._backend.stored(id)
        if stored.header is None:
            raise damage(id, stored)
        return self._events(id, stored.header, stored, seq, types)

    def _events(
        self, id: str, header: Header, stored: Stored, seq: int, types: Collection[str] | None
    ) -> Iterator[Event]:
        tail = self._backend.tail(id)
        known = known_of(header, tail, self._witness.about(id).seen)
        problem: Problem | None = None
        for walk in self._walks(id, header, stored.begin, known, seq):
            with walk:
                for record in walk.records():
                    if record.last >= seq:
                        if types is None or record.type in types:
                            yield from record.events(seq)
                        seq = record.last + 1
                if walk.verdict is not Verdict.DAMAGED:
                    return
                problem = walk.problem
        raise damage(id, stored, problem)

    def _walks(self, id: str, header: Header, begin: int, known: Known, seq: int) -> Iterator[Walk]:
        """The passes to try: from the page on; where that meets damage, from the start.

        Damage can lead the search astray, and a doubled or misplaced part is not where the page
        ends if the start leads past it.
        """
        page = page_from(self._backend, header, begin, known, seq) if seq else None
        if page is not None:
            local = page.end > begin
            yield page
            if not local:
                return
        yield Walk(header, self._backend.scan(id, begin), known=known, begin=begin)


def page_from(backend: Backend, header: Header, begin: int, known: Known, seq: int) -> Walk | None:
    """A pass from a place at or before an event, found without reading what is before; or None."""
    pieces = backend.scan(header.id, begin, seq=seq)
    first = next(pieces, None)
    if first is None or (first.start > begin and not _opens_at(first, seq)):
        return None
    first = _without_earlier(first, seq) if first.start > begin else first
    rest = itertools.chain((first,), pieces)
    return Walk(header, rest, known=known, begin=first.start, local=first.start > begin)


def _without_earlier(piece: Piece, seq: int) -> Piece:
    """A piece without most of the lines before the record that holds an event.

    Only where each line looked at says where it begins, and the first that is left is intact: what
    is left out is not verified, and the pass takes that first one as it comes.
    """
    low, high = 0, len(piece.lines) - 1
    while low < high:
        middle = (low + high + 1) // 2
        begins = _BEGINS.match(piece.lines[middle])
        if begins is None:
            return piece
        low, high = (middle, high) if int(begins[1]) <= seq else (low, middle - 1)
    start = piece.start if piece.framed else piece.start + sum(map(len, piece.lines[:low]))
    rest = piece._replace(start=start, lines=piece.lines[low:])
    return rest if _opens_at(rest, seq) else piece


def _opens_at(piece: Piece, seq: int) -> bool:
    """Whether a piece begins with a record at or before `seq`."""
    if piece.flaw is not None:
        return False
    try:
        return decode_line(piece.lines[0]).first <= seq
    except (BadRecordError, IndexError):
        return False


def behind(walk: Walk, position: Position) -> Iterator[Record]:
    """The records that follow a position.

    Raises:
        ValueError: the log does not lead over it.

    """
    met = False
    for record in walk.records():
        if met:
            yield record
        elif record.last >= position.seq:
            if record.position != position:
                break
            met = True
    if not met:
        raise ValueError("the log has another record there")
