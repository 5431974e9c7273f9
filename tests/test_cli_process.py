"""The command line as a process: how it starts and how it ends."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import perdure
from perdure.cli.main import COMMANDS


def start(*arguments: str, env: dict[str, str] | None = None) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "perdure", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


@pytest.fixture
def location(tmp_path: Path) -> str:
    """A store with a session that fills more than a pipe."""
    with perdure.open(tmp_path / "store") as store, store.create("long") as session:
        session.append_many({"type": "a", "data": "x" * 1000} for _ in range(500))
    return str(tmp_path / "store")


@pytest.mark.parametrize("option", [[], ["--raw"], ["--json"]])
def test_closed_pipe_ends_quietly(location: str, option: list[str]) -> None:
    """When the reader stops, the command stops, without a word."""
    process = start("--store", location, "log", "long", *option)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(100)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE
    process.stderr.close()


def test_full_output_is_an_error(location: str) -> None:
    """Output that cannot be written is an error with one line, not a trace."""
    if not Path("/dev/full").exists():
        pytest.skip("the system has no full device")
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "perdure", "--store", location, "log", "long"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr == b"error: the output cannot be written: No space left on device\n"


def test_codes_and_json_of_a_real_process(location: str) -> None:
    """A process ends with the code of its error and prints one object where JSON is asked for."""
    process = start("--store", location, "show", "none", "--json")
    stdout, stderr = process.communicate()
    assert (process.returncode, stdout) == (5, b"")
    assert json.loads(stderr)["error"]["code"] == "session-not-found"


def test_terminal_of_another_encoding_is_no_error(location: str) -> None:
    """Characters that the output cannot carry are shown as escapes."""
    with perdure.open(location) as store, store.create("漢") as session:
        session.append("a")
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    process = start("--store", location, "ls", env=environment)
    stdout, stderr = process.communicate()
    assert (process.returncode, stderr) == (0, b"")
    assert rb"\u6f22" in stdout


def test_start_loads_only_what_it_needs(location: str) -> None:
    """A command is loaded when it is called; listing loads no importer and no demo."""
    code = (
        "import sys\nfrom perdure.cli.main import cli\n"
        "loaded = lambda: {name for name in sys.modules if name.startswith('perdure.')}\n"
        "assert not any('commands' in name for name in loaded()), loaded()\n"
        f"try: cli(['--store', {location!r}, 'ls'])\nexcept SystemExit: pass\n"
        "assert 'perdure.cli.commands.ls' in loaded()\n"
        "assert not [n for n in loaded() if 'import' in n or 'demo' in n or 'verify' in n]\n"
        "assert not {'subprocess', 'asyncio', 'hypothesis', 'apsw'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_default_store_is_in_the_home(tmp_path: Path) -> None:
    """Without option and variable the store is ~/.perdure, and reading does not create it."""
    environment = {name: value for name, value in os.environ.items() if name != "PERDURE_STORE"}
    process = start("ls", env={**environment, "HOME": str(tmp_path)})
    stdout, _ = process.communicate()
    assert (process.returncode, stdout) == (0, b"no sessions in ~/.perdure\n")
    assert list(tmp_path.iterdir()) == []


def test_every_command_has_a_module_of_its_own() -> None:
    """Each file of commands is one command, and each command has its file."""
    folder = Path(str(perdure.__file__)).parent / "cli" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == set(COMMANDS.values())
    assert len(COMMANDS) == len(modules)
