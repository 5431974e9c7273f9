"""An imported session is read through its lens: views, forks, relatives, what is out of date."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.errors import InvalidValue, StorageUnavailable
from perdure.importers import import_sessions, source_text, sync
from perdure.lenses.claude_code import ClaudeCode
from perdure.store import Store, history
from perdure.testing.providers import VALIDATORS
from perdure.views.providers import FORMATS
from perdure.views.view import History, Rows, View
from tests.media import KEPT, open_medium
from tests.sources import DATA

CLAUDE = DATA / "claude-code"
MAIN = CLAUDE / "codemie_-tmp-private"


@pytest.fixture(params=KEPT)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_medium(request.param, tmp_path) as made:
        yield made


def line(number: int, role: str, text: str, up: int | None, **more: Any) -> str:
    """A line of Claude Code."""
    return json.dumps(
        {
            "type": role,
            "uuid": f"u{number}",
            "parentUuid": None if up is None else f"u{up}",
            "sessionId": "s",
            "cwd": "/srv/a",
            "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
            "message": {"role": role, "content": text, "id": f"m{number}"},
            **more,
        }
    )


def source(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "source.jsonl"
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def imported(store: Store, path: Path) -> str:
    (report,) = import_sessions(store, "claude-code", [path]).sources
    assert report.session is not None
    return report.session


def texts(store: Store, id: str, **options: Any) -> list[str]:
    return [
        block["text"]
        for message in store.inspect(id).messages(**options)
        for block in message["content"]
        if block["type"] == "text"
    ]


TALK = (
    line(1, "user", "why", None),
    line(2, "assistant", "because", 1),
    line(3, "user", "and now", 2),
    line(4, "assistant", "this", 3),
)


def test_an_import_has_messages(store: Store, tmp_path: Path) -> None:
    """What was said in a source is what its session's views say, and its log stays as it is."""
    id = imported(store, source(tmp_path, *TALK))
    assert texts(store, id) == ["why", "because", "and now", "this"]
    assert [event.data for event in store.read_from(id)] == [f"{each}\n" for each in TALK]
    understanding = store.inspect(id).understanding
    assert understanding is not None
    assert (understanding.format, understanding.told, understanding.missed) == ("claude-code", 4, 0)
    assert (understanding.facts.id, understanding.facts.cwd) == ("s", "/srv/a")


def test_a_line_more_is_read_with_those_before(store: Store, tmp_path: Path) -> None:
    """The views of a session that grew are those of a session that was imported at once."""
    path = source(tmp_path, *TALK[:3])
    id = imported(store, path)
    with store.writer(id) as writer:
        assert [m["role"] for m in writer.messages()] == ["user", "assistant", "user"]
    path.write_text("".join(f"{each}\n" for each in TALK))
    assert imported(store, path) == id
    assert texts(store, id) == ["why", "because", "and now", "this"]


def test_branches_and_past_turns_are_told(store: Store, tmp_path: Path) -> None:
    """A prompt that was edited begins a branch; the other one can still be read."""
    edit = line(5, "user", "or else", 2), line(6, "assistant", "that", 5)
    id = imported(store, source(tmp_path, *TALK, *edit))
    found = store.inspect(id)
    assert texts(store, id) == ["why", "because", "or else", "that"]
    turns = [branch.turn for branch in found.branches()]
    assert len(turns) == 3
    assert texts(store, id, at=turns[1]) == ["why", "because", "and now", "this"]
    with pytest.raises(InvalidValue):
        found.messages(at="none of its turns")


def test_scrollback_shows_what_was_said(store: Store, tmp_path: Path) -> None:
    """The pages of an import hold events of the vocabulary, the newest page first, each once."""
    id = imported(store, source(tmp_path, *TALK))
    pages = list(store.inspect(id).scrollback(size=2))
    assert [page[0].seq for page in pages] == [2, 0]
    said = [event.type for page in reversed(pages) for event in page]
    assert [kind for kind in said if "message" in kind] == ["user/message", "assistant/message"] * 2
    assert not [kind for kind in said if kind.startswith("claude-code/")]


