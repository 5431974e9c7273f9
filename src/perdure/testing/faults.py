"""A failing operating system: every call that the durable layer makes, every way it can be refused.

A script is played once undisturbed, and every system call of `perdure.durable` is counted. Then it
is played again and again, and each time one call fails: once, or from then on until the fault is
lifted. What must hold afterwards is in `perdure.testing.accounts`: every acknowledged event
is stored once and in order, nothing that was refused is stored, what was only buffered is stored or
named, only errors of the tree came out, and the store goes on.
"""

import errno
import fcntl
import gc
import importlib
import os
import pkgutil
import random
import re
import shutil
import sys
import types
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import perdure.durable
from perdure.backends.directory import backend as directory
from perdure.durable import locks
from perdure.testing.accounts import Player
from perdure.testing.agents import ScriptedRuntime, open_folder
from perdure.testing.crash import ENCODINGS, Opener
from perdure.testing.ledger import Finding
from perdure.testing.scripts import STEPS, Step

__all__ = [
    "CALLS",
    "CHAPTERS",
    "CODES",
    "KINDS",
    "Fault",
    "FaultyRuntime",
    "FaultySystem",
    "System",
    "fail_calls",
    "play",
]

CODES = ("ENOSPC", "EIO", "EROFS", "EACCES", "EMFILE", "EDQUOT")
SHORT = "short"
"""Not an error: the call does half of its work and says so."""

HALF = "half a pwrite"

_CHANGING = (
    "mkdir", "pwrite", "copy_file_range", "rename", "unlink", "rmdir", "ftruncate", "fsync",
    "fdatasync",
)  # fmt: skip
_ASKING = ("open", "pread", "fstat", "stat", "listdir", "flock", "fcntl")
CALLS = frozenset({*_CHANGING, *_ASKING})
"""What perdure.durable asks of the system, but for closing."""

_WIDE = ("any change", "any call")
KINDS = (*sorted(CALLS), HALF, *_WIDE)
"""What can fail: a call; the second half of a write; all changes; everything."""

