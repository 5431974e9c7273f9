"""The store for tasks: it does what `perdure.Store` does, and never holds up the event loop."""

import asyncio
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import perdure
import perdure.aio
from perdure.aio.outcomes import Call
from perdure.aio.pages import PAGE_BYTES, PAGE_ITEMS
from perdure.aio.threads import Pool
from perdure.backends.base import Hold
from perdure.backends.memory import MemoryBackend
from perdure.errors import (
    InvalidValue,
    PersistenceDisabled,
    SessionBusy,
    SessionClosed,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
)
from perdure.model.record import Position, Record
from perdure.testing.contract import Clockwork
from perdure.testing.contract.place import OPEN, TURN

PATIENCE = 60.0
LOOPS = ("asyncio", "trio")
Main = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Main], None]


def run_in(loop: str, main: Main) -> None:
    """Run a test's tasks; one that hangs fails."""

    async def bounded() -> None:
        with anyio.fail_after(PATIENCE):
            await main()

    anyio.run(bounded, backend=loop)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine function under each event loop."""
    return lambda main: run_in(request.param, main)


@pytest.fixture
def store(tmp_path: Path) -> perdure.aio.AsyncStore:
    """A store of plain lines."""
    return perdure.aio.open(tmp_path / "store", encoding="raw")


def nothing(_text: str) -> None:
    """What happens around a commit unless a test says otherwise."""


class Gated(MemoryBackend):
    """Sessions in memory, with something of the test's before and after each commit but the first.

    It is told the text of what is committed. It can be in the way of locks as well.
    """

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[str], None] = nothing
        self.after: Callable[[str], None] = nothing
        self.at_lock: Callable[[str], None] = nothing
        self.lock_asked: Callable[[str], None] = nothing
        self.sizes: list[int] = []

    def commit(self, hold: Hold, expected: Position, records: Any) -> None:
        text = b"".join(record.line for record in records).decode()
        self.before(text)
        super().commit(hold, expected, records)
        self.sizes.append(events_in(records))
        self.after(text)

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        self.lock_asked(session)
        hold = super().lock(session, wait=wait)
        self.at_lock(session)
        return hold


def events_in(records: list[Record]) -> int:
    return sum(record.last - record.first + 1 for record in records)


class Gate:
    """Holds up the threads that come by until the test opens it; `only` those with that text."""

    def __init__(self, only: str = "") -> None:
        self._only = only
        self._reached = threading.Event()
        self._open = threading.Event()

    def __call__(self, text: str) -> None:
        if self._only in text:
            self._reached.set()
            assert self._open.wait(PATIENCE)

    async def reached(self) -> None:
        """Wait until somebody stands there; the loop goes on."""
        assert await anyio.to_thread.run_sync(self._reached.wait, PATIENCE)

    def open(self) -> None:
        self._open.set()


class Spawned:
    """A task of its own: what came of it, and a way to cancel it."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.cancelled = False
        self.scope = anyio.CancelScope()
        self._done = anyio.Event()

    async def run(self, call: Callable[[], Awaitable[Any]]) -> None:
        try:
            with self.scope:
                try:
                    self.value = await call()
                except Exception as error:  # noqa: BLE001 - kept for the test
                    self.error = error
                except BaseException:
                    self.cancelled = True
                    raise
        finally:
            self._done.set()

    async def done(self) -> "Spawned":
        await self._done.wait()
        return self

    async def cancel(self) -> "Spawned":
        self.scope.cancel()
        return await self.done()


async def spawn(group: Any, call: Callable[[], Awaitable[Any]]) -> Spawned:
    """Start a task and let it run until it waits for something."""
    made = Spawned()
    group.start_soon(made.run, call)
    await pause()
    return made


async def pause(turns: int = 10) -> None:
    """Let every task that can run do so."""
    for _ in range(turns):
        await anyio.lowlevel.checkpoint()


async def data_of(store: perdure.aio.AsyncStore, id: str = "s") -> list[Any]:
    return [event.data async for event in store.read_from(id)]


