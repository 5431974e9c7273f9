"""Lines are read as JSON whatever they hold, and none takes more memory than it may."""

import json
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.importers.appender import _text
from perdure.importers.formats import HEAD_LINES
from perdure.importers.incremental import _head_of
from perdure.importers.json_lines import MEMBERS, WHOLE_BYTES, glance, parse
from perdure.importers.lines import Line, split
from perdure.importers.signs import writer_of
from perdure.model import values
from perdure.model.limits import DATA_BYTES_MAX
from tests.support import scaled

MB = 1_000_000
LINE_BYTES = 16 * 1024 * 1024
PEAK_MAX = 150 * 1024 * 1024
DEEP = 100_000

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(MEMBERS) | st.text(), JSON, max_size=8)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line with an object on it, or what is left of one, or anything."""
    value: Any = draw(OBJECTS | JSON)
    text = json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        put = draw(st.binary(max_size=3) | st.sampled_from([b"\\ud83d", b'"', b"{}", b"\0", b"\\"]))
        text = text[:at] + put + text[at + draw(st.integers(0, 3)) :]
    return draw(st.sampled_from([b"", b"\0\0", b" "])) + text + draw(st.sampled_from([b"", b"\n"]))


ANY = st.binary(max_size=60) | lines()


def taken(what: Callable[[], object]) -> int:
    """The most memory, in bytes, that was in use at once beside what was before."""
    tracemalloc.start()
    try:
        what()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# --- whatever they hold -------------------------------------------------------------------------


@settings(max_examples=scaled(2000))
@example(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}")
@example(b'{"type":"\xff"}')
@example(b'{"\xff":1,"type":"x"}')
@example(b'{"type":' + b"1" * 900 + b"}")
@example(b'{"time":1e400}')
@example(b'{"\\ud874ype":"\\ud874","a":"\\ud83d","\\ud83d":"a"}')
@given(ANY)
def test_glance_is_total(raw: bytes) -> None:
    """Of any bytes the small members of an object are found, or None, and nothing is raised."""
    found = glance(raw)
    whole = parse(raw)
    if whole.value is not None and whole.reason is None:
        assert found is not None
        assert {name: whole.value[name] for name in found} == found


@settings(max_examples=scaled(2000))
@example(b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", False)
@example(b'{"a":"\\ud83d"}', False)
@example(b'{"a":"\\\\ud83d \\uD83D"}\n', False)
@example(b'{"\xff":1,"type":"x"}', True)
@example(b'{"a":1} {"b":2}', False)
@example(b'{"a":1}x\n', False)
@example(b"[1]\n", False)
@example(b'{"a":1\n', False)
@given(ANY, st.booleans())
def test_long_lines_are_judged_as_short_ones(raw: bytes, first: bool) -> None:
    """Read shallowly, a line is an object, torn or wrong just when it is if it is read whole."""
    whole, shallow = parse(raw, first=first), parse(raw, first=first, whole=0)
    assert (shallow.value is None) == (whole.value is None)
    assert (shallow.reason is None) == (whole.reason is None)
    if whole.reason is not None and not whole.reason.startswith(("not JSON", "torn", "several")):
        assert shallow.reason == whole.reason
    if whole.value is not None and shallow.value is not None:
        assert shallow.value == {name: whole.value[name] for name in shallow.value}


# --- what is found ------------------------------------------------------------------------------


def test_small_members_of_a_long_line_are_found() -> None:
    """A long line gives its small members, nested ones as well, and leaves out the large ones."""
    small = {"type": "user", "forkedFrom": {"sessionId": "s"}, "own": "of another package"}
    line = json.dumps({"type": "?", "message": "x" * WHOLE_BYTES, **small}).encode()
    assert parse(line + b"\n") == (small, None)
    assert parse(line[:-1]).reason == (
        f"torn: the line ends without a newline; not JSON at byte {len(line) - 1} of the line: "
        "it ends too early"
    )
    assert glance(line) == small


def test_long_names_are_left_out() -> None:
    """A member whose name is long is none of the small ones."""
    line = b'{"type":"x","%s":0,"%s":1}\n' % (b"a" * 257, b"b" * 256)
    assert parse(line, whole=0) == ({"type": "x", "b" * 256: 1}, None)


def test_known_members_are_found_among_any_number() -> None:
    """However many members an object has, those that the formats know are found."""
    many = b",".join(b'"%d":0' % number for number in range(100_000))
    line = b'{"type":"user",%s,"sessionId":"s","uuid":"u"}' % many
    assert parse(line + b"\n") == ({"type": "user", "sessionId": "s", "uuid": "u"}, None)
    assert writer_of([glance(line) or {}]) == "claude-code"


def test_lone_surrogates_make_no_long_line_wrong() -> None:
    """A text that was cut within a character is JSON; members that show it are left out."""
    members = b'"type":"user","cwd":"/\\ud83d\\ude00","a":"\\\\ud83d"'
    line = b'{%s,"message":"%s\\ud83d"}\n' % (members, b"x" * WHOLE_BYTES)
    assert parse(line) == ({"type": "user"}, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"a":1} {"b":2}', "several records in one line, the second at byte 9 of it"),
        (b'{"a":1} x', "not JSON: something follows the record at byte 9 of the line"),
        (b'{"a":1,?', "not JSON at byte 8 of the line: expected '\"'"),
        (b'{"a":"\xff"}', "byte 7 of the line, 0xff, is not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"[" * DEEP, "not JSON: nested too deeply"),
    ],
    ids=["second", "more", "broken", "bytes", "array", "deep"],
)
def test_places_in_long_lines(text: bytes, reason: str) -> None:
    """What is wrong with a long line is said with its place in the line."""
    assert parse(b" " + text + b"\n", whole=0).reason == reason


# --- memory -------------------------------------------------------------------------------------


def filled(begin: bytes, each: bytes, end: bytes, size: int = LINE_BYTES) -> bytes:
    return begin + each * ((size - len(begin) - len(end)) // len(each)) + end


TINY = {
    "arrays": filled(b'{"message":[0', b",[]", b"]}\n"),
    "numbers": filled(b'{"message":[0', b",1", b"]}\n"),
    "objects": filled(b'{"message":[0', b',{"a":{}}', b"]}\n"),
    "members": filled(b'{"a":0', b',"b":0', b"}\n"),
    "not ended": filled(b'{"message":[0', b",[]", b""),
    "followed": filled(b'{"message":[0', b",[]", b"]}{}\n"),
    "surrogates": filled(b'{"message":"', b"\\ud83d", b'"}\n'),
    "escapes": filled(b'{"message":"\\ud83d', b"\\n", b'"}\n'),
    "not UTF-8": filled(b'{"message":"', b"\xff", b'"}\n'),
    "not UTF-8, tiny": filled(b'{"message":["\xff"', b",[]", b"]}\n"),
    "a name": filled(b'{"\xf0\x9f\x98\x80', b"x", b'":0}\n'),
    "zeros": filled(b"", b"\0", b"\n"),
    "brackets": filled(b"", b"[", b"\n"),
    "nothing": filled(b"", b"[],", b"\n"),
}


@pytest.mark.parametrize("line", TINY.values(), ids=TINY)
def test_no_line_takes_much_memory(line: bytes) -> None:
    """Reading a line of 16 MiB takes less than 150 MiB, whatever it is made of."""
    assert taken(lambda: parse(line)) < PEAK_MAX
    assert taken(lambda: glance(line)) < PEAK_MAX


def test_no_head_takes_much_memory() -> None:
    """The first lines of a source together take less than 100 MiB, whatever they are made of."""
    each = filled(b'{"type":"user","message":[0', b",{}", b"]}\n", WHOLE_BYTES)
    found: list[Any] = []
    assert taken(lambda: found.append(_head_of(split([each] * HEAD_LINES)))) < 100 * 1024 * 1024
    (head,) = found
    assert len(head.lines) == len(head.objects) > 30
    assert len(head.objects[0]["message"]) > 80_000
    assert head.objects[-1] == {"type": "user"}


def test_more_members_than_can_be_counted_take_little_memory() -> None:
    """A line of 49 MB with millions of members is looked at in hardly more room than it takes."""
    many = b",".join(b'"%07d":0' % number for number in range(4_200_000))
    line = b'{"type":"user",%s}' % many
    assert len(line) > 45 * MB
    found: list[dict[str, Any] | None] = []
    assert taken(lambda: found.append(glance(line))) < 2 * len(line)
    assert found == [{"type": "user"}]


# --- as data of an event ------------------------------------------------------------------------

UNREADABLE = [b"\xff", b"\xf0\x9f\x98", b"\x01", b'"\xff', b"\xf0\x9f\x98\x80\xff"]


@pytest.mark.parametrize("byte", UNREADABLE, ids=ascii)
def test_no_text_takes_much_memory(byte: bytes) -> None:
    """Of 15 MB that fit in no record as JSON this is known before much room is taken."""
    line = Line(1, 0, LINE_BYTES, filled(b"", byte, b"\n"))
    assert taken(lambda: _text(line)) < PEAK_MAX
    assert _text(line) is None


SIZES = st.integers(0, 3 * 1024 * 1024)


@settings(max_examples=scaled(100), deadline=None)
@example(b"\xff", (DATA_BYTES_MAX - 2) // 6, b"")
@example(b"\xff", (DATA_BYTES_MAX - 2) // 6, b"xx")
@example(b"x", 12_000_000, b"\xf0\x9f\x98\x80")
@example(b"x", 13_000_000, b"\xf0\x9f\x98\x80")
@example(b"\x01", (DATA_BYTES_MAX - 2) // 6, b"\xff")
@given(st.binary(min_size=1, max_size=6), SIZES, st.binary(max_size=3))
def test_a_text_is_data_if_a_record_holds_it(each: bytes, count: int, end: bytes) -> None:
    """A line is the data of an event just when its JSON, and its text in memory, may be so long."""
    raw = each * min(count, LINE_BYTES // len(each)) + end
    text = raw.decode("utf-8", "surrogateescape")
    # Asked before it is encoded: a text keeps that as well.
    small = sys.getsizeof(text) <= 48 * 1024 * 1024
    found = _text(Line(1, 0, len(raw), raw))
    expected = text if small and len(values.encode(text)) <= DATA_BYTES_MAX else None
    # Not compared in the assertion, which would show millions of characters.
    same = found == expected
    assert same
