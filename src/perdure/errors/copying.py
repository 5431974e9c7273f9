"""What stands in the way of a copy."""

from perdure.errors.tree import PerdureError

__all__ = ["SessionDiverged"]


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
