"""A store behind a URL: the names of `Store`, answered by a server."""

import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from types import EllipsisType
from typing import Any, cast

from perdure.backends.base import Hold, Trashed
from perdure.catalog.contract import Listed
from perdure.errors import InvalidValue, NotOffered, SessionNotFound
from perdure.http.client.asking import Asking
from perdure.http.client.connection import Body, Connection
from perdure.http.client.events import EventPages, keys_in
from perdure.http.client.finding import Finder
from perdure.http.client.folding import RemoteFolding, RemoteFolds
from perdure.http.client.inspection import RemoteInspection
from perdure.http.client.links import Stream
from perdure.http.client.medium import Medium
from perdure.http.client.refused import Refused
from perdure.http.client.reports import report_of
from perdure.http.client.session import RemoteSession
from perdure.http.client.wholes import Wholes
from perdure.http.client.witness import Unremembering
from perdure.http.wire.session import ReportShape
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header, Parent, Source, check_id
from perdure.model.record import Position
from perdure.recovery.walk import Problem
from perdure.runtime import Runtime
from perdure.store import Found, Listing, Refreshed, Report, Session, Stats, Store, lifetime
from perdure.store.asking import Names
from perdure.store.flusher import Flusher
from perdure.store.keeping import check_wait
from perdure.store.opening import refuse_taken
from perdure.store.queue import Keys
from perdure.store.retention import Retention
from perdure.store.survey import Survey
from perdure.views.view import View

__all__ = ["RemoteStore"]

_LAST = 100
"""So many sessions are listed at once to find the last one."""

Progress = Callable[[int, int], None]
Moment = Any


