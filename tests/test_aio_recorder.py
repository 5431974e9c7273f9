"""The recorder for tasks: the same turns, effects and outputs, whoever cancels them."""

import asyncio
import gc
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import perdure
import perdure.aio
from perdure.aio.output import AsyncOutputRecorder
from perdure.aio.session import AsyncSession
from perdure.aio.steps import AsyncStep, AsyncTurn
from perdure.aio.store import AsyncStore
from perdure.errors import (
    EffectFailed,
    EffectUnknown,
    InvalidValue,
    KeyConflict,
    PerdureError,
    SessionClosed,
    StorageFull,
)
from perdure.model import limits
from perdure.model.vocabulary import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN
from perdure.store import Store
from perdure.store.output import OutputRecorder
from perdure.store.turns import Step, Turn
from tests.test_aio import LOOPS, PATIENCE, Gate, Gated, Run, Spawned, parameters, run_in, spawn


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine function under each event loop."""
    return lambda main: run_in(request.param, main)


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def blocking(backend: Gated) -> Store:
    """The store below."""
    return Store(backend)


@pytest.fixture
def store(blocking: Store) -> AsyncStore:
    """A store over them."""
    return AsyncStore(blocking)


async def opened(store: AsyncStore) -> AsyncSession:
    """Return a session with one event."""
    session = await store.create("s")
    session.record_run()
    await session.flush()
    return session


def kinds(blocking: Store) -> list[str]:
    """Return the types of what is stored behind the first event."""
    return [event.type for event in blocking.read_from("s", 1)]


def of_type(blocking: Store, kind: str) -> list[Any]:
    return [event.data for event in blocking.read_from("s", types={kind})]


def call(id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": id, "name": "t", "arguments": {}}


class Full:
    """Fails so many commits."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    def __call__(self, _text: str) -> None:
        if self.left:
            self.left -= 1
            raise StorageFull("medium", "No space left")


@pytest.mark.parametrize(
    ("twin", "original"),
    [(AsyncTurn, Turn), (AsyncStep, Step), (AsyncOutputRecorder, OutputRecorder)],
)
def test_twins_have_the_same_names_and_parameters(twin: type, original: type) -> None:
    """Whoever knows the blocking recorder knows this one."""
    public = {name for kind in original.__mro__[:-1] for name in vars(kind) if name[0] != "_"}
    for name in public:
        theirs, mine = (inspect.getattr_static(each, name) for each in (original, twin))
        if inspect.isfunction(theirs):
            assert parameters(mine) == parameters(theirs), name


# --- turns ----------------------------------------------------------------------------------------


