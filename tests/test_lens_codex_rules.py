"""Each rule of the lens of Codex, and each trap."""

from typing import Any

import pytest

from perdure.views.facts import title
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
    spent,
    tokens,
    told,
    typed,
    user,
)
from tests.lens_lines import Record, Row, cut, texts, transcript, view

SEALED = "[encrypted summary]"

# --- one thing said by two records --------------------------------------------------------------

PROMPT = [(0, "turn", "prompt-0"), (0, "user", "prompt-0", ["go"])]


@pytest.mark.parametrize(
    "records",
    [
        [user("go")],
        [typed("go")],
        [user("go"), typed("go\n")],
        [typed("go"), line("turn_context", {}), user("go")],
        [user("go"), event("token_count", info=None), typed("go")],
        [user("<image name=[Image #1]>", "go", "</image>"), typed("go")],
        [
            *(user("go"), typed("go")),
            event("item_completed", item={"type": "UserMessage", "content": [{"text": "go"}]}),
        ],
        [typed("go"), typed("x", kind="user_instructions"), user("go")],
    ],
)
def test_a_prompt_is_told_once(records: list[Record]) -> None:
    """A prompt that an item, an event or several of them tell begins one turn, in any order."""
    assert told(*records) == PROMPT


def test_the_same_prompt_again_is_another() -> None:
    """A text that is typed twice is two prompts, with an answer between them or none."""
    twice = told(user("go"), typed("go"), user("go"), typed("go"))
    assert [each[:2] for each in twice] == [(0, "turn"), (0, "user"), (2, "turn"), (2, "user")]
    later = told(typed("go"), model("ok"), user("go"), typed("go"))
    assert [each[1] for each in later] == ["turn", "user", "model", "turn", "user"]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>", "agents-md"),
        ("<environment_context>\n  <cwd>/w</cwd>\n</environment_context>", "environment-context"),
        ("\n<user_instructions>x</user_instructions>", "user-instructions"),
        ("<TURN_ABORTED>\nx", "turn-aborted"),
        ("<brand_new_context>\nx\n</brand_new_context>\n", "brand-new-context"),
    ],
)
def test_injected_text_is_no_prompt(text: str, source: str) -> None:
    """An item that looks as if Codex had put it there begins no turn, where no event tells of it.

    Once there were such events, which say themselves that nobody typed it.
    """
    note = (0, "user", None, [cut(text)], source)
    for behind in ([], [typed(text, kind="environment_context")], [typed("other")], [model("x")]):
        assert told(user(text), *behind)[0] == note
    assert told(typed("x", kind="user_instructions")) == []


TYPED = (
    "<my_data>\n1, 2\n</my_data>",
    "# AGENTS.md instructions are wrong",
    "<skill> tag how?",
    "<environment_context>why is that there?</environment_context>",
)


def item_completed(kind: str, text: str) -> Record:
    return event("item_completed", item={"type": kind, "content": [{"type": "text", "text": text}]})


@pytest.mark.parametrize("text", TYPED)
def test_what_an_event_says_was_typed_is_a_prompt(text: str) -> None:
    """Whatever a prompt looks like, an event about it decides, on either side of its item."""
    prompt = [(0, "turn", "prompt-0"), (0, "user", "prompt-0", [cut(text)])]
    completed = item_completed("UserMessage", text)
    for records in (
        [typed(text)],
        [typed(text, kind="plain")],
        [user(text), typed(text)],
        [typed(text), user(text)],
        [user(text), line("turn_context", {}), typed(text)],
        [user(text), completed, typed(text)],
        [completed],
    ):
        assert told(*records) == prompt, records
    said = said_of(user("first"), model("1"), user(text), typed(text), model("2"), back(1))
    assert texts(said) == ["first", "1"]


def test_what_looks_put_there_waits_for_its_event() -> None:
    """Of several such items each is decided by its own event, and all are told in their order."""
    context, asked = "<environment_context>x</environment_context>", "<my_data>1</my_data>"
    said = told(user(context), user(asked), user("<a_b>c</a_b>"), typed(asked), model("ok"))
    assert said == [
        (0, "user", None, [context], "environment-context"),
        (1, "turn", "prompt-1"),
        (1, "user", "prompt-1", [asked]),
        (2, "user", "prompt-1", ["<a_b>c</a_b>"], "a-b"),
        (4, "model", "prompt-1", ["ok"]),
    ]
    titled = event("thread_name_updated", thread_name="T")
    assert [each[0] for each in told(model("x"), user(context), titled)] == [0, 1, 2]
    assert [each[0] for each in told(user(context), tokens(5, 5), event("task_complete"))] == [0, 1]


