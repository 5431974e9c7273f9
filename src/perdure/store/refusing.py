"""The error that refuses a session."""

from perdure.backends.base import Stored
from perdure.errors import SessionDamaged
from perdure.recovery.walk import Problem

__all__ = ["damage"]


def damage(session: str, stored: Stored, problem: Problem | None = None) -> Exception:
    """The error that refuses a session, from what was found."""
    if stored.unsupported is not None:
        return stored.unsupported
    problem = stored.problem or problem
    if problem is None:
        return SessionDamaged(session, "it does not hold together")
    return SessionDamaged(
        session,
        problem.reason,
        kind=problem.kind,
        record=problem.record,
        start=problem.start,
        end=problem.end,
    )
