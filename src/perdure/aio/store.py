"""The store, for tasks: every door to sessions, none of which holds up the event loop."""

import os
import threading
import weakref
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, Self, TypeVar

from perdure.aio.artifacts import StoreExtracting
from perdure.aio.copying import StoreCopying
from perdure.aio.finding import StoreFinding
from perdure.aio.forking import StoreForking
from perdure.aio.inspection import AsyncInspection
from perdure.aio.keeping import StoreKeeping
from perdure.aio.opening import AsyncPrepared, Opening
from perdure.aio.outcomes import Awaiting, Call, Outcome, Started, made_in_thread
from perdure.aio.pages import Pages
from perdure.aio.resuming import StoreResuming
from perdure.aio.session import AsyncSession, end_context
from perdure.aio.threads import Lane, Pool, ProcessBound, make_all
from perdure.aio.turns import Turns
from perdure.backends.base import Entry
from perdure.embedding import Embedder
from perdure.errors import InvalidValue, PerdureError, SessionBusy, StoreClosed
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header, Parent, Source, check_id
from perdure.recovery.walk import Problem
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Report, Session, Store
from perdure.store import open_store as open_blocking
from perdure.store.keeping import check_wait
from perdure.views.projection import Projection
from perdure.views.view import View

__all__ = ["AsyncStore", "open_store"]

P = ParamSpec("P")
T = TypeVar("T")

# Named here because `AsyncStore.list` hides the builtin inside the class.
Entries = list[Entry]
Events = list[Event]
Steps = list[Outcome[Any]]

COMMIT_THREADS = 32
"""Sessions that commit at the same moment; others wait for a thread, in order."""

OTHER_THREADS = 16
"""Everything else that blocks at the same moment: opening, reading, listing."""


