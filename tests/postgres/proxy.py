"""What stands between a client and a server, and breaks their connections at a given byte."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

__all__ = ["TO_CLIENT", "TO_SERVER", "Proxy"]

TO_SERVER, TO_CLIENT = 0, 1
_LEASE = b"pg_advisory_lock("
"""Said on the connection that holds a lease. What passes there is neither counted nor cut."""


class _Pair:
    """A connection of a client, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.counted = True

    def cut(self) -> None:
        """Let both sides see that the other one has gone."""
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Passes on what a client and a server on loopback say, until it is told to cut.

    Attributes:
        port: where it listens.
        cuts: how often a connection was cut at the byte that `arm` named.

    """

    def __init__(self, server: int) -> None:
        self._server = server
        self._mutex = threading.RLock()
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self._passed = [0, 0]
        self._armed: tuple[int, int | bytes] | None = None
        self._refuses_then = False
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refuse()
        self.cut()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    # --- what it is told ------------------------------------------------------------------------

    def arm(self, direction: int, after: int | bytes, *, then_refuse: bool = False) -> None:
        """Cut once so many more bytes have passed in a direction, or before these would."""
        with self._mutex:
            self._passed = [0, 0]
            self._armed = (direction, after)
            self._refuses_then = then_refuse

    def count(self) -> tuple[int, int]:
        """Return how many bytes passed to the server and to the client, and begin anew."""
        with self._mutex:
            to_server, to_client = self._passed
            self._passed = [0, 0]
            self._armed = None
            return to_server, to_client

    def cut(self) -> None:
        """Cut all connections."""
        with self._mutex:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            pair.cut()

    def refuse(self) -> None:
        """Take no new connections; those that are open stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def accept(self) -> None:
        """Take connections again, at the same port."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._begin()

    # --- what it does ---------------------------------------------------------------------------

    def _begin(self) -> None:
        self._spawn(self._listen, self._listener)

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        with self._mutex:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)

    def _listen(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server))
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = _Pair(client, server)
            with self._mutex:
                self._pairs.append(pair)
            back = threading.Event()
            self._spawn(self._pass, pair, TO_SERVER, back)
            self._spawn(self._pass, pair, TO_CLIENT, back)

    def _pass(self, pair: _Pair, direction: int, other_ended: threading.Event) -> None:
        source, target = pair.ends[direction], pair.ends[1 - direction]
        try:
            while data := source.recv(65536):
                if direction == TO_SERVER and _LEASE in data:
                    pair.counted = False
                data, over = self._allowed(pair, direction, data)
                target.sendall(data)
                if over:
                    break
        except OSError:
            pass
        pair.cut()
        # The one that ends last closes both.
        with self._mutex:
            last = other_ended.is_set()
            other_ended.set()
        if last:
            for end in pair.ends:
                end.close()

    def _allowed(self, pair: _Pair, direction: int, data: bytes) -> tuple[bytes, bool]:
        """Return what of it may pass, and whether it is the end."""
        with self._mutex:
            if not pair.counted:
                return data, False
            before = self._passed[direction]
            self._passed[direction] += len(data)
            if self._armed is None or self._armed[0] != direction:
                return data, False
            after = self._armed[1]
            if isinstance(after, bytes):
                place = data.find(after)
                after = before + place if place >= 0 else before + len(data) + 1
            if before + len(data) < after:
                return data, False
            self._armed = None
            self.cuts += 1
            if self._refuses_then:
                self.refuse()
            return data[: max(0, after - before)], True
