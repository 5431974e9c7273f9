"""A service as a process: bound to an address, ended without losing anything."""

import asyncio
import importlib.metadata
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from perdure.errors import InvalidValue, StorageUnavailable
from perdure.http.operations import JSON
from perdure.http.problems import shape_of
from perdure.http.server.access import Access
from perdure.http.server.answers import encoded
from perdure.http.server.app import Service, Settings
from perdure.http.server.guard import CUT, IS_LIVE, hosts_of
from perdure.http.tokens import Tokens
from perdure.model import values
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["Address", "Server", "bind", "is_loopback", "server_of"]

_CONNECTIONS_MAX = 512
_IDLE_SECONDS = 15
_HEAD_SECONDS = 15.0
"""So long a connection may take to begin a request, and so long to end its head."""

_UNREAD_SECONDS = 60.0
"""So long a client may take to read on."""

_DRAIN_SECONDS = 10
"""So long requests that are under way may take when the process is asked to end."""

_BACKLOG = 512
_HEAD_BYTES_MAX = 64 * 1024

_CRUMBS_MAX = 256
_CRUMB_BYTES = 64
"""A body that comes in more parts than that has to have so many bytes in each, on an average."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Address(NamedTuple):
    """Where a service listens, and how it is meant.

    Attributes:
        host: name or number of the interface.
        port: the port; a free one was taken for 0.
        names: further names by which it is reached.

    """

    host: str
    port: int
    names: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        """Its URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    Raises:
        InvalidValue: there is no such host.

    """
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InvalidValue("host", f"{values.shown(host)} is no address of this machine") from None
    places = [str(each[4][0]) for each in found]
    return all(place.startswith("127.") or place == "::1" for place in places)


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        InvalidValue: there is no such host or port.
        StorageUnavailable: it is in use, or not ours to take.

    """
    if not 0 <= port <= 65_535:
        raise InvalidValue("port", f"{port} is none", hint="0 to 65535; 0 takes a free one")
    is_loopback(host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only for a socket that names its protocol does asyncio switch off Nagle's algorithm, which
    # would hold the second half of each answer back for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        hint = "is it running already? --port takes another one, 0 a free one"
        raise StorageUnavailable(
            f"{host}:{port}", error.strerror or str(error), hint=hint
        ) from error
    return listening


class _Counting(h11.Connection):
    """Refuses a body in crumbs: each of them costs what a page of it would."""

    def __init__(self, limit: int) -> None:
        super().__init__(h11.SERVER, limit)
        self._crumbs = self._bytes = 0

    def next_event(self) -> Any:
        """The next part of a request."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._crumbs = self._bytes = 0
        if isinstance(event, h11.Data):
            self._crumbs += 1
            self._bytes += len(event.data)
            if self._crumbs > _CRUMBS_MAX and self._bytes < _CRUMB_BYTES * self._crumbs:
                raise h11.RemoteProtocolError("the body comes in crumbs")
        return event


class _Protocol(H11Protocol):
    """HTTP/1.1 that waits for ever neither for the head of a request nor for a reader."""

    _head: asyncio.TimerHandle | None = None
    _begun = False
    _unread: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        """As in uvicorn, but for what reads the requests."""
        super().__init__(*given, **named)
        self.conn = _Counting(self.config.h11_max_incomplete_event_size or _HEAD_BYTES_MAX)

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CUT: transport.abort}
        if len(self.connections) > _CONNECTIONS_MAX:
            self._make_room()
        self._wait_for_head()

    def _make_room(self) -> None:
        """Close the connection that has asked for nothing for longest, or else this one."""
        connections: Any = self.connections
        idle = [each for each in connections if each.waits_until is not None]
        given_up = min(idle, key=lambda each: each.waits_until, default=self)
        given_up.transport.abort()

    @property
    def waits_until(self) -> float | None:
        """When it is given up, by the clock of the loop; None: it does not wait for a request."""
        if self._head is None or self.transport.is_closing():
            return None
        return self._head.when()

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that has begun has to end."""
        if not self._begun and self._is_between():
            self._begun = True
            self._end_wait()
        super().data_received(data)
        self._wait_for_head()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._end_wait()
        self._begun = False
        super().on_response_complete()
        self._wait_for_head()
        if self.transport.is_closing():
            self._wait_for_reader()

    def _is_between(self) -> bool:
        """Whether a request has to come, or the rest of one that is answered already.

        (The timer of uvicorn ends with the first byte, whatever follows.)
        """
        cycle: Any = self.cycle
        answered = cycle is None or cycle.response_complete
        return answered and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _wait_for_head(self) -> None:
        """Arm the timer while a request has to come, and no longer."""
        if not self._is_between():
            self._end_wait()
            self._begun = False
        elif self._head is None:
            # The rest of a request is none that has not begun.
            self._begun = self._begun or self.conn.their_state is h11.SEND_BODY
            self._head = self.loop.call_later(_HEAD_SECONDS, self._give_up)

    def _end_wait(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
            self._wait_for_reader()

    def pause_writing(self) -> None:
        """Begin to wait for a reader."""
        super().pause_writing()
        if not self._is_live():
            self._wait_for_reader()

    def _wait_for_reader(self) -> None:
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def _end_wait_for_reader(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def resume_writing(self) -> None:
        """It was read on."""
        if not self.transport.is_closing():
            self._end_wait_for_reader()
        super().resume_writing()

    def _is_live(self) -> bool:
        """Whether what is sent goes on as long as somebody is there, however slowly they read."""
        state: Any = {} if self.scope is None else self.scope.get("state", {})
        return IS_LIVE in state

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, or too much of it, in the form of all refusals."""
        error = InvalidValue("request", f"cannot be read: {msg}")
        body = encoded(shape_of(error, owner=False))
        headers = [("content-type", JSON), ("content-length", str(len(body)))]
        head = h11.Response(
            status_code=400, headers=[*headers, ("connection", "close")], reason="Bad Request"
        )
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._end_wait()
        self._end_wait_for_reader()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """A server whose streams end when it is asked to end (SIGINT, SIGTERM, `stop`)."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As in uvicorn, but that the signal is not raised again: the store is to be closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take note of the signal; requests that are under way are finished."""
        super().handle_exit(sig, frame)
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def stop(self) -> None:
        """Finish what is under way, then end; from any thread."""
        self.should_exit = True
        with suppress(RuntimeError, AttributeError):
            # It has not begun, or has ended.
            self._loop.call_soon_threadsafe(self._service.stop)


def server_of(
    store: Store,
    address: Address,
    *,
    runtime: Runtime = SYSTEM,
    once: str | None = None,
    everybody: bool = False,
    settings: Settings | None = None,
) -> Server:
    """A server of a store, which stays the caller's; `run(sockets=[…])` serves until it is stopped.

    `once` is a token of the owner for this run; with `everybody` none is needed.
    """
    access = Access(Tokens(store, runtime), runtime, once=once, everybody=everybody)
    hosts = hosts_of(address.host, address.port, address.names)
    version = importlib.metadata.version("perdure")
    chosen = settings or Settings(hosts)
    service = Service(store, access, chosen, runtime=runtime, version=version)
    config = uvicorn.Config(
        service,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=_DRAIN_SECONDS,
    )
    return Server(config, service)
