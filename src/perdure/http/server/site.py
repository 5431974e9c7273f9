"""The pages for people: a listing, a timeline, and where a token is exchanged for a cookie."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from perdure.errors import InvalidValue, NotAuthenticated, PerdureError
from perdure.http.problems import status_of
from perdure.http.server.access import COOKIE, Access, Who
from perdure.http.server.calls import path_of
from perdure.http.server.guard import Limited, header_of
from perdure.http.server.pages import (
    ICON,
    STYLE,
    error_page,
    listing_page,
    login_page,
    session_page,
)
from perdure.store import Store

__all__ = ["CSP", "Site"]

CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No script, nothing from elsewhere (CSP Level 3)."""

_FORM_BYTES_MAX = 4_096
_FIELDS_MAX = 20

Run = Callable[..., Awaitable[Any]]
Asking = Callable[[Request], Awaitable[tuple[Who, Store]]]


class Site:
    """The pages of a service."""

    def __init__(self, access: Access, run: Run) -> None:
        """`run` calls what blocks in a thread, and waits for it."""
        self._access = access
        self._run = run

    def routes(self, who: Asking) -> list[BaseRoute]:
        """The routes; `who` tells who sent a request, and what they see."""
        self._who = who
        return [
            Route("/", self._listing, methods=["GET"]),
            Route("/sessions/{session}", self._session, methods=["GET"]),
            Route("/login", self._login, methods=["POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/static/style.css", _style, methods=["GET"]),
            Route("/static/icon.svg", _icon, methods=["GET"]),
        ]

    async def _listing(self, request: Request) -> Response:
        query = _parameters(request.scope["query_string"])
        token = query.pop("token", None)
        if token is not None:
            # The link that `perdure serve` prints: the token is not to stay in the address.
            return await self._exchange(token)
        return await self._page(
            request, lambda who, store: listing_page(store, query, who=who.name)
        )

    async def _session(self, request: Request) -> Response:
        query = _parameters(request.scope["query_string"])
        names = request.path_params

        def page(who: Who, store: Store) -> str:
            return session_page(store, path_of(names)["session"], query, who=who.name)

        return await self._page(request, page)

    async def _page(self, request: Request, make: Callable[[Who, Store], str]) -> Response:
        try:
            who, store = await self._who(request)
            return _html(await self._run(make, who, store))
        except NotAuthenticated:
            told = COOKIE in request.cookies
            reason = "the login has ended, or its token was revoked" if told else None
            return _html(login_page(reason), 401)
        except PerdureError as error:
            return _html(error_page(status_of(error), error.message, error.hint), status_of(error))

    async def _exchange(self, token: str) -> Response:
        try:
            cookie = await self._run(self._access.login, token)
        except NotAuthenticated as error:
            return _html(login_page(error.message), 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, cookie, path="/", httponly=True, samesite="strict")
        return answer

    async def _login(self, request: Request) -> Response:
        try:
            length = header_of(request.scope, b"content-length")
            arriving = Limited(request.receive, _FORM_BYTES_MAX, length)
            raw = b""
            while True:
                message = await arriving()
                raw += message.get("body", b"")
                if not message.get("more_body", False):
                    break
            token = _parameters(raw).get("token", "")
        except PerdureError as error:
            return _html(error_page(status_of(error), error.message, error.hint), status_of(error))
        return await self._exchange(token.strip())

    async def _logout(self, request: Request) -> Response:
        self._access.logout(request.cookies.get(COOKIE))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer


def _parameters(told: bytes) -> dict[str, str]:
    """The fields of a URL or a form, the last of each name; what is no UTF-8 is replaced."""
    try:
        pairs = parse_qsl(told.decode("ascii", "replace"), max_num_fields=_FIELDS_MAX)
    except ValueError:
        raise InvalidValue("query", f"more than {_FIELDS_MAX} fields") from None
    return dict(pairs)


def _html(text: str, status: int = 200) -> Response:
    # With no-referrer a browser sends `Origin: null` with our own form.
    headers = {"Content-Security-Policy": CSP, "Referrer-Policy": "same-origin"}
    return Response(text.encode("utf-8", "replace"), status, headers, media_type="text/html")


async def _icon(_request: Request) -> Response:
    headers = {"Cache-Control": "max-age=300"}
    return Response(ICON, headers=headers, media_type="image/svg+xml")


async def _style(_request: Request) -> Response:
    headers = {"Cache-Control": "max-age=300"}
    return Response(STYLE, headers=headers, media_type="text/css")
