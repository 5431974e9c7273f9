"""How accepted events become durable: numbered, committed in order, or taken back.

A durable append commits in the calling thread. Callers that arrive while a commit is under way
share the next one: whoever gets the commit lock takes all that is pending, the others find their
events stored when they get it. Nothing here is shared between sessions.

Three locks, always taken in this order: `_content` while content is put, `_committing` for a whole
commit, `_mutex` for the queue.
"""

import copy
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from perdure.backends.base import Backend, Hold
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionBusy,
    SessionClosed,
    SessionExists,
    SessionNotFound,
    StaleWriter,
    StorageUnavailable,
)
from perdure.model import values
from perdure.model.event import Draft, Event
from perdure.model.header import Header
from perdure.model.record import Position, Record, seal
from perdure.recovery.closers import OpenWork
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher, weakly
from perdure.store.folding import Folding
from perdure.store.indexer import Followed
from perdure.store.queue import Accepted, Keys, Queue
from perdure.store.survey import Survey
from perdure.store.witness import Witness
from perdure.views.fold import Fold

__all__ = ["Committer"]

FOLDED_AT_ONCE = 512
BREATH_SECONDS = 0.001
"""The background thread folds so many records in one go, and then lets commits go before."""


class Committer:
    """The committing half of a session; `Session` is what callers see of it."""

    def __init__(
        self,
        backend: Backend,
        header: Header,
        *,
        hold: Hold | None,
        keys: Keys | None,
        proven: frozenset[Position],
        folding: Folding,
        read_keys: Callable[[], Keys],
        read_event: Callable[[str, int], Event],
        flusher: Flusher,
        witness: Witness,
        survey: Survey,
        runtime: Runtime,
        indexer: Followed | None = None,
        mark: str | None = "",
        pack: bool = True,
    ) -> None:
        """Made by `Store.create` and `Store.writer`; without a hold, the first commit publishes.

        `proven` are remembered positions that were found in the log when it was verified. Where
        `keys` are None, `read_keys` reads them from the log.
        """
        self.header = header
        # Which of the writers of its store it is, by the order in which they were begun.
        self.born = 0
        # Whether it began with this writer.
        self.new = hold is None
        self._backend = backend
        self._hold = hold
        self._staged: Hold | None = None
        self._put: set[str] = set()
        self._witness = witness
        self._survey = survey
        self._proven = proven
        self._folding = folding
        # What this writer left open; None once it lost track of it.
        self._work: OpenWork | None = OpenWork()
        self._flusher = flusher
        # Weakly: a writer that everybody dropped is not kept for what can be made again.
        self._keep_later = weakly(self._keep_due)
        self._runtime = runtime
        self._indexer = indexer
        # What says that this session is being written, until the index has followed it; "" before.
        self._mark = mark
        self._pack = pack
        self._pid = runtime.pid()
        # Reentrant, so that a signal handler that comes back is told rather than left to wait for
        # itself; see `_refuse_reentry`.
        self._content = threading.RLock()
        self._committing = threading.RLock()
        self._mutex = threading.RLock()
        self._queue = Queue(
            header.id,
            self.position.seq,
            keys,
            read_keys=read_keys,
            read_event=read_event,
            persistent=backend.persistent,
        )
        self._due = False
        # Whether the background thread was asked to keep the rows, and has not begun.
        self._keeping = False
        self._closed: str | None = None
        self._untold: PerdureError | None = None
        self._released = False

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def position(self) -> Position:
        """The last durable position; (-1, genesis) before the first append."""
        hold = self._hold
        return hold.position if hold is not None else Position(-1, self.header.genesis)

    @property
    def closed(self) -> bool:
        """Whether this object can no longer write."""
        return self._closed is not None

    def fold(self) -> Fold:
        """The rows of all views at the last durable position; what is committed later is not in it.

        Raises:
            SessionDamaged, StorageUnavailable: the log cannot be read for it.
            PersistenceDisabled: it would have to be read, and nothing is stored.
            SessionClosed: closed, or used in a forked child.

        """
        self._refuse_reentry()
        self._check()
        with self._committing:
            self._check()
            return self._folding.fold(self.position)

    # --- accepting ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Wait until everything accepted so far is durable.

        Raises:
            StorageFull, StorageUnavailable: not yet stored; the events are still held, in order.
            StaleWriter, StorageUnavailable with `lost`: the writer is dead, `lost` names them.
            SessionClosed: closed, or used in a forked child.

        """
        waiting = self._due_now()
        with self._committing:
            self._commit_for(waiting)

    def _flush_due(self) -> None:
        """Commit what the background thread finds due; a failure is kept for the next caller."""
        with self._mutex:
            if self.closed or self._pid != self._runtime.pid():
                return
            self._due = False
            waiting = self._queue.waiting()
        with self._committing:
            self._commit_unasked(waiting)

    def _commit_unasked(self, waiting: Sequence[Accepted]) -> None:
        try:
            self._commit_for(waiting)
        except PerdureError as error:
            # What is still held fails again by itself; a dead writer would fall silent.
            if self.closed:
                self._untold = error

    def _due_now(self) -> list[Accepted]:
        self._refuse_reentry()
        self._check()
        with self._mutex:
            self._check()
            self._due = False
            return self._queue.waiting()

    def _tell(self) -> None:
        """Raise what ended this writer while nobody was calling, once."""
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def _append_durably(self, drafts: Sequence[Draft], at: int | None = None) -> list[Event]:
        own: list[Accepted] = []
        settled = False
        try:
            self.admit(drafts, own, at=at)
            with self._committing:
                try:
                    self._commit_for(own)
                except BaseException as error:
                    # Before anybody else can commit them: the caller is told they are not there.
                    settled = True
                    if self._give_up(own) or not isinstance(error, Exception):
                        raise
        except BaseException:
            # A batch that was refused has nothing to give up, and waits for no commit.
            if own and not settled:
                with self._committing:
                    self._give_up(own)
            raise
        return [one.event for one in own]

    # The two halves of an append, for callers who must not block between them (`perdure.aio`).

    def admit(
        self,
        drafts: Sequence[Draft],
        own: list[Accepted],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> None:
        """Number the drafts and queue them, into the empty `own`; nothing is durable yet.

        With `keep` they are never taken back, as after `buffer`. Reads the log only where
        `needs_reading` says so.

        Raises:
            InvalidValue, KeyConflict, SessionClosed: none of them was accepted.

        """
        self._refuse_reentry()
        self._check()
        self._queue.look_up(drafts)
        with self._mutex:
            self._check()
            self._check_next(at)
            self._queue.accept(drafts, own, keep=keep)

    def keep(self, own: Sequence[Accepted]) -> bool:
        """Never take these back from now on; False if they were, or can never be stored."""
        with self._mutex:
            for one in own:
                one.kept = True
            return bool(own) and not any(one.withdrawn or one.failure for one in own)

    def needs_reading(self, drafts: Sequence[Draft]) -> bool:
        """Whether `admit` has to read stored events that share a key with these."""
        return any(one.key is not None and self._queue.may_store(one) for one in drafts)

    def settle(self, groups: Sequence[Sequence[Accepted]]) -> list[Exception | None]:
        """Make durable what several callers admitted, in one commit where that is possible.

        Returns for each group None, or why it is not stored; such a group was taken back unless it
        was admitted to be kept.
        """
        outcomes: list[Exception | None] = []
        with self._committing:
            for own in groups:
                failure: Exception | None = None
                try:
                    self._commit_for(own)
                except Exception as error:  # noqa: BLE001 - each group is told its own
                    failure = error if self._give_up(own) else None
                outcomes.append(failure)
        return outcomes

    def _check_next(self, at: int | None) -> None:
        if at is not None and at != self._queue.next_seq:
            raise InvalidValue(
                "seq",
                f"{values.shown(at)} does not continue the log, {self._queue.next_seq} would",
                hint="leave the number out, or read the log again",
            )

    def _give_up(self, own: Sequence[Accepted]) -> bool:
        """Withdraw what is not durable; False if all of it turned out to be."""
        with self._mutex:
            self._queue.settle(self.position.seq)
            self._queue.withdraw(own)
            return not all(one.durable for one in own)

    # --- committing ------------------------------------------------------------------------------

    def _commit_for(self, own: Sequence[Accepted]) -> None:
        """Commit all that is pending, unless others have stored `own` meanwhile.

        Called with `_committing`.
        """
        with self._mutex:
            self._queue.settle(self.position.seq)
            for one in own:
                if one.failure is not None:
                    # Each caller gets its own object: tracebacks are added to what is raised.
                    raise copy.copy(one.failure)
            if all(one.settled for one in own):
                return
            batch = self._queue.waiting()
        due = self._folding.committed(self._commit(batch))
        if due and not self._keeping:
            # Asked once: to be woken for each commit would cost more than the commit.
            self._keeping = self._flusher.schedule(self._keep_later)
            if not self._keeping:
                self._keep_rows()

    def _commit(self, batch: Sequence[Accepted]) -> list[Record]:
        try:
            before = self.position
            records = seal(before, [one.draft for one in batch], pack=self._pack)
            if self._hold is None:
                self._witness.announce(self.header)
                self._hold = self._backend.publish(self.header, records, self._staged)
                self._staged = None
                # Not before: there may have been no store to put it into, and who looks for what
                # a dead writer left sees that a session came.
                self._mark_writing()
            else:
                self._mark_writing()
                self._backend.commit(self._hold, before, records)
            self._witness.moved(self.header, records[-1].position, records)
            if self._work is not None:
                for record in records:
                    self._work.record(record)
            return records
        except SessionExists:
            if self._staged is not None:
                self._staged.release()
                self._staged = None
            raise
        except StaleWriter as error:
            raise self._die(StaleWriter(self.id, error.reason)) from error
        except BaseException as error:
            self._work = None
            if not self._outcome_unknown(error):
                raise
            failure = self._die(
                StorageUnavailable(
                    getattr(error, "path", self.id),
                    getattr(error, "reason", str(error)) or type(error).__name__,
                    hint="open the session again; whether .lost was stored shows then",
                )
            )
            if isinstance(error, Exception):
                raise failure from error
            raise
        finally:
            with self._mutex:
                self._queue.settle(self.position.seq)

    def _mark_writing(self) -> None:
        if self._mark == "":
            self._mark = None if self._indexer is None else self._indexer.begun(self.id)

    def _stage(self) -> Hold:
        """Room for content before the first commit; that one takes it over."""
        self._staged = self._backend.stage(self.header)
        return self._staged

    def _outcome_unknown(self, error: BaseException) -> bool:
        """Whether a commit that raised may be on the medium all the same."""
        if self._hold is not None:
            return self._hold.dead
        if self._staged is not None and self._staged.dead:
            return True
        if isinstance(error, StorageUnavailable) and error.uncertain:
            return True
        # A first commit: the session may have appeared before something went wrong.
        try:
            found = self._backend.stored(self.id).header
        except SessionNotFound:
            return False
        except PerdureError:
            return True
        return found is not None and found.digest == self.header.digest

    def _die(self, error: StaleWriter | StorageUnavailable) -> PerdureError:
        """No further write can succeed: whoever waits is told, and so is everybody from now on."""
        with self._mutex:
            self._closed = f"it stopped after: {error.message}"
            # Here and not before: what another thread buffered meanwhile is lost as well.
            error.lost = tuple(self._queue.events())
            self._queue.fail(error)
        self._release()
        return error

    def _keep_rows(self, most: int | None = None) -> bool:
        """Store the rows of the views; False if there is more to be folded for it."""
        hold = self._hold
        return hold is None or self._folding.keep(hold, most)

    def _keep_due(self) -> None:
        """Store the rows where nobody waits for it, and let commits go before."""
        with self._committing:
            self._keeping = False
            if self._closed is not None or self._pid != self._runtime.pid():
                return
            if self._keep_rows(FOLDED_AT_ONCE):
                return
            self._keeping = self._flusher.schedule(self._keep_later, BREATH_SECONDS)
            if not self._keeping:
                self._keep_rows()

    # --- ending ----------------------------------------------------------------------------------

    def _refuse_reentry(self, *, content: bool = False) -> None:
        """A signal handler runs in between any two steps of what its thread is doing.

        Raises:
            SessionBusy: this thread is in the middle of a commit, or of what is done to `content`.

        """
        for lock in (self._committing, self._mutex, *((self._content,) if content else ())):
            if lock._is_owned():  # noqa: SLF001
                raise SessionBusy(self.id, reentered=True)

    def _check(self) -> None:
        if self._pid != self._runtime.pid():
            raise SessionClosed(self.id, "this writer belongs to the parent process")
        self._tell()
        if self._closed is not None:
            raise SessionClosed(self.id, self._closed)

    def _release(self) -> None:
        for hold in (self._staged, self._hold):
            if hold is not None:
                hold.release()
        self._released = True

    def close(self) -> None:
        """Store what is buffered and give the session back; harmless when repeated.

        Raises:
            StorageFull, StorageUnavailable, StaleWriter, SessionExists: something buffered could
                not be stored and stands in `lost`; the session is closed all the same.

        """
        if self._pid != self._runtime.pid():
            # The parent's buffer and lock are not ours; only the copied descriptors are closed.
            self._closed = "this writer belongs to the parent process"
            if not self._released:
                self._release()
            return
        self._refuse_reentry(content=True)
        if self._released:
            with self._committing:
                self._tell()
            return
        with self._mutex:
            # Nobody is let in from here on; who is in already is waited for below.
            self._closed = self._closed or "this writer was closed"
        with self._content, self._committing:
            try:
                with self._mutex:
                    waiting = self._queue.waiting()
                self._commit_for(waiting)
                self._tidy_up()
            except PerdureError as error:
                raise self._unsaved(error) from error
            finally:
                self._release()
                if self._indexer is not None:
                    self._indexer.left(self.id, self._mark or None)

    def _tidy_up(self) -> None:
        """What can be done while the session is still ours, and may as well fail."""
        if self._hold is not None and self._hold.position.seq >= 0:
            self._witness.moved(self.header, self._hold.position)
            self._folding.keep(self._hold, last=True)
            with suppress(PerdureError):
                self._backend.compact(self._hold, only_if_worth=True)
                if self._work is not None and not self._hold.dead:
                    # The log only grew: what was proven of it when it was opened still is.
                    proven = self._proven | self._witness.noted(self.header)
                    keys, kept = self._queue.keys, self._folding.kept
                    self._survey.left(
                        self._hold, self.header, self._work, keys, proven=proven, kept=kept
                    )

    def _unsaved(self, error: PerdureError) -> PerdureError:
        """What to raise when closing could not store everything; `lost` names what."""
        with self._mutex:
            lost = self._queue.events()
        if not lost:
            return copy.copy(error)
        failure = StorageUnavailable(
            getattr(error, "path", self.id),
            f"closed with {len(lost)} events that could not be stored: {error.message}",
            hint="they stand in .lost",
            lost=lost,
        )
        with self._mutex:
            self._queue.fail(failure)
        return failure
