"""What a scene must lead to, worked out a second time: from the script alone, without the store.

`World` is every session of a scene as it must be after a number of steps: where it is, its events,
its content. `check_world` holds a store against it after its player died at some place of a step:
each session stands before that step or after it, or at one of the places in between that the order
of writing allows.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from perdure.errors import ContentExpired, SessionDamaged, SessionExists, SessionNotFound
from perdure.model.event import Event, draft
from perdure.store.store import Store
from perdure.testing.ledger import Finding, Note
from perdure.testing.scenes import NEIGHBOUR, Part, Scene, Step, key_of, reference, time_of

__all__ = [
    "Heard",
    "Kept",
    "World",
    "check_blobs",
    "check_taken",
    "check_told",
    "check_trash",
    "check_whole",
    "check_world",
    "read_events",
    "taken",
    "worlds",
]

_BOOKS = ("content/expired", "content/pinned", "content/unpinned")


class Kept(NamedTuple):
    """One session as it must be.

    Attributes:
        place: nowhere, stored, trash, or purged (not there, and its id is taken).
        life: how often its id was given to a new session.
        log: its events.
        content: what is stored beside it, by digest.
        sound: False while an older copy stands in its place that nobody accepted yet.

    """

    place: str = "nowhere"
    life: int = 0
    log: tuple[Event, ...] = ()
    content: Mapping[str, bytes] = {}
    sound: bool = True

    @property
    def where(self) -> str:
        """Where a reader finds it: stored, trash or nowhere."""
        return "nowhere" if self.place == "purged" else self.place


_NOBODY = Kept()


class World:
    """Every session of a scene after a number of steps."""

    def __init__(self, scene: Scene, kept: Mapping[str, Kept], copies: Mapping[str, Kept]) -> None:
        """Say what there is; `copies` are those that were kept by hand."""
        self.scene = scene
        self.kept = dict(kept)
        self.copies = dict(copies)

    def __getitem__(self, id: str) -> Kept:
        """A session; one that nobody made is nowhere."""
        return self.kept.get(id, _NOBODY)

    def after(self, number: int) -> "World":
        """The world after one more step."""
        step = self.scene.steps[number]
        world = World(self.scene, self.kept, self.copies)
        one = world[step.id]
        if step.do == "write":
            world.kept[step.id] = _written(self.scene, number, step, one)
        elif step.do == "expire":
            world.kept[step.id] = _expired(number, step, one)
        elif step.do == "empty":
            for id, each in self.kept.items():
                if each.place == "trash" and step.id in ("", id):
                    world.kept[id] = each._replace(place="purged")
        elif step.do == "keep":
            world.copies[step.id] = one
        elif step.do == "put_back":
            world.kept[step.id] = world.copies[step.id]._replace(life=one.life, sound=False)
        elif step.do == "accept":
            world.kept[step.id] = one._replace(sound=True)
        elif step.do == "forget":
            world.kept[step.id] = Kept(life=one.life)
        elif step.do in ("delete", "restore"):
            place = {"delete": "trash", "restore": "stored"}[step.do]
            world.kept[step.id] = one._replace(place=place)
        return world

    def told(self, number: int) -> dict[str, Any]:
        """What the step after this world must return, as far as it is said here."""
        step, one = self.scene.steps[number], self[self.scene.steps[number].id]
        if step.do == "write":
            return {"seq": len(self.after(number)[step.id].log) - 1}
        if step.do == "accept":
            return {"seq": len(one.log) - 1}
        if step.do == "delete":
            return {"id": step.id}
        if step.do == "empty":
            gone = [id for id, each in self.kept.items() if each.place == "trash"]
            return {"ids": sorted(id for id in gone if step.id in ("", id))}
        if step.do == "expire":
            expired, loose = _chosen(number, step, one)
            kept = len(one.content) - len(expired) - len(loose)
            return {"expired": expired, "unreferenced": loose, "kept": kept}
        return {}


def worlds(scene: Scene) -> list[World]:
    """The worlds before the first step and after each."""
    made = [World(scene, {}, {})]
    for number in range(len(scene.steps)):
        made.append(made[-1].after(number))
    return made


# --- what a step does ----------------------------------------------------------------------------


def _digests(scene: Scene, part: Part) -> list[str]:
    return [hashlib.sha256(scene.values[each]).hexdigest() for each in part.blobs]


def _written(scene: Scene, number: int, step: Step, one: Kept) -> Kept:
    """A writer's work: a key that is stored already is not stored twice."""
    log, content = [*one.log], dict(one.content)
    known = {event.key for event in log}
    for at, part in enumerate(step.parts):
        digests = _digests(scene, part)
        if part.do == "put":
            values = [scene.values[each] for each in part.blobs]
            content |= dict(zip(digests, values, strict=True))
            continue
        key, kind, data = key_of(number, at), part.kind, reference(digests, key_of(number, at))
        if part.do in ("pin", "unpin"):
            key, kind, data = "", f"content/{part.do}ned", {"blobs": digests}
        if key not in known:
            made = draft(kind, data, time=time_of(number), key=key or None)
            log.append(made.at(len(log)))
    life = one.life + (one.place == "nowhere")
    return one._replace(place="stored", life=life, log=tuple(log), content=content)


