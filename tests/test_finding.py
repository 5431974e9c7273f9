"""Listing and search as callers see them: what is found, in which order, and what is left out."""

import datetime as dt
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InvalidValue
from perdure.model.event import Event
from perdure.views.view import History, Rows
from tests.media import KEPT, open_medium
from tests.test_checkpoints import settled


@pytest.fixture(params=KEPT)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path) as made:
        yield made


def say(session: perdure.Session, text: str, **options: Any) -> Event:
    data = {"content": [{"type": "text", "text": text}]}
    return session.append("user/message", data, **options)


def ids(listing: perdure.Listing) -> list[str]:
    return [each.id for each in listing.sessions]


def fill(store: perdure.Store, many: int) -> None:
    for number in range(many):
        with store.create(f"s{number:02}", created_at=number) as session:
            say(session, f"prompt {number} of many", time=1000 + number)


# --- listing --------------------------------------------------------------------------------------


def test_a_listing_says_what_a_session_is(store: perdure.Store) -> None:
    """Title, preview, counts, agents, usage, folder and status stand in the row of a session."""
    options: dict[str, Any] = {"cwd": "/srv/net", "preset": "coder", "config": {"name": "team"}}
    call: dict[str, Any] = {"id": "c1", "name": "bash", "arguments": {}}
    with (
        store.create("a", created_at=5, **options) as session,
        session.turn("t1", agent="ann") as turn,
    ):
        turn.user("  why\ndoes   it fail? " + "x" * 500)
        with turn.step() as step:
            step.request({})
            step.message([{"type": "tool-call", **call}], usage={"input": 10, "output": 5})
            step.call(**call)
            step.result("c1", "no", error={"code": "x", "message": "failed"})
    (row,) = store.sessions().sessions
    assert row.preview is not None
    assert row.preview.startswith("why does it fail? xxx")
    assert len(row.preview) == 200
    assert (row.title, row.named, row.status, row.agents) == (
        row.preview,
        False,
        "paused",
        ("ann",),
    )
    assert (row.turns, row.messages, row.calls, row.failures, row.tokens) == (1, 2, 1, 1, 15)
    assert (row.cwd, row.preset, row.composition, row.created) == ("/srv/net", "coder", "team", 5)
    assert row.events == store.inspect("a").state.position.seq + 1
    assert row.size > 0
    with store.writer("a") as session:
        session.append("session/titled", {"title": "Flaky test"})
        assert store.sessions().sessions[0].status == "running"
    (row,) = store.sessions(query="flaky").sessions
    assert (row.title, row.named) == ("Flaky test", True)


def test_a_status_follows_what_became_of_a_session(store: perdure.Store) -> None:
    """Ended, broken off and archived sessions can be told apart, and filtered."""
    with store.create("ended") as session:
        say(session, "x")
        session.append("session/ended", {})
    with store.create("broken") as session, session.turn() as turn:
        turn.user("x")
        turn.end("aborted")
    with store.create("put-away") as session:
        say(session, "x")
        session.archive()
    assert {each.id: each.status for each in store.sessions().sessions} == {
        "ended": "completed",
        "broken": "interrupted",
        "put-away": "paused",
    }
    assert ids(store.sessions(status="completed")) == ["ended"]
    assert ids(store.sessions(status=["interrupted", "completed"], sort="title")) != []
    assert ids(store.sessions(archived=True)) == ["put-away"]


def test_pages_stay_while_sessions_come(store: perdure.Store) -> None:
    """Whoever goes from page to page meets each session once, whatever is added meanwhile."""
    fill(store, 25)
    met: list[str] = []
    after = None
    for number in range(10):
        page = store.sessions(7, after, sort="created")
        met += ids(page)
        with store.create(f"new{number}", created_at=1000 + number) as session:
            say(session, "new")
        after = page.cursor
        if after is None:
            break
    assert met == [f"s{number:02}" for number in reversed(range(25))]


@pytest.mark.parametrize("sort", ["last_active", "created", "title", "size"])
def test_every_order_can_be_paged(store: perdure.Store, sort: str) -> None:
    """Pages of any size make up the whole listing, in each order."""
    fill(store, 9)
    whole = ids(store.sessions(100, sort=sort))
    assert len(whole) == 9
    paged: list[str] = []
    after = None
    while True:
        page = store.sessions(2, after, sort=sort)
        paged += ids(page)
        after = page.cursor
        if after is None:
            break
    assert paged == whole


