"""Importing one file: each line becomes one event, and only what is new is stored.

What the last import saw is remembered beside the session (`seen`): a file that nobody touched is
not read, and one that only grew is read from there on. Otherwise the file is compared with what is
stored, line by line; where they differ a new generation of lines begins, and what stood there
before stays in the log. Of a path that held another session, or in which nothing can be read any
more, the sessions that it held are told as gone (`absence`).
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from perdure.errors import PerdureError, SessionExists, StaleWriter, StorageUnavailable
from perdure.importers.absence import Absence, Lost
from perdure.importers.appender import Appender, held
from perdure.importers.archive import Archive, Kept
from perdure.importers.beside import found_beside
from perdure.importers.files import (
    Found,
    NoSourceError,
    SourceFile,
    UnreadableSourceError,
    VanishedSourceError,
    fingerprint_of,
)
from perdure.importers.formats import FORMATS, HEAD_LINES, LineFormat, Opening
from perdure.importers.json_lines import WHOLE_BYTES, parse
from perdure.importers.lines import Line
from perdure.importers.report import SourceReport
from perdure.importers.seen import seen
from perdure.importers.source import Source
from perdure.importers.tally import Tally
from perdure.importers.text import SourceText
from perdure.model.header import Header
from perdure.model.header import Source as Origin
from perdure.model.limits import TIME_MS_MAX
from perdure.runtime import Runtime
from perdure.store import Session, Store

__all__ = ["FileImport"]

_TRIES = 10
"""So often a file is looked at while others import it; but for the first time alone with it."""

_EMPTY, _NO_LINE = "empty", "holds no whole line"
_NOTHING = ""
"""Why nothing could be imported of a path at which nothing is."""

_ANOTHER = "the file holds another session now"

_AGAIN = "`perdure restore` brings it back, and after the trash was emptied `perdure forget` does"

_HEAD_BYTES = 8 * 1024 * 1024
"""So much is read of a file to recognise it, in whole lines."""

_WHOLE_HEAD_BYTES = 1024 * 1024
"""So much of that is read whole: values of JSON can take fifty times the room of their text."""


class _Head(NamedTuple):
    """The first lines of a text.

    Attributes:
        lines: they.
        objects: the objects on them; of a document what stands for them.
        document: whether the file is one JSON document, and its lines are no records.

    """

    lines: list[Line]
    objects: list[dict[str, Any]]
    document: bool = False


class _NothingHereError(Exception):
    """At a path is nothing that could be imported. Internal: it becomes a reason in a report."""


class FileImport:
    """Imports files, one after the other, into one store."""

    def __init__(
        self,
        store: Store,
        kinds: Sequence[LineFormat],
        archive: Archive,
        runtime: Runtime,
        *,
        dry: bool = False,
    ) -> None:
        """`kinds` are the formats to try, in this order; with `dry` nothing is stored."""
        self._store = store
        self._kinds = kinds
        self._archive = archive
        self._runtime = runtime
        self._dry = dry
        self._absence = Absence(store, archive, runtime, dry=dry)

    def run(self, found: Found) -> list[SourceReport]:
        """Import one file; whatever is wrong with it ends in its report.

        That of the file comes first, then those of sessions that it held before. Where it holds
        nothing any more there are only these.
        """
        report, nothing = self._settled(found)
        if report.error is not None and nothing is None:
            return [report]
        gone = [self._absence.mark(each) for each in self._lost(found.path, report, nothing)]
        return gone if gone and nothing is not None else [report, *gone]

    def _settled(self, found: Found) -> tuple[SourceReport, str | None]:
        """The report of a file, and why nothing is there that could be imported, or None.

        Somebody else may import the same file right now. Then it is looked at again, by nobody else
        meanwhile: who would wait for his turn each time might never get it.
        """
        report, nothing = self._run(found, Tally(found.path))
        for _ in range(_TRIES - 1):
            if not _came_first(report.error) or report.session is None:
                break
            self._archive.came(report.session)
            report, nothing = self._alone(found, report.session)
        return report, nothing

    def _alone(self, found: Found, session: str) -> tuple[SourceReport, str | None]:
        tally = Tally(found.path)
        try:
            with held(self._store, session) as writer:
                return self._run(found, tally, writer)
        except PerdureError as reason:
            tally.session = session
            return tally.report(None, reason), None

    def _lost(self, path: str, report: SourceReport, nothing: str | None) -> list[Lost]:
        """The sessions that this path held, and does not hold any more."""
        other = "which was deleted here" if report.session is None else report.session
        reason = f"{_ANOTHER}, {other}" if nothing is None else nothing or None
        return [
            Lost(header, path, kind.name, reason)
            for kind in self._kinds
            for header in self._archive.headers_at(kind.name, path)
            if header.id != report.session
        ]

    def _run(
        self, found: Found, tally: Tally, writer: Session | None = None
    ) -> tuple[SourceReport, str | None]:
        error: PerdureError | None = None
        skipped: str | None = None
        nothing: str | None = None
        try:
            if found.refused is not None:
                raise UnreadableSourceError(found.refused)
            if self._untouched(found.path, tally):
                return tally.report(None, None), nothing
            with SourceFile(found.path) as file:
                skipped = self._open(SourceText(file), tally, writer, named=found.named)
        except _NothingHereError as reason:
            skipped, nothing = str(reason), _why(reason)
        except NoSourceError as reason:
            nothing = _why(reason)
            # What merely stands in a folder is passed over; what was named should be a source.
            skipped = None if found.named else str(reason)
            error = _unreadable(found.path, str(reason)) if found.named else None
        except VanishedSourceError as reason:
            nothing = _NOTHING
            skipped = None if found.named else "it was there, and went before it could be read"
            error = _unreadable(found.path, str(reason)) if found.named else None
        except UnreadableSourceError as reason:
            error = _unreadable(found.path, str(reason))
        except SessionExists as reason:
            # Deleted here: an import does not bring it back unasked.
            skipped = f"{reason.message}; {_AGAIN}" if reason.deleted_at is not None else None
            error = reason if skipped is None else None
        except PerdureError as reason:
            error = reason
        except (Exception, SystemExit) as reason:  # noqa: BLE001 - a format may be anybody's
            error = _failing(tally.format, reason)
        return tally.report(skipped, error), nothing

    def _untouched(self, path: str, tally: Tally) -> bool:
        """Whether nothing happened to a file since it was imported: then it is not even opened."""
        now = fingerprint_of(path)
        for kind in self._kinds if now is not None else ():
            for kept in self._archive.at(kind.name, path):
                known = seen(self._store, kept.session, kept.position)
                if known is None or known.fingerprint != now or known.gone:
                    continue
                if found_beside(kind, path, known.beside) == known.beside:
                    tally.format, tally.session = kind.name, kept.session
                    tally.untouched(known)
                    return True
        return False

    def _open(
        self, text: SourceText, tally: Tally, writer: Session | None, *, named: bool
    ) -> str | None:
        """Import an open file; returns why it was skipped, or None.

        Raises:
            _NothingHereError: nothing can be read in it.

        """
        rest = text.lines()
        head = self._head(rest, text.file.path)
        kind = self._recognise(head, text.file.path, named=named)
        if kind is None:
            return f"its first lines open no session of {_names(self._kinds)}"
        tally.format = kind.name
        if not kind.recognises(head.objects):
            tally.doubted(head.lines[0], f"the first lines open no session of {kind.name}")
        opening = kind.opening(head.objects, text.file.path)
        lines = itertools.chain(head.lines, rest)
        now = self._runtime.now_ms()
        source = Source(self._store, kind, text, tally, now=now, document=head.document)
        kept = self._kept(source, opening)
        whole = None if named else self._superseded(kind, text)
        if whole is not None:
            return f"{os.path.basename(whole)} holds all of it"  # noqa: PTH119
        tally.session, tally.fresh = kept.session, kept.position is None
        alone = writer if writer is not None and writer.id == kept.session else None
        header = self._header(kind, text, opening)
        with Appender(self._store, kept, header, dry=self._dry, writer=alone) as to:
            # The lines of a document say of no time.
            to.time = header["created_at"] if head.document else 0
            source.bring(to, kept, lines)
        if tally.found and kept.position is None and not self._dry:
            self._archive.came(kept.session)
        if not tally.found:
            raise _NothingHereError(_NO_LINE)
        return None

    def _head(self, lines: Iterator[Line], path: str) -> _Head:
        """The first lines of a file.

        Raises:
            _NothingHereError: there are none.

        """
        head = _head_of(lines)
        if not head.lines:
            raise _NothingHereError(_EMPTY)
        start = b"".join(line.raw or b"" for line in head.lines)
        for kind in self._kinds:
            records = kind.document(path, start)
            if records is not None:
                return _Head(head.lines, records, document=True)
        return head

    def lacks(self, header: Header) -> str | None:
        """Why the file at its path is not that of an imported session any more; None: it is.

        Nothing is said of what cannot be found out: of a file that cannot be read, or that is a
        link.
        """
        source = header.source
        path = None if source is None else source.path
        if source is None or path is None:
            return None
        try:
            with SourceFile(path) as file:
                return self._lacks(SourceText(file), header.id, source)
        except _NothingHereError as reason:
            return _why(reason)
        except (PerdureError, NoSourceError, UnreadableSourceError):
            return None

    def _lacks(self, text: SourceText, session: str, own: Origin) -> str | None:
        path = text.file.path
        rest = text.lines()
        head = self._head(rest, path)
        if all(line.gap is not None for line in itertools.chain(head.lines, rest)):
            raise _NothingHereError(_NO_LINE)
        kind = self._recognise(head, path, named=False)
        if kind is None:
            return None
        if kind.name != own.format:
            return f"the file holds a session of {kind.agent} now"
        opening = kind.opening(head.objects, path)
        if None in (own.id, opening.id) or own.id == opening.id:
            return None
        source = Source(self._store, kind, text, Tally(path), now=0, document=head.document)
        return None if source.continues(self._archive.kept(session)) else _ANOTHER

    def _recognise(self, head: _Head, path: str, *, named: bool) -> LineFormat | None:
        """The format of a file: what is certain goes first, then what others say is theirs.

        Raises:
            PerdureError: none takes it for its own, and one failed at it.

        """
        failed: list[PerdureError] = []
        objects, others = head.objects, [kind for kind in self._kinds if kind.name not in FORMATS]
        asked: list[tuple[LineFormat, Callable[[LineFormat], bool]]] = [
            *((kind, lambda kind: kind.sure(objects)) for kind in self._kinds),
            *((kind, lambda kind: kind.owns(path)) for kind in others),
            *((kind, lambda kind: kind.recognises(objects)) for kind in self._kinds),
            *((kind, lambda kind: kind.owns(path)) for kind in self._kinds),
        ]
        for kind, ask in asked:
            try:
                if ask(kind):
                    return kind
            except PerdureError as reason:
                failed.append(reason)
        last = self._archive.last_at([kind.name for kind in self._kinds], path)
        for kind in self._kinds:
            if last is not None and last.source is not None and last.source.format == kind.name:
                # What it held says whose it is, or somebody imported it by name.
                return kind
        if failed:
            raise failed[0]
        return self._kinds[0] if named and len(self._kinds) == 1 else None

    def _kept(self, source: Source, opening: Opening) -> Kept:
        format, path = source.kind.name, source.text.file.path  # noqa: A001
        kept = self._archive.find(format, path, opening)
        if kept.position is None:
            for other in self._archive.elsewhere(format, path, opening):
                # One that cannot be read is told of when its own id is there.
                with suppress(PerdureError):
                    if source.continues(other):
                        return other
            self._archive.none_deleted(format, path)
        return kept

    def _superseded(self, kind: LineFormat, text: SourceText) -> str | None:
        """The file beside a new one that holds a session, and all of this one's text; or None."""
        path = text.file.path
        if self._archive.headers_at(kind.name, path):
            return None
        other = kind.superseded_by(path)
        if other is None or not kind.matches(other) or kind.superseded_by(other) is not None:
            # Of two that name each other both are imported.
            return None
        if other == path or os.path.dirname(other) != os.path.dirname(path):  # noqa: PTH120
            return None
        try:
            with SourceFile(other) as file:
                whole = SourceText(file)
                head = self._head(whole.lines(), other)
                known = self._recognise(head, other, named=False)
                return other if known is kind and text.begins(whole) else None
        except (_NothingHereError, NoSourceError, UnreadableSourceError, PerdureError):
            # It is told of in its own report.
            return None

    def _header(self, kind: LineFormat, text: SourceText, opening: Opening) -> dict[str, Any]:
        created_at = opening.created_at
        if created_at is None:
            modified_ms = text.file.fingerprint.modified_ns // 1_000_000
            created_at = min(max(modified_ms, 0), TIME_MS_MAX)
        origin = "subagent" if opening.relation == "subagent" else None
        source = Origin(
            kind.name,
            opening.id,
            self._runtime.host(),
            text.file.path,
            opening.parent,
            opening.relation,
            self._runtime.machine(),
        )
        return {
            "cwd": opening.cwd,
            "created_at": created_at,
            "source": source,
            "origin": origin,
            "depth": int(origin is not None) if opening.depth is None else opening.depth,
        }