class RemoteStore(Refused, Store):
    """The sessions of a server. `perdure.open` makes one for `http://` and `https://`.

    All names of `Store` are there and mean the same; what has to be done where the store is raises
    `NotOffered`. Writers are `RemoteSession`s: their right to write is a lease. Besides what the
    methods of `Store` raise, each may raise ServerUnavailable, RequestTimedOut and ServerFaulty,
    NotAuthenticated and NotAllowed.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        runtime: Runtime,
        pack: bool = True,
        views: Sequence[View] = (),
    ) -> None:
        """Nothing is sent yet; `views` are folded here.

        Raises:
            InvalidValue: a view is none, or its name is taken.

        """
        medium = Medium(Asking(connection), Flusher(runtime), runtime)
        self._begin(medium, Flusher(runtime), runtime, pack=pack, views=views, below=False)

    def _begin(
        self,
        medium: Medium,
        flusher: Flusher,
        runtime: Runtime,
        *,
        pack: bool,
        views: Sequence[View],
        below: bool,
    ) -> None:
        """Make what a store is made of; not `Store.__init__`, which follows and indexes logs."""
        self._medium = medium
        self._asking = medium.asking
        self._finder = Finder(medium.asking, runtime)
        self._wholes = Wholes(medium.asking, runtime)
        self._backend = medium
        self._runtime = runtime
        self._pack = pack
        self._flusher = flusher
        self._witness = Unremembering(medium, flusher, runtime)
        self._survey = Survey(medium)
        self._retention = Retention(medium, self._witness, self._survey, runtime)
        self._pages = EventPages(medium.asking)
        self._own_views = views
        self._folds = RemoteFolds(medium.asking, medium, self._witness, self._pages, views)
        self._nearness = None
        self._background = None
        self._cataloguing = None
        self._indexer = None
        self._mutex = threading.RLock()
        self._sessions = weakref.WeakValueDictionary()
        self._born = 0
        self._below = {}
        self._is_below = below
        self._closed = False
        lifetime.begun(self)

    def begin_in_child(self) -> None:
        """A forked child has neither the parent's writers nor its connections."""
        super().begin_in_child()
        self._medium.connection.reset()

    # --- namespaces -------------------------------------------------------------------------------

    def namespace(self, *parts: str) -> Store:
        """See `Store.namespace`."""
        if not parts:
            return self
        self._check_open()
        check_id(parts[0])
        with self._mutex:
            below = self._below.get(parts[0])
            if below is None or below.closed:
                made = RemoteStore.__new__(RemoteStore)
                made._begin(  # noqa: SLF001 - of the same class
                    self._medium.namespace(parts[0]),
                    self._flusher,
                    self._runtime,
                    pack=self._pack,
                    views=self._own_views,
                    below=True,
                )
                below = self._below[parts[0]] = made
        return below.namespace(*parts[1:])

    # --- writing ----------------------------------------------------------------------------------

    def create(
        self,
        id: str | None = None,
        *,
        cwd: str | None = None,
        parent: Parent | None = None,
        origin: str | None = None,
        depth: int = 0,
        preset: str | None = None,
        config: Any = None,
        source: Source | None = None,
        vocabulary: str | None = VOCABULARY,
        created_at: int | None = None,
    ) -> Session:
        """See `Store.create`. Whether the id is free is asked; the first commit makes the session.

        Raises:
            NotOffered: `source` is given; imports are made where the store is.
            As `Store.create`.

        """
        if source is not None:
            raise NotOffered("create(source=…)")
        return super().create(
            id,
            cwd=cwd,
            parent=parent,
            origin=origin,
            depth=depth,
            preset=preset,
            config=config,
            vocabulary=vocabulary,
            created_at=created_at,
        )

    def _take(self, id: str, wait: float, quick: object) -> Session:
        """A writer; the server verifies the log for it, and commits closers."""
        del quick
        check_wait(wait)
        self._check_open()
        lease = self._medium.lock(id, wait=wait)
        try:
            keys: Keys | None = {} if lease.position.seq < 0 else None
            return self._session(lease.known, lease, keys, frozenset({lease.position}))
        except BaseException:
            lease.release()
            raise

    def _session(
        self,
        header: Header,
        hold: Hold | None,
        keys: Keys | None,
        proven: frozenset[Position] = frozenset(),
        **_: Any,
    ) -> Session:
        session = RemoteSession(
            self._backend,
            header,
            hold=hold,
            keys=keys,
            proven=proven,
            folding=RemoteFolding(self._folds, self._backend, header, begun=hold is None),
            read_keys=lambda: keys_in(self._pages.read(header.id, 0, None)),
            read_event=self._read_event,
            flusher=self._flusher,
            witness=self._witness,
            survey=self._survey,
            runtime=self._runtime,
            pack=self._pack,
        )
        with self._mutex:
            self._born += 1
            session.born = self._born
            session.spawn = cast("Callable[..., RemoteSession]", self.create)
            self._sessions[session.born] = session
        return session

    def fork(
        self,
        id: str,
        at: int | None = None,
        *,
        new_id: str | None = None,
        turn: str | None = None,
        agent: str | None = None,
        cwd: str | EllipsisType | None = ...,
        preset: str | EllipsisType | None = ...,
        config: Any = ...,
    ) -> Session:
        """See `Store.fork`: the server makes the child, whose writer is taken then.

        Raises:
            NotOffered: `cwd`, `preset` or `config` is given.
            SessionBusy: somebody else took the child's writer; the child is there.
            As `Store.fork`.

        """
        for name, given in (("cwd", cwd), ("preset", preset), ("config", config)):
            if given is not ...:
                raise NotOffered(f"fork({name}=…)")
        check_id(id)
        self._check_open()
        child = self._runtime.session_id() if new_id is None else new_id
        check_id(child)
        told = {"at": at, "turn": turn, "agent": agent, "id": child}
        body = Body.json(values.encode(values.snapshot(told, "fork")))
        if new_id is not None:
            refuse_taken(self._medium, child)
        self._wholes.fork(id, child, body)
        return self._take(child, 0.0, None)

    # --- reading ----------------------------------------------------------------------------------

    def _inspection(self, id: str, progress: Callable[[int], None] | None = None) -> Any:
        return RemoteInspection(
            self._medium, id, self._survey, self._witness, self._folds, progress=progress
        )

    def read_from(
        self, id: str, seq: int = 0, types: Collection[str] | None = None
    ) -> Iterator[Event]:
        """See `Store.read_from`; verified by the server, and gone on with where it breaks off."""
        self._check_open()
        return self._pages.read(id, seq, types)

    def raw(self, id: str, seq: int = 0) -> Iterator[bytes | Problem]:
        """See `Store.raw`; every line ends with a newline here."""
        self._check_open()
        if seq.__class__ is not int or seq < 0:
            raise InvalidValue(
                "seq", f"{values.shown(seq)} is not a sequence number", hint="0, 1, 2, …"
            )
        return _raw(self._asking.open("raw_lines", id, [("start", str(seq))]))

    def verify(self, id: str, *, progress: Callable[[int], None] | None = None) -> Report:
        """See `Store.verify`; the server does it, and nothing is told meanwhile to `progress`."""
        del progress
        self._check_open()
        found: ReportShape = self._asking.ask("verify_session", ReportShape, id)
        return report_of(found, id)

    def last(self) -> str:
        """See `Store.last`; by the listing, which knows the time of each last event."""
        after: str | None = None
        while True:
            page = self.sessions(_LAST, after)
            for each in page.sessions:
                if each.last_active is not None and each.relation != "subagent" and each.events:
                    return each.id
            after = page.cursor
            if after is None:
                raise SessionNotFound("")

    # --- finding ----------------------------------------------------------------------------------

    def _answer(self, ask: Callable[[Any], Any], progress: Progress | None = None) -> Any:
        """What is asked of an index is asked of the server's."""
        del progress
        self._check_open()
        return ask(None)

    def _listing(self, index: object, asked: Any) -> Listing:
        del index
        filters, sort, query, limit, after, passed = asked
        page = [("limit", str(limit)), ("sort", sort)]
        told = {"query": query or None, "after": after, "offset": str(passed) if passed else None}
        page += [(name, each) for name, each in told.items() if each is not None]
        return self._finder.listing(filters, page)

    def children_of(self, ids: Names) -> list[Listed]:
        """See `Store.children_of`."""
        self._check_open()
        return self._finder.children(ids)

    def search(
        self,
        query: str,
        *,
        session: Names | None = None,
        without: Names = (),
        agent: str | Collection[str | None] | None = None,
        kind: Names | None = None,
        mode: str = "auto",
        k: int = 10,
        sort: str = "relevance",
        after: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cwd: str | None = None,
        program: Names | None = None,
        snippet_chars: int = 200,
        progress: Progress | None = None,
    ) -> Found:
        """See `Store.search`.

        Raises:
            NotOffered: `agent` names the agent without a name.
            As `Store.search`.

        """
        del progress
        self._check_open()
        asked = {
            "session": session,
            "without": without,
            "agent": agent,
            "kind": kind,
            "mode": mode,
            "k": k,
            "sort": sort,
            "after": after,
            "since": since,
            "until": until,
            "cwd": cwd,
            "program": program,
            "snippet_chars": snippet_chars,
        }
        return self._finder.search(query, asked)

    def _refreshed(self, *, anew: bool, progress: Progress | None) -> Refreshed:
        """Have the server do it."""
        del progress
        self._check_open()
        return self._finder.refresh(anew=anew)

    def stats(self, *, progress: Progress | None = None) -> Stats:
        """See `Store.stats`; where the index lies and what it takes is not told."""
        del progress
        self._check_open()
        return self._finder.stats()

    # --- whole sessions ---------------------------------------------------------------------------

    def delete(self, id: str, *, subagents: bool = False) -> Trashed:
        """See `Store.delete`; where it lies in the trash is not told."""
        check_id(id)
        self._check_open()
        return self._wholes.delete(id, subagents=subagents)

    def restore(self, id: str) -> None:
        """See `Store.restore`."""
        check_id(id)
        self._check_open()
        self._wholes.bring_back(id)


def _raw(stream: Stream) -> Iterator[bytes | Problem]:
    for lines in stream.lines():
        for line in lines:
            yield _problem_in(line) or line


def _problem_in(line: bytes) -> Problem | None:
    if not line.startswith(b'{"problem":'):
        return None
    try:
        return Problem(**cast("dict[str, Any]", values.decode(line)["problem"]))
    except (ValueError, LookupError, TypeError):
        # It stands so in the log.
        return None
