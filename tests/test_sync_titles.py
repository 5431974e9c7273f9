"""Titles that an agent keeps in a list of its own reach the sessions that they name."""

import json
from pathlib import Path

import pytest

import perdure
from perdure.importers import sync
from perdure.importers.following import Follower
from perdure.importers.seen import Seen
from perdure.store import Store

ID = "019e1695-0522-7c83-8b39-0dd379793f80"


def codex(home: Path, *titles: str) -> Path:
    """A folder of Codex with one rollout and a list that gives it these titles, one by one."""
    folder = home / "sessions" / "2026"
    folder.mkdir(parents=True, exist_ok=True)
    meta = {"id": ID, "timestamp": "2026-05-11T09:26:54.000Z", "cwd": "/w"}
    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    records = [("session_meta", meta), ("response_item", said)]
    (folder / f"rollout-2026-05-11T13-28-45-{ID}.jsonl").write_text(
        "".join(
            json.dumps({"timestamp": "2026-05-11T09:26:55.000Z", "type": kind, "payload": what})
            + "\n"
            for kind, what in records
        )
    )
    listed = [{"id": ID, "thread_name": title, "updated_at": "2026-05-11"} for title in titles]
    lines = [
        json.dumps(each) + "\n" for each in [*listed, {"id": 3}, {"id": "x", "thread_name": 1}]
    ]
    (home / "session_index.jsonl").write_text("".join(lines) + "{torn")
    return home


def session(store: Store) -> str:
    (id,) = (
        entry.id
        for entry in store.list()
        if entry.header is not None and entry.header.source and entry.header.source.id == ID
    )
    return id


def titled(store: Store) -> list[str]:
    return [each.data["title"] for each in store.read_from(session(store), 0, ["source/titled"])]


def test_the_last_title_of_a_list_counts(tmp_path: Path) -> None:
    """A session has the last title that its agent's list gives it, written down once."""
    home = codex(tmp_path, "first", "second")
    with perdure.open("memory:") as store:
        for _ in range(3):
            sync(store, [home])
        assert store.inspect(session(store)).state.title == "second"
        assert titled(store) == ["second"]


def test_a_title_that_comes_back_is_written_again(tmp_path: Path) -> None:
    """Renamed and renamed back, a session has the name that it has now."""
    with perdure.open("memory:") as store:
        for title in ("a", "b", "a"):
            sync(store, [codex(tmp_path, title)])
        assert titled(store) == ["a", "b", "a"]
        assert store.inspect(session(store)).state.title == "a"


def test_titles_need_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is remembered of the last import, the log says which title was brought."""
    home = codex(tmp_path, "a")

    def nothing(*_: object) -> Seen | None:
        return None

    with perdure.open("memory:") as store:
        sync(store, [home])
        monkeypatch.setattr("perdure.importers.titles.seen", nothing)
        monkeypatch.setattr("perdure.importers.source.seen", nothing)
        monkeypatch.setattr("perdure.importers.incremental.seen", nothing)
        sync(store, [home])
        assert titled(store) == ["a"]


def test_a_title_takes_no_line_away(tmp_path: Path) -> None:
    """A session with a title that was brought goes on with its source, and has nothing twice."""
    home = codex(tmp_path, "a")
    with perdure.open("memory:") as store:
        sync(store, [home])
        (rollout,) = (home / "sessions" / "2026").iterdir()
        with rollout.open("a") as file:
            file.write('{"timestamp":"2026-05-11T09:27:00.000Z","type":"event_msg","payload":{}}\n')
        report = sync(store, [home])
        assert report.new == 1
        assert sync(store, [home]).new == 0
        assert titled(store) == ["a"]


def test_a_dry_run_brings_no_titles(tmp_path: Path) -> None:
    """A run that stores nothing gives no titles either."""
    with perdure.open("memory:") as store:
        sync(store, [codex(tmp_path, "a")])
        sync(store, [codex(tmp_path, "b")], dry_run=True)
        assert titled(store) == ["a"]


def test_a_title_that_a_person_gave_stays(tmp_path: Path) -> None:
    """Neither the agent's list nor the source takes away the name that somebody chose here."""
    home = codex(tmp_path, "first")
    with perdure.open("memory:") as store:
        sync(store, [home])
        with store.writer(session(store)) as writer:
            writer.append("session/titled", {"title": "mine"})
        codex(tmp_path, "second")
        sync(store, [home])
        assert titled(store) == ["first", "second"]
        assert store.inspect(session(store)).state.title == "mine"


def test_a_follower_brings_a_title_that_came_first(tmp_path: Path) -> None:
    """A title that was listed before its session was there reaches it when it comes."""
    home = codex(tmp_path, "listed")
    (rollout,) = (home / "sessions" / "2026").iterdir()
    text = rollout.read_bytes()
    rollout.unlink()
    with perdure.open("memory:") as store:
        follower = Follower(store, [home])
        follower.follow()
        rollout.write_bytes(text)
        follower.follow()
        assert titled(store) == ["listed"]
