"""Copying for tasks: the same calls, and waiting occupies no thread."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import perdure
import perdure.aio
from perdure.aio import AsyncStore
from perdure.errors import InvalidValue, SessionBusy, SessionNotFound
from perdure.store.moving import Outcome
from tests.media import assert_equal

Main = Callable[[AsyncStore, AsyncStore], Awaitable[None]]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], None]:
    def start(main: Main) -> None:
        async def within() -> None:
            async with (
                perdure.aio.open(tmp_path / "a") as here,
                perdure.aio.open(tmp_path / "b", encoding="raw") as there,
            ):
                await main(here, there)

        if request.param == "asyncio":
            asyncio.run(within())
        else:
            trio.run(within)

    return start


async def write(store: AsyncStore, session: str) -> None:
    async with store.create(session) as writer:
        await writer.append("note", {"blob": await writer.put_blob(b"content")})


def test_a_session_is_copied(run: Callable[[Main], None], tmp_path: Path) -> None:
    """One session, then all of them, arrive as by the blocking calls."""

    async def main(here: AsyncStore, there: AsyncStore) -> None:
        await write(here, "one")
        await write(here.namespace("below"), "two")
        copied = await here.copy("one", there)
        assert (copied.status, copied.events, copied.blobs) == ("copied", 1, 1)
        heard: list[Outcome] = []
        assert await here.copy_all(there, progress=heard.append) == heard
        assert [(each.session, each.namespace) for each in heard] == [
            ("one", ()),
            ("two", ("below",)),
        ]
        with pytest.raises(SessionNotFound):
            await here.copy("none", there)

    run(main)
    with perdure.open(tmp_path / "a") as here, perdure.open(tmp_path / "b") as there:
        assert_equal(here, there, "one")
        assert_equal(here.namespace("below"), there.namespace("below"), "two")


def test_a_busy_destination_is_waited_for(run: Callable[[Main], None]) -> None:
    """A copy waits for the destination's writer as long as it was told to."""

    async def main(here: AsyncStore, there: AsyncStore) -> None:
        await write(here, "s")
        await here.copy("s", there)
        await here.append("s", [{"type": "note", "data": "new"}])
        writer = await there.writer("s")
        with pytest.raises(SessionBusy):
            await here.copy("s", there)
        done: list[Any] = []

        async def copy() -> None:
            done.append(await here.copy("s", there, wait=60))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(copy)
            await anyio.lowlevel.checkpoint()
            assert done == []
            await writer.close()
        assert done[0].status == "continued"

    run(main)


def test_a_blocking_store_is_no_destination(run: Callable[[Main], None], tmp_path: Path) -> None:
    """Both stores are for tasks."""

    async def main(here: AsyncStore, _: AsyncStore) -> None:
        await write(here, "s")
        with perdure.open(tmp_path / "c") as blocking:
            other: Any = blocking
            with pytest.raises(InvalidValue):
                await here.copy("s", other)
            with pytest.raises(InvalidValue):
                await here.copy_all(other)

    run(main)
