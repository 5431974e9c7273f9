"""Claude Code: answers and prompts that were taken back, and records that are missing."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.lenses.claude_code import telling
from perdure.lenses.claude_code.turns import Story
from perdure.testing.providers import VALIDATORS
from perdure.views.conversation import branches, messages_at
from perdure.views.listing import ListingView, listing
from perdure.views.providers import FORMATS
from perdure.views.view import Rows
from tests.claude_code_lines import (
    call,
    fed,
    model,
    output,
    read,
    record,
    rows,
    said_of,
    spent,
    stored,
    told,
    user,
)
from tests.lens_lines import Record, texts, transcript, view
from tests.support import scaled


def said_by(message: Record) -> list[str]:
    """The texts of a message, the ids of its calls, and the texts of results."""
    found = []
    for block in message["content"]:
        inner = block["content"] if block["type"] == "tool-result" else [block]
        found += [each.get("text", each.get("id", "")) for each in inner]
    return found


def whole(*records: Record) -> list[list[str]]:
    """What the model is told, message by message; every provider takes it."""
    said = said_of(*records)
    assert [each.seq for each in said] == sorted(each.seq for each in said)
    spoken = transcript(said)
    for name, validate in VALIDATORS.items():
        assert validate(FORMATS[name](spoken, load=None)) == []
    return [said_by(message) for message in spoken]


ONE = user("u1", None, "one")
RUN = [
    ONE,
    model("a1", "u1", "m1", "let me look", call("t1"), tokens=2),
    user("r1", "a1", [output("t1", "ran")]),
]
"""A turn in which a call has its result, and the model was not asked again yet."""


# --- answers that were taken back within a turn -------------------------------------------------


def test_an_answer_given_again_takes_the_place_of_the_first() -> None:
    """Of two answers to one prompt the model is told the second, in another version of the turn."""
    records = [ONE, model("a1", "u1", "m1", "no"), model("a2", "u1", "m2", "yes")]
    assert [each for each in told(*records) if each[0] == 2] == [
        (2, "turn", "a2", {"replaces": "u1", "how": "regenerate"}),
        (2, "user", "a2", ["one"]),
        (2, "model", "a2", ["yes"], {"model": "claude-x", "response": "m2"}),
    ]
    assert whole(*records, user("u2", "a2", "two")) == [["one"], ["yes"], ["two"]]


def test_an_answer_is_given_again_in_the_middle_of_a_turn() -> None:
    """What both versions of a turn share is told in both: the call, that it ran, its result."""
    first = [
        *RUN,
        model("a2", "r1", "m2", "bad", call("t2")),
        user("r2", "a2", [output("t2", "x")]),
    ]
    again = [*first, model("a3", "r1", "m3", "good", tokens=7)]
    assert whole(*first) == [["one"], ["let me look", "t1"], ["ran"], ["bad", "t2"], ["x"]]
    assert whole(*again) == [["one"], ["let me look", "t1"], ["ran"], ["good"]]
    assert [each[1:4] for each in told(*again) if each[0] == 5][2:5] == [
        ("model", "a3", ["let me look", ("t1", "Bash", "{}")]),
        ("call", "a3", "t1"),
        ("result", "a3", "t1"),
    ]


def test_what_is_told_again_costs_nothing() -> None:
    """A response that stands in two versions of a turn is counted once."""
    own = spent(said_of(*RUN, model("a2", "r1", "m2", "x"), model("a3", "r1", "m3", "y", tokens=5)))
    assert (own.own.responses, own.own.output) == (2, 7)
    unnamed = [ONE, model("a1", "u1", None, "x", tokens=2), user("n", "a1", "h", isMeta=True)]
    later = [model("a2", "n", "m2", "y"), model("a3", "n", "m3", "z")]
    own = spent(said_of(*unnamed, *later))
    assert own.own.output == 2


def test_versions_of_versions_hold_together() -> None:
    """An answer can be taken back in a version of a turn, and each version can be gone back to."""
    second = [*RUN, model("a2", "r1", "m2", "bad"), model("a3", "r1", "m3", "better", call("t3"))]
    third = [
        *second,
        user("r3", "a3", [output("t3", "ran too")]),
        model("a4", "r3", "m4", "worse"),
        model("a5", "r3", "m5", "best"),
    ]
    shared = [["one"], ["let me look", "t1"], ["ran"]]
    assert whole(*third) == [*shared, ["better", "t3"], ["ran too"], ["best"]]
    assert whole(*third, user("u2", "a2", "go on")) == [*shared, ["bad"], ["go on"]]
    assert whole(*third, user("u2", "a4", "go on"))[3:] == [
        ["better", "t3"],
        ["ran too"],
        ["worse"],
        ["go on"],
    ]
    assert whole(*third, model("a6", "u1", "m6", "short")) == [["one"], ["short"]]
    said = said_of(*third)
    assert [(each.turn, each.replaces, each.live) for each in branches(iter(said))] == [
        ("u1", None, False),
        ("a3", "u1", False),
        ("a5", "a3", True),
    ]
    kept = messages_at(lambda: iter(said), view(said).header, None, "u1")
    assert [said_by(each) for each in kept] == [*shared, ["bad"]]


def test_a_prompt_goes_on_from_the_middle_of_a_turn() -> None:
    """What was answered behind the record that a prompt follows is not told any more."""
    records = [*RUN, model("a2", "r1", "m2", "bad"), user("u2", "r1", "stop")]
    assert [each for each in told(*records) if each[1] == "turn"][1:] == [
        (4, "turn", "u2", {"replaces": "u1", "how": "edit"})
    ]
    assert whole(*records) == [["one"], ["let me look", "t1"], ["ran"], ["stop"]]
    later = [*RUN, model("a2", "r1", "m2", "fine"), user("u2", "a2", "two"), user("u3", "r1", "so")]
    assert whole(*later) == [["one"], ["let me look", "t1"], ["ran"], ["so"]]


def test_a_compaction_within_a_turn_holds_for_what_follows_it() -> None:
    """A version from behind a compaction begins with the summary; one from before it does not."""
    boundary = record("system", "b", None, subtype="compact_boundary", compactMetadata={})
    summed = [*RUN, boundary, user("s", "b", "summary", isCompactSummary=True)]
    later = [*summed, model("a2", "s", "m2", "bad"), model("a3", "s", "m3", "good")]
    assert whole(*later) == [["summary"], ["good"]]
    assert whole(*later, model("a4", "r1", "m4", "early")) == [
        ["one"],
        ["let me look", "t1"],
        ["ran"],
        ["early"],
    ]


def test_what_a_compaction_keeps_is_told_behind_it_again() -> None:
    """Records go on behind what a compaction kept: the summary holds there as well."""
    kept = {"preservedSegment": {"headUuid": "a1", "tailUuid": "r1"}}
    boundary = record("system", "b", None, subtype="compact_boundary", compactMetadata=kept)
    summed = [*RUN, boundary, user("s", "b", "summary", isCompactSummary=True)]
    later = [*summed, model("a2", "r1", "m2", "bad"), model("a3", "r1", "m3", "good")]
    told_now = [["summary"], ["let me look", "t1"], ["ran"]]
    assert whole(*summed, model("a2", "r1", "m2", "bad")) == [*told_now, ["bad"]]
    assert whole(*later) == [*told_now, ["good"]]


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Record], list[str]]:
    """Records that go on behind any of those before, and what is said on the way to the last."""
    records, ups, says = [user("n0", None, "n0")], {"n0": ""}, {"n0": ["n0"]}
    for number in range(1, draw(st.integers(1, 14))):
        id, kind = f"n{number}", draw(st.sampled_from(["prompt", "answer", "answer", "tool"]))
        up = draw(st.sampled_from([records[-1]["uuid"], *ups]))
        ups[id], says[id] = up, [id]
        if kind == "prompt":
            records.append(user(id, up, id))
            continue
        if kind == "answer":
            records.append(model(id, up, f"m{number}", id))
            continue
        records.append(model(id, up, f"m{number}", call(id)))
        records.append(user(f"r{number}", id, [output(id, f"r{number}")]))
        says[id] = [id, f"r{number}"]
        ups[f"r{number}"], says[f"r{number}"] = id, []
    way, at = list[str](), records[-1]["uuid"]
    while at:
        way, at = [*says[at], *way], ups[at]
    return records, way


@settings(max_examples=scaled(3000))
@given(trees())
def test_what_is_told_is_the_way_to_the_last_record(tree: tuple[list[Record], list[str]]) -> None:
    """However records branch, the model is told what stands on the way to the last, and no more."""
    records, way = tree
    assert [text for message in whole(*records) for text in message] == way


# --- what only looks like it --------------------------------------------------------------------

PARALLEL: dict[str, list[Record]] = {
    "each piece behind the one before": [
        model("a1", "u1", "m1", call("t1")),
        model("a2", "a1", "m1", call("t2")),
    ],
    "pieces side by side": [
        model("a1", "u1", "m1", call("t1")),
        model("a2", "u1", "m1", call("t2")),
    ],
    "pieces that name no response": [
        model("a1", "u1", None, call("t1")),
        model("a2", "u1", None, call("t2")),
    ],
}


@pytest.mark.parametrize("asked", PARALLEL.values(), ids=PARALLEL)
@pytest.mark.parametrize("last", ["r1", "r2"])
def test_calls_side_by_side_stay(asked: list[Record], last: str) -> None:
    """Calls of one response and their results all stay, whichever of them the answer follows."""
    results = [user("r1", "a1", [output("t1", "x")]), user("r2", "a2", [output("t2", "y")])]
    said = said_of(ONE, *asked, *results, model("a3", last, "m3", "done"))
    assert [each.turn for each in said if each.type == "turn/start"] == ["u1"]
    found = [each for message in transcript(said) for each in said_by(message)]
    assert sorted(found) == sorted(["one", "t1", "t2", "x", "y", "done"])


def test_a_late_piece_of_a_response_takes_nothing_back() -> None:
    """A piece of an answer that comes behind the next one belongs to the same response."""
    pieces = [model("a1", "u1", "m1", "x"), model("a2", "u1", "m1", call("t1"))]
    said = told(ONE, *pieces, model("b1", "a2", "m2", "y"), model("a3", "a1", "m1", "z"))
    assert [each[1] for each in said] == ["turn", "user", "model", "model", "model", "call"]


def test_results_and_notes_take_nothing_back() -> None:
    """A result, a note or an attachment behind an earlier record moves nothing."""
    late = user("r2", "a1", [output("t2", "late")])
    note = user("n", "u1", "<system-reminder>x</system-reminder>")
    records = [
        ONE,
        model("a1", "u1", "m1", call("t1"), call("t2")),
        user("r1", "a1", [output("t1", "x")]),
        model("a2", "r1", "m2", "hm"),
        late,
        note,
    ]
    assert [each[1:3] for each in told(*records) if each[1] == "turn"] == [("turn", "u1")]


def test_before_the_first_turn_nothing_is_taken_back() -> None:
    """In a file whose beginning is lost there is no turn to be another version of."""
    said = said_of(model("a1", "x", "m1", "one"), model("a2", "x", "m2", "two"))
    assert texts(said) == ["one", "two"]


def test_sub_agents_take_back_their_own() -> None:
    """An answer of a sub-agent that is given again moves that agent alone."""
    side: Record = {"isSidechain": True, "agentId": "x"}
    said = said_of(
        ONE,
        user("s1", None, "task", **side),
        model("b1", "s1", "n1", "no", **side),
        model("a1", "u1", "m1", "main"),
        model("b2", "s1", "n2", "yes", **side),
    )
    assert (texts(said), texts(said, "x")) == (["one", "main"], ["task", "yes"])


# --- memory -------------------------------------------------------------------------------------


def test_what_is_not_remembered_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a bound turns are forgotten, the oldest first; of these there are no versions."""
    long = "x" * 900
    first = [*RUN, model("a2", "r1", "m2", long)]
    second = [*first, user("u2", "a2", "two"), model("a3", "u2", "m3", "bad")]
    for limit, found in ((10_000, ["one", "let me look", "tool-result", "y"]), (1000, None)):
        monkeypatch.setattr(telling, "Story", lambda limit=limit: Story(limit=limit))
        # Of the first turn nothing is remembered, so what it ends with stays.
        kept = ["one", "let me look", "tool-result", long, "y"]
        assert texts(said_of(*second, model("a4", "r1", "m4", "y"))) == (found or kept)
        assert texts(said_of(*second, model("a4", "u2", "m4", "y")))[-2:] == ["two", "y"]


