"""Formats of providers: what comes out of them, and what an API has against it."""

import base64
import copy
from typing import Any

import pytest

from perdure.errors import ContentDamaged, ContentExpired
from perdure.model import values
from perdure.testing.providers import (
    VALIDATORS,
    anthropic_violations,
    neutral_violations,
    openai_chat_violations,
    openai_responses_violations,
)
from perdure.views.providers import (
    FORMATS,
    to_anthropic,
    to_neutral,
    to_openai_chat,
    to_openai_responses,
)

Messages = list[dict[str, Any]]
DIGEST = "ab" * 32
PNG = base64.b64encode(b"png").decode()


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def user(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks], "seq": 0}


def assistant(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks], "seq": 0}


def call(identity: str, arguments: Any = None, name: Any = "bash") -> dict[str, Any]:
    return {"type": "tool-call", "id": identity, "name": name, "arguments": arguments}


def tool(*results: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "content": [*results], "seq": 0}


def result(identity: str, *blocks: dict[str, Any], **error: str) -> dict[str, Any]:
    block = {"type": "tool-result", "id": identity, "name": "bash", "content": [*blocks]}
    return block | ({"error": error} if error else {})


def image(media_type: str = "image/png", blob: str = DIGEST) -> dict[str, Any]:
    return {"type": "image", "blob": blob, "media_type": media_type}


EXCHANGE: Messages = [
    user(text("why?")),
    assistant(
        {"type": "thinking", "text": "hm", "signature": "sig"},
        {"type": "thinking", "text": "unsigned"},
        text("Let me look."),
        call("c1", {"cmd": "ls"}),
        call("c2", {"cmd": "cat"}),
    ),
    tool(result("c1", text("a.py")), result("c2", text("none"), code="EXIT", message="exit 1")),
    user(text("and?"), text("quick")),
    assistant(text("It is so. \n")),
]


# --- what comes out -----------------------------------------------------------------------------


