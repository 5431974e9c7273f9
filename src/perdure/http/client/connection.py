"""Requests to one server: connections that are kept, answers within bounds, and trying again.

A connection serves one request after the other and is kept for the next; requests at the same time
have one each. What is cut off is asked again where that changes nothing, for as long as the caller
has time. Every failure is an error of the tree, and says with `uncertain` whether what was asked
for may have been done all the same.
"""

import http.client
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from perdure.errors import (
    PerdureError,
    RequestTimedOut,
    ServerFaulty,
    ServerUnavailable,
    StoreClosed,
)
from perdure.http.client.address import Address
from perdure.http.client.answers import NOT_OURS, failure_of, shape_in
from perdure.http.client.links import CutError, Link, Stream, failure_of_cut
from perdure.http.operations import BYTES, JSON, LONG, OPERATIONS, Operation
from perdure.http.paths import segment_of
from perdure.model import values
from perdure.runtime import Runtime

__all__ = ["Body", "Connection"]

_ANSWER_BYTES_MAX = 256 * 1024 * 1024
_ERROR_BYTES_MAX = 1024 * 1024
_FIRST_SECONDS = 2.0
"""So long is tried where nothing has answered yet."""

_CONNECT_SECONDS = 10.0
_IDLE_MAX = 8
_IDLE_SECONDS = 3.0
"""A connection that was not used for longer may be closed by the server at any moment."""

_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 0.05, 2.0
_REFUSED = 400
_BEGUN = re.compile(r"H(T(T(P(/(1(\.(1( ([0-9]{1,2})?)?)?)?)?)?)?)?)?")
"""The beginning of a status line, of which no more came."""

_BY_NAME = {each.name: each for each in OPERATIONS}

T = TypeVar("T")


class Body(NamedTuple):
    """What is sent.

    Attributes:
        parts: gives the bytes from the start, each time it is called.
        size: their number.
        kind: what they are.

    """

    parts: Callable[[], Iterable[bytes]]
    size: int
    kind: str = BYTES

    @classmethod
    def json(cls, raw: bytes) -> "Body":
        """JSON that is written already."""
        return cls(lambda: (raw,), len(raw), JSON)


class _Call(NamedTuple):
    """One request.

    Attributes:
        operation: what is asked for.
        target: path and parameters.
        body: what is sent, or None.
        again: whether it may be sent again when nobody knows whether it was done.
        seconds: so long each piece of the answer is waited for.

    """

    operation: Operation
    target: str
    body: Body | None
    again: bool
    seconds: float


