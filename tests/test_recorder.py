"""The recorder: what is durable when, and how turns and steps end, whatever happens in them."""

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.errors import (
    InvalidValue,
    SessionClosed,
    StaleWriter,
    StorageFull,
    StorageUnavailable,
)
from perdure.model.vocabulary import PAYLOADS, TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN, Error
from perdure.store import Session, Store
from perdure.store.turns import Turn
from perdure.testing.contract import Clockwork
from tests.test_store_session import Gated, Once, full

PATIENCE = 60.0


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
    """A new session."""
    return store.create("s")


def kinds(store: Store) -> list[str]:
    """Return the types of what is stored."""
    return [event.type for event in store.read_from("s")]


def of_type(store: Store, kind: str) -> list[perdure.Event]:
    return [event for event in store.read_from("s") if event.type == kind]


def call(name: str, id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": id, "name": name, "arguments": {}}


def errors(store: Store) -> dict[str, str | None]:
    """Return the code of the error that each call was answered with."""
    return {
        event.data["id"]: event.data.get("error", {}).get("code")
        for event in of_type(store, "tool/result")
    }


# --- a turn -------------------------------------------------------------------------------------


def test_a_turn_is_the_events_of_the_vocabulary(store: Store, session: Session) -> None:
    """What is said in a turn stands in the log in its order, with agent and turn, and fits."""
    with session.turn("t1", agent="a") as turn:
        turn.user("why?")
        with turn.step() as step:
            step.request({"model": "m"}, reason="new")
            step.delta("Hm", kind="thinking")
            step.delta("Let me ", index=1)
            step.message(
                [{"type": "text", "text": "Let me look."}, call("bash", "c1")],
                model="m",
                response="r1",
                usage={"input": 5},
            )
            step.call("c1", "bash", {"cmd": "ls"})
            step.result("c1", "a file")
        turn.append("acme/note", 5)
        with turn.step() as step:
            step.request({"model": "m"})
            step.message("A file.")

    events = [*store.read_from("s")]
    assert [(event.type, event.data) for event in events[1:]] == [
        ("turn/start", {}),
        ("user/message", {"content": [{"type": "text", "text": "why?"}]}),
        ("step/start", {"step": 1}),
        ("request/header", {"header": {"model": "m"}, "reason": "new"}),
        ("assistant/delta", {"text": "Hm", "kind": "thinking"}),
        ("assistant/delta", {"text": "Let me ", "index": 1}),
        (
            "assistant/message",
            {
                "content": [{"type": "text", "text": "Let me look."}, call("bash", "c1")],
                "model": "m",
                "response": "r1",
                "usage": {"input": 5},
            },
        ),
        ("tool/call", {"id": "c1", "name": "bash", "arguments": {"cmd": "ls"}}),
        ("tool/result", {"id": "c1", "content": [{"type": "text", "text": "a file"}]}),
        ("step/end", {"step": 1}),
        ("acme/note", 5),
        ("step/start", {"step": 2}),
        ("request/header", {"header": {"model": "m"}}),
        ("assistant/message", {"content": [{"type": "text", "text": "A file."}]}),
        ("step/end", {"step": 2}),
        ("turn/end", {"reason": "completed"}),
    ]
    assert {(event.agent, event.turn) for event in events[1:]} == {("a", "t1")}
    for event in events:
        if event.type in PAYLOADS:
            msgspec.convert(event.data, PAYLOADS[event.type])


def test_the_first_turn_says_who_began(store: Store) -> None:
    """A new session begins with the run, once; a session that has events does not."""
    with store.create("s") as session:
        for _ in range(2):
            with session.turn():
                pass
        run = session.run
    with store.writer("s") as session:
        assert session.run != run
        with session.turn():
            pass
    first, *others = store.read_from("s")
    assert first.type == "session/started"
    assert first.data == {"run": run, "host": socket.gethostname(), "pid": os.getpid()}
    assert [event.type for event in others] == ["turn/start", "turn/end"] * 3
    with store.create("t") as session:
        session.append("x")
        with session.turn():
            pass
    assert [event.type for event in store.read_from("t")] == [
        *("x", "session/started", "turn/start", "turn/end")
    ]
    with store.writer("t") as session, session.turn():
        pass
    with store.resume("t") as session, session.turn():
        pass
    assert [event.type for event in store.read_from("t", 4)] == [
        *("turn/start", "turn/end", "session/resumed", "turn/start", "turn/end")
    ]
    with store.create("u") as session:
        session.set_state("k", 1)
        session.record_run()
        with session.turn():
            pass
    assert [event.type for event in store.read_from("u")] == [
        *("state/set", "session/started", "turn/start", "turn/end")
    ]


def test_a_turn_that_is_refused_records_nothing(store: Store) -> None:
    """What a turn cannot begin with is refused before anything is said: no session appears."""
    with store.create("new") as session:
        for wrong in (
            {"id": "x" * 5000},
            {"agent": ""},
            {"how": 5},
            {"parent": "nobody"},
            {"replaces": "nobody"},
        ):
            with pytest.raises(InvalidValue):
                session.turn(**wrong)
        assert session.position.seq == -1
    assert [each.id for each in store.list() if each.id == "new"] == []
    with store.create("new") as session, session.turn("t"):
        pass
    assert [event.type for event in store.read_from("new")] == [
        "session/started",
        "turn/start",
        "turn/end",
    ]


def test_a_rewind_is_of_an_agent_that_is_there(store: Store) -> None:
    """Where only others have said anything, a rewind of nobody is refused and nothing written."""
    with store.create("new") as session:
        with session.turn("t1", agent="coder") as turn:
            turn.user("hello")
        before = session.position
        for to in (None, "t1"):
            with pytest.raises(InvalidValue):
                session.rewind(to)
        assert session.position == before
        assert len(session.messages()) == 1
        session.rewind(None, agent="coder")
        assert session.messages() == []
        back = session.rewind("t1", agent="coder")
        assert (back.type, back.agent, back.data) == ("context/rewound", "coder", {"to": "t1"})
        assert len(session.messages()) == 1


def test_turns_have_ids_and_say_where_they_belong(store: Store, session: Session) -> None:
    """Ids come from the runtime, all different; what a turn follows or replaces is in its start."""
    with session.turn() as one, session.turn(agent="b") as other:
        assert one.id != other.id
    with session.turn("x", parent=one.id):
        pass
    with session.turn("y", replaces="x", how="edit"):
        pass
    starts = {event.turn: event.data for event in of_type(store, "turn/start")}
    assert starts == {
        one.id: {},
        other.id: {},
        "x": {"parent": one.id},
        "y": {"replaces": "x", "how": "edit"},
    }


def test_without_a_context_a_turn_and_its_steps_are_ended_by_hand(
    store: Store, session: Session
) -> None:
    """`end` closes what a context would have closed, and leaving a context later adds nothing."""
    turn = session.turn("t")
    step = turn.step()
    assert (step.number, step.open, turn.open) == (1, True, True)
    step.end()
    with turn, turn.next_step() as step:
        turn.end("max-tokens")
        assert (step.open, turn.open) == (False, False)
        assert "ended" in repr(turn)
        assert "ended" in repr(step)
    assert kinds(store)[1:] == [
        *("turn/start", "step/start", "step/end", "step/start", "step/end", "turn/end")
    ]
    assert of_type(store, "turn/end")[0].data == {"reason": "max-tokens"}


def test_two_sides_may_work_in_one_turn(store: Store, session: Session) -> None:
    """Tools that run side by side record in one step, each call and each result once."""
    ids = [f"c{number}" for number in range(40)]
    with session.turn() as turn, turn.step() as step:
        step.message([call("t", id) for id in ids])

        def tool(id: str) -> None:
            step.call(id, "t")
            step.result(id, id)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(tool, ids))
    assert sorted(errors(store)) == sorted(ids)
    assert set(errors(store).values()) == {None}
    assert len(of_type(store, "tool/result")) == len(ids)


