"""Killed importers: processes that die while they bring a store up to date, and what is left.

A child runs `perdure.importers.sync` over a folder of sources and is killed by SIGKILL: at a named
crash point, in the middle of its n-th write, or by its parent after its k-th acknowledgement. Among
the sources are samples that the caller gives, and some that grew, were rewritten, lost their end,
came back or are gone since an earlier import, compressed or not; one gained a line of 17 MiB.

What has to hold after each death, and in the end, is said by `kill_importers`. It forks: see
`perdure.testing.crash`.
"""

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import dropwhile
from typing import Any, NamedTuple

import msgspec

from perdure.errors import PerdureError
from perdure.importers import ImportReport, Progress, SourceReport, source_text, sync
from perdure.importers.source import FOUND, GONE, TITLED
from perdure.importers.stored_lines import source_bytes
from perdure.lenses.lines import SourceLines
from perdure.model import values
from perdure.model.event import Event
from perdure.runtime import SYSTEM, Runtime
from perdure.store.session import Session
from perdure.store.store import Store
from perdure.testing.agents import ScriptedRuntime
from perdure.testing.copying import open_any
from perdure.testing.crash import ANY, HALF, SQLITE_HALF, Death, Executioner, Opener, forked, load
from perdure.testing.keeping import without_waiting
from perdure.testing.ledger import Finding, Note
from perdure.testing.sources import STATES, Sources
from perdure.testing.survival import check_evidence

__all__ = ["KINDS", "SCENES", "kill_importers", "open_any"]

KINDS = ("zst", "raw", "sqlite")
"""Media that are imported into."""

SCENES = ("new", "changed")
"""Whether the store is new, or holds what the sources were before."""

_DEATHS_MAX = 3
_PINNED = "content/pinned"


# --- what an import leaves when nobody dies -------------------------------------------------------


class _Reference(NamedTuple):
    """What an uninterrupted import stores and says.

    Attributes:
        events: of each session, numbered 0 and without those that pin content, which may be more.
        ends: the number of the last event of each session.
        paths: the source of each session.
        told: of each source what is reported.

    """

    events: dict[str, list[Event]]
    ends: dict[str, int]
    paths: dict[str, str]
    told: dict[str, tuple[Any, ...]]


def _events(store: Store, id: str) -> tuple[int, list[Event]]:
    """How many events a session has, and those that are compared."""
    stored = [*store.read_from(id)]
    kept = (event for event in stored if event.type != _PINNED)
    return len(stored), [_compared(event) for event in kept]


def _compared(event: Event) -> Event:
    """An event but for its number and for when something was noticed, which no two runs share."""
    noticed = event.type in (FOUND, GONE)
    raw = values.encode({**event.data, "noticed_at": 0}) if noticed else event.raw
    return msgspec.structs.replace(event, seq=0, raw=raw)


def _reported(events: Sequence[Event]) -> int:
    """How many events are there when their source is reported: titles are brought behind that."""
    return len([*dropwhile(lambda event: event.type == TITLED, reversed(events))])


def _told(report: SourceReport) -> tuple[Any, ...]:
    """What must be the same however often an import was broken off."""
    gone = report.state == "gone"
    found = None if gone else (report.found, report.large, report.problem_count, report.problems)
    return report.format, report.session, gone, report.skipped, report.error, found


def _reference(store: Store, reports: Sequence[SourceReport] = ()) -> _Reference:
    paths: dict[str, str] = {}
    for entry in store.list():
        if entry.header is None or entry.header.source is None or not entry.header.source.path:
            raise Finding(f"{entry.id} says of no source that it keeps it: {entry.problem}")
        paths[entry.id] = entry.header.source.path
    events, ends = {}, {}
    for id in paths:
        many, events[id] = _events(store, id)
        ends[id] = many - 1
    if len({*paths.values()}) < len(paths):
        raise Finding(f"of one source are several sessions: {sorted(paths.items())}")
    return _Reference(events, ends, paths, {each.path: _told(each) for each in reports})


def _check_lines(fresh: _Reference, changed: _Reference) -> None:
    """The lines that hold after changes are those of a fresh import; only generations differ."""

    def held(id: str, events: Sequence[Event]) -> list[tuple[Any, ...]]:
        reads = SourceLines(id.partition(":")[0])
        return [
            (line.place.offset, line.event.type, line.event.time, line.event.raw)
            for line in reads.lines(events, reads.starts(events))
        ]

    for id, events in fresh.events.items():
        if held(id, events) != held(id, changed.events[id]):
            raise Finding(f"{id} does not hold the lines of a fresh import")


# --- one death ------------------------------------------------------------------------------------