def _mentions(event: Event, digest: str) -> bool:
    return digest in event.raw.decode()


def _chosen(number: int, step: Step, one: Kept) -> tuple[list[str], list[str]]:
    """The content that a rule lets expire, and the content that nobody refers to."""
    last: dict[str, Event] = {}
    kinds: dict[str, set[str]] = {}
    pinned: set[str] = set()
    for event in one.log:
        named = {digest for digest in one.content if _mentions(event, digest)}
        if event.type == "content/pinned":
            pinned |= named
        elif event.type == "content/unpinned":
            pinned -= named
        elif event.type != "content/expired":
            for digest in named:
                last[digest] = event
                kinds.setdefault(digest, set()).add(event.type)
    latest = sorted(last, key=lambda digest: last[digest].seq, reverse=True)
    spared = set(latest[: step.rule.get("keep_last", 0)])

    def falls(digest: str) -> bool:
        age = (time_of(number) - last[digest].time) / 1000
        allowed = step.rule.get("kinds")
        return (
            bool(step.rule)
            and digest not in spared
            and age >= step.rule.get("older_than", 0)
            and (allowed is None or kinds[digest] <= set(allowed))
        )

    free = sorted(digest for digest in one.content if digest not in pinned)
    expired = [d for d in free if d in last and falls(d)]
    return expired, [d for d in free if d not in last]


def _ordered(log: Collection[Event], digest: str) -> bool:
    """Whether the log says that content expired, and does not refer to it after that."""
    said = False
    for event in log:
        if _mentions(event, digest) and event.type not in _BOOKS[1:]:
            said = event.type == "content/expired"
    return said


def _expired(number: int, step: Step, one: Kept) -> Kept:
    expired, loose = _chosen(number, step, one)
    log = one.log
    if expired:
        rule: dict[str, Any] = {}
        if "older_than" in step.rule:
            rule["older_than_ms"] = int(step.rule["older_than"] * 1000)
        if "kinds" in step.rule:
            rule["kinds"] = sorted(step.rule["kinds"])
        if "keep_last" in step.rule:
            rule["keep_last"] = step.rule["keep_last"]
        made = draft("content/expired", {"blobs": expired, "rule": rule}, time=time_of(number))
        log = (*log, made.at(len(log)))
    gone = {*expired, *loose}
    content = {digest: value for digest, value in one.content.items() if digest not in gone}
    return one._replace(log=log, content=content)


# --- what a store shows --------------------------------------------------------------------------


