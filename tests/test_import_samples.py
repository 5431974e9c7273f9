"""The sample logs go in and come out again, in every store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import import_sessions, session_id, source_text
from tests.sources import (
    DATA,
    FOLDERS,
    FORMAT,
    SAMPLES,
    TORN,
    data,
    import_one,
    kept,
    unpacked,
)


@pytest.fixture(params=["zst", "raw", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    kind = request.param
    location = "memory:" if kind == "memory" else str(tmp_path / "store")
    options = {} if kind == "memory" else {"encoding": kind}
    with perdure.open(location, **options) as opened:
        yield opened


def test_there_are_samples() -> None:
    """All samples of both folders are found, compressed ones among them."""
    assert len(SAMPLES) == 20
    assert sum(path.suffix == ".zstd" for path in SAMPLES) == 2


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.relative_to(DATA).as_posix())
def test_every_line_comes_out_as_it_went_in(path: Path, store: perdure.Store) -> None:
    """Each line of a sample is the data of one event, byte for byte, and in its place."""
    text = unpacked(path)
    source = import_one(store, path)
    events = kept(store, source)
    assert data(events) == [line + b"\n" for line in text.split(b"\n")[:-1]]
    assert len(events) == source.found == source.new
    assert b"".join(data(events)) == text == b"".join(source_text(store, str(source.session)))
    offsets = [int(str(event.key).partition(":")[2]) for event in events]
    assert [text[offset - 1 : offset] for offset in offsets[1:]] == [b"\n"] * (len(events) - 1)
    assert {str(event.key).partition(":")[0] for event in events} == {"0"}


def test_samples_are_verified_and_imported_once(store: perdure.Store) -> None:
    """Importing the folder twice stores every line once, and every session is sound."""
    first = import_sessions(store, FORMAT, FOLDERS)
    assert (first.found, first.new, first.unchanged) == (first.new, first.new, 0)
    assert (len(first.sources), first.failed, first.skipped) == (20, (), ())
    revisions = [entry.revision for entry in store.list()]
    assert len(revisions) == 20
    again = import_sessions(store, FORMAT, FOLDERS)
    assert (again.new, again.unchanged, again.failed) == (0, first.new, ())
    assert [entry.revision for entry in store.list()] == revisions
    assert all(store.verify(entry.id).status == "ok" for entry in store.list())


def test_only_the_torn_sample_has_a_problem(store: perdure.Store) -> None:
    """The samples are in order but for the one whose last frame was cut, which is named exactly."""
    report = import_sessions(store, FORMAT, FOLDERS)
    (problem,) = report.problems
    assert (problem.path, problem.line, problem.offset) == (str(TORN), 182, len(unpacked(TORN)))
    assert "frame at byte 29646 of the file is cut off" in problem.reason


def test_both_forms_of_one_log_hold_the_same_lines(store: perdure.Store) -> None:
    """A log and its compressed form give the same events."""
    folder = DATA / "deepseek-harness/rebuilt/--home-demo--"
    pair = sorted((folder / "session-11111111-2222-4333-8444-555555555555").iterdir())
    plain, squeezed = (kept(store, import_one(store, path)) for path in pair)
    assert plain == squeezed


def test_header_says_where_it_comes_from(store: perdure.Store) -> None:
    """Id, folder and time of the source stand in the header; the caller owns the event types."""
    path = DATA / "dsh/08-fork-child-with-seed.jsonl"
    source = import_one(store, path)
    header = store.inspect(str(source.session)).header
    assert header is not None
    assert header.source is not None
    assert (header.source.format, header.source.path) == (FORMAT, str(path))
    assert header.source.id == "ada8966c-9fa3-441b-8721-37ff1e795e6a"
    assert (header.cwd, header.created_at, header.vocabulary) == ("{{cwd}}", 1783352137161, None)
    assert header.id == session_id(FORMAT, str(path), header.source.id)


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
