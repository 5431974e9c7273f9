"""Marks of sessions that are being written, in the tables of a server that keeps the catalog.

As `perdure.store.marks`, whose words hold here as well. A mark is not waited for: the first record
that a writer commits takes it along to the disk.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.databases.postgres.keys import within
from perdure.errors import PerdureError
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store.marks import Mark

__all__ = ["ServerMarks", "is_catalogued"]


class ServerMarks:
    """The marks of one namespace, in `@marks`."""

    def __init__(self, server: Server, namespace: str, runtime: Runtime) -> None:
        """Name them; nothing is connected."""
        self._server = server
        self._namespace = within(namespace)
        self._runtime = runtime

    def set(self, session: str) -> str | None:
        """See `Marks.set`."""
        name = self._runtime.token(16)
        row = (self._namespace, name, values.encode(session))
        query = "INSERT INTO @marks VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        try:
            self._change(lambda work: work.run(query, *row))
        except NotMade:
            try:
                self._server.make()
                self._change(lambda work: work.run(query, *row))
            except (PerdureError, NotMade, Unsure):
                return None
        except (PerdureError, Unsure):
            # The log is the truth; a mark only says where to look first.
            return None
        return name

    def clear(self, name: str | None) -> None:
        """See `Marks.clear`."""
        query = "DELETE FROM @marks WHERE namespace = %s AND name = %s"
        if name is not None:
            with suppress(PerdureError, NotMade, Unsure):
                self._change(lambda work: work.run(query, self._namespace, name))

    def all(self) -> Iterator[Mark]:
        """See `Marks.all`."""
        query = "SELECT name, session FROM @marks WHERE namespace = %s ORDER BY name"
        found = []
        with suppress(PerdureError, NotMade):
            found = self._server.read(lambda work: work.rows(query, self._namespace))
        for name, raw in found:
            yield Mark(name, _told(raw))

    def _change(self, do: Callable[[Work], object]) -> None:
        self._server.change(do, synced=False, repeatable=True)


def is_catalogued(server: Server, namespace: str) -> bool:
    """Whether the catalog of a server knows of a namespace."""
    query = "SELECT 1 FROM @catalog_notes WHERE namespace = %s LIMIT 1"
    try:
        return server.read(lambda work: work.row(query, within(namespace))) is not None
    except NotMade:
        return False
    except PerdureError:
        # Nobody knows: a mark too many costs one look at a log.
        return True


def _told(raw: bytes) -> str | None:
    """The id that a mark says; None: nothing that can be read."""
    try:
        told = values.decode(raw)
    except (PerdureError, ValueError):
        return None
    return told if isinstance(told, str) else None
