"""Streams that go on: events and messages as they become durable."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import perdure
from perdure import Store
from perdure.conversations import Conversations
from tests.serving import SECONDS, Served, process, serving
from tests.test_http_api import answered, at, created, refused

NOTE = {"type": "note", "data": 1}


class Told(NamedTuple):
    """One event of a stream."""

    id: str | None
    kind: str
    data: Any


def parts(lines: Iterator[str]) -> Iterator[Told]:
    """The events of a stream, as the specification has them; comments are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        else:
            if "data" in fields:
                yield Told(
                    fields.get("id"), fields.get("event", "message"), json.loads(fields["data"])
                )
            fields = {}


@contextmanager
def following(api: httpx.Client, path: str, **asked: Any) -> Iterator[Iterator[Told]]:
    with api.stream("GET", path, **asked) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield parts(answer.iter_lines())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with perdure.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def service(store: Store) -> Iterator[Served]:
    with serving(store, alive=0.2) as served:
        yield served


@pytest.fixture
def api(service: Served) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def test_a_stream_tells_what_there_is_and_then_what_comes(
    api: httpx.Client, service: Served
) -> None:
    """Each event comes once, in order, under its number, whether it was there before or not."""
    created(api, "s", NOTE, NOTE)
    with service.client() as other, following(other, at("s", "live")) as told:
        first = [next(told) for _ in range(2)]
        for number in range(2, 6):
            answered(api.post(at("s", "events"), json={"events": [{**NOTE, "data": number}]}))
        found = first + [next(told) for _ in range(4)]
    assert [each.id for each in found] == [str(number) for number in range(6)]
    assert {each.kind for each in found} == {"message"}
    assert [each.data["seq"] for each in found] == [*range(6)]


def test_what_another_process_writes_comes_too(api: httpx.Client, tmp_path: Path) -> None:
    """Whoever follows a session gets what is appended past the server as well."""
    created(api, "s")
    # Whoever writes elsewhere waits until the server lets go.
    lease = answered(api.post(at("s", "writer"), json={}))
    api.delete(at("s", "writer"), params={"writer": lease["writer"]})
    with following(api, at("s", "live")) as told:
        assert next(told).data["seq"] == 0
        with perdure.open(tmp_path / "store", index=False) as elsewhere:
            elsewhere.append("s", [{**NOTE, "data": "elsewhere"}])
        assert next(told).data["data"] == "elsewhere"


def test_who_comes_back_goes_on_behind_the_last_one(api: httpx.Client) -> None:
    """With Last-Event-ID, or `start`, a stream leaves out what was received."""
    created(api, "s", *[{**NOTE, "data": number} for number in range(5)])
    with following(api, at("s", "live"), headers={"Last-Event-ID": "2"}) as told:
        assert [next(told).data["seq"] for _ in range(2)] == [3, 4]
    with following(api, at("s", "live"), params={"start": 4}) as told:
        assert next(told).data["seq"] == 4
    asked: dict[str, Any] = {"params": {"start": 0}, "headers": {"Last-Event-ID": "3"}}
    with following(api, at("s", "live"), **asked) as told:
        assert next(told).data["seq"] == 4
    for wrong in ("x", "-1", "1.5", "9" * 30, "²"):
        headers: Any = {"Last-Event-ID": wrong.encode()}
        refused(api.get(at("s", "live"), headers=headers), 400, "invalid-value")


def test_a_stream_may_leave_types_out(api: httpx.Client) -> None:
    """With `type` only such events come, under their own numbers."""
    created(api, "s", NOTE, {"type": "other"}, NOTE)
    with following(api, at("s", "live"), params={"type": "other"}) as told:
        assert next(told).id == "1"


def test_a_quiet_stream_says_that_it_is_alive(api: httpx.Client) -> None:
    """Where nothing happens, comments come, so that nobody thinks that the line is dead."""
    created(api, "s")
    with api.stream("GET", at("s", "live"), params={"start": 1}) as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == ["retry: 1000", "", ": ", ""]


