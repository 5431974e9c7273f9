"""The lens of Codex on whole samples, and on records that hold whatever they like."""

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.lenses.codex import Codex
from perdure.lenses.registry import lens_of
from perdure.model.event import Event
from perdure.model.vocabulary import fitting
from perdure.testing.providers import VALIDATORS
from perdure.views.facts import title
from perdure.views.providers import FORMATS
from tests.codex_lines import (
    FOLDER,
    call,
    event,
    fed,
    item,
    line,
    output,
    read,
    rows,
    sample,
    spent,
    stored,
    told,
)
from tests.lens_lines import Record, Row, transcript, view

SAMPLES = sorted(FOLDER.glob("*.jsonl"))
ROLLOUT = "rollout-2026-05-11T13-28-45-019e1695-0522-7c83-8b39-0dd379793f80"
T = "[trimmed for fixture]"
TMP = "/tmp"  # noqa: S108
SEALED = "[encrypted summary]"
IMAGE = "[image]"


# --- whole samples ------------------------------------------------------------------------------


def test_growing_rollout() -> None:
    """A rollout of two turns says each prompt, answer and response's tokens once."""
    said, lens = sample("codemie_turn-2")
    first, second = "b2c3d4e5-f600-7891-bcde-f12345678901", "c3d4e5f6-a700-7012-cdef-123456789012"
    rules = ("<permissions instructions>\nFilesystem sandboxing: workspace-", 99)
    place = ("<environment_context>\n  <cwd>/home/user/project</cwd>\n  <she", 167)
    known = ("I can work with many programming languages including Python,", 98)
    costs = [
        {"input": 1024, "output": 12, "cached": 512, "reasoning": 8},
        {"input": 1100, "output": 20, "cached": 512, "reasoning": 10},
    ]
    assert rows(said) == [
        (2, "user", None, [rules], "developer"),
        (3, "user", None, [place], "environment-context"),
        (5, "turn", first),
        (5, "user", first, ["Hello, Codex! Please explain what you do."]),
        (9, "model", first, ["I am Codex, an AI coding assistant by OpenAI."], "o4-mini", costs[0]),
        (12, "end", first, "completed"),
        (14, "user", None, [rules], "developer"),
        (15, "user", None, [place], "environment-context"),
        (17, "turn", second),
        (17, "user", second, ["What languages can you work with?"]),
        (21, "model", second, [known], "o4-mini", costs[1]),
        (24, "end", second, "completed"),
    ]
    facts = lens.facts
    assert (facts.id, facts.cwd) == ("a1b2c3d4-e5f6-7890-abcd-ef1234567890", "/home/user/project")
    assert (facts.model, facts.branch) == ("o4-mini", "main")
    assert (facts.title, facts.parent, facts.kind, facts.agent) == (None, None, None, None)
    assert spent(said)[:5] == (2, 2124, 32, 1024, 18)
    assert (sum(lens.raw.values()), lens.told, lens.missed) == (0, 12, 0)
    assert rows(sample("codemie_turn-1")[0]) == rows(said)[:6]


def test_large_sample() -> None:
    """Prompts are those of the event and of items without one; old shapes of calls are paired."""
    said, lens = sample("as_large")
    command = {"command": "printf 'line1\\nline2\\nline3\\n'", "cwd": "/tmp/large"}  # noqa: S108
    result = '{"stdout":"line1\\nline2\\nline3\\n","stderr":"","exitCode":0}'
    context = ("<environment_context><cwd>/tmp/large</cwd><project_name>larg", 98)
    cost = {"input": 12091, "output": 182, "cached": 10880, "reasoning": 128, "model": "gpt-5.2"}
    asked = ("call-5", "run_shell_command", command)
    steps: list[list[Row]] = [
        [
            (at, "turn", f"prompt-{at}"),
            (at, "user", f"prompt-{at}", [text]),
            (at + 1, "model", f"prompt-{at}", ["Ok"], "gpt-5.2"),
        ]
        for at, text in zip(range(10, 20, 2), "12345", strict=True)
        for text in [f"Step {text}"]
    ]
    assert rows(said) == [
        (1, "turn", "prompt-1"),
        (1, "user", "prompt-1", ["Start"]),
        (4, "model", "prompt-1", ["Acknowledged.", asked], "gpt-5.2"),
        (5, "call", "prompt-1", "call-5"),
        (6, "result", "prompt-1", "call-5", [result]),
        (7, "usage", cost),
        (8, "model", "prompt-1", ["Captured multiline output."], "gpt-5.2"),
        (9, "user", "prompt-1", [context], "environment-context"),
        *itertools.chain(*steps),
    ]
    assert lens.facts.id == "019b2ea4-aaaa-bbbb-cccc-58208e1f0000"
    assert (lens.facts.cwd, lens.facts.model) == ("/tmp/large", "gpt-5.2")  # noqa: S108
    assert spent(said)[:5] == (1, 12091, 182, 10880, 128)
    assert (dict(lens.raw), lens.told, lens.missed) == ({}, 17, 0)


