"""Who may ask, from where, and how much: everything else is refused, and tells nothing."""

import io
import json
import socket
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from perdure import Store
from perdure.errors import InvalidValue
from perdure.http.server.guard import BODY_BYTES_MAX, hosts_of
from perdure.http.server.running import bind, is_loopback
from perdure.http.server.writers import Writers
from perdure.http.tokens import Tokens
from tests.command_line import Line
from tests.serving import SECONDS, TOKEN, Served, process, serving
from tests.test_http_api import answered, at, created, refused

NOTE = {"type": "note", "data": 1}
WORD = "alices-word-7f3a"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def service(store: Store) -> Iterator[Served]:
    with serving(store) as served:
        yield served


def token(store: Store, principal: str | None) -> str:
    return Tokens(store).create(principal or "owner", principal=principal)[1]


# --- who ------------------------------------------------------------------------------------------

PATHS = ["/api/sessions", "/api/stats", "/api/search?query=x", "/api/sessions/s/live", "/api/x"]


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer perdure_0000000000000000_" + "0" * 64,
        "Bearer \xff",
    ],
)
def test_without_a_token_nothing_is_answered(service: Served, header: str | None) -> None:
    """No operation is answered, nor told of, to who has no token that is valid."""
    headers: Any = {} if header is None else {"Authorization": header.encode("latin-1")}
    with service.client(None) as api:
        for path in PATHS[:-1]:
            told = refused(api.get(path, headers=headers), 401, "not-authenticated")
            assert TOKEN not in json.dumps(told)
        answer = api.get("/", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"].startswith("text/html")


def test_health_asks_for_nobody(service: Served) -> None:
    """Whether the server answers is told to anybody who reaches it, and nothing besides."""
    with service.client(None) as api:
        assert set(answered(api.get("/api/health"))) == {"status", "version"}


def test_a_token_ends_when_it_is_revoked(store: Store, service: Served, tmp_path: Path) -> None:
    """A token that was revoked, also by another process, is not taken from the next request on."""
    made, text = Tokens(store).create("t", principal=None)
    with service.client(text) as api:
        answered(api.get("/api/sessions"))
        name = f"perdure_{service.address.port}"
        cookie = api.get("/", params={"token": text}).cookies[name]
        with perdure.open(tmp_path / "store") as elsewhere:
            Tokens(elsewhere).revoke(made.id)
        refused(api.get("/api/sessions"), 401, "not-authenticated")
    with service.client(None, cookies={name: cookie}) as api:
        assert api.get("/").status_code == 401


def test_a_link_is_exchanged_for_a_cookie(service: Served) -> None:
    """The token of a link leaves the address at once; its cookie is for this site and no script."""
    with service.client(None) as api:
        answer = api.get("/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        said = answer.headers["set-cookie"]
        assert "HttpOnly" in said
        assert "SameSite=strict" in said
        assert TOKEN not in said
        assert api.get("/").status_code == 200
        answered(api.get("/api/sessions"))
        assert api.post("/logout").status_code == 303
        assert api.get("/").status_code == 401
        assert api.get("/", params={"token": "wrong"}).status_code == 401
        form = {"token": "wrong"}
        assert api.post("/login", data=form).status_code == 401
        assert api.post("/login", data={"token": TOKEN}).status_code == 303
        assert api.post("/login", content=b"x" * 10_000).status_code == 413


# --- others ---------------------------------------------------------------------------------------


def everything(api: httpx.Client, ids: list[str]) -> Iterator[tuple[str, bytes]]:
    """All that can be asked for reading, about these ids and about all."""
    for path in ("/api/sessions", "/api/stats", "/api/conversations", "/"):
        yield path, api.get(path).content
    for query in (WORD, "alice", "perdure"):
        yield query, api.get("/api/search", params={"query": query}).content
        yield query, api.get("/api/sessions", params={"query": query}).content
        yield query, api.get("/", params={"q": query}).content
    for namespace in ("perdure.principals", "perdure.access", "alice", "main", "control", ".."):
        yield namespace, api.get("/api/sessions", params={"namespace": namespace}).content
        both = {"namespace": ["perdure.principals", "alice"]}
        yield namespace, api.get("/api/sessions", params=both).content
    for id in ids:
        for rest in ("", "/events", "/log", "/raw", "/messages", "/verify", "/content", "/bundle"):
            yield id + rest, api.get(at(id) + rest).content
        yield id, api.get(f"/sessions/{at(id).rpartition('/')[2]}").content
        for rest in ("", "/messages", "/profile"):
            yield (
                id + rest,
                api.get(f"/api/conversations/{at(id).rpartition('/')[2]}{rest}").content,
            )


def test_no_principal_learns_of_another(store: Store, service: Served) -> None:
    """No answer, count or error to one principal differs by what another has, or has any of it."""
    alice, bob = token(store, "alice"), token(store, "bob")
    ids = ["s", "shared", f"{WORD}-id", "../alice", "tokens"]
    with service.client(bob) as api:
        before = dict(everything(api, ids))
    with service.client(alice) as api:
        for id in ("shared", f"{WORD}-id"):
            text = [{"type": "text", "text": WORD}]
            created(api, id, {"type": "user/message", "data": {"content": text}})
        answered(api.post(at("shared", "content"), content=WORD.encode()), 201)
        told = answered(api.post("/api/conversations", json={"request": "r"}), 201)
        chat = told["conversation"]
        message = {"request": "m", "content": WORD}
        answered(api.post(f"/api/conversations/{chat}/messages", json=message), 202)
        assert len(answered(api.get("/api/sessions"))["sessions"]) == 2
    with store.create("the-owners") as session:
        session.append("user/message", {"content": [{"type": "text", "text": WORD}]})
    with service.client(bob) as api:
        after = dict(everything(api, ids))
        after |= dict(everything(api, [chat, "the-owners"]))
        assert answered(api.get("/api/sessions"))["coverage"]["sessions"] == 0
        body = {"id": "shared", "events": [NOTE]}
        answered(api.post("/api/sessions", json=body), 201)
        refused(
            api.post(f"/api/conversations/{chat}/messages", json=message),
            404,
            "conversation-not-found",
        )
        refused(api.delete(f"/api/conversations/{chat}"), 404, "conversation-not-found")
        refused(api.delete(at("the-owners")), 404, "session-not-found")
        asked = {"principal": "alice"}
        refused(api.get("/api/conversations", params=asked), 400, "invalid-value")
        refused(api.get("/api/sessions", params={"full_rescan": True}), 400, "invalid-value")
    assert before == {place: after[place] for place in before}
    # What was asked for is told as not there, by its name.
    assert all(WORD.encode() not in told for place, told in after.items() if WORD not in place)


def test_tokens_are_out_of_reach(store: Store, service: Served) -> None:
    """The namespace of tokens is not served, to the owner neither, for reading nor for writing."""
    token(store, "alice")
    with service.client() as api:
        asked = {"namespace": "perdure.access"}
        for path in ("/api/sessions", at("tokens"), at("tokens", "raw"), "/api/search?query=token"):
            refused(api.get(path, params=asked), 400, "invalid-value")
        body = {"id": "tokens", "events": [{"type": "token/created"}]}
        refused(api.post("/api/sessions", params=asked, json=body), 400, "invalid-value")
        assert "perdure.access" not in answered(api.get("/api/sessions"))["namespaces"]


def test_conversations_are_not_changed_as_sessions(store: Store, service: Served) -> None:
    """The logs of conversations can be read as sessions, and are changed by their own API alone."""
    with service.client(token(store, "alice")) as api:
        chat = answered(api.post("/api/conversations", json={"request": "r"}), 201)["conversation"]
        for part in ("main", "control"):
            asked = {"namespace": part}
            answered(api.get(at(chat, "events"), params=asked))
            body = {"events": [NOTE]}
            refused(api.post(at(chat, "events"), params=asked, json=body), 403, "not-allowed")
            refused(api.delete(at(chat), params=asked), 403, "not-allowed")
            refused(api.post(at(chat, "writer"), params=asked, json={}), 403, "not-allowed")
    with service.client() as api:
        below = {"namespace": ["perdure.principals", "alice", "control"]}
        refused(api.delete(at(chat), params=below), 403, "not-allowed")


def test_others_are_told_no_path(store: Store, tmp_path: Path) -> None:
    """Who is not the owner is told what goes wrong in the storage without a path or a process."""
    alice = token(store, "alice")
    with serving(store) as served, served.client(alice) as api, served.client() as owner:
        created(api, "s")
        lease = answered(api.post(at("s", "writer"), json={}))
        api.delete(at("s", "writer"), params={"writer": lease["writer"]})
        own = store.namespace("perdure.principals", "alice")
        with own.writer("s", wait=SECONDS):
            told = refused(
                api.post(at("s", "events"), json={"events": [NOTE]}), 409, "session-busy"
            )
            assert told["facts"] == {"session": "s"}
            assert answered(api.get(at("s")))["holder"] == {
                "pid": None,
                "host": None,
                "since": None,
            }
            asked: Any = {"namespace": ["perdure.principals", "alice"]}
            assert answered(owner.get(at("s"), params=asked))["holder"]["pid"]
        place = own.locate("s")
        assert place is not None
        Path(place).chmod(0o644)
        told = refused(api.get(at("s")), 409, "unsafe-file")
        assert str(tmp_path) not in json.dumps(told)
        assert str(tmp_path) in json.dumps(
            refused(owner.get(at("s"), params=asked), 409, "unsafe-file")
        )


# --- from where -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1:1",
        "127.0.0.1",
        "localhost",
        "localhost:{port}@evil.example",
        "user@localhost:{port}",
        "0.0.0.0:{port}",
        "",
    ],
)
def test_another_host_is_refused(service: Served, host: str) -> None:
    """A request that names another host, as after a rebound DNS name, is refused, token or not."""
    name = host.replace("{port}", str(service.address.port))
    with service.client() as api:
        for path in ("/api/sessions", "/", "/api/health", "/static/style.css"):
            refused(api.get(path, headers={"Host": name}), 403, "not-allowed")


