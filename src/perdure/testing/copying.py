"""Killed copiers: processes that die while they copy a store, and what is left on both sides.

A child copies a store with all that can stand in one to another medium, and is killed by SIGKILL at
the k-th crash point that it comes to, or in the middle of its k-th write; where a store is to be
continued, an older copy with a torn tail is there before. Then both stores are looked at, another
child may die over what the first one left, and the copy is made to its end.

`kill_copiers` forks: see `perdure.testing.crash`.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from perdure.errors import PerdureError, SessionDamaged
from perdure.model.header import Parent
from perdure.model.record import Position, decode_line
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Copied, copying
from perdure.store.content import References
from perdure.store.store import Store, open_store
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
from perdure.testing.keeping import places, without_waiting
from perdure.testing.ledger import Finding, Note

__all__ = ["KINDS", "SCENES", "kill_copiers", "open_any"]

KINDS = ("zst", "raw", "sqlite", "bundle")
"""Media that are copied to."""

SCENES = ("new", "continued")
"""Whether the destination is new, or an older copy is there."""

_BATCH_RECORDS = 4
_TENANT = ("tenant", "user")
_TORN = b'{"seq":7,"prev":"torn'


def open_any(path: str, kind: str, runtime: Runtime) -> Store:
    """A store of this kind: the opener that the harness uses where none is named."""
    if kind in ("zst", "raw"):
        return open_store(path, encoding=kind, runtime=runtime, index=False)
    return open_store(
        f"{kind}:{path}{'.perdure' if kind == 'bundle' else ''}", runtime=runtime, index=False
    )


# --- what is copied ------------------------------------------------------------------------------


def _write_half(path: str) -> None:
    """A store in an early state, of plain lines."""
    with open_store(path, encoding="raw", index=False) as store:
        for space in (store, store.namespace(*_TENANT)):
            with space.create("long", cwd="/srv") as session:
                for number in range(5):
                    session.append(
                        "note", {"number": number, "blob": session.put_blob(b"%d" % number)}
                    )
                    session.append_many(
                        [{"type": "assistant/delta", "data": {"text": f"{n}"}} for n in range(5)]
                    )
        with store.create("open", parent=Parent("long", 2), origin="subagent", depth=1) as session:
            session.append("turn/start", {}, turn="t")
            session.append("tool/call", {"id": "c", "name": "bash", "arguments": {}}, turn="t")
        for name in ("accepted", "gone", "kept out", "purged", "trashed"):
            with store.create(name) as session:
                session.append_many([{"type": "note", "data": number} for number in range(3)])


def _write_rest(path: str) -> None:
    """What came later: more events and content, what expired, was deleted, damaged, accepted."""
    with open_store(path, index=False) as store:
        for space in (store, store.namespace(*_TENANT)):
            with space.writer("long") as session:
                for number in range(7):
                    blob = session.put_blob(b"%d more" % number * 1000)
                    session.append("note", {"number": number, "blob": blob})
            space.expire("long", keep_last=4)
        with store.create("late") as session:
            session.append("note", {"blob": session.put_blob(b"late")})
        store.delete("purged")
        store.empty_trash()
        store.delete("trashed")
        logs = {name: str(store.locate(name)) for name in ("accepted", "gone", "kept out", "open")}
    shutil.rmtree(os.path.dirname(logs["gone"]))
    with open(logs["accepted"], "r+b") as log:
        log.truncate(sum(map(len, log.readlines()[:-1])))
    with open(logs["kept out"], "r+b") as log:
        log.seek(-20, os.SEEK_END)
        log.write(b"#")
    with open(logs["open"], "ab") as log:
        log.write(_TORN)
    with open_store(path, index=False) as store:
        store.accept("accepted")


class _Session(NamedTuple):
    """One session of the source.

    Attributes:
        digest: of its header.
        lines: header and records as they are stored.
        positions: after each of its records.
        end: after the last one.
        content: digests of what is stored beside it.

    """

    digest: str
    lines: tuple[bytes, ...]
    positions: frozenset[Position]
    end: Position
    content: frozenset[str]


_Name = tuple[tuple[str, ...], str]


class _Source:
    """The store that is copied, and what it holds."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.bytes = _bytes_below(path)
        self.sessions: dict[_Name, _Session] = {}
        with open_store(path, index=False) as store:
            for parts in ((), _TENANT):
                space = store.namespace(*parts)
                for entry in space.list():
                    if space.verify(entry.id).sound and entry.header is not None:
                        self.sessions[parts, entry.id] = _session(space, entry.id)
            self.remembered = _remembered(store)

    def check_untouched(self) -> None:
        if _bytes_below(self.path) != self.bytes:
            raise Finding("copying changed the store that was copied")


def _bytes_below(path: str) -> dict[str, bytes]:
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                found[os.path.relpath(file.name, path)] = file.read()
    return found


