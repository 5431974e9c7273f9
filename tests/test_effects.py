"""The ledger of effects: an action runs once, and nobody claims what nobody knows."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import (
    EffectFailed,
    EffectUnknown,
    InvalidValue,
    KeyConflict,
    StorageFull,
    StoreClosed,
)
from perdure.model.limits import KEY_CHARS_MAX
from perdure.store import Session, Store
from perdure.store.effects import EFFECT_NOT_STARTED
from perdure.testing.contract import Clockwork
from tests.media import KEPT, open_medium
from tests.test_store_session import Gated, Once, full

PATIENCE = 60.0


class World:
    """What happened outside: each call is a mark."""

    def __init__(self) -> None:
        self.marks = 0

    def __call__(self) -> int:
        self.marks += 1
        return self.marks

    def failing(self) -> None:
        self()
        raise TimeoutError("too slow")

    def interrupted(self) -> None:
        self()
        raise KeyboardInterrupt


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def store(backend: Gated) -> Store:
    """A store over them."""
    return Store(backend, runtime=Clockwork())


@pytest.fixture
def session(store: Store) -> Session:
    """A session with one event."""
    made = store.create("s")
    made.append("x")
    return made


def told(store: Store) -> list[tuple[str, str | None, Any]]:
    """Return what the log tells of effects."""
    events = store.read_from("s", types={"effect/intent", "effect/outcome"})
    return [(event.type.partition("/")[2], event.key, event.data) for event in events]


# --- once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        (0, 0),
        ("\ud800", "\ud800"),
        ({"a": (1, 2)}, {"a": [1, 2]}),
        (2**200, 2**200),
    ],
    ids=str,
)
def test_an_effect_happens_once(store: Store, session: Session, value: Any, kept: Any) -> None:
    """The first call runs it and gets its value as JSON; every later one gets the same value."""
    runs: list[None] = []

    def action() -> Any:
        runs.append(None)
        return value

    assert session.once("k", action, about={"to": "ann"}, agent="a", turn="t") == kept
    assert session.once("k", action) == kept
    session.close()
    with store.writer("s") as again:
        # Another turn, another run, another thing to say of it: the key counts.
        assert again.once("k", action, about="other", turn="u", retry=True) == kept
    assert len(runs) == 1
    outcome = {"status": "completed"} if value is None else {"status": "completed", "value": kept}
    assert told(store) == [("intent", "k", {"about": {"to": "ann"}}), ("outcome", "k", outcome)]
    events = [*store.read_from("s", 1)]
    assert [(event.agent, event.turn) for event in events] == [("a", "t")] * 2


@pytest.mark.parametrize("location", ["memory:", "none:"])
def test_what_a_caller_does_to_a_value_changes_nothing(location: str) -> None:
    """Each caller gets a value of its own: what one does to it, the next does not see."""
    with perdure.open(location) as store, store.create("s") as session:
        for _ in range(3):
            value = session.once("k", lambda: {"a": [1]})
            assert value == {"a": [1]}
            value["a"].append(2)


def test_the_intent_is_durable_before_the_effect(store: Store, session: Session) -> None:
    """While the action runs, the log says that it is about to happen, and nothing of its end."""
    seen: list[Any] = []
    session.once("k", lambda: seen.extend(told(store)))
    assert seen == [("intent", "k", {})]


@pytest.mark.parametrize("kind", KEPT)
def test_an_effect_is_once_in_every_store(kind: str, tmp_path: Path, world: World) -> None:
    """In every kind of store, a later process and a copy know what has happened."""
    with open_medium(kind, tmp_path) as store:
        with store.create("s") as session:
            assert session.once("k", world) == 1
        store.copy("s", (other := open_medium("raw", tmp_path, "other")))
    with open_medium(kind, tmp_path) as store, store.writer("s") as session:
        assert session.once("k", world) == 1
        assert session.once("other", world) == 2
    with other, other.writer("s") as session:
        assert session.once("k", world) == 1
    assert world.marks == 2


# --- what failed, and what nobody knows -----------------------------------------------------------


def test_a_failure_is_recorded_and_goes_on(store: Store, session: Session, world: World) -> None:
    """The exception comes out; a repeat says that it failed, and `retry` runs it again."""
    with pytest.raises(TimeoutError) as raised:
        session.once("k", world.failing)
    assert not hasattr(raised.value, "__notes__")
    with pytest.raises(EffectFailed) as refused:
        session.once("k", world)
    error = refused.value
    assert (error.session, error.key, error.failure, error.reason) == (
        *("s", "k"),
        *("TimeoutError", "too slow"),
    )
    assert world.marks == 1
    assert session.once("k", world, retry=True) == 2
    assert session.once("k", world) == 2
    assert told(store) == [
        ("intent", "k", {}),
        (
            "outcome",
            "k",
            {"status": "failed", "error": {"code": "TimeoutError", "message": "too slow"}},
        ),
        ("intent", "k (attempt 2)", {}),
        ("outcome", "k (attempt 2)", {"status": "completed", "value": 2}),
    ]


def test_an_interrupted_effect_is_unknown(store: Store, session: Session, world: World) -> None:
    """What an interrupt broke off is never run unasked, in this process and in the next."""
    with pytest.raises(KeyboardInterrupt):
        session.once("k", world.interrupted)
    with pytest.raises(EffectUnknown) as refused:
        session.once("k", world)
    begun_at = [*store.read_from("s")][-1].time
    error = refused.value
    assert (error.session, error.key, error.attempt, error.begun_at) == ("s", "k", 1, begun_at)
    session.close()
    with store.writer("s") as again:
        with pytest.raises(EffectUnknown):
            again.once("k", world)
        with pytest.raises(KeyboardInterrupt):
            again.once("k", world.interrupted, retry=True)
        with pytest.raises(EffectUnknown) as refused:
            again.once("k", world)
        assert refused.value.attempt == 2
        assert again.once("k", world, retry=True) == 3
    assert [key for kind, key, _ in told(store) if kind == "intent"] == [
        *("k", "k (attempt 2)", "k (attempt 3)")
    ]


def test_somebody_who_knows_settles_it(store: Store, session: Session, world: World) -> None:
    """From then on a repeat gets the value, or hears that it failed; saying it twice is fine."""
    for key in ("did", "did-not"):
        with pytest.raises(KeyboardInterrupt):
            session.once(key, world.interrupted, agent="a", turn="t")
    for _ in range(2):
        session.settle_effect("did", value=5)
        session.settle_effect("did-not", failed={"code": "LOST", "message": "never came"})
    assert session.once("did", world) == 5
    with pytest.raises(EffectFailed, match="LOST: never came"):
        session.once("did-not", world)
    with pytest.raises(KeyConflict):
        session.settle_effect("did", value=6)
    assert [(event.agent, event.turn) for event in store.read_from("s", 1)] == [("a", "t")] * 4
    assert world.marks == 2


def test_only_what_was_begun_can_be_settled(store: Store, session: Session) -> None:
    """Nothing can be said of an effect that nobody began, or with a value that is not JSON."""
    with pytest.raises(InvalidValue) as refused:
        session.settle_effect("k", value=1)
    assert refused.value.path == "key"
    with pytest.raises(KeyboardInterrupt):
        session.once("k", World().interrupted)
    with pytest.raises(InvalidValue) as refused:
        session.settle_effect("k", value={"a": b""})
    assert refused.value.path == "value.a"
    assert [kind for kind, _, _ in told(store)] == ["intent"]


def test_an_outcome_of_an_unknown_shape_is_unknown(session: Session, world: World) -> None:
    """An outcome that another program wrote in its own way is not taken for one."""
    session.append("effect/intent", {}, key="k")
    session.append("effect/outcome", "fine", key="k")
    with pytest.raises(EffectUnknown):
        session.once("k", world)
    assert world.marks == 0


# --- values and keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "path"),
    [(b"x", "value"), ({"a": [1, {2}]}, "value.a[1]"), (float("nan"), "value"), ({1: 2}, "value")],
    ids=str,
)
def test_a_value_that_is_not_json_has_happened_all_the_same(
    store: Store, session: Session, value: Any, path: str
) -> None:
    """It is recorded as completed with null, the caller is told, and nobody runs it again."""
    with pytest.raises(InvalidValue) as refused:
        session.once("k", lambda: value)
    assert refused.value.path == path
    assert "the effect has happened" in refused.value.message
    assert session.once("k", pytest.fail) is None
    assert told(store)[1:] == [("outcome", "k", {"status": "completed"})]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"key": ""}, "key"),
        ({"key": 5}, "key"),
        ({"key": "k" * (KEY_CHARS_MAX - 31)}, "key"),
        ({"key": "k (attempt 2)"}, "key"),
        ({"about": {1}}, "about"),
        ({"agent": ""}, "agent"),
        ({"turn": 5}, "turn"),
    ],
)
def test_what_cannot_be_recorded_is_not_done(
    store: Store, session: Session, world: World, options: Any, path: str
) -> None:
    """An effect that the ledger cannot hold is refused by name before anything happens."""
    with pytest.raises(InvalidValue) as refused:
        session.once(**{"key": "k", "action": world, **options})
    assert refused.value.path == path
    assert (world.marks, told(store)) == (0, [])


def test_the_longest_key_leaves_room_for_attempts(session: Session, world: World) -> None:
    """A key of the greatest length can be tried again."""
    key = "k" * (KEY_CHARS_MAX - 32)
    with pytest.raises(TimeoutError):
        session.once(key, world.failing)
    assert session.once(key, world, retry=True) == 2


# --- failures of the medium -----------------------------------------------------------------------


def test_without_a_durable_intent_nothing_happens(
    store: Store, session: Session, backend: Gated, world: World
) -> None:
    """If the intent cannot be stored the action does not run, and nothing is known of it."""
    backend.before = Once(full())
    with pytest.raises(StorageFull):
        session.once("k", world)
    assert (world.marks, told(store)) == (0, [])
    assert session.once("k", world) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_an_outcome_that_is_not_stored_yet_is_held(
    store: Store, session: Session, backend: Gated, world: World, fails: bool
) -> None:
    """The caller hears of the medium, the effect is not repeated, and the next commit has it."""

    def action() -> int:
        backend.before = Once(full(), times=2)
        if fails:
            world.failing()
        return world()

    if fails:
        with pytest.raises(TimeoutError) as raised:
            session.once("k", action)
        assert raised.value.__notes__ == [f"and while recording 'k': {full()}"]
        with pytest.raises(StorageFull):
            session.append("x")
    else:
        for _ in range(2):
            with pytest.raises(StorageFull):
                session.once("k", action)
    assert [kind for kind, _, _ in told(store)] == ["intent"]
    if fails:
        with pytest.raises(EffectFailed):
            session.once("k", action)
        session.flush()
    else:
        assert session.once("k", action) == 1
    assert [kind for kind, _, _ in told(store)] == ["intent", "outcome"]
    assert world.marks == 1


# --- side by side ---------------------------------------------------------------------------------


def test_the_second_of_two_threads_waits_for_the_first(session: Session, world: World) -> None:
    """Whoever comes while the action runs gets its outcome; other keys do not wait."""
    running, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        running.set()
        assert go_on.wait(PATIENCE)
        return world()

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(session.once, "k", slow)
        assert running.wait(PATIENCE)
        others = [pool.submit(session.once, "k", world) for _ in range(6)]
        assert session.once("other", lambda: "done") == "done"
        assert not any(each.done() for each in (first, *others))
        go_on.set()
        assert [each.result(PATIENCE) for each in (first, *others)] == [1] * 7
    assert session._desk.gates._gates == {}


def test_an_effect_within_itself_is_unknown(session: Session, world: World) -> None:
    """An action that asks for its own effect is told that nobody knows, instead of waiting."""

    def action() -> Any:
        for retry in (False, True):
            with pytest.raises(EffectUnknown):
                session.once("k", world, retry=retry)
        return session.once("within", world)

    assert session.once("k", action) == 1


def test_many_threads_do_many_things_once(session: Session) -> None:
    """Under contention each key runs once, and all who asked agree on its value."""
    runs: list[str] = []

    def run(key: str) -> int:
        runs.append(key)
        return len(runs)

    def ask(number: int) -> tuple[str, Any]:
        key = f"k{number % 7}"
        return key, session.once(key, partial(run, key))

    with ThreadPoolExecutor(8) as pool:
        values = set(pool.map(ask, range(140)))
    assert sorted(runs) == [f"k{number}" for number in range(7)]
    assert len(values) == 7


def test_a_closed_store_runs_nothing(store: Store, session: Session, world: World) -> None:
    """After closing, neither a new effect runs nor is an old one looked up."""
    session.once("k", world)
    session.close()
    store.close()
    for key in ("k", "other"):
        with pytest.raises(perdure.errors.SessionClosed):
            session.once(key, world)
    with pytest.raises(StoreClosed):
        store.writer("s")
    assert world.marks == 1


def test_a_signal_handler_in_a_commit_is_refused(session: Session, backend: Gated) -> None:
    """Whoever interrupts a commit to run an effect hears that it is busy, and nothing runs."""
    caught: list[type[BaseException]] = []

    def interrupt() -> None:
        backend.before = lambda: None
        try:
            session.once("k", pytest.fail)
        except perdure.errors.SessionBusy as busy:
            caught.append(type(busy))

    backend.before = interrupt
    session.append("x")
    assert caught == [perdure.errors.SessionBusy]


def test_a_fork_inherits_what_has_happened(tmp_path: Path, world: World) -> None:
    """What was done before the fork point is known to the child; what came later is not."""
    with perdure.open(tmp_path / "store") as store:
        with store.create("s") as session:
            session.once("before", world)
            at = session.position.seq
            session.once("behind", world)
        with store.fork("s", at, new_id="t") as child:
            assert child.once("before", world) == 1
            assert child.once("behind", world) == 3


ACTIONS: list[Callable[[World], Callable[[], Any]]] = [
    lambda world: world.failing,
    lambda world: world.interrupted,
]


@pytest.mark.parametrize("action", ACTIONS, ids=["failed", "unknown"])
def test_retry_may_fail_again(
    session: Session, world: World, action: Callable[[World], Callable[[], Any]]
) -> None:
    """Each attempt is counted, and the last one decides."""
    for _ in range(3):
        with pytest.raises((TimeoutError, KeyboardInterrupt)):
            session.once("k", action(world), retry=True)
    with pytest.raises((EffectFailed, EffectUnknown)):
        session.once("k", world)
    assert world.marks == 3


class Caller:
    """An object whose calls are coroutines."""

    async def __call__(self) -> str:
        return "sent"


async def _send() -> str:
    return "sent"


def _generate() -> Iterator[int]:
    yield 1


async def _generate_for_tasks() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "action",
    [_send, partial(_send), Caller(), _generate, _generate_for_tasks, 5, None, "send"],
    ids=str,
)
def test_what_cannot_happen_by_a_call_is_refused(session: Session, action: Any) -> None:
    """What a call does not do, as a coroutine function, is refused before anything is recorded."""
    before = session.position
    with pytest.raises(InvalidValue) as refused:
        session.once("k", action)
    assert refused.value.path == "action"
    assert session.position == before
    assert session.once("k", lambda: 5) == 5


def test_a_coroutine_that_is_returned_has_not_happened(store: Store, session: Session) -> None:
    """An awaitable is no value: a coroutine has not begun and may, of others nobody knows."""
    with pytest.raises(InvalidValue, match="has to be awaited"):
        session.once("k", [_send()].pop)
    outcome = [*store.read_from("s")][-1]
    assert outcome.data["status"] == "failed"
    assert outcome.data["error"]["code"] == EFFECT_NOT_STARTED
    assert session.once("k", lambda: "sent") == "sent"

    loop = asyncio.new_event_loop()
    try:
        begun = loop.create_future()
        with pytest.raises(InvalidValue, match="has to be awaited"):
            session.once("other", lambda: begun)
    finally:
        loop.close()
    with pytest.raises(EffectUnknown):
        session.once("other", int)
    assert all(
        event.data["status"] != "completed" or event.key == "k (attempt 2)"
        for event in store.read_from("s", types={"effect/outcome"})
    )


def test_the_key_alone_says_which_effect_it_is(store: Store, session: Session) -> None:
    """`about` is a note: another one with the same key is the same effect, and is not kept."""
    assert session.once("k", lambda: 1, about={"to": "a"}) == 1
    assert session.once("k", lambda: 2, about={"to": "b"}) == 1
    assert [event.data for event in store.read_from("s", types={"effect/intent"})] == [
        {"about": {"to": "a"}}
    ]


@pytest.mark.parametrize("attempt", [1, 2])
def test_an_outcome_without_its_intent_still_counts(tmp_path: Path, attempt: int) -> None:
    """Where damage left the outcome of an effect and not its intent, it does not happen again."""
    name = "pay" if attempt == 1 else f"pay (attempt {attempt})"
    with perdure.open(tmp_path / "store") as store, store.create("s") as session:
        session.append("effect/outcome", {"status": "completed", "value": "paid"}, key=name)
        happened: list[int] = []
        assert session.once("pay", lambda: happened.append(1)) == "paid"
        assert happened == []
