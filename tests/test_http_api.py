"""The API over a real socket, with a client that is not ours."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from perdure import Store
from perdure.http.paths import segment_of
from perdure.importers import import_sessions
from tests.serving import Served, serving
from tests.test_hostile_ids import IDS

NOTE = {"type": "note", "data": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with perdure.open(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def service(store: Store) -> Iterator[Served]:
    with serving(store, idle=60.0) as served:
        yield served


@pytest.fixture
def api(service: Served) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def at(id: str, *rest: str) -> str:
    return "/".join(("/api/sessions", segment_of(id), *rest))


def answered(answer: httpx.Response, status: int = 200) -> Any:
    """The JSON of an answer of that status."""
    assert answer.status_code == status, answer.text
    return answer.json()


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The error of an answer, in the one form that all have."""
    told = answered(answer, status)
    assert list(told) == ["error"]
    assert set(told["error"]) == {"code", "message", "hint", "retryable", "facts"}
    assert told["error"]["code"] == code
    found: dict[str, Any] = told["error"]
    return found


def created(api: httpx.Client, id: str, *events: dict[str, Any]) -> Any:
    body = {"id": id, "events": [*events] or [NOTE]}
    return answered(api.post("/api/sessions", json=body), 201)


def log(api: httpx.Client, id: str) -> list[Any]:
    """All events of a session, page by page."""
    found: list[Any] = []
    start: int | None = 0
    while start is not None:
        page = answered(api.get(at(id, "events"), params={"start": start, "limit": 3}))
        found += page["events"]
        start = page["next"]
    return found


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [*IDS, "..", ".", "=", "a/b"])
def test_a_session_of_any_id_is_created_listed_and_read(api: httpx.Client, id: str) -> None:
    """Whatever an id is made of, the session is found by it, and no other one is."""
    try:
        id.encode()
    except UnicodeEncodeError:
        pytest.skip("this client sends no lone surrogates")
    answer = api.post("/api/sessions", json={"id": id, "events": [{**NOTE, "data": id}]})
    if answer.status_code == 409:
        pytest.skip("the id was taken before, as part of another list")
    told = answered(answer, 201)
    assert told["session"] == id
    assert answered(api.get(at(id)))["header"]["id"] == id
    assert [event["data"] for event in log(api, id)] == [id]
    listed = answered(api.get("/api/sessions", params={"limit": 1000}))["sessions"]
    assert [each["id"] for each in listed].count(id) == 1


def test_a_session_is_what_was_sent(api: httpx.Client, store: Store) -> None:
    """Header and events are those of the request, and durable when it is answered."""
    header = {"cwd": "/srv/app", "preset": "p", "config": {"a": [2**90]}, "created_at": 5}
    event = {"type": "a/b", "data": {"n": 2**90}, "agent": "x", "turn": "t", "key": "k", "time": 7}
    body = {"id": "sent", "events": [{**event, "ignorable": True}], **header}
    told = answered(api.post("/api/sessions", json=body), 201)
    found = store.inspect("sent")
    assert found.header is not None
    for name, value in header.items():
        assert getattr(found.header, name) == value
    (stored,) = store.read_from("sent")
    assert stored.as_dict() == {"seq": 0, **event, "ignorable": True}
    assert told["position"] == store.inspect("sent").position._asdict()  # type: ignore[union-attr]
    assert (told["first"], told["last"], told["seqs"], told["writer"]) == (0, 0, [0], None)