def _session(space: Store, id: str) -> _Session:
    header = space.inspect(id).header
    verified = space.inspect(id).verified
    if header is None or verified is None:
        raise Finding(f"{id} has no header")
    first, *rest = [line for line in space.raw(id) if isinstance(line, bytes)]
    records = [line for line in rest if line.endswith(b"\n")]
    positions = [decode_line(line).position for line in records]
    end = positions.index(verified) + 1
    content = frozenset(blob.digest for blob in space.blobs(id))
    return _Session(
        header.digest, (first, *records[:end]), frozenset(positions[:end]), verified, content
    )


def _remembered(store: Store) -> dict[str, Any]:
    """What evidence says of sessions that are not stored, and what was accepted."""
    witness = store._witness  # noqa: SLF001 - no call tells all of it
    known = witness.evidence
    return {
        "deleted": {one.session: one.deleted_at for one in known.all_deleted(witness.namespace)},
        "missing": {one.id: one.position for one in store.missing()},
        "accepted": known.acceptances(witness.namespace, "accepted"),
    }


# --- one death -----------------------------------------------------------------------------------


class _Run(NamedTuple):
    """One copy that dies.

    Attributes:
        kind: the medium of the destination.
        scene: one of `SCENES`.
        deaths: when the first child dies, and the second, if there is one.

    """

    kind: str
    scene: str
    deaths: tuple[Death, ...]
    opener: Opener

    def __str__(self) -> str:
        """What repeats it."""
        return f"{self.scene} {self.kind}, {self.deaths}"


class _Stage:
    """A source, and the destinations that children die on."""

    def __init__(self, folder: str, bases: str, source: _Source) -> None:
        self.folder = folder
        self.bases = bases
        self.source = source
        self.counts: Counter[str] = Counter()

    def perform(self, run: _Run) -> dict[str, Any]:
        """Copy with all deaths, check, and copy to the end; the visits of the last child."""
        place = os.path.join(self.folder, "run")
        base = os.path.join(self.bases, run.kind)
        if run.scene == "continued" and os.path.isdir(base):
            shutil.copytree(base, place)
        else:
            os.mkdir(place, 0o700)
        visits: dict[str, Any] = {}
        try:
            for death in run.deaths:
                for note in forked(partial(self._copy, run, death), f"the copier of {run}"):
                    if note.kind == "visits":
                        visits = note.facts
                    if note.kind == "died":
                        self.counts[f"{note.facts['point']} {run.kind}"] += 1
                        self.counts[f"scene {run.scene} {run.kind}"] += 1
                self.source.check_untouched()
                with self._open(run) as target:
                    self._check_between(target)
            self._finish(run)
        except PerdureError as error:
            raise Finding(f"{run}: {error}") from error
        except Finding as finding:
            finding.add_note(str(run))
            raise
        shutil.rmtree(place)
        return visits

    def _open(self, run: _Run) -> Store:
        return run.opener(os.path.join(self.folder, "run", "target"), run.kind, SYSTEM)

    def _copy(self, run: _Run, death: Death, note: Callable[[Note], None]) -> None:
        rehearsal = death == Death()
        executioner = Executioner(death, note, observer=_ignore if rehearsal else None)
        with open_store(self.source.path, index=False) as source, self._open(run) as target:
            executioner.arm()
            source.copy_all(target)
        halves = {half: executioner.told[half] for half in (HALF, SQLITE_HALF)}
        facts = {"names": executioner.names, "fresh": executioner.fresh, "halves": halves}
        note(Note("visits", facts=facts))

    # --- afterwards ------------------------------------------------------------------------------

    def _check_between(self, target: Store) -> None:
        """What a dead copier left is the beginning of the source, sound, and accuses nobody."""
        for parts in [(), *_namespaces(target)]:
            space = target.namespace(*parts)
            for entry in space.list():
                if entry.header is None or (parts, entry.id) not in self.source.sessions:
                    raise Finding(f"{entry.id} is there: {entry.problem}")
                self._check_beginning(space, entry.id, self.source.sessions[parts, entry.id])
        found = _remembered(target)
        if not found["missing"].items() <= self.source.remembered["missing"].items():
            raise Finding(f"{found['missing']} is called missing")

    def _check_beginning(self, space: Store, id: str, source: _Session) -> None:
        report = space.verify(id)
        header = space.inspect(id).header
        if not report.sound or header is None or header.digest != source.digest:
            raise Finding(f"{id}: {report}")
        if report.position not in source.positions:
            raise Finding(f"{id} stands at {report.position}, where the source never stood")
        stored = {blob.digest for blob in space.blobs(id)}
        for digest in stored:
            space.blob(id, digest)
        named = _Named(space, id, source.content)
        if not named.found <= stored:
            raise Finding(f"{id} names content before it is there: {named.found - stored}")
        self.counts["beginnings"] += report.position != source.end

    def _finish(self, run: _Run) -> None:
        """Copied to the end, it is as if nobody had died; once more, and nothing happens."""
        with open_store(self.source.path, index=False) as source, self._open(run) as target:
            outcomes = source.copy_all(target)
        failed = [each for each in outcomes if not isinstance(each, Copied)]
        if [(each.session, type(each.error)) for each in failed] != [("kept out", SessionDamaged)]:
            raise Finding(f"not copied: {failed}")
        with self._open(run) as target:
            for (parts, id), wanted in self.source.sessions.items():
                found = _session(target.namespace(*parts), id)
                if found != wanted:
                    raise Finding(f"{id} is not equal: {found.positions ^ wanted.positions}")
            remembered = _remembered(target)
            if remembered != self.source.remembered:
                raise Finding(f"{remembered} is remembered, not {self.source.remembered}")
        with open_store(self.source.path, index=False) as source, self._open(run) as target:
            again = [each for each in source.copy_all(target) if isinstance(each, Copied)]
        if {(each.status, each.events, each.blobs) for each in again} != {("unchanged", 0, 0)}:
            raise Finding(f"copied again: {again}")
        self.source.check_untouched()


