"""The output recorder: an agent's loop tells what happens, and the session is recorded."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from perdure.errors import InvalidValue, StorageFull
from perdure.model.vocabulary import TOOL_NOT_STARTED
from perdure.store import Session, Store
from perdure.store.output import FAILURES_KEPT, KINDS, OutputRecorder
from tests.test_store_session import Gated, Once, full


@pytest.fixture
def backend() -> Gated:
    """Sessions in memory."""
    return Gated()


@pytest.fixture
def store(backend: Gated) -> Store:
    """A store over them."""
    return Store(backend)


@pytest.fixture
def session(store: Store) -> Session:
    """A session that has begun."""
    made = store.create("s")
    made.record_run()
    made.flush()
    return made


@pytest.fixture
def output(session: Session) -> OutputRecorder:
    """A recorder of the agent `a`."""
    return OutputRecorder(session, agent="a")


def told(session: Session, store: Store) -> list[tuple[str, Any]]:
    """Return what was recorded, as type and data."""
    session.flush()
    return [(event.type, event.data) for event in store.read_from("s", 1)]


def kinds(session: Session, store: Store) -> list[str]:
    return [kind for kind, _ in told(session, store)]


def text(said: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": said}]


CALL = {"type": "tool-call", "id": "c1", "name": "t", "arguments": {}}


def test_a_whole_turn_is_recorded(store: Store, session: Session, output: OutputRecorder) -> None:
    """What a loop tells its outputs becomes turns and steps, with the agent's name on them."""
    output.on_turn_start("t1")
    output.on_user("why?", source="cli")
    output.on_request({"model": "m"})
    output.on_thinking("Hm")
    output.on_text("Let me look.")
    output.on_message([*text("Let me look."), CALL], model="m", response="r1")
    output.on_usage(response="r1", input=5)
    output.on_tool_call("c1", "t", {})
    output.on_tool_result("c1", "done")
    output.on_request({"model": "m"})
    output.on_message("Done.")
    output.on_turn_end()

    assert told(session, store) == [
        ("turn/start", {}),
        ("user/message", {"content": text("why?"), "source": "cli"}),
        ("step/start", {"step": 1}),
        ("request/header", {"header": {"model": "m"}}),
        ("assistant/delta", {"text": "Hm", "kind": "thinking"}),
        ("assistant/delta", {"text": "Let me look."}),
        (
            "assistant/message",
            {"content": [*text("Let me look."), CALL], "model": "m", "response": "r1"},
        ),
        ("usage", {"response": "r1", "input": 5}),
        ("tool/call", {"id": "c1", "name": "t", "arguments": {}}),
        ("tool/result", {"id": "c1", "content": text("done")}),
        ("step/end", {"step": 1}),
        ("step/start", {"step": 2}),
        ("request/header", {"header": {"model": "m"}}),
        ("assistant/message", {"content": text("Done.")}),
        ("step/end", {"step": 2}),
        ("turn/end", {"reason": "completed"}),
    ]
    assert {(e.agent, e.turn) for e in store.read_from("s", 1)} == {("a", "t1")}
    assert output.failures == ()


@pytest.mark.parametrize(
    ("hear", "recorded"),
    [
        (lambda o: o.on_text("x"), ["turn/start", "step/start", "assistant/delta"]),
        (lambda o: o.on_message("x"), ["turn/start", "step/start", "assistant/message"]),
        (lambda o: o.on_tool_call("c", "t"), ["turn/start", "step/start", "tool/call"]),
        (lambda o: o.on_request({}), ["turn/start", "step/start", "request/header"]),
        (lambda o: o.on_user("x"), ["turn/start", "user/message"]),
        (lambda o: o.on_tool_result("c", "x"), ["tool/result"]),
        (lambda o: o.on_usage(input=1), ["usage"]),
        (lambda o: o.on_turn_end(), []),
        (lambda o: o.on_error(ValueError("x")), []),
    ],
    ids=["text", "message", "call", "request", "user", "result", "usage", "end", "error"],
)
def test_anything_may_come_first(
    store: Store,
    session: Session,
    output: OutputRecorder,
    hear: Callable[[OutputRecorder], None],
    recorded: list[str],
) -> None:
    """What belongs to a turn or a step begins one where none is open."""
    hear(output)
    assert kinds(session, store) == recorded
    assert output.failures == ()


