"""Each rule of the lens of deepseek-harness, on records made for it."""

import json

import pytest

from tests.dsh_lines import (
    accepted,
    answer,
    asks,
    chunk,
    fed,
    header,
    line,
    replacing,
    result,
    rows,
    said_of,
    spent,
    stored,
    text,
    tokens,
    told,
    user,
)
from tests.lens_lines import Record, texts, transcript, view


def test_turns_begin_once_and_end_as_told() -> None:
    """A turn begins at its first sign, and its end tells how and why."""
    failure = {"message": "no quota", "code": "QUOTA"}
    assert told(
        header(),
        *(user("one"), line("turn/start", turn=1), line("turn/end", turn=1, reason="blocked")),
        *(line("turn/start", turn=2), line("turn/start", turn="2"), user("two")),
        line("turn/end", turn=2, reason={"kind": "error", "error": failure}),
        *(user("noted", "cron"), line("step/start", turn=7, step=1), answer(*text("x"), turn=7)),
        *(line("turn/end", turn=7, reason={"kind": "max-tokens"}), line("turn/end", reason=None)),
        *(
            line("turn/start", turn=8),
            line("turn/end", turn=8, reason={"kind": "error", **failure}),
        ),
    ) == [
        (1, "turn/start", "1"),
        (1, "user", "1", ["one"]),
        (3, "turn/end", "1", "blocked"),
        (4, "turn/start", "2"),
        (6, "user", "2", ["two"]),
        (7, "turn/end", "2", "error", "QUOTA", "no quota"),
        (8, "user", None, ["noted"], "cron"),
        (9, "turn/start", "7"),
        (9, "step/start", "7", 1),
        (10, "model", "7", ["x"], "m"),
        (11, "turn/end", "7", "max-tokens"),
        (13, "turn/start", "8"),
        (14, "turn/end", "8", "error", "QUOTA", "no quota"),
    ]


def test_old_shapes_of_injected_messages() -> None:
    """Steering and context had types of their own; steering was typed, context was not."""
    steered = line("steering/message", turn=1, message={"content": text("left")})
    noted = line("context/message", content=text("a file changed"))
    assert told(line("turn/start", turn=1), steered, noted)[1:] == [
        (1, "user", "1", ["left"]),
        (2, "user", "1", ["a file changed"], "context"),
    ]


def test_blocks_of_content() -> None:
    """Images, blocks of plugins, blank texts and odd arguments have forms that providers take."""
    picture = {"type": "image", "attachment": {"id": "a", "mediaType": "image/png"}}
    said = told(
        line("user/message", content=[*text(""), picture, {"type": "image"}, {"type": "chart"}]),
        answer(asks(7, "sh", '{"a":1}'), asks("b", "sh", '{"cut'), asks("c", None, ""), asks(None)),
        answer({"type": "reasoning", "text": "hm"}, asks("d", "sh", [1]), turn=2),
        line("user/message", content="plain"),
    )
    assert said[1] == (0, "user", "1", ["[image image/png]", "[image]", "[chart]"])
    calls = [("7", "sh", {"a": 1}), ("b", "sh", {"input": '{"cut'}), ("c", "tool", {})]
    assert said[2] == (1, "model", "1", calls, "m")
    assert said[4] == (2, "model", "2", [("thinking", "hm"), ("d", "sh", {"input": [1]})], "m")
    assert said[5] == (3, "user", "2", ["plain"])


def test_late_and_failed_results() -> None:
    """A result that comes turns later is one, and a failure without a code has one."""
    said = said_of(
        *(user("go"), answer(asks("a"), asks("b")), line("turn/end", turn=1, reason="completed")),
        *(user("next"), result("b", "no", failed=True), result("a", "late")),
        line("tool/result", callId="a", content=text("old"), isError=False),
    )
    assert rows(said)[-3:] == [
        (4, "result", "1", "b", ["no"], "FAILED", "no"),
        (5, "result", "1", "a", ["late"]),
        (6, "result", "2", "a", ["old"]),
    ]
    results = transcript(said)[2]["content"]
    assert [part["content"] for part in results] == [text("late"), text("no")]


