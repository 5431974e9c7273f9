"""Killed keepers: processes that die while content expires and sessions are deleted and restored.

A child plays a scene (`perdure.testing.scenes`) on a store on which others read and write
meanwhile, and is killed by SIGKILL at the k-th crash point that it comes to, or in the middle of
its k-th write. Then the store is held against what the script must have led to; the step that was
cut off is taken again, and the scene goes on to its end.

`kill_keepers` forks: see `perdure.testing.crash`.
"""

import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from perdure.errors import PerdureError
from perdure.runtime import SYSTEM, Runtime
from perdure.store.store import Store
from perdure.testing.bystanders import Progress, check_neighbour, neighbour, reader
from perdure.testing.crash import (
    ANY,
    HALF,
    SQLITE_HALF,
    Death,
    Executioner,
    Opener,
    forked,
    load,
)
from perdure.testing.ledger import Finding, Note
from perdure.testing.outcomes import (
    Heard,
    World,
    check_taken,
    check_told,
    check_trash,
    check_whole,
    check_world,
    taken,
    worlds,
)
from perdure.testing.scenes import NEIGHBOUR, Player, Scene, SceneRuntime, scenes
from perdure.testing.vfs import standing_between

__all__ = ["kill_keepers", "leftovers", "places", "without_waiting"]

_SPARED = 10
"""Of the places at which a death leaves what the one before left, one in so many is tried."""

_LEFTOVER = re.compile(
    r"(?:ns/[^/]+/)*"
    r"(?:new/[^/]+|trash/\.purging-[^/]+|\.evidence[^/]*"
    r"|(?:sessions/[^/]+|trash/[^/]+/[^/]+)/(?:\.log[^/]*|blobs/\.[^/]*))"
)
"""What a death may leave, and the next who comes by removes."""


def leftovers(path: str) -> set[str]:
    """What dead writers left below the root of a directory store, relative to it."""
    found = set()
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            inside = os.path.relpath(os.path.join(folder, name), path)
            if _LEFTOVER.fullmatch(inside):
                found.add(inside)
    return found


class _Run(NamedTuple):
    """One death."""

    scene: Scene
    encoding: str
    death: Death
    seed: str
    opener: Opener

    def __str__(self) -> str:
        """What repeats it."""
        return f"scene {self.scene.name} {self.encoding}, {self.death}, seed {self.seed}"


