"""The control log of one conversation: what is accepted, taken, replied, and how it is set.

Writers are short and come one after the other; none of them waits for a turn. Readers take no lock.
Every event of this log carries the marks behind it (`Marks`), so that neither has to read more of
it than is new.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from perdure.conversations.facts import Marks
from perdure.conversations.gates import WAIT_SECONDS
from perdure.conversations.places import Place, missing_told
from perdure.errors import SessionNotFound
from perdure.model.event import Event
from perdure.store import Session

__all__ = [
    "ACCEPTED",
    "CREATED",
    "REPLIED",
    "TAKEN",
    "UPDATED",
    "Control",
    "ControlWriter",
    "End",
    "found_in",
    "marks_of",
]

CREATED = "conversation/created"
UPDATED = "profile/updated"
ACCEPTED = "message/accepted"
TAKEN = "message/taken"
REPLIED = "message/replied"

_TYPES = frozenset({CREATED, UPDATED, ACCEPTED, TAKEN, REPLIED})
_BACK_EVENTS = 16


class End(NamedTuple):
    """Where a control log stands.

    Attributes:
        seq: number of its last event.
        marks: what stands behind it.

    """

    seq: int
    marks: Marks


def marks_of(event: Event) -> Marks | None:
    """The marks that an event carries; None if it is none of ours, as where content expired."""
    if event.type not in _TYPES or not isinstance(event.data, dict):
        return None
    try:
        return msgspec.convert(event.data.get("marks"), Marks)
    except msgspec.ValidationError:
        return None


def found_in(session: Session, kind: str, key: str) -> Event | None:
    """The event of a (type, key) that a writer's log holds already."""
    # A repeat has to be known before anything is written for it; appending would be too late.
    return session.find(kind, key)


class ControlWriter:
    """The short writer of a control log, while somebody has it.

    Attributes:
        end: where the log stands.

    """

    def __init__(self, session: Session, end: End) -> None:
        """The session stands at the end."""
        self.session = session
        self.end = end

    def find(self, kind: str, request: str) -> Event | None:
        """What a request led to, if it was made before."""
        return found_in(self.session, kind, request)

    def append(
        self,
        kind: str,
        data: dict[str, Any],
        moved: Callable[[int, Marks], Marks],
        *,
        key: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """Append an event; `moved` makes its marks of its number and the marks before it.

        Raises:
            As `Session.append`.

        """
        seq = self.session.position.seq + 1
        marks = moved(seq, self.end.marks.after(seq))
        told = {**data, "marks": msgspec.to_builtins(marks)}
        event = self.session.append(kind, told, key=key, turn=turn)
        self.end = End(event.seq, marks)
        return event


class Control:
    """The control log of one conversation of one principal."""

    def __init__(self, place: Place, conversation: str) -> None:
        """Nothing is read."""
        self._place = place
        self._id = conversation
        self._store = place.control

    # --- reading ---------------------------------------------------------------------------------

    def read(self, seq: int) -> Iterator[Event]:
        """Events from a number on, read as they are taken; no lock is.

        Raises:
            ConversationNotFound: there is none.
            As `Store.read_from`.

        """
        # Around the whole of it: a log may be deleted while it is read.
        with missing_told(self._id):
            yield from self._store.read_from(self._id, seq)

    def blob(self, digest: str) -> bytes:
        """The body of a message.

        Raises:
            As `Store.blob`.

        """
        with missing_told(self._id):
            return self._store.blob(self._id, digest)

    def end(self) -> End:
        """Where the log stands; what is new since somebody here looked last is read.

        Raises:
            As `read`.

        """
        known = self._place.ends.get(self._place.principal, self._id)
        if known is not None:
            found = self._end_from(known[0])
            if found is not None:
                return found
        with missing_told(self._id):
            position = self._store.inspect(self._id).position
        return self.end_at(0 if position is None else position.seq)

    def end_at(self, seq: int) -> End:
        """Where the log stands, which has an event `seq` near its end.

        Raises:
            As `read`.

        """
        back = 0
        while True:
            found = self._end_from(max(seq - back, 0))
            if found is not None:
                return found
            if back >= seq:
                # No event of ours: whatever this is, nothing was accepted in it.
                return End(seq, Marks())
            back = back * 2 or _BACK_EVENTS

    def _end_from(self, seq: int) -> End | None:
        last, marks = -1, None
        for event in self.read(seq):
            last, marks = event.seq, marks_of(event) or marks
        if marks is None:
            return None
        return self.seen(End(last, marks))

    def seen(self, end: End) -> End:
        """Take note of an end, for whoever asks next."""
        self._place.ends.put(self._place.principal, self._id, *end)
        return end

    # --- writing ---------------------------------------------------------------------------------

    @contextmanager
    def writing(self) -> Iterator[ControlWriter]:
        """The writer, alone with it; others are waited for, but for a bounded time.

        Raises:
            ConversationNotFound: there is none, or it was deleted.
            SessionBusy: others have been at it for `WAIT_SECONDS`.
            As `Store.writer`.

        """
        with (
            missing_told(self._id),
            self._place.gates.writing(self.gate, self._open) as session,
        ):
            # Under the lock, and before anything is written: whoever deletes takes the main log
            # away first.
            self._place.main.inspect(self._id)
            writer = ControlWriter(session, self._end_of(session))
            yield writer
            self.seen(writer.end)

    def _open(self) -> Session:
        return self._store.writer(self._id, wait=WAIT_SECONDS)

    def _end_of(self, session: Session) -> End:
        seq = session.position.seq
        known = self._place.ends.get(self._place.principal, self._id)
        if known is not None and known[0] == seq:
            return End(*known)
        return self.end_at(seq)

    @property
    def gate(self) -> tuple[str, ...]:
        """The queue of its writers."""
        return ("control", self._place.principal, self._id)

    # --- beginning -------------------------------------------------------------------------------

    def begin(self, profile: dict[str, Any]) -> None:
        """See that the log is there; if it is not, it begins with this profile.

        Raises:
            SessionExists: its id is taken by one that was deleted.
            As `Session.append`.

        """
        try:
            self._store.inspect(self._id)
        except SessionNotFound as error:
            if error.missing is not None:
                raise
            data = {"profile": profile, "marks": msgspec.to_builtins(Marks())}
            with self._store.create(self._id, vocabulary=None) as session:
                session.append(CREATED, data)
