"""Sources that are exchanged or cut off: each state that an import found can be had again."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import pytest

import perdure
from perdure.errors import InvalidValue
from perdure.importers import SourceReport, source_text
from perdure.lenses.lines import SourceLines
from tests.sources import (
    FORMAT,
    HEADER,
    Machine,
    append,
    bytes_of,
    forget,
    frame,
    kept,
    of_type,
    record,
    session_of,
    sync_one,
    text_of,
)
from tests.support import scaled

LINES = SourceLines(FORMAT)
ID = b'"s-1"'

# --- states of a file -----------------------------------------------------------------------------

_LINES = st.one_of(
    st.builds(record, st.sampled_from("abc"), st.integers(1, 9), st.sampled_from(["", "日", "é"])),
    st.sampled_from(
        [b"\n", b"\r\n", b"noise\n", b'{"type":"x"}\n', b'{"type":"x","time":7}\r\n', b"\0\0\n"]
    ),
    st.binary(max_size=6).map(lambda noise: noise.replace(b"\n", b"") + b"\n"),
)
_TEXTS = st.lists(_LINES, max_size=4).map(b"".join)
_PLACES = st.floats(0, 1)
_TORN = st.sampled_from([b"{", b'{"type":"t","time":8}', b'{"type":"t"', b"\xe6\x97", b"x"])

Change = tuple[Callable[..., bytes | None], Any, Any]


def grown(old: bytes, text: bytes, _: float) -> bytes:
    return old + text


def torn(old: bytes, part: bytes, _: float) -> bytes:
    return old + part


def completed(old: bytes, part: bytes, _: float) -> bytes:
    return old + part + b"\n"


def edited(old: bytes, text: bytes, place: float) -> bytes:
    at = int(len(old) * place)
    return old[:at] + text + old[at:]


def exchanged(old: bytes, _: bytes, place: float) -> bytes:
    """Other bytes, and not one more or less; with another id it would be another session."""
    at, id = int((len(old) - 1) * place), old.find(ID)
    if id <= at < id + len(ID):
        at = 0
    return old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :] if old else old


def cut(old: bytes, _: bytes, place: float) -> bytes:
    return old[: int(len(old) * place)]


def cut_between_lines(old: bytes, _: bytes, place: float) -> bytes:
    return old[: old.rfind(b"\n", 0, int(len(old) * place) + 1) + 1]


def replaced(_: bytes, text: bytes, __: float) -> bytes:
    return HEADER + text


def emptied(_: bytes, __: bytes, ___: float) -> bytes:
    return b""


def touched(_: bytes, __: bytes, ___: float) -> None:
    return None


_CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.sampled_from([grown, edited, replaced]), _TEXTS, _PLACES),
    st.tuples(st.sampled_from([torn, completed]), _TORN, _PLACES),
    st.tuples(
        st.sampled_from([cut, cut_between_lines, exchanged, emptied, touched]),
        st.just(b""),
        _PLACES,
    ),
)


def write(path: Path, change: Change) -> bytes:
    """Bring a file into its next state, as far as that goes with the time it had."""
    how, text, place = change
    before = path.stat()
    now = how(path.read_bytes(), text, place)
    if now is None:
        os.utime(path)
        return path.read_bytes()
    path.write_bytes(now)
    if len(now) == before.st_size:
        # Who set the time back hides nothing.
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return now


class Line(NamedTuple):
    """What an import makes of a line."""

    type: str
    time: int
    key: str | None
    data: Any


def stored(store: perdure.Store, report: SourceReport) -> list[Line]:
    return [
        Line(event.type, event.time, event.key, event.data)
        for event in store.read_from(session_of(report))
        if event.key is not None
    ]


def held(store: perdure.Store, id: str) -> list[bytes | None]:
    """Return the lines that hold."""
    return [line.raw for line in LINES.lines(store.read_from(id), starts_of(store, id))]


def starts_of(store: perdure.Store, id: str) -> dict[int, int]:
    """Return the generations but the first, and where they begin."""
    return LINES.starts(store.read_from(id))


# --- every sequence of states ---------------------------------------------------------------------


@hypothesis.settings(max_examples=scaled(400))
@hypothesis.given(_TEXTS, st.lists(st.tuples(_CHANGES, st.booleans()), min_size=1, max_size=10))
def test_every_state_comes_out_again(first: bytes, changes: list[tuple[Change, bool]]) -> None:
    """Whatever becomes of a file, each sync keeps it to the byte, and what it was before it.

    Whether or not what the last import saw is still known makes no difference.
    """
    assert ID in HEADER
    with (
        tempfile.TemporaryDirectory() as folder,
        perdure.open("memory:") as knowing,
        perdure.open("memory:") as forgetful,
    ):
        path = Path(folder, "session.jsonl")
        path.write_bytes(HEADER + first)
        states = {0: HEADER + first}
        report = sync_one(knowing, path)
        assert sync_one(forgetful, path) == report
        for change, forgets in changes:
            now = write(path, change)
            if forgets:
                forget(forgetful, report)
            step(knowing, forgetful, path, now)
            if now:
                generation = max(starts_of(knowing, session_of(report)), default=0)
                assert states.keys() >= set(range(generation))
                states[generation] = now
            for number, state in states.items():
                assert text_of(knowing, report, number) == state
            assert stored(knowing, report) == stored(forgetful, report)
        for store in (knowing, forgetful):
            assert store.verify(session_of(report)).status == "ok"
            assert [entry.id for entry in store.list()] == [report.session]


def step(knowing: perdure.Store, forgetful: perdure.Store, path: Path, now: bytes) -> None:
    """Bring two stores up to date with a file, and demand that they agree, and are then."""
    dry = sync_one(knowing, path, dry_run=True)
    report, other = sync_one(knowing, path), sync_one(forgetful, path)
    assert dry == report
    if not now:
        # Problems of lines are remembered, or not told.
        assert (
            other._replace(problems=report.problems, problem_count=report.problem_count) == report
        )
        assert (report.state, report.reason) == ("gone", "the file is empty")
        assert report.found == len(held(knowing, session_of(report)))
        return
    assert other == report
    assert report.error is None
    assert report.skipped is None
    assert report.found == report.new + report.unchanged == len(held(knowing, session_of(report)))
    assert text_of(knowing, report) == text_of(forgetful, report) == now
    position = knowing.inspect(session_of(report)).position
    again = sync_one(knowing, path)
    assert (again.state, again.new, again.found) == ("unchanged", 0, report.found)
    assert (again.problems, again.problem_count) == (report.problems, report.problem_count)
    assert knowing.inspect(session_of(report)).position == position


# --- compressed -----------------------------------------------------------------------------------

_FRAMES = st.lists(_TEXTS.map(frame), max_size=3).map(b"".join)
_SQUEEZED: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.just(grown), _FRAMES, _PLACES),
    st.tuples(st.just(torn), st.sampled_from([b"\x28", frame(HEADER)[:-3], b"\0"]), _PLACES),
    st.tuples(st.sampled_from([cut, exchanged, touched]), st.just(b""), _PLACES),
    st.tuples(st.just(replaced), _TEXTS, _PLACES),
)


@hypothesis.settings(max_examples=scaled(400))
@hypothesis.given(_FRAMES, st.lists(st.tuples(_SQUEEZED, st.booleans()), min_size=1, max_size=6))
def test_every_state_of_a_compressed_file_is_kept(
    first: bytes, changes: list[tuple[Change, bool]]
) -> None:
    """Of a compressed file, damaged or not, there is what a first import finds, and its bytes."""
    with tempfile.TemporaryDirectory() as folder, perdure.open("memory:") as store:
        path = Path(folder, "session.jsonl.zstd")
        path.write_bytes(frame(HEADER) + first)
        report = sync_one(store, path)
        for change, forgets in changes:
            before = held(store, session_of(report))
            write(path, change)
            if forgets:
                forget(store, report)
            again = sync_one(store, path)
            with perdure.open("memory:") as other:
                fresh = sync_one(other, path)
                assert again.error is None
                if fresh.skipped is not None:
                    # Nothing can be read in it: what was imported stays, and its source is gone.
                    assert (again.state, again.session) == ("gone", report.session)
                    assert held(store, session_of(report)) == before
                    continue
                assert (again.skipped, again.found) == (None, fresh.found)
                assert again.problems == fresh.problems
                assert again.session == report.session
                assert held(store, session_of(report)) == held(other, session_of(fresh))
                # A file that is plain by now was compressed, and that is all that is kept of it.
                if bytes_of(other, fresh):
                    assert bytes_of(store, report) == path.read_bytes()
            assert sync_one(store, path).state == "unchanged"
        assert store.verify(session_of(report)).status == "ok"


# --- one by one -----------------------------------------------------------------------------------


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


def test_generations_can_be_asked_for(store: perdure.Store, tmp_path: Path) -> None:
    """The first state is number 0, beyond the last there is the last, and others are refused."""
    path = tmp_path / "session.jsonl"
    states = [HEADER + record("a", 1), HEADER, HEADER + record("b", 2), HEADER + record("c", 3)]
    for state in states:
        path.write_bytes(state)
        report = sync_one(store, path)
    del states[1]  # Nothing but its end was lost: what came then is of the same generation.
    path.write_bytes(HEADER + record("c", 3))
    report = sync_one(store, path)
    assert [text_of(store, report, number) for number in range(5)] == [*states, *states[-1:] * 2]
    for wrong in (-1, 1.0, True, "0"):
        with pytest.raises(InvalidValue):
            source_text(store, session_of(report), generation=wrong)  # type: ignore[arg-type]


def test_the_time_that_was_set_back_hides_nothing(store: perdure.Store, tmp_path: Path) -> None:
    """Other content of the same size and the same time of modification is found."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("a", 1) + record("b", 2))
    before = path.stat()
    first = sync_one(store, path)
    path.write_bytes(HEADER + record("x", 1) + record("b", 2))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    report = sync_one(store, path)
    assert (report.state, report.new, report.unchanged) == ("rewritten", 2, 1)
    assert (report.session, text_of(store, report)) == (first.session, path.read_bytes())