# --- the same as without tasks ------------------------------------------------------------------


def test_a_session_is_written_and_read(run: Run, store: perdure.aio.AsyncStore) -> None:
    """What tasks append is what tasks and threads read."""

    async def main() -> None:
        async with store:
            async with store.create("s", cwd="/srv", config={"a": 1}) as session:
                assert (session.id, session.header.cwd) == ("s", "/srv")
                assert session.position.seq == -1
                assert (await session.append("note", 1, turn="t", agent="a", key="k")).seq == 0
                many = await session.append_many([{"type": "note", "data": 2}, {"type": "x"}])
                assert [event.seq for event in many] == [1, 2]
                assert (await session.buffer("note", 3)).seq == 3
                await session.flush()
                assert session.position.seq == 3
                states = [session.closed]
            assert [*states, session.closed] == [False, True]
            assert await data_of(store) == [1, 2, None, 3]
            assert [event.seq async for event in store.read_from("s", 2)] == [2, 3]
            assert [event.seq async for event in store.read_from("s", types={"x"})] == [2]
            lines = [line async for line in store.raw("s")]
            assert [b'"id":"s"' in line for line in lines if isinstance(line, bytes)][:2] == [
                True,
                False,
            ]
            report = await store.verify("s")
            assert (report.sound, report.events) == (True, 4)
            assert [entry.id for entry in await store.list()] == ["s"]
            assert [entry.id for entry in await store.list_snapshots()] == ["s"]
            assert await store.locate("s") == await store.locate(session.header) is not None

    run(main)
    assert "open" not in repr(store)


def test_an_inspection_answers_what_is_awaited(run: Run, store: perdure.aio.AsyncStore) -> None:
    """Properties that read the log are awaited, events are iterated, the rest is there at once."""

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                await session.append_many([*TURN, *OPEN])
                held = await store.inspect("s")
                assert held.holder is not None
                assert await held.status == "running"
            found = await store.inspect("s")
            assert found.id == "s"
            assert found.header is not None
            assert found.holder is None
            assert "s" in repr(found)
            unused = found.position
            position = await found.position
            assert position is not None
            assert position.seq == len(TURN) + len(OPEN) - 1
            assert position == await unused == await found.verified
            assert await found.status == "complete"
            assert await found.problems == []
            assert not await found.damaged
            assert await found.later_count == 0
            assert [event.seq async for event in found.later()] == []
            closers = [event.type for event in await found.closers]
            assert closers == ["step/end", "turn/end"]
            assert [event.type async for event in found.events][-2:] == closers
            loaded = await store.load("s")
            assert [event.type async for event in loaded.events][-2:] == closers
            assert await loaded.closers == []

    run(main)


def test_a_session_is_prepared(run: Run, store: perdure.aio.AsyncStore) -> None:
    """A reservation keeps others out, and is given back unless its writer was taken."""

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                await session.append_many([*TURN, *OPEN])
            async with await store.prepare("s") as prepared:
                assert prepared.header.id == "s"
                assert prepared.position.seq == 9
                with pytest.raises(SessionBusy) as busy:
                    await store.writer("s")
                assert busy.value.here
            async with await store.prepare("s") as prepared:
                taken = prepared.session()
            assert (await taken.append("x")).seq == 10
            await taken.close()
            async with store.writer("s") as again:
                assert again.position.seq == 10

    run(main)


