"""What of a damaged log can be kept, decided without changing a byte.

The log is read for what it is: with its header, or, where that is lost, from its records alone.
Record 0 links to the genesis, so the chain proves itself also without the header that began it.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec

from perdure.backends.base import Backend
from perdure.errors import InvalidValue
from perdure.evidence import Seen
from perdure.model.header import Header
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.model.vocabulary import PAYLOADS, payload
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Piece, Problem, Walk
from perdure.store.inspection import damage, nobody
from perdure.store.verification import MINOR, verify_columns
from perdure.store.witness import known_of, last_of

__all__ = ["Basis", "Claims", "Findings", "Log", "Stretch", "decide"]

_WITHOUT_KEY_MAX = 10_000
"""Events without their key that one `session/salvaged` names at most."""

_SPOKEN = ("turn/", "step/", "user/", "assistant/", "tool/", "job/")
"""What only a session that speaks the vocabulary has; the rest is written for any session."""

_FIRST_RECORD = b'{"seq":0,'


class Basis(Enum):
    """What a log is held against."""

    HEADER = "header"
    """The header that stands there."""

    RECORDS = "records"
    """Its own first record: the header is lost."""

    NOTHING = "nothing"
    """No record is in its place: what is intact can only be salvaged."""


class Claims(NamedTuple):
    """What speaks for and against records that do not fit a header.

    Attributes:
        header_there: an intact header of this id stands there.
        from_start: the first record that can be read is record 0.
        elsewhere: the records link to the intact header of another id.
        remembered: a position that is remembered of this id lies in the records.

    """

    header_there: bool
    from_start: bool
    elsewhere: bool
    remembered: bool


def decide(claims: Claims) -> Basis:
    """What to hold a log against whose header and records do not belong together."""
    if claims.from_start and (claims.remembered or not (claims.header_there or claims.elsewhere)):
        return Basis.RECORDS
    return Basis.HEADER if claims.header_there else Basis.NOTHING


class Stretch(NamedTuple):
    """Intact records behind damage that link to each other.

    Attributes:
        first: number of their first event.
        last: number of their last event.
        hash: hash of their last record.
        without_key: events whose key belongs to an earlier event.

    """

    first: int
    last: int
    hash: str
    without_key: tuple[int, ...]

    @property
    def events(self) -> int:
        """How many events they are."""
        return self.last - self.first + 1


class Findings(NamedTuple):
    """What is there of a log.

    Attributes:
        basis: what it was held against.
        header: the header that stands there and holds, or None if it is lost.
        genesis: what record 0 links to, or None if it is not kept.
        position: where the verified prefix ends.
        begun_at: time of the first event that is kept (Unix milliseconds), or None.
        problems: every place that does not hold together.
        acknowledged: the last position that is remembered, or None.
        lost: first and last number of acknowledged events that are not in the prefix, or None.
        stretches: what is intact behind the damage and not in the prefix.
        known: hashes of later records that are in the prefix, too.
        native: the events that are there speak the vocabulary.
        damaged: it is not as it should be.

    """

    basis: Basis
    header: Header | None
    genesis: str | None
    position: Position
    begun_at: int | None
    problems: tuple[Problem, ...]
    acknowledged: Position | None
    lost: tuple[int, int] | None
    stretches: tuple[Stretch, ...]
    known: frozenset[str]
    native: bool
    damaged: bool

    @property
    def kept(self) -> int:
        """How many events the verified prefix has."""
        return self.position.seq + 1

    @property
    def later(self) -> int:
        """How many intact events stand behind the damage."""
        return sum(stretch.events for stretch in self.stretches)


class Log:
    """A log as it stands, read as often as is needed."""

    def __init__(self, backend: Backend, session: str, seen: Sequence[Seen]) -> None:
        """Look at header and tail; `seen` is what evidence remembers.

        Raises:
            SessionNotFound: there is none.
            FormatUnsupported: another version wrote it; nothing is broken.

        """
        self._backend = backend
        self._session = session
        self.stored = backend.stored(session)
        if self.stored.unsupported is not None:
            raise damage(session, self.stored)
        self.tail = backend.tail(session)
        self._seen = tuple(seen)

    def findings(self) -> Findings:
        """What is there. Reads everything, a few times; see `_Reading` for the memory."""
        found = self._found()
        columns = tuple(verify_columns(self._backend, self._session))
        if not columns:
            return found
        return found._replace(problems=(*found.problems, *columns), damaged=True)

    def _found(self) -> Findings:
        if self.stored.header is not None:
            found = self._read(Basis.HEADER)
            misfit = next((each for each in found.problems if each.kind == "header"), None)
            if misfit is None:
                return found.findings
        else:
            found, misfit = None, self.stored.problem
        records = self._read(Basis.RECORDS)
        other = self.stored.other
        claims = Claims(
            header_there=found is not None,
            from_start=records.genesis is not None,
            elsewhere=other is not None and records.genesis == other.genesis,
            remembered=records.remembered,
        )
        basis = decide(claims)
        if basis is Basis.HEADER and found is not None:
            return found.findings
        chosen = records if basis is Basis.RECORDS else self._read(basis)
        problems = chosen.problems if misfit is None else (misfit, *chosen.problems)
        return chosen.findings._replace(problems=problems)

    def walk(self, basis: Basis) -> Walk:
        """A new pass over the log, held against `basis`."""
        begin, header = self.stored.begin, self.stored.header
        pieces = self._backend.scan(self._session, begin)
        if basis is Basis.HEADER and header is not None:
            return Walk(header, pieces, known=self._known(basis), begin=begin)
        if basis is Basis.RECORDS:
            parted = _parted(pieces)
            return Walk(nobody(), parted, known=self._known(basis), begin=begin, local=True)
        return Walk(nobody(), pieces, known=Known(None), begin=begin)

    @property
    def known(self) -> Known:
        """What the log must hold."""
        return self._known(Basis.HEADER)

    def holds(self, position: Position) -> bool:
        """Whether the log of the header that stands there has come to `position`."""
        header, begin = self.stored.header, self.stored.begin
        if header is None:
            return False
        pieces = self._backend.scan(self._session, begin)
        with Walk(header, pieces, known=Known(position), begin=begin) as walk:
            return any(record.position == position for record in walk.records())

    def later(self, walk: Walk, known: Collection[str]) -> Iterator[Record]:
        """Intact records behind the damage, each once, but for those whose hash is `known`."""
        if walk.verdict is not Verdict.DAMAGED:
            return
        given: set[bytes] = set()
        for record in walk.later():
            digest = bytes.fromhex(record.hash)  # half as large as its text
            if record.hash not in known and digest not in given:
                given.add(digest)
                yield record

    def _known(self, basis: Basis) -> Known:
        """What the log must hold; without a header, what is remembered of any log of this id."""
        header, slot = self.stored.header, self.tail.acknowledged
        if basis is Basis.HEADER and header is not None:
            return known_of(header, self.tail, self._seen)
        noted = last_of(self._seen).position if self._seen else None
        if slot is None or noted is None:
            return Known(slot or noted)
        later, earlier = (noted, slot) if noted.seq > slot.seq else (slot, noted)
        return Known(later, earlier if earlier != later else None)

    def _read(self, basis: Basis) -> "_Reading":
        """One pass; a second one if later records may be in the prefix, a third to group them."""
        # What evidence noted counts more than the slots, which lie in the session's own folder.
        noted: list[Position | None] = [each.position for each in self._seen]
        noted = noted or [self.tail.acknowledged]
        reading = _Reading(basis, noted)
        with self.walk(basis) as walk:
            for record in walk.records():
                reading.keep(record)
            for record in self.later(walk, ()):
                reading.set_apart(record)
            reading.end(walk)
        doubtful = reading.doubtful()
        repeated: frozenset[str] = frozenset()
        if doubtful:
            with self.walk(basis) as walk:
                repeated = frozenset(each.hash for each in walk.records() if each.hash in doubtful)
        stretches: tuple[Stretch, ...] = ()
        if reading.later:
            with self.walk(basis) as walk:
                for _ in walk.records():
                    pass
                stretches = tuple(reading.stretches(self.later(walk, repeated)))
        header = self.stored.header if basis is Basis.HEADER else None
        known = self._known(basis)
        # Where another log of this id was acknowledged, nothing of that is here.
        replaced = known.instead is not None
        acknowledged = last_of(self._seen).position if replaced else known.acknowledged
        reading.conclude(header, acknowledged, repeated, stretches, replaced=replaced)
        return reading


class _Reading:
    """What a log showed, without the events.

    In memory are the keys of the log, as for any writer of it; while later records are read, about
    150 bytes for each, to give each out once; and what the findings hold: the stretches, and the
    hashes of later records that repeat the prefix.

    Attributes:
        findings: there after `conclude`.
        later: at least one intact record stands behind the damage.

    """

    findings: Findings

    def __init__(self, basis: Basis, noted: Collection[Position | None]) -> None:
        self.genesis: str | None = None
        self.remembered = False
        self.problems: tuple[Problem, ...] = ()
        self._basis = basis
        self._noted = noted
        self._position = Position(-1, "")
        self._begun_at: int | None = None
        self._keys: set[tuple[str, str]] = set()
        self.later = False
        self._doubtful: set[str] = set()
        self._language = _Language()
        self._damaged = basis is not Basis.HEADER

    def keep(self, record: Record) -> None:
        """Take note of a record of the verified prefix."""
        if record.first == 0:
            self.genesis, self._begun_at = record.prev, record.fields.time
        self._position = record.position
        self.remembered = self.remembered or record.position in self._noted
        if record.fields.key is not None:
            self._keys.add((record.type, record.fields.key))
        self._listen(record)

    def set_apart(self, record: Record) -> None:
        """Take note of an intact record behind the damage."""
        self.later = True
        if record.last <= self._position.seq:
            self._doubtful.add(record.hash)
        self._listen(record)

    def _listen(self, record: Record) -> None:
        if self._basis is not Basis.HEADER:
            self._language.hear(record)

    def end(self, walk: Walk) -> None:
        """Take note of what does not hold together; all later records were seen."""
        further = tuple(walk.further)
        first = (walk.problem,) if walk.problem is not None else ()
        if self._basis is Basis.HEADER:
            minor = any(each.kind in MINOR for each in further)
            self._damaged = minor or walk.verdict is Verdict.DAMAGED
            self._position = walk.position
        elif self._basis is Basis.RECORDS:
            # What stands before record 0 is what is left of the header.
            further = tuple(x for x in further if (x.kind, x.record) != ("noise", 0))
        else:
            # That nothing links to a header that is not there is no news.
            first = ()
        self.problems = (*first, *further)

    def doubtful(self) -> frozenset[str]:
        """Hashes of later records that may be in the prefix as well."""
        return frozenset(self._doubtful)

    def conclude(
        self,
        header: Header | None,
        acknowledged: Position | None,
        repeated: frozenset[str],
        stretches: tuple[Stretch, ...],
        *,
        replaced: bool,
    ) -> None:
        """Say what was found."""
        lost, kept = None, 0 if replaced else self._position.seq + 1
        if acknowledged is not None and acknowledged.seq >= kept:
            lost = (kept, acknowledged.seq)
        self.findings = Findings(
            basis=self._basis,
            header=header,
            genesis=self.genesis,
            position=self._position,
            begun_at=self._begun_at,
            problems=self.problems,
            acknowledged=acknowledged,
            lost=lost,
            stretches=stretches,
            known=repeated,
            native=self._language.native,
            damaged=self._damaged,
        )

    def stretches(self, later: Iterable[Record]) -> Iterator[Stretch]:
        """Later records in groups that link to each other; none of them is in the prefix."""
        group: Stretch | None = None
        without: list[int] = []
        for each in later:
            linked = group and (group.hash, group.last + 1) == (each.prev, each.first)
            if group and (not linked or len(without) >= _WITHOUT_KEY_MAX):
                yield group._replace(without_key=tuple(without))
                group, without = None, []
            group = Stretch(group.first if group else each.first, each.last, each.hash, ())
            key = (each.type, each.fields.key) if each.fields.key is not None else None
            if key is not None and key in self._keys:
                without.append(each.first)
            elif key is not None:
                self._keys.add(key)
        if group:
            yield group._replace(without_key=tuple(without))


class _Language:
    """Whether events speak the vocabulary, told by the events alone."""

    def __init__(self) -> None:
        self._spoken = False
        self._broken = False

    def hear(self, record: Record) -> None:
        """Take note of a record: all its events have the same shape."""
        if record.type.startswith(_SPOKEN) and record.type in PAYLOADS and not self._broken:
            self._spoken = True
            try:
                payload(record.events(record.last)[0])
            except (msgspec.ValidationError, InvalidValue):
                self._broken = True

    @property
    def native(self) -> bool:
        """At least one event does, and none contradicts it."""
        return self._spoken and not self._broken


def _parted(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """The pieces of a log, record 0 parted from a header that lost its newline."""
    first = next(pieces, None)
    if first is not None and first.lines and not first.framed:
        raw = first.lines[0]
        at = raw.find(_FIRST_RECORD)
        if at > 0 and _is_record(raw[at:]):
            between = first.start + at
            yield Piece(first.start, between, (), flaw="not a session header")
            first = Piece(between, first.end, (raw[at:], *first.lines[1:]))
    if first is not None:
        yield first
    yield from pieces


def _is_record(line: bytes) -> bool:
    try:
        decode_line(line)
    except BadRecordError:
        return False
    return True
