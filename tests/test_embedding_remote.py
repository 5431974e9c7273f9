"""An endpoint as OpenAI's: what it is asked, what it may answer, and that the key stays here."""

import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.embedding import Embedder, embedder_of, remote
from perdure.embedding.remote import KEY, RemoteEmbedder
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue, PerdureError
from perdure.runtime import Runtime
from perdure.testing.strategies import strings

SECRET = 'sk-se/cret"key-0123456789'  # noqa: S105 - nobody's


class Clock(Runtime):
    """A machine whose sleep takes no time, and whose clock goes on by so much at each look."""

    def __init__(self, key: str | None = None, tick: float = 0.0) -> None:
        self.key = key
        self.tick = tick
        self.now = 1_000.0
        self.slept: list[float] = []

    def environment(self, name: str) -> str | None:
        return self.key if name == KEY else None

    def monotonic(self) -> float:
        self.now += self.tick
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def token(self, size: int = 8) -> str:
        return "7f" * size


class Asked:
    """A request as it came in."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.method, self.path = handler.command, handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = json.loads(handler.rfile.read(int(self.headers["content-length"])))


Answer = Callable[[BaseHTTPRequestHandler, Asked], None]


def said(status: int = 200, body: object = b"", **headers: str) -> Answer:
    """An answer with a body, as JSON unless it is bytes."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(raw)

    return answer


def data(*rows: object, start: int = 0) -> dict[str, Any]:
    """A body with these vectors."""
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": number, "embedding": row}
            for number, row in enumerate(rows, start)
        ],
        "usage": {"total_tokens": 7},
    }


