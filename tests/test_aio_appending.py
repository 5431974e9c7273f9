"""What a task may rely on while it appends: order, shared commits, cancellation, failures."""

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

import perdure
import perdure.aio
from perdure.aio.store import AsyncStore
from perdure.errors import (
    InvalidValue,
    KeyConflict,
    PerdureError,
    SessionClosed,
    StaleWriter,
    StorageFull,
    StorageUnavailable,
)
from perdure.store import Store
from perdure.store.session import BUFFER_BYTES_MAX
from tests.test_aio import LOOPS, PATIENCE, Gate, Gated, Run, Spawned, data_of, pause, run_in, spawn


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


async def opened(store: AsyncStore, id: str = "s") -> perdure.aio.AsyncSession:
    """Return a session with one event."""
    session = await store.create(id)
    await session.append("x", "first")
    return session


class Failing:
    """Fails every commit until it is told otherwise."""

    def __init__(self, error: Callable[[], PerdureError]) -> None:
        self._error = error
        self.failed = threading.Event()
        self.on = True

    def __call__(self, _text: str) -> None:
        if self.on:
            self.failed.set()
            raise self._error()

    async def has_failed(self) -> None:
        assert await anyio.to_thread.run_sync(self.failed.wait, PATIENCE)


def full() -> StorageFull:
    return StorageFull("medium", "No space left")


def stale() -> StaleWriter:
    return StaleWriter("s", "somebody else wrote")


# --- at the call --------------------------------------------------------------------------------


def test_the_order_of_the_calls_is_the_order_of_the_log(run: Run, store: AsyncStore) -> None:
    """What is awaited first, last, together or never makes no difference."""

    async def main() -> None:
        session = await opened(store)
        calls: list[Any] = [session.append("x", number) for number in range(5)]
        calls[1] = session.append("x", "instead of an awaited one")
        async with anyio.create_task_group() as group:
            for call in reversed(calls[:1] + calls[2:]):
                await spawn(group, lambda call=call: call)  # type: ignore[misc]
        await store.close()
        assert await data_of(store) == ["first", 0, 1, 2, 3, 4, "instead of an awaited one"]

    run(main)


def test_what_the_caller_changes_later_is_not_stored(run: Run, store: AsyncStore) -> None:
    """Events are encoded at the call, whether or not a commit is under way."""

    async def main() -> None:
        session = await opened(store)
        one: Any = {"a": [1]}
        several: Any = [{"type": "x", "data": [2]}]
        buffered: Any = [3]
        calls = [
            session.append("x", one),
            session.append_many(several),
            session.buffer("x", buffered),
        ]
        one["a"].append(9)
        several[0]["data"] = 9
        several.append({"type": "y"})
        buffered.append(9)
        for call in calls:
            await call
        await session.close()
        assert await data_of(store) == ["first", {"a": [1]}, [2], [3]]

    run(main)


def test_a_call_can_be_handed_to_whatever_starts_tasks(store: AsyncStore) -> None:
    """What runs in asyncio takes it for a coroutine, a future's source, or an awaitable."""

    async def main() -> None:
        session = await opened(store)
        task = asyncio.create_task(session.append("x", 1))
        assert "Task" in repr(task)
        async with asyncio.TaskGroup() as group:
            inside = group.create_task(session.append("x", 2))
        gathered = await asyncio.gather(session.append("x", 3), session.buffer("x", 4))
        timed = await asyncio.wait_for(session.append("x", 5), PATIENCE)
        shielded = await asyncio.shield(session.append("x", 6))
        seqs = [(await task).seq, inside.result().seq, *(event.seq for event in gathered)]
        assert [*seqs, timed.seq, shielded.seq] == [1, 2, 3, 4, 5, 6]
        handle = session.append("x", 7)
        assert inspect.isawaitable(handle)
        assert (await handle, await handle) == (handle_event := await handle, handle_event)
        handle.close()
        await store.close()

    asyncio.run(main())


def test_trio_starts_a_call_as_a_task(store: AsyncStore) -> None:
    """`start_soon(session.append, ...)` works as for any asynchronous function."""
    import trio

    async def main() -> None:
        session = await opened(store)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(session.append, "x", 1)
            nursery.start_soon(session.append, "x", 2)
        assert session.position.seq == 2
        await store.close()

    trio.run(main)


