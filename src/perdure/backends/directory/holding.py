"""What a writer holds of a session folder: its lock, its open log, its tail slots.

Everything that changes a log goes through here: appending, making a verified log whole again,
setting bytes aside, compaction, and putting another log in place.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from perdure.backends.base import Hold
from perdure.backends.directory import asides, content
from perdure.backends.directory.frames import ZstdLayout
from perdure.backends.directory.lines import RawLayout
from perdure.backends.directory.merging import MERGED_PLAIN, CannotCompact
from perdure.durable.appending import AppendFile
from perdure.durable.files import Folder
from perdure.durable.locks import Lock, exclusive
from perdure.durable.slots import TailSlots
from perdure.errors import PerdureError, SessionDamaged, StaleWriter
from perdure.model.header import Header, encode_header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending
from perdure.runtime import Runtime

__all__ = ["LAYOUTS", "PLAN", "VIEWS", "DirectoryHold", "Layout", "owned"]

Layout = type[RawLayout] | type[ZstdLayout]
PLAN = "repair.json"
VIEWS = "views"
LAYOUTS: dict[str, Layout] = {"zst": ZstdLayout, "raw": RawLayout}


class DirectoryHold(Hold):
    """The lock, the open log and the tail slots of one session."""

    def __init__(
        self, session: str, folder: Folder, lock: Lock, log: AppendFile, layout: Layout
    ) -> None:
        """Take over what is open; `release` closes it all.

        `staged` is the name under which it is being built, `abandon` removes that again.
        """
        self.session = session
        self.folder = folder
        self.lock = lock
        self.log = log
        self.layout = layout
        self.slots = TailSlots(folder)
        lock.companions += (self.log, self.slots, self.folder)
        self.staged: str | None = None
        self.abandon: Callable[[], None] | None = None
        self._base = Position(-1, "")
        self._planned = (-1, self._base)

    @property
    def position(self) -> Position:
        """Follows the length of the log in one step, so that a signal cannot come in between."""
        length, position = self._planned
        return position if self.log.length == length else self._base

    @property
    def dead(self) -> bool:
        """A sync failed: nobody knows what the disk holds."""
        return self.log.poisoned

    def plan(self, length: int, position: Position) -> None:
        """The log stands at `position` as soon as it has `length` bytes."""
        self._base = self.position
        self._planned = (length, position)

    def check(self) -> None:
        """See `Hold.check`."""
        self.lock.check()

    def release(self) -> None:
        """See `Hold.release`."""
        # Whatever goes wrong with one, the lock is given back.
        try:
            abandon, self.abandon = self.abandon, None
            if abandon is not None and self.lock.owned:
                abandon()
            self.slots.close()
            self.log.close()
        finally:
            self.lock.release()
            self.folder.close()

    # --- appending -------------------------------------------------------------------------------

    def commit(self, expected: Position, records: Sequence[Record]) -> None:
        """See `Backend.commit`."""
        self.check()
        log = self.log
        data = self.layout.commit(records)
        with exclusive(log.fd, self.session):
            if expected != self.position:
                raise StaleWriter(self.session, f"this writer stands at {self.position.seq}")
            self._refuse_if_moved()
            self.plan(log.length + len(data), records[-1].position)
            log.append(data)
            self.slots.write(self.position, log.status())

    def build(self, header: Header, records: Iterable[Record]) -> None:
        """Write the whole log of a session that nobody sees yet, in parts of bounded size."""
        log = self.log
        if log.length:
            # What an attempt left that failed after it.
            log.cut(0)
        data = self.layout.header(encode_header(header))
        for batch in _batches(records):
            data += self.layout.commit(batch)
            self.plan(log.length + len(data), batch[-1].position)
            log.append(data)
            data = b""

    def _refuse_if_moved(self) -> None:
        log = self.log
        size = log.size()
        if size != log.length or log.replaced():
            raise StaleWriter(self.session, f"the log has {size} bytes, not {log.length}")

    # --- recovery --------------------------------------------------------------------------------

    def settle(self, ending: Ending, seen: Position | None, runtime: Runtime) -> None:
        """See `Backend.settle`."""
        self.check()
        log = self.log
        with exclusive(log.fd, self.session):
            slot = TailSlots.read(self.folder)
            if slot is not None and slot.position != seen:
                # Only where the lock did not keep the other writer out; its commit is no torn tail.
                raise StaleWriter(self.session, "another writer wrote while it was verified")
            if slot is None or not slot.names(log.status()):
                # Whoever exchanged the log may have died before its name was durable: what is
                # appended to this one would go with it.
                self.folder.sync()
            self.sweep()
            content.sweep(self.folder)
            if log.size() > ending.end:
                self._set_aside(ending, runtime)
                log.cut(ending.end)
            log.length = ending.end
            log.rewrite(ending.acknowledged_end, ending.end)
            lacking = self.layout.finish(log, ending.piece_start, ending.end)
            self.plan(ending.end + len(lacking), ending.position)
            log.append(lacking)
            self.slots.write(self.position, log.status())
            self.slots.sync()

    def _set_aside(self, ending: Ending, runtime: Runtime) -> None:
        """Keep the bytes behind the verified end, with a note, before they are cut off."""
        start, end, now = ending.end, self.log.size(), runtime.now_ms()
        note = {
            "session": self.session,
            "file": self.log.name,
            "start": start,
            "end": end,
            "after_seq": ending.position.seq,
            "time": now,
            "reason": ending.reason,
        }
        place = f"{now:015d}-{runtime.token(4)}"
        asides.put(self.folder, place, lambda: self.log.chunks(start, end), note)

    # --- another log in place --------------------------------------------------------------------

    def replace(
        self, header: Header, records: Iterable[Record], place: str, reason: str, runtime: Runtime
    ) -> None:
        """See `Backend.replace`."""
        self.check()
        log = self.log
        end = Position(-1, header.genesis)

        def parts() -> Iterator[bytes]:
            nonlocal end
            yield self.layout.header(encode_header(header))
            for batch in _batches(records):
                yield self.layout.commit(batch)
                end = batch[-1].position

        with exclusive(log.fd, self.session):
            if log.replaced():
                raise StaleWriter(self.session, "another log has taken its place")
            self.sweep()
            note = {
                "session": self.session,
                "file": log.name,
                "start": 0,
                "end": log.size(),
                "time": runtime.now_ms(),
                "reason": reason,
            }
            asides.put(self.folder, place, lambda: log.chunks(0, log.size()), note)
            # Whatever is there is of the log that goes, and may be in nobody's way.
            with suppress(PerdureError):
                self.folder.remove_tree(VIEWS)
            successor = self._exchange(parts(), runtime)
        self._follow(successor, end)

    def _exchange(self, parts: Iterator[bytes], runtime: Runtime) -> AppendFile:
        """Build another log beside the log and give it its name, in one step."""
        log = self.log
        building = f".{log.name}.{runtime.token()}"
        try:
            self.folder.create(building, parts)
            successor = AppendFile(self.folder, building)
        except BaseException:
            self.folder.remove(building)
            raise
        try:
            self.folder.move(building, self.folder, log.name)
            successor.name = log.name
            # Until the folder is synced a loss of power may bring the old file back: what is
            # appended to the new one would be lost with it.
            log.poisoned = True
            self.folder.sync()
            log.poisoned = False
        except BaseException:
            successor.close()
            raise
        return successor

    def _follow(self, successor: AppendFile, position: Position) -> None:
        """Go on in the log that has taken the name."""
        self._base, self._planned = position, (successor.length, position)
        self.log.follow(successor)
        self.slots.write(position, self.log.status())
        self.slots.sync()

    # --- compaction ------------------------------------------------------------------------------

    def compact(self, runtime: Runtime, *, only_if_worth: bool) -> tuple[int, int]:
        """See `Backend.compact`.

        The new file takes the old one's name in one step. A reader that has the old one open reads
        on in it; a crash leaves one of the two, and perhaps a leftover for the next writer.

        Raises:
            SessionDamaged: bytes that belong to no record would be lost by it.

        """
        self.check()
        log, position = self.log, self.position
        before = log.length
        if not self.layout.compactable:
            return before, before
        if only_if_worth and not self.layout.worth_compacting(log, before):
            return before, before
        with exclusive(log.fd, self.session):
            self._refuse_if_moved()
            self.sweep()
            try:
                successor = self._exchange(self.layout.compacted(log, before), runtime)
            except CannotCompact as error:
                raise SessionDamaged(self.session, str(error), kind="noise") from error
        self._follow(successor, position)
        return before, log.length

    def sweep(self) -> None:
        """Remove what a writer that died had built and not yet given its name."""
        for name in self.folder.names():
            if name.startswith((f".{self.log.name}.", f".{PLAN}.")):
                self.folder.remove(name)


def owned(hold: Hold) -> DirectoryHold:
    """The hold, if it is one of this medium.

    Raises:
        TypeError: another backend gave it.

    """
    if not isinstance(hold, DirectoryHold):
        raise TypeError("this hold was given by another backend")
    return hold


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Records in groups as large as the frames of a compacted log."""
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and size + len(record.line) > MERGED_PLAIN:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += len(record.line)
    if batch:
        yield batch
