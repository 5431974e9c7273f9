"""Loss of power behind a copy: what it says of a session has to last.

A copier is killed, another one copies again and tells of each session, and in that moment the power
goes, as in `perdure.testing.powerloss`. Whatever the other one found in the destination
("unchanged", "continued") is then there, events and content, on every disk that may be left.

`black_out_copies` forks: see `perdure.testing.crash`.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from perdure.durable import crash
from perdure.errors import PerdureError
from perdure.runtime import SYSTEM
from perdure.store import Copied, Store, copying, open_store
from perdure.store.moving import Outcome
from perdure.testing.copying import KINDS, SCENES
from perdure.testing.crash import ANY, Death, Executioner, Opener, forked, load
from perdure.testing.disk import Disk, Policy
from perdure.testing.keeping import without_waiting
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import draw_policies, lay_out

__all__ = ["black_out_copies"]

_BATCH_RECORDS = 3
_NOTHING = Policy("dropped", "dropped")
"""Nothing is left of what was not synced."""


class _Film(NamedTuple):
    """A destination in the making.

    Attributes:
        place: the folder that it is in; all that happens there is followed.
        source: the store that is copied.
        kind: the medium of the destination.

    """

    place: str
    source: str
    kind: str
    opener: Opener

    def copy(self, death: Death, disk: Disk, heard: Callable[[Note], None]) -> None:
        """Let a copier work until it dies or ends."""
        for note in forked(partial(self._copy, death), f"the copier of {self.kind}"):
            if note.kind == "operation":
                disk.take(note.session, note.facts)
            else:
                heard(note)

    def _copy(self, death: Death, note: Callable[[Note], None]) -> None:
        def observer(kind: str, **facts: Any) -> None:
            note(Note("operation", kind, facts=facts))

        def tell(outcome: Outcome) -> None:
            if not isinstance(outcome, Copied):
                raise Finding(f"{outcome.session}: {outcome.error}")
            facts = {"status": outcome.status, "seq": outcome.position.seq}
            note(Note("copied", outcome.session, facts=facts))

        executioner = Executioner(death, note, observer=observer)
        executioner.arm()
        with open_store(self.source, index=False) as source, self.open(self.place) as target:
            source.copy_all(target, progress=tell)
            note(Note("visits", facts={"names": executioner.names}))

    def open(self, place: str) -> Store:
        """The destination, or what is left of it in another folder."""
        return self.opener(os.path.join(place, "target"), self.kind, SYSTEM)


class _Run:
    """One copier that dies, one that copies again, and the power that goes behind it."""

    def __init__(self, folder: str, source: str, kind: str, opener: Opener) -> None:
        self.folder = folder
        self.film = _Film(os.path.join(folder, "film"), source, kind, opener)
        os.mkdir(self.film.place, 0o700)
        self.disk = Disk(os.stat(self.film.place).st_ino)
        self.names: list[str] = []
        self.counts: Counter[str] = Counter()

    def copy(self, death: Death | None = None) -> None:
        """Copy, and die if that is ordered."""

        def heard(note: Note) -> None:
            if note.kind == "visits":
                self.names = note.facts["names"]

        self.film.copy(death or Death(), self.disk, heard)

    def copy_and_cut(self, rng: random.Random) -> None:
        """Copy again; with each word about a session the power goes."""

        def heard(note: Note) -> None:
            if note.kind == "copied":
                self.counts[note.facts["status"]] += 1
                for policy in (_NOTHING, *draw_policies(rng)[:1]):
                    self._check(policy, random.Random(rng.getrandbits(32)), note)

        self.film.copy(Death(), self.disk, heard)

    def _check(self, policy: Policy, rng: random.Random, note: Note) -> None:
        image = os.path.join(self.folder, "image")
        lay_out(self.disk.image(policy, rng), image)
        told = f"{note.session} {note.facts} {policy}"
        crash.arm(without_sync=True)
        try:
            with (
                open_store(self.film.source, index=False) as source,
                self.film.open(image) as target,
            ):
                try:
                    _check_kept(source, target, note)
                except (Finding, PerdureError) as error:
                    raise Finding(f"{told}: {error}") from error
        finally:
            crash.arm()
            shutil.rmtree(image)

    def close(self) -> None:
        """Remove it."""
        shutil.rmtree(self.film.place)


def _check_kept(source: Store, target: Store, note: Note) -> None:
    report = target.verify(note.session)
    if not report.sound or report.position is None or report.position.seq < note.facts["seq"]:
        raise Finding(f"after the loss of power it is {report}")
    lines = [[*store.raw(note.session)] for store in (source, target)]
    if lines[0] != lines[1]:
        raise Finding("after the loss of power its lines are other ones")
    for blob in source.blobs(note.session):
        target.blob(note.session, blob.digest)


def _write(store: Store, count: int) -> None:
    """Let two sessions grow, content before each event."""
    for name in ("a", "b"):
        with store.writer(name) if count else store.create(name) as session:
            for number in range(5):
                blob = session.put_blob(b"%d of %d" % (number, count) * 40)
                session.append("note", {"number": number, "blob": blob})


def black_out_copies(
    folder: str,
    seed: int,
    share: float,
    *,
    kinds: Sequence[str] = KINDS,
    opener: str = "perdure.testing.copying:open_any",
) -> dict[str, int]:
    """Kill copiers at a share of all crash points; copy again, and cut the power at each word.

    With a share of 1.0, at every visit of a crash point.

    Returns:
        How often each status was told, and how many died in each scene and kind.

    Raises:
        Finding: a session of which a copy had told was not there, or not all of it.

    """
    open_target: Opener = load(opener)
    rng = random.Random(f"blackouts of copies {seed}")
    counts: Counter[str] = Counter()
    usual, copying.BATCH_RECORDS = copying.BATCH_RECORDS, _BATCH_RECORDS
    try:
        with without_waiting():
            for kind in kinds:
                replay = partial(_black_out, kind=kind, opener=open_target, counts=counts)
                for scene in SCENES:
                    replay(folder, rng, share, scene=scene)
    finally:
        copying.BATCH_RECORDS = usual
    return dict(counts)


def _black_out(
    folder: str,
    rng: random.Random,
    share: float,
    *,
    kind: str,
    scene: str,
    opener: Opener,
    counts: Counter[str],
) -> None:
    source = os.path.join(folder, "source")

    def prepared() -> _Run:
        """A run before its death; a destination that is continued is made anew each time."""
        with open_store(source, encoding="raw", index=False) as store:
            _write(store, 0)
        run = _Run(folder, source, kind, opener)
        if scene == "continued":
            run.copy()
            with open_store(source, index=False) as store:
                _write(store, 1)
        return run

    def finished(run: _Run) -> None:
        run.close()
        shutil.rmtree(source)

    rehearsal = prepared()
    rehearsal.copy()
    visits = len(rehearsal.names)
    finished(rehearsal)
    for visit in sorted(rng.sample(range(1, visits + 1), max(1, round(visits * share)))):
        run = prepared()
        run.copy(Death(ANY, visit))
        try:
            run.copy_and_cut(rng)
        except Finding as finding:
            finding.add_note(f"{scene} {kind}, killed at visit {visit}")
            raise
        counts += run.counts
        counts[f"scene {scene} {kind}"] += 1
        finished(run)
