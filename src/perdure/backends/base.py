"""The contract of a backend: it stores record lines in order and knows nothing of their meaning.

Codec, chain, idempotency, packing and recovery exist once, above the backends. A backend's whole
duty is order, durability, one writer at a time, and to show what is stored, damage included. The
contract suite in `perdure.testing.contract` is its definition; `memory` is its executable form.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Self

from perdure.backends.facts import Aside, Blob, Entry, Stored, Tail, Trashed
from perdure.durable.locks import Holder
from perdure.errors import InvalidValue
from perdure.evidence import Evidence
from perdure.model import values
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece, Problem

__all__ = [
    "DERIVED_BYTES_MAX",
    "Aside",
    "Backend",
    "Blob",
    "Entry",
    "Hold",
    "Stored",
    "Tail",
    "Trashed",
    "check_derived_name",
    "check_place",
]

DERIVED_BYTES_MAX = 256 * 1024 * 1024
"""Of what is derived, so much under one name: it is read into memory as a whole."""

_PLACE = re.compile("[a-z0-9-]{1,128}")
_DERIVED_NAME = re.compile("[a-z0-9-]{1,64}")


class Hold(ABC):
    """The exclusive right to write one session, with the position it stands at.

    Attributes:
        session: the id of the session.

    """

    session: str

    @property
    @abstractmethod
    def position(self) -> Position:
        """Where the log stands, by the last commit that is durable."""

    @property
    def dead(self) -> bool:
        """True after a failure that leaves the medium's state unknown: only reopening helps."""
        return False

    @abstractmethod
    def check(self) -> None:
        """Make sure the right is still held by this process.

        Raises:
            SessionClosed: released, or inherited by a forked process.

        """

    @abstractmethod
    def release(self) -> None:
        """Give the right back; harmless when repeated."""


