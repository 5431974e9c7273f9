"""Claude Code: each rule of the lens, each trap of the format, and records that are damaged."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.testing.providers import VALIDATORS
from perdure.views.conversation import agents, branches, messages
from perdure.views.providers import FORMATS
from tests.claude_code_lines import (
    FOLDER,
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

X = {"model": "claude-x"}


def answer(response: str, tokens: int | None = None) -> Record:
    used = {} if tokens is None else {"usage": {"input": 1, "output": tokens}}
    return {**X, "response": response, **used}


# --- answers ------------------------------------------------------------------------------------


def test_records_of_one_response_are_one_message() -> None:
    """Pieces of an answer make one message, with what it cost as it was told last."""
    records = [
        user("u", None, "why?"),
        model("a", "u", "m", {"type": "thinking", "thinking": "hm", "signature": "s"}, tokens=2),
        model("b", "a", "m", "because", tokens=40),
        model("c", "b", "m", call("t", command="ls"), tokens=88),
    ]
    assert told(*records) == [
        (0, "turn", "u"),
        (0, "user", "u", ["why?"]),
        (
            1,
            "model",
            "u",
            [("thinking", "hm"), "because", ("t", "Bash", '{"command": "ls"}')],
            answer("m", 88),
        ),
        (3, "call", "u", "t"),
    ]
    own = spent(said_of(*records)).own
    assert (own.responses, own.input, own.output) == (1, 1, 88)


def test_results_between_its_records_do_not_part_an_answer() -> None:
    """Results, progress, attachments and titles wait behind an answer that is not over."""
    assert told(
        user("u", None, "go"),
        model("a", "u", "m", call("t1")),
        record("progress", "p", "a", parentToolUseID="t1", data={"type": "bash_progress"}),
        user("r1", "a", [output("t1", "one")]),
        record("attachment", "h", "r1", attachment={"type": "hook_success", "content": "hooked"}),
        {"type": "custom-title", "customTitle": "T", "sessionId": "S"},
        model("b", "r1", "m", call("t2"), tokens=9),
        user("r2", "b", [output("t2", "two")]),
        model("c", "r2", "n", "done"),
    ) == [
        (0, "turn", "u"),
        (0, "user", "u", ["go"]),
        (1, "model", "u", [("t1", "Bash", "{}"), ("t2", "Bash", "{}")], answer("m", 9)),
        (2, "call", "u", "t1"),
        (3, "result", "u", "t1", ["one"]),
        (4, "user", "u", ["hooked"], "hook_success"),
        (5, "titled", "T"),
        (7, "call", "u", "t2"),
        (7, "result", "u", "t2", ["two"]),
        (8, "model", "u", ["done"], answer("n")),
    ]


def test_an_answer_that_is_told_again_is_said_once() -> None:
    """A record that repeats what was said of an answer, perhaps with more, adds what is new."""
    said = told(
        model("a", None, "m", "x"),
        model("b", "a", "m", "x"),
        model("c", "b", "m", "x", call("t")),
        model("d", "c", "m", call("t")),
    )
    assert said == [
        (0, "model", None, ["x", ("t", "Bash", "{}")], answer("m")),
        (3, "call", None, "t"),
    ]


def test_a_late_record_of_an_answer_is_counted_with_it() -> None:
    """What comes of an answer when it is closed is a message of the same response, used once."""
    records = [
        user("u", None, "go"),
        model("a", "u", "m", "x", tokens=3),
        model("b", "a", "n", "y", tokens=4),
        model("c", "b", "m", "z", tokens=5),
    ]
    assert [each[3:] for each in told(*records)[2:]] == [
        (["x"], answer("m", 3)),
        (["y"], answer("n", 4)),
        (["z"], answer("m", 5)),
    ]
    assert (spent(said_of(*records)).own.responses, spent(said_of(*records)).own.output) == (2, 9)


def test_what_waits_is_bounded() -> None:
    """Behind an answer that does not end no more than some events wait."""
    lines = [json.dumps(model("a", None, "m", call("t")))]
    lines += [json.dumps(user(f"r{n}", "a", [output(f"t{n}", "x")])) for n in range(500)]
    lens_events = stored(lines)
    said, _ = fed(lens_events[:1])
    assert [each.type for each in said] == ["assistant/message", "tool/call"]
    _, lens = fed([])
    waiting = 0
    for each in lens_events:
        waiting += 1 - len(list(lens.read(each)))
        assert waiting <= 64


def test_answers_of_several_agents_wait_apart() -> None:
    """Pieces of answers that agents give at the same time are put together for each."""
    side: Record = {"isSidechain": True, "agentId": "x"}
    assert told(
        user("u", None, "go"),
        model("a1", "u", "m", "one"),
        model("s1", None, "n", "three", **side),
        model("a2", "a1", "m", "two"),
        model("s2", "s1", "n", "four", **side),
    ) == [
        (0, "turn", "u"),
        (0, "user", "u", ["go"]),
        (1, "model", "u", ["one", "two"], answer("m")),
        (2, "x", "model", None, ["three", "four"], answer("n")),
    ]


def test_blocks_of_all_types_are_read() -> None:
    """Images and pieces of other types become texts that name them; thoughts keep signatures."""
    said = said_of(
        model(
            "a",
            None,
            "m",
            {"type": "thinking", "thinking": "", "signature": "s"},
            {"type": "redacted_thinking", "data": "xx"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}},
        ),
        user(
            "u",
            "a",
            [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png"}},
                {"type": "image", "source": {"type": "url", "url": "x"}},
                {"type": "document", "title": "Plan", "source": {"media_type": "application/pdf"}},
                {"type": "thinking", "thinking": "nobody's"},
                "look",
            ],
        ),
    )
    assert said[0].data["content"] == [
        {"type": "thinking", "text": "", "signature": "s"},
        {"type": "thinking", "text": "[redacted]"},
        {"type": "text", "text": "[server_tool_use web_search]"},
    ]
    assert [each["text"] for each in said[2].data["content"]] == [
        "[image image/png]",
        "[image]",
        "[document Plan]",
        "[thinking]",
        "look",
    ]


def test_only_the_cost_of_an_answer_without_content_is_told() -> None:
    """An answer with no readable block is no message, but what it cost is counted."""
    said, lens = read(model("a", None, "m", {"type": "fallback"}, tokens=7))
    assert said == [
        (0, "usage", None, {**X, "response": "m", "input": 1, "output": 7}),
    ]
    assert lens.told == 1


def test_caches_count_as_input() -> None:
    """Tokens that went into a cache or came from one are sent ones; odd counts are passed by."""
    used = {
        "input_tokens": 4,
        "cache_creation_input_tokens": 900,
        "cache_read_input_tokens": 12000,
        "output_tokens": 88,
        "output_tokens_details": {"thinking_tokens": 50},
    }
    for change, found in (
        ({}, {"input": 12904, "output": 88, "cached": 12000, "reasoning": 50}),
        (
            {"cache_read_input_tokens": None, "output_tokens": -1, "output_tokens_details": 1},
            {"input": 904},
        ),
        ({"input_tokens": "4"}, {"output": 88, "cached": 12000, "reasoning": 50}),
    ):
        line = model("a", None, "m", "x")
        line["message"]["usage"] = {**used, **change}
        assert said_of(line)[0].data["usage"] == found


def test_what_claude_code_says_itself_has_no_model() -> None:
    """A synthetic answer names no model and costs nothing."""
    line = model("a", None, "m", "No response requested.", tokens=0)
    line["message"]["model"] = "<synthetic>"
    said, lens = read(line)
    assert said == [(0, "model", None, ["No response requested."], {"response": "m"})]
    assert lens.facts.model is None


def test_an_error_of_the_api_ends_the_turn() -> None:
    """An error that stands in the place of an answer is the end of its turn, or else a message."""
    error = model("a", "u", "m", "API Error: 529", isApiErrorMessage=True, error="overloaded")
    assert told(user("u", None, "go"), error) == [
        (0, "turn", "u"),
        (0, "user", "u", ["go"]),
        (1, "end", "u", "error", "overloaded", "API Error: 529"),
    ]
    assert told(error) == [(0, "model", None, ["API Error: 529"], answer("m"))]


def test_turns_end_as_the_source_says() -> None:
    """The provider's reason, or the duration of a turn, tell how it ended; nothing else does."""
    for stop, reason in (
        ("end_turn", "completed"),
        ("stop_sequence", "completed"),
        ("max_tokens", "max-tokens"),
        ("refusal", "blocked"),
        ("tool_use", None),
        ("pause_turn", None),
    ):
        said = told(user("u", None, "go"), model("a", "u", "m", "x", stop=stop))
        assert [each[3] for each in said if each[1] == "end"] == ([reason] if reason else [])
    said = told(
        user("u", None, "go"),
        model("a", "u", "m", "x", stop="end_turn"),
        model("b", "a", "m", "y", stop="end_turn"),
        record("system", "s", "b", subtype="turn_duration"),
        record("system", "s2", "s", subtype="turn_duration"),
    )
    assert [each for each in said if each[1] == "end"] == [(1, "end", "u", "completed")]


