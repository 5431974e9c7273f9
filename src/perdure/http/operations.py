"""What the API offers, as a table: the routes, the checks and the OpenAPI document come of it."""

from typing import Any, NamedTuple

from perdure.http.wire import conversing, events, finding, session, shapes

__all__ = [
    "BYTES",
    "JSON",
    "LINES",
    "LIVE",
    "LONG",
    "OPERATIONS",
    "PREFIX",
    "QUICK",
    "TAR",
    "Operation",
]

PREFIX = "/api"

JSON = "application/json"
LINES = "application/x-ndjson"
"""One JSON value a line."""
LIVE = "text/event-stream"
"""Server-sent events (WHATWG HTML, section 9.2)."""
BYTES = "application/octet-stream"
TAR = "application/x-tar"

QUICK = 30.0
"""Seconds that what costs a page may take."""
LONG = 600.0
"""Seconds that what reads everything may take."""


class Operation(NamedTuple):
    """One thing that can be asked for.

    Attributes:
        name: its `operationId`, and the name of what answers it.
        method: GET, POST, PUT or DELETE.
        path: a template as of OpenAPI, `{session}` for the id of a session and so on.
        summary: what it does, in one line.
        query: type of its parameters.
        body: type of its JSON, `bytes` for anything, or None.
        answer: type of its JSON, or None where `media` says what comes.
        media: what comes back.
        status: of success.
        seconds: so long it may take; streams may take longer, as long as somebody reads them.
        creates: whether it may be asked of a namespace in which nothing is yet.

    """

    name: str
    method: str
    path: str
    summary: str
    query: type[shapes.Query] = shapes.NoQuery
    body: Any = None
    answer: Any = None
    media: str = JSON
    status: int = 200
    seconds: float = QUICK
    creates: bool = False


