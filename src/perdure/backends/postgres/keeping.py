"""Beside the log: what a repair sets aside and plans, and what is derived."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from perdure.backends.base import (
    DERIVED_BYTES_MAX,
    Aside,
    Backend,
    Hold,
    check_derived_name,
    check_place,
)
from perdure.backends.postgres import content, logs
from perdure.backends.postgres.holding import own
from perdure.backends.postgres.reading import Found, kept
from perdure.databases.postgres import Server, Work
from perdure.durable.temporary import gathered
from perdure.errors import InvalidValue
from perdure.model.header import Header
from perdure.model.record import Record
from perdure.runtime import Runtime

__all__ = ["KeepingBackend"]

_PART_BYTES = 1024 * 1024
_DERIVED = "FROM @derived WHERE namespace = %s AND session = %s AND name = %s"


class KeepingBackend(Backend):
    """The half of the backend that a log does not need."""

    _server: Server
    _runtime: Runtime
    _namespace: str

    @abstractmethod
    def _find(self, session: str) -> Found: ...

    # --- repair ----------------------------------------------------------------------------------

    def plan(self, session: str) -> bytes | None:
        plan = self._find(session).plan
        return None if plan is None else bytes(plan)

    def set_plan(self, hold: Hold, plan: bytes | None) -> None:
        mine = own(hold)
        mine.check()
        mine.change(
            lambda work: work.run(
                "UPDATE @sessions SET plan = %s WHERE namespace = %s AND session = %s",
                plan,
                *mine.mine,
            )
        )

    def replace(
        self, hold: Hold, header: Header, records: Iterable[Record], *, place: str, reason: str
    ) -> None:
        check_place(place)
        logs.replace(own(hold), header, records, place, reason)

    def put_aside(self, hold: Hold, parts: Iterable[bytes], *, place: str, reason: str) -> None:
        mine = own(hold)
        mine.check()
        check_place(place)
        with gathered(parts, None) as found:
            now = self._runtime.now_ms()
            mine.change(
                lambda work: logs.keep_aside(
                    work, mine.mine, found.parts(), place=place, reason=reason, now=now
                )
            )

    def asides(self, session: str) -> Iterator[Aside]:
        mine = self._find(session).mine
        return iter(self._server.read(lambda work: kept(work, mine)))

    def aside(self, session: str, place: str) -> Iterator[bytes] | None:
        mine = self._find(session).mine
        query = "SELECT log FROM @asides WHERE namespace = %s AND session = %s AND place = %s"
        if "\0" in place or not place.isascii():
            return None
        found = self._server.read(lambda work: work.row(query, *mine, place))
        if found is None:
            return None
        if found[0] is None:
            return content.aside_parts(self._server, mine, place)
        return content.log_parts(self._server, self._namespace, found[0])

    # --- derived data ----------------------------------------------------------------------------

    def derived(self, session: str, name: str) -> bytes | None:
        check_derived_name(name)
        bound = (*self._find(session).mine, name)

        def question(work: Work) -> bytes | None:
            size = work.row(f"SELECT coalesce(sum(length(bytes)), 0) {_DERIVED}", *bound)
            if size is None or size[0] > DERIVED_BYTES_MAX:
                return None
            rows = work.rows(f"SELECT bytes {_DERIVED} ORDER BY start", *bound)
            return b"".join(row[0] for row in rows) if rows else None

        return self._server.read(question)

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        mine = own(hold)
        mine.check()
        check_derived_name(name)

        def put(work: Work) -> None:
            if at is None:
                work.run(f"DELETE {_DERIVED}", *mine.mine, name)
            else:
                end = work.row(
                    f"SELECT start + length(bytes) {_DERIVED} ORDER BY start DESC LIMIT 1",
                    *mine.mine,
                    name,
                )
                size = 0 if end is None else int(end[0])
                if size != at:
                    raise InvalidValue("at", f"{size} bytes are kept, not {at}")
            for offset in range(0, len(data) or 1, _PART_BYTES):
                work.run(
                    "INSERT INTO @derived VALUES (%s, %s, %s, %s, %s)"
                    " ON CONFLICT (namespace, session, name, start)"
                    " DO UPDATE SET bytes = excluded.bytes",
                    *mine.mine,
                    name,
                    (at or 0) + offset,
                    data[offset : offset + _PART_BYTES],
                )

        mine.pass_by(put)

    def drop_derived(self, hold: Hold, name: str) -> None:
        mine = own(hold)
        mine.check()
        check_derived_name(name)
        mine.pass_by(lambda work: work.run(f"DELETE {_DERIVED}", *mine.mine, name))
