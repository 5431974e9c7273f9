"""The contract of a backend: it stores record lines in order and knows nothing of their meaning.

Codec, chain, idempotency, packing and recovery exist once, above the backends. A backend's whole
duty is order, durability, one writer at a time, and to show what is stored, damage included. The
contract suite in `perdure.testing.contract` is its definition; `memory` is its executable form.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from perdure.durable.locks import Holder
from perdure.errors import FormatUnsupported
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Piece, Problem, Walk

__all__ = ["Backend", "Entry", "Hold", "Stored", "Tail"]


class Tail(NamedTuple):
    """What a backend knows of a log's end without reading the log.

    Attributes:
        acknowledged: the last acknowledged position, or None if no evidence is left.
        settled: the medium is exactly as the last acknowledgement left it.
        size: length of the stored log, in the backend's unit.

    """

    acknowledged: Position | None
    settled: bool
    size: int


class Stored(NamedTuple):
    """The first line of a session as found.

    Attributes:
        header: the header, or None if it is damaged or unsupported.
        problem: why there is no header.
        begin: where the records begin, in the backend's unit.
        unsupported: the refusal, if the header is intact but of another format.

    """

    header: Header | None
    problem: Problem | None
    begin: int
    unsupported: FormatUnsupported | None = None


class Entry(NamedTuple):
    """One session in a listing.

    Attributes:
        name: its name on the medium.
        id: its id; where no header tells it, what the name on the medium says.
        header: its header, or None.
        problem: why there is no header, or None.
        revision: opaque text that changes with every append and every repair, and is never equal
            across two stores.

    """

    name: str
    id: str
    header: Header | None
    problem: Problem | None
    revision: str


class Hold(ABC):
    """The exclusive right to write one session, with the position it stands at."""

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

    @abstractmethod
    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        """Take the exclusive right to write an existing session.

        The hold's position is unknown until `settle` is called with a finished walk.

        Raises:
            SessionNotFound: there is none.
            SessionBusy: another writer has it, after `wait` seconds.

        """

    @abstractmethod
    def holder(self, session: str) -> Holder | None:
        """Who writes the session now, or None; takes nothing, never waits."""

    @abstractmethod
    def publish(self, header: Header, records: Sequence[Record]) -> Hold:
        """Create a session with its first commit: afterwards all of it is durable, or nothing is.

        Raises:
            SessionExists: the id is taken.

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
    def settle(self, hold: Hold, walk: Walk) -> None:
        """Make durable what the walk verified, set aside what stands behind it, and take position.

        No byte is destroyed: what is cut off the log is kept beside it with a note.
        """

    @abstractmethod
    def stored(self, session: str) -> Stored:
        """The header of a session as found on the medium.

        Raises:
            SessionNotFound: there is none.

        """

    @abstractmethod
    def scan(self, session: str, begin: int) -> Iterator[Piece]:
        """The stored log from `begin` (a place that `stored` or `seek` gave) to its end."""

    @abstractmethod
    def seek(self, session: str, seq: int) -> int:
        """A place at or before the record that holds `seq`, found without reading the log."""

    @abstractmethod
    def tail(self, session: str) -> Tail:
        """What is known of the end of the log without reading it."""

    @abstractmethod
    def entries(self) -> Iterator[Entry]:
        """Every session, in a stable order; one that cannot be read hides no other."""

    @abstractmethod
    def locate(self, session: str) -> str | None:
        """Absolute path of the session's log, whether or not it exists; None without files."""

    @abstractmethod
    def close(self) -> None:
        """Release what the backend holds open."""
