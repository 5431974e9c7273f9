"""Views as sessions and readers ask for them: faults are named, answers are of one moment."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InvalidValue, PersistenceDisabled
from perdure.model import values
from perdure.model.event import Event
from perdure.store.effects import key_of
from perdure.store.folding import Folds
from perdure.views import effects
from perdure.views.conversation import messages
from perdure.views.fold import Fold
from perdure.views.view import History, Rows, View
from tests import media
from tests.folds import from_the_start, rows_of, turn


class Odd(View):
    """Does with an event's data what its test says."""

    name = "acme-odd"
    version = 1
    types = frozenset({"acme/odd"})

    def __init__(self, act: Callable[[Rows, Any], None]) -> None:
        self.act = act

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        self.act(rows, event.data)


@pytest.fixture(params=media.ALL)
def kind(request: pytest.FixtureRequest) -> str:
    """A kind of store."""
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[perdure.Store]:
    """A store of each kind."""
    with media.open_medium(kind, tmp_path) as opened:
        yield opened


# --- faults of views -----------------------------------------------------------------------------

NOTE = "view 'acme-odd' at event 6, acme/odd"


def divide(rows: Rows, data: Any) -> None:
    rows.put("half", "done")
    rows.put("n", 1 // data)


WRONG: dict[str, tuple[Callable[[Rows, Any], None], type[Exception]]] = {
    "raises": (divide, ZeroDivisionError),
    "key": (lambda rows, data: rows.put(data, 1), InvalidValue),
    "value": (lambda rows, data: rows.put("k", {data}), InvalidValue),
    "deep value": (
        lambda rows, data: rows.put("k", {"a": [{"b": b"bytes", "n": data}]}),
        InvalidValue,
    ),
    "not a number": (lambda rows, data: rows.put("k", float("nan") * (data + 1)), InvalidValue),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_fault_names_the_view_and_the_event(kind: str, tmp_path: Path, wrong: str) -> None:
    """Whoever asks is told which view failed at which event; the log is written all the same."""
    act, error = WRONG[wrong]
    with media.open_medium(kind, tmp_path, views=[Odd(act)]) as store:
        with store.create("s") as session:
            session.append_many(turn(1))
            session.append("acme/odd", 0)
            session.append_many(turn(2))
            asked: list[Callable[[], object]] = [
                lambda: session.state,
                session.messages,
                session.fold,
            ]
            for ask in asked * 2:
                with pytest.raises(error) as failed:
                    ask()
                assert failed.value.__notes__ == [NOTE]
        asked = [
            lambda: store.inspect("s").state,
            lambda: store.inspect("s").messages(),
            lambda: store.resume("s"),
        ]
        for ask in asked:
            with pytest.raises(error) as failed:
                ask()
            assert failed.value.__notes__ == [NOTE]
        assert store.inspect("s").position is not None
        assert len([*store.read_from("s")]) == 13


def test_a_fault_leaves_nothing_half_folded(store: perdure.Store) -> None:
    """When a view that failed, or was stopped, is asked again, it sees each event once."""
    stops: list[BaseException] = []

    def count(rows: Rows, data: Any) -> None:
        rows.put("count", rows.get("count", 0) + 1)
        if stops:
            raise stops.pop()
        rows.put("sum", rows.get("sum", 0) + data)

    views = (*store._folds.views, Odd(count))
    store._folds.views = views
    store._folds._versions = {view.name: view.version for view in views}
    with store.create("s") as session:
        for number in range(10):
            session.append("acme/odd", number)
            stops[:] = [KeyboardInterrupt() if number % 2 else ValueError()]
            with pytest.raises((KeyboardInterrupt, ValueError)):
                session.fold()
            assert stops == []
            total = sum(range(number + 1))
            assert dict(session.state["acme-odd"]) == {"count": number + 1, "sum": total}
        # A checkpoint at the end of a turn, with nobody to keep it later, is no other.
        store._flusher.stop()
        stops[:] = [ValueError()]
        session.append("acme/odd", 100)
        session.append_many(turn(1))
        assert dict(session.state["acme-odd"]) == {"count": 11, "sum": 145}
    assert dict(store.inspect("s").state["acme-odd"]) == {"count": 11, "sum": 145}


def test_what_a_view_of_the_users_puts_is_a_copy(tmp_path: Path) -> None:
    """A value that a view goes on to change stays as it was put, as if it had been read back."""
    kept: list[Any] = []

    def keep(rows: Rows, data: Any) -> None:
        kept.append(data)
        rows.put("kept", kept)
        kept.append("later")

    with (
        media.open_medium("raw", tmp_path, views=[Odd(keep)]) as store,
        store.create("s") as session,
    ):
        session.append("acme/odd", (1, 2))
        assert dict(session.state["acme-odd"]) == {"kept": [[1, 2]]}


# --- what is said --------------------------------------------------------------------------------


def test_what_is_skipped_does_not_depend_on_checkpoints(kind: str, tmp_path: Path) -> None:
    """Writer, reader and a fold of the whole log count the same events that no view looks at."""
    with media.open_medium(kind, tmp_path) as store:
        with store.create("s") as session:
            for number in range(1, 5):
                session.append("acme/odd", number)
                session.append_many(turn(number))
                session.append("acme/even", number)
            wanted = {"acme/even": 4, "acme/odd": 4}
            assert session.state.skipped == wanted
        assert store.inspect("s").state.skipped == wanted
        with store.resume("s") as session:
            assert session.state.skipped == wanted
            session.append("acme/odd", 9)
            assert session.state.skipped == {"acme/even": 4, "acme/odd": 5}
        hold = store._backend.lock("s")
        store._backend.drop_derived(hold, "checkpoint")
        hold.release()
        assert store.inspect("s").state.skipped == {"acme/even": 4, "acme/odd": 5}


def test_attempts_are_found_by_the_key_of_the_effect() -> None:
    """The view takes the events of an attempt for those of the effect that the ledger means."""
    for key in ("k", "a (attempt 2", "x\ny", "(attempt 3)"):
        for number in (1, 2, 30):
            assert effects._parts(key_of(key, number)) == (key, number)


def test_state_alone_makes_nobody_speak(store: perdure.Store) -> None:
    """Where one agent has a name, messages are its own, whatever is kept without a name."""
    with store.create("s") as session:
        session.set_state("k", 1)
        session.set_trigger("w", "timer", {})
        session.start_job("j")
        session.send("room", "hello", sender="x")
        session.once("effect", lambda: 1)
        session.set_title("title")
        assert session.messages() == []
        with session.turn(agent="coder") as opened:
            opened.user("hi")
        session.set_state("k", 2)
        session.end_job("j")
        said = session.messages("coder")
        assert session.messages() == said
        assert len(said) == 1
    assert store.inspect("s").messages() == said


def test_branches_are_of_one_agent_or_of_all(store: perdure.Store) -> None:
    """Left out, every agent's turns are listed; None is the agent without a name."""
    with store.create("s") as session:
        for agent in (None, "coder", None):
            with session.turn(agent=agent):
                pass
        for asked in (session, store.inspect("s")):
            assert [each.agent for each in asked.branches()] == [None, "coder", None]
            assert [each.agent for each in asked.branches(None)] == [None, None]
            assert [each.agent for each in asked.branches("coder")] == ["coder"]
            assert asked.branches("nobody") == []


def test_what_needs_the_log_is_refused_where_nothing_is_kept() -> None:
    """Without persistence state and messages are there; what reads the log is refused in words."""
    with perdure.open("none:") as store, store.create("s") as session:
        with session.turn("t1") as opened:
            opened.user("hi")
        assert len(session.messages()) == 1
        assert session.state.head() == "t1"
        asked: list[Callable[[], object]] = [
            lambda: session.messages(at="t1"),
            session.branches,
            lambda: [*session.scrollback()],
        ]
        for ask in asked:
            with pytest.raises(PersistenceDisabled):
                ask()


# --- readers -------------------------------------------------------------------------------------


def test_a_reader_folds_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An inspection that is asked again folds anew when the log has changed, and only then."""
    loads: list[str] = []
    load = Folds.load

    def loading(self: Folds, session: str) -> Any:
        loads.append(session)
        return load(self, session)

    with media.open_medium(kind, tmp_path) as store:
        session = store.create("s")
        session.append_many(turn(1))
        session.start_job("j")
        backend = store._backend
        # The clock of a folder is coarse: for a while nobody can tell that nothing changed.
        monkeypatch.setattr(backend, "lasting_revision", backend.revision)
        monkeypatch.setattr(Folds, "load", loading)
        found = store.inspect("s")
        first = found.fold()
        for _ in range(5):
            assert len(found.messages()) == 2
            assert found.state.position == first.position
        assert len(loads) == 1
        # What one caller does with a fold is nobody else's.
        first.rows["conversation"].clear()
        assert len(found.messages()) == 2

        session.append_many(turn(2))
        assert len(found.messages()) == 4
        assert found.state.position == session.position
        assert len(loads) == 2
        assert found.state.jobs["j"].status is None
        session.flush()
        session._hold.release()  # type: ignore[union-attr]
        session._released = True
        session._closed = "it died"
        late = store.inspect("s")
        for _ in range(3):
            assert late.state.jobs["j"].status == "interrupted"
            assert late.fold(closed=False).rows["jobs"] is not None
        assert [*late._load().fold.rows["jobs"].all.values()]
        assert late._load().work.closers() != []
        assert len(loads) == 3


def test_a_reader_asks_anew_while_the_clock_may_hide_a_change(
    store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a change might not show, nothing that was read before is taken for what there is."""
    with store.create("s") as session:
        session.append("x")
        monkeypatch.setattr(store._backend, "lasting_revision", lambda _: None)
        found = store.inspect("s")
        for number in range(1, 4):
            session.append_many(turn(number))
            assert len(found.messages()) == 2 * number


def test_threads_see_one_moment_each(store: perdure.Store) -> None:
    """Beside two agents that write, every answer is that of the log up to its position."""
    turns, answers, failures = 12, list[tuple[int, Any]](), list[BaseException]()
    done = threading.Event()

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test's thread is told
            failures.append(error)

    with store.create("s") as session:

        def write(agent: str) -> None:
            for number in range(turns):
                with session.turn(f"{agent}{number}", agent=agent) as opened:
                    opened.user(f"question {number}")
                    with opened.step() as step:
                        step.request({"model": "m"})
                        for piece in ("a", "b", "c"):
                            step.delta(piece)
                        step.message("abc")
                session.set_state("n", number, agent=agent)
                session.append("acme/odd", number)

        def read(asked: Any) -> None:
            while not done.is_set():
                fold = asked.fold()
                rows = fold.rows["conversation"]
                told = {name: messages(rows, name) for name in ("x", "y")}
                state = asked.state
                answers.append((fold.position.seq, values.encode(told)))
                answers.append((state.position.seq, _said(state)))
                for name in told:
                    asked.messages(name)

        session.set_title("threads")
        found = store.inspect("s")
        writers = [threading.Thread(target=guarded, args=(lambda n=n: write(n),)) for n in "xy"]
        readers = [
            threading.Thread(target=guarded, args=(lambda a=a: read(a),))
            for a in (session, session, found, found)
        ]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join(200)
        done.set()
        for thread in readers:
            thread.join(200)
        assert failures == []
        assert not any(thread.is_alive() for thread in (*readers, *writers))
    assert answers
    events = [*store.read_from("s")]
    seen = {seq for seq, _ in answers}
    wanted = _by_position(store, events, seen)
    for seq, answer in answers:
        assert answer in wanted[seq], f"at {seq}"


def _said(state: perdure.State) -> bytes:
    told = state.as_dict()
    del told["position"]
    return values.encode(told)


def _by_position(store: perdure.Store, events: list[Event], seen: set[int]) -> dict[int, Any]:
    """What a fold of the events, one by one, says behind each of some of them."""
    header = store.inspect("s").header
    assert header is not None
    fold = Fold(store._folds.views, header, lambda seq: iter(events[:seq]))
    wanted: dict[int, Any] = {}
    for seq in range(-1, len(events)):
        if seq >= 0:
            fold.event(events[seq])
            if events[seq].type == "acme/odd":
                fold.skipped["acme/odd"] += 1
        if seq in seen:
            rows = fold.rows["conversation"]
            told = {name: messages(rows, name) for name in ("x", "y")}
            wanted[seq] = values.encode(told), _said(perdure.State(fold))
    return wanted


def test_rows_that_go_behind_a_checkpoint_stay_away(store: perdure.Store) -> None:
    """What a writer removes before it stores a checkpoint of its own is gone for readers too."""
    with store.create("s") as session:
        session.set_trigger("w", "timer", {})
        session.append_many(turn(1))
    with store.writer("s") as session:
        assert list(session.state.triggers) == ["w"]
        session.clear_trigger("w")
        session.append_many(turn(2))
        session.append_many(turn(3))
    assert store.inspect("s").state.triggers == {}
    assert rows_of(store.inspect("s").fold()) == from_the_start(store, "s")
