"""Pages of messages, and what waits: read from the control log, no further than is needed."""

from collections.abc import Iterator
from typing import NamedTuple

from perdure.conversations.control import ACCEPTED, REPLIED, TAKEN, Control, End, marks_of
from perdure.conversations.cursors import cursor_of, wrong_cursor
from perdure.conversations.facts import Marks, Message, MessagePage
from perdure.conversations.places import Place, missing_told
from perdure.conversations.requests import WHEN_BUSY, content_in
from perdure.errors import ContentDamaged, ContentExpired, InvalidValue
from perdure.model.event import Event

__all__ = ["PAGE_BYTES_MAX", "SCAN_EVENTS_MAX", "Reader"]

SCAN_EVENTS_MAX = 2000

PAGE_BYTES_MAX = 4 * 1024 * 1024
"""A page ends behind the message with which its bodies get larger than this."""
"""So many events a page looks at: where they are no messages it has fewer of them."""

_BEHIND_EVENTS = 64
"""So many events behind a page are looked at for the turn that took its last messages."""


class _Taken(NamedTuple):
    """A turn that took messages.

    Attributes:
        marks: up to which ones.
        turn: its id.

    """

    marks: Marks
    turn: str | None


class _Scan:
    """One pass over a stretch of the log, for one page."""

    def __init__(self, events: Iterator[Event], after: int) -> None:
        self._events = events
        self._after = after
        self.last = -1
        self.marks: Marks | None = None
        self.taken: list[_Taken] = []
        self.ended = False

    def next(self) -> Event | None:
        """The next event; None at the end of the log."""
        event = next(self._events, None)
        if event is None:
            self.ended = True
            return None
        self.last = event.seq
        marks = marks_of(event)
        if marks is not None:
            self.marks = marks
            if event.type == TAKEN:
                self.taken.append(_Taken(marks, event.turn))
        return event

    def page(self, limit: int) -> tuple[list[Event], int, bool]:
        """Its messages, the event behind which the next page begins, and whether more follow."""
        found: list[Event] = []
        at = self._after
        for _ in range(SCAN_EVENTS_MAX):
            event = self.next()
            if event is None:
                return found, at, False
            if event.seq <= self._after:
                continue
            if _is_message(event):
                if len(found) == limit:
                    return found, at, True
                found.append(event)
            at = event.seq
        return found, at, True

    def taker(self, event: Event) -> _Taken | None:
        """Who took a message, as far as this was read."""
        kind = event.data["when_busy"]
        return next((each for each in self.taken if each.marks.taken(kind) >= event.seq), None)


