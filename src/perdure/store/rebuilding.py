"""The log that takes the place of a damaged one: what is kept, what happened, what was salvaged."""

from collections.abc import Iterator, Sequence
from typing import Any

from perdure.model import limits
from perdure.model.event import Draft, draft
from perdure.model.header import VOCABULARY, Header, new_header
from perdure.model.record import Position, Record, seal
from perdure.store.content import DIGESTS_MAX
from perdure.store.findings import Findings, Log, Stretch

__all__ = ["Rebuilt", "expired_drafts"]

_PROBLEMS_MAX = 100
"""Problems that one `session/repaired` names at most."""


class Rebuilt:
    """Header and records of the new log; the same, byte for byte, whenever it is asked.

    Attributes:
        header: its header: the one that stands there wherever the chain allows.
        salvaged: how many events from behind the damage it has.

    """

    def __init__(
        self,
        session: str,
        log: Log,
        findings: Findings,
        *,
        place: str,
        time: int,
        salvage: bool,
        content: Sequence[str],
    ) -> None:
        """`place` is where the old log is kept, `time` (Unix ms) that of the new events.

        `content` are digests of damaged content, whose end is written down as well.
        """
        self._session = session
        self._log = log
        self._findings = findings
        self._place = place
        self._time = time
        self._stretches = findings.stretches if salvage else ()
        self._content = content
        self.header = self._header()
        self.salvaged = sum(stretch.events for stretch in self._stretches)

    # --- the header ------------------------------------------------------------------------------

    def _header(self) -> Header:
        found = self._findings
        old = found.header
        if old is None:
            return self._new_header()
        if old.inherited_genesis is None or found.kept > old.seed:
            return old
        # Its own first event, which names its header, is not kept: another one has to.
        return new_header(
            old.id,
            created_at=old.created_at,
            cwd=old.cwd,
            parent=old.parent,
            seed=found.kept,
            origin=old.origin,
            depth=old.depth,
            preset=old.preset,
            config=old.config,
            source=old.source,
            vocabulary=old.vocabulary,
            genesis=old.inherited_genesis,
        )

    def _new_header(self) -> Header:
        """In place of one that is lost: what the records tell."""
        found = self._findings
        begun_at = self._time if found.begun_at is None else found.begun_at
        return new_header(
            self._session,
            created_at=min(max(begun_at, 0), limits.TIME_MS_MAX),
            seed=found.kept,
            vocabulary=VOCABULARY if found.native else None,
            genesis=found.genesis,
        )

    # --- the records -----------------------------------------------------------------------------

    @property
    def final(self) -> Position:
        """Where it ends. Reads the old log only if something is salvaged."""
        position = self._start
        for record in self._behind(position):
            position = record.position
        return position

    @property
    def _start(self) -> Position:
        kept = self._findings.position
        return kept if kept.seq >= 0 else Position(-1, self.header.genesis)

    def records(self) -> Iterator[Record]:
        """All of them, read from the old log as they are asked for."""
        with self._log.walk(self._findings.basis) as walk:
            if self._findings.kept:
                yield from walk.records()
        yield from self._behind(self._start)

    def _behind(self, position: Position) -> Iterator[Record]:
        """What follows the records that are kept."""
        told = seal(position, self._told())
        yield from told
        position = told[-1].position
        for record in self._salvaged(position) if self._stretches else ():
            position = record.position
            yield record
        yield from seal(position, expired_drafts(self._content, self._place, self._time))

    def _told(self) -> list[Draft]:
        """The events that say what happened."""
        found, told = self._findings, []
        header = self.header
        if header.inherited_genesis is not None and found.kept <= header.seed:
            named = {"header": header.digest, "session": header.id, "seq": found.kept - 1}
            told.append(draft("session/forked", named, time=self._time))
        data: dict[str, Any] = {
            "problems": [each._asdict() for each in found.problems[:_PROBLEMS_MAX]],
            "kept": found.kept,
            "aside": self._place,
            "acknowledged": found.acknowledged.seq if found.acknowledged is not None else None,
            "lost": [*found.lost] if found.lost is not None else None,
            "later": found.later,
            "salvaged": self.salvaged,
            "header_lost": found.header is None,
        }
        told.append(draft("session/repaired", data, time=self._time))
        return told

    def _salvaged(self, position: Position) -> Iterator[Record]:
        """Each stretch behind an event that says where it comes from, with new numbers."""
        stretches = iter(self._stretches)
        with self._log.walk(self._findings.basis) as walk:
            for _ in walk.records():
                pass
            stretch, without, last = None, frozenset[int](), -1
            for record in self._log.later(walk, self._findings.known):
                if stretch is None or last == stretch.last:
                    stretch = next(stretches)
                    without = frozenset(stretch.without_key)
                    [origin] = seal(position, [self._origin(stretch)])
                    yield origin
                    position = origin.position
                last = record.last
                for new in _renumbered(record, position, without):
                    yield new
                    position = new.position

    def _origin(self, stretch: Stretch) -> Draft:
        data = {
            "first": stretch.first,
            "last": stretch.last,
            "hash": stretch.hash,
            "events": stretch.events,
            "aside": self._place,
            "without_key": [*stretch.without_key],
        }
        return draft("session/salvaged", data, time=self._time)


def _renumbered(record: Record, position: Position, without: frozenset[int]) -> list[Record]:
    """The same events behind `position`; a packed run stays packed."""
    events = record.events()
    run = len(events) > 1
    drafts = [
        Draft(
            event.type,
            event.time,
            event.agent,
            event.turn,
            None if event.seq in without else event.key,
            event.ignorable,
            event.data if run else None,
            event.raw,
        )
        for event in events
    ]
    return seal(position, drafts, pack=run)


def expired_drafts(digests: Sequence[str], place: str, time: int) -> list[Draft]:
    """The events that say that damaged content is gone; `<place>-<digest>` keeps its bytes."""
    rule = {"reason": "its bytes did not have the SHA-256 that names them", "aside": place}
    return [
        draft(
            "content/expired",
            {"blobs": [*digests[start : start + DIGESTS_MAX]], "rule": rule},
            time=time,
            key=f"{place}/{time}/{start}",
        )
        for start in range(0, len(digests), DIGESTS_MAX)
    ]