class _Stage:
    """One store, its player, and those who read and write it meanwhile."""

    def __init__(self, run: _Run, folder: str) -> None:
        self.run = run
        self.path = os.path.join(folder, "a", "b", "store")
        self.worlds = worlds(run.scene)
        self.heard = Heard(run.scene)
        self.bystanders: list[tuple[Iterator[Note], str]] = []
        self.counts: Counter[str] = Counter()
        self.visits: dict[str, Any] = {}

    def open(self, runtime: Runtime = SYSTEM) -> Store:
        return self.run.opener(self.path, self.run.encoding, runtime)

    def space(self, store: Store) -> Store:
        return store.namespace(*self.run.scene.namespace)

    def player(self, role: str, note: Callable[[Note], None] = lambda _: None) -> Player:
        runtime = SceneRuntime(f"{self.run.seed} {role}")
        return Player(self.run.scene, self.open, self.path, runtime, note)

    # --- the death -------------------------------------------------------------------------------

    def perform(self) -> Note:
        """Let the player play until it dies or comes to the end, with everybody around."""
        progress = Progress()
        if not self.run.scene.alone:
            with self.open() as store:
                self.space(store).create(NEIGHBOUR).append("note", "moved in")
            self._attend(partial(neighbour, self._neighbourhood, progress), "the neighbour")
            watch = partial(reader, self._neighbourhood, self.worlds, progress, self.run.seed)
            self._attend(watch, "a reader")
        last = Note("died")
        try:
            for last in forked(partial(self._play, progress), f"the player of {self.run}"):
                self.heard.take(last)
                if last.kind == "visits":
                    self.visits = last.facts
        finally:
            progress.stop()
            said = [note for notes, _ in self.bystanders for note in notes]
        for note in said:
            self.counts.update(note.facts if note.kind == "watched" else {})
            if note.kind == "wrote":
                self.counts["events of the neighbour"] += len(note.facts["blobs"])
                with self.open() as store:
                    check_neighbour(self.space(store), note)
        return last

    def _neighbourhood(self) -> tuple[Store, Store]:
        store = self.open()
        return store, self.space(store)

    def _attend(self, body: Callable[[Callable[[Note], None]], None], name: str) -> None:
        notes = forked(body, name)
        next(notes)
        self.bystanders.append((notes, name))

    def _play(self, progress: Progress, note: Callable[[Note], None]) -> None:
        def tell(one: Note) -> None:
            progress.follow(one)
            note(one)

        # What changes the disk is counted only where nobody has to die.
        rehearsal = self.run.death == Death()
        executioner = Executioner(self.run.death, note, observer=_ignore if rehearsal else None)
        player = self.player("player", tell)
        for number in range(len(self.run.scene.steps)):
            if number == self.run.scene.begin:
                executioner.arm()
            told = player.play(number)
            check_told(self.worlds[number], number, told)
        player.close()
        halves = {half: executioner.told[half] for half in (HALF, SQLITE_HALF)}
        facts = {"names": executioner.names, "fresh": executioner.fresh, "halves": halves}
        note(Note("visits", facts=facts))

    # --- afterwards ------------------------------------------------------------------------------

    def check(self) -> World:
        """Demand of what is left that it stands before, in or behind the last step."""
        before, after = self._around()
        with self.open() as opened:
            store = self.space(opened)
            found = check_world(store, before, after, self.heard)
            check_taken(store, found, taken(found, self.heard))
        if any(one.place == "trash" for one in found.kept.values()):
            self._check_trash(found)
        return found

    def _around(self) -> tuple[World, World]:
        doing = max(self.heard.doing + 1, self.heard.done)
        return self.worlds[self.heard.done], self.worlds[doing]

    def _check_trash(self, found: World) -> None:
        """Restore in a copy what is in the trash: it has to be whole."""
        copy = f"{self.path}.copy"
        shutil.copytree(self.path, copy)
        with self.run.opener(copy, self.run.encoding, SYSTEM) as opened:
            check_trash(self.space(opened), found, self.heard)
        shutil.rmtree(copy)

    def go_on(self, found: World) -> None:
        """Take the step that was cut off again, and the rest; it ends as if nobody had died."""
        player = self.player("survivor")
        first, world = self.heard.done, found
        for number in range(first, len(self.run.scene.steps)):
            cut_off = number == first and number == self.heard.doing
            told = player.play(number, again=cut_off)
            if not cut_off:
                check_told(world, number, told)
            world = world.after(number)
            if cut_off:
                check_whole(player.store, world)
                self._check_swept(number)
        check_whole(player.store, world)
        player.close()
        self._sweep(world)

    def _check_swept(self, number: int) -> None:
        """What a step was about to remove is gone when it was taken again."""
        step = self.run.scene.steps[number].do
        for left in leftovers(self.path):
            if step == "empty" and ".purging-" in left:
                raise Finding(f"{left} stays when the trash is emptied again")
            if step == "expire" and "blobs/." in left and "sessions/" in left:
                raise Finding(f"{left} stays when content expires again")
            if step == "compact" and "/.log" in left:
                raise Finding(f"{left} stays when the log is compacted again")

    def _sweep(self, world: World) -> None:
        """What the dead left goes away with the work of others, and is never taken for anything."""
        player = self.player("sweeper")
        store = player.store
        for id, one in world.kept.items():
            if one.place == "stored":
                store.expire(id)
        store.create("swept").append("note", "a new one")
        player.close()
        store = player.store
        store.delete("swept")
        store.empty_trash()
        player.close()
        left = leftovers(self.path)
        if left:
            raise Finding(f"{sorted(left)} is never swept")


