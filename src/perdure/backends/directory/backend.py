"""One folder for each session, one file for its log: the default.

See `DESIGN.md` beside this module for the invariants and the crash story.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self

from perdure.backends.base import Blob, Entry, Hold, Stored, Tail, Trashed
from perdure.backends.directory import content, trash
from perdure.backends.directory.deriving import DerivingBackend
from perdure.backends.directory.holding import LAYOUTS, DirectoryHold, Layout, owned
from perdure.backends.directory.repairing import RepairingBackend
from perdure.backends.directory.root import Root, Space
from perdure.durable.appending import AppendFile, ReadFile
from perdure.durable.files import Folder
from perdure.durable.locks import Holder, Lock, holder
from perdure.durable.slots import TailSlots
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
)
from perdure.evidence import Evidence
from perdure.model.header import BadHeaderError, Header, decode_header
from perdure.model.identity import escape_id, unescape_name
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece, Problem
from perdure.runtime import SYSTEM, Runtime

__all__ = ["DirectoryBackend"]

_TICK_MS = 50
"""Two changes of a file within a tick of the kernel's clock (at most 10 ms) show the same time."""

_NO_LOG = "its folder holds no log"


class DirectoryBackend(RepairingBackend, DerivingBackend):
    """Sessions as folders below one root."""

    scheme = "dir"

    def __init__(
        self, path: str, *, runtime: Runtime = SYSTEM, encoding: str | None = None, **_: Any
    ) -> None:
        """Name the root; nothing is created or opened before it is needed.

        `encoding` of new sessions is "zst" (compressed) or "raw" (plain lines); None takes what the
        root was created with, and "zst" for a new root.
        """
        if encoding is not None and encoding not in LAYOUTS:
            raise InvalidValue("encoding", f"{encoding!r} is not 'zst' or 'raw'")
        root = Root(os.path.abspath(os.path.expanduser(path)), runtime, encoding)
        self._runtime = runtime
        self._space = Space(root)
        self._evidence = Evidence(root.path, runtime=runtime)

    def __repr__(self) -> str:
        return f"dir:{self._space.path}"

    @property
    def place(self) -> str:
        return os.path.realpath(self._space.root.path)

    def make(self) -> None:
        self._space.make().close()

    # --- namespaces ------------------------------------------------------------------------------

    def namespace(self, part: str) -> Self:
        below = object.__new__(type(self))
        below._runtime = self._runtime
        below._space = Space(self._space.root, (*self._space.parts, part))
        below._evidence = self._evidence
        return below

    def namespaces(self) -> Iterator[str]:
        return iter(self._space.names())

    @property
    def parts(self) -> tuple[str, ...]:
        return self._space.parts

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    # --- finding ---------------------------------------------------------------------------------

    def _folder(self, session: str) -> Folder:
        name = escape_id(session)
        try:
            with self._space.sessions() as sessions:
                return sessions.child(name)
        except FileNotFoundError:
            raise SessionNotFound(session, deleted_at=self._deleted_at(name)) from None

    def _deleted_at(self, name: str) -> int | None:
        with suppress(FileNotFoundError), self._space.open() as space:
            return trash.deleted_at(space, name)
        return None

    def _layout(self, session: str, folder: Folder) -> Layout:
        for layout in LAYOUTS.values():
            if folder.stat(layout.file_name):
                return layout
        # One that is removed loses its log before its folder.
        self._refuse_if_gone(session, folder)
        raise SessionDamaged(session, _NO_LOG, kind="missing-log", start=0, end=0)

    def _reader(self, session: str) -> tuple[ReadFile, Layout]:
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
                self._refuse_if_gone(session, folder)
                log = AppendFile(folder, layout.file_name)
                try:
                    return DirectoryHold(session, folder, lock, log, layout)
                except BaseException:
                    log.close()
                    raise
            except BaseException:
                lock.release()
                raise
        except FileNotFoundError:
            # Deleted, and the trash emptied, since the folder was opened.
            folder.close()
            raise SessionNotFound(session) from None
        except BaseException:
            folder.close()
            raise

    def _refuse_if_gone(self, session: str, folder: Folder) -> None:
        """While the lock was waited for, its holder may have deleted the session."""
        name = escape_id(session)
        with self._space.sessions() as sessions:
            there = sessions.stat(name)
            if there is None or there.st_ino != folder.inode:
                raise SessionNotFound(session, deleted_at=self._deleted_at(name))

    def holder(self, session: str) -> Holder | None:
        with self._folder(session) as folder:
            return holder(folder)

    def stage(self, header: Header) -> Hold:
        with self._space.make() as space, space.child("new", make=True) as nursery:
            self._sweep(nursery)
            building = self._runtime.token()
            folder = nursery.child(building, make=True)
            try:
                lock = Lock(folder, header.id, runtime=self._runtime)
                layout = LAYOUTS[self._space.root.encoding()]
                log = AppendFile(folder, layout.file_name, create=True)
                hold = DirectoryHold(header.id, folder, lock, log, layout)
                hold.plan(0, Position(-1, header.genesis))
                hold.staged = building
                hold.abandon = lambda: self._abandon(building, folder)
            except BaseException:
                _discard(nursery, building, folder)
                folder.close()
                raise
        return hold

    def _abandon(self, building: str, folder: Folder) -> None:
        with (
            suppress(PerdureError, FileNotFoundError),
            self._space.open() as space,
            space.child("new") as nursery,
        ):
            _discard(nursery, building, folder)

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        name = escape_id(header.id)
        hold = None if staged is None else owned(staged)
        try:
            self._refuse_if_taken(header.id, name)
            hold = hold or owned(self.stage(header))
            self._build(hold, header, records, name)
        except BaseException as error:
            # What was staged before stays for another try, unless there can be none.
            moved = hold is not None and hold.abandon is None
            if hold is not None and (staged is None or moved or isinstance(error, SessionExists)):
                hold.release()
            raise
        return hold

    def _refuse_if_taken(self, session: str, name: str) -> None:
        with suppress(FileNotFoundError), self._space.open() as space:
            # In this order: what is deleted meanwhile is found in the trash.
            with suppress(FileNotFoundError), space.child("sessions") as sessions:
                if sessions.stat(name) is not None:
                    raise SessionExists(session)
            deleted_at = trash.deleted_at(space, name)
            if deleted_at is not None:
                raise SessionExists(session, deleted_at=deleted_at)
            # Or a loss of power brings back the one that had the id, beside the new one.
            trash.vouch(space)

    def _build(
        self, hold: DirectoryHold, header: Header, records: Iterable[Record], name: str
    ) -> None:
        """Write the whole session where nobody looks, then rename it to where everybody does."""
        with (
            self._space.make() as space,
            space.child("sessions", make=True) as sessions,
            space.child("new", make=True) as nursery,
        ):
            hold.build(header, records)
            hold.slots.write(hold.position, hold.log.status())
            hold.slots.sync()
            hold.folder.sync()
            try:
                nursery.move(str(hold.staged), sessions, name)
            except FileExistsError as error:
                raise SessionExists(header.id) from error
            # A signal before this line is no harm: `_discard` compares what stands in the nursery.
            hold.abandon = None
            hold.folder.path = os.path.join(sessions.path, name)
            sessions.sync()
            nursery.sync()

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
        owned(hold).commit(expected, records)

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        with self._space.sessions() as sessions:
            # Whoever published it may have died before its entry was durable.
            sessions.sync()
        owned(hold).settle(ending, seen, self._runtime)

    def compact(self, hold: Hold, *, only_if_worth: bool = False) -> tuple[int, int]:
        return owned(hold).compact(self._runtime, only_if_worth=only_if_worth)

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

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        try:
            file, layout = self._reader(session)
        except SessionDamaged:
            return
        try:
            place = layout.seek(file, begin, seq) if seq else begin
            yield from layout.pieces(file, place)
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
        return Tail(slot.position, settled=slot.names(status), size=status.st_size)

    def entries(self) -> Iterator[Entry]:
        try:
            sessions = self._space.sessions()
        except FileNotFoundError:
            return
        with sessions:
            for name in sessions.names():
                entry = self._entry(sessions, name)
                if entry is not None:
                    yield entry

    def _entry(self, sessions: Folder, name: str) -> Entry | None:
        """One session of the listing; whatever is wrong with it stays its own affair.

        None if it was deleted meanwhile.
        """
        folder = None
        try:
            folder = sessions.child(name)
            return self._entry_in(folder, name)
        except FileNotFoundError:
            there = sessions.stat(name)
            if there is None or (folder is not None and there.st_ino != folder.inode):
                return None
            problem = Problem("header", None, 0, 0, _NO_LOG)
        except (StorageUnavailable, StorageFull) as error:
            # It says nothing about the session.
            problem = Problem("unreadable", None, 0, 0, error.message)
        except PerdureError as error:
            problem = Problem("header", None, 0, 0, error.message)
        finally:
            if folder is not None:
                folder.close()
        id = unescape_name(name) or name
        return Entry(name, id, None, problem, f"{self._prefix()}{name}")

    def _entry_in(self, folder: Folder, name: str) -> Entry:
        for layout in LAYOUTS.values():
            if folder.stat(layout.file_name):
                break
        else:
            raise FileNotFoundError(name)
        file = ReadFile(folder, layout.file_name)
        try:
            found = _read_header(file, layout, None, name)
            id = found.header.id if found.header is not None else unescape_name(name) or name
            return Entry(name, id, found.header, found.problem, self._revision(file.status()))
        finally:
            file.close()

    def _revision(self, s: os.stat_result) -> str:
        parts = (s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        return self._prefix() + ":".join(map(str, parts))

    def _prefix(self) -> str:
        return f"dir:{self._space.root.store_id()}:"

    def revision(self, session: str) -> str:
        file, _ = self._reader(session)
        try:
            return self._revision(file.status())
        finally:
            file.close()

    def lasting_revision(self, session: str) -> str | None:
        file, _ = self._reader(session)
        try:
            # The file system's clock is the machine's, whatever clock was injected.
            status = file.status()
            age_ms = SYSTEM.now_ms() - status.st_ctime_ns // 1_000_000
            return self._revision(status) if age_ms > _TICK_MS else None
        finally:
            file.close()

    def locate(self, session: str) -> str | None:
        layout = LAYOUTS[self._space.root.encoding()]
        with suppress(SessionNotFound, SessionDamaged), self._folder(session) as folder:
            layout = self._layout(session, folder)
        return os.path.join(self._space.path, "sessions", escape_id(session), layout.file_name)

    # --- content ---------------------------------------------------------------------------------

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        own = owned(hold)
        own.check()
        return content.put(own.folder, parts, self._runtime.token(), self._runtime.now_ms())

    def clone_blob(self, hold: Hold, session: str, digest: str) -> Blob | None:
        own = owned(hold)
        own.check()
        with self._folder(session) as origin:
            token, now = self._runtime.token(), self._runtime.now_ms()
            return content.share(origin, own.folder, digest, token, now)

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        with self._folder(session) as folder:
            return content.read(folder, digest)

    def blobs(self, session: str) -> Iterator[Blob]:
        with self._folder(session) as folder:
            yield from content.stored(folder)

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        own = owned(hold)
        own.check()
        content.drop(own.folder, digests)

    # --- the trash -------------------------------------------------------------------------------

    def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
        name = escape_id(session)
        with self._folder(session) as folder:
            try:
                lock = Lock(folder, session, runtime=self._runtime)
            except FileNotFoundError:
                raise SessionNotFound(session) from None
            try:
                self._refuse_if_gone(session, folder)
                with self._space.open() as space, space.child("sessions") as sessions:
                    now = self._runtime.now_ms()
                    found = trash.discard(space, sessions, name, now, self._runtime.token())
                    trashed = self._trashed(space, found)
                    then(trashed)
                    return trashed
            finally:
                lock.release()

    def _trashed(self, space: Folder, found: trash.Discarded) -> Trashed:
        id, digest = unescape_name(found.name) or found.name, None
        with suppress(PerdureError, FileNotFoundError), trash.open_entry(space, found) as folder:
            header = self._entry_in(folder, found.name).header
            if header is not None:
                id, digest = header.id, header.digest
        return Trashed(f"{found.name}/{found.entry}", id, digest, found.deleted_at)

    def trash(self) -> Iterator[Trashed]:
        with suppress(FileNotFoundError), self._space.open() as space:
            for found in trash.discarded(space):
                yield self._trashed(space, found)

    def restore(self, session: str, then: Callable[[], None]) -> None:
        name = escape_id(session)
        try:
            with self._space.open() as space, space.child("sessions") as sessions:
                if trash.deleted_at(space, name) is None and sessions.stat(name) is not None:
                    raise SessionExists(session)
                trash.restore(space, sessions, session, self._runtime, then)
        except FileNotFoundError:
            raise SessionNotFound(session) from None

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        name, _, entry = trashed.place.partition("/")
        found = trash.Discarded(name, entry, trashed.deleted_at)
        with suppress(FileNotFoundError), self._space.open() as space:
            return trash.purge(space, found, trashed.id, self._runtime, lambda: first(trashed))
        return False

    def sweep_trash(self) -> None:
        with suppress(FileNotFoundError), self._space.open() as space:
            trash.sweep(space)

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
            folder.remove_tree(entry)
        nursery.remove(name)


def _read_header(file: ReadFile, layout: Layout, session: str | None, name: str = "") -> Stored:
    line, begin = layout.read_header(file)
    if not line:
        reason = "the log is empty" if not file.size() else "the first frame is damaged"
        return Stored(None, Problem("header", None, 0, begin, reason), 0)
    what = f"session {session!r}" if session is not None else f"the session in {name!r}"
    try:
        header = decode_header(line, what)
    except BadHeaderError as error:
        # What stands there may be a record, if the header was lost: records begin at the start.
        return Stored(None, Problem("header", None, 0, begin, str(error)), 0)
    except FormatUnsupported as error:
        problem = Problem("unsupported", None, 0, begin, str(error))
        return Stored(None, problem, begin, error)
    if (header.id != session) if session is not None else (escape_id(header.id) != name):
        reason = f"the header names session {header.id!r}"
        return Stored(None, Problem("header", None, 0, begin, reason), 0, other=header)
    return Stored(header, None, begin)
