"""Private folders and their entries, opened without following anything, written so they stay.

Everything goes through a folder's descriptor, so a path component that is exchanged meanwhile
cannot lead elsewhere. Errors of the system become errors of the tree here.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import ParamSpec, Self

from perdure.durable import crash
from perdure.durable.calls import read_at, status_of, sync_file, translated, write_at
from perdure.errors import PerdureError, UnsafeFile
from perdure.runtime import SYSTEM

__all__ = ["Folder", "Opened", "read_at", "status_of", "sync_file", "translated", "write_at"]

P = ParamSpec("P")

_FILE_MODE = 0o600
_FOLDER_MODE = 0o700
_NO_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def _check_private(path: str, status: os.stat_result) -> None:
    kind = stat.S_IFMT(status.st_mode)
    wanted = _FILE_MODE if kind == stat.S_IFREG else _FOLDER_MODE
    mode = stat.S_IMODE(status.st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise UnsafeFile(path, "neither a regular file nor a folder")
    if status.st_uid != SYSTEM.uid():
        fix = "name a folder of yours" if kind == stat.S_IFDIR else ""
        raise UnsafeFile(path, f"belongs to user {status.st_uid}", hint=fix)
    if mode & 0o077:
        fix = f"chmod {wanted:o} {path}"
        if kind == stat.S_IFDIR:
            fix = "a store needs folders that are its own, with mode 700"
        raise UnsafeFile(path, f"mode {mode:o} lets others in, expected {wanted:o}", hint=fix)
    if kind == stat.S_IFREG and status.st_nlink > 1:
        raise UnsafeFile(path, f"has {status.st_nlink} hard links", hint="copy it to a new file")


class Opened:
    """Something that holds one descriptor."""

    fd = -1

    def close(self) -> None:
        """Close the descriptor."""
        # A signal in between leaves it open; it must not be closed twice, when its number may be
        # another file's.
        descriptor, self.fd = self.fd, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Nothing stays open that nobody can reach."""
        self.close()