def _perform(run: _Run, folder: str) -> _Stage:
    """One death and all that has to hold after it."""
    os.mkdir(folder, 0o700)
    stage = _Stage(run, folder)
    try:
        last = stage.perform()
        if last.kind == "died":
            point = last.facts["point"]
            stage.counts[f"{point} {run.encoding}"] += 1
            stage.counts[f"scene {run.scene.name}"] += 1
        found = stage.check()
        stage.counts["leftovers"] += len(leftovers(stage.path))
        stage.go_on(found)
    except PerdureError as error:
        raise Finding(f"{run}: {error}") from error
    except Finding as finding:
        finding.add_note(f"{run}, in step {stage.heard.doing}, {stage.heard.done} done")
        raise
    shutil.rmtree(folder)
    return stage


def kill_keepers(
    folder: str,
    seed: int,
    share: float,
    *,
    names: Sequence[str] = (),
    opener: str = "perdure.testing.agents:open_folder",
) -> dict[str, int]:
    """Kill players of every scene (or of `names`) at a share of all places, and check each store.

    With a share of 1.0, at every visit of a crash point and in the middle of every write.

    Returns:
        How many died at each point and encoding, and in each scene; how much others saw meanwhile
        ("observations", "events of the neighbour"); how much was left over.

    Raises:
        Finding: with the scene and the death that it happened to.

    """
    open_store: Opener = load(opener)
    rng = random.Random(f"deaths {seed}")
    counts: Counter[str] = Counter()
    number = 0
    with without_waiting():
        for rehearsal in _rehearsals(str(seed), names, open_store):
            visits = _perform(rehearsal, os.path.join(folder, f"{number}")).visits
            found = places(rng, **visits)
            # Of one alone nobody knows whether it comes before the end: threads come as they will.
            many = min(max(3, round(len(found) * share)), len(found))
            for death in sorted(rng.sample(found, many)):
                number += 1
                run = rehearsal._replace(death=death, seed=f"{seed}:{number}")
                counts += _perform(run, os.path.join(folder, f"{number}")).counts
            number += 1
    return dict(counts)


def places(
    rng: random.Random, names: Sequence[str], fresh: Sequence[int], halves: Mapping[str, int]
) -> list[Death]:
    """Where to die: wherever the disk is another one, and at some of the other points."""
    # Within a commit of SQLite's the places are many, and are tried one by one elsewhere.
    fresh = [visit for visit in fresh if not names[visit - 1].startswith("vfs.")]
    others = [visit for visit in range(1, len(names) + 1) if visit not in {*fresh}]
    kept = rng.sample(others, len(others) // _SPARED)
    for name in {*names} - {names[visit - 1] for visit in (*fresh, *kept)}:
        kept.append(names.index(name) + 1)
    cut = [Death(HALF, write + 1) for write in range(halves[HALF])]
    pages = range(1, halves[SQLITE_HALF] + 1)
    cut += [Death(SQLITE_HALF, page) for page in rng.sample(pages, len(pages) // _SPARED)]
    return [*cut, *(Death(ANY, visit) for visit in (*fresh, *kept))]


def _ignore(kind: str, **facts: Any) -> None:
    """Nobody asks what changed."""


def _rehearsals(seed: str, names: Sequence[str], opener: Opener) -> Iterator[_Run]:
    """Every scene in every encoding, played to its end."""
    for scene in scenes(seed):
        if not names or scene.name in names:
            for encoding in scene.encodings:
                yield _Run(scene, encoding, Death(), seed, opener)


@contextmanager
def without_waiting() -> Iterator[None]:
    """No sync reaches the disk: a kill keeps the page cache, so that they would cost time only.

    Their crash points stay.
    """
    kept = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
    for name in ("fsync", "fdatasync"):
        setattr(os, name, lambda _: None)
    try:
        with standing_between(to_disk=False):
            yield
    finally:
        for name, call in kept.items():
            setattr(os, name, call)
