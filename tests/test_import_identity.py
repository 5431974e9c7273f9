"""Which file is which session: by its format, its machine, its place and its own id."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli.main import cli
from perdure.importers import SourceReport, session_id, sync
from perdure.importers.taking_up import taking_up
from perdure.model.header import Header, Source
from tests.media import FOLDERS, KEPT, assert_equal, open_medium
from tests.sources import (
    DATA,
    FORMAT,
    HEADER,
    Machine,
    append,
    forget,
    import_one,
    kept,
    of_type,
    record,
    session_of,
    sync_one,
    text_of,
)

OLD, NEW = Machine("old"), Machine("new")
A, B = record("a", 1), record("b", 2)
PARENT = "4c2ddfdc-b619-4525-8d03-1950fb1b0257"


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "session.jsonl"


def header_of(store: perdure.Store, id: str | None) -> Header:
    header = store.inspect(str(id)).header
    assert header is not None
    return header


def source_of(store: perdure.Store, report: SourceReport) -> Source:
    source = header_of(store, report.session).source
    assert source is not None
    return source


class Clock(Machine):
    """A machine whose clock goes on with every look."""

    now = 1_800_000_000_000

    def now_ms(self) -> int:
        Clock.now += 1
        return Clock.now


def marks(store: perdure.Store, report: SourceReport) -> list[str]:
    """Return what a session says of its file being there."""
    return [event.type for event in of_type(store, report, "source/gone", "source/found")]


# --- one machine ----------------------------------------------------------------------------------


def test_the_same_id_in_two_folders_is_two_sessions(store: perdure.Store, tmp_path: Path) -> None:
    """A copy of a file elsewhere is a session of its own, with the same id of its format."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "session.jsonl").write_bytes(HEADER + A)
    report = sync(store, [tmp_path], runtime=OLD)
    assert report.states == {"new": 2}
    assert len({each.session for each in report.sources}) == 2
    assert {source_of(store, each).id for each in report.sources} == {"s-1"}
    append(tmp_path / "two" / "session.jsonl", B)
    report = sync(store, [tmp_path], runtime=OLD)
    assert [each.state for each in report.sources] == ["unchanged", "grown"]
    assert [text_of(store, each) for each in report.sources] == [HEADER + A, HEADER + A + B]


def test_a_folder_that_was_moved_is_found_anew(store: perdure.Store, tmp_path: Path) -> None:
    """Where a file is now it is another session, and the one of its old place says it is gone."""
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "session.jsonl").write_bytes(HEADER + A)
    first = sync_one(store, tmp_path)
    (tmp_path / "one").rename(tmp_path / "two")
    report = sync(store, [tmp_path], runtime=Machine())
    assert [(each.state, each.session == first.session) for each in report.sources] == [
        ("new", False),
        ("gone", True),
    ]
    assert [text_of(store, each) for each in report.sources] == [HEADER + A] * 2


def test_a_file_that_holds_another_session_now(store: perdure.Store, path: Path) -> None:
    """The file of another id at the same path is another session; each goes on where it was.

    The file of the other one is gone meanwhile, which its session says.
    """
    other = HEADER.replace(b"s-1", b"s-2")
    found, said = [], {}
    for text in (HEADER + A, other + B, HEADER + A + B, other + B + A, HEADER + A + B):
        path.write_bytes(text)
        dry = sync(store, [path], runtime=Machine(), dry_run=True)
        synced = sync(store, [path], runtime=Machine())
        assert dry == synced
        report, *gone = synced.sources
        found.append((source_of(store, report).id, report.state, report.new))
        assert text_of(store, report) == text
        assert [(each.state, each.path) for each in gone] == [("gone", str(path))] * len(gone)
        assert {report.session, *(each.session for each in gone)} == {e.id for e in store.list()}
        assert [marks(store, each)[-1:] for each in gone] == [["source/gone"]] * len(gone)
        assert marks(store, report)[-1:] in ([], ["source/found"])
        said = {source_of(store, each).id: marks(store, each) for each in synced.sources}
    assert found == [
        ("s-1", "new", 2),
        ("s-2", "new", 2),
        ("s-1", "grown", 1),
        ("s-2", "grown", 1),
        ("s-1", "unchanged", 0),
    ]
    assert len(store.list()) == 2
    both = ["source/gone", "source/found"]
    assert said == {"s-1": both * 2, "s-2": [*both, "source/gone"]}