def test_what_is_told_again_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often answers are given again, no more than twice the bound is told again."""
    monkeypatch.setattr(telling, "Story", lambda: Story(limit=20_000))
    again = [model(f"b{n}", "r1", f"n{n}", "y") for n in range(2000)]
    said = said_of(*RUN, model("a2", "r1", "m2", "x" * 900), *again)
    assert sum(len(each.raw) for each in said) < 20 * 20_000


# --- records that are unknown, damaged or missing -----------------------------------------------


def rewound(middle: list[str]) -> tuple[list[str], Any]:
    """Texts that the model is told where a rewind goes behind a record `x`, and the lens."""
    before = [json.dumps(each) for each in (ONE, model("a1", "u1", "m1", "first"))]
    behind = [user("u2", "x", "two"), model("a2", "u2", "m2", "second"), user("u3", "x", "three")]
    said, lens = fed(stored([*before, *middle, *map(json.dumps, behind)]))
    return texts(said), lens


@pytest.mark.parametrize("kind", ["brand-new", "file-history-snapshot", "last-prompt", None])
def test_a_rewind_may_go_behind_any_record(kind: str | None) -> None:
    """Every record with an id has a place, whatever it is, also if it names no kind."""
    unknown = record("", "x", "a1", leafUuid="u1")
    del unknown["type"]
    line = unknown if kind is None else {**unknown, "type": kind}
    found, lens = rewound([json.dumps(line)])
    assert found == ["one", "first", "three"]
    assert (lens.facts.gaps, sum(lens.raw.values())) == (0, 1)


@pytest.mark.parametrize("damage", [[], ['{"type":"system","uuid":"x","parentU']])
def test_a_rewind_may_go_behind_a_record_that_is_lost(damage: list[str]) -> None:
    """A parent that cannot be read stands where it was first named, and is counted as a gap."""
    found, lens = rewound(damage)
    assert found == ["one", "first", "three"]
    assert lens.facts.gaps == 1


def test_an_answer_may_be_given_again_behind_a_lost_record() -> None:
    """Also within a turn a lost record stands where it was first named."""
    records = [*RUN, model("a2", "x", "m2", "bad"), model("a3", "x", "m3", "good")]
    assert whole(*records) == [["one"], ["let me look", "t1"], ["ran"], ["good"]]


def test_gaps_are_records_that_never_come() -> None:
    """Each missing record is one gap; one that comes later, or that names itself, is none."""
    _, lens = read(
        user("u1", "lost", "one"),
        user("u2", "lost", "two"),
        user("u3", "later", "three"),
        user("later", "u2", "four"),
        user("u4", "u4", "five"),
        user("u5", "gone", "six"),
        {"type": "summary", "summary": "theirs", "leafUuid": "gone"},
    )
    assert (lens.facts.gaps, lens.facts.title) == (2, None)


# --- calls without a result ---------------------------------------------------------------------


def test_a_call_that_the_next_turn_left_open_may_have_run() -> None:
    """Where a later turn begins, a call without a result is told of as begun."""
    said = said_of(ONE, model("a1", "u1", "m1", call("t1"), call("t2")), user("u2", "a1", "two"))
    assert [each for each in rows(said) if each[1] in ("call", "turn")] == [
        (0, "turn", "u1"),
        (2, "call", "u1", "t1"),
        (2, "call", "u1", "t2"),
        (2, "turn", "u2"),
    ]
    errors = [block["error"]["code"] for block in transcript(said)[2]["content"]]
    assert errors == ["TOOL_OUTCOME_UNKNOWN", "TOOL_OUTCOME_UNKNOWN"]


def test_a_call_is_told_of_as_begun_once() -> None:
    """A result that comes late, or a refusal, says nothing of the beginning any more."""
    open_call = [ONE, model("a1", "u1", "m1", call("t1"))]
    late = [*open_call, user("u2", "a1", "two"), user("r1", "a1", [output("t1", "late")])]
    assert [each[1] for each in told(*late)].count("call") == 1
    refusal = "The user doesn't want to proceed with this tool use."
    refused = [*open_call, user("r1", "a1", [output("t1", refusal, is_error=True)])]
    assert "call" not in [each[1] for each in told(*refused, user("u2", "r1", "two"))]


def test_calls_beyond_what_is_remembered_may_have_run() -> None:
    """A call that is forgotten, since too many wait for results, is told of as begun."""
    asked = model("a1", "u1", "m1", *(call(f"t{n}") for n in range(1100)))
    said = told(ONE, asked, user("u2", "a1", "two"))
    assert [each[1] for each in said].count("call") == 1100


def test_sub_agents_are_named_where_their_call_was_told_as_begun() -> None:
    """Progress of a call takes nothing from what its result says of the sub-agent."""
    asked = call("t1", "Task", subagent_type="Explore")
    progress = record("progress", "p", "a1", parentToolUseID="t1", data={"type": "agent_progress"})
    outcome = {"status": "completed", "agentId": "x", "prompt": "look"}
    done = user("r1", "a1", [output("t1", "ok")], toolUseResult=outcome)
    said = said_of(ONE, model("a1", "u1", "m1", asked), progress, done)
    assert [each.data for each in said if each.type == "subagent/start"] == [
        {"id": "x", "name": "Explore", "task": "look"}
    ]


# --- forks --------------------------------------------------------------------------------------


def test_a_fork_does_not_pay_for_what_was_copied() -> None:
    """Copied records are told, and what they cost is left to the session that they come from."""
    copied: Record = {"forkedFrom": {"sessionId": "R", "messageUuid": "a1"}}
    records = [
        user("u1", None, "one", **copied),
        model("a1", "u1", "m1", "first", tokens=40, **copied),
        user("u2", "a1", "two"),
        model("a2", "u2", "m2", "second", tokens=2),
    ]
    said = said_of(*records)
    assert texts(said) == ["one", "first", "two", "second"]
    assert spent(said).own[:3] == (1, 1, 2)
    facts = read(*records)[1].facts
    assert (facts.parent, facts.kind, facts.model) == ("R", "fork", "claude-x")


# --- what stands in front of a prompt -----------------------------------------------------------

REMINDER = "<system-reminder>\nbe brief\n</system-reminder>\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{REMINDER}why?", [([REMINDER], "system-reminder"), (["why?"],)]),
        (
            f"{REMINDER}{REMINDER}\n why?",
            [([f"{REMINDER}{REMINDER}\n "], "system-reminder"), (["why?"],)],
        ),
        (
            "<ide_opened_file>a.py</ide_opened_file>why?",
            [(["<ide_opened_file>a.py</ide_opened_file>"], "ide"), (["why?"],)],
        ),
        (
            f"<session-start-hook>x</session-start-hook>{REMINDER}why <b>?</b>",
            [
                ([(f"<session-start-hook>x</session-start-hook>{REMINDER}")[:60]], "hook"),
                (["why <b>?</b>"],),
            ],
        ),
        (f"why?\n{REMINDER}", [([f"why?\n{REMINDER}"],)]),
        ("\n why?", [(["\n why?"],)]),
    ],
)
def test_what_stands_behind_a_tag_was_typed(text: str, said: list[Any]) -> None:
    """A closing tag ends what nobody typed: the rest begins a turn, and can be its title."""
    found = said_of(user("u", None, text))
    events = [each.data for each in found if each.type == "user/message"]
    assert found[0].type == "turn/start"
    assert "".join(block["text"] for each in events for block in each["content"]) == text
    wanted = [each[1] if len(each) > 1 else None for each in said]
    assert [each.get("source") for each in events] == wanted
    assert events[-1]["content"][-1]["text"].startswith(said[-1][0][0])
    kept = Rows()
    for each in found:
        if each.type in ListingView.types:
            ListingView().apply(kept, each, lambda: iter(()))
    assert (listing(kept).preview or "").startswith("why")


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (f"{REMINDER}{REMINDER}", "system-reminder"),
        ("<system-reminder>\ncut off", "system-reminder"),
        ("<bash-input>ls</bash-input>\n<bash-stdout>a</bash-stdout>", "shell-command"),
        (f"{REMINDER}[Request interrupted by user]", "interruption"),
    ],
)
def test_tags_alone_are_no_prompt(text: str, source: str) -> None:
    """Where nothing stands behind the last tag, or a tag has no end, nobody typed anything."""
    said = said_of(user("u", None, text))
    assert [(each.type, each.data["source"]) for each in said] == [("user/message", source)]


def test_what_is_said_behind_a_notification_was_not_typed() -> None:
    """Claude Code itself says where the output of a task is."""
    text = "<task-notification>\n<task-id>b1</task-id>\n</task-notification>\n"
    for behind in (
        "Read the output file to retrieve the result: /tmp/b1.output",
        "Full transcript available at: /tmp/b1.output\n",
    ):
        said = said_of(user("u", None, text + behind))
        assert [each.data.get("source") for each in said] == [None, "task-notification"]
    said = said_of(user("u", None, f"{text}what is that?"))
    assert [each.data.get("source") for each in said] == [None, "task-notification", None]
