"""What the members of deepseek-harness's records say: ids, blocks, arguments, counts of tokens."""

from typing import Any

from perdure.lenses.pieces import COUNT_MAX, arguments_of, count, ident
from perdure.model.vocabulary.payloads import Block

__all__ = [
    "blocks_of",
    "error_of",
    "member",
    "name_of",
    "results_of",
    "source_of",
    "usage_of",
]

_ID_CHARS_MAX = 256
_NAME_CHARS_MAX = 128
_MESSAGE_CHARS_MAX = 1000
_NO_NAME = "tool"


def member(holder: object, name: str) -> dict[str, Any]:
    """The object that a member holds; an empty one if it holds none."""
    found = holder.get(name) if isinstance(holder, dict) else None
    return found if isinstance(found, dict) else {}


# --- blocks -------------------------------------------------------------------------------------


def blocks_of(content: object, *, answer: bool = False) -> list[Block] | None:
    """The blocks of a message, those without text left out; `answer`: the model said it.

    None: it is no content, or nothing of it can be read.
    """
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        return None
    read = [_block(part, answer=answer) for part in content]
    known = [block for block in read if block is not None]
    if content and not known:
        return None
    return [block for block in known if block.get("text") != ""]


def _block(part: object, *, answer: bool) -> Block | None:
    if not isinstance(part, dict) or not isinstance(kind := part.get("type"), str):
        return None
    if kind == "text" or (kind == "reasoning" and answer):
        text = part.get("text")
        named = "thinking" if kind == "reasoning" else "text"
        return {"type": named, "text": text} if isinstance(text, str) else None
    if kind == "tool-call":
        id = ident(part.get("id"))
        if id is None or not answer:
            return None
        call = {"type": "tool-call", "id": id, "name": name_of(part.get("name"))}
        return call | {"arguments": arguments_of(part.get("arguments"))}
    if kind == "image":
        return {"type": "text", "text": _picture(part)}
    text = part.get("text")
    # Plugins bring blocks of their own.
    return {"type": "text", "text": text if isinstance(text, str) else f"[{kind[:80]}]"}


def _picture(part: dict[str, Any]) -> str:
    for holder in (member(part, "attachment"), part):
        for name in ("mediaType", "mimeType", "media_type"):
            kind = holder.get(name)
            if isinstance(kind, str) and 1 <= len(kind) <= 80:
                return f"[image {kind}]"
    return "[image]"


def name_of(value: object) -> str:
    """The name of a tool; one of no sane length is `tool`."""
    return value if isinstance(value, str) and 1 <= len(value) <= _NAME_CHARS_MAX else _NO_NAME


def source_of(message: dict[str, Any]) -> str | None:
    """Who speaks in the user's name, as `goal` or `plugin:NAME`; None: somebody typed it."""
    source = member(message, "source")
    kind = source.get("kind")
    if not isinstance(kind, str) or kind in ("", "user"):
        return None
    plugin = source.get("plugin")
    named = kind == "plugin" and isinstance(plugin, str) and plugin
    return f"plugin:{plugin}"[:_ID_CHARS_MAX] if named else kind[:_ID_CHARS_MAX]


# --- calls and results --------------------------------------------------------------------------


def results_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The results that a record holds, as data of `tool/result`; none if it cannot be read.

    Before messages had ids, a result had no message around it.
    """
    message = data["message"] if isinstance(data.get("message"), dict) else data
    content = message.get("content")
    asked = ident(member(message, "source").get("callId")) or ident(data.get("callId"))
    parts = content if isinstance(content, list) else []
    parts = [part for part in parts if isinstance(part, dict) and part.get("type") == "tool-result"]
    found = []
    for part in parts or [{**data, "toolCallId": asked, "content": content}]:
        id = ident(part.get("toolCallId")) or asked
        blocks = blocks_of(part.get("content"))
        if id is None or blocks is None:
            continue
        error = error_of(data.get("error"), blocks, failed=part.get("isError") is True)
        found.append({"id": id, "content": blocks} | ({} if error is None else {"error": error}))
    return found


def error_of(value: object, said: list[Block], *, failed: bool) -> dict[str, str] | None:
    """An error as its code and what is said of it; None: it went well."""
    error = value if isinstance(value, dict) else {}
    names = (error.get("code"), error.get("name"))
    known = [name for name in names if isinstance(name, str) and name]
    if not failed and not known:
        return None
    texts = [error.get("message"), *(block["text"] for block in said if "text" in block)]
    spoken = [text for text in texts if isinstance(text, str) and text.strip()]
    message = spoken[0] if spoken else "it did not say why"
    code = known[0][:_NAME_CHARS_MAX] if known else "FAILED"
    return {"code": code, "message": message[:_MESSAGE_CHARS_MAX]}


# --- usage --------------------------------------------------------------------------------------


def usage_of(value: object) -> dict[str, int] | None:
    """Counts of tokens in perdure's members; None: none were told.

    The harness counts what was read from the cache, or went into it, beside the rest of the input.
    """
    if not isinstance(value, dict):
        return None
    fresh, read, written = (
        count(value.get(name)) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
    )
    told = {"output": count(value.get("outputTokens")), "cached": read}
    told["reasoning"] = count(value.get("reasoningTokens"))
    sent = [part for part in (fresh, read, written) if part is not None]
    counts = {"input": min(sum(sent), COUNT_MAX)} if sent else {}
    counts |= {name: number for name, number in told.items() if number is not None}
    return counts or None
