"""The file of a store: looked at before it is opened, made whole, its errors translated."""

import errno
import os
import shlex
import stat
from contextlib import AbstractContextManager, ExitStack, suppress

import apsw

from perdure.backends.sqlite import schema
from perdure.databases.forks import undivided
from perdure.databases.meaning import Nonsense, Unread, meaning
from perdure.databases.network import refuse_network
from perdure.databases.opening import (
    SIBLINGS,
    DatabaseFile,
    check_private,
    configure,
    marks,
    read_through,
    resolved,
)
from perdure.durable import crash
from perdure.durable.files import Folder, translated
from perdure.durable.locks import exclusive
from perdure.errors import InvalidValue, StorageUnavailable, UnsafeFile
from perdure.runtime import Runtime

__all__ = ["FLAGS", "WAIT_MS", "StoreFile", "path_of"]

WAIT_MS = 10_000
"""Every writer of the file waits for every other one's commit, which takes a millisecond."""

_ROOM_BYTES = 64 * 1024
"""What SQLite makes beside a file takes 32 KiB at once."""

FLAGS = apsw.SQLITE_OPEN_NOFOLLOW
"""Of every connection."""


class StoreFile:
    """One file and what stands beside it."""

    def __init__(
        self, path: str, kind: schema.Kind, runtime: Runtime, *, untrusted: bool = False
    ) -> None:
        """Name the file; nothing is opened or created.

        With `untrusted` it is only read, and may belong to anybody and be open to all.
        """
        self.path = path
        self.kind = kind
        self.untrusted = untrusted
        self.beside = f"{path}.d"
        self.runtime = runtime
        self._above, self._name = os.path.split(path)

    def look(self) -> os.stat_result:
        """The status of what stands at the name.

        Raises:
            FileNotFoundError: nothing does.
            UnsafeFile, StorageUnavailable: nothing can.

        """
        try:
            return os.lstat(self.path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise translated(error, self.path) from error

    def present(self, stack: ExitStack) -> DatabaseFile:
        """The file, checked as far as that goes without opening it.

        Raises:
            FileNotFoundError: there is none.

        """
        self.look()
        folder = stack.enter_context(Folder.open_shared(self._above, any_owner=self.untrusted))
        return self._file(folder)

    def _file(self, folder: Folder) -> DatabaseFile:
        status = folder.stat(self._name)
        if status is None:
            raise FileNotFoundError(self.path)
        file = DatabaseFile(folder, self._name, resolved(self._above, self._name), status)
        if stat.S_ISREG(status.st_mode):
            # Before its mode: whoever named the wrong file shall not be told to change that.
            self._refuse_foreign(file)
        if not self.untrusted or not stat.S_ISREG(status.st_mode):
            fix = ""
            if self.kind is schema.BUNDLE:
                fix = f"`perdure import bundle {shlex.quote(self.path)}` copies what is in it"
                # Nobody else may change the mode.
                fix += "; or chmod 600" if file.status.st_uid == self.runtime.uid() else ""
            check_private(folder, self._name, self.runtime.uid(), fix=fix)
            for suffix in SIBLINGS:
                check_private(folder, self._name + suffix, self.runtime.uid())
        return file

    def _refuse_foreign(self, file: DatabaseFile) -> None:
        """Look at the header before SQLite gets to change anything.

        Raises:
            UnsafeFile: it is no file of ours.
            FormatUnsupported: of another version.

        """
        if not file.status.st_size:
            hint = "it may have been cut off: put a backup in its place, or move it away"
            raise UnsafeFile(self.path, "is empty, which no store is", hint=hint)
        found = marks(file.path, file.status.st_size)
        if found is None:
            # Perhaps it could not be read just now.
            read_through(file.path, self.path, header=True)
            found = marks(file.path, file.status.st_size)
        if found is None:
            # In the middle of a rollback it may look so: the journal tells.
            journal = file.folder.stat(f"{self._name}-journal")
            if journal is not None and journal.st_size:
                return
            raise UnsafeFile(self.path, "is no SQLite file", hint="name another file")
        if (found.application, found.version) != (self.kind.application, schema.VERSION):
            raise schema.foreign(self.path, self.kind, found.application, found.version)
        if not found.known:
            raise Nonsense("its header names a journal mode that does not exist")

    def make(self) -> None:
        """Create the file where there is none: whole, or after a crash not at all."""
        try:
            self.look()
            return
        except FileNotFoundError:
            self.refuse_if_untrusted()
        resolved(self._above, self._name)
        with (
            undivided(),
            self._make_above() as above,
            above.child(os.path.basename(self.beside), make=True) as beside,
        ):
            # Whoever made it may have died before it was durable.
            above.sync()
            with exclusive(beside.fd, self.path):
                if above.stat(self._name) is None:
                    self._build(above, beside)

    def _make_above(self) -> Folder:
        above = Folder.make_shared(self._above)
        try:
            refuse_network(self._above, self.path)
        except BaseException:
            above.close()
            raise
        return above

    def _build(self, above: Folder, beside: Folder) -> None:
        building = f".new-{self.runtime.token()}"
        for left in beside.names():
            if left.startswith(".new-"):
                beside.remove(left)
        beside.create(building, b"")
        with self.translating():
            made = apsw.Connection(
                f"{resolved(self.beside, building)}", flags=FLAGS | apsw.SQLITE_OPEN_READWRITE
            )
            try:
                configure(made, WAIT_MS)
                # Room that a purged session leaves can be given back.
                made.pragma("auto_vacuum", "incremental")
                made.pragma("synchronous", "full")
                made.execute("BEGIN IMMEDIATE")
                schema.create(made, self.kind, self.runtime.token(16), self.runtime.now_ms())
                crash.point("sqlite.create")
                made.execute("COMMIT")
                # Last: a WAL would keep the old name, and closing hides that it is still needed.
                mode = made.pragma("journal_mode", "wal")
            except apsw.Error as error:
                raise self.told(meaning(error, made.system_errno, self.path, WAIT_MS)) from error
            finally:
                made.close(True)
        siblings = [name for name in beside.names() if name.startswith(f"{building}-")]
        if mode != "wal" or any(_size_of(beside, name) for name in siblings):
            raise StorageUnavailable(self.path, "could not be made whole", hint="try again")
        beside.move(building, above, self._name)
        above.sync()
        beside.sync()

    def refuse_if_untrusted(self) -> None:
        """Refuse to write to what is only read."""
        if self.untrusted:
            raise StorageUnavailable(self.path, "was opened for reading only")

    def translating(self, keep: tuple[type[apsw.Error], ...] = ()) -> AbstractContextManager[None]:
        """Let errors of SQLite become errors of the tree, and `Moved`; but for those to keep."""
        return _Translating(self, keep)

    def meant_by(self, error: BaseException) -> Exception | None:
        """What an error within an operation means for callers; None if it is none of SQLite's."""
        if isinstance(error, apsw.Error):
            return self.told(meaning(error, self._errno(error), self.path, WAIT_MS))
        if isinstance(error, Nonsense | Unread):
            return self.told(error)
        if isinstance(error, UnicodeDecodeError):
            # A damaged page may turn bytes into text.
            return self.told(Nonsense(str(error)))
        return None

    def read_through(self) -> None:
        """Make sure that what SQLite calls damage is none of the medium's.

        Raises:
            StorageUnavailable: the file cannot be read to its end.

        """
        read_through(resolved(self._above, self._name), self.path)

    def _errno(self, error: apsw.Error) -> int:
        """SQLite says neither of a full disk nor of anything else why it could not make a file."""
        if isinstance(error, apsw.IOError | apsw.CantOpenError):
            with suppress(OSError):
                room = os.statvfs(self._above)
                if room.f_bavail * room.f_frsize < _ROOM_BYTES:
                    return errno.ENOSPC
        return 0

    def told(self, error: Exception) -> Exception:
        """What leaves this package for an error that is internal to it."""
        if isinstance(error, Nonsense):
            try:
                self.read_through()
            except StorageUnavailable as unread:
                return unread
            return StorageUnavailable(
                self.path,
                f"is damaged: {error}",
                hint="put a backup in its place; `sqlite3 FILE .recover` saves what can be read",
            )
        if isinstance(error, Unread):
            hint = "open one of its sessions for writing, which rolls it back"
            return StorageUnavailable(self.path, str(error), hint=hint)
        return error


class _Translating:
    """As a class: it is entered for every commit, and a generator costs several times as much."""

    __slots__ = ("_file", "_keep")

    def __init__(self, file: StoreFile, keep: tuple[type[apsw.Error], ...]) -> None:
        self._file = file
        self._keep = keep

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None or isinstance(error, self._keep):
            return
        told = self._file.meant_by(error)
        if told is not None:
            raise told from error


def _size_of(folder: Folder, name: str) -> int:
    status = folder.stat(name)
    return 0 if status is None else status.st_size


def path_of(rest: str, scheme: str) -> str:
    """The absolute path that follows a scheme; `//` and an empty host may come before it."""
    path = rest
    if rest.startswith("//"):
        host, _, behind = rest[2:].partition("/")
        if host not in ("", "localhost"):
            hint = f"write {scheme}:{rest[2:]} or {scheme}:///path"
            raise InvalidValue("location", f"a file on {host!r} is not here", hint=hint)
        path = f"/{behind}"
    if not path or path.endswith("/"):
        raise InvalidValue("location", "names no file", hint=f"{scheme}:///path/file.db")
    path = os.path.abspath(os.path.expanduser(path))
    # POSIX keeps two slashes at the beginning; no system here means anything by them.
    return f"/{path.lstrip('/')}"
