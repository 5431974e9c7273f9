"""Sessions in memory: the contract in its shortest executable form.

It also models what a crash may leave: with `crash_keeping(n)` armed, the next commit stores only
its first `n` records, acknowledges nothing and ends the hold, as a dying process would.
"""

import hashlib
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Self

from perdure.backends.base import (
    Aside,
    Backend,
    Blob,
    Entry,
    Hold,
    Stored,
    Tail,
    Trashed,
    check_derived_name,
    check_place,
)
from perdure.durable.locks import Holder
from perdure.errors import (
    InvalidValue,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StorageUnavailable,
)
from perdure.evidence import Evidence
from perdure.model.header import Header, check_id, decode_header, encode_header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece
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
        self.aside: dict[str, tuple[Aside, bytes]] = {}
        self.plan: bytes | None = None
        self.derived: dict[str, bytes] = {}
        self.blobs: dict[str, tuple[Blob, bytes]] = {}
        self.deleted_at = 0


class _MemoryHold(Hold):
    def __init__(self, session: _Session, runtime: Runtime) -> None:
        self.session = session.header.id
        self.stored = session
        self.moved = session.acknowledged
        self._runtime = runtime
        self._pid = runtime.pid()
        self._live = True

    def check(self) -> None:
        if not self._live:
            raise SessionClosed(self.session, "this writer was closed")
        if self._pid != self._runtime.pid():
            raise SessionClosed(self.session, "this writer belongs to the parent process")

    def __del__(self) -> None:
        self.release()

    @property
    def position(self) -> Position:
        return self.moved

    def release(self) -> None:
        if self._live:
            self._live = False
            self.stored.holder = None


