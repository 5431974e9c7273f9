"""A bundle: a file to hand on, with large content in a folder beside it.

Content is named by its hash, so the sessions of a bundle share the files of it: `name.artifacts/`
beside `name.perdure`. A file comes before the row that names it and goes after the last one.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

from perdure.backends.base import Blob
from perdure.backends.sqlite import content, schema
from perdure.backends.sqlite.backend import SqliteBackend
from perdure.backends.sqlite.holding import SqliteHold
from perdure.durable.appending import ReadFile
from perdure.durable.files import Folder
from perdure.durable.temporary import Gathered
from perdure.errors import InvalidValue, PerdureError

__all__ = ["ARTIFACT_BYTES", "BundleBackend"]

ARTIFACT_BYTES = 256 * 1024
"""Content that is larger stands in a file of its own, where other programs can read it."""

_SUFFIX = ".perdure"
_DIGEST = re.compile("[0-9a-f]{64}")
_BUILDING = re.compile(r"\.[0-9a-f]{16}")
_STALE_MS = 3_600_000


class BundleBackend(SqliteBackend):
    """A session and its sub-agents in one file; as a store it takes any session."""

    scheme = "bundle"
    kind: ClassVar[schema.Kind] = schema.BUNDLE

    def __init__(self, path: str, **options: Any) -> None:
        """As `SqliteBackend`; the name of the file ends in `.perdure`.

        Raises:
            InvalidValue: it does not, so that its artifacts would be those of another bundle.

        """
        super().__init__(path, **options)
        if not os.path.basename(self._medium.path).removesuffix(_SUFFIX) or not path.endswith(
            _SUFFIX
        ):
            reason = f"{path!r:.200} is no name of a bundle"
            raise InvalidValue("location", reason, hint=f"a name that ends in {_SUFFIX}")

    def make(self) -> None:
        super().make()
        self._medium.complete()

    def _artifacts(self, *, make: bool = False) -> Folder:
        """The folder of large content.

        Raises:
            FileNotFoundError: there is none.

        """
        above, name = os.path.split(self._medium.path)
        with Folder.open_shared(above, any_owner=self._medium.untrusted) as folder:
            artifacts = folder.child(f"{name.removesuffix(_SUFFIX)}.artifacts", make=make)
            if make:
                # Whoever made it may have died before it was durable.
                folder.sync()
            return artifacts

    def _keep(self, hold: SqliteHold, blob: Blob, found: Gathered) -> None:
        if blob.size <= ARTIFACT_BYTES:
            super()._keep(hold, blob, found)
            return
        with self._artifacts(make=True) as folder:
            building = f".{self._runtime.token()}"
            folder.create(building, found.parts())
            try:
                # Within it, so that nobody removes the file before its row is there.
                with hold.transaction() as db:
                    number = self.room(db, hold)
                    folder.move(building, folder, blob.digest)
                    folder.sync()
                    content.remove(db, number, blob.digest)
                    content.name(db, number, blob, beside=True)
            except BaseException:
                with suppress(PerdureError):
                    folder.remove(building)
                raise
        hold.number = number

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        found = content.opened(self._medium, self._find(session).number, digest)
        if found is None:
            return None
        place, parts = found
        if place == "here":
            return parts
        with suppress(FileNotFoundError), self._artifacts() as folder:
            return ReadFile(folder, digest).parts()
        return None

    def _swept(self) -> None:
        """Remove the files that no row names any more."""
        query = "SELECT DISTINCT digest FROM blobs WHERE place = 'beside'"
        with (
            suppress(PerdureError, FileNotFoundError),
            self._artifacts() as folder,
            self._medium.transaction() as db,
        ):
            named = {digest for (digest,) in schema.ask(db, query)}
            for name in folder.names():
                # Whatever else stands there is somebody's.
                left = _DIGEST.fullmatch(name) and name not in named
                if left or (_BUILDING.fullmatch(name) and self._old(folder, name)):
                    folder.remove(name)
            folder.sync()

    def _old(self, folder: Folder, name: str) -> bool:
        """Whether a file that was being written has been left."""
        status = folder.stat(name)
        horizon = self._runtime.now_ms() - _STALE_MS
        return status is not None and status.st_mtime_ns // 1_000_000 < horizon
