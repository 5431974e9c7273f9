"""What is known of a session, changed in one step."""

from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from perdure.catalog.contract import Change, Listed, Passage
from perdure.catalog.members import members
from perdure.catalog.rows import COLD, HOT, held, kept, listed_of, words_of
from perdure.catalog.sqlite.filters import namespace_of
from perdure.catalog.sqlite.ranking import namespace_token, scope_tokens, stretch
from perdure.catalog.sqlite.rows import cold_cells, hot_cells
from perdure.databases.cells import ask, cell, clamped, numbers, optional, sql

__all__ = ["put", "put_note", "remove"]

_Named = tuple[int, int, int]
"""What names a passage within its session: number of its event, number of its kind, digest."""

_NEW_NAMESPACE = "INSERT INTO namespaces (name, passages, given) VALUES (?, 0, 0)"


def put(db: apsw.Connection, namespace: str, change: Change, expected: int | None) -> int | None:
    """See `Catalog.put`; within a transaction that writes."""
    within = namespace_of(db, namespace)
    found = None if within is None else _row(db, within, change.listed.id)
    if (None if found is None else found[1]) != expected:
        return None
    if within is None:
        db.execute(_NEW_NAMESPACE, (cell(namespace),))
        within = db.last_insert_rowid()
    listed = kept(change.listed)
    version = _next(db, "version")
    if found is None:
        number, cold = _next(db, "session"), None
        columns = ("number", "namespace", "id", "version", "passages", *HOT, *COLD)
        row = (number, within, cell(listed.id), version, 0, *_cells(listed, change))
        places = ", ".join("?" * len(columns))
        into = sql("INSERT INTO sessions (", ", ".join(columns), ") VALUES (", places, ")")
        db.execute(into, row)
    else:
        number, _, *rest = found
        cold = tuple(rest)
        _update(db, number, ("version", *HOT), (version, *_hot(listed, change)))
        told = cold_cells(listed, skipped=change.skipped)
        if told != cold:
            _update(db, number, COLD, told)
    _put_reading(db, number, change)
    _put_listing(db, within, number, listed)
    _put_keys(db, number, change)
    _Passages(db, within, number).put(change)
    return version


def _row(db: apsw.Connection, namespace: int, session: str) -> tuple[Any, ...] | None:
    query = sql("SELECT number, version,", ", ".join(COLD), "FROM sessions INDEXED BY by_id")
    which = "WHERE namespace = ? AND id = ?"
    found = ask(db, sql(query, which), (namespace, cell(session)))
    if found and not (isinstance(found[0][0], int) and isinstance(found[0][1], int)):
        raise apsw.CorruptError("a session has no number")
    return found[0] if found else None


def _hot(listed: Listed, change: Change) -> tuple[Any, ...]:
    return hot_cells(listed, partial=change.partial, skipped=change.skipped)


def _cells(listed: Listed, change: Change) -> tuple[Any, ...]:
    return (*_hot(listed, change), *cold_cells(listed, skipped=change.skipped))


def _update(
    db: apsw.Connection, number: int, columns: Sequence[str], told: tuple[Any, ...]
) -> None:
    changes = ", ".join(f"{column} = ?" for column in columns)
    db.execute(sql("UPDATE sessions SET", changes, "WHERE number = ?"), (*told, number))


def _next(db: apsw.Connection, counter: str, count: int = 1) -> int:
    """The first of so many numbers that were never given before."""
    query = sql("UPDATE facts SET", counter, "=", counter, "+ ? RETURNING", counter)
    ((last,),) = ask(db, query, (count,), [int])
    return int(last) - count + 1


def _names(db: apsw.Connection, texts: Iterable[str]) -> dict[str, int]:
    """The numbers of agents and kinds; those that are new get one."""
    found: dict[str, int] = {}
    for name in texts:
        if name not in found:
            rows = ask(db, "SELECT number FROM names WHERE name = ?", (cell(name),))
            if not rows:
                rows = ask(
                    db, "INSERT INTO names (name) VALUES (?) RETURNING number", (cell(name),)
                )
            found[name] = rows[0][0]
    return found


