"""Processes that write, list and search one store at once, each as it is told.

A `Hand` is one: orders go to it as lines of JSON, and its answers come back the same way.
`python -m perdure.testing.searching PLACE ENCODING` is its body. Every text that is written has a
word of its own, which says whose it is.
"""

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self
from unittest import mock

from perdure.store.indexing import Indexing
from perdure.store.session import Session
from perdure.store.store import Store, open_store
from perdure.testing.ledger import Finding

__all__ = ["Hand", "word_of"]

_PATIENCE_SECONDS = 120.0
"""Longer than anything takes that is not stuck; what was asked for in seconds comes on top."""

_SEARCHES_MIN = 10
"""Also where the machine has no time for more: the last of them find what was written."""

_MANNERS = 10
"""Others step back where there are more processes than cores."""


_LETTERS = str.maketrans("0123456789", "abcdefghij")


def word_of(writer: str, number: int) -> str:
    """What the text of this number of a writer, named in small letters, has that no other one has.

    Letters alone: where a word with digits is not found, its parts would be looked for.
    """
    return f"{writer}zq{number}".translate(_LETTERS)


class Hand:
    """A process that works on one store. Orders are the methods of `_Body`.

    Attributes:
        pid: its process id.

    """

    def __init__(self, place: str, encoding: str) -> None:
        """Start it; `encoding` is "" where the place says what it is."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "perdure.testing.searching", place, encoding],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.pid = self._process.pid

    def tell(self, order: str, **facts: Any) -> None:
        """Give an order and do not wait."""
        into = self._process.stdin
        assert into is not None
        into.write(json.dumps([order, facts]).encode() + b"\n")
        into.flush()

    def hear(self, seconds: float = 0.0) -> Any:
        """The answer to the order that was given last, which may take so long.

        Raises:
            Finding: there is none, since the process is stuck or gone.

        """
        out = self._process.stdout
        assert out is not None
        # One order is answered at a time, so that nothing waits in the buffer.
        if not select.select([out], [], [], seconds + _PATIENCE_SECONDS)[0]:
            self.kill()
            raise Finding("a process is stuck")
        line = out.readline()
        if not line:
            raise Finding(f"a process is gone: {self._process.wait()}")
        return json.loads(line)

    def ask(self, order: str, **facts: Any) -> Any:
        """Give an order and wait for the answer."""
        self.tell(order, **facts)
        return self.hear(facts.get("seconds", 0.0))

    def kill(self) -> None:
        """End it by SIGKILL, and see it gone."""
        self._process.kill()
        self._process.communicate()

    def close(self) -> int:
        """Let it close what it has open and end; its exit status."""
        if self._process.returncode is None:
            self._process.communicate(timeout=_PATIENCE_SECONDS)
        return self._process.returncode

    def __enter__(self) -> Self:
        """The hand itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End it, gently unless something went wrong."""
        if error is not None:
            self.kill()
        self.close()


class _Body:
    """What a hand does. Each method is an order; what it returns is the answer."""

    def __init__(self, place: str, encoding: str) -> None:
        self._place, self._encoding = place, encoding or None
        self._store: Store | None = None
        self._session: Session | None = None

    def opened(self) -> Store:
        if self._store is None:
            self._store = open_store(self._place, encoding=self._encoding)
        return self._store

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        if self._store is not None:
            self._store.close()
        self._store = self._session = None

    # --- writing ---------------------------------------------------------------------------------

    def write(self, writer: str, seconds: float, seed: int) -> Any:
        """Make sessions and go on with old ones, turn by turn, and open the store again at times.

        The answer has the words that were acknowledged by session, and what went wrong.
        """
        os.nice(_MANNERS)
        rng, until = random.Random(f"{seed}:{writer}"), time.monotonic() + seconds
        written: dict[str, list[str]] = {}
        count = 0
        while time.monotonic() < until:
            if rng.random() < 0.2:
                self.close()
            try:
                store, fresh = self.opened(), not written or rng.random() < 0.4
                id = f"{writer}-{len(written)}" if fresh else rng.choice([*written])
                with store.create(id) if fresh else store.writer(id) as session:
                    for _ in range(rng.randrange(1, 4)):
                        said = self._turn(session, writer, count, rng)
                        written.setdefault(id, []).extend(said)
                        count += len(said)
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer names it
                return {"written": written, "errors": [repr(error)]}
        return {"written": written, "errors": []}

    def _turn(self, session: Session, writer: str, count: int, rng: random.Random) -> list[str]:
        """One turn, at once or event by event; the words that are stored when this returns."""
        words = [word_of(writer, count + index) for index in range(2)]
        turn = f"t{count}"
        events = [
            {"type": "turn/start", "data": {}, "turn": turn},
            {"type": "user/message", "data": _said(words[0]), "turn": turn},
            {"type": "assistant/message", "data": _said(words[1]), "turn": turn},
            {"type": "turn/end", "data": {"reason": "completed"}, "turn": turn},
        ]
        if rng.random() < 0.5:
            session.append_many(events)
        else:
            for event in events:
                session.append_many([event])
        return words

    def begin(self, session: str, word: str, *, fresh: bool) -> Any:
        """Commit the beginning of a turn and hold on to the session."""
        store = self.opened()
        self._session = store.create(session) if fresh else store.writer(session)
        events = [
            {"type": "turn/start", "data": {}, "turn": "broken"},
            {"type": "user/message", "data": _said(word), "turn": "broken"},
        ]
        self._session.append_many(events)
        return {"seq": self._session.position.seq}

    # --- looking ---------------------------------------------------------------------------------

    def search(self, writers: list[str], seconds: float, seed: int) -> Any:
        """List and search without a pause; what a word finds has to be what its writer wrote.

        The answer has milliseconds of each listing and each search, how many hits there were, and
        what went wrong.
        """
        os.nice(_MANNERS)
        rng, until = random.Random(f"{seed}:search"), time.monotonic() + seconds
        answer: dict[str, Any] = {"listings": [], "searches": [], "hits": 0, "errors": []}
        newest = 1
        while time.monotonic() < until or len(answer["searches"]) < _SEARCHES_MIN:
            if rng.random() < 0.05:
                self.close()
            writer = rng.choice(writers)
            number = rng.randrange(newest)
            try:
                started = time.monotonic()
                page = self.opened().sessions(20)
                listed = time.monotonic()
                found = self.opened().search(f'"{word_of(writer, number)}"')
                searched = time.monotonic()
            except Exception as error:  # noqa: BLE001 - whatever it is, the answer names it
                answer["errors"].append(repr(error))
                break
            if not page.sessions and not answer["listings"]:
                # Nobody wrote anything yet.
                continue
            answer["listings"].append(1000 * (listed - started))
            answer["searches"].append(1000 * (searched - listed))
            answer["hits"] += len(found.hits)
            if found.hits:
                # Where there is one there may be later ones.
                newest = max(newest, 2 * number + 2)
            answer["errors"] += _wrong(page.sessions, found.hits, writer, number)
            if answer["errors"]:
                break
        return answer

    def ask_first(self, word: str) -> Any:
        """Search in a store that was just opened, and tell what had to be read for it."""
        read: list[str] = []
        index = Indexing.index

        def noted(indexing: Indexing, id: str, **options: Any) -> bool:
            read.append(id)
            return index(indexing, id, **options)

        with mock.patch.object(Indexing, "index", noted):
            store = self.opened()
            backend = store._backend  # noqa: SLF001 - what it is asked for is the point
            with (
                mock.patch.object(backend, "scan", wraps=backend.scan) as scan,
                mock.patch.object(backend, "revisions", wraps=backend.revisions) as revisions,
            ):
                found = store.search(f'"{word}"')
        return {
            "read": read,
            "scanned": sorted({call.args[0] for call in scan.call_args_list}),
            "looks": revisions.call_count,
            "hits": [[hit.session, hit.seq] for hit in found.hits],
            "complete": found.coverage.complete,
        }


def _wrong(listed: Any, hits: Any, writer: str, number: int) -> list[str]:
    """What is wrong with a page of a listing, and with what the word of a text found."""
    wrong = []
    ids = [row.id for row in listed]
    if not ids:
        wrong.append("nothing is listed any more")
    if len({*ids}) < len(ids):
        wrong.append(f"listed twice: {ids}")
    strangers = [hit.session for hit in hits if not hit.session.startswith(f"{writer}-")]
    if strangers or len(hits) > 1:
        wrong.append(f"{word_of(writer, number)} is found in {[hit.session for hit in hits]}")
    return wrong


def _said(word: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"what {word} says"}]}


def _orders() -> Iterator[tuple[str, dict[str, Any]]]:
    for line in sys.stdin.buffer:
        order, facts = json.loads(line)
        yield order, facts


def _main() -> None:
    body = _Body(*sys.argv[1:])
    for order, facts in _orders():
        answer = getattr(body, order)(**facts)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    body.close()


if __name__ == "__main__":
    _main()
