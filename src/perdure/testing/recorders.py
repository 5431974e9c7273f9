"""Killed recorders: real processes that die in the middle of effects and of turns.

What an action does to the world outside is a line in a file, which a kill does not take back. So it
can be counted afterwards what really happened, and compared with what the log claims.
`kill_effects` and `kill_turns` fork: call them with `perdure.testing.crash.in_own_process`.
"""

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from perdure.durable import crash
from perdure.errors import EffectFailed, EffectUnknown, SessionExists
from perdure.runtime import SYSTEM
from perdure.store import Session, Store, open_store
from perdure.testing.crash import ANY, Death, Executioner, forked, load
from perdure.testing.ledger import Finding, Note

__all__ = ["KINDS", "effects", "kill_effects", "kill_turns", "open_place"]

KINDS = ("raw", "zst", "sqlite")
"""Kinds of stores whose writers are killed."""

KEYS = ("pay", "fail", "mail")
"""Effects in the order in which a child tries them; "fail" raises when it has happened."""

_CHAIN = 4
"""So many children in a row work on one store, each may be killed."""

Told = Callable[[Note], None]
Effects = Callable[[Session, str, Told], None]


def open_place(kind: str, folder: str) -> Store:
    """The store of this kind in a folder."""
    if kind == "sqlite":
        return open_store(f"sqlite:{folder}/store.db", runtime=SYSTEM, index=False)
    return open_store(os.path.join(folder, "store"), encoding=kind, runtime=SYSTEM, index=False)


class _World:
    """What happened outside: lines in a file."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "world")

    def mark(self, what: str) -> int:
        """It happens, between two moments at which the process may die."""
        crash.point("world.before")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{what}\n".encode())
        os.close(descriptor)
        crash.point("world.after")
        return self.marks[what]

    @property
    def marks(self) -> Counter[str]:
        """How often each thing has happened."""
        if not os.path.exists(self._path):
            return Counter()
        with open(self._path, encoding="utf-8") as file:
            return Counter(file.read().split())


def _child(
    kind: str, folder: str, death: Death, work: Callable[[Session, Told], None]
) -> Iterator[Note]:
    """Fork a process that works on the session `s` and dies as ordered; yield what it tells."""

    def body(note: Told) -> None:
        Executioner(death, note).arm()
        with open_place(kind, folder) as store:
            try:
                session = store.create("s")
            except SessionExists:
                session = store.writer("s")
            with session:
                work(session, note)

    return forked(body, f"the recorder in {folder}")


# --- effects --------------------------------------------------------------------------------------


def effects(session: Session, folder: str, note: Told) -> None:
    """Ask for every effect, and tell what came of it."""
    world = _World(folder)
    for key in KEYS:
        action = partial(_fail, world, key) if key == "fail" else partial(world.mark, key)
        try:
            value = session.once(key, action)
        except EffectUnknown:
            note(Note("unknown", key))
        except (EffectFailed, TimeoutError):
            note(Note("refused", key))
        else:
            note(Note("done", key, facts={"value": value}))


def _fail(world: _World, key: str) -> None:
    world.mark(key)
    raise TimeoutError(key)


class _Claims:
    """What was claimed of each effect: once it was, it stays."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[str, Any]] = {}

    def take(self, note: Note) -> None:
        claim = (note.kind, note.facts.get("value"))
        before = self.known.setdefault(note.session, claim)
        if before != claim:
            raise Finding(f"{note.session} was {before} and is {claim}")

    def check(self, marks: Counter[str]) -> None:
        """Compare with what really happened."""
        for key, count in marks.items():
            if count > 1:
                raise Finding(f"{key} happened {count} times")
        for key, (kind, value) in self.known.items():
            if kind != "unknown" and marks[key] != 1:
                raise Finding(f"{key} is {kind}, and did not happen")
            if kind == "done" and value != 1:
                raise Finding(f"{key} has the value {value}")


def kill_effects(
    folder: str,
    seed: int,
    *,
    work: str = "perdure.testing.recorders:effects",
    share: float = 1.0,
) -> dict[str, int]:
    """Kill a process at each moment of some effects, and others that come after it at random ones.

    Demands that nothing happens twice, that nothing is claimed which did not happen, and that a
    claim stays. `share` of the moments are tried. `work` may be given as "module:function".

    Returns:
        How many died, at what, and what was known in the end, with and without a mark outside.

    Raises:
        Finding: with what happened to the effect.

    """
    rng, counts, does = random.Random(seed), Counter[str](), load(work)
    for kind in KINDS:
        for visit in _moments(rng, share):
            place = os.path.join(folder, f"{kind}-{visit}")
            os.makedirs(place, mode=0o700)
            if _kill_chain(kind, place, visit, does, rng=rng, counts=counts):
                counts[f"moments {kind}"] += 1
            else:
                break
            shutil.rmtree(place)
    return dict(counts)


def _moments(rng: random.Random, share: float) -> Iterator[int]:
    """The visits to die at, evenly from the first ones on; whoever comes to the end stops them."""
    step = max(1, round(1 / share))
    return itertools.count(rng.randint(1, step), step)