def test_anthropic_format() -> None:
    """Calls are tool_use blocks, results come first in the user's message behind them."""
    assert to_anthropic(EXCHANGE) == [
        {"role": "user", "content": [text("why?")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                text("Let me look."),
                {"type": "tool_use", "id": "c1", "name": "bash", "input": {"cmd": "ls"}},
                {"type": "tool_use", "id": "c2", "name": "bash", "input": {"cmd": "cat"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": [text("a.py")]},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("none")]}
                | {"is_error": True},
                text("and?"),
                text("quick"),
            ],
        },
        {"role": "assistant", "content": [text("It is so.")]},
    ]


def test_openai_chat_format() -> None:
    """Arguments are JSON text, each result is a message, an error says so at its beginning."""

    def asked(identity: str, arguments: str) -> dict[str, Any]:
        function = {"name": "bash", "arguments": arguments}
        return {"id": identity, "type": "function", "function": function}

    assert to_openai_chat(EXCHANGE) == [
        {"role": "user", "content": "why?"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [asked("c1", '{"cmd":"ls"}'), asked("c2", '{"cmd":"cat"}')],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        {"role": "tool", "tool_call_id": "c2", "content": "[error EXIT] none"},
        {"role": "user", "content": [text("and?"), text("quick")]},
        {"role": "assistant", "content": "It is so. \n"},
    ]
    alone = to_openai_chat([user(text("go")), assistant(call("c1")), tool(result("c1"))])
    assert alone[1:] == [
        {"role": "assistant", "content": None, "tool_calls": [asked("c1", "{}")]},
        {"role": "tool", "tool_call_id": "c1", "content": "(no output)"},
    ]


def test_openai_responses_format() -> None:
    """Calls and outputs are items of their own between the messages."""

    def asked(identity: str, arguments: str) -> dict[str, Any]:
        named = {"call_id": identity, "name": "bash"}
        return {"type": "function_call", **named, "arguments": arguments}

    def message(role: str, kind: str, *said: str) -> dict[str, Any]:
        content = [{"type": kind, "text": each} for each in said]
        return {"type": "message", "role": role, "content": content}

    assert to_openai_responses(EXCHANGE) == [
        message("user", "input_text", "why?"),
        message("assistant", "output_text", "Let me look."),
        asked("c1", '{"cmd":"ls"}'),
        asked("c2", '{"cmd":"cat"}'),
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"type": "function_call_output", "call_id": "c2", "output": "[error EXIT] none"},
        message("user", "input_text", "and?", "quick"),
        message("assistant", "output_text", "It is so. \n"),
    ]


def test_neutral_format() -> None:
    """The neutral format is what was given, in dicts that can be changed."""
    given = copy.deepcopy(EXCHANGE)
    found = to_neutral(given)
    assert found == EXCHANGE
    found[0]["role"] = "changed"
    assert given == EXCHANGE


@pytest.mark.parametrize("name", FORMATS)
def test_formats_leave_what_they_were_given(name: str) -> None:
    """Neither the messages nor their blocks are changed by a format, or by what it returns."""
    given = copy.deepcopy(EXCHANGE)
    out = FORMATS[name](given)
    for message in out:
        message.clear()
    assert given == EXCHANGE


def test_roles_alternate_from_the_user_on() -> None:
    """Messages of one side become one, what says nothing is left out, the user is the first."""
    given = [
        assistant(text("Hello.")),
        assistant({"type": "thinking", "text": "hm"}),
        user(text(" \n")),
        assistant(text("You there?")),
        user(text("yes")),
        assistant({"type": "thinking", "text": "hm", "signature": "sig"}),
        user(text("and?")),
    ]
    first, *rest = to_anthropic(given)
    assert first["role"] == "user"
    assert rest == [
        {"role": "assistant", "content": [text("Hello."), text("You there?")]},
        {"role": "user", "content": [text("yes"), text("and?")]},
    ]
    assert to_openai_chat(given) == [
        {"role": "assistant", "content": "Hello.\n\nYou there?"},
        {"role": "user", "content": [text("yes"), text("and?")]},
    ]
    for name, convert in FORMATS.items():
        assert name == "neutral" or VALIDATORS[name](convert(given)) == []
        assert convert([user(text(""))]) == [] or name == "neutral"


def test_ids_are_unique_and_plain() -> None:
    """Ids that a provider refuses get others, which stay the same as the conversation goes on."""
    ids = ["c1", "c1", "a|b", "é" * 70, "", "x" * 64, "\ud83d", "c1_2", "a|b"]
    given: Messages = [user(text("go"))]
    before: Messages = []
    out: Messages = []
    for name in ids:
        given += [assistant(call(name)), tool(result(name, text("ok")))]
        out = to_anthropic(given)
        assert out[: len(before)] == before
        before = out
    found = [message["content"][0]["id"] for message in out if message["role"] == "assistant"]
    assert found[0] == "c1"
    assert found[5] == "x" * 64
    assert len({*found}) == len(ids)
    assert anthropic_violations(out) == []
    assert openai_chat_violations(to_openai_chat(given)) == []
    assert openai_responses_violations(to_openai_responses(given)) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {}),
        ({"a": 1}, {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ('{"a":', {"input": '{"a":'}),
        ('{"a":1e999}', {"input": '{"a":1e999}'}),
        ("[" * 5000, {"input": "[" * 5000}),
        ("\ud83d", {"input": "\ufffd"}),
        ([1], {"input": [1]}),
        ({"\ud83d": ["\ud83d", {"b": "\udc00"}]}, {"\ufffd": ["\ufffd", {"b": "\ufffd"}]}),
        ({"n": 10**30}, {"n": 10**30}),
    ],
)
def test_arguments_are_an_object(given: Any, expected: Any) -> None:
    """Arguments are an object, whatever the model asked with, in which no surrogate is alone."""
    out = to_anthropic([user(text("go")), assistant(call("c1", given)), tool(result("c1"))])
    assert out[1]["content"][0]["input"] == expected
    chat = to_openai_chat([user(text("go")), assistant(call("c1", given)), tool(result("c1"))])
    arguments = chat[1]["tool_calls"][0]["function"]["arguments"]
    assert values.decode(arguments.encode()) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mcp.a/b", "mcp_a_b"), ("n" * 65, "n" * 64), ("", "unknown"), (None, "unknown")],
)
def test_names_of_tools_are_plain(name: Any, expected: str) -> None:
    """The name of a tool is one that providers take."""
    out = to_anthropic([user(text("go")), assistant(call("c1", {}, name)), tool(result("c1"))])
    assert out[1]["content"][0]["name"] == expected