_SYNCS = frozenset({"fsync", "fdatasync"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


Site = tuple[tuple[str, int], ...]
"""Modules and lines through which a call came about."""


class Fault(NamedTuple):
    """What fails, when and how.

    Attributes:
        kind: one of `KINDS`.
        visit: the how-manieth call of that kind, from 1.
        code: name of the errno, or `short`.
        lasting: from then on until it is lifted, instead of once.

    """

    kind: str
    visit: int
    code: str
    lasting: bool


class FaultySystem:
    """Stands between `perdure.durable` and the operating system; a context manager.

    Attributes:
        seen: how many calls of each kind there were.
        sites: if asked for, where in the library they were made: the visits at each site.
        fired: how many of them failed.
        lifted: nothing fails any more.

    """

    kinds: ClassVar[Sequence[str]] = KINDS
    halves: ClassVar[Sequence[str]] = (HALF,)
    """Of the kinds, those whose call may do half of its work."""

    def __init__(self, fault: Fault | None = None, *, trace: bool = False) -> None:
        """Let `fault` happen; without one, only count."""
        self.fault = fault
        self.seen: Counter[str] = Counter()
        self.sites: dict[str, dict[Site, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._trace = trace
        self.fired = 0
        self.lifted = False
        self._marked = 0
        self._saved: list[tuple[types.ModuleType, str, Any]] = []

    def failing(self) -> bool:
        """Whether a call failed since the last `mark`, or the next one may."""
        lasts = self.fault is not None and self.fault.lasting and self.fired and not self.lifted
        return bool(lasts) or self.fired > self._marked

    def mark(self) -> None:
        """A new step begins."""
        self._marked = self.fired

    def lift(self) -> None:
        """From now on nothing fails."""
        self.lifted = True

    def __enter__(self) -> Self:
        """Put proxies in place of the modules `os` and `fcntl` in the durable layer."""
        stands = {os: _Proxy(os, self), fcntl: _Proxy(fcntl, self)}
        for found in pkgutil.iter_modules(perdure.durable.__path__, "perdure.durable."):
            module = importlib.import_module(found.name)
            for name, value in [*vars(module).items()]:
                if isinstance(value, types.ModuleType) and value in stands:
                    self._replace(module, name, stands[value])
        return self

    def _replace(self, module: types.ModuleType, name: str, value: Any) -> None:
        self._saved.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    def __exit__(self, *exc: object) -> None:
        """Give the modules back."""
        while self._saved:
            module, name, value = self._saved.pop()
            setattr(module, name, value)

    def call(self, name: str, real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Make the call, or fail as ordered."""
        if not self.lifted and (fault := self._falls_on(name, given)) is not None:
            self.fired += 1
            if fault.code == SHORT:
                descriptor, data, offset = given
                return real(descriptor, data[: (len(data) + 1) // 2], offset)
            number = getattr(errno, fault.code)
            raise OSError(number, os.strerror(number))
        if name in _SYNCS:
            return None  # this process does not die, so nobody can tell
        return real(*given, **named)

    def _falls_on(self, name: str, given: tuple[Any, ...]) -> Fault | None:
        """Count a call; what is to happen to it, or None."""
        kinds = [name, "any call"]
        if name in _CHANGING or (name == "open" and given[1] & _WRITING):
            kinds.append("any change")
        if name == "pwrite":
            kinds.append(HALF)
        return self.falls_on(kinds)

    def falls_on(self, kinds: Sequence[str]) -> Fault | None:
        """Count a call that is of these kinds; what is to happen to it, or None."""
        for kind in kinds:
            self.seen[kind] += 1
        if self._trace:
            site = _site()
            for kind in kinds:
                self.sites[kind][site].append(self.seen[kind])
        fault = self.fault
        if fault is None or fault.kind not in kinds:
            return None
        late = self.seen[fault.kind] - fault.visit
        if fault.kind == HALF:
            # The first half is written; the error comes with the next write, that of the rest.
            if late == 0 and fault.code != SHORT:
                return fault._replace(code=SHORT)
            late -= fault.code != SHORT
        return fault if late == 0 or (fault.lasting and late > 0) else None


def _site() -> "Site":
    """The places in the library that led to a call, without those of the test kit."""
    places = []
    frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("perdure.") and not module.startswith("perdure.testing."):
            places.append((module, frame.f_lineno))
        frame = frame.f_back
    return tuple(places)


class _Proxy:
    """A module whose calls go through a `FaultySystem`."""

    def __init__(self, module: types.ModuleType, system: FaultySystem) -> None:
        self._module = module
        self._system = system

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in CALLS:
            real, system = value, self._system

            def value(*given: Any, **named: Any) -> Any:
                return system.call(name, real, *given, **named)

        setattr(self, name, value)
        return value


class FaultyRuntime(ScriptedRuntime):
    """A scripted clock on which nothing falls due by itself; it may jump back by an hour."""

    def __init__(self, seed: str, *, jumps: bool = False) -> None:
        """Jump at random looks if asked to; the monotonic clock stands still."""
        super().__init__(seed)
        self._jumps = random.Random(f"{seed}:jumps") if jumps else None

    def now_ms(self) -> int:
        """The time, which may be earlier than at the last look."""
        if self._jumps is not None and self._jumps.random() < 0.1:
            self._now -= 3_600_000
        return super().now_ms()

    def monotonic(self) -> float:
        """Always the same."""
        return 0.0

    def sleep(self, seconds: float) -> None:
        """Not at all."""


# --- playing -------------------------------------------------------------------------------------

CHAPTERS: dict[str, tuple[str, ...]] = {
    "writing": (
        "create", "append", "key", "buffer", "repeat", "stream", "buffer", "survey", "append",
        "buffer", "fall_due",
    ),
    "opening": (
        "create", "open_turn", "inspect", "reopen", "buffer", "load", "prepare", "append", "close",
        "append_by_store", "read",
    ),
    "beginning": (
        "create_buffered", "collide", "leave_building", "append_by_store", "survey", "create",
    ),
    "recovery": (
        "create", "stream", "open_turn", "tear", "append", "verify", "forget", "buffer", "flush",
    ),
    "size": ("create", "grow", "read", "buffer", "grow", "reopen", "inspect", "buffer"),
    "content": (
        "create", "put", "append", "look_up", "put_first", "expire", "compact", "look_up", "reopen",
        "buffer",
    ),
    "forks": ("create", "put", "append", "fork", "read", "append", "put", "fork", "look_up"),
    "trash": (
        "create", "put", "create", "delete", "survey", "restore", "read", "delete", "empty_trash",
        "create",
    ),
}  # fmt: skip
"""What each script is about; some steps at random follow."""


def script_of(seed: str, *, without: Collection[str] = ()) -> list[Step]:
    """The steps of a script; its seed ends in the name of its chapter."""
    more = random.Random(seed).choices([*STEPS], k=3)
    names = (*CHAPTERS[seed.rpartition(":")[2]], *more)
    return [STEPS[name] for name in names if name not in without]


@contextmanager
def _steady(*, remember: bool) -> Iterator[None]:
    """Take out what depends on the real clock, so that a script is the same each time."""
    tick, patience = directory._TICK_MS, locks._EXCLUSIVE_SECONDS  # noqa: SLF001
    # What was read is always taken for lasting, or never.
    directory._TICK_MS = -1 if remember else 10**15  # noqa: SLF001
    # Nobody else holds a log: whoever finds it locked need not wait for seconds.
    locks._EXCLUSIVE_SECONDS = 0.0  # noqa: SLF001
    try:
        yield
    finally:
        directory._TICK_MS, locks._EXCLUSIVE_SECONDS = tick, patience  # noqa: SLF001


class System(Protocol):
    """What fails while a script is played; a context manager."""

    def __enter__(self) -> Any:
        """From here on it may fail."""

    def __exit__(self, *exc: object) -> None:
        """It fails no more."""

    def failing(self) -> bool:
        """Whether a refusal is in order just now."""

    def mark(self) -> None:
        """A new step begins."""

    def lift(self) -> None:
        """From now on nothing fails."""


def play(
    folder: str,
    encoding: str,
    seed: str,
    system: System,
    *,
    opener: Opener = open_folder,
    without: Collection[str] = (),
    jumps: bool = False,
) -> Counter[str]:
    """Play the script of `seed` on a new store while `system` fails, and judge what is left.

    Returns:
        How often each error was raised, by its code.

    Raises:
        Finding: something is lost, doubled, wrong or foreign.

    """
    path = os.path.join(folder, "store")
    rng = random.Random(f"{seed}:play")
    before = _descriptors()
    runtime = FaultyRuntime(seed, jumps=jumps)
    player = Player(opener(path, encoding, runtime), path, rng)
    last = ""
    try:
        with _steady(remember=encoding == "raw"), system:
            player.failing = system.failing
            for step in script_of(seed, without=without):
                last = step.__name__
                system.mark()
                step(player)
            last = "end"
            system.mark()
            if rng.random() < 0.5:
                system.lift()
            player.end()
            system.lift()
        last = "judge"
        after = FaultyRuntime(f"{seed}:after")
        sound = type(system) if isinstance(system, FaultySystem) else FaultySystem
        with sound(), opener(path, encoding, after) as store:
            player.judge(store)
        _demand_closed(before)
    except Finding as finding:
        finding.add_note(f"in step {last} of script {seed!r}, {encoding}")
        with suppress(BaseException):
            player.store.close()
        raise
    shutil.rmtree(path, ignore_errors=True)
    return player.errors


def _descriptors() -> set[str]:
    return {*os.listdir("/proc/self/fd")} if os.path.isdir("/proc/self/fd") else set()


def _demand_closed(before: set[str]) -> None:
    """No descriptor is left open that was not open before."""
    if len(_descriptors()) > len(before):
        gc.collect()
    if (left := len(_descriptors()) - len(before)) > 0:
        raise Finding(f"{left} descriptors were left open")


# --- enumerating ---------------------------------------------------------------------------------


class _Visit(NamedTuple):
    """One call in one script."""

    encoding: str
    script: str
    number: int


_Sites = dict[Site, list[_Visit]]


class _Plan:
    """Which call fails next: first each kind, code and duration once, then every site in turn."""

    def __init__(
        self, folder: str, seed: int, stand: type[FaultySystem], playing: Callable[..., Any]
    ) -> None:
        self._rng = random.Random(seed)
        self._stand = stand
        self.sites: dict[str, _Sites] = {kind: defaultdict(list) for kind in stand.kinds}
        for encoding in ENCODINGS:
            for chapter in CHAPTERS:
                script = f"{seed}:{chapter}"
                traced = stand(trace=True)
                playing(folder, encoding, script, traced)
                for kind, known in self.sites.items():
                    for site, numbers in traced.sites[kind].items():
                        known[site] += [_Visit(encoding, script, n) for n in numbers]

    def __iter__(self) -> Iterator[tuple[Site, _Visit, Fault]]:
        for kind, code, lasting in self._cells():
            yield self._at(kind, self._rng.choice([*self.sites[kind]]), code, lasting=lasting)
        lasting = False
        while True:
            lasting = not lasting
            kinds = self._stand.kinds
            sites = [(kind, site) for kind in kinds for site in self._some(kind, lasting=lasting)]
            self._rng.shuffle(sites)
            for kind, site in sites:
                yield self._at(kind, site, self._rng.choice(CODES), lasting=lasting)

    def _some(self, kind: str, *, lasting: bool) -> list[Site]:
        """The sites of a kind; of those that are others' as well only a few."""
        sites = [*self.sites[kind]]
        if kind not in _WIDE:
            return sites
        # What fails once is the same whichever kind it is counted as.
        return self._rng.sample(sites, len(sites) // 8) if lasting else []

    def _at(self, kind: str, site: Site, code: str, *, lasting: bool) -> tuple[Site, _Visit, Fault]:
        visit = self._rng.choice(self.sites[kind][site])
        return site, visit, Fault(kind, visit.number, code, lasting)

    def _cells(self) -> list[tuple[str, str, bool]]:
        cells = [
            (kind, code, lasting)
            for kind, sites in self.sites.items()
            for code in (*CODES, *([SHORT] if kind in self._stand.halves else []))
            for lasting in (False, True)
            if sites and (lasting or kind not in _WIDE)
        ]
        self._rng.shuffle(cells)
        return cells


def fail_calls(
    folder: str,
    seed: int,
    runs: int,
    *,
    findings: int = 20,
    stand: type[FaultySystem] = FaultySystem,
    opener: Opener = open_folder,
    without: Collection[str] = (),
) -> dict[str, int]:
    """Let the system fail in `runs` ways and demand each time that nothing goes wrong.

    `stand` is what fails; stores are opened by `opener`, and steps in `without` are left out.

    Returns:
        How many runs there were of each "kind/code/once" and "kind/code/lasting", how many sites
        each kind has ("kind/sites"), and how many of them failed at least once ("kind/tried").

    Raises:
        Finding: with what was found, at most so many `findings`; see `play`.

    """
    playing = partial(play, opener=opener, without=without)
    plan = _Plan(folder, seed, stand, playing)
    counts: Counter[str] = Counter()
    tried: dict[str, set[Site]] = defaultdict(set)
    found: dict[str, str] = {}
    for number, (site, visit, fault) in zip(range(runs), plan, strict=False):
        where = os.path.join(folder, str(number))
        os.mkdir(where, 0o700)
        system = stand(fault)
        try:
            playing(where, visit.encoding, visit.script, system)
            if not system.fired:
                raise Finding(f"nothing failed: {visit}")
        except Finding as finding:
            # One of each sort is enough to read.
            notes = " ".join(getattr(finding, "__notes__", ()))
            found.setdefault(re.sub(r"\d+", "#", str(finding)), f"{finding} {notes}, {fault}")
            if len(found) >= findings:
                break
        shutil.rmtree(where, ignore_errors=True)
        counts[f"{fault.kind}/{fault.code}/{'lasting' if fault.lasting else 'once'}"] += 1
        tried[fault.kind].add(site)
    if found:
        raise Finding("\n".join(found.values()))
    for kind, sites in plan.sites.items():
        counts[f"{kind}/sites"] = len(sites)
        counts[f"{kind}/tried"] = len(tried[kind])
    return dict(counts)
