"""Sessions that come from each other: forks, sub-agents, and what goes when one of them is deleted.

Where a session comes from stands in its header, so only headers are read; whether a fork inherits
the start of a sub-agent is asked of its log, at that one event.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from perdure.backends.base import Backend
from perdure.errors import PerdureError, SessionBusy, SessionNotFound
from perdure.model.header import Header, Source
from perdure.store.inspection import damage
from perdure.store.reading import Pages
from perdure.store.retention import Retention

__all__ = [
    "Relative",
    "children_of",
    "descendants_of",
    "elders",
    "lineage_of",
    "one_machine",
    "refuse_busy",
]

_SUBAGENT = "subagent"


class Relative(NamedTuple):
    """A session that another one comes from, or that comes from it.

    Attributes:
        session: its id.
        kind: how the younger comes from the elder: "fork" (it begins with its events), "subagent"
            (it works for it), "continuation" (an import that goes on where the elder ends), or
            "child" (its header names it, and says no more).
        seq: the event of the elder that it comes from: the last one inherited, or the start of the
            sub-agent. -1 for an import, whose header names the elder by the id in its own format.
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
    if header.parent is None and header.source is not None and header.source.relation is not None:
        return header.source.relation
    if header.origin is not None:
        return header.origin
    return "fork" if header.inherited_genesis is not None else "child"


def _descends(header: Header, elder: Header) -> bool:
    """Whether the chain of a fork begins like that of its elder; of others nobody can tell."""
    return header.inherited_genesis in (None, elder.genesis)


def _headers(backend: Backend) -> dict[str, Header]:
    return {e.id: e.header for e in backend.entries() if e.header is not None}


def _names(header: Header, elder: Header, parent: str | None = None) -> bool:
    """Whether an import comes from a session of this id of its own format; see `elders`."""
    source, other = header.source, elder.source
    named = parent if source is None or source.parent is None else source.parent
    return (
        header.parent is None
        and source is not None
        and named is not None
        and other is not None
        and elder.vocabulary is None
        and elder.id != header.id
        and (source.format, named) == (other.format, other.id)
    )


class _Imports:
    """Imported sessions by the ids that they have in their own formats."""

    def __init__(self, headers: Iterable[Header]) -> None:
        self._by_id: dict[tuple[str, str | None], list[Header]] = {}
        for each in headers:
            if each.is_import and each.source is not None:
                self._by_id.setdefault((each.source.format, each.source.id), []).append(each)

    def elders(self, header: Header, parent: str | None = None) -> list[Header]:
        """See `elders`."""
        source = header.source
        if source is None:
            return []
        found = self._by_id.get((source.format, source.parent or parent), [])
        found = [each for each in found if _names(header, each, parent)]
        nearest = max((_nearness(each, header) for each in found), default=None)
        return [each for each in found if _nearness(each, header) == nearest]


def elders(headers: Iterable[Header], header: Header, parent: str | None = None) -> list[Header]:
    """Those of some sessions that an import comes from, by the id in its own format.

    The same session may have been found in several folders, and on several machines: what stands
    nearest to it is meant, and if that cannot be told, several are. `parent` is the id where the
    header has none.
    """
    return _Imports(headers).elders(header, parent)


def _nearness(one: Header, other: Header) -> tuple[bool, int]:
    """Whether two imports are of one machine, and how much of their paths is the same."""
    if one.source is None or other.source is None:
        return False, 0
    paths = [(source.path or "").split("/") for source in (one.source, other.source)]
    same = takewhile(lambda pair: pair[0] == pair[1], zip(*paths, strict=False))
    return one_machine(one.source, other.source), len(list(same))


def one_machine(one: Source, other: Source) -> bool:
    """Whether two sources were found on the same machine, which may have been renamed meanwhile.

    Machines may share a name: it tells only where nothing else is known.
    """
    if None in (one.machine, other.machine):
        return one.host == other.host
    return one.machine == other.machine


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
    imports = _Imports(headers.values())
    found += [
        Relative(each.id, _kind(each), -1, "stored", each)
        for each in headers.values()
        if elder is not None and _names(each, elder) and elder in imports.elders(each)
    ]
    return sorted(found, key=lambda each: (each.seq, each.session))


def lineage_of(backend: Backend, retention: Retention, session: str) -> list[Relative]:
    """See `Store.lineage`."""
    stored = backend.stored(session)
    header = stored.header
    if header is None:
        raise damage(session, stored)
    found: list[Relative] = []
    seen = {session}
    if header.parent is None and header.source is not None:
        return _lineage_of_import(_headers(backend), header)
    # A circle of headers is nobody's lineage; it ends where it would begin again.
    while header is not None and header.parent is not None and header.parent.session not in seen:
        younger, (name, seq) = header, (header.parent.session, header.parent.seq)
        seen.add(name)
        header, state = _elder(backend, retention, name)
        if header is not None and not _descends(younger, header):
            header, state = None, "other"
        found.append(Relative(name, _kind(younger), seq, state, header))
    return found


def _lineage_of_import(headers: Mapping[str, Header], header: Header) -> list[Relative]:
    found: list[Relative] = []
    seen = {header.id}
    imports = _Imports(headers.values())
    while elders := [e for e in imports.elders(header) if e.id not in seen]:
        found.append(Relative(elders[0].id, _kind(header), -1, "stored", elders[0]))
        header = elders[0]
        seen.add(header.id)
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
    imports = _Imports(headers.values())
    below: dict[str, None] = {}
    waiting = deque([session])
    while waiting:
        elder = waiting.popleft()
        for each in _workers(headers, imports, pages, elder):
            if each.id == session or each.id in below or _is_needed(headers, pages, each, session):
                continue
            below[each.id] = None
            waiting.append(each.id)
    return [*below][::-1]


def _workers(
    headers: Mapping[str, Header], imports: _Imports, pages: Pages, elder: str
) -> list[Header]:
    """Who works for this session, or did for one that is not there and whose events it inherits."""
    return [
        each
        for each in headers.values()
        if each.origin == _SUBAGENT and _works_for(elder, each, headers, imports, pages)
    ]


def _works_for(
    elder: str, each: Header, headers: Mapping[str, Header], imports: _Imports, pages: Pages
) -> bool:
    if each.parent is None:
        known = headers.get(elder)
        if known is None or not _names(each, known):
            return False
        # Where the same session was found twice, its worker is of neither alone.
        return imports.elders(each) == [known]
    if each.parent.session == elder:
        return True
    return each.parent.session not in headers and _inherits(headers.get(elder), pages, each)


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
