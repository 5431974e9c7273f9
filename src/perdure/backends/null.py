"""Persistence switched off: everything is accepted and dropped, and nothing can be resumed."""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NoReturn, Self

from perdure.backends.base import (
    Backend,
    Blob,
    Entry,
    Hold,
    Stored,
    Tail,
    Trashed,
    check_derived_name,
)
from perdure.durable.locks import Holder
from perdure.errors import PersistenceDisabled, SessionClosed
from perdure.evidence import Evidence
from perdure.model.header import Header, check_id
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece
from perdure.runtime import SYSTEM, Runtime

__all__ = ["NullBackend"]


class _NullHold(Hold):
    def __init__(self, session: str, position: Position) -> None:
        self.session = session
        self._live = True
        self.moved = position

    def check(self) -> None:
        if not self._live:
            raise SessionClosed(self.session, "this writer was closed")

    @property
    def position(self) -> Position:
        return self.moved

    def release(self) -> None:
        self._live = False


class NullBackend(Backend):
    """The same code runs, nothing is kept."""

    scheme = "none"
    persistent = False

    def __init__(
        self,
        rest: str = "",
        *,
        runtime: Runtime = SYSTEM,
        parts: tuple[str, ...] = (),
        **_: Any,
    ) -> None:
        """Take whatever options the other backends take."""
        del rest
        self._runtime = runtime
        self._parts: tuple[str, ...] = parts
        self._evidence = Evidence(None, runtime=runtime)

    def namespace(self, part: str) -> Self:
        check_id(part)
        return type(self)(runtime=self._runtime, parts=(*self._parts, part))

    def namespaces(self) -> Iterator[str]:
        return iter(())

    @property
    def parts(self) -> tuple[str, ...]:
        return self._parts

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    def lock(self, session: str, *, wait: float = 0.0) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("continuing a session")

    def holder(self, session: str) -> Holder | None:
        check_id(session)
        return None

    def stage(self, header: Header) -> Hold:
        return _NullHold(header.id, Position(-1, header.genesis))

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        del staged  # nothing of it was kept
        end = Position(-1, header.genesis)
        for record in records:
            end = record.position
        return _NullHold(header.id, end)

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        del expected  # there is no log that could have moved
        hold.check()
        if records and isinstance(hold, _NullHold):
            hold.moved = records[-1].position

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> NoReturn:  # noqa: ARG002
        raise PersistenceDisabled("recovery")

    def stored(self, session: str) -> Stored:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def tail(self, session: str) -> Tail:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def revision(self, session: str) -> str:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        hold.check()
        size, digest = 0, hashlib.sha256()
        for part in parts:
            size += len(part)
            digest.update(part)
        return Blob(digest.hexdigest(), size, self._runtime.now_ms())

    def blob(self, session: str, digest: str) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("reading content")

    def blobs(self, session: str) -> NoReturn:
        check_id(session)
        raise PersistenceDisabled("reading content")

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        """Nothing was kept."""

    def plan(self, session: str) -> NoReturn:
        check_id(session)
        raise PersistenceDisabled("repairing a session")

    def set_plan(self, hold: Hold, plan: bytes | None) -> NoReturn:  # noqa: ARG002
        raise PersistenceDisabled("repairing a session")

    def replace(
        self,
        hold: Hold,
        header: Header,  # noqa: ARG002
        records: Iterable[Record],  # noqa: ARG002
        *,
        place: str,
        reason: str,
    ) -> NoReturn:
        self.put_aside(hold, (), place=place, reason=reason)

    def put_aside(
        self,
        hold: Hold,  # noqa: ARG002
        parts: Iterable[bytes],  # noqa: ARG002
        *,
        place: str,  # noqa: ARG002
        reason: str,  # noqa: ARG002
    ) -> NoReturn:
        raise PersistenceDisabled("repairing a session")

    def asides(self, session: str) -> NoReturn:
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def aside(self, session: str, place: str) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("reading a session")

    def derived(self, session: str, name: str) -> NoReturn:
        check_id(session)
        check_derived_name(name)
        raise PersistenceDisabled("reading a session")

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        del data, at  # nothing is kept
        hold.check()
        check_derived_name(name)

    def drop_derived(self, hold: Hold, name: str) -> None:
        hold.check()
        check_derived_name(name)

    def discard(self, session: str, then: Callable[[Trashed], None]) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("deleting a session")

    def trash(self) -> Iterator[Trashed]:
        return iter(())

    def restore(self, session: str, then: Callable[[], None]) -> NoReturn:  # noqa: ARG002
        check_id(session)
        raise PersistenceDisabled("restoring a session")

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:  # noqa: ARG002
        return False

    def compact(self, hold: Hold, *, only_if_worth: bool = False) -> tuple[int, int]:
        del hold, only_if_worth
        return 0, 0

    def entries(self) -> Iterator[Entry]:
        return iter(())

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    def close(self) -> None:
        """Nothing is open."""
