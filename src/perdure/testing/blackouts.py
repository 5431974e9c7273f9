"""Loss of power while content is put and expires, logs are compacted, sessions deleted, restored.

A scene (`perdure.testing.scenes`) is played on a real store, its player is killed once or twice,
and every operation of the durable layer and of SQLite is recorded. Then the power goes at places of
that history, as in `perdure.testing.powerloss`, and each disk that this may leave is held against
what had been acknowledged by then: a step that was finished has happened, for good, and evidence
knows of it.
"""

import hashlib
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from perdure.durable import crash
from perdure.errors import PerdureError
from perdure.runtime import SYSTEM
from perdure.testing.crash import ANY, ENCODINGS, Death, Executioner, Opener, forked, load
from perdure.testing.disk import Disk
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
from perdure.testing.powerloss import copied, draw_policies, lay_out
from perdure.testing.scenes import Player, Scene, SceneRuntime, scenes
from perdure.testing.survival import check_evidence
from perdure.testing.vfs import standing_between

__all__ = ["replay_scenes"]

_SCENES = ("beginning", "content", "compaction", "trash", "namespace")
"""Those in which nothing is done by hand, behind the back of the durable layer."""

_PLACES = 12
_VISITS = 600


class _Moment(NamedTuple):
    """One thing that happened: a note of a player, or the world that was found after its death."""

    note: Note
    found: World | None = None


class _Film:
    """A scene as it was played on one store."""

    def __init__(self, scene: Scene, encoding: str, seed: str, opener: Opener) -> None:
        self.scene = scene
        self.encoding = encoding
        self.seed = seed
        self.opener = opener
        self.moments: list[_Moment] = []

    def record(self, folder: str, *, sync: bool) -> None:
        """Play the scene; the player dies now and then, and another one goes on."""
        rng = random.Random(f"film {self.seed}")
        path = os.path.join(folder, "store")
        heard, known = Heard(self.scene), worlds(self.scene)
        deaths = [Death(ANY, rng.randrange(1, _VISITS)) for _ in range(rng.randrange(3))]
        for number, death in enumerate([*deaths, Death()]):
            player = f"{self.seed}:{number}"

            def body(
                note: Callable[[Note], None],
                death: Death = death,
                player: str = player,
                first: int = heard.done,
            ) -> None:
                self._play(path, death, player, first, note, sync=sync)

            last = Note("died")
            for last in forked(body, f"the player {player}"):
                heard.take(last)
                self.moments.append(_Moment(last))
            if last.kind == "finished":
                return
            with copied(path) as copy, self.opener(copy, self.encoding, SYSTEM) as opened:
                store = opened.namespace(*self.scene.namespace)
                around = known[heard.done], known[max(heard.doing + 1, heard.done)]
                found = check_world(store, *around, heard)
            self.moments.append(_Moment(Note("found"), found))
            known[heard.done + 1 :] = _following(found, heard.done)

    def _play(
        self,
        path: str,
        death: Death,
        seed: str,
        first: int,
        note: Callable[[Note], None],
        *,
        sync: bool,
    ) -> None:
        def observer(kind: str, **facts: Any) -> None:
            note(Note("operation", kind, facts=facts))

        runtime = SceneRuntime(seed)
        player = Player(
            self.scene, lambda now: self.opener(path, self.encoding, now), path, runtime, note
        )
        Executioner(death, note, observer=observer, sync=sync).arm()
        with standing_between(to_disk=False):
            for number in range(first, len(self.scene.steps)):
                player.play(number, again=number == first)
            player.close()

    # --- replay ----------------------------------------------------------------------------------

    def replay(
        self, folder: str, root: int, rng: random.Random, places: int, counts: Counter[str]
    ) -> None:
        """Cut the power at some places, and check what is left."""
        operations = [at for at, one in enumerate(self.moments) if one.note.kind == "operation"]
        chosen = {*rng.sample(operations, min(places, len(operations)))}
        disk, heard, known = Disk(root), Heard(self.scene), worlds(self.scene)
        for at, (note, found) in enumerate(self.moments):
            if at in chosen:
                counts["histories"] += 1
                for policy in draw_policies(rng)[:2]:
                    around = known[heard.done], known[max(heard.doing + 1, heard.done)]
                    seed = rng.getrandbits(32)
                    try:
                        image = disk.image(policy, random.Random(seed))
                        with standing_between():
                            self._check(image, os.path.join(folder, "image"), around, heard)
                    except (Finding, PerdureError) as error:
                        raise Finding(f"{self}, place {at}, {policy}, {seed}: {error}") from error
                    counts[f"{policy.files} files"] += 1
                    counts[f"{policy.entries} entries"] += 1
            if found is not None:
                known[heard.done + 1 :] = _following(found, heard.done)
            elif note.kind == "refused":
                # Who hears that it has happened already is not promised that it lasts.
                disk.settle()
            elif note.kind == "operation":
                disk.take(note.session, note.facts)
            else:
                heard.take(note)

    def __str__(self) -> str:
        """What repeats it."""
        return f"scene {self.scene.name} {self.encoding}, film {self.seed}"

    def _check(
        self,
        image: dict[str, bytes | None],
        place: str,
        around: tuple[World, World],
        heard: Heard,
    ) -> None:
        """Lay the disk out, look at it, and go on with the scene on it."""
        lay_out(image, place)
        path = os.path.join(place, "store")
        # The checks write on images, whose own durability is nobody's concern.
        crash.arm(without_sync=True)
        try:
            with self.opener(path, self.encoding, SYSTEM) as opened:
                store = opened.namespace(*self.scene.namespace)
                # A removal that a dead player left unsynced is not made up for by expiring again.
                values = {hashlib.sha256(value).hexdigest(): value for value in self.scene.values}
                found = check_world(store, *around, heard, returning=values)
                check_taken(store, found, taken(found, heard))
            if any(one.place == "trash" for one in found.kept.values()):
                copy = os.path.join(place, "copy")
                shutil.copytree(path, copy)
                with self.opener(copy, self.encoding, SYSTEM) as opened:
                    check_trash(opened.namespace(*self.scene.namespace), found, heard)
            self._go_on(path, found, heard)
        finally:
            crash.arm()
            shutil.rmtree(place, ignore_errors=True)

    def _go_on(self, path: str, world: World, heard: Heard) -> None:
        """Take the step that was under way again, and the rest."""
        player = Player(
            self.scene,
            lambda now: self.opener(path, self.encoding, now),
            path,
            SceneRuntime(f"after {self.seed}"),
        )
        for number in range(heard.done, len(self.scene.steps)):
            again = number == heard.done
            told = player.play(number, again=again)
            if not again:
                check_told(world, number, told)
            world = world.after(number)
            if again:
                check_whole(player.store, world)
        check_whole(player.store, world)
        with player.store.create("made after the loss") as session:
            session.append("note")
        player.close()
        # What a dead writer left in the evidence was rolled back by now.
        check_evidence(player.store)
        player.close()


