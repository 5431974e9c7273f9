"""The service as a process: killed in the middle of everything, attacked, and under load."""

import json
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from benchmarks.serving import MEMORY_MIB, grown, loaded, stored
from perdure.conversations import Conversations
from perdure.http.operations import OPERATIONS
from tests.proof.summary import summarise
from tests.serving import SECONDS, Process, process
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

ROUNDS = scaled(50)
CLIENTS = 4
PHASES = "examples,coverage,fuzzing" if SOAK else "fuzzing"
LOAD_SECONDS = 600.0 if SOAK else 6.0


class Client:
    """Posts, one after the other, under request ids of its own; what is not answered again."""

    def __init__(self, number: int, conversation: str) -> None:
        self.number = number
        self.conversation = conversation
        self.next = 0
        self.acknowledged: dict[str, list[int]] = {}
        self.failures: list[str] = []

    def post(self, api: httpx.Client) -> None:
        """One request: events of a session all share, or a message."""
        name = f"c{self.number}-{self.next}"
        if self.next % 3 == 2:
            body: Any = {"request": name, "content": f"message {name}"}
            path = f"/api/conversations/{self.conversation}/messages?principal=p{self.number}"
            seqs = [self._done(api.post(path, json=body), 202)["seq"]]
        else:
            events = [{"type": "note", "data": f"{name}.{n}"} for n in range(3)]
            path = "/api/sessions/shared/events"
            seqs = self._done(api.post(path, json={"events": events, "request": name}), 200)["seqs"]
        self.acknowledged[name] = seqs
        self.next += 1

    def _done(self, answer: httpx.Response, status: int) -> Any:
        if answer.status_code == 409 and answer.json()["error"]["code"] == "session-busy":
            # The writer of the server that was killed is still being found dead.
            raise httpx.ReadError("busy")
        if answer.status_code != status:
            self.failures.append(answer.text)
        return answer.json()

    def run(self, served: Process, ended: threading.Event, told: Callable[[], None]) -> None:
        """Post until the server is gone."""
        with served.client() as api:
            while not ended.is_set() and not self.failures:
                try:
                    self.post(api)
                except (httpx.TransportError, json.JSONDecodeError):
                    if ended.is_set():
                        return
                else:
                    told()


def follow(served: Process, seen: dict[int, str], start: int) -> int:
    """Follow the shared session until the server is gone; where to go on."""
    path = f"/api/sessions/shared/live?start={start}"
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
    with perdure.open(place) as store:
        with store.create("shared") as session:
            session.append("note", "begun")
        desk = Conversations(store)
        chats = [desk.of(f"p{n}").create("r").id for n in range(CLIENTS)]
    clients = [Client(number, chat) for number, chat in enumerate(chats)]
    seen: dict[int, str] = {}
    start = 0
    for _ in range(ROUNDS):
        enough, ended = threading.Event(), threading.Event()
        left = [draw.randrange(1, 40)]

        def told(left: list[int] = left, enough: threading.Event = enough) -> None:
            left[0] -= 1
            if left[0] <= 0:
                enough.set()

        with process(place) as served, ExitStack() as stack:
            threads = [
                threading.Thread(target=each.run, args=(served, ended, told)) for each in clients
            ]
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
            ended.set()
            served.kill()
        start = found[0]
    assert not [each.failures for each in clients if each.failures]
    assert seen
    posts = sum(len(each.acknowledged) for each in clients)
    _check(place, clients, seen)
    summarise("HTTP, kills", seed, {"kills": ROUNDS, "posts": posts, "followed": len(seen)})


def _check(place: Path, clients: list[Client], seen: dict[int, str]) -> None:
    with perdure.open(place) as store:
        log = [event.data for event in store.read_from("shared") if event.type == "note"]
        by_seq = {event.seq: event.data for event in store.read_from("shared")}
        assert len(log) == len(set(log))
        assert seen.items() <= by_seq.items()
        desk = Conversations(store)
        for each in clients:
            chat = desk.of(f"p{each.number}").conversation(each.conversation)
            messages: dict[str, int] = {}
            cursor = None
            while True:
                page = chat.messages(cursor, limit=7)
                messages |= {message.request: message.seq for message in page.messages}
                cursor = page.cursor
                if not page.more:
                    break
            for name, seqs in each.acknowledged.items():
                if int(name.rpartition("-")[2]) % 3 == 2:
                    assert [messages.pop(name)] == seqs
                else:
                    assert [by_seq[seq] for seq in seqs] == [f"{name}.{n}" for n in range(3)]
            # What was sent last and not answered may be there, and nothing else.
            assert set(messages) <= {f"c{each.number}-{each.next}"}
        for entry in store.list():
            assert store.verify(entry.id).sound


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
    assert grown(load.memory) <= MEMORY_MIB
    counts = {"requests": len(load.latencies), "events": load.events}
    counts["MiB"] = max(load.memory) // 2**20
    summarise(f"HTTP, {LOAD_SECONDS:g} s of load", 0, counts)


def test_no_request_breaks_the_server(tmp_path: Path, seed: int) -> None:
    """Requests drawn from the OpenAPI document meet no server error and no answer outside it."""
    command = shutil.which(
        "schemathesis", path=str(Path(perdure.__file__).parents[2] / ".venv/bin")
    )
    assert command is not None
    with process(tmp_path / "store") as served:
        done = subprocess.run(
            [
                command,
                "run",
                f"{served.url}/api/openapi.json",
                f"--header=Authorization: Bearer {served.token}",
                f"--seed={seed}",
                f"--max-examples={scaled(100)}",
                f"--phases={PHASES}",
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
    assert done.returncode == 0, done.stdout[-6_000:]
    cases = re.search(r"(\d+) generated, (\d+) passed", done.stdout)
    assert cases is not None, done.stdout[-2_000:]
    assert cases[1] == cases[2]
    tested = re.search(r"Tested: (\d+)", done.stdout)
    assert tested is not None
    assert int(tested[1]) == len([each for each in OPERATIONS if not each.path.endswith("/live")])
    summarise("HTTP, drawn requests", seed, {"cases": int(cases[1])})
