"""Lines too long for a record: kept as content for ever, read as every other line."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions, source_text, sync
from perdure.importers.lines import split
from perdure.model.limits import DATA_BYTES_MAX, RECORD_BYTES_MAX
from tests.media import open_medium
from tests.sources import (
    FORMAT,
    HEADER,
    Machine,
    append,
    data,
    forget,
    import_one,
    kept,
    record,
    session_of,
    text_of,
)
from tests.support import soaked

MIB = 1024 * 1024
A, B = record("a", 1), record("b", 2)
END = len(HEADER)
LONG = record("x", 5, "y" * (17 * MIB))
START, REST = LONG[:-9], LONG[-9:]


@pytest.fixture(params=["raw", *soaked("memory")])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path) as opened:
        yield opened


def imported(store: perdure.Store, folder: Path, text: bytes) -> SourceReport:
    path = folder / "session.jsonl"
    path.write_bytes(text)
    return import_one(store, path)


def counts(report: SourceReport) -> tuple[int, int, int, int]:
    return report.found, report.new, report.unchanged, report.large


def long_ones(store: perdure.Store, report: SourceReport) -> list[perdure.Event]:
    return [event for event in kept(store, report) if not isinstance(event.data, str)]


def assert_pinned(store: perdure.Store, report: SourceReport) -> None:
    """Demand that each long line is content that nothing lets expire."""
    session = session_of(report)
    assert store.expire(session, older_than=0).expired == ()
    for event in long_ones(store, report):
        content = store.blob(session, event.data["blob"])
        assert hashlib.sha256(content).hexdigest() == event.data["blob"]
        assert len(content) == event.data["bytes"]


def test_a_long_line_is_kept_as_content(store: perdure.Store, tmp_path: Path) -> None:
    """A line beyond 16 MiB is content that stays, in its place, with its own type and time."""
    text = HEADER + A + LONG + B
    report = imported(store, tmp_path, text)
    assert (counts(report), report.problems) == ((4, 4, 0, 1), ())
    (event,) = long_ones(store, report)
    assert (event.type, event.time, event.key) == (f"{FORMAT}/x", 5, f"0:{END + len(A)}")
    assert event.data == {"blob": hashlib.sha256(LONG).hexdigest(), "bytes": len(LONG)}
    assert_pinned(store, report)
    assert text_of(store, report) == text
    assert store.verify(session_of(report)).status == "ok"


@pytest.mark.parametrize("remembered", [True, False])
def test_a_long_line_is_stored_once(store: perdure.Store, tmp_path: Path, remembered: bool) -> None:
    """A source with a long line that stays, grows or is touched keeps that line as it is."""
    text = HEADER + LONG + A
    report = imported(store, tmp_path, text)
    for more, new in ((b"", 0), (B, 1), (b"", 0), (LONG, 1)):
        if not remembered:
            forget(store, report)
        text += more
        report = imported(store, tmp_path, text)
        large = 1 + (more == LONG)
        assert counts(report) == (3 + text.count(B) + (large == 2), new, report.found - new, large)
    assert len(long_ones(store, report)) == 2
    assert text_of(store, report) == text
    assert len({event.data["blob"] for event in long_ones(store, report)}) == 1


@pytest.mark.parametrize("byte", [b"\x01", b"\xff", b"\x7f"])
def test_what_counts_is_the_size_of_the_record(
    store: perdure.Store, tmp_path: Path, byte: bytes
) -> None:
    """A line of 3 MiB is content too, where each of its bytes takes six in a record."""
    line = byte * (3 * MIB) + b"\n"
    text = HEADER + line + A
    report = imported(store, tmp_path, text)
    large = int(byte != b"\x7f")
    assert counts(report) == (3, 3, 0, large)
    assert [problem.line for problem in report.problems] == [2]
    assert len(long_ones(store, report)) == large
    assert_pinned(store, report)
    assert text_of(store, report) == text
    forget(store, report)
    assert counts(imported(store, tmp_path, text)) == (3, 0, 3, large)


def test_every_size_around_the_limit_is_kept(tmp_path: Path) -> None:
    """Lines just below and above what a record holds are kept, as a record or as content."""
    shape = b'{"type":"' + b"x" * 100 + b'","d":"%s"}\n'
    sizes = [
        *range(DATA_BYTES_MAX - 40, DATA_BYTES_MAX + 20, 12),
        *range(RECORD_BYTES_MAX - 1, RECORD_BYTES_MAX + 2),
    ]
    kinds = []
    with perdure.open("memory:") as store:
        for size in sizes:
            line = shape % (b"y" * (size - len(shape) + 2))
            path = tmp_path / f"{size}.jsonl"
            path.write_bytes(HEADER + line)
            report = import_one(store, path)
            assert (len(line), report.error, report.new) == (size, None, 2)
            assert text_of(store, report) == HEADER + line
            kinds.append(report.large)
    assert (kinds[0], kinds[-1]) == (0, 1)
    assert kinds == sorted(kinds)


def test_a_line_of_several_mib_fits_in_a_record(store: perdure.Store, tmp_path: Path) -> None:
    """A line that is merely long is an event as every other."""
    text = HEADER + record("x", 1, "y" * (8 * MIB)) + A
    report = imported(store, tmp_path, text)
    assert (counts(report), report.problems) == ((3, 3, 0, 0), ())
    assert b"".join(data(kept(store, report))) == text


def test_a_long_line_may_be_the_first(store: perdure.Store, tmp_path: Path) -> None:
    """A source whose first line is content is found again, and grows."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(LONG)
    report = import_one(store, path)
    assert counts(report) == (1, 1, 0, 1)
    append(path, A)
    again = import_one(store, path)
    assert (again.session, counts(again)) == (report.session, (2, 1, 1, 1))
    assert text_of(store, again) == LONG + A
    assert_pinned(store, again)


