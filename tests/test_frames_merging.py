"""Compaction of a compressed log: fewer and larger frames, the same lines."""

import itertools
import random
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.session import turn_events
from perdure.backends.directory import framing
from perdure.backends.directory.frames import TRAILER_BYTES, ZstdLayout
from perdure.backends.directory.lines import RawLayout
from perdure.backends.directory.merging import CannotCompact
from perdure.durable.appending import ReadFile
from perdure.durable.files import Folder
from perdure.model.event import Draft, draft
from perdure.model.header import encode_header, new_header
from perdure.model.record import Position, Record, decode_line, seal
from perdure.model.values import encode
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Walk
from perdure.store.drafts import drafts_of
from tests.support import scaled

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER = new_header("s", created_at=1)
HEAD = ZstdLayout.header(encode_header(HEADER))
KIB = 1024

Commits = Sequence[Sequence[Record]]
Opener = Callable[[bytes], ReadFile]


class CountingFile(ReadFile):
    """A file that knows how often and how much was read of it."""

    reads = 0
    amount = 0

    def read(self, start: int, size: int) -> bytes:
        self.reads += 1
        data = super().read(start, size)
        self.amount += len(data)
        return data


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[bytes], CountingFile]]:
    """Give a function that stores bytes as a log and opens it."""
    tmp_path.chmod(0o700)
    folder = Folder.open(str(tmp_path))
    files: list[ReadFile] = []

    def store(data: bytes) -> CountingFile:
        path = tmp_path / f"log{len(files)}"
        path.touch(mode=0o600)
        path.write_bytes(data)
        files.append(file := CountingFile(folder, path.name))
        path.unlink()
        return file

    yield store
    for file in files:
        file.close()
    folder.close()


def sealed(batches: Iterable[Sequence[Draft]], *, pack: bool = True) -> Commits:
    """The records of several commits behind the header."""
    position = Position(-1, HEADER.genesis)
    commits = []
    for batch in batches:
        commits.append(seal(position, batch, pack=pack))
        position = commits[-1][-1].position
    return commits


def one(text: str) -> Draft:
    return draft("note", text, time=1)


def noise(rng: random.Random, size: int) -> str:
    """Text that does not compress to less than three quarters."""
    return "".join(map(chr, (rng.randrange(35, 91) for _ in range(size))))


def small(count: int, size: int = 100) -> Commits:
    """Commits of one event each."""
    return sealed([[one(f"{number:08}" + "x" * size)] for number in range(count)])


def turns(count: int) -> Commits:
    """The bench session in commits of one event."""
    events = itertools.chain.from_iterable(turn_events(number) for number in range(count))
    return sealed([each] for each in drafts_of(events, 0))


def log(commits: Commits) -> bytes:
    return HEAD + b"".join(map(ZstdLayout.commit, commits))


def plain(commits: Commits) -> bytes:
    return encode_header(HEADER) + b"".join(record.line for each in commits for record in each)


def frames(data: bytes) -> list[tuple[bytes, bytes]]:
    """Each frame and what follows it, found without the code under test."""
    found = []
    while data:
        decompressor = zstd.ZstdDecompressor()
        decompressor.decompress(data)
        frame = data[: len(data) - len(decompressor.unused_data)]
        data = data[len(frame) :]
        found.append((frame, data[:48]))
        data = data[48:]
    return found


def compact(file: ReadFile) -> bytes:
    return b"".join(ZstdLayout.compacted(file, file.size()))


def found_from(file: ReadFile, start: int) -> list[bytes]:
    return [line for piece in ZstdLayout.pieces(file, start) for line in piece.lines]


def rewritten(trailer: bytes, offset: int, value: int) -> bytes:
    """A trailer with another number at `offset`, its checksum right."""
    body = trailer[8:offset] + struct.pack("<q", value) + trailer[offset + 8 : 44]
    return trailer[:8] + body + struct.pack("<I", zlib.crc32(body))


# --- what stays as it is ----------------------------------------------------------------------


def test_lines_stay_as_they_are(opened: Opener) -> None:
    """A compacted log holds the same lines in the same order, and decompresses to the same text."""
    commits = small(4000)
    before = log(commits)

    after = compact(opened(before))

    assert b"".join(zstd.decompress(frame) for frame, _ in frames(after)) == plain(commits)
    # As zstdcat does, which steps over trailers.
    assert zstd.decompress(after) == zstd.decompress(before) == plain(commits)
    assert found_from(opened(after), 0) == found_from(opened(before), 0)
    assert len(after) < len(before) / 3