def _kill_chain(
    kind: str, place: str, visit: int, work: Effects, *, rng: random.Random, counts: Counter[str]
) -> bool:
    """Kill some children on one store, then let one end; False if the first one came to its end."""
    claims, world = _Claims(), _World(place)
    deaths = [Death(ANY, visit), *(Death(ANY, rng.randint(1, 40)) for _ in range(_CHAIN - 2))]
    first = True
    for number, death in enumerate([*deaths, Death()]):
        last = Note("")
        for last in _child(kind, place, death, lambda session, note: work(session, place, note)):
            if last.session in KEYS:
                claims.take(last)
        claims.check(world.marks)
        if last.kind == "died":
            counts[f"died at {last.facts['point']}"] += 1
        elif number == 0:
            first = False
    if claims.known.keys() != {*KEYS}:
        raise Finding(f"the last one asked for {KEYS}, and was told of {claims.known}")
    for key, (said, _) in claims.known.items():
        counts[f"{said}, {world.marks[key]} times"] += 1
    return first


# --- turns ----------------------------------------------------------------------------------------


def _record(session: Session, place: str, note: Told) -> None:
    """Two turns with two steps each; tells of each checkpoint where the log stands."""
    world = _World(place)
    for number in range(2):
        with session.turn(f"t{number}-{session.run}") as turn:
            turn.user("go")
            for count in range(2):
                ids = [f"{session.run}-{number}-{count}-{n}" for n in range(2)]
                with turn.step() as step:
                    step.request({"model": "m"})
                    _reached(session, note, "request/header")
                    world.mark(f"asked-{turn.id}-{step.number}")
                    step.delta("Let me ")
                    step.message([{"type": "tool-call", "id": id, "name": "t"} for id in ids])
                    for id in ids:
                        step.call(id, "t")
                        _reached(session, note, "tool/call")
                        world.mark(f"ran-{id}")
                        step.result(id, "done")
                _reached(session, note, "step/end")
        _reached(session, note, "turn/end")


def _reached(session: Session, note: Told, kind: str) -> None:
    note(Note("reached", kind, facts={"seq": session.position.seq}))


def kill_turns(folder: str, seed: int, *, share: float = 1.0) -> dict[str, int]:
    """Kill a process at each moment of a recorded session, and a second one on what it left.

    Demands that each checkpoint that was reached is stored, that nothing was asked or run which the
    log does not know, and that readers see each turn closed and each call answered.

    Returns:
        How many died at what, and how many turns were closed by recovery.

    Raises:
        Finding: with what is missing.

    """
    rng, counts = random.Random(seed), Counter[str]()
    for kind in KINDS:
        for visit in _moments(rng, share):
            place = os.path.join(folder, f"{kind}-{visit}")
            os.makedirs(place, mode=0o700)
            if not _kill_recorder(kind, place, Death(ANY, visit), counts):
                break
            _kill_recorder(kind, place, Death(ANY, rng.randint(1, 2 * visit)), counts)
            shutil.rmtree(place)
    return dict(counts)


def _kill_recorder(kind: str, place: str, death: Death, counts: Counter[str]) -> bool:
    """Kill one child and check what it left; False if it came to its end."""
    reached: list[Note] = []
    last = Note("")
    for last in _child(kind, place, death, lambda session, note: _record(session, place, note)):
        if last.kind == "reached":
            reached.append(last)
    if last.kind == "died":
        counts[f"died at {last.facts['point']}"] += 1
    _check_turns(kind, place, reached, counts)
    return last.kind == "died"


def _check_turns(kind: str, place: str, reached: list[Note], counts: Counter[str]) -> None:
    with open_place(kind, place) as store:
        if not any(entry.id == "s" for entry in store.list()):
            if reached:
                raise Finding(f"{reached[-1]} was reached, and the session is not there")
            return
        seen = [*store.inspect("s").events]
    for note in reached:
        seq = note.facts["seq"]
        if seq >= len(seen) or seen[seq].type != note.session:
            raise Finding(f"{note} was reached, and is not at its place in the log")
    said = [(event.type, event.turn, event.data) for event in seen]
    steps = Counter(turn for type_, turn, _ in said if type_ == "request/header")
    calls = {data["id"] for type_, _, data in said if type_ == "tool/call"}
    for what in _World(place).marks:
        doing, _, name = what.partition("-")
        turn, _, number = name.rpartition("-")
        if (doing == "ran" and name not in calls) or (
            doing == "asked" and steps[turn] < int(number)
        ):
            raise Finding(f"{what} was done, and the log does not know of it")
    _check_closed(seen, counts)


def _check_closed(seen: list[Any], counts: Counter[str]) -> None:
    starts = [event.turn for event in seen if event.type == "turn/start"]
    ends = {event.turn: event.data["reason"] for event in seen if event.type == "turn/end"}
    if sorted(starts) != sorted(ends):
        raise Finding(f"turns {starts} began, and {ends} ended")
    counts["turns closed by recovery"] += list(ends.values()).count("interrupted")
    asked = [
        block["id"]
        for event in seen
        if event.type == "assistant/message"
        for block in event.data["content"]
    ]
    answered = [event.data["id"] for event in seen if event.type == "tool/result"]
    if sorted(asked) != sorted(answered):
        raise Finding(f"calls {asked} were asked for, and {answered} were answered")
