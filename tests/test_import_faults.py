"""Files that are wrong: every intact line is kept, and what is wrong is named with its place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions
from perdure.importers.json_lines import parse
from perdure.importers.lines import split
from perdure.model.limits import RECORD_BYTES_MAX
from tests.sources import FORMAT, HEADER, data, import_one, kept, record

A, B = record("a", 1), record("b", 2)
END = len(HEADER)


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


def imported(store: perdure.Store, folder: Path, text: bytes) -> SourceReport:
    path = folder / "session.jsonl"
    path.write_bytes(text)
    return import_one(store, path)


def places(report: SourceReport) -> list[tuple[int, int]]:
    return [(problem.line, problem.offset) for problem in report.problems]


def types(store: perdure.Store, report: SourceReport) -> list[str]:
    return [event.type.removeprefix(f"{FORMAT}/") for event in kept(store, report)]


@pytest.mark.parametrize(
    ("line", "kind", "reason"),
    [
        (b'{"type":"x","time":3\n', "record", "not JSON at byte 20 of the line"),
        (b"not json\n", "record", "not JSON at byte 0 of the line"),
        (
            b'{"type":"x"}{"type":"y"}\n',
            "record",
            "several records in one line, the second at byte 12",
        ),
        (b'{"type":"x"} rest\n', "record", "something follows the record at byte 13"),
        (b'["x"]\n', "record", "not a JSON object"),
        (b'{"type":"x","data":NaN}\n', "record", "not JSON: NaN is not JSON"),
        (b'{"type":"x","data":"\xff\xfe"}\n', "x", "byte 20 of the line, 0xff, is not UTF-8"),
        (b'{"type":"\xff\n', "record", "byte 9 of the line, 0xff, is not UTF-8"),
        (b"\0" * 4096 + b'{"type":"x"}\n', "x", "a run of 4096 zero bytes"),
        (b"\0" * 512 + b"\n", "record", "a run of 512 zero bytes"),
        (b'{"type":"x","a":' + b"[" * 200_000 + b"\n", "record", "not JSON: nested too deeply"),
        (b'\xef\xbb\xbf{"type":"x"}\n', "record", "not JSON at byte 0 of the line"),
    ],
    ids=lambda value: None if isinstance(value, bytes) else str(value)[:24],
)
def test_line_that_is_wrong_is_kept_and_named(
    store: perdure.Store, tmp_path: Path, line: bytes, kind: str, reason: str
) -> None:
    """A line that is no record is kept verbatim and reported, and so are its neighbours kept."""
    text = HEADER + A + line + B
    report = imported(store, tmp_path, text)
    assert (report.found, report.new, report.left_out) == (4, 4, 0)
    (problem,) = report.problems
    assert (problem.line, problem.offset) == (3, END + len(A))
    assert problem.path == str(tmp_path / "session.jsonl")
    assert reason in problem.reason
    assert types(store, report) == ["session", "a", kind, "b"]
    assert b"".join(data(kept(store, report))) == text


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (b'{"type":"x","data":"\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\x7f"}\n', "x"),
        (b'{"type":"x","data":"\\ud83d alone"}\n', "x"),
        (b'{"type":"x","data":123456789012345678901234567890}\n', "x"),
        (b'{"type":"x"}\r\n', "x"),
        (b'  {"type":"x"}  \n', "x"),
        (b'{"type":"Not/Valid"}\n', "record"),
        (b'{"type":"a b"}\n', "record"),
        (b'{"type":""}\n', "record"),
        (b'{"type":7}\n', "record"),
        (b'{"type":"' + b"x" * 200 + b'"}\n', "record"),
        (b"{}\n", "record"),
        (b"\n", "record"),
        (b"\r\n", "record"),
    ],
)
def test_line_that_is_merely_odd_is_no_problem(
    store: perdure.Store, tmp_path: Path, line: bytes, kind: str
) -> None:
    """Line separators inside strings, odd types and blank lines are kept without a complaint."""
    text = HEADER + line + B
    report = imported(store, tmp_path, text)
    assert report.problems == ()
    assert types(store, report) == ["session", kind, "b"]
    assert b"".join(data(kept(store, report))) == text


@pytest.mark.parametrize(
    ("member", "time"),
    [
        ('"time":5', 5),
        ('"time":-5', -5),
        ('"time0":6', 6),
        ('"time":true', 1700000000000),
        ('"time":5.0', 1700000000000),
        ('"time":"5"', 1700000000000),
        ('"time":9007199254740992', 1700000000000),
        ('"time":null,"time0":7', 7),
        ('"createdAt":8', 1700000000000),
    ],
)
def test_time_is_an_integer_in_range(
    store: perdure.Store, tmp_path: Path, member: str, time: int
) -> None:
    """The record's own time counts if it is an integer in range, else that of the line before."""
    report = imported(store, tmp_path, HEADER + b'{"type":"x",%s}\n' % member.encode())
    assert [event.time for event in kept(store, report)] == [1700000000000, time]


def test_byte_order_mark_and_windows_lines(store: perdure.Store, tmp_path: Path) -> None:
    """A byte order mark and carriage returns stay in the text and hide nothing."""
    text = b"\xef\xbb\xbf" + (HEADER + A + B).replace(b"\n", b"\r\n")
    report = imported(store, tmp_path, text)
    assert report.problems == ()
    assert types(store, report) == ["session", "a", "b"]
    assert b"".join(data(kept(store, report))) == text
    header = store.inspect(str(report.session)).header
    assert header is not None
    assert (header.cwd, header.created_at) == ("/srv/a", 1700000000000)


