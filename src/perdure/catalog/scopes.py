"""Which sessions, and which passages, a question is about."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

__all__ = ["Filters", "Scope"]


class Filters(NamedTuple):
    """Which sessions: those that satisfy everything that is given.

    Attributes:
        ids: one of these.
        without: none of these.
        agents: one of these agents took part.
        programs: of one of these programs.
        cwd: at work in this folder, or below it.
        statuses: in one of these.
        relations: in one of these to another session; "" is for none.
        presets: made from one of these.
        parents: come from one of these sessions.
        since, until: last active at or after, and before, Unix milliseconds.
        problem: whether something is wrong with it, or some records are not indexed.
        archived: whether it was put away.
        projection: members of the projection, as JSON pointers (RFC 6901), and their values.
        top: only those that are no sub-agents of a session that is listed.

    """

    ids: Collection[str] | None = None
    without: Collection[str] = ()
    agents: Collection[str] | None = None
    programs: Collection[str] | None = None
    cwd: str | None = None
    statuses: Collection[str] | None = None
    relations: Collection[str] | None = None
    presets: Collection[str] | None = None
    parents: Collection[str] | None = None
    since: int | None = None
    until: int | None = None
    problem: bool | None = None
    archived: bool | None = None
    projection: Sequence[tuple[str, str | int | float | bool | None]] = ()
    top: bool = False


class Scope(NamedTuple):
    """Which passages: those that satisfy everything that is given.

    Attributes:
        sessions: those of these sessions; its `since` and `until` are not looked at.
        kinds: of one of these kinds.
        agents: of one of these agents; None among them is the agent without a name.
        since, until: said at or after, and before, Unix milliseconds.

    """

    sessions: Filters = Filters()
    kinds: Collection[str] | None = None
    agents: Collection[str | None] | None = None
    since: int | None = None
    until: int | None = None
