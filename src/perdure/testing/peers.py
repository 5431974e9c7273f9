"""Another process: it opens, writes, loops and forks as it is told, one order at a time.

Two writers that matter are two processes. A `Peer` is one: orders go to it as lines of JSON, and
its answers come back the same way. `python -m perdure.testing.peers PATH ENCODING` is its body.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

from perdure.errors import PerdureError, SessionBusy, SessionClosed, StaleWriter
from perdure.store.session import Session
from perdure.store.store import Store, open_store

__all__ = ["Peer"]


class Peer:
    """A process that works on one store. Orders are the methods of `_Body`.

    Attributes:
        pid: its process id.

    """

    def __init__(self, path: str, encoding: str) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.testing.peers", path, encoding],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.pid = self._process.pid

    def tell(self, order: str, **facts: Any) -> None:
        """Give an order and do not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([order, facts]) + "\n")

    def hear(self) -> Any:
        """The answer to the oldest order that was not answered yet."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, order: str, **facts: Any) -> Any:
        """Give an order and wait for the answer."""
        self.tell(order, **facts)
        return self.hear()

    def kill(self) -> None:
        """End it by SIGKILL, and see it gone."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> None:
        """Let it close what it has open and end."""
        if self._process.returncode is None:
            self._process.communicate()

    def __enter__(self) -> Self:
        """The peer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End it, gently unless something went wrong."""
        if error is not None:
            self.kill()
        self.close()


class _Body:
    """What a peer does. Each method is an order; what it returns is the answer."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.session: Session | None = None

    def create(self, session: str) -> Any:
        """Create a session and store its first event."""
        self.session = self.store.create(session)
        return self.append(1)

    def open(self, session: str, wait: float = 0.0) -> Any:
        """Take the writer of a session."""
        try:
            self.session = self.store.writer(session, wait=wait)
        except PerdureError as error:
            return _told(error)
        return {"seq": self.session.position.seq}

    def append(self, count: int) -> Any:
        """Append events one by one until one is refused."""
        acknowledged: list[Any] = []
        answer: dict[str, Any] = {"acknowledged": acknowledged}
        assert self.session is not None
        try:
            for number in range(count):
                event = self.session.append("proof/said", [os.getpid(), number])
                acknowledged.append([event.seq, event.data])
        except PerdureError as error:
            answer.update(_told(error))
        return answer

    def share(self, session: str, count: int, wait: float) -> Any:
        """Take the writer, append one event and give it back, `count` times."""
        acknowledged: list[Any] = []
        for _ in range(count):
            told = self.open(session, wait)
            if "error" in told:
                return {"acknowledged": acknowledged, **told}
            acknowledged += self.append(1)["acknowledged"]
            self.close()
        return {"acknowledged": acknowledged}

    def churn(self, session: str) -> Any:
        """Take the writer and give it back until the next order comes."""
        opened = busy = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            try:
                self.store.writer(session).close()
                opened += 1
            except SessionBusy:
                busy += 1
        return {"opened": opened, "busy": busy}

    def fork(self) -> Any:
        """Fork; the child tries to write, then ends as processes end, exit handlers and all."""
        assert self.session is not None
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            session = self.session
            tries: dict[str, Callable[[], object]] = {
                "append": lambda: session.append("proof/said", "from the child"),
                "buffer": lambda: session.buffer("proof/said", "from the child"),
                "flush": session.flush,
            }
            for name, attempt in tries.items():
                try:
                    attempt()
                except SessionClosed:
                    os.write(writing, f"{name} ".encode())
            session.close()
            # The exit handlers of the interpreter run, as in any child that returns.
            sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
            sys.exit(0)
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:
            refused = pipe.read().split()
        _, status = os.waitpid(pid, 0)
        return {"refused": refused, "status": os.waitstatus_to_exitcode(status)}

    def close(self) -> Any:
        """Give the writer back."""
        if self.session is not None:
            self.session.close()
            self.session = None
        return {}


def _told(error: PerdureError) -> dict[str, Any]:
    told: dict[str, Any] = {"error": error.code}
    if isinstance(error, SessionBusy):
        told.update(pid=error.pid, host=error.host, since=error.since)
    if isinstance(error, StaleWriter):
        told["lost"] = [[event.seq, event.data] for event in error.lost]
    return told


def _orders() -> Iterator[tuple[str, dict[str, Any]]]:
    # Unbuffered, so that `churn` sees the next order by select.
    line = b""
    while byte := os.read(sys.stdin.fileno(), 1):
        line += byte
        if byte == b"\n":
            order, facts = json.loads(line)
            yield order, facts
            line = b""


def _main() -> None:
    path, encoding = sys.argv[1:]
    with open_store(path, encoding=encoding, index=False) as store:
        body = _Body(store)
        for order, facts in _orders():
            answer = getattr(body, order)(**facts)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        body.close()


if __name__ == "__main__":
    _main()