def test_steps_are_told_apart_without_requests(
    store: Store, session: Session, output: OutputRecorder
) -> None:
    """Whatever follows an answer, but for its tools, begins the next step."""
    output.on_text("a")
    output.on_message("a")
    output.on_message("b")
    output.on_text("c")
    output.on_turn_end("max-tokens")
    assert kinds(session, store) == [
        "turn/start",
        *("step/start", "assistant/delta", "assistant/message", "step/end"),
        *("step/start", "assistant/message", "step/end"),
        *("step/start", "assistant/delta", "step/end"),
        "turn/end",
    ]


def test_a_result_behind_its_turn_is_kept_in_it(
    store: Store, session: Session, output: OutputRecorder
) -> None:
    """A tool that answers late is recorded in the turn that called it."""
    output.on_turn_start("t1")
    output.on_tool_call("c1", "t")
    output.on_turn_end()
    output.on_turn_start("t2")
    output.on_tool_result("c1", "late")
    output.on_tool_result("other", "whose?")
    session.flush()
    results = [*store.read_from("s", types={"tool/result"})]
    assert [(e.turn, e.agent) for e in results] == [("t1", "a"), ("t1", "a"), ("t2", "a")]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda o: o.on_turn_end(), {"reason": "error", "error": {"code": "E", "message": "m"}}),
        (
            lambda o: o.on_turn_end("aborted"),
            {"reason": "error", "error": {"code": "E", "message": "m"}},
        ),
        (
            lambda o: o.on_turn_end("blocked"),
            {"reason": "blocked", "error": {"code": "E", "message": "m"}},
        ),
        (
            lambda o: o.on_turn_end(error=OSError("x")),
            {"reason": "error", "error": {"code": "OSError", "message": "x"}},
        ),
        (
            lambda o: o.on_turn_start(),
            {"reason": "error", "error": {"code": "E", "message": "m"}},
        ),
    ],
    ids=["plain", "aborted", "reason", "error", "next"],
)
def test_an_error_ends_the_turn_that_it_came_in(
    store: Store,
    session: Session,
    output: OutputRecorder,
    end: Callable[[OutputRecorder], None],
    expected: dict[str, Any],
) -> None:
    """The turn ends with what went wrong, and the next turn knows nothing of it."""
    output.on_message([CALL])
    output.on_error({"code": "E", "message": "m"})
    end(output)
    output.on_turn_end()
    output.on_user("again")
    output.on_turn_end()
    found = told(session, store)
    ends = [data for kind, data in found if kind == "turn/end"]
    assert ends[0] == expected
    assert ends[-1] == {"reason": "completed"}
    (result,) = [data for kind, data in found if kind == "tool/result"]
    assert result["error"]["code"] == TOOL_NOT_STARTED


def test_a_turn_that_nobody_ended_was_aborted(
    store: Store, session: Session, output: OutputRecorder
) -> None:
    """A turn that begins while another is open ends that one."""
    output.on_user("a")
    first = output.turn
    output.on_turn_start()
    assert output.turn is not first
    assert told(session, store)[2] == ("turn/end", {"reason": "aborted"})


# --- by kind --------------------------------------------------------------------------------------


def test_it_can_be_called_with_kinds(
    store: Store, session: Session, output: OutputRecorder
) -> None:
    """A kind leads to the method of that name, however a framework spells it."""
    output("turn_start", id="t1")
    output("user/message", content="hi")
    output("TEXT", text="a")
    output("thinking delta", text="b")
    output("tool-call", id="c", name="t")
    output("tool_result", id="c", content="x")
    output("turn-end")
    assert kinds(session, store) == [
        *("turn/start", "user/message", "step/start", "assistant/delta", "assistant/delta"),
        *("tool/call", "tool/result", "step/end", "turn/end"),
    ]
    assert all(callable(getattr(output, method)) for method in KINDS.values())