def test_our_hosts_are_let_through(service: Served) -> None:
    """By each of the names of this machine the server is reached, whatever their case."""
    with service.client() as api:
        for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
            headers = {"Host": f"{name}:{service.address.port}"}
            answered(api.get("/api/sessions", headers=headers))


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://localhost",
        "file://",
        "http://[",
    ],
)
def test_a_page_of_another_site_is_refused(service: Served, origin: str) -> None:
    """A request with the origin of another site is refused, whatever it asks, and no CORS said."""
    with service.client() as api:
        for method in ("GET", "POST", "OPTIONS", "DELETE"):
            answer = api.request(method, "/api/sessions", headers={"Origin": origin})
            refused(answer, 403, "not-allowed")
            assert not [name for name in answer.headers if name.startswith("access-control")]
        own = {"Origin": service.url}
        answered(api.get("/api/sessions", headers=own))


def test_a_form_of_another_kind_is_refused(service: Served) -> None:
    """JSON has to be sent as JSON: what a form can send without being asked changes nothing."""
    body = json.dumps({"id": "s", "events": [NOTE]}).encode()
    with service.client() as api:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            headers = {"Content-Type": kind}
            refused(api.post("/api/sessions", content=body, headers=headers), 400, "invalid-value")
        refused(api.get(at("s")), 404, "session-not-found")
        headers = {"Content-Type": "Application/JSON; charset=utf-8"}
        answered(api.post("/api/sessions", content=body, headers=headers), 201)


