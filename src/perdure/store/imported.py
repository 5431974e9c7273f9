"""Reading imported logs in our vocabulary: stored lines go through the lens of their format.

A fork of an import begins with such lines and goes on with events of its own; those are taken as
they are. So is everything in an import that is no line of its source.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import msgspec

from perdure.errors import PerdureError
from perdure.lenses import Lens, SourceFacts, lens_of
from perdure.lenses.lines import REWRITTEN, Place, held, place_of, stored_line, with_text
from perdure.model.event import Event
from perdure.model.header import Header

__all__ = ["RewrittenError", "Translation", "Understanding", "lens_version", "translated"]

_FORKED = "session/forked"

Content = Callable[[str], bytes]
"""The bytes of content beside the log, by digest."""


class Understanding(msgspec.Struct, kw_only=True):
    """What the lens of a format made of an imported session.

    Attributes:
        format: name of the format.
        version: of the lens; None where nobody reads the format.
        facts: what the source says of its session.
        understood: how many records of each kind were read.
        raw: how many records of each kind were left as they are.
        told: how many records are messages, calls or results, and were read.
        missed: how many records are such and could not be read.
        superseded: how many stored lines the source has replaced since.

    """

    format: str
    version: int | None
    facts: SourceFacts
    understood: dict[str, int]
    raw: dict[str, int]
    told: int
    missed: int
    superseded: int


class RewrittenError(Exception):
    """The source was rewritten in a way that was not known of. Internal: it is read again."""


def lens_version(header: Header) -> dict[str, int]:
    """What the rows of views of this session depend on besides the views; {}: on no lens."""
    lens = None if header.source is None else lens_of(header.source.format)
    return {} if lens is None else {f"lens/{lens.name}": lens.version}


class Translation:
    """One reading of a log: it is given every event in order, and asked for the end.

    Attributes:
        lens: what reads the lines, or None where nobody does.

    """

    def __init__(self, header: Header, content: Content, starts: Mapping[int, int]) -> None:
        """`starts` says where the generations of the source begin that are known of."""
        self._header = header
        self._content = content
        self._starts = starts
        self._ended = False
        self._superseded = 0
        source = header.source
        self.lens: Lens | None = None if source is None else lens_of(source.format)

    @property
    def reads(self) -> bool:
        """Whether what comes next in the log is not simply what it says."""
        return self.lens is not None and not self._ended

    def read(self, event: Event) -> Iterator[Event]:
        """What the next event of the log says in our vocabulary.

        Raises:
            RewrittenError: read again from the start, with `starts_of` all events.

        """
        if event.type == _FORKED:
            # Nothing of the source comes behind it: the fork speaks for itself.
            yield from self.end()
        place = None if self._ended else place_of(event)
        if place is None or self.lens is None:
            yield event
        elif place.generation and place.generation not in self._starts:
            raise RewrittenError
        elif event.type != REWRITTEN:
            yield from self._line(self.lens, event, place)

    def _line(self, lens: Lens, event: Event, place: Place) -> Iterator[Event]:
        if not held(place, self._starts):
            self._superseded += 1
            return
        line = stored_line(event)
        if line is not None and line.blob is not None:
            # Of what expired or is damaged there is no text: the lens counts it as not read.
            with suppress(PerdureError):
                event = with_text(event, self._content(line.blob))
        yield from self._guarded(lens, lambda: lens.read(event))

    @staticmethod
    def _guarded(lens: Lens, tell: Callable[[], Iterator[Event]]) -> Iterator[Event]:
        try:
            yield from tell()
        except Exception:  # noqa: BLE001 - it may be anybody's, and stops nobody from reading on
            lens.missed += 1

    def end(self) -> Iterator[Event]:
        """What is still to be said when no further line comes; nothing if it was asked before."""
        if not self._ended and self.lens is not None:
            self._ended = True
            yield from self._guarded(self.lens, self.lens.end)

    def understanding(self) -> Understanding | None:
        """What the lens made of it so far; None if this is no import."""
        source = self._header.source
        if source is None:
            return None
        lens = self.lens
        return Understanding(
            format=source.format,
            version=None if lens is None else lens.version,
            facts=SourceFacts() if lens is None else lens.facts,
            understood={} if lens is None else dict(lens.understood),
            raw={} if lens is None else dict(lens.raw),
            told=0 if lens is None else lens.told,
            missed=0 if lens is None else lens.missed,
            superseded=self._superseded,
        )


def translated(
    header: Header, events: Iterable[Event], content: Content, starts: Mapping[int, int]
) -> Iterator[Event]:
    """All that a log says in our vocabulary, given all of its events.

    Raises:
        RewrittenError: as `Translation.read`.

    """
    translation = Translation(header, content, starts)
    for event in events:
        yield from translation.read(event)
    yield from translation.end()