def test_sessions_are_filtered(store: perdure.Store) -> None:
    """Folder, agent, preset, program, time and problem each narrow a listing."""
    made: dict[str, dict[str, Any]] = {
        "net": {"cwd": "/srv/net", "preset": "coder"},
        "network": {"cwd": "/srv/network"},
        "deep": {"cwd": "/srv/net/a/b"},
    }
    for name, options in made.items():
        with store.create(name, **options) as session:
            say(session, name, agent=f"{name}-agent", time=1_000_000)
    with store.create("late") as session:
        say(session, "late", time=2_000_000)
    assert sorted(ids(store.sessions(cwd="/srv/net"))) == ["deep", "net"]
    assert ids(store.sessions(agent="network-agent")) == ["network"]
    assert ids(store.sessions(preset="coder")) == ["net"]
    assert len(ids(store.sessions(program="perdure"))) == 4
    assert ids(store.sessions(program="codex")) == []
    assert ids(store.sessions(since=1_500_000)) == ["late"]
    moment = dt.datetime.fromtimestamp(1500, dt.UTC)
    assert ids(store.sessions(since=moment)) == ["late"]
    assert "late" not in ids(store.sessions(until=moment))
    assert ids(store.sessions(problem=True)) == []


def test_sessions_are_listed_by_their_ids(tmp_path: Path, store: perdure.Store) -> None:
    """What the listing has of named sessions is told without their logs; others are left out."""
    for id in ("a", "b", "c"):
        with store.create(id) as session:
            say(session, f"hello {id}")
    rows = {each.id: each for each in store.sessions().sessions}
    named = store.sessions_by_id(["c", "a", "none", "a"])
    assert {each.id: each for each in named} == {"a": rows["a"], "c": rows["c"]}
    assert store.sessions_by_id("b") == [rows["b"]]
    assert store.sessions_by_id([]) == []
    with perdure.open("none:") as nothing:
        assert nothing.sessions_by_id("a") == []
    with (
        perdure.open(tmp_path / "plain", index=False) as plain,
        pytest.raises(InvalidValue, match="index"),
    ):
        plain.sessions_by_id("a")
    with pytest.raises(InvalidValue):
        store.sessions_by_id([7])  # type: ignore[list-item]


def test_sub_agents_stand_below_their_session(store: perdure.Store) -> None:
    """A nested listing leaves them out, and `children_of` has them."""
    with store.create("top") as top:
        say(top, "go")
        with top.subagent("worker", task="do it", id="w") as child:
            say(child, "done")
            name = child.id
    assert ids(store.sessions(nested=True)) == ["top"]
    assert sorted(ids(store.sessions())) == sorted(["top", name])
    (row,) = store.children_of(["top"])
    assert (row.id, row.parent, row.relation) == (name, "top", "subagent")
    store.delete("top")
    assert ids(store.sessions(nested=True)) == [name]


class Goal(perdure.Projection):
    """Whether a goal was reached."""

    name = "goal"
    version = 1
    types = frozenset({"goal/reached", "goal/broken"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        if event.type == "goal/broken":
            raise ZeroDivisionError
        rows.put("by", event.data)

    def value(self, rows: Rows) -> Any:
        return {"by": rows.get("by"), "reached": "by" in rows}


def test_a_column_of_a_users_own_can_be_filtered(tmp_path: Path) -> None:
    """A projection is folded on, filtered by its members, and one that fails stops nothing."""
    with perdure.open(tmp_path / "s", projection=Goal()) as store:
        for name in ("a", "b", "c"):
            with store.create(name) as session:
                say(session, name)
        store.append("a", [{"type": "goal/reached", "data": "ann"}])
        store.append("c", [{"type": "goal/broken"}])
        assert ids(store.sessions(projection={"/reached": True})) == ["a"]
        assert ids(store.sessions(projection={"/by": "ann", "/reached": True})) == ["a"]
        rows = {each.id: each.projection for each in store.sessions().sessions}
        assert rows["b"] == {"by": None, "reached": False}
        assert rows["c"] is None
        assert "ZeroDivisionError" in str(store.stats().sums.skipped_in)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0},
        {"limit": True},
        {"sort": "colour"},
        {"after": "no cursor"},
        {"since": "soon"},
        {"projection": {"x": 1}},
        {"projection": {"/x": [1]}},
        {"agent": [3]},
    ],
)
def test_what_cannot_be_asked_of_a_listing_is_refused(options: dict[str, Any]) -> None:
    """An argument that means nothing is named, with what would."""
    with perdure.open("memory:") as store, pytest.raises(InvalidValue):
        store.sessions(**options)


