"""The store: every door to sessions goes through here."""

import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, Self

from perdure.backends import open_backend
from perdure.backends.base import Backend, Entry, Hold, Tail
from perdure.embedding import Embedder
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StoreClosed,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header, Parent, Source, check_id, new_header
from perdure.model.record import Position, seal
from perdure.recovery.walk import Known
from perdure.runtime import SYSTEM, Runtime
from perdure.store import lifetime
from perdure.store.artifacts import Extracting
from perdure.store.background import Background
from perdure.store.batches import append_to, batch_of, meant_of
from perdure.store.cataloguing import Cataloguing, cataloguing_of, unfollowed
from perdure.store.checkpoints import Handy
from perdure.store.closing import close_behind
from perdure.store.flusher import Flusher
from perdure.store.folding import Folding, Folds
from perdure.store.forking import Forking
from perdure.store.indexer import Followed, Indexer
from perdure.store.inspection import Inspection
from perdure.store.keeping import Keeping, check_wait
from perdure.store.keywords import Keywords
from perdure.store.looking import Looking
from perdure.store.moving import Moving
from perdure.store.nearness import Nearness
from perdure.store.opening import Quick, settled, verified
from perdure.store.passage_texts import PassageTexts
from perdure.store.prepared import Prepared
from perdure.store.queue import Keys
from perdure.store.reading import Pages
from perdure.store.remembering import Remembering
from perdure.store.resuming import Resuming
from perdure.store.retention import Retention
from perdure.store.session import Session
from perdure.store.survey import Facts, Survey
from perdure.store.witness import Witness
from perdure.views.projection import Projection
from perdure.views.view import View

__all__ = ["Store", "open_store"]


# Named here because `Store.list` hides the builtin inside the class.
Entries = list[Entry]
Names = list[str]
Entities = list["Session | Store"]
Events = list[Event]
Batch = Sequence[Mapping[str, Any]]


