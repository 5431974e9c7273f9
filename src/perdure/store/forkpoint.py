"""Where a session can be forked, and what stands before that place.

A fork must not inherit half a turn: the place is an event behind which no turn is open. Where the
log speaks another vocabulary nobody knows of turns, and every event will do.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from perdure.backends.base import Blob
from perdure.errors import InvalidValue, SessionDamaged
from perdure.model import values
from perdure.model.event import Draft
from perdure.model.header import VOCABULARY, Header
from perdure.model.record import Position, Record, seal
from perdure.model.vocabulary import SessionRun, fitting
from perdure.recovery.closers import OpenWork
from perdure.recovery.walk import Known, Walk
from perdure.store.content import Mentions, expired_in
from perdure.store.copying import Side, end_of
from perdure.store.queue import Keys
from perdure.store.survey import Facts

__all__ = ["NEVER", "Place", "Prefix", "end_of_turn", "prefix_of", "shortened"]

NEVER = 1 << 62
"""No event has a number like this."""

_START, _END = "turn/start", "turn/end"
_RUNS = ("session/started", "session/resumed")


class Place(NamedTuple):
    """Where to fork, as it was asked for: behind an event, or at the end of a turn of an agent."""

    at: int | None
    turn: str | None
    agent: str | None


class Prefix(NamedTuple):
    """What a fork inherits.

    Attributes:
        seq: number of the last event; -1: none.
        cover: position of the record that holds it.
        work: what is open there; jobs, never a turn.
        keys: which event holds which (type, key).
        cwd: where its last run said that it works from then on; None: where the header says.
        content: digests of stored content that the events refer to, in order.
        expired: digests of content that they refer to and that is not stored any more, in order.

    """

    seq: int
    cover: Position
    work: OpenWork
    keys: Keys
    cwd: str | None = None
    content: tuple[str, ...] = ()
    expired: tuple[str, ...] = ()


def prefix_of(source: Side, session: str, place: Place) -> tuple[Header, Prefix]:
    """What a fork at this place inherits, verified; nobody is waited for.

    Raises:
        InvalidValue: it cannot be forked there.
        SessionNotFound, SessionDamaged, FormatUnsupported: as `verified`.

    """
    _check(place)
    log = _Log(source, session)
    scout = log.look(place)
    if place.turn is not None:
        at = _end_of_turn(scout, place, log.until.seq)
    elif place.at is not None:
        at = place.at
    else:
        if scout.last > log.until.seq:
            # A commit under way is read and not inherited.
            scout = log.again(log.until.seq)
        at = scout.before
        if at < 0:
            reason = f"no turn of session {session!r} has ended yet"
            raise InvalidValue("at", reason, hint="at=-1 forks it before its first event")
    if at > log.until.seq:
        _refuse(session, at, log.until.seq, scout)
    if at != scout.at:
        scout = log.again(at)
    if scout.before != at:
        _refuse(session, at, log.until.seq, scout)
    prefix = Prefix(at, scout.cover, scout.work, scout.keys, scout.cwd)
    # Listed when the events are known: content is put before the event that refers to it.
    stored = [*source.backend.blobs(session)]
    gone = scout.late - {blob.digest for blob in stored}
    return log.header, _with_content(log, prefix, stored, gone)


def _check(place: Place) -> None:
    at, turn, agent = place
    if at is not None and (at.__class__ is not int or at < -1):
        reason = f"{values.shown(at)} is not the number of an event"
        raise InvalidValue("at", reason, hint="0, 1, 2, …, or -1 for nothing")
    for name, value in (("turn", turn), ("agent", agent)):
        if value is not None and not isinstance(value, str):
            raise InvalidValue(name, f"{values.shown(value)} is no name")
    if at is not None and turn is not None:
        raise InvalidValue("turn", "names another place than `at`", hint="give one of the two")
    if agent is not None and turn is None:
        raise InvalidValue("agent", "says whose turn, and no turn is named", hint="turn=…")


def _refuse(session: str, at: int, end: int, scout: "_Scout") -> None:
    if at > end:
        reason = f"session {session!r} has no event {at}; its last is {end}"
        raise InvalidValue("at", reason, hint="leave it out to fork the session where it stands")
    places = [scout.before] + ([scout.after] if scout.after <= end else [])
    reason = f"a turn is open behind event {at} of session {session!r}"
    named = " or ".join(f"at={seq}" for seq in places)
    raise InvalidValue("at", reason, hint=f"the nearest places to fork it are {named}")


def _end_of_turn(scout: "_Scout", place: Place, end: int) -> int:
    """The event that ends the turn that is meant."""
    seq = end_of_turn(scout.ends, place)
    if seq > end:
        hint = "end it first, or fork at the end of another turn"
        raise InvalidValue("turn", f"turn {place.turn!r} is still open", hint=hint)
    return seq


def end_of_turn(found: Mapping[str | None, int], place: Place) -> int:
    """The end of the turn that is meant, of those of its name, by their agents.

    Raises:
        InvalidValue: there is none, or several agents have one.

    """
    agent = place.agent
    if agent is None and None not in found and len(found) == 1:
        (agent,) = found
    if agent not in found:
        whose = "" if agent is None else f" of agent {agent!r}"
        others = sorted(repr(each) for each in found)
        named = f"agents that have one: {', '.join(others)}" if others else ""
        hint = named or "branches() or `perdure branches` lists them"
        raise InvalidValue("turn", f"there is no turn {place.turn!r}{whose}", hint=hint)
    return found[agent]


def _with_content(log: "_Log", prefix: Prefix, stored: list[Blob], gone: set[str]) -> Prefix:
    """Find out what content the inherited events refer to; read only where there is any."""
    if prefix.seq < 0 or not (stored or gone):
        return prefix
    mentions = Mentions(log.header.id, [*stored, *(Blob(digest, 0, 0) for digest in gone)])
    with log.walk() as walk:
        for record in walk.records():
            for part in shortened(record, prefix.seq):
                mentions.read(part.line)
            if record.last >= prefix.seq:
                break
    wanted = mentions.wanted
    return prefix._replace(
        content=tuple(sorted(wanted - gone)), expired=tuple(sorted(wanted & gone))
    )


def shortened(record: Record, last: int) -> Sequence[Record]:
    """A record without the events behind `last`; what is left of a cut one is packed again."""
    if record.last <= last:
        return (record,)
    if record.first > last:
        return ()
    kept = record.events()[: last + 1 - record.first]
    drafts = [
        Draft(e.type, e.time, e.agent, e.turn, e.key, e.ignorable, e.data, e.raw) for e in kept
    ]
    return seal(Position(record.first - 1, record.prev), drafts)


class _Log:
    """The log that is forked.

    Attributes:
        header: its header.
        until: where it stands, by what is verified and acknowledged.

    """

    def __init__(self, source: Side, session: str) -> None:
        self._backend = source.backend
        self._source = source
        self._session = session
        self.header: Header
        self.until: Position

    def look(self, place: Place) -> "_Scout":
        """Verify the log, and find the place on the way."""
        scouts: list[_Scout] = []

        def read(session: str, header: Header, begin: int, known: Known) -> Facts:
            scout = _Scout(header, place.at, place.turn)
            pieces = self._backend.scan(session, begin)
            with Walk(header, pieces, known=known, begin=begin) as walk:
                for record in walk.records():
                    scout.take(record)
                scouts.append(scout)
                self.header, self.until = header, walk.position
                return Facts(frozenset(), walk.ending, (), (), {})

        try:
            self.header, self.until = end_of(self._session, self._source, read)
        except SessionDamaged as error:
            # What is verified can be forked, if that is what was asked for.
            asked = place.at is not None or place.turn is not None
            if not scouts or not asked or not self._reaches(scouts[-1], place):
                if scouts and scouts[-1].last >= 0:
                    error.hint = (
                        f"it can be forked where no turn is open up to event {scouts[-1].last}, "
                        f"with at=…; {error.hint}"
                    )
                raise
        return scouts[-1]

    def _reaches(self, scout: "_Scout", place: Place) -> bool:
        if place.at is not None:
            return place.at <= scout.last
        return any(seq < NEVER for seq in scout.ends.values())

    @contextmanager
    def walk(self) -> Iterator[Walk]:
        """Another pass, over what was verified."""
        begin = self._backend.stored(self._session).begin
        pieces = self._backend.scan(self._session, begin)
        with Walk(self.header, pieces, known=Known(None), begin=begin) as walk:
            yield walk

    def again(self, at: int) -> "_Scout":
        """Look at another place."""
        scout = _Scout(self.header, at, None)
        with self.walk() as walk:
            for record in walk.records():
                scout.take(record)
        return scout


class _Scout:
    """Takes the records of a log in order, and knows where it can be forked.

    Attributes:
        at: the place that was asked for; None: where the log ends.
        last: the last event of the log.
        before: the last event up to the place behind which no turn is open; -1: there is none.
        after: the first such event behind the place, if a turn is open there.
        ends: by agent, the event that ends the turn that was asked for.
        cover: position of the record that holds the event at the place.
        work: what is open at the place, if no turn is.
        keys: keys of the events up to the place.
        cwd: where its last run said that it works, up to the place.
        late: digests of content that expired behind the place.

    """

    def __init__(self, header: Header, at: int | None, turn: str | None) -> None:
        self.at = at
        self.last = -1
        self.before = -1
        self.after = NEVER
        self.ends: dict[str | None, int] = {}
        self.cover = Position(-1, header.genesis)
        self.work = OpenWork()
        self.keys: Keys = {}
        self.cwd: str | None = None
        self.late: set[str] = set()
        self._seed = header.seed
        self._native = header.vocabulary == VOCABULARY
        self._turn = turn

    def take(self, record: Record) -> None:
        """Take the next record into account."""
        self.last = record.last
        at = NEVER if self.at is None else self.at
        if self._native and self._turn is not None and record.type in (_START, _END):
            self._look_for_turn(record)
        if record.first <= at:
            for part in shortened(record, at):
                self.before = max([self.before, *self._fold(part)])
            self.cover = record.position
            if record.type in _RUNS:
                self._look_for_cwd(record, at)
            if record.fields.key is not None:
                self.keys[record.type, record.fields.key] = record.first
        if record.last > at:
            self.late |= expired_in(record)
            if self.before != at and self.after == NEVER:
                self.after = min([NEVER, *self._fold(record, at + 1)])

    def _fold(self, record: Record, start: int = 0) -> list[int]:
        """Places in the record to fork at, from `start` on: the first and the last among them."""
        if self._native and record.type in (_START, _END):
            places = []
            for event in record.events(start):
                self.work.event(event)
                places += [] if self.work.in_turn else [event.seq]
            return places
        self.work.record(record)
        inside = self._native and self.work.in_turn
        return [] if inside else [max(record.first, start), record.last]

    def _look_for_cwd(self, record: Record, at: int) -> None:
        for event in record.events(self._seed):
            run = fitting(event) if event.seq <= at else None
            # What was inherited is said of another session, whose folder this one left.
            if isinstance(run, SessionRun) and run.cwd is not None:
                self.cwd = run.cwd

    def _look_for_turn(self, record: Record) -> None:
        for event in record.events():
            if event.turn == self._turn:
                if event.type == _START:
                    self.ends[event.agent] = NEVER
                elif self.ends.get(event.agent) == NEVER:
                    self.ends[event.agent] = event.seq