def test_small_sample() -> None:
    """Calls of all kinds, a title, six compactions and trimmed values are read in full."""
    said, lens = sample("as_small")
    one = "019fc8be-0000-7000-8000-000000000001"
    luna, sol, ls, last = "gpt-5.6-luna", "gpt-5.6-sol", {"command": ["ls"]}, "prompt-100"
    search = {"type": "search", "query": "example", "queries": ["example"], "url": None}
    tools = ('[{"type":"function_group","name":"example_group","descriptio', 262)
    cost = {"input": 16341, "output": 81, "cached": 3584, "reasoning": 63, "model": luna}
    shells = [("call-1", "shell", ls), ("call-2", "shell", ls)]
    again: list[list[Row]] = [
        [(68, "model", None, [T]), (68, "user", None, [T] * texts, "history")]
        for texts in (14, 98, 49, 27, 30, 13, 51, 57, 97)
    ]
    images = [*[T] * 4, IMAGE, *[T] * 5, IMAGE, *[T] * 7, IMAGE, *[T] * 10]
    assert rows(said) == [
        (3, "turn", one),
        (3, "user", one, ["List the files"]),
        (6, "model", one, [("thinking", T), *shells], luna),
        (8, "call", one, "call-1"),
        (9, "call", one, "call-2"),
        (10, "result", one, "call-2", ["a.txt\n"]),
        (11, "model", one, [("call-3", "tool_search", {"query": "example"})], luna),
        (11, "call", one, "call-3"),
        (12, "result", one, "call-3", [tools]),
        (13, "model", one, [("ws-1", "web_search", search | {"pattern": None})], luna),
        (13, "call", one, "ws-1"),
        (13, "result", one, "ws-1", []),
        (15, "call", one, "call-5"),
        (15, "result", one, "call-5", []),
        (16, "call", one, "call-6"),
        (16, "result", one, "call-6", [T]),
        (19, "end", one, "aborted"),
        (20, "result", None, "call-1", ["a.txt\nb.txt\n"]),
        (21, "usage", cost),
        (22, "model", None, ["Found 2 files.", IMAGE], luna),
        (25, "compacted", [T, IMAGE], 16422),
        (27, "result", None, T, [T, T, IMAGE]),
        (32, "user", None, [T], "agent"),
        (42, "model", None, [(T, "tool_search", {})], "gpt-5.5"),
        (42, "call", None, T),
        (46, "compacted", [*[T] * 14, SEALED], 16422),
        (48, "model", None, [(T, "image_generation", {"prompt": T})], "gpt-5.5"),
        (48, "call", None, T),
        (48, "result", None, T, [IMAGE]),
        (54, "session/titled", {"title": T}),
        (68, "compacted", [T] * 12, 16422),
        *itertools.chain(*again),
        (68, "model", None, [T]),
        (68, "user", None, [SEALED], "history"),
        (70, "turn", T),
        (70, "user", T, [T, IMAGE]),
        (80, "compacted", [*images, SEALED], 16422),
        (84, "turn", "prompt-84"),
        (84, "user", "prompt-84", [T]),
        (88, "compacted", [*[T] * 44, IMAGE, *[T] * 30, SEALED], 16422),
        (97, "user", "prompt-84", [T] * 7, "developer"),
        (100, "turn", last),
        (100, "user", last, [T]),
        (101, "model", last, [T, (T, T, {"input": T})], sol),
        (102, "call", last, T),
        (104, "result", last, T, [T, T]),
        (109, "model", last, [T], sol),
        (110, "compacted", [*[T] * 20, SEALED], 16422),
        (113, "model", last, [(T, T, {})], sol),
        (113, "call", last, T),
        (114, "result", last, T, [T]),
        (115, "user", last, [T], "agent"),
    ]
    assert lens.facts.id == "019fc8be-3658-7ca3-9e29-000000000000"
    assert (lens.facts.title, lens.facts.model, lens.facts.branch) == (T, sol, "main")
    assert (lens.facts.cwd, lens.facts.parent) == (T, None)
    assert title(view(said).rows["session"]) == T
    assert spent(said)[:5] == (1, 16341, 81, 3584, 63)
    assert (sum(lens.raw.values()), lens.told, lens.missed) == (30, 51, 0)