class Store(Looking, Remembering, Keeping, Moving, Resuming, Forking, Extracting):
    """Sessions in one place. A context manager; `perdure.open` makes one."""

    def __init__(
        self,
        backend: Backend,
        *,
        runtime: Runtime = SYSTEM,
        pack: bool = True,
        views: Sequence[View] = (),
        flusher: Flusher | None = None,
        cataloguing: Cataloguing | None = None,
    ) -> None:
        """Serve the sessions of `backend`; `pack=False` stores every event as its own record.

        `views` are a user's own, beside those that every session has. Without `cataloguing`
        sessions are neither listed by what they say nor searched.

        Raises:
            InvalidValue: a view is none, or its name is taken.

        """
        self._backend = backend
        self._runtime = runtime
        self._pack = pack
        self._flusher = flusher or Flusher(runtime)
        self._witness = Witness(backend, self._flusher, runtime)
        self._survey = Survey(backend)
        self._retention = Retention(backend, self._witness, self._survey, runtime)
        self._pages = Pages(backend, self._witness)
        self._own_views = views
        self._folds = Folds(backend, self._witness, self._pages, views)
        self._texts = PassageTexts(backend, self._pages, self._folds)
        self._keywords = Keywords(self._texts)
        self._nearness: Nearness | None = None
        self._background: Background | None = None
        self._cataloguing = cataloguing
        self._indexer: Indexer | None = None
        self._followed: Followed = unfollowed(backend, self._witness, runtime)
        if cataloguing is not None:
            made = cataloguing.indexer(backend, self._witness, self._folds, runtime)
            self._indexer = self._followed = self._witness.follower = made
            self._nearness = cataloguing.nearness(self._keywords)
            self._background = cataloguing.background(made, self._texts, runtime)
        self._mutex = threading.RLock()
        # Weakly: a writer that everybody dropped gives its session back; the flusher keeps one with
        # buffered events. In the order of their beginnings, not of where they lie in memory.
        self._sessions: weakref.WeakValueDictionary[int, Session] = weakref.WeakValueDictionary()
        self._born = 0
        self._below: dict[str, Store] = {}
        self._is_below = flusher is not None
        self._closed = False
        lifetime.begun(self)

    def __repr__(self) -> str:
        """The medium, and whether the store is open."""
        return f"<Store {self._backend!r}, {'closed' if self._closed else 'open'}>"

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    # --- namespaces ------------------------------------------------------------------------------

    def namespace(self, *parts: str) -> "Store":
        """The store of a namespace: it sees its own sessions and those of nobody else.

        `store.namespace("a", "b")` is `store.namespace("a").namespace("b")`. A part is any string
        that could be a session's id. It is closed with the store that it comes from.

        Raises:
            InvalidValue: a part is not a string of 1 to 1,024 characters.
            SessionClosed: the store was closed.

        """
        if not parts:
            return self
        self._check_open()
        check_id(parts[0])
        with self._mutex:
            below = self._below.get(parts[0])
            if below is None or below.closed:
                self._below[parts[0]] = Store(
                    self._backend.namespace(parts[0]),
                    runtime=self._runtime,
                    pack=self._pack,
                    views=self._own_views,
                    flusher=self._flusher,
                    cataloguing=self._cataloguing,
                )
            below = self._below[parts[0]]
        return below.namespace(*parts[1:])

    def namespaces(self) -> Names:
        """The namespaces directly below this one in which something was stored, in order."""
        return [*self._backend.namespaces()]

    # --- writing ---------------------------------------------------------------------------------

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
        """A writer for a new session. Nothing is stored before its first commit.

        Raises:
            InvalidValue: a field is out of range; the id stays free.
            SessionExists: the id is stored already. The first commit of the session raises it too
                if another writer's came first.

        """
        header = new_header(
            self._runtime.session_id() if id is None else id,
            created_at=self._runtime.now_ms() if created_at is None else created_at,
            cwd=cwd,
            parent=parent,
            origin=origin,
            depth=depth,
            preset=preset,
            config=config,
            source=source,
            vocabulary=vocabulary,
        )
        self._check_open()
        if self._backend.persistent:
            try:
                self._backend.stored(header.id)
            except SessionNotFound as error:
                if error.deleted_at is not None:
                    raise SessionExists(header.id, deleted_at=error.deleted_at) from None
                if id is not None:
                    self._witness.announce(header)
            else:
                raise SessionExists(header.id)
        return self._session(header, None, {})

    def writer(self, id: str, *, wait: float = 0.0) -> Session:
        """The exclusive writer of an existing session, verified, its closers committed.

        What stands before the session's checkpoint is trusted where nothing has changed since it
        was acknowledged; `verify` reads everything.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: somebody else writes it, after `wait` seconds.
            SessionDamaged: it does not hold together; it can still be read.
            FormatUnsupported: another version wrote it.

        """
        return self._take(id, wait, self._known_facts)

    def _writer_of_views(self, id: str, wait: float) -> Session:
        return self._take(id, wait, partial(self._known_facts, views=True))

    def _take(self, id: str, wait: float, quick: Quick | None) -> Session:
        check_wait(wait)
        self._check_open()
        with self._retention.telling(id):
            hold = self._backend.lock(id, wait=wait)
        # Before anything is written, closers included.
        mark = self._followed.begun(id)
        try:
            header, facts = self._recover(hold, quick)
            keys = None if facts.keys is None else dict(facts.keys)
            more: dict[str, Any] = {"kept": facts.kept, "handy": facts.handy, "mark": mark}
            return self._session(header, hold, keys, facts.proven, **more)
        except BaseException:
            hold.release()
            self._followed.left(id, mark)
            raise

    def _known_facts(
        self, id: str, header: Header, begin: int, known: Known, tail: Tail, *, views: bool = False
    ) -> Facts | None:
        """What a writer has to know where it need not read the whole log for it."""
        remembered = self._survey.remembered(id, header, known)
        return remembered or self._folds.since(id, header, begin, known, tail, views=views)

    def _recover(self, hold: Hold, quick: Quick | None) -> tuple[Header, Facts]:
        """Verify the log, set a torn tail aside, commit closers, and take the position."""
        recall = self._survey.recall
        header, facts = settled(self._backend, self._witness, hold, recall, quick)
        # What was noted before is among what the facts prove, or it is not of this log.
        self._witness.noted(header)
        if facts.closers:
            records = seal(hold.position, facts.closers)
            self._backend.commit(hold, hold.position, records)
            if facts.handy is not None:
                behind = (*facts.handy.records, *records)
                facts = facts._replace(handy=facts.handy._replace(records=behind))
        self._witness.moved(header, hold.position)
        return header, facts

    def _session(
        self,
        header: Header,
        hold: Hold | None,
        keys: Keys | None,
        proven: frozenset[Position] = frozenset(),
        *,
        kept: int = -1,
        handy: Handy | None = None,
        mark: str | None = "",
    ) -> Session:
        folding = Folding(
            self._folds, self._backend, header, begun=hold is None, kept=kept, handy=handy
        )
        session = Session(
            self._backend,
            header,
            hold=hold,
            keys=keys,
            proven=proven,
            folding=folding,
            read_keys=partial(self._read_keys, header.id),
            read_event=self._read_event,
            flusher=self._flusher,
            witness=self._witness,
            survey=self._survey,
            runtime=self._runtime,
            indexer=self._followed,
            mark=mark,
            pack=self._pack,
        )
        with self._mutex:
            self._born += 1
            session.born, session.spawn = self._born, self.create
            self._sessions[session.born] = session
        return session

    def _check_conversing(self) -> None:
        """Refuse conversations where namespaces of principals cannot be reached."""

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    def _read_event(self, id: str, seq: int) -> Event:
        for event in self.read_from(id, seq):
            return event
        raise SessionDamaged(id, f"event {seq} is not there any more", record=seq)

    def _read_keys(self, id: str) -> Keys:
        known = None if self._indexer is None else self._indexer.keys(id)
        if known is not None:
            return known
        _, facts = verified(self._backend, self._witness, id, self._survey.read)
        return facts.keys or {}

    def append(self, id: str, events: Iterable[Event | Mapping[str, Any]]) -> Events:
        """Append to a session without keeping its writer; all is durable when this returns.

        Each event is an `Event` or a mapping as for `Session.append_many`; a `seq` that it carries
        must be the one it gets. A session created here and not yet stored is stored by this.

        Raises:
            InvalidValue: a sequence number does not continue the log; nothing was written.
            As `writer` and `Session.append_many`.

        """
        batch = batch_of(events)
        check_id(id)
        with self._mutex:
            live = [each for each in self._sessions.values() if each.id == id and not each.closed]
        if live:
            return append_to(meant_of(live), batch)
        if not batch:
            with self._retention.telling(id):
                self._backend.stored(id)
            return []
        with self.writer(id) as session:
            return append_to(session, batch)

    def prepare(self, id: str, *, wait: float = 0.0) -> Prepared:
        """Reserve a session for its next writer; closers are committed.

        Raises:
            As `writer`.

        """
        return Prepared(self.writer(id, wait=wait))

    # --- reading ---------------------------------------------------------------------------------

    def load(self, id: str, *, wait: float = 0.0) -> Inspection:
        """As `inspect`, after everything was verified and closers were committed.

        Raises:
            As `writer`; SessionBusy also while this process itself writes the session.

        """
        self._take(id, wait, None).close()
        return self._inspection(id)

    # --- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Close every session that is still open, then the backend; nothing can be written after.

        Raises:
            PerdureError: the first of the sessions that could not store what was buffered.

        """
        self._closed = True
        lifetime.ended(self)
        if self._indexer is not None:
            self._indexer.hurry()
        if not self._is_below:
            self._flusher.stop()
        with self._mutex:
            open_ones: Entities = [*self._sessions.values(), *self._below.values()]
        failures = []
        for each in open_ones:
            try:
                each.close()
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                failures.append(error)
        with suppress(PerdureError):
            self._witness.push()
        if self._indexer is not None and self._cataloguing is not None:
            if self._background is not None:
                self._background.stop()
            self._indexer.drain()
            if not self._is_below:
                self._cataloguing.close()
        self._backend.close()
        if failures:
            raise failures[0]

    def begin_in_child(self) -> None:
        """A forked child has neither the parent's writers nor usable locks."""
        self._mutex = threading.RLock()
        self._sessions = weakref.WeakValueDictionary()
        self._witness.reset()
        self._survey.reset()
        if self._indexer is not None:
            self._indexer.reset()
        if self._background is not None:
            self._background.reset()
        if self._cataloguing is not None:
            self._cataloguing.embedders.reset()

    def __reduce__(self) -> NoReturn:
        """Its locks and threads belong to its process."""
        raise TypeError("a store cannot be sent to another process: call perdure.open there")

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        close_behind(error, self.close, "while closing the store")


