"""Whoever goes on after an unfinished move makes it durable, before anything builds on it.

A process dies at every place where it moves or removes a session, or exchanges a log, and would
sync that. Another one sees what it did and goes on. Then the power goes. What the second one was
told must stand, and no session may be in two places, or in part.
"""

import hashlib
import itertools
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perdure.durable import crash
from perdure.durable.files import Folder
from perdure.errors import InvalidValue, PerdureError, SessionExists, SessionNotFound
from perdure.model.identity import escape_id
from perdure.runtime import SYSTEM
from perdure.store import Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import Death, Executioner, forked, in_own_process
from perdure.testing.disk import Disk, Policy
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import lay_out
from perdure.testing.scenes import SceneRuntime
from perdure.testing.vfs import standing_between

pytestmark = pytest.mark.proof

ID = "con"
NAMESPACES: dict[str, tuple[str, ...]] = {"zst": (), "raw": ("team", "Überlang/" * 40)}
POINTS = ("folder.sync", "remove.before")
CONTENT = {life: f"content of life {life}".encode() * 300 for life in (1, 2)}
LOGS = {life: [f"{life}.{number}" for number in range(20)] for life in (1, 2)}
LATER = "acknowledged later"


class Case(NamedTuple):
    """What is done first, what breaks off, what another one does then.

    Attributes:
        before: steps; of each, what stands behind a colon is the session's id.
        broken: the step in which the first one dies.
        then: steps of the second one; `again:` stands before those that may have happened.
        end: what must be then, as `where life`; "" for nothing, None if it depends on the place.
        kept: a life that is somewhere all the time.

    """

    before: str
    broken: str
    then: str
    end: str | None = ""
    kept: str = ""


CASES = {
    "purge": Case("create delete", "empty", "empty"),
    "purge two": Case("create create2:other delete delete:other", "empty", "empty"),
    "purge, forget": Case("create delete", "empty", "empty forget"),
    "purge, create": Case("create delete", "empty", "empty forget create2", "stored 2"),
    "purge, delete": Case("create delete", "empty", "empty forget create2 delete", "trash 2"),
    "purge, create at once": Case(
        "create delete", "empty", "again:forget again:create2 again:write", None
    ),
    "restore": Case("create delete", "restore", "again:restore write", "stored 1 later", "1"),
    "restore, delete": Case("create delete", "restore", "again:restore delete", "trash 1", "1"),
    "restore, purge": Case("create delete", "restore", "again:restore delete empty"),
    "restore, purge an older": Case(
        "create delete park forget create2 delete unpark",
        "restore",
        "again:restore empty write",
        "stored 2 later",
        "2",
    ),
    "delete, restore": Case("create", "delete", "again:delete restore", "stored 1", "1"),
    "delete, purge": Case("create", "delete", "again:delete empty"),
    "delete, create": Case("create", "delete", "again:delete empty forget create2", "stored 2"),
    "create again": Case(
        "create delete empty forget", "create2", "again:create2 write", "stored 2 later"
    ),
    "compact": Case("create", "compact", "write", "stored 1 later", "1"),
}


def space_of(store: Store, encoding: str) -> Store:
    return store.namespace(*NAMESPACES[encoding])


class Doer:
    """Takes steps on the store at a path, a minute after each other."""

    def __init__(self, path: str, encoding: str, seed: str, first: int) -> None:
        self._path = path
        self._encoding = encoding
        self._step = first
        self._runtime = SceneRuntime(seed)

    def take(self, steps: str) -> None:
        with open_folder(self._path, self._encoding, self._runtime) as store:
            for step in steps.split():
                self._runtime.step = self._step
                self._step += 1
                name, _, id = step.removeprefix("again:").partition(":")
                try:
                    self._do(space_of(store, self._encoding), name, id or ID)
                except (SessionExists, SessionNotFound, InvalidValue):
                    if not step.startswith("again:"):
                        raise

    def _do(self, space: Store, name: str, id: str) -> None:
        calls: dict[str, Callable[[], Any]] = {
            "create": lambda: _create(space, id, 1),
            "create2": lambda: _create(space, id, 2),
            "delete": lambda: space.delete(id),
            "restore": lambda: space.restore(id),
            "empty": space.empty_trash,
            "forget": lambda: space.forget(id),
            "compact": lambda: space.compact(id),
            "write": lambda: space.append(id, [{"type": "x", "data": LATER}]),
            "park": lambda: self._move(escape_id(ID), "parked"),
            "unpark": lambda: self._move("parked", escape_id(ID)),
        }
        calls[name]()

    def _move(self, place: str, other: str) -> None:
        """Let what was deleted under one name stand under another one, by hand."""
        parts = (x for part in NAMESPACES[self._encoding] for x in ("ns", escape_id(part)))
        with (
            Folder.open(os.path.join(self._path, *parts, "trash")) as trash,
            trash.child(place) as source,
            trash.child(other, make=True) as target,
        ):
            for entry in source.names():
                source.move(entry, target, entry)
            target.sync()
            trash.remove_if_empty(place)
            trash.sync()


def _create(space: Store, id: str, life: int) -> None:
    with space.create(id) as session:
        session.put_blob(CONTENT[life])
        session.append_many([{"type": "x", "data": data} for data in LOGS[life]])


# --- what is there -------------------------------------------------------------------------------


