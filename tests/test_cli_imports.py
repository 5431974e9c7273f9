"""What `perdure ls` and `show` say of imports, of their forks, and of times that nobody knows."""

import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli import output
from perdure.importers import sync
from tests.command_line import Line
from tests.homes import PARENT, THREAD, Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home", monkeypatch)
    made.fill()
    return made


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location) as opened:
        yield opened


@pytest.fixture
def ids(store: perdure.Store, home: Home) -> dict[str, str]:
    """The sessions of the home, by what their files are called there."""
    by_path = {source.path: str(source.session) for source in sync(store, [home.folder]).sources}
    return {name: by_path[str(getattr(home, name))] for name in ("parent", "child", "rollout")}


def test_a_fork_of_an_import_is_listed_as_perdures_own(
    line: Line, store: perdure.Store, ids: dict[str, str]
) -> None:
    """A fork is nobody's import: it has the program perdure, and is marked as a fork."""
    with store.fork(ids["rollout"], new_id="mine") as fork, fork.turn() as turn:
        turn.user("go on")
    rows = {row["id"]: row for row in line.json("ls")["sessions"]}
    assert (rows["mine"]["program"], rows["mine"]["relation"]) == ("perdure", "fork")
    assert (rows[ids["rollout"]]["program"], rows[ids["rollout"]]["relation"]) == ("codex", None)
    assert rows[ids["child"]]["relation"] == "subagent"
    shown = line("ls").stdout
    assert "  perdure, fork  " in shown
    below = next(row for row in shown.splitlines() if row.endswith(ids["child"]))
    assert "└ " in below
    for name in ("codex", "Codex"):
        listed = line.json("ls", "--program", name)["sessions"]
        assert [row["id"] for row in listed] == [ids["rollout"]]
    assert line.json("show", "mine")["import"] is None


def test_a_fork_in_its_own_agent_is_marked(line: Line, store: perdure.Store) -> None:
    """An import that its agent forked from another session says so in the list."""
    source = perdure.Source("codex", "b", None, "/srv/b.jsonl", "a", "fork")
    with store.create("other", vocabulary=None, source=source) as session:
        session.append("codex/record", "{}\n", key="0:0")
    assert "  Codex, fork  " in line("ls").stdout


def test_times_that_nobody_knows_are_a_dash(line: Line, store: perdure.Store) -> None:
    """A time of 0, as formats write what they do not know, is not shown as a day of 1970."""
    with store.create("old", created_at=0, vocabulary=None) as session:
        session.append("note", 1, time=0)
    for arguments in (["ls"], ["log", "old"], ["show", "old"]):
        shown = line(*arguments).stdout
        assert "1970" not in shown
        assert "  -  " in shown or "created_at - (0)" in shown
    assert (output.when(None), output.when(0)) == ("-", "-")
    assert output.when(1000) == "1970-01-01 00:00:01"


def test_titles_are_cut_to_the_width_of_the_terminal(
    line: Line, store: perdure.Store, tmp_path: Path
) -> None:
    """On a terminal each session has one line, of which the title is cut and the id is whole."""
    id = "session-" + "x" * 30
    with store.create(id) as session:
        session.set_title("a title " * 20)
    columns = 110
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [sys.executable, "-m", "perdure", "--store", str(line.location), "ls"]
    with subprocess.Popen(command, stdout=slave, stderr=subprocess.DEVNULL, cwd=tmp_path):
        os.close(slave)
        received = b""
        try:
            while chunk := os.read(master, 65536):
                received += chunk
        except OSError:
            pass  # how Linux says that nobody holds the other end any more
        finally:
            os.close(master)
    _, shown = received.decode().splitlines()
    assert len(shown) == columns
    assert shown.endswith(f"…  {id}")
    assert "a title " * 7 in line("ls").stdout


def test_show_tells_what_an_import_is(line: Line, home: Home, ids: dict[str, str]) -> None:
    """Of an import it says agent, title, file, and how much of its records is understood."""
    shown = line("show", ids["parent"]).stdout
    assert "agent     Claude Code\n" in shown
    assert "title     Delegate a repo search to a subagent\n" in shown
    assert f"file      {home.parent}\n" in shown
    found = line.json("show", ids["parent"])["import"]
    assert (found["generations"], found["gone"], found["relation"]) == (1, False, None)
    assert found["understood"] + found["raw"] + found["missed"] == 3
    assert f"records   {found['understood']} understood, {found['raw']} left as they" in shown
    assert f"relation  subagent of {PARENT}\n" in line("show", ids["child"]).stdout


def test_show_tells_what_became_of_a_source(line: Line, home: Home, ids: dict[str, str]) -> None:
    """A source that was rewritten and then went has both said of it."""
    lines = home.rollout.read_bytes().splitlines(keepends=True)
    home.rollout.write_bytes(b"".join(lines[:-2]))
    line("sync")
    home.rollout.unlink()
    line("sync")
    shown = line("show", f"codex:{THREAD}").stdout
    assert f"file      {home.rollout}, which is not there any more\n" in shown
    assert "rewritten 1 time\n" in shown
    assert ", 2 replaced since\n" in shown
    found = line.json("show", ids["rollout"])["import"]
    assert (found["gone"], found["generations"], found["superseded"]) == (True, 2, 2)


def test_show_of_a_damaged_import_says_what_it_can(
    line: Line, home: Home, ids: dict[str, str]
) -> None:
    """Where the log cannot be read whole, what the header says is told all the same."""
    log = line.log(ids["rollout"])
    raw = bytearray(log.read_bytes())
    raw[len(raw) * 3 // 4] ^= 1
    log.write_bytes(raw)
    shown = line("show", ids["rollout"])
    assert shown.exit_code == 3
    assert f"file      {home.rollout}\n" in shown.stdout
    assert "the import cannot be read whole: " in shown.stderr
