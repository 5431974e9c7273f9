"""What a list says of a session: the same however often it was summed up on the way."""

import dataclasses
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import perdure
from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header, Parent, Source, new_header
from perdure.store.summing import Sum, listed_unread, rules_of
from perdure.testing.histories import history
from perdure.testing.strategies import json_values
from perdure.views.projection import Projection
from perdure.views.view import History, Rows
from tests.folds import Jumble, life, turn
from tests.support import scaled

HEADER = new_header("s", created_at=5, cwd="/home")
WRITER = Holder(pid=1, host="here", since=0)
GENESIS = "ab" * 32


def one(kind: str, data: Any = None, agent: str | None = None, turn: str | None = "t") -> Draft:
    return draft(kind, {} if data is None else data, time=7, agent=agent, turn=turn)


def placed(drafts: Iterable[Draft | dict[str, Any]]) -> list[Event]:
    made = (each if isinstance(each, Draft) else draft(**{"time": 7} | each) for each in drafts)
    return [each.at(seq) for seq, each in enumerate(made)]


def line(found: Sum, events: int, **more: Any) -> Listed:
    usual: dict[str, Any] = {"holder": None, "problem": None}
    return found.listed(events=events, size=10 * events, **usual | more)


def summed(
    events: Sequence[Event],
    projection: Projection | None = None,
    header: Header = HEADER,
    cuts: Iterable[int] = (),
) -> Sum:
    """The sums of a log that was listed, put down and gone on with at each of the cuts."""

    def read(end: int) -> Iterator[Event]:
        return iter(events[:end])

    found, begin = Sum(header, projection, read), 0
    for cut in [*sorted(cuts), len(events)]:
        if begin:
            line(found, begin)
            found = Sum(header, projection, read, found.dump())
        for event in events[begin:cut]:
            found.last = event.time
            found.event(event)
        begin = cut
    return found


def listed(
    drafts: Iterable[Draft | dict[str, Any]], header: Header = HEADER, **more: Any
) -> Listed:
    events = placed(drafts)
    return line(summed(events, header=header), len(events), **more)


# --- projections ----------------------------------------------------------------------------------


class Column(Jumble, Projection):
    """Rows that come and go, and what they come to."""

    name = "column"

    def value(self, rows: Rows) -> Any:
        """All of them, and how they are ordered."""
        return {"rows": dict(rows.all), "keys": list(rows.all)}


