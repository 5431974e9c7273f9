"""Resume, branches, rewind, fork, artifacts and tail: what they print, and what they change."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli.exits import Exit
from tests import media
from tests.command_line import Line
from tests.test_resume import abandon, half_a_turn


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location, encoding="raw") as opened:
        yield opened


@pytest.fixture
def session(store: perdure.Store) -> str:
    """A session whose writer died in its second turn."""
    with store.create("interrupted-1", cwd="/srv/a") as writer:
        writer.set_title("Build it")
        half_a_turn(writer)
        abandon(writer)
    return "interrupted-1"


def test_resume_shows_the_state(line: Line, session: str, store: perdure.Store) -> None:
    """The state of a session is shown, closed as the next writer would, and nothing is written."""
    before = media.lines(store, session)
    shown = line("resume", session)
    assert shown.exit_code == Exit.OK, shown.output
    assert "Build it" in shown.stdout
    assert "2 turns, 5 messages to go on with" in shown.stdout
    found = line.json("resume", session)
    assert found["session"] == session
    assert found["state"]["title"] == "Build it"
    assert media.lines(store, session) == before


def test_resume_shows_agents_that_have_said_nothing(line: Line, store: perdure.Store) -> None:
    """Each agent has a line with its own messages, one that only noted something as well."""
    with store.create("two") as writer:
        for agent in ("x", "y"):
            with writer.turn(agent=agent) as turn:
                turn.user("hello")
        writer.set_state("plan", "none")
    shown = line("resume", "two")
    assert shown.exit_code == Exit.OK, shown.output
    assert "agent x    1 turn, 1 message to go on with" in shown.stdout
    assert "agent      0 turns, 0 messages to go on with" in shown.stdout


def test_rewind_is_of_the_only_agent(line: Line, store: perdure.Store) -> None:
    """Where one agent spoke it needs no name, whatever it is called; of several one is named."""
    with store.create("one") as writer, writer.turn("t1", agent="coder") as turn:
        turn.user("hello")
    done = line.json("rewind", "one", "--to-start")
    assert done["agent"] == "coder"
    assert store.inspect("one").messages() == []
    line.json("rewind", "one", "--to", "t1")
    assert len(store.inspect("one").messages()) == 1
    with store.writer("one") as writer, writer.turn("t2", agent="reviewer") as turn:
        turn.user("hello")
    assert "named" in line.error("rewind", "one", "--to-start")["message"]


@pytest.mark.parametrize("form", ["neutral", "anthropic", "openai-chat", "openai-responses"])
def test_resume_prints_messages(line: Line, session: str, store: perdure.Store, form: str) -> None:
    """In each format the messages are printed that the library gives."""
    found = line.json("resume", session, "--format", form)
    assert found["messages"] == json.loads(json.dumps(store.inspect(session).messages(format=form)))
    at = line.json("resume", session, "--at", "t1", "--format", form)
    assert len(at["messages"]) == 2


def test_the_beginning_of_an_id_will_do(line: Line, session: str, store: perdure.Store) -> None:
    """A unique beginning is resolved; of several candidates all are named and nothing is done."""
    assert line.json("resume", "inter")["session"] == session
    with store.create("interrupted-2") as other:
        other.append("x")
    error = line.error("rewind", "inter", "--to", "t1")
    assert error["exit"] == Exit.USAGE
    assert "interrupted-1, interrupted-2" in error["hint"]
    assert line.error("resume", "nobody")["exit"] == Exit.NOT_FOUND
    with store.create("inter") as exact:
        exact.append("x")
    assert line.json("resume", "inter")["session"] == "inter"


def test_last_needs_no_id(line: Line, session: str) -> None:
    """With --last the newest session is meant; without anything it says how to name one."""
    assert line.json("resume", "--last")["session"] == session
    assert line("resume").exit_code == Exit.USAGE
    assert line("resume", session, "--last").exit_code == Exit.USAGE


def test_branches_and_rewind(line: Line, session: str, store: perdure.Store) -> None:
    """A rewind is an event: the turns behind it stay in the log, and leave the messages."""
    done = line.json("rewind", session, "--to", "t1")
    assert [*store.read_from(session)][-1].seq == done["seq"]
    assert len(store.inspect(session).messages()) == 2
    turns = {turn["turn"]: turn for turn in line.json("branches", session)["turns"]}
    assert (turns["t1"]["live"], turns["t1"]["head"]) == (True, True)
    assert (turns["t2"]["live"], turns["t2"]["head"]) == (False, False)
    assert "t2" in line("branches", session).stdout
    assert line("rewind", session).exit_code == Exit.USAGE
    before = media.lines(store, session)
    assert line.error("rewind", session, "--to", "t9")["exit"] == Exit.USAGE
    assert media.lines(store, session) == before
    line.json("rewind", session, "--to-start")
    assert store.inspect(session).messages() == []


def test_fork_makes_a_session(line: Line, session: str, store: perdure.Store) -> None:
    """A fork begins with what the other one holds up to the end of a turn, and is its own."""
    done = line.json("fork", session, "--turn", "t1", "--id", "child")
    assert done["parent"]["session"] == session
    assert store.verify("child").sound
    assert len(store.inspect("child").messages()) == 2
    assert line("fork", session, "--at", "1").exit_code == Exit.USAGE
    text = line("fork", session)
    assert text.exit_code == Exit.OK
    assert session in text.stdout


def test_artifacts_are_listed_and_written_out(
    line: Line, session: str, store: perdure.Store, tmp_path: Path
) -> None:
    """Artifacts are named with their sizes, and written below the folder that is given."""
    assert "no artifacts" in line("artifacts", session).stdout
    with store.writer(session) as writer:
        writer.save_artifact("plots/one.png", b"picture", media_type="image/png")
    [found] = line.json("artifacts", session)["artifacts"]
    assert (found["name"], found["size"]) == ("plots/one.png", 7)
    assert "plots/one.png" in line("artifacts", session).stdout
    folder = tmp_path / "out"
    done = line.json("artifacts", session, "--extract", str(folder))
    assert done["written"] == ["plots/one.png"]
    assert (folder / "plots" / "one.png").read_bytes() == b"picture"
    again = line.json("artifacts", session, "--extract", str(folder), ends=Exit.FAILED)
    assert [each["name"] for each in again["skipped"]] == ["plots/one.png"]


def test_tail_prints_the_end(line: Line, session: str) -> None:
    """Without a writer, tail prints the last events and ends."""
    shown = line("tail", session, "-n", "2")
    assert shown.exit_code == Exit.OK
    assert len(shown.stdout.splitlines()) == 2


WRITER = """
import sys
import perdure
with perdure.open(sys.argv[1]) as store, store.create("live") as session:
    for number in range(5):
        session.append("note", number)
        print(number, flush=True)
        sys.stdin.readline()
"""


def test_tail_follows_another_process(tmp_path: Path) -> None:
    """What another process appends is printed while it runs, and tail ends when it lets go."""
    place = str(tmp_path / "store")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        command = [sys.executable, "-m", "perdure", "--store", place, "tail", "live", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tail:
            assert tail.stdout is not None
            seen: list[Any] = []
            for number in range(5):
                seen.append(json.loads(tail.stdout.readline())["data"])
                assert seen == [*range(number + 1)]
                writer.stdin.write("go on\n")
                writer.stdin.flush()
            assert tail.stdout.read() == ""
            assert tail.wait() == 0
        assert writer.wait() == 0
