"""What the errors of SQLite mean: damage, a file to come back to, or an error of the tree."""

import os

import apsw

from perdure.durable.files import translated
from perdure.errors import StorageFull, StorageUnavailable

__all__ = ["NONSENSE", "Moved", "Nonsense", "Unread", "busy", "meaning", "replaced"]

# Our statements are right: one that is no SQL to the file is damage, too. Nobody interrupts them
# but whoever sees that they lead in circles.
NONSENSE = (apsw.CorruptError, apsw.NotADBError, apsw.SQLError, apsw.InterruptError)
"""What SQLite says of a file that is damaged, and what `sql.py` says of tables and rows."""


class Nonsense(Exception):
    """The file makes no sense."""


class Unread(Exception):
    """The file may be sound, and a reader cannot read it as it is."""


class Moved(Exception):
    """The file at the name is another one by now."""


def busy(path: str, seconds: float) -> StorageUnavailable:
    """Others had the file for so long; the same call may succeed later."""
    error = StorageUnavailable(
        path,
        f"was used by others for more than {seconds:g} s",
        hint="try again; if it stays so, look for a process that was stopped",
    )
    error.retryable = True
    return error


def replaced(path: str) -> StorageUnavailable:
    """The file was another one each time; the same call may succeed later."""
    error = StorageUnavailable(path, "was replaced again and again", hint="see who replaces it")
    error.retryable = True
    return error


def meaning(error: apsw.Error, errno: int, path: str, wait_ms: int) -> Exception:
    """What an error of SQLite means for the operation."""
    reason = str(error) or type(error).__name__
    if isinstance(error, apsw.InterruptError):
        reason = "its pages lead in circles"
    if isinstance(error, NONSENSE):
        return Nonsense(reason)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return busy(path, wait_ms / 1000)
    if isinstance(error, apsw.FullError):
        return StorageFull(path, reason)
    code = getattr(error, "extendedresult", 0)
    if code == apsw.SQLITE_READONLY_ROLLBACK:
        return Unread("a writer died in a commit, which the next writer rolls back")
    if code == apsw.SQLITE_READONLY_DBMOVED:
        return Moved()
    if errno:
        return translated(OSError(errno, os.strerror(errno)), path)
    return StorageUnavailable(path, reason)