def test_a_session_that_goes_ends_its_stream(api: httpx.Client, service: Served) -> None:
    """Where the session is deleted, the stream says so and ends."""
    created(api, "s")
    with service.client() as other, following(other, at("s", "live")) as told:
        next(told)
        answered(api.delete(at("s")))
        (last,) = told
    assert last.kind == "problem"
    assert last.data["error"]["code"] == "session-not-found"


def test_slow_readers_hold_nobody_up(api: httpx.Client, service: Served, store: Store) -> None:
    """Who does not read keeps neither the writer nor other readers waiting, and misses nothing."""
    with store.create("s") as session:
        session.append_many([{**NOTE, "data": "x" * 10_000} for _ in range(500)])
    with service.client() as slow, slow.stream("GET", at("s", "live")) as unread:
        with following(api, at("s", "live")) as told:
            for number in range(500):
                assert next(told).data["seq"] == number
        with service.client() as writer:
            answered(writer.post(at("s", "events"), json={"events": [NOTE]}))
        late = parts(unread.iter_lines())
        assert [next(late).data["seq"] for _ in range(501)] == [*range(501)]


def test_streams_end_when_the_server_does(store: Store) -> None:
    """A server that is asked to end ends its streams and returns; what was accepted is there."""
    ended = threading.Event()
    with serving(store) as served, served.client() as api:
        created(api, "s")

        def read() -> None:
            with served.client() as other, following(other, at("s", "live")) as told:
                begun.set()
                for _ in told:
                    pass
            ended.set()

        begun = threading.Event()
        thread = threading.Thread(target=read)
        thread.start()
        assert begun.wait(SECONDS)
        served.server.stop()
        assert ended.wait(SECONDS)
        thread.join(SECONDS)
    assert store.verify("s").sound
    assert store.inspect("s").holder is None


def test_a_process_ends_with_what_it_accepted(tmp_path: Path) -> None:
    """SIGTERM ends `perdure serve` in order: streams end, writers are given back, exit code 0."""
    with process(tmp_path) as served:
        with served.client() as api, served.client() as other:
            created(api, "s")
            with following(other, at("s", "live")) as told:
                next(told)
                served.child.terminate()
                assert list(told) == []
        assert served.child.wait(SECONDS) == 0
    with perdure.open(tmp_path) as store:
        assert store.verify("s").sound
        assert store.inspect("s").holder is None


def test_messages_are_followed_by_their_cursor(api: httpx.Client, store: Store) -> None:
    """Messages of a conversation come in pages, and a cursor goes on behind them."""
    asked: Any = {"params": {"principal": "alice"}}
    body = {"request": "r"}
    told = answered(api.post("/api/conversations", json=body, **asked), 201)
    place = f"/api/conversations/{told['conversation']}"
    chat = Conversations(store).of("alice").conversation(told["conversation"])
    for number in range(3):
        message = {"request": f"m{number}", "content": f"message {number}"}
        done = answered(api.post(f"{place}/messages", json=message, **asked), 202)
        assert answered(api.post(f"{place}/messages", json=message, **asked), 202) == {
            **done,
            "replayed": True,
        }
    with following(api, f"{place}/live", **asked) as stream:
        page = next(stream)
        assert [each["request"] for each in page.data["messages"]] == ["m0", "m1", "m2"]
        with chat.turn() as turn:
            taken = turn.take()
            turn.reply("answer", "done")
        assert len(taken) == 3
        seen = next(stream)
    assert seen.data["messages"][-1]["content"] == [{"type": "text", "text": "done"}]
    headers = {"Last-Event-ID": page.id or ""}
    with following(api, f"{place}/live", headers=headers, **asked) as stream:
        assert next(stream).data["messages"][0]["role"] == "assistant"
    headers = {"Last-Event-ID": "x"}
    refused(api.get(f"{place}/live", headers=headers, **asked), 400, "invalid-value")
