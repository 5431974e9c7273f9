"""Importing a source again: what is new is added, and what was exchanged stands beside it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InvalidValue, SessionBusy, SessionDamaged, StorageUnavailable
from perdure.importers import SourceReport, import_sessions, session_id
from tests.sources import (
    FORMAT,
    HEADER,
    Machine,
    append,
    data,
    forget,
    frame,
    import_one,
    kept,
    record,
    session_of,
    states,
    text_of,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "store", encoding="raw") as opened:
        yield opened


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "session.jsonl"
    path.parent.mkdir()
    path.write_bytes(HEADER + record("a", 1) + record("b", 2))
    return path


def counts(report: SourceReport) -> tuple[int, int, int]:
    return report.found, report.new, report.unchanged


def test_grown_file_adds_its_new_lines(store: perdure.Store, source: Path) -> None:
    """Only the lines behind those stored before are appended."""
    first = import_one(store, source)
    assert (counts(first), first.state) == ((3, 3, 0), "new")
    append(source, record("c", 3) + record("d", 4))
    report = import_one(store, source)
    assert (counts(report), report.state) == ((5, 2, 3), "grown")
    assert b"".join(data(kept(store, report))) == source.read_bytes()


def test_grown_compressed_file_adds_its_new_lines(store: perdure.Store, tmp_path: Path) -> None:
    """A further frame is a further line, whatever the frames before are."""
    path = tmp_path / "session.jsonl.zstd"
    path.write_bytes(frame(HEADER))
    assert counts(import_one(store, path)) == (1, 1, 0)
    append(path, frame(record("a", 1)))
    assert counts(import_one(store, path)) == (2, 1, 1)


def test_unchanged_file_writes_nothing(store: perdure.Store, source: Path) -> None:
    """A second import leaves the stored session as it is, to the byte and the lock."""
    first = import_one(store, source)
    log = Path(str(store.locate(session_of(first))))
    before = states(log.parent)
    again = import_one(store, source)
    assert (counts(again), again.state) == ((3, 0, 3), "unchanged")
    assert (again.session, again.format) == (first.session, FORMAT)
    assert states(log.parent) == before


def test_time_carries_over_imports(store: perdure.Store, source: Path) -> None:
    """A new line without a time has the time of the line before, stored or not."""
    import_one(store, source)
    append(source, b'{"type":"c"}\n')
    assert kept(store, import_one(store, source))[-1].time == 2


@pytest.mark.parametrize("remembered", [True, False])
def test_time_of_a_torn_line_counts_for_no_other(
    store: perdure.Store, source: Path, remembered: bool
) -> None:
    """What a line said before it was whole gives no time to what became of it."""
    append(source, b'{"type":"c","time":7}')
    report = import_one(store, source)
    assert kept(store, report)[-1].time == 7
    if not remembered:
        forget(store, report)
    append(source, b"x\n")
    assert [event.time for event in kept(store, import_one(store, source))][-2:] == [7, 2]


def test_many_lines_go_in_by_batches(store: perdure.Store, source: Path) -> None:
    """More lines than one commit takes are all there, in order."""
    append(source, b"".join(record("n", number) for number in range(2000)))
    report = import_one(store, source)
    assert counts(report) == (2003, 2003, 0)
    assert text_of(store, report) == source.read_bytes()


def test_interrupted_import_goes_on(store: perdure.Store, source: Path) -> None:
    """What an import stored before it died is not stored again."""
    whole = source.read_bytes()
    source.write_bytes(HEADER)
    forget(store, import_one(store, source))
    source.write_bytes(whole)
    report = import_one(store, source)
    assert (counts(report), report.state) == ((3, 2, 1), "grown")
    assert [event.key for event in kept(store, report)][:1] == ["0:0"]
    assert text_of(store, report, 0) == whole


# --- exchanged content ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (HEADER + record("a", 1) + record("X", 2), (3, 1, 2)),
        (HEADER + record("X", 1) + record("b", 2) + record("c", 3), (4, 3, 1)),
        (HEADER + record("aa", 1) + record("b", 2), (3, 2, 1)),
        (HEADER + record("a", 1), (2, 0, 2)),
        (HEADER, (1, 0, 1)),
    ],
    ids=["last", "middle", "shifted", "shortened", "header-only"],
)
@pytest.mark.parametrize("remembered", [True, False])
def test_replaced_content_begins_a_generation(
    store: perdure.Store,
    source: Path,
    now: bytes,
    expected: tuple[int, int, int],
    remembered: bool,
) -> None:
    """A file with other content than was imported is kept in both states, and so reported."""
    first = import_one(store, source)
    before, was = kept(store, first), source.read_bytes()
    if not remembered:
        forget(store, first)
    source.write_bytes(now)
    report = import_one(store, source)
    assert (report.state, report.error, report.session) == ("rewritten", None, first.session)
    assert counts(report) == expected
    assert kept(store, first)[:3] == before
    assert (text_of(store, report), text_of(store, report, 0)) == (now, was)
    again = import_one(store, source)
    assert (again.state, again.new) == ("unchanged", 0)
    assert store.verify(session_of(first)).status == "ok"


def test_lost_end_is_written_down(store: perdure.Store, source: Path) -> None:
    """Where a source ends earlier than it did, an event says where, and lines that come follow."""
    first = import_one(store, source)
    end = len(HEADER + record("a", 1))
    source.write_bytes(HEADER + record("a", 1))
    import_one(store, source)
    (event,) = store.read_from(session_of(first), 0, ["source/rewritten"])
    assert (event.data, event.key) == ({"generation": 1, "offset": end}, f"1:{end}")
    assert event.time == 1
    append(source, record("c", 3))
    report = import_one(store, source)
    assert (counts(report), report.state) == ((3, 1, 2), "grown")
    assert (kept(store, report)[-1].key, text_of(store, report)) == (
        f"1:{end}",
        source.read_bytes(),
    )


def test_replaced_file_stops_no_other(store: perdure.Store, source: Path) -> None:
    """One file that was replaced leaves the others their import."""
    import_one(store, source)
    source.write_bytes(HEADER + record("other", 1))
    second = source.with_name("second.jsonl")
    second.write_bytes(HEADER)
    report = import_sessions(store, FORMAT, [source.parent], runtime=Machine())
    assert [(found.new, found.state) for found in report.sources] == [(1, "new"), (1, "rewritten")]
    assert report.failed == ()
    assert report.states == {"new": 1, "rewritten": 1}


def test_other_session_at_the_same_path_is_kept_beside(store: perdure.Store, source: Path) -> None:
    """A file that holds another session now becomes one of its own, and that of the first is gone.

    It is marked by whoever finds the second one, once, and told of each time.
    """
    first = import_one(store, source)
    source.write_bytes(HEADER.replace(b"s-1", b"s-2"))
    for state in ("new", "unchanged"):
        report = import_sessions(store, FORMAT, [source], runtime=Machine())
        second, gone = report.sources
        assert (second.error, second.state) == (None, state)
        assert first.session != second.session
        assert (gone.state, gone.session, gone.path) == ("gone", first.session, str(source))
        assert gone.reason == f"the file holds another session now, {second.session}"
        assert (gone.error, gone.found) == (None, 3)
        (mark,) = store.read_from(session_of(first), 0, ["source/gone"])
        assert mark.data["reason"] == gone.reason


# --- a last line without its newline --------------------------------------------------------------


def test_torn_line_is_kept_and_reported(store: perdure.Store, source: Path) -> None:
    """A line that ends with the file is kept as it is, and named with its place."""
    offset = source.stat().st_size
    append(source, b'{"type":"c","ti')
    report = import_one(store, source)
    assert counts(report) == (4, 4, 0)
    (problem,) = report.problems
    assert (problem.path, problem.line, problem.offset) == (str(source), 4, offset)
    assert problem.reason.startswith("torn")
    event = kept(store, report)[-1]
    assert (event.type, event.data) == ("deepseek-harness/record", '{"type":"c","ti')
    assert counts(import_one(store, source)) == (4, 0, 4)


def test_torn_line_that_was_completed_is_stored_whole(store: perdure.Store, source: Path) -> None:
    """The completed line is one event of its own type, and the text is the source's again."""
    append(source, b'{"type":"c","ti')
    import_one(store, source)
    append(source, b'me":3}\n' + record("d", 4))
    report = import_one(store, source)
    assert (counts(report), report.state, report.problems) == ((5, 2, 3), "grown", ())
    assert text_of(store, report) == source.read_bytes()
    assert [event.type for event in kept(store, report)][-2:] == [f"{FORMAT}/c", f"{FORMAT}/d"]
    assert counts(import_one(store, source)) == (5, 0, 5)