def test_a_turn_that_goes_on_ends_again() -> None:
    """What the model says behind the end of a turn belongs to it, and its end is told again."""
    said = told(
        user("u", None, "go"),
        model("a", "u", "m", "x", stop="end_turn"),
        user("h", "a", "Stop hook feedback: not yet", isMeta=True),
        model("b", "h", "n", "y"),
        record("system", "s", "b", subtype="turn_duration"),
    )
    assert [each[:3] for each in said[3:]] == [
        (1, "end", "u"),
        (2, "user", "u"),
        (3, "model", "u"),
        (4, "end", "u"),
    ]


def test_an_answer_that_was_broken_off_says_so() -> None:
    """An answer that was aborted in its middle is interrupted."""
    said = told(model("a", None, "m", "par", isAbortedMidStream=True))
    assert said == [(0, "model", None, ["par"], {**answer("m"), "interrupted": True})]


# --- the user -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("<local-command-stdout>ok</local-command-stdout>", "command-output"),
        ("<bash-input>ls</bash-input>", "shell-command"),
        ("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>", "shell-output"),
        ("<system-reminder>\nbe brief\n</system-reminder>", "system-reminder"),
        ("<user-memory-input>x</user-memory-input>", "memory"),
        ("[Request interrupted by user]", "interruption"),
    ],
)
def test_what_nobody_typed_begins_no_turn(text: str, source: str) -> None:
    """Texts that Claude Code puts in the user's name are told with what they are."""
    assert told(user("u", None, text)) == [(0, "user", None, [text], source)]