def test_a_session_that_was_deleted_here_takes_the_path_all_the_same(
    store: perdure.Store, path: Path
) -> None:
    """Where a path holds a session that was deleted here, the one that it held before is gone."""
    path.write_bytes(HEADER + A)
    first = sync_one(store, path)
    path.write_bytes(HEADER.replace(b"s-1", b"s-2"))
    second, _ = sync(store, [path], runtime=Machine()).sources
    store.delete(session_of(second))
    skipped, gone = sync(store, [path], runtime=Machine()).sources
    assert (skipped.state, gone.state, gone.session) == ("skipped", "gone", first.session)
    assert gone.reason == "the file holds another session now, which was deleted here"


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize(
    "later",
    [HEADER.replace(b"s-1", b"s-2") + A + B, HEADER[1:] + A, b"\n" * 60 + HEADER, A],
    ids=["another id", "a damaged one", "beyond the first lines", "none"],
)
def test_a_deleted_session_stays_so_whatever_its_file_calls_itself(
    store: perdure.Store, path: Path, later: bytes, *, emptied: bool
) -> None:
    """What was deleted comes back under no other id, be it in the trash or removed for good."""
    path.write_bytes(HEADER + A)
    first = sync_one(store, path)
    store.delete(session_of(first))
    if emptied:
        store.empty_trash()
    path.write_bytes(later)
    for dry in (True, False):
        skipped = sync_one(store, path, dry_run=dry)
        assert (skipped.state, store.list()) == ("skipped", [])
        assert repr(session_of(first)) in str(skipped.skipped)
    # Elsewhere nobody deleted it, and when it is forgotten it was not deleted here either.
    (path.parent / "copy.jsonl").write_bytes(later)
    assert sync_one(store, path.parent / "copy.jsonl").state in ("new", "skipped")
    if emptied:
        store.forget(session_of(first))
    else:
        store.restore(session_of(first))
    report, *_ = sync(store, [path], runtime=Machine()).sources
    assert (report.error, report.skipped) == (None, None)
    assert text_of(store, report) == later


def test_a_session_that_goes_on_under_another_id_is_deleted_with_it(
    store: perdure.Store, tmp_path: Path
) -> None:
    """A transcript whose id changed while it grew does not come back once it was deleted."""
    line = (
        b'{"type":"user","uuid":"u%d","sessionId":"%s","message":{"role":"user","content":"x"}}\n'
    )
    path = tmp_path / "projects" / "-tmp" / f"{PARENT}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(line % (0, b"A") + line % (1, b"A"))
    first = sync_one(store, path.parent)
    append(path, line % (2, PARENT.encode()) + line % (3, PARENT.encode()))
    assert sync_one(store, path.parent).session == first.session
    store.delete(session_of(first))
    assert (sync_one(store, path.parent).state, store.list()) == ("skipped", [])


def test_a_session_grows_where_another_one_was_deleted(store: perdure.Store, path: Path) -> None:
    """What was deleted at a path keeps nothing from the session that the path holds."""
    path.write_bytes(HEADER + A)
    first = sync_one(store, path)
    path.write_bytes(HEADER.replace(b"s-1", b"s-2"))
    second, _ = sync(store, [path], runtime=Machine()).sources
    store.delete(session_of(second))
    path.write_bytes(HEADER + A + B)
    grown = sync_one(store, path)
    assert (grown.session, grown.state) == (first.session, "grown")