def test_torn_line_that_was_withdrawn_does_not_block(store: perdure.Store, source: Path) -> None:
    """An agent that cuts its torn line off and goes on is followed, as often as it happens."""
    whole = source.read_bytes()
    append(source, b'{"type":"c"')
    import_one(store, source)
    source.write_bytes(whole)
    report = import_one(store, source)
    assert (counts(report), report.state) == ((3, 0, 3), "rewritten")
    assert text_of(store, report) == whole
    append(source, b'{"type":"other')
    assert counts(import_one(store, source)) == (4, 1, 3)
    source.write_bytes(whole + record("last", 9))
    report = import_one(store, source)
    assert counts(report) == (4, 1, 3)
    assert text_of(store, report) == source.read_bytes()
    assert counts(import_one(store, source)) == (4, 0, 4)


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize(
    ("torn", "now", "state"),
    [
        (b'{"type":"c"', b'{"type":"c"', "unchanged"),
        (b'{"type":"c"', b'{"type":"c","time":3', "grown"),
        (b'{"type":"c"', b'{"type":"c"}\n', "grown"),
        (b'{"type":"c"', b'{"type":"c"}\n' + record("d", 4), "grown"),
        (b"\xe6\x97", b"\xe6\x97\xa5\n", "grown"),
        (b'{"type":"c"', b"", "rewritten"),
        (b'{"type":"c"', b'{"type', "rewritten"),
        (b'{"type":"c"', b"something else\n", "rewritten"),
        (b'{"type":"c"', b"something else", "rewritten"),
        (b'{"type":"c"', b"\n", "rewritten"),
        (b'{"type":"c"', b'x{"type":"c"}\n', "rewritten"),
        (b"\0\0\0", b"\n", "rewritten"),
        (b"\0\0\0", b"\n" + record("d", 4), "rewritten"),
        (b"\xe6\x97", b"\xe6\x98\xa5\n", "rewritten"),
    ],
)
def test_a_torn_line_grows_only_into_what_begins_with_it(
    store: perdure.Store, source: Path, torn: bytes, now: bytes, state: str, *, remembered: bool
) -> None:
    """Of a last line that was not whole, only one that begins with it is the same, grown."""
    whole = source.read_bytes()
    source.write_bytes(whole + torn)
    first = import_one(store, source)
    if not remembered:
        forget(store, first)
    source.write_bytes(whole + now)
    report = import_one(store, source)
    assert (report.state, report.session) == (state, first.session)
    assert (text_of(store, report), text_of(store, report, 0)) == (whole + now, whole + torn)
    again = import_one(store, source)
    assert (again.state, again.new, again.found) == ("unchanged", 0, report.found)


