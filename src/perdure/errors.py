"""The one error tree: what went wrong, where, what to do, and whether trying again can help.

Every error that leaves perdure descends from `PerdureError`. Each class carries its facts as
attributes, a `hint` that says what to do, and `retryable`: whether the same call may succeed later
without anybody changing anything. Errors of the operating system and of libraries are translated at
the edge where they occur and kept as `__cause__`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

__all__ = [
    "ContentDamaged",
    "ContentExpired",
    "EffectFailed",
    "EffectUnknown",
    "FormatUnsupported",
    "InvalidValue",
    "KeyConflict",
    "PerdureError",
    "PersistenceDisabled",
    "PresetUnknown",
    "SessionBusy",
    "SessionClosed",
    "SessionDamaged",
    "SessionDiverged",
    "SessionExists",
    "SessionNotFound",
    "StaleWriter",
    "StorageFull",
    "StorageUnavailable",
    "StoreClosed",
    "UnsafeFile",
    "WorkspaceMissing",
]


class PerdureError(Exception):
    """Root of the tree. `code` is stable for programs, the message is for people."""

    code: ClassVar[str] = "error"
    retryable: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message and the hint apart, so that a caller can show either."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and crosses to other processes with all its facts."""
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))

    def __str__(self) -> str:
        """The message, then the hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


def _clock(ms: int) -> str:
    """A time for people, in UTC."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _rebuild(kind: type[PerdureError], message: str, facts: dict[str, Any]) -> PerdureError:
    error = kind.__new__(kind, message)
    error.__dict__.update(facts)
    return error


# --- configure and call -------------------------------------------------------------------------


class InvalidValue(PerdureError):
    """A value handed in cannot be kept as it is. `path` leads to the offending part."""

    code = "invalid-value"

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        """Name the offender by its path, as in `data.items[3].score`."""
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class PersistenceDisabled(PerdureError):
    """The store was opened with `none:`, so there is nothing to read or resume."""

    code = "persistence-disabled"

    def __init__(self, operation: str) -> None:
        """Say which operation needs a real store."""
        super().__init__(
            f"{operation} needs stored sessions, and persistence is switched off (none:)",
            hint="give a store with a path: perdure.open('~/.perdure'), `perdure --store PATH`",
        )
        self.operation = operation


_BRING_BACK = (
    "bring its folder back; if it is gone for good, store.forget(id) or `perdure forget` says so "
    "and frees the id"
)
_LIST = "list the sessions with store.list() or `perdure ls`"


# --- open ---------------------------------------------------------------------------------------


class SessionNotFound(PerdureError):
    """No session of that id is stored here.

    `deleted_at` (Unix ms): it is in the trash, or was. `missing`: it was stored here, up to this
    event, and is gone though nobody deleted it. `session` is "" where the last one was asked for.
    """

    code = "session-not-found"

    def __init__(
        self, session: str, *, deleted_at: int | None = None, missing: int | None = None
    ) -> None:
        """Name the id that was asked for."""
        message, hint = f"no session {session!r} in this store", _LIST
        if not session:
            message = "there is no session yet in this store, or none that can be read"
            hint = "store.create() makes one; `perdure --store PATH` looks in another store"
        elif deleted_at is not None:
            message = f"session {session!r} was deleted at {_clock(deleted_at)}"
            hint = "store.restore(id) or `perdure restore` brings it back while it is in the trash"
        elif missing is not None:
            message = f"session {session!r} was stored here, up to event {missing}, and is gone"
            hint = _BRING_BACK
        super().__init__(message, hint=hint)
        self.session = session
        self.deleted_at = deleted_at
        self.missing = missing


class WorkspaceMissing(PerdureError):
    """The folder that a session works in is not there, so it is not resumed; nothing was done."""

    code = "workspace-missing"

    def __init__(self, session: str, cwd: str) -> None:
        """Name the folder."""
        super().__init__(
            f"the working directory {cwd!r} of session {session!r} is not there",
            hint="bring it back, or say where it is now: resume(id, cwd=…)",
        )
        self.session = session
        self.cwd = cwd


class PresetUnknown(PerdureError):
    """There is no such preset. `session` is None where a new session was to be made with it."""

    code = "preset-unknown"

    def __init__(self, session: str | None, preset: str | None, known: Sequence[str] = ()) -> None:
        """Name the preset, and those that there are."""
        there = ", ".join(repr(name) for name in known) or "none"
        message = f"there is no preset {preset!r}"
        if session is not None:
            message = f"session {session!r} was made with the preset {preset!r}; {message}"
        super().__init__(message, hint=f"presets here: {there}")
        self.session = session
        self.preset = preset
        self.known = tuple(known)


