"""What is refused before anybody looks at it: foreign hosts and origins, and too much.

A page of another site can have a browser send requests to this machine. What it cannot do is forge
Host and Origin: the name it was reached by gives away a rebound DNS name, the origin a foreign page
(RFC 6454, section 7; WHATWG Fetch, section 3.1).
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.errors import (
    InvalidValue,
    NotAllowed,
    PerdureError,
    RequestTooLarge,
    ServerUnavailable,
)
from perdure.http.operations import PREFIX
from perdure.http.server.access import Who
from perdure.http.server.answers import refusal
from perdure.http.server.bounds import Budget
from perdure.model import values

__all__ = [
    "BODY_BYTES_MAX",
    "CONTENT_BYTES_MAX",
    "CUT",
    "FORMS_MAX",
    "IS_LIVE",
    "REQUESTS_EACH",
    "REQUESTS_MAX",
    "STRANGERS_MAX",
    "Asked",
    "Guard",
    "Limited",
    "Visit",
    "header_of",
    "hosts_of",
]

BODY_BYTES_MAX = 32 * 1024 * 1024
"""JSON of one request."""

CONTENT_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""Content of one request."""

REQUESTS_MAX = 256
"""Requests that are under way at once, streams among them."""

REQUESTS_EACH = 64
"""So many of them of one principal."""

STRANGERS_MAX = 64
"""Requests of which nobody knows yet who sends them; half of them from one address."""

FORMS_MAX = 32
"""Login forms that are being sent at once; half of them from one address."""

CUT = "perdure.cut"
"""In the state of a scope: what cuts its connection off."""

IS_LIVE = "perdure.live"
"""In the state of a scope once its answer is one that goes on."""

_VISIT = "perdure.visit"
_FOREIGN = "the request comes from a page of another site"
_log = logging.getLogger("perdure.http")

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


_LOCAL = ("127.0.0.1", "::1", "localhost")
_EVERY = ("0.0.0.0", "::")  # noqa: S104 - compared with, never bound
_WILD = ("0.0.0.0:", "[::]:")


def _is_number(host: str, port: str) -> bool:
    """Whether a value of Host is an address rather than a name: no name was rebound to it."""
    name, _, told = host.rpartition(":")
    try:
        return told == port and bool(ipaddress.ip_address(name.strip("[]")))
    except ValueError:
        return False


def hosts_of(host: str, port: int, more: Iterable[str] = ()) -> frozenset[str]:
    """The values of Host by which a server is meant that listens there."""
    names = {host, *more}
    if host in (*_LOCAL, *_EVERY):
        names |= {*_LOCAL}
    told = {f"[{name}]" if ":" in name and name[0] != "[" else name for name in names}
    own = {name.casefold() for name in told}
    # Without a number it is that of the scheme, and of a server in between that has another one.
    bare = {name.casefold() for name in more} | (own if port in (80, 443) else set())
    return frozenset({f"{name}:{port}" for name in own} | bare)


class Visit:
    """One request among those that are under way. Used by the event loop alone.

    Attributes:
        who: who sent it, as far as is known; None: nobody knows yet.

    """

    def __init__(self, known: Budget, unknown: Budget, peer: str, who: Who | None) -> None:
        """Count it among those of `who`, or of strangers.

        Raises:
            ServerUnavailable: too many are under way.

        """
        self._known = known
        self._counted: tuple[Budget, str | None] = (unknown, peer)
        if who is not None:
            self._counted = (known, who.principal)
        self.who = who
        self._take()

    def _take(self) -> None:
        budget, whose = self._counted
        budget.take(whose)

    def is_of(self, who: Who) -> None:
        """It is known now who sent it.

        Raises:
            ServerUnavailable: too many of theirs are under way.

        """
        self.who = who
        if self._counted != (self._known, who.principal):
            self._known.take(who.principal)
            self.close()
            self._counted = (self._known, who.principal)

    def close(self) -> None:
        """It is under way no more."""
        budget, whose = self._counted
        budget.give_back(whose)

    @staticmethod
    def of(scope: Scope) -> "Visit":
        """That of a request."""
        found: Visit = scope[_VISIT]
        return found


class Asked(NamedTuple):
    """What a guard has to know of the service behind it.

    Attributes:
        hosts: the values of Host that are let through.
        guess: who sent a request, as far as that is known without a look at anything.
        stopping: whether the server is ending.

    """

    hosts: frozenset[str]
    guess: Callable[[Scope], Who | None]
    stopping: Callable[[], bool]