# --- paths ----------------------------------------------------------------------------------------


def raw(service: Served, request: bytes, *, ends: bool = False) -> bytes:
    """What comes back for bytes that no client library would send."""
    with socket.create_connection(("127.0.0.1", service.address.port), timeout=SECONDS) as line:
        line.sendall(request)
        if ends:
            line.shutdown(socket.SHUT_WR)
        found = b""
        while part := line.recv(65_536):
            found += part
        return found


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/style.css/../../app.py",
        "/api/sessions/../../etc/passwd",
        "/api/sessions/%2e%2e/%2e%2e/x",
        "/api/sessions/..%2f..%2f..%2fetc%2fpasswd/raw",
        "/api/sessions/s/artifacts/..%2f..%2fstore.json",
        "/api/sessions/s/artifacts/%2fetc%2fpasswd",
        "/api/sessions/s/content/..%2flog.jsonl",
        "/api/sessions/s%00/raw",
        "/api/sessions/s%2fblobs/raw",
        "//etc/passwd",
        "/sessions/..%2f..%2fstore.json",
        "/api/sessions/s/../s/raw",
        "/api//sessions",
        "\\..\\x",
    ],
)
def test_no_path_leads_out(service: Served, path: str) -> None:
    """A path stands for an operation and ids, and never for a file: nothing is found by tricks."""
    with service.client() as api:
        created(api, "s")
    head = f"Host: 127.0.0.1:{service.address.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    answer = raw(service, f"GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in (400, 404), answer
    assert b"root:" not in answer
    assert b'"format"' not in answer