def test_a_turn_is_recorded_in_the_order_of_the_calls(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """What is said stands in the log in order, awaited or not; what is awaited is durable."""

    async def main() -> None:
        async with store.create("s") as session:
            async with session.turn("t1", agent="a") as turn:
                turn.user("why?")
                async with turn.step() as step:
                    await step.request({"model": "m"})
                    assert kinds(blocking)[-1] == "request/header"
                    step.delta("Let me ")
                    step.delta("look.")
                    step.message([call("c1"), call("c2")])
                    await step.call("c1", "t")
                    assert kinds(blocking)[-1] == "tool/call"
                    step.result("c1", "done")
                    await step.call("c2", "t", nested=True)
                    step.result("c2", "done", error=ValueError("x"))
                assert kinds(blocking)[-1] == "step/end"
                step = turn.next_step()
                await turn.append("acme/note", 1)
                turn.buffer("acme/note", 2)
            assert kinds(blocking)[-1] == "turn/end"
            assert session.run
        assert [event.type for event in blocking.read_from("s")] == [
            *("session/started", "turn/start", "user/message", "step/start", "request/header"),
            *("assistant/delta", "assistant/delta", "assistant/message"),
            *("tool/call", "tool/result", "tool/call", "tool/result", "step/end"),
            *("step/start", "acme/note", "acme/note", "step/end", "turn/end"),
        ]
        assert {(e.agent, e.turn) for e in blocking.read_from("s", 1)} == {("a", "t1")}

    run(main)


def test_without_a_context_a_turn_is_ended_by_hand(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """`end` takes its place in the log at the call, and is durable when it was awaited."""

    async def main() -> None:
        session = await opened(store)
        turn = session.turn("t")
        step = turn.step()
        step.message([call("c")])
        ended = step.end()
        late = turn.end("blocked", {"code": "E", "message": "m"})
        assert not turn.open
        await late
        await ended
        assert kinds(blocking) == [
            *("turn/start", "step/start", "assistant/message", "step/end"),
            *("tool/result", "turn/end"),
        ]
        with pytest.raises(InvalidValue, match="turn 't' of session 's' has ended"):
            await turn.end()
        with pytest.raises(InvalidValue, match="has ended"):
            await turn.user("x")
        with pytest.raises(InvalidValue, match="has ended"):
            async with turn.step():
                pass
        with pytest.raises(InvalidValue, match="reason"):
            await session.turn().end("no reason")
        await session.close()

    run(main)


def test_an_error_ends_a_turn(run: Run, store: AsyncStore, blocking: Store) -> None:
    """The exception goes on, calls are answered, and the turn says why it ended."""

    async def main() -> None:
        session = await opened(store)

        async def loop() -> None:
            async with session.turn() as turn, turn.step() as step:
                step.message([call("c1"), call("c2")])
                await step.call("c1", "t")
                raise ValueError("mine")

        with pytest.raises(ValueError, match="mine") as raised:
            await loop()
        assert not hasattr(raised.value, "__notes__")
        answers = [each["error"]["code"] for each in of_type(blocking, "tool/result")]
        assert answers == [TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED]
        assert of_type(blocking, "turn/end") == [
            {"reason": "error", "error": {"code": "ValueError", "message": "mine"}}
        ]
        await session.close()

    run(main)


def test_a_cancelled_turn_is_closed_before_the_task_ends(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """However often it is cancelled, also while its end is stored, the turn ends as aborted."""

    async def main() -> None:
        session = await opened(store)
        running = anyio.Event()

        async def loop() -> None:
            async with session.turn() as turn, turn.step() as step:
                step.message([call("c1")])
                await step.call("c1", "t")
                running.set()
                await anyio.sleep_forever()

        gate = Gate("step/end")
        backend.before = gate
        async with anyio.create_task_group() as tasks:
            task = await spawn(tasks, loop)
            await running.wait()
            task.scope.cancel()
            await gate.reached()
            task.scope.cancel()
            gate.open()
            await task.done()
        assert task.cancelled
        assert kinds(blocking)[-3:] == ["tool/result", "step/end", "turn/end"]
        assert of_type(blocking, "turn/end") == [{"reason": "aborted"}]
        await session.close()

    run(main)


def test_a_task_that_is_thrown_away_leaves_its_turn_closed(
    store: AsyncStore, blocking: Store
) -> None:
    """A coroutine that nobody finishes ends its turn without waiting; closing stores it."""

    async def main() -> None:
        session = await opened(store)

        async def loop() -> None:
            async with session.turn("t"):
                await asyncio.Event().wait()

        begun = loop()
        begun.send(None)
        begun.close()
        await session.close()
        assert kinds(blocking) == ["turn/start", "turn/end"]
        assert of_type(blocking, "turn/end") == [{"reason": "aborted"}]

    run_in("asyncio", main)


def test_a_storage_failure_at_the_end_hides_nothing(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """The user's exception comes with the storage error behind it; the end is stored later."""

    async def main() -> None:
        session = await opened(store)

        async def loop(error: Exception | None) -> None:
            async with session.turn("t") as turn:
                await turn.append("acme/note")
                backend.before = Full()
                if error is not None:
                    raise error

        with pytest.raises(ValueError, match="mine") as raised:
            await loop(ValueError("mine"))
        assert "while ending turn 't'" in raised.value.__notes__[0]
        await session.flush()
        assert kinds(blocking)[-1] == "turn/end"
        with pytest.raises(StorageFull):
            await loop(None)
        await session.close()
        assert kinds(blocking).count("turn/end") == 2

    run(main)


def test_a_call_that_was_not_stored_was_not_started(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """If awaiting the call fails, the tool must not run, and its answer says that it did not."""

    async def main() -> None:
        session = await opened(store)
        async with session.turn() as turn, turn.step() as step:
            await step.message([call("c")])
            await session.flush()
            backend.before = Full()
            with pytest.raises(StorageFull):
                await step.call("c", "t")
        (answer,) = of_type(blocking, "tool/result")
        assert answer["error"]["code"] == TOOL_NOT_STARTED
        assert of_type(blocking, "tool/call") == []
        await session.close()

    run(main)


def test_what_is_refused_and_not_awaited_is_told_later(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """A call never raises; a refusal that nobody awaits is raised by the next one that is."""

    async def main() -> None:
        session = await opened(store)
        async with session.turn() as turn, turn.step() as step:
            refused = step.delta(5)  # type: ignore[arg-type]
            with pytest.raises(InvalidValue):
                await refused
            step.delta(None)  # type: ignore[arg-type]
            gc.collect()
            with pytest.raises(InvalidValue):
                await step.request({})
            await step.request({})
        turn = session.turn(parent=5)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            await turn.user("x")
        with pytest.raises(InvalidValue):
            async with turn:
                pass
        with pytest.raises(InvalidValue):
            await session.set_state("k", b"")
        await session.close()
        assert kinds(blocking).count("turn/start") == 1

    run(main)


def test_what_was_lost_in_a_turn_is_told_at_its_end(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """Leaving a turn raises what nobody awaited, and the turn is closed all the same."""

    async def main() -> None:
        session = await opened(store)

        async def loop() -> None:
            async with session.turn() as turn:
                turn.user(5)  # type: ignore[arg-type]
                gc.collect()

        with pytest.raises(InvalidValue):
            await loop()
        await session.close()
        assert kinds(blocking) == ["turn/start", "turn/end"]

    run(main)


BAD: list[tuple[str, Callable[[AsyncStep], Any]]] = [
    ("no JSON", lambda step: step.request({"x": object()})),
    ("no name", lambda step: step.call("c", None)),  # type: ignore[arg-type]
    ("too large", lambda step: step.call("c", "t", "x" * (limits.DATA_BYTES_MAX + 1))),
]


@pytest.mark.filterwarnings("ignore:step.* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("held", [False, True], ids=["dropped", "held"])
@pytest.mark.parametrize("ending", ["step", "turn", "flush", "close"])
@pytest.mark.parametrize("bad", [each for _, each in BAD], ids=[name for name, _ in BAD])
def test_a_refusal_that_nobody_awaits_is_told(
    store: AsyncStore,
    blocking: Store,
    ending: str,
    bad: Callable[[AsyncStep], Any],
    held: bool,
) -> None:
    """Thrown away or kept in a variable: the end of the step, turn or session tells of it."""

    async def main() -> None:
        session = await opened(store)
        turn = session.turn()
        step = turn.step()
        kept: list[Any] = []
        gc.disable()
        try:
            if held:
                kept.append(bad(step))
            else:
                bad(step)
            ends = {"step": step.end, "turn": turn.end, "flush": session.flush}
            with pytest.raises(InvalidValue):
                await ends.get(ending, session.close)()
        finally:
            gc.enable()
        await session.close()
        assert of_type(blocking, "tool/call") == of_type(blocking, "request/header") == []
        # Nothing answers a call that is not in the log.
        assert of_type(blocking, "tool/result") == []

    run_in("asyncio", main)


@pytest.mark.filterwarnings("ignore:step.* was never awaited:RuntimeWarning")
def test_a_call_that_is_thrown_away_and_refused_is_told_by_the_next(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """The next call that is awaited says so, before anything later is recorded."""

    async def main() -> None:
        session = await opened(store)
        gc.disable()
        try:
            async with session.turn() as turn, turn.step() as step:
                step.call("c", "t", {1: 2})
                step.result("c", "done")
                with pytest.raises(InvalidValue) as told:
                    await step.request({})
                assert told.value.path.startswith("arguments")
                await step.request({})
                step.call("c", "t", {1: 2})
                with pytest.raises(InvalidValue):
                    await session.append("acme/x")
        finally:
            gc.enable()
        await session.close()
        assert of_type(blocking, "tool/result") == []
        assert len(of_type(blocking, "request/header")) == 1

    run(main)


def test_a_storage_failure_that_nobody_awaits_is_told(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """A request that is held and was not stored is told of at the end of its turn."""

    async def main() -> None:
        session = await opened(store)
        turn, other = session.turn(), session.turn(agent="b")
        step = turn.step()
        await session.flush()
        backend.before = Full()
        held = step.request({})
        while not held.failed:
            await anyio.lowlevel.checkpoint()
        # Somebody else's turn has nothing to do with it.
        await other.end()
        with pytest.raises(StorageFull):
            await turn.end()
        await session.close()
        with pytest.raises(StorageFull):
            await held
        assert of_type(blocking, "request/header") == []

    run(main)


def test_what_must_be_awaited_warns_as_a_coroutine_does(run: Run, store: AsyncStore) -> None:
    """A request or call that nobody awaits warns; what may be left alone does not."""

    async def main() -> None:
        session = await opened(store)
        async with session.turn() as turn, turn.step() as step:
            turn.user("hello")
            step.call("c", "t", nested=True)
            await step.request({})
            assert "await it" in repr(turn.user("more"))
            forgotten: list[tuple[str, Callable[[], object]]] = [
                ("request", lambda: step.request({})),
                ("call", lambda: step.call("d", "t")),
            ]
            for name, say in forgotten:
                with pytest.warns(RuntimeWarning, match=f"step.{name} was never awaited"):
                    say()
        await session.close()

    run(main)


@pytest.mark.parametrize("name", ["parent", "replaces"])
def test_a_turn_behind_one_that_was_never_there_is_refused(
    run: Run, store: AsyncStore, blocking: Store, name: str
) -> None:
    """Where the turn is entered, before anything of it is in the log; what is there is found."""

    async def main() -> None:
        async with store.create("s") as session:
            with pytest.raises(InvalidValue) as refused:
                async with session.turn("t", **{name: "nobody"}) as turn:
                    turn.user("x")
            assert refused.value.path == name
            assert session.position.seq == -1
            async with session.turn("one") as turn:
                turn.user("x")
            async with session.turn("two", **{name: "one"}) as turn:
                turn.user("y")
                turn.user("z")
            lost = session.turn("three", **{name: "nobody"})
            # Also what is said at once, before anybody could know, is not in the log.
            lost.user("x")
            with pytest.raises(InvalidValue, match="nobody"):
                await lost.end()
            with pytest.raises(InvalidValue, match="nobody"):
                await lost.user("y")
            assert [each.turn for each in await session.branches()] == ["one", "two"]
            for _ in range(2):
                with suppress(InvalidValue):
                    await session.flush()
        assert [event.type for event in blocking.read_from("s")] == [
            *("session/started", "turn/start", "user/message", "turn/end"),
            *("turn/start", "user/message", "user/message", "turn/end"),
        ]

    run(main)


def test_what_is_queued_counts_at_once(run: Run, store: AsyncStore) -> None:
    """Views are asked behind all that was queued before, durable or not."""

    async def main() -> None:
        session = await opened(store)
        turn = session.turn("t")
        turn.user("hello")
        assert [each["role"] for each in await session.messages()] == ["user"]
        session.start_job("j")
        session.update_job("j", "half")
        assert (await session.state).jobs["j"].output == "half"
        await turn.end()
        await session.close()

    run(main)


def test_statements_are_checked_as_of_the_blocking_session(run: Run, store: AsyncStore) -> None:
    """What never began cannot end, and what an agent never said cannot be compacted."""

    async def main() -> None:
        session = await opened(store)
        async with session.turn(agent="a") as turn:
            turn.user("x")
        refused: list[tuple[str, Callable[[], Awaitable[Any]]]] = [
            ("id", lambda: session.end_job("j")),
            ("id", lambda: session.end_subagent("j")),
            ("agent", lambda: session.compact_context("x")),
            ("summary", lambda: session.compact_context(b"", agent="a")),  # type: ignore[arg-type]
            ("first_kept", lambda: session.compact_context("x", first_kept=99, agent="a")),
            ("result", lambda: session.end_job("j", result=b"")),
            ("error", lambda: session.end_job("j", error=5)),  # type: ignore[arg-type]
            ("value", lambda: session.set_state("k", b"")),
        ]
        before = session.position
        for path, say in refused:
            with pytest.raises(InvalidValue) as wrong:
                await say()
            assert wrong.value.path == path
        session.end_job("j")
        with pytest.raises(InvalidValue):
            await session.flush()
        assert session.position == before
        await session.start_job("j")
        result = [1]
        ended = session.end_job("j", "failed", result=result, error=ValueError("x"))
        result.append(2)
        assert (await ended).data["result"] == [1]
        await session.close()

    run(main)


def test_a_turn_that_is_refused_records_nothing(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """What a turn cannot begin with is refused before anything is said: no session appears."""

    async def main() -> None:
        async with store.create("new") as session:
            for wrong in ({"id": "x" * 5000}, {"agent": ""}, {"how": 5}):
                with pytest.raises(InvalidValue):
                    async with session.turn(**wrong):
                        pass
        assert all(each.id != "new" for each in blocking.list())
        async with store.create("new") as session, session.turn("t"):
            pass
        first, *_ = blocking.read_from("new")
        assert first.type == "session/started"

    run(main)


def test_a_closed_session_takes_no_turn(run: Run, store: AsyncStore) -> None:
    """After closing, a turn is refused where it is entered, and an open one where it is left."""

    async def main() -> None:
        session = await opened(store)
        with pytest.raises(SessionClosed):
            async with session.turn():
                await session.close()
        with pytest.raises(SessionClosed):
            async with session.turn():
                pass
        with pytest.raises(SessionClosed):
            await session.once("k", int)

    run(main)


def test_statements_are_events(run: Run, store: AsyncStore, blocking: Store) -> None:
    """Each statement of a session can be awaited, and is durable then."""

    async def main() -> None:
        session = await opened(store)
        for say in (
            session.set_title("x"),
            session.rewind(None),
            session.compact_context("short"),
            session.set_state("k", 1),
            session.delete_state("k"),
            session.set_trigger("g", "timer"),
            session.fire_trigger("g"),
            session.clear_trigger("g"),
            session.send("plan", "x", sender="a"),
            session.start_job("j"),
            session.update_job("j", 1),
            session.report_usage(input=1),
            session.end_job("j"),
        ):
            await say
        assert session.position.seq == 13
        assert len(kinds(blocking)) == 13
        await session.record_run("session/resumed")
        await session.close()
        assert of_type(blocking, "session/resumed")[0]["run"] == session.run

    run(main)


# --- effects --------------------------------------------------------------------------------------


def test_an_effect_happens_once(run: Run, store: AsyncStore, blocking: Store) -> None:
    """Functions and coroutine functions run once; failures and unknown ends are told."""

    async def main() -> None:
        session = await opened(store)
        marks: list[str] = []

        async def awaited() -> tuple[int, int]:
            await anyio.lowlevel.checkpoint()
            marks.append("awaited")
            return 1, 2

        async def failing() -> None:
            marks.append("failing")
            raise TimeoutError("slow")

        for _ in range(2):
            assert await session.once("a", awaited, about="x", agent="g", turn="t") == [1, 2]
            assert await session.once("b", lambda: marks.append("plain")) is None
        with pytest.raises(TimeoutError):
            await session.once("c", failing)
        with pytest.raises(EffectFailed, match="slow"):
            await session.once("c", failing)
        assert await session.once("c", lambda: 5, retry=True) == 5
        with pytest.raises(InvalidValue, match="has happened"):
            await session.once("d", lambda: {1})
        assert await session.once("d", pytest.fail) is None
        with pytest.raises(InvalidValue):
            await session.once("k (attempt 2)", pytest.fail)
        with pytest.raises(InvalidValue):
            await session.once("k", pytest.fail, about={1})
        assert marks == ["awaited", "plain", "failing"]
        await session.close()
        assert keys(blocking, "effect/intent") == ["a", "b", "c", "c (attempt 2)", "d"]

    run(main)


def keys(blocking: Store, kind: str) -> list[str | None]:
    return [event.key for event in blocking.read_from("s", types={kind})]


def test_a_cancelled_effect_is_unknown_until_it_is_settled(
    run: Run, store: AsyncStore, blocking: Store
) -> None:
    """What a cancellation broke off is not repeated, unless somebody says so."""

    async def main() -> None:
        session = await opened(store)

        async def forever(begun: anyio.Event) -> None:
            begun.set()
            await anyio.sleep_forever()

        for key in ("k", "l"):
            begun = anyio.Event()
            async with anyio.create_task_group() as tasks:
                action = partial(forever, begun)
                task = await spawn(tasks, partial(session.once, key, action))
                await begun.wait()
                await task.cancel()
            with pytest.raises(EffectUnknown):
                await session.once(key, pytest.fail)
        await session.settle_effect("k", 5)
        assert await session.once("k", pytest.fail) == 5
        with pytest.raises(KeyConflict):
            await session.settle_effect("k", failed={"code": "E", "message": "m"})
        with pytest.raises(InvalidValue):
            await session.settle_effect("m", 1)
        assert await session.once("l", lambda: 6, retry=True) == 6
        await session.close()
        assert keys(blocking, "effect/intent") == ["k", "l", "l (attempt 2)"]

    run(main)


def test_an_effect_that_was_cancelled_before_it_began_may_begin(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """If the task is cancelled while the intent is stored, the log says that nothing was done."""

    async def main() -> None:
        session = await opened(store)
        gate = Gate("effect/intent")
        backend.before = gate
        async with anyio.create_task_group() as tasks:
            task = await spawn(tasks, lambda: session.once("k", pytest.fail))
            await gate.reached()
            task.scope.cancel()
            await task.done()
            gate.open()
        assert await session.once("k", lambda: 5) == 5
        await session.close()
        assert keys(blocking, "effect/intent") == ["k", "k (attempt 2)"]
        assert of_type(blocking, "effect/outcome")[0]["error"]["code"] == "EFFECT_NOT_STARTED"

    run(main)


def test_an_outcome_is_stored_whoever_is_cancelled(
    run: Run, store: AsyncStore, backend: Gated
) -> None:
    """A task that is cancelled while the outcome is stored waits for it; a repeat has the value."""

    async def main() -> None:
        session = await opened(store)
        gate = Gate("effect/outcome")
        backend.before = gate
        async with anyio.create_task_group() as tasks:
            task = await spawn(tasks, lambda: session.once("k", lambda: 5))
            await gate.reached()
            task.scope.cancel()
            gate.open()
            await task.done()
        assert task.cancelled or task.value == 5
        assert await session.once("k", pytest.fail) == 5
        await session.close()

    run(main)


def test_an_outcome_that_is_not_stored_yet_is_held(
    run: Run, store: AsyncStore, blocking: Store, backend: Gated
) -> None:
    """The caller hears of the medium, nothing is repeated, and the next commit has the outcome."""

    async def main() -> None:
        session = await opened(store)

        def action() -> int:
            backend.before = Full(2)
            return 5

        for _ in range(2):
            with pytest.raises(StorageFull):
                await session.once("k", action)
        assert await session.once("k", pytest.fail) == 5
        backend.before = Full()
        with pytest.raises(StorageFull):
            await session.once("l", pytest.fail)
        assert await session.once("l", lambda: 6) == 6
        await session.close()
        assert kinds(blocking) == ["effect/intent", "effect/outcome"] * 2

    run(main)


def test_the_second_of_two_tasks_waits_for_the_first(run: Run, store: AsyncStore) -> None:
    """Whoever comes while the action runs gets its outcome; other keys do not wait."""

    async def main() -> None:
        session = await opened(store)
        begun, go_on = anyio.Event(), anyio.Event()
        marks: list[int] = []

        async def slow() -> int:
            begun.set()
            await go_on.wait()
            marks.append(1)
            return len(marks)

        async with anyio.create_task_group() as tasks:
            spawned = [await spawn(tasks, lambda: session.once("k", slow)) for _ in range(8)]
            await begun.wait()
            assert await session.once("other", lambda: "done") == "done"
            go_on.set()
            for task in spawned:
                await task.done()
        assert [task.value for task in spawned] == [1] * 8
        assert session._gates._works == {}
        await session.close()

    run(main)


def test_a_waiting_task_may_be_cancelled(run: Run, store: AsyncStore) -> None:
    """Cancelling one who waits changes nothing for the first and for the others."""

    async def main() -> None:
        session = await opened(store)
        begun, go_on = anyio.Event(), anyio.Event()

        async def slow() -> int:
            begun.set()
            await go_on.wait()
            return 5

        async with anyio.create_task_group() as tasks:
            first = await spawn(tasks, lambda: session.once("k", slow))
            await begun.wait()
            second = await spawn(tasks, lambda: session.once("k", slow))
            third = await spawn(tasks, lambda: session.once("k", slow))
            await anyio.wait_all_tasks_blocked()
            second.scope.cancel()
            await second.done()
            go_on.set()
            for task in (first, third):
                await task.done()
        assert (first.value, second.cancelled, third.value) == (5, True, 5)
        await session.close()

    run(main)


def test_an_effect_within_itself_is_unknown(run: Run, store: AsyncStore) -> None:
    """An action that asks for its own effect, itself or by a task of its own, does not wait."""

    async def main() -> None:
        session = await opened(store)
        refused: list[Spawned] = []

        async def action() -> Any:
            with pytest.raises(EffectUnknown):
                await session.once("k", pytest.fail, retry=True)
            async with anyio.create_task_group() as tasks:
                refused.append(await spawn(tasks, lambda: session.once("k", pytest.fail)))
                await refused[0].done()
            return await session.once("within", lambda: 1)

        assert await session.once("k", action) == 1
        assert isinstance(refused[0].error, EffectUnknown)
        assert await session.once("k", pytest.fail) == 1
        await session.close()

    run(main)


def test_tasks_of_several_loops_share_an_effect(store: AsyncStore) -> None:
    """One session serves event loops in several threads: each key runs once."""
    session = asyncio.run(opened(store))
    marks: list[int] = []

    async def ask() -> list[Any]:
        async def action(number: int) -> int:
            await anyio.lowlevel.checkpoint()
            marks.append(number)
            return number

        return [await session.once(f"k{n}", partial(action, n)) for n in range(10)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: asyncio.run(ask()), range(4), timeout=PATIENCE))
    assert found == [[*range(10)]] * 4
    assert sorted(marks) == [*range(10)]
    asyncio.run(session.close())


def test_persistence_off_runs_everything(run: Run) -> None:
    """With `none:` the same loop runs."""

    async def main() -> None:
        async with perdure.aio.open("none:") as store, store.create("s") as session:
            async with session.turn() as turn, turn.step() as step:
                await step.request({})
                await step.call("c", "t")
            assert [await session.once("k", lambda: 5) for _ in range(2)] == [5, 5]

    run(main)


# --- the output recorder --------------------------------------------------------------------------


def test_a_loop_tells_what_happens(run: Run, store: AsyncStore, blocking: Store) -> None:
    """What a loop tells its outputs becomes turns and steps; only checkpoints are awaited."""

    async def main() -> None:
        session = await opened(store)
        output = AsyncOutputRecorder(session, agent="a")
        output.on_turn_start("t1")
        output.on_user("why?")
        await output.on_request({"model": "m"})
        assert kinds(blocking)[-1] == "request/header"
        output.on_text("Let me look.")
        output.on_message([call("c1")])
        await output("tool-call", id="c1", name="t")
        output.on_tool_result("c1", "done")
        output("progress", percent=5)
        await output.on_turn_end()
        assert kinds(blocking) == [
            *("turn/start", "user/message", "step/start", "request/header", "assistant/delta"),
            *("assistant/message", "tool/call", "tool/result", "output/progress"),
            *("step/end", "turn/end"),
        ]
        assert output.failures == ()
        await session.close()

    run(main)


def test_checkpoints_raise_and_nothing_else_does(
    run: Run, store: AsyncStore, backend: Gated
) -> None:
    """A request that cannot be recorded raises, as does what was lost before; the rest is kept."""

    async def main() -> None:
        session = await opened(store)
        output = AsyncOutputRecorder(session)
        await output.on_user(5)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue):
            await output.on_request({})
        backend.before = Full()
        with pytest.raises(StorageFull):
            await output.on_request({})
        await output.on_request({})
        with pytest.raises(InvalidValue):
            await output("tool-call", name="t")
        assert [type(each) for each in output.failures] == [InvalidValue, StorageFull, InvalidValue]
        lenient = AsyncOutputRecorder(session, agent="b", strict=False)
        said: list[Awaitable[None]] = [
            lenient.on_tool_call(5, "t"),  # type: ignore[arg-type]
            lenient("request"),
            lenient.on_turn_end("no reason"),
        ]
        for each in said:
            await each
        assert len(lenient.failures) == 3
        await output.on_turn_end()
        await session.close()

    run(main)


ERRORS: list[Callable[[AsyncSession], Awaitable[Any]]] = [
    lambda session: session.once("", int),
    lambda session: session.settle_effect("", 1),
]


@pytest.mark.parametrize("wrong", ERRORS, ids=["once", "settle"])
def test_errors_are_raised_where_they_are_awaited(
    run: Run, store: AsyncStore, wrong: Callable[[AsyncSession], Awaitable[Any]]
) -> None:
    """A wrong key is told by awaiting, not by the call."""

    async def main() -> None:
        session = await opened(store)
        awaited = wrong(session)
        with pytest.raises(PerdureError):
            await awaited
        await session.close()

    run(main)
