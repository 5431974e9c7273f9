"""What the pieces of Codex's records say: texts, images, ids, arguments, outputs of tools."""

import re
from typing import Any

from perdure.lenses.pieces import json_text, text_block
from perdure.model.vocabulary.payloads import Block

__all__ = [
    "Output",
    "blocks_of",
    "image",
    "injected",
    "output_of",
    "picture",
    "prompt_keys",
    "texts_of",
]

Output = tuple[list[Block], bool]
"""What a tool said, and whether it failed."""


_TAGS = (
    "apps_instructions",
    "codex_internal_context",
    "collaboration_mode",
    "environment_context",
    "goal_context",
    "hook_prompt",
    "model_switch",
    "permissions instructions",
    "personality_spec",
    "plugins",
    "plugins_instructions",
    "realtime_conversation",
    "recommended_plugins",
    "skill",
    "skills_instructions",
    "subagent_notification",
    "subagents",
    "turn_aborted",
    "user_action",
    "user_instructions",
    "user_shell_command",
)
_INJECTED = re.compile(rf"\s*<({'|'.join(_TAGS)})[\s>]", re.IGNORECASE)
_AGENTS_MD = re.compile(r"\s*# AGENTS\.md instructions", re.IGNORECASE)
_WRAPPED = re.compile(r"\s*<([a-z]+(?:_[a-z]+)+)>.*</\1>\s*\Z", re.DOTALL)
"""A tag with an underscore around everything: a kind of context that came later than `_TAGS`."""

_IMAGE_LABEL = re.compile(r"\s*(?:<image(?: name=[^<>]*)?>|</image>)\s*\Z")
"""Codex puts these texts around each image."""

_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]{1,64})[;,]", re.IGNORECASE)
_SUFFIX = re.compile(r"\.(png|jpe?g|gif|webp)\Z", re.IGNORECASE)
_MAGIC = {"iVBOR": "png", "/9j/": "jpeg", "R0lGO": "gif", "UklGR": "webp"}


# --- content ------------------------------------------------------------------------------------


def texts_of(blocks: list[Block]) -> list[str]:
    """The texts of blocks."""
    return [block["text"] for block in blocks]


def blocks_of(content: object) -> list[Block] | None:
    """Text blocks for content as a string, a part, or a list of either; None: it is none.

    Parts that nobody can read (encrypted ones) are left out.
    """
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, str):
        return [text_block(content)] if content else []
    if not isinstance(content, list):
        return None
    known = [part for part in content if isinstance(part, str | dict)]
    if content and not known:
        return None
    found = (_block(part) if isinstance(part, dict) else text_block(part) for part in known)
    return [block for block in found if block is not None and block["text"]]


def _block(part: dict[str, Any]) -> Block | None:
    kind = part.get("type")
    for name in ("text", "refusal"):
        text = part.get(name)
        if isinstance(text, str) and text:
            return None if _IMAGE_LABEL.match(text) else text_block(text)
    if not isinstance(kind, str):
        return None
    if "image" in kind:
        return image(part.get("image_url", part.get("url")), part.get("mimeType"))
    if kind.endswith("file"):
        title = part.get("filename")
        return text_block(f"[file {title}]" if isinstance(title, str) and title else "[file]")
    return text_block("[audio]") if kind.endswith("audio") else None


def image(url: object, media_type: object = None) -> Block:
    """The text that stands for an image at a URL or a path, or in a `data:` URL."""
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str) and not isinstance(media_type, str):
        known, named = _DATA_URL.match(url), _SUFFIX.search(url[-8:])
        if known is not None:
            media_type = known[1].lower()
        elif named is not None:
            media_type = "image/" + named[1].lower().replace("jpg", "jpeg")
    known_type = isinstance(media_type, str) and 0 < len(media_type) <= 80
    return text_block(f"[image {media_type}]" if known_type else "[image]")


def picture(data: object) -> list[Block]:
    """The text that stands for an image in base64; nothing if there is none."""
    if not isinstance(data, str) or not data:
        return []
    kind = next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), None)
    return [image(None, None if kind is None else f"image/{kind}")]


# --- what the user typed ------------------------------------------------------------------------


def injected(blocks: list[Block]) -> str | None:
    """What a message in the user's name is, if it looks as if Codex itself had put it there.

    Only where no event says that it was typed: anybody may type such a text.
    """
    for text in texts_of(blocks):
        if _AGENTS_MD.match(text):
            return "agents-md"
        found = _INJECTED.match(text) or _WRAPPED.match(text)
        if found is not None:
            return re.sub("[ _]", "-", found[1].lower())
    return None


def prompt_keys(blocks: list[Block]) -> frozenset[str]:
    """Texts by which two records of one prompt are known as one: each part, and all of them."""
    texts = [text for text in texts_of(blocks) if not text.startswith("[image")]
    keys = {text.strip() for text in (*texts, "".join(texts))}
    return frozenset(keys - {""} or {""})


# --- tools --------------------------------------------------------------------------------------


def output_of(value: object) -> Output:
    """What a tool said: a string, a block, blocks, `{content, success}`, or any other JSON."""
    if value is None:
        return [], False
    if isinstance(value, str | list):
        blocks = blocks_of(value)
        if blocks or not value:
            return blocks or [], False
    if isinstance(value, dict):
        failed = value.get("success") is False
        for name in ("content", "content_items"):
            blocks = blocks_of(value[name]) if name in value else None
            if blocks is not None:
                return blocks, failed
        block = _block(value) if isinstance(value.get("type"), str) else None
        if block is not None:
            return [block], failed
        return _as_json(value), failed
    return _as_json(value), False


def _as_json(value: object) -> list[Block]:
    return [text_block(json_text(value))]
