"""Views: what they say, and that it depends on the log alone, however it was read."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.model import values
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header, Parent, new_header
from perdure.model.record import Position, seal
from perdure.model.vocabulary import PAYLOADS, Error, fitting
from perdure.store.state import State
from perdure.testing.strategies import json_values, texts
from perdure.views import channels, endings, usage
from perdure.views.builtin import BUILTIN
from perdure.views.fold import Fold
from perdure.views.view import Rows, View
from perdure.views.windows import Window, key_of, parts_of
from tests.support import scaled

IDS = st.sampled_from(("a", "b", "c", "completed", "interrupted", "scratchpad"))
AGENTS = st.sampled_from((None, "a", "b"))
TYPES = sorted(PAYLOADS)
SPOKEN = sorted({kind for view in BUILTIN for kind in view.types})


def header(seed: int = 0) -> Header:
    parent = Parent("p", seed - 1) if seed else None
    return new_header("s", created_at=0, cwd="/here", parent=parent, seed=seed)


def one(kind: str, data: Any, agent: str | None = None, turn: str | None = None) -> Draft:
    return draft(kind, data, time=7, agent=agent, turn=turn)


def reader(events: Sequence[Event]) -> Any:
    def read(end: int) -> Iterator[Event]:
        return iter(events[:end])

    return read


def folded(drafts: Sequence[Draft], seed: int = 0, views: Sequence[View] = BUILTIN) -> Fold:
    """A fold that was fed the records of a log."""
    events = [each.at(seq) for seq, each in enumerate(drafts)]
    head = header(seed)
    fold = Fold(views, head, reader(events))
    fold.records(seal(Position(-1, head.genesis), drafts))
    return fold


def said(drafts: Sequence[Draft], seed: int = 0) -> State:
    return State(folded(drafts, seed))


# --- events at random ----------------------------------------------------------------------------


def members(shape: Any) -> SearchStrategy[Any]:
    """A value of the type of a member of a payload."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return members(arguments[0])
    if origin is list:
        return st.lists(members(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(
            st.sampled_from(("input", "output", "cost")), json_values(), max_size=2
        )
    if arguments:
        return st.one_of([members(each) for each in arguments])
    simple: dict[Any, SearchStrategy[Any]] = {
        str: IDS | texts(max_size=4),
        int: st.integers(0, 9),
        float: st.floats(0, 9) | st.just(1.7e308),
        bool: st.booleans(),
        type(None): st.none(),
        Any: json_values(max_leaves=3),
        Error: st.just({"code": "C", "message": "why"}),
    }
    return simple[shape]


@st.composite
def payloads(draw: st.DrawFn, kind: str) -> Any:
    """Data that fits the type."""
    data = {}
    for field in msgspec.structs.fields(PAYLOADS[kind]):
        if field.required or draw(st.booleans()):
            data[field.name] = draw(members(field.type))
    return data


@st.composite
def spoken(draw: st.DrawFn) -> Draft:
    """An event of a type that views look at, mostly with data that fits."""
    kind = draw(st.sampled_from(SPOKEN))
    data = draw(payloads(kind) if draw(st.integers(0, 9)) else json_values())
    return one(kind, data, draw(AGENTS), draw(st.sampled_from((None, "t1", "t2"))))


def logs() -> SearchStrategy[list[Draft]]:
    return st.lists(spoken(), max_size=40)


def stored(fold: Fold) -> dict[str, dict[str, Any]]:
    """Rows as they come back from where they are kept."""
    rows: dict[str, dict[str, Any]] = values.decode(
        values.encode({name: dict(rows.all) for name, rows in fold.rows.items()})
    )
    return rows


@settings(max_examples=scaled(3000))
@given(logs(), st.data())
def test_a_log_read_in_two_parts_says_the_same(log: list[Draft], data: st.DataObject) -> None:
    """Rows that were stored half way and read again come to the same as one reading."""
    cut = data.draw(st.integers(0, len(log)))
    seed = data.draw(st.integers(0, len(log)))
    events = [each.at(seq) for seq, each in enumerate(log)]
    whole = folded(log, seed)
    first = folded(log[:cut], seed)
    kept = {name: dict(rows) for name, rows in stored(first).items()}
    for rows in first.rows.values():
        rows.stored()
    records = seal(first.position, log[cut:])

    second = Fold(BUILTIN, whole.header, reader(events), rows=kept, position=first.position)
    for each in log[cut:]:
        # One record each, as the smallest commits make them.
        second.records(seal(second.position, [each]))
    first.records(records)

    assert stored(second) == stored(whole) == stored(first)
    assert values.encode(State(second).as_dict() | {"position": 0}) == values.encode(
        State(whole).as_dict() | {"position": 0}
    )


@settings(max_examples=scaled(2000))
@given(logs(), st.integers(1, 7))
def test_rows_restored_from_changes_say_the_same(log: list[Draft], every: int) -> None:
    """What changed, stored bit by bit, makes the same answers, in the same order, as all of it."""
    kept: dict[str, dict[str, Any]] = {view.name: {} for view in BUILTIN}
    fold = folded([])
    for start in range(0, len(log), every):
        fold.records(seal(fold.position, log[start : start + every]))
        for name, rows in fold.rows.items():
            put, removed = rows.changes()
            for key in removed:
                kept[name].pop(key, None)
            kept[name] |= put
            rows.stored()

    events = [each.at(seq) for seq, each in enumerate(log)]
    restored = Fold(
        BUILTIN, fold.header, reader(events), rows=kept if log else None, position=fold.position
    )

    if log:
        assert values.encode(State(restored).as_dict()) == values.encode(State(fold).as_dict())


@settings(max_examples=scaled(3000))
@given(logs(), st.sampled_from(TYPES), json_values(), st.data())
def test_malformed_data_is_counted_nowhere(
    log: list[Draft], kind: str, junk: Any, data: st.DataObject
) -> None:
    """Data that does not fit its type raises nothing and changes no row but an agent's end."""
    if data.draw(st.booleans()):
        fields = [field.name for field in msgspec.structs.fields(PAYLOADS[kind])]
        good = data.draw(payloads(kind))
        if fields:
            junk = good | {data.draw(st.sampled_from(fields)): junk}
    bad = one(kind, junk, "x")
    if fitting(bad.at(0)) is not None:
        return
    before, after = stored(folded(log)), stored(folded([*log, bad]))

    before.pop("agents")
    after.pop("agents")
    assert after == before


@settings(max_examples=scaled(2000))
@given(logs(), spoken())
def test_an_event_changes_few_rows(log: list[Draft], last: Draft) -> None:
    """However long the log, one event changes a handful of rows, but for what clears a scope."""
    fold = folded(log)
    for rows in fold.rows.values():
        rows.stored()
    fold.records(seal(fold.position, [last]))
    most = 6
    if last.type == "session/resumed":
        most += 2 * len(log)
    for name, rows in fold.rows.items():
        put, removed = rows.changes()
        # What compaction and rewinding take away is measured where conversations are.
        if last.type != "state/deleted" and name != "conversation":
            assert len(put) + len(removed) <= most, name


def test_rows_do_not_grow_with_the_log() -> None:
    """After thousands of events of every kind no row is larger than what one event brought."""
    log = [one("turn/start", {}, "a", "t"), one("job/start", {"id": "j"}, "a")]
    for number in range(1500):
        name = str(number)
        log += [
            one("job/update", {"id": "j", "output": "x" * 50}),
            one("channel/message", {"channel": "c", "sender": "s", "content": "x" * 50}),
            one("usage", {"response": name, "input": 5}, "a"),
            one("job/start", {"id": name}),
            one("job/update", {"id": name, "output": number}),
            one("job/end", {"id": name, "status": "completed"}),
            one("subagent/start", {"id": name}),
            one("subagent/end", {"id": name, "status": "completed"}),
            one("step/start", {"step": 1}, "a", "t"),
        ]
    fold = folded(log)

    assert (
        max(len(values.encode(row)) for rows in stored(fold).values() for row in rows.values())
        < 300
    )
    # Windows are bounded: 100 messages, 100 jobs and sub-agents, 64 responses, and their slots.
    assert sum(len(rows) for rows in fold.rows.values()) < 800


def test_answers_do_not_depend_on_the_order_of_rows() -> None:
    """Rows come back from storage in any order; every list and object is in the log's order."""
    log = [one("turn/start", {}, name, "t") for name in ("b", "a", None)]
    for name in ("b", "c", "a"):
        log += [
            one("state/set", {"key": name, "value": 1, "scope": scope}, agent)
            for scope in ("settings", "scratchpad", "z", "y")
            for agent in ("b", None, "a")
        ]
        log += [
            one("trigger/set", {"id": name, "kind": "k"}),
            one("channel/message", {"channel": name, "sender": "s", "content": 1}),
            one("job/start", {"id": name}),
            one("job/end", {"id": name, "status": "interrupted"}),
            one("subagent/start", {"id": name}),
            one("artifact/saved", {"name": name, "blob": "0", "size": 1}),
            one("usage", {"model": name, "cost": 0.1, "currency": name}, name),
            one("usage", {"response": name, "model": name, "cost": 0.7, "currency": "a"}, name),
        ]
    fold = folded(log)
    turned = {name: dict(reversed([*rows.all.items()])) for name, rows in fold.rows.items()}
    other = Fold(BUILTIN, fold.header, reader([]), rows=turned, position=fold.position)

    assert values.encode(State(other).as_dict()) == values.encode(State(fold).as_dict())
    state = State(fold)
    in_order = (state.triggers, state.channels, state.jobs, state.subagents)
    assert [list(found) for found in in_order] == [["b", "c", "a"]] * 4
    assert [job.id for job in state.untold_jobs] == ["b", "c", "a"]
    assert list(state.agents) == ["b", "a", None, "c"]
    assert list(state.scratchpad()) == list(state.artifacts) == ["a", "b", "c"]
    assert list(state.usage.by_agent) == ["a", "b", "c"]


# --- keys and windows ----------------------------------------------------------------------------


@given(st.lists(st.none() | texts(), max_size=3), st.lists(st.none() | texts(), max_size=3))
def test_keys_tell_their_parts_apart(one: list[str | None], other: list[str | None]) -> None:
    """Different parts make different keys, and a key gives its parts back."""
    assert parts_of(key_of(*one)) == one
    assert (key_of(*one) == key_of(*other)) == (one == other)


@given(st.integers(1, 5), st.integers(0, 20))
def test_a_window_keeps_the_last(size: int, count: int) -> None:
    """A window gives back what leaves it, in order, and keeps the last ones."""
    window = Window(Rows(), size, "w")

    gone = [window.put(number) for number in range(count)]

    assert [each for each in gone if each is not None] == list(range(max(0, count - size)))
    assert window.values() == list(range(count))[-size:]
    assert (window.count, window.first) == (count, max(0, count - size))


# --- state ---------------------------------------------------------------------------------------


def test_values_are_kept_by_scope_agent_and_key() -> None:
    """A key means one thing per scope and agent; the last value holds, and deleting removes it."""
    log = [
        one("state/set", {"key": "k", "value": 1}),
        one("state/set", {"key": "k", "value": {"deep": [1]}}),
        one("state/set", {"key": "k", "value": 2}, "a"),
        one("state/set", {"key": "k", "value": 3, "scope": "settings"}),
        one("state/set", {"key": "n", "value": 4, "scope": "counters"}, "a"),
        one("state/set", {"key": "z", "value": None}),
        one("state/set", {"key": "b", "value": None, "scope": "acme"}),
        one("state/deleted", {"key": "z"}, "a"),
    ]
    state = said(log)

    assert state.scratchpad() == {"k": {"deep": [1]}, "z": None}
    assert state.scratchpad("a") == {"k": 2}
    assert state.settings() == {"k": 3}
    assert (state.counters(), state.counters("a")) == ({}, {"n": 4})
    assert state.scope("acme") == {"b": None}
    assert said([*log, one("state/deleted", {"key": "z"})]).scratchpad() == {"k": {"deep": [1]}}


def test_a_scope_is_deleted_as_a_whole() -> None:
    """Without a key all values of the scope go, of that agent alone and of no other scope."""
    log = [
        one("state/set", {"key": key, "value": 1, "scope": scope}, agent)
        for key in ("x", "y")
        for scope in ("scratchpad", "settings")
        for agent in (None, "a", "None")
    ]
    state = said([*log, one("state/deleted", {}, "a")])

    assert state.scratchpad("a") == {}
    both = {"x": 1, "y": 1}
    assert state.scratchpad() == state.scratchpad("None") == state.settings("a") == both
    assert said([*log, one("state/deleted", {"scope": "settings"})]).settings() == {}


def test_what_is_given_out_may_be_changed() -> None:
    """A value that a caller changes stays as it was for everybody else."""
    state = said([one("state/set", {"key": "plan", "value": ["look"]})])

    state.scratchpad()["plan"].append("write")

    assert state.scratchpad() == {"plan": ["look"]}


# --- triggers ------------------------------------------------------------------------------------


def test_a_trigger_that_fires_keeps_its_new_state() -> None:
    """`state` of a firing takes the place of what was set, null too; without it all stays."""
    log = [
        one("trigger/set", {"id": "t", "kind": "timer", "state": {"next": 1}}, "a"),
        one("trigger/fired", {"id": "t", "content": "ring"}),
        one("trigger/fired", {"id": "other"}),
    ]
    state = said(log)
    assert list(state.triggers) == ["t"]
    assert state.triggers["t"]._asdict() == {
        "id": "t",
        "kind": "timer",
        "state": {"next": 1},
        "agent": "a",
        "seq": 0,
        "fired": 1,
        "last_fired": 7,
    }

    log.append(one("trigger/fired", {"id": "t", "state": {"next": 2}}))
    assert (said(log).triggers["t"].state, said(log).triggers["t"].fired) == ({"next": 2}, 2)
    log.append(one("trigger/fired", {"id": "t", "state": None}))
    assert said(log).triggers["t"].state is None
    log.append(one("trigger/set", {"id": "t", "kind": "timer"}))
    assert said(log).triggers["t"].fired == 0
    log.append(one("trigger/cleared", {"id": "t"}))
    assert said(log).triggers == {}


# --- channels ------------------------------------------------------------------------------------


def test_a_channel_counts_all_and_shows_the_last() -> None:
    """Every message counts, the last hundred of each channel are at hand, oldest first."""
    many = channels.MESSAGES_MAX + 30
    log = [one("channel/message", {"channel": "b", "sender": "s", "content": 0, "id": "m"}, "a")]
    log += [
        one("channel/message", {"channel": "a", "sender": "s", "content": number})
        for number in range(many)
    ]
    found = said(log).channels

    assert list(found) == ["b", "a"]
    assert (found["a"].count, found["b"].count) == (many, 1)
    assert [post.content for post in found["a"].messages] == list(range(30, many))
    post = found["b"].messages[0]
    assert (post.seq, post.time, post.sender, post.id, post.agent) == (0, 7, "s", "m", "a")


# --- jobs and sub-agents -------------------------------------------------------------------------


def test_a_job_is_whole_while_it_is_open() -> None:
    """An open job has what it was begun with and what it told last, then how it ended."""
    log = [
        one("job/start", {"id": "j", "kind": "shell", "name": "n", "arguments": [1]}, "a", "t"),
        one("job/update", {"id": "j", "output": "one"}),
        one("job/update", {"id": "j", "output": "two"}),
        one("job/update", {"id": "unknown", "output": "x"}),
    ]
    job = said(log).jobs["j"]
    assert list(said(log).jobs) == ["j"]
    assert (job.status, job.kind, job.name, job.arguments) == (None, "shell", "n", [1])
    assert (job.agent, job.turn, job.seq, job.updates, job.output) == ("a", "t", 0, 2, "two")

    error = {"code": "E", "message": "no"}
    log.append(one("job/end", {"id": "j", "status": "failed", "result": 5, "error": error}))
    job = said(log).jobs["j"]
    assert (job.status, job.ended, job.result, job.untold) == ("failed", 4, 5, False)
    assert job.error == Error(code="E", message="no")

    log.append(one("job/start", {"id": "j"}))
    job = said(log).jobs["j"]
    assert (job.status, job.ended, job.updates, job.seq) == (None, None, 0, 5)


def ended(number: int, status: str = "completed") -> list[Draft]:
    name = f"j{number}"
    return [one("job/start", {"id": name}), one("job/end", {"id": name, "status": status})]


def test_of_ended_jobs_the_last_hundred_are_kept() -> None:
    """Open jobs stay however many end; ended ones leave in the order of their ends."""
    many = endings.ENDED_MAX + 20
    log = [one("job/start", {"id": "open"}), *ended(0)]
    log += [one("job/start", {"id": "j0"})]
    log += [each for number in range(1, many) for each in ended(number)]
    found = said(log).jobs

    assert (found["open"].status, found["j0"].status) == (None, None)
    left = [name for name, job in found.items() if job.status]
    assert left == [f"j{number}" for number in range(many - endings.ENDED_MAX, many)]

    subagents = [
        one(f"subagent/{what}", {"id": str(number), "status": "completed"})
        for number in range(many)
        for what in ("start", "end")
    ]
    assert list(said(subagents).subagents) == [str(number) for number in range(20, many)]


def test_a_job_that_died_is_untold_until_a_resume_names_it() -> None:
    """Interrupted jobs stay at hand, untold, till a `session/resumed` names each; then they go."""
    many = endings.ENDED_MAX + 5
    log = [*ended(-1, "interrupted"), *ended(-2, "interrupted"), *ended(-3, "failed")]
    log += [each for number in range(many) for each in ended(number)]
    assert [job.id for job in said(log).untold_jobs] == ["j-1", "j-2"]
    assert said(log).jobs["j-1"].untold

    log.append(one("session/resumed", {"run": "r", "told": ["j-2", "nobody", "j5"]}))
    assert [job.id for job in said(log).untold_jobs] == ["j-1"]
    assert "j-2" not in said(log).jobs
    log.append(one("session/started", {"run": "r", "told": ["j-1"]}))
    assert [job.id for job in said(log).untold_jobs] == ["j-1"]
    log.append(one("job/end", {"id": "j-1", "status": "completed"}))
    assert said(log).untold_jobs == []


def test_a_told_job_stays_while_it_is_among_the_last() -> None:
    """Being told of does not make a job that ended lately go."""
    log = [*ended(1, "interrupted"), one("session/resumed", {"run": "r", "told": ["j1"]})]

    job = said(log).jobs["j1"]

    assert (job.status, job.untold, said(log).untold_jobs) == ("interrupted", False, [])


def test_a_sub_agent_leads_to_its_session() -> None:
    """A sub-agent at work names its session and task, and when it ended what came of it."""
    log = [
        one("subagent/start", {"id": "s", "session": "child", "name": "n", "task": "t"}, "a", "u")
    ]
    found = said(log).subagents["s"]
    assert (found.status, found.session, found.name, found.task) == (None, "child", "n", "t")
    assert (found.agent, found.turn, found.seq) == ("a", "u", 0)

    log.append(one("subagent/end", {"id": "s", "status": "completed", "result": {"ok": True}}))
    found = said(log).subagents["s"]
    assert (found.status, found.ended, found.result, found.error) == (
        "completed",
        1,
        {"ok": True},
        None,
    )
    assert found.session == "child"


# --- usage ---------------------------------------------------------------------------------------


def message(told: Any, response: str | None = None, **more: Any) -> Draft:
    data = {"content": [], "usage": told, **more}
    return one("assistant/message", data if response is None else data | {"response": response})


def test_a_response_is_counted_once() -> None:
    """A response that stands in three events with output 2, 40, 88 has an output of 88."""
    log = [message({"input": 10, "output": output}, "r") for output in (2, 40, 88)]
    found = said(log).usage.own

    assert (found.responses, found.input, found.output) == (1, 10, 88)
    twice = said([*log, message({"output": 1}, "q")]).usage.own
    assert (twice.responses, twice.output) == (2, 89)


def test_a_message_and_its_usage_event_count_once() -> None:
    """A `usage` of a response whose message told already adds what it alone knows."""
    log = [
        message({"input": 10, "output": 5}, "r", model="m"),
        one("usage", {"response": "r", "cost": 0.25, "currency": "EUR", "reasoning": 3}),
    ]
    for order in (log, log[::-1]):
        found = said(order).usage
        assert found.own == usage.Totals(1, 10, 5, 0, 3, {"EUR": 0.25})
        assert found.by_model == {"m": found.own}


def test_responses_without_an_id_count_each() -> None:
    """Nothing says that two responses without an id are one."""
    found = said([message({"output": 2}), message({"output": 2}), message({})]).usage.own

    assert (found.responses, found.output) == (2, 4)


def test_usage_is_told_apart_by_agent_model_and_currency() -> None:
    """Sums of agents and models make up the whole, and no two currencies are added."""
    log = [
        one("usage", {"model": "m", "input": 1, "cost": 1.5, "currency": "USD"}, "a"),
        one("usage", {"model": "n", "input": 2, "cost": 2, "currency": "EUR"}, "a"),
        one("usage", {"input": 4, "cost": 0.5}),
    ]
    found = said(log).usage

    assert found.own == usage.Totals(3, 7, 0, 0, 0, {"": 0.5, "EUR": 2.0, "USD": 1.5})
    assert {name: sums.input for name, sums in found.by_agent.items()} == {None: 4, "a": 3}
    assert {name: sums.input for name, sums in found.by_model.items()} == {None: 4, "m": 1, "n": 2}
    assert found.by_agent["a"].cost == {"EUR": 2.0, "USD": 1.5}


def test_a_fork_does_not_count_what_it_inherited() -> None:
    """Responses before the fork are the parent's, one that goes on behind it too."""
    log = [message({"output": 7}, "old"), message({"output": 1}, "r"), message({"output": 5}, "r")]
    log.append(message({"output": 100}, "new"))
    found = said(log, seed=2).usage

    assert (found.own.responses, found.own.output) == (1, 100)
    assert (found.inherited.responses, found.inherited.output) == (2, 12)
    assert found.by_agent == {None: found.own}
    assert found.inherited_by_agent == {None: found.inherited}


@settings(max_examples=scaled(1000))
@given(st.lists(st.tuples(IDS, st.integers(0, 9)), max_size=30), st.data())
def test_a_family_of_forks_adds_up(told: list[tuple[str, int]], data: st.DataObject) -> None:
    """What sessions of a fork family used themselves is never more than all that was used."""
    log = [message({"output": output}, response) for response, output in told]
    cut = data.draw(st.integers(0, len(log)))
    other = [message({"output": 3}, f"other {number}") for number in range(4)]
    parent, child = said(log).usage, said([*log[:cut], *other], seed=cut).usage

    largest = {name: 0 for name, _ in told}
    for name, output in told:
        largest[name] = max(largest[name], output)
    assert parent.own.output + child.own.output <= sum(largest.values()) + 12
    assert child.own.output == 12
    assert child.inherited == said(log[:cut]).usage.own


def test_a_response_can_be_told_of_again_for_a_while() -> None:
    """Among the last 64 responses a repeat corrects; a name of any length is a name."""
    between = usage.RESPONSES_MAX - 1
    long = "x" * 100_000
    log = [message({"output": 1}, long)]
    log += [message({"output": 1}, str(number)) for number in range(between)]
    found = said([*log, message({"output": 50}, long)])
    assert (found.usage.own.responses, found.usage.own.output) == (between + 1, between + 50)
    assert max(map(len, found["usage"])) < 200

    # One more, and the first response is settled: told again, it is another one.
    log += [message({"output": 1}, "more"), message({"output": 50}, long)]
    found = said(log)
    assert (found.usage.own.responses, found.usage.own.output) == (between + 3, between + 52)


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        (
            {"input_tokens": 3, "cache_read_input_tokens": 20, "output_tokens": 5,
             "cache_creation_input_tokens": 100, "service_tier": "standard"},
            (123, 5, 20, 0),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18,
             "prompt_tokens_details": {"cached_tokens": 4, "\ud83d": 0},
             "completion_tokens_details": {"reasoning_tokens": 6}},
            (10, 8, 4, 6),
        ),
        (
            {"input_tokens": 10, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 4},
             "output_tokens_details": {"reasoning_tokens": 6}},
            (10, 8, 4, 6),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 8, "cost": 0.5, "output": 9}, (10, 9, 0, 0)),
        ({"input_tokens": 3, "cache_read_input_tokens": None, "output_tokens": 5}, (3, 5, 0, 0)),
    ],
    ids=["anthropic", "chat completions", "responses", "both", "nulls"],
)  # fmt: skip
def test_usage_as_providers_say_it_is_understood(told: Any, counts: tuple[int, ...]) -> None:
    """What a provider's API says is counted in the vocabulary's terms."""
    for log in ([message(told)], [one("usage", told)]):
        found = said(log).usage.own
        assert (found.input, found.output, found.cached, found.reasoning) == counts


