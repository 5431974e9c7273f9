"""Which session keeps which source: found by what the headers say, in any store they came to."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from perdure.errors import PerdureError, SessionExists, SessionNotFound
from perdure.importers.formats import Opening
from perdure.importers.stored_lines import FOUND, GONE, place_of, session_id
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store import Store
from perdure.store.notes import deleted_ids

__all__ = ["Archive", "Kept"]


class Kept(NamedTuple):
    """The session of a source.

    Attributes:
        session: its id.
        position: where its log ends, or None if it is not stored.

    """

    session: str
    position: Position | None


class Archive:
    """The imported sessions of a store, by the files that they keep."""

    def __init__(self, store: Store, runtime: Runtime) -> None:
        """Nothing is read; `runtime` says which machine this is."""
        self._store = store
        self._machine = runtime.machine()
        self._host = runtime.host()
        self._headers: dict[tuple[str, str], list[Header]] | None = None
        self._deleted: set[str] | None = None

    def _by_path(self) -> dict[tuple[str, str], list[Header]]:
        if self._headers is None:
            self._headers = {}
            for entry in self._store.list():
                if entry.header is not None:
                    self._note(entry.header, self._headers)
        return self._headers

    def _note(self, header: Header, into: dict[tuple[str, str], list[Header]]) -> None:
        source = header.source
        if source is not None and source.path is not None and header.vocabulary is None:
            into.setdefault((source.format, source.path), []).append(header)

    def here(self) -> Iterator[Header]:
        """The sessions that keep files of this machine."""
        for headers in self._by_path().values():
            for header in headers:
                if self._is_here(header):
                    yield header

    def _is_here(self, header: Header) -> bool:
        return header.source is not None and header.source.machine == self._machine

    def headers_at(self, format: str, path: str) -> list[Header]:  # noqa: A002
        """Those of the sessions that keep, or kept, the file at this path of this machine."""
        return [each for each in self._by_path().get((format, path), ()) if self._is_here(each)]

    def at(self, format: str, path: str) -> Iterator[Kept]:  # noqa: A002
        """The sessions that keep, or kept, the file at this path of this machine."""
        for header in self.headers_at(format, path):
            yield self.kept(header.id)

    def last_at(self, formats: Iterable[str], path: str) -> Header | None:
        """The session that a file of this machine, of one of these formats, held last; or None."""
        known = [header for name in formats for header in self.headers_at(name, path)]
        return self._meant(known, Opening()) if known else None

    def find(self, format: str, path: str, opening: Opening) -> Kept:  # noqa: A002
        """The session that keeps this file, stored or not yet; see also `none_deleted`.

        The first lines of a file may have been incomplete at an earlier import, or may have been
        damaged since: an id that is not known stands for every other.

        Raises:
            SessionExists: it was deleted.
            SessionDamaged: its header cannot be read.

        """
        known = [
            header
            for header in self.headers_at(format, path)
            if header.source is not None
            and (opening.id is None or header.source.id in (None, opening.id))
        ]
        if known:
            return self.kept(self._meant(known, opening).id)
        wanted = session_id(format, path, opening.id, machine=self._machine)
        for id in dict.fromkeys((wanted, session_id(format, path, machine=self._machine))):
            self._not_deleted(id)
        return Kept(wanted, None)

    def none_deleted(self, format: str, path: str) -> None:  # noqa: A002
        """Make sure that no session that kept the file at this path was deleted, by whatever id.

        What an agent calls a session can change while its file grows, or go from its first lines.

        Raises:
            SessionExists: one was.

        """
        if self._deleted is None:
            self._deleted = deleted_ids(self._store)
        end = f":{place_of(self._machine, path)}"
        for id in sorted(self._deleted):
            if id.startswith(f"{format}:") and id.endswith(end):
                self._not_deleted(id)

    def _not_deleted(self, id: str) -> None:
        try:
            self._store.read_from(id)
        except SessionNotFound as missing:
            if missing.deleted_at is not None:
                raise SessionExists(id, deleted_at=missing.deleted_at) from None

    def _meant(self, known: list[Header], opening: Opening) -> Header:
        """The one of this very id; of several that the path has held, the one it held last."""
        own = [
            header
            for header in known
            if opening.id is not None
            and header.source is not None
            and header.source.id == opening.id
        ]
        known = own or known
        return known[0] if len(known) == 1 else max(known, key=self._held_until)

    def _held_until(self, header: Header) -> tuple[bool, int]:
        """Whether the path holds it still, and else when it was noticed that it does not."""
        still, until = True, 0
        # What is damaged is told of when it is imported.
        with suppress(PerdureError):
            for event in self._store.read_from(header.id, 0, [GONE, FOUND]):
                at = event.data.get("noticed_at") if isinstance(event.data, dict) else None
                if isinstance(at, int):
                    still, until = event.type == FOUND, at
        return still, until

    def elsewhere(self, format: str, path: str, opening: Opening) -> list[Kept]:  # noqa: A002
        """Sessions that may keep this file all the same, if everything they hold stands in it.

        What the first lines say of a file that is being written may change; and a machine of the
        same name may be this one, installed anew.
        """
        return [
            self.kept(header.id)
            for header in self._by_path().get((format, path), ())
            if header.source is not None
            and (
                self._is_here(header)
                or (header.source.host, header.source.id) == (self._host, opening.id)
            )
        ]

    def came(self, id: str) -> None:
        """Take note of a session that was imported now."""
        try:
            header = self._store.inspect(id).header
        except PerdureError:
            return
        if header is not None and header not in self._at(header):
            self._note(header, self._by_path())

    def _at(self, header: Header) -> list[Header]:
        source = header.source
        path = "" if source is None else source.path or ""
        return self._by_path().get(("" if source is None else source.format, path), [])

    def kept(self, id: str) -> Kept:
        """A stored session."""
        return Kept(id, self._store.inspect(id).position)
