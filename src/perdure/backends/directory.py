"""One folder for each session, one file for its log: the default.

See `DESIGN.md` beside this module for the invariants and the crash story.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from perdure.backends.base import Backend, Entry, Hold, Stored, Tail
from perdure.backends.frames import ZstdLayout
from perdure.backends.lines import RawLayout
from perdure.backends.root import Root
from perdure.durable.appending import AppendFile, ReadFile
from perdure.durable.files import Folder
from perdure.durable.locks import Holder, Lock, exclusive, holder
from perdure.durable.slots import TailSlots
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StaleWriter,
)
from perdure.model import values
from perdure.model.header import BadHeaderError, Header, decode_header, encode_header
from perdure.model.identity import escape_id, unescape_name
from perdure.model.record import Position, Record
from perdure.recovery.walk import Piece, Problem, Walk
from perdure.runtime import SYSTEM, Runtime

__all__ = ["DirectoryBackend"]

_Layout = type[RawLayout] | type[ZstdLayout]
_NO_LOG = "its folder holds no log"
_LAYOUTS: dict[str, _Layout] = {"zst": ZstdLayout, "raw": RawLayout}


class _DirectoryHold(Hold):
    """The lock, the open log and the tail slots of one session."""

    def __init__(
        self, session: str, folder: Folder, lock: Lock, log: AppendFile, layout: _Layout
    ) -> None:
        self.session = session
        self.folder = folder
        self.lock = lock
        self.log = log
        self.layout = layout
        self.slots = TailSlots(folder)
        lock.companions += (self.log, self.slots, self.folder)
        self._base = Position(-1, "")
        self._planned = (-1, self._base)

    @property
    def position(self) -> Position:
        """Follows the length of the log in one step, so that a signal cannot come in between."""
        length, position = self._planned
        return position if self.log.length == length else self._base

    @property
    def dead(self) -> bool:
        return self.log.poisoned

    def plan(self, length: int, position: Position) -> None:
        """The log stands at `position` as soon as it has `length` bytes."""
        self._base = self.position
        self._planned = (length, position)

    def check(self) -> None:
        self.lock.check()

    def release(self) -> None:
        # Whatever goes wrong with one, the lock is given back.
        try:
            self.slots.close()
            self.log.close()
        finally:
            self.lock.release()
            self.folder.close()


class DirectoryBackend(Backend):
    """Sessions as folders below one root."""

    scheme = "dir"

    def __init__(
        self, path: str, *, runtime: Runtime = SYSTEM, encoding: str | None = None, **_: Any
    ) -> None:
        """Name the root; nothing is created or opened before it is needed.

        `encoding` of new sessions is "zst" (compressed) or "raw" (plain lines); None takes what the
        root was created with, and "zst" for a new root.
        """
        if encoding is not None and encoding not in _LAYOUTS:
            raise InvalidValue("encoding", f"{encoding!r} is not 'zst' or 'raw'")
        self._root = Root(os.path.abspath(os.path.expanduser(path)), runtime, encoding)
        self._runtime = runtime

    def __repr__(self) -> str:
        return f"dir:{self._root.path}"

    # --- finding ---------------------------------------------------------------------------------

    def _folder(self, session: str) -> Folder:
        name = escape_id(session)
        try:
            with self._root.sessions() as sessions:
                return sessions.child(name)
        except FileNotFoundError:
            raise SessionNotFound(session) from None

    def _layout(self, session: str, folder: Folder) -> _Layout:
        for layout in _LAYOUTS.values():
            if folder.stat(layout.file_name):
                return layout
        raise SessionDamaged(session, _NO_LOG, kind="header", start=0, end=0)

    def _reader(self, session: str) -> tuple[ReadFile, _Layout]:
        with self._folder(session) as folder:
            layout = self._layout(session, folder)
            try:
                return ReadFile(folder, layout.file_name), layout
            except FileNotFoundError:
                raise SessionNotFound(session) from None

    # --- writing ---------------------------------------------------------------------------------

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        folder = self._folder(session)
        try:
            layout = self._layout(session, folder)
            lock = Lock(folder, session, wait=wait, runtime=self._runtime)
            try:
                log = AppendFile(folder, layout.file_name)
                try:
                    return _DirectoryHold(session, folder, lock, log, layout)
                except BaseException:
                    log.close()
                    raise
            except BaseException:
                lock.release()
                raise
        except BaseException:
            folder.close()
            raise

    def holder(self, session: str) -> Holder | None:
        with self._folder(session) as folder:
            return holder(folder)

    def publish(self, header: Header, records: Sequence[Record]) -> Hold:
        name = escape_id(header.id)
        with self._root.make() as root, root.child("sessions", make=True) as sessions:
            if sessions.stat(name) is not None:
                raise SessionExists(header.id)
            with root.child("new", make=True) as nursery:
                self._sweep(nursery)
                return self._build(header, records, sessions, nursery, name)

    def _build(
        self,
        header: Header,
        records: Sequence[Record],
        sessions: Folder,
        nursery: Folder,
        name: str,
    ) -> Hold:
        """Write the whole session where nobody looks, then rename it to where everybody does."""
        building = self._runtime.token()
        folder = nursery.child(building, make=True)
        hold = None
        try:
            lock = Lock(folder, header.id, runtime=self._runtime)
            layout = _LAYOUTS[self._root.encoding()]
            log = AppendFile(folder, layout.file_name, create=True)
            hold = _DirectoryHold(header.id, folder, lock, log, layout)
            data = layout.header(encode_header(header)) + layout.commit(records)
            hold.plan(len(data), records[-1].position)
            log.append(data)
            hold.slots.write(hold.position, log.status())
            hold.slots.sync()
            folder.sync()
            nursery.move(building, sessions, name)
            folder.path = os.path.join(sessions.path, name)
        except BaseException as error:
            _discard(nursery, building, folder)
            if hold is not None:
                hold.release()
            folder.close()
            if isinstance(error, FileExistsError):
                raise SessionExists(header.id) from error
            raise
        try:
            sessions.sync()
            nursery.sync()
        except BaseException:
            hold.release()
            raise
        return hold

    def _sweep(self, nursery: Folder) -> None:
        """Remove what writers that died left half built."""
        horizon = self._runtime.now_ms() - 60_000
        for name in nursery.names():
            status = nursery.stat(name)
            if status is None or status.st_mtime_ns // 1_000_000 > horizon:
                continue
            with suppress(PerdureError, FileNotFoundError):
                folder = nursery.child(name)
                try:
                    if holder(folder) is None:
                        _discard(nursery, name, folder)
                finally:
                    folder.close()

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        hold = _own(hold)
        hold.check()
        log = hold.log
        data = hold.layout.commit(records)
        with exclusive(log.fd, hold.session):
            status = log.status()
            if expected != hold.position:
                raise StaleWriter(hold.session, f"this writer stands at {hold.position.seq}")
            if status.st_size != log.length or log.replaced():
                raise StaleWriter(
                    hold.session, f"the log has {status.st_size} bytes, not {log.length}"
                )
            hold.plan(log.length + len(data), records[-1].position)
            log.append(data)
            hold.slots.write(hold.position, log.status())

    def settle(self, hold: Hold, walk: Walk) -> None:
        hold = _own(hold)
        hold.check()
        log = hold.log
        with self._root.sessions() as sessions:
            # Whoever published it may have died before its entry was durable.
            sessions.sync()
        with exclusive(log.fd, hold.session):
            slot = TailSlots.read(hold.folder)
            if slot is not None and slot.position != walk.acknowledged:
                # Only where the lock did not keep the other writer out; its commit is no torn tail.
                raise StaleWriter(hold.session, "another writer wrote while it was verified")
            if log.size() > walk.end:
                self._set_aside(hold, walk)
                log.cut(walk.end)
            log.length = walk.end
            log.rewrite(walk.acknowledged_end, walk.end)
            lacking = hold.layout.finish(log, walk.piece_start, walk.end)
            hold.plan(walk.end + len(lacking), walk.position)
            log.append(lacking)
            hold.slots.write(hold.position, log.status())
            hold.slots.sync()

    def _set_aside(self, hold: _DirectoryHold, walk: Walk) -> None:
        """Keep the bytes behind the verified end, with a note, before they are cut off."""
        start, end = walk.end, hold.log.size()
        note = {
            "session": hold.session,
            "file": hold.log.name,
            "start": start,
            "end": end,
            "after_seq": walk.position.seq,
            "time": self._runtime.now_ms(),
            "reason": walk.problem.reason if walk.problem else "not part of any record",
        }
        with hold.folder.child("aside", make=True) as aside:
            # Whoever made it may have died before its entry was durable.
            hold.folder.sync()
            name = f"{note['time']:015d}-{self._runtime.token(4)}"
            aside.create(f"{name}.bytes", hold.log.chunks(start, end))
            aside.create(f"{name}.json", values.encode(note) + b"\n")
            aside.sync()

    # --- reading ---------------------------------------------------------------------------------

    def stored(self, session: str) -> Stored:
        try:
            file, layout = self._reader(session)
        except SessionDamaged as error:
            return Stored(None, Problem("header", None, 0, 0, error.reason), 0)
        try:
            return _read_header(file, layout, session)
        finally:
            file.close()

    def scan(self, session: str, begin: int) -> Iterator[Piece]:
        try:
            file, layout = self._reader(session)
        except SessionDamaged:
            return
        try:
            yield from layout.pieces(file, begin)
        finally:
            file.close()

    def seek(self, session: str, seq: int) -> int:
        file, layout = self._reader(session)
        try:
            return layout.seek(file, layout.read_header(file)[1], seq)
        finally:
            file.close()

    def tail(self, session: str) -> Tail:
        with self._folder(session) as folder:
            slot = TailSlots.read(folder)
            status = folder.stat(self._layout(session, folder).file_name)
        if status is None:
            raise SessionNotFound(session)
        if slot is None:
            return Tail(None, settled=False, size=status.st_size)
        known = (slot.inode, slot.length, slot.ctime_ns)
        settled = known == (status.st_ino, status.st_size, status.st_ctime_ns)
        return Tail(slot.position, settled=settled, size=status.st_size)

    def entries(self) -> Iterator[Entry]:
        try:
            sessions = self._root.sessions()
        except FileNotFoundError:
            return
        with sessions:
            for name in sessions.names():
                yield self._entry(sessions, name)

    def _entry(self, sessions: Folder, name: str) -> Entry:
        """One session of the listing; whatever is wrong with it stays its own affair."""
        id = unescape_name(name) or name
        try:
            with sessions.child(name) as folder:
                file = layout = None
                for layout in _LAYOUTS.values():
                    if folder.stat(layout.file_name):
                        file = ReadFile(folder, layout.file_name)
                        break
                if file is None or layout is None:
                    raise FileNotFoundError(name)
                try:
                    found = _read_header(file, layout, None, name)
                    id = found.header.id if found.header is not None else id
                    return Entry(name, id, found.header, found.problem, self._revision(file))
                finally:
                    file.close()
        except FileNotFoundError:
            problem = Problem("header", None, 0, 0, _NO_LOG)
        except PerdureError as error:
            problem = Problem("header", None, 0, 0, error.message)
        return Entry(name, id, None, problem, f"dir:{self._root.store_id()}:{name}")

    def _revision(self, file: ReadFile) -> str:
        s = file.status()
        parts = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        return f"dir:{self._root.store_id()}:" + ":".join(map(str, parts))

    def locate(self, session: str) -> str | None:
        layout = _LAYOUTS[self._root.encoding()]
        with suppress(SessionNotFound), self._folder(session) as folder:
            layout = self._layout(session, folder)
        return os.path.join(self._root.path, "sessions", escape_id(session), layout.file_name)

    def close(self) -> None:
        """Nothing stays open between calls."""


def _discard(nursery: Folder, name: str, folder: Folder) -> None:
    """Remove a session that was never published; leftovers are swept later."""
    with suppress(PerdureError, FileNotFoundError):
        there = nursery.stat(name)
        if there is None or there.st_ino != folder.inode:
            # A signal came in between: it has its final place by now and is nobody's leftover.
            return
        for entry in folder.names():
            folder.remove(entry)
        nursery.remove(name)


def _read_header(file: ReadFile, layout: _Layout, session: str | None, name: str = "") -> Stored:
    line, begin = layout.read_header(file)
    if not line:
        reason = "the log is empty" if not file.size() else "the first frame is damaged"
        return Stored(None, Problem("header", None, 0, begin, reason), 0)
    what = f"session {session!r}" if session is not None else f"the session in {name!r}"
    try:
        header = decode_header(line, what)
        if (header.id != session) if session is not None else (escape_id(header.id) != name):
            raise BadHeaderError(f"the header names session {header.id!r}")
    except BadHeaderError as error:
        # What stands there may be a record, if the header was lost: records begin at the start.
        return Stored(None, Problem("header", None, 0, begin, str(error)), 0)
    except FormatUnsupported as error:
        problem = Problem("unsupported", None, 0, begin, str(error))
        return Stored(None, problem, begin, error)
    return Stored(header, None, begin)


def _own(hold: Hold) -> _DirectoryHold:
    if not isinstance(hold, _DirectoryHold):
        raise TypeError("this hold was given by another backend")
    return hold
