"""Values only: header, event, record and chain, packing, vocabulary, limits. No I/O."""

from perdure.model.event import Event
from perdure.model.header import FORMAT, Header, Parent, Source
from perdure.model.record import Position, Record

__all__ = ["FORMAT", "Event", "Header", "Parent", "Position", "Record", "Source"]
