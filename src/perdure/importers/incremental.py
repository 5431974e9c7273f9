"""Importing files of lines: each line becomes one event, and only what is new is stored.

A source that was imported before is compared with what is stored, both read once from the start;
the first line that has no stored counterpart is where appending begins. Nothing is appended before
everything stored was found in the source again, so a file whose content was exchanged changes
nothing.
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Self

from perdure.errors import (
    InvalidValue,
    KeyConflict,
    PerdureError,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StorageUnavailable,
)
from perdure.importers import compressed, lines
from perdure.importers.files import (
    Found,
    NoSourceError,
    SourceFile,
    UnreadableSourceError,
    find_sources,
)
from perdure.importers.formats import LineFormat, Opening, format_of
from perdure.importers.json_lines import parse
from perdure.importers.lines import Line
from perdure.importers.report import PROBLEMS_MAX, ImportReport, SourceProblem, SourceReport
from perdure.importers.stored_lines import StoredLine, key_of, session_id, stored_lines
from perdure.model.event import TYPE_PATTERN, Event, draft
from perdure.model.header import Source
from perdure.model.limits import RECORD_BYTES_MAX, TIME_MS_MAX
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Session, Store

__all__ = ["import_sessions"]

_BATCH_LINES = 512
_BATCH_BYTES = 1024 * 1024
_TYPE = re.compile(TYPE_PATTERN)
_SURELY_FITS = RECORD_BYTES_MAX // 8
"""Lines up to this many bytes fit in a record: in JSON a byte takes at most six."""


def import_sessions(
    store: Store,
    format: str,  # noqa: A002
    paths: Iterable[str | os.PathLike[str]],
    *,
    runtime: Runtime = SYSTEM,
) -> ImportReport:
    """Store every line of the files that `paths` name, or that stand in folders they name.

    Importing again adds what is new. Sources are only read. What goes wrong with one file stands
    in its report and stops no other.

    Raises:
        InvalidValue: the format is not known.

    """
    kind = format_of(format)
    found = find_sources((os.fspath(path) for path in paths), kind.matches)
    return ImportReport(format, tuple(_import_file(store, kind, each, runtime) for each in found))


def _import_file(store: Store, kind: LineFormat, found: Found, runtime: Runtime) -> SourceReport:
    """Import one file; whatever is wrong with it ends in its report."""
    tally = _Tally(found.path)
    error: PerdureError | None = None
    skipped = None
    try:
        if found.refused is not None:
            raise UnreadableSourceError(found.refused)
        with SourceFile(found.path) as file:
            skipped = _import_open(store, kind, file, tally, runtime, named=found.named)
    except NoSourceError as reason:
        # What merely stands in a folder is passed over; what was named should have been a source.
        skipped = None if found.named else str(reason)
        error = _unreadable(found.path, str(reason)) if found.named else None
    except UnreadableSourceError as reason:
        error = _unreadable(found.path, str(reason))
    except SessionExists as reason:
        # Deleted here: an import does not bring it back unasked.
        skipped = reason.message if reason.deleted_at is not None else None
        error = reason if skipped is None else None
    except PerdureError as reason:
        error = reason
    return tally.report(skipped, error)


def _unreadable(path: str, reason: str) -> StorageUnavailable:
    return StorageUnavailable(path, reason, hint="see that the file is there and can be read")


def _import_open(
    store: Store,
    kind: LineFormat,
    file: SourceFile,
    tally: "_Tally",
    runtime: Runtime,
    *,
    named: bool,
) -> str | None:
    """Import an open file; returns why it was skipped, or None."""
    source = _lines(file)
    first = next(source, None)
    if first is None:
        return "empty"
    value = parse(first.raw, first=True).value if first.raw is not None else None
    opening = kind.opening(value) if value is not None else None
    if opening is None:
        reason = f"the first line opens no session of {kind.name}"
        if not named and not kind.owns(os.path.basename(file.path)):  # noqa: PTH119
            return reason
        tally.note(first, reason)
        opening = Opening()
    kept = _find_session(store, kind, file.path, opening)
    tally.session = kept.session
    with _Appender(store, kind, kept) as appender:
        appender.describe(file, opening, runtime)
        _compare_and_append(itertools.chain((first,), source), kind, kept, appender, tally)
    return None if tally.found else "holds no whole line"


def _lines(file: SourceFile) -> Iterator[Line]:
    """The lines of a file, compressed or not: its first bytes decide, its name only in doubt."""
    head = file.read(0, 8)
    # A file whose first frame lost its magic number still does not begin as JSON does.
    doubtful = file.path.endswith((".zst", ".zstd")) and head[:1] not in b"{[ \t\r\n\xef"
    squeezed = compressed.looks_compressed(head) or doubtful
    return lines.split(compressed.frames(file) if squeezed else lines.plain(file))


# --- what is stored already -----------------------------------------------------------------------


class _Kept:
    """The session of a source, and what it holds.

    Attributes:
        session: its id.
        exists: whether it is stored.
        last_seq: sequence number of its last event that was read, -1 before.

    """

    def __init__(self, session: str, events: Iterator[Event] | None) -> None:
        self.session = session
        self.exists = events is not None
        self.last_seq = -1
        self._events = events or iter(())

    def lines(self) -> Iterator[StoredLine]:
        return stored_lines(self._counted())

    def _counted(self) -> Iterator[Event]:
        for event in self._events:
            self.last_seq = event.seq
            yield event


def _find_session(store: Store, kind: LineFormat, path: str, opening: Opening) -> _Kept:
    """The session that keeps this file.

    Its header may have been incomplete or readable only at an earlier import; what was stored
    then is found by the name of the file, or by the path in the header.
    """
    wanted = session_id(kind.name, path, opening.id)
    names = [wanted, session_id(kind.name, path)]
    if opening.id is None:
        names += [
            entry.id
            for entry in store.list()
            if entry.header is not None
            and entry.header.source is not None
            and (entry.header.source.format, entry.header.source.path) == (kind.name, path)
        ]
    for name in names:
        try:
            return _Kept(name, store.read_from(name))
        except SessionNotFound as missing:
            if missing.deleted_at is not None:
                raise SessionExists(name, deleted_at=missing.deleted_at) from None
    return _Kept(wanted, None)


def _compare_and_append(
    source: Iterable[Line],
    kind: LineFormat,
    kept: _Kept,
    appender: "_Appender",
    tally: "_Tally",
) -> None:
    """Find what is stored in the source again, then append what is behind it."""
    stored = kept.lines()
    expected = next(stored, None)
    for line in source:
        if line.gap is not None:
            tally.note(line, line.gap, fragment=True)
            continue
        tally.found += 1
        text = _text(line)
        if text is None or line.raw is None:
            tally.left_out += 1
            tally.note(line, f"{line.size} bytes fit in no record; the line is left out")
            continue
        parsed = parse(line.raw, first=line.number == 1)
        if parsed.reason is not None:
            tally.note(line, parsed.reason)
        if expected is not None:
            if (expected.offset, expected.raw) == (line.offset, line.raw):
                tally.unchanged += 1
                appender.follow(expected)
                expected = next(stored, None)
                continue
            if next(stored, None) is not None or not _continues(expected, line):
                raise _replaced(kept.session, expected, tally.path, line.number)
            appender.generation = expected.generation + 1
            expected = None
        appender.add(line.offset, text, *_type_and_time(kind, parsed.value))
        tally.new = appender.stored
    if expected is not None and (not expected.torn or next(stored, None) is not None):
        raise _replaced(kept.session, expected, tally.path, tally.found + 1)
    appender.flush()
    tally.new = appender.stored


def _continues(stored: StoredLine, line: Line) -> bool:
    """Whether `line` stands where an earlier import found the source's last line unfinished."""
    return stored.torn and stored.offset == line.offset