def open_store(
    location: str | os.PathLike[str],
    *,
    encoding: str | None = None,
    pack: bool = True,
    views: Sequence[View] = (),
    index: bool = True,
    projection: Projection | None = None,
    embedder: str | Embedder | None = None,
    embed: bool = False,
    runtime: Runtime = SYSTEM,
) -> Store:
    """Open the store at `location`: a path or `dir:PATH` for a folder, `sqlite:PATH` for a file.

    `sqlite:///home/me/agents.db` is absolute. A path that ends in `.perdure`, or `bundle:PATH`, is
    a bundle; `memory:` goes with the object, `none:` keeps nothing. Nothing is created before the
    first commit. `encoding` of new sessions in a folder is "zst" (compressed, the default) or "raw"
    (plain lines). `views` are folds of yours, kept beside every session's; each has its own name.
    A thread keeps an index for `sessions` and `search`; with `index=False` there is neither.
    `projection` is a column of yours in the listing. `embedder` turns texts into vectors, for
    search by meaning: an object, or a name as `perdure.embedding.embedder_of` takes it. It is made
    when it is needed; without one, that of the vectors that are there answers. With `embed` a
    thread embeds what is written here, soon, and nobody waits for it.

    Raises:
        InvalidValue: the location or an option is not known, or a view cannot be.

    """
    if encoding is not None and (type(encoding) is not str or encoding not in ("zst", "raw")):
        raise InvalidValue("encoding", f"{values.shown(encoding)} is not 'zst' or 'raw'")
    backend = open_backend(location, runtime=runtime, encoding=encoding)
    cataloguing = None
    if index:
        cataloguing = cataloguing_of(backend, projection, embedder, runtime, embeds=embed)
    return Store(backend, runtime=runtime, pack=pack, views=views, cataloguing=cataloguing)
