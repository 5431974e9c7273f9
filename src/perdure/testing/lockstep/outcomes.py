"""What the media are compared by: everything that a caller of a store can see, as plain values.

Left out is what belongs to one medium alone: paths, sizes and byte ranges of its files, the text of
revisions, and the sentences of errors. All that remains has to be equal on all media.
"""

from collections.abc import Callable, Iterable
from itertools import dropwhile
from typing import Any, NamedTuple

from perdure.backends.base import Backend, Trashed
from perdure.durable.locks import Holder
from perdure.errors import InvalidValue, PerdureError, SessionNotFound
from perdure.model.event import Event
from perdure.model.record import BadRecordError, decode_line
from perdure.recovery.walk import Piece
from perdure.store import Store
from perdure.store.content import Expiry
from perdure.store.inspection import Inspection
from perdure.store.verification import Report

__all__ = [
    "Outcome",
    "deleted",
    "expiry",
    "facts",
    "found",
    "numbered",
    "outcome",
    "reported",
    "seen",
    "spaces",
    "stored_lines",
]

_OF_THE_MEDIUM = frozenset({"message", "hint", "path", "reason", "start", "end", "since"})
"""Facts of an error that say where on this medium something is, or are for people. A writer that
has put content before its first commit has its lock from then on, or from that commit."""


class Outcome(NamedTuple):
    """What one call came to.

    Attributes:
        error: code of the error it raised, or None.
        value: what it returned, or the facts of the error.

    """

    error: str | None
    value: Any


def outcome(call: Callable[[], Any]) -> Outcome:
    """What a call returns or refuses; an error that is not ours goes through."""
    try:
        return Outcome(None, call())
    except PerdureError as error:
        return Outcome(error.code, facts(error))


def facts(error: PerdureError) -> dict[str, Any]:
    """The facts of an error that are the same on every medium."""
    hidden = frozenset() if isinstance(error, InvalidValue) else _OF_THE_MEDIUM
    known = {name: value for name, value in vars(error).items() if name not in hidden}
    if "lost" in known:
        known["lost"] = numbered(known["lost"])
    return {"class": type(error).__name__, "retryable": error.retryable, **known}


def numbered(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Everything about some events, their data as it is stored."""
    return [
        (each.seq, each.type, each.time, each.agent, each.turn, each.key, each.ignorable, each.raw)
        for each in events
    ]


# --- one session ---------------------------------------------------------------------------------


def stored_lines(backend: Backend, session: str) -> list[bytes]:
    """The intact record lines that are stored, in order."""
    return _intact(backend.scan(session, backend.stored(session).begin), 0)


def _intact(pieces: Iterable[Piece], seq: int) -> list[bytes]:
    lines = [line for piece in pieces for line in piece.lines]
    if lines and not lines[-1].endswith(b"\n"):
        # What is torn, unless all that it lacks is its end.
        try:
            lines[-1] = decode_line(lines[-1] + b"\n").line
        except BadRecordError:
            lines.pop()
    return [*dropwhile(lambda line: decode_line(line).last < seq, lines)] if seq else lines


def seen(backend: Backend, session: str, seq: int) -> dict[str, Any]:
    """What a medium holds of one session: header, record lines, position, writer, content.

    `seq` is where a second reading of the lines begins, unless that is 0.
    """
    try:
        stored = backend.stored(session)
    except SessionNotFound as error:
        return facts(error)
    begin = stored.begin
    return {
        "header": stored.header,
        "lines": _intact(backend.scan(session, begin), 0),
        f"lines from {seq}": _intact(backend.scan(session, begin, seq=seq), seq) if seq else [],
        "acknowledged": backend.tail(session).acknowledged,
        "writer": _writer(backend.holder(session)),
        "content": [(blob.digest, blob.size) for blob in backend.blobs(session)],
    }


def _writer(holder: Holder | None) -> tuple[Any, ...] | None:
    return None if holder is None else (holder.pid, holder.host)


def found(inspection: Inspection, *, torn: bool) -> dict[str, Any]:
    """What an inspection says; with `torn`, held against that of a log without its torn tail."""
    status, problems = inspection.status, [problem.kind for problem in inspection.problems]
    if torn and status == "torn":
        status, problems = "complete", []
    return {
        "header": inspection.header,
        "events": numbered(inspection.events),
        "closers": numbered(inspection.closers),
        "position": inspection.position,
        "verified": inspection.verified,
        "status": status,
        "problems": problems,
        "damaged": inspection.damaged,
        "writer": _writer(inspection.holder),
        "unreadable": inspection.unreadable,
    }


def reported(report: Report, *, torn: bool) -> dict[str, Any]:
    """What a verification says; with `torn`, as `found`."""
    told = report.as_dict()
    told["problems"] = [problem.kind for problem in report.problems]
    if torn:
        told["status"] = "ok" if report.status == "torn" else report.status
        told["torn"] = False
        told["problems"] = []
    return told


# --- many sessions -------------------------------------------------------------------------------


def deleted(trashed: Iterable[Trashed]) -> list[tuple[Any, ...]]:
    """What is in the trash, in an order of its own."""
    return sorted((each.id, each.deleted_at, each.digest) for each in trashed)


def expiry(gone: Expiry) -> tuple[Any, ...]:
    """What expired, by digest."""
    return (
        gone.session,
        [(blob.digest, blob.size) for blob in gone.expired],
        [(blob.digest, blob.size) for blob in gone.unreferenced],
        gone.kept,
    )


def spaces(store: Store) -> dict[str, Any]:
    """What the listings of one namespace say."""
    return {
        "sessions": sorted((entry.id, entry.header, entry.problem) for entry in store.list()),
        "trash": deleted(store.trash()),
        "missing": sorted((each.id, each.position) for each in store.missing()),
        "namespaces": [part for part in store.namespaces() if _used(store.namespace(part))],
        "evidence": store.evidence().unreadable,
    }


def _used(store: Store) -> bool:
    """Whether anything is stored in a namespace, deleted or not.

    The name of one that is empty, or never got further than that, may be kept or not.
    """
    below = (store.namespace(part) for part in store.namespaces())
    return bool(store.list() or store.trash()) or any(map(_used, below))
