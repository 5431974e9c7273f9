"""One source and the session that keeps it: what is new is found, and stored."""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec

from perdure.importers.appender import Appender
from perdure.importers.archive import Kept
from perdure.importers.beside import (
    Beside,
    KeptFile,
    Part,
    found_beside,
    keep_bytes,
    keep_file,
    note_plain,
    same_bytes,
)
from perdure.importers.files import NoSourceError, UnreadableSourceError
from perdure.importers.formats import LineFormat
from perdure.importers.json_lines import Parsed, glance, parse
from perdure.importers.lines import Line
from perdure.importers.seen import Seen, remember, seen
from perdure.importers.stored_lines import BYTES, FILE, FOUND, GONE, PLAIN
from perdure.importers.tally import Tally
from perdure.importers.text import SourceText
from perdure.lenses.lines import REWRITTEN, SourceLines, StoredLine
from perdure.model.event import TYPE_PATTERN, Event
from perdure.store import Store
from perdure.store.imported import TITLED

__all__ = ["FOUND", "GONE", "TITLED", "Source", "Stored"]

_T = TypeVar("_T")

_TYPE = re.compile(TYPE_PATTERN)
_GLANCED_BYTES_MAX = 64 * 1024 * 1024
"""Longer lines are stored without a look at what type they are."""


class Stored(NamedTuple):
    """What a session says of its source besides the lines.

    Attributes:
        starts: where each generation of lines begins.
        beside: the files beside the source that are stored, by their names.
        gone: whether the source was found to be gone, and not found again since.
        parts: the parts of a compressed source that are stored; none if it is compressed no more.
        title: the one that a list of the agent's gave the session last, or None.
        time: of the last line, Unix milliseconds.
        last: the last generation that was begun, whether or not it counts.
        reason: of a source that is gone, what was found at its path instead; None: nothing was.

    """

    starts: Mapping[int, int] = MappingProxyType({})
    beside: Mapping[str, Beside] = MappingProxyType({})
    gone: bool = False
    parts: Sequence[Part] = ()
    title: str | None = None
    time: int = 0
    last: int = 0
    reason: str | None = None

    @property
    def generation(self) -> int:
        """The last one that counts."""
        return max(self.starts, default=0)

    @classmethod
    def of(cls, format: str, events: Iterable[Event]) -> "Stored":  # noqa: A002
        """Read all events of a session that keeps a source of this format."""
        reads = SourceLines(format)
        starts: dict[int, int] = {}
        beside: dict[str, Beside] = {}
        parts: list[Part] = []
        gone, reason, title, time, last = False, None, None, 0, 0
        for event in events:
            place = reads.place(event)
            if place is not None:
                time, last = event.time, max(last, place.generation)
                if event.type == REWRITTEN:
                    starts[place.generation] = place.offset
            elif event.type in (GONE, FOUND):
                gone, said = event.type == GONE, _data(event, _Gone)
                reason = said.reason if gone and said is not None else None
            elif event.type == FILE and (file := _data(event, KeptFile)) is not None:
                beside[file.name] = Beside(file.blob)
            elif event.type == BYTES and (part := _data(event, Part)) is not None:
                parts = [*(parts if part.offset else ()), part]
            elif event.type == PLAIN:
                parts = []
            elif event.type == TITLED and (titled := _data(event, _Titled)) is not None:
                title = titled.title
        return cls(starts, beside, gone, parts, title, time, last, reason)


class _Titled(msgspec.Struct):
    title: str


class _Gone(msgspec.Struct):
    reason: str | None = None


def _data(event: Event, kind: type[_T]) -> _T | None:
    """What an event says, or None: others may have appended one of that type, too."""
    try:
        return msgspec.convert(event.data, kind)
    except msgspec.ValidationError:
        return None


