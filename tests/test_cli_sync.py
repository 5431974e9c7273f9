"""`perdure sync`, `import` and `ls --titles`: what they find, keep, say, and leave alone."""

import errno
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli.commands.sync import Telling, follow
from perdure.cli.exits import Exit
from perdure.cli.progress import Progress
from perdure.importers import ImportReport, appender, sync
from perdure.importers.files import SourceFile
from perdure.importers.following import Follower, gone_before, whereabouts
from perdure.runtime import SYSTEM
from perdure.store.abstract import abstract_of
from perdure.store.notes import note_of, put_note
from tests.command_line import Line
from tests.homes import CHILD, PARENT, Home
from tests.sources import DATA, HEADER, record

BANNED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home in which no agent was ever at work."""
    return Home(tmp_path / "home", monkeypatch)


@pytest.fixture
def home(empty: Home) -> Home:
    """A home in which each agent has been at work."""
    empty.fill()
    return empty


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location) as opened:
        yield opened


def states(report: Any) -> dict[str, str]:
    """The state of each file by its name."""
    return {Path(each["path"]).name: each["state"] for each in report["sources"]}


def grow(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


# --- sync -----------------------------------------------------------------------------------------


def test_sync_brings_in_what_every_agent_keeps(line: Line, home: Home) -> None:
    """Each file is found, recognised and kept; damage in one is told and is no failure."""
    shown = line("sync")
    assert shown.exit_code == Exit.OK, shown.output
    for path in (home.parent, home.child, home.rollout, home.harness):
        assert f"new        {path}\n" in shown.stdout
    assert f"{home.harness}:182, byte 89081: the compressed frame at byte" in shown.stdout
    assert shown.stdout.endswith("4 files: 4 new\n208 lines, 208 new, 1 problem\n")


def test_sync_twice_stores_nothing_new(line: Line, home: Home) -> None:
    """Again nothing is new, and unchanged files are only counted, also those with problems."""
    line("sync")
    again = line("sync")
    assert (again.exit_code, str(home.parent) in again.stdout) == (Exit.OK, False)
    assert again.stdout.endswith("4 files: 4 unchanged\n208 lines, 0 new, 1 problem\n")
    assert str(home.harness) not in again.stdout
    assert again.stdout.startswith(
        "1 unchanged file has problems: perdure sync --verbose names it\n"
    )
    assert str(home.harness) in line("sync", "--verbose").stdout
    assert line.json("sync")["problem_count"] == 1


def test_sync_tells_programs_all_of_it(line: Line, home: Home) -> None:
    """With --json the report of the library is the one document, and people are told nothing."""
    first = line.json("sync")
    assert (first["states"], first["new"], first["problem_count"]) == ({"new": 4}, 208, 1)
    formats = {each["format"] for each in first["sources"]}
    assert formats == {"claude-code", "codex", "deepseek-harness"}
    assert set(first["sources"][0]) == {
        "path", "format", "session", "state", "found", "new", "unchanged", "large", "problems",
        "problem_count", "skipped", "error", "reason",
    }  # fmt: skip
    assert line.json("sync")["states"] == {"unchanged": 4}
    assert home.parent.name in states(first)


def test_sync_tells_what_became_of_each_file(line: Line, home: Home) -> None:
    """A file that grew, was rewritten or is gone has a line that says so; gone is told once."""
    line("sync")
    grow(home.parent, home.parent.read_bytes().splitlines(keepends=True)[-1])
    lines = home.rollout.read_bytes().splitlines(keepends=True)
    home.rollout.write_bytes(b"".join(lines[:-2]))
    home.child.unlink()
    shown = line("sync")
    assert shown.exit_code == Exit.OK
    assert f"grown      {home.parent}\n    4 lines, 1 new in claude-code:{PARENT}:" in shown.stdout
    assert f"rewritten  {home.rollout}\n" in shown.stdout
    assert f"gone       {home.child}\n    the file is not there any more; 4 lines" in shown.stdout
    assert "4 files: 1 grown, 1 rewritten, 1 unchanged, 1 gone\n" in shown.stdout
    again = line("sync")
    assert str(home.child) not in again.stdout
    assert "4 files: 3 unchanged, 1 gone\n" in again.stdout


def test_sync_that_only_looks_stores_nothing(line: Line, home: Home) -> None:
    """A dry run says what would be done, and no store appears."""
    shown = line("sync", "--dry-run")
    assert shown.exit_code == Exit.OK
    assert f"new        {home.parent}\n" in shown.stdout
    assert shown.stdout.endswith("nothing was stored\n")
    assert not line.location.exists()
    found = line.json("sync", "--dry-run")
    assert (found["states"], found["dry_run"]) == ({"new": 4}, True)
    assert line.json("sync")["dry_run"] is False


def test_sync_tells_what_came_back(line: Line, home: Home) -> None:
    """A file that was gone and is there again has a line that says so, once."""
    text = home.rollout.read_bytes()
    line("sync")
    home.rollout.unlink()
    line("sync")
    home.rollout.write_bytes(text)
    shown = line("sync")
    assert f"unchanged  {home.rollout}\n    the file is there again\n" in shown.stdout
    assert str(home.rollout) not in line("sync").stdout
    home.rollout.unlink()
    line("sync")
    home.rollout.write_bytes(text + text.splitlines(keepends=True)[-1])
    shown = line("sync")
    assert f"grown      {home.rollout}\n    the file is there again\n    21 li" in shown.stdout


def test_sync_tells_of_a_file_that_is_there_and_holds_another_session(
    line: Line, home: Home
) -> None:
    """What was kept of a path is told of when it is emptied or replaced, once, and when it is back.

    Its session says the same as before.
    """
    text, session = home.parent.read_bytes(), "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
    other = text.replace(session.encode(), session.replace("0a1b", "1a1b").encode())
    line("sync")
    (row,) = (one for one in line.json("sync")["sources"] if one["path"] == str(home.parent))
    kept = f"3 lines kept in {row['session']}\n"
    home.parent.write_bytes(b"")
    shown = line("sync")
    assert f"gone       {home.parent}\n    the file is empty; {kept}" in shown.stdout
    assert "4 files: 3 unchanged, 1 gone\n" in shown.stdout
    assert str(home.parent) not in line("sync").stdout
    home.parent.write_bytes(other)
    found = [one for one in line.json("sync")["sources"] if one["path"] == str(home.parent)]
    assert [each["state"] for each in found] == ["new", "gone"]
    reason = f"the file holds another session now, {found[0]['session']}"
    assert [each["reason"] for each in found] == [None, reason]
    again = line("sync")
    assert str(home.parent) not in again.stdout
    assert "5 files: 4 unchanged, 1 gone\n" in again.stdout
    home.parent.write_bytes(text)
    back = line("sync")
    assert f"unchanged  {home.parent}\n    the file is there again\n    {kept[:7]}" in back.stdout
    assert f"gone       {home.parent}\n    {reason.rpartition(' ')[0]} {row['session']};" in (
        back.stdout
    )
    assert str(home.parent) not in line("sync").stdout
    assert len(line.json("ls")["sessions"]) == 5


def test_a_database_of_an_agent_is_no_reason_to_say_that_none_is_here(
    line: Line, empty: Home
) -> None:
    """Where an agent has no folder of sessions, a database of its own is still told of."""
    folder = empty.folder / ".dsh"
    folder.mkdir(parents=True)
    (folder / "sessions.db").write_bytes(b"SQLite format 3\0")
    shown = line("sync", "--verbose")
    assert shown.exit_code == Exit.OK
    assert f"skipped    {folder}/sessions.db\n    an SQLite database, and of" in shown.stdout
    assert "1 file skipped: perdure sync --verbose names it\n" in line("sync").stdout


def test_sync_goes_through_a_link_to_a_folder_that_is_named(line: Line, home: Home) -> None:
    """A folder may be named by a link, and its files are the same by either name; below it is none.

    What hides behind a link in a folder is skipped, with the reason.
    """
    link = home.folder / "link"
    link.symlink_to(home.folder / ".codex")
    (home.folder / ".codex" / "sessions" / "more").symlink_to(home.folder / ".dsh")
    report = line.json("sync", "--from", str(link))
    found = {each["path"]: each["state"] for each in report["sources"]}
    more = str(home.folder / ".codex/sessions/more")
    assert found == {str(home.rollout): "new", more: "skipped"}
    (skipped,) = (each for each in report["sources"] if each["path"] == more)
    assert "a symbolic link to a folder, which is not followed" in skipped["skipped"]
    below = link / home.rollout.relative_to(home.folder / ".codex")
    assert states(line.json("sync", "--from", str(below))) == {home.rollout.name: "unchanged"}


@pytest.mark.parametrize("path", ["/srv/a\0b.jsonl", "/srv/\ud800.jsonl"], ids=["nul", "surrogate"])
def test_what_is_no_path_fails_as_any_file_does(
    store: perdure.Store, tmp_path: Path, path: str
) -> None:
    """A name that no file can have is a failed source, and nothing else is raised for it."""
    (source,) = sync(store, [path]).sources
    assert (source.state, type(source.error)) == ("failed", perdure.errors.StorageUnavailable)
    assert Follower(store, [path]).follow().states == {"failed": 1}
    assert list(tmp_path.iterdir()) == []


def test_a_follower_takes_a_list_of_paths(store: perdure.Store) -> None:
    """One path in place of a list is refused: its characters would be taken for paths."""
    with pytest.raises(perdure.errors.InvalidValue):
        Follower(store, "/srv")
    with pytest.raises(perdure.errors.InvalidValue):
        Follower(store, Path("/srv"))  # type: ignore[arg-type]


def test_sync_looks_where_it_is_told(line: Line, home: Home) -> None:
    """--from takes files and folders in place of the agents' own, --format only what is its."""
    report = line.json("sync", "--from", str(home.parent), "--from", str(home.rollout.parent))
    assert states(report) == {home.parent.name: "new", home.rollout.name: "new"}
    assert states(line.json("sync", "--format", "codex")) == {home.rollout.name: "unchanged"}
    assert line("sync", "--format", "nothing").exit_code == Exit.USAGE