@pytest.mark.parametrize("later", [1, 2])
def test_a_damaged_first_line_stands_for_what_the_path_held_last(
    store: perdure.Store, path: Path, later: int
) -> None:
    """Where the first line says no id any more, a file is that of the session that was there last.

    Which of them was made first does not count: a file may be replaced by that of an older session.
    """
    texts = {}
    for number in (1, 2):
        made = b"17%d0000000000" % (number if later == 2 else 3 - number)
        texts[number] = HEADER.replace(b"s-1", b"s-%d" % number).replace(b"1700000000000", made) + A
    reports = {}
    for number in (1, 2, 1, 2):
        path.write_bytes(texts[number])
        reports[number], *_ = sync(store, [path], runtime=Clock()).sources
        damaged = b"x" + texts[number][1:]
        path.write_bytes(damaged)
        report, *_ = sync(store, [path], runtime=Clock()).sources
        assert (report.session, text_of(store, report)) == (reports[number].session, damaged)
    # Also where both are gone: the last one is meant.
    path.unlink()
    sync(store, [path.parent], runtime=Clock())
    path.write_bytes(b"x" + texts[2][1:])
    report, *_ = sync(store, [path], runtime=Clock()).sources
    assert report.session == reports[2].session


def test_the_very_id_goes_before_one_that_is_not_known(store: perdure.Store, path: Path) -> None:
    """Of a session without an id and one of this id, a file of the id is that of the second."""
    path.write_bytes(HEADER + A)
    with perdure.open("memory:") as other:
        first = sync_one(other, path)
        path.write_bytes(HEADER[:30])
        nameless = sync_one(store, path)
        other.copy(session_of(first), store)
    assert source_of(store, nameless).id is None
    for text in (HEADER + A, HEADER + A + B):
        path.write_bytes(text)
        report, gone = sync(store, [path], runtime=Machine()).sources
        assert (report.session, gone.session) == (first.session, nameless.session)


def test_a_file_whose_id_comes_later_is_one_session(store: perdure.Store, path: Path) -> None:
    """What was imported before its first line was whole is the session that it turns out to be."""
    path.write_bytes(HEADER[:30])
    first = sync_one(store, path)
    assert source_of(store, first).id is None
    for text in (HEADER, HEADER + A, b"x" + HEADER[1:] + A, HEADER + A):
        path.write_bytes(text)
        report = sync_one(store, path)
        assert (report.error, report.session) == (None, first.session)
        assert text_of(store, report) == text


def test_a_file_may_begin_with_another_session(store: perdure.Store, tmp_path: Path) -> None:
    """A file that turns out to be of another session than its first lines said goes on."""
    path = tmp_path / f"{PARENT}.jsonl"
    line = (
        b'{"type":"user","uuid":"u%d","sessionId":"%s","message":{"role":"user","content":"x"}}\n'
    )
    path.write_bytes(line % (1, b"other"))
    first = sync_one(store, path)
    assert source_of(store, first).id == "other"
    for number in (2, 3):
        append(path, line % (number, PARENT.encode()))
        report = sync_one(store, path)
        assert (report.session, report.state, report.new) == (first.session, "grown", 1)
    assert len(store.list()) == 1


def test_formats_do_not_meet(store: perdure.Store, tmp_path: Path) -> None:
    """Sessions of two formats with one id, in one file after the other, are two."""
    path = tmp_path / "s.jsonl"
    path.write_bytes(HEADER)
    first = sync_one(store, path)
    path.write_bytes(b'{"type":"user","uuid":"u","sessionId":"s-1","message":{"content":"x"}}\n')
    (alone,) = sync(store, [path], runtime=Machine(), formats=["claude-code"], dry_run=True).sources
    assert alone.state == "new"
    second, gone = sync(store, [path], runtime=Machine()).sources
    assert (first.format, second.format, gone.format) == (FORMAT, "claude-code", FORMAT)
    assert (second.state, len(store.list())) == ("new", 2)
    assert (gone.state, gone.session) == ("gone", first.session)
    assert first.session != second.session
    # What cannot be told from the lines is of the format that was there last.
    for text, last in ((path.read_bytes(), second), (HEADER, first)):
        path.write_bytes(text)
        sync(store, [path], runtime=Clock())
        path.write_bytes(b"x" + text[1:])
        report, _ = sync(store, [path], runtime=Clock()).sources
        assert (report.session, report.state) == (last.session, "rewritten")


