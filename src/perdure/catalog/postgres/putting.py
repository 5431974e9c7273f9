"""What is known of a session, changed in one step."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.catalog.analysis import VERSION as ANALYSIS
from perdure.catalog.contract import Change, Listed
from perdure.catalog.members import members
from perdure.catalog.postgres.lexemes import kept as kept_tokens
from perdure.catalog.postgres.passages import Passages
from perdure.catalog.postgres.rows import NAME_BYTES_MAX, cold_cells, hot_cells
from perdure.catalog.rows import COLD, HOT, held, kept, listed_of, words_of
from perdure.databases.cells import cell, clamped, optional
from perdure.databases.postgres.keys import key, within
from perdure.databases.postgres.work import Work

__all__ = ["put", "put_note", "remove"]

_VERSION = (
    # 60 random bits: no counter, which a server that took over might give out once more.
    "('x0' || translate(substr(u.id, 1, 13) || substr(u.id, 16, 3), '-', ''))::bit(64)::bigint"
    " FROM (SELECT gen_random_uuid()::text AS id) AS u"
)
_COLD = ", ".join(f"s.{column}" for column in COLD)


class _Known(NamedTuple):
    """A session as it is there: its number, its columns `COLD`, and how it was read."""

    number: int
    cold: tuple[Any, ...]
    listed: Listed
    same_tokens: bool


def put(work: Work, namespace: str, change: Change, expected: int | None) -> int | None:
    """See `Catalog.put`; within a transaction."""
    own = within(namespace)
    found = _locked(work, own, change.listed.id)
    if (None if found is None else found[1]) != expected:
        return None
    listed = kept(change.listed)
    known = None if found is None else _known(found)
    if known is None:
        made = _insert(work, own, listed, change)
        if made is None:
            return None
        number, version = made
    else:
        number, version = known.number, 0
    anew = known is not None and not known.same_tokens
    old = None if known is None else known.listed
    _put_reading(work, own, number, listed, change)
    _put_title(work, own, number, None if anew else old, listed)
    _put_agents(work, own, number, () if old is None else old.agents, listed.agents)
    _put_members(work, own, number, old, listed)
    _put_keys(work, own, number, change, is_new=known is None)
    passages = Passages(work, own, number, listed.id)
    if anew:
        # What was said stays, and what it was cut into does not.
        passages.drop_all()
    passages.put(change, is_new=known is None or anew)
    if known is not None:
        version = _update(work, own, known, (listed, change, passages.more))
    elif passages.more:
        _count(work, own, number, passages.more)
    passages.count()
    return version


def _locked(work: Work, namespace: str, session: str) -> tuple[Any, ...] | None:
    """The row of a session and that of its reading, which nobody else changes from now on."""
    return work.row(
        f"SELECT s.session, s.version, r.analysis, r.listed, {_COLD}"  # noqa: S608 - ours
        " FROM @catalog_sessions AS s JOIN @catalog_readings AS r"
        " ON r.namespace = s.namespace AND r.session = s.session"
        " WHERE s.namespace = %s AND s.key = %s FOR UPDATE OF s",
        namespace,
        key(session),
    )


def _known(row: tuple[Any, ...]) -> _Known:
    number, _, analysis, listed, *cold = row
    return _Known(number, tuple(cold), listed_of(listed), analysis == ANALYSIS)


def _insert(work: Work, namespace: str, listed: Listed, change: Change) -> tuple[int, int] | None:
    """The number and version of a new session; None: another one was made meanwhile."""
    columns = ("namespace", "key", "id", "passages", *HOT, *COLD)
    row = (
        *(namespace, key(listed.id), cell(listed.id), 0),
        *hot_cells(listed, partial=change.partial, skipped=change.skipped),
        *cold_cells(listed, skipped=change.skipped),
    )
    places = ", ".join(["%s"] * len(columns))
    found = work.row(
        f"INSERT INTO @catalog_sessions ({', '.join(columns)}, version)"
        f" SELECT {places}, {_VERSION} ON CONFLICT (namespace, key) DO NOTHING"
        " RETURNING session, version",
        *row,
    )
    return None if found is None else (found[0], found[1])


def _update(work: Work, namespace: str, known: _Known, new: tuple[Listed, Change, int]) -> int:
    """The version of a session after a change, and so many more passages."""
    listed, change, more = new
    hot = hot_cells(listed, partial=change.partial, skipped=change.skipped)
    cold = cold_cells(listed, skipped=change.skipped)
    columns, row = (HOT, hot) if cold == known.cold else ((*HOT, *COLD), (*hot, *cold))
    changes = ", ".join(f"{column} = %s" for column in columns)
    ((version,),) = work.rows(
        f"UPDATE @catalog_sessions SET {changes}, passages = passages + %s::bigint,"  # noqa: S608
        f" version = (SELECT {_VERSION})"
        " WHERE namespace = %s AND session = %s RETURNING version",
        *(*row, more, namespace, known.number),
    )
    return int(version)


def _count(work: Work, namespace: str, number: int, more: int) -> None:
    work.run(
        "UPDATE @catalog_sessions SET passages = passages + %s::bigint"
        " WHERE namespace = %s AND session = %s",
        *(more, namespace, number),
    )


def _put_reading(work: Work, namespace: str, number: int, listed: Listed, change: Change) -> None:
    columns = (
        *("namespace", "session", "analysis", "listed", "revision", "seq", "hash", "floor"),
        *("rules", "problem", "skipped_why", "state"),
    )
    work.run(
        f"INSERT INTO @catalog_readings ({', '.join(columns)})"  # noqa: S608 - same
        f" VALUES ({', '.join(['%s'] * len(columns))}) ON CONFLICT (namespace, session)"
        f" DO UPDATE SET {', '.join(f'{each} = excluded.{each}' for each in columns[2:])}",
        namespace,
        number,
        ANALYSIS,
        held(listed),
        cell(change.revision),
        clamped(change.position.seq),
        cell(change.position.hash),
        clamped(change.floor),
        cell(change.rules),
        optional(change.listed.problem),
        optional(change.skipped_why),
        change.state,
    )


def _words(listed: Listed) -> tuple[Any, ...]:
    return (
        *(listed.title, listed.preview, listed.composition, listed.preset),
        *(listed.config_path, listed.cwd, listed.agents),
    )


def _put_title(work: Work, namespace: str, number: int, old: Listed | None, new: Listed) -> None:
    if old is not None and _words(old) == _words(new):
        return
    words, parts = words_of(new)
    work.run("DELETE FROM @catalog_titles WHERE namespace = %s AND session = %s", namespace, number)
    if words or parts:
        found = kept_tokens(words, parts)
        work.run(
            "INSERT INTO @catalog_titles VALUES (%s, %s, %s, %s, %s, %s)",
            *(namespace, number, *found),
        )


def _put_agents(
    work: Work, namespace: str, number: int, old: Sequence[str], new: Sequence[str]
) -> None:
    if set(old) == set(new):
        return
    work.run("DELETE FROM @catalog_agents WHERE namespace = %s AND session = %s", namespace, number)
    rows = {key(agent, NAME_BYTES_MAX): cell(agent) for agent in new}
    work.run(
        "INSERT INTO @catalog_agents SELECT %s, a.agent, %s, a.name"
        " FROM unnest(%s::bytea[], %s::bytea[]) AS a (agent, name)",
        *(namespace, number, list(rows), list(rows.values())),
    )


def _put_members(work: Work, namespace: str, number: int, old: Listed | None, new: Listed) -> None:
    before, after = (
        # Without a projection there is nothing, and not a projection of nothing.
        set() if each is None or each.projection is None else members(0, each.projection)
        for each in (old, new)
    )
    if before - after:
        work.run(
            "DELETE FROM @catalog_members WHERE namespace = %s AND session = %s"
            " AND digest = ANY(%s::bigint[])",
            *(namespace, number, list(before - after)),
        )
    if after - before:
        work.run(
            "INSERT INTO @catalog_members SELECT %s, unnest(%s::bigint[]), %s"
            " ON CONFLICT DO NOTHING",
            *(namespace, list(after - before), number),
        )


def _put_keys(work: Work, namespace: str, number: int, change: Change, *, is_new: bool) -> None:
    new = {}
    for kind, each, seq in change.keys:
        name = hashlib.blake2b(cell(kind) + b"\xff" + cell(each), digest_size=16).digest()
        new[name] = (cell(kind), cell(each), clamped(seq))
    if not change.start and not is_new:
        work.run(
            "DELETE FROM @catalog_keys WHERE namespace = %s AND session = %s"
            " AND name <> ALL(%s::bytea[])",
            *(namespace, number, list(new)),
        )
    if new:
        columns = zip(*new.values(), strict=True)
        work.run(
            "INSERT INTO @catalog_keys AS o SELECT %s, %s, k.name, k.type, k.key, k.seq"
            " FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[], %s::bigint[])"
            " AS k (name, type, key, seq) ON CONFLICT (namespace, session, name)"
            " DO UPDATE SET seq = excluded.seq WHERE o.seq <> excluded.seq",
            *(namespace, number, list(new), *(list(column) for column in columns)),
        )


# --- other changes --------------------------------------------------------------------------------


def remove(work: Work, namespace: str, session: str, expected: int | None) -> bool:
    """See `Catalog.remove`; within a transaction."""
    own = within(namespace)
    found = work.row(
        "SELECT session, version FROM @catalog_sessions WHERE namespace = %s AND key = %s"
        " FOR UPDATE",
        *(own, key(session)),
    )
    if found is None or expected not in (None, found[1]):
        return False
    number = found[0]
    for table in ("keys", "agents", "members", "titles", "readings"):
        work.run(
            f"DELETE FROM @catalog_{table} WHERE namespace = %s AND session = %s",  # noqa: S608
            *(own, number),
        )
    passages = Passages(work, own, number, session)
    passages.drop_all()
    passages.count()
    work.run("DELETE FROM @catalog_sessions WHERE namespace = %s AND session = %s", own, number)
    return True


def put_note(work: Work, namespace: str, name: str, told: str) -> None:
    """See `Catalog.put_note`; within a transaction."""
    work.run(
        "INSERT INTO @catalog_notes VALUES (%s, %s, %s)"
        " ON CONFLICT (namespace, name) DO UPDATE SET text = excluded.text",
        *(within(namespace), key(name), cell(told)),
    )
