"""Bringing a store up to date with the sessions that the agents on this machine keep."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.errors import PerdureError
from perdure.importers.appender import Appender
from perdure.importers.archive import Archive, Kept
from perdure.importers.files import (
    Fingerprint,
    Found,
    find_sources,
    is_gone,
    path_list,
    resolved,
)
from perdure.importers.formats import LineFormat, formats_of
from perdure.importers.incremental import FileImport
from perdure.importers.report import ImportReport, SourceReport
from perdure.importers.seen import Seen, remember, seen
from perdure.importers.source import GONE, Stored
from perdure.importers.tally import Tally
from perdure.importers.titles import bring_titles
from perdure.model.record import Position
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["Progress", "places", "sync"]


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        done: files that were looked at.
        total: files that there are.
        last: report of the last one, or None before the first.

    """

    done: int
    total: int
    last: SourceReport | None


def places(formats: Sequence[str] | None = None, *, runtime: Runtime = SYSTEM) -> list[str]:
    """Where the agents of this machine keep sessions, as far as that is there.

    `formats` are those to look for, by default all that are known.

    Raises:
        InvalidValue: a format is not known.

    """
    return [place for place in _folders(formats_of(formats), runtime) if not is_gone(place)]


def _folders(kinds: Sequence[LineFormat], runtime: Runtime) -> list[str]:
    """Where the agents keep sessions, whether or not that is there."""
    home = runtime.environment("HOME") or os.path.expanduser("~")  # noqa: PTH111
    folders = (kind.folders(runtime.environment, home) for kind in kinds)
    return [*dict.fromkeys(itertools.chain.from_iterable(folders))]


def sync(
    store: Store,
    paths: Iterable[str | os.PathLike[str]] | None = None,
    *,
    formats: Sequence[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[Progress], None] | None = None,
    runtime: Runtime = SYSTEM,
) -> ImportReport:
    """Import what is new in the agents' folders, or in `paths`; each file is recognised.

    What was imported and is not there any more stays, and is marked as gone, in the agents' folders
    or below the `paths`. Sources are only read. What goes wrong with one file stands in its report
    and stops no other. With `dry_run` nothing is stored.

    Raises:
        InvalidValue: a format is not known, or `paths` is a single one.

    """
    kinds = formats_of(formats)
    given = None if paths is None else [resolved(path) for path in path_list(paths)]
    roots = places(formats, runtime=runtime) if given is None else given
    searched = [resolved(each) for each in _folders(kinds, runtime)] if given is None else given
    archive = Archive(store, runtime)
    one = FileImport(store, kinds, archive, runtime, dry=dry_run)
    gone = list(_gone(archive, kinds, searched))
    lost = {path for _, path, _ in gone}
    sources = find_sources(roots, lambda path: any(kind.matches(path) for kind in kinds))
    found = [each for each in sources if each.path not in lost]
    reports: list[SourceReport] = []
    for number, each in enumerate(found):
        if progress is not None:
            progress(Progress(number, len(found), reports[-1] if reports else None))
        reports.append(_superseded(kinds, each) or one.run(each))
    if not dry_run:
        bring_titles(store, archive, kinds, [each.path for each in found])
    now = None if dry_run else runtime.now_ms()
    reports.extend(_mark_gone(store, archive, *each, now=now) for each in gone)
    if progress is not None:
        progress(Progress(len(found), len(found), reports[-1] if reports else None))
    return ImportReport(None, tuple(reports))


def _superseded(kinds: Sequence[LineFormat], found: Found) -> SourceReport | None:
    """The report of a file that another one makes superfluous, or None."""
    for kind in kinds:
        other = kind.superseded_by(found.path)
        if other is not None and not is_gone(other):
            tally = Tally(found.path)
            tally.format = kind.name
            return tally.report(f"{os.path.basename(other)} holds all of it", None)  # noqa: PTH119
    return None


def _gone(
    archive: Archive, kinds: Sequence[LineFormat], searched: Sequence[str]
) -> Iterator[tuple[str, str, str]]:
    """The sessions of files that are not there any more, by their ids, with path and format."""
    names = {kind.name for kind in kinds}
    for header in list(archive.here()):
        source = header.source
        if source is None or source.path is None or source.format not in names:
            continue
        if not any(_below(source.path, place) for place in searched):
            continue
        if is_gone(source.path):
            yield header.id, source.path, source.format


def _below(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _mark_gone(
    store: Store,
    archive: Archive,
    session: str,
    path: str,
    format: str,  # noqa: A002
    *,
    now: int | None,
) -> SourceReport:
    """Write down, once, that a source is gone; its session stays as it is.

    `now` is Unix milliseconds; None: nothing is stored.
    """
    tally = Tally(path)
    tally.format, tally.session, tally.gone = format, session, True
    error: PerdureError | None = None
    try:
        kept = archive.kept(session)
        known = seen(store, kept.session, kept.position)
        if known is not None:
            tally.untouched(known)
        if not (known is not None and known.gone):
            _note(store, kept, path, format, now)
    except PerdureError as reason:
        error = reason
    return tally.report(None, error)


def _note(store: Store, kept: Kept, path: str, format: str, now: int | None) -> None:  # noqa: A002
    stored = Stored.of(format, store.read_from(kept.session))
    if now is None:
        return
    known = seen(store, kept.session, kept.position) or _nothing_seen(stored)
    with Appender(store, kept, {}, dry=False) as to:
        if not stored.gone:
            to.event(GONE, {"path": path, "noticed_at": now}, stored.time)
        known.gone, known.position = True, to.writer().position
        # Also where it was said before: whoever looks next need not read the log for it.
        remember(to.writer(), known)


def _nothing_seen(stored: Stored) -> Seen:
    """What stands for a note where there is none; no source is like it."""
    return Seen(
        position=Position(-1, ""),
        fingerprint=Fingerprint(0, 0, 0, 0, 0),
        digest="",
        end=0,
        lines=stored.lines,
        torn=False,
        generation=stored.generation,
        last=stored.last,
        time=stored.time,
    )
