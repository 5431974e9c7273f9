"""Deleting, restoring, and what may be forgotten: each on request, none of it in passing.

The trash is the truth about what can be restored. A tombstone in the evidence outlives it, so that
nothing brings a deleted session back unasked. Each order of steps is such that a crash in between
leaves the session deleted or not, and never half of either.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from perdure.backends.base import Backend, Trashed
from perdure.errors import InvalidValue, PerdureError, SessionNotFound, StorageFull
from perdure.evidence import Acceptance, Deleted, Seen
from perdure.model.header import check_id
from perdure.model.record import Position
from perdure.recovery.walk import Known
from perdure.runtime import Runtime
from perdure.store.inspection import damage
from perdure.store.survey import Survey
from perdure.store.witness import Witness, known_of, last_of

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

    @contextmanager
    def telling(self, session: str) -> Iterator[None]:
        """Let a session that is not found say that it was deleted, or vanished."""
        try:
            yield
        except SessionNotFound as error:
            if error.deleted_at is not None or error.session != session:
                raise
            about = self._witness.about(session)
            if about.deleted is not None:
                deleted_at = about.deleted.deleted_at
                raise SessionNotFound(session, deleted_at=deleted_at) from None
            if about.seen and self._missing(last_of(about.seen)) is not None:
                missing = last_of(about.seen).position.seq
                raise SessionNotFound(session, missing=missing) from None
            raise

    def delete(self, session: str) -> Trashed:
        """See `Store.delete`."""
        with suppress(PerdureError):
            # So that a restored session is held against all that was acknowledged.
            self._witness.push()
        trashed = self._backend.discard(session, self._bury)
        self._witness.drop(session)
        self._witness.changed(session)
        return trashed

    def _bury(self, trashed: Trashed) -> None:
        # The trash keeps the id until it is emptied, which buries it for certain.
        with suppress(PerdureError):
            self._bury_for_certain(trashed)

    def _bury_for_certain(self, trashed: Trashed) -> None:
        tombstone = Deleted(trashed.id, trashed.digest, trashed.deleted_at)
        self._evidence.bury(self._namespace, tombstone)

    def restore(self, session: str) -> None:
        """See `Store.restore`."""
        # Refused before anything is moved, if evidence cannot be changed.
        self._witness.about_to_write(session)
        with self.telling(session):
            self._backend.restore(session, lambda: self._unbury(session))
        self._witness.changed(session)

    def _unbury(self, session: str) -> None:
        # A tombstone that stays is removed by the next writer.
        with suppress(PerdureError):
            self._evidence.unbury(self._namespace, session)

    def empty_trash(self, before: int | None, session: str | None) -> list[Trashed]:
        """See `Store.empty_trash`; `before` is Unix milliseconds."""
        gone: list[Trashed] = []
        failure: PerdureError | None = None
        self._backend.sweep_trash()
        for trashed in self._backend.trash():
            late = before is not None and trashed.deleted_at > before
            if late or (session is not None and trashed.id != session):
                continue
            try:
                if self._purge(trashed):
                    gone.append(trashed)
            except PerdureError as error:
                # The others go all the same.
                failure = failure or error
        if failure is not None:
            raise failure
        return gone

    def _purge(self, trashed: Trashed) -> bool:
        full: list[StorageFull] = []

        def bury(trashed: Trashed) -> None:
            try:
                self._bury_for_certain(trashed)
            except StorageFull as error:
                # Whoever empties the trash may need just that: there is room when it is removed.
                full.append(error)

        try:
            return self._backend.purge(trashed, bury)
        finally:
            if full:
                self._bury_for_certain(trashed)

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
            known = known_of(header, tail, self._witness.about_to_write(session).seen)
            facts = self._survey.read(session, header, stored.begin, known)
            if facts.damaged:
                # Once more, held against nothing but itself.
                facts = self._survey.read(session, header, stored.begin, Known(None))
                if facts.damaged:
                    raise damage(session, stored, facts.ending.problem)
            # Durable first: evidence must never know more than the disk.
            self._backend.settle(hold, facts.ending, tail.acknowledged)
            now = self._runtime.now_ms()
            position = facts.ending.position
            # On record even if nothing is missing: others may still have more to note.
            self._evidence.accept(
                self._namespace,
                Acceptance(session, header.digest, position, known.acknowledged, now),
            )
            self._witness.drop(session)
            return position
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
        about = self._witness.about_to_write(session)
        if not (about.seen or about.deleted or about.damage):
            raise SessionNotFound(session)
        # What a purge that was cut short has moved must not come back once its tombstone is gone.
        self._backend.sweep_trash()
        self._witness.drop(session)
        self._evidence.forget(self._namespace, session)

    def missing(self) -> list[Missing]:
        """Sessions that evidence knows and that are neither stored nor deleted."""
        # In this order: what appears meanwhile is found, and nothing is accused for it.
        last: dict[str, Seen] = {}
        for seen in self._evidence.everything_known(self._namespace):
            if seen.session not in last or seen.seen_at > last[seen.session].seen_at:
                last[seen.session] = seen
        found = (self._missing(seen) for seen in last.values())
        return [each for each in found if each is not None]

    def missing_one(self, session: str) -> Missing | None:
        """The same of one id; None if it was never stored, or its absence is no wonder."""
        seen = self._witness.about(session).seen
        return self._missing(last_of(seen)) if seen else None

    def _missing(self, seen: Seen) -> Missing | None:
        # Twice: it may be restored between a look at the sessions and one at the trash.
        for _ in range(2):
            try:
                self._backend.stored(seen.session)
            except SessionNotFound as error:
                about = self._witness.about(seen.session)
                deleted = error.deleted_at is not None or about.deleted is not None
                if deleted or about.unreadable is not None:
                    # Who cannot tell accuses nobody.
                    return None
            except PerdureError:
                # Something is there, whatever is wrong with it.
                return None
            else:
                return None
        return Missing(seen.session, seen.position, seen.seen_at)
