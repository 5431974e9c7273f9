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
from perdure.http.server.guard import hosts_of
from perdure.http.tokens import Tokens
from perdure.model import values
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["Address", "Server", "bind", "is_loopback", "server_of"]

_CONNECTIONS_MAX = 512
_IDLE_SECONDS = 15
_BEGIN_SECONDS = 15.0
"""So long a connection may take to send the head of its first request."""

_DRAIN_SECONDS = 10
"""So long requests that are under way may take when the process is asked to end."""

_BACKLOG = 512
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


class _Protocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever for the head of a first request."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait."""
        super().connection_made(transport)
        if len(self.connections) > _CONNECTIONS_MAX:
            transport.close()
        self._begin = asyncio.get_running_loop().call_later(_BEGIN_SECONDS, self._give_up)

    def _give_up(self) -> None:
        cycle: object = self.cycle
        if cycle is None and not self.transport.is_closing():
            self.transport.close()

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
        self._begin.cancel()
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
