"""Event loops and threads: several loops, loops that end, forks, the interpreter's exit."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

import perdure
import perdure.aio
from perdure.aio.outcomes import Later, Outcome
from perdure.aio.store import COMMIT_THREADS, AsyncStore
from perdure.aio.threads import Lane, Pool
from perdure.errors import InvalidValue, SessionBusy
from perdure.store import Store
from tests.test_aio import LOOPS, PATIENCE, Gate, Gated, Main, data_of, pause, run_in


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def store(backend: Gated) -> AsyncStore:
    """A store over them."""
    return AsyncStore(Store(backend))


def in_thread(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def python(code: str, *given: str) -> str:
    """Run a program in a process of its own; warnings are errors, and it has to end well."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *given],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# --- loops --------------------------------------------------------------------------------------


def test_a_store_outlives_event_loops(store: AsyncStore) -> None:
    """Store and session serve a loop that comes after another one was closed, of either kind."""
    kept: list[perdure.aio.AsyncSession] = []

    async def create() -> None:
        kept.append(await store.create("s"))
        await kept[0].append("x", 0)

    async def go_on() -> None:
        seq = kept[0].position.seq
        assert (await kept[0].append("x", seq + 1)).seq == seq + 1

    async def close() -> None:
        await store.close()
        assert await data_of(store) == [0, 1, 2, 3]

    run_in("asyncio", create)
    for loop in ("asyncio", "trio", "asyncio"):
        run_in(loop, go_on)
    run_in("trio", close)


def test_two_loops_in_two_threads_share_a_store(store: AsyncStore) -> None:
    """Tasks of several loops append to one session, and wait for one session in one line."""
    shared = asyncio.run(start(store))
    both = threading.Barrier(3)

    def work(number: int) -> Main:
        async def main() -> None:
            both.wait(PATIENCE)
            for count in range(50):
                await shared.append("x", [number, count])
                async with store.writer("t", wait=PATIENCE) as session:
                    await session.append("x", [number, count])

        return main

    loops = ("asyncio", "asyncio", "trio")
    threads = [
        in_thread(lambda loop=loop, number=number: run_in(loop, work(number)))  # type: ignore[misc]
        for number, loop in enumerate(loops)
    ]
    for thread in threads:
        thread.join(PATIENCE)

    async def check() -> None:
        await store.close()
        for id in ("s", "t"):
            stored = (await data_of(store, id))[1:]
            assert len(stored) == 150
            for number in range(3):
                assert [count for other, count in stored if other == number] == [*range(50)]

    asyncio.run(check())


async def start(store: AsyncStore) -> perdure.aio.AsyncSession:
    """Return a session of the two that have one event."""
    shared = await store.create("s")
    await shared.append("x")
    async with store.create("t") as other:
        await other.append("x")
    return shared


@pytest.mark.parametrize("loop", LOOPS)
def test_a_wake_up_that_comes_after_the_loop_ended_harms_nothing(
    backend: Gated, store: AsyncStore, loop: str
) -> None:
    """A commit whose loop is closed by then is finished, and its thread goes on working."""
    gate = Gate()
    kept: list[perdure.aio.AsyncSession] = []

    async def leave_early() -> None:
        kept.append(await store.create("s"))
        await kept[0].append("x", 0)
        backend.before = gate
        async with anyio.create_task_group() as group:
            group.start_soon(kept[0].append, "x", 1)
            await gate.reached()
            group.cancel_scope.cancel()

    run_in(loop, leave_early)
    gate.open()

    async def go_on() -> None:
        assert (await kept[0].append("x", 2)).seq == 2
        await store.close()
        assert await data_of(store) == [0, 1, 2]

    run_in(loop, go_on)


def test_a_result_reaches_loops_that_ended_meanwhile_and_those_that_run() -> None:
    """Whoever waits in a loop that was closed without cancelling is passed over."""
    outcome: Outcome[int] = Outcome()
    gone = asyncio.new_event_loop()

    async def wait() -> int:
        await outcome.wait()
        return outcome.result()

    task = gone.create_task(wait())
    gone.run_until_complete(asyncio.sleep(0))
    gone.close()

    async def main() -> None:
        waiting = asyncio.create_task(wait())
        await pause()
        thread = in_thread(lambda: outcome.succeed(7))
        assert await waiting == 7
        thread.join()

    asyncio.run(main())
    # Nobody will run it to its end; it need not say so.
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_task_may_be_thrown_away_anywhere(backend: Gated, store: AsyncStore) -> None:
    """Coroutines that are closed by hand leave nothing locked and lose no event."""
    gate = Gate()

    async def main() -> None:
        session = await store.create("s")
        await session.append("x", 0)
        backend.before = gate
        appending, flushing = session.append("x", 1), Later(session.flush)
        waiting = Later(lambda: wait_for(store))
        for each in (appending, flushing, waiting):
            each.send(None)
            each.close()
        gate.open()
        await session.close()
        async with store.writer("s", wait=PATIENCE):
            pass
        await store.close()
        assert await data_of(store) == [0, 1]

    asyncio.run(main())