def test_other_kinds_are_activities(store: Store, session: Session, output: OutputRecorder) -> None:
    """What the recorder does not know is kept as an event that readers may skip."""
    output.on_user("x")
    output("Progress_Bar", percent=50)
    output("¿?", a=1)
    session.flush()
    found = [*store.read_from("s", 3)]
    assert [(e.type, e.data) for e in found] == [
        ("output/progress-bar", {"percent": 50}),
        ("output/activity", {"kind": "¿?", "a": 1}),
    ]
    assert all(e.ignorable and e.agent == "a" and e.turn for e in found)


def test_facts_that_do_not_fit_are_failures(session: Session, output: OutputRecorder) -> None:
    """A kind with the wrong facts is a failure, raised at the next checkpoint, with what fits."""
    output("text", content="x")
    (failure,) = output.failures
    assert isinstance(failure, InvalidValue)
    assert "on_text" in failure.hint
    with pytest.raises(InvalidValue) as raised:
        output("request", header={})
    assert raised.value is failure
    output("request", header={})
    with pytest.raises(InvalidValue):
        output("tool-call", name="t")
    del session


# --- failures -------------------------------------------------------------------------------------

CHECKPOINTS: list[Callable[[OutputRecorder], None]] = [
    lambda o: o.on_request({}),
    lambda o: o.on_tool_call("c", "t"),
]


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=["request", "call"])
def test_checkpoints_raise_what_keeps_them_from_being_recorded(
    session: Session, output: OutputRecorder, backend: Gated, checkpoint: Any
) -> None:
    """No model is asked and no tool is run unrecorded; once it is recorded, all is well."""
    output.on_user("x")
    session.flush()
    backend.before = Once(full())
    with pytest.raises(StorageFull):
        checkpoint(output)
    checkpoint(output)
    assert len(output.failures) == 1


@pytest.mark.parametrize("checkpoint", CHECKPOINTS, ids=["request", "call"])
def test_what_was_lost_before_is_raised_at_the_next_checkpoint(
    store: Store, session: Session, output: OutputRecorder, checkpoint: Any
) -> None:
    """The loop is not disturbed by a message that is not kept, but goes no further without it."""
    output.on_user(b"x")  # type: ignore[arg-type]
    output.on_text("y")
    with pytest.raises(InvalidValue):
        checkpoint(output)
    assert "request/header" not in kinds(session, store)
    checkpoint(output)


def test_a_lenient_recorder_never_raises(store: Store, session: Session, backend: Gated) -> None:
    """Without `strict` the loop goes on whatever happens, and `failures` tells the last of it."""
    output = OutputRecorder(session, strict=False)
    backend.before = Once(full(), times=10_000)
    output.on_request({})
    output.on_tool_call("c", "t")
    output("tool-call")
    for _ in range(2 * FAILURES_KEPT):
        output.on_user(5)  # type: ignore[arg-type]
    output.on_turn_end("no reason")
    output.on_turn_end()
    assert len(output.failures) == FAILURES_KEPT
    backend.before = lambda: None
    session.flush()
    session.close()
    for checkpoint in CHECKPOINTS:
        checkpoint(output)
    assert kinds_of(store)[-1] == "turn/end"


def kinds_of(store: Store) -> list[str]:
    return [event.type for event in store.read_from("s")]


def test_threads_may_tell_of_their_tools(
    store: Store, session: Session, output: OutputRecorder
) -> None:
    """Tools that run in threads of their own are recorded in one step."""
    output.on_request({})

    def run(id: str) -> None:
        output.on_tool_call(id, "t")
        output.on_tool_result(id, id)

    threads = [threading.Thread(target=run, args=(f"c{n}",)) for n in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    output.on_turn_end()
    found = kinds(session, store)
    assert (found.count("tool/call"), found.count("tool/result")) == (20, 20)
    assert found.count("step/start") == 1