def _put_reading(db: apsw.Connection, number: int, change: Change) -> None:
    row = (
        number,
        cell(change.revision),
        clamped(change.position.seq),
        cell(change.position.hash),
        clamped(change.floor),
        cell(change.rules),
        optional(change.listed.problem),
        optional(change.skipped_why),
    )
    db.execute("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    db.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (number, change.state))


_LISTING = "SELECT listed, words FROM listings WHERE session = ?"


def _put_listing(db: apsw.Connection, within: int, number: int, listed: Listed) -> None:
    before, has_words = None, False
    for packed, indexed in ask(db, _LISTING, (number,)):
        before, has_words = listed_of(packed), bool(indexed)
    if before == listed:
        return
    if before is None or _searched(before) != _searched(listed):
        words, parts = words_of(listed)
        if has_words:
            db.execute("DELETE FROM titles WHERE rowid = ?", (number,))
        has_words = bool(words or parts)
        if has_words:
            row = (number, words, parts, namespace_token(within))
            db.execute("INSERT INTO titles (rowid, words, parts, scope) VALUES (?, ?, ?, ?)", row)
    told = (number, held(listed), int(has_words))
    db.execute("INSERT OR REPLACE INTO listings VALUES (?, ?, ?)", told)
    _put_agents(db, within, number, before.agents if before else (), listed.agents)
    if before is None or before.projection != listed.projection:
        old = members(within, before.projection) if before and before.projection else set()
        new = members(within, listed.projection) if listed.projection is not None else set()
        _drop_members(db, number, old - new)
        rows = [(digest, number) for digest in new - old]
        db.executemany("INSERT OR IGNORE INTO members VALUES (?, ?)", rows)


def _searched(listed: Listed) -> tuple[Any, ...]:
    return (
        listed.title,
        listed.preview,
        listed.composition,
        listed.preset,
        listed.config_path,
        listed.cwd,
        listed.agents,
    )


def _put_agents(
    db: apsw.Connection, within: int, number: int, old: Sequence[str], new: Sequence[str]
) -> None:
    if set(old) == set(new):
        return
    db.execute("DELETE FROM agents WHERE session = ?", (number,))
    rows = [(number, agent, within) for agent in _names(db, new).values()]
    db.executemany("INSERT INTO agents VALUES (?, ?, ?)", rows)


def _drop_members(db: apsw.Connection, number: int, digests: Iterable[int]) -> None:
    rows = [(digest, number) for digest in digests]
    db.executemany("DELETE FROM members WHERE digest = ? AND session = ?", rows)


def _put_keys(db: apsw.Connection, number: int, change: Change) -> None:
    new = {(cell(kind), cell(key)): clamped(seq) for kind, key, seq in change.keys}
    if not new and change.start:
        return
    old: dict[tuple[bytes, bytes], int] = {}
    if not change.start:
        query = "SELECT type, key, seq FROM keys WHERE session = ?"
        rows = ask(db, query, (number,), (bytes, bytes, int))
        old = {(kind, key): seq for kind, key, seq in rows}
        gone = [(number, *name) for name in old if name not in new]
        db.executemany("DELETE FROM keys WHERE session = ? AND type = ? AND key = ?", gone)
    rows = [(number, *name, seq) for name, seq in new.items() if old.get(name) != seq]
    db.executemany("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", rows)


# --- passages -------------------------------------------------------------------------------------


def _whole(tokens: str) -> str:
    """Tokens as SQLite can take them; those that `analyse` gives hold no half of a character."""
    return tokens if tokens.isascii() else tokens.encode("utf-8", "replace").decode()


class _Passages:
    """The passages of one session."""

    def __init__(self, db: apsw.Connection, within: int, number: int) -> None:
        self._db = db
        self._within = within
        self._number = number

    def put(self, change: Change) -> None:
        """Replace those between `start` and `end`, and add those that lie elsewhere."""
        db = self._db
        start, end = clamped(change.start), None if change.end is None else clamped(change.end)
        names = _names(db, (each.kind for each in change.passages))
        inside: dict[_Named, Passage] = {}
        outside: dict[_Named, Passage] = {}
        for each in change.passages:
            seq = clamped(each.seq)
            of_range = seq >= start and (end is None or seq < end)
            name = seq, names[each.kind], clamped(each.digest)
            (inside if of_range else outside).setdefault(name, each)
        there = self._there("seq >= :start AND seq < ifnull(:end, 9e99)", start, end)
        self._drop([id for name, id in there.items() if name not in inside])
        for name in there:
            inside.pop(name, None)
        if outside:
            which = "seq IN (SELECT value FROM json_each(:seqs))"
            for name in self._there(which, start, end, {seq for seq, _, _ in outside}):
                outside.pop(name, None)
        self._add([*inside.items(), *outside.items()])

    def _there(
        self, which: str, start: int, end: int | None, seqs: Iterable[int] = ()
    ) -> dict[_Named, int]:
        bound = {"session": self._number, "start": start, "end": end, "seqs": numbers(seqs)}
        query = "SELECT seq, kind, digest, id FROM passages INDEXED BY by_event"
        rows = ask(self._db, sql(query, "WHERE session = :session AND", which), bound, [int] * 4)
        return {(seq, kind, digest): id for seq, kind, digest, id in rows}

    def _drop(self, ids: list[int]) -> None:
        rows = [(id,) for id in ids]
        self._db.executemany("DELETE FROM texts WHERE rowid = ?", rows)
        self._db.executemany("DELETE FROM passages WHERE id = ?", rows)
        self._count(-len(ids))

    def _add(self, new: list[tuple[_Named, Passage]]) -> None:
        if not new:
            return
        db, number = self._db, self._number
        agents = _names(db, (each.agent for _, each in new if each.agent is not None))
        first = _next(db, "passage", len(new))
        given = "UPDATE namespaces SET given = given + ? WHERE number = ? RETURNING given"
        ((last,),) = ask(db, given, (len(new), self._within), [int])
        # As `id`, but counted within the namespace.
        ahead = first - (last - len(new) + 1)
        rows = []
        texts = []
        stretches = set()
        for id, ((seq, kind, digest), each) in enumerate(new, first):
            agent = None if each.agent is None else agents[each.agent]
            time = clamped(each.time)
            call = None if each.call is None else clamped(each.call)
            rows.append((id, id - ahead, number, seq, kind, digest, agent, time, call))
            scope = scope_tokens(self._within, number, kind, agent, time)
            texts.append((id, _whole(each.words), _whole(each.parts), scope))
            stretches.add(stretch(time))
        db.executemany("INSERT INTO texts (rowid, words, parts, scope) VALUES (?, ?, ?, ?)", texts)
        db.executemany("INSERT INTO passages VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        known = [(each,) for each in stretches]
        db.executemany("INSERT OR IGNORE INTO stretches VALUES (?)", known)
        self._count(len(new))

    def _count(self, more: int) -> None:
        if more:
            change = "SET passages = passages + ? WHERE number = ?"
            self._db.execute(sql("UPDATE sessions", change), (more, self._number))
            self._db.execute(sql("UPDATE namespaces", change), (more, self._within))

    def drop_all(self) -> None:
        """Forget all of them."""
        query = "SELECT id FROM passages WHERE session = ?"
        self._drop([id for (id,) in ask(self._db, query, (self._number,), [int])])


# --- other changes --------------------------------------------------------------------------------


def remove(db: apsw.Connection, namespace: str, session: str, expected: int | None) -> bool:
    """See `Catalog.remove`; within a transaction that writes."""
    within = namespace_of(db, namespace)
    found = None if within is None else _row(db, within, session)
    if within is None or found is None or expected not in (None, found[1]):
        return False
    number = found[0]
    _Passages(db, within, number).drop_all()
    for packed, has_words in ask(db, _LISTING, (number,)):
        if has_words:
            db.execute("DELETE FROM titles WHERE rowid = ?", (number,))
        _drop_members(db, number, members(within, listed_of(packed).projection))
    for table in ("keys", "agents", "states", "readings", "listings"):
        db.execute(sql("DELETE FROM", table, "WHERE session = ?"), (number,))
    db.execute("DELETE FROM sessions WHERE number = ?", (number,))
    return True


def put_note(db: apsw.Connection, namespace: str, name: str, told: str) -> None:
    """See `Catalog.put_note`; within a transaction that writes."""
    within = namespace_of(db, namespace)
    if within is None:
        db.execute(_NEW_NAMESPACE, (cell(namespace),))
        within = db.last_insert_rowid()
    row = (within, cell(name), cell(told))
    db.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", row)
