"""Corruption: what a reader makes of a log whose bytes were changed, cut, moved or doubled.

A cleanly closed store is built once. Each trial changes the log of one session on the disk, asks
every reader, tries to write, and puts the bytes back. What must come out is worked out by an oracle
that knows the original bytes, see `perdure.testing.mutations`.

Exact statements:
- The verified prefix ends before the first unit that does not stand whole in its place. Bytes that
  belong to no unit (noise between units, a trailer) end nothing.
- A writer is refused with `SessionDamaged` just when an acknowledged event lies behind that end;
  otherwise it keeps every acknowledged event, and can append.
- Nothing is ever given out as verified that is not the original event of that number, with the one
  exception below.
- Reading changes no file. The neighbour in the same store reads as before.

Bounds:
- `later()` gives at least the events of every whole unit behind the end, in order, and nothing that
  is no original event. It may give more: records that share a line with a fragment.
- `read_from(seq)` gives at least the events from `seq` to the end of the prefix; having started
  behind damage it may give more, since it verifies what it touches.
- Where whole units of another session were put in, and a page begins inside them, it gives what it
  finds: links prove a page against its neighbours, not to whom it belongs. From the start of the
  log (`events`, `read_from(0)`, `verify`, a writer) it is noticed.
"""

import contextlib
import itertools
import os
import random
import shutil
from collections import Counter
from collections.abc import Sequence

from perdure.errors import PerdureError, SessionDamaged
from perdure.evidence import Evidence
from perdure.model.event import Event
from perdure.runtime import SYSTEM
from perdure.testing import agents
from perdure.testing.agents import Conversation, ScriptedRuntime
from perdure.testing.crash import ENCODINGS
from perdure.testing.ledger import Finding, closers_of
from perdure.testing.mutations import MUTATIONS, Original, Outcome, expect, from_elsewhere

__all__ = ["corrupt"]

VICTIM = "victim"
TWIN = "twin"


# --- the patient ---------------------------------------------------------------------------------