def test_a_store_appends_without_a_writer(run: Run, store: perdure.aio.AsyncStore) -> None:
    """Appends of one store to one session are stored in the order of the calls, as at the call."""

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                await session.append("x", 0)
            data = {"list": [1]}
            waiting = [store.append("s", [{"type": "x", "data": data}])]
            data["list"].append(2)
            waiting += [store.append("s", [{"type": "x", "data": n}]) for n in range(2, 9)]
            stored = [(await each)[0].seq for each in reversed(waiting)]
            assert stored == [*reversed(range(1, 9))]
            assert (await data_of(store))[:3] == [0, {"list": [1]}, 2]
            copied = [event async for event in store.read_from("s", 8)]
            with pytest.raises(InvalidValue):
                await store.append("s", copied)
            async with store.writer("s") as session:
                await session.buffer("x", 9)
                assert (await store.append("s", [{"type": "x", "seq": 10}]))[0].seq == 10
            refused: list[Any] = [1, {"type": "x", "data": {1}}, {"type": 1}]
            for events in refused:
                with pytest.raises(InvalidValue) as told:
                    await store.append("s", [events])
                assert told.value.path.startswith("events[0]")
            with pytest.raises(InvalidValue):
                await store.append("", [])
            with pytest.raises(SessionNotFound):
                await store.append("absent", [])

    run(main)


def test_errors_arrive_where_the_result_is_awaited(
    run: Run, store: perdure.aio.AsyncStore, tmp_path: Path
) -> None:
    """Each error of the tree is raised by the `await`, `async with` or `async for`."""

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                await session.append("x", 1)
                with pytest.raises(SessionExists):
                    await store.create("s")
                with pytest.raises(SessionBusy):
                    await store.load("s")
            with pytest.raises(InvalidValue):
                await store.create("")
            with pytest.raises(InvalidValue) as told:
                await store.create("t", config={"a": {1}})
            assert told.value.path == "config.a"
            for call in (store.writer, store.inspect, store.load, store.verify, store.prepare):
                with pytest.raises(SessionNotFound):
                    await call("absent")
            for pages in (store.read_from("absent"), store.raw("absent")):
                with pytest.raises(SessionNotFound):
                    await anext(pages)
                with pytest.raises(StopAsyncIteration):
                    await anext(pages)
            with pytest.raises(InvalidValue):
                await anext(store.read_from("s", -1))
            with pytest.raises(InvalidValue):
                await anext(store.read_from("s", 0, "x"))
        for refused in (store.create("new"), store.writer("s")):
            with pytest.raises(SessionClosed):
                await refused
        assert await data_of(store) == [1]
        await store.close()
        with pytest.raises(PersistenceDisabled):
            await perdure.aio.open("none:").writer("s")

    run(main)
    with pytest.raises(InvalidValue):
        perdure.aio.open(tmp_path, encoding="zip")


def harm(path: str, text: bytes) -> None:
    log = Path(path)
    log.write_bytes(log.read_bytes().replace(text, b"x" * len(text)))


def test_damage_comes_behind_what_holds(run: Run, store: perdure.aio.AsyncStore) -> None:
    """An iteration gives every event before the damage, then raises, then is over."""

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                for number in range(5):
                    await session.append("x", f"number {number}")
            harm(str(await store.locate("s")), b"number 3")
            events = store.read_from("s")
            assert [(await anext(events)).data for _ in range(3)] == [
                f"number {number}" for number in range(3)
            ]
            with pytest.raises(SessionDamaged):
                await anext(events)
            assert [event async for event in events] == []
            found = await store.inspect("s")
            assert await found.damaged
            assert await found.later_count == 1
            assert [event.seq async for event in found.later()] == [4]

    run(main)


