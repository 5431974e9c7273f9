"""A home with the folders of agents, as a test of the command line finds it."""

import shutil
from pathlib import Path

import pytest

from tests.sources import DATA

__all__ = ["AGENTS", "CHILD", "PARENT", "THREAD", "WORKPLACE", "Home"]

AGENTS = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "DSH_HOME")
"""Variables that lead to sessions of whoever runs the tests."""

PARENT = "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
CHILD = "a0ad4f44468bdf20d"
THREAD = "019b2ea4-aaaa-bbbb-cccc-58208e1f0000"

WORKPLACE = "/tmp"  # noqa: S108 - where the sessions of Claude Code were at work
"""A folder of every machine."""


class Home:
    """A home in the folder of a test; programs of agents are found in its `bin` alone.

    Attributes:
        folder: the home.
        parent: a session of Claude Code, in /tmp.
        child: a sub-agent of it.
        rollout: a session of Codex, in /tmp/large.
        harness: a session of deepseek-harness.

    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.parent = folder / f".claude/projects/-tmp/{PARENT}.jsonl"
        self.child = self.parent.with_suffix("") / f"subagents/agent-{CHILD}.jsonl"
        day = folder / ".codex/sessions/2025/12/18"
        self.rollout = day / f"rollout-2025-12-18T10-00-00-{THREAD}.jsonl"
        self.harness = folder / ".dsh/sessions/--home-demo--/session-1/session.jsonl.zstd"
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.setenv("PATH", str(folder / "bin"))
        for name in AGENTS:
            monkeypatch.delenv(name, raising=False)

    def fill(self) -> None:
        """Put a session of each agent where it belongs."""
        torn = "deepseek-harness/rebuilt/--home-demo--/session-torn-frame/session.jsonl.zstd"
        shutil.copytree(DATA / "claude-code/as_subagent", self.parent.parent)
        for source, target in (("codex/as_large.jsonl", self.rollout), (torn, self.harness)):
            target.parent.mkdir(parents=True)
            shutil.copyfile(DATA / source, target)

    def install(self, *programs: str) -> None:
        """Put programs on the path; they do nothing."""
        (self.folder / "bin").mkdir(parents=True, exist_ok=True)
        for program in programs:
            path = self.folder / "bin" / program
            path.write_text("#!/bin/sh\n")
            path.chmod(0o755)
