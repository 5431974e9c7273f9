"""One session: what it says, what belongs to it, what is done with it."""

from typing import Annotated, Any

from msgspec import Meta

from perdure.http.wire.events import EVENTS_MAX, EventShape
from perdure.http.wire.shapes import (
    Answer,
    Body,
    Format,
    Id,
    PositionShape,
    ProblemShape,
    Query,
    Request,
    Seq,
    Text,
)

__all__ = [
    "ArtifactShape",
    "ArtifactsShape",
    "BlobShape",
    "BranchShape",
    "BranchesQuery",
    "BranchesShape",
    "ContentReportShape",
    "ContentShape",
    "DeleteQuery",
    "Deleted",
    "EventPage",
    "EventsQuery",
    "ForkRequest",
    "HolderShape",
    "LiveQuery",
    "MessagesQuery",
    "MessagesShape",
    "PutShape",
    "RawQuery",
    "ReleaseQuery",
    "ReportShape",
    "SessionQuery",
    "SessionShape",
    "SourceQuery",
    "TitleRequest",
    "WriterQuery",
]


class SessionQuery(Query):
    """Whether to read all of it: then closers and every problem are told, and the state."""

    full: bool = False


class HolderShape(Answer):
    """Who writes a session now."""

    pid: int | None
    host: str | None
    since: int | None


class SessionShape(Answer):
    """One session as found; see `Store.inspect`.

    Attributes:
        session: its id.
        status: running, complete, torn, unterminated, ahead, damaged or unsupported.
        header: as `perdure show --json` has it, or null.
        position: where the log ends, or null.
        holder: who writes it, or null.
        problems: what does not hold together; with `full` all of it.
        closers: with `full`: the events that would close what a dead writer left open.
        state: with `full`: what the views say; null where the log is damaged.

    """

    session: str
    status: str
    header: dict[str, Any] | None
    position: PositionShape | None
    holder: HolderShape | None
    problems: tuple[ProblemShape, ...] = ()
    closers: tuple[EventShape, ...] = ()
    state: dict[str, Any] | None = None


class EventsQuery(Query):
    r"""Which events of a session.

    Attributes:
        start: number of the first one.
        limit: how many at most; a page is also cut where it gets large.
        type: only of these types.
        agent: only of this agent.
        turn: only of this turn.
        last: the last `limit` events instead, `start` does not count then.
        exact: data byte for byte, with lone surrogates as `\ud800`.

    """

    start: Seq = 0
    limit: Annotated[int, Meta(ge=1, le=EVENTS_MAX)] = 100
    type: tuple[Text, ...] = ()
    agent: Text | None = None
    turn: Text | None = None
    last: bool = False
    exact: bool = False


class EventPage(Answer):
    """A page of events.

    Attributes:
        events: in their order.
        next: `start` of the next page; null: the log ended here when it was read.
        problem: why nothing follows, where the log is damaged.

    """

    events: list[EventShape]
    next: int | None
    problem: str | None = None


class LiveQuery(Query):
    """Where a stream begins; the header Last-Event-ID goes before."""

    start: Seq | None = None
    type: tuple[Text, ...] = ()
    exact: bool = False


class RawQuery(Query):
    """Where the stored lines begin: 0 with the header."""

    start: Seq = 0


class MessagesQuery(Query):
    """Whose messages, as of when, and in which form; see `Session.messages`."""

    agent: Text | None = None
    at: Text | None = None
    format: Format = "neutral"


class MessagesShape(Answer):
    """What the agent's model has been told and has said."""

    session: str
    agent: str | None
    format: str
    messages: list[dict[str, Any]]


class BranchesQuery(Query):
    """Whose turns; those of all agents where it is left out."""

    agent: Text | None = None


class BranchShape(Answer):
    """A turn as a part of the tree of its agent; see `perdure.Branch`."""

    agent: str | None
    turn: str | None
    seq: int
    end: int
    parent: str | None
    behind: int | None
    replaces: str | None
    how: str | None
    live: bool
    head: bool
    preview: str | None


class BranchesShape(Answer):
    """All turns."""

    branches: list[BranchShape]


class ForkRequest(Body):
    """Where to fork a session, and the id of the new one; see `Store.fork`."""

    at: Annotated[int, Meta(ge=-1, le=2**53 - 1)] | None = None
    turn: Text | None = None
    agent: Text | None = None
    id: Id | None = None


class TitleRequest(Body):
    """A name for people."""

    title: Annotated[str, Meta(min_length=1, max_length=1_000)]
    request: Request | None = None
    writer: Text | None = None


class DeleteQuery(Query):
    """Whether the sessions of its sub-agents go with it."""

    subagents: bool = False


class Deleted(Answer):
    """A session that went to the trash."""

    session: str
    deleted_at: int


class ArtifactShape(Answer):
    """A file that a run made; its name is no path to be trusted."""

    name: str
    blob: str
    size: int
    media_type: str | None
    seq: int


class ArtifactsShape(Answer):
    """All files that a run made."""

    artifacts: list[ArtifactShape]


class BlobShape(Answer):
    """Content that is stored beside a log."""

    digest: str
    size: int
    stored_at: int


class ContentShape(Answer):
    """All content of a session."""

    content: list[BlobShape]


class WriterQuery(Query):
    """The right to write, where one was given."""

    writer: Text | None = None


class ReleaseQuery(WriterQuery):
    """The right to write that is given back; with `force` that of whoever has it."""

    force: bool = False


class PutShape(Answer):
    """Content that was stored."""

    digest: str


class SourceQuery(Query):
    """Which generation of a source that was rewritten; the last one where it is left out."""

    generation: Annotated[int, Meta(ge=0, le=2**31)] | None = None


class ContentReportShape(Answer):
    """What reading all content of a session found."""

    count: int
    bytes: int
    damaged: list[str]
    unreadable: str | None
    expired: int


class ReportShape(Answer):
    """What reading everything of a session found; see `perdure.Report`."""

    session: str
    status: str
    sound: bool
    torn: bool
    events: int
    hash: str | None
    closers: int
    later: int
    evidence: str | None
    content: ContentReportShape | None
    problems: list[ProblemShape]