def test_pairs_are_made_whole() -> None:
    """Messages that were put together by hand get their pairs: by id, in order, without orphans."""
    given = [
        user(text("go")),
        assistant(call("c1"), call("c2"), call("c3")),
        tool(result("c3", text("3")), result("nobody", text("0"))),
        tool(result("c1", text("1")), result("c1", text("again"))),
        user(text("and?")),
        tool(result("c2", text("too late"))),
    ]
    chat = to_openai_chat(given)
    assert [message.get("tool_call_id") for message in chat] == [None, None, "c1", "c2", "c3", None]
    assert [chat[2]["content"], chat[4]["content"]] == ["1", "3"]
    assert chat[3]["content"].startswith("[error TOOL_OUTCOME_UNKNOWN] ")
    assert openai_chat_violations(chat) == []


def test_error_without_a_word_says_why() -> None:
    """A result that is an error is not empty: its message stands in, or its code."""
    for error, expected in (
        ({"code": "EXIT", "message": "exit 1"}, "exit 1"),
        ({"code": "EXIT", "message": " "}, "EXIT"),
        ({"code": "", "message": ""}, "It failed."),
    ):
        given = [user(text("go")), assistant(call("c1")), tool(result("c1", text(""), **error))]
        out = to_anthropic(given)
        assert out[2]["content"][0]["content"] == [text(expected)]
        assert out[2]["content"][0]["is_error"] is True
        assert anthropic_violations(out) == []


def test_signed_thinking_is_given_back_as_it_was() -> None:
    """Thinking goes back where its signature holds: whole, signed, and not at the end."""

    def thinking(said: str, signature: Any) -> dict[str, Any]:
        return {"type": "thinking", "thinking": said, "signature": signature}

    blocks = (thinking("a", "s"), thinking("", "s"), thinking("\ud83d", "s"), thinking("b", None))
    out = to_anthropic([user(text("go")), assistant(*blocks, text("so"), thinking("c", "s"))])
    assert out[1]["content"] == [thinking("a", "s"), thinking("", "s"), text("so")]


# --- images -------------------------------------------------------------------------------------


def load(digest: str) -> bytes:
    if digest == "expired":
        raise ContentExpired("said", digest)
    if digest == "damaged":
        raise ContentDamaged("said", digest, "other bytes")
    return b"" if digest == "empty" else b"png"


WITH_IMAGES: Messages = [
    user(text("see"), image()),
    assistant(image(), call("c1")),
    tool(result("c1", text("shot"), image())),
]


