"""What comes back, read: JSON of known shapes, errors as they were raised, anything else refused.

What answers need not be the server: proxies answer with pages of their own, and what is at a port
may be another program. Nothing of that is taken for an answer of the API.
"""

import inspect
from typing import Any

import msgspec

from perdure.errors import PerdureError, ServerFaulty, ServerUnavailable, SessionNotFound
from perdure.http import problems
from perdure.http.wire.shapes import ErrorShape
from perdure.model import values
from perdure.model.showing import safe

__all__ = ["NOT_OURS", "error_in", "failure_of", "named", "shape_in"]

NOT_OURS = "another program, or a proxy, may answer at this address; it has to be perdure's"

_SHOWN_CHARS = 80
_TEXT_CHARS = 2_000
_PASSING = frozenset({502, 503, 504})
"""Statuses with which a proxy says that the server is not there just now."""


def error_in(told: Any) -> PerdureError | None:
    """The error that decoded JSON tells of, or None.

    It has all the facts that its class promises; those that the server keeps to itself are None.
    """
    if not isinstance(told, dict) or not isinstance(told.get("error"), dict):
        return None
    try:
        body = msgspec.convert(told, ErrorShape).error
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None
    # Whoever answers there may be anybody.
    body.message, body.hint = _plain(body.message), _plain(body.hint)
    error = problems.error_of(body)
    for name in inspect.signature(type(error).__init__).parameters:
        if name not in ("self", "message", "hint", "args", "kwargs"):
            error.__dict__.setdefault(name, None)
    if error.__dict__.get("lost", ()) is None:
        error.__dict__["lost"] = ()
    return error


def _plain(text: str) -> str:
    """A text of the server, cut, with nothing in it that a terminal obeys."""
    return safe(text[:_TEXT_CHARS])


def failure_of(
    url: str, status: int, raw: bytes, location: str | None
) -> tuple[PerdureError, bool]:
    """The error that an answer is which is no success, and whether the server itself said so."""
    try:
        told = values.decode(raw)
    except ValueError:
        told = None
    error = error_in(told)
    if error is not None:
        return error, True
    if location is not None:
        reason = f"sends elsewhere, to {values.shown(location)}, which is not followed"
    else:
        reason = f"answered {status} with {values.shown(raw[:_SHOWN_CHARS])}"
    if status in _PASSING:
        return ServerUnavailable(url, reason), False
    faulty = ServerFaulty(url, reason)
    faulty.hint = NOT_OURS
    return faulty, False


def shape_in(url: str, raw: bytes, shape: Any) -> Any:
    """An answer in the shape that it has to have.

    Raises:
        ServerFaulty: it has another one.

    """
    try:
        return msgspec.convert(values.decode(raw), shape)
    except (ValueError, UnicodeEncodeError, RecursionError) as error:
        reason = values.text(f"the answer is not what it has to be: {error}"[:300])
        faulty = ServerFaulty(url, reason)
        faulty.hint = NOT_OURS
        raise faulty from None


def named(error: SessionNotFound, session: str) -> SessionNotFound:
    """That the session is not there, where the server said so of the namespace around it."""
    if error.session == session:
        return error
    return SessionNotFound(session)
