"""A fork of an import reads at its place what the import reads, whatever became of the source."""

import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

import perdure
from perdure.importers import import_sessions
from tests.support import scaled
from tests.test_imported import line

Talk = list[tuple[str, str]]


def lines(talk: Talk) -> list[bytes]:
    """A turn of a question and an answer for each pair, as Claude Code writes them."""
    found = []
    for number, (asked, answered) in enumerate(talk):
        up = 2 * number - 1 if number else None
        found.append(line(2 * number, "user", asked, up))
        found.append(line(2 * number + 1, "assistant", answered, 2 * number))
    return [f"{each}\n".encode() for each in found]


def write(store: perdure.Store, path: Path, data: bytes) -> str:
    path.write_bytes(data)
    (report,) = import_sessions(store, "claude-code", [path]).sources
    assert report.error is None
    assert report.session is not None
    return report.session


def spoken(found: perdure.Inspection, **options: Any) -> list[tuple[str, str]]:
    """Whose each text is, and the text."""
    return [
        (message["role"], block["text"])
        for message in found.messages(**options)
        for block in message["content"]
    ]


def check_forks(store: perdure.Store, id: str, *, again: bool = True) -> None:
    """Fork a session at each of its turns, and hold what the forks say against what it says."""
    found = store.inspect(id)
    for turn in [branch.turn for branch in found.branches()]:
        wanted = spoken(found, at=turn)
        with store.fork(id, turn=turn) as fork:
            child = fork.id
        assert spoken(store.inspect(child)) == wanted
        assert store.verify(child).sound
        if again:
            check_forks(store, child, again=False)


def test_a_fork_at_a_turn_of_a_rewritten_source_has_that_turn(tmp_path: Path) -> None:
    """What was written anew is what a fork within it goes on from."""
    with perdure.open("memory:") as store:
        write(store, tmp_path / "s.jsonl", b"".join(lines([("old 1", "a"), ("old 2", "b")])))
        id = write(store, tmp_path / "s.jsonl", b"".join(lines([("new 1", "c"), ("new 2", "d")])))
        first, _ = (branch.turn for branch in store.inspect(id).branches())
        with store.fork(id, turn=first) as fork:
            assert spoken(store.inspect(fork.id)) == [("user", "new 1"), ("assistant", "c")]
        check_forks(store, id)


def test_a_fork_behind_a_line_that_was_torn_has_all_of_it(tmp_path: Path) -> None:
    """A line that was being written when it was imported first is inherited whole."""
    text = lines([("q1", "a1"), ("q2", "a2"), ("q3", "a3")])
    with perdure.open("memory:") as store:
        write(store, tmp_path / "s.jsonl", b"".join(text[:3]) + text[3][:100])
        id = write(store, tmp_path / "s.jsonl", b"".join(text))
        second = store.inspect(id).branches()[1].turn
        with store.fork(id, turn=second) as fork:
            assert spoken(store.inspect(fork.id))[-1] == ("assistant", "a2")
        check_forks(store, id)


def test_a_fork_at_an_event_reads_as_the_import_does_now(tmp_path: Path) -> None:
    """The number of an event names a place in what the source says now."""
    with perdure.open("memory:") as store:
        write(store, tmp_path / "s.jsonl", b"".join(lines([("old 1", "a"), ("old 2", "b")])))
        id = write(store, tmp_path / "s.jsonl", b"".join(lines([("new 1", "c"), ("new 2", "d")])))
        (at,) = (m["seq"] for m in store.inspect(id).messages() if "new 1" in str(m["content"]))
        with store.fork(id, at) as fork:
            assert spoken(store.inspect(fork.id)) == [("user", "new 1")]
        with store.fork(id, 3) as before:
            # Nothing of the second state is inherited.
            assert spoken(store.inspect(before.id))[0] == ("user", "old 1")


