"""What the providers' APIs refuse, said once more: validators of transcripts.

Written from the public rules of Anthropic's Messages API and OpenAI's chat completions and
responses APIs, and from nothing of perdure's own formatting. Where an API is lenient in one place
and strict in another (roles that repeat, ids that come again, blank text), the strict reading is
taken: what passes here passes everywhere.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = [
    "VALIDATORS",
    "Violation",
    "anthropic_violations",
    "neutral_violations",
    "openai_chat_violations",
    "openai_responses_violations",
]


class Violation(NamedTuple):
    """A rule that a transcript breaks, and where."""

    rule: str
    where: str


_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_CHAT_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
_DATA_URL = re.compile(r"data:(image/(?:jpeg|png|gif|webp));base64,(.+)\Z", re.DOTALL)
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")

Found = Iterator[Violation]


def anthropic_violations(messages: Any) -> list[Violation]:
    """What Anthropic's Messages API has against this `messages`."""
    return [*_listed(messages, _anthropic)]


def openai_chat_violations(messages: Any) -> list[Violation]:
    """What OpenAI's chat completions API has against this `messages`."""
    return [*_listed(messages, _chat)]


def openai_responses_violations(items: Any) -> list[Violation]:
    """What OpenAI's responses API has against this `input`."""
    return [*_listed(items, _responses)]


def neutral_violations(messages: Any) -> list[Violation]:
    """What a caller of `messages` could not rely on: shape, pairs, order of results."""
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        return [Violation("list-of-objects", "")]
    return [*_neutral(messages)]


VALIDATORS: Mapping[str, Callable[[Any], list[Violation]]] = {
    "neutral": neutral_violations,
    "anthropic": anthropic_violations,
    "openai-chat": openai_chat_violations,
    "openai-responses": openai_responses_violations,
}
"""Validators by the name of the format."""


# --- any of them --------------------------------------------------------------------------------


def _listed(messages: Any, rules: Callable[[list[dict[str, Any]]], Found]) -> Found:
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        yield Violation("list-of-objects", "")
    elif not messages:
        yield Violation("empty-transcript", "")
    else:
        for at, message in enumerate(messages):
            yield from _sendable(message, f"[{at}]")
        yield from rules(messages)


