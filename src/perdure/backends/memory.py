"""Sessions in memory: the contract in its shortest executable form.

It also models what a crash may leave: with `crash_keeping(n)` armed, the next commit stores only
its first `n` records, acknowledges nothing and ends the hold, as a dying process would.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

from perdure.backends.base import Backend, Entry, Hold, Stored, Tail
from perdure.durable.locks import Holder
from perdure.errors import (
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StorageUnavailable,
)
from perdure.model.header import Header, check_id, decode_header, encode_header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Piece, Walk
from perdure.runtime import SYSTEM, Runtime

__all__ = ["MemoryBackend"]

_WAIT_STEP_SECONDS = 0.005


class _Session:
    """One session: its header, its lines, and the position that was acknowledged."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lines: list[bytes] = []
        self.acknowledged = Position(-1, header.genesis)
        self.holder: Holder | None = None
        self.revision = 0
        self.aside: list[bytes] = []


class _MemoryHold(Hold):
    def __init__(self, backend: "MemoryBackend", session: _Session, runtime: Runtime) -> None:
        self.session = session
        self.moved = session.acknowledged
        self._backend = backend
        self._runtime = runtime
        self._pid = runtime.pid()
        self._live = True

    def check(self) -> None:
        name = self.session.header.id
        if not self._live:
            raise SessionClosed(name, "this writer was closed")
        if self._pid != self._runtime.pid():
            raise SessionClosed(name, "this writer belongs to the parent process")

    def __del__(self) -> None:
        self.release()

    @property
    def position(self) -> Position:
        return self.moved

    def release(self) -> None:
        if self._live:
            self._live = False
            self.session.holder = None


class MemoryBackend(Backend):
    """Keeps sessions in this process; they are gone when the backend is."""

    scheme = "memory"

    def __init__(self, _rest: str = "", *, runtime: Runtime = SYSTEM, **_: Any) -> None:
        """Start empty; nothing follows the scheme, each backend is its own store."""
        self._runtime = runtime
        self._sessions: dict[str, _Session] = {}
        self._mutex = threading.Lock()
        self._id = runtime.token()
        self._keep_at_crash: int | None = None

    def crash_keeping(self, records: int) -> None:
        """Let the next commit die after `records` of its records were stored."""
        self._keep_at_crash = records

    def _find(self, session: str) -> _Session:
        check_id(session)
        try:
            return self._sessions[session]
        except KeyError:
            raise SessionNotFound(session) from None

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        found = self._find(session)
        deadline = self._runtime.monotonic() + wait
        while True:
            with self._mutex:
                who = found.holder
                if who is None:
                    return self._grant(found)
            if self._runtime.monotonic() >= deadline:
                here = who.pid is not None and who.pid == self._runtime.pid()
                raise SessionBusy(session, pid=who.pid, host=who.host, since=who.since, here=here)
            self._runtime.sleep(_WAIT_STEP_SECONDS)

    def _grant(self, session: _Session) -> _MemoryHold:
        runtime = self._runtime
        session.holder = Holder(runtime.pid(), runtime.host(), runtime.now_ms())
        return _MemoryHold(self, session, runtime)

    def holder(self, session: str) -> Holder | None:
        return self._find(session).holder

    def publish(self, header: Header, records: Sequence[Record]) -> Hold:
        with self._mutex:
            if header.id in self._sessions:
                raise SessionExists(header.id)
            created = _Session(header)
            hold = self._grant(created)
            self._sessions[header.id] = created
            self._store(hold, records)
        return hold

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        hold = _own(hold)
        hold.check()
        with self._mutex:
            known = hold.session.acknowledged
            if expected != known or hold.position != known:
                raise StaleWriter(
                    hold.session.header.id, f"it stands at event {known.seq}, not {expected.seq}"
                )
            self._store(hold, records)

    def _store(self, hold: "_MemoryHold", records: Sequence[Record]) -> None:
        session = hold.session
        keep, self._keep_at_crash = self._keep_at_crash, None
        session.lines.extend(record.line for record in records[:keep])
        session.revision += 1
        if keep is not None:
            hold.release()
            raise StorageUnavailable(session.header.id, "the writer died in this commit")
        if records:
            session.acknowledged = records[-1].position
            hold.moved = session.acknowledged

    def settle(self, hold: Hold, walk: Walk) -> None:
        hold = _own(hold)
        hold.check()
        with self._mutex:
            session = hold.session
            if walk.position != session.acknowledged or walk.problem is not None:
                kept, size = 0, 0
                while size < walk.end:
                    size += len(session.lines[kept])
                    kept += 1
                session.aside.extend(session.lines[kept:])
                del session.lines[kept:]
                session.revision += 1
            session.acknowledged = walk.position
            hold.moved = walk.position

    def stored(self, session: str) -> Stored:
        # A new object each time, as from any medium: what a caller does to it changes nothing.
        line = encode_header(self._find(session).header)
        return Stored(decode_header(line, session), None, 0)

    def scan(self, session: str, begin: int) -> Iterator[Piece]:
        start = 0
        for line in tuple(self._find(session).lines):
            if start >= begin:
                yield Piece(start, start + len(line), (line,))
            start += len(line)

    def seek(self, session: str, seq: int) -> int:  # noqa: ARG002
        self._find(session)
        return 0

    def tail(self, session: str) -> Tail:
        found = self._find(session)
        with self._mutex:
            size = sum(map(len, found.lines))
            return Tail(found.acknowledged, settled=False, size=size)

    def entries(self) -> Iterator[Entry]:
        for name, session in sorted(self._sessions.items()):
            revision = f"memory:{self._id}:{name}:{session.revision}"
            yield Entry(name, name, self.stored(name).header, None, revision)

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    def close(self) -> None:
        """Nothing is open."""


def _own(hold: Hold) -> _MemoryHold:
    if not isinstance(hold, _MemoryHold):
        raise TypeError("this hold was given by another backend")
    return hold
