"""Conversations of the principal who asks; the owner of the store names whose are meant."""

from typing import Any

from perdure.conversations import Conversation, Conversations, Principal
from perdure.errors import InvalidValue
from perdure.http.server.access import PRINCIPALS
from perdure.http.server.calls import Call
from perdure.http.server.writers import Place
from perdure.http.wire import conversing as wire

__all__ = [
    "control_place",
    "conversation_of",
    "create_conversation",
    "delete_conversation",
    "get_conversation",
    "get_profile",
    "list_conversations",
    "post_message",
    "principal_of",
    "read_messages",
    "set_profile",
]


def principal_of(call: Call, desk: Conversations) -> Principal:
    """Whose conversations a request is about.

    Raises:
        InvalidValue: the owner did not say whose, or somebody named another than themselves.

    """
    named = call.query.principal
    if call.namespace != call.who.parts(()):
        raise InvalidValue("namespace", "conversations have none of their own")
    if call.who.principal is None:
        if named is None:
            hint = "?principal=NAME; with a token of `--principal NAME` it is that one"
            raise InvalidValue("principal", "has to be named by the owner", hint=hint)
        return desk.of(named)
    if named is not None:
        raise InvalidValue("principal", "is the one of the token, and is not named")
    return desk.of(call.who.principal)


def conversation_of(call: Call) -> Conversation:
    """The conversation that is meant.

    Raises:
        ConversationNotFound: there is none, or it is of somebody else.

    """
    return principal_of(call, call.desk).conversation(call.path["conversation"])


def control_place(call: Call, id: str) -> Place:
    """The session in which the messages of a conversation get their numbers."""
    principal = call.who.principal or call.query.principal
    namespace = (PRINCIPALS, principal, "control")
    return Place(call.root.namespace(*namespace), namespace, id)


def create_conversation(call: Call) -> dict[str, Any]:
    """See `Principal.create`."""
    body: wire.CreateConversation = call.body
    return _told(principal_of(call, call.desk).create(body.request, body.profile))


def list_conversations(call: Call) -> dict[str, Any]:
    """See `Principal.conversations`."""
    query: wire.ConversationsQuery = call.query
    found = principal_of(call, call.desk).conversations(query.limit, query.after, sort=query.sort)
    told = [
        {
            "conversation": each.id,
            "title": each.title,
            "created": each.created,
            "last_active": each.last_active,
            "status": each.status,
            "turns": each.turns,
        }
        for each in found.sessions
    ]
    return {"conversations": told, "cursor": found.cursor}


def get_conversation(call: Call) -> dict[str, Any]:
    """What there is to say of a conversation."""
    return _told(conversation_of(call))


def _told(chat: Conversation) -> dict[str, Any]:
    return {"conversation": chat.id, "busy": chat.busy, "profile": chat.profile().as_dict()}


def delete_conversation(call: Call) -> dict[str, Any]:
    """See `Principal.delete`."""
    id = call.path["conversation"]
    principal_of(call, call.desk).delete(id)
    return {"conversation": id}


def post_message(call: Call) -> dict[str, Any]:
    """See `Conversation.post`."""
    body: wire.PostRequest = call.body
    chat = conversation_of(call)
    return chat.post(body.request, body.content, when_busy=body.when_busy).as_dict()


def read_messages(call: Call) -> dict[str, Any]:
    """See `Conversation.messages`."""
    query: wire.PageQuery = call.query
    return conversation_of(call).messages(query.cursor, limit=query.limit).as_dict()


def get_profile(call: Call) -> dict[str, Any]:
    """See `Conversation.profile`."""
    return conversation_of(call).profile().as_dict()


def set_profile(call: Call) -> dict[str, Any]:
    """See `Conversation.set_profile`."""
    body: wire.ProfileRequest = call.body
    return (
        conversation_of(call)
        .set_profile(body.request, body.profile, expected_revision=body.expected_revision)
        .as_dict()
    )