def _head_of(source: Iterator[Line]) -> _Head:
    head, size = _Head([], []), 0
    for line in itertools.islice(source, HEAD_LINES):
        head.lines.append(line)
        size += line.size
        if line.raw is not None:
            whole = WHOLE_BYTES if size <= _WHOLE_HEAD_BYTES else 0
            value = parse(line.raw, first=line.number == 1, whole=whole).value
            if value is not None:
                head.objects.append(value)
        if size > _HEAD_BYTES:
            break
    return head


def _why(reason: Exception) -> str:
    """What is at a path where nothing could be imported."""
    said = str(reason)
    known = {_EMPTY: "the file is empty", _NO_LINE: "no whole line can be read in the file"}
    return known.get(said, f"no file is at its path now: {said}")


def _came_first(error: PerdureError | None) -> bool:
    """Whether somebody else stored something while this import looked at the file."""
    return isinstance(error, StaleWriter) or (
        isinstance(error, SessionExists) and error.missing is None
    )


def _names(kinds: Sequence[LineFormat]) -> str:
    names = [kind.name for kind in kinds]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _failing(format: str | None, reason: BaseException) -> PerdureError:  # noqa: A002
    """A format raised what it should not: that costs its file."""
    told = PerdureError(
        f"{format or 'a format'} raised {type(reason).__name__}: {reason}",
        hint="tell whoever made the format",
    )
    told.__cause__ = reason
    return told


def _unreadable(path: str, reason: str) -> StorageUnavailable:
    return StorageUnavailable(path, reason, hint="see that the file is there and can be read")