def test_a_result_that_was_shortened_is_told_once() -> None:
    """A result that takes the place of another is not told again, unless that one is lost."""
    asked = (user("go"), answer(asks("a")), result("a", "long", at={"surfaceOp": "append"}))
    short = result("a", "short", at=replacing(2, 2))
    said = told(*asked, short)
    assert said[-1] == (2, "result", "1", "a", ["long"])
    assert told(*asked[:2], short)[-1] == (2, "result", "1", "a", ["short"])
    # What was shortened is where it was.
    summed = user("sum", "plugin", plugin="compact", at=replacing(0, 1))
    assert told(*asked, short, summed)[-1] == (4, "compacted", "1", ["sum"], 2)


def test_numbers_of_the_source_are_mapped() -> None:
    """Ranges name the source's numbers, counted through packed rows; places count, not numbers."""
    row = line("text-chunks", turn=1, step=1, index=0, dt=[0, 0, 0], texts=["a", "b", "c", "d"])
    summed = user("sum", "plugin", plugin="compact", at=replacing(0, 5))
    again = user("sums", "plugin", plugin="compact", at=replacing(7, 6))
    said = said_of(
        *(header(), user("one"), row, answer(*text("abcd")), user("two"), summed),
        *(user("three"), again),
    )
    # The prompt is 0, the row 1 to 4, the answer 5, the second prompt 6, the summary 7.
    assert rows(said)[4] == (5, "compacted", "1", ["sum"], 4)
    assert rows(said)[6] == (7, "compacted", "1", ["sums"], 6)
    assert texts(said) == ["sums", "three"]


def test_replacements_that_are_no_compaction() -> None:
    """What takes a place in the middle, or was typed, comes last, and nothing is taken away."""
    before = (user("one"), user("two"), user("three"))
    middle = user("less", "plugin", plugin="pruner", at=replacing(1, 1))
    assert texts(said_of(*before, middle)) == ["one", "two", "three", "less"]
    assert texts(said_of(*before, user("edited", at=replacing(0, 0))))[-1] == "edited"
    lost = user("sum", "plugin", plugin="compact", at={**replacing(40, 50), "seq": 60})
    later = {**user("later"), "seq": 55}
    assert told(*before, later, lost)[-1] == (4, "compacted", "1", ["sum"], 3)


def test_pieces_of_an_answer_that_failed() -> None:
    """What was streamed is told where no message came, in order with what came between."""
    row = line("reasoning-chunks", turn=1, step=1, index=2, dt=[0, 0], texts=["h", "m", "\ud83d"])
    failed = {"kind": "error", "failure": {"message": "overload", "code": "X"}}
    counts = {"inputTokens": 5, "outputTokens": 1}
    said = said_of(
        *(
            user("go"),
            row,
            chunk("text-delta", index=3, text="he"),
            line("session/title", title="T"),
        ),
        *(chunk("usage", usage=counts), chunk("finish", reason=failed)),
        *(chunk("text-delta", index=0, text="hello"), chunk("usage", usage={"outputTokens": 2})),
        answer(*text("hello")),
    )
    assert rows(said)[2:] == [
        *[
            (1, "assistant/delta", "1", {"text": piece, "kind": "thinking", "index": 2})
            for piece in ("h", "m", "\ud83d")
        ],
        (2, "assistant/delta", "1", {"text": "he", "index": 3}),
        (3, "session/titled", None, {"title": "T"}),
        (4, "usage", "1", tokens(5, 1)),
        (8, "model", "1", ["hello"], "m", {"output": 2}),
    ]
    assert texts(said) == ["go", "hello"]


