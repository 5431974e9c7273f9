"""From a path to what stands there: by the path as it was sent, and by its method."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.errors import NoSuchOperation
from perdure.http.server.answers import refusal

__all__ = ["Methods", "RawPath", "nothing_there"]

_SHOWN = 200


class Methods:
    """What stands at one path: something that answers for each method."""

    def __init__(self, answers: Mapping[str, Callable[[Request], Awaitable[Response]]]) -> None:
        """`answers` by their methods."""
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to this path."""
        request = Request(scope, receive)
        made = self._answers.get(scope["method"])
        if made is None:
            allowed = tuple(sorted(self._answers))
            error = NoSuchOperation(scope["method"], scope["path"][:_SHOWN], allowed)
            answer = refusal(error, owner=False)
        else:
            answer = await made(request)
        await answer(scope, receive, send)


class RawPath:
    """Routes by the path as it was sent: what is escaped in it parts no segments."""

    def __init__(self, app: ASGIApp) -> None:
        """`app` sees such paths."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1"), "root_path": ""}
        await self._app(scope, receive, send)


async def nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request to a path at which nothing stands."""
    if scope["type"] != "http":
        return
    error = NoSuchOperation(scope["method"], scope["path"][:_SHOWN])
    await refusal(error, owner=False)(scope, receive, send)
