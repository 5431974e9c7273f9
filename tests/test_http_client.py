"""A store behind a URL does what one in a folder does: over real sockets, against the server."""

import os
import random
import re
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.aio
from perdure import Event, Inspection, Session, Store
from perdure.cli.exits import Exit
from perdure.conversations import Conversations
from perdure.errors import (
    ContentExpired,
    EffectFailed,
    InvalidValue,
    KeyConflict,
    NotAuthenticated,
    NotOffered,
    ServerUnavailable,
    SessionBusy,
    SessionClosed,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StoreClosed,
)
from perdure.http.client import RemoteSession, RemoteStore
from perdure.http.client.asking import Asking
from perdure.http.client.inspection import RemoteInspection
from perdure.http.client.links import Stream
from perdure.http.client.refused import Refused
from perdure.runtime import Runtime
from tests.command_line import Line
from tests.serving import TOKEN, Served, process, serving
from tests.support import scaled
from tests.test_hostile_ids import IDS

ROOT = Path(__file__).parent.parent


class Standing(Runtime):
    """A clock that stands, and ids that are counted for each size by itself.

    What a client draws besides (names of leases, pauses) has other sizes than what it stores.
    """

    def __init__(self) -> None:
        self.drawn: dict[int, int] = {}

    def now_ms(self) -> int:
        return 1_800_000_000_000

    def token(self, size: int = 8) -> str:
        self.drawn[size] = self.drawn.get(size, 0) + 1
        return f"{self.drawn[size]:0{size * 2}x}"

    def session_id(self) -> str:
        return f"session-{self.token(5)}"


@pytest.fixture
def inner(tmp_path: Path) -> Iterator[Store]:
    """The store that is served."""
    with perdure.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def served(inner: Store) -> Iterator[Served]:
    with serving(inner) as service:
        yield service


@pytest.fixture
def store(served: Served) -> Iterator[Store]:
    """Its client."""
    with perdure.open(served.url, token=TOKEN, timeout=10) as opened:
        yield opened


# --- the same program -----------------------------------------------------------------------------


