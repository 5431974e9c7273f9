"""Hundreds of tasks on a real disk, cancelled at random: nothing is lost, doubled or starved."""

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import perdure.aio
from perdure.aio.store import COMMIT_THREADS, OTHER_THREADS
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

SESSIONS = 20
TASKS = 200
WAITERS = 1000
PATIENCE = 120.0

Stamp = list[int]
"""Task and number: what each event holds, and no two hold the same."""


class Load:
    """What the tasks did, to be compared with what the log holds."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.acknowledged: list[tuple[str, int, Stamp]] = []
        self.cancelled: list[tuple[str, Stamp]] = []
        self.latencies: dict[str, list[float]] = {"append": [], "holder": []}
        self.got_session = 0

    async def append(
        self, session: perdure.aio.AsyncSession, stamp: Stamp, kind: str = "append"
    ) -> None:
        """Append one event, now and then cancelled on the way."""
        before = time.perf_counter()
        waiting = asyncio.create_task(session.append("proof/said", stamp))
        try:
            if self.rng.random() < 0.1:
                for _ in range(self.rng.randrange(20)):
                    # Here somebody else may cancel as well.
                    await asyncio.sleep(0)
                waiting.cancel()
            event = await waiting
        except asyncio.CancelledError:
            waiting.cancel()
            self.cancelled.append((session.id, stamp))
            return
        self.latencies[kind].append(time.perf_counter() - before)
        self.acknowledged.append((session.id, event.seq, stamp))

    async def work(self, session: perdure.aio.AsyncSession, task: int, count: int) -> None:
        for number in range(count):
            await self.append(session, [task, number])
            if self.rng.random() < 0.05:
                await session.flush()

    def thousandths(self, kind: str) -> dict[str, int]:
        """How long appends took, in microseconds."""
        sorted_ = sorted(self.latencies[kind])
        places = {"p50": len(sorted_) // 2, "p99": len(sorted_) * 99 // 100, "max": -1}
        return {f"{kind} {name} us": int(sorted_[at] * 1e6) for name, at in places.items()}


async def wait_for(
    load: Load, store: perdure.aio.AsyncStore, name: str, number: int, wait: float
) -> None:
    """Stand in line for a session, and append once when it comes."""
    async with store.writer(name, wait=wait) as session:
        load.got_session += 1
        await load.append(session, [TASKS + SESSIONS + number, 0])


async def crowd(load: Load, store: perdure.aio.AsyncStore, rounds: int, waiters: int) -> None:
    """A holder of each of a few sessions appends while many wait for it; most give up."""
    names = [f"s{number:02}" for number in range(3)]
    held = [await store.writer(name) for name in names]
    tasks = [
        asyncio.create_task(wait_for(load, store, names[number % 3], number, PATIENCE))
        for number in range(waiters)
    ]
    for number in range(rounds):
        for place, session in enumerate(held):
            await load.append(session, [TASKS + place, number], "holder")
        for task in load.rng.sample(tasks, len(tasks) // rounds // 2):
            task.cancel()
    for session in held:
        await session.close()
    for task in load.rng.sample(tasks, len(tasks) // 4):
        task.cancel()
    await asyncio.wait(tasks)
    failed = [task.exception() for task in tasks if not task.cancelled()]
    assert [error for error in failed if error is not None] == []
    for name in names:
        # Nobody who was cancelled holds it, once the threads have given back what came too late.
        async with store.writer(name, wait=PATIENCE):
            pass
        assert (await store.inspect(name)).holder is None


async def check(load: Load, store: perdure.aio.AsyncStore, names: list[str]) -> int:
    """Compare the logs with what was said; return how many events they hold."""
    logs: dict[str, list[Stamp]] = {}
    for name in names:
        report = await store.verify(name)
        assert report.sound
        assert report.problems == []
        logs[name] = [event.data async for event in store.read_from(name)]
    for name, seq, stamp in load.acknowledged:
        assert logs[name][seq] == stamp
    for name, stamps in logs.items():
        assert max(Counter(map(tuple, stamps)).values()) == 1, name
        for task in {stamp[0] for stamp in stamps}:
            numbers = [number for other, number in stamps if other == task]
            assert numbers == sorted(numbers), (name, task)
    # What was queued by a cancelled task is stored all the same, as nothing failed.
    begun = {(name, *stamp) for name, stamp in load.cancelled}
    stored = {(name, *stamp) for name, stamps in logs.items() for stamp in stamps}
    assert begun <= stored
    assert len(stored) == len(load.acknowledged) + len(load.cancelled)
    return len(stored)


def test_hundreds_of_tasks_lose_and_double_nothing(
    tmp_path: Path, rng: random.Random, seed: int
) -> None:
    """Every append that returned is stored once and in order, and every task gets on."""
    count, rounds, waiters = scaled(50), scaled(200), scaled(WAITERS)
    load = Load(rng)
    threads: list[int] = []

    async def main() -> int:
        names = [f"s{number:02}" for number in range(SESSIONS)]
        async with perdure.aio.open(tmp_path / "store") as store:
            sessions = [await store.create(name) for name in names]
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                for task in range(TASKS):
                    group.create_task(load.work(sessions[task % SESSIONS], task, count))
            threads.append(threading.active_count())
            done = Counter(stamp[0] for _, _, stamp in load.acknowledged)
            assert len(done) == TASKS
            for session in sessions:
                await session.close()
            async with asyncio.timeout(PATIENCE):
                await crowd(load, store, rounds, waiters)
            return await check(load, store, names)

    events = asyncio.run(main())
    summarise(
        "tasks",
        seed,
        {
            "events": events,
            "cancelled": len(load.cancelled),
            "waiters": waiters,
            "got the session": load.got_session,
            "threads": threads[0],
            **load.thousandths("append"),
            **load.thousandths("holder"),
        },
    )
    assert load.got_session > 0
    assert threads[0] <= COMMIT_THREADS + OTHER_THREADS + 4
