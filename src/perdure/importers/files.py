"""Source files: found without following links, opened read-only, never locked or written."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

__all__ = [
    "Fingerprint",
    "Found",
    "NoSourceError",
    "SourceFile",
    "UnreadableSourceError",
    "find_sources",
    "fingerprint_of",
    "is_gone",
]

_WINDOW_BYTES = 256 * 1024


class UnreadableSourceError(Exception):
    """The system does not let a source be read. Internal: it becomes an error of its report."""


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
            UnreadableSourceError: missing, or refused by the system.

        """
        self.path = path
        try:
            # A pipe would keep an open without O_NONBLOCK waiting for its other end.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if os.path.islink(path):  # noqa: PTH114
                raise NoSourceError("a symbolic link; name the file itself") from error
            raise UnreadableSourceError(error.strerror or str(error)) from error
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(self._fd)
            raise NoSourceError("not a regular file")
        self.fingerprint = _fingerprint(status)
        self._base, self._window = 0, b""

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
        return self._window[start - self._base : start - self._base + size]

    @property
    def untouched(self) -> bool:
        """Whether nothing was written to it since it was opened."""
        return self.fingerprint == _fingerprint(os.fstat(self._fd))

    def digest(self, size: int, start: int = 0) -> str | None:
        """SHA-256 of `size` bytes from `start`, 64 hex digits; None if there are not so many.

        Raises:
            UnreadableSourceError: the system cannot read it.

        """
        found, at, end = hashlib.sha256(), start, start + size
        while at < end:
            step = self.read(at, min(_WINDOW_BYTES, end - at))
            if not step:
                return None
            found.update(step)
            at += len(step)
        return found.hexdigest()

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
    except OSError:
        return None
    return _fingerprint(status) if stat.S_ISREG(status.st_mode) else None


def is_gone(path: str) -> bool:
    """Whether nothing is there any more; False where the system does not tell."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
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


def find_sources(paths: Iterable[str], matches: Callable[[str], bool]) -> Iterator[Found]:
    """The files that `paths` name, and those in folders whose path `matches`; each once, in order.

    Symbolic links are not followed: a link is given out with that reason.
    """
    seen: set[str] = set()
    for given in paths:
        path = os.path.abspath(given)  # noqa: PTH100
        folder = os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114
        for found in _walk(path, matches) if folder else [Found(path, named=True)]:
            if found.path not in seen:
                seen.add(found.path)
                yield found


def _walk(folder: str, matches: Callable[[str], bool]) -> Iterator[Found]:
    refused: list[OSError] = []
    for where, below, names in os.walk(folder, onerror=refused.append):
        below.sort()
        for name in sorted(names):
            path = os.path.join(where, name)  # noqa: PTH118
            if matches(path):
                yield Found(path, named=False)
    for error in refused:
        yield Found(str(error.filename), named=False, refused=error.strerror or str(error))