def test_header_stays_where_it_is(opened: Opener) -> None:
    """The header's frame is copied byte for byte, and the records begin where they began."""
    before = opened(log(small(100)))
    after = opened(compact(before))
    assert after.read(0, len(HEAD)) == HEAD
    assert ZstdLayout.read_header(after) == ZstdLayout.read_header(before)


def test_merged_frames_have_a_size(opened: Opener) -> None:
    """Merged frames hold 128 to 320 KiB, all but the last, each with the trailer that it needs."""
    commits = small(6000)
    records = [record for commit in commits for record in commit]

    found = frames(compact(opened(log(commits))))[1:]

    assert len(found) > 3
    at = 0
    for number, (frame, trailer) in enumerate(found, 1):
        lines = zstd.decompress(frame).splitlines(keepends=True)
        size = sum(map(len, lines))
        assert size <= 320 * KIB
        assert size >= 128 * KIB or number == len(found)
        tail = records[at + len(lines) - 1]
        parsed = framing.parse_trailer(trailer, len(frame))
        assert parsed == (len(frame), at, tail.last, len(frame), bytes.fromhex(tail.hash[:16]))
        assert zstd.get_frame_info(frame).decompressed_size == size
        assert frame[4] & 0x04, "no checksum"
        at += len(lines)
    assert at == len(records)


def test_compacted_log_is_complete(opened: Opener) -> None:
    """A compacted log is verified to the same position as before, and nothing is wrong with it."""
    commits = turns(5)
    file = opened(compact(opened(log(commits))))
    pieces = ZstdLayout.pieces(file, len(HEAD))
    with Walk(HEADER, pieces, known=Known(commits[-1][-1].position), begin=len(HEAD)) as walk:
        read = [record.line for record in walk.records()]
    assert walk.verdict is Verdict.COMPLETE
    assert walk.position == commits[-1][-1].position
    assert read == [record.line for commit in commits for record in commit]


def test_compacting_twice_changes_nothing(opened: Opener, rng: random.Random) -> None:
    """What was compacted gives the same bytes again, and is not worth compacting."""
    sizes = [rng.choice([10, 1000, 60_000, 120_000, 200_000]) for _ in range(60)]
    mixed = sealed([[one("x" * size)] for size in sizes])
    for commits in (small(6000, 1000), mixed, small(1), small(2)):
        after = compact(opened(log(commits)))
        assert compact(opened(after)) == after
        assert not ZstdLayout.worth_compacting(opened(after), len(after))


def test_large_frames_are_copied(opened: Opener, rng: random.Random) -> None:
    """A frame of 128 KiB or more is copied byte for byte with its trailer, between merged ones."""
    few = [[one("a")], [one("b")]]
    large = [[one(noise(rng, 130 * KIB))], [one("l" * 140 * KIB)], [one("m" * 300 * KIB)]]
    commits = sealed([*few, large[0], *few, *large[1:], *few])
    before = frames(log(commits))

    after = frames(compact(opened(log(commits))))

    assert len(after) == len(before) - 3
    kept = [number for number, (frame, _) in enumerate(before) if frame in dict(after)]
    assert kept == [0, 3, 6, 7]
    for number in kept:
        assert before[number] in after


def test_frames_without_a_size_are_copied(opened: Opener) -> None:
    """A frame that does not say how much it holds is copied, however small it is."""
    first, middle, last = small(3)
    compressor = zstd.ZstdCompressor(level=3)
    frame = compressor.compress(middle[0].line) + compressor.flush()
    assert zstd.get_frame_info(frame).decompressed_size is None
    trailer = ZstdLayout.commit(middle)[-TRAILER_BYTES:]
    data = log([first]) + frame + rewritten(trailer, 28, len(frame)) + ZstdLayout.commit(last)
    assert compact(opened(data)) == data


def test_largest_record_is_copied(opened: Opener, rng: random.Random) -> None:
    """A record of 15 MB stays as it is and is found, compressed well or badly."""
    bulk = noise(rng, 256 * KIB) * 60
    commits = sealed([[one("a")], [one("b")], [one(bulk)], [one("c")], [one("d")]])
    assert len(commits[2][0].line) > 15_000_000

    after = opened(compact(opened(log(commits))))

    text = zstd.decompress(after.read(0, after.size()))
    assert text == plain(commits), "another text"
    for number in range(5):
        place = ZstdLayout.seek(after, len(HEAD), number)
        numbers = [decode_line(line).first for line in found_from(after, place)]
        assert numbers == list(range(numbers[0], 5))
        assert numbers[0] <= number


