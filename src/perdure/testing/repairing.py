"""Killed repairs: processes that die by SIGKILL while they repair a session, one after the other.

A log is harmed as in `perdure.testing.mutations`, its content too (`perdure.testing.patients`), in
a folder or in a SQLite file, as the opener says. A child repairs it and is killed at a crash point
or in the middle of a write; the next child goes on and may die as well. In the end the repair is
run once more and comes to its end. After each death the bytes that stood there are somewhere,
whole; in the end they are aside, the session is sound and can be written, and one event says what
happened.

A loss of power is replayed as well: what a repair had not synced is there, or not, or in part, and
the same has to hold.

`kill_repairs` and `cut_power` fork: see `perdure.testing.crash`.
"""

import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from perdure.durable import crash
from perdure.errors import ContentExpired, PerdureError
from perdure.model.record import BadRecordError, decode_line
from perdure.runtime import SYSTEM
from perdure.store.repair import Repair
from perdure.store.store import Store
from perdure.testing.agents import ScriptedRuntime
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
from perdure.testing.disk import Disk, Policy
from perdure.testing.ledger import Finding, Note
from perdure.testing.patients import HARMED_CONTENT, TWIN, VICTIM, Patient, make_patient
from perdure.testing.powerloss import draw_policies, lay_out
from perdure.testing.vfs import standing_between

__all__ = ["cut_power", "kill_repairs"]

_CHAINS = 4
_DEATHS_MAX = 3
_PLACES = 12


# --- the children ---------------------------------------------------------------------------------


def _repair(
    patient: Patient,
    path: str,
    death: Death,
    role: str,
    note: Callable[[Note], None],
    *,
    trace: bool = False,
    sync: bool = False,
) -> None:
    """What a child does: it repairs, and dies in it if it is told to.

    With `trace` its notes hold every operation of the durable layer and of SQLite.
    """

    def observer(kind: str, **facts: Any) -> None:
        note(Note("operation", kind, facts=facts))

    executioner = Executioner(death, note, observer=observer if trace else None, sync=sync)
    with standing_between(to_disk=False):
        store = patient.open(path, ScriptedRuntime(role))
        executioner.arm()
        store.repair(VICTIM, salvage=patient.salvage)
        store.close()
    halves = {half: executioner.told[half] for half in (HALF, SQLITE_HALF)}
    note(Note("visits", facts={"names": executioner.names, "halves": halves}))


def _visits(patient: Patient, path: str, role: str) -> tuple[list[str], dict[str, int]]:
    """Every crash point on the way, in order, and how many writes may be cut in half."""
    notes = [*forked(partial(_repair, patient, path, Death(), role), role)]
    facts = next(note.facts for note in notes if note.kind == "visits")
    return facts["names"], facts["halves"]


class _Deaths:
    """Where to die: every kind of place has its turn, and which of its visits is drawn."""

    def __init__(self, rng: random.Random, names: list[str], halves: dict[str, int]) -> None:
        self._rng = rng
        self._names = names
        self._halves = halves
        self._kinds = [*sorted({*names}), *(half for half, many in halves.items() if many)]

    def first(self, number: int) -> Death:
        """The death of the first child of chain `number`."""
        return self._at(self._kinds[number % len(self._kinds)])

    def further(self) -> Death:
        """The death of one that goes on."""
        return self._at(self._rng.choice(self._kinds))

    def _at(self, kind: str) -> Death:
        if kind in self._halves:
            return Death(kind, self._rng.randrange(self._halves[kind]) + 1)
        visits = [at for at, name in enumerate(self._names, 1) if name == kind]
        return Death(ANY, self._rng.choice(visits))


# --- what is left ---------------------------------------------------------------------------------


def _check_left(patient: Patient, path: str) -> None:
    """After a death: nothing is lost, and whoever reads, reads the old log or the new one."""
    left = {*patient.ward.left(path, VICTIM)}
    if patient.replaced and patient.harmed not in left:
        raise Finding("the bytes of the log are nowhere")
    if patient.digest and HARMED_CONTENT not in left:
        raise Finding("the bytes of the content are nowhere")
    with patient.open(path, SYSTEM) as store:
        if _told(store) > 1:
            raise Finding("the repair is told of twice")
        if [*store.read_from(TWIN)] != patient.twin:
            raise Finding("the neighbour is another one")
        if not (store.verify(VICTIM).sound or store.repair(VICTIM, dry_run=True).needed):
            raise Finding("what is not sound is not to be repaired")
        if len(store.list()) != 2:
            raise Finding(f"there are {store.list()}")


