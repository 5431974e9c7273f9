"""Forks, sub-agents and artifacts, asked for by tasks: the same calls, and nothing is held up."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import perdure.aio
from perdure.aio import AsyncStore
from perdure.errors import InvalidValue, SessionExists, SessionNotFound, StorageUnavailable
from tests.test_fork import turn

Main = Callable[[AsyncStore], Awaitable[None]]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], None]:
    """Run a main function with a store, under one of the two loops."""

    def start(main: Main) -> None:
        async def within() -> None:
            async with perdure.aio.open(tmp_path / "store") as store:
                await main(store)

        if request.param == "asyncio":
            asyncio.run(within())
        else:
            trio.run(within)

    return start


def test_forks(run: Callable[[Main], None]) -> None:
    """A fork is awaited or entered, and has the parent's events and lineage."""

    async def main(store: AsyncStore) -> None:
        config: dict[str, Any] = {"n": [1]}
        async with store.create("p") as session:
            await session.append_many([*turn("a"), *turn("b")])
            fork = store.fork("p", turn="a", new_id="c", config=config)
            async with fork as child:
                await child.append("mine")
                config["n"].append(2)
                assert child.header.config == {"n": [1]}
            other = await store.fork("c")
            assert other.header.config == {"n": [1]}
            await other.close()
            async with store.fork("c", config=None) as bare:
                assert bare.header.config is None
                assert await bare.branches(None) == await bare.branches()
            with pytest.raises(InvalidValue):
                await store.fork("p", 2)
            with pytest.raises(SessionExists):
                await store.fork("p", new_id="c")
        found = [event.type async for event in store.read_from("c", 6)]
        assert found == ["session/forked", "mine"]
        assert [each[:4] for each in await store.children("p")] == [("c", "fork", 5, "stored")]
        assert [each.session for each in await store.lineage(other.id)] == ["c", "p"]
        with pytest.raises(SessionNotFound):
            await store.lineage("nobody")

    run(main)


def test_sub_agents(run: Callable[[Main], None]) -> None:
    """A sub-agent's start takes its place in the order of the calls, and they are deleted along."""

    async def main(store: AsyncStore) -> None:
        async with store.create("p") as parent:
            first = parent.append("first")
            async with parent.subagent("worker", session_id="c", task=[1], turn="t") as child:
                await child.append("work")
                assert child.header.parent == perdure.Parent("p", 1)
            grown = await parent.subagent("worker", id="w")
            await grown.close()
            end = await parent.end_subagent("c", "failed", error={"code": "X", "message": "y"})
            assert end.seq == 3
            assert (await first).seq == 0
            with pytest.raises(InvalidValue):
                await parent.end_subagent("c", "unknown")
            with pytest.raises(SessionExists):
                await parent.subagent("worker", session_id="c")
        start, _ = [event async for event in store.read_from("p", 1, ["subagent/start"])]
        assert (start.data["session"], start.data["task"], start.turn) == ("c", [1], "t")
        assert await store.descendants("p") == ["c"]
        await store.delete("p", subagents=True)
        assert await store.list() == []

    run(main)


def test_one_that_cannot_begin(run: Callable[[Main], None], monkeypatch: Any) -> None:
    """If the child cannot be created after its start was written, its end is written, too."""

    async def main(store: AsyncStore) -> None:
        async with store.create("p") as parent:

            def refuse(*_: Any, **__: Any) -> Any:
                raise StorageUnavailable("here", "not now")

            monkeypatch.setattr(parent._session, "spawn", refuse)
            with pytest.raises(StorageUnavailable, match="not now"):
                await parent.subagent("worker", session_id="c")
        types = [event.type async for event in store.read_from("p")]
        assert types == ["subagent/start", "subagent/end"]

    run(main)


def test_artifacts(run: Callable[[Main], None], tmp_path: Path) -> None:
    """Artifacts are saved in the order of the calls, listed, read in parts, and written out."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            before = session.append("first")
            saved = await session.save_artifact("a/b.txt", [b"x", b"y"], "text/plain", turn="t")
            assert (saved.name, saved.size, saved.media_type, saved.seq) == (
                "a/b.txt",
                2,
                "text/plain",
                1,
            )
            await before
            with pytest.raises(InvalidValue):
                await session.save_artifact("../x", b"")
        assert await store.artifacts("s") == [saved]
        assert [part async for part in store.open_artifact("s", "a/b.txt")] == [b"xy"]
        with pytest.raises(InvalidValue):
            _ = [part async for part in store.open_artifact("s", "nothing")]
        done = await store.extract("s", tmp_path / "out", ["a/b.txt"])
        assert done == (("a/b.txt",), ())
        done = await store.extract("s", tmp_path / "out")
        assert [each.name for each in done.skipped] == ["a/b.txt"]
        done = await store.extract("s", tmp_path / "out", overwrite=True)
        assert done.written == ("a/b.txt",)

    run(main)
