"""Titles that an agent keeps apart from its sessions: brought into the sessions that they name."""

from collections.abc import Iterable, Sequence

from perdure.errors import PerdureError
from perdure.importers.appender import Appender
from perdure.importers.archive import Archive, Kept
from perdure.importers.files import NoSourceError, SourceFile, UnreadableSourceError
from perdure.importers.formats import LineFormat
from perdure.importers.json_lines import parse
from perdure.importers.seen import remember, seen
from perdure.importers.source import TITLED, Stored
from perdure.importers.text import SourceText
from perdure.store import Store

__all__ = ["bring_titles"]


def bring_titles(
    store: Store, archive: Archive, kinds: Sequence[LineFormat], paths: Iterable[str]
) -> None:
    """Give imported sessions the titles that lists among these files have for them.

    A title is written down where it is not the one that was brought last. What goes wrong with one
    session stops no other, and shows when it is imported.
    """
    found: dict[tuple[str, str], str] = {}
    for path in paths:
        for kind in kinds:
            if kind.lists(path):
                found |= {(kind.name, id): title for id, title in _listed(kind, path).items()}
    if not found:
        return
    for header in list(archive.here()):
        source = header.source
        title = None if source is None else found.get((source.format, source.id or ""))
        if source is not None and title is not None:
            try:
                _bring(store, archive.kept(header.id), source.format, title)
            except PerdureError:
                continue


def _listed(kind: LineFormat, path: str) -> dict[str, str]:
    """The titles of a list, the last one for each id."""
    titles: dict[str, str] = {}
    try:
        with SourceFile(path) as file:
            for line in SourceText(file).lines():
                value = None if line.raw is None else parse(line.raw, first=line.number == 1).value
                titled = None if value is None else kind.titled(value)
                if titled is not None:
                    titles[titled[0]] = titled[1]
    except (NoSourceError, UnreadableSourceError):
        # It is reported as every source is.
        pass
    return titles


def _bring(store: Store, kept: Kept, format: str, title: str) -> None:  # noqa: A002
    known = seen(store, kept.session, kept.position)
    before = Stored.of(format, store.read_from(kept.session)) if known is None else known
    if title == before.title:
        return
    with Appender(store, kept, {}, dry=False) as to:
        to.event(TITLED, {"title": title}, before.time)
        position = to.position
        if known is not None and position is not None:
            known.title, known.position = title, position
            remember(to.writer(), known)