@pytest.mark.parametrize(("block", "kept"), [(100, 10**6), (100, 300), (10**6, 0)])
def test_pages_are_the_same_however_little_of_them_is_kept(
    block: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scrollback, messages and branches do not depend on what is kept of what a lens said."""
    with perdure.open("memory:") as store:
        report = sync(store, [DATA / "codex", DATA / "claude-code"])
        ids = [source.session for source in report.sources if source.session is not None]
        wanted = [everything(store, id) for id in ids]
        monkeypatch.setattr(history, "_BLOCK_BYTES", block)
        monkeypatch.setattr(history, "_KEPT_BYTES", kept)
        assert [everything(store, id) for id in ids] == wanted


def everything(store: Store, id: str) -> Any:
    found = store.inspect(id)
    pages = [[event.as_dict() for event in page] for page in found.scrollback(size=7)]
    agents = found.state.agents
    return pages, [(found.messages(agent), found.branches(agent)) for agent in agents]


class Words(View):
    """Counts what users say."""

    name = "words"
    version = 1
    types = frozenset({"user/message"})

    def apply(self, rows: Rows, event: Any, history: History) -> None:
        """Count it."""
        past = [each for each in history() if each.type == "user/message"]
        rows.put(str(event.seq), len(past))


def test_views_of_a_user_see_the_vocabulary(tmp_path: Path) -> None:
    """A view of one's own is fed what the lens says, its history too."""
    with perdure.open(str(tmp_path / "s"), views=[Words()]) as store:
        id = imported(store, source(tmp_path, *TALK))
        assert dict(store.inspect(id).state["words"]) == {"0": 0, "2": 1}


def test_a_fork_goes_on_natively(store: Store, tmp_path: Path) -> None:
    """A fork of an import knows the conversation, adds turns of its own, and resumes with both."""
    id = imported(store, source(tmp_path, *TALK))
    with store.fork(id, new_id="f", cwd=str(tmp_path)) as fork:
        assert texts(store, "f") == ["why", "because", "and now", "this"]
        with fork.turn() as turn:
            turn.user("go on")
            with turn.step() as step:
                step.request({})
                step.message([{"type": "text", "text": "gladly"}])
    expected = ["why", "because", "and now", "this", "go on", "gladly"]
    assert texts(store, "f") == expected
    with store.resume("f") as again:
        said = [block["text"] for message in again.messages() for block in message["content"]]
        assert said == expected
        with again.turn() as turn:
            turn.user("once more")
    assert texts(store, "f") == [*expected, "once more"]
    assert texts(store, id) == expected[:4]
    with store.fork("f", new_id="g") as twice:
        assert [m["role"] for m in twice.messages()][-1] == "user"
    assert texts(store, "g") == [*expected, "once more"]


def test_a_fork_within_an_import_ends_there(store: Store, tmp_path: Path) -> None:
    """What stands behind the place of a fork is not in its conversation."""
    id = imported(store, source(tmp_path, *TALK))
    with store.fork(id, 1, new_id="f"):
        pass
    assert texts(store, "f") == ["why", "because"]


def test_a_better_lens_reads_old_imports(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an earlier version of a lens said is not believed, in imports nor in their forks."""
    id = imported(store, source(tmp_path, *TALK))
    with store.fork(id, new_id="f") as fork, fork.turn() as turn:
        turn.user("go on")
    assert texts(store, "f")[-1] == "go on"
    with store.writer("f") as writer:
        assert writer.messages()
    read = ClaudeCode.read

    def louder(self: ClaudeCode, event: perdure.Event) -> Iterator[perdure.Event]:
        for said in read(self, event):
            raw = said.raw.replace(b'"why"', b'"WHY"')
            yield msgspec.structs.replace(said, raw=raw)

    monkeypatch.setattr(ClaudeCode, "read", louder)
    # The rows of the fork are stored, and were made by this version.
    assert texts(store, "f")[0] == "why"
    monkeypatch.setattr(ClaudeCode, "version", ClaudeCode.version + 1)
    assert texts(store, "f") == ["WHY", "because", "and now", "this", "go on"]
    assert texts(store, id) == ["WHY", "because", "and now", "this"]


def test_a_format_that_nobody_reads_is_kept(store: Store) -> None:
    """A session of an unknown format has no messages, and says that there is no lens for it."""
    made = perdure.Source("someone-else", "1")
    with store.create("s", source=made, vocabulary=None) as session:
        session.append("someone-else/line", '{"type":"user"}\n', key="0:0")
    found = store.inspect("s")
    assert found.messages() == []
    assert found.understanding is not None
    assert found.understanding.version is None


def test_what_is_native_has_no_understanding(store: Store) -> None:
    """Of a session that was made here no lens says anything."""
    with store.create("s") as session:
        session.append("user/message", {"content": [{"type": "text", "text": "x"}]})
    assert store.inspect("s").understanding is None


def test_sub_agents_are_linked(store: Store) -> None:
    """The sub-agents of an import are its children, and it is in their lineage."""
    report = sync(store, [MAIN])
    by_name = {Path(each.path).name: str(each.session) for each in report.sources}
    main = by_name.pop("4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl")
    assert {(each.session, each.kind, each.seq) for each in store.children(main)} == {
        (each, "subagent", -1) for each in by_name.values()
    }
    for each in by_name.values():
        assert [(one.session, one.state) for one in store.lineage(each)] == [(main, "stored")]
        assert store.children(each) == []
        header = store.inspect(each).header
        assert header is not None
        assert (header.origin, header.depth) == ("subagent", 1)
    assert sorted(store.descendants(main)) == sorted(by_name.values())


def test_a_session_found_twice_shares_no_children(store: Store, tmp_path: Path) -> None:
    """Of two copies of a session each has the sub-agents that stand beside it."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for path in MAIN.iterdir():
            (tmp_path / name / path.name).write_bytes(path.read_bytes())
    report = sync(store, [tmp_path / "one", tmp_path / "two"])
    assert report.states == {"new": 6}
    for name in ("one", "two"):
        here = {str(e.session) for e in report.sources if Path(e.path).parent.name == name}
        (main,) = (each for each in here if store.children(each))
        assert {each.session for each in store.children(main)} == here - {main}
        assert set(store.descendants(main)) == here - {main}


SAMPLES = sorted(path for path in CLAUDE.rglob("*.jsonl"))


@pytest.mark.parametrize("form", FORMATS)
def test_every_sample_can_be_handed_to_a_provider(form: str) -> None:
    """Each provider accepts the messages of each agent of every imported sample."""
    with perdure.open("memory:") as store:
        report = sync(store, [DATA])
        assert report.states["new"] > 50
        handed = 0
        for each in report.sources:
            if each.session is None:
                continue
            found = store.inspect(each.session)
            for agent in found.state.agents:
                messages = found.messages(agent, format=form)
                if found.messages(agent):
                    assert VALIDATORS[form](messages) == [], each.path
                    handed += 1
        assert handed > 50


# --- going on -------------------------------------------------------------------------------------


def test_an_import_is_not_gone_on_with(store: Store, tmp_path: Path) -> None:
    """Turns and rewinds belong into a fork: in the import they would change what it says."""
    id = imported(store, source(tmp_path, *TALK))
    before = store.inspect(id).position
    with store.writer(id) as writer:
        with pytest.raises(InvalidValue, match="was imported") as refused, writer.turn():
            pass
        assert "fork" in refused.value.hint
        with pytest.raises(InvalidValue, match="was imported"):
            writer.rewind(None)
    assert store.inspect(id).position == before


def test_a_fork_ends_at_a_turn_of_an_import(store: Store, tmp_path: Path) -> None:
    """A turn that a lens tells of is a place to fork at, and so is one of a fork of a fork."""
    id = imported(store, source(tmp_path, *TALK))
    first = store.inspect(id).branches()[0].turn
    with store.fork(id, turn=first, new_id="f") as fork, fork.turn("t") as turn:
        assert [m["role"] for m in fork.messages()] == ["user", "assistant"]
        turn.user("else")
    assert texts(store, "f") == ["why", "because", "else"]
    with store.fork("f", turn=first, new_id="g"):
        assert texts(store, "g") == ["why", "because"]
    with store.fork("f", turn="t", new_id="h"):
        assert texts(store, "h") == ["why", "because", "else"]
    with pytest.raises(InvalidValue, match="no turn 'none'") as refused:
        store.fork(id, turn="none")
    assert "branches" in refused.value.hint


def test_a_lens_that_raises_stops_nobody(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a lens cannot read is missed, and the rest of the session is read."""
    id = imported(store, source(tmp_path, *TALK))
    read = ClaudeCode.read

    def fails(self: ClaudeCode, event: perdure.Event) -> Iterator[perdure.Event]:
        if event.seq == 1:
            raise ZeroDivisionError
        yield from read(self, event)

    monkeypatch.setattr(ClaudeCode, "read", fails)
    assert texts(store, id) == ["why", "and now", "this"]
    understanding = store.inspect(id).understanding
    assert understanding is not None
    assert understanding.missed == 1


# --- what looks like a line -----------------------------------------------------------------------


def test_keys_of_others_are_no_places(store: Store, tmp_path: Path) -> None:
    """An event with a key like that of a line takes no line away, in an import nor in its fork."""
    path = source(tmp_path, *TALK)
    id = imported(store, path)
    with store.writer(id) as writer:
        writer.append("review/note", "well", key="1:0")
    with store.fork(id, new_id="f") as fork:
        fork.append("acme/step", {}, key="4:1")
        with fork.turn() as turn:
            turn.user("own")
    for each in (id, "f"):
        assert texts(store, each)[:4] == ["why", "because", "and now", "this"]
        said = [e.type for page in store.inspect(each).scrollback() for e in page]
        assert said.count("user/message") == (2 if each == id else 3)
        assert len(store.inspect(each).branches()) == (2 if each == id else 3)
    assert imported(store, path) == id
    assert b"".join(source_text(store, id)) == path.read_bytes()


def test_a_disk_that_fails_is_no_missing_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read just now raises; what expired or is too large is missed and said so."""
    long = line(2, "assistant", "b" * 17_000_000, 1)
    with perdure.open(str(tmp_path / "s")) as store:
        id = imported(store, source(tmp_path, TALK[0], long))
        assert [len(text) for text in texts(store, id)] == [3, 17_000_000]

        def fails(*_: object) -> Iterator[bytes]:
            raise StorageUnavailable("it", "EIO", hint="wait")

        with monkeypatch.context() as patch:
            patch.setattr("perdure.store.folding.content_of", fails)
            with pytest.raises(StorageUnavailable):
                texts(store, id)
        with monkeypatch.context() as patch:
            patch.setattr("perdure.store.imported._READ_BYTES_MAX", 1000)
            assert texts(store, id) == ["why"]
            understanding = store.inspect(id).understanding
            assert understanding is not None
            assert (understanding.told, understanding.missed) == (1, 1)


def test_a_fork_knows_what_its_lens_understood(store: Store, tmp_path: Path) -> None:
    """What a lens made of the lines that a fork begins with is told, stored rows or not."""
    id = imported(store, source(tmp_path, *TALK))
    with store.fork(id, new_id="f", cwd=str(tmp_path)) as fork, fork.turn() as turn:
        turn.user("on")
    with store.resume("f") as again:
        assert again.state.agents
    for _ in range(2):
        understanding = store.inspect("f").understanding
        assert understanding is not None
        assert understanding.told == 4