class _Named(References):
    """Which content of the source the events of a log name."""

    def __init__(self, space: Store, id: str, content: frozenset[str]) -> None:
        backend = space._backend  # noqa: SLF001 - what it is built on
        super().__init__(backend, id)
        self._names = {digest.encode(): digest for digest in content}
        self.found: set[str] = set()
        for piece in backend.scan(id, backend.stored(id).begin):
            for line in piece.lines:
                self.found.update(self._named(line))


def _namespaces(store: Store) -> Iterator[tuple[str, ...]]:
    for part in store.namespaces():
        yield (part,)
        yield from ((part, *more) for more in _namespaces(store.namespace(part)))


def _ignore(kind: str, **facts: Any) -> None:
    """Nobody asks what changed."""


# --- all of them ---------------------------------------------------------------------------------


def kill_copiers(
    folder: str,
    seed: int,
    share: float,
    *,
    kinds: Sequence[str] = KINDS,
    every_point: bool = False,
    opener: str = "perdure.testing.copying:open_any",
) -> dict[str, int]:
    """Kill copiers at a share of all places, and check both stores after each death.

    With a share of 1.0, at every visit of a crash point that follows a change, and in the middle of
    every write; with `every_point`, at each point at least once. One in three is followed by
    another death, at a random visit.

    Exact: the source has the same bytes as before; every session in the destination is sound and a
    beginning of the one in the source, none before its content; the next copy ends as if nobody had
    died, with the same records, content and evidence, and the one after it does nothing.

    Returns:
        How many died at each point and kind, and in each scene; how many beginnings were seen.

    Raises:
        Finding: with the copy that it happened to.

    """
    open_target: Opener = load(opener)
    rng = random.Random(f"copiers {seed}")
    usual, copying.BATCH_RECORDS = copying.BATCH_RECORDS, _BATCH_RECORDS
    try:
        with without_waiting():
            stage = _prepared(folder, kinds, open_target)
            for kind in kinds:
                for scene in SCENES:
                    rehearsal = _Run(kind, scene, (Death(),), open_target)
                    _kill(stage, rehearsal, rng, share, every_point=every_point)
    finally:
        copying.BATCH_RECORDS = usual
    return dict(stage.counts)


def _prepared(folder: str, kinds: Sequence[str], opener: Opener) -> _Stage:
    """The source, and for each kind a destination to which its first half was copied."""
    path, bases = os.path.join(folder, "source"), os.path.join(folder, "bases")
    _write_half(path)
    os.mkdir(bases, 0o700)
    for kind in kinds:
        base = os.path.join(bases, kind)
        os.mkdir(base, 0o700)
        with (
            open_store(path, index=False) as source,
            opener(os.path.join(base, "target"), kind, SYSTEM) as target,
        ):
            for parts in ((), _TENANT):
                source.namespace(*parts).copy("long", target.namespace(*parts))
            log = target.locate("long")
        if kind in ("zst", "raw"):
            with open(str(log), "ab") as file:
                file.write(_TORN)
    _write_rest(path)
    return _Stage(folder, bases, _Source(path))


def _kill(
    stage: _Stage, rehearsal: _Run, rng: random.Random, share: float, *, every_point: bool
) -> None:
    visits = stage.perform(rehearsal)
    names = visits["names"]
    found = places(rng, **visits)
    chosen = rng.sample(found, max(1, round(len(found) * share)))
    if every_point:
        struck = {names[each.visit - 1] for each in chosen if each.point == ANY}
        chosen += [Death(ANY, names.index(name) + 1) for name in {*names} - struck]
    for death in sorted(chosen):
        deaths = [death]
        if rng.random() < 1 / 3:
            deaths.append(Death(ANY, rng.randint(1, len(names))))
        stage.perform(rehearsal._replace(deaths=tuple(deaths)))
