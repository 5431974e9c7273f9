"""Errors as answers: one JSON form, one table of statuses, and back again at the client."""

from collections.abc import Mapping
from typing import Any

from perdure import errors
from perdure.http.wire.shapes import ErrorBody, ErrorShape
from perdure.model import values

__all__ = ["STATUSES", "error_of", "shape_of", "status_of"]

STATUSES: dict[type[errors.PerdureError], int] = {
    errors.PerdureError: 500,
    errors.InvalidValue: 400,
    errors.NotAuthenticated: 401,
    errors.NotAllowed: 403,
    errors.NotOffered: 403,
    errors.SessionNotFound: 404,
    errors.NoSuchOperation: 404,
    errors.ConversationNotFound: 404,
    errors.SessionExists: 409,
    errors.SessionBusy: 409,
    errors.SessionDiverged: 409,
    errors.SessionDamaged: 409,
    errors.SessionClosed: 409,
    errors.FormatUnsupported: 409,
    errors.WorkspaceMissing: 409,
    errors.PresetUnknown: 409,
    errors.KeyConflict: 409,
    errors.StaleWriter: 409,
    errors.EffectUnknown: 409,
    errors.EffectFailed: 409,
    errors.PersistenceDisabled: 409,
    errors.ConversationBusy: 409,
    errors.RequestConflict: 409,
    errors.RevisionConflict: 409,
    errors.ContentDamaged: 409,
    errors.UnsafeFile: 409,
    errors.ContentExpired: 410,
    errors.RequestTooLarge: 413,
    errors.TextRefused: 422,
    errors.EmbedderFaulty: 502,
    errors.ServerFaulty: 502,
    errors.EmbedderUnavailable: 503,
    errors.ServerUnavailable: 503,
    errors.StorageUnavailable: 503,
    errors.StoreClosed: 503,
    errors.RequestTimedOut: 504,
    errors.StorageFull: 507,
}
"""Every class of the error tree and its status (RFC 9110, section 15; 507: RFC 4918).

A conflict is what the state of the session stands against, 409; a test requires that no class is
missing.
"""

_NOT_FACTS = frozenset({"message", "hint", "args", "retryable"})

_OF_THE_MACHINE: dict[type[errors.PerdureError], str] = {
    errors.SessionBusy: "the session is being written by somebody else",
    errors.ConversationBusy: "a turn of the conversation is running",
    errors.WorkspaceMissing: "the working directory of the session is not there",
    errors.FormatUnsupported: "it was written by another version of perdure",
    errors.UnsafeFile: "the storage of the server refused",
    errors.StorageFull: "the storage of the server is full",
    errors.StorageUnavailable: "the storage of the server refused",
    errors.EmbedderUnavailable: "no vectors can be made of the query",
    errors.EmbedderFaulty: "no vectors can be made of the query",
}
"""Errors that name paths and processes of the machine, which only its owner is told; what the
others are told instead."""


def status_of(error: errors.PerdureError) -> int:
    """The status of an error; a class from elsewhere has that of its nearest known ancestor."""
    if isinstance(error, errors.NoSuchOperation) and error.allowed:
        return 405
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def shape_of(error: errors.PerdureError, *, owner: bool) -> ErrorShape:
    """An error as it is answered; to who is not the owner nothing is told of the machine."""
    facts = {name: _fact(fact) for name, fact in vars(error).items() if name not in _NOT_FACTS}
    message, hint = error.message, error.hint
    for kind, instead in _OF_THE_MACHINE.items():
        if isinstance(error, kind) and not owner:
            message, hint = instead, ""
            facts = {
                name: facts[name] for name in ("session", "conversation", "lost") if name in facts
            }
            break
    return ErrorShape(
        error=ErrorBody(
            code=error.code,
            message=values.text(message),
            hint=values.text(hint),
            retryable=error.retryable,
            facts=facts,
        )
    )


def _fact(value: Any) -> Any:
    if isinstance(value, str):
        return values.text(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, tuple | list):
        return [_fact(each) for each in value]
    return values.shown(value)


def error_of(body: ErrorBody) -> errors.PerdureError:
    """The error that an answer tells of; of a kind that is not known here, the root's."""
    kinds: Mapping[str, type[errors.PerdureError]] = {
        kind.code: kind for kind in STATUSES if "code" in vars(kind)
    }
    kind = kinds.get(body.code, errors.PerdureError)
    error = kind.__new__(kind, body.message)
    facts = {name: tuple(f) if isinstance(f, list) else f for name, f in body.facts.items()}
    error.__dict__.update(facts, message=body.message, hint=body.hint)
    if kind.retryable != body.retryable:
        error.retryable = body.retryable
    return error