def _sendable(value: Any, where: str) -> Found:
    """JSON, and UTF-8: a lone surrogate fails when the request is sent."""
    if isinstance(value, str):
        if any("\ud800" <= char <= "\udfff" for char in value):
            yield Violation("lone-surrogate", where)
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(name, str):
                yield from _sendable(name, f"{where}.{name!a}")
            else:
                yield Violation("not-json", where)
            yield from _sendable(item, f"{where}.{name!a}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _sendable(item, f"{where}[{at}]")
    elif isinstance(value, float):
        if value - value != 0:
            yield Violation("not-json", where)
    elif value is not None and not isinstance(value, int):
        yield Violation("not-json", where)


def _members(value: dict[str, Any], needed: str, allowed: str, where: str) -> Found:
    wanted = set(needed.split())
    for name in wanted - value.keys():
        yield Violation("missing-member", f"{where}.{name}")
    for name in value.keys() - wanted - set(allowed.split()):
        yield Violation("extra-member", f"{where}.{name}")


def _text(value: Any, where: str) -> Found:
    if not isinstance(value, str):
        yield Violation("text-type", where)
    elif not value.strip():
        yield Violation("blank-text", where)


def _call(identity: Any, name: Any, pattern: re.Pattern[str], where: str) -> Found:
    if not isinstance(identity, str) or not pattern.match(identity):
        yield Violation("call-id", where)
    if not isinstance(name, str) or not _NAME.match(name):
        yield Violation("tool-name", where)


def _arguments(value: Any, where: str) -> Found:
    try:
        found = json.loads(value, parse_constant=_refused) if isinstance(value, str) else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        yield Violation("arguments", where)


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _repeated(identities: Sequence[Any]) -> Found:
    for identity, count in Counter(map(str, identities)).items():
        if count > 1:
            yield Violation("repeated-id", identity)


def _image(media_type: Any, data: Any, where: str) -> Found:
    try:
        good = bool(base64.b64decode(data, validate=True)) if isinstance(data, str) else False
    except binascii.Error:
        good = False
    if media_type not in _IMAGES or not good:
        yield Violation("image", where)


def _image_url(url: Any, where: str) -> Found:
    if isinstance(url, str) and url.startswith(("https://", "http://")):
        return
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    media_type, data = found.groups() if found else (None, None)
    yield from _image(media_type, data, where)


def _blocks(content: Any, where: str) -> Iterator[tuple[dict[str, Any], str]]:
    for at, block in enumerate(content):
        if isinstance(block, dict):
            yield block, f"{where}[{at}]"


def _content(content: Any, where: str, *, string: bool = True) -> Found:
    """Content is a string or blocks, and there is something in it."""
    if isinstance(content, str) and string:
        yield from _text(content, where)
    elif not isinstance(content, list) or not all(isinstance(one, dict) for one in content):
        yield Violation("content-type", where)
    elif not content:
        yield Violation("empty-content", where)


# --- Anthropic ----------------------------------------------------------------------------------

_SAID_BY = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


def _anthropic(messages: list[dict[str, Any]]) -> Found:
    if messages[0].get("role") != "user":
        yield Violation("first-message-is-the-users", "[0]")
    before: dict[str, Any] = {}
    for at, message in enumerate(messages):
        where, role = f"[{at}]", message.get("role")
        yield from _members(message, "role content", "", where)
        if role not in _SAID_BY:
            yield Violation("role", where)
            continue
        if role == before.get("role"):
            yield Violation("roles-alternate", where)
        yield from _content(message.get("content"), where)
        for block, place in _blocks(_listing(message), where):
            if block.get("type") not in _SAID_BY[role]:
                yield Violation("block-of-the-role", place)
            yield from _anthropic_block(block, place)
        yield from _anthropic_pairs(before, message, where)
        before = message
    yield from _anthropic_pairs(before, {}, "end")
    yield from _repeated([use.get("id") for one in messages for use in _of(one, "tool_use")])
    yield from _anthropic_last(messages)


def _listing(message: dict[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _of(message: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    blocks = _listing(message)
    return [one for one in blocks if isinstance(one, dict) and one.get("type") == kind]


def _anthropic_block(block: dict[str, Any], where: str) -> Found:
    kind = block.get("type")
    if kind == "text":
        yield from _members(block, "type text", "cache_control citations", where)
        yield from _text(block.get("text"), where)
    elif kind == "tool_use":
        yield from _members(block, "type id name input", "cache_control", where)
        yield from _call(block.get("id"), block.get("name"), _ID, where)
        if not isinstance(block.get("input"), dict):
            yield Violation("arguments", where)
    elif kind == "tool_result":
        yield from _members(block, "type tool_use_id", "content is_error cache_control", where)
        yield from _anthropic_result(block, where)
    elif kind == "thinking":
        yield from _members(block, "type thinking signature", "", where)
        if not block.get("signature") or not isinstance(block.get("signature"), str):
            yield Violation("thinking-signature", where)
        if not isinstance(block.get("thinking"), str):
            yield Violation("text-type", where)
    elif kind == "image":
        source = block.get("source")
        if not isinstance(source, dict) or source.get("type") != "base64":
            yield Violation("image", where)
        else:
            yield from _members(source, "type media_type data", "", where)
            yield from _image(source.get("media_type"), source.get("data"), where)


def _anthropic_result(block: dict[str, Any], where: str) -> Found:
    content = block.get("content")
    if not isinstance(block.get("is_error", False), bool):
        yield Violation("is-error-type", where)
    if content is None or content in ("", []):
        if block.get("is_error"):
            yield Violation("error-says-nothing", where)
        return
    yield from _content(content, where)
    for part, place in _blocks(content if isinstance(content, list) else [], where):
        if part.get("type") not in ("text", "image"):
            yield Violation("block-of-the-role", place)
        yield from _anthropic_block(part, place)


def _anthropic_pairs(before: dict[str, Any], message: dict[str, Any], where: str) -> Found:
    asked = [str(use.get("id")) for use in _of(before, "tool_use")]
    if before.get("role") != "assistant":
        asked = []
    results = [str(result.get("tool_use_id")) for result in _of(message, "tool_result")]
    for identity in set(asked) - set(results):
        yield Violation("call-without-result", f"{where}: {identity}")
    for identity in set(results) - set(asked):
        yield Violation("result-without-call", f"{where}: {identity}")
    for identity, count in Counter(results).items():
        if count > 1:
            yield Violation("second-result", f"{where}: {identity}")
    kinds = [one.get("type") for one in _listing(message) if isinstance(one, dict)]
    if "tool_result" in kinds[len(results) :]:
        yield Violation("results-come-first", where)


def _anthropic_last(messages: list[dict[str, Any]]) -> Found:
    for at, message in enumerate(messages):
        blocks = _listing(message)
        kind = blocks[-1].get("type") if blocks and isinstance(blocks[-1], dict) else None
        if message.get("role") == "assistant" and kind in ("thinking", "redacted_thinking"):
            yield Violation("answer-ends-with-thinking", f"[{at}]")
    last = messages[-1]
    said = last.get("content")
    if isinstance(said, list) and said and isinstance(said[-1], dict):
        said = said[-1].get("text")
    if last.get("role") == "assistant" and isinstance(said, str) and said != said.rstrip():
        yield Violation("last-answer-ends-in-blanks", "end")


# --- OpenAI, chat completions -------------------------------------------------------------------


def _chat(messages: list[dict[str, Any]]) -> Found:
    open_calls: list[str] = []
    seen: list[str] = []
    before = None
    for at, message in enumerate(messages):
        where, role = f"[{at}]", message.get("role")
        if role == "tool":
            identity = str(message.get("tool_call_id"))
            yield from _members(message, "role tool_call_id content", "", where)
            yield from _chat_content(message.get("content"), where, images=False)
            if identity in open_calls:
                open_calls.remove(identity)
            else:
                again = identity in seen
                yield Violation("second-result" if again else "result-without-call", where)
            before = role
            continue
        for identity in open_calls:
            yield Violation("call-without-result", f"{where}: {identity}")
        open_calls = []
        if role == before and role in ("user", "assistant"):
            yield Violation("roles-alternate", where)
        if role == "assistant":
            yield from _chat_answer(message, where)
            calls = [one for one in _calls(message) if isinstance(one, dict)]
            open_calls = [str(call.get("id")) for call in calls]
            seen.extend(open_calls)
        elif role in ("user", "system", "developer"):
            yield from _members(message, "role content", "name", where)
            yield from _chat_content(message.get("content"), where, images=role == "user")
        else:
            yield Violation("role", where)
        before = role
    for identity in open_calls:
        yield Violation("call-without-result", f"end: {identity}")
    yield from _repeated(seen)


def _calls(message: dict[str, Any]) -> list[Any]:
    calls = message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def _chat_answer(message: dict[str, Any], where: str) -> Found:
    yield from _members(message, "role", "content tool_calls name refusal", where)
    if message.get("content") is not None:
        yield from _chat_content(message["content"], where, images=False)
    elif not _calls(message):
        yield Violation("empty-content", where)
    if "tool_calls" in message and not _calls(message):
        yield Violation("empty-calls", where)
    for at, call in enumerate(_calls(message)):
        place = f"{where}.tool_calls[{at}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or call.get("type") != "function":
            yield Violation("call-type", place)
            continue
        yield from _members(call, "id type function", "", place)
        yield from _members(function, "name arguments", "", place)
        yield from _call(call.get("id"), function.get("name"), _CHAT_ID, place)
        yield from _arguments(function.get("arguments"), place)


def _chat_content(content: Any, where: str, *, images: bool) -> Found:
    yield from _content(content, where)
    for part, place in _blocks(content if isinstance(content, list) else [], where):
        if part.get("type") == "text":
            yield from _members(part, "type text", "", place)
            yield from _text(part.get("text"), place)
        elif part.get("type") == "image_url" and images:
            url = part.get("image_url")
            yield from _image_url(url.get("url") if isinstance(url, dict) else None, place)
        else:
            yield Violation("block-of-the-role", place)


# --- OpenAI, responses --------------------------------------------------------------------------


def _responses(items: list[dict[str, Any]]) -> Found:
    open_calls: list[str] = []
    seen: list[str] = []
    answering = False
    before = None
    for at, item in enumerate(items):
        where, kind, role = f"[{at}]", item.get("type"), item.get("role")
        if kind == "function_call":
            if answering and open_calls:
                yield Violation("call-between-results", where)
            answering = False
            yield from _members(item, "type call_id name arguments", "", where)
            yield from _call(item.get("call_id"), item.get("name"), _ID, where)
            yield from _arguments(item.get("arguments"), where)
            open_calls.append(str(item.get("call_id")))
            seen.append(str(item.get("call_id")))
        elif kind == "function_call_output":
            identity = str(item.get("call_id"))
            answering = True
            yield from _members(item, "type call_id output", "", where)
            yield from _responses_content(item.get("output"), where, "input_text", images=True)
            if identity in open_calls:
                open_calls.remove(identity)
            else:
                again = identity in seen
                yield Violation("second-result" if again else "result-without-call", where)
        elif kind == "message" and role in ("user", "assistant", "system", "developer"):
            yield from _members(item, "type role content", "", where)
            text = "output_text" if role == "assistant" else "input_text"
            yield from _responses_content(item.get("content"), where, text, images=role == "user")
            if open_calls and (role != "assistant" or answering):
                yield Violation("call-without-result", f"{where}: {open_calls}")
            if before is not None and before == role:
                yield Violation("roles-alternate", where)
        else:
            yield Violation("role" if kind == "message" else "item-type", where)
        before = role
    for identity in open_calls:
        yield Violation("call-without-result", f"end: {identity}")
    yield from _repeated(seen)


def _responses_content(content: Any, where: str, text: str, *, images: bool) -> Found:
    yield from _content(content, where)
    for part, place in _blocks(content if isinstance(content, list) else [], where):
        if part.get("type") == text:
            yield from _members(part, "type text", "annotations", place)
            yield from _text(part.get("text"), place)
        elif part.get("type") == "input_image" and images:
            yield from _members(part, "type image_url", "detail", place)
            yield from _image_url(part.get("image_url"), place)
        else:
            yield Violation("block-of-the-role", place)


# --- neutral ------------------------------------------------------------------------------------

_ORDER = ["role", "content", "seq", "turn", "source", "model", "interrupted"]


def _neutral(messages: list[dict[str, Any]]) -> Found:
    asked: list[Any] = []
    for at, message in enumerate([*messages, {"role": "end", "content": [0], "seq": 0}]):
        where, role = f"[{at}]", message.get("role")
        if [*message] != [name for name in _ORDER if name in message]:
            yield Violation("members-in-order", where)
        if not isinstance(message.get("seq"), int):
            yield Violation("seq", where)
        content = message.get("content")
        if not isinstance(content, list) or not content:
            yield Violation("empty-content", where)
            continue
        if role == "tool":
            if [_identity(block, "tool-result") for block in content] != asked or not asked:
                yield Violation("results-match-calls", where)
            asked = []
            continue
        if asked:
            yield Violation("call-without-result", where)
        calls = [one for one in content if isinstance(one, dict) and one.get("type") == "tool-call"]
        asked = [_identity(call, "tool-call") for call in calls]
        if asked and role != "assistant":
            yield Violation("block-of-the-role", where)
        if any(isinstance(one, dict) and one.get("type") == "tool-result" for one in content):
            yield Violation("block-of-the-role", where)
        if role not in ("user", "assistant", "end"):
            yield Violation("role", where)


def _identity(block: Any, kind: str) -> Any:
    fits = isinstance(block, dict) and block.get("type") == kind
    if not fits:
        return None
    name = block.get("name")
    return (block.get("id"), name if isinstance(name, str) else None)
