"""The service as a process: killed in the middle of everything, attacked, and under load."""

import json
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from benchmarks.serving import MEMORY_MIB, SLOPE_MIB, grown, loaded, slope, stored
from perdure.conversations import Conversation, Conversations
from perdure.http.operations import OPERATIONS
from perdure.http.paths import segment_of
from perdure.importers import import_sessions
from tests.proof.summary import summarise
from tests.serving import SECONDS, Process, process
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

ROUNDS = scaled(50)
CLIENTS = 4
PHASES = "examples,coverage,fuzzing" if SOAK else "fuzzing"
SHARED = ("shared", "plain")
"""Sessions of both encodings."""

LOAD_SECONDS = 600.0 if SOAK else 4.0


class Client:
    """Makes requests, one after the other, with ids of its own; what is not answered again.

    Attributes:
        acknowledged: what was answered, by the id of the request.
        unanswered: how many requests were under way when the server was killed.
        failures: answers that there should not be.

    """

    def __init__(self, number: int, conversation: str) -> None:
        self.number = number
        self.conversation = conversation
        self.next = 0
        self.acknowledged: dict[str, Any] = {}
        self.unanswered = 0
        self.failures: list[str] = []

    def ask(self, api: httpx.Client) -> None:
        """One request: events of a session that all share, a message, or a session."""
        name = f"c{self.number}-{self.next}"
        events = [{"type": "note", "data": f"{name}.{n}"} for n in range(3)]
        body: Any = {"events": events, "request": name}
        kind = self.next % 4
        if kind == 3:
            found = self._done(api.post("/api/sessions", json=body), 201)["session"]
        elif kind == 2:
            body = {"request": name, "content": f"message {name}"}
            path = f"/api/conversations/{self.conversation}/messages?principal=p{self.number}"
            found = self._done(api.post(path, json=body), 202)["seq"]
        else:
            path = f"/api/sessions/{SHARED[kind]}/events"
            found = self._done(api.post(path, json=body), 200)["seqs"]
        self.acknowledged[name] = found
        self.next += 1

    def _done(self, answer: httpx.Response, status: int) -> Any:
        if answer.status_code != status:
            self.failures.append(answer.text)
        return answer.json()

    def run(self, served: Process, told: Callable[[], None]) -> None:
        """Ask until the server is gone."""
        with served.client() as api:
            while not self.failures:
                try:
                    self.ask(api)
                except (httpx.TransportError, json.JSONDecodeError):
                    self.unanswered += 1
                    return
                told()


def follow(served: Process, seen: dict[int, str], start: int) -> int:
    """Follow the shared session until the server is gone; where to go on."""
    path = f"/api/sessions/{SHARED[0]}/live?start={start}"
    try:
        with served.client() as api, api.stream("GET", path) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    event = json.loads(line[5:])
                    assert event["seq"] == start
                    seen[start] = event["data"]
                    start += 1
    except httpx.TransportError:
        pass
    return start


def test_a_killed_server_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    """What was acknowledged is there after a kill, once, and what is sent again changes nothing."""
    draw = random.Random(seed)
    place = tmp_path / "store"
    for name, encoding in zip(SHARED, ("zst", "raw"), strict=True):
        with perdure.open(place, encoding=encoding) as store, store.create(name) as session:
            session.append("note", f"{name} begun")
    with perdure.open(place) as store:
        desk = Conversations(store)
        chats = [desk.of(f"p{n}").create("r").id for n in range(CLIENTS)]
    clients = [Client(number, chat) for number, chat in enumerate(chats)]
    seen: dict[int, str] = {}
    start = 0
    for _ in range(ROUNDS):
        enough = threading.Event()
        left = [draw.randrange(1, 40)]

        def told(left: list[int] = left, enough: threading.Event = enough) -> None:
            left[0] -= 1
            if left[0] <= 0:
                enough.set()

        with process(place) as served, ExitStack() as stack:
            threads = [threading.Thread(target=each.run, args=(served, told)) for each in clients]
            found: list[int] = []
            threads.append(
                threading.Thread(
                    target=lambda s=served, f=found, at=start: f.append(follow(s, seen, at))
                )
            )
            for thread in threads:
                thread.start()
                stack.callback(thread.join, SECONDS)
            assert enough.wait(SECONDS), [each.failures for each in clients]
            served.kill()
        start = found[0]
    assert not [each.failures for each in clients if each.failures]
    assert seen
    counts = {"kills": ROUNDS, "followed": len(seen)}
    counts["requests"] = sum(len(each.acknowledged) for each in clients)
    counts["unanswered"] = sum(each.unanswered for each in clients)
    assert counts["unanswered"] > 0
    _check(place, clients, seen)
    summarise("HTTP, kills", seed, counts)


