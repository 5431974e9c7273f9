"""Messages for OpenAI's chat completions API, and for what speaks the same."""

from typing import Any

from perdure.model import values
from perdure.views.providers.speech import (
    Image,
    Load,
    Neutral,
    Pieces,
    Speech,
    speeches,
    text_of,
    texts,
    with_images,
)

__all__ = ["to_openai_chat"]

_ID_CHARS_MAX = 40


def to_openai_chat(messages: Neutral, load: Load | None = None) -> list[dict[str, Any]]:
    """The `messages` of a request. Thinking is left out.

    Images are given with `load`, which turns the digest of a blob into its bytes; without it they
    are text, `[image DIGEST]`. A tool message holds text alone, so the images of results follow in
    a message of the user. A result that is an error begins with `[error CODE]`.

    Raises:
        PerdureError: what `load` raises, but for content that has expired.

    """
    out: list[dict[str, Any]] = []
    shown: Pieces = []
    for speech in speeches(messages, id_chars_max=_ID_CHARS_MAX):
        if speech.role == "user":
            _ask(out, shown + with_images(speech.blocks, load))
            shown = []
            continue
        _ask(out, shown)
        shown = []
        answer = _answer(speech)
        if answer is not None:
            out.append(answer)
        for result in speech.results:
            pieces = with_images(result["content"], load)
            images = [piece for piece in pieces if isinstance(piece, Image)]
            if images:
                shown += [f"[{len(images)} image(s) of the result {result['id']}]", *images]
            told = {"role": "tool", "tool_call_id": result["id"]}
            out.append({**told, "content": text_of(result, pieces)})
    _ask(out, shown)
    return _alternating(out)


def _ask(out: list[dict[str, Any]], pieces: Pieces) -> None:
    if not pieces:
        return
    if len(pieces) == 1 and isinstance(pieces[0], str):
        out.append({"role": "user", "content": pieces[0]})
    else:
        out.append({"role": "user", "content": [_part(piece) for piece in pieces]})


def _answer(speech: Speech) -> dict[str, Any] | None:
    said = texts(with_images(speech.blocks, None))
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {
                "name": block["name"],
                "arguments": values.encode(block["arguments"]).decode(),
            },
        }
        for block in speech.blocks
        if block["type"] == "tool-call"
    ]
    if not said and not calls:
        return None
    answer = {"role": "assistant", "content": "\n\n".join(said) or None}
    return {**answer, "tool_calls": calls} if calls else answer


def _alternating(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of which an answer was left out, with what was asked around it as one."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if out and message["role"] == out[-1]["role"] == "user":
            said = _parts(out[-1]["content"]) + _parts(message["content"])
            out[-1] = {"role": "user", "content": said}
        else:
            out.append(message)
    return out


def _parts(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_part(content)] if isinstance(content, str) else content


def _part(piece: str | Image) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    url = f"data:{piece.media_type};base64,{piece.data}"
    return {"type": "image_url", "image_url": {"url": url}}