# --- search ---------------------------------------------------------------------------------------


def test_a_search_can_be_narrowed(store: perdure.Store) -> None:
    """Session, kind, agent, time and folder each narrow a search; one session can be left out."""
    with store.create("a", cwd="/srv/a") as session:
        say(session, "needle one", agent="ann", time=10)
        session.append("state/set", {"scope": "x", "key": "k", "value": "needle"}, time=20)
    with store.create("b", cwd="/srv/b") as session:
        say(session, "needle two", agent="bob", time=30)

    def found(**options: Any) -> list[tuple[str, int]]:
        return sorted((hit.session, hit.seq) for hit in store.search("needle", **options).hits)

    assert found() == [("a", 0), ("a", 1), ("b", 0)]
    assert found(session="a") == [("a", 0), ("a", 1)]
    assert found(without="a") == [("b", 0)]
    assert found(kind="state") == [("a", 1)]
    assert found(agent="bob") == [("b", 0)]
    assert found(agent=[None]) == [("a", 1)]
    assert found(since=15, until=30) == [("a", 1)]
    assert found(cwd="/srv/b") == [("b", 0)]
    assert found(program="codex") == []
    assert found(session="nobody") == []


def test_what_is_typed_is_literal(store: perdure.Store) -> None:
    """Words that are operators elsewhere are words; quotes make phrases."""
    with store.create("a") as session:
        say(session, "this AND that, NOT those OR these")
        say(session, "and that this")
    assert [hit.seq for hit in store.search('"that this"').hits] == [1]
    assert [hit.seq for hit in store.search("this NOT those").hits] == [0]


def test_words_that_stand_nowhere_together_are_told(store: perdure.Store) -> None:
    """A fallback to some of the words says that it is one."""
    with store.create("a") as session:
        say(session, "alpha")
        say(session, "beta")
    assert not store.search("alpha").fallback
    found = store.search("alpha beta gamma")
    assert found.fallback
    assert sorted(hit.seq for hit in found.hits) == [0, 1]
    assert store.search("nothing of it").hits == []


def test_rewound_deleted_and_restored(store: perdure.Store) -> None:
    """A log forgets nothing; what is deleted is not found until it comes back."""
    with store.create("a") as session:
        with session.turn("t1") as turn:
            turn.user("kept needle")
        with session.turn("t2") as turn:
            turn.user("rewound needle")
        session.rewind(to="t1")
    assert len(store.search("needle").hits) == 2
    store.delete("a")
    assert store.search("needle").hits == []
    assert ids(store.sessions()) == []
    store.restore("a")
    assert len(store.search("needle").hits) == 2


def test_an_answer_that_broke_off_is_found_as_far_as_it_came(store: perdure.Store) -> None:
    """Pieces of an answer are one passage, which grows, and gives way to the whole answer."""
    with store.create("a") as session, session.turn("t1") as turn, turn.step() as step:
        step.request({})
        step.delta("half of an ans")
        session.flush()
        (hit,) = store.search("half ans").hits
        assert (hit.kind, hit.snippet) == ("unfinished", "half of an ans")
        step.delta("wer that goes on")
        session.flush()
        (hit,) = store.search("half answer").hits
        assert hit.snippet == "half of an answer that goes on"
        step.message([{"type": "text", "text": "half of an answer that goes on."}])
    assert [hit.kind for hit in store.search("half answer").hits] == ["assistant"]


def test_namespaces_know_nothing_of_each_other(store: perdure.Store) -> None:
    """What is said in one namespace is neither listed nor found in another."""
    for name in ("ann", "bob"):
        with store.namespace(name).create("same-id") as session:
            say(session, f"needle of {name}")
    for name in ("ann", "bob"):
        (hit,) = store.namespace(name).search("needle").hits
        assert hit.snippet == f"needle of {name}"
        assert store.namespace(name).stats().sums.sessions == 1
    assert store.search("needle").hits == []
    assert ids(store.sessions()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"k": 0},
        {"k": 101},
        {"snippet_chars": 0},
        {"mode": "vector"},
        {"sort": "time"},
        {"kind": "poem"},
        {"session": ""},
        {"after": "eA"},
    ],
)
def test_what_cannot_be_asked_of_a_search_is_refused(options: dict[str, Any]) -> None:
    """An argument that means nothing is named, with what would."""
    with perdure.open("memory:") as store, pytest.raises(InvalidValue):
        store.search("x", **options)


