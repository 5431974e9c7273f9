"""Importing one file: each line becomes one event, and only what is new is stored.

What the last import saw is remembered beside the session (`seen`): a file that nobody touched is
not read, and one that only grew is read from there on. Otherwise the file is compared with what is
stored, line by line; where they differ a new generation of lines begins, and what stood there
before stays in the log.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from perdure.errors import PerdureError, SessionExists, StaleWriter, StorageUnavailable
from perdure.importers.appender import Appender
from perdure.importers.archive import Archive, Kept
from perdure.importers.beside import found_beside
from perdure.importers.files import (
    Found,
    NoSourceError,
    SourceFile,
    UnreadableSourceError,
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
from perdure.model.header import Source as Origin
from perdure.model.limits import TIME_MS_MAX
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["FileImport"]

_TRIES = 3

_AGAIN = "`perdure restore` brings it back, and after the trash was emptied `perdure forget` does"

_HEAD_BYTES = 8 * 1024 * 1024
"""So much is read of a file to recognise it, in whole lines."""

_WHOLE_HEAD_BYTES = 1024 * 1024
"""So much of that is read whole: values of JSON can take fifty times the room of their text."""


class _Head(NamedTuple):
    """The first lines of a text, and the objects on them."""

    lines: list[Line]
    objects: list[dict[str, Any]]


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

    def run(self, found: Found) -> SourceReport:
        """Import one file; whatever is wrong with it ends in its report.

        Somebody else may import the same file right now: then it is looked at again.
        """
        report = self._run(found, Tally(found.path))
        for _ in range(_TRIES):
            if not isinstance(report.error, SessionExists | StaleWriter):
                break
            if report.session is not None:
                self._archive.came(report.session)
            report = self._run(found, Tally(found.path))
        return report

    def _run(self, found: Found, tally: Tally) -> SourceReport:
        error: PerdureError | None = None
        skipped = None
        try:
            if found.refused is not None:
                raise UnreadableSourceError(found.refused)
            if self._untouched(found.path, tally):
                return tally.report(None, None)
            with SourceFile(found.path) as file:
                skipped = self._open(SourceText(file), tally, named=found.named)
        except NoSourceError as reason:
            # What merely stands in a folder is passed over; what was named should be a source.
            skipped = None if found.named else str(reason)
            error = _unreadable(found.path, str(reason)) if found.named else None
        except UnreadableSourceError as reason:
            error = _unreadable(found.path, str(reason))
        except SessionExists as reason:
            # Deleted here: an import does not bring it back unasked.
            skipped = f"{reason.message}; {_AGAIN}" if reason.deleted_at is not None else None
            error = reason if skipped is None else None
        except PerdureError as reason:
            error = reason
        except Exception as reason:  # noqa: BLE001 - a format may be anybody's
            error = _failing(tally.format, reason)
        return tally.report(skipped, error)

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

    def _open(self, text: SourceText, tally: Tally, *, named: bool) -> str | None:
        """Import an open file; returns why it was skipped, or None."""
        rest = text.lines()
        head = _head_of(rest)
        if not head.lines:
            return "empty"
        kind = self._recognise(head, text.file.path, named=named)
        if kind is None:
            return f"its first lines open no session of {_names(self._kinds)}"
        tally.format = kind.name
        if not kind.recognises(head.objects):
            tally.doubted(head.lines[0], f"the first lines open no session of {kind.name}")
        opening = kind.opening(head.objects, text.file.path)
        lines = itertools.chain(head.lines, rest)
        source = Source(self._store, kind, text, tally, now=self._runtime.now_ms())
        kept = self._kept(source, opening)
        tally.session, tally.fresh = kept.session, kept.position is None
        with Appender(self._store, kept, self._header(kind, text, opening), dry=self._dry) as to:
            source.bring(to, kept, lines)
        if tally.found and kept.position is None and not self._dry:
            self._archive.came(kept.session)
        return None if tally.found else "holds no whole line"

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
        for kind in self._kinds:
            if next(self._archive.at(kind.name, path), None) is not None:
                # Somebody imported it by name.
                return kind
        if failed:
            raise failed[0]
        return self._kinds[0] if named and len(self._kinds) == 1 else None

    def _kept(self, source: Source, opening: Opening) -> Kept:
        format, path = source.kind.name, source.text.file.path  # noqa: A001
        kept = self._archive.find(format, path, opening)
        if kept.position is None:
            for other in self._archive.elsewhere(format, path, opening):
                if source.continues(other):
                    return other
        return kept

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


def _names(kinds: Sequence[LineFormat]) -> str:
    names = [kind.name for kind in kinds]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _failing(format: str | None, reason: Exception) -> PerdureError:  # noqa: A002
    """A format raised what it should not: that costs its file."""
    told = PerdureError(
        f"{format or 'a format'} raised {type(reason).__name__}: {reason}",
        hint="tell whoever made the format",
    )
    told.__cause__ = reason
    return told


def _unreadable(path: str, reason: str) -> StorageUnavailable:
    return StorageUnavailable(path, reason, hint="see that the file is there and can be read")