@pytest.mark.parametrize(
    "extra",
    [b"torn", bytes(100), ZstdLayout.commit(small(1)[0])],
    ids=["noise", "zeros", "a commit"],
)
def test_what_stands_behind_the_end_is_left_out(opened: Opener, extra: bytes) -> None:
    """Only what stands before the end is taken over."""
    data = log(small(50))
    file = opened(data + extra)
    assert b"".join(ZstdLayout.compacted(file, len(data))) == compact(opened(data))


@pytest.mark.parametrize("size", [10, 200 * KIB])
def test_lost_trailer_of_the_last_frame_is_made(opened: Opener, size: int) -> None:
    """A last frame without its trailer is taken over, and gets one."""
    commits = sealed([[one("a" * size)], [one("b" * size)], [one("c" * size)]])
    data = log(commits)
    assert compact(opened(data[:-TRAILER_BYTES])) == compact(opened(data))


def test_compacting_reaches_its_bound(opened: Opener) -> None:
    """The bench session in commits of one event takes at most 0.4 of its events as plain JSON."""
    commits = turns(200)
    events = sum(len(encode(each)) + 1 for number in range(200) for each in turn_events(number))
    assert events < 0.6 * len(plain(commits))
    assert len(log(commits)) > 0.9 * len(plain(commits))

    after = compact(opened(log(commits)))

    assert len(after) <= 0.4 * events
    assert len(after) <= 0.25 * len(plain(commits))


@pytest.mark.proof
def test_any_commits_keep_their_lines(opened: Opener, rng: random.Random) -> None:
    """Whatever the commits were, the lines are the same, and every event is found by its number."""
    for _ in range(scaled(200)):
        batches = []
        for _ in range(rng.randrange(1, 60)):
            most = rng.choice([100, 3000, 70_000, 140_000])
            text = rng.choice([noise(rng, 2000) * 70, "y" * 140_000])
            cuts = [rng.randrange(most) for _ in range(rng.choice([1, 1, 1, 2, 5, 12]))]
            batches.append([one(text[:cut]) for cut in cuts])
        commits = sealed(batches, pack=rng.random() < 0.5)
        before = opened(log(commits))

        after = opened(compact(before))

        assert found_from(after, 0) == found_from(before, 0)
        assert compact(after) == after.read(0, after.size())
        assert not ZstdLayout.worth_compacting(after, after.size())
        for record in [record for commit in commits for record in commit]:
            for seq in {record.first, record.last}:
                place = ZstdLayout.seek(after, len(HEAD), seq)
                piece = next(ZstdLayout.pieces(after, place))
                assert piece.flaw is None
                assert decode_line(piece.lines[0]).first <= seq <= decode_line(piece.lines[-1]).last


# --- what it costs ----------------------------------------------------------------------------


def test_memory_is_bounded(opened: Opener, rng: random.Random) -> None:
    """Compacting 50 MB of lines takes a few MiB of memory."""
    texts = [noise(rng, 500) * 2 for _ in range(100)]
    batches = ([one(texts[number % 100])] * 30 for number in range(1600))
    position, parts, size = Position(-1, HEADER.genesis), [HEAD], 0
    for batch in batches:
        records = seal(position, batch, pack=False)
        position = records[-1].position
        size += sum(len(record.line) for record in records)
        parts.append(ZstdLayout.commit(records))
    assert size > 50_000_000
    file = opened(b"".join(parts))
    del parts
    tracemalloc.start()
    try:
        length = sum(map(len, ZstdLayout.compacted(file, file.size())))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < length < file.size()
    assert peak < 4 * KIB * KIB


@pytest.mark.proof
def test_a_lost_trailer_costs_one_frame(opened: Opener, rng: random.Random) -> None:
    """Wherever a trailer is missing, a number is found at most one frame too early."""
    commits = small(400, 40)
    parts = [ZstdLayout.commit(commit) for commit in commits]
    for lost in rng.sample(range(len(parts)), scaled(len(parts))):
        kept = [*parts]
        kept[lost] = kept[lost][:-TRAILER_BYTES]
        file = opened(HEAD + b"".join(kept))
        for number, commit in enumerate(commits):
            place = ZstdLayout.seek(file, len(HEAD), commit[0].first)
            exact = len(HEAD) + sum(map(len, kept[:number]))
            assert exact - len(kept[number - 1]) - len(kept[lost]) <= place <= exact


