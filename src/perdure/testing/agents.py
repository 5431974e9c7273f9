"""Scripted agents: seeded workloads that reach every way of writing and report what they are told.

An agent creates sessions, appends single events and batches with packed runs, buffers and flushes,
ends turns, repeats keys, closes writers in the middle of a turn, opens them again, and loses races
for an id. Each step is reported before it is taken and once more when it was acknowledged.
"""

import random
from collections.abc import Callable
from typing import Any

from perdure.errors import SessionExists
from perdure.model.event import Event, draft
from perdure.runtime import Runtime
from perdure.store.session import Session
from perdure.store.store import Store, open_store
from perdure.testing.ledger import Finding, Note

__all__ = ["Agent", "Conversation", "ScriptedRuntime", "open_folder"]

_WORDS = [
    "the",
    "log",
    "is",
    "what",
    "happened",
    "and",
    "a",
    "view",
    "is",
    "what",
    "we",
    "make",
    "of",
    "it",
    "today",
    "日本",
    "naïve",
    "🜚",
    "\\",
    '"',
    "\n",
]
_TURN_MAX = 30
_EPOCH_MS = 4_102_444_800_000
"""Far in the future, so that half-built sessions of earlier writers are old enough to sweep."""


class ScriptedRuntime(Runtime):
    """A clock that ticks once at each look, and ids from a seed."""

    def __init__(self, seed: str) -> None:
        """Start at 2100-01-01 plus an offset from the seed."""
        self._rng = random.Random(seed)
        self._now = _EPOCH_MS + self._rng.randrange(10**9)

    def now_ms(self) -> int:
        """One millisecond later than at the last look."""
        self._now += 1
        return self._now

    def token(self, size: int = 8) -> str:
        """The next hex digits of the seed."""
        return self._rng.randbytes(size).hex()


def open_folder(path: str, encoding: str, runtime: Runtime) -> Store:
    """A directory store: the opener that the harness uses where none is named."""
    return open_store(path, encoding=encoding, runtime=runtime, index=False)


class Conversation:
    """The grammar of one session: what may come next, told by what is open."""

    def __init__(self, rng: random.Random, name: str) -> None:
        """Nothing is open."""
        self._rng = rng
        self._name = name
        self._count = 0
        self._turn: str | None = None
        self._step = 0
        self._in_step = False
        self._waiting: list[str] = []
        self._asked: list[str] = []
        self._jobs: list[str] = []

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"{kind}-{self._name}-{self._count}"

    def text(self, most: int = 40) -> str:
        """Words, now and then many of them."""
        size = self._rng.randrange(most) if self._rng.random() < 0.97 else 3000
        return " ".join(self._rng.choices(_WORDS, k=size))

    def make(self, kind: str, data: Any, *, key: str | None = None) -> dict[str, Any]:
        """An event as `Session.append_many` takes it."""
        time = 1_700_000_000_000 + self._count * 10 + self._rng.randrange(-50, 50)
        agent = "main" if self._turn else None
        return {
            "type": kind, "data": data, "agent": agent, "turn": self._turn, "key": key,
            "time": time, "ignorable": key is None and kind == "note/aside",
        }  # fmt: skip

    def deltas(self) -> list[dict[str, Any]]:
        """A streamed answer: neighbours that pack into runs, with something else among them."""
        many = self._rng.randrange(2, 40)
        made = [self.make("assistant/delta", {"text": self.text(4)}) for _ in range(many)]
        if self._rng.random() < 0.3:
            made.insert(self._rng.randrange(many), self.make("note/aside", self.text()))
        return made

    def next(self) -> dict[str, Any]:
        """The next event of a plausible life."""
        if self._turn is None:
            return self._between_turns()
        if not self._in_step:
            if self._step and self._rng.random() < 0.4:
                made = self.make("turn/end", {"reason": "completed"})
                self._turn = None
                return made
            self._step, self._in_step = self._step + 1, True
            return self.make("step/start", {"step": self._step})
        return self._within_step()

    def _between_turns(self) -> dict[str, Any]:
        chance = self._rng.random()
        if chance < 0.2:
            job = self._fresh("job")
            self._jobs.append(job)
            return self.make("job/start", {"id": job, "kind": "build"})
        if chance < 0.3 and self._jobs:
            return self.make("job/end", {"id": self._jobs.pop(0), "status": "completed"})
        self._turn, self._step = self._fresh("turn"), 0
        return self.make("turn/start", {})

    def _within_step(self) -> dict[str, Any]:
        chance = self._rng.random()
        if self._waiting and chance < 0.6:
            call = self._waiting.pop(0)
            return self.make("tool/result", {"id": call, "content": [{"type": "text", "text": ""}]})
        if self._asked:
            call = self._asked.pop(0)
            self._waiting.append(call)
            return self.make("tool/call", {"id": call, "name": "bash", "arguments": self.text()})
        if self._waiting:
            return self.make("note/aside", self.text())
        if chance < 0.5:
            self._asked = [self._fresh("call") for _ in range(self._rng.randrange(3))]
            content: list[dict[str, Any]] = [{"type": "text", "text": self.text()}]
            content += [{"type": "tool-call", "id": c, "name": "bash"} for c in self._asked]
            return self.make("assistant/message", {"content": content})
        self._in_step = False
        return self.make("step/end", {"step": self._step})


