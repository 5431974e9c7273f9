"""One writer per session, across processes and threads; anybody may ask who it is.

The lock is an open-file-description lock on the file `lock`, which is never removed: it conflicts
between threads as well as between processes, goes away with the process whatever ends it, and can
be asked for without taking it. Where the system has no such lock, `flock` serves, and asking is
taking it for a moment. Who holds it stands in the text of the file.
"""

import contextlib
import errno
import fcntl
import os
import struct
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

from perdure.durable.files import Folder, translated, write_at
from perdure.errors import SessionBusy, SessionClosed
from perdure.model import values
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Holder", "Lock", "exclusive", "holder"]

_NAME = "lock"
_TEXT_BYTES_MAX = 1024
_LAYOUT = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length, pid (fcntl(2))."""

_SET: int | None = getattr(fcntl, "F_OFD_SETLK", None)
_GET: int | None = getattr(fcntl, "F_OFD_GETLK", None)
_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
_RETRY_SECONDS = 0.002
_RETRIES = 5
_EXCLUSIVE_SECONDS = 5.0


class Closable(Protocol):
    """Something open that belongs to a lock."""

    def close(self) -> None:
        """Close it; harmless when repeated."""


class Holder(NamedTuple):
    """Who writes a session, as far as the lock tells; all None if it tells nothing.

    Attributes:
        pid: process id.
        host: name of its machine.
        since: Unix milliseconds at which it took the lock.

    """

    pid: int | None = None
    host: str | None = None
    since: int | None = None


def _request(kind: int) -> bytes:
    return struct.pack(_LAYOUT, kind, os.SEEK_SET, 0, 0, 0)


def _take(descriptor: int) -> bool:
    try:
        if _SET is not None:
            fcntl.fcntl(descriptor, _SET, _request(fcntl.F_WRLCK))
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _give_back(descriptor: int) -> None:
    if _SET is not None:
        fcntl.fcntl(descriptor, _SET, _request(fcntl.F_UNLCK))
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _held(descriptor: int) -> bool:
    if _GET is not None:
        answer = fcntl.fcntl(descriptor, _GET, _request(fcntl.F_WRLCK))
        return bool(struct.unpack(_LAYOUT, answer)[0] != fcntl.F_UNLCK)
    if _take(descriptor):
        _give_back(descriptor)
        return False
    return True


def _read_text(descriptor: int) -> Holder:
    try:
        line = os.pread(descriptor, _TEXT_BYTES_MAX, 0).partition(b"\n")[0]
        text: Any = values.decode(line)
    except (ValueError, OSError):
        return Holder()
    if not isinstance(text, dict):
        return Holder()
    pid, host, since = text.get("pid"), text.get("host"), text.get("since")
    return Holder(
        pid if isinstance(pid, int) else None,
        host if isinstance(host, str) else None,
        since if isinstance(since, int) else None,
    )


def holder(folder: Folder, name: str = _NAME) -> Holder | None:
    """Who holds the lock `name` in `folder`, or None. Takes nothing and waits for nothing."""
    try:
        descriptor = folder.open_file(name, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return _read_text(descriptor) if _held(descriptor) else None
    except OSError as error:
        raise translated(error, os.path.join(folder.path, name)) from error
    finally:
        os.close(descriptor)


class Lock:
    """The writer's lock on one session, held until `release` or the end of the process."""

    def __init__(
        self,
        folder: Folder,
        session: str,
        *,
        name: str = _NAME,
        wait: float = 0.0,
        runtime: Runtime = SYSTEM,
    ) -> None:
        """Take the lock `name` in `folder`, waiting at most `wait` seconds.

        Raises:
            SessionBusy: somebody else holds it.
            FileNotFoundError: the folder was removed.

        """
        self._session = session
        self._name = name
        self._path = os.path.join(folder.path, name)
        self._runtime = runtime
        self._pid = runtime.pid()
        self._fd = -1
        self.companions: list[Closable] = []
        deadline = runtime.monotonic() + wait
        tries = 0
        while not self._try(folder):
            tries += 1
            if tries > _RETRIES and runtime.monotonic() >= deadline:
                who = holder(folder, name) or Holder()
                here = who.pid is not None and who.pid == runtime.pid()
                raise SessionBusy(session, pid=who.pid, host=who.host, since=who.since, here=here)
            runtime.sleep(_RETRY_SECONDS if tries <= _RETRIES else 10 * _RETRY_SECONDS)
        _open_locks.add(self)

    def _try(self, folder: Folder) -> bool:
        try:
            descriptor = folder.open_or_create(self._name)
            try:
                taken = _take(descriptor)
                # A lock on a file that is no longer the one at the name protects nothing.
                there = folder.stat(self._name)
                if taken and there is not None and there.st_ino == os.fstat(descriptor).st_ino:
                    self._sign(descriptor)
                    self._fd = descriptor
                    return True
            finally:
                if self._fd != descriptor:
                    os.close(descriptor)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise translated(error, self._path) from error
        return False

    def _sign(self, descriptor: int) -> None:
        who = Holder(self._pid, self._runtime.host(), self._runtime.now_ms())
        with contextlib.suppress(OSError):
            write_at(descriptor, values.encode(who._asdict()) + b"\n", 0)

    @property
    def owned(self) -> bool:
        """Whether this process holds it."""
        return self._fd >= 0 and self._pid == self._runtime.pid()

    def check(self) -> None:
        """Make sure that this process still holds the lock.

        Raises:
            SessionClosed: released, or inherited by a forked process.

        """
        if self._fd < 0:
            raise SessionClosed(self._session, "this writer was closed")
        if self._pid != self._runtime.pid():
            raise SessionClosed(self._session, "this writer belongs to the parent process")

    def release(self) -> None:
        """Give it back. In a forked child only the copy is closed, the parent keeps the lock."""
        if self._fd < 0:
            return
        own = self._pid == self._runtime.pid()
        # A signal at any place leaves a lock that is free, or that a second call gives back.
        try:
            if own:
                # Between the next holder's lock and its signature nobody shall read our name.
                with contextlib.suppress(OSError):
                    write_at(self._fd, b"\n", 0)
        finally:
            try:
                if own:
                    with contextlib.suppress(OSError):
                        _give_back(self._fd)
            finally:
                descriptor, self._fd = self._fd, -1
                os.close(descriptor)
                _open_locks.discard(self)

    def __del__(self) -> None:
        """A writer that was dropped without being closed must not block the next one."""
        if getattr(self, "_fd", -1) >= 0:
            self.release()

    def _forget_in_child(self) -> None:
        """A forked child keeps no copy: neither of the lock nor of the files it protects."""
        # The parent may have been closing one of them when it forked.
        for each in self.companions:
            with contextlib.suppress(OSError):
                each.close()
        descriptor, self._fd = self._fd, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


_open_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_copies() -> None:
    for lock in list(_open_locks):
        lock._forget_in_child()  # noqa: SLF001
    _open_locks.clear()


SYSTEM.at_fork(_close_copies)


@contextlib.contextmanager
def exclusive(descriptor: int, session: str) -> Iterator[None]:
    """Hold the file itself for the moment of one commit, so that compare-and-set is one step.

    It matters only where the session lock failed to keep a second writer out.

    Raises:
        SessionBusy: somebody has held the file for seconds, which no writer does.

    """
    # Other processes do not live by an injected clock.
    runtime, deadline = SYSTEM, None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if error.errno not in _TAKEN:
                raise translated(error, session) from error
        now = runtime.monotonic()
        deadline = now + _EXCLUSIVE_SECONDS if deadline is None else deadline
        if now >= deadline:
            raise SessionBusy(session)
        runtime.sleep(_RETRY_SECONDS)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
