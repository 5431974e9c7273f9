"""Walking a log: what is proven, where the proof ends, who is to blame, what stands behind."""

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.event import Draft, draft
from perdure.model.header import Header, new_header
from perdure.model.limits import RECORD_BYTES_MAX
from perdure.model.record import Position, Record, decode_line, seal
from perdure.recovery import walk as walking
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import PROBLEMS_MAX, Known, Piece, Problem, Walk
from tests.support import scaled

HEADER = new_header("s", created_at=0)
START = Position(-1, HEADER.genesis)
GARBAGE = b'{"seq":3,"prev":"what is th\n'


def some(count: int, start: Position = START, text: str = "event") -> list[Record]:
    return seal(start, [draft("x", f"{text} {n}", time=n) for n in range(count)], pack=False)


def as_pieces(lines: Iterable[bytes | str]) -> list[Piece]:
    """One piece for each line; a string stands for bytes that hold no lines."""
    pieces, at = [], 0
    for line in lines:
        if isinstance(line, str):
            pieces.append(Piece(at, at + 10, (), flaw=line))
            at += 10
        else:
            pieces.append(Piece(at, at + len(line), (line,)))
            at += len(line)
    return pieces


def over(
    pieces: Iterable[Piece],
    known: Position | None,
    header: Header = HEADER,
    *,
    local: bool = False,
) -> tuple[Walk, list[Record]]:
    walk = Walk(header, iter(list(pieces)), known=Known(known), local=local)
    return walk, list(walk.records())


def over_lines(lines: Sequence[bytes | str], known: Position | None) -> tuple[Walk, list[Record]]:
    return over(as_pieces(lines), known)


def lines_of(records: Iterable[Record]) -> list[bytes | str]:
    return [record.line for record in records]


def replaced(record: Record, data: Any = "forged", prev: str | None = None) -> Record:
    """Another record in its place, its checksum right."""
    start = Position(record.first - 1, prev or record.prev)
    return seal(start, [draft("x", data, time=0)])[0]


def hashes(records: Iterable[Record]) -> list[str]:
    return [record.hash for record in records]


# --- all is well --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_an_intact_log_is_proven_to_its_end(count: int) -> None:
    """Every record of an intact log is given out, and the end is complete."""
    records = some(count)
    walk, found = over_lines(lines_of(records), records[-1].position)

    assert hashes(found) == hashes(records)
    assert walk.position == records[-1].position
    assert walk.end == walk.acknowledged_end == sum(len(r.line) for r in records)
    assert (walk.problem, walk.further, walk.verdict) == (None, [], Verdict.COMPLETE)


def test_an_empty_log_stands_at_its_genesis() -> None:
    """A log without records is complete and stands before event 0."""
    walk, found = over_lines([], None)

    assert (found, walk.position, walk.verdict) == ([], START, Verdict.COMPLETE)


def test_records_beyond_the_acknowledged_position_are_kept() -> None:
    """Intact records that nobody acknowledged are kept, and the end is ahead."""
    records = some(5)
    walk, found = over_lines(lines_of(records), records[2].position)

    assert hashes(found) == hashes(records)
    assert walk.acknowledged_end == sum(len(r.line) for r in records[:3])
    assert walk.verdict is Verdict.AHEAD


def test_a_last_record_without_its_newline_is_kept() -> None:
    """A last record that is whole but for its newline counts."""
    # case 2
    records = some(3)
    lines = [records[0].line, records[1].line, records[2].line[:-1]]
    walk, found = over_lines(lines, records[1].position)

    assert hashes(found) == hashes(records)
    assert (walk.unterminated, walk.verdict) == (True, Verdict.UNTERMINATED)
    assert walk.end == sum(map(len, lines))


# --- the end is torn ----------------------------------------------------------------------------

