"""The passages of one session, as they are put."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from perdure.catalog.contract import Change, Passage
from perdure.catalog.postgres.lexemes import kept
from perdure.catalog.postgres.statements import Statement, ask
from perdure.databases.cells import cell, clamped, optional
from perdure.databases.postgres.catalog_tables import SAMPLES
from perdure.databases.postgres.work import Work

__all__ = ["Passages"]

_Named = tuple[int, bytes, int]
"""What names a passage within its session: number of its event, its kind, digest."""

_COLUMNS = {
    "seq": "bigint",
    "digest": "bigint",
    "time": "bigint",
    "call": "bigint",
    "length": "integer",
    "sample": "smallint",
    "large": "boolean",
    "kind": "bytea",
    "agent": "bytea",
    "words": "text",
    "parts": "text",
}
_GIVEN = ", ".join(f"%s::{each}[]" for each in _COLUMNS.values())
_NAMES = ", ".join(_COLUMNS)

# Not by COPY, which takes no rows where a policy says which ones a role may add.
_ADD = f"""
    WITH added AS (
        INSERT INTO @catalog_passages (namespace, session, {_NAMES})
        SELECT %s, %s, {_NAMES} FROM unnest({_GIVEN}) AS given ({_NAMES})
        RETURNING id
    )
    SELECT max(id) FROM added
"""  # noqa: S608 - columns of ours
_ROWS = 500
"""So many passages are sent at once."""


class Passages:
    """The passages of one session.

    Attributes:
        more: how many there are more than before.

    """

    def __init__(self, work: Work, namespace: str, number: int, session: str) -> None:
        """Name the session, by the namespace as it stands in keys, its number and its id."""
        self.more = 0
        self._work = work
        self._namespace = namespace
        self._number = number
        # Which passages are samples depends on nothing but what they are.
        self._salt = hashlib.blake2b(cell(session), digest_size=16).digest()
        self._newest = 0

    def put(self, change: Change, *, is_new: bool) -> None:
        """Replace those between `start` and `end`, and add those that lie elsewhere."""
        start, end = clamped(change.start), None if change.end is None else clamped(change.end)
        inside: dict[_Named, Passage] = {}
        outside: dict[_Named, Passage] = {}
        for each in change.passages:
            seq = clamped(each.seq)
            of_range = seq >= start and (end is None or seq < end)
            name = seq, cell(each.kind), clamped(each.digest)
            (inside if of_range else outside).setdefault(name, each)
        if not is_new:
            last = Statement("") if end is None else Statement("AND seq < %s::bigint", (end,))
            there = self._there(Statement("seq >= %s::bigint", (start,)), last)
            self._drop([id for name, id in there.items() if name not in inside])
            for name in there:
                inside.pop(name, None)
            if outside:
                seqs = list({seq for seq, _, _ in outside})
                for name in self._there(Statement("seq = ANY(%s::bigint[])", (seqs,))):
                    outside.pop(name, None)
        self._add(inside | outside)

    def _there(self, *which: Statement) -> dict[_Named, int]:
        own = Statement("namespace = %s AND session = %s", (self._namespace, self._number))
        columns = "SELECT seq, kind, digest, id FROM @catalog_passages WHERE"
        rows = ask(self._work, columns, own, "AND", *which)
        return {(seq, kind, digest): id for seq, kind, digest, id in rows}

    def _drop(self, ids: Sequence[int]) -> None:
        if ids:
            self.more -= self._work.run(
                "DELETE FROM @catalog_passages WHERE namespace = %s AND session = %s"
                " AND id = ANY(%s::bigint[])",
                *(self._namespace, self._number, ids),
            )

    def drop_all(self) -> None:
        """Forget all of them."""
        self.more -= self._work.run(
            "DELETE FROM @catalog_passages WHERE namespace = %s AND session = %s",
            *(self._namespace, self._number),
        )

    def _add(self, new: dict[_Named, Passage]) -> None:
        rows = self._rows(new)
        while some := list(islice(rows, _ROWS)):
            columns = [list(column) for column in zip(*some, strict=True)]
            ((newest,),) = self._work.rows(_ADD, self._namespace, self._number, *columns)
            self._newest = max(self._newest, newest)
        self.more += len(new)

    def _rows(self, new: dict[_Named, Passage]) -> Iterator[tuple[Any, ...]]:
        for (seq, kind, digest), each in new.items():
            found = kept(each.words, each.parts)
            yield (
                *(seq, digest, clamped(each.time)),
                None if each.call is None else clamped(each.call),
                *(found.length, self._sample(seq, digest), found.large, kind),
                *(optional(each.agent), found.words, found.parts),
            )

    def _sample(self, seq: int, digest: int) -> int:
        """In how many samples a passage is."""
        drawn = hashlib.blake2b(f"{seq} {digest}".encode(), digest_size=4, key=self._salt).digest()
        number = int.from_bytes(drawn, "big")
        level = 0
        while level < SAMPLES and not number % 8 ** (level + 1):
            level += 1
        return level

    def count(self) -> None:
        """Note for the namespace how many more there are.

        The last thing that is done: all writers of a namespace meet here.
        """
        if self.more or self._newest:
            self._work.run(
                "INSERT INTO @catalog_namespaces AS n VALUES (%s, %s::bigint, %s::bigint)"
                " ON CONFLICT (namespace) DO UPDATE SET passages = n.passages + excluded.passages,"
                " newest = greatest(n.newest, excluded.newest)",
                *(self._namespace, self.more, self._newest),
            )