def test_finding_a_number_reads_little(opened: Callable[[bytes], CountingFile]) -> None:
    """A number is found in a compacted log by halving, not by reading."""
    file = opened(compact(opened(log(small(20_000, 400)))))
    frames_there = len(frames(file.read(0, file.size())))
    assert frames_there > 30
    for seq in range(0, 20_000, 997):
        file.reads = 0
        place = ZstdLayout.seek(file, len(HEAD), seq)
        assert file.reads <= 2 * frames_there.bit_length() + 4
        piece = next(ZstdLayout.pieces(file, place))
        assert decode_line(piece.lines[0]).first <= seq
        # Never further away than the frame before.
        lines = itertools.islice(ZstdLayout.pieces(file, place), 3)
        assert any(decode_line(piece.lines[-1]).last >= seq for piece in lines)


# --- whether it is worth while ----------------------------------------------------------------


def test_many_small_frames_are_worth_it(opened: Opener) -> None:
    """More than 1 MiB of small frames is worth compacting, less is not."""
    data = log(small(6000, 1000))
    assert len(data) > 2 * KIB * KIB // 3
    sizes = [len(frame) + TRAILER_BYTES for frame, _ in frames(data)]
    ends = list(itertools.accumulate(sizes))
    file = opened(data)
    for end in ends[::500]:
        assert ZstdLayout.worth_compacting(file, end) == (end - sizes[0] > KIB * KIB)


def test_half_of_the_log_has_to_be_small(opened: Opener, rng: random.Random) -> None:
    """Small frames are worth it if they are more than half of the log, wherever they stand."""
    text = noise(rng, 600_000)
    few = [[one(text[at : at + 2000])] for at in range(0, 600_000, 500)]
    for large, wanted in ((1, True), (6, False)):
        many = [[one(text + noise(rng, 10))] for _ in range(large)]
        for batches in (few + many, many + few, few[::2] + many + few[1::2]):
            data = log(sealed(batches))
            assert ZstdLayout.worth_compacting(opened(data), len(data)) is wanted


def test_lonely_small_frames_are_not_worth_it(opened: Opener, rng: random.Random) -> None:
    """Small frames that no other small one stands beside cannot be merged and do not count."""
    text = noise(rng, 120_000)
    pair = [[one(text)], [one("x" * 200_000)]]
    data = log(sealed(pair * 20))
    assert len(data) > KIB * KIB
    assert compact(opened(data)) == data
    assert not ZstdLayout.worth_compacting(opened(data), len(data))


def test_asking_costs_little(opened: Callable[[bytes], CountingFile], rng: random.Random) -> None:
    """Of a log with few small frames little is read, and of one with many the half."""
    large = [[one(noise(rng, 150 * KIB))]] * 40
    file = opened(log(sealed(large + [[one("x")]] * 100)))
    assert not ZstdLayout.worth_compacting(file, file.size())
    assert file.amount < file.size() / 20
    assert file.reads < 40

    file = opened(log(small(20_000)))
    assert ZstdLayout.worth_compacting(file, file.size())
    assert file.amount < 0.6 * file.size()
    assert file.reads < 40


@pytest.mark.parametrize("end", [0, 1, 60])
def test_asking_about_anything_is_answered(opened: Opener, rng: random.Random, end: int) -> None:
    """A log that is empty, torn or no log at all is not worth it."""
    assert not ZstdLayout.worth_compacting(opened(b""), end)
    data = log(small(20_000))
    assert not ZstdLayout.worth_compacting(opened(data + b"torn"), len(data) + 4)
    assert not ZstdLayout.worth_compacting(opened(rng.randbytes(3_000_000)), 3_000_000)
    assert not ZstdLayout.worth_compacting(opened(data[:1000]), len(data))


# --- what is refused --------------------------------------------------------------------------