@pytest.mark.parametrize(
    ("line", "cwd", "id"),
    [
        (b'{"type":"session","createdAt":-1,"id":7,"cwd":9}\n', "9", "7"),
        (b'{"type":"session","createdAt":"x","id":{},"cwd":[]}\n', None, None),
        (b'{"type":"session","createdAt":1.5,"id":"","cwd":""}\n', None, None),
        (b'{"type":"session","createdAt":null,"cwd":"\\ud83d"}\n', "\ud83d", None),
        (b'{"type":"session","createdAt":null,"id":"' + b"i" * 2000 + b'"}\n', None, None),
    ],
)
def test_header_with_wrong_members_is_read_as_far_as_it_goes(
    tmp_path: Path, line: bytes, cwd: str | None, id: str | None
) -> None:
    """What a header gets wrong is left out; the time of the file stands for a missing one."""
    with perdure.open(tmp_path / "store") as store:
        report = imported(store, tmp_path, line)
        header = store.inspect(str(report.session)).header
    assert header is not None
    assert header.source is not None
    assert (header.cwd, header.source.id) == (cwd, id)
    modified = (tmp_path / "session.jsonl").stat().st_mtime_ns // 1_000_000
    assert header.created_at == modified


def test_file_without_header_is_imported_when_named(store: perdure.Store, tmp_path: Path) -> None:
    """A file that was named is imported whatever its first line is, which is reported."""
    path = tmp_path / "notes.jsonl"
    path.write_bytes(A + B)
    report = import_one(store, path)
    assert (report.new, places(report)) == (2, [(1, 0)])
    assert import_sessions(store, FORMAT, [tmp_path]).sources[0].skipped is not None


def test_pretty_printed_json_is_kept_line_by_line(store: perdure.Store, tmp_path: Path) -> None:
    """A document that is spread over lines comes out whole, each of its lines reported."""
    text = b'{\n  "type": "session",\n  "createdAt": 5\n}\n'
    report = imported(store, tmp_path, text)
    assert b"".join(data(kept(store, report))) == text
    assert sorted(set(places(report))) == [(1, 0), (2, 2), (3, 23), (4, 40)]


def test_problems_are_counted_beyond_those_listed(store: perdure.Store, tmp_path: Path) -> None:
    """A file of noise does not fill the report: a hundred problems are listed, all are counted."""
    report = imported(store, tmp_path, HEADER + b"noise\n" * 500)
    assert (len(report.problems), report.problem_count, report.new) == (100, 500, 501)


def test_empty_file_is_skipped(store: perdure.Store, tmp_path: Path) -> None:
    """An empty file makes no session."""
    report = imported(store, tmp_path, b"")
    assert (report.skipped, report.session, store.list()) == ("empty", None, [])


@pytest.mark.parametrize("size", [RECORD_BYTES_MAX - 1024, RECORD_BYTES_MAX + 5])
def test_line_too_large_is_left_out_and_named(
    store: perdure.Store, tmp_path: Path, size: int
) -> None:
    """A line that fits in no record is left out, at every import; the others stay."""
    huge = b'{"type":"x","data":"%s"}\n' % (b"y" * size)
    text = HEADER + huge + A
    report = imported(store, tmp_path, text)
    assert (report.found, report.new, report.left_out) == (3, 2, 1)
    assert places(report) == [(2, END)]
    assert data(kept(store, report)) == [HEADER, A]
    again = imported(store, tmp_path, text + B)
    assert (again.found, again.new, again.unchanged, again.left_out) == (4, 1, 2, 1)
    assert kept(store, again)[-1].key == f"0:{len(text)}"


def test_line_that_grows_too_large_as_json_is_left_out(
    store: perdure.Store, tmp_path: Path
) -> None:
    """What counts is the size of the record, in which a byte may take six."""
    report = imported(store, tmp_path, HEADER + b"\x01" * (3 * 1024 * 1024) + b"\n" + A)
    assert (report.new, report.left_out) == (2, 1)


def test_large_line_is_kept(store: perdure.Store, tmp_path: Path) -> None:
    """A line of several MiB that fits in a record is kept as it is."""
    text = HEADER + b'{"type":"x","data":"%s"}\n' % (b"y" * (8 * 1024 * 1024)) + A
    report = imported(store, tmp_path, text)
    assert (report.problems, report.new) == ((), 3)
    assert b"".join(data(kept(store, report))) == text


# --- the parts ------------------------------------------------------------------------------------


def test_lines_do_not_depend_on_the_pieces() -> None:
    """However a text is cut into pieces, its lines, numbers and offsets are the same."""
    text = b"one\n\ntwo three\r\n" + b"x" * 9 + b"\nlast"
    whole = list(split([text]))
    assert [(line.number, line.offset, line.raw) for line in whole] == [
        (1, 0, b"one\n"),
        (2, 4, b"\n"),
        (3, 5, b"two three\r\n"),
        (4, 16, b"x" * 9 + b"\n"),
        (5, 26, b"last"),
    ]
    for size in range(1, 12):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert list(split(pieces)) == whole


def test_long_lines_are_counted_without_being_held() -> None:
    """A line beyond the limit has its size and place, and no text; the next one is whole."""
    lines = list(split([b"a" * 6, b"b" * 6 + b"\n", b"ok\n"], limit=10))
    assert [(line.offset, line.size, line.raw) for line in lines] == [
        (0, 13, None),
        (13, 3, b"ok\n"),
    ]


def test_byte_order_mark_belongs_to_the_first_line() -> None:
    """A byte order mark is read past on line 1 and is an error elsewhere."""
    line = b'\xef\xbb\xbf{"a":1}\n'
    assert parse(line, first=True).value == {"a": 1}
    assert parse(line).value is None