# --- switched off ---------------------------------------------------------------------------------


def test_none_finds_nothing_quietly() -> None:
    """Where nothing is kept, nothing is listed or found, and nobody is told off."""
    with perdure.open("none:") as store:
        with store.create("a") as session:
            say(session, "needle")
        assert store.sessions().sessions == []
        assert store.search("needle").hits == []
        assert store.children_of(["a"]) == []
        assert store.refresh().sessions == store.full_rescan().sessions == 0
        assert store.stats().sums.sessions == 0
        assert store.search_memory({"query": "needle"})["results"] == []


def test_without_an_index_there_is_no_file_and_a_clear_answer(tmp_path: Path) -> None:
    """Who opens a store without an index leaves nothing of one behind."""
    with perdure.open(tmp_path / "s", index=False) as store:
        with store.create("a") as session:
            say(session, "needle")
        with pytest.raises(InvalidValue, match="index=False"):
            store.search("needle")
    assert not {"index.sqlite", "writing"} & set(os.listdir(tmp_path / "s"))


def test_a_store_that_was_never_made_is_empty(tmp_path: Path) -> None:
    """To list or search where there is no store makes none."""
    with perdure.open(tmp_path / "none") as store:
        assert ids(store.sessions()) == []
        assert store.search("x").hits == []
    assert not (tmp_path / "none").exists()


# --- for agents -----------------------------------------------------------------------------------


def test_memory_is_bounded_and_leaves_out_who_asks(store: perdure.Store) -> None:
    """An agent is given quotations as data, no more than it may have, and none of its own."""
    with store.create("now") as session:
        say(session, "needle now")
    with store.create("then") as session:
        for number in range(30):
            say(session, f"needle {number} " + "hay " * 500, agent="ann")
    found = store.search_memory({"query": "needle", "limit": 20}, current="now", chars=1_000)
    assert {each["session"] for each in found["results"]} == {"then"}
    assert sum(len(each["text"]) for each in found["results"]) <= 1_000
    assert found["more"]
    assert "no instruction" in found["note"]
    assert found["results"][0]["agent"] == "ann"
    assert len(store.search_memory({"query": "needle", "limit": 99})["results"]) <= 20


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": 3}, {"query": "x", "kinds": ["poem"]}, {"query": "x", "colour": "red"},
     {"query": "x", "since": "soon"}, {"query": "x", "session": ""}, [1], {"query": "x", "k": 1}],
)  # fmt: skip
def test_a_model_that_asks_badly_is_told(arguments: Any) -> None:
    """Arguments that do not fit are answered with what is wrong, and raise nothing."""
    with perdure.open("memory:") as store:
        assert set(store.search_memory(arguments)) == {"error"}


def test_the_tool_is_told_as_providers_want_it() -> None:
    """Both formats name the tool, say what it does, and refuse arguments that it does not have."""
    anthropic, openai = perdure.memory_tool("anthropic"), perdure.memory_tool("openai")
    assert anthropic["input_schema"] == openai["function"]["parameters"]
    assert anthropic["name"] == openai["function"]["name"] == "search_memory"
    assert anthropic["input_schema"]["additionalProperties"] is False
    with pytest.raises(InvalidValue):
        perdure.memory_tool("gemini")


# --- kept honest ----------------------------------------------------------------------------------


def test_an_index_that_goes_is_made_again(tmp_path: Path) -> None:
    """Deleting the index, or writing nonsense into it, costs time and nothing else."""
    with perdure.open(tmp_path / "s") as store:
        fill(store, 3)
        assert len(store.search("prompt").hits) == 3
        for name in os.listdir(tmp_path / "s"):
            if name.startswith("index.sqlite"):
                (tmp_path / "s" / name).unlink()
        assert len(store.search("prompt").hits) == 3
    path = tmp_path / "s" / "index.sqlite"
    path.write_bytes(b"nonsense" * 1000)
    path.chmod(0o600)
    with perdure.open(tmp_path / "s") as store:
        assert len(store.search("prompt").hits) == 3
        assert len(ids(store.sessions())) == 3


