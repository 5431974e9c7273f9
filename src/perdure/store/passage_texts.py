"""The text of a passage, read from its log again.

The catalog keeps no text: it knows which event says a passage, and the digest of what it says. Of
an import only the line of that event is read through a new lens; where that does not tell the same,
because it depends on what stands before, the whole source is read.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from perdure.backends.base import Backend
from perdure.catalog.contract import Candidate
from perdure.catalog.passages import Passage, Passages
from perdure.errors import PerdureError, SessionDamaged
from perdure.lenses.lines import SourceLines
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.store.folding import Folds
from perdure.store.forkpoint import NEVER
from perdure.store.imported import Translation, lens_version
from perdure.store.reading import Pages

__all__ = ["PassageTexts"]

_UNFINISHED = "unfinished"


class PassageTexts:
    """Reads passages of the sessions of one namespace."""

    def __init__(self, backend: Backend, pages: Pages, folds: Folds) -> None:
        """Nothing is read."""
        self._backend = backend
        self._pages = pages
        self._folds = folds

    def text(self, candidate: Candidate) -> str | None:
        """What a passage says; None if it does not stand there any more, or cannot be read."""
        try:
            header = self._backend.stored(candidate.session).header
            if header is None:
                return None
            if lens_version(header):
                return self._translated(header, candidate)
            return _find(candidate, self._pages.read(header.id, candidate.seq, None))
        except PerdureError:
            return None

    def all(self, session: str, start: int = 0) -> Iterator[Passage]:
        """Everything that a session says, in the order in which it is read.

        What stands before damage is said. Events before `start` are left out where that can be;
        what began before it is then not said, or not whole.

        Raises:
            PerdureError: it cannot be read.

        """
        header = self._backend.stored(session).header
        if header is None:
            raise SessionDamaged(session, "its header cannot be read")
        events: Iterable[Event] = self._pages.read(session, start, None)
        if lens_version(header):
            events = self._folds.history(header)(NEVER)
        reading = Passages()
        with suppress(SessionDamaged):
            for event in events:
                try:
                    said = [*reading.read(event)]
                except Exception:  # noqa: BLE001, S112 - one record never stops the rest
                    continue
                yield from said
        yield from reading.end()

    def _translated(self, header: Header, candidate: Candidate) -> str | None:
        event = next(self._pages.read(header.id, candidate.seq, None), None)
        if event is None:
            return None
        own = 0 < header.seed <= event.seq
        if own:
            return _find(candidate, self._pages.read(header.id, candidate.seq, None))
        alone = _find(candidate, self._alone(header, event))
        if alone is not None:
            return alone
        last = NEVER if candidate.kind == _UNFINISHED else candidate.seq
        return _find(candidate, self._folds.history(header).between(candidate.seq, last))

    def _alone(self, header: Header, event: Event) -> Iterable[Event]:
        """What a lens says that is given one line only."""
        place = SourceLines.of(header).place(event)
        starts = {} if place is None or not place.generation else {place.generation: place.offset}
        lens = Translation(header, self._folds.content(header.id), starts)
        return [*lens.read(event), *lens.end()]


def _find(candidate: Candidate, events: Iterable[Event]) -> str | None:
    """The text of a passage among what events say from its own on."""
    reading = Passages()
    # What stands before damage is found, and so is an answer that ends there.
    with suppress(SessionDamaged):
        for event in events:
            if event.seq > candidate.seq and candidate.kind != _UNFINISHED:
                break
            for said in reading.read(event):
                if _is(said, candidate):
                    return said.text
    return next((said.text for said in reading.end() if _is(said, candidate)), None)


def _is(said: Passage, candidate: Candidate) -> bool:
    named = (said.seq, said.kind) == (candidate.seq, candidate.kind)
    return named and said.digest == candidate.digest
