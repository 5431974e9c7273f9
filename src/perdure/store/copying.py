"""One session from one store to another: the same header, the same records, the same chain.

The source is only read, without its lock, and twice: whether it holds together is known before
anything is written. The destination grows by commits of bounded size, so that a crash leaves a
verified prefix there, which the next copy continues. No closers are committed on the way: where the
source stands in the middle of a turn, so does its copy.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from typing import NamedTuple

from perdure.backends.base import Backend, Blob, Hold
from perdure.errors import (
    ContentDamaged,
    ContentExpired,
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionDiverged,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.evidence import Seen
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Known, Walk
from perdure.runtime import Runtime
from perdure.store.content import References, content_of
from perdure.store.opening import Reader, bare, settled, verified
from perdure.store.retention import Retention
from perdure.store.witness import Witness, known_of

__all__ = ["Copied", "Side", "copy_session", "end_of", "refuse_same_place"]

BATCH_BYTES = 1024 * 1024
"""A commit of the destination takes records until it has so many bytes, or `BATCH_RECORDS`."""

BATCH_RECORDS = 512


class Copied(NamedTuple):
    """What became of one session that was to be copied.

    Attributes:
        session: its id.
        position: where its log stands in the destination.
        events: number of events that this call brought there.
        blobs: number of blobs that this call brought there.
        status: "copied" (new there), "continued" (something was added), "unchanged" (it was all
            there), or "ahead" (the destination went on behind all that the source has; nothing of
            it was copied).
        problems: what stayed behind and why: content that is damaged, not there, or in no file
            of ours.
        namespace: where it is below the store that was copied, outermost part first.

    """

    session: str
    position: Position
    events: int
    blobs: int
    status: str
    problems: tuple[PerdureError, ...] = ()
    namespace: tuple[str, ...] = ()


class Side(NamedTuple):
    """One of two places: a backend, what is remembered of its logs, and what it retains."""

    backend: Backend
    witness: Witness
    retention: Retention
    runtime: Runtime


def refuse_same_place(source: Backend, target: Backend, *, inside: bool = False) -> None:
    """Refuse to copy sessions onto themselves; with `inside`, into a namespace below theirs too.

    Raises:
        InvalidValue: both backends lead to the same sessions.

    """
    above, below = source.parts, target.parts
    if below[: len(above)] != above or (below != above and not inside):
        return
    if not _same_medium(source, target):
        return
    if below == above:
        raise InvalidValue("other", "is the place that is to be copied", hint="name another one")
    raise InvalidValue("other", "lies in the namespace that is to be copied")


def _same_medium(source: Backend, target: Backend) -> bool:
    """Whether both are on one medium; those that have no place are told by what they remember."""
    if source.place is None or target.place is None:
        return source.evidence is target.evidence
    return source.place == target.place


def copy_session(session: str, source: Side, target: Side, wait: float = 0.0) -> Copied:
    """See `Store.copy`."""
    refuse_same_place(source.backend, target.backend)
    header, until = end_of(session, source)
    if until.seq < 0:
        raise SessionDamaged(session, "its log holds no event", record=0)
    try:
        return _Copy(header, until, source, target).make(wait)
    except SessionDamaged as error:
        error.hint = f"this is the one in the destination; {error.hint}"
        raise


def end_of(session: str, source: Side, read: Reader | None = None) -> tuple[Header, Position]:
    """Up to where a log holds together, and nobody takes anything back.

    With `read`, that is what reads it: it may take note of more, perhaps behind where this ends.

    Raises:
        As `verified`.

    """
    backend = source.backend
    written = backend.holder(session) is not None
    acknowledged = backend.tail(session).acknowledged
    header, facts = verified(backend, source.witness, session, read or bare(backend))
    until = facts.ending.position
    if acknowledged is not None and acknowledged.seq < until.seq:
        written = written or backend.holder(session) is not None
        # Perhaps a commit under way, which a writer that runs out of space takes back.
        until = acknowledged if written else until
    return header, until


class _Copy:
    """One session on its way, up to the position where the source was found to stand."""

    def __init__(self, header: Header, until: Position, source: Side, target: Side) -> None:
        self._header = header
        self._id = header.id
        self._until = until
        self._source = source
        self._target = target
        self._problems: list[PerdureError] = []
        self._fault: PerdureError | None = None
        self._listed: list[Blob] | None = None
        self._events = 0
        self._blobs = 0

    def make(self, wait: float) -> Copied:
        at = self._standing()
        if at is None:
            try:
                return self._create()
            except SessionExists as error:
                if error.deleted_at is not None or error.missing is not None:
                    raise
                # Another copy of the same was faster: what was put for this one is gone with it.
                self._blobs, self._problems, self._listed = 0, [], None
                at = self._standing()
                if at is None:
                    raise
        return self._go_on(at, wait)

    # --- a new session -------------------------------------------------------------------------

    def _create(self) -> Copied:
        backend = self._target.backend
        self._target.witness.announce(self._header)
        hold = staged = backend.stage(self._header)
        try:
            self._put(staged, self._content())
            at = Position(-1, self._header.genesis)
            for batch in self._batches(at):
                if not self._events:
                    hold = backend.publish(self._header, batch, staged)
                else:
                    backend.commit(hold, hold.position, batch)
                self._count(batch)
            return self._arrived(hold.position, "copied")
        finally:
            hold.release()
            staged.release()

    # --- one that is there ---------------------------------------------------------------------

    def _standing(self) -> Position | None:
        """Where the destination stands, its log verified unless nothing touched it; or None."""
        backend, witness = self._target[:2]
        try:
            stored = backend.stored(self._id)
            if stored.header is not None:
                if stored.header.digest != self._header.digest:
                    raise SessionDiverged(self._id, None)
                tail = backend.tail(self._id)
                known = known_of(self._header, tail, witness.about(self._id).seen)
                unchanged = tail.settled and known.instead is None
                if unchanged and tail.acknowledged is not None and known[0] == tail.acknowledged:
                    return tail.acknowledged
            _, facts = verified(backend, witness, self._id, bare(backend))
        except SessionNotFound as error:
            if error.deleted_at is not None:
                raise SessionExists(self._id, deleted_at=error.deleted_at) from None
            return None
        return facts.ending.position

    def _go_on(self, at: Position, wait: float) -> Copied:
        ahead = self._is_ahead(at)
        seen = self._noted()
        doubtful = self._doubtful(seen)
        if seen is not None and seen.position.seq >= self._until.seq and not doubtful:
            # Nobody notes what is not durable.
            if ahead:
                return self._arrived(at, "ahead")
            if at == self._until and not self._lacking() and not self._expired():
                return self._arrived(at, "unchanged")
        backend, witness = self._target[:2]
        hold = backend.lock(self._id, wait=wait)
        try:
            # Whoever wrote what is found may have died before its sync.
            settled(backend, witness, hold, bare(backend))
            self._put_again(hold, doubtful)
            witness.moved(self._header, hold.position)
            # Others may have written until the lock was there.
            if self._is_ahead(hold.position):
                return self._arrived(hold.position, "ahead")
            self._put(hold, self._lacking())
            for batch in self._batches(hold.position):
                backend.commit(hold, hold.position, batch)
                self._count(batch)
            gone = self._expired()
            if gone:
                backend.drop_blobs(hold, gone)
            if self._events:
                with suppress(PerdureError):
                    backend.compact(hold, only_if_worth=True)
            status = "continued" if self._events or self._blobs or gone else "unchanged"
            return self._arrived(hold.position, status)
        finally:
            hold.release()

    def _noted(self) -> Seen | None:
        """What is remembered of this log in the destination; all up to there is durable."""
        witness = self._target.witness
        with suppress(PerdureError):
            # What this process knows already is not settled again.
            witness.push()
        seen = witness.about(self._id).seen
        return next((one for one in seen if one.digest == self._header.digest), None)

    def _doubtful(self, seen: Seen | None) -> list[Blob]:
        """The content there that was put last, unless the log was noted since.

        Content is put one by one, each synced before the next: whoever died left one at most that
        is there and not durable, the last, or one of those with the same time.
        """
        stored = [*self._target.backend.blobs(self._id)]
        last = max((blob.stored_at for blob in stored), default=0)
        if seen is not None and last <= seen.seen_at:
            return []
        return [blob for blob in stored if blob.stored_at == last]

    def _put_again(self, hold: Hold, blobs: list[Blob]) -> None:
        """Make content durable that is there; what is damaged is left to be found."""
        backend = self._target.backend
        for blob in blobs:
            with suppress(ContentDamaged, ContentExpired, InvalidValue, UnsafeFile):
                backend.put_blob(hold, content_of(backend, self._id, blob.digest))

    def _is_ahead(self, at: Position) -> bool:
        """Whether the destination, which stands at `at`, holds all events of the source and more.

        Raises:
            SessionDiverged: neither log is the beginning of the other.

        """
        if at == self._until:
            return False
        ahead = at.seq > self._until.seq
        longer, end = (self._target, self._until) if ahead else (self._source, at)
        if not self._holds(longer, end):
            raise SessionDiverged(self._id, self._first_difference())
        return ahead

    def _holds(self, side: Side, position: Position) -> bool:
        """Whether the log of one side holds this position; one record is read for it."""
        if position.seq < 0:
            return position.hash == self._header.genesis
        for record in self._records(side, position.seq):
            if record.last >= position.seq:
                return record.position == position
        return False

    def _first_difference(self) -> int:
        both = zip_longest(self._walk(self._source), self._walk(self._target))
        found = (seq for seq, (mine, theirs) in enumerate(both) if mine != theirs)
        # Where all events are equal they were packed into records in another way.
        return next(found, self._until.seq)

    def _walk(self, side: Side) -> Iterator[Event]:
        for record in self._records(side, 0):
            yield from record.events()

    def _records(self, side: Side, seq: int) -> Iterator[Record]:
        """Intact records of one side, from the one on that holds `seq`, or a little before."""
        begin = side.backend.stored(self._id).begin
        pieces = side.backend.scan(self._id, begin, seq=seq)
        known = Known(None)
        with Walk(self._header, pieces, known=known, begin=begin, local=seq > 0) as walk:
            yield from walk.records()

    # --- events --------------------------------------------------------------------------------

    def _batches(self, after: Position) -> Iterator[list[Record]]:
        """The records of the source behind `after`, as far as it was verified, commit by commit.

        Raises:
            StorageUnavailable: the log is not what it was when it was verified.

        """
        batch: list[Record] = []
        size, at = 0, after
        for record in self._records(self._source, max(after.seq, 0)):
            if at == self._until:
                break
            if record.last <= after.seq:
                continue
            if record.first != at.seq + 1 or record.prev != at.hash:
                break
            batch.append(record)
            size += len(record.line)
            at = record.position
            if size >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch
        if at != self._until:
            error = StorageUnavailable(
                f"session {self._id!r}", "changed while it was copied", hint="copy it again"
            )
            error.retryable = True
            raise error

    def _count(self, batch: list[Record]) -> None:
        self._events += batch[-1].last - batch[0].first + 1
        self._target.witness.moved(self._header, batch[-1].position, batch)

    def _arrived(self, position: Position, status: str) -> Copied:
        return Copied(self._id, position, self._events, self._blobs, status, tuple(self._problems))

    # --- content -------------------------------------------------------------------------------

    def _content(self) -> list[Blob]:
        """What the source lists; read once: the log names nothing that was put since."""
        if self._listed is None:
            try:
                self._listed = [*self._source.backend.blobs(self._id)]
            except UnsafeFile as error:
                self._listed = []
                self._problems.append(error)
        return self._listed

    def _lacking(self) -> list[Blob]:
        """Content of the source that the destination does not have, or not in this size."""
        there = {(blob.digest, blob.size) for blob in self._target.backend.blobs(self._id)}
        return [blob for blob in self._content() if (blob.digest, blob.size) not in there]

    def _expired(self) -> set[str]:
        """Content that the destination still has though the source dropped it, as its log says."""
        here = {blob.digest for blob in self._content()}
        if all(blob.digest in here for blob in self._target.backend.blobs(self._id)):
            return set()
        return References(self._target.backend, self._id).expired - here

    def _put(self, hold: Hold, blobs: list[Blob]) -> None:
        for blob in blobs:
            try:
                self._target.backend.put_blob(hold, self._read(blob.digest))
            except (ContentDamaged, ContentExpired, InvalidValue, UnsafeFile) as error:
                if error is not self._fault:
                    raise
                if not isinstance(error, ContentExpired) or self._is_missing(blob.digest):
                    self._left(blob.digest, error)
            else:
                self._blobs += 1

    def _read(self, digest: str) -> Iterator[bytes]:
        """Content of the source; what is wrong there is told from what is wrong in the other."""
        try:
            yield from content_of(self._source.backend, self._id, digest)
        except PerdureError as error:
            self._fault = error
            raise

    def _is_missing(self, digest: str) -> bool:
        """Whether content that could not be read is still listed, and no log let it expire."""
        backend = self._source.backend
        listed = any(blob.digest == digest for blob in backend.blobs(self._id))
        return listed and digest not in References(backend, self._id).expired

    def _left(self, digest: str, error: PerdureError) -> None:
        """Name content that stays behind."""
        if not isinstance(error, ContentDamaged):
            missing = isinstance(error, ContentExpired)
            reason = "its bytes are not there" if missing else error.message
            again = "put its files there (those of x.perdure are in x.artifacts) and copy again"
            hint = again if missing else error.hint
            error = ContentDamaged(self._id, digest, reason)
            error.hint = hint or error.hint
        self._problems.append(error)