def test_what_comes_and_goes_by_hand_is_noticed(tmp_path: Path) -> None:
    """Folders that are copied in are listed, and those that are removed are not."""
    with perdure.open(tmp_path / "a") as store:
        fill(store, 2)
    with perdure.open(tmp_path / "b") as store:
        with store.create("mine") as session:
            say(session, "mine")
        assert ids(store.sessions()) == ["mine"]
        sessions = tmp_path / "b" / "sessions"
        shutil.copytree(tmp_path / "a" / "sessions" / "s00", sessions / "s00")
        assert sorted(ids(store.sessions())) == ["mine", "s00"]
        assert [hit.session for hit in store.search("prompt").hits] == ["s00"]
        shutil.rmtree(sessions / "mine")
        assert ids(store.sessions()) == ["s00"]


def test_a_damaged_session_is_listed_and_named(tmp_path: Path) -> None:
    """What stands before the damage is found, and coverage says that something is wrong."""
    with perdure.open(tmp_path / "s", encoding="raw") as store:
        fill(store, 2)
        with store.create("bad") as session:
            say(session, "needle before")
            say(session, "needle behind")
        path = Path(str(store.locate("bad")))
        data = path.read_bytes()
        path.write_bytes(data.replace(b"behind", b"BEHIND"))
        store.refresh()
        rows = {each.id: each for each in store.sessions().sessions}
        assert rows["bad"].status == "damaged"
        assert rows["bad"].problem
        assert [hit.snippet for hit in store.search("needle").hits] == ["needle before"]
        assert ids(store.sessions(problem=True)) == ["bad"]
        found = store.search("prompt")
        assert len(found.hits) == 2
        assert not found.coverage.complete
        assert "bad" in str(found.coverage)
        path.write_bytes(data)
        assert store.refresh().read == 1
        assert store.sessions().coverage.complete


def test_a_keyed_append_after_reopening_reads_no_old_log(tmp_path: Path) -> None:
    """Known keys come from the index; what it does not know yet comes from the end of the log."""
    with perdure.open(tmp_path / "s") as store:
        with store.create("a") as session:
            for number in range(300):
                with session.turn():
                    session.append("x", number, key=f"k{number}")
        store.sessions()
        # What another writer adds without an index stands behind what the index knows.
        with perdure.open(tmp_path / "s", index=False) as other, other.writer("a") as session:
            known = session.position.seq
            with session.turn():
                session.append("x", 300, key="k300")
    with perdure.open(tmp_path / "s") as store:
        settled(store, "a")
        read: list[int] = []
        scan = store._backend.scan

        mine = threading.get_ident()

        def watched(session: str, begin: int, *, seq: int = 0) -> Any:
            # The thread that keeps the index may read what it likes.
            if threading.get_ident() == mine:
                read.append(seq)
            return scan(session, begin, seq=seq)

        store._backend.scan = watched  # type: ignore[method-assign]
        with store.writer("a") as session:
            assert session.append("x", 301, key="k301").seq > known
            assert read
            assert min(read) >= known
            assert session.append("x", 250, key="k250").seq < known
            assert session.append("x", 300, key="k300").seq > known
            with pytest.raises(perdure.errors.KeyConflict):
                session.append("x", "else", key="k270")
            assert session.position.seq == known + 4


def test_a_page_may_pass_sessions_over(tmp_path: Path) -> None:
    """An offset leads to where the pages before it end, also past the end, and with a query."""
    with perdure.open(tmp_path) as store:
        for number in range(5):
            with store.create(f"s{number}") as session:
                data = {"title": f"fix the test {number}"}
                session.append("session/titled", data, time=number)
        order = [each.id for each in store.sessions().sessions]
        assert order == ["s4", "s3", "s2", "s1", "s0"]
        for offset in range(7):
            page = store.sessions(2, offset=offset)
            assert [each.id for each in page.sessions] == order[offset : offset + 2]
            found = store.sessions(2, query="fix test", offset=offset)
            assert not found.fallback
            assert len(found.sessions) == len(page.sessions)
        first = store.sessions(1)
        assert [each.id for each in store.sessions(1, first.cursor, offset=1).sessions] == ["s2"]
        for wrong in (-1, True, "1", 2**30):
            with pytest.raises(perdure.errors.InvalidValue, match="offset"):
                store.sessions(offset=wrong)  # type: ignore[arg-type]


def test_a_revision_changes_with_the_log(tmp_path: Path) -> None:
    """A revision stays while nothing is committed, and is another one afterwards."""
    with perdure.open(tmp_path) as store:
        with store.create("s") as session:
            session.append("note", 1)
        before = store.revision("s")
        assert store.revision("s") == before
        store.append("s", [{"type": "note", "data": 2}])
        assert store.revision("s") != before
        with pytest.raises(perdure.errors.SessionNotFound):
            store.revision("t")