def test_what_the_developer_says_is_no_prompt() -> None:
    """Messages of other roles than the user's are told with the role as their source."""
    assert told(item(role="developer", content="rules")) == [
        (0, "user", None, ["rules"], "developer")
    ]
    assert told(item("agent_message", content=[{"text": "hi"}, {"encrypted_content": "x"}])) == [
        (0, "user", None, ["hi"], "agent")
    ]


def test_images_are_told_by_their_type() -> None:
    """An image is a text block with its media type, from wherever that is known."""
    urls = ["data:image/png;base64,iVBO", "https://e.x/a.JPG", None, {"url": "data:image/webp,x"}]
    parts = [{"type": "input_image", "image_url": url} for url in urls]
    kinds = ["[image image/png]", "[image image/jpeg]", "[image]", "[image image/webp]"]
    assert told(item(role="user", content=parts))[1][3] == kinds
    seen = told(typed("see", images=urls[:1], local_images=["/a.gif", 5]))
    assert seen[1][3] == ["see", "[image image/png]", "[image image/gif]", "[image]"]


def thought(*summary: str) -> Record:
    return item("reasoning", summary=[{"type": "summary_text", "text": text} for text in summary])


def shown(text: str) -> Record:
    return event("agent_message", message=text)


def mused(*summary: str) -> list[Record]:
    return [event("agent_reasoning", text=text) for text in summary]


ITEMS = [thought("a", "b"), model("hm"), call("c1")]


@pytest.mark.parametrize(
    "records",
    [
        ITEMS,
        [*mused("a", "b"), thought("a", "b"), shown("hm"), model("hm"), call("c1")],
        [thought("a", "b"), *mused("a", "b"), model("hm"), shown("hm"), call("c1")],
        # The events and the cost come before all items, as they did once.
        [*mused("a", "b"), shown("hm"), tokens(1), *ITEMS],
        [*ITEMS, tokens(1), shown("hm"), *mused("a", "b")],
        [*ITEMS, output("c1", "x"), shown("hm")],
        [
            *ITEMS,
            event("item_completed", item={"type": "AgentMessage", "content": [{"text": "hm"}]}),
            event("item_completed", item={"type": "Reasoning", "summary_text": ["a", "b"]}),
        ],
    ],
)
def test_an_answer_is_told_once(records: list[Record]) -> None:
    """The pieces of an answer are one message, whatever events repeat them, and where."""
    answer, *rest = told(*records)
    whole: list[Any] = [("thinking", "a"), ("thinking", "b"), "hm", ("c1", "sh", {})]
    assert answer[:4] == (0, "model", None, whole)
    assert [each[1] for each in rest] == ["call", "result"][: len(rest)]


def test_what_only_events_say_is_told() -> None:
    """An answer of which there is no item is that of its events."""
    assert told(typed("go"), shown("a"), shown("b"))[2:] == [(1, "model", "prompt-0", ["a", "b"])]
    assert told(shown("a"), call("c"), output("c", "x"), model("a")) == [
        (0, "model", None, ["a", ("c", "sh", {})]),
        (1, "call", None, "c"),
        (2, "result", None, "c", ["x"]),
    ]


def test_answers_are_told_apart() -> None:
    """Results, prompts and the cost of an answer end it; the limits of the account do not."""
    limits = event("token_count", info=None)
    records = [model("a"), limits, model("b"), tokens(5, 5), model("c"), output("x", "")]
    assert told(*records, model("d")) == [
        (0, "model", None, ["a", "b"], {"input": 5, "output": 1}),
        (4, "model", None, ["c"]),
        (5, "result", None, "x", []),
        (6, "model", None, ["d"]),
    ]


# --- tokens -------------------------------------------------------------------------------------


def counted(*records: Record) -> list[int]:
    """How many responses, tokens sent, tokens that came back."""
    found = spent(said_of(*records))
    return [found.responses, found.input, found.output]


def test_tokens_are_counted_once() -> None:
    """A repeated total is no news, a difference stands for the last, a smaller total is anew."""
    assert counted(tokens(5, 5), tokens(5, 5), tokens(12, 7)) == [2, 12, 2]
    assert counted(tokens(5), tokens(12), tokens(12)) == [2, 12, 1]
    assert counted(tokens(50, 50), tokens(3)) == [2, 53, 2]
    assert counted(tokens(50, 50), line("compacted", {"message": "m"}), tokens(9, 9)) == [2, 59, 2]
    assert counted(event("token_count", info={"prompt": 7, "completion": 2})) == [1, 7, 2]
    wrong = event("token_count", info={"last_token_usage": {"input_tokens": -1}})
    assert counted(wrong) == [0, 0, 0]


