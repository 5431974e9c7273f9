"""The errors that refuse a session."""

from perdure.backends.base import Stored
from perdure.errors import InvalidValue, SessionDamaged
from perdure.model.header import VOCABULARY, Header
from perdure.recovery.walk import Problem

__all__ = ["damage", "refuse_import"]


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


def refuse_import(header: Header) -> None:
    """Refuse to go on in a session that says what another agent's file says.

    Raises:
        InvalidValue: it was imported.

    """
    if header.source is not None and header.vocabulary != VOCABULARY:
        raise InvalidValue(
            "id",
            f"session {header.id!r} was imported from {header.source.format}",
            hint="fork it to go on here: store.fork(id) or `perdure fork`",
        )
