"""What is remembered about logs beside the logs: the positions that were acknowledged.

The tail slots of a session are exact after a kill and may be old after a loss of power; evidence is
a few seconds old and durable. A log that lacks what either of them remembers has lost something.
Evidence follows in the background and is never waited for.
"""

import threading
import urllib.parse
from collections.abc import Sequence
from contextlib import suppress

from perdure.backends.base import Backend, Tail
from perdure.errors import PerdureError, SessionExists
from perdure.evidence import Damage, Seen
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Known, Problem
from perdure.runtime import Runtime
from perdure.store.flusher import DELAY_SECONDS, Flusher

__all__ = ["EVIDENCE_DELAY_SECONDS", "Witness", "known_of"]

EVIDENCE_DELAY_SECONDS = 5.0
"""Evidence is at most this old, and no older than the end of the last turn."""


def namespace_key(parts: Sequence[str]) -> str:
    """One text for a namespace, as in a URL path; distinct parts give distinct texts."""
    quoted = (urllib.parse.quote(part.encode("utf-8", "surrogatepass"), safe="") for part in parts)
    return "/".join(quoted)


def known_of(header: Header, tail: Tail, seen: Sequence[Seen]) -> Known:
    """What the log of `header` must hold, by its tail slots and by evidence."""
    slot = tail.acknowledged
    mine = next((one.position for one in seen if one.digest == header.digest), None)
    if mine is None:
        instead = None
        if seen:
            last = max(seen, key=lambda one: one.seen_at)
            instead = f"another log of this id was acknowledged, up to event {last.position.seq}"
        return Known(slot, None, instead)
    if slot is None or mine.seq > slot.seq:
        return Known(mine, slot)
    return Known(slot, mine if mine != slot else None)


class Witness:
    """Remembers the sessions of one namespace."""

    def __init__(self, backend: Backend, flusher: Flusher, runtime: Runtime) -> None:
        """Open nothing yet."""
        self.evidence = backend.evidence
        self.namespace = namespace_key(backend.parts)
        self._persistent = backend.persistent
        self._flusher = flusher
        self._runtime = runtime
        self.reset()

    def reset(self) -> None:
        """Forget what was not noted yet: it is another process's to note."""
        self._mutex = threading.RLock()
        self._moved: dict[tuple[str, str], Position] = {}
        self._noted: dict[tuple[str, str], set[Position]] = {}
        self._soon: bool | None = None

    # --- looking ---------------------------------------------------------------------------------

    def known(self, session: str, header: Header, tail: Tail, *, to_write: bool = False) -> Known:
        """What the log of `session` must hold; `tail` was read before the log is.

        Raises:
            As `seen`.

        """
        return known_of(header, tail, self.seen(session, to_write=to_write))

    def seen(self, session: str, *, to_write: bool = False) -> list[Seen]:
        """What evidence remembers of the logs of an id.

        Raises:
            UnsafeFile, FormatUnsupported, StorageUnavailable: it cannot be read; `to_write` only,
                since that must not keep anybody from reading the logs.

        """
        try:
            return self.evidence.known(self.namespace, session)
        except PerdureError:
            if to_write:
                raise
            return []

    # --- noting ----------------------------------------------------------------------------------

    def announce(self, header: Header) -> None:
        """A session is about to be stored for the first time.

        Raises:
            SessionExists: its id belongs to one that was deleted.

        """
        if not self._persistent:
            return
        deleted = self.evidence.deleted(self.namespace, header.id)
        if deleted is not None:
            raise SessionExists(header.id, deleted_at=deleted.deleted_at)
        if self.evidence.known(self.namespace, header.id):
            # The last log of this id vanished. This one is no replacement that came unseen.
            start = Position(-1, header.genesis)
            self.evidence.note([(self.namespace, self._seen(header.id, header.digest, start))])

    def moved(self, header: Header, position: Position, records: Sequence[Record] = ()) -> None:
        """The log is durable up to `position`; noted within seconds, and soon after a turn."""
        if not self._persistent:
            return
        soon = not records or any(record.type == "turn/end" for record in records)
        with self._mutex:
            self._moved[header.id, header.digest] = position
            due = self._soon is None or (soon and not self._soon)
            if due:
                self._soon = soon
        if due:
            self._flusher.schedule(self._push, DELAY_SECONDS if soon else EVIDENCE_DELAY_SECONDS)

    def _push(self) -> None:
        # What could not be noted is not lost: the logs and their tail slots are there.
        with suppress(PerdureError):
            self.push()

    def push(self) -> None:
        """Note every position that moved.

        Raises:
            StorageFull, StorageUnavailable, UnsafeFile: it stays to be noted.

        """
        with self._mutex:
            moved, self._moved, self._soon = self._moved, {}, None
        if not moved:
            return
        with self._mutex:
            for name, position in moved.items():
                # The one before may still be what stands there.
                before = max(self._noted.get(name, ()), default=position)
                self._noted[name] = {before, position}
        try:
            self.evidence.note(
                [
                    (self.namespace, self._seen(session, digest, position))
                    for (session, digest), position in moved.items()
                ]
            )
        except BaseException:
            with self._mutex:
                self._moved = {**moved, **self._moved}
            raise

    def noted(self, header: Header) -> set[Position]:
        """What this store may have noted last of a log; asked once, at the end of its writer."""
        with self._mutex:
            return self._noted.pop((header.id, header.digest), set())

    def _seen(self, session: str, digest: str, position: Position) -> Seen:
        return Seen(session, digest, position, self._runtime.now_ms())

    def report(self, session: str, problem: Problem | None) -> None:
        """Remember that a writer was refused."""
        kind, record, reason = "record", None, "it does not hold together"
        if problem is not None:
            kind, record, reason = problem.kind, problem.record, problem.reason
        with suppress(PerdureError):
            damage = Damage(session, kind, record, reason, self._runtime.now_ms())
            self.evidence.report(self.namespace, damage)

    def sound(self, session: str) -> None:
        """The log of `session` holds together: what was reported of it is over."""
        with suppress(PerdureError):
            if self.evidence.reports(self.namespace, session):
                self.evidence.clear_report(self.namespace, session)
