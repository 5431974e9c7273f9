"""Files that are wrong: every intact line is kept, and what is wrong is named with its place."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.importers import SourceReport, import_sessions, sync
from perdure.importers.json_lines import parse
from perdure.importers.lines import split
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
    states,
    text_of,
)

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
    assert (report.found, report.new, report.large) == (4, 4, 0)
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
        (b'{"type":"session","createdAt":-1,"id":7,"cwd":9}\n', None, "7"),
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


@pytest.mark.parametrize("line", [1, 40, 99, 100])
def test_a_broken_line_costs_itself_alone(store: perdure.Store, tmp_path: Path, line: int) -> None:
    """Of a hundred lines one of which breaks off, the others are read, and the place is named."""
    whole = [
        b'{"type":"user","uuid":"u%d","sessionId":"s","message":{"role":"user","content":"t%d"}}\n'
        % (number, number)
        for number in range(1, 101)
    ]
    broken = [*whole[: line - 1], b'{"type":"attachment","uui\n', *whole[line:]]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(broken))
    (report,) = import_sessions(store, "claude-code", [path]).sources
    assert (report.found, report.new, report.problem_count) == (100, 100, 1)
    assert places(report) == [(line, sum(map(len, broken[: line - 1])))]
    said = store.inspect(session_of(report)).messages()
    assert [block["text"] for message in said for block in message["content"]] == [
        f"t{number}" for number in range(1, 101) if number != line
    ]
    assert text_of(store, report) == b"".join(broken) == path.read_bytes()


@pytest.mark.parametrize("cut", [1, 2])
def test_a_line_may_end_within_a_character(store: perdure.Store, tmp_path: Path, cut: int) -> None:
    """A source that breaks off within a character keeps all of it, and goes on where it does."""
    start = HEADER + A + b'{"type":"x","data":"'
    report = imported(store, tmp_path, start + "日".encode()[:cut])
    assert places(report) == [(3, END + len(A))]
    assert text_of(store, report) == start + "日".encode()[:cut]
    full = start + "日".encode() + b'"}\n' + B
    report = imported(store, tmp_path, full)
    assert (report.problems, report.new, report.unchanged) == ((), 2, 2)
    assert types(store, report) == ["session", "a", "record", "x", "b"]
    assert text_of(store, report) == full


def test_a_folder_of_wrong_files_costs_those_alone(store: perdure.Store, tmp_path: Path) -> None:
    """What is no source, or damaged, is named with its place, and hides none of the others."""
    folder = tmp_path / "logs"
    (folder / "named.jsonl").mkdir(parents=True)
    sound = HEADER + A + B
    texts = {
        "1-bad.jsonl": HEADER + b'{"type":"attachment","uui\n' + B,
        "2-fused.jsonl": HEADER + b'{"a":1,"text":"tor' + A + B,
        "3-zeros.jsonl": HEADER + b"\0" * 512 + B,
        "4-bom.jsonl": b"\xef\xbb\xbf" + HEADER + A,
        "5-crlf.jsonl": sound.replace(b"\n", b"\r\n"),
        "6-bytes.jsonl": HEADER + b'{"type":"x","data":"\xff\xfe"}\n' + B,
        "7-separators.jsonl": HEADER + record("x", 1, "a\u2028b\x85c") + B,
        "8-nothing.jsonl": b"",
        "9-pretty.jsonl": b'{\n  "type": "session"\n}\n',
        "named.jsonl/inner.jsonl": sound,
        "sound.jsonl": sound,
    }
    for name, said in texts.items():
        (folder / name).write_bytes(said)
    (folder / "link.jsonl").symlink_to(folder / "sound.jsonl")
    (folder / "nowhere.jsonl").symlink_to(folder / "none")
    os.mkfifo(folder / "pipe.jsonl")
    before = states(folder)
    report = sync(store, [folder], runtime=Machine())
    assert {
        Path(each.path).relative_to(folder).as_posix(): each.skipped or places(each)
        for each in report.sources
    } == {
        "1-bad.jsonl": [(2, END)],
        "2-fused.jsonl": [(2, END)],
        "3-zeros.jsonl": [(2, END)],
        "4-bom.jsonl": [],
        "5-crlf.jsonl": [],
        "6-bytes.jsonl": [(2, END)],
        "7-separators.jsonl": [],
        "8-nothing.jsonl": "empty",
        "9-pretty.jsonl": (
            "its first lines open no session of claude-code, codex or deepseek-harness"
        ),
        "link.jsonl": "a symbolic link; name the file itself",
        "named.jsonl/inner.jsonl": [],
        "nowhere.jsonl": "a symbolic link; name the file itself",
        "pipe.jsonl": "not a regular file",
        "sound.jsonl": [],
    }
    assert report.states == {"new": 9, "skipped": 5}
    for each in report.sources:
        assert each.session is None or text_of(store, each) == Path(each.path).read_bytes()
        assert all(problem.path == each.path for problem in each.problems)
    assert states(folder) == before


def test_a_source_in_doubt_is_told_of_once(store: perdure.Store, tmp_path: Path) -> None:
    """That a file opens no session is one problem, however often it grows."""
    path = tmp_path / "notes.jsonl"
    for number in range(4):
        append(path, record("a", number))
        report = import_one(store, path)
        assert (report.problem_count, places(report)) == (1, [(1, 0)])
        assert report.found == number + 1
    again = import_one(store, path)
    assert again.problem_count == 1
    forget(store, again)
    assert import_one(store, path).problem_count == 1


@pytest.mark.parametrize("remembered", [True, False])
def test_a_torn_line_behind_many_problems_is_counted_once(
    store: perdure.Store, tmp_path: Path, remembered: bool
) -> None:
    """Beyond the problems that are listed, too, one that is mended is a problem no more."""
    noise = HEADER + b"noise\n" * 150
    counts = []
    for rest in (b"", b'{"type', b'{"type', b'{"type":"a"}\n', b'{"type":"a"}\n{'):
        report = imported(store, tmp_path, noise + rest)
        counts.append((report.problem_count, len(report.problems)))
        if not remembered:
            forget(store, report)
    assert counts == [(150, 100), (151, 100), (151, 100), (150, 100), (151, 100)]


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


def test_byte_order_mark_belongs_to_the_first_line() -> None:
    """A byte order mark is read past on line 1 and is an error elsewhere."""
    line = b'\xef\xbb\xbf{"a":1}\n'
    assert parse(line, first=True).value == {"a": 1}
    assert parse(line).value is None
