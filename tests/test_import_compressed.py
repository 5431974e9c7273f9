"""Compressed sources: torn, damaged and oversized frames, and what stands around them."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions, source_text
from perdure.importers.stored_lines import maybe_compressed, source_bytes
from tests.sources import (
    FORMAT,
    HEADER,
    TORN,
    append,
    bytes_of,
    data,
    flipped,
    forget,
    frame,
    import_one,
    kept,
    of_type,
    record,
    session_of,
    text_of,
    unpacked,
)
from tests.support import scaled

LINES = [HEADER, *(record("n", number, "text " * number) for number in range(1, 8))]


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


def imported(store: perdure.Store, folder: Path, raw: bytes) -> SourceReport:
    path = folder / "session.jsonl.zstd"
    path.write_bytes(raw)
    return import_one(store, path)


def test_frames_make_one_text(store: perdure.Store, tmp_path: Path) -> None:
    """Frames of any cut, empty ones and skippable ones give the lines of their joined text."""
    text = b"".join(LINES)
    skippable = struct.pack("<II", 0x184D2A53, 7) + b"skipped"
    raw = skippable + frame(b"") + frame(text[:100]) + skippable + frame(text[100:150])
    report = imported(store, tmp_path, raw + frame(text[150:], checksum=False) + skippable)
    assert report.problems == ()
    assert data(kept(store, report)) == LINES


def test_content_decides_not_the_name(store: perdure.Store, tmp_path: Path) -> None:
    """A plain file named as compressed and a compressed one named as plain are read as they are."""
    (tmp_path / "a.jsonl.zstd").write_bytes(b"".join(LINES))
    (tmp_path / "b.jsonl").write_bytes(frame(b"".join(LINES)))
    for source in import_sessions(store, FORMAT, [tmp_path]).sources:
        assert (source.problems, data(kept(store, source))) == ((), LINES)


def test_torn_frame_gives_its_whole_lines(store: perdure.Store, tmp_path: Path) -> None:
    """Wherever the last frame is cut, its whole lines are kept and the fragment is named."""
    noise = random.Random(5)
    text = b"".join(record("n", n, noise.randbytes(40_000).hex()) for n in range(6))
    whole, last = frame(HEADER), frame(text)
    report = imported(store, tmp_path, whole + last[: len(last) * 2 // 3])
    lines = data(kept(store, report))
    assert 1 < len(lines) < 7
    assert (HEADER + text).startswith(b"".join(lines))
    (problem,) = report.problems
    assert (problem.line, problem.offset) == (len(lines) + 1, sum(map(len, lines)))
    assert f"frame at byte {len(whole)} of the file is cut off" in problem.reason
    assert "a fragment of" in problem.reason
    healed = imported(store, tmp_path, whole + last)
    assert (healed.new, healed.unchanged) == (7 - len(lines), len(lines))
    assert b"".join(data(kept(store, healed))) == HEADER + text


@pytest.mark.parametrize("left", [1, 3, 4, 7])
def test_stump_of_a_frame_is_named(store: perdure.Store, tmp_path: Path, left: int) -> None:
    """A few bytes of a frame that was never written are a torn frame without lines."""
    report = imported(store, tmp_path, frame(HEADER) + frame(LINES[1])[:left])
    assert data(kept(store, report)) == [HEADER]
    assert [(problem.line, problem.offset) for problem in report.problems] == [(2, len(HEADER))]
    assert "cut off" in report.problems[0].reason


def test_every_cut_of_a_file_keeps_the_frames_before(
    store: perdure.Store, tmp_path: Path, rng: random.Random
) -> None:
    """A file cut anywhere gives every line whose frame is whole, in order, and nothing else."""
    frames = [frame(line) for line in LINES]
    raw = b"".join(frames)
    ends = [sum(map(len, frames[: count + 1])) for count in range(len(frames))]
    for cut in rng.sample(range(ends[0], len(raw)), min(scaled(200), len(raw) - ends[0])):
        path = tmp_path / f"{cut}.jsonl.zstd"
        path.write_bytes(raw[:cut])
        report = import_one(store, path)
        lines = data(kept(store, report))
        whole = sum(end <= cut for end in ends)
        assert lines == LINES[: len(lines)]
        assert whole <= len(lines) <= whole + 1
        assert report.problem_count == (0 if cut in ends else 1)


def test_damaged_frame_costs_that_frame_only(
    store: perdure.Store, tmp_path: Path, rng: random.Random
) -> None:
    """Wherever a bit of a middle frame flips, the lines of all other frames are kept."""
    frames = [frame(line) for line in LINES]
    start = sum(map(len, frames[:3]))
    for at in rng.sample(range(len(frames[3])), min(scaled(200), len(frames[3]))):
        path = tmp_path / f"{at}.jsonl.zstd"
        path.write_bytes(flipped(b"".join(frames), start + at))
        report = import_one(store, path)
        assert data(kept(store, report)) in (LINES[:3] + LINES[4:], LINES)
        if report.new < len(LINES):
            (problem,) = report.problems
            assert (problem.line, problem.offset) == (4, sum(map(len, LINES[:3])))
            assert f"bytes {start} to {start + len(frames[3])} of the file" in problem.reason


def test_damage_in_front_of_a_torn_frame(store: perdure.Store, tmp_path: Path) -> None:
    """A damaged frame does not take the torn one behind it along."""
    middle, last = frame(LINES[1]), frame(b"".join(LINES[2:]))
    raw = frame(HEADER) + flipped(middle, len(middle) - 1) + last[:-2]
    report = imported(store, tmp_path, raw)
    assert data(kept(store, report)) == [HEADER, *LINES[2:]]
    assert len(report.problems) == 2


def test_damaged_first_frame(store: perdure.Store, tmp_path: Path) -> None:
    """A file that lost its header, magic number included, gives all the rest."""
    for at in (0, 6, len(frame(HEADER)) - 1):
        path = tmp_path / str(at) / "session.jsonl.zstd"
        path.parent.mkdir()
        path.write_bytes(flipped(b"".join(map(frame, LINES)), at))
        (report,) = import_sessions(store, FORMAT, [path.parent]).sources
        assert data(kept(store, report)) == LINES[1:]
        assert {problem.line for problem in report.problems} == {1}


def test_noise_between_frames(store: perdure.Store, tmp_path: Path) -> None:
    """Bytes that belong to no frame, zero bytes at the end included, are named and passed."""
    raw = frame(HEADER) + b"noise" + frame(LINES[1]) + b"\0" * 4096
    report = imported(store, tmp_path, raw)
    assert data(kept(store, report)) == LINES[:2]
    assert [problem.line for problem in report.problems] == [2, 3]


def test_file_without_a_whole_line_is_skipped(store: perdure.Store, tmp_path: Path) -> None:
    """A compressed file of which nothing can be read makes no session."""
    report = imported(store, tmp_path, frame(HEADER)[:9])
    assert (report.session, report.new, report.skipped) == (None, 0, "holds no whole line")
    assert store.list() == []


def test_memory_does_not_follow_the_text(tmp_path: Path) -> None:
    """A small file that unpacks to a huge line costs that line, no memory, and keeps its bytes."""
    raw = frame(HEADER) + frame(b"\0" * 300_000_000) + frame(b"\n" + LINES[1])
    with perdure.open(tmp_path / "store") as store:
        tracemalloc.start()
        try:
            report = imported(store, tmp_path, raw)
            forget(store, report)
            again = import_one(store, Path(report.path))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (report.large, report.problem_count, again.unchanged) == (0, 1, 2)
        (problem,) = report.problems
        assert (problem.line, problem.offset) == (2, len(HEADER))
        assert "300000001 bytes is left out" in problem.reason
        assert b"".join(source_text(store, session_of(report))) == HEADER + LINES[1]
        assert b"".join(source_bytes(store, session_of(report))) == raw
    assert peak < 160_000_000


def test_torn_sample_loses_nothing_that_is_whole(store: perdure.Store) -> None:
    """The torn sample gives exactly the text that its bytes still hold."""
    report = import_one(store, TORN)
    assert text_of(store, report) == unpacked(TORN)
    assert report.new == 181
    assert bytes_of(store, report) == TORN.read_bytes()


# --- the file itself ------------------------------------------------------------------------------


def test_a_compressed_file_is_kept_as_it_grows(store: perdure.Store, tmp_path: Path) -> None:
    """Of a compressed source the very bytes are kept, only new ones each time, none twice."""
    frames = [frame(line) for line in LINES]
    path = tmp_path / "session.jsonl.zstd"
    path.write_bytes(frames[0])
    report = import_one(store, path)
    for number, each in enumerate(frames[1:], start=2):
        append(path, each)
        report = import_one(store, path)
        assert (report.found, report.new) == (number, 1)
        assert import_one(store, path).state == "unchanged"
        assert bytes_of(store, report) == path.read_bytes()
    parts = of_type(store, report, "source/bytes")
    assert [event.data["bytes"] for event in parts] == [len(each) for each in frames]
    forget(store, report)
    assert import_one(store, path).state == "unchanged"
    assert of_type(store, report, "source/bytes") == parts


def test_the_bytes_of_a_plain_file_are_its_lines(store: perdure.Store, tmp_path: Path) -> None:
    """Of a source that is not compressed nothing is kept besides its lines."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(LINES))
    report = import_one(store, path)
    assert len(list(store.read_from(session_of(report)))) == len(LINES)
    assert list(store.blobs(session_of(report))) == []


