"""What one sender can keep from others: nothing; and what goes wrong is told in one form."""

import asyncio
import hashlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store
from perdure.errors import NotAuthenticated, RequestTimedOut, ServerUnavailable
from perdure.http.server import app, arriving, following, guard, running, site
from perdure.http.server.access import Access
from perdure.http.server.answers import Streamed, Threads
from perdure.http.server.bounds import Budget, Pool
from perdure.http.server.writers import Writers
from perdure.http.tokens import Tokens
from perdure.runtime import SYSTEM
from tests.serving import SECONDS, TOKEN, Served, serving
from tests.test_http_api import answered, at, created, refused
from tests.test_http_live import following as followed

NOTE = {"type": "note", "data": 1}
SOON = 0.2
MIB = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def service(store: Store) -> Iterator[Served]:
    with serving(store) as served:
        yield served


def token(store: Store, principal: str) -> str:
    return Tokens(store).create(principal, principal=principal)[1]


def line_to(service: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.address.port), timeout=SECONDS)


def head(service: Served, first: str, *more: str) -> bytes:
    host = f"Host: 127.0.0.1:{service.address.port}"
    return "\r\n".join([f"{first} HTTP/1.1", host, *more, "", ""]).encode()


def status(line: socket.socket) -> int:
    """The status of the next answer on a connection, of which some may be left."""
    return int(line.recv(65_536).split(b" ", 2)[1])


def ends(line: socket.socket) -> bool:
    """True once the other side closes a connection, else the line times out."""
    while line.recv(65_536):
        pass
    return True


# --- who does not say what they want --------------------------------------------------------------