def shells(seq: int, turn: str, *calls: tuple[int, str, str, int, int, int]) -> list[Row]:
    """An answer that asks for commands, their starts and what they printed.

    Of each call: number, id, beginning and length of its arguments, number and length of the
    output; the chunk of output that begins it is the last member.
    """
    blocks = [(id, "exec_command", (said, size)) for _, id, said, size, _, _ in calls]
    begun: list[Row] = [(at, "call", turn, id) for at, id, *_ in calls]
    ended = [(at, id, size) for _, id, _, _, at, size in calls if at]
    printed: list[Row] = [(at, "result", turn, id, size) for at, id, size in ended]
    return [(seq, "model", turn, blocks), *begun, *printed]


def test_long_rollout() -> None:
    """A rollout whose prompts stand in events alone: parallel calls, one left open at its end."""
    said, lens = sample(ROLLOUT)
    got = rows(said)
    # Of outputs, which begin alike, the lengths.
    short = [(*each[:4], each[4][0][1]) if each[1] == "result" else each for each in got]
    sed, vtt = '{"cmd": "sed -n ', "/Users/Sample_User/Downloads/Sa"
    skill = "'1,220p' /Users/Sample_User/.codex/plugins/c"
    node = ('{"title": "Connect browser session", "code": "if (!globalThi', 564)
    chrome = '{"cmd": "ps -ef | rg -i \\"Google Chrome|chrome.*remote|codem'
    asked = [
        ("\n# Files mentioned by the user:\n\n## Sample Project Demo Prep", 279),
        ("there is a need for nikita to draft demo scenario around gov", 91),
        ("use app tools to go to Analytics and Project management tabs", 290),
    ]
    answers = [
        ("I analyzed `/Users/Sample_User/Downloads/Sample Project Demo", 2691),
        ("Yes. The transcript clearly assigns User to draft the demo s", 823),
    ]
    one, two, three = "prompt-1", "prompt-30", "prompt-32"
    wc = '{"cmd": "wc -l /Users/Sample_User/Downloads/Sample\\\\ BiS\\\\ S'
    rg = '{"cmd": "rg -n -i \\"codemie|demo|nikita|vadym|vadim|action|p'
    cat = '{"cmd": "cat /Users/Sample_User/.codex/plugins/cache/openai-'
    assert short == [
        (1, "turn", one),
        (1, "user", one, [asked[0]]),
        *shells(3, one, (3, "call_AvUkcEDS8tiUyr1JW8hw2z43", sed + skill, 187, 4, 5510)),
        *shells(
            *(6, one),
            (6, "call_VZakMJ4krqqb1Wnmc8ZVkSKs", wc, 145, 8, 170),
            (7, "call_S9CCSetFADlbjlahU9MvN15w", rg, 226, 9, 22887),
        ),
        *shells(
            *(11, one),
            (11, "call_PPoZN9Borljc8TLstEoI86Oz", f"{sed}'40,180p' {vtt}mpl", 157, 15, 4503),
            (12, "call_wRWesOuGvoGbV7nbRFlNSfXH", f"{sed}'180,520p' {vtt}mp", 158, 16, 11030),
            (13, "call_CoNBwaGxF0SP92vl6VaVtauo", f"{sed}'1800,2180p' {vtt}", 160, 17, 12225),
            (14, "call_BmCvKI5OQPCwNKZKrPoBPcjZ", f"{sed}'3860,4280p' {vtt}", 160, 18, 13137),
        ),
        *shells(
            *(20, one),
            (20, "call_iJwK6RrOA97VOmgawou2X70f", f"{sed}'6840,7335p' {vtt}", 160, 24, 15928),
            (21, "call_lqZGojsoOW70Sgz6OiOMp093", f"{sed}'7335,8060p' {vtt}", 160, 25, 23125),
            (22, "call_rwrn6KRtlhSx9eNCtnxB9qTv", f"{sed}'8030,8445p' {vtt}", 160, 26, 13466),
            (23, "call_tkKm0lKSKc4yFDXvlyc7UWHY", f"{sed}'8640,8785p' {vtt}", 160, 27, 4461),
        ),
        (29, "model", one, [answers[0]]),
        (30, "turn", two),
        (30, "user", two, [asked[1]]),
        (31, "model", two, [answers[1]]),
        (32, "turn", three),
        (32, "user", three, [asked[2]]),
        *shells(
            *(34, three),
            (34, "call_cPUxZ8w2dCBrNpdpniD2jJWG", sed + skill, 181, 36, 13832),
            (35, "call_geGP5XA2U7zwVtatjLVDEEly", sed + skill, 183, 37, 10703),
        ),
        *shells(39, three, (39, "call_ejYWXmk9eTlwd6gnCopNJQVK", cat, 169, 40, 40141)),
        (42, "model", three, [("call_QN0Lw7jU6TTLrFELRdHVYQZi", "mcp__node_repl__js", node)]),
        (42, "call", three, "call_QN0Lw7jU6TTLrFELRdHVYQZi"),
        (43, "result", three, "call_QN0Lw7jU6TTLrFELRdHVYQZi", 206),
        *shells(45, three, (45, "call_3f7AXDMZ9PHz7zedrTO4twut", chrome, 128, 46, 137)),
        *shells(48, three, (48, "call_fOqgRQMFHp9giVTCngL0DIS2", chrome, 363, 0, 0)),
    ]
    first = [each[4][0][0] for each in got if each[1] == "result"]
    assert [text[:10] for text in first] == ["Chunk ID: "] * 14 + ["Wall time:", "Chunk ID: "]
    assert spent(said).responses == 0
    assert (lens.facts.id, lens.facts.cwd) == (ROLLOUT[-36:], "/Users/Sample_User/naya")
    assert (sum(lens.raw.values()), lens.told, lens.missed) == (0, 38, 0)