class Heard:
    """What a player was told: how far it came, and what it was acknowledged on the way.

    Attributes:
        done: number of steps that it finished.
        doing: number of the step in which it was last.
        sure: how many events of a session are acknowledged.
        put: content that was acknowledged within the step.

    """

    def __init__(self, scene: Scene) -> None:
        """Nothing yet."""
        self._scene = scene
        self.done = 0
        self.doing = -1
        self.sure: dict[str, int] = {}
        self.put: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, int], str] = {}

    def take(self, note: Note) -> None:
        """Follow the player by one note."""
        if note.kind == "doing":
            if note.facts["step"] != self.doing:
                self.sure, self.put = {}, set()
            self.doing = note.facts["step"]
            step = self._scene.steps[self.doing]
            if step.do in ("forget", "put_back"):
                # Other events will stand at the same numbers.
                self._told = {at: told for at, told in self._told.items() if at[0] != step.id}
        elif note.kind == "done":
            self.done = note.facts["step"] + 1
        elif note.kind == "put":
            self.put.add((note.session, note.facts["digest"]))
        elif note.kind == "event":
            (event,) = note.events
            self.sure[note.session] = event.seq + 1
        elif note.kind == "position":
            self._told[note.session, note.facts["seq"]] = note.facts["hash"]

    def check_position(self, id: str, position: Any) -> None:
        """Demand that the log still has the hash that was told at that number last."""
        told = self._told.get((id, position.seq), position.hash)
        if told != position.hash:
            raise Finding(f"{id} stands at {position}, and was said to have {told} there")


def read_events(store: Store, id: str, *, sound: bool = True) -> list[Event]:
    """The stored events; a log that need not be sound may lack its end.

    Raises:
        Finding: it is damaged.

    """
    events = []
    try:
        for event in store.read_from(id):
            events.append(event)  # noqa: PERF402 - what came before an error counts
    except SessionDamaged as error:
        if sound or error.kind not in ("missing-tail", "evidence"):
            raise Finding(f"{id}: {error}") from error
    return events


def check_world(
    store: Store,
    before: World,
    after: World,
    heard: Heard,
    *,
    returning: Mapping[str, bytes] = {},
) -> World:
    """Demand of a store whose player died that every session is where and what it may be.

    Content in `returning` may be there again, as it was, if the log says that it expired.

    Returns:
        The world that was found; sessions in the trash are taken as they must be.

    Raises:
        Finding: something is lost, foreign, damaged, in two places or in none.

    """
    listed = [entry.id for entry in store.list() if entry.id != NEIGHBOUR]
    for entry in store.list():
        if entry.header is None:
            raise Finding(f"{entry.name} is listed with {entry.problem}")
    trashed = [each.id for each in store.trash()]
    ids = {*before.kept, *after.kept}
    if not ids >= {*listed, *trashed}:
        raise Finding(f"nobody made {sorted({*listed, *trashed} - ids)}")
    reported = {each.session for each in store.reports()}
    if store.missing() or any(before[id].sound and after[id].sound for id in reported):
        raise Finding(f"missing {store.missing()}, reported {store.reports()}")
    found = World(after.scene, after.kept, before.copies)
    for id in ids:
        places = ["stored"] * listed.count(id) + ["trash"] * trashed.count(id)
        where = places[0] if places else "nowhere"
        may = {before[id].where, after[id].where}
        if len(places) > 1 or where not in may:
            raise Finding(f"{id} is in {places}, and has to be in one of {may}")
        if where == "nowhere" and heard.sure.get(id) and before[id].where == "nowhere":
            raise Finding(f"{id} is lost with {heard.sure[id]} acknowledged events")
        one = before[id] if before[id].where == where else after[id]
        found.kept[id] = one
        if where == "stored":
            found.kept[id] = _check_stored(store, id, before[id], after[id], heard, returning)
    return found


def _check_stored(  # noqa: PLR0917 - handed on as they came
    store: Store,
    id: str,
    before: Kept,
    after: Kept,
    heard: Heard,
    returning: Mapping[str, bytes],
) -> Kept:
    sound = before.sound and after.sound
    log = read_events(store, id, sound=sound)
    sure = heard.sure.get(id, 0)
    if before.where == "stored":
        sure = max(sure, len(before.log))
    if len(log) < sure or tuple(log) != after.log[: len(log)]:
        raise Finding(f"{id} has {log} where {after.log} was written, {sure} of it surely")
    if not log:
        raise Finding(f"{id} is stored without an event")
    report = store.verify(id)
    if sound and (not report.sound or report.events != len(log) or report.later):
        raise Finding(f"{id}: {report} for {len(log)} events")
    position = store.inspect(id).position
    if sound and position is not None and position.seq == len(log) - 1:
        heard.check_position(id, position)
    elif sound:
        raise Finding(f"{id} stands at {position} with {len(log)} events")
    back = {digest: value for digest, value in returning.items() if _ordered(log, digest)}
    stored = check_blobs(store, id, {**back, **before.content, **after.content})
    put = {digest for session, digest in heard.put if session == id}
    for digest in _needed(before, after, log, put) - stored.keys():
        raise Finding(f"{id} lost {digest}, which is needed by {log}")
    one = after if after.where == "stored" else before
    return one._replace(log=tuple(log), content=stored, sound=sound)