def test_images_are_loaded() -> None:
    """With a loader images are given in full, in results too, and to the user where they must."""
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    out = to_anthropic(WITH_IMAGES, load=load)
    assert out[0]["content"][1] == {"type": "image", "source": source}
    assert out[1]["content"][0] == text(f"[image {DIGEST}]")
    assert out[2]["content"][0]["content"] == [text("shot"), {"type": "image", "source": source}]

    url = f"data:image/png;base64,{PNG}"
    chat = to_openai_chat(WITH_IMAGES, load=load)
    assert chat[0]["content"][1] == {"type": "image_url", "image_url": {"url": url}}
    assert chat[2]["content"] == "shot"
    assert chat[3]["role"] == "user"
    assert chat[3]["content"][1] == {"type": "image_url", "image_url": {"url": url}}

    items = to_openai_responses(WITH_IMAGES, load=load)
    assert items[0]["content"][1] == {"type": "input_image", "image_url": url}
    assert items[-1]["output"] == [
        {"type": "input_text", "text": "shot"},
        {"type": "input_image", "image_url": url},
    ]
    for name, validate in VALIDATORS.items():
        assert validate(FORMATS[name](WITH_IMAGES, load=load)) == []


def test_images_that_are_not_to_be_had_are_told_in_words() -> None:
    """Without a loader, expired, empty or of another type, an image is a line of text."""
    awkward = [image(blob="expired"), image(blob="empty"), image("image/tiff"), {"type": "image"}]
    expected = ["[image expired]", "[image empty]", f"[image {DIGEST}]", "[image]"]
    out = to_anthropic([user(*awkward)], load=load)
    assert out[0]["content"] == [*map(text, expected)]
    assert to_openai_chat([user(image())]) == [{"role": "user", "content": f"[image {DIGEST}]"}]
    assert to_anthropic([user(image())], lambda _: None) == to_anthropic([user(image())])
    with pytest.raises(ContentDamaged):
        to_anthropic([user(image(blob="damaged"))], load=load)


def test_blocks_without_a_form_are_told_in_words() -> None:
    """A file or a block that no provider knows is named; what is no block is left out."""
    blocks: list[Any] = [{"type": "file", "name": "a\ud83d.txt"}, {"type": "audio", "blob": "x"}]
    out = to_openai_chat([user(*blocks, {"type": 5}, {}), {"role": "user", "content": "no blocks"}])
    assert out == [{"role": "user", "content": [text("[file a\ufffd.txt]"), text("[audio x]")]}]


# --- what an API has against it ------------------------------------------------------------------

ASK = {"role": "user", "content": "why?"}
USE = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}
ANSWER = {"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}
CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "a.py"}
SAID = {"type": "message", "role": "user", "content": "why?"}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "a.py"}


def by(role: str, *content: Any) -> dict[str, Any]:
    return {"role": role, "content": [*content]}


def asks(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [*calls]}


def pair(*rest: Any) -> Messages:
    return [ASK, by("assistant", USE), by("user", ANSWER, *rest)]


GOOD: dict[str, list[Messages]] = {
    "anthropic": [pair(), pair(text("and?")), [ASK, by("assistant", text("so"))]],
    "openai-chat": [[ASK, asks(CALL), TOOL], [ASK, {"role": "assistant", "content": "so"}]],
    "openai-responses": [[SAID, ITEM, OUTPUT], [SAID, ITEM, {**ITEM, "call_id": "c2"}]],
    "neutral": [EXCHANGE, WITH_IMAGES],
}
GOOD["openai-responses"][1] += [OUTPUT, {**OUTPUT, "call_id": "c2"}]

