"""The text of every passage is found again in its log, and of nothing that does not stand there."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.catalog.contract import Candidate
from perdure.catalog.passages import KINDS, Passage, Passages, digest_of
from perdure.importers import import_sessions
from perdure.model.event import Event
from perdure.store import Store, open_store
from perdure.store.imported import lens_version, starts_in, translated
from perdure.testing.histories import history
from tests.folds import turn
from tests.questions.synthetic import Calendar, write_sessions
from tests.sources import DATA, EVERY, HEADER, Machine, flipped, sync_one
from tests.support import scaled


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:", index=False) as opened:
        yield opened


def told(store: Store, id: str) -> list[Event]:
    """All events of a session; of an import as its lens tells them, in that order."""
    header = store.inspect(id).header
    assert header is not None
    events = [*store.read_from(id)]
    if not lens_version(header):
        return events
    starts = starts_in(header, events)
    return [*translated(header, events, store._folds.content(id), starts)]


def passages(store: Store, id: str) -> list[Passage]:
    reading = Passages()
    found = [said for event in told(store, id) for said in reading.read(event)]
    return [*found, *reading.end()]


def candidate(id: str, said: Passage, **more: Any) -> Candidate:
    """What a catalog knows of a passage."""
    known: dict[str, Any] = {
        "session": id,
        "seq": said.seq,
        "kind": said.kind,
        "agent": said.agent,
        "time": said.time,
        "digest": said.digest,
        "call": None if said.call is None else digest_of(said.call),
        "relevance": 1.0,
    }
    return Candidate(**known | more)


def text(store: Store, id: str, said: Passage, **more: Any) -> str | None:
    return store._texts.text(candidate(id, said, **more))


def assert_found(store: Store, id: str) -> list[Passage]:
    """Demand that each passage of a session is found again; return them."""
    found = passages(store, id)
    lost = [said for said in found if text(store, id, said) != said.text]
    assert lost == []
    return found


def append(store: Store, id: str, events: Sequence[Event]) -> None:
    """Write events as they are into a new session, whatever they mean."""
    with store.create(id) as session:
        names = ("type", "data", "time", "agent", "turn")
        session.append_many([{name: getattr(each, name) for name in names} for each in events])


# --- sessions of ours -----------------------------------------------------------------------------


def test_every_passage_of_a_session_is_found() -> None:
    """Of sessions with everything in them, each passage of each kind is read from its log again."""
    calendar = Calendar()
    with open_store("memory:", index=False, runtime=calendar) as store:
        found = [
            said
            for id in write_sessions(store, calendar.pass_hours)
            for said in assert_found(store, id)
        ]
    assert {said.kind for said in found} == {*KINDS}


@settings(max_examples=scaled(400))
@given(st.integers())
def test_every_passage_of_a_history_is_found(seed: int) -> None:
    """Of agents that do everything wrong, each passage is found, whatever surrounds it."""
    with open_store("memory:", index=False) as store:
        append(store, "s", history(seed, events_max=60).events)
        assert_found(store, "s")


def streamed(session: perdure.Session, *pieces: tuple[str, str]) -> None:
    """Stream pieces, each of an agent, in turns that stay open."""
    for agent, piece in pieces:
        session.append("assistant/delta", {"text": piece}, agent=agent, turn=f"of-{agent}")


def test_what_was_never_finished_is_found(store: Store) -> None:
    """Answers whose pieces stand between each other's are found, each where it begins."""
    with store.create("s") as session:
        streamed(session, ("x", "one "), ("y", "two "), ("x", "more"), ("y", "others"))
        session.append("turn/end", {"reason": "aborted"}, agent="x", turn="of-x")
        streamed(session, ("x", "again "), ("y", " follow"), ("x", "and again"))
    found = [(said.seq, said.text) for said in assert_found(store, "s")]
    assert found == [(0, "one more"), (1, "two others follow"), (5, "again and again")]


def test_what_grew_is_another_passage(store: Store) -> None:
    """An answer that went on since is not what was known of it."""
    with store.create("s") as session:
        streamed(session, ("x", "so "))
        (before,) = passages(store, "s")
        assert text(store, "s", before) == "so "
        streamed(session, ("x", "far"))
        assert text(store, "s", before) is None
        (after,) = assert_found(store, "s")
        assert after.text == "so far"
        content = [{"type": "text", "text": "so far"}]
        session.append("assistant/message", {"content": content}, agent="x", turn="of-x")
        assert text(store, "s", after) is None
        assert [said.kind for said in assert_found(store, "s")] == ["assistant"]