def test_a_file_that_was_replaced_by_another_of_its_name_is_found(
    store: perdure.Store, tmp_path: Path
) -> None:
    """A file that an agent writes anew beside it and puts in its place is followed."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("a", 1))
    first = sync_one(store, path)
    anew = tmp_path / "new"
    anew.write_bytes(HEADER + record("a", 1) + record("b", 2))
    anew.replace(path)
    report = sync_one(store, path)
    assert (report.state, report.new, report.session) == ("grown", 1, first.session)


@pytest.mark.parametrize("remembered", [True, False])
def test_an_emptied_file_takes_nothing_away(
    store: perdure.Store, tmp_path: Path, *, remembered: bool
) -> None:
    """What was imported stands while its file is empty, which is told, and what comes is compared.

    No generation begins: whoever empties a file may be about to write it.
    """
    path = tmp_path / "session.jsonl"
    whole = HEADER + record("a", 1) + record("b", 2)
    path.write_bytes(whole)
    first = sync_one(store, path)
    path.write_bytes(b"")
    for _ in range(2):
        if not remembered:
            forget(store, first)
        report = sync_one(store, path)
        assert (report.state, report.session, report.skipped) == ("gone", first.session, None)
        assert (report.reason, report.error) == ("the file is empty", None)
    assert text_of(store, first) == whole
    (mark,) = of_type(store, first, "source/gone")
    assert mark.data == {
        "path": str(path),
        "noticed_at": Machine.NOW,
        "reason": "the file is empty",
    }
    path.write_bytes(whole + record("c", 3))
    report = sync_one(store, path)
    assert (report.state, report.new, report.session) == ("grown", 1, first.session)
    assert len(of_type(store, first, "source/found")) == 1
    assert starts_of(store, session_of(first)) == {}


def test_the_first_generation_is_the_file_before_its_first_rewrite(
    store: perdure.Store, tmp_path: Path
) -> None:
    """Number 0 has all that a file grew by until it was rewritten, not what was found first."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("a", 1))
    sync_one(store, path)
    append(path, record("b", 2))
    sync_one(store, path)
    before = path.read_bytes()
    path.write_bytes(HEADER + record("c", 3))
    report = sync_one(store, path)
    assert report.state == "rewritten"
    assert text_of(store, report, 0) == before


