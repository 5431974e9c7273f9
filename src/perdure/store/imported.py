"""Reading imported logs in our vocabulary: stored lines go through the lens of their format.

A fork of an import begins with such lines and goes on with events of its own; those are taken as
they are. So is everything in an import that is no line of its source.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec
from msgspec.structs import replace

from perdure.errors import ContentDamaged, ContentExpired
from perdure.lenses import Lens, SourceFacts, lens_of
from perdure.lenses.lines import (
    REWRITTEN,
    SourceLines,
    Standing,
    blob_of,
    inherited_starts,
    with_text,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header

__all__ = [
    "TITLED",
    "RewrittenError",
    "Translation",
    "Understanding",
    "lens_version",
    "starts_in",
    "translated",
]

TITLED = "source/titled"
"""Says what a list of the agent's calls the session."""

_NAMED = "session/titled"

_READ_BYTES_MAX = 64 * 1024 * 1024
_VALUES_MAX = 2_000_000
"""Longer lines, or lines of more values, are kept and no lens reads them: a session is never a
reason to run out of memory."""

_OWN = "perdure."
"""Where perdure's own lenses are, which need no looking after."""

_SURELY_FEW_BYTES = 1024 * 1024

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


def _is_laden(text: bytes) -> bool:
    """Whether there is so much in a line that its values would take many times its room."""
    if len(text) <= _SURELY_FEW_BYTES:
        return False
    return sum(map(text.count, (b",", b"[", b"{"))) > _VALUES_MAX


def _checked(said: Event) -> Event:
    """What a lens said, if it is an event as the vocabulary has them: it may be anybody's.

    Raises:
        TypeError, ValueError: it is none.

    """
    given: object = said
    if not isinstance(given, Event):
        raise TypeError(f"a lens says {values.shown(given)}, which is no event")
    names = (given.agent, given.turn, given.key)
    texts = isinstance(given.type, str) and all(isinstance(e, str | None) for e in names)
    whole = given.seq.__class__ is int and given.time.__class__ is int and given.seq >= 0
    if not (texts and whole and isinstance(given.raw, bytes)):
        raise TypeError("a lens says an event with fields that no event has")
    # Whoever is given it reads its data, which is looked at here once for all of them.
    values.decode(given.raw)
    return given


class RewrittenError(Exception):
    """The source was rewritten, which was not known. Internal: it is read again."""


def lens_version(header: Header) -> dict[str, int]:
    """What the rows of views of this session depend on besides the views; {}: on no lens."""
    lens = None if header.source is None else lens_of(header.source.format)
    return {} if lens is None else {f"lens/{lens.name}": lens.version}


def starts_in(header: Header, events: Iterable[Event]) -> dict[int, int]:
    """Where the generations of an imported source begin, given all events of its log."""
    return {} if header.source is None else SourceLines.of(header).starts(events)


class Translation:
    """One reading of a log: it is given every event in order, and asked for the end.

    Attributes:
        lens: what reads the lines, or None where nobody does.

    """

    def __init__(
        self, header: Header, content: Content, starts: Mapping[int, int] | None = None
    ) -> None:
        """`starts` are those of `starts_in`; without them the source is taken as never rewritten.

        Given, they are all that counts: what began since is for the next reading.
        """
        self._header = header
        self._content = content
        self._informed = starts is not None
        self._standing = Standing(starts or {})
        self._ended = False
        self._titled = self._listed = False
        self._superseded = 0
        source = header.source
        self._lines = SourceLines.of(header)
        self.lens: Lens | None = None if source is None else lens_of(source.format)

    @property
    def reads(self) -> bool:
        """Whether what comes next in the log is not simply what it says."""
        return self.lens is not None and not self._ended

    def is_line(self, event: Event) -> bool:
        """Whether an event of the log is one of the source's; behind a source each counts so."""
        ends = self._lines.ends(event)
        return ends or not self.reads or self._lines.place(event) is not None

    def read(self, event: Event) -> Iterator[Event]:
        """What the next event of the log says in our vocabulary.

        Raises:
            RewrittenError: read again from the start, with `starts_in` all events.

        """
        if self._lines.ends(event):
            if self.reads and not self._informed and inherited_starts(event):
                raise RewrittenError
            yield from self.end()
        lens = None if self._ended else self.lens
        place = None if lens is None else self._lines.place(event)
        if lens is None or place is None:
            yield from self._other(event)
        elif event.type == REWRITTEN:
            if not self._informed:
                raise RewrittenError
        elif self._standing.holds(place):
            yield from self._line(lens, event)
        else:
            self._superseded += 1

    def _other(self, event: Event) -> Iterator[Event]:
        """What is no line: a title that the agent's list has stands until a person gives one."""
        if self._ended or event.type not in (TITLED, _NAMED):
            yield event
        elif event.type == _NAMED:
            self._titled = True
            yield event
        elif not self._titled:
            self._listed = True
            yield replace(event, type=_NAMED)

    def _line(self, lens: Lens, event: Event) -> Iterator[Event]:
        blob = blob_of(event.data)
        if blob is not None:
            text = self._text(blob, event.data["bytes"])
            if text is None:
                lens.missed += 1
                return
            event = with_text(event, text)
        elif _is_laden(event.raw):
            lens.missed += 1
            return
        named = self._titled or self._listed
        for said in self._guarded(lens, lambda: lens.read(event)):
            # What was given from outside the source goes before what stands in it.
            if not (named and said.type == _NAMED):
                yield said

    def _text(self, blob: str, size: int) -> bytes | None:
        """A line that is kept as content; None if it is too large to be read, or not there."""
        if size > _READ_BYTES_MAX:
            return None
        try:
            text = self._content(blob)
        except (ContentExpired, ContentDamaged):
            return None
        return None if _is_laden(text) else text

    @staticmethod
    def _guarded(lens: Lens, tell: Callable[[], Iterator[Event]]) -> Iterator[Event]:
        try:
            own = lens.__class__.__module__.startswith(_OWN)
            for said in tell():
                yield said if own else _checked(said)
        except (Exception, SystemExit):  # noqa: BLE001 - it stops nobody from reading on
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
    header: Header, events: Iterable[Event], content: Content, starts: Mapping[int, int] | None
) -> Iterator[Event]:
    """All that a log says in our vocabulary, given all of its events.

    Raises:
        RewrittenError: as `Translation.read`.

    """
    translation = Translation(header, content, starts)
    for event in events:
        yield from translation.read(event)
    yield from translation.end()
