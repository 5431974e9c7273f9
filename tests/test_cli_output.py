"""Hostile text: whatever data holds, a terminal is told nothing but what to show."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import perdure
from perdure.cli import output
from perdure.cli.main import cli

HOSTILE = "\x1b[31mred\x07 \u202eright\u2066 \x9b2J \x00\n\r\t\x7f \u2028 \ud83d \U000e0041 é 漢"
BANNED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@pytest.fixture
def location(tmp_path: Path) -> Path:
    """A store with hostile text wherever text can stand."""
    folder = tmp_path / "store"
    with perdure.open(folder) as store, store.create(HOSTILE, cwd="/" + HOSTILE) as session:
        session.append("a", {HOSTILE: HOSTILE}, agent=HOSTILE, turn=HOSTILE, key=HOSTILE)
        session.append("b", HOSTILE)
    return folder


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for item in pair for text in strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31m", r"\x1b[31m"),
        ("a\nb\tc\rd", r"a\nb\tc\rd"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("\u202e\u2066\u200f\u061c\ufeff", r"\u202e\u2066\u200f\u061c\ufeff"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud83d.", "\ufffd."),
        ("\ud83d\ude00", "\U0001f600"),
        ("é漢👩\u200d🔬", "é漢👩\u200d🔬"),
    ],
)
def test_text_is_shown_not_obeyed(text: str, shown: str) -> None:
    """Control and format characters become visible escapes; what is only text stays."""
    assert output.safe(text) == shown


@pytest.mark.parametrize("command", [["ls"], ["show", HOSTILE], ["log", HOSTILE], ["verify"]])
def test_commands_print_nothing_hostile(location: Path, command: list[str]) -> None:
    """No command lets text of the data reach the terminal as it is."""
    result = CliRunner().invoke(cli, ["--store", str(location), *command])
    assert result.exit_code == 0
    assert r"\x1b[31mred" in result.stdout
    assert BANNED.search(result.stdout) is None
    assert "\ufffd" in result.stdout


@pytest.mark.parametrize("command", [["ls"], ["show", HOSTILE], ["log", HOSTILE], ["verify"]])
def test_json_is_ascii_and_has_no_lone_surrogates(location: Path, command: list[str]) -> None:
    """JSON for programs carries every character as an escape, lone surrogates as U+FFFD."""
    result = CliRunner().invoke(cli, ["--store", str(location), *command, "--json"])
    assert result.stdout.isascii()
    assert BANNED.search(result.stdout) is None
    lines = result.stdout.splitlines() if command[0] == "log" else [result.stdout]
    found = [text for line in lines for text in strings(json.loads(line))]
    assert HOSTILE.replace("\ud83d", "\ufffd") in found


def test_errors_print_nothing_hostile(location: Path) -> None:
    """Ids that come back in an error are escaped like all other text."""
    for arguments in (["show", "\x1b[31mno\n"], ["\x1b[31mno\n"], ["ls", "--\x1b[31mno\n"]):
        result = CliRunner().invoke(cli, ["--store", str(location), *arguments])
        assert result.exit_code in (2, 5)
        assert BANNED.search(result.stderr) is None
        assert r"x1b[31mno" in result.stderr


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_keeping_prints_nothing_hostile(location: Path, option: list[str]) -> None:
    """Commands that change something escape ids, namespaces and types as all others do."""
    with perdure.open(location) as store:
        with store.writer(HOSTILE) as session:
            session.append("x", {"blob": session.put_blob(b"x")})
        with store.namespace(HOSTILE).create("s") as session:
            session.append("x")
    for command in (
        ["ls"],
        ["verify"],
        ["blob", HOSTILE],
        ["expire", HOSTILE, "--keep-last", "0", "--dry-run"],
        ["compact", "--all"],
        ["archive", HOSTILE],
        ["unarchive", HOSTILE],
        ["accept", HOSTILE],
        ["rm", HOSTILE],
        ["trash"],
        ["restore", HOSTILE],
        ["forget", HOSTILE],
        ["--namespace", HOSTILE, "trash"],
        ["rm", HOSTILE],
        ["trash", "--empty", HOSTILE, "--yes"],
        ["forget", HOSTILE],
    ):
        result = CliRunner().invoke(cli, ["--store", str(location), *command, *option])
        assert BANNED.search(result.output) is None
        assert result.exit_code in (0, 2)
        assert not option or result.stdout.isascii()


def test_import_prints_nothing_hostile(tmp_path: Path) -> None:
    """Names of files and ids of sources are escaped in the report."""
    path = tmp_path / "\x1b[31m\u202e.jsonl"
    header = {"type": "session", "createdAt": 1, "id": "\x1b[31m\u202e\ud83d"}
    path.write_text(json.dumps(header) + "\nnoise\n")
    arguments = ["--store", str(tmp_path / "store"), "import", "deepseek-harness", str(path)]
    result = CliRunner().invoke(cli, arguments)
    assert BANNED.search(result.stdout) is None
    assert r"\x1b[31m\u202e.jsonl" in result.stdout
    assert CliRunner().invoke(cli, [*arguments, "--json"]).stdout.isascii()


def on_terminal(location: Path, *arguments: str) -> bytes:
    """Run a command whose output is a terminal, and return what the terminal gets."""
    master, slave = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "perdure", "--store", str(location), *arguments],
        stdout=slave,
    ) as process:
        os.close(slave)
        received = b""
        try:
            while chunk := os.read(master, 65536):
                received += chunk
        except OSError:
            pass  # how Linux says that nobody holds the other end any more
        finally:
            os.close(master)
    assert process.returncode == 0
    return received.replace(b"\r\n", b"\n")


def test_raw_log_is_escaped_on_a_terminal_only(tmp_path: Path) -> None:
    """Stored lines go to a file as they are, and to a terminal with JSON escapes."""
    text = "\x9b2J \u202e é"
    with perdure.open(tmp_path / "store") as store, store.create("s") as session:
        session.append("a", text)
    exact = CliRunner().invoke(cli, ["--store", str(tmp_path / "store"), "log", "s", "--raw"])
    assert text.encode() in exact.stdout_bytes
    shown = on_terminal(tmp_path / "store", "log", "s", "--raw").decode()
    assert BANNED.search(shown) is None
    assert r"\u009b2J \u202e é" in shown
    lines = exact.stdout.splitlines()
    assert [json.loads(line) for line in shown.splitlines()] == [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("time", "shown"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_700_000_000_999, "2023-11-14 22:13:20"),
        (-1, "1969-12-31 23:59:59"),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_times_are_shown_in_utc(time: int, shown: str) -> None:
    """A time is a date where there is one, and its number elsewhere."""
    assert output.timestamp(time) == shown