_SESSION = f"{PREFIX}/sessions/{{session}}"
_CONVERSATION = f"{PREFIX}/conversations/{{conversation}}"

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "health",
        "GET",
        f"{PREFIX}/health",
        "Whether the server answers; asks for no token.",
        answer=shapes.HealthShape,
    ),
    Operation(
        "list_sessions",
        "GET",
        f"{PREFIX}/sessions",
        "A page of the listing: those at work last first.",
        query=finding.ListQuery,
        answer=finding.ListingShape,
        seconds=LONG,
    ),
    Operation(
        "create_session",
        "POST",
        f"{PREFIX}/sessions",
        "A new session with its first events.",
        body=events.CreateRequest,
        answer=events.Written,
        status=201,
        creates=True,
    ),
    Operation(
        "search",
        "GET",
        f"{PREFIX}/search",
        "Where something was said, in one session, in some, or in all.",
        query=finding.SearchQuery,
        answer=finding.SearchShape,
        seconds=LONG,
    ),
    Operation(
        "stats",
        "GET",
        f"{PREFIX}/stats",
        "Counts, sizes and usage of all sessions.",
        answer=finding.StatsShape,
        seconds=LONG,
    ),
    Operation(
        "get_session",
        "GET",
        _SESSION,
        "One session as found: header, end, who writes it; with `full` all that is wrong.",
        query=session.SessionQuery,
        answer=session.SessionShape,
        seconds=LONG,
    ),
    Operation(
        "delete_session",
        "DELETE",
        _SESSION,
        "Move a session to the trash; its id stays taken.",
        query=session.DeleteQuery,
        answer=session.Deleted,
    ),
    Operation(
        "restore_session",
        "POST",
        f"{_SESSION}/restore",
        "Bring a session back from the trash.",
        answer=session.SessionShape,
    ),
    Operation(
        "read_events",
        "GET",
        f"{_SESSION}/events",
        "A page of events, verified as it is read.",
        query=session.EventsQuery,
        answer=session.EventPage,
    ),
    Operation(
        "append_events",
        "POST",
        f"{_SESSION}/events",
        "Append events in one commit; all are durable when this answers.",
        body=events.AppendRequest,
        answer=events.Written,
    ),
    Operation(
        "take_writer",
        "POST",
        f"{_SESSION}/writer",
        "Take the right to write a session, alone, or keep it.",
        body=events.WriterRequest,
        answer=events.WriterShape,
    ),
    Operation(
        "release_writer",
        "DELETE",
        f"{_SESSION}/writer",
        "Give the right to write back; with `force`, take it from whoever has it.",
        query=session.ReleaseQuery,
        status=204,
    ),
    Operation(
        "stream_events",
        "GET",
        f"{_SESSION}/log",
        "All events from one on, a line of JSON each; they are never in memory together.",
        query=session.LiveQuery,
        media=LINES,
    ),
    Operation(
        "follow_events",
        "GET",
        f"{_SESSION}/live",
        "Events as server-sent events: those there are, then each as it becomes durable.",
        query=session.LiveQuery,
        media=LIVE,
    ),
    Operation(
        "raw_lines",
        "GET",
        f"{_SESSION}/raw",
        "The stored lines as they are, header and records, unjudged.",
        query=session.RawQuery,
        media=LINES,
    ),
    Operation(
        "messages",
        "GET",
        f"{_SESSION}/messages",
        "What the agent's model has been told and has said, in the form of a provider.",
        query=session.MessagesQuery,
        answer=session.MessagesShape,
        seconds=LONG,
    ),
    Operation(
        "branches",
        "GET",
        f"{_SESSION}/branches",
        "All turns as a tree.",
        query=session.BranchesQuery,
        answer=session.BranchesShape,
        seconds=LONG,
    ),
    Operation(
        "fork_session",
        "POST",
        f"{_SESSION}/fork",
        "A new session that begins with the events of this one.",
        body=session.ForkRequest,
        answer=session.SessionShape,
        status=201,
        seconds=LONG,
    ),
    Operation(
        "set_title",
        "PUT",
        f"{_SESSION}/title",
        "Give the session a name for people.",
        body=session.TitleRequest,
        answer=events.Written,
    ),
    Operation(
        "list_artifacts",
        "GET",
        f"{_SESSION}/artifacts",
        "The files that a run made, each as it was saved last.",
        answer=session.ArtifactsShape,
        seconds=LONG,
    ),
    Operation(
        "read_artifact",
        "GET",
        f"{_SESSION}/artifacts/{{artifact}}",
        "The bytes of an artifact; its name as a segment, as ids.",
        media=BYTES,
    ),
    Operation(
        "list_content",
        "GET",
        f"{_SESSION}/content",
        "What content is stored beside the log.",
        answer=session.ContentShape,
    ),
    Operation(
        "put_content",
        "POST",
        f"{_SESSION}/content",
        "Store content beside the log, durably, and get the digest that names it.",
        query=session.WriterQuery,
        body=bytes,
        answer=session.PutShape,
        status=201,
        seconds=LONG,
    ),
    Operation(
        "read_content",
        "GET",
        f"{_SESSION}/content/{{digest}}",
        "Content by its SHA-256, checked as it is sent.",
        media=BYTES,
    ),
    Operation(
        "export_source",
        "GET",
        f"{_SESSION}/source",
        "The file that a session was imported from, byte for byte.",
        query=session.SourceQuery,
        media=BYTES,
    ),
    Operation(
        "export_bundle",
        "GET",
        f"{_SESSION}/bundle",
        "The session with its sub-agents as one bundle, in a tar with what lies beside it.",
        media=TAR,
    ),
    Operation(
        "verify_session",
        "GET",
        f"{_SESSION}/verify",
        "Read everything of the session and say what is wrong.",
        answer=session.ReportShape,
        seconds=LONG,
    ),
    Operation(
        "create_conversation",
        "POST",
        f"{PREFIX}/conversations",
        "Begin a conversation.",
        query=conversing.ConversationQuery,
        body=conversing.CreateConversation,
        answer=conversing.ConversationShape,
        status=201,
    ),
    Operation(
        "list_conversations",
        "GET",
        f"{PREFIX}/conversations",
        "A page of conversations, the newest first.",
        query=conversing.ConversationsQuery,
        answer=conversing.ConversationsShape,
    ),
    Operation(
        "get_conversation",
        "GET",
        _CONVERSATION,
        "One conversation: whether a turn runs, and what it is set to.",
        query=conversing.ConversationQuery,
        answer=conversing.ConversationShape,
    ),
    Operation(
        "delete_conversation",
        "DELETE",
        _CONVERSATION,
        "Move a conversation to the trash.",
        query=conversing.ConversationQuery,
        answer=conversing.DeletedConversation,
    ),
    Operation(
        "post_message",
        "POST",
        f"{_CONVERSATION}/messages",
        "Leave a message: durable when this answers, also while a turn runs.",
        query=conversing.ConversationQuery,
        body=conversing.PostRequest,
        answer=conversing.AcceptedShape,
        status=202,
    ),
    Operation(
        "read_messages",
        "GET",
        f"{_CONVERSATION}/messages",
        "A page of messages, the oldest first.",
        query=conversing.PageQuery,
        answer=conversing.PageShape,
    ),
    Operation(
        "follow_messages",
        "GET",
        f"{_CONVERSATION}/live",
        "Messages as server-sent events, a page each: those there are, then what comes.",
        query=conversing.ConversationLiveQuery,
        media=LIVE,
    ),
    Operation(
        "get_profile",
        "GET",
        f"{_CONVERSATION}/profile",
        "What a conversation is set to.",
        query=conversing.ConversationQuery,
        answer=conversing.ProfileShape,
    ),
    Operation(
        "set_profile",
        "PUT",
        f"{_CONVERSATION}/profile",
        "Set a conversation to something else, if it is what the caller has seen.",
        query=conversing.ConversationQuery,
        body=conversing.ProfileRequest,
        answer=conversing.ProfileShape,
    ),
)
"""Everything the API offers; tests/test_http_wire.py holds that a handler answers each."""