class Source:
    """A file that was opened and recognised."""

    def __init__(
        self,
        store: Store,
        kind: LineFormat,
        text: SourceText,
        tally: Tally,
        *,
        now: int,
        document: bool = False,
    ) -> None:
        """`tally` is told what becomes of each line; `now` is Unix milliseconds.

        Of a `document` no line is a record, and none is asked to be.
        """
        self._now = now
        self._document = document
        self._store = store
        self.kind = kind
        self.text = text
        self._tally = tally
        self._lines = SourceLines(kind.name)
        # Digests of the content that is stored, once somebody asked.
        self._there: set[str] | None = None

    # --- what is new -----------------------------------------------------------------------------

    def bring(self, to: Appender, kept: Kept, lines: Iterator[Line]) -> None:
        """Store what the session does not have yet; `lines` are those of the text.

        Raises:
            PerdureError: what was stored before it is kept.

        """
        tally, path = self._tally, self.text.file.path
        known = seen(self._store, kept.session, kept.position)
        now = self.text.file.fingerprint
        if known is None or not (known.fingerprint == now or self._begins_with(known)):
            stored = Stored.of(self.kind.name, self._events(kept))
            self._compare(to, kept, stored, self._bounded(lines))
            if tally.found:
                self._finish(to, stored, same_bytes(self.text.file, stored.parts))
            return
        to.generation, to.time = known.generation, known.time
        if known.fingerprint.size == now.size:
            tally.untouched(known)
            beside = found_beside(self.kind, path, known.beside)
            if known.fingerprint == now and not known.gone and beside == known.beside:
                return
        else:
            tally.follow(known)
            to.last = known.last
            if known.torn:
                to.generation = to.last + 1
            self._append(to, self._bounded(self.text.lines(known.end, known.lines + 1)))
            if known.torn:
                to.rewritten(known.end)
        stored = Stored(beside=known.beside, gone=known.gone, title=known.title)
        self._finish(to, stored, known.fingerprint.size)

    def _bounded(self, lines: Iterable[Line]) -> Iterator[Line]:
        """Lines without those that a small file can be made to hold; its own bytes are kept."""
        for line in lines:
            if self.text.compressed and line.raw is None and line.gap is None:
                reason = f"a line of {line.size} bytes is left out; the file is kept as it is"
                yield line._replace(gap=reason, size=0)
            else:
                yield line

    def _begins_with(self, known: Seen) -> bool:
        """Whether the source begins with all that was seen of it, and the rest can be added."""
        size = known.fingerprint.size
        if self.text.compressed and known.problem_count + known.behind_count:
            # A frame that was cut off may be whole by now.
            return False
        return self.text.file.digest(size) == known.digest

    def _compare(self, to: Appender, kept: Kept, stored: Stored, lines: Iterator[Line]) -> None:
        """Find what is stored in the source again, then append what is different from there on."""
        tally = self._tally
        to.generation, to.last = stored.generation, stored.last
        held = self._lines.lines(self._events(kept), stored.starts)
        expected = next(held, None)
        for line in lines:
            if line.gap is not None:
                tally.note(line, line.gap, fragment=True)
                continue
            if expected is None or not self._same(expected, line):
                rest: Iterator[Line] = itertools.chain((line,), lines)
                if expected is not None:
                    self._begin_anew(to, expected, line, last=next(held, None) is None)
                    rest = self._go_on(to, kept, stored, line) or rest
                self._append(to, rest)
                if expected is not None:
                    # Not before all of it is there: what was stored first holds until then.
                    to.rewritten(line.offset)
                expected = None
                break
            to.time = expected.event.time
            self._restore(to, kept, expected, line)
            large, reason = expected.blob is not None, self._read(line).reason
            tally.line(line, reason, new=False, large=large, time=to.time)
            expected = next(held, None)
        # Where nothing can be read, nothing is known of what is stored.
        if expected is not None and tally.found:
            self._begin_anew(to, expected, None)
            to.rewritten(tally.end)
        to.flush()

    def _go_on(
        self, to: Appender, kept: Kept, stored: Stored, first: Line
    ) -> Iterator[Line] | None:
        """Go on with a generation that an import left unfinished, if it stands in the source.

        Returns the lines that it lacks; None: there is no such generation.
        """
        left: list[tuple[int, bool]] = []
        source = self._bounded(self.text.lines(first.offset, first.number))
        for event in self._events(kept) if stored.last > stored.generation else ():
            one = self._lines.line(event)
            if one is None or one.place.generation != stored.last:
                continue
            line = next((line for line in source if line.gap is None), None)
            if line is None or not self._same(one, line):
                return None
            left.append((one.event.time, one.blob is not None))
        if not left:
            return None
        to.generation = stored.last
        lines = self._bounded(self.text.lines(first.offset, first.number))
        for to.time, large in left:
            line = next(line for line in lines if line.gap is None)
            reason = self._read(line).reason
            self._tally.line(line, reason, new=False, large=large, time=to.time)
        return lines

    def _restore(self, to: Appender, kept: Kept, stored: StoredLine, line: Line) -> None:
        """Keep the content of a long line again that went from the store, but not from here."""
        if stored.blob is None:
            return
        if self._there is None:
            self._there = {blob.digest for blob in self._store.blobs(kept.session)}
        if stored.blob not in self._there:
            to.content(self._again(line)())
            self._there.add(stored.blob)

    def _begin_anew(
        self, to: Appender, stored: StoredLine, line: Line | None, *, last: bool = False
    ) -> None:
        """What is stored from a line on does not stand there any more; `line` does, if any.

        The source only grew if that was the last one, and had not been whole: then it goes on.
        """
        to.generation = to.last + 1
        self._tally.rewritten = not (last and line is not None and self._begins(stored, line))

    def _append(self, to: Appender, lines: Iterable[Line]) -> None:
        tally = self._tally
        for line in lines:
            if line.gap is not None:
                tally.note(line, line.gap, fragment=True)
                continue
            parsed = self._read(line)
            kind, time = self._type_and_time(parsed.value)
            large = to.line(line, kind, time, self._again(line))
            tally.line(line, parsed.reason, new=True, large=large, time=to.time)
            tally.new = to.stored
        to.flush()
        tally.new = to.stored

    def _read(self, line: Line) -> Parsed:
        """What a line says; of one that is too long for a record, what can be seen of it."""
        if self._document:
            return Parsed(None, None)
        if line.raw is not None:
            return parse(line.raw, first=line.number == 1)
        if line.size > _GLANCED_BYTES_MAX:
            return Parsed(None, None if line.whole else "the last line has no newline")
        value = glance(b"".join(self.text.between(line.offset, line.size)))
        if line.whole:
            return Parsed(value, "not JSON" if value is None else None)
        torn = "torn: the line ends without a newline; not JSON"
        return Parsed(value, torn if value is None else "the last line has no newline")

    def _type_and_time(self, value: dict[str, Any] | None) -> tuple[str, int | None]:
        record, time = self.kind.record(value) if value is not None else (None, None)
        named = f"{self.kind.name}/{record}"
        return named if record and _TYPE.match(named) else f"{self.kind.name}/record", time

    # --- what is stored --------------------------------------------------------------------------

    def continues(self, kept: Kept) -> bool:
        """Whether everything that a session keeps stands in this source."""
        stored = Stored.of(self.kind.name, self._events(kept))
        lines = (line for line in self._bounded(self.text.lines()) if line.gap is None)
        held = self._lines.lines(self._events(kept), stored.starts)
        for each in held:
            line = next(lines, None)
            if line is None or not self._same(each, line):
                # The last line may not have been whole yet.
                return line is not None and self._begins(each, line) and next(held, None) is None
        return True

    def _events(self, kept: Kept) -> Iterator[Event]:
        return iter(()) if kept.position is None else self._store.read_from(kept.session)

    def _same(self, stored: StoredLine, line: Line) -> bool:
        if stored.place.offset != line.offset:
            return False
        if stored.blob is None:
            return stored.raw == line.raw
        return stored.event.data["bytes"] == line.size and stored.blob == self._digest(
            self._again(line)()
        )

    def _begins(self, stored: StoredLine, line: Line) -> bool:
        """Whether a line begins with what is stored, and goes on."""
        size = stored.event.data["bytes"] if stored.raw is None else len(stored.raw)
        if stored.place.offset != line.offset or size >= line.size:
            return False
        found = self._digest(self.text.between(line.offset, size))
        return found == (stored.blob or hashlib.sha256(stored.raw or b"").hexdigest())

    def _digest(self, parts: Iterable[bytes]) -> str:
        found = hashlib.sha256()
        for part in parts:
            found.update(part)
        return found.hexdigest()

    def _again(self, line: Line) -> Callable[[], Iterable[bytes]]:
        raw = line.raw
        if raw is not None:
            return lambda: (raw,)
        return partial(self.text.between, line.offset, line.size)

    # --- what is remembered ----------------------------------------------------------------------

    def _finish(self, to: Appender, stored: Stored, kept_bytes: int) -> None:
        """Store what belongs to the source besides its lines, and remember what was seen."""
        tally, file = self._tally, self.text.file
        if stored.gone:
            to.event(FOUND, {"path": file.path, "noticed_at": self._now}, to.time)
        if self.text.compressed:
            keep_bytes(to, file, kept_bytes)
        elif stored.parts:
            note_plain(to)
        beside = {}
        for name, found in found_beside(self.kind, file.path, stored.beside).items():
            before = stored.beside.get(name)
            # It is nobody's session: if it goes just now, that stops no import.
            with suppress(NoSourceError, UnreadableSourceError):
                if before is None or before.digest != found.digest:
                    keep_file(to, file.path, name)
                beside[name] = found
        digest = file.digest(file.fingerprint.size)
        position = to.position
        if to.dry or digest is None or position is None:
            return
        remember(
            to.writer(),
            Seen(
                position=position,
                fingerprint=file.fingerprint,
                digest=digest,
                end=tally.end,
                lines=tally.lines,
                torn=tally.torn,
                generation=to.generation,
                last=max(to.last, to.generation),
                time=tally.time,
                large=tally.large_before,
                large_behind=tally.large - tally.large_before,
                doubt=tally.doubt,
                problems=tally.before.listed,
                problem_count=tally.before.count,
                behind=tally.behind.listed,
                behind_count=tally.behind.count,
                beside=beside,
                title=stored.title,
            ),
        )
