"""Answers that no server of ours gives, or that never arrive, are errors of ours and cost nothing.

One server here says what a test wrote down. The other stands before a real one, and cuts the
connection before a request gets there, or behind it.
"""

import http.client
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.errors import (
    InvalidValue,
    NotAuthenticated,
    PerdureError,
    RequestTimedOut,
    ServerFaulty,
    ServerUnavailable,
    SessionBusy,
    SessionNotFound,
    StaleWriter,
    StorageFull,
    StorageUnavailable,
)
from perdure.http.client import connection
from perdure.runtime import Runtime
from tests.serving import TOKEN, serving

Asked = tuple[str, str, dict[str, str], bytes]
"""Method, target, headers and body of a request."""

HASH = "0" * 64
SECONDS = 20.0


class Hurried(Runtime):
    """A clock on which pauses take no time; what was paused is told."""

    def __init__(self) -> None:
        self.paused: list[float] = []

    def monotonic(self) -> float:
        return super().monotonic() + sum(self.paused)

    def sleep(self, seconds: float) -> None:
        self.paused.append(seconds)


class Listening:
    """Takes connections in threads until it is closed."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[tuple[str, str, bytes]] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._open: list[socket.socket] = []
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                taken, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(taken)
            thread = threading.Thread(target=self._serve, args=(taken,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, taken: socket.socket) -> None:
        with taken, taken.makefile("rb") as lines, suppress(OSError):
            while (asked := request_in(lines)) is not None:
                self.requests.append((asked[0], asked[1], asked[3]))
                if not self.answer(taken, asked):
                    return

    def answer(self, taken: socket.socket, asked: Asked) -> bool:
        """Answer a request; whether the connection stays."""
        raise NotImplementedError

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()


def request_in(lines: Any) -> Asked | None:
    """Method, target, headers and body of the next request."""
    first = lines.readline().decode()
    if not first:
        return None
    method, target, _ = first.split(" ", 2)
    headers: dict[str, str] = {}
    while (line := lines.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return method, target, headers, lines.read(int(headers.get("content-length", "0")))


class Scripted(Listening):
    """Answers with what stands in a list, one for each request; the last one again and again."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = iter((*answers[:-1], *()))
        self._last = answers[-1]
        super().__init__()

    def answer(self, taken: socket.socket, asked: Asked) -> bool:
        """Say what is next."""
        del asked
        said = next(self._answers, self._last)
        taken.sendall(said)
        return is_whole(said)


def is_whole(said: bytes) -> bool:
    """Whether an answer has its end, so that another one may follow it."""
    head, _, body = said.partition(b"\r\n\r\n")
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    return f"Content-Length: {len(body)}".encode() in head.split(b"\r\n")


def said(
    body: Any, status: str = "200 OK", kind: str = "application/json", *more: str, short: int = 0
) -> bytes:
    """An answer; with `short` so many bytes of it are missing."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(raw)}", *more]
    head = "\r\n".join((*lines, "", "")).encode()
    return head + (raw[:-short] if short else raw)


def refusal(code: str, status: str, *more: str, retryable: bool = False, **facts: Any) -> bytes:
    error = {"code": code, "message": "so it is", "hint": "", "retryable": retryable}
    return said({"error": {**error, "facts": facts}}, status, "application/json", *more)


def chunked(*parts: bytes, end: bool = True, kind: str = "application/x-ndjson") -> bytes:
    """A stream, with its end or without."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + body + (b"0\r\n\r\n" if end else b"")


def line(seq: int, **more: Any) -> bytes:
    event = {"seq": seq, "type": "x", "time": 1, **more, "data": {"n": seq}}
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


SESSION = {
    "session": "s",
    "status": "complete",
    "header": None,
    "position": {"seq": 1, "hash": HASH},
    "holder": None,
}
UNAVAILABLE = ("server-unavailable", "503 Service Unavailable")


@contextmanager
def asking(*answers: bytes, timeout: float = 2.0) -> Iterator[tuple[Store, Scripted, Hurried]]:
    """A client of a server that says what stands in a list."""
    server, runtime = Scripted(*answers), Hurried()
    try:
        with perdure.open(server.url, token=TOKEN, timeout=timeout, runtime=runtime) as store:
            yield store, server, runtime
    finally:
        server.close()


