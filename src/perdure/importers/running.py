"""Importing what somebody names: files of one format, or whatever is recognised."""

import os
from collections.abc import Iterable

from perdure.importers.archive import Archive
from perdure.importers.files import find_sources, path_list
from perdure.importers.formats import format_of
from perdure.importers.incremental import FileImport
from perdure.importers.report import ImportReport
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["import_sessions"]


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
        InvalidValue: the format is not known, or `paths` is a single one, or one of them is empty.

    """
    kind = format_of(format)
    one = FileImport(store, [kind], Archive(store, runtime), runtime)
    found = find_sources(path_list(paths), kind.matches)
    return ImportReport(format, tuple(report for each in found for report in one.run(each)))