def test_a_file_that_was_compressed_anew_is_kept_anew(store: perdure.Store, tmp_path: Path) -> None:
    """The same text in other bytes has no new line; plain, compressed, cut in other frames."""
    whole = b"".join(LINES)
    report = imported(store, tmp_path, whole)
    path = Path(report.path)
    for raw in (frame(whole), b"".join(map(frame, LINES)), frame(whole)):
        path.write_bytes(raw)
        report = import_one(store, path)
        assert (report.state, report.new, report.unchanged) == ("unchanged", 0, len(LINES))
        assert bytes_of(store, report) == raw
        assert text_of(store, report) == whole
        forget(store, report)
        assert import_one(store, path).state == "unchanged"
    assert len(of_type(store, report, "source/bytes")) == 3


def test_bytes_of_a_torn_file_are_kept(store: perdure.Store, tmp_path: Path) -> None:
    """What is left of a frame that was cut off is kept as it is, though no line of it is known."""
    frames = [frame(line) for line in LINES]
    whole = b"".join(frames)
    raw = whole[:-5]
    report = imported(store, tmp_path, raw)
    assert (report.problem_count, bytes_of(store, report)) == (1, raw)
    again = imported(store, tmp_path, whole)
    assert (again.problem_count, again.session) == (0, report.session)
    assert (bytes_of(store, again), text_of(store, again)) == (whole, b"".join(LINES))


