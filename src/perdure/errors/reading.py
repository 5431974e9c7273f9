"""What is stored does not hold together, or is not there any more."""

from perdure.errors.tree import PerdureError

__all__ = ["ContentDamaged", "ContentExpired", "SessionDamaged"]


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
