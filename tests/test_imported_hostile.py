"""Lenses that say anything, lines that are made to cost memory, events that pose as lines."""

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import perdure
from perdure.importers import import_sessions, source_text
from perdure.lenses import Lens, registry
from perdure.model.event import Event
from tests.test_imported import TALK, line, source, texts


class OddLens(Lens):
    """Says what a test wants."""

    name = "acme"
    version = 1
    says: ClassVar[list[Any]] = []

    def read(self, event: Event) -> Iterator[Event]:  # noqa: ARG002
        self.told += 1
        yield from self.says


def event(**fields: Any) -> Event:
    known = {"seq": 0, "type": "user/message", "time": 0, "agent": None, "turn": None, "key": None}
    given = {**known, "ignorable": False, "raw": b'{"content":[]}', **fields}
    return Event(**given)


@pytest.mark.parametrize(
    "said",
    [
        "x",
        None,
        3,
        event(type=3),
        event(seq="0"),
        event(seq=-1),
        event(seq=True),
        event(time=None),
        event(agent=b"a"),
        event(turn=1),
        event(raw="text"),
        event(raw=b"{"),
        event(raw=b"\xff"),
    ],
)
def test_what_is_no_event_is_missed_and_stops_nothing(
    said: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a lens of another package says, its session can be listed, shown and searched."""
    monkeypatch.setitem(registry.LENSES, "acme", (__name__, "OddLens"))
    monkeypatch.setattr(OddLens, "says", [said])
    with perdure.open("memory:") as store:
        with store.create("a", vocabulary=None, source=perdure.Source("acme")) as session:
            session.append("acme/x", "{}\n", key="0:0")
        found = store.inspect("a")
        assert found.messages() == []
        assert list(found.scrollback()) == []
        assert found.understanding is not None
        assert found.understanding.missed == 1
        assert [each.id for each in store.sessions().sessions] == ["a"]


def laden(many: int) -> str:
    return line(5, "user", "", 4, more=[{}] * many)


def test_a_line_of_millions_of_values_is_kept_and_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would take many times its room is counted as missed; all around it is read."""
    monkeypatch.setattr("perdure.store.imported._VALUES_MAX", 300_000)
    path = source(tmp_path, *TALK, laden(500_000), line(6, "user", "at last", 5))
    with perdure.open("memory:") as store:
        (report,) = import_sessions(store, "claude-code", [path]).sources
        id = str(report.session)
        tracemalloc.start()
        try:
            assert texts(store, id)[-1] == "at last"
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 16 * path.stat().st_size
        found = store.inspect(id).understanding
        assert found is not None
        assert found.missed == 1
        assert b"".join(source_text(store, id)) == path.read_bytes()


def test_a_line_with_many_values_is_read(tmp_path: Path) -> None:
    """A bound for what nobody writes is in nobody's way."""
    with perdure.open("memory:") as store:
        path = source(tmp_path, *TALK, laden(200_000))
        (report,) = import_sessions(store, "claude-code", [path]).sources
        found = store.inspect(str(report.session)).understanding
        assert found is not None
        assert found.missed == 0


def test_a_fork_that_nobody_made_ends_no_source(tmp_path: Path) -> None:
    """An event that poses as the beginning of a fork hides none of the lines behind it."""
    path = source(tmp_path, *TALK[:2])
    with perdure.open("memory:") as store:
        (report,) = import_sessions(store, "claude-code", [path]).sources
        id = str(report.session)
        store.append(id, [{"type": "session/forked", "data": {"starts": [[0, 0]]}}])
        path.write_text("".join(f"{each}\n" for each in TALK))
        assert import_sessions(store, "claude-code", [path]).new == 2
        assert texts(store, id) == ["why", "because", "and now", "this"]
        assert b"".join(source_text(store, id)) == path.read_bytes()
        path.write_text(json.dumps({"type": "user"}) + "\n")
        import_sessions(store, "claude-code", [path])
        assert b"".join(source_text(store, id)) == path.read_bytes()


def test_a_generation_that_somebody_made_up_is_followed_by_others(tmp_path: Path) -> None:
    """Numbers that a person wrote into an import do not keep it from going on."""
    path = source(tmp_path, *TALK)
    with perdure.open("memory:") as store:
        (report,) = import_sessions(store, "claude-code", [path]).sources
        id = str(report.session)
        made_up = {"type": "source/rewritten", "key": "999999999:0", "data": {}}
        store.append(id, [made_up])
        for number in range(3):
            path.write_text(line(number, "user", f"text {number}", None) + "\n")
            (again,) = import_sessions(store, "claude-code", [path]).sources
            assert again.error is None
            assert b"".join(source_text(store, id)) == path.read_bytes()
            assert texts(store, id) == [f"text {number}"]