BAD: list[tuple[str, str, Any]] = [
    # A call without its result, in each place where a crash leaves one.
    ("anthropic", "call-without-result", [ASK, by("assistant", USE)]),
    ("anthropic", "call-without-result", [ASK, by("assistant", USE), by("user", text("and?"))]),
    (
        "anthropic",
        "call-without-result",
        [ASK, by("assistant", USE, {**USE, "id": "c2"}), by("user", ANSWER)],
    ),
    ("openai-chat", "call-without-result", [ASK, asks(CALL)]),
    ("openai-chat", "call-without-result", [ASK, asks(CALL, {**CALL, "id": "c2"}), TOOL]),
    ("openai-responses", "call-without-result", [SAID, ITEM]),
    ("openai-responses", "call-without-result", [SAID, ITEM, SAID]),
    # A result without its call, as behind a compaction that cuts a pair.
    ("anthropic", "result-without-call", [by("user", ANSWER)]),
    ("anthropic", "result-without-call", pair({**ANSWER, "tool_use_id": "c2"})),
    ("openai-chat", "result-without-call", [TOOL]),
    ("openai-chat", "result-without-call", [ASK, {"role": "assistant", "content": "so"}, TOOL]),
    ("openai-responses", "result-without-call", [SAID, OUTPUT]),
    # A summary in the middle of a pair.
    (
        "anthropic",
        "call-without-result",
        [ASK, by("assistant", USE), by("user", text("summary")), by("user", ANSWER)],
    ),
    ("openai-chat", "call-without-result", [ASK, asks(CALL), ASK, TOOL]),
    ("openai-responses", "call-without-result", [SAID, ITEM, SAID, OUTPUT]),
    # Results twice, or out of place.
    ("anthropic", "second-result", pair(ANSWER)),
    ("openai-chat", "second-result", [ASK, asks(CALL), TOOL, TOOL]),
    ("openai-responses", "second-result", [SAID, ITEM, OUTPUT, OUTPUT]),
    ("anthropic", "results-come-first", [*pair()[:2], by("user", text("and?"), ANSWER)]),
    ("anthropic", "block-of-the-role", [ASK, by("assistant", USE, ANSWER), by("user", ANSWER)]),
    (
        "openai-responses",
        "call-between-results",
        [SAID, ITEM, {**ITEM, "call_id": "c2"}, OUTPUT, {**ITEM, "call_id": "c3"}],
    ),
    # Ids and names.
    ("anthropic", "call-id", [ASK, by("assistant", {**USE, "id": "a|b"})]),
    ("anthropic", "call-id", [ASK, by("assistant", {**USE, "id": "x" * 65})]),
    ("anthropic", "repeated-id", [*pair(), *pair()[1:]]),
    ("anthropic", "tool-name", [ASK, by("assistant", {**USE, "name": "a.b"})]),
    ("openai-chat", "call-id", [ASK, asks({**CALL, "id": "x" * 41})]),
    ("openai-chat", "repeated-id", [ASK, asks(CALL), TOOL, asks(CALL), TOOL]),
    ("openai-responses", "call-id", [SAID, {**ITEM, "call_id": "x" * 65}]),
    ("openai-responses", "repeated-id", [SAID, ITEM, OUTPUT, ITEM, OUTPUT]),
    ("openai-responses", "tool-name", [SAID, {**ITEM, "name": ""}]),
    # Arguments.
    ("anthropic", "arguments", [ASK, by("assistant", {**USE, "input": "{}"})]),
    (
        "openai-chat",
        "arguments",
        [ASK, asks({**CALL, "function": {"name": "bash", "arguments": "{"}})],
    ),
    (
        "openai-chat",
        "arguments",
        [ASK, asks({**CALL, "function": {"name": "bash", "arguments": {}}})],
    ),
    ("openai-responses", "arguments", [SAID, {**ITEM, "arguments": '{"a":NaN}'}]),
    # Roles.
    ("anthropic", "first-message-is-the-users", [by("assistant", text("so"))]),
    ("anthropic", "roles-alternate", [ASK, ASK]),
    ("anthropic", "roles-alternate", [ASK, by("assistant", text("a")), by("assistant", text("b"))]),
    ("anthropic", "role", [by("system", text("be kind"))]),
    ("anthropic", "role", [ASK, by("tool", ANSWER)]),
    ("openai-chat", "roles-alternate", [ASK, ASK]),
    ("openai-chat", "role", [by("function", text("so"))]),
    ("openai-responses", "roles-alternate", [SAID, SAID]),
    ("openai-responses", "item-type", [{"type": "tool_use"}]),
    ("openai-responses", "role", [{**SAID, "role": "tool"}]),
    # Nothing said.
    ("anthropic", "empty-transcript", []),
    ("anthropic", "blank-text", [by("user", text(""))]),
    ("anthropic", "blank-text", [by("user", text(" \n"))]),
    ("anthropic", "blank-text", [{"role": "user", "content": ""}]),
    ("anthropic", "empty-content", [by("user")]),
    ("anthropic", "error-says-nothing", pair({**ANSWER, "is_error": True, "content": []})),
    ("anthropic", "blank-text", [*pair()[:2], by("user", {**ANSWER, "content": [text("")]})]),
    ("openai-chat", "empty-content", [ASK, {"role": "assistant", "content": None}]),
    ("openai-chat", "empty-calls", [ASK, asks()]),
    ("openai-chat", "blank-text", [ASK, asks(CALL), {**TOOL, "content": ""}]),
    ("openai-responses", "empty-content", [{**SAID, "content": []}]),
    # Ends.
    ("anthropic", "last-answer-ends-in-blanks", [ASK, by("assistant", text("so \n"))]),
    (
        "anthropic",
        "answer-ends-with-thinking",
        [ASK, by("assistant", {"type": "thinking", "thinking": "hm", "signature": "s"}), ASK],
    ),
    # Thinking, images, members, text.
    ("anthropic", "thinking-signature", [ASK, by("assistant", {"type": "thinking"}, text("so"))]),
    ("anthropic", "image", [by("user", {"type": "image", "source": {"type": "base64"}})]),
    (
        "openai-chat",
        "image",
        [by("user", {"type": "image_url", "image_url": {"url": "data:image/png;base64,?"}})],
    ),
    ("openai-chat", "block-of-the-role", [ASK, asks(CALL), {**TOOL, "content": [image()]}]),
    ("openai-responses", "block-of-the-role", [{**SAID, "content": [text("why?")]}]),
    ("anthropic", "extra-member", [{**ASK, "seq": 1}]),
    ("anthropic", "missing-member", [{"role": "user"}]),
    ("anthropic", "lone-surrogate", [by("user", text("ok \ud83d"))]),
    ("openai-chat", "lone-surrogate", [{"role": "user", "content": "ok \ud83d"}]),
    ("openai-responses", "lone-surrogate", [{**SAID, "content": "ok \ud83d"}]),
    ("anthropic", "not-json", [ASK, by("assistant", {**USE, "input": {"a": float("inf")}})]),
    ("anthropic", "list-of-objects", "why?"),
    # Neutral.
    ("neutral", "call-without-result", [assistant(call("c1")), user(text("and?"))]),
    ("neutral", "call-without-result", [assistant(call("c1"))]),
    ("neutral", "results-match-calls", [tool(result("c1"))]),
    ("neutral", "results-match-calls", [assistant(call("a"), call("b")), tool(result("b"))]),
    ("neutral", "members-in-order", [{"seq": 0, **user(text("why?"))}]),
    ("neutral", "block-of-the-role", [user(result("c1"))]),
    ("neutral", "empty-content", [user()]),
]


@pytest.mark.parametrize(("name", "rule", "transcript"), BAD)
def test_validators_see_what_is_wrong(name: str, rule: str, transcript: Any) -> None:
    """A transcript that a provider refuses is refused, with the rule it breaks."""
    assert rule in {violation.rule for violation in VALIDATORS[name](transcript)}


@pytest.mark.parametrize("name", GOOD)
def test_validators_let_pass_what_is_right(name: str) -> None:
    """There is nothing against a transcript that a provider accepts."""
    for transcript in GOOD[name]:
        assert VALIDATORS[name](transcript) == []


def test_formats_have_validators() -> None:
    """Each format is held to the rules of its provider."""
    assert [*FORMATS] == [*VALIDATORS]
    assert neutral_violations(EXCHANGE) == []
    for name, convert in FORMATS.items():
        assert VALIDATORS[name](convert(EXCHANGE)) == []