class _Patient:
    """A folder with a victim and its healthy twin, restored after each trial."""

    def __init__(self, folder: str, encoding: str, seed: str) -> None:
        self.rng = random.Random(seed)
        self.path = os.path.join(folder, "store")
        self.store = agents.open_folder(self.path, encoding, ScriptedRuntime(seed))
        commits, words = self.rng.choice([(12, 30), (30, 60), (40, 2500)])
        for name in (VICTIM, TWIN):
            self._write(name, commits, words)
        self.forget()
        self.twin = [*self.store.read_from(TWIN)]
        self.original = self._read(VICTIM, encoding)
        self.original.namesake = self._namesake(folder, encoding, seed)
        self.other = self._read(TWIN, encoding)
        self.closers = closers_of(self.original.events)
        located = self.store.locate(VICTIM)
        assert located is not None
        self.log = located
        self.place = os.path.dirname(located)
        self.kept = {
            name: pathlike
            for name in os.listdir(self.place)
            if (pathlike := _content(os.path.join(self.place, name))) is not None
        }

    def _write(self, name: str, commits: int, words: int) -> None:
        """Many commits, single and packed, compressible and not; half of them end in a turn."""
        talk = Conversation(self.rng, name)
        with self.store.create(name) as session:
            for number in range(commits):
                if number % 3 == 2:
                    session.append_many(talk.deltas())
                else:
                    event = talk.next()
                    if event["type"] == "note/aside":
                        event["data"] = self.rng.randbytes(self.rng.randrange(words)).hex()
                    session.append(**event)
            session.append("note/aside", self.rng.randbytes(words).hex(), time=0)
            if self.rng.random() < 0.5:
                session.append_many([{"type": e.type, "data": e.data, "agent": e.agent,
                                      "turn": e.turn} for e in self._open_work(name)])  # fmt: skip

    def _open_work(self, name: str) -> list[Event]:
        return closers_of([*self.store.read_from(name)])

    def _read(self, name: str, encoding: str) -> Original:
        located = self.store.locate(name)
        assert located is not None
        with open(located, "rb") as file:
            return Original(file.read(), encoding, [*self.store.read_from(name)])

    @staticmethod
    def _namesake(folder: str, encoding: str, seed: str) -> bytes:
        path = os.path.join(folder, "elsewhere")
        with agents.open_folder(path, encoding, ScriptedRuntime(f"{seed} again")) as store:
            store.create(VICTIM).append("note/aside")
            located = store.locate(VICTIM)
            assert located is not None
            with open(located, "rb") as file:
                other = Original(file.read(), encoding, [*store.read_from(VICTIM)])
        return other.data[: other.units[0].end]

    def harm(self, data: bytes) -> None:
        """Put `data` where the log was, in the same file."""
        _overwrite(self.log, data)

    def harm_tail(self, rng: random.Random) -> None:
        """Change the tail file, which is evidence and not the log."""
        data = bytearray(self.kept["tail"])
        for _ in range(rng.choice([1, 30])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        size = rng.choice([len(data), len(data), 0, rng.randrange(len(data))])
        _overwrite(os.path.join(self.place, "tail"), bytes(data[:size]))

    def forget(self) -> None:
        """Let nobody remember what an earlier trial wrote: what is tried is the log alone."""
        witness = self.store._witness  # noqa: SLF001
        for name in (VICTIM, TWIN):
            # Waits for a push that is under way: it would go to the evidence that begins below.
            witness.drop(name)
        witness.reset()
        witness.evidence = Evidence(None, runtime=SYSTEM)

    def heal(self) -> None:
        """Put back what the trial changed."""
        self.forget()
        for name in os.listdir(self.place):
            if name not in self.kept:
                shutil.rmtree(os.path.join(self.place, name))
        for name, content in self.kept.items():
            path = os.path.join(self.place, name)
            if _content(path) != content:
                _overwrite(path, content)


def _overwrite(path: str, data: bytes) -> None:
    """Other bytes in the same file."""
    with open(path, "r+b") as file:
        file.truncate(len(data))
        file.write(data)


def _content(path: str) -> bytes | None:
    if os.path.isdir(path):
        return None
    with open(path, "rb") as file:
        return file.read()


def _files(path: str) -> dict[str, tuple[int, int, bytes | None]]:
    """Mode, time of change and content of everything below a folder."""
    found = {}
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            inside = os.path.join(folder, name)
            status = os.stat(inside)
            found[inside] = (status.st_mode, status.st_mtime_ns, _content(inside))
    return found


# --- the trial -----------------------------------------------------------------------------------


def corrupt(folder: str, seed: int, trials: int, *, per_store: int = 200) -> dict[str, int]:
    """Try `trials` mutations, in both encodings, on a new store every `per_store` trials.

    Returns:
        How many trials there were of each mutation and encoding, how many of them ended in
        damage ("damaged") and how many lost nothing ("harmless").

    Raises:
        Finding: with the trial that led to it.

    """
    counts: Counter[str] = Counter()
    done = 0
    for number in itertools.count():
        place = os.path.join(folder, str(number))
        os.mkdir(place, 0o700)
        encoding = ENCODINGS[number % len(ENCODINGS)]
        patient = _Patient(place, encoding, f"{seed}:{number}")
        for trial in range(min(per_store, trials - done)):
            rng = random.Random(f"{seed}:{number}:{trial}")
            name, mutate = rng.choice([*MUTATIONS.items()])
            data = mutate(patient.original, patient.other, rng)
            outcome = expect(patient.original, data, foreign=from_elsewhere(name))
            try:
                _try(patient, data, outcome, rng)
            except Exception as error:
                error.add_note(
                    f"trial {seed}:{number}:{trial}, {encoding}, {name}, "
                    f"{outcome.verified} verified of {len(patient.original.events)}"
                )
                raise
            counts[f"{name} {encoding}"] += 1
            whole = outcome.verified == len(patient.original.events)
            counts["harmless" if whole else "damaged"] += 1
        done += min(per_store, trials - done)
        patient.store.close()
        shutil.rmtree(place)
        if done >= trials:
            return dict(counts)
    raise AssertionError


def _try(patient: _Patient, data: bytes, outcome: Outcome, rng: random.Random) -> None:
    patient.harm(data)
    if data == patient.original.data:
        patient.harm_tail(rng)
    try:
        before = _files(patient.path)
        _check_inspection(patient, outcome)
        for seq in (0, rng.randrange(len(patient.original.events) + 2)):
            _check_page(patient, outcome, seq)
        _check_neighbour(patient)
        _equal(_files(patient.path), before, "the files after reading")
        _check_writer(patient, outcome)
    finally:
        patient.heal()


def _equal(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Finding(f"{what}: {found!r:.2000}, not {wanted!r:.2000}")


def _check_inspection(patient: _Patient, outcome: Outcome) -> None:
    original = patient.original
    whole = outcome.verified == len(original.events)
    seen = patient.store.inspect(VICTIM)
    closers = patient.closers if whole else []
    events = [*seen.events]
    verified = len(events) - len(closers)
    if not outcome.least <= verified <= outcome.verified or (whole and verified < outcome.verified):
        raise Finding(f"{verified} events are verified, not {outcome.verified}")
    _equal(events, original.events[:verified] + closers, "events")
    if outcome.header:
        _equal(seen.header is not None, True, "that the header is read")
    _equal(seen.status == "damaged", not whole, f"damaged, as {seen.status} says,")
    report = patient.store.verify(VICTIM)
    _equal((report.status == "damaged", report.events), (not whole, verified), "verify")
    if whole:
        return
    _equal(bool(seen.problems and report.problems), True, "that a problem is reported")
    later = [*seen.later()]
    _equal(report.later, len(later), "count of later events")
    _check_later(patient, outcome, later)


def _check_later(patient: _Patient, outcome: Outcome, later: Sequence[Event]) -> None:
    events = patient.original.events
    for event in later:
        if event not in (_at(events, event.seq), _at(patient.twin, event.seq)):
            raise Finding(f"later() gives {event}, which nobody wrote")
    given = iter([event.seq for event in later if event == _at(events, event.seq)])
    for seq in outcome.later:
        if not any(other == seq for other in given):
            raise Finding(f"later() leaves out event {seq}, which is whole")


def _at(events: Sequence[Event], seq: int) -> Event | None:
    return events[seq] if seq < len(events) else None


def _check_page(patient: _Patient, outcome: Outcome, seq: int) -> None:
    events = patient.original.events
    given: list[Event] = []
    complete = False
    with contextlib.suppress(SessionDamaged):
        # Not `extend`: what came before an error counts.
        for event in patient.store.read_from(VICTIM, seq):
            given.append(event)  # noqa: PERF402
        complete = True
    if seq and outcome.foreign:
        for event in given:
            if event not in (_at(events, event.seq), _at(patient.twin, event.seq)):
                raise Finding(f"read_from({seq}) gives {event}, which nobody wrote")
        return
    _equal(given, events[seq : seq + len(given)], f"read_from({seq})")
    most = max(0, len(events) - seq)
    least = most if complete else max(0, outcome.least - seq)
    if len(given) < least:
        raise Finding(f"read_from({seq}) gives {len(given)} events, not {least}")
    if seq == 0:
        _equal(complete, outcome.verified == len(events), "that read_from(0) comes to its end")


def _check_neighbour(patient: _Patient) -> None:
    store = patient.store
    _equal([*store.read_from(TWIN)], patient.twin, "the neighbour's events")
    _equal(store.verify(TWIN).problems, [], "the neighbour's problems")
    listed = {entry.name: entry.header is not None for entry in store.list()}
    _equal((len(listed), listed.get(TWIN)), (2, True), "the listing")


def _check_writer(patient: _Patient, outcome: Outcome) -> None:
    events, store = patient.original.events, patient.store
    if outcome.verified < len(events):
        log = _content(patient.log)
        try:
            store.writer(VICTIM).close()
        except SessionDamaged as error:
            _equal((error.session, bool(error.reason)), (VICTIM, True), "SessionDamaged")
        else:
            raise Finding("a writer was given a damaged session")
        _equal(_content(patient.log), log, "the log after a refusal")
        return
    wanted = events + patient.closers
    try:
        with store.writer(VICTIM) as session:
            wanted = [*wanted, session.append("proof/continued", "still here")]
    except PerdureError as error:
        raise Finding(f"a writer was refused a whole session: {error}") from error
    _equal([*store.read_from(VICTIM)], wanted, "the events after an append")
