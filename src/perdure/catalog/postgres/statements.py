"""Statements made of parts."""

from typing import Any, NamedTuple

from perdure.databases.postgres.work import Work

__all__ = ["Statement", "ask", "sql"]


class Statement(NamedTuple):
    """A piece of SQL that stands in our modules alone, and what is bound to its places."""

    text: str
    values: tuple[Any, ...] = ()


def sql(*parts: str | Statement) -> Statement:
    """Pieces one behind the other."""
    made = [Statement(part) if isinstance(part, str) else part for part in parts]
    values = [value for part in made for value in part.values]
    return Statement(" ".join([part.text for part in made]), tuple(values))


def ask(work: Work, *parts: str | Statement) -> list[tuple[Any, ...]]:
    """All rows of an answer."""
    statement = sql(*parts)
    return work.rows(statement.text, *statement.values)
