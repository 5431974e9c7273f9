"""The writer of one session, as callers see it: events, content, and the end of both."""

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, NoReturn, Self

from perdure.errors import (
    PerdureError,
    StorageUnavailable,
)
from perdure.model.event import Event, draft
from perdure.store.artifacts import Saving
from perdure.store.closing import close_behind
from perdure.store.committer import Committer
from perdure.store.content import (
    DIGESTS_MAX,
    Expiry,
    References,
    check_digests,
    content_of,
    parts_of,
    rule_of,
)
from perdure.store.drafts import drafts_of
from perdure.store.queue import Accepted
from perdure.store.recording import Recording
from perdure.store.resumed import Resumed
from perdure.store.subagents import Delegating
from perdure.store.viewing import Viewing
from perdure.views.fold import Fold

__all__ = ["BUFFER_BYTES_MAX", "Compacted", "Session"]

BUFFER_BYTES_MAX = 8 * 1024 * 1024
"""Buffered bytes at which `buffer` first commits in the calling thread: back-pressure."""


class Compacted(NamedTuple):
    """Size of a stored log before and after compaction, in bytes."""

    before: int
    after: int


class Session(Committer, Viewing, Recording, Saving, Delegating):
    """The exclusive writer of one session; a context manager that closes itself.

    Methods may be called from any thread. After a fork the child's copy refuses to write.

    Attributes:
        header: what was fixed when it was created, a `Header`.
        resumed: what `Store.resume` found and made; None for a writer that was opened otherwise.

    """

    resumed: Resumed | None = None

    def __repr__(self) -> str:
        """Which session, how far, and whether it can still be written."""
        state = "closed" if self.closed else "open"
        return f"<Session {self.id!r} at {self.position.seq}, {state}>"

    # --- writing ---------------------------------------------------------------------------------

    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Append one event; it is durable when this returns.

        If this raises it is not in the log, but for a failed sync: then the writer is dead, the
        error has `lost`, and reopening shows whether it was stored.

        The same (type, key) with an equal JSON value and turn returns the event stored before.

        Raises:
            InvalidValue: a field or the data cannot be kept; nothing was accepted.
            KeyConflict: the key belongs to another fact; nothing was written.
            StorageFull, StorageUnavailable: not stored; what was buffered before is still held.
            StaleWriter: somebody else wrote; `lost` names what was not stored.
            SessionExists: the first commit of a new session came too late.
            SessionBusy: another program locks the log itself; may be tried again.
            SessionClosed: closed, or used in a forked child.

        """
        made = draft(
            type,
            data,
            time=self._runtime.now_ms() if time is None else time,
            agent=agent,
            turn=turn,
            key=key,
            ignorable=ignorable,
        )
        return self._append_durably([made])[0]

    def append_many(
        self, events: Iterable[Mapping[str, Any]], *, at: int | None = None
    ) -> list[Event]:
        """Append several events in one commit; all are durable when this returns.

        Each is a mapping with `type` and optionally `data`, `agent`, `turn`, `key`, `time` and
        `ignorable`. With `at`, they are refused unless the first gets that sequence number. After a
        crash any prefix may be there: what must stand together is one event.

        Raises:
            As `append`; after InvalidValue or KeyConflict none of them was accepted.

        """
        return self._append_durably(drafts_of(events, self._runtime.now_ms()), at)

    def buffer(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Accept one event without waiting: a commit is attempted within 200 ms.

        It is durable after the next `flush`, or `append` of a new event, that returns. A commit
        that fails in the background keeps its events in order and surfaces at the next append,
        flush or close. Above 8 MiB of buffered data this first commits in the calling thread.

        Raises:
            As `append`; the event was not accepted then.

        """
        made = draft(
            type,
            data,
            time=self._runtime.now_ms() if time is None else time,
            agent=agent,
            turn=turn,
            key=key,
            ignorable=ignorable,
        )
        self._refuse_reentry()
        self._check()
        if self.full:
            self.flush()
        with self._mutex:
            self._check()
            accepted: list[Accepted] = []
            self._queue.accept([made], accepted, keep=True)
            due, self._due = self._due, True
        if not due and not self._flusher.schedule(self._flush_due):
            # No thread can be started: what it would do in 200 ms is tried at once.
            with suppress(PerdureError):
                self.flush()
        return accepted[0].event

    def find(self, type: str, key: str) -> Event | None:  # noqa: A002
        """The event that has this (type, key), stored or accepted; None: it is free.

        The first time it reads which keys there are: from the index, or else from the log.

        Raises:
            SessionClosed: closed, or used in a forked child.
            SessionDamaged, StorageUnavailable: the log cannot be read for it.

        """
        self._refuse_reentry()
        self._check()
        return self._queue.find(type, key)

    def fold(self) -> Fold:
        """The rows of all views, with everything accepted so far, which is made durable first.

        What is accepted later is not in it. So `state`, `messages` and the rest agree with what
        this writer was told.

        Raises:
            As `flush`.
            SessionDamaged, StorageUnavailable: the log cannot be read for it.
            PersistenceDisabled: it would have to be read, and nothing is stored.

        """
        self.flush()
        return super().fold()

    # --- content ---------------------------------------------------------------------------------

    def put_blob(self, value: bytes | BinaryIO | Iterable[bytes], *, pinned: bool = False) -> str:
        """Store content beside the log, durably, and return the digest that names it.

        `value` is bytes, a binary file, or an iterable of bytes; what is not bytes is never in
        memory as a whole. The digest is the SHA-256 of the bytes, 64 hex digits: put it into the
        data of an event. Content that no event refers to may be collected once this writer is
        closed. With `pinned` it never expires; that is an event of its own.

        Raises:
            InvalidValue: it is no content.
            StorageFull, StorageUnavailable: not stored; may be tried again.
            SessionClosed: closed, or used in a forked child.

        """
        parts = parts_of(value)
        self._refuse_reentry(content=True)
        with self._content:
            self._check()
            with self._committing:
                hold = self._hold or self._staged or self._stage()
            digest = self._backend.put_blob(hold, self._unlocked(parts)).digest
            self._put.add(digest)
        if pinned:
            self.pin(digest)
        return digest

    def _unlocked(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The parts, each waited for without the lock: a source may be slow, or never go on."""
        source = iter(parts)
        while True:
            self._content.release()
            try:
                part = next(source, None)
            finally:
                self._content.acquire()
            self._check()
            if part is None:
                return
            yield part

    def _events_between(self, first: int, last: int) -> Iterator[Event]:
        return self._folding.events(first, last)

    def _content_of(self, digest: str) -> bytes:
        return b"".join(content_of(self._backend, self.id, digest))

    def pin(self, *digests: str) -> Event:
        """Say that this content never expires; `unpin` takes it back. An event of its own.

        Raises:
            InvalidValue: not the digests of content.
            As `append`.

        """
        return self.append("content/pinned", {"blobs": check_digests(digests)})

    def unpin(self, *digests: str) -> Event:
        """Say that this content may expire like any other.

        Raises:
            As `pin`.

        """
        return self.append("content/unpinned", {"blobs": check_digests(digests)})

    def archive(self) -> Event:
        """Say that the session is done with: an event, which `unarchive` takes back.

        Raises:
            As `append`.

        """
        return self.append("session/archived", {})

    def unarchive(self) -> Event:
        """Take `archive` back.

        Raises:
            As `append`.

        """
        return self.append("session/unarchived", {})

    def expire(
        self,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
    ) -> Expiry:
        """Remove content that satisfies every condition, and what nobody refers to.

        What this writer put stays, referred to or not. For the rest see `Store.expire`.

        Raises:
            InvalidValue: a condition is out of its range.
            As `append`.

        """
        rule = rule_of(older_than, kinds, keep_last)
        self._refuse_reentry(content=True)
        self.flush()
        with self._content:
            self._check()
            if self._hold is None or not self._backend.persistent:
                return Expiry(self.id, (), (), 0)
            now = self._runtime.now_ms()
            found = References(self._backend, self.id).expiry(rule, now, self._put)
            if not dry_run:
                # Written down first: the log knows why what it refers to is not there. What a crash
                # spares expires again.
                for start in range(0, len(found.expired), DIGESTS_MAX):
                    part = [b.digest for b in found.expired[start : start + DIGESTS_MAX]]
                    self.append("content/expired", {"blobs": part, "rule": rule.as_data()})
                gone = [blob.digest for blob in (*found.expired, *found.unreferenced)]
                self._backend.drop_blobs(self._hold, gone)
            return found

    @property
    def full(self) -> bool:
        """Whether so much is buffered that the next `buffer` commits first."""
        return self._queue.bytes > BUFFER_BYTES_MAX

    def compact(self) -> Compacted:
        """Store what was committed in less room; see `Store.compact`."""
        self._refuse_reentry(content=True)
        self.flush()
        with self._content, self._committing:
            self._check()
            if self._hold is None:
                return Compacted(0, 0)
            try:
                return Compacted(*self._backend.compact(self._hold))
            except PerdureError as error:
                if self._hold.dead:
                    raise self._die(
                        StorageUnavailable(self.id, error.message, hint="open the session again")
                    ) from error
                raise

    def __reduce__(self) -> NoReturn:
        """A writer belongs to its process."""
        raise TypeError("a session's writer cannot be sent to another process: open it there")

    def __enter__(self) -> Self:
        """The session itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close it; a storage error is chained onto the exception that ends the context."""
        close_behind(error, self.close, f"while closing session {self.id!r}")
