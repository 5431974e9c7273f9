"""Which passages: a scope as lexemes for the index, and as conditions on rows.

Lexemes may let more through than the scope does; a condition says the rest.
"""

from hashlib import md5
from typing import NamedTuple

from perdure.catalog.contract import Filters, Scope
from perdure.catalog.postgres.filters import chosen, few, source_of
from perdure.catalog.postgres.lexemes import all_of, any_of, lexeme
from perdure.catalog.postgres.statements import Statement, ask, sql
from perdure.databases.cells import BIGGEST, cell, clamped
from perdure.databases.postgres.catalog_tables import MARK, STRETCHES
from perdure.databases.postgres.keys import within
from perdure.databases.postgres.work import Work

__all__ = ["Scoped", "scoped", "session_lexemes", "sessions_of"]

SESSIONS_MAX = 16
"""So many sessions are named by their lexemes; of more, each row is asked for its session."""

_TIME_END = 1 << 43


class Scoped(NamedTuple):
    """A scope in one namespace.

    Attributes:
        namespace: as it stands in keys.
        lexemes: parts of a `tsquery`, all of which a passage satisfies.
        where: a condition on `@catalog_passages AS p` besides. It does not name the namespace, by
            which the planner would rather go than by words.
        few: how many passages its sessions have, if they are few.

    """

    namespace: str
    lexemes: tuple[str, ...]
    where: Statement
    few: int | None

    @property
    def whole(self) -> Statement:
        """The scope where nothing is looked for in the index of words."""
        return sql(Statement("p.namespace = %s AND", (self.namespace,)), self.where)

    def match(self, wanted: str, window: str | None) -> str:
        """The `tsquery` for passages in the scope, in a window of its namespace if there is one."""
        whose = window or lexeme(f"{MARK}n{self.namespace}")
        return all_of([wanted, whose, *self.lexemes])


def scoped(work: Work, namespace: str, scope: Scope) -> Scoped | None:
    """The scope; None if nothing is in it."""
    own = within(namespace)
    made = Scoped(
        own,
        (),
        Statement("true"),
        None,
    )
    with_sessions = _sessions(work, made, namespace, scope.sessions)
    if with_sessions is None:
        return None
    made = with_sessions
    if scope.kinds is not None:
        made = _kinds(made, [cell(each) for each in scope.kinds])
    if scope.agents is not None:
        made = _agents(made, [None if each is None else cell(each) for each in scope.agents])
    if scope.since is not None and scope.since > BIGGEST:
        return None
    # Before a time that no column holds is everything.
    until = None if scope.until is None or scope.until > BIGGEST else clamped(scope.until)
    return _times(made, None if scope.since is None else clamped(scope.since), until)


def session_lexemes(sessions: list[int]) -> str:
    """The `tsquery` for passages of some sessions."""
    return any_of(lexeme(f"{MARK}s{number}") for number in sessions) if sessions else "''"


def sessions_of(work: Work, namespace: str, filters: Filters) -> list[tuple[int, int]]:
    """Numbers of the sessions that the filters let through, and how many passages they have."""
    which = chosen(work, namespace, filters, times=False)
    source = source_of(which, few(work, which))
    return [
        (session, passages)
        for session, passages in ask(work, "SELECT s.session, s.passages FROM", source)
    ]


def _also(made: Scoped, where: Statement, *lexemes: str) -> Scoped:
    return made._replace(lexemes=(*made.lexemes, *lexemes), where=sql(made.where, "AND", where))


def _sessions(work: Work, made: Scoped, namespace: str, filters: Filters) -> Scoped | None:
    filters = filters._replace(since=None, until=None)
    if filters == Filters():
        return made
    if filters._replace(without=()) == Filters():
        found = sessions_of(work, namespace, Filters(ids=filters.without))
        numbers = [number for number, _ in found]
        if not numbers:
            return made
        where = Statement("p.session <> ALL(%s::bigint[])", (numbers,))
        few_enough = len(numbers) <= SESSIONS_MAX
        return _also(made, where, *([f"!{session_lexemes(numbers)}"] if few_enough else []))
    found = sessions_of(work, namespace, filters)
    if not found:
        return None
    numbers = [number for number, _ in found]
    made = made._replace(few=sum(passages for _, passages in found))
    where = Statement("p.session = ANY(%s::bigint[])", (numbers,))
    if len(numbers) <= SESSIONS_MAX:
        return _also(made, where, session_lexemes(numbers))
    # With the namespace, so that rows can be found by the index of sessions as well.
    return _also(made, sql(Statement("p.namespace = %s AND", (made.namespace,)), where))


def _kinds(made: Scoped, kinds: list[bytes]) -> Scoped:
    found = any_of(lexeme(f"{MARK}k{_short(each)}") for each in kinds) if kinds else None
    where = Statement("p.kind = ANY(%s::bytea[])", (kinds,))
    return _also(made, where, *([found] if found else []))


def _agents(made: Scoped, agents: list[bytes | None]) -> Scoped:
    named = [each for each in agents if each is not None]
    tokens = [lexeme(f"{MARK}a{_short(each)}") for each in named]
    where = Statement("p.agent = ANY(%s::bytea[])", (named,))
    if None in agents:
        tokens.append(lexeme(f"{MARK}a"))
        where = Statement(f"({where.text} OR p.agent IS NULL)", where.values)
    return _also(made, where, *([any_of(tokens)] if tokens else []))


def _short(raw: bytes) -> str:
    """As in the index; it need not be safe, since a condition says the rest."""
    return md5(raw, usedforsecurity=False).hexdigest()[:8]


def _times(made: Scoped, since: int | None, until: int | None) -> Scoped:
    if since is None and until is None:
        return made
    if since is not None:
        made = _also(made, Statement("p.time >= %s::bigint", (since,)))
    if until is not None:
        made = _also(made, Statement("p.time < %s::bigint", (until,)))
    first = max(0, since or 0)
    last = min(_TIME_END, _TIME_END if until is None else until)
    tokens = [lexeme(f"{MARK}t{bits}:{number}") for bits, number in _stretches(first, last)]
    # Times before 1970, and after 2248, are all in one.
    return _also(made, Statement("true"), any_of([*tokens, lexeme(f"{MARK}t")]))


def _stretches(first: int, last: int) -> list[tuple[int, int]]:
    """Stretches that together hold all times from `first` until before `last`: few and big ones."""
    found = []
    start, end = first >> STRETCHES[0], (last - 1 >> STRETCHES[0]) + 1
    for bits, above in zip(STRETCHES, (*STRETCHES[1:], None), strict=True):
        ratio = 1 << (above - bits) if above is not None else 1
        while start < end and (above is None or start % ratio):
            found.append((bits, start))
            start += 1
        while start < end and end % ratio:
            end -= 1
            found.append((bits, end))
        start, end = start // ratio, end // ratio
    return found
