"""Embeddings of any endpoint that speaks as OpenAI's does: `POST …/embeddings`.

What is sent are a model's name and texts; what comes back is checked before any of it is used. A
key is taken from the environment, sent in a header, and stands in no message, log or store.
Redirects are not followed: the key is for the host that was named.
"""

import http.client
import io
import ipaddress
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from perdure.embedding.contract import Embedder
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue, TextRefused
from perdure.lenses.registry import told
from perdure.model import values
from perdure.runtime import Runtime

__all__ = ["KEY", "RemoteEmbedder"]

KEY = "PERDURE_EMBEDDING_KEY"
"""The environment variable that holds the key, if the endpoint wants one."""

_TIMEOUT_SECONDS = 30.0
_QUERY_SECONDS = 10.0
"""Somebody waits for an answer to a query; nobody does for documents."""

_TRIES, _QUERY_TRIES = 6, 2
_PAUSE_SECONDS, _PAUSE_MAX_SECONDS = 0.5, 60.0
_ANSWER_BYTES_MAX = 64 * 1024 * 1024
_PIECE_BYTES = 64 * 1024
_DIMENSION_MAX = 16_384
_SAID_CHARS_MAX = 200
_TOO_MANY, _TIMED_OUT, _SERVER = 429, 408, 500
_REFUSALS = (400, 413, 422)
"""A server says so of too many texts, or of one that is too long."""


class _Row(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Row]


class _Address(NamedTuple):
    """Where an endpoint is.

    Attributes:
        secure: whether by TLS.
        host: the server.
        port: None: the usual one.
        path: of the resource.
        model: the name of the model.
        dimension: how many numbers are asked for; None: as many as the model gives.

    """

    secure: bool
    host: str
    port: int | None
    path: str
    model: str
    dimension: int | None

    @property
    def place(self) -> str:
        """Host, port and path."""
        return f"{self.host}{'' if self.port is None else f':{self.port}'}{self.path}"


class _AgainError(Exception):
    """It may go well the next time; `after`: so many seconds later, if the server said so."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after = after


class _Patient(io.RawIOBase):
    """What comes in on a connection, as long as it may take in all.

    A socket waits so long for each few bytes; who sends one after the other would be waited for
    without an end.
    """

    def __init__(self, inner: io.RawIOBase, sock: socket.socket, left: Callable[[], float]) -> None:
        self._inner = inner
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        left = self._left()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._inner.readinto(buffer)

    def close(self) -> None:
        self._inner.close()
        super().close()


class RemoteEmbedder(Embedder):
    """See above. `spec` is `https://HOST/v1#MODEL`, or `https://HOST/v1?dimensions=256#MODEL`."""

    remote = True

    def __init__(self, spec: str, runtime: Runtime) -> None:
        """Ask the endpoint for one vector, to know how long they are.

        Raises:
            InvalidValue: that is no such address.
            EmbedderUnavailable, EmbedderFaulty: it cannot be asked.

        """
        self._address = _address_of(spec)
        self._runtime = runtime
        self.spec = spec
        # One that is empty is as none.
        key = runtime.environment(KEY) or None
        if key is not None and not self._address.secure and not _is_loopback(self._address.host):
            hint = f"use https, or unset {KEY}"
            raise InvalidValue("embedder", "a key is not sent without TLS", hint=hint)
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidValue(KEY, "holds characters that no header can have")
        self._key = key
        self.dimension = self._address.dimension or 0
        self.dimension = len(self._ask(["text"], _QUERY_SECONDS, _QUERY_TRIES)[0])
        self.model = f"{self._address.place}#{self._address.model}/{self.dimension}"

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder.embed_documents`; asks again what failed for now, with growing pauses."""
        return self._ask(texts, _TIMEOUT_SECONDS, _TRIES)

    def embed_query(self, text: str) -> list[float]:
        """See `Embedder.embed_query`."""
        return self._ask([text], _QUERY_SECONDS, _QUERY_TRIES)[0]

    def _ask(self, texts: Sequence[str], seconds: float, tries: int) -> list[list[float]]:
        for left in reversed(range(tries)):
            try:
                return self._rows(self._post(texts, seconds), len(texts))
            except _AgainError as error:
                pause = _pause(tries - left, error.after, self._runtime)
                if not left or pause > _PAUSE_MAX_SECONDS:
                    raise EmbedderUnavailable(self.spec, error.reason, retryable=True) from error
                self._runtime.sleep(pause)
        raise EmbedderUnavailable(self.spec, "it was never asked", retryable=True)

    # --- asking -----------------------------------------------------------------------------------

    def _post(self, texts: Sequence[str], seconds: float) -> bytes:
        address = self._address
        asked: dict[str, Any] = {
            "model": values.text(address.model),
            "input": [values.text(text) for text in texts],
            "encoding_format": "float",
        }
        if address.dimension is not None:
            asked["dimensions"] = address.dimension
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        until = self._runtime.monotonic() + seconds
        connection = self._connection(seconds)
        answer: http.client.HTTPResponse | None = None
        try:
            body = values.encode(values.snapshot(asked))
            connection.request("POST", address.path, body, headers)
            answer = http.client.HTTPResponse(connection.sock, method="POST")
            inner = answer.fp.detach()
            patient = _Patient(inner, connection.sock, lambda: until - self._runtime.monotonic())
            answer.fp = io.BufferedReader(patient)
            answer.begin()
            return self._accepted(answer, self._read(answer))
        except TimeoutError:
            failed = f"no whole answer within {seconds:g} s"
        except (OSError, http.client.HTTPException) as error:
            failed = f"{type(error).__name__}: {self._said(str(error))}"
        finally:
            if answer is not None:
                answer.close()
            connection.close()
        # Not within the handler: the error above would be its context, and may hold the key.
        raise _AgainError(failed)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        # Always with a port: without one it would be looked for in an IPv6 address.
        if not self._address.secure:
            port = http.client.HTTP_PORT if port is None else port
            return http.client.HTTPConnection(host, port, timeout=seconds)
        port = http.client.HTTPS_PORT if port is None else port
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        """The body of an answer, which may not be too long."""
        found = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            found += piece
            if len(found) > _ANSWER_BYTES_MAX:
                reason = f"its answer has more than {_ANSWER_BYTES_MAX} bytes"
                raise EmbedderFaulty(self.spec, reason)
        if answer.length:
            raise _AgainError("its answer ended in the middle")
        return bytes(found)

    def _accepted(self, answer: http.client.HTTPResponse, text: bytes) -> bytes:
        status = answer.status
        if status == http.client.OK:
            return text
        said = self._said(text[:_PIECE_BYTES].decode("utf-8", "replace"))
        reason = f"it answered {status}: {values.shown(said)}"
        if status in (_TOO_MANY, _TIMED_OUT) or status >= _SERVER:
            raise _AgainError(reason, _seconds(answer.getheader("Retry-After")))
        if status in _REFUSALS:
            raise TextRefused(self.spec, reason)
        hint = ""
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            hint = f"see whether {KEY} holds a valid key"
        elif http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST:
            hint = "give the address that it redirects to; redirects are not followed"
        raise EmbedderUnavailable(self.spec, reason, hint=hint)

    def _said(self, text: str) -> str:
        """The beginning of what a server said, without the key, whatever form it has in there."""
        key = self._key or ""
        for form in (key, json.dumps(key)[1:-1]):
            for each in (form, form.replace("/", "\\/")):
                text = text.replace(each, "…") if each else text
        return values.text(text[:_SAID_CHARS_MAX])

    # --- answers ----------------------------------------------------------------------------------

    def _rows(self, text: bytes, count: int) -> list[list[float]]:
        """The vectors in the order in which they were asked for.

        Raises:
            EmbedderFaulty: they are not what was asked for.

        """
        try:
            data = msgspec.json.decode(text, type=_Answer).data
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            # It tells places in the answer, and nothing that stands there.
            raise EmbedderFaulty(self.spec, f"its answer is none: {told(error)}") from None
        if all(row.index is not None for row in data):
            data.sort(key=lambda row: row.index or 0)
            if [row.index for row in data] != list(range(count)):
                raise EmbedderFaulty(self.spec, f"it answered {len(data)} of {count} texts")
        elif len(data) != count:
            raise EmbedderFaulty(self.spec, f"it answered {len(data)} of {count} texts")
        lengths = {len(row.embedding) for row in data}
        wanted = self.dimension or min(*lengths, _DIMENSION_MAX)
        if lengths != {wanted} or not wanted:
            found = ", ".join(map(str, sorted(lengths)))
            raise EmbedderFaulty(self.spec, f"its vectors have {found} numbers, not {wanted}")
        return [row.embedding for row in data]


