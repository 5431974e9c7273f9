"""Artifacts, for tasks: files are read and written in worker threads."""

import os
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable
from functools import partial
from typing import Any, BinaryIO, ParamSpec, TypeVar

from perdure.aio.pages import Pages
from perdure.aio.threads import Pool
from perdure.model.event import Event
from perdure.store import Artifact, Extracted, Session, Store
from perdure.store.artifacts import artifact_of

__all__ = ["SessionSaving", "StoreExtracting"]

P = ParamSpec("P")
T = TypeVar("T")


class SessionSaving(ABC):
    """What a session's writer does for artifacts."""

    _session: Session

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    @abstractmethod
    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Awaitable[Event]:
        """Append one event."""

    @abstractmethod
    def _check(self) -> None: ...

    async def save_artifact(
        self,
        name: str,
        value: bytes | BinaryIO | Iterable[bytes],
        media_type: str | None = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Artifact:
        """Keep a file that the run made, as `Session.save_artifact`.

        A file or an iterable is read in a worker thread. If this is cancelled before the bytes are
        stored, there is no artifact.

        Raises:
            As `Session.save_artifact`.

        """
        self._check()
        put = self._session._put_artifact  # noqa: SLF001 - one half of the same call
        data = await self._in_thread(put, name, value, media_type)
        return artifact_of(await self.append("artifact/saved", data, agent=agent, turn=turn))


class StoreExtracting(ABC):
    """What a store does for the artifacts of its sessions."""

    _store: Store
    _others: Pool

    @abstractmethod
    async def _in_thread(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T: ...

    async def artifacts(self, id: str) -> list[Artifact]:
        """The files that a run made, each as it was saved last, as `Store.artifacts`."""
        return await self._in_thread(self._store.artifacts, id)

    def open_artifact(self, id: str, name: str) -> Pages[bytes]:
        """The bytes of an artifact in parts: `async for`.

        Raises:
            As `Store.open_artifact`, all of it by the iteration.

        """
        return Pages(self._others, partial(self._store.open_artifact, id, name))

    async def extract(
        self,
        id: str,
        folder: str | os.PathLike[str],
        names: Collection[str] | None = None,
        *,
        overwrite: bool = False,
    ) -> Extracted:
        """Write the artifacts of a session into a folder, as `Store.extract`.

        One that is cancelled goes on in its thread, to its end.
        """
        call = self._store.extract
        return await self._in_thread(call, id, folder, names, overwrite=overwrite)
