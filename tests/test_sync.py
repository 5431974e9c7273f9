"""Bringing a store up to date: what is found, what is gone, and that sources are only read."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InvalidValue, SessionDamaged, StorageUnavailable
from perdure.importers import (
    ImportReport,
    Progress,
    SourceReport,
    import_sessions,
    places,
    sync,
)
from perdure.importers.files import SourceFile
from perdure.importers.following import Follower
from perdure.importers.json_lines import parse
from tests.media import KEPT, open_medium
from tests.sources import (
    DATA,
    FORMAT,
    HEADER,
    Machine,
    append,
    flipped,
    forget,
    frame,
    import_one,
    kept,
    of_type,
    record,
    session_of,
    states,
    sync_one,
    text_of,
)

HERE = Machine()
A, B = record("a", 1), record("b", 2)
CLAUDE = b'{"type":"user","uuid":"u%d","sessionId":"s","message":{"role":"user","content":"x"}}\n'
SUB_AGENTS = DATA / "claude-code" / "as_subagent"


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


@pytest.fixture
def source(folder: Path) -> Path:
    path = folder / "session.jsonl"
    path.write_bytes(HEADER + A)
    return path


def by_name(report: ImportReport) -> dict[str, str]:
    return {Path(each.path).name: each.state for each in report.sources}


def marks(store: perdure.Store, report: SourceReport) -> list[str]:
    """Return what the log says of the source being there, in order."""
    return [event.type for event in of_type(store, report, "source/gone", "source/found")]


# --- what is found --------------------------------------------------------------------------------


def test_files_are_recognised_by_what_they_hold(store: perdure.Store, folder: Path) -> None:
    """Whatever a file is called, its records say which agent's it is; others are passed over."""
    (folder / "below").mkdir()
    (folder / "below" / "x.jsonl").write_bytes(HEADER + A)
    (folder / "y.jsonl").write_bytes(CLAUDE % 1)
    (folder / "z.jsonl.zst").write_bytes(
        frame(b'{"timestamp":"2025-01-01T00:00:00Z","type":"session_meta","payload":{"id":"t"}}\n')
    )
    (folder / "other.jsonl").write_bytes(b'{"type":"session","timestamp":"2025-01-01"}\n')
    (folder / "notes.txt").write_bytes(HEADER)
    report = sync(store, [folder], runtime=HERE)
    assert {Path(each.path).name: (each.format, each.state) for each in report.sources} == {
        "x.jsonl": (FORMAT, "new"),
        "y.jsonl": ("claude-code", "new"),
        "z.jsonl.zst": ("codex", "new"),
        "other.jsonl": (None, "skipped"),
    }
    assert report.format is None
    assert (report.found, report.new) == (4, 4)
    assert report.as_dict()["states"] == {"new": 3, "skipped": 1}


def test_formats_can_be_chosen(store: perdure.Store, folder: Path, source: Path) -> None:
    """Only files of the formats that are asked for are imported, or missed."""
    (folder / "y.jsonl").write_bytes(CLAUDE % 1)
    chosen = sync(store, [folder], formats=["claude-code"], runtime=HERE)
    assert by_name(chosen) == {"session.jsonl": "skipped", "y.jsonl": "new"}
    assert by_name(sync(store, [folder], runtime=HERE))["session.jsonl"] == "new"
    source.unlink()
    chosen = sync(store, [folder], formats=["claude-code"], runtime=HERE)
    assert by_name(chosen) == {"y.jsonl": "unchanged"}
    with pytest.raises(InvalidValue):
        sync(store, [folder], formats=["nothing"])
    with pytest.raises(InvalidValue):
        sync(store, str(folder))


def test_a_head_that_says_little_hides_nothing(store: perdure.Store, folder: Path) -> None:
    """A file is recognised by its first 50 lines, of which most may be of no known kind."""
    little = b'{"type":"later-kind"}\n'
    for number in (0, 49, 50):
        (folder / f"{number}.jsonl").write_bytes(little * number + CLAUDE % number + CLAUDE % 99)
    report = sync(store, [folder], runtime=HERE)
    assert by_name(report) == {"0.jsonl": "new", "49.jsonl": "new", "50.jsonl": "skipped"}
    (named,) = import_sessions(store, "claude-code", [folder / "50.jsonl"], runtime=HERE).sources
    assert (named.state, named.new, named.problem_count) == ("new", 52, 1)


def test_the_folders_of_the_agents_are_those_of_the_environment(tmp_path: Path) -> None:
    """Without paths, what is looked through is what each agent uses, as far as it is there."""
    home = tmp_path / "home"
    claude, moved = home / ".claude" / "projects", tmp_path / "moved"
    sessions = home / ".dsh" / "sessions"
    for each in (claude, sessions, moved / "projects"):
        each.mkdir(parents=True)
    (claude / "s.jsonl").write_bytes(CLAUDE % 1)
    (moved / "projects" / "s.jsonl").write_bytes(CLAUDE % 1)
    (sessions / "session.jsonl").write_bytes(HEADER)
    at_home = Machine(HOME=str(home))
    elsewhere = Machine(HOME=str(home), CLAUDE_CONFIG_DIR=str(moved))
    assert places(runtime=at_home) == [str(claude), str(sessions)]
    assert places(["claude-code"], runtime=elsewhere) == [str(moved / "projects")]
    with perdure.open("memory:") as store:
        assert sync(store, runtime=at_home).states == {"new": 2}
        report = sync(store, formats=["claude-code"], runtime=elsewhere)
        assert [(each.path, each.state) for each in report.sources] == [
            (str(moved / "projects" / "s.jsonl"), "new")
        ]
        assert sync(store, runtime=at_home).states == {"unchanged": 2}


