"""Where a server is: a URL in its parts, and the token that came with it."""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from perdure.errors import InvalidValue
from perdure.model import values

__all__ = ["Address", "address_of", "checked_token"]

_PORTS = {"http": 80, "https": 443}
_HINT = "as in http://127.0.0.1:8000 or https://example.org/perdure"
_TOKEN_CHARS_MAX = 1_024


class Address(NamedTuple):
    """Where a server is.

    Attributes:
        secure: whether by TLS.
        host: its name or number.
        port: its port.
        prefix: what its paths begin with, without a slash at the end.
        url: all of it for people, without any token.

    """

    secure: bool
    host: str
    port: int
    prefix: str
    url: str


def address_of(location: str) -> tuple[Address, str | None]:
    """The address that a URL names, and the token in its query, or None.

    Raises:
        InvalidValue: it names no server, or holds what does not belong there.

    """
    if not (location.isascii() and location.isprintable()) or " " in location:
        raise InvalidValue("location", "is no URL: it has other characters", hint=_HINT)
    try:
        parts = urlsplit(location)
        # Asked for each by itself: they are read only now, and may be none.
        host, given = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidValue("location", f"is no URL: {error}", hint=_HINT) from None
    if "@" in parts.netloc:
        # Not shown: it may hold a password.
        hint = "perdure.open(url, token=…), or PERDURE_TOKEN"
        raise InvalidValue("location", "a URL with a user or a password is not taken", hint=hint)
    if not host or parts.fragment or given == 0:
        raise InvalidValue("location", "is no URL of a server", hint=_HINT)
    scheme = parts.scheme.lower()
    port = given or _PORTS[scheme]
    shown = f"[{host}]" if ":" in host else host
    prefix = parts.path.rstrip("/")
    usual = "" if port == _PORTS[scheme] else f":{port}"
    address = Address(scheme == "https", host, port, prefix, f"{scheme}://{shown}{usual}{prefix}")
    return address, _token_in(parts.query)


def _token_in(query: str) -> str | None:
    tokens = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "token":
            reason = f"{values.shown(name)} is no parameter of a server's URL"
            raise InvalidValue("location", reason, hint="?token=…; store.namespace(…) for the rest")
        tokens.append(value)
    if len(tokens) > 1:
        raise InvalidValue("location", "has more than one token")
    return checked_token("location", tokens[0]) if tokens else None


def checked_token(path: str, token: object) -> str:
    """A token that a header can carry.

    Raises:
        InvalidValue: it is none.

    """
    if (
        isinstance(token, str)
        and 1 <= len(token) <= _TOKEN_CHARS_MAX
        and token.isascii()
        and token.isprintable()
        and " " not in token
    ):
        return token
    # Not shown: it may be a secret that was only copied badly.
    raise InvalidValue(path, "is no token", hint="`perdure token create` makes one")
