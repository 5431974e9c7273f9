"""The command line as a process: how it starts and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
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


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("option", [[], ["--raw"], ["--json"]])
def test_closed_pipe_ends_quietly(location: str, option: list[str], unbuffered: str) -> None:
    """When the reader stops, the command stops, without a word, however Python buffers."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    process = start("--store", location, "log", "long", *option, env=environment)
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
        "others = ('perdure.importers', 'commands.import', 'demo', 'verify')\n"
        "assert not [n for n in loaded() if any(other in n for other in others)]\n"
        "assert not {'subprocess', 'asyncio', 'hypothesis'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


EMPTY = (
    b"no sessions in ~/.perdure\n`perdure sync` brings in what other agents keep on this machine\n"
)


def test_default_store_is_in_the_home(tmp_path: Path) -> None:
    """Without option and variable the store is ~/.perdure, and reading does not create it."""
    environment = {name: value for name, value in os.environ.items() if name != "PERDURE_STORE"}
    process = start("ls", env={**environment, "HOME": str(tmp_path)})
    stdout, _ = process.communicate()
    assert (process.returncode, stdout) == (0, EMPTY)
    assert list(tmp_path.iterdir()) == []


class Terminal:
    """A command whose input, output and errors are a terminal."""

    def __init__(self, *arguments: str) -> None:
        self._master, slave = os.openpty()
        command = [sys.executable, "-m", "perdure", *arguments]
        # A shell that runs the tests in the background has them, and all they start, ignore it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self._process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave)
        signal.signal(signal.SIGINT, before)
        os.close(slave)
        self.received = b""

    def read(self, until: bytes | None = None) -> bytes:
        """What it has printed, up to its end or to these bytes."""
        try:
            while until is None or until not in self.received:
                chunk = os.read(self._master, 65536)
                if not chunk:
                    break
                self.received += chunk
        except OSError:
            pass  # how Linux says that nobody holds the other end any more
        return self.received.replace(b"\r\n", b"\n")

    def type(self, text: bytes) -> None:
        os.write(self._master, text)

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        self.read()
        os.close(self._master)
        return self._process.wait()


@pytest.mark.parametrize(
    ("answer", "code", "left"), [(b"y\n", 0, 0), (b"n\n", 1, 1), (b"\n", 1, 1)]
)
def test_a_terminal_is_asked_before_anything_is_removed(
    location: str, answer: bytes, code: int, left: int
) -> None:
    """On a terminal the trash is shown and emptied if somebody says yes, and only then."""
    with perdure.open(location) as store:
        store.delete("long")
        terminal = Terminal("--store", location, "trash", "--empty")
        shown = terminal.read(b"[y/N]: ")
        assert b"  long\nRemove 1 session for good? [y/N]: " in shown
        terminal.type(answer)
        assert terminal.end() == code
        assert (b"error: nothing was done" in terminal.read()) == bool(left)
        assert len(store.trash()) == left


def test_an_interrupted_question_changes_nothing(location: str) -> None:
    """Who presses Ctrl-C at the question ends the command, and the trash stays."""
    with perdure.open(location) as store:
        store.delete("long")
        terminal = Terminal("--store", location, "trash", "--empty")
        terminal.read(b"[y/N]: ")
        terminal.interrupt()
        # The signal may have come before the read that it should have interrupted.
        with suppress(OSError):
            terminal.type(b"\n")
        assert terminal.end() == 130, terminal.received
        assert len(store.trash()) == 1


def test_a_terminal_gets_text_and_no_binary_data(location: str) -> None:
    """Content that is text is shown with escapes; other content only if somebody insists."""
    with perdure.open(location) as store, store.writer("long") as session:
        text = session.put_blob("one\n\x1b[31mé\n".encode())
        binary = session.put_blob(b"\x1b[31m\xff\xfe")
        session.append("x", [text, binary])
    terminal = Terminal("--store", location, "blob", "long", text)
    assert terminal.end() == 0
    assert terminal.read() == "one\n\\x1b[31mé\n".encode()
    terminal = Terminal("--store", location, "blob", "long", binary)
    assert terminal.end() == 1
    assert b"is no text" in terminal.read()
    assert b"\x1b" not in terminal.read()
    terminal = Terminal("--store", location, "blob", "long", binary, "--force")
    assert terminal.end() == 0
    assert terminal.read() == b"\x1b[31m\xff\xfe"


def test_content_goes_to_a_pipe_as_it_is(location: str) -> None:
    """Another process reads the exact bytes, and one that stops early stops the command."""
    value = os.urandom(3 * 1024 * 1024)
    with perdure.open(location) as store, store.writer("long") as session:
        digest = session.put_blob(value)
        session.append("x", digest)
    stdout, stderr = start("--store", location, "blob", "long", digest).communicate()
    assert (stdout == value, stderr) == (True, b"")
    process = start("--store", location, "blob", "long", digest)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 128 + signal.SIGPIPE
    process.stderr.close()


def test_another_process_keeps_its_session(location: str) -> None:
    """A session that another process writes is neither deleted nor compacted."""
    with perdure.open(location) as store, store.writer("long"):
        for arguments in (["rm", "long"], ["compact", "--all"], ["expire", "long"]):
            process = start("--store", location, *arguments, "--json")
            _, stderr = process.communicate()
            error = json.loads(stderr)["error"]
            assert (process.returncode, error["facts"]["pid"]) == (4, os.getpid())
    assert start("--store", location, "rm", "long").communicate() == (
        b"deleted long\n`perdure restore ID` brings back what is in the trash\n",
        b"",
    )


def test_bash_completes_ids(location: str) -> None:
    """The script for bash, loaded by a bash, offers the ids that are stored."""
    bash = shutil.which("bash")
    script = Path(sys.executable).with_name("perdure")
    if bash is None or not script.exists():
        pytest.skip("the system has no bash, or the command is not installed")
    commands = (
        f'source <("{script}" completion bash)\n'
        f'COMP_WORDS=("{script}" --store "{location}" show lo) COMP_CWORD=4\n'
        f'_perdure_completion "{script}"\n'
        'echo "${COMPREPLY[@]}"\n'
    )
    result = subprocess.run(
        [bash, "--norc", "-c", commands], capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr) == ("long\n", "")


def test_every_command_has_a_module_of_its_own() -> None:
    """Each file of commands is one command, and each command has its file."""
    folder = Path(str(perdure.__file__)).parent / "cli" / "commands"
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert modules == set(COMMANDS.values())
    assert len(COMMANDS) == len(modules)