class AsyncStore(
    StoreFinding,
    StoreKeeping,
    StoreCopying,
    StoreResuming,
    StoreForking,
    StoreExtracting,
    ProcessBound,
):
    """Sessions in one place: `perdure.Store`, with `await` before what blocks.

    May be used from any task, thread and event loop, also from a loop that comes after another one
    has ended. An asynchronous context manager; `perdure.aio.open` makes one.

    A task that is cancelled gets its cancellation at once, but for closing, which is finished
    first. What a thread was doing for it goes on, and nothing stays locked by it.
    """

    def __init__(
        self, store: Store, *, runtime: Runtime = SYSTEM, pools: tuple[Pool, Pool] | None = None
    ) -> None:
        """Serve the sessions of `store`, whose runtime is `runtime`; closing closes it too.

        The store of a namespace is given the `pools` of the one above it: for commits, and for
        everything else.
        """
        self._store = store
        self._runtime = runtime
        self._below: dict[str, AsyncStore] = {}
        self._owns_pools = pools is None
        self._commits, self._others = pools or (
            Pool("perdure-commit", COMMIT_THREADS),
            Pool("perdure-io", OTHER_THREADS),
        )
        self._turns = Turns(runtime)
        # Weakly: a writer that everybody dropped gives its session back. In the order in which they
        # were begun.
        self._sessions: weakref.WeakValueDictionary[int, AsyncSession]
        self._sessions = weakref.WeakValueDictionary()
        self._writers: weakref.WeakValueDictionary[str, AsyncSession]
        self._writers = weakref.WeakValueDictionary()
        self._appends: weakref.WeakValueDictionary[str, Lane[Call[Events]]]
        self._appends = weakref.WeakValueDictionary()
        self._untold: BaseException | None = None
        self._closed = False
        super().__init__()

    def _begin(self) -> None:
        self._mutex = threading.Lock()

    def __repr__(self) -> str:
        """What it serves."""
        return f"<AsyncStore of {self._store!r}>"

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Make a blocking call in a worker thread: how every plain operation is done."""
        return await made_in_thread(self._others.run, partial(call, *args, **options))

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closed

    def namespace(self, *parts: str) -> "AsyncStore":
        """The store of a namespace, as `Store.namespace`; takes no time, so it is not awaited.

        Raises:
            As `Store.namespace`.

        """
        if not parts:
            return self
        with self._mutex:
            if self._closed:
                raise StoreClosed
            store = self._store.namespace(parts[0])
            if parts[0] not in self._below or self._below[parts[0]].closed:
                self._below[parts[0]] = AsyncStore(
                    store, runtime=self._runtime, pools=(self._commits, self._others)
                )
            below = self._below[parts[0]]
        return below.namespace(*parts[1:])

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
    ) -> Opening:
        """A writer for a new session, as `Store.create`: `async with store.create() as session`.

        Raises:
            As `Store.create`, when awaited or entered.

        """
        create = partial(
            self._store.create,
            id,
            cwd=cwd,
            parent=parent,
            origin=origin,
            depth=depth,
            preset=preset,
            source=source,
            vocabulary=vocabulary,
            created_at=created_at,
        )
        return Opening(partial(self._create, create, config))

    async def _create(self, create: Callable[..., Session], config: Any) -> AsyncSession:
        # Copied here: no thread reads what other tasks may change.
        call = partial(create, config=values.snapshot(config, "config"))
        return self._wrap(await made_in_thread(self._others.run, call, self._give_back))

    def writer(self, id: str, *, wait: float = 0.0) -> Opening:
        """The exclusive writer of an existing session, as `Store.writer`; may be entered at once.

        Waiting occupies no thread. Tasks that wait for the same session get it in the order in
        which they came, and at once when a session of this store gives it back.

        Raises:
            As `Store.writer`, when awaited or entered.

        """
        return Opening(partial(self._writer, id, wait))

    def _writer_of(self, id: str, wait: float) -> Opening:
        return self.writer(id, wait=wait)

    async def _writer(self, id: str, wait: float) -> AsyncSession:
        return await self._opened(id, wait, partial(self._store.writer, id))

    async def _opened(self, id: str, wait: float, attempt: Callable[[], Session]) -> AsyncSession:
        return self._wrap(await self._take(id, wait, attempt, self._give_back))

    async def prepare(self, id: str, *, wait: float = 0.0) -> AsyncPrepared:
        """Reserve a session for its next writer; closers are committed.

        Raises:
            As `writer`.

        """
        return AsyncPrepared(await self._writer(id, wait))

    def append(self, id: str, events: Iterable[Event | Mapping[str, Any]]) -> Awaiting[Events]:
        """Append to a session without keeping its writer, as `Store.append`.

        The events are copied and queued at the call, behind those of earlier calls. Cancelling
        whoever awaits it changes nothing; a failure that nobody took is raised by `close`.

        Raises:
            As `Store.append`, when awaited.

        """
        call: Call[Events]
        try:
            check_id(id)
            batch = [_copied(event, number) for number, event in enumerate(events)]
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            call = Call(list, untold=self._remember)
            call.outcome.fail(error)
        else:
            call = Call(partial(self._store.append, id, batch), untold=self._remember)
            with self._mutex:
                lane = self._appends.get(id)
                if lane is None:
                    lane = self._appends[id] = Lane(self._others)
            lane.put(call, make_all)
        return Started(call, self._others.run)

    def _remember(self, error: BaseException) -> None:
        self._untold = self._untold or error

    def _wrap(self, session: Session) -> AsyncSession:
        opened = AsyncSession(
            session,
            commits=self._commits,
            others=self._others,
            runtime=self._runtime,
            released=self._turns.wake,
        )
        opened.spawned = lambda begin: Opening(partial(self._adopt, begin))
        with self._mutex:
            self._sessions[session.born] = opened
            self._writers[opened.id] = opened
        return opened

    async def _adopt(self, begin: Callable[[], Coroutine[Any, Any, Session]]) -> AsyncSession:
        return self._wrap(await begin())

    # --- waiting for the writer's lock -----------------------------------------------------------

    async def _take(
        self,
        id: str,
        wait: float,
        attempt: Callable[[], T],
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """Attempt what needs the lock, again and again in turn, for `wait` seconds."""
        check_wait(wait)
        check_id(id)

        async def ask(again: bool) -> T:
            call = partial(self._attempt, id, attempt, again)
            return await made_in_thread(self._others.run, call, undo)

        if not wait:
            return await ask(again=False)
        return await self._turns.take(id, wait, ask, partial(self._writes, id))

    def _attempt(self, id: str, attempt: Callable[[], T], again: bool) -> T:
        """Runs in a worker thread; `again` looks first, which costs less than to try in vain."""
        if self._closed:
            # Already while it closes: what its sessions give back then is not handed on.
            raise StoreClosed
        if again:
            holder = self._store.inspect(id).holder
            if holder is not None:
                here = holder.pid is not None and holder.pid == self._runtime.pid()
                raise SessionBusy(id, **holder._asdict(), here=here)
        return attempt()

    def _writes(self, id: str) -> bool:
        """Whether a session of this store holds the lock, and will say when that ends."""
        with self._mutex:
            opened = self._writers.get(id)
        if opened is None or opened._given_back:  # noqa: SLF001 - a store knows its own
            return False
        # One that has nothing stored yet holds no lock.
        return opened.position.seq >= 0

    def _give_back(self, session: Session) -> None:
        with suppress(PerdureError):
            session.close()
        self._turns.wake(session.header.id)

    # --- reading ---------------------------------------------------------------------------------

    async def inspect(self, id: str) -> AsyncInspection:
        """A session as found; nothing is written and nobody is waited for.

        Raises:
            SessionNotFound: there is none.

        """
        return AsyncInspection(await self._in_thread(self._store.inspect, id), self._others)

    async def load(self, id: str, *, wait: float = 0.0) -> AsyncInspection:
        """As `inspect`, after closers were committed.

        Raises:
            As `writer`; SessionBusy also while this process itself writes the session.

        """
        found = await self._take(id, wait, partial(self._store.load, id))
        return AsyncInspection(found, self._others)

    def read_from(
        self, id: str, seq: int = 0, types: Collection[str] | None = None
    ) -> Pages[Event]:
        """Stored events from `seq` on, as `Store.read_from`: `async for`, read page by page.

        Raises:
            As `Store.read_from`, all of it by the iteration.

        """
        return Pages(self._others, partial(self._store.read_from, id, seq, types))

    def raw(self, id: str, seq: int = 0) -> Pages[bytes | Problem]:
        """The stored lines as they are, as `Store.raw`: `async for`, read page by page.

        Raises:
            As `Store.raw`, by the iteration.

        """
        return Pages(self._others, partial(self._store.raw, id, seq))

    async def verify(self, id: str, *, progress: Callable[[int], None] | None = None) -> Report:
        """Read everything of one session and report; `progress` is called in a worker thread.

        Raises:
            SessionNotFound: there is none.

        """
        return await self._in_thread(self._store.verify, id, progress=progress)

    async def list(self) -> Entries:
        """Every stored session: header, or the problem that hides it; no log is read."""
        return await self._in_thread(self._store.list)

    async def list_snapshots(self) -> Entries:
        """As `list`; `revision` tells whether a session changed since it was seen last."""
        return await self._in_thread(self._store.list_snapshots)

    async def revision(self, id: str) -> str:
        """Another text after each change of the session's log, as `Store.revision`."""
        return await self._in_thread(self._store.revision, id)

    async def watch(self, id: str, seen: str, seconds: float) -> str:
        """Wait until a session changed, as `Store.watch`; other calls go on meanwhile."""
        return await self._in_thread(self._store.watch, id, seen, seconds)

    async def subscribe(self, id: str, told: Callable[[], None]) -> Callable[[], None] | None:
        """Have `told` called, in any thread, after each change, as `Store.subscribe`."""
        return await self._in_thread(self._store.subscribe, id, told)

    async def locate(self, session: Header | str) -> str | None:
        """Absolute path of a session's log, existing or not; None where there are no files."""
        return await self._in_thread(self._store.locate, session)

    # --- ending ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Close every session that is still open, then the store; nothing can be written after.

        What was queued before is stored. It is done when this ends, whatever cancels the caller.

        Raises:
            PerdureError: the first failure of a session that could not store what was queued, or
                of an append that nobody awaited.

        """
        await self.__aexit__(None, None, None)

    async def __aenter__(self) -> Self:
        """The store itself."""
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        self._closed = True
        with self._mutex:
            sessions, lanes = list(self._sessions.values()), list(self._appends.values())
            below = list(self._below.values())
        held_back, failed = await _close_each(below)
        steps: Steps = [
            session._start_closing()  # noqa: SLF001 - a store closes its own
            for session in sessions
        ]
        for lane in lanes:
            last: Call[Events] = Call(list)
            lane.put(last, make_all)
            steps.append(last.outcome)
        for step in steps:
            held_back = await step.wait_out() or held_back
        closing = Call(self._store.close)
        self._commits.run(closing)
        held_back = await closing.outcome.wait_out() or held_back
        if self._owns_pools:
            self._commits.close()
            self._others.close()
        self._turns.wake_all()
        failures = failed
        failures += [step.error for step in (*steps, closing.outcome) if step.error is not None]
        if self._untold is not None:
            failures.append(self._untold)
            self._untold = None
        told: Outcome[None] = Outcome()
        if failures:
            told.fail(failures[0])
        else:
            told.succeed(None)
        end_context(error, held_back, told, "while closing the store")


async def _close_each(
    stores: Iterable[AsyncStore],
) -> tuple[BaseException | None, list[BaseException]]:
    """Close all of them; the cancellation that came meanwhile, and what failed."""
    held_back: BaseException | None = None
    failures: list[BaseException] = []
    for store in stores:
        try:
            await store.close()
        except PerdureError as error:
            failures.append(error)
        except BaseException as error:  # noqa: BLE001 - raised when all of them are closed
            held_back = error
    return held_back, failures


def _copied(event: Event | Mapping[str, Any], number: int) -> Event | Mapping[str, Any]:
    """An event that the caller cannot change any more; what is none is left for the store."""
    if isinstance(event, Event) or not isinstance(event, Mapping) or "data" not in event:
        return dict(event) if isinstance(event, Mapping) else event
    return {**event, "data": values.snapshot(event["data"], f"events[{number}].data")}


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
    token: str | None = None,
    timeout: float | None = None,
    runtime: Runtime = SYSTEM,
) -> AsyncStore:
    """Open the store at `location`, as `perdure.open`; takes no time, so it is not awaited.

    A URL is refused, and so are `token` and `timeout`, which are for one.

    Raises:
        InvalidValue: the location or an option is not known.

    """
    if isinstance(location, str) and location[:8].lower().startswith(("http://", "https://")):
        hint = "perdure.open(url) gives its client, to be used in threads"
        raise InvalidValue("location", "a store behind a URL has no asynchronous client", hint=hint)
    for name, told in (("token", token), ("timeout", timeout)):
        if told is not None:
            raise InvalidValue(name, "has no meaning for a store that is opened here")
    store = open_blocking(
        location,
        encoding=encoding,
        pack=pack,
        views=views,
        index=index,
        projection=projection,
        embedder=embedder,
        embed=embed,
        runtime=runtime,
    )
    return AsyncStore(store, runtime=runtime)
