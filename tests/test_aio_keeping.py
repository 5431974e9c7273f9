"""Content, deletion and namespaces, for tasks."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import perdure
import perdure.aio
from perdure.aio import AsyncSession, AsyncStore
from perdure.errors import ContentExpired, SessionBusy, SessionClosed, SessionNotFound

Main = Callable[[AsyncStore], Awaitable[None]]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], None]:
    def start(main: Main) -> None:
        async def within() -> None:
            async with perdure.aio.open(tmp_path / "store") as store:
                await main(store)

        if request.param == "asyncio":
            asyncio.run(within())
        else:
            trio.run(within)

    return start


@pytest.mark.parametrize(
    ("blocking", "asynchronous"), [(perdure.Store, AsyncStore), (perdure.Session, AsyncSession)]
)
def test_both_faces_have_the_same_names(blocking: type, asynchronous: type) -> None:
    """Whatever a store or a session can do, it can do for tasks, with the same parameters."""
    seam = {"admit", "keep", "settle", "needs_reading", "full", "begin_in_child"}
    names = {name for name in vars_of(blocking) if not name.startswith("_")} - seam
    assert names - vars_of(asynchronous) == set()
    for name in names:
        mine, theirs = (inspect.getattr_static(each, name) for each in (blocking, asynchronous))
        if inspect.isfunction(mine):
            assert parameters(mine) == parameters(theirs), name


def vars_of(kind: type) -> set[str]:
    return {name for each in kind.__mro__[:-1] for name in vars(each)}


def parameters(call: Callable[..., object]) -> list[tuple[str, object, object]]:
    found = inspect.signature(call).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


def test_content_goes_in_and_out(run: Callable[[Main], None]) -> None:
    """What was put is read whole and in parts, expires by rules, and stays where it is pinned."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            large = await session.put_blob([b"part"] * 700_000)
            await session.append("x", {"blob": large})
            pinned = await session.put_blob(b"pinned", pinned=True)
            await session.pin(large)
            await session.unpin(large)
            assert (await session.expire()).kept == 2
            assert (await session.compact()).after > 0
        assert [blob.digest for blob in await store.blobs("s")] == sorted([large, pinned])
        assert await store.blob("s", pinned) == b"pinned"
        assert b"".join([part async for part in store.open_blob("s", large)]) == b"part" * 700_000
        report = await store.expire("s", keep_last=0)
        assert [blob.digest for blob in report.expired] == [large]
        with pytest.raises(ContentExpired):
            await store.blob("s", large)
        with pytest.raises(ContentExpired):
            [part async for part in store.open_blob("s", large)]
        assert (await store.verify("s")).status == "ok"

    run(main)


def test_sessions_are_deleted_and_restored(run: Callable[[Main], None]) -> None:
    """The trash, tombstones and archives are there for tasks as well."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            await session.append("x", 1)
            with pytest.raises(SessionBusy):
                await store.delete("s")
        await store.archive("s")
        await store.unarchive("s")
        assert (await store.delete("s")).id == "s"
        assert [gone.id for gone in await store.trash()] == ["s"]
        await store.restore("s")
        assert (await store.compact("s")).after > 0
        assert (await store.accept("s")).seq == 2
        await store.delete("s")
        assert [gone.id for gone in await store.empty_trash()] == ["s"]
        await store.forget("s")
        with pytest.raises(SessionNotFound):
            await store.inspect("s")
        assert (await store.missing(), await store.reports()) == ([], [])

    run(main)


def test_namespaces_are_apart(run: Callable[[Main], None]) -> None:
    """Each sees its own sessions, and closing the store closes what is open below."""
    opened: list[Any] = []

    async def main(store: AsyncStore) -> None:
        tenant = store.namespace("a", "b")
        assert tenant is store.namespace("a").namespace("b")
        assert store.namespace() is store
        async with tenant.create("s") as session:
            await session.append("x", "a/b")
        assert await store.list() == []
        assert await store.namespaces() == ["a"]
        assert [event.data async for event in tenant.read_from("s")] == ["a/b"]
        session = await tenant.writer("s")
        session.buffer("x", "buffered")
        opened.append(session)

    run(main)
    assert opened[0].closed


def test_a_namespace_goes_with_its_store(run: Callable[[Main], None]) -> None:
    """What was buffered below is stored by the close above; nothing is granted afterwards."""

    async def main(store: AsyncStore) -> None:
        tenant = store.namespace("a")
        session = await tenant.create("s")
        session.buffer("x", "buffered")
        await store.close()
        with pytest.raises(SessionClosed):
            await tenant.create("t")

    run(main)


def test_waiting_for_a_lock_to_keep_occupies_no_thread(run: Callable[[Main], None]) -> None:
    """An expiry, a compaction and an acceptance wait in turn and are done when they get it."""

    async def main(store: AsyncStore) -> None:
        session = await store.create("s")
        await session.append("x")
        for wanted in (store.expire, store.compact, store.accept):
            with pytest.raises(SessionBusy):
                await wanted("s", wait=0.01)
        await session.close()
        for wanted in (store.expire, store.compact, store.accept):
            await wanted("s", wait=1)

    run(main)