def one_of_everything(store: Store) -> list[Any]:
    """A program that uses what a store offers, and says what it was told."""
    told: list[Any] = []
    with store.create(cwd="/srv", config={"big": 2**90, "odd": "\ud800"}, preset="p") as session:
        told += [session.id, session.append("note", {"n": 1}, agent="a\ud800", time=5)]
        for number in range(40):
            session.buffer("delta", {"text": f"part {number}"})
        session.flush()
        told.append(session.append_many([{"type": "x", "data": [n]} for n in range(3)], at=41))
        told += [
            session.append("k", {"a": 1}, key="once"),
            session.append("k", {"a": 1}, key="once"),
        ]
        with pytest.raises(KeyConflict) as conflict:
            session.append("k", {"a": 2}, key="once")
        told.append(conflict.value.seq)
        digest = session.put_blob([b"some ", b"content"], pinned=True)
        session.save_artifact("plots/a.txt", b"artifact", "text/plain")
        with session.turn("t1") as turn:
            turn.user("what does the log say?")
            with turn.step() as step:
                step.request({"model": "m"})
                step.delta("Let ")
                call: dict[str, Any] = {"id": "c1", "name": "bash", "arguments": {"cmd": "ls"}}
                step.message(
                    [{"type": "text", "text": "Let me see."}, {"type": "tool-call", **call}]
                )
                step.call(**call)
                step.result("c1", "nothing")
        session.set_state("plan", ["a"])
        session.set_title("A title")
        told += [session.once("effect", lambda: {"v": 1}), session.once("effect", lambda: None)]
        with pytest.raises(ZeroDivisionError):
            session.once("bad", lambda: 1 // 0)
        with pytest.raises(EffectFailed):
            session.once("bad", lambda: 1)
        job = session.start_job("j1", kind="build")
        session.end_job("j1", result=3)
        session.send("c", "hello", sender="me")
        session.set_trigger("t1", "clock", state={"at": 1})
        told += [job, session.rewind(None), session.messages(), session.branches()]
        told += [session.state.as_dict(), [*session.scrollback(size=10)], session.position]
        with session.subagent("helper", session_id="child", task="look") as child:
            child.append("note", {"by": "child"})
        session.end_subagent("child", result="seen")
        told += [session.position, child.position, child.header.as_dict()]
    id = session.id
    found = store.inspect(id)
    told += [found.position, found.status, found.header, found.messages(), found.branches()]
    told += [found.problems, found.closers, found.damaged, found.later_count, found.expired]
    told += [[*found.events], found.state.as_dict(), found.verified, found.understanding]
    told += [[*store.read_from(id)], [*store.read_from(id, 44, ["x", "k"])], [*store.raw(id)]]
    told += [[*store.raw(id, 10)], store.blob(id, digest), [b.digest for b in store.blobs(id)]]
    told += [store.artifacts(id), b"".join(store.open_artifact(id, "plots/a.txt"))]
    told += [store.append(id, [{"type": "late", "data": 1}]), store.archive(id)]
    with store.resume("child", presets=[None]) as session:  # type: ignore[list-item]
        told.append(session.resumed)
    with store.fork(id, new_id="fork") as fork:
        told += [fork.header.as_dict(), fork.position, fork.append("own", {})]
    with store.prepare("fork") as prepared, prepared.session() as session:
        told.append(session.append("prepared", {"k": 1}, key="p"))
    told += [store.children(id), store.lineage("fork"), store.descendants(id)]
    told += [sorted(each.id for each in store.sessions().sessions), store.unarchive(id)]
    told += [[each.id for each in store.children_of(id)], store.search("log say").hits]
    told += [store.verify(id).as_dict(), store.stats().sums.events]
    below = store.namespace("n", "é/…")
    with below.create("in") as session:
        session.append("x", {})
    told += [store.namespaces(), [each.id for each in below.list()], below.verify("in").as_dict()]
    told += [sorted((each.id, each.header) for each in store.list())]
    store.delete("fork")
    for refused in (lambda: store.inspect("fork"), lambda: store.create("fork")):
        with pytest.raises((SessionNotFound, SessionExists)) as gone:
            refused()
        told.append((type(gone.value), vars(gone.value)["deleted_at"]))
    store.restore("fork")
    told.append([*store.read_from("fork")])
    return told


def test_a_program_moves_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program is told the same by a folder and by a URL, hashes included."""
    # A run is named by a random id, drawn where a folder draws names of files as well.
    monkeypatch.setattr(Session, "run", property(lambda session: f"run-of-{session.id}"))
    with perdure.open(tmp_path / "here", runtime=Standing()) as store:
        here = one_of_everything(store)
    served_runtime = Standing()
    with (
        perdure.open(tmp_path / "there", runtime=served_runtime) as inner,
        serving(inner) as service,
        perdure.open(service.url, token=TOKEN, runtime=Standing()) as store,
    ):
        there = one_of_everything(store)

    for number, (one, other) in enumerate(zip(here, there, strict=True)):
        assert one == other, number


def test_the_twenty_lines_run_over_http(
    served: Served, inner: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first program of the README runs with a URL in the place of its folder."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    assert 'perdure.open("sessions")' in program
    url = f"{served.url}/?token={TOKEN}"

    file = tmp_path / "program.py"
    file.write_text(program.replace('"sessions"', repr(url)), encoding="utf-8")
    runpy.run_path(str(file))

    assert "['look', 'fix']" in capsys.readouterr().out
    assert inner.inspect("fix-the-test").messages()[-1]["role"] == "tool"


# --- names ----------------------------------------------------------------------------------------

AS_THEY_ARE = {
    "Store": {
        # Made of what a medium over HTTP answers, in this process.
        *("append", "archive", "artifacts", "blob", "blobs", "children", "close", "closed"),
        *("descendants", "extract", "full_rescan", "inspect", "lineage", "list", "list_snapshots"),
        *("load", "locate", "namespaces", "open_artifact", "open_blob", "prepare", "refresh"),
        *("resume", "revision", "search_memory", "sessions", "subscribe", "unarchive", "watch"),
        "writer",
    },
    "Session": {
        # Events are accepted, numbered and linked here as in a folder; a commit is a request.
        *("admit", "append", "append_many", "archive", "branches", "buffer", "clear_trigger"),
        *("close", "closed", "compact_context", "delete_state", "end_job", "end_subagent"),
        *(
            "find",
            "fire_trigger",
            "flush",
            "fold",
            "full",
            "id",
            "keep",
            "messages",
            "needs_reading",
        ),
        *("once", "pin", "position", "put_blob", "record_run", "report_usage", "resumed"),
        *("rewind", "run", "save_artifact", "scrollback", "send", "set_state", "set_title"),
        *("set_trigger", "settle", "settle_effect", "start_job", "state", "subagent", "turn"),
        *("unarchive", "unpin", "update_job"),
    },
    "Inspection": {
        # Read from the stored lines, which are verified here.
        *("events", "expired", "fold", "later", "later_count", "scrollback", "state"),
        *("understanding", "unreadable", "verified"),
    },
}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("kind", "remote"),
    [(Store, RemoteStore), (Session, RemoteSession), (Inspection, RemoteInspection)],
)
def test_every_name_has_its_place(kind: type, remote: type) -> None:
    """Each public name is taken as it is on purpose, made anew, or refused; none is forgotten."""
    kept = {name for name in public(kind) if getattr(remote, name) is getattr(kind, name)}

    assert kept == AS_THEY_ARE[kind.__name__]
    assert public(kind) <= public(remote)


REFUSED: dict[str, Callable[[Store], object]] = {
    "accept": lambda store: store.accept("s"),
    "asides": lambda store: store.asides("s"),
    "open_aside": lambda store: store.open_aside("s", "place"),
    "compact": lambda store: store.compact("s"),
    "copy": lambda store: store.copy("s", store),
    "copy_all": lambda store: store.copy_all(store),
    "embed": lambda store: store.embed("s"),
    "expire": lambda store: store.expire("s", dry_run=True),
    "trash": lambda store: store.trash(),
    "empty_trash": lambda store: store.empty_trash(),
    "forget": lambda store: store.forget("s"),
    "missing": lambda store: store.missing(),
    "evidence": lambda store: store.evidence(),
    "reports": lambda store: store.reports(),
    "repair": lambda store: store.repair("s", dry_run=True),
    "sessions_by_id": lambda store: store.sessions_by_id("s"),
}


def test_what_is_not_offered_says_so(store: Store, tmp_path: Path) -> None:
    """What belongs to the machine of the store raises NotOffered with its name, and sends nothing.

    So does what a call asks beyond the API.
    """
    assert {*REFUSED} == public(Refused)
    for name, call in REFUSED.items():
        with pytest.raises(NotOffered) as refused:
            call(store)
        assert refused.value.operation == name
    with store.create("s") as session:
        session.append("x", {})
        for refuse in (session.compact, session.expire):
            with pytest.raises(NotOffered):
                refuse()
    with perdure.open(tmp_path / "other") as other, pytest.raises(NotOffered):
        other.copy("x", store)
    with pytest.raises(NotOffered):
        Conversations(store)
    source = perdure.Source("claude-code")
    for beyond in (
        lambda: store.create("t", source=source),
        lambda: store.fork("s", cwd=None),
        lambda: store.fork("s", preset="p"),
        lambda: store.fork("s", config=None),
        lambda: store.search("x", agent=[None]),
        lambda: store.sessions(projection={"/a": 1}),
    ):
        with pytest.raises(NotOffered):
            beyond()


def test_every_offered_name_answers(store: Store, tmp_path: Path) -> None:
    """Each method that is offered can be called and answers; none is left half made."""
    with store.create("s") as session:
        digest = session.put_blob(b"content")
        session.save_artifact("a.txt", b"artifact")
        with session.turn("t") as turn:
            turn.user("find these words")
    store.create("other").close()
    answers: dict[str, Any] = {
        "append": store.append("s", [{"type": "x"}])[0].type,
        "archive": store.archive("s").type,
        "unarchive": store.unarchive("s").type,
        "artifacts": [each.name for each in store.artifacts("s")],
        "open_artifact": b"".join(store.open_artifact("s", "a.txt")),
        "extract": store.extract("s", tmp_path / "out").written,
        "blob": store.blob("s", digest),
        "open_blob": b"".join(store.open_blob("s", digest)),
        "blobs": len(store.blobs("s")),
        "children": store.children("s"),
        "children_of": store.children_of("s"),
        "descendants": store.descendants("s"),
        "lineage": store.lineage("s"),
        "list": [each.id for each in store.list()],
        "list_snapshots": [each.id for each in store.list_snapshots()],
        "locate": store.locate("s"),
        "load": store.load("s").id,
        "inspect": store.inspect("s").id,
        "last": store.last(),
        "revision": store.revision("s") == store.revision("s"),
        "subscribe": store.subscribe("s", lambda: None),
        "watch": store.watch("s", store.revision("s"), 0.0) == store.revision("s"),
        "raw": sum(1 for _ in store.raw("s")),
        "read_from": next(store.read_from("s", 1)).seq,
        "refresh": store.refresh().sessions,
        "full_rescan": store.full_rescan().sessions,
        "search": store.search("these words").hits[0].session,
        "search_memory": store.search_memory({"query": "these words"})["results"][0]["session"],
        "sessions": [each.id for each in store.sessions().sessions],
        "stats": store.stats().sums.sessions,
        "verify": store.verify("s").sound,
        "namespace": store.namespace("n").sessions().sessions,
        "namespaces": store.namespaces(),
        "delete": store.delete("s").id,
        "restore": [store.restore("s")],  # type: ignore[func-returns-value]
        "closed": store.closed,
    }
    with store.prepare("s") as prepared:
        answers["prepare"] = prepared.header.id
    with store.writer("s") as session:
        answers["writer"] = session.append("y").seq
    with store.resume("s") as session:
        answers["resume"] = session.resumed is not None
    with store.fork("s") as session:
        answers["fork"] = session.header.parent == perdure.Parent("s", 9)
    store.close()
    more = {"create", "close", "begin_in_child"}

    assert {*answers} | more | {*REFUSED} == public(Store)
    assert answers == {
        "append": "x",
        "archive": "session/archived",
        "unarchive": "session/unarchived",
        "artifacts": ["a.txt"],
        "open_artifact": b"artifact",
        "extract": ("a.txt",),
        "blob": b"content",
        "open_blob": b"content",
        "blobs": 2,
        "children": [],
        "children_of": [],
        "descendants": [],
        "lineage": [],
        "list": ["s"],
        "list_snapshots": ["s"],
        "locate": None,
        "load": "s",
        "inspect": "s",
        "last": "s",
        "revision": True,
        "subscribe": None,
        "watch": True,
        "raw": 9,
        "read_from": 1,
        "refresh": 1,
        "full_rescan": 1,
        "search": "s",
        "search_memory": "s",
        "sessions": ["s"],
        "stats": 1,
        "verify": True,
        "namespace": [],
        "namespaces": [],
        "delete": "s",
        "restore": [None],
        "closed": False,
        "prepare": "s",
        "writer": 8,
        "resume": True,
        "fork": True,
    }


# --- values ---------------------------------------------------------------------------------------


def test_every_id_names_one_session(store: Store, inner: Store) -> None:
    """Hostile ids name sessions of their own over HTTP, each with its own content."""
    for number, id in enumerate(IDS):
        with store.create(id) as session:
            digest = session.put_blob(b"%d" % number)
            session.append("x", {"number": number, "blob": digest})

    for number, id in enumerate(IDS):
        (event,) = store.read_from(id)
        assert (event.data["number"], store.blob(id, event.data["blob"])) == (
            number,
            b"%d" % number,
        )
        assert store.inspect(id).header == inner.inspect(id).header
    assert {each.id for each in inner.list()} == {*IDS}


ODD = {
    "lone": "\ud800 and \udfff",
    "\udc80": ["\ufffd", "\u2028\u2029", "\0\x7f"],
    "big": [2**64, -(2**200), 10**300],
    "floats": [0.1, -0.0, 1e308, 5e-324],
    "deep": [[[[[[]]]]]],
    ',"data":': {',"data":{}}': '"},"data":1}\\'},
    '{"seq":1}': "\r\n\r",
}


def test_what_is_said_survives_exactly(store: Store, inner: Store) -> None:
    """Lone surrogates, big numbers and whatever looks like the form of an answer come through."""
    with store.create("odd", config=ODD, preset='p,"data":') as session:
        said = [
            session.append("x", ODD, agent='a","data":\ud800', turn="t\ufffd", key='k",\udfff'),
            session.append("y", None, ignorable=True, time=-5),
        ]
        with session.turn("t") as turn:
            turn.user("lone \ud800")
        assert session.messages()[0]["content"][0]["text"] == "lone \ud800"
    found = store.inspect("odd")

    assert [*store.read_from("odd")][:2] == said
    assert [event.raw for event in store.read_from("odd")] == [
        event.raw for event in inner.read_from("odd")
    ]
    assert found.header == inner.inspect("odd").header
    assert [*found.events] == [*inner.inspect("odd").events]
    assert found.messages() == inner.inspect("odd").messages()
    assert found.branches() == inner.inspect("odd").branches()
    with store.writer("odd") as session:
        again = session.append("x", ODD, agent='a","data":\ud800', turn="t\ufffd", key='k",\udfff')
    assert again == said[0]


def test_large_commits_are_those_of_a_folder(tmp_path: Path, store: Store) -> None:
    """What needs several requests is stored as the same records as one commit in a folder."""
    large = [{"type": "large", "data": {"n": n, "text": "x" * 300_000}} for n in range(40)]
    many = [{"type": "delta", "data": {"text": f"part {n}"}} for n in range(25_000)]
    runtime = Standing()
    positions = []
    with perdure.open(tmp_path / "here", runtime=runtime) as here:
        for opened in (here, store):
            with opened.create("s", created_at=5) as session:
                for events in (large, many):
                    timed = [{**event, "time": 7} for event in events]
                    assert session.append_many(timed)[-1].seq == session.position.seq
                positions.append(session.position)

    assert positions[0] == positions[1]


@pytest.mark.reads_for_itself(reason="every event of the log is read here")
def test_a_long_session_is_read_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200,000 events no more is taken from the network than what was read, and 1 MiB."""
    # A tenth, but for the full counts: what is counted does not depend on it.
    many = scaled(200_000)
    folder = tmp_path / "store"
    with perdure.open(folder, index=False) as inner, inner.create("long") as session:
        for start in range(0, many, 10_000):
            session.append_many(
                {"type": "note", "data": {"text": "y" * 100, "n": n}}
                for n in range(start, start + 10_000)
            )
    taken = 0
    piece = Stream.piece

    def counted(self: Stream) -> bytes:
        nonlocal taken
        found = piece(self)
        taken += len(found)
        return found

    monkeypatch.setattr(Stream, "piece", counted)
    with process(folder, "--no-token") as served, perdure.open(served.url) as store:
        found = store.inspect("long")
        ways: list[Callable[[], Iterator[Event]]] = [
            lambda: store.read_from("long"),
            lambda: found.events,
        ]
        for begin in ways:
            taken = 0
            ahead = [taken for event in begin() if event.seq % 1_000 == 0]
            assert len(ahead) == many // 1_000
            for number, bytes_taken in enumerate(ahead):
                assert bytes_taken - taken * number * 1_000 // many < 2**20


# --- servers that go, and come back ---------------------------------------------------------------


def filled(folder: Path, events: int, text: str) -> None:
    with perdure.open(folder, index=False) as inner, inner.create("s") as session:
        for start in range(0, events, 1_000):
            session.append_many(
                {"type": "note", "data": {"n": n, "text": text}}
                for n in range(start, start + 1_000)
            )


@pytest.mark.parametrize("how", ["events", "lines"])
def test_a_stream_goes_on_behind_a_restart(tmp_path: Path, how: str) -> None:
    """A server that is killed in the middle of a stream costs no event, and doubles none."""
    folder = tmp_path / "store"
    filled(folder, 8_000, "z" * 2_500)
    seqs: list[int] = []
    with process(folder, "--no-token") as first, perdure.open(first.url) as store:
        reading = store.read_from("s") if how == "events" else store.inspect("s").events
        seqs += [next(reading).seq for _ in range(1_000)]
        first.kill()
        with process(folder, "--no-token", "--port", str(first.port)):
            seqs += [event.seq for event in reading]

    assert seqs == [*range(8_000)]


def test_appends_go_on_behind_restarts(tmp_path: Path) -> None:
    """A server that is killed at any moment of appends loses nothing and doubles nothing."""
    folder = tmp_path / "store"
    dice = random.Random(random.SystemRandom().randrange(2**32))
    port = "0"
    acknowledged: list[int] = []
    store: Store | None = None
    session: Session | None = None
    for _ in range(4):
        with process(folder, "--no-token", "--port", port) as served:
            port = str(served.port)
            if store is None or session is None:
                store = perdure.open(served.url)
                session = store.create("s")
                session.append("n", {"n": -1})
            due = dice.uniform(0.0, 0.4)
            killer = threading.Timer(due, served.kill)
            killer.start()
            restarted = threading.Event()
            appender = threading.Thread(
                target=append_until, args=(session, acknowledged, killer, restarted)
            )
            appender.start()
            killer.join()
            with process(folder, "--no-token", "--port", port) as again:
                restarted.set()
                appender.join(60)
                assert not appender.is_alive()
                again.kill()
    assert store is not None
    assert session is not None
    with process(folder, "--no-token", "--port", port):
        session.close()
        store.close()

    with perdure.open(folder) as inner:
        stored = [event.data["n"] for event in inner.read_from("s")]
        assert inner.verify("s").sound
    assert stored == [-1, *acknowledged]


def append_until(
    session: Session, acknowledged: list[int], killer: threading.Timer, restarted: threading.Event
) -> None:
    """Append while the server is killed, and a little beyond."""
    beyond = 0
    while killer.is_alive() or not restarted.is_set() or beyond < 5:
        beyond += restarted.is_set()
        number = len(acknowledged)
        session.append("n", {"n": number})
        acknowledged.append(number)


def test_a_restart_within_a_turn_ends_the_writer(tmp_path: Path) -> None:
    """A turn that was open when its server died is closed there, and its writer is told so."""
    folder = tmp_path / "store"
    with process(folder, "--no-token") as first, perdure.open(first.url) as store:
        session = store.create("s")
        turn = session.turn("t")
        turn.user("hello")
        session.flush()
        first.kill()
        with process(folder, "--no-token", "--port", str(first.port)):
            with pytest.raises(StaleWriter) as stale:
                session.append("lost", {"n": 1})
            assert [event.type for event in stale.value.lost] == ["lost"]
            with pytest.raises(SessionClosed):
                session.append("x", {})
            with store.writer("s") as session:
                types = [event.type for event in store.read_from("s")]
                assert types[-1] == "turn/end"
                assert "lost" not in types


def test_without_a_server_nothing_is_lost(tmp_path: Path) -> None:
    """What a server never got stays in the buffer, in order, until there is one again."""
    folder = tmp_path / "store"
    with process(folder, "--no-token") as first:
        store = perdure.open(first.url, timeout=0.3)
        session = store.create("s")
        session.append("n", {"n": 0})
        first.kill()
    session.buffer("n", {"n": 1})
    with pytest.raises(ServerUnavailable) as refused:
        session.append("n", {"n": 100})
    session.buffer("n", {"n": 2})
    assert refused.value.retryable
    assert not refused.value.uncertain
    with process(folder, "--no-token", "--port", str(first.port)):
        session.flush()
        assert [event.data["n"] for event in store.read_from("s")] == [0, 1, 2]
        store.close()


# --- leases ---------------------------------------------------------------------------------------


def not_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no lease renewed: as after a machine slept."""

    def renew(_: Asking, *asked: object) -> None:
        raise ServerUnavailable("", f"asleep, asked for {asked}")

    monkeypatch.setattr(Asking, "renew", renew)


def test_a_writer_is_alone_while_it_is_open(inner: Store) -> None:
    """A lease is renewed while its session is open, whoever waits; closing gives it back."""
    with (
        serving(inner, lease=0.5) as service,
        perdure.open(service.url, token=TOKEN) as one,
        perdure.open(service.url, token=TOKEN) as other,
    ):
        session = one.create("s")
        session.append("x", {"by": 1})
        with pytest.raises(SessionBusy):
            other.writer("s", wait=1.5)
        with pytest.raises(SessionBusy):
            other.append("s", [{"type": "x"}])
        session.append("x", {"by": 1})
        session.close()
        with other.writer("s") as second:
            assert second.append("x", {"by": 2}).seq == 2
        with pytest.raises(SessionExists):
            other.create("s")


def test_a_lease_that_was_lost_ends_its_writer(
    inner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody else wrote meanwhile the writer ends, and names what is lost."""
    not_renewed(monkeypatch)
    with (
        serving(inner, lease=0.3) as service,
        perdure.open(service.url, token=TOKEN) as one,
        perdure.open(service.url, token=TOKEN) as other,
    ):
        session = one.create("s")
        session.append("x", {"by": 1})
        with other.writer("s", wait=20) as second:
            second.append("x", {"by": 2})
        session.buffer("x", {"by": 1, "n": 1})
        with pytest.raises(StaleWriter) as stale:
            session.append("x", {"by": 1, "n": 2})
        assert [event.data.get("n") for event in stale.value.lost] == [1, 2]
        assert session.closed
        assert [event.data["by"] for event in one.read_from("s")] == [1, 2]


def test_a_lease_that_nobody_used_meanwhile_is_taken_again(
    inner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody wrote, a writer whose lease ended goes on; where somebody is at it, it ends."""
    not_renewed(monkeypatch)
    with (
        serving(inner, lease=0.3) as service,
        perdure.open(service.url, token=TOKEN) as one,
        perdure.open(service.url, token=TOKEN) as other,
    ):
        session = one.create("s")
        session.append("x", {"n": 0})
        other.writer("s", wait=20).close()
        assert session.append("x", {"n": 1}).seq == 1
        digest = session.put_blob(b"content")
        other.writer("s", wait=20).close()
        assert session.put_blob(b"content") == digest
        third = other.writer("s", wait=20)
        with pytest.raises(StaleWriter):
            session.append("x", {"n": 2})
        third.append("x", {"n": 2})
        assert [event.data["n"] for event in one.read_from("s")] == [0, 1, 2]


def test_a_writer_that_nobody_has_gives_its_session_back(inner: Store) -> None:
    """A session that was dropped without closing it is free when its lease ends."""
    with (
        serving(inner, lease=0.3) as service,
        perdure.open(service.url, token=TOKEN) as one,
        perdure.open(service.url, token=TOKEN) as other,
    ):
        session = one.create("s")
        session.append("x", {"n": 0})
        del session
        with other.writer("s", wait=20) as second:
            assert second.append("x", {"n": 1}).seq == 1


def test_what_is_buffered_comes_by_itself(store: Store, inner: Store) -> None:
    """A buffered event is stored soon though nobody flushes."""
    session = store.create("s")
    session.append("x", {"n": 0})
    session.buffer("x", {"n": 1})
    event = threading.Event()
    for _ in range(100):
        if inner.inspect("s").position.seq == 1:  # type: ignore[union-attr]
            break
        event.wait(0.1)

    assert [each.data["n"] for each in inner.read_from("s")] == [0, 1]


# --- keys -----------------------------------------------------------------------------------------


def test_keys_are_known_to_every_writer(store: Store, inner: Store) -> None:
    """An event with a key is stored once, also by writers that came after and in one batch."""
    with store.create("s") as session:
        first = session.append("pay", {"sum": 3}, key="k", turn="t")
    with store.writer("s") as session:
        new = {"type": "x", "data": 1}
        again = {"type": "pay", "data": {"sum": 3}, "key": "k", "turn": "t"}
        told = session.append_many([new, again, {**again, "key": "l"}, again])
        assert [event.seq for event in told] == [1, 0, 2, 0]
        with pytest.raises(KeyConflict):
            session.append("pay", {"sum": 4}, key="k", turn="t")
        assert session.once("e", lambda: "done") == "done"
    with store.writer("s") as session:
        assert session.once("e", lambda: "again") == "done"

    assert next(inner.read_from("s")) == first
    assert [event.seq for event in inner.read_from("s")] == [*range(5)]


# --- content --------------------------------------------------------------------------------------


def test_content_comes_with_the_first_commit(store: Store, inner: Store) -> None:
    """Content put before the first event is there with it; of a session that is dropped none is."""
    with store.create("s") as session:
        small, large = session.put_blob(b"small"), session.put_blob(iter([b"x" * 2**20] * 20))
        with pytest.raises(SessionNotFound):
            inner.inspect("s")
        session.append("x", {"blobs": [small, large]})
        assert inner.blob("s", small) == b"small"
    with store.create("dropped") as session:
        session.put_blob(b"never referred to")

    assert sum(map(len, store.open_blob("s", large))) == 20 * 2**20
    assert [each.id for each in inner.list()] == ["s"]
    with pytest.raises(ContentExpired):
        store.blob("s", "0" * 64)
    with pytest.raises(InvalidValue):
        store.blob("s", "no digest")


def test_damage_is_told_over_http(inner: Store, store: Store) -> None:
    """A damaged log ends a reader behind the last event that holds, and no writer is given."""
    with inner.create("s") as session:
        for number in range(2_000):
            session.append("x", {"n": number, "text": "q" * 50})
    path = Path(str(inner.locate("s")))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)

    seqs: list[int] = []
    with pytest.raises(SessionDamaged):
        seqs.extend(event.seq for event in store.read_from("s"))
    assert len(seqs) < 2_000
    assert seqs == [event.seq for event in inner.inspect("s").events]
    found = store.inspect("s")
    assert (found.damaged, found.problems) == (True, inner.inspect("s").problems)
    with pytest.raises(SessionDamaged):
        store.writer("s")
    with pytest.raises(SessionDamaged):
        found.fold()
    assert not store.verify("s").sound
    assert store.verify("s") == inner.verify("s")


# --- who asks -------------------------------------------------------------------------------------


OTHER = "o" * 64


def test_a_token_is_taken_from_where_it_is(
    served: Served, inner: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token is that of the call, else of the URL, else of the environment, and shown nowhere."""
    inner.create("s").append("x")
    with perdure.open(served.url) as store, pytest.raises(NotAuthenticated):
        store.inspect("s")
    with perdure.open(f"{served.url}/?token={TOKEN}") as store:
        assert store.inspect("s").id == "s"
        assert TOKEN not in repr(store)
    monkeypatch.setenv("PERDURE_TOKEN", TOKEN)
    with perdure.open(served.url) as store:
        assert store.inspect("s").id == "s"
    with perdure.open(served.url, token=OTHER) as store, pytest.raises(NotAuthenticated) as no:
        store.inspect("s")
    assert OTHER not in str(no.value)
    with perdure.open(f"{served.url}?token=another", token=TOKEN) as store:
        assert store.inspect("s").id == "s"


@pytest.mark.parametrize(
    ("location", "options"),
    [
        ("http://", {}),
        ("http:///path", {}),
        ("https://user:secret@host/", {}),
        ("http://host:port", {}),
        ("http://host:0", {}),
        ("http://host:99999", {}),
        ("http://[::1", {}),
        ("http://host/#part", {}),
        ("http://host/?namespace=a", {}),
        ("http://host/?token=", {}),
        ("http://host/?token=a&token=b", {}),
        ("http://host/?token=a%0d%0ab", {}),
        ("http://h\u00f6st", {}),
        ("http://host /", {}),
        ("http://host", {"token": "a b"}),
        ("http://host", {"token": ""}),
        ("http://host", {"token": "\u00e4"}),
        ("http://host", {"timeout": 0}),
        ("http://host", {"timeout": float("inf")}),
        ("http://host", {"timeout": True}),
        ("http://host", {"encoding": "raw"}),
        ("http://host", {"index": False}),
        ("http://host", {"embedder": "x"}),
        ("http://host", {"embed": True}),
        ("http://host", {"views": [1]}),
        ("memory:", {"token": "t"}),
        ("memory:", {"timeout": 3}),
    ],
)
def test_what_makes_no_sense_is_refused(location: str, options: dict[str, Any]) -> None:
    """A URL that is none, and an option without a meaning, are refused before anything is asked."""
    with pytest.raises(InvalidValue) as refused:
        perdure.open(location, **options)
    assert "secret" not in str(refused.value)


def test_tasks_are_told_that_there_is_no_client() -> None:
    """`perdure.aio.open` refuses a URL, and says what to use."""
    with pytest.raises(InvalidValue, match="asynchronous"):
        perdure.aio.open("http://127.0.0.1:1")


def test_a_closed_store_asks_nothing(served: Served) -> None:
    """A store that was closed is closed for everybody, sessions and namespaces included."""
    store = perdure.open(served.url, token=TOKEN)
    below = store.namespace("n")
    session = below.create("s")
    session.append("x")
    store.close()

    for call in (
        lambda: store.inspect("s"),
        store.sessions,
        lambda: store.read_from("s"),
        lambda: store.create("t"),
        lambda: below.writer("s"),
        lambda: session.append("x"),
    ):
        with pytest.raises(SessionClosed):
            call()
    with pytest.raises(StoreClosed):
        store.stats()


def test_a_forked_child_has_connections_of_its_own(store: Store) -> None:
    """A child neither writes with its parent's writer nor reads from its connections."""
    session = store.create("s")
    session.append("x", {"n": 0})
    pid = os.fork()
    if not pid:
        code = 1
        try:
            read = [event.data["n"] for event in store.read_from("s")]
            try:
                session.append("x", {"n": 1})
            except SessionClosed:
                code = 0 if read == [0] else 2
            session.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert session.append("x", {"n": 2}).seq == 1
    assert [event.data["n"] for event in store.read_from("s")] == [0, 2]


def test_threads_share_a_store(store: Store) -> None:
    """Threads append to one session and read others through one client, and nothing is mixed up."""
    session = store.create("shared")
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with store.create(f"own-{number}") as own:
                for count in range(10):
                    session.append("x", {"by": number, "count": count})
                    own.append("y", {"count": count})
                    seen = [event.data["count"] for event in store.read_from(own.id)]
                    assert seen == [*range(count + 1)]
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    session.close()
    told = [event.data for event in store.read_from("shared")]
    for number in range(6):
        assert [each["count"] for each in told if each["by"] == number] == [*range(10)]


# --- the command line -----------------------------------------------------------------------------


class Far(Line):
    """The command line with a URL."""

    def __init__(self, url: str) -> None:
        self.location = url  # type: ignore[assignment]


def test_commands_take_a_url(
    served: Served, inner: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The commands that read, and those that delete, restore and fork, work behind a URL."""
    monkeypatch.setenv("PERDURE_TOKEN", TOKEN)
    line = Far(served.url)
    with inner.create("s") as session:
        session.save_artifact("a.txt", b"artifact")
        digest = session.put_blob(b"content")
        with session.turn("t") as turn:
            turn.user("find these words")

    assert [each["id"] for each in line.json("ls")["sessions"]] == ["s"]
    assert "s" in line("ls").stdout
    assert line.json("search", "these", "words")["hits"][0]["session"] == "s"
    assert line.json("show", "s")["counts"]["turn/start"] == 1
    assert len(line("log", "s", "--json").stdout.splitlines()) == 5
    assert len(line("tail", "s", "-n", "2", "--json").stdout.splitlines()) == 2
    assert line.json("stats")["sessions"] == 1
    assert line.json("verify")["sound"]
    assert line("verify", "s").exit_code == Exit.OK
    assert line("branches", "s").exit_code == Exit.OK
    assert line("blob", "s", digest).stdout == "content"
    out = str(tmp_path / "out")
    assert line("artifacts", "s", "--extract", out).exit_code == Exit.OK
    assert line("fork", "s", "--id", "f").exit_code == Exit.OK
    assert line("resume", "s").exit_code == Exit.OK
    assert line("rm", "f").exit_code == Exit.OK
    assert line("restore", "f").exit_code == Exit.OK
    assert sorted(each.id for each in inner.list()) == ["f", "s"]
    for refused in (("repair", "s"), ("compact", "s"), ("trash",), ("aside", "s")):
        ended = line(*refused)
        assert ended.exit_code == Exit.USAGE
        assert "is not offered over HTTP" in ended.stderr
    monkeypatch.setenv("PERDURE_TOKEN", "wrong")
    assert line.error("ls")["code"] == "not-authenticated"


# --- what it costs --------------------------------------------------------------------------------


def test_the_client_is_loaded_when_it_is_asked_for() -> None:
    """Importing perdure loads no client; the client loads no server, and nothing of an extra."""
    code = (
        "import sys, perdure\n"
        "loaded = lambda: {name for name in sys.modules if name.startswith('perdure.http')}\n"
        "assert not loaded() and 'http.client' not in sys.modules\n"
        "perdure.open('memory:').close()\n"
        "assert not loaded()\n"
        "perdure.open('http://127.0.0.1:1').close()\n"
        "assert 'perdure.http.client.store' in loaded()\n"
        "assert not [name for name in loaded() if 'server' in name]\n"
        "assert not {'starlette', 'uvicorn', 'anyio', 'httpx', 'asyncio'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