def test_sub_agents_are_sessions_of_their_own(store: perdure.Store) -> None:
    """Files that carry the id of their parent are named by their agents, and told by whose."""
    report = sync(store, [DATA / "claude-code" / "codemie_-tmp-private"], runtime=OLD)
    assert report.states == {"new": 3}
    parent, *children = sorted(report.sources, key=lambda each: "agent-" in each.path)
    assert session_of(parent).startswith(f"claude-code:{PARENT}:")
    for child, agent in zip(children, ("36541525", "50243ee8"), strict=True):
        assert session_of(child).startswith(f"claude-code:{agent}:")
        assert all(f'"sessionId":"{PARENT}"' in line.data for line in kept(store, child))
        source = source_of(store, child)
        assert (source.id, source.parent, source.relation) == (agent, PARENT, "subagent")
        header = header_of(store, child.session)
        assert (header.origin, header.depth) == ("subagent", 1)
    found = {each.session for each in store.children(session_of(parent))}
    assert found == {each.session for each in children}


def test_names_are_kept_apart_by_machine_and_place() -> None:
    """An id says format and own id; what else tells files apart stands behind it."""
    ids = {
        session_id(FORMAT, path, own, machine=machine)
        for path in ("/a/s.jsonl", "/b/s.jsonl")
        for own in ("x", None)
        for machine in ("", "one", "two")
    }
    assert len(ids) == 12
    assert {id.rpartition(":")[0] for id in ids} == {f"{FORMAT}:x", f"{FORMAT}:s"}
    assert session_id(FORMAT, "/a\udcff.jsonl").startswith(f"{FORMAT}:a_:")


# --- where they come from -------------------------------------------------------------------------

CLAUDE = (
    b'{"type":"user","uuid":"u","sessionId":"%s","isSidechain":%s,"agentId":"%s",'
    b'"message":{"role":"user","content":"x"}}\n'
)


def parent_and_child(folder: Path) -> tuple[Path, Path]:
    """A session of Claude Code and its sub-agent, in a folder."""
    parent = folder / f"{PARENT}.jsonl"
    child = folder / PARENT / "subagents" / "agent-abc.jsonl"
    child.parent.mkdir(parents=True)
    parent.write_bytes(CLAUDE.replace(b',"agentId":"%s"', b"") % (PARENT.encode(), b"false"))
    child.write_bytes(CLAUDE % (PARENT.encode(), b"true", b"abc"))
    return parent, child


def elders_of(store: perdure.Store, child: SourceReport) -> set[str]:
    """The session that a sub-agent belongs to, as all say who are asked."""
    (elder,) = store.lineage(session_of(child))
    assert child.session in {each.session for each in store.children(elder.session)}
    assert store.descendants(elder.session) == [child.session]
    found = taking_up(store, session_of(child))
    return {elder.session, found.of}


def test_a_sub_agent_belongs_to_the_session_beside_it(store: perdure.Store, tmp_path: Path) -> None:
    """Where a session was found in two folders, its sub-agent in one is of the session there."""
    places = [parent_and_child(tmp_path / name) for name in ("a", "b")]
    synced = sync(store, [tmp_path], runtime=OLD)
    reports = {each.path: each for each in synced.sources}
    for parent, child in places:
        assert elders_of(store, reports[str(child)]) == {reports[str(parent)].session}


@pytest.mark.parametrize(
    ("then", "now", "other"),
    [
        (Machine("m", "h"), Machine("m", "h"), Machine("n", "i")),
        (Machine("m", "h"), Machine("m", "h"), Machine("n", "h")),
        (Machine("m", "h"), Machine("m", "i"), Machine("n", "i")),
    ],
    ids=["other", "of-one-name", "renamed"],
)
def test_a_sub_agent_belongs_to_a_session_of_its_machine(
    store: perdure.Store, tmp_path: Path, then: Machine, now: Machine, other: Machine
) -> None:
    """What another machine keeps is not meant, though its path be nearer and its name the same."""
    far, _ = parent_and_child(tmp_path / "a")
    near, child = parent_and_child(tmp_path / "b")
    theirs, ours = sync_one(store, near, other), sync_one(store, far, then)
    assert theirs.session != ours.session
    assert elders_of(store, sync_one(store, child, now)) == {ours.session}