# --- how much -------------------------------------------------------------------------------------


def test_a_request_that_is_too_large_is_refused(service: Served) -> None:
    """A body above the limit is refused by what it says, or when more came, and nothing is kept."""
    with service.client() as api:
        head = f"Host: 127.0.0.1:{service.address.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {BODY_BYTES_MAX + 1}\r\n"
        head += "Connection: close\r\n"
        answer = raw(service, f"POST /api/sessions HTTP/1.1\r\n{head}\r\n".encode())
        assert answer.split(b" ", 2)[1] == b"413"

        def many() -> Iterator[bytes]:
            for _ in range(BODY_BYTES_MAX // 1_000_000 + 2):
                yield b" " * 1_000_000

        headers = {"Content-Type": "application/json"}
        try:
            told = api.post("/api/sessions", content=many(), headers=headers)
        except httpx.TransportError:
            # The line may be cut before all of it was sent.
            return
        refused(told, 413, "request-too-large")


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /api/sessions?query=" + "x" * 70_000,
        "GET /api/sessions/" + "x" * 70_000,
        "GET /api/sessions?" + "&".join(f"agent=a{n}" for n in range(300)),
    ],
)
def test_a_long_line_is_refused(service: Served, request_line: str) -> None:
    """A URL without an end is refused, and the server goes on."""
    head = f"Host: 127.0.0.1:{service.address.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    answer = raw(service, f"{request_line} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    assert answer.split(b" ", 2)[1][:1] == b"4"
    with service.client() as api:
        answered(api.get("/api/sessions"))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x01\x02",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/sessions HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /api/sessions HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_nonsense_is_refused(service: Served, request_bytes: bytes) -> None:
    """What is no request, or two at once, is refused or cut off, and others are served on."""
    answer = raw(service, request_bytes, ends=True)
    assert not answer or answer.split(b" ", 2)[1][:1] == b"4"
    with service.client() as api:
        answered(api.get("/api/sessions"))


def test_what_takes_too_long_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that takes longer than its bound is answered with a retryable error; others go on."""
    release = threading.Event()
    monkeypatch.setattr(Store, "blobs", lambda *_: release.wait(SECONDS) and [])
    with serving(store, quick=0.2) as served, served.client() as api:
        created(api, "s")
        told = refused(api.get(at("s", "content")), 504, "request-timed-out")
        assert told["retryable"]
        answered(api.get(at("s")))
        release.set()


def test_what_may_be_done_is_not_told_to_be_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append that took too long goes on: only one that is known again may be sent again."""
    release = threading.Event()
    monkeypatch.setattr(Writers, "append", lambda *_, **__: release.wait(SECONDS))
    with serving(store, quick=0.2) as served, served.client() as api:
        created(api, "s")
        body: dict[str, Any] = {"events": [NOTE]}
        told = refused(api.post(at("s", "events"), json=body), 504, "request-timed-out")
        assert (told["retryable"], "request" in told["hint"]) == (False, True)
        body |= {"request": "r"}
        told = refused(api.post(at("s", "events"), json=body), 504, "request-timed-out")
        assert told["retryable"] is True
        release.set()


# --- where it listens -----------------------------------------------------------------------------


EVERYWHERE = ".".join("0" * 4)


