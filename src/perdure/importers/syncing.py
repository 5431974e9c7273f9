"""Bringing a store up to date with the sessions that the agents on this machine keep."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.errors import PerdureError
from perdure.importers.appender import Appender
from perdure.importers.archive import Archive, Kept
from perdure.importers.files import Found, find_sources, is_gone
from perdure.importers.formats import LineFormat, format_names, format_of
from perdure.importers.incremental import FileImport
from perdure.importers.report import ImportReport, SourceReport
from perdure.importers.seen import remember, seen
from perdure.importers.source import GONE, Stored
from perdure.importers.tally import Tally
from perdure.importers.titles import bring_titles
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
    home = runtime.environment("HOME") or os.path.expanduser("~")  # noqa: PTH111
    found: dict[str, None] = {}
    for kind in _kinds(formats):
        for place in kind.folders(runtime.environment, home):
            if not is_gone(place):
                found[place] = None
    return [*found]


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
        InvalidValue: a format is not known.

    """
    kinds = _kinds(formats)
    given = None if paths is None else [os.path.abspath(path) for path in paths]  # noqa: PTH100
    roots = places(formats, runtime=runtime) if given is None else given
    archive = Archive(store, runtime.host())
    one = FileImport(store, kinds, archive, runtime, dry=dry_run)
    gone = list(_gone(archive, kinds, given))
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
    reports.extend(_mark_gone(store, archive, *each, dry=dry_run) for each in gone)
    if progress is not None:
        progress(Progress(len(found), len(found), reports[-1] if reports else None))
    return ImportReport(None, tuple(reports))


def _kinds(formats: Sequence[str] | None) -> list[LineFormat]:
    return [format_of(name) for name in (format_names() if formats is None else formats)]


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
    archive: Archive, kinds: Sequence[LineFormat], given: Sequence[str] | None
) -> Iterator[tuple[str, str, str]]:
    """The sessions of files that are not there any more, by their ids, with path and format."""
    names = {kind.name for kind in kinds}
    for header in list(archive.here()):
        source = header.source
        if source is None or source.path is None or source.format not in names:
            continue
        if given is not None and not any(_below(source.path, place) for place in given):
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
    dry: bool,
) -> SourceReport:
    """Write down, once, that a source is gone; its session stays as it is."""
    tally = Tally(path)
    tally.format, tally.session, tally.gone = format, session, True
    error: PerdureError | None = None
    try:
        kept = archive.kept(session)
        known = seen(store, kept.session, kept.position)
        if known is not None:
            tally.untouched(known)
        if not (known is not None and known.gone):
            _note(store, kept, path, dry=dry)
    except PerdureError as reason:
        error = reason
    return tally.report(None, error)


def _note(store: Store, kept: Kept, path: str, *, dry: bool) -> None:
    stored = Stored.of(store.read_from(kept.session))
    if stored.gone or dry:
        return
    known = seen(store, kept.session, kept.position)
    with Appender(store, kept, {}, dry=False) as to:
        to.event(GONE, {"path": path}, stored.time)
        position = to.position
        if known is not None and position is not None:
            known.gone, known.position = True, position
            remember(to.writer(), known)
