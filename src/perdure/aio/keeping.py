"""Content and whole sessions, for tasks: each call is the store's own, made in a worker thread."""

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, BinaryIO, ParamSpec, TypeVar

from perdure.aio.pages import Pages
from perdure.aio.threads import Pool
from perdure.backends.base import Aside, Blob, Trashed
from perdure.evidence import Damage
from perdure.model.event import Event
from perdure.model.record import Position
from perdure.store import Compacted, EvidenceState, Expiry, Missing, Repair, Session, Store

__all__ = ["SessionKeeping", "StoreKeeping"]

P = ParamSpec("P")
T = TypeVar("T")


class SessionKeeping(ABC):
    """What a writer does besides appending."""

    _session: Session

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    def append(self, type: str, data: Any = None) -> Awaitable[Event]:  # noqa: A002
        """Append one event."""

    @abstractmethod
    def _check(self) -> None: ...

    async def put_blob(
        self, value: bytes | BinaryIO | Iterable[bytes], *, pinned: bool = False
    ) -> str:
        """Store content beside the log, durably, and return the digest that names it.

        A file or an iterable is read in a worker thread. Whether it was stored when this is
        cancelled is open; content that no event refers to is collected.

        Raises:
            As `Session.put_blob`.

        """
        self._check()
        return await self._in_thread(self._session.put_blob, value, pinned=pinned)

    async def pin(self, *digests: str) -> Event:
        """Say that this content never expires, as `Session.pin`."""
        self._check()
        return await self._in_thread(self._session.pin, *digests)

    async def unpin(self, *digests: str) -> Event:
        """Say that this content may expire like any other, as `Session.unpin`."""
        self._check()
        return await self._in_thread(self._session.unpin, *digests)

    async def expire(
        self,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
    ) -> Expiry:
        """Remove content that satisfies every condition, as `Session.expire`."""
        self._check()
        return await self._in_thread(
            self._session.expire,
            older_than=older_than,
            kinds=kinds,
            keep_last=keep_last,
            dry_run=dry_run,
        )

    async def archive(self) -> Event:
        """Say that the session is done with, as `Session.archive`."""
        return await self.append("session/archived", {})

    async def unarchive(self) -> Event:
        """Take `archive` back, as `Session.unarchive`."""
        return await self.append("session/unarchived", {})

    async def compact(self) -> Compacted:
        """Store what was committed in less room, as `Session.compact`."""
        self._check()
        return await self._in_thread(self._session.compact)