@pytest.mark.parametrize(
    "told",
    [
        {"output": -1},
        {"output": 1.5},
        {"output": True},
        {"output": 2**60},
        {"output": 10**400},
        {"output": 3, "cost": -1},
        {"output": 3, "cost": "free"},
        {"output": 3, "input_tokens": "many"},
        {"currency": "EUR"},
        {"tokens": 3},
        "88",
        None,
        [],
    ],
)
def test_usage_that_is_no_count_is_counted_nowhere(told: Any) -> None:
    """Negative, broken, boundless and unknown usage counts neither as tokens nor as a response."""
    state = said([message(told, "r"), one("usage", told)])

    assert state.usage.own == usage.Totals(0, 0, 0, 0, 0, {})


def test_costs_stay_numbers() -> None:
    """A sum of costs beyond what a float holds is the largest float, which JSON can carry."""
    log = [one("usage", {"cost": 1.7e308}) for _ in range(3)]
    found = folded(log)

    assert State(found).usage.own.cost[""] == pytest.approx(1.797e308, rel=1e-3)
    assert stored(found)["usage"] == dict(found.rows["usage"].all)


# --- agents, artifacts, the session --------------------------------------------------------------


def test_agents_say_how_far_they_are() -> None:
    """Each agent has its first and last event, its turns and steps, and its last request."""
    log = [
        one("session/started", {"run": "r"}),
        one("turn/start", {}, "a", "t1"),
        one("step/start", {"step": 1}, "a", "t1"),
        one("request/header", {"header": {"model": "m"}}, "a", "t1"),
        one("user/message", {"content": []}, "b"),
        one("turn/end", {"reason": "completed"}, "a", "t1"),
        one("turn/start", {}, "a", "t2"),
        one("acme/x", {}, "a"),
    ]
    found = said(log).agents

    assert list(found) == ["a", "b"]
    assert found["a"]._asdict() == {
        "name": "a",
        "first": 1,
        "last": 6,
        "turns": 2,
        "steps": 1,
        "turn": "t2",
        "ended": None,
        "header": {"model": "m"},
    }
    assert (found["b"].first, found["b"].last, found["b"].turns) == (4, 4, 0)
    log += [one("turn/end", {"reason": "error"}, "a", "t1")]
    assert said(log).agents["a"].ended is None
    log += [one("turn/end", {"reason": "error"}, "a", "t2")]
    assert said(log).agents["a"].ended == "error"


