"""What the lens of Codex makes of events that the screen showed of calls."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codex_lines import (
    call,
    event,
    item,
    line,
    model,
    output,
    read,
    rows,
    said_of,
    tokens,
    told,
    typed,
    user,
)
from tests.lens_lines import Record, Row, transcript, view

FAILED = ("FAILED", "the tool reported a failure")


def done(kind: str, /, **members: Any) -> Record:
    return event("item_completed", item={"type": kind, "id": "c", **members})


def shown(kind: str, /, **members: Any) -> Record:
    return event(kind, call_id="c", **members)


INVOCATION = {"server": "s", "tool": "t", "arguments": {"a": 1}}
TEXT = {"type": "text", "text": "out"}
STRUCTURED = {"content": [], "structuredContent": {"n": 1}, "isError": True}
DYNAMIC: Record = {"tool": "t", "namespace": "n", "arguments": {"a": 1}}
SAID: Record = {"content_items": [{"type": "inputText", "text": "out"}], "success": True}
COMMAND: Record = {"command": ["ls"], "cwd": "/w", "exit_code": 0, "aggregated_output": "out"}
STREAMS: Record = {"stdout": "out", "stderr": "err", "exit_code": 2}
CHANGES: Record = {"changes": {"/f": {"type": "add"}}}
SEARCH: Record = {"query": "q", "action": {"type": "search", "query": "q"}}
DRAWN: Record = {"status": "completed", "revised_prompt": "cat", "result": "iVBORw0"}
AGENT: Record = {"prompt": "do", "status": {"completed": "out"}}
STATES: Record = {"tool": "spawnAgent", "prompt": "do", "agents_states": {"a": "running"}}

MCP = ("mcp__s__t", {"a": 1})
RAN = ("exec_command", {"command": ["ls"], "cwd": "/w"})
PATCHED = ("apply_patch", CHANGES)
DREW = ("image_generation", {"prompt": "cat"}, ["[image image/png]"])
STATUS = ['{"completed":"out"}']

ALONE: list[tuple[Record, Row]] = [
    (
        shown("mcp_tool_call_end", invocation=INVOCATION, result={"Ok": {"content": [TEXT]}}),
        (*MCP, ["out"]),
    ),
    (
        shown("mcp_tool_call_end", invocation=INVOCATION, result={"Err": "out"}),
        (*MCP, ["out"], *FAILED),
    ),
    (
        shown("mcp_tool_call_end", invocation=INVOCATION, result={"Ok": STRUCTURED}),
        (*MCP, ['{"n":1}'], *FAILED),
    ),
    (done("McpToolCall", **INVOCATION, result={"content": [TEXT]}), (*MCP, ["out"])),
    (
        done("McpToolCall", **INVOCATION, status="failed", error={"message": "out"}),
        (*MCP, ["out"], *FAILED),
    ),
    (shown("dynamic_tool_call_response", **DYNAMIC, **SAID), ("n__t", {"a": 1}, ["out"])),
    (
        shown("dynamic_tool_call_response", tool="t", content_items=[], success=False, error="out"),
        ("t", {}, ["out"], *FAILED),
    ),
    (done("DynamicToolCall", **DYNAMIC, **SAID), ("n__t", {"a": 1}, ["out"])),
    (
        shown("view_image_tool_call", path="/i.png"),
        ("view_image", {"path": "/i.png"}, ["[image image/png]"]),
    ),
    (done("ImageView", path="/i"), ("view_image", {"path": "/i"}, ["[image]"])),
    (shown("exec_command_end", **COMMAND, stdout="x"), (*RAN, ["out"])),
    (
        shown("exec_command_end", command="ls", **STREAMS),
        ("exec_command", {"command": "ls"}, ["out", "err"], *FAILED),
    ),
    (done("CommandExecution", **COMMAND, status="declined"), (*RAN, ["out"], *FAILED)),
    (shown("patch_apply_end", **CHANGES, success=True, stdout="out"), (*PATCHED, ["out"])),
    (
        shown("patch_apply_end", success=False, stderr="out"),
        ("apply_patch", {}, ["out"], *FAILED),
    ),
    (done("FileChange", **CHANGES, status="completed", stderr=""), (*PATCHED, [])),
    (shown("web_search_end", **SEARCH), ("web_search", SEARCH["action"], [])),
    (
        shown("web_search_end", query="q", results=[{"url": "u"}]),
        ("web_search", {"query": "q"}, ['[{"url":"u"}]']),
    ),
    (done("WebSearch", **SEARCH), ("web_search", SEARCH["action"], [])),
    (shown("image_generation_end", **DRAWN), DREW),
    (done("ImageGeneration", **DRAWN), DREW),
    (shown("collab_agent_spawn_end", **AGENT), ("spawn_agent", {"prompt": "do"}, STATUS)),
    (shown("collab_agent_interaction_end", **AGENT), ("send_input", {"prompt": "do"}, STATUS)),
    (shown("collab_waiting_end", statuses={"a": "x"}), ("wait", {}, ['{"a":"x"}'])),
    (shown("collab_close_end", status="shutdown"), ("close_agent", {}, ["shutdown"])),
    (shown("collab_resume_end", status="running"), ("resume_agent", {}, ["running"])),
    (
        done("CollabAgentToolCall", **STATES, status="completed"),
        ("spawn_agent", {"prompt": "do"}, ['{"a":"running"}']),
    ),
]
EVENTS = [record for record, _ in ALONE]
REQUEST = event("dynamic_tool_call_request", callId="c", turnId="t", **DYNAMIC)
BROKEN = shown("exec_command_end", **COMMAND | {"exit_code": 1})
"""A command of which only the event says that it failed."""


def kind_of(record: Record) -> str:
    said = record["payload"]
    return str(said["item"]["type"] if said["type"] == "item_completed" else said["type"])


KINDS = [kind_of(record) for record in EVENTS]


# --- alone --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "expected"), ALONE, ids=KINDS)
def test_a_call_that_no_item_tells_is_told_from_its_event(record: Record, expected: Row) -> None:
    """A call and its result are told where the event stands, failed if it did, and no message."""
    said = said_of(typed("go"), record)
    name, arguments, *result = expected
    assert rows(said)[2:] == [
        (1, "call", "prompt-0", "c"),
        (1, "result", "prompt-0", "c", *result),
    ]
    assert [each.data for each in said if each.type == "tool/call"] == [
        {"id": "c", "name": name, "arguments": arguments}
    ]
    assert [message["role"] for message in transcript(said)] == ["user"]
    lens = read(record)[1]
    assert (lens.told, lens.missed, sum(lens.raw.values())) == (1, 0, 0)


UNDER_WAY = [
    REQUEST,
    done("McpToolCall", **INVOCATION, status="inProgress"),
    done("DynamicToolCall", **DYNAMIC, status="in_progress"),
    done("CommandExecution", **COMMAND, status="inProgress"),
    done("FileChange", **CHANGES, status="in_progress"),
    done("CollabAgentToolCall", **STATES, status="inProgress"),
]


@pytest.mark.parametrize("record", UNDER_WAY)
def test_a_call_that_has_not_ended_has_no_result(record: Record) -> None:
    """Of a call that is under way only the call is told; what ends it later tells the result."""
    assert told(record) == [(0, "call", None, "c")]
    end = shown("dynamic_tool_call_response", **DYNAMIC, **SAID)
    assert told(record, typed("x"), end, end)[3:] == [(2, "result", "prompt-1", "c", ["out"])]


def test_several_events_tell_a_call_once() -> None:
    """Events of one call tell it once: its request and response, its old and its new kind."""
    response = shown("dynamic_tool_call_response", **DYNAMIC, **SAID)
    expected = [(0, "call", None, "c"), (1, "result", None, "c", ["out"])]
    assert told(REQUEST, response, done("DynamicToolCall", **DYNAMIC, **SAID)) == expected
    for record in EVENTS:
        assert len(told(*EVENTS, record)) == 2
        assert len(told(record, model("x"), output("other", ""), record)) == 4


def test_events_stand_in_the_order_of_the_log() -> None:
    """Calls of a tool that runs code stand behind its call, and before its result."""
    inner = [event("exec_command_end", call_id=id, command="ls") for id in "abc"]
    said = told(inner[0], model("x"), inner[1], call("run"), inner[2], output("run", "done"))
    assert [each[:2] for each in said] == [
        *((0, "call"), (0, "result"), (1, "model"), (2, "call"), (2, "result")),
        *((3, "call"), (4, "call"), (4, "result"), (5, "result")),
    ]
    assert said[2][3] == ["x", ("run", "sh", {})]


# --- what items tell as well --------------------------------------------------------------------


@pytest.mark.parametrize("record", EVENTS, ids=KINDS)
def test_an_event_says_again_what_items_say(record: Record) -> None:
    """Wherever the event stands, an item's call and result are told once, and by the items."""
    items = [call("c"), output("c", "own")]
    failed = FAILED if len(told(record)[1]) > 5 else ()
    begun: list[Row] = [(0, "model", None, [("c", "sh", {})]), (0, "call", None, "c")]
    assert told(items[0], record, items[1]) == [*begun, (2, "result", None, "c", ["own"], *failed)]
    assert told(*items, record) == [*begun, (1, "result", None, "c", ["own"])]
    assert told(record, *items) == [
        (1, "model", None, [("c", "sh", {})]),
        (1, "call", None, "c"),
        (2, "result", None, "c", ["own"], *failed),
    ]
    lens = read(items[0], record, items[1])[1]
    assert (lens.told, lens.missed, dict(lens.raw)) == (3, 0, {})


