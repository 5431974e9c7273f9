"""Evidence whose keeper dies, loses power or meets a failing disk: it says what was told, or less.

A script notes positions, buries, reports, accepts and forgets. What evidence must hold after each
act is said by evidence in memory. Whatever happens within an act, the file holds what was told
before it or after it; a reader may know nothing for a while, and never knows anything else.

`kill_keepers_of_evidence` forks: see `perdure.testing.crash`.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from perdure.durable import crash
from perdure.errors import PerdureError
from perdure.evidence import Acceptance, Damage, Deleted, Evidence, Seen
from perdure.evidence.database import NAME
from perdure.evidence.facts import ACCEPTANCE, TABLES
from perdure.evidence.rows import Row
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.testing.crash import ANY, SQLITE_HALF, Death, Executioner, forked
from perdure.testing.disk import ENTRY_POLICIES, FILE_POLICIES, Disk, Policy
from perdure.testing.faults import CODES, SHORT, Fault, FaultySystem
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import lay_out
from perdure.testing.sqlite_faults import FaultyFiles
from perdure.testing.vfs import SQLITE_CALLS, standing_between

__all__ = ["fail_evidence", "kill_keepers_of_evidence", "replay_evidence"]

_SPACES = ("", "team/a%2Fb")
_SESSIONS = ("s", "\ud800", "Überlang/" * 100)
_REFUSALS = frozenset({"storage-full", "storage-unavailable"})
_UNCERTAIN_MAX = 3
_SECOND_DEATH = 40

_Dump = tuple[Any, ...]
"""All that evidence says, as plain values."""


class Act(NamedTuple):
    """One call: the name of a method of `Evidence`, and what it is given."""

    name: str
    given: tuple[Any, ...]


class _Clock(Runtime):
    """Shows the same whenever an act is repeated."""

    now = 0

    def now_ms(self) -> int:
        """The number of the act."""
        return self.now


def _dump(evidence: Evidence) -> _Dump:
    """Every row, from one state of the file."""
    form = evidence._form  # noqa: SLF001
    return form.read(lambda rows: tuple((*rows.scan(table),) for table in TABLES))


def _facts(dump: _Dump) -> set[tuple[str, Row]]:
    """Every row with the name of its table; acceptances without the last of their key, a number."""
    facts: set[tuple[str, Row]] = set()
    for table, rows in zip(TABLES, dump, strict=True):
        key = table.key - (table is ACCEPTANCE)
        facts |= {(table.name, (*row[:key], *row[table.key :])) for row in rows}
    return facts


def _hash(rng: random.Random) -> str:
    return rng.randbytes(32).hex()


def _script(rng: random.Random, many: int) -> list[Act]:
    """Acts that change something more often than not; some need several pages."""
    digests = [_hash(rng) for _ in range(2)]
    made: list[Act] = []
    for number in range(many):
        space, session = rng.choice(_SPACES), rng.choice(_SESSIONS)
        digest, position = rng.choice(digests), Position(number, _hash(rng))
        known = Seen(session, digest, position, number)
        batch = [(rng.choice(_SPACES), known._replace(session=f"{n}")) for n in range(60)]
        reason = "it is so " * rng.choice([1, 1, 500])
        acts = [
            Act("note", ([(space, known)],)),
            Act("note", ([*batch, (space, known)],)),
            Act("replace", (space, known)),
            Act("bury", (space, Deleted(session, digest, number))),
            Act("bury", (space, Deleted(session, None, number))),
            Act("unbury", (space, session)),
            Act("report", (space, Damage(session, "record", number, reason, number))),
            Act("clear_report", (space, session)),
            Act("accept", (space, Acceptance(session, digest, position, None, number))),
            Act("forget", (space, session)),
        ]
        # Where there is no file yet, nothing is removed and no file is made for that.
        made.append(rng.choice(acts if made else acts[:2]))
    return made


def _short(answers: Any) -> str:
    """What fits into a message."""
    return f"{answers!r:.1000}"


class _Case:
    """A script, and what evidence must say after some of its acts."""

    def __init__(self, seed: str, acts: int) -> None:
        self.seed = seed
        self.acts = _script(random.Random(f"testimony {seed}"), acts)
        self._dumps: dict[tuple[int, ...], _Dump] = {}

    def take(self, evidence: Evidence, clock: _Clock, number: int) -> None:
        """Do one act."""
        clock.now = number
        name, given = self.acts[number]
        getattr(evidence, name)(*given)

    def said(self, done: Sequence[int]) -> _Dump:
        """What evidence says after the acts of these numbers.

        `~number` is an act that was refused when it had made the file, and nothing more.
        """
        key = (*done,)
        if key not in self._dumps:
            clock = _Clock()
            evidence = Evidence(None, runtime=clock)
            for number in done:
                if number < 0:
                    evidence._form.write(lambda _: None)  # noqa: SLF001
                else:
                    self.take(evidence, clock, number)
            self._dumps[key] = _dump(evidence)
        return self._dumps[key]

    def check_readers(self, place: str, may: Sequence[Sequence[int]]) -> None:
        """Demand that whoever reads hears what was told, or nothing with the reason for that."""
        evidence = Evidence(place)
        found = _dump(evidence)
        nothing = found == self.said(()) and evidence.unreadable is not None
        if not nothing and found not in [self.said(done) for done in may]:
            raise Finding(f"readers hear {_short(found)}")

    def check_truth(self, place: str, may: Sequence[Sequence[int]]) -> None:
        """Demand that nothing is said that was never told; rows may be missing.

        A row that could not be seen could not be removed either: what was told once may stand. Nor
        could it be counted: which number an acceptance has is open.
        """
        told: set[tuple[str, Row]] = set()
        for done in may:
            for many in range(len(done) + 1):
                told |= _facts(self.said(done[:many]))
        said = _facts(_dump(Evidence(place)))
        if not said <= told:
            raise Finding(f"nobody told {_short(said - told)}")

    def check_writers(self, place: str, may: Sequence[Sequence[int]]) -> Sequence[int]:
        """Demand that whoever acts on it hears what was told; which of `may` it was is returned."""
        evidence = Evidence(place)
        evidence.about("", "s", to_write=True)
        if evidence.set_aside:
            raise Finding(f"{evidence.set_aside} was taken for damaged")
        found = _dump(evidence)
        for done in may:
            if found == self.said(done):
                return done
        wanted = [_short(self.said(done)) for done in may]
        raise Finding(f"it says {_short(found)} and not {' or '.join(wanted)}")

    def go_on(self, place: str, done: Sequence[int]) -> None:
        """Do the rest, and demand that all of it is told."""
        clock = _Clock()
        evidence = Evidence(place, runtime=clock)
        first = done[-1] + 1 if done else 0
        for number in range(first, len(self.acts)):
            self.take(evidence, clock, number)
        self.check_writers(place, [(*done, *range(first, len(self.acts)))])


# --- deaths --------------------------------------------------------------------------------------


def _perform(case: _Case, place: str, first: int, death: Death) -> tuple[int, int, Note]:
    """Let a child do the acts from `first` on until it dies; how many it did, and how it ended."""

    def body(note: Callable[[Note], None]) -> None:
        clock = _Clock()
        executioner = Executioner(death, note)
        with standing_between(to_disk=False):
            executioner.arm()
            evidence = Evidence(place, runtime=clock)
            for number in range(first, len(case.acts)):
                note(Note("doing", facts={"act": number}))
                case.take(evidence, clock, number)
                note(Note("done", facts={"act": number}))
        note(Note("visits", facts=executioner.told))

    done, doing, last = first, first - 1, Note("died")
    for note in forked(body, f"the keeper {case.seed}"):
        if note.kind in ("visits", "died"):
            last = note
        elif note.kind == "doing":
            doing = note.facts["act"]
        elif note.kind == "done":
            done = note.facts["act"] + 1
    return done, max(doing + 1, done), last


def kill_keepers_of_evidence(folder: str, seed: int, share: float) -> dict[str, int]:
    """Kill keepers at a share of all crash points that a script comes to, half pages included.

    At each point that it comes to by name one dies at least, however few visits are drawn. Every
    second one is followed by another that dies as well, while it makes up for the first.

    Returns:
        How many died at each point.

    Raises:
        Finding: evidence says what was not told, or lost what was.

    """
    rng = random.Random(f"keepers of evidence {seed}")
    case = _Case(f"{seed}", 12)
    counts: Counter[str] = Counter()
    rehearsal = os.path.join(folder, "rehearsal")
    os.mkdir(rehearsal, 0o700)
    *_, last = _perform(case, rehearsal, 0, Death())
    places = [Death(ANY, visit + 1) for visit in range(last.facts[ANY])]
    places += [Death(SQLITE_HALF, visit + 1) for visit in range(last.facts["vfs.write"])]
    named = [(point, visits) for point, visits in last.facts.items() if point != ANY and visits]
    chosen = [Death(point, rng.randint(1, visits)) for point, visits in named]
    for death in [*chosen, *rng.sample(places, max(1, round(len(places) * share)))]:
        place = os.path.join(folder, f"{death.point} {death.visit}")
        os.mkdir(place, 0o700)
        deaths = [death]
        if rng.random() < 0.5:
            deaths.append(_second(rng))
        try:
            _die(case, place, deaths, counts)
        except (Finding, PerdureError) as error:
            raise Finding(f"script {case.seed}, {deaths}: {error}") from error
        shutil.rmtree(place)
    return dict(counts)


def _second(rng: random.Random) -> Death:
    """A death of whoever makes up for the first: a journal is removed by nobody but him."""
    anywhere = Death(ANY, rng.randrange(1, _SECOND_DEATH))
    return rng.choice([anywhere, anywhere, Death("vfs.delete", 1), Death("vfs.deleted", 1)])


def _die(case: _Case, place: str, deaths: Sequence[Death], counts: Counter[str]) -> None:
    first = 0
    may: list[Sequence[int]] = [()]
    for death in deaths:
        done, after, last = _perform(case, place, first, death)
        counts[last.facts["point"] if last.kind == "died" else "finished"] += 1
        may = [range(done), range(after)]
        case.check_readers(place, may)
        copy = f"{place}.copy"
        shutil.copytree(place, copy)
        first = len(case.check_writers(copy, may))
        shutil.rmtree(copy)
    case.go_on(place, case.check_writers(place, may))


# --- loss of power -------------------------------------------------------------------------------


def replay_evidence(folder: str, seed: int, histories: int, *, sync: bool = True) -> dict[str, int]:
    """Cut the power at places of a script until `histories` of them were checked.

    Without `sync`, SQLite works with fsync switched off, which must end in a Finding.

    Returns:
        How many images there were of each policy.

    Raises:
        Finding: evidence lost what it had acknowledged, or says what was not told.

    """
    rng = random.Random(f"evidence without power {seed}")
    counts: Counter[str] = Counter()
    script = 0
    while counts["histories"] < histories:
        case = _Case(f"{seed}:{script}", 8)
        place = os.path.join(folder, f"{script}")
        os.mkdir(place, 0o700)
        notes = _record(case, place, rng, sync=sync)
        disk, done, doing = Disk(os.stat(place).st_ino), 0, 0
        for at, note in enumerate(notes):
            if note.kind == "operation":
                disk.take(note.session, note.facts)
                counts["histories"] += 1
                for files in rng.sample(FILE_POLICIES, 2):
                    policy = Policy(files, rng.choice(ENTRY_POLICIES))
                    image = disk.image(policy, random.Random(f"{case.seed} {at}"))
                    may = [range(done), range(max(doing + 1, done))]
                    try:
                        _check_image(case, image, f"{place}.image", may)
                    except (Finding, PerdureError) as error:
                        raise Finding(f"{case.seed}, place {at}, {policy}: {error}") from error
                    counts[f"{files} files"] += 1
            elif note.kind == "doing":
                doing = note.facts["act"]
            else:
                done = note.facts["act"] + 1
        shutil.rmtree(place)
        script += 1
    return dict(counts)


def _record(case: _Case, place: str, rng: random.Random, *, sync: bool) -> list[Note]:
    notes: list[Note] = []

    def observer(kind: str, **facts: Any) -> None:
        notes.append(Note("operation", kind, facts=facts))

    clock = _Clock()
    evidence = Evidence(place, runtime=clock)
    try:
        with standing_between(to_disk=False):
            crash.arm(observer=observer, without_sync=not sync)
            for number in range(len(case.acts)):
                notes.append(Note("doing", facts={"act": number}))
                case.take(evidence, clock, number)
                notes.append(Note("done", facts={"act": number}))
                if rng.random() < 0.2:
                    # Readers change nothing.
                    _dump(evidence)
    finally:
        crash.arm()
    return notes


def _check_image(
    case: _Case, image: dict[str, bytes | None], place: str, may: Sequence[Sequence[int]]
) -> None:
    lay_out(image, place)
    try:
        # The checks write on images, whose own durability is nobody's concern.
        with standing_between(to_disk=False):
            case.check_readers(place, may)
            case.go_on(place, case.check_writers(place, may))
    finally:
        shutil.rmtree(place)


# --- a failing disk ------------------------------------------------------------------------------


def fail_evidence(folder: str, seed: int, runs: int) -> dict[str, int]:
    """Let a call of SQLite's fail in `runs` ways, and look at what evidence says then.

    Half of the runs begin where a keeper died in a commit, so that rolling back fails as well.

    Returns:
        How many runs there were of each kind and code, and how often each error came out.

    Raises:
        Finding: a foreign exception, or evidence that is lost or wrong.

    """
    rng = random.Random(f"failing evidence {seed}")
    counts: Counter[str] = Counter()
    case = _Case(f"{seed}", 10)
    begins: list[_Begin] = []
    for name, death in (("broken off", Death("vfs.truncate", 2)), ("new", Death(ANY))):
        place = os.path.join(folder, name)
        os.mkdir(place, 0o700)
        done, _, _ = _perform(case, place, 0, death)
        counting = FaultyFiles()
        begin = _Begin(place, done, counting.seen)
        _fail(case, begin, os.path.join(folder, "rehearsal"), counting, Counter())
        begins.append(begin)
    cells = [
        (kind, code, lasting, begin)
        for begin in begins
        for lasting in (True, False)
        for kind in SQLITE_CALLS
        for code in (*CODES, *([SHORT] if kind in ("sqlite read", "sqlite write") else []))
        if begin.seen[kind]
    ]
    for number in range(runs):
        kind, code, lasting, begin = cells[number % len(cells)]
        fault = Fault(kind, rng.randrange(begin.seen[kind]) + 1, code, lasting)
        try:
            _fail(case, begin, os.path.join(folder, f"{number}"), FaultyFiles(fault), counts)
        except Finding as finding:
            finding.add_note(f"script {case.seed}, {fault}, begun from {begin.place}")
            raise
        counts[f"{kind}/{code}"] += 1
    return dict(counts)


class _Begin(NamedTuple):
    """Where a run begins: a folder, how many acts were told in it, how often each call came."""

    place: str
    done: int
    seen: Counter[str]


def _fail(
    case: _Case, begin: _Begin, place: str, system: FaultySystem, counts: Counter[str]
) -> None:
    rng = random.Random(f"{case.seed} {system.fault}")
    shutil.copytree(begin.place, place)
    clock = _Clock()
    evidence = Evidence(place, runtime=clock)
    may: list[tuple[int, ...]] = [(*range(begin.done),)]
    uncertain = 0
    with system:
        for number in range(begin.done, len(case.acts)):
            after = [(*done, number) for done in may]
            try:
                case.take(evidence, clock, number)
            except PerdureError as error:
                counts[error.code] += 1
                if error.code not in _REFUSALS or not (error.hint and system.fired):
                    raise Finding(f"{case.acts[number].name} said {error!r}") from error
                if os.path.lexists(os.path.join(place, NAME)):
                    # It may be there only now, and where it is, forgetting leaves a mark.
                    may = [(*done, ~number) for done in may]
                may += after
                uncertain += 1
            except Exception as error:
                raise Finding(f"a foreign exception: {error!r}") from error
            else:
                may = after
            if uncertain >= _UNCERTAIN_MAX:
                system.lift()
            if evidence.set_aside and not _zeroed(system):
                raise Finding(f"{evidence.set_aside} was taken for damaged after {system.fault}")
            if evidence.set_aside:
                break
            if system.fired and rng.random() < 0.5:
                with suppress(PerdureError):
                    (case.check_truth if _zeroed(system) else case.check_readers)(place, may)
        system.lift()
    (case.check_truth if _zeroed(system) else case.check_writers)(place, may)
    shutil.rmtree(place)


def _zeroed(system: FaultySystem) -> bool:
    """Whether SQLite was shown zeros in place of half a page, which it may write back."""
    fault = system.fault
    return fault is not None and (fault.kind, fault.code) == ("sqlite read", SHORT)