def test_an_artifact_is_what_was_saved_last() -> None:
    """A name stands for its last content; names are in order."""
    log = [
        one("artifact/saved", {"name": "b", "blob": "1" * 64, "size": 1}),
        one("artifact/saved", {"name": "a", "blob": "2" * 64, "size": 2, "media_type": "x/y"}),
        one("artifact/saved", {"name": "b", "blob": "3" * 64, "size": 3}),
    ]
    found = said(log).artifacts

    assert list(found) == ["a", "b"]
    assert tuple(found["b"]) == ("b", "3" * 64, 3, None, 2)
    assert tuple(found["a"]) == ("a", "2" * 64, 2, "x/y", 1)


def test_facts_of_the_session_are_the_last_said() -> None:
    """Title, archived, run, place and end are what was said last."""
    log = [
        one("session/started", {"run": "r1", "host": "h", "pid": 3}),
        one("session/titled", {"title": "one"}),
        one("session/titled", {"title": "two"}),
        one("session/archived", {}),
    ]
    state = said(log)
    assert (state.title, state.archived, state.ended, state.cwd) == ("two", True, False, "/here")
    assert state.run is not None
    assert tuple(state.run) == ("r1", False, "h", 3, 0, 7)

    log += [one("session/unarchived", {}), one("session/ended", {"reason": "done"})]
    assert (said(log).archived, said(log).ended) == (False, True)
    log += [one("session/resumed", {"run": "r2", "cwd": "/there"})]
    log += [one("session/resumed", {"run": "r3"})]
    state = said(log)
    assert state.run is not None
    assert (state.run.id, state.run.resumed, state.ended, state.cwd) == (
        "r3",
        True,
        False,
        "/there",
    )


def test_a_fork_is_not_archived_with_its_parent() -> None:
    """What was said of the parent's place and end does not hold for its fork; the title does."""
    log = [
        one("session/titled", {"title": "one"}),
        one("session/resumed", {"run": "r", "cwd": "/there"}),
        one("session/archived", {}),
        one("session/ended", {}),
        one("session/forked", {"header": "0" * 64, "session": "p", "seq": 3}),
    ]
    state = said(log, seed=4)

    assert (state.title, state.archived, state.ended, state.run) == ("one", False, False, None)
    assert state.cwd == "/here"


def test_names_of_the_views_are_fixed() -> None:
    """Callers find the rows of the views under these names."""
    assert {view.name for view in BUILTIN} == {
        "conversation",
        "state",
        "triggers",
        "channels",
        "jobs",
        "effects",
        "subagents",
        "usage",
        "agents",
        "artifacts",
        "session",
    }
    assert len({view.name for view in BUILTIN}) == len(BUILTIN)
    assert all(view.types <= PAYLOADS.keys() for view in BUILTIN)