def test_text_that_is_marked_as_not_typed_begins_no_turn() -> None:
    """A message with the mark `isMeta` is told of as such."""
    said = told(user("u", None, "Base directory of this skill", isMeta=True))
    assert said == [(0, "user", None, ["Base directory of this skill"], "meta")]


def test_a_typed_text_beside_a_reminder_is_a_prompt() -> None:
    """A prompt is typed if any part of it is; what is not typed is told of as what it is."""
    parts = [{"type": "text", "text": "<ide_selection>x</ide_selection>"}, "fix this"]
    assert told(user("u", None, parts)) == [
        (0, "turn", "u"),
        (0, "user", "u", ["<ide_selection>x</ide_selection>"], "ide"),
        (0, "user", "u", ["fix this"]),
    ]


def test_slash_commands_begin_turns_unless_they_are_local() -> None:
    """The model answers a slash command, but not one behind the caveat about local ones."""
    command = "<command-message>review is running</command-message>\n<command-name>/review"
    caveat = "Caveat: The messages below were generated by the user while running local commands."
    assert told(user("u", None, command), user("m", "u", "Do it", isMeta=True)) == [
        (0, "turn", "u"),
        (0, "user", "u", [(command[:60], len(command))], "command"),
        (1, "user", "u", ["Do it"], "meta"),
    ]
    assert [
        each[1:] for each in told(user("c", None, caveat, isMeta=True), user("u", "c", command))
    ] == [
        ("user", None, [(caveat[:60], len(caveat))], "caveat"),
        ("user", None, [(command[:60], len(command))], "command"),
    ]
    system = record("system", "s", None, subtype="local_command", content="<command-name>/mcp")
    assert told(system) == [(0, "user", None, ["<command-name>/mcp"], "command")]


def test_what_others_make_the_model_answer_begins_a_turn() -> None:
    """A notification begins a turn and is told with its source, by its tag or by its origin."""
    said = told(
        user("u", None, "<task-notification>done</task-notification>"),
        user("v", "u", "done too", origin={"kind": "task-notification"}),
        user("w", "v", "typed", origin={"kind": "human"}),
    )
    assert [each[1:] for each in said] == [
        ("turn", "u"),
        ("user", "u", ["<task-notification>done</task-notification>"], "task-notification"),
        ("turn", "v"),
        ("user", "v", ["done too"], "task-notification"),
        ("turn", "w"),
        ("user", "w", ["typed"]),
    ]