class _Run(NamedTuple):
    """One import that is killed, and by what."""

    kind: str
    scene: str
    deaths: tuple[Death, ...]
    opener: Opener

    def __str__(self) -> str:
        """What repeats it."""
        return f"{self.scene} {self.kind}, {self.deaths}"


class _Heard:
    """What children said before they died.

    Attributes:
        stored: so many events of a session were acknowledged.
        done: the sessions of sources that were reported as imported.

    """

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()
        self.done: set[str] = set()

    def take(self, note: Note) -> None:
        if note.kind == "acknowledged":
            self.stored[note.session] = note.facts["events"]
        elif note.kind == "reported":
            self.done.add(note.session)


def _tell_appends(note: Callable[[Note], None]) -> None:
    """Let every writer of this process tell what was acknowledged to it."""

    def told(session: Session, last: Event) -> None:
        note(Note("acknowledged", session.id, facts={"events": last.seq + 1}))

    one, many = Session.append, Session.append_many

    def append(session: Session, *given: Any, **named: Any) -> Event:
        event = one(session, *given, **named)
        told(session, event)
        return event

    def append_many(session: Session, *given: Any, **named: Any) -> list[Event]:
        events = many(session, *given, **named)
        told(session, events[-1])
        return events

    setattr(Session, "append", append)  # noqa: B010 - a method of its own
    setattr(Session, "append_many", append_many)  # noqa: B010