def test_where_no_machine_is_known_its_name_tells(store: perdure.Store) -> None:
    """Of imports that do not say their machine, those of one name are of one machine."""
    for host, place in (("h", "/a"), ("i", "/b")):
        source = Source("claude-code", PARENT, host, f"{place}/{PARENT}.jsonl", None, None)
        with store.create(f"of {host}", vocabulary=None, source=source) as session:
            session.append("claude-code/user", "{}\n", key="0:0")
    path = f"/b/{PARENT}/subagents/agent-c.jsonl"
    for machine in (None, "m"):
        source = Source("claude-code", "c", "h", path, PARENT, "subagent", machine)
        id = f"sub of {machine}"
        with store.create(id, vocabulary=None, source=source, origin="subagent") as session:
            session.append("claude-code/user", "{}\n", key="0:0")
        assert [each.session for each in store.lineage(id)] == ["of h"]
        assert taking_up(store, id).of == "of h"


# --- several machines -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("command", [False, True])
def test_archives_of_two_machines_go_into_one(
    tmp_path: Path, path: Path, kind: str, command: bool
) -> None:
    """Files of one path and one id, of two machines, are two sessions in one archive."""
    texts = {"old": HEADER + A, "new": HEADER + B + A}
    sessions = {}
    for host, text in texts.items():
        path.write_bytes(text)
        with open_medium(kind, tmp_path, host) as made:
            sessions[host] = session_of(sync_one(made, path, Machine(host)))
    assert len({*sessions.values()}) == 2
    assert {id.rpartition(":")[0] for id in sessions.values()} == {f"{FORMAT}:s-1"}
    for host, id in sessions.items():
        with open_medium(kind, tmp_path, host) as one, open_medium(kind, tmp_path, "both") as both:
            if command:
                places = [place_of(kind, tmp_path, name) for name in (host, "both")]
                result = CliRunner().invoke(cli, ["copy", *places])
                assert result.exit_code == 0, result.output
            else:
                one.copy(id, both)
            assert_equal(one, both, id)
    with open_medium(kind, tmp_path, "both") as both:
        assert {entry.id for entry in both.list()} == {*sessions.values()}
        for host, id in sessions.items():
            source = header_of(both, id).source
            assert source is not None
            assert (source.host, source.machine) == (host, host)
            assert (source.path, source.id) == (str(path), "s-1")
        # The file that is there is that of the second machine, which goes on in its own session.
        append(path, B)
        report = sync_one(both, path, NEW)
        assert (report.session, report.state, report.new) == (sessions["new"], "grown", 1)
        assert text_of(both, report) == texts["new"] + B
        path.unlink()
        report = sync_one(both, path.parent, NEW)
        assert (report.session, report.state) == (sessions["new"], "gone")
        assert both.inspect(sessions["old"]).position == position_in(
            kind, tmp_path, sessions["old"]
        )


def place_of(kind: str, folder: Path, name: str) -> str:
    """Where `open_medium` puts a store."""
    if kind in FOLDERS:
        return str(folder / f"{name}-{kind}")
    return f"{kind}:{folder / name}.{'perdure' if kind == 'bundle' else kind}"


def position_in(kind: str, folder: Path, id: str) -> perdure.Position | None:
    with open_medium(kind, folder, "old") as one:
        return one.inspect(id).position


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize(
    ("before", "after"),
    [(Machine("m", "old"), Machine("m", "new")), (Machine("m", "h"), Machine("n", "h"))],
    ids=["renamed", "installed-anew"],
)
def test_a_machine_goes_on_under_another_name(
    store: perdure.Store, path: Path, before: Machine, after: Machine, remembered: bool
) -> None:
    """On a machine that was renamed, or installed anew, the same file is the same session."""
    path.write_bytes(HEADER + A)
    first = import_one(store, path, before)
    steps = []
    for more in (b"", B, b'{"type":"to', b'rn"}\n' + B, b""):
        append(path, more)
        if not remembered:
            forget(store, first)
        report = import_one(store, path, after)
        steps.append((report.session == first.session, report.state, report.new))
        assert text_of(store, report) == path.read_bytes()
    assert steps == [
        (True, "unchanged", 0),
        (True, "grown", 1),
        (True, "grown", 1),
        (True, "grown", 2),
        (True, "unchanged", 0),
    ]
    assert len(store.list()) == 1
    source = source_of(store, first)
    assert (source.machine, source.host) == (before.machine(), before.host())