def test_a_request_that_is_sent_again_changes_nothing(api: httpx.Client) -> None:
    """With a request id, or a number, what was done is answered as it was the first time."""
    body = {"events": [NOTE, NOTE], "request": "create"}
    first = answered(api.post("/api/sessions", json=body), 201)
    assert answered(api.post("/api/sessions", json=body), 201) == first
    id = first["session"]
    more = {"events": [NOTE, {**NOTE, "data": 2}], "request": "append"}
    done = answered(api.post(at(id, "events"), json=more))
    assert done["seqs"] == [2, 3]
    assert answered(api.post(at(id, "events"), json=more)) == done
    placed = {"events": [NOTE, {**NOTE, "data": 3}], "at": 4}
    done = answered(api.post(at(id, "events"), json=placed))
    assert answered(api.post(at(id, "events"), json=placed)) == done
    assert [event["data"] for event in log(api, id)] == [1, 1, 1, 2, 1, 3]


def test_what_was_never_set_up_is_no_failure_of_the_server(api: httpx.Client) -> None:
    """A search by meaning where nothing was embedded conflicts with what there is."""
    answer = api.get("/api/search", params={"query": "words", "mode": "semantic"})
    refused(answer, 409, "embedder-unavailable")


def test_a_request_that_asks_for_something_else_is_refused(api: httpx.Client) -> None:
    """The same request id, number or session with other content is refused, and changes nothing."""
    body = {"id": "else", "events": [NOTE], "request": "r", "created_at": 5}
    answered(api.post("/api/sessions", json=body), 201)
    for other in ({"events": [{**NOTE, "data": 2}]}, {"created_at": 6}, {"cwd": "/x"}):
        refused(api.post("/api/sessions", json={**body, **other}), 409, "session-exists")
    answered(api.post(at("else", "events"), json={"events": [NOTE], "request": "r2"}))
    again = {"events": [{**NOTE, "data": 2}], "request": "r2"}
    refused(api.post(at("else", "events"), json=again), 409, "request-conflict")
    placed = {"events": [{**NOTE, "data": 9}], "at": 1}
    refused(api.post(at("else", "events"), json=placed), 409, "stale-writer")
    placed = {"events": [NOTE], "at": 0, "request": "r3"}
    refused(api.post(at("else", "events"), json=placed), 409, "stale-writer")
    placed = {"events": [NOTE, NOTE], "at": 1}
    refused(api.post(at("else", "events"), json=placed), 409, "stale-writer")
    refused(api.post(at("else", "events"), json={"events": [NOTE], "at": 7}), 400, "invalid-value")
    assert len(log(api, "else")) == 2
    answered(api.post(at("else", "events"), json={"events": [{**NOTE, "data": 3}]}))
    longer = {"events": [NOTE, NOTE], "request": "r2"}
    refused(api.post(at("else", "events"), json=longer), 409, "request-conflict")
    assert len(log(api, "else")) == 3


def test_an_id_is_claimed_once(api: httpx.Client) -> None:
    """Who asks for a session that another request made is told so, whatever else is the same."""
    body = {"id": "claimed", "events": [NOTE]}
    answered(api.post("/api/sessions", json={**body, "request": "a"}), 201)
    answered(api.post("/api/sessions", json={**body, "request": "a"}), 201)
    refused(api.post("/api/sessions", json={**body, "request": "b"}), 409, "session-exists")
    refused(api.post("/api/sessions", json=body), 409, "session-exists")
    created(api, "unnamed")
    refused(
        api.post("/api/sessions", json={"id": "unnamed", "events": [NOTE]}), 409, "session-exists"
    )


def test_a_request_and_a_key_do_not_go_together(api: httpx.Client) -> None:
    """A request id is the key of the first event, which has none of its own then."""
    created(api, "keyed")
    body = {"events": [{**NOTE, "key": "k"}], "request": "r"}
    refused(api.post(at("keyed", "events"), json=body), 400, "invalid-value")
    answered(api.post(at("keyed", "events"), json={**body, "request": "k"}))
    again = answered(api.post(at("keyed", "events"), json={"events": [{**NOTE, "key": "k"}]}))
    assert again["seqs"] == [1]