def test_torn_header_does_not_make_two_sessions(store: perdure.Store, source: Path) -> None:
    """A file whose header was not complete at first stays one session."""
    source.write_bytes(HEADER[:20])
    first = import_one(store, source)
    assert first.session == session_id(FORMAT, str(source), machine="here")
    source.write_bytes(HEADER + record("a", 1))
    second = import_one(store, source)
    assert (second.session, second.new, second.error) == (first.session, 2, None)


def test_lost_header_is_found_by_the_path(store: perdure.Store, tmp_path: Path) -> None:
    """A file whose first frame was damaged since is not imported as another session."""
    path = tmp_path / "session.jsonl.zstd"
    path.write_bytes(frame(HEADER) + frame(record("a", 1)))
    first = import_one(store, path)
    was = text_of(store, first)
    broken = bytearray(path.read_bytes())
    broken[len(frame(HEADER)) - 2] ^= 1
    path.write_bytes(broken)
    second = import_one(store, path)
    assert (second.error, second.session, second.state) == (None, first.session, "rewritten")
    assert [entry.id for entry in store.list()] == [first.session]
    assert (text_of(store, second), text_of(store, second, 0)) == (record("a", 1), was)


# --- the store ------------------------------------------------------------------------------------


def test_session_that_is_written_is_busy(
    store: perdure.Store, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody else writes the session, its file fails and can be imported later."""
    monkeypatch.setattr("perdure.importers.appender._WAIT_SECONDS", 0)
    report = import_one(store, source)
    append(source, record("c", 3))
    with store.writer(str(report.session)):
        assert isinstance(import_one(store, source).error, SessionBusy)
    assert import_one(store, source).new == 1


@pytest.mark.parametrize("begun", [True, False])
def test_two_imports_of_one_file_do_not_fail_each_other(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, *, begun: bool
) -> None:
    """However often another import stores what came meanwhile, each one comes to its end."""
    with perdure.open(tmp_path / "both") as here, perdure.open(tmp_path / "both") as there:
        if begun:
            import_one(here, source)
            append(source, record("c", 3))
        left = list(range(20))
        reals = perdure.Store.writer, perdure.Store.create

        def other(number: int) -> None:
            append(source, record("d", number))
            assert import_one(there, source).error is None

        def first(real: Any) -> Any:
            def call(store: perdure.Store, *given: Any, **named: Any) -> Any:
                if store is here and left:
                    other(left.pop())
                return real(store, *given, **named)

            return call

        with monkeypatch.context() as patch:
            for name, real in zip(("writer", "create"), reals, strict=True):
                patch.setattr(perdure.Store, name, first(real))
            report = import_one(here, source)
        # Who comes second looks again, once, with nobody between him and the log.
        assert len(left) == 18
        assert (report.error, report.session) == (None, import_one(there, source).session)
        assert text_of(here, report) == source.read_bytes()
        assert here.verify(session_of(report)).status == "ok"


@pytest.mark.parametrize("where", [b"/srv/a", b"harness/a"], ids=["header", "record"])
def test_damaged_session_fails_alone(store: perdure.Store, source: Path, where: bytes) -> None:
    """A stored session that does not hold together is not added to."""
    report = import_one(store, source)
    log = Path(str(store.locate(str(report.session))))
    damaged = log.read_bytes().replace(where, where[:-1] + b"z")
    log.write_bytes(damaged)
    append(source, record("c", 3))
    assert isinstance(import_one(store, source).error, SessionDamaged)
    assert log.read_bytes() == damaged


def test_events_of_others_are_passed_over(store: perdure.Store, source: Path) -> None:
    """An event that somebody added to an imported session is no line of the source."""
    report = import_one(store, source)
    with store.writer(str(report.session)) as session:
        session.append("note", {"text": "mine"})
    append(source, record("c", 3))
    assert counts(import_one(store, source)) == (4, 1, 3)
    assert text_of(store, report) == source.read_bytes()


@pytest.mark.parametrize(
    "kind",
    ["source/bytes", "source/file", "source/gone", "source/rewritten", "session/titled"],
)
@pytest.mark.parametrize("said", [None, "x", {}, {"offset": 0}, {"name": 1, "title": 2}])
def test_events_of_others_may_be_called_as_our_own(
    store: perdure.Store, source: Path, kind: str, said: object
) -> None:
    """An event of a type that an import writes, but with other data, stands in nobody's way."""
    report = import_one(store, source)
    with store.writer(session_of(report)) as session:
        session.append(kind, said)
    append(source, record("c", 3))
    assert counts(import_one(store, source)) == (4, 1, 3)
    assert text_of(store, report) == source.read_bytes()


@pytest.mark.parametrize("remembered", [True, False])
def test_keys_of_others_may_look_like_our_own(
    store: perdure.Store, source: Path, remembered: bool
) -> None:
    """An event whose key is a time of day takes no line of the source away."""
    report = import_one(store, source)
    with store.writer(session_of(report)) as session:
        session.append("note", "half past ten", key="10:30")
        session.append("reminders/at", {"blob": "0" * 64, "bytes": 1}, key="7:0")
    if not remembered:
        forget(store, report)
    assert text_of(store, report) == source.read_bytes()
    append(source, record("c", 3))
    again = import_one(store, source)
    assert (counts(again), again.state) == ((4, 1, 3), "grown")
    assert {str(event.key)[:2] for event in kept(store, again)} == {"0:"}
    assert text_of(store, report) == source.read_bytes()


# --- finding files --------------------------------------------------------------------------------


def test_folder_gives_its_session_files(store: perdure.Store, source: Path) -> None:
    """Files of the format are found at every depth, once each; others are skipped with reason."""
    deep = source.parent / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "session.jsonl.zst").write_bytes(frame(HEADER))
    (deep / "notes.txt").write_bytes(HEADER)
    (deep / "other.jsonl").write_bytes(b'{"type":"session","version":3,"id":"p"}\n')
    (deep / "empty.jsonl").write_bytes(b"")
    report = import_sessions(store, FORMAT, [source.parent, source, deep])
    found = {Path(each.path).name: (each.new, each.skipped) for each in report.sources}
    assert found == {
        "session.jsonl": (3, None),
        "session.jsonl.zst": (1, None),
        "other.jsonl": (0, "its first lines open no session of deepseek-harness"),
        "empty.jsonl": (0, "empty"),
    }
    assert len(report.sources) == 4