TORN = {
    "half a record": lambda line: line[: len(line) // 2],
    "first byte": lambda line: line[:1],
    "all but two bytes": lambda line: line[:-2],
    "zeros": lambda line: b"\0" * len(line),
    "half a character": lambda line: line[:40] + "日".encode()[:2],
    "a whole line of noise": lambda line: b"x" * len(line) + b"\n",
    "an empty line": lambda _: b"\n",
}


@pytest.mark.parametrize("tear", TORN.values(), ids=list(TORN))
@pytest.mark.parametrize("evidence", [True, False])
def test_a_torn_end_is_told_from_damage(tear: Any, *, evidence: bool) -> None:
    """What a dead writer left behind the acknowledged end is torn, with or without evidence."""
    # case 3, 4
    records = some(3)
    known = records[-1].position if evidence else None
    rest = tear(some(1, records[-1].position)[0].line)
    walk, found = over_lines([*lines_of(records), rest], known)

    assert hashes(found) == hashes(records)
    assert walk.verdict is Verdict.TORN
    assert walk.problem is not None
    assert (walk.problem.record, walk.problem.start) == (3, walk.end)


def test_bytes_behind_a_frame_are_torn() -> None:
    """Bytes that are no frame, behind the acknowledged end, are torn."""
    records = some(3)
    walk, _ = over_lines([*lines_of(records), "incomplete frame"], records[-1].position)

    assert walk.verdict is Verdict.TORN
    assert walk.problem == Problem("frame", 3, walk.end, walk.end + 10, "incomplete frame")


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("evidence", [True, False])
def test_a_changed_record_ends_the_proof(at: int, *, evidence: bool) -> None:
    """The proof ends before a changed record; what is intact behind it can still be had."""
    # heinzel 8; case 1
    records = some(6)
    lines = lines_of(records)
    lines[at] = bytes(lines[at][:-9]) + b"x" + bytes(lines[at][-8:])  # type: ignore[arg-type]
    known = records[-1].position if evidence else None
    walk, found = over_lines(lines, known)

    assert hashes(found) == hashes(records[:at])
    damaged = evidence or at < 5
    assert walk.verdict is (Verdict.DAMAGED if damaged else Verdict.TORN)
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("record", at)
    assert walk.problem.end - walk.problem.start == len(lines[at])
    if evidence:
        assert hashes(walk.later()) == hashes(records[at + 1 :])


@pytest.mark.parametrize("at", range(5))
def test_a_missing_record_is_a_gap(at: int) -> None:
    """Where a record is missing, the number that should follow is named."""
    records = some(6)
    walk, found = over_lines(lines_of(records[:at] + records[at + 1 :]), records[-1].position)

    assert hashes(found) == hashes(records[:at])
    assert walk.verdict is Verdict.DAMAGED
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("sequence", at)
    assert hashes(walk.later()) == hashes(records[at + 1 :])


def test_a_doubled_record_is_a_fault_of_the_sequence() -> None:
    """A record that is there twice, its number as well, ends the proof."""
    # case 11
    records = some(4)
    walk, found = over_lines(lines_of([*records[:3], records[2], records[3]]), records[-1].position)

    assert hashes(found) == hashes(records[:3])
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("sequence", 3)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_replaced_record_is_the_one_that_is_blamed(at: int) -> None:
    """If what follows links to the original, the forged record is left out, not the next one."""
    records = some(6)
    forged = [*records[:at], replaced(records[at]), *records[at + 1 :]]
    walk, found = over_lines(lines_of(forged), records[-1].position)

    assert hashes(found) == hashes(records[:at])
    assert walk.verdict is Verdict.DAMAGED
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("link", at)
    assert walk.problem.start == sum(len(r.line) for r in records[:at])
    # Which one is the original is a guess, so the other one is still to be seen.
    assert hashes(walk.later()) == hashes([decode_line(forged[at].line), *records[at + 1 :]])


@pytest.mark.parametrize("at", range(1, 5))
def test_a_record_from_elsewhere_is_the_one_that_is_blamed(at: int) -> None:
    """If a record links to nothing here and nothing links to it, the one before it stays proven."""
    records = some(6)
    foreign = replaced(records[at], prev="f" * 64)
    walk, found = over_lines(
        lines_of([*records[:at], foreign, *records[at + 1 :]]), records[-1].position
    )

    assert hashes(found) == hashes(records[:at])
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("link", at)


def test_a_link_at_the_end_is_judged_by_the_evidence() -> None:
    """Of the last two records that do not link, the acknowledged one is the original."""
    records = some(3)
    walk, found = over_lines(
        lines_of([records[0], replaced(records[1]), records[2]]), records[2].position
    )
    assert hashes(found) == hashes(records[:1])
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("link", 1)

    foreign = replaced(records[2], prev="f" * 64)
    walk, found = over_lines(lines_of([*records[:2], foreign]), records[2].position)
    assert hashes(found) == hashes(records[:2])
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("link", 2)


def test_records_of_another_header_are_a_swapped_header() -> None:
    """If the first record does not link to the header, they do not belong together."""
    foreign = some(3, Position(-1, "f" * 64))
    walk, found = over_lines(lines_of(foreign), foreign[-1].position)

    assert (found, walk.verdict) == ([], Verdict.DAMAGED)
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("header", 0)


def test_a_rewritten_end_contradicts_the_evidence() -> None:
    """A last record that fits but is not the acknowledged one is noticed."""
    # heinzel 8, 9
    records = some(3)
    walk, found = over_lines(lines_of([*records[:2], replaced(records[2])]), records[2].position)

    assert hashes(found) == hashes(records[:2])
    assert walk.verdict is Verdict.DAMAGED
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("evidence", 2)


@pytest.mark.parametrize("kept", range(3))
def test_a_missing_end_contradicts_the_evidence(kept: int) -> None:
    """A log that ends before the acknowledged position is damaged, though each record is intact."""
    # heinzel 8
    records = some(3)
    walk, found = over_lines(lines_of(records[:kept]), records[2].position)

    assert hashes(found) == hashes(records[:kept])
    assert walk.verdict is Verdict.DAMAGED
    assert walk.problem is not None
    assert (walk.problem.kind, walk.problem.record) == ("missing-tail", kept)
    assert walk.problem.start == walk.problem.end == walk.end


def test_an_acknowledged_position_lies_at_the_end_of_a_record() -> None:
    """A position inside a packed run was never acknowledged, so the evidence does not fit."""
    run = seal(START, [draft("d", str(n), time=0) for n in range(5)])
    assert len(run) == 1
    walk, found = over_lines(lines_of(run), Position(2, run[0].hash))

    assert (found, walk.verdict) == ([], Verdict.DAMAGED)
    assert walk.problem is not None
    assert walk.problem.kind == "evidence"


def test_the_end_of_the_proof_within_a_frame_is_damage() -> None:
    """A frame is written and torn as one: if it decodes, a flaw inside it is no torn tail."""
    records = some(4)
    lines = [records[2].line, GARBAGE]
    at = sum(len(r.line) for r in records[:2])
    framed = Piece(at, at + 20, lines, framed=True)
    walk, found = over([*as_pieces(lines_of(records[:2])), framed], records[1].position)

    assert hashes(found) == hashes(records[:3])
    assert walk.verdict is Verdict.DAMAGED


# --- noise and rescue ---------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [GARBAGE, b"\n", b"\0\0\0\n", "incomplete or damaged frame"])
@pytest.mark.parametrize("count", [1, 5, 63])
def test_noise_between_records_hides_nothing(noise: bytes | str, count: int) -> None:
    """Where the chain goes on behind bytes that belong to no record, nothing is missing."""
    records = some(4)
    lines = [*lines_of(records[:2]), *[noise] * count, *lines_of(records[2:])]
    walk, found = over_lines(lines, records[-1].position)

    assert hashes(found) == hashes(records)
    assert (walk.problem, walk.verdict) == (None, Verdict.COMPLETE)
    assert [(p.kind, p.record) for p in walk.further] == [("noise", 2)] * count


def test_noise_without_end_ends_the_proof() -> None:
    """After 64 unreadable lines in a row the proof is given up; what follows is only rescued."""
    records = some(4)
    lines = [*lines_of(records[:2]), *[GARBAGE] * 64, *lines_of(records[2:])]
    walk, found = over_lines(lines, records[-1].position)

    assert hashes(found) == hashes(records[:2])
    assert walk.verdict is Verdict.DAMAGED
    assert hashes(walk.later()) == hashes(records[2:])


def test_damaged_places_are_listed_up_to_a_bound() -> None:
    """However many places are damaged, at most a hundred are listed."""
    records = some(2)
    lines: list[bytes | str] = [records[0].line]
    lines += [b"garbage %d\n" % n for n in range(3 * PROBLEMS_MAX)]
    walk, _ = over_lines([*lines, records[1].line], records[1].position)
    rescued = list(walk.later())

    assert hashes(rescued) == hashes(records[1:])
    assert len(walk.further) == PROBLEMS_MAX


def fused(records: Sequence[Record], between: bytes = b"") -> bytes:
    return between.join(record.line[:-1] for record in records) + b"\n"


@pytest.mark.parametrize("between", [b"", b'{"seq":9,"prev":"to', b"\0\0", b"}{", b" "])
def test_records_fused_into_one_line_are_rescued(between: bytes) -> None:
    """Records that lost the newline between them are all found behind the damage."""
    # case 2
    records = some(6)
    lines = [records[0].line, fused(records[1:5], between), records[5].line]
    walk, found = over_lines(lines, records[-1].position)

    assert hashes(found) == hashes(records[:1])
    assert hashes(walk.later()) == hashes(records[1:])


@pytest.mark.parametrize("seed", [b'{"seq":', b'{"seq":1,"crc":"00000000"}', b',"crc":"00000000"}'])
def test_rescue_is_bounded(seed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile line costs no more than a multiple of its length to search."""
    checked = []

    def counting(line: bytes) -> Record:
        checked.append(len(line))
        return decode_line(line)

    monkeypatch.setattr(walking, "decode_line", counting)
    line = seed * (200_000 // len(seed)) + b"\n"
    walk, found = over_lines([line], None)

    assert (found, list(walk.later())) == ([], [])
    assert sum(checked) <= 17 * len(line) + 2 * RECORD_BYTES_MAX


# --- pages and forks ----------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(5))
def test_a_page_is_proven_from_its_first_record(start: int) -> None:
    """A pass that begins in the middle takes its first record as it comes and checks the rest."""
    records = some(6)
    walk, found = over(as_pieces(lines_of(records[start:])), records[-1].position, local=True)
    assert hashes(found) == hashes(records[start:])
    assert walk.verdict is Verdict.COMPLETE

    lines = lines_of(records[start:])
    lines[-1] = replaced(records[-1]).line
    walk, found = over(as_pieces(lines), records[-1].position, local=True)
    assert hashes(found) == hashes(records[start:-1])
    assert walk.verdict is Verdict.DAMAGED


def forked(named: str | None, kind: str = "session/forked") -> tuple[Header, list[Record]]:
    """A fork of two inherited events, its first own event naming a header."""
    child = new_header("child", created_at=1, seed=2, genesis=HEADER.genesis)
    inherited = some(2)
    data = {"header": named or child.digest, "session": "s", "seq": 1}
    own = seal(inherited[-1].position, [draft(kind, data, time=1), draft("x", 1, time=2)])
    return child, [*inherited, *own]


def test_a_fork_is_bound_to_its_own_header() -> None:
    """A fork shares its parent's records and is proven by the event that names its own header."""
    child, records = forked(None)
    walk, found = over(as_pieces(lines_of(records)), records[-1].position, child)
    assert hashes(found) == hashes(records)
    assert walk.verdict is Verdict.COMPLETE

    for other_child, wrong in (forked("f" * 64), forked(None, "x")):
        walk, found = over(as_pieces(lines_of(wrong)), wrong[-1].position, other_child)
        assert hashes(found) == hashes(wrong[:2])
        assert walk.verdict is Verdict.DAMAGED
        assert walk.problem is not None
        assert walk.problem.kind == "header"


# --- whatever happens ---------------------------------------------------------------------------


@st.composite
def ruins(draw: st.DrawFn) -> tuple[list[Record], int, list[bytes | str], bool]:
    """A log, how far it was acknowledged, and what is left of its lines."""
    count = draw(st.integers(1, 8))
    drafts: list[Draft] = [
        draft("x", f"{n}" * draw(st.integers(1, 30)), time=n) for n in range(count)
    ]
    records = seal(START, drafts, pack=draw(st.booleans()))
    known = draw(st.integers(0, len(records) - 1))
    lines = lines_of(records)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, max(0, len(lines) - 1)))
        how = draw(st.sampled_from(("cut", "flip", "double", "noise", "swap", "frame", "short")))
        line = lines[at] if lines else b""
        if how == "cut":
            lines[at : at + 1] = []
        elif how == "flip" and isinstance(line, bytes) and line:
            place = draw(st.integers(0, len(line) - 1))
            lines[at] = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        elif how == "double":
            lines[at:at] = [line]
        elif how == "noise":
            lines[at:at] = [draw(st.binary(max_size=20)).replace(b"\n", b"") + b"\n"]
        elif how == "swap":
            lines[at : at + 2] = lines[at : at + 2][::-1]
        elif how == "frame":
            lines[at:at] = ["damaged frame"]
        elif isinstance(line, bytes) and line:
            lines[at] = line[: draw(st.integers(0, len(line)))]
    return records, known, lines, draw(st.booleans())