def test_what_was_typed_while_the_agent_was_busy_is_told_in_between() -> None:
    """A queued prompt belongs to the turn that runs, and begins one if none does."""
    queued = {"type": "queued_command", "prompt": "and tests", "commandMode": "prompt"}
    said = told(
        {"type": "queue-operation", "operation": "enqueue", "content": "and tests"},
        user("u", None, "go"),
        model("a", "u", "m", call("t")),
        user("r", "a", [output("t", "ok")]),
        record("attachment", "q", "r", attachment=queued),
        model("b", "q", "n", "done", stop="end_turn"),
        record("attachment", "q2", "b", attachment=queued | {"prompt": ["more"]}),
    )
    assert [each[1:4] for each in said if each[1] in ("turn", "user")] == [
        ("turn", "u"),
        ("user", "u", ["go"]),
        ("user", "u", ["and tests"]),
        ("turn", "q2"),
        ("user", "q2", ["more"]),
    ]
    assert said[5] == (4, "user", "u", ["and tests"], "queued")


def test_attachments_are_told_if_their_text_is_kept() -> None:
    """Text that the model was told beside the messages is told with its kind, else it is raw."""
    said, lens = read(
        *(
            record("attachment", f"a{at}", None, attachment=attachment)
            for at, attachment in enumerate(
                [
                    {"type": "file", "filename": "/a", "content": {"file": {"content": "text"}}},
                    {"type": "hook_additional_context", "content": ["one", "two"]},
                    {"type": "invoked_skills", "skills": [{"content": "s1"}, {"content": "s2"}]},
                    {"type": "hook_success", "content": " "},
                    {"type": "todo_reminder", "content": []},
                    {"type": 7},
                    "no attachment",
                ]
            )
        )
    )
    assert said == [
        (0, "user", None, ["[file /a]\ntext"], "file"),
        (1, "user", None, ["one\ntwo"], "hook_additional_context"),
        (2, "user", None, ["s1\ns2"], "invoked_skills"),
    ]
    assert lens.raw == {
        "attachment/hook_success": 1,
        "attachment/todo_reminder": 1,
        "attachment": 2,
    }


# --- tools --------------------------------------------------------------------------------------


def test_results_of_all_shapes_are_read() -> None:
    """Results are strings, blocks, images or nothing; what failed has an error."""
    kept = "<persisted-output>Output too large. Saved to: /x</persisted-output>"
    said = told(
        model("a", None, "m", *(call(f"t{n}") for n in range(7))),
        user(
            "r",
            "a",
            [
                output("t0", "ok", is_error=False),
                output(
                    "t1",
                    [
                        {"type": "text", "text": "x"},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "AA"},
                        },
                    ],
                ),
                output("t2", None),
                output("t3", [{"type": "tool_reference", "tool_name": "Grep"}]),
                output("t4", kept),
                output("t5", "exit code 1", is_error=True),
                output("t6", {"a": 1}),
            ],
        ),
    )
    assert [each[3:] for each in said if each[1] == "result"] == [
        ("t0", ["ok"]),
        ("t1", ["x", "[image image/png]"]),
        ("t2", []),
        ("t3", ["[tool_reference Grep]"]),
        ("t4", [(kept[:60], len(kept))]),
        ("t5", ["exit code 1"], "FAILED", "exit code 1"),
        ("t6", ['{"a":1}']),
    ]


def test_a_call_is_run_where_the_source_shows_it() -> None:
    """Progress, hooks behind a call and results show that it was run; refusals that it was not.

    Where nothing shows either, it may have been run, which is told when nothing more can come.
    """
    hook = {"type": "hook_progress", "hookEvent": "PreToolUse"}
    refusal = "The user doesn't want to proceed with this tool use. The tool use was rejected"
    wrong = "<tool_use_error>InputValidationError: x</tool_use_error>"
    said, lens = read(
        model("a", None, "m", *(call(f"t{n}") for n in range(5))),
        record("progress", "p0", "a", parentToolUseID="t0", data=hook),
        record(
            "progress", "p1", "a", parentToolUseID="t1", data={**hook, "hookEvent": "PostToolUse"}
        ),
        user("r1", "a", [output("t1", "ok")]),
        user("r2", "a", [output("t2", refusal, is_error=True)], toolUseResult="User rejected"),
        user("r3", "a", [output("t3", wrong, is_error=True)]),
        user("r4", "a", [output("t4", "ok")]),
    )
    assert [each for each in said if each[1] == "call"] == [
        (2, "call", None, "t1"),
        (6, "call", None, "t4"),
        (6, "call", None, "t0"),
    ]
    assert [each[5] for each in said if each[1] == "result" and len(each) > 5] == [
        "REJECTED",
        "FAILED",
    ]
    assert lens.understood["progress/hook_progress"] == lens.raw["progress/hook_progress"] == 1


