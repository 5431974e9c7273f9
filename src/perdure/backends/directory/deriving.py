"""Derived data of a session: a file for each name in the folder `views`, none of them synced."""

from abc import abstractmethod
from contextlib import suppress

from perdure.backends.base import DERIVED_BYTES_MAX, Backend, Hold, check_derived_name
from perdure.backends.directory.holding import VIEWS, owned
from perdure.durable import derived
from perdure.durable.files import Folder
from perdure.errors import InvalidValue

__all__ = ["DerivingBackend"]


class DerivingBackend(Backend):
    """The half of the directory backend that keeps what can be made again."""

    @abstractmethod
    def _folder(self, session: str) -> Folder: ...

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