def test_a_fork_of_a_generation_says_so_in_its_first_event(tmp_path: Path) -> None:
    """Who reads a child alone, in whatever store, knows which lines hold in it."""
    with perdure.open("memory:") as store, perdure.open(tmp_path / "other") as other:
        write(store, tmp_path / "s.jsonl", b"".join(lines([("old 1", "a"), ("old 2", "b")])))
        id = write(store, tmp_path / "s.jsonl", b"".join(lines([("new 1", "c"), ("new 2", "d")])))
        first = store.inspect(id).branches()[0].turn
        with store.fork(id, turn=first, new_id="child") as fork:
            (forked,) = (e for e in store.read_from(fork.id) if e.type == "session/forked")
        assert forked.data["starts"] == [[1, 0]]
        store.copy("child", other)
        assert spoken(other.inspect("child")) == [("user", "new 1"), ("assistant", "c")]


_WORDS = st.sampled_from(["why", "because", "so"])
_TALKS = st.lists(st.tuples(_WORDS, _WORDS), min_size=1, max_size=3)


@hypothesis.settings(max_examples=scaled(200))
@hypothesis.given(
    talks=st.lists(st.tuples(_TALKS, st.floats(0, 1), st.booleans()), min_size=1, max_size=3)
)
def test_forks_at_every_turn_say_what_was_said_up_to_it(
    talks: list[tuple[Talk, float, bool]],
) -> None:
    """However often a source was rewritten or torn, a fork at a turn has the import's messages."""
    with tempfile.TemporaryDirectory() as folder, perdure.open("memory:") as store:
        path = Path(folder, "s.jsonl")
        id = None
        for talk, place, whole in talks:
            text = lines(talk)
            data = b"".join(text)
            cut = len(text[0]) + int(place * (len(data) - len(text[0])))
            id = write(store, path, data if whole else data[:cut])
        assert id is not None
        check_forks(store, id)


@pytest.mark.parametrize("location", ["memory:", "raw"])
def test_a_fork_of_a_rewritten_import_goes_on_and_resumes(location: str, tmp_path: Path) -> None:
    """Its own turns stand behind what it inherits, also for whoever opens it later."""
    place = location if location == "memory:" else str(tmp_path / "store")
    with perdure.open(place) as store:
        write(store, tmp_path / "s.jsonl", b"".join(lines([("old 1", "a")])))
        id = write(store, tmp_path / "s.jsonl", b"".join(lines([("new 1", "c"), ("new 2", "d")])))
        first = store.inspect(id).branches()[0].turn
        with (
            store.fork(id, turn=first, new_id="child", cwd=str(tmp_path)) as fork,
            fork.turn() as t,
        ):
            t.user("go on")
        wanted = [("user", "new 1"), ("assistant", "c"), ("user", "go on")]
        assert spoken(store.inspect("child")) == wanted
        with store.resume("child") as again:
            texts = [b["text"] for m in again.messages() for b in m["content"]]
            assert texts == [text for _, text in wanted]


def test_a_writer_of_a_fork_goes_back_to_what_it_said_itself(tmp_path: Path) -> None:
    """Branches that a fork of an import made are found again, however often it goes back."""
    with perdure.open("memory:") as store:
        id = write(store, tmp_path / "s.jsonl", b"".join(lines([("q1", "a1"), ("q2", "a2")])))
        first = store.inspect(id).branches()[0].turn
        with store.fork(id, new_id="child", cwd=str(tmp_path)) as fork:
            for number in range(4):
                fork.rewind(to=first)
                with fork.turn(f"own-{number}") as turn:
                    turn.user(f"mine {number}")
                expected = [("user", "q1"), ("assistant", "a1"), ("user", f"mine {number}")]
                assert _texts(fork.messages()) == expected
            for number in range(4):
                fork.rewind(to=f"own-{number}")
                expected = [("user", "q1"), ("assistant", "a1"), ("user", f"mine {number}")]
                assert _texts(fork.messages()) == expected


def _texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [
        (message["role"], block["text"]) for message in messages for block in message["content"]
    ]
