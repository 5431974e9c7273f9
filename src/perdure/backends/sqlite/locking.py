"""Locks beside the file: `file.db.d/locks/<id>`, those of a namespace in `+<part>/` below that.

Names that begin with `+` never come from an id (see `perdure.model.identity`): they stand for
namespaces, for what is moved to or from the trash, and, with `++`, for folders of other locks.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from perdure.backends.sqlite.medium import Medium
from perdure.durable.files import Folder
from perdure.durable.locks import Holder, Lock, holder
from perdure.errors import PerdureError
from perdure.model.identity import escape_id

__all__ = ["Locks"]

_LOCKS = "locks"


class Locks:
    """The locks of one namespace."""

    def __init__(self, medium: Medium, parts: Sequence[str], *below: str) -> None:
        """Open nothing; `below` are folders in which locks of another kind are kept."""
        self._medium = medium
        self._names = (_LOCKS, *(f"+{escape_id(part)}" for part in parts), *below)

    def _folder(self, *, make: bool = False) -> Folder:
        if make:
            # A file that was copied alone has nothing beside it yet.
            where, beside = os.path.split(self._medium.beside)
            with Folder.open_shared(where) as shared:
                folder = shared.child(beside, make=True)
        else:
            folder = Folder.open(self._medium.beside)
        for name in self._names:
            with folder as above:
                folder = above.child(name, make=make)
        return folder

    def take(self, session: str, name: str, wait: float = 0.0) -> tuple[Lock, Folder]:
        """A lock and the folder that it is in.

        Raises:
            SessionBusy: somebody else holds it.

        """
        folder = self._folder(make=True)
        try:
            runtime = self._medium.runtime
            return Lock(folder, session, name=name, wait=wait, runtime=runtime), folder
        except BaseException:
            folder.close()
            raise

    @contextmanager
    def held(self, session: str, name: str) -> Iterator[None]:
        """Hold a lock that nobody needs afterwards.

        Raises:
            SessionBusy: somebody else holds it.

        """
        lock, folder = self.take(session, name)
        try:
            yield
        finally:
            self.drop(folder, name)
            lock.release()
            folder.close()

    def sweep(self, horizon: int) -> None:
        """Remove the files of locks that nobody holds, if they are older than that (Unix ms)."""
        with suppress(PerdureError, FileNotFoundError), self._folder() as folder:
            for name in folder.names():
                status = folder.stat(name)
                if status is not None and status.st_mtime_ns // 1_000_000 < horizon:
                    with suppress(PerdureError), self.held("?", name):
                        pass

    def drop(self, folder: Folder, name: str) -> None:
        """Remove the file of a lock that this process holds: whoever waits for it looks again."""
        with suppress(PerdureError):
            folder.remove(name)

    def holder(self, name: str) -> Holder | None:
        """Who holds a lock, or None."""
        try:
            with self._folder() as folder:
                return holder(folder, name)
        except FileNotFoundError:
            return None
