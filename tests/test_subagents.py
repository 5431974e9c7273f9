"""A sub-agent's session names its parent, the parent names it, and both go when both should."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import (
    InvalidValue,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
)
from perdure.model.vocabulary import Error
from perdure.store import Session, Store
from tests.command_line import Line
from tests.media import ALL, open_medium


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_medium(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Store]:
    with open_medium("raw", tmp_path) as store:
        yield store


def child_of(session: Session, id: str) -> None:
    """Let a sub-agent work and end."""
    with session.subagent("worker", session_id=id) as child:
        child.append("work")


def family(store: Store) -> None:
    """Make p, its sub-agents a and b, and a's sub-agent aa."""
    with store.create("p") as parent:
        parent.append("x")
        with parent.subagent("worker", session_id="a") as first:
            first.append("work")
            child_of(first, "aa")
        child_of(parent, "b")


def there(store: Store) -> list[str]:
    return sorted(entry.id for entry in store.list())


def test_both_name_each_other(store: Store) -> None:
    """The start stands in the parent before the child is there, whose header names it."""
    with store.create("p", cwd="/srv") as parent:
        parent.append("turn/start", {}, agent="main", turn="t")
        child = parent.subagent(
            "reviewer",
            task={"look": "at it"},
            id="r1",
            session_id="c",
            preset="review",
            config={"model": [1]},
            agent="main",
            turn="t",
        )
        start = next(store.read_from("p", 1))
        assert (start.type, start.agent, start.turn) == ("subagent/start", "main", "t")
        assert start.data == {
            "id": "r1",
            "session": "c",
            "name": "reviewer",
            "task": {"look": "at it"},
        }
        assert there(store) == ["p"]
        with child:
            child.append("work")
        header = child.header
        assert header.parent == perdure.Parent("p", 1)
        assert (header.origin, header.depth, header.cwd) == ("subagent", 1, "/srv")
        assert (header.preset, header.config) == ("review", {"model": [1]})
        assert (header.vocabulary, header.seed, header.inherited_genesis) == ("perdure/1", 0, None)
        end = parent.end_subagent("r1", result=["fine"], agent="main", turn="t")
        assert (end.seq, end.data) == (
            2,
            {"id": "r1", "status": "completed", "result": ["fine"]},
        )
    assert [each[:4] for each in store.children("p")] == [("c", "subagent", 1, "stored")]
    assert [each[:4] for each in store.lineage("c")] == [("p", "subagent", 1, "stored")]
    assert store.verify("c").sound


def test_sub_agents_have_their_own(store: Store) -> None:
    """A sub-agent may have sub-agents, each one deeper; ids are made up where none is given."""
    with (
        store.create("p") as parent,
        parent.subagent("one") as child,
        child.subagent("two", cwd="/else") as grandchild,
    ):
        grandchild.append("x")
        assert [each.header.depth for each in (parent, child, grandchild)] == [0, 1, 2]
        assert grandchild.header.cwd == "/else"
        ids = [event.data["id"] for event in store.read_from(child.id)]
        assert ids == [grandchild.id]
    assert len(store.lineage(grandchild.id)) == 2


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"name": ""}, "name"),
        ({"name": 5}, "name"),
        ({"id": ""}, "id"),
        ({"id": 5}, "id"),
        ({"session_id": ""}, "id"),
        ({"session_id": "p"}, "session_id"),
        ({"preset": 5}, "preset"),
        ({"config": {1: 2}}, "config"),
        ({"cwd": "relative"}, "cwd"),
        ({"task": {1: 2}}, "data.task"),
        ({"turn": 5}, "turn"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], path: str) -> None:
    """What is out of range is refused before anything is written."""
    with perdure.open("memory:") as store, store.create("p") as parent:
        with pytest.raises(InvalidValue) as refused:
            parent.subagent(**{"name": "worker", **options})
        assert refused.value.path.startswith(path)
        assert parent.position.seq == -1


def test_an_id_that_is_taken_is_refused(store: Store) -> None:
    """If the child's id is taken, or was, nothing is written in the parent."""
    for id in ("taken", "gone"):
        with store.create(id) as session:
            session.append("x")
    store.delete("gone")
    with store.create("p") as parent:
        for id in ("taken", "gone"):
            with pytest.raises(SessionExists):
                parent.subagent("worker", session_id=id)
        assert parent.position.seq == -1
        store.empty_trash()
        with pytest.raises(SessionExists):
            parent.subagent("worker", session_id="gone")
        assert parent.position.seq == -1


