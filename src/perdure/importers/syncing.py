"""Bringing a store up to date with the sessions that the agents on this machine keep."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from perdure.importers.absence import Absence
from perdure.importers.archive import Archive
from perdure.importers.files import (
    find_sources,
    is_gone,
    path_list,
    resolved,
)
from perdure.importers.formats import LineFormat, formats_of
from perdure.importers.incremental import FileImport
from perdure.importers.report import ImportReport, SourceReport
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

    Files that are not read are among them: a sync tells of those. `formats` are those to look for,
    by default all that are known.

    Raises:
        InvalidValue: a format is not known.

    """
    kinds = formats_of(formats)
    folders = [place for place in _folders(kinds, runtime) if not is_gone(place)]
    return [*dict.fromkeys((*folders, *_unread(kinds, runtime)))]


def _folders(kinds: Sequence[LineFormat], runtime: Runtime) -> list[str]:
    """Where the agents keep sessions, whether or not that is there."""
    home = _home(runtime)
    folders = (folder for kind in kinds for folder in kind.folders(runtime.environment, home))
    return [*dict.fromkeys(folders)]


def _unread(kinds: Sequence[LineFormat], runtime: Runtime) -> dict[str, tuple[str, str]]:
    """The files of agents that are not read, with the format that knows them, and why."""
    home = _home(runtime)
    return {
        resolved(path): (kind.name, reason)
        for kind in kinds
        for path, reason in kind.unread(runtime.environment, home).items()
    }


def _home(runtime: Runtime) -> str:
    return runtime.environment("HOME") or os.path.expanduser("~")  # noqa: PTH111


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
    or below the `paths`: also where its path holds nothing, or another session. Sources are only
    read. What goes wrong with one file stands in its report and stops no other. With `dry_run`
    nothing is stored.

    Raises:
        InvalidValue: a format is not known, or `paths` is a single one, or one of them is empty.

    """
    kinds = formats_of(formats)
    given = None if paths is None else [resolved(path) for path in path_list(paths)]
    roots = places(formats, runtime=runtime) if given is None else given
    searched = [resolved(each) for each in _folders(kinds, runtime)] if given is None else given
    archive = Archive(store, runtime)
    one = FileImport(store, kinds, archive, runtime, dry=dry_run)
    absence, unread = Absence(store, archive, runtime, dry=dry_run), _unread(kinds, runtime)
    gone = list(absence.below(kinds, searched))
    lost = {each.path for each in gone}
    sources = find_sources(
        roots, lambda path: path in unread or any(kind.matches(path) for kind in kinds)
    )
    found = [each for each in sources if each.path not in lost]
    reports: list[SourceReport] = []
    others: list[SourceReport] = []
    for number, each in enumerate(found):
        if progress is not None:
            progress(Progress(number, len(found), reports[-1] if reports else None))
        skipped = _passed_over(unread, each.path)
        # What follows the report of the file itself is of sessions that it does not hold any more.
        report, *more = [skipped] if skipped is not None else one.run(each)
        reports.append(report)
        others += more
    if not dry_run:
        bring_titles(store, archive, kinds, [each.path for each in found])
    reports += others
    reports += [absence.mark(each) for each in gone]
    if progress is not None:
        progress(Progress(len(found), len(found), reports[-1] if reports else None))
    return ImportReport(None, tuple(reports))


def _passed_over(unread: Mapping[str, tuple[str, str]], path: str) -> SourceReport | None:
    """The report of a file of an agent that is not read, or None."""
    return _skipped(path, *unread[path]) if path in unread else None


def _skipped(path: str, format: str, reason: str) -> SourceReport:  # noqa: A002
    tally = Tally(path)
    tally.format = format
    return tally.report(reason, None)
