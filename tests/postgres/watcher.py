"""Runs a program of PostgreSQL for a process of tests, and lets nothing outlive that process.

It is started as a script: the pid of the process of tests, a folder, an account or an empty text,
then the command. It writes the pid of the command, and ends, as the command did, when all that the
command started has ended. When the process of tests is gone, whatever its end was, all of them are
killed and the folder is removed.
"""

import ctypes
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

__all__ = ["END_SECONDS", "PAUSE", "end", "forget_memory"]

END_SECONDS = 30.0
PAUSE = threading.Event()
"""Never set: whoever polls waits a moment for it."""

_SET_DEATH_SIGNAL = 1
_SET_CHILD_SUBREAPER = 36
_REMOVE = 0
_ORPHAN_MILLISECONDS = 500


def end(pid: int) -> None:
    """Kill a process and all that it started, at once, as the end of a machine would.

    A server of PostgreSQL gives each of its processes a group of its own, so a signal to the group
    would miss them; and one that saw the others die could still say something to a client.
    """
    try:
        top = psutil.Process(pid)
        top.suspend()
        family = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return
    _kill(family)


def _kill(family: list[psutil.Process]) -> None:
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + END_SECONDS
    while not all(map(_is_gone, family)):
        assert time.monotonic() < deadline, f"{family} cannot be killed"
        PAUSE.wait(0.002)


def _is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def forget_memory(data: Path) -> None:
    """Remove the piece of shared memory that a killed server leaves; the kernel keeps few."""
    with suppress(OSError, IndexError, ValueError):
        line = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[6]
        ctypes.CDLL(None).shmctl(int(line.split()[1]), _REMOVE, None)


def _die_with_the_watcher() -> None:
    if sys.platform == "linux":
        # It has to come after the change of user, which clears it.
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGQUIT)


def _start(folder: Path, account: str, command: list[str]) -> "subprocess.Popen[bytes]":
    options: dict[str, Any] = {}
    if account:
        entry = pwd.getpwnam(account)
        options = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_the_watcher,  # noqa: PLW1509 - there is one thread here
            **options,
        )


def _main(parent: int, folder: Path, account: str, command: list[str]) -> int:
    woken, waking = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(waking, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(waking)
    waits = select.poll()
    waits.register(woken, select.POLLIN)
    milliseconds = _ORPHAN_MILLISECONDS
    if sys.platform == "linux":
        # What a dead server started becomes a child of this process, to be waited for here.
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)
        with suppress(ProcessLookupError):
            waits.register(os.pidfd_open(parent), select.POLLIN)
            milliseconds = -1
    child = _start(folder, account, command)
    with suppress(BrokenPipeError):
        print(child.pid, flush=True)  # noqa: T201 - this is how it is told
    while _some_live(child) and os.getppid() == parent:
        waits.poll(milliseconds)
        with suppress(BlockingIOError):
            os.read(woken, 4096)
    if os.getppid() != parent:
        if child.returncode is None:
            end(child.pid)
        _kill(psutil.Process().children(recursive=True))
        forget_memory(folder / "data")
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode or 0


def _some_live(child: "subprocess.Popen[bytes]") -> bool:
    """Wait for what has ended; tell whether anything lives that the command started."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
            if not pid:
                return True
    return False


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:]) & 0xFF)
