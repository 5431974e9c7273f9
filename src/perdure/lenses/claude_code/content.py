"""What the pieces of messages say: texts, thoughts, images, calls, results, counts of tokens."""

from typing import Any

from perdure.lenses.pieces import COUNT_MAX, arguments_of, count, json_text, text_block
from perdure.model.vocabulary.payloads import Block

__all__ = [
    "Part",
    "blocks_of",
    "call_of",
    "parts_of",
    "refused",
    "result_of",
    "usage_of",
    "was_run",
]

Part = dict[str, Any]
"""A piece of content as the source has it."""

_NAME_CHARS_MAX = 256
_MESSAGE_CHARS_MAX = 200

_UNSEEN = ("fallback",)
"""Pieces of an answer that say how it came about, and nothing of what was said."""

_NAMES = ("name", "tool_name", "title", "media_type")

_REFUSALS = (
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "[Request interrupted by user",
    "User rejected tool use",
)
_NOT_RUN = "<tool_use_error>"
"""What Claude Code puts around the reason why it did not run a call."""


def parts_of(content: object) -> list[Part] | None:
    """The pieces of content, which is a string, a piece, or a list of either; None: it is none."""
    if isinstance(content, str | dict):
        content = [content]
    if not isinstance(content, list):
        return None
    known = [
        part if isinstance(part, dict) else {"type": "text", "text": part}
        for part in content
        if isinstance(part, str | dict)
    ]
    return None if content and not known else known


# --- what was said ------------------------------------------------------------------------------


def blocks_of(parts: list[Part], *, model: bool = False) -> list[Block] | None:
    """Blocks for pieces that are neither calls nor results; None: nobody can read any of them.

    `model`: they are of an answer, which alone can hold thoughts.
    """
    found = [block for part in parts if (block := _block(part, model=model)) is not None]
    if parts and not found:
        return None
    return [block for block in found if block["text"] or "signature" in block]


def _block(part: Part, *, model: bool) -> Block | None:
    kind = part.get("type")
    if kind == "text" or (kind is None and "text" in part):
        return text_block(part["text"]) if isinstance(part.get("text"), str) else None
    if kind == "thinking" and model:
        text, signature = part.get("thinking"), part.get("signature")
        if not isinstance(text, str):
            return None
        signed = {"signature": signature} if isinstance(signature, str) and signature else {}
        return {"type": "thinking", "text": text, **signed}
    if kind == "redacted_thinking" and model:
        return {"type": "thinking", "text": "[redacted]"}
    if not isinstance(kind, str):
        return None
    return text_block("" if kind in _UNSEEN else _stand_in(kind, part))


def _stand_in(kind: str, part: Part) -> str:
    """The text that stands for a piece of another type: `[TYPE NAME]`."""
    source = part.get("source")
    places = (part, source) if isinstance(source, dict) else (part,)
    names = (place.get(name) for place in places for name in _NAMES)
    name = next((name for name in names if isinstance(name, str) and name), "")
    kind, name = kind[:_NAME_CHARS_MAX], name[:_NAME_CHARS_MAX]
    return f"[{kind} {name}]" if name else f"[{kind}]"


def usage_of(said: object) -> dict[str, int] | None:
    """Tokens as perdure counts them, of what the provider said; None: it said none."""
    if not isinstance(said, dict):
        return None
    sent, written, read, back = (
        count(said.get(name))
        for name in (
            "input_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "output_tokens",
        )
    )
    found: dict[str, int] = {}
    if sent is not None:
        # The provider counts what came from its cache, or went into it, beside the rest.
        found["input"] = min(sent + (written or 0) + (read or 0), COUNT_MAX)
    if back is not None:
        found["output"] = back
    if read is not None:
        found["cached"] = read
    details = said.get("output_tokens_details")
    thought = count(details.get("thinking_tokens")) if isinstance(details, dict) else None
    if thought is not None:
        found["reasoning"] = thought
    return found or None


# --- tools --------------------------------------------------------------------------------------


def call_of(part: Part, id: str) -> Block:
    """The block of a call."""
    name = part.get("name")
    return {
        "type": "tool-call",
        "id": id,
        "name": name[:_NAME_CHARS_MAX] if isinstance(name, str) and name else "unknown",
        "arguments": arguments_of(part.get("input")),
    }


def result_of(part: Part, outcome: object) -> tuple[list[Block], dict[str, str] | None]:
    """What a tool said, and the error if it failed; `outcome` is what Claude Code notes of it."""
    content = part.get("content")
    parts = [] if content is None else parts_of(content)
    blocks = None if parts is None else blocks_of(parts)
    if blocks is None:
        blocks = [text_block(json_text(content))]
    if part.get("is_error") is not True:
        return blocks, None
    code = "REJECTED" if refused(part, outcome) else "FAILED"
    text = next((block["text"] for block in blocks if block["text"]), "")
    return blocks, {"code": code, "message": text.strip()[:_MESSAGE_CHARS_MAX]}


def refused(part: Part, outcome: object) -> bool:
    """Whether a result says that the user did not let the call run, or stopped it."""
    content = part.get("content")
    parts = (parts_of(content) or [])[:1]
    texts = [outcome, *(each.get("text") for each in parts)]
    return any(isinstance(text, str) and text.startswith(_REFUSALS) for text in texts)


def was_run(part: Part, outcome: object) -> bool:
    """Whether a result shows that the call was run."""
    parts = (parts_of(part.get("content")) or [])[:1]
    texts = [each.get("text") for each in parts]
    wrong = any(isinstance(text, str) and text.startswith(_NOT_RUN) for text in texts)
    return not (wrong or refused(part, outcome))