def test_a_result_that_comes_late_answers_its_call() -> None:
    """A result behind the next prompt is told, in the turn of its call."""
    said = said_of(
        user("u", None, "go"),
        model("a", "u", "m", call("t")),
        user("v", "a", "and?"),
        user("r", "a", [output("t", "late")]),
    )
    assert rows(said)[-1] == (3, "result", "u", "t", ["late"])
    assert transcript(said)[2]["content"][0]["content"] == [{"type": "text", "text": "late"}]


def test_calls_without_ids_are_answered_in_their_order() -> None:
    """Where early versions name no id, results answer the calls as these were asked for."""
    said, lens = read(
        user("u", None, "go"),
        model("a", "u", "m", call(None), call(None, "Read")),
        user("r", "a", [output(None, "one"), output(None, "two")]),
        user("s", "a", [output(None, "three")], sourceToolUseID="t9"),
        user("x", "a", [output(None, "nobody's")]),
    )
    assert [each[3:] for each in said if each[1] == "result"] == [
        ("a-0", ["one"]),
        ("a-1", ["two"]),
        ("t9", ["three"]),
    ]
    assert (lens.told, lens.missed, lens.raw["user"]) == (4, 1, 1)


def test_calls_and_results_that_are_records_are_read() -> None:
    """Version 1.9 wrote a call and its result as records of their own."""
    said = told(
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "go"}},
        {"type": "tool_use", "uuid": "t", "name": "bash", "input": {"command": "ls"}},
        {"type": "tool_result", "uuid": "r", "name": "bash", "output": "a\nb"},
        {"type": "assistant", "uuid": "a", "message": {"role": "assistant", "content": "Two."}},
    )
    assert said[2:] == [
        (1, "model", "u", [("t-0", "bash", '{"command": "ls"}')], {}),
        (2, "call", "u", "t-0"),
        (2, "result", "u", "t-0", ["a\nb"]),
        (3, "model", "u", ["Two."], {}),
    ]


def test_a_call_of_a_sub_agent_names_it() -> None:
    """The result of a sub-agent's call tells of it, and how it ended if it did."""
    for status, ends in (
        ("completed", ["completed"]),
        ("killed", ["cancelled"]),
        ("async_launched", []),
    ):
        outcome = {"status": status, "agentId": "x7", "prompt": "Look", "totalTokens": 9}
        said = said_of(
            model("a", None, "m", call("t", "Task", subagent_type="Explore")),
            user("r", "a", [output("t", "found")], toolUseResult=outcome),
        )
        start = next(event for event in said if event.type == "subagent/start")
        assert start.data == {"id": "x7", "name": "Explore", "task": "Look"}
        ended = [event.data["status"] for event in said if event.type == "subagent/end"]
        assert ended == ends


def test_arguments_are_kept_as_they_are() -> None:
    """Arguments are those of the call; what cannot be stored is named."""
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    for given_, kept in (
        ({"a": 2**70}, {"a": 2**70}),
        ("text", {"input": "text"}),
        (None, {}),
        ({"a": deep}, {"input": "[arguments that cannot be shown]"}),
    ):
        part = {"type": "tool_use", "id": "t", "name": "X", "input": given_}
        assert said_of(model("a", None, "m", part))[0].data["content"][0]["arguments"] == kept


# --- the tree -----------------------------------------------------------------------------------


def _conversation() -> list[Record]:
    return [
        record("progress", "p", None, data={"type": "hook_progress"}),
        user("u1", "p", "one"),
        model("a1", "u1", "m1", "first"),
        user("u2", "a1", "two"),
        model("a2", "u2", "m2", "second"),
    ]


def test_a_prompt_behind_an_earlier_turn_begins_a_branch() -> None:
    """A prompt whose parent lies in an earlier turn goes on there, whatever kind that record is."""
    system = record("system", "s", "a1", subtype="turn_duration")
    records = [*_conversation()[:3], system, user("u2", "s", "two"), user("u3", "s", "three")]
    said = said_of(*records)
    assert [each for each in rows(said) if each[1] == "turn"] == [
        (1, "turn", "u1"),
        (4, "turn", "u2"),
        (5, "turn", "u3", {"parent": "u1"}),
    ]
    assert texts(said) == ["one", "first", "three"]
    assert [(each.turn, each.parent, each.live) for each in branches(iter(said))] == [
        ("u1", None, True),
        ("u2", "u1", False),
        ("u3", "u1", True),
    ]


@pytest.mark.parametrize("up", ["p", None])
def test_a_prompt_before_all_turns_begins_anew(up: str | None) -> None:
    """A prompt that follows nothing that was said is another version of the first."""
    said = said_of(*_conversation(), user("u3", up, "again"))
    assert rows(said)[-2:] == [
        (5, "turn", "u3", {"replaces": "u1", "how": "edit"}),
        (5, "user", "u3", ["again"]),
    ]
    assert texts(said) == ["again"]