def test_a_frame_that_is_damaged_later_takes_nothing_away(
    store: perdure.Store, tmp_path: Path, rng: random.Random
) -> None:
    """Damage to a file that was imported begins a generation; what was read before it stays."""
    frames = [frame(line) for line in LINES]
    whole = b"".join(frames)
    damaged = rng.randrange(1, len(frames))
    end = sum(map(len, frames[: damaged + 1]))
    report = imported(store, tmp_path, whole)
    worse = imported(store, tmp_path, flipped(whole, end - 1))
    assert (worse.state, worse.problem_count) == ("rewritten", 1)
    assert data(kept(store, worse))[: len(LINES)] == LINES
    assert text_of(store, worse) == b"".join(LINES[:damaged] + LINES[damaged + 1 :])
    healed = imported(store, tmp_path, whole)
    assert (healed.problem_count, healed.session) == (0, report.session)
    assert text_of(store, healed) == text_of(store, healed, 0) == b"".join(LINES)
    assert bytes_of(store, healed) == whole
    assert store.verify(session_of(healed)).status == "ok"


def test_a_file_that_cannot_be_read_any_more_changes_nothing(
    store: perdure.Store, tmp_path: Path
) -> None:
    """Where all frames are damaged the source is told to be gone, and what is stored stays."""
    raw = frame(b"".join(LINES))
    report = imported(store, tmp_path, raw)
    broken = imported(store, tmp_path, flipped(raw, len(raw) - 1))
    assert (broken.state, broken.session) == ("gone", report.session)
    assert broken.reason == "no whole line can be read in the file"
    assert len(of_type(store, report, "source/gone")) == 1
    assert text_of(store, report) == b"".join(LINES)
    assert b"".join(source_bytes(store, session_of(report))) == raw
    assert imported(store, tmp_path, raw).state == "unchanged"
    assert len(of_type(store, report, "source/found")) == 1


