"""Records: sealed, linked, packed, and read back exactly."""

import hashlib
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidValue
from perdure.model import limits, values
from perdure.model.event import Draft, Event, draft
from perdure.model.record import BadRecordError, Position, Record, decode_line, digest, seal
from perdure.testing.strategies import commits, drafts, nested, streams
from tests.support import scaled

START = Position(-1, "0" * 64)


def sealed(batches: Sequence[Sequence[Draft]], *, pack: bool = True) -> list[Record]:
    """The records of several commits, one behind the other."""
    records: list[Record] = []
    for batch in batches:
        records += seal(records[-1].position if records else START, batch, pack=pack)
    return records


def exactly(events: Sequence[Event]) -> list[tuple[Any, ...]]:
    """All that is stored of each event, the bytes of its data included."""
    return [(e.seq, e.type, e.time, e.agent, e.turn, e.key, e.ignorable, e.raw) for e in events]


def line_of(**members: Any) -> bytes:
    """A record line with whatever members, its checksum right."""
    usual = {"seq": 0, "prev": "0" * 64, "type": "a", "time": 1, **members}
    usual.setdefault("data", usual.pop("data", None))
    body = values.encode(usual)[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


@settings(max_examples=scaled(1000))
@given(commits(), st.booleans())
def test_lines_give_back_the_events(batches: list[list[Draft]], pack: bool) -> None:
    """Events sealed in any commits come back from their lines exactly, packed or not."""
    flat = [one for batch in batches for one in batch]
    wanted = exactly([one.at(seq) for seq, one in enumerate(flat)])

    read = [decode_line(record.line) for record in sealed(batches, pack=pack)]

    assert exactly([event for record in read for event in record.events()]) == wanted


@settings(max_examples=scaled(500))
@given(st.lists(streams(), min_size=1, max_size=3), st.data())
def test_any_partition_gives_the_same_events(runs: list[list[Draft]], data: st.DataObject) -> None:
    """How events were divided into commits is not seen in what is read."""
    flat = [one for run in runs for one in run]
    cuts = sorted(data.draw(st.sets(st.integers(1, len(flat)), max_size=4)))
    batches = [
        batch
        for start, end in zip([0, *cuts], [*cuts, len(flat)], strict=True)
        if (batch := flat[start:end])
    ]
    whole = [event for record in sealed([flat]) for event in record.events()]

    parts = [event for record in sealed(batches) for event in record.events()]

    assert exactly(parts) == exactly(whole)


@settings(max_examples=scaled(500))
@given(commits())
def test_each_record_links_to_the_line_before(batches: list[list[Draft]]) -> None:
    """`prev` is the hash of the line before, numbers have no gaps, the checksum ends the line."""
    position = START
    for record in sealed(batches):
        assert (record.prev, record.first) == (position.hash, position.seq + 1)
        assert record.hash == hashlib.sha256(record.line).hexdigest() == digest(record.line)
        body = record.line[: -len(b',"crc":"00000000"}\n')]
        assert record.line == b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
        assert record.line.count(b"\n") == 1
        position = record.position


@settings(max_examples=scaled(1000))
@given(streams(max_size=30), st.integers(0, 40))
def test_a_record_is_read_from_its_middle(stream: list[Draft], start: int) -> None:
    """Asking for events from a sequence number on gives exactly those."""
    records = sealed([stream])
    every = [event for record in records for event in record.events()]

    assert [e for r in records for e in r.events(start)] == [e for e in every if e.seq >= start]


@settings(max_examples=scaled(1000))
@given(drafts())
def test_sealing_and_decoding_agree(made: Draft) -> None:
    """A record that was sealed says of itself what its line says when read."""
    fresh = seal(START, [made])[0]
    read = decode_line(fresh.line)

    assert (read.first, read.last, read.prev, read.hash) == (
        fresh.first,
        fresh.last,
        fresh.prev,
        fresh.hash,
    )
    assert exactly(read.events()) == exactly(fresh.events())


def deltas(count: int, **members: Any) -> list[Draft]:
    return [
        draft("assistant/delta", {"text": f"piece {n}"}, time=1000 + n, **members)
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (1, [1]),
        (2, [1, 1]),
        (limits.RUN_EVENTS_MIN, [3]),
        (limits.RUN_EVENTS_MAX, [1024]),
        (limits.RUN_EVENTS_MAX + 1, [1024, 1]),
    ],
)
def test_runs_have_their_size(count: int, sizes: list[int]) -> None:
    """Three equal neighbours make a run, 1,024 are the most."""
    assert [r.last - r.first + 1 for r in sealed([deltas(count)])] == sizes
    assert [r.last - r.first + 1 for r in sealed([deltas(count)], pack=False)] == [1] * count


