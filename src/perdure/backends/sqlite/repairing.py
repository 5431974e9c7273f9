"""What a repair needs of an SQLite file: its plan, another log in place, what was there aside."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import apsw

from perdure.backends.base import Aside, Backend, Hold, check_place
from perdure.backends.sqlite import schema, trash
from perdure.backends.sqlite.holding import keep_aside, own
from perdure.backends.sqlite.medium import Medium
from perdure.backends.sqlite.reading import Found
from perdure.backends.sqlite.snapshots import Snapshot
from perdure.durable.temporary import gathered
from perdure.model.header import Header
from perdure.model.record import Record
from perdure.runtime import Runtime

__all__ = ["RepairingBackend"]

T = TypeVar("T")


class RepairingBackend(Backend):
    """The repairing half of the SQLite backend."""

    _medium: Medium
    _runtime: Runtime

    @abstractmethod
    def _find(self, session: str) -> Found: ...

    @abstractmethod
    def _ask(self, question: Callable[[apsw.Connection], T], nothing: T) -> T: ...

    def plan(self, session: str) -> bytes | None:
        return self._find(session).plan

    def set_plan(self, hold: Hold, plan: bytes | None) -> None:
        mine = own(hold)
        mine.check()
        with mine.transaction() as db:
            db.execute("UPDATE sessions SET plan = ? WHERE number = ?", (plan, mine.number))

    def replace(
        self, hold: Hold, header: Header, records: Iterable[Record], *, place: str, reason: str
    ) -> None:
        check_place(place)
        own(hold).replace(header, records, place, reason)

    def put_aside(self, hold: Hold, parts: Iterable[bytes], *, place: str, reason: str) -> None:
        mine = own(hold)
        mine.check()
        check_place(place)
        with gathered(parts, self._medium.beside) as found, mine.transaction() as db:
            now = self._runtime.now_ms()
            keep_aside(db, mine.number, found.parts(), place=place, reason=reason, now=now)

    def asides(self, session: str) -> Iterator[Aside]:
        number, nothing = self._find(session).number, list[Aside]()
        return iter(self._ask(lambda db: trash.kept(db, number), nothing))

    def aside(self, session: str, place: str) -> Iterator[bytes] | None:
        number = self._find(session).number
        query = "SELECT log FROM asides WHERE session = ? AND place = ?"
        nothing: list[tuple[Any, ...]] = []
        name = (number, schema.cell(place))
        kinds = ((int, type(None)),)
        found = self._ask(lambda db: schema.ask(db, query, name, kinds), nothing)
        if not found:
            return None
        snapshot, log = Snapshot(self._medium), found[0][0]
        if log is None:
            return trash.kept_parts(snapshot, number, place)
        return trash.kept_log(snapshot, log)