def test_a_title_is_given_with_a_lease(api: httpx.Client) -> None:
    """Who is alone with a session gives it its title as well."""
    created(api, "titled")
    lease = answered(api.post(at("titled", "writer"), json={}))
    body = {"title": "a", "writer": lease["writer"]}
    answered(api.put(at("titled", "title"), json=body))
    wrong = {"title": "a", "writer": "é"}
    refused(api.put(at("titled", "title"), json=wrong), 409, "stale-writer")


def test_a_request_that_broke_off_is_finished(api: httpx.Client, store: Store) -> None:
    """Where a crash left the beginning of a commit alone, the request sent again adds the rest."""
    created(api, "broken")
    events = [{**NOTE, "data": number} for number in range(3)]
    answered(api.post(at("broken", "events"), json={"events": events[:2], "request": "r"}))
    done = answered(api.post(at("broken", "events"), json={"events": events, "request": "r"}))
    assert done["seqs"] == [1, 2, 3]
    assert (
        answered(api.post(at("broken", "events"), json={"events": events, "request": "r"})) == done
    )
    assert [event.key for event in store.read_from("broken")] == [None, "r", None, None]


def test_pages_of_events_are_filtered(api: httpx.Client) -> None:
    """Type, agent, turn, start, limit and `last` choose events, and `next` leads to all others."""
    events = [
        {"type": ("a", "b")[n % 2], "data": n, "agent": ("x", None)[n % 3 == 0], "turn": f"t{n}"}
        for n in range(10)
    ]
    created(api, "pages", *events)

    def page(**asked: Any) -> tuple[list[int], int | None]:
        told = answered(api.get(at("pages", "events"), params=asked))
        return [event["seq"] for event in told["events"]], told["next"]

    assert page() == ([*range(10)], None)
    assert page(limit=4) == ([0, 1, 2, 3], 4)
    assert page(start=8) == ([8, 9], None)
    assert page(start=10) == ([], None)
    assert page(start=2**53 - 1) == ([], None)
    assert page(last=True, limit=3) == ([7, 8, 9], None)
    assert page(type="a") == ([0, 2, 4, 6, 8], None)
    assert page(type=["a", "b"], limit=2) == ([0, 1], 2)
    assert page(agent="x", type="b") == ([1, 5, 7], None)
    assert page(turn="t5") == ([5], None)
    assert page(type="c") == ([], None)


def test_what_the_session_says_is_answered(api: httpx.Client, store: Store) -> None:
    """Messages, branches, state, title and listing are those that the store gives."""
    with store.create("said") as session, session.turn("t1") as turn:
        turn.user("why?")
        with turn.step() as step:
            step.request({"model": "m"})
            step.message("because")
    assert answered(api.put(at("said", "title"), json={"title": "a name"}))["first"] > 0
    found = store.inspect("said")
    told = answered(api.get(at("said", "messages"), params={"format": "anthropic"}))
    assert told["messages"] == found.messages(format="anthropic")
    told = answered(api.get(at("said", "branches")))
    assert [each["turn"] for each in told["branches"]] == ["t1"]
    told = answered(api.get(at("said"), params={"full": True}))
    assert told["state"]["title"] == "a name"
    assert (told["problems"], told["closers"]) == ([], [])
    (row,) = answered(api.get("/api/sessions", params={"query": "name"}))["sessions"]
    assert (row["id"], row["title"], row["turns"]) == ("said", "a name", 1)
    (hit,) = answered(api.get("/api/search", params={"query": "because"}))["hits"]
    assert (hit["session"], hit["kind"]) == ("said", "assistant")
    refused(api.get(at("said", "messages"), params={"at": "t9"}), 400, "invalid-value")
    refused(api.get(at("said", "messages"), params={"format": "x"}), 400, "invalid-value")


def test_a_word_that_looks_like_nothing_is_looked_for(api: httpx.Client) -> None:
    """`null` is a word like any other where a text is asked for."""
    created(api, "null", {"type": "session/titled", "data": {"title": "the null session"}})
    found = answered(api.get("/api/sessions", params={"query": "null"}))["sessions"]
    assert [each["id"] for each in found] == ["null"]
    assert answered(api.get("/api/sessions", params={"cwd": "null"}))["sessions"] == []