def test_links_are_not_followed(store: perdure.Store, source: Path, tmp_path: Path) -> None:
    """A symbolic link is passed over in a folder and refused when named."""
    away = tmp_path / "away"
    away.mkdir()
    (away / "far.jsonl").write_bytes(HEADER)
    (source.parent / "link.jsonl").symlink_to(source)
    (source.parent / "folder").symlink_to(away)
    report = import_sessions(store, FORMAT, [source.parent])
    assert [(Path(each.path).name, each.new) for each in report.sources] == [
        ("folder", 0),
        ("link.jsonl", 0),
        ("session.jsonl", 3),
    ]
    assert [str(each.skipped).partition(",")[0] for each in report.skipped] == [
        "a symbolic link to a folder",
        "a symbolic link; name the file itself",
    ]
    named = import_one(store, source.parent / "link.jsonl")
    assert isinstance(named.error, StorageUnavailable)


def test_a_place_that_is_named_may_lead_through_links(
    store: perdure.Store, source: Path, tmp_path: Path
) -> None:
    """A folder that is named by a link is the folder itself, whose files are known by its path."""
    (tmp_path / "link").symlink_to(source.parent)
    first = import_one(store, source)
    for path in (tmp_path / "link", tmp_path / "link" / source.name):
        report = import_one(store, path)
        assert (report.session, report.state, report.path) == (
            first.session,
            "unchanged",
            str(source),
        )


