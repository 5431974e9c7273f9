"""The verdict over one session, for people and programs that ask whether all is well."""

import itertools
from collections.abc import Collection
from typing import Any, NamedTuple

from perdure.backends.base import Backend
from perdure.errors import (
    ContentDamaged,
    ContentExpired,
    PerdureError,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.model.record import Position
from perdure.recovery.walk import PROBLEMS_MAX, Problem
from perdure.store.content import content_of
from perdure.store.inspection import Inspection

__all__ = [
    "MINOR",
    "ContentReport",
    "Report",
    "intact",
    "missing",
    "unreadable",
    "verify_columns",
    "verify_content",
    "verify_session",
]

MINOR = frozenset({"noise", "column"})
"""Kinds of problems that keep nobody from reading or writing, and that a repair ends."""

_LOOKS = 3
"""How often content that is named and not found is looked for: it may go and come meanwhile."""

_UNSOUND = frozenset({"damaged", "missing", "unreadable", "unsafe", "unsupported"})


class ContentReport(NamedTuple):
    """What reading all content of one session found.

    Attributes:
        blobs: how many there are.
        size: bytes of all of them.
        damaged: digests of those whose bytes are other ones, cannot be read, or are not there
            though nothing says that they expired.
        unreadable: why nobody can say which there are, or None.
        expired: number of those that the log says have expired and that are not there.

    """

    blobs: int
    size: int
    damaged: tuple[str, ...]
    unreadable: str | None = None
    expired: int = 0

    @property
    def sound(self) -> bool:
        """Whether all of it is as it was put."""
        return not self.damaged and self.unreadable is None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "count": self.blobs,
            "bytes": self.size,
            "damaged": list(self.damaged),
            "unreadable": self.unreadable,
            "expired": self.expired,
        }


class Report(NamedTuple):
    """What a full reading of one session found.

    Attributes:
        session: its id.
        status: ok, running, torn, interrupted, damaged, missing (it was stored here and is not
            there any more), unreadable (the medium refused; try again), unsafe or unsupported.
        events: number of verified events.
        position: where the verified prefix ends; None without a readable header.
        closers: number of events that will close what was left open.
        problems: every place that does not hold together.
        later: number of intact events behind the damage, unverified.
        evidence: why nobody can tell whether records are missing at the end, or None.
        content: what became of its content; None where there is no session to have any.
        torn: a dead writer left a torn tail, which the next one sets aside; the status may say
            more.

    """

    session: str
    status: str
    events: int
    position: Position | None
    closers: int
    problems: list[Problem]
    later: int
    evidence: str | None = None
    content: ContentReport | None = None
    torn: bool = False

    @property
    def sound(self) -> bool:
        """False if something was changed or lost; a torn or interrupted session is sound."""
        minor = any(problem.kind in MINOR for problem in self.problems)
        content = self.content is None or self.content.sound
        return self.status not in _UNSOUND and not minor and content

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "session": self.session,
            "status": self.status,
            "sound": self.sound,
            "torn": self.torn,
            "events": self.events,
            "hash": self.position.hash if self.position is not None else None,
            "closers": self.closers,
            "later": self.later,
            "evidence": self.evidence,
            "content": self.content.as_dict() if self.content is not None else None,
            "problems": [problem._asdict() for problem in self.problems],
        }


def verify_session(found: Inspection) -> Report:
    """Read everything of one session."""
    session, status = found.id, found.status
    if found.header is None:
        later = sum(1 for _ in found.later())
        return Report(session, status, 0, None, 0, found.problems, later)
    problems, closers, torn = found.problems, len(found.closers), status == "torn"
    if found.damaged:
        status = "damaged"
    elif status in ("complete", "unterminated", "ahead"):
        status = "interrupted" if closers else "ok"
    elif status == "torn" and closers:
        status = "interrupted"
    walked = found.verified
    return Report(
        session,
        status,
        walked.seq + 1 if walked is not None else 0,
        walked,
        closers,
        problems,
        found.later_count,
        torn=torn,
    )


def verify_columns(backend: Backend, session: str) -> list[Problem]:
    """Where what the medium keeps to find records lies; nothing if the session is gone."""
    try:
        return list(itertools.islice(backend.disagreements(session), PROBLEMS_MAX))
    except SessionNotFound:
        return []


def verify_content(
    backend: Backend, session: str, expired: Collection[str]
) -> ContentReport | None:
    """Read every blob of a session; None if it is gone meanwhile.

    `expired` are digests of which the log says that they are gone; they may have been put again.
    """
    try:
        stored = list(backend.blobs(session))
    except SessionNotFound:
        return None
    except PerdureError as error:
        return ContentReport(0, 0, (), error.message)
    size = sum(blob.size for blob in stored)
    try:
        damaged = [blob.digest for blob in stored if not intact(backend, session, blob.digest)]
    except SessionNotFound:
        return None
    except PerdureError as error:
        return ContentReport(len(stored), size, (), error.message)
    gone = len({*expired} - {blob.digest for blob in stored})
    return ContentReport(len(stored), size, tuple(damaged), expired=gone)


def intact(backend: Backend, session: str, digest: str) -> bool:
    """Whether content is as it was put, and there if it is said to be."""
    for _ in range(_LOOKS):
        try:
            for _ in content_of(backend, session, digest):
                pass
        except ContentExpired:
            # Meanwhile, which is no damage; or it was put again since, and the next look finds it;
            # or it lies beside a bundle, and is not there.
            if digest not in {blob.digest for blob in backend.blobs(session)}:
                return True
        except (ContentDamaged, UnsafeFile):
            return False
        else:
            return True
    return False


def missing(session: str, position: Position) -> Report:
    """The report of a session that is remembered and not there."""
    reason = f"its log is not there any more; events up to {position.seq} were acknowledged"
    problem = Problem("missing-log", 0, 0, 0, reason)
    return Report(session, "missing", 0, None, 0, [problem], 0)


def unreadable(session: str, error: PerdureError) -> Report:
    """The report of a session that could not even be opened."""
    kind, status = "header", "damaged"
    if isinstance(error, UnsafeFile):
        status = "unsafe"
    elif isinstance(error, StorageUnavailable | StorageFull):
        # It says nothing about the session.
        kind, status = "unreadable", "unreadable"
    problem = Problem(kind, None, 0, 0, error.message)
    return Report(session, status, 0, None, 0, [problem], 0)
