"""Source files: found without following links, opened read-only, never locked or written.

Only what somebody names, a person or the settings of an agent, may lead through links: it is
resolved once, before anything below it is looked at.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

from perdure.errors import InvalidValue
from perdure.model import values

__all__ = [
    "Fingerprint",
    "Found",
    "NoSourceError",
    "SourceFile",
    "UnreadableSourceError",
    "VanishedSourceError",
    "find_sources",
    "fingerprint_of",
    "is_folder",
    "is_gone",
    "path_list",
    "resolved",
]

_WINDOW_BYTES = 256 * 1024
_NO_PATH = "no path of this system: it has a NUL, or characters that no file name can have"


class UnreadableSourceError(Exception):
    """The system does not let a source be read. Internal: it becomes an error of its report."""


class VanishedSourceError(UnreadableSourceError):
    """Nothing is at the path of a source (any more)."""


class NoSourceError(Exception):
    """A path that is no file to import. Internal: it becomes a reason in a report."""


class Fingerprint(NamedTuple):
    """What the system says of a file; nothing was written to it while this stays the same.

    The time of the last change is part of it: the time of the last modification can be set back.
    """

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


class SourceFile:
    """An open source, read at any place; a window of it is kept, since most reads go forward.

    Attributes:
        path: as given.
        fingerprint: as it was when it was opened.

    """

    def __init__(self, path: str) -> None:
        """Open it.

        Raises:
            NoSourceError: a symbolic link, or no regular file.
            VanishedSourceError: nothing is there.
            UnreadableSourceError: refused by the system, or no path of this system.

        """
        self.path = path
        try:
            # A pipe would keep an open without O_NONBLOCK waiting for its other end.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except ValueError as error:
            raise UnreadableSourceError(_NO_PATH) from error
        except OSError as error:
            if os.path.islink(path):  # noqa: PTH114
                raise NoSourceError(_link(path)) from error
            missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            kind = VanishedSourceError if missing else UnreadableSourceError
            raise kind(error.strerror or str(error)) from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise NoSourceError("not a regular file")
        self.fingerprint = _fingerprint(status)
        self._base, self._window = 0, b""
        # What was read from the beginning on without a gap, and its sum.
        self._summed, self._sum = 0, hashlib.sha256()

    def read(self, start: int, size: int) -> bytes:
        """`size` bytes from `start`, fewer only at the end of the file as it was when opened.

        Raises:
            UnreadableSourceError: the system cannot read it.

        """
        size = max(min(size, self.fingerprint.size - start), 0)
        if not self._base <= start <= start + size <= self._base + len(self._window):
            try:
                self._base, self._window = start, os.pread(self._fd, _WINDOW_BYTES + size, start)
            except OSError as error:
                raise UnreadableSourceError(error.strerror or str(error)) from error
        part = self._window[start - self._base : start - self._base + size]
        if start <= self._summed < start + len(part):
            self._sum.update(part[self._summed - start :])
            self._summed = start + len(part)
        return part

    def digest(self, size: int, start: int = 0) -> str | None:
        """SHA-256 of `size` bytes from `start`, 64 hex digits; None if there are not so many.

        Raises:
            UnreadableSourceError: the system cannot read it.

        """
        if not start and self._summed <= size:
            # Of what was read before, as it was read: the file may change meanwhile.
            return self._digest_on(size)
        found, at, end = hashlib.sha256(), start, start + size
        while at < end:
            step = self.read(at, min(_WINDOW_BYTES, end - at))
            if not step:
                return None
            found.update(step)
            at += len(step)
        return found.hexdigest()

    def _digest_on(self, size: int) -> str | None:
        while self._summed < size:
            if not self.read(self._summed, min(_WINDOW_BYTES, size - self._summed)):
                return None
        return self._sum.hexdigest()

    def close(self) -> None:
        """Close the descriptor; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()


def fingerprint_of(path: str) -> Fingerprint | None:
    """Of a regular file that is not opened for it; None if there is none, or a link."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return _fingerprint(status) if stat.S_ISREG(status.st_mode) else None


def is_gone(path: str) -> bool:
    """Whether nothing is there any more; False where the system does not tell."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


def is_folder(path: str) -> bool:
    """Whether a folder is there, and no link to one; False where the system does not tell."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _fingerprint(status: os.stat_result) -> Fingerprint:
    return Fingerprint(
        status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


class Found(NamedTuple):
    """A candidate for the import.

    Attributes:
        path: absolute path.
        named: the caller named this very file; otherwise a folder that holds it.
        refused: why the system does not let it be read, or None.

    """

    path: str
    named: bool
    refused: str | None = None


def path_list(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Paths as text.

    Raises:
        InvalidValue: it is a single one, whose characters would be taken for paths, or none; or one
            of them is empty, which would name the current folder.

    """
    given: object = paths
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        raise InvalidValue("paths", f"{values.shown(given)} is no list", hint="[path]")
    listed = [os.fspath(path) for path in paths]
    if "" in listed:
        hint = "a variable that is not set? `.` names the current folder"
        raise InvalidValue("paths", "an empty path names nothing", hint=hint)
    return listed


def find_sources(paths: Iterable[str], matches: Callable[[str], bool]) -> Iterator[Found]:
    """The files that `paths` name, and those in folders whose path `matches`; each once, in order.

    A folder that is named may be a symbolic link, and stand behind some. Below it none is followed:
    a link to a file that `matches`, or to a folder, is given out as it is, to be skipped.
    """
    seen: set[str] = set()
    for given in paths:
        path = resolved(given)
        folder = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        for found in _walk(path, matches) if folder else [Found(path, named=True)]:
            if found.path not in seen:
                seen.add(found.path)
                yield found


def resolved(path: str) -> str:
    """The absolute path by which a file or folder that somebody names is known.

    Symbolic links to folders are resolved; one to a file stays, and so does what is no path at all.
    """
    path = os.path.abspath(path)  # noqa: PTH100
    above, name = os.path.split(path)
    try:
        if os.path.isdir(path):  # noqa: PTH112
            return os.path.realpath(path)
        return os.path.join(os.path.realpath(above), name)  # noqa: PTH118
    except (OSError, ValueError):
        return path


def _link(path: str) -> str:
    """Why a symbolic link is no source."""
    if os.path.isdir(path):  # noqa: PTH112
        return "a symbolic link to a folder, which is not followed; name the folder itself"
    return "a symbolic link; name the file itself"


def _walk(folder: str, matches: Callable[[str], bool]) -> Iterator[Found]:
    refused: list[OSError] = []
    for where, below, names in os.walk(folder, onerror=refused.append):
        below.sort()
        for name in below:
            path = os.path.join(where, name)  # noqa: PTH118
            if os.path.islink(path):  # noqa: PTH114
                yield Found(path, named=False)
        for name in sorted(names):
            path = os.path.join(where, name)  # noqa: PTH118
            if matches(path):
                yield Found(path, named=False)
    for error in refused:
        # What somebody removes while it is looked through is not there: that is no failure.
        if isinstance(error, FileNotFoundError | NotADirectoryError) and error.filename != folder:
            continue
        yield Found(str(error.filename), named=False, refused=error.strerror or str(error))
