"""The lens of deepseek-harness on whole samples, and on records that hold whatever."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.lenses.deepseek_harness import DeepseekHarness
from perdure.lenses.registry import lens_of
from perdure.views.facts import title
from tests.dsh_lines import (
    DATA,
    FLASH,
    SAMPLES,
    accepted,
    answer,
    asks,
    chunk,
    fed,
    header,
    line,
    rows,
    sample,
    spent,
    stored,
    tokens,
)
from tests.lens_lines import Record, transcript, view

# --- whole samples ------------------------------------------------------------------------------


CONTEXT = ("Current runtime context. This snapshot supersedes earlier ru", 390)
PROMPTER = "plugin:@deepseek-ai/dsh-system-prompt"


@pytest.mark.parametrize(
    "path", ["dsh/05-compaction-recovery", "deepseek-harness/compaction-recovery_session"]
)
def test_compaction(path: str) -> None:
    """A compaction keeps the messages behind its range, with numbers told or counted alike."""
    said, lens = sample(f"{path}.jsonl")
    ran = {"command": "printf 'alpha\n'", "description": "Emit compaction premise marker"}
    mark = ("call_compaction_marker", "bash", ran)
    summed = "The request established a durable compaction premise."
    opening = ("This is an automatically generated checkpoint condensing an ", 321)
    cost = {"input": 20, "output": 4, "model": FLASH}
    found = rows(said)
    assert found[10][:3] == (21, "usage", "1")
    compaction = found[10][3].pop("response")
    assert (
        compaction
        == json.loads((DATA / f"{path}.jsonl").read_text().split("\n")[20])["data"]["compactionId"]
    )
    assert found == [
        (2, "turn/start", "1"),
        (4, "step/start", "1", 1),
        (5, "user", "1", [("Establish a durable compaction premise before continuing. Re", 1031)]),
        (6, "session/titled", None, {"title": "Establish a durable compaction premise"}),
        (7, "request/header", "1", "initial"),
        (14, "model", "1", [mark], FLASH, tokens(24, 6)),
        (15, "call", "1", *mark),
        (16, "result", "1", mark[0], ["alpha\n"]),
        (17, "step/end", "1", 1),
        (18, "step/start", "1", 2),
        (21, "usage", "1", cost),
        (22, "compacted", "1", [opening, summed, "</compacted-summary>"], 14),
        (29, "model", "1", ["COMPACTION RECOVERED"], FLASH, tokens(20, 4)),
        (30, "step/end", "1", 2),
        (31, "turn/end", "1", "completed"),
    ]
    assert [message["seq"] for message in transcript(said)] == [22, 14, 16, 29]
    assert spent(said)[:5] == (3, 64, 14, 0, 0)
    assert lens.raw == {
        "agent/inbox/spliced": 2,
        "compaction/end": 1,
        "compaction/start": 1,
        "request/context": 1,
    }
    assert (lens.told, lens.missed) == (6, 0)


def test_recovered_crash() -> None:
    """What a recovery added is told as the source tells it, and the next turn follows."""
    said, lens = sample("dsh/06-tool-outcome-unknown.jsonl")
    write = ("unknown-outcome-call", "write_remote", {"value": 1})
    lost = ("The tool call was interrupted after it was recorded, but no ", 313)
    assert rows(said) == [
        (1, "turn/start", "1"),
        (2, "user", "1", ["Perform one side-effecting remote mutation."]),
        (3, "step/start", "1", 1),
        (4, "model", "1", [write], FLASH),
        (5, "call", "1", *write),
        (6, "result", "1", write[0], [lost], "TOOL_OUTCOME_UNKNOWN", lost),
        (7, "step/end", "1", 1),
        (8, "turn/end", "1", "interrupted"),
        (11, "turn/start", "2"),
        (13, "step/start", "2", 1),
        (14, "user", "2", ["Continue safely from the interrupted operation."]),
        (15, "session/titled", None, {"title": "Perform one side-effecting remote mutati"}),
        (16, "request/header", "2", "initial"),
        (
            22,
            "model",
            "2",
            [("I will verify the external state before deciding whether to ", 95)],
            FLASH,
        ),
        (23, "step/end", "2", 1),
        (24, "turn/end", "2", "completed"),
    ]
    assert lens.understood["session/end-seed"] == 1
    assert title(view(said).rows["session"]) == "Perform one side-effecting remote mutati"


def test_forked_subagent() -> None:
    """A fork says what it inherited, and counts what it used itself."""
    said, lens = sample("dsh/08-fork-child-with-seed.jsonl")
    thought = (
        ("thinking", ('The user wants me to remember the codeword "MARMALADE" and r', 80)),
        ("thinking", ('The user asked me to remember the project codeword "MARMALAD', 133)),
    )
    policy = {"key": "approval-policy", "value": "never", "scope": "settings"}
    assert rows(said) == [
        (2, "turn/start", "1"),
        (4, "step/start", "1", 1),
        (5, "user", "1", [("Remember this fact for later: the project codeword is MARMAL", 126)]),
        (6, "user", "1", [CONTEXT], PROMPTER),
        (7, "session/titled", None, {"title": "Remember this fact for later:"}),
        (8, "request/header", "1", "initial"),
        (18, "model", "1", [thought[0], "OK"], FLASH),
        (19, "step/end", "1", 1),
        (20, "turn/end", "1", "completed"),
        (22, "state/set", None, policy),
        (24, "turn/start", "2"),
        (27, "step/start", "2", 1),
        (28, "user", "2", [("What is the project codeword mentioned earlier in this conve", 119)]),
        (29, "user", "2", [(CONTEXT[0], 740)], PROMPTER),
        (30, "request/header", "2", "resume"),
        (39, "model", "2", [thought[1], "MARMALADE"], FLASH, tokens(97 + 2816, 39, 2816, 34)),
        (40, "step/end", "2", 1),
        (41, "turn/end", "2", "completed"),
    ]
    facts = lens.facts
    assert (facts.id, facts.parent) == (
        "ada8966c-9fa3-441b-8721-37ff1e795e6a",
        "96cf59c9-b347-48b9-b234-a5200913ad05",
    )
    assert (facts.kind, facts.agent) == ("subagent", "Recall project codeword")
    assert (facts.cwd, facts.model, facts.branch) == ("{{cwd}}", FLASH, None)
    assert facts.title == "Remember this fact for later:"
    assert spent(said)[:5] == (1, 2913, 39, 2816, 34)


def test_cancelled_calls() -> None:
    """Calls that a cancellation ended have results with its codes, and the turn is aborted."""
    said, _ = sample("deepseek-harness/cancel-tool-calls_session.jsonl")
    waiting = (
        "node -e \"require('node:fs').writeFileSync('started.txt', 'started'); "
        'setInterval(() => {}, 1000)"'
    )
    wait = ("call_wait", "bash", {"command": waiting, "description": "Wait until cancellation"})
    late = {"command": "printf skipped > skipped.txt", "description": "Write skipped marker"}
    skip = ("call_skipped", "bash", late)
    ended = ("Error: tool call aborted", "Error: tool call aborted before dispatch")
    assert rows(said) == [
        (2, "turn/start", "1"),
        (4, "step/start", "1", 1),
        (5, "user", "1", [("Run two shell commands: wait for cancellation, then write sk", 70)]),
        (6, "user", "1", [CONTEXT], PROMPTER),
        (7, "session/titled", None, {"title": "Run two shell commands: wait"}),
        (8, "request/header", "1", "initial"),
        (18, "model", "1", [wait, skip], FLASH, tokens(10, 10)),
        (19, "call", "1", *wait),
        (20, "result", "1", wait[0], [ended[0]], "ABORTED", ended[0]),
        (21, "call", "1", *skip),
        (22, "result", "1", skip[0], [ended[1]], "ABORTED_BEFORE_DISPATCH", ended[1]),
        (23, "step/end", "1", 1),
        (24, "turn/end", "1", "aborted"),
    ]


def test_steering_in_the_old_shape() -> None:
    """Messages without ids are read as well; what is typed inside a turn begins none."""
    said, lens = sample("deepseek-harness/steering_session.jsonl")
    options = [{"label": "Yes"}, {"label": "No"}]
    question = {"id": "checkpoint", "question": "Ready to continue?", "header": "Checkpoint"}
    asked = {"questions": [question | {"options": options}]}
    call = ("call_00_sAvjivLShvnWVk0sPQPV7661", "ask_user_question", asked)
    thought = (
        ("thinking", ("The user wants me to use the ask_user_question tool to ask t", 134)),
        ("thinking", ('The user selected "Yes" and wants me to include the word "BA', 117)),
    )
    assert rows(said) == [
        (1, "turn/start", "1"),
        (2, "user", "1", [("Use the ask_user_question tool to ask me exactly one questio", 251)]),
        (3, "session/titled", None, {"title": "Use the ask_user_question tool to"}),
        (4, "step/start", "1", 1),
        (5, "request/header", "1", "initial"),
        (14, "model", "1", [thought[0], call], FLASH, tokens(151 + 7680, 115, 7680, 29)),
        (15, "call", "1", *call),
        (16, "result", "1", call[0], ['{"answers":[{"id":"checkpoint","selected":["Yes"]}]}']),
        (17, "user", "1", ["Interjection: include the word BANANA in your final reply."]),
        (18, "step/end", "1", 1),
        (19, "step/start", "1", 2),
        *[
            (28, "model", "1", [thought[1], "Great, let's move forward. BANANA!"], FLASH, cost)
            for cost in [tokens(172 + 7808, 41, 7808, 29)]
        ],
        (29, "step/end", "1", 2),
        (30, "turn/end", "1", "completed"),
    ]
    assert (lens.facts.model, dict(lens.raw)) == (FLASH, {})
    assert spent(said)[:5] == (2, 15811, 156, 15488, 58)


def test_logs_that_tell_of_no_turns() -> None:
    """A typed prompt begins a turn where the log has none, and a turn may end unexplained."""
    (path,) = DATA.glob("deepseek-harness/dejavu*/*/session.jsonl")
    said, lens = sample(str(path.relative_to(DATA)))
    preset = {"key": "permission-preset", "value": "workspace-write", "scope": "settings"}
    assert rows(said) == [
        (1, "state/set", None, preset),
        (2, "session/titled", None, {"title": "pgbouncer pool size"}),
        (3, "turn/start", "1"),
        (3, "user", "1", ["how many connections do we hold per shard"]),
        (4, "user", "1", [(CONTEXT[0], 84)], PROMPTER),
        *[
            (7, "model", "1", [("thinking", thought), "let me check the config"])
            for thought in ["the pool size lives in notes.txt"]
        ],
        (8, "call", "1", "c1", "read", {"file_path": "/srv/pgbouncer-lab/notes.txt"}),
        (9, "result", "1", "c1", ["pgbouncer pool_size = 40"]),
        (10, "model", "1", ["we hold 40 per shard, pinned in the pgbouncer config"]),
        (11, "step/end", "1", 2),
        (12, "turn/end", "1", "unknown"),
    ]
    assert lens.facts.id == "session-eaf5c9ac-0e47-4d2f-b982-8bae306062d1"
    assert (lens.facts.cwd, lens.facts.model) == ("/srv/pgbouncer-lab", None)


def test_answers_that_were_never_written() -> None:
    """Chunks without a message are pieces of answers; where the log ends in text, a message."""
    said, lens = sample("deepseek-harness/web-search-round_session.jsonl")
    asked = '["DeepSeek Harness snapshot search","DeepSeek Harness multi-query search"]'
    piece = {"text": f'{{"queries":{asked}}}', "kind": "arguments", "call": "call_web_search"}
    assert rows(said) == [
        (1, "turn/start", "1"),
        (1, "user", "1", [('Use web_search once with queries ["DeepSeek Harness snapshot', 149)]),
        (3, "assistant/delta", "1", piece),
        (5, "usage", "1", tokens(10, 5)),
        (7, "step/end", "1", 1),
        (8, "model", "1", ["SEARCH_DONE"], tokens(12, 2)),
    ]
    assert spent(said)[:3] == (2, 22, 7)
    assert lens.understood == {"session": 1, "user/message": 1, "assistant/chunk": 10}


def test_largest_sample_in_all_its_forms() -> None:
    """Logs with and without numbers say the same: goals, states, two turns, twelve answers."""
    first, lens = sample("dsh/01-goal-multi-turn-actions.jsonl")
    second, _ = sample("deepseek-harness/goal-multi-turn-actions_session.jsonl")
    (path,) = DATA.glob("deepseek-harness/rebuilt/*/*/session.jsonl")
    third, _ = sample(str(path.relative_to(DATA)))
    short = [[row[:3] for row in rows(said)] for said in (first, second, third)]
    assert short[0] == short[1] == short[2]
    kinds = [row[1] for row in rows(first)]
    counts = {kind: kinds.count(kind) for kind in ("turn/start", "model", "call", "result")}
    assert counts == {"turn/start": 2, "model": 12, "call": 11, "result": 11}
    goals = [row for row in rows(first) if row[1] == "user"]
    assert [(row[0], row[2], row[4]) for row in goals] == [
        (11, "1", "goal"),
        (12, "1", PROMPTER),
        (101, "2", "goal"),
        (174, "2", "plugin:tool-goal"),
    ]
    state = dict(view(first).rows["state"].all)
    assert state.pop('["scratchpad",null,"goal"]')["phase"] == "complete"
    assert state == {
        '["settings",null,"permission-preset"]': "workspace-write",
        '["settings",null,"sandbox-mode"]': "workspace-write",
        '["settings",null,"approval-policy"]': "ask",
    }
    assert spent(first)[:5] == (12, 10012 + 103040, 2384, 103040, 694)
    assert (lens.told, lens.missed, lens.facts.title) == (38, 0, None)


# --- whatever a record holds --------------------------------------------------------------------


def test_what_is_missed_and_what_is_raw() -> None:
    """Messages, calls and results that cannot be read are missed; torn lines are raw."""
    records = (
        *(line("user/message", content=5), line("assistant/message"), line("tool/call", callId=[])),
        *(line("tool/result", callId="a", content=[5]), {"type": "tool/result"}, {"type": 5}),
        *(line("new/type"), line("text-chunks", texts=[1]), chunk("new"), header(), header()),
    )
    said, lens = fed(stored([*map(json.dumps, records), '{"type":"tool/res']))
    assert rows(said) == [(8, "turn/start", "1")]
    assert (lens.told, lens.missed, sum(lens.raw.values())) == (0, 5, 11)
    assert lens.understood == {"session": 1}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parts[-2]}-{path.stem}")
def test_every_sample_makes_a_transcript(path: Path) -> None:
    """What is said of a sample fits the vocabulary, and providers accept its transcript."""
    lines = path.read_bytes().decode().split("\n")[:-1]
    said, lens = fed(stored(lines))
    accepted(said)
    assert type(lens_of("deepseek-harness")) is DeepseekHarness
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert (lens.missed, lens.told > 0) == (0, True)


RECORDS: list[Record] = [
    json.loads(text)
    for path in SAMPLES
    for text in path.read_text(encoding="utf-8").split("\n")
    if text.strip() and len(text) < 3000
]
LINES = ["", "{", "[]", "5", '{"type":' * 5000, '{"data":' * 400 + "1" + "}" * 400]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([2**80, -1, 10**4000, "\ud800", "x" * 5000, [[[[]]]], {"type": "text"}])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of an object or list, and of what it holds: what holds it, and its name."""
    if not isinstance(value, dict | list):
        return []
    inner = [*(value.items() if isinstance(value, dict) else enumerate(value))]
    deeper = [place for _, each in inner for place in places(each)]
    return [(value, name) for name, _ in inner] + deeper


