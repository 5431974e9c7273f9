"""An index of another time, or with wrong rows, costs time and nothing else."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
from perdure.errors import KeyConflict, StoreClosed
from perdure.importers import import_sessions
from perdure.store.indexing import Indexing
from perdure.store.queue import Keys
from tests.test_checkpoints import settled
from tests.test_imported import line


def keyed(store: perdure.Store, first: int, last: int) -> None:
    """One keyed event in each turn, which leaves a checkpoint: opening reads no keys then."""
    with store.writer("a") if first else store.create("a") as session:
        for number in range(first, last):
            with session.turn():
                session.append("x", number, key=f"k{number}")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many keys the index said, each time that it was asked; None: it says nothing."""
    said: list[int | None] = []
    keys = Indexing.keys

    def watched(self: Indexing, id: str) -> Keys | None:
        found = keys(self, id)
        said.append(None if found is None else len(found))
        return found

    monkeypatch.setattr(Indexing, "keys", watched)
    return said


def say(session: perdure.Session, text: str) -> None:
    session.append("user/message", {"content": [{"type": "text", "text": text}]})


def check_keys(path: Path, many: int, asked: list[int | None]) -> list[int | None]:
    """Every key is known: nothing is stored twice, and other content is refused.

    Returns what the index said meanwhile. A writer before may have asked it as well, or not: that
    depends on whether a change of the log would have shown by then.
    """
    before = len(asked)
    with perdure.open(path) as store:
        settled(store, "a")
        session = store.writer("a")
        for number in range(many):
            session.append("x", number, key=f"k{number}")
            with pytest.raises(KeyConflict):
                session.append("x", "else", key=f"k{number}")
        assert len([event for event in store.read_from("a") if event.type == "x"]) == many
    return asked[before:]


def test_sound_keys_of_an_index_are_taken(tmp_path: Path, asked: list[int | None]) -> None:
    """A key that comes after reopening is looked up in the index, and not in the log."""
    with perdure.open(tmp_path / "s") as store:
        keyed(store, 0, 60)
        store.sessions()
    assert check_keys(tmp_path / "s", 60, asked) == [60]


