"""Loss of power, replayed: every disk that a run of writes and syncs may leave behind.

A kill leaves the page cache whole; a loss of power does not. Agents work on a real store, some are
killed, and the durable layer reports every write, sync and entry operation; what SQLite does by
itself is reported by `perdure.testing.vfs`. `Disk` follows them and keeps apart what was synced
from what was not. At any place of the history the power may go: what was not synced is then there,
or not, or in part, as a policy and a seed decide. The resulting image is laid out in a folder, and
must hold all that had been acknowledged at that place.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from perdure.durable import crash
from perdure.errors import PerdureError
from perdure.runtime import SYSTEM
from perdure.testing import agents
from perdure.testing.crash import ENCODINGS, Death, Opener, crash_points, load, run_child
from perdure.testing.disk import ENTRY_POLICIES, FILE_POLICIES, Disk, Policy
from perdure.testing.ledger import Finding, Ledger, Note
from perdure.testing.survival import (
    check_evidence,
    check_readers,
    check_writers,
    stored_events,
)
from perdure.testing.vfs import standing_between

__all__ = [
    "History",
    "copied",
    "draw_policies",
    "lay_out",
    "record",
    "replay",
    "replay_histories",
]

_SOON = 60
_STEPS = 25
_DRAWN = 3


# --- histories -----------------------------------------------------------------------------------


class History(NamedTuple):
    """What agents did to one store, acknowledgements and operations in their order.

    Attributes:
        notes: see `perdure.testing.ledger.Note`; "found" is what a reader saw after a death.
        root: inode number of the folder in which the store was made.
        encoding: of the store.
        seed: repeats it.

    """

    notes: tuple[Note, ...]
    root: int
    encoding: str
    seed: str

    def without(self, unwanted: Callable[[Note], bool]) -> "History":
        """The same history as if some of its operations had never been done."""
        return self._replace(notes=tuple(note for note in self.notes if not unwanted(note)))


def record(
    folder: str,
    seed: str,
    *,
    opener: Opener = agents.open_folder,
    deaths: Sequence[Death] | None = None,
    sync: bool = True,
) -> History:
    """Let agents work on a new store below `folder`, one after the other, some of them killed.

    They die as `deaths` says, and one more comes to its end; else there are one to three of them.

    Without `sync` they work with fsync switched off. Forks; see `perdure.testing.crash`.
    """
    rng = random.Random(f"record {seed}")
    encoding = rng.choice(ENCODINGS)
    notes: list[Note] = []
    root = os.stat(folder).st_ino
    ledger = Ledger()
    path = os.path.join(folder, "store")
    for number, death in enumerate(_draw_deaths(rng) if deaths is None else [*deaths, Death()]):
        child = f"{seed}:{number}"
        runtime = agents.ScriptedRuntime(child)
        open_store = partial(opener, path, encoding, runtime)
        for note in run_child(open_store, child, death, steps=_STEPS, trace=True, sync=sync):
            ledger.take(note)
            notes.append(note)
        with copied(path) as copy, opener(copy, encoding, SYSTEM) as store:
            for entry in store.list():
                stored = tuple(stored_events(store, entry.id))
                ledger.take(Note("found", entry.id, stored))
                notes.append(Note("found", entry.id, stored))
    return History(tuple(notes), root, encoding, seed)


@contextmanager
def copied(path: str) -> Iterator[str]:
    """A copy of a folder, for whoever looks into it while its history is recorded.

    Somebody who only reads a database may create what is shared beside it.
    """
    copy = f"{path}.copy"
    if os.path.isdir(path):
        shutil.copytree(path, copy)
    try:
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def _draw_deaths(rng: random.Random) -> list[Death]:
    # Deaths between a rename and its syncs leave the next one most to make up for.
    points = [*crash_points(), "write.half", "move.after", "folder.sync"]
    return [
        Death(rng.choice(points), int(rng.expovariate(1 / rng.choice([3, 30]))) + 1)
        if rng.random() < 0.8
        else Death()
        for _ in range(rng.randint(1, 3))
    ]


def replay(
    history: History,
    folder: str,
    rng: random.Random,
    *,
    places: int,
    policies: Sequence[Policy] | None = None,
    opener: Opener = agents.open_folder,
    counts: Counter[str] | None = None,
) -> None:
    """Cut the power at `places` places of a history, and check what each policy leaves.

    Exact: the store opens, its sessions hold every event that was acknowledged before the place
    and nothing but a prefix of what was submitted, each can be written on, and is whole after that.

    Raises:
        Finding: with the place and the policy that lead to it.

    """
    counts = Counter() if counts is None else counts
    chosen = _places(history, places, rng)
    disk, ledger = Disk(history.root), Ledger()
    for at, note in enumerate(history.notes):
        if at in chosen:
            counts["histories"] += 1
            for policy in policies or draw_policies(rng):
                image = _Image(history, at, policy, rng.getrandbits(32))
                image.check(disk, ledger, folder, opener)
                counts[f"{policy.files} files"] += 1
                counts[f"{policy.entries} entries"] += 1
        if note.kind == "operation":
            disk.take(note.session, note.facts)
        else:
            ledger.take(note)


def _places(history: History, places: int, rng: random.Random) -> set[int]:
    """Operations before which the power goes: half of them anywhere, half soon after a death."""
    operations = [at for at, note in enumerate(history.notes) if note.kind == "operation"]
    deaths = [at for at, note in enumerate(history.notes) if note.kind == "died"]
    soon = [at for at in operations if any(0 < at - death < _SOON for death in deaths)]
    chosen = {*rng.sample(soon, min(places // 2, len(soon)))}
    rest = [at for at in operations if at not in chosen]
    return chosen | {*rng.sample(rest, min(places - len(chosen), len(rest)))}


def draw_policies(rng: random.Random) -> list[Policy]:
    """Some policies, no two of which treat files alike."""
    return [Policy(f, rng.choice(ENTRY_POLICIES)) for f in rng.sample(FILE_POLICIES, _DRAWN)]


class _Image(NamedTuple):
    """One disk after a loss of power."""

    history: History
    at: int
    policy: Policy
    seed: int

    def check(self, disk: Disk, ledger: Ledger, folder: str, opener: Opener) -> None:
        """Lay it out in a folder and look at the store in it."""
        image = disk.image(self.policy, random.Random(self.seed))
        place = os.path.join(folder, "image")
        try:
            lay_out(image, place)
            self._use(ledger, os.path.join(place, "store"), opener)
        except PerdureError as error:
            raise Finding(f"{self}: {error}") from error
        except Finding as finding:
            finding.add_note(f"{self}")
            raise
        finally:
            crash.arm()
            shutil.rmtree(place, ignore_errors=True)

    def _use(self, ledger: Ledger, path: str, opener: Opener) -> None:
        # The checks write on images, whose own durability is nobody's concern.
        crash.arm(without_sync=True)
        with standing_between(), opener(path, self.history.encoding, SYSTEM) as store:
            check_writers(store, check_readers(store, ledger))
            new = store.create("made after the loss")
            new.append("proof/continued", "a new session can be made")
            new.close()
            check_evidence(store)

    def __str__(self) -> str:
        """What repeats it."""
        return f"history {self.history.seed}, place {self.at}, {self.policy}, seed {self.seed}"


def lay_out(image: dict[str, bytes | None], place: str) -> None:
    """Make the folder `place` with the files and folders of an image."""
    os.mkdir(place, 0o700)
    for path, content in sorted(image.items()):
        inside = os.path.join(place, path)
        if content is None:
            os.mkdir(inside, 0o700)
            continue
        descriptor = os.open(inside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(descriptor, content)
        os.close(descriptor)


def replay_histories(
    folder: str,
    seed: int,
    histories: int,
    *,
    places: int = 12,
    opener: str = "perdure.testing.agents:open_folder",
    policies: Sequence[Sequence[str]] | None = None,
    deaths: Sequence[Sequence[Any]] | None = None,
    sync: bool = True,
    forget: str | None = None,
) -> dict[str, int]:
    """Record agents and replay losses of power until `histories` prefixes have been checked.

    `policies` are used instead of some drawn for each place; `deaths` instead of drawn ones, one in
    each recording, before an agent that comes to its end. Two options try the
    harness itself and must end in a Finding: without `sync`, the agents work with fsync switched
    off; `forget` leaves the syncs of each "file" or of each "folder" out of the recording.

    Returns:
        How many histories (prefixes of a recording) there were, and images under each policy.

    Raises:
        Finding: something acknowledged was lost, or a session could not be opened.

    """
    open_store: Opener = load(opener)
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    number = 0
    while counts["histories"] < histories:
        place = os.path.join(folder, str(number))
        os.mkdir(place, 0o700)
        fixed = [Death(*deaths[number % len(deaths)])] if deaths else None
        history = record(place, f"{seed}:{number}", opener=open_store, deaths=fixed, sync=sync)
        if forget is not None:
            history = history.without(_forgotten(history, forget))
        left = min(places, histories - counts["histories"])
        chosen = [Policy(*one) for one in policies or ()]
        replay(history, place, rng, places=left, policies=chosen, opener=open_store, counts=counts)
        counts["recordings"] += 1
        shutil.rmtree(place)
        number += 1
    return dict(counts)


def _forgotten(history: History, forget: str) -> Callable[[Note], bool]:
    files = {n.facts["inode"] for n in history.notes if n.session == "create"}

    def unwanted(note: Note) -> bool:
        if note.kind != "operation" or note.session != "sync":
            return False
        return (note.facts["inode"] in files) == (forget == "file")

    return unwanted
