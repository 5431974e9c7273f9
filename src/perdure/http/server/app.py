"""The application: a request is routed, checked, answered in a thread, and told in one form."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from perdure.conversations import Conversations
from perdure.errors import (
    InvalidValue,
    NoSuchOperation,
    PerdureError,
    RequestTimedOut,
    ServerUnavailable,
)
from perdure.http.openapi import document
from perdure.http.operations import JSON, OPERATIONS, PREFIX, QUICK, Operation
from perdure.http.server.access import Access, Who
from perdure.http.server.answers import Streamed, encoded, json_answer, refusal
from perdure.http.server.calls import Call, Stream, body_of, path_of, query_of, store_of
from perdure.http.server.following import Following
from perdure.http.server.guard import (
    BODY_BYTES_MAX,
    CONTENT_BYTES_MAX,
    Guard,
    Limited,
    header_of,
)
from perdure.http.server.handlers import HANDLERS
from perdure.http.server.live import SOURCES, Live
from perdure.http.server.site import Site
from perdure.http.server.writers import Place, Writers
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["Service", "Settings"]

_SWEEP_SECONDS = 1.0
_QUICK_THREADS = 24
_SLOW_THREADS = 6
_WATCH_THREADS = 2
_ARRIVAL_SECONDS = 30.0
"""So long nothing may come of a request that is being sent."""


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
    idle: float = 10.0
    lease: float = 60.0


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
        self._site = Site(access, self.run_quick)
        self._app: ASGIApp = Guard(_RawPath(self._router()), settings.hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    # --- life -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _living(self, _app: Any) -> AsyncIterator[None]:
        """From before the first request to behind the last one."""
        self._quick = anyio.CapacityLimiter(_QUICK_THREADS)
        self._slow = anyio.CapacityLimiter(_SLOW_THREADS)
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
                self._store.refresh, abandon_on_cancel=True, limiter=self._slow
            )
        except PerdureError as error:
            logging.getLogger(__name__).warning("the index was not refreshed: %s", error)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            await anyio.to_thread.run_sync(self.writers.sweep, limiter=self._slow)

    def stop(self) -> None:
        """Have streams end; called in the loop, when the process is asked to end."""
        self.stopping = True
        if self.following is not None:
            self.following.wake_all()

    def _tell_moved(self, place: Place) -> None:
        if self.following is not None:
            self.following.moved(place)

    async def run_quick(self, work: Callable[..., Any], *given: Any) -> Any:
        """Call what blocks in a thread, for as long as something quick may take.

        Raises:
            RequestTimedOut: it took longer.

        """
        return await self._run(work, *given, seconds=self._settings.quick)

    async def _run(self, work: Callable[..., Any], *given: Any, seconds: float) -> Any:
        limiter = self._quick if seconds <= QUICK else self._slow
        try:
            with anyio.fail_after(seconds):
                return await anyio.to_thread.run_sync(
                    work, *given, abandon_on_cancel=True, limiter=limiter
                )
        except TimeoutError:
            raise RequestTimedOut(seconds) from None

    # --- routes -----------------------------------------------------------------------------------

    def _router(self) -> Router:
        by_path: dict[str, dict[str, Operation]] = {}
        for each in OPERATIONS:
            by_path.setdefault(each.path, {})[each.method] = each
        routes: list[BaseRoute] = [
            Route(path, _Endpoint(self, operations)) for path, operations in by_path.items()
        ]
        routes.append(Route(f"{PREFIX}/openapi.json", self._describe, methods=["GET"]))
        routes += self._site.routes(self.who)
        return Router(routes, redirect_slashes=False, default=_nothing_there, lifespan=self._living)

    async def _describe(self, _request: Request) -> Response:
        return Response(self._openapi, media_type=JSON)

    async def who(self, request: Request) -> tuple[Who, Store]:
        """Who sent a request, and the store that they see.

        Raises:
            NotAuthenticated: nobody who may ask.

        """
        authorization = header_of(request.scope, b"authorization")
        cookies = request.cookies
        who = await self.run_quick(self._access.who, authorization, cookies)
        return who, self._store.namespace(*who.parts(()))

    # --- requests ---------------------------------------------------------------------------------

    async def answer(self, operation: Operation, request: Request) -> Response:
        """The answer to a request for an operation."""
        if operation.name == "health":
            return json_answer(HANDLERS["health"](None))
        asked = _Asked(operation, request)
        try:
            if self.stopping:
                raise ServerUnavailable("the server", "it is ending")
            asked.look()
            return await self._answer(asked)
        except PerdureError as error:
            return refusal(error, owner=asked.who is not None and asked.who.owner)

    async def _answer(self, asked: "_Asked") -> Response:
        operation = asked.operation
        if operation.body is not None:
            # Whoever may not ask sends nothing that is read.
            await self.run_quick(self._identify, asked)
            await asked.receive()
        if operation.name in SOURCES and self.following is not None:
            live = Live(self.following, self._slow, lambda: self.stopping, self._settings.alive)
            call = await self.run_quick(self._call, asked)
            return await live.follow(call, await self.run_quick(SOURCES[operation.name], call))
        quick = operation.seconds <= QUICK
        seconds = min(operation.seconds, self._settings.quick) if quick else operation.seconds
        done = await self._run(self._handle, asked, seconds=seconds)
        if isinstance(done, Stream):
            media = done.media or operation.media
            streamed = Streamed(done.parts, media=media, headers=done.headers, limiter=self._slow)
            await streamed.begin()
            return streamed
        answer: Response = done
        return answer

    def _identify(self, asked: "_Asked") -> Who:
        if asked.who is None:
            asked.who = self._access.who(asked.authorization, asked.request.cookies)
        return asked.who

    def _handle(self, asked: "_Asked") -> Response | Stream:
        """All that a request takes, in one go in one thread: each change of threads costs."""
        call = self._call(asked)
        done = HANDLERS[call.operation.name](call)
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
            arriving=asked.arriving if operation.body is bytes else None,
            last_event=header_of(asked.request.scope, b"last-event-id"),
        )


class _Asked:
    """A request on its way.

    Attributes:
        operation: what is asked for.
        request: how it came.
        authorization: the header of that name, or None.
        who: who asks, once that is known.
        arriving: what is sent with it.
        raw: all of that, where it is JSON and was received.

    """

    def __init__(self, operation: Operation, request: Request) -> None:
        self.operation = operation
        self.request = request
        self.authorization: str | None = None
        self.who: Who | None = None
        self.raw: bytes | None = None

    def look(self) -> None:
        """Take what the head of the request says.

        Raises:
            InvalidValue, RequestTooLarge: it cannot be.

        """
        self.authorization = header_of(self.request.scope, b"authorization")
        limit = CONTENT_BYTES_MAX if self.operation.body is bytes else BODY_BYTES_MAX
        length = header_of(self.request.scope, b"content-length")
        self.arriving = _arriving(Limited(self.request.receive, limit, length))

    async def receive(self) -> None:
        """Receive JSON; content is received by who stores it.

        Raises:
            InvalidValue: it is sent as something else.
            RequestTooLarge, RequestTimedOut, ServerUnavailable: it does not come whole.

        """
        if self.operation.body is bytes:
            return
        kind = (header_of(self.request.scope, b"content-type") or "").partition(";")[0].strip()
        if kind.casefold() != JSON:
            # A form of another site can send other kinds without being asked.
            raise InvalidValue("Content-Type", f"{kind!r:.80} is not {JSON}")
        self.raw = b"".join([part async for part in self.arriving])


class _Endpoint:
    """What stands at one path: an operation for each method."""

    def __init__(self, service: Service, operations: Mapping[str, Operation]) -> None:
        self._service = service
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to this path."""
        request = Request(scope, receive)
        operation = self._operations.get(scope["method"])
        if operation is None:
            allowed = tuple(sorted(self._operations))
            error = NoSuchOperation(scope["method"], scope["path"], allowed)
            answer = refusal(error, owner=False)
        else:
            answer = await self._service.answer(operation, request)
        await answer(scope, receive, send)


class _RawPath:
    """Routes by the path as it was sent: what is escaped in it parts no segments."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http" and scope.get("raw_path"):
            scope = {**scope, "path": scope["raw_path"].decode("latin-1"), "root_path": ""}
        await self._app(scope, receive, send)


async def _nothing_there(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    error = NoSuchOperation(scope["method"], scope["path"][:200])
    await refusal(error, owner=False)(scope, receive, send)


async def _arriving(receive: Receive) -> AsyncIterator[bytes]:
    """What is sent, part by part.

    Raises:
        RequestTimedOut: nothing more comes.
        ServerUnavailable: whoever sends it is gone.

    """
    while True:
        try:
            with anyio.fail_after(_ARRIVAL_SECONDS):
                message = await receive()
        except TimeoutError:
            raise RequestTimedOut(_ARRIVAL_SECONDS) from None
        if message["type"] == "http.disconnect":
            raise ServerUnavailable("the request", "whoever sent it is gone")
        yield message.get("body", b"")
        if not message.get("more_body", False):
            return
