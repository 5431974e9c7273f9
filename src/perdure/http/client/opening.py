"""From a URL to a store behind it."""

import math
from collections.abc import Sequence

from perdure.errors import InvalidValue
from perdure.http.client.address import address_of, checked_token
from perdure.http.client.connection import Connection
from perdure.http.client.store import RemoteStore
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store import Store
from perdure.views.view import View

__all__ = ["TIMEOUT_SECONDS", "TOKEN", "open_url"]

TOKEN = "PERDURE_TOKEN"  # noqa: S105 - the name of it
"""The environment variable that holds the token, if no other is given."""

TIMEOUT_SECONDS = 30.0

_USUAL = {"index": True, "embed": False}
"""What is usual where that is not None."""


def open_url(
    location: str,
    *,
    token: str | None,
    timeout: float | None,
    pack: bool,
    views: Sequence[View],
    runtime: Runtime,
    **others: object,
) -> Store:
    """The store that a server at this URL has; see `perdure.open`. Nothing is sent yet.

    `others` are options that mean nothing for a URL: each has to be as it is if nobody gives it.

    Raises:
        InvalidValue: the URL, the token, the timeout or another option cannot be.

    """
    for name, given in others.items():
        if given is _USUAL.get(name):
            continue
        hint = "it is an option of the store where it is, and of `perdure serve`"
        raise InvalidValue(name, "has no meaning for a store behind a URL", hint=hint)
    address, within = address_of(location)
    if token is None:
        token = within
    if token is None:
        # One that is empty is as none.
        token = runtime.environment(TOKEN) or None
        path = TOKEN
    else:
        path = "token"
    if token is not None:
        checked_token(path, token)
    seconds = TIMEOUT_SECONDS if timeout is None else timeout
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not (math.isfinite(seconds) and seconds > 0)
    ):
        raise InvalidValue(
            "timeout", f"{values.shown(timeout)} is not a time to wait", hint="seconds above 0"
        )
    connection = Connection(address, token, timeout=float(seconds), runtime=runtime)
    return RemoteStore(connection, runtime=runtime, pack=pack, views=views)