STREAMED = (
    *(line("turn/start", turn=1), user("go"), chunk("reasoning-delta", text="h\ud83d")),
    *(chunk("reasoning-delta", text="\ude00m"), chunk("text-delta", index=1, text="hel")),
    chunk("tool-call-delta", index=2, id="c", argumentsDelta='{"a":'),
)
"""An answer that is being streamed: a thought, a text, and a call."""


@pytest.mark.parametrize(
    "behind",
    [
        [],
        [line("session/title", title="T")],
        [line("session/end-seed")],
        [line("step/end", turn=1, step=1)],
        [line("turn/end", turn=1, reason={"kind": "interrupted"})],
        [line("turn/start", turn=2)],
    ],
)
def test_a_crash_leaves_what_was_streamed(behind: list[Record]) -> None:
    """An answer that a crash cut off is an interrupted message, whatever stands behind it.

    A call that was not begun is none of it: nobody knows what was asked for.
    """
    said = said_of(*STREAMED, *behind)
    asked = line("request/header", header={"config": {"model": "m-1"}}, reason="initial")
    whole = [("thinking", "h\U0001f600m"), "hel"]
    assert rows(said)[2] == (2, "model", "1", whole, True)
    assert rows(said_of(asked, *STREAMED, *behind))[3] == (3, "model", "1", whole, "m-1", True)
    last = transcript(said)[-1]
    assert (last["content"][1:], last["interrupted"]) == (text("hel"), True)
    accepted(said)