@pytest.mark.parametrize("record", EVENTS, ids=KINDS)
def test_items_far_behind_the_event_begin_no_second_call(record: Record) -> None:
    """Where the event was told alone, later items give the model's words, and no second start."""
    said = said_of(record, user("go"), call("c"), model("x"), output("c", "own"))
    assert [each[1] for each in rows(said)] == [
        *("call", "result", "turn", "user", "model", "result")
    ]
    (result,) = transcript(said)[-1]["content"]
    assert result["content"] == [{"type": "text", "text": "own"}]
    assert "error" not in result
    # Without a call in the conversation there is nothing that a second result would answer.
    assert told(record, user("go"), output("c", "own"))[:2] == told(record)
    assert "result" not in [each[1] for each in told(record, user("go"), output("c", "own"))[2:]]


def test_what_the_provider_runs_is_told_by_its_item() -> None:
    """The event stands before or behind the item of a search or picture, with its id or without."""
    search = item("web_search_call", id="c", status="completed", action={"query": "q"})
    drawn = item("image_generation_call", id="c", revised_prompt="cat", result="iVBORw0")
    unnamed = item("web_search_call", action={"query": "q"})
    events = [shown("web_search_end", **SEARCH), done("WebSearch", **SEARCH)]
    for record in events:
        for whole in (search, unnamed):
            for records in ([record, whole], [whole, record], [record, whole, *events]):
                kinds = [each[1] for each in told(*records)]
                assert kinds == ["model", "call", "result"], records
    picture = shown("image_generation_end", **DRAWN)
    assert told(drawn, picture) == told(drawn)
    assert [each[1:] for each in told(picture, drawn)] == [each[1:] for each in told(drawn)]
    # One item tells of one search; a second one for the same is another.
    again = event("web_search_end", call_id="d", **SEARCH)
    for records in ([unnamed, events[0], again], [events[0], unnamed, again]):
        assert [each[1] for each in told(*records)][3:] == ["call", "result"]
    opened = item("web_search_call", action={"type": "open_page", "url": "u"})
    page = shown("web_search_end", query="u", action={"type": "openPage", "url": "u"})
    several = item("web_search_call", action={"queries": ["a", "b"]})
    queries = shown("web_search_end", query="a ...", action={"query": None, "queries": ["a", "b"]})
    for records in ([page, opened], [opened, page], [queries, several], [several, queries]):
        assert len(told(*records)) == 3
    assert len(told(opened, events[0])) == 5