class MemoryBackend(Backend):
    """Keeps sessions in this process; they are gone when the backend is."""

    scheme = "memory"

    def __init__(self, _rest: str = "", *, runtime: Runtime = SYSTEM, **_: Any) -> None:
        """Start empty; nothing follows the scheme, each backend is its own store."""
        self._runtime = runtime
        self._parts: tuple[str, ...] = ()
        self._evidence = Evidence(None, runtime=runtime)
        self._begin()

    def _begin(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._trash: dict[str, list[_Session]] = {}
        self._below: dict[str, Self] = {}
        self._mutex = threading.RLock()
        _in_memory.add(self)
        self._id = self._runtime.token()
        self._keep_at_crash: int | None = None

    def namespace(self, part: str) -> Self:
        check_id(part)
        with self._mutex:
            if part not in self._below:
                below = object.__new__(type(self))
                below._runtime = self._runtime
                below._parts = (*self._parts, part)
                below._evidence = self._evidence
                below._begin()
                self._below[part] = below
            return self._below[part]

    def namespaces(self) -> Iterator[str]:
        with self._mutex:
            return iter(sorted(name for name, below in self._below.items() if below.used))

    def begin_in_child(self) -> None:
        """A thread of the parent may have held the mutex when it forked."""
        self._mutex = threading.RLock()

    @property
    def used(self) -> bool:
        """Whether anything was stored in this namespace or below it."""
        return bool(self._sessions or self._trash or any(x.used for x in self._below.values()))

    @property
    def parts(self) -> tuple[str, ...]:
        return self._parts

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    def crash_keeping(self, records: int) -> None:
        """Let the next commit die after `records` of its records were stored."""
        self._keep_at_crash = records

    def _find(self, session: str) -> _Session:
        check_id(session)
        try:
            return self._sessions[session]
        except KeyError:
            raise SessionNotFound(session, deleted_at=self._deleted_at(session)) from None

    def _deleted_at(self, session: str) -> int | None:
        return max((each.deleted_at for each in self._trash.get(session, ())), default=None)

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        found = self._find(session)
        deadline = self._runtime.monotonic() + wait
        while True:
            with self._mutex:
                who = found.holder
                if self._sessions.get(session) is not found:
                    # Its holder deleted it while it was waited for.
                    raise SessionNotFound(session, deleted_at=self._deleted_at(session))
                if who is None:
                    return self._grant(found)
            if self._runtime.monotonic() >= deadline:
                here = who.pid is not None and who.pid == self._runtime.pid()
                raise SessionBusy(session, pid=who.pid, host=who.host, since=who.since, here=here)
            self._runtime.sleep(_WAIT_STEP_SECONDS)

    def _grant(self, session: _Session) -> _MemoryHold:
        runtime = self._runtime
        session.holder = Holder(runtime.pid(), runtime.host(), runtime.now_ms())
        return _MemoryHold(session, runtime)

    def holder(self, session: str) -> Holder | None:
        return self._find(session).holder

    def stage(self, header: Header) -> Hold:
        return self._grant(_Session(header))

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        hold, taken = _own(staged or self.stage(header)), [*records]
        hold.check()
        with self._mutex:
            deleted_at = self._deleted_at(header.id)
            if header.id in self._sessions or deleted_at is not None:
                hold.release()
                raise SessionExists(header.id, deleted_at=deleted_at)
            self._sessions[header.id] = hold.stored
            self._store(hold, taken)
        return hold

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        hold = _own(hold)
        hold.check()
        with self._mutex:
            known = hold.stored.acknowledged
            if expected != known or hold.position != known:
                raise StaleWriter(
                    hold.session, f"it stands at event {known.seq}, not {expected.seq}"
                )
            self._store(hold, records)

    def _store(self, hold: "_MemoryHold", records: Sequence[Record]) -> None:
        session = hold.stored
        keep, self._keep_at_crash = self._keep_at_crash, None
        session.lines.extend(record.line for record in records[:keep])
        session.revision += 1
        if keep is not None:
            hold.release()
            raise StorageUnavailable(session.header.id, "the writer died in this commit")
        if records:
            session.acknowledged = records[-1].position
            hold.moved = session.acknowledged

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        hold = _own(hold)
        hold.check()
        with self._mutex:
            session = hold.stored
            if seen != session.acknowledged:
                raise StaleWriter(hold.session, "another writer wrote while it was verified")
            if ending.position != session.acknowledged or ending.problem is not None:
                kept, size = 0, 0
                while size < ending.end:
                    size += len(session.lines[kept])
                    kept += 1
                self._keep_aside(session, b"".join(session.lines[kept:]), ending.reason)
                del session.lines[kept:]
                session.revision += 1
            session.acknowledged = ending.position
            hold.moved = ending.position

    def stored(self, session: str) -> Stored:
        # A new object each time, as from any medium: what a caller does to it changes nothing.
        line = encode_header(self._find(session).header)
        return Stored(decode_header(line, session), None, 0)

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        del seq  # everything is at hand
        start = 0
        for line in tuple(self._find(session).lines):
            if start >= begin:
                yield Piece(start, start + len(line), (line,))
            start += len(line)

    def tail(self, session: str) -> Tail:
        found = self._find(session)
        with self._mutex:
            size = sum(map(len, found.lines))
            return Tail(found.acknowledged, settled=False, size=size)

    def entries(self) -> Iterator[Entry]:
        with self._mutex:
            sessions = sorted(self._sessions.items())
        for name, session in sessions:
            header = decode_header(encode_header(session.header), name)
            yield Entry(name, name, header, None, self._revision(session))

    def _revision(self, session: _Session) -> str:
        return f"memory:{self._id}:{session.header.digest}:{session.revision}"

    def revision(self, session: str) -> str:
        return self._revision(self._find(session))

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    # --- content ---------------------------------------------------------------------------------

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        own = _own(hold)
        own.check()
        value = b"".join(parts)
        blob = Blob(hashlib.sha256(value).hexdigest(), len(value), self._runtime.now_ms())
        own.stored.blobs[blob.digest] = (blob, value)
        return blob

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        found = self._find(session).blobs.get(digest)
        return iter((found[1],)) if found is not None else None

    def blobs(self, session: str) -> Iterator[Blob]:
        found = self._find(session).blobs
        return iter([found[digest][0] for digest in sorted(found)])

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        own = _own(hold)
        own.check()
        for digest in digests:
            own.stored.blobs.pop(digest, None)

    # --- repair ----------------------------------------------------------------------------------

    def plan(self, session: str) -> bytes | None:
        return self._find(session).plan

    def set_plan(self, hold: Hold, plan: bytes | None) -> None:
        own = _own(hold)
        own.check()
        own.stored.plan = plan

    def replace(
        self, hold: Hold, header: Header, records: Iterable[Record], *, place: str, reason: str
    ) -> None:
        own = _own(hold)
        own.check()
        check_place(place)
        session, kept = own.stored, [*records]
        with self._mutex:
            whole = encode_header(session.header) + b"".join(session.lines)
            self._keep_aside(session, whole, reason, place)
            session.derived.clear()
            session.header = header
            session.lines = [record.line for record in kept]
            session.acknowledged = kept[-1].position if kept else Position(-1, header.genesis)
            session.revision += 1
            own.moved = session.acknowledged

    def put_aside(self, hold: Hold, parts: Iterable[bytes], *, place: str, reason: str) -> None:
        own = _own(hold)
        own.check()
        check_place(place)
        self._keep_aside(own.stored, b"".join(parts), reason, place)

    def _keep_aside(self, session: _Session, value: bytes, reason: str, place: str = "") -> None:
        now = self._runtime.now_ms()
        if value or place:
            place = place or f"{now:015d}-{self._runtime.token(4)}"
            session.aside.setdefault(place, (Aside(place, reason, len(value), now), value))

    def asides(self, session: str) -> Iterator[Aside]:
        with self._mutex:
            kept = [aside for aside, _ in self._find(session).aside.values()]
        return iter(sorted(kept, key=lambda aside: (aside.set_at, aside.place)))

    def aside(self, session: str, place: str) -> Iterator[bytes] | None:
        found = self._find(session).aside.get(place)
        return iter((found[1],)) if found is not None else None

    # --- derived data ----------------------------------------------------------------------------

    def derived(self, session: str, name: str) -> bytes | None:
        check_derived_name(name)
        return self._find(session).derived.get(name)

    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        own = _own(hold)
        own.check()
        check_derived_name(name)
        derived = own.stored.derived
        with self._mutex:
            before = derived.get(name, b"") if at is not None else b""
            if at is not None and len(before) != at:
                raise InvalidValue("at", f"{len(before)} bytes are kept, not {at}")
            derived[name] = before + data

    def drop_derived(self, hold: Hold, name: str) -> None:
        own = _own(hold)
        own.check()
        check_derived_name(name)
        own.stored.derived.pop(name, None)

    # --- the trash -------------------------------------------------------------------------------

    def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
        hold = self.lock(session)
        with self._mutex:
            found = self._sessions.pop(session)
            found.deleted_at = self._runtime.now_ms()
            self._trash.setdefault(session, []).append(found)
            then(_trashed(found))
        hold.release()
        return _trashed(found)

    def trash(self) -> Iterator[Trashed]:
        with self._mutex:
            return iter(
                [_trashed(each) for _, kept in sorted(self._trash.items()) for each in kept]
            )

    def restore(self, session: str, then: Callable[[], None]) -> None:
        check_id(session)
        with self._mutex:
            if session in self._sessions:
                raise SessionExists(session)
            if session not in self._trash:
                raise SessionNotFound(session)
            self._sessions[session] = self._trash[session].pop()
            if not self._trash[session]:
                del self._trash[session]
            then()

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        with self._mutex:
            kept = self._trash.get(trashed.id, [])
            left = [each for each in kept if _trashed(each) != trashed]
            if len(left) == len(kept):
                return False
            first(trashed)
            self._trash.pop(trashed.id)
            if left:
                self._trash[trashed.id] = left
            return True

    def close(self) -> None:
        """Nothing is open."""


def _trashed(session: _Session) -> Trashed:
    header = session.header
    place = f"{header.id}/{session.deleted_at}/{header.digest}"
    return Trashed(place, header.id, header.digest, session.deleted_at)


def _own(hold: Hold) -> _MemoryHold:
    if not isinstance(hold, _MemoryHold):
        raise TypeError("this hold was given by another backend")
    return hold


_in_memory: "weakref.WeakSet[MemoryBackend]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for backend in list(_in_memory):
        backend.begin_in_child()


SYSTEM.at_fork(_begin_in_child)