def test_pipe_is_not_waited_for(store: perdure.Store, source: Path) -> None:
    """A pipe that looks like a source is passed over at once."""
    os.mkfifo(source.parent / "pipe.jsonl")
    report = import_sessions(store, FORMAT, [source.parent])
    assert [each.skipped for each in report.sources] == ["not a regular file", None]


def test_missing_file_stops_no_other(store: perdure.Store, source: Path) -> None:
    """A path that does not exist is an error of that path alone."""
    report = import_sessions(store, FORMAT, [source.parent / "none.jsonl", source])
    assert isinstance(report.sources[0].error, StorageUnavailable)
    assert report.new == 3


def test_source_is_left_alone(store: perdure.Store, source: Path) -> None:
    """A source that may only be read is imported and not changed."""
    source.chmod(0o444)
    before = states(source.parent)
    assert import_one(store, source).new == 3
    assert states(source.parent) == before


def test_unknown_format_is_refused(store: perdure.Store, source: Path) -> None:
    """A format that nobody knows is an invalid value, with those that are known."""
    with pytest.raises(InvalidValue) as caught:
        import_sessions(store, "nothing", [source])
    assert FORMAT in caught.value.hint


def test_report_is_plain_for_json(store: perdure.Store, source: Path) -> None:
    """The report turns into plain values, errors with code, message and hint."""
    report = import_sessions(store, FORMAT, [source, source.with_name("none")]).as_dict()
    assert (report["found"], report["new"], report["large"]) == (3, 3, 0)
    assert report["states"] == {"new": 1, "failed": 1}
    assert (report["sources"][0]["error"], report["sources"][0]["format"]) == (None, FORMAT)
    assert set(report["sources"][1]["error"]) == {"code", "message", "hint"}


def test_a_deleted_session_is_not_imported_again(store: perdure.Store, source: Path) -> None:
    """Deleted here, a source is skipped with the reason, grown or not, until it is forgotten."""
    report = import_one(store, source)
    assert report.session is not None
    store.delete(report.session)
    for step in ("deleted", "grown", "emptied"):
        if step == "grown":
            append(source, record("c", 3))
        if step == "emptied":
            store.empty_trash()
        again = import_one(store, source)
        assert again.error is None
        assert again.skipped is not None
        assert "was deleted" in again.skipped
        assert store.list() == []
    store.forget(report.session)
    assert counts(import_one(store, source)) == (4, 4, 0)


def test_a_restored_session_goes_on_where_it_was(store: perdure.Store, source: Path) -> None:
    """What the source grew by meanwhile is all that is new."""
    report = import_one(store, source)
    assert report.session is not None
    store.delete(report.session)
    append(source, record("c", 3))
    store.restore(report.session)
    assert counts(import_one(store, source)) == (4, 1, 3)


def test_an_archived_session_still_grows(store: perdure.Store, source: Path) -> None:
    """Events of other origin in the session of a source do not stand in its way."""
    report = import_one(store, source)
    assert report.session is not None
    store.archive(report.session)
    append(source, record("c", 3))
    again = import_one(store, source)
    assert counts(again) == (4, 1, 3)
    assert text_of(store, report) == source.read_bytes()