def test_an_outcome_that_only_an_event_knows_is_told_at_the_end() -> None:
    """Where no item tells the result of an item's call, the event does, behind all else."""
    assert told(typed("go"), call("c"), BROKEN, event("turn_aborted"), model("x"))[-2:] == [
        (4, "model", None, ["x"]),
        (4, "result", "prompt-0", "c", ["out"], *FAILED),
    ]
    said = said_of(call("c"), BROKEN)
    assert transcript(said)[1]["content"][0]["content"] == [{"type": "text", "text": "out"}]
    # An event before the call, without a word between them, knows it as well.
    assert told(BROKEN, call("c"))[2:] == [(1, "result", None, "c", ["out"], *FAILED)]
    # The result may come late, and of a call that is under way nothing is known.
    late = told(call("c"), BROKEN, event("turn_aborted"), typed("b"), output("c", "own"))
    assert late[-1] == (4, "result", "prompt-3", "c", ["own"], *FAILED)
    assert len(told(call("c"), REQUEST)) == 2


def test_items_that_a_compaction_keeps_are_known() -> None:
    """An event behind a compaction says again what the kept history of the model says."""
    kept = [call("c")["payload"], output("c", "own")["payload"]]
    history = line("compacted", {"message": "", "replacement_history": kept})
    assert told(history, BROKEN) == told(history)


def test_events_change_nothing_of_the_conversation() -> None:
    """What the model was told is what items say, with events of calls between them or without."""
    items = [typed("go"), model("a"), call("c"), output("c", "own"), tokens(5, 5), model("b")]
    whole = [{**each, "seq": 0} for each in transcript(said_of(*items))]
    for at in range(len(items) + 1):
        for record in (EVENTS[0], EVENTS[10], EVENTS[16], REQUEST):
            mixed = copy.deepcopy(record)
            name = "id" if "item" in mixed["payload"] else "call_id"
            mixed["payload"].get("item", mixed["payload"])[name] = "other"
            got = transcript(said_of(*items[:at], mixed, *items[at:]))
            shifted = [{**each, "seq": 0} for each in got]
            assert [each["content"] for each in shifted] == [each["content"] for each in whole]