async def wait_for(store: AsyncStore) -> None:
    async with store.writer("s", wait=PATIENCE):
        pass


def test_trio_may_be_a_guest_of_asyncio(store: AsyncStore) -> None:
    """In guest mode each task is woken in its own framework."""

    async def guest() -> None:
        async with store.create("s") as session:
            await session.append("x", "from trio")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=over.set_result,
        )
        (await over).unwrap()
        async with store.writer("s") as session:
            await session.append("x", "from asyncio")
        await store.close()
        assert await data_of(store) == ["from trio", "from asyncio"]

    asyncio.run(main())


def test_without_an_event_loop_a_call_queues_and_waiting_is_refused(store: AsyncStore) -> None:
    """Appending needs no loop, only awaiting does, and it says which ones will do."""
    session = asyncio.run(start(store))
    handle = session.append("x", 1)
    with pytest.raises(InvalidValue) as told:
        Later(store.list).send(None)
    assert "asyncio" in told.value.hint

    async def finish() -> int:
        return (await handle).seq

    assert asyncio.run(finish()) == 1
    asyncio.run(store.close())


BLOCKED = """
import sys
for name in {blocked}:
    sys.modules[name] = None
import perdure, perdure.aio

async def main():
    async with perdure.aio.open(sys.argv[1]) as store:
        async with store.create("s") as session:
            await session.append("x", 1)
        print([event.data async for event in store.read_from("s")])

"""


def test_asyncio_needs_nothing_else(tmp_path: Path) -> None:
    """Neither anyio nor trio is imported, or missed, under asyncio."""
    code = BLOCKED.format(blocked=("anyio", "trio", "sniffio"))
    code += "import asyncio; asyncio.run(main())"
    assert python(code, str(tmp_path / "store")) == "[1]\n"


def test_trio_without_anyio_is_told_what_to_install(tmp_path: Path) -> None:
    """The error is of the tree, names what is missing, and says how to get it."""
    code = BLOCKED.format(blocked=("anyio",))
    code += (
        "import trio\n"
        "try: trio.run(main)\n"
        "except perdure.errors.InvalidValue as error: print(error)\n"
    )
    said = python(code, str(tmp_path / "store"))
    assert "anyio" in said
    assert "[trio]" in said


# --- the process --------------------------------------------------------------------------------

