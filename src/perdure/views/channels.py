"""View "channels": how much was said in each channel, and the end of it."""

from typing import Any, NamedTuple

import msgspec

from perdure.model import values
from perdure.model.event import Event
from perdure.model.vocabulary import fitting
from perdure.views.view import History, Rows, View
from perdure.views.windows import Window, key_of, parts_of

__all__ = ["MESSAGES_MAX", "Channel", "ChannelPost", "Channels", "channels"]

MESSAGES_MAX = 100
"""Messages of each channel that are kept at hand; the log has them all."""


class ChannelPost(NamedTuple):
    """One message of a channel.

    Attributes:
        seq: number of its event.
        time: Unix milliseconds.
        sender: who said it.
        content: what was said, any JSON value.
        id: the id that its sender gave it, or None.
        agent: the agent of its event.

    """

    seq: int
    time: int
    sender: str
    content: Any
    id: str | None
    agent: str | None


class Channel(msgspec.Struct, frozen=True):
    """A channel.

    Attributes:
        name: its name.
        count: how many messages there were.
        messages: the last 100 of them, the oldest first.

    """

    name: str
    count: int
    messages: tuple[ChannelPost, ...]


class Channels(View):
    """Per channel a window of messages, and a row `["channel", name]` with its first event."""

    name = "channels"
    version = 1
    types = frozenset({"channel/message"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Keep one more message."""
        said = fitting(event)
        if said is None:
            return
        if (key := key_of("channel", said.channel)) not in rows:
            rows.put(key, event.seq)
        post = ChannelPost(event.seq, event.time, said.sender, said.content, said.id, event.agent)
        Window(rows, MESSAGES_MAX, said.channel).put(post._asdict())


def channels(rows: Rows) -> list[Channel]:
    """The channels in the order of their first messages."""
    out = []
    known = ((parts_of(key), value) for key, value in rows.all.items())
    firsts = {str(parts[1]): value for parts, value in known if parts[0] == "channel"}
    for name in sorted(firsts, key=firsts.__getitem__):
        window = Window(rows, MESSAGES_MAX, name)
        posts = tuple(ChannelPost(**values.snapshot(row)) for row in window.values())
        out.append(Channel(name, window.count, posts))
    return out