def test_an_answer_behind_an_earlier_turn_begins_a_branch() -> None:
    """Where two go on with one session, each answer stands behind its own prompt."""
    said = said_of(
        *_conversation()[:3],
        user("x", "a1", "mine"),
        user("y", "a1", "yours"),
        model("b", "x", "m3", "for x"),
        model("c", "b", "m4", "for x too"),
    )
    assert [each for each in rows(said) if each[1] == "turn"] == [
        (1, "turn", "u1"),
        (3, "turn", "x"),
        (4, "turn", "y", {"parent": "u1"}),
        (5, "turn", "b", {"parent": "x"}),
    ]


def test_a_branch_that_was_left_is_taken_up_whole() -> None:
    """Back on a branch that was left, the model is told its prompts and answers, and no others."""
    said = said_of(
        *_conversation(),
        user("u3", "a1", "three"),
        model("a3", "u3", "m3", "third"),
        user("u4", "a2", "four"),
    )
    assert texts(said) == ["one", "first", "two", "second", "four"]


def test_a_parent_that_is_missing_is_what_was_read_last() -> None:
    """A prompt with an unknown parent follows the record before it."""
    said = said_of(*_conversation(), user("u3", "never-written", "three"))
    assert rows(said)[-2] == (5, "turn", "u3")
    assert texts(said) == ["one", "first", "two", "second", "three"]


def test_a_file_without_parents_is_a_line() -> None:
    """Records that name no parents, or themselves, follow each other."""
    for up in (None, "self"):
        said = said_of(
            user("u1", up and "u1", "one"),
            model("a1", up and "a1", "m1", "first"),
            user("u2", up and "u2", "two"),
        )
        assert texts(said) == ["one", "first", "two"]


# --- agents -------------------------------------------------------------------------------------


def test_sub_agents_inside_a_main_file_have_their_names() -> None:
    """Records of sub-agents in the file of a session are told as theirs."""
    side: Record = {"isSidechain": True}
    said, lens = read(
        user("u", None, "go"),
        user("s1", None, "task one", **side),
        model("s2", "s1", "n", "done", **side),
        user("t1", None, "task two", **side),
        user("t2", "missing", "more", isMeta=True, **side),
        user("v1", None, "task three", agentId="v", **side),
        model("a", "u", "m", "all done"),
    )
    assert [each[:2] if each[1] in "s1 t1 v" else each[:1] for each in said] == [
        (0,),
        (0,),
        (1, "s1"),
        (1, "s1"),
        (2, "s1"),
        (3, "t1"),
        (3, "t1"),
        (4, "t1"),
        (5, "v"),
        (5, "v"),
        (6,),
    ]
    assert (lens.facts.id, lens.facts.kind, lens.facts.model) == ("S", None, "claude-x")


def test_a_file_of_a_sub_agent_is_its_own() -> None:
    """In the file of a sub-agent its records have no agent, and the facts are its own."""
    side: Record = {"isSidechain": True, "agentId": "x", "sessionId": "P"}
    said, lens = read(
        user("u", None, "task", **side),
        model("a", "u", "m", "done", attributionAgent="Explore", **side),
    )
    assert said == [
        (0, "turn", "u"),
        (0, "user", "u", ["task"]),
        (1, "model", "u", ["done"], answer("m")),
    ]
    facts = lens.facts
    assert (facts.id, facts.parent, facts.kind, facts.agent) == ("x", "P", "subagent", "Explore")
    _, lens = read({"agentType": "Plan", "spawnDepth": 1})
    assert (lens.facts.agent, lens.understood) == ("Plan", {"meta": 1})


def test_a_fork_names_what_it_comes_from() -> None:
    """A session that was forked says of which other one."""
    _, lens = read(user("u", None, "x", forkedFrom={"sessionId": "R", "messageUuid": "y"}))
    assert (lens.facts.id, lens.facts.parent, lens.facts.kind) == ("S", "R", "fork")


def test_facts_are_those_that_hold_last() -> None:
    """Folder and branch are the last ones; records of another session do not rename the file's."""
    _, lens = read(
        user("u", None, "x", cwd="/a", gitBranch="main"),
        user("v", "u", "y", cwd="/b", gitBranch="dev"),
        user("w", "v", "z", sessionId="other"),
        {"type": "relocated", "relocatedCwd": "/c"},
    )
    assert (lens.facts.id, lens.facts.cwd, lens.facts.branch) == ("S", "/c", "dev")
    assert lens.told == 3


