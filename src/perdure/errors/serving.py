"""What stands between a caller and a store that is served over HTTP."""

from perdure.errors.tree import PerdureError

__all__ = [
    "NoSuchOperation",
    "NotAllowed",
    "NotAuthenticated",
    "NotOffered",
    "RequestTimedOut",
    "RequestTooLarge",
    "ServerFaulty",
    "ServerUnavailable",
]


class NotAuthenticated(PerdureError):
    """The request has no token, or none that is valid."""

    code = "not-authenticated"

    def __init__(self, reason: str) -> None:
        """Say what is missing; never which token would do."""
        super().__init__(
            reason,
            hint="send `Authorization: Bearer TOKEN`; `perdure token create` makes a token, "
            "perdure.open(url, token=…) and PERDURE_TOKEN take it",
        )
        self.reason = reason


class NotAllowed(PerdureError):
    """The request is not one that this server answers, whoever sends it."""

    code = "not-allowed"

    def __init__(self, reason: str, *, hint: str = "") -> None:
        """Say what about it is refused."""
        super().__init__(reason, hint=hint or "see docs/http.md, Safety")
        self.reason = reason


class NoSuchOperation(PerdureError):
    """There is nothing at this path, or not with this method. `allowed` are the methods."""

    code = "no-such-operation"

    def __init__(self, method: str, path: str, allowed: tuple[str, ...] = ()) -> None:
        """Name what was asked for."""
        message = f"there is nothing at {path}"
        if allowed:
            message = f"{path} does not take {method}"
        hint = f"it takes {', '.join(allowed)}" if allowed else "GET /api/openapi.json lists all"
        super().__init__(message, hint=hint)
        self.method = method
        self.path = path
        self.allowed = allowed


class NotOffered(PerdureError):
    """A store behind a URL does not do this: it has to be done where the store is."""

    code = "not-offered"

    def __init__(self, operation: str) -> None:
        """Name the operation."""
        super().__init__(
            f"{operation} is not offered over HTTP",
            hint="do it on the machine of the store: perdure.open(path), `perdure --store PATH`",
        )
        self.operation = operation


class RequestTooLarge(PerdureError):
    """A request is larger than the server takes. `limit` in bytes."""

    code = "request-too-large"

    def __init__(self, limit: int) -> None:
        """Name the bound."""
        super().__init__(
            f"the request has more than {limit} bytes",
            hint="send it in parts; large content goes beside the log (POST …/content)",
        )
        self.limit = limit


class RequestTimedOut(PerdureError):
    """What was asked for took longer than the server allows. `seconds` is the bound.

    With `uncertain`, which a client sets, it may have been done all the same.
    """

    code = "request-timed-out"
    retryable = True
    uncertain = False

    def __init__(self, seconds: float) -> None:
        """Name the bound."""
        super().__init__(
            f"not done within {seconds:g} seconds",
            hint="ask for less, or again: what was sent with a request id happens once",
        )
        self.seconds = seconds


class ServerUnavailable(PerdureError):
    """The server cannot be reached, is ending, or has too much to do. `address` is its URL.

    With `uncertain`, what was asked for may have been done all the same.
    """

    code = "server-unavailable"
    retryable = True
    uncertain = False

    def __init__(self, address: str, reason: str) -> None:
        """Say what stands in the way."""
        super().__init__(
            f"{address}: {reason}", hint="try again later; is `perdure serve` running there?"
        )
        self.address = address
        self.reason = reason


class ServerFaulty(PerdureError):
    """What answered is no server of this API, or failed in a way it should not.

    With `uncertain`, what was asked for may have been done all the same.
    """

    code = "server-faulty"
    uncertain = False

    def __init__(self, address: str, reason: str) -> None:
        """Name the address and what was wrong with the answer."""
        super().__init__(f"{address}: {reason}", hint="see the server's own messages")
        self.address = address
        self.reason = reason