def test_what_another_file_holds_is_passed_over(store: perdure.Store, folder: Path) -> None:
    """Of a rollout in two forms only the one is imported that its agent goes on with."""
    line = b'{"timestamp":"2025-01-01T00:00:00Z","type":"session_meta","payload":{"id":"t"}}\n'
    name = "rollout-2025-01-01T00-00-00-019e1695-0522-7c83-8b39-0dd379793f80.jsonl"
    (folder / name).write_bytes(line)
    (folder / f"{name}.zst").write_bytes(frame(line))
    report = sync(store, [folder], runtime=HERE)
    assert by_name(report) == {name: "new", f"{name}.zst": "skipped"}
    (skipped,) = report.skipped
    assert (skipped.format, skipped.skipped) == ("codex", f"{name} holds all of it")


ROLLOUT = "rollout-2025-12-18T10-00-00-019b2ea4-aaaa-7bbb-8ccc-58208e1f0000.jsonl"
META = b'{"timestamp":"2025-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}\n'
SAID = b'{"timestamp":"2025-01-01T00:00:01Z","type":"event_msg","payload":{"type":"a%d"}}\n'


@pytest.mark.parametrize(
    ("plain", "state"),
    [
        (META[:40], "new"),
        (META, "new"),
        (SAID % 1 + META, "new"),
        (b"note\n", "new"),
        (META + SAID % 1 + SAID % 2, "skipped"),
    ],
    ids=["torn", "less", "other", "noise", "more"],
)
def test_only_what_holds_all_of_a_file_makes_it_superfluous(
    store: perdure.Store, folder: Path, plain: bytes, state: str
) -> None:
    """A compressed rollout is passed over only if the plain one begins with the text of it."""
    (folder / ROLLOUT).write_bytes(plain)
    squeezed = folder / f"{ROLLOUT}.zst"
    squeezed.write_bytes(frame(META + SAID % 1))
    for _ in range(2):
        assert by_name(sync(store, [folder], runtime=HERE))[squeezed.name] == state
        state = state.replace("new", "unchanged")


@pytest.mark.parametrize("to", ["nowhere", "there"])
def test_a_link_makes_no_file_superfluous(
    store: perdure.Store, tmp_path: Path, folder: Path, to: str
) -> None:
    """A compressed rollout beside a link, which is not followed, is imported."""
    (tmp_path / "there").write_bytes(META)
    (folder / ROLLOUT).symlink_to(tmp_path / to)
    (folder / f"{ROLLOUT}.zst").write_bytes(frame(META))
    found = by_name(sync(store, [folder], runtime=HERE))
    assert found == {ROLLOUT: "skipped", f"{ROLLOUT}.zst": "new"}


def test_what_is_kept_or_named_is_not_superfluous(store: perdure.Store, folder: Path) -> None:
    """A compressed rollout is imported if somebody names it, and is followed from then on."""
    squeezed = folder / f"{ROLLOUT}.zst"
    squeezed.write_bytes(frame(META))
    (folder / ROLLOUT).write_bytes(META)
    first = sync_one(store, squeezed)
    assert first.state == "new"
    append(squeezed, frame(SAID % 1))
    append(folder / ROLLOUT, SAID % 1)
    report = sync(store, [folder], runtime=HERE)
    assert by_name(report) == {ROLLOUT: "new", squeezed.name: "grown"}
    assert marks(store, first) == []


def test_a_damaged_file_is_not_superfluous(store: perdure.Store, folder: Path) -> None:
    """A compressed rollout of which not all can be read may hold what the plain one does not."""
    (folder / ROLLOUT).write_bytes(META + SAID % 1)
    (folder / f"{ROLLOUT}.zst").write_bytes(frame(META) + frame(SAID % 1)[:-6])
    report = sync(store, [folder], runtime=HERE)
    assert by_name(report) == {ROLLOUT: "new", f"{ROLLOUT}.zst": "new"}


def test_an_empty_file_holds_nothing_of_another(store: perdure.Store, folder: Path) -> None:
    """A rollout beside which there is an empty one is imported: all that there is, is in it."""
    thread = "rollout-2025-12-18T10-00-00-019b2ea4-aaaa-7bbb-8ccc-58208e1f0000.jsonl"
    (folder / thread).write_bytes(b"")
    line = b'{"type":"session_meta","payload":{"id":"s"}}\n'
    (folder / f"{thread}.zst").write_bytes(frame(line))
    assert by_name(sync(store, [folder], runtime=HERE)) == {
        thread: "skipped",
        f"{thread}.zst": "new",
    }