def test_one_that_cannot_begin_has_failed(raw: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the child cannot be created after its start was written, its end is written, too."""
    with raw.create("p") as parent:

        def refuse(*_: Any, **__: Any) -> Any:
            raise StorageUnavailable("here", "not now")

        monkeypatch.setattr(parent, "spawn", refuse)
        with pytest.raises(StorageUnavailable, match="not now"):
            parent.subagent("worker", session_id="c", agent="x")
    start, end = raw.read_from("p")
    assert (start.type, end.type, end.agent) == ("subagent/start", "subagent/end", "x")
    assert end.data["id"] == "c"
    assert end.data["status"] == "failed"
    assert end.data["error"]["code"] == "storage-unavailable"


class X(Exception):
    """A failure whose class is its code."""


@pytest.mark.parametrize(
    "error", [{"code": "X", "message": "y"}, Error(code="X", message="y"), X("y")]
)
def test_an_end_says_how(error: Any) -> None:
    """A sub-agent has completed, failed or was cancelled, perhaps with an error; nothing else."""
    with perdure.open("memory:") as store, store.create("p") as parent:
        parent.append("subagent/start", {"id": "c"})
        event = parent.end_subagent("c", "failed", error=error)
        assert event.data == {"id": "c", "status": "failed", "error": {"code": "X", "message": "y"}}
        for bad in ("interrupted", "", None):
            with pytest.raises(InvalidValue):
                parent.end_subagent("c", bad)  # type: ignore[arg-type]
        for wrong in ({"code": "X"}, "text", 5):
            with pytest.raises(InvalidValue):
                parent.end_subagent("c", "failed", error=wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            parent.end_subagent("", "failed")


def test_only_what_began_can_end() -> None:
    """The end of a sub-agent that nobody began is refused, and the open ones are named."""
    with perdure.open("memory:") as store, store.create("p") as parent:
        with pytest.raises(InvalidValue, match="none is open"):
            parent.end_subagent("c")
        for id in ("one", "two"):
            parent.subagent("worker", id=id).close()
        with pytest.raises(InvalidValue, match="open are 'one', 'two'"):
            parent.end_subagent("c")
        before = parent.position
        assert parent.end_subagent("one").data == {"id": "one", "status": "completed"}
        assert parent.position.seq == before.seq + 1
        with pytest.raises(InvalidValue, match="open are 'two'\\)"):
            parent.end_subagent("c")
        assert {each.id: each.status for each in parent.state.subagents.values()} == {
            "one": "completed",
            "two": None,
        }


def test_a_closed_writer_begins_nothing(store: Store) -> None:
    """A writer that was closed has no sub-agents any more."""
    with store.create("p") as parent:
        parent.append("x")
    with pytest.raises(SessionClosed):
        parent.subagent("worker")


def test_persistence_off_changes_nothing_for_agents() -> None:
    """With persistence off a sub-agent gets a session all the same."""
    with perdure.open("none:") as store, store.create("p") as parent:
        with parent.subagent("worker", session_id="c") as child:
            child.append("x")
        parent.end_subagent("c", "completed")
        with pytest.raises(InvalidValue):
            parent.end_subagent("d", "completed")


# --- deleting -------------------------------------------------------------------------------------


def test_they_stay_unless_asked(store: Store) -> None:
    """Deleting a session leaves its sub-agents, unless they are to go along."""
    family(store)
    assert store.descendants("p") == ["aa", "b", "a"]
    store.delete("p")
    assert there(store) == ["a", "aa", "b"]
    store.restore("p")
    assert store.delete("p", subagents=True).id == "p"
    assert there(store) == []
    assert sorted(each.id for each in store.trash()) == ["a", "aa", "b", "p"]


def test_they_come_back_one_by_one(store: Store) -> None:
    """Restoring a session does not bring its sub-agents back; each has its own id for that."""
    family(store)
    store.delete("p", subagents=True)
    store.restore("p")
    assert there(store) == ["p"]
    store.restore("a")
    store.restore("aa")
    assert [each.session for each in store.children("p")] == ["a"]
    assert store.descendants("p") == ["aa", "a"]


def test_what_a_fork_refers_to_stays(store: Store) -> None:
    """A sub-agent whose start a fork inherits stays with it, and its own sub-agents, too."""
    family(store)
    store.fork("p", 1, new_id="f").close()
    assert store.descendants("p") == ["b"]
    store.delete("p", subagents=True)
    assert there(store) == ["a", "aa", "f"]
    assert store.descendants("f") == ["aa", "a"]
    store.fork("f", new_id="g").close()
    assert store.descendants("f") == []
    store.delete("f", subagents=True)
    assert there(store) == ["a", "aa", "g"]
    store.delete("g", subagents=True)
    assert there(store) == []


def test_an_earlier_fork_keeps_nothing(store: Store) -> None:
    """A fork from before the start of a sub-agent does not keep it, whatever it did later."""
    family(store)
    store.fork("p", 0, new_id="f").close()
    store.append("f", [{"type": "note", "data": number} for number in range(5)])
    store.fork("f", new_id="g").close()
    assert sorted(store.descendants("p")) == ["a", "aa", "b"]
    store.delete("p", subagents=True)
    assert there(store) == ["f", "g"]


def test_forks_of_sub_agents_stay(store: Store) -> None:
    """A fork of a sub-agent's session is nobody's sub-agent, and stays."""
    family(store)
    with store.fork("a", 0, new_id="f") as fork:
        assert (fork.header.origin, fork.header.depth) == (None, 0)
    store.delete("p", subagents=True)
    assert there(store) == ["f"]
    assert store.verify("f").sound


def test_a_fork_that_cannot_be_read_keeps_all(raw: Store) -> None:
    """If it cannot be told whether a fork refers to a sub-agent, that one stays."""
    family(raw)
    raw.fork("p", new_id="f").close()
    log = Path(str(raw.locate("f")))
    found = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([found[0], found[1], b"#" + found[2][1:], *found[3:]]))
    assert raw.descendants("p") == []


def test_nothing_goes_while_one_is_written(store: Store) -> None:
    """If one of them is being written, none is deleted."""
    family(store)
    with store.writer("aa"):
        with pytest.raises(SessionBusy) as busy:
            store.delete("p", subagents=True)
        assert busy.value.session == "aa"
        assert there(store) == ["a", "aa", "b", "p"]
    store.delete("p", subagents=True)
    assert there(store) == []


def test_deleting_goes_on_where_it_broke_off(raw: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If deleting fails half-way, the session is still there, and deleting it again ends it."""
    family(raw)
    real = raw._retention.delete

    def fail(session: str) -> Any:
        if session == "a":
            raise StorageUnavailable("here", "not now")
        return real(session)

    monkeypatch.setattr(raw._retention, "delete", fail)
    with pytest.raises(StorageUnavailable):
        raw.delete("p", subagents=True)
    assert {"a", "p"} <= set(there(raw))
    monkeypatch.undo()
    raw.delete("p", subagents=True)
    assert there(raw) == []


def test_circles_end(raw: Store) -> None:
    """Headers that make a circle are each deleted once."""
    for id, parent in (("a", "b"), ("b", "a"), ("c", "b")):
        options = {"parent": perdure.Parent(parent, 0), "origin": "subagent", "depth": 1}
        with raw.create(id, **options) as session:  # type: ignore[arg-type]
            session.append("x")
    assert raw.descendants("a") == ["c", "b"]
    raw.delete("a", subagents=True)
    assert there(raw) == []
    with pytest.raises(SessionNotFound):
        raw.delete("a", subagents=True)


def test_the_command_takes_them_along(line: Line) -> None:
    """`perdure rm --subagents` deletes them with the session and says which they were."""
    with perdure.open(line.location) as store:
        family(store)
        store.fork("p", 1, new_id="f").close()
    done = line.json("rm", "p", "--subagents")
    (deleted,) = done["deleted"]
    assert (deleted["id"], deleted["subagents"]) == ("p", ["b"])
    with perdure.open(line.location) as store:
        assert there(store) == ["a", "aa", "f"]
    assert line("rm", "f", "--subagents").stdout.splitlines()[:3] == [
        "deleted aa",
        "deleted a",
        "deleted f",
    ]
    with perdure.open(line.location) as store:
        assert there(store) == []