def test_a_run_is_a_line_that_names_the_differences() -> None:
    """A packed run has the data of the first event, the path, the time steps and the strings."""
    run = [draft("d", {"x": ["a", text]}, time=t) for text, t in (("b", 5), ("c", 9), ("b", 2))]
    record = sealed([run])[0]
    members = values.decode(record.line)

    assert list(members) == ["seq", "prev", "type", "time", "path", "dt", "more", "data", "crc"]
    assert (members["path"], members["dt"], members["more"]) == (["x", 1], [4, -7], ["c", "b"])
    assert members["data"] == {"x": ["a", "b"]}


def test_members_stand_in_their_order() -> None:
    """A single event has its members in the documented order, absent ones left out."""
    full = draft("a", 1, time=5, agent="x", turn="t", key="k", ignorable=True)

    assert list(values.decode(sealed([[full]])[0].line)) == [
        "seq", "prev", "type", "time", "agent", "turn", "key", "ignorable", "data", "crc"
    ]  # fmt: skip
    assert list(values.decode(sealed([[draft("a", 1, time=5)]])[0].line)) == [
        "seq", "prev", "type", "time", "data", "crc"
    ]  # fmt: skip


NOT_PACKED: list[tuple[str, list[Draft]]] = [
    ("keys", [draft("d", "x", time=0, key=str(n)) for n in range(3)]),
    ("ignorable", [draft("d", "x", time=0, ignorable=True) for _ in range(3)]),
    ("types", [draft(f"d{n}", "x", time=0) for n in range(3)]),
    ("agents", [draft("d", "x", time=0, agent=str(n)) for n in range(3)]),
    ("turns", [draft("d", "x", time=0, turn=str(n)) for n in range(3)]),
    ("numbers", [draft("d", {"a": n}, time=0) for n in range(3)]),
    ("two strings", [draft("d", [str(n), str(n)], time=0) for n in range(3)]),
    ("no string", [draft("d", [1], time=0) for _ in range(3)]),
    (
        "order of keys",
        [draft("d", d, time=0) for d in ({"a": "", "b": ""}, {"b": "", "a": ""})] * 2,
    ),
    ("sign of zero", [draft("d", ["x", z], time=0) for z in (0.0, -0.0, 0.0)]),
    ("one and true", [draft("d", ["x", z], time=0) for z in (1, True, 1.0)]),
    ("length", [draft("d", ["x"] * n, time=0) for n in range(1, 4)]),
    ("names", [draft("d", {name: "x"}, time=0) for name in "abc"]),
]


@pytest.mark.parametrize("made", [made for _, made in NOT_PACKED], ids=[n for n, _ in NOT_PACKED])
def test_neighbours_that_differ_in_more_are_not_packed(made: list[Draft]) -> None:
    """Whatever differs in more than one string, or has a key, stays a record of its own."""
    records = sealed([made])

    assert len(records) == len(made)
    assert exactly([e for r in records for e in r.events()]) == exactly(
        [one.at(seq) for seq, one in enumerate(made)]
    )


def test_a_run_ends_at_a_mebibyte() -> None:
    """A run never holds more than 1 MiB of data."""
    big = [draft("d", str(n) + "x" * 300_000, time=0) for n in range(6)]
    records = sealed([big])

    assert [r.last - r.first + 1 for r in records] == [3, 3]
    assert max(len(r.line) for r in records) < limits.RUN_BYTES_MAX + 1024


def test_a_record_ends_at_its_limit() -> None:
    """Data just below the limit is one record; what exceeds 16 MiB in its line is refused."""
    # heinzel 14
    room = limits.RECORD_BYTES_MAX - 64 * 1024 - 2
    long = draft("a", "x" * room, time=0)
    wide = draft("a", "x" * room, time=0, agent="\0" * 256, turn="\0" * 256, key="\0" * 1024)
    assert decode_line(seal(START, [long])[0].line).first == 0
    assert decode_line(seal(START, [wide])[0].line).first == 0

    line = seal(START, [draft("a", "x", time=0)])[0].line
    padding = limits.RECORD_BYTES_MAX - len(line)
    body = line[: -len(b',"crc":"00000000"}\n')].replace(b'"x"', b'"x%s"' % (b"y" * padding))
    longest = b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
    assert len(longest) == limits.RECORD_BYTES_MAX
    assert decode_line(longest).last == 0
    over = body.replace(b'"x', b'"xy')
    with pytest.raises(BadRecordError):
        decode_line(b'%s,"crc":"%08x"}\n' % (over, zlib.crc32(over)))


def test_a_draft_too_long_for_a_record_is_refused_whole() -> None:
    """If one line of a commit would be too long, none of the commit is sealed."""
    draft_beyond = Draft("a", 0, None, None, None, False, None, b" " * limits.RECORD_BYTES_MAX)

    with pytest.raises(InvalidValue):
        seal(START, [draft("a", 1, time=0), draft_beyond])


