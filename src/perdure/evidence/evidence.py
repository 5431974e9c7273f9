"""Evidence: what was known of the logs of a store, kept apart from the logs themselves."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from perdure.databases.forks import undivided
from perdure.evidence.facts import (
    ACCEPTANCE,
    DAMAGE,
    DELETION,
    POSITION,
    About,
    Acceptance,
    Damage,
    Deleted,
    Seen,
    acceptance_number,
    acceptance_of,
    acceptance_row,
    damage_of,
    damage_row,
    deleted_of,
    deleted_row,
    known_of,
    known_row,
    seq_of,
    text_cell,
)
from perdure.evidence.rows import MemoryRows, Row, Rows, Table
from perdure.model import limits
from perdure.model.record import Position
from perdure.runtime import SYSTEM, Runtime

__all__ = ["Evidence"]

T = TypeVar("T")

_NO_LOG = "0" * 64
"""In place of a header's digest: what was known before counts for no log any more."""


class Form(Protocol):
    """Where the rows are kept."""

    unreadable: str | None

    def read(self, question: Callable[[Rows], T]) -> T:
        """The answer to a question."""

    def ask(self, question: Callable[[Rows], T]) -> tuple[str | None, T]:
        """As `read`, with why the answer comes from nothing although there is a file, or None."""

    def read_to_write(self, question: Callable[[Rows], T]) -> T:
        """The answer to a question, never from nothing because it cannot be read just now."""

    def write(self, change: Callable[[Rows], None], *, make: bool = True) -> None:
        """Make a change, whole or not at all."""

    def set_aside(self) -> Sequence[str]:
        """Paths of damaged files."""


class _Memory:
    """Kept in this process and gone with it."""

    def __init__(self) -> None:
        self.unreadable: str | None = None
        self._there = False
        self._rows = MemoryRows()
        self._mutex = threading.RLock()

    def read(self, question: Callable[[Rows], T]) -> T:
        # A fork within it would leave the mutex locked in the child.
        with undivided(), self._mutex:
            return question(self._rows)

    def ask(self, question: Callable[[Rows], T]) -> tuple[str | None, T]:
        return None, self.read(question)

    def read_to_write(self, question: Callable[[Rows], T]) -> T:
        return self.read(question)

    def write(self, change: Callable[[Rows], None], *, make: bool = True) -> None:
        # As with a file: before anything is kept there is nothing to take back.
        self._there = self._there or make
        if self._there:
            self.read(change)

    def set_aside(self) -> Sequence[str]:
        return []


