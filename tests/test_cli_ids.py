"""Ids on the command line: who reads takes the beginning of one, who changes something does not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.cli.exits import Exit
from tests.command_line import Line

ID = "claude-code:0a1b:ffee"


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location) as opened:
        yield opened


@pytest.fixture
def session(store: perdure.Store) -> str:
    """A session with a turn, an artifact and content."""
    with store.create(ID) as made:
        with made.turn("t1") as turn:
            turn.user("hello")
        made.put_blob(b"content")
    return ID


@pytest.mark.parametrize(
    "command",
    [
        *(["show"], ["log"], ["log", "--raw"], ["tail"], ["branches"], ["artifacts"], ["blob"]),
        *(["aside"], ["verify"], ["resume"]),
    ],
    ids=" ".join,
)
def test_who_reads_takes_the_beginning_of_an_id(
    line: Line, session: str, command: list[str]
) -> None:
    """What is printed is the same by the whole id and by its beginning."""
    whole = line(*command, session)
    assert (whole.exit_code, whole.stdout != "") == (Exit.OK, True)
    assert line(*command, "claude-code:0a").output == whole.output


def test_copies_are_made_by_the_beginning_of_an_id(
    line: Line, session: str, tmp_path: Path
) -> None:
    """A fork, an export and a copy take what is meant from the session that begins so."""
    assert line.json("fork", "claude")["parent"]["session"] == session
    line("rm", line.json("ls")["sessions"][0]["id"])
    bundle = str(tmp_path / "one.perdure")
    assert line.json("export", session[:5], bundle)["session"] == session
    done = line.json(
        "copy",
        str(line.location),
        str(tmp_path / "there"),
        session[:5],
        "none",
        ends=Exit.NOT_FOUND,
    )
    assert [row["session"] for row in done["sessions"]] == [session]


@pytest.mark.parametrize(
    "command",
    [
        *(["rm"], ["repair"], ["rewind", "--to", "t1"], ["archive"], ["unarchive"], ["compact"]),
        *(["expire"], ["accept", "--yes"]),
    ],
    ids=" ".join,
)
def test_who_changes_something_wants_the_whole_id(
    line: Line, session: str, command: list[str]
) -> None:
    """The beginning of an id is not found; the hint names the session that begins so."""
    log = line.log(session).read_bytes()
    error = line.error(*command, "claude-code:0a")
    assert (error["exit"], error["code"]) == (Exit.NOT_FOUND, "session-not-found")
    assert error["hint"] == f"an id is given in full here; {session} begins so"
    assert line.log(session).read_bytes() == log
    assert session not in line.error(*command, "other")["hint"]


def test_restore_and_trash_name_what_is_in_the_trash(line: Line, session: str) -> None:
    """What was deleted is brought back by its whole id, and the hint names it."""
    line("rm", session)
    assert session in line.error("restore", "claude")["hint"]
    assert line("restore", session).exit_code == Exit.OK


def test_restore_of_what_is_not_in_the_trash_any_more(line: Line, session: str) -> None:
    """Where the trash was emptied nothing comes back, and the hint says how the id gets free."""
    line("rm", session)
    line("trash", "--empty", "--yes")
    error = line.error("restore", session)
    assert "is not in the trash any more" in error["message"]
    assert f"`perdure forget {session}`" in error["hint"]
    assert line("forget", session).exit_code == Exit.OK


def test_forget_names_what_vanished(line: Line, session: str, store: perdure.Store) -> None:
    """A session that vanished is forgotten by its whole id, which the hint gives."""
    store.close()
    folder = line.log(session).parent
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    assert session in line.error("forget", "claude")["hint"]


def test_of_many_ids_ten_are_named_one_on_a_line(line: Line, store: perdure.Store) -> None:
    """A beginning that fits many ids lists some of them, and nothing hostile in them acts."""
    for number in range(12):
        with store.create(f"run\x1b-{number:02}") as made:
            made.append("note", 1)
    shown = line("show", "run")
    assert shown.exit_code == Exit.USAGE
    first, hint, *listed, more = shown.stderr.splitlines()
    assert first == "error: ID: 'run' is the beginning of 12 ids"
    assert hint == "hint: one of these is meant:"
    assert listed == [f"      run\\x1b-{number:02}" for number in range(10)]
    assert more == "      and 2 more"


def test_the_id_of_a_deleted_session_means_no_longer_one(line: Line, store: perdure.Store) -> None:
    """Who names a session that was deleted is told so, though another id begins with its id."""
    for id in ("run-1", "run-12"):
        with store.create(id) as made:
            made.append("note", 1)
    line("rm", "run-1")
    assert "was deleted at" in line.error("show", "run-1")["message"]
    assert line.json("verify", "run-1", ends=Exit.NOT_FOUND)["sessions"] == []


def test_verify_tells_of_each_id(line: Line, session: str, store: perdure.Store) -> None:
    """An id that means nothing, or several sessions, keeps no other from being verified."""
    with store.create("claude-b") as made:
        made.append("note", 1)
    done = line("verify", "claude", "none", "claude-code")
    assert done.exit_code == Exit.USAGE
    assert done.stdout.startswith(f"ok           {session}  ")
    assert done.stderr.count("error: ") == 2
