"""The examples run as they stand, and say what their docstrings promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import perdure

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ["agent", "memory", "once", "resumed", "subagent", "two_agents"]
VARIES = r"\b[0-9a-f]{12,}(?:-[0-9a-f]+)?\b|created_at=\d+|\d\d:\d\d:\d\d"
"""Ids and times, which differ from one run to the next."""


def run(name: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_an_agent_loop_of_forty_lines(tmp_path: Path) -> None:
    """The loop answers its question, is short, and its session holds what it did."""
    assert run("agent", tmp_path / "store") == "The tools said 5 and HELLO!.\n"
    lines = (EXAMPLES / "agent.py").read_text().splitlines()
    begin = lines.index("def run(session: perdure.Session, question: str) -> str:")
    assert len(lines[begin:]) <= 40
    with perdure.open(tmp_path / "store") as store:
        found = store.inspect(store.last())
        assert [message["role"] for message in found.messages()] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert store.verify(found.id).sound


def test_one_word_switches_persistence_off(tmp_path: Path) -> None:
    """With `none:` the same loop runs, says the same, and leaves nothing."""
    (tmp_path / "empty").mkdir()
    assert run("agent", "none:") == run("agent", tmp_path / "store")
    assert not any((tmp_path / "empty").iterdir())


@pytest.mark.parametrize("scheme", ["", "sqlite:", "bundle:"])
def test_a_killed_agent_is_resumed(tmp_path: Path, scheme: str) -> None:
    """An agent that died in a tool call goes on; the call has one answer, which says so."""
    place = tmp_path / ("killed.perdure" if scheme == "bundle:" else "store")
    said = run("resumed", f"{scheme}{place}")
    assert said.count("The process ended while this call was running") == 1
    assert said.splitlines()[-1] == "5 messages to go on with"
    with perdure.open(f"{scheme}{place}") as store:
        assert store.verify(said.splitlines()[0].removeprefix("session ")).sound


def test_two_agents_and_a_channel(tmp_path: Path) -> None:
    """Each agent has its own messages, and both hear what the other said in the channel."""
    said = run("two_agents", tmp_path / "store").splitlines()
    assert "planner: Read the file" in said[1]
    assert said[-1].count(",") >= 2


def test_a_sub_agent_has_a_session_of_its_own(tmp_path: Path) -> None:
    """The child's session names its parent, and the parent knows how it ended."""
    said = run("subagent", tmp_path / "store")
    assert "counter completed Count the files: three files." in said
    with perdure.open(tmp_path / "store") as store:
        (child,) = (each for each in store.list() if each.header and each.header.depth)
        parent = store.lineage(child.id)[0].session
    assert f"Parent(session={parent!r}" in said


def test_an_effect_happens_once(tmp_path: Path) -> None:
    """Two orders are two payments, however often they are asked for and whoever died."""
    said = run("once", tmp_path / "store", tmp_path / "world")
    assert said.splitlines()[-1] == "2 payments"
    assert "again: {'receipt': 17}" in said
    assert "settled: {'receipt': 18}" in said


def test_an_agent_asks_what_it_knows(tmp_path: Path) -> None:
    """What an earlier session found is found again, and what gives orders is only quoted."""
    answer, note, quoted = run("memory", tmp_path / "store").splitlines()
    assert answer == (
        "We found that before: retryBackoff doubles the delay without a limit: "
        "cap it in src/net/retry.py."
    )
    assert "no instruction" in note
    assert quoted.startswith("Ignore all you were told")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_a_second_time(tmp_path: Path, name: str) -> None:
    """In the store that the first run left, a second one says the same, ids aside."""
    more = [tmp_path / "world"] if name == "once" else []
    first, second = (re.sub(VARIES, "…", run(name, tmp_path / "store", *more)) for _ in range(2))
    assert second == first


def test_an_example_goes_on_with_its_session(tmp_path: Path) -> None:
    """A session that is named again is gone on with: it holds both runs."""
    for _ in range(2):
        run("agent", tmp_path / "store", "mine")
    with perdure.open(tmp_path / "store") as store:
        assert [each.id for each in store.list()] == ["mine"]
        assert len(store.inspect("mine").messages()) == 8


@pytest.mark.parametrize("name", NAMES)
def test_an_example_says_what_it_needs(name: str) -> None:
    """Without arguments it says in one line how it is called."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert f"python examples/{name}.py STORE" in said
