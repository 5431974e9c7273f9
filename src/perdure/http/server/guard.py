"""What is refused before anybody looks at it: foreign hosts and origins, and too much.

A page of another site can have a browser send requests to this machine. What it cannot do is forge
Host and Origin: the name it was reached by gives away a rebound DNS name, the origin a foreign page
(RFC 6454, section 7; WHATWG Fetch, section 3.1).
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import (
    InvalidValue,
    NotAllowed,
    PerdureError,
    RequestTooLarge,
    ServerUnavailable,
)
from perdure.http.server.answers import refusal
from perdure.model import values

__all__ = [
    "BODY_BYTES_MAX",
    "CONTENT_BYTES_MAX",
    "REQUESTS_MAX",
    "Guard",
    "Limited",
    "header_of",
    "hosts_of",
]

BODY_BYTES_MAX = 32 * 1024 * 1024
"""JSON of one request."""

CONTENT_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Content of one request."""

REQUESTS_MAX = 256
"""Requests that are under way at once, streams among them."""

_PATH_BYTES_MAX = 16 * 1024
_QUERY_BYTES_MAX = 64 * 1024

_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
"""On every answer. What it says of its own goes before: see `answers`."""

_DEFAULTS = (
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
)
"""On every answer that does not have them."""


def hosts_of(host: str, port: int, more: Iterable[str] = ()) -> frozenset[str]:
    """The values of Host by which a server is meant that listens there."""
    names = {host, *more}
    if host in ("127.0.0.1", "::1", "localhost"):
        names |= {"127.0.0.1", "::1", "localhost"}
    told = {f"[{name}]" if ":" in name and name[0] != "[" else name for name in names}
    own = {name.casefold() for name in told}
    # Without a number it is that of the scheme, and of a server in between that has another one.
    bare = {name.casefold() for name in more} | (own if port in (80, 443) else set())
    return frozenset({f"{name}:{port}" for name in own} | bare)


class Guard:
    """Stands before an application and lets through what is meant for it."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        """`hosts` are the values of Host that are let through."""
        self._app = app
        self._hosts = hosts
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _Sender(send)
        try:
            self._check(scope)
            if self._under_way >= REQUESTS_MAX:
                raise ServerUnavailable("the server", "it has too much to do")
        except PerdureError as error:
            # Nothing is known of who asks.
            await refusal(error, owner=False)(scope, receive, sender)
            return
        self._under_way += 1
        try:
            await self._app(scope, receive, sender)
        finally:
            self._under_way -= 1

    def _check(self, scope: Scope) -> None:
        """Refuse what is not for this server.

        Raises:
            NotAllowed: it is of another site, or names another host.
            InvalidValue: its URL is too long.

        """
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        host = [value.decode("latin-1").casefold() for value in headers.get(b"host", ())]
        if len(host) != 1 or host[0] not in self._hosts:
            name = values.shown(host[0]) if host else "none"
            raise NotAllowed(
                f"the Host of the request is {name}, which is not this server",
                hint="`perdure serve --allow-host NAME` adds a name by which it is reached",
            )
        for value in headers.get(b"origin", ()):
            if not self._is_own(value.decode("latin-1")):
                raise NotAllowed("the request comes from a page of another site")
        if len(scope.get("raw_path") or b"") > _PATH_BYTES_MAX:
            raise InvalidValue("path", f"more than {_PATH_BYTES_MAX} bytes")
        if len(scope["query_string"]) > _QUERY_BYTES_MAX:
            raise InvalidValue("query", f"more than {_QUERY_BYTES_MAX} bytes")

    def _is_own(self, origin: str) -> bool:
        try:
            told = urlsplit(origin)
        except ValueError:
            return False
        return told.scheme in ("http", "https") and told.netloc.casefold() in self._hosts


class _Sender:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            told: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in told}
            told += [pair for pair in _DEFAULTS if pair[0] not in names]
            told += _HEADERS
            message = {**message, "headers": told}
        await self._send(message)


class Limited:
    """What arrives of a request, counted.

    Attributes:
        limit: so many bytes may come.

    """

    def __init__(self, receive: Receive, limit: int, told: str | None) -> None:
        """`told` is what Content-Length says.

        Raises:
            RequestTooLarge: that is too much.
            InvalidValue: it is no number.

        """
        self._receive = receive
        self._left = limit
        self.limit = limit
        if told is not None:
            if not told.isascii() or not told.isdigit():
                raise InvalidValue("Content-Length", f"{values.shown(told)} is no number")
            if int(told[:20]) > limit:
                raise RequestTooLarge(limit)

    async def __call__(self) -> Message:
        """The next message.

        Raises:
            RequestTooLarge: more came than may.

        """
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise RequestTooLarge(self.limit)
        return message


def header_of(scope: Scope, name: bytes) -> str | None:
    """The value of a header that stands once; None without it.

    Raises:
        InvalidValue: it stands more than once.

    """
    found: list[Any] = [value for each, value in scope["headers"] if each == name]
    if len(found) > 1:
        raise InvalidValue(name.decode(), "is given twice")
    return found[0].decode("latin-1") if found else None
