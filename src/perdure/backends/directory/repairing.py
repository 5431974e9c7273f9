"""What a repair needs of a session folder: its plan, another log in place, what was there aside.

`repair.json` is the plan of a repair that is under way. It takes its name by a rename.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from perdure.backends.base import Aside, Backend, Hold, check_place
from perdure.backends.directory import asides
from perdure.backends.directory.holding import PLAN, owned
from perdure.durable.appending import ReadFile
from perdure.durable.files import Folder
from perdure.errors import InvalidValue
from perdure.model.header import Header
from perdure.model.record import Record
from perdure.runtime import Runtime

__all__ = ["RepairingBackend"]


class RepairingBackend(Backend):
    """The repairing half of the directory backend."""

    _runtime: Runtime

    @abstractmethod
    def _folder(self, session: str) -> Folder: ...

    def plan(self, session: str) -> bytes | None:
        with self._folder(session) as folder:
            try:
                file = ReadFile(folder, PLAN)
            except FileNotFoundError:
                return None
            return b"".join(file.parts())

    def set_plan(self, hold: Hold, plan: bytes | None) -> None:
        own = owned(hold)
        own.check()
        own.sweep()
        if plan is None:
            own.folder.remove(PLAN)
            own.folder.sync()
        else:
            own.folder.replace(PLAN, plan)

    def replace(
        self, hold: Hold, header: Header, records: Iterable[Record], *, place: str, reason: str
    ) -> None:
        check_place(place)
        owned(hold).replace(header, records, place, reason, self._runtime)

    def put_aside(self, hold: Hold, parts: Iterable[bytes], *, place: str, reason: str) -> None:
        own = owned(hold)
        own.check()
        check_place(place)
        note = {"session": own.session, "time": self._runtime.now_ms(), "reason": reason}
        asides.put(own.folder, place, lambda: parts, note)

    def asides(self, session: str) -> Iterator[Aside]:
        with self._folder(session) as folder:
            return asides.kept(folder)

    def aside(self, session: str, place: str) -> Iterator[bytes] | None:
        try:
            check_place(place)
        except InvalidValue:
            place = ""
        with self._folder(session) as folder:
            return asides.read(folder, place) if place else None
