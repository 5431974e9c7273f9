"""Compressed sources: torn, damaged and oversized frames, and what stands around them."""

import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions
from tests.sources import FORMAT, HEADER, TORN, data, frame, import_one, kept, record, unpacked
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


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


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


def test_memory_does_not_follow_the_text(store: perdure.Store, tmp_path: Path) -> None:
    """A small file that unpacks to a huge line takes no more memory than a record."""
    raw = frame(HEADER) + frame(b"\0" * 100_000_000) + frame(b"\n" + LINES[1])
    tracemalloc.start()
    try:
        report = imported(store, tmp_path, raw)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (report.left_out, data(kept(store, report))) == (1, [HEADER, LINES[1]])
    assert peak < 60_000_000


def test_torn_sample_loses_nothing_that_is_whole(store: perdure.Store) -> None:
    """The torn sample gives exactly the text that its bytes still hold."""
    report = import_one(store, TORN)
    assert b"".join(data(kept(store, report))) == unpacked(TORN)
    assert report.new == 181