EXIT = """
import asyncio, os, sys, threading
import perdure, perdure.aio

kept = []

async def main():
    store = perdure.aio.open(sys.argv[1])
    for number in range(40):
        session = await store.create(f"s{number}")
        kept.append((store, session))
        session.append("x", 0)
        session.append("x", 1)
        session.buffer("x", 2)

"""
ENDINGS = {
    "return": "asyncio.run(main())\n",
    "exit": "asyncio.run(main())\nsys.exit(0)\n",
    "cancelled": (
        "async def outer():\n"
        "    task = asyncio.create_task(main())\n"
        "    await task\n"
        "    asyncio.current_task().cancel()\n"
        "    await asyncio.sleep(0)\n"
        "try: asyncio.run(outer())\n"
        "except asyncio.CancelledError: pass\n"
    ),
    "trio": "import trio\ntrio.run(main)\n",
    "closing late": (
        "import atexit\n"
        "atexit.register(lambda: asyncio.run(kept[0][0].close()))\n"
        "atexit.register(lambda: asyncio.run(late()))\n"
        "async def late():\n"
        "    for store, session in kept: assert (await session.append('x', 3)).seq == 3\n"
        "asyncio.run(main())\n"
    ),
    "in another thread": (
        "thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)\n"
        "thread.start(); thread.join()\n"
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_accepted_is_stored_at_exit(tmp_path: Path, ending: str) -> None:
    """However the interpreter ends, it ends, after all that was queued is stored."""
    place = str(tmp_path / "store")
    python(EXIT + ENDINGS[ending], place)
    expected = [0, 1, 2, 3] if ending == "closing late" else [0, 1, 2]
    with perdure.open(place) as store:
        for number in range(40):
            assert [event.data for event in store.read_from(f"s{number}")] == expected


FORK = """
import asyncio, os, sys, warnings
import perdure, perdure.aio
warnings.simplefilter("ignore", DeprecationWarning)

store = perdure.aio.open(sys.argv[1])

async def before():
    session = await store.create("s")
    await session.append("x", 0)
    inspection = await store.inspect("s")
    await inspection.problems
    return session, inspection

async def child(session, inspection):
    for call in (session.append("x"), session.buffer("x"), session.append_many([{"type": "x"}])):
        try:
            await call
        except perdure.errors.SessionClosed as error:
            assert "parent" in str(error)
        else:
            raise AssertionError
    assert await inspection.problems == []
    await session.close()
    try:
        await store.writer("s", wait=0.03)
    except perdure.errors.SessionBusy as busy:
        assert busy.pid == os.getppid()
    async with store.create("child") as own:
        await own.append("x", "from the child")
        own.append("x", "not awaited")
    await store.close()

async def parent(session):
    await session.append("x", 1)
    await store.close()

session, inspection = asyncio.run(before())
pid = os.fork()
if pid == 0:
    asyncio.run(child(session, inspection))
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
asyncio.run(parent(session))
"""


def test_a_forked_child_has_threads_of_its_own(tmp_path: Path) -> None:
    """The child may use the store for sessions of its own; the parent's stay the parent's."""
    place = str(tmp_path / "store")
    python(FORK, place)
    with perdure.open(place) as store:
        assert [event.data for event in store.read_from("s")] == [0, 1]
        expected = ["from the child", "not awaited"]
        assert [event.data for event in store.read_from("child")] == expected


# --- threads ------------------------------------------------------------------------------------


def test_without_threads_the_callers_own_does_the_work(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started everything is done all the same, once."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)

    async def main() -> None:
        async with store.create("s") as session:
            await session.append("x", 0)
            await session.buffer("x", 1)
            session.append("x", 2)
            with pytest.raises(SessionBusy):
                await store.writer("s", wait=0.001)
        assert await data_of(store) == [0, 1, 2]
        monkeypatch.undo()
        async with store.writer("s") as session:
            await session.append("x", 3)
        assert await data_of(store) == [0, 1, 2, 3]
        await store.close()

    asyncio.run(main())


def test_a_call_is_made_once_whoever_makes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the caller did for want of a thread is not done again when there is one."""

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made: list[int] = []
    pool = Pool("perdure-test", 1)
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    pool.run(lambda: made.append(threading.get_ident()))
    monkeypatch.undo()
    done = threading.Event()
    pool.run(lambda: made.append(0))
    pool.run(done.set)
    assert done.wait(PATIENCE)
    assert made == [threading.get_ident(), 0]
    pool.close()


def test_the_threads_end_with_the_store(store: AsyncStore) -> None:
    """After `close` no thread is left, and reading starts new ones."""
    before = set(threading.enumerate())

    async def main() -> None:
        async with store, store.create("s") as session:
            await session.append("x", 0)

    asyncio.run(main())
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()

    async def read() -> None:
        assert await data_of(store) == [0]
        await store.close()

    asyncio.run(read())


def test_a_busy_lane_gives_way_when_threads_are_short() -> None:
    """With more lanes than threads, each gets its turn though one never runs out of jobs."""
    pool = Pool("perdure-test", 1)
    endless: Lane[int] = Lane(pool)
    other: Lane[int] = Lane(pool)
    done = threading.Event()

    def again(jobs: list[int]) -> None:
        if not done.is_set():
            endless.put(jobs[0] + 1, again)

    endless.put(0, again)
    other.put(0, lambda _: done.set())
    assert done.wait(PATIENCE)
    pool.close()


def test_more_sessions_than_threads_all_commit(backend: Gated, store: AsyncStore) -> None:
    """Sessions that find no free thread wait for one and lose nothing."""
    count = COMMIT_THREADS + 8
    reached = threading.Semaphore(0)
    go = threading.Event()

    def before(_text: str) -> None:
        reached.release()
        assert go.wait(PATIENCE)

    async def main() -> None:
        sessions = [await store.create(f"s{number}") for number in range(count)]
        for session in sessions:
            await session.append("x", 0)
        backend.before = before
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(session.append("x", 1)) for session in sessions
        ]
        for _ in range(COMMIT_THREADS):
            assert await asyncio.to_thread(reached.acquire, timeout=PATIENCE)
        assert not reached.acquire(blocking=False)
        assert len(await store.list()) == count
        go.set()
        assert [(await task).seq for task in tasks] == [1] * count
        await store.close()

    asyncio.run(main())


def test_anyio_under_asyncio_may_cancel_for_as_long_as_it_takes(
    backend: Gated, store: AsyncStore
) -> None:
    """A scope of anyio, which cancels over and over, does not keep a session from closing."""
    gate = Gate()

    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with store.create("s") as session:
                await session.append("x", 0)
                await session.buffer("x", 1)
                backend.before = gate
                asyncio.get_running_loop().call_later(0.01, gate.open)
                scope.cancel()
        assert await data_of(store) == [0, 1]
        await store.close()

    run_in("asyncio", main)