# --- what cannot be read ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        shown("mcp_tool_call_end"),
        shown("mcp_tool_call_end", invocation=INVOCATION),
        shown("mcp_tool_call_end", invocation={"server": "s"}, result={"Err": "x"}),
        shown("mcp_tool_call_end", invocation=INVOCATION, result={"Ok": {"content": 5}}),
        event("mcp_tool_call_end", invocation=INVOCATION, result={"Err": "x"}),
        done("McpToolCall", **INVOCATION, result=5),
        done("McpToolCall", server="s", tool=[]),
        shown("dynamic_tool_call_request"),
        shown("dynamic_tool_call_response", tool="t", content_items=5),
        shown("view_image_tool_call", path=5),
        shown("exec_command_end", command=5),
        shown("patch_apply_end"),
        shown("web_search_end", query=5),
        shown("image_generation_end", status="completed"),
        shown("collab_waiting_end"),
        event("collab_close_end", status="shutdown"),
        done("CollabAgentToolCall", tool="wait"),
        event("item_completed", item={"type": "ImageView", "id": [], "path": "/i"}),
    ],
)
def test_calls_that_are_not_as_they_should_be_are_missed(record: Record) -> None:
    """An event of a known kind that cannot be read says nothing, and is counted as missed."""
    said, lens = read(record)
    assert (said, lens.told, lens.missed, sum(lens.raw.values())) == ([], 0, 1, 1)


@pytest.mark.parametrize(
    "record",
    [
        shown("brand_new_call_end", **COMMAND),
        done("BrandNewCall", **COMMAND),
        done("Extension", kind="web_search", **SEARCH),
        event("item_completed/McpToolCall", call_id="c", **INVOCATION),
        shown("exec_command_end", **COMMAND, source="user_shell"),
        done("CommandExecution", **COMMAND, source="userShell"),
        event("item_completed", item=5),
    ],
)
def test_events_of_unknown_kinds_stay_raw(record: Record) -> None:
    """What nobody knows is no call, nor is a command that the user typed."""
    said, lens = read(record)
    assert (said, lens.told, lens.missed, sum(lens.raw.values())) == ([], 0, 0, 1)


MEMBERS = sorted(
    {name for each in EVENTS for name in {**each["payload"], **each["payload"].get("item", {})}}
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.sampled_from(["", "c", "failed", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from([*MEMBERS, "Ok", "Err", "content", "text"]), inner)
    ),
    max_leaves=6,
)


@given(st.lists(st.tuples(st.sampled_from([*EVENTS, REQUEST]), st.data()), max_size=6))
def test_whatever_events_hold_never_raises(chosen: list[tuple[Record, st.DataObject]]) -> None:
    """Events with any members among items are counted once, and are told in order."""
    records = []
    for number, (record, data) in enumerate(chosen):
        new = copy.deepcopy(record)
        holder = new["payload"].get("item", new["payload"])
        for _ in range(data.draw(st.integers(0, 2))):
            holder[data.draw(st.sampled_from([*MEMBERS, "callId"]))] = data.draw(VALUES)
        behind = (model(str(number)), call("c"), output("c", "x"), typed(str(number)))
        records += [new, data.draw(st.sampled_from(behind))]
    said = said_of(*records)
    assert [each.seq for each in said] == sorted(each.seq for each in said)
    lens = read(*records)[1]
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(records)
    assert view(said).rows["conversation"] is not None


# --- memory -------------------------------------------------------------------------------------


def test_what_waits_for_items_is_bounded() -> None:
    """Of many calls at once all are told, and the latest are known; what they came to is kept."""
    many = [event("exec_command_end", call_id=f"c{n}", command="ls") for n in range(100)]
    for before in ([], [model("x")]):
        said = told(*before, *many)
        assert [each[3] for each in said if each[1] == "call"] == [f"c{n}" for n in range(100)]
        assert [each[0] for each in said] == sorted(each[0] for each in said)
    # The first have been told by then, so that an item behind all of them begins none of them.
    assert "call" not in [each[1] for each in told(*many, call("c0")) if each[0] == 100]
    asked = [call(f"c{n}") for n in range(100)]
    results = [each[3] for each in told(*asked, *many) if each[1] == "result"]
    assert results == [f"c{n}" for n in range(68, 100)]


def test_calls_of_long_ago_are_forgotten() -> None:
    """The latest thousand calls are known; an event about one before them tells it once more."""
    many = [call(f"c{n}") for n in range(1024)]
    old, new = (
        event("exec_command_end", call_id=id, command="ls", status="in_progress")
        for id in ("old", "c0")
    )
    assert len(told(call("old"), output("old", "x"), *many, new)) == len(
        told(call("old"), output("old", "x"), *many)
    )
    assert told(call("old"), output("old", "x"), *many, old)[-1] == (1026, "call", None, "old")