def _address_of(spec: str) -> _Address:
    """What an address names.

    Raises:
        InvalidValue: it is none.

    """
    hint = "https://HOST/v1#MODEL"
    # Not as `urlsplit` divides it, which takes line breaks away.
    before, _, model = spec.partition("#")
    if "@" in before:
        hint = f"put the key into the environment variable {KEY}"
        raise InvalidValue("embedder", "an address holds no secret", hint=hint)
    # A parameter may be a secret, too.
    shown = values.shown(before.partition("?")[0])
    wrong = InvalidValue("embedder", f"{shown} is no address", hint=hint)
    try:
        parts = urlsplit(before)
        port = parts.port
        # As the socket will do it.
        (parts.hostname or "").encode("idna")
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError:
        raise wrong from None
    dimension = given.pop("dimensions", None)
    sound = dimension is None or (dimension.isascii() and dimension.isdigit())
    plain = all("!" <= sign <= "~" for sign in before)
    if not parts.hostname or not model.strip() or given or not sound or not plain:
        raise wrong
    number = None if dimension is None else int(dimension.lstrip("0")[:9] or "0")
    if number is not None and not 0 < number <= _DIMENSION_MAX:
        raise InvalidValue("embedder", f"{number} is not 1 to {_DIMENSION_MAX}", hint=hint)
    path = f"{parts.path.rstrip('/')}/embeddings"
    secure = parts.scheme == "https"
    return _Address(secure, parts.hostname, port, path, model, number)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _seconds(header: str | None) -> float | None:
    """What `Retry-After` says in seconds (RFC 9110, 10.2.3); None for a date, or nothing."""
    return float(header[:9]) if header is not None and header.strip().isdecimal() else None


def _pause(tried: int, after: float | None, runtime: Runtime) -> float:
    """How long to wait, so that many who failed at once do not come back at once."""
    jitter = int(runtime.token(2), 16) / 0xFFFF
    doubled = _PAUSE_SECONDS * 2.0 ** (tried - 1) * (0.5 + jitter)
    return max(after or 0.0, doubled)
