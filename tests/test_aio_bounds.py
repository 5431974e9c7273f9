"""Tasks beside stalled sources, signal handlers, namespaces, and stores that are closed."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import perdure
import perdure.aio
from perdure import errors
from perdure.aio import AsyncSession, AsyncStore
from perdure.errors import SessionClosed, SessionNotFound

PATIENCE = 60.0
LONG = 10.0
Main = Callable[[AsyncStore], Awaitable[None]]


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], None]:
    """Run a test's tasks with a store, under each event loop."""

    def start(main: Main) -> None:
        async def within() -> None:
            async with perdure.aio.open(tmp_path / "store") as store:
                await main(store)

        if request.param == "asyncio":
            asyncio.run(within())
        else:
            trio.run(within)

    return start


class Stalled:
    """A source of content that does not go on before the test lets it; never for ever."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self.waited_in_vain = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"1"
        self.reached.set()
        self.waited_in_vain = not self.go.wait(LONG)
        yield b"2"


class Putting:
    """A put that another thread, with a loop of its own, waits for."""

    def __init__(self, session: AsyncSession, source: Any) -> None:
        self.error: BaseException | None = None
        self._session = session
        self._source = source
        self._thread = threading.Thread(target=lambda: asyncio.run(self._put()), daemon=True)
        self._thread.start()

    async def _put(self) -> None:
        try:
            await self._session.put_blob(self._source)
        except errors.PerdureError as error:
            self.error = error

    def join(self) -> BaseException | None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("ending", ["session", "store", "context"])
@pytest.mark.parametrize("begun", [False, True])
def test_a_stalled_source_holds_no_close_up(
    run: Callable[[Main], None], tmp_path: Path, ending: str, *, begun: bool
) -> None:
    """Closing is done while a source of content is stalled, and whoever put it is told."""
    source, puts = Stalled(), []

    async def main(store: AsyncStore) -> None:
        session = await store.create("s")
        if begun:
            await session.append("x")
        puts.append(Putting(session, source))
        assert source.reached.wait(PATIENCE)
        if ending == "context":
            async with session:
                pass
        else:
            await (session.close() if ending == "session" else store.close())
        assert not source.go.is_set()
        assert not source.waited_in_vain
        source.go.set()
        assert isinstance(puts[0].join(), SessionClosed)

    run(main)
    root = tmp_path / "store"
    assert [path for path in root.rglob("*") if path.is_file() and "blobs" in path.parts] == []
    assert [*(root / "new").iterdir()] == []
    with perdure.open(root) as store:
        assert [entry.id for entry in store.list()] == (["s"] if begun else [])


def test_a_stalled_source_holds_no_other_call_up(run: Callable[[Main], None]) -> None:
    """While content is waited for, the session goes on appending, and stores it in the end."""
    source = Stalled()

    async def main(store: AsyncStore) -> None:
        session = await store.create("s")
        await session.append("x", 0)
        putting = Putting(session, source)
        assert source.reached.wait(PATIENCE)
        for number in range(1, 4):
            assert (await session.append("x", number)).seq == number
        await session.flush()
        assert not source.waited_in_vain
        source.go.set()
        assert putting.join() is None
        assert [blob.size for blob in await store.blobs("s")] == [2]
        await session.close()

    run(main)


APPENDING_IN_A_HANDLER = """
import asyncio, signal, sys, perdure, perdure.aio
from perdure.errors import PerdureError

async def main():
    async with perdure.aio.open(sys.argv[1]) as store:
        session = await store.create("s")
        await session.append("x", 0)
        admit, begun, fired = session._session.admit, [], []

        def handler(*_):
            begun.append(session.append("x", "from the handler"))

        def interrupted(*given, **options):
            if not fired:
                fired.append(True)
                signal.raise_signal(signal.SIGUSR1)
            return admit(*given, **options)

        signal.signal(signal.SIGUSR1, handler)
        session._session.admit = interrupted
        await session.append("x", 1)
        (late,) = begun
        stored = True
        try:
            await late
        except PerdureError as error:
            assert error.reentered, error
            stored = False
        await session.append("x", 2)
        await session.close()
        found = [event.data async for event in store.read_from("s")]
        assert [data for data in found if isinstance(data, int)] == [0, 1, 2], found
        assert ("from the handler" in found) == stored, found
        assert (await store.verify("s")).status == "ok"

asyncio.run(main())
"""

APPENDING_AT_EACH_STEP = """
import asyncio, signal, sys, perdure, perdure.aio
from perdure.errors import PerdureError

WATCHED = ("perdure/aio/session", "perdure/aio/threads", "perdure/store/committer")

def at(place, act):
    left = [place]

    def trace(frame, event, _):
        if not any(part in frame.f_code.co_filename for part in WATCHED):
            return None
        if frame.f_code.co_name in ("__del__", "_forget"):
            return None
        if event in ("call", "return"):
            left[0] -= 1
            if left[0] == 0:
                act()
        return trace

    return trace

