"""The demo passes, says what it claims, and notices when a claim does not hold."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import demo_agent, demonstration
from perdure.cli.main import cli
from perdure.model.vocabulary import payload
from tests.sources import DATA


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo puts its store in these tests."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_demo_passes_and_tells_its_story(temporary: Path) -> None:
    """Every claim holds, the crash and its closers are in the story, and nothing is left behind."""
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 0, result.output
    claims = [text for text in result.stdout.splitlines() if text.startswith("  ok    ")]
    assert len(claims) == 25
    assert "FAIL" not in result.stdout
    for part in (
        "242 lines of 3 files were imported",
        "line 182, byte 89081: the compressed frame at byte 29646 of the file is cut off",
        "agent: event 14 tool/call is durable",
        "the agent was killed with SIGKILL",
        "all 5 events it had reported as durable are there",
        "to be added: event 15 tool/result TOOL_OUTCOME_UNKNOWN",
        "to be added: event 17 turn/end interrupted",
        "opening it again adds nothing",
        "verified: ok, 42 events, nothing left open",
        "5 files are new, the 3 of the beginning are unchanged",
        "each was recognised: claude-code, codex, deepseek-harness",
        "again: 0 new lines",
        "            2025-12-16 00:00:02  Search the repo for TODO comments (sub-agent)",
        "            2024-01-01 10:00:05  Add rate limiting",
        "        cd /tmp && claude --resume 0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f",
        "its file comes out again byte for byte",
        "All 25 claims held.",
    ):
        assert part in result.stdout
    assert "1970" not in result.stdout
    assert list(temporary.iterdir()) == []


def test_demo_tells_programs_the_same(temporary: Path) -> None:
    """With --json the claims come as one document and nothing else is printed."""
    result = CliRunner().invoke(cli, ["demo", "--json"])
    story = json.loads(result.stdout)
    assert (story["passed"], story["store"], len(story["claims"])) == (True, None, 25)
    assert {claim["holds"] for claim in story["claims"]} == {True}
    assert list(temporary.iterdir()) == []


def test_demo_keeps_its_store_when_asked(temporary: Path) -> None:
    """With --keep the store stays, private and sound, and its session follows the vocabulary."""
    result = CliRunner().invoke(cli, ["demo", "--keep", "--json"])
    location = Path(json.loads(result.stdout)["store"])
    assert location.is_relative_to(temporary)
    assert location.parent.stat().st_mode & 0o777 == 0o700
    with perdure.open(location) as store:
        assert len(store.list()) == 9
        assert all(store.verify(entry.id).status == "ok" for entry in store.list())
        events = list(store.read_from(demonstration.SESSION))
    assert all(payload(event) is not None for event in events)
    assert [event.type for event in events].count("turn/end") == 2
    texts = [event.data["text"] for event in events if event.type == "assistant/delta"]
    assert any("TOOL_OUTCOME_UNKNOWN" in text for text in texts)


def test_demo_fails_if_a_claim_does(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    """An event that was reported and is not there fails the demo, by name, with 1."""
    crash = demonstration._crash

    def boast(*arguments: object) -> list[tuple[int, str]]:
        return [*crash(*arguments), (999, "tool/result")]  # type: ignore[arg-type]

    monkeypatch.setattr(demonstration, "_crash", boast)
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 1
    assert "  FAIL  all 6 events it had reported as durable are there" in result.stdout
    assert "1 of 25 claims did not hold." in result.stdout
    assert list(temporary.iterdir()) == []


def test_demo_runs_as_a_process() -> None:
    """The demo passes from the outside, too."""
    command = [sys.executable, "-m", "perdure", "demo"]
    result = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")
    assert b"All 25 claims held." in result.stdout


def test_agent_ends_with_its_parent(tmp_path: Path) -> None:
    """The agent's tool lasts no longer than its parent: a closed input ends it."""
    command = [sys.executable, "-m", demo_agent.__name__, str(tmp_path / "store"), "s", "begin"]
    result = subprocess.run(command, input=b"", capture_output=True, check=False, timeout=60)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.splitlines()[-1] == b"tool running"


def test_demo_finds_nothing_of_whoever_runs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The agents of this machine, and formats of others, are left alone."""
    home = tmp_path / "home"
    shutil.copytree(DATA / "claude-code/as_subagent", home / ".claude/projects/-tmp")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / ".claude"))
    result = CliRunner().invoke(cli, ["demo"])
    assert result.exit_code == 0
    assert "5 files are new, the 3 of the beginning are unchanged" in result.stdout


def test_samples_of_the_demo_are_those_of_the_tests() -> None:
    """What the package carries is a copy of samples whose licences stand beside them."""
    carried = [path for path in demonstration.SAMPLES.rglob("*.json*") if path.is_file()]
    known = {path.read_bytes() for path in DATA.rglob("*.json*") if path.is_file()}
    assert len(carried) == 9
    assert all(path.read_bytes() in known for path in carried)
    notice = (demonstration.SAMPLES / "LICENSE.md").read_text(encoding="utf-8")
    for holder in ("DeepSeek", "Alexander Malakhov", "Kenn Software LLC", "marot"):
        assert f"Copyright (c) 2026 {holder}\n" in notice
    assert "Permission is hereby granted" in notice
    assert all(path.name in notice or path.name.endswith(".meta.json") for path in carried)
