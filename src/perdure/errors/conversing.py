"""What stands in the way of a conversation: none of that id, one at work, other requests."""

from perdure.errors.tree import PerdureError, clock

__all__ = ["ConversationBusy", "ConversationNotFound", "RequestConflict", "RevisionConflict"]


class ConversationNotFound(PerdureError):
    """The principal has no conversation of that id.

    It is the same whether there is none, it was deleted, or it is another principal's.
    """

    code = "conversation-not-found"

    def __init__(self, conversation: str) -> None:
        """Name the id that was asked for."""
        super().__init__(
            f"there is no conversation {conversation!r}",
            hint="conversations() lists them, create(request) begins one",
        )
        self.conversation = conversation


class ConversationBusy(PerdureError):
    """A turn of the conversation is running. `pid`, `host`, `since` (Unix ms) are of its writer.

    `here`: it is this process that runs it.
    """

    code = "conversation-busy"
    retryable = True

    def __init__(
        self,
        conversation: str,
        *,
        pid: int | None = None,
        host: str | None = None,
        since: int | None = None,
        here: bool = False,
    ) -> None:
        """Say since when, as far as the lock tells."""
        when = "" if since is None else f" since {clock(since)}"
        super().__init__(
            f"a turn of conversation {conversation!r} is running{when}",
            hint='try again later, or leave a message: post(…, when_busy="follow-up") never waits',
        )
        self.conversation = conversation
        self.pid = pid
        self.host = host
        self.since = since
        self.here = here


class RequestConflict(PerdureError):
    """A request of this id was made before and asked for something else. Nothing was written."""

    code = "request-conflict"

    def __init__(self, request: str) -> None:
        """Name the id of the request."""
        super().__init__(
            f"request {request!r} was made before, and asked for something else",
            hint="repeat a request as it was, and use a new id for a new one",
        )
        self.request = request


class RevisionConflict(PerdureError):
    """The profile was changed meanwhile: it stands at `current`. Nothing was written."""

    code = "revision-conflict"

    def __init__(self, conversation: str, *, expected: int, current: int) -> None:
        """Name both revisions."""
        super().__init__(
            f"the profile of conversation {conversation!r} stands at revision {current}, "
            f"not at {expected}",
            hint="look at profile(), and change it from there with a new request",
        )
        self.conversation = conversation
        self.expected = expected
        self.current = current