class Said(Projection):
    """How many messages users sent."""

    name = "said"
    version = 3
    types = frozenset({"user/message"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Count it."""
        rows.put("count", rows.get("count", 0) + 1)

    def value(self, rows: Rows) -> Any:
        """How many; any value that JSON has will do."""
        return rows.get("count", 0)


class ShyError(Exception):
    """Does not even say what it is."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("nobody's business")


@dataclasses.dataclass
class Failing(Said):
    """Fails at some place, with some error."""

    where: str
    error: Exception

    def _fail(self, where: str) -> None:
        if where == self.where:
            raise self.error

    def begin(self, rows: Rows, header: Header) -> None:  # noqa: ARG002
        """Fail if that is the place."""
        self._fail("begin")

    def apply(self, rows: Rows, event: Event, history: History) -> None:
        """Fail if that is the place, at the second message."""
        if rows.get("count", 0) == 1:
            self._fail("apply")
        super().apply(rows, event, history)

    def value(self, rows: Rows) -> Any:
        """Fail if that is the place."""
        self._fail("value")
        return super().value(rows)


# --- read in parts --------------------------------------------------------------------------------


def assert_same(events: Sequence[Event], cuts: list[int], make: Callable[[], Any]) -> None:
    """Demand that what is summed up with pauses is what is summed up at once."""
    whole = summed(events, make())
    parts = summed(events, make(), cuts=cuts)
    for more in ({}, {"holder": WRITER}, {"problem": "torn"}):
        assert line(parts, len(events), **more) == line(whole, len(events), **more)
    assert parts.dump() == whole.dump()
    for name in ("last", "skipped", "why"):
        assert getattr(parts, name) == getattr(whole, name)


PROJECTIONS: dict[str, Callable[[], Projection | None]] = {
    "none": lambda: None,
    "column": Column,
    "failing": lambda: Failing("apply", ValueError("no")),
    "failing at once": lambda: Failing("begin", ValueError("no")),
    "without a value": lambda: Failing("value", ValueError("no")),
}


@pytest.mark.parametrize("projection", PROJECTIONS)
@settings(max_examples=scaled(600))
@given(st.integers(), st.data())
def test_sums_made_in_parts_are_the_same(projection: str, seed: int, data: st.DataObject) -> None:
    """Wherever a history is broken off and gone on with, line and sums come to the same."""
    events = history(seed).events
    cuts = data.draw(st.lists(st.integers(1, len(events)), min_size=1, max_size=3))
    assert_same(events, cuts, PROJECTIONS[projection])


def test_sums_of_a_life_made_in_parts_are_the_same(rng: random.Random) -> None:
    """Of a session with state, ways back and types of its own, each cut gives the same."""
    commits = life(rng, "s")
    drafts = [each for _ in range(scaled(400) + 20) for each in next(commits)]
    events = placed(drafts)
    for cut in range(1, len(events), 1 + len(events) // 40):
        assert_same(events, [cut, rng.randint(cut, len(events))], Column)


def test_a_value_that_fails_for_a_while_comes_back() -> None:
    """A projection whose value could not be told on the way has it once it can be."""

    class Even(Said):
        def value(self, rows: Rows) -> Any:
            if rows.get("count", 0) % 2:
                raise ValueError("odd")
            return super().value(rows)

    events = placed([one("user/message", {"content": []})] * 4)
    assert line(summed(events, Even()), 4).projection == 4
    assert line(summed(events, Even(), cuts=[1, 3]), 4).projection == 4
    assert_same(events, [3], Even)


def test_listing_it_changes_nothing() -> None:
    """How often somebody asks for the line makes no difference to the sums."""
    events = placed([*turn(1), *turn(2)])
    found = summed(events, Said())
    before = found.dump()
    assert line(found, 12) == line(found, 12)
    assert line(found, 12).projection == 2
    assert found.dump() == before


# --- the projection -------------------------------------------------------------------------------

ERRORS = [
    ValueError("no"),
    KeyError("\ud83d"),
    RuntimeError("\ud83d\ude00"),
    OSError(5, "x" * 10_000),
    RecursionError(),
    InvalidValue("a", "b"),
    ShyError(),
]


@pytest.mark.parametrize("where", ["begin", "apply", "value"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_projection_that_fails_stops_nothing(where: str, error: Exception) -> None:
    """A projection that raises leaves its session without a value; all else is as without it."""
    events = placed([*turn(1), *turn(2), *turn(3)])
    plain = line(summed(events), 18)
    for cuts in ([], [1], [9], [17]):
        found = summed(events, Failing(where, error), cuts=cuts)
        assert line(found, 18) == plain
        why = found.why or found.unvalued
        assert why is not None
        assert type(error).__name__ in why
        assert len(why.encode()) <= 1200
        # What is left out is counted, once.
        assert found.skipped + (found.unvalued is not None) == 1
        again = Sum(HEADER, Failing(where, error), lambda _: iter(()), found.dump())
        assert line(again, 18) == plain


@pytest.mark.parametrize("value", [object(), {1: 2}, float("nan"), b"x", {"\ud83d\ude00"}, {"a"}])
def test_a_value_that_is_no_json_is_none(value: Any) -> None:
    """What JSON does not have is no value, and stops nothing."""

    class Odd(Said):
        def value(self, rows: Rows) -> Any:  # noqa: ARG002
            return value

    found = summed(placed(turn(1)), Odd())
    assert line(found, 6) == line(summed(placed(turn(1))), 6)
    assert found.unvalued is not None
    assert "projection" in found.unvalued


class Joined(Said):
    """Puts together what was streamed, be it half a character."""

    name = "joined"
    types = frozenset({"assistant/delta"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Add the piece."""
        rows.put("text", rows.get("text", "") + event.data["text"])

    def value(self, rows: Rows) -> Any:
        """All that was streamed."""
        return rows.get("text")


class Both(Said):
    """Says a character in two halves."""

    def value(self, rows: Rows) -> Any:  # noqa: ARG002
        """Halves of which each alone could be kept."""
        return ["\ud83d" + "\ude00"]


@pytest.mark.parametrize("projection", [Joined, Both])
def test_a_character_in_halves_stops_nothing(projection: Callable[[], Projection]) -> None:
    """Text that a log would refuse is no reason for a session to be left out, nor to be sent."""
    pieces = [one("assistant/delta", {"text": half}) for half in ("\ud83d", "\ude00")]
    events = placed([*pieces, *turn(1)])
    plain = line(summed(events), 8)
    for cuts in ([], [1], [2], [7]):
        found = summed(events, projection(), cuts=cuts)
        told = line(found, 8)
        assert replace(told, projection=None) == plain
        values.encode(told.projection)
        found.dump()


@settings(max_examples=scaled(500))
@given(json_values())
def test_any_json_is_a_value(value: Any) -> None:
    """A value is any that JSON has, and stays as it was when it was asked for."""
    held = values.decode(values.encode([value]))

    class Kept(Said):
        def value(self, rows: Rows) -> Any:  # noqa: ARG002
            return held

    found = summed([], Kept())
    told = line(found, 0).projection
    held.append("later")
    assert told == [value]
    assert found.why is None


class Named(Said):
    """May have any name, version and types."""

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            setattr(self, name, value)


NAMES: list[dict[str, Any]] = [
    *({"name": name} for name in ("session", "usage", "listing", "", "A b", "a lens/x", 5, None)),
    *({"version": version} for version in ("1", None, True)),
    *({"types": types} for types in (None, "user/message", ["user/message"], frozenset({5}))),
]


@pytest.mark.parametrize("options", NAMES, ids=str)
def test_a_projection_has_a_name_of_its_own(options: dict[str, Any]) -> None:
    """What no view could be called is refused, and so is what one of the sums is called."""
    with pytest.raises(InvalidValue):
        perdure.open("memory:", projection=Named(**options)).close()


@pytest.mark.parametrize("projection", [Said, 5, "said", Jumble()])
def test_a_projection_is_one(projection: Any) -> None:
    """What is no projection is refused when the store is opened."""
    with pytest.raises(InvalidValue) as caught:
        perdure.open("memory:", projection=projection)
    assert caught.value.path == "projection"


def test_the_rules_name_all_that_sums_depend_on() -> None:
    """Sums were made by views of these versions."""
    plain = rules_of()
    assert [part.partition("/")[0] for part in plain.split()] == ["session", "usage", "listing"]


# --- the state ------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_counted() -> None:
    """Records that could not be read are counted, and the first reason is kept, cut, for later."""
    found = summed([])
    found.skip("x" * 1000)
    found.skip("another")
    again = Sum(HEADER, None, lambda _: iter(()), found.dump())
    again.skip("third")
    assert (again.skipped, again.why) == (3, "x" * 300)


def restored(state: bytes) -> bool:
    try:
        Sum(HEADER, None, lambda _: iter(()), state)
    except ValueError:
        return False
    return True


def test_a_state_that_was_cut_is_refused() -> None:
    """Of a state only the whole is one."""
    state = summed(placed([*turn(1), *turn(2)[:4]])).dump()
    assert restored(state)
    assert not any(restored(state[:size]) for size in range(len(state)))


@settings(max_examples=scaled(2000))
@given(json_values() | st.binary())
def test_anything_else_is_no_state(state: Any) -> None:
    """What no `dump` gave is refused with a ValueError, whatever it is."""
    assert not restored(state if isinstance(state, bytes) else values.encode(state))


@settings(max_examples=scaled(2000))
@given(st.sampled_from(("rows", "work", "last", "skipped", "why", "failed")), json_values())
def test_a_state_with_another_member_raises_nothing_else(name: str, value: Any) -> None:
    """Where one member is another one, it is a state or refused with a ValueError."""
    state = values.decode(summed(placed(turn(1))).dump())
    restored(values.encode({**state, name: value}))
    del state[name]
    assert not restored(values.encode(state))


# --- status ---------------------------------------------------------------------------------------

BEGUN = one("turn/start")
ENDED = one("turn/end", {"reason": "completed"})
ABORTED = one("turn/end", {"reason": "aborted"})
STOPPED = one("turn/end", {"reason": "interrupted"})
DONE = one("session/ended", {"reason": "done"})
RESUMED = one("session/resumed", {"run": "r2"})

STATUSES: list[tuple[list[Draft], str]] = [
    ([], "paused"),
    ([BEGUN, ENDED], "paused"),
    ([BEGUN, one("turn/end", {"reason": "error"})], "paused"),
    ([BEGUN, ENDED, DONE], "completed"),
    ([BEGUN, ABORTED, DONE], "completed"),
    ([BEGUN, ENDED, DONE, RESUMED], "paused"),
    ([BEGUN, ABORTED], "interrupted"),
    ([BEGUN, STOPPED], "interrupted"),
    ([BEGUN, STOPPED, RESUMED], "interrupted"),
    ([BEGUN, STOPPED, BEGUN, ENDED], "paused"),
    ([BEGUN], "crashed"),
    ([BEGUN, one("step/start", {"step": 1})], "crashed"),
    ([BEGUN, DONE], "crashed"),
    ([BEGUN, ENDED, BEGUN], "crashed"),
    ([one("job/start", {"id": "j"})], "crashed"),
    ([one("job/start", {"id": "j"}), one("job/end", {"id": "j", "status": "failed"})], "paused"),
]


@pytest.mark.parametrize(("log", "status"), STATUSES)
def test_a_session_nobody_writes_says_how_it_stands(log: list[Draft], status: str) -> None:
    """Whether it was ended, broken off, or left with open work is told by its last events."""
    assert listed(log).status == status


@pytest.mark.parametrize("log", [log for log, _ in STATUSES])
def test_running_and_damage_are_told_before_all_else(log: list[Draft]) -> None:
    """A session with a writer is running, one that is damaged is damaged, whatever it says."""
    assert listed(log, holder=WRITER).status == "running"
    assert listed(log, holder=Holder()).status == "running"
    found = listed(log, problem="torn", holder=WRITER)
    assert (found.status, found.problem) == ("damaged", "torn")


def test_nobody_closes_what_was_imported() -> None:
    """An import whose source ends in the middle of a turn has not crashed here."""
    header = new_header("i", created_at=0, source=Source("codex"), vocabulary=None)
    assert listed([BEGUN], header).status == "paused"
    assert listed([BEGUN, ABORTED], header).status == "interrupted"
    assert listed([BEGUN, ENDED], header, problem="torn").status == "damaged"


def test_nobody_closes_what_is_in_other_words() -> None:
    """A session of types that are its owner's has nothing open, whatever they are called."""
    for vocabulary in (None, "mine/1"):
        header = new_header("o", created_at=0, vocabulary=vocabulary)
        assert listed([BEGUN], header).status == "paused"


# --- what the header says -------------------------------------------------------------------------


def test_a_new_session_says_what_its_header_says() -> None:
    """Before its first event a session has a place, a time and nothing else."""
    assert listed([]) == Listed(id="s", created=5, last_active=5, cwd="/home")


CONFIGS: list[tuple[Any, tuple[str | None, str | None, str | None]]] = [
    (None, (None, None, None)),
    ("agent.toml", (None, None, "agent.toml")),
    ({"name": "n", "kind": "graph", "path": "/p"}, ("n", "graph", "/p")),
    ({"name": 5, "kind": None, "path": []}, (None, None, None)),
    (["n"], (None, None, None)),
    (5, (None, None, None)),
]


@pytest.mark.parametrize(("config", "wanted"), CONFIGS)
def test_a_composition_is_what_the_configuration_names(
    config: Any, wanted: tuple[str | None, str | None, str | None]
) -> None:
    """Name, kind and path are those of the configuration, if it has such texts."""
    found = listed([], new_header("s", created_at=0, preset="p", config=config))
    assert (found.composition, found.composition_kind, found.config_path) == wanted
    assert found.preset == "p"


SOURCE = Source("codex", "c-1", "there", "/x/y.jsonl", "c-0", "fork", "f" * 16)


def test_an_import_says_where_it_comes_from() -> None:
    """An import is its agent's, with the id, the parent and the path that it has there."""
    header = new_header("i", created_at=0, cwd="c:\\x", source=SOURCE, vocabulary=None)
    found = listed([], header)
    assert found == Listed(
        id="i",
        created=0,
        last_active=0,
        program="codex",
        cwd="c:\\x",
        host="there",
        relation="fork",
        source_format="codex",
        source_id="c-1",
        source_parent="c-0",
        source_path="/x/y.jsonl",
    )


def test_a_fork_of_an_import_is_a_session_of_ours() -> None:
    """What goes on here from an import is of this program, and a fork of that session."""
    parent = Parent("i", 4)
    header = new_header(
        "f", created_at=0, parent=parent, seed=5, source=SOURCE, genesis=GENESIS, depth=1
    )
    found = listed([], header)
    assert (found.program, found.parent, found.relation) == ("perdure", "i", "fork")
    assert (found.source_format, found.source_id, found.source_parent) == (None, None, None)


RELATIONS: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"parent": Parent("p", 3), "genesis": GENESIS, "seed": 4}, "fork"),
    ({"parent": Parent("p", 3), "origin": "subagent"}, "subagent"),
    ({"parent": Parent("p", 3), "origin": "subagent", "genesis": GENESIS}, "subagent"),
    ({"parent": Parent("p", 3)}, "child"),
    ({"source": Source("codex"), "vocabulary": None}, None),
    ({"source": Source("codex", relation="subagent"), "vocabulary": None}, "subagent"),
    ({"source": Source("codex", relation="continuation"), "vocabulary": None}, "continuation"),
]


@pytest.mark.parametrize(("options", "relation"), RELATIONS)
def test_a_relation_is_what_it_is_to_its_parent(options: dict[str, Any], relation: str) -> None:
    """A session is a fork, a sub-agent, a continuation or a child of the one it comes from."""
    found = listed([], new_header("s", created_at=0, **options))
    parent = options.get("parent")
    assert (found.relation, found.parent) == (relation, parent and parent.session)


def test_relatives_are_what_the_store_says_they_are() -> None:
    """A line says of a fork and of a sub-agent what the store says of their relation."""
    with perdure.open("memory:", index=False) as store:
        with store.create("p") as parent:
            parent.append_many(turn(1))
            with parent.subagent("scout", task="look", session_id="c") as child:
                child.append_many(turn(1))
        store.fork("p", new_id="f").close()
        kinds = {relative.session: relative.kind for relative in store.children("p")}
        assert kinds == {"c": "subagent", "f": "fork"}
        for id, kind in kinds.items():
            header = store.inspect(id).header
            assert header is not None
            events = [*store.read_from(id)]
            found = line(summed(events, header=header), len(events))
            assert (found.relation, found.parent, found.program) == (kind, "p", "perdure")


def test_a_fork_is_not_charged_for_what_it_inherits() -> None:
    """Tokens and cost are those of the session itself; turns and messages are all there are."""
    usage = {"input": 5, "output": 2, "cost": 0.5, "currency": "EUR"}
    log = [one("usage", usage), *placed_drafts(turn(1)), one("usage", usage | {"output": 3})]
    whole = listed(log)
    assert (whole.tokens, whole.cost) == (15, {"EUR": 1.0})
    header = new_header("f", created_at=0, parent=Parent("s", 0), seed=1, genesis=GENESIS)
    fork = listed(log, header)
    assert (fork.tokens, fork.cost, fork.turns, fork.messages) == (8, {"EUR": 0.5}, 1, 2)


def placed_drafts(events: Iterable[dict[str, Any]]) -> list[Draft]:
    return [draft(**{"time": 7} | each) for each in events]


def test_a_fork_is_not_ended_with_its_parent() -> None:
    """What was said of the parent as a whole is not said of its fork."""
    started = one("session/started", {"run": "r", "host": "there", "cwd": "/moved"})
    log = [started, one("session/archived"), DONE]
    whole = listed(log)
    assert (whole.status, whole.archived, whole.host, whole.cwd) == (
        *("completed", True, "there", "/moved"),
    )
    forked = {"header": GENESIS, "session": "s", "seq": 2}
    fork = listed([*log, one("session/forked", forked)])
    assert (fork.status, fork.archived, fork.host, fork.cwd) == ("paused", False, None, "/home")


# --- what the events say --------------------------------------------------------------------------


def test_everything_that_is_counted_is_listed() -> None:
    """Counts, agents and sums are those of the events, sizes and numbers those that are given."""
    call = {"id": "c", "name": "bash"}
    log = [
        one("session/started", {"run": "r", "host": "here"}),
        one("turn/start", agent="a"),
        one("user/message", {"content": [{"type": "text", "text": "do\n it"}]}, "a"),
        one("assistant/message", {"content": [{"type": "tool-call", **call}], "usage": {}}, "b"),
        one("tool/call", call, "b"),
        one("tool/result", {"id": "c", "content": [], "error": {"code": "E", "message": "m"}}, "b"),
        one("usage", {"input": 7, "output": 1, "cost": 1.5}, "b"),
        one("turn/end", {"reason": "completed"}, "a"),
    ]
    assert listed(log) == Listed(
        id="s",
        title="do it",
        preview="do it",
        created=5,
        last_active=7,
        agents=("a", "b"),
        cwd="/home",
        host="here",
        events=8,
        turns=1,
        messages=2,
        calls=1,
        failures=1,
        tokens=8,
        cost={"": 1.5},
        size=80,
    )


ASKED = one("user/message", {"content": [{"type": "text", "text": "asked"}]})


@pytest.mark.parametrize(
    ("options", "title", "named"),
    [
        ([], "asked", False),
        (["Mend  it\nnow"], "Mend it now", True),
        (["first", "second"], "second", True),
        (["first", " \n"], "asked", False),
        ([""], "asked", False),
        (["word " * 1000], ("word " * 1000)[:1000], True),
    ],
)
def test_a_title_is_optionsor_what_was_asked(options: list[str], title: str, named: bool) -> None:
    """The last title holds, on one line and not too long; without one the first words stand in."""
    found = listed([ASKED, *(one("session/titled", {"title": each}) for each in options)])
    assert (found.title, found.named, found.preview) == (title, named, "asked")


def test_without_title_and_question_there_is_none() -> None:
    """A session that nobody named, and in which nobody asked, has no title."""
    found = listed([BEGUN, ENDED])
    assert (found.title, found.named, found.preview) == (None, False, None)


@settings(max_examples=scaled(1000))
@given(st.integers())
def test_any_history_can_be_listed(seed: int) -> None:
    """What agents do wrong makes no line that cannot be: counts fit, and the status is one."""
    events = history(seed).events
    found = line(summed(events, Column()), len(events))
    assert found.status in {"paused", "crashed", "completed", "interrupted"}
    assert min(found.turns, found.messages, found.calls, found.failures) >= 0
    assert found.turns + found.messages + found.calls + found.failures <= 2 * len(events)
    assert found.last_active == events[-1].time


# --- what cannot be read --------------------------------------------------------------------------


def test_a_session_without_a_header_is_an_id() -> None:
    """Of a session whose header cannot be read a line says that, and what it is called."""
    found = listed_unread("x", None, 9, "its header is damaged")
    assert found == Listed(id="x", status="damaged", size=9, problem="its header is damaged")
    assert (found.created, found.last_active) == (None, None)


def test_a_session_with_a_header_says_what_that_says() -> None:
    """Of a session of which only the header can be read a line says what stands there."""
    for header in (
        HEADER,
        new_header("i", created_at=0, source=SOURCE, vocabulary=None),
        new_header("c", created_at=0, parent=Parent("p", 3), origin="subagent", preset="p"),
    ):
        found = listed_unread("ignored", header, 9, "torn")
        assert found == replace(listed([], header), status="damaged", size=9, problem="torn")


def nobody(_: int) -> NoReturn:
    """Nobody asks for what is past."""
    raise AssertionError


def test_what_is_past_is_read_for_projections_only() -> None:
    """The sums themselves ask for no event a second time."""
    found = Sum(HEADER, None, nobody)
    for event in history(3).events:
        found.event(event)
    Sum(HEADER, None, nobody, found.dump()).dump()
