"""What stands in the way of an append, and of an effect."""

from collections.abc import Sequence
from typing import Any

from perdure.errors.tree import PerdureError, clock

__all__ = [
    "EffectFailed",
    "EffectUnknown",
    "KeyConflict",
    "SessionClosed",
    "StaleWriter",
    "StorageFull",
    "StorageUnavailable",
    "StoreClosed",
]


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
            f"effect {key!r} of session {session!r} was begun at {clock(begun_at)}, and nothing "
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
