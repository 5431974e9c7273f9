"""One connection, and an answer that is read from it in pieces."""

import http.client
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Self

from perdure.errors import PerdureError, RequestTimedOut, ServerFaulty, ServerUnavailable
from perdure.http.client.address import Address

__all__ = ["LINE_BYTES_MAX", "CutError", "Link", "Stream", "failure_of_cut"]

_PIECE_BYTES = 64 * 1024
LINE_BYTES_MAX = 32 * 1024 * 1024
"""A line of an answer is no longer: records have 16 MiB at most, and escapes make more of them."""

_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""Seconds without a word, seconds between asking, and how often, until the other side is gone."""


class CutError(Exception):
    """The connection broke. `sent`: the server may have got the request. `late`: nothing came."""

    def __init__(self, error: BaseException, *, sent: bool, stale: bool = False) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.sent = sent
        self.stale = stale
        self.late = isinstance(error, TimeoutError)


class Link:
    """One connection."""

    def __init__(self, address: Address, context: ssl.SSLContext | None, seconds: float) -> None:
        if context is None:
            made = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
        else:
            made = http.client.HTTPSConnection(
                address.host, address.port, timeout=seconds, context=context
            )
        self.http = made
        self.used = False
        self.idle_since = 0.0

    def connect(self) -> None:
        """Connect, and have it noticed when the other machine vanishes."""
        self.http.connect()
        self.http.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in _KEEPALIVE:
            # Not every system has them all.
            if (option := getattr(socket, name, None)) is not None:
                self.http.sock.setsockopt(socket.IPPROTO_TCP, option, seconds)

    def wait(self, seconds: float) -> None:
        """Wait so long for each piece from now on."""
        if self.http.sock is not None:
            self.http.sock.settimeout(seconds)

    @property
    def gone(self) -> bool:
        """Whether the other side has closed it, or says what nobody asked for."""
        sock = self.http.sock
        if sock is None:
            return True
        watching = select.poll()
        watching.register(sock, select.POLLIN)
        return bool(watching.poll(0))

    def close(self) -> None:
        """Close it."""
        with suppress(OSError):
            self.http.close()


class Stream:
    """An answer whose head was read, and whose body is read in pieces.

    Closed when it is read to its end, or when nobody has it any more.
    """

    def __init__(
        self,
        link: Link,
        response: http.client.HTTPResponse,
        free: Callable[[Link], None],
        url: str,
    ) -> None:
        """Made by `Connection.open`; `free` takes the connection back."""
        self._link: Link | None = link
        self._response = response
        self._free = free
        self._url = url

    def read(self) -> bytes:
        """The next piece, b"" at the end.

        Raises:
            ServerUnavailable: the answer was cut off.
            RequestTimedOut: nothing came for too long.

        """
        try:
            return self.piece()
        except CutError as cut:
            raise failure_of_cut(self._url, cut, 0.0) from cut

    def piece(self) -> bytes:
        """As `read`, for this module.

        Raises:
            CutError: the answer was cut off.

        """
        link, response = self._link, self._response
        if link is None:
            return b""
        try:
            # `read1` does not count what is left of a body whose length was said.
            found = (response.read1 if response.chunked else response.read)(_PIECE_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            raise CutError(error, sent=True) from error
        if found:
            return found
        if response.length:
            self.close()
            raise CutError(EOFError("the answer ends too early"), sent=True)
        self._link = None
        response.close()
        if response.will_close:
            link.close()
        else:
            self._free(link)
        return b""

    def refuse_cut(self, *, unbounded: bool) -> None:
        """Find out whether an answer that is none ends too early; little of it is read.

        Raises:
            CutError: it does.

        """
        if not unbounded:
            self.piece()
            return
        try:
            first = self._response.read(1)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise CutError(error, sent=True) from error
        if not first:
            raise CutError(EOFError("the answer ends within its head"), sent=True)

    def lines(self, most: int = LINE_BYTES_MAX) -> Iterator[list[bytes]]:
        """The lines, with their newlines, as many at once as came; only whole ones.

        Raises:
            ServerFaulty: one is longer than `most`, or the last one is not ended.
            As `read`.

        """
        parts: list[bytes] = []
        size = 0
        with self:
            while piece := self.read():
                end = piece.rfind(b"\n") + 1
                if not end:
                    parts.append(piece)
                    size += len(piece)
                    if size > most:
                        raise ServerFaulty(self._url, f"a line has more than {most} bytes")
                    continue
                whole = b"".join((*parts, piece[:end]))
                parts = [piece[end:]] if end < len(piece) else []
                size = len(piece) - end
                # Not `splitlines`: a lone carriage return is no end of a line.
                yield [line + b"\n" for line in whole[:-1].split(b"\n")]
            if parts:
                raise ServerFaulty(self._url, "the last line of the answer is not ended")

    def close(self) -> None:
        """Let go of it; harmless when repeated."""
        link, self._link = self._link, None
        if link is not None:
            with suppress(OSError, ValueError):
                self._response.close()
            link.close()

    def __enter__(self) -> Self:
        """The stream itself."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        """Close it, if nobody did."""
        self.close()


def failure_of_cut(url: str, cut: CutError, seconds: float) -> PerdureError:
    """The error that a broken connection is; `seconds` were waited for."""
    if cut.late and cut.sent:
        return RequestTimedOut(seconds)
    return ServerUnavailable(url, f"the connection failed: {cut}")
