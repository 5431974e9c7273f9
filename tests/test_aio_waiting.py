"""Tasks that wait for a writer: in order, woken at once, without threads, and cancelled at once."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure
import perdure.aio
from perdure.aio import turns
from perdure.aio.store import AsyncStore
from perdure.errors import InvalidValue, SessionBusy, SessionClosed, SessionNotFound
from perdure.store import Store
from tests.test_aio import LOOPS, Gate, Gated, Run, Spawned, data_of, pause, run_in, spawn

NEVER = 3600.0
"""Seconds: nothing in a test depends on time that long."""


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine function under each event loop."""
    return lambda main: run_in(request.param, main)


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def store(backend: Gated) -> AsyncStore:
    """A store over them."""
    return AsyncStore(Store(backend))


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks again after a time: whoever gets a session was woken."""
    monkeypatch.setattr(turns, "_POLL_SECONDS", NEVER)
    monkeypatch.setattr(turns, "_WATCH_SECONDS", NEVER)


async def opened(store: AsyncStore, id: str = "s") -> perdure.aio.AsyncSession:
    """Return a session with one event."""
    session = await store.create(id)
    await session.append("x", "first")
    return session


def waiter(store: AsyncStore, got: list[int], number: int) -> Callable[[], Any]:
    async def wait() -> None:
        async with store.writer("s", wait=NEVER) as session:
            got.append(number)
            await session.append("x", number)

    return wait


# --- refusals -----------------------------------------------------------------------------------


def test_a_time_to_wait_is_checked(run: Run, store: AsyncStore) -> None:
    """What is no time, and what names no session, is refused as without tasks."""

    async def main() -> None:
        for call in (store.writer, store.load, store.prepare):
            for wait in (-1, float("inf"), float("nan"), "1", None):
                with pytest.raises(InvalidValue):
                    await call("s", wait=wait)  # type: ignore[arg-type]
            with pytest.raises(InvalidValue):
                await call("", wait=1)
            with pytest.raises(SessionNotFound):
                await call("absent", wait=NEVER)
        await store.close()

    run(main)


def test_whoever_waited_in_vain_learns_who_writes(run: Run, tmp_path: Path) -> None:
    """SessionBusy has pid, host, time and whether it is here, for each place in the line."""

    async def main() -> None:
        async with perdure.aio.open(tmp_path / "store") as store:
            held = await opened(store)
            async with anyio.create_task_group() as group:
                waiting = [
                    await spawn(group, partial(store.writer, "s", wait=wait))
                    for wait in (0, 0.08, 0.04, 0.04, 0.000001)
                ]
            errors = [each.error for each in waiting]
            for error in errors:
                assert isinstance(error, SessionBusy)
                assert (error.pid, error.host, error.here) == (
                    os.getpid(),
                    os.uname().nodename,
                    True,
                )
                assert isinstance(error.since, int)
            assert len({id(error) for error in errors}) == len(errors)
            await held.close()

    run(main)


def test_a_foreign_writer_is_waited_for(run: Run, tmp_path: Path) -> None:
    """A session that another store holds is taken when it is free, and named until then."""

    async def main() -> None:
        with perdure.open(tmp_path / "store") as other:
            holder = other.create("s")
            holder.append("x", "first")
            async with perdure.aio.open(tmp_path / "store") as store:
                with pytest.raises(SessionBusy) as busy:
                    await store.load("s", wait=0.05)
                assert busy.value.here
                got: list[int] = []
                async with anyio.create_task_group() as group:
                    tasks = [await spawn(group, waiter(store, got, number)) for number in range(3)]
                    await pause()
                    assert got == []
                    holder.close()
                    for each in tasks:
                        await each.done()
                assert got == [0, 1, 2]
                assert await data_of(store) == ["first", 0, 1, 2]

    run(main)


# --- in line ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unhurried")
def test_tasks_get_the_session_in_the_order_in_which_they_came(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Closing wakes the first of the line, at once, and nobody asks in vain."""
    asked: list[str] = []
    backend.lock_asked = asked.append

    async def main() -> None:
        held, got = await opened(store), list[int]()
        async with anyio.create_task_group() as group:
            for number in range(20):
                await spawn(group, waiter(store, got, number))
            assert got == []
            await held.close()
        assert got == [*range(20)]
        # The first may have asked before it was closed.
        assert len(asked) in (20, 21)
        assert await data_of(store) == ["first", *range(20)]
        await store.close()

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_loading_and_preparing_stand_in_the_same_line(run: Run, store: AsyncStore) -> None:
    """Whatever needs the lock waits its turn and hands it on."""

    async def main() -> None:
        held, got = await opened(store), list[int]()

        async def prepare() -> None:
            async with await store.prepare("s", wait=NEVER):
                got.append(1)

        async def load() -> None:
            found = await store.load("s", wait=NEVER)
            assert found.id == "s"
            got.append(2)

        async with anyio.create_task_group() as group:
            await spawn(group, waiter(store, got, 0))
            await spawn(group, prepare)
            await spawn(group, load)
            await spawn(group, waiter(store, got, 3))
            await held.close()
        # A loaded session is free before its task hears of it.
        assert [*sorted(got)] == [0, 1, 2, 3]
        assert got[:2] == [0, 1]
        await store.close()

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_a_cancelled_waiter_leaves_the_line(run: Run, store: AsyncStore) -> None:
    """Cancelling the first, one in the middle and the last costs the others nothing."""

    async def main() -> None:
        held, got = await opened(store), list[int]()
        async with anyio.create_task_group() as group:
            tasks = [await spawn(group, waiter(store, got, number)) for number in range(6)]
            for number in (0, 3, 5):
                assert (await tasks[number].cancel()).cancelled
            await held.close()
        assert got == [1, 2, 4]
        await store.close()

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_a_lock_that_comes_too_late_is_given_back(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Who is cancelled while a thread takes the lock is gone at once, and so is the lock."""

    async def main() -> None:
        held, got = await opened(store), list[int]()
        async with anyio.create_task_group() as group:
            first = await spawn(group, waiter(store, got, 0))
            second = await spawn(group, waiter(store, got, 1))
            backend.at_lock = gate = Gate()
            await held.close()
            await gate.reached()
            assert (await first.cancel()).cancelled
            await pause()
            assert not second.cancelled
            gate.open()
            await second.done()
        assert got == [1]
        gate = backend.at_lock = Gate()
        async with anyio.create_task_group() as group:
            alone = await spawn(group, lambda: store.writer("s"))
            await gate.reached()
            assert (await alone.cancel()).cancelled
            following = await spawn(group, waiter(store, got, 2))
            gate.open()
            await following.done()
        assert got == [1, 2]
        assert backend.holder("s") is None
        await store.close()

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_a_lock_whose_task_was_cancelled_before_it_heard_is_given_back(
    backend: Gated, store: AsyncStore
) -> None:
    """Also where asyncio cancels a task whose wake-up is on its way."""

    async def main() -> None:
        await (await opened(store)).close()
        backend.at_lock = gate = Gate()
        made: list[Any] = []
        real = store._others.run

        def run(call: Callable[[], object]) -> None:
            made.append(call)
            real(call)

        store._others.run = run  # type: ignore[method-assign]
        task = asyncio.create_task(store.writer("s"))
        await gate.reached()
        gate.open()
        while not made[0].outcome.done:
            pass  # holds up the loop, so that the task does not hear of it
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.writer("s", wait=NEVER) as session:
            await session.append("x", 1)
        assert backend.holder("s") is None
        await store.close()

    asyncio.run(main())


@pytest.mark.usefixtures("unhurried")
def test_a_thousand_waiters_cost_the_holder_nothing(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Only the first of a line asks for the lock; no thread is occupied by those who wait."""
    asked: list[str] = []
    backend.lock_asked = asked.append

    async def main() -> None:
        held = await opened(store)
        tasks: list[Spawned] = []
        async with anyio.create_task_group() as group:
            for _ in range(1000):
                tasks.append(Spawned())
                group.start_soon(tasks[-1].run, lambda: store.writer("s", wait=NEVER))
            await pause()
            for number in range(50):
                assert (await held.append("x", number)).seq == number + 1
            assert [entry.id for entry in await store.list()] == ["s"]
            while store._others._unfinished:
                await pause()
            assert len(asked) == 1
            for each in tasks:
                each.scope.cancel()
        assert all(each.cancelled for each in tasks)
        await held.close()
        async with store.writer("s"):
            pass
        await store.close()

    run(main)


def test_a_dropped_session_is_found(
    run: Run, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits for a session that was never closed gets it when it was collected."""
    monkeypatch.setattr(turns, "_WATCH_SECONDS", 0.001)

    async def main() -> None:
        await (await opened(store)).close()
        held, got = [await store.writer("s")], list[int]()
        async with anyio.create_task_group() as group:
            waiting = await spawn(group, waiter(store, got, 0))
            held.clear()
            await waiting.done()
        assert got == [0]
        await store.close()

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_closing_the_store_ends_the_waiting(run: Run, store: AsyncStore) -> None:
    """Who waits for a session of a store that closes is told so."""

    async def main() -> None:
        held, got = await opened(store), list[int]()
        await held.buffer("x", 1)
        async with anyio.create_task_group() as group:
            tasks = [await spawn(group, waiter(store, got, number)) for number in range(3)]
            while store._turns.known("s") is None:
                await pause()
            await store.close()
            for each in tasks:
                assert isinstance((await each.done()).error, SessionClosed)
        assert got == []
        assert await data_of(store) == ["first", 1]

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_closing_the_store_ends_the_waiting_for_others(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Also where the session is held by somebody who goes on."""

    async def main() -> None:
        await (await opened(store)).close()
        with Store(backend).writer("s"):
            async with anyio.create_task_group() as group:
                tasks = [await spawn(group, waiter(store, [], number)) for number in range(3)]
                while store._turns.known("s") is None:
                    await pause()
                await store.close()
            for each in tasks:
                assert isinstance(each.error, SessionClosed)

    run(main)


@pytest.mark.usefixtures("unhurried")
def test_a_session_that_died_is_handed_on(run: Run, backend: Gated, store: AsyncStore) -> None:
    """A writer whose last commit ended it wakes the next one as closing does."""

    def fail(_text: str) -> None:
        raise perdure.errors.StaleWriter("s", "somebody else wrote")

    async def main() -> None:
        held, got = await opened(store), list[int]()
        async with anyio.create_task_group() as group:
            waiting = await spawn(group, waiter(store, got, 0))
            backend.before = fail
            with pytest.raises(perdure.errors.StaleWriter):
                await held.append("x")
            backend.before = lambda _text: None
            await waiting.done()
        assert got == [0]
        await store.close()

    run(main)
