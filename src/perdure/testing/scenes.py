"""Scenes: scripted lives of sessions with content, expiry, compaction, the trash and acceptance.

A scene is a list of steps, fixed but for what its seed draws. `Player` takes them one after the
other on a store and reports each before and after it; what a step must lead to is worked out by
`perdure.testing.outcomes`, which shares the script and no code with the store.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.errors import SessionExists, SessionNotFound
from perdure.model.identity import escape_id
from perdure.runtime import Runtime
from perdure.store.session import Session
from perdure.store.store import Store
from perdure.testing.ledger import Finding, Note

__all__ = [
    "NEIGHBOUR",
    "Part",
    "Player",
    "Scene",
    "SceneRuntime",
    "Step",
    "key_of",
    "reference",
    "scenes",
    "time_of",
]

NEIGHBOUR = "the neighbour"
"""A session that other processes write to meanwhile; no step touches it."""

_EPOCH_MS = 4_102_444_800_000
"""Far in the future, so that half-built sessions of earlier writers are old enough to sweep."""

_STEP_MS = 60_000
_TORN = {"log.jsonl": b'{"seq":', "log.jsonl.zst": b"\x28\xb5\x2f\xfd\x04"}
_LONG = "Überlang/" * 40


class Part(NamedTuple):
    """One thing that a writer does.

    Attributes:
        do: put, refer, note, pin or unpin.
        blobs: which of the scene's values it is about, by number.
        kind: type of the event that refers to them.

    """

    do: str
    blobs: tuple[int, ...] = ()
    kind: str = "tool/result"


class Step(NamedTuple):
    """One operation.

    Attributes:
        do: write (a new session, or on), expire, compact, delete, restore, empty, forget, accept,
            reopen (the store); by hand: keep (a copy of the session's folder), put_back (that copy
            over what is there), tear (leave half a record behind the log).
        id: of the session; of `empty`, "" for the whole trash.
        parts: of `write`.
        rule: of `expire`, as `Store.expire` takes it.

    """

    do: str
    id: str = ""
    parts: tuple[Part, ...] = ()
    rule: Mapping[str, Any] = {}


class Scene(NamedTuple):
    """A script.

    Attributes:
        name: which one.
        steps: in their order.
        begin: number of the first step in which the player may die.
        values: content that the steps put.
        namespace: in which it happens.
        encodings: in which it is worth playing.
        alone: nobody else is at work, so that the store itself is new.

    """

    name: str
    steps: tuple[Step, ...]
    begin: int
    values: tuple[bytes, ...]
    namespace: tuple[str, ...] = ()
    encodings: tuple[str, ...] = ("zst", "raw")
    alone: bool = False


def time_of(step: int) -> int:
    """What the clock shows during a step (Unix ms)."""
    return _EPOCH_MS + step * _STEP_MS


def key_of(step: int, part: int) -> str:
    """Key of the event that a part of a step appends: repeating the step repeats it."""
    return f"{step}.{part}"


def reference(digests: Sequence[str], number: str) -> dict[str, Any]:
    """Data of an event that refers to content."""
    files = [{"type": "file", "blob": digest} for digest in digests]
    return {"number": number, "content": files}


# --- the scripts ---------------------------------------------------------------------------------


def _write(id: str, *parts: Part) -> Step:
    return Step("write", id, parts)


def _put(*blobs: int, kind: str = "tool/result") -> tuple[Part, ...]:
    """Put content, then refer to all of it."""
    return (*(Part("put", (each,)) for each in blobs), Part("refer", blobs, kind))


_NOTE = Part("note")


def _rules(rng: random.Random) -> list[dict[str, Any]]:
    """Conditions, each of which some reference satisfies and another does not."""
    rules: list[dict[str, Any]] = [
        {"older_than": 90.0},
        {"older_than": 0.0, "kinds": ["tool/result"]},
        {"keep_last": 1},
        {"older_than": 0.0, "keep_last": 2},
        {"kinds": ["user/message", "x/y"]},
    ]
    return rng.sample(rules, len(rules))


def _beginning(_: random.Random) -> tuple[tuple[Step, ...], int]:
    return (
        _write("new", Part("put", (0,)), Part("put", (1,)), *_put(2), Part("refer", (1,))),
        _write("plain", _NOTE, _NOTE),
        Step("reopen"),
        Step("expire", "new"),
    ), 0


def _content(rng: random.Random) -> tuple[tuple[Step, ...], int]:
    rules = _rules(rng)
    return (
        _write("c", *_put(0, 1), *_put(2, kind="user/message")),
        _write("other", *_put(0, 5)),
        _write("c", *_put(3), Part("pin", (0,)), Part("put", (6,))),
        Step("expire", "c", rule=rules[0]),
        _write("c", *_put(0, 4, kind="x/y"), *_put(1), Part("unpin", (0,)), Part("put", (7,))),
        Step("expire", "c", rule=rules[1]),
        Step("reopen"),
        _write("c", *_put(2), Part("refer", (2, 5), "user/message")),
        Step("expire", "c", rule={"keep_last": 0}),
        Step("expire", "c"),
    ), 2


def _compaction(rng: random.Random) -> tuple[tuple[Step, ...], int]:
    notes = [_NOTE] * rng.randrange(12, 20)
    return (
        _write("c", *notes, *_put(0)),
        Step("compact", "c"),
        _write("c", *_put(1), _NOTE, _NOTE),
        Step("compact", "c"),
        Step("expire", "c", rule={"keep_last": 1}),
        Step("compact", "c"),
        _write("c", _NOTE),
    ), 1


def _trash(rng: random.Random) -> tuple[tuple[Step, ...], int]:
    first, second = rng.choice([("a", "A"), ("con", "CON.txt"), ("..", _LONG), ("a b", "a/b")])
    return (
        _write(first, *_put(0, 1), Part("put", (4,))),
        _write(second, *_put(2), _NOTE),
        Step("delete", first),
        Step("restore", first),
        _write(first, *_put(3)),
        Step("delete", first),
        Step("delete", second),
        Step("empty", first),
        Step("restore", second),
        Step("forget", first),
        _write(first, Part("put", (5,)), *_put(0)),
        Step("delete", first),
        Step("delete", second),
        Step("empty"),
        Step("forget", second),
    ), 2


def _acceptance(_: random.Random) -> tuple[tuple[Step, ...], int]:
    return (
        _write("old", *_put(0), _NOTE),
        Step("keep", "old"),
        _write("old", *_put(1), _NOTE),
        Step("reopen"),
        Step("put_back", "old"),
        Step("accept", "old"),
        _write("old", *_put(2), _NOTE),
        Step("expire", "old", rule={"keep_last": 1}),
        Step("put_back", "old"),
        Step("reopen"),
        Step("accept", "old"),
    ), 4


def _torn(_: random.Random) -> tuple[tuple[Step, ...], int]:
    return (
        _write("t", *_put(0), _NOTE),
        Step("tear", "t"),
        _write("t", *_put(1)),
        Step("tear", "t"),
        Step("expire", "t", rule={"keep_last": 1}),
        Step("tear", "t"),
        Step("accept", "t"),
        Step("tear", "t"),
        Step("delete", "t"),
        Step("restore", "t"),
        Step("compact", "t"),
    ), 2


def scenes(seed: str) -> list[Scene]:
    """All scenes, with what the seed draws."""
    rng = random.Random(f"scenes {seed}")
    values = (
        b"",
        *(rng.randbytes(rng.choice([1, 40, 5000, 70_000])) for _ in range(7)),
    )
    deep = ("team", rng.choice(["a/b", _LONG, "日本"]))

    def scene(
        name: str, script: Callable[[random.Random], tuple[tuple[Step, ...], int]], **more: Any
    ) -> Scene:
        steps, begin = script(rng)
        return Scene(name, steps, begin, values, **more)

    return [
        scene("beginning", _beginning, alone=True),
        scene("content", _content, encodings=("zst",)),
        scene("compaction", _compaction, encodings=("zst",)),
        scene("trash", _trash, encodings=("zst",)),
        scene("namespace", _trash, namespace=deep, encodings=("raw",)),
        scene("acceptance", _acceptance, encodings=("raw",)),
        scene("torn", _torn),
    ]


# --- the player ----------------------------------------------------------------------------------


class SceneRuntime(Runtime):
    """A clock that moves from step to step, and ids from a seed."""

    def __init__(self, seed: str) -> None:
        """Start before the first step."""
        self._rng = random.Random(f"tokens {seed}")
        self.step = 0

    def now_ms(self) -> int:
        """When the step happens."""
        return time_of(self.step)

    def monotonic(self) -> float:
        """Nothing is ever due: what follows in the background is done when a store is closed."""
        return 0.0

    def token(self, size: int = 8) -> str:
        """The next hex digits of the seed."""
        return self._rng.randbytes(size).hex()


class Player:
    """Takes the steps of a scene on the store at `path`.

    A step may be taken again: what happened already is no error then.
    """

    def __init__(
        self,
        scene: Scene,
        open_store: Callable[[Runtime], Store],
        path: str,
        runtime: SceneRuntime,
        note: Callable[[Note], None] = lambda _: None,
    ) -> None:
        """Open nothing yet; `note` hears of every step."""
        self._scene = scene
        self._open_store = open_store
        self._path = path
        self._runtime = runtime
        self._note = note
        self._store: Store | None = None

    @property
    def store(self) -> Store:
        """The namespace in which the scene happens."""
        if self._store is None:
            self._store = self._open_store(self._runtime)
        return self._store.namespace(*self._scene.namespace)

    def close(self) -> None:
        """Close the store."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def play(self, number: int, *, again: bool = False) -> dict[str, Any]:
        """Take one step and report it; what it returned is what it did, as plain values."""
        step = self._scene.steps[number]
        self._runtime.step = number
        self._note(Note("doing", facts={"step": number}))
        facts: dict[str, Any] = {}
        try:
            facts = getattr(self, f"_{step.do}")(number, step)
        except (SessionNotFound, SessionExists):
            if not again:
                raise
            self._note(Note("refused"))
        self._note(Note("done", facts={"step": number}))
        return facts

    # --- with the store --------------------------------------------------------------------------

    def _session(self, id: str) -> Session:
        try:
            return self.store.writer(id)
        except SessionNotFound:
            return self.store.create(id)

    def _write(self, number: int, step: Step) -> dict[str, Any]:
        with self._session(step.id) as session:
            for at, part in enumerate(step.parts):
                self._take(session, number, at, part)
            return {"seq": session.position.seq}

    def _take(self, session: Session, number: int, at: int, part: Part) -> None:
        values = [self._scene.values[each] for each in part.blobs]
        digests = [hashlib.sha256(value).hexdigest() for value in values]
        if part.do == "put":
            for value in values:
                digest = session.put_blob(value)
                self._note(Note("put", session.id, facts={"digest": digest}))
            return
        if part.do in ("pin", "unpin"):
            event = getattr(session, part.do)(*digests)
        else:
            key = key_of(number, at)
            event = session.append(
                part.kind, reference(digests, key), key=key, time=time_of(number)
            )
        self._note(Note("event", session.id, (event,)))
        self._tell(session.id, session.position)

    def _tell(self, id: str, position: Any) -> None:
        self._note(Note("position", id, facts={"seq": position.seq, "hash": position.hash}))

    def _expire(self, _: int, step: Step) -> dict[str, Any]:
        would = self.store.expire(step.id, **step.rule, dry_run=True)
        told = self.store.expire(step.id, **step.rule)
        if would != told:
            raise Finding(f"expire({step.id}) did {told}, and said that it would do {would}")
        return {
            "expired": [blob.digest for blob in told.expired],
            "unreferenced": [blob.digest for blob in told.unreferenced],
            "kept": told.kept,
        }

    def _compact(self, _: int, step: Step) -> dict[str, Any]:
        before = self.store.inspect(step.id).position
        sizes = self.store.compact(step.id)
        after = self.store.inspect(step.id).position
        if sizes.after > sizes.before or (before != after and before is not None):
            raise Finding(f"compact({step.id}): {sizes}, {before} became {after}")
        return {}

    def _delete(self, _: int, step: Step) -> dict[str, Any]:
        return {"id": self.store.delete(step.id).id}

    def _restore(self, _: int, step: Step) -> dict[str, Any]:
        self.store.restore(step.id)
        return {}

    def _empty(self, _: int, step: Step) -> dict[str, Any]:
        return {"ids": [gone.id for gone in self.store.empty_trash(step.id or None)]}

    def _forget(self, _: int, step: Step) -> dict[str, Any]:
        self.store.forget(step.id)
        return {}

    def _accept(self, _: int, step: Step) -> dict[str, Any]:
        position = self.store.accept(step.id)
        self._tell(step.id, position)
        return {"seq": position.seq}

    def _reopen(self, _: int, _step: Step) -> dict[str, Any]:
        self.close()
        return {}

    # --- by hand ---------------------------------------------------------------------------------

    def _place(self, id: str) -> str:
        return os.path.join(self._path, "sessions", escape_id(id))

    def _keep(self, _: int, step: Step) -> dict[str, Any]:
        shutil.copytree(self._place(step.id), f"{self._path}.kept")
        return {}

    def _put_back(self, number: int, step: Step) -> dict[str, Any]:
        place, incoming = self._place(step.id), f"{self._path}.incoming"
        shutil.copytree(f"{self._path}.kept", incoming)
        os.rename(place, f"{self._path}.replaced-{number}")
        os.rename(incoming, place)
        return {}

    def _tear(self, _: int, step: Step) -> dict[str, Any]:
        for name, torn in _TORN.items():
            log = os.path.join(self._place(step.id), name)
            if os.path.exists(log):
                with open(log, "ab") as file:
                    file.write(torn)
        return {}
