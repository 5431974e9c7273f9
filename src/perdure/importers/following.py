"""Following the agents' folders: what came, changed or went since somebody looked last.

Only names, sizes and times are looked at. A file that stays as it is, is not opened.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from perdure.errors import PerdureError
from perdure.importers.archive import Archive
from perdure.importers.files import (
    find_sources,
    fingerprint_of,
    is_gone,
    path_list,
    resolved,
)
from perdure.importers.formats import formats_of
from perdure.importers.report import ImportReport
from perdure.importers.seen import seen, seen_once
from perdure.importers.source import Stored
from perdure.importers.syncing import Progress, places, sync
from perdure.importers.titles import bring_titles
from perdure.model.header import Header
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["Follower", "Whereabouts", "gone_before", "whereabouts"]

_Sight = tuple[object, ...]


class Whereabouts(NamedTuple):
    """Where sessions of an agent are looked for.

    Attributes:
        agent: the program, as people call it.
        folders: the places, whether or not they are there.
        variables: the environment variables that change them.

    """

    agent: str
    folders: tuple[str, ...]
    variables: tuple[str, ...]


def whereabouts(
    formats: Sequence[str] | None = None, *, runtime: Runtime = SYSTEM
) -> list[Whereabouts]:
    """Where sessions are looked for, agent by agent; `formats` as for `sync`.

    Raises:
        InvalidValue: a format is not known.

    """
    home = runtime.environment("HOME") or os.path.expanduser("~")  # noqa: PTH111
    found = []
    for kind in formats_of(formats):
        asked: dict[str, None] = {}

        def environment(name: str, asked: dict[str, None] = asked) -> str | None:
            asked[name] = None
            return runtime.environment(name)

        folders = tuple(kind.folders(environment, home))
        if folders:
            found.append(Whereabouts(kind.agent, folders, tuple(asked)))
    return found


class Follower:
    """Keeps a store up to date with the agents' folders, or with `paths`, pass by pass."""

    def __init__(
        self,
        store: Store,
        paths: Iterable[str | os.PathLike[str]] | None = None,
        *,
        formats: Sequence[str] | None = None,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Nothing is read; `paths` and `formats` as for `sync`.

        Raises:
            InvalidValue: a format is not known; or as `path_list`.

        """
        self._store = store
        self._paths: list[str] | None = None
        if paths is not None:
            self._paths = [resolved(path) for path in path_list(paths)]
        self._formats = formats
        self._runtime = runtime
        self._kinds = formats_of(formats)
        self._seen: dict[str, _Sight] | None = None

    def count(self) -> int:
        """How many files there are to look at now; none is opened."""
        return len(self._look())

    def follow(self, progress: Callable[[Progress], None] | None = None) -> ImportReport:
        """Import what is new since the last pass; the first one looks at everything.

        The report has the files that were looked at: what changed, and its neighbours. One that
        could not be imported is looked at again in the next pass.
        """
        found = self._look()
        now = {path: sight for path, (_, sight) in found.items()}
        changed = self._changed(now)
        if changed is not None and not changed:
            return ImportReport(None, ())
        # A file that nobody named is one to import only if it is recognised: its folder is given.
        roots = {found[path][0] for path in changed or ()}
        report = sync(
            self._store,
            self._paths if changed is None else sorted(roots),
            formats=self._formats,
            progress=progress,
            runtime=self._runtime,
        )
        for source in report.failed:
            # Not as it was, whatever it looks like in the next pass.
            now[source.path] = ()
        if changed is not None and report.states.get("new"):
            # Its title may have been listed before it came, in a file that did not change since.
            bring_titles(self._store, Archive(self._store, self._runtime), self._kinds, found)
        self._seen = now
        return report

    def _changed(self, now: dict[str, _Sight]) -> list[str] | None:
        """The files that are not as they were; None: everything has to be looked at."""
        before = self._seen
        # That something is gone is told by a pass over all places.
        if before is None or before.keys() - now.keys():
            return None
        return [path for path, sight in now.items() if before.get(path) != sight]

    def _look(self) -> dict[str, tuple[str, _Sight]]:
        """Each file by its path: where it is found, and how it looks."""
        roots = self._paths
        if roots is None:
            roots = places(self._formats, runtime=self._runtime)
        found = find_sources(roots, lambda path: any(kind.matches(path) for kind in self._kinds))
        return {
            path: (path if named else os.path.dirname(path), self._sight(path))  # noqa: PTH120
            for path, named, _ in found
        }

    def _sight(self, path: str) -> _Sight:
        """What the system says of a file, and of those beside it that belong to its session."""
        beside = [other for kind in self._kinds for other in kind.companions(path)]
        return (fingerprint_of(path), *((other, fingerprint_of(other)) for other in beside))


def gone_before(store: Store, *, runtime: Runtime = SYSTEM) -> set[str]:
    """The sessions that say that their source is gone, of files of this machine.

    It may be there again; where something is at its path that is known only if the last import left
    a note. Where nothing is, a log is read if no note holds.
    """
    archive = Archive(store, runtime)
    found = set()
    for header in archive.here():
        path = None if header.source is None else header.source.path
        # Who cannot be read is told of when it is imported.
        with suppress(PerdureError):
            if path is not None and (
                _said_gone(store, archive, header) if is_gone(path) else _noted_gone(store, header)
            ):
                found.add(header.id)
    return found


def _noted_gone(store: Store, header: Header) -> bool:
    """Whether the note says so, which costs little; nothing depends on it but what people hear."""
    known = seen_once(store, header.id)
    return known is not None and known.gone


def _said_gone(store: Store, archive: Archive, header: Header) -> bool:
    kept = archive.kept(header.id)
    known = seen(store, kept.session, kept.position)
    if known is not None:
        return known.gone
    source = header.source
    return source is not None and Stored.of(source.format, store.read_from(header.id)).gone
