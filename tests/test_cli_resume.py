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
    assert "agent      x: 1 turn, 1 message to go on with" in shown.stdout
    assert "agent      (unnamed): 0 turns, 0 messages to go on with" in shown.stdout


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


def full_of_work(store: perdure.Store) -> None:
    """A session with one of everything that a state has."""
    with store.create("busy") as writer:
        writer.set_state("plan", ["look", {"then": {"what": [1]}}])
        writer.set_state("tries", 3, scope="counters", agent="coder")
        writer.set_trigger("nightly", "timer", {"every": 3600})
        writer.fire_trigger("nightly")
        writer.start_job("build", kind="shell", arguments={"cmd": "make"})
        writer.start_job("lint")
        writer.end_job("lint", "failed", error={"code": "E501", "message": "too long"})
        writer.send("plan", "who öwns the\nfixture?", sender="ann")
        usage = {"input": 40, "output": 80, "cost": 0.5, "currency": "USD"}
        with writer.turn("t1") as turn:
            turn.user("hé\u202e!")
            with turn.step() as step:
                step.request({"model": "m"})
                step.message("x" * 500, usage=usage, response="r1")
        with writer.subagent("reader", id="a1", session_id="reader-1") as reader:
            reader.append("note")
        writer.save_artifact("notes.md", b"abc", "text/markdown")
        writer.append("acme/deploy", {})
        with pytest.raises(KeyboardInterrupt):
            writer.once("order-2", pay_and_die, about={"amount": 5})


def pay_and_die() -> None:
    raise KeyboardInterrupt


def test_resume_has_a_line_for_each_thing(line: Line, store: perdure.Store) -> None:
    """Each trigger, job, sub-agent and channel has one readable line, and usage its sums."""
    full_of_work(store)
    shown = line("resume", "busy")
    assert shown.exit_code == Exit.OK, shown.output
    said = shown.stdout.splitlines()
    for expected in (
        "agent      (unnamed): 1 turn, 2 messages to go on with",
        "scratchpad plan = look, then: (1 member)",
        "counters   coder: tries = 3",
        "job        lint: failed: E501: too long",
        "subagent   a1: reader, at work in session reader-1",
        "channel    plan: 1 message, last from ann: who öwns the fixture?",
        "artifact   notes.md: 3 bytes, text/markdown",
        "usage      1 response, 40 in, 80 out, 0.5 USD",
        "other      1 event of type acme/deploy, which no view looks at",
    ):
        assert expected in said
    assert any(each.startswith("trigger    nightly: timer (every: 3600), went") for each in said)
    assert any(each.startswith("job        build: shell, interrupted, which") for each in said)
    assert any(each.startswith("effect     order-2 (amount: 5): begun ") for each in said)
    assert any(each.startswith("run        began ") for each in said)
    assert not any(mark in each for each in said for mark in "{}[]")


def test_resume_says_messages_in_words(line: Line, session: str) -> None:
    """With --at the messages are shown for people: calls by name, results with what went wrong."""
    shown = line("resume", session, "--at", "t2")
    assert "    calls bash (" in shown.stdout
    assert "TOOL_OUTCOME_UNKNOWN" in shown.stdout
    assert "{" not in shown.stdout


def test_messages_are_readable_where_the_output_can_carry_them(
    line: Line, store: perdure.Store
) -> None:
    """Letters of any script are shown as they are, what a terminal obeys is not; both are JSON."""
    full_of_work(store)
    shown = line("resume", "busy", "--format", "anthropic").stdout
    assert '"hé\\u202e!"' in shown
    plain = line("resume", "busy", "--format", "anthropic", "--json").stdout
    assert plain.isascii()
    assert json.loads(shown) == json.loads(plain)


def test_a_rewind_that_cannot_be_changes_nothing(
    line: Line, session: str, store: perdure.Store
) -> None:
    """A turn or an agent that is not there is refused before the writer closes what is open."""
    before = media.lines(store, session)
    assert "perdure branches" in line.error("rewind", session, "--to", "t9")["hint"]
    assert "no turns" in line.error("rewind", session, "--to-start", "--agent", "x")["message"]
    assert media.lines(store, session) == before


def test_rm_names_the_sub_agents_that_stay(line: Line, store: perdure.Store) -> None:
    """A sub-agent that a fork still refers to is kept, and it is said why."""
    full_of_work(store)
    store.fork("busy", new_id="fork").close()
    shown = line("rm", "busy", "--subagents")
    assert "kept reader-1" in shown.stdout
    assert "a fork begins with its start" in shown.stdout
    line.json("restore", "busy")
    assert line.json("rm", "busy", "--subagents")["deleted"][0]["kept"] == ["reader-1"]
    line.json("rm", "fork", "--subagents")
    assert [entry.id for entry in store.list()] == []


def test_the_beginning_of_an_id_will_do(line: Line, session: str, store: perdure.Store) -> None:
    """A unique beginning is resolved; of several candidates all are named."""
    assert line.json("resume", "inter")["session"] == session
    with store.create("interrupted-2") as other:
        other.append("x")
    error = line.error("resume", "inter")
    assert error["exit"] == Exit.USAGE
    assert error["hint"].endswith("\ninterrupted-1\ninterrupted-2")
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
    started = next(e.seq for e in store.read_from(session) if e.type == "turn/start")
    error = line.error("fork", session, "--at", str(started))
    assert error["exit"] == Exit.USAGE
    assert f"--at {started - 1} or --at " in error["hint"]
    assert line.json("fork", session, "--at", "-1")["events"] == 0
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