def test_errors_are_raised_by_the_await(run: Run, store: AsyncStore) -> None:
    """A refused event raises where it is awaited, whatever refuses it, and takes no number."""

    async def main() -> None:
        session = await opened(store)
        await session.append("x", 1, key="k")
        calls: list[tuple[Any, type[PerdureError]]] = [
            (session.append("x", {1}), InvalidValue),
            (session.append("No Type"), InvalidValue),
            (session.append("x", 2, key="k"), KeyConflict),
            (session.append_many([{"type": "x"}, {"type": "x", "data": {1}}]), InvalidValue),
            (session.append_many([{"type": "x"}], at=7), InvalidValue),
            (session.append_many(3), InvalidValue),  # type: ignore[arg-type]
            (session.buffer("x", b"bytes"), InvalidValue),
            (session.buffer("x", 2, key="k"), KeyConflict),
        ]
        for call, kind in calls:
            with pytest.raises(kind):
                await call
        assert (await session.append("x", 3)).seq == 2
        await session.close()
        for closed in (session.append("x"), session.buffer("x"), session.append_many([])):
            with pytest.raises(SessionClosed):
                await closed
        with pytest.raises(SessionClosed):
            await session.flush()
        await session.close()
        await store.close()

    run(main)


# --- sharing commits ----------------------------------------------------------------------------