# --- compaction and titles ----------------------------------------------------------------------


def _boundary(**members: Any) -> Record:
    return record("system", "b", None, subtype="compact_boundary", compactMetadata=members)


def test_a_summary_stands_for_what_was_said() -> None:
    """A boundary and the summary behind it are one compaction."""
    said = said_of(
        *_conversation(),
        _boundary(trigger="manual", preTokens=9000, postTokens=800),
        user("s", "b", "So far…", isCompactSummary=True, isVisibleInTranscriptOnly=True),
        user("u3", "s", "three"),
    )
    assert rows(said)[-3:] == [
        (6, "compacted", "u2", ["So far…"], {"before": 9000, "after": 800, "reason": "manual"}),
        (7, "turn", "u3"),
        (7, "user", "u3", ["three"]),
    ]
    assert texts(said) == ["So far…", "three"]


def test_a_compaction_may_keep_what_was_said_last() -> None:
    """What is preserved begins with the message that a record of it belongs to."""
    said = said_of(
        *_conversation(),
        model("a3", "a2", "m2", "third"),
        _boundary(trigger="auto", preservedSegment={"headUuid": "a3", "tailUuid": "a3"}),
        user("s", "b", "So far…", isCompactSummary=True),
    )
    assert rows(said)[-1] == (
        7,
        "compacted",
        "u2",
        ["So far…"],
        {"first_kept": 4, "reason": "auto"},
    )
    assert texts(said) == ["So far…", "second"]


def test_a_summary_without_a_boundary_is_a_compaction() -> None:
    """A boundary without facts, or none at all, takes nothing from the summary."""
    for lines in ([], [record("system", "b", None, subtype="compact_boundary")]):
        said = told(*lines, user("s", "b", "So far…", isCompactSummary=True))
        assert said == [(len(lines), "compacted", None, ["So far…"], {})]


def test_a_title_by_the_user_goes_before_others() -> None:
    """A custom title holds against later ones of models, and each is replaced by its like."""
    custom = {"type": "custom-title", "customTitle": "mine"}
    ai = {"type": "ai-title", "aiTitle": "model's"}
    own = {"type": "summary", "summary": "sum", "leafUuid": "u"}
    said, lens = read(
        user("u", None, "x"), own, ai, custom, ai, own, {**custom, "customTitle": "2"}
    )
    titles = [each[2] for each in said if each[1] == "titled"]
    assert titles == ["sum", "model's", "mine", "2"]
    assert lens.facts.title == "2"


def test_summaries_of_other_sessions_are_no_titles() -> None:
    """A summary whose last record is not in the file says nothing; it may be read later."""
    other = {"type": "summary", "summary": "theirs", "leafUuid": "elsewhere"}
    own = {"type": "summary", "summary": "ours", "leafUuid": "u"}
    said, lens = read(other, own, user("u", None, "x"), {"type": "summary", "summary": "?"})
    assert [each for each in said if each[1] == "titled"] == [(2, "titled", "ours")]
    assert lens.facts.title == "ours"
    assert lens.raw == {"summary": 3}


# --- other shapes, and damage -------------------------------------------------------------------


def test_the_history_is_read_as_prompts() -> None:
    """Each line of the history is a prompt of its own; commands are told as such."""
    said, lens = read(
        {"display": "first task", "timestamp": 1, "project": "/a", "sessionId": "S"},
        {"display": "/clear ", "timestamp": 2, "project": "/b", "sessionId": "T"},
        {"display": " "},
    )
    assert said == [
        (0, "turn", "line-0"),
        (0, "user", "line-0", ["first task"]),
        (1, "turn", "line-1"),
        (1, "user", "line-1", ["/clear "], "command"),
    ]
    assert (lens.facts.id, lens.facts.cwd, lens.understood) == (None, "/b", {"history": 3})


def test_lines_that_are_no_records_are_raw() -> None:
    """Broken lines, other JSON and records of no type are left as they are."""
    lines = ['{"type":"assistant","uui', "[1]", "", "{}", '{"type":7}', '{"type":"new"}']
    said, lens = fed(stored(lines))
    assert said == []
    assert lens.raw == {"record": 5, "new": 1}
    assert (lens.told, lens.missed, lens.understood) == (0, 0, {})


