"""Sessions that come from each other: forks, sub-agents, and what goes when one of them is deleted.

Where a session comes from stands in its header, so only headers are read; whether a fork inherits
the start of a sub-agent is asked of its log, at that one event.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from perdure.backends.base import Backend
from perdure.errors import PerdureError, SessionBusy, SessionNotFound
from perdure.model.header import Header
from perdure.store.inspection import damage
from perdure.store.reading import Pages
from perdure.store.retention import Retention

__all__ = ["Relative", "children_of", "descendants_of", "lineage_of", "refuse_busy"]

_SUBAGENT = "subagent"


class Relative(NamedTuple):
    """A session that another one comes from, or that comes from it.

    Attributes:
        session: its id.
        kind: how the younger comes from the elder: "fork" (it begins with its events), "subagent"
            (it works for it), or "child" (its header names it, and says no more).
        seq: the event of the elder that it comes from: the last one inherited, or the start of the
            sub-agent.
        state: "stored"; "deleted" (in the trash, or gone from there); "missing" (not there);
            "other" (the elder is not there any more, and another session has its id); "unreadable".
        header: its header, where it is stored and can be read.

    """

    session: str
    kind: str
    seq: int
    state: str
    header: Header | None


def _kind(header: Header) -> str:
    if header.origin is not None:
        return header.origin
    return "fork" if header.inherited_genesis is not None else "child"


def _descends(header: Header, elder: Header) -> bool:
    """Whether the chain of a fork begins like that of its elder; of others nobody can tell."""
    return header.inherited_genesis in (None, elder.genesis)


def _headers(backend: Backend) -> dict[str, Header]:
    return {e.id: e.header for e in backend.entries() if e.header is not None}


def children_of(backend: Backend, session: str) -> list[Relative]:
    """See `Store.children`."""
    headers = _headers(backend)
    elder = headers.get(session)
    found = [
        Relative(
            each.id,
            _kind(each),
            each.parent.seq,
            "stored" if elder is None or _descends(each, elder) else "other",
            each,
        )
        for each in headers.values()
        if each.parent is not None and each.parent.session == session
    ]
    if elder is None and not found:
        backend.stored(session)
    return sorted(found, key=lambda each: (each.seq, each.session))


def lineage_of(backend: Backend, retention: Retention, session: str) -> list[Relative]:
    """See `Store.lineage`."""
    stored = backend.stored(session)
    header = stored.header
    if header is None:
        raise damage(session, stored)
    found: list[Relative] = []
    seen = {session}
    # A circle of headers is nobody's lineage; it ends where it would begin again.
    while header is not None and header.parent is not None and header.parent.session not in seen:
        younger, (name, seq) = header, (header.parent.session, header.parent.seq)
        seen.add(name)
        header, state = _elder(backend, retention, name)
        if header is not None and not _descends(younger, header):
            header, state = None, "other"
        found.append(Relative(name, _kind(younger), seq, state, header))
    return found


def _elder(backend: Backend, retention: Retention, session: str) -> tuple[Header | None, str]:
    try:
        with retention.telling(session):
            header = backend.stored(session).header
    except SessionNotFound as error:
        return None, "missing" if error.deleted_at is None else "deleted"
    except PerdureError:
        return None, "unreadable"
    return header, "unreadable" if header is None else "stored"


def descendants_of(backend: Backend, pages: Pages, session: str) -> list[str]:
    """See `Store.descendants`: whoever works for another comes before it."""
    backend.stored(session)
    headers = _headers(backend)
    below: list[str] = []
    waiting = deque([session])
    while waiting:
        elder = waiting.popleft()
        for each in _workers(headers, pages, elder):
            if each.id == session or each.id in below or _is_needed(headers, pages, each, session):
                continue
            below.append(each.id)
            waiting.append(each.id)
    return below[::-1]


def _workers(headers: Mapping[str, Header], pages: Pages, elder: str) -> list[Header]:
    """Who works for this session, or did for one that is not there and whose events it inherits."""
    return [
        each
        for each in headers.values()
        if each.origin == _SUBAGENT
        and each.parent is not None
        and (
            each.parent.session == elder
            or (each.parent.session not in headers and _inherits(headers.get(elder), pages, each))
        )
    ]


def _is_needed(headers: Mapping[str, Header], pages: Pages, worker: Header, going: str) -> bool:
    """Whether a fork that stays inherits the start of this sub-agent."""
    return any(
        each.id != going and _inherits(each, pages, worker, unsure=True)
        for each in headers.values()
    )


def _inherits(fork: Header | None, pages: Pages, worker: Header, *, unsure: bool = False) -> bool:
    """Whether a fork inherits the start of a sub-agent; `unsure` if that cannot be read."""
    if fork is None or fork.inherited_genesis is None or worker.parent is None:
        return False
    seq = worker.parent.seq
    if not 0 <= seq < fork.seed:
        return False
    try:
        for event in pages.read(fork.id, seq, None):
            started = event.data if event.type == "subagent/start" else None
            return isinstance(started, dict) and started.get("session") == worker.id
    except PerdureError:
        return unsure
    return False


def refuse_busy(backend: Backend, sessions: list[str]) -> None:
    """Refuse to go on while one of them is being written.

    Raises:
        SessionBusy: one is.

    """
    for each in sessions:
        holder = backend.holder(each)
        if holder is not None:
            raise SessionBusy(each, **holder._asdict())