def _following(found: World, number: int) -> list[World]:
    """The worlds after each further step, if one goes on from what was found."""
    made = [found]
    for each in range(number, len(found.scene.steps)):
        made.append(made[-1].after(each))
    return made[1:]


def replay_scenes(
    folder: str,
    seed: int,
    histories: int,
    *,
    opener: str = "perdure.testing.agents:open_folder",
    sync: bool = True,
) -> dict[str, int]:
    """Record scenes and cut the power until `histories` prefixes of them have been checked.

    Without `sync` the players work with fsync switched off, which must end in a Finding.

    Returns:
        How many histories there were, how many of each scene, and images under each policy.

    Raises:
        Finding: something acknowledged was lost, undone or came back.

    """
    open_store: Opener = load(opener)
    rng = random.Random(f"blackouts {seed}")
    counts: Counter[str] = Counter()
    number = 0
    while counts["histories"] < histories:
        place = os.path.join(folder, str(number))
        os.mkdir(place, 0o700)
        cast = [one for one in scenes(f"{seed}:{number}") if one.name in _SCENES]
        scene = cast[number % len(cast)]
        encoding = ENCODINGS[number // len(cast) % len(ENCODINGS)]
        film = _Film(scene, encoding, f"{seed}:{number}", open_store)
        film.record(place, sync=sync)
        left = min(_PLACES, histories - counts["histories"])
        film.replay(place, os.stat(place).st_ino, rng, left, counts)
        counts[f"scene {scene.name}"] += 1
        shutil.rmtree(place)
        number += 1
    return dict(counts)