def test_several_passages_of_an_event_are_told_apart(store: Store) -> None:
    """One event may say much, some of it twice, and each of it is found."""
    blocks = [
        {"type": "thinking", "text": "same"},
        {"type": "text", "text": "same"},
        {"type": "text", "text": "same"},
        {"type": "text", "text": "else"},
        {"type": "tool-call", "id": "c", "name": "same", "arguments": {}},
    ]
    error = {"code": "E", "message": "same"}
    with store.create("s") as session:
        session.append("assistant/message", {"content": blocks}, turn="t")
        session.append("tool/result", {"id": "c", "content": "same", "error": error}, turn="t")
    found = assert_found(store, "s")
    assert len(found) == 7
    assert len({candidate("s", said) for said in found}) == 6


def test_a_session_of_a_namespace_is_its_own(store: Store) -> None:
    """Sessions of one id in two namespaces say what they say, each to its own."""
    for place, said in ((store, "here"), (store.namespace("a"), "there")):
        with place.create("s") as session:
            session.set_title(said)
    (mine,), (other,) = assert_found(store, "s"), assert_found(store.namespace("a"), "s")
    assert (mine.text, other.text) == ("here", "there")
    assert text(store, "s", other) is None


# --- forks ----------------------------------------------------------------------------------------


def test_a_fork_says_what_it_inherits_and_its_own(store: Store) -> None:
    """A fork has the passages of its parent up to there, and those that came since."""
    with store.create("s") as session:
        session.append_many([*turn(1), *turn(2)])
        streamed(session, ("x", "so "))
    with store.fork("s", new_id="f", at=11) as fork:
        fork.append_many(turn(3))
        streamed(fork, ("x", "own"))
    texts = [said.text for said in assert_found(store, "f")]
    assert texts == [f"turn {number}" for number in (1, 1, 2, 2, 3, 3)] + ["own"]
    (left,) = (said for said in assert_found(store, "s") if said.kind == "unfinished")
    assert text(store, "f", left) is None


# --- imports --------------------------------------------------------------------------------------


def imported(store: Store, path: Path, format: str) -> str | None:  # noqa: A002
    (report,) = import_sessions(store, format, [path], runtime=Machine()).sources
    return report.session


SAMPLES = [*EVERY]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.relative_to(DATA).as_posix())
def test_every_passage_of_a_sample_is_found(store: Store, path: Path) -> None:
    """What a lens says of each line of a source is found again, in a fork of the import too."""
    id = imported(store, path, EVERY[path])
    assert id is not None
    found = assert_found(store, id)
    with store.fork(id, new_id="f") as fork:
        fork.append_many(turn(1))
        streamed(fork, ("x", "own"))
    inherited = assert_found(store, "f")
    assert {said.text for said in inherited} >= {"turn 1", "own"}
    assert len(inherited) >= len(found)


def test_samples_say_something(store: Store) -> None:
    """There are passages of most kinds in the samples of each format."""
    kinds: dict[str, set[str]] = {}
    for path, name in EVERY.items():
        id = imported(store, path, name)
        if id is not None:
            kinds.setdefault(name, set()).update(said.kind for said in passages(store, id))
    usual = {"user", "assistant", "thinking", "tool-call", "tool-result"}
    assert {*kinds} == {*EVERY.values()}
    for said in kinds.values():
        assert usual <= said


def line(number: int, role: str, said: Any, up: int | None) -> str:
    """A line of Claude Code."""
    return json.dumps(
        {
            "type": role,
            "uuid": f"u{number}",
            "parentUuid": None if up is None else f"u{up}",
            "sessionId": "s",
            "cwd": "/srv/a",
            "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
            "message": {"role": role, "content": said, "id": f"m{number}"},
        }
    )