class SessionExists(PerdureError):
    """The id is taken: another writer's first durable append came before.

    `deleted_at` (Unix ms): by a deleted session, which nothing brings back unasked. `missing`: by
    one that was stored here, up to this event, and is gone though nobody deleted it.
    """

    code = "session-exists"

    def __init__(
        self, session: str, *, deleted_at: int | None = None, missing: int | None = None
    ) -> None:
        """Name the id that is taken."""
        message = f"a session {session!r} exists already"
        hint = "choose another id; store.resume(id) goes on with it, `perdure show` shows it"
        if deleted_at is not None:
            message = f"session {session!r} was deleted at {_clock(deleted_at)} and keeps its id"
            hint = (
                "store.restore(id) or `perdure restore` brings it back; once the trash is emptied, "
                "store.forget(id) or `perdure forget` frees the id"
            )
        elif missing is not None:
            message = f"session {session!r} was stored here, up to event {missing}, and is gone"
            hint = _BRING_BACK
        super().__init__(message, hint=hint)
        self.session = session
        self.deleted_at = deleted_at
        self.missing = missing


class SessionBusy(PerdureError):
    """Another writer holds the session. `pid`, `host` and `since` (Unix ms) are what it said."""

    code = "session-busy"
    retryable = True

    def __init__(
        self,
        session: str,
        *,
        pid: int | None = None,
        host: str | None = None,
        since: int | None = None,
        here: bool = False,
        reentered: bool = False,
    ) -> None:
        """Say who writes, as far as the lock tells; `here`: it is this process.

        `reentered`: it is this very thread, which a signal interrupted.
        """
        who = "another writer"
        if pid is not None:
            when = "?" if since is None else _clock(since)
            who = f"{'this process, ' if here else ''}pid {pid} on {host} since {when}"
        hint = "reading never waits; to write, try again later; in programs wait=seconds does that"
        if here:
            hint = "use the session that is open, or close it first"
        if reentered:
            who = "this thread, which was interrupted in the middle of it"
            hint = "let a signal handler set a flag, and append when it has returned"
        super().__init__(f"session {session!r} is being written by {who}", hint=hint)
        self.session = session
        self.pid = pid
        self.host = host
        self.since = since
        self.here = here
        self.reentered = reentered


class FormatUnsupported(PerdureError):
    """Intact, but written in a format that this version does not read."""

    code = "format-unsupported"

    def __init__(self, what: str, *, found: object, supported: int) -> None:
        """Say in which direction the versions differ."""
        older = isinstance(found, int) and not isinstance(found, bool) and found < supported
        hint = (
            "it was written by an older perdure, whose format is not read any more"
            if older
            else "it was written by a newer perdure: upgrade perdure"
        )
        super().__init__(f"{what} has format {found!r}, supported is {supported}", hint=hint)
        self.what = what
        self.found = found
        self.supported = supported


class UnsafeFile(PerdureError):
    """A file of the store is not a private regular file of ours, so it is not opened."""

    code = "unsafe-file"

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        """Name the path and what is wrong with it."""
        super().__init__(f"{path}: {reason}", hint=hint or "see its owner, kind and mode (0600)")
        self.path = path
        self.reason = reason


# --- append -------------------------------------------------------------------------------------


class KeyConflict(PerdureError):
    """The same (type, key) was used before with other data or another turn. Nothing was written."""

    code = "key-conflict"

    def __init__(self, session: str, *, type: str, key: str, seq: int) -> None:  # noqa: A002
        """Point to the event that holds the key."""
        super().__init__(
            f"key {key!r} of {type!r} belongs to event {seq} of session {session!r}, "
            "which has other data or another turn",
            hint="use a new key for a new fact",
        )
        self.session = session
        self.type = type
        self.key = key
        self.seq = seq


class EffectUnknown(PerdureError):
    """An effect was begun and nothing says how it ended: it may have happened, in full or in part.

    `attempt` counts from 1, `begun_at` (Unix ms) is when it began.
    """

    code = "effect-unknown"

    def __init__(self, session: str, key: str, *, attempt: int = 1, begun_at: int) -> None:
        """Name the effect by its key."""
        super().__init__(
            f"effect {key!r} of session {session!r} was begun at {_clock(begun_at)}, and nothing "
            "says how it ended",
            hint=(
                "find out whether it happened, then say so with session.settle_effect(key, …); "
                "where repeating does no harm, once(…, retry=True) runs it again"
            ),
        )
        self.session = session
        self.key = key
        self.attempt = attempt
        self.begun_at = begun_at


class EffectFailed(PerdureError):
    """An effect failed before. `failure` and `reason` are the code and the message kept of that."""

    code = "effect-failed"

    def __init__(self, session: str, key: str, *, failure: str, reason: str) -> None:
        """Name the effect by its key."""
        super().__init__(
            f"effect {key!r} of session {session!r} failed before: {failure}: {reason}",
            hint="once(…, retry=True) runs it again",
        )
        self.session = session
        self.key = key
        self.failure = failure
        self.reason = reason