def break_off(store: perdure.Store, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sync a file, and die after three commits of 100 lines."""
    append_many = perdure.Session.append_many
    calls: list[int] = []

    def dying(session: perdure.Session, events: Any) -> Any:
        calls.append(len(events))
        if len(calls) > 3:
            raise KeyboardInterrupt
        return append_many(session, events)

    with monkeypatch.context() as patch:
        patch.setattr("perdure.importers.appender._BATCH_LINES", 100)
        patch.setattr(perdure.Session, "append_many", dying)
        with pytest.raises(KeyboardInterrupt):
            sync_one(store, path)


def test_a_generation_that_was_broken_off_is_finished(
    store: perdure.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an import left of a generation when it died means nothing until one finishes it."""
    path = tmp_path / "session.jsonl"
    lines = [record("n", number) for number in range(1500)]
    path.write_bytes(HEADER + b"".join(lines))
    first = sync_one(store, path)
    was = text_of(store, first)
    path.write_bytes(HEADER + record("x", 1) + b"".join(lines))
    break_off(store, path, monkeypatch)
    assert len(kept(store, first)) == 1501 + 300
    assert text_of(store, first) == text_of(store, first, 1) == was
    assert starts_of(store, session_of(first)) == {}
    report = sync_one(store, path)
    assert (report.error, report.new, report.unchanged) == (None, 1201, 301)
    assert (report.state, text_of(store, report)) == ("rewritten", path.read_bytes())
    assert text_of(store, report, 0) == was
    assert starts_of(store, session_of(first)) == {1: len(HEADER)}
    assert sync_one(store, path).state == "unchanged"


@pytest.mark.parametrize("remembered", [True, False])
def test_a_generation_that_was_broken_off_is_in_nobodys_way(
    store: perdure.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembered: bool
) -> None:
    """A source that is again what it was goes on, beside what is left of a generation."""
    path = tmp_path / "session.jsonl"
    lines = b"".join(record("n", number) for number in range(500))
    path.write_bytes(HEADER + lines)
    first = sync_one(store, path)
    path.write_bytes(HEADER + record("x", 1) + lines)
    break_off(store, path, monkeypatch)
    states = []
    for more in (b"", b'{"type":"to', b'rn"}\n' + lines, b"{", b"}\n"):
        path.write_bytes(HEADER + lines if not more else path.read_bytes() + more)
        if not remembered:
            forget(store, first)
        report = sync_one(store, path)
        states.append(report.state)
        assert (report.error, text_of(store, report)) == (None, path.read_bytes())
    assert states == ["unchanged", *["grown"] * 4]
    assert [*starts_of(store, session_of(first))] == [2, 3]
    assert store.verify(session_of(first)).status == "ok"


# --- what they say --------------------------------------------------------------------------------


def said(number: int, text: str, up: int | None) -> bytes:
    """A line of Claude Code."""
    role = "assistant" if number % 2 else "user"
    line = {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": None if up is None else f"u{up}",
        "sessionId": "s",
        "timestamp": f"2026-01-01T00:00:{number:02}.000Z",
        "message": {"role": role, "content": text, "id": f"m{number}"},
    }
    return json.dumps(line).encode() + b"\n"


_TALKS = st.lists(st.sampled_from(["why", "because", "so"]), min_size=1, max_size=6).map(
    lambda texts: b"".join(
        said(number, text, number - 1 if number else None) for number, text in enumerate(texts)
    )
)


@pytest.mark.parametrize("kind", ["memory", "raw"])
@hypothesis.settings(
    max_examples=scaled(100),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(
    talks=st.lists(st.tuples(_TALKS, st.floats(0, 1), st.booleans()), min_size=2, max_size=4)
)
def test_a_rewritten_source_says_what_it_says_now(
    kind: str, talks: list[tuple[bytes, float, bool]]
) -> None:
    """Views of a source that was rewritten, cut or not, are those of a first import of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.jsonl")
        location = "memory:" if kind == "memory" else str(Path(folder, "store"))
        with perdure.open(location) as store:
            for talk, place, whole in talks:
                path.write_bytes(talk if whole else talk[: 1 + int(place * len(talk))])
                report = sync_one(store, path)
                if report.session is None or report.state == "gone":
                    # So little is left of the first line that nobody knows what it is.
                    assert b"\n" not in path.read_bytes()
                    continue
                assert_says_the_same(store, report, path)


def assert_says_the_same(store: perdure.Store, report: SourceReport, path: Path) -> None:
    with perdure.open("memory:") as other:
        fresh = sync_one(other, path)
        if fresh.session is None:
            # Known by its path alone: of what is left nobody would know what it is.
            assert spoken(store.inspect(session_of(report))) == []
            return
        found, wanted = store.inspect(session_of(report)), other.inspect(session_of(fresh))
        assert spoken(found) == spoken(wanted)
        assert found.state.title == wanted.state.title


def spoken(inspection: perdure.Inspection) -> list[dict[str, Any]]:
    """The messages without their place in the log, in which there are more generations."""
    told = inspection.messages()
    assert [each["seq"] for each in told] == sorted({each["seq"] for each in told})
    return [{name: each[name] for name in each if name != "seq"} for each in told]


def test_what_was_rewritten_can_be_read_as_it_was(store: perdure.Store, tmp_path: Path) -> None:
    """The lines of an earlier state make the session that they made then, imported again."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(said(0, "why", None) + said(1, "because", 0))
    report = sync_one(store, path)
    then = store.inspect(session_of(report)).messages()
    path.write_bytes(said(0, "why", None) + said(1, "other", 0))
    assert sync_one(store, path).state == "rewritten"
    now = store.inspect(session_of(report)).messages()
    assert [message["content"][0]["text"] for message in now] == ["why", "other"]
    earlier = tmp_path / "earlier.jsonl"
    append(earlier, text_of(store, report, 0))
    again = sync_one(store, earlier)
    assert store.inspect(session_of(again)).messages() == then
    assert [message["content"][0]["text"] for message in then] == ["why", "because"]


def test_a_generation_that_was_broken_off_and_is_past_is_begun_anew(
    store: perdure.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left of a generation is not gone on with where the source changed once more."""
    path = tmp_path / "session.jsonl"
    lines = [record("n", number) for number in range(1500)]
    path.write_bytes(HEADER + b"".join(lines))
    first = sync_one(store, path)
    path.write_bytes(HEADER + record("x", 1) + b"".join(lines))
    break_off(store, path, monkeypatch)
    path.write_bytes(HEADER + record("y", 1) + b"".join(lines))
    report = sync_one(store, path)
    assert (report.error, report.state, report.new) == (None, "rewritten", 1501)
    assert text_of(store, report) == path.read_bytes()
    assert starts_of(store, session_of(first)) == {2: len(HEADER)}
    assert text_of(store, report, 1) == text_of(store, report, 0) == HEADER + b"".join(lines)