CALL = [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls -l"}}]
RESULT = [{"type": "tool_result", "tool_use_id": "c1", "content": "total 0", "is_error": True}]

TALK = (
    line(1, "user", "why", None),
    line(2, "assistant", [{"type": "text", "text": "because"}], 1),
    line(3, "user", "and now", 2),
    line(4, "assistant", CALL, 3),
    line(5, "user", RESULT, 4),
    line(6, "user", "or else", 2),
    line(7, "assistant", [{"type": "text", "text": "that"}], 6),
)


def talk(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "source.jsonl"
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def test_an_import_that_grew_says_more(store: Store, tmp_path: Path) -> None:
    """What was found in the first lines of a source is found there when more have come."""
    path = talk(tmp_path, *TALK[:2])
    id = imported(store, path, "claude-code")
    assert id is not None
    before = assert_found(store, id)
    assert {"why", "because"} <= {said.text for said in before}
    talk(tmp_path, *TALK)
    assert imported(store, path, "claude-code") == id
    after = assert_found(store, id)
    assert {said.kind for said in after} >= {"user", "assistant", "tool-call", "tool-result"}
    assert [text(store, id, said) for said in before] == [said.text for said in before]


def test_a_source_that_was_rewritten_says_what_stands_there(store: Store, tmp_path: Path) -> None:
    """Of a source that was rewritten each passage is found as it stands there now."""
    path = tmp_path / "source.jsonl"
    path.write_bytes(HEADER + message("first", 1) + message("second", 2))
    id = sync_one(store, path).session
    assert id is not None
    assert {said.text for said in assert_found(store, id)} >= {"first", "second"}
    path.write_bytes(HEADER + message("other", 1) + message("third", 3) + message("second", 2))
    assert sync_one(store, path).session == id
    found = assert_found(store, id)
    assert [said.text for said in found if said.kind == "user"] == ["other", "third", "second"]


def message(said: str, number: int) -> bytes:
    """A line of a user's message, as DeepSeek's harness writes it."""
    data = {"content": [{"type": "text", "text": said}]}
    return json.dumps({"type": "user/message", "time": number, "data": data}).encode() + b"\n"


# --- what is not there ----------------------------------------------------------------------------


def test_what_is_not_there_is_none(store: Store) -> None:
    """Where the log says something else, or nothing, there is no text."""
    with store.create("s") as session:
        session.append_many([*turn(1), *turn(2)])
        streamed(session, ("x", "so far"))
    found = assert_found(store, "s")
    for said in found:
        assert text(store, "s", said, digest=digest_of(said.text) ^ 1) is None
        assert text(store, "t", said) is None
        for seq in {*range(14), -1, 2**63, 10**30} - {said.seq}:
            same = any((each.seq, each.kind, each.text) == (seq, *said[1:3]) for each in found)
            assert text(store, "s", said, seq=seq) == (said.text if same else None)
        for kind in {*KINDS, "", "no kind"} - {said.kind}:
            assert text(store, "s", said, kind=kind) is None


def test_a_session_that_was_deleted_says_nothing(store: Store) -> None:
    """Of a session in the trash, or gone, no text is read."""
    with store.create("s") as session:
        session.set_title("gone")
    (said,) = assert_found(store, "s")
    store.delete("s")
    assert text(store, "s", said) is None
    store.restore("s")
    assert text(store, "s", said) == "gone"


# --- damage ---------------------------------------------------------------------------------------


def written(folder: Path) -> tuple[Path, list[Passage]]:
    """A store of one session, and the passages of that."""
    with open_store(folder, encoding="raw", index=False) as store:
        with store.create("s") as session:
            for number in range(4):
                session.append_many(turn(number))
            streamed(session, ("x", "so "), ("y", "what "), ("x", "far"))
        log = store._backend.locate("s")
        assert log is not None
        return Path(log), assert_found(store, "s")


def test_what_is_damaged_says_nothing_wrong(tmp_path: Path, rng: random.Random) -> None:
    """Of a damaged log a passage is what it was, or nothing: nothing from the damage on."""
    log, found = written(tmp_path / "store")
    whole = log.read_bytes()
    begins = [at for at in range(len(whole)) if whole.startswith(b'{"seq":', at)]
    for _ in range(scaled(300)):
        at = rng.randrange(len(whole))
        log.write_bytes(rng.choice((flipped(whole, at), whole[:at])))
        # The newline behind a record says nothing.
        sound = sum(begin - 1 <= at for begin in begins[1:])
        with open_store(tmp_path / "store", encoding="raw", index=False) as store:
            for said in found:
                told = text(store, "s", said)
                assert told in (None, said.text)
                assert told is None or said.seq < sound or at < begins[0]
    log.write_bytes(whole)
    with open_store(tmp_path / "store", encoding="raw", index=False) as store:
        assert assert_found(store, "s") == found


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{}\n", b'{"format":99,"id":"s"}\n'], ids=["empty", "line", "none", "new"]
)
def test_a_session_without_a_header_says_nothing(tmp_path: Path, raw: bytes) -> None:
    """Where the header cannot be read there is no text, whatever stands behind it."""
    log, found = written(tmp_path / "store")
    whole = log.read_bytes()
    log.write_bytes(raw + whole[whole.index(b"\n") + 1 :])
    with open_store(tmp_path / "store", encoding="raw", index=False) as store:
        assert [text(store, "s", said) for said in found] == [None] * len(found)