class _Stage:
    """The sources, the stores that children die on, and what has to be in them."""

    def __init__(self, folder: str, samples: Sequence[str], rng: random.Random) -> None:
        self.folder = folder
        self.sources = Sources(os.path.join(folder, "sources"), samples, rng)
        self.references: dict[str, _Reference] = {}
        self.counts: Counter[str] = Counter()
        self.struck: Counter[str] = Counter()

    def prepare(self, kinds: Sequence[str], opener: Opener) -> None:
        """For each kind a store of what the sources were, and what has to become of it."""
        bases = [*dict.fromkeys((*kinds, "raw"))]
        for state in range(STATES - 1):
            self.sources.enter(state)
            for kind in bases:
                open_this = open_any if kind not in kinds else opener
                place = os.path.join(self.folder, f"base {kind}")
                os.makedirs(place, 0o700, exist_ok=True)
                target = os.path.join(place, "target")
                with without_waiting(), open_this(target, kind, SYSTEM) as store:
                    self._sync(store)
        self.sources.enter(STATES - 1)
        for scene in SCENES:
            run = _Run("raw", scene, (), open_any)
            with self._placed(run), without_waiting(), self._open(run) as store:
                report = self._sync(store)
                self.references[scene] = _reference(store, report.sources)
                self._check_texts(store, scene, {*self.references[scene].paths})
            reported = {each.path for each in report.sources if each.state != "gone"}
            if reported != self.sources.paths():
                raise Finding(f"passed over: {sorted(self.sources.paths() ^ reported)}")
            self.counts.update({f"{state} {scene}": n for state, n in report.states.items()})
        _check_lines(self.references["new"], self.references["changed"])

    def rehearse(self, run: _Run) -> dict[str, Any]:
        """Import in a child that comes to its end; what it visited."""
        with self._performed(run):
            return self._child(run, Death(), _Heard(), str(run))[1]

    def perform(self, run: _Run) -> None:
        """Import with all deaths, check after each, and import to the end."""
        heard = _Heard()
        half: set[str] = set()
        with self._performed(run):
            for number, death in enumerate(run.deaths):
                last, _ = self._child(run, death, heard, f"{run} {number}")
                if last.kind == "finished":
                    self.counts["finished"] += 1
                    break
                self.counts["kills"] += 1
                self.struck[last.facts["point"]] += 1
                self.counts[f"{last.facts['point'] or 'moment'} {run.kind}"] += 1
                self.counts[f"scene {run.scene} {run.kind}"] += 1
                self.counts["died more than once"] += number == 1
                self.sources.check_untouched()
                with self._open(run) as store:
                    half |= self._check_left(store, run, heard)
            self._finish(run, half)

    @contextmanager
    def _performed(self, run: _Run) -> Iterator[None]:
        try:
            with self._placed(run):
                yield
        except PerdureError as error:
            raise Finding(f"{run}: {error}") from error
        except Finding as finding:
            finding.add_note(str(run))
            raise

    @contextmanager
    def _placed(self, run: _Run) -> Iterator[None]:
        place = os.path.join(self.folder, "run")
        if run.scene == "changed":
            shutil.copytree(os.path.join(self.folder, f"base {run.kind}"), place)
        else:
            os.mkdir(place, 0o700)
        yield
        shutil.rmtree(place)

    def _open(self, run: _Run, runtime: Runtime = SYSTEM) -> Store:
        return run.opener(os.path.join(self.folder, "run", "target"), run.kind, runtime)

    def _sync(
        self, store: Store, progress: Callable[[Progress], None] | None = None
    ) -> ImportReport:
        return sync(store, [self.sources.root], progress=progress)

    # --- the child -------------------------------------------------------------------------------

    def _child(
        self, run: _Run, death: Death, heard: _Heard, seed: str
    ) -> tuple[Note, dict[str, Any]]:
        """Let a child import until it dies or ends; its last note, and what it visited."""
        pid, said, last = 0, 0, Note("died")
        visits: dict[str, Any] = {}
        for last in forked(partial(self._import, run, death, seed), f"the importer of {seed}"):
            heard.take(last)
            if last.kind == "begun":
                pid = last.facts["pid"]
            elif last.kind == "visits":
                visits = last.facts
            elif last.kind in ("acknowledged", "reported"):
                said += 1
                if said == death.acknowledgements:
                    os.kill(pid, signal.SIGKILL)
        return last, visits

    def _import(self, run: _Run, death: Death, seed: str, note: Callable[[Note], None]) -> None:
        executioner = Executioner(death, note)
        marks: list[int] = []

        def tell(one: Note) -> None:
            marks.append(executioner.visits[ANY])
            note(one)

        def progress(now: Progress) -> None:
            if now.last is not None and now.last.session is not None and now.last.error is None:
                tell(Note("reported", now.last.session))

        with without_waiting(), self._open(run, ScriptedRuntime(seed)) as store:
            _tell_appends(tell)
            executioner.arm()
            self._sync(store, progress)
        halves = {half: executioner.told[half] for half in (HALF, SQLITE_HALF)}
        note(Note("visits", facts={"names": executioner.names, "marks": marks, "halves": halves}))

    # --- afterwards ------------------------------------------------------------------------------

    def _check_left(self, store: Store, run: _Run, heard: _Heard) -> set[str]:
        """Each session is a sound beginning, with all that anybody was told; those not whole."""
        wanted = self.references[run.scene].events
        half: set[str] = set()
        found = {entry.id: entry for entry in store.list()}
        lost = (heard.stored.keys() | heard.done) - found.keys()
        if lost:
            raise Finding(f"{sorted(lost)} were acknowledged and are not there")
        for id, entry in found.items():
            if entry.header is None or id not in wanted:
                raise Finding(f"{id} is there: {entry.problem}")
            many, events = _events(store, id)
            if events != wanted[id][: len(events)]:
                raise Finding(f"{id} is no beginning of what an uninterrupted import stores")
            if many < heard.stored[id]:
                raise Finding(f"{id} holds {many} of {heard.stored[id]} acknowledged events")
            if id in heard.done and len(events) < _reported(wanted[id]):
                raise Finding(f"{id} was reported and holds {len(events)} of {len(wanted[id])}")
            if len(events) < len(wanted[id]):
                half.add(id)
            self._check_sound(store, id, events)
        _check_evidence(store)
        self.counts["beginnings"] += len(half)
        return half

    def _check_sound(self, store: Store, id: str, events: Sequence[Event]) -> None:
        report = store.verify(id)
        odd = [each for each in report.problems if each.kind not in ("record", "frame")]
        if report.status not in ("ok", "torn") or not report.sound or odd or report.later:
            raise Finding(f"{id}: {report}")
        self.counts["torn"] += report.torn
        named = {
            event.data["blob"]
            for event in events
            if isinstance(event.data, Mapping) and "blob" in event.data
        }
        there = {blob.digest for blob in store.blobs(id)}
        if not named <= there:
            raise Finding(f"{id} names content before it is there: {named - there}")

    def _finish(self, run: _Run, half: set[str]) -> None:
        """Imported to the end, it is as if nobody had died; once more, and nothing happens."""
        wanted = self.references[run.scene]
        with without_waiting(), self._open(run) as store:
            told = {each.path: _told(each) for each in self._sync(store).sources}
            odd = [path for path in wanted.told if told.get(path) != wanted.told[path]]
            if odd or told.keys() != wanted.told.keys():
                raise Finding(f"of {odd} is told {[told.get(path) for path in odd]}")
        with self._open(run) as store:
            found = _reference(store)
            if found.paths != wanted.paths:
                raise Finding(f"{found.paths} are sessions of sources, not {wanted.paths}")
            for id, events in found.events.items():
                if events != wanted.events[id]:
                    raise Finding(f"{id} is not what an uninterrupted import stores")
                if store.verify(id).status != "ok":
                    raise Finding(f"{id}: {store.verify(id)}")
            self._check_texts(store, run.scene, half)
            again = self._sync(store)
            if again.new or not {*again.states} <= {"unchanged", "gone", "skipped"}:
                raise Finding(f"imported again: {again.states}, {again.new} lines are new")
            positions = {entry.id: store.inspect(entry.id).position for entry in store.list()}
            if found.ends != {id: at and at.seq for id, at in positions.items()}:
                raise Finding("the import of what was imported stored something")
            _check_evidence(store)
        self.sources.check_untouched()

    def _check_texts(self, store: Store, scene: str, sessions: set[str]) -> None:
        """These sources come out as they are, and as they were before they were rewritten."""
        ids = {path: id for id, path in self.references[scene].paths.items()}
        texts = {text.path: text for text in self.sources.texts(new=scene == "new")}
        for path, id in ids.items():
            if id not in sessions:
                continue
            text = texts[path]
            if b"".join(source_text(store, id)) != text.last:
                raise Finding(f"{path} does not come out as it went in")
            first = (
                text.last
                if text.first is text.last
                else b"".join(source_text(store, id, generation=0))
            )
            if first != text.first:
                raise Finding(f"{path} does not come out as it was first")
            if text.file is not None and b"".join(source_bytes(store, id)) != text.file:
                raise Finding(f"the compressed {path} does not come out as it went in")


