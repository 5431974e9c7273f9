"""Messages for Anthropic's Messages API."""

from typing import Any

from perdure.model import values
from perdure.views.providers.speech import (
    Load,
    Neutral,
    Pieces,
    Speech,
    speeches,
    with_images,
)

__all__ = ["to_anthropic"]

Block = dict[str, Any]

_OPENING = "[The conversation begins with the assistant.]"


def to_anthropic(messages: Neutral, load: Load | None = None) -> list[dict[str, Any]]:
    """The `messages` of a request; all content is blocks.

    Thinking is given back where it has a signature. Images are given with `load`, which turns the
    digest of a blob into its bytes; without it they are text, `[image DIGEST]`.

    Raises:
        PerdureError: what `load` raises, but for content that has expired.

    """
    out: list[dict[str, Any]] = []
    for speech in speeches(messages):
        if speech.role == "user":
            _say(out, "user", [_part(piece) for piece in with_images(speech.blocks, load)])
        else:
            _say(out, "assistant", _answer(speech))
            _say(out, "user", [_result(result, load) for result in speech.results])
    return out


def _say(out: list[dict[str, Any]], role: str, content: list[Block]) -> None:
    """Add to what this role is saying, or let it begin."""
    if not content:
        return
    if not out and role == "assistant":
        _say(out, "user", [{"type": "text", "text": _OPENING}])
    if out and out[-1]["role"] == role:
        out[-1]["content"].extend(content)
    else:
        out.append({"role": role, "content": content})
    if role == "assistant":
        _end(out[-1]["content"])


def _end(content: list[Block]) -> None:
    """Let an answer end with a text that does not end in blanks."""
    last = content[-1]
    if last["type"] == "text":
        last["text"] = last["text"].rstrip()


def _answer(speech: Speech) -> list[Block]:
    content: list[Block] = []
    for block in speech.blocks:
        if block["type"] == "text":
            content.append({"type": "text", "text": block["text"]})
        elif block["type"] == "tool-call":
            call = {key: block[key] for key in ("id", "name")}
            content.append({"type": "tool_use", **call, "input": block["arguments"]})
        elif block["type"] == "thinking":
            content.extend(_thinking(block))
    while content and content[-1]["type"] == "thinking":
        # An answer must not end with it.
        content.pop()
    return content


def _thinking(block: Block) -> list[Block]:
    """Thinking as it was signed; a text that has to be changed would not be accepted any more."""
    text = block.get("thinking", block.get("text"))
    signature = block.get("signature")
    if not isinstance(text, str) or not isinstance(signature, str) or not signature:
        return []
    if values.text(text) != text or values.text(signature) != signature:
        return []
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def _result(result: Block, load: Load | None) -> Block:
    said: Block = {"type": "tool_result", "tool_use_id": result["id"]}
    pieces: Pieces = with_images(result["content"], load)
    if pieces:
        said["content"] = [_part(piece) for piece in pieces]
    if "error" in result:
        said["is_error"] = True
    return said


def _part(piece: Any) -> Block:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    source = {"type": "base64", "media_type": piece.media_type, "data": piece.data}
    return {"type": "image", "source": source}