BAD_LINES: list[tuple[str, bytes]] = [
    ("empty", b"\n"),
    ("no newline", line_of()[:-1]),
    ("unknown member", line_of(v=1)),
    ("unknown member beside a lone surrogate", line_of(data="\ud800", v=1)),
    ("bool for a number", line_of(seq=True)),
    ("float for a number", line_of(time=1.0)),
    ("negative number", line_of(seq=-1)),
    ("negative number beside a lone surrogate", line_of(seq=-1, data="\ud800")),
    ("short link", line_of(prev="0" * 63)),
    ("capital link", line_of(prev="A" * 64)),
    ("type that is no string", line_of(type=5)),
    ("type that is none", line_of(type="A b")),
    ("type with a newline", line_of(type="a\n")),
    ("type that is none beside a lone surrogate", line_of(type="A", data="\ud800")),
    ("time out of range", line_of(time=2**53)),
    ("empty agent", line_of(agent="")),
    ("long turn", line_of(turn="t" * 257)),
    ("long key", line_of(key="k" * 1025)),
    ("run out of time", line_of(path=[], dt=[2**53 - 1, 0], more=["a", "b"], data="x")),
    ("agent that is no string", line_of(agent=5)),
    ("path alone", line_of(path=["a"], data={"a": "x"})),
    ("strings alone", line_of(more=["a", "b"], data="x")),
    ("steps too few", line_of(path=[], dt=[1], more=["a", "b"], data="x")),
    ("run of two", line_of(path=[], dt=[1], more=["a"], data="x")),
    ("run too long", line_of(path=[], dt=[0] * 1024, more=["a"] * 1024, data="x")),
    ("run with a key", line_of(path=[], dt=[1, 1], more=["a", "b"], key="k", data="x")),
    (
        "run that may be ignored",
        line_of(path=[], dt=[1, 1], more=["a", "b"], ignorable=True, data="x"),
    ),
    ("path to nothing", line_of(path=["b"], dt=[1, 1], more=["a", "b"], data={"a": "x"})),
    ("path to a number", line_of(path=["a"], dt=[1, 1], more=["a", "b"], data={"a": 1})),
    ("path into a string", line_of(path=["a", 0], dt=[1, 1], more=["a", "b"], data={"a": "x"})),
    ("path from the end", line_of(path=[-1], dt=[1, 1], more=["a", "b"], data=["x"])),
    ("strings that are none", line_of(path=[], dt=[1, 1], more=["a", 1], data="x")),
    (
        "strings that are none beside a lone surrogate",
        line_of(path=[], dt=[1, 1], more=["\ud800", 1], data="x"),
    ),
]


@pytest.mark.parametrize(
    "line", [line for _, line in BAD_LINES], ids=[name for name, _ in BAD_LINES]
)
def test_what_is_no_record_is_refused(line: bytes) -> None:
    """A line that is not exactly a record is refused, even when its checksum is right."""
    # heinzel 12
    with pytest.raises(BadRecordError):
        decode_line(line)


@settings(max_examples=scaled(500))
@given(drafts(), st.data())
def test_a_changed_byte_is_noticed(made: Draft, data: st.DataObject) -> None:
    """A record line in which any byte was changed, lost or doubled is no record."""
    line = seal(START, [made])[0].line
    at = data.draw(st.integers(0, len(line) - 1))
    other = data.draw(st.integers(0, 255))
    assume(other != line[at])

    for changed in (
        line[:at] + bytes([other]) + line[at + 1 :],
        line[:at] + line[at + 1 :],
        line[: at + 1] + line[at:] + b"",
    ):
        if changed != line:
            with pytest.raises(BadRecordError):
                decode_line(changed)


def test_the_deepest_data_is_read_back() -> None:
    """Data at the limit of depth survives a packed run, a lone surrogate in it included."""
    run = [draft("d", {"deep": nested(199), "text": text}, time=0) for text in ("a", "\ud800", "c")]
    records = sealed([run])

    assert len(records) == 1
    assert exactly(decode_line(records[0].line).events()) == exactly(
        [one.at(seq) for seq, one in enumerate(run)]
    )


def test_a_mark_in_the_data_misleads_nobody() -> None:
    """Strings made of what marks the place of the string that differs are packed exactly."""
    evil = ['"' + "\0" * count for count in range(40)] + ["\0" * count for count in range(40)]
    made = [draft("x", {"t": str(n), "e": evil}, time=n) for n in range(4)]
    (record,) = seal(Position(-1, "0" * 64), made)
    assert [event.data["t"] for event in decode_line(record.line).events(0)] == ["0", "1", "2", "3"]
    assert [event.data["e"] for event in record.events(0)] == [evil] * 4