async def main():
    place, interrupted = 0, True
    while interrupted:
        place += 1
        interrupted = False
        async with perdure.aio.open("memory:") as store:
            session = await store.create("s")
            await session.append("x", 0)
            begun = []

            def handler(*_):
                begun.append(session.append("x", "from the handler"))

            signal.signal(signal.SIGUSR1, handler)
            sys.settrace(at(place, lambda: signal.raise_signal(signal.SIGUSR1)))
            own = session.append("x", 1)
            sys.settrace(None)
            await own
            stored = 0
            for late in begun:
                interrupted = True
                try:
                    await late
                    stored += 1
                except PerdureError as error:
                    assert error.reentered, error
            await session.append("x", 2)
            await session.close()
            found = [event.data async for event in store.read_from("s")]
            assert [data for data in found if isinstance(data, int)] == [0, 1, 2], (place, found)
            assert found.count("from the handler") == stored, (place, found)
    assert place > 10, place

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [APPENDING_IN_A_HANDLER, APPENDING_AT_EACH_STEP])
def test_a_signal_handler_appends_in_the_middle_of_an_append(tmp_path: Path, program: str) -> None:
    """A handler that appends to the session that its thread appends to is done or told."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_namespace_is_used_again_by_tasks(run: Callable[[Main], None]) -> None:
    """Leaving the context of a namespace closes what is open in it, and nothing for good."""
    opened: list[AsyncSession] = []

    async def main(store: AsyncStore) -> None:
        async with store.namespace("a") as below:
            session = await below.create("s")
            session.buffer("x", 0)
        assert session.closed
        for number in (1, 2):
            async with store.namespace("a") as again, again.writer("s") as session:
                assert (await session.append("x", number)).seq == number
        async with store.namespace("a", "b") as deep, deep.create("s") as session:
            await session.append("x", "deep")
        await store.namespace("a").close()
        deep = store.namespace("a", "b")
        assert [event.data async for event in deep.read_from("s")] == ["deep"]
        opened.append(await deep.writer("s"))
        opened[0].buffer("x", "late")
        assert [event.data async for event in store.namespace("a").read_from("s")] == [0, 1, 2]

    run(main)
    assert opened[0].closed


def test_a_closed_store_says_so_to_tasks(run: Callable[[Main], None], tmp_path: Path) -> None:
    """After the close, whatever would write is refused with that, and names no session."""
    calls: list[Callable[[AsyncStore], Awaitable[object]]] = [
        lambda store: store.create(),
        lambda store: store.create("some-new-id"),
        lambda store: store.writer("some-id"),
        lambda store: store.writer("some-id", wait=1),
        lambda store: store.load("some-id"),
        lambda store: store.prepare("some-id"),
        lambda store: store.append("some-id", [{"type": "x"}]),
        lambda store: store.expire("some-id"),
        lambda store: store.compact("some-id", wait=1),
        lambda store: store.archive("some-id"),
        lambda store: store.unarchive("some-id"),
        lambda store: store.delete("some-id"),
        lambda store: store.restore("some-id"),
        lambda store: store.empty_trash(),
        lambda store: store.accept("some-id", wait=1),
        lambda store: store.forget("some-id"),
    ]

    async def main(store: AsyncStore) -> None:
        tenant = store.namespace("a")
        for each in (store, tenant):
            async with each.create("some-id") as session:
                await session.append("x")
        await store.close()
        for number, call in enumerate(calls):
            for closed in (store, tenant):
                with pytest.raises(errors.StoreClosed) as told:
                    await call(closed)
                assert isinstance(told.value, SessionClosed), number
                assert "session" not in str(told.value), number
                assert "some-id" not in str(told.value), number
        with pytest.raises(errors.StoreClosed):
            store.namespace("b")

    run(main)
    with perdure.open(tmp_path / "store") as store:
        assert [entry.id for entry in store.list()] == ["some-id"]
        assert store.trash() == []


def test_tasks_archive_an_open_session(run: Callable[[Main], None]) -> None:
    """A session archives itself, and its store does it also while the session is open there."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            await session.append("x")
            assert (await session.archive()).type == "session/archived"
            assert (await session.unarchive()).type == "session/unarchived"
            assert (await store.archive("s")).type == "session/archived"
            assert (await store.unarchive("s")).seq == 4
            assert (await session.append("x")).seq == 5
        assert (await store.archive("s")).seq == 6
        with pytest.raises(SessionNotFound):
            await store.archive("nobody")
        assert (await store.verify("s")).status == "ok"

    run(main)


def test_tasks_ask_what_would_expire_beside_a_writer(run: Callable[[Main], None]) -> None:
    """A dry run needs no lock for tasks either."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            digest = await session.put_blob(b"value")
            await session.append("x", {"blob": digest})
            report = await store.expire("s", keep_last=0, dry_run=True)
            assert [blob.digest for blob in report.expired] == [digest]
            assert await store.blob("s", digest) == b"value"

    run(main)


def test_tasks_ask_for_the_state_of_evidence(run: Callable[[Main], None], tmp_path: Path) -> None:
    """Whether evidence can be read is told to tasks as well."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            await session.append("x")
        assert await store.evidence() == perdure.EvidenceState(None, ())
        assert (await store.verify("s")).evidence is None
        store._store._witness.push()
        (tmp_path / "store" / "evidence.sqlite").write_bytes(b"no database at all" * 300)
        assert isinstance((await store.evidence()).unreadable, str)
        assert isinstance((await store.verify("s")).evidence, str)
        async with store.writer("s") as session:
            await session.append("x")
        state = await store.evidence()
        assert (state.unreadable, len(state.set_aside)) == (None, 1)

    run(main)


def test_tasks_learn_when_a_session_was_deleted(run: Callable[[Main], None]) -> None:
    """Asking for a session that was purged tells when it was deleted."""

    async def main(store: AsyncStore) -> None:
        async with store.create("s") as session:
            await session.append("x")
        gone = await store.delete("s")
        await store.empty_trash()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.inspect("s"),
            lambda: store.writer("s"),
            lambda: store.writer("s", wait=1),
            lambda: store.load("s"),
            lambda: store.blobs("s"),
            lambda: store.delete("s"),
            lambda: store.verify("s"),
        ]
        for number, call in enumerate(calls):
            with pytest.raises(SessionNotFound) as missing:
                await call()
            assert missing.value.deleted_at == gone.deleted_at, number
        with pytest.raises(SessionNotFound) as missing:
            [event async for event in store.read_from("s")]
        assert missing.value.deleted_at == gone.deleted_at

    run(main)