def _needed(before: Kept, after: Kept, log: list[Event], put: Collection[str]) -> set[str]:
    """The content that must be there when the events of `log` are."""
    needed = set()
    for digest in {**before.content, **after.content}:
        referred = any(_mentions(event, digest) for event in log if event.type not in _BOOKS)
        # What is on its way out goes only after the log says so, if an event refers to it.
        kept = digest in after.content and (digest in before.content or digest in put)
        if kept or (referred and not _ordered(log, digest)):
            needed.add(digest)
    return needed


def check_blobs(store: Store, id: str, known: Mapping[str, bytes]) -> dict[str, bytes]:
    """Demand that listed content is right and known, and that other content has expired."""
    stored = {blob.digest: store.blob(id, blob.digest) for blob in store.blobs(id)}
    for digest, value in stored.items():
        if known.get(digest) != value:
            raise Finding(f"{id} has content {digest}, which nobody put there")
    for digest in known.keys() - stored.keys():
        try:
            store.blob(id, digest)
        except ContentExpired:
            continue
        raise Finding(f"{id} gives content {digest}, which is not listed")
    return stored


def check_told(world: World, number: int, told: Mapping[str, Any]) -> None:
    """Demand that a step which was taken in `world` returned what it must."""
    wanted = world.told(number)
    if {name: told.get(name) for name in wanted} != wanted:
        step = world.scene.steps[number]
        raise Finding(f"step {number}, {step}, returned {told} and not {wanted}")


def check_whole(store: Store, world: World) -> None:
    """Demand that everything is as `world` says, to the last event and the last byte."""
    heard = Heard(world.scene)
    for id, one in world.kept.items():
        if one.place == "stored":
            heard.sure[id] = len(one.log)
    found = check_world(store, world, world, heard)
    for id, one in found.kept.items():
        if one.content.keys() != world[id].content.keys():
            raise Finding(f"{id} has {sorted(one.content)}, not {sorted(world[id].content)}")


def check_trash(store: Store, found: World, heard: Heard) -> None:
    """Restore what is in the trash: it has to be whole."""
    restored = World(found.scene, found.kept, found.copies)
    for id, one in found.kept.items():
        if one.place == "trash":
            store.restore(id)
            restored.kept[id] = one._replace(place="stored")
    check_world(store, restored, restored, heard)


def taken(found: World, heard: Heard) -> list[str]:
    """The ids in a world that nobody may get; not one that may have been forgotten just now."""
    doing = found.scene.steps[heard.doing] if heard.doing >= heard.done else None
    free = doing.id if doing is not None and doing.do == "forget" else None
    return [id for id in found.kept if id != free]


def check_taken(store: Store, world: World, ids: Collection[str]) -> None:
    """Demand that nothing brings a deleted session back, and that its id stays taken."""
    for id in ids:
        if world[id].place not in ("trash", "purged"):
            continue
        for call in (store.writer, store.inspect, store.delete, store.blobs):
            try:
                call(id)
            except SessionNotFound as error:
                if error.deleted_at is not None or world[id].place == "purged":
                    continue
                raise Finding(f"{id} is in the trash, and {call} does not say so") from error
            raise Finding(f"{id} was deleted and is there for {call}")
        try:
            store.create(id).append("proof/back", id)
        except SessionExists as error:
            if error.deleted_at is None:
                raise Finding(f"{id} is taken, and nobody says that it was deleted") from error
            continue
        raise Finding(f"{id} was deleted, and its id was given to another session")