@pytest.mark.parametrize("name", ["session_toolcall", "as_schema_drift"])
def test_earliest_lines(name: str) -> None:
    """Lines with a role, or a call of the first shape, are messages, calls and results."""
    said, lens = sample(name)
    asked = ("call-1", "translate", {"text": "hello", "to": "es"})
    assert rows(said) == [
        (0, "turn", "prompt-0"),
        (0, "user", "prompt-0", ["Translate 'hello' to Spanish"]),
        (1, "model", "prompt-0", [asked], "gpt-4o-mini"),
        (1, "call", "prompt-0", "call-1"),
        (2, "result", "prompt-0", "call-1", ["hola"]),
        (3, "model", "prompt-0", ['"hola"'], "gpt-4o-mini"),
    ]
    assert (lens.told, lens.missed) == (4, 0)


def test_samples_of_parsers() -> None:
    """Messages without a type, and arguments as text, as an object and left out, are read."""
    asked = {
        "av_fc_args_1": [("call_test", "exec_command", {"cmd": "rg --files", "workdir": TMP})],
        "av_fc_stdin": [("call_test", "write_stdin", {"chars": "yes\n", "session_id": "sess-42"})],
        "av_function_calls": [("call_test", "shell_command", {}), ("call_test", "apply_patch", {})],
        "av_standard_session": ["I'll add rate limiting to the API."],
    }
    for name, blocks in asked.items():
        said, lens = sample(name)
        assert rows(said)[2] == (2, "model", "prompt-1", blocks)
        assert [each[1] for each in rows(said)[:2]] == ["turn", "user"]
        assert (dict(lens.raw), lens.missed) == ({}, 0)


def test_history_of_prompts() -> None:
    """The history holds prompts alone, each of them a turn."""
    said, lens = sample("dejavu_history")
    assert rows(said) == [(0, "turn", "prompt-0"), (0, "user", "prompt-0", ["history needle"])]
    assert dict(lens.understood) == {"history": 1}