def right(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
    """The lengths of the texts as vectors of two numbers."""
    rows = [[float(len(text)), 1.0] for text in asked.body["input"]]
    said(200, data(*rows))(handler, asked)


class Server:
    """A server on this machine that answers as it is told, and rightly once that is over."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: list[Answer] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = Asked(self)
                outer.asked.append(asked)
                answer = outer.script.pop(0) if outer.script else right
                # Who asked may be gone before the answer ends.
                with suppress(ConnectionError):
                    answer(self, asked)

            def do_GET(self) -> None:
                outer.asked.append(Asked(self))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.port = self._server.server_port
        self.address = f"http://127.0.0.1:{self.port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def opened(server: Server, clock: Runtime | None = None, query: str = "") -> Embedder:
    """An embedder that asks the server, which has answered its first question rightly."""
    script, server.script = server.script, []
    embedder = embedder_of(f"{server.address}{query}#some/model", clock or Clock())
    server.script = script
    server.asked.clear()
    return embedder


def everything_in(error: BaseException) -> str:
    """All that an error, its causes and its context say, in every form that is shown."""
    parts: list[str] = []
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        parts += [str(one), repr(one), repr(vars(one)), repr(one.args)]
        parts += traceback.format_exception(one)
        waiting += [one.__cause__, one.__context__]
    return "\n".join(parts)


# --- what is asked --------------------------------------------------------------------------------


def test_the_request_is_the_one_of_the_interface(server: Server) -> None:
    """Texts and model go as JSON to `/embeddings`, and without a key there is no such header."""
    embedder = embedder_of(f"{server.address}#some/model", Clock())
    (first,) = server.asked
    assert (first.method, first.path) == ("POST", "/v1/embeddings")
    assert first.headers["content-type"] == "application/json"
    assert first.headers["accept"] == "application/json"
    assert first.headers["host"] == f"127.0.0.1:{server.port}"
    assert "authorization" not in first.headers
    assert first.body == {"model": "some/model", "input": ["text"], "encoding_format": "float"}

    assert embedder.embed_documents(["one", "three"]) == [[3.0, 1.0], [5.0, 1.0]]
    assert embedder.embed_query("query") == [5.0, 1.0]
    assert [each.body["input"] for each in server.asked[1:]] == [["one", "three"], ["query"]]


def test_an_embedder_says_where_its_vectors_come_from(server: Server) -> None:
    """Address and name of the model are in `spec`; host, path and dimension tell models apart."""
    embedder = opened(server)
    assert isinstance(embedder, RemoteEmbedder)
    assert embedder.spec == f"{server.address}#some/model"
    assert embedder.model == f"127.0.0.1:{server.port}/v1/embeddings#some/model/2"
    assert (embedder.dimension, embedder.remote) == (2, True)


@pytest.mark.parametrize("number", ["2", "0002"])
def test_a_dimension_may_be_asked_for(server: Server, number: str) -> None:
    """What the address says of dimensions is asked for each time."""
    embedder = embedder_of(f"{server.address}?dimensions={number}#m", Clock())
    embedder.embed_query("a")
    assert [each.body["dimensions"] for each in server.asked] == [2, 2]
    assert [each.path for each in server.asked] == ["/v1/embeddings"] * 2
    with pytest.raises(EmbedderFaulty):
        embedder_of(f"{server.address}?dimensions=3#m", Clock())


def test_the_key_is_sent_in_a_header(server: Server) -> None:
    """The key of the environment goes into a header, and stands nowhere else."""
    clock = Clock(SECRET)
    embedder = opened(server, clock)
    embedder.embed_query("a")
    (asked,) = server.asked
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert SECRET not in asked.path
    assert SECRET not in json.dumps(asked.body)
    for shown in (repr(embedder), str(embedder), embedder.spec, embedder.model):
        assert SECRET not in shown


def test_an_empty_key_is_none(server: Server) -> None:
    """A variable that is set to nothing stands for no key, near and far."""
    opened(server, Clock("")).embed_query("a")
    assert "authorization" not in server.asked[0].headers


MODELS = st.text(st.characters(), min_size=1, max_size=9).filter(str.strip)


@given(st.lists(strings(), min_size=1, max_size=4), MODELS)
def test_any_text_can_be_asked_for(some: list[str], model: str) -> None:
    """What has no form in UTF-8 is sent as a sign that says so, and all else as it is."""
    sent: list[bytes] = []

    class Recording(RemoteEmbedder):
        def _post(self, given_texts: Any, seconds: float) -> bytes:
            with pytest.raises(PerdureError):
                super()._post(given_texts, seconds)
            return json.dumps(data(*([1.0, 2.0] for _ in given_texts))).encode()

    class Sink:
        sock = None

        def request(self, _method: str, _path: str, body: bytes, _headers: object) -> None:
            sent.append(body)
            raise EmbedderUnavailable("sink", "swallowed")

        def close(self) -> None:
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteEmbedder, "_connection", lambda *_: Sink())
        embedder = Recording(f"http://localhost/v1#{model}", Clock())
        assert len(embedder.embed_documents(some)) == len(some)
    asked = json.loads(sent[-1])
    assert asked["model"] == clean(model)
    assert asked["input"] == [clean(text) for text in some]


def clean(text: str) -> str:
    """A text with U+FFFD where it has half a pair of surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- what is answered -----------------------------------------------------------------------------


def test_the_index_says_which_vector_is_whose(server: Server) -> None:
    """Vectors come back in the order of the texts, whatever the order of the answer."""
    embedder = opened(server)
    body = data([1.0, 0.0], [2.0, 0.0], [3.0, 0.0])
    server.script = [said(200, body | {"data": [body["data"][at] for at in (2, 0, 1)]})]
    assert embedder.embed_documents(["a", "b", "c"]) == [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
    bare = {"data": [{"embedding": [4, 5]}, {"embedding": [6, 7.5]}]}
    server.script = [said(200, bare)]
    assert embedder.embed_documents(["a", "b"]) == [[4.0, 5.0], [6.0, 7.5]]


def test_the_body_may_come_in_chunks(server: Server) -> None:
    """An answer whose length is not told is read to its end."""

    def chunked(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        del asked
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        raw = json.dumps(data([1.5, 2.5])).encode()
        for at in range(0, len(raw), 7):
            piece = raw[at : at + 7]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.wfile.write(b"0\r\n\r\n")
        handler.close_connection = True

    embedder = opened(server)
    server.script = [chunked]
    assert embedder.embed_query("a") == [1.5, 2.5]


FAULTY: dict[str, object] = {
    "no JSON": b"<html>hello</html>",
    "nothing": b"",
    "a list": [],
    "no data": {"error": "none"},
    "data is null": {"data": None},
    "data is text": {"data": "none"},
    "no vectors": {"data": []},
    "too few": data([1.0, 2.0]),
    "too many": data([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]),
    "too many without index": {"data": [{"embedding": [1.0, 2.0]}] * 3},
    "counted from 1": data([1.0, 2.0], [1.0, 2.0], start=1),
    "one twice": {"data": data([1.0, 2.0])["data"] * 2},
    "index is text": {"data": [{"embedding": [1, 2], "index": "0"}] * 2},
    "too long": data([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    "too short": data([1.0], [1.0]),
    "empty": data([], []),
    "ragged": data([1.0, 2.0], [1.0]),
    "null among them": data([1.0, 2.0], [1.0, None]),
    "text among them": data([1.0, 2.0], [1.0, "2"]),
    "base64": data("AACAPwAAAEA=", "AACAPwAAAEA="),
    "NaN": json.dumps(data([1.0, 2.0], [1.0, float("nan")])).encode(),
    "Infinity": json.dumps(data([1.0, 2.0], [1.0, float("-inf")])).encode(),
    "too big": b'{"data": [{"embedding": [1, 2]}, {"embedding": [1, 1e999]}]}',
    "no UTF-8": b'{"data": [{"embedding": [1, 2]}], "\xff": "\xff"}',
    "deep": b"[" * 100_000,
    "cut": json.dumps(data([1.0, 2.0], [1.0, 2.0])).encode()[:-9],
}


@pytest.mark.parametrize("name", FAULTY)
def test_what_are_not_the_vectors_that_were_asked_for_is_refused(server: Server, name: str) -> None:
    """An answer that is none is an error that names the host, and is not asked for again."""
    clock = Clock(SECRET)
    embedder = opened(server, clock)
    server.script = [said(200, FAULTY[name])]
    with pytest.raises(EmbedderFaulty) as told:
        embedder.embed_documents(["a", "b"])
    assert told.value.embedder == embedder.spec
    assert told.value.hint
    assert SECRET not in everything_in(told.value)
    assert (len(server.asked), clock.slept) == (1, [])
    assert embedder.embed_query("four") == [4.0, 1.0]


@pytest.mark.parametrize("name", ["no JSON", "no data", "empty", "too many", "base64"])
def test_an_endpoint_is_tried_before_it_is_used(server: Server, name: str) -> None:
    """One that gives no vector for a first text makes no embedder."""
    server.script = [said(200, FAULTY[name])]
    with pytest.raises(EmbedderFaulty):
        embedder_of(f"{server.address}#m", Clock())


def test_a_vector_has_so_many_numbers_at_most(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first vector that is longer than any model's makes no embedder."""
    monkeypatch.setattr(remote, "_DIMENSION_MAX", 5)
    server.script = [said(200, data([1.0] * 5))]
    assert embedder_of(f"{server.address}#m", Clock()).dimension == 5
    server.script = [said(200, data([1.0] * 6))]
    with pytest.raises(EmbedderFaulty):
        embedder_of(f"{server.address}#m", Clock())


def test_a_huge_answer_is_not_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is longer than any may be is refused, told of its length or not."""
    embedder = opened(server)
    monkeypatch.setattr(remote, "_ANSWER_BYTES_MAX", 1_000)
    body = data([1.0, 2.0]) | {"padding": "x" * 1_000}
    server.script = [said(200, body)]
    with pytest.raises(EmbedderFaulty, match="more than 1000 bytes"):
        embedder.embed_query("a")

    def endless(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 10_000)

    server.script = [endless]
    with pytest.raises(EmbedderFaulty, match="more than 1000 bytes"):
        embedder.embed_query("a")


# --- what failed for now --------------------------------------------------------------------------


def dropped(handler: BaseHTTPRequestHandler, _: Asked) -> None:
    """Hang up without a word."""
    handler.close_connection = True


def short(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
    """Hang up in the middle of the right answer."""
    raw = json.dumps(data(*([1.0, 2.0] for _ in asked.body["input"]))).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(raw)))
    handler.end_headers()
    handler.wfile.write(raw[:20])


def garbled(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
    """Answer what is no HTTP, with what was sent in it."""
    handler.wfile.write(f"what is {asked.headers.get('authorization')}\r\n\r\n".encode())


AGAIN: dict[str, Answer] = {
    "500": said(500, b"oops"),
    "503": said(503, b""),
    "408": said(408, b"slow"),
    "429": said(429, {"error": "slow down"}),
    "dropped": dropped,
    "short": short,
    "garbled": garbled,
}


@pytest.mark.parametrize("name", AGAIN)
def test_what_failed_for_now_is_asked_again(server: Server, name: str) -> None:
    """After a pause the same is asked again, and the answer is that of the time it went well."""
    clock = Clock()
    embedder = opened(server, clock)
    server.script = [AGAIN[name]]
    assert embedder.embed_query("four") == [4.0, 1.0]
    assert len(clock.slept) == 1
    clock.slept.clear()
    server.script = [AGAIN[name]] * 5
    assert embedder.embed_documents(["a", "bb"]) == [[1.0, 1.0], [2.0, 1.0]]
    assert [each.body["input"] for each in server.asked[-6:]] == [["a", "bb"]] * 6
    pauses = clock.slept
    assert len(pauses) == 5
    assert all(later == 2 * sooner for sooner, later in pairwise(pauses))
    assert 0.25 <= pauses[0] <= 0.75


@pytest.mark.parametrize("name", AGAIN)
def test_what_goes_on_failing_is_told(server: Server, name: str) -> None:
    """After some tries the error says what the server said last, and that it may pass."""
    clock = Clock(SECRET)
    embedder = opened(server, clock)
    calls: list[tuple[Callable[[], object], int]] = [
        (lambda: embedder.embed_query("a"), 2),
        (lambda: embedder.embed_documents(["a"]), 6),
    ]
    for call, tries in calls:
        server.asked.clear()
        clock.slept.clear()
        server.script = [AGAIN[name]] * tries
        with pytest.raises(EmbedderUnavailable) as told:
            call()
        assert told.value.retryable
        assert told.value.hint
        assert (len(server.asked), len(clock.slept)) == (tries, tries - 1)
        assert SECRET not in everything_in(told.value)
        if name.isdigit():
            assert name in told.value.reason


@pytest.mark.parametrize(
    ("header", "slept"),
    [
        ("7", 7.0),
        ("60", 60.0),
        ("0", None),
        ("007", 7.0),
        ("-1", None),
        ("1.5", None),
        ("x", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("", None),
    ],
)
def test_a_server_may_say_when_to_come_back(
    server: Server, header: str, slept: float | None
) -> None:
    """`Retry-After` is waited for; what is no number of seconds is as none."""
    clock = Clock()
    embedder = opened(server, clock)
    server.script = [said(429, b"", Retry_After=header)]
    assert embedder.embed_documents(["a"]) == [[1.0, 1.0]]
    if slept is None:
        assert 0.25 <= clock.slept[0] <= 0.75
    else:
        assert clock.slept == [slept]


@pytest.mark.parametrize("header", ["61", "3600", "9" * 400])
def test_nobody_waits_for_hours(server: Server, header: str) -> None:
    """A server that wants to be left alone for long is, and the error says that it may pass."""
    clock = Clock()
    embedder = opened(server, clock)
    server.script = [said(429, b"", Retry_After=header)]
    with pytest.raises(EmbedderUnavailable) as told:
        embedder.embed_documents(["a"])
    assert told.value.retryable
    assert (len(server.asked), clock.slept) == (1, [])


def test_many_who_failed_at_once_do_not_come_back_at_once() -> None:
    """The pause depends on chance: by up to a half in both directions."""

    class Chance(Clock):
        def __init__(self, digits: str) -> None:
            super().__init__()
            self.digits = digits

        def token(self, size: int = 8) -> str:
            return self.digits * (2 * size)

    pauses = [remote._pause(1, None, Chance(digits)) for digits in "08f"]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.25, 0.75)


# --- servers that hang ----------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for longer than a fifth of a second."""
    monkeypatch.setattr(remote, "_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(remote, "_QUERY_SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_server_that_never_answers_is_left() -> None:
    """One that takes a question and says nothing is given up on, after its tries."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1#m"
        clock = Clock()
        with pytest.raises(EmbedderUnavailable, match=r"within 0\.2 s") as told:
            embedder_of(address, clock)
        assert told.value.retryable
        assert len(clock.slept) == 1


def dripping(*pieces: bytes) -> Answer:
    """The first pieces at once, and then the last one again and again."""

    def answer(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        for piece in pieces[:-1]:
            handler.wfile.write(piece)
        while True:
            handler.wfile.write(pieces[-1])

    return answer


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "drip",
    [
        dripping(OK, b"Content-Length: 100000000\r\n\r\n", b" "),
        dripping(OK, b"\r\n", b" "),
        dripping(OK, b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        dripping(b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["with a length", "without", "chunks", "continue"],
)
def test_a_server_that_answers_bit_by_bit_is_left(server: Server, drip: Answer) -> None:
    """An answer that never ends is given up on, though each bit of it comes in time."""
    clock = Clock(tick=0.0)
    embedder = opened(server, clock)
    # The clock goes on by a second whenever more is waited for.
    clock.tick = 1.0
    server.script = [drip, drip]
    with pytest.raises(EmbedderUnavailable, match="within 10 s") as told:
        embedder.embed_query("a")
    assert told.value.retryable


def test_a_server_that_sends_headers_bit_by_bit_is_left(server: Server) -> None:
    """A header that never ends is given up on, too: the whole answer has its time."""
    released = threading.Event()

    def slowly(handler: BaseHTTPRequestHandler, _: Asked) -> None:
        handler.wfile.write(OK)
        while not released.wait(0.01):
            handler.wfile.write(b"x")

    clock = Clock()
    embedder = opened(server, clock)
    clock.tick = 1.0
    server.script = [slowly, slowly]
    try:
        with pytest.raises(EmbedderUnavailable, match="within 10 s"):
            embedder.embed_query("a")
    finally:
        released.set()


def test_a_server_that_is_not_there_is_told() -> None:
    """A refused connection is tried again, and told."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    clock = Clock()
    with pytest.raises(EmbedderUnavailable, match="refused") as told:
        embedder_of(f"http://127.0.0.1:{port}/v1#m", clock)
    assert told.value.retryable
    assert len(clock.slept) == 1


def test_an_address_may_be_of_the_newer_internet() -> None:
    """A host that is an IPv6 address is asked at the usual port of its scheme, or at its own."""
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", connect)
        for host in ("http://[::1]", "https://[2001:db8::7]", "https://[2001:db8::7]:444"):
            with pytest.raises(EmbedderUnavailable):
                embedder_of(f"{host}/v1#m", Clock())
    assert list(dict.fromkeys(asked)) == [("::1", 80), ("2001:db8::7", 443), ("2001:db8::7", 444)]


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [201, 204, 301, 302, 307, 308, 400, 401, 403, 404, 413, 422])
def test_a_refusal_is_told_at_once(server: Server, status: int) -> None:
    """What will not go better another time is not asked again."""
    clock = Clock(SECRET)
    embedder = opened(server, clock)
    server.script = [
        said(status, b"" if status == 204 else {"error": {"message": "no such model"}})
    ]
    with pytest.raises(EmbedderUnavailable) as told:
        embedder.embed_documents(["a"])
    assert not told.value.retryable
    assert f"answered {status}" in told.value.reason
    assert (len(server.asked), clock.slept) == (1, [])
    if status in (401, 403):
        assert KEY in told.value.hint
    if status != 204:
        assert "no such model" in told.value.reason


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(server: Server, status: int) -> None:
    """Neither text nor key goes to a host that the address does not name."""
    other = Server()
    try:
        embedder = opened(server, Clock(SECRET))
        server.script = [said(status, b"", Location=f"{other.address}/embeddings")]
        with pytest.raises(EmbedderUnavailable, match=str(status)) as told:
            embedder.embed_query("a")
        assert "redirect" in told.value.hint
        assert other.asked == []
        assert len(server.asked) == 1
    finally:
        other.close()


def echo(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
    """Answer 400 with all that was sent."""
    said(400, {"headers": asked.headers})(handler, asked)


def echo_in_headers(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
    """Answer 500 with the key in the headers and in the reason."""
    handler.send_response(500, f"not {asked.headers['authorization']}")
    handler.send_header("X-Said", asked.headers["authorization"])
    handler.end_headers()


def echo_at(place: int, status: int, form: Callable[[str], str] = str) -> Answer:
    """Answer with the key behind so many other characters."""

    def answer(handler: BaseHTTPRequestHandler, asked: Asked) -> None:
        key = form(asked.headers["authorization"].removeprefix("Bearer "))
        said(status, f"{'x' * place}{key} is wrong".encode())(handler, asked)

    return answer


def escaped(key: str) -> str:
    """The key as JSON has it that escapes more than it has to."""
    return json.dumps(key)[1:-1].replace("/", "\\/")


@pytest.mark.parametrize(
    "answer",
    [
        echo,
        echo_in_headers,
        garbled,
        *(echo_at(place, 401) for place in (0, 40, 70, 79, 190, 199, 200, 65_530)),
        *(echo_at(place, 503) for place in (0, 75, 195)),
        echo_at(0, 401, lambda key: json.dumps(key)[1:-1]),
        echo_at(0, 401, lambda key: key.replace("/", "\\/")),
        echo_at(0, 401, escaped),
    ],
)
def test_a_server_that_repeats_the_key_is_not_repeated(server: Server, answer: Answer) -> None:
    """No part of the key is in a message, a representation or a cause, wherever it was said."""
    embedder = opened(server, Clock(SECRET))
    server.script = [answer] * 2
    with pytest.raises(EmbedderUnavailable) as told:
        embedder.embed_query("a")
    shown = everything_in(told.value)
    pieces = [SECRET[at : at + 5] for at in range(len(SECRET) - 4)]
    assert [piece for piece in pieces if piece in shown] == []
    assert "cret" not in shown


@pytest.mark.parametrize(
    "host",
    [
        "http://example.invalid",
        "http://192.0.2.1",
        "http://[2001:db8::7]",
        "http://127.0.0.1.example",
    ],
)
def test_a_key_is_not_sent_without_tls(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To another machine a key goes encrypted or not at all; nothing is asked."""
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(InvalidValue) as told:
        embedder_of(f"{host}/v1#m", Clock(SECRET))
    assert "https" in told.value.hint
    assert SECRET not in everything_in(told.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_key_may_go_to_this_machine(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not leave the machine may have the key as it is."""
    asked: list[object] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError("no")

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(EmbedderUnavailable):
        embedder_of(f"http://{host}:81/v1#m", Clock(SECRET))
    assert asked


@pytest.mark.parametrize("key", ["two\nlines", "tab\t", "schlüssel", "\ud800", "nul\0"])
def test_a_key_that_no_header_can_have_is_refused(server: Server, key: str) -> None:
    """A key with signs that would end the header, or that have no form in it, is not sent."""
    with pytest.raises(InvalidValue) as told:
        embedder_of(f"{server.address}#m", Clock(key))
    assert KEY in str(told.value)
    assert key not in everything_in(told.value)
    assert server.asked == []


HIDDEN = "pass-0123"


@pytest.mark.parametrize(
    "spec",
    [
        f"https://user:{HIDDEN}@host/v1#m",
        f"https://{HIDDEN}@host/v1#m",
        f"https://user:{HIDDEN}@host:bad/v1#m",
        f"https://user:{HIDDEN}/x@host/v1#m",
        f"https://user:{HIDDEN}@[bad/v1#m",
        f"https://host/v1?api_key={HIDDEN}#m",
        f"https://host/v1?dimensions=2&key={HIDDEN}#m",
        f"https://host/v1?{HIDDEN}#m",
    ],
)
def test_an_address_holds_no_secret(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a secret in an address is refused, and not shown."""
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(InvalidValue) as told:
        embedder_of(spec, Clock())
    assert HIDDEN not in str(told.value)
    assert HIDDEN not in "".join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    "spec",
    [
        "https:",
        "https://",
        "https://#m",
        "https:///v1#m",
        "https://host/v1",
        "https://host/v1#",
        "https://host:port/v1#m",
        "https://host:99999/v1#m",
        "https://[::1/v1#m",
        "https://host/v 1#m",
        "https://ho st/v1#m",
        "https://host/v1\r\nX-More: 1#m",
        "https://host/v1\t#m",
        "https://host/v1\0#m",
        "https://host/vé#m",
        "https://höst/v1#m",
        "https://host/\ud800#m",
        "https://host/v1?x=1#m",
        "https://host/v1?dimensions=#m",
        "https://host/v1?dimensions=0#m",
        "https://host/v1?dimensions=-1#m",
        "https://host/v1?dimensions=1.5#m",
        "https://host/v1?dimensions=²#m",
        "https://host/v1?dimensions=16385#m",
        f"https://host/v1?dimensions={'9' * 5_000}#m",
    ],
)
def test_what_is_no_address_is_refused(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address has a host and a model, plain signs, and nothing else; nobody else is asked."""
    monkeypatch.setattr(socket, "create_connection", lambda *_: pytest.fail("it was asked"))
    with pytest.raises(InvalidValue) as told:
        embedder_of(spec, Clock())
    assert told.value.hint
    str(told.value).encode()


@given(strings(max_size=60))
def test_any_text_behind_a_scheme_is_an_address_or_refused(rest: str) -> None:
    """Whatever somebody takes for an address, only errors of the tree escape."""

    def connect(*_: object, **__: object) -> socket.socket:
        raise ConnectionRefusedError("no")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", connect)
        for spec in (f"http://{rest}", f"https://host/{rest}#m", f"http://host?{rest}#m"):
            with pytest.raises((InvalidValue, EmbedderUnavailable)):
                embedder_of(spec, Clock())


def test_vectors_of_an_endpoint_are_vectors(server: Server) -> None:
    """What an endpoint gives can be checked and compared as that of any embedder."""
    from perdure.embedding.arithmetic import checked

    embedder = opened(server)
    rows = checked(embedder.embed_documents(["a", "bbb"]), 2, 2, embedder.spec)
    assert np.allclose(rows, [[0.7071, 0.7071], [0.9487, 0.3162]], atol=1e-4)