def test_sync_follows_the_variables_of_the_agents(
    line: Line, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable by which an agent keeps its sessions elsewhere leads there."""
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.setenv("CODEX_HOME", str(home.folder / ".codex"))
    assert states(line.json("sync")) == {home.rollout.name: "new"}


def test_sync_says_where_it_looked(line: Line, empty: Home) -> None:
    """Where no agent has a folder, the places are named, and the variables that change them."""
    shown = line("sync")
    assert shown.exit_code == Exit.OK
    for part in (
        f"    Claude Code: {empty.folder}/.claude/projects\n",
        "elsewhere if CLAUDE_CONFIG_DIR says so\n",
        f"    Codex: {empty.folder}/.codex/sessions\n",
        "elsewhere if CODEX_HOME says so\n",
        f"    deepseek-harness: {empty.folder}/.dsh/sessions\n",
        "elsewhere if DSH_HOME says so\n",
        "--from PATH",
    ):
        assert part in shown.stdout
    assert line.json("sync")["sources"] == []
    assert not line.location.exists()
    assert [each.agent for each in whereabouts(["codex"])] == ["Codex"]


def test_sync_ends_with_1_if_a_file_fails(line: Line, home: Home) -> None:
    """A file that cannot be read is named with what to do, and keeps no other from its turn."""
    missing = home.folder / "none.jsonl"
    shown = line("sync", "--from", str(missing), "--from", str(home.parent))
    assert shown.exit_code == Exit.FAILED
    assert f"failed     {missing}\n    error: {missing}: No such file" in shown.stdout
    assert "    hint: " in shown.stdout
    assert "2 files: 1 new, 1 failed\n" in shown.stdout
    line.json("sync", "--from", str(missing), ends=Exit.FAILED)


def test_what_cannot_be_read_keeps_no_other_from_its_turn(
    line: Line, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place that the system does not let anybody read fails alone, and is no wrong usage."""
    closed = home.folder / "closed"
    closed.mkdir()
    (closed / "a.jsonl").write_bytes(HEADER)
    access, listing = os.access, os.scandir

    def refusing(path: str) -> Any:
        if path == str(closed):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return listing(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: path != str(closed) and access(path, mode))
        patch.setattr(os, "scandir", refusing)
        shown = line("sync", "--from", str(home.parent), "--from", str(closed))
    assert shown.exit_code == Exit.FAILED
    assert f"failed     {closed}\n    error: {closed}: Permission denied" in shown.stdout
    assert f"new        {home.parent}\n" in shown.stdout


def test_an_empty_place_is_wrong_usage(line: Line, home: Home) -> None:
    """A variable that is not set does not make a sync of the current folder."""
    shown = line("sync", "--from", str(home.parent), "--from", "")
    assert shown.exit_code == Exit.USAGE
    assert "empty path" in shown.stderr
    assert line.json("ls")["sessions"] == []


def test_sync_says_why_a_file_is_skipped(line: Line, home: Home) -> None:
    """What is none of the formats, and what was deleted here, is named with the reason."""
    (home.folder / "notes.jsonl").write_text('{"note": 1}\n')
    line("sync", "--from", str(home.parent))
    (row,) = line.json("ls")["sessions"]
    line("rm", row["id"])
    shown = line("sync", "--from", str(home.folder))
    assert "2 files skipped: perdure sync --verbose names them\n" in shown.stdout
    assert str(home.parent) not in shown.stdout
    assert "2 skipped" in shown.stdout
    shown = line("sync", "--from", str(home.folder), "--verbose")
    assert "its first lines open no session of claude-code, codex or deep" in shown.stdout
    assert f"skipped    {home.parent}\n    " in shown.stdout
    assert "perdure sync --verbose" not in shown.stdout
    (notes,) = (
        each
        for each in line.json("sync", "--from", str(home.folder))["sources"]
        if each["path"].endswith("notes.jsonl")
    )
    assert notes["skipped"].startswith("its first lines")


def test_problems_are_told_with_their_place_and_bounded(line: Line, tmp_path: Path) -> None:
    """Of a file with many problems the first five are named, and how many more there are."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + b"noise\n" * 8)
    shown = line("sync", "--from", str(path))
    assert shown.exit_code == Exit.OK
    places = [text for text in shown.stdout.splitlines() if text.startswith(f"    {path}:")]
    assert len(places) == 5
    assert places[0].startswith(f"    {path}:2, byte {len(HEADER)}: not JSON")
    assert "    and 3 more problems\n" in shown.stdout
    assert shown.stdout.endswith("9 lines, 9 new, 8 problems\n")


def test_sync_says_what_is_broken(line: Line, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A format or a lens of another package that cannot be used is named, and stops nothing."""
    broken = perdure.errors.InvalidValue("perdure.formats", "acme is broken", hint="remove it")
    monkeypatch.setattr("perdure.cli.commands.sync.broken_formats", lambda: [broken])
    shown = line("sync", "--from", str(home.parent))
    assert shown.exit_code == Exit.OK
    assert shown.stderr == "perdure.formats: acme is broken; remove it\n"


def test_sync_prints_nothing_hostile(line: Line, home: Home) -> None:
    """Names of files and ids of sources are escaped."""
    path = home.rollout.with_name("rollout-\x1b[31m\u202e.jsonl")
    home.rollout.rename(path)
    shown = line("sync")
    assert BANNED.search(shown.stdout) is None
    assert r"rollout-\x1b[31m\u202e.jsonl" in shown.stdout
    assert line("sync", "--json").stdout.isascii()


# --- watch ----------------------------------------------------------------------------------------


class Script:
    """What happens while a watch waits, step by step; after the last one somebody ends it.

    Others, who wait for a moment in between, do not count.
    """

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)

    def __call__(self, seconds: float) -> None:
        if seconds < 1:
            return
        step = next(self._steps, None)
        if step is None:
            raise KeyboardInterrupt
        step()