def _told(store: Store) -> int:
    """How many events say that the log was repaired."""
    told = 0
    for line in store.raw(VICTIM):
        try:
            told += isinstance(line, bytes) and decode_line(line).type == "session/repaired"
        except BadRecordError:
            continue
    return told


def _check_repaired(patient: Patient, path: str) -> Repair:
    """Run the repair to its end, and demand everything that it promises."""
    with patient.open(path, SYSTEM) as store:
        done = store.repair(VICTIM, salvage=patient.salvage)
        _check_log(patient, store)
        _check_aside(patient, store)
        if store.repair(VICTIM).needed:
            raise Finding("there is something left to repair")
    odd = patient.ward.odd(path, VICTIM)
    if odd:
        raise Finding(f"{sorted(odd)} are left over")
    return done


def _check_log(patient: Patient, store: Store) -> None:
    report = store.verify(VICTIM)
    if not report.sound or report.problems or store.reports():
        raise Finding(f"after the repair: {report}, {store.reports()}")
    events = [*store.read_from(VICTIM)]
    told = [event for event in events if event.type == "session/repaired"]
    kept = told[0].data["kept"] if told else len(patient.original.events)
    if len(told) != patient.replaced:
        raise Finding(f"{len(told)} events tell of the repair")
    if events[:kept] != patient.original.events[:kept]:
        raise Finding(f"the first {kept} events are other ones")
    outcome = patient.outcome
    if outcome.header and not outcome.least <= kept <= outcome.verified:
        raise Finding(f"{kept} events are kept, not {outcome.verified}")
    if patient.salvage:
        there = Counter((event.type, event.raw) for event in events)
        wanted = Counter(
            (event.type, event.raw)
            for event in map(patient.original.events.__getitem__, {*outcome.later})
        )
        if wanted - there:
            raise Finding(f"{wanted - there} were intact and are not salvaged")
    with store.writer(VICTIM) as session:
        event = session.append("proof/continued", "still here")
    if event.seq < len(events):
        raise Finding("the writer began in the middle")


def _check_aside(patient: Patient, store: Store) -> None:
    aside = {each.place: each for each in store._backend.asides(VICTIM)}  # noqa: SLF001
    bytes_of = {
        place: b"".join(store._backend.aside(VICTIM, place) or ())  # noqa: SLF001
        for place in aside
    }
    if patient.replaced and bytes_of.get("repair-1") != patient.harmed:
        raise Finding(f"the log as it was is not aside: {sorted(aside)}")
    if not patient.digest:
        return
    if bytes_of.get(f"repair-1-{patient.digest}") != HARMED_CONTENT:
        raise Finding(f"the content as it was is not aside: {sorted(aside)}")
    expired = [*store.read_from(VICTIM, types=["content/expired"])]
    if [event.data["blobs"] for event in expired] != [[patient.digest]]:
        raise Finding(f"{expired} tell of the content")
    try:
        store.blob(VICTIM, patient.digest)
    except ContentExpired:
        return
    raise Finding("the content is still there")


# --- all of it ------------------------------------------------------------------------------------


def _chain(patient: Patient, path: str, deaths: Sequence[Death], counts: Counter[str]) -> None:
    """Deaths on one copy of the store, and the repair that comes to its end."""
    shutil.copytree(patient.path, path)
    died = 0
    for number, death in enumerate(deaths):
        role = f"{path} {number}"
        *_, last = forked(partial(_repair, patient, path, death, role), role)
        if last.kind != "died":
            counts["finished"] += 1
            break
        died += 1
        counts["kills"] += 1
        counts[f"{last.facts['point']} {patient.medium}"] += 1
        _check_left(patient, path)
    done = _check_repaired(patient, path)
    counts["resumed"] += done.resumed
    counts["died more than once"] += died > 1
    counts["header lost"] += done.header_lost
    counts["salvaged"] += bool(done.salvaged)
    counts["content"] += bool(done.content)
    shutil.rmtree(path)


def kill_repairs(
    folder: str, seed: int, kills: int, *, opener: str = "perdure.testing.agents:open_folder"
) -> dict[str, int]:
    """Kill `kills` processes that repair a session, and check what each leaves.

    Returns:
        How many died ("kills"), and at which point and medium; how many came to their end
        before ("finished"); how many repairs were resumed, and what they had to do.

    Raises:
        Finding: with the seed of the patient that it happened to.

    """
    counts: Counter[str] = Counter()
    patients = _patients(folder, seed, load(opener))
    while counts["kills"] < kills:
        with next(patients) as (patient, place, named):
            _treat(patient, place, named, counts, kills)
    return dict(counts)


