"""The pages for people: a listing, a timeline, and where a token is exchanged for a cookie."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import anyio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from perdure.errors import InvalidValue, NotAuthenticated, PerdureError, RequestTimedOut
from perdure.http.problems import shape_of, status_of
from perdure.http.server.access import Access, Who, cookie_name
from perdure.http.server.arriving import parts_of
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
from perdure.http.server.routing import Methods
from perdure.store import Store

__all__ = ["CSP", "FORM_SECONDS", "Site"]

CSP = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""No script, nothing from elsewhere (CSP Level 3)."""

FORM_SECONDS = 5.0
"""So long a login form may take to come."""

_FORM_BYTES_MAX = 4_096
_FIELDS_MAX = 20

Run = Callable[..., Awaitable[Any]]
Asking = Callable[[Request], Awaitable[tuple[Who, Store]]]


class Site:
    """The pages of a service."""

    def __init__(self, access: Access, run: Run) -> None:
        """`run` calls what blocks in a thread, for somebody or for a stranger."""
        self._access = access
        self._run = run

    def routes(self, who: Asking) -> list[BaseRoute]:
        """The routes; `who` tells who sent a request, and what they see."""
        self._who = who
        read = {
            "/": self._listing,
            "/sessions/{session}": self._session,
            "/static/style.css": _style,
            "/static/icon.svg": _icon,
        }
        sent = {"/login": self._login, "/logout": self._logout}
        found = [Route(path, Methods({"GET": each, "HEAD": each})) for path, each in read.items()]
        return [*found, *(Route(path, Methods({"POST": each})) for path, each in sent.items())]

    async def _listing(self, request: Request) -> Response:
        try:
            query = _parameters(request.scope["query_string"])
        except PerdureError as error:
            return _failed(error, owner=False)
        token = query.pop("token", None)
        if token is not None:
            # The link that `perdure serve` prints: the token is not to stay in the address.
            return await self._exchange(request, token)

        def page(who: Who, store: Store) -> str:
            return listing_page(store, query, who=who.name, owner=who.owner)

        return await self._page(request, page)

    async def _session(self, request: Request) -> Response:
        names = request.path_params

        def page(who: Who, store: Store) -> str:
            query = _parameters(request.scope["query_string"])
            id = path_of(names)["session"]
            return session_page(store, id, query, who=who.name, owner=who.owner)

        return await self._page(request, page)

    async def _page(self, request: Request, make: Callable[[Who, Store], str]) -> Response:
        owner = False
        try:
            who, store = await self._who(request)
            owner = who.owner
            return _html(await self._run(who, make, who, store))
        except NotAuthenticated:
            told = _cookie(request) in request.cookies
            reason = "the login has ended, or its token was revoked" if told else None
            return _html(login_page(reason), 401)
        except PerdureError as error:
            return _failed(error, owner=owner)

    async def _exchange(self, request: Request, token: str) -> Response:
        try:
            cookie = await self._run(None, self._access.login, token)
        except NotAuthenticated as error:
            return _html(login_page(error.message), 401)
        except PerdureError as error:
            return _failed(error, owner=False)
        answer = RedirectResponse("/", 303)
        secure = request.scope["scheme"] == "https"
        name = _cookie(request)
        answer.set_cookie(name, cookie, path="/", secure=secure, httponly=True, samesite="strict")
        return answer

    async def _login(self, request: Request) -> Response:
        try:
            length = header_of(request.scope, b"content-length")
            arriving = parts_of(Limited(request.receive, _FORM_BYTES_MAX, length))
            try:
                # In all: who sends it is a stranger.
                with anyio.fail_after(FORM_SECONDS):
                    raw = b"".join([part async for part in arriving])
            except TimeoutError:
                raise RequestTimedOut(FORM_SECONDS) from None
            token = _parameters(raw).get("token", "")
        except PerdureError as error:
            return _failed(error, owner=False)
        return await self._exchange(request, token.strip())

    async def _logout(self, request: Request) -> Response:
        self._access.logout(request.cookies.get(_cookie(request)))
        answer = RedirectResponse("/", 303)
        answer.delete_cookie(_cookie(request), path="/", httponly=True, samesite="strict")
        return answer


def _cookie(request: Request) -> str:
    return cookie_name(request.scope)


def _failed(error: PerdureError, *, owner: bool) -> Response:
    told = shape_of(error, owner=owner).error
    return _html(error_page(status_of(error), told.message, told.hint), status_of(error))


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