def _check(place: Path, clients: list[Client], seen: dict[int, str]) -> None:
    with perdure.open(place) as store:
        logs = {name: [*store.read_from(name)] for name in SHARED}
        said = [event.data for log in logs.values() for event in log]
        assert len(said) == len(set(said))
        by_seq = {event.seq: event.data for event in logs[SHARED[0]]}
        assert seen.items() <= by_seq.items()
        sessions = {entry.id for entry in store.list()} - {*SHARED}
        desk = Conversations(store)
        for each in clients:
            messages = _messages(desk.of(f"p{each.number}").conversation(each.conversation))
            for name, told in each.acknowledged.items():
                wanted = [f"{name}.{n}" for n in range(3)]
                kind = int(name.rpartition("-")[2]) % 4
                if kind == 3:
                    sessions.remove(told)
                    assert [event.data for event in store.read_from(told)] == wanted
                elif kind == 2:
                    assert messages.pop(name) == told
                else:
                    assert [logs[SHARED[kind]][seq].data for seq in told] == wanted
            # What was sent last and not answered may be there, and nothing else.
            assert set(messages) <= {f"c{each.number}-{each.next}"}
        assert len(sessions) <= len(clients)
        for entry in store.list():
            assert store.verify(entry.id).sound


def _messages(chat: Conversation) -> dict[str, int]:
    """The numbers of all messages, by their requests; none comes twice."""
    found: dict[str, int] = {}
    cursor = None
    while True:
        page = chat.messages(cursor, limit=7)
        for message in page.messages:
            assert message.request not in found
            found[message.request] = message.seq
        cursor = page.cursor
        if not page.more:
            return found


def test_memory_stays_flat(tmp_path: Path) -> None:
    """Under load of clients, a writer and who follows it, the server's memory does not grow."""
    place = tmp_path / "store"
    stored(place, 1_000 if SOAK else 200)
    with process(place) as served:
        loaded(served, 2, writer=False)
        load = loaded(served, LOAD_SECONDS)
    assert load.failures == []
    assert load.events > 0
    assert load.followed > 0
    if SOAK:
        assert slope(load.memory) <= SLOPE_MIB
    else:
        assert grown(load.memory) <= MEMORY_MIB
    counts = {"requests": len(load.latencies), "events": load.events}
    counts["MiB"] = max(load.memory) // 2**20
    summarise(f"HTTP, {LOAD_SECONDS:g} s of load", 0, counts)


def filled(place: Path) -> str:
    """A store with something of everything to ask for; the configuration that names it."""
    with perdure.open(place) as store:
        with store.create("s1") as session, session.turn("t1") as turn:
            turn.user("look at the harbour")
            digest = session.put_blob(b"content")
            session.append("note", {"blob": digest}, agent="a")
            session.save_artifact("plot.png", b"png", media_type="image/png")
        with store.create("s2", cwd="/srv", config={"n": 2**70}) as session:
            session.append_many([{"type": "note", "data": number} for number in range(50)])
        source = place.parent / "rollout-2025-01-01T00-00-00-aaaaaaaa-bbbb-4ccc-8ddd-eeee.jsonl"
        meta = {"timestamp": "2025-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "i"}}
        source.write_text(json.dumps(meta) + "\n")
        (imported,) = import_sessions(store, "codex", [source]).sources
        chats = [Conversations(store).of("p").create(f"r{number}") for number in range(2)]
        for number in range(5):
            chats[0].post(f"m{number}", "hello")
        with chats[0].turn() as running:
            running.take()
            running.reply("answer", "done")
    sessions = [segment_of(id) for id in ("s1", "s2", imported.session or "")]
    lists = {
        "sessions": sessions,
        "conversations": [chat.id for chat in chats],
        "digests": [digest],
        "artifacts": ["plot.png"],
        "principals": ["p"],
    }
    lines = [f"[dictionaries.{name}]\nvalues = {json.dumps(told)}" for name, told in lists.items()]
    lines.append("[parameters]")
    for place_of, name in (
        ("path.session", "sessions"),
        ("path.conversation", "conversations"),
        ("path.digest", "digests"),
        ("path.artifact", "artifacts"),
        ("query.principal", "principals"),
    ):
        lines.append(f'"{place_of}" = {{ dictionary = "{name}", probability = 0.9 }}')
    return "\n".join(lines) + "\n"


def test_no_request_breaks_the_server(tmp_path: Path, seed: int) -> None:
    """Requests drawn from the OpenAPI document meet no server error and no answer outside it."""
    place = tmp_path / "store"
    config = tmp_path / "schemathesis.toml"
    config.write_text(filled(place))
    command = Path(sys.executable).parent / "schemathesis"
    with process(place) as served:
        done = subprocess.run(
            [
                str(command),
                f"--config-file={config}",
                "run",
                f"{served.url}/api/openapi.json",
                f"--header=Authorization: Bearer {served.token}",
                f"--seed={seed}",
                f"--max-examples={scaled(100)}",
                f"--phases={PHASES}",
                # Who asks for a writer may wait for it for as long as it says.
                "--request-timeout=60",
                "--exclude-path-regex=/live$",
                # A cursor or a moment that is drawn is none, and is refused by what it says.
                "--exclude-checks=positive_data_acceptance",
                "--no-color",
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        with served.client() as api:
            # It goes on, and what was stored before is whole.
            assert api.get("/api/health").status_code == 200
    assert done.returncode == 0, done.stdout[-6_000:]
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases is not None, done.stdout[-2_000:]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None
    assert int(tested[1]) == len([each for each in OPERATIONS if not each.path.endswith("/live")])
    with perdure.open(place) as store:
        assert all(store.verify(entry.id).sound for entry in store.list())
    summarise("HTTP, drawn requests", seed, {"cases": int(cases[1])})
