"""Others who use the store while a scene is played: a reader that trusts nothing, and a neighbour.

The reader looks at sessions, content, listing and trash again and again. It knows the script, and
reads before and after each look how far the player has come: what it saw has to be true at some
moment in between.
"""

import hashlib
import mmap
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from perdure.errors import ContentExpired, PerdureError, SessionDamaged, SessionNotFound
from perdure.model.event import Event
from perdure.store.store import Store
from perdure.testing.ledger import Finding, Note
from perdure.testing.outcomes import Kept, World
from perdure.testing.scenes import NEIGHBOUR

_MANNERS = 10
"""Others step back where there are more processes than cores."""

__all__ = ["Progress", "check_neighbour", "neighbour", "reader"]

Opener = Callable[[], tuple[Store, Store]]
"""Gives a store to close, and its namespace in which the scene happens."""


class Progress:
    """How far a player has come: one byte each, seen by every process forked after this."""

    def __init__(self) -> None:
        """Nothing happened."""
        self._bytes = mmap.mmap(-1, 3)

    def follow(self, note: Note) -> None:
        """The player began or finished a step."""
        if note.kind == "doing":
            self._bytes[1] = note.facts["step"] + 1
        elif note.kind == "done":
            self._bytes[0] = note.facts["step"] + 1

    @property
    def done(self) -> int:
        """How many steps were finished."""
        return self._bytes[0]

    @property
    def doing(self) -> int:
        """How many steps were begun."""
        return self._bytes[1]

    @property
    def stopped(self) -> bool:
        """Whether the scene is over."""
        return bool(self._bytes[2])

    def stop(self) -> None:
        """Send everybody home."""
        self._bytes[2] = 1


# --- the neighbour -------------------------------------------------------------------------------


def neighbour(opener: Opener, progress: Progress, note: Callable[[Note], None]) -> None:
    """Append to a session of its own until the scene is over, and say what was acknowledged."""
    os.nice(_MANNERS)
    opened, store = opener()
    digests: list[str] = []
    with opened, store.writer(NEIGHBOUR) as session:
        while not progress.stopped:
            value = b"%d" % session.position.seq
            digests.append(session.put_blob(value))
            session.append("neighbour/said", {"blob": digests[-1]})
        facts = {"seq": session.position.seq, "hash": session.position.hash, "blobs": digests}
    note(Note("wrote", facts=facts))


def check_neighbour(store: Store, wrote: Note) -> None:
    """Demand all that the neighbour was told."""
    position, report = store.inspect(NEIGHBOUR).position, store.verify(NEIGHBOUR)
    told = (wrote.facts["seq"], wrote.facts["hash"])
    if position != told or report.status != "ok" or report.problems:
        raise Finding(f"{NEIGHBOUR} stands at {position}, not {told}: {report}")
    blobs = [e.data["blob"] for e in store.read_from(NEIGHBOUR, 1)]
    if blobs != wrote.facts["blobs"]:
        raise Finding(f"{NEIGHBOUR} refers to {blobs}")
    for seq, digest in enumerate(blobs):
        if store.blob(NEIGHBOUR, digest) != b"%d" % seq:
            raise Finding(f"{NEIGHBOUR} has other content at {seq}")


# --- the reader ----------------------------------------------------------------------------------