def test_a_fork_a_deletion_and_its_end(api: httpx.Client) -> None:
    """A session is forked, deleted into the trash, brought back, and its id stays taken."""
    created(api, "elder", NOTE, {**NOTE, "data": 2})
    told = answered(api.post(at("elder", "fork"), json={"at": 0, "id": "younger"}), 201)
    assert told["header"]["parent"] == {"session": "elder", "seq": 0}
    assert [event["type"] for event in log(api, "younger")] == ["note", "session/forked"]
    assert answered(api.delete(at("younger")))["session"] == "younger"
    gone = refused(api.get(at("younger")), 404, "session-not-found")
    assert gone["facts"]["deleted_at"] > 0
    body = {"id": "younger", "events": [NOTE]}
    refused(api.post("/api/sessions", json=body), 409, "session-exists")
    assert answered(api.post(at("younger", "restore")))["session"] == "younger"
    assert len(log(api, "younger")) == 2
    refused(api.post(at("younger", "restore")), 409, "session-exists")
    refused(api.delete(at("nobody")), 404, "session-not-found")


def test_a_store_is_listed_and_counted(api: httpx.Client, store: Store) -> None:
    """Limit, cursor, offset, sort and filters choose sessions as `Store.sessions` does."""
    for number in range(5):
        id = f"row{number}"
        created(api, id, {"type": "session/titled", "data": {"title": f"listed {number}"}})
    asked: dict[str, Any] = {"query": "listed", "limit": 2}
    first = answered(api.get("/api/sessions", params=asked))
    second = answered(api.get("/api/sessions", params={**asked, "after": first["cursor"]}))
    third = answered(api.get("/api/sessions", params={**asked, "offset": 4}))
    names = [each["id"] for page in (first, second, third) for each in page["sessions"]]
    assert sorted(names) == [f"row{number}" for number in range(5)]
    assert (third["cursor"], third["coverage"]["sessions"]) == (None, len(store.list()))
    told = answered(
        api.get("/api/sessions", params={"sort": "title", "limit": 1, "status": "paused"})
    )
    assert len(told["sessions"]) <= 1
    for refresh in ("refresh", "full_rescan"):
        answered(api.get("/api/sessions", params={refresh: True, "limit": 1}))
    assert answered(api.get("/api/stats"))["sessions"] == len(store.list())
    refused(api.get("/api/sessions", params={"after": "x"}), 400, "invalid-value")


# --- content and files ----------------------------------------------------------------------------


def test_content_is_stored_and_sent_as_a_file(api: httpx.Client, store: Store) -> None:
    """Bytes go in and come out with their hash, as something to save and never to show."""
    created(api, "content")
    data = b"<script>alert(1)</script>" * 10_000
    told = answered(api.post(at("content", "content"), content=data), 201)
    assert told["digest"] == hashlib.sha256(data).hexdigest()
    answer = api.get(at("content", "content", told["digest"]))
    assert answer.content == data
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    (one,) = answered(api.get(at("content", "content")))["content"]
    assert (one["digest"], one["size"]) == (told["digest"], len(data))
    assert store.blob("content", told["digest"]) == data
    refused(api.get(at("content", "content", "0" * 64)), 410, "content-expired")
    refused(api.get(at("content", "content", "x")), 400, "invalid-value")


