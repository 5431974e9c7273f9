"""Attachments: what Claude Code tells the model beside the messages, as far as the text is kept."""

from typing import Any

__all__ = ["text_of"]

_PATHS: dict[str, tuple[str, ...]] = {
    "agent_listing_delta": ("addedLines",),
    "batching_reminder_sent": ("text",),
    "critical_system_reminder": ("content",),
    "deferred_tools_delta": ("addedLines",),
    "directory": ("content",),
    "edited_text_file": ("snippet",),
    "file": ("content", "file", "content"),
    "hook_additional_context": ("content",),
    "hook_blocking_error": ("blockingError", "blockingError"),
    "hook_success": ("content",),
    "invoked_skills": ("skills", "content"),
    "mcp_instructions_delta": ("addedBlocks",),
    "nested_memory": ("content", "content"),
    "output_style": ("style",),
    "read_truncation_notice": ("banner",),
    "silent_turn_reminder": ("text",),
    "skill_listing": ("content",),
    "total_tokens_reminder": ("text",),
}
"""Where the text stands that the model was told, by type; other types hold none, or only facts."""

_NAMES = ("filename", "path")


def text_of(attachment: dict[str, Any]) -> str:
    """The text of an attachment, below the name of its file if it has one; empty: it has none."""
    kind = attachment.get("type")
    path = _PATHS.get(kind) if isinstance(kind, str) else None
    if path is None:
        return ""
    text = "\n".join(_texts(attachment, path))
    if not text.strip():
        return ""
    names = (attachment.get(name) for name in _NAMES)
    name = next((name for name in names if isinstance(name, str) and name), None)
    return text if name is None else f"[{kind} {name}]\n{text}"


def _texts(value: object, path: tuple[str, ...]) -> list[str]:
    """The strings at the end of a path; a list on the way stands for each of its members."""
    if isinstance(value, list):
        members = (each for each in value if not isinstance(each, list))
        return [text for each in members for text in _texts(each, path)]
    if path:
        return _texts(value.get(path[0]), path[1:]) if isinstance(value, dict) else []
    return [value] if isinstance(value, str) else []
