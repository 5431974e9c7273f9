"""A turn of a conversation: it takes what users said, and replies.

Whoever runs one holds the writer of the main log from its beginning to its end. What is taken or
replied stands in the main log first and in the control log second; whatever a crash left in
between is finished by the next turn before it does anything else, and by the same turn if it goes
on after an error.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from perdure.conversations.control import REPLIED, TAKEN, Control, ControlWriter, found_in
from perdure.conversations.facts import Marks, Message
from perdure.conversations.pages import Reader
from perdure.conversations.places import Place
from perdure.conversations.requests import (
    body_of,
    check_content,
    check_name,
    check_same,
    digest_of,
)
from perdure.durable import crash
from perdure.errors import SessionClosed
from perdure.model.event import Event
from perdure.store import Session, Turn
from perdure.store.closing import close_behind
from perdure.store.members import Content

__all__ = ["REPLY", "TOLD", "RunningTurn"]

REPLY = "conversation/reply"
"""Event of the main log that names the body of a reply; its key is the request."""

TOLD = "user/message"
"""Event of the main log with which an agent is told a message; `message` in it is the number."""


class _Told(NamedTuple):
    """Messages that stand in the main log, one after the other, in one turn.

    Attributes:
        turn: its id.
        last: the number of the last of them, and whether it steers.
        main: the event of the main log that says it.

    """

    turn: str | None
    follow_up: int
    steer: int
    main: int


class RunningTurn:
    """One turn of a conversation, as `Conversation.turn` begins it; a context manager.

    Methods may be called from any thread.

    Attributes:
        session: the writer of the main log, a `perdure.Session`: `once`, `set_state`, `messages`.

    """

    def __init__(self, place: Place, conversation: str, session: Session) -> None:
        """Made by `Conversation.turn`: finishes what a crash left between the two logs."""
        self.session = session
        self._place = place
        self._id = conversation
        self._control = Control(place, conversation)
        self._reader = Reader(place, conversation)
        self._lock = threading.RLock()
        self._recorder: Turn | None = None
        self._turn: str | None = None
        # Whether the main log may hold what the control log does not say yet.
        self._behind = True
        # Whether this turn has taken what was there when it began.
        self._begun = False
        self._settle()

    def __repr__(self) -> str:
        """Which conversation, and whether the turn has ended."""
        return f"<RunningTurn of {self._id!r}, {'ended' if self.session.closed else 'open'}>"

    # --- the recorder ----------------------------------------------------------------------------

    @property
    def recorder(self) -> Turn:
        """The turn of the main log, a `perdure.store.Turn`: steps, calls, results.

        It begins when this is first asked for, or with the first message that is taken, and ends
        with this turn, or by its own `end`.

        Raises:
            SessionClosed: the turn has ended.
            As `Session.turn`.

        """
        with self._lock:
            self._check()
            if self._recorder is None:
                self._recorder = self.session.turn()
                self._turn = self._recorder.id
            return self._recorder

    def once(
        self,
        key: str,
        action: Callable[[], Any],
        *,
        about: Any = None,
        retry: bool = False,
    ) -> Any:
        """Do something outside once: `Session.once` of the main log.

        Raises:
            As `Session.once`.

        """
        return self.session.once(key, action, about=about, turn=self._turn, retry=retry)

    # --- taking ----------------------------------------------------------------------------------

    def waiting(self) -> list[Message]:
        """What `take` would take now: accepted, not taken, in order.

        When the turn begins, everything; later, what steers.

        Raises:
            SessionClosed: the turn has ended.
            As `Conversation.messages`.

        """
        with self._lock:
            self._check()
            self._settle()
            return self._due(self._reader.waiting(self._control.end()))

    def _due(self, waiting: list[Message]) -> list[Message]:
        return [each for each in waiting if not self._begun or each.when_busy == "steer"]

    def take(self, into: Turn | None = None) -> list[Message]:
        """Take what waits, and tell the agent: a `user/message` of the main log for each.

        They are durable there, and said to be taken, when this returns. The first time it is
        everything that was accepted until then; later only what steers, for the rest is for the
        next turn. What has expired meanwhile is taken, and nothing is told of it. `into` is a turn
        of `session` that the agent keeps itself, in place of `recorder`.

        Raises:
            SessionClosed: the turn has ended.
            SessionBusy: others have been writing the control log for seconds; it may be tried
                again, and nothing is told twice.
            As `Session.append`.

        """
        with self._lock:
            self._check()
            self._settle()
            end = self._control.end()
            due = self._due(self._reader.waiting(end))
            if due:
                self._tell(due, into)
                crash.point("conversation.told")
                with self._control.writing() as control:
                    # Nothing that was accepted before `end` is left, but for what is not due.
                    steer = end.seq
                    follow_up = end.marks.follow_up if self._begun else end.seq
                    main = self.session.position.seq
                    self._say_taken(control, _Told(self._turn, follow_up, steer, main), len(due))
                self._behind = False
            self._begun = True
            return [
                each._replace(
                    status="taken" if each.content is not None else each.status, turn=self._turn
                )
                for each in due
            ]

    def _tell(self, due: list[Message], into: Turn | None) -> None:
        recorder = self.recorder if into is None else into
        self._turn = recorder.id
        self._behind = True
        for each in due:
            if each.content is not None:
                told = {
                    "content": each.content,
                    "message": each.seq,
                    "when_busy": each.when_busy,
                }
                recorder.buffer(TOLD, told, key=_key_of(each.seq))
        self.session.flush()

    def _say_taken(self, control: ControlWriter, told: _Told, count: int) -> None:
        def moved(_seq: int, marks: Marks) -> Marks:
            return Marks(
                follow_up=max(told.follow_up, marks.follow_up),
                steer=max(told.steer, marks.steer),
                waiting=max(marks.waiting - count, 0),
                profile=marks.profile,
                reply=marks.reply,
                main=max(told.main, marks.main),
            )

        control.append(TAKEN, {}, moved, turn=told.turn)
        crash.point("conversation.taken")

    def unanswered(self) -> list[Message]:
        """What turns have taken since the last reply: after a crash, what still has to be answered.

        It includes what this turn took. The agent was told all of it, and finds it in
        `session.messages()`, but for a turn that left nothing else.

        Raises:
            SessionClosed: the turn has ended.
            As `Conversation.messages`.

        """
        with self._lock:
            self._check()
            self._settle()
            end = self._control.end()
            return self._reader.taken_since(end, end.marks.reply)

    # --- replying --------------------------------------------------------------------------------

    def reply(self, request: str, content: Content) -> Message:
        """Say something that users see; durable, and with its number, when this returns.

        Idempotent by `request`, any text of 1 to 1,024 characters; in later turns as well.

        Raises:
            InvalidValue: an argument cannot be.
            RequestConflict: the request was made before, with other content.
            SessionClosed: the turn has ended.
            SessionBusy: others have been writing the control log for seconds; it may be tried
                again.
            As `Session.append`.

        """
        check_name("request", request)
        blocks = check_content(content, by_user=False)
        digest = digest_of({"content": blocks})
        with self._lock:
            self._check()
            self._settle()
            event = found_in(self.session, REPLY, request)
            if event is None:
                self._behind = True
                body = self.session.put_blob(body_of(request, blocks))
                crash.point("conversation.reply-body")
                data = {"hash": digest, "body": body}
                event = self.session.append(REPLY, data, turn=self._turn, key=request)
                crash.point("conversation.reply-named")
            else:
                check_same(event, request, digest)
            with self._control.writing() as control:
                said = self._say_replied(control, event)
                marks = control.end.marks
            self._behind = False
            return self._reader.message(said, marks, None)

    def _say_replied(self, control: ControlWriter, event: Event) -> Event:
        request = str(event.key)
        said = control.find(REPLIED, request)
        if said is not None:
            return said

        def moved(seq: int, marks: Marks) -> Marks:
            return Marks(
                follow_up=marks.follow_up,
                steer=marks.steer,
                waiting=marks.waiting,
                profile=marks.profile,
                reply=seq,
                main=max(event.seq, marks.main),
            )

        data = {"hash": event.data["hash"], "body": event.data["body"], "main": event.seq}
        said = control.append(REPLIED, data, moved, key=request, turn=event.turn)
        crash.point("conversation.replied")
        return said

    # --- what was left in between ----------------------------------------------------------------

    def _settle(self) -> None:
        """Have the control log say what the main log holds already."""
        if not self._behind:
            return
        self.session.flush()
        end = self._control.end()
        left = [
            event
            for event in self._place.main.read_from(
                self._id, end.marks.main + 1, types=(TOLD, REPLY)
            )
            if _is_reply(event) or _number_in(event) is not None
        ]
        if left:
            waiting = {each.seq: each.when_busy for each in self._reader.waiting(end)}
            with self._control.writing() as control:
                for event in left:
                    if event.type == REPLY:
                        self._say_replied(control, event)
                    else:
                        self._say_told(control, event, waiting)
        self._behind = False

    def _say_told(
        self, control: ControlWriter, event: Event, waiting: dict[int, str | None]
    ) -> None:
        """Say of one message that it was taken, and of those before it that told nothing."""
        seq = _number_in(event)
        kind = waiting.get(-1 if seq is None else seq)
        if seq is None or kind is None:
            return
        steers = kind == "steer"
        covered = [
            each for each, other in waiting.items() if each <= seq and (other == "steer") == steers
        ]
        for each in covered:
            del waiting[each]
        low, main = -1, event.seq
        told = _Told(event.turn, low if steers else seq, seq if steers else low, main)
        self._say_taken(control, told, len(covered))

    # --- ending ----------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.session.closed:
            raise SessionClosed(self._id, "this turn has ended")

    def end(self) -> None:
        """End the turn: its recorder, then the writer of the main log. Its context does it.

        Raises:
            As `Session.close`.

        """
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        """The turn itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End it; the recorder's turn ends as completed, or as the exception says.

        A storage error is chained onto the exception that ends the context.
        """
        try:
            if self._recorder is not None and not self.session.closed:
                self._recorder.__exit__(kind, error, trace)
        finally:
            close_behind(error, self.session.close, f"while ending a turn of {self._id!r}")


def _key_of(seq: int) -> str:
    """The key under which the main log has a message."""
    return f"message {seq}"


def _number_in(event: Event) -> int | None:
    """The number of the message that an event of the main log tells; None if it is the agent's."""
    number = event.data.get("message") if isinstance(event.data, dict) else None
    told = event.type == TOLD and type(number) is int and event.key == _key_of(number)
    return number if told else None


def _is_reply(event: Event) -> bool:
    """Whether an event of the main log names a reply, in the form that is written here."""
    if event.type != REPLY or not isinstance(event.data, dict) or event.key is None:
        return False
    return all(isinstance(event.data.get(name), str) for name in ("hash", "body"))