class Reader:
    """Reads the messages of one conversation; takes no lock and waits for nobody."""

    def __init__(self, place: Place, conversation: str) -> None:
        """Nothing is read."""
        self._place = place
        self._id = conversation
        self._control = Control(place, conversation)

    def page(self, after: int, limit: int) -> MessagePage:
        """The messages behind an event.

        Raises:
            InvalidValue: the log has no such event.
            ConversationNotFound: there is no such conversation.
            As `Store.read_from`.

        """
        scan = _Scan(self._control.read(max(after, 0)), after)
        found, at, more = scan.page(limit)
        if scan.last < after:
            raise wrong_cursor("is ahead of the log")
        if scan.ended and scan.marks is not None:
            end = self._control.seen(End(scan.last, scan.marks))
        else:
            end = self._control.end()
        turns = self._turns(scan, [each for each in found if each.type == ACCEPTED], end)
        messages: list[Message] = []
        size = 0
        for each in found:
            if size >= PAGE_BYTES_MAX:
                # What is left comes with the next page.
                at, more = messages[-1].seq, True
                break
            message, taken = self._sized(each, end.marks, turns.get(each.seq))
            messages.append(message)
            size += taken
        return MessagePage(messages, end.seq, more, cursor_of(self._id, at))

    def waiting(self, end: End) -> list[Message]:
        """What is accepted and not taken, in order.

        Raises:
            As `page`.

        """
        if not end.marks.waiting:
            return []
        start = min(end.marks.follow_up, end.marks.steer) + 1
        found = []
        for event in self._control.read(start):
            if event.seq > end.seq:
                break
            if event.type == ACCEPTED and _is_message(event):
                kind = event.data["when_busy"]
                if event.seq > end.marks.taken(kind):
                    found.append(self.message(event, end.marks, None))
        return found

    def taken_since(self, end: End, seq: int) -> list[Message]:
        """What was accepted, and taken behind the event `seq`, in order.

        Raises:
            As `page`.

        """
        before = self._marks_at(seq)
        start = min(before.follow_up, before.steer) + 1
        scan = _Scan(self._control.read(max(start, 0)), start - 1)
        found = []
        while (event := scan.next()) is not None and event.seq <= end.seq:
            if event.type == ACCEPTED and _is_message(event):
                kind = event.data["when_busy"]
                if before.taken(kind) < event.seq <= end.marks.taken(kind):
                    found.append(event)
        takers = {each.seq: scan.taker(each) for each in found}
        turns = {seq: None if taker is None else taker.turn for seq, taker in takers.items()}
        return [self.message(each, end.marks, turns[each.seq]) for each in found]

    def _marks_at(self, seq: int) -> Marks:
        for event in self._control.read(max(seq, 0)):
            marks = marks_of(event)
            if marks is not None:
                return marks
        return Marks()

    # --- the turns that took them ----------------------------------------------------------------

    def _turns(self, scan: _Scan, accepted: list[Event], end: End) -> dict[int, str | None]:
        """The turn of each message that was taken."""
        taken = [e for e in accepted if e.seq <= end.marks.taken(e.data["when_busy"])]
        for _ in range(_BEHIND_EVENTS):
            if all(scan.taker(each) for each in taken) or scan.next() is None:
                break
        turns: dict[int, str | None] = {}
        for event in taken:
            taker = scan.taker(event) or self._search(event, scan.last, end.seq)
            if taker is not None and taker not in scan.taken:
                scan.taken.append(taker)
            turns[event.seq] = None if taker is None else taker.turn
        return turns

    def _search(self, message: Event, low: int, high: int) -> _Taken | None:
        """Who took a message, which is the first event with marks that cover it: bisected for."""
        kind = message.data["when_busy"]
        found: _Taken | None = None
        high += 1
        while low < high:
            middle = (low + high) // 2
            at = next((e for e in self._control.read(middle) if marks_of(e) is not None), None)
            marks = None if at is None else marks_of(at)
            if at is None or marks is None or at.seq >= high:
                high = middle
            elif marks.taken(kind) >= message.seq:
                found, high = _Taken(marks, at.turn), middle
            else:
                low = at.seq + 1
        return found

    # --- one message -----------------------------------------------------------------------------

    def message(self, event: Event, marks: Marks, turn: str | None) -> Message:
        """A message from its event; what is wrong with its body is a status."""
        return self._sized(event, marks, turn)[0]

    def _sized(self, event: Event, marks: Marks, turn: str | None) -> tuple[Message, int]:
        """A message, and how many bytes its body has."""
        data, key = event.data, event.key or ""
        if event.type == REPLIED:
            role, status, when_busy, turn = "assistant", "replied", None, event.turn
        else:
            role, when_busy = "user", data["when_busy"]
            status = "taken" if event.seq <= marks.taken(when_busy) else "accepted"
        content, body = None, b""
        try:
            body = self._body(event.type, data["body"])
            content = content_in(body)
            status = "damaged" if content is None else status
        except ContentExpired:
            status = "expired"
        except (ContentDamaged, InvalidValue):
            status = "damaged"
        made = Message(event.seq, role, status, event.time, content, key, when_busy, turn)
        return made, len(body)

    def _body(self, kind: str, digest: str) -> bytes:
        if kind == ACCEPTED:
            return self._control.blob(digest)
        with missing_told(self._id):
            return self._place.main.blob(self._id, digest)


def _is_message(event: Event) -> bool:
    """Whether an event is a message, of the form that is written here."""
    if event.type not in (ACCEPTED, REPLIED) or not isinstance(event.data, dict):
        return False
    known = event.type == REPLIED or event.data.get("when_busy") in WHEN_BUSY
    return known and isinstance(event.data.get("body"), str) and event.key is not None