def test_cost_of_a_turn_stands_for_that_of_its_responses() -> None:
    """`turn.completed` counts where nothing else told of tokens since the turn began."""
    done = event("turn.completed", usage={"input_tokens": 9, "output_tokens": 3})
    assert counted(done, done) == [2, 18, 6]
    assert counted(tokens(9, 9), done, done) == [2, 18, 4]


def test_parts_of_counts_and_the_model() -> None:
    """Cached tokens are a part of the input, thinking of the output; the model is the turn's."""
    more = {"cached_input_tokens": 4, "reasoning_output_tokens": 1}
    assert told(line("turn_context", {"model": "m-1"}), tokens(9, 9, **more)) == [
        (1, "usage", {"input": 9, "output": 1, "cached": 4, "reasoning": 1, "model": "m-1"}),
    ]


# --- compaction, rollback, turns ----------------------------------------------------------------


def history(*items: Record) -> Record:
    return line("compacted", {"message": "", "replacement_history": [i["payload"] for i in items]})


def test_compaction_with_a_new_history() -> None:
    """What the model is told in the place of all before is the summary, its own part follows."""
    new = history(user("kept"), user("so far"), item("compaction"))
    assert told(typed("old"), model("x"), new)[3:] == [
        (2, "compacted", ["kept", "so far", SEALED]),
    ]
    own = [model("mine"), call("c"), output("c", "r"), user("sum"), item("compaction")]
    new = history(user("kept"), item("ghost_snapshot"), *own)
    said = said_of(typed("old"), tokens(70, 70), new, model("next"))
    assert rows(said)[3:] == [
        (2, "compacted", ["kept"], 71),
        (2, "model", "prompt-0", ["mine", ("c", "sh", {})]),
        (2, "result", "prompt-0", "c", ["r"]),
        (2, "user", "prompt-0", ["sum"], "history"),
        (2, "user", "prompt-0", [SEALED], "history"),
        (3, "model", "prompt-0", ["next"]),
    ]
    roles = [message["role"] for message in transcript(said)]
    assert roles == ["user", "assistant", "tool", "user", "user", "assistant"]


def test_compaction_without_one() -> None:
    """Without a new history: the prompts so far, the latest 80,000 characters, and the summary."""
    records = [typed("x" * 79_998), typed("ab"), typed("c"), line("compacted", {"message": "sum"})]
    assert told(*records)[-1] == (3, "compacted", ["ab", "c", "sum"])
    empty = told(typed("old"), model("x"), line("compacted", {"replacement_history": []}))
    assert empty[-1] == (2, "compacted", [])


def back(turns: Any) -> Record:
    return event("thread_rolled_back", num_turns=turns)


def test_rollback_goes_back_by_prompts() -> None:
    """The last prompts are taken back, with what followed; more than there are is all of them."""
    records = [user("a"), model("1"), user("b"), model("2"), user("c"), model("3")]
    said = said_of(*records, back(2))
    assert rows(said)[-1] == (6, "context/rewound", {"to": "prompt-0"})
    assert texts(said) == ["a", "1"]
    assert told(*records, back(9))[-1] == (6, "context/rewound", {})
    assert texts(said_of(*records, back(1), back(1), user("d"), model("4"))) == list("a1d4")
    assert len(told(*records, back("1"), back(0), back(-1))) == 9


def started(id: str) -> Record:
    return event("task_started", turn_id=id)


def test_turns_begin_and_end_as_codex_says() -> None:
    """A turn has Codex's id; a prompt within it begins one more; it ends as its end says."""
    said = told(
        *(started("t1"), user("a"), typed("b"), event("turn_aborted", turn_id="t1", reason="x")),
        *(started("t2"), user("c"), event("task_complete", turn_id="t9")),
        *(event("task_complete", turn_id="t2"), event("task_complete", turn_id="t2")),
    )
    assert [each for each in said if each[1] in ("turn", "end")] == [
        (1, "turn", "t1"),
        (2, "turn", "prompt-2"),
        (3, "end", "prompt-2", "aborted"),
        (5, "turn", "t2"),
        (7, "end", "t2", "completed"),
    ]


def test_errors_end_turns() -> None:
    """A turn that ends behind an error ends in it, unless the model answered since."""
    error, end = event("error", message="no", codex_error_info={"http": {}}), event("task_complete")
    assert told(user("a"), error, end)[-1] == (2, "end", "prompt-0", "error", "http", "no")
    assert told(user("a"), error, model("ok"), end)[-1] == (3, "end", "prompt-0", "completed")
    ended = told(user("a"), event("task_complete", error={"message": "m"}))[-1]
    assert ended == (1, "end", "prompt-0", "error", "error", "m")


