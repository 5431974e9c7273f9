"""Killed writers: real processes that die by SIGKILL at every named crash point, and what is left.

A chain of children works on one store. Each is killed, at the n-th visit of a named point or after
its k-th acknowledgement; then the store is read, and a copy of it is written on. The next child
starts on what the last one left, so that recovery itself is killed as well.

`kill_writers` forks, so it has to run in a process with a single thread: start one with
`python -m perdure.testing.crash`, or from a test with `in_own_process`.
"""

import ast
import importlib
import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from perdure.durable import crash
from perdure.runtime import SYSTEM, Runtime
from perdure.store.store import Store
from perdure.testing import agents
from perdure.testing.ledger import Finding, Ledger, Note, NoteReader, send
from perdure.testing.survival import check_readers, check_writers
from perdure.testing.vfs import standing_between

__all__ = [
    "ANY",
    "ENCODINGS",
    "HALF",
    "SQLITE_HALF",
    "Death",
    "Executioner",
    "Opener",
    "crash_points",
    "forked",
    "in_own_process",
    "kill_writers",
    "load",
    "run_child",
]

ENCODINGS = ("zst", "raw")
HALF = "write.half"
SQLITE_HALF = "vfs.half"
"""Half of a page, where `perdure.testing.vfs` stands below SQLite."""

_WHOLE = {HALF: "write.before", SQLITE_HALF: "vfs.write"}
"""The point at which a write begins that can be cut in half."""

ANY = "any"
"""Stands for every crash point: a visit of one counts, whichever it is."""

_AT_FIRST = ("folder.parents", "sqlite.create")
"""Only the first child of a chain makes the folders and the file."""

_STEPS = 40
_CHAIN = 6
_MISSES_MAX = 60

Opener = Callable[[str, str, Runtime], Store]
"""Opens the store at a path, with an encoding, for a runtime."""


class Death(NamedTuple):
    """When a child dies.

    Attributes:
        point: name of a crash point, or `ANY`, or None.
        visit: the how-manieth visit of it, from 1; of a half, the how-manieth write.
        acknowledgements: the parent sends SIGKILL after reading this many, or None.

    """

    point: str | None = None
    visit: int = 1
    acknowledgements: int | None = None


