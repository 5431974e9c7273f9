"""State: what the views of a session say, by name."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.model import values
from perdure.model.event import Draft, Event, draft
from perdure.model.header import new_header
from perdure.model.record import Position, seal
from perdure.store.state import State
from perdure.views.builtin import BUILTIN
from perdure.views.fold import Fold
from perdure.views.view import History, Rows, View


class Deploys(View):
    """A user's view: how often each host was deployed to."""

    name = "acme-deploys"
    version = 1
    types = frozenset({"acme/deploy"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        if isinstance(event.data, dict) and isinstance(host := event.data.get("host"), str):
            rows.put(host, rows.get(host, 0) + 1)


def one(kind: str, data: Any, agent: str | None = None, turn: str | None = None) -> Draft:
    return draft(kind, data, time=5, agent=agent, turn=turn)


LOG = (
    one("session/started", {"run": "r", "host": "h", "pid": 1}),
    one("session/titled", {"title": "a title"}),
    one("turn/start", {}, None, "t1"),
    one("user/message", {"content": [{"type": "text", "text": "hello"}]}, None, "t1"),
    one("turn/end", {"reason": "completed"}, None, "t1"),
    one("turn/start", {}, "coder", "t2"),
    one("state/set", {"key": "plan", "value": ["\ud83d", 10**30]}, "coder"),
    one("state/set", {"key": "plan", "value": 1}),
    one("state/set", {"key": "n", "value": 2, "scope": "counters"}),
    one("state/set", {"key": "x", "value": 3, "scope": "acme"}, "coder"),
    one("trigger/set", {"id": "t", "kind": "timer", "state": {"at": 1}}),
    one("channel/message", {"channel": "c", "sender": "s", "content": {"a": 1}}),
    one("job/start", {"id": "j"}),
    one("job/end", {"id": "j", "status": "interrupted", "error": {"code": "C", "message": "m"}}),
    one("subagent/start", {"id": "u", "session": "child"}),
    draft("effect/intent", {"about": ["mail"]}, time=5, turn="t1", key="mail"),
    draft("effect/intent", {}, time=5, key="done"),
    draft("effect/outcome", {"status": "completed"}, time=5, key="done"),
    one("artifact/saved", {"name": "f", "blob": "0" * 64, "size": 1}),
    one("usage", {"response": "q", "output": 3, "cost": 0.5, "currency": "EUR"}),
    one("acme/deploy", {"host": "web"}),
    one("acme/other", 5),
    one("acme/other", 6),
)


def fold_of(log: tuple[Draft, ...], *views: View) -> Fold:
    head = new_header("s", created_at=0, cwd="/here")
    events = [each.at(seq) for seq, each in enumerate(log)]

    def read(end: int) -> Iterator[Event]:
        return iter(events[:end])

    fold = Fold((*BUILTIN, *views), head, read)
    fold.records(seal(Position(-1, head.genesis), log))
    return fold


def test_everything_has_a_name() -> None:
    """Each part of a session is said by an attribute of its own, with a type."""
    fold = fold_of(LOG, Deploys())
    state = State(fold)

    assert (state.title, state.archived, state.ended, state.cwd) == (
        "a title",
        False,
        False,
        "/here",
    )
    assert state.run is not None
    assert (state.run.id, state.run.host, state.run.pid) == ("r", "h", 1)
    assert state.position == fold.position
    assert state.position.seq == len(LOG) - 1
    assert (state.head(), state.head("coder"), state.head("nobody")) == ("t1", "t2", None)
    assert list(state.agents) == [None, "coder"]
    assert (state.scratchpad(), state.scratchpad("coder")) == (
        {"plan": 1},
        {"plan": ["\ud83d", 10**30]},
    )
    assert (state.counters(), state.settings(), state.scope("acme", "coder")) == (
        {"n": 2},
        {},
        {"x": 3},
    )
    assert state.triggers["t"].state == {"at": 1}
    assert state.channels["c"].messages[0].content == {"a": 1}
    assert [job.id for job in state.untold_jobs] == ["j"]
    assert state.subagents["u"].session == "child"
    assert list(state.effects) == ["mail"]
    assert (state.effects["mail"].about, state.effects["mail"].turn) == (["mail"], "t1")
    assert state.artifacts["f"].size == 1
    assert state.usage.own.cost == {"EUR": 0.5}
    assert repr(state) == f"<State of 's' at {len(LOG) - 1}>"


def test_all_of_it_is_plain_json() -> None:
    """`as_dict` has every part, in JSON alone, and says what the attributes say."""
    state = State(fold_of(LOG, Deploys()))
    told = state.as_dict()

    assert values.decode(values.encode(values.snapshot(told))) == told
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["position"] == {"seq": len(LOG) - 1, "hash": state.position.hash}
    assert told["agents"]["coder"]["head"] == "t2"
    assert told["agents"][""]["turns"] == 1
    assert told["scratchpad"] == {"": {"plan": 1}, "coder": {"plan": ["\ud83d", 10**30]}}
    assert (told["settings"], told["counters"]) == ({}, {"": {"n": 2}})
    assert told["scopes"] == {"acme": {"coder": {"x": 3}}}
    assert told["jobs"]["j"]["error"] == {"code": "C", "message": "m"}
    assert told["untold_jobs"] == ["j"]
    assert told["channels"]["c"]["count"] == 1
    assert told["channels"]["c"]["messages"][0]["sender"] == "s"
    assert told["triggers"]["t"]["kind"] == "timer"
    assert told["subagents"]["u"]["status"] is None
    assert told["artifacts"]["f"]["blob"] == "0" * 64
    assert told["effects"] == {"mail": state.effects["mail"]._asdict()}
    assert told["usage"]["own"]["output"] == 3
    assert told["usage"]["by_agent"] == {"": told["usage"]["own"]}
    assert told["run"]["pid"] == 1
    assert told["skipped"] == {"acme/other": 2}
    assert told["views"] == {"acme-deploys": {"web": 1}}


def test_a_session_of_nothing_has_a_state() -> None:
    """Before the first event everything is empty, and nothing raises."""
    told = State(fold_of(())).as_dict()

    assert told["position"]["seq"] == -1
    assert (told["title"], told["run"], told["archived"], told["cwd"]) == (
        None,
        None,
        False,
        "/here",
    )
    empty = ("agents", "scratchpad", "triggers", "channels", "jobs", "subagents", "artifacts")
    assert [told[name] for name in (*empty, "effects", "skipped", "views")] == [{}] * 10
    assert told["usage"]["own"]["responses"] == 0


def test_rows_of_every_view_can_be_looked_at() -> None:
    """As a mapping, state has the rows of each view, the user's too, and they cannot be set."""
    state = State(fold_of(LOG, Deploys()))

    assert set(state) == {view.name for view in BUILTIN} | {"acme-deploys"}
    assert len(state) == len(BUILTIN) + 1
    assert state["acme-deploys"] == {"web": 1}
    assert "acme" not in state
    with pytest.raises(KeyError):
        state["acme"]
    with pytest.raises(TypeError):
        state["acme-deploys"]["web"] = 2  # type: ignore[index]


def test_what_no_view_looks_at_is_counted() -> None:
    """Types outside the vocabulary are counted, but for those that a view of the user's reads."""
    assert State(fold_of(LOG, Deploys())).skipped == {"acme/other": 2}
    assert State(fold_of(LOG)).skipped == {"acme/deploy": 1, "acme/other": 2}


def test_a_state_does_not_change_with_the_session() -> None:
    """What was asked for before an event does not know of it."""
    fold = fold_of(LOG, Deploys())
    before = State(fold)
    told = before.as_dict()

    more = (
        one("state/set", {"key": "plan", "value": 2}),
        one("acme/deploy", {"host": "web"}),
        one("acme/other", 7),
        one("job/end", {"id": "j", "status": "completed"}),
    )
    fold.records(seal(fold.position, more))

    assert before.as_dict() == told
    assert State(fold).scratchpad() == {"plan": 2}
    assert State(fold).position != before.position