class Backend(ABC):
    """What every medium offers. Methods may be called from any thread."""

    scheme: str
    persistent: bool = True

    def __repr__(self) -> str:
        """The scheme; a backend with a place says where."""
        return f"{self.scheme}:"

    @property
    def place(self) -> str | None:
        """Absolute path or address of the medium, one for all namespaces and links; None if none.

        Two backends of one medium have the same.
        """
        return None

    @abstractmethod
    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        """Take the exclusive right to write an existing session.

        The hold's position is unknown until `settle` is called.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: another writer has it, after `wait` seconds.

        """

    @abstractmethod
    def holder(self, session: str) -> Holder | None:
        """Who writes the session now, or None; takes nothing, never waits."""

    @abstractmethod
    def stage(self, header: Header) -> Hold:
        """Room for the content of a session that is not stored yet; nobody else sees it.

        `publish` takes it over. Releasing it, or the end of the process, leaves nothing behind.
        """

    @abstractmethod
    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        """Create a session with its first commit: afterwards all of it is durable, or nothing is.

        `records`, one at least, are taken one by one; they may be read from another log meanwhile.
        With `staged`, the content that was put there comes with it. If this raises, `staged` is
        used up by SessionExists, and otherwise there for another try unless it is dead.

        Raises:
            SessionExists: the id is taken, perhaps by a session in the trash.
            StorageFull, StorageUnavailable: nothing was stored, or, if that is `uncertain`, what
                was stored may turn up later.

        """

    @abstractmethod
    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        """Append records durably if the log still stands at `expected`; one atomic comparison.

        After a crash any prefix of the records of an unacknowledged commit may be there.

        Raises:
            StaleWriter: it does not; nothing was written.
            StorageFull, StorageUnavailable: nothing of the commit is kept, or the hold is dead.

        """

    @abstractmethod
    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        """Make durable what was verified, set aside what stands behind it, and take position.

        No byte is destroyed: what is cut off the log is kept beside it with a note. `seen` is what
        `tail` said before the log was read.

        Raises:
            StaleWriter: the acknowledged position is another one by now.

        """

    @abstractmethod
    def stored(self, session: str) -> Stored:
        """The header of a session as found on the medium.

        Raises:
            SessionNotFound: there is none.

        """

    @abstractmethod
    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        """The stored log from `begin` (where `stored` says that the records begin) to its end.

        With `seq` it starts at a place at or before the record that holds that event, found without
        reading what is before. One call reads one state of the log, whatever happens to it.
        """

    def disagreements(self, session: str) -> Iterator[Problem]:
        """Places where what the medium keeps to find records does not say what they say.

        The records are right; a repair makes the rest anew. Most media keep nothing of the kind.

        Raises:
            SessionNotFound: there is no such session.

        """
        self.stored(session)
        return iter(())

    @abstractmethod
    def tail(self, session: str) -> Tail:
        """What is known of the end of the log without reading it."""

    @abstractmethod
    def revision(self, session: str) -> str:
        """Opaque text that changes with every change of the log: as in its `Entry`.

        Raises:
            SessionNotFound: there is none.

        """

    def lasting_revision(self, session: str) -> str | None:
        """As `revision`, or None while a further change might leave it as it is.

        A medium whose revisions come from a coarse clock must say so for a while after a change.
        """
        return self.revision(session)

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Every session, in a stable order; one that cannot be read hides no other."""

    @abstractmethod
    def locate(self, session: str) -> str | None:
        """Absolute path of the session's log, whether or not it exists; None without files."""

    # --- what an index follows -------------------------------------------------------------------

    @property
    def beside(self) -> str | None:
        """Absolute path of the folder for what belongs to the medium; None without one."""
        return None

    @property
    def database(self) -> object | None:
        """The server that the catalogs of this medium share; None where they are files."""
        return None

    def revisions(self) -> Iterator[tuple[str, str]]:
        """Id and revision of every session, as in `entries`, but no header need be read."""
        return ((entry.id, entry.revision) for entry in self.entries())

    def arrangement(self) -> str | None:
        """Opaque text that changes when sessions come or go; None if nobody can tell."""
        return None

    def subscribe(self, session: str, told: Callable[[], None]) -> Callable[[], None] | None:
        """Let `told` be called, by any thread, soon after each change of a session's log.

        What is returned ends that. None: this medium tells nobody. One may go untold, so whoever is
        told has to look now and then as well. `told` must neither wait nor raise.
        """
        del session, told  # most media have no way to tell
        return None

    # --- content ---------------------------------------------------------------------------------

    @abstractmethod
    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        """Store content durably under the SHA-256 of its bytes; the same bytes are stored once."""

    def clone_blob(self, hold: Hold, session: str, digest: str) -> Blob | None:
        """Store content of another session of this namespace, so that both share room on the disk.

        Durable when this returns, and what happens to one is nothing to the other. None, and
        nothing happened, where the medium cannot do that, or the bytes are not those named.
        """
        hold.check()
        del session, digest  # most media share nothing
        return None

    @abstractmethod
    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        """The stored bytes in parts, unchecked; None if they are not there. Takes no lock."""

    @abstractmethod
    def blobs(self, session: str) -> Iterator[Blob]:
        """What content is stored, in order of the digests.

        Raises:
            SessionNotFound: there is no such session.

        """

    @abstractmethod
    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        """Remove content; what is not there is no error. A reader in the middle of it goes on."""

    # --- repair ----------------------------------------------------------------------------------

    @abstractmethod
    def plan(self, session: str) -> bytes | None:
        """The plan of a repair that is under way, as it was set; None if there is none.

        Raises:
            SessionNotFound: there is no such session.

        """

    @abstractmethod
    def set_plan(self, hold: Hold, plan: bytes | None) -> None:
        """Keep the plan of a repair, durable when this returns; None removes it.

        A crash leaves the plan that was there before or the new one, whole.
        """

    @abstractmethod
    def replace(
        self, hold: Hold, header: Header, records: Iterable[Record], *, place: str, reason: str
    ) -> None:
        """Put another log in the place of the session's log, durable when this returns.

        It happens in one step that a reader and a crash see whole or not at all. What stood there,
        header and all, is kept aside as `place` first, whole and untouched; what is kept at
        `place` already is not kept twice. `records` are taken one by one, and may be read from the
        old log meanwhile. Content stays. `hold` comes from `lock` and was never settled;
        afterwards it stands at the last record, which is the acknowledged tail.

        Raises:
            InvalidValue: `place` is none, as for `put_aside`.
            StaleWriter: another log has taken the place of the one that was locked.
            StorageFull, StorageUnavailable: the old log stands, or the hold is dead.

        """

    @abstractmethod
    def put_aside(self, hold: Hold, parts: Iterable[bytes], *, place: str, reason: str) -> None:
        """Keep bytes beside the log, durable when this returns; at a `place` in use, nothing.

        `place` is 1 to 128 lower-case letters, digits and hyphens.

        Raises:
            InvalidValue: `place` is not.

        """

    @abstractmethod
    def asides(self, session: str) -> Iterator[Aside]:
        """What is kept beside the log, oldest first; what `settle` cut off is among it.

        Raises:
            SessionNotFound: there is no such session.

        """

    @abstractmethod
    def aside(self, session: str, place: str) -> Iterator[bytes] | None:
        """The bytes that are kept as `place`, in parts; None if nothing is.

        Raises:
            SessionNotFound: there is no such session.

        """

    # --- derived data ----------------------------------------------------------------------------

    @abstractmethod
    def derived(self, session: str, name: str) -> bytes | None:
        """All bytes that are kept under `name`, from one state of it; None if none are.

        What is derived can be made from the log again. It is never synced: after a crash it may be
        older, torn, or gone, so it has to check itself. Takes no lock. More than
        `DERIVED_BYTES_MAX` are as if there were none: nobody reads what somebody blew up.

        Raises:
            InvalidValue: `name` is none.
            SessionNotFound: there is no such session.

        """

    @abstractmethod
    def put_derived(self, hold: Hold, name: str, data: bytes, *, at: int | None = None) -> None:
        """Keep `data` under `name`: in the place of all that is there, or behind it.

        It should not come to more than `DERIVED_BYTES_MAX`.

        Without `at` it takes the place of everything, in one step that a reader sees whole or not
        at all. With `at` it is appended, if exactly so many bytes are there. `name` is 1 to 64
        lower-case letters, digits and hyphens. The log and what was acknowledged of it stay as they
        are, whatever goes wrong. After `replace`, nothing is kept.

        Raises:
            InvalidValue: `name` is none, or not `at` bytes are there; nothing was kept.
            StorageFull, StorageUnavailable: what is kept is the old, the new, or a torn mixture.

        """

    @abstractmethod
    def drop_derived(self, hold: Hold, name: str) -> None:
        """Keep nothing under `name` any more; nothing there is no error.

        Raises:
            InvalidValue: `name` is none.

        """

    # --- the trash -------------------------------------------------------------------------------

    @abstractmethod
    def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
        """Move a session with all it has to the trash, in one step, damaged or not.

        `then` is called while nobody can restore or remove it yet.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: somebody writes it.

        """

    @abstractmethod
    def trash(self) -> Iterator[Trashed]:
        """What can be restored, the oldest deletion of each session first."""

    @abstractmethod
    def restore(self, session: str, then: Callable[[], None]) -> None:
        """Move the session that was deleted last under this id back, in one step.

        `then` is called while nobody can write or delete it yet.

        Raises:
            SessionNotFound: none of that id is in the trash.
            SessionExists: the id is taken by a session that is not deleted.
            SessionBusy: it is being deleted, restored or removed by somebody else.

        """

    @abstractmethod
    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        """Remove a deleted session for good; False if it is not there any more.

        `first` is called before anything is removed, while nobody can restore it. What a crash
        leaves of it is seen by nobody, and goes with the next `sweep_trash`.

        Raises:
            SessionBusy: it is being deleted, restored or removed by somebody else.

        """

    def sweep_trash(self) -> None:  # noqa: B027 - most media have nothing to sweep
        """Remove what an interrupted `purge` left."""

    # --- the medium ------------------------------------------------------------------------------

    def make(self) -> None:  # noqa: B027 - what is not kept in files is there
        """Create the medium, empty, where there is none; one to hand on is whole in its file then.

        Raises: `UnsafeFile`, `FormatUnsupported`, `StorageFull`, `StorageUnavailable`.
        """

    def compact(self, hold: Hold, *, only_if_worth: bool = False) -> tuple[int, int]:
        """Store the same records in less room; size before and after.

        With `only_if_worth`, nothing is done where little would be gained.
        """
        hold.check()
        del only_if_worth  # a medium with nothing to gain has nothing to weigh
        size = self.tail(hold.session).size
        return size, size

    @abstractmethod
    def namespace(self, part: str) -> Self:
        """The same medium, but with the sessions of the namespace `part` below this one only."""

    @abstractmethod
    def namespaces(self) -> Iterator[str]:
        """The namespaces directly below this one in which something was stored, in order."""

    @property
    @abstractmethod
    def evidence(self) -> Evidence:
        """What is remembered about all sessions of all namespaces of this medium."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """The namespace of this backend, outermost part first; empty for the root."""

    @abstractmethod
    def close(self) -> None:
        """Release what the backend holds open."""


def check_place(place: str) -> None:
    """Refuse what is no place beside a log.

    Raises:
        InvalidValue: not 1 to 128 lower-case letters, digits and hyphens.

    """
    if not _PLACE.fullmatch(place):
        raise InvalidValue(
            "place",
            f"{values.shown(place)} is no place beside a log",
            hint="1 to 128 lower-case letters, digits and hyphens",
        )


def check_derived_name(name: str) -> None:
    """Refuse what is no name of derived data.

    Raises:
        InvalidValue: not 1 to 64 lower-case letters, digits and hyphens.

    """
    if not _DERIVED_NAME.fullmatch(name):
        raise InvalidValue(
            "name",
            f"{values.shown(name)} is no name of derived data",
            hint="1 to 64 lower-case letters, digits and hyphens",
        )
