"""The sample logs go in and come out again, in every store."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions, session_id, sync
from tests.media import open_medium
from tests.sources import (
    DAMAGED,
    DATA,
    EVERY,
    FORMAT,
    PRETTY,
    TORN,
    UNENDED,
    Machine,
    bytes_of,
    data,
    import_one,
    kept,
    lines,
    session_of,
    text_of,
    unpacked,
)
from tests.support import soaked

PATHS = sorted(EVERY)
NAMES = [path.relative_to(DATA).as_posix() for path in PATHS]


@pytest.fixture(params=["zst", "sqlite", *soaked("raw", "memory")])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path) as opened:
        yield opened


def places(source: SourceReport) -> list[tuple[int, int]]:
    return [(problem.line, problem.offset) for problem in source.problems]


def assert_kept(store: perdure.Store, source: SourceReport) -> None:
    """Demand one event for each line, to the byte, in its place, and compressed files whole."""
    path = Path(source.path)
    text = unpacked(path)
    events = kept(store, source)
    assert data(events) == lines(text)
    assert len(events) == source.found == source.new + source.unchanged
    assert text_of(store, source) == text_of(store, source, 0) == text
    offsets = [int(str(event.key).removeprefix("0:")) for event in events]
    assert offsets == [sum(map(len, lines(text)[:at])) for at in range(len(events))]
    types = re.compile(f"{EVERY[path]}/[a-z]")
    assert all(types.match(event.type) for event in events)
    if path.suffix == ".zstd":
        assert bytes_of(store, source) == path.read_bytes()


def test_there_are_samples() -> None:
    """All samples of the three formats are found, compressed ones among them."""
    formats = list(EVERY.values())
    counts = {name: formats.count(name) for name in formats}
    assert counts == {FORMAT: 20, "claude-code": 21, "codex": 15}
    assert sum(path.suffix == ".zstd" for path in PATHS) == 2
    assert EVERY.keys() >= DAMAGED


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_every_line_comes_out_as_it_went_in(path: Path) -> None:
    """Each line of a sample is the data of one event; only damaged samples have problems."""
    with perdure.open("memory:") as store:
        (source,) = import_sessions(store, EVERY[path], [path]).sources
        assert (source.error, source.skipped, source.large) == (None, None, 0)
        assert (source.state, source.format) == ("new", EVERY[path])
        assert_kept(store, source)
        assert bool(source.problem_count) == (path in DAMAGED)


def test_damaged_samples_are_named_with_their_places(store: perdure.Store) -> None:
    """The frame that was cut, the line without an end and the spread out records are told of."""
    found = [import_sessions(store, EVERY[path], [path]).sources[0] for path in sorted(DAMAGED)]
    told = {source.path: places(source) for source in found}
    last = lines(UNENDED.read_bytes())[-1]
    assert told[str(TORN)] == [(182, len(unpacked(TORN)))]
    assert told[str(UNENDED)] == [(12, UNENDED.stat().st_size - len(last))]
    assert {line for line, _ in told[str(PRETTY)]} == set(range(1, 31))
    reason = next(source for source in found if source.path == str(TORN)).problems[0].reason
    assert "frame at byte 29646 of the file is cut off" in reason


def test_a_folder_of_all_formats_is_recognised(store: perdure.Store) -> None:
    """Brought in as a folder, each sample is taken for what it is, kept whole, and once."""
    first = sync(store, [DATA], runtime=Machine())
    assert sorted(source.path for source in first.sources) == sorted(map(str, PATHS))
    assert {source.path for source in first.skipped} == {str(PRETTY)}
    assert first.states == {"new": len(PATHS) - 1, "skipped": 1}
    for source in first.sources:
        if source.skipped is None:
            assert source.format == EVERY[Path(source.path)]
            assert_kept(store, source)
            assert store.verify(session_of(source)).status == "ok"
    revisions = [entry.revision for entry in store.list()]
    assert len(revisions) == len(PATHS) - 1
    again = sync(store, [DATA], runtime=Machine())
    assert again.states == {"unchanged": len(PATHS) - 1, "skipped": 1}
    assert (again.found, again.new, again.problem_count) == (first.found, 0, first.problem_count)
    assert [entry.revision for entry in store.list()] == revisions


def test_samples_that_are_named_go_into_the_same_sessions(store: perdure.Store) -> None:
    """Whether a file is named with its format or found in a folder, its session is one."""
    first = {
        source.path: source.session
        for name in ("claude-code", "codex", FORMAT)
        for source in import_sessions(
            store, name, [path for path in PATHS if EVERY[path] == name], runtime=Machine()
        ).sources
    }
    assert len(set(first.values())) == len(first) == len(PATHS)
    again = sync(store, [DATA], runtime=Machine())
    assert again.new == 0
    # What nobody would recognise is known from the time when it was named.
    assert {source.path: source.session for source in again.sources} == first


def test_both_forms_of_one_log_hold_the_same_lines(store: perdure.Store) -> None:
    """A log and its compressed form give the same events."""
    folder = DATA / "deepseek-harness/rebuilt/--home-demo--"
    pair = sorted((folder / "session-11111111-2222-4333-8444-555555555555").iterdir())
    plain, squeezed = (kept(store, import_one(store, path)) for path in pair)
    assert [(each.type, each.time, each.key, each.data) for each in plain] == [
        (each.type, each.time, each.key, each.data) for each in squeezed
    ]


def test_header_says_where_it_comes_from(store: perdure.Store) -> None:
    """Id, folder and time of the source stand in the header; the caller owns the event types."""
    path = DATA / "dsh/08-fork-child-with-seed.jsonl"
    source = import_one(store, path, Machine(host="name"))
    header = store.inspect(str(source.session)).header
    assert header is not None
    assert header.source is not None
    assert (header.source.format, header.source.path) == (FORMAT, str(path))
    assert header.source.id == "ada8966c-9fa3-441b-8721-37ff1e795e6a"
    assert (header.cwd, header.created_at, header.vocabulary) == ("{{cwd}}", 1783352137161, None)
    assert (header.source.host, header.source.machine) == ("name", "here")
    assert header.id == session_id(FORMAT, str(path), header.source.id, machine="here")


def test_types_and_times_are_those_of_the_records(store: perdure.Store) -> None:
    """Records keep their type behind the format's name, and their own time."""
    events = kept(store, import_one(store, DATA / "dsh/07-packed-chunks.jsonl"))
    assert [(event.type, event.time) for event in events[:4]] == [
        ("deepseek-harness/session", 1783352165190),
        ("deepseek-harness/agent/inbox/spliced", 1785498765336),
        ("deepseek-harness/turn/start", 1785821364567),
        ("deepseek-harness/agent/inbox/spliced", 1785821364567),
    ]
    packed = next(event for event in events if event.type.endswith("/reasoning-chunks"))
    assert f'"time0":{packed.time}' in packed.data


def test_stripped_samples_take_the_time_of_the_header(store: perdure.Store) -> None:
    """A record without a time has that of the line before it."""
    path = DATA / "deepseek-harness/steering_session.jsonl"
    assert {event.time for event in kept(store, import_one(store, path))} == {1785004180013}


def test_sources_with_one_id_do_not_meet(tmp_path: Path) -> None:
    """Copies of one source, and a file and its compressed form, become sessions of their own."""
    with perdure.open(tmp_path / "store") as opened:
        report = import_sessions(opened, FORMAT, [DATA / "dsh"])
        ids = {source.session for source in report.sources}
        assert len(ids) == len(report.sources) == 7