class StaleWriter(PerdureError):
    """Somebody else wrote behind this writer's back. `lost` are the events it could not store."""

    code = "stale-writer"

    def __init__(self, session: str, reason: str, *, lost: Sequence[Any] = ()) -> None:
        """Carry the events that were accepted and are not stored."""
        super().__init__(
            f"session {session!r} changed under this writer: {reason}",
            hint="open the session, or run the command, again; what is in .lost was not stored",
        )
        self.session = session
        self.reason = reason
        self.lost = tuple(lost)


class SessionClosed(PerdureError):
    """The writer was used after it was closed, or in a process that does not own it."""

    code = "session-closed"
    session: str | None

    def __init__(self, session: str, reason: str) -> None:
        """Say why this object can no longer write."""
        super().__init__(
            f"session {session!r}: {reason}",
            hint="open store and session again: perdure.open(…), store.writer(id)",
        )
        self.session = session
        self.reason = reason


class StoreClosed(SessionClosed):
    """The store was used after it was closed."""

    code = "store-closed"

    def __init__(self) -> None:
        """There is nothing to add."""
        PerdureError.__init__(self, "the store was closed", hint="open it again: perdure.open(…)")
        self.session = None
        self.reason = "the store was closed"


class StorageFull(PerdureError):
    """The disk, a quota or a size limit is exhausted. Nothing of the commit is kept."""

    code = "storage-full"
    retryable = True

    def __init__(self, path: str, reason: str) -> None:
        """Name the file that could not grow."""
        super().__init__(f"{path}: {reason}", hint="free some space and try again")
        self.path = path
        self.reason = reason


class StorageUnavailable(PerdureError):
    """The medium refused. `lost` are accepted events whose fate is unknown after a failed sync.

    With `uncertain`, what was to be stored may turn up all the same.
    """

    code = "storage-unavailable"
    uncertain = False

    def __init__(self, path: str, reason: str, *, hint: str = "", lost: Sequence[Any] = ()) -> None:
        """Name the file or address and what the system said."""
        super().__init__(f"{path}: {reason}", hint=hint or "see whether the folder can be written")
        self.path = path
        self.reason = reason
        self.lost = tuple(lost)


# --- copy ---------------------------------------------------------------------------------------


class SessionDiverged(PerdureError):
    """Two stores hold logs of one id, and neither is the beginning of the other.

    `seq` is the first event that differs, or None if they are two sessions: their headers differ.
    """

    code = "session-diverged"

    def __init__(self, session: str, seq: int | None) -> None:
        """Say where the two part."""
        message = f"session {session!r} went on differently in the two stores, from event {seq} on"
        hint = "both logs stay as they are; keep one of them in another namespace, or delete it"
        if seq is None:
            message = f"session {session!r} is another session in the destination"
            hint = "copy it into another namespace or another store"
        super().__init__(message, hint=hint)
        self.session = session
        self.seq = seq


# --- read and recover ---------------------------------------------------------------------------


class SessionDamaged(PerdureError):
    """The log does not hold together. `kind`, `record` and `start`/`end` (bytes) say where."""

    code = "session-damaged"

    def __init__(
        self,
        session: str,
        reason: str,
        *,
        kind: str = "record",
        record: int | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        """Say where the verified prefix ends and why."""
        hint = (
            "what is intact can still be read; store.repair(id) or `perdure repair` makes a new "
            "log of it and keeps this one aside"
        )
        if kind in ("missing-tail", "evidence"):
            hint = (
                "look for the newer copy first; if there is none, store.accept(id) or `perdure "
                "accept` makes this one the truth, and `perdure repair` says in it what is lost"
            )
        elif kind == "missing-log":
            hint = "bring its log back from a copy; `perdure rm` moves what is left to the trash"
        super().__init__(f"session {session!r} is damaged: {reason}", hint=hint)
        self.session = session
        self.reason = reason
        self.kind = kind
        self.record = record
        self.start = start
        self.end = end


class ContentExpired(PerdureError):
    """Content that is not stored any more: it expired, or was never put. The log is whole."""

    code = "content-expired"

    def __init__(self, session: str, digest: str) -> None:
        """Name the content by its SHA-256."""
        super().__init__(
            f"content {digest} of session {session!r} is not stored any more",
            hint="it expired, or was never put here; session.pin(digest) keeps what has to stay",
        )
        self.session = session
        self.digest = digest


class ContentDamaged(PerdureError):
    """Stored content whose bytes do not have the SHA-256 that names it."""

    code = "content-damaged"

    def __init__(self, session: str, digest: str, reason: str) -> None:
        """Name the content and what is wrong."""
        super().__init__(
            f"content {digest} of session {session!r} is damaged: {reason}",
            hint="put the same bytes again to mend it; the log does not depend on it",
        )
        self.session = session
        self.digest = digest
        self.reason = reason