class Guard:
    """Stands before an application and lets through what is meant for it."""

    def __init__(self, app: ASGIApp, asked: Asked) -> None:
        """Nothing is under way yet."""
        self._app = app
        self._asked = asked
        self._hosts = asked.hosts
        self._known = Budget(REQUESTS_MAX, REQUESTS_EACH)
        self._unknown = Budget(STRANGERS_MAX, STRANGERS_MAX // 2)
        # Whoever sends the form has no token yet, and may send it as slowly as they like.
        self._forms = Budget(FORMS_MAX, FORMS_MAX // 2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _Sender(send)
        try:
            if self._asked.stopping():
                raise ServerUnavailable("the server", "it is ending")
            self._check(scope)
            visit = self._visit(scope)
        except PerdureError as error:
            # Nothing is known of who asks.
            await refusal(error, owner=False)(scope, receive, sender)
            return
        try:
            await self._app({**scope, _VISIT: visit}, receive, sender)
        except asyncio.CancelledError:
            # Only a server that ends does this, to what took too long for it.
            await sender.end(scope, receive, ServerUnavailable("the server", "it is ending"))
        except Exception:  # noqa: BLE001 - whatever it is, it is told in the one form
            _log.exception("%s %s failed", scope["method"], scope["path"][:200])
            await sender.end(scope, receive, PerdureError("the server failed"))
        finally:
            visit.close()

    def _visit(self, scope: Scope) -> Visit:
        peer = (scope.get("client") or ("",))[0]
        if scope["method"] == "POST" and scope["path"] == "/login":
            return Visit(self._known, self._forms, peer, None)
        return Visit(self._known, self._unknown, peer, self._asked.guess(scope))

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
        if len(host) != 1 or not self._is_meant(host[0]):
            name = values.shown(host[0]) if host else "none"
            raise NotAllowed(
                f"the Host of the request is {name}, which is not this server",
                hint="`perdure serve --allow-host NAME` adds a name by which it is reached",
            )
        for value in headers.get(b"origin", ()):
            if not self._is_own(value.decode("latin-1")):
                raise NotAllowed(_FOREIGN)
        if _is_foreign(scope, headers):
            raise NotAllowed(_FOREIGN)
        if len(scope.get("raw_path") or b"") > _PATH_BYTES_MAX:
            raise InvalidValue("path", f"more than {_PATH_BYTES_MAX} bytes")
        if len(scope["query_string"]) > _QUERY_BYTES_MAX:
            raise InvalidValue("query", f"more than {_QUERY_BYTES_MAX} bytes")

    def _is_own(self, origin: str) -> bool:
        try:
            told = urlsplit(origin)
        except ValueError:
            return False
        return told.scheme in ("http", "https") and self._is_meant(told.netloc.casefold())

    def _is_meant(self, host: str) -> bool:
        """Whether a value of Host, in small letters, means this server."""
        if host in self._hosts:
            return True
        # Who listens on every address of the machine is reached by any of them.
        ports = [each.rpartition(":")[2] for each in self._hosts if each.startswith(_WILD)]
        return any(_is_number(host, port) for port in ports)


class _Sender:
    """Adds the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            told: list[tuple[bytes, bytes]] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in told}
            told += [pair for pair in _DEFAULTS if pair[0] not in names]
            told += _HEADERS
            message = {**message, "headers": told}
            self._begun = True
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive, error: PerdureError) -> None:
        """Say that it went wrong; where an answer has begun it is cut off."""
        if not self._begun:
            await refusal(error, owner=False)(scope, receive, self)
            return
        cut = scope.get("state", {}).get(CUT)
        if cut is not None:
            cut()
            # The protocol hears of it in the next round of the loop.
            await asyncio.sleep(0)


def _is_foreign(scope: Scope, headers: Mapping[bytes, list[bytes]]) -> bool:
    """Whether a browser says that a page of another site asks (W3C Fetch Metadata).

    Plain reads carry no Origin. A link to one of our pages may be followed.
    """
    sites = headers.get(b"sec-fetch-site", ())
    if all(site in (b"none", b"same-origin") for site in sites):
        return False
    followed = headers.get(b"sec-fetch-mode") == [b"navigate"]
    followed = followed and headers.get(b"sec-fetch-dest", [b"document"]) == [b"document"]
    path = scope["path"]
    page = (
        scope["method"] in ("GET", "HEAD") and path != PREFIX and not path.startswith(f"{PREFIX}/")
    )
    return not (followed and page)


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
