"""What errors of the server and of the connection mean for those who call."""

import psycopg
from psycopg import errors

from perdure.errors import PerdureError, StorageFull, StorageUnavailable, UnsafeFile

__all__ = [
    "CopyRefused",
    "NotMade",
    "Unsure",
    "again",
    "changing",
    "lost",
    "meaning",
    "refused",
    "unmade",
    "unwritable",
]

_LOST_STATES = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25006", "53300", "55000"})
"""Shut down, crashed, starting, idle for too long, demoted, too many clients, in recovery."""

_AGAIN_STATES = frozenset({"40001", "40P01"})
"""The transaction was rolled back so that others could go on."""

_FULL_STATES = frozenset({"53100", "53200", "53400"})
"""No room on the disk, in memory, or within a limit that an administrator set."""


class NotMade(Exception):
    """The tables are not there: nothing was ever stored."""


class Unsure(Exception):
    """A commit was sent, and its answer was lost: it may have happened."""


class CopyRefused(errors.FeatureNotSupported):
    """There is no COPY into a table any more, because policies on its rows hold by now."""


def lost(error: BaseException) -> bool:
    """Whether the connection is of no use any more, while another one may serve."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InternalError):
        # Of the library itself: a connection that was closed under it.
        return isinstance(error, psycopg.InterfaceError | errors.ReadOnlySqlTransaction)
    state = error.sqlstate
    return state is None or state.startswith("08") or state in _LOST_STATES


_CHANGING = (
    "session is read-only",
    "hot standby mode",
    "starting up",
    "shutting down",
    "in recovery mode",
    "not yet accepting connections",
)


def changing(error: psycopg.Error) -> bool:
    """Whether a server is there that does not serve just now, as in the middle of a failover.

    By its words: what is told before there is a connection has no state.
    """
    said = str(error)
    return any(words in said for words in _CHANGING)


def refused(error: psycopg.Error) -> bool:
    """Whether the server said that the statement failed: then nothing of it is stored."""
    state = error.sqlstate
    return state is not None and not state.startswith(("08", "57P"))


def again(error: BaseException) -> bool:
    """Whether the same transaction may go well if it is tried again."""
    if isinstance(error, CopyRefused):
        # Another statement is taken the next time.
        return True
    return isinstance(error, psycopg.Error) and error.sqlstate in _AGAIN_STATES


def unmade(error: BaseException) -> bool:
    """Whether the tables are not there."""
    return isinstance(error, errors.UndefinedTable | errors.InvalidSchemaName)


def unwritable(error: BaseException) -> bool:
    """Whether the server takes no changes: it is a standby, or set so."""
    return isinstance(error, errors.ReadOnlySqlTransaction)


def meaning(error: psycopg.Error, place: str) -> PerdureError:
    """The error of the tree that stands for one of the driver.

    A message of libpq never holds the password; it names hosts, users and databases.
    """
    said = " ".join(str(error).split()) or type(error).__name__
    if error.sqlstate in _FULL_STATES:
        return StorageFull(place, f"PostgreSQL: {said}")
    if isinstance(error, errors.InsufficientPrivilege):
        # Without the statement that it points to.
        said = said.partition(" LINE 1:")[0]
        hint = "an owner of the tables grants it: `perdure postgres grant`"
        if "row-level security" in said:
            hint = (
                "this role does not see the namespace: name one that `perdure postgres tenants` "
                "shows for it, or let an owner call `perdure postgres tenant`"
            )
        return UnsafeFile(place, f"PostgreSQL: {said}", hint=hint)
    mistaken = next((hint for words, hint in _MISTAKES if words in said), None)
    # What is told before there is a connection has no state.
    if mistaken is not None and error.sqlstate is None:
        return StorageUnavailable(place, f"PostgreSQL: {said}", hint=mistaken)
    told = StorageUnavailable(place, f"PostgreSQL: {said}", hint=_hint(error))
    told.retryable = lost(error) or again(error) or isinstance(error, errors.LockNotAvailable)
    return told


_SECRETS = "see user and password; PGPASSFILE or a service file keeps them out of the URL"
_URL = "see the URL: postgresql://user@host:5432/database?parameter=value"
_MISTAKES = (
    ("password authentication failed", _SECRETS),
    ("no password supplied", _SECRETS),
    ("no pg_hba.conf entry", "the server lets nobody in like that: see its pg_hba.conf"),
    ("invalid port number", _URL),
    ("definition of service", "see the service file, and the name in the URL"),
    ("invalid integer value", _URL),
    ("invalid sslmode value", _URL),
    ("invalid target_session_attrs value", _URL),
    ("is not permitted to log in", "let it: ALTER ROLE … LOGIN; or name another one in the URL"),
    ("does not support SSL", "see `sslmode` in the URL, or switch it on in the server"),
    ('" does not exist', "create the role and the database, or name others in the URL"),
)


def _hint(error: psycopg.Error) -> str:
    if isinstance(error, errors.InvalidAuthorizationSpecification):
        return _SECRETS
    if isinstance(error, errors.InvalidCatalogName):
        return "create the database, or name another one in the URL"
    if unwritable(error):
        return "this server takes no changes; name the primary, or all hosts: host1,host2"
    if lost(error):
        return "see whether the server runs and takes connections from here; then try again"
    return "the message is the server's own"