class Folder(Opened):
    """An open private folder. Names given to its methods are single path components.

    Attributes:
        path: where it is, for people.
        anybodys: what is in it may belong to anybody; it is only read.

    """

    anybodys = False

    def __init__(self, path: str, descriptor: int) -> None:
        """Wrap an open descriptor; use `open`, `make` or `child` instead."""
        self.path = path
        self.fd = descriptor

    @classmethod
    def open(cls, path: str) -> Self:
        """Open an existing folder.

        Raises:
            FileNotFoundError: it does not exist.
            UnsafeFile: not a folder, not ours, or open to others.
            StorageUnavailable: the system refuses.

        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise translated(error, path) from error
        return cls._checked(path, descriptor)

    @classmethod
    def _checked(cls, path: str, descriptor: int) -> Self:
        try:
            _check_private(path, status_of(descriptor, path))
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    @classmethod
    def open_shared(cls, path: str, *, any_owner: bool = False) -> Self:
        """Open a folder that others may look into, but in which they cannot exchange our files.

        With `any_owner` it may be anybody's: for reading what is not trusted.

        Raises:
            FileNotFoundError: it does not exist.
            UnsafeFile: not a folder, or one in which others may rename.
            StorageUnavailable: the system refuses.

        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise translated(error, path) from error
        folder = cls(path, descriptor)
        folder.anybodys = any_owner
        status = status_of(descriptor, path)
        if not any_owner:
            if status.st_uid not in (SYSTEM.uid(), 0):
                reason = f"belongs to user {status.st_uid}"
                raise UnsafeFile(path, reason, hint="name a place in a folder of yours")
            if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
                mode = stat.S_IMODE(status.st_mode)
                raise UnsafeFile(
                    path, f"mode {mode:o} lets others write into it", hint=f"chmod go-w {path}"
                )
        return folder

    @classmethod
    def make_shared(cls, path: str) -> Self:
        """As `open_shared`, creating the folder and those above it with the user's usual mode."""
        try:
            _make_parents(path)
        except OSError as error:
            raise translated(error, path) from error
        return cls.open_shared(path)

    @classmethod
    def make(cls, path: str) -> "Folder":
        """Open the folder, creating it where missing; its parents get the user's usual mode."""
        above, name = os.path.split(path)
        try:
            _make_parents(above)
            parent = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise translated(error, above) from error
        with cls(above, parent) as folder:
            made = folder.child(name, make=True)
            # Whoever made it may have died before it was durable.
            folder.sync()
            return made

    def child(self, name: str, *, make: bool = False, sync: bool = True) -> "Folder":
        """Open the folder `name` in this one, creating it durably if `make`.

        Without `sync` a loss of power may take a new one away again.

        Raises:
            FileNotFoundError: it does not exist and `make` is false.

        """
        path = os.path.join(self.path, name)
        flags = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
        try:
            try:
                descriptor = os.open(name, flags, dir_fd=self.fd)
            except FileNotFoundError:
                if not make:
                    raise
                self._mkdir(name, sync=sync)
                descriptor = os.open(name, flags, dir_fd=self.fd)
        except FileNotFoundError as error:
            if not make:
                raise
            raise translated(error, path) from error
        except OSError as error:
            raise translated(error, path) from error
        if not self.anybodys:
            return self._checked(path, descriptor)
        folder = Folder(path, descriptor)
        folder.anybodys = True
        return folder

    def _mkdir(self, name: str, *, sync: bool) -> None:
        crash.point("folder.make")
        try:
            os.mkdir(name, _FOLDER_MODE, dir_fd=self.fd)
        except FileExistsError:
            return
        if crash.observed():
            made = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            crash.observe("mkdir", parent=self.inode, name=name, inode=made.st_ino)
        if sync:
            self.sync()

    @property
    def inode(self) -> int:
        """Inode number of the folder."""
        return status_of(self.fd, self.path).st_ino

    def names(self) -> list[str]:
        """Names in the folder, sorted."""
        try:
            return sorted(os.listdir(self.fd))
        except OSError as error:
            raise translated(error, self.path) from error

    def stat(self, name: str) -> os.stat_result | None:
        """Status of an entry itself (never of what it points to), or None if there is none."""
        try:
            return os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise translated(error, os.path.join(self.path, name)) from error

    def open_file(self, name: str, flags: int) -> int:
        """Open a private regular file; a new one (O_CREAT) gets mode 0600.

        Raises:
            FileNotFoundError, FileExistsError: as the flags ask.
            UnsafeFile: a link, another kind of file, not ours, or open to others.

        """
        path = os.path.join(self.path, name)
        while True:
            descriptor, status = self._open_checked(path, name, flags)
            there = status if status.st_nlink else self.stat(name)
            if there is not None and there.st_ino == status.st_ino:
                break
            # It lost its name between the two calls: the one that has it now is meant, if any.
            os.close(descriptor)
        if flags & os.O_EXCL and crash.observed():
            crash.observe("create", parent=self.inode, name=name, inode=status.st_ino)
        return descriptor

    def _open_checked(self, path: str, name: str, flags: int) -> tuple[int, os.stat_result]:
        try:
            crash.point("file.open")
            descriptor = os.open(name, flags | _NO_FOLLOW, _FILE_MODE, dir_fd=self.fd)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            raise translated(error, path) from error
        try:
            status = status_of(descriptor, path)
            if not self.anybodys:
                _check_private(path, status)
            if not stat.S_ISREG(status.st_mode):
                raise UnsafeFile(path, "not a regular file")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor, status

    def open_or_create(self, name: str) -> int:
        """Open a private file for reading and writing, creating it empty where missing."""
        try:
            return self.open_file(name, os.O_RDWR)
        except FileNotFoundError:
            pass
        try:
            return self.open_file(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return self.open_file(name, os.O_RDWR)

    def read(self, name: str, limit: int) -> bytes:
        """At most `limit` bytes of a small file."""
        descriptor = self.open_file(name, os.O_RDONLY)
        try:
            return read_at(descriptor, limit, 0)
        except OSError as error:
            raise translated(error, os.path.join(self.path, name)) from error
        finally:
            os.close(descriptor)

    def create(self, name: str, data: bytes | Iterable[bytes]) -> None:
        """Create a new private file with `data` (in parts), synced; the folder is not synced.

        Raises:
            FileExistsError: the name is taken.

        """
        descriptor = self.open_file(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        path = os.path.join(self.path, name)
        parts = iter((data,) if isinstance(data, bytes) else data)
        try:
            offset = 0
            # What the source of the parts raises is not the file system's.
            for part in parts:
                _translating(path, write_at, descriptor, part, offset)
                offset += len(part)
            _translating(path, sync_file, descriptor, data_only=False)
        except BaseException:
            self.remove(name)
            raise
        finally:
            os.close(descriptor)

    def replace(self, name: str, data: bytes) -> None:
        """Put `data` at `name` in one step: a reader sees the old file or the new one, whole."""
        temporary = f".{name}.{SYSTEM.token()}"
        self.create(temporary, data)
        self.move(temporary, self, name)
        self.sync()

    def move(self, name: str, target: "Folder", new_name: str) -> None:
        """Rename an entry into `target`; neither folder is synced.

        Raises:
            FileExistsError: the target is a folder that is not empty.

        """
        try:
            crash.point("move.before")
            os.rename(name, new_name, src_dir_fd=self.fd, dst_dir_fd=target.fd)
            if crash.observed():
                crash.observe(
                    "rename",
                    source=self.inode,
                    name=name,
                    target=target.inode,
                    new_name=new_name,
                )
            crash.point("move.after")
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(error.errno, error.strerror, new_name) from error
            raise translated(error, os.path.join(target.path, new_name)) from error

    def remove(self, name: str) -> None:
        """Remove a file, or an empty folder, that is perdure's own; missing is fine."""
        status = self.stat(name)
        if status is None:
            return
        try:
            crash.point("remove.before")
            if stat.S_ISDIR(status.st_mode):
                os.rmdir(name, dir_fd=self.fd)
            else:
                os.unlink(name, dir_fd=self.fd)
            if crash.observed():
                crash.observe("remove", parent=self.inode, name=name)
        except FileNotFoundError:
            # Somebody else was faster.
            return
        except OSError as error:
            raise translated(error, os.path.join(self.path, name)) from error

    def remove_tree(self, name: str) -> None:
        """Remove an entry of this folder with all it holds; links are removed, never followed.

        What a crash leaves of it is a part of it: rename it out of sight first.
        """
        status = self.stat(name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            # What is removed need not be private, only no link; others may be removing it as well.
            with suppress(FileNotFoundError), self._any_child(name) as folder:
                for entry in folder.names():
                    folder.remove_tree(entry)
        self.remove(name)

    def _any_child(self, name: str) -> "Folder":
        path = os.path.join(self.path, name)
        flags = os.O_RDONLY | os.O_DIRECTORY | _NO_FOLLOW
        try:
            return Folder(path, os.open(name, flags, dir_fd=self.fd))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise translated(error, path) from error

    def remove_if_empty(self, name: str) -> None:
        """Remove an empty folder; one that holds something stays."""
        try:
            with self.child(name) as folder:
                if folder.names():
                    return
        except FileNotFoundError:
            return
        # Whoever fills it meanwhile makes this fail, which is as well.
        with suppress(PerdureError):
            self.remove(name)

    def sync(self) -> None:
        """Make entries of this folder durable."""
        try:
            crash.point("folder.sync")
            sync_file(self.fd, data_only=False)
        except OSError as error:
            raise translated(error, self.path) from error

    def __enter__(self) -> Self:
        """Use the folder as a context."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()


def _translating(path: str, call: Callable[P, None], *args: P.args, **options: P.kwargs) -> None:
    try:
        call(*args, **options)
    except OSError as error:
        raise translated(error, path) from error


def _make_parents(path: str) -> None:
    """Create the folders above a root, each durable before the next; they get the usual mode."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        _make_parent(folder)


def _make_parent(path: str) -> None:
    crash.point("folder.parents")
    with suppress(FileExistsError):
        os.mkdir(path)
    parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if crash.observed():
            made, holder = os.stat(path), os.fstat(parent)
            crash.observe(
                "mkdir",
                parent=holder.st_ino,
                name=os.path.basename(path),
                inode=made.st_ino,
            )
        sync_file(parent, data_only=False)
    finally:
        os.close(parent)