def test_a_long_line_that_is_no_json_is_named(store: perdure.Store, tmp_path: Path) -> None:
    """A long line is looked at as far as that goes: what is no record is a problem."""
    noise = b"x" * (17 * MIB) + b"\n"
    report = imported(store, tmp_path, HEADER + noise + A)
    (problem,) = report.problems
    assert (problem.line, problem.offset, problem.reason) == (2, END, "not JSON")
    (event,) = long_ones(store, report)
    assert (event.type, event.time) == (f"{FORMAT}/record", 1700000000000)
    assert text_of(store, report) == HEADER + noise + A


# --- a long line without its end ------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [True, False])
def test_a_torn_long_line_is_completed(
    store: perdure.Store, tmp_path: Path, remembered: bool
) -> None:
    """A long line that was not whole is kept, named, and stored whole when it is."""
    report = imported(store, tmp_path, HEADER + A + START)
    assert (counts(report), report.state) == ((3, 3, 0, 1), "new")
    (problem,) = report.problems
    assert (problem.line, problem.offset) == (3, END + len(A))
    assert problem.reason.startswith("torn")
    assert text_of(store, report) == HEADER + A + START
    assert_pinned(store, report)
    if not remembered:
        forget(store, report)
    again = imported(store, tmp_path, HEADER + A + LONG + B)
    assert (counts(again), again.state, again.problems) == ((4, 2, 2, 1), "grown", ())
    assert text_of(store, again) == HEADER + A + LONG + B
    assert text_of(store, again, 0) == HEADER + A + START
    assert [event.type for event in kept(store, again)][-2:] == [f"{FORMAT}/x", f"{FORMAT}/b"]
    assert_pinned(store, again)
    assert imported(store, tmp_path, HEADER + A + LONG + B).state == "unchanged"


@pytest.mark.parametrize("remembered", [True, False])
def test_a_short_line_may_grow_long_while_it_is_written(
    store: perdure.Store, tmp_path: Path, remembered: bool
) -> None:
    """From its first bytes on, a line that is being written is followed into content."""
    states = []
    for size in (9, MIB, 16 * MIB + 100, len(LONG) - 1, len(LONG)):
        report = imported(store, tmp_path, HEADER + LONG[:size])
        states.append((report.state, report.large, report.problem_count))
        assert text_of(store, report) == HEADER + LONG[:size]
        if not remembered:
            forget(store, report)
    assert states == [
        ("new", 0, 1),
        ("grown", 0, 1),
        ("grown", 1, 1),
        ("grown", 1, 1),
        ("grown", 1, 0),
    ]


