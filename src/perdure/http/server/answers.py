"""How answers leave: JSON, streams that are made while they are sent, and refusals."""

import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.http.operations import JSON, LONG
from perdure.http.problems import shape_of, status_of
from perdure.http.server.bounds import Pool
from perdure.http.server.calls import Encoded
from perdure.model import values

__all__ = ["CHUNK_BYTES", "Streamed", "Threads", "encoded", "json_answer", "refusal"]

CHUNK_BYTES = 64 * 1024

_encoder = msgspec.json.Encoder()


def encoded(value: Any) -> bytes:
    """JSON in UTF-8; lone surrogates become U+FFFD."""
    if isinstance(value, Encoded):
        return value.raw
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(_shown(msgspec.to_builtins(value)))


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return values.text(value)
    if isinstance(value, dict):
        return {values.text(name): _shown(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(each) for each in value]
    return value


def json_answer(value: Any, status: int = 200) -> Response:
    """A value as JSON; no content where there is none."""
    if status == 204:
        return Response(status_code=204)
    return Response(encoded(value), status, media_type=JSON)


def refusal(error: PerdureError, *, owner: bool) -> Response:
    """An error as an answer."""
    headers = {}
    status = status_of(error)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="perdure"'
    allowed = getattr(error, "allowed", ())
    if status == 405:
        headers["Allow"] = ", ".join(allowed)
    if error.retryable:
        headers["Retry-After"] = "1"
    return Response(encoded(shape_of(error, owner=owner)), status, headers, media_type=JSON)


class Threads(NamedTuple):
    """Where the parts of an answer are made.

    Attributes:
        pool: the threads.
        whose: for whom.
        seconds: so long a part may take.

    """

    pool: Pool
    whose: str | None
    seconds: float

    async def run(self, work: Callable[..., Any], *given: Any) -> Any:
        """Call what blocks; what has begun to be sent waits for a thread as long as it takes.

        Raises:
            RequestTimedOut, ServerUnavailable: it took too long.
            What `work` raises.

        """
        return await self.pool.run(self.whose, work, *given, seconds=self.seconds, wait=LONG)


class Streamed(StreamingResponse):
    """An answer in parts, each made in a thread when the one before was taken.

    Where a part cannot be made, the answer ends without its end: the connection is cut, and who
    reads it knows that something is missing.
    """

    def __init__(
        self, parts: Iterator[bytes], *, media: str, headers: Mapping[str, str], threads: Threads
    ) -> None:
        """The first part is made before anything is sent: see `begin`."""
        self._parts = _Parts(parts)
        self._threads = threads
        self._first: bytes | None = b""
        super().__init__(self._pumped(), headers=dict(headers), media_type=media)

    async def begin(self) -> None:
        """Make the first part, so that what is wrong from the start is an answer of its own.

        Raises:
            PerdureError: it cannot be made, or not in time.

        """
        try:
            self._first = await self._threads.run(self._parts.gathered)
        except BaseException:
            self._parts.leave()
            raise

    async def _pumped(self) -> AsyncIterator[bytes]:
        part = self._first
        while part is not None:
            if part:
                yield part
            part = await self._threads.run(self._parts.gathered)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        except* PerdureError:
            # Nothing more is sent: the server cuts the connection.
            pass
        finally:
            self._parts.leave()
            with anyio.CancelScope(shield=True), suppress(PerdureError):
                await self._threads.run(self._parts.close)


class _Parts:
    """The parts of an answer, made by one thread at a time, which may be left behind in it."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._mutex = threading.Lock()
        self._at_work = False
        self._left = False

    def gathered(self) -> bytes | None:
        """So many parts as make a chunk, or as come before an empty one; None: there are no more.

        An empty part is where whoever makes them may be stopped.
        """
        with self._mutex:
            if self._left or self._at_work:
                return None
            self._at_work = True
        try:
            return self._gathered()
        finally:
            self._rest()

    def _rest(self) -> None:
        with self._mutex:
            self._at_work = False
            left = self._left
        if left:
            self.close()

    def _gathered(self) -> bytes | None:
        found, size = [], 0
        for part in self._parts:
            found.append(part)
            size += len(part)
            if not part or size >= CHUNK_BYTES or self._left:
                break
        return b"".join(found) if found else None

    def leave(self) -> None:
        """Nobody wants any more: a thread that is at work closes them when it has ended."""
        with self._mutex:
            self._left = True

    def close(self) -> None:
        """End whatever makes them, unless a thread is at work and does it."""
        with self._mutex:
            if self._at_work:
                return
            # Nobody begins any more.
            self._left = self._at_work = True
        close = getattr(self._parts, "close", None)
        if close is not None:
            close()