# --- what is no answer of the API -----------------------------------------------------------------

PAGE = b"<html><body>Welcome to nginx!</body></html>"


@pytest.mark.parametrize(
    "answer",
    [
        said(PAGE, kind="text/html"),
        said(PAGE, "404 Not Found", "text/html"),
        said(PAGE, "403 Forbidden", "text/html"),
        said(PAGE, "500 Oh", "text/html"),
        said(PAGE),
        said(b""),
        said(b"\xff\xfe"),
        said([]),
        said({}),
        said({**SESSION, "status": 3}),
        said({**SESSION, "position": {"seq": -5.5, "hash": HASH}}),
        said({"error": "no"}, "400 Bad Request"),
        said({"error": {"code": 1}}, "400 Bad Request"),
        said(b"[" * 100_000),
        said(SESSION, "201 Created"),
        said(SESSION, "200 OK", "application/json", "Content-Encoding: gzip"),
        said(b"", "302 Found", "text/html", "Location: http://elsewhere.example/"),
        said(b"", "307 Temporary Redirect", "text/html", "Location: /api/elsewhere"),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 1_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_answer_of_the_api_is_refused(answer: bytes) -> None:
    """Pages, other programs and wrong shapes are ServerFaulty with a hint, asked for once."""
    with asking(answer) as (store, server, runtime):
        with pytest.raises(ServerFaulty) as faulty:
            store.inspect("s")
        assert faulty.value.hint
        assert TOKEN not in str(faulty.value)
        assert len(server.requests) == 1
        assert not runtime.paused


def test_an_answer_beyond_all_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that does not end is not taken into memory."""
    monkeypatch.setattr(connection, "_ANSWER_BYTES_MAX", 1_000_000)
    parts = [b" " * 65_536] * 100
    with asking(chunked(*parts, end=False, kind="application/json")) as (store, server, _):
        with pytest.raises(ServerFaulty, match="more than"):
            store.inspect("s")
        assert len(server.requests) == 1
    endless = chunked(*[b"x" * 2**20] * 40, end=False)
    with asking(endless) as (store, _, _), pytest.raises(ServerFaulty, match="more than"):
        list(store.read_from("s"))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal("session-not-found", "404 Not Found", session="s", deleted_at=5), SessionNotFound),
        (refusal("not-authenticated", "401 Unauthorized", reason="none"), NotAuthenticated),
        (refusal("invalid-value", "400 Bad Request", path="x", reason="y"), InvalidValue),
        (refusal("session-busy", "409 Conflict", session="s"), SessionBusy),
        (refusal("storage-full", "507 Insufficient Storage"), StorageFull),
        (refusal("stale-writer", "409 Conflict"), StaleWriter),
        (refusal("of-a-later-version", "409 Conflict"), PerdureError),
    ],
)
def test_errors_come_as_they_were_raised(answer: bytes, kind: type[PerdureError]) -> None:
    """An error of the server's is raised with all its names, what is kept from us being None."""
    with asking(answer) as (store, _, _), pytest.raises(kind) as refused:
        store.inspect("s")
    assert refused.value.message == "so it is"
    promised = {
        SessionNotFound: ("session", "deleted_at", "missing"),
        SessionBusy: ("pid", "host", "since"),
        StorageFull: ("path", "reason"),
        StaleWriter: ("lost", "reason", "session"),
    }
    for name in promised.get(type(refused.value), ()):
        getattr(refused.value, name)


# --- trying again ---------------------------------------------------------------------------------


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    """A connection that breaks within an answer, or before it, costs another try and no more."""
    whole = said({**SESSION, "problems": [], "status": "unsupported"})
    short = said({**SESSION}, short=10)
    with asking(short, b"", b"HTTP/1.1 200 OK\r\nContent-", whole) as (store, server, runtime):
        found = store.inspect("s")
        assert found.status == "unsupported"
        assert len(server.requests) == 4
        assert all(0 < pause <= 2 for pause in runtime.paused)


def test_there_is_an_end_to_trying() -> None:
    """Where no answer ever comes whole, the error is typed, retryable, and within the timeout."""
    with asking(said(SESSION, short=1), timeout=3) as (store, server, runtime):
        with pytest.raises(ServerUnavailable) as refused:
            store.inspect("s")
        assert refused.value.retryable
        assert 2 < len(server.requests) < 60
        assert sum(runtime.paused) <= 3


def test_a_server_that_asks_to_wait_is_waited_for() -> None:
    """After 503 it is tried again when Retry-After says, a number or a date, and answered then."""
    whole = said({**SESSION, "status": "unsupported"})
    later = refusal(*UNAVAILABLE, "Retry-After: 3", retryable=True)
    with asking(later, later, whole, timeout=30) as (store, server, runtime):
        assert store.inspect("s").status == "unsupported"
        assert [pause for pause in runtime.paused if pause == 3] == [3, 3]
        assert len(server.requests) == 3
    date = refusal(*UNAVAILABLE, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT", retryable=True)
    nonsense = refusal(*UNAVAILABLE, "Retry-After: soon", retryable=True)
    with asking(date, nonsense, whole) as (store, server, runtime):
        assert store.inspect("s").status == "unsupported"
        assert len(server.requests) == 3


@pytest.mark.parametrize("after", ["9999999999999", "3600", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_nobody_waits_longer_than_they_wanted(after: str) -> None:
    """A server that asks for more time than the caller has gets no second request."""
    with asking(refusal(*UNAVAILABLE, f"Retry-After: {after}", retryable=True)) as (
        store,
        server,
        runtime,
    ):
        with pytest.raises(ServerUnavailable) as refused:
            store.inspect("s")
        assert not refused.value.uncertain
        assert len(server.requests) == 1
        assert not runtime.paused


@pytest.mark.parametrize("status", ["502 Bad Gateway", "503 Busy", "504 Gateway Timeout"])
def test_a_proxy_without_a_server_is_tried_again(status: str) -> None:
    """What a proxy says while its server is away is passing."""
    whole = said({**SESSION, "status": "unsupported"})
    with asking(said(PAGE, status, "text/html"), whole) as (store, server, _):
        assert store.inspect("s").status == "unsupported"
        assert len(server.requests) == 2
    with asking(said(PAGE, status, "text/html")) as (store, _, _):
        with pytest.raises(ServerUnavailable) as refused:
            store.inspect("s")
        assert refused.value.uncertain


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    """A server that takes a request and never answers is RequestTimedOut."""
    server = Silent()
    try:
        with perdure.open(server.url, timeout=0.3) as store, pytest.raises(RequestTimedOut) as late:
            store.inspect("s")
        assert late.value.seconds == 0.3
        assert late.value.uncertain
    finally:
        server.close()


class Silent(Listening):
    """Reads and never answers."""

    def answer(self, taken: socket.socket, asked: Asked) -> bool:
        """Say nothing."""
        del taken, asked
        return True


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://no.such.host.invalid"])
def test_a_server_that_is_not_there_is_unavailable(url: str) -> None:
    """Where nothing listens, or no such host is, the error is typed, and certain."""
    runtime = Hurried()
    with perdure.open(url, timeout=1, runtime=runtime) as store:
        with pytest.raises(ServerUnavailable) as refused:
            store.sessions()
        assert refused.value.retryable
        assert not refused.value.uncertain


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_that_is_cut_goes_on_behind_its_last_event() -> None:
    """A stream without its end is asked for again from the next event on."""
    first = chunked(line(0) + line(1), line(2)[:20], end=False)
    with asking(first, chunked(line(2), line(3))) as (store, server, _):
        assert [event.seq for event in store.read_from("s")] == [0, 1, 2, 3]
        assert [target.partition("?")[2] for _, target, _ in server.requests] == [
            "start=0&exact=true",
            "start=2&exact=true",
        ]


@pytest.mark.parametrize(
    ("parts", "kind"),
    [
        ([line(0), line(2)], ServerFaulty),
        ([line(1)], ServerFaulty),
        ([line(0), line(0)], ServerFaulty),
        ([line(0), PAGE + b"\n"], ServerFaulty),
        ([line(0), b'{"seq":1}\n'], ServerFaulty),
        ([line(0), b'{"seq":"1","type":"x","time":1,"data":1}\n'], ServerFaulty),
        ([line(0), b'{"seq":1,"type":3,"time":1,"data":1}\n'], ServerFaulty),
        ([line(0), b"\n"], ServerFaulty),
        ([line(0), line(1)[:-1]], ServerFaulty),
        ([line(0), line(1)[:-2] + b"\n"], ServerFaulty),
        ([line(0), refusal("session-damaged", "").partition(b"\r\n\r\n")[2] + b"\n"], PerdureError),
    ],
)
def test_a_stream_of_other_lines_ends_with_an_error(
    parts: list[bytes], kind: type[PerdureError]
) -> None:
    """A gap, a repeat, an unended or foreign line end a stream; none is taken for its end."""
    with asking(chunked(*parts)) as (store, _, _):
        seqs: list[int] = []
        with pytest.raises(kind) as refused:
            seqs.extend(event.seq for event in store.read_from("s"))
        assert seqs == [0][: parts[0] == line(0)]
        assert isinstance(refused.value, ServerFaulty) or refused.value.message == "so it is"


def test_a_stream_that_nobody_reads_on_is_let_go(recwarn: pytest.WarningsRecorder) -> None:
    """A reader that stops, or never begins, leaves no connection open."""
    with asking(chunked(*[line(number) for number in range(1_000)])) as (store, _, _):
        reading = store.read_from("s")
        assert next(reading).seq == 0
        del reading
        store.read_from("s")
        assert [event.seq for event in store.read_from("s")] == [*range(1_000)]
    assert not recwarn.list


# --- between the client and the server ------------------------------------------------------------


class Cutting(Listening):
    """Stands before a server, and cuts connections: before a request gets there, or behind it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.cuts: dict[tuple[str, str], list[str]] = {}
        super().__init__()

    def answer(self, taken: socket.socket, asked: Asked) -> bool:
        method, target, headers, body = asked
        last = target.partition("?")[0].rpartition("/")[2]
        due = self.cuts.get((method, last), [])
        how = due.pop(0) if due else "pass"
        if how == "before":
            return False
        upstream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            told = {**headers, "host": f"127.0.0.1:{self._port}"}
            upstream.request(method, target, body, told)
            response = upstream.getresponse()
            raw = response.read()
        finally:
            upstream.close()
        if how == "after":
            return False
        kept = [
            f"{name}: {value}"
            for name, value in response.getheaders()
            if name.lower() not in ("transfer-encoding", "content-length", "connection")
        ]
        head = [f"HTTP/1.1 {response.status} {response.reason}", *kept]
        if response.status != 204:
            head.append(f"Content-Length: {len(raw)}")
        whole = "\r\n".join((*head, "", "")).encode() + raw
        taken.sendall(whole[: len(whole) // 2] if how == "within" else whole)
        return how == "pass"


@contextmanager
def cutting(inner: Store, timeout: float = 10) -> Iterator[tuple[Store, Cutting]]:
    """A client whose connection is cut as a test says."""
    with serving(inner, lease=0.5) as service:
        between = Cutting(service.address.port)
        try:
            with perdure.open(between.url, token=TOKEN, timeout=timeout) as store:
                yield store, between
        finally:
            between.close()


def appended(store: Store) -> None:
    with store.writer("s") as session:
        session.append("x", {"n": 1})
        session.buffer("x", {"n": 2})
        session.append("x", {"n": 3}, key="k")


def created(store: Store) -> None:
    with store.create("new", created_at=5) as session:
        session.append_many([{"type": "x", "data": {"n": n}} for n in range(3)])
        session.append("x", {"n": 3})


def put(store: Store) -> None:
    with store.writer("s") as session:
        session.append("x", {"blob": session.put_blob([b"some ", b"content"])})


def forked(store: Store) -> None:
    with store.fork("s") as session:
        session.append("x", {"of": "fork"})


def deleted(store: Store) -> None:
    store.delete("s")


def restored(store: Store) -> None:
    store.delete("s")
    store.restore("s")


PROGRAMS: list[tuple[Callable[[Store], None], tuple[str, str]]] = [
    (appended, ("POST", "events")),
    (created, ("POST", "sessions")),
    (put, ("POST", "content")),
    (forked, ("POST", "fork")),
    (deleted, ("DELETE", "s")),
    (restored, ("POST", "restore")),
    (appended, ("GET", "log")),
]
OFTEN = [["before"], ["after"], ["within"], ["before", "before", "after"]]


@pytest.mark.parametrize(
    ("program", "request_", "how"),
    [(*each, how) for each, how in itertools.product(PROGRAMS, OFTEN)],
)
def test_a_cut_connection_changes_nothing(
    tmp_path: Path,
    program: Callable[[Store], None],
    request_: tuple[str, str],
    how: list[str],
) -> None:
    """Whether a request or its answer is lost, what is stored is what was asked for, once."""
    logs: list[Any] = []
    for cuts in ([], how):
        with perdure.open(tmp_path / f"store-{len(cuts)}-{len(logs)}") as inner:
            with inner.create("s", created_at=5) as session:
                session.append("x", {"n": 0}, time=1, key="first")
            with cutting(inner) as (store, between):
                between.cuts[request_] = [*cuts]
                program(store)
            logs.append(
                sorted(
                    [(event.seq, event.type, str(event.data)) for event in inner.read_from(each.id)]
                    for each in inner.list()
                )
            )
            assert not between.cuts[request_]
            assert all(inner.verify(each.id).sound for each in inner.list())

    assert without_hashes(logs[0]) == without_hashes(logs[1])


def without_hashes(log: Any) -> Any:
    """A log without the digest of a fork's header, whose id is random."""
    return [[each for each in session if each[1] != "session/forked"] for session in log]


def test_an_append_whose_end_nobody_knows_ends_its_writer(tmp_path: Path) -> None:
    """Where nobody answers any more, the error says that it is not known, and what it is about."""
    with perdure.open(tmp_path / "store") as inner, cutting(inner, 0.5) as (store, between):
        session = store.create("s")
        session.append("x", {"n": 0})
        between.cuts["POST", "events"] = ["after"] * 1_000
        with pytest.raises(StorageUnavailable) as unknown:
            session.append("x", {"n": 1})
        assert [event.data for event in unknown.value.lost] == [{"n": 1}]
        assert session.closed
        between.cuts.clear()
        with store.writer("s", wait=10) as again:
            assert again.position.seq == 1


def test_a_first_commit_whose_end_nobody_knows_ends_its_writer(tmp_path: Path) -> None:
    """So does the first commit of a new session; reopening shows whether it was stored."""
    with perdure.open(tmp_path / "store") as inner, cutting(inner, 0.5) as (store, between):
        session = store.create("s")
        between.cuts["POST", "sessions"] = ["after"] * 1_000
        with pytest.raises(StorageUnavailable) as unknown:
            session.append("x", {"n": 0})
        assert [event.data for event in unknown.value.lost] == [{"n": 0}]
        between.cuts.clear()
        assert [event.data for event in store.read_from("s")] == [{"n": 0}]


def test_a_right_that_is_asked_for_again_has_the_same_name(tmp_path: Path) -> None:
    """Where the answer that gave a lease was lost, the next request names the same lease."""
    with perdure.open(tmp_path / "store") as inner, cutting(inner) as (store, between):
        between.cuts["POST", "sessions"] = ["after", "before"]
        session = store.create("s")
        session.append("x", {"n": 0})
        session.close()
        between.cuts["POST", "writer"] = ["before", "before"]
        store.writer("s", wait=10).close()
        store.writer("s", wait=10).close()
        named = [
            json.loads(body)["lease"]
            for _, target, body in between.requests
            if target in ("/api/sessions", "/api/sessions/s/writer") and b'"lease"' in body
        ]
        # Of the first session, then of two writers; what is only renewed names none.
        assert len(set(named)) == 3
        assert named[-4:-1] == [named[-4]] * 3
