"""Deleting, restoring, and what may be forgotten: each on request, none of it in passing.

The trash is the truth about what can be restored. A tombstone in the evidence outlives it, so that
nothing brings a deleted session back unasked. Each order of steps is such that a crash in between
leaves the session deleted or not, and never half of either.
"""

from contextlib import suppress
from typing import NamedTuple

from perdure.backends.base import Backend, Trashed
from perdure.errors import InvalidValue, PerdureError, SessionExists, SessionNotFound
from perdure.evidence import Acceptance, Deleted
from perdure.model.header import check_id
from perdure.model.record import Position
from perdure.recovery.walk import Known
from perdure.runtime import Runtime
from perdure.store.inspection import damage
from perdure.store.survey import Survey
from perdure.store.witness import Witness

__all__ = ["Missing", "Retention"]


class Missing(NamedTuple):
    """A session that was stored here and is not there any more, though nobody deleted it.

    Attributes:
        id: its id.
        position: the last position that is remembered.
        seen_at: Unix milliseconds of that.

    """

    id: str
    position: Position
    seen_at: int


class Retention:
    """What a store does to whole sessions of one namespace."""

    def __init__(
        self, backend: Backend, witness: Witness, survey: Survey, runtime: Runtime
    ) -> None:
        """Nothing is opened."""
        self._backend = backend
        self._witness = witness
        self._evidence = witness.evidence
        self._namespace = witness.namespace
        self._survey = survey
        self._runtime = runtime

    def deleted_at(self, session: str) -> int | None:
        """When a session was deleted (Unix ms) whose id is not given to another one."""
        found = self._evidence.deleted(self._namespace, session)
        return found.deleted_at if found is not None else None

    def refuse_if_deleted(self, session: str) -> None:
        """Keep a deleted session's id from a new one.

        Raises:
            SessionExists: with `deleted_at`.

        """
        if self._backend.persistent:
            deleted_at = self.deleted_at(session)
            if deleted_at is not None:
                raise SessionExists(session, deleted_at=deleted_at)

    def delete(self, session: str) -> Trashed:
        """See `Store.delete`."""
        with suppress(PerdureError):
            # So that a restored session is held against all that was acknowledged.
            self._witness.push()
        trashed = self._backend.discard(session)
        self._bury(session, trashed)
        return trashed

    def _bury(self, session: str, trashed: Trashed) -> None:
        self._evidence.bury(self._namespace, Deleted(session, trashed.digest, trashed.deleted_at))

    def restore(self, session: str) -> None:
        """See `Store.restore`."""
        try:
            self._backend.stored(session)
        except SessionNotFound as missing:
            if missing.deleted_at is None:
                raise SessionNotFound(session, deleted_at=self.deleted_at(session)) from None
        else:
            raise SessionExists(session)
        # While it is in the trash, that alone keeps its id.
        self._evidence.unbury(self._namespace, session)
        self._backend.restore(session)

    def empty_trash(self, before: int | None, session: str | None) -> list[Trashed]:
        """See `Store.empty_trash`; `before` is Unix milliseconds."""
        gone = []
        for trashed in self._backend.trash():
            late = before is not None and trashed.deleted_at >= before
            if late or (session is not None and trashed.id != session):
                continue
            self._bury(trashed.id, trashed)
            self._backend.purge(trashed)
            gone.append(trashed)
        return gone

    def accept(self, session: str, wait: float) -> Position:
        """See `Store.accept`."""
        # What was still to be noted is not to come back after what is accepted now.
        self._witness.push()
        hold = self._backend.lock(session, wait=wait)
        try:
            stored = self._backend.stored(session)
            header = stored.header
            if header is None:
                raise damage(session, stored)
            tail = self._backend.tail(session)
            known = self._witness.known(session, header, tail, to_write=True)
            facts = self._survey.read(session, header, stored.begin, known)
            if facts.damaged:
                # Once more, held against nothing but itself.
                facts = self._survey.read(session, header, stored.begin, Known(None))
                if facts.damaged:
                    raise damage(session, stored, facts.ending.problem)
                self._evidence.accept(
                    self._namespace,
                    Acceptance(
                        session,
                        header.digest,
                        facts.ending.position,
                        known.acknowledged,
                        self._runtime.now_ms(),
                    ),
                )
            self._backend.settle(hold, facts.ending, tail.acknowledged)
            return facts.ending.position
        finally:
            hold.release()

    def forget(self, session: str) -> None:
        """See `Store.forget`."""
        check_id(session)
        try:
            self._backend.stored(session)
        except SessionNotFound as missing:
            if missing.deleted_at is not None:
                raise InvalidValue(
                    "id",
                    f"session {session!r} is in the trash",
                    hint="restore it, or empty the trash first",
                ) from None
        else:
            raise InvalidValue(
                "id",
                f"session {session!r} is stored",
                hint="delete it first; if an older copy is the truth now, accept it",
            )
        self._evidence.forget(self._namespace, session)

    def missing(self) -> list[Missing]:
        """Sessions that evidence knows and that are neither stored nor deleted."""
        there = {entry.id: entry.header for entry in self._backend.entries()}
        there |= dict.fromkeys(each.id for each in self._backend.trash())
        there |= dict.fromkeys(each.session for each in self._evidence.all_deleted(self._namespace))
        return [
            Missing(seen.session, seen.position, seen.seen_at)
            for seen in self._evidence.everything_known(self._namespace)
            if seen.session not in there
        ]