@pytest.mark.parametrize("where", [".dsh", ".dsh/sessions"])
@pytest.mark.parametrize("named", [True, False])
def test_databases_of_an_agent_are_told_of(
    store: perdure.Store, tmp_path: Path, where: str, *, named: bool
) -> None:
    """A database in which an agent may keep sessions is skipped with that reason, never in silence.

    Nothing of it is imported, also where only one format is asked for.
    """
    home = Machine(HOME=str(tmp_path))
    folder = tmp_path / where
    folder.mkdir(parents=True)
    for name in ("sessions.db", "store.sqlite", "store.sqlite3", "sessions.db-wal", "notes.txt"):
        (folder / name).write_bytes(b"SQLite format 3\0")
    (folder / "link.db").symlink_to(folder / "sessions.db")
    wanted = [str(folder / name) for name in ("sessions.db", "store.sqlite", "store.sqlite3")]
    for formats in (None, [FORMAT]):
        paths = [tmp_path / ".dsh"] if named else None
        report = sync(store, paths, runtime=home, formats=formats)
        found = [each for each in report.sources if not each.path.endswith("link.db")]
        assert [(each.path, each.state, each.format) for each in found] == [
            (path, "skipped", FORMAT) for path in wanted
        ]
        assert all(str(each.skipped).startswith("an SQLite database, and") for each in found)
    assert set(wanted) <= set(places(runtime=home))
    assert store.list() == []
    assert sync(store, runtime=home, formats=["codex"]).sources == ()


def test_progress_is_told_file_by_file(store: perdure.Store, folder: Path) -> None:
    """Before each file it is said how many were looked at, of how many, and what became of one."""
    for name in "ab":
        (folder / f"{name}.jsonl").write_bytes(HEADER)
    told: list[Progress] = []
    report = sync(store, [folder], runtime=HERE, progress=told.append)
    assert told == [
        Progress(0, 2, None),
        Progress(1, 2, report.sources[0]),
        Progress(2, 2, report.sources[1]),
    ]
    told.clear()
    assert sync(store, [], runtime=HERE, progress=told.append).sources == ()
    assert told == [Progress(0, 0, None)]


