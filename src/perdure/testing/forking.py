"""Killed forkers: processes that die, or lose the power, while they fork a session.

A child forks a session that has content, a packed run where the fork cuts, and a job that runs; it
is killed by SIGKILL at the k-th crash point that it comes to, or in the middle of its k-th write.
Whatever is left, the parent is as it was, and the fork is there, whole, or it is not there at all;
then it is made again. For a loss of power the same is asked of every disk that may be left.

Both functions fork processes: see `perdure.testing.crash`.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from perdure.backends.directory import holding
from perdure.durable import crash
from perdure.errors import PerdureError
from perdure.runtime import SYSTEM
from perdure.store import Store
from perdure.testing.copying import KINDS
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
from perdure.testing.keeping import places, without_waiting
from perdure.testing.ledger import Finding, Note
from perdure.testing.powerloss import draw_policies, lay_out

__all__ = ["black_out_forks", "kill_forkers"]

_PARENT, _CHILD = "parent", "child"
_PLACE = 15
"""Within the packed run, behind both turns, while the job runs."""

_BATCH_BYTES = 600
"""A log is built in parts of this size, so that some die between them."""

_NOTHING = Policy("dropped", "dropped")
"""Nothing is left of what was not synced."""


def _write_parent(store: Store) -> None:
    with store.create(_PARENT, cwd="/srv", config={"model": "m"}) as session:
        for name in ("a", "b"):
            blob = session.put_blob(name.encode() * (200_000 if name == "b" else 50))
            session.append("turn/start", {}, turn=name)
            session.append("user/message", {"content": [{"type": "image", "blob": blob}]}, key=name)
            session.append_many(
                {"type": "assistant/delta", "data": {"text": f"{n}"}, "turn": name}
                for n in range(3)
            )
            session.append("turn/end", {"reason": "completed"}, turn=name)
        session.append("job/start", {"id": "j"})
        session.append_many([{"type": "note", "data": {"text": f"{n}"}} for n in range(9)])
        session.append("note", {"blob": session.put_blob(b"behind the place")})


class _Parent(NamedTuple):
    """What must be left of the parent, and found again in the child.

    Attributes:
        lines: header and records.
        content: digest and bytes of what is stored beside them.
        inherited: what the child has of the events, as they are shown.
        wanted: digests that these events name.

    """

    lines: tuple[object, ...]
    content: dict[str, bytes]
    inherited: list[dict[str, Any]]
    wanted: set[str]


def _look(store: Store) -> _Parent:
    events = [event.as_dict() for event in store.read_from(_PARENT)][: _PLACE + 1]
    content = {blob.digest: store.blob(_PARENT, blob.digest) for blob in store.blobs(_PARENT)}
    told = str(events)
    wanted = {digest for digest in content if digest in told}
    return _Parent(tuple(store.raw(_PARENT)), content, events, wanted)


def _check(store: Store, parent: _Parent, *, told: bool) -> bool:
    """Whether the child is there; it must be if it was told.

    Raises:
        Finding: the parent changed, or the child is there in part.

    """
    if _look(store) != parent or not store.verify(_PARENT).sound:
        raise Finding("the parent is not what it was")
    there = [entry.id for entry in store.list()]
    missing = [each.id for each in store.missing()]
    if not {*there} <= {_PARENT, _CHILD} or missing:
        raise Finding(f"{there} are there, {missing} are missing")
    if _CHILD not in there:
        if told:
            raise Finding("a fork that was told is not there")
        return False
    _check_child(store, parent)
    return True


def _check_child(store: Store, parent: _Parent) -> None:
    report, header = store.verify(_CHILD), store.inspect(_CHILD).header
    if not report.sound or report.problems or header is None:
        raise Finding(f"the child is not sound: {report}")
    events = [event.as_dict() for event in store.read_from(_CHILD)]
    own = events[_PLACE + 1 :]
    if events[: _PLACE + 1] != parent.inherited:
        raise Finding("the child does not begin with the events of its parent")
    if [each["type"] for each in own] != ["session/forked", "job/end"]:
        raise Finding(f"the child has events of its own: {own}")
    if own[0]["data"] != {"header": header.digest, "session": _PARENT, "seq": _PLACE}:
        raise Finding(f"the child is not forked as its header says: {own[0]}")
    stored = {blob.digest for blob in store.blobs(_CHILD)}
    if stored != parent.wanted:
        raise Finding(f"the child has the content {stored}, not {parent.wanted}")
    for digest in stored:
        if store.blob(_CHILD, digest) != parent.content[digest]:
            raise Finding(f"the child has other bytes as {digest}")


def _finish(store: Store, parent: _Parent) -> None:
    """Make the fork if it is not there, and go on in it."""
    if _CHILD not in {entry.id for entry in store.list()}:
        store.fork(_PARENT, _PLACE, new_id=_CHILD).close()
        _check(store, parent, told=True)
    with store.writer(_CHILD) as session:
        if session.append("note", "on").seq != _PLACE + 3:
            raise Finding("the child does not go on where it ends")
    if not store.verify(_CHILD).sound or _look(store) != parent:
        raise Finding("going on in the child did harm")


@contextmanager
def _small_parts() -> Iterator[None]:
    part = "MERGED_PLAIN"
    usual = getattr(holding, part)
    setattr(holding, part, _BATCH_BYTES)
    try:
        with without_waiting():
            yield
    finally:
        setattr(holding, part, usual)


class _Medium(NamedTuple):
    """Where it happens.

    Attributes:
        folder: a folder for all of it.
        kind: one of `KINDS`.

    """

    folder: str
    kind: str
    opener: Opener

    def inside(self, name: str) -> str:
        """A folder in the folder."""
        return os.path.join(self.folder, name)

    def open(self, name: str) -> Store:
        """The store in one of them."""
        return self.opener(os.path.join(self.folder, name, "store"), self.kind, SYSTEM)


def _ignore(kind: str, **facts: Any) -> None:
    """Nobody asks what changed."""


def _fork(
    store: Callable[[], Store], death: Death, note: Callable[[Note], None], **how: Any
) -> None:
    """In a process of its own: fork, tell of it, and go on for a moment."""
    executioner = Executioner(death, note, **how)
    with store() as opened:
        executioner.arm()
        with opened.fork(_PARENT, _PLACE, new_id=_CHILD):
            note(Note("told", _CHILD))
    halves = {half: executioner.told[half] for half in (HALF, SQLITE_HALF)}
    facts = {"names": executioner.names, "fresh": executioner.fresh, "halves": halves}
    note(Note("visits", facts=facts))


# --- deaths --------------------------------------------------------------------------------------


def kill_forkers(
    folder: str,
    seed: int,
    share: float,
    *,
    kinds: Sequence[str] = KINDS,
    opener: str = "perdure.testing.copying:open_any",
) -> dict[str, int]:
    """Kill forkers at a share of all places, and check parent and child after each death.

    With a share of 1.0, at every visit of a crash point that follows a change, and in the middle of
    every write; at each point at least once.

    Returns:
        How many died at each point and kind, and how often the child was there then ("whole") or
        not ("nothing").

    Raises:
        Finding: with the death that it happened to.

    """
    open_store: Opener = load(opener)
    rng = random.Random(f"forkers {seed}")
    counts: Counter[str] = Counter()
    with _small_parts():
        for kind in kinds:
            medium = _Medium(folder, kind, open_store)
            os.mkdir(medium.inside("base"), 0o700)
            with medium.open("base") as store:
                _write_parent(store)
                parent = _look(store)
            kill = partial(_kill, medium, parent)
            visits = kill(Death(), Counter())
            found = places(rng, **visits)
            chosen = {*rng.sample(found, max(1, round(len(found) * share)))}
            names = visits["names"]
            chosen |= {Death(ANY, names.index(name) + 1) for name in {*names}}
            for death in sorted(chosen):
                try:
                    kill(death, counts)
                except Finding as finding:
                    finding.add_note(f"{kind}, {death}")
                    raise
            counts[f"deaths {kind}"] = len(chosen)
            shutil.rmtree(medium.inside("base"))
    return dict(counts)


def _kill(medium: _Medium, parent: _Parent, death: Death, counts: Counter[str]) -> dict[str, Any]:
    run = medium.inside("run")
    shutil.copytree(medium.inside("base"), run)
    told, visits = False, dict[str, Any]()
    observer = None if death != Death() else _ignore
    opened = partial(medium.open, "run")
    for note in forked(partial(_fork, opened, death, observer=observer), "the forker"):
        told = told or note.kind == "told"
        if note.kind == "visits":
            visits = note.facts
        if note.kind == "died":
            counts[note.facts["point"]] += 1
    try:
        with opened() as store:
            counts["whole" if _check(store, parent, told=told) else "nothing"] += 1
            _finish(store, parent)
    except PerdureError as error:
        raise Finding(f"{error}") from error
    shutil.rmtree(run)
    return visits


# --- losses of power -----------------------------------------------------------------------------


def black_out_forks(
    folder: str,
    seed: int,
    share: float,
    *,
    kinds: Sequence[str] = KINDS,
    opener: str = "perdure.testing.copying:open_any",
) -> dict[str, int]:
    """Let the power go at a share of all crash points of a fork, and at the word that it is there.

    With a share of 1.0, at every visit of a crash point.

    Returns:
        For each kind, how often the child was whole, or not there.

    Raises:
        Finding: with the moment and what became of that which was not synced.

    """
    open_store: Opener = load(opener)
    rng = random.Random(f"blackouts of forks {seed}")
    counts: Counter[str] = Counter()
    with _small_parts():
        for kind in kinds:
            medium = _Medium(folder, kind, open_store)
            names = _black_out(medium, None, rng, counts)
            visits = range(1, len(names) + 1)
            for visit in sorted(rng.sample(visits, max(1, round(len(names) * share)))):
                _black_out(medium, visit, rng, counts)
    return dict(counts)


def _black_out(
    medium: _Medium, visit: int | None, rng: random.Random, counts: Counter[str]
) -> list[str]:
    """One fork, whose process dies with the power, or which comes to its end."""
    place, kind = medium.inside("film"), medium.kind
    os.mkdir(place, 0o700)
    opened = partial(medium.open, "film")
    disk = Disk(os.stat(place).st_ino)
    _follow(disk, partial(_begin, opened))
    with opened() as store:
        parent = _look(store)
    told, names = False, list[str]()

    def heard(note: Note) -> None:
        nonlocal told, names
        if note.kind == "told":
            told = True
            cut(note.kind)
        if note.kind == "visits":
            names = note.facts["names"]

    def cut(moment: object) -> None:
        for policy in (_NOTHING, *draw_policies(rng)[:2]):
            image = medium.inside("image")
            lay_out(disk.image(policy, random.Random(rng.getrandbits(32))), image)
            crash.arm(without_sync=True)
            try:
                with medium.open("image") as store:
                    whole = _check(store, parent, told=told)
                    counts[f"{'whole' if whole else 'nothing'} {kind}"] += 1
                    _finish(store, parent)
            except (Finding, PerdureError) as error:
                raise Finding(f"{kind} at {moment} {policy}: {error}") from error
            finally:
                crash.arm()
                shutil.rmtree(image)

    death = Death() if visit is None else Death(ANY, visit)
    _follow(disk, partial(_observed, opened, death), heard)
    cut(visit)
    shutil.rmtree(place)
    return names


def _follow(
    disk: Disk,
    body: Callable[[Callable[[Note], None]], None],
    heard: Callable[[Note], None] = lambda _: None,
) -> None:
    for note in forked(body, "the forker"):
        if note.kind == "operation":
            disk.take(note.session, note.facts)
        else:
            heard(note)


def _tell(note: Callable[[Note], None]) -> Callable[..., None]:
    return lambda kind, **facts: note(Note("operation", kind, facts=facts))


def _begin(store: Callable[[], Store], note: Callable[[Note], None]) -> None:
    Executioner(Death(), note, observer=_tell(note)).arm()
    with store() as opened:
        _write_parent(opened)


def _observed(store: Callable[[], Store], death: Death, note: Callable[[Note], None]) -> None:
    _fork(store, death, note, observer=_tell(note))