def parameters(call: Any) -> list[tuple[str, Any, Any]]:
    return [
        (each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()
    ]


@pytest.mark.parametrize(
    ("twin", "original"),
    [
        (perdure.aio.AsyncStore, perdure.Store),
        (perdure.aio.AsyncSession, perdure.Session),
        (perdure.aio.AsyncInspection, perdure.Inspection),
        (perdure.aio.AsyncPrepared, perdure.Prepared),
    ],
)
def test_names_and_parameters_are_the_same(twin: type, original: type) -> None:
    """Whoever knows a blocking call knows its twin."""
    for name, value in vars(twin).items():
        if name.startswith("_"):
            continue
        there = inspect.getattr_static(original, name, None)
        if callable(value):
            assert parameters(value) == parameters(there), name
        else:
            own = ("id", "header", "position", "closed", "resumed")
            assert there is not None or name in own, name
    assert parameters(perdure.aio.open) == parameters(perdure.open)


# --- the event loop is never held up ------------------------------------------------------------

SYSTEM_CALLS = ("open", "pread", "pwrite", "fdatasync", "fsync", "stat", "listdir", "scandir")


def test_the_thread_of_the_loop_never_touches_the_disk(
    run: Run, store: perdure.aio.AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is called, files are opened, read and written by other threads."""
    touched: dict[int, set[str]] = {}

    def watch(name: str) -> None:
        real = getattr(os, name)

        def call(*given: Any, **options: Any) -> Any:
            if given and str(given[0]).endswith(".py"):
                return real(*given, **options)  # asyncio looks for source lines when it debugs
            touched.setdefault(threading.get_ident(), set()).add(name)
            return real(*given, **options)

        monkeypatch.setattr(os, name, call)

    for name in SYSTEM_CALLS:
        watch(name)

    async def main() -> None:
        async with store:
            async with store.create("s") as session:
                await session.append("x", 1, key="k")
                assert (await session.append("x", 1, key="k")).seq == 0
                assert (await session.buffer("x", 1, key="k")).seq == 0
                await session.append_many([{"type": "x"}])
                await session.buffer("x", 2)
                await session.flush()
            async with store.writer("s", wait=1):
                with pytest.raises(SessionBusy):
                    await store.writer("s", wait=0.001)
            await store.append("s", [{"type": "x"}])
            found = await store.inspect("s")
            await found.problems
            await found.status
            assert len([event async for event in found.events]) == 4
            assert len(await data_of(store)) == 4
            await store.load("s")
            await store.verify("s")
            await store.list()
            await store.locate("s")
            async with await store.prepare("s"):
                pass

    run(main)
    monkeypatch.undo()
    assert threading.get_ident() not in touched
    assert {"open", "pread", "pwrite", "fdatasync"} <= set().union(*touched.values())


def test_a_page_is_read_at_a_time(run: Run) -> None:
    """No more than a page is read ahead, by number and by size, and the source is closed."""
    read: list[int] = []
    size = [0]
    closed = []

    def source() -> Iterator[bytes]:
        try:
            for number in range(PAGE_ITEMS * 3):
                read.append(number)
                yield b"x" * size[0]
        finally:
            closed.append(threading.get_ident())

    async def main() -> None:
        pool = Pool("perdure-test", 1)
        async with aclosing(perdure.aio.Pages(pool, source)) as pages:
            await anext(pages)
            assert len(read) == PAGE_ITEMS
            for _ in range(PAGE_ITEMS - 1):
                await anext(pages)
            assert len(read) == PAGE_ITEMS
        assert closed == [each for each in closed if each != threading.get_ident()] != []
        with pytest.raises(StopAsyncIteration):
            await anext(pages)
        await pages.aclose()
        read.clear()
        size[0] = PAGE_BYTES // 4
        pages = perdure.aio.Pages(pool, source)
        assert len(await anext(pages)) == size[0]
        assert len(read) == 4
        await pages.aclose()
        unread = perdure.aio.Pages(pool, source)
        await unread.aclose()
        assert [item async for item in unread] == []
        pool.close()

    run(main)


def test_a_cancelled_iteration_can_go_on(run: Run) -> None:
    """Cancelling whoever waits for a page loses no item of it."""
    gate = Gate()

    def source() -> Iterator[bytes]:
        gate("")
        yield from (b"1", b"2", b"3")

    async def main() -> None:
        pool = Pool("perdure-test", 1)
        pages = perdure.aio.Pages(pool, source)
        async with anyio.create_task_group() as group:
            waiting = await spawn(group, lambda: anext(pages))
            await gate.reached()
            assert (await waiting.cancel()).cancelled
            closing = await spawn(group, perdure.aio.Pages(pool, source).aclose)
            gate.open()
            await closing.done()
        assert [item async for item in pages] == [b"1", b"2", b"3"]
        pool.close()

    run(main)


def test_closing_an_iteration_waits_for_the_page(run: Run) -> None:
    """A source is not closed while a thread reads it, whoever is cancelled meanwhile."""
    gate = Gate()
    closed = []

    def source() -> Iterator[bytes]:
        try:
            gate("")
            yield from [b"x"] * (PAGE_ITEMS + 1)
        finally:
            closed.append(True)

    async def main() -> None:
        pool = Pool("perdure-test", 1)
        pages = perdure.aio.Pages(pool, source)
        async with anyio.create_task_group() as group:
            reading = await spawn(group, lambda: anext(pages))
            await gate.reached()
            await reading.cancel()
            closing = await spawn(group, pages.aclose)
            closing.scope.cancel()
            await pause()
            assert closed == []
            gate.open()
            await closing.done()
        assert closed == [True]
        pool.close()

    run(main)


# --- cancelled tasks ----------------------------------------------------------------------------


def readings(store: perdure.aio.AsyncStore) -> list[Callable[[], Awaitable[Any]]]:
    return [
        store.list,
        store.list_snapshots,
        lambda: store.inspect("s"),
        lambda: anext(store.read_from("s")),
    ]


def test_a_cancelled_task_reads_nothing(run: Run, store: perdure.aio.AsyncStore) -> None:
    """In a cancelled scope reading is refused by the cancellation; an empty store lists nothing."""

    # deepseek-harness 7
    async def main() -> None:
        async with store:
            assert await store.list() == []
            assert await store.list_snapshots() == []
            async with store.create("s") as session:
                await session.append("x")
            for call in readings(store):
                reached = False
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await call()
                    reached = True
                assert scope.cancelled_caught
                assert not reached
            assert [entry.id for entry in await store.list()] == ["s"]
            assert await data_of(store) == [None]

    run(main)


def test_a_cancelled_task_of_asyncio_gets_its_own_reason(tmp_path: Path) -> None:
    """The cancellation that refuses a reading carries what was said when cancelling."""
    begun: list[object] = []

    # deepseek-harness 7
    async def main() -> None:
        async with perdure.aio.open(tmp_path / "store") as store:
            async with store.create("s") as session:
                await session.append("x")
            store._others.run = begun.append  # type: ignore[method-assign,assignment]
            for call in readings(store):

                async def cancelled(call: Callable[[], Awaitable[Any]] = call) -> None:
                    current = asyncio.current_task()
                    assert current is not None
                    current.cancel("enough")
                    await call()

                with pytest.raises(asyncio.CancelledError) as told:
                    await asyncio.create_task(cancelled())
                assert told.value.args == ("enough",)
            assert begun == []

    asyncio.run(main())


def test_a_call_that_nobody_waits_for_is_not_begun(run: Run) -> None:
    """What stands behind others when its task is cancelled is left out, unless it writes."""
    gate, made, untold = Gate(), list[str](), list[BaseException]()

    def fail() -> None:
        made.append("write")
        raise ValueError

    async def main() -> None:
        pool = Pool("perdure-test", 1)
        pool.run(lambda: gate(""))
        await gate.reached()
        async with anyio.create_task_group() as group:
            for call in (Call(lambda: made.append("read")), Call(fail, untold=untold.append)):
                pool.run(call)
                waiting = await spawn(group, partial(call.wait, pool.run))
                await waiting.cancel()
        gate.open()
        last = Call(lambda: None)
        pool.run(last)
        await last.wait(pool.run)
        assert made == ["write"]
        assert [type(error) for error in untold] == [ValueError]
        pool.close()

    run(main)


def test_times_come_from_the_runtime() -> None:
    """Two runs with the same clock and randomness make the same bytes."""

    async def main() -> list[Any]:
        async with perdure.aio.open("memory:", runtime=Clockwork()) as store:
            async with store.create(cwd="/w") as session:
                await session.append("x")
                await session.append_many([{"type": "y"}, {"type": "z", "time": 5}])
                await session.buffer("x", time=7)
            found = await store.inspect(session.id)
            return [session.id, await found.position]

    assert asyncio.run(main()) == asyncio.run(main())