def _patients(
    folder: str, seed: int, opener: Opener
) -> Iterator[AbstractContextManager[tuple[Patient, str, str]]]:
    """One patient after the other, each with a folder of its own and the seed that repeats it."""

    @contextmanager
    def admitted(number: int) -> Iterator[tuple[Patient, str, str]]:
        named = f"{seed}:{number}"
        place = os.path.join(folder, f"{number}")
        os.mkdir(place, 0o700)
        try:
            yield make_patient(place, named, number, opener), place, named
        except PerdureError as error:
            raise Finding(f"patient {named}: {error}") from error
        except Finding as finding:
            finding.add_note(f"patient {named}")
            raise
        shutil.rmtree(place)

    return map(admitted, itertools.count())


def _treat(patient: Patient, place: str, seed: str, counts: Counter[str], kills: int) -> None:
    """One patient, again and again."""
    rng = random.Random(f"deaths {seed}")
    rehearsed = os.path.join(place, "rehearsal")
    shutil.copytree(patient.path, rehearsed)
    deaths = _Deaths(rng, *_visits(patient, rehearsed, f"{seed} rehearsal"))
    _check_repaired(patient, rehearsed)
    for number in range(_CHAINS):
        if counts["kills"] < kills:
            first = deaths.first(counts[f"chains {patient.medium}"])
            counts[f"chains {patient.medium}"] += 1
            further = [deaths.further() for _ in range(rng.randrange(_DEATHS_MAX))]
            _chain(patient, os.path.join(place, f"{number}"), [first, *further], counts)


# --- the power ------------------------------------------------------------------------------------


def cut_power(
    folder: str,
    seed: int,
    histories: int,
    *,
    sync: bool = True,
    opener: str = "perdure.testing.agents:open_folder",
) -> dict[str, int]:
    """Cut the power at `histories` places of repairs, and check what each policy leaves.

    Without `sync` they repair with fsync switched off, which must end in a Finding.

    Returns:
        How many places there were ("histories"), and images under each policy.

    Raises:
        Finding: with the seed of the patient, the place and the policy.

    """
    rng = random.Random(f"power {seed}")
    counts: Counter[str] = Counter()
    patients = _patients(folder, seed, load(opener))
    while counts["histories"] < histories:
        with next(patients) as (patient, place, named):
            ground = os.path.join(place, "ground")
            os.mkdir(ground, 0o700)
            path = os.path.join(ground, "store")
            shutil.copytree(patient.path, path)
            disk = _as_it_stands(ground)
            body = partial(_repair, patient, path, Death(), named, trace=True, sync=sync)
            notes = [note for note in forked(body, named) if note.kind in ("operation", "visits")]
            chosen = {*rng.sample(range(len(notes)), min(_PLACES, len(notes))), len(notes) - 1}
            for at, note in enumerate(notes):
                if at in chosen:
                    counts["histories"] += 1
                    for policy in draw_policies(rng)[:2]:
                        image = disk.image(policy, random.Random(rng.getrandbits(32)))
                        counts[f"{policy.files} files"] += 1
                        _check_image(
                            patient, image, place, (at, policy), done=note.kind != "operation"
                        )
                if note.kind == "operation":
                    disk.take(note.session, note.facts)
    return dict(counts)


def _as_it_stands(path: str) -> Disk:
    """A disk on which everything below a folder is safe."""
    disk = Disk(os.stat(path).st_ino)
    for folder, folders, names in os.walk(path):
        above = os.stat(folder).st_ino
        for name in folders:
            inode = os.stat(os.path.join(folder, name)).st_ino
            disk.take("mkdir", {"parent": above, "name": name, "inode": inode})
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                disk.take("create", {"parent": above, "name": name, "inode": inode})
                disk.take("write", {"inode": inode, "offset": 0, "data": file.read()})
    disk.settle()
    return disk


def _check_image(
    patient: Patient,
    image: dict[str, bytes | None],
    place: str,
    what: tuple[int, Policy],
    *,
    done: bool,
) -> None:
    """Lay a disk out; nothing is lost on it, and the repair comes to its end."""
    ground = os.path.join(place, "image")
    lay_out(image, ground)
    path = os.path.join(ground, "store")
    # What the checks write on an image is nobody's concern.
    crash.arm(without_sync=True)
    try:
        with standing_between():
            _check_left(patient, path)
            if _check_repaired(patient, path).needed and done:
                raise Finding("it was done, and is not any more")
    except (Finding, PerdureError) as error:
        raise Finding(f"place {what[0]}, {what[1]}: {error}") from error
    finally:
        crash.arm()
        shutil.rmtree(ground, ignore_errors=True)
