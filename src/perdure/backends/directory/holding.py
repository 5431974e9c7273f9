"""What a writer holds of a session folder: its lock, its open log, its tail slots.

Everything that changes a log goes through here: appending, making a verified log whole again,
setting bytes aside, and compaction.
"""

from collections.abc import Callable, Sequence

from perdure.backends.base import Hold
from perdure.backends.directory import content
from perdure.backends.directory.frames import ZstdLayout
from perdure.backends.directory.lines import RawLayout
from perdure.backends.directory.merging import CannotCompact
from perdure.durable.appending import AppendFile
from perdure.durable.files import Folder
from perdure.durable.locks import Lock, exclusive
from perdure.durable.slots import TailSlots
from perdure.errors import SessionDamaged, StaleWriter
from perdure.model import values
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending
from perdure.runtime import Runtime

__all__ = ["LAYOUTS", "DirectoryHold", "Layout"]

Layout = type[RawLayout] | type[ZstdLayout]
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
            self._sweep()
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
        start, end = ending.end, self.log.size()
        note = {
            "session": self.session,
            "file": self.log.name,
            "start": start,
            "end": end,
            "after_seq": ending.position.seq,
            "time": runtime.now_ms(),
            "reason": ending.problem.reason if ending.problem else "not part of any record",
        }
        with self.folder.child("aside", make=True) as aside:
            # Whoever made it may have died before its entry was durable.
            self.folder.sync()
            name = f"{note['time']:015d}-{runtime.token(4)}"
            aside.create(f"{name}.bytes", self.log.chunks(start, end))
            aside.create(f"{name}.json", values.encode(note) + b"\n")
            aside.sync()

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
        building = f".{log.name}.{runtime.token()}"
        with exclusive(log.fd, self.session):
            self._refuse_if_moved()
            self._sweep()
            try:
                self.folder.create(building, self.layout.compacted(log, before))
                successor = AppendFile(self.folder, building)
            except CannotCompact as error:
                self.folder.remove(building)
                raise SessionDamaged(self.session, str(error), kind="noise") from error
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
        self._base, self._planned = position, (successor.length, position)
        log.follow(successor)
        self.slots.write(position, log.status())
        self.slots.sync()
        return before, log.length

    def _sweep(self) -> None:
        """Remove what a compaction left that died before it had done anything."""
        for name in self.folder.names():
            if name.startswith(f".{self.log.name}."):
                self.folder.remove(name)