def test_a_renamed_machine_misses_its_files(store: perdure.Store, path: Path) -> None:
    """Under another name a machine still knows what was rewritten, vanished or deleted on it."""
    before, after = Machine("m", "old"), Machine("m", "new")
    path.write_bytes(HEADER + A)
    first = sync_one(store, path.parent, before)
    path.write_bytes(HEADER + B)
    report = sync_one(store, path.parent, after)
    assert (report.session, report.state) == (first.session, "rewritten")
    path.unlink()
    report = sync_one(store, path.parent, after)
    assert (report.session, report.state) == (first.session, "gone")
    store.delete(session_of(first))
    path.write_bytes(HEADER + B)
    assert "was deleted" in str(sync_one(store, path.parent, after).skipped)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + B,
        HEADER,
        HEADER + A[:-1],
        HEADER + A[:-2] + b"x\n",
        HEADER.replace(b"s-1", b"s-2") + A,
        HEADER.replace(b"/srv/a", b"/srv/b") + A,
    ],
    ids=["other", "shorter", "torn", "last-byte", "other-id", "other-header"],
)
@pytest.mark.parametrize("host", ["h", "other"])
def test_another_file_at_the_same_path_is_another_session(
    store: perdure.Store, path: Path, text: bytes, host: str
) -> None:
    """On another machine, a file that does not hold all of what is stored is one of its own."""
    there, here = Machine("m", "h"), Machine("n", host)
    path.write_bytes(HEADER + A)
    first = import_one(store, path, there)
    path.write_bytes(text)
    report = import_one(store, path, here)
    assert (report.state, report.unchanged) == ("new", 0)
    assert report.session != first.session
    assert [source_of(store, each).machine for each in (first, report)] == ["m", "n"]
    assert (text_of(store, first), text_of(store, report)) == (HEADER + A, text)
    append(path, B)
    again = import_one(store, path, here)
    assert again.session == report.session


def test_an_equal_file_of_another_machine_is_another_session(
    store: perdure.Store, path: Path
) -> None:
    """Where neither the machine nor its name is the same, not even an equal file is the same."""
    path.write_bytes(HEADER + A)
    first, second = import_one(store, path, OLD), import_one(store, path, NEW)
    assert (first.state, second.state) == ("new", "new")
    assert first.session != second.session
    assert text_of(store, first) == text_of(store, second)
    assert import_one(store, path, OLD).session == first.session
    assert import_one(store, path, NEW).session == second.session


def test_a_torn_line_that_went_on_otherwise_is_another_file(
    store: perdure.Store, path: Path
) -> None:
    """On a machine installed anew a torn last line has to be what the line begins with."""
    path.write_bytes(HEADER + b'{"type":"x"')
    first = import_one(store, path, Machine("m", "h"))
    path.write_bytes(HEADER + b'{"type":"y","a":1}\n')
    report = import_one(store, path, Machine("n", "h"))
    assert (report.state, report.session == first.session) == ("new", False)


def test_files_of_other_machines_are_not_looked_for(store: perdure.Store, path: Path) -> None:
    """What another machine keeps is not gone because it is not here."""
    path.write_bytes(HEADER + A)
    first = import_one(store, path, OLD)
    position = store.inspect(session_of(first)).position
    path.unlink()
    assert sync(store, [path.parent], runtime=NEW).sources == ()
    assert sync(store, [], runtime=NEW).sources == ()
    assert store.inspect(session_of(first)).position == position
    assert [each.state for each in sync(store, [path.parent], runtime=OLD).sources] == ["gone"]


def test_an_id_may_be_a_number(store: perdure.Store, path: Path) -> None:
    """Ids beyond the precision of a float are kept to the last digit."""
    big = 2**63 + 1
    line = json.dumps({"type": "session", "createdAt": 5, "id": big}).encode() + b"\n"
    path.write_bytes(line)
    assert source_of(store, sync_one(store, path)).id == str(big)