@given(st.data())
def test_mutilated_records_never_raise(data: st.DataObject) -> None:
    """Whatever records hold is counted once, and what is said of it fits the vocabulary."""
    chosen = copy.deepcopy(data.draw(st.lists(st.sampled_from(RECORDS), max_size=8)))
    for record in chosen:
        for _ in range(data.draw(st.integers(0, 2))):
            found = places(record)
            at = data.draw(st.integers(0, max(0, len(found) - 1)))
            holder, name = found[at] if found else (record, "type")
            if found and isinstance(holder, dict) and data.draw(st.booleans()):
                del holder[name]
            else:
                holder[name] = copy.deepcopy(data.draw(JSON))
    lines = [json.dumps(record) for record in chosen] + data.draw(st.lists(st.sampled_from(LINES)))
    said, lens = fed(stored(lines))
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert lens.told <= sum(lens.understood.values())
    assert lens.missed <= sum(lens.raw.values())
    accepted(said, strict=False)


def test_deep_and_odd_values_are_survived() -> None:
    """Arguments, headers and states beyond what an event can hold are told of in words, or raw."""
    deep = json.loads("[" * 300 + "]" * 300)
    said, lens = fed(
        stored(
            json.dumps(record)
            for record in (
                *(answer(asks("c", "sh", {"a": deep})), line("todo/write", todos=deep)),
                *(line("request/header", header={"a": deep}), answer(asks("d", "sh", HALVES))),
            )
        )
    )
    assert rows(said)[1][3] == [("c", "sh", {"input": "[arguments that cannot be shown]"})]
    assert rows(said)[2][3] == [("d", "sh", {"input": HALVES})]
    assert lens.raw == {"request/header": 1, "todo/write": 1}


HALVES = '{"a":"\ud83d\\ude00"}'
"""Both halves of a character, the second one escaped twice."""