def test_only_this_machine_is_listened_to_without_tokens(tmp_path: Path) -> None:
    """Other addresses are refused where there is no token, with what to do, and nothing listens."""
    line = Line(tmp_path)
    for host in (EVERYWHERE, "::"):
        told = line.error("serve", "--host", host, "--port", "0")
        assert (told["exit"], told["code"]) == (2, "invalid-value")
        assert "token create" in told["hint"]
    assert line.error("serve", "--host", "no.such.host.invalid", "--port", "0")["exit"] == 2
    with perdure.open(line.location) as store:
        text = token(store, "alice")
    assert line.error("serve", "--host", EVERYWHERE, "--no-token")["exit"] == 2
    with process(line.location, "--host", EVERYWHERE) as served:
        assert "token" not in served.link
        url = f"http://127.0.0.1:{served.port}/api/sessions"
        told = {"Authorization": f"Bearer {text}"}
        for name in ("127.0.0.1", "localhost", "10.1.2.3", "[fe80::1]"):
            answered(httpx.get(url, headers={**told, "Host": f"{name}:{served.port}"}))
        for name in (f"evil.example:{served.port}", "10.1.2.3:1", "10.1.2.3", "10.1.2.3.example"):
            refused(httpx.get(url, headers={**told, "Host": name}), 403, "not-allowed")


def test_without_tokens_each_run_has_its_own(tmp_path: Path) -> None:
    """The link of a run holds for this run; the next one has another token."""
    with process(tmp_path) as first, first.client() as api:
        answered(api.get("/api/sessions"))
    with process(tmp_path) as second:
        with second.client(first.token) as api:
            refused(api.get("/api/sessions"), 401, "not-authenticated")
        with second.client() as api:
            answered(api.get("/api/sessions"))
    with process(tmp_path, "--no-token") as third:
        answered(httpx.get(f"{third.url}/api/sessions"))


def test_a_port_that_is_taken_is_told() -> None:
    """A port in use is an error that names it, and numbers that are none are refused."""
    unavailable = perdure.errors.StorageUnavailable
    with bind("127.0.0.1", 0) as taken, pytest.raises(unavailable, match="in use"):
        bind("127.0.0.1", taken.getsockname()[1])
    for port in (-1, 70_000):
        with pytest.raises(InvalidValue):
            bind("127.0.0.1", port)
    assert is_loopback("localhost")
    assert not is_loopback(EVERYWHERE)


def test_a_host_has_its_names() -> None:
    """The values of Host by which a server is meant are those of its address, with the port."""
    assert hosts_of("127.0.0.1", 80) >= {"127.0.0.1:80", "localhost", "[::1]:80"}
    assert hosts_of("10.0.0.1", 5, ["Box.Example"]) == {
        "10.0.0.1:5",
        "box.example:5",
        "box.example",
    }


# --- what is stored is never run ------------------------------------------------------------------


def test_stored_bytes_are_never_run(service: Served, tmp_path: Path) -> None:
    """A pickle, or an archive, that is stored is bytes: it is read, checked and sent as it is."""
    mark = tmp_path / "run"
    # What pickle.loads would run: os.system("touch …"), protocol 0.
    pickled = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    with tarfile.open(fileobj=(archive := io.BytesIO()), mode="w") as tar:
        outside = tarfile.TarInfo("../../outside")
        outside.size = 4
        tar.addfile(outside, io.BytesIO(b"data"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with service.client() as api:
        for number, data in enumerate((pickled, archive.getvalue())):
            id = f"bytes{number}"
            created(api, id, {"type": "note", "data": {"pickled": data.hex()}})
            digest = answered(api.post(at(id, "content"), content=data), 201)["digest"]
            assert api.get(at(id, "content", digest)).content == data
            for rest in ("", "/events", "/log", "/raw", "/messages", "/verify", "/bundle"):
                assert api.get(at(id) + rest).status_code == 200
            assert api.get(f"/sessions/{id}").status_code == 200
            headers = {"Content-Type": "application/json"}
            refused(api.post("/api/sessions", content=data, headers=headers), 400, "invalid-value")
        answered(api.get("/api/search", params={"query": "pickled"}))
    assert not mark.exists()
    assert not (tmp_path.parent / "outside").exists()
