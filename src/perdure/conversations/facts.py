"""What conversations tell: values for people and programs."""

from typing import Any, NamedTuple

import msgspec

__all__ = ["Accepted", "Marks", "Message", "MessagePage", "Profile"]


class Message(NamedTuple):
    """One visible message of a conversation.

    Attributes:
        seq: its number, that of the event of the control log; numbers leave gaps, and give order.
        role: "user" or "assistant".
        status: "accepted" (no turn took it yet), "taken" or "replied"; "expired" or "damaged" if
            its body is not there any more, or is not what it was.
        time: Unix milliseconds of its acceptance.
        content: blocks as in docs/events.md; None if it is expired or damaged.
        request: id of the request that posted it.
        when_busy: "follow-up", "steer" or "refuse"; None of replies.
        turn: id of the turn of the main log that took it, or said it; None without one.

    """

    seq: int
    role: str
    status: str
    time: int
    content: list[dict[str, Any]] | None
    request: str
    when_busy: str | None
    turn: str | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self._asdict()


class MessagePage(NamedTuple):
    """A page of messages, the oldest first.

    Attributes:
        messages: in order of their numbers; there may be fewer than asked for, even none.
        last_seq: number of the last event of the control log, message or not, when it was read.
        more: whether further messages may follow already.
        cursor: for what comes behind this page, now or later; never None.

    """

    messages: list[Message]
    last_seq: int
    more: bool
    cursor: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**self._asdict(), "messages": [each.as_dict() for each in self.messages]}


class Accepted(NamedTuple):
    """A message that is durable.

    Attributes:
        seq: its number.
        time: Unix milliseconds of its acceptance.
        status: "accepted", or "taken" if this repeats a request and a turn took it meanwhile.
        replayed: whether the request was made before: nothing was written this time.

    """

    seq: int
    time: int
    status: str
    replayed: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self._asdict()


class Profile(NamedTuple):
    """What a conversation is set to.

    Attributes:
        revision: number of the control event that set it; 0 is what it was created with.
        values: a JSON object.
        time: Unix milliseconds of that.

    """

    revision: int
    values: dict[str, Any]
    time: int

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self._asdict()


class Marks(msgspec.Struct, frozen=True, rename={"follow_up": "follow-up"}):
    """Where a conversation stands behind an event of its control log, which carries them.

    So the last event is all that has to be read, however long the log is.

    Attributes:
        follow_up: every message up to this number is taken that does not steer.
        steer: every message up to this number is taken that steers.
        waiting: how many messages are accepted and not taken.
        profile: number of the event that set the profile.
        reply: number of the last reply; -1 without one.
        main: up to this event of the main log all that concerns this one is in it.

    """

    follow_up: int = 0
    steer: int = 0
    waiting: int = 0
    profile: int = 0
    reply: int = -1
    main: int = -1

    def taken(self, when_busy: str) -> int:
        """Up to which number messages of this kind are taken."""
        return self.steer if when_busy == "steer" else self.follow_up

    def after(self, seq: int) -> "Marks":
        """Those of an event `seq` that takes nothing: where nothing waits, nothing is looked for.

        A message at `seq` itself is not covered.
        """
        if self.waiting:
            return self
        return msgspec.structs.replace(self, follow_up=seq - 1, steer=seq - 1)
