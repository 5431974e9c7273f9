"""How answers leave: JSON, streams that are made while they are sent, and refusals."""

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from perdure.errors import PerdureError
from perdure.http.operations import JSON
from perdure.http.problems import shape_of, status_of
from perdure.http.server.calls import Encoded
from perdure.model import values

__all__ = ["CHUNK_BYTES", "Streamed", "encoded", "json_answer", "refusal"]

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


class Streamed(StreamingResponse):
    """An answer in parts, each made in a thread when the one before was taken.

    Where a part cannot be made, the answer ends without its end: the connection is cut, and who
    reads it knows that something is missing.
    """

    def __init__(
        self,
        parts: Iterator[bytes],
        *,
        media: str,
        headers: Mapping[str, str],
        limiter: anyio.CapacityLimiter,
    ) -> None:
        """The first part is made before anything is sent: see `begin`."""
        self._parts = parts
        self._limiter = limiter
        self._first: bytes | None = b""
        super().__init__(self._pumped(), headers=dict(headers), media_type=media)

    async def begin(self) -> None:
        """Make the first part, so that what is wrong from the start is an answer of its own.

        Raises:
            PerdureError: it cannot be made.

        """
        self._first = await self._next()

    async def _next(self) -> bytes | None:
        return await anyio.to_thread.run_sync(
            _gathered, self._parts, abandon_on_cancel=True, limiter=self._limiter
        )

    async def _pumped(self) -> AsyncIterator[bytes]:
        part = self._first
        while part is not None:
            if part:
                yield part
            part = await self._next()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        except* PerdureError:
            # Nothing more is sent: the server cuts the connection.
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_close, self._parts, limiter=self._limiter)


def _gathered(parts: Iterator[bytes]) -> bytes | None:
    """So many parts as make a chunk; None: there are no more."""
    found, size = [], 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            break
    return b"".join(found) if found else None


def _close(parts: Iterator[bytes]) -> None:
    close = getattr(parts, "close", None)
    if close is not None:
        try:
            close()
        except ValueError:
            # A thread that was left behind is in it still, and ends it.
            return
