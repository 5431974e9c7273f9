"""From what a caller says to the data of an event of the vocabulary: checked, without defaults."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from perdure.errors import InvalidValue, PerdureError
from perdure.model import values
from perdure.model.vocabulary import PAYLOADS, Error

__all__ = ["ENDINGS", "Content", "Failure", "blocks_of", "data_of", "failure_of"]

Content = str | Sequence[Mapping[str, Any]]
"""A text, or content blocks as in `[{"type": "text", "text": "…"}]`."""

Failure = BaseException | Error | Mapping[str, Any]
"""Why something failed: an exception, or `{"code": "…", "message": "…"}`."""

ENDINGS = ("completed", "failed", "cancelled")
"""How a job or a sub-agent may end; `interrupted` is for those that nobody ended."""

_CHOICES = {
    "job/end": ("status", ENDINGS),
    "turn/start": ("how", (None, "edit", "regenerate")),
}
"""Members that have to be one of a few words, which only recovery adds to."""

_CONTENT = {
    "user/message": "content",
    "assistant/message": "content",
    "context/compacted": "summary",
}
"""Members that are a text or blocks."""

_WHOLE = frozenset({"usage"})
"""Types whose members say something also where they say the default: a count is 0 after all."""

_BLOCKS = "a text, or a list of blocks; json.dumps a dict"

_FOREIGN = {
    "tool_use": "tool-call",
    "server_tool_use": "tool-call",
    "function_call": "tool-call",
    "custom_tool_call": "tool-call",
    "tool_call": "tool-call",
    "input_text": "text",
    "output_text": "text",
    "reasoning": "thinking",
    "image_url": "image",
    "input_image": "image",
    "input_file": "file",
}
"""What providers call their blocks, and what they are called here."""

_FORMS = {
    "tool-call": '{"type": "tool-call", "id": …, "name": …, "arguments": {…}}',
    "text": '{"type": "text", "text": …}',
    "thinking": '{"type": "thinking", "text": …}',
    "image": '{"type": "image", "blob": …, "media_type": …}',
    "file": '{"type": "file", "blob": …, "media_type": …}',
}

_RESULTS = frozenset({"tool_result", "function_call_output", "tool-result"})
"""Results of tools, which are no part of what user or model say."""

_MESSAGE_CHARS_MAX = 8192
"""Of the message of an exception so much is kept; it may hold anything, of any size."""

_PLACE = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`\Z")


@cache
def _defaults(kind: str) -> dict[str, Any]:
    fields = msgspec.structs.fields(PAYLOADS[kind])
    return {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}


def data_of(kind: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """The data of an event of type `kind`; members that say no more than the default are left out.

    Values are copied. Content becomes blocks: of a text one, and of what a tool answered, whatever
    JSON that is.

    Raises:
        InvalidValue: a member is of the wrong kind or no JSON, with the path to it, which begins
            with its name; or there is no such type.

    """
    if kind not in PAYLOADS:
        raise InvalidValue("type", f"{values.shown(kind)} is outside the vocabulary")
    defaults = _defaults(kind)
    whole = kind in _WHOLE
    data = {
        name: values.snapshot(_block_list(kind, name, value), name)
        for name, value in members.items()
        if name not in defaults
        or (value is not None if whole else not _same(value, defaults[name]))
    }
    try:
        msgspec.convert(data, PAYLOADS[kind])
    except msgspec.ValidationError as error:
        said = str(error)
        place = _PLACE.search(said)
        path = place["path"].removeprefix(".") if place else "data"
        raise InvalidValue(path, said[: place.start()] if place else said) from None
    except UnicodeEncodeError:
        # Names of further members with lone surrogates: the log keeps them, no reader asks.
        pass
    name, choices = _CHOICES.get(kind, ("", ()))
    if choices and data.get(name) not in choices:
        reason = f"{values.shown(data[name])} is none of them"
        raise InvalidValue(name, reason, hint=f"one of {', '.join(filter(None, choices))}")
    return data


def _same(value: Any, default: Any) -> bool:
    # Not == alone: False is 0, and values of strangers compare as they please.
    return value is default or (type(value) is type(default) and bool(value == default))


def _block_list(kind: str, name: str, value: Any) -> Any:
    """What a member says, as blocks where it is content."""
    if _CONTENT.get(kind) == name:
        return blocks_of(value, name)
    return _answer(value) if kind == "tool/result" and name == "content" else value


def blocks_of(content: Any, path: str = "content") -> Any:
    """A text as content blocks, or the blocks that it is.

    Raises:
        InvalidValue: it is neither, or a block says too little or is a provider's own.

    """
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list | tuple):
        reason = f"{values.shown(content)} is neither a text nor a list of blocks"
        raise InvalidValue(path, reason, hint=_BLOCKS)
    for index, block in enumerate(content):
        _check_block(block, f"{path}[{index}]")
    return content


def _check_block(block: Any, path: str) -> None:
    if not isinstance(block, dict):
        raise InvalidValue(path, f"{values.shown(block)} is no block", hint=_BLOCKS)
    kind = block.get("type")
    if not isinstance(kind, str) or not kind:
        reason = f"{values.shown(kind)} is no type of a block"
        raise InvalidValue(f"{path}.type", reason, hint='as in {"type": "text", "text": …}')
    if kind in _RESULTS:
        hint = "say it by step.result(id, content)"
        raise InvalidValue(f"{path}.type", f"{kind!r} is no part of a message", hint=hint)
    if kind in _FOREIGN:
        own = _FOREIGN[kind]
        reason = f"{kind!r} is a provider's own form of {own!r}"
        raise InvalidValue(f"{path}.type", reason, hint=f"as in {_FORMS[own]}")
    if kind == "tool-call":
        for name in ("id", "name"):
            value = block.get(name)
            if not isinstance(value, str) or not value:
                reason = f"{values.shown(value)} is no {name} of a call"
                raise InvalidValue(f"{path}.{name}", reason, hint=f"as in {_FORMS[kind]}")


def _answer(content: Any) -> Any:
    """What a tool answered, as blocks: it has run, so nothing that JSON can carry is refused."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list | tuple) and all(
        isinstance(block, dict) and isinstance(block.get("type"), str) for block in content
    ):
        return content
    text = json.dumps(values.snapshot(content, "content"), ensure_ascii=False)
    return [{"type": "text", "text": text}]


def failure_of(error: Failure | None) -> Any:
    """What went wrong as `{"code": …, "message": …}`; None stays None.

    The code of an exception is its class, or the `code` that an error of perdure has. Whatever the
    exception does when it is asked for its message, this does not fail.
    """
    if isinstance(error, Error):
        return {"code": error.code, "message": error.message}
    if not isinstance(error, BaseException):
        return error
    code = error.code if isinstance(error, PerdureError) else type(error).__name__
    try:
        message = values.text(str(error))
    except Exception:  # noqa: BLE001 - a foreign __str__ must not hide what it tells of
        message = f"a {code} that cannot say more"
    if len(message) > _MESSAGE_CHARS_MAX:
        message = message[:_MESSAGE_CHARS_MAX] + "…"
    return {"code": code, "message": message}
