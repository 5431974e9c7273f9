"""Errors as answers: one JSON form, one table of statuses, and back again at the client."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from perdure import errors
from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.http.wire.shapes import ErrorBody, ErrorShape
from perdure.model import values
from perdure.recovery.walk import Problem
from perdure.store import Coverage, Found, Report

__all__ = ["STATUSES", "Discretion", "error_of", "shape_of", "status_of"]

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

_REFUSED = "the storage of the server refused"
_NO_VECTORS = "no vectors can be made of the query"

_OF_THE_MACHINE: dict[type[errors.PerdureError], str] = {
    errors.SessionBusy: "the session is being written by somebody else",
    errors.ConversationBusy: "a turn of the conversation is running",
    errors.WorkspaceMissing: "the working directory of the session is not there",
    errors.FormatUnsupported: "it was written by another version of perdure",
    errors.UnsafeFile: _REFUSED,
    errors.StorageFull: "the storage of the server is full",
    errors.StorageUnavailable: _REFUSED,
    errors.EmbedderUnavailable: _NO_VECTORS,
    errors.EmbedderFaulty: _NO_VECTORS,
}
"""Errors that name paths and processes of the machine, which only its owner is told; what the
others are told instead."""

_WITH_A_REASON: dict[type[errors.PerdureError], str] = {
    errors.StoreClosed: "the store was closed",
    errors.SessionDamaged: "the session is damaged",
    errors.ContentDamaged: "the content is damaged",
    errors.StaleWriter: "the session changed under this writer",
    errors.SessionClosed: "this writer was closed",
}
"""Errors with a reason for people, which may hold anything: the message of whatever was met."""

_BY_KIND: Mapping[str, str] = {
    "header": "its header cannot be read, or is another one",
    "record": "a record cannot be read",
    "sequence": "a record is not in its place",
    "link": "a record does not follow from the one before",
    "evidence": "it is not the log that is remembered",
    "missing-tail": "records at the end are not there any more",
    "missing-log": "its log is not there any more",
    "frame": "there is something that is no record",
    "noise": "there is something between records",
    "column": "what stands beside a record is not so",
    "unreadable": _REFUSED,
    "unsupported": _OF_THE_MACHINE[errors.FormatUnsupported],
}
"""What is told of a place that does not hold together, by the kind of problem."""

_DOES_NOT_HOLD = "it does not hold together"
_NO_EVIDENCE = "nobody can tell whether records are missing at the end"
_NOT_WHOLE = "it cannot be read whole"
_WORDS_ALONE = f"{_NO_VECTORS}; only its words were looked for"
_NOT_ALL_NEAR = "not everything that was said was compared by its meaning"


class Discretion(NamedTuple):
    """What is told to whom: of the machine of the server, all to its owner, and nothing to others.

    Others are told what a log itself says, such as the kind of a problem, the record and the bytes,
    and in place of a text that may hold a path, a process or a host, one that never does.

    Attributes:
        owner: whether it is the owner of the store who is told.

    """

    owner: bool

    def error(self, error: errors.PerdureError) -> errors.PerdureError:
        """An error of the same class, as it may be told."""
        if self.owner:
            return error
        for kind, message in _OF_THE_MACHINE.items():
            if isinstance(error, kind):
                kept = ("session", "conversation", "lost")
                facts = {name: fact for name, fact in vars(error).items() if name in kept}
                return _like(error, facts, message, "")
        for kind, message in _WITH_A_REASON.items():
            if isinstance(error, kind):
                reason, told = message, message
                if isinstance(error, errors.SessionDamaged):
                    reason = self.reason(error.kind, error.reason)
                    told = f"{message}: {reason}"
                return _like(error, {**vars(error), "reason": reason}, told, error.hint)
        return error

    def reason(self, kind: str, reason: str) -> str:
        """What is wrong somewhere, where the kind of it is known."""
        return reason if self.owner else _BY_KIND.get(kind, _DOES_NOT_HOLD)

    def problem(self, problem: Problem) -> Problem:
        """A place of a log that does not hold together."""
        return problem._replace(reason=self.reason(problem.kind, problem.reason))

    def holder(self, holder: Holder | None) -> Holder | None:
        """Who writes a session."""
        return holder if self.owner or holder is None else Holder()

    def row(self, listed: Listed) -> Listed:
        """A session of a listing."""
        if self.owner or listed.problem is None:
            return listed
        return msgspec.structs.replace(listed, problem=_NOT_WHOLE)

    def reasons(self, found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Sessions by id, and why something of them is missing."""
        return tuple((id, reason if self.owner else _NOT_WHOLE) for id, reason in found)

    def coverage(self, coverage: Coverage) -> Coverage:
        """What an answer was looked for in."""
        return coverage._replace(reasons=self.reasons(coverage.reasons))

    def found(self, found: Found) -> Found:
        """What a search found."""
        warnings = found.warnings
        if warnings and not self.owner:
            warnings = (_WORDS_ALONE if found.mode == "keyword" else _NOT_ALL_NEAR,)
        return found._replace(coverage=self.coverage(found.coverage), warnings=warnings)

    def report(self, report: Report) -> Report:
        """What a full reading found."""
        if self.owner:
            return report
        content = report.content
        if content is not None and content.unreadable is not None:
            content = content._replace(unreadable=_REFUSED)
        return report._replace(
            problems=[self.problem(each) for each in report.problems],
            evidence=None if report.evidence is None else _NO_EVIDENCE,
            content=content,
        )


def _like(
    error: errors.PerdureError, facts: Mapping[str, Any], message: str, hint: str
) -> errors.PerdureError:
    """An error of the class of another, with these facts."""
    made = type(error).__new__(type(error), message)
    made.__dict__.update(facts, message=message, hint=hint)
    if "retryable" in vars(error):
        made.retryable = error.retryable
    return made


def status_of(error: errors.PerdureError) -> int:
    """The status of an error; a class from elsewhere has that of its nearest known ancestor."""
    if isinstance(error, errors.NoSuchOperation) and error.allowed:
        return 405
    if type(error) is errors.EmbedderUnavailable and not error.retryable:
        # It is not set up: that is no failure of the server, and stays so.
        return 409
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def shape_of(error: errors.PerdureError, *, owner: bool) -> ErrorShape:
    """An error as it is answered; to who is not the owner nothing is told of the machine."""
    told = Discretion(owner).error(error)
    facts = {name: _fact(fact) for name, fact in vars(told).items() if name not in _NOT_FACTS}
    return ErrorShape(
        error=ErrorBody(
            code=error.code,
            message=values.text(told.message),
            hint=values.text(told.hint),
            retryable=told.retryable,
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