def test_titles() -> None:
    """The thread's name is the title; the last one holds."""
    records = [event("thread_name_updated", thread_name=name) for name in ("a", None, "b")]
    assert told(*records) == [
        (0, "session/titled", {"title": "a"}),
        (2, "session/titled", {"title": "b"}),
    ]
    assert read(*records)[1].facts.title == "b"
    assert title(view(said_of(*records)).rows["session"]) == "b"
    # An answer that is open stays one, and has the first number.
    whole = told(model("x"), records[0], model("y"))
    assert whole == [(0, "model", None, ["x", "y"]), (1, "session/titled", {"title": "a"})]


# --- calls and results --------------------------------------------------------------------------


def asked(kind: str, **members: Any) -> Record:
    return item(kind, call_id="c", **members)


@pytest.mark.parametrize(
    ("record", "block"),
    [
        (call("c", arguments='{"a":1}'), ("c", "sh", {"a": 1})),
        (call("c", arguments={"a": 1}), ("c", "sh", {"a": 1})),
        (call("c", arguments="rm"), ("c", "sh", {"input": "rm"})),
        (call("c", arguments=[1], namespace="mcp__x"), ("c", "mcp__x__sh", {"input": [1]})),
        (call("c", namespace="mcp__x__"), ("c", "mcp__x__sh", {})),
        (call("c", summary="runs"), ("c", "sh", {})),
        (item("function_call", call_id=7, name="sh"), ("7", "sh", {})),
        (asked("custom_tool_call", name="p", input="*** x"), ("c", "p", {"input": "*** x"})),
        (asked("local_shell_call", action={"command": []}), ("c", "local_shell", {"command": []})),
        (asked("tool_search_call", arguments={"q": 1}), ("c", "tool_search", {"q": 1})),
        (item("brand_new_call", id="n", input={}), ("n", "brand_new", {})),
        ({"type": "tool_call", "function": {"name": "t", "arguments": "{}"}}, ("call-0", "t", {})),
    ],
)
def test_calls(record: Record, block: Row) -> None:
    """Every kind of call is a block of an answer with its id, tool and arguments, and began."""
    assert told(record) == [(0, "model", None, [block]), (0, "call", None, block[0])]


@pytest.mark.parametrize(
    ("said", "content"),
    [
        ("", []),
        ("text", ["text"]),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image"}], ["a", "[image]"]),
        ({"content": "a", "success": True}, ["a"]),
        ({"content": [{"type": "input_text", "text": "a"}]}, ["a"]),
        ({"type": "input_text", "text": "a"}, ["a"]),
        ({"stdout": "a"}, ['{"stdout":"a"}']),
        (None, []),
        (5, ["5"]),
    ],
)
def test_outputs(said: Any, content: list[str]) -> None:
    """What a tool said is text, in whatever shape it was kept."""
    assert told(call("c"), output("c", said))[2] == (1, "result", None, "c", content)


def test_failed_and_late_results() -> None:
    """A tool that failed is an error; a result counts in a later turn, and without its call."""
    failed = told(output("c", {"content": "no", "success": False}))
    assert failed == [(0, "result", None, "c", ["no"], "FAILED", "the tool reported a failure")]
    said = said_of(user("a"), call("c"), event("turn_aborted"), user("b"), output("c", "late"))
    (result,) = transcript(said)[2]["content"]
    assert result["content"] == [{"type": "text", "text": "late"}]


def test_what_the_provider_runs_is_answered() -> None:
    """Searches and pictures that are done have their result; of others it is not known."""
    search = item("web_search_call", id="w", status="completed", action={"query": "q"})
    assert told(search)[2] == (0, "result", None, "w", [])
    assert len(told(item("web_search_call", id="w", status="in_progress"))) == 2
    assert told(item("web_search_call", id="w", status="failed"))[2][5] == "FAILED"
    drawn = told(item("image_generation_call", id="i", revised_prompt="cat", result="iVBORw0"))
    assert drawn[0][3] == [("i", "image_generation", {"prompt": "cat"})]
    assert drawn[2] == (0, "result", None, "i", ["[image image/png]"])


def test_results_without_ids_answer_by_name() -> None:
    """A result that names no call answers the oldest open one of its tool; else it is missed."""
    ask = [{"type": "function_call", "function": {"name": name}} for name in "aba"]
    said, lens = read(*ask, *({"type": "function_result", "name": n, "result": 1} for n in "aaba"))
    assert [each[3] for each in said if each[1] == "result"] == ["call-0", "call-2", "call-1"]
    assert (lens.told, lens.missed, lens.raw["function_result"]) == (6, 1, 1)