def test_calls_that_arrive_during_a_commit_share_the_next(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """However many tasks append meanwhile, one commit stores them all."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        backend.before = gate
        async with anyio.create_task_group() as group:
            await spawn(group, lambda: session.append("x", 0))
            await gate.reached()
            for number in range(1, 50):
                group.start_soon(session.append, "x", number)
            await pause()
            gate.open()
        assert backend.sizes == [1, 49]
        await store.close()
        assert sorted((await data_of(store))[1:]) == [*range(50)]

    run(main)


def test_a_session_never_occupies_two_threads(run: Run, backend: Gated, store: AsyncStore) -> None:
    """200 tasks on 20 sessions commit in at most 20 threads, one for each session."""
    mutex, now, most = threading.Lock(), {"all": 0}, {"all": 0}

    def count(text: str, step: int) -> None:
        for name in ("all", text.split('"turn":"')[1].partition('"')[0]):
            with mutex:
                now[name] = now.get(name, 0) + step
                most[name] = max(most.get(name, 0), now[name])

    async def main() -> None:
        sessions = [await opened(store, f"s{number}") for number in range(20)]
        backend.before = lambda text: count(text, 1)
        backend.after = lambda text: count(text, -1)

        async def work(session: perdure.aio.AsyncSession, task: int) -> None:
            for number in range(5):
                await session.append("x", [task, number], turn=session.id)

        async with anyio.create_task_group() as group:
            for task in range(200):
                group.start_soon(work, sessions[task % 20], task)
        await store.close()
        assert most["all"] <= 20
        assert {most[session.id] for session in sessions} == {1}
        for session in sessions:
            stored = [event.data async for event in store.read_from(session.id, 1)]
            assert len(stored) == 50
            for task in {each[0] for each in stored}:
                assert [number for other, number in stored if other == task] == [*range(5)]

    run(main)


def test_a_slow_session_holds_up_no_other(run: Run, backend: Gated, store: AsyncStore) -> None:
    """While a commit of one session hangs, the others append, open and close."""
    gate = Gate("slow")

    async def main() -> None:
        slow, quick = await opened(store, "slow"), await opened(store, "quick")
        backend.before = gate
        async with anyio.create_task_group() as group:
            held = [await spawn(group, lambda: slow.append("x", "slow")) for _ in range(100)]
            await gate.reached()
            for number in range(100):
                await quick.append("x", number)
            await quick.close()
            async with store.writer("quick") as again:
                await again.append("x")
            assert not any(each.value for each in held)
            gate.open()
        assert slow.position.seq == 100
        await store.close()

    run(main)


# --- cancelling ---------------------------------------------------------------------------------


def test_a_cancelled_append_is_stored_all_the_same(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Whoever waits is gone at once; the event and those that share its commit are stored."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        backend.before = gate
        async with anyio.create_task_group() as group:
            first = await spawn(group, lambda: session.append("x", 1))
            await gate.reached()
            second = await spawn(group, lambda: session.append_many([{"type": "x", "data": 2}] * 2))
            third = await spawn(group, lambda: session.append("x", 3))
            assert (await first.cancel()).cancelled
            assert (await second.cancel()).cancelled
            gate.open()
            assert (await third.done()).value.seq == 4
        assert await data_of(store) == ["first", 1, 2, 2, 3]
        await store.close()

    run(main)


def test_a_cancelled_append_outlives_a_failure(run: Run, backend: Gated, store: AsyncStore) -> None:
    """It is kept like a buffered event, in order, while an awaited one is taken back and told."""
    gate, failing = Gate(), Failing(full)

    def first_gate_then_fail(text: str) -> None:
        gate(text)
        failing(text)

    async def main() -> None:
        session = await opened(store)
        backend.before = first_gate_then_fail
        async with anyio.create_task_group() as group:
            cancelled = await spawn(
                group, lambda: session.append_many([{"type": "x", "data": 1}] * 2)
            )
            await gate.reached()
            waiting = await spawn(group, lambda: session.append("x", 2))
            await cancelled.cancel()
            gate.open()
            assert isinstance((await waiting.done()).error, StorageFull)
        failing.on = False
        assert (await session.append("x", 3)).seq == 3
        assert await data_of(store) == ["first", 1, 1, 3]
        await store.close()

    run(main)


async def cancelled_too_late(
    backend: Gated, session: perdure.aio.AsyncSession, data: Any, *, begun: bool
) -> asyncio.Task[Any]:
    """Cancel a task whose append is decided, before it can have heard of it."""
    gate, before = Gate(), backend.before

    def held(text: str) -> None:
        gate(text)
        before(text)

    backend.before = held
    call = session.append("x", data)
    task = asyncio.create_task(call)
    if begun:
        await pause()
    gate.open()
    while not call._group.outcome.done:  # type: ignore[attr-defined]
        pass  # holds up the loop
    task.cancel()
    await asyncio.wait((task,))
    backend.before = before
    return task


@pytest.mark.parametrize("begun", [True, False])
def test_a_failure_that_came_first_is_told_instead_of_the_cancellation(
    backend: Gated, store: AsyncStore, *, begun: bool
) -> None:
    """A task that is cancelled after its append has failed is not told that it is kept."""

    async def main() -> None:
        session = await opened(store)
        failing = backend.before = Failing(full)
        task = await cancelled_too_late(backend, session, 1, begun=begun)
        assert isinstance(task.exception(), StorageFull)
        failing.on = False
        task = await cancelled_too_late(backend, session, 2, begun=begun)
        assert task.cancelled()
        await store.close()
        assert await data_of(store) == ["first", 2]

    asyncio.run(main())


def test_a_task_that_is_cancelled_before_it_starts_stores_all_the_same(
    backend: Gated, store: AsyncStore
) -> None:
    """The call had queued the event; that nobody began to wait changes nothing."""
    gate, failing = Gate(), Failing(full)

    def before(text: str) -> None:
        gate(text)
        failing(text)

    async def main() -> None:
        session = await opened(store)
        backend.before = before
        task = asyncio.create_task(session.append("x", 1))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        await failing.has_failed()
        failing.on = False
        await session.flush()
        assert await data_of(store) == ["first", 1]
        lost = asyncio.create_task(store.append("absent", []))
        lost.cancel()
        with pytest.raises(asyncio.CancelledError):
            await lost
        with pytest.raises(perdure.errors.SessionNotFound):
            await store.close()

    asyncio.run(main())


def test_one_of_two_who_wait_for_the_same_append_may_go(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """As long as somebody waits, a failure is told and the event is taken back."""
    gate, failing = Gate(), Failing(full)

    async def main() -> None:
        session = await opened(store)

        def before(text: str) -> None:
            gate(text)
            failing(text)

        backend.before = before
        call = session.append("x", 1)

        async def wait() -> Any:
            return await call

        async with anyio.create_task_group() as group:
            one, other = await spawn(group, wait), await spawn(group, wait)
            await gate.reached()
            await one.cancel()
            gate.open()
            assert isinstance((await other.done()).error, StorageFull)
        failing.on = False
        await store.close()
        assert await data_of(store) == ["first"]

    run(main)


# --- failing ------------------------------------------------------------------------------------


def test_a_failed_append_is_told_and_not_stored(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """An append that raised is not in the log and not in the queue."""

    async def main() -> None:
        session = await opened(store)
        failing = backend.before = Failing(full)
        await session.buffer("x", "buffered")
        for _ in range(3):
            with pytest.raises(StorageFull):
                await session.append("x", "refused")
        failing.on = False
        await session.flush()
        await store.close()
        assert await data_of(store) == ["first", "buffered"]

    run(main)


def test_whoever_shares_a_stale_commit_is_told(run: Run, backend: Gated, store: AsyncStore) -> None:
    """All who wait get StaleWriter with everything that was lost, and the session is over."""
    gate, failing = Gate(), Failing(stale)

    def before(text: str) -> None:
        gate(text)
        failing(text)

    async def main() -> None:
        session = await opened(store)
        backend.before = before
        async with anyio.create_task_group() as group:
            told = [await spawn(group, lambda: session.append("x", 1))]
            await gate.reached()
            told.append(await spawn(group, lambda: session.append("x", 2)))
            gone = await spawn(group, lambda: session.append("x", 3))
            await gone.cancel()
            gate.open()
            for each in told:
                error = (await each.done()).error
                assert isinstance(error, StaleWriter)
                assert [event.data for event in error.lost] == [1, 2, 3]
        assert session.closed
        with pytest.raises(StaleWriter):
            await session.append("x", "the next is told what became of 3")
        with pytest.raises(SessionClosed):
            await session.append("x")
        await session.close()
        await store.close()

    run(main)


def test_what_nobody_awaits_is_stored(run: Run, backend: Gated, store: AsyncStore) -> None:
    """An append is kept like a buffered event if its result is thrown away, failures included."""

    async def main() -> None:
        session = await opened(store)
        session.append("x", 1)
        session.append_many([{"type": "x", "data": 2}])
        session.buffer("x", 3)
        await session.flush()
        failing = backend.before = Failing(full)
        session.append("x", 4)
        await failing.has_failed()
        with pytest.raises(StorageFull):
            await session.flush()
        failing.on = False
        await store.close()
        assert await data_of(store) == ["first", 1, 2, 3, 4]

    run(main)


def test_what_nobody_awaited_and_failed_is_told_by_the_next_call(
    run: Run, store: AsyncStore
) -> None:
    """No failure is silent: the next append, flush or close raises it, once."""

    async def main() -> None:
        session = await opened(store)
        for call in (session.flush, lambda: session.append("x", 1), lambda: session.buffer("x")):
            session.append("x", {1})
            gc.collect()
            with pytest.raises(InvalidValue):
                await call()
        assert (await session.append("x", 2)).seq == 1
        session.buffer("x", {1})
        with pytest.raises(InvalidValue):
            await session.close()
        await session.close()
        store.append("s", [{"type": "x", "data": {1}}])
        store.append("absent", [])
        with pytest.raises(InvalidValue):
            await store.close()
        await store.close()

    run(main)


def test_a_failing_flush_keeps_what_was_buffered(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Flushing raises what the medium said and can be repeated; cancelling it changes nothing."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        failing = backend.before = Failing(full)
        await session.buffer("x", 1)
        with pytest.raises(StorageFull):
            await session.flush()
        failing.on = False
        backend.before = gate
        async with anyio.create_task_group() as group:
            flushing = await spawn(group, session.flush)
            await gate.reached()
            assert (await flushing.cancel()).cancelled
            gate.open()
        await store.close()
        assert await data_of(store) == ["first", 1]

    run(main)


def test_a_writer_that_dies_in_an_abandoned_flush_says_so(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """What was lost while nobody waited is told by `close`."""
    gate, failing = Gate(), Failing(stale)

    def before(text: str) -> None:
        gate(text)
        failing(text)

    async def main() -> None:
        session = await opened(store)
        backend.before = before
        await session.buffer("x", 1)
        async with anyio.create_task_group() as group:
            flushing = await spawn(group, session.flush)
            await gate.reached()
            await flushing.cancel()
            gate.open()
        with pytest.raises(StaleWriter) as told:
            await session.close()
        assert [event.data for event in told.value.lost] == [1]
        await store.close()

    run(main)


# --- keys ---------------------------------------------------------------------------------------


def test_stored_events_are_read_in_a_thread_and_in_order(
    run: Run, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the event of a key is read, the loop goes on and later calls stay behind."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        await session.append("x", 1, key="k")
        blocking = session._session._queue
        real = blocking._read_event
        blocking._facts.clear()  # as where sessions outlive the process

        def read(id: str, seq: int) -> perdure.Event:
            gate("")
            return real(id, seq)

        monkeypatch.setattr(blocking, "_read_event", read)
        async with anyio.create_task_group() as group:
            both = await spawn(
                group,
                lambda: session.append_many(
                    [{"type": "x", "data": 1, "key": "k"}, {"type": "x", "data": 2}]
                ),
            )
            await gate.reached()
            later = await spawn(group, lambda: session.append("x", 3))
            buffered = await spawn(group, lambda: session.buffer("x", 4))
            conflict = await spawn(group, lambda: session.append("x", 5, key="k"))
            cancelled = await spawn(group, lambda: session.append("x", 6))
            await cancelled.cancel()
            refused = await spawn(group, lambda: session.append("x", 7, key="k"))
            await refused.cancel()
            gate.open()
            assert [event.seq for event in (await both.done()).value] == [1, 2]
            assert (await later.done()).value.seq == 3
            assert (await buffered.done()).value.seq == 4
            assert isinstance((await conflict.done()).error, KeyConflict)
        with pytest.raises(KeyConflict):
            await session.close()
        assert await data_of(store) == ["first", 1, 2, 3, 4, 6]
        await store.close()

    run(main)


def test_two_tasks_may_use_one_key(run: Run, backend: Gated, store: AsyncStore) -> None:
    """Both get the one event that is stored."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        backend.before = gate
        async with anyio.create_task_group() as group:
            both = [await spawn(group, lambda: session.append("x", 1, key="k")) for _ in range(2)]
            await gate.reached()
            gate.open()
        assert [each.value.seq for each in both] == [1, 1]
        await store.close()
        assert await data_of(store) == ["first", 1]

    run(main)


# --- buffering ----------------------------------------------------------------------------------


def test_buffering_is_done_at_once(store: AsyncStore) -> None:
    """Awaiting what is buffered does not even give the loop a turn."""

    async def main() -> None:
        session = await opened(store)
        with pytest.raises(StopIteration) as returned:
            session.buffer("x", 1).send(None)
        assert returned.value.value.seq == 1
        await store.close()
        assert await data_of(store) == ["first", 1]

    asyncio.run(main())


def test_a_full_buffer_holds_up_its_task_and_not_the_loop(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """Above the bound a task waits until there is room, in order, and memory is bounded."""
    gate = Gate()
    piece = "x" * (BUFFER_BYTES_MAX // 4)

    async def main() -> None:
        session = await opened(store)
        backend.before = gate
        waiting: list[Spawned] = []
        async with anyio.create_task_group() as group:
            waiting += [await spawn(group, lambda: session.buffer("x", piece)) for _ in range(9)]
            await gate.reached()
            await waiting[0].done()
            assert waiting[-1].value is None
            assert (await waiting[-1].cancel()).cancelled
            gate.open()
        assert [each.value.seq for each in waiting[:-1]] == [*range(1, 9)]
        assert session._session._queue.bytes <= BUFFER_BYTES_MAX
        await store.close()
        assert len(await data_of(store)) == 10

    run(main)


# --- leaving ------------------------------------------------------------------------------------


def test_the_callers_exception_comes_first(run: Run, backend: Gated, store: AsyncStore) -> None:
    """If body and close fail, the body's exception leaves, the other chained to it."""

    async def body() -> None:
        async with store.create("s") as session:
            await session.append("x")
            await session.buffer("x", "lost")
            backend.before = Failing(full)
            raise ValueError("the body")

    async def main() -> None:
        with pytest.raises(ValueError, match="the body") as raised:
            await body()
        assert "while closing session 's'" in "".join(raised.value.__notes__)
        assert isinstance(raised.value.__context__, StorageUnavailable)
        assert [event.data for event in raised.value.__context__.lost] == ["lost"]
        backend.before = Failing(full)
        with pytest.raises(StorageUnavailable):
            async with store, store.writer("s") as session:
                await session.buffer("x", "lost")

    run(main)


def test_a_cancelled_context_gives_the_session_back(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """When a cancelled task is out of its `async with`, all is stored and the session free."""
    gate = Gate()

    async def body() -> None:
        async with store.create("s") as session:
            await session.append("x", 1)
            await session.buffer("x", 2)
            backend.before = gate
            await anyio.sleep_forever()

    async def main() -> None:
        async with anyio.create_task_group() as group:
            held = await spawn(group, body)
            while backend.before is not gate:
                await pause()
            held.scope.cancel()
            await gate.reached()
            assert not held.cancelled
            gate.open()
            assert (await held.done()).cancelled
        async with store.writer("s") as again:
            assert again.position.seq == 1
        await store.close()

    run(main)


def test_a_second_cancellation_does_not_leave_a_session_behind(
    backend: Gated, store: AsyncStore
) -> None:
    """However often a task of asyncio is cancelled while it closes, it closes."""
    inside = asyncio.Event()

    async def body(error: Exception | None) -> None:
        async with store.writer("s") as session:
            await session.buffer("x", 2)
            inside.set()
            if error is not None:
                raise error
            await asyncio.Event().wait()

    async def main() -> None:
        await (await opened(store)).close()
        for error in (None, ValueError("the body")):
            backend.before = gate = Gate()
            task = asyncio.create_task(body(error))
            if error is None:
                await inside.wait()
                task.cancel("once")
            await gate.reached()
            for _ in range(3):
                task.cancel("again")
                await pause()
                assert not task.done()
            gate.open()
            with pytest.raises(asyncio.CancelledError) as told:
                await task
            assert told.value.args == ("again" if error else "once",)
            assert told.value.__context__ is error or error is None
            async with store.writer("s"):
                pass
        async with asyncio.timeout(PATIENCE):
            await store.close()
        assert await data_of(store) == ["first", 2, 2]

    asyncio.run(main())


def test_closing_is_finished_though_it_is_cancelled(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """A cancelled `close` of a session or a store is over when it leaves, never half-way."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        await session.buffer("x", 1)
        backend.before = gate
        async with anyio.create_task_group() as group:
            closing = await spawn(group, store.close)
            await gate.reached()
            closing.scope.cancel()
            with pytest.raises(SessionClosed):
                await session.append("x", "too late")
            gate.open()
            await closing.done()
        assert session._session.closed
        assert await data_of(store) == ["first", 1]
        with pytest.raises(SessionClosed):
            await store.writer("s")

    run(main)


def test_a_session_that_is_being_closed_takes_nothing_more(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """From the call of `close` on events are refused, though a commit is still under way."""
    gate = Gate()

    async def main() -> None:
        session = await opened(store)
        backend.before = gate
        async with anyio.create_task_group() as group:
            await spawn(group, lambda: session.append("x", 1))
            await gate.reached()
            closing = await spawn(group, session.close)
            for call in (session.append("x"), session.buffer("x"), session.flush()):
                with pytest.raises(SessionClosed):
                    await call
            gate.open()
            await closing.done()
        await store.close()
        assert await data_of(store) == ["first", 1]

    run(main)


def test_everything_queued_is_stored_when_the_store_closes(
    run: Run, backend: Gated, store: AsyncStore
) -> None:
    """What was called before `close` is stored before it, awaited or not."""
    gate = Gate()

    async def main() -> None:
        sessions = [await opened(store, f"s{number}") for number in range(5)]
        await (await opened(store, "t")).close()
        backend.before = gate
        for session in sessions:
            for number in range(3):
                session.append("x", number)
        store.append("t", [{"type": "x", "data": 1}])
        async with anyio.create_task_group() as group:
            await spawn(group, store.close)
            await gate.reached()
            gate.open()
        for session in sessions:
            assert await data_of(store, session.id) == ["first", 0, 1, 2]
        assert await data_of(store, "t") == ["first", 1]

    run(main)
