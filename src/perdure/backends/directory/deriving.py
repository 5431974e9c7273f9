"""Derived data of a session: a file for each name in the folder `views`, none of them synced.

And what those need who keep derived data of all sessions together.
"""

import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from perdure.backends.base import DERIVED_BYTES_MAX, Backend, Entry, Hold, check_derived_name
from perdure.backends.directory.holding import LAYOUTS, VIEWS, owned
from perdure.backends.directory.root import Space
from perdure.durable import derived
from perdure.durable.files import Folder
from perdure.errors import InvalidValue
from perdure.model.identity import unescape_name
from perdure.runtime import SYSTEM

__all__ = ["DerivingBackend"]


_TICK_MS = 50
"""Two changes of a folder in one tick of the kernel's clock (at most 10 ms) show the same time."""


class DerivingBackend(Backend):
    """The half of the directory backend that keeps what can be made again."""

    _space: Space

    @abstractmethod
    def _folder(self, session: str) -> Folder: ...

    @abstractmethod
    def _entry(self, sessions: Folder, name: str) -> Entry | None: ...

    @abstractmethod
    def _revision(self, s: os.stat_result) -> str: ...

    @property
    def beside(self) -> str:
        return self._space.root.path

    def revisions(self) -> Iterator[tuple[str, str]]:
        with suppress(FileNotFoundError), self._space.sessions() as sessions:
            for name in sessions.names():
                id, status = unescape_name(name), _log_status(sessions, name)
                if id is not None and status is not None:
                    yield id, self._revision(status)
                elif (entry := self._entry(sessions, name)) is not None:
                    yield entry.id, entry.revision

    def arrangement(self) -> str | None:
        try:
            with self._space.sessions() as sessions:
                status = os.fstat(sessions.fd)
        except FileNotFoundError:
            return ""
        # The file system's clock is the machine's, whatever clock was injected.
        if SYSTEM.now_ms() - status.st_ctime_ns // 1_000_000 <= _TICK_MS:
            return None
        return f"{status.st_dev}:{status.st_ino}:{status.st_mtime_ns}:{status.st_ctime_ns}"

    def derived(self, session: str, name: str) -> bytes | None:
        check_derived_name(name)
        with (
            self._folder(session) as folder,
            suppress(FileNotFoundError),
            folder.child(VIEWS) as views,
        ):
            return derived.read(views, name, DERIVED_BYTES_MAX)
        return None

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        own = owned(hold)
        own.check()
        check_derived_name(name)
        with own.folder.child(VIEWS, make=True, sync=False) as views:
            if at is None:
                derived.put(views, name, data)
                return
            size = derived.append(views, name, data, at)
        if size != at:
            raise InvalidValue("at", f"{size} bytes are kept, not {at}")

    def drop_derived(self, hold: Hold, name: str) -> None:
        own = owned(hold)
        own.check()
        check_derived_name(name)
        with suppress(FileNotFoundError), own.folder.child(VIEWS) as views:
            views.remove(name)


def _log_status(sessions: Folder, name: str) -> os.stat_result | None:
    """The status of a session's log, by a look at the name alone; None if there is no such file."""
    for layout in LAYOUTS.values():
        path = f"{name}/{layout.file_name}"
        with suppress(OSError):
            return os.stat(path, dir_fd=sessions.fd, follow_symlinks=False)
    return None
