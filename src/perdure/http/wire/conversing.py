"""Conversations: what users post and read."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from perdure.http.wire.shapes import Answer, Body, Cursor, Key, Query

__all__ = [
    "AcceptedShape",
    "ConversationLiveQuery",
    "ConversationQuery",
    "ConversationShape",
    "ConversationsQuery",
    "ConversationsShape",
    "CreateConversation",
    "DeletedConversation",
    "ListedConversation",
    "MessageShape",
    "PageQuery",
    "PageShape",
    "PostRequest",
    "ProfileRequest",
    "ProfileShape",
]

_Principal = Annotated[str, Meta(min_length=1, max_length=1_024)]


class ConversationQuery(Query):
    """For the owner of the store: whose conversations are meant. Others have their own alone."""

    principal: _Principal | None = None


class ConversationsQuery(ConversationQuery):
    """Which conversations to list."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    after: Cursor | None = None
    sort: Literal["created", "last_active"] = "created"


class PageQuery(ConversationQuery):
    """Which messages: `limit` from the beginning, or behind a `cursor`."""

    cursor: Annotated[str, Meta(max_length=1_024)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50


class ConversationLiveQuery(ConversationQuery):
    """Where a stream begins: behind a `cursor`; the header Last-Event-ID, one too, goes before."""

    cursor: Annotated[str, Meta(max_length=1_024)] | None = None


class CreateConversation(Body):
    """A new conversation. Sent again with the same `request` it gives the same one."""

    request: Key
    profile: dict[str, Any] | None = None


class ProfileShape(Answer):
    """What a conversation is set to, and the revision of that."""

    revision: int
    values: dict[str, Any]
    time: int


class ConversationShape(Answer):
    """A conversation.

    Attributes:
        conversation: its id.
        busy: whether a turn is running.
        profile: what it is set to.

    """

    conversation: str
    busy: bool
    profile: ProfileShape


class ListedConversation(Answer):
    """A conversation of a listing; times are Unix milliseconds."""

    conversation: str
    title: str | None
    created: int | None
    last_active: int | None
    status: str
    turns: int


class ConversationsShape(Answer):
    """A page of conversations."""

    conversations: list[ListedConversation]
    cursor: str | None


class DeletedConversation(Answer):
    """A conversation that went to the trash."""

    conversation: str


class PostRequest(Body):
    """A message of the user.

    Attributes:
        request: an id of yours; sent again, the message is not doubled.
        content: a text, or blocks as docs/events.md has them.
        when_busy: what becomes of it while a turn runs.

    """

    request: Key
    content: str | list[dict[str, Any]]
    when_busy: Literal["follow-up", "steer", "refuse"] = "follow-up"


class AcceptedShape(Answer):
    """A message that is durable; `replayed` if this request was made before."""

    seq: int
    time: int
    status: str
    replayed: bool


class MessageShape(Answer):
    """A visible message; see `perdure.conversations.Message`."""

    seq: int
    role: str
    status: str
    time: int
    content: list[dict[str, Any]] | None
    request: str
    when_busy: str | None
    turn: str | None


class PageShape(Answer):
    """A page of messages; `cursor` is for what comes behind it, now or later."""

    messages: list[MessageShape]
    last_seq: int
    more: bool
    cursor: str


class ProfileRequest(Body):
    """What to set a conversation to, in place of the revision that was seen."""

    request: Key
    profile: dict[str, Any]
    expected_revision: Annotated[int, Meta(ge=0, le=2**53 - 1)]