def test_calls_of_a_streamed_answer_that_were_begun_are_in_it() -> None:
    """A durable call has the answer that asked for it, though only pieces of that are left."""
    begun = line("tool/call", turn=1, step=1, callId="c", name="sh", arguments='{"a":1}')
    other = line("tool/call", turn=1, step=1, callId="d", name="ls", arguments="{}")
    whole = [("thinking", "h\U0001f600m"), "hel", ("c", "sh", {"a": 1}), ("d", "ls", {})]
    for behind in ([], [result("d", "no")], [result("d", "no"), line("turn/start", turn=2)]):
        said = said_of(*STREAMED, begun, other, *behind)
        assert rows(said)[2:5] == [
            (2, "model", "1", whole, True),
            (6, "call", "1", "c", "sh", {"a": 1}),
            (7, "call", "1", "d", "ls", {}),
        ]
        unknown, *_ = transcript(said)[2]["content"]
        assert unknown["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
        accepted(said)
    # A call of another step ends the answer.
    later = line("tool/call", turn=1, step=2, callId="e", name="sh", arguments="{}")
    kinds = [each.type for each in said_of(*STREAMED, later)]
    assert (kinds.count("assistant/delta"), kinds.count("assistant/message")) == (4, 0)


def test_another_answer_ends_the_one_before() -> None:
    """Pieces of another step end an answer: it is a message, or its step is over without one."""
    after = chunk("text-delta", step=2, text="next")
    said = rows(said_of(*STREAMED, after))
    assert [each[:2] for each in said[2:]] == [(2, "model"), (6, "model")]
    asked = STREAMED[5]
    assert rows(said_of(*STREAMED[:2], asked, after))[3:] == [
        (3, "step/end", "1", 1),
        (3, "model", "1", ["next"], True),
    ]


def test_what_was_streamed_whole_is_not_interrupted() -> None:
    """Where the provider said that this was all, only the message is lost, and not what it cost."""
    counts = chunk("usage", usage={"inputTokens": 5, "outputTokens": 1})
    done = chunk("finish", reason={"kind": "stop"})
    said = said_of(*STREAMED[:5], counts, done)
    assert rows(said)[-1][4:] == (tokens(5, 1),)
    assert spent(said)[:3] == (1, 5, 1)
    assert rows(said_of(*STREAMED, counts, done))[-1][4:] == (tokens(5, 1), True)
    failed = chunk("finish", reason={"kind": "error"})
    assert [each.type for each in said_of(*STREAMED[:5], failed)][-1] == "assistant/delta"


def test_a_message_is_told_once_whatever_was_streamed() -> None:
    """Pieces of an answer mean nothing where its message comes, also behind something typed."""
    whole = answer(*text("hello"))
    steered = line("steering/message", turn=1, message={"content": text("left")})
    assert texts(said_of(*STREAMED, whole)) == ["go", "hello"]
    assert texts(said_of(*STREAMED, steered, whole)) == ["go", "left", "hello"]
    begun = line("tool/call", turn=1, step=1, callId="c", name="sh", arguments="{}")
    assert texts(said_of(*STREAMED, begun, answer(*text("hello"), asks("c")))) == [
        "go",
        "hello",
        "tool-result",
    ]


def test_streams_of_later_versions() -> None:
    """Later versions keep chunks beside the message, and attempts without one."""
    counts = {"type": "usage", "usage": {"inputTokens": 4, "cacheWriteTokens": 3}}
    stream = [{"type": "text-chunks", "texts": ["a", "b"]}, {"type": "chunk", "chunk": counts}]
    attempt = line("assistant/attempt", turn=1, step=1, stream=stream)
    asked = line("request/header", header={"config": {"model": "m-1"}}, reason="initial")
    said = told(user("go"), asked, attempt, answer(*text("ab"), stream=stream))
    assert said[3:] == [
        (2, "assistant/delta", "1", {"text": "a"}),
        (2, "assistant/delta", "1", {"text": "b"}),
        (2, "usage", "1", {"input": 7, "model": "m-1"}),
        (3, "model", "1", ["ab"], "m", {"input": 7}),
    ]


def test_usage_is_counted_once() -> None:
    """A chunk behind its message, and a message that is repeated, cost nothing more."""
    cost = {"inputTokens": 2, "outputTokens": 1}
    whole = answer(*text("hi"), usage=cost)
    whole["data"]["message"]["id"] = "r"
    said = said_of(user("go"), whole, chunk("usage", usage=cost), whole)
    assert spent(said)[:3] == (1, 2, 1)
    odd = {"inputTokens": True, "outputTokens": -1, "reasoningTokens": 2**60}
    assert rows(said_of(user("go"), answer(*text("hi"), usage=odd)))[-1][-1] == "m"


def test_a_fork_does_not_pay_for_its_parent() -> None:
    """Usage before the length of the seed is the parent's; without a parent there is no seed."""
    paid = answer(*text("hi"), usage={"outputTokens": 1})
    own = answer(*text("ho"), step=2, usage={"outputTokens": 2})
    log = (user("go"), paid, line("session/end-seed"), own)
    forked = fed(stored(map(json.dumps, (header(parentSession="p", seedLength=2), *log))))
    assert spent(forked[0])[:3] == (1, 0, 2)
    assert (forked[1].facts.parent, forked[1].facts.kind) == ("p", "fork")
    assert spent(said_of(header(seedLength=2), *log))[:3] == (2, 0, 3)
    preset = header(parentSession=5, origin="subagent", agentPreset="scout")
    facts = fed(stored([json.dumps(preset)]))[1].facts
    assert (facts.parent, facts.kind, facts.agent) == ("5", "subagent", "scout")


def test_plan_mode_and_todos_are_state() -> None:
    """Whole states are kept under their keys; what only the screen showed is raw."""
    todos = [{"content": "look", "status": "pending"}]
    said, lens = fed(
        stored(
            json.dumps(record)
            for record in (
                *(line("plan/mode", active=True), line("todo/write", todos=todos)),
                *(line("plan/mode", active=False), line("plan/mode"), line("command/run")),
                *(line("approval/asked", id="a"), line("approval/decided", id="a")),
            )
        )
    )
    state = view(said).rows["state"].all
    assert state == {'["settings",null,"plan-mode"]': False, '["scratchpad",null,"todos"]': todos}
    assert lens.raw == {
        "approval/asked": 1,
        "approval/decided": 1,
        "command/run": 1,
        "plan/mode": 1,
    }
