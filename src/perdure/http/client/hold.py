"""The right to write a session: a lease, kept alive beside what its holder does."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

from perdure.backends.base import Hold
from perdure.durable.temporary import Gathered, gathered, temporary_folder
from perdure.errors import PerdureError, ServerFaulty, SessionBusy, SessionClosed, StaleWriter
from perdure.http.client.asking import Asking
from perdure.http.wire.events import WriterShape
from perdure.model.header import Header
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher, weakly

__all__ = ["Lease", "Staged"]

_RENEW_SECONDS_MAX = 10.0
"""One renewal waits no longer: the thread has others to renew."""

_FIRST_SECONDS = 0.2
"""How long a new lease holds is asked so soon where it was not said."""

_SOON_SECONDS = 1.0


class Lease(Hold):
    """The right to write one session, as the server gave it.

    It ends with the server, and when it was not renewed in time. Then another one is taken, if the
    log still stands where this one left it: nobody has written since.

    Attributes:
        writer: what every append has to carry.
        header: the session's, where the answer had it.

    """

    def __init__(
        self,
        asking: Asking,
        session: str,
        writer: str,
        position: Position,
        *,
        renewer: Flusher,
        runtime: Runtime,
        seconds: float | None = None,
    ) -> None:
        """`seconds`: so long it holds; None: that is to be asked."""
        self.session = session
        self.writer = writer
        self.header: Header | None = None
        self._asking = asking
        self._moved = position
        self._renewer = renewer
        self._runtime = runtime
        self._pid = runtime.pid()
        self._live = True
        self._dead = False
        self._mutex = threading.Lock()
        # Weakly: a writer that everybody dropped is not kept alive, and its lease ends by itself.
        self._due: Callable[[], None] = weakly(self._renew)
        self._schedule(_FIRST_SECONDS if seconds is None else seconds / 3)

    @property
    def known(self) -> Header:
        """The session's header, of a lease that was taken of a stored session."""
        if self.header is None:
            raise SessionClosed(self.session, "its header was not read")
        return self.header

    @property
    def position(self) -> Position:
        """Where the log stands, by the last answer."""
        return self._moved

    @property
    def dead(self) -> bool:
        """See `Hold.dead`."""
        return self._dead

    def moved(self, position: Position) -> None:
        """The log stands here now."""
        self._moved = position

    def die(self) -> None:
        """Nobody knows where the log stands."""
        self._dead = True

    def check(self) -> None:
        """See `Hold.check`."""
        if self._pid != self._runtime.pid():
            raise SessionClosed(self.session, "this writer belongs to the parent process")
        if not self._live:
            raise SessionClosed(self.session, "this writer was closed")

    # --- keeping it -------------------------------------------------------------------------------

    def _schedule(self, seconds: float) -> None:
        # Where no thread can be started, the lease lasts as long as it is used.
        self._renewer.schedule(self._due, seconds)

    def _renew(self) -> None:
        if not self._live or self._dead or self._pid != self._runtime.pid():
            return
        try:
            wait = self._asking.renew(self.session, self.writer, _RENEW_SECONDS_MAX).seconds / 3
        except StaleWriter:
            # Who uses it next finds out, and takes another. Until then there is nothing to keep.
            return
        except PerdureError:
            wait = _SOON_SECONDS
        if self._live:
            self._schedule(wait)

    def again(self, reason: str, records: Sequence[Record]) -> int:
        """Take the right once more, after the server said that it has ended.

        `records` were to be stored: how many of them are is returned, and the position is behind
        those.

        Raises:
            StaleWriter: somebody wrote meanwhile, or has the right now.
            As `Asking.ask`: that cannot be found out.

        """
        try:
            shape: WriterShape | None = self._asking.take(
                self.session, 0.0, self._runtime.token(16)
            )
        except SessionBusy:
            shape = None
        except PerdureError as error:
            if error.retryable or isinstance(error, ServerFaulty):
                raise
            # It was deleted, say, or is damaged.
            raise StaleWriter(self.session, f"{reason}; {error.message}") from error
        if shape is not None:
            found = Position(shape.position.seq, shape.position.hash)
            places = [self._moved, *(record.position for record in records)]
            if found in places:
                self.writer = shape.writer
                self._moved = found
                self._schedule(shape.seconds / 3)
                return places.index(found)
            self._asking.give_back(self.session, shape.writer)
        self._look(records)
        who = "somebody else writes it" if shape is None else "the log has moved on since"
        raise StaleWriter(self.session, f"{reason}, and {who}")

    def _look(self, records: Sequence[Record]) -> None:
        """Find out which of these the log holds, so that nobody is told that they are lost."""
        start = self._moved.seq + 1
        due = [record for record in records if record.first >= start]
        stream = self._asking.open("raw_lines", self.session, [("start", str(start))])
        with stream:
            for lines in stream.lines():
                for line in lines:
                    if not due or not _is(line, due[0]):
                        return
                    self._moved = due.pop(0).position

    def release(self) -> None:
        """See `Hold.release`."""
        with self._mutex:
            live, self._live = self._live, False
        if live and self._pid == self._runtime.pid():
            self._asking.give_back(self.session, self.writer)


def _is(line: bytes, record: Record) -> bool:
    try:
        return decode_line(line).hash == record.hash
    except BadRecordError:
        return False


class Staged(Hold):
    """Content of a session that is not stored yet: kept here until the session is.

    Attributes:
        content: what is kept, by its digest.

    """

    def __init__(self, header: Header) -> None:
        """Nothing is kept yet."""
        self.session = header.id
        self.content: dict[str, Gathered] = {}
        self._position = Position(-1, header.genesis)
        self._kept = ExitStack()
        self._live = True

    @property
    def position(self) -> Position:
        """Before the first event."""
        return self._position

    def check(self) -> None:
        """See `Hold.check`."""
        if not self._live:
            raise SessionClosed(self.session, "this writer was closed")

    def keep(self, parts: Iterable[bytes]) -> Gathered:
        """Read content to its end, and keep it: a few MiB in memory, more in a file.

        Raises:
            StorageFull, StorageUnavailable: there is no room for it.

        """
        self.check()
        with ExitStack() as stack:
            folder = stack.enter_context(temporary_folder("perdure-"))
            found = stack.enter_context(gathered(parts, folder))
            if found.digest not in self.content:
                self.content[found.digest] = found
                self._kept.push(stack.pop_all().__exit__)
        return self.content[found.digest]

    def release(self) -> None:
        """See `Hold.release`."""
        self._live = False
        self.content.clear()
        self._kept.close()
