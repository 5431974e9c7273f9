"""Who asks: a token, or a cookie that a token was exchanged for, stands for a principal.

The owner sees the whole store. Any other principal sees one namespace, and nothing leads out of it:
every path of a request is resolved below it.
"""

import hashlib
import hmac
import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from perdure.conversations.places import NAMESPACE as PRINCIPALS
from perdure.errors import InvalidValue, NotAllowed, NotAuthenticated, PerdureError
from perdure.http.tokens import Tokens
from perdure.model import values
from perdure.runtime import Runtime

__all__ = ["ACCESS", "PRINCIPALS", "Access", "Who", "cookie_name"]

ACCESS = "perdure.access"
"""The namespace in which tokens are kept: nobody reaches it over HTTP."""

_log = logging.getLogger("perdure.http")

_PARTS = frozenset({"catalog", "main", "control"})
"""The namespaces of a principal that its conversations are kept in."""

_LOGIN_SECONDS = 12 * 3600.0
_LOGINS_MAX = 10_000
_LOGINS_EACH = 20
"""So many logins of one token hold at once; the oldest ends."""

_GUESSES_MAX = 4_096


def cookie_name(scope: Mapping[str, Any]) -> str:
    """What the cookie of the server is called that a request has come to.

    Cookies know no ports: another server on the same host has one of another name.
    """
    _, port = scope.get("server") or ("", None)
    return f"perdure_{port or 0}"


class Who(NamedTuple):
    """Who asks.

    Attributes:
        principal: whose namespace it is, or None: the owner of the store.
        name: for people.

    """

    principal: str | None
    name: str

    @property
    def owner(self) -> bool:
        """Whether the whole store may be seen."""
        return self.principal is None

    def parts(self, namespace: tuple[str, ...], *, changes: bool = False) -> tuple[str, ...]:
        """The namespace of the root store that is meant by one of theirs.

        Raises:
            InvalidValue: it is the one in which tokens are kept.
            NotAllowed: something in it `changes`, and it is one of those of conversations.

        """
        whole = namespace if self.principal is None else (PRINCIPALS, self.principal, *namespace)
        if whole[:1] == (ACCESS,):
            reason = f"{values.shown(ACCESS)} is not served"
            raise InvalidValue("namespace", reason, hint="`perdure token` shows tokens")
        if changes and whole[:1] == (PRINCIPALS,) and whole[2:3] and whole[2] in _PARTS:
            hint = "/api/conversations changes them"
            raise NotAllowed("conversations are not changed as sessions", hint=hint)
        return whole


class _Login(NamedTuple):
    text: str
    until: float


class Access:
    """Tells who asks, by what a request carries."""

    def __init__(
        self, tokens: Tokens, runtime: Runtime, *, once: str | None = None, everybody: bool = False
    ) -> None:
        """`once` is a token of the owner for this run alone.

        With `everybody` a request without a token is the owner's.
        """
        self._tokens = tokens
        self._runtime = runtime
        self._once = None if once is None else _digest(once)
        self._everybody = everybody
        self._mutex = threading.Lock()
        self._logins: dict[str, _Login] = {}
        self._guesses: dict[str, Who] = {}

    def guess(self, authorization: str | None, cookie: str | None) -> Who | None:
        """Who sent such a request last time, without a look at anything; None: not known.

        Good enough to count a request among those of somebody, and for nothing else.
        """
        carried = cookie if authorization is None else authorization
        if carried is None:
            return Who(None, "owner") if self._everybody else None
        return self._guesses.get(_digest(carried))

    def who(self, authorization: str | None, cookie: str | None) -> Who:
        """Who sent a request with this header and this cookie.

        Raises:
            NotAuthenticated: nobody who may ask anything.

        """
        carried = cookie if authorization is None else authorization
        try:
            found = self._who(authorization, cookie)
        except NotAuthenticated:
            self._guess(carried, None)
            raise
        self._guess(carried, found)
        return found

    def _guess(self, carried: str | None, who: Who | None) -> None:
        """Keep who carries something, or forget it."""
        if carried is None:
            return
        key = _digest(carried)
        with self._mutex:
            self._guesses.pop(key, None)
            if who is not None:
                if len(self._guesses) >= _GUESSES_MAX:
                    del self._guesses[next(iter(self._guesses))]
                self._guesses[key] = who

    def _who(self, authorization: str | None, cookie: str | None) -> Who:
        if authorization is not None:
            scheme, _, text = authorization.partition(" ")
            if scheme.casefold() != "bearer":
                raise NotAuthenticated("the header Authorization has another scheme than Bearer")
            return self._found(text.strip())
        login = self._login(cookie)
        if login is not None:
            return self._found(login.text)
        if self._everybody:
            return Who(None, "owner")
        raise NotAuthenticated("the request has no token")

    def _found(self, text: str) -> Who:
        if self._once is not None and hmac.compare_digest(_digest(text), self._once):
            return Who(None, "owner")
        try:
            token = self._tokens.find(text)
        except PerdureError as error:
            # Nobody is let in by what cannot be read. It is no error of whatever was asked for.
            _log.error("the tokens cannot be read: %s", error)
            raise NotAuthenticated("the tokens cannot be read, so that nobody is known") from error
        if token is None:
            raise NotAuthenticated("the token is not known, was revoked, or has expired")
        return Who(token.principal, token.name)

    def login(self, text: str) -> str:
        """A cookie for a token: it holds for 12 hours, and as long as the token does.

        Raises:
            NotAuthenticated: the token is none.

        """
        self._found(text)
        name = self._runtime.token(32)
        now = self._runtime.monotonic()
        with self._mutex:
            kept = {each: login for each, login in self._logins.items() if login.until > now}
            own = [each for each, login in kept.items() if login.text == text]
            for each in own[: max(0, len(own) - _LOGINS_EACH + 1)]:
                del kept[each]
            while len(kept) >= _LOGINS_MAX:
                del kept[next(iter(kept))]
            # The token itself: what is revoked meanwhile is not known any more at the next request.
            kept[_digest(name)] = _Login(text, now + _LOGIN_SECONDS)
            self._logins = kept
        return name

    def _login(self, cookie: str | None) -> _Login | None:
        if cookie is None:
            return None
        with self._mutex:
            login = self._logins.get(_digest(cookie))
        return login if login is not None and login.until > self._runtime.monotonic() else None

    def logout(self, cookie: str | None) -> None:
        """Forget a cookie."""
        if cookie is not None:
            with self._mutex:
                self._logins.pop(_digest(cookie), None)
                self._guesses.pop(_digest(cookie), None)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