def test_paths_may_overlap(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is named, found in a folder and named by a relative path is imported once."""
    monkeypatch.chdir(folder)
    report = sync(store, [source, folder, "session.jsonl", ".", Path()], runtime=HERE)
    assert [(each.path, each.state) for each in report.sources] == [(str(source), "new")]


def test_a_path_that_is_no_text_is_kept(store: perdure.Store, folder: Path) -> None:
    """A file whose name is no UTF-8 is imported, found again, and grows."""
    path = Path(os.fsdecode(os.fsencode(folder) + b"/s\xff.jsonl"))
    path.write_bytes(HEADER + A)
    first = sync_one(store, folder)
    assert (first.state, first.path) == ("new", str(path))
    assert sync_one(store, folder).state == "unchanged"
    append(path, B)
    assert sync_one(store, folder).state == "grown"
    path.unlink()
    assert [sync_one(store, folder).state for _ in range(2)] == ["gone", "gone"]
    assert marks(store, first) == ["source/gone"]


# --- what is gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("remembered", [True, False])
def test_what_is_gone_is_marked_once_and_stays(
    store: perdure.Store, folder: Path, source: Path, remembered: bool
) -> None:
    """A source that vanished is reported each time, marked once, and its session is all there."""
    first = sync_one(store, folder)
    source.unlink()
    if not remembered:
        forget(store, first)
    report = sync_one(store, folder)
    assert (report.state, report.session, report.error) == ("gone", first.session, None)
    assert (report.new, report.format, report.path) == (0, FORMAT, str(source))
    position = store.inspect(session_of(first)).position
    for _ in range(2):
        if not remembered:
            forget(store, first)
        assert sync_one(store, folder).state == "gone"
    assert store.inspect(session_of(first)).position == position
    (mark,) = of_type(store, first, "source/gone")
    assert mark.data == {"path": str(source), "noticed_at": HERE.NOW}
    assert (mark.time, mark.key) == (1, None)
    assert text_of(store, first) == HEADER + A
    assert [entry.id for entry in store.list()] == [first.session]
    assert store.verify(session_of(first)).status == "ok"


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize(
    ("back", "state", "new"),
    [
        (HEADER + A, "unchanged", 0),
        (HEADER + A + B, "grown", 1),
        (HEADER + B, "rewritten", 1),
        (HEADER, "rewritten", 0),
    ],
    ids=["same", "grown", "other", "shorter"],
)
def test_what_comes_back_is_marked_once(
    store: perdure.Store,
    folder: Path,
    source: Path,
    *,
    back: bytes,
    state: str,
    new: int,
    remembered: bool,
) -> None:
    """A source that is there again goes on in its session, and may go and come as it likes."""
    first = sync_one(store, folder)
    for turn in (1, 2):
        source.unlink()
        assert sync_one(store, folder).state == "gone"
        source.write_bytes(back)
        if not remembered:
            forget(store, first)
        report = sync_one(store, folder)
        assert (report.state, report.new) == ((state, new) if turn == 1 else ("unchanged", 0))
        assert report.session == first.session
        assert sync_one(store, folder).state == "unchanged"
        assert marks(store, first) == ["source/gone", "source/found"] * turn
        *_, found = of_type(store, first, "source/found")
        assert found.data == {"path": str(source), "noticed_at": HERE.NOW}
        assert text_of(store, report) == back
    assert store.verify(session_of(first)).status == "ok"


def test_a_whole_folder_may_be_gone(store: perdure.Store, folder: Path, source: Path) -> None:
    """A folder that vanished, or that is a file now, takes none of its sessions along."""
    (folder / "two.jsonl").write_bytes(HEADER + B)
    sync(store, [folder.parent], runtime=HERE)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    assert by_name(sync(store, [folder.parent], runtime=HERE)) == {
        "session.jsonl": "gone",
        "two.jsonl": "gone",
    }
    folder.write_bytes(b"")
    assert sync(store, [folder.parent], runtime=HERE).states == {"gone": 2}
    assert len(store.list()) == 2
    assert source.name == "session.jsonl"


def make_folder(path: Path) -> None:
    path.mkdir()
    (path / "inner.jsonl").write_bytes(HEADER)


def make_link(path: Path) -> None:
    (path.parent.parent / "elsewhere.jsonl").write_bytes(HEADER + A)
    path.symlink_to(path.parent.parent / "elsewhere.jsonl")


INSTEAD: dict[str, tuple[Any, str]] = {
    "nothing in it": (lambda path: path.write_bytes(b""), "the file is empty"),
    "no line": (
        lambda path: path.write_bytes(frame(HEADER)[:9]),
        "no whole line can be read in the file",
    ),
    "a folder": (make_folder, "a folder is at its path now"),
    "a link": (make_link, "no file is at its path now: a symbolic link; name the file itself"),
    "a pipe": (os.mkfifo, "no file is at its path now: not a regular file"),
    "another session": (
        lambda path: path.write_bytes(HEADER.replace(b"s-1", b"s-2")),
        "the file holds another session now, deepseek-harness:s-2:",
    ),
    "a session of another agent": (
        lambda path: path.write_bytes(CLAUDE % 1),
        "the file holds another session now, claude-code:s:",
    ),
}
"""What may be at the path of a source, and what is said of that."""


@pytest.mark.parametrize("remembered", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(("instead", "reason"), INSTEAD.values(), ids=INSTEAD)
def test_a_path_that_holds_something_else_is_as_good_as_gone(
    store: perdure.Store,
    folder: Path,
    source: Path,
    instead: Any,
    reason: str,
    *,
    named: bool,
    remembered: bool,
) -> None:
    """Whatever takes the place of a source, its session is told of, with that, and marked once."""
    first = sync_one(store, folder)
    was = source.read_bytes()
    source.unlink()
    instead(source)
    place = source if named else folder
    for _ in range(3):
        if not remembered:
            forget(store, first)
        dry = sync(store, [place], runtime=HERE, dry_run=True)
        report = sync(store, [place], runtime=HERE)
        assert {each.state for each in dry.sources} == {each.state for each in report.sources}
        (gone,) = (each for each in report.sources if each.state == "gone")
        assert (gone.session, gone.path, gone.format) == (first.session, str(source), FORMAT)
        assert str(gone.reason).startswith(reason)
        assert (gone.found, gone.error, report.failed, report.skipped) == (2, None, (), ())
    assert marks(store, first) == ["source/gone"]
    assert text_of(store, first) == was
    if source.is_dir():
        (source / "inner.jsonl").unlink()
    source.rmdir() if source.is_dir() else source.unlink()
    source.write_bytes(was + B)
    back = next(each for each in sync(store, [place], runtime=HERE).sources if each.new)
    assert (back.state, back.session, back.new) == ("grown", first.session, 1)
    assert marks(store, first) == ["source/gone", "source/found"]


def test_a_named_import_tells_of_what_is_gone(store: perdure.Store, source: Path) -> None:
    """Whoever imports a path by name hears of the session that it held, too."""
    first = import_one(store, source)
    source.write_bytes(b"")
    (gone,) = import_sessions(store, FORMAT, [source], runtime=HERE).sources
    assert (gone.state, gone.session, gone.reason) == ("gone", first.session, "the file is empty")
    source.unlink()
    source.symlink_to("elsewhere")
    (gone,) = import_sessions(store, FORMAT, [source], runtime=HERE).sources
    assert (gone.state, gone.session) == ("gone", first.session)
    assert marks(store, first) == ["source/gone"]


def test_an_empty_file_that_nobody_kept_is_skipped(store: perdure.Store, folder: Path) -> None:
    """A path that no session keeps is passed over, with the reason."""
    (folder / "empty.jsonl").write_bytes(b"")
    report = sync_one(store, folder)
    assert (report.state, report.skipped, report.session) == ("skipped", "empty", None)


def test_a_damaged_session_does_not_hide_that_another_is_there(
    tmp_path: Path, folder: Path, source: Path
) -> None:
    """Where the session that a path held cannot be read, that fails, and its successor is kept."""
    with open_medium("raw", tmp_path) as store:
        first = sync_one(store, folder)
        log = Path(str(store.locate(session_of(first))))
        log.write_bytes(log.read_bytes().replace(b"harness/a", b"harness/z"))
        source.write_bytes(HEADER.replace(b"s-1", b"s-2"))
        kept_now, gone = sync(store, [folder], runtime=HERE).sources
        assert (kept_now.state, gone.state, gone.session) == ("new", "failed", first.session)
        assert isinstance(gone.error, SessionDamaged)


def test_a_mark_waits_for_whoever_writes(
    tmp_path: Path, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a source is gone is written down also if somebody appended while it was looked at."""
    with open_medium("raw", tmp_path) as store, open_medium("raw", tmp_path) as other:
        first = sync_one(store, folder)
        source.unlink()
        real, left = perdure.Store.writer, [1]

        def first_other(self: perdure.Store, *given: Any, **named: Any) -> Any:
            if self is store and left:
                left.pop()
                with real(other, session_of(first)) as session:
                    session.append("note", "mine")
            return real(self, *given, **named)

        with monkeypatch.context() as patch:
            patch.setattr(perdure.Store, "writer", first_other)
            report = sync_one(store, folder)
        assert (report.state, report.error, left) == ("gone", None, [])
        assert marks(store, first) == ["source/gone"]


def test_a_folder_that_was_away_is_found_as_it_was(
    store: perdure.Store, folder: Path, source: Path
) -> None:
    """Files of a folder that was moved away and back are found, though nothing happened to them."""
    first = sync_one(store, folder)
    before = source.stat()
    folder.rename(folder.with_name("away"))
    assert sync(store, [folder.parent / "logs"], runtime=HERE).states == {"failed": 1, "gone": 1}
    folder.with_name("away").rename(folder)
    assert source.stat() == before
    for _ in range(2):
        assert sync_one(store, folder).state == "unchanged"
    assert marks(store, first) == ["source/gone", "source/found"]


def test_what_is_missed_is_below_the_paths(
    store: perdure.Store, tmp_path: Path, folder: Path, source: Path
) -> None:
    """Only what was imported from the places that are looked through is missed there."""
    (tmp_path / "logs-2").mkdir()
    (tmp_path / "logs-2" / "session.jsonl").write_bytes(HEADER)
    sync(store, [tmp_path], runtime=HERE)
    source.unlink()
    (tmp_path / "logs-2" / "session.jsonl").unlink()
    assert sync(store, [tmp_path / "log"], runtime=HERE).states == {"failed": 1}
    report = sync(store, [folder], runtime=HERE)
    assert [each.path for each in report.sources] == [str(source)]
    assert sync(store, [f"{tmp_path}/"], runtime=HERE).states == {"gone": 2}


def test_a_named_file_that_is_gone_is_told_of_once(store: perdure.Store, source: Path) -> None:
    """A file that is named and gone is gone if it was imported, and missing if not."""
    first = sync_one(store, source)
    source.unlink()
    report = sync_one(store, source)
    assert (report.state, report.session) == ("gone", first.session)
    missing = sync_one(store, source.with_name("none.jsonl"))
    assert isinstance(missing.error, StorageUnavailable)
    assert (missing.state, missing.session) == ("failed", None)


def test_a_deleted_session_is_not_missed(store: perdure.Store, folder: Path, source: Path) -> None:
    """What was deleted here is neither brought back nor missed, also in a dry run."""
    first = sync_one(store, folder)
    store.delete(session_of(first))
    dry, report = sync_one(store, folder, dry_run=True), sync_one(store, folder)
    assert dry == report
    assert (report.state, "was deleted" in str(report.skipped)) == ("skipped", True)
    source.unlink()
    assert sync(store, [folder], runtime=HERE).sources == ()
    assert store.list() == []


@pytest.mark.parametrize("kind", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ELOOP])
def test_what_cannot_be_looked_at_is_not_gone(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """Where the system does not let a folder be read, it is reported, and nothing is marked."""
    first = sync_one(store, folder.parent)
    position = store.inspect(session_of(first)).position

    def refusing(real: Any) -> Any:
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(path, str | bytes | os.PathLike) and (
                os.fsdecode(path) == str(folder) or os.fsdecode(path).startswith(f"{folder}/")
            ):
                raise OSError(kind, os.strerror(kind), os.fsdecode(path))
            return real(path, *rest, **options)

        return call

    with monkeypatch.context() as patch:
        for name in ("lstat", "scandir", "open"):
            patch.setattr(os, name, refusing(getattr(os, name)))
        report = sync(store, [folder.parent], runtime=HERE)
    (failed,) = report.sources
    assert (failed.state, failed.path) == ("failed", str(folder))
    assert isinstance(failed.error, StorageUnavailable)
    assert os.strerror(kind) in failed.error.message
    assert store.inspect(session_of(first)).position == position
    assert sync_one(store, folder).state == "unchanged"
    assert source.exists()


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_file_may_go_while_it_is_looked_at(
    store: perdure.Store,
    folder: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    named: bool,
    known: bool,
) -> None:
    """What vanishes between being found and being opened is gone, or missing if it was named."""
    first = sync_one(store, folder) if known else None
    append(source, B)
    (folder / "b.jsonl").write_bytes(HEADER)
    construct = SourceFile.__init__

    def vanishing(file: SourceFile, path: str) -> None:
        if path == str(source):
            source.unlink(missing_ok=True)
        construct(file, path)

    with monkeypatch.context() as patch:
        patch.setattr(SourceFile, "__init__", vanishing)
        report = sync(store, [source, folder] if named else [folder], runtime=HERE)
    state = "gone" if known else "failed" if named else "skipped"
    assert by_name(report) == {"b.jsonl": "new", "session.jsonl": state}
    if first is not None:
        (gone,) = (each for each in report.sources if each.state == "gone")
        assert (gone.session, gone.reason, gone.found) == (first.session, None, 2)
        assert marks(store, first) == ["source/gone"]


def test_a_folder_may_go_while_it_is_looked_through(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder below a place that vanishes before it is listed is passed over."""
    (folder / "below").mkdir()
    listing = os.scandir

    def vanishing(path: str) -> Any:
        if path == str(folder / "below"):
            (folder / "below").rmdir()
        return listing(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", vanishing)
        assert by_name(sync(store, [folder], runtime=HERE)) == {source.name: "new"}


def test_an_empty_path_names_nothing(store: perdure.Store) -> None:
    """An empty text, as from a variable that is not set, is not the current folder."""
    with pytest.raises(InvalidValue, match="empty path"):
        sync(store, ["/nowhere", ""], runtime=HERE)
    with pytest.raises(InvalidValue, match="empty path"):
        import_sessions(store, FORMAT, [""], runtime=HERE)
    with pytest.raises(InvalidValue, match="empty path"):
        Follower(store, [""], runtime=HERE)


def test_a_damaged_session_stops_no_other(tmp_path: Path, folder: Path) -> None:
    """A session that cannot be read fails, also where its file is gone; the others go on."""
    for name in "abc":
        (folder / f"{name}.jsonl").write_bytes(HEADER + A)
    with perdure.open(tmp_path / "store", encoding="raw") as store:
        report = sync(store, [folder], runtime=HERE)
        log = Path(str(store.locate(session_of(report.sources[1]))))
        log.write_bytes(log.read_bytes().replace(b"harness/a", b"harness/z"))
        append(folder / "c.jsonl", B)
        append(folder / "b.jsonl", B)
        report = sync(store, [folder], runtime=HERE)
        assert by_name(report) == {"a.jsonl": "unchanged", "b.jsonl": "failed", "c.jsonl": "grown"}
        assert isinstance(report.failed[0].error, SessionDamaged)
        for name in "abc":
            (folder / f"{name}.jsonl").unlink()
        report = sync(store, [folder], runtime=HERE)
        assert by_name(report) == {"a.jsonl": "gone", "b.jsonl": "failed", "c.jsonl": "gone"}
        assert isinstance(report.failed[0].error, SessionDamaged)


# --- sources are only read ------------------------------------------------------------------------


def fill(folder: Path) -> None:
    """Put a source of each kind into a folder."""
    (folder / "below").mkdir()
    (folder / "session.jsonl").write_bytes(HEADER + A)
    (folder / "below" / "s.jsonl").write_bytes(CLAUDE % 1 + b'{"torn')
    (folder / "below" / "session.jsonl.zstd").write_bytes(frame(HEADER) + frame(B))
    damaged = frame(A)
    (folder / "session.jsonl.zst").write_bytes(
        frame(HEADER) + flipped(damaged, len(damaged) - 1) + frame(B)[:-3]
    )
    for path in sorted(SUB_AGENTS.rglob("*")):
        target = folder / path.relative_to(SUB_AGENTS)
        if path.is_dir():
            target.mkdir()
        else:
            target.write_bytes(path.read_bytes())


def grow(folder: Path) -> None:
    append(folder / "session.jsonl", B)
    append(folder / "below" / "session.jsonl.zstd", frame(A))
    (folder / "below" / "s.jsonl").write_bytes(CLAUDE % 2)


@pytest.mark.parametrize("kind", ["raw", "sqlite"])
def test_sources_are_as_they_were(tmp_path: Path, folder: Path, kind: str) -> None:
    """Files that may only be read, in folders that may not be written, are left to the last bit."""
    fill(folder)
    held = [*folder.rglob("*"), folder]
    with open_medium(kind, tmp_path) as store:
        for change in (None, grow):
            if change is not None:
                change(folder)
            for path in held:
                path.chmod(0o500 if path.is_dir() else 0o400)
            before = {path: path.read_bytes() for path in held if path.is_file()}, states(folder)
            for _ in range(2):
                report = sync(store, [folder], runtime=HERE)
                assert report.failed == ()
                assert len(report.sources) == 6
                sync(store, [folder], runtime=HERE, dry_run=True)
                import_sessions(store, FORMAT, [folder / "session.jsonl"], runtime=HERE)
            after = {path: path.read_bytes() for path in held if path.is_file()}, states(folder)
            assert after == before
            assert sorted(folder.rglob("*")) == sorted(held[:-1])
            for path in held:
                path.chmod(0o700 if path.is_dir() else 0o600)


def test_sources_are_opened_to_be_read_and_not_locked(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock is ever asked for on a source, nor one of them opened in another way."""
    fill(folder)
    opened: list[int] = []
    locked: list[str] = []

    def watched(real: Any) -> Any:
        def call(file: Any, *rest: Any) -> Any:
            number = file if isinstance(file, int) else file.fileno()
            locked.append(os.readlink(f"/proc/self/fd/{number}"))
            return real(file, *rest)

        return call

    open_file = os.open

    def opening(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if os.fsdecode(path).startswith(str(folder)):
            opened.append(flags)
        return open_file(path, flags, *rest, **options)

    with open_medium("raw", tmp_path) as store:
        for name in ("flock", "lockf", "fcntl"):
            monkeypatch.setattr(fcntl, name, watched(getattr(fcntl, name)))
        monkeypatch.setattr(os, "open", opening)
        for _ in range(2):
            assert sync(store, [folder], runtime=HERE).failed == ()
            grow(folder)
    access = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    assert {flags & access for flags in opened} == {os.O_RDONLY}
    assert len(opened) > 10
    assert locked
    assert [path for path in locked if path.startswith(str(folder))] == []


_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.flock(file, fcntl.LOCK_EX)
fcntl.lockf(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_source_that_its_agent_has_locked_is_read(
    store: perdure.Store, folder: Path, source: Path
) -> None:
    """Locks that another process holds on a source are none of an import's business."""
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with source.open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        report = sync_one(store, folder)
        holder.communicate()
    assert (report.state, report.new) == ("new", 2)


def test_what_is_written_meanwhile_comes_with_the_next_sync(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that grows while it is read is taken as it was, and followed later."""
    read = SourceFile.read
    rest = [b'{"type":"t', b'orn","time":4}\n' + B]
    grown: list[SourceFile] = []

    def growing(file: SourceFile, start: int, size: int) -> bytes:
        if rest and file not in grown:
            grown.append(file)
            append(source, rest.pop(0))
        return read(file, start, size)

    texts = []
    with monkeypatch.context() as patch:
        patch.setattr(SourceFile, "read", growing)
        for _ in range(3):
            report = sync_one(store, folder)
            assert report.error is None
            texts.append(text_of(store, report))
    assert sync_one(store, folder).state == "unchanged"
    whole = HEADER + A + b'{"type":"torn","time":4}\n' + B
    assert texts == [HEADER + A, HEADER + A + b'{"type":"t', whole]
    assert source.read_bytes() == whole


def test_what_is_exchanged_meanwhile_is_found_with_the_next_sync(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is taken for seen of a file that changed behind what was read of it."""
    digest = SourceFile.digest

    def exchanging(file: SourceFile, size: int, start: int = 0) -> str | None:
        source.write_bytes(HEADER + B)
        file._base, file._window = 0, b""
        return digest(file, size, start)

    with monkeypatch.context() as patch:
        patch.setattr(SourceFile, "digest", exchanging)
        first = sync_one(store, folder)
    assert text_of(store, first) == HEADER + A
    report = sync_one(store, folder)
    assert (report.state, report.new, report.session) == ("rewritten", 1, first.session)
    assert text_of(store, report) == HEADER + B


# --- how much is read -----------------------------------------------------------------------------


class Reads:
    """How much of sources is read, as lines and to compare it with what was seen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[str] = []
        self.read = self.compared = 0
        self._comparing = False
        construct, read, digest = SourceFile.__init__, SourceFile.read, SourceFile.digest

        def constructed(file: SourceFile, path: str) -> None:
            self.opened.append(path)
            construct(file, path)

        def reading(file: SourceFile, start: int, size: int) -> bytes:
            found = read(file, start, size)
            if self._comparing:
                self.compared += len(found)
            else:
                self.read += len(found)
            return found

        def comparing(file: SourceFile, size: int, start: int = 0) -> str | None:
            self._comparing = True
            try:
                return digest(file, size, start)
            finally:
                self._comparing = False

        monkeypatch.setattr(SourceFile, "__init__", constructed)
        monkeypatch.setattr(SourceFile, "read", reading)
        monkeypatch.setattr(SourceFile, "digest", comparing)

    def take(self) -> tuple[int, int, int]:
        found = len(self.opened), self.read, self.compared
        self.opened.clear()
        self.read = self.compared = 0
        return found


def test_an_untouched_file_is_not_opened(
    store: perdure.Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that nobody touched since they were imported, and files beside them, are left shut."""
    fill(folder)
    first = sync(store, [folder], runtime=HERE)
    assert first.states == {"new": 6}
    reads = Reads(monkeypatch)
    report = sync(store, [folder], runtime=HERE)
    assert report.states == {"unchanged": 6}
    assert (report.found, report.problem_count) == (first.found, first.problem_count)
    assert reads.opened == []


def test_a_grown_file_is_read_from_where_it_ended(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that grew, only what is new is read as lines, behind a look at its first ones."""
    append(source, b"".join(record("n", number, "x" * 400) for number in range(8000)))
    sync_one(store, folder)
    before = source.stat().st_size
    new = [record("m", number, "y" * 400) for number in range(100)]
    append(source, b"".join(new))
    parsed: list[bytes] = []
    monkeypatch.setattr("perdure.importers.source.parse", counting(parsed))
    reads = Reads(monkeypatch)
    report = sync_one(store, folder)
    assert (report.found, report.new, report.unchanged) == (8102, 100, 8002)
    opened, read, compared = reads.take()
    piece = 256 * 1024
    assert opened == 1
    assert sum(map(len, new)) <= read <= sum(map(len, new)) + piece + 64
    # What was there before is only compared with what was seen, and that in one go.
    assert before - piece <= compared <= before + piece
    assert parsed == new
    assert text_of(store, report) == source.read_bytes()


def counting(parsed: list[bytes]) -> Any:
    """The reader of lines, with a list of what it was given."""

    def call(raw: bytes, *, first: bool = False) -> Any:
        parsed.append(raw)
        return parse(raw, first=first)

    return call


def test_a_grown_file_adds_nothing_but_its_lines(
    store: perdure.Store, folder: Path, source: Path
) -> None:
    """Line by line, a log gets one event for each line that its source grew by."""
    first = sync_one(store, folder)
    for number in range(3, 60):
        append(source, record("n", number))
        assert sync_one(store, folder).new == 1
    assert len(list(store.read_from(session_of(first)))) == len(kept(store, first)) == 59


# --- a dry run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
def test_a_dry_run_tells_and_stores_nothing(tmp_path: Path, folder: Path, kind: str) -> None:
    """Without a byte of the store being written, the report is what it will be."""
    fill(folder)
    root = tmp_path / "root"
    root.mkdir()
    for change in (None, grow, vanish):
        if change is not None:
            change(folder)
        # What a writer leaves to be noted later is noted by the time its store is closed. An index
        # is written whenever its thread comes to it.
        with open_medium(kind, root, index=False) as store:
            before = states(root)
            texts = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
            dry = sync(store, [folder], runtime=HERE, dry_run=True)
            assert sync(store, [folder], runtime=HERE, dry_run=True) == dry
            assert states(root) == before
            assert texts == {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        with open_medium(kind, root, index=False) as store:
            wet = sync(store, [folder], runtime=HERE)
            assert wet.as_dict() == dry.as_dict()
            assert (change is vanish) == ("gone" in wet.states)
            assert states(root) != before


def vanish(folder: Path) -> None:
    (folder / "session.jsonl").unlink()
    (folder / "below" / "s.jsonl").write_bytes(b"")
    squeezed = folder / "below" / "session.jsonl.zstd"
    squeezed.write_bytes(frame(HEADER.replace(b"s-1", b"s-2")))


# --- files beside a source ------------------------------------------------------------------------


def beside(store: perdure.Store, report: SourceReport) -> list[tuple[str, bytes]]:
    """Return names and bytes of the files that are kept beside a source, in order."""
    session = session_of(report)
    found = []
    for event in of_type(store, report, "source/file"):
        content = store.blob(session, event.data["blob"])
        assert len(content) == event.data["bytes"]
        found.append((event.data["name"], content))
    assert store.expire(session, older_than=0).expired == ()
    return found


@pytest.fixture
def project(folder: Path) -> Path:
    """A session of Claude Code with two large outputs of tools beside it."""
    path = folder / "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f.jsonl"
    path.write_bytes(CLAUDE % 1)
    outputs = path.with_suffix("") / "tool-results"
    outputs.mkdir(parents=True)
    (outputs / "a.txt").write_bytes(b"one")
    (outputs / "b.txt").write_bytes(b"")
    return path


def test_files_beside_a_source_are_kept(store: perdure.Store, project: Path) -> None:
    """What an agent moved out of its log is kept whole, and again when it is another."""
    outputs = project.with_suffix("") / "tool-results"
    below = f"{project.stem}/tool-results"
    report = sync_one(store, project.parent)
    both = [(f"{below}/a.txt", b"one"), (f"{below}/b.txt", b"")]
    assert (report.state, report.new, beside(store, report)) == ("new", 1, both)
    assert sync_one(store, project.parent).state == "unchanged"
    (outputs / "b.txt").write_bytes(b"two")
    (outputs / "c.txt").write_bytes(b"three")
    report = sync_one(store, project.parent)
    assert (report.state, report.new) == ("unchanged", 0)
    more = [(f"{below}/b.txt", b"two"), (f"{below}/c.txt", b"three")]
    assert beside(store, report) == both + more
    (outputs / "c.txt").unlink()
    os.utime(outputs / "a.txt")
    for _ in range(2):
        assert sync_one(store, project.parent).state == "unchanged"
    forget(store, report)
    assert sync_one(store, project.parent).state == "unchanged"
    assert beside(store, report) == both + more
    assert text_of(store, report) == CLAUDE % 1
    assert store.verify(session_of(report)).status == "ok"


def test_files_beside_a_source_stop_no_import(
    store: perdure.Store, project: Path, tmp_path: Path
) -> None:
    """A link, a pipe and a folder beside a source are not followed, waited for or kept."""
    outputs = project.with_suffix("") / "tool-results"
    (tmp_path / "secret").write_bytes(b"secret")
    (outputs / "link.txt").symlink_to(tmp_path / "secret")
    (outputs / "folder").mkdir()
    os.mkfifo(outputs / "pipe")
    report = sync_one(store, project.parent)
    assert (report.state, report.error) == ("new", None)
    assert [content for _, content in beside(store, report)] == [b"one", b""]


def test_import_and_sync_remember_for_each_other(
    store: perdure.Store, folder: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was named once and is found in a folder later is known from that time."""
    first = import_one(store, source)
    reads = Reads(monkeypatch)
    again = sync_one(store, folder)
    assert (again.session, again.state, reads.take()) == (first.session, "unchanged", (0, 0, 0))


def test_what_was_imported_by_name_goes_on_in_its_folder(tmp_path: Path) -> None:
    """A file that no format recognises, but that somebody imported by name, still grows."""
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b'{"odd":1}\n')
    with perdure.open("memory:") as store:
        (first,) = import_sessions(store, FORMAT, [path]).sources
        path.write_bytes(b'{"odd":1}\n{"odd":2}\n')
        (report,) = sync(store, [tmp_path]).sources
        assert (report.state, report.session, report.new) == ("grown", first.session, 1)