# --- what is durable when ------------------------------------------------------------------------

CHECKPOINTS: list[tuple[str, Callable[[Turn], object]]] = [
    ("request/header", lambda turn: turn.step().request({})),
    ("tool/call", lambda turn: turn.step().call("c", "t")),
    ("step/end", lambda turn: turn.step().end()),
    ("turn/end", lambda turn: turn.end()),
]


@pytest.mark.parametrize(("kind", "reach"), CHECKPOINTS, ids=[kind for kind, _ in CHECKPOINTS])
def test_checkpoints_are_durable_when_they_return(
    store: Store, session: Session, kind: str, reach: Callable[[Turn], object]
) -> None:
    """Request, call, end of a step and of a turn are stored with all before them, not later."""
    turn = session.turn()
    turn.user("hi")
    reach(turn)
    assert kinds(store)[-1] == kind
    assert "user/message" in kinds(store)


def test_what_needs_no_waiting_waits_for_the_next_checkpoint(
    session: Session, backend: Gated
) -> None:
    """Deltas, messages, results and nested calls make no commit of their own."""
    with session.turn() as turn, turn.step() as step:
        step.request({})
        before = len(backend.sizes)
        for _ in range(5):
            step.delta("x")
        step.message([call("t", "c")])
        step.call("n", "t", nested=True)
        step.result("n", "x")
        assert len(backend.sizes) <= before + 1  # the background may have come by
        step.call("c", "t")
        step.result("c", "x")
    assert sum(backend.sizes[before:]) == 12