# --- forks and sub-agents -----------------------------------------------------------------------


def meta(id: str, **members: Any) -> Record:
    return line("session_meta", {"id": id, **members})


def uuid7(ms: int) -> str:
    """An id that was made at this time."""
    digits = f"{ms:012x}70008000{0:012x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


CHILD, PARENT = uuid7(1_000_000), uuid7(500)
COPIED = [
    meta(PARENT, cwd="/parent"),
    started(uuid7(900)),
    line("turn_context", {"turn_id": uuid7(900), "cwd": "/parent"}),
    *(user("old"), typed("old"), model("done"), tokens(100, 100)),
    event("thread_name_updated", thread_name="parent"),
    tokens(150, 50),
]


def test_a_fork_counts_its_own_tokens() -> None:
    """Copies of the parent's lines are part of the conversation, but not their tokens and title."""
    first = meta(CHILD, cwd="/child", forked_from_id=PARENT)
    own = [started(uuid7(1_000_500)), user("new"), model("yes"), tokens(150, 50), tokens(180, 30)]
    records = [first, *COPIED, *own]
    assert texts(said_of(*records)) == ["old", "done", "new", "yes"]
    assert counted(*records) == [1, 30, 1]
    facts = read(*records)[1].facts
    assert (facts.id, facts.parent, facts.kind) == (CHILD, PARENT, "fork")
    assert (facts.cwd, facts.title, facts.agent) == ("/child", None, None)
    assert counted(first, *COPIED) == [0, 0, 0]


def test_a_fork_without_ids_of_turns_begins_behind_a_pause() -> None:
    """Where turns have no ids that tell their time, copies end with the first pause."""
    copies = [meta("child"), meta("parent"), user("old"), model("done"), tokens(100, 100)]
    later = [
        line("response_item", user("new")["payload"], "2026-08-03T10:00:09Z"),
        line("event_msg", tokens(130, 30)["payload"], "2026-08-03T10:00:12Z"),
    ]
    assert counted(*copies, *later) == [1, 30, 1]
    facts = read(*copies)[1].facts
    assert (facts.id, facts.parent, facts.kind) == ("child", "parent", "fork")


def test_sub_agents() -> None:
    """A sub-agent names its parent and itself; without copies all its tokens are its own."""
    spawn = {"parent_thread_id": PARENT, "agent_nickname": "Ada", "agent_role": "scout"}
    first = meta(CHILD, source={"subagent": {"thread_spawn": spawn}}, forked_from_id="other")
    own = [started(uuid7(1_000_001)), user("task"), tokens(9, 9)]
    facts = read(first, *own)[1].facts
    assert (facts.parent, facts.kind, facts.agent) == (PARENT, "subagent", "Ada")
    assert counted(first, *own) == [1, 9, 1]
    assert counted(first, *COPIED, *own) == [1, 9, 1]
    facts = read(meta(CHILD, source={"subagent": "review"}))[1].facts
    assert (facts.parent, facts.kind, facts.agent) == (None, "subagent", "review")
    # Nothing else than a source makes one, and a parent that stands behind is its parent.
    for source in ("cli", {"subagent": None}, {"other": "x"}, ["subagent"]):
        assert read(meta(CHILD, source=source))[1].facts.kind is None
    facts = read(meta(CHILD, source={"subagent": "review"}), meta(PARENT))[1].facts
    assert (facts.parent, facts.kind) == (PARENT, "subagent")


# --- generations --------------------------------------------------------------------------------


def test_bare_lines_of_early_versions() -> None:
    """Items without an envelope are read behind their first line; states mean nothing."""
    first = {"id": "s", "timestamp": "t", "instructions": None, "git": {"branch": "main"}}
    bare = [each["payload"] for each in (user("go"), thought("a"), call("c"), output("c", "x"))]
    said, lens = read(first, {"record_type": "state"}, *bare, model("ok")["payload"])
    assert said == [
        (2, "turn", "prompt-2"),
        (2, "user", "prompt-2", ["go"]),
        (3, "model", "prompt-2", [("thinking", "a"), ("c", "sh", {})]),
        (4, "call", "prompt-2", "c"),
        (5, "result", "prompt-2", "c", ["x"]),
        (6, "model", "prompt-2", ["ok"]),
    ]
    assert (lens.facts.id, lens.facts.branch, dict(lens.raw)) == ("s", "main", {"state": 1})
    assert told({"session": {"id": "d"}, "items": [user("go")["payload"], 5]}) == PROMPT
    assert told({"role": "user", "message": "go", "created_at": "x"}) == PROMPT
