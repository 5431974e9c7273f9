"""What a store does for content and whole sessions: expire, compact, delete, restore, accept."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.backends.base import Aside, Backend, Blob, Trashed
from perdure.errors import InvalidValue
from perdure.evidence import Damage
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import check_id
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.store.content import Expiry, References, content_of, rule_of
from perdure.store.families import descendants_of, refuse_busy
from perdure.store.opening import verified
from perdure.store.reading import Pages
from perdure.store.repair import Repair, Repairer
from perdure.store.retention import Missing, Retention
from perdure.store.session import Compacted, Session
from perdure.store.survey import Survey
from perdure.store.witness import EvidenceState, Witness

__all__ = ["Keeping", "check_wait"]

_PLACES_MAX = 5
"""Places that a hint names at most."""


class Keeping(ABC):
    """The keeping half of a store; `Store` is what callers see of it."""

    _backend: Backend
    _pages: Pages
    _retention: Retention
    _runtime: Runtime
    _survey: Survey
    _witness: Witness

    @abstractmethod
    def writer(self, id: str, *, wait: float = 0.0) -> Session:
        """The exclusive writer of an existing session."""

    @abstractmethod
    def append(self, id: str, events: Iterable[Mapping[str, Any]]) -> list[Event]:
        """Append to a session without keeping its writer."""

    @abstractmethod
    def _check_open(self) -> None: ...

    # --- content ---------------------------------------------------------------------------------

    def blob(self, id: str, digest: str) -> bytes:
        """Content that an event refers to, its hash checked; waits for nobody.

        Raises:
            SessionNotFound: there is no such session.
            ContentExpired: it is not stored any more.
            ContentDamaged: its bytes do not have that hash.
            InvalidValue: `digest` is not 64 hex digits.

        """
        with self._retention.telling(id):
            return b"".join(content_of(self._backend, id, digest))

    def open_blob(self, id: str, digest: str) -> Iterator[bytes]:
        """As `blob`, in parts of a MiB; the last one comes only if the hash is right.

        Raises:
            As `blob`; ContentDamaged is raised by the iteration, before the last part.

        """
        with self._retention.telling(id):
            return content_of(self._backend, id, digest)

    def blobs(self, id: str) -> list[Blob]:
        """What content of a session is stored, in order of the digests.

        Raises:
            SessionNotFound: there is no such session.

        """
        with self._retention.telling(id):
            return [*self._backend.blobs(id)]

    def expire(
        self,
        id: str,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> Expiry:
        """Remove content of a session that satisfies every condition given, and is not pinned.

        `older_than` (seconds) counts from the last event that refers to it; `kinds` are event
        types, and all that refer to it must be of them; `keep_last` spares so many that were
        referred to last. What expires is written into the log first (`content/expired`). Content
        that no event refers to is removed as well; without a condition, only that. With `dry_run`
        nothing is changed and nobody is waited for.

        Raises:
            InvalidValue: a condition is out of its range.
            As `writer`.

        """
        if dry_run:
            rule = rule_of(older_than, kinds, keep_last)
            with self._retention.telling(id):
                # What a writer would set aside refers to nothing.
                _, facts = verified(self._backend, self._witness, id, self._survey.recall)
                found = References(self._backend, id, facts.ending.end)
                return found.expiry(rule, self._runtime.now_ms())
        with self.writer(id, wait=wait) as session:
            return session.expire(older_than=older_than, kinds=kinds, keep_last=keep_last)

    # --- whole sessions --------------------------------------------------------------------------

    def compact(self, id: str, *, wait: float = 0.0) -> Compacted:
        """Store the same records in less room; nothing that a reader sees changes.

        Raises:
            SessionDamaged: also if the log holds bytes that belong to no record.
            As `writer`.

        """
        with self.writer(id, wait=wait) as session:
            return session.compact()

    def archive(self, id: str) -> Event:
        """Say that a session is done with: an event, which `unarchive` takes back.

        Raises:
            As `append`.

        """
        return self.append(id, [{"type": "session/archived", "data": {}}])[0]

    def unarchive(self, id: str) -> Event:
        """Take `archive` back.

        Raises:
            As `append`.

        """
        return self.append(id, [{"type": "session/unarchived", "data": {}}])[0]

    def delete(self, id: str, *, subagents: bool = False) -> Trashed:
        """Move a session, damaged or not, to the trash; only this exact id. Its id stays taken.

        With `subagents` the sessions of its sub-agents go there first, as `descendants` lists them;
        each is restored by its own id.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: somebody writes it, or one of them.

        """
        check_id(id)
        self._check_open()
        with self._retention.telling(id):
            if subagents:
                below = descendants_of(self._backend, self._pages, id)
                refuse_busy(self._backend, [*below, id])
                for each in below:
                    self._retention.delete(each)
            return self._retention.delete(id)

    def trash(self) -> list[Trashed]:
        """The deleted sessions that can be restored."""
        return [*self._backend.trash()]

    def restore(self, id: str) -> None:
        """Bring the session of this id that was deleted last back, whole.

        Raises:
            SessionNotFound: none is in the trash.
            SessionExists: the id is in use.

        """
        check_id(id)
        self._check_open()
        self._retention.restore(id)

    def empty_trash(
        self, id: str | None = None, *, older_than: float | dt.timedelta | None = None
    ) -> list[Trashed]:
        """Remove deleted sessions for good: all, those of one id, or those deleted long ago.

        `older_than` in seconds. Their ids stay taken until `forget`.

        Raises:
            InvalidValue: `older_than` is no age.

        """
        self._check_open()
        if id is not None:
            check_id(id)
        age = rule_of(older_than, None, None).older_than_ms
        before = None if age is None else self._runtime.now_ms() - age
        return self._retention.empty_trash(before, id)

    def accept(self, id: str, *, wait: float = 0.0) -> Position:
        """Say that the log as it stands is the truth, though more was acknowledged once.

        For an older copy that was restored on purpose. Where the log stands now is returned.

        Raises:
            SessionDamaged: it does not hold together in itself.
            As `writer`.

        """
        check_wait(wait)
        self._check_open()
        try:
            with self._retention.telling(id):
                return self._retention.accept(id, wait)
        finally:
            self._witness.changed(id)

    def repair(
        self, id: str, *, salvage: bool = False, dry_run: bool = False, wait: float = 0.0
    ) -> Repair:
        """Go on after damage: a new log from what holds together, the old one kept aside whole.

        Behind the verified events stands `session/repaired`, which says what happened. With
        `salvage` the intact events behind the damage follow, each linked stretch of them behind a
        `session/salvaged` that says where they come from; they get new numbers. Damaged content
        goes aside and expires. Where nothing is wrong nothing is written. One that was broken off
        is finished as it was planned, whatever is asked for now. With `dry_run` nothing is changed
        and nobody is waited for.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: somebody writes it, after `wait` seconds.
            SessionDamaged: there is no log to be repaired.
            FormatUnsupported: another version wrote it; nothing is broken.

        """
        check_wait(wait)
        self._check_open()
        repairer = Repairer(self._backend, self._witness, self._survey, self._runtime)
        with self._retention.telling(id):
            if dry_run:
                return repairer.foretell(id, salvage=salvage)
            try:
                done = repairer.repair(id, salvage=salvage, wait=wait)
            except BaseException:
                self._witness.changed(id)
                raise
            if done.needed:
                self._witness.changed(id)
            return done

    def asides(self, id: str) -> list[Aside]:
        """What is kept beside the log of a session, oldest first.

        That is what a writer cut off behind a crash, and what a repair replaced: logs, content.

        Raises:
            SessionNotFound: there is no such session.

        """
        with self._retention.telling(id):
            return [*self._backend.asides(id)]

    def open_aside(self, id: str, place: str) -> Iterator[bytes]:
        """The bytes that are kept beside a log as `place`, in parts, as they were found.

        Nothing vouches for them: they were damaged, or belonged to no record.

        Raises:
            SessionNotFound: there is no such session.
            InvalidValue: nothing is kept there; the hint names what is.

        """
        with self._retention.telling(id):
            parts = self._backend.aside(id, place) if isinstance(place, str) else None
            if parts is None:
                places = [aside.place for aside in self._backend.asides(id)]
                raise InvalidValue(
                    "place",
                    f"nothing is kept beside session {id!r} as {values.shown(place)}",
                    hint=_named(places),
                )
            return parts

    def forget(self, id: str) -> None:
        """Drop all that is remembered of a session that is not stored; its id is free again.

        Raises:
            InvalidValue: it is stored, or in the trash.
            SessionNotFound: nothing is remembered of it.

        """
        self._check_open()
        self._retention.forget(id)

    def missing(self) -> list[Missing]:
        """Sessions that were stored here and are gone, though nobody deleted them."""
        return self._retention.missing()

    def evidence(self) -> EvidenceState:
        """Whether what is remembered beside the logs can be read; the same in all namespaces."""
        return self._witness.state()

    def reports(self) -> list[Damage]:
        """Damage that refused a writer and was neither mended nor accepted since."""
        return self._witness.evidence.reports(self._witness.namespace)


def _named(places: Sequence[str]) -> str:
    """A hint that says what is kept."""
    if not places:
        return "nothing is kept beside it"
    more = len(places) - _PLACES_MAX
    named = ", ".join(places[-_PLACES_MAX:])
    return f"there is {named}" + (f", and {more} older" if more > 0 else "")


def check_wait(wait: float) -> None:
    """Refuse what is no time to wait."""
    if not isinstance(wait, int | float) or not 0 <= wait < float("inf"):
        raise InvalidValue(
            "wait", f"{values.shown(wait)} is not a time to wait", hint="seconds, 0 or more"
        )