@pytest.mark.parametrize("name", ["a.html", "dir/plot ü.png", 'x"; filename=evil.exe', "..\\x.sh"])
def test_an_artifact_is_a_file_to_save(api: httpx.Client, store: Store, name: str) -> None:
    """An artifact is asked for by its name, and saved under the last part of it."""
    id = f"artifact {name}"
    with store.create(id) as session:
        try:
            session.save_artifact(name, b"data", media_type="text/html")
        except perdure.errors.InvalidValue:
            session.append("note")
            pytest.skip("no such name can be saved")
    (told,) = answered(api.get(at(id, "artifacts")))["artifacts"]
    assert (told["name"], told["media_type"]) == (name, "text/html")
    answer = api.get(at(id, "artifacts", segment_of(name)))
    assert (answer.content, answer.headers["content-type"]) == (b"data", "application/octet-stream")
    said = answer.headers["content-disposition"]
    assert said.startswith('attachment; filename="')
    assert said.count('"') == 2
    assert "/" not in said.partition("filename*")[0]
    refused(api.get(at(id, "artifacts", "none")), 400, "invalid-value")


def test_a_source_comes_back_byte_for_byte(api: httpx.Client, store: Store, tmp_path: Path) -> None:
    """Of an import the file is sent as it was found; of other sessions there is none."""
    source = tmp_path / "rollout-2025-01-01T00-00-00-aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee.jsonl"
    meta = {"timestamp": "2025-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "i"}}
    source.write_text(json.dumps(meta) + "\n  not json\n")
    (done,) = import_sessions(store, "codex", [source]).sources
    assert done.session is not None
    answer = api.get(at(done.session, "source"))
    assert answer.content == source.read_bytes()
    assert source.name in answer.headers["content-disposition"]
    refused(api.get(at(done.session, "source"), params={"generation": 9}), 400, "invalid-value")
    created(api, "native")
    refused(api.get(at("native", "source")), 400, "invalid-value")


def test_a_bundle_is_the_session_in_one_file(
    api: httpx.Client, store: Store, tmp_path: Path
) -> None:
    """The tar has a bundle with the same log, its content beside it, and nothing else."""
    with store.create("bundled") as session:
        digest = session.put_blob(b"x" * 300_000)
        session.append("note", {"blob": digest})
    answer = api.get(at("bundled", "bundle"))
    assert answer.headers["content-type"] == "application/x-tar"
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        names = tar.getnames()
        tar.extractall(tmp_path, filter="tar")
    assert names[:2] == ["session.perdure", "session.artifacts"]
    assert all(name.startswith("session.artifacts/") for name in names[2:])
    with perdure.open(tmp_path / "session.perdure") as bundle:
        assert bundle.verify("bundled").position == store.verify("bundled").position
        assert bundle.blob("bundled", digest) == b"x" * 300_000
    refused(api.get(at("nobody", "bundle")), 404, "session-not-found")


# --- reading all of it ----------------------------------------------------------------------------


def test_a_log_is_streamed_line_by_line(api: httpx.Client, store: Store) -> None:
    """All events come as lines of JSON, and the stored lines as they are."""
    with store.create("long") as session:
        session.append_many([{"type": "note", "data": "x" * 500} for _ in range(3_000)])
    lines = api.get(at("long", "log")).text.splitlines()
    assert [json.loads(line)["seq"] for line in lines] == [*range(3_000)]
    lines = api.get(at("long", "log"), params={"start": 2_999, "type": "note"}).text.splitlines()
    assert len(lines) == 1
    raw = api.get(at("long", "raw")).content
    assert raw == b"".join(line for line in store.raw("long") if isinstance(line, bytes))


def test_a_large_page_is_cut_and_goes_on(api: httpx.Client) -> None:
    """A page ends where it gets large, whatever its limit, and the next one goes on there."""
    big = "x" * 3_000_000
    for number in range(4):
        if number == 0:
            created(api, "big", {"type": "note", "data": big})
        else:
            answered(
                api.post(at("big", "events"), json={"events": [{"type": "note", "data": big}]})
            )
    page = answered(api.get(at("big", "events")))
    assert (len(page["events"]), page["next"]) == (2, 2)
    page = answered(api.get(at("big", "events"), params={"start": 2}))
    assert (len(page["events"]), page["next"]) == (2, None)


def test_damage_is_told_with_what_is_intact(tmp_path: Path) -> None:
    """Of a damaged log the verified part is answered with the reason; appends are refused."""
    with perdure.open(tmp_path, encoding="raw") as writing:
        with writing.create("s") as session:
            session.append_many([NOTE, NOTE, NOTE])
        place = writing.locate("s")
    assert place is not None
    raw = bytearray(Path(place).read_bytes())
    raw[raw.rindex(b'"note"') + 1] ^= 1
    Path(place).write_bytes(raw)
    with perdure.open(tmp_path) as store, serving(store) as served, served.client() as api:
        page = answered(api.get(at("s", "events")))
        assert len(page["events"]) == 2
        assert page["next"] is None
        assert page["problem"]
        lines = [json.loads(line) for line in api.get(at("s", "log")).text.splitlines()]
        assert [line.get("seq") for line in lines[:-1]] == [0, 1]
        assert lines[-1]["error"]["code"] == "session-damaged"
        told = answered(api.get(at("s"), params={"full": True}))
        assert told["problems"]
        assert told["state"] is None
        report = answered(api.get(at("s", "verify")))
        assert (report["sound"], report["status"]) == (False, "damaged")
        refused(api.post(at("s", "events"), json={"events": [NOTE]}), 409, "session-damaged")
        (row,) = answered(api.get("/api/sessions"))["sessions"]
        assert row["status"] == "damaged"


# --- writers --------------------------------------------------------------------------------------


def test_a_lease_keeps_others_out(api: httpx.Client) -> None:
    """Who took the right to write is alone, until it is given back; readers do not notice."""
    created(api, "leased")
    lease = answered(api.post(at("leased", "writer"), json={}))
    assert lease["position"]["seq"] == 0
    mine = {"events": [NOTE], "writer": lease["writer"]}
    assert answered(api.post(at("leased", "events"), json=mine))["seqs"] == [1]
    busy = refused(api.post(at("leased", "events"), json={"events": [NOTE]}), 409, "session-busy")
    assert busy["retryable"] is True
    refused(api.post(at("leased", "writer"), json={}), 409, "session-busy")
    refused(api.put(at("leased", "title"), json={"title": "x"}), 409, "session-busy")
    refused(api.delete(at("leased")), 409, "session-busy")
    other = {"events": [NOTE], "writer": "x" * 32}
    refused(api.post(at("leased", "events"), json=other), 409, "stale-writer")
    kept = answered(api.post(at("leased", "writer"), json={"writer": lease["writer"]}))
    assert kept["writer"] == lease["writer"]
    assert len(log(api, "leased")) == 2
    answer = api.delete(at("leased", "writer"), params={"writer": lease["writer"]})
    assert (answer.status_code, answer.content) == (204, b"")
    refused(api.post(at("leased", "events"), json=mine), 409, "stale-writer")
    assert answered(api.post(at("leased", "events"), json={"events": [NOTE]}))["seqs"] == [2]


def test_a_session_that_another_process_writes_is_busy(store: Store, api: httpx.Client) -> None:
    """A session that is held elsewhere is busy, and is written when it is let go."""
    with store.create("held") as session:
        session.append("note")
        refused(api.post(at("held", "events"), json={"events": [NOTE]}), 409, "session-busy")
        assert answered(api.get(at("held")))["status"] == "running"
    assert answered(api.post(at("held", "events"), json={"events": [NOTE]}))["seqs"] == [1]


# --- namespaces -----------------------------------------------------------------------------------


def test_a_namespace_has_its_own_sessions(api: httpx.Client, store: Store) -> None:
    """Sessions of a namespace are seen in it alone, and asking makes none."""
    below = {"namespace": ["a", "b/c"]}
    body = {"id": "inside", "events": [NOTE]}
    answered(api.post("/api/sessions", json=body, params=below), 201)
    assert answered(api.get(at("inside"), params=below))["session"] == "inside"
    refused(api.get(at("inside")), 404, "session-not-found")
    (row,) = answered(api.get("/api/sessions", params=below))["sessions"]
    assert row["id"] == "inside"
    assert "a" in answered(api.get("/api/sessions"))["namespaces"]
    refused(api.get("/api/sessions", params={"namespace": "none"}), 404, "session-not-found")
    assert "none" not in store.namespaces()
    refused(api.get("/api/sessions", params={"namespace": ["a"] * 9}), 400, "invalid-value")


# --- what is asked wrongly ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api", 404, "no-such-operation"),
        ("GET", "/api/sessions/", 404, "no-such-operation"),
        ("GET", "/nothing", 404, "no-such-operation"),
        ("PATCH", "/api/sessions", 405, "no-such-operation"),
        ("POST", "/api/stats", 405, "no-such-operation"),
        ("GET", "/api/sessions/nobody", 404, "session-not-found"),
        ("GET", "/api/sessions/=!", 400, "invalid-value"),
        ("GET", "/api/sessions/%ff", 400, "invalid-value"),
        ("GET", "/api/sessions?limit=0", 400, "invalid-value"),
        ("GET", "/api/sessions?limit=5000000000000000000000", 400, "invalid-value"),
        ("GET", "/api/sessions?limit=5&limit=6", 400, "invalid-value"),
        ("GET", "/api/sessions?sort=x", 400, "invalid-value"),
        ("GET", "/api/sessions?problem=null", 400, "invalid-value"),
        ("GET", "/api/sessions?limit=null", 400, "invalid-value"),
        ("GET", "/api/sessions?sort=null", 400, "invalid-value"),
        ("GET", "/api/sessions?unknown=1", 400, "invalid-value"),
        ("GET", "/api/sessions?since=never", 400, "invalid-value"),
        ("GET", "/api/sessions?cwd=%ff", 400, "invalid-value"),
        ("GET", "/api/search", 400, "invalid-value"),
        ("GET", "/api/search?query=a&k=101", 400, "invalid-value"),
        ("GET", "/api/sessions/nobody/events", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/events?start=-1", 400, "invalid-value"),
        ("GET", "/api/sessions/nobody/live", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/log", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/raw", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/verify", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/content", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/artifacts/x", 404, "session-not-found"),
        ("GET", "/api/sessions/nobody/source", 404, "session-not-found"),
        ("GET", "/api/conversations", 400, "invalid-value"),
        ("GET", "/api/conversations/x?principal=p", 404, "conversation-not-found"),
    ],
)
def test_a_wrong_request_is_refused(
    api: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    """What is not there, or cannot be meant, has an error that says so, in the one form."""
    refused(api.request(method, path), status, code)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"events": []}',
        b'{"events": [{}]}',
        b'{"events": [{"type": "A"}]}',
        b'{"events": [{"type": "note", "data": NaN}]}',
        b'{"events": [{"type": "note", "more": 1}]}',
        b'{"events": [{"type": "note", "time": 1.5}]}',
        b'{"events": [{"type": "note"}], "at": -1}',
        b'{"events": [{"type": "note"}], "at": "0"}',
        b'{"events": [{"type": "note"}], "request": ""}',
        b'{"events": [{"type": "note", "data": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
        b'{"events": [{"type": "note", "data": ' + b"9" * 10_000 + b"}]}",
        b'{"events": [{"type": "note", "data": "\\ud83d\\ude00" }], "x": "\xff"}',
        b"\xff\xfe",
    ],
)
def test_a_wrong_body_is_refused(api: httpx.Client, body: bytes) -> None:
    """JSON that is none, or of another shape, is refused, and nothing was stored."""
    created(api, f"body {hashlib.sha256(body).hexdigest()}")
    id = f"body {hashlib.sha256(body).hexdigest()}"
    headers = {"Content-Type": "application/json"}
    refused(api.post(at(id, "events"), content=body, headers=headers), 400, "invalid-value")
    assert len(log(api, id)) == 1


