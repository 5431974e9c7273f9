"""Input items for OpenAI's responses API."""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from perdure.model import values
from perdure.views.providers.speech import (
    Image,
    Load,
    Neutral,
    Speech,
    speeches,
    text_of,
    with_images,
)

__all__ = ["to_openai_responses"]


def to_openai_responses(messages: Neutral, load: Load | None = None) -> list[dict[str, Any]]:
    """The `input` of a request that keeps nothing at the provider. Thinking is left out.

    Images are given with `load`, which turns the digest of a blob into its bytes; without it they
    are text, `[image DIGEST]`. A result that is an error begins with `[error CODE]`.

    Raises:
        PerdureError: what `load` raises, but for content that has expired.

    """
    out: list[dict[str, Any]] = []
    for speech in speeches(messages):
        if speech.role == "user":
            content = [_part(piece) for piece in with_images(speech.blocks, load)]
            if out and out[-1].get("role") == "user":
                out[-1]["content"].extend(content)
            else:
                out.append({"type": "message", "role": "user", "content": content})
            continue
        for item in _answer(speech):
            if item["type"] == "message" and out and out[-1].get("role") == "assistant":
                out[-1]["content"].extend(item["content"])
            else:
                out.append(item)
        out.extend(_result(result, load) for result in speech.results)
    return out


def _answer(speech: Speech) -> Iterator[dict[str, Any]]:
    said = [block for block in speech.blocks if block["type"] in ("text", "tool-call")]
    for kind, blocks in groupby(said, key=lambda block: block["type"]):
        if kind == "text":
            content = [{"type": "output_text", "text": block["text"]} for block in blocks]
            yield {"type": "message", "role": "assistant", "content": content}
        else:
            for block in blocks:
                yield {
                    "type": "function_call",
                    "call_id": block["id"],
                    "name": block["name"],
                    "arguments": values.encode(block["arguments"]).decode(),
                }


def _result(result: dict[str, Any], load: Load | None) -> dict[str, Any]:
    pieces = with_images(result["content"], load)
    images = [piece for piece in pieces if isinstance(piece, Image)]
    output: Any = text_of(result, pieces)
    if images:
        output = [{"type": "input_text", "text": output}, *map(_part, images)]
    return {"type": "function_call_output", "call_id": result["id"], "output": output}


def _part(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "input_text", "text": piece}
    url = f"data:{piece.media_type};base64,{piece.data}"
    return {"type": "input_image", "image_url": url}
