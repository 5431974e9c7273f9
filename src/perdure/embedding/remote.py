"""Embeddings of any endpoint that speaks as OpenAI's does: `POST …/embeddings`.

What is sent are a model's name and texts; what comes back is checked before any of it is used. A
key is taken from the environment, sent in a header, and stands in no message, log or store.
Redirects are not followed: the key is for the host that was named.
"""

import http.client
import ipaddress
import ssl
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from perdure.embedding.contract import Embedder
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue
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


class _Row(msgspec.Struct):
    embedding: list[float]
    index: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Row]


class _Address(NamedTuple):
    """Where an endpoint is.

    Attributes:
        secure: whether by TLS.
        host, port: of the server.
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
        key = runtime.environment(KEY)
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
            "model": address.model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if address.dimension is not None:
            asked["dimensions"] = address.dimension
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        until = self._runtime.monotonic() + seconds
        connection = self._connection(seconds)
        try:
            body = values.encode(values.snapshot(asked))
            connection.request("POST", address.path, body, headers)
            answer = connection.getresponse()
            text = self._read(answer, until, seconds)
        except TimeoutError as error:
            raise _AgainError(f"no answer within {seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _AgainError(told(error)) from error
        finally:
            connection.close()
        return self._accepted(answer, text)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._address.host, self._address.port
        if not self._address.secure:
            return http.client.HTTPConnection(host, port, timeout=seconds)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=seconds, context=context)

    def _read(self, answer: http.client.HTTPResponse, until: float, seconds: float) -> bytes:
        """The body of an answer, which may be neither too long nor too slow."""
        found = bytearray()
        while piece := answer.read1(_PIECE_BYTES):
            found += piece
            if len(found) > _ANSWER_BYTES_MAX:
                raise EmbedderFaulty(
                    self.spec, f"its answer has more than {_ANSWER_BYTES_MAX} bytes"
                )
            if self._runtime.monotonic() > until:
                raise _AgainError(f"no whole answer within {seconds:g} s")
        return bytes(found)

    def _accepted(self, answer: http.client.HTTPResponse, text: bytes) -> bytes:
        status = answer.status
        if status == http.client.OK:
            return text
        said = self._without_key(text[:_SAID_CHARS_MAX].decode("utf-8", "replace"))
        reason = f"it answered {status}: {values.shown(said)}"
        if status in (_TOO_MANY, _TIMED_OUT) or status >= _SERVER:
            raise _AgainError(reason, _seconds(answer.getheader("Retry-After")))
        hint = ""
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            hint = f"see whether {KEY} holds a valid key"
        elif http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST:
            hint = "give the address that it redirects to; redirects are not followed"
        raise EmbedderUnavailable(self.spec, reason, hint=hint)

    def _without_key(self, said: str) -> str:
        return said if not self._key else said.replace(self._key, "…")

    # --- answers ----------------------------------------------------------------------------------

    def _rows(self, text: bytes, count: int) -> list[list[float]]:
        """The vectors in the order in which they were asked for.

        Raises:
            EmbedderFaulty: they are not what was asked for.

        """
        try:
            data = msgspec.json.decode(text, type=_Answer).data
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise EmbedderFaulty(self.spec, f"its answer is none: {told(error)}") from error
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
    try:
        parts = urlsplit(spec)
        port = parts.port
        given = dict(
            parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        )
    except ValueError as error:
        raise InvalidValue("embedder", f"{values.shown(spec)} is no address", hint=hint) from error
    if parts.username is not None or parts.password is not None:
        hint = f"put the key into the environment variable {KEY}"
        raise InvalidValue("embedder", "an address holds no secret", hint=hint)
    dimension = given.pop("dimensions", None)
    sound = dimension is None or (dimension.isascii() and dimension.isdigit())
    plain = f"{parts.hostname}{parts.path}".isascii() and f"{parts.path}".isprintable()
    if not parts.hostname or not parts.fragment or given or not sound or not plain:
        raise InvalidValue("embedder", f"{values.shown(spec)} is no address", hint=hint)
    number = None if dimension is None else int(dimension[:9])
    if number is not None and not 0 < number <= _DIMENSION_MAX:
        raise InvalidValue("embedder", f"{number} is not 1 to {_DIMENSION_MAX}", hint=hint)
    path = f"{parts.path.rstrip('/')}/embeddings"
    secure = parts.scheme == "https"
    return _Address(secure, parts.hostname, port, path, parts.fragment, number)


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