def test_lone_surrogates_come_through(api: httpx.Client) -> None:
    """What JSON can say of a text is kept exactly, and shown as U+FFFD unless asked exactly."""
    headers = {"Content-Type": "application/json"}
    body = rb'{"id": "lone", "events": [{"type": "note", "data": {"\udfff": "a\ud83d"}}]}'
    answered(api.post("/api/sessions", content=body, headers=headers), 201)
    (event,) = answered(api.get(at("lone", "events")))["events"]
    assert event["data"] == {"\ufffd": "a\ufffd"}
    exact = api.get(at("lone", "events"), params={"exact": True}).content
    assert rb'{"\udfff":"a\ud83d"}' in exact


def test_a_lease_that_is_asked_for_again_is_the_same(api: httpx.Client) -> None:
    """With an id of its own a lease can be asked for again after a lost answer; others wait."""
    body = {"id": "again", "events": [NOTE], "created_at": 5, "writer": True, "lease": "mine"}
    told = answered(api.post("/api/sessions", json=body), 201)
    assert answered(api.post("/api/sessions", json=body), 201) == told
    assert (
        answered(api.post(at("again", "writer"), json={"lease": "mine"}))["writer"]
        == told["writer"]
    )
    refused(api.post(at("again", "writer"), json={"lease": "other"}), 409, "session-busy")
    refused(api.post(at("again", "writer"), json={}), 409, "session-busy")
    refused(api.post("/api/sessions", json={**body, "lease": "other"}), 409, "session-busy")
    api.delete(at("again", "writer"), params={"writer": told["writer"]})
    other = answered(api.post(at("again", "writer"), json={"lease": "other"}))
    assert other["writer"] != told["writer"]
    refused(api.post(at("again", "writer"), json={"lease": "mine"}), 409, "session-busy")