def shown(path: str, encoding: str, *, beside: bool = False) -> dict[str, str]:
    """Every session: where, which life of its id, and whether it was written on.

    What is in the trash is restored, to be looked at. With `beside` older ones may be there.

    Raises:
        Finding: one is in two places, or not whole.

    """
    found = {}
    with open_folder(path, encoding, SYSTEM) as store:
        space = space_of(store, encoding)
        stored = [entry.id for entry in space.list()]
        trashed = [gone.id for gone in space.trash()]
        for id in dict.fromkeys(stored + trashed):
            if (stored + trashed).count(id) > 1 and not beside:
                raise Finding(f"{id}: {stored} stored, {trashed} in the trash")
            if id not in stored:
                space.restore(id)
            found[id] = f"{'stored' if id in stored else 'trash'} {_life(space, id)}"
        if space.missing():
            raise Finding(f"missing {space.missing()}")
    return found


def _life(space: Store, id: str) -> str:
    report = space.verify(id)
    log = [event.data for event in space.read_from(id)] if report.sound else []
    later = log[-1:] == [LATER]
    for life, whole in LOGS.items():
        if log == [*whole, *[LATER] * later]:
            content = space.blob(id, hashlib.sha256(CONTENT[life]).hexdigest())
            if content == CONTENT[life]:
                return f"{life} later" if later else f"{life}"
    raise Finding(f"{id} is not whole: {report}, {log}")


# --- the power goes ------------------------------------------------------------------------------


Image = dict[str, bytes | None]


class Trial:
    """One death, what the other one did after it, and the disks that losses of power leave."""

    def __init__(self, folder: str, case: Case, encoding: str, death: Death) -> None:
        self._folder = folder
        self._path = os.path.join(folder, "store")
        self._case = case
        self._encoding = encoding
        self._death = death
        self._disk = Disk(os.stat(folder).st_ino)
        self._between: list[Image] = []
        self._after: list[Image] = []

    def run(self) -> bool:
        """Take all steps; False if nobody died."""
        case, first = self._case, len(self._case.before.split())
        with standing_between(to_disk=False):
            crash.arm(observer=lambda kind, **facts: self._disk.take(kind, facts))
            Doer(self._path, self._encoding, "before", 0).take(case.before)
            crash.arm()
            last = Note("died")
            for last in forked(self._break, "the first one"):
                if last.kind == "operation":
                    self._disk.take(last.session, last.facts)
            if last.kind == "finished":
                return False
            crash.arm(observer=self._observe)
            Doer(self._path, self._encoding, "then", first + 1).take(case.then)
            crash.arm()
            for entries, seed in (("dropped", 0), ("kept", 0), ("random", 1)):
                self._after.append(self._cut(Policy("dropped", entries), seed))
        return True

    def _break(self, note: Callable[[Note], None]) -> None:
        def observer(kind: str, **facts: Any) -> None:
            note(Note("operation", kind, facts=facts))

        Executioner(self._death, note, observer=observer).arm()
        first = len(self._case.before.split())
        Doer(self._path, self._encoding, "broken", first).take(self._case.broken)

    def _observe(self, kind: str, **facts: Any) -> None:
        self._disk.take(kind, facts)
        if kind in ("rename", "remove") and not facts["name"].startswith("evidence"):
            for _ in range(6 if self._case.kept else 1):
                self._between.append(self._cut(Policy("kept", "random"), len(self._between)))

    def _cut(self, policy: Policy, seed: int) -> Image:
        return self._disk.image(policy, random.Random(seed))

    def findings(self) -> Iterator[str]:
        """What is wrong with the disks."""
        # The checks write on images, whose own durability is nobody's concern.
        crash.arm(without_sync=True)
        try:
            with standing_between(to_disk=False):
                yield from self._findings()
        finally:
            crash.arm()

    def _findings(self) -> Iterator[str]:
        live = os.path.join(self._folder, "live")
        shutil.copytree(self._path, live)
        wanted = shown(live, self._encoding)
        end = self._case.end
        if end is not None and wanted != ({ID: end} if end else {}):
            yield f"{wanted} is there before the power goes"
        for number, image in enumerate([*self._between, *self._after], -len(self._between)):
            place = os.path.join(self._folder, "image")
            lay_out(image, place)
            try:
                self._check(os.path.join(place, "store"), wanted if number >= 0 else None)
            except (Finding, PerdureError) as error:
                yield f"{self._death}, image {number}: {error}"
            shutil.rmtree(place)

    def _check(self, path: str, wanted: dict[str, str] | None) -> None:
        between = wanted is None
        found = shown(path, self._encoding, beside=between and "park" in self._case.before)
        if not between and found != wanted:
            raise Finding(f"{found} is there, not {wanted}")
        if self._case.kept not in found.get(ID, "").split() and self._case.kept:
            raise Finding(f"life {self._case.kept} is lost: {found}")


def finish(folder: str, name: str, encoding: str) -> tuple[int, list[str]]:
    """How many deaths there are in a case, and what goes wrong after them."""
    # The power goes in images alone, and those know what was synced from the observer.
    setattr(os, "fsync", lambda _: None)  # noqa: B010
    setattr(os, "fdatasync", lambda _: None)  # noqa: B010
    deaths, wrong = 0, list[str]()
    for point in POINTS:
        for visit in itertools.count(1):
            place = os.path.join(folder, f"{point} {visit}")
            os.mkdir(place, 0o700)
            trial = Trial(place, CASES[name], encoding, Death(point, visit))
            if not trial.run():
                break
            deaths += 1
            wrong += trial.findings()
            shutil.rmtree(place)
    return deaths, wrong


@pytest.mark.parametrize("encoding", ["zst", "raw"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_power_loss_after_an_unfinished_move(tmp_path: Path, name: str, encoding: str) -> None:
    """Who goes on after a move that broke off loses nothing, and finds nothing in two places."""
    deaths, wrong = in_own_process(
        "tests.proof.test_powerloss_moves:finish",
        folder=str(tmp_path),
        name=name,
        encoding=encoding,
    )
    assert wrong == []
    # There is nothing to compact in plain lines.
    assert deaths > 1 or (name, encoding) == ("compact", "raw")
