"""What all providers want of a conversation, before it takes the form of one of them.

User and assistant take turns, every call has one result at once, ids are unique and plain, texts
are not blank and hold no lone surrogate.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from perdure.errors import ContentExpired, InvalidValue
from perdure.model import values
from perdure.recovery.closers import unanswered

__all__ = [
    "Image",
    "Load",
    "Neutral",
    "Pieces",
    "Speech",
    "clean",
    "speeches",
    "text_of",
    "texts",
    "with_images",
]

Load = Callable[[str], bytes | None]
"""Gives the bytes of a blob by its digest; None, or `ContentExpired`: they are not to be had."""

Neutral = Sequence[Mapping[str, Any]]
"""Neutral messages."""

Block = dict[str, Any]

_PLAIN = re.compile(r"[a-zA-Z0-9_-]+\Z")
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_CHARS = 64
_MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
"""What all of the providers read."""


class Image(NamedTuple):
    """An image in full: its media type, and its bytes as base64."""

    media_type: str
    data: str


class Speech(NamedTuple):
    """What one side says before the other does.

    Attributes:
        role: "user" or "assistant".
        blocks: neutral blocks, of text (never blank), thinking, image and tool-call (its id and
            name plain, its arguments an object).
        results: for each call in `blocks`, in order, a neutral tool-result with that id.

    """

    role: str
    blocks: list[Block]
    results: list[Block]


def speeches(messages: Neutral, *, id_chars_max: int = 64) -> list[Speech]:
    """The conversation in speeches of alternating sides; results count as the user's.

    Results are taken from the tool messages directly behind an answer. What answers no call is
    left out, a call that has no result there gets an error; messages that say nothing are left out.
    """
    out: list[Speech] = []
    names = _Names(id_chars_max)
    for message, behind in _with_results(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            continue
        blocks, results = _cleaned(message, names, behind)
        last = out[-1] if out else None
        if last is not None and last.role == role and not last.results:
            last.blocks.extend(blocks)
            last.results.extend(results)
        elif blocks:
            out.append(Speech(role, blocks, results))
    return out


def _with_results(messages: Neutral) -> Iterator[tuple[Mapping[str, Any], list[Any]]]:
    """Each message that is no tool message, with the blocks of those directly behind it."""
    current: Mapping[str, Any] | None = None
    behind: list[Any] = []
    for message in messages:
        if message.get("role") == "tool":
            behind.extend(_blocks(message))
            continue
        if current is not None:
            yield current, behind
        current, behind = message, []
    if current is not None:
        yield current, behind


def _blocks(message: Mapping[str, Any]) -> list[Any]:
    content = message.get("content")
    return content if isinstance(content, list) else []


def _cleaned(
    message: Mapping[str, Any], names: "_Names", behind: list[Any]
) -> tuple[list[Block], list[Block]]:
    blocks: list[Block] = []
    results: list[Block] = []
    assistant = message["role"] == "assistant"
    for block in _blocks(message):
        if not isinstance(block, dict):
            continue
        kind = block.get("type")
        if kind == "tool-call":
            if assistant and isinstance(block.get("id"), str):
                plain = names.of_call(block["id"])
                call = {
                    "type": "tool-call",
                    "id": plain,
                    "name": names.of_tool(block.get("name")),
                    "arguments": _arguments(block.get("arguments")),
                }
                blocks.append(call)
                results.append(_result(block, plain, behind))
        elif kind == "thinking":
            if assistant:
                blocks.append(block)
        elif kind != "tool-result":
            blocks.extend(_said(block, images=not assistant))
    return blocks, results


def _said(block: Block, *, images: bool) -> Iterator[Block]:
    """A block of text or an image; in words where there is no form for it; nothing if blank."""
    kind = block.get("type")
    if kind == "text":
        text = block.get("text")
        if isinstance(text, str) and text.strip():
            yield {"type": "text", "text": values.text(text)}
    elif kind == "image" and images:
        yield block
    elif isinstance(kind, str) and kind not in ("thinking", "tool-call", "tool-result"):
        yield {"type": "text", "text": in_words(block)}


def in_words(block: Block) -> str:
    """What stands for a block that cannot be given: `[image DIGEST]`, `[file NAME]`."""
    named = (block.get(key) for key in ("name", "blob"))
    name = next((each for each in named if isinstance(each, str) and each.strip()), "")
    return values.text(f"[{block['type']} {name}".rstrip() + "]")


def _result(call: Block, plain: str, behind: list[Any]) -> Block:
    """The first result of this id among those behind, taken from there, else an error."""
    for at, block in enumerate(behind):
        fits = isinstance(block, dict) and block.get("type") == "tool-result"
        if fits and block.get("id") == call["id"]:
            del behind[at]
            said = [
                each
                for part in _blocks(block)
                if isinstance(part, dict)
                for each in _said(part, images=True)
            ]
            error = block.get("error")
            if not isinstance(error, dict):
                return {"type": "tool-result", "id": plain, "content": said}
            code, message = (_or_empty(error.get(key)) for key in ("code", "message"))
            return _failed(plain, said, code, message)
    error = unanswered(started=True)
    return _failed(plain, [], error.code, error.message)


def _failed(plain: str, said: list[Block], code: str, message: str) -> Block:
    """The result of a call that failed; it says something, whatever it was told."""
    if not said:
        said = [{"type": "text", "text": message if message.strip() else code or "It failed."}]
    return {"type": "tool-result", "id": plain, "content": said, "error": code or "ERROR"}


def _or_empty(value: Any) -> str:
    return values.text(value) if isinstance(value, str) and value.strip() else ""


def _arguments(given: Any) -> dict[str, Any]:
    """The arguments as an object: what is none is its only member `input`."""
    if isinstance(given, str):
        try:
            found = values.snapshot(values.decode(given.encode("utf-8", "surrogatepass")))
        except (ValueError, InvalidValue):
            found = None
        given = found if isinstance(found, dict) else given
    if given is None:
        return {}
    plain = clean(given)
    return plain if isinstance(plain, dict) else {"input": plain}


def clean(value: Any) -> Any:
    """A JSON value with lone surrogates as U+FFFD, in names too; a copy."""
    if isinstance(value, str):
        return values.text(value)
    if isinstance(value, dict):
        return {values.text(name): clean(item) for name, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


class _Names:
    """Gives every call an id of its own, and tools names, that all providers accept.

    What is acceptable stays. Otherwise the new name follows from the old one and from those given
    before, so a call keeps it as the conversation goes on.
    """

    def __init__(self, id_chars_max: int) -> None:
        self._chars = id_chars_max
        self._given: set[str] = set()

    def of_call(self, id: str) -> str:
        plain = id
        if len(id) > self._chars or not _PLAIN.match(id):
            digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:12]
            plain = f"{_FOREIGN.sub('_', id)[: self._chars - 13]}_{digest}"
        base, number = plain, 1
        while plain in self._given:
            number += 1
            tail = f"_{number}"
            plain = base[: self._chars - len(tail)] + tail
        self._given.add(plain)
        return plain

    def of_tool(self, name: Any) -> str:
        if not isinstance(name, str) or not name:
            return "unknown"
        if len(name) <= _NAME_CHARS and _PLAIN.match(name):
            return name
        return _FOREIGN.sub("_", name)[:_NAME_CHARS]


# --- for the formats ----------------------------------------------------------------------------

Pieces = list[str | Image]


def with_images(blocks: Iterable[Block], load: Load | None) -> Pieces:
    """Texts and images in order; an image that is not to be had is told in words.

    Raises:
        PerdureError: what `load` raises, but for content that has expired.

    """
    out: Pieces = []
    for block in blocks:
        if block["type"] == "text":
            out.append(block["text"])
        elif block["type"] == "image":
            out.append(_image(block, load) or in_words(block))
    return out


def _image(block: Block, load: Load | None) -> Image | None:
    digest, media_type = block.get("blob"), block.get("media_type")
    if load is None or not isinstance(digest, str) or not isinstance(media_type, str):
        return None
    if media_type not in _MEDIA_TYPES:
        return None
    try:
        data = load(digest)
    except ContentExpired:
        return None
    return Image(media_type, base64.b64encode(data).decode()) if data else None


def texts(pieces: Pieces) -> list[str]:
    """The texts among the pieces."""
    return [piece for piece in pieces if isinstance(piece, str)]


def text_of(result: Block, pieces: Pieces) -> str:
    """The texts of a result as one, for formats that have no other sign of an error."""
    said = "\n\n".join(texts(pieces)) or "(no output)"
    return f"[error {result['error']}] {said}" if "error" in result else said
