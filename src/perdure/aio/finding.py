"""Listing and search, for tasks: each call is the store's own, made in a worker thread."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from typing import Any, ParamSpec, TypeVar

from perdure.catalog.contract import Listed
from perdure.store import Found, Listing, Refreshed, Stats, Store
from perdure.store.asking import Names, Scalar
from perdure.store.embedding import Embedded
from perdure.store.finding import Moment, Progress

__all__ = ["StoreFinding"]

P = ParamSpec("P")
T = TypeVar("T")


class StoreFinding(ABC):
    """What a store finds."""

    _store: Store

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    async def sessions(
        self,
        limit: int = 20,
        after: str | None = None,
        sort: str = "last_active",
        query: str | None = None,
        *,
        offset: int = 0,
        agent: Names | None = None,
        program: Names | None = None,
        cwd: str | None = None,
        status: Names | None = None,
        relation: Names | None = None,
        preset: Names | None = None,
        parent: Names | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        problem: bool | None = None,
        archived: bool | None = None,
        projection: Mapping[str, Scalar] | None = None,
        nested: bool = False,
        progress: Progress | None = None,
    ) -> Listing:
        """A page of the sessions that satisfy everything that is given, as `Store.sessions`."""
        return await self._in_thread(
            self._store.sessions,
            limit,
            after,
            sort,
            query,
            offset=offset,
            agent=agent,
            program=program,
            cwd=cwd,
            status=status,
            relation=relation,
            preset=preset,
            parent=parent,
            since=since,
            until=until,
            problem=problem,
            archived=archived,
            projection=projection,
            nested=nested,
            progress=progress,
        )

    async def search(
        self,
        query: str,
        *,
        session: Names | None = None,
        without: Names = (),
        agent: str | Collection[str | None] | None = None,
        kind: Names | None = None,
        mode: str = "auto",
        k: int = 10,
        sort: str = "relevance",
        after: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        cwd: str | None = None,
        program: Names | None = None,
        snippet_chars: int = 200,
        progress: Progress | None = None,
    ) -> Found:
        """Where something was said, as `Store.search`."""
        return await self._in_thread(
            self._store.search,
            query,
            session=session,
            without=without,
            agent=agent,
            kind=kind,
            mode=mode,
            k=k,
            sort=sort,
            after=after,
            since=since,
            until=until,
            cwd=cwd,
            program=program,
            snippet_chars=snippet_chars,
            progress=progress,
        )

    async def sessions_by_id(self, ids: Names) -> list[Listed]:
        """What the listing says of these sessions, as `Store.sessions_by_id`."""
        return await self._in_thread(self._store.sessions_by_id, ids)

    async def children_of(self, ids: Names) -> list[Listed]:
        """The listed sessions that come from these, as `Store.children_of`."""
        return await self._in_thread(self._store.children_of, ids)

    async def embed(
        self,
        id: Names | None = None,
        *,
        per_minute: float | None = None,
        progress: Progress | None = None,
    ) -> Embedded:
        """Make the vectors of what was said, as `Store.embed`."""
        return await self._in_thread(
            self._store.embed, id, per_minute=per_minute, progress=progress
        )

    async def search_memory(
        self, arguments: Mapping[str, Any], *, current: str | None = None, chars: int = 8_000
    ) -> dict[str, Any]:
        """Answer a call of an agent's tool, as `Store.search_memory`."""
        return await self._in_thread(
            self._store.search_memory, arguments, current=current, chars=chars
        )

    async def refresh(self, *, progress: Progress | None = None) -> Refreshed:
        """Read what the index does not know yet, as `Store.refresh`."""
        return await self._in_thread(self._store.refresh, progress=progress)

    async def full_rescan(self, *, progress: Progress | None = None) -> Refreshed:
        """Read all logs anew, as `Store.full_rescan`."""
        return await self._in_thread(self._store.full_rescan, progress=progress)

    async def stats(self, *, progress: Progress | None = None) -> Stats:
        """Counts, sizes and usage of all sessions, as `Store.stats`."""
        return await self._in_thread(self._store.stats, progress=progress)