def test_strangers_who_send_no_form_stop_nobody(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends login forms that never come keeps nobody else from being answered."""
    monkeypatch.setattr(site, "FORM_SECONDS", SECONDS)
    with ExitStack() as lines:
        for _ in range(guard.REQUESTS_MAX):
            line = lines.enter_context(closing(line_to(service)))
            line.sendall(head(service, "POST /login", "Content-Length: 100"))
        with service.client() as api:
            answered(api.get("/api/sessions"))
            assert api.get("/").status_code == 200
        with service.client(None) as api:
            answered(api.get("/api/health"))
            assert api.get("/", params={"token": TOKEN}).status_code == 303


def test_a_form_has_to_come_soon(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A login form that does not come in time is answered, and makes room for the next one."""
    monkeypatch.setattr(site, "FORM_SECONDS", SOON)
    with ExitStack() as lines:
        waiting = [lines.enter_context(closing(line_to(service))) for _ in range(guard.FORMS_MAX)]
        for line in waiting:
            line.sendall(head(service, "POST /login", "Content-Length: 100"))
        found = [status(line) for line in waiting]
    # Half of the room is for one address.
    assert sorted(set(found)) in ([504], [503, 504])
    with service.client(None) as api:
        assert api.post("/login", data={"token": TOKEN}).status_code == 303


@pytest.mark.parametrize("begun", ["G", "GET / HTTP/1.1\r\nX-A: b"])
def test_the_head_of_every_request_has_to_end(
    service: Served, monkeypatch: pytest.MonkeyPatch, begun: str
) -> None:
    """A connection on which the head of a request does not end is closed, be it the second one."""
    monkeypatch.setattr(running, "_HEAD_SECONDS", SOON)
    for first in (False, True):
        with closing(line_to(service)) as line:
            if first:
                line.sendall(head(service, "GET /api/health"))
                assert status(line) == 200
            line.sendall(begun.encode())
            assert ends(line)


def test_the_rest_of_an_answered_request_has_to_end(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a request is answered before all of it came, its rest is not waited for for ever."""
    monkeypatch.setattr(running, "_HEAD_SECONDS", SOON)
    with closing(line_to(service)) as line:
        line.sendall(head(service, "POST /api/sessions", "Content-Length: 100"))
        assert status(line) == 401
        line.sendall(b"x")
        assert ends(line)


def test_connections_that_ask_for_nothing_make_room(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all connections are taken, one on which nothing is asked is closed for a new one."""
    monkeypatch.setattr(running, "_CONNECTIONS_MAX", 3)
    with ExitStack() as lines:
        idle = [lines.enter_context(closing(line_to(service))) for _ in range(5)]
        with service.client() as api:
            for _ in range(3):
                answered(api.get("/api/sessions"))
        assert all(ends(line) for line in idle[:3])


def test_who_does_not_read_is_cut_off(
    store: Store, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes nothing more of an answer loses the connection, and the request ends."""
    monkeypatch.setattr(running, "_UNREAD_SECONDS", SOON)
    lost = threading.Event()
    before = running._Protocol.connection_lost

    def connection_lost(self: Any, exc: Exception | None) -> None:
        before(self, exc)
        lost.set()

    with store.create("s") as session:
        session.append("note", 1)
        digest = session.put_blob(bytes(32 * MIB))
    monkeypatch.setattr(running._Protocol, "connection_lost", connection_lost)
    with closing(line_to(service)) as line:
        asked = f"GET {at('s', 'content', digest)}"
        line.sendall(head(service, asked, f"Authorization: Bearer {TOKEN}"))
        assert lost.wait(SECONDS)


# --- what one principal can take ------------------------------------------------------------------


def test_slow_uploads_hold_no_thread(service: Served) -> None:
    """Content that comes slowly keeps nothing else waiting, and is stored when it has come."""
    more = (f"Authorization: Bearer {TOKEN}", "Content-Length: 100", "Expect: 100-continue")
    with service.client() as api, ExitStack() as lines:
        created(api, "s")
        sending = [lines.enter_context(closing(line_to(service))) for _ in range(30)]
        for line in sending:
            line.sendall(head(service, f"POST {at('s', 'content')}", *more))
        assert [status(line) for line in sending] == [100] * len(sending)
        for path in ("/api/sessions", at("s"), "/api/stats", at("s", "verify")):
            answered(api.get(path))
        assert api.get(at("s", "log")).status_code == 200
        for line in sending:
            line.sendall(b"x" * 100)
        assert [status(line) for line in sending] == [201] * len(sending)


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, 3 * MIB + 1])
def test_content_of_any_size_is_stored(
    service: Served, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that is kept in memory or in a file until it came is stored; no file is left."""
    aside = tmp_path / "aside"
    aside.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(aside))
    content = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with service.client() as api:
        created(api, "s")
        told = answered(api.post(at("s", "content"), content=content), 201)
        assert told == {"digest": hashlib.sha256(content).hexdigest()}
        assert api.get(at("s", "content", told["digest"])).content == content
    assert not list(aside.iterdir())


def test_who_waits_for_a_writer_holds_no_thread(
    store: Store, service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait for the right to write, others are answered; each gets it in the end."""
    many = app._QUICK_THREADS + 2
    asked = threading.Semaphore(0)
    before = Writers.take

    def take(self: Writers, *given: Any, **more: Any) -> Any:
        asked.release()
        return before(self, *given, **more)

    def wait(_number: int) -> None:
        with service.client() as api:
            lease = answered(api.post(at("held", "writer"), json={"wait": 20}))
            query = {"writer": lease["writer"]}
            assert api.delete(at("held", "writer"), params=query).status_code == 204

    monkeypatch.setattr(Writers, "take", take)
    with ThreadPoolExecutor(many) as threads, service.client() as api:
        created(api, "other")
        with store.create("held") as session:
            session.append("note", 1)
            waiting = [threads.submit(wait, number) for number in range(many)]
            for _ in range(app._QUICK_THREADS):
                assert asked.acquire(timeout=SECONDS)
            api.timeout = 5.0
            answered(api.get(at("other", "events")))
            assert not any(each.done() for each in waiting)
        for each in waiting:
            each.result(SECONDS)


def test_half_of_a_pool_is_for_others() -> None:
    """Work of one holds at most half of the threads, and that of others goes past what waits."""

    async def run() -> None:
        pool, release, begun = Pool(4), threading.Event(), threading.Semaphore(0)

        def work() -> None:
            begun.release()
            assert release.wait(SECONDS)

        tasks = [asyncio.create_task(pool.run("a", work, seconds=SECONDS)) for _ in range(4)]
        for _ in range(2):
            await asyncio.to_thread(begun.acquire, timeout=SECONDS)
        for _ in range(3):
            assert await pool.run("b", lambda: "done", seconds=SECONDS) == "done"
        assert not begun.acquire(blocking=False)
        release.set()
        await asyncio.gather(*tasks)
        assert await pool.run("a", lambda: "done", seconds=SECONDS) == "done"

    asyncio.run(run())


def test_who_stops_waiting_for_a_thread_leaves_no_gap() -> None:
    """Who is cancelled while they wait for a thread, or get one just then, keeps it from nobody."""

    async def run() -> None:
        pool, release = Pool(1), threading.Event()
        first = asyncio.create_task(pool.run("a", release.wait, SECONDS, seconds=SECONDS))
        others = [asyncio.create_task(pool.run("b", int, seconds=SECONDS)) for _ in range(3)]
        await asyncio.sleep(0)
        others[0].cancel()
        release.set()
        await first
        # The next one has a thread by now, or is about to.
        others[1].cancel()
        assert await others[2] == 0
        assert await pool.run("a", int, seconds=SECONDS) == 0

    asyncio.run(run())


def test_what_takes_too_long_keeps_its_place(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are never more threads than places: what is given up counts until it has ended."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def blobs(*_: object) -> list[object]:
        begun.release()
        release.wait(SECONDS)
        return []

    monkeypatch.setattr(Store, "blobs", blobs)
    half = app._QUICK_THREADS // 2
    with serving(store, quick=SOON) as served, served.client() as api:
        created(api, "s")
        try:
            for _ in range(half):
                refused(api.get(at("s", "content")), 504, "request-timed-out")
            for _ in range(2):
                told = refused(api.get(at("s", "content")), 503, "server-unavailable")
                assert told["retryable"]
            for _ in range(half):
                assert begun.acquire(blocking=False)
            assert not begun.acquire(blocking=False)
        finally:
            release.set()
        answered(api.get(at("s", "content")))


def test_one_principal_cannot_have_all_requests(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many requests of one principal are answered at once, streams among them, and no more."""
    monkeypatch.setattr(guard, "REQUESTS_EACH", 3)
    with serving(store, alive=SOON) as served, served.client(token(store, "alice")) as api:
        created(api, "s")
        with ExitStack() as streams:
            told = [streams.enter_context(followed(api, at("s", "live"))) for _ in range(3)]
            for each in told:
                next(each)
            refused(api.get("/api/sessions"), 503, "server-unavailable")
            with served.client(token(store, "bob")) as other:
                answered(other.get("/api/sessions"))
        # That they are gone is found out soon.
        found = (api.get("/api/sessions").status_code for _ in range(10_000))
        assert 200 in found


def test_bodies_in_memory_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON that is more than may be held for one principal is refused; what ended counts not."""
    monkeypatch.setattr(app, "_MEMORY_BYTES", 2 * MIB)
    with serving(store) as served, served.client() as api:
        created(api, "s")

        def send(size: int) -> Any:
            body = {"events": [{**NOTE, "data": "x" * size}]}
            return api.post(at("s", "events"), json=body)

        refused(send(MIB + MIB // 2), 503, "server-unavailable")
        for _ in range(5):
            answered(send(MIB // 2))


def test_a_budget_is_shared() -> None:
    """Nobody gets more than their share of something, nor all together more than there is."""
    budget = Budget(4, 2)
    for whose in ("a", "a", "b"):
        budget.take(whose)
    for whose, amount in (("a", 1), ("c", 2)):
        with pytest.raises(ServerUnavailable):
            budget.take(whose, amount)
    budget.give_back("a")
    budget.take("c", 2)
    assert budget.taken == 4


def test_a_body_has_to_come_whole(service: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON that comes byte by byte is not waited for longer than a body may take."""
    monkeypatch.setattr(arriving, "BODY_SECONDS", SOON)
    more = (f"Authorization: Bearer {TOKEN}", "Content-Type: application/json")
    with closing(line_to(service)) as line:
        line.sendall(head(service, "POST /api/sessions", *more, "Content-Length: 100") + b"{")
        assert status(line) == 504


def test_logins_of_one_token_end_no_others(store: Store) -> None:
    """Who logs in again and again ends logins of their own, the oldest, and nobody else's."""
    access = Access(Tokens(store), SYSTEM, once=TOKEN)
    text = token(store, "alice")
    owner = access.login(TOKEN)
    cookies = [access.login(text) for _ in range(1_100)]
    assert access.who(None, owner).owner
    for cookie in cookies[-20:]:
        assert access.who(None, cookie).principal == "alice"
    with pytest.raises(NotAuthenticated):
        access.who(None, cookies[0])


# --- what goes wrong ------------------------------------------------------------------------------


def test_what_nobody_thought_of_is_told_in_the_one_form(
    service: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Any other failure is answered as a refusal without details, which the log of the server has.

    The headers of all answers are on it.
    """

    def fail(*_: object) -> None:
        raise RuntimeError("the secret")

    with service.client() as api:
        created(api, "s")
        monkeypatch.setattr(Store, "blobs", fail)
        answer = api.get(at("s", "content"))
    told = refused(answer, 500, "error")
    assert told["message"] == "the server failed"
    assert "secret" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.name == "perdure.http"
    assert "the secret" in (record.exc_text or "")


def test_too_many_fields_are_refused_on_a_page(service: Served) -> None:
    """A page that is asked for with too many fields says so."""
    query = "&".join(f"a{number}=1" for number in range(21))
    with service.client() as api:
        for path in ("/", "/sessions/s"):
            answer = api.get(f"{path}?{query}")
            assert answer.status_code == 400
            assert answer.headers["content-type"].startswith("text/html")


def test_a_login_where_tokens_cannot_be_read_is_told(store: Store, tmp_path: Path) -> None:
    """Where the log of tokens cannot be read, a login says that it failed, and names no path."""
    text = token(store, "alice")
    place = store.namespace("perdure.access").locate("tokens")
    assert place is not None
    Path(place).chmod(0o644)
    with serving(store) as served, served.client(None) as api:
        for answer in (
            api.get("/", params={"token": text}),
            api.post("/login", data={"token": text}),
        ):
            assert answer.status_code == 401
            assert answer.headers["content-type"].startswith("text/html")
            assert "tokens cannot be read" in answer.text
            assert str(tmp_path) not in answer.text


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/", "GET, HEAD"),
        ("POST", "/api/openapi.json", "GET, HEAD"),
        ("PUT", "/login", "POST"),
        ("GET", "/logout", "POST"),
        ("DELETE", "/static/style.css", "GET, HEAD"),
        ("PATCH", "/sessions/s", "GET, HEAD"),
    ],
)
def test_another_method_is_refused_in_the_one_form(
    service: Served, method: str, path: str, allowed: str
) -> None:
    """What is not answered at a path is refused as everywhere, with the methods that are."""
    with service.client() as api:
        answer = api.request(method, path)
        refused(answer, 405, "no-such-operation")
        assert answer.headers["allow"] == allowed


def test_a_head_is_an_answer_without_its_body(service: Served) -> None:
    """HEAD is answered as GET, without a body; where a body is made while it is sent, refused."""
    with service.client() as api:
        created(api, "s")
        for path in ("/", "/sessions/s", "/api/sessions", at("s"), "/api/openapi.json"):
            there, asked = api.get(path), api.head(path)
            assert (asked.status_code, asked.content) == (200, b"")
            assert asked.headers["content-type"] == there.headers["content-type"]
        assert api.head(at("nobody")).status_code == 404
        for path in (at("s", "log"), at("s", "live")):
            assert api.head(path).status_code == 405


def test_a_sweep_that_fails_is_followed_by_the_next(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where closing what is due fails, whatever way, it is tried again."""
    monkeypatch.setattr(app, "_SWEEP_SECONDS", 0.01)
    again = threading.Event()
    begun: list[int] = []

    def sweep(_self: Writers) -> None:
        begun.append(1)
        if len(begun) > 1:
            again.set()
        raise RuntimeError("the sweep")

    monkeypatch.setattr(Writers, "sweep", sweep)
    with serving(store):
        assert again.wait(SECONDS)


def test_an_end_with_a_request_under_way_is_quiet(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is still under way when the time to end is over is told so, and is no failure."""
    monkeypatch.setattr(running, "_DRAIN_SECONDS", SOON)
    more = (f"Authorization: Bearer {TOKEN}", "Content-Length: 100", "Expect: 100-continue")
    with ExitStack() as lines:
        with serving(store) as served:
            with served.client() as api:
                created(api, "s")
            line = lines.enter_context(closing(line_to(served)))
            line.sendall(head(served, f"POST {at('s', 'content')}", *more))
            assert status(line) == 100
        assert status(line) == 503
    assert not [each for each in caplog.records if "Exception" in each.getMessage()]


def test_an_answer_that_has_begun_is_cut_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer nobody reads to its end is cut off when the server ends, and is no failure."""
    monkeypatch.setattr(running, "_DRAIN_SECONDS", SOON)
    with store.create("s") as session:
        session.append("note", 1)
        digest = session.put_blob(bytes(32 * MIB))
    with ExitStack() as lines:
        with serving(store) as served:
            line = lines.enter_context(closing(line_to(served)))
            asked = f"GET {at('s', 'content', digest)}"
            line.sendall(head(served, asked, f"Authorization: Bearer {TOKEN}"))
            assert status(line) == 200
        found = 0
        with suppress(ConnectionError):
            while part := line.recv(MIB):
                found += len(part)
        assert found < 32 * MIB
    said = [each.getMessage() for each in caplog.records]
    assert not [each for each in said if "Exception" in each or "ASGI" in each]


def test_who_comes_while_the_server_ends_is_sent_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is ending answers nothing more, whatever is asked: come again later."""
    services: list[app.Service] = []
    before = app.Service.__init__

    def made(self: app.Service, *given: Any, **more: Any) -> None:
        before(self, *given, **more)
        services.append(self)

    monkeypatch.setattr(app.Service, "__init__", made)
    with serving(store) as served, served.client() as api:
        answered(api.get("/api/health"))
        services[0].stopping = True
        for path in ("/", "/api/health", "/api/sessions"):
            refused(api.get(path), 503, "server-unavailable")


# --- streams --------------------------------------------------------------------------------------


def test_a_stream_ends_with_its_token(store: Store) -> None:
    """Where the token of who follows a session is revoked, the stream says so and ends."""
    made, text = Tokens(store).create("alice", principal="alice")
    with serving(store, alive=SOON) as served, served.client(text) as api:
        created(api, "s")
        with followed(api, at("s", "live")) as told:
            next(told)
            Tokens(store).revoke(made.id)
            (last,) = told
    assert last.kind == "problem"
    assert last.data["error"]["code"] == "not-authenticated"


def test_a_place_ahead_of_the_log_is_refused(service: Served) -> None:
    """Who goes on behind an event that is not there learns it, and misses nothing silently."""
    with service.client() as api:
        created(api, "s")
        headers = {"Last-Event-ID": "999"}
        refused(api.get(at("s", "live"), headers=headers), 400, "invalid-value")
        refused(api.get(at("s", "live"), headers={"Last-Event-ID": "1"}), 400, "invalid-value")
        refused(api.get(at("s", "live"), params={"start": 2}), 400, "invalid-value")
        with followed(api, at("s", "live"), headers={"Last-Event-ID": "0"}) as told:
            with service.client() as other:
                answered(other.post(at("s", "events"), json={"events": [NOTE]}))
            assert next(told).data["seq"] == 1


def elsewhere(tmp_path: Path) -> None:
    with perdure.open(tmp_path / "store", index=False) as other:
        other.append("s", [{**NOTE, "data": "elsewhere"}])


@pytest.mark.parametrize("fails", [False, True])
def test_what_comes_before_the_first_look_is_told(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, fails: bool
) -> None:
    """What another process appends before the first look at a session, or while looks fail, comes.

    It is not left to the next sign of life.
    """
    appended = threading.Event()
    looks: list[int] = []
    before: Callable[..., str] = following._revision

    def revision(place: Any) -> str:
        looks.append(1)
        assert appended.wait(SECONDS)
        if fails and len(looks) == 1:
            raise RuntimeError("the look")
        return before(place)

    monkeypatch.setattr(following, "_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(following, "_revision", revision)
    with store.create("s") as session:
        session.append("note", 1)
    with (
        serving(store, alive=10 * SECONDS) as served,
        served.client() as api,
        followed(api, at("s", "live")) as told,
    ):
        assert next(told).data["seq"] == 0
        elsewhere(tmp_path)
        appended.set()
        assert next(told).data["data"] == "elsewhere"
        elsewhere(tmp_path)
        assert next(told).data["seq"] == 2


def test_who_follows_messages_is_woken_by_a_post(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that is posted here is told at once, and not by the next look."""
    looked = threading.Event()
    before: Callable[..., str] = following._revision

    def revision(place: Any) -> str:
        looked.set()
        return before(place)

    monkeypatch.setattr(following, "POLL_SECONDS", 10 * SECONDS)
    monkeypatch.setattr(following, "_revision", revision)
    with (
        serving(store, alive=10 * SECONDS) as served,
        served.client(token(store, "alice")) as api,
    ):
        told = answered(api.post("/api/conversations", json={"request": "r"}), 201)
        place = f"/api/conversations/{told['conversation']}"
        with followed(api, f"{place}/live") as stream, served.client(token(store, "alice")) as one:
            assert looked.wait(SECONDS)
            for number in range(2):
                message = {"request": f"m{number}", "content": f"{number}"}
                answered(one.post(f"{place}/messages", json=message), 202)
                (found,) = next(stream).data["messages"]
                assert found["request"] == f"m{number}"


def test_an_empty_part_ends_a_step() -> None:
    """Who makes an answer can be stopped at each empty part, though nothing is sent for it."""
    made: list[int] = []

    def parts() -> Iterator[bytes]:
        for number in range(5):
            made.append(number)
            yield b""
        yield b"end"

    async def run() -> None:
        threads = Threads(Pool(2), None, SECONDS)
        answer = Streamed(parts(), media="text/plain", headers={}, threads=threads)
        await answer.begin()
        assert made == [0]
        assert [part async for part in answer.body_iterator] == [b"end"]
        assert made == [*range(5)]

    asyncio.run(run())


def test_the_first_part_has_its_time() -> None:
    """An answer that does not begin in time is given up; its maker is ended by the last thread."""
    release, ended = threading.Event(), threading.Event()

    def parts() -> Generator[bytes]:
        try:
            release.wait(SECONDS)
            yield b""
            yield b"late"
        finally:
            ended.set()

    async def run() -> None:
        threads = Threads(Pool(2), None, 0.01)
        made = parts()
        answer = Streamed(made, media="text/plain", headers={}, threads=threads)
        with pytest.raises(RequestTimedOut):
            await answer.begin()
        release.set()
        assert await asyncio.to_thread(ended.wait, SECONDS)
        # It was not the end of the last name for it.
        made.close()

    asyncio.run(run())


# --- pages of others ------------------------------------------------------------------------------


@pytest.mark.parametrize("foreign", ["cross-site", "same-site", "made-up"])
@pytest.mark.parametrize(
    ("first", "mode", "dest", "through"),
    [
        ("GET /", "navigate", "document", True),
        ("GET /sessions/s", "navigate", "document", True),
        ("GET /", "navigate", "iframe", False),
        ("GET /", "no-cors", "image", False),
        ("GET /static/style.css", "no-cors", "style", False),
        ("GET /api/sessions?full_rescan=true", "navigate", "document", False),
        ("GET /api/sessions?refresh=true", "no-cors", "image", False),
        ("POST /login", "navigate", "document", False),
    ],
)
def test_pages_of_other_sites_may_link_to_pages(
    service: Served, foreign: str, first: str, mode: str, dest: str, *, through: bool
) -> None:
    """What a page of another site has a browser ask is refused, but for a link that is followed."""
    method, _, path = first.partition(" ")
    told = {"Sec-Fetch-Site": foreign, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
    with service.client() as api:
        created(api, "s")
        answer = api.request(method, path, headers=told)
        if through:
            assert answer.status_code == 200
        else:
            refused(answer, 403, "not-allowed")
        for own in ("same-origin", "none"):
            answer = api.request(method, path, headers={**told, "Sec-Fetch-Site": own})
            assert answer.status_code in (200, 401)


def test_two_servers_on_one_host_have_cookies_of_their_own(tmp_path: Path) -> None:
    """A login at one server ends none at another one of the same host."""
    with (
        perdure.open(tmp_path / "a") as first,
        perdure.open(tmp_path / "b") as second,
        serving(first) as one,
        serving(second) as other,
        one.client(None) as api,
    ):
        for served in (one, other):
            assert api.get(f"{served.url}/", params={"token": TOKEN}).status_code == 303
        for served in (one, other):
            assert api.get(f"{served.url}/").status_code == 200


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_cookie_that_came_by_https_stays_there(
    service: Served, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """A cookie is for https alone where it was got that way, and what a proxy claims counts not."""
    before = running._Protocol.connection_made

    def connection_made(self: Any, transport: Any) -> None:
        before(self, transport)
        self.scheme = scheme

    monkeypatch.setattr(running._Protocol, "connection_made", connection_made)
    with service.client(None) as api:
        headers = {"X-Forwarded-Proto": "https"}
        answer = api.get("/", params={"token": TOKEN}, headers=headers)
    assert ("Secure" in answer.headers["set-cookie"]) == (scheme == "https")


def test_a_body_in_crumbs_is_refused(store: Store) -> None:
    """Many parts of a byte each cost what many pages would: who sends them is cut off."""
    with (
        serving(store) as served,
        socket.create_connection(("127.0.0.1", served.address.port), timeout=SECONDS) as line,
    ):
        head = f"POST /login HTTP/1.1\r\nHost: 127.0.0.1:{served.address.port}\r\n"
        line.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\n \r\n" * 2_000)
        found = b""
        with suppress(ConnectionResetError):
            while part := line.recv(65_536):
                found += part
        assert not found or found.split(b" ", 2)[1][:1] == b"4"
        with served.client() as api:
            assert api.get("/api/health").status_code == 200


def test_a_body_of_many_values_is_refused(store: Store) -> None:
    """JSON that would take more memory than anybody may have is refused before it is read."""
    with serving(store) as served, served.client() as api:
        data = b"[" + b"{}," * 6_000_000 + b"{}]"
        body = b'{"events":[{"type":"note","data":' + data + b"}]}"
        told = api.post("/api/sessions", content=body, headers={"Content-Type": "application/json"})
        assert (told.status_code, told.json()["error"]["code"]) == (413, "request-too-large")


def test_names_of_parameters_are_shown_and_never_obeyed(store: Store) -> None:
    """What stands for no parameter is named in a form that no terminal obeys, and is no failure."""
    with serving(store) as served, served.client() as api:
        for query in (
            "limit=%ED%A0%80",
            "%ED%A0%80=1",
            "sort=%ED%A0%80",
            "%1B%5B31m=null",
            "%E2%80%AEabc=1",
            "%0D%0AX=1&%0D%0AX=2",
            "%00=1",
        ):
            told = api.get(f"/api/sessions?{query}")
            assert told.status_code == 400, query
            assert not re.search("[\x00-\x1f\u202e\ud800]", told.json()["error"]["message"])


def test_tokens_that_cannot_be_read_are_nobodys_sessions(store: Store) -> None:
    """Where the log of tokens is damaged or gone, that is what is said, of no session."""
    _, text = Tokens(store).create("a", principal=None)
    place = store.namespace("perdure.access").locate("tokens")
    assert place is not None
    with serving(store) as served, served.client(text) as api:
        assert api.get("/api/sessions").status_code == 200
        raw = Path(place).read_bytes()
        Path(place).write_bytes(raw[: len(raw) // 2])
        told = api.get("/api/sessions/x")
        assert (told.status_code, told.json()["error"]["code"]) == (401, "not-authenticated")
        assert "tokens cannot be read" in told.json()["error"]["message"]