@pytest.mark.parametrize("remembered", [True, False])
def test_what_grew_behind_a_torn_frame_is_compared(
    store: perdure.Store, tmp_path: Path, rng: random.Random, *, remembered: bool
) -> None:
    """A writer that goes on behind a frame that was cut off takes the lines of that frame away.

    A torn frame gives its whole lines while it is the last. Behind it stands a whole one now, and
    nobody can say what of it is text: the lines begin anew in front of it, though the file begins
    with all that was seen of it.
    """
    torn = frame(b"".join(record("n", n, rng.randbytes(40_000).hex()) for n in range(6)))
    before = frame(HEADER) + torn[: len(torn) * 2 // 3]
    first = imported(store, tmp_path, before)
    assert first.found > 1
    if not remembered:
        forget(store, first)
    report = imported(store, tmp_path, before + frame(LINES[1]))
    assert (report.state, report.session) == ("rewritten", first.session)
    with perdure.open("memory:") as other:
        fresh = import_one(other, Path(report.path))
        assert text_of(store, report) == text_of(other, fresh) == HEADER + LINES[1]
        assert report.problems == fresh.problems
    assert b"".join(source_bytes(store, session_of(report))) == before + frame(LINES[1])


def test_a_long_line_behind_a_fragment_is_kept_whole(store: perdure.Store, tmp_path: Path) -> None:
    """Behind missing text, too, a line too long for a record is kept as it is."""
    long = record("x", 5, "y" * (17 * 1024 * 1024))
    lost = frame(LINES[2])
    raw = frame(HEADER + LINES[1][:7]) + flipped(lost, len(lost) - 1) + frame(LINES[3] + long)
    report = imported(store, tmp_path, raw)
    assert (report.found, report.large, report.problem_count) == (3, 1, 1)
    assert text_of(store, report) == HEADER + LINES[3] + long
    assert [event.type for event in kept(store, report)][2:] == [f"{FORMAT}/x"]
    forget(store, report)
    assert import_one(store, Path(report.path)).state == "unchanged"


@pytest.mark.parametrize("remembered", [True, False])
def test_a_source_comes_out_in_the_form_that_it_has_now(
    store: perdure.Store, tmp_path: Path, *, remembered: bool
) -> None:
    """A file that stops or begins to be compressed is given back as it is, grown or not."""
    path = tmp_path / "session.jsonl"
    whole, more = b"".join(LINES[:4]), b"".join(LINES)
    forms = [(whole, whole), (frame(whole), whole), (whole, whole)]
    forms += [(frame(whole, checksum=False), whole), (frame(whole), whole), (more, more)]
    forms += [(frame(more), more), (more, more), (b"".join(map(frame, LINES)), more), (more, more)]
    path.write_bytes(b"".join(LINES[:2]))
    report = import_one(store, path)
    for raw, text in forms:
        path.write_bytes(raw)
        report = import_one(store, path)
        assert report.state in ("grown", "unchanged")
        assert maybe_compressed(store, session_of(report)) or raw == text
        for generation in (None, 0):
            assert b"".join(source_bytes(store, session_of(report), generation)) == raw
        if not remembered:
            forget(store, report)
        assert (import_one(store, path).state, text_of(store, report)) == ("unchanged", text)
    assert len(of_type(store, report, "source/plain")) == 4
    assert not maybe_compressed(store, session_of(report))


def test_the_form_before_a_rewrite_belongs_to_its_generation(
    store: perdure.Store, tmp_path: Path
) -> None:
    """What was compressed when it was rewritten comes out so, what was plain comes out plain."""
    path = tmp_path / "session.jsonl"
    other = LINES[0] + LINES[5]
    forms = [frame(LINES[0] + LINES[1]), other, frame(LINES[0] + LINES[2]), LINES[0] + LINES[3]]
    sessions = set()
    for raw in forms:
        path.write_bytes(raw)
        sessions.add(session_of(import_one(store, path)))
    (session,) = sessions
    found = [b"".join(source_bytes(store, session, number)) for number in range(len(forms))]
    assert found == forms