def _check_evidence(store: Store) -> None:
    # Who died in a commit of evidence leaves that to the next writer, if there is any.
    if store.evidence().unreadable is None:
        check_evidence(store)


# --- all of them ----------------------------------------------------------------------------------


class _Deaths:
    """Where to die: at each kind of place, between two acknowledgements, or behind one."""

    def __init__(
        self,
        rng: random.Random,
        names: Sequence[str],
        marks: Sequence[int],
        halves: Mapping[str, int],
    ) -> None:
        """`names` are those of all visits, `marks` the visits before each acknowledgement."""
        self._rng = rng
        self._names = names
        self._marks = marks
        self._halves = halves
        self._kinds = [*sorted({*names}), *(half for half, many in halves.items() if many)]

    def first(self, struck: Counter[str]) -> Death:
        """Mostly at a kind of place at which fewest died."""
        if self._rng.random() < 0.25:
            return self.further()
        self._rng.shuffle(self._kinds)
        return self._at(min(self._kinds, key=lambda kind: struck[kind]))

    def further(self) -> Death:
        """Around an acknowledgement."""
        # Most visits are pages of the one large line: so not every visit is as likely.
        at = self._rng.randrange(1, len(self._marks))
        if self._rng.random() < 0.5 and self._marks[at] > self._marks[at - 1]:
            return Death(ANY, self._rng.randint(self._marks[at - 1] + 1, self._marks[at]))
        return Death(acknowledgements=at)

    def _at(self, kind: str) -> Death:
        if kind in self._halves:
            return Death(kind, self._rng.randrange(self._halves[kind]) + 1)
        visits = [at for at, name in enumerate(self._names, 1) if name == kind]
        return Death(ANY, self._rng.choice(visits))


def kill_importers(
    folder: str,
    seed: int,
    kills: int,
    *,
    samples: Sequence[str] = (),
    kinds: Sequence[str] = KINDS,
    opener: str = "perdure.testing.importing:open_any",
) -> dict[str, int]:
    """Kill at least `kills` importers, by turns on each kind and scene, and check what each leaves.

    `samples` are folders of source files, which are copied.

    Exact: after each death every session is sound and a beginning of what an uninterrupted import
    stores, with the content that it names; it holds all that was acknowledged, and whole what was
    reported; the sources have the same bytes and times as before. The import that comes to its end
    leaves one session for each source, equal to that of an uninterrupted one but for events that
    pin content; each source comes out of it byte for byte; and the import after it stores nothing.

    Returns:
        How many died ("kills"), at which point and kind, in each scene, and more than once; how
        many came to their end before ("finished"); how many sessions were seen half imported
        ("beginnings") and torn; the sources of each scene, by what an import says of them.

    Raises:
        Finding: with the import that it happened to.

    """
    open_target: Opener = load(opener)
    rng = random.Random(f"importers {seed}")
    turns = [(kind, scene) for kind in kinds for scene in SCENES]
    rng.shuffle(turns)
    deaths: dict[tuple[str, str], _Deaths] = {}
    stage = _Stage(folder, samples, rng)
    stage.prepare(kinds, open_target)
    number = 0
    while stage.counts["kills"] < kills:
        kind, scene = turns[number % len(turns)]
        if (kind, scene) not in deaths:
            visits = stage.rehearse(_Run(kind, scene, (Death(),), open_target))
            deaths[kind, scene] = _Deaths(rng, **visits)
        draws = deaths[kind, scene]
        more = [draws.further() for _ in range(rng.randrange(_DEATHS_MAX))]
        stage.perform(_Run(kind, scene, (draws.first(stage.struck), *more), open_target))
        number += 1
    return dict(stage.counts)