CHANGES = {
    "gone": "DELETE FROM keys WHERE seq < 10",
    "named otherwise": "UPDATE keys SET key = CAST('m7' AS BLOB) WHERE key = CAST('k7' AS BLOB)",
    "of another event": "UPDATE keys SET seq = seq + 1 WHERE key = CAST('k7' AS BLOB)",
    "of other events": "UPDATE keys SET seq = (SELECT max(seq) + min(seq) FROM keys) - seq",
    "more": "INSERT INTO keys SELECT session, type, CAST('k61' AS BLOB), seq FROM keys LIMIT 1",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_wrong_keys_of_an_index_are_not_believed(
    tmp_path: Path, asked: list[int | None], change: str
) -> None:
    """Keys that are missing, renamed or moved in an index have the log read instead."""
    with perdure.open(tmp_path / "s") as store:
        keyed(store, 0, 60)
        assert store.sessions().coverage.complete
    index = apsw.Connection(str(tmp_path / "s" / "index.sqlite"))
    index.execute(change)
    assert index.changes()
    index.close()
    assert check_keys(tmp_path / "s", 60, asked) == [None]


def test_an_older_index_that_is_put_back_is_not_believed(
    tmp_path: Path, asked: list[int | None]
) -> None:
    """With the index of yesterday no event is stored twice, and all that was said is found."""
    path = tmp_path / "s" / "index.sqlite"
    with perdure.open(tmp_path / "s") as store:
        keyed(store, 0, 40)
        store.refresh()
    older = path.read_bytes()
    with perdure.open(tmp_path / "s") as store:
        keyed(store, 40, 80)
        with store.writer("a") as session:
            say(session, "zebra")
        store.refresh()
    for each in path.parent.glob("index.sqlite*"):
        each.unlink()
    path.write_bytes(older)
    path.chmod(0o600)
    # What stands behind the older end was read on from there.
    assert check_keys(tmp_path / "s", 80, asked) == [80]
    with perdure.open(tmp_path / "s") as store:
        assert len(store.search("zebra").hits) == 1


def test_a_long_import_that_was_rewritten_is_read_anew(tmp_path: Path) -> None:
    """A source of more text than one step takes is found as it is now, and not as it was."""

    def write(word: str, many: int) -> None:
        lines = [
            line(number, "user", f"{word} {number}", number - 1 if number else None)
            for number in range(many)
        ]
        source.write_text("".join(f"{each}\n" for each in lines))
        with perdure.open(tmp_path / "s") as store:
            (report,) = import_sessions(store, "claude-code", [source]).sources
            assert report.error is None

    source = tmp_path / "one.jsonl"
    write("apple", 2500)
    with perdure.open(tmp_path / "s") as store:
        assert store.search("apple 2499").hits[0].snippet == "apple 2499"
    write("banana", 2510)
    with perdure.open(tmp_path / "s") as store:
        assert store.search("banana 2509").hits[0].snippet == "banana 2509"
        assert store.search("apple").hits == []
        (row,) = store.sessions().sessions
        assert (row.messages, row.problem) == (2510, None)
        assert store.full_rescan().read == 1
        assert store.sessions().sessions == [row]


def test_a_log_that_was_put_back_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Where the index knows more than the log has, what it knew is dropped, also in large logs."""
    log = tmp_path / "s" / "sessions" / "a"
    with perdure.open(tmp_path / "s") as store:
        with store.create("a") as session, session.turn("t") as turn:
            turn.user("first")
            for number in range(1500):
                say(session, f"early {number}")
        shutil.copytree(log, tmp_path / "kept")
        with store.writer("a") as session:
            for number in range(1500):
                say(session, f"later {number}")
        store.refresh()
        assert store.search("later 1499").hits
    shutil.rmtree(log)
    shutil.copytree(tmp_path / "kept", log)
    with perdure.open(tmp_path / "s") as store:
        store.accept("a")
        with store.writer("a") as session:
            say(session, "zebra")
            assert store.refresh().failed == ()
            assert len(store.search("zebra").hits) == 1
            assert store.search("later").hits == []
            assert store.search("early 1499").hits
            assert store.sessions().sessions[0].events == len(list(store.read_from("a")))


class Goal(perdure.Projection):
    name = "goal"
    version = 1
    types = frozenset({"user/message"})
    said = "v1"

    def apply(self, rows: Any, event: Any, history: Any) -> None:  # noqa: ARG002 - its signature
        rows.put("seen", event.seq)

    def value(self, rows: Any) -> Any:
        return {"seen": rows.get("seen"), "version": self.said}


class NextGoal(Goal):
    version = 2
    said = "v2"


def test_a_projection_of_another_version_is_read_anew(tmp_path: Path) -> None:
    """What stands in a listing is of the projection that asks, whoever wrote in between."""
    path = tmp_path / "s"
    with perdure.open(path) as store:
        with store.create("a") as session:
            say(session, "hello")
        store.refresh()
    for projection, version in ((Goal(), "v1"), (NextGoal(), "v2"), (Goal(), "v1")):
        with perdure.open(path, projection=projection) as store:
            found = store.sessions(projection={"/version": version})
            assert [each.id for each in found.sessions] == ["a"]
            assert found.coverage.complete
        with perdure.open(path) as store, store.writer("a") as session:
            say(session, "more")


def test_closing_a_store_does_not_wait_for_a_long_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks while the store is closed is told so; what was not read is read next time."""
    with perdure.open(tmp_path / "s", index=False) as store, store.create("a") as session:
        for number in range(100):
            say(session, f"word {number}")
    started, closing = threading.Event(), threading.Event()
    index = Indexing.index

    def slowly(self: Indexing, id: str, **options: Any) -> bool:
        breathe = options["breathe"]

        def waiting() -> None:
            started.set()
            # A reading without an end, as far as the one who closes can tell.
            while not closing.wait(0.01):
                pass
            breathe()

        return index(self, id, **options | {"breathe": waiting})

    monkeypatch.setattr(Indexing, "index", slowly)
    monkeypatch.setattr("perdure.store.indexer._DRAIN_SECONDS", -1)
    store = perdure.open(tmp_path / "s")
    told: list[BaseException] = []

    def ask() -> None:
        try:
            store.search("word")
        except StoreClosed as error:
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    assert started.wait(30)
    hurry = store._indexer.hurry  # type: ignore[union-attr]

    def hurried() -> None:
        hurry()
        closing.set()

    monkeypatch.setattr(store._indexer, "hurry", hurried)
    store.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(told) == 1
    monkeypatch.undo()
    with perdure.open(tmp_path / "s") as again:
        assert json.dumps(again.search("word", k=100).coverage.as_dict())
        assert len(again.search("word", k=100).hits) == 100