def nothing() -> None:
    """A step in which nothing happens."""


def watched(line: Line, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> Any:
    """What a watch says, with what happens in between."""
    script = Script(*steps)
    monkeypatch.setattr(type(SYSTEM), "sleep", lambda _self, seconds: script(seconds))
    result = line("sync", "--watch", "--json")
    assert result.exit_code == Exit.OK, result.output
    return [json.loads(text) for text in result.stdout.splitlines()]


def test_watch_tells_what_changes_and_ends_when_interrupted(
    line: Line, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look that finds something is one line with what changed; Ctrl-C ends it with 0."""
    last = home.parent.read_bytes().splitlines(keepends=True)[-1]
    other = home.rollout.with_name(home.rollout.name.replace("019b2ea4", "119b2ea4"))
    found = watched(
        line,
        monkeypatch,
        nothing,
        lambda: grow(home.parent, last),
        nothing,
        lambda: other.write_bytes(home.rollout.read_bytes()),
        home.child.unlink,
        nothing,
    )
    assert [states(each) for each in found[1:]] == [
        {home.parent.name: "grown"},
        {other.name: "new"},
        {home.child.name: "gone"},
    ]
    assert found[0]["states"] == {"new": 4}
    assert len(line.json("ls")["sessions"]) == 5


def test_watch_prints_lines_for_people(
    line: Line, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """People get the lines of the files that changed, and no sums in between."""
    last = home.parent.read_bytes().splitlines(keepends=True)[-1]
    script = Script(lambda: grow(home.parent, last), nothing)
    monkeypatch.setattr(type(SYSTEM), "sleep", lambda _self, seconds: script(seconds))
    shown = line("sync", "--watch", "--from", str(home.parent), "--interval", "5")
    assert shown.exit_code == Exit.OK
    said = [text.split()[0] for text in shown.stdout.splitlines() if not text.startswith(" ")]
    assert said == ["watching", "new", "grown", "ended"]
    assert shown.stdout.startswith("watching 1 file; Ctrl-C ends it\n")
    assert shown.stdout.endswith("\nended after 3 looks: 4 new lines in 1 file\n")


def test_watch_counts_what_is_passed_over_once(
    line: Line, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Skipped files that are there at the start are counted, one that comes is named."""
    (home.folder / "notes.jsonl").write_text('{"note": 1}\n')
    late = home.folder / "late.jsonl"
    script = Script(nothing, lambda: late.write_text('{"note": 1}\n'), nothing)
    monkeypatch.setattr(type(SYSTEM), "sleep", lambda _self, seconds: script(seconds))
    shown = line("sync", "--watch", "--from", str(home.folder)).stdout
    assert shown.count("1 file skipped: perdure sync --verbose names it\n") == 1
    assert "notes.jsonl" not in shown
    assert shown.count(f"skipped    {late}\n") == 1


def test_watch_opens_only_what_changed(
    store: perdure.Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at files that nobody touched opens none, and one at a changed file that alone."""
    follower = Follower(store)
    assert len(follower.follow().sources) == 4
    opened: list[str] = []
    begin = SourceFile.__init__

    def counted(self: SourceFile, path: str) -> None:
        opened.append(path)
        begin(self, path)

    monkeypatch.setattr(SourceFile, "__init__", counted)
    assert follower.follow().sources == ()
    assert opened == []
    grow(home.rollout, home.rollout.read_bytes().splitlines(keepends=True)[-1])
    assert follower.follow().states == {"grown": 1}
    assert {*opened} == {str(home.rollout)}


def test_watch_does_not_take_for_its_own_what_nothing_shows(
    store: perdure.Store, home: Home
) -> None:
    """With one format alone, a file that comes and is not of it is skipped, as at the start."""
    follower = Follower(store, [home.folder], formats=["codex"])
    assert follower.follow().states == {"new": 1, "skipped": 2}
    home.rollout.with_name("other.jsonl").write_text('{"note": 1}\n')
    report = follower.follow()
    assert report.states == {"unchanged": 1, "skipped": 1}
    assert len(store.list()) == 1


def test_watch_tries_again_what_failed(
    store: perdure.Store, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that could not be imported is tried again, though nobody touched it since."""
    monkeypatch.setattr(appender, "_WAIT_SECONDS", 0.0)
    sync(store, [home.parent])
    grow(home.parent, home.parent.read_bytes().splitlines(keepends=True)[-1])
    (entry,) = store.list()
    with store.writer(entry.id):
        follower = Follower(store, [home.parent])
        assert follower.follow().states == {"failed": 1}
    assert follower.follow().states == {"grown": 1}
    assert follower.follow().sources == ()


def test_what_stays_wrong_is_told_once(store: perdure.Store, home: Home) -> None:
    """A watch names the problem of a file once, and again when there are more."""
    path = home.rollout.with_name("session.jsonl")
    path.write_bytes(HEADER + b"noise\n")
    told = Telling(set(), as_json=True)
    follower = Follower(store, [path])
    seen: list[tuple[str, int]] = []

    def look() -> None:
        seen.extend((each.state, each.problem_count) for each in told.changed)

    steps = [nothing, path.touch, lambda: grow(path, b"more noise\n"), nothing]

    def wait() -> None:
        if not steps:
            raise KeyboardInterrupt
        steps.pop(0)()

    def kept(report: ImportReport) -> None:
        rest(report)
        look()

    rest = told.rest
    told.rest = kept  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        follow(follower, told, wait)
    assert seen == [("new", 1), ("grown", 2)]


def test_watch_and_dry_run_do_not_go_together(line: Line, home: Home) -> None:
    """Nothing would ever be stored, so each look would find the same: it is refused."""
    assert home.parent.exists()
    assert line("sync", "--watch", "--dry-run").exit_code == Exit.USAGE


def test_gone_is_known_without_what_an_import_remembered(store: perdure.Store, home: Home) -> None:
    """Which files were told to be gone is read from the logs where nothing else says it."""
    sync(store, [home.folder])
    home.rollout.unlink()
    assert gone_before(store) == set()
    sync(store, [home.folder])
    (session,) = (
        entry.id
        for entry in store.list()
        if entry.header is not None
        and entry.header.source is not None
        and entry.header.source.path == str(home.rollout)
    )
    assert gone_before(store) == {session}
    for note in (Path(str(store.locate(entry.id))).parent / "views" for entry in store.list()):
        (note / "source").unlink(missing_ok=True)
    assert gone_before(store) == {session}
    home.rollout.write_bytes(b"")
    # Where something is there a note alone says so; one that is damaged says nothing.
    assert gone_before(store) == set()
    sync(store, [home.folder])
    assert gone_before(store) == {session}
    with store.writer(session) as writer:
        found = note_of(store, session, "source")
        assert found is not None
        put_note(writer, "source", found.replace(b" ", b"0 ", 1))
    assert gone_before(store) == set()


# --- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_that_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a bar is written over itself, and is gone at the end; elsewhere there is none.

    Where few lines are printed it is shown beside them.
    """
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    progress = Progress(as_json=False, few=True)
    progress.bar(1, 4, "files")
    progress.bar(1, 4, "files")
    progress.clear()
    line = f"[{'#' * 5}{'.' * 15}] 1 of 4 files"
    assert shown.getvalue() == f"\r{line}\r{' ' * len(line)}\r"
    Progress(as_json=False).bar(1, 4, "files")
    monkeypatch.setattr(sys, "stderr", silent := io.StringIO())
    Progress(as_json=False, few=True).bar(0, 0, "files")
    assert (silent.getvalue(), shown.getvalue().count("[")) == ("", 1)


def test_a_sync_shows_how_far_it_is(line: Line, home: Home) -> None:
    """On a terminal a sync shows files that are done of all, and new lines, and clears that."""
    assert home.rollout.exists()
    master, slave = os.openpty()
    command = [sys.executable, "-m", "perdure", "--store", str(line.location), "sync", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        received = b""
        try:
            while chunk := os.read(master, 65536):
                received += chunk
        except OSError:
            pass  # how Linux says that nobody holds the other end any more
        finally:
            os.close(master)
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["states"] == {"new": 4}
    shown = [text for text in received.decode().split("\r") if text.strip()]
    assert shown[0] == f"[{'.' * 20}] 0 of 4 files, 0 new lines"
    assert shown[-1].startswith(f"[{'#' * 20}] 4 of 4 files, ")
    assert received.endswith(b" \r")


# --- a list with titles ---------------------------------------------------------------------------


def test_ls_shows_titles_and_last_activity(line: Line, home: Home, store: perdure.Store) -> None:
    """Each session has its program, title and last activity, the latest one first."""
    with store.create("own") as session:
        session.set_title("Build\nit")
    line("sync", "--from", str(home.folder))
    rows = [row for row in line.json("ls")["sessions"] if row["relation"] != "subagent"]
    times = [row["last_active"] for row in rows]
    assert times == sorted(times, reverse=True)
    assert {row["program"]: (row["title"], row["named"]) for row in rows} == {
        "perdure": ("Build it", True),
        "claude-code": ("Delegate a repo search to a subagent", False),
        "codex": ("Start", False),
        "deepseek-harness": (None, False),
    }
    shown = line("ls").stdout
    assert "    └ Search the repo for TODO comments" in shown
    assert "  Codex  " in shown
    assert "Search the repo" in line("ls", "--flat", "--program", "claude-code").stdout
    assert "Search the repo" in line("search", "Search the repo for TODO", "-k", "1").stdout


def test_ls_lists_one_program(line: Line, home: Home, store: perdure.Store) -> None:
    """--program takes the name of the program or of its format, in letters of any case."""
    with store.create("own") as session:
        session.append("note", 1)
    line("sync", "--from", str(home.folder))
    for name in ("claude code", "claude-code"):
        rows = line.json("ls", "--program", name)["sessions"]
        assert {row["program"] for row in rows} == {"claude-code"}
        assert len(rows) == 2
    assert [row["id"] for row in line.json("ls", "--program", "perdure")["sessions"]] == ["own"]
    result = line("ls", "--program", "nobody")
    assert result.exit_code == Exit.USAGE
    assert "known are Claude Code, Codex, deepseek-harness, perdure" in result.stderr


def test_ls_lists_what_is_damaged_with_its_reason(line: Line, home: Home) -> None:
    """A session whose log is damaged is listed with titles as well, and says why it has none."""
    line("sync", "--from", str(home.parent))
    (row,) = line.json("ls")["sessions"]
    log = line.log(row["id"])
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)
    # Nothing came or went, so only a look at every log shows it.
    line("reindex")
    (found,) = line.json("ls")["sessions"]
    assert found["status"] == "damaged"
    assert found["problem"]
    assert f"({found['problem']}"[:20] in line("ls").stdout


def test_a_title_is_what_a_person_asked_first(store: perdure.Store, tmp_path: Path) -> None:
    """Without a title it is the first prompt, on one line and not too long.

    What an agent said in a person's name is none.
    """
    with store.create("asked") as session, session.turn() as turn:
        turn.user("from a hook", source="hook")
        turn.user("look\n  at " + "x" * 300)
    found = abstract_of(store, "asked")
    assert found.title is not None
    assert found.title.startswith("look at xxx")
    assert found.title.endswith("x…")
    assert (len(found.title), found.named) == (200, False)
    with store.create("silent") as session:
        session.append("note", 1, time=5)
    assert abstract_of(store, "silent") == (None, False, 5)
    path = tmp_path / "session.jsonl"
    path.write_bytes(HEADER + record("a", 7_000))
    sync(store, [path])
    path.unlink()
    report = sync(store, [tmp_path])
    # That it is gone is no activity.
    assert abstract_of(store, str(report.sources[-1].session)).active_at == 7_000


# --- import ---------------------------------------------------------------------------------------


def test_import_takes_every_format(line: Line) -> None:
    """Each format can be named, and its report says what became of each file."""
    for name, folder, count in (("claude-code", "claude-code", 21), ("codex", "codex", 15)):
        report = line.json("import", name, str(DATA / folder))
        assert report["format"] == name
        assert len(report["sources"]) == count
        assert report["states"]["new"] > 14
        assert report["large"] == 0
        assert set(report["sources"][0]) >= {"state", "large"}


def test_a_file_has_one_id_wherever_it_is_named(line: Line, home: Home) -> None:
    """What `sync` found `import` finds unchanged: it is the same session."""
    line("sync")
    report = line.json("import", "claude-code", str(home.parent))
    assert states(report) == {home.parent.name: "unchanged"}
    assert len(line.json("ls", "--program", "claude-code")["sessions"]) == 2
    assert report["sources"][0]["session"].startswith(f"claude-code:{PARENT}:")
    assert CHILD in str(home.child)


def test_sync_is_a_command_to_be_copied(line: Line, home: Home) -> None:
    """What the command prints as places are paths that can be given to it again."""
    shown = line("sync").stdout
    paths = [text.split(maxsplit=1)[1] for text in shown.splitlines() if text.startswith("new ")]
    again = line.json("sync", *(part for path in paths for part in ("--from", path)))
    assert again["states"] == {"unchanged": 4}
    assert all(shlex.quote(path) == path for path in paths) == (" " not in str(home.folder))