@settings(max_examples=scaled(5000))
@given(ruins())
def test_nothing_unproven_passes_and_nothing_acknowledged_is_dropped(
    ruin: tuple[list[Record], int, list[bytes | str], bool],
) -> None:
    """What is given out is a prefix of what was written; without damage it has all acknowledged."""
    records, known, lines, evidence = ruin
    position = records[known].position if evidence else None
    walk, found = over_lines(lines, position)

    assert hashes(found) == hashes(records[: len(found)])
    assert walk.position == (found[-1].position if found else START)
    if evidence and walk.verdict is not Verdict.DAMAGED:
        assert len(found) > known
    if evidence and lines[: known + 1] == lines_of(records[: known + 1]):
        assert walk.verdict is not Verdict.DAMAGED
    if walk.verdict is Verdict.DAMAGED:
        assert walk.problem is not None
        rescued = {record.hash for record in walk.later()}
        assert rescued <= set(hashes(records))


@settings(max_examples=scaled(1000))
@given(st.lists(st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b" ") + b"\n")))
def test_any_bytes_can_be_walked(lines: list[bytes]) -> None:
    """Bytes from anywhere are walked without an error and prove nothing."""
    walk, found = over_lines(list(lines), None)

    assert (found, walk.position) == ([], START)
    assert list(walk.later()) == []


def test_a_correct_checksum_alone_proves_nothing() -> None:
    """A line that was made to have the right checksum still has to fit the chain."""
    records = some(2)
    body = records[1].line[: -len(b',"crc":"00000000"}\n')].replace(b"event 1", b"event 7")
    forged = b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
    walk, found = over_lines([records[0].line, forged], records[1].position)

    assert hashes(found) == hashes(records[:1])
    assert walk.verdict is Verdict.DAMAGED
