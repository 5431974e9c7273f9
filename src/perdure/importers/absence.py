"""Sources that are not there any more: noticed, written down once, and told of each time.

The source of a session is gone if nothing is at its path, and also if what is there is not it: a
folder, an empty file, one in which no line can be read, or the file of another session. What was
imported stays as it is, and `source/gone` says what became of its source; `source/found` says that
it is there again.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.errors import PerdureError
from perdure.importers.appender import held
from perdure.importers.archive import Archive
from perdure.importers.files import Fingerprint, is_folder, is_gone
from perdure.importers.formats import LineFormat
from perdure.importers.report import SourceReport
from perdure.importers.seen import Seen, remember, seen
from perdure.importers.source import Stored
from perdure.importers.stored_lines import GONE
from perdure.importers.tally import Tally
from perdure.lenses.lines import SourceLines
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["Absence", "Lost"]


class Lost(NamedTuple):
    """A session whose source is gone.

    Attributes:
        header: of the session.
        path: of the source.
        format: of the source.
        reason: what is at its path; None: nothing is.

    """

    header: Header
    path: str
    format: str
    reason: str | None = None


class Absence:
    """Notices that sources are gone, and writes it down."""

    def __init__(self, store: Store, archive: Archive, runtime: Runtime, *, dry: bool) -> None:
        """With `dry` nothing is stored."""
        self._store = store
        self._archive = archive
        self._runtime = runtime
        self._dry = dry

    def below(self, kinds: Sequence[LineFormat], places: Sequence[str]) -> Iterator[Lost]:
        """The sessions whose files, below these places, are not there any more."""
        names = {kind.name for kind in kinds}
        for header in list(self._archive.here()):
            source = header.source
            if source is None or source.path is None or source.format not in names:
                continue
            if not any(_below(source.path, place) for place in places):
                continue
            if is_gone(source.path):
                yield Lost(header, source.path, source.format)
            elif is_folder(source.path):
                yield Lost(header, source.path, source.format, "a folder is at its path now")

    def mark(self, lost: Lost) -> SourceReport:
        """Write down, once, that a source is gone; its session stays as it is."""
        tally = Tally(lost.path)
        tally.format, tally.session = lost.format, lost.header.id
        tally.gone, tally.reason = True, lost.reason
        error: PerdureError | None = None
        try:
            kept = self._archive.kept(lost.header.id)
            known = seen(self._store, kept.session, kept.position)
            # What cannot be read fails here, too, where nothing is stored.
            tally.untouched(known or self._read(lost))
            if not (known is not None and known.gone) and not self._dry:
                self._write(lost)
        except PerdureError as reason:
            error = reason
        return tally.report(None, error)

    def _write(self, lost: Lost) -> None:
        session = lost.header.id
        with held(self._store, session) as writer:
            stored = self._stored(lost)
            known = seen(self._store, session, writer.position) or self._read(lost)
            if not stored.gone:
                data = {"path": lost.path, "noticed_at": self._runtime.now_ms()}
                why = {} if lost.reason is None else {"reason": lost.reason}
                writer.append(GONE, data | why, time=stored.time)
            known.gone, known.position = True, writer.position
            # Also where it was said before: whoever looks next need not read the log for it.
            remember(writer, known)

    def _stored(self, lost: Lost) -> Stored:
        return Stored.of(lost.format, self._store.read_from(lost.header.id))

    def _read(self, lost: Lost) -> Seen:
        """What stands for a note where there is none; no source is like it."""
        stored, reads = self._stored(lost), SourceLines.of(lost.header)
        lines = large = 0
        for line in reads.lines(self._store.read_from(lost.header.id), stored.starts):
            lines, large = lines + 1, large + (line.blob is not None)
        return Seen(
            position=Position(-1, ""),
            fingerprint=Fingerprint(0, 0, 0, 0, 0),
            digest="",
            end=0,
            lines=lines,
            torn=False,
            generation=stored.generation,
            last=stored.last,
            time=stored.time,
            large=large,
        )


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)