class Agent:
    """One process's worth of work on a store, decided by its randomness alone."""

    def __init__(
        self, store: Store, rng: random.Random, note: Callable[[Note], None], *, name: str
    ) -> None:
        """Work on `store`; `name` tells this agent's sessions and keys from those of others."""
        self._store = store
        self._rng = rng
        self._note = note
        self._name = name
        self._made = 0
        self._writers: dict[str, tuple[Session, Conversation]] = {}
        self._keyed: list[tuple[str, dict[str, Any]]] = []

    def run(self, steps: int) -> None:
        """Take `steps` steps, then close everything."""
        for entry in self._store.list():
            if entry.header is None:
                raise Finding(f"session {entry.name} has no readable header: {entry.problem}")
            if len(self._writers) < 2 or self._rng.random() < 0.3:
                self._open(entry.id)
        for _ in range(steps):
            if not self._writers or (self._rng.random() < 0.05 and len(self._writers) < 4):
                self._create()
            self._rng.choice(
                [self._append, self._append, self._stream, self._burst, self._key, self._repeat]
                + ([self._turn] if self._rng.random() < 0.4 else [])
                + ([self._reopen, self._collide] if self._rng.random() < 0.4 else [])
            )(self._rng.choice([*self._writers]))
        for name in [*self._writers]:
            self._close(name)

    def _submit(self, name: str, events: list[dict[str, Any]]) -> None:
        made = tuple(draft(**event).at(-1) for event in events)
        self._note(Note("submitted", name, made))

    def _acknowledged(self, name: str, events: list[Event]) -> None:
        self._note(Note("acknowledged", name, tuple(events)))

    def _conversation(self) -> Conversation:
        self._made += 1
        return Conversation(self._rng, f"{self._name}-{self._made}")

    def _create(self) -> None:
        conversation = self._conversation()
        name = f"s/{self._name} {self._made}"
        session = self._store.create(name)
        self._writers[name] = (session, conversation)
        self._note(Note("created", name))
        self._append(name)

    def _open(self, name: str) -> None:
        self._note(Note("opening", name))
        session = self._store.writer(name)
        self._note(Note("opened", name, facts={"seq": session.position.seq}))
        self._writers[name] = (session, self._conversation())

    def _close(self, name: str) -> None:
        self._writers.pop(name)[0].close()
        self._note(Note("closed", name))

    def _reopen(self, name: str) -> None:
        self._close(name)
        self._open(name)

    def _append(self, name: str) -> None:
        session, conversation = self._writers[name]
        event = conversation.next()
        self._submit(name, [event])
        self._acknowledged(name, [session.append(**event)])

    def _turn(self, name: str) -> None:
        """Go on to the end of the turn, and look what it has come to."""
        session, conversation = self._writers[name]
        for _ in range(_TURN_MAX):
            event = conversation.next()
            self._submit(name, [event])
            self._acknowledged(name, [session.append(**event)])
            if event["type"] == "turn/end":
                break
        session.fold()

    def _stream(self, name: str) -> None:
        session, conversation = self._writers[name]
        events = conversation.deltas()
        self._submit(name, events)
        self._acknowledged(name, session.append_many(events))

    def _burst(self, name: str) -> None:
        session, conversation = self._writers[name]
        buffered = []
        for event in conversation.deltas():
            self._submit(name, [event])
            buffered.append(session.buffer(**event))
        if self._rng.random() < 0.8:
            session.flush()
            self._acknowledged(name, buffered)

    def _key(self, name: str) -> None:
        session, conversation = self._writers[name]
        fact = {"value": conversation.text()}
        event = conversation.make("fact/known", fact, key=f"{self._name}-{len(self._keyed)}")
        self._keyed.append((name, event))
        self._submit(name, [event])
        self._acknowledged(name, [session.append(**event)])

    def _repeat(self, name: str) -> None:
        known = [event for owner, event in self._keyed if owner == name]
        if known:
            event = self._rng.choice(known)
            self._submit(name, [event])
            self._acknowledged(name, [self._writers[name][0].append(**event)])

    def _collide(self, _: str) -> None:
        """Two writers for one new id: the second one's first commit is refused and leaves nothing.

        Its event is never reported as submitted, so nobody may find it.
        """
        conversation = self._conversation()
        name = f"s/{self._name} {self._made} wanted twice"
        first, second = self._store.create(name), self._store.create(name)
        self._note(Note("created", name))
        event = conversation.next()
        self._submit(name, [event])
        self._acknowledged(name, [first.append(**event)])
        try:
            second.append("note/lost", "the id was taken")
        except SessionExists:
            pass
        else:
            raise Finding(f"two writers created {name}")
        self._writers[name] = (first, conversation)
        self._close(name)