def test_versions_050_and_052() -> None:
    """Both count tokens in shapes of their own, and chunks of answers mean nothing."""
    assert rows(sample("codex_050_legacy")[0]) == [(2, "usage", {"input": 1420, "output": 910})]
    said, lens = sample("codex_052_raw")
    assert rows(said) == [
        (3, "usage", {"input": 980, "output": 640, "cached": 0}),
        (5, "usage", {"input": 1620, "output": 240, "cached": 980}),
    ]
    assert dict(lens.raw) == {"event_msg/codex/event/raw_item": 3}


# --- whatever a record holds --------------------------------------------------------------------


def test_what_is_missed_and_what_is_raw() -> None:
    """Messages and calls that cannot be read are missed; what means nothing is raw."""
    _, lens = read(
        *(item(role="robot", content="x"), item(role="user", content=5), item("function_call")),
        *(event("agent_message"), line("response_item", 5), line("world_state", {}), event("new")),
        {"unknown": 1},
    )
    assert (lens.told, lens.missed, sum(lens.raw.values())) == (0, 5, 8)
    assert sum(lens.understood.values()) == 0


def accepted(said: list[Event], *, strict: bool = True) -> None:
    """Events fit the vocabulary, in order, and their transcript every provider."""
    assert [each.seq for each in said] == sorted(each.seq for each in said)
    assert [each.type for each in said if fitting(each) is None] == []
    spoken = transcript(said)
    for name in FORMATS if strict and spoken else ("neutral",):
        assert VALIDATORS[name](FORMATS[name](spoken)) == [], name


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_makes_a_transcript(path: Path) -> None:
    """What is said of a sample fits the vocabulary, and providers accept its transcript."""
    said, lens = sample(path.stem)
    accepted(said)
    assert type(lens_of("codex")) is Codex
    assert lens.told >= 0.95 * (lens.told + lens.missed)


RECORDS: list[Record] = [
    json.loads(text)
    for path in SAMPLES
    for text in path.read_text(encoding="utf-8").split("\n")
    if text.strip() and len(text) < 4000
]
LINES = ["", "{", "[]", "5", '{"type":' * 5000, '{"payload":' * 400 + "1" + "}" * 400]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
) | st.sampled_from([2**80, -1, 10**4000, "\ud800", "x" * 5000, [[[[]]]], {"type": "message"}])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every member of an object or list, and of what it holds: what holds it, and its name."""
    if not isinstance(value, dict | list):
        return []
    inner = [*(value.items() if isinstance(value, dict) else enumerate(value))]
    deeper = [place for _, each in inner for place in places(each)]
    return [(value, name) for name, _ in inner] + deeper


def mutilate(data: st.DataObject, record: Record) -> None:
    """Replace something in a record, or take it away."""
    found = places(record)
    at: int = data.draw(st.integers(0, max(0, len(found) - 1)))
    holder, name = found[at] if found else (record, "type")
    removed: bool = data.draw(st.booleans())
    if removed and found and isinstance(holder, dict):
        del holder[name]
    else:
        holder[name] = copy.deepcopy(data.draw(JSON))


@given(st.data())
def test_mutilated_records_never_raise(data: st.DataObject) -> None:
    """Whatever records hold is counted once, and what is said of it fits the vocabulary."""
    chosen = copy.deepcopy(data.draw(st.lists(st.sampled_from(RECORDS), max_size=8)))
    for record in chosen:
        for _ in range(data.draw(st.integers(0, 2))):
            mutilate(data, record)
    lines = [json.dumps(record) for record in chosen] + data.draw(st.lists(st.sampled_from(LINES)))
    said, lens = fed(stored(lines))
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert lens.told <= sum(lens.understood.values())
    assert lens.missed <= sum(lens.raw.values())
    accepted(said, strict=False)


def test_deep_and_odd_values_are_survived() -> None:
    """Arguments and outputs beyond what an event can hold are told of in words."""
    deep = json.loads("[" * 300 + "]" * 300)
    said = told(call("c", arguments={"a": deep}), output("c", deep))
    assert said[0][3] == [("c", "sh", {"input": "[arguments that cannot be shown]"})]
    assert said[2][4] == ["[output that cannot be shown]"]
    halves = '{"a":"\ud83d\\ude00"}'
    assert told(call("c", arguments=halves))[0][3] == [("c", "sh", {"input": halves})]