@pytest.mark.parametrize("at", ["request", "call"])
def test_what_cannot_be_recorded_does_not_happen(
    store: Store, session: Session, backend: Gated, at: str
) -> None:
    """A request or a call that is not durable raises, so that neither model nor tool is called."""
    called: list[str] = []

    def loop() -> None:
        with session.turn() as turn, turn.step() as step:
            step.message([call("t", "c")])
            session.flush()
            backend.before = Once(full())
            if at == "request":
                step.request({})
            else:
                step.call("c", "t")
            called.append(at)

    with pytest.raises(StorageFull):
        loop()
    assert called == []
    assert kinds(store)[-3:] == ["tool/result", "step/end", "turn/end"]
    assert errors(store) == {"c": TOOL_NOT_STARTED}
    assert of_type(store, "turn/end")[0].data["error"]["code"] == "storage-full"


# --- endings -------------------------------------------------------------------------------------


class Cancelled(BaseException):
    """As frameworks have them."""


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("no"), {"reason": "error", "error": {"code": "ValueError", "message": "no"}}),
        (
            ExceptionGroup("two", [ValueError("no")]),
            {
                "reason": "error",
                "error": {"code": "ExceptionGroup", "message": "two (1 sub-exception)"},
            },
        ),
        (
            InvalidValue("data", "no"),
            {"reason": "error", "error": {"code": "invalid-value", "message": "data: no"}},
        ),
        (KeyboardInterrupt(), {"reason": "aborted"}),
        (GeneratorExit(), {"reason": "aborted"}),
        (SystemExit(), {"reason": "aborted"}),
        (Cancelled(), {"reason": "aborted"}),
        (BaseExceptionGroup("", [Cancelled()]), {"reason": "aborted"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_exception_ends_the_turn_and_goes_on(
    store: Store, session: Session, error: BaseException, end: dict[str, Any]
) -> None:
    """Each open call is answered as far as it got, then step and turn end with the reason."""

    def loop() -> None:
        with session.turn() as turn, turn.step() as step:
            step.message([call("t", "c1"), call("t", "c2"), call("t", "c3")])
            step.call("c1", "t")
            step.call("c2", "t")
            step.result("c1", "done")
            step.call("n", "t", nested=True)
            raise error

    with pytest.raises(type(error)) as raised:
        loop()
    assert raised.value is error
    assert kinds(store)[-5:] == [*["tool/result"] * 3, "step/end", "turn/end"]
    assert errors(store) == {
        "c1": None,
        "c2": TOOL_OUTCOME_UNKNOWN,
        "c3": TOOL_NOT_STARTED,
        "n": TOOL_OUTCOME_UNKNOWN,
    }
    assert of_type(store, "turn/end")[0].data == end
    assert store.inspect("s").closers == []


def test_a_turn_goes_on_behind_a_step_that_failed(store: Store, session: Session) -> None:
    """A step that an exception ends answers its calls; the next step may try again."""

    def fail(turn: Turn) -> None:
        with turn.step() as step:
            step.message([call("t", "c1")])
            raise TimeoutError

    with session.turn() as turn:
        with pytest.raises(TimeoutError):
            fail(turn)
        with turn.step() as step:
            step.message([call("t", "c1")])
            step.call("c1", "t")
            step.result("c1", "done")
    assert [event.data.get("error", {}).get("code") for event in of_type(store, "tool/result")] == [
        TOOL_NOT_STARTED,
        None,
    ]
    assert [event.data for event in of_type(store, "step/end")] == [{"step": 1}, {"step": 2}]
    assert of_type(store, "turn/end")[0].data == {"reason": "completed"}


def test_calls_may_be_answered_after_their_step(store: Store, session: Session) -> None:
    """A result that comes late is taken while the turn lasts; its end answers what is left."""
    with session.turn() as turn:
        with turn.step() as first:
            first.message([call("t", "c1"), call("t", "c2")])
            first.call("c1", "t")
        first.result("c1", "late", error=Error(code="E", message="odd"))
    assert errors(store) == {"c1": "E", "c2": TOOL_NOT_STARTED}


def test_what_has_ended_takes_nothing_more(store: Store, session: Session) -> None:
    """Saying something in a step or turn that has ended is refused in plain words."""
    with session.turn("t") as turn:
        step = turn.step()
        with pytest.raises(InvalidValue, match="step 1 of turn 't' is open"):
            turn.step()
        step.end()
        late: Callable[[], object]
        for late in (
            lambda: step.request({}),
            lambda: step.delta("x"),
            lambda: step.message("x"),
            lambda: step.call("c", "t"),
            step.end,
        ):
            with pytest.raises(InvalidValue, match="step 1 of turn 't' has ended"):
                late()
    before = kinds(store)
    for late in (
        lambda: turn.user("x"),
        lambda: turn.append("x"),
        lambda: turn.buffer("x"),
        lambda: step.result("c", "x"),
        lambda: step.message("x"),
        turn.step,
        turn.end,
    ):
        with pytest.raises(InvalidValue, match="turn 't' of session 's' has ended"):
            late()
    session.flush()
    assert kinds(store) == before


class Mute(Exception):
    """Cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "a Mute that cannot say more"),
        (ValueError("x" * 100_000), "x" * 8192 + "…"),
        (ValueError("\ud83d\ude00\ud800"), "\U0001f600\ufffd"),
    ],
    ids=["mute", "long", "surrogates"],
)
def test_any_exception_can_be_recorded(
    store: Store, session: Session, error: Exception, message: str
) -> None:
    """Whatever message an exception has, the turn that it ends is recorded."""
    with pytest.raises(type(error)), session.turn():
        raise error
    assert of_type(store, "turn/end")[0].data["error"]["message"] == message


def test_a_storage_failure_at_the_end_hides_nothing(
    store: Store, session: Session, backend: Gated
) -> None:
    """The user's exception comes out with the storage error behind it; the end is stored later."""

    def loop() -> None:
        with session.turn("t") as turn:
            turn.step().request({})
            backend.before = Once(full(), times=2)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as raised:
        loop()
    assert raised.value.__notes__ == [f"and while ending turn 't': {full()}"]
    assert isinstance(raised.value.__context__, StorageFull)
    assert kinds(store)[-1] == "request/header"
    with pytest.raises(StorageFull):
        session.flush()
    session.close()
    assert kinds(store)[-2:] == ["step/end", "turn/end"]


def test_a_clean_end_that_is_not_stored_raises(
    store: Store, session: Session, backend: Gated
) -> None:
    """Leaving a turn that could not be stored raises; it stays accepted, the next commit has it."""
    turn = session.turn()
    session.flush()
    backend.before = Once(full())
    with pytest.raises(StorageFull):
        turn.end()
    with pytest.raises(InvalidValue, match="has ended"):
        turn.end()
    session.flush()
    assert kinds(store)[-1] == "turn/end"


def test_a_dead_writer_leaves_the_end_to_recovery(
    store: Store, session: Session, backend: Gated
) -> None:
    """Whoever lost the session in a turn hears of that first; recovery closes what is stored."""
    session.turn("t").step()
    session.flush()
    backend.before = Once(StaleWriter("s", "somebody wrote"))
    with pytest.raises(StaleWriter) as raised, session.turn("u"):
        session.append("x")
    assert raised.value.__notes__[0].startswith(
        "and while ending turn 'u': session 's': it stopped"
    )
    assert [event.type for event in store.inspect("s").closers] == ["step/end", "turn/end"]


def test_a_request_that_failed_once_may_be_repeated(
    store: Store, session: Session, backend: Gated
) -> None:
    """A failure of the medium that passes leaves the step open, and nothing of the request."""
    with session.turn() as turn, turn.step() as step:
        backend.before = Once(StorageUnavailable("medium", "EIO"))
        with pytest.raises(StorageUnavailable):
            step.request({"try": 1})
        step.request({"try": 2})
    assert [event.data["header"] for event in of_type(store, "request/header")] == [{"try": 2}]


def test_a_session_that_was_closed_says_so(session: Session) -> None:
    """A turn whose session was closed inside it raises that, unless something else ends it."""
    with pytest.raises(SessionClosed), session.turn():
        session.close()
    with pytest.raises(SessionClosed):
        session.turn()


def test_persistence_off_runs_everything() -> None:
    """With `none:` the same loop runs, and says the same about what was misused."""
    with perdure.open("none:") as store, store.create("s") as session:
        with session.turn() as turn, turn.step() as step:
            turn.user("x")
            step.request({})
            step.message([call("t", "c")])
            step.call("c", "t")
        with pytest.raises(InvalidValue):
            turn.user("x")
        session.set_state("a", 1)
        ran: list[int] = []
        assert [session.once("k", lambda: ran.append(1)) for _ in range(2)] == [None, None]
        assert ran == [1]


# --- what is refused ----------------------------------------------------------------------------

REFUSED: list[tuple[str, Callable[[Session, Turn], object]]] = [
    ("content", lambda _, turn: turn.user(5)),  # type: ignore[arg-type]
    ("content[0].type", lambda _, turn: turn.user([{}, 5])),  # type: ignore[list-item]
    ("content[1]", lambda _, turn: turn.user([{"type": "a"}, 5])),  # type: ignore[list-item]
    ("content[0].x", lambda _, turn: turn.user([{"type": "a", "x": b""}])),
    ("content[0].type", lambda _, turn: turn.user([{"type": "input_text", "text": "x"}])),
    ("content", lambda _, turn: turn.user({"text": "x"})),  # type: ignore[arg-type]
    ("content", lambda _, turn: turn.step().message(None)),  # type: ignore[arg-type]
    ("content[0].type", lambda _, turn: turn.step().message([{"text": "x"}])),
    ("content[0].type", lambda _, turn: turn.step().message([{"type": "tool_use", "id": "c"}])),
    ("content[0].type", lambda _, turn: turn.step().message([{"type": "function_call"}])),
    ("content[0].type", lambda _, turn: turn.step().message([{"type": "tool-result"}])),
    ("content[0].id", lambda _, turn: turn.step().message([{"type": "tool-call", "name": "t"}])),
    ("content[0].id", lambda _, turn: turn.step().message([call("t", "")])),
    ("content[0].name", lambda _, turn: turn.step().message([call("", "c")])),
    ("usage", lambda _, turn: turn.step().message("x", usage=5)),  # type: ignore[arg-type]
    ("usage.x", lambda _, turn: turn.step().message("x", usage={"x": b""})),
    ("content", lambda _, turn: turn.step().result("c", b"")),
    ("content.x[0]", lambda _, turn: turn.step().result("c", {"x": [float("nan")]})),
    ("id", lambda _, turn: turn.step().call(5, "t")),  # type: ignore[arg-type]
    ("name", lambda _, turn: turn.step().call("c", None)),  # type: ignore[arg-type]
    ("arguments.x", lambda _, turn: turn.step().call("c", "t", {"x": {1}})),
    ("error", lambda _, turn: turn.step().result("c", "x", error={"code": "x"})),
    ("text", lambda _, turn: turn.step().delta(None)),  # type: ignore[arg-type]
    ("header.x", lambda _, turn: turn.step().request({"x": object()})),
    ("reason", lambda _, turn: turn.end("interrupted")),
    ("error.code", lambda _, turn: turn.end("error", {"code": 1, "message": ""})),
    ("turn", lambda session, _: session.turn("")),
    ("agent", lambda session, _: session.turn(agent=5)),  # type: ignore[arg-type]
    ("parent", lambda session, _: session.turn(parent=5)),  # type: ignore[arg-type]
    ("how", lambda session, _: session.turn(replaces="t", how="again")),
    ("parent", lambda session, _: session.turn(parent="t", replaces="t")),
    ("value", lambda session, _: session.set_state("k", float("nan"))),
    ("key", lambda session, _: session.set_state(5, 1)),  # type: ignore[arg-type]
    ("to", lambda session, _: session.rewind(5)),  # type: ignore[arg-type]
    ("type", lambda session, _: session.record_run("run")),  # type: ignore[arg-type]
    ("input", lambda session, _: session.report_usage(input=-1)),
    ("status", lambda session, _: session.end_job("j", "interrupted")),
    ("status", lambda session, _: session.end_job("j", "done")),
    ("id", lambda session, _: session.end_job("j")),
    ("summary[0].type", lambda session, _: session.compact_context([{"type": "output_text"}])),
    ("first_kept", lambda session, _: session.compact_context("x", first_kept=99)),
    ("first_kept", lambda session, _: session.compact_context("x", first_kept=-1)),
    ("agent", lambda session, _: session.compact_context("x", agent="nobody")),
    ("summary", lambda session, _: session.compact_context(None)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("path", "say"), REFUSED, ids=[path for path, _ in REFUSED])
def test_what_does_not_fit_is_refused_by_name(
    store: Store, session: Session, path: str, say: Callable[[Session, Turn], object]
) -> None:
    """A value of the wrong kind is refused with the path to it, and nothing is recorded of it."""
    turn = session.turn("t")
    with pytest.raises(InvalidValue) as refused:
        say(session, turn)
    assert refused.value.path == path
    turn.end()
    told = [kind for kind in kinds(store) if kind not in ("session/started", "step/start")]
    assert told in (["turn/start", "turn/end"], ["turn/start", "step/end", "turn/end"])


@pytest.mark.parametrize(
    ("answer", "blocks"),
    [
        ("text", [{"type": "text", "text": "text"}]),
        ({"b": 1, "a": "é"}, [{"type": "text", "text": '{"b": 1, "a": "é"}'}]),
        ([1, {"type": "text"}], [{"type": "text", "text": '[1, {"type": "text"}]'}]),
        ([{"name": "x"}], [{"type": "text", "text": '[{"name": "x"}]'}]),
        (None, [{"type": "text", "text": "null"}]),
        (0.5, [{"type": "text", "text": "0.5"}]),
        (False, [{"type": "text", "text": "false"}]),
        ("\ud800", [{"type": "text", "text": "\ud800"}]),
        (["\ud800"], [{"type": "text", "text": '["\ud800"]'}]),
        ([{"type": "acme/x", "n": 1}], [{"type": "acme/x", "n": 1}]),
        ([], []),
    ],
)
def test_whatever_a_tool_answers_is_kept(
    store: Store, session: Session, answer: Any, blocks: Any
) -> None:
    """The tool has run: text, blocks or any other JSON, its answer is kept as blocks."""
    with session.turn() as turn, turn.step() as step:
        step.message([call("t", "c")])
        step.call("c", "t")
        step.result("c", answer)
    (event,) = of_type(store, "tool/result")
    assert event.data == {"id": "c", "content": blocks}


def test_a_refusal_says_how_it_is_done(session: Session) -> None:
    """Who gives a dict, or a provider's block, is told what to give instead."""
    turn = session.turn()
    with pytest.raises(InvalidValue, match=r"json\.dumps"):
        turn.user({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match='"type": "tool-call", "id"'):
        turn.step().message([{"type": "tool_use", "id": "c", "name": "t", "input": {}}])


def test_no_result_lands_behind_the_end_of_its_turn(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn that ends while a result is on its way ends behind it, or refuses it."""
    turn = session.turn("t")
    buffer = type(session).buffer
    under_way, ended = threading.Event(), threading.Event()

    def slow(self: Session, kind: str, *rest: Any, **options: Any) -> Any:
        if kind == "tool/result":
            under_way.set()
            # Time for the end to come in between, which it must not.
            ended.wait(0.3)
        return buffer(self, kind, *rest, **options)

    monkeypatch.setattr(Session, "buffer", slow)
    step = turn.step()
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(step.result, "c", "done")
        assert under_way.wait(PATIENCE)
        turn.end()
        ended.set()
        assert result.result(PATIENCE).seq < session.position.seq
    assert [*store.read_from(session.id)][-1].type == "turn/end"


def test_a_callers_value_is_taken_at_the_call(store: Store, session: Session) -> None:
    """What the caller changes afterwards, nothing of the log has it."""
    arguments = {"a": [1]}
    with session.turn() as turn, turn.step() as step:
        step.call("c", "t", arguments, nested=True)
        arguments["a"].append(2)
    assert of_type(store, "tool/call")[0].data["arguments"] == {"a": [1]}


# --- statements ---------------------------------------------------------------------------------

STATEMENTS: list[tuple[Callable[[Session], perdure.Event], str, Any]] = [
    (lambda s: s.set_title("Tests"), "session/titled", {"title": "Tests"}),
    (lambda s: s.rewind(None, agent="a", reason="no"), "context/rewound", {"reason": "no"}),
    (
        lambda s: s.compact_context("short", first_kept=7, before=9, after=1, agent="a"),
        "context/compacted",
        {
            "summary": [{"type": "text", "text": "short"}],
            "first_kept": 7,
            "before": 9,
            "after": 1,
        },
    ),
    (lambda s: s.set_state("k", None, agent="a"), "state/set", {"key": "k", "value": None}),
    (
        lambda s: s.set_state("k", 0, scope="counters", agent="a"),
        "state/set",
        {"key": "k", "value": 0, "scope": "counters"},
    ),
    (lambda s: s.delete_state("k", agent="a"), "state/deleted", {"key": "k"}),
    (lambda s: s.delete_state(scope="settings", agent="a"), "state/deleted", {"scope": "settings"}),
    (
        lambda s: s.set_trigger("x", "timer", {"at": 5}, agent="a"),
        "trigger/set",
        {"id": "x", "kind": "timer", "state": {"at": 5}},
    ),
    (lambda s: s.clear_trigger("x", agent="a"), "trigger/cleared", {"id": "x"}),
    (
        lambda s: s.fire_trigger("x", "now", state=6, agent="a"),
        "trigger/fired",
        {"id": "x", "content": "now", "state": 6},
    ),
    (
        lambda s: s.send("plan", {"n": 1}, sender="a", id="m", agent="a"),
        "channel/message",
        {"channel": "plan", "sender": "a", "content": {"n": 1}, "id": "m"},
    ),
    (
        lambda s: s.start_job("j", kind="shell", name="make", arguments=[1], agent="a", turn="t"),
        "job/start",
        {"id": "j", "kind": "shell", "name": "make", "arguments": [1]},
    ),
    (lambda s: s.update_job("j", "50 %", agent="a"), "job/update", {"id": "j", "output": "50 %"}),
    (
        lambda s: s.end_job("j", result=0, agent="a"),
        "job/end",
        {"id": "j", "status": "completed", "result": 0},
    ),
    (
        lambda s: s.end_job("j", "failed", error=OSError("x"), agent="a"),
        "job/end",
        {"id": "j", "status": "failed", "error": {"code": "OSError", "message": "x"}},
    ),
    (
        lambda s: s.report_usage(response="r", model="m", input=1, cost=0.5, agent="a"),
        "usage",
        {"response": "r", "model": "m", "input": 1, "cost": 0.5},
    ),
]


@pytest.mark.parametrize(("say", "kind", "data"), STATEMENTS, ids=[k for _, k, _ in STATEMENTS])
def test_a_statement_is_one_event(
    store: Store,
    session: Session,
    say: Callable[[Session], perdure.Event],
    kind: str,
    data: Any,
) -> None:
    """Each says its event with the members that were given; durable, unless it is a stream."""
    for number in range(8):
        session.append("x", number, agent="a")
    session.append("job/start", {"id": "j"}, agent="a")
    event = say(session)
    durable = session.position.seq == event.seq
    session.flush()
    assert durable is (kind not in ("job/update", "usage"))
    stored = [*store.read_from("s")][-1]
    assert (stored, stored.type, stored.data) == (event, kind, data)
    assert stored.agent == (None if kind == "session/titled" else "a")
    msgspec.convert(data, PAYLOADS[kind])


def test_a_count_of_none_takes_the_place_of_an_earlier_count(session: Session) -> None:
    """A 0 that is said of a response corrects what was said of it; what is not said does not."""
    session.report_usage(response="r", input=500, output=9)
    assert session.report_usage(response="r", input=0).data == {"response": "r", "input": 0}
    total = session.state.usage.own
    assert (total.input, total.output) == (0, 9)


def test_statements_may_name_their_turn(store: Store, session: Session) -> None:
    """What is said within a turn can stand in it."""
    with session.turn("t"):
        session.set_state("k", 1, turn="t")
        session.delete_state("k", turn="t")
        session.set_trigger("g", "timer", turn="t")
        session.fire_trigger("g", turn="t")
        session.clear_trigger("g", turn="t")
        session.send("c", 1, sender="a", turn="t")
        session.start_job("j", turn="t")
        session.update_job("j", 1, turn="t")
        session.end_job("j", turn="t")
        session.compact_context("short", turn="t")
    assert {event.turn for event in store.read_from("s", 1)} == {"t"}


def test_only_a_job_that_began_can_end(session: Session) -> None:
    """The end of a job that nobody began is refused, and the open ones are named."""
    with pytest.raises(InvalidValue, match="none is open"):
        session.end_job("j")
    session.start_job("one")
    session.start_job("two")
    with pytest.raises(InvalidValue, match="open are 'one', 'two'"):
        session.end_job("j")
    session.end_job("one")
    assert {job.id: job.status for job in session.state.jobs.values()} == {
        "one": "completed",
        "two": None,
    }


def test_a_compaction_is_of_an_agent_that_is_there(store: Store) -> None:
    """Where only others have said anything, a compaction of nobody is refused."""
    with store.create("new") as session:
        with session.turn(agent="coder") as turn:
            turn.user("one")
            turn.user("two")
        before = session.position
        with pytest.raises(InvalidValue) as refused:
            session.compact_context("short")
        assert (refused.value.path, session.position) == ("agent", before)
        last = session.messages()[-1]
        session.compact_context("short", first_kept=last["seq"], agent="coder")
        assert [each["content"][0]["text"] for each in session.messages()] == ["short", "two"]


def test_what_is_buffered_counts_at_once(session: Session) -> None:
    """A writer's views have all that it was told, durable or not."""
    turn = session.turn("t")
    turn.user("hello")
    assert [each["role"] for each in session.messages()] == ["user"]
    session.start_job("j")
    session.update_job("j", "half")
    assert session.state.jobs["j"].output == "half"
    turn.user("more")
    assert [each.turn for each in session.branches()] == ["t"]
    assert session.state.position == session.position


def test_a_run_is_recorded_as_asked(store: Store, session: Session) -> None:
    """A resume says its run, where it goes on, and which jobs were told of."""
    session.record_run("session/resumed", cwd="/srv", told=["j1"])
    session.close()
    (event,) = store.read_from("s")
    assert event.type == "session/resumed"
    assert event.data["run"] == session.run
    assert (event.data["cwd"], event.data["told"]) == ("/srv", ["j1"])


def test_the_run_is_one_for_all_threads(session: Session) -> None:
    """Threads that ask at once for the run, or begin the first turns, agree on it."""
    ready = threading.Barrier(8)

    def begin(_: int) -> str:
        ready.wait(PATIENCE)
        session.turn()
        return session.run

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(begin, range(8)))) == 1
    session.flush()
    assert session.position.seq == 8


def test_a_forked_child_does_not_record(tmp_path: Path) -> None:
    """A turn of the parent takes nothing from a child, which ends without waiting for it."""
    with perdure.open(tmp_path / "store") as store, store.create("s") as session:
        turn = session.turn()
        session.flush()
        with session._desk.gates._mutex, session._desk.lock:
            pid = os.fork()
            if pid == 0:
                refused = 0
                for each in (lambda: turn.user("x"), session.turn, lambda: session.once("k", int)):
                    try:
                        each()
                    except SessionClosed:
                        refused += 1
                os._exit(0 if refused == 3 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        turn.end()
        assert kinds(store) == ["session/started", "turn/start", "turn/end"]