class StoreKeeping(ABC):
    """What a store does for content and whole sessions; waiting for a lock occupies no thread."""

    _store: Store
    _others: Pool

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    def append(self, id: str, events: Iterable[Mapping[str, Any]]) -> Awaitable[list[Event]]:
        """Append to a session without keeping its writer."""

    @abstractmethod
    def _writer_of(self, id: str, wait: float) -> AbstractAsyncContextManager[Any]: ...

    @abstractmethod
    async def _take(
        self,
        id: str,
        wait: float,
        attempt: Callable[[], T],
        undo: Callable[[T], object] | None = None,
    ) -> T: ...

    # --- content ---------------------------------------------------------------------------------

    async def blob(self, id: str, digest: str) -> bytes:
        """Content that an event refers to, its hash checked; as `Store.blob`."""
        return await self._in_thread(self._store.blob, id, digest)

    def open_blob(self, id: str, digest: str) -> Pages[bytes]:
        """As `blob`, in parts: `async for`; the last one comes only if the hash is right.

        Raises:
            As `Store.open_blob`, all of it by the iteration.

        """
        return Pages(self._others, partial(self._store.open_blob, id, digest))

    async def blobs(self, id: str) -> list[Blob]:
        """What content of a session is stored, as `Store.blobs`."""
        return await self._in_thread(self._store.blobs, id)

    async def expire(
        self,
        id: str,
        *,
        older_than: float | dt.timedelta | None = None,
        kinds: Collection[str] | None = None,
        keep_last: int | None = None,
        dry_run: bool = False,
        wait: float = 0.0,
    ) -> Expiry:
        """Remove content of a session that satisfies every condition, as `Store.expire`."""
        if dry_run:
            dry = partial(self._store.expire, id, older_than=older_than, kinds=kinds)
            return await self._in_thread(dry, keep_last=keep_last, dry_run=True)
        async with self._writer_of(id, wait) as session:
            found: Expiry = await session.expire(
                older_than=older_than, kinds=kinds, keep_last=keep_last
            )
        return found

    # --- whole sessions --------------------------------------------------------------------------

    async def compact(self, id: str, *, wait: float = 0.0) -> Compacted:
        """Store the same records in less room, as `Store.compact`."""
        async with self._writer_of(id, wait) as session:
            done: Compacted = await session.compact()
        return done

    async def archive(self, id: str) -> Event:
        """Say that a session is done with, as `Store.archive`."""
        return (await self.append(id, [{"type": "session/archived", "data": {}}]))[0]

    async def unarchive(self, id: str) -> Event:
        """Take `archive` back, as `Store.unarchive`."""
        return (await self.append(id, [{"type": "session/unarchived", "data": {}}]))[0]

    async def delete(self, id: str, *, subagents: bool = False) -> Trashed:
        """Move a session to the trash, as `Store.delete`."""
        return await self._in_thread(self._store.delete, id, subagents=subagents)

    async def trash(self) -> list[Trashed]:
        """The deleted sessions that can be restored."""
        return await self._in_thread(self._store.trash)

    async def restore(self, id: str) -> None:
        """Bring a deleted session back, as `Store.restore`."""
        await self._in_thread(self._store.restore, id)

    async def empty_trash(
        self, id: str | None = None, *, older_than: float | dt.timedelta | None = None
    ) -> list[Trashed]:
        """Remove deleted sessions for good, as `Store.empty_trash`."""
        return await self._in_thread(self._store.empty_trash, id, older_than=older_than)

    async def accept(self, id: str, *, wait: float = 0.0) -> Position:
        """Say that the log as it stands is the truth, as `Store.accept`."""
        return await self._take(id, wait, partial(self._store.accept, id))

    async def repair(
        self, id: str, *, salvage: bool = False, dry_run: bool = False, wait: float = 0.0
    ) -> Repair:
        """Go on after damage: a new log, the old one kept aside whole; as `Store.repair`."""
        repair = partial(self._store.repair, id, salvage=salvage)
        if dry_run:
            return await self._in_thread(repair, dry_run=True)
        return await self._take(id, wait, repair)

    async def asides(self, id: str) -> list[Aside]:
        """What is kept beside the log of a session, as `Store.asides`."""
        return await self._in_thread(self._store.asides, id)

    def open_aside(self, id: str, place: str) -> Pages[bytes]:
        """The bytes that are kept beside a log as `place`, in parts: `async for`.

        Raises:
            As `Store.open_aside`, all of it by the iteration.

        """
        return Pages(self._others, partial(self._store.open_aside, id, place))

    async def forget(self, id: str) -> None:
        """Drop all that is remembered of a session that is not stored, as `Store.forget`."""
        await self._in_thread(self._store.forget, id)

    async def missing(self) -> list[Missing]:
        """Sessions that were stored here and are gone, though nobody deleted them."""
        return await self._in_thread(self._store.missing)

    async def reports(self) -> list[Damage]:
        """Damage that refused a writer and was neither mended nor accepted since."""
        return await self._in_thread(self._store.reports)

    async def evidence(self) -> EvidenceState:
        """Whether what is remembered beside the logs can be read, as `Store.evidence`."""
        return await self._in_thread(self._store.evidence)

    async def namespaces(self) -> list[str]:
        """The namespaces directly below this one in which something was stored, in order."""
        return await self._in_thread(self._store.namespaces)