def damaged() -> Iterator[tuple[str, bytes]]:
    """Logs that hold something else than sound frames."""
    commits = small(6)
    parts = [part for frame in frames(log(commits)) for part in frame]

    def joined(number: int, part: bytes) -> bytes:
        return b"".join([*parts[:number], part, *parts[number + 1 :]])

    foreign = framing.compress(b"no record\n", 2, commits[2][0].position, {})
    frame, trailer = parts[6], parts[7]
    yield "empty frames", joined(6, zstd.compress(b"") + frame)
    yield "noise between frames", joined(6, b"noise" + frame)
    yield "noise before a trailer", joined(7, b"noise" + trailer)
    yield "a damaged trailer", joined(7, trailer[:-1] + bytes([trailer[-1] ^ 1]))
    yield "no trailer", joined(7, b"")
    yield "two trailers", joined(7, trailer * 2)
    yield "a damaged frame", joined(6, frame[:-9] + bytes([frame[-9] ^ 1]) + frame[-8:])
    yield "a damaged last frame", joined(12, parts[12][:-1] + b"\0")
    yield "a frame with no record", joined(6, foreign + frame)
    yield "a frame of other lines", joined(6, foreign[:-48])
    yield "another length", joined(7, rewritten(trailer, 28, 7))
    yield "another first event", joined(7, rewritten(trailer, 12, 1))
    yield "another last event", joined(7, rewritten(trailer, 20, 3))
    yield "another hash", joined(7, rewritten(trailer, 36, 3))
    yield "a frame twice", joined(6, frame + trailer + frame)
    yield "a lost frame", b"".join([*parts[:6], *parts[8:]])
    yield "a torn end", b"".join(parts)[:-5]
    yield "an end inside a frame", b"".join(parts)[:-60]
    yield "no log", b"no frame at all"


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in damaged()])
def test_whatever_else_is_there_is_not_destroyed(opened: Opener, data: bytes) -> None:
    """A log that holds anything but sound frames of records is refused."""
    with pytest.raises(CannotCompact) as caught:
        compact(opened(data))
    assert caught.value.reason


@pytest.mark.proof
def test_damage_is_refused_or_kept(opened: Opener, rng: random.Random) -> None:
    """However a log was damaged, compaction refuses it or keeps every line and every flaw."""
    large = [[one(noise(rng, 140_000))], [one("x" * 200_000)]]
    few = [[one(noise(rng, rng.randrange(300)))] * rng.randrange(1, 4) for _ in range(40)]
    whole = log(sealed([*few[:15], *large, *few[15:]]))
    refused = 0
    for _ in range(scaled(3000)):
        at, size = rng.randrange(len(whole)), rng.choice([1, 1, 8, 100, 5000])
        at = rng.choice([at, rng.randrange(4000), len(whole) - rng.randrange(1, 4000)])
        other = rng.choice([b"", rng.randbytes(size), whole[at : at + size] * 2, bytes(size)])
        data = whole[:at] + other + whole[at + size :]
        before = opened(data)
        ZstdLayout.worth_compacting(before, len(data))
        try:
            after = opened(compact(before))
        except CannotCompact:
            refused += 1
            continue
        kept = [(piece.lines, piece.flaw) for piece in ZstdLayout.pieces(before, 0)]
        flat = [line for lines, _ in kept for line in lines]
        assert found_from(after, 0) == flat, "lines were lost"
        flaws = sum(piece.flaw is not None for piece in ZstdLayout.pieces(after, 0))
        assert flaws == sum(flaw is not None for _, flaw in kept)
        for file in (before, after):
            file.close()
    assert refused > scaled(3000) / 3


def test_a_record_of_another_log_is_refused(opened: Opener) -> None:
    """Records that do not link to the ones before are not merged, whatever their trailers say."""
    ours, others = small(6), small(6, 99)
    for rest in (others[3:], [*others[3:4], *ours[4:]]):
        with pytest.raises(CannotCompact):
            compact(opened(log([*ours[:3], *rest])))


def test_a_link_behind_a_copied_frame_is_checked(opened: Opener) -> None:
    """The record behind a frame that was only copied has to link to it."""
    ours, others = (
        sealed([[one(text)], [one("x" * 150_000)], [one("b")], [one("c")]]) for text in "ac"
    )
    assert compact(opened(log(ours)))
    with pytest.raises(CannotCompact):
        compact(opened(log([*ours[:2], *others[2:]])))


# --- plain logs -------------------------------------------------------------------------------


def test_plain_logs_have_nothing_to_gain(opened: Opener) -> None:
    """A log of plain lines is never worth compacting, says so, and would come out as it is."""
    data = plain(small(20_000))
    file = opened(data + b"torn")
    assert (RawLayout.compactable, ZstdLayout.compactable) == (False, True)
    assert not RawLayout.worth_compacting(file, len(data))
    assert b"".join(RawLayout.compacted(file, len(data))) == data