def crash_points(package: str = "perdure.durable") -> list[str]:
    """The names of all crash points in the source of a package or module, from its syntax tree."""
    module = importlib.import_module(package)
    folders = getattr(module, "__path__", None)
    if folders is None:
        paths = [pathlib.Path(str(module.__file__))]
    else:
        paths = [path for folder in folders for path in pathlib.Path(folder).glob("*.py")]
    names: set[str] = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("crash.point"):
                # A name, or one of several: `"a" if torn else "b"`.
                names |= {
                    part.value
                    for part in ast.walk(node.args[0])
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return sorted(names)


# --- the child -----------------------------------------------------------------------------------


class Executioner:
    """Counts visits of crash points and kills its process at the one that was ordered.

    Attributes:
        visits: how often each point was visited.
        names: the points in the order of their visits.
        fresh: which visits, from 1, were the first after something had been changed; known only
            with an observer.

    """

    def __init__(
        self,
        death: Death,
        note: Callable[[Note], None],
        *,
        observer: crash.Observer | None = None,
        sync: bool = True,
    ) -> None:
        """Not armed yet; `note` hears where it strikes."""
        self._death = death
        self._note = note
        self._observer = self._observe if observer is not None else None
        self._tell = observer
        self._sync = sync
        self._changed = False
        self.visits: Counter[str] = Counter()
        self.names: list[str] = []
        self.fresh: list[int] = []

    def arm(self, halves: frozenset[str] = frozenset()) -> None:
        """Count from here on."""
        crash.arm(hook=self, halves=halves, observer=self._observer, without_sync=not self._sync)

    def _observe(self, kind: str, **facts: Any) -> None:
        self._changed = self._changed or kind != "sync"
        if self._tell is not None:
            self._tell(kind, **facts)

    @property
    def told(self) -> dict[str, int]:
        """The visits, with every write as one that could have been half a write."""
        halves = {half: self.visits[whole] for half, whole in _WHOLE.items()}
        return {**self.visits, **halves, ANY: self.visits[ANY]}

    def __call__(self, name: str) -> None:
        """A point was reached."""
        self.visits[name] += 1
        self.visits[ANY] += 1
        self.names.append(name)
        if self._changed:
            self.fresh.append(self.visits[ANY])
            self._changed = False
        point, visit = self._death.point, self._death.visit
        if point is not None and _WHOLE.get(point) == name and self.visits[name] == visit:
            # In time: from here on there is no way back.
            self.visits[point] = visit - 1
            self.arm(halves=frozenset({point}))
        if point in (name, ANY) and self.visits[point] == visit:
            self._note(Note("dying", name))
            os.kill(os.getpid(), signal.SIGKILL)


def forked(body: Callable[[Callable[[Note], None]], None], name: str) -> Iterator[Note]:
    """Fork a child that calls `body` with a function that reports, and yield its notes.

    The last note is `died`, with the point at which its executioner struck, if it did, or if
    the caller killed it (its process id is in the first note, `begun`); or `finished`.


    Raises:
        Finding: `body` raised, or the child died of something else.

    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _child(body, writing)
    os.close(writing)
    status = None
    try:
        yield Note("begun", facts={"pid": pid})
        last, point = Note("died"), ""
        for note in NoteReader(reading):
            if note.kind == "failed":
                raise Finding(f"{name} failed: {note.facts['traceback']}")
            if note.kind == "finished":
                last = note
            elif note.kind == "dying":
                point = note.session
            else:
                yield note
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if last.kind == "died" and not killed:
            raise Finding(f"{name} ended with status {status}")
        yield Note("died", facts={"point": point}) if killed else last
    finally:
        os.close(reading)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _child(body: Callable[[Callable[[Note], None]], None], descriptor: int) -> NoReturn:
    def note(one: Note) -> None:
        send(descriptor, one)

    status = 0
    try:
        body(note)
        note(Note("finished"))
    except BaseException:  # noqa: BLE001 - whatever ends the child, the parent has to hear of it
        note(Note("failed", facts={"traceback": traceback.format_exc()}))
        status = 1
    os._exit(status)


def run_child(
    open_store: Callable[[], Store],
    seed: str,
    death: Death,
    *,
    steps: int = _STEPS,
    trace: bool = False,
    sync: bool = True,
) -> Iterator[Note]:
    """Fork a scripted agent that dies as ordered, and yield its notes as they come.

    The last note is `died`, or `finished` with the visits of each crash point if the agent came to
    its end before. With `trace` the notes hold every operation of the durable layer and of SQLite.

    Raises:
        Finding: the agent failed, or died of something else.

    """

    def body(note: Callable[[Note], None]) -> None:
        def observer(kind: str, **facts: Any) -> None:
            note(Note("operation", kind, facts=facts))

        executioner = Executioner(death, note, observer=observer if trace else None, sync=sync)
        executioner.arm()
        with standing_between(to_disk=False), open_store() as store:
            name = f"{seed}".rpartition(":")[2]
            agents.Agent(store, random.Random(seed), note, name=name).run(steps)
        note(Note("visits", facts=executioner.told))

    pid, visits = 0, {}
    acknowledgements = itertools.count(1)
    for note in forked(body, f"the agent {seed}"):
        if note.kind == "begun":
            pid = note.facts["pid"]
        elif note.kind == "visits":
            visits = note.facts
        elif note.kind == "finished":
            yield Note("finished", facts=visits)
        else:
            yield note
            known = note.kind == "acknowledged" and next(acknowledgements)
            if known and known == death.acknowledgements:
                os.kill(pid, signal.SIGKILL)


# --- the chain -----------------------------------------------------------------------------------


class _Chain:
    """One store and the children that die on it."""

    def __init__(self, folder: str, encoding: str, seed: str, opener: Opener) -> None:
        self.folder = os.path.join(folder, "a", "b", "store")
        self.copy = os.path.join(folder, "copy")
        self.encoding = encoding
        self.seed = seed
        self.opener = opener
        self.ledger = Ledger()
        self.children = 0

    def open(self, path: str | None = None, runtime: Runtime | None = None) -> Store:
        return self.opener(path or self.folder, self.encoding, runtime or SYSTEM)

    def run(self, death: Death) -> Note:
        """Let the next child work until it dies or ends, and check what is left."""
        self.children += 1
        seed = f"{self.seed}:{self.children}"
        last = Note("died")
        runtime = agents.ScriptedRuntime(seed)
        for last in run_child(lambda: self.open(runtime=runtime), seed, death):
            self.ledger.take(last)
        with self.open() as store:
            found = check_readers(store, self.ledger)
        for name in [*self.ledger.sessions]:
            if name not in found:
                del self.ledger.sessions[name]
        for name, stored in found.items():
            one = self.ledger.sessions[name]
            one.found(stored)
            # What a reader has seen does not go away by a later death.
            one.sure = len(stored)
        return last

    def check_copy(self) -> None:
        """Write on a copy, so that the next child still finds what the last one left."""
        if os.path.isdir(self.folder):
            shutil.copytree(self.folder, self.copy)
            self._write_on(self.copy)
            shutil.rmtree(self.copy)

    def check_place(self) -> None:
        """Write on the store itself."""
        if os.path.isdir(self.folder):
            self._write_on(self.folder)

    def _write_on(self, path: str) -> None:
        with self.open(path) as store:
            check_writers(store, check_readers(store, self.ledger))


class _Plan:
    """Whose turn it is: every crash point, again and again, in each encoding."""

    def __init__(self, rng: random.Random, points: Sequence[str]) -> None:
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self._turns = {encoding: [*points] for encoding in ENCODINGS}
        # Of the durable layer also those that prepare others: see `_kill_chain`.
        self._visits = dict.fromkeys((*points, *crash_points()), 8)
        self._misses = 0

    @property
    def kills(self) -> int:
        return sum(self.counts.values()) - self.counts["finished"]

    def complete(self, kills: int) -> bool:
        """Whether so many died, and some at each point in each encoding."""
        return self.kills >= kills and all(
            f"{point} {encoding}" in self.counts
            for encoding, points in self._turns.items()
            for point in points
        )

    def point(self, encoding: str) -> str:
        """The point at which the next child has to die."""
        return self._turns[encoding][0]

    def death(self, point: str) -> Death:
        """Some visit of `point` that a child is likely to make."""
        return Death(point, self.rng.randint(1, self._visits[point]))

    def record(self, death: Death, encoding: str, last: Note) -> None:
        """Take note of how a child ended; a point that was not reached stays next."""
        point = death.point
        if last.kind == "finished":
            self.counts["finished"] += 1
            self._misses += 1
            if point is not None:
                self._visits[point] = max(1, last.facts.get(point, 0))
            if self._misses > _MISSES_MAX:
                raise Finding(f"no agent comes to {self.point(encoding)}")
            return
        self.counts[f"{point or 'moment'} {encoding}"] += 1
        turns = self._turns[encoding]
        if point == turns[0]:
            self._misses = 0
            turns.append(turns.pop(0))


def kill_writers(
    folder: str,
    seed: int,
    kills: int,
    *,
    opener: Opener | str = agents.open_folder,
    sources: Sequence[str] = ("perdure.durable",),
) -> dict[str, int]:
    """Kill at least `kills` writers and demand that nothing acknowledged is ever lost.

    Exact: see `perdure.testing.survival`. All points in `sources` (packages and modules) take turns
    in both encodings, each at least once; every third child or so dies at a random moment instead.

    `opener` may be given as "module:function".

    Returns:
        How many died at each point and encoding, at random moments ("moment"), and how many came
        to their end instead ("finished").

    Raises:
        Finding: with the seed of the child that it happened to.

    """
    open_store: Opener = load(opener) if isinstance(opener, str) else opener
    points = [point for source in sources for point in crash_points(source)]
    plan = _Plan(random.Random(seed), points)
    for number in itertools.count():
        if plan.complete(kills):
            break
        place = os.path.join(folder, str(number))
        os.makedirs(place, mode=0o700)
        encoding = ENCODINGS[number % len(ENCODINGS)]
        chain = _Chain(place, encoding, f"{seed}:{number}", open_store)
        try:
            _kill_chain(chain, plan)
        except Finding as finding:
            finding.add_note(f"chain {chain.seed}, child {chain.children}, {encoding}")
            raise
        shutil.rmtree(place)
    return dict(plan.counts)


def _kill_chain(chain: _Chain, plan: _Plan) -> None:
    """Kill up to six children on one store."""
    for _ in range(plan.rng.randint(1, _CHAIN)):
        point = plan.point(chain.encoding)
        deaths = [plan.death(point)]
        if point in _AT_FIRST and chain.children:
            break
        if point.startswith("cut."):
            # Only a torn tail is cut off: somebody has to leave one.
            deaths.insert(0, plan.death(HALF))
        if point == "remove.before":
            # Only half-built sessions are removed: somebody has to die while he builds one.
            deaths.insert(0, plan.death("move.before"))
        if chain.children % 3 == 2:
            deaths.append(Death(acknowledgements=plan.rng.randint(1, 60)))
        for death in deaths:
            plan.record(death, chain.encoding, chain.run(death))
            if plan.rng.random() < 0.3:
                chain.check_copy()
    chain.check_place()


# --- a process of its own ------------------------------------------------------------------------


def load(name: str) -> Any:
    """The object that `module:attribute` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def in_own_process(function: str, **arguments: Any) -> Any:
    """Call `module:function` in a fresh process with one thread; JSON in, JSON out.

    Raises:
        Finding: the function raised; with what it printed.

    """
    order = json.dumps({"function": function, "arguments": arguments})
    done = subprocess.run(
        [sys.executable, "-m", "perdure.testing.crash"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        input=order,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Finding(done.stderr)
    return json.loads(done.stdout)


def _main() -> None:
    order = json.load(sys.stdin)
    sys.stdout.write(json.dumps(load(order["function"])(**order["arguments"])))


if __name__ == "__main__":
    _main()
