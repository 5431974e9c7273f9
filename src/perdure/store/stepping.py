"""One reading of a log, put into a catalog in steps."""

from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from perdure.backends.base import Backend
from perdure.catalog import analyse
from perdure.catalog.contract import Change, Passage, Standing
from perdure.catalog.passages import Passage as Said
from perdure.catalog.passages import Passages, digest_of
from perdure.errors import PerdureError
from perdure.lenses import lens_of
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.store.imported import lens_version
from perdure.store.summing import Sum

__all__ = ["CatalogError", "Ground", "Steps"]

_PASSAGES_MAX = 1_000
_CHARS_MAX = 1 << 20
"""So much of a session is put into the catalog in one step, which others wait for."""

_BREATH_EVENTS = 8
_EVENTS_MAX = 10_000


class Ground(Protocol):
    """What a reading stands on: the logs, the rules they are read by, and the catalog."""

    @property
    def backend(self) -> Backend:
        """Where the logs are."""

    def rules(self, header: Header) -> str:
        """What is put into the catalog of a session depends on this, and on its log."""

    def sum(self, header: Header, state: bytes | None) -> Sum:
        """The sums to begin with.

        Raises:
            ValueError: the state is none of ours.

        """

    def put(self, change: Change, expected: int | None) -> int | None:
        """Make a change in the catalog.

        Raises:
            CatalogError: that failed.

        """


class CatalogError(Exception):
    """What is wrong with the catalog, and not with a session. Internal."""

    def __init__(self, error: PerdureError) -> None:
        super().__init__(error.message)
        self.error = error


class Steps:
    """One reading of a log, put into the catalog in steps.

    Attributes:
        before: how far the catalog is.
        sound: False once somebody else changed what it knows.

    """

    def __init__(
        self,
        ground: Ground,
        header: Header,
        revision: str,
        before: Standing | None,
        breathe: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._header = header
        self._revision = revision
        self.before = before
        self._breathe = breathe
        self.sound = True
        self._version = None if before is None else before.version
        self._passages: list[Passage] = []
        self._keys: list[tuple[str, str, int]] = []
        self._chars = self._taken = 0

    def anew(self) -> "Steps":
        """Another reading, behind what this one has put."""
        known = (self._ground, self._header, self._revision, self.before, self._breathe)
        other = Steps(*known)
        other._version = self._version
        return other

    def begin(self, state: bytes | None) -> None:
        """Go on from a state, or begin before event 0.

        Raises:
            ValueError: the state is none of ours.

        """
        before = self.before if state is not None else None
        self._sum = self._ground.sum(self._header, state)
        source = self._header.source
        self._unread: str | None = None
        if source is not None and self._header.is_import and lens_of(source.format) is None:
            self._unread = f"no lens for the format {source.format} is installed"
        self._position = Position(-1, self._header.genesis) if before is None else before.position
        self._start = 0 if before is None else before.floor
        self._reading = Passages()
        self._whole = before is None

    def stored(self, event: Event, *, line: bool) -> None:
        """Note what a lens does not say: keys, and when the last line was written."""
        if event.key is not None and not self._header.is_import:
            self._keys.append((event.type, event.key, event.seq))
            self._sum.key(event.type, event.key, event.seq)
        if line:
            self._sum.last = event.time

    def take(self, event: Event, *, new: bool = True, raw: bool = True) -> None:
        """Take the next event; one that is not `new` is read again for what follows.

        What is not `raw` was said by a lens.
        """
        if new:
            if raw:
                self.stored(event, line=True)
            self._sum.event(event)
        elif raw and event.key is not None and not self._header.is_import:
            self._keys.append((event.type, event.key, event.seq))
        try:
            for said in self._reading.read(event):
                self._add(said)
        except Exception as error:  # noqa: BLE001 - one record never stops the rest
            self._sum.skip(f"event {event.seq}: {type(error).__name__}: {error}")
        self._taken += 1
        if not self._taken % _BREATH_EVENTS:
            self._breathe()

    def _add(self, said: Said) -> None:
        found = analyse(said.text)
        self._chars += len(said.text)
        self._passages.append(
            Passage(
                seq=said.seq,
                kind=said.kind,
                words=found.words,
                parts=found.parts,
                digest=said.digest,
                agent=said.agent,
                time=said.time,
                call=None if said.call is None else digest_of(said.call),
            )
        )

    def at(self, record: Record) -> None:
        """All events of a record were taken."""
        self._position = max(self._position, record.position, key=lambda at: at.seq)
        much = len(self._passages) >= _PASSAGES_MAX or self._chars >= _CHARS_MAX
        if much or self._taken >= _EVENTS_MAX:
            self._put(last=False, problem=None)

    def end(self, problem: str | None) -> bool:
        """The log ends here; whether the catalog knows it."""
        for said in self._reading.end():
            self._add(said)
        return self._put(last=True, problem=problem)

    def _put(self, *, last: bool, problem: str | None) -> bool:
        backend, header = self._ground.backend, self._header
        following = self._position.seq + 1
        floor = self._reading.floor
        # Lenses are always read from their first line on, so nobody goes on from half of one; and
        # the state of a long source has every turn that was never ended.
        onward = last or not lens_version(header)
        state = self._sum.dump() if onward else b""
        listed = self._sum.listed(
            events=following,
            size=backend.tail(header.id).size,
            holder=backend.holder(header.id),
            problem=problem,
        )
        if problem is None and self._unread is not None:
            listed = replace(listed, problem=self._unread)
        change = Change(
            listed=listed,
            # Of a log that was not read to its end nobody shall think that it was.
            revision=self._revision if last else "",
            position=self._position,
            floor=following if floor is None else floor,
            state=state,
            rules=self._ground.rules(header),
            partial=not last,
            start=self._start,
            end=None if last else following,
            passages=self._passages,
            keys=self._keys,
            skipped=self._sum.skipped + (self._sum.unvalued is not None),
            skipped_why=self._sum.why or self._sum.unvalued,
        )
        version = self._ground.put(change, self._version)
        self.sound = version is not None
        self._version = version
        self._start = following
        self._passages, self._keys, self._chars, self._taken = [], [], 0, 0
        return self.sound