class Evidence:
    """Positions, damage reports, tombstones and acceptances of all namespaces of a store.

    Readers create nothing, write nothing and answer "nothing known" where there is nothing. All
    calls may be made from any thread, from several processes at once and after a fork. They raise
    `UnsafeFile` if the file is not private or another program's, `FormatUnsupported` if another
    version wrote it, `StorageUnavailable` if the medium refuses; writers also `StorageFull`, and
    `InvalidValue` for a hash or a number that is none. `StorageUnavailable` is retryable if the
    file was busy for longer than five seconds.

    A namespace is one text of the caller's choice; "" is the root namespace.
    """

    def __init__(
        self,
        folder_path: str | None,
        *,
        runtime: Runtime = SYSTEM,
        form: "Form | None" = None,
    ) -> None:
        """Keep it in `evidence.sqlite` in an existing folder, in a `form`, or else in memory."""
        self._folder_path = folder_path
        self._runtime = runtime
        self._made: Form | None = form or (_Memory() if folder_path is None else None)

    @property
    def _form(self) -> Form:
        if self._made is not None or self._folder_path is None:
            return self._made or _Memory()
        # Only now: who needs no evidence should start without SQLite. A child that was forked in
        # the middle of an import would wait for it for ever.
        with undivided():
            from perdure.evidence.database import Database  # noqa: PLC0415

            made = self._made = self._made or Database(self._folder_path, self._runtime)
        return made

    @property
    def unreadable(self) -> str | None:
        """Why the last answer came from nothing although there is a file; None if it did not.

        A damaged file, one that a dead writer left in the middle of a commit, or a busy one.
        """
        return self._form.unreadable

    @property
    def set_aside(self) -> Sequence[str]:
        """Paths of damaged files that writers have put out of the way, oldest first."""
        return self._form.set_aside()

    def close(self) -> None:
        """Nothing stays open between calls; for owners who close what they open."""

    # --- all of one session ----------------------------------------------------------------------

    def about(self, namespace: str, session: str, *, to_write: bool = False) -> About:
        """All that is known of one id.

        With `to_write` the answer never comes from nothing because the file cannot be read just
        now: a commit that a dead writer left is rolled back, a damaged file is set aside.

        Raises:
            As for readers; with `to_write` as for writers.

        """

        def question(stored: Rows) -> About:
            key = (text_cell(namespace), text_cell(session))
            tombstones = stored.scan(DELETION, *key)
            settled = stored.scan(ACCEPTANCE, *key)
            return About(
                tuple(known_of(row) for row in stored.scan(POSITION, *key)),
                deleted_of(tombstones[0]) if tombstones else None,
                tuple(damage_of(row) for row in stored.scan(DAMAGE, *key)),
                acceptance_of(settled[-1]).accepted_at if settled else None,
            )

        if to_write:
            return self._form.read_to_write(question)
        why, found = self._form.ask(question)
        return found._replace(unreadable=why)

    # --- positions ------------------------------------------------------------------------------

    def known(self, namespace: str, session: str) -> list[Seen]:
        """The last position of each log that had this id, by header digest."""
        return self._list(POSITION, known_of, namespace, session)

    def everything_known(self, namespace: str) -> list[Seen]:
        """The positions of all sessions of a namespace, by id."""
        return self._list(POSITION, known_of, namespace)

    def note(self, entries: Iterable[tuple[str, Seen]]) -> None:
        """Note (namespace, position) of many sessions at once.

        A position never moves back: one that is not further than what is known of the same header
        changes nothing, whatever its hash says. Noting the same again writes nothing. What was
        seen before somebody accepted another log as the truth is not noted any more.
        """
        rows = [known_row(namespace, known) for namespace, known in entries]
        if rows:
            self._form.write(lambda stored: _note(stored, rows))

    def replace(self, namespace: str, known: Seen) -> None:
        """Make this the only position known of the session, even if that is a step back."""
        row = known_row(namespace, known)

        def change(stored: Rows) -> None:
            _replace(stored, row)

        self._form.write(change)

    # --- tombstones -----------------------------------------------------------------------------

    def deleted(self, namespace: str, session: str) -> Deleted | None:
        """The tombstone of the id, or None."""
        found = self._list(DELETION, deleted_of, namespace, session)
        return found[0] if found else None

    def all_deleted(self, namespace: str) -> list[Deleted]:
        """All tombstones of a namespace, by id."""
        return self._list(DELETION, deleted_of, namespace)

    def bury(self, namespace: str, deleted: Deleted) -> None:
        """Set a tombstone; an earlier one of the id gives way. What else is known stays known."""
        row = deleted_row(namespace, deleted)
        self._form.write(lambda stored: stored.put(DELETION, [row]))

    def unbury(self, namespace: str, session: str) -> None:
        """Remove a tombstone; there may be none."""
        self._drop(namespace, session, DELETION)

    # --- damage ---------------------------------------------------------------------------------

    def report(self, namespace: str, damage: Damage) -> None:
        """Keep a damage report. The first of one kind at one record stands, with its time."""
        row = damage_row(namespace, damage)

        def change(stored: Rows) -> None:
            if not stored.scan(DAMAGE, *row[: DAMAGE.key]):
                stored.put(DAMAGE, [row])

        self._form.write(change)

    def clear_report(self, namespace: str, session: str) -> None:
        """Remove all damage reports of a session; there may be none."""
        self._drop(namespace, session, DAMAGE)

    def reports(self, namespace: str, session: str | None = None) -> list[Damage]:
        """The damage reports of one session or of a whole namespace, by id, kind and record."""
        session_only = () if session is None else (session,)
        return self._list(DAMAGE, damage_of, namespace, *session_only)

    # --- decisions of people --------------------------------------------------------------------

    def accept(self, namespace: str, acceptance: Acceptance) -> None:
        """Keep an acceptance and act on it, in one step.

        The accepted position becomes the only one known of the session, and its damage reports go.
        """
        known = Seen(
            acceptance.session, acceptance.digest, acceptance.position, acceptance.accepted_at
        )
        position = known_row(namespace, known)
        key = position[:2]

        def change(stored: Rows) -> None:
            _put_acceptance(stored, namespace, acceptance)
            _replace(stored, position)
            stored.drop(DAMAGE, *key)

        # What cannot be kept is refused before anything is opened.
        acceptance_row(namespace, 0, acceptance)
        self._form.write(change)

    def acceptances(self, namespace: str, session: str) -> list[Acceptance]:
        """All acceptances of a session, in the order in which they were made."""
        found = self._list(ACCEPTANCE, acceptance_of, namespace, session)
        return [one for one in found if one.digest != _NO_LOG]

    def forget(self, namespace: str, session: str) -> None:
        """Remove positions, tombstone and damage reports of an id.

        Its acceptances stay: they are no observations that could be made again, and the header
        digest in each tells what it was about when the id is used anew. What was seen before is
        not noted any more, whoever comes late with it.
        """
        key = (text_cell(namespace), text_cell(session))
        mark = Acceptance(session, _NO_LOG, Position(-1, _NO_LOG), None, self._runtime.now_ms())

        def change(stored: Rows) -> None:
            for table in (POSITION, DELETION, DAMAGE):
                stored.drop(table, *key)
            _put_acceptance(stored, namespace, mark)

        self._form.write(change, make=False)

    def forget_all(self) -> None:
        """Remove everything of all namespaces: the store that it was about is not there now."""

        def change(stored: Rows) -> None:
            for table in (POSITION, DELETION, DAMAGE, ACCEPTANCE):
                stored.drop(table)

        self._form.write(change, make=False)

    # --- from another store ---------------------------------------------------------------------

    def carry(
        self,
        namespace: str,
        *,
        seen: Iterable[Seen] = (),
        deleted: Iterable[Deleted] = (),
        acceptances: Iterable[Acceptance] = (),
    ) -> None:
        """Take over what is known elsewhere, in one step, where nothing newer is known here.

        Positions as by `note`. A tombstone gives way to a later one of the same id, and to an
        acceptance of it or to its being forgotten since. Acceptances are put between those that
        are there, in the order of their times, and change no position.

        Raises:
            As for writers.

        """
        rows = [known_row(namespace, one) for one in seen]
        buried = [(one, deleted_row(namespace, one)) for one in deleted]
        accepted: dict[str, list[Acceptance]] = {}
        for one in acceptances:
            acceptance_row(namespace, 0, one)
            accepted.setdefault(one.session, []).append(one)

        def change(stored: Rows) -> None:
            # Positions first: what is accepted with them is no news against them.
            _note(stored, rows)
            for one, row in buried:
                if one.deleted_at > _last_word(stored, row[:2]):
                    stored.put(DELETION, [row])
            for session, new in accepted.items():
                _insert_acceptances(stored, namespace, session, new)

        if rows or buried or accepted:
            self._form.write(change)

    # --- all of them ----------------------------------------------------------------------------

    def _list(self, table: Table, fact: Callable[[Row], T], *texts: str) -> list[T]:
        beginning = [text_cell(text) for text in texts]
        return [fact(row) for row in self._form.read(lambda rows: rows.scan(table, *beginning))]

    def _drop(self, namespace: str, session: str, *tables: Table) -> None:
        key = (text_cell(namespace), text_cell(session))

        def change(stored: Rows) -> None:
            for table in tables:
                stored.drop(table, *key)

        self._form.write(change, make=False)