def _replaced(session: str, stored: StoredLine, path: str, number: int) -> KeyConflict:
    event = stored.event
    error = KeyConflict(session, type=event.type, key=str(event.key), seq=event.seq)
    error.message = (
        f"{path} was replaced: line {number} is not what event {event.seq} of session "
        f"{session!r} keeps of it"
    )
    error.hint = "nothing was changed; move the file to another path to import it as a new session"
    return error


def _text(line: Line) -> str | None:
    """The line as the data of an event, or None if no record holds it."""
    if line.raw is None:
        return None
    # Bytes that are no UTF-8 become lone surrogates, which the log keeps and which turn back.
    text = line.raw.decode("utf-8", "surrogateescape")
    if line.size > _SURELY_FITS:
        try:
            draft("x", text, time=0)
        except InvalidValue:
            return None
    return text


def _type_and_time(kind: LineFormat, value: dict[str, Any] | None) -> tuple[str, int | None]:
    record, time = kind.record(value) if value is not None else (None, None)
    named = f"{kind.name}/{record}"
    if not record or _TYPE.match(named) is None:
        named = f"{kind.name}/record"
    return named, time


# --- what is stored now ---------------------------------------------------------------------------


class _Appender:
    """Appends lines in batches; the writer is opened with the first one that is new.

    Attributes:
        generation: of the lines that follow.
        stored: lines that were appended durably.

    """

    def __init__(self, store: Store, kind: LineFormat, kept: _Kept) -> None:
        self._store = store
        self._kind = kind
        self._kept = kept
        self._header: dict[str, Any] = {}
        self._writer: Session | None = None
        self._batch: list[dict[str, Any]] = []
        self._batch_bytes = 0
        self._time = 0
        self.generation = 0
        self.stored = 0

    def describe(self, file: SourceFile, opening: Opening, runtime: Runtime) -> None:
        """Say what the header holds, should the session be new."""
        created_at = opening.created_at
        if created_at is None:
            created_at = min(max(file.modified_ms, 0), TIME_MS_MAX)
        self._header = {
            "cwd": opening.cwd,
            "created_at": created_at,
            "source": Source(self._kind.name, opening.id, runtime.host(), file.path),
        }

    def follow(self, stored: StoredLine) -> None:
        """Take note of a line that is stored already."""
        self._time = stored.event.time
        self.generation = stored.generation

    def add(self, offset: int, text: str, type: str, time: int | None) -> None:  # noqa: A002
        """Append a line; a line without a time has that of the line before."""
        self._time = self._time if time is None else time
        key = key_of(self.generation, offset)
        self._batch.append({"type": type, "key": key, "time": self._time, "data": text})
        self._batch_bytes += len(text)
        if len(self._batch) >= _BATCH_LINES or self._batch_bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Make what was added durable."""
        if self._batch:
            if self._writer is None:
                self._writer = self._open()
            self._writer.append_many(self._batch)
            self.stored += len(self._batch)
            self._batch, self._batch_bytes = [], 0

    def _open(self) -> Session:
        kept = self._kept
        if not kept.exists:
            return self._store.create(kept.session, vocabulary=None, **self._header)
        writer = self._store.writer(kept.session)
        if writer.position.seq != kept.last_seq:
            writer.close()
            raise StaleWriter(kept.session, "somebody else appended while it was compared")
        return writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._writer is not None:
            self._writer.close()


# --- the report -----------------------------------------------------------------------------------


class _Tally:
    """Counts and problems of one file while it is imported."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.session: str | None = None
        self.found = self.new = self.unchanged = self.left_out = 0
        self._problems: list[SourceProblem] = []
        self._problem_count = 0

    def note(self, line: Line, reason: str, *, fragment: bool = False) -> None:
        """Report what is wrong at `line`; `fragment` says that its text is not kept."""
        if fragment and line.size:
            reason += f"; a fragment of {line.size} bytes of a line in front of it is left out"
        self._problem_count += 1
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(SourceProblem(self.path, line.number, line.offset, reason))

    def report(self, skipped: str | None, error: PerdureError | None) -> SourceReport:
        """The finished report; a file that was skipped has no session."""
        return SourceReport(
            self.path,
            None if skipped is not None else self.session,
            self.found,
            self.new,
            self.unchanged,
            self.left_out,
            tuple(self._problems),
            self._problem_count,
            skipped,
            error,
        )