@pytest.mark.parametrize("remembered", [True, False])
def test_a_torn_long_line_that_was_withdrawn_is_followed(
    store: perdure.Store, tmp_path: Path, remembered: bool
) -> None:
    """An agent that cuts its torn long line off has rewritten its file, and goes on from there."""
    report = imported(store, tmp_path, HEADER + A + START)
    if not remembered:
        forget(store, report)
    report = imported(store, tmp_path, HEADER + A)
    assert (counts(report), report.state) == ((2, 0, 2, 0), "rewritten")
    assert text_of(store, report) == HEADER + A
    report = imported(store, tmp_path, HEADER + A + B)
    assert (counts(report), report.state) == ((3, 1, 2, 0), "grown")
    assert text_of(store, report) == HEADER + A + B


def test_a_long_line_that_was_exchanged_begins_a_generation(
    store: perdure.Store, tmp_path: Path
) -> None:
    """Another long line of the same length in its place is noticed, and both are kept."""
    report = imported(store, tmp_path, HEADER + LONG + A)
    other = LONG.replace(b"yy", b"yz", 1)
    again = imported(store, tmp_path, HEADER + other + A)
    assert (counts(again), again.state) == ((3, 2, 1, 1), "rewritten")
    assert text_of(store, again) == HEADER + other + A
    assert text_of(store, report, 0) == HEADER + LONG + A
    assert_pinned(store, again)


# --- what it says ---------------------------------------------------------------------------------


def test_a_lens_reads_a_long_line(store: perdure.Store, tmp_path: Path) -> None:
    """A message of 17 MiB is among the messages of its session, between its neighbours."""
    said = ["first", "long " * (17 * MIB // 5), "last"]
    path = tmp_path / "s.jsonl"
    for number, each in enumerate(said):
        message = {"role": "user", "content": each}
        line = {"type": "user", "uuid": f"u{number}", "sessionId": "s", "message": message}
        append(path, json.dumps(line).encode() + b"\n")
    (report,) = import_sessions(store, "claude-code", [path], runtime=Machine()).sources
    assert counts(report) == (3, 3, 0, 1)
    inspection = store.inspect(session_of(report))
    texts = [block["text"] for each in inspection.messages() for block in each["content"]]
    assert [(len(text), text[:9]) for text in texts] == [(len(each), each[:9]) for each in said]
    assert texts == said


def test_a_dry_run_keeps_no_long_line(tmp_path: Path) -> None:
    """Without storing anything, a long line is counted as it would be."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + LONG + START)
    with perdure.open("memory:") as store:
        dry = sync(store, [path], runtime=Machine(), dry_run=True)
        assert store.list() == []
        assert dry == sync(store, [path], runtime=Machine())
        assert dry.large == 2


def test_long_lines_are_counted_without_being_held() -> None:
    """A line beyond the limit has its size and place, and no text; the next one is whole."""
    lines = list(split([b"a" * 6, b"b" * 6 + b"\n", b"ok\n"], limit=10))
    assert [(line.offset, line.size, line.raw) for line in lines] == [
        (0, 13, None),
        (13, 3, b"ok\n"),
    ]


def test_content_that_went_is_kept_again(tmp_path: Path) -> None:
    """A long line whose content the store lost is stored again while its source has it."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("big", 1, "x" * 17_000_000))
    with perdure.open(tmp_path / "store") as store:
        first = import_one(store, path)
        (blob,) = store.blobs(session_of(first))
        with store.writer(session_of(first)) as writer:
            assert writer._hold is not None
            writer._backend.drop_blobs(writer._hold, [blob.digest])
        forget(store, first)
        again = import_one(store, path)
        assert (again.state, again.new) == ("unchanged", 0)
        assert [each.digest for each in store.blobs(session_of(first))] == [blob.digest]
        assert b"".join(source_text(store, session_of(first))) == path.read_bytes()
