"""The application: a request is routed, checked, answered in a thread, and told in one form."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.conversations import Conversations
from perdure.errors import InvalidValue, PerdureError, RequestTimedOut, SessionBusy
from perdure.http.openapi import document
from perdure.http.operations import JSON, LONG, OPERATIONS, PREFIX, QUICK, Operation
from perdure.http.server.access import Access, Who, cookie_name
from perdure.http.server.answers import Streamed, Threads, encoded, json_answer, refusal
from perdure.http.server.arriving import Memory, Spool, parts_of
from perdure.http.server.bounds import Budget, Pool
from perdure.http.server.calls import Call, Stream, body_of, path_of, query_of, store_of
from perdure.http.server.following import Following
from perdure.http.server.guard import (
    BODY_BYTES_MAX,
    CONTENT_BYTES_MAX,
    IS_LIVE,
    Asked,
    Guard,
    Limited,
    Visit,
    header_of,
)
from perdure.http.server.handlers import HANDLERS
from perdure.http.server.handlers.conversing import control_place
from perdure.http.server.live import SOURCES, Live
from perdure.http.server.routing import Methods, RawPath, nothing_there
from perdure.http.server.site import Site
from perdure.http.server.writers import IDLE_SECONDS, LEASE_SECONDS, Place, Writers
from perdure.http.wire.events import WriterRequest
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["Service", "Settings"]

_SWEEP_SECONDS = 1.0
_QUICK_THREADS = 24
_LONG_THREADS = 8
_STREAM_THREADS = 8
_SPOOL_THREADS = 4
_DOOR_THREADS = 4
_WATCH_THREADS = 2

_MEMORY_BYTES = 16 * BODY_BYTES_MAX
"""JSON that is being received or worked at, of all requests."""
_SPOOL_BYTES = 4 * CONTENT_BYTES_MAX
"""Content that is being received or stored, of all requests."""

_AGAIN_SECONDS = 0.05
_AGAIN_SECONDS_MAX = 0.25
"""How often somebody who waits for a writer looks again."""

_log = logging.getLogger("perdure.http")


class Settings(NamedTuple):
    """How a service behaves.

    Attributes:
        hosts: the values of Host that are meant.
        quick: seconds that an operation may take which costs a page.
        alive: seconds after which a stream without news says that it is alive.
        idle: seconds after which a writer that nobody uses is closed.
        lease: seconds that a right to write holds after its last use.

    """

    hosts: frozenset[str]
    quick: float = QUICK
    alive: float = 15.0
    idle: float = IDLE_SECONDS
    lease: float = LEASE_SECONDS


class Service:
    """All that the requests to a store have in common; an ASGI application."""

    def __init__(
        self, store: Store, access: Access, settings: Settings, *, runtime: Runtime, version: str
    ) -> None:
        """Serve `store`, which stays the caller's; nothing is read before the first request."""
        self._store = store
        self._access = access
        self._settings = settings
        self._runtime = runtime
        self._openapi = encoded(document(version))
        self.writers = Writers(
            runtime, idle=settings.idle, lease=settings.lease, moved=self._tell_moved
        )
        self._desk = Conversations(store, runtime=runtime)
        self.following: Following | None = None
        self.stopping = False
        self._site = Site(access, self._run_for)
        asked = Asked(settings.hosts, self._guess, lambda: self.stopping)
        self._app: ASGIApp = Guard(RawPath(self._router()), asked)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    # --- life -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _living(self, _app: Any) -> AsyncIterator[None]:
        """From before the first request to behind the last one."""
        self._pools = _Pools(
            quick=Pool(_QUICK_THREADS),
            long=Pool(_LONG_THREADS),
            streams=Pool(_STREAM_THREADS),
            spool=Pool(_SPOOL_THREADS),
            door=Pool(_DOOR_THREADS, _DOOR_THREADS),
        )
        self._memory = Budget(_MEMORY_BYTES, _MEMORY_BYTES // 2)
        self._spool = Budget(_SPOOL_BYTES, _SPOOL_BYTES // 2)
        self.following = Following(anyio.CapacityLimiter(_WATCH_THREADS))
        tasks = [asyncio.create_task(self._sweep()), asyncio.create_task(self._refresh())]
        try:
            yield
        finally:
            for each in tasks:
                each.cancel()
            # Whatever was accepted is committed, and sessions are given back.
            await anyio.to_thread.run_sync(self.writers.close)

    async def _refresh(self) -> None:
        """Find what came while nobody served; a failure is told, and keeps nobody waiting."""
        try:
            await anyio.to_thread.run_sync(
                self._store.refresh, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        except Exception as error:  # noqa: BLE001 - the server serves all the same
            _log.warning("the index was not refreshed: %s", error)

    async def _sweep(self) -> None:
        limiter = anyio.CapacityLimiter(1)
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            try:
                await anyio.to_thread.run_sync(self.writers.sweep, limiter=limiter)
            except Exception:  # noqa: BLE001 - whatever it is, the next round is due
                _log.exception("writers that are due could not be closed")

    def stop(self) -> None:
        """Have streams end; called in the loop, when the process is asked to end."""
        self.stopping = True
        if self.following is not None:
            self.following.wake_all()

    def _tell_moved(self, place: Place) -> None:
        if self.following is not None:
            self.following.moved(place)

    async def _run_for(self, who: Who | None, work: Callable[..., Any], *given: Any) -> Any:
        """Call what blocks in a thread, for as long as something quick may take.

        Strangers (None) have threads of their own.

        Raises:
            RequestTimedOut, ServerUnavailable: it took longer.

        """
        seconds = self._settings.quick
        if who is None:
            return await self._pools.door.run(None, work, *given, seconds=seconds)
        return await self._pools.quick.run(who.principal, work, *given, seconds=seconds)

    def _guess(self, scope: Scope) -> Who | None:
        """Who sent a request, as far as that is known without a look at anything."""
        try:
            return self._access.guess(*_carried(Request(scope)))
        except InvalidValue:
            return None

    # --- routes -----------------------------------------------------------------------------------

    def _router(self) -> Router:
        by_path: dict[str, dict[str, Operation]] = {}
        for each in OPERATIONS:
            by_path.setdefault(each.path, {})[each.method] = each
        routes: list[BaseRoute] = []
        for path, operations in by_path.items():
            answers = {method: partial(self.answer, each) for method, each in operations.items()}
            if "GET" in operations and operations["GET"].media == JSON:
                # What is sent while it is made would be made for nobody.
                answers["HEAD"] = answers["GET"]
            routes.append(Route(path, Methods(answers)))
        describe = {"GET": self._describe, "HEAD": self._describe}
        routes.append(Route(f"{PREFIX}/openapi.json", Methods(describe)))
        routes += self._site.routes(self.who)
        return Router(routes, redirect_slashes=False, default=nothing_there, lifespan=self._living)

    async def _describe(self, _request: Request) -> Response:
        return Response(self._openapi, media_type=JSON)

    async def who(self, request: Request) -> tuple[Who, Store]:
        """Who sent a request, and the store that they see.

        Raises:
            NotAuthenticated: nobody who may ask.

        """
        visit = Visit.of(request.scope)
        who = await self._run_for(visit.who, self._access.who, *_carried(request))
        visit.is_of(who)
        return who, self._store.namespace(*who.parts(()))

    # --- requests ---------------------------------------------------------------------------------

    async def answer(self, operation: Operation, request: Request) -> Response:
        """The answer to a request for an operation."""
        if operation.name == "health":
            return json_answer(HANDLERS["health"](None))
        asked = _Asked(operation, request)
        try:
            asked.look()
            return await self._answer(asked)
        except RequestTimedOut as error:
            if operation.method != "GET" and not asked.repeatable:
                # It goes on, and would be done twice.
                error.retryable = False
                error.hint = "look whether it was done; with a `request` id it can be sent again"
            return refusal(error, owner=asked.who is not None and asked.who.owner)
        except PerdureError as error:
            return refusal(error, owner=asked.who is not None and asked.who.owner)
        finally:
            asked.close()

    async def _answer(self, asked: "_Asked") -> Response:
        operation = asked.operation
        visit = Visit.of(asked.request.scope)
        if operation.body is not None or visit.who is None:
            # Whoever may not ask sends nothing that is read.
            visit.is_of(await self._run_for(visit.who, self._identify, asked))
        whose = None if visit.who is None else visit.who.principal
        if operation.body is bytes:
            asked.spool = Spool(self._spool, whose)
            run = partial(self._pools.spool.run, whose, seconds=LONG, wait=LONG)
            await asked.spool.fill(asked.arriving, run)
        elif operation.body is not None:
            asked.memory = Memory(self._memory, whose)
            await asked.receive()
        if operation.name in SOURCES and self.following is not None:
            return await self._live(asked, self.following, whose)
        done = await self._done(asked, whose)
        if isinstance(done, Stream):
            media = done.media or operation.media
            threads = Threads(self._pools.streams, whose, operation.seconds)
            streamed = Streamed(done.parts, media=media, headers=done.headers, threads=threads)
            await streamed.begin()
            return streamed
        answer: Response = done
        return answer

    async def _done(self, asked: "_Asked", whose: str | None) -> Response | Stream:
        """What answers an operation; a writer is waited for here, and not in a thread."""
        operation = asked.operation
        seconds = operation.seconds
        if seconds <= QUICK:
            seconds = min(seconds, self._settings.quick)
        pool = self._pools.long if _is_long(asked) else self._pools.quick
        begun, pause = self._runtime.monotonic(), _AGAIN_SECONDS
        while True:
            try:
                done: Response | Stream = await pool.run(
                    whose, self._handle, asked, seconds=seconds
                )
            except SessionBusy:
                left = begun + asked.wait - self._runtime.monotonic()
                if left <= 0 or self.stopping:
                    raise
                await asyncio.sleep(min(pause, left))
                pause = min(2 * pause, _AGAIN_SECONDS_MAX)
            else:
                return done

    async def _live(self, asked: "_Asked", following: Following, whose: str | None) -> Response:
        operation, seconds = asked.operation, self._settings.quick
        call = await self._pools.quick.run(whose, self._call, asked, seconds=seconds)
        source = await self._pools.quick.run(whose, SOURCES[operation.name], call, seconds=seconds)
        live = Live(
            following,
            Threads(self._pools.streams, whose, LONG),
            lambda: self.stopping,
            self._settings.alive,
            partial(self._access.who, *_carried(asked.request)),
        )
        asked.request.scope.setdefault("state", {})[IS_LIVE] = True
        return await live.follow(call, source)

    def _identify(self, asked: "_Asked") -> Who:
        if asked.who is None:
            asked.who = self._access.who(*_carried(asked.request))
        return asked.who

    def _handle(self, asked: "_Asked") -> Response | Stream:
        """All that a request takes, in one go in one thread: each change of threads costs."""
        spool = asked.spool
        if spool is not None:
            spool.handed = True
        try:
            call = self._call(asked)
            if isinstance(call.body, WriterRequest):
                asked.wait = call.body.wait
                call = call._replace(body=msgspec.structs.replace(call.body, wait=0.0))
            done = HANDLERS[call.operation.name](call)
        finally:
            if spool is not None:
                spool.close()
        if "conversation" in call.path and call.operation.method != "GET":
            self._tell_moved(control_place(call, call.path["conversation"]))
        return done if isinstance(done, Stream) else json_answer(done, call.operation.status)

    def _call(self, asked: "_Asked") -> Call:
        operation = asked.operation
        who = self._identify(asked)
        path = path_of(asked.request.path_params)
        query, below = query_of(asked.request.scope["query_string"], operation.query)
        namespace = who.parts(below, changes=operation.method != "GET")
        body = None if asked.raw is None else body_of(asked.raw, operation.body)
        return Call(
            operation=operation,
            who=who,
            root=self._store,
            store=store_of(self._store, namespace, operation, who),
            namespace=namespace,
            path=path,
            query=query,
            body=body,
            writers=self.writers,
            desk=self._desk,
            arriving=None if asked.spool is None else asked.spool.parts(),
            last_event=header_of(asked.request.scope, b"last-event-id"),
        )


class _Pools(NamedTuple):
    """The threads of a service, by what they do; what takes long holds up nothing that does not."""

    quick: Pool
    long: Pool
    streams: Pool
    spool: Pool
    door: Pool


class _Asked:
    """A request on its way.

    Attributes:
        operation: what is asked for.
        request: how it came.
        who: who asks, once that is known.
        arriving: what is sent with it.
        raw: all of that, where it is JSON and was received.
        memory: what is held of it.
        spool: what was sent, where it is content.
        wait: so many seconds it is tried again while the session is busy.

    """

    def __init__(self, operation: Operation, request: Request) -> None:
        self.operation = operation
        self.request = request
        self.who: Who | None = None
        self.raw: bytes | None = None
        self.memory: Memory | None = None
        self.spool: Spool | None = None
        self.wait = 0.0

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again without being done again."""
        if self.operation.body in (None, bytes):
            # To delete twice does nothing, and the same content has the same name.
            return True
        try:
            told = {} if self.raw is None else body_of(self.raw, self.operation.body)
        except InvalidValue:
            return True
        names = ("request", "at", "writer", "lease", "id")
        return any(getattr(told, name, None) is not None for name in names)

    def look(self) -> None:
        """Take what the head of the request says.

        Raises:
            InvalidValue, RequestTooLarge: it cannot be.

        """
        header_of(self.request.scope, b"authorization")
        limit = CONTENT_BYTES_MAX if self.operation.body is bytes else BODY_BYTES_MAX
        length = header_of(self.request.scope, b"content-length")
        self.arriving = parts_of(Limited(self.request.receive, limit, length))

    async def receive(self) -> None:
        """Receive JSON.

        Raises:
            InvalidValue: it is sent as something else.
            RequestTooLarge, RequestTimedOut, ServerUnavailable: it does not come whole.

        """
        kind = (header_of(self.request.scope, b"content-type") or "").partition(";")[0].strip()
        if kind.casefold() != JSON:
            # A form of another site can send other kinds without being asked.
            raise InvalidValue("Content-Type", f"{kind!r:.80} is not {JSON}")
        if self.memory is not None:
            self.raw = await self.memory.all_of(self.arriving)

    def close(self) -> None:
        """It is answered: nothing of it is held any more."""
        if self.memory is not None:
            self.memory.close()
        if self.spool is not None and not self.spool.handed:
            self.spool.close()


def _carried(request: Request) -> tuple[str | None, str | None]:
    """What a request says of who sends it: the header, and the cookie of this server."""
    authorization = header_of(request.scope, b"authorization")
    return authorization, request.cookies.get(cookie_name(request.scope))


def _is_long(asked: _Asked) -> bool:
    """Whether a request may read everything: by its operation, and by what it asks of that."""
    operation = asked.operation
    if operation.seconds <= QUICK or operation.name not in _LONG_IF:
        return operation.seconds > QUICK
    try:
        query, _ = query_of(asked.request.scope["query_string"], operation.query)
    except InvalidValue:
        # It is refused where it is read.
        return False
    return any(getattr(query, name) for name in _LONG_IF[operation.name])


_LONG_IF = {"list_sessions": ("refresh", "full_rescan"), "get_session": ("full",)}
"""What costs a page, but for these parameters."""