class _Reader:
    """Looks, and says whether what it saw can have been."""

    def __init__(
        self, store: Store, worlds: Sequence[World], progress: Progress, seed: str
    ) -> None:
        self._store = store
        self._worlds = worlds
        self._progress = progress
        self._rng = random.Random(f"reader {seed}")
        self._ids = sorted(worlds[-1].kept)
        self._since = 0
        self._held: list[tuple[str, Iterator[Event], list[Event], int]] = []
        self.looks = 0

    def look(self) -> None:
        """One look at something."""
        seldom = (self._listing, self._trash, self._verify, self._hold, self._let_go)
        look = self._rng.choice((*[self._events, self._content] * 2, *seldom))
        self._since = self._progress.done
        id = self._rng.choice(self._ids)
        try:
            look(id)
        except PerdureError as error:
            if self._settled(id):
                raise Finding(f"{look.__name__} between {self._span()}: {error}") from error
        self.looks += 1

    def _span(self) -> tuple[int, int]:
        return self._since, self._progress.doing

    def _moments(self, id: str) -> list[Kept]:
        """The session at each moment at which the look may have been."""
        first, last = self._span()
        return [world[id] for world in self._worlds[first : last + 1]]

    def _fail(self, id: str, saw: object) -> None:
        if not self._settled(id):
            return
        places = [(one.place, len(one.log)) for one in self._moments(id)]
        raise Finding(f"{id} between steps {self._span()}, {places}: a reader saw {saw}")

    def _settled(self, id: str) -> bool:
        """False while an older copy stood there, or where the id went over to another session.

        What the one looks like is for others to say; the other takes many steps, of which a reader
        may have slept through all.
        """
        first, last = self._span()
        by_hand = {step.do for step in self._worlds[0].scene.steps[max(0, first - 1) : last]}
        moments = self._moments(id)
        lives = {one.life for one in moments if one.where == "stored"}
        return all(one.sound for one in moments) and "put_back" not in by_hand and len(lives) < 2

    def _events(self, id: str) -> None:
        try:
            seen = [*self._store.read_from(id)]
        except SessionNotFound:
            if all(one.where == "stored" for one in self._moments(id)):
                self._fail(id, "no session")
            return
        self._compare(id, seen)

    def _compare(self, id: str, seen: list[Event]) -> None:
        there = [one for one in self._moments(id) if one.where == "stored"]
        all_along = len(there) == len(self._moments(id)) and len({one.life for one in there}) == 1
        least = min(len(one.log) for one in there) if all_along else 0
        fits = any(one.log[: len(seen)] == tuple(seen) for one in there)
        if not fits or len(seen) < least:
            self._fail(id, seen)

    def _content(self, id: str) -> None:
        known = {d: v for world in self._worlds for d, v in world[id].content.items()}
        if not known:
            return
        digest = self._rng.choice(sorted(known))
        try:
            parts = self._store.open_blob(id, digest)
            found = b"".join(parts)
        except SessionNotFound:
            if all(one.where == "stored" for one in self._moments(id)):
                self._fail(id, "no session")
        except ContentExpired:
            if all(digest in one.content for one in self._moments(id)):
                self._fail(id, f"{digest} expired")
        else:
            if found != known[digest] or hashlib.sha256(found).hexdigest() != digest:
                self._fail(id, f"other bytes at {digest}")
            if not any(digest in one.content for one in self._moments(id)):
                self._fail(id, f"{digest}, which is gone")

    def _listing(self, id: str) -> None:
        listed = {entry.id: entry for entry in self._store.list()}
        if NEIGHBOUR not in listed:
            self._fail(NEIGHBOUR, f"{[*listed]}")
        there = {one.where == "stored" for one in self._moments(id)}
        if len(there) == 1 and (id in listed) not in there:
            self._fail(id, f"{[*listed]}")
        for entry in listed.values():
            if entry.header is None:
                self._fail(entry.id, entry)

    def _trash(self, id: str) -> None:
        trashed = [each.id for each in self._store.trash()]
        there = {one.where == "trash" for one in self._moments(id)}
        if (len(there) == 1 and (id in trashed) not in there) or trashed.count(id) > 1:
            self._fail(id, f"in the trash {trashed}")

    def _verify(self, id: str) -> None:
        try:
            report = self._store.verify(id)
        except SessionNotFound:
            return
        if not report.sound:
            self._fail(id, report)

    def _hold(self, id: str) -> None:
        """Begin to read, and go on later, whatever happens to the session meanwhile."""
        if len(self._held) < 3 and self._settled(id):
            with suppress(SessionNotFound):
                events = self._store.read_from(id)
                first = next(events, None)
                if first is not None:
                    self._held.append((id, events, [first], self._since))

    def _let_go(self, _: str) -> None:
        if self._held:
            id, events, seen, since = self._held.pop(0)
            self._since = since
            try:
                seen += events
            except SessionDamaged as error:
                self._fail(id, error)
            self._compare(id, seen)


def reader(
    opener: Opener,
    worlds: Sequence[World],
    progress: Progress,
    seed: str,
    note: Callable[[Note], None],
) -> None:
    """Look around until the scene is over; count the looks."""
    os.nice(_MANNERS)
    opened, store = opener()
    with opened:
        one = _Reader(store, worlds, progress, seed)
        while not progress.stopped:
            one.look()
        note(Note("watched", facts={"observations": one.looks}))
