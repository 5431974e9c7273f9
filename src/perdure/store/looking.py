"""Sessions as they are found: the part of a store that writes nothing and waits for nobody."""

import threading
from abc import ABC
from collections.abc import Callable, Collection, Iterator

from perdure.backends.base import Backend, Entry
from perdure.errors import InvalidValue, PerdureError, PersistenceDisabled, SessionNotFound
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.recovery.walk import Problem
from perdure.runtime import Runtime
from perdure.store.folding import Folds
from perdure.store.inspection import Inspection, raw_lines
from perdure.store.reading import Pages
from perdure.store.retention import Retention
from perdure.store.survey import Survey
from perdure.store.verification import (
    Report,
    missing,
    unreadable,
    verify_columns,
    verify_content,
    verify_session,
)
from perdure.store.witness import Witness

__all__ = ["Looking"]

_POLL_SECONDS = 0.1
_LOOK_SECONDS = 1.0
"""Where the medium tells of changes: one may have gone untold."""

_HEARD_SECONDS = 0.001
"""What a call that changed nothing counts for."""

# Named here because `Looking.list` hides the builtin inside the class.
Entries = list[Entry]


class Looking(ABC):
    """What a store answers without changing anything; `Store` is what callers see of it."""

    _backend: Backend
    _folds: Folds
    _pages: Pages
    _retention: Retention
    _runtime: Runtime
    _survey: Survey
    _witness: Witness

    def inspect(self, id: str) -> Inspection:
        """A session as found; nothing is written and nobody is waited for.

        Raises:
            SessionNotFound: there is none.

        """
        with self._retention.telling(id):
            return self._inspection(id)

    def _inspection(self, id: str, progress: Callable[[int], None] | None = None) -> Inspection:
        return Inspection(
            self._backend, id, self._survey, self._witness, self._folds, progress=progress
        )

    def read_from(
        self, id: str, seq: int = 0, types: Collection[str] | None = None
    ) -> Iterator[Event]:
        """Stored events from `seq` on: no closers, no repair; empty at or past the end.

        What is read is verified: checksums, links, and the acknowledged end. `types` filters after
        that.

        Raises:
            InvalidValue: `seq` is not a count.
            SessionNotFound: there is none.
            SessionDamaged: raised by the iteration, after the last event that holds.
            FormatUnsupported: another version wrote it.

        """
        with self._retention.telling(id):
            return self._pages.read(id, seq, types)

    def raw(self, id: str, seq: int = 0) -> Iterator[bytes | Problem]:
        """The stored lines as they are, unjudged: what stands in place of the header, then records.

        With `seq` the header and the records before that event are left out. A place that holds no
        lines comes as a `Problem`.

        Raises:
            SessionNotFound: there is none.

        """
        with self._retention.telling(id):
            return raw_lines(self._backend, id, seq)

    def verify(self, id: str, *, progress: Callable[[int], None] | None = None) -> Report:
        """Read everything of one session, its content too; one that vanished is called missing.

        `progress` is called every few thousand events with the number of those verified so far.

        Raises:
            SessionNotFound: there is none, and there was none.

        """
        try:
            with self._retention.telling(id):
                found = self._inspection(id, progress)
            report = verify_session(found)
            content = verify_content(self._backend, id, found.expired)
            problems = [*report.problems, *verify_columns(self._backend, id)]
            return report._replace(problems=problems, evidence=found.unreadable, content=content)
        except SessionNotFound as error:
            gone = self._retention.missing_one(id) if error.deleted_at is None else None
            if gone is None:
                raise
            return missing(id, gone.position)
        except (InvalidValue, PersistenceDisabled):
            raise
        except PerdureError as error:
            return unreadable(id, error)

    def list(self) -> Entries:
        """Every stored session: header, or the problem that hides it; no log is read."""
        return [*self._backend.entries()]

    def list_snapshots(self) -> Entries:
        """As `list`; `revision` tells whether a session changed since it was seen last."""
        return self.list()

    def revision(self, id: str) -> str:
        """Opaque text that is another one after each change of the session's log; costs little.

        Raises:
            SessionNotFound: there is none.

        """
        with self._retention.telling(id):
            return self._backend.revision(id)

    def watch(self, id: str, seen: str, seconds: float) -> str:
        """Wait until a session changed: its revision as soon as it is not `seen` any more.

        After `seconds` the one that it has then, whatever that is. On a medium that tells of
        changes (PostgreSQL) this returns some milliseconds after one, elsewhere it looks ten times
        a second.

        Raises:
            SessionNotFound: there is none, or not any more.

        """
        moved = threading.Event()
        end = self._backend.subscribe(id, moved.set)
        pause, left = _POLL_SECONDS if end is None else _LOOK_SECONDS, seconds
        try:
            while True:
                moved.clear()
                found = self.revision(id)
                if found != seen or left <= 0:
                    return found
                step = min(pause, left)
                if end is None:
                    self._runtime.sleep(step)
                elif moved.wait(step):
                    step = _HEARD_SECONDS
                left -= step
        finally:
            if end is not None:
                end()

    def subscribe(self, id: str, told: Callable[[], None]) -> Callable[[], None] | None:
        """Have `told` called, in any thread, soon after each change of a session.

        It must neither wait nor raise, and one call may stand for many changes; look now and then
        as well, since one may go untold. What is returned ends that; None: this medium tells
        nobody (all but PostgreSQL), and `watch` looks for you.
        """
        return self._backend.subscribe(id, told)

    def locate(self, session: Header | str) -> str | None:
        """Absolute path of a session's log, existing or not; None where there are no files."""
        return self._backend.locate(session.id if isinstance(session, Header) else session)
