"""What tests of the service need: one in this process, or as a process of its own."""

import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from perdure import Store
from perdure.http.server.app import Settings
from perdure.http.server.guard import hosts_of
from perdure.http.server.running import Address, Server, bind, server_of
from perdure.runtime import SYSTEM, Runtime

TOKEN = "t" * 64
UNUSED = ssl.create_default_context()
"""Nothing is encrypted here; to make one for each client takes longer than most tests."""

SECONDS = 30.0


class Served:
    """A service that runs in a thread of this process."""

    def __init__(self, server: Server, address: Address) -> None:
        self.server = server
        self.address = address
        self.url = address.url

    def client(self, token: str | None = TOKEN, **more: Any) -> httpx.Client:
        """A client that is not ours."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.Client(
            base_url=self.url, headers=headers, timeout=SECONDS, verify=UNUSED, **more
        )


@contextmanager
def serving(
    store: Store,
    *,
    runtime: Runtime = SYSTEM,
    once: str | None = TOKEN,
    everybody: bool = False,
    **settings: Any,
) -> Iterator[Served]:
    """Serve a store over a real socket, in a thread."""
    with bind("127.0.0.1", 0) as listening:
        address = Address("127.0.0.1", listening.getsockname()[1])
        chosen = Settings(hosts_of(address.host, address.port), **settings)
        server = server_of(
            store, address, runtime=runtime, once=once, everybody=everybody, settings=chosen
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield Served(server, address)
        finally:
            server.stop()
            thread.join(SECONDS)
            assert not thread.is_alive()


class Process:
    """`perdure serve` as a process."""

    def __init__(self, child: "subprocess.Popen[str]", line: str) -> None:
        self.child = child
        self.link = line.strip()
        self.url, _, self.token = self.link.partition("/?token=")
        self.port = int(self.url.rpartition(":")[2])

    def client(self, token: str | None = None) -> httpx.Client:
        """A client that is not ours, the owner's unless another token is given."""
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=SECONDS, verify=UNUSED)

    def kill(self) -> None:
        """End it at once, without a word."""
        self.child.kill()
        self.child.wait(SECONDS)


@contextmanager
def process(
    store: Path | str, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """Run `perdure serve` on a free port, or the one among the arguments."""
    port = () if "--port" in arguments else ("--port", "0")
    command = [sys.executable, "-m", "perdure", "--store", str(store), "serve", *port, *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as child:
        try:
            if child.stdout is None:
                raise AssertionError
            line = child.stdout.readline()
            if not line:
                _, said = child.communicate(timeout=SECONDS)
                raise AssertionError(said)
            yield Process(child, line)
        finally:
            child.terminate()
            try:
                child.communicate(timeout=SECONDS)
            finally:
                child.kill()