def test_a_name_may_be_no_unicode(api: httpx.Client, store: Store) -> None:
    """A namespace, and a filter, may be any text that an id can be."""
    with store.namespace("\ud800").create("s") as session:
        session.append("note")
    answer = api.get("/api/sessions?namespace=%ED%A0%80")
    assert [each["id"] for each in answered(answer)["sessions"]] == ["s"]
    for path in ("sessions?cwd=%ED%A0%80", "sessions?query=%ED%A0%80", "search?query=%ED%A0%80"):
        answered(api.get(f"/api/{path}"))
    refused(api.get("/api/sessions?namespace=%FF"), 400, "invalid-value")


def test_a_look_at_all_sessions_is_told_of(api: httpx.Client, store: Store) -> None:
    """What a refresh came to is part of its answer, and of no other."""
    asked: dict[str, Any] = {"refresh": True, "limit": 1}
    told = answered(api.get("/api/sessions", params=asked))["refreshed"]
    assert told["sessions"] == len(store.list())
    assert answered(api.get("/api/sessions"))["refreshed"] is None


def test_a_lease_can_be_taken_from_who_has_it(api: httpx.Client) -> None:
    """With force a lease ends whoever has it, who is told so; without, it says when it ends."""
    created(api, "forced")
    lease = answered(api.post(at("forced", "writer"), json={}))
    busy = refused(api.delete(at("forced", "writer")), 409, "session-busy")
    assert re.search(r"ends \d+ s after", busy["hint"])
    assert api.delete(at("forced", "writer"), params={"force": True}).status_code == 204
    body = {"events": [NOTE], "writer": lease["writer"]}
    refused(api.post(at("forced", "events"), json=body), 409, "stale-writer")
    answered(api.post(at("forced", "events"), json={"events": [NOTE]}))
    assert api.delete(at("forced", "writer"), params={"force": True}).status_code == 204