class Connection:
    """Asks one server. Methods may be called from any thread; a forked child has its own links."""

    def __init__(
        self, address: Address, token: str | None, *, timeout: float, runtime: Runtime
    ) -> None:
        """Nothing is sent yet. `timeout`: so many seconds a caller waits while nothing works."""
        self.address = address
        self.timeout = timeout
        self._runtime = runtime
        self._headers = {"User-Agent": "perdure", "Accept": "*/*"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._context: ssl.SSLContext | None = None
        self._closed = False
        self._reached = False
        self.reset()

    def reset(self) -> None:
        """Forget all connections without a word to the server: they are another process's."""
        self._pid = self._runtime.pid()
        self._mutex = threading.Lock()
        self._idle: list[Link] = []

    # --- asking -----------------------------------------------------------------------------------

    def ask(
        self,
        name: str,
        shape: Any,
        path: Mapping[str, str],
        query: Iterable[tuple[str, str]],
        *,
        body: Body | None = None,
        again: bool = True,
        seconds: float | None = None,
    ) -> Any:
        """Ask for an operation by its name and read its answer, which has this shape, or `bytes`.

        `path` has ids for the names in its path. With `again` it may be sent more than once;
        `seconds` is how long to wait, by default so long as the operation may take.

        Raises:
            ServerUnavailable, ServerFaulty, RequestTimedOut: there is no answer of the server's.
            PerdureError: what the server answered.

        """
        raw = self._exchange(
            self._call(name, path, query, body, again=again, seconds=seconds), self._whole
        )
        return raw if shape is bytes else shape_in(self.address.url, raw, shape)

    def once(
        self,
        name: str,
        path: Mapping[str, str],
        query: Iterable[tuple[str, str]],
        *,
        body: Body | None = None,
        seconds: float,
    ) -> bytes:
        """As `ask`, but it is tried once, within so many seconds; what comes is not looked at.

        Raises:
            As `ask`.

        """
        try:
            call = self._call(name, path, query, body, again=False, seconds=seconds)
            return self._whole(self._begin(call))
        except CutError as cut:
            raise failure_of_cut(self.address.url, cut, seconds) from cut
        except _LaterError as later:
            raise later.failure from later

    def open(self, name: str, path: Mapping[str, str], query: Iterable[tuple[str, str]]) -> Stream:
        """Ask for an operation whose answer comes in pieces.

        Raises:
            As `ask`.

        """
        seconds = max(self.timeout, _CONNECT_SECONDS)
        return self._exchange(
            self._call(name, path, query, again=True, seconds=seconds), lambda it: it
        )

    def _call(
        self,
        name: str,
        path: Mapping[str, str],
        query: Iterable[tuple[str, str]],
        body: Body | None = None,
        *,
        again: bool,
        seconds: float | None,
    ) -> _Call:
        operation = _BY_NAME[name]
        target = operation.path
        for each, id in path.items():
            # A digest is its own segment, and so is nearly every id.
            target = target.replace(f"{{{each}}}", quote(segment_of(id), safe="="))
        pairs = "&".join(f"{_quoted(each)}={_quoted(value)}" for each, value in query)
        target = f"{self.address.prefix}{target}{'?' if pairs else ''}{pairs}"
        if seconds is None:
            seconds = self.timeout + (LONG if operation.seconds >= LONG else 0.0)
        return _Call(operation, target, body, again, seconds)

    def _exchange(self, call: _Call, take: Callable[[Stream], T]) -> T:
        """Ask until there is an answer, or no time is left."""
        begun = self._runtime.monotonic()
        number, unsure = 0, False
        while True:
            try:
                return take(self._begin(call))
            except CutError as cut:
                unsure = unsure or cut.sent
                failure = failure_of_cut(self.address.url, cut, call.seconds)
                hopeless = cut.sent and not call.again
                pause = 0.0 if cut.stale else self._pause(number)
            except _LaterError as later:
                unsure = unsure or later.unsure
                failure = later.failure
                hopeless = later.unsure and not call.again
                pause = max(self._pause(number), later.seconds or 0.0)
            except PerdureError as error:
                _mark(error, unsure=unsure)
                raise
            # Where nothing ever answered, a wrong address is likelier than a restart.
            most = self.timeout if self._reached else min(self.timeout, _FIRST_SECONDS)
            if hopeless or self._runtime.monotonic() + pause > begun + most:
                _mark(failure, unsure=unsure)
                raise failure
            self._runtime.sleep(pause)
            number += 1

    def _pause(self, number: int) -> float:
        """How long to wait before another try: not all clients at the same moment."""
        longest: float = min(_PAUSE_SECONDS * 2 ** min(number, 10), _PAUSE_MAX_SECONDS)
        return longest * (0.5 + int(self._runtime.token(2), 16) / 0x1FFFE)

    def _begin(self, call: _Call) -> Stream:
        """Send it once, and read the head of the answer.

        Raises:
            CutError: the connection broke.
            _LaterError: the server is there and does not answer now.
            PerdureError: what the server answered that was no success.

        """
        link = self._link()
        try:
            response = self._response(link, call)
        except BaseException:
            link.close()
            raise
        stream = Stream(link, response, self._give_back, self.address.url)
        try:
            self._check(call.operation, response, stream)
        except BaseException:
            stream.close()
            raise
        return stream

    def _response(self, link: Link, call: _Call) -> http.client.HTTPResponse:
        used = link.used
        try:
            if link.http.sock is None:
                link.connect()
            link.wait(call.seconds)
        except ssl.SSLCertVerificationError as error:
            faulty = ServerFaulty(self.address.url, f"its certificate is not accepted: {error}")
            faulty.hint = "a certificate of an authority that this machine trusts is needed"
            raise faulty from error
        except ssl.SSLError as error:
            faulty = ServerFaulty(self.address.url, f"it does not speak TLS as asked: {error}")
            faulty.hint = "is it http:// rather than https://?"
            raise faulty from error
        except (OSError, UnicodeError) as error:
            raise CutError(error, sent=False) from error
        try:
            self._send(link, call)
            link.used = True
            response = link.http.getresponse()
            self._reached = True
            return response
        except http.client.RemoteDisconnected as error:
            # Nothing came back at all: most often it was closed while nobody used it.
            raise CutError(error, sent=True, stale=used) from error
        except ConnectionError as error:
            raise CutError(error, sent=True, stale=used) from error
        except OSError as error:
            raise CutError(error, sent=True) from error
        except (http.client.HTTPException, ValueError) as error:
            if isinstance(error, http.client.BadStatusLine) and _BEGUN.fullmatch(str(error)):
                raise CutError(error, sent=True) from error
            faulty = ServerFaulty(
                self.address.url, f"what it says is no HTTP: {values.shown(str(error))}"
            )
            faulty.hint = NOT_OURS
            _mark(faulty, unsure=True)
            raise faulty from error

    def _send(self, link: Link, call: _Call) -> None:
        headers = dict(self._headers)
        body: Iterable[bytes] | None = None
        if call.body is not None:
            headers["Content-Type"] = call.body.kind
            headers["Content-Length"] = str(call.body.size)
            body = call.body.parts()
        elif call.operation.method in ("POST", "PUT"):
            headers["Content-Length"] = "0"
        try:
            link.http.request(call.operation.method, call.target, body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # Who refuses a request need not read all of it: perhaps it says why.
            if body is None:
                raise

    def _check(
        self, operation: Operation, response: http.client.HTTPResponse, stream: Stream
    ) -> None:
        """Refuse what is no success, or not of the API.

        Raises:
            _LaterError, PerdureError: it is not.

        """
        url = self.address.url
        if response.status == operation.status:
            media = response.headers.get_content_type()
            if operation.answer is None and operation.media == JSON:
                return
            unbounded = response.length is None and not response.chunked
            if media != operation.media or unbounded or response.headers.get("Content-Encoding"):
                # What was cut off within its head looks like that as well.
                stream.refuse_cut(unbounded=unbounded)
                what = "without an end" if unbounded else f"of the kind {media}"
                faulty = ServerFaulty(url, f"an answer {what} where {operation.media} is due")
                faulty.hint = NOT_OURS
                raise faulty
            return
        raw = b""
        with suppress(CutError):
            while len(raw) <= _ERROR_BYTES_MAX and (piece := stream.piece()):
                raw += piece
        moved = response.headers.get("Location") if response.status < _REFUSED else None
        error, ours = failure_of(url, response.status, raw, moved)
        if isinstance(error, StoreClosed):
            error = ServerUnavailable(url, "the server is ending")
        if isinstance(error, ServerUnavailable):
            later = self._later(response.headers.get("Retry-After"))
            raise _LaterError(error, later, unsure=not ours)
        if not ours:
            _mark(error, unsure=True)
        raise error

    def _later(self, told: str | None) -> float | None:
        """Seconds that a server asks to wait: a number, or the time of a clock (RFC 9110)."""
        if told is None:
            return None
        if told.strip().isascii() and told.strip().isdigit():
            return float(told.strip()[:9])
        try:
            at = parsedate_to_datetime(told).timestamp()
        except (ValueError, TypeError, OverflowError):
            return None
        return max(0.0, at - self._runtime.now_ms() / 1000)

    def _whole(self, stream: Stream) -> bytes:
        """All of an answer.

        Raises:
            CutError: it was cut off.
            ServerFaulty: it is larger than any answer.

        """
        parts, size = [], 0
        with stream:
            while piece := stream.piece():
                parts.append(piece)
                size += len(piece)
                if size > _ANSWER_BYTES_MAX:
                    raise ServerFaulty(
                        self.address.url, f"an answer of more than {_ANSWER_BYTES_MAX} bytes"
                    )
        return b"".join(parts)

    # --- connections ------------------------------------------------------------------------------

    def _link(self) -> Link:
        if self._closed:
            raise StoreClosed
        if self._pid != self._runtime.pid():
            self.reset()
        now = self._runtime.monotonic()
        with self._mutex:
            idle = self._idle
            while idle:
                link = idle.pop()
                # What was sent on one that is gone would be sent in doubt.
                if now - link.idle_since <= _IDLE_SECONDS and not link.gone:
                    return link
                link.close()
            if self.address.secure and self._context is None:
                self._context = ssl.create_default_context()
        return Link(self.address, self._context, min(_CONNECT_SECONDS, self.timeout))

    def _give_back(self, link: Link) -> None:
        if self._closed or self._pid != self._runtime.pid():
            link.close()
            return
        link.idle_since = self._runtime.monotonic()
        with self._mutex:
            self._idle.append(link)
            spare = self._idle[:-_IDLE_MAX]
            del self._idle[:-_IDLE_MAX]
        for each in spare:
            each.close()

    def close(self) -> None:
        """Close what is not in use; nothing can be asked any more."""
        self._closed = True
        if self._pid != self._runtime.pid():
            self.reset()
        with self._mutex:
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()


class _LaterError(Exception):
    """The server, or what stands before it, asks to come again. `unsure`: it may be done."""

    def __init__(self, failure: PerdureError, seconds: float | None, *, unsure: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.seconds = seconds
        self.unsure = unsure


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def _mark(error: PerdureError, *, unsure: bool) -> None:
    """Have an error say whether what was asked for may have been done."""
    if unsure and isinstance(error, ServerUnavailable | ServerFaulty | RequestTimedOut):
        error.uncertain = True