@pytest.mark.parametrize(
    "line",
    [
        user("u", None, None),
        user("u", None, [1, None]),
        user("u", None, [{"type": "text"}]),
        model("a", None, "m", {"type": "text", "text": 1}),
        {"type": "assistant", "uuid": "a", "message": 5},
        {"type": "user"},
        {"type": "tool_use"},
        {"type": "tool_result", "output": "x"},
        record("attachment", "q", None, attachment={"type": "queued_command", "prompt": 1}),
    ],
)
def test_messages_that_cannot_be_read_are_missed(line: Record) -> None:
    """A message, call or result that is not as it should be says nothing, and is counted."""
    said, lens = read(line)
    assert said == []
    assert (lens.told, lens.missed, sum(lens.raw.values())) == (0, 1, 1)


def test_ids_may_be_numbers() -> None:
    """Ids that are numbers pair like texts."""
    said = told(
        user("u", None, "x") | {"uuid": 7},
        model("a", None, None, {**call(None), "id": 12345678901234567}) | {"parentUuid": 7},
        user("r", "a", [{**output(None, "ok"), "tool_use_id": 12345678901234567}]),
    )
    assert said[0] == (0, "turn", "7")
    assert said[-1] == (2, "result", "7", "12345678901234567", ["ok"])


def test_deep_and_huge_values_are_read() -> None:
    """Nesting that no event can hold is named, and a record that cannot be read is raw."""
    deep = "[" * 500 + "]" * 500
    line = '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t",%s}]}}'
    said, lens = fed(stored([line % f'"content":{{"a":{deep}}}', line % f'"content":{deep}']))
    assert rows(said)[0] == (0, "result", None, "t", ["[output that cannot be shown]"])
    assert rows(said)[1] == (1, "result", None, "t", ["[output that cannot be shown]"])
    said, lens = fed(stored(['{"type":"user","message":' + "[" * 100_000 + "]" * 100_000 + "}"]))
    assert (said, lens.raw) == ([], {"record": 1})
    (event,) = fed(stored([json.dumps(model("a", None, "m", "x" * 3_000_000))]))[0]
    assert len(event.data["content"][0]["text"]) == 3_000_000


def test_half_characters_survive() -> None:
    """Text with a lone surrogate is told as it was found."""
    line = json.dumps(user("u", None, [output("t", "ok \ud83d", is_error=True)]))
    (event,) = fed(stored([line]))[0]
    assert event.data["content"][0]["text"] == "ok \ud83d"
    assert event.data["error"]["message"] == "ok \ud83d"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["text", "tool_use", "tool_result", "user", "assistant", "u1", "a1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["type", "text", "id", "content", "message", "uuid", "tool_use_id"]),
        inner, max_size=3,
    ),
    max_leaves=8,
)  # fmt: skip


def _lines(name: str) -> list[Record]:
    text = (FOLDER / name).read_bytes().decode()
    return [json.loads(line) for line in text.split("\n")[:-1]]


_WHOLE = (
    _lines("as_small.jsonl")
    + _lines("spotter_short.jsonl")
    + _lines("as_schema_drift.jsonl")
    + _lines("codemie_9eda1058.jsonl")
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all that stands in a record."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for key, each in inner:
        found.append((*path, key))
        if isinstance(each, dict | list):
            found += _places(each, (*path, key))
    return found


@st.composite
def _mutilated(draw: st.DrawFn) -> list[str]:
    """Lines of samples, of which some are cut, and some have other values in them."""
    lines = []
    for whole in draw(st.lists(st.sampled_from(_WHOLE), min_size=1, max_size=12)):
        changed = copy.deepcopy(whole)
        for _ in range(draw(st.integers(0, 3))):
            *path, last = draw(st.sampled_from(_places(changed)))
            place: Any = changed
            for key in path:
                place = place[key]
            if draw(st.booleans()):
                place[last] = draw(_JSON)
            else:
                del place[last]
            if not changed:
                break
        line = json.dumps(changed)
        lines.append(
            line[: draw(st.integers(0, len(line)))] if draw(st.integers(0, 9)) == 0 else line
        )
    return lines


@settings(max_examples=scaled(3000))
@given(_mutilated())
def test_damaged_records_are_counted_and_never_raise(lines: list[str]) -> None:
    """Whatever records hold, each is counted once, and what is said makes sound transcripts."""
    said, lens = fed(stored(lines))
    assert sum(lens.understood.values()) + sum(lens.raw.values()) == len(lines)
    assert lens.told + lens.missed <= len(lines)
    assert [event.seq for event in said] == sorted(event.seq for event in said)
    again, _ = fed(stored(lines))
    assert again == said
    kept = view(said).rows["conversation"]
    for agent in agents(kept):
        found = messages(kept, agent)
        for name, validate in VALIDATORS.items():
            out = FORMATS[name](found, load=None)
            assert not out or validate(out) == []