def _note(stored: Rows, rows: Iterable[Row]) -> None:
    """Note positions that are further than what is known, and were seen since the last decision."""
    newest: dict[Row, Row] = {}
    for row in rows:
        key = row[: POSITION.key]
        accepted = stored.scan(ACCEPTANCE, *row[:2])
        if accepted and acceptance_of(accepted[-1]).accepted_at >= known_of(row).seen_at:
            continue
        before = [newest[key]] if key in newest else stored.scan(POSITION, *key)
        if not before or seq_of(before[0]) < seq_of(row):
            newest[key] = row
    stored.put(POSITION, newest.values())


def _last_word(stored: Rows, key: Row) -> int:
    """When this id was last buried, accepted or forgotten; Unix milliseconds."""
    buried = [deleted_of(row).deleted_at for row in stored.scan(DELETION, *key)]
    settled = [acceptance_of(row).accepted_at for row in stored.scan(ACCEPTANCE, *key)]
    return max([*buried, *settled], default=-limits.TIME_MS_MAX - 1)


def _insert_acceptances(
    stored: Rows, namespace: str, session: str, new: Iterable[Acceptance]
) -> None:
    key = (text_cell(namespace), text_cell(session))
    before = [acceptance_of(row) for row in stored.scan(ACCEPTANCE, *key)]
    added = [one for one in dict.fromkeys(new) if one not in before]
    if added:
        # Numbered anew: the last number is that of the last decision.
        merged = sorted([*before, *added], key=lambda one: one.accepted_at)
        stored.drop(ACCEPTANCE, *key)
        rows = (acceptance_row(namespace, number, one) for number, one in enumerate(merged))
        stored.put(ACCEPTANCE, rows)


def _put_acceptance(stored: Rows, namespace: str, acceptance: Acceptance) -> None:
    before = stored.scan(ACCEPTANCE, text_cell(namespace), text_cell(acceptance.session))
    number = acceptance_number(before[-1]) + 1 if before else 0
    stored.put(ACCEPTANCE, [acceptance_row(namespace, number, acceptance)])


def _replace(stored: Rows, position: Row) -> None:
    """Make a row the only one of its session."""
    stored.drop(POSITION, *position[:2])
    stored.put(POSITION, [position])
